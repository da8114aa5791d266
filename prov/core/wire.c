// SPDX-License-Identifier: BSD-2-Clause
/* Keys and control messages to bytes and back; every byte of a peer checked. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "core/bytes.h"
#include "core/wire.h"
#include "core/wire_pack.h"

/* What every version of the header shares: up to and including the token. */
#define HDR_SHARED 24

enum {
	HELLO_ADDR = 56, /* fixed part; the address follows */
	HELLO_ACK_LEN = 56,
	REQUEST_RANGES = 40,
	RANGE_LEN = 24,
	THEN_LEN = 32, /* with its seq */
	NOTIFY_LEN = 16,
	STORE_LEN = 8, /* and the bytes */
	REPLY_LEN = 48,
	GRANT_LEN = 64, /* of a REPLY with a grant */
	QUERY_LEN = 48,
	INFO_WHY = 74, /* fixed part; the sentence follows */
	CONNECT_LEN = 48,
	OFFER_ADDR = 96, /* fixed part; the address follows */
};

static_assert(REQUEST_RANGES + RANGE_LEN <= RP_WIRE_INJECT,
	      "one range must be an inject");
static_assert(GRANT_LEN <= RP_WIRE_INJECT && HELLO_ACK_LEN <= RP_WIRE_INJECT,
	      "answers must be an inject");
static_assert(REQUEST_RANGES + RANGE_LEN * RP_WIRE_MAX_RANGES <=
		      RP_WIRE_MAX_MSG,
	      "the largest request must fit");
static_assert(REQUEST_RANGES + RANGE_LEN * RP_WIRE_MAX_EFFECT_RANGES +
			      THEN_LEN <=
		      RP_WIRE_MAX_MSG,
	      "the largest request with an effect must fit");
static_assert(REQUEST_RANGES + RANGE_LEN + STORE_LEN + RP_WIRE_MAX_STORE ==
		      RP_WIRE_MAX_MSG,
	      "the largest store fills a message");

static_assert(RP_WIRE_STORES(1, 1) ==
		      REQUEST_RANGES + RANGE_LEN + STORE_LEN + 1,
	      "as long as it is said to be");

static_assert(RP_WIRE_PACKS == REQUEST_RANGES + 8, "behind the key of all");

static void put8(uint8_t *p, size_t at, uint8_t v)
{
	p[at] = v;
}

static bool all_zero(const uint8_t *p, size_t at, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[at + i])
			return false;
	return true;
}

static void put_only_hdr(uint8_t *p, const struct rp_wire_hdr *hdr,
			 uint8_t type, size_t len)
{
	put16(p, 0, RP_WIRE_MAGIC);
	put8(p, 2, RP_WIRE_VERSION);
	put8(p, 3, type);
	put32(p, 4, len);
	put64(p, 8, hdr->session);
	put64(p, 16, hdr->token);
	put64(p, 24, hdr->incarnation);
}

/* Zeroes the whole message, so that reserved bytes need no further care. */
static void put_hdr(uint8_t *p, const struct rp_wire_hdr *hdr, uint8_t type,
		    size_t len)
{
	memset(p, 0, len);
	put_only_hdr(p, hdr, type, len);
}

static bool type_known(uint8_t type)
{
	switch (type) {
	case RP_MSG_HELLO:
	case RP_MSG_REQUEST:
	case RP_MSG_QUERY:
	case RP_MSG_BYE:
	case RP_MSG_CONNECT:
	case RP_MSG_HELLO_ACK:
	case RP_MSG_REPLY:
	case RP_MSG_PROGRESS:
	case RP_MSG_INFO:
	case RP_MSG_OFFER:
		return true;
	}
	return false;
}

static bool type_empty(uint8_t type)
{
	return type == RP_MSG_BYE || type == RP_MSG_PROGRESS;
}

/* Statuses from WRITE_FAILED on are found by the initiator and never travel. */
static bool status_travels(uint32_t status)
{
	return status < RP_ST_WRITE_FAILED;
}

int rp_wire_get_hdr(const void *buf, size_t len, struct rp_wire_hdr *hdr)
{
	const uint8_t *p = buf;
	bool ours;

	if (len < HDR_SHARED || len > RP_WIRE_MAX_MSG ||
	    get16(p, 0) != RP_WIRE_MAGIC || get32(p, 4) != len)
		return -EBADMSG;

	ours = p[2] == RP_WIRE_VERSION;
	if (ours && (len < RP_WIRE_HDR || !type_known(p[3]) ||
		     (type_empty(p[3]) && len != RP_WIRE_HDR)))
		return -EBADMSG;

	*hdr = (struct rp_wire_hdr){
		.version = p[2],
		.type = p[3],
		.length = len,
		.session = get64(p, 8),
		.token = get64(p, 16),
		.incarnation = ours ? get64(p, 24) : 0,
	};
	return ours ? 0 : -EPROTONOSUPPORT;
}

static bool hello_valid(const struct rp_wire_hdr *hdr, uint64_t cookie,
			size_t addr_len)
{
	return !hdr->session && cookie && addr_len &&
	       addr_len <= RP_WIRE_MAX_ADDR;
}

int rp_wire_put_hello(void *buf, size_t size, const struct rp_wire_hdr *hdr,
		      const struct rp_wire_hello *m)
{
	size_t len = HELLO_ADDR + m->addr_len;

	if (!hello_valid(hdr, m->cookie, m->addr_len))
		return -EINVAL;
	if (size < len)
		return -EMSGSIZE;

	put_hdr(buf, hdr, RP_MSG_HELLO, len);
	put64(buf, 32, m->cookie);
	put64(buf, 40, m->key);
	put32(buf, 48, m->timeout_ms);
	put16(buf, 52, m->features);
	put16(buf, 54, m->addr_len);
	memcpy((uint8_t *)buf + HELLO_ADDR, m->addr, m->addr_len);
	return (int)len;
}

/*
 * The one body that is read in any version: without it a peer of another
 * version could not be told. A later version may add bytes at the end.
 */
int rp_wire_get_hello(const void *buf, const struct rp_wire_hdr *hdr,
		      struct rp_wire_hello *m)
{
	const uint8_t *p = buf;
	size_t addr_len;

	if (hdr->type != RP_MSG_HELLO || hdr->length < HELLO_ADDR)
		return -EBADMSG;
	addr_len = get16(p, 54);
	if (!hello_valid(hdr, get64(p, 32), addr_len) ||
	    hdr->length < HELLO_ADDR + addr_len)
		return -EBADMSG;
	if (hdr->version == RP_WIRE_VERSION &&
	    hdr->length != HELLO_ADDR + addr_len)
		return -EBADMSG;

	*m = (struct rp_wire_hello){
		.cookie = get64(p, 32),
		.key = get64(p, 40),
		.timeout_ms = get32(p, 48),
		.features = get16(p, 52),
		.addr_len = addr_len,
	};
	memcpy(m->addr, p + HELLO_ADDR, addr_len);
	return 0;
}

/* A refusal grants nothing; an acceptance grants a usable session. */
static bool hello_ack_valid(const struct rp_wire_hello_ack *m)
{
	if (!status_travels(m->status) || m->features & ~RP_FEATURES)
		return false;
	if (m->status != RP_ST_OK)
		return !m->cookie && !m->credits && !m->max_ranges &&
		       !m->features;
	return m->cookie && m->credits && m->max_ranges &&
	       m->max_ranges <= RP_WIRE_MAX_RANGES;
}

int rp_wire_put_hello_ack(void *buf, size_t size, const struct rp_wire_hdr *hdr,
			  const struct rp_wire_hello_ack *m)
{
	if (!hello_ack_valid(m))
		return -EINVAL;
	if (size < HELLO_ACK_LEN)
		return -EMSGSIZE;

	put_hdr(buf, hdr, RP_MSG_HELLO_ACK, HELLO_ACK_LEN);
	put64(buf, 32, m->cookie);
	put32(buf, 40, m->status);
	put16(buf, 44, m->credits);
	put16(buf, 46, m->max_ranges);
	put16(buf, 48, m->features);
	return HELLO_ACK_LEN;
}

int rp_wire_get_hello_ack(const void *buf, const struct rp_wire_hdr *hdr,
			  struct rp_wire_hello_ack *m)
{
	const uint8_t *p = buf;
	struct rp_wire_hello_ack t;

	if (hdr->type != RP_MSG_HELLO_ACK || hdr->length != HELLO_ACK_LEN ||
	    !all_zero(p, 50, 6))
		return -EBADMSG;
	t = (struct rp_wire_hello_ack){
		.cookie = get64(p, 32),
		.status = get32(p, 40),
		.credits = get16(p, 44),
		.max_ranges = get16(p, 46),
		.features = get16(p, 48),
	};
	if (!hello_ack_valid(&t))
		return -EBADMSG;
	*m = t;
	return 0;
}

/* Bytes behind the ranges but for those to store; 0: no such effect. */
static size_t effect_len(uint32_t effect)
{
	switch (effect) {
	case RP_EFFECT_THEN:
		return THEN_LEN;
	case RP_EFFECT_NOTIFY:
		return NOTIFY_LEN;
	case RP_EFFECT_STORE:
		return STORE_LEN;
	default:
		return 0;
	}
}

static bool request_valid(uint16_t nranges, uint8_t level, uint8_t required,
			  uint32_t effect)
{
	size_t most = RP_WIRE_MAX_EFFECT_RANGES;

	if (required > RP_CLASS_POWER || !nranges)
		return false;
	if (effect == RP_EFFECT_NONE)
		return nranges <= RP_WIRE_MAX_RANGES &&
		       (level == RP_LEVEL_VISIBLE || level == RP_LEVEL_DURABLE);
	/* Those that are only to be placed may be many. */
	if (effect == RP_EFFECT_STORE && level == RP_LEVEL_VISIBLE)
		return nranges <= most;
	if (effect == RP_EFFECT_STORE)
		most = 1;
	return effect_len(effect) && nranges <= most &&
	       level == RP_LEVEL_DURABLE;
}

/* stored: bytes of an inline store. */
static size_t request_len(uint16_t nranges, uint32_t effect, size_t stored)
{
	return REQUEST_RANGES + RANGE_LEN * (size_t)nranges +
	       effect_len(effect) + stored;
}

/* Of one range more; what is too much stays too much. */
static uint64_t stored_add(uint64_t stored, uint64_t len)
{
	if (!len || len > RP_WIRE_MAX_STORE || stored > RP_WIRE_MAX_STORE)
		return UINT64_MAX;
	return stored + len;
}

static bool stored_valid(uint32_t effect, uint64_t stored)
{
	return effect == RP_EFFECT_STORE ? stored && stored <= RP_WIRE_MAX_STORE
					 : !stored;
}

/* With packed ranges: its length, or -EMSGSIZE; 0: they are to be plain. */
static int put_packed(uint8_t *buf, size_t size, const struct rp_wire_hdr *hdr,
		      const struct rp_wire_request *m)
{
	uint8_t packed[RP_WIRE_MAX_MSG - RP_WIRE_PACKS];
	size_t len, taken;

	if (!m->packed || m->effect || m->nranges < 2 ||
	    m->nranges > RP_WIRE_MAX_PACKED ||
	    !request_valid(1, m->level, m->required, RP_EFFECT_NONE))
		return 0;
	len = RP_WIRE_PACKS + rp_wire_pack(packed, sizeof(packed), m->ranges,
					   m->nranges, &taken);
	if (taken < m->nranges ||
	    len >= request_len(m->nranges, RP_EFFECT_NONE, 0))
		return 0;
	if (size < len)
		return -EMSGSIZE; /* and so it is otherwise, too */
	put_only_hdr(buf, hdr, RP_MSG_REQUEST, len);
	put16(buf, 32, m->nranges);
	put8(buf, 34, m->level);
	put8(buf, 35, m->required);
	put32(buf, 36, RP_WIRE_PACKED);
	put64(buf, REQUEST_RANGES, m->ranges[0].key);
	memcpy(buf + RP_WIRE_PACKS, packed, len - RP_WIRE_PACKS);
	return (int)len;
}

int rp_wire_put_request(void *buf, size_t size, const struct rp_wire_hdr *hdr,
			const struct rp_wire_request *m)
{
	int packed = put_packed(buf, size, hdr, m);
	size_t at = REQUEST_RANGES, len;
	uint64_t stored = 0;
	uint8_t *p = buf;

	if (packed)
		return packed;
	if (!request_valid(m->nranges, m->level, m->required, m->effect))
		return -EINVAL;
	for (size_t i = 0; m->effect == RP_EFFECT_STORE && i < m->nranges; i++)
		stored = stored_add(stored, m->ranges[i].len);
	if (!stored_valid(m->effect, stored) || (m->effect && !m->seq))
		return -EINVAL;
	len = request_len(m->nranges, m->effect, stored);
	if (size < len)
		return -EMSGSIZE;

	/* It may be long, and nothing of it is reserved. */
	put_only_hdr(p, hdr, RP_MSG_REQUEST, len);
	put16(p, 32, m->nranges);
	put8(p, 34, m->level);
	put8(p, 35, m->required);
	put32(p, 36, m->effect);
	for (size_t i = 0; i < m->nranges; i++, at += RANGE_LEN) {
		put64(p, at, m->ranges[i].key);
		put64(p, at + 8, m->ranges[i].addr);
		put64(p, at + 16, m->ranges[i].len);
	}
	if (!m->effect)
		return (int)len;
	put64(p, at, m->seq);
	if (m->effect == RP_EFFECT_THEN) {
		put64(p, at + 8, m->then.key);
		put64(p, at + 16, m->then.addr);
		put64(p, at + 24, m->then.value);
	} else if (m->effect == RP_EFFECT_NOTIFY) {
		put64(p, at + 8, m->data);
	} else {
		memcpy(p + at + 8, m->bytes, stored);
	}
	return (int)len;
}

static int get_packed(const uint8_t *p, size_t len, struct rp_wire_request *m)
{
	const uint16_t nranges = get16(p, 32);
	const size_t begin = RP_WIRE_PACKS;

	/* As they are sent: several, and where that is shorter. */
	if (nranges < 2 || nranges > RP_WIRE_MAX_PACKED || len < begin ||
	    len >= request_len(nranges, RP_EFFECT_NONE, 0) ||
	    !request_valid(!!nranges, p[34], p[35], RP_EFFECT_NONE) ||
	    rp_wire_unpack(p + begin, len - begin, get64(p, REQUEST_RANGES),
			   m->ranges, nranges))
		return -EBADMSG;
	m->nranges = nranges;
	m->packed = true;
	m->level = p[34];
	m->required = p[35];
	m->effect = RP_EFFECT_NONE;
	m->seq = m->data = 0;
	m->then = (struct rp_wire_then){0};
	m->bytes = NULL;
	return 0;
}

int rp_wire_get_request(const void *buf, const struct rp_wire_hdr *hdr,
			struct rp_wire_request *m)
{
	const uint8_t *p = buf;
	uint64_t stored = 0;
	uint32_t effect;
	uint16_t nranges;
	size_t end;

	if (hdr->type != RP_MSG_REQUEST || hdr->length < REQUEST_RANGES)
		return -EBADMSG;
	nranges = get16(p, 32);
	effect = get32(p, 36);
	if (effect == RP_WIRE_PACKED)
		return get_packed(p, hdr->length, m);
	if (!request_valid(nranges, p[34], p[35], effect) ||
	    hdr->length < request_len(nranges, effect, 0))
		return -EBADMSG;
	for (size_t i = 0; effect == RP_EFFECT_STORE && i < nranges; i++)
		stored = stored_add(
			stored, get64(p, REQUEST_RANGES + RANGE_LEN * i + 16));
	if (!stored_valid(effect, stored) ||
	    hdr->length != request_len(nranges, effect, stored))
		return -EBADMSG;
	end = REQUEST_RANGES + RANGE_LEN * (size_t)nranges;
	if (effect && !get64(p, end))
		return -EBADMSG;

	m->nranges = nranges;
	m->packed = false;
	m->level = p[34];
	m->required = p[35];
	m->effect = effect;
	m->seq = effect ? get64(p, end) : 0;
	m->then = (struct rp_wire_then){0};
	m->data = 0;
	m->bytes = effect == RP_EFFECT_STORE ? p + end + STORE_LEN : NULL;
	if (effect == RP_EFFECT_THEN)
		m->then = (struct rp_wire_then){
			.key = get64(p, end + 8),
			.addr = get64(p, end + 16),
			.value = get64(p, end + 24),
		};
	else if (effect == RP_EFFECT_NOTIFY)
		m->data = get64(p, end + 8);
	for (size_t i = 0; i < nranges; i++) {
		size_t at = REQUEST_RANGES + RANGE_LEN * i;

		m->ranges[i] = (struct rp_wire_range){
			.key = get64(p, at),
			.addr = get64(p, at + 8),
			.len = get64(p, at + 16),
		};
	}
	return 0;
}

/* Only a success has reached a level; only one that has one says a class. */
static bool reply_valid(const struct rp_wire_reply *m)
{
	if (!status_travels(m->status) || m->class > RP_CLASS_POWER ||
	    m->method >= RP_METHOD_MAX || m->range >= RP_WIRE_MAX_PACKED)
		return false;
	if (m->grant &&
	    (m->level != RP_LEVEL_DURABLE || !m->length ||
	     m->addr + m->length < m->addr ||
	     (m->grant != RP_METHOD_DELIVERY && m->grant != RP_METHOD_FENCE)))
		return false;
	if (m->status == RP_ST_OK)
		return m->level == RP_LEVEL_VISIBLE ||
		       m->level == RP_LEVEL_DURABLE;
	return !m->level && !m->class && !m->method;
}

int rp_wire_put_reply(void *buf, size_t size, const struct rp_wire_hdr *hdr,
		      const struct rp_wire_reply *m)
{
	int len = m->grant ? GRANT_LEN : REPLY_LEN;

	if (!reply_valid(m))
		return -EINVAL;
	if (size < (size_t)len)
		return -EMSGSIZE;

	put_hdr(buf, hdr, RP_MSG_REPLY, len);
	put32(buf, 32, m->status);
	put8(buf, 36, m->level);
	put8(buf, 37, m->class);
	put16(buf, 38, m->range);
	put32(buf, 40, m->detail);
	put16(buf, 44, m->credits);
	put8(buf, 46, m->method);
	put8(buf, 47, m->grant);
	if (m->grant) {
		put64(buf, 48, m->addr);
		put64(buf, 56, m->length);
	}
	return len;
}

int rp_wire_get_reply(const void *buf, const struct rp_wire_hdr *hdr,
		      struct rp_wire_reply *m)
{
	const uint8_t *p = buf;
	struct rp_wire_reply t;

	if (hdr->type != RP_MSG_REPLY || hdr->length < REPLY_LEN ||
	    hdr->length != (p[47] ? GRANT_LEN : REPLY_LEN))
		return -EBADMSG;
	t = (struct rp_wire_reply){
		.status = get32(p, 32),
		.level = p[36],
		.class = p[37],
		.range = get16(p, 38),
		.detail = get32(p, 40),
		.credits = get16(p, 44),
		.method = p[46],
		.grant = p[47],
	};
	if (t.grant) {
		t.addr = get64(p, 48);
		t.length = get64(p, 56);
	}
	if (!reply_valid(&t))
		return -EBADMSG;
	*m = t;
	return 0;
}

int rp_wire_put_query(void *buf, size_t size, const struct rp_wire_hdr *hdr,
		      const struct rp_wire_query *m)
{
	if (m->required > RP_CLASS_POWER)
		return -EINVAL;
	if (size < QUERY_LEN)
		return -EMSGSIZE;

	put_hdr(buf, hdr, RP_MSG_QUERY, QUERY_LEN);
	put64(buf, 32, m->key);
	put8(buf, 40, m->required);
	return QUERY_LEN;
}

int rp_wire_get_query(const void *buf, const struct rp_wire_hdr *hdr,
		      struct rp_wire_query *m)
{
	const uint8_t *p = buf;

	if (hdr->type != RP_MSG_QUERY || hdr->length != QUERY_LEN ||
	    p[40] > RP_CLASS_POWER || !all_zero(p, 41, 7))
		return -EBADMSG;
	*m = (struct rp_wire_query){.key = get64(p, 32), .required = p[40]};
	return 0;
}

static bool info_valid(const struct rp_wire_info *m)
{
	return status_travels(m->status) && m->class <= RP_CLASS_POWER &&
	       m->method < RP_METHOD_MAX && m->memory <= RP_MEM_EMULATED &&
	       m->placement <= RP_PLACE_DMA_MEMORY &&
	       m->domain <= RP_DOMAIN_SYSTEM &&
	       m->refusal <= RP_REFUSAL_UNKNOWN;
}

static bool printable(uint8_t c)
{
	return c >= 0x20 && c < 0x7f;
}

int rp_wire_put_info(void *buf, size_t size, const struct rp_wire_hdr *hdr,
		     const struct rp_wire_info *m)
{
	size_t why_len = strnlen(m->why, sizeof(m->why));
	size_t len = INFO_WHY + why_len;
	uint8_t *p = buf;

	if (!info_valid(m) || why_len >= sizeof(m->why))
		return -EINVAL;
	if (size < len)
		return -EMSGSIZE;

	put_hdr(p, hdr, RP_MSG_INFO, len);
	put32(p, 32, m->status);
	put8(p, 36, m->class);
	put8(p, 37, m->method);
	put8(p, 38, m->memory);
	put8(p, 39, m->placement);
	put8(p, 40, m->domain);
	put8(p, 41, m->refusal);
	put32(p, 44, m->granularity);
	put64(p, 48, m->length);
	put64(p, 56, m->addr);
	put32(p, 64, m->preferred_size);
	put32(p, 68, m->preferred_align);
	put16(p, 72, why_len);
	/* A path in the sentence may hold anything; it ends on a terminal. */
	for (size_t i = 0; i < why_len; i++)
		p[INFO_WHY + i] = printable(m->why[i]) ? m->why[i] : '?';
	return (int)len;
}

int rp_wire_get_info(const void *buf, const struct rp_wire_hdr *hdr,
		     struct rp_wire_info *m)
{
	const uint8_t *p = buf;
	struct rp_wire_info t = {0};
	size_t why_len;

	if (hdr->type != RP_MSG_INFO || hdr->length < INFO_WHY)
		return -EBADMSG;
	why_len = get16(p, 72);
	if (why_len >= sizeof(t.why) || hdr->length != INFO_WHY + why_len ||
	    !all_zero(p, 42, 2))
		return -EBADMSG;
	for (size_t i = 0; i < why_len; i++)
		if (!printable(p[INFO_WHY + i]))
			return -EBADMSG;
	t.status = get32(p, 32);
	t.class = p[36];
	t.method = p[37];
	t.memory = p[38];
	t.placement = p[39];
	t.domain = p[40];
	t.refusal = p[41];
	t.granularity = get32(p, 44);
	t.length = get64(p, 48);
	t.addr = get64(p, 56);
	t.preferred_size = get32(p, 64);
	t.preferred_align = get32(p, 68);
	memcpy(t.why, p + INFO_WHY, why_len);
	if (!info_valid(&t))
		return -EBADMSG;
	*m = t;
	return 0;
}

int rp_wire_put_connect(void *buf, size_t size, const struct rp_wire_hdr *hdr,
			const struct rp_wire_connect *m)
{
	if (!m->id)
		return -EINVAL;
	if (size < CONNECT_LEN)
		return -EMSGSIZE;

	put_hdr(buf, hdr, RP_MSG_CONNECT, CONNECT_LEN);
	put64(buf, 32, m->id);
	put64(buf, 40, m->key);
	return CONNECT_LEN;
}

int rp_wire_get_connect(const void *buf, const struct rp_wire_hdr *hdr,
			struct rp_wire_connect *m)
{
	const uint8_t *p = buf;

	if (hdr->type != RP_MSG_CONNECT || hdr->length != CONNECT_LEN ||
	    !get64(p, 32))
		return -EBADMSG;
	*m = (struct rp_wire_connect){.id = get64(p, 32), .key = get64(p, 40)};
	return 0;
}

/* A refusal offers nothing; an offer has everything. */
static bool offer_valid(const struct rp_wire_offer *m)
{
	if (!m->id || !status_travels(m->status))
		return false;
	if (m->status != RP_ST_OK)
		return !m->method && !m->class && !m->addr_len && !m->secret &&
		       !m->there && !m->at && !m->addr && !m->length;
	return rp_method_linked((enum rp_method)m->method) &&
	       m->class <= RP_CLASS_POWER && m->addr_len &&
	       m->addr_len <= RP_WIRE_MAX_ADDR && m->secret && m->length &&
	       m->addr + m->length >= m->addr && m->at + m->length >= m->at;
}

int rp_wire_put_offer(void *buf, size_t size, const struct rp_wire_hdr *hdr,
		      const struct rp_wire_offer *m)
{
	size_t len = OFFER_ADDR + m->addr_len;

	if (!offer_valid(m))
		return -EINVAL;
	if (size < len)
		return -EMSGSIZE;

	put_hdr(buf, hdr, RP_MSG_OFFER, len);
	put32(buf, 32, m->status);
	put8(buf, 36, m->method);
	put8(buf, 37, m->class);
	put16(buf, 38, m->addr_len);
	put64(buf, 40, m->id);
	put64(buf, 48, m->key);
	put64(buf, 56, m->secret);
	put64(buf, 64, m->there);
	put64(buf, 72, m->at);
	put64(buf, 80, m->addr);
	put64(buf, 88, m->length);
	memcpy((uint8_t *)buf + OFFER_ADDR, m->to, m->addr_len);
	return (int)len;
}

int rp_wire_get_offer(const void *buf, const struct rp_wire_hdr *hdr,
		      struct rp_wire_offer *m)
{
	const uint8_t *p = buf;
	struct rp_wire_offer t;

	if (hdr->type != RP_MSG_OFFER || hdr->length < OFFER_ADDR)
		return -EBADMSG;
	t = (struct rp_wire_offer){
		.status = get32(p, 32),
		.method = p[36],
		.class = p[37],
		.addr_len = get16(p, 38),
		.id = get64(p, 40),
		.key = get64(p, 48),
		.secret = get64(p, 56),
		.there = get64(p, 64),
		.at = get64(p, 72),
		.addr = get64(p, 80),
		.length = get64(p, 88),
	};
	if (!offer_valid(&t) ||
	    hdr->length != OFFER_ADDR + (uint32_t)t.addr_len)
		return -EBADMSG;
	memcpy(t.to, p + OFFER_ADDR, t.addr_len);
	*m = t;
	return 0;
}

int rp_wire_put_empty(void *buf, size_t size, const struct rp_wire_hdr *hdr)
{
	if (!type_empty(hdr->type))
		return -EINVAL;
	if (size < RP_WIRE_HDR)
		return -EMSGSIZE;
	put_hdr(buf, hdr, hdr->type, RP_WIRE_HDR);
	return RP_WIRE_HDR;
}

#define KEY_RANDOM_SHIFT 40
#define KEY_RANDOM_MASK	 0xffffffu
#define KEY_CLASS_SHIFT	 36
#define KEY_METHOD_SHIFT 32
/* Class and method: bits 5..0 of the facts. */
#define KEY_DETAIL 0x3f00000000ull

uint64_t rp_key_make(const struct rp_key *k)
{
	uint64_t key = RP_KEY_MARK | k->base;

	assert(k->random <= KEY_RANDOM_MASK);
	key |= (uint64_t)k->random << KEY_RANDOM_SHIFT;
	if (k->persistent) {
		assert(k->class <= RP_CLASS_POWER);
		assert(k->method > RP_METHOD_REFUSED &&
		       k->method < RP_METHOD_MAX);
		key |= RP_KEY_PERSISTENT |
		       (uint64_t)k->class << KEY_CLASS_SHIFT |
		       (uint64_t)k->method << KEY_METHOD_SHIFT;
	}
	return key;
}

int rp_key_parse(uint64_t key, struct rp_key *k)
{
	unsigned int class = key >> KEY_CLASS_SHIFT & 3;
	unsigned int method = key >> KEY_METHOD_SHIFT & 15;

	if (!(key & RP_KEY_MARK))
		return -EINVAL;
	if (key & RP_KEY_PERSISTENT) {
		if (class > RP_CLASS_POWER || method == RP_METHOD_REFUSED ||
		    method >= RP_METHOD_MAX)
			return -EINVAL;
	} else if (key & KEY_DETAIL) {
		return -EINVAL;
	}
	*k = (struct rp_key){
		.base = (uint32_t)key,
		.random = key >> KEY_RANDOM_SHIFT,
		.persistent = key & RP_KEY_PERSISTENT,
		.class = class,
		.method = method,
	};
	return 0;
}
