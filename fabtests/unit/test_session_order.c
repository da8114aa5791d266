/* SPDX-License-Identifier: BSD-2-Clause */
/* Order of a session's operations: credits, room, stores, placement. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/atomic.h"
#include "core/log.h"
#include "session_bed.h"

static struct report a, b, c, d, many[16];

static void drop_log_line(enum rp_log_level level, const char *text)
{
}

static void start(void)
{
	rp_log_set(drop_log_line);
	bed_start(NULL);
	bed_open(1);
}

TestSuite(session_order, .init = start, .fini = bed_stop);

/* --- order, credits, room --- */

Test(session_order, operations_leave_in_the_order_of_posting)
{
	bed.room = 0;
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_post(op_commit_one(&b, 1, 0, 4096));
	bed_post(op_read(&c, 1, 8192, 64));
	bed_post(op_write(&d, 1, 16384, 64, RP_LEVEL_DURABLE));
	bed_see_nothing();
	/* No event reports room in the channel: a deadline retries. */
	cr_assert_eq(rp_session_deadline(bed.s), bed.now + BED_MS);
	bed.room = 1;
	bed_progress();
	bed_see_kind(RP_CHANNEL_WRITE);
	bed_see_nothing();
	bed.room = -1;
	bed_progress();
	bed_see_request(RP_EFFECT_NONE);
	bed_see_kind(RP_CHANNEL_READ);
	bed_see_request(RP_EFFECT_STORE);
	bed_see_nothing();
	cr_assert_eq(rp_session_deadline(bed.s), bed.now + BED_TIMEOUT);
}

/* The channel may have room for the WRITE but not for its REQUEST. */
Test(session_order, half_posted_operation_goes_on)
{
	bed.room = 1;
	bed_post(op_write(&a, 1, 0, 8192, RP_LEVEL_DURABLE));
	bed_post(op_write(&b, 1, 16384, 8192, 0));
	bed_see_kind(RP_CHANNEL_WRITE);
	bed_see_nothing();
	bed.room = -1;
	bed_done(1);
	bed_see_request(RP_EFFECT_NONE);
	bed_ok();
	bed_see_kind(RP_CHANNEL_WRITE);
	expect_ok(&a);
}

Test(session_order, no_more_requests_than_credits)
{
	bed_stop();
	bed_start(NULL);
	bed.credits = 2;
	bed_open(1);
	for (int i = 0; i < 4; i++)
		bed_post(op_commit_one(&many[i], 1, 64 * i, 64));
	bed_see();
	bed_see();
	bed_see_nothing();
	bed_reply(2, RP_ST_OK);
	bed_see_request(RP_EFFECT_NONE);
	cr_assert_eq(bed.last->ranges[0].addr, BED_ADDR + 128);
	bed_see_nothing();
}

Test(session_order, no_more_stores_than_credits)
{
	bed_stop();
	bed_start(NULL);
	bed.credits = 2;
	bed_open(1);
	for (int i = 0; i < 4; i++)
		bed_post(op_write(&many[i], 1, 64 * i, 64, RP_LEVEL_DURABLE));
	bed_see_request(RP_EFFECT_STORE);
	bed_see_request(RP_EFFECT_STORE);
	bed_see_nothing();
	bed_reply(1, RP_ST_OK);
	bed_see_request(RP_EFFECT_STORE);
	bed_see_nothing();
}

/*
 * A request that lacks a credit waits for a reply. Room in the channel would
 * not help, so the session sets no deadline to try again.
 */
Test(session_order, request_without_a_credit_is_not_retried)
{
	bed_stop();
	bed_start(NULL);
	bed.credits = 1;
	bed_open(1);
	bed.room = 0;
	bed_post(op_commit_one(&a, 1, 0, 64));
	bed_post(op_commit_one(&b, 1, 64, 64));
	bed.room = -1;
	bed_progress();
	bed_see_request(RP_EFFECT_NONE);
	bed_see_nothing();
	cr_assert_eq(rp_session_deadline(bed.s), bed.now + BED_TIMEOUT);
}

/* More than the table of tokens has buckets. */
Test(session_order, replies_find_their_requests)
{
	struct rp_session_attr attr = bed_attr();
	static struct report more[2 * RP_SESSION_TOKEN_BUCKETS];
	const unsigned int n = 2 * RP_SESSION_TOKEN_BUCKETS;

	bed_stop();
	attr.max_commits = n;
	bed_start(&attr);
	bed.credits = n;
	bed_open(1);
	for (unsigned int i = 0; i < n; i++)
		bed_post(op_commit_one(&more[i], 1, 64 * i, 64));
	for (unsigned int i = 0; i < n; i++) {
		bed_reply(1 + i, RP_ST_OK);
		expect_ok(&more[i]);
	}
}

Test(session_order, replies_change_the_credits)
{
	struct rp_wire_reply m = {
		.level = RP_LEVEL_DURABLE,
		.class = RP_CLASS_POWER,
		.credits = 3,
	};

	bed_stop();
	bed_start(NULL);
	bed.credits = 1;
	bed_open(1);
	for (int i = 0; i < 6; i++)
		bed_post(op_commit_one(&many[i], 1, 64 * i, 64));
	bed_see();
	bed_see_nothing();
	bed_reply_as(1, &m);
	for (int i = 0; i < 3; i++)
		bed_see_request(RP_EFFECT_NONE);
	bed_see_nothing();
	/* 0 credits leave the number as it was. */
	bed_reply(2, RP_ST_OK);
	bed_see_request(RP_EFFECT_NONE);
}

/* QUERYs take credits, too. */
Test(session_order, queries_take_credits)
{
	bed_stop();
	bed_start(NULL);
	bed.credits = 1;
	bed_open(1);
	bed.replies = false;
	bed_post(op_commit_one(&a, 1, 0, 64));
	bed_post(op_query(&b, 1));
	cr_assert_eq(bed_post_result(op_commit_one(&c, 2, 0, 64)), -EAGAIN);
	bed_see();
	bed_see_nothing();
	bed_reply(1, RP_ST_OK);
	cr_assert_eq(bed_see_kind(RP_CHANNEL_SEND)->query.key, bed_key(1));
	bed_see_nothing();
	bed_info(2, RP_ST_OK, bed_key(1));
	cr_assert_eq(bed_see_kind(RP_CHANNEL_SEND)->query.key, bed_key(2));
	bed_info(3, RP_ST_OK, bed_key(2));
	bed_post(op_commit_one(&c, 2, 0, 64));
	expect_ok(&a);
	expect_ok(&b);
}

/* INFO follows no write: a query behind a write leaves it unplaced. */
Test(session_order, query_proves_no_placement)
{
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_see_kind(RP_CHANNEL_WRITE);
	bed_done_all();
	bed.replies = false;
	bed_post(op_query(&b, 1));
	bed_info(bed_see_kind(RP_CHANNEL_SEND)->hdr.token, RP_ST_OK,
		 bed_key(1));
	expect_ok(&b);
	cr_assert(rp_session_has_unplaced(bed.s));
	bed_see_request(RP_EFFECT_NONE);
	bed_ok();
	cr_assert(!rp_session_has_unplaced(bed.s));
}

Test(session_order, max_commits_bounds_what_is_accepted)
{
	for (int i = 0; i < 8; i++)
		bed_post(op_commit_one(&many[i], 1, 64 * i, 64));
	cr_assert_eq(bed_post_result(op_commit_one(&a, 1, 0, 64)), -EAGAIN);
	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE)),
		     -EAGAIN);
	cr_assert_eq(bed_post_result(op_atomic(&a, 1, 0)), -EAGAIN);
	cr_assert_eq(bed_post_result(op_query(&a, 1)), -EAGAIN);
	op_commit_one(&a, 1, 0, 64)->level = RP_LEVEL_VISIBLE;
	cr_assert_eq(bed_post_result(&a.op), -EAGAIN);
	op_write(&a, 1, 0, 64, RP_LEVEL_VISIBLE)->effect = RP_EFFECT_NOTIFY;
	cr_assert_eq(bed_post_result(&a.op), -EAGAIN);
	/* Plain writes and reads take no credits. */
	bed_post(op_write(&b, 1, 0, 4096, 0));
	bed_post(op_read(&c, 1, 8192, 4096));
	cr_assert_eq(rp_session_outstanding(bed.s), 10);
	bed_reply(1, RP_ST_OK);
	bed_post(op_commit_one(&a, 1, 0, 64));
}

/* The queue is bounded, because operations take memory. */
Test(session_order, queue_of_plain_operations_is_bounded)
{
	bed.room = 0;
	for (int i = 0; i < 8; i++)
		bed_post(op_write(&many[i], 1, 8192 * i, 4096, 0));
	cr_assert_eq(bed_post_result(op_write(&a, 1, 0, 4096, 0)), -EAGAIN);
	cr_assert_eq(bed_post_result(op_read(&a, 1, 0, 4096)), -EAGAIN);
	bed.room = -1;
	bed_progress();
	bed_post(op_write(&a, 1, 0, 4096, 0));
}

/* --- bytes that the target's CPU still stores --- */

static void waits_for_a(struct rp_op *op, bool waits)
{
	bed_post(op);
	if (waits)
		bed_see_nothing();
	else
		cr_assert(bed_see());
	/* Operations on other bytes wait for their turn as well. */
	bed_post(op_read(&d, 1, 65536, 8));
	if (waits)
		bed_see_nothing();
	bed_reply(1, RP_ST_OK);
	if (waits)
		cr_assert(bed_see());
	expect_ok(&a);
	bed_stop();
	start();
}

/*
 * The agent executes a store after it has received the message; RDMA that is
 * posted later may be placed before.
 */
Test(session_order, rdma_waits_for_stores_of_its_bytes)
{
	struct {
		uint64_t off;
		bool waits;
	} at[] = {{0, true}, {63, true}, {64, false}, {4096, false}};

	for (size_t i = 0; i < 4; i++) {
		bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE));
		bed_see();
		waits_for_a(op_write(&b, 1, at[i].off, 4000, 0), at[i].waits);
		bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE));
		bed_see();
		waits_for_a(op_read(&b, 1, at[i].off, 8), at[i].waits);
		bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE));
		bed_see();
		waits_for_a(op_write(&b, 1, at[i].off, 8000, RP_LEVEL_DURABLE),
			    at[i].waits);
	}
	bed_post(op_atomic(&a, 1, 0));
	bed_see();
	waits_for_a(op_read(&b, 1, 4, 8), true);
	bed_post(op_atomic(&a, 1, 0));
	bed_see();
	waits_for_a(op_write(&b, 1, 4, 4096, 0), true);
	/* The same offsets in another region do not conflict. */
	bed_post(op_query(&c, 2));
	bed_see();
	bed_info(1, RP_ST_OK, bed_key(2));
	bed_post(op_atomic(&a, 1, 0));
	bed_see();
	bed_post(op_write(&b, 2, 0, 4096, 0));
	bed_see_kind(RP_CHANNEL_WRITE);
}

/* With ordered writes, RDMA must not be visible before an earlier store. */
Test(session_order, ordered_write_waits_for_every_store)
{
	rp_session_set_endpoint(bed.s, 0, true);
	bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE));
	bed_see();
	waits_for_a(op_write(&b, 1, 4096, 4000, 0), true);
	rp_session_set_endpoint(bed.s, 0, true);
	bed_post(op_atomic(&a, 1, 0));
	bed_see();
	waits_for_a(op_write(&b, 1, 4096, 8000, RP_LEVEL_DURABLE), true);
	/* A read of other bytes cannot reveal the order. */
	rp_session_set_endpoint(bed.s, 0, true);
	bed_post(op_atomic(&a, 1, 0));
	bed_see();
	waits_for_a(op_read(&b, 1, 4096, 8), false);
}

/* The agent executes requests in order. */
Test(session_order, requests_do_not_wait_for_stores)
{
	bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE));
	bed_post(op_write(&b, 1, 0, 64, RP_LEVEL_DURABLE));
	bed_post(op_atomic(&c, 1, 0));
	bed_post(op_commit_one(&d, 1, 0, 64));
	bed_see_request(RP_EFFECT_STORE);
	bed_see_request(RP_EFFECT_STORE);
	bed_see_request(RP_EFFECT_ATOMIC);
	bed_see_request(RP_EFFECT_NONE);
}

/* An ordered store is executed once its ranges are durable, not before. */
Test(session_order, everything_waits_for_an_ordered_store_of_its_bytes)
{
	struct rp_op *op;

	bed_post(op_then(&a, 1, 0, 64, 128));
	bed_see();
	waits_for_a(op_write(&b, 1, 132, 64, RP_LEVEL_DURABLE), true);
	bed_post(op_then(&a, 1, 0, 64, 128));
	bed_see();
	waits_for_a(op_write(&b, 1, 0, 4096, 0), true);
	bed_post(op_then(&a, 1, 0, 64, 128));
	bed_see();
	waits_for_a(op_read(&b, 1, 128, 8), true);
	bed_post(op_then(&a, 1, 0, 64, 128));
	bed_see();
	waits_for_a(op_atomic(&b, 1, 128), true);
	bed_post(op_then(&a, 1, 0, 64, 128));
	bed_see();
	waits_for_a(op_commit_one(&b, 1, 0, 4096), true);
	bed_post(op_then(&a, 1, 0, 64, 128));
	bed_see();
	waits_for_a(op_then(&b, 1, 256, 64, 128), true);
	bed_post(op_then(&a, 1, 0, 64, 128));
	bed_see();
	waits_for_a(op_write(&b, 1, 136, 64, RP_LEVEL_DURABLE), false);
	bed_post(op_then(&a, 1, 0, 64, 128));
	bed_see();
	waits_for_a(op_commit_one(&b, 1, 0, 128), false);
	bed_post(op_then(&a, 1, 0, 64, 128));
	bed_see();
	op = op_then(&b, 1, 0, 64, 136);
	waits_for_a(op, false);
}

/* The store of a commit must not be overtaken by an earlier one. */
Test(session_order, ordered_store_waits_for_stores_of_its_bytes)
{
	bed_post(op_write(&a, 1, 128, 64, RP_LEVEL_DURABLE));
	bed_see();
	waits_for_a(op_then(&b, 1, 4096, 64, 184), true);
	bed_post(op_write(&a, 1, 128, 64, RP_LEVEL_DURABLE));
	bed_see();
	waits_for_a(op_then(&b, 1, 4096, 64, 192), false);
}

/* A QUERY is of a key, whatever else its range says. */
Test(session_order, query_waits_for_nothing)
{
	bed_post(op_then(&a, 1, 0, 64, 128));
	bed_see();
	op_query(&b, 1);
	b.range = bed_range(1, 0, 4096);
	bed_post(&b.op);
	cr_assert_eq(bed_see_kind(RP_CHANNEL_SEND)->hdr.type, RP_MSG_QUERY);
}

/* Each range counts. */
Test(session_order, rdma_waits_for_a_store_of_its_second_range)
{
	static struct rp_wire_range r[2];
	struct rp_op *op;

	r[0] = bed_range(1, 4096, 4000);
	r[1] = bed_range(1, 32, 4000);
	bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE));
	bed_see();
	op = op_write(&b, 1, 4096, 8000, 0);
	op->ranges = r;
	op->nranges = 2;
	waits_for_a(op, true);
}

/* The memory behind the ranges of an operation is not part of it. */
Test(session_order, ranges_behind_the_last_do_not_wait)
{
	static struct rp_wire_range r[2];
	struct rp_op *op;

	r[0] = bed_range(1, 4096, 4000);
	r[1] = bed_range(1, 0, 64);
	bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE));
	bed_see();
	op = op_write(&b, 1, 4096, 4000, 0);
	op->ranges = r;
	bed_post(op);
	bed_see_kind(RP_CHANNEL_WRITE);
}

/* --- placement --- */

Test(session_order, fence_proves_placement)
{
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_done_all();
	expect_ok(&a);
	bed_see();
	cr_assert(rp_session_has_unplaced(bed.s));
	bed_see_request(RP_EFFECT_NONE);
	cr_assert_eq(bed.last->req.level, RP_LEVEL_VISIBLE);
	cr_assert_eq(bed.last->req.nranges, 0);
	/* One fence is enough. */
	cr_assert(rp_session_has_unplaced(bed.s));
	cr_assert_eq(rp_session_outstanding(bed.s), 0);
	bed_ok();
	cr_assert(!rp_session_has_unplaced(bed.s));
	bed_see_nothing();
}

/* A fence does not cover writes posted after it. */
Test(session_order, fence_proves_earlier_writes_only)
{
	uint64_t token;

	bed_post(op_write(&a, 1, 0, 4096, 0));
	cr_assert(rp_session_has_unplaced(bed.s));
	bed_see();
	token = bed_see_request(RP_EFFECT_NONE)->hdr.token;
	bed_post(op_write(&b, 1, 8192, 4096, 0));
	bed_see();
	bed_reply(token, RP_ST_OK);
	cr_assert(rp_session_has_unplaced(bed.s));
	token = bed_see_request(RP_EFFECT_NONE)->hdr.token;
	bed_reply(token, RP_ST_OK);
	cr_assert(!rp_session_has_unplaced(bed.s));
}

/* An outstanding commit proves placement, so no fence is posted. */
Test(session_order, outstanding_proof_is_enough)
{
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_post(op_commit_one(&b, 1, 65536, 64));
	bed_see();
	bed_see();
	cr_assert(rp_session_has_unplaced(bed.s));
	bed_see_nothing();
	bed_reply(1, RP_ST_OK);
	cr_assert(!rp_session_has_unplaced(bed.s));
	bed_done_all();
	/* A delivered write, too, is unplaced until a read fence completes. */
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_post(op_write(&b, 1, 8192, 64, RP_LEVEL_VISIBLE));
	bed_see();
	bed_see();
	cr_assert(rp_session_has_unplaced(bed.s));
	bed_see_nothing();
	bed_done_all();
	cr_assert(!rp_session_has_unplaced(bed.s));
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_post(op_read(&b, 1, 8192, 64));
	cr_assert(rp_session_has_unplaced(bed.s));
	bed_done(1);
	cr_assert(rp_session_has_unplaced(bed.s));
	bed_done(1);
	cr_assert(!rp_session_has_unplaced(bed.s));
}

Test(session_order, flush_proves_placement)
{
	struct rp_session_attr attr = bed_attr();

	bed_stop();
	attr.native = true;
	bed_start(&attr);
	bed.method = RP_METHOD_NATIVE;
	bed.flags |= RP_CHANNEL_FLUSHES;
	bed_open(1);
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_post(op_commit_one(&b, 1, 0, 64));
	bed_see_kind(RP_CHANNEL_WRITE);
	bed_see_kind(RP_CHANNEL_FLUSH);
	cr_assert(rp_session_has_unplaced(bed.s));
	bed_see_nothing();
	bed_done_all();
	cr_assert(!rp_session_has_unplaced(bed.s));
}

/* The commit of a durable write proves its placement, so no fence is posted. */
Test(session_order, durable_write_proves_itself)
{
	bed_post(op_write(&a, 1, 0, 8192, RP_LEVEL_DURABLE));
	bed_see_kind(RP_CHANNEL_WRITE);
	bed_see_request(RP_EFFECT_NONE);
	cr_assert(rp_session_has_unplaced(bed.s));
	bed_see_nothing();
	bed_ok();
	cr_assert(!rp_session_has_unplaced(bed.s));
}

/* An operation that failed without a post proves nothing. */
Test(session_order, refused_commit_is_no_proof)
{
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_post(op_commit_one(&b, 1, BED_LEN, 64));
	expect_status(&b, RP_ST_RANGE);
	bed_see();
	cr_assert(rp_session_has_unplaced(bed.s));
	bed_see_request(RP_EFFECT_NONE);
}

Test(session_order, read_without_fencing_proves_nothing)
{
	bed_stop();
	bed_start(NULL);
	bed.flags = 0;
	bed_open(1);
	bed_post(op_write(&a, 1, 0, 4096, 0));
	bed_post(op_read(&b, 1, 8192, 64));
	bed_done_all();
	cr_assert(rp_session_has_unplaced(bed.s));
}

/* Stores are placed once their replies arrive. */
Test(session_order, outstanding_stores_are_unplaced)
{
	bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE));
	bed_see();
	cr_assert(rp_session_has_unplaced(bed.s));
	bed_see_nothing();
	bed_reply(1, RP_ST_OK);
	cr_assert(!rp_session_has_unplaced(bed.s));
	bed_post(op_atomic(&a, 1, 0));
	cr_assert(rp_session_has_unplaced(bed.s));
}

/* Scattered unplaced ranges take bounded memory. */
Test(session_order, many_unplaced_ranges_send_a_fence)
{
	for (int i = 0; i < RP_SESSION_RANGES; i++) {
		bed_see_nothing();
		a.times = 0;
		bed_post(op_write(&a, 1, 8192ull * (i % 2000), 1000, 0));
		bed_see_kind(RP_CHANNEL_WRITE);
		bed_done_all();
	}
	bed_see_request(RP_EFFECT_NONE);
	cr_assert_eq(bed.last->req.nranges, 0);
	cr_assert_eq(bed.last->req.level, RP_LEVEL_VISIBLE);
	/* One fence at a time. */
	bed_post(op_write(&a, 1, 64, 1000, 0));
	bed_done_all();
	bed_ok();
	bed_see_kind(RP_CHANNEL_WRITE);
	bed_see_nothing();
	bed_post(op_commit_one(&a, 1, 0, 64));
	bed_see();
	bed_ok();
	cr_assert(!rp_session_has_unplaced(bed.s));
}

Test(session_order, many_unplaced_bytes_send_a_fence)
{
	static uint8_t big[1 << 20];

	for (int i = 0; i <= 64; i++) {
		struct rp_op *op = op_write(&a, 1, 0, sizeof(big), 0);

		bed_see_nothing();
		op->iov[0].iov_base = big;
		bed_post(op);
		bed_see_kind(RP_CHANNEL_WRITE);
		bed_done_all();
	}
	bed_see_request(RP_EFFECT_NONE);
}

/* --- reentrancy --- */

static unsigned int left;

static void post_chain(struct report *t)
{
	if (!left--)
		return;
	bed_post(op_write(t, 1, 0, 64, RP_LEVEL_DURABLE));
}

Test(session_order, done_may_post_the_operation_again)
{
	left = 9;
	a.then = post_chain;
	bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE));
	for (int i = 0; i < 10; i++) {
		bed_see_request(RP_EFFECT_STORE);
		bed_ok();
	}
	a.then = NULL;
	expect_ok(&a);
	bed_see_nothing();
}
