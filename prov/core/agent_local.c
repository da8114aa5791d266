// SPDX-License-Identifier: BSD-2-Clause
/* Flushes of local ranges that this process requests for itself. */
#include <errno.h>

#include "core/agent_priv.h"
#include "core/ranges.h"

int rp_agent_local_flush(struct rp_agent *a, const struct rp_local *ranges,
			 size_t n, rp_local_done_fn done, void *arg)
{
	struct rp_job *job;

	for (size_t i = 0; i < n; i++)
		if (!rp_range_inside(ranges[i].off, ranges[i].len, 0,
				     ranges[i].region->len))
			return -EINVAL;
	job = rp_job_new(n, 0);
	if (!job)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		job->ranges[i].region = ranges[i].region;
		job->ranges[i].off = ranges[i].off;
		job->ranges[i].len = ranges[i].len;
		/* For method DELIVERY rp_pmem_flush() does nothing. */
		job->ranges[i].flush = true;
	}
	rp_job_use_regions(job);
	job->local = &a->local;
	job->done = done;
	job->arg = arg;
	TAILQ_INSERT_TAIL(&a->local, job, owner_link);
	job->queue = !a->attr.no_worker && rp_job_blocks(job) ? &a->slow_jobs
							      : &a->quick_jobs;
	TAILQ_INSERT_TAIL(job->queue, job, link);
	return 0;
}

static void drop_job(struct rp_job *job)
{
	TAILQ_REMOVE(job->local, job, owner_link);
	job->local = NULL;
}

void rp_agent_local_complete(struct rp_job *job)
{
	rp_local_done_fn done = job->done;
	enum rp_status st = job->reply.status;
	uint32_t detail = job->reply.detail;
	void *arg = job->arg;

	drop_job(job);
	rp_job_free(job);
	done(arg, st, detail);
}

void rp_agent_local_drop(struct rp_agent *a, void *arg)
{
	struct rp_job *job, *tmp;

	TAILQ_FOREACH_SAFE(job, &a->local, owner_link, tmp)
	{
		if (job->arg == arg)
			drop_job(job);
	}
}
