// SPDX-License-Identifier: BSD-2-Clause
/* A ratio inside the noise of its samples is no verdict. */
#include <errno.h>
#include <math.h>

#include <criterion/criterion.h>

#include "util/ratio.h"

#define PAIRS 31

static double v[PAIRS];
static struct rp_ratio r;

/* Made-up ratios: the middle one is m, the others at both sides up to spread.
 */
static enum rp_verdict judge(double m, double spread, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		/* Not sorted: 5 and n have no common divisor. */
		const double at = (double)(i * 5 % n) / (double)(n - 1);

		v[i] = m + spread * (2 * at - 1);
	}
	rp_ratio_compute(v, n, &r);
	return rp_ratio_judge(&r, RP_RATIO_WORTH);
}

Test(ratio, clear_gain_holds)
{
	cr_assert_eq(judge(1.5, 0.2, PAIRS), RP_VERDICT_HOLDS);
	cr_assert_float_eq(r.median, 1.5, 1e-9);
	cr_assert(r.low > 1.3 && r.low < r.median);
	cr_assert(r.high < 1.7 && r.high > r.median);
	cr_assert_eq(r.pairs, PAIRS);
}

Test(ratio, clear_loss_does_not_hold)
{
	cr_assert_eq(judge(0.7, 0.1, PAIRS), RP_VERDICT_NOT);
	/* A gain that is surely below what a change is worth. */
	cr_assert_eq(judge(1.01, 0.01, PAIRS), RP_VERDICT_NOT);
}

Test(ratio, inside_the_noise_is_unknown)
{
	cr_assert_eq(judge(1.0, 0.9, PAIRS), RP_VERDICT_UNKNOWN);
	cr_assert_eq(judge(1.2, 0.9, PAIRS), RP_VERDICT_UNKNOWN);
	cr_assert_eq(judge(0.9, 0.8, PAIRS), RP_VERDICT_UNKNOWN);
	cr_assert(r.low < RP_RATIO_WORTH && r.high > RP_RATIO_WORTH);
}

/* 7 pairs all fall on one side of their median in 1 of 64 runs, 8 in 1 of 128.
 */
Test(ratio, too_few_pairs_are_unknown)
{
	cr_assert_eq(judge(2.0, 0.01, 7), RP_VERDICT_UNKNOWN);
	cr_assert_eq(rp_ratio_compute(v, 7, &r), -ENODATA);
	cr_assert(isinf(r.high) && r.low == 0);
	cr_assert_float_eq(r.median, 2.0, 1e-9);
	cr_assert_eq(judge(2.0, 0.01, 8), RP_VERDICT_HOLDS);
	cr_assert_eq(rp_ratio_compute(v, 8, &r), 0);
	cr_assert_eq(rp_ratio_compute(v, 0, &r), -ENODATA);
	cr_assert_eq(rp_ratio_judge(&r, RP_RATIO_WORTH), RP_VERDICT_UNKNOWN);
}

/* The ranks of the interval, from tables of the sign test at 1 percent. */
Test(ratio, interval_has_the_ranks_of_the_sign_test)
{
	static const struct {
		size_t n, low, high; /* ranks from 1 on */
	} t[] = {{8, 1, 8},   {11, 1, 11}, {12, 2, 11},
		 {20, 4, 17}, {25, 6, 20}, {30, 8, 23}};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		for (size_t k = 0; k < t[i].n; k++)
			v[k] = (double)(t[i].n - k);
		cr_assert_eq(rp_ratio_compute(v, t[i].n, &r), 0);
		cr_assert_eq(r.low, (double)t[i].low, "%zu: %f", t[i].n, r.low);
		cr_assert_eq(r.high, (double)t[i].high, "%zu: %f", t[i].n,
			     r.high);
	}
}

/* Two looks share the percent: each has the ranks of half of it. */
Test(ratio, looks_share_the_chance_to_miss)
{
	for (size_t k = 0; k < 24; k++)
		v[k] = (double)(k + 1);
	cr_assert_eq(rp_ratio_look(v, 8, 2, &r), -ENODATA);
	cr_assert_eq(rp_ratio_look(v, 9, 2, &r), 0);
	cr_assert(r.low == 1 && r.high == 9);
	cr_assert_eq(rp_ratio_compute(v, 24, &r), 0);
	cr_assert(r.low == 6 && r.high == 19, "%f %f", r.low, r.high);
	cr_assert_eq(rp_ratio_look(v, 24, 2, &r), 0);
	cr_assert(r.low == 5 && r.high == 20, "%f %f", r.low, r.high);
}

/* One sample of a disturbed machine changes the mean, not the verdict. */
Test(ratio, outliers_do_not_decide)
{
	judge(1.0, 0.01, PAIRS);
	v[0] = 1000;
	v[1] = 500;
	cr_assert_eq(rp_ratio_compute(v, PAIRS, &r), 0);
	cr_assert_eq(rp_ratio_judge(&r, RP_RATIO_WORTH), RP_VERDICT_NOT);
}
