// SPDX-License-Identifier: BSD-2-Clause
/* Writes of a group that are sent to a member as one. */
#include "group_calls.h"

static void quiet(unsigned int w)
{
	for (unsigned int i = 0; i < EVENTS && !group_is_quiet(group_of(w));
	     i++)
		rig_event(&rig);
	cr_assert(group_is_quiet(group_of(w)));
}

/* A member at which a joined write fails lacks the bytes of all its parts. */
Test(pool_group_rules, a_failed_joined_write_drops_its_member)
{
	struct call c[6];
	unsigned int w;

	start_members(1, 3, 2);
	w = open_writer();
	await_all_current(w);
	write_and_commit(w, 0, 1);
	quiet(w);
	for (unsigned int i = 0; i < 6; i++) {
		write_begin(w, &c[i], i, i + 2);
		group_run(group_of(w), rig.now);
	}
	rig_round(&rig);
	rig.members[2].writes_fail = true;
	rig_round(&rig);
	cr_assert_neq(group_of(w)->members[2].state, MEMBER_CURRENT);
	rig.members[2].writes_fail = false;
	await_all_current(w);
	quiet(w);
	for (unsigned int i = 0; i < 6; i++) {
		cr_assert(c[i].done && !c[i].ret);
		for (unsigned int m = 0; m < 3; m++)
			cr_assert_eq(rig.members[m].visible[GROUP_AREA + 8 * i],
				     i + 2);
	}
	rig_end(&rig);
}

/* The later one of two writes of the same bytes counts, joined or not. */
Test(pool_group_rules, a_joined_write_waits_for_an_older_one_of_its_bytes)
{
	static const unsigned int cells[] = {3, 1, 2, 3, 4};

	for (unsigned int seed = 1; seed <= 40; seed++) {
		struct call c[5];
		unsigned int w;

		start_members(seed, 3, 2);
		w = open_writer();
		await_all_current(w);
		write_and_commit(w, 0, 1);
		quiet(w);
		for (unsigned int i = 0; i < 5; i++) {
			write_begin(w, &c[i], cells[i], i + 2);
			group_run(group_of(w), rig.now);
		}
		quiet(w);
		for (unsigned int m = 0; m < 3; m++)
			cr_assert_eq(rig.members[m].visible[GROUP_AREA + 24],
				     5);
		rig_end(&rig);
	}
}
