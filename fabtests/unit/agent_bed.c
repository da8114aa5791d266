/* SPDX-License-Identifier: BSD-2-Clause */
/* Fakes around an agent, and an oracle that checks media at each OK. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <criterion/criterion.h>

#include "agent_bed.h"
#include "core/log.h"
#include "disk.h"

/* All threads use MUST(): the worker may not use Criterion's asserts. */
#define MUST(cond)                                                             \
	do {                                                                   \
		if (!(cond)) {                                                 \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__,     \
				#cond);                                        \
			abort();                                               \
		}                                                              \
	} while (0)

struct bed_promise {
	struct bed_promise *next;
	struct bed_channel *c;
	uint64_t token;
	size_t n;
	struct bed_at at[RP_WIRE_MAX_RANGES];
};

/* --- channels --- */

/* When the agent sends an OK, the bytes that it covers must be on media. */
static void check_ok_reply(struct bed_channel *c, const struct bed_msg *m)
{
	struct bed_promise **pp, *p;

	if (m->hdr.type != RP_MSG_REPLY)
		return;
	for (pp = &c->bed->promises; (p = *pp); pp = &p->next)
		if (p->c == c && p->token == m->hdr.token)
			break;
	if (!p)
		return;
	for (size_t i = 0; i < p->n && m->reply.status == RP_ST_OK; i++) {
		const struct bed_region *r = p->at[i].m;
		size_t at = BED_SKEW + p->at[i].off;

		MUST(!r->gone);
		MUST(!memcmp(r->mem + at, r->media + at, p->at[i].len));
		c->bed->checked++;
	}
	*pp = p->next;
	free(p);
}

static void deliver_message(struct bed_channel *c, const void *msg, size_t len)
{
	struct bed_msg *m = calloc(1, sizeof(*m));

	MUST(!rp_wire_get_hdr(msg, len, &m->hdr));
	switch (m->hdr.type) {
	case RP_MSG_REPLY:
		MUST(!rp_wire_get_reply(msg, &m->hdr, &m->reply));
		if (m->reply.result_len)
			memcpy(m->result, m->reply.result, m->reply.result_len);
		m->reply.result = NULL;
		break;
	case RP_MSG_INFO:
		MUST(!rp_wire_get_info(msg, &m->hdr, &m->info));
		break;
	default:
		MUST(m->hdr.type == RP_MSG_PROGRESS);
	}
	*c->last = m;
	c->last = &m->next;
	check_ok_reply(c, m);
}

static int c_post(struct rp_channel *rc, struct rp_channel_op *ops[], int n)
{
	struct bed_channel *c = (struct bed_channel *)rc;
	struct rp_channel_op *op = ops[0];

	MUST(!c->closed && n == 1 && op->kind == RP_CHANNEL_SEND);
	MUST(op->iov_count == 1 && op->iov[0].iov_len == op->length);
	MUST(!op->inject || op->length <= c->c.inject);
	MUST(op->inject || op->done);
	c->posts++;
	if (!c->room)
		return 0;
	c->room -= c->room > 0;
	deliver_message(c, op->iov[0].iov_base, op->iov[0].iov_len);
	if (op->inject)
		return 1;
	TAILQ_INSERT_TAIL(&c->posted_ops, op, link);
	return 1;
}

static void all_done(struct bed_channel *c, int err)
{
	struct rp_channel_op *op;

	while ((op = TAILQ_FIRST(&c->posted_ops))) {
		TAILQ_REMOVE(&c->posted_ops, op, link);
		/* done() checks that the message's bytes have stayed valid. */
		MUST(((const uint8_t *)op->iov[0].iov_base)[3] >= 64);
		op->done(op, err);
	}
}

void bed_complete_posts(struct bed_channel *c)
{
	all_done(c, 0);
}

static void c_close(struct rp_channel *rc)
{
	struct bed_channel *c = (struct bed_channel *)rc;

	MUST(!c->closed && !c->in_close);
	c->in_close = true;
	all_done(c, ECANCELED);
	c->in_close = false;
	c->closed = true;
	/*
	 * The agent revokes a channel's registrations only after it has closed
	 * the channel.
	 */
	for (struct bed_grant *k = c->bed->grants; k; k = k->next)
		MUST(k->channel != c || !k->revoked);
}

static const char *c_peer(const struct rp_channel *c, char *buf, size_t size)
{
	snprintf(buf, size, "a test");
	return buf;
}

static const struct rp_channel_ops channel_ops = {
	.post = c_post,
	.close = c_close,
	.peer = c_peer,
};

/* --- the host --- */

static struct bed *bed_of(struct rp_agent_host *h)
{
	return (struct bed *)h;
}

static int host_accept(struct rp_agent_host *h, void *request, const void *data,
		       size_t len, const struct rp_channel_events *events,
		       void *owner, struct rp_channel **out)
{
	struct bed *g = bed_of(h);
	struct bed_request *r = request;
	struct bed_channel *c;

	MUST(!r->accepted && !r->refused);
	MUST(len <= RP_WIRE_CM_ACK);
	MUST(!rp_wire_get_hello_ack(data, len, &r->ack));
	c = g->accept_ret ? NULL : calloc(1, sizeof(*c));
	if (!c) {
		r->refused = true;
		return g->accept_ret ? g->accept_ret : -ENOMEM;
	}
	c->c = (struct rp_channel){
		.ops = &channel_ops,
		.events = events,
		.owner = owner,
		.flags = g->flags,
		.inject = g->inject,
	};
	c->bed = g;
	c->room = -1;
	c->last = &c->first;
	TAILQ_INIT(&c->posted_ops);
	c->next = g->channels;
	g->channels = c;
	r->accepted = true;
	r->channel = c;
	/* Attach the grant of the connection's HELLO to the new channel. */
	for (struct bed_grant *k = g->grants; k; k = k->next)
		if (k->rkey == r->ack.grant.rkey)
			k->channel = c;
	*out = &c->c;
	return 0;
}

static void host_refuse(struct rp_agent_host *h, void *request,
			const void *data, size_t len)
{
	struct bed_request *r = request;

	MUST(!r->accepted && !r->refused);
	MUST(len <= RP_WIRE_CM_ACK);
	MUST(!rp_wire_get_hello_ack(data, len, &r->ack));
	MUST(r->ack.status != RP_ST_OK);
	r->refused = true;
}

static int host_grant(struct rp_agent_host *h, struct rp_channel *c,
		      const struct rp_region *r, struct rp_wire_grant *g,
		      void **grant)
{
	static uint64_t rkeys = 0x77000;
	struct bed *b = bed_of(h);
	struct bed_grant *k;

	MUST(g->addr == r->addr && g->length == r->len);
	if (g->method == RP_METHOD_NATIVE && b->no_native)
		return -EOPNOTSUPP;
	if (b->grant_ret)
		return b->grant_ret;
	k = calloc(1, sizeof(*k));
	if (!k)
		return -ENOMEM;
	k->channel = (struct bed_channel *)c;
	k->region = r;
	g->rkey = k->rkey = ++rkeys;
	g->remote_addr = (uintptr_t)r->base;
	k->next = b->grants;
	b->grants = k;
	*grant = k;
	return 0;
}

static void host_revoke(struct rp_agent_host *h, void *grant)
{
	struct bed_grant *k = grant;

	MUST(!k->revoked && (!k->channel || k->channel->closed));
	k->revoked = true;
}

static uint32_t host_flags(struct rp_agent_host *h)
{
	return bed_of(h)->flags;
}

static unsigned int all_posts(const struct bed *g)
{
	unsigned int n = 0;

	for (struct bed_channel *c = g->channels; c; c = c->next)
		n += c->posts;
	return n;
}

static int host_facts(struct rp_agent_host *h, struct rp_region *r,
		      struct rp_facts *facts, char *why)
{
	return bed_of(h)->facts(r, facts, why);
}

static int host_notify(struct rp_agent_host *h, struct rp_channel *c,
		       uint16_t port, uint16_t endpoint, uint64_t data,
		       void *buf, size_t len)
{
	struct bed *g = bed_of(h);

	if (g->notify_ret)
		return g->notify_ret;
	g->notified++;
	g->posts_before = all_posts(g);
	g->notified_by = c;
	g->notified_port = port;
	g->notified_endpoint = endpoint;
	g->notified_data = data;
	g->notified_buf = buf;
	g->notified_len = len;
	return 0;
}

static uint64_t h_source(struct rp_agent_host *h, void *request)
{
	return bed_of(h)->source;
}

static uint64_t host_now(struct rp_agent_host *h)
{
	return bed_of(h)->now;
}

static void host_kick(struct rp_agent_host *h)
{
	atomic_fetch_add(&bed_of(h)->kicks, 1);
}

static unsigned int *warnings;

static void count_warnings(enum rp_log_level level, const char *text)
{
	MUST(*text);
	*warnings += level == RP_LOG_WARN;
}

static const struct rp_agent_host_ops host_ops = {
	.accept = host_accept,
	.refuse = host_refuse,
	.source = h_source,
	.grant = host_grant,
	.revoke = host_revoke,
	.flags = host_flags,
	.notify = host_notify,
	.facts = host_facts,
	.now = host_now,
	.kick = host_kick,
};

void bed_init(struct bed *g, const struct rp_agent_attr *attr)
{
	const struct rp_agent_attr simple = {
		.incarnation = BED_INCARNATION,
		.no_worker = true,
	};

	memset(g, 0, sizeof(*g));
	g->host.ops = &host_ops;
	g->now = 1000000 * BED_MS;
	g->inject = BED_INJECT;
	warnings = &g->warnings;
	rp_log_set(count_warnings);
	pthread_mutex_init(&g->lock, NULL);
	pthread_cond_init(&g->changed, NULL);
	cr_assert_eq(rp_agent_new(attr ? attr : &simple, &g->host, &g->a), 0);
}

void bed_fini(struct bed *g)
{
	struct bed_promise *p;
	struct bed_channel *c;
	struct bed_grant *k;
	struct bed_msg *m;

	rp_agent_delete(g->a);
	while ((c = g->channels)) {
		cr_assert(c->closed, "a channel was left open");
		while ((m = c->first)) {
			c->first = m->next;
			free(m);
		}
		g->channels = c->next;
		free(c);
	}
	while ((k = g->grants)) {
		cr_assert(k->revoked, "a grant was left");
		g->grants = k->next;
		free(k);
	}
	while ((p = g->promises)) {
		g->promises = p->next;
		free(p);
	}
}

/* --- memory --- */

/*
 * Map the pages below a larger gap: the kernel places other mappings in that
 * gap, not in holes that a test makes in these pages.
 */
static void *map_pages(size_t n)
{
	const size_t gap = 1 << 30, len = n * BED_PAGE;
	char *p = mmap(NULL, len + gap, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	cr_assert_neq(p, MAP_FAILED);
	munmap(p + len, gap);
	cr_assert_eq(mprotect(p, len, PROT_READ | PROT_WRITE), 0);
	return p;
}

static void check_inside(struct bed_region *m, const void *addr, size_t len)
{
	const uint8_t *p = addr;

	MUST(!m->gone);
	MUST(p >= m->mem && p + len <= m->mem + m->npages * BED_PAGE);
}

static int pmem_sync(void *ctx, void *addr, size_t len)
{
	struct bed_region *m = ctx;
	struct bed *g = m->bed;
	size_t at = (uint8_t *)addr - m->mem;

	pthread_mutex_lock(&g->lock);
	g->entered++;
	pthread_cond_broadcast(&g->changed);
	while (g->gate_closed)
		pthread_cond_wait(&g->changed, &g->lock);
	pthread_mutex_unlock(&g->lock);

	check_inside(m, addr, len);
	MUST(at % BED_PAGE == 0 && len % BED_PAGE == 0);
	atomic_fetch_add(&m->syncs, 1);
	if (m->sync_ret)
		return m->sync_ret;
	disk_reads(m->media + at, m->mem + at, len);
	return 0;
}

static void flush_to_way(struct bed_region *m, const void *addr, size_t len)
{
	size_t at = (const uint8_t *)addr - m->mem;

	check_inside(m, addr, len);
	if (!m->dirty_way)
		memcpy(m->way, m->media, m->npages * BED_PAGE);
	m->dirty_way = true;
	memcpy(m->way + at, m->mem + at, len);
}

static void pmem_flush(void *ctx, const void *addr, size_t len)
{
	struct bed_region *m = ctx;

	atomic_fetch_add(&m->flushes, 1);
	flush_to_way(m, addr, len);
}

static void pmem_drain(void *ctx)
{
	struct bed_region *m = ctx;

	MUST(!m->gone);
	atomic_fetch_add(&m->drains, 1);
	/* With persistent caches the bytes in cache count as bytes on media. */
	if (m->r.choice.method == RP_METHOD_AGENT_SFENCE)
		memcpy(m->media, m->mem, m->npages * BED_PAGE);
	if (m->dirty_way)
		memcpy(m->media, m->way, m->npages * BED_PAGE);
	m->dirty_way = false;
}

static bool is_on_media(const struct bed_at *at)
{
	return !memcmp(at->m->mem + BED_SKEW + at->off,
		       at->m->media + BED_SKEW + at->off, at->len);
}

static void p_store8(void *ctx, uint64_t *addr, uint64_t value)
{
	struct bed_region *m = ctx;
	struct bed *g = m->bed;

	check_inside(m, addr, sizeof(value));
	MUST((uintptr_t)addr % sizeof(value) == 0);
	for (int i = 0; i < 2; i++)
		MUST(!g->must_be_durable[i].m ||
		     is_on_media(&g->must_be_durable[i]));
	atomic_fetch_add(&m->stores, 1);
	*addr = value;
}

static void pmem_copy(void *ctx, void *to, const void *from, size_t len)
{
	struct bed_region *m = ctx;

	check_inside(m, to, len);
	atomic_fetch_add(&m->stores, 1);
	memcpy(to, from, len);
}

static void pmem_stream(void *ctx, void *to, const void *from, size_t len)
{
	struct bed_region *m = ctx;

	MUST((uintptr_t)to % 64 == 0 && len && len % 64 == 0);
	check_inside(m, to, len);
	atomic_fetch_add(&m->streams, 1);
	memcpy(to, from, len);
	flush_to_way(m, to, len);
}

static void pmem_changed(void *ctx, void *addr, size_t len)
{
	struct bed_region *m = ctx;

	check_inside(m, addr, len);
	atomic_fetch_add(&m->changes, 1);
}

/* The clock stands still, so the duration of a sync has no influence here. */
static uint64_t pmem_now(void *ctx)
{
	return 0;
}

static uint64_t new_key(const struct rp_choice *c)
{
	static uint64_t made = 0x5eed000000;
	const struct rp_key k = {
		.class = c->class,
		.method = c->method,
		.port = 4711,
		.random = ++made,
	};

	return rp_key_make(&k);
}

uint64_t bed_unknown_key(void)
{
	const struct rp_choice c = {
		.class = RP_CLASS_POWER,
		.method = RP_METHOD_AGENT_CLWB,
	};

	return new_key(&c);
}

void bed_region_facts(struct bed *g, struct bed_region *m,
		      const struct rp_facts *facts, size_t npages)
{
	const struct rp_pmem_ops pmem_ops = {
		.sync = pmem_sync,
		.flush = pmem_flush,
		.drain = pmem_drain,
		.store8 = p_store8,
		.copy = pmem_copy,
		.stream = pmem_stream,
		.changed = pmem_changed,
		.now = pmem_now,
		.ctx = m,
	};
	enum rp_method method;

	memset(m, 0, sizeof(*m));
	m->bed = g;
	m->npages = npages;
	m->mem = map_pages(npages);
	m->way = map_pages(npages);
	m->media = map_pages(npages);
	m->r.base = m->mem + BED_SKEW;
	m->r.len = npages * BED_PAGE - BED_SKEW;
	m->r.facts = *facts;
	m->r.writable = true;
	m->r.choice = rp_method_best(facts, RP_METHODS_BUILT);
	snprintf(m->r.why, sizeof(m->r.why), "fake");
	method = rp_method_by_agent(facts, m->r.choice).method;
	cr_assert_eq(rp_pmem_new(m->r.base, m->r.len, method, NULL, &pmem_ops,
				 &m->r.pmem),
		     0);
	m->r.key = new_key(&m->r.choice);
	/* The agent must initialize these fields. */
	m->r.busy = 99;
	m->r.failed = 99;
	if (g->facts_file) {
		rp_watch_record(&m->r.watch);
		free(rp_watch_read(RP_SOURCE_LINE, g->facts_file, 0));
		rp_watch_record(NULL);
	}
	cr_assert_eq(rp_agent_region_add(g->a, &m->r), 0);
}

void bed_region(struct bed *g, struct bed_region *m, enum rp_method method,
		size_t npages)
{
	struct rp_facts f = {
		.placement = RP_PLACE_CPU_USER,
		.domain = RP_DOMAIN_MEMCTRL,
		.fs_trusted = RP_YES,
		.agent = true,
	};

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
	strcpy(f.name, rp_method_name(method));
	bed_region_facts(g, m, &f, npages);
	cr_assert_eq(m->r.choice.method, method);
}

void bed_region_del(struct bed *g, struct bed_region *m)
{
	rp_agent_region_del(g->a, &m->r);
	rp_pmem_delete(m->r.pmem);
	munmap(m->mem, m->npages * BED_PAGE);
	munmap(m->way, m->npages * BED_PAGE);
	munmap(m->media, m->npages * BED_PAGE);
	/* Overwrite the struct: a read after deregistration gets nonsense. */
	memset(&m->r, 0xdd, sizeof(m->r));
	m->gone = true;
}

void bed_store(struct bed_region *m, uint64_t off, uint64_t len)
{
	static uint8_t v;

	for (uint64_t i = 0; i < len; i++)
		m->mem[BED_SKEW + off + i] += 1 + v++ % 7;
}

uint64_t bed_value(const struct bed_region *m, uint64_t off, bool media)
{
	uint64_t v;

	memcpy(&v, (media ? m->media : m->mem) + BED_SKEW + off, sizeof(v));
	return v;
}

void bed_close_gate(struct bed *g)
{
	pthread_mutex_lock(&g->lock);
	g->gate_closed = true;
	pthread_mutex_unlock(&g->lock);
}

void bed_open_gate(struct bed *g)
{
	pthread_mutex_lock(&g->lock);
	g->gate_closed = false;
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->lock);
}

void bed_wait_entered(struct bed *g, unsigned int n)
{
	pthread_mutex_lock(&g->lock);
	while (g->entered < n)
		pthread_cond_wait(&g->changed, &g->lock);
	pthread_mutex_unlock(&g->lock);
}

/* --- initiators --- */

struct rp_wire_hello bed_hello(uint64_t key)
{
	static uint64_t initiators = 0xabc000;

	return (struct rp_wire_hello){
		.key = key,
		.initiator = ++initiators,
		.timeout_ms = 3000,
		.port = BED_PORT,
	};
}

struct bed_request *bed_connect_request(struct bed *g,
					const struct rp_wire_hello *m)
{
	struct bed_request *r = calloc(1, sizeof(*r));
	uint8_t buf[RP_WIRE_CM_DATA] = {0};

	r->bed = g;
	cr_assert_gt(rp_wire_put_hello(buf, sizeof(buf), m), 0);
	/* Pad the private data with zeros, as RDMA CM does. */
	rp_agent_requested(g->a, r, buf, sizeof(buf));
	return r;
}

void bed_refused(const struct bed_request *r, enum rp_status st)
{
	cr_assert(r->refused, "not refused");
	cr_assert_eq(r->ack.status, st, "\"%s\", not \"%s\"",
		     rp_status_name(r->ack.status), rp_status_name(st));
}

struct bed_peer bed_accepted(const struct bed_request *r)
{
	cr_assert(r->accepted, "not accepted: %s",
		  rp_status_name(r->ack.status));
	cr_assert_eq(r->ack.incarnation, BED_INCARNATION);
	return (struct bed_peer){
		.g = r->bed,
		.c = r->channel,
		.ack = r->ack,
		.token = 100,
	};
}

struct bed_peer bed_connect(struct bed *g, const struct bed_region *m)
{
	const struct rp_wire_hello hello = bed_hello(m->r.key);
	struct bed_request *r = bed_connect_request(g, &hello);
	struct bed_peer p = bed_accepted(r);

	free(r);
	return p;
}

struct bed_peer bed_connect_all(struct bed *g, struct bed_region *const m[],
				size_t n)
{
	struct bed_peer p = bed_connect(g, m[0]);

	for (size_t i = 1; i < n; i++)
		cr_assert_eq(bed_query(&p, m[i]->r.key, RP_CLASS_NONE).status,
			     RP_ST_OK);
	return p;
}

void bed_recv(struct bed_peer *p, const void *msg, int len)
{
	/* A heap copy lets the sanitizer detect reads past the end. */
	uint8_t *copy = malloc(len > 0 ? len : 1);

	cr_assert_geq(len, 0, "could not encode: %d", len);
	memcpy(copy, msg, len);
	cr_assert_not(p->c->closed, "nothing comes over a closed channel");
	p->c->c.events->received(p->c->c.owner, copy, len);
	free(copy);
}

struct rp_wire_info bed_query(struct bed_peer *p, uint64_t key,
			      enum rp_class required)
{
	const struct rp_wire_query m = {.key = key, .required = required};
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct bed_msg got;

	bed_recv(p, buf, rp_wire_put_query(buf, sizeof(buf), ++p->token, &m));
	cr_assert(bed_take(p, &got), "no INFO");
	cr_assert_eq(got.hdr.type, RP_MSG_INFO);
	cr_assert_eq(got.hdr.token, p->token);
	if (!p->c->slow)
		bed_complete_posts(p->c);
	return got.info;
}

void bed_lose(struct bed_peer *p)
{
	p->c->c.events->lost(p->c->c.owner, ECONNRESET, NULL, 0);
}

uint64_t bed_send(struct bed_peer *p, const struct rp_wire_request *m)
{
	uint8_t buf[RP_WIRE_MAX_MSG];

	bed_recv(p, buf, rp_wire_put_request(buf, sizeof(buf), ++p->token, m));
	return p->token;
}

uint64_t bed_request(struct bed_peer *p, enum rp_level level,
		     enum rp_class required, size_t n,
		     const struct rp_wire_range *ranges)
{
	const struct rp_wire_request m = {
		.nranges = n,
		.level = level,
		.required = required,
		.ranges = ranges,
	};

	return bed_send(p, &m);
}

uint64_t bed_commit_all(struct bed_peer *p, enum rp_class required, size_t n,
			const struct bed_at *at)
{
	struct rp_wire_range ranges[RP_WIRE_MAX_RANGES];
	struct bed_promise *o = calloc(1, sizeof(*o));

	o->c = p->c;
	o->token = p->token + 1;
	for (size_t i = 0; i < n; i++) {
		bed_store(at[i].m, at[i].off, at[i].len);
		ranges[i] = (struct rp_wire_range){at[i].m->r.key, at[i].off,
						   at[i].len};
		/* Commits by delivery do not bring bytes to media. */
		if (at[i].m->r.facts.memory != RP_MEM_TMPFS &&
		    (at[i].m->r.facts.memory != RP_MEM_FILE ||
		     required == RP_CLASS_POWER))
			o->at[o->n++] = at[i];
	}
	o->next = p->g->promises;
	p->g->promises = o;
	return bed_request(p, RP_LEVEL_DURABLE, required, n, ranges);
}

uint64_t bed_commit(struct bed_peer *p, struct bed_region *m, uint64_t off,
		    uint64_t len)
{
	const struct bed_at at = {m, off, len};

	return bed_commit_all(p, m->r.choice.class, 1, &at);
}

static struct rp_wire_request
one_range(const struct bed_at *at, struct rp_wire_range *r, enum rp_effect e)
{
	*r = (struct rp_wire_range){at->m->r.key, at->off, at->len};
	return (struct rp_wire_request){
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = at->m->r.choice.class,
		.effect = e,
		.ranges = r,
	};
}

uint64_t bed_ordered_store(struct bed_peer *p, struct bed_at at,
			   struct bed_region *m, uint64_t addr, uint64_t value)
{
	struct rp_wire_range r;
	struct rp_wire_request q = one_range(&at, &r, RP_EFFECT_THEN);

	q.then = (struct rp_wire_then){m->r.key, addr, value};
	bed_store(at.m, at.off, at.len);
	if (at.m->r.facts.memory != RP_MEM_TMPFS)
		p->g->must_be_durable[0] = at;
	return bed_send(p, &q);
}

uint64_t bed_notify(struct bed_peer *p, struct bed_at at, uint64_t data)
{
	struct rp_wire_range r;
	struct rp_wire_request q = one_range(&at, &r, RP_EFFECT_NOTIFY);

	q.endpoint = BED_ENDPOINT;
	q.data = data;
	return bed_send(p, &q);
}

uint64_t bed_inline(struct bed_peer *p, enum rp_level level, struct bed_at at,
		    uint8_t fill)
{
	struct rp_wire_range r;
	struct rp_wire_request q = one_range(&at, &r, RP_EFFECT_STORE);
	uint8_t bytes[RP_WIRE_MAX_STORE];

	memset(bytes, fill, sizeof(bytes));
	q.level = level;
	q.bytes = bytes;
	return bed_send(p, &q);
}

uint64_t bed_atomic(struct bed_peer *p, enum rp_level level, struct bed_at at,
		    enum rp_atomic_op op, const uint64_t *operand,
		    const uint64_t *compare, bool fetch)
{
	struct rp_wire_range r;
	struct rp_wire_request q = one_range(&at, &r, RP_EFFECT_ATOMIC);

	q.level = level;
	q.atomic = (struct rp_wire_atomic){
		.op = op,
		.datatype = RP_ATOMIC_UINT64,
		.fetch = fetch,
		.operand = operand,
		.compare = compare,
	};
	return bed_send(p, &q);
}

void bed_run(struct bed *g)
{
	while (rp_agent_progress(g->a))
		;
	for (struct bed_channel *c = g->channels; c; c = c->next)
		if (!c->slow)
			bed_complete_posts(c);
}

void bed_run_worker(struct bed *g)
{
	const struct timespec ms = {.tv_nsec = 1000000};

	for (int i = 0; rp_agent_pending(g->a); i++) {
		cr_assert_lt(i, 10000, "the worker never finishes");
		bed_run(g);
		if (rp_agent_pending(g->a))
			nanosleep(&ms, NULL);
	}
}

bool bed_take(struct bed_peer *p, struct bed_msg *m)
{
	struct bed_msg *f = p->c->first;

	if (!f)
		return false;
	p->c->first = f->next;
	if (!f->next)
		p->c->last = &p->c->first;
	*m = *f;
	if (m->hdr.type == RP_MSG_REPLY && m->reply.result_len)
		m->reply.result = m->result;
	free(f);
	return true;
}

struct rp_wire_reply bed_expect(struct bed_peer *p, uint64_t token,
				enum rp_status st)
{
	struct bed_msg m;

	cr_assert(bed_take(p, &m), "no reply to %llu",
		  (unsigned long long)token);
	cr_assert_eq(m.hdr.type, RP_MSG_REPLY);
	cr_assert_eq(m.hdr.token, token, "reply to %llu, not to %llu",
		     (unsigned long long)m.hdr.token,
		     (unsigned long long)token);
	cr_assert_eq(m.reply.status, st, "\"%s\", not \"%s\"",
		     rp_status_name(m.reply.status), rp_status_name(st));
	m.reply.result = NULL;
	return m.reply;
}

void bed_expect_nothing(struct bed_peer *p)
{
	struct bed_msg m;

	cr_assert(!bed_take(p, &m), "message of type %d", m.hdr.type);
}

struct rp_agent_stats bed_stats(struct bed *g)
{
	struct rp_agent_stats st;

	rp_agent_stats(g->a, &st);
	return st;
}
