// SPDX-License-Identifier: BSD-2-Clause
/*
 * Replaces msync() and malloc() in the processes of faults, so that both can
 * fail on command.
 */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fault/faults.h"
#include "unit/disk.h"

#define SEEN __attribute__((visibility("default")))

static const char *map;
static size_t map_len;

void preload_map(const char *pool, size_t len)
{
	map = pool;
	map_len = len;
}

/*
 * A successful msync() copies the bytes to world->media that were in memory
 * when it was called.
 */
SEEN int msync(void *addr, size_t len, int flags)
{
	static int (*real)(void *, size_t, int);
	static char copy[sizeof(world->media)];
	const char *from = addr;
	size_t n;
	int ret;

	if (!real)
		real = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "msync");
	if (!world || !map || from < map || from >= map + map_len)
		return real(addr, len, flags);
	ret = atomic_exchange(&world->msync_error, 0);
	if (ret) {
		atomic_fetch_add(&world->failed_msyncs, 1);
		atomic_store(&world->msync_failed, true);
		errno = ret;
		return -1;
	}
	n = (size_t)(map + map_len - from);
	if (n > len)
		n = len;
	disk_reads(copy, from, n);
	ret = real(addr, len, flags);
	if (!ret)
		memcpy((char *)world->media + (from - map), copy, n);
	atomic_fetch_add(&world->msyncs, 1);
	return ret;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/*
 * A sanitizer replaces malloc() itself, so allocations do not fail in its
 * builds.
 */

static uintptr_t ours_from, ours_to;
static enum side_of side;
static _Atomic uint64_t calls;

static int find_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	if (!strstr(info->dlpi_name, "/librpmem"))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X))
			continue;
		ours_from = info->dlpi_addr + p->p_vaddr;
		ours_to = ours_from + p->p_memsz;
	}
	return 1;
}

void preload_arm(enum side_of s)
{
	side = s;
	dl_iterate_phdr(find_object, NULL);
	if (!ours_to)
		abort();
}

static bool call_fails(void *caller)
{
	uintptr_t at = (uintptr_t)caller;
	uint32_t ppm;

	if (at < ours_from || at >= ours_to)
		return false;
	ppm = atomic_load(&world->alloc_ppm[side]);
	if (!ppm ||
	    mix(world->seed + atomic_fetch_add(&calls, 1)) % 1000000 >= ppm)
		return false;
	atomic_fetch_add(&world->failed_allocs, 1);
	errno = ENOMEM;
	return true;
}

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);

SEEN void *malloc(size_t size)
{
	return call_fails(__builtin_return_address(0)) ? NULL
						       : __libc_malloc(size);
}

SEEN void *calloc(size_t n, size_t size)
{
	return call_fails(__builtin_return_address(0)) ? NULL
						       : __libc_calloc(n, size);
}

SEEN void *realloc(void *p, size_t size)
{
	return call_fails(__builtin_return_address(0))
		       ? NULL
		       : __libc_realloc(p, size);
}
#else
void preload_arm(enum side_of s)
{
}
#endif
