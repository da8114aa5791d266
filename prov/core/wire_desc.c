// SPDX-License-Identifier: BSD-2-Clause
/* Descriptors of regions to bytes and back; every byte of a peer checked. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

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

static void put(uint8_t *p, size_t at, size_t n, uint64_t v)
{
	for (size_t i = 0; i < n; i++)
		p[at + i] = (uint8_t)(v >> 8 * i);
}

static uint64_t get(const uint8_t *p, size_t at, size_t n)
{
	uint64_t v = 0;

	for (size_t i = 0; i < n; i++)
		v |= (uint64_t)p[at + i] << 8 * i;
	return v;
}

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
	put(p, 0, 4, MAGIC);
	put(p, 4, 2, VERSION);
	put(p, 6, 2, RP_DESC_LEN);
	put(p, 8, 8, d->addr);
	put(p, 16, 8, d->length);
	put(p, 24, 4, d->rkey);
	put(p, 28, 4, d->qp_num);
	put(p, FACTS, 1, d->memory);
	put(p, FACTS + 1, 1, d->placement);
	put(p, FACTS + 2, 1, d->domain);
	put(p, FACTS + 3, 1, d->fence);
	put(p, FACTS + 4, 1, d->fs_trusted);
	put(p, FACTS + 5, 1, d->limit);
	put(p, MASKS, 2, d->region);
	put(p, MASKS + 2, 2, d->qp);
	put(p, MASKS + 4, 2, d->native);
	put(p, CRC, 4, crc32(p, CRC));
	return 0;
}

int rp_desc_get(const void *buf, struct rp_desc *d)
{
	const uint8_t *p = buf;
	struct rp_desc got;

	if (get(p, CRC, 4) != crc32(p, CRC) || get(p, 0, 4) != MAGIC ||
	    get(p, 6, 2) != RP_DESC_LEN)
		return -EBADMSG;
	if (get(p, 4, 2) != VERSION)
		return -EPROTONOSUPPORT;
	got = (struct rp_desc){
		.addr = get(p, 8, 8),
		.length = get(p, 16, 8),
		.rkey = (uint32_t)get(p, 24, 4),
		.qp_num = (uint32_t)get(p, 28, 4),
		.memory = p[FACTS],
		.placement = p[FACTS + 1],
		.domain = p[FACTS + 2],
		.fence = p[FACTS + 3],
		.fs_trusted = p[FACTS + 4],
		.limit = p[FACTS + 5],
		.region = (uint16_t)get(p, MASKS, 2),
		.qp = (uint16_t)get(p, MASKS + 2, 2),
		.native = (uint16_t)get(p, MASKS + 4, 2),
	};
	if (get(p, RESERVED_FACTS, 2) || get(p, RESERVED, 8) ||
	    get(p, RESERVED + 8, CRC - RESERVED - 8) || !good(&got))
		return -EBADMSG;
	*d = got;
	return 0;
}
