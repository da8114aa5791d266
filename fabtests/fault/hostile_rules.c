// SPDX-License-Identifier: BSD-2-Clause
/*
 * Which messages a target may accept, written from docs/protocol.md without
 * code of prov/.
 */
#include "config.h"

#include "fault/hostile.h"

#define HELLO_LEN  40
#define QUERY_LEN  32
#define RANGES	   24 /* offset of the ranges in a REQUEST */
#define MAX_RANGES 168
#define MAX_BYTES  4096

static bool header_valid(const uint8_t *m, size_t len, unsigned int type)
{
	return wire_get(m, 2) == 0x5052 && m[2] == 2 && m[3] == type &&
	       wire_get(m + 4, 4) == len;
}

static bool reserved_zero(const uint8_t *m, size_t len)
{
	while (len)
		if (m[--len])
			return false;
	return true;
}

bool hello_is_valid(const uint8_t *m, size_t len)
{
	return len >= HELLO_LEN && header_valid(m, HELLO_LEN, 1) &&
	       reserved_zero(m + 8, 8) &&
	       wire_get(m + 16, 8) == world->regions[R_FILE].key &&
	       reserved_zero(m + HELLO_LEN, len - HELLO_LEN);
}

static bool is_granted(uint64_t key, unsigned int granted, int *r)
{
	for (*r = 0; *r < R_COUNT; ++*r)
		if (granted & 1u << *r && key == world->regions[*r].key)
			return true;
	return false;
}

/* May a request for this range succeed, at this level and class? */
static bool grant_allowed(const uint8_t *g, unsigned int level,
			  unsigned int required, unsigned int granted,
			  bool stores)
{
	uint64_t addr = wire_get(g + 8, 8), len = wire_get(g + 16, 8);
	int r;

	if (!is_granted(wire_get(g, 8), granted, &r))
		return false;
	if (!len || addr < world->regions[r].addr)
		return false;
	addr -= world->regions[r].addr;
	if (addr >= REGION_LEN || len > REGION_LEN - addr)
		return false;
	if (stores && r == R_READONLY)
		return false;
	return level == 1 || r != R_PMEM || required == 0;
}

static bool proper_request(const uint8_t *m, size_t len, unsigned int granted)
{
	uint64_t n, bytes = 0;
	bool store;

	if (len < RANGES || !header_valid(m, len, 2))
		return false;
	n = wire_get(m + 16, 2);
	store = m[20] == 3;
	if (n > MAX_RANGES || len < RANGES + 24 * n || m[18] < 1 || m[18] > 2 ||
	    m[19] > 2 || (m[20] && !store) || !reserved_zero(m + 21, 3) ||
	    (!n && (m[18] != 1 || store)))
		return false;
	for (uint64_t i = 0; i < n; i++) {
		const uint8_t *g = m + RANGES + 24 * i;

		if (!grant_allowed(g, m[18], m[19], granted, store))
			return false;
		if (wire_get(g + 16, 8) > MAX_BYTES && store)
			return false;
		bytes += wire_get(g + 16, 8);
	}
	return len == RANGES + 24 * n + (store ? bytes : 0) &&
	       (!store || bytes <= MAX_BYTES);
}

bool request_is_valid(const uint8_t *m, size_t len, unsigned int granted)
{
	uint64_t key;

	if (len != QUERY_LEN || !header_valid(m, len, 3))
		return proper_request(m, len, granted);
	key = wire_get(m + 16, 8);
	if (m[24] > 2 || !reserved_zero(m + 25, 7))
		return false;
	for (int r = R_HONEST; r < R_COUNT; r++)
		if (key == world->regions[r].key)
			return r < R_VOLATILE &&
			       ((r != R_PMEM && r != R_PMEM_OTHER) || !m[24]);
	return false;
}
