// SPDX-License-Identifier: BSD-2-Clause
/* Events that the recorder makes of system calls, also without memory. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "unit/crash_rig.h"

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

static size_t seen; /* events that were compared */

static void start(void)
{
	cr_assert(!crash_record_start(&rig, "files", "ledger"), "%s",
		  rig.reason);
	rig.on = true;
	seen = rig.log.event_count;
}

TestSuite(crash_record, .init = rig_setup, .fini = rig_teardown);

static const struct crash_step *next(enum crash_step_kind kind)
{
	const struct crash_step *e = &rig.log.events[seen];

	cr_assert(seen++ < rig.log.event_count, "no event of kind %d", kind);
	cr_assert_eq(e->kind, kind);
	return e;
}

static void no_more(void)
{
	cr_assert_eq(seen, rig.log.event_count, "%zu events are left",
		     rig.log.event_count - seen);
	cr_assert_str_eq(rig.reason, "");
}

static const char *text(uint64_t at)
{
	cr_assert_neq(at, CRASH_NO_DATA);
	return rig.log.bytes + at;
}

static void is_write(uint64_t offset, const char *bytes)
{
	const struct crash_step *e = next(CRASH_WRITE);

	cr_assert_eq(e->offset, offset);
	cr_assert_eq(e->length, strlen(bytes));
	cr_assert(!memcmp(rig.log.bytes + e->data, bytes, e->length));
}

static void is_flush(bool datasync)
{
	const struct crash_step *e = next(CRASH_FLUSH);

	cr_assert_eq(e->datasync, datasync);
	cr_assert_eq(e->length, CRASH_ALL);
}

static void is_ack(const char *line)
{
	const struct crash_step *e = next(CRASH_ACK);

	cr_assert_eq(e->length, strlen(line));
	cr_assert(!memcmp(rig.log.bytes + e->data, line, e->length));
}

static long call_with_fd(uint64_t nr, int fd)
{
	return rig_call(nr, (uint64_t)fd, 0, 0, 0);
}

Test(crash_record, writes_have_their_offsets_and_bytes)
{
	int fd;

	start();
	fd = rig_open("files/f", O_RDWR | O_CREAT);
	cr_assert_str_eq(text(next(CRASH_CREATE)->name), "f");
	rig_write(fd, "first");
	is_write(0, "first");
	rig_write(fd, "second");
	is_write(5, "second");
	rig_call(SYS_pwrite64, (uint64_t)fd, (uintptr_t) "at", 2, 100);
	is_write(100, "at");
	rig_write(fd, "third");
	is_write(11, "third");
	close(fd);
	fd = rig_open("files/f", O_WRONLY | O_APPEND);
	rig_write(fd, "end");
	is_write(102, "end");
	close(fd);
	no_more();
}

Test(crash_record, flushes_are_of_their_kind)
{
	struct crash_call broken = {.tid = getpid(), .nr = SYS_fsync};
	int fd;

	start();
	fd = rig_open("files/f", O_RDWR | O_CREAT);
	next(CRASH_CREATE);
	broken.args[0] = (uint64_t)fd;
	cr_assert(crash_call_begin(&rig, &broken));
	crash_call_end(&rig, &broken, -EIO, false);
	cr_assert(!call_with_fd(SYS_fsync, fd));
	is_flush(false);
	cr_assert(!call_with_fd(SYS_fdatasync, fd));
	is_flush(true);
	close(fd);
	fd = rig_open("files/f", O_WRONLY | O_DSYNC);
	rig_write(fd, "x");
	is_write(0, "x");
	cr_assert(next(CRASH_FLUSH)->datasync);
	close(fd);
	fd = rig_open("files/f", O_WRONLY | O_SYNC);
	rig_write(fd, "y");
	is_write(0, "y");
	cr_assert(!next(CRASH_FLUSH)->datasync);
	close(fd);
	rig_call(SYS_sync, 0, 0, 0, 0);
	next(CRASH_SYNC);
	no_more();
}

Test(crash_record, sizes_change_at_their_calls)
{
	int fd;

	start();
	fd = rig_open("files/f", O_RDWR | O_CREAT);
	next(CRASH_CREATE);
	rig_write(fd, "bytes");
	is_write(0, "bytes");
	cr_assert(!rig_call(SYS_ftruncate, (uint64_t)fd, 2, 0, 0));
	cr_assert_eq(next(CRASH_TRUNCATE)->offset, 2);
	cr_assert(!rig_call(SYS_truncate, (uintptr_t) "files/f", 9, 0, 0));
	cr_assert_eq(next(CRASH_TRUNCATE)->offset, 9);
	cr_assert(!rig_call(SYS_fallocate, (uint64_t)fd, 0, 0, 20));
	cr_assert_eq(next(CRASH_TRUNCATE)->offset, 20);
	close(fd);
	close(rig_open("files/f", O_WRONLY | O_TRUNC));
	cr_assert_eq(next(CRASH_TRUNCATE)->offset, 0);
	no_more();
}

static long names(uint64_t nr, const char *a, const char *b)
{
	return rig_call(nr, (uintptr_t)a, (uintptr_t)b, 0, 0);
}

Test(crash_record, names_change_at_their_calls)
{
	const uint64_t cwd = (uint64_t)AT_FDCWD;
	const struct crash_step *e;

	start();
	cr_assert(!rig_call(SYS_mkdirat, cwd, (uintptr_t) "files/d", 0700, 0));
	next(CRASH_MKDIR);
	close(rig_open("files/a", O_WRONLY | O_CREAT));
	e = next(CRASH_CREATE);
	cr_assert(!names(SYS_link, "files/a", "files/d/b"));
	cr_assert_eq(next(CRASH_LINK)->inode, 2);
	cr_assert(!names(SYS_rename, "files/a", "files/d/b"));
	cr_assert(!names(SYS_rename, "files/d/b", "files/c"));
	e = next(CRASH_RENAME);
	cr_assert_str_eq(text(e->name), "b");
	cr_assert_str_eq(text(e->name2), "c");
	cr_assert(e->dir == 1 && e->dir2 == 0 && e->inode == 2);
	cr_assert(!names(SYS_symlink, "c", "files/s"));
	e = next(CRASH_CREATE);
	cr_assert_str_eq(text(rig.log.inodes[e->inode].target), "c");
	cr_assert(!names(SYS_unlink, "files/s", NULL));
	next(CRASH_UNLINK);
	cr_assert(names(SYS_unlink, "files/none", NULL) < 0);
	/* Out of the folder is as good as gone. */
	cr_assert(!names(SYS_rename, "files/c", "outside"));
	next(CRASH_UNLINK);
	cr_assert(!names(SYS_rmdir, "files/d", NULL));
	next(CRASH_UNLINK);
	no_more();
}

static void exchange(const char *a, const char *b)
{
	struct crash_call c = {
		.tid = getpid(),
		.nr = SYS_renameat2,
		.args = {(uint64_t)AT_FDCWD, (uintptr_t)a, (uint64_t)AT_FDCWD,
			 (uintptr_t)b, RENAME_EXCHANGE},
	};

	cr_assert(crash_call_begin(&rig, &c));
	cr_assert(!syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b,
			   RENAME_EXCHANGE));
	crash_call_end(&rig, &c, 0, false);
}

/* An fsync of the other file covers the rename, too. */
Test(crash_record, a_rename_names_the_other_file)
{
	const struct crash_step *e;

	start();
	close(rig_open("files/a", O_WRONLY | O_CREAT));
	close(rig_open("files/b", O_WRONLY | O_CREAT));
	next(CRASH_CREATE);
	next(CRASH_CREATE);
	exchange("files/a", "files/b");
	e = next(CRASH_EXCHANGE);
	cr_assert(e->inode == 1 && e->inode2 == 2);
	cr_assert(!names(SYS_rename, "files/a", "files/b"));
	e = next(CRASH_RENAME);
	cr_assert(e->inode == 2 && e->inode2 == 1);
	cr_assert(!names(SYS_rename, "files/b", "files/c"));
	cr_assert_eq(next(CRASH_RENAME)->inode2, CRASH_NONE);
	no_more();
}

Test(crash_record, stores_are_found_before_the_next_call)
{
	const uint64_t shared = MAP_SHARED;
	struct crash_call c = {.tid = getpid(), .nr = SYS_mmap};
	char *m;
	int fd;

	start();
	fd = rig_open("files/f", O_RDWR | O_CREAT);
	next(CRASH_CREATE);
	cr_assert(!rig_call(SYS_ftruncate, (uint64_t)fd, 8192, 0, 0));
	next(CRASH_TRUNCATE);
	c.args[3] = shared;
	c.args[4] = (uint64_t)fd;
	cr_assert(!crash_call_begin(&rig, &c));
	m = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert_neq(m, MAP_FAILED);
	m[4096] = 1;
	m[4096 + 8] = 2;
	m[100] = 3;
	cr_assert(!rig_call(SYS_msync, (uintptr_t)m, 4096, MS_ASYNC, 0));
	cr_assert_eq(rig.log.event_count, seen);
	cr_assert(!rig_call(SYS_msync, (uintptr_t)m + 4096, 4096, MS_SYNC, 0));
	cr_assert_eq(next(CRASH_STORE)->offset, 96);
	cr_assert_eq(next(CRASH_STORE)->offset, 4096);
	cr_assert_eq(rig.log.events[seen - 1].length, 16);
	cr_assert_eq(next(CRASH_FLUSH)->offset, 4096);
	cr_assert_eq(rig.log.events[seen - 1].length, 4096);
	munmap(m, 8192);
	close(fd);
	no_more();
}

/* Map the pages of a new file, each second one read-only. */
static char *map_in_turns(int fd, unsigned int pages)
{
	struct crash_call c = {.tid = getpid(), .nr = SYS_mmap};
	const size_t page = 4096;
	char *m;

	cr_assert(!rig_call(SYS_ftruncate, (uint64_t)fd, pages * page, 0, 0));
	next(CRASH_TRUNCATE);
	c.args[3] = MAP_SHARED;
	c.args[4] = (uint64_t)fd;
	crash_call_begin(&rig, &c);
	m = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert_neq(m, MAP_FAILED);
	for (unsigned int i = 0; i < pages; i += 2)
		cr_assert(!mprotect(m + i * page, page, PROT_READ));
	return m;
}

Test(crash_record, an_msync_covers_all_of_a_mapping_that_is_split)
{
	const size_t size = 40 * 4096;
	char *m;
	int fd;

	start();
	fd = rig_open("files/f", O_RDWR | O_CREAT);
	next(CRASH_CREATE);
	m = map_in_turns(fd, 40);
	cr_assert(!rig_call(SYS_msync, (uintptr_t)m, size, MS_SYNC, 0));
	cr_assert_eq(next(CRASH_FLUSH)->offset, 0);
	cr_assert_eq(rig.log.events[seen - 1].length, size);
	munmap(m, size);
	close(fd);
	no_more();
}

/* The pages of these mappings are not in the order of the file. */
Test(crash_record, an_msync_of_too_many_mappings_is_refused)
{
	const size_t page = 4096, size = 17 * page;
	char *m;
	int fd;

	start();
	fd = rig_open("files/f", O_RDWR | O_CREAT);
	next(CRASH_CREATE);
	m = map_in_turns(fd, 17);
	for (size_t i = 0; i < 17; i++)
		cr_assert_eq(mmap(m + i * page, page, PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_FIXED, fd,
				  (off_t)((16 - i) * page)),
			     m + i * page);
	cr_assert(!rig_call(SYS_msync, (uintptr_t)m, 16 * page, MS_SYNC, 0));
	cr_assert_str_eq(rig.reason, "");
	cr_assert(!rig_call(SYS_msync, (uintptr_t)m, size, MS_SYNC, 0));
	cr_assert(strstr(rig.reason, "covers more than 16 mappings"), "%s",
		  rig.reason);
	munmap(m, size);
	close(fd);
}

/* The disk has all of a sector's zeros, or none of them. */
Test(crash_record, zeros_of_a_sector_are_one_event)
{
	const int how = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	static const unsigned int at[] = {100, 300, 4300};
	int fd;

	start();
	fd = rig_open("files/f", O_RDWR | O_CREAT);
	next(CRASH_CREATE);
	for (unsigned int i = 0; i < 3; i++) {
		rig_call(SYS_pwrite64, (uint64_t)fd, (uintptr_t) "x", 1, at[i]);
		is_write(at[i], "x");
	}
	cr_assert(!rig_call(SYS_fallocate, (uint64_t)fd, how, 0, 8192));
	cr_assert_eq(next(CRASH_WRITE)->offset, 96);
	cr_assert_eq(rig.log.events[seen - 1].length, 208);
	cr_assert_eq(next(CRASH_WRITE)->offset, 4296);
	cr_assert_eq(rig.log.events[seen - 1].length, 5);
	close(fd);
	no_more();
}

Test(crash_record, lines_of_the_ledger_are_acknowledgements)
{
	start();
	rig_acknowledge("one\ntw");
	is_ack("one");
	rig_acknowledge("o\nthree\n");
	is_ack("two");
	is_ack("three");
	crash_record_end(&rig);
	no_more();
	rig_acknowledge("unended");
	crash_record_end(&rig);
	cr_assert(strstr(rig.reason, "has no newline"), "%s", rig.reason);
}

Test(crash_record, a_ledger_that_is_overwritten_is_refused)
{
	int fd;

	start();
	rig_acknowledge("1\n");
	is_ack("1");
	fd = rig_open("ledger", O_WRONLY | O_TRUNC);
	rig_write(fd, "2\n");
	close(fd);
	cr_assert(strstr(rig.reason, "overwritten the ledger"), "%s",
		  rig.reason);
}

Test(crash_record, a_ledger_that_is_replaced_is_refused)
{
	start();
	cr_assert(!names(SYS_rename, "ledger", "other"));
	close(rig_open("ledger", O_WRONLY | O_CREAT));
	crash_record_end(&rig);
	cr_assert(strstr(rig.reason, "replaced or removed"), "%s", rig.reason);
}

Test(crash_record, an_acknowledgement_keeps_its_place_on_a_device)
{
	static const char line[] = "1\n";
	struct crash_call flush = {.tid = getpid(), .nr = SYS_fdatasync};
	struct crash_call put = {.tid = getpid(), .nr = SYS_pwrite64};
	int fd, ledger;

	start();
	fd = rig_open("files/f", O_RDWR | O_CREAT);
	next(CRASH_CREATE);
	ledger = open("ledger", O_WRONLY | O_APPEND);
	rig.device = true;
	flush.args[0] = put.args[0] = (uint64_t)fd;
	/* COMMAND wrote this line before nbdkit's call began. */
	cr_assert_eq(write(ledger, line, 2), 2);
	put.args[2] = 1;
	cr_assert(crash_call_begin(&rig, &put));
	cr_assert_eq(pwrite(fd, "x", 1, 0), 1);
	crash_call_end(&rig, &put, 1, false);
	is_ack("1");
	is_write(0, "x");
	/* A call by path is COMMAND's, and is not followed. */
	cr_assert(!names(SYS_mkdir, "files/d", (const char *)0700));
	cr_assert_eq(write(ledger, line, 2), 2);
	cr_assert(crash_call_begin(&rig, &flush));
	crash_call_end(&rig, &flush, 0, false);
	is_ack("1");
	is_flush(true);
	close(fd);
	close(ledger);
	no_more();
}

Test(crash_record, a_killed_call_leaves_the_part_that_it_wrote)
{
	struct crash_call c = {.tid = getpid(), .nr = SYS_write};
	int fd;

	start();
	fd = rig_open("files/f", O_RDWR | O_CREAT);
	next(CRASH_CREATE);
	c.args[0] = (uint64_t)fd;
	cr_assert(crash_call_begin(&rig, &c));
	cr_assert_eq(write(fd, "pa", 2), 2);
	crash_call_end(&rig, &c, -1, true);
	cr_assert_eq(next(CRASH_TRUNCATE)->offset, 2);
	is_write(0, "pa");
	close(fd);
	no_more();
}

Test(crash_record, a_file_from_outside_is_refused)
{
	const int fd = open("outside", O_WRONLY | O_CREAT, 0600);

	cr_assert(fd >= 0 && write(fd, "x", 1) == 1 && !close(fd));
	start();
	cr_assert(!names(SYS_rename, "outside", "files/f"));
	cr_assert(strstr(rig.reason, "f came from outside"), "%s", rig.reason);
}

/* Both names of an exchange can be the one that is outside. */
Test(crash_record, an_exchange_with_a_file_from_outside_is_refused)
{
	const int fd = open("outside", O_WRONLY | O_CREAT, 0600);

	cr_assert(fd >= 0 && write(fd, "x", 1) == 1 && !close(fd));
	start();
	close(rig_open("files/f", O_WRONLY | O_CREAT));
	next(CRASH_CREATE);
	exchange("files/f", "outside");
	next(CRASH_UNLINK);
	next(CRASH_CREATE);
	cr_assert(strstr(rig.reason, "f came from outside"), "%s", rig.reason);
	next(CRASH_TRUNCATE);
	is_write(0, "x");
	exchange("outside", "files/f");
	next(CRASH_LINK);
}

/* Record most kinds of events. */
static void program(void)
{
	const int fd = rig_open("files/f", O_RDWR | O_CREAT);

	rig_write(fd, "bytes");
	call_with_fd(SYS_fsync, fd);
	rig_call(SYS_ftruncate, (uint64_t)fd, 2 << 20, 0, 0);
	close(fd);
	names(SYS_symlink, "f", "files/s");
	names(SYS_rename, "files/f", "files/g");
	rig_acknowledge("done\n");
}

/* Each allocation fails once: nothing may be concluded from such a record. */
Test(crash_record, without_memory_nothing_is_concluded)
{
	unsigned int n = 0;

	for (;; n++) {
		bool without;

		rig_fail_at(n);
		if (!crash_record_start(&rig, "files", "ledger")) {
			rig.on = true;
			program();
		}
		without = rig_has_failed();
		cr_assert_eq(without,
			     !strcmp(rig.reason, "out of memory") ||
				     rig.log.failed,
			     "allocation %u: '%s'", n, rig.reason);
		if (!without)
			break;
		rig_teardown();
		rig_setup();
	}
	cr_assert_gt(n, 8);
}
