// SPDX-License-Identifier: BSD-2-Clause
/* A peer that speaks the control protocol wrongly, over a bare base. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uthash.h>

#include "fault/hostile.h"

#define RECVS 64
#define BUF   (1u << 20)

/* Regions whose keys it was given; the other keys it can but guess. */
static const int given[] = {R_FILE, R_PMEM, R_VOLATILE, R_STALE};
#define NGIVEN (sizeof(given) / sizeof(*given))

/* A token that may be answered with OK. */
struct allowed {
	uint64_t token;
	UT_hash_handle hh;
};

static struct side me;
static fi_addr_t target, honest;
static uint8_t answers_buf[RECVS][RP_WIRE_MAX_MSG];
static char sent_mark;
static bool sending;

/* The session, as far as it is known. */
static uint64_t my_cookie, their_cookie, incarnation, next_token;
static uint64_t acks;
static struct allowed *allowed;

static void complain(const char *what, uint64_t a, uint64_t b)
{
	if (!*world->says)
		snprintf(world->says, sizeof(world->says), "%s (%#llx, %#llx)",
			 what, (unsigned long long)a, (unsigned long long)b);
	atomic_fetch_add(&world->bad_ok, 1);
}

static void allow(uint64_t token)
{
	struct allowed *a;

	HASH_FIND(hh, allowed, &token, sizeof(token), a);
	if (a)
		return;
	a = calloc(1, sizeof(*a));
	if (!a)
		MUST(-FI_ENOMEM);
	a->token = token;
	HASH_ADD(hh, allowed, token, sizeof(a->token), a);
}

/* --- what comes back --- */

static void on_answer(const uint8_t *msg, size_t len)
{
	struct rp_wire_hello_ack ack;
	struct rp_wire_reply reply;
	struct rp_wire_info info;
	struct rp_wire_hdr h;
	struct allowed *a;
	uint32_t st = 1;

	atomic_fetch_add(&world->answers, 1);
	if (rp_wire_get_hdr(msg, len, &h)) {
		complain("a malformed answer", len, 0);
		return;
	}
	switch (h.type) {
	case RP_MSG_HELLO_ACK:
		acks++;
		if (rp_wire_get_hello_ack(msg, &h, &ack))
			complain("a malformed HELLO_ACK", len, 0);
		else if (!ack.status && h.session == my_cookie) {
			their_cookie = ack.cookie;
			incarnation = h.incarnation;
		}
		return;
	case RP_MSG_REPLY:
		if (rp_wire_get_reply(msg, &h, &reply))
			complain("a malformed REPLY", len, 0);
		else
			st = reply.status;
		break;
	case RP_MSG_INFO:
		if (rp_wire_get_info(msg, &h, &info))
			complain("a malformed INFO", len, 0);
		else
			st = info.status;
		break;
	default:
		break;
	}
	if (st)
		return;
	HASH_FIND(hh, allowed, &h.token, sizeof(h.token), a);
	if (!a)
		complain("said OK to what must be refused", h.token, h.type);
}

static void post_recv(void *buf)
{
	ssize_t ret;

	do
		ret = fi_trecv(me.ep, buf, RP_WIRE_MAX_MSG, NULL,
			       FI_ADDR_UNSPEC, CTRL_BIT, ~CTRL_BIT, buf);
	while (ret == -FI_EAGAIN);
	MUST(ret);
}

/* Take what is there. */
static bool poll_once(void)
{
	struct fi_cq_err_entry err = {0};
	struct fi_cq_tagged_entry e;
	ssize_t n = fi_cq_read(me.cq, &e, 1);

	if (n == -FI_EAVAIL) {
		if (fi_cq_readerr(me.cq, &err, 0) != 1)
			return false;
		if (err.op_context == &sent_mark)
			sending = false;
		else if (err.op_context)
			post_recv(err.op_context);
		return true;
	}
	if (n != 1)
		return false;
	if (e.op_context == &sent_mark) {
		sending = false;
	} else if (e.op_context) {
		on_answer(e.op_context, e.len);
		post_recv(e.op_context);
	}
	return true;
}

static void listen_for(unsigned int ms)
{
	uint64_t end = now_ns() + ms * 1000000ull;

	do
		poll_once();
	while (now_ns() < end);
}

/* Sends; gives up what the base does not take for two seconds. */
static void throw_at(fi_addr_t to, const void *msg, size_t len)
{
	uint64_t end = now_ns() + 2000000000ull;
	ssize_t ret;

	do {
		if (len <= 64)
			ret = fi_tinject(me.ep, msg, len, to, CTRL_BIT);
		else
			ret = fi_tsend(me.ep, msg, len, NULL, to, CTRL_BIT,
				       &sent_mark);
		if (ret == -FI_EAGAIN)
			poll_once();
	} while (ret == -FI_EAGAIN && now_ns() < end);
	if (ret) {
		atomic_fetch_add(&world->stuck, 1);
		return;
	}
	atomic_fetch_add(&world->sent, 1);
	sending = len > 64;
	while (sending && now_ns() < end)
		poll_once();
	if (sending)
		atomic_fetch_add(&world->stuck, 1);
	sending = false;
	poll_once();
}

static void throw(const void *msg, size_t len)
{
	throw_at(target, msg, len);
}

/* --- messages --- */

static struct rp_wire_hdr hdr(void)
{
	return (struct rp_wire_hdr){
		.session = their_cookie,
		.token = ++next_token,
		.incarnation = incarnation,
	};
}

static size_t hello(uint8_t *buf, uint64_t cookie, const void *addr,
		    size_t addr_len)
{
	struct rp_wire_hdr h = {.type = RP_MSG_HELLO};
	struct rp_wire_hello m = {
		.cookie = cookie,
		.key = world->regions[R_FILE].key,
		.timeout_ms = 1000,
		.addr_len = (uint16_t)addr_len,
	};

	memcpy(m.addr, addr, addr_len);
	return (size_t)MUST(rp_wire_put_hello(buf, RP_WIRE_MAX_MSG, &h, &m));
}

static size_t my_hello(uint8_t *buf, uint64_t cookie)
{
	char name[128];
	size_t len = sizeof(name);

	MUST(fi_getname(&me.ep->fid, name, &len));
	return hello(buf, cookie, name, len);
}

/* A session of its own: HELLO until there is an answer. */
static bool greet(void)
{
	uint64_t end = now_ns() + 4000000000ull;
	uint8_t buf[RP_WIRE_MAX_MSG];
	size_t len;

	my_cookie = rnd() | 1;
	their_cookie = 0;
	len = my_hello(buf, my_cookie);
	while (!their_cookie && now_ns() < end) {
		throw(buf, len);
		for (int i = 0; i < 20 && !their_cookie; i++)
			listen_for(5);
	}
	if (!their_cookie)
		complain("no session", my_cookie, 0);
	return their_cookie;
}

static struct rp_wire_range range_of(int r, uint64_t off, uint64_t len)
{
	return (struct rp_wire_range){
		.key = world->regions[r].key,
		.addr = world->regions[r].addr + off,
		.len = len,
	};
}

static size_t request(uint8_t *buf, const struct rp_wire_range *g, size_t n,
		      uint8_t level, uint8_t required)
{
	struct rp_wire_hdr h = hdr();
	struct rp_wire_request m = {
		.nranges = (uint16_t)n,
		.level = level,
		.required = required,
	};

	memcpy(m.ranges, g, n * sizeof(*g));
	return (size_t)MUST(rp_wire_put_request(buf, RP_WIRE_MAX_MSG, &h, &m));
}

/* Send a message of a session; remember whether it may be granted. */
static void ask(const uint8_t *msg, size_t len)
{
	if (proper(msg, len, their_cookie, incarnation))
		allow(wire_get(msg + 16, 8));
	throw(msg, len);
}

/* --- the attacks --- */

struct field {
	uint16_t at, size;
};

/* Each field at its extremes. */
static void vary(const uint8_t *good, size_t len, const struct field *f,
		 size_t nfields)
{
	uint8_t msg[RP_WIRE_MAX_MSG];

	for (size_t i = 0; i < nfields; i++) {
		const unsigned int bits = 8u * f[i].size;
		const uint64_t max = ~0ull >> (64 - bits),
			       was = wire_get(good + f[i].at, f[i].size);
		const uint64_t values[] = {
			0,	     1,		 max,	    max - 1,
			max / 2 + 1, max / 2,	 was + 1,   was - 1,
			was ^ 2,     was + 4096, was ^ max, rnd(),
		};

		for (size_t v = 0; v < sizeof(values) / 8; v++) {
			/* Those of before may have ended the session. */
			if (v == 6 && f[i].at < 32 && !greet())
				return;
			memcpy(msg, good, len);
			if (good[3] != RP_MSG_HELLO) {
				wire_put(msg + 8, 8, their_cookie);
				wire_put(msg + 16, 8, ++next_token);
			}
			wire_put(msg + f[i].at, f[i].size, values[v]);
			ask(msg, len);
		}
	}
}

static const struct field head[] = {{0, 2}, {2, 1}, {3, 1},
				    {4, 4}, {8, 8}, {24, 8}};

static void fields(void)
{
	const struct field hello_f[] = {{32, 8}, {40, 8}, {48, 4}, {52, 2},
					{54, 2}, {56, 2}, {58, 2}, {64, 8}};
	const struct field request_f[] = {{32, 2}, {34, 1}, {35, 1}, {36, 4},
					  {40, 4}, {44, 4}, {40, 8}, {48, 8},
					  {56, 8}, {64, 8}, {72, 8}, {80, 8}};
	const struct field query_f[] = {{32, 8}, {40, 1}, {41, 1}, {44, 4}};
	struct rp_wire_range g[2];
	uint8_t msg[RP_WIRE_MAX_MSG];
	struct rp_wire_hdr h;
	size_t len;

	if (!greet())
		return;
	len = my_hello(msg, my_cookie);
	vary(msg, len, head, 6);
	vary(msg, len, hello_f, 8);
	for (size_t i = 0; i < NGIVEN && greet(); i++) {
		const int r = given[i];

		g[0] = range_of(r, 64, 64);
		g[1] = range_of(R_FILE, REGION_LEN - 64, 64);
		for (uint8_t level = 1; level <= 2; level++) {
			len = request(msg, g, 2, level, r == R_FILE ? 2 : 0);
			vary(msg, len, request_f, 12);
		}
		vary(msg, len, head, 6);
		h = hdr();
		len = (size_t)MUST(rp_wire_put_query(
			msg, sizeof(msg), &h,
			&(struct rp_wire_query){world->regions[r].key, 0}));
		vary(msg, len, query_f, 4);
	}
	h = hdr();
	h.type = RP_MSG_BYE;
	len = (size_t)MUST(rp_wire_put_empty(msg, sizeof(msg), &h));
	vary(msg, len, head, 6);
	listen_for(100);
}

static void keys_and_ranges(void)
{
	const uint64_t R = REGION_LEN;
	const uint64_t edges[][2] = {
		{0, R},		  {0, R + 1},	    {R - 1, 1},
		{R - 1, 2},	  {R, 1},	    {R + 1, 1},
		{0, 0},		  {R, 0},	    {1, R},
		{-1ull, 1},	  {-1ull, 2},	    {-1ull, -1ull},
		{0, -1ull},	  {1, -1ull},	    {64, -64ull},
		{63, -64ull},	  {1ull << 63, 1},  {0, 1ull << 63},
		{-4096ull, 4096}, {-4096ull, 4097}, {R, -R},
		{R - 1, -1ull},
	};
	struct rp_wire_range g[RP_WIRE_MAX_RANGES];
	uint8_t msg[RP_WIRE_MAX_MSG];
	uint64_t key;

	if (!greet())
		return;
	for (size_t k = 0; k < NGIVEN; k++) {
		const int r = given[k];

		for (size_t i = 0; i < sizeof(edges) / sizeof(*edges); i++) {
			g[0] = range_of(r, edges[i][0], edges[i][1]);
			for (uint8_t class = 0; class <= 2; class ++) {
				ask(msg, request(msg, g, 1, 2, class));
				ask(msg, request(msg, g, 1, 1, class));
			}
		}
	}
	/* A key is right whole or not at all. */
	for (int r = R_FILE; r < R_COUNT; r++) {
		for (int bit = 0; bit < 64; bit++) {
			g[0] = range_of(r, 0, 64);
			g[0].key ^= 1ull << bit;
			ask(msg, request(msg, g, 1, 1, 0));
		}
	}
	for (int i = 0; i < 500; i++) {
		/* All but the random part as those of the others. */
		key = world->regions[i % 2 ? R_FILE_OTHER : R_PMEM_OTHER].key;
		g[0] = range_of(R_FILE_OTHER, 0, 4096);
		g[0].key = (key & ((1ull << 40) - 1)) | rnd() << 40;
		if (g[0].key == key)
			continue;
		ask(msg, request(msg, g, 1, 2, 0));
		g[0].key = rnd();
		ask(msg, request(msg, g, 1, 2, 0));
	}
	/* As many as fit, all of a whole region, or overlapping. */
	for (int i = 0; i < 60; i++) {
		for (size_t n = 0; n < RP_WIRE_MAX_RANGES; n++) {
			uint64_t from = i % 3 ? rnd() % R : 0;

			g[n] = range_of(i % 2 ? R_FILE : R_PMEM, from,
					i % 3 ? rnd() % (R - from) + 1 : R);
		}
		if (i % 4 == 3) /* one of them is nobody's business */
			g[rnd() % RP_WIRE_MAX_RANGES] = range_of(R_STALE, 0, R);
		ask(msg, request(msg, g, RP_WIRE_MAX_RANGES, 2, 0));
	}
	listen_for(200);
}

static void replays(void)
{
	static uint8_t kept[256][160];
	static size_t lens[256];
	struct rp_wire_range g[3];
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_hdr h;
	size_t n = 0, k;

	for (int session = 0; session < 6; session++) {
		if (!greet())
			return;
		for (int i = 0; i < 40; i++, n++) {
			g[0] = range_of(i % 2 ? R_FILE : R_PMEM,
					rnd() % REGION_LEN, 1);
			h = hdr();
			h.type = RP_MSG_BYE;
			if (i == 39)
				lens[n] = (size_t)MUST(rp_wire_put_empty(
					kept[n], sizeof(kept[n]), &h));
			else if (i == 38)
				lens[n] = my_hello(buf, my_cookie);
			else
				lens[n] = request(buf, g, 1, 2, 0);
			if (i < 39)
				memcpy(kept[n], buf, lens[n]);
			ask(kept[n], lens[n]);
		}
		/* Of this session and all before, in any order. */
		for (int i = 0; i < 200; i++) {
			k = rnd() % n;
			throw(kept[k], lens[k]);
		}
	}
	listen_for(100);
}

static void sessions_of_others(void)
{
	struct rp_wire_range g = range_of(R_FILE, 0, 64);
	uint8_t msg[RP_WIRE_MAX_MSG];
	struct rp_wire_hdr h;
	size_t len;

	if (!greet())
		return;
	for (int i = 0; i < 1500; i++) {
		uint64_t guess = i % 3 == 0   ? their_cookie + (uint64_t)i + 1
				 : i % 3 == 1 ? (uint64_t)i
					      : rnd();

		len = request(msg, &g, 1, 2, 2);
		if (i % 5) {
			wire_put(msg + 8, 8, guess);
		} else {
			wire_put(msg + 24, 8, incarnation ^ (1ull << i % 64));
		}
		ask(msg, len);
		h = hdr();
		h.type = RP_MSG_BYE;
		h.session = guess;
		len = (size_t)MUST(rp_wire_put_empty(msg, sizeof(msg), &h));
		throw(msg, len);
		/* The name of the honest one, and a cookie of ours. */
		throw(msg, hello(msg, guess | 1, world->honest.name,
				 world->honest.len));
	}
	listen_for(100);
}

/* Answers that nobody asked for: to the honest one, and to the target. */
static void false_answers(void)
{
	struct rp_wire_hello_ack ack = {.credits = 1, .max_ranges = 168};
	struct rp_wire_info info = {.granularity = 64, .why = "\033[2J"};
	struct rp_wire_reply ok = {.level = 2, .class = 2, .method = 6};
	uint8_t msg[RP_WIRE_MAX_MSG];
	struct rp_wire_hdr h;
	size_t len;

	if (!greet())
		return;
	for (int i = 0; i < 3000; i++) {
		h = (struct rp_wire_hdr){
			.session = i % 7 ? rnd() : (uint64_t)i / 7,
			.token = (uint64_t)i / 2,
			.incarnation = incarnation,
		};
		if (i % 11 == 0)
			h.session = their_cookie;
		ok.status = i % 2 ? 0 : rnd() % 20;
		ok.level = ok.class = ok.method = 0;
		ack.cookie = rnd() | 1;
		h.type = RP_MSG_PROGRESS;
		switch (i % 5) {
		case 0:
			len = (size_t)MUST(rp_wire_put_hello_ack(
				msg, sizeof(msg), &h, &ack));
			break;
		case 1:
			len = (size_t)MUST(
				rp_wire_put_info(msg, sizeof(msg), &h, &info));
			break;
		case 2:
			len = (size_t)MUST(
				rp_wire_put_empty(msg, sizeof(msg), &h));
			break;
		default:
			if (!ok.status)
				ok.level = 2, ok.class = 2, ok.method = 6;
			len = (size_t)MUST(
				rp_wire_put_reply(msg, sizeof(msg), &h, &ok));
		}
		throw_at(i % 3 ? honest : target, msg, len);
	}
	listen_for(50);
}

static void no_credit(void)
{
	struct rp_wire_range g[RP_WIRE_MAX_RANGES];
	uint8_t msg[RP_WIRE_MAX_MSG];

	if (!greet())
		return;
	for (size_t i = 0; i < RP_WIRE_MAX_RANGES; i++)
		g[i] = range_of(R_FILE, i * 1024, REGION_LEN - i * 1024);
	/* Thousands outstanding, of few and of many ranges. */
	for (int i = 0; i < 4000; i++)
		ask(msg, request(msg, g, i % 8 ? 1 : RP_WIRE_MAX_RANGES, 2, 2));
	listen_for(300);
}

static void half_and_too_long(void)
{
	struct rp_wire_range g[RP_WIRE_MAX_RANGES];
	static uint8_t big[BUF];
	size_t len;

	if (!greet())
		return;
	for (size_t i = 0; i < RP_WIRE_MAX_RANGES; i++)
		g[i] = range_of(R_FILE, i, 64);
	len = request(big, g, 8, 2, 2);
	for (size_t n = 0; n < len; n++)
		throw(big, n);
	for (size_t n = 32; n < len; n++) {
		wire_put(big + 4, 4, n);
		wire_put(big + 16, 8, ++next_token);
		ask(big, n);
	}
	/* Longer than any message is; the base may end the connection. */
	for (size_t n = RP_WIRE_MAX_MSG; n <= BUF; n = n * 2 + 1) {
		len = request(big, g, RP_WIRE_MAX_RANGES, 2, 2);
		wire_put(big + 4, 4, n);
		throw(big, n);
		if (!greet())
			return;
	}
	listen_for(50);
}

static void noise(void)
{
	struct rp_wire_range g[4];
	uint8_t msg[RP_WIRE_MAX_MSG];
	size_t len;

	if (!greet())
		return;
	for (int i = 0; i < 3000; i++) {
		if (i % 256 == 255 && !greet())
			return;
		if (i % 3 == 0) {
			len = rnd() % RP_WIRE_MAX_MSG;
			for (size_t n = 0; n < len; n++)
				msg[n] = (uint8_t)rnd();
		} else {
			for (int n = 0; n < 4; n++)
				g[n] = range_of(given[rnd() % NGIVEN],
						rnd() % REGION_LEN, rnd() % 99);
			len = request(msg, g, 1 + rnd() % 4, 1 + rnd() % 2,
				      (uint8_t)(rnd() % 3));
			for (int n = 0; n < 1 + i % 3; n++)
				msg[rnd() % len] ^= (uint8_t)(1 << rnd() % 8);
		}
		ask(msg, len);
	}
	listen_for(100);
}

static void byes(void)
{
	uint8_t msg[RP_WIRE_MAX_MSG];
	struct rp_wire_hdr h;
	struct rp_wire_range g = range_of(R_FILE, 0, REGION_LEN);

	for (int i = 0; i < 150; i++) {
		if (!greet())
			return;
		for (int n = 0; n < 3; n++)
			ask(msg, request(msg, &g, 1, 2, 2));
		h = hdr();
		h.type = RP_MSG_BYE;
		for (int n = 0; n < 5; n++)
			throw(msg, (size_t)MUST(rp_wire_put_empty(
					   msg, sizeof(msg), &h)));
	}
	listen_for(50);
}

static void cookie_flood(void)
{
	uint8_t msg[RP_WIRE_MAX_MSG];

	for (int i = 0; i < 6000; i++)
		throw(msg, my_hello(msg, rnd() | 1));
	listen_for(100);
}

/* An address of the target's family, with another host and port. */
static size_t address(struct sockaddr_in *sin, uint32_t host, uint16_t port)
{
	memset(sin, 0, sizeof(*sin));
	sin->sin_family = AF_INET;
	sin->sin_addr.s_addr = htonl(host);
	sin->sin_port = htons(port);
	return sizeof(*sin);
}

static void strange_addresses(void)
{
	uint8_t msg[RP_WIRE_MAX_MSG], addr[128];
	struct sockaddr_in sin;
	size_t len;

	if (!greet())
		return;
	for (int i = 0; i < 40; i++) {
		/* Itself, and whoever minds his own business. */
		throw(msg, hello(msg, rnd() | 1, world->target.name,
				 world->target.len));
		throw(msg, hello(msg, rnd() | 1, world->honest.name,
				 world->honest.len));
		/* Nobody: no such port, port 0, no host. */
		len = address(&sin, INADDR_LOOPBACK, (uint16_t)(1 + i));
		throw(msg, hello(msg, rnd() | 1, &sin, len));
		len = address(&sin, INADDR_LOOPBACK, 0);
		throw(msg, hello(msg, rnd() | 1, &sin, len));
		len = address(&sin, 0, (uint16_t)(i ? rnd() : 0));
		throw(msg, hello(msg, rnd() | 1, &sin, len));
		/* Of every length and family. */
		len = 1 + rnd() % 128;
		for (size_t n = 0; n < sizeof(addr); n++)
			addr[n] = (uint8_t)rnd();
		wire_put(addr, 2, rnd() % 50);
		/* By chance ours: then at least on this machine. */
		if (wire_get(addr, 2) == AF_INET)
			addr[4] = 127;
		throw(msg, hello(msg, rnd() | 1, addr, len));
		len = address(&sin, INADDR_LOOPBACK, 9);
		throw(msg, hello(msg, rnd() | 1, &sin, len - 1));
	}
	listen_for(100);
}

/*
 * Addresses where somebody listens, as many as there are: the target answers
 * there, and may not collect connections by it.
 */
static void address_flood(void)
{
	struct sockaddr_in any;
	socklen_t size = sizeof(any);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	uint8_t msg[RP_WIRE_MAX_MSG];
	struct sockaddr_in sin;
	uint64_t end;
	size_t len;

	address(&any, 0, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof(any)) ||
	    listen(fd, 4096) || getsockname(fd, (struct sockaddr *)&any, &size))
		MUST(-errno);
	/* Half of them accept a connection and never say a word. */
	end = now_ns() + 5000000000ull;
	for (uint32_t i = 0; i < 3000 && now_ns() < end; i++) {
		len = address(&sin, 0x7f010001 + i, ntohs(any.sin_port));
		throw(msg, hello(msg, rnd() | 1, &sin, len));
		poll_once();
	}
	/* Held while the target is looked at. */
	listen_for(300);
	unsigned int ask = atomic_fetch_add(&world->ask, 1) + 1;

	while (atomic_load(&world->told) < ask &&
	       now_ns() < end + 5000000000ull)
		poll_once();
	close(fd);
}

/* Stops in the middle of messages that are too long, and never goes on. */
static void unfinished(void)
{
	static uint8_t big[BUF];
	uint64_t commits, end;

	if (!greet())
		return;
	world->unfinished = true;
	for (int i = 0; i < 128; i++)
		if (!fi_tsend(me.ep, big, i % 2 ? BUF : 20000, NULL, target,
			      CTRL_BIT, NULL))
			atomic_fetch_add(&world->sent, 1);
	/* Alive and silent while the honest one goes on. */
	commits = atomic_load(&world->commits);
	end = now_ns() + 3000000000ull;
	while (now_ns() < end && atomic_load(&world->commits) < commits + 50)
		usleep(10000);
	if (atomic_load(&world->commits) < commits + 50)
		complain("nobody else is served", commits,
			 atomic_load(&world->commits));
}

static void run(void (*attack)(void))
{
	struct pair_opts raw = {.prov = world->base};

	side_open(&me, &raw);
	for (int i = 0; i < RECVS; i++)
		post_recv(answers_buf[i]);
	if (fi_av_insert(me.av, world->target.name, 1, &target, 0, NULL) != 1 ||
	    fi_av_insert(me.av, world->honest.name, 1, &honest, 0, NULL) != 1)
		MUST(-FI_EADDRNOTAVAIL);
	attack();
}

#define ATTACK(fn)                                                             \
	static void run_##fn(void)                                             \
	{                                                                      \
		run(fn);                                                       \
	}
ATTACK(fields)
ATTACK(keys_and_ranges)
ATTACK(replays)
ATTACK(sessions_of_others)
ATTACK(false_answers)
ATTACK(no_credit)
ATTACK(half_and_too_long)
ATTACK(noise)
ATTACK(byes)
ATTACK(cookie_flood)
ATTACK(strange_addresses)
ATTACK(address_flood)
ATTACK(unfinished)

const struct attack attacks[] = {
	{"fields at their extremes", run_fields},
	{"keys and ranges", run_keys_and_ranges},
	{"replays, in any order", run_replays},
	{"sessions and lives of others", run_sessions_of_others},
	{"answers that nobody asked for", run_false_answers},
	{"credits ignored", run_no_credit},
	{"half messages and too long ones", run_half_and_too_long},
	{"noise", run_noise},
	{"BYE storm", run_byes},
	{"HELLO flood of cookies", run_cookie_flood},
	{"strange reply addresses", run_strange_addresses},
	{"HELLO flood of addresses", run_address_flood},
	{"messages that never end", run_unfinished},
};
const unsigned int nattacks = sizeof(attacks) / sizeof(*attacks);
