/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of a session share. */
#ifndef RP_SESSION_PRIV_H
#define RP_SESSION_PRIV_H

#include <sys/socket.h>

#include "core/atomic.h"
#include "core/hash.h"
#include "core/session.h"

#define RP_SESSION_TOKENS 64 /* buckets of outstanding requests */
/* Ranges of unplaced writes that make a fence due; poisoned, CPU-written. */
#define RP_SESSION_RANGES 1024
#define RP_SESSION_BYTES  (64ull << 20) /* so many unplaced ones do, too */
#define RP_SESSION_GRANTS 65536
/* Above so many ranges one REQUEST is cheaper than a FLUSH for each. */
#define RP_SESSION_FLUSHES   16
#define RP_SESSION_FLUSH_LEN (1ull << 31) /* longest of one FLUSH */
#define RP_SESSION_FENCE_LEN 8

/* What an operation is at; docs/protocol.md draws the edges. */
enum rp_op_state {
	RP_OP_NEW,    /* not accepted yet */
	RP_OP_QUEUED, /* behind earlier operations, or bytes they still store */
	RP_OP_DATA,   /* RDMA of its bytes is to be posted */
	RP_OP_SLICES, /* requests, fences, flushes of its ranges are */
	RP_OP_HELD,   /* all but the last request is posted, not answered */
	RP_OP_LAST,   /* the last request, with the effect, is to be posted */
	RP_OP_POSTED, /* nothing is left to post; completions are due */
	RP_OP_ENDED,  /* done() is due */
	RP_OP_STATES
};

enum rp_grant_state {
	RP_GRANT_ASKED, /* a QUERY is under way */
	RP_GRANT_GIVEN,
	RP_GRANT_FAILED, /* for the next operation with the key */
};

/* A key as this connection knows it. */
struct rp_grant {
	uint64_t key;
	enum rp_grant_state state;
	struct rp_wire_grant g;
	/* How commits are carried out without the agent; REFUSED: they are not.
	 */
	enum rp_method alone;
	bool dirty;	 /* written over this connection, maybe not durable */
	uint64_t fenced; /* number of the last operation with a fence for it */
	enum rp_status status; /* FAILED */
	uint32_t detail;
	UT_hash_handle hh;
};

TAILQ_HEAD(rp_ops, rp_op);

struct rp_session {
	struct rp_connector *k;
	struct rp_session_attr attr;
	struct sockaddr_storage addr;
	size_t addr_len;
	uint64_t initiator; /* names this object to the target */
	uint16_t port;	    /* of the endpoint, for HELLO */
	bool ordered;	    /* writes are placed in the order of posting */
	enum rp_session_state state;
	struct rp_channel *channel;
	uint64_t hello_key;

	/* The connection has to end, from the next progress on. */
	bool doomed;
	enum rp_status doom;
	uint32_t doom_detail;
	/* Connecting has failed; for the next operation. RP_ST_OK: has not. */
	enum rp_status failure;
	uint32_t failure_detail;

	struct rp_grant *grants, *last; /* the one found last */
	unsigned int credits, used;
	uint64_t next_token, next_seq;
	struct rp_piece *by_token[RP_SESSION_TOKENS];

	struct rp_ops ops;	  /* accepted, not ended, in order of posting */
	struct rp_op *head;	  /* the first with something left to post */
	struct rp_ops ended;	  /* done() is due */
	unsigned int nqueued;	  /* from head on */
	unsigned int ncommits;	  /* of ops, what counts for max_commits */
	unsigned int outstanding; /* the program's, not done */
	/* Launched, and not answered: what the target's CPU will store. */
	LIST_HEAD(, rp_op) stores;
	unsigned int nthens;  /* of stores: ordered stores behind a commit */
	unsigned int nstores; /* accepted, not ended */

	struct rp_ranges unplaced; /* by RDMA, and nothing has proved it */
	struct rp_ranges poison;
	struct rp_ranges by_agent; /* commits of these go to the agent */
	bool poison_all, agent_all;
	uint64_t last_write, last_proof; /* numbers of operations */
	uint64_t written, proved;	 /* bytes, ever */
	struct rp_op *fence;		 /* the session's own, under way */
	struct rp_op *batch;		 /* the last of ops: open for more */

	bool heard;   /* the target is alive, as of the next progress */
	bool idle;    /* nothing is outstanding since idle_at */
	bool blocked; /* the channel had no room */
	uint64_t alive_at, idle_at;
};

/* --- session_grant.c --- */

/* NULL: the key was never asked for on this connection. */
struct rp_grant *rp_grant_find(struct rp_session *s, uint64_t key);
/* The same, made where there is none; NULL: no memory. */
struct rp_grant *rp_grant_get(struct rp_session *s, uint64_t key);
void rp_grant_free(struct rp_session *s, struct rp_grant *g);
/* The target says so. */
void rp_grant_take(struct rp_session *s, uint64_t key,
		   const struct rp_wire_grant *g);
/* The next operation with the key ends with this status. */
void rp_grant_fail(struct rp_session *s, uint64_t key, enum rp_status st,
		   uint32_t detail);
/* Those that failed stay for the next operation, unless all are forgotten. */
void rp_grants_forget(struct rp_session *s, bool all);

/* --- session.c --- */

/*
 * Is there a connection that knows all keys of the operation? 0; -EAGAIN: it is
 * being made, or QUERYs are under way; a positive rp_status: it cannot be made,
 * or a key was refused; *range is its first.
 */
int rp_session_ready(struct rp_session *s, const struct rp_op *op,
		     uint64_t *range, uint32_t *detail);

/* --- session_op.c --- */

/* NULL, or called for each edge that an operation takes. For tests. */
extern void (*rp_op_moved)(enum rp_op_state from, enum rp_op_state to);
static inline void rp_op_move(struct rp_op *op, enum rp_op_state state)
{
	if (rp_op_moved)
		rp_op_moved((enum rp_op_state)op->priv.state, state);
	op->priv.state = (uint8_t)state;
}
/* Before anything else is done with an operation. */
void rp_op_init(struct rp_session *s, struct rp_op *op);
/* Does the operation take one of max_commits? */
bool rp_op_counts(const struct rp_op *op);
/* Accept: after this done() will follow. */
void rp_op_accept(struct rp_session *s, struct rp_op *op);
/* Accept and post one of the session's own. */
void rp_op_accept_own(struct rp_session *s, struct rp_op *op);
/* Send a fence of the session's own, unless one is under way. */
void rp_session_fence(struct rp_session *s);
/* The outcome is known. */
void rp_op_end(struct rp_op *op);
/* A piece of the operation is no more: it may have been the last. */
void rp_op_piece_ended(struct rp_op *op);
/* Post what waits, as far as credits and room go. */
void rp_session_pump(struct rp_session *s);
/* The channel is closed: end every operation that is not answered. */
void rp_session_drop(struct rp_session *s, enum rp_status st, uint32_t detail);
/* Call done() of what has ended. True: there was something. */
bool rp_session_deliver(struct rp_session *s);

/* --- session_batch.c --- */

/* May the write wait for more, to leave with them in one REQUEST? */
bool rp_session_batch_takes(struct rp_session *s, const struct rp_op *op);
/* Accept it so. 0 or -ENOMEM. */
int rp_session_batch_add(struct rp_session *s, struct rp_op *op);

/* --- session_piece.c --- */

/* Copy the bytes of a write, which are the program's again. 0 or -ENOMEM. */
int rp_op_copy(struct rp_op *op);
/* A piece of the operation, to be posted; NULL: no memory. */
struct rp_piece *rp_piece_new(struct rp_op *op);
/* The same for a REQUEST or QUERY, which takes a credit. */
struct rp_piece *rp_piece_request(struct rp_op *op, size_t first, size_t n);
/* Post what is ready. False: no room, or the operation has failed. */
bool rp_pieces_post(struct rp_op *op);
/* What is ready is not posted any more. */
void rp_pieces_drop(struct rp_op *op);
/* The channel is closed: no request will be answered. */
void rp_requests_drop(struct rp_session *s);
/* A REPLY or INFO. 0 or -EBADMSG. */
int rp_session_answered(struct rp_session *s, const void *msg,
			const struct rp_wire_hdr *hdr);

/* --- session_commit.c --- */

/*
 * Make pieces for what the operation has left to do. The state moves on. 0: all
 * is made; -EAGAIN: no credit, or earlier slices have to be answered; -ENOMEM.
 */
int rp_commit_make(struct rp_op *op);
/* A REQUEST has been answered. */
void rp_commit_replied(struct rp_piece *p, const struct rp_wire_reply *m);

/* --- session_ranges.c --- */

/* Before a write is accepted, with its number to be. 0 or -ENOMEM. */
int rp_write_begin(struct rp_session *s, struct rp_op *op);
/*
 * The RDMA of a write is posted, and replaces what a CPU had cached. Not
 * before: commits in the queue before it cover that.
 */
void rp_write_launch(struct rp_op *op);
/* It may be in its place all the same, and is not durable. */
void rp_write_failed(struct rp_op *op);
/* What was posted up to this operation is in its place. */
void rp_session_placed(const struct rp_op *op);
/* Are there writes before number seq to these bytes without a proof? */
bool rp_range_unplaced(const struct rp_session *s,
		       const struct rp_wire_range *g);
/* Does the commit cover poisoned bytes? *range: the first. */
bool rp_commit_poisoned(const struct rp_session *s, const struct rp_op *op,
			uint64_t *range);
/* The operation has failed: what it should have written is not there. */
void rp_op_poison(struct rp_op *op);
/* Bytes that may be in caches of the target's CPU. */
bool rp_range_by_agent(const struct rp_session *s,
		       const struct rp_wire_range *g);
/* The agent has made ranges [first, first+n) durable. */
void rp_ranges_flushed(struct rp_op *op, size_t first, size_t n,
		       enum rp_class class);
/* The connection is gone. */
void rp_ranges_lost(struct rp_session *s);
/* Do ranges of the two overlap? True also where they are too many to look. */
bool rp_ops_overlap(const struct rp_op *a, const struct rp_op *b);
/* Does the operation have to wait for what earlier ones store? */
bool rp_op_conflicts(const struct rp_op *op);

/* --- for all --- */

/* Remember the first failure of an accepted operation. */
static inline void rp_op_fail(struct rp_op *op, enum rp_status st,
			      uint32_t detail, uint64_t range)
{
	if (op->priv.out.status != RP_ST_OK)
		return;
	op->priv.out.status = st;
	op->priv.out.detail = detail;
	op->priv.out.range = range;
}

/* End the connection, from the next progress on. */
static inline void rp_session_doom(struct rp_session *s, enum rp_status st,
				   uint32_t detail)
{
	if (s->doomed || s->state == RP_SESSION_CLOSING)
		return;
	s->doomed = true;
	s->doom = st;
	s->doom_detail = detail;
	s->k->ops->kick(s->k);
}

static inline bool rp_op_writes(const struct rp_op *op)
{
	return op->kind == RP_OP_WRITE ||
	       (op->kind == RP_OP_ATOMIC && op->atomic.op != RP_ATOMIC_READ);
}

static inline bool rp_op_then(const struct rp_op *op)
{
	return op->effect == RP_EFFECT_THEN &&
	       (op->kind == RP_OP_COMMIT || op->kind == RP_OP_WRITE);
}

static inline struct rp_wire_range rp_then_range(const struct rp_op *op)
{
	return (struct rp_wire_range){op->then.key, op->then.addr,
				      sizeof(op->then.value)};
}

static inline bool rp_wire_overlap(const struct rp_wire_range *a,
				   const struct rp_wire_range *b)
{
	return a->key == b->key &&
	       (a->addr < b->addr ? b->addr - a->addr < a->len
				  : a->addr - b->addr < b->len);
}

#endif
