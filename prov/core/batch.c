// SPDX-License-Identifier: BSD-2-Clause
/* Merge the ranges of many requests, flush them, complete the jobs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/batch.h"
#include "core/log.h"

struct rp_job *rp_job_new(size_t nranges, size_t result_len)
{
	struct rp_job *job =
		calloc(1, sizeof(*job) + nranges * sizeof(struct rp_job_range) +
				  result_len);

	if (job)
		job->n = nranges;
	return job;
}

void rp_job_use_regions(struct rp_job *job)
{
	for (size_t i = 0; i < job->n; i++)
		job->ranges[i].region->busy++;
	if (job->then.region)
		job->then.region->busy++;
}

void rp_job_free(struct rp_job *job)
{
	for (size_t i = 0; i < job->n; i++)
		job->ranges[i].region->busy--;
	if (job->then.region)
		job->then.region->busy--;
	free(job);
}

void rp_job_fail(struct rp_job *job, enum rp_status st, uint32_t detail,
		 size_t range)
{
	if (job->reply.status != RP_ST_OK)
		return;
	job->reply = (struct rp_wire_reply){
		.status = st,
		.range = range,
		.detail = detail,
	};
}

void rp_job_fail_memory(struct rp_job *job)
{
	if (rp_effect_precedes_flush(job->effect))
		rp_job_fail(job, RP_ST_FLUSH_FAILED, ENOMEM, 0);
	else
		rp_job_fail(job, RP_ST_OVERLOADED, 0, 0);
}

static bool flush_is_long(const struct rp_job *job)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < job->n && sum <= RP_JOB_MAX_INLINE; i++)
		if (job->ranges[i].flush)
			sum += job->ranges[i].len;
	return sum > RP_JOB_MAX_INLINE;
}

bool rp_job_blocks(const struct rp_job *job)
{
	const struct rp_job_then *then = &job->then;

	for (size_t i = 0; i < job->n; i++)
		if (job->ranges[i].region->flushing_all ||
		    (job->ranges[i].flush &&
		     rp_pmem_blocks(job->ranges[i].region->pmem)))
			return true;
	if (then->region &&
	    (then->region->flushing_all ||
	     (then->flush && rp_pmem_blocks(then->region->pmem))))
		return true;
	return flush_is_long(job);
}

void rp_job_cancel_store(struct rp_job *job)
{
	struct rp_batch *b = job->batch;

	if (!b)
		return;
	pthread_mutex_lock(&b->store_lock);
	job->store_canceled = true;
	pthread_mutex_unlock(&b->store_lock);
}

static int pass_init(struct rp_pass *pass)
{
	*pass = (struct rp_pass){0};
	rp_ranges_init(&pass->set, 0);
	/* One part per range at most, so that the run never allocates. */
	pass->parts = calloc(RP_BATCH_RANGES, sizeof(*pass->parts));
	return pass->parts ? 0 : -ENOMEM;
}

static void pass_fini(struct rp_pass *pass)
{
	rp_ranges_fini(&pass->set);
	free(pass->parts);
}

int rp_batch_init(struct rp_batch *b)
{
	int ret = -ENOMEM;

	*b = (struct rp_batch){0};
	TAILQ_INIT(&b->jobs);
	if (pass_init(&b->data))
		return ret;
	if (pass_init(&b->then))
		goto fini_data;
	ret = -pthread_mutex_init(&b->store_lock, NULL);
	if (ret)
		goto fini_then;
	return 0;

fini_then:
	pass_fini(&b->then);
fini_data:
	pass_fini(&b->data);
	return ret;
}

void rp_batch_fini(struct rp_batch *b)
{
	pthread_mutex_destroy(&b->store_lock);
	pass_fini(&b->then);
	pass_fini(&b->data);
}

bool rp_batch_has_room(const struct rp_batch *b, const struct rp_job *job)
{
	return b->nranges + job->n + !!job->then.region <= RP_BATCH_RANGES;
}

static int pass_add(struct rp_pass *pass, const struct rp_region *r,
		    uint64_t off, uint64_t len)
{
	uint64_t base = (uintptr_t)r->base;
	uint64_t start = base + off, end = start + len;

	/* Round, so that ranges in one line or page merge into one flush. */
	rp_range_round(&start, &end, rp_pmem_granularity(r->pmem));
	if (start < base)
		start = base;
	if (end > base + r->len)
		end = base + r->len;
	return rp_ranges_insert(&pass->set, (uintptr_t)r, start, end - start,
				0);
}

int rp_batch_add(struct rp_batch *b, const struct rp_job_range *range)
{
	b->nranges++;
	return pass_add(&b->data, range->region, range->off, range->len);
}

int rp_batch_add_then(struct rp_batch *b, const struct rp_job *job)
{
	b->nranges++;
	return pass_add(&b->then, job->then.region, job->then.off,
			sizeof(job->then.value));
}

int rp_batch_merge(struct rp_batch *cheap, struct rp_batch *b,
		   const struct rp_job *job)
{
	bool all = flush_is_long(job);
	int ret = 0;

	for (size_t i = 0; i < job->n && !ret; i++) {
		const struct rp_job_range *g = &job->ranges[i];

		if (!g->flush)
			continue;
		if (all || rp_pmem_blocks(g->region->pmem))
			ret = rp_batch_add(b, g);
		else
			ret = rp_batch_add(cheap, g);
	}
	/* The thread that runs b executes the store, so it also flushes it. */
	if (!ret && job->then.region && job->then.flush)
		ret = rp_batch_add_then(b, job);
	return ret;
}

static void pass_seal(struct rp_pass *pass)
{
	struct rp_part *part = NULL;

	for (size_t i = 0; i < pass->set.n; i++) {
		struct rp_region *r =
			(struct rp_region *)(uintptr_t)pass->set.v[i].space;

		if (!part || part->region != r) {
			part = &pass->parts[pass->nparts++];
			*part = (struct rp_part){
				.region = r,
				.pmem = r->pmem,
				.first = i,
			};
		}
		part->n++;
	}
}

void rp_batch_seal(struct rp_batch *b)
{
	pass_seal(&b->data);
	pass_seal(&b->then);
}

/* 0, or -errno: then the caller must fail the region. */
static int flush_ranges(struct rp_batch *b, const struct rp_part *part,
			const struct rp_range *v)
{
	uint64_t base = (uintptr_t)part->region->base;
	uint64_t len = v[part->n - 1].end - v[0].start;

	if (rp_pmem_prefers_span(part->pmem, part->n)) {
		b->flushes++;
		b->bytes += len;
		return rp_pmem_flush_span(part->pmem, v[0].start - base, len,
					  part->n);
	}
	for (size_t i = 0; i < part->n; i++) {
		int ret;

		len = v[i].end - v[i].start;
		ret = rp_pmem_flush(part->pmem, v[i].start - base, len);
		if (ret)
			return ret;
		b->flushes++;
		b->bytes += len;
	}
	return 0;
}

static void flush_part(struct rp_batch *b, const struct rp_pass *pass,
		       struct rp_part *part)
{
	const struct rp_range *v = &pass->set.v[part->first];
	const uint64_t base = (uintptr_t)part->region->base;
	const uint64_t start = rp_stats_now();

	if (part->err)
		return;
	part->err = -flush_ranges(b, part, v);
	rp_pmem_count_time(part->pmem, start);
	for (size_t i = 0; i < part->n && !part->err; i++)
		rp_pmem_split_folios(part->pmem, v[i].start - base,
				     v[i].end - v[i].start);
}

static void run_pass(struct rp_batch *b, struct rp_pass *pass)
{
	/* Start every flush before the first drain. */
	for (size_t i = 0; i < pass->nparts; i++)
		flush_part(b, pass, &pass->parts[i]);
	for (size_t i = 0; i < pass->nparts; i++) {
		const uint64_t start = rp_stats_now();

		if (pass->parts[i].err)
			continue;
		rp_pmem_drain(pass->parts[i].pmem);
		rp_pmem_count_time(pass->parts[i].pmem, start);
		b->drains++;
	}
}

static struct rp_part *find_part(const struct rp_pass *pass,
				 const struct rp_region *r)
{
	for (size_t i = 0; i < pass->nparts; i++)
		if (pass->parts[i].region == r)
			return &pass->parts[i];
	return NULL;
}

/* Positive errno of the region's part; 0: success, or it has no part. */
static int part_err(const struct rp_pass *pass, const struct rp_region *r)
{
	const struct rp_part *part = find_part(pass, r);

	return part ? part->err : 0;
}

/*
 * Populate the page of an ordered store. After a failure the page may be gone,
 * as its file was truncated: msync would report that, but clwb would fault, so
 * set part->err. A read-only page (EACCES) may be flushed.
 */
static int pages_populate(struct rp_batch *b, const struct rp_job_then *t)
{
	struct rp_part *part = find_part(&b->then, t->region);
	int err = -rp_pmem_populate(t->region->pmem, t->off, sizeof(t->value));

	if (err && err != EACCES && part && !rp_pmem_blocks(part->pmem))
		part->err = err;
	return err;
}

/* Execute the ordered store of one job, if its ranges are durable. */
static void store_execute(struct rp_batch *b, struct rp_job *job)
{
	struct rp_job_then *t = &job->then;

	if (!t->region || job->reply.status != RP_ST_OK)
		return;
	for (size_t i = 0; i < job->n && !t->err; i++)
		if (job->ranges[i].flush)
			t->err = part_err(&b->data, job->ranges[i].region);
	/* Do not store to a region whose flush has failed. */
	if (!t->err)
		t->err = part_err(&b->data, t->region);
	/* Populating pages may block, so it precedes the lock. */
	if (!t->err)
		t->err = pages_populate(b, t);
	if (t->err)
		return;
	pthread_mutex_lock(&b->store_lock);
	if (!job->store_canceled)
		rp_pmem_store8(t->region->pmem, t->off, t->value);
	pthread_mutex_unlock(&b->store_lock);
}

void rp_batch_run(struct rp_batch *b)
{
	struct rp_job *job;

	run_pass(b, &b->data);
	TAILQ_FOREACH (job, &b->jobs, link)
		store_execute(b, job);
	run_pass(b, &b->then);
}

void rp_region_fail(struct rp_region *r, int err)
{
	/* Keep the first error: it is the cause and was logged. */
	if (r->failed)
		return;
	r->failed = err;
	rp_stats_add(&rp_stats->failed_regions, 1);
	if (r->stats)
		r->stats->failed = (uint64_t)err;
	rp_log(RP_LOG_WARN,
	       "flushing a region of %llu bytes failed (%s): every commit to "
	       "it fails until it is registered again",
	       (unsigned long long)r->len, strerror(err));
}

static void part_complete(const struct rp_part *part, struct rp_jobs *jobs)
{
	struct rp_job *job;

	rp_region_fail(part->region, part->err);
	TAILQ_FOREACH (job, jobs, link) {
		for (size_t i = 0; i < job->n; i++) {
			if (job->ranges[i].region != part->region ||
			    !job->ranges[i].flush)
				continue;
			rp_job_fail(job, RP_ST_FLUSH_FAILED, part->err, i);
			break;
		}
		if (job->then.region == part->region)
			rp_job_fail(job, RP_ST_FLUSH_FAILED, part->err, job->n);
	}
}

static void pass_complete(const struct rp_pass *pass, struct rp_jobs *jobs)
{
	for (size_t i = 0; i < pass->nparts; i++)
		if (pass->parts[i].err)
			part_complete(&pass->parts[i], jobs);
}

void rp_batch_complete(const struct rp_batch *b, struct rp_jobs *jobs)
{
	struct rp_job *job;

	pass_complete(&b->data, jobs);
	pass_complete(&b->then, jobs);
	TAILQ_FOREACH (job, jobs, link)
		if (job->then.err)
			rp_job_fail(job,
				    job->then.err == EACCES
					    ? RP_ST_ACCESS
					    : RP_ST_FLUSH_FAILED,
				    job->then.err, job->n);
}

static void pass_reset(struct rp_pass *pass)
{
	rp_ranges_reset(&pass->set);
	pass->nparts = 0;
}

void rp_batch_reset(struct rp_batch *b)
{
	pass_reset(&b->data);
	pass_reset(&b->then);
	b->nranges = 0;
	b->flushes = b->bytes = b->drains = 0;
}
