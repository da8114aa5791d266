// SPDX-License-Identifier: BSD-2-Clause
/* Lists the possible actions, and decides which of them commute. */
#include <string.h>

#include "crash_world_priv.h"

/*
 * Add an action ACT_RUN for each number of arrivals on each wire to machine m,
 * most arrivals first.
 */
static size_t add_runs(struct act *out, size_t n, size_t max, unsigned int m)
{
	struct act a = {.kind = ACT_RUN, .machine = m};
	bool any = false;

	for (size_t k = 0; k < w.nwires; k++) {
		if (w.wire[k].to != m)
			continue;
		a.arrive[k] = w.wire[k].in_flight;
		any |= a.arrive[k];
	}
	/*
	 * A run without arrivals is possible, too, if messages that arrived
	 * earlier are not polled yet, or if DMA may be placed and acknowledged.
	 */
	if (waits_for(m) || (m == TARGET && w.cell->fabric.placed_acks &&
			     model_dma_pending(w.model))) {
		struct act none = {.kind = ACT_RUN, .machine = m};

		if (n < max)
			out[n++] = none;
	}
	while (any && n < max) {
		out[n++] = a;
		/* Next combination: count the arrivals down, wire by wire. */
		any = false;
		for (size_t k = 0; k < w.nwires; k++) {
			if (w.wire[k].to != m)
				continue;
			if (a.arrive[k]) {
				a.arrive[k]--;
				any = true;
				break;
			}
			a.arrive[k] = w.wire[k].in_flight;
		}
		/* The run without arrivals was added above. */
		any = false;
		for (size_t k = 0; k < w.nwires; k++)
			any |= a.arrive[k] != 0;
	}
	return n;
}

static bool may_register(void)
{
	return !w.dead && !w.unregistrable;
}

size_t all_actions(struct act *out, size_t max)
{
	size_t n = 0;

	look_at_wires();
	for (unsigned int i = 0; i < w.ninits; i++)
		n = add_runs(out, n, max, i);
	for (unsigned int i = 0; i < w.ninits; i++)
		if (may_post(i) && n < max)
			out[n++] = (struct act){ACT_POST, i, {0}};
	n = add_runs(out, n, max, TARGET);
	for (unsigned int i = 0; i < w.ninits && n < max; i++)
		if (w.lost[i] && !w.dead && oracle_idle(&w.o, i))
			out[n++] = (struct act){ACT_CONNECT, i, {0}};
	for (unsigned int i = 0; i < w.ninits && n < max; i++)
		if (pmsim->unreported(i))
			out[n++] = (struct act){ACT_TELL, i, {0}};
	if (!n && (oracle_outstanding(&w.o) || w.stalled[0] || w.stalled[1]) &&
	    n < max)
		out[n++] = (struct act){ACT_TICK, TARGET, {0}};
	for (unsigned int i = 0; i < w.ninits && n < max; i++)
		if (w.stops < w.prog->stops && !oracle_idle(&w.o, i))
			out[n++] = (struct act){ACT_STOP, i, {0}};
	for (unsigned int i = 0; i < w.ninits && n < max; i++)
		if (w.removes < w.prog->removes && !oracle_idle(&w.o, i))
			out[n++] = (struct act){w.cell->conn ? ACT_CONNECT
							     : ACT_REMOVE,
						i,
						{0}};
	for (unsigned int i = 0; i < w.ninits && n < max; i++)
		if (w.cuts < w.prog->cuts && pmsim->cut(i, PMSIM_CUT_NOT))
			out[n++] = (struct act){ACT_CUT, i, {0}};
	if (w.prog->dies && !w.dead && n < max)
		out[n++] = (struct act){ACT_DEATH, TARGET, {0}};
	if (w.restarts < w.prog->restarts && may_register() && n < max)
		out[n++] = (struct act){ACT_RESTART, TARGET, {0}};
	if (w.rekeys < w.prog->rekeys && may_register() && n < max)
		out[n++] = (struct act){ACT_REKEY, TARGET, {0}};
	if (w.cell->weakens && !w.noticed && !w.dead && n < max)
		out[n++] = (struct act){
			w.weakened ? ACT_NOTICE : ACT_WEAKEN, TARGET, {0}};
	return n;
}

/*
 * Do two actions commute? Runs and posts of two machines do: neither polls what
 * the other posts before a later action. The search then tries one order for
 * both, with the initiators first, because they trust more the earlier they
 * poll. ACT_WEAKEN commutes with a run or a post unless only earlier bytes stay
 * durable: the model follows the bytes of the weakened domain from the start,
 * so its moment does not matter before the target notices.
 */
static bool acts_independent(const struct act *a, const struct act *b)
{
	/*
	 * No two actions commute once a connection may end or be made, because
	 * both machines are notified of that.
	 */
	if (w.cell->fabric.offers_msg &&
	    (w.cuts || w.stops || w.removes || w.restarts || w.rekeys ||
	     w.dead || w.ticks || w.prog->cold || w.noticed))
		return false;
	if (a->kind == ACT_WEAKEN || b->kind == ACT_WEAKEN)
		return w.cell->spared != CRASH_SPARES_EARLIER &&
		       a->kind != b->kind &&
		       (a->kind <= ACT_POST || b->kind <= ACT_POST);
	return a->machine != b->machine && a->kind <= ACT_POST &&
	       b->kind <= ACT_POST;
}

static bool same_act(const struct act *a, const struct act *b)
{
	return a->kind == b->kind && a->machine == b->machine &&
	       !memcmp(a->arrive, b->arrive, sizeof(a->arrive));
}

bool in_sleep_set(const struct act *a)
{
	for (size_t i = 0; i < w.nsleep_set; i++)
		if (same_act(a, &w.sleep_set[i]))
			return true;
	return false;
}

void wake_dependent(const struct act *a)
{
	size_t n = 0;

	for (size_t i = 0; i < w.nsleep_set; i++)
		if (acts_independent(a, &w.sleep_set[i]))
			w.sleep_set[n++] = w.sleep_set[i];
	w.nsleep_set = n;
}
