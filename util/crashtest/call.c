// SPDX-License-Identifier: BSD-2-Clause
/* System calls: their changes of files, and what they make durable. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "util/crashtest/trace.h"

#ifndef MAP_SYNC
#define MAP_SYNC 0x80000
#endif
#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

static bool peek(pid_t tid, uint64_t addr, void *buf, size_t len)
{
	struct iovec here = {buf, len};
	struct iovec remote = {(void *)(uintptr_t)addr, len};

	return process_vm_readv(tid, &here, 1, &remote, 1, 0) == (ssize_t)len;
}

/* Read a path, 64 bytes at a time: the page after its end may be unmapped. */
static bool peek_path(pid_t tid, uint64_t addr, char path[PATH_MAX])
{
	size_t len = 0;

	while (len < PATH_MAX) {
		size_t n = 64 - (addr + len) % 64;

		if (n > PATH_MAX - len)
			n = PATH_MAX - len;
		if (!peek(tid, addr + len, path + len, n))
			return false;
		if (memchr(path + len, 0, n))
			return true;
		len += n;
	}
	return false;
}

/* Convert a path of the thread to one that this process can use. */
static bool get_path(const struct crash_call *c, int dirfd, uint64_t addr,
		     char *path, size_t len)
{
	static const char self[] = "/proc/self/";
	char given[PATH_MAX];
	int n;

	if (!peek_path(c->tid, addr, given))
		return false;
	if (!strncmp(given, self, sizeof(self) - 1))
		n = snprintf(path, len, "/proc/%d/%s", (int)c->tid,
			     given + sizeof(self) - 1);
	else if (given[0] == '/')
		n = snprintf(path, len, "/proc/%d/root%s", (int)c->tid, given);
	else if (dirfd == AT_FDCWD)
		n = snprintf(path, len, "/proc/%d/cwd/%s", (int)c->tid, given);
	else
		n = snprintf(path, len, "/proc/%d/fd/%d/%s", (int)c->tid, dirfd,
			     given);
	return n > 0 && (size_t)n < len;
}

/* The folder and the last component of a path. */
static bool get_place(struct crash_recorder *r, const struct crash_call *c,
		      int dirfd, uint64_t addr, struct crash_place *p)
{
	char path[PATH_MAX + 64], *slash;
	struct stat st;
	size_t end;

	p->dir = NULL;
	if (!get_path(c, dirfd, addr, path, sizeof(path)))
		return false;
	for (end = strlen(path); end && path[end - 1] == '/'; end--)
		path[end - 1] = 0;
	slash = strrchr(path, '/');
	if (!slash || strlen(slash + 1) > NAME_MAX)
		return false;
	snprintf(p->name, sizeof(p->name), "%s", slash + 1);
	slash[1] = '.';
	slash[2] = 0;
	if (!*p->name || !strcmp(p->name, ".") || !strcmp(p->name, "..") ||
	    stat(path, &st))
		return false;
	p->dir = crash_record_find(r, &st);
	return p->dir;
}

/* The position and the flags of an open file. */
static bool get_fdinfo(pid_t tid, int fd, uint64_t *pos, unsigned int *flags)
{
	char path[64], line[256];
	long long at = -1;
	FILE *f;

	*flags = 0;
	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", (int)tid, fd);
	f = fopen(path, "re");
	if (!f)
		return false;
	while (fgets(line, sizeof(line), f)) {
		sscanf(line, "pos: %lld", &at);
		sscanf(line, "flags: %o", flags);
	}
	fclose(f);
	*pos = (uint64_t)at;
	return at >= 0;
}

static int output_fd(const struct crash_call *c)
{
	switch (c->nr) {
	case __NR_splice:
	case __NR_copy_file_range:
		return (int)c->args[2];
	default:
		return (int)c->args[0];
	}
}

static void get_offset(struct crash_call *c)
{
	switch (c->nr) {
	case __NR_pwritev2:
		c->has_offset = c->args[3] != UINT64_MAX;
		c->offset = c->args[3];
		break;
	case __NR_pwrite64:
	case __NR_pwritev:
		c->has_offset = true;
		c->offset = c->args[3];
		break;
	case __NR_splice:
	case __NR_copy_file_range:
		c->has_offset =
			c->args[3] &&
			peek(c->tid, c->args[3], &c->offset, sizeof(c->offset));
		break;
	default:
		break;
	}
}

static bool is_ledger(const struct crash_recorder *r,
		      const struct crash_call *c)
{
	char link[64];
	struct stat st;

	snprintf(link, sizeof(link), "/proc/%d/fd/%d", (int)c->tid,
		 output_fd(c));
	return !stat(link, &st) && st.st_dev == r->ledger_id.dev &&
	       st.st_ino == r->ledger_id.ino;
}

static bool begin_output(struct crash_recorder *r, struct crash_call *c)
{
	c->file = crash_record_fd(r, c->tid, output_fd(c));
	if (!c->file)
		return is_ledger(r, c);
	get_offset(c);
	return true;
}

static void flush_synchronous(struct crash_recorder *r, struct crash_call *c,
			      unsigned int flags, uint64_t offset,
			      uint64_t length)
{
	const unsigned int rwf = c->nr == __NR_pwritev2 ? c->args[5] : 0;

	if ((flags & O_SYNC) == O_SYNC || rwf & RWF_SYNC)
		crash_record_flush(r, c->file, c->tid, offset, length, false);
	else if (flags & O_DSYNC || rwf & RWF_DSYNC)
		crash_record_flush(r, c->file, c->tid, offset, length, true);
}

static void end_output(struct crash_recorder *r, struct crash_call *c,
		       uint64_t length)
{
	const unsigned int rwf = c->nr == __NR_pwritev2 ? c->args[5] : 0;
	uint64_t pos, offset;
	unsigned int flags;
	struct stat st;

	if (!c->file) {
		crash_record_appended(r, c->tid, length);
		return;
	}
	if (!length)
		return;
	if (!get_fdinfo(c->tid, output_fd(c), &pos, &flags) ||
	    fstat(c->file->fd, &st)) {
		crash_record_compare(r, c->file, c->tid, CRASH_WRITE);
		return;
	}
	offset = c->has_offset ? c->offset : pos - length;
	if (flags & O_APPEND || rwf & RWF_APPEND)
		offset = (uint64_t)st.st_size - length;
	crash_record_write(r, c->file, c->tid, offset, length);
	flush_synchronous(r, c, flags, offset, length);
}

/* Whether to record an open: not one of a FIFO, which may wait for a reader. */
static bool begin_open(const struct crash_call *c, int dirfd, uint64_t addr)
{
	char path[PATH_MAX + 64];
	struct stat st;

	return get_path(c, dirfd, addr, path, sizeof(path)) &&
	       (stat(path, &st) || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode));
}

static void end_open(struct crash_recorder *r, const struct crash_call *c,
		     int fd)
{
	struct crash_file *f = crash_record_fd(r, c->tid, fd);

	if (f && S_ISREG(f->mode))
		crash_record_size(r, f, c->tid);
}

static bool begin_truncate(struct crash_recorder *r, struct crash_call *c)
{
	char path[PATH_MAX + 64];
	struct stat st;

	if (c->nr != __NR_truncate)
		c->file = crash_record_fd(r, c->tid, (int)c->args[0]);
	else if (get_path(c, AT_FDCWD, c->args[0], path, sizeof(path)) &&
		 !stat(path, &st))
		c->file = crash_record_find(r, &st);
	return c->file;
}

/* The recorded file behind one line of /proc/TID/maps. */
static struct crash_file *mapped_file(struct crash_recorder *r, pid_t tid,
				      const char *line)
{
	unsigned long start, end, ino;
	unsigned int major, minor;
	struct stat st;
	char path[96];

	if (sscanf(line, "%lx-%lx %*s %*x %x:%x %lu", &start, &end, &major,
		   &minor, &ino) != 5)
		return NULL;
	/* Use maps if not privileged: it has the device below an overlay. */
	snprintf(path, sizeof(path), "/proc/%d/map_files/%lx-%lx", (int)tid,
		 start, end);
	if (stat(path, &st)) {
		st.st_dev = makedev(major, minor);
		st.st_ino = ino;
	}
	return crash_record_find(r, &st);
}

/* Add a part of a file. mprotect(2) splits a mapping, but not its part. */
static void add_part(struct crash_recorder *r, struct crash_call *c,
		     struct crash_file *f, uint64_t offset, uint64_t length)
{
	const unsigned int n = c->part_count;

	if (n && c->parts[n - 1].file == f &&
	    c->parts[n - 1].offset + c->parts[n - 1].length == offset) {
		c->parts[n - 1].length += length;
		return;
	}
	if (n == sizeof(c->parts) / sizeof(*c->parts)) {
		crash_record_miss(r, "an msync covers more than 16 mappings; "
				     "use fsync, or an msync for each");
		return;
	}
	c->parts[c->part_count].file = f;
	c->parts[c->part_count].offset = offset;
	c->parts[c->part_count++].length = length;
}

/*
 * Whether msync(2) flushes a mapping: a shared one of a file that was opened
 * for writing ("sh" in smaps). The "s" in maps also stands for others.
 */
static bool is_flushed(pid_t tid, unsigned long start, const char mode[5])
{
	char path[64], line[PATH_MAX + 128];
	unsigned long at, end;
	bool here = false, shared = false;
	FILE *f;

	if (mode[3] != 's' || mode[1] == 'w')
		return mode[3] == 's';
	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)tid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &at, &end) == 2)
			here = at == start;
		else if (here && !strncmp(line, "VmFlags:", 8))
			shared = strstr(line, " sh");
	}
	if (f)
		fclose(f);
	return shared;
}

/* Find the files of a range of addresses that msync(2) flushes. */
static bool begin_msync(struct crash_recorder *r, struct crash_call *c)
{
	const uint64_t from = c->args[0], to = from + c->args[1];
	unsigned long start, end, offset;
	char path[64], mode[5], line[PATH_MAX + 128];
	struct crash_file *f;
	FILE *maps;

	if (!(c->args[2] & MS_SYNC))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)c->tid);
	maps = fopen(path, "re");
	while (maps && fgets(line, sizeof(line), maps)) {
		uint64_t first;

		if (sscanf(line, "%lx-%lx %4s %lx", &start, &end, mode,
			   &offset) != 4 ||
		    end <= from || start >= to)
			continue;
		f = mapped_file(r, c->tid, line);
		first = from > start ? from : start;
		if (f && f->mapped && is_flushed(c->tid, start, mode))
			add_part(r, c, f, offset + (first - start),
				 (to < end ? to : end) - first);
	}
	if (maps)
		fclose(maps);
	return c->part_count;
}

/* Await the result only of MAP_SYNC, which succeeds on DAX alone. */
static bool begin_mmap(struct crash_recorder *r, const struct crash_call *c)
{
	struct crash_file *f;

	if (c->args[3] & MAP_ANONYMOUS)
		return false;
	f = crash_record_fd(r, c->tid, (int)c->args[4]);
	if (!f || !S_ISREG(f->mode))
		return false;
	f->mapped = true;
	return (c->args[3] & MAP_SYNC) &&
	       (c->args[3] & MAP_TYPE) == MAP_SHARED_VALIDATE;
}

static bool begin_entry(struct crash_recorder *r, struct crash_call *c,
			int dirfd, uint64_t path)
{
	if (!get_place(r, c, dirfd, path, &c->place))
		return false;
	c->file = crash_record_entry(r, &c->place);
	return true;
}

static bool begin_rename(struct crash_recorder *r, struct crash_call *c,
			 int dirfd, uint64_t path, int dirfd2, uint64_t path2)
{
	const bool from = begin_entry(r, c, dirfd, path);
	const bool to = get_place(r, c, dirfd2, path2, &c->place2);

	c->file2 = to ? crash_record_entry(r, &c->place2) : NULL;
	/* A rename between two names of one file changes nothing. */
	if (from && to && c->file && c->file == c->file2)
		return false;
	return from || to;
}

static bool begin_name_change(struct crash_recorder *r, struct crash_call *c)
{
	const uint64_t *a = c->args;

	switch (c->nr) {
#ifdef __NR_creat
	case __NR_rename:
		return begin_rename(r, c, AT_FDCWD, a[0], AT_FDCWD, a[1]);
	case __NR_link:
	case __NR_symlink:
		return begin_entry(r, c, AT_FDCWD, a[1]);
	case __NR_unlink:
	case __NR_rmdir:
	case __NR_mkdir:
	case __NR_mknod:
		return begin_entry(r, c, AT_FDCWD, a[0]);
#endif
#ifdef __NR_renameat
	case __NR_renameat:
#endif
	case __NR_renameat2:
		return begin_rename(r, c, (int)a[0], a[1], (int)a[2], a[3]);
	case __NR_linkat:
		return begin_entry(r, c, (int)a[2], a[3]);
	case __NR_symlinkat:
		return begin_entry(r, c, (int)a[1], a[2]);
	default: /* unlinkat, mkdirat, mknodat */
		return begin_entry(r, c, (int)a[0], a[1]);
	}
}

static bool begin_other(struct crash_recorder *r, struct crash_call *c)
{
	switch (c->nr) {
#ifdef __NR_creat
	case __NR_creat:
	case __NR_open:
		return begin_open(c, AT_FDCWD, c->args[0]);
#endif
	case __NR_openat:
	case __NR_openat2:
		return begin_open(c, (int)c->args[0], c->args[1]);
	case __NR_open_by_handle_at:
	case __NR_sync:
	case __NR_syncfs:
		return true;
	case __NR_truncate:
	case __NR_ftruncate:
	case __NR_fallocate:
	case __NR_ioctl:
	case __NR_fsync:
	case __NR_fdatasync:
		return begin_truncate(r, c);
	case __NR_msync:
		return begin_msync(r, c);
	case __NR_mmap:
		return begin_mmap(r, c);
	default:
		return begin_name_change(r, c);
	}
}

/* Calls that put bytes into a file, and return their number. */
static bool is_output(const struct crash_call *c)
{
	switch (c->nr) {
	case __NR_write:
	case __NR_pwrite64:
	case __NR_writev:
	case __NR_pwritev:
	case __NR_pwritev2:
	case __NR_sendfile:
	case __NR_splice:
	case __NR_copy_file_range:
		return true;
	default:
		return false;
	}
}

/* Calls that change an open file, or flush it. */
static bool is_on_open_file(const struct crash_call *c)
{
	switch (c->nr) {
	case __NR_ftruncate:
	case __NR_fallocate:
	case __NR_ioctl:
	case __NR_fsync:
	case __NR_fdatasync:
		return true;
	default:
		return is_output(c);
	}
}

/*
 * Returns whether a call is recorded. With --device only calls on open files
 * are: those of nbdkit on the disk, and those of COMMAND on the ledger. The
 * recorder must not follow paths of COMMAND then, or wait for its calls: both
 * may wait for the device, and so for a call of nbdkit that the recorder serves
 * only afterwards. Lines that are in the ledger at the entry of a call are
 * acknowledged before the call.
 */
bool crash_call_begin(struct crash_recorder *r, struct crash_call *c)
{
	bool relevant;

	if (r->device && !is_on_open_file(c))
		return false;
	relevant = is_output(c) ? begin_output(r, c) : begin_other(r, c);
	if (relevant && r->device)
		crash_record_ledger(r, c->tid);
	if (relevant)
		crash_record_stores(r, c->tid);
	return relevant;
}

static void end_rename(struct crash_recorder *r, struct crash_call *c)
{
	const bool exchange =
		(c->nr == __NR_renameat2) && (c->args[4] & RENAME_EXCHANGE);

	if (c->place.dir && c->place2.dir && c->file) {
		crash_record_rename(r, &c->place, &c->place2, c->file, c->file2,
				    c->tid, exchange);
		return;
	}
	if (c->place.dir && c->file)
		crash_record_unlink(r, &c->place, c->file, c->tid);
	else if (c->place2.dir)
		crash_record_create(r, &c->place2, c->tid);
	/* The other name is outside the folder, and its file now inside. */
	if (exchange && c->place.dir)
		crash_record_create(r, &c->place, c->tid);
}

static void end_sync(struct crash_recorder *r, const struct crash_call *c)
{
	struct stat st, root;
	char link[64];

	snprintf(link, sizeof(link), "/proc/%d/fd/%d", (int)c->tid,
		 (int)c->args[0]);
	if (c->nr == __NR_sync || (!stat(link, &st) && !stat(r->root, &root) &&
				   st.st_dev == root.st_dev))
		crash_record_sync(r, c->tid);
}

static void end_namespace(struct crash_recorder *r, struct crash_call *c)
{
	switch (c->nr) {
#ifdef __NR_creat
	case __NR_rename:
#endif
#ifdef __NR_renameat
	case __NR_renameat:
#endif
	case __NR_renameat2:
		end_rename(r, c);
		break;
#ifdef __NR_creat
	case __NR_unlink:
	case __NR_rmdir:
#endif
	case __NR_unlinkat:
		if (c->file)
			crash_record_unlink(r, &c->place, c->file, c->tid);
		break;
	default:
		crash_record_create(r, &c->place, c->tid);
		break;
	}
}

static void end_other(struct crash_recorder *r, struct crash_call *c,
		      int64_t ret)
{
	switch (c->nr) {
#ifdef __NR_creat
	case __NR_creat:
	case __NR_open:
#endif
	case __NR_openat:
	case __NR_openat2:
	case __NR_open_by_handle_at:
		end_open(r, c, (int)ret);
		break;
	case __NR_sync:
	case __NR_syncfs:
		end_sync(r, c);
		break;
	case __NR_truncate:
	case __NR_ftruncate:
		crash_record_size(r, c->file, c->tid);
		break;
	case __NR_fallocate:
	case __NR_ioctl:
		crash_record_size(r, c->file, c->tid);
		crash_record_compare(r, c->file, c->tid, CRASH_WRITE);
		break;
	case __NR_fsync:
	case __NR_fdatasync:
		crash_record_flush(r, c->file, c->tid, 0, CRASH_ALL,
				   c->nr == __NR_fdatasync);
		break;
	case __NR_mmap:
		crash_record_miss(r, "a file is mapped with MAP_SYNC: flushes "
				     "of the CPU's caches are not recorded; "
				     "use a file system without DAX");
		break;
	case __NR_msync:
		for (unsigned int i = 0; i < c->part_count; i++)
			crash_record_flush(r, c->parts[i].file, c->tid,
					   c->parts[i].offset,
					   c->parts[i].length, false);
		break;
	default:
		end_namespace(r, c);
		break;
	}
}

void crash_call_end(struct crash_recorder *r, struct crash_call *c, int64_t ret,
		    bool dead)
{
	/* The thread was killed in the call: compare what it has written. */
	if (dead) {
		if (c->file && S_ISREG(c->file->mode)) {
			crash_record_size(r, c->file, c->tid);
			crash_record_compare(r, c->file, c->tid, CRASH_WRITE);
		}
		return;
	}
	if (ret < 0)
		return;
	if (is_output(c))
		end_output(r, c, (uint64_t)ret);
	else
		end_other(r, c, ret);
}
