/* SPDX-License-Identifier: BSD-2-Clause */
/* Wraps of the calls by which a pool's code syncs and reads its file. */
#ifndef RP_POOL_SYNCS_H
#define RP_POOL_SYNCS_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

static unsigned int whole_syncs, range_syncs; /* calls of the pool's code */
static size_t longest_sync;

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
	whole_syncs++;
	return __real_fdatasync(fd);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	whole_syncs++;
	return __real_fsync(fd);
}

/*
 * Does msync() write the mapping back? The kernel shows "sh" only for a shared
 * mapping of a file that was opened for writing.
 */
static bool is_written_back(const void *addr)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	char line[512], start[32];
	bool found = false, writes = false;

	snprintf(start, sizeof(start), "%lx-", (unsigned long)addr);
	cr_assert_not_null(f);
	while (!writes && fgets(line, sizeof(line), f)) {
		found |= !strncmp(line, start, strlen(start));
		if (found && !strncmp(line, "VmFlags:", 8)) {
			writes = strstr(line, " sh");
			break;
		}
	}
	fclose(f);
	return writes;
}

int __real_msync(void *addr, size_t len, int flags);
int __wrap_msync(void *addr, size_t len, int flags);
int __wrap_msync(void *addr, size_t len, int flags)
{
	cr_assert_eq(flags, MS_SYNC);
	cr_assert(is_written_back(addr));
	range_syncs++;
	if (len > longest_sync)
		longest_sync = len;
	return __real_msync(addr, len, flags);
}

static unsigned int drops, drops_at_read; /* of the page cache */

int __real_posix_fadvise(int fd, off_t at, off_t len, int advice);
int __wrap_posix_fadvise(int fd, off_t at, off_t len, int advice);
int __wrap_posix_fadvise(int fd, off_t at, off_t len, int advice)
{
	cr_assert_eq(advice, POSIX_FADV_DONTNEED);
	drops++;
	return __real_posix_fadvise(fd, at, len, advice);
}

ssize_t __real_pread(int fd, void *buf, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *buf, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *buf, size_t len, off_t at)
{
	if (drops < drops_at_read)
		drops_at_read = drops;
	return __real_pread(fd, buf, len, at);
}

#endif
