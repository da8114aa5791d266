/* SPDX-License-Identifier: BSD-2-Clause */
/* The size of the pieces in which long operations are posted. */
#ifndef RP_LIBPOOL_PIECE_H
#define RP_LIBPOOL_PIECE_H

#include <stdint.h>

#include "util/ratio.h"

#ifndef PIECE_UNIT
#define PIECE_UNIT (256u << 10)	       /* the smallest size that is tried */
#define PIECE_TURN (64ul * PIECE_UNIT) /* bytes that one turn sends */
#endif
#define PIECE_TURNS 16u /* turns outstanding at most */
#define PIECE_FIRST 9u	/* pairs of turns before the first test of ratios */
#define PIECE_PAIRS 24u /* pairs before the second test, which ends a trial */

/*
 * A choice among three sizes during a transfer. The chosen size and another one
 * take turns, and rp_ratio_judge() tests the ratios of their times after
 * PIECE_FIRST pairs, and after PIECE_PAIRS, where the trial ends at the latest.
 * Each further test would make a wrong verdict likelier. Start with all fields
 * zero.
 */
struct piece_choice {
	unsigned int trial; /* index into trials[]; TRIALS: none is left */
	unsigned int chosen, other; /* sizes; 0: not started */
	/* Turns count from 1 on; turn 0 belongs to no trial. */
	uint64_t turn;	/* turn of the next post */
	uint64_t first; /* first turn of the trial */
	uint64_t ended; /* the last ended turn, in order */
	struct {
		unsigned int out; /* outstanding posts of the turn */
		uint64_t bytes;	  /* bytes posted in the turn */
		uint64_t end;	  /* busy_ns at the turn's last completion */
	} turns[PIECE_TURNS];	  /* turn number, modulo PIECE_TURNS */
	unsigned int out;	  /* outstanding posts of all turns */
	uint64_t busy_ns;	  /* time in which posts were outstanding */
	uint64_t since_ns;	  /* time up to which busy_ns is counted */
	double ratios[PIECE_PAIRS];
	size_t n;
};

/* Size of the next post of a long operation; pass *turn to the calls below. */
uint32_t piece_next(struct piece_choice *c, uint64_t len, uint64_t *turn);
void piece_posted(struct piece_choice *c, uint64_t turn, uint32_t len,
		  uint64_t now_ns);
void piece_completed(struct piece_choice *c, uint64_t turn, uint64_t now_ns);

#endif
