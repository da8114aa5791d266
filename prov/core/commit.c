// SPDX-License-Identifier: BSD-2-Clause
/* One commit from reservation to its one completion, and the writes it covers.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/initiator.h"
#include "core/log.h"

/* before: one that is good; NULL: there is none. */
static int check_range(const struct rp_wire_range *g,
		       const struct rp_wire_range *before)
{
	struct rp_key k;

	if (!g->len) {
		rp_log(RP_LOG_WARN, "a range to commit is empty");
		return -EINVAL;
	}
	if (g->addr + g->len < g->addr) {
		rp_log(RP_LOG_WARN,
		       "a range to commit wraps: %#" PRIx64
		       " bytes at %#" PRIx64,
		       g->len, g->addr);
		return -EINVAL;
	}
	if (before && before->key == g->key)
		return 0;
	if (rp_key_parse(g->key, &k))
		return -EKEYREJECTED;
	return k.persistent ? 0 : -ENOTSUP;
}

static int check_effect(const struct rp_commit_attr *attr)
{
	const struct rp_wire_range g = {
		.key = attr->then.key,
		.addr = attr->then.addr,
		.len = sizeof(attr->then.value),
	};

	if (attr->effect == RP_EFFECT_NONE)
		return 0;
	if (attr->level != RP_LEVEL_DURABLE) {
		rp_log(RP_LOG_WARN, "only a commit that makes durable can "
				    "store or notify behind that");
		return -EINVAL;
	}
	if (attr->effect == RP_EFFECT_STORE)
		return attr->nranges == 1 &&
				       attr->ranges[0].len <= RP_WIRE_MAX_STORE
			       ? 0
			       : -EINVAL;
	if (attr->effect == RP_EFFECT_NOTIFY)
		return 0;
	if (g.addr % g.len) {
		rp_log(RP_LOG_WARN,
		       "a store behind a commit must have an address that is "
		       "a multiple of 8, not %#" PRIx64,
		       g.addr);
		return -EINVAL;
	}
	return check_range(&g, NULL);
}

static void commit_free(struct rp_initiator *in, struct rp_commit *c)
{
	if (c->ranges != c->inline_ranges)
		free(c->ranges);
	if (!c->lent)
		free((void *)c->bytes);
	TAILQ_INSERT_HEAD(&in->free, c, link);
}

int rp_commit_reserve(struct rp_peer *p, const struct rp_commit_attr *attr,
		      struct rp_commit **out)
{
	struct rp_initiator *in = p->in;
	struct rp_wire_range *ranges = NULL;
	struct rp_commit *c;
	void *bytes = NULL; /* of our own */
	int ret;

	if (!attr->nranges)
		return -EINVAL;
	ret = check_effect(attr);
	if (ret)
		return ret;
	for (size_t i = 0; i < attr->nranges; i++) {
		ret = check_range(&attr->ranges[i],
				  i ? &attr->ranges[i - 1] : NULL);
		if (ret)
			return ret;
	}
	/* Those may wait for writes that were gathered, which wait for nobody.
	 */
	if (!attr->writes && in->outstanding >= in->attr.max_commits)
		return -EAGAIN;
	if (attr->given) {
		ranges = attr->given;
	} else if (attr->nranges > RP_COMMIT_INLINE) {
		ranges = calloc(attr->nranges, sizeof(*ranges));
		if (!ranges)
			return -ENOMEM;
	}
	/* The request may have to wait, and to be sent again. */
	if (attr->effect == RP_EFFECT_STORE && !attr->lent) {
		bytes = malloc(attr->ranges[0].len);
		if (!bytes)
			return -ENOMEM;
		memcpy(bytes, attr->bytes, attr->ranges[0].len);
	}
	c = TAILQ_FIRST(&in->free);
	if (c) {
		TAILQ_REMOVE(&in->free, c, link);
	} else {
		c = malloc(sizeof(*c));
		if (!c) {
			free(bytes);
			if (!attr->given)
				free(ranges);
			return -ENOMEM;
		}
	}
	memset(c, 0, sizeof(*c));
	TAILQ_INIT(&c->reqs);
	TAILQ_INIT(&c->fences);
	c->peer = p;
	c->ranges = ranges ? ranges : c->inline_ranges;
	if (!attr->given)
		memcpy(c->ranges, attr->ranges,
		       attr->nranges * sizeof(*c->ranges));
	c->nranges = attr->nranges;
	c->level = attr->level;
	c->required = attr->required;
	c->effect = attr->effect;
	c->then = attr->then;
	c->data = attr->data;
	c->bytes = attr->lent ? attr->bytes : bytes;
	c->lent = attr->lent;
	c->writes = attr->writes;
	c->out.required = attr->required;
	c->out.class = RP_CLASS_POWER; /* the weakest answer lowers it */
	c->done = attr->done;
	c->arg = attr->arg;
	in->outstanding += !c->writes;
	*out = c;
	return 0;
}

void rp_commit_unreserve(struct rp_commit *c)
{
	struct rp_initiator *in = c->peer->in;

	in->outstanding -= !c->writes;
	commit_free(in, c);
}

static bool stores(const struct rp_commit *c)
{
	return c->effect == RP_EFFECT_THEN || c->effect == RP_EFFECT_STORE ||
	       c->by_link == RP_LINK_WRITE;
}

/* The commit has its outcome: off the peer's list, onto the list to be told. */
static void commit_end(struct rp_commit *c)
{
	struct rp_peer *p = c->peer;

	if (p->unplaced == c)
		p->unplaced = TAILQ_NEXT(c, link);
	TAILQ_REMOVE(&p->commits, c, link);
	TAILQ_INSERT_TAIL(&p->in->done, c, link);
	p->stores -= stores(c);
	rp_peer_unwait(p);
}

void rp_commit_fail(struct rp_commit *c, enum rp_status st, uint32_t detail,
		    uint64_t range)
{
	struct rp_req *r;

	c->out.status = st;
	c->out.detail = detail;
	c->out.range = range;
	/* What is still queued must not be sent for a commit that has ended. */
	while ((r = TAILQ_FIRST(&c->reqs)))
		rp_req_orphan(r);
	rp_own_orphan(c);
	rp_link_orphan(c);
	commit_end(c);
}

/* May it have had its effect, or still get it? */
static bool in_doubt(const struct rp_commit *c)
{
	const struct rp_req *r;

	TAILQ_FOREACH (r, &c->reqs, of_commit)
		if (r->copies)
			return true;
	return false;
}

void rp_commits_fail_all(struct rp_peer *p, enum rp_status st, uint32_t detail)
{
	struct rp_commit *c;

	while ((c = TAILQ_FIRST(&p->commits))) {
		c->store.doubt |= in_doubt(c);
		/* A write that fails may have arrived: that is no news. */
		if (c->effect != RP_EFFECT_STORE && st != RP_ST_CANCELED &&
		    in_doubt(c))
			rp_commit_fail(c, RP_ST_UNSURE, st, 0);
		else
			rp_commit_fail(c, st, detail, 0);
	}
}

/* How many ranges the next request takes. *last: and the effect, if any. */
static size_t slice(const struct rp_commit *c, bool *last)
{
	size_t left = c->nranges - c->asked;
	size_t max =
		c->effect ? RP_WIRE_MAX_EFFECT_RANGES
			  : rp_peer_slice(c->peer, &c->ranges[c->asked], left);

	*last = left <= max;
	if (*last)
		return left;
	if (!c->effect)
		return max;
	/* At least one is left for the request that has the effect. */
	return left > RP_WIRE_MAX_RANGES ? RP_WIRE_MAX_RANGES : left - 1;
}

/*
 * Ask for what has not been asked for. An effect must not be had before all
 * ranges are durable: the request that has it waits until the others have been
 * answered, and this is called again.
 */
static int commit_queue(struct rp_commit *c)
{
	struct rp_req *r;
	bool last;

	while (c->asked < c->nranges) {
		size_t n = rp_own_slice(c, c->asked, slice(c, &last));

		if (c->effect && last && !TAILQ_EMPTY(&c->reqs))
			return 0;
		r = rp_req_new(c->peer, c);
		if (!r)
			return -ENOMEM;
		r->first = c->asked;
		r->n = n;
		r->effect = c->effect && last && !c->tainted;
		c->asked += n;
	}
	return 0;
}

void rp_commit_reroute(struct rp_commit *c)
{
	c->linked = NULL;
	c->by_link = RP_LINK_NONE;
	c->asked = 0;
	/* What it covers is in its place, or is lost as well and fails it. */
	if (commit_queue(c))
		rp_commit_fail(c, RP_ST_NO_MEMORY, 0, 0);
}

/* The target has answered, behind all writes that were posted before. */
static void agent_answered(const struct rp_commit *c)
{
	struct rp_peer *p = c->peer;
	uint64_t key = 0;

	if (!p->in->attr.links || c->own || c->by_link ||
	    c->level != RP_LEVEL_DURABLE)
		return;
	/* It stands behind nothing but itself. */
	if (c->effect == RP_EFFECT_STORE) {
		rp_link_want(p, c->ranges[0].key);
		return;
	}
	for (size_t i = 0; i < c->nranges; i++) {
		if (c->ranges[i].key == key)
			continue;
		key = c->ranges[i].key;
		rp_link_settled(p, key, c->barrier);
		rp_link_want(p, key);
	}
}

/*
 * The rule that makes a commit true: every covered write is known to have been
 * placed, and every range was flushed after that by the target that has the
 * key, or read from behind the writes over a connection that is known to be
 * the one that the target has confirmed the key on.
 */
void rp_commit_check(struct rp_commit *c)
{
	if (!c->placed || !TAILQ_EMPTY(&c->reqs) || !TAILQ_EMPTY(&c->fences) ||
	    c->linked)
		return;
	if (c->asked == c->nranges && c->tainted)
		rp_commit_fail(c, RP_ST_WRITE_FAILED, 0, c->out.range);
	else if (c->asked == c->nranges) {
		agent_answered(c);
		commit_end(c);
	} else if (commit_queue(c))
		rp_commit_fail(c, RP_ST_NO_MEMORY, 0, 0);
}

/*
 * Without order on the wire a request waits until the writes before it have
 * been acknowledged. So does one with an effect, whatever the order: what it
 * does cannot be taken back when one of them turns out to have been lost. And
 * so does one that covers what went over a connection of our own, which it may
 * overtake. An inline store has nothing to do with any of them.
 */
static bool must_wait(const struct rp_commit *c)
{
	return !c->own && !c->by_link && c->effect != RP_EFFECT_STORE &&
	       (!c->peer->in->attr.ordered || c->effect ||
		c->peer->link.ngathered);
}

/* First write under way has this seq; older commits are placed. */
static uint64_t first_unplaced(const struct rp_peer *p)
{
	const struct rp_write *w = TAILQ_FIRST(&p->writes);

	return w ? w->seq : p->next_seq;
}

/*
 * Move the mark past every commit whose writes have all been acknowledged. True
 * when there is something to send for that.
 */
static bool mark_placed(struct rp_peer *p)
{
	uint64_t seq = first_unplaced(p);
	bool queued = false;
	struct rp_commit *c;

	while ((c = p->unplaced) && (c->placed || c->barrier <= seq)) {
		p->unplaced = TAILQ_NEXT(c, link);
		c->placed = true;
		if (!c->waits) {
			rp_commit_check(c);
			continue;
		}
		if (commit_queue(c))
			rp_commit_fail(c, RP_ST_NO_MEMORY, 0, 0);
		else
			queued = true;
	}
	return queued;
}

/* Does the commit want bytes of the set? *range: the first that does. */
static bool wants(const struct rp_commit *c, const struct rp_ranges *set,
		  uint64_t *range)
{
	for (size_t i = 0; i < c->nranges; i++) {
		const struct rp_wire_range *g = &c->ranges[i];

		if (rp_ranges_overlap(set, g->key, g->addr, g->len)) {
			*range = i;
			return true;
		}
	}
	return false;
}

/*
 * Does the commit want poisoned bytes? Not those that a later write under way
 * replaces: should that fail, it fails the commit.
 */
static bool poisoned(const struct rp_peer *p, const struct rp_commit *c,
		     uint64_t *range)
{
	const struct rp_ranges *all = &p->poison;
	const struct rp_write *w;
	struct rp_ranges left;
	bool hit = true;

	*range = 0;
	if (p->poison_all)
		return true;
	if (!all->n || !wants(c, all, range))
		return false;

	rp_ranges_init(&left, 0);
	for (size_t i = 0; i < all->n; i++)
		if (rp_ranges_insert(&left, all->v[i].space, all->v[i].start,
				     all->v[i].end - all->v[i].start,
				     all->v[i].stamp))
			goto fini;
	TAILQ_FOREACH (w, &p->writes, link)
		rp_ranges_clear(&left, w->key, w->addr, w->len, w->seq);
	hit = wants(c, &left, range);
fini:
	rp_ranges_fini(&left);
	return hit;
}

static void write_begin(struct rp_peer *p, struct rp_write *w, uint64_t key,
			uint64_t addr, uint64_t len)
{
	w->peer = p;
	w->seq = p->next_seq++;
	w->key = key;
	w->addr = addr;
	w->len = len;
	w->doubt = false;
	w->linked = false;
	w->gathered = false;
	w->told = false;
	p->nwrites++;
	p->unplaced_bytes += len;
	TAILQ_INSERT_TAIL(&p->writes, w, link);
}

static void begin_store(struct rp_commit *c)
{
	const struct rp_wire_range *g = &c->ranges[0];

	if (c->effect == RP_EFFECT_THEN)
		write_begin(c->peer, &c->store, c->then.key, c->then.addr,
			    sizeof(c->then.value));
	else
		write_begin(c->peer, &c->store, g->key, g->addr, g->len);
	c->store.linked = c->by_link;
	c->peer->link.nwrites += c->store.linked;
	if (!c->by_link)
		rp_own_written(c->peer, c->store.key);
}

static bool overlaps(const struct rp_wire_range *g, const struct rp_write *w)
{
	return g->key == w->key &&
	       (g->addr < w->addr ? w->addr - g->addr < g->len
				  : g->addr - w->addr < w->len);
}

/*
 * May what is stored there be undone by a write that nobody waits for any more?
 * Not by one that was lost and cannot come.
 */
static bool undone(const struct rp_peer *p, const struct rp_wire_range *g)
{
	const struct rp_range *v = p->poison.v;
	const struct rp_write *w;

	for (size_t i = 0; i < p->poison.n; i++)
		if (v[i].stamp >= RP_PEER_NEVER && v[i].space == g->key &&
		    v[i].start < g->addr + g->len && g->addr < v[i].end)
			return true;
	/* Those whose end has not been told yet. */
	if (p->doubt || p->link.doubt || p->told)
		TAILQ_FOREACH (w, &p->writes, link)
			if ((w->doubt || w->told) && overlaps(g, w))
				return true;
	return false;
}

/* A store behind a commit, to bytes that are not safe to store to? */
static bool stores_in_doubt(const struct rp_commit *c)
{
	const struct rp_wire_range g = {
		.key = c->then.key,
		.addr = c->then.addr,
		.len = sizeof(c->then.value),
	};

	return c->effect == RP_EFFECT_THEN && undone(c->peer, &g);
}

void rp_commit_start(struct rp_commit *c)
{
	struct rp_peer *p = c->peer;
	uint64_t range;
	bool bad;

	c->barrier = p->next_seq;
	c->incarnation = p->incarnation;
	TAILQ_INSERT_TAIL(&p->commits, c, link);
	if (!p->unplaced)
		p->unplaced = c;
	rp_peer_wait(p);
	/* All the bytes that it covers are its own. */
	c->placed = c->effect == RP_EFFECT_STORE ||
		    c->by_link == RP_LINK_WRITE || c->by_link == RP_LINK_GATHER;
	bad = !c->placed && poisoned(p, c, &range);
	if (!bad && stores_in_doubt(c)) {
		bad = true;
		range = c->nranges;
	}
	/*
	 * Once it is answered, what may be under way is not any more: so it is
	 * asked for, though it can but fail, and without its effect.
	 */
	if (bad && p->doubt) {
		c->tainted = true;
		c->out.range = range;
		bad = false;
	}
	/* It does not cover its own store; whoever comes later does. */
	if (stores(c)) {
		p->stores++;
		begin_store(c);
	}

	if (bad) {
		rp_commit_fail(c, RP_ST_WRITE_FAILED, 0, range);
	} else if (c->by_link) {
		mark_placed(p);
	} else if (!c->tainted && !p->link.ngathered && rp_own_take(c)) {
		mark_placed(p);
		rp_peer_fence(p);
	} else if (c->waits = must_wait(c), !c->waits && commit_queue(c)) {
		rp_commit_fail(c, RP_ST_NO_MEMORY, 0, 0);
	} else {
		mark_placed(p);
		rp_peer_send(p);
	}
	if (p->link.asked || p->link.doubt)
		rp_link_tend(p, p->in->x->ops->now(p->in->x));
	/* Its completion is told from progress, never from inside the post. */
	if (!TAILQ_EMPTY(&p->in->done))
		p->in->x->ops->kick(p->in->x);
}

/*
 * What the program does next must not overtake the bytes, so they do not wait
 * for the base here: the program waits.
 */
int rp_commit_start_store(struct rp_commit *c)
{
	struct rp_peer *p = c->peer;
	struct rp_req *r;
	int ret;

	rp_commit_start(c);
	r = TAILQ_FIRST(&c->reqs);
	if (!r && c->out.status == RP_ST_SEND_FAILED) {
		/* As the base would have said of a write. */
		ret = -(int)c->out.detail;
		TAILQ_REMOVE(&p->in->done, c, link);
		rp_write_undo(&c->store);
		rp_commit_unreserve(c);
		return ret;
	}
	if (!r || r->state == RP_REQ_SENT)
		return 0;
	/* The number that it got is the last one, and nobody has seen it. */
	if (r->seq)
		p->next_effect--;
	rp_req_free(r);
	TAILQ_REMOVE(&p->commits, c, link);
	p->stores--;
	rp_write_undo(&c->store);
	rp_peer_unwait(p);
	rp_commit_unreserve(c);
	return -EAGAIN;
}

int rp_commit_post(struct rp_peer *p, const struct rp_commit_attr *attr)
{
	struct rp_commit *c;
	int ret = rp_commit_reserve(p, attr, &c);

	if (ret)
		return ret;
	if (attr->effect == RP_EFFECT_STORE)
		return rp_commit_start_store(c);
	rp_commit_start(c);
	return 0;
}

void rp_commit_answer(struct rp_commit *c, size_t first, size_t n,
		      const struct rp_wire_reply *m, uint64_t incarnation)
{
	enum rp_status st = m->status;

	if (st != RP_ST_OK) {
		/* "Unknown key" helps nobody whose target has just restarted.
		 */
		if ((st == RP_ST_UNKNOWN_KEY || st == RP_ST_STALE_KEY) &&
		    c->incarnation && c->incarnation != incarnation)
			st = RP_ST_PEER_RESTARTED;
		/* The store stands behind the last of them. */
		n += c->effect == RP_EFFECT_THEN && first + n == c->nranges;
		rp_commit_fail(c, st, m->detail,
			       first + (m->range < n ? m->range : 0));
		return;
	}
	/* An answer that says less than was asked is not a yes. */
	if (m->level < c->level ||
	    (c->level == RP_LEVEL_DURABLE && m->class < c->required)) {
		rp_commit_fail(c, RP_ST_CLASS, m->class, first);
		return;
	}
	if (m->class < c->out.class)
		c->out.class = m->class;
	c->out.method = m->method;
	rp_own_answered(c->peer, &c->ranges[first], n, c->required, m);
	rp_commit_check(c);
}

static void write_done(struct rp_write *w, int err);

bool rp_commits_tell(struct rp_initiator *in)
{
	struct rp_commit *c;
	bool any = false;

	while ((c = TAILQ_FIRST(&in->done))) {
		TAILQ_REMOVE(&in->done, c, link);
		in->outstanding -= !c->writes;
		/* Fails those that cover it, which are told next. */
		if (stores(c)) {
			write_done(&c->store, c->out.status);
			in->stored = true;
		}
		/* Whose writes end now. */
		in->stored |= c->writes != NULL;
		c->done(c->arg, &c->out);
		commit_free(in, c);
		any = true;
	}
	return any;
}

/*
 * What may have been under way has arrived by now, or never will: its session
 * has ended at the target, which has answered in a later one. From here on a
 * write replaces it. One that was begun before may have been overtaken.
 */
void rp_peer_doubt_ends(struct rp_peer *p)
{
	for (size_t i = 0; i < p->poison.n; i++)
		if (p->poison.v[i].stamp == RP_PEER_DOUBT)
			p->poison.v[i].stamp = p->next_seq - 1;
	p->doubt = false;
}

void rp_write_begin(struct rp_peer *p, struct rp_write *w, uint64_t key,
		    uint64_t addr, uint64_t len)
{
	write_begin(p, w, key, addr, len);
	rp_own_written(p, key);
	rp_link_written(p, key, w->seq);
}

static void write_end(struct rp_write *w)
{
	struct rp_peer *p = w->peer;

	TAILQ_REMOVE(&p->writes, w, link);
	p->nwrites--;
	p->link.nwrites -= w->linked;
	p->link.ngathered -= w->gathered;
	p->unplaced_bytes -= w->len;
	/* Sending and telling is progress's, not the base's completion's. */
	if (mark_placed(p) || !TAILQ_EMPTY(&p->in->done))
		p->in->x->ops->kick(p->in->x);
	if (p->forgotten)
		rp_peer_release(p);
}

void rp_link_gather(struct rp_peer *p, struct rp_write *w, uint64_t key,
		    uint64_t addr, uint64_t len)
{
	write_begin(p, w, key, addr, len);
	w->linked = w->gathered = true;
	p->link.nwrites++;
	p->link.ngathered++;
}

void rp_write_told(struct rp_write *w)
{
	w->told = true;
	w->peer->told = true;
}

void rp_write_undo(struct rp_write *w)
{
	write_end(w);
}

bool rp_peer_store_overlaps(const struct rp_peer *p, uint64_t key,
			    uint64_t addr, uint64_t len)
{
	const struct rp_wire_range g = {.key = key, .addr = addr, .len = len};
	const struct rp_commit *c;
	const struct rp_write *w;

	if (p->stores)
		TAILQ_FOREACH (c, &p->commits, link)
			if (stores(c) && overlaps(&g, &c->store))
				return true;
	if (p->link.ngathered)
		TAILQ_FOREACH (w, &p->writes, link)
			if (w->gathered && overlaps(&g, w))
				return true;
	return false;
}

bool rp_peer_write_overlaps(const struct rp_peer *p,
			    const struct rp_wire_range *g)
{
	unsigned int looked = 0;
	const struct rp_write *w;

	TAILQ_FOREACH (w, &p->writes, link)
		if (!w->linked && (overlaps(g, w) || ++looked > RP_PEER_LOOK))
			return true;
	return false;
}

bool rp_peer_may_store(const struct rp_peer *p, uint64_t key, uint64_t addr,
		       uint64_t len)
{
	const struct rp_wire_range g = {.key = key, .addr = addr, .len = len};
	unsigned int looked = 0;
	const struct rp_write *w;

	if (len > p->in->attr.store_max || !(p->features & RP_FEATURE_STORE) ||
	    !rp_peer_sends_at_once(p) || p->doubt || p->poison_all ||
	    rp_own_may(p, key) || rp_link_would(p, key) || undone(p, &g))
		return false;
	TAILQ_FOREACH (w, &p->writes, link)
		if (overlaps(&g, w) || ++looked > RP_PEER_LOOK)
			return false;
	return true;
}

/* A write failed: no commit that covers it may succeed, now or later. */
static void poison(struct rp_peer *p, const struct rp_write *w)
{
	struct rp_commit *c, *tmp;
	uint64_t stamp = w->seq;

	if (w->told)
		stamp = p->next_seq - 1;
	if (w->doubt)
		stamp = w->linked ? RP_PEER_LINK_DOUBT : RP_PEER_DOUBT;
	if (rp_ranges_insert(&p->poison, w->key, w->addr, w->len, stamp))
		p->poison_all = true;
	p->doubt |= stamp == RP_PEER_DOUBT;
	p->link.doubt |= stamp == RP_PEER_LINK_DOUBT;
	/* Those before are placed: they do not cover what was under way. */
	for (c = p->unplaced; c; c = tmp) {
		tmp = TAILQ_NEXT(c, link);
		if (c->placed || c->barrier <= w->seq)
			continue;
		for (size_t i = 0; i < c->nranges; i++) {
			if (!overlaps(&c->ranges[i], w))
				continue;
			rp_commit_fail(c, RP_ST_WRITE_FAILED, 0, i);
			break;
		}
	}
}

static void write_done(struct rp_write *w, int err)
{
	struct rp_peer *p = w->peer;
	const struct rp_commit *c = TAILQ_FIRST(&p->commits);

	/*
	 * What we wait for may have been held up by this write. Later ones do
	 * not count: they say nothing about who should have answered since.
	 */
	if (!err && p->waiting && w->seq < (c ? c->barrier : p->query_seq))
		p->alive_at = p->in->x->ops->now(p->in->x);
	if (err || w->told)
		poison(p, w);
	else {
		/* Written again; when that fails to split, it stays poisoned.
		 */
		if (p->poison.n)
			rp_ranges_clear(&p->poison, w->key, w->addr, w->len,
					w->seq);
		if (p->in->orphans.n && !p->forgotten)
			rp_ranges_clear(&p->in->orphans, w->key, w->addr,
					w->len, w->seq);
	}
	write_end(w);
}

void rp_write_done(struct rp_write *w, int err)
{
	/* Its connection, or its key; not so over one of our own. */
	if (err && !w->gathered)
		rp_own_lost(w->peer);
	write_done(w, err);
}
