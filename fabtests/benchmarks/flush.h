/* SPDX-License-Identifier: BSD-2-Clause */
/* Flush functions of libpmem2 for this CPU, to compare the agent with. */
#ifndef RP_FLUSH_H
#define RP_FLUSH_H

#include <libpmem2.h>

struct rp_flush {
	pmem2_flush_fn flush; /* write back cache lines; needs drain after it */
	pmem2_drain_fn drain;
	pmem2_memcpy_fn copy; /* PMEM2_F_MEM_*: non-temporal, no drain */
};

/*
 * Returns 0, or -errno and the reason in err. The functions take any address.
 */
int rp_flush_open(struct rp_flush *f, char *err);

#endif
