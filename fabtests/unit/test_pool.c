// SPDX-License-Identifier: BSD-2-Clause
/* Pool files: a damaged, busy or unfit file is refused and not changed. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "util/bytes.h"
#include "util/pool.h"

#include "pool_syncs.h"

#define DATA 20480u
#define SIZE (RP_POOL_DATA + DATA)

static char dir[64], path[96], err[RP_ERR_LEN];
static void setup(void)
{
	strcpy(dir, "pooltest.XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/pool", dir);
	err[0] = 0;
}

static unsigned int count_entries(const char *name)
{
	DIR *d = opendir(name);
	unsigned int n = 0;

	cr_assert_not_null(d);
	for (struct dirent *e; (e = readdir(d));)
		n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	closedir(d);
	return n;
}

static void teardown(void)
{
	unlink(path);
	/* rmdir() fails if a test has left a file behind. */
	cr_assert(rmdir(dir) == 0 || errno == ENOENT, "%s is not empty", dir);
}

TestSuite(pool, .init = setup, .fini = teardown, .timeout = 60);

static void create_pool(void)
{
	cr_assert_eq(rp_pool_create(path, DATA, err), 0, "%s", err);
}

static void read_file(uint8_t *buf, size_t len)
{
	int fd = open(path, O_RDONLY);

	cr_assert_eq(pread(fd, buf, len, 0), (ssize_t)len);
	close(fd);
}

static void write_file(off_t at, const void *bytes, size_t len)
{
	int fd = open(path, O_WRONLY);

	cr_assert_eq(pwrite(fd, bytes, len, at), (ssize_t)len);
	close(fd);
}

static void expect_refused(int code, const char *word)
{
	struct rp_pool p;

	err[0] = 0;
	cr_assert_eq(rp_pool_open(path, &p, err), code, "%s", err);
	cr_assert_not_null(strstr(err, path), "%s", err);
	cr_assert_not_null(strstr(err, word), "no '%s' in: %s", word, err);
}

Test(pool, lives_through_use)
{
	struct rp_pool p;
	struct stat st;

	cr_assert_eq(rp_pool_create(path, DATA - 5, err), 0, "%s", err);
	cr_assert_eq(stat(path, &st), 0);
	cr_assert_eq(st.st_size, SIZE, "rounded up");
	cr_assert_geq(st.st_blocks * 512, (blkcnt_t)SIZE, "has holes");
	cr_assert_eq(st.st_mode & 0777, 0600);

	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert(p.was_clean);
	cr_assert_eq(p.size, DATA);
	cr_assert_eq((uintptr_t)p.data % (uintptr_t)sysconf(_SC_PAGESIZE), 0);
	for (size_t i = 0; i < p.size; i++)
		cr_assert_eq(((char *)p.data)[i], 0);
	memset(p.data, 0x5a, p.size);
	rp_pool_abandon(&p);

	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert_not(p.was_clean, "its user did not close it");
	cr_assert_eq(((char *)p.data)[DATA - 1], 0x5a);
	cr_assert_eq(rp_pool_close_clean(&p, err), 0, "%s", err);

	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert(p.was_clean);
	rp_pool_abandon(&p);
}

Test(pool, generations_and_uuids)
{
	struct rp_pool p;
	uint64_t last = 0;
	uint8_t uuid[16];

	create_pool();
	for (int i = 0; i < 5; i++) {
		cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
		cr_assert_gt(p.generation, last);
		last = p.generation;
		if (i)
			cr_assert_arr_eq(uuid, p.uuid, 16);
		memcpy(uuid, p.uuid, 16);
		rp_pool_abandon(&p);
	}
	unlink(path);
	create_pool();
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert_neq(memcmp(uuid, p.uuid, 16), 0, "a uuid twice");
	rp_pool_abandon(&p);
}

Test(pool, existing_name_is_left_alone)
{
	uint8_t before[SIZE], after[SIZE];

	create_pool();
	read_file(before, SIZE);
	cr_assert_eq(rp_pool_create(path, 2 * DATA, err), -EEXIST);
	cr_assert_not_null(strstr(err, path));
	read_file(after, SIZE);
	cr_assert_arr_eq(before, after, SIZE);
	cr_assert_eq(count_entries(dir), 1);
}

Test(pool, size_zero)
{
	cr_assert_eq(rp_pool_create(path, 0, err), -EINVAL);
	cr_assert_eq(rp_pool_create(path, UINT64_MAX, err), -EINVAL);
	cr_assert_eq(count_entries(dir), 0);
}

Test(pool, missing)
{
	expect_refused(-ENOENT, "--create");
}

Test(pool, not_a_file)
{
	cr_assert_eq(mkdir(path, 0700), 0);
	expect_refused(-EISDIR, "directory");
	rmdir(path);
}

/* Lengths around the header of 512 bytes at 0 and its second copy at 4096. */
Test(pool, truncated_at_every_interesting_length)
{
	static const struct {
		off_t len;
		int code;
		const char *word;
	} cuts[] = {
		{SIZE - 1, -ENODATA, "truncated"},
		{SIZE - 4096, -ENODATA, "truncated"},
		{RP_POOL_DATA + 1, -ENODATA, "truncated"},
		{RP_POOL_DATA, -ENODATA, "truncated"},
		{RP_POOL_DATA - 1, -ENODATA, "truncated"},
		{4608, -ENODATA, "truncated"},
		{4607, -ENODATA, "truncated"},
		{4096, -ENODATA, "truncated"},
		{512, -ENODATA, "truncated"},
		{511, -EINVAL, "no pool"},
		{8, -EINVAL, "no pool"},
		{1, -EINVAL, "no pool"},
		{0, -EINVAL, "no pool"},
	};
	char number[32];

	create_pool();
	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		cr_assert_eq(truncate(path, cuts[i].len), 0);
		expect_refused(cuts[i].code, cuts[i].word);
		snprintf(number, sizeof(number), " %jd bytes",
			 (intmax_t)cuts[i].len);
		cr_assert_not_null(strstr(err, number), "%s", err);
	}
}

Test(pool, grown)
{
	create_pool();
	cr_assert_eq(truncate(path, SIZE + 1), 0);
	expect_refused(-EBADMSG, "grown");
	/* The remedy that the error message names works. */
	cr_assert_eq(truncate(path, SIZE), 0);
	struct rp_pool p;
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	rp_pool_abandon(&p);
}

/*
 * A daemon dies between the growth of the file and the new header: the next one
 * finishes the growth. Nobody has used the new bytes, unless the newer header
 * was damaged, so no byte may be cut off.
 */
Test(pool, growth_that_a_crash_interrupted_is_finished)
{
	const uint64_t more = 10 * RP_POOL_UNIT;
	uint8_t damage = 0xff;
	struct rp_pool p;
	struct stat st;

	create_pool();
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	memset(p.data, 'a', DATA);
	cr_assert_eq(truncate(path, (off_t)(SIZE + more - 1)), 0);
	rp_pool_abandon(&p);
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert_eq(p.size, DATA + more);
	cr_assert_eq(((char *)p.data)[DATA - 1], 'a');
	cr_assert_eq(stat(path, &st), 0);
	cr_assert_eq((uint64_t)st.st_size, SIZE + more);
	cr_assert_geq((uint64_t)st.st_blocks * 512, SIZE + more);
	cr_assert_eq(rp_pool_close_clean(&p, err), 0, "%s", err);
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert_eq(p.size, DATA + more);
	/* The header with the new length is damaged. */
	cr_assert_eq(rp_pool_allocate(&p, err), 0);
	cr_assert_eq(truncate(path, (off_t)(SIZE + 2 * more)), 0);
	cr_assert_eq(rp_pool_allocate(&p, err), 1, "%s", err);
	cr_assert_eq(rp_pool_extend(&p, err), 0, "%s", err);
	memset(p.data, 'b', p.size);
	write_file((off_t)RP_POOL_COPY(p.generation) + 9, &damage, 1);
	rp_pool_abandon(&p);
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert_eq(p.size, DATA + 2 * more);
	cr_assert_eq(((char *)p.data)[p.size - 1], 'b');
	rp_pool_abandon(&p);
}

Test(pool, interrupted_growth_without_room_is_refused)
{
	struct statvfs fs;
	struct rp_pool p;
	struct stat st;
	off_t size;

	create_pool();
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	rp_pool_abandon(&p);
	cr_assert_eq(statvfs(dir, &fs), 0);
	size = (off_t)(SIZE + 2 * fs.f_blocks * fs.f_frsize);
	if (truncate(path, size))
		return; /* the file system refuses such a length */
	expect_refused(-ENOSPC, "truncate -s");
	cr_assert_eq(stat(path, &st), 0);
	cr_assert_eq(st.st_size, size);
	cr_assert_eq(truncate(path, SIZE), 0);
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	rp_pool_abandon(&p);
}

/* Each wrong bit of the header is noticed, in one copy and in both. */
Test(pool, every_bit_of_the_header_is_checked)
{
	uint8_t good[2][RP_POOL_HDR], bad[2][RP_POOL_HDR];
	struct rp_pool p;
	uint8_t head[4096 + RP_POOL_HDR];

	create_pool();
	read_file(head, sizeof(head));
	memcpy(good[0], head, RP_POOL_HDR);
	memcpy(good[1], head + 4096, RP_POOL_HDR);
	for (unsigned int bit = 0; bit < 8 * RP_POOL_HDR; bit++) {
		memcpy(bad, good, sizeof(bad));
		for (int i = 0; i < 2; i++) {
			bad[i][bit / 8] ^= (uint8_t)(1 << bit % 8);
			write_file(4096 * i, bad[i], RP_POOL_HDR);
		}
		err[0] = 0;
		cr_assert_lt(rp_pool_open(path, &p, err), 0,
			     "bit %u of both headers is wrong and nobody "
			     "noticed",
			     bit);
		cr_assert_not_null(strstr(err, path));
		/* fsync is slow, so flip one bit of some bytes only. */
		if (bit % 8 != bit / 8 % 8 || bit / 8 % 8)
			continue;
		for (int i = 0; i < 2; i++) {
			write_file(4096 * i, good[i], RP_POOL_HDR);
			write_file(4096 * !i, bad[!i], RP_POOL_HDR);
			cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
			cr_assert_not(p.was_clean, "the damaged copy may have "
						   "been the newest");
			cr_assert_eq(p.size, DATA);
			rp_pool_abandon(&p);
		}
	}
}

Test(pool, damage_is_named)
{
	uint8_t zeros[8] = {0};

	create_pool();
	write_file(40, zeros, 8);
	write_file(4096 + 40, zeros, 8);
	expect_refused(-EBADMSG, "damaged");
	write_file(0, zeros, 8);
	write_file(4096, zeros, 8);
	expect_refused(-EINVAL, "no pool");
}

Test(pool, other_version)
{
	static const uint8_t v2[4] = {2};

	create_pool();
	write_file(8, v2, 4);
	write_file(4096 + 8, v2, 4);
	expect_refused(-EPROTONOSUPPORT, "version 2");
}

Test(pool, torn_header_write)
{
	struct rp_pool p;
	uint8_t torn[100];
	uint64_t gen;

	/* The next header overwrites the older copy. */
	create_pool();
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	gen = p.generation;
	rp_pool_abandon(&p);
	memset(torn, 0xee, sizeof(torn));
	write_file(RP_POOL_COPY(gen + 1) + 100, torn, sizeof(torn));
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert_eq(p.generation, gen + 1);
	rp_pool_abandon(&p);
}

Test(pool, opened_twice_here)
{
	char pid[32], command[64] = {0};
	struct rp_pool p, q;
	int fd = open("/proc/self/cmdline", O_RDONLY);

	cr_assert_gt(read(fd, command, sizeof(command) - 1), 0);
	close(fd);
	create_pool();
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert_eq(rp_pool_open(path, &q, err), -EBUSY);
	snprintf(pid, sizeof(pid), "process %d (", getpid());
	cr_assert_not_null(strstr(err, pid), "%s", err);
	cr_assert_not_null(strstr(err, command), "%s", err);
	rp_pool_abandon(&p);
	cr_assert_eq(rp_pool_open(path, &q, err), 0, "%s", err);
	rp_pool_abandon(&q);
}

Test(pool, holder_is_another_process_and_dies)
{
	struct rp_pool p;
	char pid[32];
	int ready[2];
	pid_t child;
	char c;

	create_pool();
	cr_assert_eq(pipe(ready), 0);
	child = fork();
	if (!child) {
		/* Another user's program name reaches the terminal. */
		program_invocation_name[0] = '\x9b';
		program_invocation_name[1] = '\x1b';
		if (rp_pool_open(path, &p, err) == 0)
			c = write(ready[1], "x", 1);
		pause();
		_exit(0);
	}
	cr_assert_eq(read(ready[0], &c, 1), 1);
	cr_assert_eq(rp_pool_open(path, &p, err), -EBUSY);
	snprintf(pid, sizeof(pid), "process %d (", child);
	cr_assert_not_null(strstr(err, pid), "%s", err);
	for (const char *s = err; *s; s++)
		cr_assert(*s >= 0x20 && *s < 0x7f, "%s", err);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	/* The kernel has released the lock of the killed process. */
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	rp_pool_abandon(&p);
}

Test(pool, refusal_does_not_touch_the_file)
{
	uint8_t before[SIZE], after[SIZE];
	struct rp_pool p, q;

	create_pool();
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	read_file(before, SIZE);
	cr_assert_eq(rp_pool_open(path, &q, err), -EBUSY);
	read_file(after, SIZE);
	cr_assert_arr_eq(before, after, SIZE);
	rp_pool_abandon(&p);
}

Test(pool, owner_and_whether_it_holds_the_pool_are_kept)
{
	struct rp_pool p;

	create_pool();
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert(!p.owner[0] && !p.is_open);
	cr_assert_eq(rp_pool_set_owner(&p, 0, 77, err), 0, "%s", err);
	cr_assert_eq(rp_pool_set_length(&p, 9, err), 0, "%s", err);
	rp_pool_abandon(&p);
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert(p.owner[0] == 77 && p.is_open == 1 && p.length == 9);
	cr_assert_eq(rp_pool_release(&p, 1, err), 0, "%s", err);
	cr_assert_eq(rp_pool_close_clean(&p, err), 0, "%s", err);
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert(p.owner[0] == 77 && !p.is_open && p.length == 9);
	rp_pool_abandon(&p);
}

static void open_again(struct rp_pool *p)
{
	rp_pool_abandon(p);
	cr_assert_eq(rp_pool_open(path, p, err), 0, "%s", err);
}

/* The golden bytes of a divided pool's header. */
static void check_header(const struct rp_pool *p)
{
	uint8_t h[RP_POOL_HDR];
	const int fd = open(path, O_RDONLY);

	cr_assert_eq(pread(fd, h, sizeof(h), RP_POOL_COPY(p->generation)),
		     sizeof(h));
	close(fd);
	cr_assert_eq(h[64], 8, "the last owner");
	cr_assert_eq(h[72], 6, "both have their parts open");
	cr_assert_eq(h[96], 2, "parts");
	cr_assert_eq(rp_get64(h + 104), p->part_len);
	cr_assert(h[112] == 7 && h[120] == 8);
}

Test(pool, each_part_has_an_owner)
{
	struct rp_pool p;
	uint64_t len;

	create_pool();
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert_eq(rp_pool_set_owner(&p, 0, 5, err), 0, "%s", err);
	cr_assert_eq(rp_pool_divide(&p, 2, err), 0, "%s", err);
	cr_assert(p.owner[0] == 5 && p.is_open == 1, "it stays");
	cr_assert_eq(rp_pool_set_owner(&p, 1, 7, err), 0, "%s", err);
	cr_assert(p.owner[0] == 7 && p.is_open == 2, "5 is displaced");
	cr_assert_eq(rp_pool_set_owner(&p, 2, 8, err), 0, "%s", err);
	check_header(&p);
	open_again(&p);
	cr_assert_eq(p.parts, 2);
	cr_assert_eq(p.part_len, p.size / 2 / RP_POOL_UNIT * RP_POOL_UNIT);
	cr_assert(p.owner[1] == 7 && p.owner[2] == 8 && p.is_open == 6);
	cr_assert(rp_pool_part(&p, 0, &len) == 0 && len == p.size);
	cr_assert(rp_pool_part(&p, 1, &len) == 0 && len == p.part_len);
	cr_assert(rp_pool_part(&p, 2, &len) == len && len == p.part_len);
	cr_assert_eq(rp_pool_release(&p, 2, err), 0, "%s", err);
	open_again(&p);
	cr_assert(p.owner[1] == 7 && p.is_open == 4);
	/* An owner of the whole pool displaces the owners of both parts. */
	cr_assert_eq(rp_pool_set_owner(&p, 0, 9, err), 0, "%s", err);
	open_again(&p);
	cr_assert(p.owner[0] == 9 && !p.owner[1] && !p.owner[2]);
	cr_assert(p.is_open == 1 && p.parts == 2);
	rp_pool_abandon(&p);
}

Test(pool, division_fits_the_pool)
{
	struct rp_pool p;

	create_pool();
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert_eq(rp_pool_divide(&p, 0, err), -EINVAL);
	cr_assert_eq(rp_pool_divide(&p, RP_POOL_PARTS + 1, err), -EINVAL);
	cr_assert_eq(p.size / RP_POOL_UNIT, DATA / RP_POOL_UNIT);
	if (DATA / RP_POOL_UNIT < RP_POOL_PARTS)
		cr_assert_eq(rp_pool_divide(&p, DATA / RP_POOL_UNIT + 1, err),
			     -EINVAL);
	cr_assert_eq(p.parts, 0);
	cr_assert_eq(rp_pool_divide(&p, 2, err), 0, "%s", err);
	cr_assert_eq(rp_pool_set_owner(&p, 2, 8, err), 0, "%s", err);
	/* The pool is undivided again: no part has an owner. */
	cr_assert_eq(rp_pool_divide(&p, 1, err), 0, "%s", err);
	open_again(&p);
	cr_assert(!p.parts && !p.owner[2] && !p.is_open);
	rp_pool_abandon(&p);
}

/*
 * fi_rpmemd changes headers while other pools wait for it: each change is
 * durable, and writes back none of the pool's bytes.
 */
Test(pool, change_of_the_header_syncs_the_header_alone)
{
	struct rp_pool p;

	create_pool();
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	memset(p.data, 'a', DATA);
	whole_syncs = range_syncs = 0;
	longest_sync = 0;
	cr_assert_eq(rp_pool_release(&p, 1, err), 0, "%s", err);
	cr_assert_eq(range_syncs, 1);
	cr_assert_eq(rp_pool_set_length(&p, 5, err), 0, "%s", err);
	cr_assert_eq(range_syncs, 2);
	cr_assert_eq(rp_pool_divide(&p, 2, err), 0, "%s", err);
	cr_assert_eq(range_syncs, 3);
	cr_assert_eq(rp_pool_set_owner(&p, 1, 7, err), 0, "%s", err);
	cr_assert_eq(range_syncs, 4);
	cr_assert_eq(whole_syncs, 0);
	cr_assert_leq(longest_sync, RP_POOL_DATA);
	/* A pool that is closed has all its bytes on disk. */
	cr_assert_eq(rp_pool_close_clean(&p, err), 0, "%s", err);
	cr_assert_eq(whole_syncs, 1);
	cr_assert_eq(range_syncs, 5);
}

Test(pool, longer_file_is_served_as_it_is_used)
{
	const uint64_t more = 10 * RP_POOL_UNIT;
	struct rp_pool p;
	struct stat st;

	create_pool();
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert_eq(rp_pool_allocate(&p, err), 0);
	memset(p.data, 'a', DATA);
	cr_assert_eq(truncate(path, (off_t)(SIZE + more - 1)), 0);
	cr_assert_eq(rp_pool_allocate(&p, err), 1, "%s", err);
	/* The blocks are allocated although nothing was stored. */
	cr_assert_eq(stat(path, &st), 0);
	cr_assert_geq((uint64_t)st.st_blocks * 512, SIZE + more);
	/* The file grows once more, and its new blocks stay unallocated. */
	cr_assert_eq(truncate(path, (off_t)(SIZE + 2 * more)), 0);
	cr_assert_eq(rp_pool_extend(&p, err), 0, "%s", err);
	cr_assert_eq(p.size, DATA + more);
	cr_assert_eq(((char *)p.data)[DATA - 1], 'a');
	memset(p.data, 'b', p.size);
	cr_assert_eq(truncate(path, (off_t)(SIZE + more)), 0);
	rp_pool_abandon(&p);
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert_eq(p.size, DATA + more);
	cr_assert_eq(((char *)p.data)[p.size - 1], 'b');
	rp_pool_abandon(&p);
}

/* A header whose write-back failed is in the page cache, and not on the disk.
 */
Test(pool, the_header_is_read_from_the_disk)
{
	struct rp_pool p;

	create_pool();
	drops = 0;
	drops_at_read = 100;
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert_eq(drops_at_read, 1);
	rp_pool_abandon(&p);
}

Test(pool, file_that_cannot_grow_keeps_its_length)
{
	struct statvfs fs;
	struct rp_pool p;
	struct stat st;

	create_pool();
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert_eq(statvfs(dir, &fs), 0);
	/* A sparse file, unless the file system refuses such a length. */
	if (truncate(path, (off_t)(SIZE + 2 * fs.f_blocks * fs.f_frsize)) ==
	    0) {
		cr_assert_eq(rp_pool_allocate(&p, err), -ENOSPC);
		cr_assert(strstr(err, "cannot grow by"), "%s", err);
	}
	cr_assert_eq(stat(path, &st), 0);
	cr_assert_eq((uint64_t)st.st_size, SIZE);
	cr_assert_eq(rp_pool_allocate(&p, err), 0);
	rp_pool_abandon(&p);
}

Test(pool, file_that_is_cut_short_is_noticed)
{
	struct rp_pool p;

	create_pool();
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert_eq(truncate(path, (off_t)p.map_len - 1), 0);
	cr_assert_eq(rp_pool_check_file(&p), -ENODATA);
	cr_assert_eq(truncate(path, (off_t)p.map_len), 0);
	cr_assert_eq(rp_pool_check_file(&p), 0);
	rp_pool_abandon(&p);
}

Test(pool, removed_file_has_no_name)
{
	char other[128];
	struct rp_pool p;

	create_pool();
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert_eq(rp_pool_check_file(&p), 0);
	snprintf(other, sizeof(other), "%s/other", dir);
	cr_assert_eq(rename(path, other), 0);
	cr_assert_eq(rp_pool_check_file(&p), 0, "renamed");
	create_pool();
	cr_assert_eq(rp_pool_check_file(&p), 0, "another took its name");
	cr_assert_eq(rename(path, other), 0);
	cr_assert_eq(rp_pool_check_file(&p), -ENOENT, "replaced");
	cr_assert_eq(unlink(other), 0);
	cr_assert_eq(rp_pool_check_file(&p), -ENOENT, "removed");
	rp_pool_abandon(&p);
}

Test(pool, holes_of_a_pool_are_allocated)
{
	struct rp_pool p;
	struct stat st;
	int fd;

	create_pool();
	fd = open(path, O_RDWR);
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      RP_POOL_DATA, DATA)) {
		close(fd);
		unlink(path);
		rmdir(dir);
		cr_skip_test("this file system cannot punch holes");
	}
	close(fd);
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert_eq(fstat(p.fd, &st), 0);
	cr_assert_geq(st.st_blocks * 512, (blkcnt_t)SIZE, "still has holes");
	rp_pool_abandon(&p);
}

/* Opening a pool drops its page cache: bytes there may not be durable. */
Test(pool, open_drops_bytes_of_the_page_cache)
{
	unsigned char resident[DATA / 4096];
	struct rp_pool p;
	struct statfs fs;

	create_pool();
	cr_assert_eq(statfs(path, &fs), 0);
	if (fs.f_type == TMPFS_MAGIC) {
		unlink(path);
		rmdir(dir);
		cr_skip_test("tmpfs is the page cache");
	}
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	memset(p.data, 1, p.size);
	rp_pool_abandon(&p);
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	cr_assert_eq(mincore(p.data, p.size, resident), 0);
	for (size_t i = 0; i < sizeof(resident); i++)
		cr_assert_eq(resident[i] & 1, 0, "page %zu was kept", i);
	cr_assert_eq(((char *)p.data)[0], 1);
	cr_assert_eq(((char *)p.data)[DATA - 1], 1);
	rp_pool_abandon(&p);
}

/* Mount a small file system, which only this process sees; needs root. */
static bool small_mount(void)
{
	return geteuid() == 0 && unshare(CLONE_NEWNS) == 0 &&
	       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("none", dir, "tmpfs", 0, "size=256k") == 0;
}

Test(pool, disk_full)
{
	struct rp_pool p;
	int fd;

	if (!small_mount()) {
		rmdir(dir);
		cr_skip_test("mounting a small tmpfs needs root");
	}
	cr_assert_eq(rp_pool_create(path, 1 << 20, err), -ENOSPC, "%s", err);
	cr_assert_not_null(strstr(err, path), "%s", err);
	cr_assert_not_null(strstr(err, "1.1 MiB"), "%s", err);
	cr_assert_eq(count_entries(dir), 0, "something was left behind");

	/* A sparse copy of a pool where its blocks have no room. */
	create_pool();
	fd = open(path, O_RDWR);
	cr_assert_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			       8192, SIZE - 8192),
		     0);
	char filler[112];
	snprintf(filler, sizeof(filler), "%s/filler", dir);
	int full = open(filler, O_CREAT | O_WRONLY, 0600);
	char block[4096] = {1};
	while (write(full, block, sizeof(block)) > 0)
		;
	expect_refused(-ENOSPC, "holes");
	close(full);
	close(fd);
	unlink(filler);
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	rp_pool_abandon(&p);
	unlink(path);
	cr_assert_eq(umount(dir), 0);
}
