/* SPDX-License-Identifier: BSD-2-Clause */
/* Measured times, kept exactly: no buckets, no estimates. */
#ifndef RP_UTIL_SAMPLES_H
#define RP_UTIL_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All zero is an empty set. */
struct rp_samples {
	uint64_t *v;
	size_t n, cap;
	bool sorted;
};

/* Returns 0 or -ENOMEM: then nothing was added. */
int rp_samples_add(struct rp_samples *s, uint64_t value);
void rp_samples_free(struct rp_samples *s);

/*
 * The smallest sample that at least permille of 1000 are not above (nearest
 * rank); 0 is the minimum and 1000 the maximum. Sorts at first. Returns 0,
 * or -ENODATA when there are too few samples for one to lie above the rank:
 * a p99.9 of 200 samples would be their maximum under another name.
 */
int rp_samples_rank(struct rp_samples *s, unsigned int permille,
		    uint64_t *value);

#endif
