/* SPDX-License-Identifier: BSD-2-Clause */
/* Durable writes, reads and atomics of a session. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/log.h"
#include "session_bed.h"

static struct report a, b, c;

/* --- durable writes by their region's method --- */

Test(session_op, durable_write_by_request)
{
	struct rp_op *op = op_write(&a, 1, 64, 8192, RP_LEVEL_DURABLE);

	bed_post(op);
	bed_see_kind(RP_CHANNEL_WRITE);
	bed_see_request(RP_EFFECT_NONE);
	cr_assert_eq(bed.last->ranges[0].addr, BED_ADDR + 64);
	cr_assert_eq(bed.last->ranges[0].len, 8192);
	bed_see_nothing();
	bed_ok();
	expect_pending(&a);
	bed_done_all();
	expect_ok(&a);
	cr_assert(!rp_session_has_unplaced(bed.s));
}

Test(session_op, durable_write_by_fence)
{
	bed_open_alone(RP_METHOD_FENCE, 0);
	bed_post(op_write(&a, 1, 64, 64, RP_LEVEL_DURABLE));
	cr_assert(!bed_see_kind(RP_CHANNEL_WRITE)->delivered);
	bed_see_kind(RP_CHANNEL_READ);
	/* Inside the range, because a read elsewhere may not fence it. */
	cr_assert_eq(bed.last->remote_addr, BED_REMOTE + 64);
	cr_assert_eq(bed.last->length, 8);
	cr_assert_eq(bed.last->iov_count, 0);
	bed_see_nothing();
	bed_done(1);
	expect_pending(&a);
	bed_done(1);
	expect_ok(&a);
	cr_assert_eq(a.out.method, RP_METHOD_FENCE);
	cr_assert_eq(a.out.class, RP_CLASS_POWER);
	bed_post(op_write(&a, 1, 64, 3, RP_LEVEL_DURABLE));
	bed_see_kind(RP_CHANNEL_WRITE);
	cr_assert_eq(bed_see_kind(RP_CHANNEL_READ)->length, 3);
}

Test(session_op, durable_write_by_flush)
{
	bed_open_alone(RP_METHOD_NATIVE, 0);
	bed_post(op_write(&a, 1, 64, 6000, RP_LEVEL_DURABLE));
	bed_see_kind(RP_CHANNEL_WRITE);
	bed_see_kind(RP_CHANNEL_FLUSH);
	cr_assert_eq(bed.last->remote_addr, BED_REMOTE + 64);
	cr_assert_eq(bed.last->length, 6000);
	bed_see_nothing();
	bed_done(1);
	expect_pending(&a);
	bed_done(1);
	expect_ok(&a);
	cr_assert_eq(a.out.method, RP_METHOD_NATIVE);
}

Test(session_op, durable_write_by_delivery)
{
	bed_open_alone(RP_METHOD_DELIVERY, 0);
	bed_post(op_write(&a, 1, 64, 64, RP_LEVEL_DURABLE));
	cr_assert(bed_see_kind(RP_CHANNEL_WRITE)->delivered);
	bed_see_nothing();
	bed_done_all();
	expect_ok(&a);
	cr_assert_eq(a.out.method, RP_METHOD_DELIVERY);
}

/*
 * When data is posted for a commit by the agent, no acknowledgment of delivery
 * is asked for: delivery is then no method for it, even if the bytes of an
 * earlier connection are committed before its request has a credit.
 */
Test(session_op, write_posted_without_delivery_goes_to_the_agent)
{
	uint64_t token;

	bed_open_alone(RP_METHOD_DELIVERY, 0);
	bed_post(op_write(&a, 1, 0, 4096, RP_LEVEL_VISIBLE));
	bed_done_all();
	bed_lose_connection(ECONNRESET);
	bed_progress();
	bed.credits = 1;
	bed_open(1);
	/* As many ranges of the earlier connection as can be told apart. */
	for (uint64_t i = 0; i < 1023; i++) {
		bed_post(
			op_write(&a, 1, 4096 + i * 8192, 64, RP_LEVEL_DURABLE));
		bed_done_all();
		expect_ok(&a);
	}
	while (bed_see())
		;
	bed_post(op_commit_one(&a, 1, 0, BED_LEN));
	bed_post(op_write(&b, 1, 64, 64, RP_LEVEL_DURABLE));
	token = bed_see_request(RP_EFFECT_NONE)->hdr.token;
	cr_assert(!bed_see_kind(RP_CHANNEL_WRITE)->delivered);
	bed_see_nothing();
	bed_done_all();
	bed_reply(token, RP_ST_OK);
	expect_ok(&a);
	expect_pending(&b);
	bed_see_request(RP_EFFECT_NONE);
	bed_done_all();
	bed_ok();
	expect_ok(&b);
}

/* The agent replaces a method that channel, initiator or operator exclude. */
Test(session_op, excluded_method_goes_to_the_agent)
{
	struct rp_session_attr attr = bed_attr();
	static const struct {
		enum rp_method m;
		uint32_t flags;
		bool native;
		enum rp_method forced;
		bool alone;
	} cases[] = {
		{RP_METHOD_FENCE, RP_CHANNEL_FENCES, false, 0, true},
		{RP_METHOD_FENCE, 0, false, 0, false},
		{RP_METHOD_NATIVE, RP_CHANNEL_FLUSHES, true, 0, true},
		{RP_METHOD_NATIVE, 0, true, 0, false},
		{RP_METHOD_NATIVE, RP_CHANNEL_FLUSHES, false, 0, false},
		{RP_METHOD_DELIVERY, 0, false, 0, true},
		{RP_METHOD_DELIVERY, 0, false, RP_METHOD_FENCE, false},
		{RP_METHOD_DELIVERY, 0, false, RP_METHOD_DELIVERY, true},
		{RP_METHOD_AGENT_MSYNC, 7, true, 0, false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bed_stop();
		attr.native = cases[i].native;
		attr.forced = cases[i].forced;
		bed_start(&attr);
		bed.method = cases[i].m;
		bed.flags = cases[i].flags;
		bed_open(1);
		bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE));
		cr_assert_eq(bed_see()->kind == RP_CHANNEL_WRITE,
			     cases[i].alone, "case %zu", i);
	}
}

/* The agent refuses, with a reason and the class that it can reach. */
Test(session_op, stronger_class_than_granted_goes_to_the_agent)
{
	struct rp_op *op;

	bed_stop();
	bed_start(NULL);
	bed.method = RP_METHOD_DELIVERY;
	bed.class = RP_CLASS_PROCESS;
	bed_open(1);
	op = op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE);
	op->required = RP_CLASS_POWER;
	bed_post(op);
	bed_see_request(RP_EFFECT_STORE);
	bed_reply(bed.last->hdr.token, RP_ST_CLASS);
	expect_status(&a, RP_ST_CLASS);
	bed_post(op_write(&b, 1, 0, 64, RP_LEVEL_VISIBLE));
	bed_see();
	op_commit_one(&c, 1, 0, 64)->required = RP_CLASS_POWER;
	bed_post(&c.op);
	bed_see_request(RP_EFFECT_NONE);
}

/* A notification needs the agent, with any method. */
Test(session_op, notified_write_is_a_write_and_a_request)
{
	struct rp_op *op;

	bed_open_alone(RP_METHOD_FENCE, 0);
	op = op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE);
	op->effect = RP_EFFECT_NOTIFY;
	op->data = 77;
	bed_post(op);
	bed_see_kind(RP_CHANNEL_WRITE);
	bed_see_request(RP_EFFECT_NOTIFY);
	cr_assert_eq(bed.last->req.data, 77);
	cr_assert_eq(bed.last->req.nranges, 1);
	bed_see_nothing();
}

/* Without a commit the notification follows visibility. */
Test(session_op, notified_visible_write_is_a_write_and_a_request)
{
	struct rp_op *op = op_write(&a, 1, 0, 64, RP_LEVEL_VISIBLE);

	op->effect = RP_EFFECT_NOTIFY;
	bed_post(op);
	cr_assert(!bed_see_kind(RP_CHANNEL_WRITE)->delivered);
	bed_see_request(RP_EFFECT_NOTIFY);
	cr_assert_eq(bed.last->req.level, RP_LEVEL_VISIBLE);
	cr_assert_eq(bed.last->req.nranges, 1);
	bed_see_nothing();
	bed_done_all();
	expect_pending(&a);
	bed_ok();
	expect_ok(&a);
	/* A commit with a notification must be durable. */
	op = op_commit_one(&b, 1, 0, 64);
	op->effect = RP_EFFECT_NOTIFY;
	op->level = RP_LEVEL_VISIBLE;
	cr_assert_eq(bed_post_result(op), -EINVAL);
	op = op_write(&b, 1, 0, 64, 0);
	op->effect = RP_EFFECT_NOTIFY;
	cr_assert_eq(bed_post_result(op), -EINVAL);
}

/* A device proves placement by a READ, which such a region refuses. */
Test(session_op, visible_write_without_read_access_needs_a_reply)
{
	bed.unreadable = true;
	bed.chan.flags |= RP_CHANNEL_DELIVERS_BY_READ;
	bed_post(op_write(&a, 2, 0, 64, RP_LEVEL_VISIBLE));
	cr_assert(!bed_see_kind(RP_CHANNEL_WRITE)->delivered);
	bed_see_request(RP_EFFECT_NONE);
	cr_assert_eq(bed.last->req.level, RP_LEVEL_VISIBLE);
	bed_see_nothing();
	bed_done_all();
	expect_pending(&a);
	cr_assert_eq(bed.s->unplaced.n, 1);
	bed_ok();
	expect_ok(&a);
	cr_assert_eq(bed.s->unplaced.n, 0);
	bed_post(op_write(&a, 2, 0, 4096, 0));
	bed_see_kind(RP_CHANNEL_WRITE);
	bed_see_nothing();
	bed_done_all();
	expect_ok(&a);
}

/* A channel that proves placement without a READ needs no right to read. */
Test(session_op, visible_write_without_read_access_over_tcp)
{
	bed.unreadable = true;
	bed_post(op_write(&a, 2, 0, 64, RP_LEVEL_VISIBLE));
	cr_assert(bed_see_kind(RP_CHANNEL_WRITE)->delivered);
	bed_see_nothing();
	bed_done_all();
	expect_ok(&a);
}

/* --- reads --- */

Test(session_op, read_brings_bytes)
{
	bed_post(op_read(&a, 1, 64, 4096));
	bed_see_kind(RP_CHANNEL_READ);
	cr_assert_eq(bed.last->iov_count, 1);
	cr_assert_eq(bed.last->remote_addr, BED_REMOTE + 64);
	cr_assert_eq(bed.last->length, 4096);
	bed_done_all();
	expect_ok(&a);
}

/* --- atomics --- */

Test(session_op, atomic_is_a_request)
{
	uint64_t operand = 5, old[2] = {1, 2}, got[2];
	static struct rp_wire_range r[2];
	struct iovec result[2] = {{&got[1], 8}, {&got[0], 8}};
	struct rp_wire_reply m = {
		.level = RP_LEVEL_VISIBLE,
		.result = old,
		.result_len = 16,
	};
	struct rp_op *op = op_atomic(&a, 1, 0);

	memcpy(a.buf, &operand, 8);
	memset(a.buf + 8, 9, 8);
	r[0] = bed_range(1, 0, 8);
	r[1] = bed_range(1, 64, 8);
	op->ranges = r;
	op->nranges = 2;
	op->atomic.fetch = true;
	op->result = result;
	op->result_count = 2;
	bed_post(op);
	bed_see_request(RP_EFFECT_ATOMIC);
	cr_assert_eq(bed.last->req.atomic.op, RP_ATOMIC_SUM);
	cr_assert_eq(bed.last->req.nranges, 2);
	cr_assert_eq(memcmp(bed.last->req.atomic.operand, a.buf, 16), 0);
	cr_assert(bed.last->req.atomic.fetch);
	bed_reply_as(bed.last->hdr.token, &m);
	expect_ok(&a);
	cr_assert_eq(got[1], 1);
	cr_assert_eq(got[0], 2);
}

Test(session_op, operands_are_copied)
{
	struct rp_op *op = op_atomic(&a, 1, 0);

	op->atomic.op = RP_ATOMIC_CSWAP;
	op->atomic.compare = a.buf + 8;
	op->level = RP_LEVEL_DURABLE;
	memset(a.buf, 1, 8);
	memset(a.buf + 8, 2, 8);
	bed.room = 0;
	bed_post(op);
	memset(a.buf, 0, 16);
	bed.room = -1;
	bed_progress();
	bed_see_request(RP_EFFECT_ATOMIC);
	cr_assert_eq(bed.last->req.level, RP_LEVEL_DURABLE);
	cr_assert_eq(*(uint8_t *)bed.last->req.atomic.operand, 1);
	cr_assert_eq(*(uint8_t *)bed.last->req.atomic.compare, 2);
	bed_ok();
	expect_ok(&a);
}

Test(session_op, fetched_values_of_another_length_end_the_connection)
{
	uint64_t old = 1, got = 7;
	struct iovec result = {&got, 8};
	struct rp_wire_reply m = {
		.level = RP_LEVEL_VISIBLE,
		.result = &old,
		.result_len = 4,
	};
	struct rp_op *op = op_atomic(&a, 1, 0);

	op->atomic.fetch = true;
	op->result = &result;
	op->result_count = 1;
	bed_post(op);
	bed_see();
	bed_reply_as(bed.last->hdr.token, &m);
	expect_status(&a, RP_ST_INDETERMINATE);
	cr_assert_eq(a.out.detail, RP_ST_BAD_MESSAGE);
	cr_assert_eq(got, 7);
}

Test(session_op, unrequested_values_end_the_connection)
{
	uint64_t old = 1;
	struct rp_wire_reply m = {
		.level = RP_LEVEL_VISIBLE,
		.result = &old,
		.result_len = 8,
	};

	bed_post(op_atomic(&a, 1, 0));
	bed_see();
	bed_reply_as(bed.last->hdr.token, &m);
	expect_status(&a, RP_ST_INDETERMINATE);
}
