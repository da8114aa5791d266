// SPDX-License-Identifier: BSD-2-Clause
/* Preloaded into a target: what a successful msync covered, and nothing else,
 * goes into a second file. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int shadow_fd = -1;
static dev_t pool_dev;
static ino_t pool_ino;

__attribute__((constructor)) static void shadow_open(void)
{
	const char *spec = getenv("RPMEM_SHADOW"), *colon;
	char pool[PATH_MAX];
	struct stat st;

	colon = spec ? strrchr(spec, ':') : NULL;
	if (!colon)
		return;
	snprintf(pool, sizeof(pool), "%.*s", (int)(colon - spec), spec);
	shadow_fd = open(colon + 1, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (shadow_fd < 0) {
		perror(colon + 1);
		abort();
	}
	/* A pool that is still to be made is found at its first msync. */
	if (!stat(pool, &st)) {
		pool_dev = st.st_dev;
		pool_ino = st.st_ino;
	}
}

/* Where in the pool file the mapping at addr begins; -1: not the pool. */
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
	/* Only bytes that were there before the call are sure to be covered. */
	copy = malloc(len);
	if (!copy)
		abort();
	memcpy(copy, addr, len);
	ret = real(addr, len, flags);
	if (!ret && pwrite(shadow_fd, copy, len, at) != (ssize_t)len)
		abort();
	free(copy);
	return ret;
}
