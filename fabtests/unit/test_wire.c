/* SPDX-License-Identifier: BSD-2-Clause */
/* Byte layout of messages: goldens, round trips, sentences. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "seeded.h"
#include "wire_rig.h"

/* These bytes are the protocol: a change here is a new version. */
static const struct {
	uint8_t type;
	const char *hex;
} goldens[] = {
	{RP_MSG_HELLO, "525001013d000000" /* magic, version, type, length */
		       "0000000000000000"
		       "2827262524232221"
		       "3837363534333231"
		       "4847464544434241"
		       "5857565554535251"
		       "881300006261"
		       "0500"
		       "02007f0001"},
	{RP_MSG_HELLO_ACK, "5250014138000000"
			   "1817161514131211"
			   "2827262524232221"
			   "3837363534333231"
			   "4847464544434241"
			   "000000004000a800"
			   "0100000000000000"},
	{RP_MSG_REQUEST, "5250010240000000"
			 "1817161514131211"
			 "2827262524232221"
			 "3837363534333231"
			 "0100020200000000"
			 "4847464544434241"
			 "5857565554535251"
			 "6867666564636261"},
	{RP_MSG_REPLY, "5250014230000000"
		       "1817161514131211"
		       "2827262524232221"
		       "3837363534333231"
		       "000000000202a700"
		       "4443424152510600"},
	{RP_MSG_QUERY, "5250010330000000"
		       "1817161514131211"
		       "2827262524232221"
		       "3837363534333231"
		       "4847464544434241"
		       "0100000000000000"},
	{RP_MSG_INFO, "525001444f000000"
		      "1817161514131211"
		      "2827262524232221"
		      "3837363534333231"
		      "0900000001010301"
		      "0302000000100000"
		      "4847464544434241"
		      "5857565554535251"
		      "6463626174737271"
		      "0500"
		      "746d706673"},
	{RP_MSG_CONNECT, "5250010530000000"
			 "1817161514131211"
			 "2827262524232221"
			 "3837363534333231"
			 "4847464544434241"
			 "5857565554535251"},
	{RP_MSG_OFFER, "5250014565000000"
		       "1817161514131211"
		       "2827262524232221"
		       "3837363534333231"
		       "0000000002020500"
		       "4847464544434241"
		       "5857565554535251"
		       "6867666564636261"
		       "7877767574737271"
		       "0807060504030201"
		       "1817161514131211"
		       "2827262524232221"
		       "02007f0001"},
	{RP_MSG_BYE, "5250010420000000"
		     "1817161514131211"
		     "2827262524232221"
		     "3837363534333231"},
	{RP_MSG_PROGRESS, "5250014320000000"
			  "1817161514131211"
			  "2827262524232221"
			  "3837363534333231"},
};

Test(wire, goldens)
{
	cr_assert_eq(sizeof(goldens) / sizeof(goldens[0]), WIRE_TYPES);
	for (size_t i = 0; i < WIRE_TYPES; i++) {
		uint8_t buf[RP_WIRE_MAX_MSG], again[RP_WIRE_MAX_MSG];
		char hex[2 * RP_WIRE_MAX_MSG + 1] = "";
		struct rp_wire_hdr hdr, back;
		union body b, c = {0};
		int len;

		wire_example(goldens[i].type, &hdr, &b);
		len = wire_put(buf, sizeof(buf), &hdr, &b);
		cr_assert_gt(len, 0, "type %d: %d", goldens[i].type, len);
		for (int j = 0; j < len; j++)
			sprintf(hex + 2 * j, "%02x", buf[j]);
		cr_assert_str_eq(hex, goldens[i].hex, "type %d",
				 goldens[i].type);

		cr_assert_eq(rp_wire_get_hdr(buf, len, &back), 0);
		cr_assert_eq(back.version, 1);
		cr_assert_eq(back.type, hdr.type);
		cr_assert_eq(back.length, (uint32_t)len);
		cr_assert_eq(back.session, hdr.session);
		cr_assert_eq(back.token, hdr.token);
		cr_assert_eq(back.incarnation, hdr.incarnation);
		cr_assert_eq(wire_get(buf, &back, &c), 0);
		/* Every field is in the bytes, padding is not. */
		cr_assert_eq(wire_put(again, sizeof(again), &back, &c), len);
		cr_assert_eq(memcmp(buf, again, len), 0, "type %d", hdr.type);
	}
}

/* What may be injected through ofi_rxm: 64 bytes. */
Test(wire, small_messages_are_an_inject)
{
	uint8_t buf[64];
	struct rp_wire_hdr hdr;
	union body b;

	wire_example(RP_MSG_REQUEST, &hdr, &b);
	cr_assert_eq(wire_put(buf, sizeof(buf), &hdr, &b), 64);
	wire_example(RP_MSG_REPLY, &hdr, &b);
	cr_assert_gt(wire_put(buf, sizeof(buf), &hdr, &b), 0);
	wire_example(RP_MSG_HELLO_ACK, &hdr, &b);
	cr_assert_gt(wire_put(buf, sizeof(buf), &hdr, &b), 0);
	wire_example(RP_MSG_PROGRESS, &hdr, &b);
	cr_assert_gt(wire_put(buf, sizeof(buf), &hdr, &b), 0);
}

static const uint8_t stored[RP_WIRE_MAX_STORE] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

static void random_message(struct seeded *s, uint8_t type,
			   struct rp_wire_hdr *hdr, union body *b)
{
	size_t n;

	memset(b, 0, sizeof(*b));
	*hdr = (struct rp_wire_hdr){
		.type = type,
		.session = type == RP_MSG_HELLO ? 0 : seeded_next(s),
		.token = seeded_next(s),
		.incarnation = seeded_next(s),
	};
	switch (type) {
	case RP_MSG_HELLO:
		n = 1 + seeded_below(s, RP_WIRE_MAX_ADDR);
		b->hello.cookie = seeded_next(s) | 1;
		b->hello.key = seeded_next(s);
		b->hello.timeout_ms = seeded_next(s);
		b->hello.features = seeded_next(s);
		b->hello.addr_len = n;
		while (n--)
			b->hello.addr[n] = seeded_next(s);
		break;
	case RP_MSG_HELLO_ACK:
		b->hello_ack.status = seeded_below(s, 16);
		if (b->hello_ack.status)
			break;
		b->hello_ack.cookie = seeded_next(s) | 1;
		b->hello_ack.credits = seeded_next(s) | 1;
		b->hello_ack.max_ranges =
			1 + seeded_below(s, RP_WIRE_MAX_RANGES);
		b->hello_ack.features = seeded_below(s, RP_FEATURES + 1);
		break;
	case RP_MSG_REQUEST:
		b->request.effect = seeded_below(s, 4);
		n = 1 +
		    seeded_below(s, RP_WIRE_MAX_RANGES - !!b->request.effect);
		b->request.level = RP_LEVEL_DURABLE;
		if (!b->request.effect || b->request.effect == RP_EFFECT_STORE)
			b->request.level = 1 + seeded_below(s, 2);
		if (b->request.effect == RP_EFFECT_STORE)
			n = b->request.level == RP_LEVEL_DURABLE
				    ? 1
				    : 1 + seeded_below(s, 20);
		b->request.nranges = n;
		if (b->request.effect)
			b->request.seq = seeded_next(s) | 1;
		if (b->request.effect == RP_EFFECT_THEN)
			b->request.then = (struct rp_wire_then){
				seeded_next(s), seeded_next(s), seeded_next(s)};
		if (b->request.effect == RP_EFFECT_NOTIFY)
			b->request.data = seeded_next(s);
		b->request.required = seeded_below(s, 3);
		while (n--)
			b->request.ranges[n] = (struct rp_wire_range){
				seeded_next(s), seeded_next(s), seeded_next(s)};
		if (b->request.effect != RP_EFFECT_STORE)
			break;
		b->request.bytes = stored;
		for (n = 0; n < b->request.nranges; n++)
			b->request.ranges[n].len =
				1 +
				seeded_below(s, b->request.nranges > 1
							? 180
							: RP_WIRE_MAX_STORE);
		break;
	case RP_MSG_REPLY:
		b->reply.status = seeded_below(s, 2) * seeded_below(s, 64);
		b->reply.range = seeded_below(s, RP_WIRE_MAX_RANGES);
		b->reply.detail = seeded_next(s);
		b->reply.credits = seeded_next(s);
		if (b->reply.status)
			break;
		b->reply.level = 1 + seeded_below(s, 2);
		b->reply.class = seeded_below(s, 3);
		b->reply.method = seeded_below(s, RP_METHOD_MAX);
		if (b->reply.level != RP_LEVEL_DURABLE)
			break;
		b->reply.grant = seeded_below(s, RP_METHOD_FENCE + 1);
		if (b->reply.grant) {
			b->reply.addr = seeded_next(s) >> 1;
			b->reply.length = 1 + (seeded_next(s) >> 1);
		}
		break;
	case RP_MSG_QUERY:
		b->query.key = seeded_next(s);
		b->query.required = seeded_below(s, 3);
		break;
	case RP_MSG_INFO:
		b->info.status = seeded_below(s, 64);
		b->info.class = seeded_below(s, 3);
		b->info.method = seeded_below(s, RP_METHOD_MAX);
		b->info.memory = seeded_below(s, RP_MEM_EMULATED + 1);
		b->info.placement = seeded_below(s, RP_PLACE_DMA_MEMORY + 1);
		b->info.domain = seeded_below(s, RP_DOMAIN_SYSTEM + 1);
		b->info.refusal = seeded_below(s, RP_REFUSAL_UNKNOWN + 1);
		b->info.granularity = seeded_next(s);
		b->info.length = seeded_next(s);
		b->info.addr = seeded_next(s);
		b->info.preferred_size = seeded_next(s);
		b->info.preferred_align = seeded_next(s);
		n = seeded_below(s, RP_WHY_LEN);
		while (n--)
			b->info.why[n] = ' ' + seeded_below(s, 95);
		break;
	case RP_MSG_CONNECT:
		b->connect.id = seeded_next(s) | 1;
		b->connect.key = seeded_next(s);
		break;
	case RP_MSG_OFFER:
		b->offer.id = seeded_next(s) | 1;
		b->offer.key = seeded_next(s);
		b->offer.status = seeded_below(s, 2) * seeded_below(s, 64);
		if (b->offer.status)
			break;
		n = 1 + seeded_below(s, RP_WIRE_MAX_ADDR);
		b->offer.method = 1 + seeded_below(s, 2);
		b->offer.class = seeded_below(s, 3);
		b->offer.addr_len = n;
		b->offer.secret = seeded_next(s) | 1;
		b->offer.there = seeded_next(s);
		b->offer.at = seeded_next(s) >> 1;
		b->offer.addr = seeded_next(s) >> 1;
		b->offer.length = 1 + (seeded_next(s) >> 1);
		while (n--)
			b->offer.to[n] = seeded_next(s);
		break;
	}
}

Test(wire, round_trip)
{
	struct seeded s = seeded_start();

	for (int i = 0; i < 20000; i++) {
		uint8_t buf[RP_WIRE_MAX_MSG], again[RP_WIRE_MAX_MSG];
		struct rp_wire_hdr hdr, back;
		union body b, c;
		int len;

		random_message(&s, wire_types[i % WIRE_TYPES], &hdr, &b);
		len = wire_put(buf, sizeof(buf), &hdr, &b);
		cr_assert_gt(len, 0, "seed %" PRIu64 " round %d", s.seed, i);
		memset(&c, 0x5a, sizeof(c));
		cr_assert(!rp_wire_get_hdr(buf, len, &back) &&
				  !wire_get(buf, &back, &c),
			  "seed %" PRIu64 " round %d", s.seed, i);
		cr_assert(wire_put(again, sizeof(again), &back, &c) == len &&
				  !memcmp(buf, again, len),
			  "seed %" PRIu64 " round %d", s.seed, i);
		if (hdr.type == RP_MSG_REQUEST)
			cr_assert_eq(memcmp(b.request.ranges, c.request.ranges,
					    b.request.nranges *
						    sizeof(*b.request.ranges)),
				     0);
	}
}

/* A sentence as long as its length field can say must not run over. */
Test(wire, info_longest_sentence)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_hdr hdr, back;
	union body b, c;
	int len;

	wire_example(RP_MSG_INFO, &hdr, &b);
	memset(b.info.why, 'x', RP_WHY_LEN - 1);
	len = wire_put(buf, sizeof(buf), &hdr, &b);
	cr_assert_eq(len, 74 + RP_WHY_LEN - 1);
	memset(&c, 0x5a, sizeof(c));
	cr_assert_eq(rp_wire_get_hdr(buf, len, &back), 0);
	cr_assert_eq(wire_get(buf, &back, &c), 0);
	cr_assert_eq(strlen(c.info.why), RP_WHY_LEN - 1);

	/* 256 bytes: no room for the NUL. */
	buf[72] = 0;
	buf[73] = 1;
	buf[len] = 'x';
	hdr.length = len + 1;
	memcpy(buf + 4, &hdr.length, 4);
	cr_assert_eq(rp_wire_get_hdr(buf, len + 1, &back), 0);
	cr_assert_eq(wire_get(buf, &back, &c), -EBADMSG);

	/* Not terminated here: our own mistake, refused as well. */
	memset(b.info.why, 'x', RP_WHY_LEN);
	cr_assert_eq(wire_put(buf, sizeof(buf), &hdr, &b), -EINVAL);
}

Test(wire, sentence_is_made_printable)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_hdr hdr, back;
	union body b, c;
	int len;

	wire_example(RP_MSG_INFO, &hdr, &b);
	strcpy(b.info.why, "a\033[2J\xc3\xa9\n");
	len = wire_put(buf, sizeof(buf), &hdr, &b);
	cr_assert_eq(rp_wire_get_hdr(buf, len, &back), 0);
	cr_assert_eq(wire_get(buf, &back, &c), 0);
	cr_assert_str_eq(c.info.why, "a?[2J???");

	/* The first and the last that may pass, and their neighbours. */
	strcpy(b.info.why, "\x1f\x20\x7e\x7f");
	len = wire_put(buf, sizeof(buf), &hdr, &b);
	cr_assert_eq(memcmp(buf + 74, "? ~?", 4), 0);
	cr_assert_eq(wire_get(buf, &back, &c), -EBADMSG,
		     "its length has changed");
	cr_assert_eq(rp_wire_get_hdr(buf, len, &back), 0);
	cr_assert_eq(wire_get(buf, &back, &c), 0);
	cr_assert_str_eq(c.info.why, "? ~?");
	buf[74] = 0x1f;
	cr_assert_eq(wire_get(buf, &back, &c), -EBADMSG);
	buf[74] = 0x20;
	buf[77] = 0x7f;
	cr_assert_eq(wire_get(buf, &back, &c), -EBADMSG);
}

Test(wire, largest_request)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_hdr hdr;
	union body b;

	wire_example(RP_MSG_REQUEST, &hdr, &b);
	b.request.nranges = RP_WIRE_MAX_RANGES;
	cr_assert_eq(wire_put(buf, sizeof(buf), &hdr, &b),
		     40 + 24 * RP_WIRE_MAX_RANGES);
	b.request.effect = RP_EFFECT_THEN;
	b.request.seq = 1;
	cr_assert_eq(wire_put(buf, sizeof(buf), &hdr, &b), -EINVAL);
	b.request.nranges = RP_WIRE_MAX_EFFECT_RANGES;
	cr_assert_eq(wire_put(buf, sizeof(buf), &hdr, &b),
		     72 + 24 * RP_WIRE_MAX_EFFECT_RANGES);
}

/* What follows the ranges, and nothing else has changed. */
Test(wire, requests_with_effects)
{
	static const struct {
		enum rp_effect effect;
		const char *flags, *tail;
	} want[] = {
		{RP_EFFECT_THEN, "01000000",
		 "78777675747372718887868584838281"
		 "9897969594939291a8a7a6a5a4a3a2a1"},
		{RP_EFFECT_NOTIFY, "02000000",
		 "7877767574737271b8b7b6b5b4b3b2b1"},
		{RP_EFFECT_STORE, "03000000",
		 "7877767574737271"
		 "73746f72656421"},
	};

	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		uint8_t buf[RP_WIRE_MAX_MSG], plain[RP_WIRE_MAX_MSG];
		char hex[2 * RP_WIRE_MAX_MSG + 1] = "";
		struct rp_wire_hdr hdr, back;
		union body b, c;
		int len;

		wire_example(RP_MSG_REQUEST, &hdr, &b);
		b.request.ranges[0].len = 7;
		b.request.bytes = "stored!";
		cr_assert_eq(wire_put(plain, sizeof(plain), &hdr, &b), 64);
		b.request.effect = want[i].effect;
		b.request.seq = 0x7172737475767778;
		if (i == 0)
			b.request.then = (struct rp_wire_then){
				0x8182838485868788, 0x9192939495969798,
				0xa1a2a3a4a5a6a7a8};
		else if (i == 1)
			b.request.data = 0xb1b2b3b4b5b6b7b8;
		len = wire_put(buf, sizeof(buf), &hdr, &b);
		for (int j = 64; j < len; j++)
			sprintf(hex + 2 * (j - 64), "%02x", buf[j]);
		cr_assert_str_eq(hex, want[i].tail);
		for (int j = 36; j < 40; j++)
			sprintf(hex + 2 * (j - 36), "%02x", buf[j]);
		cr_assert_str_eq(hex, want[i].flags);
		/* But for its length, that is a request without one. */
		memcpy(buf + 4, plain + 4, 4);
		memset(buf + 36, 0, 4);
		cr_assert_eq(memcmp(buf, plain, 64), 0);

		len = wire_put(buf, sizeof(buf), &hdr, &b);
		memset(&c, 0x5a, sizeof(c));
		cr_assert_eq(rp_wire_get_hdr(buf, len, &back), 0);
		cr_assert_eq(wire_get(buf, &back, &c), 0);
		cr_assert_eq(c.request.effect, want[i].effect);
		cr_assert_eq(c.request.seq, b.request.seq);
		cr_assert_eq(memcmp(&c.request.then, &b.request.then,
				    sizeof(b.request.then)),
			     0);
		cr_assert_eq(c.request.data, b.request.data);
		if (i == 2)
			cr_assert_eq(c.request.bytes, buf + 72);
		else
			cr_assert_null(c.request.bytes);
	}
}

Test(wire, largest_store)
{
	uint8_t buf[RP_WIRE_MAX_MSG], bytes[RP_WIRE_MAX_MSG] = {1};
	struct rp_wire_hdr hdr;
	union body b;

	wire_example(RP_MSG_REQUEST, &hdr, &b);
	b.request.effect = RP_EFFECT_STORE;
	b.request.seq = 1;
	b.request.bytes = bytes;
	b.request.ranges[0].len = RP_WIRE_MAX_STORE;
	cr_assert_eq(wire_put(buf, sizeof(buf), &hdr, &b), RP_WIRE_MAX_MSG);
	cr_assert_eq(wire_put(buf, sizeof(buf) - 1, &hdr, &b), -EMSGSIZE);
	for (int i = 0; i < 3; i++) {
		b.request.ranges[0].len = i == 0   ? RP_WIRE_MAX_STORE + 1
					  : i == 1 ? UINT64_MAX
						   : 0;
		cr_assert_eq(wire_put(buf, sizeof(buf), &hdr, &b), -EINVAL);
	}
	b.request.ranges[0].len = 1;
	b.request.ranges[1] = b.request.ranges[0];
	b.request.nranges = 2;
	cr_assert_eq(wire_put(buf, sizeof(buf), &hdr, &b), -EINVAL);
	b.request.level = RP_LEVEL_VISIBLE;
	cr_assert_eq(wire_put(buf, sizeof(buf), &hdr, &b),
		     RP_WIRE_STORES(2, 2));
}

/* Ranges that are packed, where that is shorter; see test_wire_pack.c. */
Test(wire, packed_ranges)
{
	static const uint8_t tail[] = {0x48, 0x47, 0x46, 0x45, 0x44, 0x43,
				       0x42, 0x41, 64,	 32,   1,    8};
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_hdr hdr, back;
	union body b, c;
	int len;

	wire_example(RP_MSG_REQUEST, &hdr, &b);
	b.request.packed = true;
	cr_assert_eq(wire_put(buf, sizeof(buf), &hdr, &b), 64);
	cr_assert_eq(buf[37], 0);
	b.request.nranges = 2;
	b.request.ranges[0].addr = 32;
	b.request.ranges[0].len = 32;
	b.request.ranges[1] =
		(struct rp_wire_range){b.request.ranges[0].key, 64 + 64, 8};
	len = wire_put(buf, sizeof(buf), &hdr, &b);
	cr_assert_eq(len, 40 + (int)sizeof(tail) + 1);
	cr_assert_eq(memcmp(buf + 32, "\2\0\2\2\0\1\0\0", 8), 0);
	cr_assert_eq(memcmp(buf + 40, tail, 10), 0);
	cr_assert_eq(memcmp(buf + 50, "\x80\1\10", 3), 0);
	cr_assert_eq(wire_put(buf, (size_t)len - 1, &hdr, &b), -EMSGSIZE);
	cr_assert_eq(rp_wire_get_hdr(buf, len, &back), 0);
	cr_assert_eq(wire_get(buf, &back, &c), 0);
	cr_assert(c.request.packed);
	cr_assert_eq(c.request.nranges, 2);
	cr_assert_eq(c.request.level, b.request.level);
	cr_assert_eq(c.request.effect, 0);
	cr_assert_eq(memcmp(c.request.ranges, b.request.ranges,
			    2 * sizeof(b.request.ranges[0])),
		     0);
	/* Counted, and nothing else in the flags. */
	for (int at = 32; at < 40; at++) {
		uint8_t good = buf[at];

		if (at == 35)
			continue;
		buf[at] = at == 34 ? 3 : good + 1;
		cr_assert_eq(wire_get(buf, &back, &c), -EBADMSG, "%d", at);
		buf[at] = good;
	}
	/* With an effect they are plain; and one that is not in order is. */
	b.request.effect = RP_EFFECT_NOTIFY;
	b.request.seq = 1;
	cr_assert_eq(wire_put(buf, sizeof(buf), &hdr, &b), 40 + 48 + 16);
	b.request.effect = 0;
	b.request.ranges[1].addr = 0;
	cr_assert_eq(wire_put(buf, sizeof(buf), &hdr, &b), 40 + 48);
	b.request.nranges = RP_WIRE_MAX_RANGES + 1;
	cr_assert_eq(wire_put(buf, sizeof(buf), &hdr, &b), -EINVAL);
}

/* More than plain ones can be: what is too small is too small for them. */
Test(wire, packed_ranges_without_room)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_hdr hdr;
	union body b;
	int len;

	wire_example(RP_MSG_REQUEST, &hdr, &b);
	b.request.packed = true;
	b.request.nranges = RP_WIRE_MAX_RANGES + 1;
	for (int i = 0; i < b.request.nranges; i++)
		b.request.ranges[i] = (struct rp_wire_range){
			b.request.ranges[0].key, (uint64_t)i * 64, 8};
	len = wire_put(buf, sizeof(buf), &hdr, &b);
	cr_assert_gt(len, 48);
	cr_assert_eq(wire_put(buf, (size_t)len, &hdr, &b), len);
	for (size_t size = 0; size < (size_t)len; size++)
		cr_assert_eq(wire_put(buf, size, &hdr, &b), -EMSGSIZE);
}

/* Those that are only placed: all ranges, then the bytes of all. */
Test(wire, several_stores)
{
	static const uint64_t much[] = {RP_WIRE_MAX_STORE, UINT64_MAX - 3, 0};
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_hdr hdr, back;
	union body b, c;
	int len;

	wire_example(RP_MSG_REQUEST, &hdr, &b);
	b.request.level = RP_LEVEL_VISIBLE;
	b.request.effect = RP_EFFECT_STORE;
	b.request.seq = 9;
	b.request.nranges = 2;
	b.request.bytes = "threeof5";
	b.request.ranges[0].len = 5;
	b.request.ranges[1] = (struct rp_wire_range){7, 8, 3};
	len = wire_put(buf, sizeof(buf), &hdr, &b);
	cr_assert_eq(len, 40 + 48 + 8 + 8);
	cr_assert_eq(buf[32], 2);
	cr_assert_eq(buf[34], 1);
	cr_assert_eq(buf[36], 3);
	cr_assert_eq(memcmp(buf + 64,
			    "\7\0\0\0\0\0\0\0\10\0\0\0\0\0\0\0"
			    "\3\0\0\0\0\0\0\0\11\0\0\0\0\0\0\0threeof5",
			    40),
		     0);
	cr_assert_eq(rp_wire_get_hdr(buf, len, &back), 0);
	cr_assert_eq(wire_get(buf, &back, &c), 0);
	cr_assert_eq(c.request.bytes, buf + 96);
	cr_assert_eq(c.request.ranges[1].len, 3);
	/* Together no more than one may have; no sum that wraps. */
	for (size_t i = 0; i < 3; i++) {
		b.request.ranges[1].len = much[i];
		cr_assert_eq(wire_put(buf, sizeof(buf), &hdr, &b), -EINVAL);
		memcpy(buf + 80, &much[i], 8);
		cr_assert_eq(wire_get(buf, &back, &c), -EBADMSG);
	}
	b.request.ranges[1].len = RP_WIRE_MAX_STORE - 5;
	cr_assert_eq(wire_put(buf, sizeof(buf), &hdr, &b), -EMSGSIZE);
}
