// SPDX-License-Identifier: BSD-2-Clause
/* Commits without the agent: confirmed keys, and fences behind the writes. */
#include <errno.h>
#include <stdlib.h>

#include "core/initiator.h"
#include "core/ranges.h"

/* A read needs no more to push what was written before it. */
#define FENCE_LEN 8

void rp_own_init(struct rp_peer *p)
{
	TAILQ_INIT(&p->own.queue);
	TAILQ_INIT(&p->own.posted);
}

static void forget_keys(struct rp_peer *p)
{
	struct rp_own_key *k, *tmp;

	HASH_ITER(hh, p->own.keys, k, tmp)
	{
		HASH_DEL(p->own.keys, k);
		free(k);
	}
	p->own.last = NULL;
}

void rp_banned_fini(struct rp_initiator *in)
{
	struct rp_banned_key *b, *tmp;

	HASH_ITER(hh, in->banned.keys, b, tmp)
	{
		HASH_DEL(in->banned.keys, b);
		free(b);
	}
}

static bool is_banned(const struct rp_initiator *in, uint64_t key)
{
	struct rp_banned_key *b;

	HASH_FIND(hh, in->banned.keys, &key, sizeof(key), b);
	return b || in->banned.all;
}

static void ban(struct rp_initiator *in, uint64_t key)
{
	struct rp_banned_key *b;
	bool oom = false;

	if (is_banned(in, key))
		return;
	if (HASH_COUNT(in->banned.keys) >= RP_OWN_BANNED) {
		in->banned.all = true;
		return;
	}
	b = calloc(1, sizeof(*b));
	if (b) {
		b->key = key;
		HASH_ADD(hh, in->banned.keys, key, sizeof(b->key), b);
	}
	if (!b || oom) {
		free(b);
		in->banned.all = true;
	}
}

static struct rp_own_key *find_key(const struct rp_peer *p, uint64_t key)
{
	struct rp_own_key *k;

	HASH_FIND(hh, p->own.keys, &key, sizeof(key), k);
	return k;
}

/* NULL: no memory, and then nothing is done without the agent any more. */
static struct rp_own_key *make_key(struct rp_peer *p, uint64_t key)
{
	struct rp_own_key *k = find_key(p, key);
	bool oom = false;

	if (k)
		return k;
	k = calloc(1, sizeof(*k));
	if (k) {
		k->key = key;
		HASH_ADD(hh, p->own.keys, key, sizeof(k->key), k);
	}
	if (!k || oom) {
		free(k);
		p->own.off = true;
		return NULL;
	}
	return k;
}

void rp_own_written(struct rp_peer *p, uint64_t key)
{
	if (!p->in->attr.own || (p->own.last && p->own.last->key == key))
		return;
	p->own.last = make_key(p, key);
}

void rp_write_by_cpu(struct rp_write *w)
{
	struct rp_peer *p = w->peer;
	struct rp_own_key *k;

	if (!p->in->attr.own)
		return;
	ban(p->in, w->key);
	k = find_key(p, w->key);
	if (k)
		k->grant = RP_METHOD_REFUSED;
}

void rp_own_forget(struct rp_peer *p)
{
	struct rp_own_key *k, *tmp;

	HASH_ITER(hh, p->own.keys, k, tmp)
	{
		k->grant = RP_METHOD_REFUSED;
		k->asked = false;
	}
}

bool rp_own_may(const struct rp_peer *p, uint64_t key)
{
	const struct rp_own_key *k;

	if (!p->in->attr.own || p->own.off || is_banned(p->in, key) ||
	    !(p->features & RP_FEATURE_OWN))
		return false;
	k = find_key(p, key);
	return !k || !k->asked || k->grant != RP_METHOD_REFUSED;
}

void rp_own_lost(struct rp_peer *p)
{
	struct rp_own_key *k, *tmp;

	if (!p->in->attr.own)
		return;
	HASH_ITER(hh, p->own.keys, k, tmp)
	ban(p->in, k->key);
	p->in->banned.all |= p->own.off;
	forget_keys(p);
}

void rp_own_answered(struct rp_peer *p, const struct rp_wire_range *ranges,
		     size_t n, enum rp_class required,
		     const struct rp_wire_reply *m)
{
	enum rp_method forced = p->in->attr.forced;
	bool taken = m->grant && (!forced || forced == m->grant);
	struct rp_own_key *k;

	if (!p->in->attr.own || m->level != RP_LEVEL_DURABLE)
		return;
	k = find_key(p, ranges[0].key);
	if (k)
		k->asked = true;
	/* Not any more, should it have been otherwise. */
	for (size_t i = 0; i < n && !taken; i++) {
		k = find_key(p, ranges[i].key);
		if (k && k->class >= required)
			k->grant = RP_METHOD_REFUSED;
	}
	if (!taken || is_banned(p->in, ranges[0].key))
		return;
	k = make_key(p, ranges[0].key);
	if (!k)
		return;
	k->asked = true;
	k->by = (enum rp_method)m->method;
	k->grant = (enum rp_method)m->grant;
	k->class = (enum rp_class)m->class;
	k->addr = m->addr;
	k->len = m->length;
}

size_t rp_own_slice(const struct rp_commit *c, size_t first, size_t n)
{
	const struct rp_peer *p = c->peer;
	const struct rp_own_key *k;

	if (!p->in->attr.own || p->own.off || c->effect ||
	    c->level != RP_LEVEL_DURABLE)
		return n;
	for (size_t i = first + 1; i < first + n; i++) {
		if (c->ranges[i].key == c->ranges[i - 1].key)
			continue;
		k = find_key(p, c->ranges[i].key);
		if (k && !k->asked && !is_banned(p->in, k->key))
			return i - first;
	}
	return n;
}

/* What the agent has confirmed for this range; NULL: it must be asked. */
static struct rp_own_key *granted(const struct rp_commit *c,
				  const struct rp_wire_range *g)
{
	struct rp_own_key *k = find_key(c->peer, g->key);

	if (!k || k->grant == RP_METHOD_REFUSED || k->class < c->required ||
	    !rp_range_inside(g->addr, g->len, k->addr, k->len))
		return NULL;
	return k;
}

static bool has_fence(const struct rp_commit *c, uint64_t key)
{
	const struct rp_fence *f;

	TAILQ_FOREACH (f, &c->fences, of_commit)
		if (f->key == key)
			return true;
	return false;
}

static void fence_free(struct rp_fence *f)
{
	struct rp_own *o = &f->peer->own;

	if (f->commit)
		TAILQ_REMOVE(&f->commit->fences, f, of_commit);
	TAILQ_REMOVE(f->posted ? &o->posted : &o->queue, f, link);
	free(f);
}

void rp_own_orphan(struct rp_commit *c)
{
	struct rp_fence *f;

	while ((f = TAILQ_FIRST(&c->fences))) {
		if (!f->posted) {
			fence_free(f);
			continue;
		}
		/* The base still has it. */
		TAILQ_REMOVE(&c->fences, f, of_commit);
		f->commit = NULL;
	}
}

/* Inside the range: one of no bytes, or past its end, might stay short of it.
 */
static int make_fence(struct rp_commit *c, const struct rp_wire_range *g)
{
	struct rp_fence *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->peer = c->peer;
	f->commit = c;
	f->key = g->key;
	f->addr = g->addr;
	f->len = g->len < FENCE_LEN ? g->len : FENCE_LEN;
	TAILQ_INSERT_TAIL(&c->fences, f, of_commit);
	TAILQ_INSERT_TAIL(&c->peer->own.queue, f, link);
	return 0;
}

int rp_own_post(struct rp_peer *p)
{
	struct rp_xport *x = p->in->x;
	struct rp_fence *f;
	int ret;

	while ((f = TAILQ_FIRST(&p->own.queue))) {
		ret = x->ops->fence(x, p->addr, rp_key_base(f->key), f->addr,
				    f->len, f);
		if (ret)
			return ret;
		f->posted = true;
		TAILQ_REMOVE(&p->own.queue, f, link);
		TAILQ_INSERT_TAIL(&p->own.posted, f, link);
	}
	return 0;
}

void rp_fence_done(struct rp_fence *f, int err)
{
	struct rp_peer *p = f->peer;
	struct rp_commit *c = f->commit;
	struct rp_initiator *in = p->in;

	fence_free(f);
	if (err) {
		rp_own_lost(p);
		if (c)
			rp_commit_fail(c, RP_ST_WRITE_FAILED, 0, 0);
	} else if (c) {
		p->alive_at = in->x->ops->now(in->x);
		rp_commit_check(c);
	}
	/* As with writes, progress tells. */
	if (!TAILQ_EMPTY(&in->done))
		in->x->ops->kick(in->x);
	if (p->forgotten)
		rp_peer_release(p);
}

/*
 * Would this commit, started now, be ended by its writes and fences? Only where
 * that is cheaper, too: each region needs a fence of its own.
 */
static bool may_take(const struct rp_commit *c, enum rp_method *method,
		     enum rp_class *class)
{
	struct rp_peer *p = c->peer;
	const struct rp_cost *cost = p->in->attr.cost;
	const uint64_t count = ++p->own.counts;
	uint64_t flush = 0;
	size_t fences = 0;
	struct rp_own_key *k;

	*method = RP_METHOD_DELIVERY;
	*class = RP_CLASS_POWER;
	if (!p->in->attr.own || p->own.off || c->effect ||
	    c->level != RP_LEVEL_DURABLE)
		return false;
	for (size_t i = 0; i < c->nranges; i++) {
		k = granted(c, &c->ranges[i]);
		if (!k)
			return false;
		flush += rp_cost_flush(cost, k->by, c->ranges[i].len);
		if (k->grant == RP_METHOD_FENCE) {
			*method = RP_METHOD_FENCE;
			fences += k->counted != count;
			k->counted = count;
		}
		if (k->class < *class)
			*class = k->class;
	}
	return rp_cost_fences(cost, p->in->attr.path, fences) <=
	       rp_cost_ask(cost, p->in->attr.path, flush);
}

bool rp_commit_fences(const struct rp_commit *c)
{
	const struct rp_peer *p = c->peer;
	enum rp_method method;
	enum rp_class class;

	return !p->link.ngathered && may_take(c, &method, &class) &&
	       method == RP_METHOD_FENCE && TAILQ_EMPTY(&p->own.queue) &&
	       !p->poison.n && !p->poison_all;
}

bool rp_own_take(struct rp_commit *c)
{
	const struct rp_own_key *k;
	enum rp_method method;
	enum rp_class class;

	if (!may_take(c, &method, &class))
		return false;
	for (size_t i = 0; i < c->nranges; i++) {
		k = granted(c, &c->ranges[i]);
		if (k->grant != RP_METHOD_FENCE || has_fence(c, k->key))
			continue;
		if (make_fence(c, &c->ranges[i])) {
			rp_own_orphan(c);
			return false;
		}
	}
	c->own = true;
	c->asked = c->nranges;
	c->out.method = method;
	c->out.class = class;
	return true;
}
