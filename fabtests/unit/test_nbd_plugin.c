/* SPDX-License-Identifier: BSD-2-Clause */
/* nbdkit's plugin over a pool of chosen facts: what it says of the disk. */
#include "config.h"

#include <stdbool.h>

#include <criterion/criterion.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "rpmem_pool.h"
#include "unit/never_called.h"

struct nbdkit_plugin *plugin_init(void);

/* --- librpmem_pool and nbdkit */

static uint32_t granularity;

int rpmem_pool_query(struct rpmem_pool *p, struct rpmem_pool_info *info)
{
	info->granularity = granularity;
	return 0;
}

const char *rpmem_pool_error(void)
{
	return "CAUSE";
}

/* The other calls are for requests, which these tests do not make. */
NEVER_CALLED(int rpmem_pool_open(struct rpmem_pool **p, const char *where,
				 const struct rpmem_pool_attr *attr))
NEVER_CALLED(void rpmem_pool_close(struct rpmem_pool *p))
NEVER_CALLED(int rpmem_pool_commit(struct rpmem_pool *p))
NEVER_CALLED(int rpmem_pool_read(struct rpmem_pool *p, void *buf, size_t len,
				 uint64_t offset))
NEVER_CALLED(int rpmem_pool_write(struct rpmem_pool *p, const void *buf,
				  size_t len, uint64_t offset,
				  unsigned int flags))
NEVER_CALLED(int rpmem_pool_zero(struct rpmem_pool *p, size_t len,
				 uint64_t offset, unsigned int flags))
NEVER_CALLED(int rpmem_pool_member(struct rpmem_pool *p, unsigned int index,
				   struct rpmem_pool_member *member))
NEVER_CALLED(void nbdkit_error(const char *fs, ...))
NEVER_CALLED(void nbdkit_set_error(int err))
NEVER_CALLED(char *nbdkit_absolute_path(const char *path))
NEVER_CALLED(int nbdkit_parse_bool(const char *str))
NEVER_CALLED(int nbdkit_parse_unsigned(const char *what, const char *str,
				       unsigned int *r))

/* --- tests */

/*
 * A write that is not of whole units makes the target flush the rest of each
 * unit, too. A unit below 4 KiB stays below the pages of clients.
 */
Test(nbd_plugin, preferred_block_is_the_granularity_of_the_pool)
{
	static const struct {
		uint32_t granularity, preferred;
	} cases[] = {{1, 4096},
		     {64, 4096},
		     {4096, 4096},
		     {16384, 16384},
		     {65536, 65536}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		uint32_t minimum = 0, preferred = 0, maximum = 0;

		granularity = cases[i].granularity;
		cr_assert_eq(plugin_init()->block_size(NULL, &minimum,
						       &preferred, &maximum),
			     0);
		cr_assert_eq(minimum, 1);
		cr_assert_eq(preferred, cases[i].preferred, "%u, not %u",
			     preferred, cases[i].preferred);
		cr_assert_eq(maximum, UINT32_MAX);
	}
}
