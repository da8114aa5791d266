/* SPDX-License-Identifier: BSD-2-Clause */
/* Samples of measured times, stored exactly, without buckets. */
#ifndef RP_SAMPLES_H
#define RP_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Set of samples; all zero is empty. */
struct rp_samples {
	uint64_t *v;
	size_t n, cap;
	bool sorted;
};

/* Add a sample. Returns 0, or -ENOMEM without adding it. */
int rp_samples_add(struct rp_samples *s, uint64_t value);
void rp_samples_free(struct rp_samples *s);

/*
 * Quantile by nearest rank, in permille: 0 is the minimum, 1000 the maximum.
 * The first call sorts. Returns 0, or -ENODATA when there are too few samples
 * for one to lie above the rank: p99.9 of 200 samples would be their maximum
 * under another name.
 */
int rp_samples_rank(struct rp_samples *s, unsigned int permille,
		    uint64_t *value);

#endif
