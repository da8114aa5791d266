/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The simulation of both_world.h: connections that break, and a target that is
 * killed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "both_world.h"

#define OF(ptr, type, member)                                                  \
	((type *)(void *)((char *)(ptr)-offsetof(type, member)))

uint64_t w_below(struct world *w, uint64_t n)
{
	return seeded_below(&w->rng, n);
}

bool w_chance(struct world *w, unsigned int per_thousand)
{
	return !w->quiet && per_thousand && w_below(w, 1000) < per_thousand;
}

/* --- connections --- */

static void push_item(struct w_items *q, const struct w_item *like,
		      const struct iovec *iov, size_t n)
{
	struct w_item *it = calloc(1, sizeof(*it) + like->len);
	uint8_t *to = it->bytes;

	cr_assert(it);
	*it = *like;
	for (size_t i = 0; i < n; i++) {
		memcpy(to, iov[i].iov_base, iov[i].iov_len);
		to += iov[i].iov_len;
	}
	STAILQ_INSERT_TAIL(q, it, link);
}

static struct w_item *pop_item(struct w_items *q)
{
	struct w_item *it = STAILQ_FIRST(q);

	if (it)
		STAILQ_REMOVE_HEAD(q, link);
	return it;
}

static void drop_items(struct w_items *q)
{
	struct w_item *it;

	while ((it = pop_item(q)))
		free(it);
}

static void cancel_ops(struct w_ops *list)
{
	struct rp_channel_op *op;

	while ((op = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, op, link);
		op->done(op, ECANCELED);
	}
}

static size_t iov_len(const struct rp_channel_op *op)
{
	size_t n = 0;

	for (int i = 0; i < op->iov_count; i++)
		n += op->iov[i].iov_len;
	return n;
}

static int i_post(struct rp_channel *rc, struct rp_channel_op *ops[], int n)
{
	struct w_conn *c = OF(rc, struct w_conn, i);
	int i;

	W_CHECK(c->w, !c->i_closed, "posted to a closed channel");
	for (i = 0; i < n && !w_chance(c->w, c->w->rules.full); i++) {
		struct rp_channel_op *op = ops[i];
		bool reads = op->kind == RP_CHANNEL_READ;
		const struct w_item it = {
			.op = op->inject ? NULL : op,
			.kind = op->kind,
			.rkey = op->rkey,
			.remote_addr = op->remote_addr,
			.len = reads ? op->length : iov_len(op),
		};

		W_CHECK(c->w,
			op->kind == RP_CHANNEL_SEND || reads ||
				op->length == it.len,
			"length");
		if (!c->broken)
			push_item(&c->to_target, &it, op->iov,
				  reads ? 0 : op->iov_count);
		op->err = 0;
		if (!op->inject)
			TAILQ_INSERT_TAIL(&c->posted, op, link);
	}
	return i;
}

static void i_close(struct rp_channel *rc)
{
	struct w_conn *c = OF(rc, struct w_conn, i);
	struct w_item *it;

	c->i_closed = true;
	STAILQ_FOREACH (it, &c->to_target, link)
		it->op = NULL;
	drop_items(&c->to_initiator);
	cancel_ops(&c->posted);
}

static const struct rp_channel_ops i_ops = {.post = i_post, .close = i_close};

static int t_post(struct rp_channel *rc, struct rp_channel_op *ops[], int n)
{
	struct w_conn *c = OF(rc, struct w_conn, t);
	const struct w_item it = {.kind = RP_CHANNEL_SEND,
				  .len = iov_len(ops[0])};

	if (w_chance(c->w, c->w->rules.full))
		return 0;
	if (!c->broken && !c->i_closed)
		push_item(&c->to_initiator, &it, ops[0]->iov,
			  ops[0]->iov_count);
	if (!ops[0]->inject)
		TAILQ_INSERT_TAIL(&c->t_posted, ops[0], link);
	return 1;
}

static void t_close(struct rp_channel *rc)
{
	struct w_conn *c = OF(rc, struct w_conn, t);

	c->t_closed = c->broken = true;
	cancel_ops(&c->t_posted);
	drop_items(&c->to_target);
}

static const struct rp_channel_ops t_ops = {.post = t_post, .close = t_close};

static int k_connect(struct rp_connector *k, const void *addr, size_t len,
		     const void *data, size_t data_len,
		     const struct rp_channel_events *events, void *owner,
		     struct rp_channel **out)
{
	struct world *w = OF(k, struct world, k);
	struct w_conn *c = calloc(1, sizeof(*c));
	const struct iovec iov = {(void *)data, data_len};
	const struct w_item hello = {.len = data_len};

	cr_assert(c);
	c->w = w;
	c->id = ++w->nconns;
	c->session = *(const uint8_t *)addr;
	STAILQ_INIT(&c->to_target);
	STAILQ_INIT(&c->to_initiator);
	TAILQ_INIT(&c->posted);
	TAILQ_INIT(&c->t_posted);
	c->i = (struct rp_channel){
		.ops = &i_ops,
		.events = events,
		.owner = owner,
		.flags = RP_CHANNEL_FENCES,
		.inject = 128,
	};
	push_item(&c->to_target, &hello, &iov, 1);
	c->next = w->conns;
	w->conns = c;
	*out = &c->i;
	return 0;
}

static uint64_t k_now(struct rp_connector *k)
{
	return OF(k, struct world, k)->now;
}

static int k_random(struct rp_connector *k, void *buf, size_t len)
{
	struct world *w = OF(k, struct world, k);

	for (size_t i = 0; i < len; i++)
		((uint8_t *)buf)[i] = (uint8_t)w_below(w, 256);
	return 0;
}

static void k_kick(struct rp_connector *k)
{
}

static const struct rp_connector_ops k_ops = {
	.connect = k_connect,
	.now = k_now,
	.random = k_random,
	.kick = k_kick,
};

/* --- the agent's host --- */

static struct world *world_of(struct rp_agent_host *h)
{
	return OF(h, struct world, h);
}

static int host_accept(struct rp_agent_host *h, void *request, const void *data,
		       size_t len, const struct rp_channel_events *events,
		       void *owner, struct rp_channel **out)
{
	const struct iovec iov = {(void *)data, len};
	const struct w_item it = {.accept = true, .len = len};
	struct world *w = world_of(h);
	struct w_conn *c = request;

	for (struct w_conn *o = w->conns; o; o = o->next)
		W_CHECK(w,
			o == c || o->session != c->session ||
				!o->was_accepted || o->t_closed,
			"two connections of one session");
	c->t = (struct rp_channel){
		.ops = &t_ops,
		.events = events,
		.owner = owner,
		.flags = h->ops->flags(h),
		.inject = 64,
	};
	c->was_accepted = true;
	w->accepted[c->session] = c->id;
	for (struct w_grant *g = w->grants; g; g = g->next)
		if (!g->conn)
			g->conn = c;
	if (!c->i_closed)
		push_item(&c->to_initiator, &it, &iov, 1);
	*out = &c->t;
	return 0;
}

static void host_refuse(struct rp_agent_host *h, void *request,
			const void *data, size_t len)
{
	const struct iovec iov = {(void *)data, len};
	const struct w_item it = {.refusal = true, .len = len};
	struct w_conn *c = request;

	c->t_closed = true;
	if (!c->i_closed)
		push_item(&c->to_initiator, &it, &iov, 1);
}

static int host_grant(struct rp_agent_host *h, struct rp_channel *rc,
		      const struct rp_region *r, struct rp_wire_grant *g,
		      void **grant)
{
	struct world *w = world_of(h);
	struct w_grant *k = calloc(1, sizeof(*k));

	cr_assert(k);
	k->conn = rc ? OF(rc, struct w_conn, t) : NULL;
	k->reg = OF((struct rp_region *)r, struct w_reg, r);
	g->rkey = k->rkey = ++w->rkeys;
	g->remote_addr = (uintptr_t)r->base;
	k->next = w->grants;
	w->grants = k;
	*grant = k;
	return 0;
}

static void host_revoke(struct rp_agent_host *h, void *grant)
{
	struct world *w = world_of(h);
	struct w_grant **at = &w->grants;

	while (*at != grant)
		at = &(*at)->next;
	*at = (*at)->next;
	free(grant);
}

static uint32_t host_flags(struct rp_agent_host *h)
{
	return RP_CHANNEL_FENCES;
}

static int host_notify(struct rp_agent_host *h, struct rp_channel *rc,
		       uint16_t port, uint16_t endpoint, uint64_t data,
		       void *buf, size_t len)
{
	struct world *w = world_of(h);
	struct w_number *v = &w->numbers[data];

	W_CHECK(w, !v->done, "notified twice");
	W_CHECK(w, OF(rc, struct w_conn, t)->session == v->session,
		"the session of another");
	W_CHECK(w, v->conn >= w->accepted[v->session], "notified late");
	v->done = true;
	return 0;
}

static uint64_t host_now(struct rp_agent_host *h)
{
	return world_of(h)->now;
}

static void host_kick(struct rp_agent_host *h)
{
}

static const struct rp_agent_host_ops h_ops = {
	.accept = host_accept,
	.refuse = host_refuse,
	.grant = host_grant,
	.revoke = host_revoke,
	.flags = host_flags,
	.notify = host_notify,
	.now = host_now,
	.kick = host_kick,
};

static void start_agent(struct world *w)
{
	const struct rp_agent_attr attr = {
		.incarnation = seeded_next(&w->rng) | 1,
		.credits = w->rules.credits,
		.max_jobs = w->rules.max_jobs,
		.max_sessions = w->rules.max_sessions,
		.no_worker = true,
	};

	cr_assert_eq(rp_agent_new(&attr, &w->h, &w->a), 0);
}

void w_restart(struct world *w)
{
	const bool power = w_below(w, 2);

	if (w->nregs + W_KINDS >= W_REGS)
		return;
	for (int k = 0; k < W_KINDS; k++)
		w_reg_del(w, w->now_reg[k]);
	rp_agent_delete(w->a);
	start_agent(w);
	for (int k = 0; k < W_KINDS; k++)
		w_reg_new(w, (enum w_kind)k, w->now_reg[k], power);
}

/* --- things that happen --- */

static struct w_reg *granted_region(struct w_conn *c, const struct w_item *it)
{
	for (struct w_grant *g = c->w->grants; g; g = g->next)
		if (g->conn == c && g->rkey == it->rkey &&
		    it->remote_addr >= (uintptr_t)g->reg->mem &&
		    it->remote_addr + it->len <=
			    (uintptr_t)g->reg->mem + sizeof(g->reg->mem))
			return g->reg;
	W_CHECK(c->w, false, "RDMA to what is not granted");
	return NULL;
}

static void place_item(struct w_conn *c, const struct w_item *it)
{
	struct w_reg *g = granted_region(c, it);
	uint64_t *to = (uint64_t *)(uintptr_t)it->remote_addr;
	size_t at = w_cell_of(g, to);

	memcpy(to, it->bytes, it->len);
	w_check_placed(g, to, it->len / 8);
	for (size_t i = at; g->kind == W_FENCE && i < at + it->len / 8; i++) {
		g->device[i] = g->mem[i];
		g->device_of[i] = c->id;
	}
}

/*
 * Execute a read fence: the device places all earlier writes of this
 * connection.
 */
static void place_earlier(struct w_conn *c, struct w_reg *g)
{
	for (size_t i = 0; i < W_CELLS; i++)
		if (g->device[i] != W_NONE && g->device_of[i] == c->id) {
			g->media[i] = g->device[i];
			g->device[i] = W_NONE;
		}
}

static void arrive_at_target(struct w_conn *c)
{
	struct w_item *it = pop_item(&c->to_target), ack;
	struct iovec iov;

	if (!it)
		return;
	if (!c->requested) {
		c->requested = true;
		rp_agent_conn_request(c->w->a, c, it->bytes, it->len);
		goto out;
	}
	if (!c->was_accepted || c->t_closed)
		goto out;
	ack = (struct w_item){.op = it->op, .kind = it->kind};
	iov = (struct iovec){(void *)(uintptr_t)it->remote_addr, it->len};
	switch (it->kind) {
	case RP_CHANNEL_SEND:
		c->t.events->received(c->t.owner, it->bytes, it->len);
		goto out;
	case RP_CHANNEL_WRITE:
		place_item(c, it);
		break;
	default:
		place_earlier(c, granted_region(c, it));
		ack.len = it->len;
	}
	if (it->op && !c->broken)
		push_item(&c->to_initiator, &ack, &iov, ack.len ? 1 : 0);
out:
	free(it);
}

static void arrive_at_initiator(struct w_conn *c)
{
	struct w_item *it = pop_item(&c->to_initiator);

	if (!it)
		return;
	if (it->accept) {
		c->i.events->connected(c->i.owner, it->bytes, it->len);
	} else if (it->refusal) {
		c->i_lost = true;
		c->i.events->lost(c->i.owner, ECONNREFUSED, it->bytes, it->len);
	} else if (it->kind == RP_CHANNEL_SEND) {
		c->i.events->received(c->i.owner, it->bytes, it->len);
	} else if (it->op) {
		it->op->err = -1; /* -1: acknowledged, done() is due */
		if (it->op->iov_count)
			memcpy(it->op->iov[0].iov_base, it->bytes, it->len);
	}
	free(it);
}

/* Call done() of the oldest posted operation, if it may complete now. */
static bool complete_oldest(struct w_conn *c)
{
	struct rp_channel_op *op = TAILQ_FIRST(&c->posted);
	bool acked = op && op->err == -1;

	if (!op ||
	    (!acked && (op->kind == RP_CHANNEL_READ ||
			(op->kind == RP_CHANNEL_WRITE && op->delivered))))
		return false;
	/* Items in transit must not point to the completed operation. */
	struct w_item *it;
	STAILQ_FOREACH (it, &c->to_target, link)
		if (it->op == op)
			it->op = NULL;
	STAILQ_FOREACH (it, &c->to_initiator, link)
		if (it->op == op)
			it->op = NULL;
	TAILQ_REMOVE(&c->posted, op, link);
	op->err = 0;
	op->done(op, 0);
	return true;
}

static bool t_complete(struct w_conn *c)
{
	struct rp_channel_op *op = TAILQ_FIRST(&c->t_posted);

	if (!op)
		return false;
	TAILQ_REMOVE(&c->t_posted, op, link);
	op->done(op, 0);
	return true;
}

/* Break the connection: some posted messages still arrive, and no reply. */
static void break_connection(struct w_conn *c)
{
	size_t keep = w_below(c->w, 6);
	struct w_items some = STAILQ_HEAD_INITIALIZER(some);
	struct w_item *it;

	c->broken = true;
	while (keep-- && (it = pop_item(&c->to_target)))
		STAILQ_INSERT_TAIL(&some, it, link);
	drop_items(&c->to_target);
	STAILQ_CONCAT(&c->to_target, &some);
	drop_items(&c->to_initiator);
}

static void i_lose(struct w_conn *c)
{
	if (c->i_closed || c->i_lost || !(c->broken || c->t_closed) ||
	    !STAILQ_EMPTY(&c->to_initiator))
		return;
	c->i_lost = true;
	c->i.events->lost(c->i.owner, ECONNRESET, NULL, 0);
}

static void t_lose(struct w_conn *c)
{
	if (!c->was_accepted || c->t_closed || !(c->broken || c->i_closed) ||
	    !STAILQ_EMPTY(&c->to_target))
		return;
	c->t.events->lost(c->t.owner, ECONNRESET, NULL, 0);
}

static void reap_ops(struct world *w)
{
	struct w_conn **at = &w->conns, *c;

	while ((c = *at)) {
		if (!c->i_closed || (c->requested && !c->t_closed)) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		drop_items(&c->to_target);
		drop_items(&c->to_initiator);
		free(c);
	}
}

static struct w_conn *some_conn(struct world *w)
{
	unsigned int n = 0;
	struct w_conn *c;

	for (c = w->conns; c; c = c->next)
		n++;
	if (!n)
		return NULL;
	n = (unsigned int)w_below(w, n);
	for (c = w->conns; n--; c = c->next)
		;
	return c;
}

void w_step(struct world *w)
{
	struct w_conn *c = some_conn(w);

	w->now += w_below(w, w->rules.tick);
	if (w_chance(w, w->rules.restarts))
		w_restart(w);
	if (w_chance(w, w->rules.renews))
		w_reregister(w, (enum w_kind)w_below(w, W_KINDS));
	if (w_chance(w, w->rules.peer_leaves))
		rp_session_disconnect(w->p[w_below(w, W_SESSIONS)].s,
				      RP_ST_CANCELED, 0);
	if (c && w_chance(w, w->rules.breaks))
		break_connection(c);
	switch (c ? w_below(w, 9) : 8) {
	case 0:
	case 1:
		arrive_at_target(c);
		break;
	case 2:
	case 3:
		arrive_at_initiator(c);
		break;
	case 4:
		complete_oldest(c);
		break;
	case 5:
		t_complete(c);
		break;
	case 6:
		i_lose(c);
		break;
	case 7:
		t_lose(c);
		break;
	default:
		rp_agent_progress(w->a);
		rp_session_progress(w->p[w_below(w, W_SESSIONS)].s);
	}
	reap_ops(w);
}

static bool deliver_all(struct w_conn *c)
{
	bool any =
		!STAILQ_EMPTY(&c->to_target) || !STAILQ_EMPTY(&c->to_initiator);

	while (!STAILQ_EMPTY(&c->to_target))
		arrive_at_target(c);
	while (!STAILQ_EMPTY(&c->to_initiator))
		arrive_at_initiator(c);
	while (complete_oldest(c) || t_complete(c))
		any = true;
	return any;
}

static void run_until_idle(struct world *w)
{
	bool any = true;

	for (unsigned int n = 0; any; n++) {
		W_CHECK(w, n < 10000, "it never settles");
		any = false;
		for (struct w_conn *c = w->conns; c; c = c->next) {
			any |= deliver_all(c);
			i_lose(c);
			t_lose(c);
		}
		reap_ops(w);
		any |= rp_agent_progress(w->a);
		for (int k = 0; k < W_SESSIONS; k++)
			any |= rp_session_progress(w->p[k].s);
	}
}

void w_run_for(struct world *w, uint64_t ns)
{
	uint64_t end = w->now + ns, due, d;

	for (;;) {
		run_until_idle(w);
		due = rp_agent_deadline(w->a);
		for (int k = 0; k < W_SESSIONS; k++) {
			d = rp_session_deadline(w->p[k].s);
			due = d < due ? d : due;
		}
		if (due > end)
			break;
		W_CHECK(w, due > w->now, "a sleeper would spin");
		w->now = due;
	}
	w->now = end;
}

void w_start(struct world *w, uint64_t seed, const struct w_rules *rules)
{
	const struct rp_session_attr attr = {
		.timeout_ns = W_TIMEOUT,
		.slow_rate = 16 << 20,
		.max_commits = 16,
		.inline_max = W_INLINE,
	};

	memset(w, 0, sizeof(*w));
	w->rng = (struct seeded){seed, seed};
	w->rules = *rules;
	w->now = 1000 * W_MS;
	w->k.ops = &k_ops;
	w->h.ops = &h_ops;
	start_agent(w);
	for (int k = 0; k < W_KINDS; k++)
		w_reg_new(w, (enum w_kind)k, NULL, false);
	for (uint8_t k = 0; k < W_SESSIONS; k++)
		cr_assert_eq(
			rp_session_new(&w->k, &attr, &k, sizeof(k), &w->p[k].s),
			0);
}

void w_stop(struct world *w)
{
	for (int k = 0; k < W_SESSIONS; k++)
		rp_session_delete(w->p[k].s);
	for (int k = 0; k < W_KINDS; k++)
		w_reg_del(w, w->now_reg[k]);
	rp_agent_delete(w->a);
	reap_ops(w);
	W_CHECK(w, !w->conns && !w->grants, "something is left");
	for (size_t k = 0; k < w->nregs; k++)
		free(w->regs[k]);
}
