// SPDX-License-Identifier: BSD-2-Clause
/* The states of an operation: accepted, posted in order, ended once. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "core/session_priv.h"

_Static_assert(RP_OP_QUERY < RP_STATS_KINDS, "no counter of a kind");

void (*rp_op_on_state)(enum rp_op_state from, enum rp_op_state to);

/* Does the operation make the target's CPU store? */
static bool is_cpu_store(const struct rp_op *op)
{
	return op->priv.store || rp_op_has_then(op) ||
	       (op->kind == RP_OP_ATOMIC && rp_op_writes(op));
}

void rp_op_init(struct rp_session *s, struct rp_op *op)
{
	memset(&op->priv, 0, offsetof(typeof(op->priv), piece));
	op->priv.piece[0].used = op->priv.piece[1].used = false;
	op->priv.session = s;
	STAILQ_INIT(&op->priv.ready);
	op->priv.out.required = op->required;
	op->priv.out.target = s->target;
	/* Each reply can only lower the class. */
	if (op->level == RP_LEVEL_DURABLE)
		op->priv.out.class = RP_CLASS_POWER;
}

void rp_op_accept(struct rp_session *s, struct rp_op *op)
{
	if (TAILQ_EMPTY(&s->ops)) {
		s->received_any = true;
		s->idle = false;
	}
	/* Close the batch: a write added now would pass this operation. */
	s->batch = NULL;
	op->priv.seq = s->next_seq++;
	rp_op_set_state(op, RP_OP_QUEUED);
	TAILQ_INSERT_TAIL(&s->ops, op, priv.link);
	if (!s->post_head)
		s->post_head = op;
	s->nqueued++;
	s->ncommits += rp_op_is_limited(op);
	s->nstores += is_cpu_store(op);
	if (!op->priv.internal) {
		s->outstanding++;
		rp_op_count_start(op);
	}
	s->written += op->priv.bytes;
	op->priv.written = s->written;
}

void rp_op_accept_internal(struct rp_session *s, struct rp_op *op)
{
	rp_op_init(s, op);
	op->priv.internal = true;
	rp_op_accept(s, op);
	rp_session_post_queued(s);
}

static void fence_done(struct rp_op *op, const struct rp_outcome *out)
{
	op->priv.session->fence = NULL;
	free(op);
}

void rp_session_fence(struct rp_session *s)
{
	struct rp_op *op;

	if (s->fence)
		return;
	op = calloc(1, sizeof(*op));
	if (!op)
		return;
	op->kind = RP_OP_COMMIT;
	op->level = RP_LEVEL_VISIBLE;
	op->done = fence_done;
	s->fence = op;
	rp_op_accept_internal(s, op);
}

/* Remove the operation from the queue: nothing is left to post. */
static void leave_queue(struct rp_op *op)
{
	struct rp_session *s = op->priv.session;

	if (s->post_head == op)
		s->post_head = TAILQ_NEXT(op, priv.link);
	s->nqueued--;
}

/* Is a CPU store outstanding whose bytes the commit covers? */
static bool awaits_stores(const struct rp_op *op)
{
	const struct rp_session *s = op->priv.session;
	const struct rp_op *o;

	if (op->kind != RP_OP_COMMIT)
		return false;
	LIST_FOREACH (o, &s->stores, priv.stores_link) {
		if (o->priv.seq < op->priv.seq && rp_op_writes(o) &&
		    rp_ops_overlap(o, op))
			return true;
	}
	return false;
}

/*
 * Poison the bytes that a failed operation should have written, once. If the
 * target itself refused the commit behind the RDMA of a durable write, its
 * reply proves placement: no poison.
 */
static void poison_if_failed(struct rp_op *op)
{
	const bool ends = op->priv.session->state == RP_SESSION_CLOSING;

	if (op->priv.out.status == RP_ST_OK || op->priv.poisoned ||
	    !(is_cpu_store(op) || op->priv.unposted || ends ||
	      op->level != RP_LEVEL_DURABLE))
		return;
	op->priv.poisoned = true;
	rp_op_poison(op);
}

void rp_op_end(struct rp_op *op)
{
	struct rp_session *s = op->priv.session;

	if (op->priv.state != RP_OP_POSTED)
		leave_queue(op);
	rp_op_set_state(op, RP_OP_ENDED);
	s->ncommits -= rp_op_is_limited(op);
	s->nstores -= is_cpu_store(op);
	if (op->priv.in_stores) {
		LIST_REMOVE(op, priv.stores_link);
		s->nthens -= rp_op_has_then(op);
	}
	poison_if_failed(op);
	if (rp_op_writes(op) && op->priv.out.status != RP_ST_OK)
		rp_write_mark_failed(op);
	TAILQ_REMOVE(&s->ops, op, priv.link);
	TAILQ_INSERT_TAIL(&s->ended, op, priv.link);
}

/* End the operation if everything is posted and every reply has arrived. */
static inline void end_if_complete(struct rp_op *op)
{
	const bool failed = op->priv.out.status != RP_ST_OK;

	if (op->priv.state == RP_OP_POSTED && !op->priv.pending &&
	    !op->priv.piece_failed && (failed || !awaits_stores(op)))
		rp_op_end(op);
}

/* A CPU store has ended: end commits that waited for it. */
static void end_commits(struct rp_session *s)
{
	struct rp_op *op, *next;

	for (op = TAILQ_FIRST(&s->ops); op && op != s->post_head; op = next) {
		next = TAILQ_NEXT(op, priv.link);
		if (op->kind == RP_OP_COMMIT)
			end_if_complete(op);
	}
}

void rp_op_end_if_last(struct rp_op *op)
{
	struct rp_session *s = op->priv.session;
	const bool store = op->priv.in_stores && rp_op_writes(op);

	end_if_complete(op);
	if (store && op->priv.state == RP_OP_ENDED)
		end_commits(s);
}

/*
 * Post nothing more of a failed operation. Its bytes are poisoned now, as
 * commits behind it do not wait for its end. False: it has not failed.
 */
static bool drop_if_failed(struct rp_op *op)
{
	if (op->priv.out.status == RP_ST_OK)
		return false;
	rp_pieces_drop(op);
	leave_queue(op);
	poison_if_failed(op);
	rp_op_set_state(op, RP_OP_POSTED);
	end_if_complete(op);
	return true;
}

/* Post what the operation has left to post. False: it has to wait. */
static bool post_op(struct rp_op *op)
{
	const struct rp_session *s = op->priv.session;
	int ret;

	for (;;) {
		if (drop_if_failed(op))
			return true;
		if (op->priv.state == RP_OP_QUEUED &&
		    (op == s->batch ||
		     (!LIST_EMPTY(&s->stores) && rp_op_conflicts(op))))
			return false;
		ret = rp_commit_make_pieces(op);
		if (ret == -ENOMEM) {
			rp_op_fail(op, RP_ST_NO_MEMORY, 0, 0);
			op->priv.unposted = true;
			continue;
		}
		if (!rp_pieces_post(op)) {
			if (op->priv.out.status == RP_ST_OK)
				return false;
			continue;
		}
		if (ret)
			return false;
		leave_queue(op);
		rp_op_set_state(op, RP_OP_POSTED);
		end_if_complete(op);
		return true;
	}
}

void rp_session_post_queued(struct rp_session *s)
{
	s->channel_full = false;
	while (s->state == RP_SESSION_OPEN && !s->end_due && s->post_head)
		if (!post_op(s->post_head))
			return;
}

void rp_session_drop(struct rp_session *s, enum rp_status st, uint32_t detail)
{
	struct rp_op *op;

	TAILQ_FOREACH (op, &s->ops, priv.link) {
		if (rp_op_is_indeterminate(op))
			rp_op_fail(op, RP_ST_INDETERMINATE, st, 0);
		rp_op_fail(op, st, detail, 0);
		rp_pieces_drop(op);
	}
	rp_requests_drop(s);
	while ((op = TAILQ_FIRST(&s->ops))) {
		assert(!op->priv.pending);
		rp_op_end(op);
	}
}

bool rp_session_call_done(struct rp_session *s)
{
	struct rp_outcome out;
	bool any = false;
	struct rp_op *op;

	while ((op = TAILQ_FIRST(&s->ended))) {
		TAILQ_REMOVE(&s->ended, op, priv.link);
		if (!op->priv.internal) {
			s->outstanding--;
			rp_op_count_end(op, &op->priv.out);
		}
		free(op->priv.copy);
		out = op->priv.out;
		op->done(op, &out);
		any = true;
	}
	return any;
}
