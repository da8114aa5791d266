/* SPDX-License-Identifier: BSD-2-Clause */
/* Byte layout of keys and messages: goldens, round trips, hostile bytes. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/wire.h"
#include "seeded.h"

/* Any body, so that one loop can serve every message. */
union body {
	struct rp_wire_hello hello;
	struct rp_wire_hello_ack hello_ack;
	struct rp_wire_request request;
	struct rp_wire_reply reply;
	struct rp_wire_query query;
	struct rp_wire_info info;
};

static const uint8_t types[] = {
	RP_MSG_HELLO,	  RP_MSG_REQUEST, RP_MSG_QUERY,	   RP_MSG_BYE,
	RP_MSG_HELLO_ACK, RP_MSG_REPLY,	  RP_MSG_PROGRESS, RP_MSG_INFO,
};
#define NTYPES (sizeof(types) / sizeof(types[0]))

static int put(void *buf, size_t size, const struct rp_wire_hdr *hdr,
	       const union body *b)
{
	switch (hdr->type) {
	case RP_MSG_HELLO:
		return rp_wire_put_hello(buf, size, hdr, &b->hello);
	case RP_MSG_HELLO_ACK:
		return rp_wire_put_hello_ack(buf, size, hdr, &b->hello_ack);
	case RP_MSG_REQUEST:
		return rp_wire_put_request(buf, size, hdr, &b->request);
	case RP_MSG_REPLY:
		return rp_wire_put_reply(buf, size, hdr, &b->reply);
	case RP_MSG_QUERY:
		return rp_wire_put_query(buf, size, hdr, &b->query);
	case RP_MSG_INFO:
		return rp_wire_put_info(buf, size, hdr, &b->info);
	}
	return rp_wire_put_empty(buf, size, hdr);
}

static int get(const void *buf, const struct rp_wire_hdr *hdr, union body *b)
{
	switch (hdr->type) {
	case RP_MSG_HELLO:
		return rp_wire_get_hello(buf, hdr, &b->hello);
	case RP_MSG_HELLO_ACK:
		return rp_wire_get_hello_ack(buf, hdr, &b->hello_ack);
	case RP_MSG_REQUEST:
		return rp_wire_get_request(buf, hdr, &b->request);
	case RP_MSG_REPLY:
		return rp_wire_get_reply(buf, hdr, &b->reply);
	case RP_MSG_QUERY:
		return rp_wire_get_query(buf, hdr, &b->query);
	case RP_MSG_INFO:
		return rp_wire_get_info(buf, hdr, &b->info);
	}
	return 0;
}

/* The same field values as the goldens below. */
static void example(uint8_t type, struct rp_wire_hdr *hdr, union body *b)
{
	memset(b, 0, sizeof(*b));
	*hdr = (struct rp_wire_hdr){
		.type = type,
		.session = type == RP_MSG_HELLO ? 0 : 0x1112131415161718,
		.token = 0x2122232425262728,
		.incarnation = 0x3132333435363738,
	};
	switch (type) {
	case RP_MSG_HELLO:
		b->hello = (struct rp_wire_hello){
			.cookie = 0x4142434445464748,
			.key = 0x5152535455565758,
			.timeout_ms = 5000,
			.features = 0x6162,
			.addr_len = 5,
			.addr = "\x02\x00\x7f\x00\x01",
		};
		break;
	case RP_MSG_HELLO_ACK:
		b->hello_ack = (struct rp_wire_hello_ack){
			.cookie = 0x4142434445464748,
			.credits = 64,
			.max_ranges = 168,
		};
		break;
	case RP_MSG_REQUEST:
		b->request = (struct rp_wire_request){
			.nranges = 1,
			.level = RP_LEVEL_DURABLE,
			.required = RP_CLASS_POWER,
			.ranges = {{0x4142434445464748, 0x5152535455565758,
				    0x6162636465666768}},
		};
		break;
	case RP_MSG_REPLY:
		b->reply = (struct rp_wire_reply){
			.level = RP_LEVEL_DURABLE,
			.class = RP_CLASS_POWER,
			.range = 0xa7,
			.detail = 0x41424344,
			.credits = 0x5152,
			.method = RP_METHOD_AGENT_MSYNC,
		};
		break;
	case RP_MSG_QUERY:
		b->query = (struct rp_wire_query){
			.key = 0x4142434445464748,
			.required = RP_CLASS_PROCESS,
		};
		break;
	case RP_MSG_INFO:
		b->info = (struct rp_wire_info){
			.status = RP_ST_CLASS,
			.class = RP_CLASS_PROCESS,
			.method = RP_METHOD_DELIVERY,
			.memory = RP_MEM_TMPFS,
			.placement = RP_PLACE_CPU_USER,
			.domain = RP_DOMAIN_CPUCACHE,
			.refusal = RP_REFUSAL_CLASS,
			.granularity = 4096,
			.length = 0x4142434445464748,
			.addr = 0x5152535455565758,
			.preferred_size = 0x61626364,
			.preferred_align = 0x71727374,
			.why = "tmpfs",
		};
		break;
	}
}

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
			   "0000000000000000"},
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
	cr_assert_eq(sizeof(goldens) / sizeof(goldens[0]), NTYPES);
	for (size_t i = 0; i < NTYPES; i++) {
		uint8_t buf[RP_WIRE_MAX_MSG], again[RP_WIRE_MAX_MSG];
		char hex[2 * RP_WIRE_MAX_MSG + 1] = "";
		struct rp_wire_hdr hdr, back;
		union body b, c = {0};
		int len;

		example(goldens[i].type, &hdr, &b);
		len = put(buf, sizeof(buf), &hdr, &b);
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
		cr_assert_eq(get(buf, &back, &c), 0);
		/* Every field is in the bytes, padding is not. */
		cr_assert_eq(put(again, sizeof(again), &back, &c), len);
		cr_assert_eq(memcmp(buf, again, len), 0, "type %d", hdr.type);
	}
}

/* What may be injected through ofi_rxm: 64 bytes. */
Test(wire, small_messages_are_an_inject)
{
	uint8_t buf[64];
	struct rp_wire_hdr hdr;
	union body b;

	example(RP_MSG_REQUEST, &hdr, &b);
	cr_assert_eq(put(buf, sizeof(buf), &hdr, &b), 64);
	example(RP_MSG_REPLY, &hdr, &b);
	cr_assert_gt(put(buf, sizeof(buf), &hdr, &b), 0);
	example(RP_MSG_HELLO_ACK, &hdr, &b);
	cr_assert_gt(put(buf, sizeof(buf), &hdr, &b), 0);
	example(RP_MSG_PROGRESS, &hdr, &b);
	cr_assert_gt(put(buf, sizeof(buf), &hdr, &b), 0);
}

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
		break;
	case RP_MSG_REQUEST:
		n = 1 + seeded_below(s, RP_WIRE_MAX_RANGES);
		b->request.nranges = n;
		b->request.level = 1 + seeded_below(s, 2);
		b->request.required = seeded_below(s, 3);
		while (n--)
			b->request.ranges[n] = (struct rp_wire_range){
				seeded_next(s), seeded_next(s), seeded_next(s)};
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

		random_message(&s, types[i % NTYPES], &hdr, &b);
		len = put(buf, sizeof(buf), &hdr, &b);
		cr_assert_gt(len, 0, "seed %" PRIu64 " round %d", s.seed, i);
		memset(&c, 0x5a, sizeof(c));
		cr_assert(!rp_wire_get_hdr(buf, len, &back) &&
				  !get(buf, &back, &c),
			  "seed %" PRIu64 " round %d", s.seed, i);
		cr_assert(put(again, sizeof(again), &back, &c) == len &&
				  !memcmp(buf, again, len),
			  "seed %" PRIu64 " round %d", s.seed, i);
	}
}

/* Nothing shorter than the message is one, and no byte past it is read. */
Test(wire, truncation)
{
	for (size_t i = 0; i < NTYPES; i++) {
		uint8_t buf[RP_WIRE_MAX_MSG];
		struct rp_wire_hdr hdr, back;
		union body b, c, before;
		int full;

		example(types[i], &hdr, &b);
		full = put(buf, sizeof(buf), &hdr, &b);
		memset(&c, 0x5a, sizeof(c));
		before = c;
		for (int len = 0; len < full; len++) {
			/* Heap, exactly as long: the sanitizer watches. */
			uint8_t *cut = malloc(len ? len : 1);
			uint32_t told = len;

			memcpy(cut, buf, len);
			cr_assert_eq(rp_wire_get_hdr(cut, len, &back), -EBADMSG,
				     "type %d len %d", types[i], len);
			/* The peer lies consistently. */
			if (len >= 8)
				memcpy(cut + 4, &told, 4);
			if (!rp_wire_get_hdr(cut, len, &back))
				cr_assert_eq(get(cut, &back, &c), -EBADMSG,
					     "type %d len %d", types[i], len);
			cr_assert_eq(memcmp(&c, &before, sizeof(c)), 0);
			free(cut);
		}
		/* One byte more is as wrong. */
		buf[full] = 0;
		hdr.length = full + 1;
		memcpy(buf + 4, &hdr.length, 4);
		cr_assert(rp_wire_get_hdr(buf, full + 1, &back) ||
				  get(buf, &back, &c) == -EBADMSG,
			  "type %d", types[i]);
	}
}

/*
 * Whatever a byte is changed to: either refused, or a message that encodes to
 * exactly these bytes again, so that no byte goes unexamined.
 */
Test(wire, corruption)
{
	for (size_t i = 0; i < NTYPES; i++) {
		uint8_t buf[RP_WIRE_MAX_MSG], again[RP_WIRE_MAX_MSG];
		struct rp_wire_hdr hdr, back;
		union body b, c;
		int len, out;

		example(types[i], &hdr, &b);
		len = put(buf, sizeof(buf), &hdr, &b);
		for (int at = 0; at < len; at++) {
			uint8_t good = buf[at];

			for (int v = 0; v < 256; v++) {
				uint8_t *heap = malloc(len);

				memset(&c, 0, sizeof(c));
				buf[at] = v;
				memcpy(heap, buf, len);
				if (!rp_wire_get_hdr(heap, len, &back) &&
				    !get(heap, &back, &c)) {
					out = put(again, sizeof(again), &back,
						  &c);
					cr_assert(out == len &&
							  !memcmp(again, buf,
								  len),
						  "type %d byte %d = %d",
						  types[i], at, v);
				}
				free(heap);
			}
			buf[at] = good;
		}
	}
}

Test(wire, random_bytes)
{
	struct seeded s = seeded_start();

	for (int i = 0; i < 100000; i++) {
		size_t len = seeded_below(&s, 300);
		uint8_t *buf = malloc(len + 1);
		struct rp_wire_hdr hdr;
		union body c;

		for (size_t j = 0; j < len; j++)
			buf[j] = seeded_next(&s);
		/* Past the first checks more often than chance would. */
		if (len >= 8 && i % 8) {
			uint32_t told = len;

			memcpy(buf, "RP\1", 3);
			buf[3] = types[i % NTYPES];
			memcpy(buf + 4, &told, 4);
		}
		if (!rp_wire_get_hdr(buf, len, &hdr))
			get(buf, &hdr, &c);
		free(buf);
	}
}

/* Each refused alone, from a message that is otherwise good. */
Test(wire, fields_out_of_range)
{
	static const struct {
		uint8_t type, at, width;
		uint64_t value;
	} bad[] = {
		{RP_MSG_HELLO, 8, 8, 1},  /* session is 0 in HELLO */
		{RP_MSG_HELLO, 32, 8, 0}, /* cookie */
		{RP_MSG_HELLO, 54, 2, 0}, /* addr_len */
		{RP_MSG_HELLO, 54, 2, 4}, /* less than there is */
		{RP_MSG_HELLO, 54, 2, 6}, /* more than there is */
		{RP_MSG_HELLO, 54, 2, 65535},
		{RP_MSG_HELLO_ACK, 32, 8, 0},	/* accepted, no cookie */
		{RP_MSG_HELLO_ACK, 40, 4, 2},	/* refused, with cookie */
		{RP_MSG_HELLO_ACK, 40, 4, 64},	/* status does not travel */
		{RP_MSG_HELLO_ACK, 44, 2, 0},	/* no credits */
		{RP_MSG_HELLO_ACK, 46, 2, 0},	/* no ranges */
		{RP_MSG_HELLO_ACK, 46, 2, 169}, /* too many */
		{RP_MSG_HELLO_ACK, 48, 2, 1},	/* feature nobody offered */
		{RP_MSG_HELLO_ACK, 50, 2, 1},
		{RP_MSG_HELLO_ACK, 52, 4, 1},
		{RP_MSG_REQUEST, 32, 2, 0}, /* no ranges */
		{RP_MSG_REQUEST, 32, 2, 2}, /* more than there are */
		{RP_MSG_REQUEST, 32, 2, 169},
		{RP_MSG_REQUEST, 34, 1, 0}, /* level */
		{RP_MSG_REQUEST, 34, 1, 3},
		{RP_MSG_REQUEST, 35, 1, 3}, /* class */
		{RP_MSG_REQUEST, 36, 4, 1}, /* flags */
		{RP_MSG_REPLY, 32, 4, 64},
		{RP_MSG_REPLY, 32, 4, 7}, /* failed, yet reached a level */
		{RP_MSG_REPLY, 36, 1, 0}, /* done, yet reached none */
		{RP_MSG_REPLY, 36, 1, 3},
		{RP_MSG_REPLY, 37, 1, 3},
		{RP_MSG_REPLY, 38, 2, 168},
		{RP_MSG_REPLY, 46, 1, RP_METHOD_MAX},
		{RP_MSG_REPLY, 47, 1, 1},
		{RP_MSG_QUERY, 40, 1, 3},
		{RP_MSG_QUERY, 41, 1, 1},
		{RP_MSG_QUERY, 47, 1, 1},
		{RP_MSG_INFO, 32, 4, 64},
		{RP_MSG_INFO, 36, 1, 3},
		{RP_MSG_INFO, 37, 1, RP_METHOD_MAX},
		{RP_MSG_INFO, 38, 1, RP_MEM_EMULATED + 1},
		{RP_MSG_INFO, 39, 1, RP_PLACE_DMA_MEMORY + 1},
		{RP_MSG_INFO, 40, 1, RP_DOMAIN_SYSTEM + 1},
		{RP_MSG_INFO, 41, 1, RP_REFUSAL_UNKNOWN + 1},
		{RP_MSG_INFO, 42, 2, 1},
		{RP_MSG_INFO, 72, 2, 4},
		{RP_MSG_INFO, 72, 2, 6},
		{RP_MSG_INFO, 72, 2, 256},
		{RP_MSG_INFO, 74, 1, 0},    /* NUL inside */
		{RP_MSG_INFO, 75, 1, 0x1b}, /* terminal escape */
		{RP_MSG_INFO, 75, 1, 0x9b},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint8_t buf[RP_WIRE_MAX_MSG];
		struct rp_wire_hdr hdr, back;
		union body b, c, before;
		int len;

		example(bad[i].type, &hdr, &b);
		len = put(buf, sizeof(buf), &hdr, &b);
		for (int j = 0; j < bad[i].width; j++)
			buf[bad[i].at + j] = bad[i].value >> 8 * j;
		memset(&c, 0x5a, sizeof(c));
		before = c;
		cr_assert_eq(rp_wire_get_hdr(buf, len, &back), 0);
		cr_expect_eq(get(buf, &back, &c), -EBADMSG,
			     "type %d byte %d value %" PRIu64, bad[i].type,
			     bad[i].at, bad[i].value);
		cr_expect_eq(memcmp(&c, &before, sizeof(c)), 0,
			     "output written on failure");
	}
}

/* A sentence as long as its length field can say must not run over. */
Test(wire, info_longest_sentence)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_hdr hdr, back;
	union body b, c;
	int len;

	example(RP_MSG_INFO, &hdr, &b);
	memset(b.info.why, 'x', RP_WHY_LEN - 1);
	len = put(buf, sizeof(buf), &hdr, &b);
	cr_assert_eq(len, 74 + RP_WHY_LEN - 1);
	memset(&c, 0x5a, sizeof(c));
	cr_assert_eq(rp_wire_get_hdr(buf, len, &back), 0);
	cr_assert_eq(get(buf, &back, &c), 0);
	cr_assert_eq(strlen(c.info.why), RP_WHY_LEN - 1);

	/* 256 bytes: no room for the NUL. */
	buf[72] = 0;
	buf[73] = 1;
	buf[len] = 'x';
	hdr.length = len + 1;
	memcpy(buf + 4, &hdr.length, 4);
	cr_assert_eq(rp_wire_get_hdr(buf, len + 1, &back), 0);
	cr_assert_eq(get(buf, &back, &c), -EBADMSG);

	/* Not terminated here: our own mistake, refused as well. */
	memset(b.info.why, 'x', RP_WHY_LEN);
	cr_assert_eq(put(buf, sizeof(buf), &hdr, &b), -EINVAL);
}

Test(wire, sentence_is_made_printable)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_hdr hdr, back;
	union body b, c;
	int len;

	example(RP_MSG_INFO, &hdr, &b);
	strcpy(b.info.why, "a\033[2J\xc3\xa9\n");
	len = put(buf, sizeof(buf), &hdr, &b);
	cr_assert_eq(rp_wire_get_hdr(buf, len, &back), 0);
	cr_assert_eq(get(buf, &back, &c), 0);
	cr_assert_str_eq(c.info.why, "a?[2J???");

	/* The first and the last that may pass, and their neighbours. */
	strcpy(b.info.why, "\x1f\x20\x7e\x7f");
	len = put(buf, sizeof(buf), &hdr, &b);
	cr_assert_eq(memcmp(buf + 74, "? ~?", 4), 0);
	cr_assert_eq(get(buf, &back, &c), -EBADMSG, "its length has changed");
	cr_assert_eq(rp_wire_get_hdr(buf, len, &back), 0);
	cr_assert_eq(get(buf, &back, &c), 0);
	cr_assert_str_eq(c.info.why, "? ~?");
	buf[74] = 0x1f;
	cr_assert_eq(get(buf, &back, &c), -EBADMSG);
	buf[74] = 0x20;
	buf[77] = 0x7f;
	cr_assert_eq(get(buf, &back, &c), -EBADMSG);
}

Test(wire, header)
{
	uint8_t buf[RP_WIRE_MAX_MSG + 8] = {0};
	struct rp_wire_hdr hdr, back;
	union body b;
	uint32_t told;
	int len;

	example(RP_MSG_REPLY, &hdr, &b);
	len = put(buf, sizeof(buf), &hdr, &b);

	buf[0] ^= 1;
	cr_assert_eq(rp_wire_get_hdr(buf, len, &back), -EBADMSG, "magic");
	buf[0] ^= 1;
	buf[1] ^= 1;
	cr_assert_eq(rp_wire_get_hdr(buf, len, &back), -EBADMSG, "magic");
	buf[1] ^= 1;
	buf[4]++;
	cr_assert_eq(rp_wire_get_hdr(buf, len, &back), -EBADMSG, "length");
	buf[4]--;
	for (int type = 0; type < 256; type++) {
		bool known = memchr(types, type, NTYPES);
		bool empty = type == RP_MSG_BYE || type == RP_MSG_PROGRESS;

		buf[3] = type;
		cr_assert_eq(rp_wire_get_hdr(buf, len, &back),
			     known && !empty ? 0 : -EBADMSG, "type %d", type);
	}

	/* The longest that is allowed, and one more. */
	buf[3] = RP_MSG_REQUEST;
	told = RP_WIRE_MAX_MSG;
	memcpy(buf + 4, &told, 4);
	cr_assert_eq(rp_wire_get_hdr(buf, told, &back), 0);
	told++;
	memcpy(buf + 4, &told, 4);
	cr_assert_eq(rp_wire_get_hdr(buf, told, &back), -EBADMSG);
}

/* A version mismatch is told apart, with all that is needed to answer. */
Test(wire, other_version)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_hdr hdr, back;
	union body b, c = {0};
	uint32_t told;
	int len;

	example(RP_MSG_REQUEST, &hdr, &b);
	len = put(buf, sizeof(buf), &hdr, &b);
	buf[2] = 2;
	cr_assert_eq(rp_wire_get_hdr(buf, len, &back), -EPROTONOSUPPORT);
	cr_assert_eq(back.version, 2);
	cr_assert_eq(back.type, RP_MSG_REQUEST);
	cr_assert_eq(back.session, hdr.session);
	cr_assert_eq(back.token, hdr.token);
	cr_assert_eq(back.incarnation, 0);

	/* A type that we do not know, and only the shared part. */
	buf[3] = 200;
	told = 24;
	memcpy(buf + 4, &told, 4);
	cr_assert_eq(rp_wire_get_hdr(buf, 24, &back), -EPROTONOSUPPORT);
	told = 23;
	memcpy(buf + 4, &told, 4);
	cr_assert_eq(rp_wire_get_hdr(buf, 23, &back), -EBADMSG);

	/* HELLO can be read in any version, also with more at its end. */
	example(RP_MSG_HELLO, &hdr, &b);
	len = put(buf, sizeof(buf), &hdr, &b);
	buf[2] = 2;
	told = len + 3;
	memcpy(buf + 4, &told, 4);
	cr_assert_eq(rp_wire_get_hdr(buf, told, &back), -EPROTONOSUPPORT);
	cr_assert_eq(get(buf, &back, &c), 0);
	cr_assert_eq(memcmp(&b, &c, sizeof(b)), 0);
	/* But not with less. */
	told = len - 1;
	memcpy(buf + 4, &told, 4);
	cr_assert_eq(rp_wire_get_hdr(buf, told, &back), -EPROTONOSUPPORT);
	cr_assert_eq(get(buf, &back, &c), -EBADMSG);
}

/* An encoder refuses what its decoder would, and writes nothing then. */
Test(wire, encoders_refuse)
{
	for (size_t i = 0; i < NTYPES; i++) {
		uint8_t buf[RP_WIRE_MAX_MSG];
		struct rp_wire_hdr hdr;
		union body b;
		int full;

		example(types[i], &hdr, &b);
		full = put(buf, sizeof(buf), &hdr, &b);
		memset(buf, 0x5a, sizeof(buf));
		cr_assert_eq(put(buf, full, &hdr, &b), full, "just enough");
		cr_assert_eq(buf[full], 0x5a);
		for (int size = 0; size < full; size++) {
			uint8_t *small = malloc(size ? size : 1);

			memset(small, 0x5a, size);
			cr_assert_eq(put(small, size, &hdr, &b), -EMSGSIZE);
			for (int j = 0; j < size; j++)
				cr_assert_eq(small[j], 0x5a);
			free(small);
		}
	}

	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_hdr hdr;
	union body b;

#define REFUSED(type, field, value)                                            \
	do {                                                                   \
		example(type, &hdr, &b);                                       \
		b.field = value;                                               \
		memset(buf, 0x5a, sizeof(buf));                                \
		cr_expect_eq(put(buf, sizeof(buf), &hdr, &b), -EINVAL,         \
			     #field " = " #value);                             \
		cr_expect_eq(buf[0], 0x5a);                                    \
	} while (0)
	REFUSED(RP_MSG_HELLO, hello.cookie, 0);
	REFUSED(RP_MSG_HELLO, hello.addr_len, 0);
	REFUSED(RP_MSG_HELLO, hello.addr_len, RP_WIRE_MAX_ADDR + 1);
	REFUSED(RP_MSG_HELLO_ACK, hello_ack.status, RP_ST_VERSION);
	REFUSED(RP_MSG_HELLO_ACK, hello_ack.status, RP_ST_WRITE_FAILED);
	REFUSED(RP_MSG_HELLO_ACK, hello_ack.features, 1);
	REFUSED(RP_MSG_HELLO_ACK, hello_ack.cookie, 0);
	REFUSED(RP_MSG_HELLO_ACK, hello_ack.max_ranges, 169);
	REFUSED(RP_MSG_REQUEST, request.nranges, 0);
	REFUSED(RP_MSG_REQUEST, request.nranges, RP_WIRE_MAX_RANGES + 1);
	REFUSED(RP_MSG_REQUEST, request.level, 0);
	REFUSED(RP_MSG_REQUEST, request.required, 3);
	REFUSED(RP_MSG_REQUEST, request.flags, 1);
	REFUSED(RP_MSG_REPLY, reply.status, RP_ST_TIMEOUT);
	REFUSED(RP_MSG_REPLY, reply.level, 0);
	REFUSED(RP_MSG_REPLY, reply.range, RP_WIRE_MAX_RANGES);
	REFUSED(RP_MSG_QUERY, query.required, 3);
	REFUSED(RP_MSG_INFO, info.status, RP_ST_TIMEOUT);
	REFUSED(RP_MSG_INFO, info.memory, RP_MEM_EMULATED + 1);
#undef REFUSED
	/* A refusal that grants or claims something, whatever it is. */
	for (int i = 0; i < 3; i++) {
		example(RP_MSG_HELLO_ACK, &hdr, &b);
		b.hello_ack = (struct rp_wire_hello_ack){
			.status = RP_ST_VERSION,
			.cookie = i == 0,
			.credits = i == 1,
			.max_ranges = i == 2,
		};
		cr_assert_eq(put(buf, sizeof(buf), &hdr, &b), -EINVAL);
		example(RP_MSG_REPLY, &hdr, &b);
		b.reply = (struct rp_wire_reply){
			.status = RP_ST_RANGE,
			.level = i == 0,
			.class = i == 1,
			.method = i == 2,
		};
		cr_assert_eq(put(buf, sizeof(buf), &hdr, &b), -EINVAL);
	}

	example(RP_MSG_BYE, &hdr, &b);
	hdr.type = RP_MSG_REPLY;
	cr_assert_eq(rp_wire_put_empty(buf, sizeof(buf), &hdr), -EINVAL);
}

Test(wire, largest_request)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_hdr hdr;
	union body b;

	example(RP_MSG_REQUEST, &hdr, &b);
	b.request.nranges = RP_WIRE_MAX_RANGES;
	cr_assert_eq(put(buf, sizeof(buf), &hdr, &b),
		     40 + 24 * RP_WIRE_MAX_RANGES);
}

Test(wire, key_goldens)
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
Test(wire, key_facts)
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
