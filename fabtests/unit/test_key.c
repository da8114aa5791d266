/* SPDX-License-Identifier: BSD-2-Clause */
/* Remote keys as programs see them: goldens, every value of each part. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/wire.h"
#include "seeded.h"

Test(key, goldens)
{
	const struct rp_key power = {
		.class = RP_CLASS_POWER,
		.method = RP_METHOD_AGENT_MSYNC,
		.port = 0xabcd,
		.random = 0x0102030405,
	};
	const struct rp_key none = {
		.class = RP_CLASS_NONE,
		.method = RP_METHOD_DELIVERY,
		.random = 1,
	};

	cr_assert_eq(rp_key_make(&power), 0xb6abcd0102030405);
	cr_assert_eq(rp_key_make(&none), 0xa100000000000001);
	cr_assert(rp_key_is_persistent(0xb6abcd0102030405));
	cr_assert_eq(rp_key_port(0xb6abcd0102030405), 0xabcd);
}

/* A key parses exactly if making it from its parts returns the same bytes. */
Test(key, first_byte_parses_as_it_is_made)
{
	for (unsigned int first = 0; first < 256; first++) {
		uint64_t key = 0x00123456789abcde | (uint64_t)first << 56;
		struct rp_key k = {.port = 99}, before = k;
		unsigned int class = first >> 3 & 3, method = first & 7;
		bool mark = first >> 5 == 5;
		bool good = mark && class <= 2 && method;

		cr_assert_eq(rp_key_is_persistent(key), mark);
		cr_assert_eq(rp_key_parse(key, &k), good ? 0 : -EINVAL,
			     "first 0x%02x", first);
		if (!good) {
			cr_assert_eq(memcmp(&k, &before, sizeof(k)), 0);
			continue;
		}
		cr_assert_eq(k.class, class);
		cr_assert_eq(k.method, method);
		cr_assert_eq(k.port, 0x1234);
		cr_assert_eq(k.random, 0x56789abcde);
		cr_assert_eq(rp_key_make(&k), key);
	}
}

Test(key, random_bits)
{
	struct seeded s = seeded_start();

	for (int i = 0; i < 10000; i++) {
		uint64_t key = (seeded_next(&s) >> 8) | 0xb6ull << 56;
		struct rp_key k;

		cr_assert_eq(rp_key_parse(key, &k), 0);
		cr_assert_eq(k.port, rp_key_port(key));
		cr_assert_eq(rp_key_make(&k), key);
	}
}
