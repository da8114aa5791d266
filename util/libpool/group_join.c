// SPDX-License-Identifier: BSD-2-Clause
/*
 * Join adjacent small writes to a member: while JOIN_WRITES are outstanding,
 * the next ones wait, and are then copied and sent as one. The copy costs less
 * than the messages that it saves the client and the member.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "libpool/group.h"

#define JOIN_WRITES 2u	  /* outstanding writes behind which small ones wait */
#define JOIN_MOST   4096u /* most bytes of a joined write */

static bool is_small(const struct group_leg *leg)
{
	return leg->kind == LEG_WRITE && leg->op.type == RPMEM_POOL_WRITE &&
	       leg->op.len <= JOIN_MOST / 2;
}

bool group_join_waits(const struct group_member *m, const struct group_leg *leg)
{
	return m->writes >= JOIN_WRITES && is_small(leg) &&
	       leg->op.offset == m->writes_end;
}

/* Length of leg and of adjacent queued writes; writes_end becomes their end. */
static uint64_t find_adjacent(struct group_member *m,
			      const struct group_leg *leg)
{
	uint64_t len = leg->op.len;

	TAILQ_FOREACH (leg, &m->queue, link) {
		if (leg->kind == LEG_COMMIT)
			continue;
		if (!is_small(leg) || leg->op.offset != m->writes_end ||
		    len + leg->op.len > JOIN_MOST ||
		    group_out_overlaps(m, leg->op.offset, leg->op.len))
			break;
		len += leg->op.len;
		m->writes_end += leg->op.len;
	}
	return len;
}

/* Copy leg and the writes behind it, len bytes in all, into a joined write. */
static struct rpmem_pool_op *join(struct group_member *m, struct group_leg *leg,
				  uint64_t len)
{
	struct group_leg *joined = leg_new(LEG_JOINED, len);
	uint64_t at = 0;

	if (!joined) { /* no memory: send leg alone */
		m->writes_end = leg->op.offset + leg->op.len;
		return &leg->op;
	}
	joined->op.type = RPMEM_POOL_WRITE;
	joined->op.buf = joined->bytes;
	joined->op.offset = leg->op.offset;
	joined->op.len = len;
	for (;;) {
		memcpy(joined->bytes + at, leg->op.buf, leg->op.len);
		at += leg->op.len;
		leg->joined = joined;
		if (at == len)
			break;
		/* A commit that covers more than its own writes is right. */
		while ((leg = TAILQ_FIRST(&m->queue))->kind == LEG_COMMIT) {
			TAILQ_REMOVE(&m->queue, leg, link);
			TAILQ_INSERT_TAIL(&m->commits, leg, link);
		}
		TAILQ_REMOVE(&m->queue, leg, link);
		group_out_add(m, leg);
	}
	TAILQ_INSERT_TAIL(&m->out, joined, link);
	return &joined->op;
}

struct rpmem_pool_op *group_join(struct group_member *m, struct group_leg *leg)
{
	uint64_t len;

	if (leg->kind != LEG_WRITE)
		return &leg->op;
	m->writes++;
	m->writes_end = leg->op.offset + leg->op.len;
	if (!is_small(leg))
		return &leg->op;
	len = find_adjacent(m, leg);
	return len > leg->op.len ? join(m, leg, len) : &leg->op;
}

void group_joined_done(struct group *g, unsigned int member,
		       struct group_leg *joined)
{
	struct group_member *m = &g->members[member];
	struct group_leg *leg, *next;

	TAILQ_REMOVE(&m->out, joined, link);
	for (leg = TAILQ_FIRST(&m->out); leg; leg = next) {
		next = TAILQ_NEXT(leg, link);
		if (leg->joined != joined)
			continue;
		leg->op.result = joined->op.result;
		leg->op.error = joined->op.error;
		group_done(g, member, &leg->op);
		/* The error may have dropped the member, and its legs. */
		if (m->state == MEMBER_AWAY)
			break;
	}
	leg_free(g, joined);
}
