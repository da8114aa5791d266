/* SPDX-License-Identifier: BSD-2-Clause */
/* RC queue pair backend: structs and functions of the rc_verbs files. */
#ifndef RP_RC_VERBS_H
#define RP_RC_VERBS_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "core/hash.h"
#include "rc/rc_native_flush.h"
#include "rc/rc_priv.h"

/* Send queue depth of one queue pair. */
#define RP_VERBS_DEPTH 64
/* Scatter entries of a work request. */
#define RP_VERBS_SGES (RP_CHANNEL_IOV + 1)
/* Copies of messages and writes whose memory is not registered. */
#define RP_VERBS_COPIES 64
/* Completion queue entries per ibv_poll_cq(). */
#define RP_VERBS_WCS 16
/* Outstanding READs on one queue pair. */
#define RP_VERBS_READS 16

struct rp_verbs_copy {
	SLIST_ENTRY(rp_verbs_copy) link;
	uint8_t bytes[RP_WIRE_MAX_MSG];
};

/* An outstanding work request; its address is the wr_id. */
struct rp_verbs_wr {
	struct rp_verbs_qp *qp;
	struct rp_channel_op *op;   /* NULL: injected SEND, or internal READ */
	struct rp_verbs_copy *copy; /* source of the data; NULL: not copied */
};

/*
 * A queue pair. After ibv_destroy_qp() this struct is kept until the completion
 * queue has been empty once: wr_ids of entries may point into it.
 */
struct rp_verbs_qp {
	struct rp_verbs_channel *channel; /* NULL: ibv is destroyed */
	struct ibv_qp *ibv;
	uint32_t num;
	UT_hash_handle hh;	      /* rp_verbs_rc.qps, by num */
	LIST_ENTRY(rp_verbs_qp) link; /* rp_verbs_rc.dead_qps */
	unsigned int head, tail;      /* counts of posted, completed */
	unsigned int unsignaled;      /* posted since last signaled */
	struct rp_verbs_wr ring[RP_VERBS_DEPTH];
};

/* An rdma_cm_id, with its channel or as a connection request. */
struct rp_verbs_id {
	struct rdma_cm_id *cm;
	struct rp_verbs_channel *channel; /* NULL: connection request */
	uint8_t reads;			  /* peer's initiator depth */
};

struct rp_verbs_channel {
	struct rp_rc_channel c;
	struct rp_verbs_id *id;
	struct rp_verbs_qp *qp;
	bool passive, up; /* accepted, not connected; qp is in state RTS */
	uint8_t data_len;
	uint8_t data[RP_WIRE_CM_DATA]; /* private data of rdma_connect() */
};

struct rp_verbs_rc {
	struct rp_rc rc;
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	/* The device, opened apart from librdmacm for its async events. */
	struct ibv_context *verbs; /* NULL: no address has chosen it yet */
	struct ibv_pd *pd;
	struct ibv_comp_channel *wake; /* NULL: no thread ever sleeps */
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	bool native; /* queue pairs have native FLUSH */
	uint32_t max_inline;
	uint8_t max_reads, max_served_reads;
	struct rp_verbs_qp *qps;
	LIST_HEAD(, rp_verbs_qp) dead_qps;
	/* Numbers of CQ entries for sends: all; in use; not signaled yet. */
	unsigned int cq_room, cq_used, unsignaled;
	/* Entries read after arming, reported by the next poll. */
	struct ibv_wc wcs_after_arm[RP_VERBS_WCS];
	int nwcs_after_arm;
	uint64_t fence_scratch; /* destination of read fences */
	struct rp_rc_mr fence_scratch_mr;
	/* The array of copies, allocated on first use. */
	struct rp_verbs_copy *copies;
	struct rp_rc_mr copies_mr;
	SLIST_HEAD(, rp_verbs_copy) free_copies;
};

static inline struct rp_verbs_rc *rp_verbs_rc_of(struct rp_rc *rc)
{
	return rp_container_of(rc, struct rp_verbs_rc, rc);
}

static inline struct rp_verbs_channel *
rp_verbs_channel_of(struct rp_rc_channel *c)
{
	return rp_container_of(c, struct rp_verbs_channel, c);
}

/* Make fd non-blocking, because it is read until empty, and watch it. */
int rp_verbs_watch_fd(struct rp_verbs_rc *v, int fd);
/* Open the device, unless it is open; -ENODEV: another one is open. */
int rp_verbs_open_device(struct rp_verbs_rc *v, const char *name);
/* Make a queue pair for this channel, in state RESET. */
int rp_verbs_qp_new(struct rp_verbs_channel *c);
void rp_verbs_qp_destroy(struct rp_verbs_channel *c);
struct rp_verbs_qp *rp_verbs_qp_find(struct rp_verbs_rc *v, uint32_t num);
/* End all channels, because the device has failed. */
void rp_verbs_end_all(struct rp_verbs_rc *v, int err);

int rp_verbs_reg(struct rp_rc *rc, void *buf, size_t len, unsigned int access,
		 struct rp_rc_mr *mr);

/* --- rc_verbs_post.c --- */

/* Return a copy to the free list; NULL: no-op. */
void rp_verbs_copy_put(struct rp_verbs_rc *v, struct rp_verbs_copy *copy);
int rp_verbs_post(struct rp_channel *base, struct rp_channel_op *ops[], int n);
int rp_verbs_post_recv(struct rp_rc *rc, struct rp_rc_recv *r);
int rp_verbs_poll(struct rp_rc *rc, int max);
int rp_verbs_trywait(struct rp_rc *rc);
/* The completion queue is empty: free the structs of destroyed queue pairs. */
void rp_verbs_free_dead_qps(struct rp_verbs_rc *v);

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
