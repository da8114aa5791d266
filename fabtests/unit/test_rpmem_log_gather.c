/* SPDX-License-Identifier: BSD-2-Clause */
/* Appends that wait for the pool, and share a write. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "log_rig.h"

#define LENGTH (LOG_RING_AT + (1u << 20))
#define OPS    128u
#define SMALL  10u /* bytes; its entry is LOG_ALIGN bytes long */
/* An entry of LOG_GATHER bytes. */
#define LONG (LOG_GATHER - LOG_HEADER)

static struct {
	struct rig rig;
	struct seeded rnd;
	struct rig_port port;
	struct log_io io;
	struct rpmem_log *log;
	struct rpmem_log_op ops[OPS];
	unsigned int submitted, completed;
	unsigned int refuse; /* the pool refuses this submission; 0: none */
	bool together;	     /* a poll completes all that is outstanding */
} one;

static int submit(void *arg, struct rpmem_pool_op *op)
{
	if (one.refuse && !--one.refuse)
		return -ENOMEM;
	return rig_io(&one.port).submit(arg, op);
}

static int poll_pool(void *arg, struct rpmem_pool_op **done, unsigned int n,
		     int timeout_ms)
{
	const struct log_io io = rig_io(&one.port);
	int got = io.poll(arg, done, n, timeout_ms);

	while (one.together && one.rig.nops && (unsigned int)got < n)
		got += io.poll(arg, done + got, 1, 0);
	return got;
}

static void open_one(uint32_t layout)
{
	one.rnd = seeded_start();
	rig_init(&one.rig, &one.rnd, LENGTH);
	one.port.rig = &one.rig;
	one.rig.visible[0] = one.rig.visible[LOG_SLOT] = 0;
	one.io = rig_io(&one.port);
	one.io.submit = submit;
	one.io.poll = poll_pool;
	one.submitted = one.completed = 0;
	cr_assert_eq(log_create(&one.io, layout), 0);
	cr_assert_eq(log_open(&one.log, &one.io, false), 0);
	one.rig.writes = 0;
}

static void close_one(void)
{
	rpmem_log_close(one.log);
	rig_fini(&one.rig);
}

static void submit_appends(unsigned int n, size_t len)
{
	static const char bytes[LONG];
	const struct iovec v = {(void *)(uintptr_t)bytes, len};
	struct rpmem_log_op *op;

	while (n--) {
		cr_assert_lt(one.submitted, OPS);
		op = &one.ops[one.submitted++];
		*op = (struct rpmem_log_op){.entries = &v, .count = 1};
		cr_assert_eq(rpmem_log_submit(one.log, op), 0, "%s",
			     rpmem_log_error());
	}
}

/* Complete all appends: in their order, and with this result. */
static void complete_appends(int result)
{
	struct rpmem_log_op *done[OPS];
	int n;

	while (one.completed < one.submitted) {
		n = rpmem_log_poll(one.log, done, OPS, -1);
		cr_assert_gt(n, 0, "%s", rpmem_log_error());
		for (int i = 0; i < n; i++, one.completed++) {
			cr_assert_eq(done[i], &one.ops[one.completed]);
			cr_assert_eq(done[i]->result, result);
		}
	}
}

Test(rpmem_log_gather, appends_behind_two_writes_share_the_third)
{
	for (uint32_t layout = 0; layout <= RPMEM_LOG_REGISTER; layout++) {
		const bool tail = layout != RPMEM_LOG_ENTRY;

		open_one(layout);
		submit_appends(64, SMALL);
		cr_assert_eq(one.rig.nops, tail ? 3 : 2);
		complete_appends(0);
		if (tail)
			cr_assert_leq(one.rig.writes, 3);
		else
			cr_assert_eq(one.rig.writes, 3);
		close_one();
	}
}

/* The append behind two completed writes was not written yet. */
Test(rpmem_log_gather, append_that_waits_is_not_complete)
{
	struct rpmem_log_op *done[OPS];

	open_one(RPMEM_LOG_ENTRY);
	one.together = true;
	submit_appends(3, SMALL);
	cr_assert_eq(rpmem_log_poll(one.log, done, OPS, -1), 2);
	cr_assert_eq(one.rig.nops, 1);
	one.completed = 2;
	complete_appends(0);
	close_one();
}

Test(rpmem_log_gather, many_bytes_do_not_wait)
{
	open_one(RPMEM_LOG_ENTRY);
	submit_appends(8, LONG);
	cr_assert_eq(one.rig.nops, 8);
	submit_appends(LOG_GATHER / LOG_ALIGN - 1, SMALL);
	cr_assert_eq(one.rig.nops, 8);
	submit_appends(1, SMALL);
	cr_assert_eq(one.rig.nops, 9);
	submit_appends(1, SMALL);
	submit_appends(1, LONG);
	cr_assert_eq(one.rig.nops, 11, "a short entry in front of a long one");
	complete_appends(0);
	close_one();
}

/* Every entry can be read, also when the log is opened again. */
Test(rpmem_log_gather, entries_of_a_shared_write_can_be_read)
{
	char bytes[LONG];
	uint64_t lsn = RPMEM_LOG_HEAD;
	size_t len;

	open_one(RPMEM_LOG_ENTRY);
	submit_appends(20, SMALL);
	submit_appends(1, LONG);
	submit_appends(20, 3 * SMALL);
	complete_appends(0);
	rpmem_log_close(one.log);
	cr_assert_eq(log_open(&one.log, &one.io, false), 0);
	for (unsigned int i = 0; i < 41; i++) {
		cr_assert_eq(rpmem_log_read(one.log, &lsn, bytes, sizeof(bytes),
					    &len, 0),
			     1);
		cr_assert_eq(len, i < 20 ? SMALL : i > 20 ? 3 * SMALL : LONG);
	}
	close_one();
}

Test(rpmem_log_gather, failed_write_ends_the_appends_that_wait)
{
	open_one(RPMEM_LOG_ENTRY);
	submit_appends(10, SMALL);
	one.rig.fail_once = -EIO;
	complete_appends(-EIO);
	cr_assert_eq(one.rig.nops, 0);
	cr_assert_leq(one.rig.writes, 1, "no entry was written behind a gap");
	close_one();
}

/* The first write: refused at once; the third: when another one is complete. */
Test(rpmem_log_gather, refused_write_ends_its_appends)
{
	for (unsigned int refuse = 1; refuse <= 3; refuse += 2) {
		open_one(RPMEM_LOG_ENTRY);
		one.refuse = refuse;
		submit_appends(refuse == 1 ? 1 : 10, SMALL);
		if (refuse == 1) {
			complete_appends(-EIO);
		} else {
			struct rpmem_log_op *done[OPS];
			unsigned int failed = 0;

			for (int n; one.completed < 10;
			     one.completed += (unsigned int)n) {
				n = rpmem_log_poll(one.log, done, OPS, -1);
				cr_assert_gt(n, 0);
				for (int i = 0; i < n; i++)
					failed += done[i]->result == -EIO;
			}
			cr_assert_geq(failed, 8);
		}
		cr_assert_eq(rpmem_log_append(one.log, "x", 1, NULL), -EIO);
		close_one();
	}
}

/* ENOMEM would say that the log can be used further. */
Test(rpmem_log_gather, refused_tail_or_superblock_ends_the_log_with_eio)
{
	open_one(RPMEM_LOG_TAIL);
	one.refuse = 2;
	submit_appends(1, SMALL);
	complete_appends(-EIO);
	cr_assert_eq(rpmem_log_append(one.log, "x", 1, NULL), -EIO);
	close_one();
	open_one(RPMEM_LOG_ENTRY);
	submit_appends(1, SMALL);
	complete_appends(0);
	one.refuse = 1;
	cr_assert_eq(rpmem_log_publish(one.log), -EIO);
	cr_assert_eq(rpmem_log_append(one.log, "x", 1, NULL), -EIO);
	close_one();
}
