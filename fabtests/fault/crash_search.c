// SPDX-License-Identifier: BSD-2-Clause
/* The search of one pair (a method in a scenario) for runs that lose bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "crash_search.h"

/*
 * Runs of a first, short search in each variant: a forbidden pair mostly loses
 * bytes at once, but not in every variant.
 */
#define RUNS_SHORT 200ull
/* A search of a forbidden pair that loses nothing in this many runs stops. */
#define RUNS_MISSED 20000ull
/*
 * Random runs of a forbidden pair, at least, because some pairs lose bytes only
 * in long programs.
 */
#define RUNS_FORBIDDEN 5000ull

/* --- the programs that run in a cell --- */

bool crash_pair_variant(const struct crash_pair *p, unsigned int n,
			struct crash_cell *out)
{
	const unsigned int first = crash_opt.conn ? CRASH_CONN : 0;
	struct crash_cell strong;
	bool any;

	for (unsigned int v = 0; crash_opt.weaken; v++) {
		if (!crash_variant(p->cell, p->method, first + v, &strong))
			return false;
		for (unsigned int e = 0;; e++) {
			*out = strong;
			if (!crash_weakening(p->cell, p->method, e, out))
				break;
			if (!n--)
				return true;
		}
	}
	any = crash_variant(p->cell, p->method, first + n, out);
	if (crash_opt.power)
		out->against = RP_CLASS_POWER;
	return any;
}

static size_t send_programs(const struct crash_pair *p,
			    const struct crash_prog **list)
{
	switch (p->method->order) {
	case VERDICT_WAIT:
		*list = crash_send_wait;
		return crash_nsend_wait;
	case VERDICT_PIPELINED:
		*list = crash_send_pipelined;
		return crash_nsend_pipelined;
	case VERDICT_THEN:
		*list = crash_send_then;
		return crash_nsend_then;
	default:
		*list = crash_send_single;
		return crash_nsend_single;
	}
}

size_t crash_pair_programs(const struct crash_pair *p,
			   const struct crash_cell *cell,
			   const struct crash_prog **list)
{
	if (p->cell->op == VERDICT_SEND)
		return send_programs(p, list);
	if (cell->conn && p->method->order == VERDICT_ALONE) {
		*list = crash_conn;
		return crash_nconn;
	}
	switch (p->method->order) {
	case VERDICT_WAIT:
		*list = crash_wait;
		return crash_nwait;
	case VERDICT_PIPELINED:
		*list = crash_pipelined;
		return crash_npipelined;
	case VERDICT_THEN:
		*list = crash_then;
		return crash_nthen;
	default:
		*list = crash_single;
		return crash_nsingle;
	}
}

/*
 * Pairs that run programs with `wide`. These programs examine the provider,
 * which treats all memory alike. So they run only in the scenarios most likely
 * to show losses: one for each kind of placement, with bytes volatile as long
 * as possible.
 */
static const struct {
	const char *cell, *method;
} wide[] = {
	{"x-file-cpu-user", "agent-msync"},
	{"x-dax-sync-cpu-user-mc", "agent-clwb"},
	{"mc-ddio-dram-write-single", "agent-clwb"},
	{"mc-noddio-dram-write-single", "agent-clwb"},
	{"mc-ddio-dram-write-imm-single", "agent-clwb"},
	{"x-tmpfs-cpu-user", "delivery"},
	{"x-dax-sync-cpu-user-cpu", "delivery"},
	{"mc-noddio-dram-write-single", "fence"},
	{"sys-ddio-dram-write-single", "fence"},
	{"mc-ddio-dram-write-single", "native"},
};

static bool is_wide(const struct crash_pair *p)
{
	for (size_t i = 0; i < sizeof(wide) / sizeof(*wide); i++)
		if (!strcmp(wide[i].cell, p->cell->name) &&
		    !strcmp(wide[i].method, p->method->name))
			return true;
	return crash_opt.all;
}

/*
 * Does the cell run programs that break connections? Not with c->alone: no read
 * pushes acknowledged bytes to memory there, so they may be placed after bytes
 * of a later connection.
 */
static bool may_break(const struct crash_cell *c)
{
	return !c->alone;
}

static bool program_applies(const struct crash_pair *p,
			    const struct crash_prog *prog,
			    const struct crash_cell *c)
{
	bool simple = c->truth.place < MODEL_DMA_CACHE && c->fabric.ordered;
	bool breaks = prog->breaks || prog->cuts || prog->stops ||
		      prog->removes || prog->rekeys;

	if (crash_opt.weaken && !crash_opt.all &&
	    (breaks || prog->restarts || prog->dies || prog->disk_failures))
		return false;
	return (!prog->weakens || crash_opt.weaken) &&
	       (!breaks || may_break(c)) && (!prog->wide || is_wide(p)) &&
	       (!c->alone || !prog->n[1]) &&
	       (!prog->deep || simple || crash_opt.all);
}

/* --- the search of one pair --- */

static void report_found(struct crash_search *r, const struct crash_cell *cell,
			 const struct crash_prog *prog, struct choices *c,
			 enum crash_result how)
{
	crash_shrink(cell, prog, c, how);
	choices_print(c, r->path, sizeof(r->path));
}

static uint64_t mix_hash(uint64_t h, const void *data, size_t len)
{
	for (const uint8_t *b = data; len--; b++)
		h = (h ^ *b) * 0x100000001b3ull;
	return h;
}

/*
 * Hash everything that a search depends on. recv_in_pm does not matter: the
 * model's memory does not depend on where receive buffers are.
 */
static uint64_t search_hash(const struct crash_pair *p,
			    const struct crash_cell *cell,
			    const struct crash_prog *prog)
{
	struct crash_cell key = *cell;
	uint64_t h = 0xcbf29ce484222325ull;

	key.fabric.recv_in_pm = false;
	h = mix_hash(h, &key, sizeof(key));
	h = mix_hash(h, &prog, sizeof(prog));
	h = mix_hash(h, &p->forbidden, sizeof(p->forbidden));
	return h ? h : 1;
}

/* Find the slot of s->done that contains h, or the free slot for h. */
static _Atomic uint64_t *search_slot(struct crash_shared *s, uint64_t h)
{
	for (size_t i = h;; i++) {
		uint64_t have = atomic_load(&s->done[i % CRASH_DONE_SIZE]);

		if (!have || have == h)
			return &s->done[i % CRASH_DONE_SIZE];
	}
}

/*
 * Search one program in all orders, up to max runs. Returns false if it found a
 * loss. *cut: the search stopped at max.
 */
static bool explore_choices(struct crash_shared *s, const struct crash_pair *p,
			    const struct crash_cell *cell,
			    const struct crash_prog *prog, uint64_t max,
			    struct crash_search *r, bool *cut)
{
	static struct choices c;
	uint64_t before = r->all.runs, h = search_hash(p, cell, prog);
	_Atomic uint64_t *slot = search_slot(s, h);
	enum crash_result how;
	uint64_t early = 0;

	if (atomic_load(slot) == h) {
		atomic_fetch_add(&s->nagain, 1);
		return true;
	}
	if (cell->data && !p->forbidden && !crash_opt.all &&
	    max > CRASH_RUNS_DATA)
		early = max = CRASH_RUNS_DATA;
	choices_all(&c);
	while (choices_more(&c)) {
		if (r->all.runs - before >= max && early) {
			atomic_fetch_add(&s->nearly, 1);
			break;
		}
		if (r->all.runs - before >= max) {
			*cut = true;
			snprintf(r->why, sizeof(r->why), "%s: more than %llu",
				 prog->name, (unsigned long long)max);
			return true;
		}
		how = crash_run(cell, prog, &c, CRASH_SILENT, &r->all, r->why);
		if (how == CRASH_OK || how == CRASH_PRUNED)
			continue;
		if (p->forbidden && how == CRASH_WRONG)
			continue;
		r->outcome = p->forbidden	 ? CRASH_OUT_CAUGHT
			     : how == CRASH_LOST ? CRASH_OUT_LOST
						 : CRASH_OUT_WRONG;
		c.len = c.at;
		report_found(r, cell, prog, &c, how);
		return false;
	}
	atomic_store(search_slot(s, h), h);
	atomic_fetch_add(&s->ndone, 1);
	if (crash_opt.verbose)
		printf("# %8llu runs  %s %s, %u: %s\n",
		       (unsigned long long)(r->all.runs - before),
		       p->cell->name, p->method->name, r->variant, prog->name);
	return true;
}

void crash_pair_random(const struct crash_pair *p,
		       const struct crash_cell *cell, uint64_t seed,
		       struct crash_prog *prog)
{
	enum crash_shape shape =
		p->method->order == VERDICT_WAIT	? CRASH_ORDER_WAIT
		: p->method->order == VERDICT_PIPELINED ? CRASH_ORDER_PIPELINED
		: p->method->order == VERDICT_THEN	? CRASH_ORDER_THEN
							: CRASH_SINGLE;

	if (cell->send) {
		crash_random_sends(seed, shape, prog);
		return;
	}
	crash_random_program(seed, shape, may_break(cell), prog);
	if (cell->conn)
		crash_random_conns(seed, prog);
	if (cell->alone)
		prog->n[1] = 0;
}

static bool explore_random(const struct crash_pair *p,
			   const struct crash_cell *cell, uint64_t seed,
			   struct crash_search *r)
{
	static struct choices c;
	struct crash_prog prog;
	enum crash_result how;

	crash_pair_random(p, cell, seed, &prog);
	choices_random(&c, seed);
	how = crash_run(cell, &prog, &c, CRASH_SILENT, &r->random, r->why);
	if (how == CRASH_OK || (p->forbidden && how == CRASH_WRONG))
		return true;
	r->outcome = p->forbidden	 ? CRASH_OUT_CAUGHT
		     : how == CRASH_LOST ? CRASH_OUT_LOST
					 : CRASH_OUT_WRONG;
	r->program = ~0u;
	r->seed = seed;
	report_found(r, cell, &prog, &c, how);
	return false;
}

/*
 * Search every short program in every variant. Returns false if a search
 * stopped at max.
 */
static bool work_short(struct crash_shared *s, const struct crash_pair *p,
		       uint64_t max, struct crash_search *r)
{
	const struct crash_prog *list;
	struct crash_cell cell;
	bool cut = false;
	size_t n;

	for (unsigned int v = 0; crash_pair_variant(p, v, &cell); v++) {
		if (crash_opt.variant >= 0 &&
		    v != (unsigned int)crash_opt.variant)
			continue;
		r->variant = v;
		n = crash_pair_programs(p, &cell, &list);
		for (unsigned int i = 0; i < n; i++) {
			if (crash_opt.program >= 0 &&
			    i != (unsigned int)crash_opt.program)
				continue;
			r->program = i;
			if (program_applies(p, &list[i], &cell) &&
			    !explore_choices(s, p, &cell, &list[i], max, r,
					     &cut))
				return true;
		}
	}
	return !cut;
}

void crash_pair_search(struct crash_shared *s, const struct crash_pair *p,
		       uint64_t random, uint64_t seed, struct crash_search *r)
{
	struct crash_cell cell;
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	if (p->forbidden && random < RUNS_FORBIDDEN)
		random = RUNS_FORBIDDEN;
	if ((!p->forbidden || !work_short(s, p, RUNS_SHORT, r)) &&
	    !work_short(s, p,
			p->forbidden && crash_opt.max != crash_opt.given
				? RUNS_MISSED
				: crash_opt.max,
			r) &&
	    !crash_opt.quick && !p->forbidden)
		r->outcome = CRASH_OUT_CUT;
	for (uint64_t i = 0, v = 0; !r->outcome && i < random; i++, v++) {
		if (!crash_pair_variant(p, (unsigned int)v, &cell))
			crash_pair_variant(p, 0, &cell), v = 0;
		if (crash_opt.variant >= 0) {
			v = (uint64_t)crash_opt.variant;
			crash_pair_variant(p, (unsigned int)v, &cell);
		}
		r->variant = (unsigned int)v;
		cell.truth.relaxed = cell.weak.relaxed = !cell.alone;
		explore_random(p, &cell, seed + i, r);
	}
	if (!r->outcome)
		r->outcome =
			p->forbidden ? CRASH_OUT_MISSED : CRASH_OUT_SURVIVED;
	clock_gettime(CLOCK_MONOTONIC, &b);
	r->seconds = (double)(b.tv_sec - a.tv_sec) +
		     (double)(b.tv_nsec - a.tv_nsec) / 1e9;
}
