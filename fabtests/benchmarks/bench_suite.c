// SPDX-License-Identifier: BSD-2-Clause
/* suite: figures with a bar that the provider must meet. */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/benchmarks/bench.h"
#include "util/exit_codes.h"

static const struct bench_spec groups[][BENCH_GROUP_LINES] = {
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
	{{"agent_flush", 4096, 1024},
	 {"local_flush", 4096, 1024},
	 {"base_pingpong", 64, 1}},
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
/* Lines for one size of durable_vs_handwritten and of the plots. */
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
static const uint64_t each_size[] = {
	8, 64, 512, 4096, 16384, 65536, 262144, 1048576, 4194304,
};

static struct bench_result result;

/*
 * Medians that are compared must come from one group, because the cases of a
 * group take turns. *group is ANY_GROUP before the first call, which sets it.
 */
#define ANY_GROUP UINT_MAX
static int median_of(const char *name, uint64_t size, uint64_t ranges,
		     unsigned int *group, double *ns, char *err)
{
	uint64_t v;

	for (size_t i = 0; i < result.nlines; i++) {
		struct bench_line *l = &result.lines[i];

		if (strcmp(l->what->name, name) || l->size != size ||
		    l->ranges != ranges ||
		    (*group != ANY_GROUP && l->group != *group))
			continue;
		if (rp_samples_rank(&l->samples, 500, &v) || !v || l->dead)
			return rp_err(err, -ENODATA, "%s: %s", name,
				      l->note[0] ? l->note : "no samples");
		*group = l->group;
		*ns = (double)v;
		return 0;
	}
	return rp_err(err, -ENODATA, "%s: not measured", name);
}

int bench_suite_ratio(const struct bench_ratio *r, double *value, char *err)
{
	unsigned int group = ANY_GROUP;
	double up = 0, low = 1;
	int ret = median_of(r->upper, r->size, r->ranges, &group, &up, err);

	if (!ret)
		ret = median_of(r->lower, r->size, r->ranges, &group, &low,
				err);
	if (!ret)
		*value = up / low;
	return ret;
}

static int initiator_scaling(struct bench *b, const struct bench_metric *m,
			     double *value, char *err)
{
	double one, many, base_one, base_many;
	unsigned int group = ANY_GROUP;
	int ret = median_of("initiators", 64, 1, &group, &one, err);

	if (!ret)
		ret = median_of("initiators", 64, 16, &group, &many, err);
	if (!ret)
		ret = median_of("base_initiators", 64, 1, &group, &base_one,
				err);
	if (!ret)
		ret = median_of("base_initiators", 64, 16, &group, &base_many,
				err);
	if (!ret)
		*value = one / many / (base_one / base_many);
	return ret;
}

/*
 * Upper bound of agent_flush_efficiency: the time of a commit includes the
 * flushes and at least one round trip.
 */
static int flush_bound(struct bench *b, const struct bench_metric *m,
		       double *value, char *err)
{
	unsigned int group = ANY_GROUP;
	double flush, trip;
	int ret = median_of("local_flush", 4096, 1024, &group, &flush, err);

	if (!ret)
		ret = median_of("base_pingpong", 64, 1, &group, &trip, err);
	if (!ret)
		*value = flush / (flush + trip);
	return ret;
}

/* (local_flush + one round trip) / agent_flush: 1 is the optimum. */
static int flush_efficiency(struct bench *b, const struct bench_metric *m,
			    double *value, char *err)
{
	double bound, part;
	int ret = bench_suite_ratio(&m->r, &part, err);

	if (!ret)
		ret = flush_bound(b, m, &bound, err);
	if (!ret)
		*value = part / bound;
	return ret;
}

static int batching(struct bench *b, const struct bench_metric *m,
		    double *value, char *err)
{
	const struct bench_ratio alone = {"disk_alone_batch", "disk_alone_each",
					  m->r.size, m->r.ranges};
	double together, disk;
	int ret = bench_suite_ratio(&m->r, &together, err);

	if (!ret)
		ret = bench_suite_ratio(&alone, &disk, err);
	if (!ret)
		*value = together / disk;
	return ret;
}

/* Figures that other processes measure. */
static struct bench_figure idle, instructions, instructions_pmem, file;
static struct bench_file file_ns;

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

static int get_instructions(struct bench *b, const struct bench_metric *m,
			    double *value, char *err)
{
	return bench_figure_value(&instructions, value, err);
}

/*
 * Number of reads that found no completion: the figures include their
 * instructions.
 */
static uint64_t too_early[2];

static int early_reads(struct bench *b, const struct bench_metric *m,
		       double *value, char *err)
{
	*value = (double)(too_early[0] + too_early[1]);
	return 0;
}

static int get_instructions_pmem(struct bench *b, const struct bench_metric *m,
				 double *value, char *err)
{
	return bench_figure_value(&instructions_pmem, value, err);
}

/*
 * Durable write to a file divided by msync + round trip, the minimum for a
 * target that syncs the page.
 */
static int file_write(struct bench *b, const struct bench_metric *m,
		      double *value, char *err)
{
	return bench_figure_value(&file, value, err);
}

static int file_us(double ns, double *value, char *err)
{
	double known;
	int ret = bench_figure_value(&file, &known, err);

	if (!ret)
		*value = ns / 1000;
	return ret;
}

static int file_write_us(struct bench *b, const struct bench_metric *m,
			 double *value, char *err)
{
	return file_us(file_ns.write, value, err);
}

static int file_msync_us(struct bench *b, const struct bench_metric *m,
			 double *value, char *err)
{
	return file_us(file_ns.msync, value, err);
}

static int file_trip_us(struct bench *b, const struct bench_metric *m,
			double *value, char *err)
{
	return file_us(file_ns.trip, value, err);
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
	{"passthrough_instructions_added", 25, false, {0}, get_instructions},
	{"durable_64B_vs_raw_echo",
	 1.35,
	 false,
	 {"write_commit_flag", "raw_echo", 64, 1},
	 NULL},
	{"durable_64B_vs_msg_commit",
	 1.05,
	 false,
	 {"write_commit_flag", "msg_commit", 64, 1},
	 NULL},
	{"durable_64B_vs_delivery",
	 1.05,
	 false,
	 {"write_commit_flag", "base_write", 64, 1},
	 NULL},
	{"durable_64KiB_vs_delivery",
	 1.20,
	 false,
	 {"write_commit_flag", "base_write", 65536, 1},
	 NULL},
	{"durable_vs_handwritten",
	 1.00,
	 false,
	 {"write_commit_flag", "handwritten", BENCH_EACH_SIZE, 1},
	 NULL},
	{"commit_64x64B_vs_writes",
	 0.30,
	 false,
	 {"writes_commit", "base_writes", 64, 64},
	 NULL},
	{"agent_flush_efficiency",
	 0.97,
	 true,
	 {"local_flush", "agent_flush", 4096, 1024},
	 flush_efficiency},
	{"initiators_16_scaling", 0.95, true, {0}, initiator_scaling},
	{"msync_batching",
	 1.10,
	 false,
	 {"disk_batch", "disk_each", 4096, 32},
	 batching},
	{"file_64B_vs_msync", 1.10, false, {0}, file_write},
	{"idle_agent_cpu", 0.002, false, {0}, idle_cpu},
};

/* Figures without a bar, for comparison with the metrics. */
static const struct bench_metric also[] = {
	{"rate_ratio_of_persistent_key",
	 0,
	 false,
	 {"base_rate", "rate_pmem", 64, 1},
	 NULL},
	{"instructions_added_of_persistent_key",
	 0,
	 false,
	 {0},
	 get_instructions_pmem},
	{"callgrind_reads_too_early", 0, false, {0}, early_reads},
	{"durable_64B_vs_handwritten_inline",
	 0,
	 false,
	 {"write_commit_flag", "handwritten_inline", 64, 1},
	 NULL},
	{"agent_flush_bound_of_one_round_trip", 0, true, {0}, flush_bound},
	{"msync_batching_of_the_disk_alone",
	 0,
	 false,
	 {"disk_alone_batch", "disk_alone_each", 4096, 32},
	 NULL},
	{"file_64B_us", 0, false, {0}, file_write_us},
	{"file_64B_msync_us", 0, false, {0}, file_msync_us},
	{"file_64B_round_trip_us", 0, false, {0}, file_trip_us},
	{"round_trip_vs_delivery_of_base",
	 0,
	 false,
	 {"base_pingpong", "base_write", 64, 1},
	 NULL},
};

static void prepare_suite(struct bench *b)
{
	idle.known = !bench_idle_share(b, &idle.value, idle.why);
	instructions.known = !bench_instructions(
		b, false, &instructions.value, &too_early[0], instructions.why);
	instructions_pmem.known =
		!bench_instructions(b, true, &instructions_pmem.value,
				    &too_early[1], instructions_pmem.why);
	file.known = !bench_file_run(b, &file_ns, file.why);
	if (file.known)
		file.value = file_ns.write / (file_ns.msync + file_ns.trip);
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
static const struct bench_plan whole = {
	.groups = groups,
	.ngroups = COUNT(groups),
	.metrics = metrics,
	.nmetrics = COUNT(metrics),
	.sizes = each_size,
	.nsizes = COUNT(each_size),
	.also = also,
	.nalso = COUNT(also),
	.before = prepare_suite,
};
_Static_assert(COUNT(metrics) <= BENCH_FIGURES && COUNT(also) <= BENCH_FIGURES,
	       "there is room");
_Static_assert(COUNT(each_size) <= BENCH_SIZES, "there is room");

/*
 * The value is that of the worst size; if a size is unknown, so is the value.
 */
static void figure_by_size(const struct bench_metric *m, struct bench_figure *f)
{
	struct bench_ratio r = m->r;
	char why[RP_ERR_LEN];

	f->known = true;
	for (size_t i = 0; i < result.plan->nsizes; i++) {
		double *each = &f->each[i];

		r.size = result.plan->sizes[i];
		if (bench_suite_ratio(&r, each, why)) {
			*each = NAN;
			f->known = false;
			rp_err(f->why, 0, "%llu bytes: %.400s",
			       (unsigned long long)r.size, why);
		} else if (!f->worst ||
			   (m->least ? *each < f->value : *each > f->value)) {
			f->value = *each;
			f->worst = r.size;
		}
	}
}

static void compute_figure(struct bench *b, const struct bench_metric *m,
			   struct bench_figure *f)
{
	if (bench_metric_by_size(m)) {
		figure_by_size(m, f);
		return;
	}
	f->known = !(m->special ? m->special(b, m, &f->value, f->why)
				: bench_suite_ratio(&m->r, &f->value, f->why));
}

static int make_lines(char *err)
{
	const struct bench_plan *plan = result.plan;

	result.lines = calloc(plan->ngroups * BENCH_GROUP_LINES,
			      sizeof(*result.lines));
	if (!result.lines)
		return rp_err(err, -ENOMEM, "out of memory");
	for (size_t g = 0; g < plan->ngroups; g++) {
		for (size_t i = 0;
		     i < BENCH_GROUP_LINES && plan->groups[g][i].name; i++) {
			struct bench_line *l = &result.lines[result.nlines++];

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
	int ret, bad;

#ifdef HAVE_LIBRPMA
	result.plan = b->cfg->rivals ? &bench_plan_rivals : &whole;
#else
	result.plan = &whole;
	if (b->cfg->rivals)
		return rp_err(err, -ENOTSUP,
			      "--rivals: this program was built without "
			      "librpma");
#endif
	ret = bench_bars_check(b, &result, err);
	if (!ret)
		ret = make_lines(err);
	if (ret)
		return ret;
	if (getloadavg(&result.load, 1) != 1)
		result.load = -1;
	if (result.plan->before)
		result.plan->before(b);
	ret = bench_start(b, err);
	if (!ret)
		ret = bench_measure(b, result.lines, result.nlines);
	if (ret && ret != -EINTR)
		goto free_lines;
	for (size_t i = 0; i < result.plan->nmetrics; i++)
		compute_figure(b, &result.plan->metrics[i], &result.f[i]);
	for (size_t i = 0; i < result.plan->nalso; i++)
		compute_figure(b, &result.plan->also[i], &result.also[i]);
	ret = bench_bars_pass(b, &result) ? RP_EXIT_OK : RP_EXIT_PARTLY;
	if (!b->cfg->json || strcmp(b->cfg->json, "-"))
		bench_bars_print(b, &result);
	if (b->cfg->json) {
		bad = bench_report_write(bench_bars_json(b, &result),
					 b->cfg->json, err);
		if (bad)
			ret = bad;
		else
			bench_plot(b->cfg->json, result.lines, result.nlines);
	}

free_lines:
	for (size_t i = 0; i < result.nlines; i++)
		rp_samples_free(&result.lines[i].samples);
	free(result.lines);
	return ret;
}
