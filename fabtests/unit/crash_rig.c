// SPDX-License-Identifier: BSD-2-Clause
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "unit/crash_rig.h"

struct crash_recorder rig;

static char work[] = "/tmp/test_crash_rig.XXXXXX";
static unsigned int left;
static bool armed, failed;
bool rig_allocates;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_reallocarray(void *p, size_t n, size_t size);
void *__real_mmap(void *p, size_t n, int prot, int flags, int fd, off_t at);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
void *__wrap_mmap(void *p, size_t n, int prot, int flags, int fd, off_t at);

static bool allocation_fails(void)
{
	if (!armed || rig_allocates || left--)
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

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
	return allocation_fails() ? NULL : __real_reallocarray(p, n, size);
}

void *__wrap_mmap(void *p, size_t n, int prot, int flags, int fd, off_t at)
{
	if (flags & MAP_ANONYMOUS && allocation_fails()) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return __real_mmap(p, n, prot, flags, fd, at);
}

void rig_fail_at(unsigned int n)
{
	left = n;
	armed = n != UINT_MAX;
	failed = false;
}

bool rig_has_failed(void)
{
	armed = false;
	return failed;
}

void rig_setup(void)
{
	int fd;

	cr_assert(mkdtemp(work) && !chdir(work) && !mkdir("files", 0700));
	fd = open("ledger", O_WRONLY | O_CREAT, 0600);
	cr_assert(fd >= 0 && !close(fd));
	rig = (struct crash_recorder){.ledger_fd = -1};
	rig.log.store = rig.log.sector = 512;
}

static int remove_one(const char *path, const struct stat *st, int type,
		      struct FTW *ftw)
{
	return remove(path);
}

void rig_teardown(void)
{
	crash_record_free(&rig);
	crash_log_free(&rig.log);
	cr_assert(!chdir("/"));
	cr_assert(!nftw(work, remove_one, 8, FTW_DEPTH | FTW_PHYS));
	strcpy(work, "/tmp/test_crash_rig.XXXXXX");
}

long rig_call(uint64_t nr, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	struct crash_call call = {
		.tid = getpid(), .nr = nr, .args = {a, b, c, d}};
	const bool relevant = crash_call_begin(&rig, &call);
	const long ret = syscall((long)nr, a, b, c, d);

	if (relevant)
		crash_call_end(&rig, &call, ret < 0 ? -errno : ret, false);
	return ret;
}

int rig_open(const char *path, int flags)
{
	return (int)rig_call(SYS_openat, (uint64_t)AT_FDCWD, (uintptr_t)path,
			     (uint64_t)flags, 0600);
}

void rig_write(int fd, const char *bytes)
{
	const size_t len = strlen(bytes);

	cr_assert_eq(
		rig_call(SYS_write, (uint64_t)fd, (uintptr_t)bytes, len, 0),
		(long)len);
}

void rig_acknowledge(const char *line)
{
	const int fd = rig_open("ledger", O_WRONLY | O_APPEND);

	cr_assert(fd >= 0);
	rig_write(fd, line);
	close(fd);
}
