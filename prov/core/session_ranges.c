// SPDX-License-Identifier: BSD-2-Clause
/* Byte ranges of a session: unplaced, poisoned, cached by the target's CPU. */
#include <errno.h>

#include "core/session_priv.h"

/* Most pairs of ranges to compare; more pairs count as overlapping. */
#define MAX_PAIRS 4096

static void poison_add(struct rp_session *s, const struct rp_wire_range *g,
		       uint64_t stamp)
{
	if (rp_ranges_insert(&s->poison, g->key, g->addr, g->len, stamp))
		s->all_poisoned = true;
}

static void by_agent_add(struct rp_session *s, const struct rp_wire_range *g,
			 uint64_t stamp)
{
	if (rp_ranges_insert(&s->by_agent, g->key, g->addr, g->len, stamp))
		s->all_by_agent = true;
}

static int rdma_record(struct rp_session *s, struct rp_op *op)
{
	for (size_t i = 0; i < op->nranges; i++) {
		const struct rp_wire_range *g = &op->ranges[i];

		if (rp_ranges_insert(&s->unplaced, g->key, g->addr, g->len,
				     s->next_seq))
			return -ENOMEM;
	}
	s->last_write = s->next_seq;
	return 0;
}

void rp_write_launch(struct rp_op *op)
{
	struct rp_ranges *cached = &op->priv.session->by_agent;

	for (size_t i = 0; cached->n && i < op->nranges; i++) {
		const struct rp_wire_range *g = &op->ranges[i];

		rp_ranges_clear(cached, g->key, g->addr, g->len, op->priv.seq);
	}
}

void rp_then_clear(struct rp_ranges *r, const struct rp_op *op, uint64_t seq)
{
	rp_ranges_clear(r, op->then.key, op->then.addr, sizeof(op->then.value),
			seq);
}

int rp_write_record(struct rp_session *s, struct rp_op *op)
{
	const struct rp_wire_range *g;

	if (!op->priv.store && op->kind == RP_OP_WRITE && rdma_record(s, op))
		return -ENOMEM;
	for (size_t i = 0; i < op->nranges; i++) {
		struct rp_grant *grant = rp_grant_find(s, op->ranges[i].key);

		g = &op->ranges[i];
		if (op->level != RP_LEVEL_DURABLE) {
			grant->dirty = true;
			if (grant->without_agent != RP_METHOD_REFUSED &&
			    (op->priv.store || op->kind == RP_OP_ATOMIC))
				by_agent_add(s, g, s->next_seq);
		}
		/* An atomic needs the old value, so it clears no poison. */
		if (s->poison.n && op->kind == RP_OP_WRITE)
			rp_ranges_clear(&s->poison, g->key, g->addr, g->len,
					s->next_seq);
	}
	return 0;
}

void rp_session_mark_placed(const struct rp_op *op)
{
	struct rp_session *s = op->priv.session;
	const uint64_t seq = op->priv.seq;
	struct rp_ranges *r = &s->unplaced;
	size_t n = 0;

	if (s->proved < op->priv.written)
		s->proved = op->priv.written;
	if (!r->n)
		return;
	if (s->last_write <= seq) {
		rp_ranges_reset(r);
		return;
	}
	for (size_t i = 0; i < r->n; i++)
		if (r->v[i].stamp > seq)
			r->v[n++] = r->v[i];
	r->n = n;
}

bool rp_range_is_unplaced(const struct rp_session *s,
			  const struct rp_wire_range *g)
{
	return rp_ranges_overlap(&s->unplaced, g->key, g->addr, g->len);
}

bool rp_commit_is_poisoned(const struct rp_session *s, const struct rp_op *op,
			   uint64_t *range)
{
	*range = 0;
	if (s->all_poisoned)
		return true;
	for (size_t i = 0; s->poison.n && i < op->nranges; i++) {
		const struct rp_wire_range *g = &op->ranges[i];

		if (rp_ranges_overlap(&s->poison, g->key, g->addr, g->len)) {
			*range = i;
			return true;
		}
	}
	return false;
}

bool rp_op_is_indeterminate(const struct rp_op *op)
{
	const bool once = rp_op_has_then(op) ||
			  op->effect == RP_EFFECT_NOTIFY ||
			  (op->kind == RP_OP_ATOMIC && rp_op_writes(op));

	return once && op->priv.effect_sent &&
	       (op->priv.replies_due || op->priv.out.status == RP_ST_OK);
}

/*
 * The write op has failed on the bytes g. Fail each later commit that covers
 * bytes of g not rewritten in between; poison the bytes that no later write
 * rewrote. Without memory to look: fail every later commit, poison every byte.
 */
static void poison_range(struct rp_op *op, const struct rp_wire_range *g)
{
	struct rp_session *s = op->priv.session;
	struct rp_ranges left;
	struct rp_op *o;
	bool all;

	rp_ranges_init(&left, 0);
	all = rp_ranges_insert(&left, g->key, g->addr, g->len, op->priv.seq);
	s->all_poisoned |= all;
	TAILQ_FOREACH (o, &s->ops, priv.link) {
		if (o->priv.seq <= op->priv.seq)
			continue;
		for (size_t i = 0; (all || left.n) && i < o->nranges; i++) {
			const struct rp_wire_range *r = &o->ranges[i];

			if (o->kind == RP_OP_WRITE)
				rp_ranges_clear(&left, r->key, r->addr, r->len,
						o->priv.seq);
			else if (o->kind == RP_OP_COMMIT &&
				 (all || rp_ranges_overlap(&left, r->key,
							   r->addr, r->len))) {
				if (rp_op_is_indeterminate(o))
					rp_op_fail(o, RP_ST_INDETERMINATE,
						   RP_ST_WRITE_FAILED, 0);
				rp_op_fail(o, RP_ST_WRITE_FAILED, 0, i);
			}
		}
		if (rp_op_has_then(o))
			rp_then_clear(&left, o, o->priv.seq);
	}
	for (size_t i = 0; i < left.n; i++) {
		const struct rp_range *v = &left.v[i];
		const struct rp_wire_range r = {v->space, v->start,
						v->end - v->start};

		poison_add(s, &r, op->priv.seq);
	}
	rp_ranges_fini(&left);
}

void rp_write_mark_failed(struct rp_op *op)
{
	for (size_t i = 0; i < op->nranges; i++) {
		struct rp_grant *g =
			rp_grant_find(op->priv.session, op->ranges[i].key);

		if (g)
			g->dirty = true;
	}
}

void rp_op_poison(struct rp_op *op)
{
	const struct rp_wire_range then = rp_ordered_store_range(op);

	if (rp_op_writes(op))
		for (size_t i = 0; i < op->nranges; i++)
			poison_range(op, &op->ranges[i]);
	if (rp_op_has_then(op))
		poison_range(op, &then);
}

bool rp_range_needs_agent(const struct rp_session *s,
			  const struct rp_wire_range *g)
{
	return s->all_by_agent ||
	       rp_ranges_overlap(&s->by_agent, g->key, g->addr, g->len);
}

void rp_ranges_mark_flushed(struct rp_op *op, size_t first, size_t n,
			    enum rp_class class)
{
	struct rp_session *s = op->priv.session;

	if (!s->by_agent.n)
		return;
	for (size_t i = first; i < first + n; i++) {
		const struct rp_wire_range *g = &op->ranges[i];
		const struct rp_grant *grant = rp_grant_find(s, g->key);

		/* For a lower class the agent may have left bytes in caches. */
		if (grant && class >= grant->g.class)
			rp_ranges_clear(&s->by_agent, g->key, g->addr, g->len,
					op->priv.seq);
	}
}

void rp_session_poison_unplaced(struct rp_session *s)
{
	struct rp_grant *g, *tmp;

	for (size_t i = 0; i < s->unplaced.n; i++) {
		const struct rp_range *v = &s->unplaced.v[i];
		const struct rp_wire_range r = {v->space, v->start,
						v->end - v->start};

		poison_add(s, &r, v->stamp);
	}
	rp_ranges_reset(&s->unplaced);
	s->proved = s->written;
	/*
	 * A fence or FLUSH of a later connection does not prove placement of
	 * this connection's writes.
	 */
	HASH_ITER(hh, s->grants, g, tmp)
	{
		const struct rp_wire_range all = {g->key, g->g.addr,
						  g->g.length};

		if (g->state == RP_GRANT_GIVEN && g->dirty)
			by_agent_add(s, &all, s->next_seq - 1);
	}
}

static bool op_covers(const struct rp_op *op, const struct rp_wire_range *g)
{
	for (size_t i = 0; i < op->nranges; i++)
		if (rp_wire_ranges_overlap(&op->ranges[i], g))
			return true;
	return false;
}

bool rp_ops_overlap(const struct rp_op *a, const struct rp_op *b)
{
	if (a->nranges * b->nranges > MAX_PAIRS)
		return true;
	for (size_t i = 0; i < a->nranges; i++)
		if (op_covers(b, &a->ranges[i]))
			return true;
	return false;
}

/* Does the operation cover the range, ordered store included? */
static bool op_touches(const struct rp_op *op, const struct rp_wire_range *g)
{
	const struct rp_wire_range then = rp_ordered_store_range(op);

	return op_covers(op, g) ||
	       (rp_op_has_then(op) && rp_wire_ranges_overlap(&then, g));
}

/*
 * The target's CPU stores the bytes of a REQUEST when it handles the message,
 * and an ordered store (THEN) when its ranges are durable. Later RDMA may be
 * faster, so it waits for the reply if it touches the same bytes, or always in
 * an ordered session. A commit with an effect waits, too: the effect could not
 * be undone if the store failed.
 */
bool rp_op_conflicts(const struct rp_op *op)
{
	const struct rp_session *s = op->priv.session;
	const bool rdma = op->kind == RP_OP_READ ||
			  (op->kind == RP_OP_WRITE && !op->priv.store);
	const bool waits = rdma || (op->kind == RP_OP_COMMIT && op->effect);
	const bool all = s->ordered && rdma && op->kind == RP_OP_WRITE;
	const struct rp_wire_range then = rp_ordered_store_range(op);
	const struct rp_op *o;

	if (op->kind == RP_OP_QUERY || (!waits && !s->nthens))
		return false;
	LIST_FOREACH (o, &s->stores, priv.stores_link) {
		const struct rp_wire_range late = rp_ordered_store_range(o);

		if (rp_op_has_then(o) && op_touches(op, &late))
			return true;
		if (waits && rp_op_writes(o) &&
		    (all || rp_ops_overlap(o, op) ||
		     (rp_op_has_then(op) && op_covers(o, &then))))
			return true;
	}
	return false;
}
