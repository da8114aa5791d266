/* SPDX-License-Identifier: BSD-2-Clause */
/* Connected endpoints of our own below the reliable datagrams; see core/link.h.
 */
#ifndef RPMEM_CONN_H
#define RPMEM_CONN_H

#include "rpmem/rpmem.h"

/* The promises that a second route cannot keep. */
#define RP_ORDER_ACROSS                                                        \
	(uint64_t)(FI_ORDER_WAW | FI_ORDER_RMA_WAW | FI_ORDER_SAW |            \
		   FI_ORDER_WAS)
/* Regions that may be written to over one connection. */
#define RP_CONN_GRANTS 64
/* Connections that a domain has, either way; of them, not yet made. */
#define RP_CONNS_MAX	 1024
#define RP_CONNS_HALF	 64
#define RP_CONNS_HALF_NS 5000000000ull
/* What all may have posted: the queue has room for that. */
#define RP_CONNS_POSTED 4096
/* Sources that the device cannot be left alone with: copied, up to this. */
#define RP_BOUNCE_SIZE	16384
#define RP_BOUNCE_COUNT 32

/* One connection. All of it belongs to the domain's lock. */
struct rp_conn {
	LIST_ENTRY(rp_conn) link;
	struct rp_conns *set;
	struct fid_ep *ep;    /* NULL: not accepted yet, or over */
	struct rp_peer *peer; /* at the initiator */
	uint64_t secret;      /* at the target: who shows it is let in */
	uint64_t born;
	bool up;
	bool over; /* and nothing can bring it back */
	unsigned int posted;
	struct rp_mr *granted[RP_CONN_GRANTS];
	unsigned int ngranted;
};

/* All of one domain, and what they share; opened with the first. */
struct rp_conns {
	struct rp_dom *dom;
	struct fi_info *info; /* of the base's connected endpoints */
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_pep *pep; /* at the target */
	uint8_t to[RP_WIRE_MAX_ADDR];
	size_t to_len;
	int epfd; /* wakes for all of it */
	LIST_HEAD(, rp_conn) all;
	unsigned int n, half, posted;
	uint64_t looked; /* for events, last */
	uint64_t landing;
	struct fid_mr *landing_mr;
	char *bounce;
	struct fid_mr *bounce_mr;
	uint32_t bounce_free; /* a bit for each */
};

/* --- conns.c --- */

/* Can connections of our own be made here? NULL: no. */
struct rp_conns *rp_conns_new(struct rp_dom *dom);
void rp_conns_delete(struct rp_conns *set);
/* With the lock: what the connections have to say. */
void rp_conns_progress(struct rp_conns *set);
/* -FI_EAGAIN: do not sleep. */
int rp_conns_trywait(struct rp_conns *set);
/* With the lock: no connection may reach this region any more. */
void rp_conns_revoke(struct rp_conns *set, const struct rp_mr *mr);
/* Register memory of ours there; *mr is NULL where none need be. */
int rp_conns_reg(struct rp_conns *set, void *buf, size_t len, uint64_t access,
		 struct fid_mr **mr);
static inline bool rp_conns_local(const struct rp_conns *set)
{
	return set->info->domain_attr->mr_mode & FI_MR_LOCAL;
}
/* Open what all share. For an endpoint's address: where to listen. */
int rp_conns_open(struct rp_conns *set, const struct rp_ep *ep, bool listens);
/* What goes by the name of the domain's own connections, for people. */
bool rp_conns_wanted(const char *base);

/* --- conn.c: for struct rp_xport_ops, and what happens to one --- */

int rp_conn_dial(struct rp_xport *x, struct rp_peer *p, const void *addr,
		 size_t len, uint64_t secret, void **conn);
void rp_conn_hang_up(struct rp_xport *x, void *conn);
int rp_conn_offer(struct rp_xport *x, void **conn, const struct rp_region *r,
		  struct rp_wire_offer *m);
void rp_conn_unoffer(struct rp_xport *x, void *conn);
/* Somebody connects, and shows this. info is not kept. */
void rp_conn_requested(struct rp_conns *set, struct fi_info *info,
		       const void *shown, size_t len);
void rp_conn_connected(struct rp_conn *c);
/* It is over: whoever has it is told. */
void rp_conn_broken(struct rp_conn *c);

/* --- linked.c --- */

/* A slot of kind LINKED, or what is left of one, has come back. */
void rp_linked_completed(struct rp_conns *set, struct rp_slot *s, bool fence,
			 int err);
/* Nothing of what was posted on it is told any more. */
void rp_linked_abandon(struct rp_conn *c);

/* --- mr.c --- */

/* Its key and first byte over connections of our own, made on first use. */
int rp_mr_link(const struct rp_region *r, struct rp_conns *set,
	       struct rp_mr **mr, uint64_t *there, uint64_t *at);

#endif
