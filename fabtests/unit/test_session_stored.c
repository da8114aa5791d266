/* SPDX-License-Identifier: BSD-2-Clause */
/* Commits of bytes that the target's CPU has stored. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/log.h"
#include "session_bed.h"

static struct report a, b, c;
static struct rp_wire_range many[5000];

/* --- bytes that the target's CPU stored --- */

/*
 * The target's CPU may have stored them in its cache, which neither a fence nor
 * a FLUSH nor a delivery completion covers.
 */
static void atomic_then_commit(enum rp_method m, uint64_t off, bool agent)
{
	bed_open_alone(m, 0);
	bed_post(op_atomic(&a, 1, 64));
	bed_see_request(RP_EFFECT_ATOMIC);
	bed_ok();
	expect_ok(&a);
	bed_post(op_commit_one(&b, 1, off, 64));
	if (!agent) {
		cr_assert(!bed_see() || bed.last->kind != RP_CHANNEL_SEND);
		return;
	}
	bed_see_request(RP_EFFECT_NONE);
	bed_ok();
	expect_ok(&b);
	/* The second commit does not need the agent. */
	bed_post(op_commit_one(&b, 1, off, 64));
	cr_assert(!bed_see() || bed.last->kind != RP_CHANNEL_SEND);
}

Test(session_commit, cached_bytes_go_to_the_agent)
{
	static const enum rp_method m[] = {RP_METHOD_FENCE, RP_METHOD_NATIVE,
					   RP_METHOD_DELIVERY};

	for (int i = 0; i < 3; i++) {
		atomic_then_commit(m[i], 64, true);
		atomic_then_commit(m[i], 8, true);
		atomic_then_commit(m[i], 71, true);
		atomic_then_commit(m[i], 0, false);
		atomic_then_commit(m[i], 72, false);
	}
}

Test(session_commit, each_range_of_an_atomic_goes_to_the_agent)
{
	static struct rp_wire_range r[2];
	struct rp_op *op;

	bed_open_alone(RP_METHOD_FENCE, 0);
	r[0] = bed_range(1, 0, 8);
	r[1] = bed_range(1, 4096, 8);
	op = op_atomic(&a, 1, 0);
	op->ranges = r;
	op->nranges = 2;
	bed_post(op);
	bed_see_request(RP_EFFECT_ATOMIC);
	bed_ok();
	expect_ok(&a);
	bed_post(op_commit_one(&b, 1, 4096, 8));
	bed_see_request(RP_EFFECT_NONE);
}

/* More ranges than the set takes become longer ones. */
Test(session_commit, memory_for_cached_ranges_is_bounded)
{
	bed_open_alone(RP_METHOD_FENCE, 0);
	for (uint64_t i = 0; i < RP_SESSION_RANGES + 10; i++) {
		bed_post(op_atomic(&a, 1, 64 * i));
		bed_see_request(RP_EFFECT_ATOMIC);
		bed_ok();
		expect_ok(&a);
	}
	cr_assert_leq(bed.s->by_agent.n, RP_SESSION_RANGES);
	for (uint64_t i = 0; i < RP_SESSION_RANGES + 10; i++)
		many[i] = bed_range(1, 64 * i, 8);
	bed_post(op_commit(&b, many, RP_SESSION_RANGES + 10));
	cr_assert_eq(bed_see_request(RP_EFFECT_NONE)->req.nranges, 1024);
	cr_assert_eq(bed_see_request(RP_EFFECT_NONE)->req.nranges, 10);
	bed_see_nothing();
}

/* A STORE leaves its bytes in the caches as an atomic does. */
Test(session_commit, stored_bytes_go_to_the_agent)
{
	struct rp_op *op;

	bed_open_alone(RP_METHOD_FENCE, 0);
	bed.chan.flags |= RP_CHANNEL_LOCAL_MR;
	op = op_write(&a, 1, 64, 64, RP_LEVEL_VISIBLE);
	op->inject = true;
	bed_post(op);
	bed_see_request(RP_EFFECT_STORE);
	bed_ok();
	expect_ok(&a);
	bed_post(op_commit_one(&b, 1, 0, 64));
	bed_see_kind(RP_CHANNEL_READ);
	bed_done_all();
	expect_ok(&b);
	bed_post(op_commit_one(&b, 1, 127, 1));
	bed_see_request(RP_EFFECT_NONE);
}

/* The agent reached the required class only; the bytes may stay cached. */
Test(session_commit, weaker_commit_leaves_bytes_cached)
{
	struct rp_wire_reply m = {
		.level = RP_LEVEL_DURABLE,
		.class = RP_CLASS_PROCESS,
	};

	bed_open_alone(RP_METHOD_FENCE, 0);
	bed_post(op_atomic(&a, 1, 64));
	bed_reply(1, RP_ST_OK);
	op_commit_one(&b, 1, 64, 8)->required = RP_CLASS_PROCESS;
	bed_post(&b.op);
	bed_reply_as(2, &m);
	expect_ok(&b);
	bed_post(op_commit_one(&b, 1, 64, 8));
	bed_see();
	bed_see();
	bed_see_request(RP_EFFECT_NONE);
}

/* Commits and writes of later bytes leave them cached. */
Test(session_commit, bytes_stay_cached_until_they_are_covered)
{
	bed_open_alone(RP_METHOD_FENCE, 0);
	bed_post(op_atomic(&a, 1, 64));
	bed_post(op_atomic(&c, 1, 4096));
	bed_reply(1, RP_ST_OK);
	bed_reply(2, RP_ST_OK);
	bed_post(op_commit_one(&b, 1, 4096, 8));
	bed_reply(3, RP_ST_OK);
	expect_ok(&b);
	bed_post(op_write(&c, 1, 8192, 8, 0));
	bed_done_all();
	for (int i = 0; i < 4; i++)
		bed_see();
	bed_post(op_commit_one(&b, 1, 64, 8));
	bed_see_request(RP_EFFECT_NONE);
}

Test(session_commit, each_range_of_a_commit_is_cached_no_more)
{
	bed_open_alone(RP_METHOD_FENCE, 0);
	for (int i = 0; i < 3; i++) {
		many[i] = bed_range(1, 4096 * i, 8);
		bed_post(op_atomic(i ? &c : &a, 1, 4096 * i));
		bed_see();
		bed_ok();
	}
	/* The third is behind the last of the commit. */
	bed_post(op_commit(&b, many, 2));
	bed_see_request(RP_EFFECT_NONE);
	bed_ok();
	expect_ok(&b);
	bed_post(op_commit(&b, many + 1, 1));
	bed_see_kind(RP_CHANNEL_READ);
	bed_done_all();
	expect_ok(&b);
	bed_post(op_commit(&b, many + 2, 1));
	bed_see_request(RP_EFFECT_NONE);
}

/* An atomic posted after the commit is not covered by it. */
Test(session_commit, later_atomic_stays_cached)
{
	bed_open_alone(RP_METHOD_FENCE, 0);
	bed_post(op_atomic(&a, 1, 64));
	bed_reply(1, RP_ST_OK);
	bed_post(op_commit_one(&b, 1, 64, 8));
	bed_post(op_atomic(&a, 1, 64));
	bed_reply(2, RP_ST_OK);
	bed_reply(3, RP_ST_OK);
	expect_ok(&a);
	expect_ok(&b);
	for (int i = 0; i < 3; i++)
		bed_see();
	bed_post(op_commit_one(&b, 1, 64, 8));
	bed_see_request(RP_EFFECT_NONE);
}

/* RDMA has overwritten the cached bytes. */
Test(session_commit, overwritten_bytes_are_cached_no_more)
{
	bed_open_alone(RP_METHOD_FENCE, 0);
	bed_post(op_atomic(&a, 1, 64));
	bed_reply(1, RP_ST_OK);
	bed_post(op_write(&a, 1, 64, 8, 0));
	bed_post(op_commit_one(&b, 1, 64, 8));
	bed_see();
	bed_see_kind(RP_CHANNEL_WRITE);
	bed_see_kind(RP_CHANNEL_READ);
}

/* A write accepted behind a commit does not exempt that commit. */
Test(session_commit, queued_commit_covers_cached_bytes)
{
	bed_open_alone(RP_METHOD_FENCE, 0);
	bed_post(op_atomic(&a, 1, 64));
	bed_see();
	bed_ok();
	bed.room = 0;
	bed_post(op_commit_one(&b, 1, 64, 8));
	bed_post(op_write(&c, 1, 64, 8, 0));
	bed.room = -1;
	bed_progress();
	bed_see_request(RP_EFFECT_NONE);
	bed_see_kind(RP_CHANNEL_WRITE);
}

/* The agent flushes a durable atomic itself. */
Test(session_commit, durable_atomic_leaves_nothing_cached)
{
	bed_open_alone(RP_METHOD_FENCE, 0);
	op_atomic(&a, 1, 64)->level = RP_LEVEL_DURABLE;
	bed_post(&a.op);
	bed_see();
	bed_ok();
	expect_ok(&a);
	cr_assert_eq(a.out.class, RP_CLASS_POWER);
	bed_post(op_commit_one(&b, 1, 64, 8));
	bed_see_kind(RP_CHANNEL_READ);
}

/* A fence covers only writes of the same connection. */
Test(session_commit, writes_of_a_lost_connection_go_to_the_agent)
{
	bed_open_alone(RP_METHOD_FENCE, 0);
	bed_post(op_write(&a, 1, 0, 4096, 0));
	cr_assert(rp_session_has_unplaced(bed.s));
	bed_reply(1, RP_ST_OK);
	bed_done_all();
	bed_lose_connection(ECONNRESET);
	bed_progress();
	while (bed_see())
		;
	bed_open(1);
	bed_post(op_commit_one(&b, 1, 0, 4096));
	bed_see_request(RP_EFFECT_NONE);
	bed_ok();
	expect_ok(&b);
	bed_post(op_commit_one(&b, 1, 0, 4096));
	bed_see_kind(RP_CHANNEL_READ);
	/* The lost connection has no uncommitted writes: a fence will do. */
	bed_done_all();
	bed_lose_connection(ECONNRESET);
	bed_progress();
	bed_open(1);
	bed_post(op_commit_one(&b, 1, 64, 64));
	bed_see_kind(RP_CHANNEL_READ);
}

Test(session_commit, committed_writes_of_a_lost_connection_need_no_agent)
{
	bed_open_alone(RP_METHOD_FENCE, 0);
	bed_post(op_write(&a, 1, 0, 4096, RP_LEVEL_DURABLE));
	bed_see_kind(RP_CHANNEL_WRITE);
	bed_see_kind(RP_CHANNEL_READ);
	bed_done_all();
	expect_ok(&a);
	bed_lose_connection(ECONNRESET);
	bed_progress();
	bed_open(1);
	bed_post(op_commit_one(&b, 1, 0, 4096));
	bed_see_kind(RP_CHANNEL_READ);
}

/* The same for a durable write that was placed and failed. */
Test(session_commit, failed_writes_of_a_lost_connection_go_to_the_agent)
{
	bed_open_alone(RP_METHOD_FENCE, 0);
	bed_post(op_read(&b, 2, 0, 8));
	bed_done_all();
	expect_ok(&b);
	many[0] = bed_range(1, 0, 32);
	many[1] = bed_range(2, 0, 32);
	op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE)->effect = RP_EFFECT_NOTIFY;
	a.op.ranges = many;
	a.op.nranges = 2;
	bed_post(&a.op);
	for (int i = 0; i < 4; i++)
		bed_see();
	bed_reply(bed.last->hdr.token, RP_ST_OVERLOADED);
	bed_done_all();
	expect_status(&a, RP_ST_OVERLOADED);
	bed_lose_connection(ECONNRESET);
	bed_progress();
	bed_open(1);
	for (uint32_t k = 1; k <= 2; k++) {
		bed_post(op_commit_one(&b, k, 0, 32));
		bed_see_request(RP_EFFECT_NONE);
		bed_ok();
		expect_ok(&b);
	}
}
