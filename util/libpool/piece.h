/* SPDX-License-Identifier: BSD-2-Clause */
/* The size of the pieces in which long operations are posted. */
#ifndef RP_LIBPOOL_PIECE_H
#define RP_LIBPOOL_PIECE_H

#include <stdint.h>

#include "util/ratio.h"

#ifndef PIECE_UNIT
#define PIECE_UNIT (256u << 10)	       /* the least size that is tried */
#define PIECE_TURN (64ul * PIECE_UNIT) /* bytes that a size gets at a time */
#endif
#define PIECE_TURNS 16u /* that may be outstanding */
#define PIECE_FIRST 9u	/* pairs of turns before the first look at them */
#define PIECE_PAIRS 24u /* before the second one, which ends a trial */

/*
 * A choice among three sizes during a transfer. The chosen size and
 * another one take turns until rp_ratio_judge() has a verdict on the ratio of
 * their times after PIECE_FIRST pairs, or PIECE_PAIRS are over. A look at more
 * numbers of pairs would make errors more likely. All zero is the start.
 */
struct piece_choice {
	unsigned int trial; /* of trials: index; at the end all are over */
	unsigned int chosen, other; /* sizes; 0: not begun */
	/* Turns are counted from 1 on; turn 0 is no part of a trial. */
	uint64_t turn;	/* of the next post */
	uint64_t first; /* of the trial */
	uint64_t ended; /* the last one that has ended, in order */
	struct {
		unsigned int out; /* posts outstanding */
		uint64_t bytes;	  /* posted */
		uint64_t end;	  /* of its last completion, by busy_ns */
	} turns[PIECE_TURNS];	  /* by number */
	unsigned int out;	  /* of all turns */
	uint64_t busy_ns;	  /* time in which posts were outstanding */
	uint64_t since_ns;	  /* up to when that is counted */
	double ratios[PIECE_PAIRS];
	size_t n;
};

/* Bytes of a post of an operation of len bytes; *turn for the next calls. */
uint32_t piece_next(struct piece_choice *c, uint64_t len, uint64_t *turn);
void piece_posted(struct piece_choice *c, uint64_t turn, uint32_t len,
		  uint64_t now_ns);
void piece_completed(struct piece_choice *c, uint64_t turn, uint64_t now_ns);

#endif
