// SPDX-License-Identifier: BSD-2-Clause
/*
 * Preloaded into a target: copies exactly the durable bytes to a second file,
 * the shadow. Durable are bytes that a successful msync() covered, cache lines
 * that were flushed before a drain, and a pool's header after fdatasync().
 */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libpmem2.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define RP_FAULTS
#include "core/fault.h"

#define PAGE 4096u

/*
 * RPMEM_SHADOW=POOL:SHADOW: the shadow of one file, with the same offsets.
 *
 * RPMEM_MEDIUM=FILE:BASE: the shadow of all persistent memory, at its physical
 * address minus BASE (hexadecimal). FILE is mapped, and may be memory of a
 * device. This shadow has flushed lines only: bytes that msync() covers are
 * missing.
 */
static int shadow_fd = -1;
static dev_t pool_dev;
static ino_t pool_ino;
static char *medium;
static uint64_t medium_base, medium_len;
static int pagemap_fd = -1;
static pthread_mutex_t one_sync = PTHREAD_MUTEX_INITIALIZER;

static void medium_open(const char *spec)
{
	const char *colon = strrchr(spec, ':');
	char path[PATH_MAX];
	struct stat st;
	int fd;

	if (!colon)
		abort();
	snprintf(path, sizeof(path), "%.*s", (int)(colon - spec), spec);
	medium_base = strtoull(colon + 1, NULL, 16);
	fd = open(path, O_RDWR | O_CLOEXEC);
	pagemap_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || pagemap_fd < 0 || fstat(fd, &st)) {
		perror(path);
		abort();
	}
	medium_len = (uint64_t)st.st_size;
	medium = mmap(NULL, medium_len, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		      0);
	if (medium == MAP_FAILED) {
		perror(path);
		abort();
	}
	close(fd);
}

__attribute__((constructor)) static void shadow_open(void)
{
	const char *all = getenv("RPMEM_MEDIUM");
	const char *spec = getenv("RPMEM_SHADOW"), *colon;
	char pool[PATH_MAX];
	struct stat st;

	if (all) {
		medium_open(all);
		return;
	}
	colon = spec ? strrchr(spec, ':') : NULL;
	if (!colon)
		return;
	snprintf(pool, sizeof(pool), "%.*s", (int)(colon - spec), spec);
	shadow_fd = open(colon + 1, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (shadow_fd < 0) {
		perror(colon + 1);
		abort();
	}
	/* If the pool does not exist yet, pool_offset() finds it later. */
	if (!stat(pool, &st)) {
		pool_dev = st.st_dev;
		pool_ino = st.st_ino;
	}
}

/*
 * The offset in the pool file that is mapped at addr; -1: addr is not in the
 * pool.
 */
static off_t pool_offset(uintptr_t addr)
{
	const char *spec = getenv("RPMEM_SHADOW");
	unsigned long start, end, offset, ino;
	char line[PATH_MAX + 128], pool[PATH_MAX];
	unsigned int major, minor;
	off_t found = -1;
	struct stat st;
	FILE *f;

	snprintf(pool, sizeof(pool), "%.*s", (int)(strrchr(spec, ':') - spec),
		 spec);
	if (!pool_ino && !stat(pool, &st)) {
		pool_dev = st.st_dev;
		pool_ino = st.st_ino;
	}
	f = fopen("/proc/self/maps", "re");
	if (!f)
		abort();
	while (found < 0 && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %*s %lx %x:%x %lu", &start, &end,
			   &offset, &major, &minor, &ino) == 6 &&
		    ino == pool_ino && addr >= start && addr < end)
			found = (off_t)(offset + (addr - start));
	fclose(f);
	return found;
}

/*
 * The offset of addr's page in the medium; -1: addr is not in persistent
 * memory.
 */
static off_t page_place(uintptr_t addr)
{
	const uint64_t present = 1ull << 63, frame = (1ull << 55) - 1;
	const off_t at = (off_t)(addr / PAGE * sizeof(uint64_t));
	uint64_t entry;

	/* Read the byte, which maps its page, as a flush would. */
	(void)*(const volatile char *)addr;
	if (pread(pagemap_fd, &entry, sizeof(entry), at) != sizeof(entry))
		abort();
	/* Frame 0: without privilege the kernel hides frame numbers. */
	if (!(entry & present) || !(entry & frame))
		abort();
	entry = (entry & frame) * PAGE - medium_base;
	return entry < medium_len ? (off_t)entry : -1;
}

__attribute__((visibility("default"))) int msync(void *addr, size_t len,
						 int flags)
{
	static int (*real)(void *, size_t, int);
	off_t at;
	void *copy;
	int ret;

	if (!real)
		real = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "msync");
	if (shadow_fd < 0 || !(flags & MS_SYNC))
		return real(addr, len, flags);
	at = pool_offset((uintptr_t)addr);
	if (at < 0)
		return real(addr, len, flags);
	/*
	 * Copy the bytes before the call, because only those are surely
	 * flushed. The lock admits one call at a time, so that an older copy of
	 * a page never replaces a newer one.
	 */
	copy = malloc(len);
	if (!copy)
		abort();
	pthread_mutex_lock(&one_sync);
	memcpy(copy, addr, len);
	ret = real(addr, len, flags);
	if (!ret && pwrite(shadow_fd, copy, len, at) != (ssize_t)len)
		abort();
	pthread_mutex_unlock(&one_sync);
	free(copy);
	return ret;
}

static bool is_pool(int fd)
{
	struct stat st;

	return shadow_fd >= 0 && !fstat(fd, &st) && st.st_ino == pool_ino &&
	       st.st_dev == pool_dev;
}

/* fi_rpmemd writes the pool through the file only to change its header. */
__attribute__((visibility("default"))) int fdatasync(int fd)
{
	static int (*real)(int);
	char header[2 * PAGE];
	ssize_t len = -1;
	int ret;

	if (!real)
		real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
	if (is_pool(fd))
		len = pread(fd, header, sizeof(header), 0);
	ret = real(fd);
	if (!ret && len > 0 && pwrite(shadow_fd, header, len, 0) != len)
		abort();
	return ret;
}

/*
 * Copies of lines that this thread has flushed since its last drain. The copy
 * is made at the flush. A drain waits only for its own thread's flushes.
 */
struct line {
	struct line *next;
	off_t at;
	size_t len;
	char bytes[];
};
static __thread struct line *under_way;
static pmem2_flush_fn real_flush;
static pmem2_drain_fn real_drain;

static void copy_to_shadow(const void *addr, size_t len, off_t at)
{
	struct line *l;

	if (at < 0)
		return;
	l = malloc(sizeof(*l) + len);
	if (!l)
		abort();
	l->next = under_way;
	l->at = at;
	l->len = len;
	memcpy(l->bytes, addr, len);
	under_way = l;
}

static void range_leaves_cache(const void *addr, size_t len)
{
	const char *p = addr;
	size_t n;

	if (!medium) {
		copy_to_shadow(p, len, pool_offset((uintptr_t)p));
		return;
	}
	for (; len; p += n, len -= n) {
		const size_t in_page = (uintptr_t)p % PAGE;
		const off_t page = page_place((uintptr_t)p);

		n = len < PAGE - in_page ? len : PAGE - in_page;
		copy_to_shadow(p, n, page < 0 ? page : page + (off_t)in_page);
	}
}

static bool is_watched(void)
{
	return medium || shadow_fd >= 0;
}

static void shadow_flush(const void *addr, size_t len)
{
	range_leaves_cache(addr, len);
	real_flush(addr, len);
}

/*
 * Called after non-temporal stores by the provider that is built with fault
 * injection points.
 */
void rpmem_shadow_streamed(const void *addr, size_t len)
{
	if (is_watched())
		range_leaves_cache(addr, len);
}

/*
 * Write the copies to the shadow from the end of the list, where the oldest is.
 */
static void lines_arrive(struct line *l)
{
	if (!l)
		return;
	lines_arrive(l->next);
	if (medium)
		memcpy(medium + l->at, l->bytes, l->len);
	else if (pwrite(shadow_fd, l->bytes, l->len, l->at) != (ssize_t)l->len)
		abort();
	free(l);
}

static void shadow_drain(void)
{
	real_drain();
	lines_arrive(under_way);
	under_way = NULL;
}

/*
 * Find a function of libpmem2. The provider loads that library by dlopen(), so
 * RTLD_NEXT does not find it.
 */
static void *real_function(const char *name)
{
	void *lib = dlopen("libpmem2.so.1", RTLD_NOW), *f;

	f = lib ? dlsym(lib, name) : NULL;
	if (!f)
		abort();
	return f;
}

__attribute__((visibility("default"))) pmem2_flush_fn
pmem2_get_flush_fn(struct pmem2_map *map)
{
	pmem2_flush_fn (*real)(struct pmem2_map *) =
		(pmem2_flush_fn(*)(struct pmem2_map *))real_function(__func__);

	if (!is_watched())
		return real(map);
	real_flush = real(map);
	return shadow_flush;
}

__attribute__((visibility("default"))) pmem2_drain_fn
pmem2_get_drain_fn(struct pmem2_map *map)
{
	pmem2_drain_fn (*real)(struct pmem2_map *) =
		(pmem2_drain_fn(*)(struct pmem2_map *))real_function(__func__);

	if (!is_watched())
		return real(map);
	real_drain = real(map);
	return shadow_drain;
}
