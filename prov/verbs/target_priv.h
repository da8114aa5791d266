/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the target's agent and its side connections. */
#ifndef RP_TARGET_PRIV_H
#define RP_TARGET_PRIV_H

#include "core/ring.h"
#include "core/spin.h"
#include "core/thread.h"
#include "verbs/target.h"

/* Buffers of received messages, and of sent ones (INFO is the longest). */
#define RECVS 16
#define RECV  128
#define SENDS 16
#define SEND  384

/* wr_ids: receives, then messages, then writes of ring slots. */
#define WRITES (RECVS + SENDS)
#define NAMES  (WRITES + RP_RING_SLOTS)

struct rp_dom {
	struct rp_agent_host host; /* first: handed to the agent */
	struct ibv_pd *pd;
	unsigned int refs; /* guarded by doms_lock */
	LIST_ENTRY(rp_dom) link;
	pthread_mutex_t lock; /* guards the agent and its channels */
	atomic_uint wanted;   /* by threads that wait for the lock */
	struct rp_agent *agent;
	struct ibv_comp_channel *channel;
	int kick; /* eventfd */
	/* Peers whose completion queue is polled, not armed. */
	LIST_HEAD(, rp_target) polled;
	LIST_HEAD(, rp_target) targets; /* all of them */
	uint64_t weakenings;		/* those that every peer was sent */
	struct rp_spin spin;
	uint64_t spin_ns;
	bool has_message; /* set by a message; cleared before each poll */
	bool runs, stop;
	pthread_t thread;
};

struct rp_target {
	struct rp_channel c; /* first: handed to the agent */
	struct rp_dom *dom;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr; /* registers this struct from rx to its end */
	bool up;	   /* connected, without error */
	bool broken;	   /* has failed; the thread reports it to the agent */
	/* State of the session of the peer's HELLO. */
	enum {
		TARGET_NEW,
		TARGET_REQUESTED,
		TARGET_OPEN,
		TARGET_CLOSED
	} state;
	bool is_polled;
	LIST_ENTRY(rp_target) polled, link;
	uint64_t weakenings;  /* number of the last one that was sent */
	unsigned int tx_free; /* a bit per buffer */
	uint8_t rx[RECVS][RECV], tx[SENDS][SEND];
	/*
	 * The ring of requests, which the peer writes over its own queue pair,
	 * and the source of the peer's ring of replies.
	 */
	struct ibv_mr *ring_mr; /* of ring_in; NULL: no ring */
	uint8_t ring_in[RP_RING_LEN], ring_out[RP_RING_LEN];
	struct rp_ring ring;
	bool polling;	  /* the peer has POLLING, without IDLE since */
	uint64_t replies; /* remote address of the peer's ring; 0: none */
	uint32_t replies_rkey;
	unsigned int writing; /* a bit per slot of ring_out */
};

/* target_thread.c */

/* Start the thread of the domain, unless it runs. 0 or a positive errno. */
int rp_dom_start(struct rp_dom *dom);
/* Wake the thread. From any thread. */
void rp_dom_wake(const struct rp_dom *dom);

/* target.c, called by the thread under the lock */

extern const struct rp_agent_host_ops rp_target_host_ops;
/* Poll completions, or the ring. True: there were some. */
bool rp_target_drain(struct rp_target *s);
bool rp_target_poll_ring(struct rp_target *s);
/* Send POLLING or IDLE. False: no send buffer is free. */
bool rp_target_signal(struct rp_target *s, enum rp_msg_type type);
/* Send an INFO of each weakening. False: no send buffer is free. */
bool rp_target_send_weakenings(struct rp_target *s);
void rp_target_hang_up(struct rp_target *s);

static inline void rp_dom_enter(struct rp_dom *dom)
{
	atomic_fetch_add(&dom->wanted, 1);
	pthread_mutex_lock(&dom->lock);
	atomic_fetch_sub(&dom->wanted, 1);
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

/* Deadlines of the agent are far longer than the kernel's tick. */
static inline uint64_t rp_target_now(void)
{
	return rp_clock_ns(CLOCK_MONOTONIC_COARSE);
}

#endif
