// SPDX-License-Identifier: BSD-2-Clause
/* A group of pools, rule by rule: one story each, with members of the rig. */
#include <limits.h>

#include "group_calls.h"

/* --- openings that overlap --- */

/*
 * Two writers choose the same epoch: the first one is stopped before it has
 * promised it, and goes on when the second one has committed in it and died.
 */
Test(pool_group_rules, one_epoch_has_one_writer)
{
	for (uint64_t seed = 0; seed < 32; seed++) {
		unsigned int a, b;

		start_members(seed, 3, 2);
		a = open_writer();
		write_and_commit(a, 0, 1);
		await_all_current(a);
		rig_writer_kill(&rig, a);
		lose_member(2);
		a = rig_writer_new(&rig, call_completed);
		for (unsigned int i = 0; group_of(a)->phase == GROUP_LOOKING;
		     i++)
			cr_assert(rig_event(&rig) || i < EVENTS);
		rig.writers[a].paused = true;
		/*
		 * B promises before A looks at the member, or between the look
		 * and the opening.
		 */
		rig.writers[a].opens_unseen = seed / 2 % 2;
		return_member(2);
		rig.members[0].up = false;
		b = open_writer();
		for (unsigned int i = 0; i < 8; i++)
			write_and_commit(b, 1, 10 + i);
		await_state(b, 1, MEMBER_CURRENT);
		await_state(b, 2, MEMBER_CURRENT);
		rig_writer_kill(&rig, b);
		rig.writers[a].paused = false;
		return_member(0);
		/* The member that B has left promised is there at once, or not.
		 */
		rig.members[2].up = seed % 2;
		await_group_open(a);
		lose_member(2);
		if (group_of(a)->phase == GROUP_ENDED) {
			rig_writer_kill(&rig, a);
			a = open_writer();
		}
		cr_assert_eq(read_cell(a, 1), 17);
		write_and_commit(a, 2, 20);
		rig_writer_kill(&rig, a);
		return_member(2);
		lose_member(0);
		b = open_writer();
		cr_assert_eq(read_cell(b, 1), 17);
		cr_assert_eq(read_cell(b, 2), 20, "seed %llu: a commit is lost",
			     (unsigned long long)seed);
		rig_end(&rig);
	}
}

/* The same at the creation of a group: it gets one identity. */
Test(pool_group_rules, a_group_is_created_once)
{
	for (uint64_t seed = 0; seed < 256; seed++) {
		unsigned int a, b;

		start_members(seed, 3, 2);
		lose_member(1);
		a = rig_writer_new(&rig, call_completed);
		await_state(a, 0, MEMBER_SEEN);
		await_state(a, 2, MEMBER_SEEN);
		rig.writers[a].paused = true;
		return_member(1);
		b = rig_writer_new(&rig, call_completed);
		for (unsigned int i = 0; group_of(b)->phase == GROUP_LOOKING;
		     i++)
			cr_assert(rig_event(&rig) || i < EVENTS);
		run_events((unsigned int)seed % 16);
		rig_writer_kill(&rig, b);
		rig.writers[a].paused = false;
		run_events((unsigned int)seed / 2);
		rig_writer_kill(&rig, a);
		for (unsigned int i = 0; i < 3; i++)
			rig_cut(&rig, i);
		write_and_commit(open_writer(), 0, 1);
		rig_end(&rig);
	}
}

/* --- operations --- */

/*
 * A durable write is complete by the commits of a current member and of one
 * that adopts the epoch, while no member has reported the write itself: a read
 * behind it waits for a member that has reported it.
 */
Test(pool_group_rules, a_read_follows_a_write_that_is_durable_by_an_adoption)
{
	struct call first[4], c, r;
	unsigned int w;

	start_members(1, 3, 2);
	w = open_writer();
	write_and_commit(w, 0, 1);
	await_all_current(w);
	for (unsigned int i = 0; i < EVENTS && !group_is_quiet(group_of(w));
	     i++)
		rig_event(&rig);
	group_clear_all(group_of(w));
	for (unsigned int i = 0; i < EVENTS && !group_is_quiet(group_of(w));
	     i++)
		rig_event(&rig);
	lose_member(2);
	write_and_commit(w, 0, 2);
	/* The chunks are copied from member 1, which has all writes to them. */
	rig.members[0].up = false;
	for (unsigned int i = 0; i < 4; i++)
		write_begin(w, &first[i], 2 + 8 * i, 9);
	return_member(2);
	await_state(w, 2, MEMBER_COPYING);
	rig.unreported_at = GROUP_AREA + 41 * 8;
	c = (struct call){.value = 3};
	c.op = (struct rpmem_pool_op){
		.type = RPMEM_POOL_WRITE,
		.flags = RPMEM_POOL_DURABLE,
		.buf = &c.value,
		.offset = 41 * 8,
		.len = 8,
	};
	submit_call(w, &c);
	cr_assert_not(finish_call(&c));
	read_begin(w, &r, 41);
	run_events(200);
	cr_assert_not(r.done);
	rig.unreported_at = 0;
	cr_assert_not(finish_call(&r));
	cr_assert_eq(r.value, 3);
	rig_end(&rig);
}

Test(pool_group_rules, a_call_times_out_and_succeeds_when_the_member_is_back)
{
	struct call c;
	unsigned int w;

	start_members(1, 3, 2);
	w = open_writer();
	await_all_current(w);
	group_of(w)->timeout_ms = 500;
	lose_member(1);
	lose_member(2);
	cr_assert_eq(write_cell(w, 0, 1), -ETIMEDOUT);
	cr_assert_eq(commit_call(w), -ETIMEDOUT);
	commit_begin(w, &c);
	cr_assert_eq(finish_call(&c), -ETIMEDOUT);
	cr_assert_eq(group_of(w)->phase, GROUP_OPEN);
	return_member(1);
	await_state(w, 1, MEMBER_CURRENT);
	write_and_commit(w, 0, 1);
	cr_assert_eq(read_cell(w, 0), 1);
	rig_end(&rig);
}

/* The timeout begins when fewer than k members are connected. */
Test(pool_group_rules, operations_wait_for_members_that_are_connected)
{
	struct call c[2];
	unsigned int w;

	start_members(1, 3, 2);
	w = open_writer();
	await_all_current(w);
	group_of(w)->timeout_ms = 500;
	for (unsigned int i = 0; i < 3; i++)
		rig.members[i].hangs = true;
	write_begin(w, &c[0], 0, 1);
	commit_begin(w, &c[1]);
	run_events(2000);
	cr_assert_not(c[0].done || c[1].done);
	rig.members[1].up = rig.members[2].up = false;
	run_events(499);
	cr_assert_not(c[0].done || c[1].done);
	run_events(1);
	cr_assert_eq(c[0].ret, -ETIMEDOUT);
	cr_assert_eq(c[1].ret, -ETIMEDOUT);
	rig_end(&rig);
}

/* Its buffer is in use for as long as the member is not given up. */
Test(pool_group_rules, a_read_ends_when_no_member_has_its_buffer)
{
	for (uint64_t seed = 0; seed < 16; seed++) {
		struct call c;
		unsigned int w;

		start_members(seed, 3, 2);
		w = open_writer();
		write_and_commit(w, 0, 5);
		await_all_current(w);
		/* Else the read may begin at another member. */
		while (!group_is_quiet(group_of(w)))
			rig_event(&rig);
		group_of(w)->timeout_ms = 500;
		rig.members[0].up = rig.members[1].up = false;
		read_begin(w, &c, 0);
		run_events(1000);
		cr_assert_not(c.done);
		return_member(1);
		/* The time is up, and the read can start at another one. */
		group_of(w)->ops.tqh_first->deadline = UINT64_MAX;
		lose_member(0);
		cr_assert_not(finish_call(&c));
		cr_assert_eq(c.value, 5);
		rig_end(&rig);
	}
}

/* A member that does not reply to a read is given up while k others are there.
 */
Test(pool_group_rules, a_read_leaves_a_member_that_is_silent)
{
	for (uint64_t seed = 0; seed < 16; seed++) {
		struct call c;
		unsigned int w;

		start_members(seed, 4, 2);
		w = open_writer();
		write_and_commit(w, 0, 5);
		await_all_current(w);
		while (!group_is_quiet(group_of(w)))
			rig_event(&rig);
		rig.members[0].up = false;
		/* It is read elsewhere when the handle is closed. */
		rig.hold_opens = true;
		read_begin(w, &c, 0);
		run_events(GROUP_READ_MS / 2);
		cr_assert_eq(group_of(w)->members[0].state, MEMBER_CURRENT);
		cr_assert_not(c.done);
		cr_assert_not(finish_call(&c));
		cr_assert_eq(c.value, 5);
		cr_assert_eq(group_of(w)->members[0].state, MEMBER_AWAY);
		cr_assert_eq(group_count(group_of(w), MEMBER_CURRENT), 3);
		/* One of k members is given up later, the last one never. */
		lose_member(3);
		rig.members[1].up = false;
		read_begin(w, &c, 0);
		run_events(GROUP_READ_FEW_MS / 2);
		cr_assert_not(c.done);
		cr_assert_eq(group_count(group_of(w), MEMBER_CURRENT), 2);
		cr_assert_not(finish_call(&c));
		cr_assert_eq(c.value, 5);
		cr_assert_eq(group_count(group_of(w), MEMBER_CURRENT), 1);
		rig.members[2].up = false;
		read_begin(w, &c, 0);
		run_events(3 * GROUP_READ_FEW_MS);
		cr_assert_not(c.done);
		return_member(2);
		cr_assert_not(finish_call(&c));
		return_member(1);
		rig.hold_opens = false;
		write_and_commit(w, 0, 6);
		cr_assert_eq(read_cell(w, 0), 6);
		rig_end(&rig);
	}
}

/* The member transfers the bytes of a write before those of the read. */
Test(pool_group_rules, a_long_read_stays_at_a_member_that_is_connected)
{
	const unsigned int half = RIG_BYTES / 2, ms = half / GROUP_READ_RATE;
	static unsigned char bytes[RIG_BYTES];

	for (unsigned int k = 2; k < 4; k++) {
		const unsigned int limit =
			k == 2 ? GROUP_READ_MS : GROUP_READ_FEW_MS;
		struct call write = {0}, read = {0};
		struct group *g;
		unsigned int w;

		start_members(1, 3, k);
		w = open_writer();
		g = group_of(w);
		await_all_current(w);
		write.op.type = RPMEM_POOL_WRITE;
		read.op.type = RPMEM_POOL_READ;
		write.op.len = read.op.len = half;
		write.op.buf = bytes;
		read.op.buf = bytes + half;
		read.op.offset = half;
		submit_call(w, &write);
		while (!g->members[0].writes)
			rig_event(&rig);
		rig.members[0].hangs = true;
		submit_call(w, &read);
		run_events(limit + ms + ms / 2);
		cr_assert_eq(g->members[0].state, MEMBER_CURRENT);
		/* A member without a connection transfers nothing. */
		rig.members[0].up = k == 2;
		run_events(k == 2 ? ms : 1);
		cr_assert_lt(g->members[0].state, MEMBER_CURRENT);
		rig.members[0].hangs = false;
		return_member(0);
		cr_assert_not(finish_call(&read));
		cr_assert_not(finish_call(&write));
		rig_end(&rig);
	}
}

Test(pool_group_rules, a_group_ends_without_a_member_that_has_all)
{
	unsigned int w;

	start_members(1, 2, 1);
	w = open_writer();
	await_all_current(w);
	lose_member(0);
	lose_member(1);
	expect_group_ended(w, -EIO);
	rig_end(&rig);
}

Test(pool_group_rules, a_displaced_writer_ends)
{
	for (unsigned int last = 0; last < 2; last++) {
		unsigned int w;

		start_members(1, 2, 1);
		w = open_writer();
		await_all_current(w);
		write_and_commit(w, 0, 5);
		while (!group_is_quiet(group_of(w)))
			rig_event(&rig);
		if (last)
			lose_member(1);
		rig_writer_new(&rig, call_completed);
		run_events(500);
		write_cell(w, 0, 1);
		expect_group_ended(w, -ESTALE);
		rig_end(&rig);
	}
}

/*
 * The newer writer has committed and died, and promised its epoch behind the
 * look of the older one.
 */
Test(pool_group_rules, a_writer_ends_where_a_newer_one_has_promised)
{
	unsigned int a, b;

	start_members(1, 3, 2);
	a = open_writer();
	await_all_current(a);
	lose_member(1);
	lose_member(2);
	rig.writers[a].paused = rig.writers[a].opens_unseen = true;
	return_member(1);
	return_member(2);
	rig.members[0].up = false;
	b = open_writer();
	write_and_commit(b, 0, 9);
	rig_writer_kill(&rig, b);
	rig.writers[a].paused = false;
	return_member(0);
	expect_group_ended(a, -ESTALE);
	rig_end(&rig);
}

/* Its pool fails with -ESTALE, as that of a displaced writer does. */
Test(pool_group_rules, a_replaced_last_pool_names_why_the_group_ends)
{
	unsigned int w;

	start_members(1, 2, 1);
	w = open_writer();
	await_all_current(w);
	lose_member(1);
	rig.members[0].up = false;
	member_drop(group_of(w), 0, -ESTALE, "was replaced");
	for (unsigned int i = 0; i < EVENTS; i++)
		if (group_of(w)->phase != GROUP_ENDED)
			rig_event(&rig);
	cr_assert_str_eq(group_of(w)->error, "was replaced");
	expect_group_ended(w, -ESTALE);
	rig_end(&rig);
}

/* Clients of single pools, which promise no epoch, keep two of the members. */
Test(pool_group_rules, a_writer_ends_where_others_keep_its_members)
{
	unsigned int w;

	start_members(1, 3, 2);
	w = open_writer();
	await_all_current(w);
	for (unsigned int i = 1; i < 3; i++) {
		lose_member(i);
		rig.members[i].owner = INT_MAX;
		return_member(i);
	}
	write_cell(w, 0, 1);
	expect_group_ended(w, -ESTALE);
	rig_end(&rig);
}

/* Another client had the member for a while, and gave it up. */
Test(pool_group_rules, a_member_that_was_given_back_displaces_nobody)
{
	unsigned int w;

	start_members(1, 2, 1);
	w = open_writer();
	await_all_current(w);
	write_and_commit(w, 0, 5);
	while (!group_is_quiet(group_of(w)))
		rig_event(&rig);
	lose_member(1);
	group_opened(group_of(w), 1, -EBUSY, 0, "busy");
	cr_assert_eq(group_of(w)->phase, GROUP_OPEN);
	return_member(1);
	await_state(w, 1, MEMBER_COPYING);
	lose_member(0);
	expect_group_ended(w, -EIO);
	rig_end(&rig);
}

Test(pool_group_rules, a_slow_member_is_brought_up_to_date_later)
{
	unsigned int w;

	start_members(1, 3, 2);
	w = open_writer();
	await_all_current(w);
	rig.members[2].up = false;
	for (unsigned int i = 0; i <= GROUP_BACKLOG / 8 + 1; i++) {
		cr_assert_eq(group_of(w)->members[2].state, MEMBER_CURRENT);
		cr_assert_not(write_cell(w, i % RIG_CELLS, i));
	}
	run_events(1);
	cr_assert_eq(group_of(w)->members[2].state, MEMBER_AWAY);
	rig_end(&rig);
}

/* A healthy member, too, needs its time for one long write. */
Test(pool_group_rules, a_member_may_lag_by_one_write_and_by_any_zeros)
{
	static unsigned char bytes[GROUP_BACKLOG + 8];
	unsigned int w;

	start_members(1, 3, 2);
	w = open_writer();
	await_all_current(w);
	rig.members[2].up = false;
	for (unsigned int i = 0; i < 4; i++) {
		struct call c = {0};

		cr_assert_eq(group_of(w)->members[2].state, MEMBER_CURRENT,
			     "operation %u", i);
		c.op.type = i < 2 ? RPMEM_POOL_ZERO : RPMEM_POOL_WRITE;
		c.op.buf = i < 2 ? NULL : bytes;
		c.op.len = sizeof(bytes);
		submit_call(w, &c);
		cr_assert_not(finish_call(&c));
		run_events(1);
	}
	cr_assert_eq(group_of(w)->members[2].state, MEMBER_AWAY);
	rig_end(&rig);
}

/* --- how many members an opening needs --- */

Test(pool_group_rules, an_opening_needs_enough_members)
{
	static const struct {
		unsigned int n, k, few, enough;
	} cases[] = {
		{3, 2, 0x1, 0x5},
		{5, 2, 0x7, 0xf},
		{5, 4, 0x7, 0xf},
		{2, 1, 0x2, 0x3},
	};

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		start_members(1, cases[i].n, cases[i].k);
		cr_assert_not(group_opens_with((1u << (rig.n - 1)) - 1),
			      "some members create a group");
		cr_assert(group_opens_with((1u << rig.n) - 1));
		cr_assert_not(group_opens_with(cases[i].few));
		cr_assert(group_opens_with(cases[i].enough));
		rig_end(&rig);
	}
}

/* A member of a new group knows that nothing was committed without it. */
Test(pool_group_rules, a_founder_without_an_epoch_counts)
{
	unsigned int w;

	start_members(1, 3, 2);
	w = rig_writer_new(&rig, call_completed);
	await_state(w, 2, MEMBER_PROMISED);
	rig.members[2].up = false;
	await_group_open(w);
	cr_assert_neq(group_of(w)->members[2].state, MEMBER_CURRENT);
	rig_writer_kill(&rig, w);
	cr_assert(group_opens_with(0x6));
	rig_end(&rig);
}

/* --- what a later writer finds --- */

Test(pool_group_rules, a_write_completes_where_it_has_arrived)
{
	for (uint64_t seed = 0; seed < 16; seed++) {
		struct call c;
		unsigned int w;

		start_members(seed, 2, 2);
		w = open_writer();
		write_and_commit(w, 0, 1);
		lose_member(1);
		return_member(1);
		await_state(w, 1, MEMBER_ADOPTING);
		write_begin(w, &c, 0, 2);
		cr_assert_not(finish_call(&c));
		cr_assert_eq(rig.members[1].visible[GROUP_AREA], 2);
		rig_end(&rig);
	}
}

Test(pool_group_rules, a_member_that_is_away_does_not_count)
{
	struct call c;
	unsigned int w;

	start_members(1, 3, 2);
	w = open_writer();
	await_all_current(w);
	cr_assert_not(write_cell(w, 0, 1));
	run_events(100);
	rig.members[0].up = rig.members[1].up = false;
	commit_begin(w, &c);
	run_events(100);
	lose_member(2);
	return_member(0);
	run_events(300);
	cr_assert_not(c.done);
	return_member(1);
	cr_assert_not(finish_call(&c));
	rig_end(&rig);
}

Test(pool_group_rules, bits_stay_while_a_member_is_away)
{
	unsigned int w;

	create_group(3, 2);
	w = open_writer();
	await_all_current(w);
	while (!group_is_quiet(group_of(w)))
		rig_event(&rig);
	group_clear_all(group_of(w));
	run_events(100);
	lose_member(2);
	write_and_commit(w, 0, 2);
	rig_writer_kill(&rig, w);
	w = open_writer();
	group_clear_all(group_of(w));
	return_member(2);
	await_state(w, 2, MEMBER_CURRENT);
	cr_assert_eq(rig.members[2].visible[GROUP_AREA], 2);
	rig_end(&rig);
}

/* Members 0 and 1 commit all writes; member 2 is current, but executes none. */
Test(pool_group_rules, bits_stay_while_a_current_member_lacks_the_writes)
{
	const struct group *g;
	unsigned int w;

	create_group(3, 2);
	w = open_writer();
	g = group_of(w);
	await_all_current(w);
	run_events(100);
	rig.members[2].up = false;
	for (unsigned int c = 0; c < RIG_CHUNKS; c++)
		write_and_commit(w, c * (GROUP_CHUNK / 8), 2);
	cr_assert_eq(g->members[2].state, MEMBER_CURRENT);
	for (unsigned int c = 0; c < RIG_CHUNKS; c++)
		cr_assert(g->bits[c / 8] & 1u << c % 8, "chunk %u", c);
	rig_end(&rig);
}

/* A chunk that only the member itself knows to differ stays marked there. */
Test(pool_group_rules, a_member_keeps_its_bits_until_it_has_copied)
{
	const unsigned int at = GROUP_AREA + 40 * 8;

	for (uint64_t seed = 0; seed < 24; seed++) {
		struct call c;
		unsigned int w;

		start_members(seed, 3, 2);
		w = open_writer();
		write_and_commit(w, 40, 1);
		await_all_current(w);
		while (!group_is_quiet(group_of(w)))
			rig_event(&rig);
		group_clear_all(group_of(w));
		while (!group_is_quiet(group_of(w)))
			rig_event(&rig);
		run_events(100);
		rig.members[0].up = rig.members[1].up = false;
		write_begin(w, &c, 40, 77);
		run_events(100);
		rig_writer_kill(&rig, w);
		return_member(0);
		return_member(1);
		rig.members[2].up = false;
		w = open_writer();
		return_member(2);
		await_state(w, 2, MEMBER_COPYING);
		rig.members[0].up = rig.members[1].up = false;
		write_begin(w, &c, 0, 3);
		run_events(100);
		rig_writer_kill(&rig, w);
		return_member(0);
		return_member(1);
		w = open_writer();
		await_all_current(w);
		cr_assert_eq(rig.members[2].visible[at],
			     rig.members[0].visible[at], "seed %llu",
			     (unsigned long long)seed);
		rig_end(&rig);
	}
}

Test(pool_group_rules, an_epoch_is_promised_once)
{
	uint64_t epoch;
	unsigned int w;

	create_group(3, 2);
	w = rig_writer_new(&rig, call_completed);
	await_state_at_least(w, 0, MEMBER_PROMISED);
	epoch = group_of(w)->epoch;
	rig_writer_kill(&rig, w);
	w = open_writer();
	cr_assert_gt(group_of(w)->epoch, epoch);
	rig_end(&rig);
}

Test(pool_group_rules, a_writer_ends_when_a_newer_one_has_promised)
{
	for (uint64_t seed = 0; seed < 16; seed++) {
		unsigned int a, b;

		create_group_seeded(seed, 3, 2);
		a = open_writer();
		await_all_current(a);
		lose_member(1);
		rig.writers[a].paused = true;
		return_member(1);
		rig.members[0].up = false;
		b = open_writer();
		rig_writer_kill(&rig, b);
		rig.writers[a].paused = false;
		expect_group_ended(a, -ESTALE);
		rig_end(&rig);
	}
}

/* A newer one has one of three members, and then two. */
Test(pool_group_rules, a_writer_ends_when_fewer_than_k_members_are_left)
{
	unsigned int a, b;

	create_group(3, 2);
	a = open_writer();
	await_all_current(a);
	rig.members[1].up = rig.members[2].up = false;
	b = rig_writer_new(&rig, call_completed);
	await_state(b, 0, MEMBER_SEEN);
	rig.writers[b].paused = true;
	return_member(1);
	return_member(2);
	cr_assert_eq(write_cell(a, 0, 1), 0);
	run_events(200);
	cr_assert_eq(write_cell(a, 0, 2), 0);
	rig.members[2].up = false;
	rig.writers[b].paused = false;
	run_events(500);
	cr_assert_eq(rig.members[1].owner, (int)b);
	write_cell(a, 0, 3);
	expect_group_ended(a, -ESTALE);
	rig_end(&rig);
}

/*
 * A member that comes back in the same epoch has the newest number, durably,
 * also where its slot was only visible when it was left.
 */
Test(pool_group_rules, a_member_that_comes_back_has_the_newest_number)
{
	struct rig_member *m = &rig.members[1];
	struct group_super super;
	struct group_state is;
	unsigned int w;

	create_group(3, 2);
	w = open_writer();
	await_all_current(w);
	for (unsigned int i = 0; i < 4; i++) {
		for (unsigned int e = 0; e < EVENTS; e++)
			if (!group_is_quiet(group_of(w)))
				rig_event(&rig);
		lose_member(1);
		cr_assert_not(group_area_decode(m->visible, &super, &is));
		if (i > 1)
			memset(m->durable + GROUP_SLOT_AT(is.slot), 0,
			       GROUP_SLOT);
		write_and_commit(w, 0, i + 1);
		return_member(1);
		await_state(w, 1, MEMBER_CURRENT);
		cr_assert_not(group_area_decode(m->durable, &super, &is));
		cr_assert_eq(is.epoch, group_of(w)->epoch);
		cr_assert_eq(is.number, group_of(w)->issued);
	}
	rig_end(&rig);
}

/* One event; no member's epoch and number have become less. */
static void run_event_checked(struct group_state was[GROUP_MEMBERS])
{
	rig_event(&rig);
	for (unsigned int i = 0; i < rig.n; i++) {
		struct group_super s;
		struct group_state now;

		if (group_area_decode(rig.members[i].visible, &s, &now))
			continue;
		cr_assert(now.epoch > was[i].epoch ||
				  (now.epoch == was[i].epoch &&
				   now.number >= was[i].number),
			  "member %u: epoch %llu number %llu after %llu, %llu",
			  i, (unsigned long long)now.epoch,
			  (unsigned long long)now.number,
			  (unsigned long long)was[i].epoch,
			  (unsigned long long)was[i].number);
		was[i] = now;
	}
}

Test(pool_group_rules, epoch_and_number_of_a_member_only_grow)
{
	for (uint64_t seed = 0; seed < 8; seed++) {
		struct group_state was[GROUP_MEMBERS] = {{0}};
		static struct call c[40];

		start_members(seed, 3, 2);
		for (unsigned int round = 0; round < 3; round++) {
			const unsigned int w =
				rig_writer_new(&rig, call_completed);

			while (group_count(group_of(w), MEMBER_CURRENT) < 3) {
				run_event_checked(was);
				cr_assert_neq(group_of(w)->phase, GROUP_ENDED);
			}
			for (unsigned int i = 0; i < 40; i += 2) {
				write_begin(w, &c[i], i, i + 1);
				commit_begin(w, &c[i + 1]);
				for (unsigned int j = 0; j < 4; j++)
					run_event_checked(was);
			}
			for (unsigned int i = 0; i < 500; i++)
				run_event_checked(was);
			lose_member(2);
			return_member(2);
			for (unsigned int i = 0; i < 500; i++)
				run_event_checked(was);
			rig_writer_kill(&rig, w);
		}
		rig_end(&rig);
	}
}
