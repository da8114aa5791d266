// SPDX-License-Identifier: BSD-2-Clause
/*
 * The calls of librpmem over librpmem_pool: what each call requests of the
 * pool, and what its errors say.
 */
#include "config.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "rpmem_pool.h"
#include "util/librpmem/session.h"

#define SIZE   65536u
#define HEADER 4096u

/* The interface of librpmem, which has no header in this tree. */
struct replica;
struct replica *rpmem_create(const char *target, const char *name, void *local,
			     size_t size, unsigned int *lanes,
			     const void *attr);
struct replica *rpmem_open(const char *target, const char *name, void *local,
			   size_t size, unsigned int *lanes, void *attr);
int rpmem_set_attr(struct replica *r, const void *attr);
int rpmem_close(struct replica *r);
int rpmem_persist(struct replica *r, size_t offset, size_t len,
		  unsigned int lane, unsigned int flags);
int rpmem_deep_persist(struct replica *r, size_t offset, size_t len,
		       unsigned int lane);
int rpmem_flush(struct replica *r, size_t offset, size_t len, unsigned int lane,
		unsigned int flags);
int rpmem_drain(struct replica *r, unsigned int lane, unsigned int flags);
int rpmem_read(struct replica *r, void *buf, size_t offset, size_t len,
	       unsigned int lane);
int rpmem_remove(const char *target, const char *name, int flags);
const char *rpmem_errormsg(void);

/* --- a pool in memory, with what is durable of it */

static unsigned char pool[SIZE], durable[SIZE], local[SIZE];
static bool dirty[SIZE];
static unsigned int commits, writes;
static int next_result; /* of the next operation */
static int open_result;
static unsigned int timeout; /* of the opening, in seconds; 0: 60 */
static bool by_ssh, undone;
static int ssh_result, ssh_refusal; /* of the session's end and start */
static unsigned int ends;

const char *rpmem_pool_error(void)
{
	return "CAUSE";
}

int rpmem_pool_open(struct rpmem_pool **p, const char *where,
		    const struct rpmem_pool_attr *attr)
{
	cr_assert_eq(attr->exclusive, RPMEM_POOL_EXCLUSIVE);
	timeout = attr->timeout;
	*p = (struct rpmem_pool *)pool;
	return open_result;
}

void rpmem_pool_close(struct rpmem_pool *p)
{
}

int rpmem_pool_query(struct rpmem_pool *p, struct rpmem_pool_info *info)
{
	info->length = SIZE;
	return 0;
}

/* The result of an operation, which is then that of no other one. */
static int take_result(void)
{
	const int ret = next_result;

	next_result = 0;
	return ret;
}

int rpmem_pool_commit(struct rpmem_pool *p)
{
	const int ret = take_result();

	commits++;
	for (size_t i = 0; !ret && i < SIZE; i++)
		if (dirty[i]) {
			durable[i] = pool[i];
			dirty[i] = false;
		}
	return ret;
}

int rpmem_pool_write(struct rpmem_pool *p, const void *buf, size_t len,
		     uint64_t offset, unsigned int flags)
{
	const int ret = take_result();

	writes++;
	if (ret)
		return ret;
	cr_assert(len <= SIZE && offset <= SIZE - len);
	memcpy(pool + offset, buf, len);
	if (flags & RPMEM_POOL_DURABLE)
		memcpy(durable + offset, buf, len);
	else
		memset(dirty + offset, true, len);
	return 0;
}

int rpmem_pool_zero(struct rpmem_pool *p, uint64_t len, uint64_t offset,
		    unsigned int flags)
{
	static const unsigned char zeros[SIZE];

	return rpmem_pool_write(p, zeros, len, offset, flags);
}

int rpmem_pool_read(struct rpmem_pool *p, void *buf, size_t len,
		    uint64_t offset)
{
	const int ret = take_result();

	if (!ret)
		memcpy(buf, pool + offset, len);
	return ret;
}

bool session_is_needed(const char *target, const char *name)
{
	return by_ssh;
}

int session_begin(struct session *s, const char *target, const char *verb,
		  const char *name, char *err)
{
	if (ssh_refusal) {
		strcpy(err, "CAUSE");
		return ssh_refusal;
	}
	*s = (struct session){.pid = 1};
	return 0;
}

void session_undo(struct session *s)
{
	cr_assert(!ends);
	undone = true;
}

int session_end(struct session *s)
{
	ends++;
	return ssh_result;
}

/* --- */

static unsigned char attr[104];

static struct replica *create(void)
{
	unsigned int lanes = 2;
	struct replica *r;

	memset(attr, 7, sizeof(attr));
	memset(local, 5, sizeof(local));
	r = rpmem_create("host", "vol", local, SIZE, &lanes, attr);
	cr_assert(r, "%s", rpmem_errormsg());
	writes = commits = 0;
	return r;
}

/* A call has failed with this errno, and its text has these words. */
static void expect_failure(int ret, int code, const char *text)
{
	const int was = errno;

	cr_assert_eq(ret, -1);
	cr_assert_eq(was, code, "%d: %s", was, rpmem_errormsg());
	cr_assert(strstr(rpmem_errormsg(), text), "no '%s' in: %s", text,
		  rpmem_errormsg());
}

static bool is_durable(size_t offset, size_t len)
{
	return !memcmp(durable + offset, local + offset, len);
}

Test(librpmem, persist_is_durable_when_it_returns)
{
	struct replica *r = create();

	cr_assert_eq(rpmem_persist(r, 8192, 100, 0, 0), 0);
	cr_assert(is_durable(8192, 100) && !durable[8192 + 100]);
	cr_assert_eq(rpmem_deep_persist(r, 12288, 100, 1), 0);
	cr_assert(is_durable(12288, 100));
	cr_assert_eq(rpmem_persist(r, 16384, 100, 1, 1), 0, "relaxed");
	cr_assert(is_durable(16384, 100));
	cr_assert_eq(writes, 3);
	expect_failure(rpmem_persist(r, 8192, 8, 0, 2), EINVAL, "flags 0x2");
}

Test(librpmem, drain_makes_durable_what_was_flushed)
{
	struct replica *r = create();

	cr_assert_eq(rpmem_flush(r, 8192, 100, 0, 0), 0);
	cr_assert_eq(writes, 1, "the bytes are not sent");
	cr_assert_eq(rpmem_flush(r, 12288, 8, 1, 1), 0);
	cr_assert_eq(rpmem_drain(r, 0, 0), 0);
	cr_assert_eq(commits, 1);
	cr_assert(is_durable(8192, 100) && is_durable(12288, 8));
}

Test(librpmem, the_failure_of_a_commit_is_that_of_drain_and_of_all_later_calls)
{
	struct replica *r = create();

	next_result = -EIO;
	expect_failure(rpmem_drain(r, 0, 0), EIO, "CAUSE");
	expect_failure(rpmem_drain(r, 0, 0), EIO, "an earlier write");
	expect_failure(rpmem_persist(r, 8192, 8, 0, 0), EIO,
		       "an earlier write");
	expect_failure(rpmem_flush(r, 8192, 8, 0, 0), EIO, "an earlier write");
	expect_failure(rpmem_read(r, local, 8192, 8, 0), EIO,
		       "an earlier write");
	cr_assert(commits == 1 && !writes);
}

Test(librpmem, a_target_that_is_away_is_named_with_its_time_and_the_cause)
{
	struct replica *r = create();

	cr_assert_eq(timeout, 60);
	next_result = -ETIMEDOUT;
	expect_failure(
		rpmem_read(r, local, 8192, 8, 0), ETIMEDOUT,
		"the replica was not reached for 60 seconds: CAUSE; open the "
		"replica again");
	next_result = -ETIMEDOUT;
	expect_failure(rpmem_persist(r, 8192, 8, 0, 0), ETIMEDOUT,
		       "not reached for 60 seconds: CAUSE");
	expect_failure(rpmem_drain(r, 0, 0), ETIMEDOUT, "an earlier write");
}

Test(librpmem, a_target_of_ssh_that_is_away_is_a_reset_connection)
{
	struct replica *r;

	by_ssh = true;
	r = create();
	cr_assert_eq(timeout, 10);
	next_result = -ETIMEDOUT;
	expect_failure(rpmem_persist(r, 8192, 8, 0, 0), ECONNRESET,
		       "not reached for 10 seconds: CAUSE");
	expect_failure(rpmem_drain(r, 0, 0), ECONNRESET, "an earlier write");
	ssh_result = -ECONNRESET;
	expect_failure(rpmem_close(r), ECONNRESET, "had ended before");
}

Test(librpmem, a_weaker_pool_is_refused_with_the_variable_that_takes_it)
{
	unsigned int lanes = 1;

	open_result = -EOPNOTSUPP;
	expect_failure(
		rpmem_open("host", "vol", local, SIZE, &lanes, attr) ? 0 : -1,
		EOPNOTSUPP, "CAUSE (RPMEM_CLASS)");
	by_ssh = true;
	expect_failure(
		rpmem_open("host", "vol", local, SIZE, &lanes, attr) ? 0 : -1,
		EOPNOTSUPP, "CAUSE (RPMEM_CLASS)");
	cr_assert(!undone && ends == 1);
}

/* The daemon has made the pool's file before the client opens the pool. */
Test(librpmem, a_creation_is_undone_if_its_pool_cannot_be_opened)
{
	unsigned int lanes = 1;

	by_ssh = true;
	open_result = -ECONNREFUSED;
	expect_failure(
		rpmem_create("host", "vol", local, SIZE, &lanes, attr) ? 0 : -1,
		ECONNREFUSED, "CAUSE");
	cr_assert(undone && ends == 1);
}

Test(librpmem, attributes_are_durable_and_no_write_reaches_them)
{
	struct replica *r = create();
	unsigned int lanes = 1;

	cr_assert(!memcmp(durable + 8, attr, sizeof(attr)));
	expect_failure(rpmem_persist(r, HEADER - 8, 16, 0, 0), EINVAL,
		       "attributes");
	expect_failure(rpmem_flush(r, 0, 8, 0, 0), EINVAL, "attributes");
	cr_assert_eq(writes, 0);
	memset(attr, 9, sizeof(attr));
	cr_assert_eq(rpmem_set_attr(r, attr), 0);
	cr_assert(!memcmp(durable + 8, attr, sizeof(attr)));
	cr_assert_eq(rpmem_close(r), 0);
	memset(attr, 0, sizeof(attr));
	cr_assert(rpmem_open("host", "vol", local, SIZE, &lanes, attr));
	cr_assert_eq(attr[103], 9);
}

/* The rule of PMDK's librpmem 1.12. */
Test(librpmem, attributes_that_are_not_given_are_zero)
{
	static const unsigned char zeros[sizeof(attr)];
	struct replica *r = create();
	unsigned int lanes = 1;

	cr_assert_eq(rpmem_set_attr(r, NULL), 0);
	cr_assert_eq(rpmem_close(r), 0);
	cr_assert(rpmem_open("host", "vol", local, SIZE, &lanes, attr), "%s",
		  rpmem_errormsg());
	cr_assert(!memcmp(attr, zeros, sizeof(attr)));
}

Test(librpmem, attributes_are_not_written_behind_a_failed_write)
{
	struct replica *r = create();

	next_result = -EIO;
	expect_failure(rpmem_persist(r, 8192, 8, 0, 0), EIO, "CAUSE");
	writes = 0;
	expect_failure(rpmem_set_attr(r, attr), EIO, "an earlier write");
	cr_assert_eq(writes, 0);
}

Test(librpmem, the_failure_to_write_attributes_is_that_of_all_later_calls)
{
	struct replica *r = create();

	next_result = -ETIMEDOUT;
	expect_failure(rpmem_set_attr(r, attr), ETIMEDOUT,
		       "not reached for 60 seconds: CAUSE");
	expect_failure(rpmem_persist(r, 8192, 8, 0, 0), ETIMEDOUT,
		       "an earlier write");
	expect_failure(rpmem_set_attr(r, attr), ETIMEDOUT, "an earlier write");
	cr_assert_eq(writes, 1);
}

/* No byte of a replica, or of anything else, is overwritten by a creation. */
Test(librpmem, a_creation_takes_only_an_unused_pool)
{
	unsigned int lanes = 1;

	create();
	expect_failure(
		rpmem_create("host", "vol", local, SIZE, &lanes, attr) ? 0 : -1,
		EEXIST, "has a replica already");
	pool[20] ^= 1;
	by_ssh = true;
	expect_failure(
		rpmem_create("host", "vol", local, SIZE, &lanes, attr) ? 0 : -1,
		EEXIST, "holds something else");
	cr_assert(undone && !writes);
	by_ssh = false;
	expect_failure(rpmem_remove("host", "vol", 0), ENOENT,
		       "has no replica");
	pool[20] ^= 1;
	cr_assert_eq(rpmem_remove("host", "vol", 0), 0);
	cr_assert(!durable[0] && !durable[8] && !durable[HEADER - 1]);
}

/* The daemon refuses so the creation of an existing pool without headers. */
Test(librpmem, a_creation_with_attributes_needs_a_set_with_headers)
{
	unsigned int lanes = 1;

	by_ssh = true;
	ssh_refusal = -EEXIST;
	expect_failure(
		rpmem_create("host", "vol", local, SIZE, &lanes, attr) ? 0 : -1,
		EINVAL, "has the OPTION NOHDRS");
	expect_failure(
		rpmem_create("host", "vol", local, SIZE, &lanes, NULL) ? 0 : -1,
		EEXIST, "CAUSE");
	ssh_refusal = -ENOSPC;
	expect_failure(
		rpmem_create("host", "vol", local, SIZE, &lanes, attr) ? 0 : -1,
		ENOSPC, "CAUSE");
}

Test(librpmem, a_range_outside_the_pool_or_a_foreign_lane_is_not_written)
{
	struct replica *r = create();

	expect_failure(rpmem_persist(r, SIZE - 8, 9, 0, 0), EINVAL,
		       "go beyond");
	expect_failure(rpmem_persist(r, SIZE + 1, 0, 0, 0), EINVAL,
		       "go beyond");
	expect_failure(rpmem_flush(r, 8192, SIZE_MAX - 8, 0, 0), EINVAL,
		       "go beyond");
	expect_failure(rpmem_flush(r, 8192, 8, 2, 0), EINVAL, "lane 2 of 2");
	expect_failure(rpmem_drain(r, 2, 0), EINVAL, "lane 2 of 2");
	cr_assert(!writes && !commits);
}
