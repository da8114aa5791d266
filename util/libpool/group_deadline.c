// SPDX-License-Identifier: BSD-2-Clause
/* Deadlines of a group's operations, and of the replies to its reads. */
#include "config.h"

#include <errno.h>

#include "libpool/group.h"

/* Find the error that keeps the group below k current members. */
const char *group_why_late(const struct group *g)
{
	for (unsigned int i = 0; i < g->n; i++)
		if (g->members[i].state != MEMBER_CURRENT &&
		    g->members[i].error)
			return g->members[i].error;
	return "too few members of the group reply";
}

/*
 * The result of an operation that is late: the error of a current member at
 * which a leg before the operation's fails again and again, or -ETIMEDOUT.
 */
static int late_result(const struct group *g, const char **error)
{
	for (unsigned int i = 0; i < g->n; i++) {
		const struct group_member *m = &g->members[i];

		if (m->state != MEMBER_CURRENT || !m->repeat_at)
			continue;
		*error = m->error;
		return m->ret;
	}
	*error = group_why_late(g);
	return -ETIMEDOUT;
}

/* Whether k current members are connected, and none of these fails a leg. */
static bool is_served(const struct group *g)
{
	unsigned int count = 0;

	for (unsigned int i = 0; i < g->n; i++)
		count += g->members[i].state == MEMBER_CURRENT &&
			 !g->members[i].repeat_at &&
			 g->io.reachable(g->io.arg, i);
	return count >= g->k;
}

/*
 * Fail the operations that have waited for the timeout while fewer than k
 * members were connected. Connected members can be slow: their pools wait, too.
 */
static void expire(struct group *g)
{
	const char *error;
	int ret;
	struct group_ops *lists[] = {&g->ops, &g->reads};
	struct group_op *o, *next;

	if (TAILQ_EMPTY(&g->ops) && TAILQ_EMPTY(&g->reads))
		return;
	if (is_served(g)) {
		g->served_at = g->now;
		return;
	}
	for (unsigned int i = 0; i < 2; i++)
		for (o = TAILQ_FIRST(lists[i]); o; o = next) {
			next = TAILQ_NEXT(o, link);
			/* A member may still write to the read's buffer. */
			if (g->now < o->deadline ||
			    g->now < g->served_at + g->timeout_ms ||
			    (o->type == RPMEM_POOL_READ && o->legs))
				continue;
			TAILQ_REMOVE(lists[i], o, link);
			ret = late_result(g, &error);
			op_complete(g, o, ret, error);
		}
}

void group_read_sent(const struct group *g, struct group_op *o)
{
	const struct group_leg *leg;
	uint64_t bytes = o->len;

	TAILQ_FOREACH (leg, &g->members[o->at].out, link)
		if (leg->op.type != RPMEM_POOL_ZERO)
			bytes += leg->op.len;
	o->since = g->now;
	o->travel = bytes / GROUP_READ_RATE;
}

/*
 * Ms that a read waits for a member. They begin when a connected member could
 * have sent the read's bytes, and all that it was sent before, at
 * GROUP_READ_RATE: closing a member that transfers restarts the read elsewhere.
 */
static uint64_t read_silence(const struct group *g, const struct group_op *o)
{
	const uint64_t ms = g->now - o->since;

	if (ms <= GROUP_READ_MS || !g->io.reachable(g->io.arg, o->at))
		return ms;
	return ms > o->travel ? ms - o->travel : 0;
}

/*
 * Drop a member that does not reply to a read, if another member is current.
 * Closing the member ends its use of the caller's buffer, so that another one
 * can read. With only k current members a drop stops commits until the member
 * is back: wait GROUP_READ_FEW_MS for its reply then.
 */
static void drop_silent(struct group *g)
{
	unsigned int silent = 0, mute = 0;
	struct group_op *o;

	TAILQ_FOREACH (o, &g->ops, link) {
		uint64_t ms;

		if (o->type != RPMEM_POOL_READ)
			continue;
		ms = read_silence(g, o);
		if (ms > GROUP_READ_MS)
			silent |= 1u << o->at;
		if (ms > GROUP_READ_FEW_MS)
			mute |= 1u << o->at;
	}
	for (unsigned int i = 0; silent && i < g->n; i++) {
		const unsigned int left = group_count(g, MEMBER_CURRENT);

		if ((silent & 1u << i && left > g->k) ||
		    (mute & 1u << i && left > 1))
			member_drop(g, i, -ETIMEDOUT,
				    "it does not reply to a read");
	}
}

void group_check_deadlines(struct group *g)
{
	drop_silent(g);
	expire(g);
}
