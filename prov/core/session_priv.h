/* SPDX-License-Identifier: BSD-2-Clause */
/* Declarations for session*.c only. */
#ifndef RP_SESSION_PRIV_H
#define RP_SESSION_PRIV_H

#include <sys/socket.h>

#include "core/atomic.h"
#include "core/hash.h"
#include "core/session.h"
#include "core/stats.h"

#define RP_SESSION_TOKEN_BUCKETS 64 /* buckets of outstanding requests */
/* Most ranges that are unplaced (more: a fence is due), poisoned, by_agent. */
#define RP_SESSION_RANGES	  1024
#define RP_SESSION_UNPLACED_BYTES (64ull << 20) /* more: a fence is due */
#define RP_SESSION_GRANTS	  65536
/* For more ranges one REQUEST costs less than a FLUSH of each. */
#define RP_SESSION_FLUSHES   16
#define RP_SESSION_FLUSH_LEN (1ull << 30) /* longest range of one FLUSH */
#define RP_SESSION_FENCE_LEN 8

/* The state of an operation; docs/protocol.md draws the edges. */
enum rp_op_state {
	RP_OP_NEW,     /* not accepted yet */
	RP_OP_QUEUED,  /* waits for earlier operations or their stores */
	RP_OP_DATA,    /* to be posted: RDMA of its bytes */
	RP_OP_SLICES,  /* to be posted: requests, fences, flushes */
	RP_OP_REPLIES, /* replies are due to all requests but the last */
	RP_OP_LAST,    /* to be posted: the last request, with the effect */
	RP_OP_POSTED,  /* all is posted; completions are due */
	RP_OP_ENDED,   /* done() is due */
	RP_OP_STATES
};

enum rp_grant_state {
	RP_GRANT_QUERIED, /* a QUERY is outstanding */
	RP_GRANT_GIVEN,
	RP_GRANT_FAILED, /* its status completes the next operation */
};

/* The grant of a key on this connection. */
struct rp_grant {
	uint64_t key;
	enum rp_grant_state state;
	struct rp_wire_grant g;
	/* Method of commits without the agent; REFUSED: there is none. */
	enum rp_method without_agent;
	bool dirty;	 /* written by this connection, maybe not durable */
	uint64_t fenced; /* seq of the last operation that fenced the region */
	enum rp_status status; /* reason of a FAILED grant */
	uint32_t detail;
	UT_hash_handle hh;
};

TAILQ_HEAD(rp_ops, rp_op);

struct rp_session {
	struct rp_connector *k;
	struct rp_session_attr attr;
	struct sockaddr_storage addr;
	size_t addr_len;
	char target[80];    /* address and port as text */
	uint64_t initiator; /* identifies this object to the target */
	uint16_t port;	    /* the endpoint's port, sent in HELLO */
	bool ordered;	    /* place writes in the order of posting */
	enum rp_session_state state;
	struct rp_channel *channel;
	uint64_t hello_key;

	/* The connection ends with this status at the next progress. */
	bool end_due;
	enum rp_status end_status;
	uint32_t end_detail;
	/* Why connecting failed, for the next operation; RP_ST_OK: none. */
	enum rp_status failure;
	uint32_t failure_detail;

	struct rp_grant *grants, *last_grant; /* result of the last lookup */
	unsigned int credits, credits_used;
	uint64_t next_token, next_seq;
	struct rp_piece *by_token[RP_SESSION_TOKEN_BUCKETS];

	struct rp_ops ops;	  /* accepted, in the order of posting */
	struct rp_op *post_head;  /* first operation with posts left */
	struct rp_ops ended;	  /* done() is due */
	unsigned int nqueued;	  /* operations from post_head on */
	unsigned int ncommits;	  /* number of ops that max_commits limits */
	unsigned int outstanding; /* the program's, done() is still due */
	/* Posted operations that the target's CPU stores; no reply yet. */
	LIST_HEAD(, rp_op) stores;
	unsigned int nthens;  /* ordered stores in `stores` */
	unsigned int nstores; /* CPU stores accepted, not ended */

	struct rp_ranges unplaced; /* RDMA without proof of placement */
	struct rp_ranges poison;
	struct rp_ranges by_agent; /* ranges for the agent to flush */
	bool all_poisoned, all_by_agent;
	uint64_t last_write, last_proof; /* seq of the last RDMA write, proof */
	uint64_t written, proved;	 /* bytes of writes; placed ones */
	struct rp_op *fence;		 /* outstanding fence, or NULL */
	struct rp_op *batch;		 /* coalesces writes; NULL: none does */

	bool received_any; /* a message came since the last progress */
	bool was_open;	   /* a connection was made before */
	bool may_arrive;   /* bytes of an earlier one may still arrive */
	bool lost_writes;  /* see rp_session_lost_writes() */
	bool idle;	   /* nothing outstanding since idle_at */
	bool channel_full; /* the channel has had no room */
	uint64_t alive_at, idle_at;
};

/* --- session_grant.c --- */

/* Find the entry of the key; NULL: none was requested on this connection. */
struct rp_grant *rp_grant_search(struct rp_session *s, uint64_t key);
static inline struct rp_grant *rp_grant_find(struct rp_session *s, uint64_t key)
{
	struct rp_grant *g = s->last_grant;

	return g && g->key == key ? g : rp_grant_search(s, key);
}
/* Find or make the entry of the key; NULL: no memory. */
struct rp_grant *rp_grant_get(struct rp_session *s, uint64_t key);
void rp_grant_free(struct rp_session *s, struct rp_grant *g);
/* Record the grant that the target has sent. */
void rp_grant_record(struct rp_session *s, uint64_t key,
		     const struct rp_wire_grant *g);
/* Record a failure: the next operation with the key completes with it. */
void rp_grant_fail(struct rp_session *s, uint64_t key, enum rp_status st,
		   uint32_t detail);
/* Remove the grants; keep failures for the next operation, unless all. */
void rp_grants_forget(struct rp_session *s, bool all);

/* --- session.c --- */

/*
 * Is there an open connection with grants of all keys of the operation? 0;
 * -EAGAIN: connecting, or QUERYs are outstanding; a positive rp_status:
 * connecting has failed or a key was refused; *range: the first one refused.
 */
int rp_session_ready(struct rp_session *s, const struct rp_op *op,
		     uint64_t *range, uint32_t *detail);

/* --- session_op.c --- */

/* NULL, or called on each state change of an operation. For tests. */
extern void (*rp_op_on_state)(enum rp_op_state from, enum rp_op_state to);
static inline void rp_op_set_state(struct rp_op *op, enum rp_op_state state)
{
	if (rp_op_on_state)
		rp_op_on_state((enum rp_op_state)op->priv.state, state);
	op->priv.state = (uint8_t)state;
}
/* Must be called before any other use of an operation. */
void rp_op_init(struct rp_session *s, struct rp_op *op);
/* Does attr.max_commits limit the number of operations like this? */
static inline bool rp_op_is_limited(const struct rp_op *op)
{
	return op->kind == RP_OP_COMMIT || op->kind == RP_OP_ATOMIC ||
	       op->kind == RP_OP_QUERY || op->effect ||
	       op->level == RP_LEVEL_DURABLE;
}
/* Accept the operation: done() will follow. */
void rp_op_accept(struct rp_session *s, struct rp_op *op);
/* Accept and post an internal operation of the session. */
void rp_op_accept_internal(struct rp_session *s, struct rp_op *op);
/* Send a fence as an internal operation, unless one is outstanding. */
void rp_session_fence(struct rp_session *s);
/* End the operation with its outcome. */
void rp_op_end(struct rp_op *op);
/* A piece of the operation has ended: end the operation if it was the last. */
void rp_op_end_if_last(struct rp_op *op);
/* Post what waits, as far as credits and room allow. */
void rp_session_post_queued(struct rp_session *s);
/* The channel is closed: fail and end every accepted operation. */
void rp_session_drop(struct rp_session *s, enum rp_status st, uint32_t detail);
/* Call done() of ended operations. True: there were some. */
bool rp_session_call_done(struct rp_session *s);

/* --- session_batch.c --- */

/* May a write of level 0 wait to be coalesced into one REQUEST? */
bool rp_session_may_coalesce(struct rp_session *s, const struct rp_op *op);
/* Accept the write into the batch. 0 or -ENOMEM. */
int rp_session_coalesce(struct rp_session *s, struct rp_op *op);

/* --- session_piece.c --- */

/* Copy the bytes of a write for later use. 0 or -ENOMEM. */
int rp_op_copy(struct rp_op *op);
/* Make a piece of the operation, to be posted; NULL: no memory. */
struct rp_piece *rp_piece_new(struct rp_op *op);
/* Make a piece for a REQUEST or QUERY, which takes a credit. */
struct rp_piece *rp_piece_request(struct rp_op *op, size_t first, size_t n);
/* Post the pieces made so far. False: no room, or the operation has failed. */
bool rp_pieces_post(struct rp_op *op);
/* Drop the pieces that are not posted yet. */
void rp_pieces_drop(struct rp_op *op);
/* Drop all requests: the channel is closed, so no reply will come. */
void rp_requests_drop(struct rp_session *s);
/* Handle a REPLY or INFO. 0 or -EBADMSG. */
int rp_session_handle_reply(struct rp_session *s, const void *msg,
			    const struct rp_wire_hdr *hdr);

/* --- session_commit.c --- */

/*
 * Make pieces for the rest of the operation, and move its state. 0: all are
 * made; -EAGAIN: no credit, or replies to earlier slices are missing; -ENOMEM.
 */
int rp_commit_make_pieces(struct rp_op *op);
/* Handle the reply to a REQUEST. */
void rp_commit_handle_reply(struct rp_piece *p, const struct rp_wire_reply *m);

/* --- session_ranges.c --- */

/* Record the ranges of a write that is accepted next. 0 or -ENOMEM. */
int rp_write_record(struct rp_session *s, struct rp_op *op);
/* Clear what the ordered store of op replaces, up to stamp seq. */
void rp_then_clear(struct rp_ranges *r, const struct rp_op *op, uint64_t seq);
/*
 * Called when the RDMA of a write is posted: it replaces bytes in CPU caches,
 * so remove them from by_agent. Not earlier: commits queued before the write
 * need them there.
 */
void rp_write_launch(struct rp_op *op);
/* The write has failed: its bytes may be placed, but are not durable. */
void rp_write_mark_failed(struct rp_op *op);
/* All writes up to this operation are placed. */
void rp_session_mark_placed(const struct rp_op *op);
/* Does the range touch bytes without proof of placement? */
bool rp_range_is_unplaced(const struct rp_session *s,
			  const struct rp_wire_range *g);
/* Does the commit cover poisoned bytes? *range: the first range that does. */
bool rp_commit_is_poisoned(const struct rp_session *s, const struct rp_op *op,
			   uint64_t *range);
/* Poison the bytes that the failed operation should have written. */
void rp_op_poison(struct rp_op *op);
/* May CPU caches of the target have bytes, so that the agent must flush? */
bool rp_range_needs_agent(const struct rp_session *s,
			  const struct rp_wire_range *g);
/* The agent has made ranges [first, first+n) durable. */
void rp_ranges_mark_flushed(struct rp_op *op, size_t first, size_t n,
			    enum rp_class class);
/* The connection is lost: poison its unplaced writes. */
void rp_session_poison_unplaced(struct rp_session *s);
/* Do ranges of a and b overlap? True also if there are too many to compare. */
bool rp_ops_overlap(const struct rp_op *a, const struct rp_op *b);
/* May the target have executed a once-only operation, or still do so? */
bool rp_op_is_indeterminate(const struct rp_op *op);
/* Must the operation wait for stores of earlier operations? */
bool rp_op_conflicts(const struct rp_op *op);

/* --- shared inlines --- */

/* Set the outcome of an accepted operation; its first failure counts. */
static inline void rp_op_fail(struct rp_op *op, enum rp_status st,
			      uint32_t detail, uint64_t range)
{
	if (op->priv.out.status != RP_ST_OK)
		return;
	op->priv.out.status = st;
	op->priv.out.detail = detail;
	op->priv.out.range = range;
}

/* End the connection at the next progress. */
static inline void rp_session_fail(struct rp_session *s, enum rp_status st,
				   uint32_t detail)
{
	if (s->end_due || s->state == RP_SESSION_CLOSING)
		return;
	s->end_due = true;
	s->end_status = st;
	s->end_detail = detail;
	s->k->ops->kick(s->k);
}

static inline bool rp_op_writes(const struct rp_op *op)
{
	return op->kind == RP_OP_WRITE ||
	       (op->kind == RP_OP_ATOMIC && op->atomic.op != RP_ATOMIC_READ);
}

/* Count an operation of the program, and time it if it is durable. */
static inline void rp_op_count_start(struct rp_op *op)
{
	rp_stats_add(&rp_stats->started, 1);
	if (__builtin_expect(op->level == RP_LEVEL_DURABLE, 1))
		op->priv.start = rp_stats_now();
}

static inline void rp_op_count_end(const struct rp_op *op,
				   const struct rp_outcome *out)
{
	struct rp_stats *st = rp_stats;

	if (out->status != RP_ST_OK) {
		rp_stats_add(&st->errors[out->status], 1);
		return;
	}
	rp_stats_add_at(st->completed, op->kind, 1);
	rp_stats_add_at(st->completed_bytes, op->kind, op->priv.bytes);
	if (__builtin_expect(op->level == RP_LEVEL_DURABLE, 1))
		rp_stats_time_add(&st->durable[out->method],
				  rp_stats_ticks_since(&op->priv.start));
}

static inline bool rp_op_has_then(const struct rp_op *op)
{
	return op->effect == RP_EFFECT_THEN &&
	       (op->kind == RP_OP_COMMIT || op->kind == RP_OP_WRITE);
}

static inline struct rp_wire_range
rp_ordered_store_range(const struct rp_op *op)
{
	return (struct rp_wire_range){op->then.key, op->then.addr,
				      sizeof(op->then.value)};
}

static inline bool rp_wire_ranges_overlap(const struct rp_wire_range *a,
					  const struct rp_wire_range *b)
{
	return a->key == b->key &&
	       (a->addr < b->addr ? b->addr - a->addr < a->len
				  : a->addr - b->addr < b->len);
}

#endif
