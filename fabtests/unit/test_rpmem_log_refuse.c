// SPDX-License-Identifier: BSD-2-Clause
/* Appends, reads and arguments that librpmem_log refuses. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "log_writer.h"

Test(rpmem_log, append_of_a_full_log_fails_until_it_is_trimmed)
{
	struct log_test *l = &one;
	uint64_t first, lsn;
	int ret, n = 0;

	open_one(l, 4096, RPMEM_LOG_ENTRY);
	cr_assert_eq(append_bytes(l, 32, &first), 0);
	while (!(ret = append_bytes(l, 32, &lsn)))
		n++;
	cr_assert_eq(ret, -ENOSPC);
	cr_assert(strstr(rpmem_log_error(), "trim"));
	cr_assert_eq(n + 1, 4096 / 64);
	cr_assert_eq(append_bytes(l, 1, NULL), -ENOSPC);
	cr_assert_eq(rpmem_log_trim(l->log, first + 64), 0);
	cr_assert_eq(append_bytes(l, 32, &lsn), 0);
	cr_assert_eq(append_bytes(l, 1, NULL), -ENOSPC);
	close_one(l);
}

Test(rpmem_log, lsn_that_is_no_entry_is_refused)
{
	struct log_test *l = &one;
	unsigned char bytes[LEN];
	uint64_t lsn, bad;
	size_t len;

	open_one(l, 4096, RPMEM_LOG_ENTRY);
	cr_assert_eq(append_bytes(l, 200, &lsn), 0);
	cr_assert_eq(append_bytes(l, 200, NULL), 0);
	cr_assert_eq(rpmem_log_trim(l->log, lsn + 64), -EINVAL);
	cr_assert_eq(rpmem_log_trim(l->log, lsn + 1), -EINVAL);
	cr_assert_eq(rpmem_log_trim(l->log, lsn + 4096), -EINVAL);
	cr_assert_eq(rpmem_log_trim(l->log, 0), -EINVAL);
	submit_append(l);
	cr_assert_eq(rpmem_log_trim(l->log, l->log->tail), -EAGAIN);
	cr_assert(strstr(rpmem_log_error(), "not durable"));
	poll_log(l, -1);
	bad = lsn + 64;
	cr_assert_eq(rpmem_log_read(l->log, &bad, bytes, LEN, &len, 0),
		     -EBADMSG);
	bad = lsn + 3;
	cr_assert_eq(rpmem_log_read(l->log, &bad, bytes, LEN, &len, 0),
		     -EINVAL);
	cr_assert_eq(rpmem_log_read(l->log, &lsn, bytes, 10, &len, 0),
		     -EMSGSIZE);
	cr_assert_eq(len, 200);
	cr_assert_eq(rpmem_log_read(l->log, &lsn, bytes, LEN, &len, 0), 1);
	cr_assert_eq(rpmem_log_trim(l->log, lsn), 0);
	bad = lsn - 256;
	cr_assert_eq(rpmem_log_read(l->log, &bad, bytes, LEN, &len, 0),
		     -ERANGE);
	cr_assert_eq(bad, lsn);
	close_one(l);
}

Test(rpmem_log, sizes_out_of_range_are_refused)
{
	struct log_test *l = &one;
	struct rpmem_log_info info = {.size = sizeof(info)};
	struct iovec v[2] = {{"x", 1}, {NULL, 1}};
	struct rpmem_log_op op = {.entries = v, .count = 2};
	struct log_io io;

	open_one(l, 4096, RPMEM_LOG_ENTRY);
	cr_assert_eq(rpmem_log_query(l->log, &info), 0);
	cr_assert_eq(append_bytes(l, 0, NULL), -EINVAL);
	cr_assert_eq(append_bytes(l, info.max_entry + 1, NULL), -EMSGSIZE);
	for (int i = 0; i < 5; i++) {
		/* An empty log has room for the longest entry anywhere. */
		cr_assert_eq(append_bytes(l, info.max_entry, NULL), 0);
		cr_assert_eq(rpmem_log_trim(l->log, l->log->durable), 0);
		cr_assert_eq(append_bytes(l, 10u + 64u * (size_t)i, NULL), 0);
		cr_assert_eq(rpmem_log_trim(l->log, l->log->durable), 0);
	}
	cr_assert_eq(rpmem_log_submit(l->log, &op), -EINVAL);
	op.count = 0;
	cr_assert_eq(rpmem_log_submit(l->log, &op), -EINVAL);
	info.size = 1;
	cr_assert_eq(rpmem_log_query(l->log, &info), -EINVAL);
	/* The struct had no ID at first. */
	cr_assert_eq(info.id, l->log->super.id);
	info.size = offsetof(struct rpmem_log_info, id);
	info.id = info.tail = 0;
	cr_assert_eq(rpmem_log_query(l->log, &info), 0);
	cr_assert_eq(info.id, 0);
	cr_assert_neq(info.tail, 0);
	/* Then it had no visible position. */
	info.size = offsetof(struct rpmem_log_info, visible);
	info.visible = 1;
	cr_assert_eq(rpmem_log_query(l->log, &info), 0);
	cr_assert_eq(info.id, l->log->super.id);
	cr_assert_eq(info.visible, 1);
	io = rig_io(&l->port);
	cr_assert_eq(log_create(&io, RPMEM_LOG_ENTRY), -EEXIST);
	cr_assert_eq(log_create(&io, 9), -EINVAL);
	io.length = LOG_RING_AT;
	cr_assert_eq(log_create(&io, RPMEM_LOG_ENTRY), -ENOSPC);
	close_one(l);
}

Test(rpmem_log, null_arguments_are_refused)
{
	struct log_test *l = &one;
	struct rpmem_log_op op = {0}, *done[1];
	struct rpmem_log_info info = {.size = sizeof(info)};
	uint64_t lsn = 0;
	size_t len;
	int fd = 0;

	open_one(l, 4096, RPMEM_LOG_ENTRY);
	cr_assert_eq(rpmem_log_append(NULL, "x", 1, NULL), -EINVAL);
	cr_assert_eq(rpmem_log_append(l->log, NULL, 1, NULL), -EINVAL);
	cr_assert(strstr(rpmem_log_error(), "NULL"));
	cr_assert_eq(rpmem_log_submit(NULL, &op), -EINVAL);
	cr_assert_eq(rpmem_log_submit(l->log, NULL), -EINVAL);
	cr_assert_eq(rpmem_log_poll(NULL, done, 1, 0), -EINVAL);
	cr_assert_eq(rpmem_log_read(NULL, &lsn, &lsn, 8, &len, 0), -EINVAL);
	cr_assert_eq(rpmem_log_trim(NULL, 64), -EINVAL);
	cr_assert_eq(rpmem_log_publish(NULL), -EINVAL);
	cr_assert_eq(rpmem_log_trywait(NULL, &fd, &fd), -EINVAL);
	cr_assert_eq(rpmem_log_query(NULL, &info), -EINVAL);
	cr_assert_eq(rpmem_log_query(l->log, NULL), -EINVAL);
	close_one(l);
}

/* An append that an empty log might refuse is refused as too long. */
Test(rpmem_log, batch_fits_an_empty_log_at_any_position_or_is_refused_as_long)
{
	static unsigned char bytes[4096];
	struct log_test *l = &one;
	struct iovec v[65];
	struct rpmem_log_op *done[1], op = {.entries = v};

	open_one(l, 4096, RPMEM_LOG_ENTRY);
	for (unsigned int i = 0; i < 65; i++)
		v[i] = (struct iovec){bytes, 32};
	op.count = 65;
	cr_assert_eq(rpmem_log_submit(l->log, &op), -EMSGSIZE);
	for (unsigned int i = 0; i < 64; i++) {
		/* An entry of 1024 bytes may need a pad of 960. */
		v[33].iov_len = 992;
		op.count = 35;
		cr_assert_eq(rpmem_log_submit(l->log, &op), -EMSGSIZE);
		op.count = 34;
		if (i % 2) {
			v[33].iov_len = 32;
			op.count = 64;
		}
		cr_assert_eq(rpmem_log_submit(l->log, &op), 0, "%u: %s", i,
			     rpmem_log_error());
		cr_assert_eq(rpmem_log_poll(l->log, done, 1, -1), 1);
		cr_assert_eq(rpmem_log_trim(l->log, op.next), 0);
		cr_assert_eq(append_bytes(l, 1, NULL), 0);
		cr_assert_eq(rpmem_log_trim(l->log, l->log->tail), 0);
	}
	close_one(l);
}
