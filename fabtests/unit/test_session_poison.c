/* SPDX-License-Identifier: BSD-2-Clause */
/* Poisoned ranges of failed writes, and every state edge of an operation. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/log.h"
#include "session_bed.h"

static struct report a, b, c, d;
static struct rp_wire_range many[400];

static void drop_log_line(enum rp_log_level level, const char *text)
{
}

static void start(void)
{
	rp_log_set(drop_log_line);
	bed_start(NULL);
	bed_open(1);
}

TestSuite(session_poison, .init = start, .fini = bed_stop);

/* Descending ranges, which do not pack well. */
static void fill_ranges(size_t n)
{
	for (size_t i = 0; i < n; i++)
		many[i] = bed_range(1, 128 * (n - i), 64);
}

/* --- commits of bytes that are still being stored --- */

/* A commit succeeds only if the stores that it covers succeed. */
Test(session_poison, commit_ends_behind_the_stores_that_it_covers)
{
	bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE));
	bed_post(op_commit_one(&b, 1, 0, 4096));
	bed_post(op_commit_one(&c, 1, 4096, 64));
	bed_reply(2, RP_ST_OK);
	expect_pending(&b);
	bed_reply(3, RP_ST_OK);
	expect_ok(&c);
	bed_reply(1, RP_ST_OK);
	expect_ok(&b);
	/* The store fails after the commit's own reply has arrived. */
	bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE));
	bed_post(op_commit_one(&b, 1, 0, 4096));
	bed_reply(5, RP_ST_OK);
	bed_reply(4, RP_ST_FLUSH_FAILED);
	expect_status(&a, RP_ST_FLUSH_FAILED);
	expect_status(&b, RP_ST_WRITE_FAILED);
}

Test(session_poison, commit_without_the_agent_ends_behind_stores)
{
	bed_stop();
	bed_start(NULL);
	bed.method = RP_METHOD_FENCE;
	bed.class = RP_CLASS_PROCESS;
	bed_open(1);
	/* Class power needs the agent, which will refuse it. */
	op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE)->required = RP_CLASS_POWER;
	bed_post(&a.op);
	bed_see_request(RP_EFFECT_STORE);
	bed_post(op_commit_one(&b, 1, 0, 64));
	bed_see_kind(RP_CHANNEL_READ);
	bed_done_all();
	expect_pending(&b);
	bed_reply(1, RP_ST_CLASS);
	expect_status(&b, RP_ST_WRITE_FAILED);
}

/* --- poison --- */

static void lose_all(void)
{
	bed_lose_connection(ECONNRESET);
	bed_progress();
	while (bed_see())
		;
	bed_open(1);
}

static void commit_says(uint64_t off, uint64_t len, enum rp_status st)
{
	static struct report t;

	bed_post(op_commit_one(&t, 1, off, len));
	if (!st) {
		bed_see_request(RP_EFFECT_NONE);
		bed_ok();
	}
	expect_status(&t, st);
}

Test(session_poison, lost_writes_are_poisoned_until_written_again)
{
	bed_post(op_write(&a, 1, 100, 4096, 0));
	bed_done_all();
	expect_ok(&a);
	lose_all();
	commit_says(0, 100, RP_ST_OK);
	commit_says(0, 101, RP_ST_WRITE_FAILED);
	commit_says(4195, 1, RP_ST_WRITE_FAILED);
	commit_says(4196, 64, RP_ST_OK);
	op_commit_one(&b, 1, 100, 8)->level = RP_LEVEL_VISIBLE;
	bed_post(&b.op);
	expect_status(&b, RP_ST_WRITE_FAILED);
	/* A write to a part of the range removes that part's poison. */
	bed_post(op_write(&a, 1, 100, 2000, 0));
	bed_see();
	commit_says(100, 2000, RP_ST_OK);
	commit_says(100, 2001, RP_ST_WRITE_FAILED);
	/* A durable write to the rest of the range removes its poison, too. */
	bed_post(op_write(&b, 1, 2000, 3000, RP_LEVEL_DURABLE));
	bed_see();
	bed_ok();
	bed_done_all();
	commit_says(0, 8192, RP_ST_OK);
	/* The next write to the range is lost as well. */
	bed_post(op_write(&b, 1, 0, 64, RP_LEVEL_DURABLE));
	lose_all();
	expect_status(&b, RP_ST_LOST);
	commit_says(0, 8, RP_ST_WRITE_FAILED);
}

Test(session_poison, proved_writes_are_not_poisoned)
{
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_done_all();
	bed_see();
	commit_says(65536, 8, RP_ST_OK); /* its reply proves placement */
	bed_post(op_write(&b, 1, 8192, 4096, 0));
	lose_all();
	commit_says(0, 8192, RP_ST_OK);
	commit_says(8192, 8, RP_ST_WRITE_FAILED);
}

/* A proof of placement covers earlier writes only. */
Test(session_poison, proof_is_of_earlier_writes_alone)
{
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_done(1);
	expect_ok(&a);
	bed_post(op_commit_one(&b, 1, 65536, 8));
	bed_post(op_write(&c, 1, 8192, 4096, 0));
	bed_post(op_write(&d, 1, 0, 64, 0));
	bed_reply(1, RP_ST_OK);
	lose_all();
	commit_says(100, 64, RP_ST_OK);
	commit_says(8192, 8, RP_ST_WRITE_FAILED);
}

Test(session_poison, writes_that_were_never_sent_are_poisoned)
{
	bed.room = 0;
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_post(op_write(&b, 1, 8192, 64, RP_LEVEL_DURABLE));
	bed_lose_connection(ECONNRESET);
	bed.room = -1;
	bed_progress();
	expect_status(&a, RP_ST_LOST);
	expect_status(&b, RP_ST_LOST);
	bed_open(1);
	commit_says(0, 8, RP_ST_WRITE_FAILED);
	commit_says(8192, 8, RP_ST_WRITE_FAILED);
}

/* The memory behind the ranges of a write is not poisoned. */
Test(session_poison, ranges_behind_the_last_are_not_poisoned)
{
	static struct rp_wire_range r[2];
	struct rp_op *op;

	for (int level = 0; level <= RP_LEVEL_DURABLE; level++) {
		op = op_write(&a, 1, 0, 4000, level);
		r[0] = bed_range(1, 0, 4000);
		r[1] = bed_range(1, 65536, 4000);
		op->ranges = r;
		bed_post(op);
		lose_all();
		expect_status(&a, RP_ST_LOST);
		commit_says(0, 8, RP_ST_WRITE_FAILED);
		commit_says(65536, 8, RP_ST_OK);
	}
}

/* More poisoned ranges than the set can hold are merged to longer ones. */
Test(session_poison, memory_for_poisoned_ranges_is_bounded)
{
	for (uint64_t i = 0; i < RP_SESSION_RANGES + 10; i++) {
		bed_post(op_write(&a, 1, 8192 * i, 1000, 0));
		bed_done_all();
		expect_ok(&a);
	}
	lose_all();
	cr_assert_leq(bed.s->poison.n, RP_SESSION_RANGES);
	for (uint64_t i = 0; i < RP_SESSION_RANGES + 10; i++)
		commit_says(8192 * i, 8, RP_ST_WRITE_FAILED);
}

/* A write that fails without a connection poisons its range, too. */
Test(session_poison, writes_without_a_connection_are_poisoned)
{
	lose_all();
	bed_lose_connection(ECONNRESET);
	bed_progress();
	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, 0)), -EAGAIN);
	bed_refuse(RP_ST_OVERLOADED, 0);
	bed_progress();
	bed_post(op_write(&a, 1, 0, 64, 0));
	expect_status(&a, RP_ST_OVERLOADED);
	bed_open(1);
	commit_says(0, 8, RP_ST_WRITE_FAILED);
}

Test(session_poison, refused_writes_are_poisoned)
{
	bed_post(op_write(&a, 1, BED_LEN - 8, 64, 0));
	expect_status(&a, RP_ST_RANGE);
	commit_says(BED_LEN - 8, 8, RP_ST_WRITE_FAILED);
	bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE));
	bed_see();
	bed_reply(bed.last->hdr.token, RP_ST_OVERLOADED);
	expect_status(&a, RP_ST_OVERLOADED);
	commit_says(0, 8, RP_ST_WRITE_FAILED);
}

/* A delivered write proves its own placement, not that of later writes. */
Test(session_poison, delivered_write_proves_itself_alone)
{
	static struct rp_wire_range two[2];

	two[0] = bed_range(1, 0, 2048);
	two[1] = bed_range(1, 65536, 2048);
	op_write(&a, 1, 0, 4096, RP_LEVEL_VISIBLE)->ranges = two;
	a.op.nranges = 2;
	bed_post(&a.op);
	bed_post(op_write(&b, 1, 8192, 4096, 0));
	bed_done(2);
	expect_ok(&a);
	lose_all();
	commit_says(0, 2048, RP_ST_OK);
	commit_says(65536, 2048, RP_ST_OK);
	commit_says(8192, 8, RP_ST_WRITE_FAILED);
}

/* A failing store does not fail a commit that was posted before it. */
Test(session_poison, failing_store_fails_no_commit_in_front_of_it)
{
	bed_post(op_commit_one(&b, 1, 0, 64));
	bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE));
	bed_reply(2, RP_ST_OVERLOADED);
	expect_status(&a, RP_ST_OVERLOADED);
	bed_reply(1, RP_ST_OK);
	expect_ok(&b);
}

/* A later reply proves placement, but the write's own reply is lost. */
Test(session_poison, durable_write_that_is_lost_is_poisoned_wherever_it_is)
{
	bed_post(op_write(&a, 1, 0, 8192, RP_LEVEL_DURABLE));
	bed_post(op_commit_one(&b, 1, 65536, 8));
	bed_done_all();
	bed_reply(2, RP_ST_OK);
	expect_ok(&b);
	lose_all();
	expect_status(&a, RP_ST_LOST);
	commit_says(8184, 8, RP_ST_WRITE_FAILED);
	bed_post(op_write(&a, 1, 0, 8192, 0));
	bed_see();
	commit_says(0, 8192, RP_ST_OK);
}

/* The first range's acknowledgement does not prove the second's. */
Test(session_poison, first_delivered_range_proves_itself_alone)
{
	static struct rp_wire_range two[2];

	two[0] = bed_range(1, 0, 64);
	two[1] = bed_range(1, 4096, 64);
	op_write(&a, 1, 0, 128, RP_LEVEL_VISIBLE)->ranges = two;
	a.op.nranges = 2;
	bed_post(&a.op);
	cr_assert(bed_see_kind(RP_CHANNEL_WRITE)->delivered);
	bed_done(1);
	cr_assert(rp_session_has_unplaced(bed.s));
	bed_done(1);
	expect_ok(&a);
	cr_assert_not(rp_session_has_unplaced(bed.s));
}

/* A reply to a write's commit proves placement, even a failure. */
Test(session_poison, write_with_a_failed_commit_is_not_poisoned)
{
	bed_post(op_write(&a, 1, 0, 8192, RP_LEVEL_DURABLE));
	bed_done_all();
	bed_see();
	bed_see();
	bed_reply(bed.last->hdr.token, RP_ST_CLASS);
	expect_status(&a, RP_ST_CLASS);
	commit_says(0, 8192, RP_ST_OK);
}

Test(session_poison, failed_atomics_and_ordered_stores_are_poisoned)
{
	bed_post(op_atomic(&a, 1, 0));
	bed_see();
	bed_reply(bed.last->hdr.token, RP_ST_ALIGN);
	expect_status(&a, RP_ST_ALIGN);
	commit_says(0, 8, RP_ST_WRITE_FAILED);
	/* An atomic depends on the old value, so it cures nothing. */
	bed_post(op_atomic(&a, 1, 0));
	bed_see();
	bed_ok();
	commit_says(0, 8, RP_ST_WRITE_FAILED);
	bed_post(op_then(&b, 1, 64, 64, 256));
	bed_see();
	bed_reply(bed.last->hdr.token, RP_ST_FLUSH_FAILED);
	expect_status(&b, RP_ST_FLUSH_FAILED);
	commit_says(64, 64, RP_ST_OK);
	commit_says(256, 8, RP_ST_WRITE_FAILED);
	/* A store that succeeds is a write of its 8 bytes. */
	bed_post(op_then(&b, 1, 64, 64, 256));
	bed_see();
	bed_ok();
	commit_says(256, 8, RP_ST_OK);
}

Test(session_poison, an_ordered_store_behind_a_lost_one_replaces_its_bytes)
{
	uint64_t token;

	bed_post(op_then(&a, 1, 64, 64, 256));
	token = bed_see()->hdr.token;
	bed_post(op_then(&b, 1, 128, 64, 256));
	bed_reply(token, RP_ST_FLUSH_FAILED);
	expect_status(&a, RP_ST_FLUSH_FAILED);
	bed_see();
	bed_ok();
	commit_says(256, 8, RP_ST_OK);
}

/* A failed store fails the commits behind it until another write. */
Test(session_poison, failing_store_fails_commits_behind_it)
{
	bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE));
	bed_post(op_commit_one(&b, 1, 32, 64));
	bed_post(op_write(&c, 1, 0, 64, RP_LEVEL_DURABLE));
	bed_post(op_commit_one(&d, 1, 32, 64));
	bed_reply(1, RP_ST_OVERLOADED);
	for (uint64_t t = 2; t <= 4; t++)
		bed_reply(t, RP_ST_OK);
	expect_status(&a, RP_ST_OVERLOADED);
	expect_status(&b, RP_ST_WRITE_FAILED);
	cr_assert_eq(b.out.detail, 0);
	cr_assert_eq(b.out.range, 0);
	expect_ok(&c);
	expect_ok(&d);
	for (int i = 0; i < 4; i++)
		bed_see();
	commit_says(0, 64, RP_ST_OK);
}

/* If its commit fails, the ordered store is poisoned. */
Test(session_poison, ordered_store_is_poisoned_when_its_commit_fails)
{
	fill_ranges(400);
	op_commit(&a, many, 400)->effect = RP_EFFECT_THEN;
	a.op.then = (struct rp_wire_then){bed_key(1), BED_ADDR + 65536, 1};
	bed_post(&a.op);
	bed_post(op_commit_one(&b, 1, 65536, 8));
	bed_post(op_commit_one(&c, 1, 65544, 8));
	bed_done_all();
	bed_reply(1, RP_ST_FLUSH_FAILED);
	expect_pending(&a); /* the second slice has no reply */
	expect_status(&b, RP_ST_WRITE_FAILED);
	bed_reply(3, RP_ST_OK);
	expect_ok(&c);
	/* Another write removes the poison before the commit ends. */
	bed_post(op_write(&d, 1, 65536, 8, RP_LEVEL_DURABLE));
	bed_reply(4, RP_ST_OK);
	expect_ok(&d);
	bed_reply(2, RP_ST_OK);
	expect_status(&a, RP_ST_FLUSH_FAILED);
	bed_post(op_commit_one(&b, 1, 65536, 8));
	bed_reply(5, RP_ST_OK);
	expect_ok(&b);
}

/*
 * The target refuses the flush of a write, and executes the commit behind it.
 * The connection ends before the channel has called done() of the refused
 * request.
 */
Test(session_poison, ordered_store_behind_a_refused_write_is_indeterminate)
{
	bed.chan.inject = 0;
	bed_post(op_write(&a, 1, 0, 8192, RP_LEVEL_DURABLE));
	bed_post(op_then(&b, 1, 0, 64, 65536));
	bed_done(1); /* the write's RDMA */
	bed_reply(1, RP_ST_OVERLOADED);
	expect_pending(&a);
	bed_lose_connection(ECONNRESET);
	bed_progress();
	expect_status(&a, RP_ST_OVERLOADED);
	expect_status(&b, RP_ST_INDETERMINATE);
	while (bed_see())
		;
	bed_open(1);
	commit_says(65536, 8, RP_ST_WRITE_FAILED);
}

/* A commit that has failed completes without waiting for other stores. */
Test(session_poison, failed_commit_ends_at_once)
{
	bed_post(op_atomic(&a, 1, 0));
	bed_post(op_atomic(&b, 1, 64));
	bed_post(op_commit_one(&c, 1, 0, 128));
	bed_reply(3, RP_ST_OK);
	bed_reply(2, RP_ST_ALIGN);
	expect_status(&c, RP_ST_WRITE_FAILED);
	expect_pending(&a);
}

/* --- indeterminate outcomes --- */

static void lose_after_post(struct rp_op *op, enum rp_status st, bool poisons,
			    uint64_t off)
{
	struct report *t = (struct report *)op;

	bed_post(op);
	bed_lose_connection(ECONNRESET);
	bed_progress();
	expect_status(t, st);
	cr_assert_eq(t->out.detail,
		     st == RP_ST_INDETERMINATE ? RP_ST_LOST : ECONNRESET);
	cr_assert_eq(t->out.range, 0);
	while (bed_see())
		;
	bed_open(1);
	commit_says(off, 8, poisons ? RP_ST_WRITE_FAILED : RP_ST_OK);
}

Test(session_poison, lost_effects_are_indeterminate)
{
	struct rp_op *op;

	lose_after_post(op_then(&a, 1, 0, 64, 128), RP_ST_INDETERMINATE, true,
			128);
	lose_after_post(op_atomic(&a, 1, 256), RP_ST_INDETERMINATE, true, 256);
	op = op_commit_one(&a, 1, 512, 64);
	op->effect = RP_EFFECT_NOTIFY;
	lose_after_post(op, RP_ST_INDETERMINATE, false, 512);
	op = op_write(&a, 1, 1024, 64, RP_LEVEL_DURABLE);
	op->effect = RP_EFFECT_NOTIFY;
	lose_after_post(op, RP_ST_INDETERMINATE, true, 1024);
	/* Operations that can be repeated do not become indeterminate. */
	lose_after_post(op_write(&a, 1, 2048, 64, RP_LEVEL_DURABLE), RP_ST_LOST,
			true, 2048);
	lose_after_post(op_commit_one(&a, 1, 4096, 64), RP_ST_LOST, false,
			4096);
	op = op_atomic(&a, 1, 8192);
	op->atomic.op = RP_ATOMIC_READ;
	lose_after_post(op, RP_ST_LOST, false, 8192);
}

Test(session_poison, unsent_effects_that_are_lost_are_not_done)
{
	struct rp_op *op;

	bed.room = 0;
	lose_after_post(op_then(&a, 1, 0, 64, 1 << 22), RP_ST_LOST, true,
			1 << 22);
	bed.room = -1;
	commit_says(65536, 8, RP_ST_OK);
	/* All slices are sent except the last one. */
	fill_ranges(400);
	op = op_commit(&a, many, 400);
	op->effect = RP_EFFECT_NOTIFY;
	lose_after_post(op, RP_ST_LOST, false, 1 << 20);
	/* The write is sent, but not the REQUEST behind it. */
	bed.room = 1;
	op = op_write(&a, 1, 1 << 21, 64, RP_LEVEL_DURABLE);
	op->effect = RP_EFFECT_NOTIFY;
	bed_post(op);
	bed_lose_connection(ECONNRESET);
	bed.room = -1;
	bed_progress();
	expect_status(&a, RP_ST_LOST);
}

/* A write with refused remote CQ data fails, although it is placed. */
Test(session_poison, write_without_its_data_has_failed)
{
	op_write(&a, 1, 0, 8192, RP_LEVEL_VISIBLE)->effect = RP_EFFECT_NOTIFY;
	bed_post(&a.op);
	bed_post(op_commit_one(&b, 1, 8, 8));
	bed_done_all();
	bed_see();
	bed_see();
	bed_reply(bed.last->hdr.token, RP_ST_UNSUPPORTED);
	expect_status(&a, RP_ST_UNSUPPORTED);
	bed_see();
	bed_ok();
	expect_status(&b, RP_ST_WRITE_FAILED);
	commit_says(0, 8, RP_ST_WRITE_FAILED);
	commit_says(8192, 8, RP_ST_OK);
}

/* An effect whose reply has arrived is not indeterminate. */
Test(session_poison, effect_with_a_reply_is_determinate)
{
	bed.inject = 0;
	bed_stop();
	bed_start(NULL);
	bed.inject = 0;
	bed_open(1);
	bed_post(op_then(&a, 1, 0, 64, 128));
	bed_reply(1, RP_ST_OK);
	expect_pending(&a);
	bed_lose_connection(ECONNRESET);
	bed_progress();
	expect_ok(&a);
}

/* The reply has arrived, but not the acknowledgement of the bytes. */
Test(session_poison, effect_of_a_lost_write_is_indeterminate)
{
	for (int refused = 0; refused < 2; refused++) {
		op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE)->effect =
			RP_EFFECT_NOTIFY;
		bed_post(&a.op);
		bed_see_kind(RP_CHANNEL_WRITE);
		bed_see_request(RP_EFFECT_NOTIFY);
		bed_reply(bed.last->hdr.token,
			  refused ? RP_ST_UNSUPPORTED : RP_ST_OK);
		expect_pending(&a);
		lose_all();
		expect_status(&a, refused ? RP_ST_UNSUPPORTED
					  : RP_ST_INDETERMINATE);
	}
}

Test(session_poison, timeout_leaves_effects_indeterminate)
{
	bed_post(op_then(&a, 1, 0, 64, 128));
	bed_post(op_commit_one(&b, 1, 0, 64));
	bed_progress();
	bed_advance_clock(BED_TIMEOUT);
	expect_status(&a, RP_ST_INDETERMINATE);
	cr_assert_eq(a.out.detail, RP_ST_TIMEOUT);
	expect_status(&b, RP_ST_TIMEOUT);
}

/* --- every state edge --- */

static void take_all_edges(void)
{
	/* Leave QUEUED: invalid range, failed earlier store, or loss. */
	bed_post(op_commit_one(&a, 1, BED_LEN, 64));
	expect_status(&a, RP_ST_RANGE);
	bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE));
	bed_post(op_then(&b, 1, 0, 64, 4096));
	bed_see();
	bed_reply(bed.last->hdr.token, RP_ST_FLUSH_FAILED);
	expect_status(&b, RP_ST_WRITE_FAILED);
	/* Leave DATA: plain, durable, or lost before it is posted. */
	bed_post(op_write(&a, 1, 0, 8192, RP_LEVEL_DURABLE));
	bed_done_all();
	bed_see();
	bed_see();
	bed_ok();
	expect_ok(&a);
	bed_post(op_write(&a, 1, 0, 8192, 0));
	bed_done_all();
	expect_ok(&a);
	bed.room = 0;
	bed_post(op_write(&a, 1, 0, 8192, 0));
	lose_all();
	bed.room = -1;
	op_write(&a, 1, 0, 8192, RP_LEVEL_VISIBLE)->effect = RP_EFFECT_NOTIFY;
	bed_post(&a.op);
	bed_done_all();
	bed_see();
	bed_see();
	bed_ok();
	expect_ok(&a);
	/*
	 * Leave SLICES: to be deferred, directly to the last slice, by a loss
	 * without a credit.
	 */
	fill_ranges(400);
	op_commit(&a, many, 400)->effect = RP_EFFECT_NOTIFY;
	bed_post(&a.op);
	for (int i = 0; i < 3; i++) {
		bed_done_all();
		bed_see();
		if (!bed.last)
			bed_see();
		bed_reply(bed.last->hdr.token, RP_ST_OK);
	}
	bed_done_all();
	expect_ok(&a);
	op_commit(&a, many, 8)->effect = RP_EFFECT_NOTIFY;
	bed_post(&a.op);
	bed_see();
	bed_ok();
	bed_done_all();
	expect_ok(&a);
	/* Leave REPLIES: by a failed slice, by a loss. */
	for (int lost = 0; lost < 2; lost++) {
		op_commit(&a, many, 200)->effect = RP_EFFECT_NOTIFY;
		bed_post(&a.op);
		bed_done_all();
		bed_see();
		if (lost)
			lose_all();
		else
			bed_reply(bed.last->hdr.token, RP_ST_REGION_FAILED);
		expect_status(&a, lost ? RP_ST_LOST : RP_ST_REGION_FAILED);
		cr_assert_eq(rp_session_state(bed.s), RP_SESSION_OPEN);
	}
	bed_stop();
	bed_start(NULL);
	bed.credits = 1;
	bed_open(1);
	fill_ranges(400);
	bed_post(op_commit(&a, many, 400));
	bed_post(op_query(&b, 1));
	lose_all();
	/* Leave LAST: by a loss while it has no credit. */
	bed_post(op_query(&a, 1));
	bed_post(op_query(&b, 1));
	bed_post(op_query(&c, 1));
	lose_all();
	expect_status(&b, RP_ST_LOST);
	expect_status(&c, RP_ST_LOST);
}

Test(session_poison, every_edge_is_taken)
{
	take_all_edges();
	for (int i = 0; i < RP_OP_STATES; i++)
		for (int j = 0; j < RP_OP_STATES; j++)
			if (bed_legal[i] & 1u << j)
				cr_assert(bed_edges[i][j],
					  "the edge from %d to %d", i, j);
}

/* --- state edges in docs/protocol.md --- */

static const char *const state_names[RP_OP_STATES] = {
	[RP_OP_NEW] = "NEW",	     [RP_OP_QUEUED] = "QUEUED",
	[RP_OP_DATA] = "DATA",	     [RP_OP_SLICES] = "SLICES",
	[RP_OP_REPLIES] = "REPLIES", [RP_OP_LAST] = "LAST",
	[RP_OP_POSTED] = "POSTED",   [RP_OP_ENDED] = "ENDED",
};

/* The states in a comma-separated list of names, as a bit mask. */
static unsigned int states_of(char *names)
{
	unsigned int states = 0;
	char *at;

	for (char *n = strtok_r(names, " ,|\n", &at); n;
	     n = strtok_r(NULL, " ,|\n", &at)) {
		int i = 0;

		while (i < RP_OP_STATES && strcmp(n, state_names[i]))
			i++;
		cr_assert_lt(i, RP_OP_STATES, "no state is named %s", n);
		states |= 1u << i;
	}
	return states;
}

Test(session_poison, edges_of_the_document_are_those_of_the_code)
{
	FILE *f = fopen(RP_SRCDIR "/docs/protocol.md", "r");
	char line[512], name[16], list[256];
	bool inside = false;
	int n = 0;

	cr_assert_not_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (strstr(line, "<!-- edges: "))
			inside = true;
		if (!inside || line[0] == '<' || line[0] == '\n' ||
		    strstr(line, "| state |") || strstr(line, "|---"))
			continue;
		if (line[0] != '|')
			break;
		cr_assert_lt(n, RP_OP_STATES, "%s", line);
		*list = '\0';
		cr_assert_geq(
			sscanf(line, "| %15s | %*[^|] | %255[^|]", name, list),
			1, "%s", line);
		cr_assert_eq(strcmp(name, state_names[n]), 0, "%s", line);
		cr_assert_eq(states_of(list), bed_legal[n], "%s", line);
		n++;
	}
	fclose(f);
	cr_assert_eq(n, RP_OP_STATES);
}
