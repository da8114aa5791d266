// SPDX-License-Identifier: BSD-2-Clause
/* Limits the rate of copying chunks to members that are not current. */
#include "config.h"

#include "libpool/group.h"

#define TURN_MS	 40   /* length of a turn of copying */
#define PROBE_MS 5    /* least length of a pause, to measure its rate */
#define LOSS	 0.15 /* part of the caller's rate that copying may cost */

static bool is_copying(const struct group *g)
{
	for (unsigned int i = 0; i < g->n; i++)
		if (g->members[i].state == MEMBER_COPYING)
			return true;
	return false;
}

/*
 * The pause after a turn of copying. It is so long that the caller's operations
 * lose LOSS of their rate over both turns: with the rates c during copying and
 * p during pauses, copying gets LOSS / (1 - c / p) of the time. Without
 * operations of the caller copying needs no pause.
 */
static double pause_ms(const struct group_throttle *p)
{
	double slowdown, turns;

	if (!p->ms[0] || p->ops[0] + p->ops[1] < 1)
		return 0;
	if (!p->ms[1] || !p->ops[1])
		return PROBE_MS;
	slowdown = 1 - (p->ops[0] / p->ms[0]) / (p->ops[1] / p->ms[1]);
	turns = slowdown / LOSS - 1; /* below 1 / LOSS - 1 = 5.7 */
	return turns * TURN_MS > PROBE_MS ? turns * TURN_MS : PROBE_MS;
}

/*
 * Turns of copying and pauses alternate, and both measure the caller's rate.
 * Without copies all turns are pauses, so that their rate is known when copies
 * begin.
 */
void group_throttle_update(struct group *g)
{
	struct group_throttle *p = &g->throttle;
	const uint64_t ms = g->now - p->since;
	const bool copies = is_copying(g);

	/* The opening waits for copies, and no operation runs: no pauses. */
	if (g->phase < GROUP_OPEN) {
		*p = (struct group_throttle){.since = g->now,
					     .ended = g->ended};
		return;
	}
	/* The caller is idle: discard the measured rates. */
	if (p->pauses && copies && ms >= PROBE_MS && g->ended == p->ended &&
	    TAILQ_EMPTY(&g->ops) && TAILQ_EMPTY(&g->reads)) {
		*p = (struct group_throttle){.since = g->now,
					     .ended = g->ended};
		return;
	}
	if (p->pauses ? (double)ms < (copies ? pause_ms(p) : TURN_MS)
		      : copies && ms < TURN_MS)
		return;
	p->ops[p->pauses] =
		p->ops[p->pauses] * 7 / 8 + (double)(g->ended - p->ended);
	p->ms[p->pauses] = p->ms[p->pauses] * 7 / 8 + (double)ms;
	p->since = g->now;
	p->ended = g->ended;
	p->pauses = !copies || !p->pauses;
}

bool group_may_copy(const struct group *g)
{
	return !g->throttle.pauses;
}

uint64_t group_copy_left(const struct group *g, unsigned int member)
{
	const struct group_member *m = &g->members[member];
	const uint64_t end = g->super.length;
	uint64_t left = 0;

	if (m->state != MEMBER_COPYING || !m->copy)
		return 0;
	for (uint64_t c = m->copy_next; c * g->super.chunk < end; c++)
		if (m->copy[c / 8] & 1u << c % 8)
			left += end - c * g->super.chunk < g->super.chunk
					? end - c * g->super.chunk
					: g->super.chunk;
	return left;
}
