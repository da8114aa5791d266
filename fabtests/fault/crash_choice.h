/* SPDX-License-Identifier: BSD-2-Clause */
/* The adversary's choices: all of them in turn, at random, or again. */
#ifndef CRASH_CHOICE_H
#define CRASH_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum choice_mode {
	CHOICE_ALL,    /* depth first, every path once */
	CHOICE_RANDOM, /* from a seed */
	CHOICE_REPLAY, /* what path says; the first possibility after its end */
};

#define CHOICE_MAX 4096 /* of one run */

struct choices {
	enum choice_mode mode;
	uint64_t rng;
	size_t at;  /* of this run so far */
	size_t len; /* of the path */
	uint8_t path[CHOICE_MAX];
	uint64_t open[CHOICE_MAX]; /* ALL: what could still be picked here */
};

void choices_all(struct choices *c);
void choices_random(struct choices *c, uint64_t seed);
/* From the start again, along the same path. */
void choices_replay(struct choices *c);

/*
 * Before a run: true when there is one more. After it, for ALL, the next call
 * goes on with the last choice that has another possibility.
 */
bool choices_more(struct choices *c);

/* One of 0 .. n-1, n <= 64. */
unsigned int choose(struct choices *c, unsigned int n);
/* One of the bits that are set in allowed; at least one is. */
unsigned int choose_of(struct choices *c, uint64_t allowed);

/* Digits and letters, for people to copy; back: 0 or -EINVAL. */
void choices_print(const struct choices *c, char *out, size_t len);
int choices_parse(struct choices *c, const char *s);

#endif
