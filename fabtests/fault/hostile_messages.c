// SPDX-License-Identifier: BSD-2-Clause
/* Messages that no correct initiator sends, over a private connection. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/atomic.h"
#include "fault/hostile.h"

/* Offsets of fields in a REQUEST, from docs/protocol.md. */
#define NRANGES	 16
#define LEVEL	 18
#define REQUIRED 19
#define EFFECT	 20
#define FLAGS	 21
#define RANGES	 24

struct field {
	uint16_t at, size;
};

/*
 * Send the message `good` with each of these fields set to extreme values, one
 * field at a time.
 */
static void vary_fields(const uint8_t *good, size_t len, const struct field *f,
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
			was ^ 2,     was + 4096, was ^ max,
		};

		for (size_t v = 0; v < sizeof(values) / 8; v++) {
			if (!grant_all())
				return;
			memcpy(msg, good, len);
			wire_put(msg + 8, 8, new_token());
			wire_put(msg + f[i].at, f[i].size, values[v]);
			send_and_wait(msg, len);
		}
	}
}

static void attack_fields(void)
{
	static const struct field head[] = {
		{0, 2}, {2, 1}, {3, 1}, {4, 4}, {8, 8}};
	static const struct field request_f[] = {
		{16, 2}, {18, 1}, {19, 1}, {20, 1}, {21, 1}, {22, 2},
		{32, 8}, {36, 4}, {40, 8}, {44, 4}, {56, 8}, {64, 8}};
	static const struct field query_f[] = {{24, 1}, {25, 1}, {28, 4}};
	static const int of[] = {R_FILE, R_PMEM, R_READONLY};
	uint8_t msg[RP_WIRE_MAX_MSG];
	struct rp_wire_range g[2];
	struct rp_wire_query q;
	size_t len;

	for (size_t i = 0; i < 3; i++) {
		const int r = of[i];

		g[0] = range_of(r, 64, 64);
		g[1] = range_of(R_FILE, REGION_LEN - 64, 64);
		for (uint8_t level = 1; level <= 2; level++) {
			len = request(msg, g, 2, level, r == R_PMEM ? 0 : 2);
			vary_fields(msg, len, request_f, 12);
		}
		vary_fields(msg, len, head, 5);
		q = (struct rp_wire_query){.key = world->regions[r].key};
		len = (size_t)MUST(rp_wire_put_query(msg, sizeof(msg), 1, &q));
		vary_fields(msg, len, query_f, 3);
		vary_fields(msg, len, head, 5);
	}
}

static void attack_ranges(void)
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
	static const int of[] = {R_FILE, R_PMEM, R_READONLY};
	struct rp_wire_range g[RP_WIRE_MAX_RANGES];
	uint8_t msg[RP_WIRE_MAX_MSG];

	for (size_t k = 0; k < 3; k++)
		for (size_t i = 0; i < sizeof(edges) / sizeof(*edges); i++) {
			g[0] = range_of(of[k], edges[i][0], edges[i][1]);
			for (uint8_t class = 0; class <= 2 && grant_all();
			     class ++) {
				send_and_wait(msg,
					      request(msg, g, 1, 2, class));
				send_and_wait(msg,
					      request(msg, g, 1, 1, class));
			}
		}
	/*
	 * As many ranges as a message holds: whole regions, or overlapping
	 * ranges.
	 */
	for (int i = 0; i < 30 && grant_all(); i++) {
		for (size_t n = 0; n < RP_WIRE_MAX_RANGES; n++) {
			uint64_t from = i % 3 ? rnd() % R : 0;

			g[n] = range_of(i % 2 ? R_FILE : R_PMEM, from,
					i % 3 ? rnd() % (R - from) + 1 : R);
		}
		if (i % 4 == 3) /* one range ends beyond the region */
			g[rnd() % RP_WIRE_MAX_RANGES].len = R + 1;
		send_and_wait(msg, request(msg, g, RP_WIRE_MAX_RANGES, 2, 0));
	}
}

/* Use valid keys that were not granted on this connection. */
static void keys_of_others(void)
{
	static const int of[] = {R_HONEST,   R_FILE_OTHER, R_PMEM_OTHER,
				 R_VOLATILE, R_STALE,	   R_PMEM};
	uint8_t msg[RP_WIRE_MAX_MSG], bytes[64];
	struct rp_wire_range g;
	struct rp_wire_request m = {
		.nranges = 1,
		.level = RP_LEVEL_VISIBLE,
		.effect = RP_EFFECT_STORE,
		.bytes = bytes,
		.ranges = &g,
	};

	memset(bytes, 0xee, sizeof(bytes));
	for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++) {
		g = range_of(of[i], 0, 64);
		send_and_wait(msg, request(msg, &g, 1, 2, 0));
		send_and_wait(msg, (size_t)MUST(rp_wire_put_request(
					   msg, sizeof(msg), new_token(), &m)));
	}
	/* One wrong bit makes a key wrong. */
	for (int bit = 0; bit < 64; bit += 5) {
		g = range_of(R_FILE, 0, 64);
		g.key ^= 1ull << bit;
		send_and_wait(msg, request(msg, &g, 1, 1, 0));
	}
}

/*
 * Send a store, THEN or atomic. request_is_valid() says that it must be
 * refused.
 */
static void send_refused(struct rp_wire_request *m)
{
	uint8_t msg[RP_WIRE_MAX_MSG];

	if (!grant_all())
		return;
	send_and_wait(msg, (size_t)MUST(rp_wire_put_request(msg, sizeof(msg),
							    new_token(), m)));
}

static void refused_stores(void)
{
	static uint8_t bytes[RP_WIRE_MAX_STORE];
	struct rp_wire_range g[2];
	struct rp_wire_request m = {
		.nranges = 1,
		.level = RP_LEVEL_VISIBLE,
		.effect = RP_EFFECT_STORE,
		.bytes = bytes,
		.ranges = g,
	};
	const uint64_t R = REGION_LEN;
	const uint64_t wrong[][2] = {
		{R, 64},	  {R - 63, 64}, {-64ull, 64}, {-64ull, 65},
		{-4096ull, 4096}, {R, 4096},	{R - 1, 4096}};

	memset(bytes, 0xee, sizeof(bytes));
	for (uint8_t level = 1; level <= 2; level++) {
		m.level = level;
		for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
			m.nranges = 1;
			g[0] = range_of(R_FILE, wrong[i][0], wrong[i][1]);
			send_refused(&m);
			g[0].key = world->regions[R_PMEM].key;
			g[0].addr += world->regions[R_PMEM].addr -
				     world->regions[R_FILE].addr;
			send_refused(&m);
			/*
			 * Two ranges: the first is in the read-only region, and
			 * must not be stored either.
			 */
			m.nranges = 2;
			g[1] = g[0];
			g[1].len = 64;
			g[0] = range_of(R_READONLY, 0, 64);
			send_refused(&m);
		}
		m.nranges = 1;
		g[0] = range_of(R_READONLY, 0, 64);
		send_refused(&m);
		m.effect = RP_EFFECT_NOTIFY;
		send_refused(&m);
		m.effect = RP_EFFECT_STORE;
	}
}

static void refused_thens(void)
{
	struct rp_wire_range g = range_of(R_FILE, 0, 64);
	struct rp_wire_request m = {
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.effect = RP_EFFECT_THEN,
		.ranges = &g,
	};
	static const int of[] = {R_READONLY, R_HONEST, R_FILE_OTHER, R_STALE,
				 R_VOLATILE};
	static const uint64_t at[] = {1,	  4,	 7,	REGION_LEN - 4,
				      REGION_LEN, -8ull, -4ull, 1ull << 63};

	for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++) {
		m.then = (struct rp_wire_then){
			.key = world->regions[R_FILE].key,
			.addr = world->regions[R_FILE].addr + at[i],
			.value = ~0ull,
		};
		send_refused(&m);
	}
	for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++) {
		m.then.key = world->regions[of[i]].key;
		m.then.addr = world->regions[of[i]].addr;
		send_refused(&m);
	}
}

/*
 * Atomics with operations and types that the encoder never writes, with missing
 * operands, and at wrong places.
 */
static void attack_atomics(void)
{
	static uint8_t ones[4096];
	uint8_t msg[RP_WIRE_MAX_MSG + 64];
	struct rp_wire_range g = range_of(R_FILE, 0, 8);
	struct rp_wire_request m = {
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.effect = RP_EFFECT_ATOMIC,
		.ranges = &g,
	};
	const size_t at = RANGES + 24; /* offset of the operation */
	size_t len;

	memset(ones, 0xff, sizeof(ones));
	for (int op = 0; op < 256; op += op < 24 ? 1 : 29) {
		for (int type = 0; type < 256; type += type < 16 ? 1 : 29) {
			m.atomic = (struct rp_wire_atomic){
				.op = RP_ATOMIC_SUM,
				.datatype = RP_ATOMIC_UINT64,
				.operand = ones,
				.compare = ones,
			};
			len = (size_t)MUST(rp_wire_put_request(
				msg, sizeof(msg), new_token(), &m));
			msg[at] = (uint8_t)op;
			msg[at + 1] = (uint8_t)type;
			/*
			 * One byte less than the operands need: no element may
			 * change.
			 */
			wire_put(msg + 4, 4, --len);
			send_and_wait(msg, len);
		}
	}
	/*
	 * Elements that are misaligned, partly outside the region, in another
	 * region, or read-only.
	 */
	for (uint64_t off = 1; off < 8; off++) {
		g = range_of(R_FILE, off, 8);
		send_refused(&m);
		g = range_of(R_FILE, REGION_LEN - 8 + off, 8);
		send_refused(&m);
	}
	for (int op = RP_ATOMIC_MIN; op < RP_ATOMIC_OPS; op++) {
		m.atomic.op = (uint8_t)op;
		if (!rp_atomic_valid((unsigned int)op, RP_ATOMIC_UINT64, &len))
			continue;
		g = range_of(R_FILE_OTHER, 64, 8);
		if (op % 4 == 0)
			send_refused(&m);
		g = range_of(R_READONLY, 64, 8);
		if (op != RP_ATOMIC_READ)
			send_refused(&m);
		g = range_of(R_PMEM, REGION_LEN, 8);
		send_refused(&m);
		g = range_of(R_PMEM, -8ull, 8);
		send_refused(&m);
	}
	/*
	 * A fetch flag that is neither 0 nor 1, and reserved bytes that are not
	 * 0.
	 */
	m.atomic.op = RP_ATOMIC_SUM;
	g = range_of(R_FILE, 0, 8);
	for (size_t i = 2; i < 8; i++) {
		len = (size_t)MUST(
			rp_wire_put_request(msg, sizeof(msg), new_token(), &m));
		msg[at + i] = 2;
		send_and_wait(msg, len);
	}
}

/*
 * Packed ranges (FLAGS 1): random bytes as varints, and random numbers of
 * ranges.
 */
static void attack_packed_ranges(void)
{
	uint8_t msg[RP_WIRE_MAX_MSG];
	size_t len;

	for (int i = 0; i < 400 && conn_ensure(); i++) {
		struct rp_wire_range g = range_of(R_FILE, 0, 64);

		len = request(msg, &g, 1, 1 + rnd() % 2, 0);
		msg[FLAGS] = 1;
		wire_put(msg + NRANGES, 2,
			 i % 4 ? rnd() % 1100
			       : (uint64_t[]){0, 1, 1024, 65535}[i / 4 % 4]);
		len = RANGES + 8 + rnd() % (i % 3 ? 64 : 4000);
		wire_put(msg + 4, 4, len);
		for (size_t n = RANGES + 8; n < len; n++)
			/* Varints without end, large ones, and any. */
			msg[n] = i % 5 == 0   ? 0xff
				 : i % 5 == 1 ? (uint8_t)(rnd() | 0x80)
					      : (uint8_t)rnd();
		/*
		 * REQUIRED 9 is no class, so the target must refuse, whether or
		 * not the ranges decode.
		 */
		wire_put(msg + RANGES, 8,
			 i % 2 ? world->regions[R_FILE].key
			       : world->regions[R_READONLY].key);
		msg[EFFECT] = i % 7 == 6 ? RP_EFFECT_THEN : 0;
		msg[REQUIRED] = 9;
		send_and_wait(msg, len);
		if (i % 8)
			continue;
		/*
		 * The same bytes with a valid class: there must be a reply, of
		 * any status.
		 */
		msg[REQUIRED] = 0;
		wire_put(msg + RANGES, 8, world->regions[R_READONLY].key);
		msg[EFFECT] = RP_EFFECT_STORE;
		if (!conn_ensure())
			return;
		send_and_wait(msg, len);
	}
}

/* To a target: messages that only a target or a side connection sends. */
static void messages_of_targets(void)
{
	const struct rp_wire_hello_ack ack = {
		.incarnation = 1,
		.credits = 1,
		.grant = {.length = 64,
			  .method = RP_METHOD_FENCE,
			  .class = RP_CLASS_POWER},
	};
	const struct rp_wire_info info = {
		.granularity = 64,
		.why = "it is so",
		.grant = {.length = 64, .method = RP_METHOD_FENCE}};
	const struct rp_wire_reply ok = {
		.level = 2, .class = 2, .method = RP_METHOD_AGENT_MSYNC};
	uint8_t msg[RP_WIRE_MAX_MSG];
	int len;

	for (int i = 0; i < 90; i++) {
		switch (i % 9) {
		case 0:
			len = rp_wire_put_hello_ack(msg, sizeof(msg), &ack);
			break;
		case 1:
			len = rp_wire_put_info(msg, sizeof(msg), rnd() % 4,
					       &info);
			break;
		case 2:
			len = rp_wire_put_signal(msg, sizeof(msg),
						 RP_MSG_PROGRESS);
			break;
		case 3:
			len = rp_wire_put_signal(msg, sizeof(msg),
						 RP_MSG_DOORBELL);
			break;
		case 4:
			len = rp_wire_put_signal(msg, sizeof(msg),
						 RP_MSG_POLLING);
			break;
		case 5:
			len = rp_wire_put_signal(msg, sizeof(msg), RP_MSG_IDLE);
			break;
		case 6:
			len = (int)hello(msg, rnd());
			break;
		default:
			len = rp_wire_put_reply(msg, sizeof(msg), rnd() % 4,
						&ok);
		}
		send_and_wait(msg, (size_t)MUST(len));
	}
}

static void no_credit(void)
{
	struct rp_wire_range g[RP_WIRE_MAX_RANGES];
	uint8_t msg[RP_WIRE_MAX_MSG];
	int ended = 0;

	for (size_t i = 0; i < RP_WIRE_MAX_RANGES; i++)
		g[i] = range_of(R_FILE, i * 1024, REGION_LEN - i * 1024);
	/* Thousands of outstanding requests, with few and with many ranges. */
	for (int i = 0; i < 4000; i++) {
		if (conn && conn->state != FRAME_UP)
			ended++;
		if (!conn_ensure())
			return;
		send_request(
			msg,
			request(msg, g, i % 8 ? 1 : RP_WIRE_MAX_RANGES, 2, 2));
	}
	listen_for(300);
	if (!ended)
		complain("credits are no bound", 0, 0);
}

static void half_and_too_long(void)
{
	static uint8_t big[FRAME_MAX];
	struct rp_wire_range g[RP_WIRE_MAX_RANGES];
	size_t len;

	for (size_t i = 0; i < RP_WIRE_MAX_RANGES; i++)
		g[i] = range_of(R_FILE, i, 64);
	len = request(big, g, 4, 2, 2);
	for (size_t n = 1; n < len; n++)
		send_and_wait(big, n);
	for (size_t n = 16; n < len; n++) {
		wire_put(big + 4, 4, n);
		wire_put(big + 8, 8, new_token());
		send_and_wait(big, n);
	}
	/* Messages longer than RP_WIRE_MAX_MSG may end the connection. */
	for (size_t n = RP_WIRE_MAX_MSG + 1; n <= sizeof(big);
	     n += n < RP_WIRE_MAX_MSG + 16 ? 1 : 997) {
		len = request(big, g, RP_WIRE_MAX_RANGES, 2, 2);
		memset(big + len, 0, sizeof(big) - len);
		wire_put(big + 4, 4, n);
		send_and_wait(big, n);
	}
}

static void send_noise(void)
{
	static const int given[] = {R_FILE, R_PMEM, R_READONLY};
	struct rp_wire_range g[4];
	uint8_t msg[RP_WIRE_MAX_MSG];
	size_t len;

	for (int i = 0; i < 1500; i++) {
		if (i % 3 == 0) {
			len = 1 + rnd() % (RP_WIRE_MAX_MSG - 1);
			for (size_t n = 0; n < len; n++)
				msg[n] = (uint8_t)rnd();
			/* A valid header before the random bytes. */
			if (i % 2 && len > 16)
				wire_put(msg, 8,
					 0x5052 | RP_WIRE_VERSION << 16 |
						 (2 + rnd() % 3) << 24 |
						 (uint64_t)len << 32);
		} else {
			if (!grant_all())
				return;
			for (int n = 0; n < 4; n++)
				g[n] = range_of(given[rnd() % 3],
						rnd() % REGION_LEN, rnd() % 99);
			len = request(msg, g, 1 + rnd() % 4,
				      (uint8_t)(1 + rnd() % 2),
				      (uint8_t)(rnd() % 3));
			for (int n = 0; n < 1 + i % 3; n++) {
				/*
				 * Leave keys as they are: replies to wrong keys
				 * are slow, and keys_of_others() tests them.
				 */
				size_t at = rnd() % len;

				if (at < RANGES || (at - RANGES) % 24 >= 8)
					msg[at] ^= (uint8_t)(1 << rnd() % 8);
			}
		}
		send_and_wait(msg, len);
	}
}

const struct attack message_attacks[] = {
	{"fields at their extremes", attack_fields},
	{"ranges at their edges, and outside", attack_ranges},
	{"keys that were not granted", keys_of_others},
	{"stores that may not be", refused_stores},
	{"ordered stores that may not be", refused_thens},
	{"malformed atomics", attack_atomics},
	{"packed ranges of any bytes", attack_packed_ranges},
	{"messages of targets", messages_of_targets},
	{"credits ignored", no_credit},
	{"half messages and too long ones", half_and_too_long},
	{"noise", send_noise},
	{0},
};
