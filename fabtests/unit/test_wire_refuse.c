/* SPDX-License-Identifier: BSD-2-Clause */
/* Malformed messages: truncated, extended, corrupt, with invalid fields. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/atomic.h"
#include "core/wire_layout.h"
#include "core/wire_pack.h"
#include "seeded.h"
#include "wire_rig.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* A message of every type, of every effect, and with packed ranges. */
#define EXAMPLES (WIRE_TYPES + RP_EFFECT_ATOMIC + 1)
static int make_example(size_t i, uint8_t *buf, struct wire_msg *m)
{
	if (i < WIRE_TYPES) {
		wire_example(wire_types[i], m);
	} else if (i < WIRE_TYPES + RP_EFFECT_ATOMIC) {
		wire_example_effect(i - WIRE_TYPES + 1, m);
	} else {
		wire_example_effect(RP_EFFECT_NOTIFY, m);
		m->request.packed = true;
		m->request.nranges = 5;
		for (uint64_t j = 0; j < 5; j++)
			m->ranges[j] = (struct rp_wire_range){m->ranges[0].key,
							      64 + 300 * j, 8};
	}
	return wire_put(buf, RP_WIRE_MAX_MSG, m);
}

/* Write this length into the header. */
static void set_length(uint8_t *buf, uint32_t len)
{
	for (int i = 0; i < 4; i++)
		buf[4 + i] = (uint8_t)(len >> 8 * i);
}

/* Any other length is refused, and no byte past it is read. */
Test(wire_refuse, every_length)
{
	static struct wire_msg m, back, before;
	uint8_t buf[RP_WIRE_MAX_MSG];

	for (size_t i = 0; i < EXAMPLES; i++) {
		int full = make_example(i, buf, &m);

		for (int len = 0; len < full + 9; len++) {
			/* A heap copy lets ASan detect reads past its end. */
			uint8_t *cut = calloc(1, len ? len : 1);

			memcpy(cut, buf, len < full ? len : full);
			memset(&back, 0x5a, sizeof(back));
			before = back;
			if (len != full)
				cr_assert_eq(wire_get(cut, len, &back),
					     -EBADMSG);
			/* Now with the shorter length in the header. */
			if (len >= 8)
				set_length(cut, len);
			/* The result of a REPLY may have any length. */
			if (m.type == RP_MSG_REPLY && len >= 32)
				cr_assert_eq(wire_get(cut, len, &back), 0);
			else
				cr_assert_eq(wire_get(cut, len, &back),
					     len == full ? 0 : -EBADMSG,
					     "example %zu len %d", i, len);
			if (len != full && m.type != RP_MSG_REQUEST &&
			    m.type != RP_MSG_REPLY)
				cr_assert_eq(memcmp(&back.hello, &before.hello,
						    sizeof(back.info)),
					     0);
			free(cut);
		}
	}
}

/*
 * A message with a changed byte is refused or encodes to the same bytes. So
 * each field is in the range of its encoder, and every byte is checked.
 */
Test(wire_refuse, every_byte)
{
	static struct wire_msg m, back;
	uint8_t buf[RP_WIRE_MAX_MSG], again[RP_WIRE_MAX_MSG];

	for (size_t i = 0; i < EXAMPLES; i++) {
		int len = make_example(i, buf, &m);

		for (int at = 0; at < len; at++) {
			uint8_t good = buf[at];

			for (int v = 0; v < 256; v++) {
				uint8_t *heap = malloc(len);

				buf[at] = v;
				memcpy(heap, buf, len);
				if (!wire_get(heap, len, &back))
					cr_assert(wire_put(again, sizeof(again),
							   &back) == len &&
							  !memcmp(again, buf,
								  len),
						  "example %zu byte %d = %d", i,
						  at, v);
				free(heap);
			}
			buf[at] = good;
		}
	}
}

Test(wire_refuse, random_bytes)
{
	static struct wire_msg back;
	struct seeded s = seeded_start();

	for (int i = 0; i < 100000; i++) {
		size_t len = seeded_below(&s, 300);
		uint8_t *buf = malloc(len + 1);

		for (size_t j = 0; j < len; j++)
			buf[j] = seeded_next(&s);
		/* Mostly use a valid header, to get past the first checks. */
		if (len >= 8 && i % 8) {
			memcpy(buf, "RP\2", 3);
			buf[3] = wire_types[i % WIRE_TYPES];
			set_length(buf, len);
		}
		wire_get(buf, len, &back);
		free(buf);
	}
}

/* Each decoder refuses messages of other types by itself. */
Test(wire_refuse, decoders_of_other_types)
{
	static struct wire_msg m, back;
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_hdr hdr;

	for (size_t i = 0; i < WIRE_TYPES; i++) {
		int len = make_example(i, buf, &m);

		for (size_t j = 0; j < WIRE_TYPES; j++) {
			cr_assert_eq(rp_wire_get_hdr(buf, len, &hdr), 0);
			if (wire_is_signal(wire_types[j]))
				continue;
			cr_assert_eq(
				wire_get_as(wire_types[j], buf, &hdr, &back),
				i == j ? 0 : -EBADMSG, "%d as %d",
				wire_types[i], wire_types[j]);
		}
	}
}

/* Change one field at a time in a valid message. */
Test(wire_refuse, fields_out_of_range)
{
	static const struct {
		uint8_t type, at, width;
		uint64_t value;
	} bad[] = {
		{RP_MSG_HELLO, 8, 8, 1}, /* token is not 0 */
		{RP_MSG_HELLO_ACK, 8, 8, 1},
		{RP_MSG_HELLO_ACK, 16, 4, 2},  /* a refusal with a grant */
		{RP_MSG_HELLO_ACK, 16, 4, 64}, /* a status of initiators only */
		{RP_MSG_HELLO_ACK, 24, 8, 0},  /* incarnation 0 */
		{RP_MSG_HELLO_ACK, 32, 2, 0},  /* 0 credits */
		{RP_MSG_HELLO_ACK, 34, 2, RP_FEATURES + 1},
		{RP_MSG_HELLO_ACK, 36, 4, 1},
		{RP_MSG_HELLO_ACK, 48, 8, UINT64_MAX}, /* remote_addr wraps */
		{RP_MSG_HELLO_ACK, 56, 8, UINT64_MAX}, /* addr wraps */
		{RP_MSG_HELLO_ACK, 64, 8, 0},	       /* a grant of length 0 */
		{RP_MSG_HELLO_ACK, 64, 8, UINT64_MAX},
		{RP_MSG_HELLO_ACK, 72, 1, 3},
		{RP_MSG_HELLO_ACK, 73, 1, RP_METHOD_MAX},
		{RP_MSG_HELLO_ACK, 74, 1, 4},
		{RP_MSG_HELLO_ACK, 75, 1, 1},
		{RP_MSG_HELLO_ACK, 79, 1, 1},
		{RP_MSG_REQUEST, 16, 2, 0}, /* without ranges */
		{RP_MSG_REQUEST, 16, 2, 2}, /* more ranges than sent */
		{RP_MSG_REQUEST, 16, 2, 169},
		{RP_MSG_REQUEST, 18, 1, 0}, /* level 0 */
		{RP_MSG_REQUEST, 18, 1, 3},
		{RP_MSG_REQUEST, 19, 1, 3}, /* class 3 */
		{RP_MSG_REQUEST, 20, 1, 1}, /* no ordered store */
		{RP_MSG_REQUEST, 20, 1, 2}, /* a notification without data */
		{RP_MSG_REQUEST, 20, 1, 3}, /* a store without bytes */
		{RP_MSG_REQUEST, 20, 1, 4},
		{RP_MSG_REQUEST, 20, 1, 5},
		{RP_MSG_REQUEST, 21, 1, 1}, /* a single packed range */
		{RP_MSG_REQUEST, 21, 1, 2},
		{RP_MSG_REQUEST, 22, 2, 1},
		{RP_MSG_REPLY, 16, 4, 64},
		{RP_MSG_REPLY, 16, 4, 7}, /* a failure with a level */
		{RP_MSG_REPLY, 24, 2, RP_WIRE_MAX_PACKED + 1},
		{RP_MSG_REPLY, 28, 1, 0}, /* a success at level 0 */
		{RP_MSG_REPLY, 28, 1, 3},
		{RP_MSG_REPLY, 29, 1, 3},
		{RP_MSG_REPLY, 30, 1, RP_METHOD_MAX},
		{RP_MSG_REPLY, 31, 1, 1},
		{RP_MSG_QUERY, 24, 1, 3},
		{RP_MSG_QUERY, 25, 1, 1},
		{RP_MSG_QUERY, 31, 1, 1},
		{RP_MSG_INFO, 16, 4, 64},
		{RP_MSG_INFO, 20, 1, 3},
		{RP_MSG_INFO, 21, 1, RP_METHOD_MAX},
		{RP_MSG_INFO, 22, 1, RP_MEM_EMULATED + 1},
		{RP_MSG_INFO, 23, 1, RP_PLACE_DMA_MEMORY + 1},
		{RP_MSG_INFO, 24, 1, RP_DOMAIN_SYSTEM + 1},
		{RP_MSG_INFO, 25, 1, RP_REFUSAL_UNKNOWN + 1},
		{RP_MSG_INFO, 26, 2, 4},
		{RP_MSG_INFO, 26, 2, 6},
		{RP_MSG_INFO, 26, 2, 256},
		{RP_MSG_INFO, 64, 8, 0}, /* half of a grant */
		{RP_MSG_INFO, 79, 1, 1},
		{RP_MSG_INFO, 80, 1, 0},    /* a NUL inside the text */
		{RP_MSG_INFO, 81, 1, 0x1b}, /* an escape for terminals */
		{RP_MSG_INFO, 81, 1, 0x9b},
		{RP_MSG_PROGRESS, 8, 8, 1},
		{RP_MSG_DOORBELL, 8, 8, 1},
		{RP_MSG_POLLING, 8, 8, 1},
		{RP_MSG_IDLE, 8, 8, 1},
	};
	static struct wire_msg m, back;

	for (size_t i = 0; i < COUNT(bad); i++) {
		uint8_t buf[RP_WIRE_MAX_MSG];
		int len;

		wire_example(bad[i].type, &m);
		len = wire_put(buf, sizeof(buf), &m);
		for (int j = 0; j < bad[i].width; j++)
			buf[bad[i].at + j] = bad[i].value >> 8 * j;
		cr_expect_eq(wire_get(buf, len, &back), -EBADMSG,
			     "type %d byte %d value %" PRIu64, bad[i].type,
			     bad[i].at, bad[i].value);
	}
}

/* Change one field at a time in requests with each effect. */
Test(wire_refuse, effects_out_of_range)
{
	static const struct {
		uint8_t effect, at, value;
	} bad[] = {
		{RP_EFFECT_THEN, 18, RP_LEVEL_VISIBLE},
		{RP_EFFECT_THEN, 21, 1},
		{RP_EFFECT_STORE, 40, 0},  /* a store to an empty range */
		{RP_EFFECT_STORE, 40, 6},  /* a range longer than the bytes */
		{RP_EFFECT_STORE, 70, 1},  /* a range much longer */
		{RP_EFFECT_ATOMIC, 40, 7}, /* half of an element */
		{RP_EFFECT_ATOMIC, 40, 4}, /* operands left over */
		{RP_EFFECT_ATOMIC, 40, 0}, /* an atomic on an empty range */
		{RP_EFFECT_ATOMIC, 48, RP_ATOMIC_SUM}, /* unused comparison */
		{RP_EFFECT_ATOMIC, 48, RP_ATOMIC_READ},
		{RP_EFFECT_ATOMIC, 48, RP_ATOMIC_OPS},
		{RP_EFFECT_ATOMIC, 49, RP_ATOMIC_TYPES},
		{RP_EFFECT_ATOMIC, 50, 2},
		{RP_EFFECT_ATOMIC, 51, 1},
		{RP_EFFECT_ATOMIC, 55, 1},
		{RP_EFFECT_ZERO, 40, 1}, /* zeros with a byte of data */
		{RP_EFFECT_ZERO, 42, 0}, /* zeros to an empty range */
	};
	static struct wire_msg m, back;

	for (size_t i = 0; i < COUNT(bad); i++) {
		uint8_t buf[RP_WIRE_MAX_MSG];
		int len;

		wire_example_effect(bad[i].effect, &m);
		len = wire_put(buf, sizeof(buf), &m);
		buf[bad[i].at] = bad[i].value;
		cr_expect_eq(wire_get(buf, len, &back), -EBADMSG,
			     "effect %d byte %d value %d", bad[i].effect,
			     bad[i].at, bad[i].value);
	}
}

/* nranges must be right, and a single range must not be packed. */
Test(wire_refuse, packed_ranges)
{
	static struct wire_msg back;
	uint8_t buf[] = "RP\2\2\x26\0\0\0\0\0\0\0\0\0\0\0"
			"\2\0\1\0\0\1\0\0keykey!!\0\1\0\2..";
	const int len = 36;

	cr_assert_eq(sizeof(buf) - 1, 38);
	set_length(buf, len);
	cr_assert_eq(wire_get(buf, len, &back), 0);
	cr_assert_eq(back.ranges[1].addr, 1);
	/* One byte behind the ranges, without an effect. */
	set_length(buf, len + 1);
	cr_assert_eq(wire_get(buf, len + 1, &back), -EBADMSG);
	set_length(buf, len);
	buf[16] = 1;
	cr_assert_eq(wire_get(buf, len, &back), -EBADMSG);
	buf[16] = 3;
	cr_assert_eq(wire_get(buf, len, &back), -EBADMSG);
	buf[16] = 1;
	buf[17] = 4;
	cr_assert_eq(wire_get(buf, len, &back), -EBADMSG);
	for (int cut = 24; cut < len; cut++) {
		set_length(buf, cut);
		buf[16] = 2;
		buf[17] = 0;
		cr_assert_eq(wire_get(buf, cut, &back), -EBADMSG);
	}
}

Test(wire_refuse, header)
{
	static struct wire_msg m;
	static uint8_t buf[RP_WIRE_MAX_MSG + 8];
	struct rp_wire_hdr back;
	int len;

	wire_example(RP_MSG_REPLY, &m);
	len = wire_put(buf, sizeof(buf), &m);

	for (int at = 0; at < 2; at++) {
		buf[at] ^= 1;
		cr_assert_eq(rp_wire_get_hdr(buf, len, &back), -EBADMSG);
		cr_assert_eq(rp_wire_get_hello(buf, len, &m.hello), -EBADMSG);
		buf[at] ^= 1;
	}
	buf[4]++;
	cr_assert_eq(rp_wire_get_hdr(buf, len, &back), -EBADMSG, "length");
	buf[4]--;
	for (int type = 0; type < 256; type++) {
		bool known = memchr(wire_types, type, WIRE_TYPES);

		buf[3] = type;
		cr_assert_eq(rp_wire_get_hdr(buf, len, &back),
			     known && !wire_is_signal(type) ? 0 : -EBADMSG,
			     "type %d", type);
	}

	/* The longest valid message, and one byte more. */
	buf[3] = RP_MSG_REQUEST;
	set_length(buf, RP_WIRE_MAX_MSG);
	cr_assert_eq(rp_wire_get_hdr(buf, RP_WIRE_MAX_MSG, &back), 0);
	set_length(buf, RP_WIRE_MAX_MSG + 1);
	cr_assert_eq(rp_wire_get_hdr(buf, RP_WIRE_MAX_MSG + 1, &back),
		     -EBADMSG);
}

/* Only the type decides, even if the body is valid for another type. */
Test(wire_refuse, body_of_another_type)
{
	static const uint8_t bodies[] = {RP_MSG_REQUEST, RP_MSG_REPLY,
					 RP_MSG_QUERY, RP_MSG_INFO};
	static struct wire_msg m, back;
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_hdr hdr;

	for (size_t i = 0; i < COUNT(bodies); i++) {
		int len;

		wire_example(bodies[i], &m);
		len = wire_put(buf, sizeof(buf), &m);
		cr_assert_eq(rp_wire_get_hdr(buf, len, &hdr), 0);
		hdr.type = RP_MSG_PROGRESS;
		cr_assert_eq(wire_get_as(bodies[i], buf, &hdr, &back), -EBADMSG,
			     "type %d", bodies[i]);
	}
	cr_assert_eq(rp_wire_put_signal(buf, sizeof(buf), RP_MSG_REPLY),
		     -EINVAL);
}

/* A single range is never packed, so that it has one form only. */
Test(wire_refuse, single_packed_range)
{
	const struct rp_wire_range r = {7, 4096, 64};
	const struct rp_wire_request m = {
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.ranges = &r,
	};
	static struct wire_msg back;
	uint8_t buf[RP_WIRE_MAX_MSG];
	size_t taken, len;

	cr_assert_gt(rp_wire_put_request(buf, sizeof(buf), 1, &m), 0);
	buf[offsetof(struct rp_le_request, flags)] = RP_LE_REQUEST_PACKED;
	len = RP_WIRE_PACKED_AT +
	      rp_wire_pack(buf + RP_WIRE_PACKED_AT, 64, &r, 1, &taken);
	cr_assert_eq(taken, 1);
	set_length(buf, (uint32_t)len);
	cr_assert_eq(wire_get(buf, len, &back), -EBADMSG);
}

/* Ranges left from an earlier message must not be taken for this one's. */
Test(wire_refuse, store_without_its_ranges)
{
	static struct wire_msg m, back;
	uint8_t buf[RP_WIRE_MAX_MSG];

	wire_example_effect(RP_EFFECT_STORE, &m);
	cr_assert_gt(wire_put(buf, sizeof(buf), &m), 0);
	for (size_t len = sizeof(struct rp_le_request); len < 72; len++) {
		const size_t left = len - sizeof(struct rp_le_request);

		/* Lengths that match if a decoder used an errno as a size. */
		back.ranges[0].len = EBADMSG;
		back.ranges[1].len = left;
		set_length(buf, (uint32_t)len);
		cr_assert_eq(wire_get(buf, len, &back), -EBADMSG);
	}
}

Test(wire_refuse, request_without_ranges_is_decoded)
{
	static struct wire_msg m, back;
	uint8_t buf[RP_WIRE_MAX_MSG];
	int len;

	wire_example(RP_MSG_REQUEST, &m);
	m.request.nranges = 0;
	m.request.level = RP_LEVEL_VISIBLE;
	len = wire_put(buf, sizeof(buf), &m);
	cr_assert_gt(len, 0);
	back.request.level = 99;
	cr_assert_eq(wire_get(buf, len, &back), 0);
	cr_assert_eq(back.request.level, RP_LEVEL_VISIBLE);
	cr_assert_eq(back.request.nranges, 0);
}

/* Another version has its own error, whatever else is wrong. */
Test(wire_refuse, other_version)
{
	static struct wire_msg m;
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_hdr back;
	int len;

	wire_example(RP_MSG_REQUEST, &m);
	len = wire_put(buf, sizeof(buf), &m);
	buf[2] = 1;
	cr_assert_eq(rp_wire_get_hdr(buf, len, &back), -EPROTONOSUPPORT);
	cr_assert_eq(back.type, RP_MSG_REQUEST);
	cr_assert_eq(back.token, m.token);
	/* An unknown type in a message that is only a header. */
	buf[3] = 200;
	set_length(buf, 16);
	cr_assert_eq(rp_wire_get_hdr(buf, 16, &back), -EPROTONOSUPPORT);
	set_length(buf, 15);
	cr_assert_eq(rp_wire_get_hdr(buf, 15, &back), -EBADMSG);
	/* Private data of another version may have any length. */
	cr_assert_eq(rp_wire_get_hello(buf, 16, &m.hello), -EPROTONOSUPPORT);
	cr_assert_eq(rp_wire_get_hello_ack(buf, 99, &m.hello_ack),
		     -EPROTONOSUPPORT);
	cr_assert_eq(rp_wire_get_hello(buf, 15, &m.hello), -EBADMSG);
}

/* An encoder refuses what its decoder refuses, and writes nothing. */
Test(wire_refuse, encoders_without_room)
{
	static struct wire_msg m;
	uint8_t buf[RP_WIRE_MAX_MSG];

	for (size_t i = 0; i < EXAMPLES; i++) {
		int full = make_example(i, buf, &m);

		memset(buf, 0x5a, sizeof(buf));
		cr_assert_eq(wire_put(buf, full, &m), full, "just enough");
		cr_assert_eq(buf[full], 0x5a);
		for (int size = 0; size < full; size++) {
			uint8_t *small = malloc(size ? size : 1);

			memset(small, 0x5a, size);
			cr_assert_eq(wire_put(small, size, &m), -EMSGSIZE);
			for (int j = 0; j < size; j++)
				cr_assert_eq(small[j], 0x5a);
			free(small);
		}
	}
}

#define REFUSED(type, field, value)                                            \
	do {                                                                   \
		wire_example(type, &m);                                        \
		m.field = value;                                               \
		memset(buf, 0x5a, sizeof(buf));                                \
		cr_expect_eq(wire_put(buf, sizeof(buf), &m), -EINVAL,          \
			     #field " = " #value);                             \
		cr_expect_eq(buf[0], 0x5a);                                    \
	} while (0)

Test(wire_refuse, encoders)
{
	static struct wire_msg m;
	uint8_t buf[RP_WIRE_MAX_MSG];

	REFUSED(RP_MSG_HELLO_ACK, hello_ack.status, RP_ST_VERSION);
	REFUSED(RP_MSG_HELLO_ACK, hello_ack.status, RP_ST_LOST);
	REFUSED(RP_MSG_HELLO_ACK, hello_ack.features, RP_FEATURES + 1);
	REFUSED(RP_MSG_HELLO_ACK, hello_ack.incarnation, 0);
	REFUSED(RP_MSG_HELLO_ACK, hello_ack.credits, 0);
	REFUSED(RP_MSG_HELLO_ACK, hello_ack.grant.length, 0);
	REFUSED(RP_MSG_HELLO_ACK, hello_ack.grant.addr, UINT64_MAX);
	REFUSED(RP_MSG_HELLO_ACK, hello_ack.grant.remote_addr, UINT64_MAX);
	REFUSED(RP_MSG_HELLO_ACK, hello_ack.grant.class, 3);
	REFUSED(RP_MSG_HELLO_ACK, hello_ack.grant.method, RP_METHOD_MAX);
	REFUSED(RP_MSG_REQUEST, request.nranges, 0);
	REFUSED(RP_MSG_REQUEST, request.nranges, RP_WIRE_MAX_RANGES + 1);
	REFUSED(RP_MSG_REQUEST, request.level, 0);
	REFUSED(RP_MSG_REQUEST, request.level, 3);
	REFUSED(RP_MSG_REQUEST, request.required, 3);
	REFUSED(RP_MSG_REQUEST, request.effect, 6);
	/* Too many bytes for a store, for this atomic, for zeros. */
	REFUSED(RP_MSG_REQUEST, request.effect, RP_EFFECT_ZERO);
	REFUSED(RP_MSG_REQUEST, request.effect, RP_EFFECT_STORE);
	REFUSED(RP_MSG_REQUEST, request.effect, RP_EFFECT_ATOMIC);
	REFUSED(RP_MSG_REPLY, reply.status, RP_ST_TIMEOUT);
	REFUSED(RP_MSG_REPLY, reply.status, RP_ST_RANGE);
	REFUSED(RP_MSG_REPLY, reply.level, 0);
	REFUSED(RP_MSG_REPLY, reply.range, RP_WIRE_MAX_PACKED + 1);
	REFUSED(RP_MSG_REPLY, reply.result_len, RP_WIRE_MAX_STORE + 1);
	REFUSED(RP_MSG_QUERY, query.required, 3);
	REFUSED(RP_MSG_INFO, info.status, RP_ST_TIMEOUT);
	REFUSED(RP_MSG_INFO, info.memory, RP_MEM_EMULATED + 1);
	REFUSED(RP_MSG_INFO, info.grant.length, 0);
	REFUSED(RP_MSG_INFO, info.grant, (struct rp_wire_grant){.writable = 1});
	/* Only an error status may come without a grant. */
	wire_example(RP_MSG_INFO, &m);
	m.info.grant = (struct rp_wire_grant){0};
	cr_assert_gt(wire_put(buf, sizeof(buf), &m), 0);
	m.info.status = RP_ST_OK;
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), -EINVAL);
}

/* A refusal with a grant or a result is malformed. */
Test(wire_refuse, refusals_with_more)
{
	static struct wire_msg m;
	uint8_t buf[RP_WIRE_MAX_MSG];

	for (int i = 0; i < 12; i++) {
		m = (struct wire_msg){.type = RP_MSG_HELLO_ACK};
		m.hello_ack = (struct rp_wire_hello_ack){
			.status = RP_ST_STALE_KEY,
			.detail = 5,
			.incarnation = i == 1,
			.credits = i == 2,
			.features = i == 3,
			.grant = {.rkey = i == 4,
				  .remote_addr = i == 5,
				  .addr = i == 6,
				  .length = i == 7,
				  .class = i == 8,
				  .method = i == 9,
				  .writable = i == 10,
				  .unreadable = i == 11},
		};
		cr_assert_eq(wire_put(buf, sizeof(buf), &m), i ? -EINVAL : 80);
	}
	/* Only initiators set this status; no target sends it. */
	m.hello_ack = (struct rp_wire_hello_ack){.status = RP_ST_WRITE_FAILED};
	cr_assert_eq(wire_put(buf, sizeof(buf), &m), -EINVAL);
	for (int i = 0; i < 5; i++) {
		m = (struct wire_msg){.type = RP_MSG_REPLY};
		m.reply = (struct rp_wire_reply){
			.status = RP_ST_RANGE,
			.detail = 5,
			.range = 3,
			.credits = 7,
			.level = i == 1,
			.class = i == 2,
			.method = i == 3,
			.result = "x",
			.result_len = i == 4,
		};
		cr_assert_eq(wire_put(buf, sizeof(buf), &m), i ? -EINVAL : 32);
	}
}
