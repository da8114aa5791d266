/* SPDX-License-Identifier: BSD-2-Clause */
/* Connected endpoints of the program's: what reliable datagrams lack. */
#ifndef RPMEM_CM_H
#define RPMEM_CM_H

#include "core/mailbox.h"
#include "rpmem/rpmem.h"

/* --- info_msg.c --- */

/* Is this, of hints' kind or returned for them, for connected ones of ours? */
bool rp_info_is_msg(const struct fi_info *info, const char *base);
/* Entries that we make of the base's; nothing where hints do not ask. */
int rp_info_msg_list(uint32_t version, const char *node, const char *service,
		     uint64_t flags, const struct fi_info *hints,
		     const char *base, struct fi_info **list);
/* Hints found nothing: say so where a base is the reason. */
void rp_info_msg_why(const struct fi_info *hints, const char *base);
/* The base's own entry behind what a program chose. */
int rp_info_msg_base(const struct rp_fabric *fab, const struct fi_info *info,
		     struct fi_info **out);
/* A program's entry as the base wants to see it, under the base's name. */
struct fi_info *rp_info_msg_to_base(const struct fi_info *info,
				    const char *base);

/* --- eq.c, pep.c --- */

/*
 * The base's own event queue, which the base's objects can be bound to; but
 * what is read from it goes through us.
 */
int rp_eq_hook(struct rp_fabric *fab, struct fid_eq *eq);
/* The same of a passive endpoint: who connects is for ours. */
int rp_pep_hook(struct fid_pep *pep, const struct fi_info *info);
/* What a passive endpoint was opened with; NULL: it is the base's own. */
const struct fi_info *rp_pep_info(const struct fid *fid);

/* --- srx.c --- */

int rp_srx_open(struct rp_dom *dom, struct fi_rx_attr *attr,
		struct fid_ep **out, void *context);

/* --- cm.c --- */

extern struct fi_ops_cm rp_cm_ops;
/* It has no vector: whatever a program passes for an address is ignored. */
extern struct rp_av rp_cm_av;
/* With fab->cm_lock: the endpoint of ours over this one of the base. */
struct rp_ep *rp_cm_find(struct rp_fabric *fab, const struct fid *base);
/* An event of it was read. */
void rp_cm_event(struct rp_ep *ep, uint32_t event);
/* With the lock: the connection is gone; what waits for it ends. */
void rp_cm_over(struct rp_ep *ep);

/* --- mail.c: control messages, written into the other end's memory --- */

struct rp_mail {
	struct rp_mailbox box;
	struct fid_mr *mr;
	uint64_t key;	/* by which the peer writes */
	uint64_t there; /* of the peer's */
	bool broken;	/* a write has failed */
	uint64_t probed;
	size_t peer_len;
	uint8_t peer[RP_WIRE_MAX_ADDR];
	uint8_t in[RP_MAILBOX_LEN], out[RP_MAILBOX_LEN];
};

extern const struct rp_xport_ops rp_mail_ops;
/* With the lock: from then on the peer may write, whose address is that. */
int rp_mail_open(struct rp_ep *ep, const void *peer);
/* The base endpoint is gone, or was never connected. */
void rp_mail_close(struct rp_ep *ep);
/* With the lock, from progress: what has come, and whether it still can. */
void rp_mail_look(struct rp_ep *ep);
/* Is something waited for whose end only a look shows? */
bool rp_mail_waits(const struct rp_ep *ep);
/* A slot of kind MAIL came back. err: positive, 0: success. */
void rp_mail_sent(struct rp_slot *s, int err);

#endif
