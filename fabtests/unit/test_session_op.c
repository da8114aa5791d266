/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations of a session: refusals, and the posts that each leads to. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/log.h"
#include "session_bed.h"

static struct report a, b, c, d, e;

static void drop_log_line(enum rp_log_level level, const char *text)
{
}

static void start(void)
{
	rp_log_set(drop_log_line);
	bed_start(NULL);
	bed_open(1);
}

TestSuite(session_op, .init = start, .fini = bed_stop);

/* --- refusals inside post --- */

Test(session_op, bad_operations_are_refused)
{
	struct rp_wire_range r[RP_CHANNEL_IOV + 1];
	struct rp_op *op = op_write(&a, 1, 0, 64, 0);

	op->nranges = 0;
	cr_assert_eq(bed_post_result(op), -EINVAL);
	op = op_write(&a, 1, 0, 64, 0);
	a.range.len = 0;
	cr_assert_eq(bed_post_result(op), -EINVAL);
	op = op_write(&a, 1, 0, 64, 0);
	a.range.addr = UINT64_MAX - 63;
	cr_assert_eq(bed_post_result(op), -EINVAL);
	op = op_write(&a, 1, 0, 64, 0);
	a.range.key &= ~RP_KEY_MARK_MASK;
	cr_assert_eq(bed_post_result(op), -EKEYREJECTED);
	op = op_write(&a, 1, 0, 64, 0);
	op->iov[0].iov_len = 63;
	cr_assert_eq(bed_post_result(op), -EINVAL);
	op = op_write(&a, 1, 0, 64, 0);
	op->iov_count = RP_CHANNEL_IOV + 1;
	cr_assert_eq(bed_post_result(op), -EINVAL);
	/* Sums that wrap. */
	op = op_write(&a, 1, 0, 64, 0);
	op->iov[0].iov_len = UINT64_MAX;
	op->iov[1].iov_len = 65;
	op->iov_count = 2;
	cr_assert_eq(bed_post_result(op), -EINVAL);
	for (int i = 0; i < 2; i++)
		r[i] = (struct rp_wire_range){bed_key(1), 0, 1ull << 63};
	op = op_write(&a, 1, 0, 0, 0);
	op->ranges = r;
	op->nranges = 2;
	cr_assert_eq(bed_post_result(op), -EINVAL);
	for (int i = 0; i <= RP_CHANNEL_IOV; i++)
		r[i] = bed_range(1, 64 * i, 8);
	op = op_write(&a, 1, 0, 8 * (RP_CHANNEL_IOV + 1), 0);
	op->ranges = r;
	op->nranges = RP_CHANNEL_IOV + 1;
	cr_assert_eq(bed_post_result(op), -EINVAL);
	op = op_commit_one(&a, 1, 0, 64);
	op->level = 0;
	cr_assert_eq(bed_post_result(op), -EINVAL);
	/* An ordered store: aligned, durable, with a persistent key. */
	cr_assert_eq(bed_post_result(op_then(&a, 1, 0, 64, 4)), -EINVAL);
	op = op_then(&a, 1, 0, 64, 128);
	op->level = RP_LEVEL_VISIBLE;
	cr_assert_eq(bed_post_result(op), -EINVAL);
	op = op_then(&a, 1, 0, 64, 128);
	op->then.key = 5;
	cr_assert_eq(bed_post_result(op), -EKEYREJECTED);
	op = op_query(&a, 1);
	a.range.key = 5;
	cr_assert_eq(bed_post_result(op), -EKEYREJECTED);
	cr_assert_eq(rp_session_outstanding(bed.s), 0);
	bed_see_nothing();
}

Test(session_op, bad_atomics_are_refused)
{
	struct iovec result = {a.buf, 4};
	struct rp_op *op = op_atomic(&a, 1, 0);
	struct rp_wire_range r[2];

	op->atomic.op = RP_ATOMIC_OPS;
	cr_assert_eq(bed_post_result(op), -EOPNOTSUPP);
	op = op_atomic(&a, 1, 0);
	op->atomic.operand = NULL;
	cr_assert_eq(bed_post_result(op), -EINVAL);
	op = op_atomic(&a, 1, 0);
	op->atomic.op = RP_ATOMIC_CSWAP;
	cr_assert_eq(bed_post_result(op), -EINVAL);
	op = op_atomic(&a, 1, 0);
	a.range.len = 12;
	cr_assert_eq(bed_post_result(op), -EINVAL);
	op = op_atomic(&a, 1, 0);
	a.range.len = RP_WIRE_MAX_STORE + 8;
	cr_assert_eq(bed_post_result(op), -EINVAL);
	op = op_atomic(&a, 1, 0);
	op->atomic.fetch = true;
	op->result = &result;
	op->result_count = 1;
	cr_assert_eq(bed_post_result(op), -EINVAL);
	op = op_atomic(&a, 1, 0);
	op->level = 0;
	cr_assert_eq(bed_post_result(op), -EINVAL);
	/* Operands and comparisons fill a message, or one element more. */
	for (size_t len = 2056; len <= 2064; len += 8) {
		op = op_atomic(&a, 1, 0);
		a.range.len = len;
		op->atomic.op = RP_ATOMIC_CSWAP;
		op->atomic.compare = a.buf + 4096;
		cr_assert_eq(bed_post_result(op), len == 2056 ? 0 : -EINVAL);
		if (len == 2056) {
			bed_see_request(RP_EFFECT_ATOMIC);
			cr_assert_eq(bed.last->len, RP_WIRE_MAX_MSG);
			bed_ok();
			bed_done_all();
			expect_ok(&a);
		}
	}
	/* The second range is no multiple of the element. */
	r[0] = bed_range(1, 0, 8);
	r[1] = bed_range(1, 64, 4);
	op = op_atomic(&a, 1, 0);
	op->ranges = r;
	op->nranges = 2;
	cr_assert_eq(bed_post_result(op), -EINVAL);
}

/* RDMA outside the region would break the connection. */
Test(session_op, ranges_outside_the_region_are_not_posted)
{
	struct rp_op *op;

	bed_post(op_write(&a, 1, BED_LEN - 8, 64, 0));
	expect_status(&a, RP_ST_RANGE);
	bed_post(op_read(&b, 1, BED_LEN, 8));
	expect_status(&b, RP_ST_RANGE);
	bed_post(op_commit_one(&c, 1, 0, BED_LEN + 1));
	expect_status(&c, RP_ST_RANGE);
	bed_post(op_then(&d, 1, 0, 64, BED_LEN));
	expect_status(&d, RP_ST_RANGE);
	cr_assert_eq(d.out.range, 1);
	cr_assert_eq(d.out.detail, 0);
	/* As many bytes as can be counted. */
	op = op_write(&e, 1, 0, 64, 0);
	e.range = (struct rp_wire_range){bed_key(1), 0, UINT64_MAX};
	op->iov[0].iov_len = UINT64_MAX;
	bed_post(op);
	expect_status(&e, RP_ST_RANGE);
	bed_see_nothing();
	cr_assert_eq(rp_session_state(bed.s), RP_SESSION_OPEN);
}

/* Each range has to be inside the region of its own key. */
Test(session_op, range_outside_the_second_region_is_not_posted)
{
	static struct rp_wire_range r[2];

	bed.length = 4096;
	bed_post(op_read(&b, 2, 0, 8));
	bed_see();
	r[0] = bed_range(1, 0, 4096);
	r[1] = bed_range(2, 4096, 64);
	bed_post(op_commit(&a, r, 2));
	expect_status(&a, RP_ST_RANGE);
	cr_assert_eq(a.out.range, 1);
	bed_see_nothing();
}

Test(session_op, writes_to_a_read_only_region_are_not_posted)
{
	bed_stop();
	bed_start(NULL);
	bed.read_only = true;
	bed_open(1);
	bed_post(op_write(&a, 1, 0, 64, 0));
	expect_status(&a, RP_ST_ACCESS);
	bed_post(op_atomic(&b, 1, 0));
	expect_status(&b, RP_ST_ACCESS);
	bed_post(op_then(&c, 1, 0, 64, 128));
	expect_status(&c, RP_ST_ACCESS);
	bed_see_nothing();
	bed_post(op_read(&d, 1, 0, 64));
	bed_see_kind(RP_CHANNEL_READ);
	bed_done_all();
	expect_ok(&d);
	op_atomic(&d, 1, 0)->atomic.op = RP_ATOMIC_READ;
	bed_post(&d.op);
	bed_see_request(RP_EFFECT_ATOMIC);
}

/* --- writes --- */

Test(session_op, plain_write_is_rdma)
{
	bed_post(op_write(&a, 1, 64, 4096, 0));
	bed_see_kind(RP_CHANNEL_WRITE);
	cr_assert_eq(bed.last->remote_addr, BED_REMOTE + 64);
	cr_assert_eq(bed.last->length, 4096);
	cr_assert_eq(bed.last->rkey, bed_key(1) ^ 0xff);
	cr_assert(!bed.last->delivered);
	bed_see_nothing();
	expect_pending(&a);
	bed_done_all();
	cr_assert_eq(a.times, 1);
	expect_ok(&a);
}

Test(session_op, visible_write_is_delivered)
{
	bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_VISIBLE));
	cr_assert(bed_see_kind(RP_CHANNEL_WRITE)->delivered);
	bed_done_all();
	expect_ok(&a);
	cr_assert(!rp_session_has_unplaced(bed.s));
}

Test(session_op, small_durable_write_is_one_request)
{
	memset(a.buf, 7, 64);
	bed_post(op_write(&a, 1, 64, 64, RP_LEVEL_DURABLE));
	bed_see_request(RP_EFFECT_STORE);
	/* The operation has no piece left to post. */
	cr_assert(!bed.s->post_head);
	cr_assert(bed.last->injected);
	cr_assert_eq(bed.last->req.level, RP_LEVEL_DURABLE);
	cr_assert_eq(bed.last->req.required, RP_CLASS_POWER);
	cr_assert_eq(bed.last->ranges[0].addr, BED_ADDR + 64);
	cr_assert_eq(memcmp(bed.last->req.bytes, a.buf, 64), 0);
	bed_ok();
	cr_assert_eq(a.times, 1);
	expect_ok(&a);
	cr_assert_eq(a.out.class, RP_CLASS_POWER);
	cr_assert_eq(a.out.method, RP_METHOD_AGENT_CLWB);
}

/* A write of zeros to one range, as the adapter fills it in. */
static struct rp_op *op_zero(struct report *t, uint64_t off, uint64_t len,
			     enum rp_level level)
{
	struct rp_op *op = op_write(t, 1, off, 0, level);

	t->range.len = len;
	op->iov_count = 0;
	op->zero = true;
	return op;
}

/* Zeros do not travel, and every method leaves them to the agent. */
Test(session_op, zeros_are_one_request)
{
	static const enum rp_method methods[] = {
		RP_METHOD_AGENT_MSYNC, RP_METHOD_FENCE, RP_METHOD_DELIVERY};

	for (int i = 0; i < 6; i++) {
		const enum rp_level level =
			i % 2 ? RP_LEVEL_DURABLE : RP_LEVEL_VISIBLE;

		bed_stop();
		bed_start(NULL);
		bed.method = methods[i / 2];
		bed_open(1);
		bed_post(op_zero(&a, 64, RP_WIRE_MAX_ZERO, level));
		bed_see_request(RP_EFFECT_ZERO);
		cr_assert_eq(bed.last->len, RP_WIRE_STORE_LEN(1, 0));
		cr_assert_eq(bed.last->req.level, level);
		cr_assert_eq(bed.last->ranges[0].addr, BED_ADDR + 64);
		cr_assert_eq(bed.last->ranges[0].len, RP_WIRE_MAX_ZERO);
		bed_see_nothing();
		bed_done_all();
		expect_pending(&a);
		bed_ok();
		expect_ok(&a);
		/*
		 * The agent's CPU has stored the bytes, so it flushes them,
		 * too.
		 */
		bed_post(op_commit_one(&b, 1, 0, 4096));
		if (level == RP_LEVEL_VISIBLE)
			bed_see_request(RP_EFFECT_NONE);
	}
}

Test(session_op, zeros_that_are_not_valid)
{
	struct rp_op *op =
		op_zero(&a, 0, RP_WIRE_MAX_ZERO + 1, RP_LEVEL_DURABLE);

	cr_assert_eq(bed_post_result(op), -EINVAL);
	cr_assert_eq(bed_post_result(op_zero(&a, 0, 64, 0)), -EINVAL);
	op = op_zero(&a, 0, 64, RP_LEVEL_DURABLE);
	op->effect = RP_EFFECT_NOTIFY;
	cr_assert_eq(bed_post_result(op), -EINVAL);
	op = op_zero(&a, 0, 64, RP_LEVEL_DURABLE);
	op->kind = RP_OP_READ;
	cr_assert_eq(bed_post_result(op), -EINVAL);
	op = op_zero(&a, BED_LEN - 32, 64, RP_LEVEL_DURABLE);
	bed_post(op);
	bed_progress();
	expect_status(&a, RP_ST_RANGE);
	bed_see_nothing();
}

/* RDMA over zeros waits for the reply; a lost request poisons its bytes. */
Test(session_op, zeros_are_ordered_as_stores_are)
{
	bed_post(op_zero(&a, 0, 65536, RP_LEVEL_VISIBLE));
	bed_see_request(RP_EFFECT_ZERO);
	bed_post(op_write(&b, 1, 4096, 4096, 0));
	bed_post(op_read(&c, 1, 65536, 64));
	bed_see_nothing();
	bed_reply(1, RP_ST_OK);
	bed_see_kind(RP_CHANNEL_WRITE);
	bed_see_kind(RP_CHANNEL_READ);
	bed_done_all();
	bed_post(op_zero(&a, 131072, 65536, RP_LEVEL_VISIBLE));
	bed_lose_connection(ECONNRESET);
	bed_progress();
	expect_status(&a, RP_ST_LOST);
	while (bed_see())
		;
	bed_open(1);
	bed_post(op_commit_one(&b, 1, 190000, 64));
	bed_progress();
	expect_status(&b, RP_ST_WRITE_FAILED);
	bed_post(op_zero(&a, 131072, 65536, RP_LEVEL_DURABLE));
	bed_see_request(RP_EFFECT_ZERO);
	bed_ok();
	bed_done_all();
	expect_ok(&a);
	bed_post(op_commit_one(&b, 1, 190000, 64));
	bed_see_request(RP_EFFECT_NONE);
}

/* The bytes are sent from the program's buffer, which is busy until done(). */
Test(session_op, longer_store_is_not_copied)
{
	bed_post(op_write(&a, 1, 0, 4096, RP_LEVEL_DURABLE));
	bed_see_request(RP_EFFECT_STORE);
	cr_assert_eq(bed.last->iov_count, 2);
	bed_ok();
	expect_pending(&a);
	bed_done_all();
	expect_ok(&a);
	bed_post(op_write(&a, 1, 0, 4097, RP_LEVEL_DURABLE));
	bed_see_kind(RP_CHANNEL_WRITE);
	bed_see_request(RP_EFFECT_NONE);
	bed_see_nothing();
}

/* The channel copies messages up to its inject size. */
Test(session_op, message_of_the_inject_size_is_injected)
{
	for (int less = 0; less < 2; less++) {
		bed_stop();
		bed_start(NULL);
		bed.inject = RP_WIRE_STORE_LEN(1, 64) - less;
		bed_open(1);
		bed_post(op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE));
		bed_see_request(RP_EFFECT_STORE);
		cr_assert_eq(bed.last->injected, !less);
	}
}

/* A message of the greatest length, and a longer one. */
Test(session_op, store_is_as_long_as_a_message)
{
	static struct rp_wire_range r[3];

	for (size_t n = 2; n <= 3; n++) {
		struct rp_op *op = op_write(n == 2 ? &a : &b, 1, 0, 4096,
					    RP_LEVEL_DURABLE);

		/* Descending ranges are not packed. */
		for (size_t i = 0; i < n; i++)
			r[i] = bed_range(1, 65536 - 8192 * i, 1024);
		r[0].len = 4096 - 1024 * (n - 1);
		op->ranges = r;
		op->nranges = n;
		bed_post(op);
		if (n == 2) {
			bed_see_request(RP_EFFECT_STORE);
			cr_assert_eq(bed.last->len, RP_WIRE_MAX_MSG);
			bed_ok();
			bed_done_all();
			expect_ok(&a);
			continue;
		}
		for (int i = 0; i < 3; i++)
			bed_see_kind(RP_CHANNEL_WRITE);
		bed_see_request(RP_EFFECT_NONE);
	}
}

/* One of its regions is committed without the agent. */
Test(session_op, write_to_a_region_with_a_fence_is_no_store)
{
	static struct rp_wire_range r[2];
	struct rp_op *op;

	bed.method = RP_METHOD_FENCE;
	bed_post(op_read(&b, 2, 0, 8));
	bed_see();
	r[1] = bed_range(2, 0, 32);
	bed.method = RP_METHOD_AGENT_CLWB;
	r[0] = bed_range(1, 0, 32);
	op = op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE);
	op->ranges = r;
	op->nranges = 2;
	bed_post(op);
	bed_see_kind(RP_CHANNEL_WRITE);
	bed_see_kind(RP_CHANNEL_WRITE);
	bed_see_request(RP_EFFECT_NONE);
	cr_assert_eq(bed.last->req.nranges, 1);
	bed_see_kind(RP_CHANNEL_READ);
	bed_see_nothing();
}

/* A device with local MRs gets the message in one piece. */
Test(session_op, store_is_gathered_for_a_device)
{
	bed_stop();
	bed_start(NULL);
	bed.flags |= RP_CHANNEL_LOCAL_MR;
	bed_open(1);
	bed_post(op_write(&a, 1, 0, 4096, RP_LEVEL_DURABLE));
	bed_see_request(RP_EFFECT_STORE);
	cr_assert_eq(bed.last->iov_count, 1);
}

Test(session_op, inline_max_bounds_stores)
{
	struct rp_session_attr attr = bed_attr();

	bed_stop();
	attr.inline_max = 100;
	bed_start(&attr);
	bed_open(1);
	bed_post(op_write(&a, 1, 0, 100, RP_LEVEL_DURABLE));
	bed_see_request(RP_EFFECT_STORE);
	bed_post(op_write(&b, 1, 256, 101, RP_LEVEL_DURABLE));
	bed_see_kind(RP_CHANNEL_WRITE);
}

/* One message with several ranges and scattered bytes. */
Test(session_op, store_of_several_ranges_is_one_request)
{
	static struct rp_wire_range r[3];
	struct rp_op *op = op_write(&a, 1, 0, 48, RP_LEVEL_DURABLE);

	for (int i = 0; i < 48; i++)
		a.buf[i] = (uint8_t)i;
	for (int i = 0; i < 3; i++)
		r[i] = bed_range(1, 1000 * i, 16);
	op->ranges = r;
	op->nranges = 3;
	op->iov[0].iov_len = 20;
	op->iov[1] = (struct iovec){a.buf + 20, 28};
	op->iov_count = 2;
	bed_post(op);
	bed_see_request(RP_EFFECT_STORE);
	cr_assert_eq(bed.last->req.nranges, 3);
	cr_assert_eq(bed.last->ranges[2].addr, BED_ADDR + 2000);
	cr_assert_eq(memcmp(bed.last->req.bytes, a.buf, 48), 0);
	bed_see_nothing();
}

Test(session_op, write_of_several_ranges_is_cut_at_ranges)
{
	static struct rp_wire_range r[3];
	struct rp_op *op = op_write(&a, 1, 0, 6000, 0);
	const struct bed_seen *m;

	for (int i = 0; i < 6000; i++)
		a.buf[i] = (uint8_t)(i % 251);
	r[0] = bed_range(1, 0, 1000);
	r[1] = bed_range(1, 10000, 4000);
	r[2] = bed_range(2, 20000, 1000);
	op->ranges = r;
	op->nranges = 3;
	op->iov[0].iov_len = 900;
	op->iov[1] = (struct iovec){a.buf + 900, 0};
	op->iov[2] = (struct iovec){a.buf + 900, 4100};
	op->iov[3] = (struct iovec){a.buf + 5000, 1000};
	op->iov_count = 4;
	for (int i = 0; i < 4; i++)
		op->desc[i] = &a.buf[i];
	bed_post(op);
	m = bed_see_kind(RP_CHANNEL_WRITE);
	cr_assert_eq(m->len, 1000);
	cr_assert_eq(m->iov_count, 2);
	cr_assert_eq(m->desc[0], &a.buf[0]);
	cr_assert_eq(m->desc[1], &a.buf[2]);
	cr_assert_eq(memcmp(m->bytes, a.buf, 1000), 0);
	m = bed_see_kind(RP_CHANNEL_WRITE);
	cr_assert_eq(m->remote_addr, BED_REMOTE + 10000);
	cr_assert_eq(m->iov_count, 1);
	cr_assert_eq(m->desc[0], &a.buf[2]);
	cr_assert_eq(memcmp(m->bytes, a.buf + 1000, 4000), 0);
	m = bed_see_kind(RP_CHANNEL_WRITE);
	cr_assert_eq(m->rkey, bed_key(2) ^ 0xff);
	cr_assert_eq(m->iov_count, 1);
	cr_assert_eq(m->desc[0], &a.buf[3]);
	cr_assert_eq(memcmp(m->bytes, a.buf + 5000, 1000), 0);
	bed_done(2);
	expect_pending(&a);
	bed_done(1);
	expect_ok(&a);
}

Test(session_op, descriptors_go_with_their_bytes)
{
	static struct rp_wire_range r[2];
	struct rp_op *op = op_write(&a, 1, 0, 8000, 0);

	op->desc[0] = &a;
	bed_post(op);
	cr_assert(bed_see_kind(RP_CHANNEL_WRITE)->has_desc);
	op = op_write(&b, 1, 0, 8000, 0);
	op->desc[0] = &a;
	r[0] = bed_range(1, 0, 4000);
	r[1] = bed_range(1, 10000, 4000);
	op->ranges = r;
	op->nranges = 2;
	bed_post(op);
	cr_assert(bed_see_kind(RP_CHANNEL_WRITE)->has_desc);
	cr_assert(bed_see_kind(RP_CHANNEL_WRITE)->has_desc);
	op = op_write(&c, 1, 0, 4096, RP_LEVEL_DURABLE);
	op->desc[0] = &a;
	bed_post(op); /* the message has no desc: bed_see() checks */
}

/* When post returns, the program may reuse the buffer of an inject write. */
Test(session_op, injected_bytes_are_copied)
{
	struct rp_op *op;

	/* One message, copied by the channel. */
	op = op_write(&a, 1, 0, 64, RP_LEVEL_DURABLE);
	op->inject = true;
	bed_post(op);
	/* RDMA from a copy of the session. */
	memset(b.buf, 1, 1000);
	op = op_write(&b, 1, 4096, 1000, 0);
	op->inject = true;
	bed_post(op);
	/* A copy in the queue, because the channel has no room. */
	bed.room = 0;
	memset(c.buf, 2, 64);
	op = op_write(&c, 1, 8192, 64, RP_LEVEL_DURABLE);
	op->inject = true;
	bed_post(op);
	memset(d.buf, 3, 1000);
	op = op_write(&d, 1, 16384, 1000, RP_LEVEL_DURABLE);
	op->inject = true;
	bed_post(op);
	memset(c.buf, 0xee, sizeof(c.buf));
	memset(d.buf, 0xee, sizeof(d.buf));
	bed.room = -1;
	bed_progress();
	bed_see_request(RP_EFFECT_STORE);
	cr_assert_eq(bed_see_kind(RP_CHANNEL_WRITE)->bytes[999], 1);
	cr_assert_eq(
		((uint8_t *)bed_see_request(RP_EFFECT_STORE)->req.bytes)[63],
		2);
	cr_assert_eq(
		((uint8_t *)bed_see_request(RP_EFFECT_STORE)->req.bytes)[999],
		3);
	/* The copies stay until the channel calls done(). */
	bed_done_all();
	memset(e.buf, 4, 1000);
	op = op_write(&e, 1, 8192, 1000, RP_LEVEL_DURABLE);
	op->inject = true;
	bed_post(op);
	memset(e.buf, 0xee, 1000);
	for (int i = 0; i < TAILQ_FIRST(&bed.posted)->iov_count; i++)
		cr_assert_neq(TAILQ_FIRST(&bed.posted)->iov[i].iov_base, e.buf);
}

Test(session_op, injected_bytes_of_several_buffers_are_copied)
{
	struct rp_op *op = op_write(&a, 1, 0, 1000, 0);

	for (int i = 0; i < 1000; i++)
		a.buf[i] = (uint8_t)(i % 251);
	op->inject = true;
	op->iov[0] = (struct iovec){a.buf, 300};
	op->iov[1] = (struct iovec){a.buf + 300, 200};
	op->iov[2] = (struct iovec){a.buf + 500, 500};
	op->iov_count = 3;
	bed_post(op);
	cr_assert_eq(bed_see_kind(RP_CHANNEL_WRITE)->iov_count, 1);
	cr_assert_eq(memcmp(bed.last->bytes, a.buf, 1000), 0);
	cr_assert_neq(TAILQ_FIRST(&bed.posted)->iov[0].iov_base, a.buf);
}

/* The descriptors are those of the program's buffers. */
Test(session_op, copy_has_no_descriptor)
{
	static struct rp_wire_range r[2];
	struct rp_op *op = op_write(&a, 1, 0, 1000, 0);

	r[0] = bed_range(1, 0, 300);
	r[1] = bed_range(1, 4096, 700);
	memset(a.buf, 1, 300);
	memset(a.buf + 300, 2, 700);
	op->inject = true;
	op->desc[0] = &a;
	op->ranges = r;
	op->nranges = 2;
	bed_post(op);
	for (int i = 0; i < 2; i++) {
		cr_assert(!bed_see_kind(RP_CHANNEL_WRITE)->has_desc);
		cr_assert_eq(bed.last->bytes[0], 1 + i);
	}
}

/* A part that failed is not forgotten when the others are done. */
Test(session_op, write_with_a_failed_part_has_failed)
{
	static struct rp_wire_range r[2];
	struct rp_op *op = op_write(&a, 1, 0, 8000, 0);

	r[0] = bed_range(1, 0, 4000);
	r[1] = bed_range(1, 10000, 4000);
	op->ranges = r;
	op->nranges = 2;
	bed_post(op);
	bed_fail(EIO);
	bed_done(1);
	expect_pending(&a);
	expect_status(&a, RP_ST_LOST);
	cr_assert_eq(a.out.detail, EIO);
}

/* Copies have no MR, so their bytes are sent in a REQUEST. */
Test(session_op, injected_write_is_a_store_for_a_device)
{
	struct rp_op *op;

	bed_stop();
	bed_start(NULL);
	bed.flags |= RP_CHANNEL_LOCAL_MR;
	bed_open(1);
	op = op_write(&a, 1, 0, 64, 0);
	op->inject = true;
	bed_post(op);
	bed_see_request(RP_EFFECT_STORE);
	cr_assert_eq(bed.last->req.level, RP_LEVEL_VISIBLE);
	bed_ok();
	expect_ok(&a);
}
