// SPDX-License-Identifier: BSD-2-Clause
/* The set-up protocol: bytes, MACs, secrets, and names of targets. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "fabtests/unit/seeded.h"
#include "setup_rig.h"

static int (*const getters[])(const void *, size_t) = {
	get_challenge, get_request, get_export, get_list, get_error,
};
#define GETTERS (sizeof(getters) / sizeof(getters[0]))

Test(setup, round_trips)
{
	static uint8_t bufs[8][4096];
	size_t lens[8], n = make_valid_messages(bufs, lens);

	cr_assert_eq(get_challenge(bufs[0], lens[0]), 0);
	cr_assert(m.challenge.secret);
	cr_assert_str_eq((char *)m.challenge.nonce, "nonce");
	cr_assert_eq(get_request(bufs[1], lens[1]), 0);
	cr_assert_eq(m.request.type, RP_SETUP_GET_EXPORT);
	cr_assert_str_eq(m.request.name, "volume one");
	cr_assert_eq(get_export(bufs[2], lens[2]), 0);
	same_export(&m.export, &pools[0]);
	cr_assert_eq(get_list(bufs[3], lens[3]), 0);
	cr_assert_eq(m.list.n, 2);
	cr_assert_eq(m.list.v[1].len, 2);
	cr_assert_eq(m.list.v[1].method, 6);
	cr_assert_str_eq(m.list.v[1].name, "name two");
	cr_assert_eq(get_error(bufs[4], lens[4]), 0);
	cr_assert_eq(m.error.code, 4);
	cr_assert_str_eq(m.error.text, "no such pool");
	cr_assert_eq(get_request(bufs[5], lens[5]), 0);
	cr_assert_eq(m.request.type, RP_SETUP_GET_LIST);
	cr_assert_eq(get_request(bufs[6], lens[6]), 0);
	cr_assert_eq(m.request.type, RP_SETUP_SET_LENGTH);
	cr_assert_str_eq(m.request.name, "volume one");
	cr_assert_eq(m.request.length, 1234567890123);
	cr_assert_eq(get_request(bufs[7], lens[7]), 0);
	cr_assert_eq(m.request.type, RP_SETUP_OPEN);
	cr_assert_str_eq(m.request.name, "volume one");
	cr_assert_eq(m.request.owner, 0xabcdef);
	cr_assert(m.request.exclusive && !m.request.again);
	/* Each decoder refuses messages of all other types. */
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < GETTERS; j++)
			cr_assert_eq(getters[j](bufs[i], lens[i]) == 0,
				     i >= 5 ? j == 1 : i == j);
}

/* The part must be one of as many as the request says that the pool has. */
Test(setup, open_names_a_part_of_as_many)
{
	static uint8_t bufs[8][4096];
	uint8_t *at;
	size_t lens[8];

	make_valid_messages(bufs, lens);
	at = bufs[7] + lens[7] - 36;
	cr_assert_arr_eq(at, "\0\0\0\0", 4);
	for (unsigned int parts = 0; parts < 40; parts++)
		for (unsigned int part = 0; part < 40; part++) {
			const bool good = parts <= 32 && part <= parts &&
					  (parts > 1) == (part > 0);

			at[0] = (uint8_t)parts;
			at[2] = (uint8_t)part;
			cr_assert_eq(get_request(bufs[7], lens[7]),
				     good ? 0 : -EBADMSG, "%u of %u", part,
				     parts);
			cr_assert(!good || (m.request.parts == parts &&
					    m.request.part == part));
		}
}

Test(setup, divide_names_an_owner_and_a_number)
{
	struct rp_setup_request r = {
		.type = RP_SETUP_DIVIDE,
		.name = "p",
		.owner = 0x1122,
	};
	uint8_t buf[256];
	int n;

	for (r.parts = 0; r.parts < 40; r.parts++) {
		n = rp_setup_put_request(buf, sizeof(buf), &r);
		cr_assert_eq(n, 16 + 32 + 3 + 8 + 4 + 32);
		cr_assert_arr_eq(buf + 51, "\x22\x11\0\0\0\0\0\0", 8);
		cr_assert_eq(buf[59], r.parts);
		cr_assert_eq(get_request(buf, (size_t)n),
			     r.parts && r.parts <= 32 ? 0 : -EBADMSG);
	}
	cr_assert(m.request.type == RP_SETUP_DIVIDE && m.request.parts == 32 &&
		  m.request.owner == 0x1122);
	memset(buf + 51, 0, 8);
	buf[59] = 2;
	cr_assert_eq(get_request(buf, (size_t)n), -EBADMSG, "no owner");
}

/* The golden bytes are the protocol: a change needs a new version. */
Test(setup, golden_bytes)
{
	static const uint8_t challenge[] = {
		'R', 'P', 'M', 'S', 3, 0, 1, 0, 56, 0, 0, 0, 0, 0,
		0,   0,	  1,   0,   0, 0, 0, 0, 0,  0, 9, 9, 9, 9,
		9,   9,	  9,   9,   9, 9, 9, 9, 9,  9, 9, 9, 9, 9,
		9,   9,	  9,   9,   9, 9, 9, 9, 9,  9, 9, 9, 9, 9,
	};
	/* HMAC-SHA256 of the golden bytes, by another implementation. */
	static const uint8_t mac[] = {
		0x85, 0x80, 0xc7, 0x05, 0x2f, 0x58, 0x66, 0xfe,
		0x6d, 0x90, 0xdd, 0xae, 0xaa, 0xf0, 0x6a, 0x70,
		0x91, 0x33, 0x6d, 0x0d, 0x6a, 0x7c, 0x38, 0x2b,
		0xa3, 0x27, 0x16, 0xcf, 0x6c, 0x42, 0xda, 0x8e,
	};
	struct rp_setup_challenge g = {.secret = true};
	struct rp_setup_request r = {
		.type = RP_SETUP_GET_EXPORT,
		.name = "p",
	};
	struct rp_setup_auth auth = {.secret = &secret};
	uint8_t buf[256];
	int n;

	memset(g.nonce, 9, sizeof(g.nonce));
	n = rp_setup_put_challenge(buf, sizeof(buf), &g);
	cr_assert_eq(n, sizeof(challenge));
	cr_assert_arr_eq(buf, challenge, sizeof(challenge));

	memset(r.nonce, 7, sizeof(r.nonce));
	n = rp_setup_put_request(buf, sizeof(buf), &r);
	cr_assert_eq(n, 16 + 32 + 3 + 32);
	cr_assert_arr_eq(buf + 48, "\1\0p", 3);
	memset(auth.daemon_nonce, 9, sizeof(auth.daemon_nonce));
	memset(auth.client_nonce, 7, sizeof(auth.client_nonce));
	rp_setup_seal(buf, (size_t)n, RP_SETUP_FROM_CLIENT, &auth);
	cr_assert_arr_eq(buf + n - 32, mac, 32);
}

Test(setup, open_needs_an_owner_and_known_flags)
{
	static uint8_t bufs[8][4096];
	size_t lens[8];

	make_valid_messages(bufs, lens);
	for (int flags = 0; flags < 64; flags++) {
		/*
		 * Taking a pool needs an exclusive owner that is new; an
		 * observer is not exclusive; a comparison needs another field.
		 */
		const bool good =
			flags < 4 || flags == 5 || flags == 8 || flags == 10;

		bufs[7][lens[7] - 40] = (uint8_t)flags;
		cr_assert_eq(get_request(bufs[7], lens[7]),
			     good ? 0 : -EBADMSG);
		cr_assert(!good || (m.request.exclusive == (flags & 1) &&
				    m.request.again == (flags >> 1 & 1) &&
				    m.request.take == (flags >> 2 & 1) &&
				    m.request.observe == flags >> 3));
	}
	bufs[7][lens[7] - 40] = 0;
	memset(bufs[7] + lens[7] - 48, 0, 8);
	cr_assert_eq(get_request(bufs[7], lens[7]), -EBADMSG);
	bufs[7][lens[7] - 48] = 1;
	cr_assert_eq(get_request(bufs[7], lens[7]), 0);
	/* Only the daemon sets the highest bit. */
	bufs[7][lens[7] - 41] = 0x80;
	cr_assert_eq(get_request(bufs[7], lens[7]), -EBADMSG);
}

/* Only a new exclusive client compares the owner, with one more field. */
Test(setup, open_compares_the_owner)
{
	struct rp_setup_request r = {
		.type = RP_SETUP_OPEN,
		.name = "p",
		.owner = 1,
		.compare = true,
		.expected = 0x1122 | RP_SETUP_SHARED,
	};
	uint8_t buf[256];
	int n;

	for (int flags = 0; flags < 16; flags++) {
		const bool good = flags == 1 || flags == 5;

		r.exclusive = flags & 1;
		r.again = flags & 2;
		r.take = flags & 4;
		r.observe = flags & 8;
		n = rp_setup_put_request(buf, sizeof(buf), &r);
		cr_assert_eq(n, 16 + 32 + 3 + 8 + 4 + 4 + 8 + 32);
		cr_assert_arr_eq(buf + 67, "\x22\x11\0\0\0\0\0\x80", 8);
		cr_assert_eq(get_request(buf, (size_t)n), good ? 0 : -EBADMSG,
			     "%d", flags);
		cr_assert(!good || (m.request.compare &&
				    m.request.expected == r.expected));
	}
}

Test(setup, no_room)
{
	static uint8_t bufs[8][4096];
	size_t lens[8];
	uint8_t small[4096];

	make_valid_messages(bufs, lens);
	for (size_t size = 0; size < lens[2]; size++) {
		small[size] = 0xab;
		cr_assert_eq(rp_setup_put_export(small, size, &pools[0]),
			     -EMSGSIZE);
		cr_assert_eq(small[size], 0xab);
	}
}

Test(setup, cut_and_stretched_messages)
{
	static uint8_t bufs[8][4096];
	uint8_t *exact;
	size_t lens[8], n = make_valid_messages(bufs, lens);

	for (size_t i = 0; i < n; i++) {
		for (size_t len = 0; len <= lens[i] + 1; len++) {
			if (len == lens[i])
				continue;
			/*
			 * Copy the bytes to the heap, so that ASan detects
			 * reads past the end.
			 */
			exact = malloc(len ? len : 1);
			memcpy(exact, bufs[i], len < lens[i] ? len : lens[i]);
			if (len > lens[i])
				exact[len - 1] = 0;
			for (size_t j = 0; j < GETTERS; j++) {
				cr_assert_eq(getters[j](exact, len), -EBADMSG);
				/*
				 * Truncate the message and put the shorter
				 * length into its header.
				 */
				if (len < RP_SETUP_HDR)
					continue;
				exact[8] = (uint8_t)len;
				exact[9] = (uint8_t)(len >> 8);
				cr_assert_eq(getters[j](exact, len), -EBADMSG,
					     "message %zu at %zu of %zu", i,
					     len, lens[i]);
			}
			free(exact);
		}
	}
}

Test(setup, reserved_fields_and_bad_names)
{
	static uint8_t bufs[8][4096];
	size_t lens[8];

	make_valid_messages(bufs, lens);
	bufs[0][20] = 1; /* reserved in CHALLENGE */
	cr_assert_eq(get_challenge(bufs[0], lens[0]), -EBADMSG);
	bufs[1][12] = 1; /* reserved in the header */
	cr_assert_eq(get_request(bufs[1], lens[1]), -EBADMSG);
	bufs[1][12] = 0;
	bufs[1][50] = '/';
	cr_assert_eq(get_request(bufs[1], lens[1]), -EBADMSG);
	bufs[1][50] = 0;
	cr_assert_eq(get_request(bufs[1], lens[1]), -EBADMSG);
	bufs[1][50] = '\n';
	cr_assert_eq(get_request(bufs[1], lens[1]), -EBADMSG);
	bufs[2][76] = 4; /* flags of EXPORT */
	cr_assert_eq(get_export(bufs[2], lens[2]), -EBADMSG);
	bufs[2][76] = 1;
	/* The file would be longer than its pool. */
	memset(bufs[2] + lens[2] - RP_SETUP_MAC - 16, 0xff, 8);
	cr_assert_eq(get_export(bufs[2], lens[2]), -EBADMSG);
	memset(bufs[2] + lens[2] - RP_SETUP_MAC - 16, 0, 8);
	memset(bufs[2] + 24, 0xff, 8); /* address, so that the pool wraps */
	cr_assert_eq(get_export(bufs[2], lens[2]), -EBADMSG);
	/* Control characters from a peer must not reach the terminal. */
	bufs[4][23] = 0x1b;
	cr_assert_eq(get_error(bufs[4], lens[4]), 0);
	cr_assert_str_eq(m.error.text, "n? such pool");
}

static bool is_plain_text(const char *s)
{
	for (; *s; s++)
		if (*s < 0x20 || *s > 0x7e)
			return false;
	return true;
}

/*
 * A peer's sentence or name is printed as printable ASCII, whatever bytes it
 * has, including C1 controls.
 */
Test(setup, text_of_a_peer_is_printable_ascii)
{
	static uint8_t bufs[8][4096];
	uint8_t *name, *why, *base, *listed;
	size_t lens[8];

	make_valid_messages(bufs, lens);
	name = memmem(bufs[2], lens[2], pools[0].name, strlen(pools[0].name));
	why = memmem(bufs[2], lens[2], pools[0].why, strlen(pools[0].why));
	base = memmem(bufs[2], lens[2], pools[0].base, strlen(pools[0].base));
	listed = memmem(bufs[3], lens[3], "name two", 8);
	cr_assert(name && why && base && listed);
	for (int c = 1; c < 256; c++) {
		bool ok = (c >= 0x20 && c < 0x7f);

		bufs[4][23] = (uint8_t)c;
		cr_assert_eq(get_error(bufs[4], lens[4]), 0);
		cr_assert(is_plain_text(m.error.text), "%#x in an error", c);
		*why = *base = (uint8_t)c;
		cr_assert_eq(get_export(bufs[2], lens[2]), 0);
		cr_assert(is_plain_text(m.export.why), "%#x in a why", c);
		cr_assert(is_plain_text(m.export.base), "%#x in a base", c);
		*listed = (uint8_t)c;
		cr_assert_eq(get_list(bufs[3], lens[3]),
			     ok && c != '/' ? 0 : -EBADMSG,
			     "%#x in a listed name", c);
		*name = (uint8_t)c;
		cr_assert_eq(get_export(bufs[2], lens[2]),
			     ok && c != '/' ? 0 : -EBADMSG, "%#x in a name", c);
		*name = (uint8_t)pools[0].name[0];
	}
}

Test(setup, names)
{
	char longest[RP_SETUP_NAME + 2];

	memset(longest, 'x', sizeof(longest));
	longest[RP_SETUP_NAME + 1] = 0;
	cr_assert_not(rp_setup_name_ok(longest));
	longest[RP_SETUP_NAME] = 0;
	cr_assert(rp_setup_name_ok(longest));
	cr_assert(rp_setup_name_ok("a b@c:d"));
	cr_assert_not(rp_setup_name_ok(""));
	cr_assert_not(rp_setup_name_ok("../x"));
	cr_assert_not(rp_setup_name_ok("a\tb"));
	cr_assert_not(rp_setup_name_ok("p\xc3\xa4rchen"));
}

Test(setup, frames)
{
	static uint8_t bufs[8][4096];
	enum rp_setup_type type;
	size_t lens[8], len = 0;

	make_valid_messages(bufs, lens);
	for (size_t have = 0; have < RP_SETUP_HDR; have++)
		cr_assert_eq(rp_setup_frame(bufs[1], have, 512, &len, &type),
			     -EAGAIN);
	cr_assert_eq(rp_setup_frame(bufs[1], RP_SETUP_HDR, 512, &len, &type),
		     0);
	cr_assert_eq(len, lens[1]);
	cr_assert_eq(type, RP_SETUP_GET_EXPORT);
	cr_assert_eq(
		rp_setup_frame(bufs[1], RP_SETUP_HDR, lens[1] - 1, &len, &type),
		-EBADMSG);
	cr_assert_eq(rp_setup_frame("S", 1, 512, &len, &type), -EBADMSG);
	bufs[1][4] = 4;
	cr_assert_eq(rp_setup_frame(bufs[1], RP_SETUP_HDR, 512, &len, &type),
		     -EPROTONOSUPPORT);
	memset(bufs[1] + 8, 0, 4);
	cr_assert_eq(rp_setup_frame(bufs[1], RP_SETUP_HDR, 512, &len, &type),
		     -EBADMSG);
}

/* Mutated valid messages: no crash, no read outside (with ASan). */
Test(setup, mutated_messages)
{
	static uint8_t bufs[8][4096];
	struct seeded s = seeded_start();
	size_t lens[8], n = make_valid_messages(bufs, lens);

	for (int round = 0; round < 20000; round++) {
		size_t i = seeded_below(&s, n), len = lens[i];
		uint8_t *exact = malloc(len);

		memcpy(exact, bufs[i], len);
		for (uint64_t k = seeded_below(&s, 4) + 1; k; k--)
			exact[seeded_below(&s, len)] = (uint8_t)seeded_next(&s);
		for (size_t j = 0; j < GETTERS; j++) {
			int ret = getters[j](exact, len);

			cr_assert(ret == 0 || ret == -EBADMSG, "seed %#jx",
				  (uintmax_t)s.seed);
		}
		free(exact);
	}
}

Test(setup, mac_covers_everything)
{
	struct rp_setup_auth auth = {.secret = &secret}, a;
	static uint8_t bufs[8][4096];
	size_t lens[8], len;
	uint8_t *b = bufs[1];

	make_valid_messages(bufs, lens);
	len = lens[1];
	rp_setup_seal(b, len, RP_SETUP_FROM_CLIENT, &auth);
	cr_assert(rp_setup_check_seal(b, len, RP_SETUP_FROM_CLIENT, &auth));
	cr_assert_not(rp_setup_check_seal(b, len, RP_SETUP_FROM_DAEMON, &auth),
		      "a message can be sent back to its sender");
	for (size_t bit = 0; bit < 8 * len; bit++) {
		b[bit / 8] ^= (uint8_t)(1 << bit % 8);
		cr_assert_not(rp_setup_check_seal(b, len, RP_SETUP_FROM_CLIENT,
						  &auth));
		b[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	a = auth;
	a.daemon_nonce[31] ^= 1;
	cr_assert_not(rp_setup_check_seal(b, len, RP_SETUP_FROM_CLIENT, &a));
	a = auth;
	a.client_nonce[0] ^= 1;
	cr_assert_not(rp_setup_check_seal(b, len, RP_SETUP_FROM_CLIENT, &a));
	a = auth;
	a.secret = &other;
	cr_assert_not(rp_setup_check_seal(b, len, RP_SETUP_FROM_CLIENT, &a));
	cr_assert_not(rp_setup_check_seal(b, 16, RP_SETUP_FROM_CLIENT, &auth));
}

/* ---------------------------------------------------------- secrets ---- */

static int load_secret(const char *bytes, size_t len, mode_t mode,
		       struct rp_secret *s)
{
	char path[] = "secret.XXXXXX";
	int fd = mkstemp(path), ret;

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, bytes, len), (ssize_t)len);
	fchmod(fd, mode);
	close(fd);
	err[0] = 0;
	ret = rp_secret_load(path, s, err);
	unlink(path);
	if (ret)
		cr_assert_not_null(strstr(err, path), "%s", err);
	return ret;
}

Test(setup, secret_files)
{
	static char big[RP_SECRET_MAX + 3];
	struct rp_secret s = {.len = 99};

	cr_assert_eq(load_secret("0123456789abcdef\r\n\n", 19, 0600, &s), 0,
		     "%s", err);
	cr_assert_eq(s.len, 16);
	cr_assert_arr_eq(s.bytes, "0123456789abcdef", 16);
	cr_assert_eq(load_secret("0123456789abcdef", 16, 0440, &s), 0, "%s",
		     err);
	s.len = 99;
	cr_assert_eq(load_secret("0123456789abcdef", 16, 0604, &s), -EPERM);
	cr_assert_not_null(strstr(err, "chmod 600"), "%s", err);
	cr_assert_eq(load_secret("0123456789abcdef", 16, 0602, &s), -EPERM);
	cr_assert_eq(load_secret("0123456789abcdef", 16, 0620, &s), -EPERM);
	cr_assert_eq(load_secret("0123456789abcde\n", 16, 0600, &s), -EINVAL);
	cr_assert_not_null(strstr(err, "head -c 32"), "%s", err);
	cr_assert_eq(load_secret("", 0, 0600, &s), -EINVAL);
	memset(big, 'x', sizeof(big));
	cr_assert_eq(load_secret(big, RP_SECRET_MAX + 1, 0600, &s), -EINVAL);
	cr_assert_eq(load_secret(big, RP_SECRET_MAX + 3, 0600, &s), -EINVAL);
	cr_assert_eq(s.len, 99, "written although refused");
	cr_assert_eq(load_secret(big, RP_SECRET_MAX, 0600, &s), 0);
	cr_assert_eq(rp_secret_load("/no/such/file", &s, err), -ENOENT);
	cr_assert_eq(rp_secret_load("/dev/null", &s, err), -EINVAL);
}

Test(setup, targets)
{
	struct rp_setup_target t = {0};

	cr_assert_eq(rp_setup_parse_target("h:pool", &t, err), 1);
	cr_assert_str_eq(t.host, "h");
	cr_assert_eq(t.port, RP_SETUP_PORT);
	cr_assert_eq(rp_setup_parse_target("h:12:pool", &t, err), 4);
	cr_assert_eq(t.port, 12);
	cr_assert_eq(rp_setup_parse_target("h:65535", &t, err), 7);
	cr_assert_eq(t.port, 65535);
	cr_assert_eq(rp_setup_parse_target("h", &t, err), 1);
	/* A pool's name may begin with digits, which are no port then. */
	cr_assert_eq(rp_setup_parse_target("h:12x", &t, err), 1);
	cr_assert_eq(t.port, RP_SETUP_PORT);
	cr_assert_eq(rp_setup_parse_target("[::1]:7:p", &t, err), 7);
	cr_assert_str_eq(t.host, "::1");
	cr_assert_eq(t.port, 7);
	cr_assert_eq(rp_setup_parse_target("", &t, err), -EINVAL);
	cr_assert_eq(rp_setup_parse_target(":p", &t, err), -EINVAL);
	cr_assert_eq(rp_setup_parse_target("[::1", &t, err), -EINVAL);
	cr_assert_eq(rp_setup_parse_target("[::1]x", &t, err), -EINVAL);
	cr_assert_eq(rp_setup_parse_target("h:0:p", &t, err), -EINVAL);
	cr_assert_eq(rp_setup_parse_target("h:65536:p", &t, err), -EINVAL);
	cr_assert_eq(rp_setup_parse_target("h:99999999999999999999:p", &t, err),
		     -EINVAL);
}
