/* SPDX-License-Identifier: BSD-2-Clause */
/* The world of both_world.h: a base that loses things, a target that dies. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "both_world.h"

uint64_t w_below(struct world *w, uint64_t n)
{
	return seeded_below(&w->rng, n);
}

bool w_chance(struct world *w, unsigned int per_thousand)
{
	return !w->quiet && per_thousand && w_below(w, 1000) < per_thousand;
}

void w_say(const struct world *w, const char *fmt, ...)
{
	va_list ap;

	if (!w->trace)
		return;
	fprintf(stderr, "%12.6f %4llu ", w->now / 1e9,
		(unsigned long long)w->event);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

/* --- the target's memory: a flush table instead of media --- */

static unsigned int cell_of(const struct w_reg *g, const void *p)
{
	return ((const char *)p - (const char *)g->r.base) / W_CELL;
}

static int op_sync(void *ctx, void *addr, size_t len)
{
	struct w_reg *g = ctx;
	unsigned int first = cell_of(g, addr);

	W_CHECK(g->w, !g->gone, "sync of memory that is gone");
	if (g->broken || w_chance(g->w, g->w->rules.sync_fails)) {
		w_say(g->w, "sync fails");
		g->broken = true;
		return -EIO;
	}
	g->w->event++;
	for (unsigned int i = first; i < first + len / W_CELL; i++)
		g->durable[i] = g->w->event;
	return 0;
}

static void op_flush(void *ctx, const void *addr, size_t len)
{
	struct w_reg *g = ctx;
	unsigned int first = cell_of(g, addr);

	W_CHECK(g->w, !g->gone, "flush of memory that is gone");
	g->w->event++;
	for (unsigned int i = first; i < first + (len + W_CELL - 1) / W_CELL;
	     i++)
		g->way[i] = g->w->event;
}

static void op_drain(void *ctx)
{
	struct w_reg *g = ctx;

	for (unsigned int i = 0; i < W_CELLS; i++)
		if (g->durable[i] < g->way[i])
			g->durable[i] = g->way[i];
}

/* A commit's effect is had; value names the commit. */
static void effect(struct world *w, uint64_t value)
{
	struct w_commit *c = &w->commits[(uint32_t)value];

	W_CHECK(w, value >> 32 == w->epoch && (uint32_t)value < w->ncommits,
		"an effect of nobody");
	w_say(w, "commit %u has its effect", (uint32_t)value);
	c->done++;
	c->done_at = ++w->event;
	W_CHECK(w, c->done == 1, "commit %u: its effect for the second time",
		(uint32_t)value);
	w->judge_effect(w, c);
}

static void op_store8(void *ctx, uint64_t *addr, uint64_t value)
{
	struct w_reg *g = ctx;
	const struct w_commit *c = &g->w->commits[(uint32_t)value];

	W_CHECK(g->w, !g->gone, "store to memory that is gone");
	effect(g->w, value);
	W_CHECK(g->w,
		c->effect.reg == g && c->effect.cell == cell_of(g, addr) &&
			(uintptr_t)addr % W_CELL == 0,
		"commit %u stores elsewhere", (uint32_t)value);
}

static const struct rp_facts kinds[W_KINDS] = {
	[W_MSYNC] = {.memory = RP_MEM_FILE,
		     .placement = RP_PLACE_CPU_USER,
		     .fs_trusted = RP_YES,
		     .agent = true},
	[W_CLWB] = {.memory = RP_MEM_DAX_SYNC,
		    .placement = RP_PLACE_CPU_USER,
		    .domain = RP_DOMAIN_MEMCTRL,
		    .fs_trusted = RP_YES,
		    .agent = true},
	[W_TMPFS] = {.memory = RP_MEM_TMPFS,
		     .placement = RP_PLACE_CPU_USER,
		     .agent = true},
};

/* A sync takes no time that could decide anything. */
static uint64_t op_now(void *ctx)
{
	return 0;
}

/* A registration with the base key that every life uses for this kind. */
static void reg_new(struct world *w, enum w_kind kind)
{
	/* Never touched: only addresses count. */
	static char memory[W_KINDS][W_CELLS * W_CELL]
		__attribute__((aligned(4096)));
	struct w_reg *g = calloc(1, sizeof(*g));
	const struct rp_pmem_ops ops = {
		.sync = op_sync,
		.flush = op_flush,
		.drain = op_drain,
		.store8 = op_store8,
		.now = op_now,
		.ctx = g,
	};
	struct rp_key k = {.base = kind + 1, .persistent = true};

	cr_assert(g && w->nregs < W_REGS);
	g->w = w;
	g->life = w->life;
	g->kind = kind;
	g->r.facts = kinds[kind];
	g->r.choice = rp_method_best(&g->r.facts, RP_METHODS_BUILT);
	cr_assert_neq(g->r.choice.method, RP_METHOD_REFUSED);
	k.random = w_below(w, 1 << 24);
	k.class = g->r.choice.class;
	k.method = g->r.choice.method;
	g->r.key = rp_key_make(&k);
	g->r.base = memory[kind];
	g->r.len = sizeof(memory[kind]);
	g->r.writable = true;
	cr_assert_eq(rp_pmem_new(g->r.base, g->r.len, g->r.choice.method, NULL,
				 &ops, &g->r.pmem),
		     0);
	cr_assert_eq(rp_agent_region_add(w->life->a, &g->r), 0);
	w->life->now[kind] = g;
	w->regs[w->nregs++] = g;
}

static void reg_del(struct world *w, struct w_reg *g)
{
	rp_agent_region_del(w->life->a, &g->r);
	rp_pmem_delete(g->r.pmem);
	g->r.pmem = NULL;
	g->gone = true;
}

/* --- the target's side of the base --- */

static struct world *world_of(struct rp_xport *x)
{
	return (struct world *)((char *)x - offsetof(struct world, x));
}

static uint64_t t_now(struct rp_xport *x)
{
	return world_of(x)->now;
}

static struct w_item *item_new(struct w_write *write, const void *msg,
			       size_t len)
{
	struct w_item *it = malloc(sizeof(*it) + len);

	cr_assert(it);
	it->write = write;
	it->len = len;
	if (len)
		memcpy(it->msg, msg, len);
	return it;
}

static void push(struct w_items *q, unsigned int *n, struct w_item *it)
{
	STAILQ_INSERT_TAIL(q, it, link);
	(*n)++;
}

static int t_send(struct rp_xport *x, uint64_t peer, const void *msg,
		  size_t len)
{
	struct world *w = world_of(x);
	struct w_init *i = &w->init[peer];

	if (w_chance(w, w->rules.again))
		return -EAGAIN;
	if (w_chance(w, w->rules.send_fails))
		return -ENOTCONN;
	w_say(w, "target -> %u: type %u", i->id, ((const uint8_t *)msg)[3]);
	push(&i->back, &i->nback, item_new(NULL, msg, len));
	return 0;
}

static int t_peer_get(struct rp_xport *x, const void *addr, size_t len,
		      uint64_t *peer)
{
	struct world *w = world_of(x);
	unsigned int id = ((const char *)addr)[0] - 'A';

	W_CHECK(w, len == 1 && id < W_INITS, "an address nobody has");
	w->life->peers++;
	*peer = id;
	return 0;
}

static void t_peer_put(struct rp_xport *x, uint64_t peer)
{
	world_of(x)->life->peers--;
}

static int t_random(struct rp_xport *x, void *buf, size_t len)
{
	uint64_t v = seeded_next(&world_of(x)->rng);

	memcpy(buf, &v, len);
	return 0;
}

static int t_notify(struct rp_xport *x, uint64_t peer, uint64_t data, void *buf,
		    size_t len)
{
	struct world *w = world_of(x);

	if (w_chance(w, w->rules.again))
		return -ENOMEM;
	effect(w, data);
	W_CHECK(w, w->commits[(uint32_t)data].in == &w->init[peer],
		"the source of another");
	return 0;
}

static void t_kick(struct rp_xport *x)
{
}

static const struct rp_xport_ops t_ops = {
	.now = t_now,
	.send = t_send,
	.peer_get = t_peer_get,
	.peer_put = t_peer_put,
	.random = t_random,
	.notify = t_notify,
	.kick = t_kick,
};

static void life_new(struct world *w)
{
	struct rp_agent_attr attr = {
		.incarnation = seeded_next(&w->rng) | 1,
		.credits = w->rules.credits,
		.max_jobs = w->rules.max_jobs,
		.max_sessions = w->rules.max_sessions,
		.no_worker = true,
	};

	w->life = calloc(1, sizeof(*w->life));
	cr_assert(w->life);
	w->life->incarnation = attr.incarnation;
	cr_assert_eq(rp_agent_new(&attr, &w->life->a), 0);
	for (int k = 0; k < W_KINDS; k++)
		reg_new(w, (enum w_kind)k);
}

static void life_end(struct world *w)
{
	rp_agent_drop_xport(w->life->a, &w->x);
	W_CHECK(w, !w->life->peers, "%u peers not put", w->life->peers);
	W_CHECK(w, !rp_agent_pending(w->life->a), "jobs are left");
	for (int k = 0; k < W_KINDS; k++)
		reg_del(w, w->life->now[k]);
	rp_agent_delete(w->life->a);
	free(w->life);
}

/* --- the initiators' side of the base --- */

static struct w_init *init_of(struct rp_xport *x)
{
	return (struct w_init *)((char *)x - offsetof(struct w_init, x));
}

static uint64_t i_now(struct rp_xport *x)
{
	return init_of(x)->w->now;
}

static int i_send(struct rp_xport *x, uint64_t peer, const void *msg,
		  size_t len)
{
	struct w_init *i = init_of(x);

	if (w_chance(i->w, i->w->rules.again))
		return -EAGAIN;
	if (w_chance(i->w, i->w->rules.send_fails))
		return -ENOTCONN;
	w_say(i->w, "%u -> target: type %u", i->id, ((const uint8_t *)msg)[3]);
	push(&i->there, &i->nthere, item_new(NULL, msg, len));
	return 0;
}

static int i_name(struct rp_xport *x, void *addr, size_t *len)
{
	*(char *)addr = 'A' + init_of(x)->id;
	*len = 1;
	return 0;
}

static int i_random(struct rp_xport *x, void *buf, size_t len)
{
	uint64_t v = seeded_next(&init_of(x)->w->rng);

	memcpy(buf, &v, len);
	return 0;
}

static const struct rp_xport_ops i_ops = {
	.now = i_now,
	.send = i_send,
	.name = i_name,
	.random = i_random,
	.kick = t_kick,
};

struct rp_peer *w_peer(struct w_init *i)
{
	struct rp_peer *p = rp_peer_get(i->in, 0);

	cr_assert(p);
	return p;
}

static void init_start(struct world *w, unsigned int id)
{
	struct w_init *i = &w->init[id];
	const struct rp_initiator_attr attr = {
		.timeout_ns = W_TIMEOUT,
		.slow_rate = 16 << 20,
		.max_commits = 16,
		.ordered = w->rules.ordered,
	};

	*i = (struct w_init){.x.ops = &i_ops, .w = w, .id = id};
	STAILQ_INIT(&i->there);
	STAILQ_INIT(&i->back);
	STAILQ_INIT(&i->zombies);
	cr_assert_eq(rp_initiator_new(&attr, &i->x, &i->in), 0);
}

static void init_progress(struct w_init *i)
{
	struct world *w = i->w;

	rp_initiator_progress(i->in);
	W_CHECK(w, rp_initiator_deadline(i->in) > w->now,
		"a sleeper would spin");
}

/* --- what travels --- */

static struct w_item *take(struct w_items *q, unsigned int *n, size_t at)
{
	struct w_item *it = STAILQ_FIRST(q);

	while (at--)
		it = STAILQ_NEXT(it, link);
	STAILQ_REMOVE(q, it, w_item, link);
	(*n)--;
	return it;
}

/* The base places a write in whatever has its base key now. */
static void place(struct world *w, struct w_write *wr)
{
	struct w_reg *g = w->life->now[rp_key_base(wr->reg->r.key) - 1];

	if (!wr->placed) {
		wr->placed = ++w->event;
		wr->where = g;
	}
	w_say(w, "write %zu is placed%s", (size_t)(wr - w->writes),
	      g == wr->reg ? "" : " elsewhere");
}

static void arrive_there(struct w_init *i, struct w_item *it, bool zombie)
{
	struct world *w = i->w;

	if (!it->write) {
		w_say(w, "%stype %u of %u arrives", zombie ? "late, " : "",
		      it->msg[3], i->id);
		rp_agent_recv(w->life->a, &w->x, it->msg, it->len);
		free(it);
		return;
	}
	place(w, it->write);
	if (zombie) {
		free(it);
		return;
	}
	push(&i->back, &i->nback, it);
}

static void write_ends(struct w_write *wr, enum w_fate fate)
{
	struct world *w = wr->in->w;

	wr->fate = fate;
	wr->ended = ++w->event;
	w_say(w, "write %zu %s", (size_t)(wr - w->writes),
	      fate == FATE_OK ? "ends well" : "fails");
	rp_write_done(&wr->w, fate == FATE_OK ? 0 : EIO);
}

static void arrive_back(struct w_init *i, struct w_item *it)
{
	if (it->write) {
		write_ends(it->write, FATE_OK);
	} else {
		w_say(i->w, "type %u arrives at %u", it->msg[3], i->id);
		rp_initiator_recv(i->in, it->msg, it->len);
	}
	free(it);
}

static void deliver_there(struct w_init *i)
{
	/* Without order anything of the next few may be first. */
	size_t reach = i->w->rules.ordered ? 1 : i->nthere < 8 ? i->nthere : 8;

	arrive_there(i, take(&i->there, &i->nthere, w_below(i->w, reach)),
		     false);
}

/*
 * The connection breaks: what is on its way in either direction is lost, or
 * some of it still gets to the target, but no word comes back. The base says
 * of every write without an acknowledgement that it failed. The next message
 * goes over a new connection, and nobody is told.
 */
static void conn_break(struct w_init *i, bool dead)
{
	struct world *w = i->w;
	size_t late = 0;
	struct w_item *it;

	w_say(w, "the connection of %u breaks", i->id);
	while (i->nback)
		free(take(&i->back, &i->nback, 0));
	if (w->rules.zombies && !dead && w_below(w, 2))
		late = w_below(w, i->nthere + 1);
	while (i->nthere) {
		it = take(&i->there, &i->nthere, 0);
		if (late) {
			late--;
			push(&i->zombies, &i->nzombies, it);
		} else {
			free(it);
		}
	}
	while (dead && i->nzombies)
		free(take(&i->zombies, &i->nzombies, 0));
	/* In no order, as far as we may rely on it. */
	for (size_t k = 0, n = w->nwrites, at = w_below(w, n + 1); k < n; k++) {
		struct w_write *wr = &w->writes[(at + k) % n];

		if (wr->in == i && wr->fate == FATE_OPEN)
			write_ends(wr, FATE_FAILED);
	}
}

void w_restart(struct world *w)
{
	w_say(w, "the target restarts");
	for (unsigned int k = 0; k < w->rules.initiators; k++)
		conn_break(&w->init[k], true);
	life_end(w);
	life_new(w);
}

bool w_post_write(struct w_init *i, const struct w_reg *reg, unsigned int first,
		  unsigned int n)
{
	struct world *w = i->w;
	struct w_write *wr = &w->writes[w->nwrites];

	*wr = (struct w_write){
		.in = i,
		.generation = i->generation,
		.reg = reg,
		.first = first,
		.n = n,
	};
	/* The adapter does not let anything overtake a store. */
	if (rp_peer_store_overlaps(w_peer(i), reg->r.key, first * W_CELL,
				   n * W_CELL))
		return false;
	rp_write_begin(w_peer(i), &wr->w, reg->r.key, first * W_CELL,
		       n * W_CELL);
	if (w_chance(w, w->rules.again)) {
		rp_write_undo(&wr->w);
		return false;
	}
	wr->posted = ++w->event;
	w_say(w, "%u writes %zu: key %llx cells %u+%u", i->id, w->nwrites,
	      (unsigned long long)reg->r.key, first, n);
	w->nwrites++;
	push(&i->there, &i->nthere, item_new(wr, NULL, 0));
	return true;
}

static void commit_done(void *arg, const struct rp_outcome *out)
{
	struct w_commit *c = arg;
	struct world *w = c->in->w;

	w_say(w, "commit %zu: %s", (size_t)(c - w->commits),
	      rp_status_name(out->status));
	c->told++;
	c->told_at = ++w->event;
	c->out = *out;
	W_CHECK(w, c->told == 1, "told twice");
	if (out->status == RP_ST_OK && c->in->answered < c->posted)
		c->in->answered = c->posted;
	w->judge(w, c);
}

struct w_commit *w_post_commit(struct w_init *i, struct w_range *ranges,
			       size_t n, enum rp_level level,
			       enum rp_class required, const struct w_effect *e)
{
	const uint64_t name = (uint64_t)i->w->epoch << 32 | i->w->ncommits;
	struct world *w = i->w;
	struct w_commit *c = &w->commits[w->ncommits];
	struct rp_wire_range *r = calloc(n, sizeof(*r));
	struct rp_commit_attr attr = {
		.ranges = r,
		.nranges = n,
		.level = level,
		.required = required,
		.done = commit_done,
		.arg = c,
	};
	int ret;

	if (e) {
		attr.effect = e->kind;
		attr.data = name;
		if (e->kind == RP_EFFECT_THEN)
			attr.then = (struct rp_wire_then){
				e->reg->r.key, e->cell * W_CELL, name};
	}

	cr_assert(r);
	for (size_t k = 0; k < n; k++)
		r[k] = (struct rp_wire_range){
			.key = ranges[k].reg->r.key,
			.addr = ranges[k].first * W_CELL,
			.len = ranges[k].n * W_CELL,
		};
	*c = (struct w_commit){
		.in = i,
		.generation = i->generation,
		.ranges = ranges,
		.nranges = n,
		.level = level,
		.required = required,
		.posted = ++w->event,
		.born = w->now,
	};
	if (e)
		c->effect = *e;
	w_say(w, "%u commits %zu: %zu ranges from key %llx cells %u+%u", i->id,
	      w->ncommits, n, (unsigned long long)r->key, ranges->first,
	      ranges->n);
	ret = rp_commit_post(w_peer(i), &attr);
	free(r);
	if (ret) {
		W_CHECK(w, ret == -EAGAIN, "commit: %d", ret);
		free(ranges);
		return NULL;
	}
	w->ncommits++;
	return c;
}

static void query_done(void *arg, enum rp_status st,
		       const struct rp_wire_info *info)
{
	struct w_query *q = arg;

	q->told++;
	q->st = st;
	W_CHECK(q->w, q->told == 1, "query told twice");
	if (info && q->in->answered < q->posted)
		q->in->answered = q->posted;
}

static void post_query(struct w_init *i)
{
	struct world *w = i->w;
	struct w_query *q = &w->queries[w->nqueries];
	const struct w_reg *g = w->regs[w_below(w, w->nregs)];

	*q = (struct w_query){.w = w, .in = i, .posted = ++w->event};
	if (!rp_query_post(w_peer(i), g->r.key, RP_CLASS_NONE, query_done, q))
		w->nqueries++;
}

/* --- the world as a whole --- */

void w_start(struct world *w, uint64_t seed, const struct w_rules *rules)
{
	memset(w, 0, sizeof(*w));
	w->rng = (struct seeded){seed, seed};
	w->rules = *rules;
	w->now = 1000 * W_MS;
	w->x.ops = &t_ops;
	life_new(w);
	for (unsigned int k = 0; k < rules->initiators; k++)
		init_start(w, k);
}

static void items_free(struct w_items *q, unsigned int *n)
{
	while (*n)
		free(take(q, n, 0));
}

void w_clear(struct world *w)
{
	for (size_t k = 0; k < w->ncommits; k++)
		free(w->commits[k].ranges);
	w->nwrites = w->ncommits = 0;
	w->epoch++;
}

void w_stop(struct world *w)
{
	for (unsigned int k = 0; k < w->rules.initiators; k++) {
		struct w_init *i = &w->init[k];

		conn_break(i, true);
		rp_initiator_delete(i->in);
		items_free(&i->there, &i->nthere);
	}
	life_end(w);
	w_clear(w);
	for (size_t k = 0; k < w->nregs; k++)
		free(w->regs[k]);
}

/* Something bad, if the rules say so. True when it happened. */
static bool mishap(struct world *w)
{
	struct w_init *i = &w->init[w_below(w, w->rules.initiators)];
	enum w_kind kind = w_below(w, W_KINDS);
	bool room = w->nregs + W_KINDS + 4 < W_REGS;

	if (w_chance(w, w->rules.breaks)) {
		conn_break(i, false);
	} else if (room && w_chance(w, w->rules.restarts)) {
		w_restart(w);
	} else if (w_chance(w, w->rules.forgets)) {
		w_say(w, "the target forgets its sessions");
		rp_agent_drop_xport(w->life->a, &w->x);
	} else if (w_chance(w, w->rules.leaves)) {
		w_say(w, "%u forgets the target", i->id);
		rp_peer_forget(i->in, 0);
		i->generation++;
	} else if (room && w_chance(w, w->rules.renews)) {
		w_say(w, "kind %d is registered again", kind);
		reg_del(w, w->life->now[kind]);
		reg_new(w, kind);
	} else {
		return false;
	}
	return true;
}

void w_step(struct world *w)
{
	struct w_init *i = &w->init[w_below(w, w->rules.initiators)];

	w->now += w_below(w, w->rules.tick);
	if (mishap(w))
		return;
	switch (w_below(w, 8)) {
	case 0:
	case 1:
		if (i->nthere)
			deliver_there(i);
		break;
	case 2:
	case 3:
		if (i->nback)
			arrive_back(i, take(&i->back, &i->nback, 0));
		break;
	case 4:
		init_progress(i);
		break;
	case 5:
		rp_agent_progress(w->life->a);
		break;
	case 6:
		if (i->nzombies)
			arrive_there(i, take(&i->zombies, &i->nzombies, 0),
				     true);
		break;
	case 7:
		if (w->nqueries < W_QUERIES && !w_below(w, 8))
			post_query(i);
		break;
	}
}

void w_settle(struct world *w)
{
	bool any = true;

	for (unsigned int n = 0; any; n++) {
		W_CHECK(w, n < 10000, "it never settles");
		any = false;
		for (unsigned int k = 0; k < w->rules.initiators; k++) {
			struct w_init *i = &w->init[k];

			while (i->nzombies)
				arrive_there(i,
					     take(&i->zombies, &i->nzombies, 0),
					     true);
			while (i->nthere)
				deliver_there(i);
			rp_agent_progress(w->life->a);
			while (i->nback)
				arrive_back(i, take(&i->back, &i->nback, 0));
			init_progress(i);
			any |= i->nthere || i->nback || i->nzombies;
		}
	}
}

void w_sleep(struct world *w, uint64_t ns)
{
	uint64_t end = w->now + ns, due, d;

	for (;;) {
		w_settle(w);
		due = rp_agent_deadline(w->life->a);
		for (unsigned int k = 0; k < w->rules.initiators; k++) {
			d = rp_initiator_deadline(w->init[k].in);
			due = d < due ? d : due;
		}
		if (due > end)
			break;
		W_CHECK(w, due > w->now, "a sleeper would spin");
		w->now = due;
	}
	w->now = end;
}
