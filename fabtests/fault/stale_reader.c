// SPDX-License-Identifier: BSD-2-Clause
/*
 * Preloaded into a program that reads a pool: its small reads return old bytes.
 */
#include "config.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <rpmem_pool.h>

#define SMALL 8192 /* bytes of the largest read that is stale */

typedef int read_fn(struct rpmem_pool *pool, void *buf, size_t len,
		    uint64_t offset);

/*
 * Each small read returns the bytes of the previous small read; the first one,
 * zeros.
 */
__attribute__((visibility("default"))) int
rpmem_pool_read(struct rpmem_pool *pool, void *buf, size_t len, uint64_t offset)
{
	static unsigned char before[SMALL];
	unsigned char got[SMALL];
	read_fn *next = NULL;
	int ret;

	*(void **)&next = dlsym(RTLD_NEXT, "rpmem_pool_read");
	if (!next)
		abort();
	ret = next(pool, buf, len, offset);
	if (ret || len > SMALL)
		return ret;
	memcpy(got, buf, len);
	memcpy(buf, before, len);
	memcpy(before, got, len);
	return 0;
}
