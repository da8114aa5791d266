// SPDX-License-Identifier: BSD-2-Clause
/* Flush functions of libpmem2 for this CPU, to compare the agent with. */
#include "config.h"

#include <errno.h>

#include "fabtests/benchmarks/flush.h"
#include "util/text.h"

/*
 * libpmem2 returns its functions for a map; this small map gets them. They
 * accept any address.
 */
int rp_flush_open(struct rp_flush *f, char *err)
{
	static char line[64];
	struct pmem2_source *src;
	struct pmem2_map *map;
	int ret = pmem2_source_from_anon(&src, sizeof(line));

	if (ret)
		goto failed;
	ret = pmem2_map_from_existing(&map, src, line, sizeof(line),
				      PMEM2_GRANULARITY_CACHE_LINE);
	if (!ret) {
		f->flush = pmem2_get_flush_fn(map);
		f->drain = pmem2_get_drain_fn(map);
		f->copy = pmem2_get_memcpy_fn(map);
		pmem2_map_delete(&map);
	}
	pmem2_source_delete(&src);
	if (!ret)
		return 0;
failed:
	return rp_err(err, -ENOTSUP, "libpmem2: %s", pmem2_errormsg());
}
