// SPDX-License-Identifier: BSD-2-Clause
/*
 * Find the best size of pieces during a transfer by trials. A turn is
 * PIECE_TURN bytes sent with one size.
 */
#include <stdbool.h>

#include "libpool/piece.h"

/* Each trial compares one of these with the best size so far, first DEFAULT. */
#define DEFAULT (4u * PIECE_UNIT)
static const uint32_t trials[] = {PIECE_UNIT, 16u * PIECE_UNIT};
#define TRIALS (sizeof(trials) / sizeof(trials[0]))
#define LOOKS  2u /* looks at ratios: at PIECE_FIRST and PIECE_PAIRS */

/* The order within pairs alternates (AB, BA, AB ...), so that drift cancels. */
static bool is_other(const struct piece_choice *c, uint64_t turn)
{
	const uint64_t i = turn - c->first;

	return (i / 2 + i) % 2;
}

static void begin_trial(struct piece_choice *c)
{
	if (!c->chosen) {
		c->chosen = DEFAULT;
		c->turn = 1;
	}
	c->other = trials[c->trial];
	/* The current turn includes posts of the former sizes. */
	c->first = c->turn + 1;
	c->n = 0;
}

static void end_trial(struct piece_choice *c, enum rp_verdict v)
{
	if (v == RP_VERDICT_HOLDS)
		c->chosen = c->other;
	c->other = 0;
	c->trial++;
}

/* Start the next turn if this one is full and the ring has room. */
static void next_turn(struct piece_choice *c)
{
	if (c->turns[c->turn % PIECE_TURNS].bytes < PIECE_TURN ||
	    c->turn + 2 - c->ended >= PIECE_TURNS)
		return;
	c->turn++;
	c->turns[c->turn % PIECE_TURNS].bytes = 0;
}

uint32_t piece_next(struct piece_choice *c, uint64_t len, uint64_t *turn)
{
	if (!c->other && c->trial < TRIALS)
		begin_trial(c);
	*turn = 0;
	/* An operation shorter than either size cannot tell them apart. */
	if (!c->other || len < c->chosen || len < c->other)
		return c->chosen;
	next_turn(c);
	*turn = c->turn;
	return c->turn >= c->first && is_other(c, c->turn) ? c->other
							   : c->chosen;
}

void piece_posted(struct piece_choice *c, uint64_t turn, uint32_t len,
		  uint64_t now_ns)
{
	if (!turn)
		return;
	c->turns[turn % PIECE_TURNS].bytes += len;
	c->turns[turn % PIECE_TURNS].out++;
	if (!c->out++)
		c->since_ns = now_ns;
}

/* Time per byte of a turn in ns, counted from the end of the turn before. */
static double time_of(const struct piece_choice *c, uint64_t turn)
{
	const uint64_t from = c->turns[(turn - 1) % PIECE_TURNS].end;
	const uint64_t to = c->turns[turn % PIECE_TURNS].end;

	return (double)(to > from ? to - from : 1) /
	       (double)c->turns[turn % PIECE_TURNS].bytes;
}

/* Add the ratio of the pair that this turn ends; test all at two numbers. */
static void judge_pair(struct piece_choice *c, uint64_t turn)
{
	enum rp_verdict v = RP_VERDICT_UNKNOWN;
	double sorted[PIECE_PAIRS], times[2];
	struct rp_ratio r;

	times[is_other(c, turn - 1)] = time_of(c, turn - 1);
	times[is_other(c, turn)] = time_of(c, turn);
	c->ratios[c->n++] = times[false] / times[true];
	if (c->n != PIECE_FIRST && c->n != PIECE_PAIRS)
		return;
	for (size_t i = 0; i < c->n; i++)
		sorted[i] = c->ratios[i];
	if (!rp_ratio_look(sorted, c->n, LOOKS, &r))
		v = rp_ratio_judge(&r, RP_RATIO_WORTH);
	if (v != RP_VERDICT_UNKNOWN || c->n == PIECE_PAIRS)
		end_trial(c, v);
}

void piece_completed(struct piece_choice *c, uint64_t turn, uint64_t now_ns)
{
	if (!turn)
		return;
	c->busy_ns += now_ns - c->since_ns;
	c->since_ns = now_ns;
	c->out--;
	c->turns[turn % PIECE_TURNS].out--;
	c->turns[turn % PIECE_TURNS].end = c->busy_ns;
	/* A turn ends when it is full and all its posts have completed. */
	while (c->ended + 1 < c->turn &&
	       !c->turns[(c->ended + 1) % PIECE_TURNS].out) {
		c->ended++;
		if (c->other && c->ended > c->first &&
		    (c->ended - c->first) % 2)
			judge_pair(c, c->ended);
	}
}
