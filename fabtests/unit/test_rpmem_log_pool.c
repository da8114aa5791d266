/* SPDX-License-Identifier: BSD-2-Clause */
/* librpmem_log: how it opens a pool, and several logs of one. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include <criterion/criterion.h>
#include <xxhash.h>

#include "log_rig.h"
#include "util/bytes.h"

#define LENGTH (LOG_RING_AT + LOG_RING_MIN)

static struct rig rig;
static struct seeded rnd = {.state = 1};

/* A pool that is not divided, and as long as so many of the shortest logs. */
static void start_pool(unsigned int room)
{
	rig_init(&rig, &rnd, (uint64_t)room * LENGTH);
	memset(rig.visible, 0, rig.length);
	rig_pool = (struct rig_pool){.rig = &rig, .parts = 1};
}

static void finish_pool(void)
{
	cr_assert_eq(rig_pool.handles, 0, "%u pools are open",
		     rig_pool.handles);
	rig_fini(&rig);
}

static struct rpmem_log_attr attr_of(unsigned int logs, unsigned int log)
{
	return (struct rpmem_log_attr){
		.size = sizeof(struct rpmem_log_attr),
		.logs = logs,
		.log = log,
	};
}

static int create_log(unsigned int logs, unsigned int log)
{
	const struct rpmem_log_attr a = attr_of(logs, log);

	return rpmem_log_create("h:p", &a);
}

static int open_log(struct rpmem_log **l, unsigned int logs, unsigned int log)
{
	const struct rpmem_log_attr a = attr_of(logs, log);

	return rpmem_log_open(l, "h:p", &a);
}

/* The log has one entry, this byte. */
static void expect_one_byte_log(struct rpmem_log *l, char byte)
{
	uint64_t lsn = RPMEM_LOG_HEAD;
	char c = 0;
	size_t len;

	cr_assert_eq(rpmem_log_read(l, &lsn, &c, 1, &len, 0), 1, "%s",
		     rpmem_log_error());
	cr_assert_eq(c, byte);
	cr_assert_eq(rpmem_log_read(l, &lsn, &c, 1, &len, 0), 0);
}

Test(rpmem_log_pool, each_log_is_in_its_part)
{
	struct rpmem_log *l[3];

	start_pool(3);
	for (unsigned int i = 0; i < 3; i++)
		cr_assert_eq(create_log(3, (i + 1) % 3), 0, "%s",
			     rpmem_log_error());
	cr_assert_eq(rig_pool.parts, 3);
	for (unsigned int i = 0; i < 3; i++) {
		cr_assert_eq(open_log(&l[i], 3, i), 0, "%s", rpmem_log_error());
		cr_assert_eq(rpmem_log_append(l[i], &"abc"[i], 1, NULL), 0);
	}
	for (unsigned int i = 0; i < 3; i++) {
		expect_one_byte_log(l[i], "abc"[i]);
		cr_assert_eq(memcmp(rig.visible + i * LENGTH, "RPMEMLOG", 8),
			     0);
		rpmem_log_close(l[i]);
	}
	for (unsigned int i = 0; i < 3; i++)
		cr_assert_eq(create_log(3, i), -EEXIST);
	finish_pool();
}

Test(rpmem_log_pool, pool_that_is_a_log_is_not_divided)
{
	struct rpmem_log *l;

	start_pool(2);
	cr_assert_eq(create_log(0, 0), 0, "%s", rpmem_log_error());
	cr_assert_eq(create_log(2, 0), -EEXIST);
	cr_assert_eq(create_log(2, 1), -EEXIST);
	cr_assert_eq(rig_pool.parts, 1);
	cr_assert_eq(open_log(&l, 2, 1), -ENXIO);
	cr_assert_eq(open_log(&l, 1, 0), 0, "%s", rpmem_log_error());
	rpmem_log_close(l);
	/* Both superblocks are damaged: it may be restored from a copy. */
	rig.visible[40] ^= 1;
	rig.visible[LOG_SLOT + 40] ^= 1;
	cr_assert_eq(create_log(2, 1), -EEXIST);
	cr_assert_eq(rig_pool.parts, 1);
	finish_pool();
}

Test(rpmem_log_pool, another_number_is_refused)
{
	struct rpmem_log *l;

	start_pool(3);
	cr_assert_eq(create_log(2, 0), 0, "%s", rpmem_log_error());
	for (unsigned int n = 0; n < 4; n++) {
		if (n == 2)
			continue;
		cr_assert_eq(open_log(&l, n, 0), -ENXIO, "%u", n);
		cr_assert_eq(create_log(n, 0), -ENXIO, "%u", n);
	}
	cr_assert_eq(rig_pool.parts, 2);
	finish_pool();
}

/* Two creators of logs of one pool: the second one finds it divided. */
Test(rpmem_log_pool, pool_may_be_divided_meanwhile)
{
	start_pool(3);
	rig_pool.parts_made_meanwhile = 3;
	cr_assert_eq(create_log(3, 1), 0, "%s", rpmem_log_error());
	rig_pool.parts = 1;
	rig_pool.parts_made_meanwhile = 2;
	cr_assert_eq(create_log(3, 2), -ENXIO);
	cr_assert_eq(rig_pool.parts, 2);
	finish_pool();
}

Test(rpmem_log_pool, log_that_is_none_is_refused)
{
	struct rpmem_log *l;

	start_pool(3);
	cr_assert_eq(create_log(2, 2), -EINVAL);
	cr_assert(strstr(rpmem_log_error(), "no log 2 of 2"));
	cr_assert_eq(create_log(0, 1), -EINVAL);
	cr_assert_eq(create_log(33, 0), -EINVAL);
	cr_assert_eq(open_log(&l, 33, 0), -EINVAL);
	cr_assert_eq(open_log(&l, 1, 1), -EINVAL);
	cr_assert_eq(rig_pool.opens, 0, "no pool was opened");
	finish_pool();
}

Test(rpmem_log_pool, pool_that_is_too_short_is_not_divided)
{
	start_pool(3);
	cr_assert_eq(create_log(4, 0), -ENOSPC);
	cr_assert_eq(rig_pool.parts, 1);
	cr_assert_eq(create_log(3, 2), 0, "%s", rpmem_log_error());
	finish_pool();
}

/* A caller that was compiled when the struct ended with the layout. */
Test(rpmem_log_pool, attributes_of_an_older_caller_are_one_log)
{
	struct rpmem_log_attr a = attr_of(77, 99);
	struct rpmem_log *l;

	start_pool(1);
	a.size = offsetof(struct rpmem_log_attr, log);
	cr_assert_eq(rpmem_log_create("h:p", &a), 0, "%s", rpmem_log_error());
	cr_assert_eq(rpmem_log_open(&l, "h:p", &a), 0, "%s", rpmem_log_error());
	rpmem_log_close(l);
	a.size--;
	cr_assert_eq(rpmem_log_open(&l, "h:p", &a), -EINVAL);
	cr_assert_eq(rpmem_log_create("h:p", &a), -EINVAL);
	finish_pool();
}

Test(rpmem_log_pool, writer_is_exclusive_and_reader_observes)
{
	struct rpmem_log_attr a = attr_of(2, 1);
	struct rpmem_log *l;

	start_pool(2);
	cr_assert_eq(create_log(2, 1), 0, "%s", rpmem_log_error());
	cr_assert_eq(rig_pool.attr.exclusive, RPMEM_POOL_EXCLUSIVE);
	a.read_only = 1;
	cr_assert_eq(rpmem_log_create("h:p", &a), -EINVAL);
	cr_assert_eq(rpmem_log_open(&l, "h:p", &a), 0, "%s", rpmem_log_error());
	cr_assert_eq(rig_pool.attr.exclusive, RPMEM_POOL_OBSERVE);
	rpmem_log_close(l);
	a.take = 1;
	cr_assert_eq(rpmem_log_open(&l, "h:p", &a), -EINVAL);
	a.read_only = 0;
	cr_assert_eq(rpmem_log_open(&l, "h:p", &a), 0, "%s", rpmem_log_error());
	cr_assert_eq(rig_pool.attr.exclusive, RPMEM_POOL_TAKE);
	rpmem_log_close(l);
	finish_pool();
}

/* A writer keeps the log that a creator would take from it in vain. */
Test(rpmem_log_pool, nothing_is_taken_unless_a_log_is_created)
{
	struct rpmem_log_attr a = attr_of(0, 0);

	start_pool(2);
	a.take = 1;
	cr_assert_eq(rpmem_log_create("h:p", &a), 0, "%s", rpmem_log_error());
	cr_assert_eq(rig_pool.attr.exclusive, RPMEM_POOL_TAKE);
	for (a.logs = 1; a.logs < 4; a.logs++) {
		cr_assert_eq(rpmem_log_create("h:p", &a),
			     a.logs == 3 ? -ENOSPC : -EEXIST);
		cr_assert_eq(rig_pool.attr.exclusive, RPMEM_POOL_OBSERVE, "%u",
			     a.logs);
	}
	memset(rig.visible, 0, rig.length);
	a.logs = 2;
	cr_assert_eq(rpmem_log_create("h:p", &a), 0, "%s", rpmem_log_error());
	cr_assert_eq(rpmem_log_create("h:p", &a), -EEXIST);
	cr_assert_eq(rig_pool.attr.exclusive, RPMEM_POOL_OBSERVE);
	rig.length = LENGTH - 64;
	rig_pool.parts = 1;
	a.logs = 1;
	cr_assert_eq(rpmem_log_create("h:p", &a), -ENOSPC);
	cr_assert_eq(rig_pool.attr.exclusive, RPMEM_POOL_OBSERVE);
	rig.length = 2 * LENGTH;
	finish_pool();
}

/* An error names the log, its pool and its target. */
Test(rpmem_log_pool, error_names_the_log)
{
	static const struct {
		const char *where, *name;
	} names[] = {
		{"h:p", "log 1 of 2 of pool 'p' at h: "},
		{"h:7:p", "log 1 of 2 of pool 'p' at h:7: "},
		{"h:7:p:8:", "log 1 of 2 of pool 'p:8:' at h:7: "},
		{"h:7p", "log 1 of 2 of pool '7p' at h: "},
		{"[::1]:7:p", "log 1 of 2 of pool 'p' at [::1]:7: "},
		{"[::1]:p", "log 1 of 2 of pool 'p' at [::1]: "},
		{"h", "log 1 of 2 of pool '' at h: "},
		{NULL, "log 1 of 2 of pool '' at : "},
	};
	struct rpmem_log_attr a = attr_of(2, 1);
	uint64_t lsn = RPMEM_LOG_HEAD;
	struct rpmem_log *l;
	size_t len;
	char c;

	start_pool(2);
	cr_assert_eq(create_log(2, 0), 0, "%s", rpmem_log_error());
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		cr_assert_eq(rpmem_log_open(&l, names[i].where, &a), -ENODATA);
		cr_assert(strstr(rpmem_log_error(), names[i].name) ==
				  rpmem_log_error(),
			  "%s", rpmem_log_error());
	}
	cr_assert_eq(create_log(2, 1), 0, "%s", rpmem_log_error());
	cr_assert_eq(create_log(2, 1), -EEXIST);
	cr_assert(strstr(rpmem_log_error(), names[0].name));
	cr_assert_eq(open_log(&l, 2, 1), 0, "%s", rpmem_log_error());
	cr_assert_eq(rpmem_log_append(l, "x", 1, &lsn), 0);
	rig.visible[LENGTH + LOG_RING_AT + lsn] ^= 1;
	cr_assert_eq(rpmem_log_read(l, &lsn, &c, 1, &len, 0), -EBADMSG);
	cr_assert(strstr(rpmem_log_error(), names[0].name));
	rig.fail_once = -ESTALE;
	cr_assert_eq(rpmem_log_append(l, "x", 1, NULL), -ESTALE);
	cr_assert(strstr(rpmem_log_error(), names[0].name));
	rpmem_log_close(l);
	rig.visible[LENGTH + 40] ^= 1;
	rig.visible[LENGTH + LOG_SLOT + 40] ^= 1;
	cr_assert_eq(open_log(&l, 2, 1), -EBADMSG);
	cr_assert(strstr(rpmem_log_error(), names[0].name));
	cr_assert_eq(rpmem_log_open(&l, "h:p", NULL), -ENXIO);
	cr_assert(strstr(rpmem_log_error(), "pool 'p' at h: ") ==
		  rpmem_log_error());
	finish_pool();
}

/*
 * Two takers of a log displace each other while they open it: the daemon says
 * so, or closes the connection.
 */
Test(rpmem_log_pool, taker_tries_again)
{
	static const int rets[] = {-ESTALE, -EBUSY, -EIO};
	struct rpmem_log_attr a = attr_of(0, 0);
	struct rpmem_log *l;

	start_pool(1);
	cr_assert_eq(create_log(0, 0), 0, "%s", rpmem_log_error());
	for (unsigned int i = 0; i < 3; i++) {
		rig_pool.open_failure = rets[i];
		rig_pool.opens = 0;
		rig_pool.opens_to_fail = 3;
		a.take = 0;
		cr_assert_eq(rpmem_log_open(&l, "h:p", &a), rets[i]);
		cr_assert_eq(rig_pool.opens, 1, "it does not take the log");
		a.take = 1;
		cr_assert_eq(rpmem_log_open(&l, "h:p", &a), 0, "%d", rets[i]);
		cr_assert_eq(rig_pool.opens, 4);
		rpmem_log_close(l);
	}
	finish_pool();
}

/* The pool was divided again by hand: part 1 of 2 begins with log 2 of 4. */
Test(rpmem_log_pool, bytes_of_another_log_are_refused)
{
	struct rpmem_log_attr a = attr_of(2, 1);
	struct rpmem_log *l;

	start_pool(4);
	for (unsigned int i = 0; i < 4; i++)
		cr_assert_eq(create_log(4, i), 0, "%s", rpmem_log_error());
	rig_pool.parts = 2;
	cr_assert_eq(open_log(&l, 2, 1), -ENXIO);
	cr_assert(strstr(rpmem_log_error(), "of log 2 of 4"));
	a.read_only = 1;
	cr_assert_eq(rpmem_log_open(&l, "h:p", &a), -ENXIO);
	cr_assert_eq(create_log(2, 1), -EEXIST);
	cr_assert_eq(open_log(&l, 2, 0), -ENXIO);
	rig_pool.parts = 1;
	cr_assert_eq(open_log(&l, 1, 0), -ENXIO);
	cr_assert_eq(create_log(1, 0), -EEXIST);
	rig_pool.parts = 4;
	cr_assert_eq(open_log(&l, 4, 2), 0, "%s", rpmem_log_error());
	rpmem_log_close(l);
	/* A log of the right number, and another one of them. */
	memcpy(rig.visible, rig.visible + LENGTH, LENGTH);
	cr_assert_eq(open_log(&l, 4, 0), -ENXIO);
	/* A longer one. */
	memset(rig.visible, 0, rig.length);
	rig_pool.parts = 2;
	cr_assert_eq(create_log(2, 0), 0, "%s", rpmem_log_error());
	rig_pool.parts = 4;
	cr_assert_eq(open_log(&l, 4, 0), -ENXIO);
	finish_pool();
}

/*
 * The superblock of version 1 lacks the number of the log and the count of
 * logs; the first writer of such a log stores them.
 */
Test(rpmem_log_pool, log_of_version_1_gets_its_numbers)
{
	unsigned char *super;
	struct rpmem_log *l;

	start_pool(4);
	super = rig.visible + LENGTH;
	cr_assert_eq(create_log(4, 1), 0, "%s", rpmem_log_error());
	rp_put32(super + 16, 1);
	rp_put64(super + 8, XXH3_64bits(super + 16, LOG_SUPER_BYTES - 16));
	cr_assert_eq(open_log(&l, 4, 1), -EBADMSG, "version 1 has no numbers");
	memset(super + 72, 0, 8);
	rp_put64(super + 8, XXH3_64bits(super + 16, LOG_SUPER_BYTES - 16));
	cr_assert_eq(open_log(&l, 4, 1), 0, "%s", rpmem_log_error());
	rpmem_log_close(l);
	memcpy(rig.visible, super, LENGTH);
	cr_assert_eq(open_log(&l, 4, 0), -ENXIO);
	finish_pool();
}

/*
 * A log of another release is refused by the number of its format, even if its
 * other superblock, the older one, has this release's format.
 */
Test(rpmem_log_pool, log_of_another_release_is_refused_by_its_format)
{
	struct rpmem_log *l;
	unsigned char *super;

	for (unsigned int i = 0; i < 2; i++) {
		start_pool(1);
		cr_assert_eq(create_log(1, 0), 0, "%s", rpmem_log_error());
		cr_assert_eq(open_log(&l, 1, 0), 0, "%s", rpmem_log_error());
		rpmem_log_close(l);
		super = rig.visible + (size_t)i * LOG_SLOT;
		rp_put32(super + 16, 77);
		cr_assert_eq(open_log(&l, 1, 0), 0, "it is only damaged");
		rpmem_log_close(l);
		rp_put32(super + 16, 77);
		rp_put64(super + 8,
			 XXH3_64bits(super + 16, LOG_SUPER_BYTES - 16));
		cr_assert_eq(open_log(&l, 1, 0), -EPROTONOSUPPORT);
		cr_assert(strstr(rpmem_log_error(), "another release"));
		cr_assert(strstr(rpmem_log_error(), "77, this release has 2"),
			  "%s", rpmem_log_error());
		cr_assert_eq(create_log(1, 0), -EEXIST);
		cr_assert(strstr(rpmem_log_error(), "another release"));
		finish_pool();
	}
}

/* Each of the two superblocks of librpmem_rpc may be the only one. */
Test(rpmem_log_pool, ring_of_calls_is_kept)
{
	struct rpmem_log *l;

	start_pool(2);
	for (unsigned int i = 0; i < 2; i++) {
		memset(rig.visible, 0, rig.length);
		memcpy(rig.visible + (size_t)i * LOG_SLOT, "RPMEMRPC", 8);
		cr_assert_eq(create_log(1, 0), -EEXIST);
		cr_assert(strstr(rpmem_log_error(), "librpmem_rpc"));
		cr_assert_eq(create_log(2, 0), -EEXIST);
		cr_assert_eq(rig_pool.parts, 1);
		cr_assert_eq(open_log(&l, 1, 0), -ENODATA);
		cr_assert(strstr(rpmem_log_error(), "librpmem_rpc"));
	}
	finish_pool();
}
