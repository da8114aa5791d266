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
/* What all may have posted: the queue has room for that; and of it, receives.
 */
#define RP_CONNS_POSTED 4096
#define RP_CONNS_RECVS	3072
/* Of one connection: one more, as it is posted again behind the answer. */
#define RP_CONN_RECVS (RP_WIRE_LINKED + 1)
/* Where receives are shared: as many as so many connections have alone. */
#define RP_CONNS_POOL 8
/* Sources that the device cannot be left alone with: copied, up to this. */
#define RP_BOUNCE_SIZE	16384
#define RP_BOUNCE_COUNT 32

/* Where messages of one connection arrive. */
struct rp_conn_recv {
	struct rp_conn_recvs *of;
	uint8_t *buf;
};
struct rp_conn_recvs {
	LIST_ENTRY(rp_conn_recvs) link; /* of set->dying, or set->pool */
	struct rp_conn *conn; /* NULL: it is over; or they are all's */
	bool served;	      /* for requests; else for answers */
	struct rp_cep_mr mr;
	size_t size; /* of each */
	struct rp_conn_recv recv[RP_CONN_RECVS];
	uint8_t bytes[];
};

/* One connection. All of it belongs to the domain's lock. */
struct rp_conn {
	LIST_ENTRY(rp_conn) link;
	struct rp_conns *set;
	struct rp_cep *cep;   /* NULL: not accepted yet, or over */
	struct rp_peer *peer; /* at the initiator */
	uint64_t secret;      /* at the target: who shows it is let in */
	uint64_t born;
	bool up;
	bool over; /* and nothing can bring it back */
	unsigned int posted;
	unsigned int asked;	     /* answers that are due */
	struct rp_xport *x;	     /* at the target: who serves it */
	bool serves;		     /* and there will be requests */
	bool mute;		     /* an answer could not be sent */
	bool receives;		     /* messages may come */
	struct rp_conn_recvs *recvs; /* its own; NULL: those of all */
	struct rp_mr *granted[RP_CONN_GRANTS];
	unsigned int ngranted;
};

/* All of one domain, and what they share; opened with the first. */
struct rp_conns {
	struct rp_dom *dom;
	const struct rp_cep_ops *ops;
	struct rp_ceps *ceps;
	struct rp_ceps_attr attr;
	bool opened, listens;
	uint8_t to[RP_WIRE_MAX_ADDR];
	size_t to_len;
	int epfd; /* wakes for all of it */
	LIST_HEAD(, rp_conn) all;
	unsigned int n, half, posted, nrecvs;
	/* Of those that are over: until the queue has nothing more of them. */
	LIST_HEAD(, rp_conn_recvs) dying;
	/* Of all that were dialed, and of all that were taken. */
	LIST_HEAD(, rp_conn_recvs) pool;
	unsigned int npool[2]; /* by what they serve */
	bool abandoned;	       /* and slots */
	bool waits;	       /* the queue wakes who sleeps */
	unsigned int empty;    /* so often in a row nothing was there */
	uint64_t looked;       /* for events, last */
	uint64_t landing;
	struct rp_cep_mr landing_mr;
	char *bounce;
	struct rp_cep_mr bounce_mr;
	uint32_t bounce_free; /* a bit for each */
};

/* --- conns.c --- */

/* Can connections of our own be made here? NULL: no. */
struct rp_conns *rp_conns_new(struct rp_dom *dom);
void rp_conns_delete(struct rp_conns *set);
/* With the lock: what the connections have to say. */
void rp_conns_progress(struct rp_conns *set);
/* -FI_EAGAIN: do not sleep. *soon: nor for long, for nothing will tell. */
int rp_conns_trywait(struct rp_conns *set, bool *soon);
/* With the lock: no connection may reach this region any more. */
void rp_conns_revoke(struct rp_conns *set, const struct rp_mr *mr);
/* Register memory there; after an error, and then, mr->handle is NULL. */
int rp_conns_reg(struct rp_conns *set, void *buf, size_t len, uint64_t access,
		 struct rp_cep_mr *mr);
void rp_conns_dereg(struct rp_conns *set, struct rp_cep_mr *mr);
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
/* Somebody connects, and shows this. */
void rp_conn_requested(struct rp_conns *set, void *request, const void *shown,
		       size_t len);
void rp_conn_connected(struct rp_conn *c);
/* It is over: whoever has it is told. */
void rp_conn_broken(struct rp_conn *c);

/* --- conn_recv.c --- */

/* Post them; once they are, it has them until it is over. */
int rp_conn_recvs_post(struct rp_conn *c);
/* Its endpoint is closed; what has arrived is not looked at any more. */
void rp_conn_recvs_close(struct rp_conn *c);
/* The queue has been read to its end since. */
void rp_conn_recvs_reap(struct rp_conns *set);
/* Nothing is to arrive any more: reap() when nothing can. */
void rp_conn_recvs_end(struct rp_conns *set);
/* A message, or why there is none; c: whose, where the receive is all's. */
void rp_conn_received(struct rp_conns *set, struct rp_conn_recv *r,
		      struct rp_conn *c, size_t len, int err);
void rp_conn_answer(struct rp_xport *x, void *conn, const void *msg,
		    size_t len);
/* Contexts that come back: slots, but for those. */
static inline void *rp_conn_recv_context(struct rp_conn_recv *r)
{
	return (char *)r + 1;
}
static inline struct rp_conn_recv *rp_conn_recv_of(void *context)
{
	return (uintptr_t)context & 1 ? (void *)((char *)context - 1) : NULL;
}

/* --- linked.c --- */

/*
 * Send the request of this slot's reserved commit, with these bytes or none; no
 * answer to it is looked at before rp_linked_sent(), which starts the commit.
 */
int rp_linked_send(struct rp_slot *s, struct rp_link_way *way,
		   const void *bytes);
void rp_linked_sent(struct rp_slot *s, const struct rp_link_way *way);
/* The answer to a request of this one has come. */
void rp_linked_taken(struct rp_conns *set, struct rp_linked *op);

/* A slot of kind LINKED, or what is left of one, has come back. */
void rp_linked_completed(struct rp_conns *set, struct rp_slot *s, bool fence,
			 int err);
/* Nothing of what was posted on it is told any more. */
void rp_linked_abandon(struct rp_conn *c);
/* The queue has been read to its end since: nothing comes back any more. */
void rp_linked_reap(struct rp_conns *set);

/* --- mr.c --- */

/*
 * Its key and first byte over connections of our own, made on first use: into
 * m. -FI_EOPNOTSUPP: not for the method native.
 */
int rp_mr_link(const struct rp_region *r, struct rp_conns *set,
	       struct rp_mr **mr, struct rp_wire_offer *m);

#endif
