// SPDX-License-Identifier: BSD-2-Clause
/* Descriptors and side addresses: golden bytes, and all refusals. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/wire_desc.h"
#include "seeded.h"

static const struct rp_desc example = {
	.addr = 0x7f0000001000,
	.length = 0x1112131415161718,
	.rkey = 0xc1b2a312,
	.qp_num = 0xefabcd,
	.memory = RP_MEM_DAX_SYNC,
	.placement = RP_PLACE_CPU_KERNEL,
	.domain = RP_DOMAIN_MEMCTRL,
	.fence = RP_NO,
	.fs_trusted = RP_YES,
	.limit = RP_LIMIT_PROCESS,
	.region = RP_DESC_ALL,
	.qp = RP_DESC_PERSISTENT | RP_DESC_READ | RP_DESC_WRITE,
	.native = RP_DESC_NATIVE,
	/* key: DAX, class power, method agent-clwb, port 0x3334. */
	.key = 0xb53334c5c1b2a312,
};

static const uint8_t golden[RP_DESC_LEN] = {
	0x52, 0x50, 0x02, 0x28, 0x40, 0x00, 0x00, 0x00, /* header */
	0x00, 0x10, 0x00, 0x00, 0x00, 0x7f, 0x00, 0x00, /* addr */
	0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, /* length */
	0x12, 0xa3, 0xb2, 0xc1, 0xcd, 0xab, 0xef, 0x00, /* rkey, qp_num */
	0x06, 0x02, 0x02, 0x01, 0x02, 0x01, 0x00, 0x00, /* facts */
	0x1f, 0x00, 0x0e, 0x00, 0x13, 0x00, 0x00, 0x00, /* rights */
	0x12, 0xa3, 0xb2, 0xc1, 0xc5, 0x34, 0x33, 0xb5, /* key */
	0x00, 0x00, 0x00, 0x00, 0x0c, 0x79, 0x8d, 0xb7, /* CRC-32 */
};

static const struct rp_side_addr side = {
	.qp_num = 0xefabcd,
	.initiator = 0x11,
	.target = 0xfffffe,
	.psn = 0x123456,
	.ring = 0x8877665544332211,
	.ring_rkey = 0xc1b2a312,
	.replies_rkey = 0xc2b3a413,
	.replies = 0x7867564534231201,
};
static const uint8_t side_golden[RP_SIDE_ADDR_LEN] = {
	0x52, 0x50, 0x02, 0x29, 0x40, 0x00, 0x00, 0x00, /* header */
	0xcd, 0xab, 0xef, 0x00, 0x11, 0x00, 0x00, 0x00, /* qp_num, initiator */
	0xfe, 0xff, 0xff, 0x00, 0x56, 0x34, 0x12, 0x00, /* target, psn */
	0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, /* request ring */
	0x12, 0xa3, 0xb2, 0xc1, 0x13, 0xa4, 0xb3, 0xc2, /* rkeys of rings */
	0x01, 0x12, 0x23, 0x34, 0x45, 0x56, 0x67, 0x78, /* reply ring */
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* */
	0x00, 0x00, 0x00, 0x00, 0xb1, 0xe7, 0x3b, 0xec, /* CRC-32 */
};

/* Seal by CRC-32 bit by bit from its definition, unlike the code. */
static void set_crc_slowly(uint8_t *p, unsigned int n)
{
	uint32_t rest = 0;

	for (unsigned int i = 0; i < n * 8 + 32; i++) {
		uint32_t bit = i < n * 8 ? p[i / 8] >> i % 8 & 1 : 0;

		/* The first 32 bits are inverted, and so is the result. */
		bit ^= i < 32;
		rest = (rest & 0x80000000 ? 0x04c11db7 : 0) ^ (rest << 1 | bit);
	}
	for (unsigned int i = 0; i < 4; i++) {
		p[n + i] = 0;
		for (unsigned int b = 0; b < 8; b++)
			p[n + i] |= (~rest >> (31 - 8 * i - b) & 1) << b;
	}
}

static void set_checksum(uint8_t *p)
{
	set_crc_slowly(p, RP_DESC_LEN - 4);
}

static void expect_same(const struct rp_desc *a, const struct rp_desc *b)
{
	uint8_t x[RP_DESC_LEN], y[RP_DESC_LEN];

	cr_assert_eq(rp_desc_put(x, a), 0);
	cr_assert_eq(rp_desc_put(y, b), 0);
	cr_assert_eq(memcmp(x, y, RP_DESC_LEN), 0);
}

Test(wire_desc, goldens)
{
	uint8_t buf[RP_DESC_LEN];
	struct rp_desc d;

	memset(buf, 0xee, sizeof(buf));
	cr_assert_eq(rp_desc_put(buf, &example), 0);
	cr_assert_eq(memcmp(buf, golden, RP_DESC_LEN), 0);
	cr_assert_eq(rp_desc_get(golden, &d), 0);
	cr_assert_eq(d.addr, example.addr);
	cr_assert_eq(d.length, example.length);
	cr_assert_eq(d.rkey, example.rkey);
	cr_assert_eq(d.qp_num, example.qp_num);
	cr_assert_eq(d.memory, example.memory);
	cr_assert_eq(d.placement, example.placement);
	cr_assert_eq(d.domain, example.domain);
	cr_assert_eq(d.fence, example.fence);
	cr_assert_eq(d.fs_trusted, example.fs_trusted);
	cr_assert_eq(d.limit, example.limit);
	cr_assert_eq(d.region, example.region);
	cr_assert_eq(d.qp, example.qp);
	cr_assert_eq(d.native, example.native);
	cr_assert_eq(d.key, example.key);
	set_checksum(buf);
	cr_assert_eq(memcmp(buf, golden, RP_DESC_LEN), 0, "the test's own CRC");
}

/* Each flipped bit is noticed, and the output stays unwritten. */
Test(wire_desc, every_bit)
{
	for (unsigned int i = 0; i < RP_DESC_LEN * 8; i++) {
		struct rp_desc d = {.rkey = 99};
		uint8_t buf[RP_DESC_LEN];

		memcpy(buf, golden, sizeof(buf));
		buf[i / 8] ^= 1u << i % 8;
		cr_assert_eq(rp_desc_get(buf, &d), -EBADMSG, "bit %u", i);
		cr_assert_eq(d.rkey, 99u);
	}
}

/* Every field is checked even if the checksum is valid. */
Test(wire_desc, fields)
{
	static const struct {
		unsigned int at;
		uint8_t most; /* greatest valid value of the byte */
	} bytes[] = {{0, 0x52},	 {1, 0x50},  {3, 40},
		     {4, 64},	 {5, 0},     {6, 0},
		     {7, 0},	 {31, 0},    {32, RP_MEM_EMULATED},
		     {33, 4},	 {34, 4},    {35, 2},
		     {36, 2},	 {37, 2},    {38, 0},
		     {39, 0},	 {40, 0x1f}, {41, 0},
		     {42, 0x1f}, {43, 0},    {44, 0x13},
		     {45, 0},	 {46, 0},    {47, 0},
		     {56, 0},	 {57, 0},    {58, 0},
		     {59, 0}};
	struct rp_desc d;

	for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
		uint8_t buf[RP_DESC_LEN];

		memcpy(buf, golden, sizeof(buf));
		buf[bytes[i].at] = bytes[i].most;
		set_checksum(buf);
		cr_assert_eq(rp_desc_get(buf, &d), 0, "byte %u", bytes[i].at);
		buf[bytes[i].at]++;
		set_checksum(buf);
		cr_assert_eq(rp_desc_get(buf, &d), -EBADMSG, "byte %u",
			     bytes[i].at);
	}
}

Test(wire_desc, native_is_no_read)
{
	struct rp_desc d = example;
	uint8_t buf[RP_DESC_LEN];

	d.native = RP_DESC_READ;
	cr_assert_eq(rp_desc_put(buf, &d), -EINVAL);
	d.native = RP_DESC_WRITE;
	cr_assert_eq(rp_desc_put(buf, &d), -EINVAL);
}

Test(wire_desc, another_version)
{
	uint8_t buf[RP_DESC_LEN];
	struct rp_desc d;

	memcpy(buf, golden, sizeof(buf));
	buf[2] = RP_WIRE_VERSION + 1;
	set_checksum(buf);
	cr_assert_eq(rp_desc_get(buf, &d), -EPROTONOSUPPORT);
}

Test(wire_desc, empty_and_wrapping)
{
	struct rp_desc d = example;
	uint8_t buf[RP_DESC_LEN];

	d.length = 0;
	cr_assert_eq(rp_desc_put(buf, &d), -EINVAL);
	d.addr = UINT64_MAX - 4;
	d.length = 5;
	cr_assert_eq(rp_desc_put(buf, &d), -EINVAL);
	d.length = 4;
	d.qp_num = 1u << 24;
	cr_assert_eq(rp_desc_put(buf, &d), -EINVAL);
	d.qp_num--;
	cr_assert_eq(rp_desc_put(buf, &d), 0);
	buf[16] = 5;
	set_checksum(buf);
	cr_assert_eq(rp_desc_get(buf, &d), -EBADMSG);
}

Test(wire_desc, round_trips)
{
	struct seeded s = seeded_start();

	for (int i = 0; i < 20000; i++) {
		struct rp_desc d = {
			.addr = seeded_next(&s) >> seeded_below(&s, 64),
			.length = 1 + seeded_below(&s, 1u << 30),
			.rkey = (uint32_t)seeded_next(&s),
			.qp_num = (uint32_t)seeded_below(&s, 1u << 24),
			.memory = seeded_below(&s, RP_MEM_EMULATED + 1),
			.placement = seeded_below(&s, RP_PLACE_DMA_MEMORY + 1),
			.domain = seeded_below(&s, RP_DOMAIN_SYSTEM + 1),
			.fence = seeded_below(&s, RP_YES + 1),
			.fs_trusted = seeded_below(&s, RP_YES + 1),
			.limit = seeded_below(&s, RP_LIMIT_NONE + 1),
			.region = (uint16_t)seeded_below(&s, 32),
			.qp = (uint16_t)seeded_below(&s, 32),
			.native = seeded_next(&s) & RP_DESC_NATIVE,
		};
		const struct rp_key k = {
			.port = (uint16_t)seeded_next(&s),
			.random = seeded_below(&s, 1ull << RP_KEY_RANDOM_BITS),
			.class = seeded_below(&s, RP_CLASS_POWER + 1),
			.method = 1 + seeded_below(&s, RP_METHOD_MAX - 1),
		};
		uint8_t buf[RP_DESC_LEN];
		struct rp_desc e;

		if (seeded_below(&s, 2))
			d.key = rp_key_make(&k);

		if (d.addr > UINT64_MAX - d.length)
			continue;
		cr_assert_eq(rp_desc_put(buf, &d), 0, "seed %llu",
			     (unsigned long long)s.seed);
		cr_assert_eq(rp_desc_get(buf, &e), 0, "seed %llu",
			     (unsigned long long)s.seed);
		expect_same(&d, &e);
	}
}

/* A key is 0 (no agent) or the key of a persistent region. */
Test(wire_desc, keys)
{
	struct rp_desc d = example;
	uint8_t buf[RP_DESC_LEN];

	d.key = 0;
	cr_assert_eq(rp_desc_put(buf, &d), 0);
	d.key = example.key ^ 1ull << 63;
	cr_assert_eq(rp_desc_put(buf, &d), -EINVAL);
	d.key = RP_KEY_MARK;
	cr_assert_eq(rp_desc_put(buf, &d), -EINVAL);
	memcpy(buf, golden, sizeof(buf));
	buf[55] ^= 0x80;
	set_checksum(buf);
	cr_assert_eq(rp_desc_get(buf, &d), -EBADMSG);
}

Test(wire_desc, sides)
{
	uint8_t buf[RP_SIDE_ADDR_LEN];
	struct rp_side_addr s;

	memset(buf, 0xee, sizeof(buf));
	cr_assert_eq(rp_side_addr_put(buf, &side), 0);
	cr_assert_eq(memcmp(buf, side_golden, RP_SIDE_ADDR_LEN), 0);
	cr_assert_eq(rp_side_addr_get(buf, &s), 0);
	cr_assert(s.qp_num == side.qp_num && s.initiator == side.initiator &&
		  s.target == side.target && s.psn == side.psn &&
		  s.ring == side.ring && s.ring_rkey == side.ring_rkey &&
		  s.replies == side.replies &&
		  s.replies_rkey == side.replies_rkey);
	for (unsigned int i = 0; i < RP_SIDE_ADDR_LEN * 8; i++) {
		memcpy(buf, side_golden, sizeof(buf));
		buf[i / 8] ^= 1u << i % 8;
		s.psn = 99;
		cr_assert_eq(rp_side_addr_get(buf, &s), -EBADMSG, "bit %u", i);
		cr_assert_eq(s.psn, 99u);
		/* Reserved bytes must be 0 even with a valid checksum. */
		if (i / 8 >= RP_SIDE_ADDR_LEN - 4 ||
		    (i / 8 >= 8 && i / 8 < 24 && i / 8 % 4 != 3) ||
		    (i / 8 >= 24 && i / 8 < 48))
			continue;
		set_crc_slowly(buf, RP_SIDE_ADDR_LEN - 4);
		cr_assert_eq(rp_side_addr_get(buf, &s),
			     i / 8 == 2 ? -EPROTONOSUPPORT : -EBADMSG, "bit %u",
			     i);
	}
	for (int i = 0; i < 4; i++) {
		s = side;
		*(i < 2	   ? i ? &s.qp_num : &s.initiator
		  : i == 2 ? &s.target
			   : &s.psn) = 1u << 24;
		cr_assert_eq(rp_side_addr_put(buf, &s), -EINVAL);
	}
	/* A request ring without an agent; an rkey without a ring. */
	s = side;
	s.target = 0;
	cr_assert_eq(rp_side_addr_put(buf, &s), -EINVAL);
	s = side;
	s.ring = 0;
	cr_assert_eq(rp_side_addr_put(buf, &s), -EINVAL);
	s.ring_rkey = 0;
	cr_assert_eq(rp_side_addr_put(buf, &s), 0);
	/* A reply ring without an initiator; an rkey without a ring. */
	s = side;
	s.initiator = 0;
	cr_assert_eq(rp_side_addr_put(buf, &s), -EINVAL);
	s = side;
	s.replies = 0;
	cr_assert_eq(rp_side_addr_put(buf, &s), -EINVAL);
	s.replies_rkey = 0;
	cr_assert_eq(rp_side_addr_put(buf, &s), 0);
}
