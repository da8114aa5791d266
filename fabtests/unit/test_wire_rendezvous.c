// SPDX-License-Identifier: BSD-2-Clause
/* Messages of the preload library: golden bytes, ports, refusals. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/wire_rendezvous.h"

static const struct rp_rendezvous call = {
	.type = RP_RENDEZVOUS_LOOKUP,
	.to = 0xabcdef,
	.from = 0x112233,
	.to_gid = {[10] = 0xff, 0xff, 10, 9, 0, 1},
	.from_gid = {[10] = 0xff, 0xff, 10, 9, 0, 2},
	.side = {.qp_num = 0x112233, .initiator = 5, .target = 6, .psn = 7},
};
static const struct rp_rendezvous desc_of = {
	.type = RP_RENDEZVOUS_DESC,
	.rkey = 0xc1b2a312,
	.desc = {.addr = 0x1000,
		 .length = 1,
		 .rkey = 0xc1b2a312,
		 .qp_num = 0xabcdef,
		 .region = RP_DESC_READ},
};

static const uint8_t call_golden[RP_RENDEZVOUS_LEN] = {
	0x52, 0x50, 0x02, 0x2a, 0x80, 0x00, 0x00, 0x00, /* header */
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* rkey */
	0xef, 0xcd, 0xab, 0x00, 0x33, 0x22, 0x11, 0x00, /* QPs: to, from */
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* GID of to */
	0x00, 0x00, 0xff, 0xff, 0x0a, 0x09, 0x00, 0x01, /* */
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* GID of from */
	0x00, 0x00, 0xff, 0xff, 0x0a, 0x09, 0x00, 0x02, /* */
	0x52, 0x50, 0x02, 0x29, 0x40, 0x00, 0x00, 0x00, /* side address */
	0x33, 0x22, 0x11, 0x00, 0x05, 0x00, 0x00, 0x00, /* */
	0x06, 0x00, 0x00, 0x00, 0x07, 0x00, 0x00, 0x00, /* */
};

/* Decode the message with one changed byte and a valid checksum. */
static int get_with(const struct rp_rendezvous *m, size_t at, uint8_t byte)
{
	struct rp_rendezvous got = {.rkey = 99};
	uint8_t buf[RP_RENDEZVOUS_LEN];
	uint32_t crc;
	int ret;

	cr_assert_eq(rp_rendezvous_put(buf, m), 0);
	buf[at] ^= byte;
	crc = rp_crc32(buf, RP_RENDEZVOUS_LEN - 4);
	for (int i = 0; i < 4; i++)
		buf[RP_RENDEZVOUS_LEN - 4 + i] = (uint8_t)(crc >> 8 * i);
	ret = rp_rendezvous_get(buf, &got);
	cr_assert(!ret || got.rkey == 99, "byte %zu", at);
	return ret;
}

Test(wire_rendezvous, golden)
{
	uint8_t buf[RP_RENDEZVOUS_LEN];
	struct rp_rendezvous m;

	cr_assert_eq(rp_rendezvous_put(buf, &call), 0);
	/* The side address inside has its own checksum. */
	cr_assert_eq(memcmp(buf, call_golden, 116), 0);
	for (size_t i = 120; i < RP_RENDEZVOUS_LEN - 4; i++)
		cr_assert_eq(buf[i], 0, "byte %zu", i);
	cr_assert_eq(rp_rendezvous_get(buf, &m), 0);
	cr_assert_eq(m.type, RP_RENDEZVOUS_LOOKUP);
	cr_assert_eq(m.to, call.to);
	cr_assert_eq(m.from, call.from);
	cr_assert_eq(m.side.qp_num, call.side.qp_num);
	cr_assert_eq(m.side.initiator, call.side.initiator);
	cr_assert_eq(m.side.target, call.side.target);
	cr_assert_eq(m.side.psn, call.side.psn);
	cr_assert_eq(m.side.ring, 0);
	cr_assert_eq(m.side.ring_rkey, 0);
	cr_assert_eq(m.side.replies, 0);
	cr_assert_eq(memcmp(m.to_gid, call.to_gid, RP_GID_LEN), 0);
	cr_assert_eq(memcmp(m.from_gid, call.from_gid, RP_GID_LEN), 0);

	cr_assert_eq(rp_rendezvous_put(buf, &desc_of), 0);
	cr_assert_eq(buf[3], 46);
	cr_assert_eq(memcmp(buf + 12, "\x12\xa3\xb2\xc1", 4), 0);
	cr_assert_eq(memcmp(buf + 56, "RP\2\50", 4), 0);
	cr_assert_eq(rp_rendezvous_get(buf, &m), 0);
	cr_assert_eq(m.desc.addr, 0x1000);
}

/* Each flipped bit is refused, even with a valid checksum. */
Test(wire_rendezvous, each_flipped_bit_is_refused)
{
	const struct rp_rendezvous plain[] = {
		{.type = RP_RENDEZVOUS_NOT_FOUND},
		{.type = RP_RENDEZVOUS_QUERY, .rkey = 7},
		{.type = RP_RENDEZVOUS_RECALL, .rkey = 7},
		{.type = RP_RENDEZVOUS_RELEASED, .rkey = 7},
		{.type = RP_RENDEZVOUS_LEAVE},
	};
	uint8_t buf[RP_RENDEZVOUS_LEN];
	struct rp_rendezvous m;

	for (size_t i = 0; i < RP_RENDEZVOUS_LEN; i++) {
		cr_assert_eq(rp_rendezvous_put(buf, &desc_of), 0);
		buf[i] ^= 1;
		cr_assert_eq(rp_rendezvous_get(buf, &m), -EBADMSG, "byte %zu",
			     i);
	}
	for (size_t n = 0; n < sizeof(plain) / sizeof(plain[0]); n++)
		for (size_t i = 16; i < RP_RENDEZVOUS_LEN - 4; i++)
			cr_assert_eq(get_with(&plain[n], i, 1), -EBADMSG,
				     "type %d, byte %zu", (int)plain[n].type,
				     i);
	cr_assert_eq(get_with(&plain[0], 12, 1), -EBADMSG, "an rkey");
	cr_assert_eq(get_with(&plain[4], 12, 1), -EBADMSG, "an rkey");
	cr_assert_eq(get_with(&plain[0], 8, 1), -EBADMSG, "reserved");
	cr_assert_eq(get_with(&plain[4], 3, 49 ^ 50), -EBADMSG, "type 50");
	cr_assert_eq(get_with(&plain[4], 3, 49 ^ 41), -EBADMSG, "type 41");
	cr_assert_eq(get_with(&call, 23, 1), -EBADMSG, "25 bits");
	cr_assert_eq(get_with(&call, 19, 1), -EBADMSG, "25 bits");
	cr_assert_eq(get_with(&call, 20, 1), -EBADMSG, "another's side");
	cr_assert_eq(get_with(&call, 12, 1), -EBADMSG, "an rkey in LOOKUP");
	cr_assert_eq(get_with(&call, 90, 1), -EBADMSG, "behind the side");
	cr_assert_eq(get_with(&desc_of, 12, 1), -EBADMSG, "another region");
	cr_assert_eq(get_with(&desc_of, 16, 1), -EBADMSG, "a number in DESC");
	cr_assert_eq(get_with(&desc_of, 2, 1), -EPROTONOSUPPORT);
}

static void set_crc(uint8_t *p, size_t len)
{
	const uint32_t crc = rp_crc32(p, len - 4);

	for (int i = 0; i < 4; i++)
		p[len - 4 + i] = (uint8_t)(crc >> 8 * i);
}

/* The version of the side address inside is checked, too. */
Test(wire_rendezvous, side_of_another_version)
{
	uint8_t buf[RP_RENDEZVOUS_LEN];
	struct rp_rendezvous m;

	cr_assert_eq(rp_rendezvous_put(buf, &call), 0);
	buf[56 + 2]++;
	set_crc(buf + 56, RP_SIDE_ADDR_LEN);
	set_crc(buf, sizeof(buf));
	cr_assert_eq(rp_rendezvous_get(buf, &m), -EPROTONOSUPPORT);
}

Test(wire_rendezvous, nothing_else_is_written)
{
	uint8_t buf[RP_RENDEZVOUS_LEN];
	struct rp_rendezvous m = call;

	m.type = 0;
	cr_assert_eq(rp_rendezvous_put(buf, &m), -EINVAL);
	m.type = RP_RENDEZVOUS_LEAVE + 1;
	cr_assert_eq(rp_rendezvous_put(buf, &m), -EINVAL);
	m = call;
	m.to = 1u << 24;
	cr_assert_eq(rp_rendezvous_put(buf, &m), -EINVAL);
	m = call;
	m.from++;
	cr_assert_eq(rp_rendezvous_put(buf, &m), -EINVAL);
	m = desc_of;
	m.rkey++;
	cr_assert_eq(rp_rendezvous_put(buf, &m), -EINVAL);
}

/* Each number has eight different ports, none of them in common use. */
Test(wire_rendezvous, ports)
{
	cr_assert_eq(rp_rendezvous_port(17, 0), 30746);
	cr_assert_eq(rp_rendezvous_port(17, 1), 30511);
	for (uint32_t n = 0; n < 1u << 16; n++)
		for (unsigned int i = 0; i < RP_RENDEZVOUS_TRIES; i++) {
			cr_assert(rp_rendezvous_port(n, i) >= 28672 &&
				  rp_rendezvous_port(n, i) < 32768);
			for (unsigned int k = 0; k < i; k++)
				cr_assert_neq(rp_rendezvous_port(n, i),
					      rp_rendezvous_port(n, k));
		}
}
