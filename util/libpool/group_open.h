/* SPDX-License-Identifier: BSD-2-Clause */
/* The calls of rpmem_pool.h for a pool that is a group. */
#ifndef RP_LIBPOOL_GROUP_OPEN_H
#define RP_LIBPOOL_GROUP_OPEN_H

#include "libpool/pool.h"

int pool_group_open(struct rpmem_pool **pool, const char *where,
		    const struct rpmem_pool_attr *attr);
void pool_group_close(struct rpmem_pool *p);
/* Run an operation, whose arguments were checked, until it completes. */
int pool_group_run(struct rpmem_pool *p, struct rpmem_pool_op *op);
int pool_group_submit(struct rpmem_pool *p, struct rpmem_pool_op *op);
int pool_group_poll(struct rpmem_pool *p, struct rpmem_pool_op **done,
		    unsigned int n, int timeout_ms);
int pool_group_member(struct rpmem_pool *p, unsigned int index,
		      struct rpmem_pool_member *member);
void pool_group_query(struct rpmem_pool *p, struct rpmem_pool_info *info);

#endif
