// SPDX-License-Identifier: BSD-2-Clause
/* Connections that no correct initiator makes, and RDMA without a grant. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/atomic.h"
#include "fault/hostile.h"

#define MANY 256

static uint8_t hello_bytes[FRAME_DATA];
static struct sockaddr_in to;

/* --- HELLOs --- */

static void judge_hello(struct frame_conn *c, const uint8_t *m, size_t len)
{
	struct rp_wire_hello_ack ack;
	enum frame_state st = frame_wait(c, 5000);

	atomic_fetch_add(&world->answers, 1);
	if (st == FRAME_CONNECTING) {
		complain("a HELLO gets no reply", len, wire_get(m, 4));
	} else if (c->was_up && !hello_is_valid(m, len)) {
		complain("a malformed HELLO is accepted", len, wire_get(m, 4));
	} else if (!c->was_up && hello_is_valid(m, len)) {
		complain("a HELLO is refused", len, (uint64_t)c->err);
	} else if (!c->was_up && c->data_len &&
		   (rp_wire_get_hello_ack(c->data, c->data_len, &ack) ||
		    !ack.status)) {
		complain("a malformed refusal", len, c->data_len);
	}
	frame_end(c);
}

static void one_hello(const uint8_t *m, size_t len)
{
	atomic_fetch_add(&world->sent, 1);
	judge_hello(frame_dial(&me, &to, m, len), m, len);
}

/*
 * Send all HELLOs before waiting for replies, because the target delays its
 * reply to a wrong key.
 */
static void send_hellos(uint8_t (*m)[FRAME_DATA], const size_t *len, size_t n)
{
	struct frame_conn *c[MANY];

	for (size_t i = 0; i < n; i++) {
		c[i] = frame_dial(&me, &to, m[i], len[i]);
		atomic_fetch_add(&world->sent, 1);
		frame_poll(&me);
	}
	for (size_t i = 0; i < n; i++)
		judge_hello(c[i], m[i], len[i]);
}

static void false_hellos(void)
{
	static uint8_t m[MANY][FRAME_DATA];
	static size_t lens[MANY];
	size_t len = hello(hello_bytes, rnd());

	for (size_t n = 0; n <= FRAME_DATA; n += n < 64 ? 1 : 31)
		one_hello(hello_bytes, n);
	/* HELLOs with one byte of the padding that is not 0. */
	for (size_t n = len + 1; n <= FRAME_DATA; n += n < 64 ? 1 : 31) {
		memcpy(m[0], hello_bytes, FRAME_DATA);
		m[0][n - 1] = 1;
		one_hello(m[0], n);
	}
	/*
	 * Change each byte of HELLO except the key (bytes 16 to 23), which
	 * follows below.
	 */
	for (size_t n = 0; n < len; n++) {
		if (n >= 16 && n < 24)
			continue;
		memcpy(m[0], hello_bytes, len);
		m[0][n] ^= (uint8_t)(1 + rnd() % 255);
		one_hello(m[0], len);
	}
	for (int i = 0; i < 100; i++) {
		len = rnd() % (FRAME_DATA + 1);
		for (size_t n = 0; n < len; n++)
			m[0][n] = (uint8_t)rnd();
		one_hello(m[0], len);
	}
	/*
	 * Keys with one wrong bit, the key of a closed region, and of one that
	 * is not persistent.
	 */
	for (int bit = 0; bit < 64; bit++) {
		lens[bit] = hello(m[bit], rnd());
		wire_put(m[bit] + 16, 8,
			 world->regions[R_FILE].key ^ 1ull << bit);
	}
	lens[64] = hello(m[64], rnd());
	wire_put(m[64] + 16, 8, world->regions[R_STALE].key);
	lens[65] = hello(m[65], rnd());
	wire_put(m[65] + 16, 8, world->regions[R_VOLATILE].key);
	send_hellos(m, lens, 66);
}

/*
 * The target's limit of wrong keys that it examines for one host: at once, and
 * per second.
 */
#define STALE_AT_ONCE 256
#define STALE_PER_S   32

/*
 * Thousands of wrong keys from one host, at full speed, each on its own
 * connection: the target examines few of them. A connection with the right key
 * succeeds at once afterwards.
 */
static void guessed_keys(void)
{
	struct frame_conn *c[MANY] = {0};
	const uint64_t begun = now_ns(), until = begun + 8000000000ull;
	uint64_t key, refused = 0, stale = 0;
	size_t len, i;

	for (i = 0; i < 3000 && now_ns() < until; i++) {
		const size_t at = i % MANY;

		if (c[at]) {
			/*
			 * A connection whose reply has not arrived is closed,
			 * too.
			 */
			if (c[at]->was_up)
				complain("a guessed key is accepted", i, 0);
			refused += c[at]->state == FRAME_ENDED;
			stale += refusal(c[at]) == RP_ST_STALE_KEY;
			frame_end(c[at]);
		}
		len = hello(hello_bytes, rnd());
		key = world->regions[i % 2 ? R_FILE_OTHER : R_PMEM_OTHER].key;
		/* Change only the random part of the right key. */
		key ^= rnd() % ((1ull << 40) - 1) + 1;
		wire_put(hello_bytes + 16, 8, key);
		c[at] = frame_dial(&me, &to, hello_bytes, len);
		atomic_fetch_add(&world->sent, 1);
		frame_poll(&me);
	}
	for (size_t k = 0; k < MANY; k++)
		if (c[k])
			frame_end(c[k]);
	atomic_fetch_add(&world->answers, refused);
	if (stale >
	    STALE_AT_ONCE + STALE_PER_S * (now_ns() - begun) / 1000000000)
		complain("too many guesses are refused as stale", stale,
			 refused);
	if (!stale)
		complain("no guess is refused as stale", i, refused);
	conn_ensure();
	await_honest_commits(20);
}

/* --- many connections --- */

/* Wait until the target has sent so many replies in this attack. */
static void await_answers(uint64_t n)
{
	const uint64_t until = now_ns() + 5000000000ull;

	while (atomic_load(&world->answers) < n && now_ns() < until)
		frame_poll(&me);
	if (atomic_load(&world->answers) < n)
		complain("messages are not answered",
			 atomic_load(&world->answers), n);
}

static void send_good(struct frame_conn *c, const uint8_t *msg, size_t len)
{
	allow(wire_get(msg + 8, 8));
	frame_send(c, msg, len);
}

static int dial_raw(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) &&
	    errno != EINPROGRESS) {
		close(fd);
		return -1;
	}
	if (fd >= 0)
		poll(&p, 1, 100);
	return fd;
}

/* Connections that send nothing, or some random bytes. */
static void half_open(void)
{
	uint8_t bytes[64];
	unsigned int before;
	int fd[300];

	audit_target();
	before = world->audit.fds;
	for (int i = 0; i < 300; i++) {
		fd[i] = dial_raw();
		atomic_fetch_add(&world->sent, 1);
		for (size_t n = 0; n < sizeof(bytes); n++)
			bytes[n] = (uint8_t)rnd();
		if (i % 3 == 1 && fd[i] >= 0)
			send(fd[i], bytes, rnd() % sizeof(bytes),
			     MSG_NOSIGNAL | MSG_DONTWAIT);
	}
	await_honest_commits(50);
	audit_target();
	if (world->audit.fds <= before)
		complain("no half-open connection is accepted", before,
			 world->audit.fds);
	close_connection();
	/*
	 * While they are open, the target accepts a new connection with a right
	 * key.
	 */
	conn_ensure();
	for (int i = 0; i < 300; i++)
		if (fd[i] >= 0)
			close(fd[i]);
	await_honest_commits(20);
}

/* MANY valid connections at once, with requests on each. */
static void many_sessions(void)
{
	struct frame_conn *c[MANY];
	uint8_t msg[RP_WIRE_MAX_MSG];
	struct rp_wire_range g = range_of(R_FILE, 0, 64);

	for (size_t i = 0; i < MANY; i++) {
		c[i] = frame_dial(&me, &to, hello_bytes,
				  hello(hello_bytes, rnd()));
		if (frame_wait(c[i], 5000) != FRAME_UP)
			complain("a connection is not made", i, 0);
		atomic_fetch_add(&world->sent, 1);
	}
	for (int k = 0; k < 4; k++)
		for (size_t i = 0; i < MANY; i++)
			send_good(c[i], msg, request(msg, &g, 1, 1, 0));
	await_honest_commits(50);
	audit_target();
	await_answers(4 * MANY);
	for (size_t i = 0; i < MANY; i++)
		frame_end(c[i]);
	await_honest_commits(20);
}

/*
 * A HELLO with the initiator number of another connection ends only that older
 * connection.
 */
static void repeat_numbers(void)
{
	struct frame_conn *old = NULL, *c, *bystander;

	bystander =
		frame_dial(&me, &to, hello_bytes, hello(hello_bytes, rnd()));
	frame_wait(bystander, 5000);
	for (int i = 0; i < 200; i++) {
		/* Numbers that might have a special meaning: 0 and all ones. */
		const uint64_t number = i < 100 ? 4711 : (uint64_t)i % 2 - 1;

		c = frame_dial(&me, &to, hello_bytes,
			       hello(hello_bytes, number));
		atomic_fetch_add(&world->sent, 1);
		if (frame_wait(c, 5000) != FRAME_UP)
			complain("a second connection is not made", (uint64_t)i,
				 0);
		if (old && i < 100 && !frame_wait_end(old, 5000))
			complain("the older connection goes on", (uint64_t)i,
				 0);
		if (old)
			frame_end(old);
		old = c;
	}
	frame_end(old);
	if (bystander->state != FRAME_UP)
		complain("another initiator's connection ends", 0, 0);
	frame_end(bystander);
	await_honest_commits(20);
}

/*
 * Close connections during the handshake, with requests outstanding, and within
 * a message.
 */
static void gone_in_the_middle(void)
{
	uint8_t msg[RP_WIRE_MAX_MSG], bytes[1024];
	struct rp_wire_range g = range_of(R_FILE, 0, REGION_LEN);
	struct frame_conn *c;
	int fd;

	memset(bytes, 0xee, sizeof(bytes));
	for (int i = 0; i < 300; i++) {
		const size_t len = hello(hello_bytes, rnd());

		if (i % 4 == 1) /* the target refuses late */
			hello_bytes[17] ^= 1;
		if (i % 4 > 1) {
			c = enter();
			if (!c->was_up)
				complain("a connection is not made",
					 (uint64_t)i, 0);
		} else {
			c = frame_dial(&me, &to, hello_bytes, len);
			atomic_fetch_add(&world->sent, 1);
			frame_poll_for(&me, (unsigned int)i / 4 % 3);
		}
		for (int k = 0; i % 4 > 1 && k < 20; k++)
			send_good(c, msg, request(msg, &g, 1, 2, 2));
		frame_end(c);
	}
	for (int i = 0; i < 100; i++) {
		fd = dial_raw();
		if (fd < 0)
			continue;
		send(fd, bytes, 1 + rnd() % sizeof(bytes),
		     MSG_NOSIGNAL | MSG_DONTWAIT);
		close(fd);
	}
	await_honest_commits(20);
}

/* Requests from a peer that never reads the replies. */
static void never_read(void)
{
	static uint8_t zeros[4096];
	uint8_t msg[RP_WIRE_MAX_MSG];
	struct rp_wire_range g = range_of(R_FILE, 0, sizeof(zeros));
	struct rp_wire_request m = {
		.nranges = 1,
		.level = RP_LEVEL_VISIBLE,
		.effect = RP_EFFECT_ATOMIC,
		.atomic = {.op = RP_ATOMIC_READ,
			   .datatype = RP_ATOMIC_UINT64,
			   .fetch = true},
		.ranges = &g,
	};
	size_t len = (size_t)MUST(
		rp_wire_put_request(msg, sizeof(msg), new_token(), &m));
	struct frame_conn *c[32];

	allow(wire_get(msg + 8, 8));
	for (size_t i = 0; i < 32; i++) {
		c[i] = frame_dial(&me, &to, hello_bytes,
				  hello(hello_bytes, rnd()));
		if (frame_wait(c[i], 5000) != FRAME_UP)
			complain("a connection is not made", i, 0);
	}
	/* Post requests without polling, so that replies fill the socket. */
	for (int k = 0; k < 400; k++)
		for (size_t i = 0; i < 32; i++)
			if (frame_push(c[i], msg, len))
				atomic_fetch_add(&world->sent, 1);
	await_honest_commits(50);
	audit_target();
	await_answers(32);
	for (size_t i = 0; i < 32; i++)
		frame_end(c[i]);
	await_honest_commits(20);
}

/* --- RDMA --- */

/* One RDMA access that was not granted. It may close the connection. */
static void no_access(bool write, uint64_t addr, uint64_t rkey, size_t len)
{
	static uint8_t bytes[8192];
	uint8_t back[8192];
	int err;

	if (!grant_all())
		return;
	atomic_fetch_add(&world->sent, 1);
	memset(bytes, 0xee, sizeof(bytes));
	err = write ? frame_write(conn, bytes, len, addr, rkey)
		    : frame_read(conn, back, len, addr, rkey);
	/*
	 * Only a read is checked here. The audit checks what writes have
	 * changed.
	 */
	if (!err && !write)
		complain("a read of what was not granted succeeds", addr, rkey);
	if (err == ETIMEDOUT)
		complain("RDMA comes to no end", addr, rkey);
	close_connection();
}

static void send_bad_rdma(void)
{
	const uint64_t R = REGION_LEN;
	const uint64_t outside[][2] = {{R, 64},	     {R - 63, 64},
				       {-64ull, 64}, {R - 1, 8192},
				       {-1ull, 64},  {1ull << 63, 64}};
	static const int of[] = {R_FILE, R_PMEM, R_READONLY};
	struct rp_wire_grant g, before;
	uint64_t keys[8 + R_COUNT];
	size_t n = 0;

	if (!grant_all())
		return;
	before = grants[R_FILE];
	close_connection();
	if (!grant_all())
		return;
	for (size_t k = 0; k < 3; k++)
		for (size_t i = 0; i < sizeof(outside) / sizeof(*outside); i++)
			for (int write = 0; write < 2 && grant_all(); write++) {
				g = grants[of[k]];
				no_access(write, g.remote_addr + outside[i][0],
					  g.rkey, outside[i][1]);
			}
	if (!grant_all())
		return;
	no_access(true, grants[R_READONLY].remote_addr, grants[R_READONLY].rkey,
		  64);
	/* A grant ends with its connection: use the rkey of the earlier one. */
	no_access(false, before.remote_addr, before.rkey, 64);
	no_access(true, before.remote_addr, before.rkey, 64);
	/*
	 * Numbers that are no rkeys: keys of the provider, parts of them, and
	 * small numbers.
	 */
	for (int r = 0; r < R_COUNT; r++)
		if (r != R_VOLATILE)
			keys[n++] = world->regions[r].key;
	keys[n++] = world->regions[R_FILE].key & ((1ull << 40) - 1);
	keys[n++] = (uint32_t)world->regions[R_FILE].key;
	for (uint64_t i = 0; i < 4; i++)
		keys[n++] = i;
	for (size_t i = 0; i < n; i++)
		for (int write = 0; write < 2; write++)
			no_access(write, i % 2 ? 0 : grants[R_FILE].remote_addr,
				  keys[i], 64);
	for (int i = 0; i < 100; i++)
		no_access(i % 2, grants[R_FILE].remote_addr, rnd(), 64);
}

#define ATTACK(fn)                                                             \
	static void run_##fn(void)                                             \
	{                                                                      \
		conn_ensure();                                                 \
		to = target_at();                                              \
		fn();                                                          \
	}
ATTACK(false_hellos)
ATTACK(guessed_keys)
ATTACK(half_open)
ATTACK(many_sessions)
ATTACK(repeat_numbers)
ATTACK(gone_in_the_middle)
ATTACK(never_read)
ATTACK(send_bad_rdma)

const struct attack connect_attacks[] = {
	{"malformed HELLOs", run_false_hellos},
	{"half-open connections by the hundred", run_half_open},
	{"connections by the hundred", run_many_sessions},
	{"the number of another initiator", run_repeat_numbers},
	{"gone in the middle", run_gone_in_the_middle},
	{"replies are never read", run_never_read},
	{"RDMA that was not granted", run_send_bad_rdma},
	{"keys guessed by the thousand", run_guessed_keys},
	{0},
};
