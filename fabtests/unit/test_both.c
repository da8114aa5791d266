/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sessions and an agent on connections that break. The numbers of the program's
 * writes grow. If a cell on media has a lower number than the last write before
 * a successful commit, that write was lost or undone.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "both_world.h"
#include "leaks.h"

static struct w_reg *some_reg(struct world *w)
{
	if (w_chance(w, w->rules.stale))
		return w->regs[w_below(w, w->nregs)];
	return w->now_reg[w_below(w, W_KINDS)];
}

static uint64_t next_number(struct world *w, unsigned int session)
{
	uint64_t n = ++w->number;

	cr_assert_lt(n, W_NUMBERS);
	w->numbers[n] = (struct w_number){.session = (uint8_t)session};
	return n;
}

/*
 * All bytes that an OK covers must be visible or durable, as requested, and as
 * new as when the operation was posted.
 */
static void check_cells(struct world *w, const struct w_op *o,
			const struct w_reg *g, unsigned int first,
			unsigned int n, bool durable, const uint64_t *want)
{
	const uint64_t *at = durable ? g->media : g->mem;

	for (unsigned int i = first; i < first + n; i++)
		W_CHECK(w, at[i] >= want[i],
			"operation of kind %d on region of kind %d: cell %u is "
			"%llu, not %llu",
			o->op.kind, g->kind, i, (unsigned long long)at[i],
			(unsigned long long)want[i]);
}

/* Reads return earlier writes, unless write or connection failed. */
static void check_read(struct world *w, const struct w_op *o)
{
	for (unsigned int i = 0; i < o->n; i++) {
		const uint64_t want = o->want[o->first + i];
		const struct w_number *v = &w->numbers[want];

		W_CHECK(w, o->buf[i] >= want || v->failed || v->conn != o->conn,
			"cell %u is read as %llu, not %llu", o->first + i,
			(unsigned long long)o->buf[i],
			(unsigned long long)want);
	}
}

static void check_effect(struct world *w, const struct w_op *o,
			 const struct rp_outcome *out)
{
	const uint64_t n =
		o->op.effect == RP_EFFECT_THEN ? o->then_number : o->op.data;
	struct w_number *v = &w->numbers[n];

	if (!o->op.effect)
		return;
	if (out->status == RP_ST_OK)
		W_CHECK(w, v->done, "OK, and no effect");
	else if (out->status != RP_ST_INDETERMINATE &&
		 out->status != RP_ST_FLUSH_FAILED)
		W_CHECK(w, !v->done, "%s, and the effect",
			rp_status_name(out->status));
	if (out->status == RP_ST_OK && o->op.effect == RP_EFFECT_THEN &&
	    out->class == RP_CLASS_POWER)
		W_CHECK(w, o->then->media[o->then_cell] >= n,
			"the store is not durable");
}

static void op_done(struct rp_op *op, const struct rp_outcome *out)
{
	struct w_op *o = (struct w_op *)op;
	struct world *w = o->w;
	bool durable = o->durable && out->class == RP_CLASS_POWER;

	if (w->trace)
		fprintf(stderr, "%u: kind %d cells %u+%u number %llu: %s\n",
			o->session, op->kind, o->first, o->n,
			(unsigned long long)o->number,
			rp_status_name(out->status));
	W_CHECK(w, o->used, "done twice");
	o->used = false;
	w->by_status[out->status]++;
	if (out->status == RP_ST_OK) {
		w->ok[op->kind]++;
		W_CHECK(w, !o->durable || out->class >= op->required, "class");
		/* Without a level, OK says nothing about placement. */
		if (op->kind == RP_OP_READ)
			check_read(w, o);
		else if (op->kind != RP_OP_QUERY && op->level)
			check_cells(w, o, o->reg, o->first, o->n, durable,
				    o->want);
	} else {
		w->failed++;
		w->numbers[o->number].failed = true;
		w->numbers[o->then_number].failed = true;
	}
	check_effect(w, o, out);
	/* The program may now reuse the buffer. */
	memset(o->buf, 0xee, sizeof(o->buf));
}

static enum rp_class some_class(struct world *w, const struct w_reg *g)
{
	if (g->kind == W_MSYNC && !w_below(w, 4))
		return RP_CLASS_PROCESS;
	return RP_CLASS_POWER;
}

static void fill_op(struct world *w, struct w_op *o, enum rp_op_kind kind)
{
	static const enum rp_level levels[] = {
		0, RP_LEVEL_VISIBLE, RP_LEVEL_DURABLE, RP_LEVEL_DURABLE};
	bool commit = kind == RP_OP_COMMIT;

	o->reg = some_reg(w);
	o->n = 1 + (unsigned int)w_below(w, w_below(w, 3) ? 4 : W_SHARE);
	if (kind == RP_OP_ATOMIC)
		o->n = 1;
	o->first = W_SHARE * o->session +
		   (unsigned int)w_below(w, W_SHARE - o->n + 1);
	o->range = (struct rp_wire_range){
		o->reg->r.key, o->reg->r.addr + 8 * o->first, 8 * o->n};
	o->op = (struct rp_op){
		.done = op_done,
		.kind = kind,
		.level = levels[w_below(w, commit ? 3 : 4)],
		.required = some_class(w, o->reg),
		.ranges = &o->range,
		.nranges = 1,
		.iov = {{o->buf, 8 * o->n}},
		.iov_count = 1,
		.info = &o->info,
	};
	if ((commit || kind == RP_OP_ATOMIC) && !o->op.level)
		o->op.level = RP_LEVEL_DURABLE;
	if (kind == RP_OP_READ || kind == RP_OP_QUERY)
		o->op.level = 0;
	if (kind == RP_OP_QUERY)
		o->op.iov_count = 0;
	o->durable = o->op.level == RP_LEVEL_DURABLE;
	o->op.inject = kind == RP_OP_WRITE && o->n <= 8 && w_below(w, 2);
}

static void fill_effect(struct world *w, struct w_op *o)
{
	bool write = o->op.kind == RP_OP_WRITE;

	if (write ? o->op.level != 0 : o->durable && w_below(w, 2)) {
		o->op.effect = RP_EFFECT_NOTIFY;
		o->op.data = next_number(w, o->session);
		return;
	}
	if (write || !o->durable)
		return;
	o->then = w_below(w, 2) ? o->reg : w->now_reg[w_below(w, W_KINDS)];
	o->then_cell = W_SHARE * o->session + (unsigned int)w_below(w, W_SHARE);
	o->then_number = next_number(w, o->session);
	o->op.effect = RP_EFFECT_THEN;
	o->op.then = (struct rp_wire_then){o->then->r.key,
					   o->then->r.addr + 8 * o->then_cell,
					   o->then_number};
}

/* Record an accepted operation: later operations cover its write. */
static void note_accepted(struct world *w, struct w_op *o)
{
	unsigned int conn = 0;

	for (const struct w_conn *c = w->conns; c; c = c->next)
		if (c->session == o->session && !c->i_closed)
			conn = c->id;
	o->used = true;
	o->conn = conn;
	if (o->number) {
		w->numbers[o->number].conn = (uint16_t)conn;
		for (unsigned int i = o->first; i < o->first + o->n; i++)
			o->reg->posted[i] = o->number;
	}
	memcpy(o->want, o->reg->posted, sizeof(o->want));
	if (o->op.effect == RP_EFFECT_NOTIFY)
		w->numbers[o->op.data].conn = (uint16_t)conn;
	if (o->op.effect == RP_EFFECT_THEN) {
		w->numbers[o->then_number].conn = (uint16_t)conn;
		o->then->posted[o->then_cell] = o->then_number;
	}
}

static void some_op(struct world *w, unsigned int session)
{
	static const enum rp_op_kind some[] = {
		RP_OP_WRITE,  RP_OP_WRITE,  RP_OP_WRITE, RP_OP_COMMIT,
		RP_OP_COMMIT, RP_OP_ATOMIC, RP_OP_READ,	 RP_OP_QUERY};
	struct w_program *p = &w->p[session];
	struct w_op *o = &p->ops[w_below(w, W_OPS)];
	enum rp_op_kind kind = some[w_below(w, 8)];
	int ret;

	if (o->used || w->number + 4 > W_NUMBERS)
		return;
	memset(o, 0, sizeof(*o));
	o->w = w;
	o->session = session;
	fill_op(w, o, kind);
	if (kind == RP_OP_WRITE || kind == RP_OP_ATOMIC) {
		o->number = next_number(w, session);
		for (unsigned int i = 0; i < o->n; i++)
			o->buf[i] = o->number;
	}
	if (kind == RP_OP_ATOMIC) {
		o->result_iov = (struct iovec){&o->result, 8};
		o->op.result = &o->result_iov;
		o->op.result_count = 1;
		o->op.atomic = (struct rp_wire_atomic){
			.op = RP_ATOMIC_WRITE,
			.datatype = RP_ATOMIC_UINT64,
			.fetch = true,
			.operand = o->buf,
		};
	}
	if ((kind == RP_OP_COMMIT || kind == RP_OP_WRITE) && !w_below(w, 3))
		fill_effect(w, o);
	ret = rp_session_post(p->s, &o->op);
	W_CHECK(w, !ret || ret == -EAGAIN, "post: %d", ret);
	if (w->trace && !ret)
		fprintf(stderr,
			"%u posts kind %d level %d effect %d: region %d cells "
			"%u+%u number %llu then %d:%u %llu, connection %u\n",
			session, kind, o->op.level, o->op.effect, o->reg->kind,
			o->first, o->n, (unsigned long long)o->number,
			o->then ? (int)o->then->kind : -1, o->then_cell,
			(unsigned long long)o->then_number, w->nconns);
	if (!ret)
		note_accepted(w, o);
	if (!ret && o->op.inject)
		memset(o->buf, 0xee, sizeof(o->buf));
}

static struct w_rules some_rules(struct seeded *s)
{
	/* Enable a random subset of the kinds of failures in each world. */
	const unsigned int much = 1 + (unsigned int)seeded_below(s, 20);
	const uint64_t pick = seeded_next(s);
	static const uint64_t ticks[] = {W_MS / 100, W_MS, 20 * W_MS,
					 300 * W_MS};
	struct w_rules r = {
		.full = pick & 1 ? 10 * much : 0,
		.breaks = pick & 2 ? much : 0,
		.restarts = pick & 4 ? much / 4 : 0,
		.renews = pick & 8 ? much / 4 : 0,
		.sync_fails = pick & 16 && pick & 32 ? much : 0,
		.stale = pick & 64 ? much : 0,
		.peer_leaves = pick & 128 ? much / 2 : 0,
		.credits = 1 + (unsigned int)seeded_below(s, 6),
		.max_jobs = pick & 256 ? 2 : 0,
		.max_sessions = pick & 512 ? 1 : 0,
		.tick = ticks[seeded_below(s, 4)],
	};

	return r;
}

/* A durable write must succeed after a restart of the target. */
static void check_after_restart(struct world *w)
{
	w_restart(w);
	for (unsigned int k = 0; k < W_SESSIONS; k++) {
		struct w_op *o = &w->p[k].ops[0];
		int ret = -EAGAIN;

		for (int i = 0; i < 100 && ret; i++) {
			memset(o, 0, sizeof(*o));
			o->w = w;
			o->session = k;
			fill_op(w, o, RP_OP_WRITE);
			o->op.level = RP_LEVEL_DURABLE;
			o->durable = true;
			o->number = next_number(w, k);
			for (unsigned int c = 0; c < o->n; c++)
				o->buf[c] = o->number;
			ret = rp_session_post(w->p[k].s, &o->op);
			if (!ret)
				note_accepted(w, o);
			w_run_for(w, 100 * W_MS);
		}
		W_CHECK(w, !ret && !o->used, "afresh: %d", ret);
	}
}

struct totals {
	unsigned long ok[RP_OP_QUERY + 1], by_status[RP_ST_MAX];
};

static void one_run(uint64_t seed, struct totals *t)
{
	static struct world w;
	struct seeded s = {seed, ~seed};
	struct w_rules rules = some_rules(&s);
	unsigned int steps = 300 + (unsigned int)seeded_below(&s, 1500);

	w_start(&w, seed, &rules);
	w.trace = getenv("RP_SEED");
	for (unsigned int n = 0; n < steps && w.number < W_NUMBERS - 300; n++) {
		if (!w_below(&w, 3))
			some_op(&w, (unsigned int)w_below(&w, W_SESSIONS));
		w_step(&w);
	}
	/* Without failures every operation completes in the timeout. */
	w.quiet = true;
	w_run_for(&w, 2 * W_TIMEOUT);
	for (int k = 0; k < W_SESSIONS; k++)
		W_CHECK(&w, !rp_session_outstanding(w.p[k].s),
			"%u operations do not end",
			rp_session_outstanding(w.p[k].s));
	if (w.nregs + W_KINDS < W_REGS)
		check_after_restart(&w);
	for (int k = 0; k <= RP_OP_QUERY; k++)
		t->ok[k] += w.ok[k];
	for (int st = 0; st < RP_ST_MAX; st++)
		t->by_status[st] += w.by_status[st];
	w_stop(&w);
}

Test(both, no_ok_is_false_on_breaking_connections)
{
	static struct totals t;
	struct seeded s = seeded_start();
	bool one = getenv("RP_SEED");

	for (int i = 0; i < (one ? 1 : 2000); i++)
		one_run(one ? s.seed : seeded_next(&s) >> 16, &t);
	cr_assert_not(rp_test_leaked());
	for (int st = 0; st < RP_ST_MAX; st++)
		if (t.by_status[st])
			cr_log_info("%8lu %s", t.by_status[st],
				    rp_status_name((enum rp_status)st));
	/* Operations of every kind must have succeeded often. */
	for (int k = 0; k <= RP_OP_QUERY; k++)
		cr_assert(one || t.ok[k] > 1000, "kind %d: %lu", k, t.ok[k]);
}
