// SPDX-License-Identifier: BSD-2-Clause
/* Sessions at the target: accepted, refused, granted keys, answered, ended. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/agent_impl.h"
#include "core/fault.h"

#define NS_PER_MS 1000000ull

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* --- grants --- */

/*
 * The agent's own method for the choice. A placement that it confirms by its
 * reply is told as AGENT_SFENCE: DELIVERY would leave it to the device.
 */
static enum rp_method by_agent(const struct rp_region *r,
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
	 * A device acknowledges a write that its adapter alone has: a later
	 * store to the same bytes may be overtaken by it. A fence pushes it
	 * out.
	 */
	if (m == RP_METHOD_DELIVERY && p != RP_PLACE_CPU_USER &&
	    p != RP_PLACE_CPU_KERNEL)
		m = RP_METHOD_FENCE;
	switch (m) {
	case RP_METHOD_NATIVE:
		return s->flags & RP_CHANNEL_FLUSHES ? m : by_agent(r, choice);
	case RP_METHOD_FENCE:
		if (!(s->flags & RP_CHANNEL_FENCES) || r->facts.fence != RP_YES)
			return by_agent(r, choice);
		break;
	case RP_METHOD_DELIVERY:
		break;
	default:
		return m;
	}
	/* A flush that can fail is the agent's, so that everybody learns. */
	return rp_pmem_blocks(r->pmem) ? by_agent(r, choice) : m;
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

	g->told = (struct rp_wire_grant){
		.addr = r->addr,
		.length = r->len,
		.class = (uint8_t)r->choice.class,
		.method = (uint8_t)rp_agent_session_method(s, r, r->choice),
		.writable = r->writable,
	};
	ret = h->ops->grant(h, s->channel, r, &g->told, &g->handle);
	/* The device has FLUSH, but not for this memory. */
	if (ret == -EOPNOTSUPP && g->told.method == RP_METHOD_NATIVE) {
		g->told.method = (uint8_t)by_agent(r, r->choice);
		ret = h->ops->grant(h, s->channel, r, &g->told, &g->handle);
	}
	return ret;
}

enum rp_status rp_agent_grant_get(struct rp_agent_session *s,
				  struct rp_region *r,
				  struct rp_agent_grant **out)
{
	struct rp_agent_host *h = s->agent->host;
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
	h->ops->revoke(h, g->handle);
free:
	free(g);
	return RP_ST_OVERLOADED;
}

static void grants_revoke(struct rp_agent_session *s)
{
	struct rp_agent_host *h = s->agent->host;
	struct rp_agent_grant *g, *tmp;

	HASH_ITER(hh, s->grants, g, tmp)
	{
		HASH_DEL(s->grants, g);
		h->ops->revoke(h, g->handle);
		free(g);
	}
}

/* --- what a session holds --- */

static void hold(struct rp_agent_session *s)
{
	s->held++;
	s->agent->held++;
}

static void release(struct rp_agent_session *s)
{
	s->held--;
	s->agent->held--;
}

void rp_agent_session_add_job(struct rp_agent_session *s, struct rp_job *job)
{
	struct rp_agent *a = s->agent;

	job->since = rp_agent_now(a);
	if (TAILQ_EMPTY(&a->working))
		a->progress_at = UINT64_MAX;
	if (TAILQ_EMPTY(&s->jobs)) {
		TAILQ_INSERT_TAIL(&a->working, s, working);
		s->progress_at = job->since + s->pace;
	}
	a->progress_at = earlier(a->progress_at, s->progress_at);
	job->session = s;
	TAILQ_INSERT_TAIL(&s->jobs, job, of_owner);
	hold(s);
}

void rp_agent_session_del_job(struct rp_job *job)
{
	struct rp_agent_session *s = job->session;

	TAILQ_REMOVE(&s->jobs, job, of_owner);
	if (TAILQ_EMPTY(&s->jobs))
		TAILQ_REMOVE(&s->agent->working, s, working);
	s->agent->resume = true;
	release(s);
}

/* Jobs that run lose their session, and do no effect that is not done. */
static void jobs_drop(struct rp_agent_session *s)
{
	struct rp_job *job;

	while ((job = TAILQ_FIRST(&s->jobs))) {
		rp_agent_session_del_job(job);
		job->session = NULL;
		rp_job_void(job);
		if (job->queue) {
			TAILQ_REMOVE(job->queue, job, link);
			rp_job_free(job);
		}
	}
}

/* --- messages that stay behind jobs --- */

static void stall(struct rp_agent_session *s, const void *msg, size_t len)
{
	struct rp_agent_stalled *m = malloc(sizeof(*m) + len);

	if (!m) {
		rp_agent_session_doom(s);
		return;
	}
	m->len = len;
	memcpy(m->msg, msg, len);
	STAILQ_INSERT_TAIL(&s->stalled, m, link);
	s->agent->nstalled++;
	hold(s);
}

static struct rp_agent_stalled *stalled_pop(struct rp_agent_session *s)
{
	struct rp_agent_stalled *m = STAILQ_FIRST(&s->stalled);

	if (m) {
		STAILQ_REMOVE_HEAD(&s->stalled, link);
		s->agent->nstalled--;
		release(s);
	}
	return m;
}

/* Serve what need not wait any longer. True: something was served. */
static bool resume(struct rp_agent_session *s)
{
	struct rp_agent_stalled *m;
	bool any = false;

	while ((m = stalled_pop(s))) {
		if (!rp_agent_serve(s, m->msg, m->len)) {
			STAILQ_INSERT_HEAD(&s->stalled, m, link);
			s->agent->nstalled++;
			hold(s);
			break;
		}
		free(m);
		any = true;
	}
	return any;
}

/* --- sending --- */

static void send_free(struct rp_agent_send *k)
{
	release(k->session);
	free(k);
}

static void send_done(struct rp_channel_op *op, int err)
{
	/* A loss is reported by the channel. */
	send_free((struct rp_agent_send *)op);
}

static bool post(struct rp_agent_session *s, struct rp_channel_op *op)
{
	return rp_channel_post(s->channel, &op, 1) == 1;
}

/* Post what is kept, in order. True: something went out. */
static bool send_kept(struct rp_agent_session *s)
{
	struct rp_agent_send *k;
	bool any = false;

	while ((k = TAILQ_FIRST(&s->kept)) && post(s, &k->op)) {
		TAILQ_REMOVE(&s->kept, k, link);
		if (k->op.inject)
			send_free(k);
		any = true;
	}
	if (TAILQ_EMPTY(&s->kept))
		TAILQ_REMOVE(&s->agent->sending, s, sending);
	return any;
}

static void send_keep(struct rp_agent_session *s, const void *msg, size_t len)
{
	bool first = TAILQ_EMPTY(&s->kept);
	struct rp_agent_send *k = malloc(sizeof(*k) + len);

	if (!k) {
		rp_agent_session_doom(s);
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
	hold(s);
	TAILQ_INSERT_TAIL(&s->kept, k, link);
	if (!first)
		return;
	TAILQ_INSERT_TAIL(&s->agent->sending, s, sending);
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

void rp_agent_reply(struct rp_agent_session *s, uint64_t token,
		    const struct rp_wire_reply *m)
{
	struct rp_wire_reply with_credits = *m;
	uint8_t msg[RP_WIRE_MAX_REPLY];
	int len;

	if (RP_FAULT("drop-replies"))
		return;
	if (RP_FAULT("delay-replies"))
		rp_fault_dawdle();
	with_credits.credits = s->agent->attr.credits;
	len = rp_wire_put_reply(msg, sizeof(msg), token, &with_credits);
	assert(len > 0);
	rp_agent_send(s, msg, (size_t)len);
	if (RP_FAULT("duplicate-replies"))
		rp_agent_send(s, msg, (size_t)len);
}

void rp_agent_info(struct rp_agent_session *s, uint64_t token,
		   const struct rp_wire_info *m)
{
	uint8_t msg[RP_WIRE_MAX_MSG];
	int len = rp_wire_put_info(msg, sizeof(msg), token, m);

	assert(len > 0);
	rp_agent_send(s, msg, (size_t)len);
}

/* --- the end of a session --- */

static void refusal_free(struct rp_agent *a, struct rp_agent_refusal *f)
{
	TAILQ_REMOVE(&a->delayed, f, link);
	a->ndelayed--;
	free(f);
}

/* Drop what comes from now on; close at that time. */
static void session_end_at(struct rp_agent_session *s, uint64_t at)
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

void rp_agent_session_doom(struct rp_agent_session *s)
{
	session_end_at(s, 0);
}

static void session_free(struct rp_agent_session *s)
{
	grants_revoke(s);
	free(s);
}

void rp_agent_session_close(struct rp_agent_session *s)
{
	struct rp_agent *a = s->agent;
	struct rp_agent_refusal *f, *tmp;
	struct rp_agent_send *k;

	session_end_at(s, 0);
	TAILQ_FOREACH_SAFE(f, &a->delayed, link, tmp)
	{
		if (f->session == s)
			refusal_free(a, f);
	}
	rp_channel_close(s->channel);
	s->channel = NULL;
	if (!TAILQ_EMPTY(&s->kept))
		TAILQ_REMOVE(&a->sending, s, sending);
	while ((k = TAILQ_FIRST(&s->kept))) {
		TAILQ_REMOVE(&s->kept, k, link);
		send_free(k);
	}
	assert(!s->held);
	TAILQ_REMOVE(&a->ending, s, link);
	HASH_DEL(a->by_initiator, s);
	a->nsessions--;
	session_free(s);
}

void rp_agent_close_sessions(struct rp_agent *a)
{
	struct rp_agent_session *s;

	while ((s = TAILQ_FIRST(&a->open)) || (s = TAILQ_FIRST(&a->ending)))
		rp_agent_session_close(s);
}

void rp_agent_close_granted(struct rp_agent *a, uint64_t key)
{
	struct rp_agent_session *s, *tmp;

	HASH_ITER(hh, a->by_initiator, s, tmp)
	if (rp_agent_grant_find(s, key))
		rp_agent_session_close(s);
}

/* --- refusals --- */

static void refuse(struct rp_agent *a, void *request, enum rp_status st)
{
	const struct rp_wire_hello_ack ack = {.status = st};
	uint8_t msg[RP_WIRE_MAX_REPLY];
	int len = rp_wire_put_hello_ack(msg, sizeof(msg), &ack);

	assert(len > 0);
	a->stats.refused_connections++;
	a->host->ops->refuse(a->host, request, msg, (size_t)len);
}

/* Refuse a wrong key now. */
static void refusal_send(struct rp_agent *a, struct rp_agent_refusal *f,
			 uint64_t now)
{
	const struct rp_wire_reply reply = {.status = RP_ST_STALE_KEY};
	const struct rp_wire_info info = {.status = RP_ST_STALE_KEY};
	struct rp_agent_session *s = f->session;

	if (!s)
		refuse(a, f->request, RP_ST_STALE_KEY);
	else if (f->type == RP_MSG_QUERY)
		rp_agent_info(s, f->token, &info);
	else
		rp_agent_reply(s, f->token, &reply);
	if (s && s->close_at)
		session_end_at(s, now + RP_AGENT_LINGER_NS);
	refusal_free(a, f);
}

static void warn_wrong_key(struct rp_agent *a, uint64_t now)
{
	char text[160];

	if (a->warned_at && now - a->warned_at < RP_AGENT_WARN_NS)
		return;
	a->warned_at = now;
	snprintf(
		text, sizeof(text),
		"refused a key of no registered region (%llu since the start): "
		"a peer holds an old key, or guesses keys",
		(unsigned long long)a->stats.wrong_keys);
	a->host->ops->warn(a->host, text);
}

/*
 * One refusal follows another no sooner than 1/RP_AGENT_REFUSALS s, so that
 * keys cannot be guessed fast. False: no memory.
 */
static bool refuse_later(struct rp_agent *a, void *request,
			 struct rp_agent_session *s,
			 const struct rp_wire_hdr *hdr)
{
	const uint64_t now = rp_agent_now(a);
	struct rp_agent_refusal *f;

	a->stats.wrong_keys++;
	warn_wrong_key(a, now);
	f = malloc(sizeof(*f));
	if (!f)
		return false;
	while (a->ndelayed >= RP_AGENT_MAX_DELAYED)
		refusal_send(a, TAILQ_FIRST(&a->delayed), now);
	a->refused_at += NS_PER_MS * 1000 / RP_AGENT_REFUSALS;
	if (a->refused_at < now + RP_AGENT_REFUSAL_NS)
		a->refused_at = now + RP_AGENT_REFUSAL_NS;
	*f = (struct rp_agent_refusal){
		.request = request,
		.session = s,
		.token = hdr->token,
		.type = hdr->type,
		.due = a->refused_at,
	};
	TAILQ_INSERT_TAIL(&a->delayed, f, link);
	a->ndelayed++;
	return true;
}

void rp_agent_session_refuse(struct rp_agent_session *s,
			     const struct rp_wire_hdr *hdr)
{
	session_end_at(s, UINT64_MAX);
	if (!refuse_later(s->agent, NULL, s, hdr))
		session_end_at(s, 0);
}

void rp_agent_refuse_delayed(struct rp_agent *a)
{
	struct rp_agent_refusal *f;

	while ((f = TAILQ_FIRST(&a->delayed)))
		refusal_send(a, f, 0);
}

void rp_agent_request_gone(struct rp_agent *a, void *request)
{
	struct rp_agent_refusal *f, *tmp;

	TAILQ_FOREACH_SAFE(f, &a->delayed, link, tmp)
	{
		if (f->request == request)
			refusal_free(a, f);
	}
}

/* --- accepting --- */

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
	/* Replies that are not sent count: the peer cannot know of them. */
	if (s->held >= a->attr.credits) {
		a->stats.bad_messages++;
		rp_agent_session_doom(s);
		return;
	}
	if (!STAILQ_EMPTY(&s->stalled) || !rp_agent_serve(s, msg, len))
		stall(s, msg, len);
}

static const struct rp_channel_events session_events = {
	.lost = session_lost,
	.received = session_received,
};

static uint64_t pace(uint32_t timeout_ms)
{
	uint64_t ms = timeout_ms / RP_AGENT_PACE_PART;

	if (ms < RP_AGENT_MIN_PACE_MS)
		ms = RP_AGENT_MIN_PACE_MS;
	if (ms > RP_AGENT_MAX_PACE_MS)
		ms = RP_AGENT_MAX_PACE_MS;
	return ms * NS_PER_MS;
}

/* The session that was silent for longest goes, unless it waits for replies. */
static bool make_room(struct rp_agent *a)
{
	struct rp_agent_session *s;

	if (a->nsessions < a->attr.max_sessions)
		return true;
	s = TAILQ_FIRST(&a->ending);
	if (!s)
		TAILQ_FOREACH (s, &a->open, link)
			if (!s->held)
				break;
	if (!s)
		return false;
	rp_agent_session_close(s);
	return true;
}

static struct rp_agent_session *session_new(struct rp_agent *a,
					    const struct rp_wire_hello *m)
{
	struct rp_agent_session *s = calloc(1, sizeof(*s));
	bool oom = false;

	if (!s)
		return NULL;
	s->agent = a;
	s->initiator = m->initiator;
	s->pace = pace(m->timeout_ms);
	s->flags = a->host->ops->flags(a->host);
	if (!(m->features & RP_FEATURE_NATIVE))
		s->flags &= ~(uint32_t)RP_CHANNEL_FLUSHES;
	TAILQ_INIT(&s->jobs);
	TAILQ_INIT(&s->kept);
	STAILQ_INIT(&s->stalled);
	HASH_ADD(hh, a->by_initiator, initiator, sizeof(s->initiator), s);
	if (oom) {
		free(s);
		return NULL;
	}
	return s;
}

/* False: refused by the caller. The request is answered otherwise. */
static bool session_accept(struct rp_agent_session *s, void *request,
			   const struct rp_agent_grant *g)
{
	struct rp_agent *a = s->agent;
	const struct rp_wire_hello_ack ack = {
		.status = RP_ST_OK,
		.incarnation = a->attr.incarnation,
		.credits = a->attr.credits,
		.features =
			s->flags & RP_CHANNEL_FLUSHES ? RP_FEATURE_NATIVE : 0,
		.grant = g->told,
	};
	uint8_t msg[RP_WIRE_MAX_REPLY];
	int len = rp_wire_put_hello_ack(msg, sizeof(msg), &ack);

	assert(len > 0);
	if (a->host->ops->accept(a->host, request, msg, (size_t)len,
				 &session_events, s, &s->channel))
		return false;
	TAILQ_INSERT_TAIL(&a->open, s, link);
	a->nsessions++;
	a->stats.accepted++;
	return true;
}

static void accept_hello(struct rp_agent *a, void *request,
			 const struct rp_wire_hello *m, struct rp_region *r)
{
	struct rp_agent_session *s;
	struct rp_agent_grant *g;
	enum rp_status st;

	/* Nothing of the older connection arrives once this one is up. */
	HASH_FIND(hh, a->by_initiator, &m->initiator, sizeof(m->initiator), s);
	if (s)
		rp_agent_session_close(s);
	s = make_room(a) ? session_new(a, m) : NULL;
	if (!s) {
		refuse(a, request, RP_ST_OVERLOADED);
		return;
	}
	st = rp_agent_grant_get(s, r, &g);
	if (st != RP_ST_OK)
		refuse(a, request, st);
	else if (session_accept(s, request, g))
		return;
	HASH_DEL(a->by_initiator, s);
	session_free(s);
}

void rp_agent_requested(struct rp_agent *a, void *request, const void *data,
			size_t len)
{
	struct rp_wire_hdr hdr = {0};
	struct rp_wire_hello m;
	struct rp_region *r;
	enum rp_status st;
	int ret = rp_wire_get_hdr(data, len, &hdr);

	if (!ret && hdr.type == RP_MSG_HELLO)
		ret = rp_wire_get_hello(data, len, &m);
	if (ret == -EPROTONOSUPPORT) {
		refuse(a, request, RP_ST_VERSION);
		return;
	}
	if (ret || hdr.type != RP_MSG_HELLO) {
		a->stats.bad_messages++;
		refuse(a, request, RP_ST_BAD_MESSAGE);
		return;
	}
	r = rp_regions_find(&a->regions, m.key, &st);
	if (!r || (m.incarnation && m.incarnation != a->attr.incarnation)) {
		if (!refuse_later(a, request, NULL, &hdr))
			refuse(a, request, RP_ST_STALE_KEY);
	} else if (a->quiescing) {
		refuse(a, request, RP_ST_OVERLOADED);
	} else {
		accept_hello(a, request, &m, r);
	}
}

/* --- progress --- */

/* True: the peer was told that its requests are being worked on. */
static bool heartbeat(struct rp_agent_session *s, uint64_t now)
{
	struct rp_agent *a = s->agent;
	uint8_t msg[RP_WIRE_MAX_REPLY];
	int len;

	/* The jobs that it was due for may have been answered meanwhile. */
	s->progress_at = TAILQ_FIRST(&s->jobs)->since + s->pace;
	if (now < s->progress_at)
		return false;
	s->progress_at = now + s->pace;
	/* A reply that is kept tells as much. */
	if (!TAILQ_EMPTY(&s->kept))
		return false;
	len = rp_wire_put_progress(msg, sizeof(msg));
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
			any |= heartbeat(s, now);
		a->progress_at = earlier(a->progress_at, s->progress_at);
	}
	return any;
}

bool rp_agent_sessions_progress(struct rp_agent *a, uint64_t now)
{
	struct rp_agent_session *s, *tmp;
	struct rp_agent_refusal *f;
	bool any = false;

	if (a->nstalled && a->resume)
		TAILQ_FOREACH_SAFE(s, &a->open, link, tmp)
	any |= resume(s);
	a->resume = false;
	TAILQ_FOREACH_SAFE(s, &a->sending, sending, tmp)
	any |= send_kept(s);
	a->retry_at = now + RP_AGENT_RETRY_NS;
	any |= send_heartbeats(a, now);
	while ((f = TAILQ_FIRST(&a->delayed)) && now >= f->due) {
		refusal_send(a, f, now);
		any = true;
	}
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

	if (a->nstalled && a->resume)
		return 0;
	if (!TAILQ_EMPTY(&a->sending))
		due = a->retry_at;
	if (!TAILQ_EMPTY(&a->working))
		due = earlier(due, a->progress_at);
	if (!TAILQ_EMPTY(&a->delayed))
		due = earlier(due, TAILQ_FIRST(&a->delayed)->due);
	TAILQ_FOREACH (s, &a->ending, link)
		due = earlier(due, s->close_at);
	return due;
}
