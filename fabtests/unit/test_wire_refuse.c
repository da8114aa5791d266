/* SPDX-License-Identifier: BSD-2-Clause */
/* What is no message: cut, stretched, corrupt, of others, out of range. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "seeded.h"
#include "wire_rig.h"

/* Nothing shorter than the message is one, and no byte past it is read. */
Test(wire_refuse, truncation)
{
	for (size_t i = 0; i < WIRE_TYPES; i++) {
		uint8_t buf[RP_WIRE_MAX_MSG];
		struct rp_wire_hdr hdr, back;
		union body b, c, before;
		int full;

		wire_example(wire_types[i], &hdr, &b);
		full = wire_put(buf, sizeof(buf), &hdr, &b);
		memset(&c, 0x5a, sizeof(c));
		before = c;
		for (int len = 0; len < full; len++) {
			/* Heap, exactly as long: the sanitizer watches. */
			uint8_t *cut = malloc(len ? len : 1);
			uint32_t told = len;

			memcpy(cut, buf, len);
			cr_assert_eq(rp_wire_get_hdr(cut, len, &back), -EBADMSG,
				     "type %d len %d", wire_types[i], len);
			/* The peer lies consistently. */
			if (len >= 8)
				memcpy(cut + 4, &told, 4);
			if (!rp_wire_get_hdr(cut, len, &back))
				cr_assert_eq(wire_get(cut, &back, &c), -EBADMSG,
					     "type %d len %d", wire_types[i],
					     len);
			cr_assert_eq(memcmp(&c, &before, sizeof(c)), 0);
			free(cut);
		}
		/* One byte more is as wrong. */
		buf[full] = 0;
		hdr.length = full + 1;
		memcpy(buf + 4, &hdr.length, 4);
		cr_assert(rp_wire_get_hdr(buf, full + 1, &back) ||
				  wire_get(buf, &back, &c) == -EBADMSG,
			  "type %d", wire_types[i]);
	}
}

/*
 * Whatever a byte is changed to: either refused, or a message that encodes to
 * exactly these bytes again, so that no byte goes unexamined.
 */
Test(wire_refuse, corruption)
{
	for (size_t i = 0; i < WIRE_TYPES; i++) {
		uint8_t buf[RP_WIRE_MAX_MSG], again[RP_WIRE_MAX_MSG];
		struct rp_wire_hdr hdr, back;
		union body b, c;
		int len, out;

		wire_example(wire_types[i], &hdr, &b);
		len = wire_put(buf, sizeof(buf), &hdr, &b);
		for (int at = 0; at < len; at++) {
			uint8_t good = buf[at];

			for (int v = 0; v < 256; v++) {
				uint8_t *heap = malloc(len);

				memset(&c, 0, sizeof(c));
				buf[at] = v;
				memcpy(heap, buf, len);
				if (!rp_wire_get_hdr(heap, len, &back) &&
				    !wire_get(heap, &back, &c)) {
					out = wire_put(again, sizeof(again),
						       &back, &c);
					cr_assert(out == len &&
							  !memcmp(again, buf,
								  len),
						  "type %d byte %d = %d",
						  wire_types[i], at, v);
				}
				free(heap);
			}
			buf[at] = good;
		}
	}
}

Test(wire_refuse, random_bytes)
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
			buf[3] = wire_types[i % WIRE_TYPES];
			memcpy(buf + 4, &told, 4);
		}
		if (!rp_wire_get_hdr(buf, len, &hdr))
			wire_get(buf, &hdr, &c);
		free(buf);
	}
}

/* Each refused alone, from a message that is otherwise good. */
/* Each decoder takes its own message only, whoever has looked at the type. */
Test(wire_refuse, decoders_of_other_types)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_hdr hdr, back;
	union body b, c;

	for (size_t i = 0; i < WIRE_TYPES; i++) {
		wire_example(wire_types[i], &hdr, &b);
		cr_assert_eq(rp_wire_get_hdr(
				     buf, wire_put(buf, sizeof(buf), &hdr, &b),
				     &back),
			     0);
		for (size_t j = 0; j < WIRE_TYPES; j++) {
			int want = i == j ? 0 : -EBADMSG;

			back.type = wire_types[j];
			switch (wire_types[i]) {
			case RP_MSG_HELLO:
				cr_assert_eq(
					rp_wire_get_hello(buf, &back, &c.hello),
					want);
				break;
			case RP_MSG_HELLO_ACK:
				cr_assert_eq(rp_wire_get_hello_ack(
						     buf, &back, &c.hello_ack),
					     want);
				break;
			case RP_MSG_REQUEST:
				cr_assert_eq(rp_wire_get_request(buf, &back,
								 &c.request),
					     want);
				break;
			case RP_MSG_REPLY:
				cr_assert_eq(
					rp_wire_get_reply(buf, &back, &c.reply),
					want);
				break;
			case RP_MSG_QUERY:
				cr_assert_eq(
					rp_wire_get_query(buf, &back, &c.query),
					want);
				break;
			case RP_MSG_INFO:
				cr_assert_eq(
					rp_wire_get_info(buf, &back, &c.info),
					want);
				break;
			case RP_MSG_CONNECT:
				cr_assert_eq(rp_wire_get_connect(buf, &back,
								 &c.connect),
					     want);
				break;
			case RP_MSG_OFFER:
				cr_assert_eq(
					rp_wire_get_offer(buf, &back, &c.offer),
					want);
				break;
			}
		}
	}
}

Test(wire_refuse, fields_out_of_range)
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
		{RP_MSG_HELLO_ACK, 48, 2,
		 RP_FEATURES + 1}, /* feature nobody offered */
		{RP_MSG_HELLO_ACK, 50, 2, 1},
		{RP_MSG_HELLO_ACK, 52, 4, 1},
		{RP_MSG_REQUEST, 32, 2, 0}, /* no ranges */
		{RP_MSG_REQUEST, 32, 2, 2}, /* more than there are */
		{RP_MSG_REQUEST, 32, 2, 169},
		{RP_MSG_REQUEST, 34, 1, 0}, /* level */
		{RP_MSG_REQUEST, 34, 1, 3},
		{RP_MSG_REQUEST, 35, 1, 3}, /* class */
		{RP_MSG_REQUEST, 36, 4, 1}, /* a store that is not there */
		{RP_MSG_REQUEST, 36, 4, 2}, /* nor this */
		{RP_MSG_REQUEST, 36, 4, 3}, /* nor are those bytes */
		{RP_MSG_REQUEST, 36, 4, 4},
		{RP_MSG_REQUEST, 36, 4, 0x80000000},
		{RP_MSG_REPLY, 32, 4, 64},
		{RP_MSG_REPLY, 32, 4, 7}, /* failed, yet reached a level */
		{RP_MSG_REPLY, 36, 1, 0}, /* done, yet reached none */
		{RP_MSG_REPLY, 36, 1, 3},
		{RP_MSG_REPLY, 37, 1, 3},
		{RP_MSG_REPLY, 38, 2, 1024},
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
		{RP_MSG_CONNECT, 32, 8, 0},
		{RP_MSG_OFFER, 32, 4, 64},
		{RP_MSG_OFFER, 32, 4, 7}, /* refused, and yet offered */
		{RP_MSG_OFFER, 36, 1, 0},
		{RP_MSG_OFFER, 36, 1, RP_METHOD_AGENT_MSYNC},
		{RP_MSG_OFFER, 37, 1, 3},
		{RP_MSG_OFFER, 38, 2, 0},
		{RP_MSG_OFFER, 38, 2, 4},
		{RP_MSG_OFFER, 38, 2, 6},
		{RP_MSG_OFFER, 38, 2, 129},
		{RP_MSG_OFFER, 40, 8, 0}, /* id */
		{RP_MSG_OFFER, 56, 8, 0}, /* secret */
		{RP_MSG_OFFER, 72, 8, UINT64_MAX},
		{RP_MSG_OFFER, 80, 8, UINT64_MAX},
		{RP_MSG_OFFER, 88, 8, 0},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint8_t buf[RP_WIRE_MAX_MSG];
		struct rp_wire_hdr hdr, back;
		union body b, c, before;
		int len;

		wire_example(bad[i].type, &hdr, &b);
		len = wire_put(buf, sizeof(buf), &hdr, &b);
		for (int j = 0; j < bad[i].width; j++)
			buf[bad[i].at + j] = bad[i].value >> 8 * j;
		memset(&c, 0x5a, sizeof(c));
		before = c;
		cr_assert_eq(rp_wire_get_hdr(buf, len, &back), 0);
		cr_expect_eq(wire_get(buf, &back, &c), -EBADMSG,
			     "type %d byte %d value %" PRIu64, bad[i].type,
			     bad[i].at, bad[i].value);
		cr_expect_eq(memcmp(&c, &before, sizeof(c)), 0,
			     "output written on failure");
	}
}

Test(wire_refuse, header)
{
	uint8_t buf[RP_WIRE_MAX_MSG + 8] = {0};
	struct rp_wire_hdr hdr, back;
	union body b;
	uint32_t told;
	int len;

	wire_example(RP_MSG_REPLY, &hdr, &b);
	len = wire_put(buf, sizeof(buf), &hdr, &b);

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
		bool known = memchr(wire_types, type, WIRE_TYPES);
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
Test(wire_refuse, other_version)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_hdr hdr, back;
	union body b, c = {0};
	uint32_t told;
	int len;

	wire_example(RP_MSG_REQUEST, &hdr, &b);
	len = wire_put(buf, sizeof(buf), &hdr, &b);
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
	wire_example(RP_MSG_HELLO, &hdr, &b);
	len = wire_put(buf, sizeof(buf), &hdr, &b);
	buf[2] = 2;
	told = len + 3;
	memcpy(buf + 4, &told, 4);
	cr_assert_eq(rp_wire_get_hdr(buf, told, &back), -EPROTONOSUPPORT);
	cr_assert_eq(wire_get(buf, &back, &c), 0);
	cr_assert_eq(memcmp(&b, &c, sizeof(b)), 0);
	/* But not with less. */
	told = len - 1;
	memcpy(buf + 4, &told, 4);
	cr_assert_eq(rp_wire_get_hdr(buf, told, &back), -EPROTONOSUPPORT);
	cr_assert_eq(wire_get(buf, &back, &c), -EBADMSG);
}

/* A request with an effect, each byte of it wrong in every way. */
Test(wire_refuse, effects)
{
	static const int tail[] = {32, 16, 8 + 13};

	for (int i = 0; i < 3; i++) {
		int nranges = i == 2 ? 1 : 2, seq = 40 + nranges * 24;
		uint8_t buf[RP_WIRE_MAX_MSG], again[RP_WIRE_MAX_MSG];
		struct rp_wire_hdr hdr, back;
		union body b, c;
		int len;

		wire_example(RP_MSG_REQUEST, &hdr, &b);
		b.request.nranges = nranges;
		b.request.effect = RP_EFFECT_THEN + i;
		b.request.seq = 1;
		b.request.ranges[0].len = 13;
		b.request.bytes = "Hello, world.";
		len = wire_put(buf, sizeof(buf), &hdr, &b);
		cr_assert_eq(len, seq + tail[i]);
		/* Shorter, longer, on the heap: the sanitizer watches. */
		for (uint32_t told = RP_WIRE_HDR; (int)told < len + 9; told++) {
			uint8_t *cut = calloc(1, told);

			memcpy(cut, buf, (int)told < len ? (int)told : len);
			memcpy(cut + 4, &told, 4);
			cr_assert_eq(rp_wire_get_hdr(cut, told, &back), 0);
			cr_assert_eq(wire_get(cut, &back, &c),
				     (int)told == len ? 0 : -EBADMSG, "%u",
				     told);
			free(cut);
		}
		cr_assert_eq(rp_wire_get_hdr(buf, len, &back), 0);
		for (int at = 32; at < len; at++) {
			uint8_t good = buf[at];

			for (int v = 0; v < 256; v++) {
				memset(&c, 0, sizeof(c));
				buf[at] = v;
				if (!wire_get(buf, &back, &c))
					cr_assert(wire_put(again, sizeof(again),
							   &back, &c) == len &&
							  !memcmp(again, buf,
								  len),
						  "byte %d = %d", at, v);
			}
			buf[at] = good;
		}
		/*
		 * Counted from 1; visible promises nothing to stand behind, and
		 * places what a store brings.
		 */
		buf[seq] = 0;
		cr_assert_eq(wire_get(buf, &back, &c), -EBADMSG);
		buf[seq] = 1;
		buf[34] = RP_LEVEL_VISIBLE;
		cr_assert_eq(wire_get(buf, &back, &c), i == 2 ? 0 : -EBADMSG);
		buf[34] = RP_LEVEL_DURABLE;
		cr_assert_eq(wire_get(buf, &back, &c), 0);
	}
}

/* An encoder refuses what its decoder would, and writes nothing then. */
Test(wire_refuse, encoders_refuse)
{
	for (size_t i = 0; i < WIRE_TYPES; i++) {
		uint8_t buf[RP_WIRE_MAX_MSG];
		struct rp_wire_hdr hdr;
		union body b;
		int full;

		wire_example(wire_types[i], &hdr, &b);
		full = wire_put(buf, sizeof(buf), &hdr, &b);
		memset(buf, 0x5a, sizeof(buf));
		cr_assert_eq(wire_put(buf, full, &hdr, &b), full,
			     "just enough");
		cr_assert_eq(buf[full], 0x5a);
		for (int size = 0; size < full; size++) {
			uint8_t *small = malloc(size ? size : 1);

			memset(small, 0x5a, size);
			cr_assert_eq(wire_put(small, size, &hdr, &b),
				     -EMSGSIZE);
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
		wire_example(type, &hdr, &b);                                  \
		b.field = value;                                               \
		memset(buf, 0x5a, sizeof(buf));                                \
		cr_expect_eq(wire_put(buf, sizeof(buf), &hdr, &b), -EINVAL,    \
			     #field " = " #value);                             \
		cr_expect_eq(buf[0], 0x5a);                                    \
	} while (0)
	REFUSED(RP_MSG_HELLO, hello.cookie, 0);
	REFUSED(RP_MSG_HELLO, hello.addr_len, 0);
	REFUSED(RP_MSG_HELLO, hello.addr_len, RP_WIRE_MAX_ADDR + 1);
	REFUSED(RP_MSG_HELLO_ACK, hello_ack.status, RP_ST_VERSION);
	REFUSED(RP_MSG_HELLO_ACK, hello_ack.status, RP_ST_WRITE_FAILED);
	REFUSED(RP_MSG_HELLO_ACK, hello_ack.features, RP_FEATURES + 1);
	REFUSED(RP_MSG_HELLO_ACK, hello_ack.cookie, 0);
	REFUSED(RP_MSG_HELLO_ACK, hello_ack.max_ranges, 169);
	REFUSED(RP_MSG_REQUEST, request.nranges, 0);
	REFUSED(RP_MSG_REQUEST, request.nranges, RP_WIRE_MAX_RANGES + 1);
	REFUSED(RP_MSG_REQUEST, request.level, 0);
	REFUSED(RP_MSG_REQUEST, request.required, 3);
	REFUSED(RP_MSG_REQUEST, request.effect, 4);
	/* Effects are counted from 1. */
	REFUSED(RP_MSG_REQUEST, request.effect, RP_EFFECT_THEN);
	REFUSED(RP_MSG_REQUEST, request.effect, RP_EFFECT_STORE);
	REFUSED(RP_MSG_REPLY, reply.status, RP_ST_TIMEOUT);
	REFUSED(RP_MSG_REPLY, reply.level, 0);
	REFUSED(RP_MSG_REPLY, reply.range, RP_WIRE_MAX_PACKED);
	REFUSED(RP_MSG_QUERY, query.required, 3);
	REFUSED(RP_MSG_INFO, info.status, RP_ST_TIMEOUT);
	REFUSED(RP_MSG_INFO, info.memory, RP_MEM_EMULATED + 1);
#undef REFUSED
	/* A refusal that grants or claims something, whatever it is. */
	for (int i = 0; i < 4; i++) {
		wire_example(RP_MSG_HELLO_ACK, &hdr, &b);
		b.hello_ack = (struct rp_wire_hello_ack){
			.status = RP_ST_VERSION,
			.cookie = i == 0,
			.credits = i == 1,
			.max_ranges = i == 2,
			.features = i == 3,
		};
		cr_assert_eq(wire_put(buf, sizeof(buf), &hdr, &b), -EINVAL);
		wire_example(RP_MSG_REPLY, &hdr, &b);
		b.reply = (struct rp_wire_reply){
			.status = RP_ST_RANGE,
			.level = i == 0,
			.class = i == 1,
			.method = i > 1,
		};
		cr_assert_eq(wire_put(buf, sizeof(buf), &hdr, &b), -EINVAL);
	}

	/* A grant of what is no grant, or of nothing, or below durable. */
	for (int i = 0; i < 7; i++) {
		wire_example(RP_MSG_REPLY, &hdr, &b);
		b.reply = (struct rp_wire_reply){
			.status = i == 1 ? RP_ST_RANGE : RP_ST_OK,
			.level = i == 1	  ? 0
				 : i == 2 ? RP_LEVEL_VISIBLE
					  : RP_LEVEL_DURABLE,
			.grant = i == 3	  ? RP_METHOD_NATIVE
				 : i == 4 ? RP_METHOD_AGENT_CLWB
					  : RP_METHOD_FENCE,
			.addr = i == 5 ? UINT64_MAX : 0,
			.length = i != 6,
		};
		cr_assert_eq(wire_put(buf, sizeof(buf), &hdr, &b),
			     i ? -EINVAL : 64);
	}
	wire_example(RP_MSG_REPLY, &hdr, &b);
	cr_assert_eq(wire_put(buf, sizeof(buf), &hdr, &b), 48);
	/* The length says the same as the field. */
	buf[47] = RP_METHOD_FENCE;
	cr_assert_eq(rp_wire_get_hdr(buf, 48, &hdr), 0);
	cr_assert_eq(rp_wire_get_reply(buf, &hdr, &b.reply), -EBADMSG);

	wire_example(RP_MSG_BYE, &hdr, &b);
	hdr.type = RP_MSG_REPLY;
	cr_assert_eq(rp_wire_put_empty(buf, sizeof(buf), &hdr), -EINVAL);
}
