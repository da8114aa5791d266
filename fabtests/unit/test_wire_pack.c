// SPDX-License-Identifier: BSD-2-Clause
/* Packed ranges: the bytes, which ranges pack, and which are refused. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/wire_pack.h"
#include "seeded.h"

#define K      0xB60123456789ABCDull
#define MOST   RP_WIRE_MAX_PACKED
#define IN_MSG (RP_WIRE_MAX_MSG - RP_WIRE_PACKED_AT)
#define N(a)   (sizeof(a) / sizeof((a)[0]))

static struct rp_wire_range r[MOST], back[MOST];
static uint8_t buf[2 * RP_WIRE_NUMBER_MAX * MOST];

static size_t pack_ranges(size_t n, size_t size)
{
	size_t taken, len = rp_wire_pack(buf, size, r, n, &taken);

	cr_assert_leq(len, size);
	cr_assert_eq(taken, n, "%zu", taken);
	return len;
}

static void expect_round_trip(size_t n, size_t len)
{
	memset(back, 0x5a, sizeof(back));
	cr_assert_eq(rp_wire_unpack(buf, len, K, back, n), (int)len);
	cr_assert_eq(memcmp(back, r, n * sizeof(*r)), 0);
}

Test(wire_pack, golden)
{
	static const struct rp_wire_range some[] = {
		{K, 4096, 64},
		{K, 4160, 1},
		{K, 4289, 300},
		{K, 4717, 300},
		{K, 5145, 300},
		{K, 5573, 300},
		{K, 1ull << 40, 1ull << 41},
	};
	static const uint8_t want[] = {
		0x80, 0x40, 64,			    /* range (4096, 64) */
		0,    1,			    /* range right behind */
		0x80, 2,    0xac, 2,		    /* gap 128, length 300 */
		7,				    /* repeat three times */
		0x9e, 0xa4, 0xff, 0xff, 0xff, 0x3f, /* a large gap */
		0x80, 0x80, 0x80, 0x80, 0x80, 0x40, /* length 2^41 */
	};
	size_t len;

	memcpy(r, some, sizeof(some));
	len = pack_ranges(N(some), IN_MSG);
	for (size_t i = 0; i < len && i < sizeof(want); i++)
		cr_expect_eq(buf[i], want[i], "%zu: %#x", i, buf[i]);
	cr_assert_eq(len, sizeof(want), "%zu", len);
	expect_round_trip(N(some), len);
}

/* Evenly spaced ranges take a few bytes in all. */
Test(wire_pack, even_ranges_take_few_bytes)
{
	for (size_t i = 0; i < MOST; i++)
		r[i] = (struct rp_wire_range){K, 0x7f0012345000 + i * 8192,
					      4096};
	cr_assert_leq(pack_ranges(MOST, IN_MSG), 16);
	expect_round_trip(MOST, pack_ranges(MOST, IN_MSG));
	/* Random addresses: the largest number of ranges still fits. */
	for (size_t i = 0; i < MOST; i++)
		r[i].addr += i * i % 1021 * 2;
	expect_round_trip(MOST, pack_ranges(MOST, IN_MSG));
}

Test(wire_pack, random_ranges_round_trip)
{
	struct seeded s = seeded_start();

	for (int round = 0; round < 2000; round++) {
		size_t n = 1 + seeded_below(&s, 50), len, taken;
		unsigned int wide = seeded_below(&s, 56);
		uint64_t at = 0;

		for (size_t i = 0; i < n; i++) {
			bool again = i > 1 && seeded_below(&s, 2);
			uint64_t gap = seeded_next(&s) >> (63 - wide);
			uint64_t size = 1 + (seeded_next(&s) >> (63 - wide));

			if (again) {
				gap = r[i - 1].addr - r[i - 2].addr -
				      r[i - 2].len;
				size = r[i - 1].len;
			}
			r[i] = (struct rp_wire_range){K, at + gap, size};
			at += gap + size;
		}
		len = pack_ranges(n, sizeof(buf));
		expect_round_trip(n, len);
		/* A smaller buffer takes fewer ranges, each of them whole. */
		len = rp_wire_pack(buf, seeded_below(&s, (uint32_t)len + 1), r,
				   n, &taken);
		expect_round_trip(taken, len);
	}
}

/* A range that cannot be packed ends the packed ranges. */
Test(wire_pack, does_not_pack)
{
	static const struct rp_wire_range last[] = {
		{K + 1, 4096, 8},	{K, 4000, 8},
		{K, 4095 + 64, 8},	{K, 0, 8},
		{K, 8192, 0},		{K, UINT64_MAX, 2},
		{K, UINT64_MAX - 1, 1},
	};
	size_t taken;

	r[0] = (struct rp_wire_range){K, 4032, 64};
	r[1] = (struct rp_wire_range){K, 4096, 64};
	for (size_t i = 0; i < N(last); i++) {
		r[2] = last[i];
		rp_wire_pack(buf, sizeof(buf), r, 3, &taken);
		cr_assert_eq(taken, 2, "%zu: %zu", i, taken);
	}
	/* Repeated steps that would leave the address space. */
	r[0] = (struct rp_wire_range){K, 1, UINT64_MAX / 4};
	r[1] = (struct rp_wire_range){K, 2 + UINT64_MAX / 4, UINT64_MAX / 4};
	r[2] = (struct rp_wire_range){K, 3 + UINT64_MAX / 2, UINT64_MAX / 4};
	r[3] = (struct rp_wire_range){K, 4 + UINT64_MAX / 4 * 3,
				      UINT64_MAX / 4};
	rp_wire_pack(buf, sizeof(buf), r, 4, &taken);
	cr_assert_eq(taken, 3);
}

/* Ranges at the end of the address space, in just enough room. */
Test(wire_pack, ranges_end_at_the_last_address)
{
	const uint64_t half = UINT64_MAX / 2, third = UINT64_MAX / 3;
	size_t len;

	r[0] = (struct rp_wire_range){K, 0, UINT64_MAX};
	len = pack_ranges(1, 11);
	cr_assert_eq(len, 11);
	expect_round_trip(1, len);
	r[0] = (struct rp_wire_range){K, half, UINT64_MAX - half};
	expect_round_trip(1, pack_ranges(1, 20));
	r[0] = (struct rp_wire_range){K, 0, third};
	r[1] = (struct rp_wire_range){K, third, third};
	r[2] = (struct rp_wire_range){K, 2 * third, third};
	expect_round_trip(3, pack_ranges(3, IN_MSG));
}

static void expect_bad(size_t n, const void *bytes, size_t len)
{
	uint8_t *exact = malloc(len ? len : 1);

	/* Copy the bytes to the heap: ASan detects reads past the end. */
	memcpy(exact, bytes, len);
	cr_assert_eq(rp_wire_unpack(exact, len, K, back, n), -EBADMSG, "%zu",
		     len);
	free(exact);
}
#define BAD(n, bytes) expect_bad(n, bytes, sizeof(bytes) - 1)

Test(wire_pack, malformed_bytes_are_refused)
{
	size_t len;

	r[0] = (struct rp_wire_range){K, 300, 64};
	r[1] = (struct rp_wire_range){K, 400, 1000};
	r[2] = (struct rp_wire_range){K, 1 << 20, 1};
	len = pack_ranges(3, sizeof(buf));
	for (size_t cut = 0; cut < len; cut++)
		expect_bad(3, buf, cut);
	expect_bad(4, buf, len);
	BAD(1, "\2\0");	      /* empty range */
	BAD(2, "\2\1\3");     /* nothing to repeat */
	BAD(3, "\2\1\2\1\1"); /* 0 repetitions */
	BAD(3, "\2\1\2\1\5"); /* too many repetitions */
	BAD(3, "\2\1\2\1\xff\xff\xff\xff\xff\xff\xff\xff\xff\1");
	/* Numbers of more than 64 bits, and one that does not end. */
	BAD(1, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\2\1");
	BAD(1, "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\1\1");
	/* Numbers that are not in their shortest encoding. */
	BAD(1, "\x80\0\1");
	BAD(1, "\2\x81\x80\0");
	BAD(3, "\2\1\2\1\2\1");
	BAD(4, "\2\1\2\1\3\3");
	BAD(4, "\2\1\2\1\3\2\1");
	/* Ranges beyond the end of the address space. */
	BAD(1, "\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1"
	       "\xff\xff\xff\xff\xff\xff\xff\xff\xff\1");
	BAD(3, "\0\xff\xff\xff\xff\xff\xff\xff\xff\x7f"
	       "\0\xff\xff\xff\xff\xff\xff\xff\xff\x7f\3");
}

/* Bytes behind the packed ranges are left to the caller. */
Test(wire_pack, bytes_behind_the_ranges_are_left)
{
	size_t len;

	r[0] = (struct rp_wire_range){K, 300, 64};
	r[1] = (struct rp_wire_range){K, 400, 1000};
	len = pack_ranges(2, sizeof(buf));
	memset(buf + len, 0xff, 8);
	cr_assert_eq(rp_wire_unpack(buf, len + 8, K, back, 2), (int)len);
	cr_assert_eq(memcmp(back, r, 2 * sizeof(*r)), 0);
	cr_assert_lt(rp_wire_unpack(buf, len + 8, K, back, 1), (int)len);
}

/* Any bytes unpack to valid ranges, or are refused. */
Test(wire_pack, any_bytes)
{
	struct seeded s = seeded_start();
	unsigned int good = 0;

	for (int round = 0; round < 200000; round++) {
		size_t n = 1 + seeded_below(&s, 6), len = seeded_below(&s, 13);
		uint8_t again[64];
		uint64_t at = 0;
		size_t taken;

		for (size_t i = 0; i < len; i++)
			buf[i] = seeded_below(&s, 3) ? seeded_below(&s, 8)
						     : seeded_next(&s);
		int used = rp_wire_unpack(buf, len, K, back, n);

		if (used < 0)
			continue;
		cr_assert_leq((size_t)used, len);
		good++;
		cr_assert_eq(
			rp_wire_pack(again, sizeof(again), back, n, &taken),
			(size_t)used);
		cr_assert_eq(taken, n);
		cr_assert_eq(memcmp(again, buf, used), 0);
		for (size_t i = 0; i < n; i++) {
			cr_assert_eq(back[i].key, K);
			cr_assert_geq(back[i].addr, at);
			cr_assert_gt(back[i].len, 0);
			at = back[i].addr + back[i].len;
			cr_assert_gt(at, back[i].addr);
		}
	}
	cr_assert_gt(good, 100);
}
