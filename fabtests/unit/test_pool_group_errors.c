// SPDX-License-Identifier: BSD-2-Clause
/* A group of pools: operations that fail at a member, and no memory. */
#include "group_calls.h"

static void await_quiet(unsigned int w)
{
	for (unsigned int i = 0; i < EVENTS; i++)
		if (!group_is_quiet(group_of(w)))
			rig_event(&rig);
	cr_assert(group_is_quiet(group_of(w)));
}

/* --- errors at the last current member --- */

Test(pool_group_rules, the_last_member_is_kept_when_its_disk_fails)
{
	unsigned int w;

	start_members(1, 2, 1);
	w = open_writer();
	await_all_current(w);
	lose_member(1);
	cr_assert_not(write_cell(w, 0, 7));
	rig.members[0].disk_failed = true;
	cr_assert_eq(commit_call(w), -EIO);
	cr_assert_eq(group_of(w)->phase, GROUP_OPEN);
	cr_assert_eq(group_of(w)->members[0].state, MEMBER_CURRENT);
	rig.members[0].disk_failed = false;
	cr_assert_not(commit_call(w));
	cr_assert_eq(read_cell(w, 0), 7);
	rig_end(&rig);
}

static int write_durably(unsigned int w, unsigned int cell, uint64_t value)
{
	struct call c = {.value = value};

	c.op = (struct rpmem_pool_op){
		.type = RPMEM_POOL_WRITE,
		.flags = RPMEM_POOL_DURABLE,
		.buf = &c.value,
		.offset = cell * 8,
		.len = 8,
	};
	submit_call(w, &c);
	return finish_call(&c);
}

static int commit_and_store(unsigned int w, unsigned int cell, uint64_t value)
{
	struct call c = {
		.op.type = RPMEM_POOL_COMMIT,
		.then = {.offset = cell * 8, .value = value},
	};

	c.op.then = &c.then;
	submit_call(w, &c);
	return finish_call(&c);
}

/*
 * The commit that follows the write of a durable write, or the store of a
 * commit, succeeds at the member: the caller gets the error of the write.
 */
Test(pool_group_rules, a_durable_write_fails_when_only_its_commit_succeeds)
{
	for (uint64_t seed = 0; seed < 16; seed++) {
		unsigned int w;

		start_members(seed, 2, 1);
		w = open_writer();
		await_all_current(w);
		write_and_commit(w, 0, 7);
		while (!group_is_quiet(group_of(w)))
			rig_event(&rig);
		lose_member(1);
		rig.members[0].writes_fail = true;
		cr_assert_eq(write_durably(w, 0, 8), -EIO);
		cr_assert_eq(commit_and_store(w, 0, 9), -EIO);
		cr_assert_eq(group_of(w)->phase, GROUP_OPEN);
		rig.members[0].writes_fail = false;
		cr_assert_eq(read_cell(w, 0), 7);
		cr_assert_not(write_durably(w, 0, 8));
		cr_assert_eq(read_cell(w, 0), 8);
		cr_assert_not(commit_and_store(w, 0, 9));
		cr_assert_eq(read_cell(w, 0), 9);
		rig_end(&rig);
	}
}

/* Each later operation would fail there, and nothing could be copied. */
Test(pool_group_rules, the_last_member_is_not_kept_when_its_pool_has_ended)
{
	for (unsigned int first = 0; first < 3; first++) {
		struct call c;
		unsigned int w;

		start_members(1, 2, 1);
		w = open_writer();
		await_all_current(w);
		write_and_commit(w, 0, 1);
		await_quiet(w);
		lose_member(1);
		rig.members[0].ended = true;
		if (first == 0)
			read_begin(w, &c, 0);
		else if (first == 1)
			write_begin(w, &c, 0, 2);
		else
			commit_begin(w, &c);
		run_events(300);
		write_begin(w, &c, 0, 3);
		cr_assert_eq(finish_call(&c), -EIO);
		cr_assert(strstr(c.error, "open the group again"), "%s",
			  c.error);
		cr_assert(strstr(c.error, "(the pool has ended)"), "%s",
			  c.error);
		expect_group_ended(w, -EIO);
		rig_end(&rig);
	}
}

/*
 * All members are away for longer than a call waits. Then what was sent to them
 * fails, the bitmap at first, and one of them is left.
 */
Test(pool_group_rules, a_group_survives_an_outage_of_all_members)
{
	enum {
		many = GROUP_BACKLOG / 8 + 2
	};
	static struct call calls[many];
	unsigned int w;

	create_group(3, 2);
	w = open_writer();
	await_all_current(w);
	group_clear_all(group_of(w));
	for (unsigned int i = 0; i < EVENTS && !group_is_quiet(group_of(w));
	     i++)
		rig_event(&rig);
	group_of(w)->timeout_ms = 500;
	for (unsigned int round = 0; round < 2; round++) {
		for (unsigned int i = 0; i < 3; i++)
			rig.members[i].up = false;
		/* As many completed writes would make each member slow. */
		for (unsigned int i = 0; i < many; i++)
			write_begin(w, &calls[i], i, 1);
		for (unsigned int i = 0; i < many; i++)
			cr_assert_eq(finish_call(&calls[i]), -ETIMEDOUT);
		run_events(1);
		for (unsigned int i = 0; i < 3; i++) {
			rig.members[i].writes_fail = true;
			rig.members[i].up = true;
		}
		run_events(300);
		cr_assert_eq(group_of(w)->phase, GROUP_OPEN);
		for (unsigned int i = 0; i < 3; i++)
			rig.members[i].writes_fail = false;
		await_all_current(w);
		group_of(w)->timeout_ms = UINT64_MAX / 2;
		write_and_commit(w, 0, 2);
		cr_assert_eq(read_cell(w, 0), 2);
		group_of(w)->timeout_ms = 500;
	}
	rig_end(&rig);
}

Test(pool_group_rules, the_last_member_is_not_kept_without_a_completed_write)
{
	unsigned int w;

	start_members(1, 2, 1);
	w = open_writer();
	write_and_commit(w, 0, 6);
	await_all_current(w);
	while (!group_is_quiet(group_of(w)))
		rig_event(&rig);
	rig.members[0].up = false;
	cr_assert_not(write_cell(w, 0, 7));
	lose_member(1);
	rig.members[0].writes_fail = true;
	return_member(0);
	expect_group_ended(w, -EIO);
	rig_end(&rig);
}

/* Each repetition has to wait, or it would keep a thread busy. */
Test(pool_group_rules, the_bitmap_of_the_last_member_is_repeated_with_pauses)
{
	const struct group_leg *leg;
	struct call c;
	uint64_t before;
	unsigned int w;

	start_members(1, 2, 1);
	w = open_writer();
	await_all_current(w);
	while (!group_is_quiet(group_of(w)))
		rig_event(&rig);
	group_clear_all(group_of(w));
	while (!group_is_quiet(group_of(w)))
		rig_event(&rig);
	group_of(w)->timeout_ms = 20 * GROUP_REPEAT_MS;
	lose_member(1);
	rig.members[0].writes_fail = true;
	before = rig.submitted;
	write_begin(w, &c, 0, 1);
	cr_assert_eq(finish_call(&c), -EIO);
	cr_assert_str_eq(c.error, "a write has failed");
	cr_assert_gt(rig.submitted, before + 5);
	cr_assert_leq(rig.submitted, before + 20);
	TAILQ_FOREACH (leg, &group_of(w)->members[0].queue, link)
		cr_assert_eq(leg->kind, LEG_BITS, "failed writes are kept");
	rig.members[0].writes_fail = false;
	write_and_commit(w, 0, 2);
	cr_assert_eq(read_cell(w, 0), 2);
	/* Later calls do not get the error of then. */
	rig.members[0].up = false;
	cr_assert_eq(write_cell(w, 0, 3), -ETIMEDOUT);
	rig_end(&rig);
}

/*
 * A write times out while it waits at one member, behind a write to the same
 * bytes. The other member has executed it, and has reported that or not.
 */
Test(pool_group_rules, a_write_that_timed_out_reaches_all_members_or_none)
{
	for (unsigned int reported = 0; reported < 2; reported++) {
		const uint64_t both[] = {1, 1};
		struct call first = {0}, second;
		unsigned int w;

		start_members(1, 2, 2);
		w = open_writer();
		write_and_commit(w, 0, 7);
		await_all_current(w);
		while (!group_is_quiet(group_of(w)))
			rig_event(&rig);
		group_of(w)->timeout_ms = 500;
		rig.members[1].up = false;
		if (!reported)
			rig.unreported_at = GROUP_AREA + 8;
		first.op.type = RPMEM_POOL_WRITE;
		first.op.buf = (void *)(uintptr_t)both;
		first.op.len = sizeof(both);
		submit_call(w, &first);
		write_begin(w, &second, 1, 2);
		cr_assert_eq(finish_call(&first), -ETIMEDOUT);
		cr_assert_eq(finish_call(&second), -ETIMEDOUT);
		rig.unreported_at = 0;
		return_member(1);
		run_events(300);
		cr_assert(group_is_quiet(group_of(w)));
		for (unsigned int i = 0; i < 2; i++)
			cr_assert_eq(rig.members[i].visible[GROUP_AREA + 8], 2,
				     "member %u", i);
		rig_end(&rig);
	}
}

Test(pool_group_rules, a_chunk_of_the_last_member_is_read_again_with_pauses)
{
	uint64_t before;
	unsigned int w;

	start_members(1, 2, 1);
	w = open_writer();
	await_all_current(w);
	lose_member(1);
	write_and_commit(w, 0, 1);
	return_member(1);
	await_state(w, 1, MEMBER_COPYING);
	rig.members[0].reads_fail = true;
	run_events(2 * GROUP_REPEAT_MS);
	before = rig.submitted;
	run_events(20 * GROUP_REPEAT_MS);
	cr_assert_gt(rig.submitted, before + 5);
	cr_assert_leq(rig.submitted, before + 20);
	cr_assert_str_eq(group_of(w)->members[1].error, "a read has failed");
	rig.members[0].reads_fail = false;
	await_all_current(w);
	cr_assert_eq(rig.members[1].visible[GROUP_AREA], 1);
	rig_end(&rig);
}

/*
 * A write fails at the member from which another one is copied, and has reached
 * the other one behind the copy of its chunk, or is on its way there.
 */
Test(pool_group_rules, members_agree_after_a_write_failed_at_the_last_one)
{
	for (uint64_t seed = 0; seed < 32; seed++) {
		/* An adoption would be complete when the write arrives. */
		const bool adopts = seed % 3 == 2, arrives = seed % 3 == 1;
		struct call c;
		unsigned int w;

		start_members(seed, 2, 1);
		w = open_writer();
		await_all_current(w);
		lose_member(1);
		for (unsigned int i = 0; i < RIG_CHUNKS; i++)
			write_and_commit(w, i * (GROUP_CHUNK / 8), 2);
		return_member(1);
		await_state(w, 1, adopts ? MEMBER_ADOPTING : MEMBER_COPYING);
		while (!group_of(w)->members[1].copy_next)
			rig_event(&rig);
		rig.members[0].up = false;
		rig.members[1].up = arrives;
		rig.members[0].writes_fail = true;
		write_begin(w, &c, 0, 3);
		run_events(300);
		cr_assert_neq(group_of(w)->members[1].state, MEMBER_CURRENT);
		rig.members[0].up = true;
		rig.members[1].up = false;
		cr_assert_eq(finish_call(&c), -EIO);
		rig.members[0].writes_fail = false;
		return_member(1);
		await_all_current(w);
		while (!group_is_quiet(group_of(w)))
			rig_event(&rig);
		cr_assert_eq(rig.members[0].visible[GROUP_AREA], 2);
		cr_assert_eq(rig.members[1].visible[GROUP_AREA], 2,
			     "seed %llu: the members differ",
			     (unsigned long long)seed);
		rig_end(&rig);
	}
}

/* --- operations that the pools refuse --- */

Test(pool_group_rules, a_refused_read_has_its_error_and_drops_no_member)
{
	struct call c;
	unsigned int w;

	start_members(1, 3, 2);
	w = open_writer();
	write_and_commit(w, 0, 5);
	await_all_current(w);
	await_quiet(w);
	rig.refused = 1u << RPMEM_POOL_READ;
	read_begin(w, &c, 0);
	cr_assert_eq(finish_call(&c), -ENOMEM);
	cr_assert_str_eq(c.error, "refused");
	run_events(300);
	cr_assert_eq(group_count(group_of(w), MEMBER_CURRENT), 3);
	rig.refused = 0;
	cr_assert_eq(read_cell(w, 0), 5);
	rig_end(&rig);
}

Test(pool_group_rules, the_last_member_is_kept_when_it_refuses_operations)
{
	struct call calls[5];
	unsigned int w;

	start_members(1, 2, 1);
	w = open_writer();
	write_and_commit(w, 0, 5);
	await_all_current(w);
	await_quiet(w);
	lose_member(1);
	rig.refused = 1u << RPMEM_POOL_WRITE;
	cr_assert_eq(write_cell(w, 0, 6), -ENOMEM);
	rig.refused = 0;
	cr_assert_not(write_cell(w, 0, 7));
	rig.refused = 1u << RPMEM_POOL_COMMIT;
	cr_assert_eq(commit_call(w), -ENOMEM);
	rig.refused = 0;
	cr_assert_not(commit_call(w));
	cr_assert_eq(read_cell(w, 0), 7);
	/* The third one and later ones are joined. */
	rig.members[0].up = false;
	for (unsigned int i = 0; i < 5; i++) {
		write_begin(w, &calls[i], i, 8);
		run_events(1);
	}
	rig.refused = 1u << RPMEM_POOL_WRITE;
	return_member(0);
	for (unsigned int i = 0; i < 5; i++)
		cr_assert_eq(finish_call(&calls[i]), i < 2 ? 0 : -ENOMEM);
	rig.refused = 0;
	write_and_commit(w, 4, 9);
	cr_assert_eq(group_of(w)->phase, GROUP_OPEN);
	rig_end(&rig);
}

/* The group's own operations are tried again; members stay. */
Test(pool_group_rules, refused_marks_and_copies_drop_no_member)
{
	struct call c;
	unsigned int w;

	start_members(1, 3, 2);
	w = open_writer();
	await_all_current(w);
	await_quiet(w);
	group_clear_all(group_of(w));
	await_quiet(w);
	rig.refused = 1u << RPMEM_POOL_WRITE;
	write_begin(w, &c, 0, 1);
	run_events(300);
	cr_assert_not(c.done);
	cr_assert_eq(group_count(group_of(w), MEMBER_CURRENT), 3);
	rig.refused = 0;
	cr_assert_not(finish_call(&c));
	lose_member(2);
	write_and_commit(w, 0, 2);
	return_member(2);
	await_state(w, 2, MEMBER_COPYING);
	rig.refused = 1u << RPMEM_POOL_READ;
	run_events(300);
	cr_assert_eq(group_of(w)->members[2].state, MEMBER_COPYING);
	cr_assert_eq(group_count(group_of(w), MEMBER_CURRENT), 2);
	rig.refused = 0;
	await_all_current(w);
	cr_assert_eq(rig.members[2].visible[GROUP_AREA], 2);
	rig_end(&rig);
}

/* --- no memory --- */

static unsigned int legs_until_failure; /* 0: none fails */
static bool no_legs;			/* all fail */

struct group_leg *__real_leg_new(enum leg_kind kind, uint64_t bytes);
struct group_leg *__wrap_leg_new(enum leg_kind kind, uint64_t bytes);

struct group_leg *__wrap_leg_new(enum leg_kind kind, uint64_t bytes)
{
	if (no_legs || (legs_until_failure && !--legs_until_failure))
		return NULL;
	return __real_leg_new(kind, bytes);
}

/*
 * Each step of an opening and of a copy queues several legs. A leg in the queue
 * of a dropped member would be submitted to a pool that is closed.
 */
Test(pool_group_rules, no_leg_is_queued_behind_one_without_memory)
{
	for (unsigned int n = 1; n < 100; n++) {
		unsigned int w;

		start_members(n, 3, 2);
		legs_until_failure = n;
		w = rig_writer_new(&rig, call_completed);
		for (unsigned int e = 0;
		     e < EVENTS && legs_until_failure &&
		     group_count(group_of(w), MEMBER_CURRENT) < 3;
		     e++)
			rig_event(&rig);
		for (unsigned int i = 0; i < 3; i++)
			if (group_of(w)->members[i].state == MEMBER_AWAY)
				cr_assert(
					TAILQ_EMPTY(
						&group_of(w)->members[i].queue),
					"leg %u fails", n);
		await_group_open(w);
		if (group_of(w)->phase != GROUP_OPEN)
			w = open_writer();
		legs_until_failure = 0;
		write_and_commit(w, 0, n);
		cr_assert_eq(read_cell(w, 0), n);
		rig_end(&rig);
	}
}

Test(pool_group_rules, a_mark_without_memory_drops_no_member)
{
	for (unsigned int n = 1; n < 4; n++) {
		struct call c = {.value = 2};
		unsigned int w;

		start_members(n, 2, 2);
		w = open_writer();
		await_all_current(w);
		await_quiet(w);
		group_clear_all(group_of(w));
		await_quiet(w);
		c.op = (struct rpmem_pool_op){
			.type = RPMEM_POOL_WRITE,
			.buf = &c.value,
			.len = 8,
			.context = &c,
		};
		legs_until_failure = n;
		cr_assert_eq(group_submit(group_of(w), &c.op), -ENOMEM);
		cr_assert_eq(group_count(group_of(w), MEMBER_CURRENT), 2);
		write_and_commit(w, 0, 3);
		cr_assert_eq(read_cell(w, 0), 3);
		rig_end(&rig);
	}
}

/* Bits of chunks are cleared when all members have recorded their epoch. */
Test(pool_group_rules, an_epoch_of_all_without_memory_is_recorded_later)
{
	struct group_super super;
	struct group_state is;
	unsigned int w;

	start_members(1, 2, 1);
	w = open_writer();
	write_and_commit(w, 0, 1);
	await_state(w, 1, MEMBER_ADOPTING);
	no_legs = true;
	await_all_current(w);
	await_quiet(w);
	group_clear_all(group_of(w));
	cr_assert(group_of(w)->nset);
	no_legs = false;
	run_events(1);
	await_quiet(w);
	group_clear_all(group_of(w));
	cr_assert_not(group_of(w)->nset);
	for (unsigned int i = 0; i < 2; i++) {
		cr_assert_not(
			group_area_decode(rig.members[i].durable, &super, &is));
		cr_assert_eq(is.full, group_of(w)->epoch);
	}
	rig_end(&rig);
}

static unsigned int callocs_until_failure; /* 0: none fails */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
	if (callocs_until_failure && !--callocs_until_failure)
		return NULL;
	return __real_calloc(n, size);
}

/* A durable write is a write and a commit, and memory for both is allocated. */
Test(pool_group_rules, a_write_without_memory_is_not_started_or_completes)
{
	unsigned int refused = 0, failed = 0;

	for (unsigned int n = 1;; n++) {
		struct call c = {.value = 2};
		bool fails;
		unsigned int w;
		int ret;

		start_members(n, 2, 2);
		w = open_writer();
		write_and_commit(w, 0, 1);
		await_all_current(w);
		c.op = (struct rpmem_pool_op){
			.type = RPMEM_POOL_WRITE,
			.flags = RPMEM_POOL_DURABLE,
			.buf = &c.value,
			.len = 8,
			.context = &c,
		};
		callocs_until_failure = n;
		ret = group_submit(group_of(w), &c.op);
		fails = !callocs_until_failure;
		callocs_until_failure = 0;
		if (ret) {
			cr_assert_eq(ret, -ENOMEM);
			run_events(300);
			cr_assert_not(c.done);
			cr_assert_eq(rig.members[0].visible[GROUP_AREA], 1,
				     "a write without memory is started");
			refused++;
		} else if (fails) {
			cr_assert_eq(finish_call(&c), -ENOMEM);
			failed++;
		} else {
			cr_assert_not(finish_call(&c));
		}
		write_and_commit(w, 0, 3);
		cr_assert_eq(read_cell(w, 0), 3);
		rig_end(&rig);
		if (!fails)
			break;
	}
	cr_assert(refused && failed);
}
