// SPDX-License-Identifier: BSD-2-Clause
/* Sessions at the target: made, proved, bounded, forgotten. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/client.h"
#include "core/list.h"

#define NS_PER_MS   1000000ull
#define MIN_PACE_NS (RP_CLIENT_MIN_PACE_MS * NS_PER_MS)
#define MAX_PACE_NS (RP_CLIENT_MAX_PACE_MS * NS_PER_MS)

void rp_clients_init(struct rp_clients *t)
{
	TAILQ_INIT(&t->half_open_list);
	TAILQ_INIT(&t->open_list);
	TAILQ_INIT(&t->sending);
	TAILQ_INIT(&t->working);
}

static uint64_t pace(uint32_t timeout_ms)
{
	uint64_t ns = timeout_ms * NS_PER_MS / RP_CLIENT_PACE_PART;

	return ns < MIN_PACE_NS ? MIN_PACE_NS
				: (ns > MAX_PACE_NS ? MAX_PACE_NS : ns);
}

struct rp_client *rp_client_find(const struct rp_clients *t,
				 const struct rp_xport *x, uint64_t cookie)
{
	struct rp_client *c;

	HASH_FIND(hh_cookie, t->by_cookie, &cookie, sizeof(cookie), c);
	return c && c->origin.x == x ? c : NULL;
}

void rp_client_unoffer(struct rp_client *c)
{
	if (c->conn)
		c->origin.x->ops->unoffer(c->origin.x, c->conn);
	c->conn = NULL;
}

void rp_client_drop(struct rp_clients *t, struct rp_client *c)
{
	struct rp_job *job, *tmp;
	struct rp_kept *k;

	if (!TAILQ_EMPTY(&c->jobs))
		TAILQ_REMOVE(&t->working, c, working);
	TAILQ_FOREACH_SAFE(job, &c->jobs, of_client, tmp)
	{
		job->client = NULL;
		rp_job_void(job);
		if (job->queue) {
			TAILQ_REMOVE(job->queue, job, link);
			rp_job_free(job);
		}
	}
	if (!STAILQ_EMPTY(&c->kept))
		TAILQ_REMOVE(&t->sending, c, sending);
	while ((k = STAILQ_FIRST(&c->kept))) {
		STAILQ_REMOVE_HEAD(&c->kept, link);
		free(k);
	}
	t->held -= c->held;
	t->unreachable -= c->unreachable;

	if (c->cookie)
		HASH_DELETE(hh_cookie, t->by_cookie, c);
	HASH_DELETE(hh_origin, t->by_origin, c);
	if (c->state == RP_CLIENT_OPEN) {
		TAILQ_REMOVE(&t->open_list, c, link);
		t->open--;
	} else {
		TAILQ_REMOVE(&t->half_open_list, c, link);
		t->half_open--;
	}
	rp_client_unoffer(c);
	c->origin.x->ops->peer_put(c->origin.x, c->peer);
	rp_worker_unwatch(t->worker, c->origin.x);
	free(c->seen);
	free(c);
}

static struct rp_client *client_new(struct rp_clients *t,
				    const struct rp_origin *o, bool refused)
{
	struct rp_client *c = calloc(1, sizeof(*c)), *same;
	struct rp_xport *x = o->x;
	bool oom = false;

	if (!c)
		return NULL;
	c->origin = *o;
	c->state = refused ? RP_CLIENT_REFUSED : RP_CLIENT_HALF_OPEN;
	TAILQ_INIT(&c->jobs);
	STAILQ_INIT(&c->kept);
	/* Never 0, and never one that is in use. */
	while (!refused && !c->cookie) {
		if (x->ops->random(x, &c->cookie, sizeof(c->cookie)))
			goto free;
		HASH_FIND(hh_cookie, t->by_cookie, &c->cookie,
			  sizeof(c->cookie), same);
		if (same)
			c->cookie = 0;
	}
	if (rp_worker_watch(t->worker, x))
		goto free;
	if (x->ops->peer_get(x, o->addr, o->addr_len, &c->peer))
		goto unwatch;
	HASH_ADD(hh_origin, t->by_origin, origin, sizeof(c->origin), c);
	if (oom)
		goto put;
	if (!refused) {
		HASH_ADD(hh_cookie, t->by_cookie, cookie, sizeof(c->cookie), c);
		if (oom)
			goto del_origin;
	}
	TAILQ_INSERT_TAIL(&t->half_open_list, c, link);
	t->half_open++;
	return c;

del_origin:
	HASH_DELETE(hh_origin, t->by_origin, c);
put:
	x->ops->peer_put(x, c->peer);
unwatch:
	rp_worker_unwatch(t->worker, x);
free:
	free(c);
	return NULL;
}

static struct rp_client *find_origin(const struct rp_clients *t,
				     struct rp_xport *x,
				     const struct rp_wire_hello *m,
				     struct rp_origin *o)
{
	struct rp_client *c;

	*o = (struct rp_origin){
		.x = x,
		.cookie = m->cookie,
		.addr_len = m->addr_len,
	};
	memcpy(o->addr, m->addr, m->addr_len);
	HASH_FIND(hh_origin, t->by_origin, o, sizeof(*o), c);
	return c;
}

bool rp_client_known(const struct rp_clients *t, struct rp_xport *x,
		     const struct rp_wire_hello *m)
{
	struct rp_origin o;

	return find_origin(t, x, m, &o);
}

static bool same_address(const struct rp_origin *a, const struct rp_origin *b)
{
	return a->x == b->x && a->addr_len == b->addr_len &&
	       !memcmp(a->addr, b->addr, a->addr_len);
}

static bool drop_same(struct rp_clients *t, struct rp_client_list *list,
		      const struct rp_origin *o, bool drop)
{
	struct rp_client *c, *tmp;
	bool any = false;

	TAILQ_FOREACH_SAFE(c, list, link, tmp)
	{
		if (!same_address(&c->origin, o))
			continue;
		any |= c->unreachable;
		if (drop)
			rp_client_drop(t, c);
	}
	return any;
}

/*
 * A base that tells of breaks takes nothing more for an address before that was
 * removed and inserted again: which is when nobody here holds it any more.
 */
static void reach_again(struct rp_clients *t, const struct rp_origin *o)
{
	bool any;

	if (!t->unreachable)
		return;
	any = drop_same(t, &t->half_open_list, o, false);
	any |= drop_same(t, &t->open_list, o, false);
	if (!any)
		return;
	drop_same(t, &t->half_open_list, o, true);
	drop_same(t, &t->open_list, o, true);
}

struct rp_client *rp_client_hello(struct rp_clients *t, struct rp_xport *x,
				  const struct rp_wire_hello *m, bool refused,
				  uint64_t now)
{
	struct rp_origin o;
	struct rp_client *c;

	find_origin(t, x, m, &o);
	reach_again(t, &o);
	c = find_origin(t, x, m, &o);
	if (c && (c->state == RP_CLIENT_REFUSED) != refused) {
		rp_client_drop(t, c);
		c = NULL;
	}
	if (!c) {
		/* Before peer_get: a flood never holds more than the limit. */
		while (t->half_open >= t->max_half_open)
			rp_client_drop(t, TAILQ_FIRST(&t->half_open_list));
		c = client_new(t, &o, refused);
		if (!c)
			return NULL;
		c->born = now;
	}
	c->pace = pace(m->timeout_ms);
	return c;
}

/*
 * The least recently used client that is owed nothing goes, and is told as
 * well as that can be: what it sends later cannot be answered any more.
 */
static bool drop_idle(struct rp_clients *t)
{
	const struct rp_wire_reply m = {.status = RP_ST_NO_SESSION};
	uint8_t msg[RP_WIRE_INJECT];
	struct rp_wire_hdr hdr;
	struct rp_client *c;
	int len;

	TAILQ_FOREACH (c, &t->open_list, link)
		if (!c->held)
			break;
	if (!c)
		return false;
	hdr = (struct rp_wire_hdr){.session = c->origin.cookie};
	len = rp_wire_put_reply(msg, sizeof(msg), &hdr, &m);
	c->origin.x->ops->send(c->origin.x, c->peer, msg, len);
	rp_client_drop(t, c);
	return true;
}

bool rp_client_use(struct rp_clients *t, struct rp_client *c)
{
	struct rp_client *old, *tmp;

	if (c->state == RP_CLIENT_OPEN) {
		TAILQ_REMOVE(&t->open_list, c, link);
		TAILQ_INSERT_TAIL(&t->open_list, c, link);
		return true;
	}
	/* An endpoint has one session: the earlier ones lost their peer. */
	TAILQ_FOREACH_SAFE(old, &t->open_list, link, tmp)
	if (same_address(&old->origin, &c->origin))
		rp_client_drop(t, old);
	/*
	 * So have those of them that never were opened: what was sent in one
	 * may come late, and must not be had after it was given up.
	 */
	TAILQ_FOREACH_SAFE(old, &t->half_open_list, link, tmp)
	{
		if (old == c)
			break;
		if (same_address(&old->origin, &c->origin))
			rp_client_drop(t, old);
	}
	if (t->open >= t->max_open && !drop_idle(t))
		return false;

	TAILQ_REMOVE(&t->half_open_list, c, link);
	t->half_open--;
	c->state = RP_CLIENT_OPEN;
	TAILQ_INSERT_TAIL(&t->open_list, c, link);
	t->open++;
	return true;
}

static void drop_list(struct rp_clients *t, struct rp_client_list *list,
		      struct rp_xport *x)
{
	struct rp_client *c, *tmp;

	TAILQ_FOREACH_SAFE(c, list, link, tmp)
	if (c->origin.x == x)
		rp_client_drop(t, c);
}

void rp_clients_drop_xport(struct rp_clients *t, struct rp_xport *x)
{
	drop_list(t, &t->half_open_list, x);
	drop_list(t, &t->open_list, x);
}

bool rp_clients_expire(struct rp_clients *t, uint64_t now)
{
	struct rp_client *c;
	bool any = false;

	while ((c = TAILQ_FIRST(&t->half_open_list)) &&
	       now - c->born >= RP_CLIENT_HALF_OPEN_NS) {
		rp_client_drop(t, c);
		any = true;
	}
	return any;
}

bool rp_client_has_credit(const struct rp_clients *t, const struct rp_client *c)
{
	return c->held < t->credits && t->held < t->max_held;
}

void rp_client_add_job(struct rp_clients *t, struct rp_client *c,
		       struct rp_job *job)
{
	if (TAILQ_EMPTY(&c->jobs)) {
		TAILQ_INSERT_TAIL(&t->working, c, working);
		c->progress_at = job->since + c->pace;
	}
	job->client = c;
	TAILQ_INSERT_TAIL(&c->jobs, job, of_client);
	if (c->last_token < job->token)
		c->last_token = job->token;
	c->held++;
	t->held++;
}

void rp_client_del_job(struct rp_clients *t, struct rp_job *job)
{
	struct rp_client *c = job->client;

	TAILQ_REMOVE(&c->jobs, job, of_client);
	if (TAILQ_EMPTY(&c->jobs))
		TAILQ_REMOVE(&t->working, c, working);
	c->held--;
	t->held--;
}

bool rp_client_has_job(const struct rp_client *c, uint64_t token)
{
	const struct rp_job *job;

	/* Tokens count up, so a search is only needed for a repeated one. */
	if (token > c->last_token)
		return false;
	TAILQ_FOREACH (job, &c->jobs, of_client)
		if (job->token == token)
			return true;
	return false;
}

/* Effects of one session that may be without an answer at once. */
static uint64_t window(const struct rp_clients *t)
{
	return t->credits < RP_WIRE_EFFECTS ? t->credits : RP_WIRE_EFFECTS;
}

int rp_client_effect(const struct rp_clients *t, struct rp_client *c,
		     uint64_t seq, uint64_t token, struct rp_wire_reply *answer)
{
	const uint64_t n = window(t);
	const struct rp_seen *e;

	if (seq > c->last_seq && seq - c->last_seq > n)
		return -EBADMSG;
	/* The one that took its place was sent after its answer had come. */
	if (seq < c->last_seq && c->last_seq - seq >= n)
		return -EALREADY;
	if (!c->seen) {
		c->seen = calloc(n, sizeof(*c->seen));
		if (!c->seen)
			return -ENOMEM;
	}
	e = &c->seen[seq % n];
	if (e->seq != seq || e->state == RP_EFFECT_UNSEEN) {
		if (e->state == RP_EFFECT_AT_WORK)
			return -EBADMSG;
		return 0;
	}
	if (e->token != token)
		return -EBADMSG;
	if (e->state == RP_EFFECT_AT_WORK)
		return -EALREADY;
	*answer = (struct rp_wire_reply){
		.status = e->status,
		.level = e->level,
		.class = e->class,
		.range = e->range,
		.detail = e->detail,
		.method = e->method,
	};
	return 1;
}

void rp_client_take(const struct rp_clients *t, struct rp_client *c,
		    uint64_t seq, uint64_t token)
{
	c->seen[seq % window(t)] = (struct rp_seen){
		.seq = seq,
		.token = token,
		.state = RP_EFFECT_AT_WORK,
	};
	if (c->last_seq < seq)
		c->last_seq = seq;
}

void rp_client_answered(const struct rp_clients *t, struct rp_client *c,
			uint64_t seq, const struct rp_wire_reply *reply)
{
	struct rp_seen *e = &c->seen[seq % window(t)];

	e->state = reply->status == RP_ST_OVERLOADED ? RP_EFFECT_UNSEEN
						     : RP_EFFECT_ANSWERED;
	e->status = reply->status;
	e->level = reply->level;
	e->class = reply->class;
	e->range = reply->range;
	e->detail = reply->detail;
	e->method = reply->method;
}

/* True: the message needs no more care, whether it went out or cannot. */
static bool try_send(struct rp_clients *t, struct rp_client *c, const void *msg,
		     size_t len)
{
	struct rp_xport *x = c->origin.x;
	int ret = x->ops->send(x, c->peer, msg, len);

	if (ret && ret != -EAGAIN && ret != -ENOMEM && !c->unreachable) {
		c->unreachable = true;
		t->unreachable++;
	}
	return ret != -EAGAIN;
}

void rp_client_send(struct rp_clients *t, struct rp_client *c, const void *msg,
		    size_t len)
{
	bool first = STAILQ_EMPTY(&c->kept);
	struct rp_kept *k;

	if (first && try_send(t, c, msg, len))
		return;
	/* Twice the credits: a refusal for each request that has none. */
	if (c->held >= 2 * t->credits || t->held >= 2 * t->max_held)
		return;
	k = malloc(sizeof(*k) + len);
	if (!k)
		return;
	k->len = len;
	memcpy(k->msg, msg, len);
	STAILQ_INSERT_TAIL(&c->kept, k, link);
	if (first)
		TAILQ_INSERT_TAIL(&t->sending, c, sending);
	c->held++;
	t->held++;
}

bool rp_clients_resend(struct rp_clients *t)
{
	struct rp_client *c, *tmp;
	struct rp_kept *k;
	bool any = false;

	TAILQ_FOREACH_SAFE(c, &t->sending, sending, tmp)
	{
		while ((k = STAILQ_FIRST(&c->kept)) &&
		       try_send(t, c, k->msg, k->len)) {
			STAILQ_REMOVE_HEAD(&c->kept, link);
			free(k);
			c->held--;
			t->held--;
			any = true;
		}
		if (STAILQ_EMPTY(&c->kept))
			TAILQ_REMOVE(&t->sending, c, sending);
	}
	return any;
}
