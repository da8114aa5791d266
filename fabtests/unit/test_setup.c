// SPDX-License-Identifier: BSD-2-Clause
/* Set-up: bytes, secrets, and clients that lie, dawdle or play back. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "fabtests/unit/seeded.h"
#include "util/setup_client.h"
#include "util/setup_server.h"

static char err[RP_ERR_LEN];

static const struct rp_secret secret = {
	.bytes = "0123456789abcdef0123456789abcdef",
	.len = 32,
};
static const struct rp_secret other = {
	.bytes = "0123456789abcdef0123456789abcdeg",
	.len = 32,
};

static const struct rp_setup_export pools[] = {
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
	},
	{.len = 1, .name = "b", .base = "tcp", .fi_name_len = 0},
};

static void same_export(const struct rp_setup_export *a,
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
	cr_assert_str_eq(a->name, b->name);
	cr_assert_str_eq(a->base, b->base);
	cr_assert_eq(a->fi_name_len, b->fi_name_len);
	cr_assert_arr_eq(a->fi_name, b->fi_name, a->fi_name_len);
	cr_assert_str_eq(a->why, b->why);
}

/* ------------------------------------------------------------ bytes ---- */

static union {
	struct rp_setup_greeting greeting;
	struct rp_setup_request request;
	struct rp_setup_export export;
	struct rp_setup_list list;
	struct rp_setup_error error;
} m;

static int get_greeting(const void *buf, size_t len)
{
	return rp_setup_get_greeting(buf, len, &m.greeting);
}

static int get_request(const void *buf, size_t len)
{
	return rp_setup_get_request(buf, len, &m.request);
}

static int get_export(const void *buf, size_t len)
{
	return rp_setup_get_export(buf, len, &m.export);
}

static int get_list(const void *buf, size_t len)
{
	return rp_setup_get_list(buf, len, &m.list);
}

static int get_error(const void *buf, size_t len)
{
	return rp_setup_get_error(buf, len, &m.error);
}

static int (*const getters[])(const void *, size_t) = {
	get_greeting, get_request, get_export, get_list, get_error,
};
#define GETTERS (sizeof(getters) / sizeof(getters[0]))

/* One valid message of each kind; returns how many. */
static size_t valid(uint8_t bufs[8][4096], size_t *lens)
{
	struct rp_setup_greeting g = {.secret = true, .nonce = "nonce"};
	struct rp_setup_request r = {
		.type = RP_SETUP_GET_EXPORT,
		.nonce = "mine",
		.name = "volume one",
	};
	struct rp_setup_request l = {.type = RP_SETUP_GET_LIST};
	struct rp_setup_error e = {.code = 4, .text = "no such pool"};
	struct rp_setup_list list = {.n = 2};
	size_t n = 0;

	list.v[0].len = 1;
	strcpy(list.v[0].name, "a");
	list.v[1].len = 2;
	list.v[1].method = 6;
	strcpy(list.v[1].name, "name two");
	lens[n] = (size_t)rp_setup_put_greeting(bufs[n], 4096, &g);
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
	for (size_t i = 0; i < n; i++)
		cr_assert_leq(lens[i], 4096);
	return n;
}

Test(setup, round_trips)
{
	static uint8_t bufs[8][4096];
	size_t lens[8], n = valid(bufs, lens);

	cr_assert_eq(get_greeting(bufs[0], lens[0]), 0);
	cr_assert(m.greeting.secret);
	cr_assert_str_eq((char *)m.greeting.nonce, "nonce");
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
	/* And nobody reads what was meant for another. */
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < GETTERS; j++)
			cr_assert_eq(getters[j](bufs[i], lens[i]) == 0,
				     i == 5 ? j == 1 : i == j);
}

/* These bytes are the protocol: a change here is a new version. */
Test(setup, golden)
{
	static const uint8_t greeting[] = {
		'R', 'P', 'M', 'S', 1, 0, 1, 0, 56, 0, 0, 0, 0, 0,
		0,   0,	  1,   0,   0, 0, 0, 0, 0,  0, 9, 9, 9, 9,
		9,   9,	  9,   9,   9, 9, 9, 9, 9,  9, 9, 9, 9, 9,
		9,   9,	  9,   9,   9, 9, 9, 9, 9,  9, 9, 9, 9, 9,
	};
	/* HMAC-SHA256 computed by another implementation. */
	static const uint8_t mac[] = {
		0xa8, 0x53, 0x90, 0xdc, 0xd5, 0x12, 0xd3, 0x2b,
		0xcd, 0x34, 0xe2, 0x9e, 0xd1, 0x8b, 0x62, 0x4e,
		0x13, 0xea, 0xbe, 0xb4, 0x0c, 0xaf, 0x52, 0x79,
		0x34, 0xf6, 0xdc, 0x17, 0xed, 0xee, 0x9e, 0xe0,
	};
	struct rp_setup_greeting g = {.secret = true};
	struct rp_setup_request r = {
		.type = RP_SETUP_GET_EXPORT,
		.name = "p",
	};
	struct rp_setup_auth auth = {.secret = &secret};
	uint8_t buf[256];
	int n;

	memset(g.nonce, 9, sizeof(g.nonce));
	n = rp_setup_put_greeting(buf, sizeof(buf), &g);
	cr_assert_eq(n, sizeof(greeting));
	cr_assert_arr_eq(buf, greeting, sizeof(greeting));

	memset(r.nonce, 7, sizeof(r.nonce));
	n = rp_setup_put_request(buf, sizeof(buf), &r);
	cr_assert_eq(n, 16 + 32 + 3 + 32);
	cr_assert_arr_eq(buf + 48, "\1\0p", 3);
	memset(auth.daemon_nonce, 9, sizeof(auth.daemon_nonce));
	memset(auth.client_nonce, 7, sizeof(auth.client_nonce));
	rp_setup_seal(buf, (size_t)n, RP_SETUP_FROM_CLIENT, &auth);
	cr_assert_arr_eq(buf + n - 32, mac, 32);
}

Test(setup, no_room)
{
	static uint8_t bufs[8][4096];
	size_t lens[8];
	uint8_t small[4096];

	valid(bufs, lens);
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
	size_t lens[8], n = valid(bufs, lens);

	for (size_t i = 0; i < n; i++) {
		for (size_t len = 0; len <= lens[i] + 1; len++) {
			if (len == lens[i])
				continue;
			/* Exactly so large: a sanitizer sees one byte more. */
			exact = malloc(len ? len : 1);
			memcpy(exact, bufs[i], len < lens[i] ? len : lens[i]);
			if (len > lens[i])
				exact[len - 1] = 0;
			for (size_t j = 0; j < GETTERS; j++) {
				cr_assert_eq(getters[j](exact, len), -EBADMSG);
				/* Also when its header agrees. */
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

	valid(bufs, lens);
	bufs[0][20] = 1; /* reserved in GREETING */
	cr_assert_eq(get_greeting(bufs[0], lens[0]), -EBADMSG);
	bufs[1][12] = 1; /* reserved in the header */
	cr_assert_eq(get_request(bufs[1], lens[1]), -EBADMSG);
	bufs[1][12] = 0;
	bufs[1][50] = '/';
	cr_assert_eq(get_request(bufs[1], lens[1]), -EBADMSG);
	bufs[1][50] = 0;
	cr_assert_eq(get_request(bufs[1], lens[1]), -EBADMSG);
	bufs[1][50] = '\n';
	cr_assert_eq(get_request(bufs[1], lens[1]), -EBADMSG);
	bufs[2][76] = 2; /* flags of EXPORT */
	cr_assert_eq(get_export(bufs[2], lens[2]), -EBADMSG);
	bufs[2][76] = 1;
	memset(bufs[2] + 24, 0xff, 8); /* address: the pool wraps */
	cr_assert_eq(get_export(bufs[2], lens[2]), -EBADMSG);
	/* A terminal is not at the mercy of who sends. */
	bufs[4][23] = 0x1b;
	cr_assert_eq(get_error(bufs[4], lens[4]), 0);
	cr_assert_str_eq(m.error.text, "n? such pool");
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
}

Test(setup, frames)
{
	static uint8_t bufs[8][4096];
	enum rp_setup_type type;
	size_t lens[8], len = 0;

	valid(bufs, lens);
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
	bufs[1][4] = 2;
	cr_assert_eq(rp_setup_frame(bufs[1], RP_SETUP_HDR, 512, &len, &type),
		     -EPROTONOSUPPORT);
	memset(bufs[1] + 8, 0, 4);
	cr_assert_eq(rp_setup_frame(bufs[1], RP_SETUP_HDR, 512, &len, &type),
		     -EBADMSG);
}

/* Garbage near valid messages: no crash, no read outside (with ASan). */
Test(setup, mutated_messages)
{
	static uint8_t bufs[8][4096];
	struct seeded s = seeded_start();
	size_t lens[8], n = valid(bufs, lens);

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

	valid(bufs, lens);
	len = lens[1];
	rp_setup_seal(b, len, RP_SETUP_FROM_CLIENT, &auth);
	cr_assert(rp_setup_sealed(b, len, RP_SETUP_FROM_CLIENT, &auth));
	cr_assert_not(rp_setup_sealed(b, len, RP_SETUP_FROM_DAEMON, &auth),
		      "a message can be sent back to its sender");
	for (size_t bit = 0; bit < 8 * len; bit++) {
		b[bit / 8] ^= (uint8_t)(1 << bit % 8);
		cr_assert_not(
			rp_setup_sealed(b, len, RP_SETUP_FROM_CLIENT, &auth));
		b[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	a = auth;
	a.daemon_nonce[31] ^= 1;
	cr_assert_not(rp_setup_sealed(b, len, RP_SETUP_FROM_CLIENT, &a));
	a = auth;
	a.client_nonce[0] ^= 1;
	cr_assert_not(rp_setup_sealed(b, len, RP_SETUP_FROM_CLIENT, &a));
	a = auth;
	a.secret = &other;
	cr_assert_not(rp_setup_sealed(b, len, RP_SETUP_FROM_CLIENT, &a));
	cr_assert_not(rp_setup_sealed(b, 16, RP_SETUP_FROM_CLIENT, &auth));
}

/* ---------------------------------------------------------- secrets ---- */

static int load(const char *bytes, size_t len, mode_t mode, struct rp_secret *s)
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

	cr_assert_eq(load("0123456789abcdef\r\n\n", 19, 0600, &s), 0, "%s",
		     err);
	cr_assert_eq(s.len, 16);
	cr_assert_arr_eq(s.bytes, "0123456789abcdef", 16);
	cr_assert_eq(load("0123456789abcdef", 16, 0440, &s), 0, "%s", err);
	s.len = 99;
	cr_assert_eq(load("0123456789abcdef", 16, 0604, &s), -EPERM);
	cr_assert_not_null(strstr(err, "chmod 600"), "%s", err);
	cr_assert_eq(load("0123456789abcdef", 16, 0602, &s), -EPERM);
	cr_assert_eq(load("0123456789abcdef", 16, 0620, &s), -EPERM);
	cr_assert_eq(load("0123456789abcde\n", 16, 0600, &s), -EINVAL);
	cr_assert_not_null(strstr(err, "head -c 32"), "%s", err);
	cr_assert_eq(load("", 0, 0600, &s), -EINVAL);
	memset(big, 'x', sizeof(big));
	cr_assert_eq(load(big, RP_SECRET_MAX + 1, 0600, &s), -EINVAL);
	cr_assert_eq(load(big, RP_SECRET_MAX + 3, 0600, &s), -EINVAL);
	cr_assert_eq(s.len, 99, "written although refused");
	cr_assert_eq(load(big, RP_SECRET_MAX, 0600, &s), 0);
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
	/* A pool may begin with digits. */
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

/* ---------------------------------------------------------- sockets ---- */

static atomic_bool stop;
static atomic_uint refusals, wakeups;
static pthread_t thread;
static struct rp_setup_server *server;
static struct rp_setup_target target;

static void refused(const char *peer)
{
	cr_assert_str_eq(peer, "127.0.0.1");
	atomic_fetch_add(&refusals, 1);
}

static void *serve(void *arg)
{
	struct pollfd pfd = {
		.fd = rp_setup_server_fd(server),
		.events = POLLIN,
	};

	while (!atomic_load(&stop)) {
		int ms = rp_setup_server_timeout(server);

		poll(&pfd, 1, ms < 0 || ms > 20 ? 20 : ms);
		if (pfd.revents)
			atomic_fetch_add(&wakeups, 1);
		rp_setup_server_run(server);
	}
	return NULL;
}

static void start(const struct rp_secret *s, unsigned int max_conns,
		  unsigned int timeout_ms)
{
	struct rp_setup_server_attr attr = {
		.secret = s,
		.exports = pools,
		.nexports = 2,
		.max_conns = max_conns,
		.timeout_ms = timeout_ms,
		.refused = refused,
	};

	cr_assert_eq(rp_setup_server_new(&attr, &server, err), 0, "%s", err);
	strcpy(target.host, "127.0.0.1");
	target.port = rp_setup_server_port(server);
	target.secret = s;
	target.timeout_ms = 3000;
	atomic_store(&stop, false);
	cr_assert_eq(pthread_create(&thread, NULL, serve, NULL), 0);
}

static void finish(void)
{
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	rp_setup_server_delete(server);
}

static int fetch(void)
{
	err[0] = 0;
	return rp_setup_fetch_export(&target, "volume one", &m.export, err);
}

static int dial(void)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET,
		.sin_port = htons(target.port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	struct timeval patience = {.tv_sec = 10};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	cr_assert_eq(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

/* All that comes until the other end closes. */
static size_t drain(int fd, uint8_t *buf, size_t size)
{
	size_t len = 0;
	ssize_t n;

	while (len < size && (n = recv(fd, buf + len, size - len, 0)) > 0)
		len += (size_t)n;
	return len;
}

static void expect_error(int fd, enum rp_setup_code code)
{
	uint8_t buf[4096];
	size_t len = drain(fd, buf, sizeof(buf));

	cr_assert_eq(get_error(buf, len), 0, "%zu bytes", len);
	cr_assert_eq(m.error.code, code, "%s", m.error.text);
}

static void greeted(int fd, struct rp_setup_greeting *g)
{
	uint8_t buf[56];

	cr_assert_eq(recv(fd, buf, sizeof(buf), MSG_WAITALL), 56);
	cr_assert_eq(rp_setup_get_greeting(buf, sizeof(buf), g), 0);
}

static void two_answers(void)
{
	struct rp_setup_list list;

	cr_assert_eq(fetch(), 0, "%s", err);
	same_export(&m.export, &pools[0]);
	cr_assert_eq(rp_setup_fetch_list(&target, &list, err), 0, "%s", err);
	cr_assert_eq(list.n, 2);
	cr_assert_str_eq(list.v[0].name, "volume one");
	cr_assert_eq(list.v[0].len, 1ull << 40);
	cr_assert_str_eq(list.v[1].name, "b");
}

Test(setup, answers_without_secret, .timeout = 60)
{
	start(NULL, 0, 0);
	two_answers();
	target.secret = &secret;
	cr_assert_eq(fetch(), -EACCES);
	cr_assert_not_null(strstr(err, "does not ask"), "%s", err);
	finish();
}

Test(setup, answers_with_secret, .timeout = 60)
{
	start(&secret, 0, 0);
	two_answers();
	cr_assert_eq(atomic_load(&refusals), 0);
	target.secret = NULL;
	cr_assert_eq(fetch(), -EACCES);
	cr_assert_not_null(strstr(err, "--secret FILE"), "%s", err);
	target.secret = &other;
	cr_assert_eq(fetch(), -EACCES);
	cr_assert_not_null(strstr(err, "not the daemon's"), "%s", err);
	cr_assert_null(strstr(err, "volume"), "a stranger learned a name");
	/* An unknown pool is no better known to a stranger. */
	cr_assert_eq(rp_setup_fetch_export(&target, "x", &m.export, err),
		     -EACCES);
	finish();
	cr_assert_eq(atomic_load(&refusals), 1, "one a second");
}

Test(setup, unknown_pool_names_the_known, .timeout = 60)
{
	start(&secret, 0, 0);
	cr_assert_eq(rp_setup_fetch_export(&target, "vol", &m.export, err),
		     -ENOENT);
	cr_assert_not_null(strstr(err, "'vol'"), "%s", err);
	cr_assert_not_null(strstr(err, "'volume one', 'b'"), "%s", err);
	cr_assert_eq(rp_setup_fetch_export(&target, "/dev/x", &m.export, err),
		     -EINVAL);
	finish();
}

/* A request that was good once is worth nothing on another connection. */
Test(setup, replay, .timeout = 60)
{
	struct rp_setup_auth auth = {.secret = &secret};
	struct rp_setup_request r = {
		.type = RP_SETUP_GET_EXPORT,
		.name = "b",
	};
	struct rp_setup_greeting g, again;
	uint8_t req[256], buf[4096];
	int fd, len;

	start(&secret, 0, 0);
	fd = dial();
	greeted(fd, &g);
	len = rp_setup_put_request(req, sizeof(req), &r);
	memcpy(auth.daemon_nonce, g.nonce, sizeof(g.nonce));
	rp_setup_seal(req, (size_t)len, RP_SETUP_FROM_CLIENT, &auth);
	cr_assert_eq(send(fd, req, (size_t)len, 0), len);
	cr_assert_eq(get_export(buf, drain(fd, buf, sizeof(buf))), 0);
	cr_assert_str_eq(m.export.name, "b");
	close(fd);

	fd = dial();
	greeted(fd, &again);
	cr_assert_neq(memcmp(again.nonce, g.nonce, sizeof(g.nonce)), 0);
	cr_assert_eq(send(fd, req, (size_t)len, 0), len);
	expect_error(fd, RP_SETUP_E_SECRET);
	close(fd);
	finish();
}

Test(setup, bad_requests, .timeout = 60)
{
	static uint8_t bufs[8][4096];
	struct rp_setup_greeting g;
	size_t lens[8];
	int fd;

	valid(bufs, lens);
	start(NULL, 0, 0);
	/* Longer than any request. */
	fd = dial();
	greeted(fd, &g);
	bufs[1][9] = 0x10;
	cr_assert_gt(send(fd, bufs[1], lens[1], 0), 0);
	expect_error(fd, RP_SETUP_E_REQUEST);
	close(fd);
	bufs[1][9] = 0;
	/* Another version. */
	fd = dial();
	greeted(fd, &g);
	bufs[1][4] = 9;
	cr_assert_gt(send(fd, bufs[1], lens[1], 0), 0);
	expect_error(fd, RP_SETUP_E_VERSION);
	close(fd);
	/* Not for the daemon. */
	fd = dial();
	greeted(fd, &g);
	cr_assert_gt(send(fd, bufs[4], lens[4], 0), 0);
	expect_error(fd, RP_SETUP_E_REQUEST);
	close(fd);
	/* Not of this protocol at all, and a lot of it. */
	fd = dial();
	greeted(fd, &g);
	memset(bufs[0], 'x', 4096);
	for (int i = 0; i < 20; i++)
		if (send(fd, bufs[0], 4096, MSG_NOSIGNAL) < 0)
			break;
	expect_error(fd, RP_SETUP_E_REQUEST);
	close(fd);
	cr_assert_eq(fetch(), 0, "others are served: %s", err);
	finish();
}

/* Byte by byte is slow, not wrong. */
Test(setup, slow_client, .timeout = 60)
{
	static uint8_t bufs[8][4096];
	struct rp_setup_greeting g;
	uint8_t buf[4096];
	size_t lens[8];
	int fd;

	valid(bufs, lens);
	start(NULL, 0, 0);
	fd = dial();
	greeted(fd, &g);
	for (size_t i = 0; i < lens[1]; i++) {
		cr_assert_eq(send(fd, bufs[1] + i, 1, 0), 1);
		usleep(1000);
	}
	cr_assert_eq(get_export(buf, drain(fd, buf, sizeof(buf))), 0);
	close(fd);
	finish();
}

/* More half messages than there are places: an honest client gets through. */
Test(setup, half_messages_block_nobody, .timeout = 60)
{
	static uint8_t bufs[8][4096];
	struct timespec a, b;
	size_t lens[8];
	int fds[12];

	valid(bufs, lens);
	start(NULL, 4, 1000);
	for (int i = 0; i < 12; i++) {
		fds[i] = dial();
		cr_assert_eq(send(fds[i], bufs[1], 20, MSG_NOSIGNAL), 20);
	}
	clock_gettime(CLOCK_MONOTONIC, &a);
	cr_assert_eq(fetch(), 0, "%s", err);
	clock_gettime(CLOCK_MONOTONIC, &b);
	cr_assert_lt((b.tv_sec - a.tv_sec) * 1000 +
			     (b.tv_nsec - a.tv_nsec) / 1000000,
		     500, "it waited for the others");
	/* And all of them are cut off, by number or by time. */
	for (int i = 0; i < 12; i++) {
		uint8_t buf[256];

		cr_assert_leq(drain(fds[i], buf, sizeof(buf)), 56);
		close(fds[i]);
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	cr_assert_lt(b.tv_sec - a.tv_sec, 5);
	finish();
}

Test(setup, sleeps_when_idle, .timeout = 60)
{
	int fd;
	unsigned int before;

	start(NULL, 0, 0);
	fd = dial();
	cr_assert_eq(send(fd, "RPMS", 4, 0), 4);
	usleep(100000);
	before = atomic_load(&wakeups);
	usleep(300000);
	cr_assert_leq(atomic_load(&wakeups) - before, 1,
		      "woken by a client that says nothing");
	close(fd);
	usleep(100000);
	finish();
}

Test(setup, port_in_use, .timeout = 60)
{
	struct rp_setup_server_attr attr = {.exports = pools, .nexports = 2};
	struct rp_setup_server *twin;

	start(NULL, 0, 0);
	attr.port = target.port;
	cr_assert_eq(rp_setup_server_new(&attr, &twin, err), -EADDRINUSE);
	cr_assert_not_null(strstr(err, "--port"), "%s", err);
	finish();
	attr.addr = "192.0.2.1";
	cr_assert_eq(rp_setup_server_new(&attr, &twin, err), -EADDRNOTAVAIL);
	attr.addr = "no such host.";
	cr_assert_eq(rp_setup_server_new(&attr, &twin, err), -EINVAL);
}

/* Somebody who is not the daemon: says `bytes`, then waits for the end. */
struct impostor {
	int listener;
	const void *hello, *answer;
	size_t hello_len, answer_len;
};

static void *impostor_run(void *arg)
{
	struct impostor *im = arg;
	int fd = accept(im->listener, NULL, NULL);
	uint8_t buf[512];

	if (im->hello_len)
		send(fd, im->hello, im->hello_len, MSG_NOSIGNAL);
	if (im->answer_len && recv(fd, buf, sizeof(buf), 0) > 0)
		send(fd, im->answer, im->answer_len, MSG_NOSIGNAL);
	while (recv(fd, buf, sizeof(buf), 0) > 0)
		;
	close(fd);
	return NULL;
}

static int meet(struct impostor *im)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(sa);
	int ret;

	im->listener = socket(AF_INET, SOCK_STREAM, 0);
	bind(im->listener, (struct sockaddr *)&sa, sizeof(sa));
	listen(im->listener, 1);
	getsockname(im->listener, (struct sockaddr *)&sa, &len);
	strcpy(target.host, "127.0.0.1");
	target.port = ntohs(sa.sin_port);
	target.timeout_ms = 300;
	pthread_create(&thread, NULL, impostor_run, im);
	ret = fetch();
	pthread_join(thread, NULL);
	close(im->listener);
	return ret;
}

Test(setup, impostors, .timeout = 60)
{
	static uint8_t bufs[8][4096];
	size_t lens[8];
	struct impostor im = {0};

	valid(bufs, lens);
	/* Silent. */
	cr_assert_eq(meet(&im), -ETIMEDOUT);
	cr_assert_not_null(strstr(err, "silent"), "%s", err);
	/* Another service. */
	im.hello = "SSH-2.0-OpenSSH_9.2p1\r\n";
	im.hello_len = 23;
	cr_assert_eq(meet(&im), -EPROTO);
	cr_assert_not_null(strstr(err, "not fi_rpmemd"), "%s", err);
	/* Half a greeting. */
	im.hello = bufs[0];
	im.hello_len = 30;
	cr_assert_eq(meet(&im), -ETIMEDOUT);
	/* Does not know the secret, and answers all the same. */
	im.hello_len = lens[0];
	im.answer = bufs[2];
	im.answer_len = lens[2];
	target.secret = &secret;
	cr_assert_eq(meet(&im), -EACCES);
	cr_assert_not_null(strstr(err, "do not use it"), "%s", err);
	/* Answers something else. */
	bufs[0][16] = 0;
	target.secret = NULL;
	im.answer = bufs[3];
	im.answer_len = lens[3];
	cr_assert_eq(meet(&im), -EPROTO);
	/* A pool that wraps around the end of memory. */
	memset(bufs[2] + 24, 0xff, 8);
	im.answer = bufs[2];
	im.answer_len = lens[2];
	cr_assert_eq(meet(&im), -EPROTO);
	/* A newer daemon. */
	bufs[0][4] = 2;
	cr_assert_eq(meet(&im), -EPROTONOSUPPORT);
	/* Nobody at all. */
	target.port = 1;
	cr_assert_eq(fetch(), -ECONNREFUSED);
	cr_assert_not_null(strstr(err, "start fi_rpmemd"), "%s", err);
	strcpy(target.host, "no.such.host.invalid");
	cr_assert_eq(fetch(), -EHOSTUNREACH);
}
