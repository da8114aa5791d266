// SPDX-License-Identifier: BSD-2-Clause
/* fi_rpmem_bench suite: the figures that the provider is held to. */
#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/bench.h"
#include "util/exits.h"

/* Of one minute, before the first case: a busy machine measures others. */
static double load_before;

static const struct bench_want groups[][BENCH_COMPANY] = {
	{{"write_commit_flag", 64, 1},
	 {"base_write", 64, 1},
	 {"base_pingpong", 64, 1},
	 {"pingpong", 64, 1},
	 {"handwritten", 64, 1},
	 {"handwritten_inline", 64, 1},
	 {"msg_commit", 64, 1},
	 {"raw_echo", 64, 1}},
	{{"rate", 64, 1}, {"base_rate", 64, 1}, {"rate_pmem", 64, 1}},
	{{"write_commit_flag", 65536, 1},
	 {"base_write", 65536, 1},
	 {"handwritten", 65536, 1},
	 {"msg_commit", 65536, 1},
	 {"raw_echo", 65536, 1}},
	{{"writes_commit", 64, 64}, {"base_writes", 64, 64}},
	{{"agent_flush", 4096, 1024}, {"local_flush", 4096, 1024}},
	{{"initiators", 64, 1},
	 {"initiators", 64, 2},
	 {"initiators", 64, 4},
	 {"initiators", 64, 8},
	 {"initiators", 64, 16},
	 {"base_initiators", 64, 1},
	 {"base_initiators", 64, 2},
	 {"base_initiators", 64, 4},
	 {"base_initiators", 64, 8},
	 {"base_initiators", 64, 16}},
	{{"disk_batch", 4096, 32},
	 {"disk_each", 4096, 32},
	 {"disk_alone_batch", 4096, 32},
	 {"disk_alone_each", 4096, 32}},
/* For the picture. */
#define BY_SIZE(size)                                                          \
	{                                                                      \
		{"write_commit_flag", size, 1}, {"base_write", size, 1},       \
			{"handwritten", size, 1}, {"msg_commit", size, 1},     \
	}
	BY_SIZE(8),
	BY_SIZE(512),
	BY_SIZE(4096),
	BY_SIZE(16384),
	BY_SIZE(262144),
	BY_SIZE(1048576),
	BY_SIZE(4194304),
};

static const struct bench_plan *plan;
static struct bench_line *lines;
static size_t nlines;

static int median(const char *name, uint64_t size, uint64_t ranges, double *ns,
		  char *err)
{
	uint64_t v;

	for (size_t i = 0; i < nlines; i++) {
		struct bench_line *l = &lines[i];

		if (strcmp(l->what->name, name) || l->size != size ||
		    l->ranges != ranges)
			continue;
		if (rp_samples_rank(&l->samples, 500, &v) || !v || l->dead)
			return rp_err(err, -ENODATA, "%s: %s", name,
				      l->note[0] ? l->note : "no samples");
		*ns = (double)v;
		return 0;
	}
	return rp_err(err, -ENODATA, "%s: not measured", name);
}

int bench_suite_ratio(const struct bench_ratio *r, double *value, char *err)
{
	double up = 0, low = 1;
	int ret = median(r->upper, r->size, r->ranges, &up, err);

	if (!ret)
		ret = median(r->lower, r->size, r->ranges, &low, err);
	if (!ret)
		*value = up / low;
	return ret;
}

static int scaling(struct bench *b, const struct bench_metric *m, double *value,
		   char *err)
{
	double one, many, base_one, base_many;
	int ret = median("initiators", 64, 1, &one, err);

	if (!ret)
		ret = median("initiators", 64, 16, &many, err);
	if (!ret)
		ret = median("base_initiators", 64, 1, &base_one, err);
	if (!ret)
		ret = median("base_initiators", 64, 16, &base_many, err);
	if (!ret)
		*value = one / many / (base_one / base_many);
	return ret;
}

/* Whoever asks waits for one round trip at least: with that, and no more. */
static int flush_bound(struct bench *b, const struct bench_metric *m,
		       double *value, char *err)
{
	double flush, trip;
	int ret = median("local_flush", 4096, 1024, &flush, err);

	if (!ret)
		ret = median("base_pingpong", 64, 1, &trip, err);
	if (!ret)
		*value = flush / (flush + trip);
	return ret;
}

/* These three run other processes. */
static struct bench_figure idle, instructions, instructions_pmem;

int bench_figure_value(const struct bench_figure *f, double *value, char *err)
{
	if (!f->known)
		return rp_err(err, -ENODATA, "%s", f->why);
	*value = f->value;
	return 0;
}

static int idle_cpu(struct bench *b, const struct bench_metric *m,
		    double *value, char *err)
{
	return bench_figure_value(&idle, value, err);
}

static int added(struct bench *b, const struct bench_metric *m, double *value,
		 char *err)
{
	return bench_figure_value(&instructions, value, err);
}

/* Reads that came too early: their instructions are among those above. */
static uint64_t too_early[2];

static int early_reads(struct bench *b, const struct bench_metric *m,
		       double *value, char *err)
{
	*value = (double)(too_early[0] + too_early[1]);
	return 0;
}

static int added_pmem(struct bench *b, const struct bench_metric *m,
		      double *value, char *err)
{
	return bench_figure_value(&instructions_pmem, value, err);
}

static const struct bench_metric metrics[] = {
	{"passthrough_latency_ratio",
	 1.02,
	 false,
	 {"pingpong", "base_pingpong", 64, 1},
	 NULL},
	{"passthrough_rate_ratio",
	 0.98,
	 true,
	 {"base_rate", "rate", 64, 1},
	 NULL},
	{"passthrough_instructions_added", 60, false, {0}, added},
	{"durable_64B_vs_round_trip",
	 1.05,
	 false,
	 {"write_commit_flag", "base_pingpong", 64, 1},
	 NULL},
	{"durable_64B_vs_delivery",
	 1.40,
	 false,
	 {"write_commit_flag", "base_write", 64, 1},
	 NULL},
	{"durable_64B_vs_handwritten",
	 0.70,
	 false,
	 {"write_commit_flag", "handwritten", 64, 1},
	 NULL},
	{"durable_64KiB_vs_delivery",
	 1.30,
	 false,
	 {"write_commit_flag", "base_write", 65536, 1},
	 NULL},
	{"commit_64x64B_vs_writes",
	 0.90,
	 false,
	 {"writes_commit", "base_writes", 64, 64},
	 NULL},
	{"agent_flush_efficiency",
	 0.95,
	 true,
	 {"local_flush", "agent_flush", 4096, 1024},
	 NULL},
	{"initiators_16_scaling", 0.95, true, {0}, scaling},
	{"msync_batching",
	 0.15,
	 false,
	 {"disk_batch", "disk_each", 4096, 32},
	 NULL},
	{"idle_agent_cpu", 0.002, false, {0}, idle_cpu},
};

/* No bars, and beside the metrics: what puts them in proportion. */
static const struct bench_metric also[] = {
	{"rate_ratio_of_persistent_key",
	 0,
	 false,
	 {"base_rate", "rate_pmem", 64, 1},
	 NULL},
	{"instructions_added_of_persistent_key", 0, false, {0}, added_pmem},
	{"callgrind_reads_too_early", 0, false, {0}, early_reads},
	{"durable_64B_vs_handwritten_inline",
	 0,
	 false,
	 {"write_commit_flag", "handwritten_inline", 64, 1},
	 NULL},
	{"durable_64B_vs_msg_commit",
	 0,
	 false,
	 {"write_commit_flag", "msg_commit", 64, 1},
	 NULL},
	{"durable_64KiB_vs_handwritten",
	 0,
	 false,
	 {"write_commit_flag", "handwritten", 65536, 1},
	 NULL},
	{"agent_flush_bound_of_one_round_trip", 0, true, {0}, flush_bound},
	{"msync_batching_of_the_disk_alone",
	 0,
	 false,
	 {"disk_alone_batch", "disk_alone_each", 4096, 32},
	 NULL},
	{"round_trip_vs_delivery_of_base",
	 0,
	 false,
	 {"base_pingpong", "base_write", 64, 1},
	 NULL},
};

static void before(struct bench *b)
{
	idle.known = !bench_idle_share(b, &idle.value, idle.why);
	instructions.known = !bench_instructions(
		b, false, &instructions.value, &too_early[0], instructions.why);
	instructions_pmem.known =
		!bench_instructions(b, true, &instructions_pmem.value,
				    &too_early[1], instructions_pmem.why);
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
static const struct bench_plan whole = {
	.groups = groups,
	.ngroups = COUNT(groups),
	.metrics = metrics,
	.nmetrics = COUNT(metrics),
	.also = also,
	.nalso = COUNT(also),
	.before = before,
};
_Static_assert(COUNT(metrics) <= BENCH_FIGURES && COUNT(also) <= BENCH_FIGURES,
	       "there is room");

static void figure_of(struct bench *b, const struct bench_metric *m,
		      struct bench_figure *f)
{
	f->known = !(m->special ? m->special(b, m, &f->value, f->why)
				: bench_suite_ratio(&m->r, &f->value, f->why));
}

/* A base with reliable datagrams of its own has less to hide behind. */
static double bar_of(const struct bench *b, const struct bench_metric *m)
{
	if (!strcmp(m->name, "durable_64KiB_vs_delivery") &&
	    !strstr(bench_report_base(b), "ofi_rxm"))
		return 1.10;
	return m->bar;
}

static bool met(const struct bench *b, const struct bench_metric *m,
		const struct bench_figure *f)
{
	return m->least ? f->value >= bar_of(b, m) : f->value <= bar_of(b, m);
}

static void print(const struct bench *b, const struct bench_figure *f,
		  const struct bench_figure *more)
{
	bench_report_head(b);
	printf("load     %.2f before the first case%s\n", load_before,
	       load_before > 0.5 ? ": others were running, and these figures "
				   "are theirs too"
				 : "");
	printf("\n%-32s %11s %10s\n", "metric", "bar", "value");
	for (size_t i = 0; i < plan->nmetrics; i++) {
		printf("%-32s %s %8g ", plan->metrics[i].name,
		       plan->metrics[i].least ? ">=" : "<=",
		       bar_of(b, &plan->metrics[i]));
		if (f[i].known)
			printf("%10.4g  %s\n", f[i].value,
			       met(b, &plan->metrics[i], &f[i]) ? "met"
								: "not met");
		else
			printf("%10s  %s\n", "-", f[i].why);
	}
	printf("\nbeside them\n");
	for (size_t i = 0; i < plan->nalso; i++) {
		if (more[i].known)
			printf("  %-42s %10.4g\n", plan->also[i].name,
			       more[i].value);
		else
			printf("  %-42s %10s  %s\n", plan->also[i].name, "-",
			       more[i].why);
	}
	printf("\n%-38s %7s %8s %8s %9s %9s %9s %9s  us\n", "case", "size",
	       "times", "samples", "p50", "p90", "p99", "p99.9");
	for (size_t i = 0; i < nlines; i++) {
		static const unsigned int ranks[] = {500, 900, 990, 999};
		uint64_t ns;

		printf("%-38s %7llu %8llu %8zu", lines[i].what->title,
		       (unsigned long long)lines[i].size,
		       (unsigned long long)lines[i].ranges, lines[i].samples.n);
		for (int r = 0; r < 4; r++) {
			if (rp_samples_rank(&lines[i].samples, ranks[r], &ns))
				printf(" %9s", "-");
			else
				printf(" %9.1f", (double)ns / 1000);
		}
		printf("%s%s\n", lines[i].note[0] ? "  " : "", lines[i].note);
	}
}

static json_t *json(const struct bench *b, const struct bench_figure *f,
		    const struct bench_figure *more)
{
	json_t *values = json_object(), *bars = json_object();
	json_t *why = json_object(), *others = json_object();
	json_t *list = json_array();

	for (size_t i = 0; i < plan->nmetrics; i++) {
		const char *name = plan->metrics[i].name;

		json_object_set_new(values, name,
				    f[i].known ? json_real(f[i].value)
					       : json_null());
		json_object_set_new(
			bars, name,
			json_pack("{s:f, s:s, s:o}", "bar",
				  bar_of(b, &plan->metrics[i]), "at",
				  plan->metrics[i].least ? "least" : "most",
				  "met",
				  f[i].known ? json_boolean(
						       met(b, &plan->metrics[i],
							   &f[i]))
					     : json_null()));
		if (!f[i].known)
			json_object_set_new(why, name, json_string(f[i].why));
	}
	for (size_t i = 0; i < plan->nalso; i++) {
		json_object_set_new(others, plan->also[i].name,
				    more[i].known ? json_real(more[i].value)
						  : json_null());
		if (!more[i].known)
			json_object_set_new(why, plan->also[i].name,
					    json_string(more[i].why));
	}
	for (size_t i = 0; i < nlines; i++)
		json_array_append_new(list, bench_report_line(&lines[i]));
	return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:s, s:s, "
			 "s:I, s:f, s:s, s:o}",
			 "tool", "fi_rpmem_bench", "version", PACKAGE_VERSION,
			 "mode", "suite", "metrics", values, "why", why, "bars",
			 bars, "also", others, "machine",
			 bench_report_machine(), "base", bench_report_base(b),
			 "pool", b->pool.kind, "seed", (json_int_t)b->cfg->seed,
			 "load", load_before, "unit", "ns", "lines", list);
}

static int make_lines(char *err)
{
	lines = calloc(plan->ngroups * BENCH_COMPANY, sizeof(*lines));
	if (!lines)
		return rp_err(err, -ENOMEM, "out of memory");
	for (size_t g = 0; g < plan->ngroups; g++) {
		for (size_t i = 0; i < BENCH_COMPANY && plan->groups[g][i].name;
		     i++) {
			struct bench_line *l = &lines[nlines++];

			l->what = bench_case_find(plan->groups[g][i].name);
			l->size = plan->groups[g][i].size;
			l->ranges = plan->groups[g][i].ranges;
			l->group = (unsigned int)g;
		}
	}
	return 0;
}

int bench_suite_run(struct bench *b, char *err)
{
	static struct bench_figure f[BENCH_FIGURES], more[BENCH_FIGURES];
	int ret, code = RP_EXIT_OK;

#ifdef HAVE_LIBRPMA
	plan = b->cfg->rivals ? &bench_plan_rivals : &whole;
#else
	plan = &whole;
	if (b->cfg->rivals)
		return rp_err(err, -ENOTSUP,
			      "--rivals: this program was built without "
			      "librpma");
#endif
	ret = make_lines(err);
	if (ret)
		return ret;
	if (getloadavg(&load_before, 1) != 1)
		load_before = -1;
	if (plan->before)
		plan->before(b);
	ret = bench_start(b, err);
	if (!ret)
		ret = bench_measure(b, lines, nlines);
	if (ret && ret != -EINTR)
		goto free_lines;
	for (size_t i = 0; i < plan->nmetrics; i++) {
		figure_of(b, &plan->metrics[i], &f[i]);
		if (!f[i].known)
			code = RP_EXIT_PARTLY;
	}
	for (size_t i = 0; i < plan->nalso; i++)
		figure_of(b, &plan->also[i], &more[i]);
	ret = code;
	if (!b->cfg->json || strcmp(b->cfg->json, "-"))
		print(b, f, more);
	if (b->cfg->json) {
		int bad =
			bench_report_write(json(b, f, more), b->cfg->json, err);

		if (bad)
			ret = bad;
		else
			bench_plot(b->cfg->json, lines, nlines);
	}

free_lines:
	for (size_t i = 0; i < nlines; i++)
		rp_samples_free(&lines[i].samples);
	free(lines);
	return ret;
}
