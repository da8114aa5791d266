// SPDX-License-Identifier: BSD-2-Clause
/* Encode, decode and check descriptors, side addresses and ring slots. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "core/bytes.h"
#include "core/wire_desc.h"

/* Offsets in an encoded descriptor; from RING on, in a side address. */
enum {
	FACTS = 32,
	RESERVED_FACTS = 38,
	MASKS = 40,
	RESERVED_MASK = 46,
	KEY = 48,
	RESERVED = 56,
	RING = 24,
	RING_RKEY = 32,
	REPLIES_RKEY = 36,
	REPLIES = 40,
	SIDE_RESERVED = 48,
	SIDE_RESERVED_LEN = 12,
};

uint32_t rp_crc32(const void *buf, size_t n)
{
	const uint8_t *p = buf;
	uint32_t c = ~0u;

	for (size_t i = 0; i < n; i++) {
		c ^= p[i];
		for (int bit = 0; bit < 8; bit++)
			c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
	}
	return ~c;
}

static bool is_qp_num(uint32_t n)
{
	return n < 1u << 24;
}

static bool key_valid(const struct rp_desc *d)
{
	struct rp_key k;

	return !d->key || !rp_key_parse(d->key, &k);
}

void rp_wire_seal(void *buf, uint8_t type, size_t len)
{
	uint8_t *p = buf;

	put16(p, 0, RP_WIRE_MAGIC);
	p[2] = RP_WIRE_VERSION;
	p[3] = type;
	put32(p, 4, (uint32_t)len);
	put32(p, len - 4, rp_crc32(p, len - 4));
}

int rp_wire_check_seal(const void *buf, uint8_t type, size_t len)
{
	const uint8_t *p = buf;

	if (get32(p, len - 4) != rp_crc32(p, len - 4) ||
	    get16(p, 0) != RP_WIRE_MAGIC || p[3] != type || get32(p, 4) != len)
		return -EBADMSG;
	return p[2] == RP_WIRE_VERSION ? 0 : -EPROTONOSUPPORT;
}

static bool desc_valid(const struct rp_desc *d)
{
	return key_valid(d) && d->length && d->addr <= UINT64_MAX - d->length &&
	       is_qp_num(d->qp_num) && d->memory <= RP_MEM_EMULATED &&
	       d->placement <= RP_PLACE_DMA_MEMORY &&
	       d->domain <= RP_DOMAIN_SYSTEM && d->fence <= RP_YES &&
	       d->fs_trusted <= RP_YES && d->limit <= RP_LIMIT_NONE &&
	       !(d->region & ~RP_DESC_ALL) && !(d->qp & ~RP_DESC_ALL) &&
	       !(d->native & ~RP_DESC_NATIVE);
}

int rp_desc_put(void *buf, const struct rp_desc *d)
{
	uint8_t *p = buf;

	if (!desc_valid(d))
		return -EINVAL;
	memset(p, 0, RP_DESC_LEN);
	put64(p, 8, d->addr);
	put64(p, 16, d->length);
	put32(p, 24, d->rkey);
	put32(p, 28, d->qp_num);
	p[FACTS] = (uint8_t)d->memory;
	p[FACTS + 1] = (uint8_t)d->placement;
	p[FACTS + 2] = (uint8_t)d->domain;
	p[FACTS + 3] = (uint8_t)d->fence;
	p[FACTS + 4] = (uint8_t)d->fs_trusted;
	p[FACTS + 5] = (uint8_t)d->limit;
	put16(p, MASKS, d->region);
	put16(p, MASKS + 2, d->qp);
	put16(p, MASKS + 4, d->native);
	put64(p, KEY, d->key);
	rp_wire_seal(p, RP_WIRE_DESC, RP_DESC_LEN);
	return 0;
}

int rp_desc_get(const void *buf, struct rp_desc *d)
{
	const uint8_t *p = buf;
	struct rp_desc got;
	int ret = rp_wire_check_seal(p, RP_WIRE_DESC, RP_DESC_LEN);

	if (ret)
		return ret;
	got = (struct rp_desc){
		.addr = get64(p, 8),
		.length = get64(p, 16),
		.rkey = get32(p, 24),
		.qp_num = get32(p, 28),
		.memory = p[FACTS],
		.placement = p[FACTS + 1],
		.domain = p[FACTS + 2],
		.fence = p[FACTS + 3],
		.fs_trusted = p[FACTS + 4],
		.limit = p[FACTS + 5],
		.region = get16(p, MASKS),
		.qp = get16(p, MASKS + 2),
		.native = get16(p, MASKS + 4),
		.key = get64(p, KEY),
	};
	if (get16(p, RESERVED_FACTS) || get16(p, RESERVED_MASK) ||
	    get32(p, RESERVED) || !desc_valid(&got))
		return -EBADMSG;
	*d = got;
	return 0;
}

static bool side_valid(const struct rp_side_addr *s)
{
	return is_qp_num(s->qp_num) && is_qp_num(s->initiator) &&
	       is_qp_num(s->target) && is_qp_num(s->psn) &&
	       (s->ring ? s->target != 0 : !s->ring_rkey) &&
	       (s->replies ? s->initiator != 0 : !s->replies_rkey);
}

int rp_side_addr_put(void *buf, const struct rp_side_addr *s)
{
	uint8_t *p = buf;

	if (!side_valid(s))
		return -EINVAL;
	memset(p, 0, RP_SIDE_ADDR_LEN);
	put32(p, 8, s->qp_num);
	put32(p, 12, s->initiator);
	put32(p, 16, s->target);
	put32(p, 20, s->psn);
	put64(p, RING, s->ring);
	put32(p, RING_RKEY, s->ring_rkey);
	put32(p, REPLIES_RKEY, s->replies_rkey);
	put64(p, REPLIES, s->replies);
	rp_wire_seal(p, RP_WIRE_SIDE, RP_SIDE_ADDR_LEN);
	return 0;
}

int rp_side_addr_get(const void *buf, struct rp_side_addr *s)
{
	const uint8_t *p = buf;
	struct rp_side_addr got;
	int ret = rp_wire_check_seal(p, RP_WIRE_SIDE, RP_SIDE_ADDR_LEN);

	if (ret)
		return ret;
	got = (struct rp_side_addr){
		.qp_num = get32(p, 8),
		.initiator = get32(p, 12),
		.target = get32(p, 16),
		.psn = get32(p, 20),
		.ring = get64(p, RING),
		.ring_rkey = get32(p, RING_RKEY),
		.replies_rkey = get32(p, REPLIES_RKEY),
		.replies = get64(p, REPLIES),
	};
	if (!bytes_zero(p + SIDE_RESERVED, SIDE_RESERVED_LEN) ||
	    !side_valid(&got))
		return -EBADMSG;
	*s = got;
	return 0;
}

/* Offsets in struct rp_wire_slot as encoded, at the end of a slot. */
enum {
	SLOT_CONSUMED = 4,
	SLOT_LENGTH = 8,
	SLOT_VALID = RP_WIRE_SLOT - 1,
};

uint32_t rp_wire_slot_checksum(const struct rp_wire_slot *s, const void *msg)
{
	uint64_t h = 0xcbf29ce484222325ull;
	uint64_t w = s->consumed | (uint64_t)s->length << 32 |
		     (uint64_t)s->valid << 48;
	const uint8_t *p = msg;
	uint8_t rest[8] = {0};
	size_t at = 0;

	for (;; at += 8) {
		h = (h ^ w) * 0x100000001b3ull;
		h ^= h >> 29;
		if (at + 8 > s->length)
			break;
		w = get64(p, at);
	}
	memcpy(rest, p + at, s->length - at);
	h = (h ^ get64(rest, 0)) * 0x100000001b3ull;
	return (uint32_t)(h ^ h >> 32);
}

void rp_wire_put_slot(void *buf, const struct rp_wire_slot *s, const void *msg)
{
	uint8_t *p = buf;

	memset(p, 0, RP_WIRE_SLOT);
	put32(p, 0, rp_wire_slot_checksum(s, msg));
	put32(p, SLOT_CONSUMED, s->consumed);
	put16(p, SLOT_LENGTH, s->length);
	p[SLOT_VALID] = s->valid;
}

void rp_wire_get_slot(const void *buf, struct rp_wire_slot *s)
{
	const uint8_t *p = buf;

	*s = (struct rp_wire_slot){
		.checksum = get32(p, 0),
		.consumed = get32(p, SLOT_CONSUMED),
		.length = get16(p, SLOT_LENGTH),
		.valid = p[SLOT_VALID],
	};
}
