// SPDX-License-Identifier: BSD-2-Clause
/* Keys and messages to bytes and back; every byte of a peer is checked. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "core/atomic.h"
#include "core/wire_layout.h"
#include "core/wire_pack.h"

#define HDR	sizeof(struct rp_le_hdr)
#define REQUEST sizeof(struct rp_le_request)
#define RANGE	sizeof(struct rp_le_range)

static_assert(RP_WIRE_PACKS == REQUEST + sizeof(uint64_t),
	      "packed ranges begin behind the key of all");

static struct rp_le_hdr le_hdr(uint8_t type, size_t len, uint64_t token)
{
	return (struct rp_le_hdr){
		.magic = htole16(RP_WIRE_MAGIC),
		.version = RP_WIRE_VERSION,
		.type = type,
		.length = htole32((uint32_t)len),
		.token = htole64(token),
	};
}

static bool is_zero(const void *buf, size_t len)
{
	const uint8_t *p = buf;

	while (len && !p[len - 1])
		len--;
	return !len;
}

/* Statuses from WRITE_FAILED on are found by the initiator and never travel. */
static bool status_travels(uint32_t status)
{
	return status < RP_ST_WRITE_FAILED;
}

static bool type_known(uint8_t type)
{
	return (type >= RP_MSG_HELLO && type <= RP_MSG_QUERY) ||
	       (type >= RP_MSG_HELLO_ACK && type <= RP_MSG_INFO);
}

int rp_wire_get_hdr(const void *buf, size_t len, struct rp_wire_hdr *hdr)
{
	struct rp_le_hdr w;
	bool ours;

	if (len < sizeof(w) || len > RP_WIRE_MAX_MSG)
		return -EBADMSG;
	memcpy(&w, buf, sizeof(w));
	if (le16toh(w.magic) != RP_WIRE_MAGIC || le32toh(w.length) != len)
		return -EBADMSG;
	ours = w.version == RP_WIRE_VERSION;
	if (ours && (!type_known(w.type) ||
		     (w.type == RP_MSG_PROGRESS && (len > HDR || w.token))))
		return -EBADMSG;
	*hdr = (struct rp_wire_hdr){
		.type = w.type,
		.length = (uint32_t)len,
		.token = le64toh(w.token),
	};
	return ours ? 0 : -EPROTONOSUPPORT;
}

/* Private data of connection setup: of one size, and zeros may follow. */
static int get_private(void *w, size_t size, uint8_t type, const void *buf,
		       size_t len)
{
	struct rp_le_hdr h;

	if (len < sizeof(h))
		return -EBADMSG;
	memcpy(&h, buf, sizeof(h));
	if (le16toh(h.magic) != RP_WIRE_MAGIC)
		return -EBADMSG;
	if (h.version != RP_WIRE_VERSION)
		return -EPROTONOSUPPORT;
	if (h.type != type || le32toh(h.length) != size || len < size ||
	    h.token || !is_zero((const uint8_t *)buf + size, len - size))
		return -EBADMSG;
	memcpy(w, buf, size);
	return 0;
}

int rp_wire_put_hello(void *buf, size_t size, const struct rp_wire_hello *m)
{
	const struct rp_le_hello w = {
		.hdr = le_hdr(RP_MSG_HELLO, sizeof(w), 0),
		.key = htole64(m->key),
		.initiator = htole64(m->initiator),
		.incarnation = htole64(m->incarnation),
		.timeout_ms = htole32(m->timeout_ms),
		.features = htole16(m->features),
	};

	if (size < sizeof(w))
		return -EMSGSIZE;
	memcpy(buf, &w, sizeof(w));
	return sizeof(w);
}

int rp_wire_get_hello(const void *buf, size_t len, struct rp_wire_hello *m)
{
	struct rp_le_hello w;
	int ret = get_private(&w, sizeof(w), RP_MSG_HELLO, buf, len);

	if (ret)
		return ret;
	if (w.reserved)
		return -EBADMSG;
	*m = (struct rp_wire_hello){
		.key = le64toh(w.key),
		.initiator = le64toh(w.initiator),
		.incarnation = le64toh(w.incarnation),
		.timeout_ms = le32toh(w.timeout_ms),
		.features = le16toh(w.features) & RP_FEATURES,
	};
	return 0;
}

static bool grant_valid(const struct rp_wire_grant *g)
{
	return g->length && g->addr <= UINT64_MAX - g->length &&
	       g->remote_addr <= UINT64_MAX - g->length &&
	       g->class <= RP_CLASS_POWER && g->method < RP_METHOD_MAX;
}

static bool grant_none(const struct rp_wire_grant *g)
{
	return !g->rkey && !g->remote_addr && !g->addr && !g->length &&
	       !g->class && !g->method && !g->writable;
}

static struct rp_le_grant grant_put(const struct rp_wire_grant *g)
{
	return (struct rp_le_grant){
		.rkey = htole64(g->rkey),
		.remote_addr = htole64(g->remote_addr),
		.addr = htole64(g->addr),
		.length = htole64(g->length),
		.class = g->class,
		.method = g->method,
		.writable = g->writable,
	};
}

static int grant_get(const struct rp_le_grant *w, struct rp_wire_grant *g)
{
	if (w->writable > 1 || !is_zero(w->reserved, sizeof(w->reserved)))
		return -EBADMSG;
	*g = (struct rp_wire_grant){
		.rkey = le64toh(w->rkey),
		.remote_addr = le64toh(w->remote_addr),
		.addr = le64toh(w->addr),
		.length = le64toh(w->length),
		.class = w->class,
		.method = w->method,
		.writable = w->writable,
	};
	return 0;
}

/* A refusal grants nothing; an acceptance grants a usable session. */
static bool hello_ack_valid(const struct rp_wire_hello_ack *m)
{
	if (!status_travels(m->status))
		return false;
	if (m->status != RP_ST_OK)
		return !m->incarnation && !m->credits && !m->features &&
		       grant_none(&m->grant);
	return m->incarnation && m->credits && grant_valid(&m->grant);
}

int rp_wire_put_hello_ack(void *buf, size_t size,
			  const struct rp_wire_hello_ack *m)
{
	const struct rp_le_hello_ack w = {
		.hdr = le_hdr(RP_MSG_HELLO_ACK, sizeof(w), 0),
		.status = htole32(m->status),
		.detail = htole32(m->detail),
		.incarnation = htole64(m->incarnation),
		.credits = htole16(m->credits),
		.features = htole16(m->features),
		.grant = grant_put(&m->grant),
	};

	if (!hello_ack_valid(m))
		return -EINVAL;
	if (size < sizeof(w))
		return -EMSGSIZE;
	memcpy(buf, &w, sizeof(w));
	return sizeof(w);
}

int rp_wire_get_hello_ack(const void *buf, size_t len,
			  struct rp_wire_hello_ack *m)
{
	struct rp_le_hello_ack w;
	struct rp_wire_hello_ack t;
	int ret = get_private(&w, sizeof(w), RP_MSG_HELLO_ACK, buf, len);

	if (ret)
		return ret;
	t = (struct rp_wire_hello_ack){
		.status = le32toh(w.status),
		.detail = le32toh(w.detail),
		.incarnation = le64toh(w.incarnation),
		.credits = le16toh(w.credits),
		.features = le16toh(w.features) & RP_FEATURES,
	};
	if (w.reserved || grant_get(&w.grant, &t.grant) || !hello_ack_valid(&t))
		return -EBADMSG;
	*m = t;
	return 0;
}

static bool request_valid(const struct rp_wire_request *m)
{
	if (m->nranges > (m->packed ? RP_WIRE_MAX_PACKED : RP_WIRE_MAX_RANGES))
		return false;
	if (m->level != RP_LEVEL_VISIBLE && m->level != RP_LEVEL_DURABLE)
		return false;
	if (!m->nranges && (m->level != RP_LEVEL_VISIBLE || m->effect))
		return false;
	if (m->effect == RP_EFFECT_THEN && m->level != RP_LEVEL_DURABLE)
		return false;
	return m->required <= RP_CLASS_POWER && m->effect <= RP_EFFECT_ATOMIC;
}

/*
 * The bytes of all ranges, where they are in the message: of elements of so
 * many bytes. False: one is empty or no multiple, or all are too many.
 */
static bool bytes_count(const struct rp_wire_range *r, size_t n, size_t element,
			size_t *bytes)
{
	*bytes = 0;
	for (size_t i = 0; i < n; i++) {
		if (!r[i].len || r[i].len > RP_WIRE_MAX_STORE - *bytes ||
		    r[i].len % element)
			return false;
		*bytes += r[i].len;
	}
	return true;
}

/*
 * What follows the ranges: *head bytes that wire.c writes itself, and *bytes of
 * each array behind them. -EINVAL: never with these ranges.
 */
static int effect_len(const struct rp_wire_request *m,
		      const struct rp_wire_range *r, size_t *head,
		      size_t *bytes)
{
	size_t element = 1;

	*head = *bytes = 0;
	switch (m->effect) {
	case RP_EFFECT_THEN:
		*head = sizeof(struct rp_le_then);
		return 0;
	case RP_EFFECT_NOTIFY:
		*head = sizeof(struct rp_le_notify);
		return 0;
	case RP_EFFECT_ATOMIC:
		*head = sizeof(struct rp_le_atomic);
		if (!rp_atomic_valid(m->atomic.op, m->atomic.datatype,
				     &element))
			return -EINVAL;
		/* fallthrough */
	case RP_EFFECT_STORE:
		return bytes_count(r, m->nranges, element, bytes) ? 0 : -EINVAL;
	default:
		return 0;
	}
}

/* How often the bytes of the ranges are in the message. */
static unsigned int arrays(const struct rp_wire_request *m)
{
	if (m->effect == RP_EFFECT_ATOMIC)
		return rp_atomic_has_operand(m->atomic.op) +
		       rp_atomic_has_compare(m->atomic.op);
	return m->effect == RP_EFFECT_STORE;
}

static bool operands_missing(const struct rp_wire_request *m)
{
	return m->effect == RP_EFFECT_ATOMIC &&
	       ((rp_atomic_has_operand(m->atomic.op) && !m->atomic.operand) ||
		(rp_atomic_has_compare(m->atomic.op) && !m->atomic.compare));
}

/* 0: the ranges cannot be packed, or that would not be shorter. */
static size_t ranges_pack(uint8_t *out, size_t size,
			  const struct rp_wire_request *m)
{
	const size_t key = sizeof(m->ranges[0].key);
	size_t len, taken;

	if (!m->packed || m->nranges < 2)
		return 0;
	len = key + rp_wire_pack(out, size, m->ranges, m->nranges, &taken);
	return taken == m->nranges && len < m->nranges * RANGE ? len : 0;
}

static void ranges_put(uint8_t *p, const struct rp_wire_range *r, size_t n)
{
	for (size_t i = 0; i < n; i++, p += RANGE) {
		const struct rp_le_range w = {
			.key = htole64(r[i].key),
			.addr = htole64(r[i].addr),
			.len = htole64(r[i].len),
		};

		memcpy(p, &w, sizeof(w));
	}
}

/* Returns the end of what it wrote. */
static uint8_t *effect_put(uint8_t *p, const struct rp_wire_request *m,
			   size_t bytes)
{
	const struct rp_le_then then = {
		.key = htole64(m->then.key),
		.addr = htole64(m->then.addr),
		.value = htole64(m->then.value),
	};
	const struct rp_le_notify notify = {.data = htole64(m->data)};
	const struct rp_le_atomic atomic = {
		.op = m->atomic.op,
		.datatype = m->atomic.datatype,
		.fetch = m->atomic.fetch,
	};

	switch (m->effect) {
	case RP_EFFECT_THEN:
		memcpy(p, &then, sizeof(then));
		return p + sizeof(then);
	case RP_EFFECT_NOTIFY:
		memcpy(p, &notify, sizeof(notify));
		return p + sizeof(notify);
	case RP_EFFECT_STORE:
		if (!m->bytes)
			return p;
		memcpy(p, m->bytes, bytes);
		return p + bytes;
	case RP_EFFECT_ATOMIC:
		memcpy(p, &atomic, sizeof(atomic));
		p += sizeof(atomic);
		if (rp_atomic_has_operand(m->atomic.op)) {
			memcpy(p, m->atomic.operand, bytes);
			p += bytes;
		}
		if (rp_atomic_has_compare(m->atomic.op)) {
			memcpy(p, m->atomic.compare, bytes);
			p += bytes;
		}
		return p;
	default:
		return p;
	}
}

int rp_wire_put_request(void *buf, size_t size, uint64_t token,
			const struct rp_wire_request *m)
{
	uint8_t packed[RP_WIRE_MAX_MSG - RP_WIRE_PACKS];
	size_t pack = ranges_pack(packed, sizeof(packed), m);
	size_t ranges = pack ? pack : m->nranges * RANGE;
	size_t head, bytes, len, written;
	struct rp_wire_request t = *m;
	struct rp_le_request w;
	uint8_t *p = buf;

	t.packed = pack;
	if (!request_valid(&t) || operands_missing(m) ||
	    effect_len(m, m->ranges, &head, &bytes))
		return -EINVAL;
	len = REQUEST + ranges + head + bytes * arrays(m);
	written = m->effect == RP_EFFECT_STORE && !m->bytes ? len - bytes : len;
	if (len > RP_WIRE_MAX_MSG)
		return -EINVAL;
	if (size < written)
		return -EMSGSIZE;

	w = (struct rp_le_request){
		.hdr = le_hdr(RP_MSG_REQUEST, len, token),
		.nranges = htole16(m->nranges),
		.level = m->level,
		.required = m->required,
		.effect = m->effect,
		.flags = pack ? RP_LE_REQUEST_PACKED : 0,
	};
	memcpy(p, &w, REQUEST);
	if (pack) {
		const uint64_t key = htole64(m->ranges[0].key);

		memcpy(p + REQUEST, &key, sizeof(key));
		memcpy(p + RP_WIRE_PACKS, packed, pack - sizeof(key));
	} else {
		ranges_put(p + REQUEST, m->ranges, m->nranges);
	}
	effect_put(p + REQUEST + ranges, m, bytes);
	return (int)written;
}

/* Returns the bytes of the ranges, packed or not, or -EBADMSG. */
static int ranges_get(const uint8_t *p, size_t len, bool packed,
		      struct rp_wire_range *r, size_t n)
{
	struct rp_le_range w;
	uint64_t key;
	int ret;

	if (packed) {
		if (n < 2 || len < sizeof(key))
			return -EBADMSG;
		memcpy(&key, p, sizeof(key));
		ret = rp_wire_unpack(p + sizeof(key), len - sizeof(key),
				     le64toh(key), r, n);
		if (ret < 0)
			return ret;
		ret += (int)sizeof(key);
		/* As they are sent: packed only where that is shorter. */
		return (size_t)ret < n * RANGE ? ret : -EBADMSG;
	}
	if (len < n * RANGE)
		return -EBADMSG;
	for (size_t i = 0; i < n; i++) {
		memcpy(&w, p + i * RANGE, sizeof(w));
		r[i] = (struct rp_wire_range){
			.key = le64toh(w.key),
			.addr = le64toh(w.addr),
			.len = le64toh(w.len),
		};
	}
	return (int)(n * RANGE);
}

/* All that is fixed of an effect; the arrays begin behind it. */
static int effect_get(const uint8_t *p, size_t len, struct rp_wire_request *m)
{
	struct rp_le_then then;
	struct rp_le_notify notify;
	struct rp_le_atomic atomic;

	switch (m->effect) {
	case RP_EFFECT_THEN:
		if (len != sizeof(then))
			return -EBADMSG;
		memcpy(&then, p, sizeof(then));
		m->then = (struct rp_wire_then){
			.key = le64toh(then.key),
			.addr = le64toh(then.addr),
			.value = le64toh(then.value),
		};
		return 0;
	case RP_EFFECT_NOTIFY:
		if (len != sizeof(notify))
			return -EBADMSG;
		memcpy(&notify, p, sizeof(notify));
		m->data = le64toh(notify.data);
		return 0;
	case RP_EFFECT_ATOMIC:
		if (len < sizeof(atomic))
			return -EBADMSG;
		memcpy(&atomic, p, sizeof(atomic));
		if (atomic.fetch > 1 ||
		    !is_zero(atomic.reserved, sizeof(atomic.reserved)))
			return -EBADMSG;
		m->atomic = (struct rp_wire_atomic){
			.op = atomic.op,
			.datatype = atomic.datatype,
			.fetch = atomic.fetch,
		};
		return 0;
	default:
		return 0;
	}
}

/* Behind the ranges: the effect, and the arrays that belong to it. */
static int rest_get(const uint8_t *p, size_t len, struct rp_wire_request *m)
{
	size_t head, bytes;

	if (effect_get(p, len, m) || effect_len(m, m->decoded, &head, &bytes) ||
	    len != head + bytes * arrays(m))
		return -EBADMSG;
	p += head;
	if (m->effect == RP_EFFECT_STORE)
		m->bytes = p;
	if (m->effect != RP_EFFECT_ATOMIC)
		return 0;
	if (rp_atomic_has_operand(m->atomic.op)) {
		m->atomic.operand = p;
		p += bytes;
	}
	if (rp_atomic_has_compare(m->atomic.op))
		m->atomic.compare = p;
	return 0;
}

int rp_wire_get_request(const void *buf, const struct rp_wire_hdr *hdr,
			struct rp_wire_request *m)
{
	const uint8_t *p = buf;
	struct rp_wire_request t;
	struct rp_le_request w;
	size_t left;
	int ret;

	if (hdr->type != RP_MSG_REQUEST || hdr->length < sizeof(w))
		return -EBADMSG;
	memcpy(&w, buf, sizeof(w));
	t = (struct rp_wire_request){
		.nranges = le16toh(w.nranges),
		.packed = w.flags & RP_LE_REQUEST_PACKED,
		.level = w.level,
		.required = w.required,
		.effect = w.effect,
		.ranges = m->decoded,
		.decoded = m->decoded,
	};
	if (w.flags & ~RP_LE_REQUEST_PACKED || w.reserved || !request_valid(&t))
		return -EBADMSG;
	p += sizeof(w);
	left = hdr->length - sizeof(w);
	ret = ranges_get(p, left, t.packed, t.decoded, t.nranges);
	if (ret < 0)
		return ret;
	ret = rest_get(p + ret, left - (size_t)ret, &t);
	if (!ret)
		*m = t;
	return ret;
}

/* Only a success has reached a level and a class, and brings a result. */
static bool reply_valid(const struct rp_wire_reply *m)
{
	if (!status_travels(m->status) || m->class > RP_CLASS_POWER ||
	    m->method >= RP_METHOD_MAX || m->range > RP_WIRE_MAX_PACKED ||
	    m->result_len > RP_WIRE_MAX_STORE)
		return false;
	if (m->status == RP_ST_OK)
		return m->level == RP_LEVEL_VISIBLE ||
		       m->level == RP_LEVEL_DURABLE;
	return !m->level && !m->class && !m->method && !m->result_len;
}

int rp_wire_put_reply(void *buf, size_t size, uint64_t token,
		      const struct rp_wire_reply *m)
{
	struct rp_le_reply w;
	size_t len = sizeof(w) + m->result_len;

	if (!reply_valid(m))
		return -EINVAL;
	if (size < len)
		return -EMSGSIZE;
	w = (struct rp_le_reply){
		.hdr = le_hdr(RP_MSG_REPLY, len, token),
		.status = htole32(m->status),
		.detail = htole32(m->detail),
		.range = htole16(m->range),
		.credits = htole16(m->credits),
		.level = m->level,
		.class = m->class,
		.method = m->method,
	};
	memcpy(buf, &w, sizeof(w));
	if (m->result_len)
		memcpy((uint8_t *)buf + sizeof(w), m->result, m->result_len);
	return (int)len;
}

int rp_wire_get_reply(const void *buf, const struct rp_wire_hdr *hdr,
		      struct rp_wire_reply *m)
{
	struct rp_wire_reply t;
	struct rp_le_reply w;

	if (hdr->type != RP_MSG_REPLY || hdr->length < sizeof(w))
		return -EBADMSG;
	memcpy(&w, buf, sizeof(w));
	t = (struct rp_wire_reply){
		.status = le32toh(w.status),
		.detail = le32toh(w.detail),
		.range = le16toh(w.range),
		.credits = le16toh(w.credits),
		.level = w.level,
		.class = w.class,
		.method = w.method,
		.result_len = hdr->length - (uint32_t)sizeof(w),
	};
	if (w.reserved || !reply_valid(&t))
		return -EBADMSG;
	if (t.result_len)
		t.result = (const uint8_t *)buf + sizeof(w);
	*m = t;
	return 0;
}

int rp_wire_put_query(void *buf, size_t size, uint64_t token,
		      const struct rp_wire_query *m)
{
	const struct rp_le_query w = {
		.hdr = le_hdr(RP_MSG_QUERY, sizeof(w), token),
		.key = htole64(m->key),
		.required = m->required,
	};

	if (m->required > RP_CLASS_POWER)
		return -EINVAL;
	if (size < sizeof(w))
		return -EMSGSIZE;
	memcpy(buf, &w, sizeof(w));
	return sizeof(w);
}

int rp_wire_get_query(const void *buf, const struct rp_wire_hdr *hdr,
		      struct rp_wire_query *m)
{
	struct rp_le_query w;

	if (hdr->type != RP_MSG_QUERY || hdr->length != sizeof(w))
		return -EBADMSG;
	memcpy(&w, buf, sizeof(w));
	if (w.required > RP_CLASS_POWER ||
	    !is_zero(w.reserved, sizeof(w.reserved)))
		return -EBADMSG;
	*m = (struct rp_wire_query){
		.key = le64toh(w.key),
		.required = w.required,
	};
	return 0;
}

static bool info_valid(const struct rp_wire_info *m)
{
	return status_travels(m->status) && m->class <= RP_CLASS_POWER &&
	       m->method < RP_METHOD_MAX && m->memory <= RP_MEM_EMULATED &&
	       m->placement <= RP_PLACE_DMA_MEMORY &&
	       m->domain <= RP_DOMAIN_SYSTEM &&
	       m->refusal <= RP_REFUSAL_UNKNOWN &&
	       (grant_valid(&m->grant) ||
		(m->status != RP_ST_OK && grant_none(&m->grant)));
}

static bool printable(char c)
{
	return c >= 0x20 && c < 0x7f;
}

int rp_wire_put_info(void *buf, size_t size, uint64_t token,
		     const struct rp_wire_info *m)
{
	const size_t why_len = strnlen(m->why, sizeof(m->why));
	struct rp_le_info w;
	char *why = (char *)buf + sizeof(w);

	if (!info_valid(m) || why_len >= sizeof(m->why))
		return -EINVAL;
	if (size < sizeof(w) + why_len)
		return -EMSGSIZE;
	w = (struct rp_le_info){
		.hdr = le_hdr(RP_MSG_INFO, sizeof(w) + why_len, token),
		.status = htole32(m->status),
		.class = m->class,
		.method = m->method,
		.memory = m->memory,
		.placement = m->placement,
		.domain = m->domain,
		.refusal = m->refusal,
		.why_len = htole16((uint16_t)why_len),
		.granularity = htole32(m->granularity),
		.preferred_size = htole32(m->preferred_size),
		.preferred_align = htole32(m->preferred_align),
		.grant = grant_put(&m->grant),
	};
	memcpy(buf, &w, sizeof(w));
	/* A path in the sentence may hold anything; it ends on a terminal. */
	for (size_t i = 0; i < why_len; i++)
		why[i] = printable(m->why[i]) ? m->why[i] : '?';
	return (int)(sizeof(w) + why_len);
}

int rp_wire_get_info(const void *buf, const struct rp_wire_hdr *hdr,
		     struct rp_wire_info *m)
{
	struct rp_wire_info t;
	struct rp_le_info w;
	size_t why_len;

	if (hdr->type != RP_MSG_INFO || hdr->length < sizeof(w))
		return -EBADMSG;
	memcpy(&w, buf, sizeof(w));
	t = (struct rp_wire_info){
		.status = le32toh(w.status),
		.class = w.class,
		.method = w.method,
		.memory = w.memory,
		.placement = w.placement,
		.domain = w.domain,
		.refusal = w.refusal,
		.granularity = le32toh(w.granularity),
		.preferred_size = le32toh(w.preferred_size),
		.preferred_align = le32toh(w.preferred_align),
	};
	why_len = le16toh(w.why_len);
	if (why_len >= sizeof(t.why) || hdr->length != sizeof(w) + why_len ||
	    grant_get(&w.grant, &t.grant) || !info_valid(&t))
		return -EBADMSG;
	memcpy(t.why, (const char *)buf + sizeof(w), why_len);
	for (size_t i = 0; i < why_len; i++)
		if (!printable(t.why[i]))
			return -EBADMSG;
	*m = t;
	return 0;
}

int rp_wire_put_progress(void *buf, size_t size)
{
	const struct rp_le_hdr w = le_hdr(RP_MSG_PROGRESS, sizeof(w), 0);

	if (size < sizeof(w))
		return -EMSGSIZE;
	memcpy(buf, &w, sizeof(w));
	return sizeof(w);
}

#define KEY_CLASS_SHIFT	 59
#define KEY_METHOD_SHIFT 56
#define KEY_RANDOM	 ((1ull << RP_KEY_RANDOM_BITS) - 1)

uint64_t rp_key_make(const struct rp_key *k)
{
	assert(k->class <= RP_CLASS_POWER && k->random <= KEY_RANDOM);
	assert(k->method > RP_METHOD_REFUSED && k->method < RP_METHOD_MAX);
	return RP_KEY_MARK | (uint64_t)k->class << KEY_CLASS_SHIFT |
	       (uint64_t)k->method << KEY_METHOD_SHIFT |
	       (uint64_t)k->port << RP_KEY_RANDOM_BITS | k->random;
}

int rp_key_parse(uint64_t key, struct rp_key *k)
{
	const unsigned int class = key >> KEY_CLASS_SHIFT & 3;
	const unsigned int method = key >> KEY_METHOD_SHIFT & 7;

	if (!rp_key_is_persistent(key) || class > RP_CLASS_POWER ||
	    method == RP_METHOD_REFUSED)
		return -EINVAL;
	*k = (struct rp_key){
		.class = class,
		.method = method,
		.port = rp_key_port(key),
		.random = key & KEY_RANDOM,
	};
	return 0;
}
