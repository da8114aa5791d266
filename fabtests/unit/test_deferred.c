// SPDX-License-Identifier: BSD-2-Clause
/* Requests to an agent: when each is sent, and which replies count. */
#include <string.h>

#include <criterion/criterion.h>

#include "core/deferred.h"

#define INITIATOR 0xc00c1eu
#define KEY	  0xb3000000313233e5u
#define DEADLINE  1000000000u

static struct rp_deferred a;
static uint8_t buf[RP_DEFERRED_MAX_RING_MSG];
static struct rp_deferred_op items[16];
static struct rp_wire_range decoded[RP_WIRE_MAX_PACKED];

static struct rp_wire_hdr expect_sent(uint64_t now,
				      const struct rp_deferred_op *want)
{
	struct rp_deferred_op *who;
	struct rp_wire_hdr hdr;
	size_t len = rp_deferred_next_message(&a, now, buf, &who);

	cr_assert_gt(len, 0u);
	cr_assert_eq(who, want);
	cr_assert_eq(rp_wire_get_hdr(buf, len, &hdr), 0);
	return hdr;
}

static void nothing_to_send(void)
{
	struct rp_deferred_op *who;

	cr_assert_eq(rp_deferred_next_message(&a, 0, buf, &who), 0u);
}

static bool ack_as(enum rp_status st, uint16_t credits)
{
	struct rp_wire_hello_ack m = {.status = st};
	uint8_t msg[RP_WIRE_CM_ACK];
	int len;

	if (st == RP_ST_OK) {
		m.incarnation = 1;
		m.credits = credits;
		m.grant = (struct rp_wire_grant){
			.length = 1 << 20,
			.class = RP_CLASS_POWER,
			.method = RP_METHOD_AGENT_CLWB,
			.writable = true,
		};
	}
	len = rp_wire_put_hello_ack(msg, sizeof(msg), &m);
	cr_assert_gt(len, 0);
	return rp_deferred_receive(&a, 0, msg, (size_t)len);
}

static bool receive_ack(uint16_t credits)
{
	return ack_as(RP_ST_OK, credits);
}

static bool reply_as(uint64_t token, enum rp_status st, enum rp_level level,
		     enum rp_class class)
{
	const struct rp_wire_reply m = {
		.status = st,
		.level = st ? 0 : level,
		.class = st ? 0 : class,
		.method = st ? 0 : RP_METHOD_AGENT_CLWB,
		.credits = 64,
	};
	uint8_t msg[RP_WIRE_MAX_REPLY];
	int len = rp_wire_put_reply(msg, sizeof(msg), token, &m);

	cr_assert_gt(len, 0);
	return rp_deferred_receive(&a, 0, msg, (size_t)len);
}

static bool receive_reply(uint64_t token, enum rp_status st)
{
	return reply_as(token, st, RP_LEVEL_DURABLE, RP_CLASS_POWER);
}

static bool sends_type(enum rp_msg_type type)
{
	uint8_t msg[16];
	int len = rp_wire_put_signal(msg, sizeof(msg), type);

	return rp_deferred_receive(&a, 0, msg, (size_t)len);
}

static struct rp_deferred_op *put_op(int i, enum rp_deferred_kind kind)
{
	items[i] = (struct rp_deferred_op){
		.kind = kind,
		.key = KEY,
		.addr = 4096 + 64 * (uint64_t)i,
		.len = kind == RP_DEFERRED_STORE ? 8 : 64,
		.required = RP_CLASS_POWER,
		.value = {1, 2, 3, 4, 5, 6, 7, 8},
		/* Values that an earlier use of the item has left. */
		.outcome = RP_DEFERRED_LOST,
		.status = RP_ST_LOST,
		.pipelined = true,
		.pending = true,
	};
	rp_deferred_put(&a, &items[i]);
	return &items[i];
}

static void open_deferred(void)
{
	rp_deferred_init(&a, INITIATOR, DEADLINE);
}

/* One flush is outstanding, with token 1. */
static void begin_open(void)
{
	open_deferred();
	put_op(0, RP_DEFERRED_FLUSH);
	expect_sent(0, NULL);
	cr_assert(receive_ack(64));
	expect_sent(0, &items[0]);
}

static void expect_end(int i, enum rp_deferred_outcome end, enum rp_status why)
{
	cr_assert_eq(rp_deferred_take(&a), &items[i], "item %d", i);
	cr_assert_eq(items[i].outcome, end);
	if (end == RP_DEFERRED_REFUSED)
		cr_assert_eq(items[i].status, why);
}

Test(deferred, hello_is_sent_with_the_first_request)
{
	struct rp_wire_hello m;
	struct rp_wire_hdr hdr;

	open_deferred();
	nothing_to_send();
	put_op(0, RP_DEFERRED_PLAIN);
	nothing_to_send();
	expect_end(0, RP_DEFERRED_OK, 0);
	put_op(1, RP_DEFERRED_FLUSH);
	hdr = expect_sent(0, NULL);
	cr_assert_eq(hdr.type, RP_MSG_HELLO);
	cr_assert_eq(rp_wire_get_hello(buf, hdr.length, &m), 0);
	cr_assert_eq(m.initiator, INITIATOR);
	cr_assert_eq(m.key, KEY);
	cr_assert_eq(m.timeout_ms, 1000u);
	nothing_to_send();
	cr_assert_null(rp_deferred_take(&a));
}

Test(deferred, request_of_one_range)
{
	struct rp_wire_request m = {.decoded = decoded};
	struct rp_wire_hdr hdr;

	begin_open();
	cr_assert_eq(rp_wire_get_hdr(buf, RP_WIRE_STORE_LEN(1, 0), &hdr), 0);
	cr_assert_eq(hdr.token, 1u);
	cr_assert_eq(rp_wire_get_request(buf, &hdr, &m), 0);
	cr_assert_eq(m.nranges, 1);
	cr_assert_eq(m.level, RP_LEVEL_DURABLE);
	cr_assert_eq(m.required, RP_CLASS_POWER);
	cr_assert_eq(m.effect, RP_EFFECT_NONE);
	cr_assert_eq(m.ranges[0].key, KEY);
	cr_assert_eq(m.ranges[0].addr, 4096u);
	cr_assert_eq(m.ranges[0].len, 64u);
	cr_assert_null(rp_deferred_take(&a));
	cr_assert(receive_reply(hdr.token, RP_ST_OK));
	expect_end(0, RP_DEFERRED_OK, 0);
}

/* Replies come in any order; completions keep the order of posting. */
Test(deferred, completions_keep_the_order)
{
	begin_open();
	put_op(1, RP_DEFERRED_PLAIN);
	put_op(2, RP_DEFERRED_FLUSH);
	put_op(3, RP_DEFERRED_PLAIN);
	expect_sent(0, &items[2]);
	cr_assert(receive_reply(2, RP_ST_OK));
	cr_assert_null(rp_deferred_take(&a));
	cr_assert(receive_reply(1, RP_ST_OK));
	for (int i = 0; i < 4; i++)
		expect_end(i, RP_DEFERRED_OK, 0);
	cr_assert_null(rp_deferred_take(&a));
}

/* A store is requested after all earlier operations have completed. */
Test(deferred, store_waits_for_earlier_operations)
{
	struct rp_wire_request m = {.decoded = decoded};
	struct rp_wire_hdr hdr;

	begin_open();
	put_op(1, RP_DEFERRED_STORE);
	put_op(2, RP_DEFERRED_FLUSH);
	put_op(3, RP_DEFERRED_STORE);
	nothing_to_send();
	cr_assert(receive_reply(1, RP_ST_OK));
	nothing_to_send();
	expect_end(0, RP_DEFERRED_OK, 0);
	hdr = expect_sent(0, &items[1]);
	cr_assert_eq(rp_wire_get_request(buf, &hdr, &m), 0);
	cr_assert_eq(m.effect, RP_EFFECT_STORE);
	cr_assert_eq(m.ranges[0].len, 8u);
	cr_assert(!memcmp(m.bytes, items[1].value, 8));
	expect_sent(0, &items[2]);
	nothing_to_send();
	cr_assert(receive_reply(2, RP_ST_OK));
	cr_assert(receive_reply(3, RP_ST_OK));
	expect_end(1, RP_DEFERRED_OK, 0);
	nothing_to_send();
	expect_end(2, RP_DEFERRED_OK, 0);
	hdr = expect_sent(0, &items[3]);
	cr_assert_eq(rp_wire_get_request(buf, &hdr, &m), 0);
}

/* Behind a failed flush nothing is stored. */
Test(deferred, no_store_behind_a_failure)
{
	begin_open();
	put_op(1, RP_DEFERRED_STORE);
	cr_assert(receive_reply(1, RP_ST_FLUSH_FAILED));
	nothing_to_send();
	expect_end(0, RP_DEFERRED_REFUSED, RP_ST_FLUSH_FAILED);
	nothing_to_send();
	expect_end(1, RP_DEFERRED_BEHIND_ERR, 0);
	put_op(2, RP_DEFERRED_STORE);
	nothing_to_send();
	expect_end(2, RP_DEFERRED_BEHIND_ERR, 0);
	put_op(3, RP_DEFERRED_PLAIN);
	expect_end(3, RP_DEFERRED_BEHIND_ERR, 0);
}

/* Replies to requests behind a failure are not awaited, so no deadline runs. */
Test(deferred, no_deadline_behind_a_failure)
{
	begin_open();
	put_op(1, RP_DEFERRED_FLUSH);
	expect_sent(0, &items[1]);
	cr_assert(receive_reply(1, RP_ST_FLUSH_FAILED));
	expect_end(0, RP_DEFERRED_REFUSED, RP_ST_FLUSH_FAILED);
	cr_assert(!rp_deferred_expire(&a, UINT64_MAX));
	expect_end(1, RP_DEFERRED_BEHIND_ERR, 0);
}

Test(deferred, credits)
{
	for (uint16_t credits = 3; credits <= 64; credits += 61) {
		int n = credits < RP_DEFERRED_MAX ? credits : RP_DEFERRED_MAX;

		open_deferred();
		for (int i = 0; i < 12; i++)
			put_op(i, RP_DEFERRED_FLUSH);
		expect_sent(0, NULL);
		cr_assert(receive_ack(credits));
		for (int i = 0; i < n; i++)
			expect_sent(0, &items[i]);
		nothing_to_send();
		cr_assert(receive_reply(2, RP_ST_OK));
		expect_sent(0, &items[n]);
		nothing_to_send();
	}
}

/* A reply with a lower class or level than requested counts as a failure. */
Test(deferred, weaker_reply_is_refused)
{
	begin_open();
	cr_assert(reply_as(1, RP_ST_OK, RP_LEVEL_DURABLE, RP_CLASS_PROCESS));
	expect_end(0, RP_DEFERRED_REFUSED, RP_ST_CLASS);
	begin_open();
	cr_assert(reply_as(1, RP_ST_OK, RP_LEVEL_VISIBLE, RP_CLASS_POWER));
	expect_end(0, RP_DEFERRED_REFUSED, RP_ST_CLASS);
}

/* Each of these messages is malformed and ends the connection. */
Test(deferred, malformed_messages_end_the_connection)
{
	for (int i = 0; i < 7; i++) {
		uint8_t msg[64] = {0};
		bool heard = true;

		begin_open();
		put_op(1, RP_DEFERRED_PLAIN);
		switch (i) {
		case 0:
			heard = rp_deferred_receive(&a, 0, msg, sizeof(msg));
			break;
		case 1:
			heard = rp_deferred_receive(&a, 0, msg, 0);
			break;
		case 2: /* a token that was never used */
			heard = receive_reply(2, RP_ST_OK);
			break;
		case 3: /* a second HELLO_ACK */
			heard = receive_ack(64);
			break;
		case 4: /* a message that only targets receive */
			heard = sends_type(RP_MSG_DOORBELL);
			break;
		case 5: /* a second reply */
			put_op(2, RP_DEFERRED_FLUSH);
			cr_assert(receive_reply(1, RP_ST_OK));
			heard = receive_reply(1, RP_ST_OK);
			cr_assert(!heard);
			expect_end(0, RP_DEFERRED_OK, 0);
			expect_end(1, RP_DEFERRED_OK, 0);
			expect_end(2, RP_DEFERRED_LOST, 0);
			continue;
		case 6: /* a reply before the request */
			put_op(2, RP_DEFERRED_FLUSH);
			heard = receive_reply(2, RP_ST_OK);
			break;
		}
		cr_assert(!heard, "%d", i);
		expect_end(0, RP_DEFERRED_LOST, 0);
		expect_end(1, RP_DEFERRED_BEHIND_ERR, 0);
		nothing_to_send();
		/* After the malformed message all messages are ignored. */
		cr_assert(receive_reply(1, RP_ST_OK));
	}
}

/* If HELLO is refused, the first operation gets its status. */
Test(deferred, refused_hello_fails_the_first_operation)
{
	open_deferred();
	put_op(0, RP_DEFERRED_PLAIN);
	put_op(1, RP_DEFERRED_FLUSH);
	put_op(2, RP_DEFERRED_FLUSH);
	expect_sent(0, NULL);
	cr_assert(ack_as(RP_ST_STALE_KEY, 0));
	nothing_to_send();
	cr_assert(!rp_deferred_expire(&a, UINT64_MAX));
	expect_end(0, RP_DEFERRED_OK, 0);
	expect_end(1, RP_DEFERRED_REFUSED, RP_ST_STALE_KEY);
	expect_end(2, RP_DEFERRED_BEHIND_ERR, 0);
}

/* The reply to HELLO can only be a HELLO_ACK. */
Test(deferred, only_hello_ack_replies_to_hello)
{
	for (int i = 0; i < 3; i++) {
		open_deferred();
		put_op(0, RP_DEFERRED_FLUSH);
		if (i != 1)
			expect_sent(0, NULL);
		cr_assert(!(i == 0   ? receive_reply(1, RP_ST_OK)
			    : i == 1 ? receive_ack(64)
				     : sends_type(RP_MSG_PROGRESS)));
		expect_end(0, RP_DEFERRED_LOST, 0);
	}
}

Test(deferred, deadline_runs_while_a_request_is_outstanding)
{
	uint8_t msg[16];

	open_deferred();
	cr_assert(!rp_deferred_expire(&a, UINT64_MAX));
	put_op(0, RP_DEFERRED_FLUSH);
	expect_sent(5, NULL);
	cr_assert(!rp_deferred_expire(&a, 4 + DEADLINE));
	cr_assert(rp_deferred_expire(&a, 5 + DEADLINE));
	expect_end(0, RP_DEFERRED_LOST, 0);
	begin_open();
	cr_assert(!rp_deferred_expire(&a, DEADLINE - 1));
	/* A PROGRESS message is a heartbeat. */
	cr_assert_eq(rp_wire_put_signal(msg, sizeof(msg), RP_MSG_PROGRESS), 16);
	cr_assert(rp_deferred_receive(&a, 7, msg, 16));
	cr_assert(!rp_deferred_expire(&a, DEADLINE + 6));
	cr_assert(rp_deferred_expire(&a, DEADLINE + 7));
	cr_assert(!rp_deferred_expire(&a, UINT64_MAX));
	expect_end(0, RP_DEFERRED_LOST, 0);
	/* The deadline runs only while a request is outstanding. */
	begin_open();
	cr_assert(receive_reply(1, RP_ST_OK));
	expect_end(0, RP_DEFERRED_OK, 0);
	cr_assert(!rp_deferred_expire(&a, UINT64_MAX));
	put_op(1, RP_DEFERRED_FLUSH);
	expect_sent(DEADLINE, &items[1]);
	cr_assert(!rp_deferred_expire(&a, 2 * DEADLINE - 1ull));
	cr_assert(rp_deferred_expire(&a, 2 * DEADLINE));
}

/* --- pipelined requests --- */

static size_t pipeline_len(int i)
{
	items[i] = (struct rp_deferred_op){
		.kind = RP_DEFERRED_FLUSH,
		.key = KEY,
		.addr = 4096 + 64 * (uint64_t)i,
		.len = 64,
		.required = RP_CLASS_POWER,
	};
	return rp_deferred_pipeline(&a, &items[i], buf);
}

static struct rp_deferred_op *put_pipelined(int i)
{
	return pipeline_len(i) ? &items[i] : NULL;
}

static bool is_idle(void)
{
	return sends_type(RP_MSG_IDLE);
}

static void begin_polling(void)
{
	begin_open();
	cr_assert(sends_type(RP_MSG_POLLING));
}

/* Requests are pipelined after POLLING, until IDLE. */
Test(deferred, pipelined_while_the_agent_polls)
{
	struct rp_wire_request m = {.decoded = decoded};
	struct rp_wire_hdr hdr;
	size_t len;

	open_deferred();
	cr_assert_null(put_pipelined(1));
	put_op(0, RP_DEFERRED_FLUSH);
	expect_sent(0, NULL);
	cr_assert_null(put_pipelined(1));
	cr_assert(receive_ack(3));
	expect_sent(0, &items[0]);
	cr_assert_null(put_pipelined(1), "it has not said so");
	cr_assert(sends_type(RP_MSG_POLLING));
	len = pipeline_len(1);
	cr_assert_eq(rp_wire_get_hdr(buf, len, &hdr), 0);
	cr_assert_eq(rp_wire_get_request(buf, &hdr, &m), 0);
	cr_assert(m.nranges == 1 && m.level == RP_LEVEL_DURABLE &&
		  m.ranges[0].addr == items[1].addr && m.ranges[0].len == 64);
	cr_assert_eq(hdr.token, 2u);
	cr_assert_not_null(put_pipelined(2));
	/* A pipelined request needs a credit, too. */
	cr_assert_null(put_pipelined(3));
	cr_assert(receive_reply(1, RP_ST_OK));
	cr_assert_not_null(put_pipelined(3));
	cr_assert_eq(a.consumed, 0u);
	/*
	 * A reply to the third request of the ring proves that the agent has
	 * consumed the first two.
	 */
	cr_assert(receive_reply(4, RP_ST_OK));
	cr_assert_eq(a.consumed, 3u);
	cr_assert(receive_reply(2, RP_ST_OK));
	cr_assert_eq(a.consumed, 3u);
	cr_assert(is_idle());
	cr_assert_null(put_pipelined(4));
	cr_assert(!a.doorbell);
	for (int i = 1; i < 4; i++)
		rp_deferred_mark_placed(&a, 0, &items[i]);
	cr_assert(a.doorbell, "the third is in the ring");
	expect_end(0, RP_DEFERRED_OK, 0);
	expect_end(1, RP_DEFERRED_OK, 0);
	cr_assert_null(rp_deferred_take(&a));
	/* A reply does not prove that the agent polls again. */
	cr_assert(receive_reply(3, RP_ST_OK));
	cr_assert_null(put_pipelined(5));
	cr_assert(sends_type(RP_MSG_POLLING));
	cr_assert_not_null(put_pipelined(5));
}

Test(deferred, idle_agent_gets_a_doorbell)
{
	begin_polling();
	cr_assert(receive_reply(1, RP_ST_OK));
	expect_end(0, RP_DEFERRED_OK, 0);
	put_pipelined(1);
	rp_deferred_mark_placed(&a, 0, &items[1]);
	cr_assert(!a.doorbell);
	cr_assert(is_idle());
	cr_assert(a.doorbell);
	a.doorbell = false;
	cr_assert(receive_reply(2, RP_ST_OK));
	expect_end(1, RP_DEFERRED_OK, 0);
	/*
	 * The request is placed after IDLE: a DOORBELL before placement would
	 * find an empty ring.
	 */
	cr_assert(sends_type(RP_MSG_POLLING));
	put_pipelined(2);
	cr_assert(is_idle());
	cr_assert(!a.doorbell);
	rp_deferred_mark_placed(&a, 0, &items[2]);
	cr_assert(a.doorbell);
	a.doorbell = false;
	/* A request sent as a message needs no DOORBELL. */
	put_op(3, RP_DEFERRED_FLUSH);
	expect_sent(0, &items[3]);
	cr_assert(receive_reply(3, RP_ST_OK));
	expect_end(2, RP_DEFERRED_OK, 0);
	cr_assert(is_idle());
	cr_assert(!a.doorbell);
	rp_deferred_close(&a);
	cr_assert(!a.doorbell);
	expect_end(3, RP_DEFERRED_LOST, 0);
}

/*
 * The deadline of a pipelined request starts at its placement, even if its
 * reply came before.
 */
Test(deferred, deadline_runs_from_placement)
{
	begin_polling();
	cr_assert(receive_reply(1, RP_ST_OK));
	expect_end(0, RP_DEFERRED_OK, 0);
	put_pipelined(1);
	put_pipelined(2);
	cr_assert(!rp_deferred_expire(&a, UINT64_MAX));
	cr_assert(receive_reply(2, RP_ST_STALE_KEY));
	cr_assert_null(rp_deferred_take(&a));
	rp_deferred_mark_placed(&a, 0, &items[1]);
	cr_assert(!rp_deferred_expire(&a, UINT64_MAX));
	rp_deferred_mark_placed(&a, 9, &items[2]);
	cr_assert(!rp_deferred_expire(&a, 8 + DEADLINE));
	cr_assert(rp_deferred_expire(&a, 9 + DEADLINE));
	expect_end(1, RP_DEFERRED_REFUSED, RP_ST_STALE_KEY);
	expect_end(2, RP_DEFERRED_BEHIND_ERR, RP_ST_OK);
}

Test(deferred, withdrawn_request_takes_no_reply)
{
	begin_polling();
	put_pipelined(1);
	put_pipelined(2);
	rp_deferred_undo_pipeline(&a, &items[2]);
	rp_deferred_undo_pipeline(&a, &items[1]);
	cr_assert_eq(a.produced, 0u);
	cr_assert_eq(a.outstanding, 1u);
	/* No request with this token is outstanding. */
	cr_assert(!receive_reply(3, RP_ST_OK));
	expect_end(0, RP_DEFERRED_LOST, 0);
}

/* A request of a failed ring write may be placed, and may then get a reply. */
Test(deferred, dropped_request_takes_one_reply)
{
	begin_polling();
	put_pipelined(1);
	put_pipelined(2);
	rp_deferred_drop(&a, &items[1]);
	cr_assert(receive_reply(2, RP_ST_OK));
	cr_assert_eq(a.outstanding, 2u);
	cr_assert(receive_reply(1, RP_ST_OK));
	expect_end(0, RP_DEFERRED_OK, 0);
	/* The reply has already arrived, so another one is malformed. */
	cr_assert(receive_reply(3, RP_ST_OK));
	rp_deferred_drop(&a, &items[2]);
	cr_assert_eq(a.outstanding, 0u);
	cr_assert(!receive_reply(2, RP_ST_OK));
	/* Even after a drop, a reply needs a token that was used. */
	begin_polling();
	put_pipelined(1);
	rp_deferred_drop(&a, &items[1]);
	cr_assert(!receive_reply(3, RP_ST_OK));
	begin_polling();
	put_pipelined(1);
	rp_deferred_drop(&a, &items[1]);
	cr_assert(!receive_reply(0, RP_ST_OK));
}

/* Behind a failure no reply is due, not even to a request placed later. */
Test(deferred, no_deadline_from_placement_behind_a_failure)
{
	begin_polling();
	cr_assert(receive_reply(1, RP_ST_FLUSH_FAILED));
	put_pipelined(1);
	expect_end(0, RP_DEFERRED_REFUSED, RP_ST_FLUSH_FAILED);
	rp_deferred_mark_placed(&a, 0, &items[1]);
	cr_assert(!rp_deferred_expire(&a, UINT64_MAX));
	expect_end(1, RP_DEFERRED_BEHIND_ERR, 0);
}

/* A lost connection fails requests that are not placed yet, too. */
Test(deferred, pipelined_requests_are_lost)
{
	begin_polling();
	cr_assert(receive_reply(1, RP_ST_OK));
	expect_end(0, RP_DEFERRED_OK, 0);
	put_pipelined(1);
	put_pipelined(2);
	cr_assert(receive_reply(2, RP_ST_OK));
	rp_deferred_close(&a);
	rp_deferred_mark_placed(&a, 0, &items[1]);
	rp_deferred_mark_placed(&a, 0, &items[2]);
	expect_end(1, RP_DEFERRED_OK, 0);
	expect_end(2, RP_DEFERRED_LOST, 0);
	cr_assert_null(put_pipelined(3));
}

/* A loss without outstanding requests fails the next request. */
Test(deferred, loss_fails_the_next_request)
{
	begin_open();
	cr_assert(receive_reply(1, RP_ST_OK));
	expect_end(0, RP_DEFERRED_OK, 0);
	rp_deferred_close(&a);
	put_op(1, RP_DEFERRED_PLAIN);
	expect_end(1, RP_DEFERRED_OK, 0);
	put_op(2, RP_DEFERRED_FLUSH);
	nothing_to_send();
	expect_end(2, RP_DEFERRED_LOST, 0);
}

static uint8_t written[RP_DEFERRED_BYTES];

static size_t write_len(int i, size_t len)
{
	items[i] = (struct rp_deferred_op){
		.kind = RP_DEFERRED_WRITE,
		.key = KEY,
		.addr = 4096,
		.len = len,
		.required = RP_CLASS_POWER,
		.bytes = written,
	};
	return rp_deferred_pipeline(&a, &items[i], buf);
}

/* A pipelined write is a request with effect STORE. */
Test(deferred, writes_are_pipelined)
{
	static const size_t lens[] = {1, 8, 64, 255, RP_DEFERRED_BYTES};
	struct rp_wire_request m = {.decoded = decoded};
	struct rp_wire_hdr hdr;
	size_t len;

	for (size_t i = 0; i < RP_DEFERRED_BYTES; i++)
		written[i] = (uint8_t)(i * 7);
	begin_open();
	cr_assert(sends_type(RP_MSG_POLLING));
	for (int i = 0; i < 5; i++) {
		len = write_len(1 + i, lens[i]);
		cr_assert_eq(len, RP_WIRE_STORE_LEN(1, lens[i]));
		cr_assert_leq(len, RP_DEFERRED_MAX_RING_MSG);
		cr_assert_eq(rp_wire_get_hdr(buf, len, &hdr), 0);
		cr_assert_eq(rp_wire_get_request(buf, &hdr, &m), 0);
		cr_assert_eq(m.effect, RP_EFFECT_STORE);
		cr_assert_eq(m.required, RP_CLASS_POWER);
		cr_assert_eq(m.nranges, 1u);
		cr_assert_eq(m.ranges[0].len, lens[i]);
		cr_assert_arr_eq(m.bytes, written, lens[i]);
	}
}
