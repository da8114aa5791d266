// SPDX-License-Identifier: BSD-2-Clause
/* A target's agent under a sequence of hostile messages from several sources.
 */
#include <errno.h>
#include <sys/mman.h>

#include "core/agent_impl.h"
#include "core/wire.h"
#include "fuzz.h"

#define XPORTS	    2
#define PEERS	    16 /* answer addresses that one xport can hold */
#define REGIONS	    3
#define PAGE	    4096
#define PAGES	    3
#define LINE	    64
#define LINES	    (PAGES * PAGE / LINE)
#define SKEW	    100 /* regions begin and end anywhere */
#define LENGTH	    (PAGES * PAGE - 2 * SKEW)
#define SESSIONS    3
#define HALF_OPEN   3
#define CREDITS	    3
#define JOBS	    5
#define COOKIES	    8
#define ASKED	    512
#define INCARNATION 0x1ce

struct xport {
	struct rp_xport x;
	int send_ret;
	struct {
		int used;
		uint8_t addr[RP_WIRE_MAX_ADDR];
		size_t len;
	} peers[PEERS];
	unsigned int open, offers;
};

/*
 * Memory between two pages that nobody may touch. When a line was written back
 * is kept apart from when it reached the media.
 */
struct region {
	struct rp_region r;
	enum rp_method method;
	uint8_t *mem;
	unsigned int life; /* counts registrations */
	int live;
	int sync_ret;
	uint32_t written[LINES], media[LINES]; /* at which step */
};

/* A request that arrived, and what an OK to it then means. */
struct asked {
	unsigned int x;
	uint64_t peer, session, token;
	uint32_t step;
	int possible; /* every range inside a live region of its key */
	int settled;  /* was durable when one of its regions went */
	struct rp_wire_request m;
};

static struct xport xports[XPORTS];
static struct region regions[REGIONS];
static struct rp_agent *agent;
static uint64_t now, randoms;
static uint32_t steps;
static struct asked *asked[ASKED];
static unsigned int nasked;
/*
 * Sessions that the agent gave away: what they must carry, whose they are. Two
 * peers may call theirs the same.
 */
static struct {
	unsigned int x;
	uint64_t peer, cookie, theirs;
} given[COOKIES];
static unsigned int ngiven;
/* Connections of our own that are offered; the last one asked for over it. */
static void *conns[XPORTS * SESSIONS];
static struct asked *over;

static uint64_t x_now(struct rp_xport *x)
{
	(void)x;
	return now;
}

static struct region *region_of(uint64_t key)
{
	for (unsigned int i = 0; i < REGIONS; i++)
		if (regions[i].live && regions[i].r.key == key)
			return &regions[i];
	return NULL;
}

/* Did each byte reach the media after the request arrived? */
static int is_durable(const struct asked *a)
{
	for (unsigned int i = 0; i < a->m.nranges; i++) {
		const struct rp_wire_range *g = &a->m.ranges[i];
		const struct region *r = region_of(g->key);
		uint64_t at;

		if (!r)
			return 0;
		at = g->addr - r->r.addr + SKEW;
		for (uint64_t l = at / LINE; l <= (at + g->len - 1) / LINE; l++)
			if (r->media[l] < a->step)
				return 0;
	}
	return 1;
}

/*
 * An OK must be the answer to a request, and true. One request, one OK, and
 * those of one token in their order.
 */
static void judge_ok(unsigned int xi, uint64_t peer,
		     const struct rp_wire_hdr *hdr,
		     const struct rp_wire_reply *m)
{
	for (unsigned int i = 0; i < nasked; i++) {
		struct asked *a = asked[i];
		int flush = m->class == RP_CLASS_POWER;

		if (a->x != xi || a->peer != peer || a->token != hdr->token ||
		    a->session != hdr->session || !a->possible ||
		    a->m.level != m->level)
			continue;
		if (m->level == RP_LEVEL_DURABLE &&
		    (m->class < a->m.required ||
		     (flush && !a->settled && !is_durable(a))))
			continue;
		free(a);
		nasked--;
		memmove(&asked[i], &asked[i + 1],
			(nasked - i) * sizeof(asked[0]));
		return;
	}
	MUST(!"an OK that is not true");
}

static int x_send(struct rp_xport *x, uint64_t peer, const void *msg,
		  size_t len)
{
	struct xport *fx = (struct xport *)x;
	unsigned int xi = (unsigned int)(fx - xports);
	struct rp_wire_hello_ack ack;
	struct rp_wire_offer offer;
	struct rp_wire_reply reply;
	struct rp_wire_info info;
	struct rp_wire_hdr hdr;

	MUST(peer < PEERS && fx->peers[peer].used);
	if (fx->send_ret)
		return fx->send_ret;
	MUST(!rp_wire_get_hdr(msg, len, &hdr));
	MUST(hdr.session);
	switch (hdr.type) {
	case RP_MSG_HELLO_ACK:
		MUST(!rp_wire_get_hello_ack(msg, &hdr, &ack));
		if (ack.status)
			break;
		MUST(ack.credits == CREDITS);
		given[ngiven % COOKIES].x = xi;
		given[ngiven % COOKIES].peer = peer;
		given[ngiven % COOKIES].cookie = ack.cookie;
		given[ngiven % COOKIES].theirs = hdr.session;
		ngiven++;
		break;
	case RP_MSG_REPLY:
		MUST(!rp_wire_get_reply(msg, &hdr, &reply));
		if (reply.status == RP_ST_OK)
			judge_ok(xi, peer, &hdr, &reply);
		break;
	case RP_MSG_INFO:
		MUST(!rp_wire_get_info(msg, &hdr, &info));
		break;
	case RP_MSG_OFFER:
		MUST(!rp_wire_get_offer(msg, &hdr, &offer));
		break;
	default:
		MUST(hdr.type == RP_MSG_PROGRESS);
	}
	return 0;
}

static int x_peer_get(struct rp_xport *x, const void *addr, size_t len,
		      uint64_t *peer)
{
	struct xport *fx = (struct xport *)x;

	MUST(len && len <= RP_WIRE_MAX_ADDR);
	MUST(fx->open < SESSIONS + HALF_OPEN);
	for (unsigned int i = 0; i < PEERS; i++) {
		if (fx->peers[i].used)
			continue;
		fx->peers[i].used = 1;
		fx->peers[i].len = len;
		memcpy(fx->peers[i].addr, addr, len);
		fx->open++;
		*peer = i;
		/* An address that the base will not have. */
		if (((const uint8_t *)addr)[0] != 0xff)
			return 0;
		fx->peers[i].used = 0;
		fx->open--;
		return -EINVAL;
	}
	return -ENOSPC;
}

static void x_peer_put(struct rp_xport *x, uint64_t peer)
{
	struct xport *fx = (struct xport *)x;

	MUST(peer < PEERS && fx->peers[peer].used);
	fx->peers[peer].used = 0;
	fx->open--;
	/* Whoever comes next has its place, not its sessions. */
	for (unsigned int i = 0; i < COOKIES; i++)
		if (given[i].x == (unsigned int)(fx - xports) &&
		    given[i].peer == peer)
			given[i].theirs = 0;
}

/* At most one for each session; what is not there cannot be ended. */
static int x_offer(struct rp_xport *x, void **conn, const struct rp_region *r,
		   struct rp_wire_offer *m)
{
	struct xport *fx = (struct xport *)x;

	MUST(region_of(r->key) && r->pmem && r->writable && !r->failed);
	if (!*conn) {
		unsigned int i = 0;

		*conn = malloc(1);
		MUST(*conn && ++fx->offers <= SESSIONS);
		while (conns[i])
			i++;
		conns[i] = *conn;
	}
	m->secret = m->there = 1 + r->key;
	m->addr_len = 1;
	/* Made, and yet not offered. */
	return fx->send_ret == -EIO ? -ENOSPC : 0;
}

static void x_unoffer(struct rp_xport *x, void *conn)
{
	struct xport *fx = (struct xport *)x;

	MUST(fx->offers--);
	for (unsigned int i = 0; i < XPORTS * SESSIONS; i++)
		if (conns[i] == conn)
			conns[i] = NULL;
	free(conn);
}

/* At once, and only what was asked for; an OK is true. */
static void x_answer(struct rp_xport *x, void *conn, const void *msg,
		     size_t len)
{
	struct rp_wire_reply m;
	struct rp_wire_hdr hdr;

	MUST(over && conn && len <= RP_WIRE_INJECT);
	MUST(!rp_wire_get_hdr(msg, len, &hdr));
	MUST(!rp_wire_get_reply(msg, &hdr, &m));
	MUST(hdr.session == over->session && hdr.token == over->token);
	if (m.status == RP_ST_OK)
		MUST(over->possible && m.level == RP_LEVEL_DURABLE &&
		     m.class >= over->m.required &&
		     (m.class < RP_CLASS_POWER || is_durable(over)));
	free(over);
	over = NULL;
}

static int x_random(struct rp_xport *x, void *buf, size_t len)
{
	uint64_t v = ++randoms * 0x9e3779b97f4a7c15ull;

	(void)x;
	MUST(len == sizeof(v));
	memcpy(buf, &v, len);
	return 0;
}

static void x_kick(struct rp_xport *x)
{
	(void)x;
}

static int x_notify(struct rp_xport *x, uint64_t peer, uint64_t data, void *buf,
		    size_t len)
{
	(void)x;
	(void)peer;
	(void)data;
	(void)buf;
	(void)len;
	return 0;
}

static const struct rp_xport_ops ops = {
	.notify = x_notify,
	.offer = x_offer,
	.unoffer = x_unoffer,
	.answer = x_answer,
	.now = x_now,
	.send = x_send,
	.peer_get = x_peer_get,
	.peer_put = x_peer_put,
	.random = x_random,
	.kick = x_kick,
};

/* Which lines; and that the memory may be touched at all. */
static size_t lines(struct region *r, const void *addr, size_t len,
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

static int p_sync(void *ctx, void *addr, size_t len)
{
	struct region *r = ctx;
	size_t first, n = lines(r, addr, len, &first);

	MUST((uint8_t *)addr == r->mem + first * LINE);
	MUST(first * LINE % PAGE == 0 && len % PAGE == 0);
	if (r->sync_ret)
		return r->sync_ret;
	for (size_t i = first; i < first + n; i++)
		r->media[i] = steps;
	return 0;
}

static void p_flush(void *ctx, const void *addr, size_t len)
{
	struct region *r = ctx;
	size_t first, n = lines(r, addr, len, &first);

	for (size_t i = first; i < first + n; i++)
		r->written[i] = steps;
}

static void p_drain(void *ctx)
{
	struct region *r = ctx;

	memcpy(r->media, r->written, sizeof(r->media));
}

/* A sync takes no time that could decide anything. */
static uint64_t p_now(void *ctx)
{
	return 0;
}

static void region_add(unsigned int i)
{
	struct region *r = &regions[i];
	const struct rp_pmem_ops pmem_ops = {
		.sync = p_sync,
		.flush = p_flush,
		.drain = p_drain,
		.now = p_now,
		.ctx = r,
	};
	struct rp_facts f = {
		.memory = i == 0 ? RP_MEM_DAX_SYNC : RP_MEM_FILE,
		.placement = RP_PLACE_CPU_USER,
		.domain = RP_DOMAIN_MEMCTRL,
		.fs_trusted = RP_YES,
		.agent = true,
	};
	/* The same base key in each life, as a restarted base has it. */
	struct rp_key k = {.base = 1 + i, .random = ++r->life};

	if (i == 2)
		f.memory = RP_MEM_ANON;
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
	if (i != 2) {
		k.persistent = true;
		k.class = r->r.choice.class;
		k.method = r->r.choice.method;
		MUST(!rp_pmem_new(r->r.base, LENGTH, k.method, NULL, &pmem_ops,
				  &r->r.pmem));
	}
	r->r.key = rp_key_make(&k);
	MUST(!rp_agent_region_add(agent, &r->r));
	r->live = 1;
}

static void region_del(unsigned int i)
{
	struct region *r = &regions[i];

	rp_agent_region_del(agent, &r->r);
	/* Their OK may still be on its way. */
	for (unsigned int k = 0; k < nasked; k++)
		asked[k]->settled |= asked[k]->possible && is_durable(asked[k]);
	r->live = 0;
	if (r->r.pmem)
		rp_pmem_delete(r->r.pmem);
	/* Whoever still looks at it finds nonsense. */
	memset(&r->r, 0xdd, sizeof(r->r));
}

/* Once: pages stay where they are from run to run. */
static void map_all(void)
{
	for (unsigned int i = 0; i < REGIONS && !regions[i].mem; i++) {
		uint8_t *p = mmap(NULL, (PAGES + 2) * PAGE, PROT_NONE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		MUST(p != MAP_FAILED);
		/* Nor does the agent ever store into a region. */
		MUST(!mprotect(p + PAGE, PAGES * PAGE, PROT_READ));
		regions[i].mem = p + PAGE;
	}
}

/* NULL: nothing that can be answered with an OK. */
static struct asked *as_asked(unsigned int xi, const uint8_t *msg, size_t len)
{
	struct rp_wire_hdr hdr;
	struct asked *a;

	if (rp_wire_get_hdr(msg, len, &hdr))
		return NULL;
	a = calloc(1, sizeof(*a));
	MUST(a);
	for (unsigned int i = 0; i < COOKIES && i < ngiven; i++)
		if (given[i].x == xi && given[i].cookie == hdr.session) {
			a->session = given[i].theirs;
			a->peer = given[i].peer;
		}
	if (!a->session || rp_wire_get_request(msg, &hdr, &a->m)) {
		free(a);
		return NULL;
	}
	a->x = xi;
	a->token = hdr.token;
	a->step = steps;
	a->possible = !hdr.incarnation || hdr.incarnation == INCARNATION;
	for (unsigned int i = 0; i < a->m.nranges; i++) {
		const struct rp_wire_range *g = &a->m.ranges[i];
		const struct region *r = region_of(g->key);

		if (!r || !g->len || g->addr < r->r.addr ||
		    g->addr - r->r.addr > LENGTH ||
		    g->len > LENGTH - (g->addr - r->r.addr) ||
		    (a->m.level == RP_LEVEL_DURABLE && !r->r.pmem))
			a->possible = 0;
	}
	return a;
}

static void remember(unsigned int xi, const uint8_t *msg, size_t len)
{
	struct asked *a = nasked < ASKED ? as_asked(xi, msg, len) : NULL;

	if (a)
		asked[nasked++] = a;
}

/* Over some connection, its own or another's. */
static void receive_over(unsigned int xi, const uint8_t *msg, size_t len,
			 uint8_t which)
{
	uint8_t *exact = fuzz_exact(msg, len);

	over = as_asked(xi, exact, len);
	rp_agent_linked(agent, &xports[xi].x,
			conns[which % (XPORTS * SESSIONS)], exact, len);
	free(exact);
	free(over);
	over = NULL;
}

static uint64_t some_key(uint8_t choice)
{
	const struct region *r = &regions[choice % REGIONS];

	if (!r->live)
		return RP_KEY_MARK;
	/* Sometimes another registration's. */
	return r->r.key ^ (uint64_t)(choice >> 6) << 40;
}

/* Mostly inside, so that there is something to flush. */
static struct rp_wire_range some_range(struct fuzz_in *in)
{
	uint8_t choice = fuzz_u8(in);
	struct rp_wire_range g = {.key = some_key(choice)};

	if (choice & 0x20) {
		g.addr = fuzz_u64(in);
		g.len = fuzz_u64(in);
		return g;
	}
	g.addr = fuzz_u16(in) % (LENGTH + 2);
	g.len = fuzz_u16(in) % (LENGTH + 2 - g.addr);
	if (choice % REGIONS == 1)
		g.addr += 0x7f0000000000;
	return g;
}

static int some_message(struct fuzz_in *in, unsigned int kind, uint8_t *buf)
{
	static const uint8_t types[] = {RP_MSG_HELLO, RP_MSG_REQUEST,
					RP_MSG_QUERY, RP_MSG_BYE,
					RP_MSG_CONNECT};
	static struct rp_wire_request m;
	struct rp_wire_hdr hdr = {.type = types[kind]};
	uint8_t who = fuzz_u8(in), how = fuzz_u8(in);
	struct rp_wire_hello hello = {
		.cookie = 1 + (who & 15),
		.key = some_key(0),
		.timeout_ms = (uint32_t)how << (who >> 4),
		.features = how & RP_FEATURES,
		.addr_len = 1 + (how & 7),
		.addr = {who >> 3},
	};
	struct rp_wire_connect connect;
	struct rp_wire_query q = {.required = how & 3};

	hdr.token = how >> 4;
	if (kind)
		hdr.session = given[who % COOKIES].cookie;
	/* Of no life, of this one, of another one. */
	hdr.incarnation = who & 0x40 ? 0 : INCARNATION + (who >> 7);
	switch (kind) {
	case 0:
		return rp_wire_put_hello(buf, RP_WIRE_MAX_MSG, &hdr, &hello);
	case 1:
		m = (struct rp_wire_request){
			.level = 1 + (how & 1),
			.required = (how >> 1) & 3,
			.nranges = 1 + fuzz_u8(in) % 8,
		};
		for (unsigned int i = 0; i < m.nranges; i++)
			m.ranges[i] = some_range(in);
		return rp_wire_put_request(buf, RP_WIRE_MAX_MSG, &hdr, &m);
	case 2:
		q.key = some_key(fuzz_u8(in));
		return rp_wire_put_query(buf, RP_WIRE_MAX_MSG, &hdr, &q);
	case 4:
		connect = (struct rp_wire_connect){
			.id = 1 + (how & 3),
			.key = some_key(fuzz_u8(in)),
		};
		return rp_wire_put_connect(buf, RP_WIRE_MAX_MSG, &hdr,
					   &connect);
	}
	return rp_wire_put_empty(buf, RP_WIRE_MAX_MSG, &hdr);
}

static void receive(unsigned int xi, const uint8_t *msg, size_t len)
{
	uint8_t *exact = fuzz_exact(msg, len);

	remember(xi, exact, len);
	rp_agent_recv(agent, &xports[xi].x, exact, len);
	free(exact);
}

/* linked: over a connection of our own. */
static void recv_made(struct fuzz_in *in, unsigned int xi, unsigned int kind,
		      int damage, int linked)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	int len = some_message(in, kind, buf);

	if (len <= 0)
		return;
	if (damage) {
		uint16_t at = fuzz_u16(in);

		buf[at % (unsigned int)len] ^= fuzz_u8(in);
		if (at & 0x8000)
			len = at % len;
	}
	if (linked)
		receive_over(xi, buf, (size_t)len, fuzz_u8(in));
	else
		receive(xi, buf, (size_t)len);
}

static void recv_raw(struct fuzz_in *in, unsigned int xi)
{
	size_t len = fuzz_u16(in) % (RP_WIRE_MAX_MSG + 2);

	len = len < in->left ? len : in->left;
	receive(xi, in->p, len);
	in->p += len;
	in->left -= len;
}

static void check_limits(void)
{
	const struct rp_client *c;
	const struct rp_job *job;
	struct rp_agent_stats st;
	unsigned int all = 0;

	TAILQ_FOREACH (c, &agent->clients.open_list, link) {
		unsigned int n = 0;

		TAILQ_FOREACH (job, &c->jobs, of_client)
			n++;
		MUST(n <= CREDITS);
		all += n;
	}
	MUST(all <= JOBS);

	rp_agent_stats(agent, &st);
	MUST(st.sessions <= SESSIONS && st.half_open <= HALF_OPEN);
	MUST(xports[0].open + xports[1].open == st.sessions + st.half_open);
	/* Jobs, and as many refusals that could not be sent yet. */
	MUST(rp_agent_pending(agent) <= 2 * JOBS);
}

/*
 * Low four bits: what happens; bit 4: on which xport; bit 5: damaged; bit 6:
 * over a connection of our own.
 */
static void one_step(struct fuzz_in *in)
{
	uint8_t op = fuzz_u8(in), v;
	unsigned int xi = op >> 4 & 1;

	steps++;
	switch (op & 15) {
	case 0:
	case 1:
	case 2:
	case 3:
		recv_made(in, xi, op & 15, op & 0x20, op & 0x40);
		break;
	case 4:
	case 5:
		recv_made(in, xi, 1, op & 0x20, op & 0x40);
		break;
	case 6:
		recv_raw(in, xi);
		break;
	case 7:
		now += fuzz_u8(in) * 50000000ull;
		break;
	case 8:
		xports[xi].send_ret = op & 0x20 ? -EAGAIN : 0;
		break;
	case 9:
		xports[xi].send_ret = op & 0x20 ? -EIO : 0;
		break;
	case 10:
		regions[1].sync_ret = op & 0x20 ? -EIO : 0;
		break;
	case 11:
		v = fuzz_u8(in) % REGIONS;
		if (regions[v].live)
			region_del(v);
		else
			region_add(v);
		break;
	case 12:
		if (op & 0x20)
			rp_agent_drop_xport(agent, &xports[xi].x);
		else
			recv_made(in, xi, 4, 0, 0);
		break;
	default:
		for (int i = 0; rp_agent_progress(agent); i++)
			MUST(i < 1000);
	}
	check_limits();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct rp_agent_attr attr = {
		.incarnation = INCARNATION,
		.max_sessions = SESSIONS,
		.max_half_open = HALF_OPEN,
		.credits = CREDITS,
		.max_jobs = JOBS,
		.no_worker = true,
		.links = true,
		.native = true,
	};
	struct fuzz_in in = {data, size};

	map_all();
	memset(xports, 0, sizeof(xports));
	memset(given, 0, sizeof(given));
	ngiven = 0;
	now = 1000000000;
	randoms = steps = 0;
	MUST(!rp_agent_new(&attr, &agent));
	for (unsigned int i = 0; i < XPORTS; i++)
		xports[i].x.ops = &ops;
	for (unsigned int i = 0; i < REGIONS; i++) {
		regions[i].life = 0;
		region_add(i);
	}
	while (in.left && steps < 400)
		one_step(&in);

	/* What was accepted is answered when sending works again. */
	xports[0].send_ret = xports[1].send_ret = 0;
	for (int i = 0; rp_agent_pending(agent); i++) {
		MUST(i < 1000);
		now += 10000000;
		rp_agent_progress(agent);
	}
	for (unsigned int i = 0; i < XPORTS; i++) {
		rp_agent_drop_xport(agent, &xports[i].x);
		MUST(!xports[i].open && !xports[i].offers);
	}
	for (unsigned int i = 0; i < REGIONS; i++)
		if (regions[i].live)
			region_del(i);
	rp_agent_delete(agent);
	while (nasked)
		free(asked[--nasked]);
	return 0;
}
