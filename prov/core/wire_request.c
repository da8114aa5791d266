// SPDX-License-Identifier: BSD-2-Clause
/* Encode and decode REQUEST, with its ranges and its effect. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "core/atomic.h"
#include "core/bytes.h"
#include "core/wire_layout.h"
#include "core/wire_pack.h"

#define REQUEST sizeof(struct rp_le_request)
#define RANGE	sizeof(struct rp_le_range)

static_assert(RP_WIRE_PACKED_AT == REQUEST + sizeof(uint64_t),
	      "packed ranges begin behind the key of all");

static inline bool request_valid(const struct rp_wire_request *m, bool packed)
{
	if (m->nranges > (packed ? RP_WIRE_MAX_PACKED : RP_WIRE_MAX_RANGES))
		return false;
	if (m->level != RP_LEVEL_VISIBLE && m->level != RP_LEVEL_DURABLE)
		return false;
	if (!m->nranges && (m->level != RP_LEVEL_VISIBLE || m->effect))
		return false;
	if (m->effect == RP_EFFECT_THEN && m->level != RP_LEVEL_DURABLE)
		return false;
	return m->required <= RP_CLASS_POWER && m->effect <= RP_EFFECT_ZERO;
}

/*
 * Count the bytes of all ranges for elements of this size. False: a range is
 * empty or no multiple, or there are more than `most` bytes.
 */
static bool bytes_count(const struct rp_wire_range *r, size_t n, size_t element,
			size_t most, size_t *bytes)
{
	*bytes = 0;
	for (size_t i = 0; i < n; i++) {
		if (!r[i].len || r[i].len > most - *bytes || r[i].len % element)
			return false;
		*bytes += r[i].len;
	}
	return true;
}

/*
 * Compute the length of the effect, which follows the ranges: *head for its
 * fixed part and *bytes for each array. -EINVAL: not valid with these ranges.
 */
static inline int effect_len(const struct rp_wire_request *m,
			     const struct rp_wire_range *r, size_t *head,
			     size_t *bytes)
{
	const size_t most = m->effect == RP_EFFECT_ZERO ? RP_WIRE_MAX_ZERO
							: RP_WIRE_MAX_STORE;
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
	case RP_EFFECT_ZERO:
		return bytes_count(r, m->nranges, element, most, bytes)
			       ? 0
			       : -EINVAL;
	default:
		return 0;
	}
}

/* Number of arrays, each as long as all ranges, that the message contains. */
static unsigned int count_arrays(const struct rp_wire_request *m)
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

/*
 * Returns the packed bytes; 0: the ranges cannot be packed. Packing two or more
 * is always shorter: at most 20 bytes each, and 8 for their common key.
 */
static size_t ranges_pack(uint8_t *out, size_t size,
			  const struct rp_wire_request *m)
{
	size_t len, taken;

	if (!m->packed || m->nranges < 2)
		return 0;
	len = rp_wire_pack(out, size, m->ranges, m->nranges, &taken);
	return taken == m->nranges ? len : 0;
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

static void effect_put(uint8_t *p, const struct rp_wire_request *m,
		       size_t bytes)
{
	const struct rp_le_then then = {
		.key = htole64(m->then.key),
		.addr = htole64(m->then.addr),
		.value = htole64(m->then.value),
	};
	const struct rp_le_notify notify = {
		.data = htole64(m->data),
		.endpoint = htole16(m->endpoint),
	};
	const struct rp_le_atomic atomic = {
		.op = m->atomic.op,
		.datatype = m->atomic.datatype,
		.fetch = m->atomic.fetch,
	};

	switch (m->effect) {
	case RP_EFFECT_THEN:
		memcpy(p, &then, sizeof(then));
		break;
	case RP_EFFECT_NOTIFY:
		memcpy(p, &notify, sizeof(notify));
		break;
	case RP_EFFECT_STORE:
		if (m->bytes)
			memcpy(p, m->bytes, bytes);
		break;
	case RP_EFFECT_ATOMIC:
		memcpy(p, &atomic, sizeof(atomic));
		p += sizeof(atomic);
		if (rp_atomic_has_operand(m->atomic.op)) {
			memcpy(p, m->atomic.operand, bytes);
			p += bytes;
		}
		if (rp_atomic_has_compare(m->atomic.op))
			memcpy(p, m->atomic.compare, bytes);
		break;
	}
}

int rp_wire_put_request(void *buf, size_t size, uint64_t token,
			const struct rp_wire_request *m)
{
	uint8_t packed[RP_WIRE_MAX_MSG - RP_WIRE_PACKED_AT];
	size_t pack = ranges_pack(packed, sizeof(packed), m);
	size_t ranges =
		pack ? RP_WIRE_PACKED_AT - REQUEST + pack : m->nranges * RANGE;
	size_t head, bytes, len, written;
	struct rp_le_request w;
	uint8_t *p = buf;

	if (!request_valid(m, pack) || operands_missing(m) ||
	    effect_len(m, m->ranges, &head, &bytes))
		return -EINVAL;
	len = REQUEST + ranges + head + bytes * count_arrays(m);
	written = m->effect == RP_EFFECT_STORE && !m->bytes ? len - bytes : len;
	if (len > RP_WIRE_MAX_MSG)
		return -EINVAL;
	if (size < written)
		return -EMSGSIZE;

	w = (struct rp_le_request){
		.hdr = rp_le_hdr_make(RP_MSG_REQUEST, len, token),
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
		memcpy(p + RP_WIRE_PACKED_AT, packed, pack);
	} else {
		ranges_put(p + REQUEST, m->ranges, m->nranges);
	}
	effect_put(p + REQUEST + ranges, m, bytes);
	return (int)written;
}

/* Returns the bytes of the decoded ranges, packed or not, or -EBADMSG. */
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
		return ret < 0 ? ret : ret + (int)sizeof(key);
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

/* Decode the fixed part of a THEN, NOTIFY or ATOMIC; its arrays follow. */
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
		m->endpoint = le16toh(notify.endpoint);
		return bytes_zero(notify.reserved, sizeof(notify.reserved))
			       ? 0
			       : -EBADMSG;
	case RP_EFFECT_ATOMIC:
		if (len < sizeof(atomic))
			return -EBADMSG;
		memcpy(&atomic, p, sizeof(atomic));
		if (atomic.fetch > 1 ||
		    !bytes_zero(atomic.reserved, sizeof(atomic.reserved)))
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

/* Decode the effect, behind the ranges, and its arrays. */
static int arrays_get(const uint8_t *p, size_t len, struct rp_wire_request *m)
{
	size_t head, bytes;

	if (effect_get(p, len, m) || effect_len(m, m->decoded, &head, &bytes) ||
	    len != head + bytes * count_arrays(m))
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
	if (w.flags & ~RP_LE_REQUEST_PACKED || w.reserved ||
	    !request_valid(&t, t.packed))
		return -EBADMSG;
	p += sizeof(w);
	left = hdr->length - sizeof(w);
	ret = ranges_get(p, left, t.packed, t.decoded, t.nranges);
	if (ret < 0)
		return ret;
	ret = arrays_get(p + ret, left - (size_t)ret, &t);
	if (!ret)
		*m = t;
	return ret;
}
