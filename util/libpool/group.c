// SPDX-License-Identifier: BSD-2-Clause
/* Operations of a group: sent to all members, complete at k of them. */
#include "config.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libpool/group.h"

/* --- legs: one member's part of an operation --- */

struct group_leg *leg_new(enum leg_kind kind, uint64_t bytes)
{
	struct group_leg *leg = calloc(1, sizeof(*leg) + bytes);

	if (leg) {
		leg->kind = kind;
		leg->op.context = leg;
	}
	return leg;
}

static void repeat_leg(struct group *g, unsigned int member,
		       struct group_leg *leg);

static void op_release(struct group_op *o)
{
	if (o->complete && !o->legs)
		free(o);
}

void leg_free(struct group *g, struct group_leg *leg)
{
	struct group_op *o = leg->of;

	free(leg);
	if (!o)
		return;
	o->legs--;
	/* The read's member is closed: its buffer is not written any more. */
	if (g->phase == GROUP_ENDED && o->type == RPMEM_POOL_READ &&
	    !o->complete && !o->legs) {
		TAILQ_REMOVE(&g->reads, o, link);
		op_complete(g, o, g->ret, g->error);
		return;
	}
	op_release(o);
}

void group_legs_free(struct group *g, struct group_legs *list)
{
	struct group_leg *leg;

	while ((leg = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, leg, link);
		leg_free(g, leg);
	}
}

void leg_add(struct group *g, unsigned int member, struct group_leg *leg)
{
	struct group_member *m = &g->members[member];

	TAILQ_INSERT_TAIL(&m->queue, leg, link);
	if (leg->of)
		leg->of->legs++;
}

void member_start(struct group *g, unsigned int member,
		  struct rpmem_pool_op *op)
{
	const int ret = g->io.submit(g->io.arg, member, op);
	struct group_leg *leg = (struct group_leg *)op->context;

	if (!ret)
		return;
	op->result = ret;
	if (leg->of || leg->kind == LEG_JOINED || leg->kind == LEG_COPY)
		group_done(g, member, op);
	else
		repeat_leg(g, member, leg);
}

/*
 * Submit the newest waiting commit, which covers the older ones. Only one is
 * outstanding, since the stores of two commits are not ordered, and the stored
 * number must not go down.
 */
static void push_commit(struct group *g, unsigned int member)
{
	struct group_member *m = &g->members[member];
	struct group_leg *leg = TAILQ_LAST(&m->commits, group_legs);

	if (m->committing || !leg)
		return;
	TAILQ_REMOVE(&m->commits, leg, link);
	TAILQ_INSERT_TAIL(&m->out, leg, link);
	m->committing = leg;
	member_start(g, member, &leg->op);
}

/*
 * Submit legs in order: a write waits for an earlier leg that changes the same
 * bytes, since operations of a pool are not ordered. All wait after a failed
 * leg, which is first in the queue again.
 */
static void member_push(struct group *g, unsigned int member)
{
	struct group_member *m = &g->members[member];
	struct group_leg *leg;
	uint64_t offset, len;

	while (!m->barrier && g->now >= m->repeat_at &&
	       (leg = TAILQ_FIRST(&m->queue))) {
		leg_range(leg, &offset, &len);
		if (group_out_overlaps(m, offset, len) ||
		    group_join_waits(m, leg))
			break;
		TAILQ_REMOVE(&m->queue, leg, link);
		if (leg->kind == LEG_COMMIT) {
			TAILQ_INSERT_TAIL(&m->commits, leg, link);
			continue;
		}
		group_out_add(m, leg);
		if (leg->kind == LEG_BITS || leg->kind == LEG_BARRIER ||
		    leg->kind == LEG_COPIED)
			m->barrier = leg;
		if (leg->kind == LEG_COPY)
			m->copying = leg;
		else
			member_start(g, member, group_join(m, leg));
		if (m->state == MEMBER_AWAY)
			return;
	}
	push_commit(g, member);
}

/* --- members --- */

unsigned int group_count(const struct group *g, enum member_state from)
{
	unsigned int count = 0;

	for (unsigned int i = 0; i < g->n; i++)
		count += g->members[i].state >= from;
	return count;
}

static unsigned int current_mask(const struct group *g)
{
	unsigned int mask = 0;

	for (unsigned int i = 0; i < g->n; i++)
		mask |= (unsigned int)(g->members[i].state == MEMBER_CURRENT)
			<< i;
	return mask;
}

const char *group_text(struct group *g, unsigned int member, const char *cause)
{
	return g->io.text ? g->io.text(g->io.arg, member, cause) : cause;
}

void member_drop(struct group *g, unsigned int member, int ret,
		 const char *error)
{
	struct group_member *m = &g->members[member];
	struct group_leg *leg, *next;

	if (m->state == MEMBER_AWAY)
		return;
	/* Start the reads again, at another member. */
	for (leg = TAILQ_FIRST(&m->out); leg; leg = next) {
		next = TAILQ_NEXT(leg, link);
		if (leg->kind != LEG_READ || !leg->of || !leg->of->user)
			continue;
		TAILQ_REMOVE(&g->ops, leg->of, link);
		TAILQ_INSERT_TAIL(&g->reads, leg->of, link);
	}
	for (unsigned int i = 0; i < g->n; i++)
		if (g->members[i].source_at == member &&
		    !g->members[i].source_read)
			g->members[i].source = NULL;
	/* Keep a read chunk until the close: its write may be outstanding. */
	if (m->source && m->source_read)
		TAILQ_INSERT_TAIL(&m->dropped, m->source, link);
	m->source = NULL;
	m->copying = NULL;
	m->state = MEMBER_AWAY;
	g->dropped = member;
	g->changed = true;
	g->full_sent = false;
	m->displaced = ret == -ESTALE;
	m->ret = ret;
	if (error)
		m->error = group_text(g, member, error);
	m->barrier = NULL;
	m->numbered = m->inspecting = m->copy_queued = false;
	m->backlog = m->writes = m->repeat_at = 0;
	TAILQ_CONCAT(&m->dropped, &m->queue, link);
	TAILQ_CONCAT(&m->dropped, &m->commits, link);
	TAILQ_CONCAT(&m->dropped, &m->out, link);
	m->committing = NULL;
	free(m->copy);
	m->copy = NULL;
	g->io.reopen(g->io.arg, member);
}

/* --- operations --- */

void op_complete(struct group *g, struct group_op *o, int ret,
		 const char *error)
{
	struct rpmem_pool_op *user = o->user;
	struct group_leg *leg;

	if (ret)
		group_unqueue(g, o);
	g->ended += user != NULL;
	o->complete = true;
	o->failed = ret != 0;
	o->user = NULL;
	for (unsigned int i = 0; i < g->n; i++) {
		TAILQ_FOREACH (leg, &g->members[i].queue, link)
			if (leg->of == o)
				g->members[i].backlog += leg_lag(leg);
		TAILQ_FOREACH (leg, &g->members[i].out, link)
			if (leg->of == o)
				g->members[i].backlog += leg_lag(leg);
	}
	op_release(o);
	if (user)
		g->completed(g->io.arg, user, ret, error);
}

static struct group_op *op_new(struct group *g, enum rpmem_pool_type type,
			       uint64_t offset, uint64_t len, size_t copied)
{
	struct group_op *o = calloc(1, sizeof(*o) + copied);

	if (!o)
		return NULL;
	o->type = type;
	o->offset = offset;
	o->len = len;
	o->deadline = g->now + g->timeout_ms;
	return o;
}

/* Add an operation's leg to each member that receives writes. */
static int add_legs(struct group *g, struct group_op *o)
{
	const bool commit = o->type == RPMEM_POOL_COMMIT;
	struct group_leg *legs[GROUP_MEMBERS];

	if (legs_new(g, commit ? LEG_COMMIT : LEG_WRITE, 0, legs))
		return -ENOMEM;
	for (unsigned int i = 0; i < g->n; i++) {
		struct group_leg *leg = legs[i];

		if (!leg)
			continue;
		leg->of = o;
		leg->op.type = o->type;
		if (commit) {
			leg->then.offset =
				GROUP_NUMBER_AT(g->members[i].disk.slot);
			leg->then.value = htole64(o->number);
			leg->op.then = &leg->then;
		} else {
			leg->op.buf = o->bytes;
			leg->op.len = o->len;
			leg->op.offset = GROUP_AREA + o->offset;
		}
		leg_add(g, i, leg);
	}
	return 0;
}

static int add_write(struct group *g, enum rpmem_pool_type type,
		     const void *buf, uint64_t offset, uint64_t len,
		     struct rpmem_pool_op *user)
{
	const bool copied = type == RPMEM_POOL_WRITE;
	struct group_op *o = op_new(g, type, offset, len, copied ? len : 0);

	if (!o)
		return -ENOMEM;
	if (copied)
		memcpy(o->bytes, buf, len);
	o->user = user;
	if (group_touch(g, offset, len) || add_legs(g, o)) {
		free(o);
		return -ENOMEM;
	}
	o->writes = ++g->writes;
	TAILQ_INSERT_TAIL(&g->ops, o, link);
	return 0;
}

static int add_commit(struct group *g, struct rpmem_pool_op *user, bool stored)
{
	struct group_op *o = op_new(g, RPMEM_POOL_COMMIT, 0, 0, 0);

	if (!o)
		return -ENOMEM;
	o->user = user;
	o->stored = stored;
	o->number = g->issued + 1;
	o->writes = g->writes;
	if (add_legs(g, o)) {
		free(o);
		return -ENOMEM;
	}
	g->issued++;
	TAILQ_INSERT_TAIL(&g->ops, o, link);
	return 0;
}

int group_submit(struct group *g, struct rpmem_pool_op *op)
{
	struct group_op *o;
	int ret;

	if (g->phase == GROUP_ENDED) {
		g->completed(g->io.arg, op, g->ret, g->error);
		return 0;
	}
	switch (op->type) {
	case RPMEM_POOL_COMMIT:
		if (g->committed == g->writes && !op->then) {
			g->completed(g->io.arg, op, 0, NULL);
			return 0;
		}
		return add_commit(g, op, false);
	case RPMEM_POOL_READ:
		if (!op->len)
			break;
		o = op_new(g, op->type, op->offset, op->len, 0);
		if (!o)
			return -ENOMEM;
		o->user = op;
		TAILQ_INSERT_TAIL(&g->reads, o, link);
		return 0;
	default:
		if (!op->len)
			break;
		if (!(op->flags & RPMEM_POOL_DURABLE))
			return add_write(g, op->type, op->buf, op->offset,
					 op->len, op);
		ret = add_write(g, op->type, op->buf, op->offset, op->len,
				NULL);
		if (ret)
			return ret;
		/* The write is queued: -ENOMEM would say that it is not. */
		if (add_commit(g, op, true))
			g->completed(g->io.arg, op, -ENOMEM, "out of memory");
		return 0;
	}
	g->completed(g->io.arg, op, 0, NULL);
	return 0;
}

/* A commit is durable at k members: submit its store with another commit. */
static void store_then(struct group *g, struct group_op *o)
{
	const struct rpmem_pool_then *then = o->user->then;
	const uint64_t value = then->value;
	struct rpmem_pool_op *user = o->user;

	o->user = NULL;
	if (add_write(g, RPMEM_POOL_WRITE, &value, then->offset, sizeof(value),
		      NULL) ||
	    add_commit(g, user, true))
		g->completed(g->io.arg, user, -ENOMEM, "out of memory");
}

/* Complete the operations that are done at k current members. */
static void complete_done(struct group *g)
{
	const unsigned int current = current_mask(g);
	struct group_op *o, *next;

	for (o = TAILQ_FIRST(&g->ops); o; o = next) {
		next = TAILQ_NEXT(o, link);
		if (o->type == RPMEM_POOL_READ ||
		    (unsigned int)__builtin_popcount(o->has & current) < g->k)
			continue;
		TAILQ_REMOVE(&g->ops, o, link);
		if (o->type == RPMEM_POOL_COMMIT && o->writes > g->committed)
			g->committed = o->writes;
		if (o->user && o->type == RPMEM_POOL_COMMIT && !o->stored &&
		    o->user->then)
			store_then(g, o);
		op_complete(g, o, 0, NULL);
	}
}

void group_adopted(struct group *g, unsigned int member)
{
	struct group_member *m = &g->members[member];
	struct group_leg *leg;
	struct group_op *o;

	g->changed = true;
	/* The copied chunks contain all writes that were sent before. */
	TAILQ_FOREACH (o, &g->ops, link)
		if (o->type != RPMEM_POOL_COMMIT || o->number <= m->number)
			o->has |= 1u << member;
	/* Legs that are not submitted are not done; the barrier covered out. */
	TAILQ_FOREACH (leg, &m->queue, link)
		if (leg->of)
			leg->of->has &= ~(1u << member);
	TAILQ_FOREACH (leg, &m->commits, link)
		leg->of->has &= ~(1u << member);
}

/* A commit, and all that it covers, is durable at a member. */
static void commit_done(struct group *g, unsigned int member,
			struct group_leg *leg)
{
	struct group_member *m = &g->members[member];
	struct group_leg *l, *next;

	m->number = leg->of->number;
	/* A commit can be reported earlier than the writes that it covers. */
	for (l = TAILQ_FIRST(&m->out); l != leg; l = TAILQ_NEXT(l, link))
		if (l->kind == LEG_WRITE)
			l->of->has |= 1u << member;
	for (l = TAILQ_FIRST(&m->commits); l; l = next) {
		next = TAILQ_NEXT(l, link);
		if (l->of->number > m->number)
			break;
		l->of->has |= 1u << member;
		TAILQ_REMOVE(&m->commits, l, link);
		leg_free(g, l);
	}
}

/*
 * Whether to keep a member at which the leg failed: it is the last current one,
 * from which the others are copied, its pool can still succeed, and the leg
 * belongs to no operation that has completed. The caller of the operation gets
 * the error.
 */
static bool is_last(const struct group *g, unsigned int member,
		    const struct group_leg *leg)
{
	return g->members[member].state == MEMBER_CURRENT &&
	       group_count(g, MEMBER_CURRENT) == 1 &&
	       !g->io.has_ended(g->io.arg, member) &&
	       (!leg->of || !leg->of->complete || leg->of->failed);
}

/*
 * A write failed at the last current member, which may lack the bytes: copy
 * again to the members that may have them.
 */
static void drop_others(struct group *g, unsigned int last)
{
	for (unsigned int i = 0; i < g->n; i++)
		if (i != last && g->members[i].state >= MEMBER_COPYING)
			member_drop(g, i, -EIO,
				    "a write failed at the member from which "
				    "it is copied; it is copied again");
}

/* Pause a member after a failed leg, which a failed disk fails at once. */
static void pause_member(const struct group *g, struct group_member *m, int ret,
			 const char *error)
{
	m->repeat_at = g->now + GROUP_REPEAT_MS;
	m->ret = ret;
	m->error = error;
}

/*
 * Retry a leg of the group itself after a pause: it failed at the last current
 * member, or was not submitted. For a LEG_SOURCE the member pauses to which the
 * chunk is copied.
 */
static void repeat_leg(struct group *g, unsigned int member,
		       struct group_leg *leg)
{
	const char *error = group_text(g, member, leg->op.error);
	struct group_member *m = &g->members[member];

	TAILQ_REMOVE(&m->out, leg, link);
	if (leg->kind == LEG_SOURCE) {
		for (unsigned int i = 0; i < g->n; i++) {
			if (g->members[i].source != leg)
				continue;
			g->members[i].source = NULL;
			pause_member(g, &g->members[i], leg->op.result, error);
		}
		leg_free(g, leg);
		return;
	}
	if (m->barrier == leg)
		m->barrier = NULL;
	TAILQ_INSERT_HEAD(&m->queue, leg, link);
	pause_member(g, m, leg->op.result, error);
}

/*
 * Complete an operation with the result of one member. The commit of a durable
 * write, or of the store of a commit, has the caller's operation of both, and
 * the members can execute it without the write: it fails with the write.
 */
static void op_reply(struct group *g, unsigned int member, struct group_op *o,
		     const struct rpmem_pool_op *op)
{
	const char *error =
		op->result ? group_text(g, member, op->error) : NULL;
	struct group_op *commit = TAILQ_NEXT(o, link);

	TAILQ_REMOVE(&g->ops, o, link);
	if (!o->user && commit && commit->stored &&
	    commit->writes == o->writes) {
		TAILQ_REMOVE(&g->ops, commit, link);
		op_complete(g, commit, op->result, error);
	}
	op_complete(g, o, op->result, error);
}

void group_done(struct group *g, unsigned int member, struct rpmem_pool_op *op)
{
	struct group_leg *leg = (struct group_leg *)op->context;
	struct group_member *m = &g->members[member];
	struct group_op *o = leg->of;

	g->changed = true;
	if (m->state == MEMBER_AWAY)
		return;
	if (leg->kind == LEG_JOINED || (leg->kind == LEG_WRITE && !leg->joined))
		m->writes--;
	if (leg->kind == LEG_JOINED) {
		group_joined_done(g, member, leg);
		return;
	}
	if (op->result && !is_last(g, member, leg)) {
		member_drop(g, member, op->result, op->error);
		return;
	}
	if (op->result && !o) {
		repeat_leg(g, member, leg);
		return;
	}
	if (op->result && leg->kind == LEG_WRITE)
		drop_others(g, member);
	if (leg->kind == LEG_SOURCE || leg->kind == LEG_COPY) {
		member_done(g, member, leg);
		return;
	}
	if (leg->kind == LEG_COMMIT && !op->result)
		commit_done(g, member, leg);
	if (m->committing == leg)
		m->committing = NULL;
	TAILQ_REMOVE(&m->out, leg, link);
	if (m->barrier == leg)
		m->barrier = NULL;
	if (!o) {
		m->repeat_at = 0;
		member_done(g, member, leg);
		leg_free(g, leg);
		return;
	}
	if (!op->result)
		o->has |= 1u << member;
	if (o->complete) {
		m->backlog -= leg_lag(leg);
	} else if (leg->kind == LEG_READ || op->result) {
		op_reply(g, member, o, op);
	}
	leg_free(g, leg);
}

/* Send a read to a current member at which no write of the range is pending. */
static void start_read(struct group *g, struct group_op *o)
{
	struct group_leg *leg;
	int ret;

	/* Wait for the close of a dropped member, which may write to buf. */
	if (o->legs)
		return;
	for (unsigned int i = 0; i < g->n; i++) {
		struct group_member *m = &g->members[i];
		bool lags = false;

		if (m->state != MEMBER_CURRENT)
			continue;
		TAILQ_FOREACH (leg, &m->queue, link)
			lags |= leg->of && leg->of->complete &&
				leg_overlaps(leg, GROUP_AREA + o->offset,
					     o->len);
		TAILQ_FOREACH (leg, &m->out, link)
			lags |= leg->of && leg->of->complete &&
				leg_overlaps(leg, GROUP_AREA + o->offset,
					     o->len);
		if (lags)
			continue;
		leg = leg_new(LEG_READ, 0);
		if (!leg)
			return;
		leg->op.type = RPMEM_POOL_READ;
		leg->op.buf = o->user->buf;
		leg->op.offset = GROUP_AREA + o->offset;
		leg->op.len = o->len;
		TAILQ_REMOVE(&g->reads, o, link);
		/* A pool refuses a buffer, or has no memory for the read. */
		ret = g->io.submit(g->io.arg, i, &leg->op);
		if (ret) {
			op_complete(g, o, ret, group_text(g, i, leg->op.error));
			free(leg);
			return;
		}
		leg->of = o;
		o->legs++;
		o->at = i;
		group_read_sent(g, o);
		TAILQ_INSERT_TAIL(&g->ops, o, link);
		TAILQ_INSERT_TAIL(&m->out, leg, link);
		return;
	}
}

/* --- end of the group, of operations and of members --- */

static void fail_list(struct group *g, struct group_ops *list, int ret,
		      const char *error)
{
	struct group_op *o, *next;

	for (o = TAILQ_FIRST(list); o; o = next) {
		next = TAILQ_NEXT(o, link);
		if (o->type == RPMEM_POOL_READ && o->legs)
			continue;
		TAILQ_REMOVE(list, o, link);
		op_complete(g, o, ret, error);
	}
}

void group_end(struct group *g, int ret, const char *error)
{
	if (g->phase == GROUP_ENDED)
		return;
	g->phase = GROUP_ENDED;
	g->ret = ret;
	g->error = error;
	fail_list(g, &g->ops, ret, error);
	fail_list(g, &g->reads, ret, error);
}

/* Drop a member that lags too far; chunks are copied to it later. */
static void drop_slow(struct group *g)
{
	for (unsigned int i = 0; i < g->n; i++)
		if (member_is_slow(&g->members[i]))
			member_drop(g, i, -ETIMEDOUT,
				    "it was too slow; it is brought up to date "
				    "again");
}

void group_ops_run(struct group *g)
{
	struct group_op *o, *next;

	/* Only a report of a member can complete an operation. */
	if (g->changed)
		complete_done(g);
	g->changed = false;
	for (o = TAILQ_FIRST(&g->reads); o; o = next) {
		next = TAILQ_NEXT(o, link);
		start_read(g, o);
	}
	group_clear_old(g);
	drop_slow(g);
	if (g->looked != g->now) {
		g->looked = g->now;
		group_check_deadlines(g);
	}
	for (unsigned int i = 0; i < g->n; i++) {
		member_step(g, i);
		member_push(g, i);
	}
}
