// SPDX-License-Identifier: BSD-2-Clause
/* The bitmap of a group: marks the chunks in which its members can differ. */
#include "config.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "libpool/group.h"

/* Send bytes first to last of the bitmap, with a leg for each member. */
static void add_bits(struct group *g, struct group_leg *legs[GROUP_MEMBERS],
		     uint64_t first, uint64_t last)
{
	for (unsigned int i = 0; i < g->n; i++) {
		struct group_leg *leg = legs[i];

		if (!leg)
			continue;
		memcpy(leg->bytes, g->bits + first, last - first + 1);
		/* Keep the bits of the chunks that this member must copy. */
		for (uint64_t b = first; g->members[i].copy && b <= last; b++)
			leg->bytes[b - first] |= g->members[i].copy[b];
		leg->op.type = RPMEM_POOL_WRITE;
		leg->op.flags = leg->kind == LEG_BITS ? RPMEM_POOL_DURABLE : 0;
		leg->op.buf = leg->bytes;
		leg->op.offset = GROUP_BITS_AT + first;
		leg->op.len = last - first + 1;
		leg_add(g, i, leg);
	}
}

/*
 * Set the bits of a write's chunks. A bit is durable at a member before the
 * write reaches the member, so that the next opening finds all chunks in which
 * members can differ.
 */
int group_touch(struct group *g, uint64_t offset, uint64_t len)
{
	const uint64_t first = offset / g->super.chunk;
	const uint64_t last = (offset + len - 1) / g->super.chunk;
	struct group_leg *legs[GROUP_MEMBERS];
	bool all = true;

	for (uint64_t c = first; c <= last; c++)
		all &= g->bits[c / 8] >> c % 8 & 1;
	/* A write must not reach a member without its bit. */
	if (!all && legs_new(g, LEG_BITS, last / 8 - first / 8 + 1, legs))
		return -ENOMEM;
	for (uint64_t c = first; c <= last; c++) {
		const unsigned char bit = (unsigned char)(1u << c % 8);

		g->touched[c] = g->issued + 1;
		if (g->bits[c / 8] & bit)
			continue;
		g->bits[c / 8] |= bit;
		g->nset++;
	}
	if (!all)
		add_bits(g, legs, first / 8, last / 8);
	return 0;
}

static uint64_t number_of_all(const struct group *g)
{
	uint64_t least = UINT64_MAX;

	for (unsigned int i = 0; i < g->n; i++)
		if (g->members[i].number < least)
			least = g->members[i].number;
	return least;
}

/*
 * Record durably that all members have this epoch. The former members of the
 * group do not have it: clear_former_epochs() recognizes them. full_sent stays
 * set for as long as all members are current.
 */
static void send_full(struct group *g)
{
	const uint64_t full = htole64(g->epoch);
	struct group_leg *legs[GROUP_MEMBERS];

	if (g->full_sent || group_count(g, MEMBER_CURRENT) < g->n)
		return;
	if (legs_new(g, LEG_BITS, sizeof(full), legs))
		return;
	g->full_sent = true;
	g->full = g->epoch;
	for (unsigned int i = 0; i < g->n; i++) {
		struct group_leg *leg = legs[i];

		memcpy(leg->bytes, &full, sizeof(full));
		leg->op.type = RPMEM_POOL_WRITE;
		leg->op.flags = RPMEM_POOL_DURABLE;
		leg->op.buf = leg->bytes;
		leg->op.offset = GROUP_FULL_AT;
		leg->op.len = sizeof(full);
		leg_add(g, i, leg);
	}
}

/*
 * Clear bits of chunks whose writes are durable at all members, until `leave`
 * bits are set. send_full() has sent the epoch to all members before, and
 * LEG_BITS is a barrier: `full` is durable before bits are cleared.
 */
static void clear_bits(struct group *g, uint64_t leave)
{
	const uint64_t upto = number_of_all(g);
	uint64_t first = GROUP_BITS, last = 0;
	struct group_leg *legs[GROUP_MEMBERS];

	if (g->keeps_bits)
		return;
	for (uint64_t c = 0; c < GROUP_BITS && g->nset > leave; c++) {
		if (!g->bits[c / 8]) {
			c |= 7;
			continue;
		}
		if (!(g->bits[c / 8] & 1u << c % 8) || g->touched[c] > upto)
			continue;
		g->bits[c / 8] &= (unsigned char)~(1u << c % 8);
		g->nset--;
		first = c < first ? c : first;
		last = c;
	}
	/* Without memory members keep surplus bits, which only cost copies. */
	if (first < GROUP_BITS &&
	    !legs_new(g, LEG_CLEAR, last / 8 - first / 8 + 1, legs))
		add_bits(g, legs, first / 8, last / 8);
}

void group_clear_old(struct group *g)
{
	send_full(g);
	if (g->nset <= GROUP_HOT || g->issued < g->clear_after || !g->full_sent)
		return;
	g->clear_after = g->issued + GROUP_HOT / 2;
	clear_bits(g, GROUP_HOT / 2);
}

void group_clear_all(struct group *g)
{
	if (g->full_sent)
		clear_bits(g, 0);
}
