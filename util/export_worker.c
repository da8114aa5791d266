// SPDX-License-Identifier: BSD-2-Clause
/* A thread for slow work on one pool's disk, so that others are served. */
#include "config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "util/export_worker.h"
#include "util/setup.h"

struct rp_export_worker {
	pthread_t thread;
	struct rp_export_job job;
	int ended_fd;
	atomic_bool ended;
};

static void *work(void *arg)
{
	struct rp_export_worker *w = arg;

	w->job.ret = w->job.run(&w->job);
	atomic_store(&w->ended, true);
	eventfd_write(w->ended_fd, 1);
	return NULL;
}

struct rp_export_worker *rp_export_worker_start(const struct rp_export_job *job,
						int ended_fd)
{
	struct rp_export_worker *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->job = *job;
	w->ended_fd = ended_fd;
	if (!pthread_create(&w->thread, NULL, work, w))
		return w;
	free(w);
	return NULL;
}

bool rp_export_worker_has_ended(const struct rp_export_worker *w)
{
	return atomic_load(&w->ended);
}

void rp_export_worker_end(struct rp_export_worker *w, struct rp_export_job *job)
{
	pthread_join(w->thread, NULL);
	*job = w->job;
	free(w);
}

int rp_export_close_pool(struct rp_pool *pool, bool longer, bool clean,
			 char *err)
{
	int ret = 0;

	if (clean && longer)
		ret = rp_pool_extend(pool, err);
	if (clean && !ret)
		return rp_pool_close_clean(pool, err);
	rp_pool_abandon(pool);
	return ret;
}

int rp_export_job_close(struct rp_export_job *j)
{
	return rp_export_close_pool(&j->pool, j->longer, j->clean, j->err);
}

int rp_export_job_grow(struct rp_export_job *j)
{
	return rp_pool_allocate(&j->pool, j->err);
}

int rp_export_job_set_owner(struct rp_export_job *j)
{
	int ret = rp_pool_settle(&j->pool, j->part, j->err);

	if (!ret)
		ret = rp_pool_set_owner(&j->pool, j->part, j->owner, j->err);
	/* After a restart, no owner of a shared pool is awaited. */
	if (!ret && j->owner & RP_SETUP_SHARED)
		ret = rp_pool_release(&j->pool, 1ull << j->part, j->err);
	return ret;
}
