// SPDX-License-Identifier: BSD-2-Clause
/* The same random programs on a bare base and over it, compared. */
#include <argp.h>
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "functional/invisible.h"

#define LONG_PROGRAMS 10000
#define BATCH	      25 /* programs that share domains */
#define STAGE	      5	 /* and endpoints; divides BATCH */

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
	{"verbose", 'v', NULL, 0, "print what each program saw", 0},
	{"stop", 'x', NULL, 0, "stop at the first difference", 0},
	{0},
};

/* --- one provider, in a process of its own --- */

struct runner {
	pid_t pid;
	int in, out; /* of the parent */
};

static void put(int fd, const void *buf, size_t len)
{
	const char *p = buf;
	ssize_t n;

	while (len) {
		n = write(fd, p, len);
		if (n <= 0)
			_exit(4);
		p += n;
		len -= (size_t)n;
	}
}

static bool take(int fd, void *buf, size_t len)
{
	char *p = buf;
	ssize_t n;

	while (len) {
		n = read(fd, p, len);
		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

static void put_text(int fd, struct inv_trace *t)
{
	char *text = inv_trace_text(t);
	uint32_t len = (uint32_t)strlen(text) + 1;

	put(fd, &len, sizeof(len));
	put(fd, text, len);
	free(text);
	inv_trace_clear(t);
}

static char *take_text(int fd)
{
	uint32_t len;
	char *text;

	if (!take(fd, &len, sizeof(len)))
		return NULL;
	text = malloc(len);
	if (text && !take(fd, text, len)) {
		free(text);
		text = NULL;
	}
	return text;
}

static uint64_t mix(uint64_t seed, uint64_t n)
{
	struct inv_rng r = {seed ^ n * 0xd1342543de82ef95ull};

	return inv_next(&r);
}

static void make_plan(const struct options *opt, struct inv_plan *p, uint64_t i,
		      const struct inv_features *f)
{
	inv_plan_make(p, mix(opt->seed, i), mix(~opt->seed, i / STAGE),
		      i % STAGE == STAGE - 1, f);
}

static void run_all(const struct options *opt, const char *prov, bool layered,
		    int in, int out)
{
	struct inv_trace *t = inv_trace_new();
	struct inv_features f;
	struct inv_plan p;
	struct inv_world w;
	uint64_t batch = UINT64_MAX, end = opt->from + (uint64_t)opt->programs;

	/* Buffers of endpoints come and go: their pages need not. */
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	inv_offer(prov, &f, t);
	put(out, &f, sizeof(f));
	put_text(out, t);
	if (!take(in, &f, sizeof(f)))
		_exit(0);
	for (uint64_t i = opt->from; i < end; i++) {
		alarm(60); /* a hang is a difference, not a wait */
		if (i / BATCH != batch) {
			if (batch != UINT64_MAX)
				inv_world_close(&w);
			batch = i / BATCH;
			memset(&w, 0, sizeof(w));
			w.f = &f;
			inv_world_open(&w, prov, layered,
				       mix(opt->seed, ~batch));
		}
		make_plan(opt, &p, i, &f);
		inv_run(&w, &p, t, i % STAGE == STAGE - 1 || i + 1 == end);
		put_text(out, t);
		inv_plan_free(&p);
	}
	if (batch != UINT64_MAX)
		inv_world_close(&w);
	inv_trace_free(t);
}

static void start(struct runner *r, const struct options *opt, bool layered)
{
	int down[2], up[2];
	char prov[64];

	snprintf(prov, sizeof(prov), "%s%s", opt->base,
		 layered ? ";ofi_rpmem" : "");
	if (pipe(down) || pipe(up))
		INV_MUST(-errno);
	fflush(stdout);
	r->pid = fork();
	if (r->pid < 0)
		INV_MUST(-errno);
	if (!r->pid) {
		close(down[1]);
		close(up[0]);
		run_all(opt, prov, layered, down[0], up[1]);
		exit(0); /* not _exit: leaks are looked for here */
	}
	close(down[0]);
	close(up[1]);
	r->in = up[0];
	r->out = down[1];
}

/* --- comparing --- */

/* Lines of a that b has not; both are sorted by operation. */
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

static void print_difference(const char *a, const char *b)
{
	bool any = print_missing("base ", a, b);

	if (!print_missing("rpmem", b, a) && !any)
		printf("# the same lines, in another order or number\n");
}

static void print_plan(const struct options *opt, uint64_t n,
		       const struct inv_features *f)
{
	struct inv_plan p;
	char say[200];

	make_plan(opt, &p, n, f);
	for (size_t i = 0; i < p.n; i++) {
		inv_op_say(&p.ops[i], say, sizeof(say));
		printf("#   %zu: %s\n", i, say);
	}
	inv_plan_free(&p);
}

static void common(struct inv_features *f, const struct inv_features *g)
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

static bool agree_on_features(struct runner *r, struct inv_features *f)
{
	struct inv_features g;
	char *a, *b;
	bool same;

	if (!take(r[0].in, f, sizeof(*f)) || !take(r[1].in, &g, sizeof(g)))
		return false;
	a = take_text(r[0].in);
	b = take_text(r[1].in);
	if (!a || !b)
		return false;
	same = !strcmp(a, b);
	printf("%sok 1 - the same is offered\n", same ? "" : "not ");
	if (!same)
		print_difference(a, b);
	free(a);
	free(b);
	common(f, &g);
	for (int i = 0; i < 2; i++)
		put(r[i].out, f, sizeof(*f));
	return true;
}

static long compare(const struct options *opt, struct runner *r,
		    const struct inv_features *f)
{
	long differ = 0;

	for (long n = 0; n < opt->programs; n++) {
		uint64_t i = opt->from + (uint64_t)n;
		char *a = take_text(r[0].in), *b = take_text(r[1].in);

		if (!a || !b) {
			printf("# program %llu: %s died or hung\n",
			       (unsigned long long)i,
			       a ? "the layered side" : "the base");
			print_plan(opt, i, f);
			free(a);
			free(b);
			return differ + 1;
		}
		if (opt->verbose)
			printf("%s----\n%s", a, b);
		if (strcmp(a, b) && ++differ <= 10) {
			printf("# program %llu: (again: --base %s --seed %llu "
			       "--from %llu --programs 1)\n",
			       (unsigned long long)i, opt->base,
			       (unsigned long long)opt->seed,
			       (unsigned long long)i);
			print_difference(a, b);
			if (differ == 1)
				print_plan(opt, i, f);
		}
		free(a);
		free(b);
		if (differ && opt->stop)
			break;
	}
	return differ;
}

static bool finish(struct runner *r, bool stopped)
{
	int status;

	close(r->in);
	close(r->out);
	if (stopped)
		kill(r->pid, SIGKILL);
	if (waitpid(r->pid, &status, 0) != r->pid)
		return false;
	if (status && !stopped)
		printf("# a side ended with status %#x\n",
		       (unsigned int)status);
	return stopped || !status;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {argp_options, parse, NULL, NULL,
					 NULL,	       NULL,  NULL};
	struct options opt = {
		.base = "tcp", .seed = (uint64_t)time(NULL), .programs = 1000};
	struct inv_features f;
	struct runner r[2];
	uint64_t begin = inv_now_ms();
	bool ended = true;
	long differ;

	argp_parse(&argp, argc, argv, 0, NULL, &opt);
	/* Programs go on where those before them on the stage ended. */
	opt.programs += (long)(opt.from % STAGE);
	opt.from -= opt.from % STAGE;
	setenv("FI_OFI_RPMEM_EMULATE", "1", 1);
	setenv("FI_OFI_RPMEM_CLASS", "none", 1);
	/* Much of the time would go into clearing large buffers. */
	setenv("FI_OFI_RXM_BUFFER_SIZE", "2048", 0);
	signal(SIGPIPE, SIG_IGN);
	printf("# seed %llu\n", (unsigned long long)opt.seed);
	start(&r[0], &opt, false);
	start(&r[1], &opt, !opt.control);
	if (!agree_on_features(r, &f)) {
		printf("Bail out! a side did not start\n");
		return 1;
	}
	differ = compare(&opt, r, &f);
	for (int i = 0; i < 2; i++)
		ended = finish(&r[i], differ && opt.stop) && ended;
	printf("%sok 2 - %ld programs on %s, %ld of them differ, %.1f s\n",
	       differ || !ended ? "not " : "", opt.programs, opt.base, differ,
	       (double)(inv_now_ms() - begin) / 1000);
	printf("1..2\n");
	return differ || !ended;
}
