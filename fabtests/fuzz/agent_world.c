// SPDX-License-Identifier: BSD-2-Clause
/* The host of an agent, its regions and channels, and what OK must mean. */
#include <errno.h>
#include <sys/mman.h>

#include "agent_world.h"

struct region *world_region_of(uint64_t key)
{
	for (unsigned int i = 0; i < REGIONS; i++)
		if (world.regions[i].live && world.regions[i].r.key == key)
			return &world.regions[i];
	return NULL;
}

static int range_is_durable(const struct rp_wire_range *g, uint32_t step)
{
	const struct region *r = world_region_of(g->key);
	uint64_t at;

	if (!r)
		return 0;
	at = g->addr - r->r.addr + SKEW;
	for (uint64_t l = at / LINE; l <= (at + g->len - 1) / LINE; l++)
		if (r->media[l] < step)
			return 0;
	return 1;
}

/* Did each byte of the request become durable after its arrival? */
static int is_durable(const struct request *q)
{
	const struct rp_wire_range then = {q->then.key, q->then.addr, 8};

	for (unsigned int i = 0; i < q->nranges; i++)
		if (!range_is_durable(&q->ranges[i], q->step))
			return 0;
	return q->effect != RP_EFFECT_THEN || range_is_durable(&then, q->step);
}

/* Each OK must be true, and match one request, which is then done. */
static void check_ok(struct channel *c, const struct rp_wire_hdr *hdr,
		     const struct rp_wire_reply *m)
{
	for (unsigned int i = 0; i < world.nrequests; i++) {
		struct request *q = world.requests[i];

		if (q->c != c || q->token != hdr->token || !q->possible ||
		    q->level != m->level)
			continue;
		if (m->level == RP_LEVEL_DURABLE &&
		    (m->class < q->required ||
		     (m->class == RP_CLASS_POWER && !is_durable(q))))
			continue;
		free(q);
		world.nrequests--;
		memmove(&world.requests[i], &world.requests[i + 1],
			(world.nrequests - i) * sizeof(world.requests[0]));
		return;
	}
	MUST(!"an OK that is not true");
}

static void check_sent(struct channel *c, const void *msg, size_t len)
{
	struct rp_wire_reply reply;
	struct rp_wire_info info;
	struct rp_wire_hdr hdr;

	MUST(!rp_wire_get_hdr(msg, len, &hdr));
	switch (hdr.type) {
	case RP_MSG_REPLY:
		MUST(!rp_wire_get_reply(msg, &hdr, &reply));
		if (reply.status == RP_ST_OK)
			check_ok(c, &hdr, &reply);
		break;
	case RP_MSG_INFO:
		MUST(!rp_wire_get_info(msg, &hdr, &info));
		MUST(info.status || info.grant.length);
		break;
	default:
		MUST(hdr.type == RP_MSG_PROGRESS);
	}
}

static int c_post(struct rp_channel *rc, struct rp_channel_op *ops[], int n)
{
	struct channel *c = (struct channel *)rc;
	struct rp_channel_op *op = ops[0];

	MUST(!c->closed && n == 1 && op->kind == RP_CHANNEL_SEND);
	MUST(op->iov_count == 1);
	if (!c->room)
		return 0;
	c->room -= c->room > 0;
	check_sent(c, op->iov[0].iov_base, op->iov[0].iov_len);
	if (op->inject) {
		MUST(op->iov[0].iov_len <= c->c.inject);
		return 1;
	}
	TAILQ_INSERT_HEAD(&c->under_way, op, link);
	return 1;
}

void world_complete_sends(struct channel *c, int err)
{
	struct rp_channel_op *op;

	while ((op = TAILQ_FIRST(&c->under_way))) {
		volatile uint8_t still = *(uint8_t *)op->iov[0].iov_base;

		(void)still;
		TAILQ_REMOVE(&c->under_way, op, link);
		op->done(op, err);
	}
}

static void c_close(struct rp_channel *rc)
{
	struct channel *c = (struct channel *)rc;

	MUST(!c->closed);
	world_complete_sends(c, ECANCELED);
	c->closed = 1;
	MUST(world.of[c->initiator] == c);
	world.of[c->initiator] = NULL;
	/*
	 * The channel is closed, so its requests must get no replies from now
	 * on.
	 */
	for (unsigned int i = 0; i < world.nrequests; i++)
		if (world.requests[i]->c == c)
			world.requests[i]->possible = 0;
}

static const struct rp_channel_ops channel_ops = {
	.post = c_post,
	.close = c_close,
};

static int host_accept(struct rp_agent_host *h, void *request, const void *data,
		       size_t len, const struct rp_channel_events *events,
		       void *owner, struct rp_channel **out)
{
	struct waiting *w = request;
	struct rp_wire_hello_ack ack;
	struct channel *c;

	MUST(w->used && !rp_wire_get_hello_ack(data, len, &ack));
	MUST(!ack.status && ack.credits == CREDITS);
	w->used = 0;
	if (world.accept_ret || world.nchannels == CHANNELS)
		return -ECONNABORTED;
	/*
	 * The agent closes the older connection before it accepts the newer
	 * one.
	 */
	MUST(!world.of[w->initiator]);
	c = calloc(1, sizeof(*c));
	MUST(c);
	c->c.ops = &channel_ops;
	c->c.events = events;
	c->c.owner = owner;
	c->c.inject = 64;
	c->room = -1;
	TAILQ_INIT(&c->under_way);
	c->initiator = w->initiator;
	for (unsigned int i = 0; i < REGIONS; i++)
		if (world.regions[i].live &&
		    ack.grant.rkey == world.regions[i].r.key)
			c->granted[i] = 1;
	world.channels[world.nchannels++] = world.of[w->initiator] = c;
	*out = &c->c;
	return 0;
}

static void host_refuse(struct rp_agent_host *h, void *request,
			const void *data, size_t len)
{
	struct waiting *w = request;
	struct rp_wire_hello_ack ack;

	MUST(w->used && !rp_wire_get_hello_ack(data, len, &ack) && ack.status);
	w->used = 0;
}

static int host_grant(struct rp_agent_host *h, struct rp_channel *rc,
		      const struct rp_region *r, struct rp_wire_grant *g,
		      void **grant)
{
	struct channel *c = (struct channel *)rc;
	struct region *in = world_region_of(r->key);

	MUST(in);
	if (world.grant_ret)
		return -ENOMEM;
	g->rkey = r->key;
	if (c) {
		MUST(!c->closed && !c->granted[in - world.regions]);
		c->granted[in - world.regions] = 1;
	}
	world.ngrants++;
	*grant = in;
	return 0;
}

static void host_revoke(struct rp_agent_host *h, void *grant)
{
	MUST(((struct region *)grant)->live && world.ngrants--);
}

static uint32_t host_flags(struct rp_agent_host *h)
{
	return RP_CHANNEL_FENCES | RP_CHANNEL_FLUSHES;
}

static int host_notify(struct rp_agent_host *h, struct rp_channel *c,
		       uint16_t port, uint16_t endpoint, uint64_t data,
		       void *buf, size_t len)
{
	const uint8_t *p = buf;

	MUST(c && len && (p[0] | p[len - 1] | 1));
	return world.notify_ret;
}

static uint64_t host_now(struct rp_agent_host *h)
{
	return world.now;
}

static void host_kick(struct rp_agent_host *h)
{
}

static const struct rp_agent_host_ops host_ops = {
	.accept = host_accept,
	.refuse = host_refuse,
	.grant = host_grant,
	.revoke = host_revoke,
	.flags = host_flags,
	.notify = host_notify,
	.now = host_now,
	.kick = host_kick,
};

/* Count the lines of a range. Reads both ends, so that bad memory crashes. */
static size_t count_lines(struct region *r, const void *addr, size_t len,
			  size_t *first)
{
	const uint8_t *p = addr;
	volatile uint8_t sink;

	MUST(r->live && len);
	MUST(p >= r->mem && len <= PAGES * PAGE &&
	     p + len <= r->mem + PAGES * PAGE);
	sink = p[0];
	sink = p[len - 1];
	(void)sink;
	*first = (size_t)(p - r->mem) / LINE;
	return ((size_t)(p - r->mem) + len - 1) / LINE - *first + 1;
}

static int pmem_sync(void *ctx, void *addr, size_t len)
{
	struct region *r = ctx;
	size_t first, n = count_lines(r, addr, len, &first);

	MUST((uint8_t *)addr == r->mem + first * LINE);
	MUST(first * LINE % PAGE == 0 && len % PAGE == 0);
	if (r->sync_ret)
		return r->sync_ret;
	for (size_t i = first; i < first + n; i++)
		r->media[i] = world.steps;
	return 0;
}

static void pmem_flush(void *ctx, const void *addr, size_t len)
{
	struct region *r = ctx;
	size_t first, n = count_lines(r, addr, len, &first);

	for (size_t i = first; i < first + n; i++)
		r->written[i] = world.steps;
}

static void pmem_drain(void *ctx)
{
	struct region *r = ctx;

	memcpy(r->media, r->written, sizeof(r->media));
}

/* The agent may copy only into regions that peers may write. */
static void pmem_copy(void *ctx, void *to, const void *from, size_t len)
{
	struct region *r = ctx;
	size_t first;

	MUST(r->r.writable && count_lines(r, to, len, &first));
	memcpy(to, from, len);
}

static void pmem_stream(void *ctx, void *to, const void *from, size_t len)
{
	pmem_copy(ctx, to, from, len);
	pmem_flush(ctx, to, len);
}

static void p_store8(void *ctx, uint64_t *to, uint64_t value)
{
	MUST((uintptr_t)to % sizeof(value) == 0);
	pmem_copy(ctx, to, &value, sizeof(value));
}

static void pmem_changed(void *ctx, void *addr, size_t len)
{
	struct region *r = ctx;
	size_t first;

	MUST(r->r.writable && count_lines(r, addr, len, &first));
}

/* The clock stands still: nothing here depends on the duration of a sync. */
static uint64_t pmem_now(void *ctx)
{
	return 0;
}

void world_region_add(unsigned int i)
{
	struct region *r = &world.regions[i];
	const struct rp_pmem_ops pmem_ops = {
		.sync = pmem_sync,
		.flush = pmem_flush,
		.drain = pmem_drain,
		.store8 = p_store8,
		.copy = pmem_copy,
		.stream = pmem_stream,
		.changed = pmem_changed,
		.now = pmem_now,
		.ctx = r,
	};
	const struct rp_facts f = {
		.memory = i == 0 ? RP_MEM_DAX_SYNC : RP_MEM_FILE,
		.placement = RP_PLACE_CPU_USER,
		.domain = RP_DOMAIN_MEMCTRL,
		.fs_trusted = RP_YES,
		.agent = true,
	};
	struct rp_key k = {.port = 4711,
			   .random = (1 + i) << 8 | ++r->registrations};

	memset(&r->r, 0, sizeof(r->r));
	memset(r->written, 0, sizeof(r->written));
	memset(r->media, 0, sizeof(r->media));
	r->sync_ret = 0;
	r->r.base = r->mem + SKEW;
	r->r.addr = i == 1 ? 0x7f0000000000 : 0;
	r->r.len = LENGTH;
	r->r.writable = i != 1;
	r->r.facts = f;
	r->r.choice = rp_method_best(&f, RP_METHODS_BUILT);
	k.class = r->r.choice.class;
	k.method = r->r.choice.method;
	MUST(!rp_pmem_new(r->r.base, LENGTH, k.method, NULL, &pmem_ops,
			  &r->r.pmem));
	r->r.key = rp_key_make(&k);
	MUST(!rp_agent_region_add(world.agent, &r->r));
	r->live = 1;
}

void world_region_del(unsigned int i)
{
	struct region *r = &world.regions[i];

	rp_agent_region_del(world.agent, &r->r);
	for (unsigned int k = 0; k < INITIATORS; k++)
		MUST(!world.of[k] || !world.of[k]->granted[i]);
	r->live = 0;
	rp_pmem_delete(r->r.pmem);
	/* Poison the struct: reads after the deregistration find nonsense. */
	memset(&r->r, 0xdd, sizeof(r->r));
}

void world_map(void)
{
	for (unsigned int i = 0; i < REGIONS && !world.regions[i].mem; i++) {
		uint8_t *p = mmap(NULL, (PAGES + 2) * PAGE, PROT_NONE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		MUST(p != MAP_FAILED);
		/* Region 1 is read-only. */
		MUST(!mprotect(p + PAGE, PAGES * PAGE,
			       i == 1 ? PROT_READ : PROT_READ | PROT_WRITE));
		world.regions[i].mem = p + PAGE;
	}
}

static int range_is_possible(const struct channel *c,
			     const struct rp_wire_range *g, int writes)
{
	const struct region *r = world_region_of(g->key);

	return r && c->granted[r - world.regions] && g->len &&
	       g->addr >= r->r.addr && g->addr - r->r.addr <= LENGTH &&
	       g->len <= LENGTH - (g->addr - r->r.addr) &&
	       (!writes || r->r.writable);
}

void world_remember(struct channel *c, const uint8_t *msg, size_t len)
{
	static struct rp_wire_range ranges[RP_WIRE_MAX_PACKED];
	struct rp_wire_request m = {.decoded = ranges};
	struct rp_wire_hdr hdr;
	struct request *q;
	int writes;

	if (rp_wire_get_hdr(msg, len, &hdr) ||
	    rp_wire_get_request(msg, &hdr, &m) || world.nrequests == REQUESTS)
		return;
	q = calloc(1, sizeof(*q));
	MUST(q);
	*q = (struct request){
		.c = c,
		.token = hdr.token,
		.step = world.steps,
		.possible = 1,
		.nranges = m.nranges,
		.level = m.level,
		.required = m.required,
		.effect = m.effect,
		.then = m.then,
	};
	memcpy(q->ranges, ranges, m.nranges * sizeof(ranges[0]));
	writes =
		m.effect == RP_EFFECT_STORE || m.effect == RP_EFFECT_NOTIFY ||
		m.effect == RP_EFFECT_ZERO ||
		(m.effect == RP_EFFECT_ATOMIC && m.atomic.op != RP_ATOMIC_READ);
	for (unsigned int i = 0; i < m.nranges; i++)
		q->possible &= range_is_possible(c, &ranges[i], writes);
	if (m.effect == RP_EFFECT_THEN)
		q->possible &= range_is_possible(
			c, &(struct rp_wire_range){m.then.key, m.then.addr, 8},
			1);
	world.requests[world.nrequests++] = q;
}

struct agent_world world = {.host.ops = &host_ops};
