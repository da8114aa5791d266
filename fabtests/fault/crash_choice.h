/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A run of the crash matrix asks here at each point where several things could
 * happen next. All possibilities are tried, or random ones, or those of a run
 * that is repeated.
 */
#ifndef CRASH_CHOICE_H
#define CRASH_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum choice_mode {
	CHOICE_ALL,    /* depth first, every path once */
	CHOICE_RANDOM, /* from a seed */
	CHOICE_REPLAY, /* from path; past its end always the first possibility
			*/
};

#define CHOICE_MAX 4096 /* in one run */

struct choices {
	enum choice_mode mode;
	uint64_t rng;
	size_t at;  /* number of choices made so far in this run */
	size_t len; /* number of choices in path */
	uint8_t path[CHOICE_MAX];
	uint64_t open[CHOICE_MAX]; /* ALL: what is left to try here */
};

void choices_all(struct choices *c);
void choices_random(struct choices *c, uint64_t seed);
/* Restart along the same path. */
void choices_replay(struct choices *c);

/*
 * Before a run: true if there is another one. After a run of ALL the next call
 * advances the last choice that has another possibility.
 */
bool choices_more(struct choices *c);

/* Choose one of 0 .. n-1, n <= 64. */
unsigned int choose(struct choices *c, unsigned int n);
/* Choose one of the bits that are set in allowed; at least one is. */
unsigned int choose_of(struct choices *c, uint64_t allowed);

/* Print as digits and letters, and parse them again: 0 or -EINVAL. */
void choices_print(const struct choices *c, char *out, size_t len);
int choices_parse(struct choices *c, const char *s);

#endif
