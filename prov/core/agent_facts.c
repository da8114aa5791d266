// SPDX-License-Identifier: BSD-2-Clause
/* Facts of registered regions: find changes, lower the class of a region. */
#include <stdio.h>

#include "core/agent_priv.h"
#include "core/log.h"
#include "core/operator_file.h"

/* Most lookups and weakened regions in one progress call. */
#define MAX_LOOKUPS 4
/* Bytes per job of a whole region's flush: enough for the worker to run it. */
#define CHUNK (4 * RP_JOB_MAX_INLINE)

void rp_agent_facts_add(struct rp_agent *a, struct rp_region *r)
{
	if (!a->watch)
		a->watch_at = rp_agent_now(a) + RP_AGENT_WATCH_NS;
	if (a->host->ops->facts)
		rp_watch_merge(&a->watch, &r->watch);
	rp_watch_free(&r->watch);
}

void rp_agent_facts_del(struct rp_agent *a, struct rp_region *r)
{
	if (a->review == r)
		a->review = r->hh.next;
	if (r->flushing_all)
		TAILQ_REMOVE(&a->flushing_all, r, link);
	r->flushing_all = false;
	if (a->regions.by_key != r || r->hh.next)
		return;
	rp_watch_merge(&r->watch, &a->watch);
	rp_watch_free(&a->review_sources);
}

/* --- one region --- */

/* Do the facts f lead to another choice than r->facts, for any class? */
static bool choices_differ(const struct rp_region *r, const struct rp_facts *f,
			   unsigned int built)
{
	struct rp_choice was, now;

	for (int c = RP_CLASS_NONE; c <= RP_CLASS_POWER; c++) {
		was = rp_method_choose(&r->facts, (enum rp_class)c, built);
		now = rp_method_choose(f, (enum rp_class)c, built);
		if (was.method != now.method || was.class != now.class ||
		    was.refusal != now.refusal ||
		    rp_method_by_agent(&r->facts, was).method !=
			    rp_method_by_agent(f, now).method)
			return true;
	}
	return false;
}

/*
 * Return the weaker of each fact of the region and the one found now: a
 * stronger fact counts only at the next registration.
 */
static struct rp_facts merge_facts(const struct rp_region *r,
				   const struct rp_facts *now)
{
	const unsigned int built = rp_methods_allowed(r->forced);
	struct rp_facts f = r->facts, other;

	rp_facts_weaken(&f, now);
	other = f;
	other.memory = now->memory;
	if (rp_method_best(&other, built).class <
	    rp_method_best(&f, built).class)
		f.memory = now->memory;
	return f;
}

/* Mark jobs that were accepted for the region's former class: they fail. */
static void jobs_mark_weakened(struct rp_jobs *jobs, const struct rp_region *r)
{
	struct rp_job *job;

	TAILQ_FOREACH (job, jobs, link)
		for (size_t i = 0; i < job->n; i++)
			if (job->ranges[i].region == r)
				job->weakened = 1u + r->choice.class;
}

/* May the former method have left bytes in caches that are volatile now? */
static bool must_flush_all(const struct rp_region *r,
			   const struct rp_choice *was, bool shim)
{
	return r->facts.memory == RP_MEM_DAX_SYNC &&
	       r->facts.domain <= RP_DOMAIN_MEMCTRL &&
	       (was->method != RP_METHOD_AGENT_CLWB || (shim && r->forced));
}

static void region_weaken(struct rp_agent *a, struct rp_region *r,
			  const struct rp_facts *facts)
{
	const struct rp_choice was = r->choice;

	r->facts = *facts;
	r->choice = rp_method_best(facts, rp_methods_allowed(r->forced));
	snprintf(r->why, sizeof(r->why), "class was %s, now %s: %.120s; %.100s",
		 rp_class_name(was.class), rp_class_name(r->choice.class),
		 a->change, a->lookup.why);
	r->weakened = ++a->weakenings;
	r->stats->class = r->choice.class;
	r->stats->method = r->choice.method;
	rp_agent_revoke_key(a, r->key);
	jobs_mark_weakened(&a->quick_jobs, r);
	jobs_mark_weakened(&a->slow_jobs, r);
	jobs_mark_weakened(&a->worker_batch.jobs, r);
	if (!must_flush_all(r, &was, a->attr.messages_only))
		return;
	if (!r->flushing_all)
		TAILQ_INSERT_TAIL(&a->flushing_all, r, link);
	r->flushing_all = true;
	r->flushed_to = 0;
}

struct rp_region *rp_agent_next_weakened(struct rp_agent *a, uint64_t *n)
{
	struct rp_region *r, *next = NULL;

	if (*n < a->weakenings)
		for (r = a->regions.by_key; r; r = r->hh.next)
			if (r->weakened > *n &&
			    (!next || r->weakened < next->weakened))
				next = r;
	*n = next ? next->weakened : a->weakenings;
	return next;
}

/* Do the facts of both regions come from the same sources? */
static bool same_sources(const struct rp_facts *a, const struct rp_facts *b)
{
	return a->file.ino && a->file.ino == b->file.ino &&
	       a->file.dev == b->file.dev && a->path == b->path &&
	       a->memory == b->memory && a->fence == b->fence &&
	       a->native == b->native;
}

/* Find the facts of r. False: a->lookup has those of its file already. */
static bool lookup_facts(struct rp_agent *a, struct rp_region *r)
{
	struct rp_agent_lookup *l = &a->lookup;
	int ret;

	if (l->valid && same_sources(&l->old_facts, &r->facts))
		return false;
	l->old_facts = r->facts;
	l->valid = true;
	rp_watch_record(&a->review_sources);
	ret = a->host->ops->facts(a->host, r, &l->found, l->why);
	rp_watch_record(NULL);
	/* Facts that cannot be found are unknown. */
	if (ret)
		l->found = (struct rp_facts){.memory = RP_MEM_UNKNOWN};
	rp_watch_open_failed(-ret);
	a->starved |= rp_watch_starved();
	return true;
}

/*
 * Find the facts of one region, and weaken the region if they lead to another
 * method. Returns the part of MAX_LOOKUPS that this used up.
 */
static int region_review(struct rp_agent *a, struct rp_region *r)
{
	const struct rp_choice was = r->choice;
	struct rp_facts f;
	bool first;

	if (was.class == RP_CLASS_NONE)
		return 0;
	first = lookup_facts(a, r);
	if (a->starved)
		return MAX_LOOKUPS;
	f = merge_facts(r, &a->lookup.found);
	/* The shim's reads show the agent the adapter's bytes no longer. */
	if (a->attr.messages_only && r->facts.fence == RP_YES &&
	    f.fence != RP_YES && f.placement != RP_PLACE_CPU_USER &&
	    f.placement != RP_PLACE_CPU_KERNEL)
		f.limit = RP_LIMIT_NONE;
	/* Peers of the shim are not forced to r->forced. */
	if (!choices_differ(r, &f, rp_methods_allowed(r->forced)) &&
	    !(a->attr.messages_only && choices_differ(r, &f, RP_METHODS_BUILT)))
		return first;
	region_weaken(a, r, &f);
	/* Consecutive regions of one file get one line in the log. */
	if (first)
		rp_log(RP_LOG_WARN,
		       "pool %s: class %s (%s) has become %s (%s): %s; %s; "
		       "register it again after a repair",
		       r->stats->name, rp_class_name(was.class),
		       rp_method_name(was.method),
		       rp_class_name(r->choice.class),
		       rp_method_name(r->choice.method), a->change,
		       a->lookup.why);
	return 1;
}

/* --- all regions --- */

/* Review some regions; after the last one, watch the sources just read. */
static bool review_regions(struct rp_agent *a)
{
	struct rp_region *r;

	for (int n = 0; n < MAX_LOOKUPS && (r = a->review);) {
		a->review = r->hh.next;
		n += region_review(a, r);
	}
	if (a->review && !a->starved)
		return true;
	/* Out of memory or descriptors: compare with the old texts again. */
	if (a->starved)
		rp_watch_free(&a->review_sources);
	else
		rp_watch_free(&a->watch);
	rp_watch_merge(&a->watch, &a->review_sources);
	a->review = NULL;
	a->starved = a->lookup.valid = false;
	return true;
}

/*
 * Compare the sources; start a review if two comparisons in a row find a
 * change, as a file that is being written anew is empty for a moment.
 */
static bool review_is_due(struct rp_agent *a, uint64_t now)
{
	bool changed;

	if (!a->watch || now < a->watch_at)
		return false;
	a->watch_at = now + RP_AGENT_WATCH_NS;
	rp_watch_starved();
	changed = rp_watch_find_change(a->watch, a->change);
	if (rp_watch_starved())
		return false;
	if (changed && a->changed)
		a->review = a->regions.by_key;
	a->changed = changed && !a->changed;
	return a->review;
}

/* --- regions whose CPU caches have become volatile --- */

static void chunk_done(void *arg, enum rp_status st, uint32_t detail)
{
	struct rp_region *r = arg;

	r->chunk_posted = false;
	/* A chunk whose flush ran out of memory is posted again. */
	if (st == RP_ST_OK && r->flushing_all)
		r->flushed_to += CHUNK;
}

static bool flush_next_chunk(struct rp_agent *a, struct rp_region *r)
{
	const struct rp_local chunk = {
		.region = r,
		.off = r->flushed_to,
		.len = r->len - r->flushed_to < CHUNK ? r->len - r->flushed_to
						      : CHUNK,
	};
	int ret;

	if (r->chunk_posted || (!r->flushed_to && a->worker_busy))
		return false;
	if (r->flushed_to >= r->len || r->failed) {
		r->flushing_all = false;
		TAILQ_REMOVE(&a->flushing_all, r, link);
		return true;
	}
	/*
	 * At the first chunk no batch runs (worker_busy), so the worker does
	 * not use the method that is replaced here.
	 */
	ret = r->flushed_to ? 0 : rp_pmem_use_clwb(r->pmem);
	if (!ret)
		ret = rp_agent_local_flush(a, &chunk, 1, chunk_done, r);
	r->chunk_posted = !ret;
	if (ret)
		rp_region_fail(r, -ret);
	return true;
}

bool rp_agent_job_must_wait(const struct rp_job *job)
{
	if (job->done == chunk_done)
		return false;
	for (size_t i = 0; i < job->n; i++)
		if (job->ranges[i].region->flushing_all)
			return true;
	return job->then.region && job->then.region->flushing_all;
}

bool rp_agent_facts_progress(struct rp_agent *a, uint64_t now)
{
	struct rp_region *r, *tmp;
	bool any = false;

	/* The shim reports weakenings before a flush of the whole region. */
	if (a->review || review_is_due(a, now))
		return review_regions(a);
	TAILQ_FOREACH_SAFE(r, &a->flushing_all, link, tmp)
	any |= flush_next_chunk(a, r);
	return any;
}
