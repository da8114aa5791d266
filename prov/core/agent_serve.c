// SPDX-License-Identifier: BSD-2-Clause
/* The agent's part of each message: check it, execute it, reply or queue it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/agent_priv.h"
#include "core/atomic.h"

/* Must a commit of this class flush? Updates class and method of the reply. */
static bool needs_flush(const struct rp_region *r, enum rp_class required,
			struct rp_wire_reply *reply)
{
	struct rp_choice choice = rp_method_by_agent(&r->facts, r->choice);

	if (required < choice.class) {
		/* For a weaker class placement alone may be enough. */
		struct rp_choice less = rp_method_choose(
			&r->facts, required, rp_methods_allowed(r->forced));

		if (less.method == RP_METHOD_DELIVERY)
			choice = less;
	}
	if (reply->class > choice.class)
		reply->class = choice.class;
	if (reply->method < choice.method)
		reply->method = choice.method;
	return choice.method != RP_METHOD_DELIVERY;
}

/* Find the session's grant of the key: without one the key is not valid. */
static struct rp_agent_grant *grant_find(struct rp_agent_session *s,
					 uint64_t key, enum rp_status *st)
{
	struct rp_agent *a = s->agent;
	struct rp_agent_grant *g = rp_agent_grant_find(s, key);
	struct rp_region *r;

	*st = RP_ST_STALE_KEY;
	if (g || !a->attr.messages_only)
		return g;
	/* A messages_only session needs no earlier grant. */
	r = rp_regions_find(&a->regions, key, st);
	if (r)
		*st = rp_agent_grant_get(s, r, &g);
	return g;
}

static struct rp_region *
check_key_range(struct rp_agent_session *s, const struct rp_wire_request *m,
		const struct rp_wire_range *w, uint64_t *off,
		struct rp_wire_reply *reply, enum rp_status *st)
{
	struct rp_agent_grant *g = grant_find(s, w->key, st);

	if (!g)
		return NULL;
	*st = rp_region_check(g->region, w->addr, w->len,
			      m->level == RP_LEVEL_DURABLE, m->required, off);
	if (*st == RP_ST_CLASS)
		reply->detail = g->region->choice.class;
	if (*st == RP_ST_REGION_FAILED)
		reply->detail = g->region->failed;
	return *st == RP_ST_OK ? g->region : NULL;
}

static enum rp_status check_then(struct rp_agent_session *s,
				 const struct rp_wire_request *m,
				 struct rp_job *job)
{
	const struct rp_wire_range w = {
		.key = m->then.key,
		.addr = m->then.addr,
		.len = sizeof(m->then.value),
	};
	struct rp_wire_reply *reply = &job->reply;
	struct rp_job_then *t = &job->then;
	enum rp_status st;
	struct rp_region *r = check_key_range(s, m, &w, &t->off, reply, &st);

	if (!r)
		return st;
	if (!r->writable)
		return RP_ST_ACCESS;
	/* The CPU stores 8 bytes atomically at a local multiple of 8 only. */
	if (((uintptr_t)r->base + t->off) % sizeof(m->then.value))
		return RP_ST_ALIGN;
	t->region = r;
	t->value = m->then.value;
	t->flush = needs_flush(r, m->required, reply);
	return RP_ST_OK;
}

/* Check the alignment and the write access that the request's effect needs. */
static enum rp_status check_effect(const struct rp_wire_request *m,
				   const struct rp_job_range *g, size_t unit)
{
	const struct rp_region *r = g->region;

	if (m->effect == RP_EFFECT_NONE || m->effect == RP_EFFECT_THEN)
		return RP_ST_OK;
	if (((uintptr_t)r->base + g->off) % unit)
		return RP_ST_ALIGN;
	if (m->effect == RP_EFFECT_ATOMIC && m->atomic.op == RP_ATOMIC_READ)
		return RP_ST_OK;
	/* NOTIFY reports a write, so it needs the same permission. */
	return r->writable ? RP_ST_OK : RP_ST_ACCESS;
}

static enum rp_status check_range(struct rp_agent_session *s,
				  const struct rp_wire_request *m,
				  struct rp_job *job, size_t i, size_t unit)
{
	const struct rp_wire_range *w = &m->decoded[i];
	struct rp_job_range *g = &job->ranges[i];
	enum rp_status st;

	/* Check the region once for consecutive ranges with the same key. */
	if (i && w->key == w[-1].key) {
		g->region = g[-1].region;
		g->flush = g[-1].flush;
		st = rp_region_check_range(g->region, w->addr, w->len, &g->off);
		if (st != RP_ST_OK)
			return st;
	} else {
		g->region = check_key_range(s, m, w, &g->off, &job->reply, &st);
		if (!g->region)
			return st;
		g->flush = m->level == RP_LEVEL_DURABLE &&
			   needs_flush(g->region, m->required, &job->reply);
	}
	g->len = w->len;
	return check_effect(m, g, unit);
}

/* Check the whole request before any part of it is executed. */
static enum rp_status check_request(struct rp_agent_session *s,
				    const struct rp_wire_request *m,
				    struct rp_job *job)
{
	bool durable = m->level == RP_LEVEL_DURABLE;
	struct rp_wire_reply *reply = &job->reply;
	enum rp_status st = RP_ST_OK;
	size_t i = 0, unit = 1;

	*reply = (struct rp_wire_reply){
		.level = m->level,
		.class = durable ? RP_CLASS_POWER : RP_CLASS_NONE,
		.method = RP_METHOD_DELIVERY,
	};
	/* The decoder has checked op and datatype; this gets the size. */
	if (m->effect == RP_EFFECT_ATOMIC)
		rp_atomic_valid(m->atomic.op, m->atomic.datatype, &unit);
	for (; st == RP_ST_OK && i < m->nranges; i++)
		st = check_range(s, m, job, i, unit);
	if (st == RP_ST_OK && m->effect == RP_EFFECT_THEN)
		st = check_then(s, m, job);
	else if (st != RP_ST_OK && i)
		i--;
	if (st != RP_ST_OK)
		rp_job_fail(job, st, reply->detail, i);
	return st;
}

/* Does [off, off+len) of the region overlap the job's ordered store? */
static bool overlaps_then(const struct rp_job *job, const struct rp_region *r,
			  uint64_t off, uint64_t len)
{
	const struct rp_job_then *t = &job->then;

	return t->region == r && off < t->off + sizeof(t->value) &&
	       t->off < off + len;
}

/*
 * Stores of one session to the same bytes keep their order: a later store waits
 * for an ordered store whose ranges are still being flushed.
 */
static bool store_must_wait(const struct rp_agent_session *s,
			    const struct rp_job *job)
{
	const struct rp_job_then *t = &job->then;
	const struct rp_job *old;

	if (!rp_effect_precedes_flush(job->effect) &&
	    job->effect != RP_EFFECT_THEN)
		return false;
	TAILQ_FOREACH (old, &s->jobs, owner_link) {
		if (!old->then.region)
			continue;
		if (t->region &&
		    overlaps_then(old, t->region, t->off, sizeof(t->value)))
			return true;
		for (size_t i = 0; !t->region && i < job->n; i++)
			if (overlaps_then(old, job->ranges[i].region,
					  job->ranges[i].off,
					  job->ranges[i].len))
				return true;
	}
	return false;
}

/*
 * Execute a STORE, ZERO or ATOMIC when its message is received, so that no
 * later operation of the peer is visible first. The commit flushes the bytes.
 * False: the job has failed.
 */
static bool execute_effect(const struct rp_wire_request *m, struct rp_job *job,
			   char *result)
{
	/* Never written, so all its pages are the kernel's zero page. */
	static char zeros[RP_WIRE_MAX_ZERO];
	const char *bytes = m->effect == RP_EFFECT_STORE  ? m->bytes
			    : m->effect == RP_EFFECT_ZERO ? zeros
							  : m->atomic.operand;
	const char *compare = m->atomic.compare;
	bool durable;
	int ret = 0;

	if (!rp_effect_precedes_flush(m->effect))
		return true;
	for (size_t i = 0; i < job->n; i++) {
		struct rp_job_range *g = &job->ranges[i];
		struct rp_pmem *pm = g->region->pmem;

		if (m->effect == RP_EFFECT_ATOMIC) {
			ret = rp_pmem_atomic(pm, g->off, g->len, m->atomic.op,
					     m->atomic.datatype, bytes, compare,
					     result);
		} else if (g->flush) {
			ret = rp_pmem_store(pm, g->off, bytes, g->len,
					    &durable);
			g->flush = ret || !durable;
		} else {
			ret = rp_pmem_place(pm, g->off, bytes, g->len);
		}
		if (ret) {
			rp_job_fail(job,
				    ret == -EACCES ? RP_ST_ACCESS
						   : RP_ST_FLUSH_FAILED,
				    (uint32_t)-ret, i);
			return false;
		}
		bytes = bytes ? bytes + g->len : NULL;
		compare = compare ? compare + g->len : NULL;
		result = result ? result + g->len : NULL;
	}
	return true;
}

/*
 * Are all ranges in one region, ascending, without a shared cache line? If so,
 * a batch would merge nothing.
 */
static bool ranges_are_separate(const struct rp_job *job)
{
	const struct rp_job_range *g = job->ranges;

	for (size_t i = 1; i < job->n; i++)
		if (g[i].region != g->region || !g[i].flush ||
		    g[i].off / RP_CACHE_LINE <=
			    (g[i - 1].off + g[i - 1].len - 1) / RP_CACHE_LINE)
			return false;
	return g->flush && !job->then.region;
}

/* Flush the ranges of a job one by one, without a batch. */
static void flush_ranges(struct rp_agent *a, struct rp_job *job)
{
	struct rp_region *r = job->ranges->region;
	const uint64_t start = rp_stats_now();
	int ret;

	for (size_t i = 0; i < job->n; i++) {
		const struct rp_job_range *g = &job->ranges[i];

		ret = rp_pmem_flush(r->pmem, g->off, g->len);
		if (ret) {
			rp_region_fail(r, -ret);
			rp_job_fail(job, RP_ST_FLUSH_FAILED, (uint32_t)-ret, i);
			return;
		}
		a->stats.flushes++;
		a->stats.flushed_bytes += g->len;
	}
	rp_pmem_drain(r->pmem);
	rp_pmem_count_time(r->pmem, start);
	a->stats.drains++;
}

/* Flush ranges that do not block, then execute the ordered store. */
static void flush_now(struct rp_agent *a, struct rp_job *job)
{
	struct rp_batch *b = &a->inline_batch;
	bool work = job->then.region;

	for (size_t i = 0; i < job->n; i++)
		work |= job->ranges[i].flush;
	if (!work)
		return;
	if (ranges_are_separate(job)) {
		flush_ranges(a, job);
		return;
	}
	if (rp_batch_merge(b, b, job)) {
		rp_job_fail_memory(job);
	} else {
		TAILQ_INSERT_TAIL(&b->jobs, job, link);
		job->batch = b;
		rp_batch_seal(b);
		rp_batch_run(b);
		rp_batch_complete(b, &b->jobs);
		TAILQ_REMOVE(&b->jobs, job, link);
		rp_agent_count(a, b);
	}
	rp_batch_reset(b);
}

/* Report the completion to the program before the reply goes to the peer. */
static void deliver_notification(struct rp_agent_session *s, struct rp_job *job)
{
	struct rp_agent_host *h = s->agent->host;
	const struct rp_job_range *g = &job->ranges[0];
	size_t len = 0;
	int ret = -ENOSYS;

	for (size_t i = 0; i < job->n; i++)
		len += job->ranges[i].len;
	if (h->ops->notify)
		ret = h->ops->notify(h, s->channel, s->port, job->endpoint,
				     job->data,
				     (char *)g->region->base + g->off, len);
	if (ret)
		rp_job_fail(job,
			    ret == -ENOSYS ? RP_ST_UNSUPPORTED
					   : RP_ST_OVERLOADED,
			    0, 0);
}

static void count_commit(const struct rp_job *job)
{
	const struct rp_job_range *g = job->ranges;

	if (job->reply.status != RP_ST_OK ||
	    job->reply.level != RP_LEVEL_DURABLE || !job->n)
		return;
	rp_stats_time_add(&g->region->stats->commits,
			  rp_stats_ticks_since(&job->start));
	for (size_t n = job->n; n; n--, g++)
		rp_stats_add(&g->region->stats->bytes, g->len);
}

void rp_agent_job_complete(struct rp_agent_session *s, struct rp_job *job)
{
	struct rp_agent *a = s->agent;

	if (job->effect == RP_EFFECT_NOTIFY && job->reply.status == RP_ST_OK)
		deliver_notification(s, job);
	a->stats.effects += job->effect && job->reply.status == RP_ST_OK;
	a->stats.replies++;
	count_commit(job);
	rp_agent_send_reply(s, job->token, &job->reply);
}

static void refuse_request(struct rp_agent_session *s, uint64_t token,
			   enum rp_status st)
{
	const struct rp_wire_reply reply = {.status = st};

	s->agent->stats.refused++;
	rp_agent_send_reply(s, token, &reply);
}

/* Copy a->job, which the next request reuses, for a job that is queued. */
static struct rp_job *job_copy(const struct rp_job *from, size_t result_len)
{
	struct rp_job *job = rp_job_new(from->n, result_len);

	if (job)
		memcpy(job, from,
		       sizeof(*job) + from->n * sizeof(job->ranges[0]));
	return job;
}

static void queue_job(struct rp_agent_session *s, struct rp_job *job)
{
	struct rp_agent *a = s->agent;

	rp_job_use_regions(job);
	rp_agent_session_add_job(s, job);
	job->queue = a->attr.no_worker ? &a->quick_jobs : &a->slow_jobs;
	TAILQ_INSERT_TAIL(job->queue, job, link);
}

/* Length of the old values in the reply to an atomic. */
static size_t result_len(const struct rp_wire_request *m,
			 const struct rp_job *job)
{
	size_t len = 0;

	if (m->effect == RP_EFFECT_ATOMIC && m->atomic.fetch)
		for (size_t i = 0; i < job->n; i++)
			len += job->ranges[i].len;
	return len;
}

static void request_execute(struct rp_agent_session *s,
			    const struct rp_wire_request *m)
{
	struct rp_agent *a = s->agent;
	struct rp_job *job = a->job, *copy = NULL;
	const size_t fetched = result_len(m, job);
	bool blocks = rp_job_blocks(job);
	void *result = a->result;

	if (blocks) {
		if (a->backlog < a->attr.max_jobs)
			copy = job_copy(job, fetched);
		if (!copy) {
			refuse_request(s, job->token, RP_ST_OVERLOADED);
			return;
		}
		job = copy;
		result = rp_job_result(job);
	}
	a->stats.requests++;
	rp_stats_add(&rp_stats->requests, 1);
	a->stats.ranges += m->nranges;
	if (fetched) {
		job->reply.result = result;
		job->reply.result_len = (uint32_t)fetched;
	}
	if (execute_effect(m, job, fetched ? result : NULL) && blocks) {
		queue_job(s, job);
		return;
	}
	if (job->reply.status == RP_ST_OK)
		flush_now(a, job);
	rp_agent_job_complete(s, job);
	if (blocks)
		free(job);
}

/* False: the request waits behind a job. */
static bool serve_request(struct rp_agent_session *s,
			  const struct rp_wire_hdr *hdr,
			  const struct rp_wire_request *m, uint64_t start)
{
	struct rp_agent *a = s->agent;
	const bool full = a->backlog >= a->attr.max_jobs;
	struct rp_job *job = a->job;
	enum rp_status st;

	if (a->quiescing || (full && !STAILQ_EMPTY(&s->stalled))) {
		refuse_request(s, hdr->token, RP_ST_OVERLOADED);
		return true;
	}
	*job = (struct rp_job){
		.token = hdr->token,
		.start = start,
		.effect = (enum rp_effect)m->effect,
		.data = m->data,
		.endpoint = m->endpoint,
		.n = m->nranges,
	};
	st = check_request(s, m, job);
	if (st == RP_ST_STALE_KEY) {
		rp_agent_session_refuse(s, hdr);
	} else if (st != RP_ST_OK) {
		a->stats.refused++;
		rp_agent_send_reply(s, hdr->token, &job->reply);
	} else if (store_must_wait(s, job)) {
		if (!full)
			return false;
		refuse_request(s, hdr->token, RP_ST_OVERLOADED);
	} else {
		request_execute(s, m);
	}
	return true;
}

static enum rp_status refusal_status(enum rp_refusal r)
{
	switch (r) {
	case RP_REFUSAL_VOLATILE:
		return RP_ST_VOLATILE;
	case RP_REFUSAL_CLASS:
		return RP_ST_CLASS;
	default:
		return RP_ST_NO_METHOD;
	}
}

/* Describe a commit of this class; the caller fills in m->grant. */
static void describe_commit(const struct rp_agent_session *s,
			    const struct rp_region *r, enum rp_class required,
			    struct rp_wire_info *m)
{
	struct rp_choice choice = rp_method_choose(
		&r->facts, required, rp_methods_allowed(r->forced));
	const char *why = r->why;

	*m = (struct rp_wire_info){
		/* The strongest class, but the method of the required class. */
		.class = r->choice.class,
		.method = rp_agent_session_method(s, r, choice),
		.refusal = choice.refusal,
		.memory = r->facts.memory,
		.placement = r->facts.placement,
		.domain = r->facts.domain,
		.granularity = rp_pmem_granularity(r->pmem),
	};
	if (choice.method == RP_METHOD_REFUSED) {
		m->status = refusal_status(choice.refusal);
		if (!r->weakened)
			why = choice.remedy;
	} else if (r->failed) {
		m->status = RP_ST_REGION_FAILED;
		why = rp_status_remedy(m->status);
	}
	m->preferred_size = m->preferred_align = m->granularity;
	snprintf(m->why, sizeof(m->why), "%s", why);
}

static void serve_query(struct rp_agent_session *s,
			const struct rp_wire_hdr *hdr,
			const struct rp_wire_query *m)
{
	struct rp_agent *a = s->agent;
	struct rp_agent_grant *g;
	struct rp_wire_info info;
	enum rp_status st;
	struct rp_region *r = rp_regions_find(&a->regions, m->key, &st);

	if (!r) {
		rp_agent_session_refuse(s, hdr);
		return;
	}
	describe_commit(s, r, m->required, &info);
	/* Grant the key even if commits are refused: for writes and reads. */
	st = rp_agent_grant_get(s, r, &g);
	if (st == RP_ST_OK)
		info.grant = g->wire;
	else if (info.status == RP_ST_OK)
		info = (struct rp_wire_info){.status = st};
	rp_agent_send_info(s, hdr->token, &info);
}

bool rp_agent_serve(struct rp_agent_session *s, const void *msg, size_t len)
{
	struct rp_wire_request m = {.decoded = s->agent->ranges};
	const uint64_t start = rp_stats_now();
	struct rp_wire_query q;
	struct rp_wire_hdr hdr;

	if (!rp_wire_get_hdr(msg, len, &hdr)) {
		if (!rp_wire_get_request(msg, &hdr, &m))
			return serve_request(s, &hdr, &m, start);
		if (!rp_wire_get_query(msg, &hdr, &q)) {
			serve_query(s, &hdr, &q);
			return true;
		}
	}
	s->agent->stats.bad_messages++;
	rp_agent_session_close_later(s);
	return true;
}
