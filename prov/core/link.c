// SPDX-License-Identifier: BSD-2-Clause
/* Connections of our own, at the initiator: asked for, used, given up. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/initiator.h"
#include "core/log.h"

/* A read needs no more to push what was written before it. */
#define FENCE_LEN 8
/* The longest range that a FLUSH has. */
#define FLUSH_LEN (1ull << 31)

/* After a failure the next is asked for later, and later still. */
#define PAUSE_NS     20000000ull
#define AGAIN_NS     1000000ull
#define MAX_DOUBLING 8

static uint64_t now(const struct rp_peer *p)
{
	return p->in->x->ops->now(p->in->x);
}

void rp_link_init(struct rp_peer *p)
{
	TAILQ_INIT(&p->link.posted);
}

static void forget_grants(struct rp_link *l)
{
	struct rp_link_grant *g, *next;

	for (g = l->grants; g; g = next) {
		next = g->hh.next;
		HASH_DEL(l->grants, g);
		free(g);
	}
}

void rp_link_fini(struct rp_peer *p)
{
	struct rp_link_mixed *m, *next;

	forget_grants(&p->link);
	for (m = p->link.mixed; m; m = next) {
		next = m->hh.next;
		HASH_DEL(p->link.mixed, m);
		free(m);
	}
}

static struct rp_link_grant *find_grant(const struct rp_link *l, uint64_t key)
{
	struct rp_link_grant *g;

	HASH_FIND(hh, l->grants, &key, sizeof(key), g);
	return g;
}

/* Of this key, empty; NULL: no memory, or too many. */
static struct rp_link_grant *make_grant(struct rp_link *l, uint64_t key)
{
	struct rp_link_grant *g = find_grant(l, key);
	bool oom = false;

	if (!g && HASH_COUNT(l->grants) < RP_LINK_GRANTS) {
		g = calloc(1, sizeof(*g));
		if (!g)
			return NULL;
		g->key = key;
		HASH_ADD(hh, l->grants, key, sizeof(g->key), g);
		if (oom) {
			free(g);
			g = NULL;
		}
	}
	return g;
}

static struct rp_link_mixed *find_mixed(const struct rp_link *l, uint64_t key)
{
	struct rp_link_mixed *m;

	HASH_FIND(hh, l->mixed, &key, sizeof(key), m);
	return m;
}

void rp_link_written(struct rp_peer *p, uint64_t key, uint64_t seq)
{
	struct rp_link *l = &p->link;
	struct rp_link_mixed *m;
	bool oom = false;

	if (!p->in->attr.links || l->mixed_all)
		return;
	/* Then its acknowledgement says as much as the agent's answer. */
	if (p->state == RP_SESSION_OPEN && p->features & RP_FEATURE_PLACED)
		return;
	m = find_mixed(l, key);
	if (!m && HASH_COUNT(l->mixed) < RP_LINK_GRANTS) {
		m = calloc(1, sizeof(*m));
		if (m) {
			m->key = key;
			HASH_ADD(hh, l->mixed, key, sizeof(m->key), m);
			if (oom) {
				free(m);
				m = NULL;
			}
		}
	}
	if (m)
		m->seq = seq;
	else
		l->mixed_all = true;
}

void rp_link_settled(struct rp_peer *p, uint64_t key, uint64_t seq)
{
	struct rp_link_mixed *m = find_mixed(&p->link, key);

	if (!m || m->seq >= seq)
		return;
	HASH_DEL(p->link.mixed, m);
	free(m);
}

/* The devices of both ends FLUSH over connections of our own. */
static bool flushes(const struct rp_peer *p)
{
	return p->in->attr.native && (p->features & RP_FEATURE_NATIVE);
}

/* A key says how its region is best made durable: a hint, to ask or not. */
static enum rp_method hint(const struct rp_peer *p, uint64_t key)
{
	struct rp_key k;

	if (rp_key_parse(key, &k) || !k.persistent)
		return RP_METHOD_REFUSED;
	/* What else such a region is offered for is not known before. */
	if (k.method == RP_METHOD_NATIVE && !flushes(p))
		return RP_METHOD_AGENT_CLWB;
	return k.method;
}

static void ask(struct rp_peer *p)
{
	struct rp_link *l = &p->link;
	struct rp_wire_hdr hdr = {
		.session = p->their_cookie,
		.incarnation = p->incarnation,
	};
	const struct rp_wire_connect m = {.id = l->id, .key = l->asked};
	uint8_t msg[RP_WIRE_INJECT];
	uint64_t t = now(p);
	int len, ret;

	len = rp_wire_put_connect(msg, sizeof(msg), &hdr, &m);
	assert(len > 0);
	ret = p->in->x->ops->send(p->in->x, p->addr, msg, len);
	/* The base has no event that says "try again". */
	if (ret == -EAGAIN)
		l->due = t + AGAIN_NS;
	else
		l->due = t + p->in->attr.timeout_ns / RP_PEER_RESEND_PART;
}

/* For a new connection. The offer says as well that all before are gone. */
static void ask_first(struct rp_peer *p, uint64_t key)
{
	p->link.id++;
	p->link.state = RP_LINK_ASKED;
	p->link.asked = key;
	ask(p);
}

void rp_link_want(struct rp_peer *p, uint64_t key)
{
	struct rp_link *l = &p->link;

	if (!p->in->attr.links || !(p->features & RP_FEATURE_LINK) ||
	    p->state != RP_SESSION_OPEN || l->asked ||
	    !rp_method_linked(hint(p, key)))
		return;
	if (l->state == RP_LINK_DOWN) {
		if (now(p) >= l->due)
			ask_first(p, key);
		return;
	}
	if (find_grant(l, key) || HASH_COUNT(l->grants) >= RP_LINK_GRANTS) {
		return;
	}
	l->asked = key;
	ask(p);
}

/* The next may be asked for after a while. */
static void pause_asking(struct rp_peer *p)
{
	struct rp_link *l = &p->link;
	unsigned int n = l->fails < MAX_DOUBLING ? l->fails++ : MAX_DOUBLING;

	l->due = now(p) + (PAUSE_NS << n);
}

void rp_link_orphan(struct rp_commit *c)
{
	struct rp_linked *l = c->linked;

	if (!l)
		return;
	l->commit = NULL;
	c->linked = NULL;
	if (c->by_link == RP_LINK_COMMIT)
		return;
	/* Nobody knows what has become of it: not before the target says. */
	c->store.doubt = true;
	for (size_t i = 0; c->writes && i < c->nranges; i++)
		c->writes[i]->doubt = true;
	c->peer->link.doubt_key = c->ranges[0].key;
}

void rp_link_end(struct rp_peer *p)
{
	struct rp_xport *x = p->in->x;
	struct rp_link *l = &p->link;
	void *conn = l->conn;
	struct rp_commit *c;
	struct rp_linked *op;

	if (l->state == RP_LINK_DOWN)
		return;
	l->state = RP_LINK_DOWN;
	l->conn = NULL;
	l->asked = 0;
	forget_grants(l);
	pause_asking(p);
	while ((op = TAILQ_FIRST(&l->posted))) {
		TAILQ_REMOVE(&l->posted, op, link);
		op->peer = NULL;
		c = op->commit;
		/* It wrote nothing. */
		if (c && c->by_link == RP_LINK_COMMIT) {
			rp_commit_reroute(c);
			continue;
		}
		l->doubt = true;
		if (c)
			l->doubt_key = c->ranges[0].key;
		if (c)
			rp_commit_fail(c, RP_ST_WRITE_FAILED, 0, 0);
	}
	l->nposted = 0;
	l->asking = 0;
	l->bytes = 0;
	if (conn)
		x->ops->hang_up(x, conn);
	/* What has become of that is to be known soon. */
	if (l->doubt && p->state == RP_SESSION_OPEN)
		ask_first(p, l->doubt_key);
	if (!TAILQ_EMPTY(&p->in->done))
		x->ops->kick(x);
}

void rp_link_up(struct rp_peer *p)
{
	p->link.state = RP_LINK_UP;
	p->link.fails = 0;
}

void rp_link_broken(struct rp_peer *p)
{
	rp_log(RP_LOG_INFO, "peer %llu: the connection of its own has ended",
	       (unsigned long long)p->addr);
	rp_link_end(p);
}

static void others_gone(struct rp_peer *p)
{
	for (size_t i = 0; i < p->poison.n; i++)
		if (p->poison.v[i].stamp == RP_PEER_LINK_DOUBT)
			p->poison.v[i].stamp = p->next_seq - 1;
	p->link.doubt = false;
}

static void take_grant(struct rp_peer *p, const struct rp_wire_offer *m)
{
	enum rp_method forced = p->in->attr.forced;
	struct rp_link_grant *g = make_grant(&p->link, m->key);

	if (!g)
		return;
	g->conn = m->id;
	g->method = (enum rp_method)m->method;
	if ((forced && forced != g->method) ||
	    (g->method == RP_METHOD_NATIVE && !flushes(p)))
		g->method = RP_METHOD_REFUSED;
	g->class = (enum rp_class)m->class;
	g->there = m->there;
	g->at = m->at;
	g->addr = m->addr;
	g->len = m->length;
}

void rp_link_offered(struct rp_peer *p, const struct rp_wire_hdr *hdr,
		     const struct rp_wire_offer *m)
{
	struct rp_xport *x = p->in->x;
	struct rp_link *l = &p->link;

	if (p->state != RP_SESSION_OPEN || hdr->incarnation != p->incarnation ||
	    m->id != l->id || !l->asked || m->key != l->asked)
		return;
	l->asked = 0;
	/* Those that failed just now are poisoned when they are told. */
	rp_commits_tell(p->in);
	/* It has ended all those before, so nothing comes over them any more.
	 */
	if (l->state == RP_LINK_ASKED)
		others_gone(p);
	if (m->status == RP_ST_OK) {
		take_grant(p, m);
	} else if (l->state == RP_LINK_ASKED) {
		rp_link_end(p);
		return;
	} else {
		/* Asked, and not to be asked again. */
		make_grant(l, m->key);
	}
	if (l->state != RP_LINK_ASKED)
		return;
	l->state = RP_LINK_DIALED;
	l->dial_end = now(p) + p->in->attr.timeout_ns;
	if (x->ops->dial(x, p, m->to, m->addr_len, m->secret, &l->conn)) {
		l->conn = NULL;
		rp_link_end(p);
	}
}

/* How long what is under way may take. */
static uint64_t give_up_at(const struct rp_peer *p)
{
	const struct rp_initiator_attr *a = &p->in->attr;
	const struct rp_link *l = &p->link;
	double slack = 0;

	if (l->state == RP_LINK_DIALED)
		return l->dial_end;
	if (!l->nposted)
		return UINT64_MAX;
	if (a->slow_rate)
		slack = (double)l->bytes * 1e9 / (double)a->slow_rate;
	return l->alive_at + a->timeout_ns + (uint64_t)slack;
}

void rp_link_tend(struct rp_peer *p, uint64_t t)
{
	struct rp_link *l = &p->link;

	if (!p->in->attr.links || !l->id || p->state != RP_SESSION_OPEN)
		return;
	if (t >= give_up_at(p))
		rp_link_broken(p);
	if (l->state == RP_LINK_DOWN && l->doubt && t >= l->due)
		ask_first(p, l->doubt_key);
	else if (l->asked && t >= l->due)
		ask(p);
}

uint64_t rp_link_deadline(const struct rp_peer *p)
{
	const struct rp_link *l = &p->link;
	uint64_t due = give_up_at(p);

	if (p->state != RP_SESSION_OPEN)
		return due;
	if ((l->asked || (l->state == RP_LINK_DOWN && l->doubt)) &&
	    l->due < due)
		due = l->due;
	return due;
}

bool rp_link_would(const struct rp_peer *p, uint64_t key)
{
	const struct rp_link *l = &p->link;
	const struct rp_link_grant *g;

	if (!p->in->attr.links || !(p->features & RP_FEATURE_LINK) ||
	    !rp_method_linked(hint(p, key)) || rp_method_asks(hint(p, key)))
		return false;
	if (l->state != RP_LINK_UP)
		return !l->fails;
	g = find_grant(l, key);
	return !g || g->method != RP_METHOD_REFUSED;
}

/* Is a write to these bytes under way by another route? */
static bool crosses(const struct rp_peer *p, uint64_t key, uint64_t addr,
		    uint64_t len)
{
	const struct rp_wire_range g = {.key = key, .addr = addr, .len = len};

	return p->nwrites > p->link.nwrites && rp_peer_write_overlaps(p, &g);
}

/*
 * What the target has granted for these bytes, where nothing that else was
 * written to them may come later, or is in doubt. NULL: not over the
 * connection.
 */
static const struct rp_link_grant *fits(struct rp_peer *p, uint64_t key,
					uint64_t addr, uint64_t len,
					enum rp_class required)
{
	struct rp_link *l = &p->link;
	const struct rp_link_grant *g;

	if (l->state != RP_LINK_UP)
		return NULL;
	g = find_grant(l, key);
	if (!g) {
		rp_link_want(p, key);
		return NULL;
	}
	if (g->method == RP_METHOD_REFUSED || g->conn != l->id ||
	    g->class < required || !rp_range_inside(addr, len, g->addr, g->len))
		return NULL;
	/*
	 * What has another route may be overtaken, or come later than it was
	 * acknowledged, until the agent has answered behind it.
	 */
	if (l->mixed_all || find_mixed(l, key) || crosses(p, key, addr, len))
		return NULL;
	if (p->poison_all || p->doubt ||
	    rp_ranges_overlap(&p->poison, key, addr, len))
		return NULL;
	return g;
}

/*
 * Will the agent store to these bytes? It does when it looks at the message,
 * and a write behind that is in its place by then.
 */
static bool stored_later(const struct rp_link *l, uint64_t key, uint64_t addr,
			 uint64_t len)
{
	const struct rp_linked *op;

	TAILQ_FOREACH (op, &l->posted, link) {
		const struct rp_commit *c = op->commit;

		if (op->stores && !c)
			return true;
		for (size_t i = 0; op->stores && i < c->nranges; i++)
			if (c->ranges[i].key == key &&
			    c->ranges[i].addr < addr + len &&
			    addr < c->ranges[i].addr + c->ranges[i].len)
				return true;
	}
	return false;
}

bool rp_link_may(struct rp_peer *p, uint64_t key, uint64_t addr, uint64_t len,
		 enum rp_class required, struct rp_link_way *way)
{
	const struct rp_link_grant *g = fits(p, key, addr, len, required);
	struct rp_link *l = &p->link;

	if (!g)
		return false;
	*way = (struct rp_link_way){
		.kind = RP_LINK_WRITE,
		.conn = l->conn,
		.there = g->there,
		.at = g->at + (addr - g->addr),
		.method = g->method,
		.class = g->class,
	};
	if (rp_method_asks(g->method)) {
		way->asks = true;
		way->stores = len <= p->in->attr.store_max;
		return l->asking < RP_WIRE_LINKED &&
		       (way->stores || !stored_later(l, key, addr, len));
	}
	/* Inside: one past the end might stay short of the memory. */
	if (g->method == RP_METHOD_FENCE) {
		way->fence_at = way->at;
		way->fence_len = len < FENCE_LEN ? len : FENCE_LEN;
	} else if (g->method == RP_METHOD_NATIVE) {
		way->flush = true;
		way->fence_at = way->at;
		way->fence_len = len;
		return len <= FLUSH_LEN && !stored_later(l, key, addr, len);
	}
	return true;
}

bool rp_link_may_gather(struct rp_peer *p, uint64_t key, uint64_t addr,
			uint64_t len)
{
	const struct rp_link_grant *g;

	if (!(p->features & RP_FEATURE_GATHER))
		return false;
	g = fits(p, key, addr, len, RP_CLASS_NONE);
	return g && rp_method_serves(g->method);
}

uint64_t rp_link_id(const struct rp_peer *p)
{
	return p->link.id;
}

static int may_send(const struct rp_peer *p, enum rp_link_kind kind,
		    struct rp_link_way *way)
{
	const struct rp_link *l = &p->link;

	if (l->asking >= RP_WIRE_LINKED)
		return -EAGAIN;
	*way = (struct rp_link_way){
		.kind = kind,
		.conn = l->conn,
		.asks = true,
		.class = RP_CLASS_POWER, /* the answer lowers it */
	};
	return 0;
}

int rp_link_may_send(struct rp_peer *p, uint64_t id, struct rp_link_way *way)
{
	if (p->link.state != RP_LINK_UP || p->link.id != id)
		return -ENOTCONN;
	return may_send(p, RP_LINK_GATHER, way);
}

bool rp_link_may_commit(const struct rp_commit *c, struct rp_link_way *way)
{
	struct rp_peer *p = c->peer;
	const struct rp_link_grant *g = NULL;

	if (!(p->features & RP_FEATURE_GATHER) || c->effect ||
	    c->level != RP_LEVEL_DURABLE || p->nwrites > p->link.nwrites ||
	    rp_peer_slice(p, c->ranges, c->nranges) < c->nranges)
		return false;
	for (size_t i = 0; i < c->nranges; i++) {
		const struct rp_wire_range *r = &c->ranges[i];

		/* What holds for all of a key is not asked for again. */
		if (g && g->key == r->key && !p->poison.n &&
		    rp_range_inside(r->addr, r->len, g->addr, g->len))
			continue;
		g = fits(p, r->key, r->addr, r->len, c->required);
		if (!g || !rp_method_serves(g->method))
			return false;
	}
	return !may_send(p, RP_LINK_COMMIT, way);
}

int rp_link_request(const struct rp_commit *c, struct rp_link_way *way,
		    const void *bytes, void *buf, size_t size)
{
	struct rp_peer *p = c->peer;
	struct rp_wire_hdr hdr = {
		.session = p->their_cookie,
		.token = p->in->next_token,
		.incarnation = p->incarnation,
	};
	struct rp_wire_request m;
	int len;

	m.nranges = c->nranges;
	m.packed = p->features & RP_FEATURE_PACKED;
	m.level = c->level;
	m.required = c->required;
	m.effect = bytes ? RP_EFFECT_STORE : RP_EFFECT_NONE;
	m.seq = hdr.token;
	m.bytes = bytes;
	memcpy(m.ranges, c->ranges, c->nranges * sizeof(*m.ranges));
	len = rp_wire_put_request(buf, size, &hdr, &m);
	if (len > 0)
		way->token = p->in->next_token++;
	return len;
}

void rp_link_posted(struct rp_commit *c, const struct rp_link_way *way,
		    struct rp_linked *op)
{
	struct rp_peer *p = c->peer;
	struct rp_link *l = &p->link;

	if (!l->nposted)
		l->alive_at = now(p);
	*op = (struct rp_linked){
		.peer = p,
		.commit = c,
		.written = way->asks, /* the answer says it */
		.fenced = !way->fence_len && !way->asks,
		.stores = way->stores || way->kind == RP_LINK_GATHER,
		.token = way->token,
	};
	for (size_t i = 0; i < c->nranges && way->kind != RP_LINK_COMMIT; i++)
		op->len += c->ranges[i].len;
	TAILQ_INSERT_TAIL(&l->posted, op, link);
	l->nposted++;
	l->asking += way->asks;
	l->bytes += op->len;
	c->linked = op;
	c->by_link = way->kind;
	c->asked = c->nranges;
	c->out.method = way->method;
	c->out.class = way->class;
	rp_commit_start(c);
}

/* Nothing of it is under way any more. NULL: nobody waits for that. */
static struct rp_commit *unpost(struct rp_linked *op)
{
	struct rp_peer *p = op->peer;
	struct rp_commit *c = op->commit;
	struct rp_link *l = &p->link;

	TAILQ_REMOVE(&l->posted, op, link);
	l->nposted--;
	l->bytes -= op->len;
	if (!c)
		return NULL;
	if (p->waiting)
		p->alive_at = l->alive_at;
	c->linked = NULL;
	return c;
}

static void come_back(struct rp_linked *op, int err)
{
	struct rp_peer *p = op->peer;
	struct rp_commit *c;

	/* Of a connection that is given up: its end has been told. */
	if (!p)
		return;
	if (err) {
		rp_link_broken(p);
		return;
	}
	p->link.alive_at = now(p);
	if (!op->written || !op->fenced)
		return;
	c = unpost(op);
	if (c)
		rp_commit_check(c);
}

void rp_linked_written(struct rp_linked *l, int err)
{
	l->written = true;
	come_back(l, err);
}

void rp_linked_fenced(struct rp_linked *l, int err)
{
	l->fenced = true;
	come_back(l, err);
}

static struct rp_linked *find_asked(const struct rp_link *l, uint64_t token)
{
	struct rp_linked *op;

	TAILQ_FOREACH (op, &l->posted, link)
		if (op->token == token && !op->fenced)
			break;
	return op;
}

struct rp_linked *rp_linked_answered(struct rp_peer *p, const void *msg,
				     size_t len)
{
	struct rp_wire_reply m;
	struct rp_wire_hdr hdr;
	struct rp_linked *op;
	struct rp_commit *c;

	if (rp_wire_get_hdr(msg, len, &hdr) || hdr.session != p->cookie ||
	    hdr.incarnation != p->incarnation || !hdr.token ||
	    rp_wire_get_reply(msg, &hdr, &m))
		return NULL;
	op = find_asked(&p->link, hdr.token);
	if (!op)
		return NULL;
	/* The answer stands behind the write: that has come back as well. */
	op->written = op->fenced = true;
	p->link.asking--;
	p->link.alive_at = now(p);
	c = unpost(op);
	op->peer = NULL;
	if (c)
		rp_commit_answer(c, 0, c->nranges, &m, hdr.incarnation);
	return op;
}

#define GOES "durable writes go over a connection of our own"

const char *rp_link_words(const struct rp_peer *p, uint64_t key)
{
	const struct rp_link *l = &p->link;
	const struct rp_link_grant *g = find_grant(l, key);

	if (!p->in->attr.links)
		return "this endpoint has no connections of our own";
	if (!(p->features & RP_FEATURE_LINK))
		return "the target has no connections of our own";
	if (!rp_method_linked(hint(p, key)))
		return "the agent is needed, and takes its time";
	if (l->state != RP_LINK_UP)
		return "no connection of our own yet";
	if (!g)
		return "not yet granted to a connection of our own";
	if (g->method == RP_METHOD_REFUSED)
		return "the target grants it to no connection of our own";
	if (g->method == RP_METHOD_NATIVE)
		return GOES ", with the device's FLUSH";
	if (!p->in->attr.native)
		return GOES "; no FLUSH: not by this end's device";
	if (!flushes(p))
		return GOES "; no FLUSH: not by the target's device";
	return GOES "; no FLUSH: not of this region";
}
