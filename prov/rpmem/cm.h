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
int rp_pep_hook(struct rp_fabric *fab, struct fid_pep *pep,
		const struct fi_info *info);
/* What a passive endpoint was opened with; NULL: it is the base's own. */
const struct fi_info *rp_pep_info(const struct fid *fid);
/*
 * Does the base's event queue have the end of this endpoint of the base's for
 * who reads it next?
 */
bool rp_eq_has_end(struct fid_eq *eq, const struct fid *base);
/* The base's answer to fi_getopt(), where a card takes part of it. */
int rp_cm_opt(int level, int optname, void *optval);

/* --- cm_asked.c: what those showed who ask to be connected --- */

/*
 * With fab->cm_lock. card NULL: nothing, whatever that handle was before; or it
 * is answered, or never will be.
 */
int rp_asked_keep(struct rp_fabric *fab, const struct fid *handle,
		  const struct rp_mailbox_card *card);
/* NULL: it showed no card. */
const struct rp_mailbox_card *rp_asked_card(const struct rp_fabric *fab,
					    const struct fid *handle);
void rp_asked_free(struct rp_fabric *fab);

/* --- srx.c --- */

int rp_srx_open(struct rp_dom *dom, struct fi_rx_attr *attr,
		struct fid_ep **out, void *context);

/* --- cm.c --- */

extern struct fi_ops_cm rp_cm_ops;
/* It has no vector: whatever a program passes for an address is ignored. */
extern struct rp_av rp_cm_av;
/* With fab->cm_lock: the endpoint of ours over this one of the base. */
struct rp_ep *rp_cm_find(struct rp_fabric *fab, const struct fid *base);
/* An event of it was read; card: that came with it, or NULL. */
void rp_cm_event(struct rp_ep *ep, uint32_t event,
		 const struct rp_mailbox_card *card);
/* With the lock: the connection is gone; what waits for it ends. */
void rp_cm_over(struct rp_ep *ep);

/* --- mail.c: control messages, written into the other end's memory --- */

/* A request that waits, in the frame that it is written from. */
struct rp_mail_held {
	struct rp_mailbox_write w;
	bool held;
	bool reads;	   /* one is not back */
	unsigned int next; /* of its ranges */
};

struct rp_mail {
	struct rp_mailbox box;
	struct fid_mr *mr;
	struct fid_mr *out_mr; /* NULL: the base wants none */
	uint64_t key;	       /* by which the peer writes */
	uint64_t there;	       /* of the peer's, and its first byte: */
	uint64_t there_at;
	bool known;   /* those are */
	bool fenced;  /* who is there wants requests behind reads */
	bool broken;  /* a write has failed */
	bool probing; /* one that only asks whether there is anybody */
	uint64_t probed;
	size_t peer_len;
	uint8_t peer[RP_WIRE_MAX_ADDR];
	struct rp_mail_held held[RP_MAILBOX_FRAMES];
	uint8_t in[RP_MAILBOX_LEN], out[RP_MAILBOX_LEN];
};

extern const struct rp_xport_ops rp_mail_ops;
/*
 * With the lock: from then on the peer may write, whose address is that; NULL
 * where it is told (rp_mail_card()), and tells (rp_mail_told()).
 */
int rp_mail_open(struct rp_ep *ep, const void *peer);
void rp_mail_card(const struct rp_ep *ep, struct rp_mailbox_card *card);
void rp_mail_told(struct rp_ep *ep, const struct rp_mailbox_card *card);
/* The base endpoint is gone, or was never connected. */
void rp_mail_close(struct rp_ep *ep);
/* With the lock, from progress: what has come, and whether it still can. */
void rp_mail_look(struct rp_ep *ep);
/* Is something waited for whose end only a look shows? */
bool rp_mail_waits(const struct rp_ep *ep);
/* A slot of kind MAIL came back. err: positive, 0: success. */
void rp_mail_sent(struct rp_slot *s, int err);
/* Write it now. 0 or -errno: it was not. */
int rp_mail_write(struct rp_ep *ep, const struct rp_mailbox_write *w);

/* --- mail_fence.c --- */

/* Write the request that was put last when nothing can be behind it. */
void rp_mail_hold(struct rp_ep *ep, const struct rp_mailbox_write *w);
/* With the lock, from progress: what the base would not take before. */
void rp_mail_release(struct rp_ep *ep);
/* A slot of kind MAIL_FENCE came back. */
void rp_mail_fenced(struct rp_slot *s, int err);

#endif
