/* SPDX-License-Identifier: BSD-2-Clause */
/* Range sets compared with a map that has an entry for each byte. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/ranges.h"
#include "seeded.h"

/* Wrapped by the linker (realloc): allocations fail when the test wants it. */
static bool no_memory;
void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size)
{
	return no_memory ? NULL : __real_realloc(p, size);
}

/* Check the invariants of ranges.h. */
static void check_shape(const struct rp_ranges *r, uint64_t seed)
{
	size_t spaces = 0;

	for (size_t i = 0; i < r->n; i++) {
		const struct rp_range *x = &r->v[i], *p = x - 1;
		bool first = !i || p->space != x->space;

		spaces += first;
		cr_assert_lt(x->start, x->end, "seed %" PRIu64, seed);
		if (i)
			cr_assert(p->space < x->space ||
					  (!first && p->end < x->start),
				  "seed %" PRIu64, seed);
	}
	cr_assert(!r->max || r->n <= r->max || r->n == spaces, "seed %" PRIu64,
		  seed);
}

#define SPACES 3
#define BYTES  96

/* By byte: the newest stamp with which it was inserted; 0: not in the set. */
struct model {
	uint64_t stamp[SPACES][BYTES];
};

/* The stamp of the range that contains the byte; 0: no range does. */
static uint64_t stamp_at(const struct rp_ranges *r, uint64_t space, uint64_t at)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->v[i].space == space && r->v[i].start <= at &&
		    at < r->v[i].end)
			return r->v[i].stamp;
	return 0;
}

static void check_model(const struct rp_ranges *r, const struct model *m,
			uint64_t seed)
{
	for (int s = 0; s < SPACES; s++) {
		for (int b = 0; b < BYTES; b++) {
			uint64_t got = stamp_at(r, s, b);

			/*
			 * The set has all bytes of the model, with no older
			 * stamp. Unless it has overflowed, it has no other
			 * bytes.
			 */
			cr_assert_geq(got, m->stamp[s][b],
				      "seed %" PRIu64 ": byte %d:%d", seed, s,
				      b);
			if (!r->overflowed)
				cr_assert_eq(!got, !m->stamp[s][b],
					     "seed %" PRIu64 ": byte %d:%d",
					     seed, s, b);
			cr_assert_eq(rp_ranges_overlap(r, s, b, 1), !!got,
				     "seed %" PRIu64, seed);
		}
	}
}

static void run_model(size_t max)
{
	struct seeded s = seeded_start();

	for (int round = 0; round < 150; round++) {
		struct model m = {0};
		struct rp_ranges r;

		rp_ranges_init(&r, max);
		for (int step = 1; step <= 60; step++) {
			uint64_t space = seeded_below(&s, SPACES);
			uint64_t start = seeded_below(&s, BYTES);
			uint64_t len = seeded_below(&s, 13);
			uint64_t stamp = seeded_below(&s, 40) + 1;
			bool hit = false, want = false;

			if (len > BYTES - start)
				len = BYTES - start;
			switch (seeded_below(&s, 3)) {
			case 0:
				cr_assert_eq(rp_ranges_insert(&r, space, start,
							      len, stamp),
					     0);
				for (uint64_t b = start; b < start + len; b++)
					if (m.stamp[space][b] < stamp)
						m.stamp[space][b] = stamp;
				break;
			case 1:
				cr_assert_eq(rp_ranges_clear(&r, space, start,
							     len, stamp),
					     0);
				/*
				 * A byte may be kept with its neighbour's
				 * stamp; then the model takes that stamp from
				 * the set. This test checks that a newer stamp
				 * is kept; the clear_* tests check that older
				 * ones go.
				 */
				for (uint64_t b = start; b < start + len; b++) {
					uint64_t had = m.stamp[space][b];

					if (had >= stamp)
						continue;
					if (!stamp_at(&r, space, b))
						m.stamp[space][b] = 0;
					else if (had && !r.overflowed)
						cr_assert_geq(
							stamp_at(&r, space, b),
							stamp, "seed %" PRIu64,
							s.seed);
				}
				break;
			default:
				for (uint64_t b = start; b < start + len; b++)
					want |= !!m.stamp[space][b];
				hit = rp_ranges_overlap(&r, space, start, len);
				cr_assert(hit || !want, "seed %" PRIu64,
					  s.seed);
				if (!r.overflowed)
					cr_assert_eq(hit, want, "seed %" PRIu64,
						     s.seed);
			}
			check_shape(&r, s.seed);
			check_model(&r, &m, s.seed);
		}
		rp_ranges_fini(&r);
	}
}

Test(ranges, model_unbounded)
{
	run_model(0);
}

Test(ranges, model_bounded)
{
	run_model(4);
}

Test(ranges, model_smaller_than_spaces)
{
	run_model(2);
}

static void expect_ranges(const struct rp_ranges *r, size_t n,
			  const struct rp_range *want)
{
	cr_assert_eq(r->n, n, "%zu ranges, not %zu", r->n, n);
	for (size_t i = 0; i < n; i++)
		cr_assert_eq(memcmp(&r->v[i], &want[i], sizeof(*want)), 0,
			     "range %zu: %" PRIu64 " [%" PRIu64 ", %" PRIu64
			     ") stamp %" PRIu64,
			     i, r->v[i].space, r->v[i].start, r->v[i].end,
			     r->v[i].stamp);
}
#define EXPECT(r, ...)                                                         \
	do {                                                                   \
		const struct rp_range w[] = {__VA_ARGS__};                     \
		expect_ranges(r, sizeof(w) / sizeof(w[0]), w);                 \
	} while (0)

Test(ranges, merges_what_touches)
{
	struct rp_ranges r;

	rp_ranges_init(&r, 0);
	cr_assert_eq(rp_ranges_insert(&r, 1, 10, 10, 5), 0);
	cr_assert_eq(rp_ranges_insert(&r, 1, 30, 10, 6), 0);
	cr_assert_eq(rp_ranges_insert(&r, 2, 20, 10, 7), 0);
	EXPECT(&r, {1, 10, 20, 5}, {1, 30, 40, 6}, {2, 20, 30, 7});
	/* Ranges are merged only with neighbours in the same space. */
	cr_assert_eq(rp_ranges_insert(&r, 1, 20, 10, 4), 0);
	EXPECT(&r, {1, 10, 40, 6}, {2, 20, 30, 7});
	cr_assert_eq(rp_ranges_insert(&r, 1, 15, 0, 99), 0);
	EXPECT(&r, {1, 10, 40, 6}, {2, 20, 30, 7});
	rp_ranges_reset(&r);
	cr_assert_eq(r.n, 0);
	cr_assert(!rp_ranges_overlap(&r, 1, 0, 100));
	rp_ranges_fini(&r);
}

Test(ranges, clear_splits_and_keeps_newer)
{
	struct rp_ranges r;

	rp_ranges_init(&r, 0);
	rp_ranges_insert(&r, 1, 0, 100, 5);
	cr_assert_eq(rp_ranges_clear(&r, 1, 40, 20, 5), 0);
	EXPECT(&r, {1, 0, 100, 5});
	cr_assert_eq(rp_ranges_clear(&r, 1, 40, 20, 6), 0);
	EXPECT(&r, {1, 0, 40, 5}, {1, 60, 100, 5});
	cr_assert_eq(rp_ranges_clear(&r, 1, 30, 40, 6), 0);
	EXPECT(&r, {1, 0, 30, 5}, {1, 70, 100, 5});
	cr_assert_eq(rp_ranges_clear(&r, 2, 0, 100, 6), 0);
	EXPECT(&r, {1, 0, 30, 5}, {1, 70, 100, 5});
	cr_assert_eq(rp_ranges_clear(&r, 1, 0, 100, 6), 0);
	cr_assert_eq(r.n, 0);
	rp_ranges_fini(&r);
}

/* Clear several ranges with different stamps at once. */
Test(ranges, clear_passes_over_newer)
{
	struct rp_ranges r;

	rp_ranges_init(&r, 0);
	rp_ranges_insert(&r, 1, 0, 10, 1);
	rp_ranges_insert(&r, 1, 20, 10, 9);
	rp_ranges_insert(&r, 1, 40, 10, 2);
	cr_assert_eq(rp_ranges_clear(&r, 1, 5, 40, 5), 0);
	EXPECT(&r, {1, 0, 5, 1}, {1, 20, 30, 9}, {1, 45, 50, 2});
	rp_ranges_fini(&r);
}

Test(ranges, overlap_ends)
{
	struct rp_ranges r;

	rp_ranges_init(&r, 0);
	rp_ranges_insert(&r, 1, 10, 10, 1);
	cr_assert(!rp_ranges_overlap(&r, 1, 0, 10));
	cr_assert(rp_ranges_overlap(&r, 1, 0, 11));
	cr_assert(rp_ranges_overlap(&r, 1, 19, 1));
	cr_assert(!rp_ranges_overlap(&r, 1, 20, 10));
	cr_assert(!rp_ranges_overlap(&r, 1, 12, 0));
	cr_assert(!rp_ranges_overlap(&r, 0, 0, 100));
	cr_assert(!rp_ranges_overlap(&r, 2, 0, 100));
	rp_ranges_fini(&r);
}

Test(ranges, wrapping)
{
	struct rp_ranges r;

	rp_ranges_init(&r, 0);
	cr_assert_eq(rp_ranges_insert(&r, 1, UINT64_MAX - 9, 9, 1), 0);
	EXPECT(&r, {1, UINT64_MAX - 9, UINT64_MAX, 1});
	cr_assert_eq(rp_ranges_insert(&r, 1, UINT64_MAX - 9, 11, 1),
		     -EOVERFLOW);
	cr_assert_eq(rp_ranges_insert(&r, 1, UINT64_MAX, 1, 1), -EOVERFLOW);
	cr_assert_eq(rp_ranges_insert(&r, 1, 1, UINT64_MAX, 1), -EOVERFLOW);
	EXPECT(&r, {1, UINT64_MAX - 9, UINT64_MAX, 1});
	/* An invalid range counts as overlapping. */
	cr_assert(rp_ranges_overlap(&r, 7, UINT64_MAX, 2));
	cr_assert_eq(rp_ranges_clear(&r, 1, 1, UINT64_MAX, 9), -EOVERFLOW);
	EXPECT(&r, {1, UINT64_MAX - 9, UINT64_MAX, 1});
	rp_ranges_fini(&r);
}

Test(ranges, overflow_covers_more)
{
	struct rp_ranges r;

	rp_ranges_init(&r, 3);
	rp_ranges_insert(&r, 1, 0, 1, 1);
	rp_ranges_insert(&r, 2, 0, 1, 2);
	rp_ranges_insert(&r, 2, 10, 1, 9);
	cr_assert(!r.overflowed);
	rp_ranges_insert(&r, 2, 20, 1, 4);
	cr_assert(r.overflowed);
	EXPECT(&r, {1, 0, 1, 1}, {2, 0, 21, 9});
	/* The result is the newest stamp of this space, not of others. */
	rp_ranges_reset(&r);
	rp_ranges_insert(&r, 1, 0, 1, 1);
	rp_ranges_insert(&r, 1, 10, 1, 2);
	rp_ranges_insert(&r, 1, 20, 1, 1);
	rp_ranges_insert(&r, 2, 0, 1, 9);
	EXPECT(&r, {1, 0, 21, 2}, {2, 0, 1, 9});
	/* With more spaces than ranges allowed, each keeps one range. */
	rp_ranges_reset(&r);
	for (int i = 0; i < 4; i++)
		rp_ranges_insert(&r, i, 5, 5, 1);
	cr_assert_eq(r.n, 4);
	cr_assert(!r.overflowed);
	rp_ranges_reset(&r);
	rp_ranges_insert(&r, 1, 0, 1, 1);
	rp_ranges_insert(&r, 2, 0, 1, 1);
	for (int i = 3; i < 8; i++)
		rp_ranges_insert(&r, i, 5, 5, 1);
	cr_assert_eq(r.n, 7);
	rp_ranges_reset(&r);
	cr_assert(!r.overflowed);
	/* In a full set, a clear that has to split a range removes nothing. */
	rp_ranges_insert(&r, 1, 0, 10, 1);
	rp_ranges_insert(&r, 1, 20, 10, 1);
	rp_ranges_insert(&r, 1, 40, 10, 1);
	cr_assert(!r.overflowed);
	cr_assert_eq(rp_ranges_clear(&r, 1, 22, 2, 9), 0);
	cr_assert(r.overflowed);
	EXPECT(&r, {1, 0, 10, 1}, {1, 20, 30, 1}, {1, 40, 50, 1});
	/* A clear without a split still succeeds. */
	cr_assert_eq(rp_ranges_clear(&r, 1, 20, 2, 9), 0);
	EXPECT(&r, {1, 0, 10, 1}, {1, 22, 30, 1}, {1, 40, 50, 1});
	rp_ranges_fini(&r);
}

Test(ranges, no_memory)
{
	struct rp_ranges r;
	int n = 0;

	rp_ranges_init(&r, 0);
	no_memory = true;
	cr_assert_eq(rp_ranges_insert(&r, 1, 0, 1, 1), -ENOMEM);
	cr_assert_eq(r.n, 0);
	no_memory = false;
	cr_assert_eq(rp_ranges_insert(&r, 1, 0, 100, 1), 0);
	for (n = 1; r.n < r.cap; n++)
		cr_assert_eq(rp_ranges_insert(&r, 1, 1000 * n, 1, 1), 0);

	no_memory = true;
	cr_assert_eq(rp_ranges_insert(&r, 1, 1000 * n, 1, 1), -ENOMEM);
	cr_assert_eq(rp_ranges_clear(&r, 1, 10, 10, 9), -ENOMEM);
	/* Merging allocates nothing, so no range is lost. */
	cr_assert(rp_ranges_overlap(&r, 1, 10, 10));
	for (int i = 1; i < n; i++)
		cr_assert(rp_ranges_overlap(&r, 1, 1000 * i, 1));
	cr_assert_eq(rp_ranges_insert(&r, 1, 0, 1000 * n, 1), 0);
	cr_assert_eq(r.n, 1);
	no_memory = false;
	rp_ranges_fini(&r);
}

Test(ranges, inside)
{
	const uint64_t max = UINT64_MAX;

	cr_assert(rp_range_inside(100, 50, 100, 50));
	cr_assert(rp_range_inside(149, 1, 100, 50));
	cr_assert(!rp_range_inside(99, 1, 100, 50));
	cr_assert(!rp_range_inside(99, 2, 100, 50));
	cr_assert(!rp_range_inside(150, 1, 100, 50));
	cr_assert(!rp_range_inside(100, 51, 100, 50));
	cr_assert(!rp_range_inside(149, 2, 100, 50));
	cr_assert(!rp_range_inside(120, 0, 100, 50));
	cr_assert(!rp_range_inside(0, 1, 0, 0));
	cr_assert(rp_range_inside(0, max, 0, max));
	cr_assert(!rp_range_inside(1, max, 0, max));
	cr_assert(!rp_range_inside(120, max, 100, 50));
	cr_assert(!rp_range_inside(120, max - 119, 100, 50));
	cr_assert(!rp_range_inside(max, 2, 100, 50));
	cr_assert(!rp_range_inside(max - 1, 1, max - 2, 4));
	cr_assert(rp_range_inside(max - 1, 1, max - 2, 2));
}

Test(ranges, round)
{
	uint64_t s = 100, e = 4097;

	rp_range_round(&s, &e, 64);
	cr_assert(s == 64 && e == 4160);
	rp_range_round(&s, &e, 64);
	cr_assert(s == 64 && e == 4160);
	rp_range_round(&s, &e, 4096);
	cr_assert(s == 0 && e == 8192);
	s = 8193;
	rp_range_round(&s, &e, 64);
	cr_assert(s == 8192 && e == 8192);
	s = 0;
	rp_range_round(&s, &e, 1);
	cr_assert(s == 0 && e == 8192);
	s = UINT64_MAX - 5;
	e = UINT64_MAX - 2;
	rp_range_round(&s, &e, 64);
	cr_assert(s == UINT64_MAX - 63 && e == UINT64_MAX);
	e = UINT64_MAX - 63;
	rp_range_round(&s, &e, 64);
	cr_assert(e == UINT64_MAX - 63, "the last end that does not wrap");
}
