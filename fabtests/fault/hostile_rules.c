// SPDX-License-Identifier: BSD-2-Clause
/* Which messages may be granted: said anew, with nothing of prov/ asked. */
#include "config.h"

#include "fault/hostile.h"

/* Regions whose keys the peer was given; the other keys it can but guess. */
static const int given[] = {R_FILE, R_PMEM, R_VOLATILE, R_STALE};
#define NGIVEN (sizeof(given) / sizeof(*given))

uint64_t wire_get(const uint8_t *p, int n)
{
	uint64_t v = 0;

	while (n-- > 0)
		v = v << 8 | p[n];
	return v;
}

void wire_put(uint8_t *p, int n, uint64_t v)
{
	for (; n > 0; n--, v >>= 8)
		*p++ = (uint8_t)v;
}

/* May this range be durable in this class for us? Nothing of prov/ is asked. */
static bool may(const uint8_t *g, unsigned int level, unsigned int required)
{
	uint64_t key = wire_get(g, 8), addr = wire_get(g + 8, 8),
		 len = wire_get(g + 16, 8);

	for (size_t i = 0; i < NGIVEN; i++) {
		const struct region *r = &world->regions[given[i]];

		if (key != r->key || !len || addr < r->addr ||
		    addr - r->addr >= REGION_LEN ||
		    len > REGION_LEN - (addr - r->addr) || given[i] == R_STALE)
			continue;
		if (level == RP_LEVEL_VISIBLE)
			return true;
		return given[i] == R_FILE ||
		       (given[i] == R_PMEM && required == 0);
	}
	return false;
}

/* Is this a REQUEST or QUERY that may be answered with OK? */
bool proper(const uint8_t *m, size_t len, uint64_t cookie, uint64_t incarnation)
{
	uint64_t n, inc;

	if (len < 48 || wire_get(m, 2) != 0x5052 || m[2] != 1 ||
	    wire_get(m + 4, 4) != len || wire_get(m + 8, 8) != cookie)
		return false;
	inc = wire_get(m + 24, 8);
	if (inc && inc != incarnation)
		return false;
	if (m[3] == RP_MSG_QUERY)
		return len == 48 && m[40] <= 2 && !wire_get(m + 41, 7) &&
		       (wire_get(m + 32, 8) == world->regions[R_FILE].key ||
			(wire_get(m + 32, 8) == world->regions[R_PMEM].key &&
			 !m[40]));
	n = wire_get(m + 32, 2);
	if (m[3] != RP_MSG_REQUEST || !n || n > 168 || len != 40 + 24 * n ||
	    (m[34] != 1 && m[34] != 2) || m[35] > 2 || wire_get(m + 36, 4))
		return false;
	for (uint64_t i = 0; i < n; i++)
		if (!may(m + 40 + 24 * i, m[34], m[35]))
			return false;
	return true;
}
