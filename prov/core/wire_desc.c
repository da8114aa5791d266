// SPDX-License-Identifier: BSD-2-Clause
/* Descriptors and addresses to bytes and back; every byte of a peer checked. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "core/bytes.h"
#include "core/wire_desc.h"

#define MAGIC	     0x444d5052u /* "RPMD" */
#define SIDE_MAGIC   0x414d5052u /* "RPMA" */
#define VERSION	     1
#define SIDE_VERSION 3

enum {
	FACTS = 32,
	RESERVED_FACTS = 38,
	MASKS = 40,
	RESERVED_MASK = 46,
	KEY = 48,
	RESERVED = 56,
	CRC = RP_DESC_LEN - 4,
	BOX = 24,
	BOX_RKEY = 32,
	ANSWERS_RKEY = 36,
	ANSWERS = 40,
	SIDE_RESERVED = 48,
	SIDE_CRC = RP_SIDE_LEN - 4,
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

static bool good_key(const struct rp_desc *d)
{
	struct rp_key k;

	return !d->key || !rp_key_parse(d->key, &k);
}

/* Magic, version and length, and the checksum behind them. */
static int whole(const uint8_t *p, uint32_t magic, uint16_t version, size_t len)
{
	if (get32(p, len - 4) != rp_crc32(p, len - 4) || get32(p, 0) != magic ||
	    get16(p, 6) != len)
		return -EBADMSG;
	return get16(p, 4) == version ? 0 : -EPROTONOSUPPORT;
}

static bool good(const struct rp_desc *d)
{
	return good_key(d) && d->length && d->addr <= UINT64_MAX - d->length &&
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

	if (!good(d))
		return -EINVAL;
	memset(p, 0, RP_DESC_LEN);
	put32(p, 0, MAGIC);
	put16(p, 4, VERSION);
	put16(p, 6, RP_DESC_LEN);
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
	put32(p, CRC, rp_crc32(p, CRC));
	return 0;
}

int rp_desc_get(const void *buf, struct rp_desc *d)
{
	const uint8_t *p = buf;
	struct rp_desc got;
	int ret = whole(p, MAGIC, VERSION, RP_DESC_LEN);

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
	    get32(p, RESERVED) || !good(&got))
		return -EBADMSG;
	*d = got;
	return 0;
}

static bool good_side(const struct rp_side *s)
{
	return is_qp_num(s->qp_num) && is_qp_num(s->asks) &&
	       is_qp_num(s->serves) && is_qp_num(s->psn) &&
	       (s->box ? s->serves != 0 : !s->box_rkey) &&
	       (s->answers ? s->asks != 0 : !s->answers_rkey);
}

int rp_side_put(void *buf, const struct rp_side *s)
{
	uint8_t *p = buf;

	if (!good_side(s))
		return -EINVAL;
	memset(p, 0, RP_SIDE_LEN);
	put32(p, 0, SIDE_MAGIC);
	put16(p, 4, SIDE_VERSION);
	put16(p, 6, RP_SIDE_LEN);
	put32(p, 8, s->qp_num);
	put32(p, 12, s->asks);
	put32(p, 16, s->serves);
	put32(p, 20, s->psn);
	put64(p, BOX, s->box);
	put32(p, BOX_RKEY, s->box_rkey);
	put32(p, ANSWERS_RKEY, s->answers_rkey);
	put64(p, ANSWERS, s->answers);
	put32(p, SIDE_CRC, rp_crc32(p, SIDE_CRC));
	return 0;
}

int rp_side_get(const void *buf, struct rp_side *s)
{
	const uint8_t *p = buf;
	struct rp_side got;
	int ret = whole(p, SIDE_MAGIC, SIDE_VERSION, RP_SIDE_LEN);

	if (ret)
		return ret;
	got = (struct rp_side){
		.qp_num = get32(p, 8),
		.asks = get32(p, 12),
		.serves = get32(p, 16),
		.psn = get32(p, 20),
		.box = get64(p, BOX),
		.box_rkey = get32(p, BOX_RKEY),
		.answers_rkey = get32(p, ANSWERS_RKEY),
		.answers = get64(p, ANSWERS),
	};
	if (!bytes_zero(p + SIDE_RESERVED, SIDE_CRC - SIDE_RESERVED) ||
	    !good_side(&got))
		return -EBADMSG;
	*s = got;
	return 0;
}
