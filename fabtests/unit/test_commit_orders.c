/* SPDX-License-Identifier: BSD-2-Clause */
/* Every order of what can happen to three writes and two commits. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "initiator_rig.h"
#include "leaks.h"

/* Cells of memory in a row; a write or commit wants A, B or all three. */
#define CELL_A 1u
#define CELL_B 4u
#define CELLS  7u

enum {
	WRITES = 3,
	COMMITS = 2
};

/* What a program does, in this order. */
struct step {
	char what; /* 'w'rite or 'c'ommit */
	unsigned int cells;
};

struct program {
	struct step step[WRITES + COMMITS];
	bool ordered;
	uint16_t credits;
	bool timeout; /* may silence end it at any point? */
};

/* --- the oracle: from the history alone, what a program must be told --- */

enum fate {
	OPEN,
	PLACED,
	FAILED,
};

struct o_write {
	unsigned int cells, posted; /* when */
	enum fate fate;
	unsigned int at; /* when it became so */
};

struct o_commit {
	unsigned int cells, posted;
	enum fate answer;
	bool ended;
	enum rp_status status;
};

struct oracle {
	unsigned int clock;
	struct o_write w[WRITES];
	struct o_commit c[COMMITS];
	unsigned int nw, nc;
};

/*
 * Cells of a failed write that a later one has replaced since, or (when the
 * commit is posted) is about to.
 */
static unsigned int replaced(const struct oracle *o, const struct o_write *w,
			     unsigned int end, bool or_open)
{
	unsigned int cells = 0;

	for (unsigned int i = 0; i < o->nw; i++) {
		const struct o_write *v = &o->w[i];

		if (v->posted > w->posted && v->posted < end &&
		    ((v->fate == PLACED && v->at > w->at) ||
		     (or_open && v->fate == OPEN)))
			cells |= v->cells;
	}
	return cells;
}

/* Does a failure known when the commit was posted spoil it? */
static bool spoilt(const struct oracle *o, const struct o_commit *c)
{
	for (unsigned int i = 0; i < o->nw; i++) {
		const struct o_write *w = &o->w[i];

		if (w->posted < c->posted && w->fate == FAILED &&
		    w->at < c->posted &&
		    (w->cells & c->cells &
		     ~replaced(o, w, c->posted, c->posted == o->clock)))
			return true;
	}
	return false;
}

static void o_end(struct o_commit *c, enum rp_status st)
{
	if (c->ended)
		return;
	c->ended = true;
	c->status = st;
}

static bool all_placed(const struct oracle *o, const struct o_commit *c)
{
	for (unsigned int i = 0; i < o->nw; i++)
		if (o->w[i].posted < c->posted && o->w[i].fate == OPEN)
			return false;
	return true;
}

static void o_settle(struct oracle *o)
{
	for (unsigned int i = 0; i < o->nc; i++)
		if (o->c[i].answer == PLACED && all_placed(o, &o->c[i]))
			o_end(&o->c[i], RP_ST_OK);
}

/* --- one run: the initiator and the oracle side by side --- */

struct run {
	struct rig g;
	struct rp_peer *p;
	struct rig_session s;
	struct oracle o;
	const struct program *prog;
	unsigned int steps;
	struct rp_write w[WRITES];
	struct rig_told told[COMMITS];
	uint64_t token[COMMITS]; /* 0: not requested yet */
	bool timed_out;
};

static void where(unsigned int cells, uint64_t *addr, uint64_t *len)
{
	*addr = cells == CELL_B ? 128 : 0;
	*len = cells == CELLS ? 192 : 64;
}

static void do_step(struct run *r)
{
	const struct step *st = &r->prog->step[r->steps++];
	struct oracle *o = &r->o;
	uint64_t addr, len;

	where(st->cells, &addr, &len);
	if (st->what == 'w') {
		o->w[o->nw] = (struct o_write){st->cells, o->clock, OPEN, 0};
		rp_write_begin(r->p, &r->w[o->nw++], rig_key(1), addr, len);
		return;
	}
	o->c[o->nc] = (struct o_commit){.cells = st->cells, .posted = o->clock};
	rig_commit(&r->g, r->p, &r->told[o->nc], 1, addr, len);
	if (spoilt(o, &o->c[o->nc]))
		o_end(&o->c[o->nc], RP_ST_WRITE_FAILED);
	o->nc++;
}

static void do_write(struct run *r, unsigned int i, bool fails)
{
	struct oracle *o = &r->o;
	struct o_write *w = &o->w[i];

	w->fate = fails ? FAILED : PLACED;
	w->at = o->clock;
	rp_write_done(&r->w[i], fails ? EIO : 0);
	for (unsigned int k = 0; fails && k < o->nc; k++)
		if (o->c[k].posted > w->posted && (o->c[k].cells & w->cells))
			o_end(&o->c[k], RP_ST_WRITE_FAILED);
}

static void do_answer(struct run *r, unsigned int i, bool fails)
{
	r->o.c[i].answer = fails ? FAILED : PLACED;
	if (fails) {
		rig_refuse(&r->g, &r->s, r->token[i], RP_ST_FLUSH_FAILED);
		o_end(&r->o.c[i], RP_ST_FLUSH_FAILED);
	} else {
		rig_ok(&r->g, &r->s, r->token[i]);
	}
}

/* Nobody has said anything for long: also what is never answered ends. */
static void do_timeout(struct run *r)
{
	r->timed_out = true;
	r->g.now += RIG_TIMEOUT;
	for (unsigned int i = 0; i < r->o.nc; i++)
		o_end(&r->o.c[i], RP_ST_TIMEOUT);
}

/* Requests that went out; a commit has one. */
static void take_requests(struct run *r)
{
	struct rp_wire_request q;
	struct rig_msg *m;

	while ((m = rig_pop(&r->g))) {
		if (m->hdr.type == RP_MSG_HELLO) {
			rig_hello_ack(&r->g, m, &r->s, RP_ST_OK);
			free(m);
			continue;
		}
		q = rig_as_request(m);
		for (unsigned int i = 0; i < r->o.nc; i++) {
			uint64_t addr, len;

			/* Tokens grow with the commits. */
			where(r->o.c[i].cells, &addr, &len);
			if (r->token[i] || r->o.c[i].ended ||
			    q.ranges[0].addr != addr || q.ranges[0].len != len)
				continue;
			r->token[i] = m->hdr.token;
			/* Without order it stands behind its writes. */
			cr_assert(r->prog->ordered ||
				  all_placed(&r->o, &r->o.c[i]));
			break;
		}
		free(m);
	}
}

static void check(struct run *r, const char *trace)
{
	struct oracle *o = &r->o;

	o_settle(o);
	rig_progress(&r->g);
	take_requests(r);
	for (unsigned int i = 0; i < o->nc; i++) {
		const struct o_commit *c = &o->c[i];
		const struct rig_told *t = &r->told[i];

		cr_assert_eq(t->times, c->ended, "%s: c%u told %u times", trace,
			     i, t->times);
		if (c->ended)
			cr_assert_eq(t->out.status, c->status,
				     "%s: c%u: %s is not %s", trace, i,
				     rp_status_name(t->out.status),
				     rp_status_name(c->status));
	}
	o->clock++;
}

static void run_start(struct run *r, const struct program *prog)
{
	struct rp_initiator_attr attr = rig_attr();
	struct rig_told t;

	*r = (struct run){.prog = prog};
	attr.ordered = prog->ordered;
	rig_start(&r->g, &attr);
	r->p = rig_peer(&r->g);
	rig_commit(&r->g, r->p, &t, 9, 0, 1);
	r->s = rig_open(&r->g, RIG_LIFE, prog->credits);
	rig_ok(&r->g, &r->s, rig_requested(&r->g, &r->s));
	rig_told_once(&t, RP_ST_OK);
	r->o.clock = 1;
}

/* --- every choice: a run is repeated with the last choice changed --- */

struct event {
	char what; /* 's'tep, 'w'rite, 'a'nswer, 't'imeout */
	unsigned int i;
	bool fails;
};

static unsigned int events(const struct run *r, struct event *e)
{
	unsigned int n = 0;

	if (r->steps < WRITES + COMMITS)
		e[n++] = (struct event){'s', r->steps, false};
	for (unsigned int i = 0; i < r->o.nw; i++)
		for (int f = 0; f < 2 && r->o.w[i].fate == OPEN; f++)
			e[n++] = (struct event){'w', i, f};
	for (unsigned int i = 0; i < r->o.nc; i++)
		for (int f = 0;
		     f < 2 && r->token[i] && r->o.c[i].answer == OPEN; f++)
			e[n++] = (struct event){'a', i, f};
	if (r->prog->timeout && !r->timed_out)
		e[n++] = (struct event){'t', 0, false};
	return n;
}

static void happen(struct run *r, const struct event *e)
{
	switch (e->what) {
	case 's':
		do_step(r);
		break;
	case 'w':
		do_write(r, e->i, e->fails);
		break;
	case 'a':
		do_answer(r, e->i, e->fails);
		break;
	case 't':
		do_timeout(r);
		break;
	}
}

enum {
	DEPTH = 2 * (WRITES + COMMITS) + 1
};

struct totals {
	unsigned long runs, good, bad;
};

static void explore(const struct program *prog, struct totals *t)
{
	unsigned int choice[DEPTH + 1] = {0}, of[DEPTH + 1], depth;
	struct event e[2 * (WRITES + COMMITS) + 2];
	char trace[8 * DEPTH + 8];
	static struct run r;
	size_t len;

	do {
		run_start(&r, prog);
		len = 0;
		for (depth = 0;; depth++) {
			of[depth] = events(&r, e);
			if (!of[depth])
				break;
			cr_assert_lt(depth, DEPTH);
			len += snprintf(trace + len, sizeof(trace) - len,
					" %c%u%s", e[choice[depth]].what,
					e[choice[depth]].i,
					e[choice[depth]].fails ? "!" : "");
			happen(&r, &e[choice[depth]]);
			check(&r, trace);
		}
		/* Nothing can happen any more: every commit has ended. */
		for (unsigned int i = 0; i < COMMITS; i++) {
			cr_assert_eq(r.told[i].times, 1, "%s", trace);
			if (r.told[i].out.status == RP_ST_OK)
				t->good++;
			else
				t->bad++;
		}
		rig_stop(&r.g);
		t->runs++;
		/* The next path: the last choice that has more to try. */
		while (depth && choice[depth - 1] + 1 == of[depth - 1])
			choice[--depth] = 0;
		if (depth)
			choice[depth - 1]++;
	} while (depth);
}

/* Where the two commits stand among the three writes: ten ways. */
static void each_program(struct program prog, const unsigned int cells[5],
			 struct totals *t)
{
	for (unsigned int a = 0; a < WRITES + COMMITS; a++) {
		for (unsigned int b = a + 1; b < WRITES + COMMITS; b++) {
			unsigned int w = 0, c = WRITES;

			for (unsigned int i = 0; i < WRITES + COMMITS; i++)
				prog.step[i] =
					i == a || i == b
						? (struct step){'c', cells[c++]}
						: (struct step){'w',
								cells[w++]};
			explore(&prog, t);
		}
	}
}

static const unsigned int patterns[][WRITES + COMMITS] = {
	{CELL_A, CELL_A, CELL_A, CELL_A, CELL_A},
	{CELL_A, CELL_B, CELLS, CELL_A, CELLS},
	{CELLS, CELL_A, CELL_B, CELLS, CELL_B},
};

static void orders(struct program prog, size_t first, size_t end)
{
	const char *sanitize = getenv("RP_SANITIZE");
	struct totals t = {0};

	/* One pattern shows a sanitizer all the code; it takes much longer. */
	if (sanitize && *sanitize)
		first = end - 1;
	for (size_t i = first; i < end; i++)
		each_program(prog, patterns[i], &t);
	cr_assert_not(rp_test_leaked());
	cr_log_info("%lu runs; commits: %lu good, %lu failed", t.runs, t.good,
		    t.bad);
	cr_assert_gt(t.good, t.runs / 20);
	cr_assert_gt(t.bad, t.runs / 20);
}

Test(commit_orders, ordered)
{
	orders((struct program){.ordered = true, .credits = 8}, 1, 3);
}

Test(commit_orders, one_credit)
{
	orders((struct program){.ordered = true, .credits = 1}, 0, 1);
}

Test(commit_orders, without_order)
{
	orders((struct program){.ordered = false, .credits = 8}, 1, 3);
}

Test(commit_orders, silence)
{
	struct program prog = {
		.step = {{'w', CELL_A},
			 {'c', CELL_A},
			 {'w', CELL_A},
			 {'w', CELL_B},
			 {'c', CELL_A}},
		.ordered = true,
		.credits = 8,
		.timeout = true,
	};
	struct totals t = {0};

	explore(&prog, &t);
	prog.ordered = false;
	explore(&prog, &t);
	cr_log_info("%lu runs", t.runs);
}
