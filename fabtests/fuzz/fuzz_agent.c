// SPDX-License-Identifier: BSD-2-Clause
/* A target's agent with hostile connection requests and messages. */
#include <errno.h>
#include <sys/mman.h>

#include "core/agent_impl.h"
#include "core/atomic.h"
#include "core/wire.h"
#include "fuzz.h"

#define INITIATORS  6
#define REGIONS	    3
#define PAGE	    4096
#define PAGES	    3
#define LINE	    64
#define LINES	    (PAGES * PAGE / LINE)
#define SKEW	    104 /* regions begin and end inside a page */
#define LENGTH	    (PAGES * PAGE - 2 * SKEW)
#define SESSIONS    3
#define CREDITS	    3
#define JOBS	    5
#define REQUESTS    512
#define CHANNELS    512
#define INCARNATION 0x1ce

/*
 * A region's memory, between two inaccessible pages. For each line `written` is
 * the step of its last write-back, `media` the step in which that became
 * durable.
 */
struct region {
	struct rp_region r;
	uint8_t *mem;
	unsigned int life; /* number of registrations so far */
	int live;
	int sync_ret;
	uint32_t written[LINES], media[LINES]; /* steps, by line */
};

struct channel {
	struct rp_channel c;
	int closed, room;
	unsigned int initiator;
	TAILQ_HEAD(, rp_channel_op) under_way;
	int granted[REGIONS];
};

/* A received request, and what an OK reply to it would promise. */
struct request {
	struct channel *c;
	uint64_t token;
	uint32_t step;
	int possible; /* every range is granted, of a live region */
	uint16_t nranges;
	uint8_t level, required, effect;
	struct rp_wire_then then;
	struct rp_wire_range ranges[RP_WIRE_MAX_PACKED];
};

/* A connection request that the agent has not accepted or refused yet. */
struct waiting {
	int used;
	unsigned int initiator;
};

static struct region regions[REGIONS];
static struct channel *channels[CHANNELS]; /* all; open ones are last */
static unsigned int nchannels;
static struct channel *of[INITIATORS]; /* connections by initiator; or NULL */
static struct waiting waiting[RP_AGENT_MAX_DELAYED + 1];
static struct request *requests[REQUESTS];
static unsigned int nrequests, ngrants;
static struct rp_agent *agent;
static uint64_t now;
static uint32_t steps;
static int accept_ret, grant_ret, notify_ret;

static struct region *region_of(uint64_t key)
{
	for (unsigned int i = 0; i < REGIONS; i++)
		if (regions[i].live && regions[i].r.key == key)
			return &regions[i];
	return NULL;
}

static int range_is_durable(const struct rp_wire_range *g, uint32_t step)
{
	const struct region *r = region_of(g->key);
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
	for (unsigned int i = 0; i < nrequests; i++) {
		struct request *q = requests[i];

		if (q->c != c || q->token != hdr->token || !q->possible ||
		    q->level != m->level)
			continue;
		if (m->level == RP_LEVEL_DURABLE &&
		    (m->class < q->required ||
		     (m->class == RP_CLASS_POWER && !is_durable(q))))
			continue;
		free(q);
		nrequests--;
		memmove(&requests[i], &requests[i + 1],
			(nrequests - i) * sizeof(requests[0]));
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

static void c_done(struct channel *c, int err)
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
	c_done(c, ECANCELED);
	c->closed = 1;
	MUST(of[c->initiator] == c);
	of[c->initiator] = NULL;
	/*
	 * The channel is closed, so its requests must get no replies from now
	 * on.
	 */
	for (unsigned int i = 0; i < nrequests; i++)
		if (requests[i]->c == c)
			requests[i]->possible = 0;
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
	if (accept_ret || nchannels == CHANNELS)
		return -ECONNABORTED;
	/*
	 * The agent closes the older connection before it accepts the newer
	 * one.
	 */
	MUST(!of[w->initiator]);
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
		if (regions[i].live && ack.grant.rkey == regions[i].r.key)
			c->granted[i] = 1;
	channels[nchannels++] = of[w->initiator] = c;
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
	struct region *in = region_of(r->key);

	MUST(in);
	if (grant_ret)
		return -ENOMEM;
	g->rkey = r->key;
	if (c) {
		MUST(!c->closed && !c->granted[in - regions]);
		c->granted[in - regions] = 1;
	}
	ngrants++;
	*grant = in;
	return 0;
}

static void host_revoke(struct rp_agent_host *h, void *grant)
{
	MUST(((struct region *)grant)->live && ngrants--);
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
	return notify_ret;
}

static uint64_t host_now(struct rp_agent_host *h)
{
	return now;
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
static struct rp_agent_host host = {.ops = &host_ops};

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
		r->media[i] = steps;
	return 0;
}

static void pmem_flush(void *ctx, const void *addr, size_t len)
{
	struct region *r = ctx;
	size_t first, n = count_lines(r, addr, len, &first);

	for (size_t i = first; i < first + n; i++)
		r->written[i] = steps;
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

static void region_add(unsigned int i)
{
	struct region *r = &regions[i];
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
	struct rp_key k = {.port = 4711, .random = (1 + i) << 8 | ++r->life};

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
	MUST(!rp_agent_region_add(agent, &r->r));
	r->live = 1;
}

static void region_del(unsigned int i)
{
	struct region *r = &regions[i];

	rp_agent_region_del(agent, &r->r);
	for (unsigned int k = 0; k < INITIATORS; k++)
		MUST(!of[k] || !of[k]->granted[i]);
	r->live = 0;
	rp_pmem_delete(r->r.pmem);
	/* Poison the struct: reads after the deregistration find nonsense. */
	memset(&r->r, 0xdd, sizeof(r->r));
}

/* Map the regions once, at addresses that stay the same in all runs. */
static void map_all(void)
{
	for (unsigned int i = 0; i < REGIONS && !regions[i].mem; i++) {
		uint8_t *p = mmap(NULL, (PAGES + 2) * PAGE, PROT_NONE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		MUST(p != MAP_FAILED);
		/* Region 1 is read-only. */
		MUST(!mprotect(p + PAGE, PAGES * PAGE,
			       i == 1 ? PROT_READ : PROT_READ | PROT_WRITE));
		regions[i].mem = p + PAGE;
	}
}

static int range_is_possible(const struct channel *c,
			     const struct rp_wire_range *g, int writes)
{
	const struct region *r = region_of(g->key);

	return r && c->granted[r - regions] && g->len && g->addr >= r->r.addr &&
	       g->addr - r->r.addr <= LENGTH &&
	       g->len <= LENGTH - (g->addr - r->r.addr) &&
	       (!writes || r->r.writable);
}

/* Remember a request that the agent may reply OK to. */
static void remember_request(struct channel *c, const uint8_t *msg, size_t len)
{
	static struct rp_wire_range ranges[RP_WIRE_MAX_PACKED];
	struct rp_wire_request m = {.decoded = ranges};
	struct rp_wire_hdr hdr;
	struct request *q;
	int writes;

	if (rp_wire_get_hdr(msg, len, &hdr) ||
	    rp_wire_get_request(msg, &hdr, &m) || nrequests == REQUESTS)
		return;
	q = calloc(1, sizeof(*q));
	MUST(q);
	*q = (struct request){
		.c = c,
		.token = hdr.token,
		.step = steps,
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
	requests[nrequests++] = q;
}

static uint64_t some_key(uint8_t choice)
{
	const struct region *r = &regions[choice % REGIONS];

	if (!r->live)
		return RP_KEY_MARK;
	/* Sometimes flip a bit, which makes a key that nobody has. */
	return r->r.key ^ (choice >> 6 == 3);
}

/* Mostly ranges inside a region, so that the agent has bytes to flush. */
static struct rp_wire_range some_range(struct fuzz_in *in, unsigned int most)
{
	uint8_t choice = fuzz_u8(in);
	struct rp_wire_range g = {.key = some_key(choice)};

	if (choice & 0x20) {
		g.addr = fuzz_u64(in);
		g.len = fuzz_u64(in) % (2 * most);
		return g;
	}
	g.addr = fuzz_u16(in) % (LENGTH + 2);
	g.len = 1 + fuzz_u16(in) % most;
	if (choice & 0x10) {
		g.addr &= ~7ull;
		g.len = 8;
	}
	if (choice % REGIONS == 1)
		g.addr += 0x7f0000000000;
	return g;
}

static int some_request(struct fuzz_in *in, uint8_t *buf)
{
	static uint8_t bytes[RP_WIRE_MAX_STORE];
	struct rp_wire_range ranges[8], then;
	uint8_t how = fuzz_u8(in), what = fuzz_u8(in);
	struct rp_wire_request m = {
		.level = 1 + (how & 1),
		.required = (how >> 1) % 3,
		.nranges = (how >> 3 & 7),
		.packed = how >> 6 & 1,
		.effect = what % 6,
		.ranges = ranges,
		.bytes = bytes,
	};
	unsigned int most = m.effect < RP_EFFECT_STORE ? 5000 : 400;

	for (unsigned int i = 0; i < m.nranges; i++)
		ranges[i] = some_range(in, most);
	memset(bytes, what, sizeof(bytes));
	if (m.effect == RP_EFFECT_THEN) {
		then = some_range(in, 8);
		m.then = (struct rp_wire_then){then.key, then.addr, what};
	}
	m.atomic = (struct rp_wire_atomic){
		.op = what / 6 % RP_ATOMIC_OPS,
		.datatype = how >> 4 & 7,
		.fetch = what >> 7,
		.operand = bytes,
		.compare = bytes,
	};
	return rp_wire_put_request(buf, RP_WIRE_MAX_MSG, fuzz_u8(in), &m);
}

static void receive_message(struct channel *c, const uint8_t *msg, size_t len)
{
	uint8_t *exact = fuzz_exact(msg, len);

	remember_request(c, exact, len);
	c->c.events->received(c->c.owner, exact, len);
	free(exact);
}

/* Deliver a REQUEST or a QUERY, valid unless `damage` is set. */
static void recv_made(struct fuzz_in *in, struct channel *c, int query,
		      int damage)
{
	struct rp_wire_query q;
	uint8_t buf[RP_WIRE_MAX_MSG];
	int len;

	if (query) {
		q.key = some_key(fuzz_u8(in));
		q.required = fuzz_u8(in) & 3;
		len = rp_wire_put_query(buf, sizeof(buf), fuzz_u8(in), &q);
	} else {
		len = some_request(in, buf);
	}
	if (len <= 0 || !c)
		return;
	if (damage) {
		uint16_t at = fuzz_u16(in);

		buf[at % (unsigned int)len] ^= fuzz_u8(in);
		if (at & 0x8000)
			len = at % len;
	}
	receive_message(c, buf, (size_t)len);
}

static void recv_raw(struct fuzz_in *in, struct channel *c)
{
	size_t len = fuzz_u16(in) % (RP_WIRE_MAX_MSG + 2);

	len = len < in->left ? len : in->left;
	if (c)
		receive_message(c, in->p, len);
	in->p += len;
	in->left -= len;
}

static void send_hello(struct fuzz_in *in, unsigned int who, int damage)
{
	uint8_t how = fuzz_u8(in);
	const struct rp_wire_hello m = {
		.key = some_key(how),
		.initiator = who,
		.timeout_ms = (uint32_t)how << (how >> 4),
		.features = how & RP_FEATURES,
	};
	uint8_t buf[RP_WIRE_CM_DATA] = {0}, *exact;
	size_t len = sizeof(buf);
	struct waiting *w = waiting;

	MUST(rp_wire_put_hello(buf, sizeof(buf), &m) > 0);
	while (w->used)
		MUST(++w < waiting + RP_AGENT_MAX_DELAYED + 1);
	w->used = 1;
	w->initiator = who;
	if (damage) {
		uint16_t at = fuzz_u16(in);

		/*
		 * Keep the initiator's number, by which the channel is found.
		 */
		if (at % len < 24 || at % len >= 32)
			buf[at % len] ^= fuzz_u8(in);
		if (at & 0x8000)
			len = at % len;
	}
	exact = fuzz_exact(buf, len);
	rp_agent_requested(agent, w, exact, len);
	free(exact);
}

static void check_limits(void)
{
	const struct rp_agent_session *s;
	struct rp_agent_stats st;
	unsigned int open = 0, delayed = 0;

	TAILQ_FOREACH (s, &agent->open, link) {
		MUST(s->backlog <= CREDITS + 1);
		open++;
	}
	TAILQ_FOREACH (s, &agent->ending, link)
		open++;
	rp_agent_stats(agent, &st);
	MUST(st.sessions == open && open <= SESSIONS);
	MUST(ngrants <= open * REGIONS && ngrants >= open);
	for (unsigned int i = 0; i < RP_AGENT_MAX_DELAYED + 1; i++)
		delayed += (unsigned int)waiting[i].used;
	MUST(delayed <= agent->ndelayed);
	MUST(agent->ndelayed <= RP_AGENT_MAX_DELAYED);
}

static void lose_channel(uint8_t which)
{
	struct waiting *w = &waiting[which % RP_AGENT_MAX_DELAYED];

	if (!w->used)
		return;
	rp_agent_request_gone(agent, w);
	w->used = 0;
}

/* One step. Bits 0 to 3 of op choose it; bit 4 makes it damaged or failing. */
static void one_step(struct fuzz_in *in)
{
	uint8_t op = fuzz_u8(in), v;
	unsigned int who = fuzz_u8(in) % INITIATORS;
	struct channel *c = of[who];
	int bad = op >> 4 & 1;

	steps++;
	switch (op & 15) {
	case 0:
		send_hello(in, who, bad);
		break;
	case 1:
	case 2:
	case 3:
		recv_made(in, c, 0, bad);
		break;
	case 4:
		recv_made(in, c, 1, bad);
		break;
	case 5:
		recv_raw(in, c);
		break;
	case 6:
		now += fuzz_u8(in) * 10000000ull;
		break;
	case 7:
		if (c)
			c->room = bad ? fuzz_u8(in) % 4 : -1;
		break;
	case 8:
		if (c)
			c_done(c, bad);
		break;
	case 9:
		v = fuzz_u8(in);
		accept_ret = bad && v % 3 == 0;
		grant_ret = bad && v % 3 == 1;
		notify_ret = bad && v % 3 == 2 ? -ENOMEM : 0;
		break;
	case 10:
		regions[2].sync_ret = bad ? -EIO : 0;
		break;
	case 11:
		v = fuzz_u8(in) % REGIONS;
		if (regions[v].live)
			region_del(v);
		else
			region_add(v);
		break;
	case 12:
		if (c)
			c->c.events->lost(c->c.owner, ECONNRESET, NULL, 0);
		break;
	case 13:
		if (bad)
			rp_agent_close_sessions(agent);
		else
			lose_channel(fuzz_u8(in));
		break;
	default:
		for (int i = 0; rp_agent_progress(agent); i++)
			MUST(i < 1000);
	}
	check_limits();
}

static void all_sent(void)
{
	for (unsigned int i = 0; i < INITIATORS; i++) {
		if (!of[i])
			continue;
		of[i]->room = -1;
		c_done(of[i], 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct rp_agent_attr attr = {
		.incarnation = INCARNATION,
		.max_sessions = SESSIONS,
		.credits = CREDITS,
		.max_jobs = JOBS,
		.no_worker = true,
	};
	struct fuzz_in in = {data, size};

	map_all();
	memset(waiting, 0, sizeof(waiting));
	accept_ret = grant_ret = notify_ret = 0;
	now = 1000000000;
	steps = 0;
	MUST(!rp_agent_new(&attr, &host, &agent));
	for (unsigned int i = 0; i < REGIONS; i++) {
		regions[i].life = 0;
		region_add(i);
	}
	while (in.left && steps < 400)
		one_step(&in);

	/* Accepted requests get their replies after sending works again. */
	for (int i = 0; rp_agent_pending(agent); i++) {
		MUST(i < 1000);
		all_sent();
		now += 10000000;
		rp_agent_progress(agent);
	}
	for (unsigned int i = 0; i < REGIONS; i++)
		if (regions[i].live)
			region_del(i);
	rp_agent_delete(agent);
	MUST(!ngrants);
	for (unsigned int i = 0; i < RP_AGENT_MAX_DELAYED + 1; i++)
		MUST(!waiting[i].used);
	while (nchannels) {
		MUST(channels[--nchannels]->closed);
		free(channels[nchannels]);
	}
	while (nrequests)
		free(requests[--nrequests]);
	return 0;
}
