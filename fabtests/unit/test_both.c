/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Real initiators and a real agent over a base that breaks, against an oracle
 * that knows where every write went and what was flushed when.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "both_world.h"
#include "leaks.h"

static bool touches(const struct w_write *wr, const struct w_range *g)
{
	return wr->reg == g->reg && wr->first < g->first + g->n &&
	       g->first < wr->first + wr->n;
}

static bool covers(const struct w_commit *c, const struct w_write *wr)
{
	if (wr->in != c->in || wr->generation != c->generation ||
	    wr->posted > c->posted)
		return false;
	for (size_t i = 0; i < c->nranges; i++)
		if (touches(wr, &c->ranges[i]))
			return true;
	return false;
}

/* Was this cell of a write that failed written again, before the commit? */
static bool repaired(const struct world *w, const struct w_commit *c,
		     const struct w_write *bad, unsigned int cell)
{
	for (size_t i = 0; i < w->nwrites; i++) {
		const struct w_write *wr = &w->writes[i];

		if (wr->in == c->in && wr->generation == c->generation &&
		    wr->reg == bad->reg && wr->first <= cell &&
		    cell < wr->first + wr->n && wr->posted > bad->posted &&
		    wr->posted < c->posted && wr->fate == FATE_OK &&
		    wr->ended > bad->ended)
			return true;
	}
	return false;
}

/* A covered write has ended, well or with every cell repaired. */
static void judge_write(struct world *w, const struct w_commit *c,
			const struct w_write *wr, uint64_t *placed)
{
	size_t n = wr - w->writes, k = c - w->commits;

	W_CHECK(w, wr->fate != FATE_OPEN,
		"commit %zu before write %zu has ended", k, n);
	if (wr->fate == FATE_OK) {
		W_CHECK(w, wr->where == wr->reg,
			"commit %zu: write %zu went elsewhere", k, n);
		if (*placed < wr->placed)
			*placed = wr->placed;
		return;
	}
	W_CHECK(w, wr->ended < c->posted,
		"commit %zu although write %zu failed since", k, n);
	for (size_t i = 0; i < c->nranges; i++) {
		const struct w_range *g = &c->ranges[i];

		if (!touches(wr, g))
			continue;
		for (unsigned int x = g->first; x < g->first + g->n; x++)
			if (wr->first <= x && x < wr->first + wr->n)
				W_CHECK(w, repaired(w, c, wr, x),
					"commit %zu: write %zu failed", k, n);
	}
}

/* Does this class take a flush there? */
static bool flushed(const struct w_reg *reg, enum rp_class class)
{
	return reg->kind != W_TMPFS &&
	       (reg->kind != W_MSYNC || class >= RP_CLASS_POWER);
}

/* What the commit covers is there, and durable as the class demands. */
static void judge_ranges(struct world *w, const struct w_commit *c,
			 enum rp_class class)
{
	uint64_t placed = 0;
	size_t k = c - w->commits;

	for (size_t i = 0; i < w->nwrites; i++)
		if (covers(c, &w->writes[i]))
			judge_write(w, c, &w->writes[i], &placed);
	if (c->level == RP_LEVEL_VISIBLE)
		return;
	for (size_t i = 0; i < c->nranges; i++) {
		const struct w_range *g = &c->ranges[i];

		W_CHECK(w, g->reg->kind != W_TMPFS || class < RP_CLASS_POWER,
			"commit %zu: power on tmpfs", k);
		/* What it survives decides what must have been done. */
		if (!flushed(g->reg, class))
			continue;
		for (unsigned int x = g->first; x < g->first + g->n; x++) {
			W_CHECK(w, g->reg->durable[x] > placed,
				"commit %zu: cell %u not flushed since its "
				"writes",
				k, x);
			W_CHECK(w, g->reg->durable[x] > c->posted,
				"commit %zu: cell %u not flushed for it", k, x);
		}
	}
}

/* Is there a store, or a write, after this failed one and before c? */
static bool stored_again(struct world *w, const struct w_commit *c,
			 const struct w_commit *bad)
{
	const struct w_effect *e = &bad->effect;

	for (size_t i = 0; i < w->ncommits; i++) {
		const struct w_commit *t = &w->commits[i];

		if (t->in == c->in && t->generation == c->generation &&
		    t->effect.kind == RP_EFFECT_THEN &&
		    t->effect.reg == e->reg && t->effect.cell == e->cell &&
		    t->posted > bad->posted && t->posted < c->posted &&
		    t->told && t->out.status == RP_ST_OK)
			return true;
	}
	for (size_t i = 0; i < w->nwrites; i++) {
		const struct w_write *wr = &w->writes[i];

		if (wr->in == c->in && wr->generation == c->generation &&
		    wr->reg == e->reg && wr->first <= e->cell &&
		    e->cell < wr->first + wr->n && wr->posted > bad->posted &&
		    wr->posted < c->posted && wr->fate == FATE_OK)
			return true;
	}
	return false;
}

/* Stores of earlier commits are covered as writes are. */
static void judge_stores(struct world *w, const struct w_commit *c)
{
	for (size_t i = 0; i < w->ncommits; i++) {
		const struct w_commit *t = &w->commits[i];
		const struct w_effect *e = &t->effect;
		bool touched = false;

		if (t->in != c->in || t->generation != c->generation ||
		    e->kind != RP_EFFECT_THEN || t->posted >= c->posted)
			continue;
		for (size_t k = 0; k < c->nranges; k++)
			touched |=
				c->ranges[k].reg == e->reg &&
				c->ranges[k].first <= e->cell &&
				e->cell < c->ranges[k].first + c->ranges[k].n;
		if (!touched)
			continue;
		W_CHECK(w, t->told, "commit %zu before the store of %zu",
			(size_t)(c - w->commits), i);
		W_CHECK(w, t->out.status == RP_ST_OK || stored_again(w, c, t),
			"commit %zu: the store of %zu failed",
			(size_t)(c - w->commits), i);
	}
}

/* Told when it happens, so what it says must be true at this moment. */
static void judge(struct world *w, const struct w_commit *c)
{
	const struct w_effect *e = &c->effect;
	size_t k = c - w->commits;

	switch (c->out.status) {
	case RP_ST_OK:
		break;
	case RP_ST_UNSURE:
		W_CHECK(w, e->kind, "commit %zu: nothing to be unsure of", k);
		return;
	case RP_ST_CANCELED:
	case RP_ST_FLUSH_FAILED:
		return;
	default:
		W_CHECK(w, !c->done, "commit %zu: %s, and its effect", k,
			rp_status_name(c->out.status));
		return;
	}
	judge_ranges(w, c, c->out.class);
	judge_stores(w, c);
	if (c->level == RP_LEVEL_DURABLE)
		W_CHECK(w, c->out.class >= c->required, "commit %zu: class", k);
	W_CHECK(w, c->done == !!e->kind, "commit %zu: %u effects", k, c->done);
	if (e->kind == RP_EFFECT_THEN && flushed(e->reg, c->out.class))
		W_CHECK(w, e->reg->durable[e->cell] > c->done_at,
			"commit %zu: its store is not durable", k);
}

static void judge_effect(struct world *w, const struct w_commit *c)
{
	size_t k = c - w->commits;

	W_CHECK(w,
		!c->told || c->out.status == RP_ST_UNSURE ||
			c->out.status == RP_ST_CANCELED,
		"commit %zu: its effect after it was told: %s", k,
		c->told ? rp_status_name(c->out.status) : "");
	/* Who has asked since, and been answered, knows that it never will. */
	W_CHECK(w, !c->told || c->told_at >= c->in->answered,
		"commit %zu: its effect after a later answer", k);
	for (size_t i = 0; i < w->ncommits; i++) {
		const struct w_commit *t = &w->commits[i];

		W_CHECK(w,
			t->in != c->in || !t->done || t->posted <= c->posted ||
				t->effect.kind != RP_EFFECT_THEN ||
				c->effect.kind != RP_EFFECT_THEN,
			"commit %zu: its store after that of %zu", k, i);
	}
	judge_ranges(w, c, c->required);
	judge_stores(w, c);
}

/* --- a program --- */

static struct w_reg *some_reg(struct world *w)
{
	if (w_chance(w, w->rules.stale))
		return w->regs[w_below(w, w->nregs)];
	return w->life->now[w_below(w, W_KINDS)];
}

static void some_write(struct world *w, struct w_init *i)
{
	/* Few places, so that writes meet. */
	unsigned int first = w_below(w, 16), n = 1 + w_below(w, 6);

	if (w->nwrites < W_WRITES)
		w_post_write(i, some_reg(w), first, n);
}

static void some_commit(struct world *w, struct w_init *i)
{
	size_t n = w_below(w, 20) ? 1 + w_below(w, 3) : 150 + w_below(w, 250);
	enum rp_class required =
		w_below(w, 4) ? RP_CLASS_PROCESS : RP_CLASS_POWER;
	const struct w_effect e = {
		.kind = 1 + w_below(w, 2),
		.reg = some_reg(w),
		.cell = w_below(w, 16),
	};
	enum rp_level level =
		w_below(w, 8) ? RP_LEVEL_DURABLE : RP_LEVEL_VISIBLE;
	bool has_effect = level == RP_LEVEL_DURABLE && !w_below(w, 3);
	struct w_range *r;

	if (w->ncommits == W_COMMITS)
		return;
	r = calloc(n, sizeof(*r));
	cr_assert(r);
	for (size_t k = 0; k < n; k++)
		r[k] = (struct w_range){
			some_reg(w),
			w_below(w, 20),
			1 + w_below(w, 6),
		};
	w_post_commit(i, r, n, level, required, has_effect ? &e : NULL);
}

static struct w_rules some_rules(struct seeded *s)
{
	/* Each world has some kinds of trouble, not all of them. */
	const unsigned int much = 1 + seeded_below(s, 40);
	const uint64_t pick = seeded_next(s);
	struct w_rules r = {
		.ordered = pick & 1,
		.zombies = pick & 2,
		.again = pick & 4 ? 10 * much : 0,
		.send_fails = pick & 8 ? much / 4 : 0,
		.breaks = pick & 16 ? much : 0,
		.restarts = pick & 32 ? much / 2 : 0,
		.forgets = pick & 64 ? much : 0,
		.leaves = pick & 128 ? much / 8 : 0,
		.renews = pick & 256 ? much / 2 : 0,
		.sync_fails = pick & 512 ? much : 0,
		.stale = pick & 1024 ? 10 * much : 0,
		.initiators = pick & 2048 ? W_INITS : 1,
		.credits = 1 + seeded_below(s, 6),
		.max_jobs = pick & 4096 ? 2 : 0,
		.max_sessions = pick & 8192 ? 1 : 0,
	};
	static const uint64_t ticks[] = {W_MS / 100, W_MS, 20 * W_MS,
					 500 * W_MS};

	r.tick = ticks[seeded_below(s, 4)];
	return r;
}

static void ended(struct world *w)
{
	for (size_t i = 0; i < w->ncommits; i++)
		W_CHECK(w, w->commits[i].told == 1, "commit %zu: told %u", i,
			w->commits[i].told);
	for (size_t i = 0; i < w->nqueries; i++)
		W_CHECK(w, w->queries[i].told == 1, "query %zu: told %u", i,
			w->queries[i].told);
	for (unsigned int i = 0; i < w->rules.initiators; i++)
		W_CHECK(w, !rp_initiator_outstanding(w->init[i].in),
			"something is outstanding");
}

struct totals {
	unsigned long runs, ok, by_status[RP_ST_MAX];
	unsigned long effects, unsure_done, unsure_not;
};

static struct w_commit *write_and_commit(struct world *w, struct w_init *i)
{
	struct w_range *r = calloc(1, sizeof(*r));
	struct w_commit *c;

	cr_assert(r);
	*r = (struct w_range){w->life->now[W_MSYNC], 3, 10};
	cr_assert(w_post_write(i, r->reg, 0, 20));
	c = w_post_commit(i, r, 1, RP_LEVEL_DURABLE, RP_CLASS_POWER, NULL);
	cr_assert(c);
	w_sleep(w, W_TIMEOUT - 1);
	return c;
}

static void one_run(uint64_t seed, struct totals *t, bool trace)
{
	static struct world w;
	struct seeded s = {seed, ~seed};
	struct w_rules rules = some_rules(&s);
	unsigned int steps = 200 + seeded_below(&s, 600);
	struct w_commit *c;
	bool afresh;

	w_start(&w, seed, &rules);
	w.judge = judge;
	w.judge_effect = judge_effect;
	w.trace = trace;
	for (unsigned int n = 0; n < steps; n++) {
		struct w_init *i = &w.init[w_below(&w, rules.initiators)];

		if (!w_below(&w, 4))
			some_write(&w, i);
		if (!w_below(&w, 8))
			some_commit(&w, i);
		w_step(&w);
	}
	/* No more trouble: everything ends, in the time that is promised. */
	w_say(&w, "--- quiet");
	w.quiet = true;
	w_sleep(&w, W_TIMEOUT + 100 * W_MS);
	ended(&w);
	for (size_t i = 0; i < w.ncommits; i++) {
		t->by_status[w.commits[i].out.status]++;
		t->ok += w.commits[i].out.status == RP_ST_OK;
		t->effects += w.commits[i].done;
		if (w.commits[i].out.status != RP_ST_UNSURE)
			continue;
		t->unsure_done += w.commits[i].done;
		t->unsure_not += !w.commits[i].done;
	}
	/* And who starts afresh succeeds. */
	w_clear(&w);
	/* Bytes of a peer that was forgotten may be in doubt for good. */
	afresh = w.life->now[W_MSYNC]->broken;
	for (unsigned int i = 0; i < rules.initiators; i++)
		afresh |= w.init[i].generation > 0;
	if (afresh)
		w_restart(&w);
	for (unsigned int i = 0; i < rules.initiators; i++) {
		c = write_and_commit(&w, &w.init[i]);
		/* The first may be what ends a doubt. */
		if (c->told && c->out.status == RP_ST_WRITE_FAILED)
			c = write_and_commit(&w, &w.init[i]);
		W_CHECK(&w, c->told && c->out.status == RP_ST_OK, "afresh: %s",
			c->told ? rp_status_name(c->out.status) : "not told");
	}
	w_stop(&w);
	t->runs++;
}

Test(both, worlds)
{
	static struct totals t;
	struct seeded s = seeded_start();
	bool one = getenv("RP_SEED");

	for (int i = 0; i < (one ? 1 : 3000); i++) {
		uint64_t seed = one ? s.seed : seeded_next(&s) >> 16;

		one_run(seed, &t, one);
	}
	cr_assert_not(rp_test_leaked());
	for (int st = 0; st < RP_ST_MAX; st++)
		if (t.by_status[st])
			cr_log_info("%8lu %s", t.by_status[st],
				    rp_status_name((enum rp_status)st));
	cr_log_info("%8lu effects, %lu and %lu not of those unsure", t.effects,
		    t.unsure_done, t.unsure_not);
	/* Neither may be a case that never happens. */
	cr_assert(one || (t.unsure_done && t.unsure_not));
}
