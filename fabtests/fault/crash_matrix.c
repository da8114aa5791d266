// SPDX-License-Identifier: BSD-2-Clause
/* Tries each method in each scenario: which pairs lose acknowledged bytes? */
#include <argp.h>
#include <errno.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "crash_cells.h"
#include "crash_programs.h"

/* A search that needs more runs is reported as not exhaustive. */
#define RUNS_MAX 3000000ull
/*
 * Runs of a short search: a forbidden pair mostly loses bytes at once, if the
 * variant is right.
 */
#define RUNS_SHORT 200ull
/*
 * With remote CQ data each write is two messages and a reply. Without --all
 * such a search stops after this many runs, and counts as stopped early.
 */
#define RUNS_DATA 5000ull
/*
 * A forbidden pair that loses nothing in this many runs is reported as missed.
 */
#define RUNS_MISSED 20000ull
/* Runs of a search for losses that only long programs show. */
#define RUNS_FORBIDDEN 5000ull
#define RUNS_QUICK     20ull
/* Slots for hashes of completed searches: many more than there are searches. */
#define DONE_SIZE 65536u

struct pair {
	const struct verdict_cell *cell;
	const struct verdict_method *method;
	bool forbidden;
};

enum outcome {
	OUT_NONE,
	OUT_SURVIVED,
	OUT_LOST,  /* a valid pair lost bytes */
	OUT_WRONG, /* a valid pair broke another promise */
	OUT_CAUGHT,
	OUT_MISSED, /* a forbidden pair lost no bytes */
	OUT_CUT,    /* a search not explored to its end */
};

/* Shared between the worker processes. */
struct result {
	enum outcome outcome;
	struct crash_stats all, random;
	unsigned int program; /* index in its list; ~0: random */
	uint64_t seed;	      /* seed of a random program */
	unsigned int variant;
	char why[CRASH_WHY];
	char path[CHOICE_MAX + 1];
	double seconds;
};

struct shared {
	atomic_size_t next;
	/*
	 * Hashes of searches that found nothing. Scenarios often differ only in
	 * facts that do not matter, which would repeat the same search.
	 */
	_Atomic uint64_t done[DONE_SIZE];
	atomic_size_t ndone, nagain, nearly;
	struct result results[];
};

static struct {
	const char *tsv, *forbidden, *json, *cell, *method, *replay;
	uint64_t seed, random, max, given; /* given: from --max */
	unsigned int jobs, share;
	int program, variant;
	bool verbose, all, quick, power, conn, weaken;
} opt = {.random = 100000,
	 .max = RUNS_MAX,
	 .jobs = 1,
	 .share = 1,
	 .program = -1,
	 .variant = -1};

static struct verdicts verdicts;
static struct pair *pairs;
static size_t npairs, not_built_valid, not_built_forbidden;

/* --- the programs that run in a cell --- */

static bool nth_variant(const struct pair *p, unsigned int n,
			struct crash_cell *out)
{
	const unsigned int first = opt.conn ? CRASH_CONN : 0;
	struct crash_cell strong;
	bool any;

	for (unsigned int v = 0; opt.weaken; v++) {
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
	if (opt.power)
		out->against = RP_CLASS_POWER;
	return any;
}

static size_t send_programs(const struct pair *p,
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

static size_t programs_of(const struct pair *p, const struct crash_cell *cell,
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
 * Cells for wide programs. The provider treats all memory alike. So programs
 * that are long because of the provider run only in the cells most likely to
 * show losses: each kind of placement, with bytes volatile as long as possible.
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

static bool is_wide(const struct pair *p)
{
	for (size_t i = 0; i < sizeof(wide) / sizeof(*wide); i++)
		if (!strcmp(wide[i].cell, p->cell->name) &&
		    !strcmp(wide[i].method, p->method->name))
			return true;
	return opt.all;
}

/*
 * Does the cell run programs that break connections? Without a read that pushes
 * acknowledged bytes to memory, they may be placed after those of a later
 * connection.
 */
static bool may_break(const struct crash_cell *c)
{
	return !c->alone;
}

static bool applies(const struct pair *p, const struct crash_prog *prog,
		    const struct crash_cell *c)
{
	bool simple = c->truth.place < MODEL_DMA_CACHE && c->fabric.ordered;
	bool breaks = prog->breaks || prog->cuts || prog->stops ||
		      prog->removes || prog->rekeys;

	if (opt.weaken && !opt.all &&
	    (breaks || prog->restarts || prog->dies || prog->disk_failures))
		return false;
	return (!prog->weakens || opt.weaken) && (!breaks || may_break(c)) &&
	       (!prog->wide || is_wide(p)) && (!c->alone || !prog->n[1]) &&
	       (!prog->deep || simple || opt.all);
}

/* --- the search of one pair --- */

static void report_found(struct result *r, const struct crash_cell *cell,
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
 * Hash everything that a search depends on. recv_in_pm is left out: the model's
 * memory does not depend on where receive buffers are.
 */
static uint64_t search_hash(const struct pair *p, const struct crash_cell *cell,
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

/* The slot that contains h, or the free slot for h. */
static _Atomic uint64_t *search_slot(struct shared *s, uint64_t h)
{
	for (size_t i = h;; i++) {
		uint64_t have = atomic_load(&s->done[i % DONE_SIZE]);

		if (!have || have == h)
			return &s->done[i % DONE_SIZE];
	}
}

/* Explore one program. True: continue; *cut: the search was not exhaustive. */
static bool explore_choices(struct shared *s, const struct pair *p,
			    const struct crash_cell *cell,
			    const struct crash_prog *prog, uint64_t max,
			    struct result *r, bool *cut)
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
	if (cell->data && !p->forbidden && !opt.all && max > RUNS_DATA)
		early = max = RUNS_DATA;
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
		r->outcome = p->forbidden	 ? OUT_CAUGHT
			     : how == CRASH_LOST ? OUT_LOST
						 : OUT_WRONG;
		c.len = c.at;
		report_found(r, cell, prog, &c, how);
		return false;
	}
	atomic_store(search_slot(s, h), h);
	atomic_fetch_add(&s->ndone, 1);
	if (opt.verbose)
		printf("# %8llu runs  %s %s, %u: %s\n",
		       (unsigned long long)(r->all.runs - before),
		       p->cell->name, p->method->name, r->variant, prog->name);
	return true;
}

static void random_program(const struct pair *p, const struct crash_cell *cell,
			   uint64_t seed, struct crash_prog *prog)
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

static bool explore_random(const struct pair *p, const struct crash_cell *cell,
			   uint64_t seed, struct result *r)
{
	static struct choices c;
	struct crash_prog prog;
	enum crash_result how;

	random_program(p, cell, seed, &prog);
	choices_random(&c, seed);
	how = crash_run(cell, &prog, &c, CRASH_SILENT, &r->random, r->why);
	if (how == CRASH_OK || (p->forbidden && how == CRASH_WRONG))
		return true;
	r->outcome = p->forbidden	 ? OUT_CAUGHT
		     : how == CRASH_LOST ? OUT_LOST
					 : OUT_WRONG;
	r->program = ~0u;
	r->seed = seed;
	report_found(r, cell, &prog, &c, how);
	return false;
}

/*
 * Run every short program in every variant. True: all searches were exhaustive.
 */
static bool work_short(struct shared *s, const struct pair *p, uint64_t max,
		       struct result *r)
{
	const struct crash_prog *list;
	struct crash_cell cell;
	bool cut = false;
	size_t n;

	for (unsigned int v = 0; nth_variant(p, v, &cell); v++) {
		if (opt.variant >= 0 && v != (unsigned int)opt.variant)
			continue;
		r->variant = v;
		n = programs_of(p, &cell, &list);
		for (unsigned int i = 0; i < n; i++) {
			if (opt.program >= 0 && i != (unsigned int)opt.program)
				continue;
			r->program = i;
			if (applies(p, &list[i], &cell) &&
			    !explore_choices(s, p, &cell, &list[i], max, r,
					     &cut))
				return true;
		}
	}
	return !cut;
}

static void run_pair(struct shared *s, const struct pair *p, uint64_t random,
		     struct result *r)
{
	struct crash_cell cell;
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	if (p->forbidden && random < RUNS_FORBIDDEN)
		random = RUNS_FORBIDDEN;
	if ((!p->forbidden || !work_short(s, p, RUNS_SHORT, r)) &&
	    !work_short(s, p,
			p->forbidden && opt.max != opt.given ? RUNS_MISSED
							     : opt.max,
			r) &&
	    !opt.quick && !p->forbidden)
		r->outcome = OUT_CUT;
	for (uint64_t i = 0, v = 0; !r->outcome && i < random; i++, v++) {
		if (!nth_variant(p, (unsigned int)v, &cell))
			nth_variant(p, 0, &cell), v = 0;
		if (opt.variant >= 0) {
			v = (uint64_t)opt.variant;
			nth_variant(p, (unsigned int)v, &cell);
		}
		r->variant = (unsigned int)v;
		cell.truth.relaxed = cell.weak.relaxed = !cell.alone;
		explore_random(p, &cell,
			       opt.seed + 1000003 * (uint64_t)(p - pairs) + i,
			       r);
	}
	if (!r->outcome)
		r->outcome = p->forbidden ? OUT_MISSED : OUT_SURVIVED;
	clock_gettime(CLOCK_MONOTONIC, &b);
	r->seconds = (double)(b.tv_sec - a.tv_sec) +
		     (double)(b.tv_nsec - a.tv_nsec) / 1e9;
}

/* --- all pairs --- */

/*
 * A simulated second serves as well as five. Operations must outlast the time
 * in which a target notices a change.
 */
static unsigned int timeout_ms(void)
{
	return opt.weaken ? 3000 : 1000;
}

static void run_worker(struct shared *s, uint64_t random)
{
	size_t i;

	crash_setup(timeout_ms());
	while ((i = atomic_fetch_add(&s->next, 1)) < npairs)
		run_pair(s, &pairs[i], random, &s->results[i]);
	crash_teardown();
}

static void work_all(struct shared *s)
{
	uint64_t valid = 0, random;
	pid_t pid[64];

	for (size_t i = 0; i < npairs; i++)
		valid += !pairs[i].forbidden;
	random = valid ? opt.random / valid + 1 : 0;
	fflush(NULL);
	for (unsigned int j = 0; j < opt.jobs; j++) {
		pid[j] = fork();
		if (!pid[j]) {
			run_worker(s, random);
			exit(0);
		}
		if (pid[j] < 0) {
			perror("fork");
			exit(99);
		}
	}
	for (unsigned int j = 0; j < opt.jobs; j++) {
		int st;

		if (waitpid(pid[j], &st, 0) != pid[j] || st) {
			fprintf(stderr, "a worker ended with %#x\n", st);
			exit(99);
		}
	}
}

/*
 * Is the pair on the list that the script forbidden_pairs made of the verdicts?
 */
static bool is_listed_forbidden(const char *cell, const char *method)
{
	static char *text;
	char line[256];

	if (!text) {
		FILE *f = strcmp(opt.forbidden, "-") ? fopen(opt.forbidden, "r")
						     : stdin;
		size_t n = 0;

		if (!f || getdelim(&text, &n, 0, f) < 0) {
			fprintf(stderr, "%s: %s\n", opt.forbidden,
				strerror(errno));
			exit(99);
		}
	}
	snprintf(line, sizeof(line), "%s\t%s\n", cell, method);
	for (const char *p = text; (p = strstr(p, line)); p++)
		if (p == text || p[-1] == '\n')
			return true;
	return false;
}

static void collect_workers(void)
{
	struct crash_cell any;

	for (size_t i = 0; i < verdicts.n; i++)
		for (size_t k = 0; k < verdicts.cells[i].n; k++) {
			const struct verdict_cell *c = &verdicts.cells[i];
			const struct verdict_method *m = &c->methods[k];
			bool forbidden =
				opt.forbidden
					? is_listed_forbidden(c->name, m->name)
					: !m->valid;

			if (forbidden == m->valid) {
				fprintf(stderr,
					"%s %s: the list and the file "
					"do not agree\n",
					c->name, m->name);
				exit(99);
			}
			if (!crash_built(c, m)) {
				not_built_valid += !forbidden;
				not_built_forbidden += forbidden;
				continue;
			}
			if ((opt.cell && strcmp(opt.cell, c->name)) ||
			    (opt.method && strcmp(opt.method, m->name)) ||
			    ((opt.conn || opt.weaken) &&
			     !nth_variant(&(struct pair){c, m, forbidden}, 0,
					  &any)) ||
			    (opt.weaken && forbidden))
				continue;
			pairs = realloc(pairs, (npairs + 1) * sizeof(*pairs));
			if (!pairs)
				exit(99);
			pairs[npairs++] = (struct pair){c, m, forbidden};
		}
}

/* Keep every N-th pair. The seed, mostly the time, rotates the choice. */
static void thin_pairs(void)
{
	size_t n = 0;

	for (size_t i = 0; i < npairs; i++)
		if ((i + opt.seed) % opt.share == 0)
			pairs[n++] = pairs[i];
	npairs = n;
}

/* --- reporting --- */

static const char *const words[] = {
	[OUT_SURVIVED] = "survives", [OUT_LOST] = "LOST",
	[OUT_WRONG] = "WRONG",	     [OUT_CAUGHT] = "caught",
	[OUT_MISSED] = "MISSED",     [OUT_CUT] = "UNFINISHED",
};

static void print_cell(const struct verdict_cell *cell, const struct shared *s)
{
	size_t rest = cell->n;

	printf("%-32s", cell->name);
	for (size_t i = 0; i < npairs; i++) {
		if (pairs[i].cell != cell)
			continue;
		printf("  %s %s", pairs[i].method->name,
		       words[s->results[i].outcome]);
		rest--;
	}
	if (rest)
		printf("  (%zu not built)", rest);
	putchar('\n');
}

static void print_bad(const struct pair *p, const struct result *r)
{
	printf("not ok: %s, %s: %s: %s\n", p->cell->name, p->method->name,
	       words[r->outcome], r->why);
	if (r->outcome == OUT_LOST || r->outcome == OUT_WRONG)
		printf("  again: crash_matrix --tsv %s --cell %s --method %s "
		       "--variant %u --program %d --seed %llu --replay "
		       "'%s'%s%s%s\n",
		       opt.tsv, p->cell->name, p->method->name, r->variant,
		       (int)r->program, (unsigned long long)r->seed, r->path,
		       opt.power ? " --power" : "",
		       opt.conn ? " --connected" : "",
		       opt.weaken ? " --weaken" : "");
}

static int report_totals(const struct shared *s, double seconds)
{
	uint64_t runs = 0, steps = 0, acked = 0, long_runs = 0, weak = 0;
	size_t valid = 0, forbidden = 0, lost = 0, caught = 0, bad = 0;
	size_t built_cells = 0;
	json_t *j;

	if (opt.quick)
		printf("a quick look: what survives was not searched to the "
		       "end\n");
	for (size_t i = 0; i < verdicts.n; i++) {
		bool any = false;

		for (size_t k = 0; k < npairs; k++)
			any |= pairs[k].cell == &verdicts.cells[i];
		built_cells += any;
		if (!opt.cell || !strcmp(opt.cell, verdicts.cells[i].name))
			print_cell(&verdicts.cells[i], s);
	}
	for (size_t i = 0; i < npairs; i++) {
		const struct result *r = &s->results[i];

		runs += r->all.runs;
		long_runs += r->random.runs;
		steps += r->all.steps + r->random.steps;
		acked += r->all.acked + r->random.acked;
		weak += r->all.acked_weak + r->random.acked_weak;
		valid += !pairs[i].forbidden;
		forbidden += pairs[i].forbidden;
		caught += r->outcome == OUT_CAUGHT;
		lost += r->outcome == OUT_LOST;
		if (r->outcome != OUT_SURVIVED && r->outcome != OUT_CAUGHT) {
			print_bad(&pairs[i], r);
			bad++;
		} else if (opt.verbose) {
			printf("# %6.1f s %8llu runs  %s %s: %s\n", r->seconds,
			       (unsigned long long)r->all.runs,
			       pairs[i].cell->name, pairs[i].method->name,
			       r->outcome == OUT_CAUGHT ? r->why : "");
		}
	}
	printf("\n%zu scenarios, %zu with a method that is built; valid pairs "
	       "%zu, lost in %zu; forbidden pairs %zu, caught %zu; not built: "
	       "%zu valid, %zu forbidden pairs\n",
	       verdicts.n, built_cells, valid, lost, forbidden, caught,
	       not_built_valid, not_built_forbidden);
	printf("%llu short runs to the end, %llu long ones at random, %llu "
	       "steps, %llu commits acknowledged, seed %llu, %.0f s\n",
	       (unsigned long long)runs, (unsigned long long)long_runs,
	       (unsigned long long)steps, (unsigned long long)acked,
	       (unsigned long long)opt.seed, seconds);
	if (opt.weaken)
		printf("%llu commits acknowledged behind a weakening\n",
		       (unsigned long long)weak);
	if (s->nearly)
		printf("%zu searches with remote CQ data ended early, after "
		       "%llu runs each\n",
		       (size_t)s->nearly, RUNS_DATA);
	if (!opt.json)
		return bad ? 1 : 0;
	j = json_pack(
		"{s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I "
		"s:I s:b}",
		"scenarios", (json_int_t)verdicts.n, "built",
		(json_int_t)built_cells, "pairs_valid", (json_int_t)valid,
		"pairs_forbidden", (json_int_t)forbidden, "lost",
		(json_int_t)lost, "wrong_methods_tried", (json_int_t)forbidden,
		"wrong_methods_caught", (json_int_t)caught, "steps_explored",
		(json_int_t)steps, "seed", (json_int_t)opt.seed,
		"runs_exhaustive", (json_int_t)runs, "runs_random",
		(json_int_t)long_runs, "pairs_valid_not_built",
		(json_int_t)not_built_valid, "pairs_forbidden_not_built",
		(json_int_t)not_built_forbidden, "searches_ended_early",
		(json_int_t)s->nearly, "acknowledged_weak", (json_int_t)weak,
		"exhaustive", !opt.quick);
	if (!j || json_dump_file(j, opt.json, JSON_INDENT(2))) {
		fprintf(stderr, "%s: not written\n", opt.json);
		bad++;
	}
	json_decref(j);
	return bad ? 1 : 0;
}

static int replay_path(void)
{
	const struct crash_prog *list, *prog;
	static struct choices c;
	struct crash_stats st = {0};
	struct crash_prog random;
	struct crash_cell cell;
	enum crash_result how;
	char why[CRASH_WHY];

	if (npairs != 1 || opt.variant < 0 ||
	    !nth_variant(&pairs[0], (unsigned int)opt.variant, &cell)) {
		fprintf(stderr, "--replay wants one --cell, --method, "
				"--variant and --program\n");
		return 2;
	}
	if (opt.program >= 0) {
		if ((size_t)opt.program >= programs_of(&pairs[0], &cell, &list))
			return 2;
		prog = &list[opt.program];
	} else {
		random_program(&pairs[0], &cell, opt.seed, &random);
		cell.truth.relaxed = cell.weak.relaxed = !cell.alone;
		prog = &random;
	}
	if (choices_parse(&c, opt.replay)) {
		fprintf(stderr, "--replay '%s' is no path\n", opt.replay);
		return 2;
	}
	crash_setup(timeout_ms());
	how = crash_run(&cell, prog, &c,
			opt.verbose ? CRASH_MESSAGES : CRASH_STEPS, &st, why);
	crash_teardown();
	printf("%s: %s\n", prog->name,
	       how == CRASH_OK ? "nothing is lost" : why);
	return how == CRASH_OK ? 0 : 1;
}

static const struct argp_option options[] = {
	{"tsv", 't', "FILE", 0, "The verdicts", 0},
	{"forbidden", 'f', "FILE", 0,
	 "Which pairs are forbidden, as another program reads the verdicts", 0},
	{"json", 'j', "FILE", 0, "Write the figures there", 0},
	{"seed", 's', "N", 0, "Of the long runs [the clock's]", 0},
	{"random", 'r', "N", 0, "Long runs in all [100000]", 0},
	{"jobs", 'p', "N", 0, "Processes that work [1]", 0},
	{"cell", 'c', "NAME", 0, "Only this scenario", 1},
	{"method", 'm', "NAME", 0, "Only this method", 1},
	{"variant", 'V', "N", 0, "Only this form of it", 1},
	{"program", 'P', "N", 0, "Only this program; -1: all, and long ones",
	 1},
	{"replay", 'x', "PATH", 0,
	 "One run again, step by step; with --verbose message by message", 1},
	{"all", 'a', NULL, 0, "Every program in every scenario: hours", 0},
	{"quick", 'q', NULL, 0, "Search valid pairs only briefly", 0},
	{"power", 'w', NULL, 0,
	 "Commits require class power, also of weaker memory", 0},
	{"connected", 'C', NULL, 0,
	 "Over connections of the program's own, where that can be", 0},
	{"weaken", 'W', NULL, 0, "Each run weakens a fact of the target", 0},
	{"share", 'S', "N", 0, "Every N-th pair only; the seed says which", 0},
	{"max", 'M', "N", 0, "Give up a search after so many runs", 0},
	{"verbose", 'v', NULL, 0, "A line for each pair", 0},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case 't':
		opt.tsv = arg;
		break;
	case 'f':
		opt.forbidden = arg;
		break;
	case 'j':
		opt.json = arg;
		break;
	case 's':
		opt.seed = strtoull(arg, NULL, 0);
		break;
	case 'r':
		opt.random = strtoull(arg, NULL, 0);
		break;
	case 'p':
		opt.jobs = (unsigned int)atoi(arg);
		if (!opt.jobs || opt.jobs > 64)
			argp_error(state, "--jobs is 1 to 64");
		break;
	case 'c':
		opt.cell = arg;
		break;
	case 'm':
		opt.method = arg;
		break;
	case 'a':
		opt.all = true;
		break;
	case 'q':
		opt.quick = true;
		opt.max = RUNS_QUICK;
		break;
	case 'w':
		opt.power = true;
		break;
	case 'C':
		opt.conn = true;
		break;
	case 'S':
		opt.share = (unsigned int)atoi(arg);
		if (!opt.share)
			argp_error(state, "--share is at least 1");
		break;
	case 'W':
		opt.weaken = true;
		break;
	case 'M':
		opt.max = opt.given = strtoull(arg, NULL, 0);
		break;
	case 'V':
		opt.variant = atoi(arg);
		break;
	case 'P':
		opt.program = atoi(arg);
		break;
	case 'x':
		opt.replay = arg;
		break;
	case 'v':
		opt.verbose = true;
		break;
	case ARGP_KEY_END:
		if (!opt.tsv)
			argp_error(state, "--tsv FILE is needed");
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.doc = "Which method keeps acknowledged bytes in which "
		       "scenario, judged on a simulated fabric.",
	};
	struct timespec a, b;
	struct shared *s;
	size_t size;
	int ret;

	clock_gettime(CLOCK_REALTIME, &a);
	opt.seed = (uint64_t)a.tv_sec;
	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	if (verdicts_read(opt.tsv, &verdicts))
		return 99;
	collect_workers();
	thin_pairs();
	if (opt.replay)
		return replay_path();
	size = sizeof(*s) + npairs * sizeof(s->results[0]);
	s = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		 -1, 0);
	if (s == MAP_FAILED) {
		perror("mmap");
		return 99;
	}
	work_all(s);
	clock_gettime(CLOCK_REALTIME, &b);
	ret = report_totals(s, (double)(b.tv_sec - a.tv_sec));
	munmap(s, size);
	free(pairs);
	verdicts_free(&verdicts);
	return ret;
}
