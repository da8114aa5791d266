// SPDX-License-Identifier: BSD-2-Clause
/* Checks a pool before the logs of a server are created there. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "libraft/store.h"

int pool_check_new(struct store *st, const char *where,
		   const struct rpmem_log_attr *attr)
{
	static const unsigned char zeros[4096];
	const struct rpmem_pool_attr look = {
		.size = sizeof(look),
		.secret_file = attr->secret_file,
		.required = RPMEM_POOL_NONE,
		.timeout = attr->timeout,
		.exclusive = RPMEM_POOL_OBSERVE,
	};
	unsigned char first[sizeof(zeros)];
	struct rpmem_pool *pool;
	int ret = rpmem_pool_open(&pool, where, &look);

	if (!ret) {
		ret = rpmem_pool_read(pool, first, sizeof(first), 0);
		rpmem_pool_close(pool);
	}
	if (ret)
		snprintf(st->errmsg, RAFT_ERRMSG_BUF_SIZE, "%s",
			 rpmem_pool_error());
	else if (memcmp(first, zeros, sizeof(zeros)) != 0) {
		ret = -EEXIST;
		snprintf(st->errmsg, RAFT_ERRMSG_BUF_SIZE,
			 "pool %s holds something else: its first 4096 bytes "
			 "are not zero; give a new pool",
			 where);
	}
	return raft_code(ret);
}
