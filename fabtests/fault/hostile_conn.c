// SPDX-License-Identifier: BSD-2-Clause
/* The hostile peer's connection to the target, and the replies on it. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uthash.h>

#include "fault/hostile.h"

#define WAIT_MS 5000

/* The token of a valid request: only its REPLY may be OK. */
struct allowed {
	uint64_t token;
	UT_hash_handle hh;
};

struct frame_peer me;
struct frame_conn *conn;
unsigned int granted;
struct rp_wire_grant grants[R_COUNT];

static struct allowed *allowed;
static uint64_t next_token, answers, queried_key;
static bool spent; /* conn got RP_ST_STALE_KEY: the target reads no more of
		    * it */

void complain(const char *what, uint64_t a, uint64_t b)
{
	if (!*world->says)
		snprintf(world->says, sizeof(world->says), "%s (%#llx, %#llx)",
			 what, (unsigned long long)a, (unsigned long long)b);
}

void allow(uint64_t token)
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

/* --- replies --- */

static void learn_grant(uint64_t key, const struct rp_wire_grant *g)
{
	for (int r = 0; r < R_COUNT; r++) {
		if (world->regions[r].key != key || !g->length)
			continue;
		granted |= 1u << r;
		grants[r] = *g;
	}
}

static void take_message(struct frame_conn *c, const uint8_t *msg, size_t len)
{
	struct rp_wire_reply reply;
	struct rp_wire_info info;
	struct rp_wire_hdr h;
	struct allowed *a;
	uint32_t st = 1;

	atomic_fetch_add(&world->answers, 1);
	if (rp_wire_get_hdr(msg, len, &h)) {
		complain("a malformed reply", len, 0);
		return;
	}
	if (h.type == RP_MSG_REPLY) {
		if (rp_wire_get_reply(msg, &h, &reply))
			complain("a malformed REPLY", len, 0);
		else
			st = reply.status;
	} else if (h.type == RP_MSG_INFO) {
		if (rp_wire_get_info(msg, &h, &info)) {
			complain("a malformed INFO", len, 0);
		} else {
			st = info.status;
			if (c == conn)
				learn_grant(queried_key, &info.grant);
		}
	} else if (h.type != RP_MSG_PROGRESS) {
		complain("a message that no target sends", h.type, len);
	}
	answers += h.type != RP_MSG_PROGRESS;
	spent |= c == conn && st == RP_ST_STALE_KEY;
	if (st)
		return;
	HASH_FIND(hh, allowed, &h.token, sizeof(h.token), a);
	if (!a)
		complain("said OK to what must be refused", h.token, h.type);
}

static const struct frame_events events = {.received = take_message};

/* --- the connection --- */

struct sockaddr_in target_at(void)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons(rp_key_port(world->regions[R_FILE].key)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
}

size_t hello(uint8_t *buf, uint64_t initiator)
{
	const struct rp_wire_hello m = {
		.key = world->regions[R_FILE].key,
		.initiator = initiator,
		.timeout_ms = 1000,
	};

	return (size_t)MUST(rp_wire_put_hello(buf, RP_WIRE_CM_DATA, &m));
}

uint64_t new_token(void)
{
	return ++next_token;
}

uint32_t refusal(const struct frame_conn *c)
{
	struct rp_wire_hello_ack ack;

	return c->was_up || rp_wire_get_hello_ack(c->data, c->data_len, &ack)
		       ? RP_ST_OK
		       : ack.status;
}

struct frame_conn *enter(void)
{
	const struct sockaddr_in to = target_at();
	const uint64_t until = frame_now_ms() + WAIT_MS;
	struct frame_conn *c = NULL;
	uint8_t buf[RP_WIRE_CM_DATA];

	/*
	 * RP_ST_OVERLOADED: the target delays a host that has sent many wrong
	 * keys.
	 */
	do {
		if (c)
			frame_end(c);
		c = frame_dial(&me, &to, buf, hello(buf, rnd()));
		atomic_fetch_add(&world->sent, 1);
		frame_wait(c, WAIT_MS);
	} while (refusal(c) == RP_ST_OVERLOADED && frame_now_ms() < until);
	return c;
}

bool conn_ensure(void)
{
	struct rp_wire_hello_ack ack;

	if (!me.open)
		frame_open(&me, &events);
	if (conn && conn->state == FRAME_UP)
		return true;
	close_connection();
	conn = enter();
	if (conn->state != FRAME_UP) {
		complain("no connection", (uint64_t)conn->err, conn->data_len);
		return false;
	}
	if (rp_wire_get_hello_ack(conn->data, conn->data_len, &ack) ||
	    ack.status) {
		complain("no HELLO_ACK with the accept", conn->data_len, 0);
		return false;
	}
	learn_grant(world->regions[R_FILE].key, &ack.grant);
	return true;
}

void close_connection(void)
{
	granted = 0;
	spent = false;
	if (conn)
		frame_end(conn);
	conn = NULL;
}

bool grant(int r)
{
	const struct rp_wire_query m = {.key = world->regions[r].key};
	uint8_t msg[64];

	if (!conn_ensure())
		return false;
	if (granted & 1u << r)
		return true;
	queried_key = m.key;
	send_and_wait(msg, (size_t)MUST(rp_wire_put_query(msg, sizeof(msg),
							  new_token(), &m)));
	if (!(granted & 1u << r))
		complain("a key that was given is not granted", (uint64_t)r, 0);
	return granted & 1u << r;
}

bool grant_all(void)
{
	return grant(R_FILE) && grant(R_PMEM) && grant(R_READONLY);
}

struct rp_wire_range range_of(int r, uint64_t off, uint64_t len)
{
	return (struct rp_wire_range){
		.key = world->regions[r].key,
		.addr = world->regions[r].addr + off,
		.len = len,
	};
}

size_t request(uint8_t *buf, const struct rp_wire_range *g, size_t n,
	       uint8_t level, uint8_t required)
{
	const struct rp_wire_request m = {
		.nranges = (uint16_t)n,
		.level = level,
		.required = required,
		.ranges = g,
	};

	return (size_t)MUST(
		rp_wire_put_request(buf, RP_WIRE_MAX_MSG, new_token(), &m));
}

bool send_request(const uint8_t *msg, size_t len)
{
	if (request_is_valid(msg, len, granted))
		allow(wire_get(msg + 8, 8));
	atomic_fetch_add(&world->sent, 1);
	return frame_send(conn, msg, len);
}

void send_and_wait(const uint8_t *msg, size_t len)
{
	const uint64_t before = answers,
		       until = now_ns() + WAIT_MS * 1000000ull;

	if (!conn_ensure() || !send_request(msg, len))
		return;
	while (answers == before && conn->state == FRAME_UP) {
		frame_poll(&me);
		if (now_ns() > until) {
			complain("neither an answer nor an end",
				 wire_get(msg, 4), len);
			return;
		}
	}
	if (conn->state != FRAME_UP || spent)
		close_connection();
}

void listen_for(unsigned int ms)
{
	frame_poll_for(&me, ms);
}

void audit_target(void)
{
	const uint64_t until = now_ns() + 5000000000ull;
	const unsigned int n = atomic_fetch_add(&world->audits_due, 1) + 1;

	while (atomic_load(&world->audits) < n && now_ns() < until)
		frame_poll(&me);
}

void await_honest_commits(unsigned int commits)
{
	const uint64_t before = atomic_load(&world->commits);
	const uint64_t until = now_ns() + 5000000000ull;

	while (now_ns() < until &&
	       atomic_load(&world->commits) < before + commits)
		usleep(1000);
	if (atomic_load(&world->commits) < before + commits)
		complain("the honest initiator is not served", before,
			 atomic_load(&world->commits));
}
