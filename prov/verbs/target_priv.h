/* SPDX-License-Identifier: BSD-2-Clause */
/* Structs and functions that target.c and target_thread.c share. */
#ifndef RP_TARGET_PRIV_H
#define RP_TARGET_PRIV_H

#include "core/ring.h"
#include "core/spin.h"
#include "core/thread.h"
#include "verbs/target.h"

/* Number and length of receive and of send buffers (INFO is the longest). */
#define RECVS	 16
#define RECV_LEN 128
#define SENDS	 16
#define SEND_LEN 384

/* wr_id ranges: receives, then sends, then writes of ring slots. */
#define WR_ID_WRITES (RECVS + SENDS)
#define WR_ID_END    (WR_ID_WRITES + RP_RING_SLOTS)

/* A protection domain with its agent. */
struct rp_pd {
	struct rp_agent_host host; /* first member: the agent's handle */
	struct ibv_pd *pd;
	unsigned int refs; /* guarded by doms_lock */
	LIST_ENTRY(rp_pd) link;
	pthread_mutex_t lock;	  /* guards agent and channels */
	atomic_uint lock_waiters; /* number of threads waiting for lock */
	struct rp_agent *agent;
	struct ibv_comp_channel *channel;
	int kick; /* eventfd that wakes the thread */
	/* Peers whose completion queues are polled, not armed. */
	LIST_HEAD(, rp_target) polled;
	LIST_HEAD(, rp_target) targets; /* all peers */
	LIST_HEAD(, rp_qp) watched;	/* see rp_pd_facts() */
	uint64_t weakenings; /* last one announced; UINT64_MAX: try again */
	struct rp_spin spin;
	uint64_t spin_ns;
	bool has_message; /* a poll received a message */
	bool runs, stop;
	pthread_t thread;
};

struct rp_target {
	struct rp_channel c; /* first member: the agent's handle */
	struct rp_pd *dom;
	struct rp_qp *q; /* the program's queue pair */
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr; /* covers this struct */
	bool up;	   /* connected, no error */
	bool broken;	   /* failed; the thread will report the loss */
	/* State of the session, which the peer's HELLO opens. */
	enum {
		TARGET_NEW,
		TARGET_REQUESTED,
		TARGET_OPEN,
		TARGET_CLOSED
	} state;
	bool is_polled;
	LIST_ENTRY(rp_target) polled, link;
	uint64_t weakenings;  /* last one that this peer has got */
	unsigned int tx_free; /* bit i: tx[i] is free */
	uint8_t rx[RECVS][RECV_LEN], tx[SENDS][SEND_LEN];
	/*
	 * ring_in: requests, which the peer writes over the program's queue
	 * pair; ring_out: source of writes into the peer's ring of replies.
	 */
	struct ibv_mr *ring_mr; /* registers ring_in; NULL: no ring */
	uint8_t ring_in[RP_RING_LEN], ring_out[RP_RING_LEN];
	struct rp_ring ring;
	bool polling;	  /* POLLING was sent last, not IDLE */
	uint64_t replies; /* remote address of reply ring; or 0 */
	uint32_t replies_rkey;
	unsigned int writing; /* bit i: slot i is being written */
};

/* target_thread.c */

/* Start the domain's thread, unless it runs. 0 or a positive errno. */
int rp_pd_start(struct rp_pd *dom);
/* Wake the domain's thread; called from any thread. */
void rp_pd_wake(const struct rp_pd *dom);

/* target.c, called by the domain's thread with dom->lock */

extern const struct rp_agent_host_ops rp_target_host_ops;
/* Handle completions, or requests in the ring. True: there were some. */
bool rp_target_poll_cq(struct rp_target *s);
bool rp_target_poll_ring(struct rp_target *s);
/* Send a POLLING or IDLE message. False: no send buffer is free. */
bool rp_target_signal(struct rp_target *s, enum rp_msg_type type);
/* Fail q if a region has weakened since its peer got the facts. */
void rp_pd_fail_if_weakened(struct rp_pd *dom, struct rp_qp *q);
/* Send an INFO message per weakening, as send buffers are free. */
void rp_target_send_weakenings(struct rp_target *s);
void rp_target_disconnect(struct rp_target *s);

/* Lock; the thread, which relocks at once, yields to counted waiters. */
static inline void rp_pd_lock(struct rp_pd *dom)
{
	atomic_fetch_add(&dom->lock_waiters, 1);
	pthread_mutex_lock(&dom->lock);
	atomic_fetch_sub(&dom->lock_waiters, 1);
}

static inline void rp_target_unpark(struct rp_target *s)
{
	if (s->is_polled)
		return;
	LIST_INSERT_HEAD(&s->dom->polled, s, polled);
	s->is_polled = true;
}

static inline void rp_target_park(struct rp_target *s)
{
	if (s->is_polled)
		LIST_REMOVE(s, polled);
	s->is_polled = false;
}

/* Coarse clock: the agent's deadlines are far longer than its tick. */
static inline uint64_t rp_target_now(void)
{
	return rp_clock_ns(CLOCK_MONOTONIC_COARSE);
}

#endif
