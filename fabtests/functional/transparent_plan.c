// SPDX-License-Identifier: BSD-2-Clause
/*
 * Makes a random program from a seed. Its operations are chosen so that only
 * one outcome is possible.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "functional/transparent.h"

uint64_t tp_next(struct tp_rng *r)
{
	uint64_t z = (r->s += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/*
 * Add an operation. Plans refer to operations by index, because the array moves
 * when it grows.
 */
struct tp_op *tp_add(struct tp_gen *g, enum tp_verb verb, int ep)
{
	struct tp_plan *p = g->p;
	struct tp_op *o;

	if (p->n == p->cap) {
		p->cap = p->cap ? 2 * p->cap : 128;
		p->ops = realloc(p->ops, p->cap * sizeof(*p->ops));
		if (!p->ops)
			abort();
	}
	o = &p->ops[p->n++];
	memset(o, 0, sizeof(*o));
	o->verb = verb;
	o->ep = ep;
	o->peer = -1;
	o->other = -1;
	o->due = (int)p->n - 1;
	o->iovs = 1;
	o->rma_iovs = 1;
	return o;
}

static bool has_ep(const struct tp_gen *g, int ep)
{
	return ep % 2 < g->p->setup.neps[tp_side_of(ep)];
}

int tp_pick_ep(struct tp_gen *g, int not_ep, bool unknown)
{
	int ep;

	do {
		ep = (int)tp_below(&g->rng, TP_EPS);
	} while (ep == not_ep || !has_ep(g, ep) ||
		 (ep == TP_UNKNOWN && !unknown));
	return ep;
}

bool tp_tx_completes(const struct tp_gen *g, const struct tp_op *o)
{
	const struct tp_setup *s = &g->p->setup;

	if (o->form == TP_INJECT || o->form == TP_INJECTDATA)
		return false;
	if (!s->selective[o->ep])
		return true;
	return (o->form == TP_MSG ? o->flags : s->op_flags[o->ep]) &
	       FI_COMPLETION;
}

static void make_setup(struct tp_gen *g)
{
	static const enum fi_cq_format formats[] = {
		FI_CQ_FORMAT_CONTEXT,
		FI_CQ_FORMAT_MSG,
		FI_CQ_FORMAT_DATA,
		FI_CQ_FORMAT_TAGGED,
	};
	static const uint64_t op_flags[] = {
		0,
		FI_COMPLETION,
		FI_DELIVERY_COMPLETE,
		FI_COMPLETION | FI_TRANSMIT_COMPLETE,
		FI_INJECT_COMPLETE,
	};
	struct tp_setup *s = &g->p->setup;
	struct tp_rng *r = &g->rng;

	for (int i = 0; i < TP_SIDES; i++) {
		s->neps[i] = i == tp_side_of(TP_UNKNOWN)
				     ? 1
				     : 1 + (int)tp_below(r, 2);
		s->share[i] = (int)tp_below(r, 4);
		for (int k = 0; k < 2; k++)
			s->format[i][k] =
				formats[tp_chance(r, 60) ? 3 : tp_below(r, 4)];
		s->av[i] = tp_chance(r, 70) ? FI_AV_TABLE : FI_AV_MAP;
		s->wait[i] = g->f->wait && tp_chance(r, 40);
		s->before[i] = (int)tp_below(r, 4);
	}
	for (int i = 0; i < TP_EPS; i++) {
		s->selective[i] = tp_chance(r, 30);
		s->rx_selective[i] = tp_chance(r, 20);
		s->op_flags[i] = op_flags[tp_below(r, 5)];
		if (g->f->counters && tp_chance(r, 50))
			s->cntr[i] = (unsigned int)tp_below(r, 64);
		if (!g->f->rma_event)
			s->cntr[i] &= ~(1u << TP_C_REMOTE_READ |
					1u << TP_C_REMOTE_WRITE);
	}
	s->from = g->f->source && tp_chance(r, 60);
	s->chunk = 1 + (unsigned int)tp_below(r, 20);
}

/* Add durable traffic. Returns NULL if the plan has enough already. */
struct tp_op *tp_add_traffic(struct tp_gen *g, int ep, int to, int count)
{
	struct tp_op *o;

	if (to == ep || g->ntraffic + 2 * count > TP_TRAFFIC_MAX)
		return NULL;
	o = tp_add(g, TP_TRAFFIC, ep);
	o->peer = to;
	o->how = (int)tp_below(&g->rng, 10);
	o->count = count;
	g->ntraffic += 2 * count;
	return o;
}

void tp_gen_traffic(struct tp_gen *g, int to)
{
	int ep = tp_chance(&g->rng, 40) ? TP_UNKNOWN : tp_pick_ep(g, to, true);

	if (to < 0)
		to = tp_pick_ep(g, ep, false);
	tp_add_traffic(g, ep, to, 1 + (int)tp_below(&g->rng, 3));
}

/*
 * Plan durable traffic to an endpoint whose queues must stay empty; often to
 * the file on the disk.
 */
static void gen_unknown_traffic(struct tp_gen *g, int to)
{
	for (int i = (int)tp_below(&g->rng, 4); i > 0; i--) {
		struct tp_op *o = tp_add_traffic(g, TP_UNKNOWN, to, i);

		if (o && tp_chance(&g->rng, 30))
			o->how = 0;
	}
}

static void gen_addresses(struct tp_gen *g)
{
	int ep = tp_pick_ep(g, -1, false), last = -1;
	struct tp_op *o;

	for (size_t i = 0; i < g->p->n; i++)
		if (g->p->ops[i].verb == TP_INSERT &&
		    tp_side_of(g->p->ops[i].ep) == tp_side_of(ep) &&
		    !g->p->ops[i].done)
			last = (int)i;
	if (last >= 0 && tp_chance(&g->rng, 40)) {
		o = tp_add(g, TP_REMOVE, ep);
		o->other = last;
		g->p->ops[last].done = true;
		return;
	}
	if (!g->met && tp_chance(&g->rng, 15)) {
		/*
		 * Messages that arrive before fi_av_insert() have no source:
		 * complete them first.
		 */
		tp_add(g, TP_SYNC, ep);
		memset(g->busy, 0, sizeof(g->busy));
		tp_add(g, TP_MEET, ep);
		g->met = true;
		return;
	}
	o = tp_add(g, TP_INSERT, ep);
	o->count = 1 + (int)tp_below(&g->rng, 5);
	o->how = (int)tp_below(&g->rng, 4); /* 0: one address twice */
}

/*
 * Plan a receiver that sleeps on the descriptor of its queue. The same step
 * sends the message.
 */
static void gen_sleep(struct tp_gen *g, int ep)
{
	struct tp_op *o;
	int recv;

	tp_gen_forget(g, ep, true);
	tp_add(g, TP_WAIT_ALL, ep);
	o = tp_add(g, TP_RECV, ep);
	recv = (int)(g->p->n - 1);
	o->tagged = true;
	o->form = TP_MSG;
	o->flags = FI_COMPLETION;
	o->len = 64;
	o->tag = tp_below(&g->rng, 1ull << 62);
	o->counted = true;
	o->expect = 1;
	o->other = o->due = recv + 1;
	o = tp_add(g, TP_FD, tp_pick_ep(g, ep, true));
	*o = (struct tp_op){
		.verb = TP_FD,
		.form = TP_MSG,
		.ep = o->ep,
		.peer = ep,
		.other = recv,
		.due = recv + 1,
		.tagged = true,
		.flags = FI_COMPLETION,
		.tag = g->p->ops[recv].tag,
		.len = 1 + tp_below(&g->rng, 64),
		.iovs = 1,
		.rma_iovs = 1,
		.expect = 1,
		.counted = true,
	};
}

static void gen_wait(struct tp_gen *g)
{
	int ep = tp_pick_ep(g, -1, false);
	struct tp_op *o;

	if (!g->p->setup.wait[tp_side_of(ep)])
		return;
	tp_add(g, TP_WAIT_ALL, ep);
	gen_unknown_traffic(g, ep);
	switch (tp_below(&g->rng, 3)) {
	case 0:
		tp_add(g, TP_SIGNAL, ep);
		break;
	case 1:
		o = tp_add(g, TP_SREAD, ep);
		o->count = 1 + (int)tp_below(&g->rng, 10);
		break;
	default:
		gen_sleep(g, ep);
	}
}

static void gen_round(struct tp_gen *g)
{
	memset(g->busy, 0, sizeof(g->busy));
	memset(g->cells, 0, sizeof(g->cells));
	for (int i = 1 + (int)tp_below(&g->rng, 3); i > 0; i--) {
		if (tp_chance(&g->rng, 2))
			tp_gen_flood(g);
		switch (tp_below(&g->rng, 13)) {
		case 0:
		case 1:
		case 2:
			tp_gen_messages(g, true);
			break;
		case 3:
		case 4:
			tp_gen_messages(g, false);
			break;
		case 5:
		case 6:
		case 7:
			tp_gen_memory(g);
			break;
		case 8:
			tp_gen_multi(g);
			break;
		case 9:
			tp_gen_peek(g);
			break;
		case 10:
			gen_addresses(g);
			break;
		default:
			gen_wait(g);
		}
		if (tp_chance(&g->rng, 60))
			tp_gen_traffic(g, -1);
	}
	if (tp_chance(&g->rng, 5))
		tp_add(g, TP_EVENT, tp_pick_ep(g, -1, false));
	tp_add(g, TP_SYNC, 0);
}

/*
 * Plan the last operations: after them the state of the connection is
 * undefined.
 */
static void gen_end(struct tp_gen *g)
{
	int ep = tp_pick_ep(g, -1, false), to = tp_pick_ep(g, ep, false);
	struct tp_op *o;

	tp_add(g, TP_WAIT_ALL, 0);
	if (tp_chance(&g->rng, 50)) {
		o = tp_add(g, TP_BADKEY, ep);
		o->peer = to;
		o->expect = 1;
		o->len = 1 + tp_below(&g->rng, 100);
		/*
		 * Only this form waits for the target: others may complete
		 * before it polls.
		 */
		o->form = TP_MSG;
		o->flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
		o->breaks = true;
		return;
	}
	o = tp_add(g, TP_RECV, to);
	o->form = TP_MSG;
	o->flags = FI_COMPLETION;
	o->len = tp_below(&g->rng, 50);
	o->expect = 1;
	o->counted = o->fails = true;
	o->due++;
	o = tp_add(g, TP_SEND, ep);
	o->peer = to;
	o->form = TP_MSG;
	o->flags = FI_INJECT_COMPLETE;
	o->len = 51 + tp_below(&g->rng, 14);
	o->breaks = true;
	o->counted = true;
	o->expect = tp_tx_completes(g, o);
	tp_add(g, TP_SYNC, 0);
}

void tp_plan_make(struct tp_plan *p, uint64_t seed, uint64_t stage, bool last,
		  const struct tp_features *f)
{
	struct tp_gen g = {.rng = {stage}, .p = p, .f = f};

	memset(p, 0, sizeof(*p));
	make_setup(&g);
	g.rng.s = seed;
	for (int i = 2 + (int)tp_below(&g.rng, 6); i > 0; i--)
		gen_round(&g);
	for (int ep = 0; ep < TP_EPS; ep++)
		for (int tagged = 0; tagged < 2; tagged++)
			tp_gen_forget(&g, ep, tagged);
	tp_add(&g, TP_WAIT_ALL, 0);
	if (last && tp_chance(&g.rng, 20))
		gen_end(&g);
	for (size_t i = 0; i < p->n; i++)
		p->ops[i].done = false;
}

void tp_plan_free(struct tp_plan *p)
{
	free(p->ops);
	p->ops = NULL;
	p->n = p->cap = 0;
}

void tp_op_say(const struct tp_op *o, char *buf, size_t len)
{
	static const char *const verbs[] = {
		"recv",	   "send",  "write",  "read",	"atomic",
		"cancel",  "peek",  "multi",  "insert", "remove",
		"meet",	   "sread", "signal", "fd",	"event",
		"traffic", "sync",  "rest",   "badkey",
	};
	static const char *const forms[] = {"",	      "v",    "msg",
					    "inject", "data", "injectdata"};

	snprintf(buf, len,
		 "%s%s%s%s ep%d peer%d len %zu iovs %zu/%zu tag %#llx/%#llx "
		 "flags %#llx off %llu how %d other %d expect %d%s%s",
		 o->tagged ? "t" : "", verbs[o->verb], forms[o->form],
		 o->pmem ? " pmem" : "", o->ep, o->peer, o->len, o->iovs,
		 o->rma_iovs, (unsigned long long)o->tag,
		 (unsigned long long)o->ignore, (unsigned long long)o->flags,
		 (unsigned long long)o->off, o->how, o->other, o->expect,
		 o->fails ? " fails" : "", o->remote ? " remote" : "");
}
