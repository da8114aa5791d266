/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A seeded random generator for property tests. RP_SEED repeats a failed run;
 * RP_SEEDS_FROM is the first seed of a test of many runs. RP_LONG=1 asks for all
 * runs, and not a share.
 */
#ifndef RP_TEST_SEEDED_H
#define RP_TEST_SEEDED_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct seeded {
	uint64_t seed; /* for failure messages */
	uint64_t state;
};

static inline uint64_t seeded_next(struct seeded *s)
{
	/* splitmix64, which works with any seed. */
	uint64_t z = s->state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static inline uint64_t seeded_below(struct seeded *s, uint64_t n)
{
	return seeded_next(s) % n;
}

static inline struct seeded seeded_start(void)
{
	const char *env = getenv("RP_SEED");
	struct timespec now;
	struct seeded s;

	if (!env)
		env = getenv("RP_SEEDS_FROM");
	clock_gettime(CLOCK_REALTIME, &now);
	s.seed = env ? strtoull(env, NULL, 0)
		     : (uint64_t)now.tv_nsec << 20 ^ now.tv_sec ^ getpid();
	s.state = s.seed;
	return s;
}

/* check.sh sets RP_LONG to 0 or 1. */
static inline bool seeded_all(void)
{
	const char *env = getenv("RP_LONG");

	return env && !strcmp(env, "1");
}

#endif
