// SPDX-License-Identifier: BSD-2-Clause
/* Writers that look at a member before they take it, and given epochs. */
#include "group_calls.h"

/* --- epochs that the caller gives --- */

static unsigned int writer_given(uint64_t epoch)
{
	const unsigned int w = rig_writer_new(&rig, call_completed);

	group_of(w)->given = epoch;
	return w;
}

Test(pool_group_rules, an_epoch_that_is_not_newer_displaces_nobody)
{
	for (uint64_t seed = 0; seed < 16; seed++) {
		unsigned int w;

		start_members(seed, 3, 2);
		w = writer_given(7);
		await_group_open(w);
		cr_assert_eq(group_of(w)->epoch, 7);
		await_all_current(w);
		for (uint64_t epoch = 6; epoch < 8; epoch++) {
			expect_group_ended(writer_given(epoch), -ESTALE);
			for (unsigned int i = 0; i < 3; i++)
				cr_assert_eq(rig.members[i].owner, (int)w);
		}
		write_and_commit(w, 0, seed);
		cr_assert_eq(group_of(w)->epoch, 7);
		await_group_open(writer_given(8));
		cr_assert_eq(read_cell(rig.nwriters - 1, 0), seed);
		cr_assert_eq(group_of(rig.nwriters - 1)->epoch, 8);
		write_cell(w, 0, 99);
		expect_group_ended(w, -ESTALE);
		rig_end(&rig);
	}
}

/* The areas are compared once more when the members are open. */
Test(pool_group_rules, an_epoch_that_is_not_newer_opens_nothing)
{
	for (uint64_t epoch = 6; epoch < 8; epoch++) {
		unsigned int w;

		start_members(epoch, 3, 2);
		w = writer_given(7);
		await_group_open(w);
		write_and_commit(w, 0, 1);
		rig_writer_kill(&rig, w);
		w = writer_given(epoch);
		rig.writers[w].opens_unseen = true;
		expect_group_ended(w, -ESTALE);
		w = open_writer();
		cr_assert_eq(group_of(w)->epoch, 8, "the newest one plus 1");
		cr_assert_eq(read_cell(w, 0), 1);
		rig_end(&rig);
	}
}

Test(pool_group_rules, a_writer_opens_a_member_again_in_the_epoch_it_was_given)
{
	unsigned int w;

	create_group(3, 2);
	lose_member(2);
	w = writer_given(1000);
	await_group_open(w);
	return_member(2);
	await_all_current(w);
	for (unsigned int i = 0; i < 3; i++) {
		lose_member(i);
		write_and_commit(w, 0, i);
		return_member(i);
		await_state(w, i, MEMBER_CURRENT);
	}
	cr_assert_eq(group_of(w)->epoch, 1000);
	rig_end(&rig);
}

/* The member that a newer writer has left is looked at, and not opened. */
Test(pool_group_rules, a_writer_ends_where_a_newer_one_was_given_its_epoch)
{
	unsigned int a, b;

	create_group(3, 2);
	a = writer_given(5);
	await_group_open(a);
	await_all_current(a);
	rig.writers[a].paused = true;
	rig.members[0].up = false;
	b = writer_given(6);
	await_group_open(b);
	return_member(0);
	rig.writers[a].paused = false;
	write_cell(a, 0, 99);
	expect_group_ended(a, -ESTALE);
	write_and_commit(b, 0, 3);
	await_state(b, 0, MEMBER_CURRENT);
	rig_end(&rig);
}

/* --- writers that have chosen their epoch --- */

/*
 * A writer that began without a member stands still while a newer one takes the
 * others. When it wakes, it does not take that member from the newer one.
 */
Test(pool_group_rules, a_writer_that_wakes_takes_no_member_from_a_newer_one)
{
	for (uint64_t seed = 0; seed < 16; seed++) {
		unsigned int a, b;

		create_group_seeded(seed, 3, 2);
		lose_member(2);
		a = open_writer();
		write_and_commit(a, 0, 2);
		cr_assert(!group_of(a)->members[2].opened_once);
		rig.writers[a].paused = true;
		return_member(2);
		rig.members[0].up = false;
		b = open_writer();
		write_and_commit(b, 0, 3);
		rig.writers[a].paused = false;
		run_events(500);
		cr_assert_eq(rig.members[2].owner, (int)b);
		expect_group_ended(a, -ESTALE);
		write_and_commit(b, 0, 4);
		cr_assert_eq(read_cell(b, 0), 4);
		rig_end(&rig);
	}
}

/* The same before it has promised its epoch, which the other one chose, too. */
Test(pool_group_rules, an_opening_that_wakes_takes_no_member_of_its_epoch)
{
	unsigned int same = 0;

	for (uint64_t seed = 0; seed < 16; seed++) {
		unsigned int a, b;

		create_group_seeded(seed, 3, 2);
		lose_member(2);
		a = rig_writer_new(&rig, call_completed);
		for (unsigned int i = 0; group_of(a)->phase == GROUP_LOOKING;
		     i++)
			cr_assert(rig_event(&rig) || i < EVENTS);
		rig.writers[a].paused = true;
		return_member(2);
		rig.members[0].up = false;
		b = open_writer();
		/* A promise that was outstanding has arrived, or not. */
		same += group_of(b)->epoch == group_of(a)->epoch;
		rig.writers[a].paused = false;
		run_events(500);
		cr_assert_eq(rig.members[2].owner, (int)b);
		cr_assert_eq(group_of(a)->phase, GROUP_ENDED);
		rig_writer_kill(&rig, a);
		write_and_commit(b, 0, 4);
		cr_assert_eq(read_cell(b, 0), 4);
		rig_end(&rig);
	}
	cr_assert_gt(same, 0);
}
