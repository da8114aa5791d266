// SPDX-License-Identifier: BSD-2-Clause
/* Percentiles are existing samples, and are refused when there are too few. */
#include <errno.h>

#include <criterion/criterion.h>

#include "fabtests/benchmarks/samples.h"

static struct rp_samples s;

static void fill_samples(size_t n)
{
	/* Add 1 to n in an order that is neither ascending nor descending. */
	for (size_t i = 0; i < n; i++)
		cr_assert_eq(rp_samples_add(&s, (i * 7919) % n + 1), 0);
}

static void free_samples(void)
{
	rp_samples_free(&s);
}

TestSuite(samples, .fini = free_samples);

static uint64_t percentile(unsigned int permille)
{
	uint64_t v = 0;

	cr_assert_eq(rp_samples_rank(&s, permille, &v), 0);
	return v;
}

Test(samples, nearest_rank)
{
	fill_samples(10000);
	cr_assert_eq(percentile(0), 1);
	cr_assert_eq(percentile(500), 5000);
	cr_assert_eq(percentile(900), 9000);
	cr_assert_eq(percentile(990), 9900);
	cr_assert_eq(percentile(999), 9990);
	cr_assert_eq(percentile(1000), 10000);
}

Test(samples, odd_counts)
{
	fill_samples(3);
	cr_assert_eq(percentile(0), 1);
	cr_assert_eq(percentile(500), 2);
	cr_assert_eq(percentile(1000), 3);
}

Test(samples, none_is_no_figure)
{
	uint64_t v = 77;

	cr_assert_eq(rp_samples_rank(&s, 0, &v), -ENODATA);
	cr_assert_eq(rp_samples_rank(&s, 500, &v), -ENODATA);
	cr_assert_eq(rp_samples_rank(&s, 1000, &v), -ENODATA);
	cr_assert_eq(v, 77);
}

Test(samples, too_few_for_a_tail)
{
	uint64_t v;

	fill_samples(999);
	cr_assert_eq(rp_samples_rank(&s, 999, &v), -ENODATA);
	cr_assert_eq(percentile(990), 990);
	cr_assert_eq(rp_samples_add(&s, 1000), 0);
	cr_assert_eq(percentile(999), 999);
}

Test(samples, adding_after_reading)
{
	fill_samples(100);
	cr_assert_eq(percentile(1000), 100);
	cr_assert_eq(rp_samples_add(&s, 5000), 0);
	cr_assert_eq(rp_samples_add(&s, 0), 0);
	cr_assert_eq(percentile(1000), 5000);
	cr_assert_eq(percentile(0), 0);
}
