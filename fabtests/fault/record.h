/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Records whose bytes follow from a seed and a number, for tests with power
 * cuts.
 */
#ifndef RP_FAULT_RECORD_H
#define RP_FAULT_RECORD_H

#include <stdint.h>

struct record {
	uint64_t seq; /* counts from 1 */
	uint64_t body[6];
	uint64_t sum;
};

static inline uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static inline void record_make(struct record *r, uint64_t seed, uint64_t seq)
{
	r->seq = seq;
	r->sum = seed;
	for (int i = 0; i < 6; i++) {
		r->body[i] = mix(seed ^ seq * 8 ^ (uint64_t)i);
		r->sum = mix(r->sum ^ r->body[i]);
	}
}

#endif
