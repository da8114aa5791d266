// SPDX-License-Identifier: BSD-2-Clause
/* The area at the start of each member of a group. */
#include "config.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include <xxhash.h>

#include "libpool/group.h"

static const char magic[8] = "RPMGROUP";

static void put(unsigned char *to, uint64_t v)
{
	memcpy(to, &(uint64_t){htole64(v)}, sizeof(v));
}

static uint64_t get(const unsigned char *from)
{
	uint64_t v;

	memcpy(&v, from, sizeof(v));
	return le64toh(v);
}

bool group_super_same(const struct group_super *a, const struct group_super *b)
{
	return a->id[0] == b->id[0] && a->id[1] == b->id[1];
}

void group_super_encode(const struct group_super *s,
			unsigned char to[GROUP_SUPER])
{
	memcpy(to, magic, sizeof(magic));
	put(to + 8, GROUP_FORMAT);
	put(to + 16, s->n);
	put(to + 24, s->k);
	put(to + 32, s->id[0]);
	put(to + 40, s->id[1]);
	put(to + 48, s->length);
	put(to + 56, s->chunk);
	put(to + 64, s->founder);
	put(to + 72, XXH64(to, 72, 0));
}

static bool is_zero(const unsigned char *p, size_t n)
{
	return !n || (!*p && !memcmp(p, p + 1, n - 1));
}

static int super_decode(const unsigned char from[GROUP_SUPER],
			struct group_super *s)
{
	if (memcmp(from, magic, sizeof(magic)) ||
	    get(from + 8) != GROUP_FORMAT ||
	    get(from + 72) != XXH64(from, 72, 0))
		return -EBADMSG;
	*s = (struct group_super){
		.n = (uint32_t)get(from + 16),
		.k = (uint32_t)get(from + 24),
		.id = {get(from + 32), get(from + 40)},
		.length = get(from + 48),
		.chunk = get(from + 56),
		.founder = get(from + 64) != 0,
	};
	/* Refuse numbers that only a damaged area can have. */
	if (s->n < 2 || s->n > GROUP_MEMBERS || !s->k || s->k > s->n ||
	    s->chunk < 8 || s->chunk > INT64_MAX || s->chunk % 8 ||
	    s->length > INT64_MAX || s->length % 8 ||
	    s->length / s->chunk >= GROUP_BITS)
		return -EBADMSG;
	return 0;
}

void group_slot_encode(const struct group_super *s, uint64_t epoch,
		       unsigned char to[GROUP_SLOT])
{
	put(to, epoch);
	put(to + 8, XXH64(to, 8, s->id[0]));
}

#define COPIED_BITS 20
_Static_assert(GROUP_BITS < 1u << COPIED_BITS, "a number of chunks fits");

uint64_t group_copied_encode(uint64_t epoch, uint64_t chunks)
{
	return epoch >> (64 - COPIED_BITS) ? 0 : epoch << COPIED_BITS | chunks;
}

int group_area_decode(const unsigned char area[GROUP_AREA],
		      struct group_super *s, struct group_state *state)
{
	int ret;

	*state = (struct group_state){0};
	if (is_zero(area, GROUP_AREA))
		return -ENODATA;
	ret = super_decode(area, s);
	/*
	 * A torn superblock of a new member is as good as none. It has the
	 * magic, which became durable first, and only zeros after it, because
	 * the whole superblock becomes durable before any later byte.
	 */
	if (ret)
		return is_zero(area + GROUP_SUPER, GROUP_AREA - GROUP_SUPER) &&
				       !memcmp(area, magic, sizeof(magic))
			       ? -ENODATA
			       : ret;
	state->promised = get(area + GROUP_PROMISE_AT);
	state->full = get(area + GROUP_FULL_AT);
	for (unsigned int i = 0; i < 2; i++) {
		const unsigned char *slot = area + GROUP_SLOT_AT(i);
		const uint64_t epoch = get(slot);

		if (get(slot + 8) != XXH64(slot, 8, s->id[0]) ||
		    epoch <= state->epoch)
			continue;
		state->epoch = epoch;
		state->number = get(area + GROUP_NUMBER_AT(i));
		state->slot = i;
	}
	state->left = get(area + GROUP_LEFT_AT);
	if (state->left > s->length)
		state->left = 0;
	state->copied_epoch = get(area + GROUP_COPIED_AT);
	state->copied = state->copied_epoch & ((1u << COPIED_BITS) - 1);
	state->copied_epoch >>= COPIED_BITS;
	if (state->copied > (s->length + s->chunk - 1) / s->chunk ||
	    state->copied_epoch > state->promised)
		state->copied = 0;
	/*
	 * A member has had the epoch `full`, so that one above its own epoch is
	 * damaged. A member without an epoch got `full` from the others.
	 */
	if (state->epoch && state->full > state->epoch)
		state->full = 0;
	/* Refuse epochs that leave too little room to count up. */
	return state->promised > INT64_MAX || state->epoch > INT64_MAX
		       ? -EBADMSG
		       : 0;
}
