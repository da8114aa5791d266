// SPDX-License-Identifier: BSD-2-Clause
/* The target side of a domain: its batches, regions and progress. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "core/agent_priv.h"

/* Attempts to find a random key that no other region has. */
#define KEY_TRIES 64

int rp_agent_new(const struct rp_agent_attr *attr, struct rp_agent_host *h,
		 struct rp_agent **out)
{
	struct rp_agent *a;
	int ret;

	if (!attr->incarnation || attr->credits > UINT16_MAX)
		return -EINVAL;
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->attr = *attr;
	a->host = h;
	a->attr.max_sessions = attr->max_sessions ?: RP_AGENT_SESSIONS;
	a->attr.credits = attr->credits ?: RP_AGENT_CREDITS;
	a->attr.max_jobs = attr->max_jobs ?: RP_AGENT_JOBS;
	TAILQ_INIT(&a->open);
	TAILQ_INIT(&a->ending);
	TAILQ_INIT(&a->sending);
	TAILQ_INIT(&a->working);
	TAILQ_INIT(&a->delayed);
	TAILQ_INIT(&a->quick_jobs);
	TAILQ_INIT(&a->slow_jobs);
	TAILQ_INIT(&a->local);
	TAILQ_INIT(&a->flushing_all);

	ret = rp_batch_init(&a->inline_batch);
	if (ret)
		goto free;
	ret = rp_batch_init(&a->worker_batch);
	if (ret)
		goto fini_inline_batch;
	a->job = rp_job_new(RP_WIRE_MAX_PACKED, 0);
	ret = a->job ? 0 : -ENOMEM;
	if (ret)
		goto fini_worker_batch;
	ret = rp_worker_init(&a->worker, h);
	if (ret)
		goto free_job;
	*out = a;
	return 0;

free_job:
	free(a->job);
fini_worker_batch:
	rp_batch_fini(&a->worker_batch);
fini_inline_batch:
	rp_batch_fini(&a->inline_batch);
free:
	free(a);
	return ret;
}

void rp_agent_delete(struct rp_agent *a)
{
	rp_agent_close_sessions(a);
	rp_agent_refuse_delayed(a, UINT64_MAX);
	/* No job runs: a job uses regions, and all have been removed. */
	assert(!a->backlog && !a->worker_busy);
	rp_worker_fini(&a->worker);
	free(a->job);
	rp_batch_fini(&a->worker_batch);
	rp_batch_fini(&a->inline_batch);
	free(a);
}

/* Complete a job that is in no queue: send its reply or call its done(). */
static void job_complete(struct rp_job *job)
{
	struct rp_agent_session *s = job->session;

	if (job->local) {
		rp_agent_local_complete(job);
		return;
	}
	if (s) {
		rp_agent_session_del_job(job);
		rp_agent_job_complete(s, job);
	}
	rp_job_free(job);
}

static void jobs_complete(struct rp_jobs *jobs)
{
	struct rp_job *job;

	while ((job = TAILQ_FIRST(jobs))) {
		TAILQ_REMOVE(jobs, job, link);
		job_complete(job);
	}
}

/* Fail a job whose region has lost its class since the job was checked. */
static void fail_weakened(struct rp_job *job)
{
	if (!job->weakened)
		return;
	if (job->then.region || rp_effect_precedes_flush(job->effect))
		rp_job_fail(job, RP_ST_FLUSH_FAILED, EIO, 0);
	else
		rp_job_fail(job, RP_ST_CLASS, job->weakened - 1, 0);
}

/* The batch has run and its outcome is known: complete its jobs. */
static void batch_complete(struct rp_agent *a, struct rp_batch *b)
{
	struct rp_job *job;

	rp_batch_complete(b, &b->jobs);
	TAILQ_FOREACH (job, &b->jobs, link)
		fail_weakened(job);
	rp_agent_count(a, b);
	jobs_complete(&b->jobs);
	rp_batch_reset(b);
}

static bool collect_worker_batch(struct rp_agent *a, bool wait)
{
	if (!a->worker_busy || !rp_worker_collect(&a->worker, wait))
		return false;
	a->worker_busy = false;
	batch_complete(a, &a->worker_batch);
	return true;
}

/* Fail the job if one of its regions has failed since the job was checked. */
static void fail_if_region_failed(struct rp_job *job)
{
	for (size_t i = 0; i < job->n; i++)
		if (job->ranges[i].region->failed)
			rp_job_fail(job, RP_ST_REGION_FAILED,
				    job->ranges[i].region->failed, i);
	if (job->then.region && job->then.region->failed)
		rp_job_fail(job, RP_ST_REGION_FAILED, job->then.region->failed,
			    job->n);
}

/* Move jobs from the queue to the batch, as many as fit. */
static bool batch_fill(struct rp_agent *a, struct rp_jobs *queue,
		       struct rp_batch *b)
{
	struct rp_job *job, *tmp;
	bool any = false;

	TAILQ_FOREACH_SAFE(job, queue, link, tmp)
	{
		if (!rp_batch_has_room(b, job) ||
		    !rp_batch_has_room(&a->inline_batch, job))
			break;
		if (rp_agent_job_must_wait(job))
			continue;
		TAILQ_REMOVE(queue, job, link);
		job->queue = NULL;
		fail_if_region_failed(job);
		fail_weakened(job);
		if (job->reply.status == RP_ST_OK) {
			/* inline_batch flushes a slow job's cheap ranges. */
			if (rp_batch_merge(&a->inline_batch, b, job))
				rp_job_fail_memory(job);
			/* A failed job keeps regions of merged ranges busy. */
			job->batch = b;
			TAILQ_INSERT_TAIL(&b->jobs, job, link);
		} else {
			job_complete(job);
			/* This may have ended a session and dropped tmp. */
			tmp = TAILQ_FIRST(queue);
		}
		any = true;
	}
	return any;
}

static void start_worker_batch(struct rp_agent *a)
{
	if (TAILQ_EMPTY(&a->worker_batch.jobs))
		return;
	rp_batch_seal(&a->worker_batch);
	if (rp_worker_start(&a->worker)) {
		/* No thread can be started: run the slow batch here. */
		rp_batch_run(&a->worker_batch);
		batch_complete(a, &a->worker_batch);
		return;
	}
	a->worker_busy = true;
	rp_worker_submit(&a->worker, &a->worker_batch);
}

static bool run_batches(struct rp_agent *a)
{
	bool any = batch_fill(a, &a->quick_jobs, &a->inline_batch);

	if (!a->worker_busy)
		any |= batch_fill(a, &a->slow_jobs, &a->worker_batch);
	if (!any)
		return false;

	rp_batch_seal(&a->inline_batch);
	rp_batch_run(&a->inline_batch);
	if (a->worker_busy) {
		batch_complete(a, &a->inline_batch);
		return true;
	}
	/* Fail slow jobs whose cheap ranges this batch could not flush. */
	rp_batch_complete(&a->inline_batch, &a->worker_batch.jobs);
	batch_complete(a, &a->inline_batch);
	start_worker_batch(a);
	return true;
}

int rp_agent_region_add(struct rp_agent *a, struct rp_region *r)
{
	int ret;

	if (!r->pmem)
		return -EINVAL;
	r->failed = 0;
	r->busy = 0;
	ret = rp_regions_add(&a->regions, r);
	if (ret)
		return ret;
	r->stats = rp_stats_region_open(r->facts.name, r->len, r->choice.class,
					r->choice.method);
	rp_pmem_set_stats(r->pmem, r->stats);
	rp_agent_facts_add(a, r);
	return 0;
}

int rp_agent_region_add_new_key(struct rp_agent *a, struct rp_region *r,
				uint16_t port,
				int (*random)(void *buf, size_t len))
{
	struct rp_key k = {
		.class = r->choice.class,
		.method = r->choice.method,
		.port = port,
	};
	int ret = -EEXIST;

	for (int i = 0; i < KEY_TRIES && ret == -EEXIST; i++) {
		ret = random(&k.random, sizeof(k.random));
		if (ret)
			return ret;
		k.random &= (1ull << RP_KEY_RANDOM_BITS) - 1;
		r->key = rp_key_make(&k);
		ret = rp_agent_region_add(a, r);
	}
	return ret;
}

/* Fail queued jobs of r, which are local or of messages_only sessions. */
static void fail_queued_jobs(struct rp_jobs *queue, const struct rp_region *r)
{
	struct rp_job *job, *tmp;

	TAILQ_FOREACH_SAFE(job, queue, link, tmp)
	{
		for (size_t i = 0; i < job->n; i++)
			if (job->ranges[i].region == r)
				rp_job_fail(job, RP_ST_STALE_KEY, 0, i);
		if (job->then.region == r)
			rp_job_fail(job, RP_ST_STALE_KEY, 0, job->n);
		if (job->reply.status == RP_ST_OK)
			continue;
		TAILQ_REMOVE(queue, job, link);
		job_complete(job);
		tmp = TAILQ_FIRST(queue);
	}
}

void rp_agent_region_del(struct rp_agent *a, struct rp_region *r)
{
	rp_agent_facts_del(a, r);
	rp_regions_del(&a->regions, r);
	rp_stats_region_close(r->stats);
	rp_agent_revoke_key(a, r->key);
	if (!r->busy)
		return;
	fail_queued_jobs(&a->quick_jobs, r);
	fail_queued_jobs(&a->slow_jobs, r);
	/* Running jobs of r must complete before r is freed. */
	if (r->busy)
		collect_worker_batch(a, true);
	assert(!r->busy);
}

void rp_agent_quiesce(struct rp_agent *a)
{
	a->quiescing = true;
}

bool rp_agent_progress(struct rp_agent *a)
{
	bool any = false;
	uint64_t now;

	/* Fast path: each poll of a completion queue calls this. */
	const bool idle = !a->worker_busy && !a->backlog &&
			  TAILQ_EMPTY(&a->ending) && TAILQ_EMPTY(&a->delayed) &&
			  TAILQ_EMPTY(&a->local) &&
			  TAILQ_EMPTY(&a->flushing_all) && !a->review;

	if (idle && !a->watch)
		return false;
	now = rp_agent_now(a);
	if (idle && now < a->watch_at)
		return false;
	any |= collect_worker_batch(a, false);
	any |= rp_agent_facts_progress(a, now);
	any |= run_batches(a);
	any |= rp_agent_sessions_progress(a, now);
	any |= rp_agent_refuse_delayed(a, now);
	return any;
}

uint64_t rp_agent_deadline(const struct rp_agent *a)
{
	uint64_t due;

	if (!TAILQ_EMPTY(&a->quick_jobs) || a->review ||
	    ((!TAILQ_EMPTY(&a->slow_jobs) || !TAILQ_EMPTY(&a->flushing_all)) &&
	     !a->worker_busy))
		return 0;
	due = rp_agent_sessions_deadline(a);
	if (a->watch && a->watch_at < due)
		due = a->watch_at;
	/* The list of delayed refusals is sorted by due time. */
	if (!TAILQ_EMPTY(&a->delayed) && TAILQ_FIRST(&a->delayed)->due < due)
		due = TAILQ_FIRST(&a->delayed)->due;
	return due;
}

unsigned int rp_agent_backlog(const struct rp_agent *a)
{
	return a->backlog;
}
