// SPDX-License-Identifier: BSD-2-Clause
/* A filter of nbdkit that drops FLUSH and FUA, as a lying disk does. */
#include "config.h"

#include <nbdkit-filter.h>

static int drop_flush(nbdkit_next *next, void *handle, uint32_t flags, int *err)
{
	(void)next;
	(void)handle;
	(void)flags;
	(void)err;
	return 0;
}

static int drop_fua(nbdkit_next *next, void *handle, const void *buf,
		    uint32_t count, uint64_t offset, uint32_t flags, int *err)
{
	(void)handle;
	return next->pwrite(next, buf, count, offset,
			    flags & ~(uint32_t)NBDKIT_FLAG_FUA, err);
}

static struct nbdkit_filter filter = {
	.name = "flush",
	.flush = drop_flush,
	.pwrite = drop_fua,
};

NBDKIT_REGISTER_FILTER(filter)
