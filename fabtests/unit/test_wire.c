/* SPDX-License-Identifier: BSD-2-Clause */
/* The bytes of messages: golden values, round trips, limits, texts. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/atomic.h"
#include "seeded.h"
#include "wire_rig.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define GRANT                                                                  \
	"8887868584838281"                                                     \
	"9897969594939201"                                                     \
	"a8a7a6a5a4a3a201"                                                     \
	"b8b7b6b5b4b3b201"                                                     \
	"0205010000000000"

/* The golden bytes are the protocol: a change needs a new version. */
static const struct {
	uint8_t type;
	const char *hex;
} goldens[] = {
	{RP_MSG_HELLO, "5250020128000000" /* magic, version, type, length */
		       "0000000000000000"
		       "5857565554535251"
		       "4847464544434241"
		       "6463626172718281"},
	{RP_MSG_HELLO_ACK, "5250024150000000"
			   "0000000000000000"
			   "0000000064636261"
			   "3837363534333231"
			   "4241010000000000" GRANT},
	{RP_MSG_REQUEST, "5250020230000000"
			 "2827262524232221"
			 "0100020200000000"
			 "4847464544434241"
			 "5857565554535251"
			 "6867666564636261"},
	{RP_MSG_REPLY, "5250024223000000"
		       "2827262524232221"
		       "0000000044434241"
		       "a700525102020600"
		       "6f6c64"},
	{RP_MSG_QUERY, "5250020320000000"
		       "2827262524232221"
		       "4847464544434241"
		       "0100000000000000"},
	{RP_MSG_INFO, "5250024455000000"
		      "2827262524232221"
		      "0900000001010302"
		      "0302050000100000"
		      "6463626174737271" GRANT "746d706673"},
	{RP_MSG_PROGRESS, "5250024310000000"
			  "0000000000000000"},
	{RP_MSG_DOORBELL, "5250020410000000"
			  "0000000000000000"},
	{RP_MSG_POLLING, "5250024510000000"
			 "0000000000000000"},
	{RP_MSG_IDLE, "5250024610000000"
		      "0000000000000000"},
};

/* The golden bytes of each effect, behind the range of the REQUEST. */
static const struct {
	enum rp_effect effect;
	const char *hex;
} effects[] = {
	{RP_EFFECT_THEN, "5250020248000000"
			 "2827262524232221"
			 "0100020201000000"
			 "4847464544434241"
			 "5857565554535251"
			 "6867666564636261"
			 "8887868584838281"
			 "9897969594939291"
			 "a8a7a6a5a4a3a2a1"},
	{RP_EFFECT_NOTIFY, "5250020240000000"
			   "2827262524232221"
			   "0100020202000000"
			   "4847464544434241"
			   "5857565554535251"
			   "6867666564636261"
			   "b8b7b6b5b4b3b2b1"
			   "c2c1000000000000"},
	{RP_EFFECT_STORE, "5250020250000000"
			  "2827262524232221"
			  "0200020203000000"
			  "4847464544434241"
			  "5857565554535251"
			  "0500000000000000"
			  "0700000000000000"
			  "0800000000000000"
			  "0300000000000000"
			  "74687265656f6635"},
	{RP_EFFECT_ATOMIC, "5250020248000000"
			   "2827262524232221"
			   "0100020204000000"
			   "4847464544434241"
			   "5857565554535251"
			   "0800000000000000"
			   "0c05010000000000"
			   "6f706572616e6421"
			   "636f6d7061726521"},
	{RP_EFFECT_ZERO, "5250020230000000"
			 "2827262524232221"
			 "0100020205000000"
			 "4847464544434241"
			 "5857565554535251"
			 "0000100000000000"},
};

static void check_bytes(const struct wire_msg *m, const char *want)
{
	uint8_t buf[RP_WIRE_MAX_MSG], again[RP_WIRE_MAX_MSG];
	char hex[2 * RP_WIRE_MAX_MSG + 1] = "";
	struct wire_msg back;
	int len = wire_put(buf, sizeof(buf), m);

	cr_assert_gt(len, 0, "type %d: %d", m->type, len);
	for (int i = 0; i < len; i++)
		sprintf(hex + 2 * i, "%02x", buf[i]);
	cr_assert_str_eq(hex, want, "type %d", m->type);
	memset(&back, 0x5a, sizeof(back));
	cr_assert_eq(wire_get(buf, len, &back), 0);
	cr_assert_eq(back.type, m->type);
	/* Encoding the decoded message must restore the golden bytes. */
	cr_assert_eq(wire_put(again, sizeof(again), &back), len);
	cr_assert_eq(memcmp(buf, again, len), 0, "type %d", m->type);
}

Test(wire, goldens)
{
	struct wire_msg m;

	cr_assert_eq(COUNT(goldens), WIRE_TYPES);
	for (size_t i = 0; i < WIRE_TYPES; i++) {
		wire_example(goldens[i].type, &m);
		check_bytes(&m, goldens[i].hex);
	}
	for (size_t i = 0; i < COUNT(effects); i++) {
		wire_example_effect(effects[i].effect, &m);
		check_bytes(&m, effects[i].hex);
	}
}

/* Each field of every example is compared: no two are swapped. */
Test(wire, decoded_fields)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct wire_msg m, back;
	int len;

	wire_example_effect(RP_EFFECT_ATOMIC, &m);
	len = wire_put(buf, sizeof(buf), &m);
	cr_assert_eq(wire_get(buf, len, &back), 0);
	cr_assert_eq(back.request.ranges, back.ranges);
	cr_assert_eq(back.request.atomic.op, RP_ATOMIC_CSWAP);
	cr_assert_eq(back.request.atomic.datatype, RP_ATOMIC_UINT32);
	cr_assert(back.request.atomic.fetch);
	cr_assert_eq(back.request.atomic.operand, buf + 56);
	cr_assert_eq(back.request.atomic.compare, buf + 64);
	cr_assert_null(back.request.bytes);

	wire_example_effect(RP_EFFECT_STORE, &m);
	len = wire_put(buf, sizeof(buf), &m);
	cr_assert_eq(wire_get(buf, len, &back), 0);
	cr_assert_eq(back.request.bytes, buf + 24 + 2 * 24);
	cr_assert_eq(memcmp(back.ranges, m.ranges, 2 * sizeof(m.ranges[0])), 0);
	cr_assert_null(back.request.atomic.operand);

	wire_example(RP_MSG_HELLO, &m);
	len = wire_put(buf, sizeof(buf), &m);
	cr_assert_eq(wire_get(buf, len, &back), 0);
	cr_assert_eq(back.hello.key, m.hello.key);
	cr_assert_eq(back.hello.initiator, m.hello.initiator);
	cr_assert_eq(back.hello.timeout_ms, m.hello.timeout_ms);
	cr_assert_eq(back.hello.features, m.hello.features);
	cr_assert_eq(back.hello.port, m.hello.port);

	wire_example(RP_MSG_HELLO_ACK, &m);
	len = wire_put(buf, sizeof(buf), &m);
	cr_assert_eq(wire_get(buf, len, &back), 0);
	cr_assert_eq(back.hello_ack.grant.rkey, m.hello_ack.grant.rkey);
	cr_assert_eq(back.hello_ack.grant.remote_addr,
		     m.hello_ack.grant.remote_addr);
	cr_assert_eq(back.hello_ack.grant.addr, m.hello_ack.grant.addr);
	cr_assert_eq(back.hello_ack.grant.length, m.hello_ack.grant.length);
	cr_assert(back.hello_ack.grant.writable);
	cr_assert_not(back.hello_ack.grant.unreadable);
	m.hello_ack.grant.unreadable = true;
	len = wire_put(buf, sizeof(buf), &m);
	cr_assert_eq(wire_get(buf, len, &back), 0);
	cr_assert(back.hello_ack.grant.writable);
	cr_assert(back.hello_ack.grant.unreadable);

	wire_example(RP_MSG_REPLY, &m);
	len = wire_put(buf, sizeof(buf), &m);
	cr_assert_eq(wire_get(buf, len, &back), 0);
	cr_assert_eq(back.token, m.token);
	cr_assert_eq(back.reply.result, buf + 32);
	cr_assert_eq(back.reply.result_len, 3);
	m.reply.result_len = 0;
	len = wire_put(buf, sizeof(buf), &m);
	cr_assert_eq(len, 32);
	cr_assert_eq(wire_get(buf, len, &back), 0);
	cr_assert_null(back.reply.result);
}

/* A durable store of 64 bytes has 128 bytes, which tcp injects. */
Test(wire, small_store_is_injected)
{
	const uint8_t bytes[64] = {1};
	uint8_t buf[128];
	struct wire_msg m;

	wire_example_effect(RP_EFFECT_STORE, &m);
	m.request.nranges = 1;
	m.ranges[0].len = sizeof(bytes);
	m.request.bytes = bytes;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), 112);
	cr_assert_eq(RP_WIRE_STORE_LEN(1, 64), 112);
	/* REPLY and the messages that connect have at most 128 bytes, too. */
	wire_example(RP_MSG_REPLY, &m);
	m.reply.result_len = 0;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), 32);
	wire_example(RP_MSG_HELLO, &m);
	cr_assert_leq(wire_put(buf, sizeof(buf), &m), RP_WIRE_CM_DATA);
	wire_example(RP_MSG_HELLO_ACK, &m);
	cr_assert_leq(wire_put(buf, sizeof(buf), &m), RP_WIRE_CM_ACK);
}

/* The bytes of a store may follow in a second piece: counted, not copied. */
Test(wire, store_without_its_bytes)
{
	uint8_t whole[RP_WIRE_MAX_MSG], head[RP_WIRE_MAX_MSG];
	struct wire_msg m, back;
	int len, part;

	wire_example_effect(RP_EFFECT_STORE, &m);
	len = wire_put(whole, sizeof(whole), &m);
	m.request.bytes = NULL;
	memset(head, 0x5a, sizeof(head));
	part = wire_put(head, (size_t)len - 8, &m);
	cr_assert_eq(part, len - 8);
	cr_assert_eq(memcmp(head, whole, part), 0);
	cr_assert_eq(head[part], 0x5a);
	cr_assert_eq(wire_put(head, (size_t)part - 1, &m), -EMSGSIZE);
	cr_assert_eq(wire_get(head, part, &back), -EBADMSG);
	memcpy(head + part, "threeof5", 8);
	cr_assert_eq(wire_get(head, len, &back), 0);
	cr_assert_eq(back.request.bytes, head + part);
}

static const uint8_t bytes[RP_WIRE_MAX_STORE] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

static void random_grant(struct seeded *s, struct rp_wire_grant *g)
{
	*g = (struct rp_wire_grant){
		.rkey = seeded_next(s),
		.remote_addr = seeded_next(s) >> 1,
		.addr = seeded_next(s) >> 1,
		.length = 1 + (seeded_next(s) >> 1),
		.class = seeded_below(s, 3),
		.method = seeded_below(s, RP_METHOD_MAX),
		.writable = seeded_below(s, 2),
		.unreadable = seeded_below(s, 2),
	};
}

/* Make random ranges, which can or cannot be packed. */
static void random_ranges(struct seeded *s, struct wire_msg *m, size_t n)
{
	bool row = seeded_below(s, 2);
	uint64_t at = 0;

	for (size_t i = 0; i < n; i++) {
		struct rp_wire_range *r = &m->ranges[i];

		*r = (struct rp_wire_range){seeded_next(s), seeded_next(s),
					    seeded_next(s)};
		if (!row)
			continue;
		r->key = m->ranges[0].key;
		r->addr = at + seeded_below(s, 5000);
		r->len = 1 + seeded_below(s, 3);
		at = r->addr + r->len;
	}
}

static void random_request(struct seeded *s, struct wire_msg *m)
{
	struct rp_wire_request *q = &m->request;
	size_t n = 1 + seeded_below(s, RP_WIRE_MAX_RANGES), size = 1;

	q->effect = seeded_below(s, RP_EFFECT_ZERO + 1);
	q->level = q->effect == RP_EFFECT_THEN ? RP_LEVEL_DURABLE
					       : 1 + seeded_below(s, 2);
	q->required = seeded_below(s, 3);
	q->packed = seeded_below(s, 2);
	q->then = (struct rp_wire_then){seeded_next(s), seeded_next(s),
					seeded_next(s)};
	q->data = seeded_next(s);
	q->bytes = q->atomic.operand = q->atomic.compare = bytes;
	q->ranges = m->ranges;
	if (q->effect >= RP_EFFECT_STORE)
		n = 1 + seeded_below(s, 20);
	q->nranges = n;
	random_ranges(s, m, n);
	if (q->effect < RP_EFFECT_STORE)
		return;
	do {
		q->atomic.op = seeded_below(s, RP_ATOMIC_OPS);
		q->atomic.datatype = seeded_below(s, RP_ATOMIC_TYPES);
	} while (!rp_atomic_valid(q->atomic.op, q->atomic.datatype, &size));
	q->atomic.fetch = seeded_below(s, 2);
	while (n--)
		m->ranges[n].len = (1 + seeded_below(s, 10)) * size;
}

static void random_message(struct seeded *s, uint8_t type, struct wire_msg *m)
{
	size_t n;

	memset(m, 0, sizeof(*m));
	m->type = type;
	m->token = seeded_next(s);
	switch (type) {
	case RP_MSG_HELLO:
		m->hello = (struct rp_wire_hello){
			.key = seeded_next(s),
			.initiator = seeded_next(s),
			.timeout_ms = seeded_next(s),
			.features = seeded_next(s),
			.port = seeded_next(s),
		};
		break;
	case RP_MSG_HELLO_ACK:
		m->hello_ack.status = seeded_below(s, 16);
		m->hello_ack.detail = seeded_next(s);
		if (m->hello_ack.status)
			break;
		m->hello_ack.incarnation = seeded_next(s) | 1;
		m->hello_ack.credits = seeded_next(s) | 1;
		m->hello_ack.features = seeded_below(s, RP_FEATURES + 1);
		random_grant(s, &m->hello_ack.grant);
		break;
	case RP_MSG_REQUEST:
		random_request(s, m);
		break;
	case RP_MSG_REPLY:
		m->reply.status = seeded_below(s, 2) * seeded_below(s, 64);
		m->reply.range = seeded_below(s, RP_WIRE_MAX_PACKED + 1);
		m->reply.detail = seeded_next(s);
		m->reply.credits = seeded_next(s);
		if (m->reply.status)
			break;
		m->reply.level = 1 + seeded_below(s, 2);
		m->reply.class = seeded_below(s, 3);
		m->reply.method = seeded_below(s, RP_METHOD_MAX);
		m->reply.result = bytes;
		m->reply.result_len = seeded_below(s, 2) *
				      seeded_below(s, RP_WIRE_MAX_STORE + 1);
		break;
	case RP_MSG_QUERY:
		m->query.key = seeded_next(s);
		m->query.required = seeded_below(s, 3);
		break;
	case RP_MSG_INFO:
		m->info.status = seeded_below(s, 64);
		m->info.class = seeded_below(s, 3);
		m->info.method = seeded_below(s, RP_METHOD_MAX);
		m->info.memory = seeded_below(s, RP_MEM_EMULATED + 1);
		m->info.placement = seeded_below(s, RP_PLACE_DMA_MEMORY + 1);
		m->info.domain = seeded_below(s, RP_DOMAIN_SYSTEM + 1);
		m->info.refusal = seeded_below(s, RP_REFUSAL_UNKNOWN + 1);
		m->info.granularity = seeded_next(s);
		m->info.preferred_size = seeded_next(s);
		m->info.preferred_align = seeded_next(s);
		if (!m->info.status || seeded_below(s, 2))
			random_grant(s, &m->info.grant);
		n = seeded_below(s, RP_WHY_LEN);
		while (n--)
			m->info.why[n] = ' ' + seeded_below(s, 95);
		break;
	}
}

Test(wire, round_trip)
{
	static uint8_t buf[RP_WIRE_MAX_MSG], again[RP_WIRE_MAX_MSG];
	static struct wire_msg m, back;
	struct seeded s = seeded_start();

	for (int i = 0; i < 20000; i++) {
		int len;

		random_message(&s, wire_types[i % WIRE_TYPES], &m);
		len = wire_put(buf, sizeof(buf), &m);
		cr_assert_gt(len, 0, "seed %" PRIu64 " round %d", s.seed, i);
		memset(&back, 0x5a, sizeof(back));
		cr_assert_eq(wire_get(buf, len, &back), 0,
			     "seed %" PRIu64 " round %d", s.seed, i);
		cr_assert(wire_put(again, sizeof(again), &back) == len &&
				  !memcmp(buf, again, len),
			  "seed %" PRIu64 " round %d", s.seed, i);
		if (m.type == RP_MSG_REQUEST)
			cr_assert_eq(
				memcmp(m.ranges, back.ranges,
				       m.request.nranges * sizeof(*m.ranges)),
				0);
	}
}

/* A text of the greatest length must not overflow its buffer. */
Test(wire, info_longest_sentence)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct wire_msg m, back;
	uint32_t total;
	int len;

	wire_example(RP_MSG_INFO, &m);
	memset(m.info.why, 'x', RP_WHY_LEN - 1);
	len = wire_put(buf, sizeof(buf), &m);
	cr_assert_eq(len, 80 + RP_WHY_LEN - 1);
	memset(&back, 0x5a, sizeof(back));
	cr_assert_eq(wire_get(buf, len, &back), 0);
	cr_assert_eq(strlen(back.info.why), RP_WHY_LEN - 1);

	/* A text of 256 bytes leaves no room for the NUL. */
	buf[26] = 0;
	buf[27] = 1;
	buf[len] = 'x';
	total = len + 1;
	memcpy(buf + 4, &total, 4);
	cr_assert_eq(wire_get(buf, total, &back), -EBADMSG);

	/* The encoder refuses an unterminated text. */
	memset(m.info.why, 'x', RP_WHY_LEN);
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), -EINVAL);
}

Test(wire, sentence_is_made_printable)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct wire_msg m, back;
	int len;

	wire_example(RP_MSG_INFO, &m);
	strcpy(m.info.why, "a\033[2J\xc3\xa9\n");
	len = wire_put(buf, sizeof(buf), &m);
	cr_assert_eq(wire_get(buf, len, &back), 0);
	cr_assert_str_eq(back.info.why, "a?[2J???");

	/* The first and the last valid character, and their neighbours. */
	strcpy(m.info.why, "\x1f\x20\x7e\x7f");
	len = wire_put(buf, sizeof(buf), &m);
	cr_assert_eq(memcmp(buf + 80, "? ~?", 4), 0);
	cr_assert_eq(wire_get(buf, len, &back), 0);
	cr_assert_str_eq(back.info.why, "? ~?");
	buf[80] = 0x1f;
	cr_assert_eq(wire_get(buf, len, &back), -EBADMSG);
	buf[80] = 0x20;
	buf[83] = 0x7f;
	cr_assert_eq(wire_get(buf, len, &back), -EBADMSG);
}

Test(wire, largest_request)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct wire_msg m;

	wire_example_effect(RP_EFFECT_THEN, &m);
	m.request.nranges = RP_WIRE_MAX_RANGES;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m),
		     48 + 24 * RP_WIRE_MAX_RANGES);
	m.request.nranges++;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), -EINVAL);
}

/* A request without ranges is a fence. */
Test(wire, request_without_ranges)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct wire_msg m, back;

	wire_example(RP_MSG_REQUEST, &m);
	m.request.nranges = 0;
	m.request.level = RP_LEVEL_VISIBLE;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), 24);
	cr_assert_eq(wire_get(buf, 24, &back), 0);
	cr_assert_eq(back.request.nranges, 0);
	buf[18] = RP_LEVEL_DURABLE;
	cr_assert_eq(wire_get(buf, 24, &back), -EBADMSG);
	m.request.level = RP_LEVEL_DURABLE;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), -EINVAL);
	for (int e = RP_EFFECT_THEN; e <= RP_EFFECT_ATOMIC; e++) {
		wire_example_effect(e, &m);
		m.request.nranges = 0;
		m.request.level = RP_LEVEL_VISIBLE;
		cr_assert_eq(wire_put(buf, sizeof(buf), &m), -EINVAL);
	}
}

Test(wire, largest_store)
{
	static const uint64_t wrong[] = {RP_WIRE_MAX_STORE + 1, UINT64_MAX, 0};
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct wire_msg m, back;
	int len;

	wire_example_effect(RP_EFFECT_STORE, &m);
	m.request.bytes = bytes;
	m.request.nranges = 1;
	m.ranges[0].len = RP_WIRE_MAX_STORE;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), 48 + RP_WIRE_MAX_STORE);
	cr_assert_eq(wire_put(buf, 47 + RP_WIRE_MAX_STORE, &m), -EMSGSIZE);
	for (size_t i = 0; i < COUNT(wrong); i++) {
		m.ranges[0].len = wrong[i];
		cr_assert_eq(wire_put(buf, sizeof(buf), &m), -EINVAL);
	}
	/* The sum of all lengths has the limit of one; it cannot wrap. */
	m.request.nranges = 2;
	m.ranges[0].len = 5;
	m.ranges[1].len = 3;
	len = wire_put(buf, sizeof(buf), &m);
	cr_assert_eq(len, RP_WIRE_STORE_LEN(2, 8));
	for (size_t i = 0; i < COUNT(wrong); i++) {
		const uint64_t v = wrong[i] ? wrong[i] - 4 : 0;

		m.ranges[1].len = v;
		cr_assert_eq(wire_put(buf, sizeof(buf), &m), -EINVAL);
		memcpy(buf + 64, &v, 8);
		cr_assert_eq(wire_get(buf, len, &back), -EBADMSG);
	}
	/* The data fits, but not behind six ranges. */
	m.request.nranges = 6;
	for (int i = 0; i < 6; i++)
		m.ranges[i].len = i ? 1 : RP_WIRE_MAX_STORE - 5;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), -EINVAL);
	m.ranges[0].len = RP_WIRE_MAX_MSG - RP_WIRE_STORE_LEN(6, 5);
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), RP_WIRE_MAX_MSG);
}

Test(wire, atomics)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct wire_msg m, back;
	int len;

	/* An atomic read has no operands. */
	wire_example_effect(RP_EFFECT_ATOMIC, &m);
	m.request.atomic = (struct rp_wire_atomic){
		.op = RP_ATOMIC_READ,
		.datatype = RP_ATOMIC_UINT64,
		.fetch = true,
		.operand = bytes,
		.compare = bytes,
	};
	m.ranges[0].len = RP_WIRE_MAX_STORE;
	len = wire_put(buf, sizeof(buf), &m);
	cr_assert_eq(len, 56);
	cr_assert_eq(wire_get(buf, len, &back), 0);
	cr_assert_null(back.request.atomic.operand);
	cr_assert_null(back.request.atomic.compare);
	/* The result of an atomic must fit into a REPLY. */
	m.ranges[0].len = RP_WIRE_MAX_STORE + 8;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), -EINVAL);
	/* One operand per element; half as many with a comparison. */
	m.request.atomic.op = RP_ATOMIC_SUM;
	m.ranges[0].len = RP_WIRE_MAX_STORE;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), 56 + RP_WIRE_MAX_STORE);
	m.request.atomic.op = RP_ATOMIC_CSWAP;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), -EINVAL);
	m.ranges[0].len = RP_WIRE_MAX_STORE / 2;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), 56 + RP_WIRE_MAX_STORE);
	/* The length must be a multiple of the element size. */
	m.ranges[0].len = 12;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), -EINVAL);
	m.request.atomic.datatype = RP_ATOMIC_UINT32;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), 56 + 2 * 12);
	buf[49] = RP_ATOMIC_UINT64;
	cr_assert_eq(wire_get(buf, 80, &back), -EBADMSG);
	/* libfabric does not have this operation for this datatype. */
	m.request.atomic.op = RP_ATOMIC_BOR;
	m.request.atomic.datatype = RP_ATOMIC_FLOAT;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), -EINVAL);
	/* The operands are missing. */
	m.request.atomic.datatype = RP_ATOMIC_UINT32;
	m.request.atomic.operand = NULL;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), -EINVAL);
	m.request.atomic.op = RP_ATOMIC_CSWAP;
	m.request.atomic.operand = bytes;
	m.request.atomic.compare = NULL;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), -EINVAL);
}

/* Ranges are packed if that is shorter; see test_wire_pack.c. */
Test(wire, packed_ranges)
{
	static const uint8_t want[] = {2,    0,	   2,	 2,    0,    1,	   0,
				       0,    0x48, 0x47, 0x46, 0x45, 0x44, 0x43,
				       0x42, 0x41, 64,	 32,   0x80, 1,	   8};
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct wire_msg m, back;
	int len;

	wire_example(RP_MSG_REQUEST, &m);
	m.request.packed = true;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), 48);
	cr_assert_eq(buf[21], 0);
	m.request.nranges = 2;
	m.ranges[0].addr = 32;
	m.ranges[0].len = 32;
	m.ranges[1] = (struct rp_wire_range){m.ranges[0].key, 64 + 64, 8};
	len = wire_put(buf, sizeof(buf), &m);
	cr_assert_eq(len, 16 + (int)sizeof(want));
	cr_assert_eq(memcmp(buf + 16, want, sizeof(want)), 0);
	cr_assert_eq(wire_put(buf, (size_t)len - 1, &m), -EMSGSIZE);
	cr_assert_eq(wire_get(buf, len, &back), 0);
	cr_assert(back.request.packed);
	cr_assert_eq(back.request.nranges, 2);
	cr_assert_eq(memcmp(back.ranges, m.ranges, 2 * sizeof(m.ranges[0])), 0);
	/* One range out of order prevents packing. */
	m.ranges[1].addr = 0;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), 24 + 48);
	cr_assert_eq(wire_get(buf, 24 + 48, &back), 0);
	cr_assert(!back.request.packed);
	m.request.nranges = RP_WIRE_MAX_RANGES + 1;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), -EINVAL);
}

/* More ranges than fit unpacked, with every effect. */
Test(wire, packed_ranges_with_effects)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct wire_msg m, back;

	for (int e = RP_EFFECT_NONE; e <= RP_EFFECT_ATOMIC; e++) {
		int len;

		wire_example_effect(e, &m);
		m.request.packed = true;
		m.request.bytes = bytes;
		m.request.atomic.operand = m.request.atomic.compare = bytes;
		m.request.nranges = RP_WIRE_MAX_RANGES + 1;
		for (int i = 0; i < m.request.nranges; i++)
			m.ranges[i] = (struct rp_wire_range){
				m.ranges[0].key, (uint64_t)i * 64, 8};
		len = wire_put(buf, sizeof(buf), &m);
		cr_assert_gt(len, 32);
		cr_assert_eq(wire_get(buf, len, &back), 0);
		cr_assert_eq(back.request.nranges, m.request.nranges);
		cr_assert_eq(memcmp(back.ranges, m.ranges,
				    m.request.nranges * sizeof(m.ranges[0])),
			     0);
		cr_assert_eq(back.request.data, m.request.data);
		cr_assert_eq(back.request.then.value, m.request.then.value);
		for (size_t size = 0; size < (size_t)len; size++)
			cr_assert_eq(wire_put(buf, size, &m), -EMSGSIZE);
	}
}

/* Ranges at the end of the address space, and the longest result. */
Test(wire, ranges_end_at_the_last_address)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct wire_msg m, back;
	struct rp_wire_grant *g = &m.hello_ack.grant;

	wire_example(RP_MSG_HELLO_ACK, &m);
	g->addr = g->remote_addr = UINT64_MAX - g->length;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), 80);
	cr_assert_eq(wire_get(buf, 80, &back), 0);
	g->addr++;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), -EINVAL);
	g->addr--;
	g->remote_addr++;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), -EINVAL);

	wire_example(RP_MSG_REPLY, &m);
	m.reply.result = bytes;
	m.reply.result_len = RP_WIRE_MAX_STORE;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), RP_WIRE_MAX_REPLY);
	cr_assert_eq(wire_get(buf, RP_WIRE_MAX_REPLY, &back), 0);
	cr_assert_eq(back.reply.result_len, RP_WIRE_MAX_STORE);
}

/* RDMA CM pads private data with zeros. */
Test(wire, padding_of_private_data)
{
	uint8_t req[RP_WIRE_CM_DATA] = {0}, ack[RP_WIRE_CM_ACK] = {0};
	struct rp_wire_hello_ack a;
	struct rp_wire_hello h;
	struct wire_msg m;
	int len;

	wire_example(RP_MSG_HELLO, &m);
	len = wire_put(req, sizeof(req), &m);
	for (size_t n = 0; n <= sizeof(req); n++)
		cr_assert_eq(rp_wire_get_hello(req, n, &h),
			     n < (size_t)len ? -EBADMSG : 0);
	req[len] = 1;
	cr_assert_eq(rp_wire_get_hello(req, (size_t)len, &h), 0);
	cr_assert_eq(rp_wire_get_hello(req, sizeof(req), &h), -EBADMSG);

	wire_example(RP_MSG_HELLO_ACK, &m);
	len = wire_put(ack, sizeof(ack), &m);
	for (size_t n = 0; n <= sizeof(ack); n++)
		cr_assert_eq(rp_wire_get_hello_ack(ack, n, &a),
			     n < (size_t)len ? -EBADMSG : 0);
	ack[sizeof(ack) - 1] = 1;
	cr_assert_eq(rp_wire_get_hello_ack(ack, sizeof(ack), &a), -EBADMSG);
}
