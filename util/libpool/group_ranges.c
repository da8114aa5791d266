// SPDX-License-Identifier: BSD-2-Clause
/* The legs of a member: the ranges that they change, and what it lags. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "libpool/group.h"

int legs_new(const struct group *g, enum leg_kind kind, uint64_t bytes,
	     struct group_leg *legs[GROUP_MEMBERS])
{
	for (unsigned int i = 0; i < g->n; i++) {
		const struct group_member *m = &g->members[i];

		legs[i] = NULL;
		if (m->state < MEMBER_COPYING ||
		    (kind == LEG_COMMIT && !m->numbered))
			continue;
		legs[i] = leg_new(kind, bytes);
		if (legs[i])
			continue;
		while (i--)
			free(legs[i]);
		return -ENOMEM;
	}
	return 0;
}

void leg_range(const struct group_leg *leg, uint64_t *offset, uint64_t *len)
{
	const bool changes = leg->kind == LEG_WRITE || leg->kind == LEG_COPY ||
			     leg->kind == LEG_BITS || leg->kind == LEG_CLEAR ||
			     leg->kind == LEG_AREA;

	*offset = leg->op.offset;
	*len = changes ? leg->op.len : 0;
}

bool leg_overlaps(const struct group_leg *leg, uint64_t offset, uint64_t len)
{
	uint64_t at, n;

	leg_range(leg, &at, &n);
	return n && len && at < offset + len && offset < at + n;
}

static bool any_leg_overlaps(const struct group_legs *list, uint64_t offset,
			     uint64_t len)
{
	const struct group_leg *leg;

	TAILQ_FOREACH (leg, list, link)
		if (leg_overlaps(leg, offset, len))
			return true;
	return false;
}

bool member_has_all(const struct group *g, unsigned int member, uint64_t offset,
		    uint64_t len)
{
	const struct group_member *m = &g->members[member];

	return !any_leg_overlaps(&m->queue, offset, len) &&
	       !any_leg_overlaps(&m->out, offset, len);
}

bool group_out_overlaps(struct group_member *m, uint64_t offset, uint64_t len)
{
	const struct group_leg *leg;
	uint64_t at, n, first = UINT64_MAX, end = 0;
	bool any = false;

	if (!len || offset >= m->out_end || offset + len <= m->out_first)
		return false;
	TAILQ_FOREACH (leg, &m->out, link) {
		leg_range(leg, &at, &n);
		if (!n)
			continue;
		first = at < first ? at : first;
		end = at + n > end ? at + n : end;
		any |= leg_overlaps(leg, offset, len);
	}
	m->out_first = first;
	m->out_end = end;
	return any;
}

void group_out_add(struct group_member *m, struct group_leg *leg)
{
	uint64_t at, n;

	leg_range(leg, &at, &n);
	if (n && at < m->out_first)
		m->out_first = at;
	if (n && at + n > m->out_end)
		m->out_end = at + n;
	TAILQ_INSERT_TAIL(&m->out, leg, link);
}

uint64_t leg_lag(const struct group_leg *leg)
{
	return leg->of->failed || leg->op.type == RPMEM_POOL_ZERO ? 0
								  : leg->op.len;
}

static uint64_t longest_lag(const struct group_legs *list)
{
	const struct group_leg *leg;
	uint64_t longest = 0;

	TAILQ_FOREACH (leg, list, link)
		if (leg->of && leg->of->complete && leg_lag(leg) > longest)
			longest = leg_lag(leg);
	return longest;
}

bool member_is_slow(const struct group_member *m)
{
	uint64_t queued, sent;

	if (m->backlog <= GROUP_BACKLOG)
		return false;
	queued = longest_lag(&m->queue);
	sent = longest_lag(&m->out);
	return m->backlog - (queued > sent ? queued : sent) > GROUP_BACKLOG;
}

void group_unqueue(struct group *g, const struct group_op *o)
{
	struct group_leg *legs[GROUP_MEMBERS] = {NULL}, *leg;
	unsigned int queued = 0;

	for (unsigned int i = 0; i < g->n; i++) {
		TAILQ_FOREACH (leg, &g->members[i].queue, link)
			if (leg->of == o)
				legs[i] = leg;
		queued += legs[i] != NULL;
	}
	for (unsigned int i = 0; i < g->n && queued == o->legs && !o->has; i++)
		if (legs[i]) {
			TAILQ_REMOVE(&g->members[i].queue, legs[i], link);
			leg_free(g, legs[i]);
		}
}

bool group_member_has_all(const struct group *g, unsigned int member)
{
	const struct group_member *m = &g->members[member];
	const struct group_legs *lists[] = {&m->queue, &m->commits, &m->out};
	const struct group_leg *leg;

	if (m->state != MEMBER_CURRENT)
		return false;
	for (unsigned int i = 0; i < 3; i++)
		TAILQ_FOREACH (leg, lists[i], link)
			if (leg->of && leg->of->complete)
				return false;
	return true;
}

bool group_is_quiet(const struct group *g)
{
	for (unsigned int i = 0; i < g->n; i++)
		if (g->members[i].state != MEMBER_CURRENT ||
		    !TAILQ_EMPTY(&g->members[i].queue) ||
		    !TAILQ_EMPTY(&g->members[i].commits) ||
		    !TAILQ_EMPTY(&g->members[i].out))
			return false;
	return TAILQ_EMPTY(&g->ops) && TAILQ_EMPTY(&g->reads) &&
	       g->phase == GROUP_OPEN;
}
