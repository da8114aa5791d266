/* SPDX-License-Identifier: BSD-2-Clause */
/* A session without memory: operations are refused or fail, none hangs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/log.h"
#include "session_bed.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

/* Allocations of the session that succeed before one fails; failed: one has. */
static unsigned int allocations_left;
static bool armed, failed;

static bool allocation_fails(void)
{
	if (!armed || bed_allocates)
		return false;
	if (allocations_left--)
		return false;
	armed = false;
	failed = true;
	return true;
}

void *__wrap_malloc(size_t n)
{
	return allocation_fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return allocation_fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
	return allocation_fails() ? NULL : __real_realloc(p, n);
}

static void drop_log_line(enum rp_log_level level, const char *text)
{
}

static void start(void)
{
	rp_log_set(drop_log_line);
	bed_start(NULL);
	bed_open(1);
}

TestSuite(session_no_memory, .init = start, .fini = bed_stop);

static struct report w[3], b;
static struct rp_wire_range many[400];

static void fail_allocation(unsigned int n)
{
	armed = true;
	failed = false;
	allocations_left = n;
}

/* Reply to all posted requests. */
static void reply_to_all(void)
{
	do {
		bed_done_all();
		while (bed_see())
			if (bed.last->hdr.token) {
				if (bed.last->hdr.type == RP_MSG_QUERY)
					bed_info(bed.last->hdr.token, RP_ST_OK,
						 bed.last->query.key);
				else
					bed_ok();
			}
		bed_progress();
	} while (bed.nposted || !STAILQ_EMPTY(&bed.seen));
}

static bool record_result(struct report *t, int ret)
{
	if (ret) {
		cr_assert(ret == -ENOMEM || ret == -EAGAIN, "%d", ret);
		expect_pending(t);
		return false;
	}
	reply_to_all();
	cr_assert_eq(t->times, 1);
	cr_assert(!t->out.status || t->out.status == RP_ST_NO_MEMORY ||
		  t->out.status == RP_ST_LOST);
	cr_assert_eq(t->out.range, 0);
	cr_assert(t->out.status != RP_ST_NO_MEMORY || !t->out.detail ||
		  t->out.detail == ENOMEM);
	return !t->out.status;
}

/*
 * Fail the n-th allocation of each operation, for all n. A failed operation
 * poisons its range, a successful one does not, and the session remains usable.
 */
static unsigned int
fail_each_allocation(struct rp_op *(*make)(struct report *t), uint64_t off)
{
	unsigned int n = 0;

	do {
		bool ok;
		int ret;

		fail_allocation(n++);
		ret = bed_post_result(make(&w[0]));
		armed = false;
		if (ret == -EAGAIN)
			reply_to_all();
		ok = record_result(&w[0], ret);
		cr_assert(!failed || !ok);
		bed_post(op_commit_one(&b, 1, off, 8));
		reply_to_all();
		expect_status(&b, ok || ret ? RP_ST_OK : RP_ST_WRITE_FAILED);
		/* This write removes the poison from the range. */
		bed_post(op_write(&w[1], 1, off, 16, RP_LEVEL_VISIBLE));
		reply_to_all();
		expect_ok(&w[1]);
	} while (failed);
	return n - 1;
}

static struct rp_op *post_durable(struct report *t)
{
	return op_write(t, 1, 0, 4096, RP_LEVEL_DURABLE);
}

static struct rp_op *long_one(struct report *t)
{
	return op_write(t, 1, 0, 5000, RP_LEVEL_DURABLE);
}

static struct rp_op *post_plain(struct report *t)
{
	return op_write(t, 1, 0, 24, 0);
}

static struct rp_op *post_injected(struct report *t)
{
	struct rp_op *op = op_write(t, 1, 0, 200, 0);

	op->inject = true;
	return op;
}

static struct rp_op *injected_store(struct report *t)
{
	struct rp_op *op = op_write(t, 1, 0, 64, RP_LEVEL_DURABLE);

	op->inject = true;
	return op;
}

static struct rp_op *post_scattered(struct report *t)
{
	struct rp_op *op = op_write(t, 1, 0, 5000, RP_LEVEL_DURABLE);

	for (int i = 0; i < 5; i++)
		many[i] = bed_range(1, 10000 * i, 1000);
	op->ranges = many;
	op->nranges = 5;
	return op;
}

static struct rp_op *post_atomic(struct report *t)
{
	return op_atomic(t, 1, 0);
}

Test(session_no_memory, writes)
{
	cr_assert_eq(fail_each_allocation(post_durable, 0), 1);
	cr_assert_eq(fail_each_allocation(long_one, 0), 0,
		     "two pieces need no memory");
	cr_assert_geq(fail_each_allocation(post_injected, 0), 1);
	cr_assert_eq(fail_each_allocation(injected_store, 0), 0,
		     "the channel copies it");
	cr_assert_geq(fail_each_allocation(post_scattered, 0), 8);
	fail_each_allocation(post_scattered, 40000);
	cr_assert_eq(fail_each_allocation(post_atomic, 0), 1);
	cr_assert_eq(fail_each_allocation(post_plain, 0), 1);
}

/* A commit without memory fails. */
Test(session_no_memory, commits)
{
	unsigned int n = 0;

	for (int i = 0; i < 400; i++)
		many[i] = bed_range(1, 128 * (400 - i), 64);
	do {
		fail_allocation(n++);
		cr_assert_eq(bed_post_result(op_commit(&b, many, 400)), 0);
		armed = false;
		reply_to_all();
		cr_assert_eq(b.times, 1);
		cr_assert_eq(b.out.status, failed ? RP_ST_NO_MEMORY : RP_ST_OK);
		cr_assert(!b.out.detail || b.out.detail == ENOMEM);
		cr_assert_eq(b.out.range, 0);
	} while (failed);
	cr_assert_gt(n, 4);
}

/* Commits by fences and FLUSHes in several regions. */
Test(session_no_memory, commits_without_the_agent)
{
	static const enum rp_method m[] = {RP_METHOD_FENCE, RP_METHOD_NATIVE};
	struct rp_session_attr attr = bed_attr();

	attr.native = true;
	for (int i = 0; i < 2; i++) {
		unsigned int n = 0;

		bed_stop();
		bed_start(&attr);
		bed.method = m[i];
		bed.flags |= RP_CHANNEL_FLUSHES;
		bed_open(1);
		for (uint32_t k = 0; k < 4; k++) {
			bed_post(op_read(&b, 1 + k, 0, 8));
			bed_done_all();
			expect_ok(&b);
			many[k] = bed_range(1 + k, 0, 64);
		}
		do {
			fail_allocation(n++);
			cr_assert_eq(bed_post_result(op_commit(&b, many, 4)),
				     0);
			armed = false;
			reply_to_all();
			expect_status(&b, failed ? RP_ST_NO_MEMORY : RP_ST_OK);
		} while (failed);
		cr_assert_eq(n, 3);
	}
}

static struct rp_op *post_notified(struct report *t)
{
	struct rp_op *op = op_write(t, 1, 0, 5000, RP_LEVEL_VISIBLE);

	for (int i = 0; i < 2; i++)
		many[i] = bed_range(1, 10000 * i, 2500);
	op->ranges = many;
	op->nranges = 2;
	op->effect = RP_EFFECT_NOTIFY;
	return op;
}

/* An RDMA write without memory for the REQUEST behind it. */
Test(session_no_memory, notified_write)
{
	cr_assert_geq(fail_each_allocation(post_notified, 0), 3);
}

/* A queued inject write without memory for the copy of its bytes. */
Test(session_no_memory, queued_injected_write)
{
	struct rp_op *op = op_write(&w[0], 1, 0, 64, RP_LEVEL_DURABLE);

	op->inject = true;
	bed.room = 0;
	fail_allocation(0);
	cr_assert_eq(bed_post_result(op), 0);
	cr_assert(failed);
	bed.room = -1;
	expect_status(&w[0], RP_ST_NO_MEMORY);
	cr_assert_eq(w[0].out.detail, 0);
	cr_assert_eq(w[0].out.range, 0);
	bed_see_nothing();
	bed_post(op_commit_one(&b, 1, 0, 64));
	expect_status(&b, RP_ST_WRITE_FAILED);
}

/* An inject write that waits for a store, without memory for a copy. */
Test(session_no_memory, injected_write_behind_a_store)
{
	struct rp_op *op;

	bed_post(op_write(&w[0], 1, 0, 64, RP_LEVEL_DURABLE));
	op = op_write(&w[1], 1, 0, 5000, RP_LEVEL_DURABLE);
	op->inject = true;
	/* This one is for unplaced ranges; the next one fails. */
	fail_allocation(1);
	bed_post(op);
	cr_assert(failed);
	reply_to_all();
	expect_ok(&w[0]);
	expect_status(&w[1], RP_ST_NO_MEMORY);
	bed_post(op_commit_one(&b, 1, 4096, 64));
	expect_status(&b, RP_ST_WRITE_FAILED);
}

/* If a batch has no memory for its REQUEST, all its writes fail. */
Test(session_no_memory, batch)
{
	for (int i = 0; i < 3; i++)
		bed_post(op_write(&w[i], 1, 1000 * i, 100, 0));
	fail_allocation(0);
	bed_progress();
	cr_assert(failed);
	bed_see_nothing();
	for (int i = 0; i < 3; i++)
		expect_status(&w[i], RP_ST_NO_MEMORY);
	bed_post(op_commit_one(&b, 1, 2000, 8));
	expect_status(&b, RP_ST_WRITE_FAILED);
}

/* If a poisoned range cannot be recorded, all bytes count as poisoned. */
Test(session_no_memory, poison)
{
	for (unsigned int n = 0; n < 2; n++) {
		bed_stop();
		start();
		bed_post(op_write(&w[0], 1, 0, 64, RP_LEVEL_DURABLE));
		fail_allocation(n);
		bed_reply(1, RP_ST_FLUSH_FAILED);
		cr_assert(failed);
		expect_status(&w[0], RP_ST_FLUSH_FAILED);
		bed_post(op_commit_one(&b, 1, 65536, 64));
		expect_status(&b, RP_ST_WRITE_FAILED);
		cr_assert_eq(b.out.range, 0);
	}
}

/* If a poisoned range cannot be recorded, the outstanding commits fail. */
Test(session_no_memory, poison_fails_outstanding_commits)
{
	for (unsigned int n = 0; n < 2; n++) {
		bed_stop();
		start();
		bed_post(op_write(&w[0], 1, 0, 64, RP_LEVEL_DURABLE));
		bed_post(op_commit_one(&b, 1, 0, 64));
		fail_allocation(n);
		bed_reply(1, RP_ST_FLUSH_FAILED);
		cr_assert(failed);
		expect_status(&w[0], RP_ST_FLUSH_FAILED);
		bed_reply(2, RP_ST_OK);
		expect_status(&b, RP_ST_WRITE_FAILED);
	}
}

/* If cached bytes cannot be recorded, all commits go to the agent. */
Test(session_no_memory, without_memory_for_cached_bytes_commits_go_to_the_agent)
{
	bed_stop();
	bed_start(NULL);
	bed.method = RP_METHOD_FENCE;
	bed_open(1);
	/* The first allocation is for the copy of the operand. */
	fail_allocation(1);
	bed_post(op_atomic(&w[0], 1, 0));
	cr_assert(failed);
	bed_see();
	bed_ok();
	bed_post(op_commit_one(&b, 1, 65536, 64));
	bed_see_request(RP_EFFECT_NONE);
}

/* If the grant of HELLO_ACK cannot be recorded, the next operation fails. */
Test(session_no_memory, grants)
{
	/* Three allocations: the grant, two parts of the first table. */
	for (unsigned int n = 0; n < 3; n++) {
		bed_stop();
		bed_start(NULL);
		cr_assert_eq(bed_post_result(op_write(&w[0], 1, 0, 64, 0)),
			     -EAGAIN);
		fail_allocation(n);
		bed_accept();
		cr_assert(failed);
		bed_progress();
		bed_post(op_write(&w[0], 1, 0, 64, 0));
		expect_status(&w[0], RP_ST_NO_MEMORY);
		cr_assert_eq(w[0].out.detail, 0);
	}
	cr_assert_eq(bed_post_result(op_write(&w[0], 1, 0, 64, 0)), -EAGAIN);
	/* A refusal that cannot be recorded for its key applies to all keys. */
	fail_allocation(0);
	bed_refuse(RP_ST_STALE_KEY, 5);
	bed_progress();
	cr_assert(failed);
	bed_post(op_write(&w[0], 2, 0, 64, 0));
	expect_status(&w[0], RP_ST_STALE_KEY);
	cr_assert_eq(w[0].out.detail, 5);
	bed_open(1);
	for (unsigned int n = 0; n < 2; n++) {
		fail_allocation(n);
		cr_assert_eq(bed_post_result(op_write(&w[0], 2 + n, 0, 64, 0)),
			     -ENOMEM);
		armed = false;
	}
	bed_see_nothing();
	/* Without memory for the first key, no QUERY is sent at all. */
	many[0] = bed_range(7, 0, 64);
	many[1] = bed_range(8, 0, 64);
	fail_allocation(0);
	cr_assert_eq(bed_post_result(op_commit(&w[0], many, 2)), -ENOMEM);
	cr_assert(failed);
	bed_see_nothing();
	bed_post(op_write(&w[0], 9, 0, 64, 0));
}

/* A write is refused if one of its ranges cannot be recorded. */
Test(session_no_memory, unplaced_ranges)
{
	bed_stop();
	start();
	fail_allocation(0);
	cr_assert_eq(bed_post_result(op_write(&w[0], 1, 0, 5000, 0)), -ENOMEM);
	cr_assert(failed);
	bed_see_nothing();
	cr_assert_eq(rp_session_outstanding(bed.s), 0);
	bed_post(op_write(&w[0], 1, 0, 5000, 0));
	reply_to_all();
	expect_ok(&w[0]);
}

/* A fence that lacks memory is posted by a later call. */
Test(session_no_memory, fences)
{
	bed_post(op_write(&w[0], 1, 0, 4096, 0));
	fail_allocation(0);
	cr_assert(rp_session_has_unplaced(bed.s));
	cr_assert(failed);
	bed_see();
	bed_see_nothing();
	cr_assert(rp_session_has_unplaced(bed.s));
	bed_see_request(RP_EFFECT_NONE);
}

Test(session_no_memory, sessions)
{
	struct rp_session_attr attr = bed_attr();
	struct rp_session *s;

	fail_allocation(0);
	cr_assert_eq(rp_session_new(&bed.k, &attr, "addr", 4, &s), -ENOMEM);
}
