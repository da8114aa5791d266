// SPDX-License-Identifier: BSD-2-Clause
/* Flushes that this process asks for itself, beside those of its peers. */
#include <errno.h>

#include "core/agent_impl.h"
#include "core/list.h"
#include "core/ranges.h"

int rp_agent_local_flush(struct rp_agent *a, struct rp_xport *x,
			 const struct rp_local *ranges, size_t n,
			 rp_local_fn done, void *arg)
{
	struct rp_job *job;
	int ret;

	for (size_t i = 0; i < n; i++)
		if (!rp_range_inside(ranges[i].off, ranges[i].len, 0,
				     ranges[i].region->len))
			return -EINVAL;
	job = rp_job_new(n);
	if (!job)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		job->ranges[i].region = ranges[i].region;
		job->ranges[i].off = ranges[i].off;
		job->ranges[i].len = ranges[i].len;
		/* Where delivery is enough, flushing costs nothing. */
		job->ranges[i].flush = true;
	}
	rp_job_hold(job);
	/* Without a session nobody else may be there to wake. */
	ret = rp_worker_watch(&a->worker, x);
	if (ret) {
		rp_job_free(job);
		return ret;
	}
	job->local.x = x;
	job->local.done = done;
	job->local.arg = arg;
	TAILQ_INSERT_TAIL(&a->local, job, of_client);
	job->queue =
		!a->attr.no_worker && rp_job_blocks(job) ? &a->slow : &a->quick;
	TAILQ_INSERT_TAIL(job->queue, job, link);
	return 0;
}

static void forget(struct rp_agent *a, struct rp_job *job)
{
	TAILQ_REMOVE(&a->local, job, of_client);
	rp_worker_unwatch(&a->worker, job->local.x);
	job->local.x = NULL;
}

void rp_agent_local_end(struct rp_agent *a, struct rp_job *job)
{
	rp_local_fn done = job->local.done;
	enum rp_status st = job->reply.status;
	uint32_t detail = job->reply.detail;
	void *arg = job->local.arg;

	forget(a, job);
	rp_job_free(job);
	done(arg, st, detail);
}

void rp_agent_local_drop(struct rp_agent *a, const struct rp_xport *x)
{
	struct rp_job *job, *tmp;

	TAILQ_FOREACH_SAFE(job, &a->local, of_client, tmp)
	{
		if (job->local.x == x)
			forget(a, job);
	}
}
