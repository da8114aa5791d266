/* SPDX-License-Identifier: BSD-2-Clause */
/* Judges by paired samples whether one way is faster than another. */
#ifndef RP_UTIL_RATIO_H
#define RP_UTIL_RATIO_H

#include <stddef.h>

/* The smallest gain that is worth a change: 5 percent. */
#define RP_RATIO_WORTH 1.05

/* The median of paired ratios, and its confidence interval of 99 percent. */
struct rp_ratio {
	double median, low, high;
	size_t pairs;
};

enum rp_verdict {
	RP_VERDICT_HOLDS,   /* the whole interval is at or above the gain */
	RP_VERDICT_NOT,	    /* the whole interval is below the gain */
	RP_VERDICT_UNKNOWN, /* the samples allow no verdict */
};

/*
 * Sort the ratios, and find their median with the confidence interval that
 * order statistics give for any distribution. With fewer than 8 pairs no two
 * ratios enclose the median with 99 percent: -ENODATA, and the interval is from
 * 0 to infinity.
 */
int rp_ratio_compute(double *ratios, size_t n, struct rp_ratio *r);
/*
 * rp_ratio_compute() for a run that tests `looks` times, with more pairs each
 * time. Each interval is wider, so that in 99 percent of runs every interval
 * has the median. The numbers of pairs must be fixed beforehand.
 */
int rp_ratio_look(double *ratios, size_t n, unsigned int looks,
		  struct rp_ratio *r);
enum rp_verdict rp_ratio_judge(const struct rp_ratio *r, double worth);

#endif
