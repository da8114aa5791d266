// SPDX-License-Identifier: BSD-2-Clause
/* The area of a group's member: torn, of another group, with random bytes. */
#include <endian.h>

#include <xxhash.h>

#include "group_calls.h"

static void expect_refused_group(int ret)
{
	const unsigned int w = rig_writer_new(&rig, call_completed);

	expect_group_ended(w, ret);
}

Test(pool_group_area, other_numbers_of_members_and_copies_are_refused)
{
	create_group(3, 2);
	rig.k = 1;
	expect_refused_group(-EINVAL);
	rig.k = 2;
	rig.n = 2;
	expect_refused_group(-EINVAL);
	rig.n = 3;
	cr_assert_eq(read_cell(open_writer(), 0), 1);
	rig_end(&rig);
}

static void set_member_area(unsigned int member, const unsigned char *area)
{
	memcpy(rig.members[member].visible, area, GROUP_AREA);
	memcpy(rig.members[member].durable, area, GROUP_AREA);
}

Test(pool_group_area, members_of_two_groups_are_refused)
{
	static unsigned char area[GROUP_AREA];

	create_group(3, 2);
	memcpy(area, rig.members[1].visible, GROUP_AREA);
	rig_end(&rig);
	start_members(2, 3, 2);
	cr_assert(group_opens_with(0x7));
	set_member_area(1, area);
	return_member(0);
	expect_refused_group(-EINVAL);
	rig_end(&rig);
}

Test(pool_group_area, other_bytes_are_refused)
{
	static const unsigned int at[] = {0, GROUP_SUPER, GROUP_AREA - 1};

	for (unsigned int i = 0; i < 3; i++) {
		start_members(1, 3, 2);
		rig.members[1].visible[at[i]] = 1;
		expect_refused_group(-EBADMSG);
		cr_assert_eq(rig.members[1].visible[at[i]], 1);
		rig_end(&rig);
	}
}

Test(pool_group_area, an_open_group_goes_on_without_a_member_of_other_bytes)
{
	unsigned int w;

	create_group(3, 2);
	w = open_writer();
	await_all_current(w);
	lose_member(1);
	memset(rig.members[1].visible, 1, GROUP_AREA);
	return_member(1);
	run_events(500);
	cr_assert_eq(write_cell(w, 0, 1), 0);
	cr_assert_eq(commit_call(w), 0);
	cr_assert_eq(rig.members[1].visible[0], 1);
	rig_end(&rig);
}

Test(pool_group_area, a_member_that_is_too_short_is_not_one)
{
	unsigned int w;

	start_members(1, 3, 2);
	rig.members[1].length = GROUP_AREA + 7;
	w = rig_writer_new(&rig, call_completed);
	run_events(500);
	cr_assert_eq(group_of(w)->members[1].ret, -ENOSPC);
	rig_writer_kill(&rig, w);
	/* The shortest member decides the group's length, in whole cells. */
	rig.members[1].length = RIG_LENGTH - 70;
	w = open_writer();
	cr_assert_eq(group_of(w)->super.length, RIG_BYTES - 72);
	write_and_commit(w, 0, 1);
	await_all_current(w);
	for (unsigned int i = 0; i < 2; i++) {
		lose_member(2);
		if (i)
			rig_replace(&rig, 2);
		rig.members[2].length = RIG_LENGTH - 80;
		return_member(2);
		run_events(500);
		cr_assert_neq(group_of(w)->members[2].state, MEMBER_CURRENT);
		rig.members[2].length = RIG_LENGTH;
		await_state(w, 2, MEMBER_CURRENT);
	}
	rig_end(&rig);
}

Test(pool_group_area, the_bitmap_has_a_bit_for_each_chunk)
{
	unsigned int w;

	start_members(1, 2, 1);
	for (unsigned int i = 0; i < 2; i++)
		rig.members[i].length =
			1000 * (uint64_t)GROUP_BITS * GROUP_CHUNK;
	w = rig_writer_new(&rig, call_completed);
	while (group_of(w)->phase < GROUP_PROMISING)
		rig_event(&rig);
	cr_assert_lt(group_of(w)->super.length / group_of(w)->super.chunk,
		     GROUP_BITS);
	rig_end(&rig);
}

static unsigned char area[GROUP_AREA];
static const struct group_super good = {
	.n = 3, .k = 2, .id = {1, 2}, .length = 800, .chunk = 64};

static int decode(const struct group_super *s, struct group_super *found,
		  struct group_state *state)
{
	memset(area, 0, sizeof(area));
	group_super_encode(s, area);
	return group_area_decode(area, found, state);
}

Test(pool_group_area, a_superblock_of_any_size_is_safe)
{
	static const uint64_t sizes[] = {
		0,
		1,
		7,
		8,
		12,
		64,
		800,
		GROUP_BITS * 64ull,
		INT64_MAX,
		1ull << 63,
		UINT64_MAX - 7,
		UINT64_MAX,
		1ull << 62,
		4096,
		UINT32_MAX,
	};
	const unsigned int count = sizeof(sizes) / sizeof(*sizes);
	struct group_super s = good, found;
	struct group_state state;
	unsigned int taken = 0;

	cr_assert_not(decode(&s, &found, &state));
	for (unsigned int i = 0; i < count; i++)
		for (unsigned int j = 0; j < count; j++) {
			s.length = sizes[i];
			s.chunk = sizes[j];
			if (decode(&s, &found, &state))
				continue;
			taken++;
			cr_assert(found.chunk >= 8 && !(found.chunk % 8) &&
				  !(found.length % 8));
			/* chunk, length and area size add up without wrap. */
			cr_assert(found.length <= INT64_MAX &&
				  found.chunk <= INT64_MAX);
			cr_assert(found.length / found.chunk < GROUP_BITS);
		}
	cr_assert(taken);
	for (unsigned int i = 0; i < count; i++)
		for (unsigned int j = 0; j < count; j++) {
			s = good;
			s.n = (uint32_t)sizes[i];
			s.k = (uint32_t)sizes[j];
			if (!decode(&s, &found, &state))
				cr_assert(found.n >= 2 &&
					  found.n <= GROUP_MEMBERS && found.k &&
					  found.k <= found.n);
		}
}

Test(pool_group_area, a_torn_area_is_no_other_one)
{
	struct group_super found;
	struct group_state state;
	unsigned char whole[GROUP_SUPER];

	group_super_encode(&good, whole);
	for (unsigned int i = 0; i < GROUP_SUPER; i += 8) {
		/* Keep the first 8 bytes, and erase 8 of the others. */
		decode(&good, &found, &state);
		memset(area + 8 + i, 0, i + 8 < GROUP_SUPER ? 8 : 0);
		cr_assert_eq(group_area_decode(area, &found, &state),
			     i + 8 < GROUP_SUPER && whole[8 + i] ? -ENODATA : 0,
			     "%u", i);
	}
	decode(&good, &found, &state);
	area[40] ^= 1;
	cr_assert_eq(group_area_decode(area, &found, &state), -ENODATA);
	area[GROUP_PROMISE_AT] = 1;
	cr_assert_eq(group_area_decode(area, &found, &state), -EBADMSG);
	decode(&good, &found, &state);
	area[0] = 'X';
	cr_assert_eq(group_area_decode(area, &found, &state), -EBADMSG);
	decode(&good, &found, &state);
	area[8]++;
	memcpy(area + 72, &(uint64_t){htole64(XXH64(area, 72, 0))}, 8);
	cr_assert_eq(group_area_decode(area, &found, &state), -ENODATA);
	area[GROUP_PROMISE_AT] = 1;
	cr_assert_eq(group_area_decode(area, &found, &state), -EBADMSG);
}

Test(pool_group_area, the_whole_slot_of_the_newest_epoch_counts)
{
	struct group_super found;
	struct group_state state;

	for (unsigned int newer = 0; newer < 2; newer++) {
		decode(&good, &found, &state);
		group_slot_encode(&good, 5, area + GROUP_SLOT_AT(!newer));
		group_slot_encode(&good, 6, area + GROUP_SLOT_AT(newer));
		area[GROUP_NUMBER_AT(newer)] = 9;
		cr_assert_not(group_area_decode(area, &found, &state));
		cr_assert_eq(state.epoch, 6);
		cr_assert_eq(state.number, 9);
		cr_assert_eq(state.slot, newer);
		area[GROUP_SLOT_AT(newer)]++;
		cr_assert_not(group_area_decode(area, &found, &state));
		cr_assert_eq(state.epoch, 5);
	}
	/* No epoch can follow the last one. */
	group_slot_encode(&good, UINT64_MAX, area + GROUP_SLOT_AT(0));
	cr_assert_eq(group_area_decode(area, &found, &state), -EBADMSG);
	decode(&good, &found, &state);
	memset(area + GROUP_PROMISE_AT, 0xff, 8);
	cr_assert_eq(group_area_decode(area, &found, &state), -EBADMSG);
}

/* Members with random bytes: the group opens or ends, harming no other. */
Test(pool_group_area, hostile_members_do_no_harm)
{
	for (uint64_t seed = 0; seed < 60; seed++) {
		unsigned int w;

		create_group(3, 2);
		rig.rnd = (struct seeded){seed, seed};
		for (unsigned int i = 0; i < 3; i++) {
			struct group_super s = good;

			memcpy(area, rig.members[i].visible, GROUP_AREA);
			s.length = 8 * seeded_below(&rig.rnd, RIG_CELLS + 1);
			s.chunk = 8 * (1 + seeded_below(&rig.rnd, 64));
			if (seed % 2)
				group_super_encode(&s, area);
			for (unsigned int b = 0; b < seed % 4; b++)
				area[GROUP_SUPER +
				     seeded_below(&rig.rnd,
						  GROUP_AREA - GROUP_SUPER)] ^=
					(unsigned char)seeded_next(&rig.rnd);
			set_member_area(i, area);
		}
		w = rig_writer_new(&rig, call_completed);
		await_group_open(w);
		rig_end(&rig);
	}
}

/* Copies slow a caller down, and then it stops calling. */
Test(pool_group_area, copies_do_not_pause_for_a_caller_that_has_stopped)
{
	struct group g = {.n = 1, .phase = GROUP_OPEN};
	unsigned int copies = 0;

	TAILQ_INIT(&g.ops);
	TAILQ_INIT(&g.reads);
	g.members[0].state = MEMBER_COPYING;
	for (g.now = 1; g.now <= 2000; g.now++) {
		g.ended += g.now > 1000 ? 0 : group_may_copy(&g) ? 1 : 9;
		group_throttle_update(&g);
		copies += g.now > 1000 && group_may_copy(&g);
	}
	cr_assert_geq(copies, 700, "%u", copies);
}

/* Member 0 has more commits, of an older epoch. */
Test(pool_group_area, a_damaged_word_makes_no_member_a_former_one)
{
	unsigned int w;

	create_group(3, 2);
	w = open_writer();
	await_all_current(w);
	for (unsigned int i = 0; i < 8; i++)
		write_and_commit(w, 40, 1);
	await_all_current(w);
	clear_bitmap(w);
	rig.members[0].up = false;
	w = open_writer();
	write_and_commit(w, 40, 2);
	rig_writer_kill(&rig, w);
	return_member(0);
	memset(rig.members[1].visible + GROUP_FULL_AT, 0x7f, 8);
	memset(rig.members[1].durable + GROUP_FULL_AT, 0x7f, 8);
	w = open_writer();
	await_all_current(w);
	for (unsigned int i = 0; i < 3; i++)
		cr_assert_eq(rig.members[i].durable[GROUP_AREA + 320], 2,
			     "member %u lacks a commit", i);
	rig_end(&rig);
}

static struct rig_member former; /* member 2, before it is replaced */

/* Replace member 2 of an idle group. */
static void replace_member(uint64_t seed)
{
	unsigned int w;

	create_group_seeded(seed, 3, 2);
	w = open_writer();
	await_all_current(w);
	clear_bitmap(w);
	former = rig.members[2];
	former.owner = -1;
	rig_replace(&rig, 2);
}

/* The former member is member 2 again; member `away` knows a commit. */
static void expect_former_lacks_all(unsigned int away)
{
	unsigned int w;

	rig.members[2] = former;
	rig.members[away].up = false;
	w = rig_writer_new(&rig, call_completed);
	run_events(2000);
	cr_assert(group_of(w)->phase < GROUP_OPEN, "a former member counts");
	return_member(away);
	await_group_open(w);
	await_all_current(w);
	for (unsigned int i = 0; i < 3; i++)
		cr_assert_eq(rig.members[i].durable[GROUP_AREA + 320], 2,
			     "member %u is current and lacks a commit", i);
	rig_end(&rig);
}

/*
 * A replaced member is added again after the bitmaps have dropped the chunks
 * written meanwhile: it gets all chunks, and counts as knowing no commit.
 */
Test(pool_group_area, a_former_member_lacks_all)
{
	unsigned int w;

	replace_member(1);
	w = open_writer();
	await_all_current(w);
	write_and_commit(w, 40, 2);
	await_all_current(w);
	clear_bitmap(w);
	expect_former_lacks_all(0);
}

/*
 * A member of an idle group is replaced, so that no bit is set or cleared. Then
 * one other member is away, which knows no later commit.
 */
Test(pool_group_area, a_former_member_of_an_idle_group_lacks_all)
{
	for (uint64_t seed = 0; seed < 16; seed++) {
		unsigned int w;

		replace_member(seed);
		w = open_writer();
		await_all_current(w);
		clear_bitmap(w);
		rig.members[0].up = false;
		w = open_writer();
		write_and_commit(w, 40, 2);
		rig_writer_kill(&rig, w);
		return_member(0);
		expect_former_lacks_all(1);
	}
}

/*
 * Member 2 is replaced, the bitmaps drop a chunk, and then the other two are
 * replaced, one after the other, each while member 2 is away. The member that
 * member 2 was at first is stale, though nobody is left who was there.
 */
Test(pool_group_area, a_former_member_is_known_after_all_are_replaced)
{
	unsigned int w;

	replace_member(1);
	w = open_writer();
	await_all_current(w);
	write_and_commit(w, 40, 2);
	await_all_current(w);
	clear_bitmap(w);
	rig_replace(&rig, 0);
	w = open_writer();
	lose_member(2);
	await_state(w, 0, MEMBER_CURRENT);
	write_and_commit(w, 41, 3);
	cr_assert_neq(group_of(w)->members[2].state, MEMBER_CURRENT);
	rig_writer_kill(&rig, w);
	rig_replace(&rig, 1);
	rig.members[2] = former;
	w = rig_writer_new(&rig, call_completed);
	run_events(2000);
	cr_assert_eq(group_of(w)->ret, -ENODATA);
	rig_end(&rig);
}
