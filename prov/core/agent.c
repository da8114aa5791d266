// SPDX-License-Identifier: BSD-2-Clause
/* The target's part: validate, persist, reply. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "core/agent_impl.h"
#include "core/list.h"

/* How soon a send that the base would not take is tried again. */
#define RETRY_NS 1000000ull

int rp_agent_new(const struct rp_agent_attr *attr, struct rp_agent **out)
{
	struct rp_agent *a;
	int ret;

	if (!attr->incarnation || attr->credits > UINT16_MAX)
		return -EINVAL;
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->attr = *attr;
	if (!a->attr.max_sessions)
		a->attr.max_sessions = RP_AGENT_SESSIONS;
	if (!a->attr.max_half_open)
		a->attr.max_half_open = RP_AGENT_HALF_OPEN;
	if (!a->attr.credits)
		a->attr.credits = RP_AGENT_CREDITS;
	if (!a->attr.max_jobs)
		a->attr.max_jobs = RP_AGENT_JOBS;
	STAILQ_INIT(&a->strangers);
	a->welcome = RP_AGENT_WELCOME;
	TAILQ_INIT(&a->quick);
	TAILQ_INIT(&a->slow);
	TAILQ_INIT(&a->local);
	a->clients = (struct rp_clients){
		.worker = &a->worker,
		.max_open = a->attr.max_sessions,
		.max_half_open = a->attr.max_half_open,
		.credits = a->attr.credits,
		.max_held = a->attr.max_jobs,
	};
	rp_clients_init(&a->clients);

	ret = rp_batch_init(&a->inl);
	if (ret)
		goto free;
	ret = rp_batch_init(&a->far);
	if (ret)
		goto fini_inl;
	if (attr->links) {
		a->linked = rp_job_new(RP_WIRE_MAX_PACKED);
		ret = a->linked ? 0 : -ENOMEM;
		if (ret)
			goto fini_far;
	}
	ret = rp_worker_init(&a->worker);
	if (ret)
		goto free_linked;
	*out = a;
	return 0;

free_linked:
	free(a->linked);
fini_far:
	rp_batch_fini(&a->far);
fini_inl:
	rp_batch_fini(&a->inl);
free:
	free(a);
	return ret;
}

void rp_agent_delete(struct rp_agent *a)
{
	/* No client means no queued job; no region means none that runs. */
	assert(!a->clients.open && !a->clients.half_open && !a->nstrangers);
	assert(!a->regions.by_base && !a->far_runs);
	rp_worker_fini(&a->worker);
	free(a->linked);
	rp_batch_fini(&a->far);
	rp_batch_fini(&a->inl);
	free(a);
}

/* The program is told before its peer is; then what the peer is told stays. */
static void finish_effect(struct rp_agent *a, struct rp_client *c,
			  struct rp_job *job)
{
	const struct rp_job_range *g = &job->ranges[0];
	struct rp_xport *x = c->origin.x;
	size_t len = 0;

	if (job->reply.status == RP_ST_OK && job->effect == RP_EFFECT_NOTIFY) {
		for (size_t i = 0; i < job->n; i++)
			len += job->ranges[i].len;
		if (x->ops->notify(x, c->peer, job->data,
				   (char *)g->region->base + g->off, len))
			rp_job_fail(job, RP_ST_OVERLOADED, 0, 0);
	}
	a->stats.effects += job->reply.status == RP_ST_OK;
	rp_client_answered(&a->clients, c, job->seq, &job->reply);
}

/* The end of a job in no list any more: answer whoever still waits. */
static void finish(struct rp_agent *a, struct rp_job *job)
{
	struct rp_client *c = job->client;

	if (job->local.x) {
		rp_agent_local_end(a, job);
		return;
	}
	if (c) {
		rp_client_del_job(&a->clients, job);
		if (job->effect)
			finish_effect(a, c, job);
		a->stats.replies++;
		rp_agent_reply(a, c, job->token, &job->reply);
	}
	rp_job_free(job);
}

static void finish_all(struct rp_agent *a, struct rp_jobs *jobs)
{
	struct rp_job *job;

	while ((job = TAILQ_FIRST(jobs))) {
		TAILQ_REMOVE(jobs, job, link);
		finish(a, job);
	}
}

/* The batch has run: what it did is known, its jobs can be answered. */
static void settle(struct rp_agent *a, struct rp_batch *b)
{
	rp_batch_judge(b, &b->jobs);
	a->stats.flushes += b->flushes;
	a->stats.flushed_bytes += b->bytes;
	a->stats.drains += b->drains;
	finish_all(a, &b->jobs);
	rp_batch_reset(b);
}

static bool collect_far(struct rp_agent *a, bool wait)
{
	if (!a->far_runs || !rp_worker_finished(&a->worker, wait))
		return false;
	a->far_runs = false;
	settle(a, &a->far);
	return true;
}

/* Which batch flushes this range of a job that goes to the given one. */
static struct rp_batch *batch_of(struct rp_agent *a, struct rp_batch *job_batch,
				 const struct rp_job_range *g)
{
	/*
	 * Cheap ranges of a slow job are flushed here, before it is handed
	 * over: so only one thread ever flushes a region.
	 */
	return rp_pmem_blocks(g->region->pmem) ? job_batch : &a->inl;
}

static int merge(struct rp_agent *a, struct rp_batch *b,
		 const struct rp_job *job)
{
	int ret = 0;

	for (size_t i = 0; i < job->n && !ret; i++)
		if (job->ranges[i].flush)
			ret = rp_batch_add(batch_of(a, b, &job->ranges[i]),
					   &job->ranges[i]);
	/* Stored by whoever runs the job, so flushed by it as well. */
	if (!ret && job->then.region && job->then.flush)
		ret = rp_batch_add_then(b, job);
	return ret;
}

/* Fail the job if a flush since it was checked has failed. */
static void check_failed(struct rp_job *job)
{
	for (size_t i = 0; i < job->n; i++)
		if (job->ranges[i].region->failed)
			rp_job_fail(job, RP_ST_REGION_FAILED,
				    job->ranges[i].region->failed, i);
	if (job->then.region && job->then.region->failed)
		rp_job_fail(job, RP_ST_REGION_FAILED, job->then.region->failed,
			    job->n);
}

/* Move what fits from the queue to the batch. */
static bool fill(struct rp_agent *a, struct rp_jobs *queue, struct rp_batch *b)
{
	struct rp_job *job;
	bool any = false;

	while ((job = TAILQ_FIRST(queue)) && rp_batch_has_room(b, job) &&
	       rp_batch_has_room(&a->inl, job)) {
		TAILQ_REMOVE(queue, job, link);
		job->queue = NULL;
		check_failed(job);
		/* What has been stored must not be asked for once more. */
		if (job->reply.status == RP_ST_OK && merge(a, b, job))
			rp_job_fail(job,
				    job->effect == RP_EFFECT_STORE
					    ? RP_ST_FLUSH_FAILED
					    : RP_ST_OVERLOADED,
				    job->effect == RP_EFFECT_STORE ? ENOMEM : 0,
				    0);
		if (job->reply.status == RP_ST_OK) {
			job->batch = b;
			TAILQ_INSERT_TAIL(&b->jobs, job, link);
		} else {
			finish(a, job);
		}
		any = true;
	}
	return any;
}

static void start_far(struct rp_agent *a)
{
	if (TAILQ_EMPTY(&a->far.jobs)) {
		/* Ranges of a job that did not fit into memory whole. */
		rp_batch_reset(&a->far);
		return;
	}
	rp_batch_seal(&a->far);
	if (rp_worker_start(&a->worker)) {
		/* No thread to be had: slow is better than never. */
		rp_batch_run(&a->far);
		settle(a, &a->far);
		return;
	}
	a->far_runs = true;
	rp_worker_submit(&a->worker, &a->far);
}

static bool run_batches(struct rp_agent *a)
{
	bool any = fill(a, &a->quick, &a->inl);

	if (!a->far_runs)
		any |= fill(a, &a->slow, &a->far);
	if (!any)
		return false;

	rp_batch_seal(&a->inl);
	rp_batch_run(&a->inl);
	if (a->far_runs) {
		settle(a, &a->inl);
		return true;
	}
	/* Slow jobs may have had cheap ranges in there. */
	rp_batch_judge(&a->inl, &a->far.jobs);
	settle(a, &a->inl);
	start_far(a);
	return true;
}

int rp_agent_region_add(struct rp_agent *a, struct rp_region *r)
{
	r->failed = 0;
	r->busy = 0;
	return rp_regions_add(&a->regions, r);
}

static void fail_queued(struct rp_agent *a, struct rp_jobs *queue,
			const struct rp_region *r)
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
		finish(a, job);
	}
}

void rp_agent_region_del(struct rp_agent *a, struct rp_region *r)
{
	rp_regions_del(&a->regions, r);
	if (!r->busy)
		return;
	fail_queued(a, &a->quick, r);
	fail_queued(a, &a->slow, r);
	/* What is left is running, and is settled before r may go. */
	if (r->busy)
		collect_far(a, true);
	assert(!r->busy);
}

void rp_agent_drop_xport(struct rp_agent *a, struct rp_xport *x)
{
	rp_agent_drop_strangers(a, x);
	rp_clients_drop_xport(&a->clients, x);
	rp_agent_local_drop(a, x);
}

void rp_agent_quiesce(struct rp_agent *a)
{
	a->quiescing = true;
}

/* True when the client was told that its requests are being worked on. */
static bool sign_of_life(struct rp_agent *a, struct rp_client *c, uint64_t now)
{
	const struct rp_job *oldest = TAILQ_FIRST(&c->jobs);
	struct rp_wire_hdr hdr = rp_agent_hdr(a, c, oldest->token);
	uint8_t msg[RP_WIRE_INJECT];
	int len;

	/* Those that it was due for may have been answered meanwhile. */
	c->progress_at = oldest->since + c->pace;
	if (now < c->progress_at)
		return false;
	c->progress_at = now + c->pace;
	/* What is kept will be a sign of life as well. */
	if (!STAILQ_EMPTY(&c->kept))
		return false;
	hdr.type = RP_MSG_PROGRESS;
	len = rp_wire_put_empty(msg, sizeof(msg), &hdr);
	assert(len > 0);
	rp_client_send(&a->clients, c, msg, len);
	a->stats.progress_sent++;
	return true;
}

static bool send_progress(struct rp_agent *a, uint64_t now)
{
	struct rp_client *c;
	bool any = false;

	if (now < a->progress_at)
		return false;
	a->progress_at = UINT64_MAX;
	TAILQ_FOREACH (c, &a->clients.working, working) {
		if (now >= c->progress_at)
			any |= sign_of_life(a, c, now);
		if (a->progress_at > c->progress_at)
			a->progress_at = c->progress_at;
	}
	return any;
}

bool rp_agent_progress(struct rp_agent *a)
{
	struct rp_xport *x;
	bool any = false;
	uint64_t now;

	/* The usual case, on every look at a completion queue. */
	if (!a->far_runs && !a->clients.held && !a->clients.half_open &&
	    !a->nstrangers && TAILQ_EMPTY(&a->local)) {
		a->welcome = RP_AGENT_WELCOME;
		return false;
	}

	any |= collect_far(a, false);
	any |= run_batches(a);
	any |= rp_agent_welcome(a);
	/* Without clients there is no clock, and nothing to time. */
	if (!a->worker.nwatchers)
		return any;
	x = a->worker.watchers[0].x;
	now = x->ops->now(x);
	any |= rp_clients_resend(&a->clients);
	a->retry_at = now + RETRY_NS;
	any |= send_progress(a, now);
	any |= rp_clients_expire(&a->clients, now);
	return any;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t rp_agent_deadline(const struct rp_agent *a)
{
	const struct rp_clients *t = &a->clients;
	uint64_t due = UINT64_MAX;

	if (!TAILQ_EMPTY(&a->quick) || a->nstrangers ||
	    (!TAILQ_EMPTY(&a->slow) && !a->far_runs))
		return 0;
	if (!TAILQ_EMPTY(&t->sending))
		due = a->retry_at;
	if (!TAILQ_EMPTY(&t->working))
		due = earlier(due, a->progress_at);
	if (t->half_open)
		due = earlier(due, TAILQ_FIRST(&t->half_open_list)->born +
					   RP_CLIENT_HALF_OPEN_NS);
	return due;
}

unsigned int rp_agent_pending(const struct rp_agent *a)
{
	return a->clients.held;
}

void rp_agent_stats(const struct rp_agent *a, struct rp_agent_stats *st)
{
	*st = a->stats;
	st->sessions = a->clients.open;
	st->half_open = a->clients.half_open;
}
