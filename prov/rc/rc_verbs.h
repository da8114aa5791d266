/* SPDX-License-Identifier: BSD-2-Clause */
/* The queue pair backend: what its device half and its CM half share. */
#ifndef RP_RC_VERBS_H
#define RP_RC_VERBS_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "core/hash.h"
#include "rc/rc_flush.h"
#include "rc/rc_priv.h"

/* Work requests of one queue pair. */
#define RP_VERBS_DEPTH 64
/* Scatter entries of one: an operation's, behind the header of its message. */
#define RP_VERBS_SGES (RP_CHANNEL_IOV + 1)
/* Messages and writes that are copied, because nobody registered them. */
#define RP_VERBS_COPIES 64
/* Entries read from the completion queue at once. */
#define RP_VERBS_WCS 16
/* READs under way on one queue pair. */
#define RP_VERBS_READS 16

struct rp_verbs_copy {
	SLIST_ENTRY(rp_verbs_copy) link;
	uint8_t bytes[RP_WIRE_MAX_MSG];
};

/* A work request under way; its address is the wr_id. */
struct rp_verbs_wr {
	struct rp_verbs_qp *qp;
	struct rp_channel_op *op;   /* NULL: injected, or a READ of ours */
	struct rp_verbs_copy *copy; /* NULL: none */
};

/*
 * A queue pair. Its memory outlives it until the completion queue was found
 * empty: entries of a destroyed queue pair may still be in there.
 */
struct rp_verbs_qp {
	struct rp_verbs_channel *channel; /* NULL: destroyed */
	struct ibv_qp *ibv;
	uint32_t num;
	UT_hash_handle hh;	      /* of rc->qps, by num */
	LIST_ENTRY(rp_verbs_qp) link; /* of rc->dead_qps */
	unsigned int head, tail; /* counters: posted, known to be completed */
	unsigned int unsignaled; /* since the last that is signaled */
	struct rp_verbs_wr ring[RP_VERBS_DEPTH];
};

/* A connection that somebody asks for, or the identifier of a channel. */
struct rp_verbs_id {
	struct rdma_cm_id *cm;
	struct rp_verbs_channel *channel; /* NULL: a request */
	uint8_t reads;			  /* that its peer wants to have */
};

struct rp_verbs_channel {
	struct rp_rc_channel c;
	struct rp_verbs_id *id;
	struct rp_verbs_qp *qp;
	bool passive, up;
	uint8_t data_len;
	uint8_t data[RP_WIRE_CM_DATA]; /* to connect with */
};

struct rp_verbs_rc {
	struct rp_rc rc;
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	/* The device, opened here: its asynchronous events are ours alone. */
	struct ibv_context *verbs; /* NULL: no address has led to one yet */
	struct ibv_pd *pd;
	struct ibv_comp_channel *wake; /* NULL: nobody sleeps */
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	bool native; /* queue pairs can FLUSH */
	uint32_t max_inline;
	uint8_t max_reads, max_served_reads;
	struct rp_verbs_qp *qps;
	LIST_HEAD(, rp_verbs_qp) dead_qps;
	/* Entries of the completion queue for sends, those that sends under
	 * way may need, and those of unsignaled ones among them. */
	unsigned int cq_room, cq_used, unsignaled;
	/* Found when the completion queue was armed. */
	struct ibv_wc kept[RP_VERBS_WCS];
	int nkept;
	uint64_t landing; /* of fences */
	struct rp_rc_mr landing_mr;
	/* Copies are allocated with the first that is needed. */
	struct rp_verbs_copy *copies;
	struct rp_rc_mr copies_mr;
	SLIST_HEAD(, rp_verbs_copy) free_copies;
};

static inline struct rp_verbs_rc *rp_verbs_rc_of(struct rp_rc *rc)
{
	return rp_rc_container(rc, struct rp_verbs_rc, rc);
}

static inline struct rp_verbs_channel *
rp_verbs_channel_of(struct rp_rc_channel *c)
{
	return rp_rc_container(c, struct rp_verbs_channel, c);
}

/* fd is read until it is empty. */
int rp_verbs_no_wait(struct rp_verbs_rc *v, int fd);
/* Once; -ENODEV: another one is open. */
int rp_verbs_open_device(struct rp_verbs_rc *v, const char *name);
/* A queue pair for this channel, in RESET. */
int rp_verbs_qp_new(struct rp_verbs_channel *c);
void rp_verbs_qp_destroy(struct rp_verbs_channel *c);
struct rp_verbs_qp *rp_verbs_qp_find(struct rp_verbs_rc *v, uint32_t num);
/* The device is of no use any more. */
void rp_verbs_end_all(struct rp_verbs_rc *v, int err);

int rp_verbs_reg(struct rp_rc *rc, void *buf, size_t len, unsigned int access,
		 struct rp_rc_mr *mr);

/* --- rc_verbs_post.c --- */

/* copy: NULL is none. */
void rp_verbs_copy_put(struct rp_verbs_rc *v, struct rp_verbs_copy *copy);
int rp_verbs_post(struct rp_rc_channel *c, struct rp_channel_op *ops[], int n);
int rp_verbs_post_recv(struct rp_rc *rc, struct rp_rc_recv *r);
int rp_verbs_poll(struct rp_rc *rc, int max);
int rp_verbs_trywait(struct rp_rc *rc);
/* The completion queue is empty: destroyed queue pairs left nothing in it. */
void rp_verbs_reap(struct rp_verbs_rc *v);

/* --- rc_verbs_cm.c --- */

int rp_verbs_cm_open(struct rp_verbs_rc *v, char *why, size_t why_size);
void rp_verbs_cm_close(struct rp_verbs_rc *v);
int rp_verbs_listen(struct rp_rc *rc, const union rp_rc_addr *at, size_t len,
		    uint16_t *port);
int rp_verbs_connect(struct rp_rc_channel *c, size_t addr_len, const void *data,
		     size_t len);
int rp_verbs_accept(struct rp_rc_channel *c, void *handle, const void *data,
		    size_t len);
void rp_verbs_reject(struct rp_rc *rc, void *handle, const void *data,
		     size_t len);
void rp_verbs_shut(struct rp_rc_channel *c);
int rp_verbs_poll_events(struct rp_rc *rc, int max);

#endif
