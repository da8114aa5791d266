// SPDX-License-Identifier: BSD-2-Clause
/* Flushing with a libpmem2 whose calls fail: errors and leaks. */
#include <errno.h>
#include <libpmem2.h>

#include <criterion/criterion.h>

#include "pmem_rig.h"

/* Wrapped by the linker: results of libpmem2, objects not deleted yet. */
static int source_ret, map_ret;
static int sources, maps, made; /* made: number of created maps */

int __real_pmem2_source_from_anon(struct pmem2_source **src, size_t size);
int __wrap_pmem2_source_from_anon(struct pmem2_source **src, size_t size);
int __wrap_pmem2_source_from_anon(struct pmem2_source **src, size_t size)
{
	if (source_ret)
		return source_ret;
	sources++;
	return __real_pmem2_source_from_anon(src, size);
}

int __real_pmem2_source_delete(struct pmem2_source **src);
int __wrap_pmem2_source_delete(struct pmem2_source **src);
int __wrap_pmem2_source_delete(struct pmem2_source **src)
{
	sources--;
	return __real_pmem2_source_delete(src);
}

int __real_pmem2_map_from_existing(struct pmem2_map **map,
				   const struct pmem2_source *src, void *addr,
				   size_t len, enum pmem2_granularity g);
int __wrap_pmem2_map_from_existing(struct pmem2_map **map,
				   const struct pmem2_source *src, void *addr,
				   size_t len, enum pmem2_granularity g);
int __wrap_pmem2_map_from_existing(struct pmem2_map **map,
				   const struct pmem2_source *src, void *addr,
				   size_t len, enum pmem2_granularity g)
{
	made++;
	if (map_ret)
		return map_ret;
	maps++;
	return __real_pmem2_map_from_existing(map, src, addr, len, g);
}

int __real_pmem2_map_delete(struct pmem2_map **map);
int __wrap_pmem2_map_delete(struct pmem2_map **map);
int __wrap_pmem2_map_delete(struct pmem2_map **map)
{
	maps--;
	return __real_pmem2_map_delete(map);
}

/* A process initializes libpmem2 once, so each case is a test of its own. */
static void try_library(int ret, int want_made)
{
	static const enum rp_method how[] = {
		RP_METHOD_AGENT_CLWB,
		RP_METHOD_AGENT_CLWB_MSYNC,
		RP_METHOD_AGENT_CLWB,
	};
	struct rp_pmem_ops ops = fake;
	struct rp_pmem *pm = (void *)7;

	for (int i = 0; i < 3; i++)
		cr_assert_eq(
			rp_pmem_new(event_log, 64, how[i], NULL, NULL, &pm),
			ret);
	/* For an operation that ops lacks, libpmem2 is needed. */
	ops.drain = NULL;
	cr_assert_eq(rp_pmem_new(event_log, 64, how[0], NULL, &ops, &pm), ret);
	ops.drain = fake.drain;
	ops.flush = NULL;
	cr_assert_eq(rp_pmem_new(event_log, 64, how[0], NULL, &ops, &pm), ret);
	cr_assert_eq(made, want_made);
	cr_assert_eq(maps, 0, "%d maps kept", maps);
	cr_assert_eq(sources, 0, "%d sources kept", sources);
	cr_assert_eq(pm, (void *)7);
	/* With all operations in ops, or for msync, libpmem2 is not needed. */
	rp_pmem_delete(make_pmem(0x10000, 64, how[0], &fake));
	rp_pmem_delete(make_pmem(0x10000, 64, RP_METHOD_AGENT_MSYNC, NULL));
}

Test(pmem_library, without_source)
{
	source_ret = -ENOMEM;
	try_library(-ENOMEM, 0);
}

Test(pmem_library, without_map)
{
	map_ret = -ENOMEM;
	try_library(-ENOMEM, 1);
}

Test(pmem_library, with_an_unknown_error)
{
	map_ret = PMEM2_E_UNKNOWN;
	try_library(-ENOTSUP, 1);
}

Test(pmem_library, with_an_error_of_libpmem2)
{
	map_ret = PMEM2_E_MAP_EXISTS;
	try_library(-ENOTSUP, 1);
}

Test(pmem_library, every_object_is_deleted)
{
	rp_pmem_delete(make_pmem((uintptr_t)event_log, 64, RP_METHOD_AGENT_CLWB,
				 NULL));
	cr_assert_eq(made, 1);
	cr_assert_eq(maps, 0);
	cr_assert_eq(sources, 0);
}
