/* SPDX-License-Identifier: BSD-2-Clause */
/* The remote keys that programs see: goldens, and every facts byte. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/wire.h"

Test(key, goldens)
{
	const struct rp_key power = {
		.base = 0x01020304,
		.random = 0xabcdef,
		.persistent = true,
		.class = RP_CLASS_POWER,
		.method = RP_METHOD_AGENT_MSYNC,
	};
	const struct rp_key plain = {.base = 7, .random = 1};

	cr_assert_eq(rp_key_make(&power), 0xabcdefe601020304);
	cr_assert_eq(rp_key_make(&plain), 0x0000018000000007);
	cr_assert(rp_key_is_persistent(rp_key_make(&power)));
	cr_assert(!rp_key_is_persistent(rp_key_make(&plain)));
	cr_assert_eq(rp_key_base(rp_key_make(&power)), 0x01020304u);
	/* Without the mark the whole value is the base's. */
	cr_assert_eq(rp_key_base(0x1234567001020304), 0x1234567001020304);
	cr_assert(!rp_key_is_persistent(RP_KEY_PERSISTENT));
}

/* Every value of the facts byte: parsed exactly when make gives it back. */
Test(key, facts)
{
	for (unsigned int facts = 0; facts < 256; facts++) {
		uint64_t key = 0x1234560089abcdef | (uint64_t)facts << 32;
		struct rp_key k = {.base = 99}, before = k;
		unsigned int class = facts >> 4 & 3, method = facts & 15;
		bool good = facts & 0x80;

		if (facts & 0x40)
			good = good && class <= 2 && method >= 1 && method <= 7;
		else
			good = good && !(facts & 0x3f);

		cr_assert_eq(rp_key_parse(key, &k), good ? 0 : -EINVAL,
			     "facts 0x%02x", facts);
		if (!good) {
			cr_assert_eq(memcmp(&k, &before, sizeof(k)), 0);
			continue;
		}
		cr_assert_eq(k.base, 0x89abcdef);
		cr_assert_eq(k.random, 0x123456);
		cr_assert_eq(k.persistent, !!(facts & 0x40));
		cr_assert_eq(k.class, class);
		cr_assert_eq(k.method, method);
		cr_assert_eq(rp_key_make(&k), key);
	}
}
