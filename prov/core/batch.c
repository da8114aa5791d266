// SPDX-License-Identifier: BSD-2-Clause
/* Merging the ranges of many requests, flushing them, judging the outcome. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/batch.h"
#include "core/log.h"

struct rp_job *rp_job_new(size_t nranges)
{
	struct rp_job *job =
		calloc(1, sizeof(*job) + nranges * sizeof(struct rp_job_range));

	if (job)
		job->n = nranges;
	return job;
}

void rp_job_hold(struct rp_job *job)
{
	for (size_t i = 0; i < job->n; i++)
		job->ranges[i].region->busy++;
}

void rp_job_free(struct rp_job *job)
{
	for (size_t i = 0; i < job->n; i++)
		job->ranges[i].region->busy--;
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

bool rp_job_blocks(const struct rp_job *job)
{
	for (size_t i = 0; i < job->n; i++)
		if (job->ranges[i].flush &&
		    rp_pmem_blocks(job->ranges[i].region->pmem))
			return true;
	return false;
}

int rp_batch_init(struct rp_batch *b)
{
	*b = (struct rp_batch){0};
	TAILQ_INIT(&b->jobs);
	rp_ranges_init(&b->set, 0);
	/* Never more regions than ranges: nothing to fail once it runs. */
	b->parts = calloc(RP_BATCH_RANGES, sizeof(*b->parts));
	return b->parts ? 0 : -ENOMEM;
}

void rp_batch_fini(struct rp_batch *b)
{
	rp_ranges_fini(&b->set);
	free(b->parts);
}

bool rp_batch_has_room(const struct rp_batch *b, const struct rp_job *job)
{
	return b->nranges + job->n <= RP_BATCH_RANGES;
}

int rp_batch_add(struct rp_batch *b, const struct rp_job_range *range)
{
	const struct rp_region *r = range->region;
	uint64_t base = (uintptr_t)r->base;
	uint64_t start = base + range->off, end = start + range->len;

	/* Two ranges of one line or page meet here, so it is flushed once. */
	rp_range_round(&start, &end, rp_pmem_granularity(r->pmem));
	if (start < base)
		start = base;
	if (end > base + r->len)
		end = base + r->len;
	b->nranges++;
	return rp_ranges_insert(&b->set, (uintptr_t)r, start, end - start, 0);
}

void rp_batch_seal(struct rp_batch *b)
{
	struct rp_part *part = NULL;

	for (size_t i = 0; i < b->set.n; i++) {
		struct rp_region *r =
			(struct rp_region *)(uintptr_t)b->set.v[i].space;

		if (!part || part->region != r) {
			part = &b->parts[b->nparts++];
			*part = (struct rp_part){
				.region = r,
				.pmem = r->pmem,
				.first = i,
			};
		}
		part->n++;
	}
}

static void flush_part(struct rp_batch *b, struct rp_part *part)
{
	uint64_t base = (uintptr_t)part->region->base;

	for (size_t i = part->first; i < part->first + part->n; i++) {
		const struct rp_range *g = &b->set.v[i];
		uint64_t len = g->end - g->start;
		int ret = rp_pmem_flush(part->pmem, g->start - base, len);

		if (ret) {
			/* Nothing of this region can be promised any more. */
			part->err = -ret;
			return;
		}
		b->flushes++;
		b->bytes += len;
	}
}

void rp_batch_run(struct rp_batch *b)
{
	/* Everything on its way before anything is waited for. */
	for (size_t i = 0; i < b->nparts; i++)
		flush_part(b, &b->parts[i]);
	for (size_t i = 0; i < b->nparts; i++) {
		if (b->parts[i].err)
			continue;
		rp_pmem_drain(b->parts[i].pmem);
		b->drains++;
	}
}

static void judge_part(const struct rp_part *part, struct rp_jobs *jobs)
{
	struct rp_job *job;

	/* Told once, and the first one stays: it is the cause. */
	if (!part->region->failed) {
		part->region->failed = part->err;
		rp_log(RP_LOG_WARN,
		       "flushing the region of key 0x%llx failed (%s): every "
		       "commit to it fails until it is registered again",
		       (unsigned long long)part->region->key,
		       strerror(part->err));
	}
	TAILQ_FOREACH (job, jobs, link) {
		for (size_t i = 0; i < job->n; i++) {
			if (job->ranges[i].region != part->region ||
			    !job->ranges[i].flush)
				continue;
			rp_job_fail(job, RP_ST_FLUSH_FAILED, part->err, i);
			break;
		}
	}
}

void rp_batch_judge(const struct rp_batch *b, struct rp_jobs *jobs)
{
	for (size_t i = 0; i < b->nparts; i++)
		if (b->parts[i].err)
			judge_part(&b->parts[i], jobs);
}

void rp_batch_reset(struct rp_batch *b)
{
	rp_ranges_reset(&b->set);
	b->nranges = 0;
	b->nparts = 0;
	b->flushes = b->bytes = b->drains = 0;
}
