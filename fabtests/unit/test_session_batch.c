/* SPDX-License-Identifier: BSD-2-Clause */
/* Coalescing: small plain writes of a session in one request. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/log.h"
#include "session_bed.h"

static struct report w[300], a, b;

static void drop_log_line(enum rp_log_level level, const char *text)
{
}

static void start(void)
{
	rp_log_set(drop_log_line);
	bed_start(NULL);
	bed_open(1);
}

TestSuite(session_batch, .init = start, .fini = bed_stop);

static void write_small(unsigned int i, uint64_t off, size_t len)
{
	memset(w[i].buf, (int)i, len);
	bed_post(op_write(&w[i], 1, off, len, 0));
	/* The program may reuse its buffer after post(). */
	memset(w[i].buf, 0xee, len);
}

static void post_scattered(unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		write_small(i, 1000 * (uint64_t)((7 * i) % n), 24);
}

static void see_batch(unsigned int n)
{
	bed_see_request(RP_EFFECT_STORE);
	cr_assert_eq(bed.last->req.level, RP_LEVEL_VISIBLE);
	cr_assert_eq(bed.last->req.nranges, n);
}

Test(session_batch, small_writes_leave_together)
{
	unsigned int kicks = bed.nkicks;

	post_scattered(64);
	bed_see_nothing();
	cr_assert_eq(bed.nkicks, kicks + 1);
	cr_assert_eq(rp_session_deadline(bed.s), 0);
	cr_assert_eq(rp_session_outstanding(bed.s), 64);
	bed_progress();
	see_batch(64);
	/* The bytes are sent from the session's copy, as a second iovec. */
	cr_assert_eq(bed.last->iov_count, 2);
	for (unsigned int i = 0; i < 64; i++) {
		cr_assert_eq(bed.last->ranges[i].addr, w[i].range.addr);
		cr_assert_eq(((uint8_t *)bed.last->req.bytes)[24 * i + 23], i);
	}
	bed_see_nothing();
	bed_done_all();
	expect_pending(&w[0]);
	bed_ok();
	for (unsigned int i = 0; i < 64; i++)
		expect_ok(&w[i]);
	cr_assert_eq(rp_session_outstanding(bed.s), 0);
}

Test(session_batch, write_of_several_buffers)
{
	struct rp_op *op = op_write(&w[0], 1, 0, 24, 0);

	for (int i = 0; i < 24; i++)
		w[0].buf[i] = (uint8_t)i;
	op->iov[0].iov_len = 8;
	op->iov[1] = (struct iovec){w[0].buf + 8, 6};
	op->iov[2] = (struct iovec){w[0].buf + 14, 10};
	op->iov_count = 3;
	bed_post(op);
	bed_progress();
	see_batch(1);
	cr_assert_eq(memcmp(bed.last->req.bytes, w[0].buf, 24), 0);
}

/* On a slow link the bytes of a batch extend the deadline. */
Test(session_batch, bytes_in_flight_extend_the_deadline)
{
	struct rp_session_attr attr = bed_attr();

	bed_stop();
	attr.slow_rate = 100;
	bed_start(&attr);
	bed_open(1);
	for (unsigned int i = 0; i < 2; i++)
		write_small(i, 1000 * i, 50);
	bed_progress();
	cr_assert_eq(rp_session_deadline(bed.s),
		     bed.now + BED_TIMEOUT + 1000 * BED_MS);
	see_batch(2);
	bed_ok();
	bed_done_all();
	bed_post(op_commit_one(&a, 1, 0, 64));
	cr_assert_eq(rp_session_deadline(bed.s), bed.now + BED_TIMEOUT);
}

/* Any other operation sends the batch first, so none overtakes it. */
Test(session_batch, later_operations_send_the_batch_first)
{
	struct rp_op *op;

	post_scattered(2);
	bed_post(op_commit_one(&a, 1, 0, 4096));
	see_batch(2);
	bed_see_request(RP_EFFECT_NONE);
	write_small(2, 0, 24);
	bed_post(op_read(&b, 1, 65536, 64));
	see_batch(1);
	bed_ok();
	bed_see_kind(RP_CHANNEL_READ);
	write_small(3, 0, 24);
	op = op_atomic(&w[10], 1, 65536);
	bed_post(op);
	see_batch(1);
	bed_ok();
	bed_see_request(RP_EFFECT_ATOMIC);
	write_small(4, 0, 24);
	bed_post(op_write(&w[11], 1, 65536, 64, RP_LEVEL_DURABLE));
	see_batch(1);
	bed_ok();
	bed_see_request(RP_EFFECT_STORE);
	write_small(5, 0, 24);
	cr_assert(rp_session_has_unplaced(bed.s));
	see_batch(1);
	bed_ok();
	bed_see_nothing();
	/* An operation that is refused sends the batch, too. */
	write_small(6, 0, 24);
	bed_post(op_write(&w[12], 1, BED_LEN, 24, 0));
	write_small(7, 0, 24);
	bed_progress();
	see_batch(1);
	bed_ok();
	see_batch(1);
	bed_ok();
}

Test(session_batch, full_batch_leaves)
{
	post_scattered(2 * 86 + 1);
	see_batch(86);
	see_batch(86);
	bed_see_nothing();
	bed_progress();
	see_batch(1);
}

/* The batch fills a message of the greatest length. */
Test(session_batch, batch_is_filled_to_the_last_byte)
{
	/* Descending ranges are not packed. */
	for (unsigned int i = 0; i < 85; i++)
		write_small(i, 1000 * (100 - i), 24);
	write_small(85, 0, 40);
	bed_see_nothing();
	write_small(86, 200000, 1);
	see_batch(86);
	cr_assert_eq(bed.last->len, RP_WIRE_MAX_MSG);
	bed_progress();
	see_batch(1);
}

Test(session_batch, many_tiny_writes_are_bounded_by_ranges)
{
	for (unsigned int i = 0; i < 170; i++)
		write_small(i, 8 * i, 1);
	see_batch((4168 - 24) / 25);
	bed_progress();
	see_batch(170 - (4168 - 24) / 25);
}

/* Writes that are not small and plain are RDMA. */
Test(session_batch, other_writes_are_rdma)
{
	static struct rp_wire_range r[2];
	struct rp_op *op;

	bed_post(op_write(&a, 1, 0, 129, 0));
	bed_see_kind(RP_CHANNEL_WRITE);
	bed_post(op_write(&b, 1, 4096, 64, RP_LEVEL_VISIBLE));
	bed_see_kind(RP_CHANNEL_WRITE);
	op = op_write(&w[0], 1, 0, 64, 0);
	r[0] = bed_range(1, 8192, 32);
	r[1] = bed_range(1, 16384, 32);
	op->ranges = r;
	op->nranges = 2;
	bed_post(op);
	bed_see_kind(RP_CHANNEL_WRITE);
	bed_see_kind(RP_CHANNEL_WRITE);
	bed_post(op_write(&w[1], 1, 0, 128, 0));
	bed_see_nothing();
}

Test(session_batch, no_batch_without_the_agent)
{
	bed_stop();
	bed_start(NULL);
	bed.method = RP_METHOD_FENCE;
	bed_open(1);
	bed_post(op_write(&a, 1, 0, 64, 0));
	bed_see_kind(RP_CHANNEL_WRITE);
}

/*
 * Over an RDMA device small writes are RDMA, which is faster than stores by the
 * target's CPU.
 */
Test(session_batch, no_batch_over_a_device)
{
	bed_stop();
	bed_start(NULL);
	bed.flags |= RP_CHANNEL_LOCAL_MR;
	bed_open(1);
	bed_post(op_write(&a, 1, 0, 64, 0));
	bed_see_kind(RP_CHANNEL_WRITE);
}

/* --- a coalesced write has the guarantees of a single one --- */

Test(session_batch, failure_poisons_all_its_writes)
{
	post_scattered(8);
	bed_post(op_commit_one(&a, 1, 3000, 8));
	see_batch(8);
	bed_done_all();
	bed_reply_as(bed.last->hdr.token,
		     &(struct rp_wire_reply){.status = RP_ST_FLUSH_FAILED,
					     .detail = EIO,
					     .range = 3});
	bed_see();
	bed_ok();
	for (unsigned int i = 0; i < 8; i++) {
		expect_status(&w[i], RP_ST_FLUSH_FAILED);
		cr_assert_eq(w[i].out.range, 0);
		cr_assert_eq(w[i].out.detail, EIO);
	}
	expect_status(&a, RP_ST_WRITE_FAILED);
	bed_post(op_commit_one(&a, 1, 7000, 8));
	expect_status(&a, RP_ST_WRITE_FAILED);
	bed_post(op_commit_one(&a, 1, 7024, 8));
	bed_see_request(RP_EFFECT_NONE);
}

Test(session_batch, loss_before_and_after_sending)
{
	for (int sent = 0; sent < 2; sent++) {
		post_scattered(8);
		if (sent)
			bed_progress();
		bed_lose_connection(ECONNRESET);
		bed_progress();
		for (unsigned int i = 0; i < 8; i++)
			expect_status(&w[i], RP_ST_LOST);
		while (bed_see())
			;
		bed_open(1);
		bed_post(op_commit_one(&a, 1, 3000, 8));
		expect_status(&a, RP_ST_WRITE_FAILED);
	}
	/* Writing the range again removes the poison. */
	write_small(0, 3000, 24);
	bed_post(op_commit_one(&a, 1, 3000, 24));
	see_batch(1);
	bed_ok();
	bed_see_request(RP_EFFECT_NONE);
	bed_ok();
	expect_ok(&a);
	expect_ok(&w[0]);
}

/* RDMA and effects on a batch's bytes wait for it, as for each store. */
Test(session_batch, rdma_of_its_bytes_waits)
{
	post_scattered(4);
	bed_post(op_write(&a, 1, 3008, 4096, 0));
	see_batch(4);
	bed_see_nothing();
	bed_done_all();
	bed_ok();
	expect_ok(&w[0]);
	bed_see_kind(RP_CHANNEL_WRITE);
	bed_done_all();
	post_scattered(4);
	bed_post(op_then(&a, 1, 0, 1024, 65536));
	see_batch(4);
	bed_see_nothing();
	bed_done_all();
	bed_ok();
	bed_see_request(RP_EFFECT_THEN);
}

/* A batch behind an ordered store waits, and takes more writes meanwhile. */
Test(session_batch, batch_waits_for_an_ordered_store)
{
	bed_post(op_then(&a, 1, 65536, 64, 8));
	bed_see();
	write_small(0, 0, 24);
	bed_progress();
	bed_see_nothing();
	write_small(1, 100, 24);
	bed_reply(1, RP_ST_OK);
	bed_progress();
	see_batch(1);
	see_batch(1);
}

static void write_next(struct report *t)
{
	t->then = NULL;
	bed_post(op_write(t, 1, 0, 24, 0));
}

Test(session_batch, done_may_start_the_next_batch)
{
	post_scattered(4);
	w[1].then = write_next;
	bed_progress();
	see_batch(4);
	bed_done_all();
	bed_ok();
	expect_pending(&w[1]);
	expect_ok(&w[3]);
	bed_progress();
	see_batch(1);
	bed_ok();
	expect_ok(&w[1]);
}

/* Credits bound the sent batches; the queue bounds waiting writes. */
Test(session_batch, batches_take_credits)
{
	unsigned int n = 0;

	bed_stop();
	bed_start(NULL);
	bed.credits = 1;
	bed_open(1);
	for (int i = 0; i < 4; i++) {
		write_small(n++, 0, 24);
		bed_progress();
	}
	see_batch(1);
	bed_see_nothing();
	bed_reply(1, RP_ST_OK);
	see_batch(1);
	bed_see_nothing();
	while (!bed_post_result(op_write(&w[n], 1, 0, 24, 0)) && n < 200) {
		n++;
		bed_progress();
	}
	cr_assert_lt(n, 16);
}
