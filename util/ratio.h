/* SPDX-License-Identifier: BSD-2-Clause */
/* Judges by paired samples whether one way is faster than another. */
#ifndef RP_UTIL_RATIO_H
#define RP_UTIL_RATIO_H

#include <stddef.h>

/* The gain that is worth a change: 5 percent. */
#define RP_RATIO_WORTH 1.05

/* The median of the ratios of pairs, and its interval of 99 percent. */
struct rp_ratio {
	double median, low, high;
	size_t pairs;
};

enum rp_verdict {
	RP_VERDICT_HOLDS,   /* all of the interval is at least the gain */
	RP_VERDICT_NOT,	    /* all of it is below */
	RP_VERDICT_UNKNOWN, /* the samples do not carry a verdict */
};

/*
 * Sort the ratios and find their median with the interval that its order
 * statistics give, whatever the distribution. With fewer than 8 pairs no two of
 * them enclose the median with 99 percent: -ENODATA, and the interval is from 0
 * to infinity.
 */
int rp_ratio_find(double *ratios, size_t n, struct rp_ratio *r);
/*
 * The same for one of several looks at a growing number of pairs: each interval
 * is wider, so that all of them together miss the median in 1 percent of runs.
 * The numbers of pairs are fixed beforehand.
 */
int rp_ratio_look(double *ratios, size_t n, unsigned int looks,
		  struct rp_ratio *r);
enum rp_verdict rp_ratio_judge(const struct rp_ratio *r, double worth);

#endif
