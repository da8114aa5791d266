/* SPDX-License-Identifier: BSD-2-Clause */
/* Commits of a session: slices, methods, effects, and every edge of an
 * operation. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/log.h"
#include "session_bed.h"

static struct report a, b, c, d;
static struct rp_wire_range many[5000];

static void drop_log_line(enum rp_log_level level, const char *text)
{
}

static void start(void)
{
	rp_log_set(drop_log_line);
	bed_start(NULL);
	bed_open(1);
}

TestSuite(session_commit, .init = start, .fini = bed_stop);

/* Descending ranges, which do not pack well. */
static void fill_ranges(size_t n)
{
	for (size_t i = 0; i < n; i++)
		many[i] = bed_range(1, 128 * (n - i), 64);
}

/* --- slices --- */

Test(session_commit, one_range_is_one_request)
{
	bed_post(op_commit_one(&a, 1, 64, 1 << 20));
	bed_see_request(RP_EFFECT_NONE);
	cr_assert_eq(bed.last->req.level, RP_LEVEL_DURABLE);
	cr_assert_eq(bed.last->req.nranges, 1);
	cr_assert_eq(bed.last->ranges[0].addr, BED_ADDR + 64);
	bed_see_nothing();
	bed_ok();
	expect_ok(&a);
	cr_assert_eq(a.out.class, RP_CLASS_POWER);
	cr_assert_eq(a.out.required, RP_CLASS_POWER);
}

Test(session_commit, many_ranges_are_cut)
{
	size_t seen = 0;

	fill_ranges(400);
	bed_post(op_commit(&a, many, 400));
	for (int i = 0; i < 3; i++) {
		const struct bed_seen *m = bed_see_request(RP_EFFECT_NONE);

		cr_assert_leq(m->req.nranges, RP_WIRE_MAX_RANGES);
		for (size_t j = 0; j < m->req.nranges; j++)
			cr_assert_eq(m->ranges[j].addr, many[seen + j].addr);
		seen += m->req.nranges;
		expect_pending(&a);
	}
	cr_assert_eq(seen, 400);
	bed_see_nothing();
	bed_done_all();
	bed_reply(2, RP_ST_OK);
	bed_reply(1, RP_ST_OK);
	expect_pending(&a);
	bed_reply(3, RP_ST_OK);
	expect_ok(&a);
}

/* Ascending ranges of one key are packed; more fit into a request. */
Test(session_commit, ascending_ranges_are_packed)
{
	for (int i = 0; i < 2000; i++)
		many[i] = bed_range(1, 128 * i, 64);
	bed_post(op_commit(&a, many, 2000));
	cr_assert_eq(bed_see_request(RP_EFFECT_NONE)->req.nranges,
		     RP_WIRE_MAX_PACKED);
	cr_assert_eq(bed_see_request(RP_EFFECT_NONE)->req.nranges,
		     2000 - RP_WIRE_MAX_PACKED);
	bed_see_nothing();
}

/* More slices than credits: replies release the next; later operations wait. */
Test(session_commit, slices_wait_for_credits)
{
	bed_stop();
	bed_start(NULL);
	bed.credits = 2;
	bed_open(1);
	fill_ranges(168 * 5);
	bed_post(op_commit(&a, many, 168 * 5));
	bed_post(op_read(&b, 1, 0, 64));
	for (uint64_t t = 1; t <= 5; t++) {
		cr_assert_eq(bed_see_request(RP_EFFECT_NONE)->hdr.token, t);
		if (t >= 2)
			bed_reply(t - 1, RP_ST_OK);
	}
	bed_see_kind(RP_CHANNEL_READ);
	bed_see_nothing();
	bed_done_all();
	expect_pending(&a);
	bed_reply(5, RP_ST_OK);
	expect_ok(&a);
}

/* After the first failure no slice is sent; the sent ones are awaited. */
Test(session_commit, first_failure_counts)
{
	bed_stop();
	bed_start(NULL);
	bed.credits = 2;
	bed_open(1);
	fill_ranges(168 * 5);
	bed_post(op_commit(&a, many, 168 * 5));
	bed_see();
	bed_see();
	bed_done_all();
	bed_reply_as(1, &(struct rp_wire_reply){.status = RP_ST_FLUSH_FAILED,
						.detail = EIO,
						.range = 3});
	bed_see_nothing();
	expect_pending(&a);
	bed_reply(2, RP_ST_REGION_FAILED);
	expect_status(&a, RP_ST_FLUSH_FAILED);
	cr_assert_eq(a.out.detail, EIO);
	cr_assert_eq(a.out.range, 3);
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_OPEN);
}

Test(session_commit, range_at_fault_is_counted_from_the_first)
{
	fill_ranges(400);
	bed_post(op_commit(&a, many, 400));
	bed_done_all();
	bed_reply(1, RP_ST_OK);
	bed_reply_as(
		2, &(struct rp_wire_reply){.status = RP_ST_RANGE, .range = 7});
	bed_reply(3, RP_ST_OK);
	expect_status(&a, RP_ST_RANGE);
	cr_assert_eq(a.out.range, 168 + 7);
	/* An impossible range number counts as 0. */
	bed_post(op_commit(&a, many, 400));
	bed_done_all();
	bed_reply_as(4, &(struct rp_wire_reply){.status = RP_ST_RANGE,
						.range = 168});
	bed_reply(5, RP_ST_OK);
	bed_reply(6, RP_ST_OK);
	expect_status(&a, RP_ST_RANGE);
	cr_assert_eq(a.out.range, 0);
}

/* A reply with a lower level or class than required is a failure. */
Test(session_commit, weaker_reply_is_a_failure)
{
	struct rp_wire_reply m = {
		.level = RP_LEVEL_VISIBLE,
		.class = RP_CLASS_POWER,
	};

	bed_post(op_commit_one(&a, 1, 0, 64));
	bed_reply_as(1, &m);
	expect_status(&a, RP_ST_CLASS);
	m.level = RP_LEVEL_DURABLE;
	m.class = RP_CLASS_PROCESS;
	bed_post(op_commit_one(&b, 1, 0, 64));
	bed_reply_as(2, &m);
	expect_status(&b, RP_ST_CLASS);
	cr_assert_eq(b.out.detail, RP_CLASS_PROCESS);
	op_commit_one(&c, 1, 0, 64)->required = RP_CLASS_PROCESS;
	bed_post(&c.op);
	bed_reply_as(3, &m);
	expect_ok(&c);
	cr_assert_eq(c.out.class, RP_CLASS_PROCESS);
}

/* A class that no message can carry is refused. */
Test(session_commit, class_that_is_none_is_refused)
{
	op_commit_one(&a, 1, 0, 64)->required = RP_CLASS_POWER + 1;
	bed_post(&a.op);
	bed_see_nothing();
	expect_status(&a, RP_ST_UNSUPPORTED);
	cr_assert_eq(a.out.detail, EINVAL);
	cr_assert_eq(a.out.range, 0);
}

/* A stale key ends the connection, and so what else is outstanding. */
Test(session_commit, stale_key_ends_the_connection)
{
	bed_post(op_commit_one(&a, 1, 0, 64));
	bed_post(op_commit_one(&b, 1, 64, 64));
	bed_reply(1, RP_ST_STALE_KEY);
	expect_status(&a, RP_ST_STALE_KEY);
	expect_status(&b, RP_ST_LOST);
	cr_assert_eq(b.out.detail, 0);
	cr_assert_eq(bed.ncloses, 1);
}

/* The outcome has the weakest class of all slices. */
Test(session_commit, weakest_class_is_reported)
{
	struct rp_wire_reply m = {
		.level = RP_LEVEL_DURABLE,
		.class = RP_CLASS_PROCESS,
	};

	fill_ranges(300);
	op_commit(&a, many, 300)->required = RP_CLASS_NONE;
	bed_post(&a.op);
	bed_done_all();
	bed_reply_as(1, &m);
	m.class = RP_CLASS_POWER;
	bed_reply_as(2, &m);
	expect_ok(&a);
	cr_assert_eq(a.out.class, RP_CLASS_PROCESS);
}

/* A visible commit proves placement by one request without ranges. */
Test(session_commit, visible_commit_is_a_plain_fence)
{
	fill_ranges(400);
	bed_post(op_write(&b, 1, 128, 4096, 0));
	op_commit(&a, many, 400)->level = RP_LEVEL_VISIBLE;
	bed_post(&a.op);
	bed_see();
	bed_see_request(RP_EFFECT_NONE);
	cr_assert_eq(bed.last->req.level, RP_LEVEL_VISIBLE);
	cr_assert_eq(bed.last->req.nranges, 0);
	bed_see_nothing();
	cr_assert(rp_session_has_unplaced(bed.s));
	bed_reply(1, RP_ST_OK);
	expect_ok(&a);
	/* It was not a commit: no method and no class. */
	cr_assert_eq(a.out.method, RP_METHOD_REFUSED);
	cr_assert_eq(a.out.class, RP_CLASS_NONE);
	cr_assert(!rp_session_has_unplaced(bed.s));
}

/* --- effects --- */

Test(session_commit, ordered_store_is_in_the_request)
{
	bed_post(op_then(&a, 1, 0, 64, 128));
	bed_see_request(RP_EFFECT_THEN);
	cr_assert_eq(bed.last->req.then.addr, BED_ADDR + 128);
	cr_assert_eq(bed.last->req.then.value, 42);
	cr_assert_eq(bed.last->req.nranges, 1);
	/* Range number nranges is the store. */
	bed_reply_as(
		1, &(struct rp_wire_reply){.status = RP_ST_ALIGN, .range = 1});
	expect_status(&a, RP_ST_ALIGN);
	cr_assert_eq(a.out.range, 1);
}

/* The last slice alone has the effect: all ranges are durable before. */
Test(session_commit, effect_is_in_the_last_slice_alone)
{
	fill_ranges(400);
	op_commit(&a, many, 400)->effect = RP_EFFECT_NOTIFY;
	bed_post(&a.op);
	bed_see_request(RP_EFFECT_NONE);
	bed_see_request(RP_EFFECT_NONE);
	bed_see_nothing();
	bed_done_all();
	bed_reply(2, RP_ST_OK);
	bed_see_nothing();
	bed_reply(1, RP_ST_OK);
	bed_see_request(RP_EFFECT_NOTIFY);
	cr_assert_eq(bed.last->req.nranges, 400 - 2 * 168);
	cr_assert_eq(bed.last->ranges[0].addr, many[2 * 168].addr);
	expect_pending(&a);
	bed_done_all();
	bed_reply(3, RP_ST_OK);
	expect_ok(&a);
}

Test(session_commit, effect_is_not_sent_behind_a_failure)
{
	fill_ranges(400);
	op_commit(&a, many, 400)->effect = RP_EFFECT_THEN;
	a.op.then = (struct rp_wire_then){bed_key(1), BED_ADDR, 1};
	bed_post(&a.op);
	bed_done_all();
	bed_reply(1, RP_ST_OK);
	/*
	 * Range 168 would be the ordered store, which is not in this REQUEST.
	 */
	bed_reply_as(2, &(struct rp_wire_reply){.status = RP_ST_FLUSH_FAILED,
						.range = 168});
	expect_status(&a, RP_ST_FLUSH_FAILED);
	cr_assert_eq(a.out.range, 168);
	bed_see_request(RP_EFFECT_NONE);
	bed_see_request(RP_EFFECT_NONE);
	bed_see_nothing();
}

/* Packing leaves room for the effect. */
Test(session_commit, effect_fits_behind_packed_ranges)
{
	uint64_t at = 0;
	size_t seen = 0;

	/* Gaps and lengths that need several bytes each. */
	for (size_t i = 0; i < 3000; i++) {
		many[i] = bed_range(1, at, 100 + (i * 7919) % 900);
		at += many[i].len + 150 + (i * 104729) % 3000;
	}
	op_commit(&a, many, 3000)->effect = RP_EFFECT_THEN;
	a.op.then =
		(struct rp_wire_then){bed_key(1), BED_ADDR + BED_LEN - 8, 1};
	bed_post(&a.op);
	while (seen < 3000) {
		const struct bed_seen *m = bed_see_kind(RP_CHANNEL_SEND);

		seen += m->req.nranges;
		cr_assert_eq(m->req.effect,
			     seen == 3000 ? RP_EFFECT_THEN : RP_EFFECT_NONE);
		bed_done_all();
		bed_ok();
	}
	expect_ok(&a);
}

/* As many bytes as one message takes, and a few more. */
Test(session_commit, effect_fits_behind_the_longest_list_of_ranges)
{
	bed_stop();
	bed_start(NULL);
	bed.length = 1ull << 32;
	bed_open(1);
	for (size_t i = 0; i < 1000; i++)
		many[i] = bed_range(1, 20000 * i, 200);
	for (size_t n = 800; n < 850; n++) {
		size_t seen = 0;

		op_commit(&a, many, n)->effect = RP_EFFECT_THEN;
		a.op.then = (struct rp_wire_then){bed_key(1), BED_ADDR, 1};
		bed_post(&a.op);
		while (seen < n) {
			seen += bed_see_kind(RP_CHANNEL_SEND)->req.nranges;
			bed_done_all();
			bed_ok();
		}
		expect_ok(&a);
	}
}

/* An effect waits for covered stores, because these may fail. */
Test(session_commit, effect_waits_for_covered_stores)
{
	bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE));
	bed_post(op_then(&b, 1, 32, 64, 4096));
	bed_see_request(RP_EFFECT_STORE);
	bed_see_nothing();
	bed_reply(1, RP_ST_FLUSH_FAILED);
	bed_see_nothing();
	expect_status(&a, RP_ST_FLUSH_FAILED);
	expect_status(&b, RP_ST_WRITE_FAILED);
	cr_assert_eq(b.out.range, 0);
	/* Stores of other bytes are not awaited. */
	bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE));
	bed_post(op_then(&b, 1, 64, 64, 8192));
	bed_see_request(RP_EFFECT_STORE);
	bed_see_request(RP_EFFECT_THEN);
}

/* Too many pairs of ranges are not looked at: the effect waits. */
Test(session_commit, effect_behind_too_many_ranges_waits_for_every_store)
{
	struct rp_op *op;

	for (int n = 4096; n <= 4097; n++) {
		bed_stop();
		start();
		bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE));
		bed_see_request(RP_EFFECT_STORE);
		for (int i = 0; i < n; i++)
			many[i] = bed_range(1, 4096 + 128 * i, 64);
		op = op_commit(&b, many, n);
		op->effect = RP_EFFECT_NOTIFY;
		bed_post(op);
		if (n == 4097)
			bed_see_nothing();
		else
			bed_see_request(RP_EFFECT_NONE);
	}
}

/* --- without the agent --- */

Test(session_commit, fence_commits_a_region_at_once)
{
	bed_open_alone(RP_METHOD_FENCE, 0);
	fill_ranges(400);
	bed_post(op_commit(&a, many, 400));
	bed_see_kind(RP_CHANNEL_READ);
	cr_assert_eq(bed.last->remote_addr,
		     BED_REMOTE + many[0].addr - BED_ADDR);
	bed_see_nothing();
	expect_pending(&a);
	bed_done_all();
	expect_ok(&a);
	cr_assert_eq(a.out.method, RP_METHOD_FENCE);
}

Test(session_commit, each_region_gets_one_fence)
{
	bed_open_alone(RP_METHOD_FENCE, 0);
	for (uint32_t i = 0; i < 6; i++)
		many[i] = bed_range(1 + i % 3, 64 * i, 64);
	bed_post(op_commit(&a, many, 6));
	for (uint32_t k = 1; k <= 3; k++)
		cr_assert_eq(bed_see_kind(RP_CHANNEL_READ)->rkey,
			     bed_key(k) ^ 0xff);
	bed_see_nothing();
	bed_done(2);
	expect_pending(&a);
	bed_done(1);
	expect_ok(&a);
	/* Each commit has its own fences. */
	bed_post(op_commit(&a, many, 2));
	bed_see_kind(RP_CHANNEL_READ);
	bed_see_kind(RP_CHANNEL_READ);
}

Test(session_commit, flush_commits_each_range)
{
	bed_open_alone(RP_METHOD_NATIVE, 0);
	fill_ranges(RP_SESSION_FLUSHES);
	bed_post(op_commit(&a, many, RP_SESSION_FLUSHES));
	for (int i = 0; i < RP_SESSION_FLUSHES; i++)
		cr_assert_eq(bed_see_kind(RP_CHANNEL_FLUSH)->remote_addr,
			     BED_REMOTE + many[i].addr - BED_ADDR);
	bed_see_nothing();
	bed_done_all();
	expect_ok(&a);
	cr_assert_eq(a.out.method, RP_METHOD_NATIVE);
	/* With more ranges one REQUEST is cheaper than FLUSHes. */
	fill_ranges(RP_SESSION_FLUSHES + 1);
	bed_post(op_commit(&a, many, RP_SESSION_FLUSHES + 1));
	bed_see_request(RP_EFFECT_NONE);
	bed_see_nothing();
}

Test(session_commit, longest_flush_is_what_devices_count)
{
	struct rp_session_attr attr = bed_attr();

	bed_stop();
	attr.native = true;
	bed_start(&attr);
	bed.method = RP_METHOD_NATIVE;
	bed.flags |= RP_CHANNEL_FLUSHES;
	bed.length = 1ull << 33;
	bed_open(1);
	bed_post(op_commit_one(&a, 1, 64, 1ull << 30));
	cr_assert_eq(bed_see_kind(RP_CHANNEL_FLUSH)->length, 1ull << 30);
	bed_post(op_commit_one(&b, 1, 64, (1ull << 30) + 1));
	bed_see_request(RP_EFFECT_NONE);
}

Test(session_commit, delivery_needs_a_proof_of_placement)
{
	bed_open_alone(RP_METHOD_DELIVERY, 0);
	/* No write is outstanding, so there is nothing to wait for. */
	bed_post(op_commit_one(&a, 1, 0, 64));
	expect_pending(&a);
	cr_assert_gt(bed.nkicks, 0);
	expect_ok(&a);
	cr_assert_eq(a.out.method, RP_METHOD_DELIVERY);
	bed_see_nothing();
	/* done() of an undelivered write proves no placement. */
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_done_all();
	bed_see();
	bed_post(op_commit_one(&b, 1, 0, 64));
	bed_see_kind(RP_CHANNEL_READ);
	bed_done_all();
	expect_ok(&b);
	cr_assert_eq(b.out.method, RP_METHOD_DELIVERY);
	/* Unplaced bytes in front of the range do not matter. */
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_see();
	bed_post(op_commit_one(&b, 1, 4096, 64));
	expect_ok(&b);
	bed_see_nothing();
	cr_assert(rp_session_has_unplaced(bed.s));
	bed_see_request(RP_EFFECT_NONE);
	bed_ok();
	bed_done_all();
	/* A delivered write is outstanding. */
	bed_post(op_write(&a, 1, 0, 4096, RP_LEVEL_VISIBLE));
	bed_see();
	bed_post(op_commit_one(&b, 1, 0, 64));
	bed_see_kind(RP_CHANNEL_READ);
	bed_done(1);
	expect_pending(&b);
	bed_done(1);
	expect_ok(&b);
	bed_post(op_commit_one(&b, 1, 0, 64));
	expect_ok(&b);
	bed_see_nothing();
	/* If reads do not fence, the agent gets a REQUEST. */
	bed.chan.flags &= ~RP_CHANNEL_FENCES;
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_see();
	bed_post(op_commit_one(&b, 1, 0, 64));
	bed_see_request(RP_EFFECT_NONE);
}

/* Regions of one commit may have different methods. */
Test(session_commit, each_key_uses_its_method)
{
	bed_open_alone(RP_METHOD_FENCE, 0);
	bed_post(op_read(&b, 1, 0, 8));
	bed.method = RP_METHOD_NATIVE;
	bed_post(op_read(&c, 2, 0, 8));
	bed.method = RP_METHOD_AGENT_MSYNC;
	bed_post(op_read(&d, 3, 0, 8));
	bed_done_all();
	for (int i = 0; i < 3; i++)
		bed_see_kind(RP_CHANNEL_READ);
	bed.method = RP_METHOD_FENCE;
	many[0] = bed_range(1, 0, 64);
	many[2] = bed_range(1, 4096, 64);
	bed.method = RP_METHOD_NATIVE;
	many[1] = bed_range(2, 64, 64);
	bed.method = RP_METHOD_AGENT_MSYNC;
	many[3] = bed_range(3, 0, 64);
	many[4] = bed_range(3, 64, 64);
	bed_post(op_commit(&a, many, 5));
	bed_see_kind(RP_CHANNEL_READ);
	bed_see_kind(RP_CHANNEL_FLUSH);
	bed_see_request(RP_EFFECT_NONE);
	cr_assert_eq(bed.last->req.nranges, 2);
	bed_see_nothing();
	bed_ok();
	bed_done(1);
	expect_pending(&a);
	bed_done(1);
	expect_ok(&a);
	/* Ranges for the agent end at the first that is not. */
	many[5] = many[0];
	bed_post(op_commit(&a, many + 3, 3));
	bed_see_request(RP_EFFECT_NONE);
	cr_assert_eq(bed.last->req.nranges, 2);
	bed_see_kind(RP_CHANNEL_READ);
	bed_see_nothing();
	/* Two messages of one commit are two. */
	many[6] = many[3];
	many[7] = many[0];
	many[8] = many[4];
	bed_post(op_commit(&c, many + 6, 3));
	bed_see_request(RP_EFFECT_NONE);
	cr_assert_eq(bed.last->ranges[0].addr, many[6].addr);
	bed_see_kind(RP_CHANNEL_READ);
	bed_see_request(RP_EFFECT_NONE);
	cr_assert_eq(bed.last->ranges[0].addr, many[8].addr);
	bed_see_nothing();
	/* A commit with an effect goes to the agent as a whole. */
	op_commit(&b, many, 5)->effect = RP_EFFECT_NOTIFY;
	bed_post(&b.op);
	cr_assert_eq(bed_see_request(RP_EFFECT_NOTIFY)->req.nranges, 5);
	bed_see_nothing();
}
