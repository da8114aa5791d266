// SPDX-License-Identifier: BSD-2-Clause
/* The calls of rpmem_pool.h for a group that is open. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/clock.h"
#include "libpool/group_open.h"
#include "libpool/group_threads.h"

int pool_group_run(struct rpmem_pool *p, struct rpmem_pool_op *op)
{
	struct pool_group *pg = p->group;
	struct call call = {.op = op};
	int ret;

	pthread_mutex_lock(&p->lock);
	LIST_INSERT_HEAD(&pg->calls, &call, link);
	pg->g.now = rp_now_ms();
	ret = group_submit(&pg->g, op);
	if (ret)
		pool_error(ret, "out of memory");
	else
		group_run(&pg->g, rp_now_ms());
	while (!ret && !call.done)
		pool_group_progress(pg, GROUP_TICK_MS);
	LIST_REMOVE(&call, link);
	pthread_mutex_unlock(&p->lock);
	if (ret)
		return ret;
	if (op->result)
		pool_error(0, "%s", op->error);
	return op->result;
}

int pool_group_submit(struct rpmem_pool *p, struct rpmem_pool_op *op)
{
	struct pool_group *pg = p->group;
	void *more;
	int ret;

	pthread_mutex_lock(&p->lock);
	if (pg->ndone + pg->nout == pg->size) {
		more = realloc(pg->done,
			       (pg->size * 2 + 64) * sizeof(*pg->done));
		if (!more) {
			pthread_mutex_unlock(&p->lock);
			return pool_error(-ENOMEM, "out of memory");
		}
		pg->done = more;
		pg->size = pg->size * 2 + 64;
	}
	pg->nout++;
	pg->g.now = rp_now_ms();
	ret = group_submit(&pg->g, op);
	if (ret)
		pg->nout--;
	else
		group_run(&pg->g, rp_now_ms());
	pthread_mutex_unlock(&p->lock);
	return ret ? pool_error(ret, "out of memory") : 0;
}

int pool_group_poll(struct rpmem_pool *p, struct rpmem_pool_op **done,
		    unsigned int n, int timeout_ms)
{
	struct pool_group *pg = p->group;
	const uint64_t until = rp_now_ms() + (uint64_t)timeout_ms;
	size_t got;

	pthread_mutex_lock(&p->lock);
	if (!pg->ndone && !pg->polling)
		pool_group_collect(pg);
	while (!pg->ndone && timeout_ms) {
		const uint64_t now = rp_now_ms();
		uint64_t left = timeout_ms < 0 ? GROUP_TICK_MS : until - now;

		if (timeout_ms > 0 && now >= until)
			break;
		pool_group_progress(pg, left < GROUP_TICK_MS ? (int)left
							     : GROUP_TICK_MS);
	}
	got = pg->ndone < n ? pg->ndone : n;
	memcpy(done, pg->done, got * sizeof(*done));
	pg->ndone -= got;
	memmove(pg->done, pg->done + got, pg->ndone * sizeof(*done));
	pthread_mutex_unlock(&p->lock);
	return (int)got;
}

void pool_group_query(struct rpmem_pool *p, struct rpmem_pool_info *info)
{
	struct pool_group *pg = p->group;
	struct rpmem_pool_info one;
	bool first = true;

	pthread_mutex_lock(&p->lock);
	for (unsigned int i = 0; i < pg->g.n; i++)
		info->current += group_member_has_all(&pg->g, i);
	info->length = p->now.ex.len;
	info->reconnects = pg->reconnects;
	info->reached = RPMEM_POOL_NONE;
	info->method = "none";
	info->members = pg->g.n;
	for (unsigned int i = 0; i < pg->g.n; i++) {
		one.size = sizeof(one);
		if (pg->g.members[i].state != MEMBER_CURRENT ||
		    rpmem_pool_query(pg->pools[i].pool, &one))
			continue;
		info->reconnects += one.reconnects;
		info->kept = one.kept > info->kept ? one.kept : info->kept;
		if (first || one.reached > info->reached)
			info->reached = one.reached;
		if (first)
			info->method = one.method;
		else if (strcmp(info->method, one.method) != 0)
			info->method = "several";
		if (one.granularity > info->granularity)
			info->granularity = one.granularity;
		if (first || one.preferred_size < info->preferred_size)
			info->preferred_size = one.preferred_size;
		first = false;
	}
	pthread_mutex_unlock(&p->lock);
}

int pool_group_member(struct rpmem_pool *p, unsigned int index,
		      struct rpmem_pool_member *member)
{
	struct pool_group *pg = p->group;
	const struct group_member *m;
	const char *lost;

	if (index >= pg->g.n)
		return -ENOENT;
	m = &pg->g.members[index];
	pthread_mutex_lock(&p->lock);
	member->where = pg->pools[index].where;
	member->left = m->backlog + group_copy_left(&pg->g, index);
	member->error = m->error;
	if (m->state == MEMBER_AWAY)
		member->state = RPMEM_POOL_AWAY;
	else if (m->state < MEMBER_CURRENT)
		member->state = RPMEM_POOL_COPYING;
	else if (group_member_has_all(&pg->g, index))
		member->state = RPMEM_POOL_CURRENT;
	else
		member->state = RPMEM_POOL_LAGGING;
	lost = m->state == MEMBER_AWAY ? NULL
				       : pool_group_lost(pg->pools[index].pool);
	if (lost)
		member->error = pool_group_text(pg, index, lost);
	pthread_mutex_unlock(&p->lock);
	return 0;
}
