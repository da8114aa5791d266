// SPDX-License-Identifier: BSD-2-Clause
/* Sessions at the target: grants, replies, heartbeats, their end. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/agent_priv.h"
#include "core/fault.h"

#define NS_PER_MS 1000000ull

static uint64_t earlier_time(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* --- grants --- */

/*
 * The method by which the agent alone carries out the choice. AGENT_SFENCE
 * replaces DELIVERY, so that the agent's reply confirms placement.
 */
static enum rp_method agent_method(const struct rp_region *r,
				   struct rp_choice choice)
{
	enum rp_method m = rp_method_by_agent(&r->facts, choice).method;

	return m == RP_METHOD_DELIVERY ? RP_METHOD_AGENT_SFENCE : m;
}

enum rp_method rp_agent_session_method(const struct rp_agent_session *s,
				       const struct rp_region *r,
				       struct rp_choice choice)
{
	const enum rp_placement p = r->facts.placement;
	enum rp_method m = choice.method;

	/*
	 * A NIC acknowledges a write while it still buffers the bytes: a later
	 * CPU store to them may reach memory first. A read fence pushes the
	 * write out.
	 */
	if (m == RP_METHOD_DELIVERY && p != RP_PLACE_CPU_USER &&
	    p != RP_PLACE_CPU_KERNEL)
		m = RP_METHOD_FENCE;
	/* With DELIVERY, too, a commit of earlier writes needs a read fence. */
	if (r->unreadable && (m == RP_METHOD_DELIVERY || m == RP_METHOD_FENCE))
		return agent_method(r, choice);
	/* Only the agent can delay or refuse commits to such a region. */
	if (r->flushing_all || r->failed)
		return agent_method(r, choice);
	if ((m == RP_METHOD_NATIVE && !(s->flags & RP_CHANNEL_FLUSHES)) ||
	    (m == RP_METHOD_FENCE &&
	     (!(s->flags & RP_CHANNEL_FENCES) || r->facts.fence != RP_YES)))
		return agent_method(r, choice);
	return m;
}

struct rp_agent_grant *rp_agent_grant_find(struct rp_agent_session *s,
					   uint64_t key)
{
	struct rp_agent_grant *g = s->last_grant;

	if (g && g->key == key)
		return g;
	HASH_FIND(hh, s->grants, &key, sizeof(key), g);
	if (g)
		s->last_grant = g;
	return g;
}

static int host_grant(struct rp_agent_session *s, const struct rp_region *r,
		      struct rp_agent_grant *g)
{
	struct rp_agent_host *h = s->agent->host;
	int ret;

	g->wire = (struct rp_wire_grant){
		.addr = r->addr,
		.length = r->len,
		.class = (uint8_t)r->choice.class,
		.method = (uint8_t)rp_agent_session_method(s, r, r->choice),
		.writable = r->writable,
		.unreadable = r->unreadable,
	};
	if (s->agent->attr.messages_only)
		return 0;
	ret = h->ops->grant(h, s->channel, r, &g->wire, &g->handle);
	/* The device has FLUSH, but not for this memory. */
	if (ret == -EOPNOTSUPP && g->wire.method == RP_METHOD_NATIVE) {
		g->wire.method = (uint8_t)agent_method(r, r->choice);
		ret = h->ops->grant(h, s->channel, r, &g->wire, &g->handle);
	}
	return ret;
}

static void host_revoke(struct rp_agent_session *s, struct rp_agent_grant *g)
{
	struct rp_agent_host *h = s->agent->host;

	if (!s->agent->attr.messages_only)
		h->ops->revoke(h, g->handle);
}

enum rp_status rp_agent_grant_get(struct rp_agent_session *s,
				  struct rp_region *r,
				  struct rp_agent_grant **out)
{
	struct rp_agent_grant *g = rp_agent_grant_find(s, r->key);
	bool oom = false;

	if (g)
		goto out;
	g = calloc(1, sizeof(*g));
	if (!g)
		return RP_ST_OVERLOADED;
	g->key = r->key;
	g->region = r;
	if (host_grant(s, r, g))
		goto free;
	HASH_ADD(hh, s->grants, key, sizeof(g->key), g);
	if (oom)
		goto revoke;
	s->last_grant = g;
out:
	*out = g;
	return RP_ST_OK;

revoke:
	host_revoke(s, g);
free:
	free(g);
	return RP_ST_OVERLOADED;
}

static void grant_free(struct rp_agent_session *s, struct rp_agent_grant *g)
{
	if (s->last_grant == g)
		s->last_grant = NULL;
	HASH_DEL(s->grants, g);
	host_revoke(s, g);
	free(g);
}

static void grants_free(struct rp_agent_session *s)
{
	struct rp_agent_grant *g, *tmp;

	HASH_ITER(hh, s->grants, g, tmp)
	grant_free(s, g);
}

/* --- outstanding work of a session --- */

static void backlog_add(struct rp_agent_session *s)
{
	s->backlog++;
	s->agent->backlog++;
}

static void backlog_remove(struct rp_agent_session *s)
{
	s->backlog--;
	s->agent->backlog--;
}

void rp_agent_session_add_job(struct rp_agent_session *s, struct rp_job *job)
{
	struct rp_agent *a = s->agent;

	job->since = rp_agent_now(a);
	if (TAILQ_EMPTY(&a->working))
		a->progress_at = UINT64_MAX;
	if (TAILQ_EMPTY(&s->jobs)) {
		TAILQ_INSERT_TAIL(&a->working, s, working);
		s->progress_at = job->since + s->progress_period;
	}
	a->progress_at = earlier_time(a->progress_at, s->progress_at);
	job->session = s;
	TAILQ_INSERT_TAIL(&s->jobs, job, owner_link);
	rp_stats_add(&rp_stats->jobs, 1);
	backlog_add(s);
}

void rp_agent_session_del_job(struct rp_job *job)
{
	struct rp_agent_session *s = job->session;

	TAILQ_REMOVE(&s->jobs, job, owner_link);
	if (TAILQ_EMPTY(&s->jobs))
		TAILQ_REMOVE(&s->agent->working, s, working);
	s->agent->job_ended = true;
	rp_stats_add(&rp_stats->jobs, -1ull);
	backlog_remove(s);
}

/* Free queued jobs; detach running ones and cancel their ordered stores. */
static void jobs_drop(struct rp_agent_session *s)
{
	struct rp_job *job;

	while ((job = TAILQ_FIRST(&s->jobs))) {
		rp_agent_session_del_job(job);
		job->session = NULL;
		rp_job_cancel_store(job);
		if (job->queue) {
			TAILQ_REMOVE(job->queue, job, link);
			rp_job_free(job);
		}
	}
}

/* --- messages that wait behind jobs --- */

static void message_stall(struct rp_agent_session *s, const void *msg,
			  size_t len)
{
	struct rp_agent_stalled *m = malloc(sizeof(*m) + len);

	if (!m) {
		rp_agent_session_close_later(s);
		return;
	}
	m->len = len;
	memcpy(m->msg, msg, len);
	STAILQ_INSERT_TAIL(&s->stalled, m, link);
	s->agent->nstalled++;
	backlog_add(s);
}

static struct rp_agent_stalled *stalled_pop(struct rp_agent_session *s)
{
	struct rp_agent_stalled *m = STAILQ_FIRST(&s->stalled);

	if (m) {
		STAILQ_REMOVE_HEAD(&s->stalled, link);
		s->agent->nstalled--;
		backlog_remove(s);
	}
	return m;
}

/* Serve stalled messages that need not wait any longer. True: served some. */
static bool session_resume(struct rp_agent_session *s)
{
	struct rp_agent_stalled *m;
	bool any = false;

	while ((m = stalled_pop(s))) {
		if (!rp_agent_serve(s, m->msg, m->len)) {
			STAILQ_INSERT_HEAD(&s->stalled, m, link);
			s->agent->nstalled++;
			backlog_add(s);
			break;
		}
		free(m);
		any = true;
	}
	return any;
}

/* --- sending --- */

/* err is not used: the channel reports a lost connection by lost(). */
static void send_done(struct rp_channel_op *op, int err)
{
	struct rp_agent_send *k = (struct rp_agent_send *)op;

	k->session->agent->backlog--;
	free(k);
}

static bool post(struct rp_agent_session *s, struct rp_channel_op *op)
{
	return rp_channel_post(s->channel, &op, 1) == 1;
}

/* Post kept replies, in order. True: posted some. */
static bool send_kept(struct rp_agent_session *s)
{
	struct rp_agent_send *k;
	bool any = false;

	while ((k = TAILQ_FIRST(&s->kept)) && post(s, &k->op)) {
		TAILQ_REMOVE(&s->kept, k, link);
		/* A posted reply belongs to the channel until send_done(). */
		s->backlog--;
		if (k->op.inject)
			send_done(&k->op, 0);
		any = true;
	}
	if (TAILQ_EMPTY(&s->kept))
		TAILQ_REMOVE(&s->agent->sending, s, sending);
	return any;
}

static void send_keep(struct rp_agent_session *s, const void *msg, size_t len)
{
	struct rp_agent *a = s->agent;
	bool first = TAILQ_EMPTY(&s->kept);
	struct rp_agent_send *k = NULL;

	/* Bound the memory for replies that the peer does not receive. */
	if (a->backlog < 2 * a->attr.max_jobs)
		k = malloc(sizeof(*k) + len);
	if (!k) {
		rp_agent_session_close_later(s);
		return;
	}
	k->session = s;
	memcpy(k->msg, msg, len);
	k->iov = (struct iovec){k->msg, len};
	k->op = (struct rp_channel_op){
		.done = send_done,
		.kind = RP_CHANNEL_SEND,
		.inject = len <= s->channel->inject,
		.iov_count = 1,
		.iov = &k->iov,
		.length = len,
	};
	backlog_add(s);
	TAILQ_INSERT_TAIL(&s->kept, k, link);
	if (!first)
		return;
	TAILQ_INSERT_TAIL(&a->sending, s, sending);
	if (len > s->channel->inject)
		send_kept(s);
}

void rp_agent_send(struct rp_agent_session *s, const void *msg, size_t len)
{
	struct iovec iov = {(void *)msg, len};
	struct rp_channel_op op = {
		.kind = RP_CHANNEL_SEND,
		.inject = true,
		.iov_count = 1,
		.iov = &iov,
		.length = len,
	};

	if (len > s->channel->inject || !TAILQ_EMPTY(&s->kept) || !post(s, &op))
		send_keep(s, msg, len);
}

void rp_agent_send_reply(struct rp_agent_session *s, uint64_t token,
			 const struct rp_wire_reply *m)
{
	struct rp_wire_reply with_credits = *m;
	uint8_t msg[RP_WIRE_MAX_REPLY];
	int len;

	if (m->status != RP_ST_OK)
		rp_stats_add(&rp_stats->failures[m->status], 1);
	if (RP_FAULT("drop-replies"))
		return;
	if (RP_FAULT("delay-replies"))
		rp_fault_sleep();
	with_credits.credits = s->agent->attr.credits;
	len = rp_wire_put_reply(msg, sizeof(msg), token, &with_credits);
	assert(len > 0);
	rp_agent_send(s, msg, (size_t)len);
	if (RP_FAULT("duplicate-replies"))
		rp_agent_send(s, msg, (size_t)len);
}

void rp_agent_send_info(struct rp_agent_session *s, uint64_t token,
			const struct rp_wire_info *m)
{
	uint8_t msg[RP_WIRE_MAX_MSG];
	int len = rp_wire_put_info(msg, sizeof(msg), token, m);

	assert(len > 0);
	rp_agent_send(s, msg, (size_t)len);
}

/* --- the end of a session --- */

void rp_agent_session_end_at(struct rp_agent_session *s, uint64_t at)
{
	struct rp_agent *a = s->agent;
	struct rp_agent_stalled *m;

	TAILQ_REMOVE(s->ending ? &a->ending : &a->open, s, link);
	s->ending = true;
	s->close_at = at;
	TAILQ_INSERT_TAIL(&a->ending, s, link);
	jobs_drop(s);
	while ((m = stalled_pop(s)))
		free(m);
}

void rp_agent_session_close_later(struct rp_agent_session *s)
{
	rp_agent_session_end_at(s, 0);
}

void rp_agent_session_free(struct rp_agent_session *s)
{
	HASH_DEL(s->agent->by_initiator, s);
	grants_free(s);
	free(s);
}

void rp_agent_session_close(struct rp_agent_session *s)
{
	struct rp_agent *a = s->agent;
	struct rp_agent_refusal *f, *tmp;
	struct rp_agent_send *k;

	rp_agent_session_end_at(s, 0);
	TAILQ_FOREACH_SAFE(f, &a->delayed, link, tmp)
	{
		if (f->session == s)
			rp_agent_refusal_free(a, f);
	}
	rp_channel_close(s->channel);
	s->channel = NULL;
	if (!TAILQ_EMPTY(&s->kept))
		TAILQ_REMOVE(&a->sending, s, sending);
	while ((k = TAILQ_FIRST(&s->kept))) {
		TAILQ_REMOVE(&s->kept, k, link);
		s->backlog--;
		send_done(&k->op, 0);
	}
	assert(!s->backlog);
	TAILQ_REMOVE(&a->ending, s, link);
	a->nsessions--;
	rp_stats_add(&rp_stats->sessions, -1ull);
	rp_agent_session_free(s);
}

void rp_agent_close_sessions(struct rp_agent *a)
{
	struct rp_agent_session *s;

	while ((s = TAILQ_FIRST(&a->open)) || (s = TAILQ_FIRST(&a->ending)))
		rp_agent_session_close(s);
}

void rp_agent_close_peer(struct rp_agent *a,
			 bool (*is_peer)(struct rp_channel *c, uint16_t port,
					 void *arg),
			 void *arg)
{
	struct rp_agent_session *s, *tmp;

	HASH_ITER(hh, a->by_initiator, s, tmp)
	if (is_peer(s->channel, s->port, arg))
		rp_agent_session_close(s);
}

void rp_agent_revoke_key(struct rp_agent *a, uint64_t key)
{
	struct rp_agent_session *s, *tmp;
	struct rp_agent_grant *g;

	HASH_ITER(hh, a->by_initiator, s, tmp)
	{
		g = rp_agent_grant_find(s, key);
		if (g && a->attr.messages_only)
			grant_free(s, g);
		else if (g)
			rp_agent_session_close(s);
	}
}

/* --- receiving --- */

static void session_lost(void *owner, int err, const void *data, size_t len)
{
	rp_agent_session_close(owner);
}

static void session_received(void *owner, const void *msg, size_t len)
{
	struct rp_agent_session *s = owner;
	struct rp_agent *a = s->agent;

	if (s->ending)
		return;
	if (TAILQ_NEXT(s, link)) {
		TAILQ_REMOVE(&a->open, s, link);
		TAILQ_INSERT_TAIL(&a->open, s, link);
	}
	/* Kept replies use credits, as the peer has not received them. */
	if (s->backlog >= a->attr.credits) {
		a->stats.bad_messages++;
		rp_agent_session_close_later(s);
		return;
	}
	/* Over max_jobs, rp_agent_serve() refuses messages that must wait. */
	if ((!STAILQ_EMPTY(&s->stalled) && a->backlog < a->attr.max_jobs) ||
	    !rp_agent_serve(s, msg, len))
		message_stall(s, msg, len);
}

const struct rp_channel_events rp_agent_session_events = {
	.lost = session_lost,
	.received = session_received,
};

/* --- progress --- */

/* Send PROGRESS if it is due. True: sent. */
static bool send_progress_if_due(struct rp_agent_session *s, uint64_t now)
{
	struct rp_agent *a = s->agent;
	uint8_t msg[64];
	int len;

	/* The job that made PROGRESS due may have been replied to since. */
	s->progress_at = TAILQ_FIRST(&s->jobs)->since + s->progress_period;
	if (now < s->progress_at)
		return false;
	s->progress_at = now + s->progress_period;
	/* A kept reply resets the peer's deadline as PROGRESS would. */
	if (!TAILQ_EMPTY(&s->kept))
		return false;
	len = rp_wire_put_signal(msg, sizeof(msg), RP_MSG_PROGRESS);
	assert(len > 0);
	rp_agent_send(s, msg, (size_t)len);
	a->stats.progress_sent++;
	return true;
}

static bool send_heartbeats(struct rp_agent *a, uint64_t now)
{
	struct rp_agent_session *s, *tmp;
	bool any = false;

	if (now < a->progress_at)
		return false;
	a->progress_at = UINT64_MAX;
	TAILQ_FOREACH_SAFE(s, &a->working, working, tmp)
	{
		if (now >= s->progress_at)
			any |= send_progress_if_due(s, now);
		a->progress_at = earlier_time(a->progress_at, s->progress_at);
	}
	return any;
}

bool rp_agent_sessions_progress(struct rp_agent *a, uint64_t now)
{
	struct rp_agent_session *s, *tmp;
	bool any = false;

	if (a->nstalled && a->job_ended) {
		TAILQ_FOREACH_SAFE(s, &a->open, link, tmp)
		any |= session_resume(s);
	}
	a->job_ended = false;
	TAILQ_FOREACH_SAFE(s, &a->sending, sending, tmp)
	any |= send_kept(s);
	a->retry_at = now + RP_AGENT_RETRY_NS;
	any |= send_heartbeats(a, now);
	TAILQ_FOREACH_SAFE(s, &a->ending, link, tmp)
	{
		if (now < s->close_at)
			continue;
		rp_agent_session_close(s);
		any = true;
	}
	return any;
}

uint64_t rp_agent_sessions_deadline(const struct rp_agent *a)
{
	const struct rp_agent_session *s;
	uint64_t due = UINT64_MAX;

	if (a->nstalled && a->job_ended)
		return 0;
	if (!TAILQ_EMPTY(&a->sending))
		due = a->retry_at;
	if (!TAILQ_EMPTY(&a->working))
		due = earlier_time(due, a->progress_at);
	TAILQ_FOREACH (s, &a->ending, link)
		due = earlier_time(due, s->close_at);
	return due;
}
