// SPDX-License-Identifier: BSD-2-Clause
/* Samples of measured times, stored exactly, without buckets. */
#include <errno.h>
#include <stdlib.h>

#include "fabtests/benchmarks/samples.h"

int rp_samples_add(struct rp_samples *s, uint64_t value)
{
	if (s->n == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 1024;
		uint64_t *v = reallocarray(s->v, cap, sizeof(*v));

		if (!v)
			return -ENOMEM;
		s->v = v;
		s->cap = cap;
	}
	s->v[s->n++] = value;
	s->sorted = false;
	return 0;
}

void rp_samples_free(struct rp_samples *s)
{
	free(s->v);
	*s = (struct rp_samples){0};
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

int rp_samples_rank(struct rp_samples *s, unsigned int permille,
		    uint64_t *value)
{
	size_t rank;

	if (!s->n || permille > 1000)
		return -ENODATA;
	if (permille > 500 && permille < 1000 &&
	    s->n * (1000 - permille) < 1000)
		return -ENODATA;
	if (!s->sorted) {
		qsort(s->v, s->n, sizeof(*s->v), compare);
		s->sorted = true;
	}
	rank = (s->n * permille + 999) / 1000;
	*value = s->v[rank ? rank - 1 : 0];
	return 0;
}
