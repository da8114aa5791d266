// SPDX-License-Identifier: BSD-2-Clause
/* Secrets, pools and messages for the tests of the set-up protocol. */
#include "config.h"

#include <string.h>

#include <criterion/criterion.h>

#include "setup_rig.h"

char err[RP_ERR_LEN];

const struct rp_secret secret = {
	.bytes = "0123456789abcdef0123456789abcdef",
	.len = 32,
};
const struct rp_secret other = {
	.bytes = "0123456789abcdef0123456789abcdeg",
	.len = 32,
};

const struct rp_setup_export pools[2] = {
	{
		.key = 0x1122334455667788,
		.addr = 0x10000,
		.len = 1ull << 40,
		.incarnation = 77,
		.generation = 5,
		.uuid = "0123456789abcde",
		.control = 1,
		.class = 2,
		.method = 6,
		.was_clean = true,
		.name = "volume one",
		.base = "tcp",
		.fi_name = {1, 2, 3, 0, 5},
		.fi_name_len = 5,
		.why = "page cache of ext4",
		.length = 300000,
		.owner = 0x123456789,
	},
	{.len = 1, .name = "b", .base = "tcp", .read_only = true},
};

void same_export(const struct rp_setup_export *a,
		 const struct rp_setup_export *b)
{
	cr_assert_eq(a->key, b->key);
	cr_assert_eq(a->addr, b->addr);
	cr_assert_eq(a->len, b->len);
	cr_assert_eq(a->incarnation, b->incarnation);
	cr_assert_eq(a->generation, b->generation);
	cr_assert_arr_eq(a->uuid, b->uuid, 16);
	cr_assert_eq(a->control, b->control);
	cr_assert_eq(a->class, b->class);
	cr_assert_eq(a->method, b->method);
	cr_assert_eq(a->was_clean, b->was_clean);
	cr_assert_eq(a->read_only, b->read_only);
	cr_assert_str_eq(a->name, b->name);
	cr_assert_str_eq(a->base, b->base);
	cr_assert_eq(a->fi_name_len, b->fi_name_len);
	cr_assert_arr_eq(a->fi_name, b->fi_name, a->fi_name_len);
	cr_assert_str_eq(a->why, b->why);
	cr_assert_eq(a->length, b->length);
	cr_assert_eq(a->owner, b->owner);
}

union any_message m;

int get_challenge(const void *buf, size_t len)
{
	return rp_setup_get_challenge(buf, len, &m.challenge);
}

int get_request(const void *buf, size_t len)
{
	return rp_setup_get_request(buf, len, &m.request);
}

int get_export(const void *buf, size_t len)
{
	return rp_setup_get_export(buf, len, &m.export);
}

int get_list(const void *buf, size_t len)
{
	return rp_setup_get_list(buf, len, &m.list);
}

int get_error(const void *buf, size_t len)
{
	return rp_setup_get_error(buf, len, &m.error);
}

size_t make_valid_messages(uint8_t bufs[8][4096], size_t *lens)
{
	struct rp_setup_challenge g = {.secret = true, .nonce = "nonce"};
	struct rp_setup_request r = {
		.type = RP_SETUP_GET_EXPORT,
		.nonce = "mine",
		.name = "volume one",
	};
	struct rp_setup_request l = {.type = RP_SETUP_GET_LIST};
	struct rp_setup_request set = {
		.type = RP_SETUP_SET_LENGTH,
		.name = "volume one",
		.length = 1234567890123,
	};
	struct rp_setup_request open = {
		.type = RP_SETUP_OPEN,
		.name = "volume one",
		.owner = 0xabcdef,
		.exclusive = true,
		.take = true,
	};
	struct rp_setup_error e = {.code = 4, .text = "no such pool"};
	struct rp_setup_list list = {.n = 2};
	size_t n = 0;

	list.v[0].len = 1;
	strcpy(list.v[0].name, "a");
	list.v[1].len = 2;
	list.v[1].method = 6;
	strcpy(list.v[1].name, "name two");
	lens[n] = (size_t)rp_setup_put_challenge(bufs[n], 4096, &g);
	n++;
	lens[n] = (size_t)rp_setup_put_request(bufs[n], 4096, &r);
	n++;
	lens[n] = (size_t)rp_setup_put_export(bufs[n], 4096, &pools[0]);
	n++;
	lens[n] = (size_t)rp_setup_put_list(bufs[n], 4096, &list);
	n++;
	lens[n] = (size_t)rp_setup_put_error(bufs[n], 4096, &e);
	n++;
	lens[n] = (size_t)rp_setup_put_request(bufs[n], 4096, &l);
	n++;
	lens[n] = (size_t)rp_setup_put_request(bufs[n], 4096, &set);
	n++;
	lens[n] = (size_t)rp_setup_put_request(bufs[n], 4096, &open);
	n++;
	for (size_t i = 0; i < n; i++)
		cr_assert_leq(lens[i], 4096);
	return n;
}
