/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Choices of a crash matrix run. A run calls choose() wherever several events
 * are possible next. The search tries all possibilities, random ones, or those
 * of a recorded run.
 */
#ifndef CRASH_CHOICE_H
#define CRASH_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum choice_mode {
	CHOICE_ALL,    /* depth first, every path once */
	CHOICE_RANDOM, /* one run, random from a seed */
	CHOICE_REPLAY, /* from path; behind its end, always the first
			* possibility */
};

#define CHOICE_MAX 4096 /* choices in one run, at most */

struct choices {
	enum choice_mode mode;
	uint64_t rng;
	size_t at;  /* number of choices made so far in this run */
	size_t len; /* number of choices in path */
	uint8_t path[CHOICE_MAX];
	uint64_t open[CHOICE_MAX]; /* ALL: possibilities not tried yet */
};

void choices_all(struct choices *c);
void choices_random(struct choices *c, uint64_t seed);
/* Repeat the choices in path, from its start, in one more run. */
void choices_replay(struct choices *c);

/*
 * Call before each run: returns true if a run is left. With CHOICE_ALL each
 * call advances the last choice that has an untried possibility.
 */
bool choices_more(struct choices *c);

/* Choose one of 0 .. n-1. */
unsigned int choose(struct choices *c, unsigned int n);
/* Choose one of the bits set in allowed, which is not 0. */
unsigned int choose_of(struct choices *c, uint64_t allowed);

/* Print the path as digits and letters, or parse such text: 0 or -EINVAL. */
void choices_print(const struct choices *c, char *out, size_t len);
int choices_parse(struct choices *c, const char *s);

#endif
