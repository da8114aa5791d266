// SPDX-License-Identifier: BSD-2-Clause
/*
 * Runs each method of verdicts.tsv in each scenario on a simulated fabric, and
 * reports the pairs that lose acknowledged bytes.
 */
#include <argp.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "crash_search.h"

/* A search that needs more runs is reported as UNFINISHED. */
#define RUNS_MAX 3000000ull
/* Runs of each search with --quick. */
#define RUNS_QUICK 20ull

struct crash_options crash_opt = {.random = 100000,
				  .max = RUNS_MAX,
				  .jobs = 1,
				  .share = 1,
				  .program = -1,
				  .variant = -1};

static struct verdicts verdicts;
static struct crash_pair *pairs;
static size_t excused[CRASH_EXCUSES]; /* valid pairs of --weaken */
static size_t npairs, not_built_valid, not_built_forbidden;

/* --- all pairs --- */

/*
 * The clock is simulated, so 1 second is as good as the default of 5. With
 * --weaken, operations must outlast the time that a target takes to notice a
 * changed fact.
 */
static unsigned int timeout_ms(void)
{
	return crash_opt.weaken ? 3000 : 1000;
}

static void run_worker(struct crash_shared *s, uint64_t random)
{
	size_t i;

	crash_setup(timeout_ms());
	while ((i = atomic_fetch_add(&s->next, 1)) < npairs)
		crash_pair_search(s, &pairs[i], random,
				  crash_opt.seed + 1000003 * (uint64_t)i,
				  &s->results[i]);
	crash_teardown();
}

static void work_all(struct crash_shared *s)
{
	uint64_t valid = 0, random;
	pid_t pid[64];

	for (size_t i = 0; i < npairs; i++)
		valid += !pairs[i].forbidden;
	random = valid ? crash_opt.random / valid + 1 : 0;
	fflush(NULL);
	for (unsigned int j = 0; j < crash_opt.jobs; j++) {
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
	for (unsigned int j = 0; j < crash_opt.jobs; j++) {
		int st;

		if (waitpid(pid[j], &st, 0) != pid[j] || st) {
			fprintf(stderr, "a worker ended with %#x\n", st);
			exit(99);
		}
	}
}

/*
 * Is the pair on the list of --forbidden, which the script forbidden_pairs
 * makes of verdicts.tsv?
 */
static bool is_listed_forbidden(const char *cell, const char *method)
{
	static char *text;
	char line[256];

	if (!text) {
		FILE *f = strcmp(crash_opt.forbidden, "-")
				  ? fopen(crash_opt.forbidden, "r")
				  : stdin;
		size_t n = 0;

		if (!f || getdelim(&text, &n, 0, f) < 0) {
			fprintf(stderr, "%s: %s\n", crash_opt.forbidden,
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

/* Count the pair by the events of --weaken that apply to it. */
static bool weakens(const struct verdict_cell *c,
		    const struct verdict_method *m)
{
	const enum crash_excuse why =
		crash_weakening_excuse(c, m, crash_opt.conn ? CRASH_CONN : 0);

	excused[why]++;
	if (why == CRASH_NO_EVENT)
		printf("not ok: %s, %s: no event of --weaken applies\n",
		       c->name, m->name);
	return why == CRASH_WEAKENS;
}

/* Has the pair a variant that the options run? */
static bool is_run(const struct verdict_cell *c, const struct verdict_method *m,
		   bool forbidden)
{
	struct crash_cell any;

	/* weakens() looks among the variants of --connected itself. */
	if (crash_opt.weaken)
		return !forbidden && weakens(c, m);
	return !crash_opt.conn ||
	       crash_pair_variant(&(struct crash_pair){c, m, forbidden}, 0,
				  &any);
}

static void collect_workers(void)
{
	for (size_t i = 0; i < verdicts.n; i++)
		for (size_t k = 0; k < verdicts.cells[i].n; k++) {
			const struct verdict_cell *c = &verdicts.cells[i];
			const struct verdict_method *m = &c->methods[k];
			bool forbidden =
				crash_opt.forbidden
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
			if ((crash_opt.cell &&
			     strcmp(crash_opt.cell, c->name)) ||
			    (crash_opt.method &&
			     strcmp(crash_opt.method, m->name)) ||
			    !is_run(c, m, forbidden))
				continue;
			pairs = realloc(pairs, (npairs + 1) * sizeof(*pairs));
			if (!pairs)
				exit(99);
			pairs[npairs++] = (struct crash_pair){c, m, forbidden};
		}
}

/* Say what --cell and --method leave to run, if that is nothing. */
static bool is_any_selected(void)
{
	bool cell = !crash_opt.cell, method = !crash_opt.method;

	for (size_t i = 0; i < verdicts.n; i++) {
		const struct verdict_cell *c = &verdicts.cells[i];

		cell |= crash_opt.cell && !strcmp(crash_opt.cell, c->name);
		for (size_t k = 0; crash_opt.method && k < c->n; k++)
			method |= !strcmp(crash_opt.method, c->methods[k].name);
	}
	if (!cell)
		fprintf(stderr, "--cell %s: no scenario has this name\n",
			crash_opt.cell);
	else if (!method)
		fprintf(stderr, "--method %s: no method has this name\n",
			crash_opt.method);
	else if (!npairs)
		fprintf(stderr, "--cell %s --method %s: no pair can be run\n",
			crash_opt.cell ? crash_opt.cell : "(all)",
			crash_opt.method ? crash_opt.method : "(all)");
	return cell && method && npairs;
}

/*
 * Keep every N-th pair (--share). The seed chooses the first; its default is
 * the time, so that successive runs try different pairs.
 */
static void thin_pairs(void)
{
	size_t n = 0;

	for (size_t i = 0; i < npairs; i++)
		if ((i + crash_opt.seed) % crash_opt.share == 0)
			pairs[n++] = pairs[i];
	npairs = n;
}

/* --- reporting --- */

static const char *const words[] = {
	[CRASH_OUT_SURVIVED] = "survives", [CRASH_OUT_LOST] = "LOST",
	[CRASH_OUT_WRONG] = "WRONG",	   [CRASH_OUT_CAUGHT] = "caught",
	[CRASH_OUT_MISSED] = "MISSED",	   [CRASH_OUT_CUT] = "UNFINISHED",
};

static void print_cell(const struct verdict_cell *cell,
		       const struct crash_shared *s)
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

static void print_bad(const struct crash_pair *p, const struct crash_search *r)
{
	printf("not ok: %s, %s: %s: %s\n", p->cell->name, p->method->name,
	       words[r->outcome], r->why);
	if (r->outcome == CRASH_OUT_LOST || r->outcome == CRASH_OUT_WRONG)
		printf("  again: crash_matrix --tsv %s --cell %s --method %s "
		       "--variant %u --program %d --seed %llu --replay "
		       "'%s'%s%s%s\n",
		       crash_opt.tsv, p->cell->name, p->method->name,
		       r->variant, (int)r->program, (unsigned long long)r->seed,
		       r->path, crash_opt.power ? " --power" : "",
		       crash_opt.conn ? " --connected" : "",
		       crash_opt.weaken ? " --weaken" : "");
}

static int report_totals(const struct crash_shared *s, double seconds)
{
	uint64_t runs = 0, steps = 0, acked = 0, long_runs = 0, weak = 0;
	size_t valid = 0, forbidden = 0, lost = 0, caught = 0, bad = 0;
	size_t built_cells = 0;
	json_t *j;

	if (crash_opt.quick)
		printf("a quick look: what survives was not searched to the "
		       "end\n");
	for (size_t i = 0; i < verdicts.n; i++) {
		bool any = false;

		for (size_t k = 0; k < npairs; k++)
			any |= pairs[k].cell == &verdicts.cells[i];
		built_cells += any;
		if (!crash_opt.cell ||
		    !strcmp(crash_opt.cell, verdicts.cells[i].name))
			print_cell(&verdicts.cells[i], s);
	}
	for (size_t i = 0; i < npairs; i++) {
		const struct crash_search *r = &s->results[i];

		runs += r->all.runs;
		long_runs += r->random.runs;
		steps += r->all.steps + r->random.steps;
		acked += r->all.acked + r->random.acked;
		weak += r->all.acked_weak + r->random.acked_weak;
		valid += !pairs[i].forbidden;
		forbidden += pairs[i].forbidden;
		caught += r->outcome == CRASH_OUT_CAUGHT;
		lost += r->outcome == CRASH_OUT_LOST;
		if (r->outcome != CRASH_OUT_SURVIVED &&
		    r->outcome != CRASH_OUT_CAUGHT) {
			print_bad(&pairs[i], r);
			bad++;
		} else if (crash_opt.verbose) {
			printf("# %6.1f s %8llu runs  %s %s: %s\n", r->seconds,
			       (unsigned long long)r->all.runs,
			       pairs[i].cell->name, pairs[i].method->name,
			       r->outcome == CRASH_OUT_CAUGHT ? r->why : "");
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
	       (unsigned long long)crash_opt.seed, seconds);
	if (crash_opt.weaken)
		printf("%llu commits acknowledged behind a weakening; of the "
		       "valid pairs %zu weaken, in %zu the program flushes by "
		       "itself, in %zu the provider refuses the method, %zu "
		       "are not run over these connections\n",
		       (unsigned long long)weak, excused[CRASH_WEAKENS],
		       excused[CRASH_IN_PLACE], excused[CRASH_NOT_USED],
		       excused[CRASH_NO_VARIANT]);
	bad += excused[CRASH_NO_EVENT];
	if (s->nearly)
		printf("%zu searches with remote CQ data ended early, after "
		       "%llu runs each\n",
		       (size_t)s->nearly, CRASH_RUNS_DATA);
	if (!crash_opt.json)
		return bad ? 1 : 0;
	j = json_pack(
		"{s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I "
		"s:I s:b}",
		"scenarios", (json_int_t)verdicts.n, "built",
		(json_int_t)built_cells, "pairs_valid", (json_int_t)valid,
		"pairs_forbidden", (json_int_t)forbidden, "lost",
		(json_int_t)lost, "wrong_methods_tried", (json_int_t)forbidden,
		"wrong_methods_caught", (json_int_t)caught, "steps_explored",
		(json_int_t)steps, "seed", (json_int_t)crash_opt.seed,
		"runs_exhaustive", (json_int_t)runs, "runs_random",
		(json_int_t)long_runs, "pairs_valid_not_built",
		(json_int_t)not_built_valid, "pairs_forbidden_not_built",
		(json_int_t)not_built_forbidden, "searches_ended_early",
		(json_int_t)s->nearly, "acknowledged_weak", (json_int_t)weak,
		"exhaustive", !crash_opt.quick);
	if (!j || json_dump_file(j, crash_opt.json, JSON_INDENT(2))) {
		fprintf(stderr, "%s: not written\n", crash_opt.json);
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

	if (npairs != 1 || crash_opt.variant < 0 ||
	    !crash_pair_variant(&pairs[0], (unsigned int)crash_opt.variant,
				&cell)) {
		fprintf(stderr, "--replay wants one --cell, --method, "
				"--variant and --program\n");
		return 2;
	}
	if (crash_opt.program >= 0) {
		if ((size_t)crash_opt.program >=
		    crash_pair_programs(&pairs[0], &cell, &list))
			return 2;
		prog = &list[crash_opt.program];
	} else {
		crash_pair_random(&pairs[0], &cell, crash_opt.seed, &random);
		cell.truth.relaxed = cell.weak.relaxed = !cell.alone;
		prog = &random;
	}
	if (choices_parse(&c, crash_opt.replay)) {
		fprintf(stderr, "--replay '%s' is no path\n", crash_opt.replay);
		return 2;
	}
	crash_setup(timeout_ms());
	how = crash_run(&cell, prog, &c,
			crash_opt.verbose ? CRASH_MESSAGES : CRASH_STEPS, &st,
			why);
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
		crash_opt.tsv = arg;
		break;
	case 'f':
		crash_opt.forbidden = arg;
		break;
	case 'j':
		crash_opt.json = arg;
		break;
	case 's':
		crash_opt.seed = strtoull(arg, NULL, 0);
		break;
	case 'r':
		crash_opt.random = strtoull(arg, NULL, 0);
		break;
	case 'p':
		crash_opt.jobs = (unsigned int)atoi(arg);
		if (!crash_opt.jobs || crash_opt.jobs > 64)
			argp_error(state, "--jobs is 1 to 64");
		break;
	case 'c':
		crash_opt.cell = arg;
		break;
	case 'm':
		crash_opt.method = arg;
		break;
	case 'a':
		crash_opt.all = true;
		break;
	case 'q':
		crash_opt.quick = true;
		crash_opt.max = RUNS_QUICK;
		break;
	case 'w':
		crash_opt.power = true;
		break;
	case 'C':
		crash_opt.conn = true;
		break;
	case 'S':
		crash_opt.share = (unsigned int)atoi(arg);
		if (!crash_opt.share)
			argp_error(state, "--share is at least 1");
		break;
	case 'W':
		crash_opt.weaken = true;
		break;
	case 'M':
		crash_opt.max = crash_opt.given = strtoull(arg, NULL, 0);
		break;
	case 'V':
		crash_opt.variant = atoi(arg);
		break;
	case 'P':
		crash_opt.program = atoi(arg);
		break;
	case 'x':
		crash_opt.replay = arg;
		break;
	case 'v':
		crash_opt.verbose = true;
		break;
	case ARGP_KEY_END:
		if (!crash_opt.tsv)
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
	struct crash_shared *s;
	size_t size;
	int ret;

	clock_gettime(CLOCK_REALTIME, &a);
	crash_opt.seed = (uint64_t)a.tv_sec;
	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	if (verdicts_read(crash_opt.tsv, &verdicts))
		return 99;
	collect_workers();
	if (!is_any_selected())
		return 2;
	thin_pairs();
	if (crash_opt.replay)
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
