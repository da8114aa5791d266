// SPDX-License-Identifier: BSD-2-Clause
/* How a member of a group is brought up to date, and how fast. */
#include "group_calls.h"

/* --- members that are replaced --- */

/* A member that the creator of the group itself has replaced knows nothing. */
Test(pool_group_rules, a_replaced_member_does_not_know_the_newest_commit)
{
	for (unsigned int late = 0; late < 2; late++) {
		unsigned int w;

		start_members(late, 3, 2);
		w = open_writer();
		write_and_commit(w, 0, 1);
		await_all_current(w);
		if (late) {
			rig_writer_kill(&rig, w);
			w = open_writer();
			await_all_current(w);
		}
		lose_member(0);
		write_and_commit(w, 0, 2);
		rig_replace(&rig, 2);
		rig.members[1].up = false;
		await_state(w, 2, MEMBER_COPYING);
		rig_writer_kill(&rig, w);
		return_member(0);
		w = rig_writer_new(&rig, call_completed);
		run_events(2000);
		cr_assert(group_of(w)->phase < GROUP_OPEN,
			  "a group is opened without its newest commit");
		return_member(1);
		await_group_open(w);
		cr_assert_eq(read_cell(w, 0), 2);
		rig_end(&rig);
	}
}

/* --- copies --- */

/* A member that was away gets its chunks, some of them damaged on the way. */
Test(pool_group_rules, a_chunk_that_arrives_damaged_is_copied_again)
{
	/* The third time in a row the member is given up, and opened again. */
	for (unsigned int times = 1; times < GROUP_TRIES + 2; times++) {
		unsigned int w;

		start_members(times, 3, 2);
		w = open_writer();
		await_all_current(w);
		lose_member(2);
		write_and_commit(w, 3, 7);
		/* The last one is for a member without an epoch. */
		rig.damaged_copies = times + 1;
		return_member(2);
		await_state(w, 2, MEMBER_CURRENT);
		cr_assert_eq(rig.damaged_copies, 1);
		cr_assert_eq(group_of(w)->members[2].ret, 0);
		for (unsigned int i = 0; i < 3; i++)
			cr_assert(!memcmp(rig.members[i].visible + GROUP_AREA,
					  rig.members[0].visible + GROUP_AREA,
					  RIG_BYTES),
				  "a damaged copy is kept at member %u", i);
		rig_end(&rig);
	}
}

Test(pool_group_rules, a_member_that_damages_what_it_gets_is_never_current)
{
	unsigned int w;

	start_members(1, 3, 2);
	w = open_writer();
	await_all_current(w);
	lose_member(2);
	write_and_commit(w, 3, 7);
	rig.damaged_copies = UINT32_MAX;
	return_member(2);
	for (unsigned int i = 0; i < 3000; i++) {
		rig_event(&rig);
		cr_assert_lt(group_of(w)->members[2].state, MEMBER_ADOPTING);
	}
	cr_assert_lt(rig.damaged_copies, UINT32_MAX - 2 * GROUP_TRIES);
	write_and_commit(w, 3, 8);
	rig_end(&rig);
}

/* A member's records have the bytes that are left to copy, for others to see.
 */
Test(pool_group_rules, a_member_that_is_rebuilt_tells_what_is_left)
{
	uint64_t last = RIG_BYTES + 1;
	unsigned int w, values = 0;
	struct group_super super;
	struct group_state is;

	start_members(1, 3, 2);
	w = open_writer();
	await_all_current(w);
	rig_replace(&rig, 2);
	while (group_of(w)->members[2].state < MEMBER_CURRENT) {
		rig_event(&rig);
		if (group_area_decode(rig.members[2].visible, &super, &is) ||
		    !is.left || is.left == last)
			continue;
		cr_assert_lt(is.left, last);
		cr_assert_eq(is.left % GROUP_CHUNK, 0);
		last = is.left;
		values++;
	}
	cr_assert_eq(values, RIG_CHUNKS);
	cr_assert_not(group_area_decode(rig.members[2].durable, &super, &is));
	cr_assert_eq(is.left, 0);
	rig_end(&rig);
}

/*
 * A caller whose operations end at one rate while chunks are copied, and at
 * another one in pauses, per 100 ms. Returns the per cent of its rate that are
 * left, and of the time that copies had.
 */
static unsigned int throttle(unsigned int copying, unsigned int pausing,
			     unsigned int *copies)
{
	static struct group g;
	static struct group_op op;
	const unsigned int ms = 20000;
	unsigned int sum = 0;

	g = (struct group){.n = 1, .phase = GROUP_OPEN};
	TAILQ_INIT(&g.ops);
	if (pausing)
		TAILQ_INSERT_TAIL(&g.ops, &op, link);
	*copies = 0;
	for (g.now = 1; g.now <= ms; g.now++) {
		/* The member returns after 500 ms with the caller alone. */
		g.members[0].state = g.now > 500 ? MEMBER_COPYING : MEMBER_AWAY;
		group_throttle_update(&g);
		*copies += group_may_copy(&g);
		sum += group_may_copy(&g) ? copying : pausing;
		g.ended = sum / 100;
	}
	*copies = *copies * 100 / ms;
	return pausing ? sum / (ms * pausing / 100) : 0;
}

Test(pool_group_rules, copies_leave_most_of_its_rate_to_the_caller)
{
	unsigned int copies, left;

	for (unsigned int slow = 20; slow < 90; slow += 10)
		for (unsigned int rate = 20; rate <= 2000; rate *= 10) {
			left = throttle(rate * (100 - slow) / 100, rate,
					&copies);
			cr_assert_geq(left, 80, "%u of %u: %u", slow, rate,
				      left);
			/* And no more than that. */
			cr_assert_leq(left, 90, "%u of %u: %u", slow, rate,
				      left);
			cr_assert_geq(copies, 1000 / slow, "%u of %u: %u", slow,
				      rate, copies);
		}
}

Test(pool_group_rules, copies_do_not_wait_for_a_caller_that_is_not_slowed)
{
	unsigned int copies;

	throttle(0, 0, &copies);
	cr_assert_geq(copies, 95, "an idle caller: %u", copies);
	throttle(200, 200, &copies);
	cr_assert_geq(copies, 80, "a caller as fast as before: %u", copies);
	throttle(20, 200, &copies);
	cr_assert_leq(copies, 40);
	/* A caller that no pause makes faster. */
	throttle(200, 100, &copies);
	cr_assert_geq(copies, 80, "a caller that is faster: %u", copies);
}

/* No operation completes before the copies have made k members current. */
Test(pool_group_rules, copies_do_not_pause_in_an_opening)
{
	struct group g = {.n = 1, .phase = GROUP_MENDING};

	g.members[0].state = MEMBER_COPYING;
	for (g.now = 1; g.now < 1000; g.now++) {
		g.ended = g.now;
		group_throttle_update(&g);
		cr_assert(group_may_copy(&g));
	}
}

Test(pool_group_rules, a_chunk_waits_for_the_end_of_the_pause)
{
	unsigned int w;

	start_members(1, 3, 2);
	w = open_writer();
	await_all_current(w);
	lose_member(2);
	write_and_commit(w, 3, 7);
	return_member(2);
	await_state(w, 2, MEMBER_COPYING);
	group_of(w)->throttle = (struct group_throttle){
		.pauses = true,
		.since = rig.now,
		.ops = {1, 1000},
		.ms = {1000, 1000},
	};
	run_events(100);
	cr_assert_eq(group_of(w)->members[2].state, MEMBER_COPYING);
	await_state(w, 2, MEMBER_CURRENT);
	rig_end(&rig);
}

Test(pool_group_rules, bytes_left_are_those_of_the_marked_chunks)
{
	struct group g = {.n = 1, .super = {.length = 1000, .chunk = 64}};
	unsigned char copy[GROUP_BITS / 8] = {0x81, 0x80};

	g.members[0].copy = copy;
	cr_assert_eq(group_copy_left(&g, 0), 0);
	g.members[0].state = MEMBER_COPYING;
	cr_assert_eq(group_copy_left(&g, 0), 64 + 64 + 1000 % 64);
	g.members[0].copy_next = 8;
	cr_assert_eq(group_copy_left(&g, 0), 1000 % 64);
}

/* --- copies that go on where an earlier one has ended --- */

static uint64_t copied_of(const struct rig_member *m)
{
	struct group_super super;
	struct group_state is;

	return group_area_decode(m->durable, &super, &is) ? 0 : is.copied;
}

static void start_unequal_members(uint64_t seed)
{
	start_members(seed, 3, 2);
	for (unsigned int i = 0; i < 3; i++) {
		memset(rig.members[i].durable + GROUP_AREA, (int)i + 1,
		       RIG_BYTES);
		memcpy(rig.members[i].visible, rig.members[i].durable,
		       RIG_LENGTH);
	}
}

static void expect_equal_members(void)
{
	for (unsigned int i = 1; i < 3; i++)
		cr_assert(!memcmp(rig.members[i].durable + GROUP_AREA,
				  rig.members[0].durable + GROUP_AREA,
				  RIG_BYTES),
			  "member %u has other bytes", i);
}

/* An empty member 2 has half of its chunks when the writer dies. */
static void copy_half(uint64_t seed)
{
	unsigned int w;

	start_members(seed, 3, 2);
	w = open_writer();
	for (unsigned int c = 0; c < RIG_CHUNKS; c++)
		write_and_commit(w, c * (GROUP_CHUNK / 8), c + 1);
	await_all_current(w);
	clear_bitmap(w);
	rig_replace(&rig, 2);
	w = open_writer();
	while (copied_of(&rig.members[2]) < RIG_CHUNKS / 2) {
		cr_assert_lt(group_of(w)->members[2].state, MEMBER_CURRENT);
		rig_event(&rig);
	}
	rig_writer_kill(&rig, w);
	rig_cut(&rig, 2);
}

Test(pool_group_rules, a_new_member_is_current_when_its_epoch_is_durable)
{
	for (uint64_t seed = 0; seed < 16; seed++) {
		struct group_super super;
		struct group_state is;
		unsigned int w;

		copy_half(seed);
		w = open_writer();
		await_state(w, 2, MEMBER_CURRENT);
		cr_assert_not(
			group_area_decode(rig.members[2].durable, &super, &is));
		cr_assert_eq(is.epoch, group_of(w)->epoch);
		rig_end(&rig);
	}
}

Test(pool_group_rules, a_copy_goes_on_after_a_power_cut)
{
	for (uint64_t seed = 0; seed < 16; seed++) {
		unsigned int w;

		copy_half(seed);
		w = rig_writer_new(&rig, call_completed);
		await_state(w, 2, MEMBER_COPYING);
		cr_assert_leq(group_copy_left(group_of(w), 2),
			      RIG_BYTES - RIG_CHUNKS / 2 * GROUP_CHUNK);
		await_all_current(w);
		expect_equal_members();
		rig_end(&rig);
	}
}

/* Chunks that change while the member is away are copied again. */
Test(pool_group_rules, a_copy_that_goes_on_has_what_was_written_meanwhile)
{
	for (uint64_t seed = 0; seed < 16; seed++) {
		unsigned int w;

		copy_half(seed);
		rig.members[2].up = false;
		w = open_writer();
		write_and_commit(w, 1, 100);
		rig_writer_kill(&rig, w);
		return_member(2);
		w = open_writer();
		await_all_current(w);
		expect_equal_members();
		rig_end(&rig);
	}
}

/*
 * Another member was current in its place, and the bitmaps have dropped what
 * was written then: the copy begins again.
 */
Test(pool_group_rules, a_copy_begins_again_behind_a_group_that_was_whole)
{
	static struct rig_member half;
	unsigned int w;

	copy_half(1);
	half = rig.members[2];
	half.owner = -1;
	rig_replace(&rig, 2);
	w = open_writer();
	await_all_current(w);
	write_and_commit(w, 1, 100);
	await_all_current(w);
	clear_bitmap(w);
	rig.members[2] = half;
	w = open_writer();
	await_all_current(w);
	expect_equal_members();
	rig_end(&rig);
}

/*
 * The members of a new group hold other bytes until one is the source for all;
 * the next writer can choose another one.
 */
Test(pool_group_rules, the_copies_of_a_new_group_begin_again)
{
	for (uint64_t seed = 0; seed < 64; seed++) {
		struct rig_member first;
		unsigned int w;

		start_unequal_members(seed);
		w = rig_writer_new(&rig, call_completed);
		await_state(w, 2, MEMBER_COPYING);
		run_events(100 + (unsigned int)seed * 4);
		rig_writer_kill(&rig, w);
		first = rig.members[0];
		rig.members[0] = rig.members[2];
		rig.members[2] = first;
		w = open_writer();
		await_all_current(w);
		expect_equal_members();
		rig_end(&rig);
	}
}

/*
 * A member fails, and an empty pool in its place becomes current, both while
 * one writer has the group. The former pool has that writer's epoch.
 */
Test(pool_group_rules, a_former_member_of_the_same_epoch_lacks_all)
{
	static struct rig_member was;
	unsigned int w;

	start_members(1, 3, 2);
	w = open_writer();
	await_all_current(w);
	was = rig.members[2];
	was.owner = -1;
	rig_replace(&rig, 2);
	await_all_current(w);
	write_and_commit(w, 1, 1);
	await_all_current(w);
	clear_bitmap(w);
	rig.members[2] = was;
	w = open_writer();
	await_all_current(w);
	expect_equal_members();
	rig_end(&rig);
}

/*
 * A former member is copied to when the last member with all bytes is lost. It
 * holds a mix of old and new bytes, and counts as knowing nothing.
 */
Test(pool_group_rules, a_former_member_that_is_copied_to_knows_nothing)
{
	static struct rig_member was;
	unsigned int w;

	start_members(1, 2, 2);
	w = open_writer();
	await_all_current(w);
	clear_bitmap(w);
	was = rig.members[1];
	was.owner = -1;
	rig_replace(&rig, 1);
	w = open_writer();
	await_all_current(w);
	for (unsigned int c = 0; c < RIG_CHUNKS; c++)
		write_and_commit(w, c * (GROUP_CHUNK / 8), c + 1);
	clear_bitmap(w);
	rig.members[1] = was;
	w = rig_writer_new(&rig, call_completed);
	await_state(w, 1, MEMBER_COPYING);
	while (group_of(w)->members[1].copy_next < RIG_CHUNKS / 2)
		rig_event(&rig);
	rig_writer_kill(&rig, w);
	rig_replace(&rig, 0);
	w = rig_writer_new(&rig, call_completed);
	run_events(2000);
	cr_assert_eq(group_of(w)->ret, -ENODATA);
	rig_end(&rig);
}

/*
 * Two members of a new group were copied to from the third, which is lost and
 * replaced: the group is founded anew, from any of them.
 */
Test(pool_group_rules, copies_from_a_lost_founder_are_not_continued)
{
	unsigned int w, events = 0;

	start_unequal_members(1);
	w = rig_writer_new(&rig, call_completed);
	while (group_of(w)->members[0].state < MEMBER_CURRENT)
		rig_event(&rig);
	rig_writer_kill(&rig, w);
	w = rig_writer_new(&rig, call_completed);
	while (copied_of(&rig.members[2]) < RIG_CHUNKS / 2 && events++ < EVENTS)
		rig_event(&rig);
	rig_writer_kill(&rig, w);
	rig_replace(&rig, 0);
	memset(rig.members[0].durable + GROUP_AREA, 9, RIG_BYTES);
	memset(rig.members[0].visible + GROUP_AREA, 9, RIG_BYTES);
	w = rig_writer_new(&rig, call_completed);
	run_events(4000);
	if (group_of(w)->phase == GROUP_OPEN)
		expect_equal_members();
	rig_end(&rig);
}

/*
 * A member is copied to from a founder, then the group is founded from another
 * one while that member is away.
 */
Test(pool_group_rules, copies_of_another_founding_are_not_continued)
{
	static struct rig_member first, slow;
	unsigned int w;

	start_unequal_members(1);
	w = rig_writer_new(&rig, call_completed);
	await_state(w, 1, MEMBER_COPYING);
	slow = rig.members[1];
	slow.owner = -1;
	while (group_of(w)->members[2].copy_next < RIG_CHUNKS / 2)
		rig_event(&rig);
	cr_assert_eq(group_count(group_of(w), MEMBER_ADOPTING), 0);
	rig_writer_kill(&rig, w);
	/* Nothing was copied to member 1. */
	first = rig.members[0];
	rig.members[0] = slow;
	rig.members[1] = first;
	w = rig_writer_new(&rig, call_completed);
	while (group_of(w)->phase < GROUP_MENDING)
		rig_event(&rig);
	lose_member(2);
	await_state(w, 0, MEMBER_CURRENT);
	rig_writer_kill(&rig, w);
	return_member(2);
	w = open_writer();
	await_all_current(w);
	expect_equal_members();
	rig_end(&rig);
}

Test(pool_group_rules, a_number_of_copies_beyond_the_end_is_none)
{
	unsigned char *at;
	unsigned int w;

	copy_half(1);
	at = rig.members[2].durable + GROUP_COPIED_AT;
	memset(at, 0xff, 2);
	at[2] |= 0x0f;
	memcpy(rig.members[2].visible + GROUP_COPIED_AT, at, 8);
	w = open_writer();
	await_all_current(w);
	expect_equal_members();
	rig_end(&rig);
}
