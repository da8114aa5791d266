// SPDX-License-Identifier: BSD-2-Clause
/* Connection requests and wrong keys: accept, refuse, delay the refusal. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "core/agent_priv.h"
#include "core/log.h"

#define NS_PER_MS 1000000ull
/* Least time between two delayed refusals. */
#define REFUSAL_GAP_NS (1000 * NS_PER_MS / RP_AGENT_REFUSALS_PER_S)

static void conn_refuse(struct rp_agent *a, void *request, enum rp_status st)
{
	const struct rp_wire_hello_ack ack = {.status = st};
	uint8_t msg[RP_WIRE_CM_ACK];
	int len = rp_wire_put_hello_ack(msg, sizeof(msg), &ack);

	assert(len > 0);
	a->stats.refused_connections++;
	rp_stats_add(&rp_stats->refused, 1);
	a->host->ops->refuse(a->host, request, msg, (size_t)len);
}

/* Send the delayed refusal of a wrong key. */
static void refusal_send(struct rp_agent *a, struct rp_agent_refusal *f,
			 uint64_t now)
{
	const struct rp_wire_reply reply = {.status = RP_ST_STALE_KEY};
	const struct rp_wire_info info = {.status = RP_ST_STALE_KEY};
	struct rp_agent_session *s = f->session;

	if (!s)
		conn_refuse(a, f->request, RP_ST_STALE_KEY);
	else if (f->type == RP_MSG_QUERY)
		rp_agent_send_info(s, f->token, &info);
	else
		rp_agent_send_reply(s, f->token, &reply);
	if (s && s->close_at)
		rp_agent_session_end_at(s, now + RP_AGENT_LINGER_NS);
	rp_agent_refusal_free(a, f);
}

static void warn_wrong_key(struct rp_agent *a, uint64_t now)
{
	if (a->warned_at && now - a->warned_at < RP_AGENT_WARN_NS)
		return;
	a->warned_at = now;
	rp_log(RP_LOG_WARN,
	       "refused a key of no registered region (%llu since the start): "
	       "a peer holds an old key, or guesses keys",
	       (unsigned long long)a->stats.wrong_keys);
}

/* --- machines that present wrong keys --- */

static uint64_t source_of(struct rp_agent *a, void *request)
{
	struct rp_agent_host *h = a->host;

	return h->ops->source ? h->ops->source(h, request) : 0;
}

/* NULL: the machine has presented no wrong key recently. */
static struct rp_agent_source *source_find(struct rp_agent *a, uint64_t source)
{
	for (int i = 0; i < RP_AGENT_MAX_SOURCES; i++)
		if (a->sources[i].source == source)
			return &a->sources[i];
	return NULL;
}

/* Add a wrong key to the machine's debt; a full table drops the least debt. */
static void source_add_debt(struct rp_agent *a, uint64_t source, uint64_t now)
{
	struct rp_agent_source *s = source_find(a, source);

	if (!source)
		return;
	if (!s) {
		s = a->sources;
		for (int i = 1; i < RP_AGENT_MAX_SOURCES; i++)
			if (a->sources[i].debt_end < s->debt_end)
				s = &a->sources[i];
		*s = (struct rp_agent_source){.source = source};
	}
	s->debt_end = (s->debt_end > now ? s->debt_end : now) + REFUSAL_GAP_NS;
}

/*
 * Does the machine guess keys over many connections at once? Delayed refusals
 * do not slow it: a connection without an early reply had a wrong key.
 */
static bool source_guesses_keys(struct rp_agent *a, uint64_t source)
{
	const struct rp_agent_source *s = source_find(a, source);

	return source && s &&
	       s->debt_end > rp_agent_now(a) + RP_AGENT_DEBT * REFUSAL_GAP_NS;
}

/*
 * Refuse a wrong key after RP_AGENT_REFUSAL_DELAY_NS, and REFUSAL_GAP_NS
 * after the last refusal. If the queue is full, its oldest refusal is sent at
 * once, so no delay exceeds RP_AGENT_MAX_DELAYED intervals. False: no memory.
 */
static bool refuse_later(struct rp_agent *a, void *request,
			 struct rp_agent_session *s,
			 const struct rp_wire_hdr *hdr)
{
	const uint64_t now = rp_agent_now(a);
	const uint64_t last = now + RP_AGENT_MAX_DELAYED * REFUSAL_GAP_NS;
	struct rp_agent_refusal *f;

	a->stats.wrong_keys++;
	rp_stats_add(&rp_stats->refused_keys, 1);
	source_add_debt(a, s ? s->source : source_of(a, request), now);
	warn_wrong_key(a, now);
	f = malloc(sizeof(*f));
	if (!f)
		return false;
	while (a->ndelayed >= RP_AGENT_MAX_DELAYED)
		refusal_send(a, TAILQ_FIRST(&a->delayed), now);
	a->last_refusal_due += REFUSAL_GAP_NS;
	if (a->last_refusal_due > last)
		a->last_refusal_due = last;
	if (a->last_refusal_due < now + RP_AGENT_REFUSAL_DELAY_NS)
		a->last_refusal_due = now + RP_AGENT_REFUSAL_DELAY_NS;
	*f = (struct rp_agent_refusal){
		.request = request,
		.session = s,
		.token = hdr->token,
		.type = hdr->type,
		.due = a->last_refusal_due,
	};
	TAILQ_INSERT_TAIL(&a->delayed, f, link);
	a->ndelayed++;
	return true;
}

void rp_agent_session_refuse(struct rp_agent_session *s,
			     const struct rp_wire_hdr *hdr)
{
	rp_agent_session_end_at(s, UINT64_MAX);
	if (!refuse_later(s->agent, NULL, s, hdr))
		rp_agent_session_end_at(s, 0);
}

bool rp_agent_refuse_delayed(struct rp_agent *a, uint64_t now)
{
	struct rp_agent_refusal *f;
	bool any = false;

	for (; (f = TAILQ_FIRST(&a->delayed)) && now >= f->due; any = true)
		refusal_send(a, f, now);
	return any;
}

void rp_agent_conn_request_gone(struct rp_agent *a, void *request)
{
	struct rp_agent_refusal *f, *tmp;

	TAILQ_FOREACH_SAFE(f, &a->delayed, link, tmp)
	{
		if (f->request == request)
			rp_agent_refusal_free(a, f);
	}
}

static uint64_t progress_period_ns(uint32_t timeout_ms)
{
	uint64_t ms = timeout_ms / RP_AGENT_PROGRESS_PER_TIMEOUT;

	if (ms < RP_AGENT_MIN_PROGRESS_MS)
		ms = RP_AGENT_MIN_PROGRESS_MS;
	if (ms > RP_AGENT_MAX_PROGRESS_MS)
		ms = RP_AGENT_MAX_PROGRESS_MS;
	return ms * NS_PER_MS;
}

/* Close an ending session, or the longest silent one without backlog. */
static bool make_room(struct rp_agent *a)
{
	struct rp_agent_session *s;

	if (a->nsessions < a->attr.max_sessions)
		return true;
	s = TAILQ_FIRST(&a->ending);
	if (!s)
		TAILQ_FOREACH (s, &a->open, link)
			if (!s->backlog)
				break;
	if (!s)
		return false;
	rp_agent_session_close(s);
	return true;
}

static struct rp_agent_session *
session_new(struct rp_agent *a, const struct rp_wire_hello *m, uint64_t source)
{
	struct rp_agent_session *s = calloc(1, sizeof(*s));
	bool oom = false;

	if (!s)
		return NULL;
	s->agent = a;
	s->initiator = m->initiator;
	s->source = source;
	s->port = m->port;
	s->progress_period = progress_period_ns(m->timeout_ms);
	if (a->host->ops->flags)
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

/* False: the host dropped the request, and the caller frees the session. */
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
		.grant = g->wire,
	};
	uint8_t msg[RP_WIRE_CM_ACK];
	int len = rp_wire_put_hello_ack(msg, sizeof(msg), &ack);

	assert(len > 0);
	if (a->host->ops->accept(a->host, request, msg, (size_t)len,
				 &rp_agent_session_events, s, &s->channel))
		return false;
	TAILQ_INSERT_TAIL(&a->open, s, link);
	a->nsessions++;
	a->stats.accepted++;
	rp_stats_add(&rp_stats->sessions, 1);
	rp_stats_add(&rp_stats->accepted, 1);
	return true;
}

static void accept_hello(struct rp_agent *a, void *request,
			 const struct rp_wire_hello *m, struct rp_region *r)
{
	struct rp_agent_session *s;
	struct rp_agent_grant *g;
	enum rp_status st;

	/* Close the initiator's older connection before the new one. */
	HASH_FIND(hh, a->by_initiator, &m->initiator, sizeof(m->initiator), s);
	if (s)
		rp_agent_session_close(s);
	s = make_room(a) ? session_new(a, m, source_of(a, request)) : NULL;
	if (!s) {
		conn_refuse(a, request, RP_ST_OVERLOADED);
		return;
	}
	st = rp_agent_grant_get(s, r, &g);
	if (st != RP_ST_OK)
		conn_refuse(a, request, st);
	else if (session_accept(s, request, g))
		return;
	rp_agent_session_free(s);
}

static const struct rp_wire_hdr no_hdr;

void rp_agent_conn_request(struct rp_agent *a, void *request, const void *data,
			   size_t len)
{
	struct rp_wire_hello m;
	struct rp_region *r;
	enum rp_status st;
	int ret = rp_wire_get_hello(data, len, &m);

	if (ret) {
		st = ret == -EPROTONOSUPPORT ? RP_ST_VERSION
					     : RP_ST_BAD_MESSAGE;
		a->stats.bad_messages += st == RP_ST_BAD_MESSAGE;
		conn_refuse(a, request, st);
		return;
	}
	if (source_guesses_keys(a, source_of(a, request))) {
		conn_refuse(a, request, RP_ST_OVERLOADED);
		return;
	}
	r = rp_regions_find(&a->regions, m.key, &st);
	if (!r) {
		if (!refuse_later(a, request, NULL, &no_hdr))
			conn_refuse(a, request, RP_ST_STALE_KEY);
	} else if (a->quiescing) {
		conn_refuse(a, request, RP_ST_OVERLOADED);
	} else {
		accept_hello(a, request, &m, r);
	}
}
