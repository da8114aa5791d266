/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of registrations, and the check of a range. */
#include <errno.h>

#include <criterion/criterion.h>

#include "core/region.h"
#include "core/wire.h"

static char memory[1000];
/* A pointer that is never used; not NULL makes a region persistent. */
#define SOME_PMEM ((struct rp_pmem *)memory)

static uint64_t key_with(uint64_t random)
{
	const struct rp_key k = {
		.class = RP_CLASS_PROCESS,
		.method = RP_METHOD_DELIVERY,
		.port = 4321,
		.random = random,
	};

	return rp_key_make(&k);
}

Test(region, table)
{
	struct rp_regions t = {0};
	struct rp_region a = {.key = key_with(0xaaaaaaaaaa)};
	struct rp_region b = {.key = key_with(0xbbbbbbbbbb)};
	struct rp_region again = {.key = a.key};
	enum rp_status st = RP_ST_OK;

	cr_assert_null(rp_regions_find(&t, a.key, &st));
	cr_assert_eq(st, RP_ST_STALE_KEY);

	cr_assert_eq(rp_regions_add(&t, &a), 0);
	cr_assert_eq(rp_regions_add(&t, &b), 0);
	cr_assert_eq(rp_regions_add(&t, &again), -EEXIST);
	st = RP_ST_OK;
	cr_assert_eq(rp_regions_find(&t, a.key, &st), &a);
	cr_assert_eq(rp_regions_find(&t, b.key, &st), &b);
	cr_assert_eq(st, RP_ST_OK, "written on success");

	rp_regions_del(&t, &a);
	cr_assert_null(rp_regions_find(&t, a.key, &st));
	cr_assert_eq(st, RP_ST_STALE_KEY);
	cr_assert_eq(rp_regions_add(&t, &again), 0);
	cr_assert_eq(rp_regions_find(&t, again.key, &st), &again);

	rp_regions_del(&t, &again);
	rp_regions_del(&t, &b);
	cr_assert_null(t.by_key);
}

/* A key with any single bit changed is a wrong key. */
Test(region, every_bit_of_a_key)
{
	struct rp_region r = {.key = key_with(0x1234567890)};
	struct rp_regions t = {0};

	cr_assert_eq(rp_regions_add(&t, &r), 0);
	for (int bit = 0; bit < 64; bit++) {
		enum rp_status st = RP_ST_OK;

		cr_assert_null(rp_regions_find(&t, r.key ^ 1ull << bit, &st));
		cr_assert_eq(st, RP_ST_STALE_KEY, "bit %d", bit);
	}
	rp_regions_del(&t, &r);
}

Test(region, many)
{
	enum {
		N = 5000
	};
	static struct rp_region r[N];
	struct rp_regions t = {0};
	enum rp_status st;

	for (uint32_t i = 0; i < N; i++) {
		r[i].key = key_with(i * 2654435761u);
		cr_assert_eq(rp_regions_add(&t, &r[i]), 0);
	}
	for (uint32_t i = 0; i < N; i += 2)
		rp_regions_del(&t, &r[i]);
	for (uint32_t i = 0; i < N; i++)
		cr_assert_eq(rp_regions_find(&t, r[i].key, &st),
			     i % 2 ? &r[i] : NULL);
	for (uint32_t i = 1; i < N; i += 2)
		rp_regions_del(&t, &r[i]);
}

static enum rp_status check_range(const struct rp_region *r, uint64_t addr,
				  uint64_t len, bool durable,
				  enum rp_class required)
{
	uint64_t off = 12345;
	enum rp_status st =
		rp_region_check(r, addr, len, durable, required, &off);

	if (st == RP_ST_OK)
		cr_assert_eq(off, addr - r->addr);
	else
		cr_assert_eq(off, 12345, "output written on failure");
	return st;
}

Test(region, check)
{
	struct rp_region r = {
		.base = memory,
		.addr = 0x10000,
		.len = sizeof(memory),
		.choice = {.method = RP_METHOD_DELIVERY,
			   .class = RP_CLASS_PROCESS},
		.pmem = SOME_PMEM,
	};
	const enum rp_class process = RP_CLASS_PROCESS, power = RP_CLASS_POWER;

	cr_assert_eq(check_range(&r, 0x10000, 1000, true, process), RP_ST_OK);
	cr_assert_eq(check_range(&r, 0x10000 + 999, 1, true, process),
		     RP_ST_OK);
	cr_assert_eq(check_range(&r, 0x10000, 1, true, RP_CLASS_NONE),
		     RP_ST_OK);

	cr_assert_eq(check_range(&r, 0x10000, 1001, true, process),
		     RP_ST_RANGE);
	cr_assert_eq(check_range(&r, 0x10000 + 1000, 1, true, process),
		     RP_ST_RANGE);
	cr_assert_eq(check_range(&r, 0xffff, 1, true, process), RP_ST_RANGE);
	cr_assert_eq(check_range(&r, 0, 1, true, process), RP_ST_RANGE);
	cr_assert_eq(check_range(&r, 0x10000, 0, true, process), RP_ST_WRAP);
	cr_assert_eq(check_range(&r, 0x10000, UINT64_MAX, true, process),
		     RP_ST_WRAP);
	cr_assert_eq(check_range(&r, UINT64_MAX, 2, true, process), RP_ST_WRAP);

	cr_assert_eq(check_range(&r, 0x10000, 1, true, power), RP_ST_CLASS);
	cr_assert_eq(check_range(&r, 0x10000, 1, false, power), RP_ST_OK);

	r.failed = EIO;
	cr_assert_eq(check_range(&r, 0x10000, 1, true, process),
		     RP_ST_REGION_FAILED);
	/* A failed region can still be written to and read. */
	cr_assert_eq(check_range(&r, 0x10000, 1, false, process), RP_ST_OK);
	r.failed = 0;

	/*
	 * A region that has lost its method is not durable at any class, not
	 * even at class none.
	 */
	r.choice = (struct rp_choice){.method = RP_METHOD_REFUSED};
	cr_assert_eq(check_range(&r, 0x10000, 1, true, RP_CLASS_NONE),
		     RP_ST_NO_METHOD);
	cr_assert_eq(check_range(&r, 0x10000, 1, true, process), RP_ST_CLASS);
	cr_assert_eq(check_range(&r, 0x10000, 1, false, process), RP_ST_OK);

	/* Volatile memory can be requested as visible, not as durable. */
	r.pmem = NULL;
	cr_assert_eq(check_range(&r, 0x10000, 1, true, process),
		     RP_ST_VOLATILE);
	cr_assert_eq(check_range(&r, 0x10000, 1, false, process), RP_ST_OK);
	cr_assert_eq(check_range(&r, 0, 1, false, process), RP_ST_RANGE);
}

/* A region with addr 0: addresses of ranges are offsets. */
Test(region, check_offset)
{
	struct rp_region r = {
		.base = memory,
		.len = sizeof(memory),
		.choice = {.method = RP_METHOD_AGENT_MSYNC,
			   .class = RP_CLASS_POWER},
		.pmem = SOME_PMEM,
	};

	cr_assert_eq(check_range(&r, 0, 1000, true, RP_CLASS_POWER), RP_ST_OK);
	cr_assert_eq(check_range(&r, 1, 1000, true, RP_CLASS_POWER),
		     RP_ST_RANGE);
	cr_assert_eq(
		check_range(&r, (uintptr_t)memory, 1, true, RP_CLASS_POWER),
		RP_ST_RANGE);
}
