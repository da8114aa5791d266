/* SPDX-License-Identifier: BSD-2-Clause */
/* Fakes around an agent, and the oracle that looks at media when it replies. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <criterion/criterion.h>

#include "agent_rig.h"
#include "disk.h"

/* Also from the worker, where a test framework's asserts cannot be used. */
#define MUST(cond)                                                             \
	do {                                                                   \
		if (!(cond)) {                                                 \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__,     \
				#cond);                                        \
			abort();                                               \
		}                                                              \
	} while (0)

struct rig_promise {
	struct rig_promise *next;
	struct rig_x *x;
	uint64_t session; /* the initiator's cookie */
	uint64_t token;
	size_t n;
	struct rig_at at[RP_WIRE_MAX_RANGES];
};

static struct rig_x *x_of(struct rp_xport *x)
{
	struct rig_x *fx = (struct rig_x *)x;

	MUST(!fx->gone);
	return fx;
}

static uint64_t x_now(struct rp_xport *x)
{
	MUST(!x_of(x)->gone);
	return x_of(x)->rig->now;
}

/*
 * The rule of the whole project: when an OK leaves, the bytes it is about are
 * where they survive.
 */
static void oracle(struct rig_x *fx, const struct rig_msg *m)
{
	struct rig_promise **pp, *p;

	if (m->hdr.type != RP_MSG_REPLY)
		return;
	for (pp = &fx->rig->promises; (p = *pp); pp = &p->next)
		if (p->x == fx && p->session == m->hdr.session &&
		    p->token == m->hdr.token)
			break;
	if (!p)
		return;
	for (size_t i = 0; i < p->n && m->reply.status == RP_ST_OK; i++) {
		const struct rig_region *r = p->at[i].m;
		size_t at = RIG_SKEW + p->at[i].off;

		MUST(!r->gone);
		MUST(!memcmp(r->mem + at, r->media + at, p->at[i].len));
		fx->rig->checked++;
	}
	*pp = p->next;
	free(p);
}

static int x_send(struct rp_xport *x, uint64_t peer, const void *msg,
		  size_t len)
{
	struct rig_x *fx = x_of(x);
	struct rig_msg *m;

	MUST(peer < RIG_PEERS && fx->peers[peer].used);
	fx->sends++;
	if (fx->stuck == peer + 1)
		return -EAGAIN;
	if (fx->send_ret)
		return fx->send_ret;
	m = calloc(1, sizeof(*m));
	m->peer = peer;
	MUST(!rp_wire_get_hdr(msg, len, &m->hdr));
	switch (m->hdr.type) {
	case RP_MSG_HELLO_ACK:
		MUST(!rp_wire_get_hello_ack(msg, &m->hdr, &m->ack));
		break;
	case RP_MSG_REPLY:
		MUST(!rp_wire_get_reply(msg, &m->hdr, &m->reply));
		break;
	case RP_MSG_INFO:
		MUST(!rp_wire_get_info(msg, &m->hdr, &m->info));
		break;
	case RP_MSG_OFFER:
		MUST(!rp_wire_get_offer(msg, &m->hdr, &m->offer));
		break;
	default:
		MUST(m->hdr.type == RP_MSG_PROGRESS);
	}
	*fx->last = m;
	fx->last = &m->next;
	oracle(fx, m);
	return 0;
}

static int x_peer_get(struct rp_xport *x, const void *addr, size_t len,
		      uint64_t *peer)
{
	struct rig_x *fx = x_of(x);

	if (fx->get_ret)
		return fx->get_ret;
	for (size_t i = 0; i < RIG_PEERS; i++) {
		if (fx->peers[i].used)
			continue;
		fx->peers[i].used = true;
		fx->peers[i].len = len;
		memcpy(fx->peers[i].addr, addr, len);
		fx->gets++;
		if (++fx->open > fx->most_open)
			fx->most_open = fx->open;
		*peer = i;
		return 0;
	}
	return -ENOSPC;
}

static void x_peer_put(struct rp_xport *x, uint64_t peer)
{
	struct rig_x *fx = x_of(x);

	MUST(peer < RIG_PEERS && fx->peers[peer].used);
	fx->peers[peer].used = false;
	fx->open--;
}

static int x_random(struct rp_xport *x, void *buf, size_t len)
{
	struct rig_x *fx = x_of(x);
	/* One wrong byte in one of them does not make it another. */
	uint64_t v = ++fx->rig->cookies * 0x9e3779b97f4a7c15ull;

	MUST(len == sizeof(v));
	if (fx->random_ret)
		return fx->random_ret;
	memcpy(buf, &v, len);
	return 0;
}

static int x_notify(struct rp_xport *x, uint64_t peer, uint64_t data, void *buf,
		    size_t len)
{
	struct rig_x *fx = x_of(x);

	MUST(peer < RIG_PEERS && fx->peers[peer].used);
	if (fx->notify_ret)
		return fx->notify_ret;
	fx->notified++;
	fx->sends_before = fx->sends;
	fx->told.peer = peer;
	fx->told.data = data;
	fx->told.buf = buf;
	fx->told.len = len;
	return 0;
}

static void x_kick(struct rp_xport *x)
{
	atomic_fetch_add(&x_of(x)->kicks, 1);
}

static const struct rp_xport_ops ops = {
	.now = x_now,
	.send = x_send,
	.peer_get = x_peer_get,
	.peer_put = x_peer_put,
	.random = x_random,
	.notify = x_notify,
	.kick = x_kick,
};

void rig_init(struct rig *g, const struct rp_agent_attr *attr)
{
	const struct rp_agent_attr simple = {
		.incarnation = RIG_INCARNATION,
		.no_worker = true,
	};

	memset(g, 0, sizeof(*g));
	g->now = 1000000 * RIG_MS;
	pthread_mutex_init(&g->lock, NULL);
	pthread_cond_init(&g->changed, NULL);
	for (int i = 0; i < RIG_XPORTS; i++) {
		g->x[i].x.ops = &ops;
		g->x[i].rig = g;
		g->x[i].last = &g->x[i].first;
	}
	cr_assert_eq(rp_agent_new(attr ? attr : &simple, &g->a), 0);
}

void rig_drop(struct rig *g, unsigned int i)
{
	struct rig_x *fx = &g->x[i];
	struct rig_msg m;

	rp_agent_drop_xport(g->a, &fx->x);
	cr_assert_eq(fx->open, 0, "%u peers leaked", fx->open);
	fx->gone = true;
	while (rig_take(fx, &m))
		;
}

void rig_fini(struct rig *g)
{
	struct rig_promise *p;

	for (int i = 0; i < RIG_XPORTS; i++)
		if (!g->x[i].gone)
			rig_drop(g, i);
	cr_assert_eq(rp_agent_pending(g->a), 0);
	rp_agent_delete(g->a);
	while ((p = g->promises)) {
		g->promises = p->next;
		free(p);
	}
}

static void *pages(size_t n)
{
	void *p = mmap(NULL, n * RIG_PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(p, MAP_FAILED);
	return p;
}

static void check_inside(struct rig_region *m, const void *addr, size_t len)
{
	const uint8_t *p = addr;

	MUST(!m->gone);
	MUST(p >= m->mem && p + len <= m->mem + m->npages * RIG_PAGE);
}

static int p_sync(void *ctx, void *addr, size_t len)
{
	struct rig_region *m = ctx;
	struct rig *g = m->rig;
	size_t at = (uint8_t *)addr - m->mem;

	pthread_mutex_lock(&g->lock);
	g->entered++;
	pthread_cond_broadcast(&g->changed);
	while (g->closed)
		pthread_cond_wait(&g->changed, &g->lock);
	pthread_mutex_unlock(&g->lock);

	check_inside(m, addr, len);
	MUST(at % RIG_PAGE == 0 && len % RIG_PAGE == 0);
	atomic_fetch_add(&m->syncs, 1);
	if (m->sync_ret)
		return m->sync_ret;
	disk_reads(m->media + at, m->mem + at, len);
	return 0;
}

static void on_the_way(struct rig_region *m, const void *addr, size_t len)
{
	size_t at = (const uint8_t *)addr - m->mem;

	check_inside(m, addr, len);
	if (!m->dirty_way)
		memcpy(m->way, m->media, m->npages * RIG_PAGE);
	m->dirty_way = true;
	memcpy(m->way + at, m->mem + at, len);
}

static void p_flush(void *ctx, const void *addr, size_t len)
{
	struct rig_region *m = ctx;

	atomic_fetch_add(&m->flushes, 1);
	on_the_way(m, addr, len);
}

static void p_drain(void *ctx)
{
	struct rig_region *m = ctx;

	MUST(!m->gone);
	atomic_fetch_add(&m->drains, 1);
	/* The caches keep all that has reached them. */
	if (m->r.choice.method == RP_METHOD_AGENT_SFENCE)
		memcpy(m->media, m->mem, m->npages * RIG_PAGE);
	if (m->dirty_way)
		memcpy(m->media, m->way, m->npages * RIG_PAGE);
	m->dirty_way = false;
}

static bool on_media(const struct rig_at *at)
{
	return !memcmp(at->m->mem + RIG_SKEW + at->off,
		       at->m->media + RIG_SKEW + at->off, at->len);
}

static void p_store8(void *ctx, uint64_t *addr, uint64_t value)
{
	struct rig_region *m = ctx;
	struct rig *g = m->rig;

	check_inside(m, addr, sizeof(value));
	MUST((uintptr_t)addr % sizeof(value) == 0);
	for (int i = 0; i < 2; i++)
		MUST(!g->behind[i].m || on_media(&g->behind[i]));
	atomic_fetch_add(&m->stores, 1);
	*addr = value;
}

static void p_copy(void *ctx, void *to, const void *from, size_t len)
{
	struct rig_region *m = ctx;

	check_inside(m, to, len);
	atomic_fetch_add(&m->stores, 1);
	memcpy(to, from, len);
}

static void p_stream(void *ctx, void *to, const void *from, size_t len)
{
	struct rig_region *m = ctx;

	MUST((uintptr_t)to % 64 == 0 && len && len % 64 == 0);
	check_inside(m, to, len);
	atomic_fetch_add(&m->streams, 1);
	memcpy(to, from, len);
	on_the_way(m, to, len);
}

static void region_init(struct rig *g, struct rig_region *m, size_t npages)
{
	memset(m, 0, sizeof(*m));
	m->rig = g;
	m->npages = npages;
	m->mem = pages(npages);
	m->way = pages(npages);
	m->media = pages(npages);
	m->r.base = m->mem + RIG_SKEW;
	m->r.len = npages * RIG_PAGE - RIG_SKEW;
	snprintf(m->r.why, sizeof(m->r.why), "fake");
}

static uint64_t new_key(const struct rp_choice *c)
{
	static uint32_t made;
	uint32_t n = ++made;
	struct rp_key k = {
		.base = n,
		.random = 0x5eed00 + n,
		.persistent = c,
	};

	if (c) {
		k.class = c->class;
		k.method = c->method;
	}
	return rp_key_make(&k);
}

uint64_t rig_some_key(void)
{
	return new_key(NULL);
}

/* A sync takes no time that could decide anything. */
static uint64_t p_now(void *ctx)
{
	return 0;
}

void rig_region(struct rig *g, struct rig_region *m, enum rp_method method,
		size_t npages)
{
	const struct rp_pmem_ops pmem_ops = {
		.sync = p_sync,
		.flush = p_flush,
		.drain = p_drain,
		.store8 = p_store8,
		.copy = p_copy,
		.stream = p_stream,
		.now = p_now,
		.ctx = m,
	};
	struct rp_facts f = {
		.placement = RP_PLACE_CPU_USER,
		.domain = RP_DOMAIN_MEMCTRL,
		.fs_trusted = RP_YES,
		.agent = true,
	};

	region_init(g, m, npages);
	switch (method) {
	case RP_METHOD_DELIVERY:
		f.memory = RP_MEM_TMPFS;
		break;
	case RP_METHOD_AGENT_SFENCE:
		f.memory = RP_MEM_DAX_SYNC;
		f.placement = RP_PLACE_DMA_CACHE;
		f.domain = RP_DOMAIN_CPUCACHE;
		break;
	case RP_METHOD_AGENT_CLWB:
		f.memory = RP_MEM_DAX_SYNC;
		break;
	case RP_METHOD_AGENT_CLWB_MSYNC:
		f.memory = RP_MEM_DAX;
		f.placement = RP_PLACE_UNKNOWN;
		break;
	default:
		f.memory = RP_MEM_FILE;
	}
	m->r.facts = f;
	m->r.writable = true;
	m->r.choice = rp_method_best(&f, RP_METHODS_BUILT);
	cr_assert_eq(m->r.choice.method, method);
	cr_assert_eq(rp_pmem_new(m->r.base, m->r.len, method, NULL, &pmem_ops,
				 &m->r.pmem),
		     0);
	m->r.key = new_key(&m->r.choice);
	/* The agent's own. */
	m->r.busy = 99;
	m->r.failed = 99;
	cr_assert_eq(rp_agent_region_add(g->a, &m->r), 0);
}

void rig_region_volatile(struct rig *g, struct rig_region *m, size_t npages)
{
	region_init(g, m, npages);
	m->r.facts.memory = RP_MEM_ANON;
	m->r.writable = true;
	m->r.choice = rp_method_best(&m->r.facts, RP_METHODS_BUILT);
	m->r.key = new_key(NULL);
	cr_assert_eq(rp_agent_region_add(g->a, &m->r), 0);
}

void rig_region_del(struct rig *g, struct rig_region *m)
{
	rp_agent_region_del(g->a, &m->r);
	if (m->r.pmem)
		rp_pmem_delete(m->r.pmem);
	munmap(m->mem, m->npages * RIG_PAGE);
	munmap(m->way, m->npages * RIG_PAGE);
	munmap(m->media, m->npages * RIG_PAGE);
	/* Whoever still looks at the region itself finds nonsense. */
	memset(&m->r, 0xdd, sizeof(m->r));
	m->gone = true;
}

void rig_store(struct rig_region *m, uint64_t off, uint64_t len)
{
	static uint8_t v;

	for (uint64_t i = 0; i < len; i++)
		m->mem[RIG_SKEW + off + i] += 1 + v++ % 7;
}

void rig_close_gate(struct rig *g)
{
	pthread_mutex_lock(&g->lock);
	g->closed = true;
	pthread_mutex_unlock(&g->lock);
}

void rig_open_gate(struct rig *g)
{
	pthread_mutex_lock(&g->lock);
	g->closed = false;
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->lock);
}

void rig_wait_entered(struct rig *g, unsigned int n)
{
	pthread_mutex_lock(&g->lock);
	while (g->entered < n)
		pthread_cond_wait(&g->changed, &g->lock);
	pthread_mutex_unlock(&g->lock);
}

void rig_recv(struct rig_x *x, const void *msg, int len)
{
	/* Exactly as long, on the heap: the sanitizer watches the end. */
	uint8_t *copy = malloc(len > 0 ? len : 1);

	cr_assert_geq(len, 0, "could not encode: %d", len);
	memcpy(copy, msg, len);
	rp_agent_recv(x->rig->a, &x->x, copy, len);
	free(copy);
}

void rig_hello(struct rig_peer *p)
{
	const struct rp_wire_hdr hdr = {.token = ++p->token};
	struct rp_wire_hello m = {
		.cookie = p->cookie,
		.key = rig_some_key(),
		.timeout_ms = p->timeout_ms,
		.features = 0xffff,
		.addr_len = sizeof(p->id),
	};
	uint8_t buf[RP_WIRE_MAX_MSG];

	memcpy(m.addr, &p->id, sizeof(p->id));
	rig_recv(p->x, buf, rp_wire_put_hello(buf, sizeof(buf), &hdr, &m));
}

struct rig_peer rig_connect(struct rig *g, unsigned int xi, uint32_t id)
{
	static uint64_t cookies = 0xabc000;
	struct rig_peer p = {
		.g = g,
		.x = &g->x[xi],
		.id = id,
		.cookie = ++cookies,
		.timeout_ms = 3000,
	};
	struct rig_msg m;

	rig_hello(&p);
	if (!rig_take(p.x, &m)) {
		/* Too many before it: it waits for the next call. */
		rp_agent_progress(g->a);
		cr_assert(rig_take(p.x, &m), "no answer to HELLO");
	}
	cr_assert_eq(m.hdr.type, RP_MSG_HELLO_ACK);
	cr_assert_eq(m.hdr.session, p.cookie);
	cr_assert_eq(m.ack.status, RP_ST_OK);
	p.target = m.ack.cookie;
	return p;
}

struct rig_peer rig_open(struct rig *g, unsigned int xi, uint32_t id,
			 const struct rig_region *m)
{
	struct rig_peer p = rig_connect(g, xi, id);
	const struct rp_wire_range range = {m->r.key, 0, 1};
	uint64_t token = rig_request(&p, RP_LEVEL_VISIBLE, 0, 1, &range);

	rig_expect(p.x, token, RP_ST_OK);
	return p;
}

static struct rp_wire_hdr next_hdr(struct rig_peer *p, uint8_t type)
{
	return (struct rp_wire_hdr){
		.type = type,
		.session = p->target,
		.token = ++p->token,
		.incarnation = RIG_INCARNATION,
	};
}

uint64_t rig_request(struct rig_peer *p, enum rp_level level,
		     enum rp_class required, size_t n,
		     const struct rp_wire_range *ranges)
{
	struct rp_wire_hdr hdr = next_hdr(p, RP_MSG_REQUEST);
	static struct rp_wire_request m;
	uint8_t buf[RP_WIRE_MAX_MSG];

	m = (struct rp_wire_request){
		.nranges = n,
		.level = level,
		.required = required,
	};
	memcpy(m.ranges, ranges, n * sizeof(*ranges));
	rig_recv(p->x, buf, rp_wire_put_request(buf, sizeof(buf), &hdr, &m));
	return hdr.token;
}

uint64_t rig_commit_all(struct rig_peer *p, enum rp_class required, size_t n,
			const struct rig_at *at)
{
	struct rp_wire_range ranges[RP_WIRE_MAX_RANGES];
	struct rig_promise *o = calloc(1, sizeof(*o));

	o->x = p->x;
	o->session = p->cookie;
	o->token = p->token + 1;
	for (size_t i = 0; i < n; i++) {
		rig_store(at[i].m, at[i].off, at[i].len);
		ranges[i] = (struct rp_wire_range){at[i].m->r.key, at[i].off,
						   at[i].len};
		/* What delivery is enough for never reaches media. */
		if (at[i].m->r.facts.memory != RP_MEM_TMPFS &&
		    (at[i].m->r.facts.memory != RP_MEM_FILE ||
		     required == RP_CLASS_POWER))
			o->at[o->n++] = at[i];
	}
	o->next = p->g->promises;
	p->g->promises = o;
	return rig_request(p, RP_LEVEL_DURABLE, required, n, ranges);
}

uint64_t rig_commit(struct rig_peer *p, struct rig_region *m, uint64_t off,
		    uint64_t len)
{
	const struct rig_at at = {m, off, len};

	return rig_commit_all(p, m->r.choice.class, 1, &at);
}

uint64_t rig_send_effect(struct rig_peer *p, const struct rig_effect *e)
{
	struct rp_wire_hdr hdr = next_hdr(p, RP_MSG_REQUEST);
	static struct rp_wire_request m;
	uint8_t buf[RP_WIRE_MAX_MSG];

	m = (struct rp_wire_request){
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = e->at.m->r.choice.class,
		.effect = e->effect,
		.seq = e->seq,
		.then = e->then,
		.data = e->data,
		.ranges = {{e->at.m->r.key, e->at.off, e->at.len}},
	};
	if (e->token) {
		p->token--;
		hdr.token = e->token;
	}
	rig_recv(p->x, buf, rp_wire_put_request(buf, sizeof(buf), &hdr, &m));
	return hdr.token;
}

uint64_t rig_then(struct rig_peer *p, struct rig_at at, uint64_t seq,
		  struct rig_region *m, uint64_t addr, uint64_t value)
{
	const struct rig_effect e = {
		.effect = RP_EFFECT_THEN,
		.seq = seq,
		.then = {m->r.key, addr, value},
		.at = at,
	};

	rig_store(at.m, at.off, at.len);
	if (at.m->r.facts.memory != RP_MEM_TMPFS)
		p->g->behind[0] = at;
	return rig_send_effect(p, &e);
}

uint64_t rig_value(const struct rig_region *m, uint64_t off, bool media)
{
	uint64_t v;

	memcpy(&v, (media ? m->media : m->mem) + RIG_SKEW + off, sizeof(v));
	return v;
}

uint64_t rig_query(struct rig_peer *p, uint64_t key, enum rp_class required)
{
	struct rp_wire_hdr hdr = next_hdr(p, RP_MSG_QUERY);
	const struct rp_wire_query m = {.key = key, .required = required};
	uint8_t buf[RP_WIRE_MAX_MSG];

	rig_recv(p->x, buf, rp_wire_put_query(buf, sizeof(buf), &hdr, &m));
	return hdr.token;
}

void rig_bye(struct rig_peer *p)
{
	struct rp_wire_hdr hdr = next_hdr(p, RP_MSG_BYE);
	uint8_t buf[RP_WIRE_MAX_MSG];

	rig_recv(p->x, buf, rp_wire_put_empty(buf, sizeof(buf), &hdr));
}

void rig_run(struct rig *g)
{
	while (rp_agent_progress(g->a))
		;
}

void rig_run_worker(struct rig *g)
{
	const struct timespec ms = {.tv_nsec = 1000000};

	for (int i = 0; rp_agent_pending(g->a); i++) {
		cr_assert_lt(i, 10000, "the worker never answers");
		rig_run(g);
		if (rp_agent_pending(g->a))
			nanosleep(&ms, NULL);
	}
}

bool rig_take(struct rig_x *x, struct rig_msg *m)
{
	struct rig_msg *f = x->first;

	if (!f)
		return false;
	x->first = f->next;
	if (!x->first)
		x->last = &x->first;
	*m = *f;
	free(f);
	return true;
}

struct rp_wire_reply rig_expect(struct rig_x *x, uint64_t token,
				enum rp_status st)
{
	struct rig_msg m;

	cr_assert(rig_take(x, &m), "no reply to %llu",
		  (unsigned long long)token);
	cr_assert_eq(m.hdr.type, RP_MSG_REPLY);
	cr_assert_eq(m.hdr.token, token, "reply to %llu, not to %llu",
		     (unsigned long long)m.hdr.token,
		     (unsigned long long)token);
	cr_assert_eq(m.reply.status, st, "\"%s\", not \"%s\"",
		     rp_status_name(m.reply.status), rp_status_name(st));
	cr_assert_eq(m.hdr.incarnation, RIG_INCARNATION);
	return m.reply;
}

void rig_expect_nothing(struct rig_x *x)
{
	struct rig_msg m;

	cr_assert(!rig_take(x, &m), "message of type %d", m.hdr.type);
}

struct rp_agent_stats rig_stats(struct rig *g)
{
	struct rp_agent_stats st;

	rp_agent_stats(g->a, &st);
	return st;
}
