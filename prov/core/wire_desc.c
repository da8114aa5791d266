// SPDX-License-Identifier: BSD-2-Clause
/* Descriptors of regions to bytes and back; every byte of a peer checked. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "core/bytes.h"
#include "core/wire_desc.h"

#define MAGIC	0x444d5052u /* "RPMD" */
#define VERSION 1

enum {
	FACTS = 32,
	RESERVED_FACTS = 38,
	MASKS = 40,
	RESERVED = 46,
	CRC = 60,
};

static uint32_t crc32(const uint8_t *p, size_t n)
{
	uint32_t c = ~0u;

	for (size_t i = 0; i < n; i++) {
		c ^= p[i];
		for (int bit = 0; bit < 8; bit++)
			c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
	}
	return ~c;
}

static bool good(const struct rp_desc *d)
{
	return d->length && d->addr <= UINT64_MAX - d->length &&
	       d->qp_num < 1u << 24 && d->memory <= RP_MEM_EMULATED &&
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
	put32(p, CRC, crc32(p, CRC));
	return 0;
}

int rp_desc_get(const void *buf, struct rp_desc *d)
{
	const uint8_t *p = buf;
	struct rp_desc got;
	uint8_t reserved = 0;

	if (get32(p, CRC) != crc32(p, CRC) || get32(p, 0) != MAGIC ||
	    get16(p, 6) != RP_DESC_LEN)
		return -EBADMSG;
	if (get16(p, 4) != VERSION)
		return -EPROTONOSUPPORT;
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
	};
	for (size_t i = RESERVED; i < CRC; i++)
		reserved |= p[i];
	if (reserved || get16(p, RESERVED_FACTS) || !good(&got))
		return -EBADMSG;
	*d = got;
	return 0;
}
