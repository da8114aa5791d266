// SPDX-License-Identifier: BSD-2-Clause
/*
 * Runs the same random programs on the bare base and on ofi_rpmem over it, and
 * compares what the programs see.
 */
#include <argp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "functional/transparent_side.h"

#define LONG_PROGRAMS 10000
#define MAX_SUSPECTS  20
/* How often a program whose results differ runs again, alone, on each side. */
#define AGAIN_BASE    4
#define AGAIN_LAYERED 2

struct options {
	const char *base;
	uint64_t seed, from;
	long programs;
	bool control, verbose, stop;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 'b':
		o->base = arg;
		return 0;
	case 'n':
		o->programs = strtol(arg, NULL, 0);
		return 0;
	case 's':
		o->seed = strtoull(arg, NULL, 0);
		return 0;
	case 'f':
		o->from = strtoull(arg, NULL, 0);
		return 0;
	case 'l':
		o->programs = LONG_PROGRAMS;
		return 0;
	case 'c':
		o->control = true;
		return 0;
	case 'p':
		tp_deadline_ms = atoi(arg);
		return 0;
	case 'v':
		o->verbose = true;
		return 0;
	case 'x':
		o->stop = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option argp_options[] = {
	{"base", 'b', "NAME", 0, "provider underneath (tcp)", 0},
	{"programs", 'n', "N", 0, "how many programs (1000)", 0},
	{"seed", 's', "SEED", 0, "repeat a run (the time)", 0},
	{"from", 'f', "N", 0, "begin with this program (0)", 0},
	{"long", 'l', NULL, 0, "10000 programs", 0},
	{"control", 'c', NULL, 0, "the bare base on both sides", 0},
	{"deadline", 'p', "MS", 0, "what takes longer never happens (30000)",
	 0},
	{"verbose", 'v', NULL, 0, "print what each program saw", 0},
	{"stop", 'x', NULL, 0, "stop at the first difference", 0},
	{0},
};

/* A program whose results on base and provider differ. */
struct suspect {
	uint64_t program;
	struct tp_result base, layered;
};

struct tally {
	long programs, steps;
	long left_out; /* not run: an earlier program of the stage hung */
	long suspects, differ, unsteady;
	struct suspect suspect[MAX_SUSPECTS];
	bool bad_offer, bad_end;
};

/* --- comparison of the results --- */

static void free_result(struct tp_result *r)
{
	free(r->text);
	r->text = NULL;
}

static bool same_result(const struct tp_result *a, const struct tp_result *b)
{
	return a->text && b->text ? !strcmp(a->text, b->text)
				  : !a->text && !b->text;
}

/*
 * Print the lines of a that are not in b. Both are sorted by operation. Returns
 * whether there were any.
 */
static bool print_missing(const char *who, const char *a, const char *b)
{
	bool any = false;

	for (size_t n; *a; a += n) {
		const char *at = b;

		n = strcspn(a, "\n") + 1;
		while ((at = strstr(at, "\n")) && strncmp(at + 1, a, n))
			at++;
		if (at || !strncmp(b, a, n))
			continue;
		printf("# %s %.*s", who, (int)n, a);
		any = true;
	}
	return any;
}

/* Print the first line where a and b differ in order or number. */
static void print_first(const char *a, const char *b)
{
	for (size_t n; *a && *b; a += n, b += n) {
		n = strcspn(a, "\n") + 1;
		if (strncmp(a, b, n))
			break;
	}
	printf("# in another order or number: base %.*s, rpmem %.*s\n",
	       (int)strcspn(a, "\n"), a, (int)strcspn(b, "\n"), b);
}

static void print_difference(const struct tp_result *a,
			     const struct tp_result *b)
{
	bool any;

	if (!a->text || !b->text) {
		printf("# %s died\n", a->text ? "rpmem" : "base ");
		return;
	}
	any = print_missing("base ", a->text, b->text);
	if (!print_missing("rpmem", b->text, a->text) && !any)
		print_first(a->text, b->text);
}

static void print_plan(const struct tp_programs *of, uint64_t n,
		       const struct tp_features *f)
{
	struct tp_plan p;
	char say[200];

	tp_run_plan(of, &p, n, f);
	for (size_t i = 0; i < p.n; i++) {
		tp_op_say(&p.ops[i], say, sizeof(say));
		printf("#   %zu: %s\n", i, say);
	}
	tp_plan_free(&p);
}

static void keep_common(struct tp_features *f, const struct tp_features *g)
{
	f->atomic &= g->atomic;
	f->counters &= g->counters;
	f->rma_event &= g->rma_event;
	f->wait &= g->wait;
	f->direct &= g->direct;
	f->source &= g->source;
	f->multi &= g->multi;
	f->inject = f->inject < g->inject ? f->inject : g->inject;
	if (g->iov_limit < f->iov_limit)
		f->iov_limit = g->iov_limit;
	if (g->rma_iov_limit < f->rma_iov_limit)
		f->rma_iov_limit = g->rma_iov_limit;
}

static void start_both(const struct options *opt, struct tp_runner *r,
		       const struct tp_programs *of, struct tp_features *f,
		       struct tally *t)
{
	struct tp_result a, b;
	struct tp_features g;

	tp_side_start(&r[0], of, false);
	tp_side_start(&r[1], of, !opt->control);
	if (!tp_side_offer(&r[0], f, &a) || !tp_side_offer(&r[1], &g, &b)) {
		printf("Bail out! a side did not start\n");
		exit(1);
	}
	if (!t->programs) {
		t->bad_offer = tp_offers_differ(a.text, b.text);
		printf("%sok 1 - the same is offered, but for what is "
		       "documented\n",
		       t->bad_offer ? "not " : "");
	}
	free_result(&a);
	free_result(&b);
	keep_common(f, &g);
	tp_side_go(&r[0], f);
	tp_side_go(&r[1], f);
}

static long count_steps(const struct tp_programs *of, uint64_t n,
			const struct tp_features *f)
{
	struct tp_plan p;
	long steps;

	tp_run_plan(of, &p, n, f);
	steps = (long)p.n;
	tp_plan_free(&p);
	return steps;
}

static void report_suspect(struct tally *t, uint64_t n, struct tp_result *a,
			   struct tp_result *b)
{
	printf("# program %llu: %s\n", (unsigned long long)n,
	       !a->text || !b->text   ? "a side died"
	       : a->stuck && b->stuck ? "both sides are stuck"
	       : a->stuck	      ? "the base is stuck"
	       : b->stuck	      ? "ours is stuck"
				      : "a difference");
	fflush(stdout);
	if (t->suspects < MAX_SUSPECTS) {
		t->suspect[t->suspects] = (struct suspect){n, *a, *b};
		a->text = b->text = NULL;
	}
	t->suspects++;
}

/*
 * Run programs from of->from on, until one hangs. Returns the number of the
 * next one.
 */
static uint64_t run_some(const struct options *opt,
			 const struct tp_programs *of, struct tp_features *f,
			 struct tally *t)
{
	struct tp_runner r[2];
	struct tp_result a, b;
	uint64_t i = of->from;
	bool stuck = false, stop = false;

	start_both(opt, r, of, f, t);
	for (; i < of->end && !stuck && !stop; i++) {
		tp_side_next(&r[0], &a);
		tp_side_next(&r[1], &b);
		t->programs++;
		t->steps += count_steps(of, i, f);
		if (opt->verbose)
			printf("%s----\n%s", a.text, b.text);
		stuck = a.stuck || b.stuck;
		if (stuck || !same_result(&a, &b)) {
			report_suspect(t, i, &a, &b);
			stop = opt->stop || t->suspects > MAX_SUSPECTS;
		}
		free_result(&a);
		free_result(&b);
	}
	for (int k = 0; k < 2; k++) {
		int status = tp_side_stop(&r[k], stuck || stop);

		if (status) {
			printf("# a side ended with status %#x\n",
			       (unsigned int)status);
			t->bad_end = true;
		}
	}
	if (stop)
		return of->end;
	/*
	 * After a hang skip the other programs that share its endpoints, whose
	 * state now differs on the two sides.
	 */
	for (; stuck && i < of->end && i % TP_PER_SETUP; i++)
		t->left_out++;
	return i;
}

/* --- is it the provider, or does the base itself vary? --- */

static void run_alone(const struct options *opt, uint64_t n,
		      const struct tp_features *f, bool layered,
		      struct tp_result *result)
{
	struct tp_programs of = {.base = opt->base,
				 .seed = opt->seed,
				 .from = n - n % TP_PER_SETUP,
				 .end = n + 1};
	struct tp_features unused;
	struct tp_runner r;

	tp_side_start(&r, &of, layered);
	if (!tp_side_offer(&r, &unused, result)) {
		tp_side_stop(&r, true);
		return;
	}
	tp_side_go(&r, f);
	for (uint64_t i = of.from; i < of.end; i++) {
		free_result(result);
		tp_side_next(&r, result);
		if (result->stuck)
			break;
	}
	tp_side_stop(&r, true);
}

static bool is_among(const struct tp_result *r, const struct tp_result *set,
		     int n)
{
	for (int i = 0; i < n; i++)
		if (same_result(r, &set[i]))
			return true;
	return false;
}

/*
 * Is the difference the base's own? It is if the results on the base vary, and
 * those on the provider are among them. A program that never ends on the base
 * counts as a difference.
 */
static bool is_the_base(const struct options *opt, struct suspect *s,
			const struct tp_features *f)
{
	struct tp_result base[1 + AGAIN_BASE], ours[1 + AGAIN_LAYERED];
	int steady = 0, ended = 0, among = 0;

	base[0] = s->base;
	ours[0] = s->layered;
	for (int i = 1; i <= AGAIN_BASE; i++)
		run_alone(opt, s->program, f, false, &base[i]);
	for (int i = 1; i <= AGAIN_LAYERED; i++)
		run_alone(opt, s->program, f, !opt->control, &ours[i]);
	for (int i = 0; i <= AGAIN_BASE; i++) {
		steady += same_result(&base[0], &base[i]);
		ended += !base[i].stuck;
	}
	for (int i = 0; i <= AGAIN_LAYERED; i++)
		among += is_among(&ours[i], base, 1 + AGAIN_BASE);
	printf("# of %d runs of the base %d were like the first and %d came "
	       "to an end; %d of %d of ours were like one of them\n",
	       1 + AGAIN_BASE, steady, ended, among, 1 + AGAIN_LAYERED);
	for (int i = 1; i <= AGAIN_BASE; i++)
		free_result(&base[i]);
	for (int i = 1; i <= AGAIN_LAYERED; i++)
		free_result(&ours[i]);
	return steady <= AGAIN_BASE && ended && among == 1 + AGAIN_LAYERED;
}

static void compare_runs(const struct options *opt, const struct tp_features *f,
			 struct tally *t)
{
	struct tp_programs of = {.base = opt->base, .seed = opt->seed};

	for (long k = 0; k < t->suspects && k < MAX_SUSPECTS; k++) {
		struct suspect *s = &t->suspect[k];

		printf("# program %llu: (again: --base %s --seed %llu --from "
		       "%llu --programs 1)\n",
		       (unsigned long long)s->program, opt->base,
		       (unsigned long long)opt->seed,
		       (unsigned long long)s->program);
		print_difference(&s->base, &s->layered);
		if (!opt->stop && is_the_base(opt, s, f)) {
			printf("# the base is not the same twice\n");
			t->unsteady++;
		} else if (!t->differ++) {
			print_plan(&of, s->program, f);
		}
		free_result(&s->base);
		free_result(&s->layered);
	}
	if (t->suspects > MAX_SUSPECTS) {
		printf("# too many: the rest was not looked at\n");
		t->differ += t->suspects - MAX_SUSPECTS;
	}
}

int main(int argc, char **argv)
{
	static const struct argp argp = {argp_options, parse, NULL, NULL,
					 NULL,	       NULL,  NULL};
	struct options opt = {
		.base = "tcp", .seed = (uint64_t)time(NULL), .programs = 1000};
	struct tp_programs of;
	static struct tally t;
	struct tp_features f;
	uint64_t begin = tp_now_ms();
	bool good;

	argp_parse(&argp, argc, argv, 0, NULL, &opt);
	/*
	 * TP_PER_SETUP programs share endpoints and memory: to repeat one of
	 * them, the earlier ones must run, too.
	 */
	opt.programs += (long)(opt.from % TP_PER_SETUP);
	opt.from -= opt.from % TP_PER_SETUP;
	setenv("FI_OFI_RPMEM_EMULATE", "1", 1);
	setenv("FI_OFI_RPMEM_CLASS", "none", 1);
	/*
	 * So long that a slow target on a busy machine is not taken for dead.
	 */
	setenv("FI_OFI_RPMEM_TIMEOUT", "60000", 0);
	/*
	 * Small buffers of ofi_rxm: clearing large ones would take much of the
	 * time.
	 */
	setenv("FI_OFI_RXM_BUFFER_SIZE", "2048", 0);
	/* ofi_rxm polls for connection events every 100 ms instead of 10. */
	setenv("FI_OFI_RXM_CM_PROGRESS_INTERVAL", "100", 0);
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("# seed %llu\n", (unsigned long long)opt.seed);
	of = (struct tp_programs){.base = opt.base,
				  .seed = opt.seed,
				  .from = opt.from,
				  .end = opt.from + (uint64_t)opt.programs};
	while (of.from < of.end)
		of.from = run_some(&opt, &of, &f, &t);
	compare_runs(&opt, &f, &t);
	/*
	 * If the base's own results vary often, the comparison proves nothing.
	 */
	good = !t.differ && !t.bad_end && t.unsteady * 100 <= t.programs;
	printf("%sok 2 - %ld programs, %ld steps on %s: %ld differ, %ld where "
	       "the base differs from itself, %ld not run, %.1f s\n",
	       good ? "" : "not ", t.programs, t.steps, opt.base, t.differ,
	       t.unsteady, t.left_out, (double)(tp_now_ms() - begin) / 1000);
	printf("1..2\n");
	return !good || t.bad_offer;
}
