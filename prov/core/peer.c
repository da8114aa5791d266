// SPDX-License-Identifier: BSD-2-Clause
/* Sessions of one initiator with its targets: hello, requests, answers, death.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/initiator.h"
#include "core/log.h"

#define NS_PER_MS 1000000ull

/* Thirty years: keeps times from wrapping. */
#define MAX_SLACK_NS 1e18

static uint64_t now(const struct rp_initiator *in)
{
	return in->x->ops->now(in->x);
}

int rp_initiator_new(const struct rp_initiator_attr *attr, struct rp_xport *x,
		     struct rp_initiator **out)
{
	struct rp_initiator *in = calloc(1, sizeof(*in));

	if (!in)
		return -ENOMEM;
	in->attr = *attr;
	if (!in->attr.cost)
		in->attr.cost = &rp_cost_default;
	in->x = x;
	in->next_token = 1;
	TAILQ_INIT(&in->active);
	TAILQ_INIT(&in->done);
	TAILQ_INIT(&in->free);
	rp_ranges_init(&in->orphans, RP_PEER_POISON);
	*out = in;
	return 0;
}

/* False: set is all that it can say. Stamp 0 is older than any write. */
static bool add_ranges(struct rp_ranges *set, const struct rp_ranges *more)
{
	for (size_t i = 0; i < more->n; i++) {
		const struct rp_range *v = &more->v[i];
		bool never = v->stamp >= RP_PEER_NEVER;

		if (rp_ranges_insert(set, v->space, v->start, v->end - v->start,
				     never ? RP_PEER_NEVER : 0))
			return false;
	}
	return true;
}

/* The peer goes, and nobody will know any more how its writes end. */
static void leave_orphans(const struct rp_peer *p)
{
	struct rp_initiator *in = p->in;
	const struct rp_write *w;

	in->orphans_all |=
		p->poison_all || !add_ranges(&in->orphans, &p->poison);
	TAILQ_FOREACH (w, &p->writes, link)
		if (rp_ranges_insert(&in->orphans, w->key, w->addr, w->len,
				     w->told ? RP_PEER_NEVER : 0))
			in->orphans_all = true;
}

struct rp_peer *rp_peer_get(struct rp_initiator *in, uint64_t addr)
{
	struct rp_peer *p;
	bool oom = false;

	HASH_FIND(hh, in->by_addr, &addr, sizeof(addr), p);
	if (p)
		return p;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->in = in;
	p->addr = addr;
	p->next_seq = 1; /* 0 is older than any write */
	TAILQ_INIT(&p->queue);
	TAILQ_INIT(&p->sent);
	TAILQ_INIT(&p->effects);
	TAILQ_INIT(&p->writes);
	TAILQ_INIT(&p->commits);
	rp_own_init(p);
	rp_link_init(p);
	rp_ranges_init(&p->poison, RP_PEER_POISON);
	HASH_ADD(hh, in->by_addr, addr, sizeof(p->addr), p);
	if (oom) {
		free(p);
		return NULL;
	}
	p->poison_all =
		in->orphans_all || !add_ranges(&p->poison, &in->orphans);
	return p;
}

/* A session ends; what it had in flight will never be answered. */
static void session_close(struct rp_peer *p)
{
	if (p->cookie)
		HASH_DELETE(hh_cookie, p->in->by_cookie, p);
	p->cookie = 0;
	p->in_flight = 0;
	p->state = RP_SESSION_CLOSED;
	rp_own_forget(p);
	rp_link_end(p);
}

/* Free a forgotten peer once nothing points at it any more. */
void rp_peer_release(struct rp_peer *p)
{
	if (!TAILQ_EMPTY(&p->writes) || !TAILQ_EMPTY(&p->own.posted) ||
	    p->waiting)
		return;
	rp_link_fini(p);
	rp_ranges_fini(&p->poison);
	free(p);
}

/* It has done something for us: its commits may take their time. */
static void peer_alive(struct rp_peer *p)
{
	p->alive_at = now(p->in);
	p->lost = 0;
	p->overloaded = false;
}

void rp_peer_wait(struct rp_peer *p)
{
	if (p->waiting++)
		return;
	peer_alive(p);
	TAILQ_INSERT_TAIL(&p->in->active, p, active);
}

void rp_peer_unwait(struct rp_peer *p)
{
	if (!--p->waiting)
		TAILQ_REMOVE(&p->in->active, p, active);
}

/* Nothing that waits for this peer will get an answer: end it all. */
static void peer_fail(struct rp_peer *p, enum rp_status st, uint32_t detail)
{
	struct rp_reqs all = TAILQ_HEAD_INITIALIZER(all);
	struct rp_req *r, *tmp;

	rp_commits_fail_all(p, st, detail);
	session_close(p);
	TAILQ_CONCAT(&all, &p->sent, link);
	TAILQ_CONCAT(&all, &p->queue, link);
	TAILQ_FOREACH_SAFE(r, &all, link, tmp)
	{
		r->state = RP_REQ_QUEUED;
		TAILQ_REMOVE(&all, r, link);
		TAILQ_INSERT_TAIL(&p->queue, r, link);
		if (r->type == RP_MSG_QUERY)
			rp_query_end(r, st, NULL);
		else
			rp_req_free(r);
	}
}

void rp_peer_forget(struct rp_initiator *in, uint64_t addr)
{
	struct rp_peer *p;

	HASH_FIND(hh, in->by_addr, &addr, sizeof(addr), p);
	if (!p)
		return;
	HASH_DELETE(hh, in->by_addr, p);
	peer_fail(p, RP_ST_CANCELED, 0);
	/* Their stores are writes of the peer, and end when they are told. */
	rp_commits_tell(in);
	leave_orphans(p);
	rp_own_lost(p);
	p->forgotten = true;
	rp_peer_release(p);
}

/* Only a courtesy: the target also forgets by itself. */
static void say_bye(struct rp_peer *p)
{
	struct rp_wire_hdr hdr = {
		.type = RP_MSG_BYE,
		.session = p->their_cookie,
		.incarnation = p->incarnation,
	};
	uint8_t msg[RP_WIRE_HDR];
	int len = rp_wire_put_empty(msg, sizeof(msg), &hdr);

	assert(len > 0);
	p->in->x->ops->send(p->in->x, p->addr, msg, len);
}

void rp_initiator_shut(struct rp_initiator *in)
{
	struct rp_peer *p, *tmp;

	HASH_ITER(hh, in->by_addr, p, tmp)
	{
		if (p->state == RP_SESSION_OPEN)
			say_bye(p);
		peer_fail(p, RP_ST_CANCELED, 0);
	}
	rp_commits_tell(in);
}

static void free_commits(struct rp_initiator *in)
{
	struct rp_commit *c;

	while ((c = TAILQ_FIRST(&in->free))) {
		TAILQ_REMOVE(&in->free, c, link);
		free(c);
	}
}

void rp_initiator_delete(struct rp_initiator *in)
{
	struct rp_peer *p, *tmp;

	rp_initiator_shut(in);
	HASH_ITER(hh, in->by_addr, p, tmp)
	rp_peer_forget(in, p->addr);
	free_commits(in);
	rp_banned_fini(in);
	rp_ranges_fini(&in->orphans);
	free(in);
}

/* How long this peer may still be silent. */
static uint64_t peer_deadline(const struct rp_peer *p)
{
	const struct rp_initiator_attr *a = &p->in->attr;
	double slack = 0;

	/* A request stands behind the writes: a slow link is no dead peer. */
	if (a->slow_rate)
		slack = (double)p->unplaced_bytes * 1e9 / (double)a->slow_rate;
	if (slack > MAX_SLACK_NS)
		slack = MAX_SLACK_NS;
	return p->alive_at + a->timeout_ns + (uint64_t)slack;
}

/* First key that anything queued talks about: HELLO shows that we hold it. */
static uint64_t first_key(const struct rp_peer *p)
{
	const struct rp_req *r = TAILQ_FIRST(&p->queue);

	return r->type == RP_MSG_QUERY ? r->key
				       : r->commit->ranges[r->first].key;
}

/* Returns 0, -EAGAIN (try again from progress) or another -errno. */
static int send_hello(struct rp_peer *p, uint64_t t)
{
	struct rp_initiator *in = p->in;
	struct rp_wire_hdr hdr = {.type = RP_MSG_HELLO};
	struct rp_wire_hello m = {0};
	uint8_t buf[RP_WIRE_MAX_MSG];
	size_t addr_len = sizeof(m.addr);
	bool oom = false;
	int ret;

	if (p->state == RP_SESSION_CLOSED) {
		ret = in->x->ops->random(in->x, &p->cookie, sizeof(p->cookie));
		if (ret)
			return ret;
		p->cookie |= !p->cookie;
		HASH_ADD(hh_cookie, in->by_cookie, cookie, sizeof(p->cookie),
			 p);
		if (oom) {
			p->cookie = 0;
			return -ENOMEM;
		}
		p->hello_key = first_key(p);
		p->hello_at = 0;
		p->state = RP_SESSION_HELLO;
	}
	ret = in->x->ops->name(in->x, m.addr, &addr_len);
	if (ret)
		return ret;
	m.addr_len = addr_len;
	m.cookie = p->cookie;
	m.key = p->hello_key;
	m.timeout_ms = in->attr.timeout_ns / NS_PER_MS;
	m.features = RP_FEATURES;
	if (!in->attr.own)
		m.features &= ~RP_FEATURE_OWN;
	if (!in->attr.links)
		m.features &= ~(RP_FEATURE_LINK | RP_FEATURE_PLACED |
				RP_FEATURE_GATHER);
	if (!in->attr.links || !in->attr.native)
		m.features &= ~RP_FEATURE_NATIVE;
	ret = rp_wire_put_hello(buf, sizeof(buf), &hdr, &m);
	if (ret < 0)
		return ret;
	ret = in->x->ops->send(in->x, p->addr, buf, ret);
	if (!ret)
		p->hello_at = t + in->attr.timeout_ns / RP_PEER_RESEND_PART;
	return ret;
}

/*
 * May the first of the queue go? An effect must not take the place of one that
 * has no answer yet in what the target remembers.
 */
static bool has_room(const struct rp_peer *p)
{
	const struct rp_req *r = TAILQ_FIRST(&p->queue);
	const struct rp_req *oldest = TAILQ_FIRST(&p->effects);

	if (p->in_flight >= p->credits)
		return false;
	return !r->effect || r->seq || !oldest ||
	       p->next_effect < oldest->seq + p->window;
}

bool rp_peer_sends_at_once(const struct rp_peer *p)
{
	const struct rp_req *oldest = TAILQ_FIRST(&p->effects);

	return p->state == RP_SESSION_OPEN && TAILQ_EMPTY(&p->queue) &&
	       p->in_flight < p->credits && !p->retry_at &&
	       (!oldest || p->next_effect < oldest->seq + p->window);
}

/* What waits for p has been sent, has ended, or waits longer. */
static void sent(struct rp_peer *p, int ret)
{
	if (ret == -EAGAIN) {
		p->in->blocked = true;
	} else if (ret) {
		rp_own_lost(p);
		peer_fail(p,
			  ret == -ENOMEM ? RP_ST_NO_MEMORY : RP_ST_SEND_FAILED,
			  -ret);
	}
}

void rp_peer_fence(struct rp_peer *p)
{
	sent(p, rp_own_post(p));
}

static bool can(const struct rp_peer *p, enum rp_effect effect)
{
	return p->features & (effect == RP_EFFECT_STORE ? RP_FEATURE_STORE
							: RP_FEATURE_EFFECTS);
}

void rp_peer_send(struct rp_peer *p)
{
	uint64_t t;
	struct rp_req *r;
	int ret = 0;

	if (TAILQ_EMPTY(&p->queue))
		return;
	t = now(p->in);
	if (p->retry_at > t)
		return;
	p->retry_at = 0;
	if (p->state != RP_SESSION_OPEN) {
		if (p->state == RP_SESSION_CLOSED || p->hello_at <= t)
			ret = send_hello(p, t);
	} else {
		while ((r = TAILQ_FIRST(&p->queue)) && has_room(p)) {
			if (r->effect && !can(p, r->commit->effect)) {
				rp_commit_fail(r->commit, RP_ST_UNSUPPORTED, 0,
					       0);
				continue;
			}
			ret = rp_req_send(r, t);
			if (ret)
				break;
			TAILQ_REMOVE(&p->queue, r, link);
			TAILQ_INSERT_TAIL(&p->sent, r, link);
			r->state = RP_REQ_SENT;
			p->in_flight++;
		}
	}
	sent(p, ret);
}

/* An overloaded target is asked again later, until peer_deadline(). */
static void back_off(struct rp_peer *p)
{
	p->overloaded = true;
	p->retry_at = now(p->in) + RP_PEER_BACKOFF_MS * NS_PER_MS;
}

/*
 * The session is lost, and with it what the target remembered. What may have
 * had its effect must not get another chance; what has not starts afresh.
 */
static void effects_lost(struct rp_peer *p)
{
	struct rp_req *r;

	while ((r = TAILQ_FIRST(&p->effects))) {
		TAILQ_REMOVE(&p->effects, r, of_effects);
		r->seq = 0;
		if (!r->copies || !r->commit)
			continue;
		r->commit->store.doubt = true;
		if (r->commit->effect == RP_EFFECT_STORE) {
			rp_commit_fail(r->commit, RP_ST_WRITE_FAILED, 0, 0);
		} else {
			rp_commit_fail(r->commit, RP_ST_UNSURE,
				       RP_ST_NO_SESSION, 0);
		}
	}
}

/* Put everything in flight back in front of the queue, oldest first. */
static void requeue_sent(struct rp_peer *p)
{
	struct rp_req *r;

	effects_lost(p);
	while ((r = TAILQ_LAST(&p->sent, rp_reqs))) {
		if (!r->commit && r->type == RP_MSG_REQUEST) {
			rp_req_free(r);
			continue;
		}
		TAILQ_REMOVE(&p->sent, r, link);
		TAILQ_INSERT_HEAD(&p->queue, r, link);
		r->state = RP_REQ_QUEUED;
	}
	p->in_flight = 0;
}

static void session_open(struct rp_peer *p, uint64_t incarnation,
			 const struct rp_wire_hello_ack *m)
{
	if (p->state == RP_SESSION_HELLO) {
		/* Once for a session of ours, or it could go on for ever. */
		p->alive_at = now(p->in);
	} else {
		if (m->cookie == p->their_cookie &&
		    incarnation == p->incarnation)
			return;
		/* It has restarted, and never got what is in flight. */
		rp_link_end(p);
		requeue_sent(p);
	}
	if (p->incarnation && p->incarnation != incarnation)
		rp_own_lost(p);
	p->their_cookie = m->cookie;
	p->incarnation = incarnation;
	p->credits = m->credits;
	p->features = m->features;
	p->window = m->credits < RP_WIRE_EFFECTS ? m->credits : RP_WIRE_EFFECTS;
	p->next_effect = 1;
	p->state = RP_SESSION_OPEN;
	rp_peer_send(p);
}

static void recv_hello_ack(struct rp_peer *p, const void *msg,
			   const struct rp_wire_hdr *hdr)
{
	struct rp_wire_hello_ack m;

	if (rp_wire_get_hello_ack(msg, hdr, &m))
		return;
	switch (m.status) {
	case RP_ST_OK:
		if (!hdr->incarnation)
			break;
		/* Version 1 promises room for RP_WIRE_MAX_RANGES. */
		if (m.max_ranges < RP_WIRE_MAX_RANGES)
			peer_fail(p, RP_ST_UNSUPPORTED, 0);
		else
			session_open(p, hdr->incarnation, &m);
		break;
	case RP_ST_OVERLOADED:
		session_close(p);
		requeue_sent(p);
		back_off(p);
		break;
	default:
		peer_fail(p, m.status, 0);
	}
}

/* The target does not know the session (any more). */
static void session_lost(struct rp_peer *p)
{
	if (p->state != RP_SESSION_OPEN)
		return;
	session_close(p);
	if (++p->lost >= RP_PEER_MAX_LOST) {
		peer_fail(p, RP_ST_NO_SESSION, 0);
		return;
	}
	requeue_sent(p);
	rp_peer_send(p);
}

static struct rp_req *find_sent(struct rp_peer *p, uint64_t token, uint8_t type)
{
	struct rp_req *r = rp_req_find(p->in, token);

	if (!r || r->peer != p || r->type != type || r->state != RP_REQ_SENT)
		return NULL;
	return r;
}

/*
 * The request of this type that ends with an answer of this status, its credit
 * given back; NULL: none, or none yet.
 */
static struct rp_req *take_answered(struct rp_peer *p, uint8_t type,
				    const struct rp_wire_hdr *hdr,
				    enum rp_status st)
{
	uint64_t token = hdr->token, incarnation = hdr->incarnation;
	struct rp_req *r;

	/* Said of the session, so with any token. */
	if (st == RP_ST_NO_SESSION) {
		session_lost(p);
		return NULL;
	}
	r = find_sent(p, token, type);
	if (!r)
		return NULL;
	p->in_flight--;
	if (st != RP_ST_OVERLOADED) {
		peer_alive(p);
		if (p->doubt && incarnation == p->incarnation)
			rp_peer_doubt_ends(p);
		return r;
	}
	back_off(p);
	/* This copy was not looked at. */
	r->copies -= r->copies > 0;
	if (!r->commit && type == RP_MSG_REQUEST)
		return r;
	TAILQ_REMOVE(&p->sent, r, link);
	TAILQ_INSERT_HEAD(&p->queue, r, link);
	r->state = RP_REQ_QUEUED;
	return NULL;
}

static void recv_reply(struct rp_peer *p, const void *msg,
		       const struct rp_wire_hdr *hdr)
{
	struct rp_wire_reply m;
	struct rp_commit *c;
	struct rp_req *r;
	size_t first, n;

	if (rp_wire_get_reply(msg, hdr, &m))
		return;
	if (m.credits)
		p->credits = m.credits;
	r = take_answered(p, RP_MSG_REQUEST, hdr, m.status);
	if (!r)
		return;
	if (m.status == RP_ST_OK && hdr->incarnation != p->incarnation)
		m.status = RP_ST_INCARNATION;
	if (m.status != RP_ST_OK)
		rp_own_forget(p);
	c = r->commit;
	first = r->first;
	n = r->n;
	rp_req_free(r);
	if (c)
		rp_commit_answer(c, first, n, &m, hdr->incarnation);
	rp_peer_send(p);
}

static void recv_info(struct rp_peer *p, const void *msg,
		      const struct rp_wire_hdr *hdr)
{
	struct rp_wire_info m;
	struct rp_req *r;

	if (rp_wire_get_info(msg, hdr, &m))
		return;
	r = take_answered(p, RP_MSG_QUERY, hdr, m.status);
	if (!r)
		return;
	rp_query_end(r, m.status, &m);
	rp_peer_send(p);
}

static void recv_offer(struct rp_peer *p, const void *msg,
		       const struct rp_wire_hdr *hdr)
{
	struct rp_wire_offer m;

	if (!rp_wire_get_offer(msg, hdr, &m))
		rp_link_offered(p, hdr, &m);
}

bool rp_initiator_tell(struct rp_initiator *in)
{
	struct rp_peer *p, *tmp;
	bool any = false;

	while (rp_commits_tell(in)) {
		any = true;
		if (!in->stored)
			continue;
		in->stored = false;
		TAILQ_FOREACH_SAFE(p, &in->active, active, tmp)
		rp_peer_send(p);
	}
	return any;
}

void rp_initiator_recv(struct rp_initiator *in, const void *msg, size_t len)
{
	struct rp_wire_hdr hdr;
	struct rp_peer *p;
	int ret = rp_wire_get_hdr(msg, len, &hdr);

	if (ret == -EBADMSG || RP_MSG_TO_TARGET(hdr.type))
		return;
	/* Only who got our HELLO knows the cookie. */
	HASH_FIND(hh_cookie, in->by_cookie, &hdr.session, sizeof(hdr.session),
		  p);
	if (!p)
		return;
	if (ret == -EPROTONOSUPPORT) {
		rp_log(RP_LOG_WARN,
		       "the target speaks control protocol version %u, we "
		       "speak %u: "
		       "install the same ofi_rpmem on both sides",
		       hdr.version, RP_WIRE_VERSION);
		peer_fail(p, RP_ST_VERSION, hdr.version);
		goto tell;
	}
	switch (hdr.type) {
	case RP_MSG_HELLO_ACK:
		recv_hello_ack(p, msg, &hdr);
		break;
	case RP_MSG_REPLY:
		recv_reply(p, msg, &hdr);
		break;
	case RP_MSG_INFO:
		recv_info(p, msg, &hdr);
		break;
	case RP_MSG_OFFER:
		recv_offer(p, msg, &hdr);
		break;
	case RP_MSG_PROGRESS:
		peer_alive(p);
		break;
	}
tell:
	rp_initiator_tell(in);
}

/*
 * Requests of a connection that broke are lost without a word; running one
 * twice does no harm, so those without an answer for long are sent again. A
 * target that has restarted since does not know the session, nor whom to tell:
 * so it is asked as well who it is.
 */
static int resend_late(struct rp_peer *p, uint64_t t)
{
	uint64_t patience = p->in->attr.timeout_ns / RP_PEER_RESEND_PART;
	struct rp_req *r, *tmp;
	int ret;

	TAILQ_FOREACH_SAFE(r, &p->sent, link, tmp)
	{
		if (r->sent_at + patience > t)
			break;
		if (!r->commit && r->type == RP_MSG_REQUEST) {
			p->in_flight--;
			rp_req_free(r);
			continue;
		}
		ret = p->hello_at <= t ? send_hello(p, t) : 0;
		if (!ret)
			ret = rp_req_send(r, t);
		if (ret)
			return ret;
		TAILQ_REMOVE(&p->sent, r, link);
		TAILQ_INSERT_TAIL(&p->sent, r, link);
	}
	return 0;
}

static void peer_progress(struct rp_peer *p, uint64_t t)
{
	enum rp_status st = p->overloaded ? RP_ST_OVERLOADED : RP_ST_TIMEOUT;

	if (t >= peer_deadline(p)) {
		rp_log(RP_LOG_WARN,
		       "peer %llu was %s for %llu ms: its commits have failed",
		       (unsigned long long)p->addr,
		       p->overloaded ? "overloaded" : "silent",
		       (unsigned long long)((t - p->alive_at) / NS_PER_MS));
		peer_fail(p, st, 0);
		return;
	}
	rp_peer_fence(p);
	rp_link_tend(p, t);
	if (p->state == RP_SESSION_OPEN)
		sent(p, resend_late(p, t));
	rp_peer_send(p);
}

bool rp_initiator_progress(struct rp_initiator *in)
{
	struct rp_peer *p, *tmp;
	uint64_t t;

	in->blocked = false;
	if (!TAILQ_EMPTY(&in->active)) {
		t = now(in);
		TAILQ_FOREACH_SAFE(p, &in->active, active, tmp)
		peer_progress(p, t);
	}
	return rp_initiator_tell(in);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* When there is something to send to p, if the base lets us. */
static uint64_t send_due(const struct rp_peer *p)
{
	uint64_t patience = p->in->attr.timeout_ns / RP_PEER_RESEND_PART;
	uint64_t due = UINT64_MAX;

	if (!TAILQ_EMPTY(&p->sent))
		due = TAILQ_FIRST(&p->sent)->sent_at + patience;
	if (TAILQ_EMPTY(&p->queue))
		return due;
	if (p->retry_at)
		return earlier(due, p->retry_at);
	if (p->state == RP_SESSION_HELLO)
		return p->hello_at;
	/* Not sent when it was queued: a progress call is due now. */
	if (p->state == RP_SESSION_CLOSED || has_room(p))
		return 0;
	return due;
}

uint64_t rp_initiator_deadline(const struct rp_initiator *in)
{
	uint64_t due = UINT64_MAX;
	const struct rp_peer *p;

	if (!TAILQ_EMPTY(&in->done))
		return 0;
	/* The base has no event that says "try again": look often. */
	if (in->blocked)
		due = now(in) + NS_PER_MS;
	TAILQ_FOREACH (p, &in->active, active) {
		due = earlier(due, peer_deadline(p));
		due = earlier(due, rp_link_deadline(p));
		if (!in->blocked)
			due = earlier(due, send_due(p));
	}
	return due;
}

unsigned int rp_initiator_outstanding(const struct rp_initiator *in)
{
	return in->outstanding;
}
