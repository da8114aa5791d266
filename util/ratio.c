// SPDX-License-Identifier: BSD-2-Clause
/* The median of paired ratios, its confidence interval, and the verdict. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "util/ratio.h"

#define MISS 0.01 /* chance that the interval misses the median */

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/*
 * The number of sorted ratios to drop at each end: the largest k for which
 * P(Binomial(n, 1/2) <= k) is at most miss / 2. -1: n is too small (below 8 for
 * MISS).
 */
static long cut_of(size_t n, double miss)
{
	/* Binomial terms of n coins; their logarithms do not underflow. */
	double term = -(double)n * log(2), sum = 0;
	long cut = -1;

	for (size_t k = 0; k < n; k++) {
		sum += exp(term);
		if (sum > miss / 2)
			break;
		cut = (long)k;
		term += log((double)(n - k)) - log((double)(k + 1));
	}
	return cut;
}

int rp_ratio_look(double *ratios, size_t n, unsigned int looks,
		  struct rp_ratio *r)
{
	const long cut = cut_of(n, MISS / looks);

	*r = (struct rp_ratio){.high = INFINITY, .pairs = n};
	if (!n)
		return -ENODATA;
	qsort(ratios, n, sizeof(*ratios), compare);
	r->median = (ratios[n / 2] + ratios[(n - 1) / 2]) / 2;
	if (cut < 0)
		return -ENODATA;
	r->low = ratios[cut];
	r->high = ratios[n - 1 - (size_t)cut];
	return 0;
}

int rp_ratio_compute(double *ratios, size_t n, struct rp_ratio *r)
{
	return rp_ratio_look(ratios, n, 1, r);
}

enum rp_verdict rp_ratio_judge(const struct rp_ratio *r, double worth)
{
	if (r->low >= worth)
		return RP_VERDICT_HOLDS;
	return r->high < worth ? RP_VERDICT_NOT : RP_VERDICT_UNKNOWN;
}
