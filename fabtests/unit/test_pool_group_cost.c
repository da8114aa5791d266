// SPDX-License-Identifier: BSD-2-Clause
/* Messages and round trips of a group of pools. */
#include <stdio.h>

#include "group_calls.h"

/*
 * Durable round trips of a takeover until a commit is possible, at most: the
 * pool's owner at fi_rpmemd, the promise, the epoch.
 */
#define DURABLE 3u

static void await_quiet_group(unsigned int w)
{
	for (unsigned int i = 0; i < EVENTS && !group_is_quiet(group_of(w));
	     i++)
		rig_event(&rig);
	cr_assert(group_is_quiet(group_of(w)));
}

/* Messages of a commit do not wait for replies to each other. */
Test(pool_group_cost, a_commit_is_n_messages_in_one_round_trip)
{
	for (unsigned int n = 2; n <= GROUP_MEMBERS; n++) {
		struct call c;
		uint64_t before;
		unsigned int w;

		start_members(n, n, n / 2 + 1);
		w = open_writer();
		await_all_current(w);
		write_and_commit(w, 0, 1);
		cr_assert_not(write_cell(w, 0, 2));
		await_quiet_group(w);
		before = rig.submitted;
		commit_begin(w, &c);
		group_run(group_of(w), rig.now);
		cr_assert_eq(rig.submitted - before, n);
		rig_round(&rig);
		cr_assert_eq(c.done, 1);
		await_quiet_group(w);
		cr_assert_eq(rig.submitted - before, n);
		rig_end(&rig);
	}
}

/* A write to a chunk that is already marked costs the same as a commit. */
Test(pool_group_cost, a_write_is_n_messages_in_one_round_trip)
{
	struct call c;
	uint64_t before;
	unsigned int w;

	start_members(1, 5, 3);
	w = open_writer();
	await_all_current(w);
	write_and_commit(w, 0, 1);
	await_quiet_group(w);
	before = rig.submitted;
	write_begin(w, &c, 0, 2);
	group_run(group_of(w), rig.now);
	cr_assert_eq(rig.submitted - before, 5);
	rig_round(&rig);
	cr_assert_eq(c.done, 1);
	await_quiet_group(w);
	cr_assert_eq(rig.submitted - before, 5);
	rig_end(&rig);
}

/*
 * Behind two outstanding writes adjacent ones wait, and share a message; a
 * write elsewhere does not wait.
 */
Test(pool_group_cost, adjacent_writes_share_a_message)
{
	struct call c[8];
	uint64_t before;
	unsigned int w;

	start_members(1, 3, 2);
	w = open_writer();
	await_all_current(w);
	write_and_commit(w, 0, 1);
	await_quiet_group(w);
	before = rig.submitted;
	for (unsigned int i = 0; i < 8; i++) {
		write_begin(w, &c[i], i, i + 2);
		group_run(group_of(w), rig.now);
	}
	cr_assert_eq(rig.submitted - before, 2 * 3);
	rig_round(&rig);
	cr_assert_eq(rig.submitted - before, 3 * 3);
	await_quiet_group(w);
	cr_assert_eq(rig.submitted - before, 3 * 3);
	for (unsigned int i = 0; i < 8; i++) {
		cr_assert(c[i].done && !c[i].ret);
		cr_assert_eq(read_cell(w, i), i + 2);
	}
	await_quiet_group(w);
	before = rig.submitted;
	for (unsigned int i = 0; i < 8; i++) {
		write_begin(w, &c[i], 7 - i, i + 20);
		group_run(group_of(w), rig.now);
	}
	cr_assert_eq(rig.submitted - before, 8 * 3);
	await_quiet_group(w);
	rig_end(&rig);
}

/* Run an operation; *messages and *rounds: what it took until completion. */
static void measure_call(unsigned int w, struct call *c, uint64_t *messages,
			 unsigned int *rounds)
{
	const uint64_t before = rig.submitted;

	submit_call(w, c);
	group_run(group_of(w), rig.now);
	for (*rounds = 0; !c->done; (*rounds)++)
		rig_round(&rig);
	cr_assert_not(c->ret);
	await_quiet_group(w);
	*messages = rig.submitted - before;
}

/*
 * A durable write is a write and a commit at each member, sent together. A
 * store behind a commit is sent when the commit is complete, with a commit of
 * its own.
 */
Test(pool_group_cost, durable_writes_and_stores_are_two_and_three_messages)
{
	for (unsigned int n = 2; n <= GROUP_MEMBERS; n++) {
		struct call c = {.value = 2}, then = {.then.value = 3};
		unsigned int w, rounds;
		uint64_t messages;

		start_members(n, n, n / 2 + 1);
		w = open_writer();
		await_all_current(w);
		write_and_commit(w, 0, 1);
		await_quiet_group(w);
		c.op = (struct rpmem_pool_op){
			.type = RPMEM_POOL_WRITE,
			.flags = RPMEM_POOL_DURABLE,
			.buf = &c.value,
			.len = 8,
		};
		measure_call(w, &c, &messages, &rounds);
		cr_assert_eq(rounds, 1);
		cr_assert_eq(messages, 2 * n);
		then.op = (struct rpmem_pool_op){
			.type = RPMEM_POOL_COMMIT,
			.then = &then.then,
		};
		measure_call(w, &then, &messages, &rounds);
		cr_assert_eq(rounds, 2);
		cr_assert_eq(messages, 3 * n);
		cr_assert_eq(read_cell(w, 0), 3);
		rig_end(&rig);
	}
}

/*
 * A writer takes the group over from one that has left `chunks` chunks marked.
 * Count the round trips, and for each member those that make something durable.
 */
static void measure_takeover(unsigned int n, unsigned int k,
			     unsigned int chunks)
{
	unsigned int w, rounds = 0, durable = 0, at[GROUP_MEMBERS] = {0};

	start_members(1, n, k);
	w = open_writer();
	await_all_current(w);
	for (unsigned int i = 0; i < chunks; i++)
		write_and_commit(w, i * GROUP_CHUNK / 8, 1);
	await_quiet_group(w);
	w = rig_writer_new(&rig, call_completed);
	for (; rounds < 1000 && group_of(w)->phase < GROUP_OPEN; rounds++) {
		const unsigned int members = rig_round(&rig);

		for (unsigned int i = 0; i < n; i++)
			at[i] += members >> i & 1;
	}
	for (unsigned int i = 0; i < n; i++)
		durable = at[i] > durable ? at[i] : durable;
	cr_assert_eq(group_of(w)->phase, GROUP_OPEN);
	printf("takeover at %u of %u, %u chunks marked: %u round trips, %u of "
	       "them durable\n",
	       k, n, chunks, rounds, durable);
	cr_assert_leq(durable, DURABLE);
	write_and_commit(w, 0, 2);
	rig_end(&rig);
}

Test(pool_group_cost, a_takeover_takes_few_durable_round_trips)
{
	for (unsigned int chunks = 0; chunks < 12; chunks += 4) {
		measure_takeover(3, 2, chunks);
		measure_takeover(5, 3, chunks);
	}
}
