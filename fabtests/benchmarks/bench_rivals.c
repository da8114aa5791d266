// SPDX-License-Identifier: BSD-2-Clause
/* suite --rivals: durable writes compared with librpma. */
#include "config.h"

#include <string.h>

#include "core/method.h"
#include "fabtests/benchmarks/bench.h"

#ifdef HAVE_LIBRPMA

/* Index into rivals[]. */
#define GPSPM 5

#define BY_SIZE(size)                                                          \
	{                                                                      \
		{"write_commit_flag", size, 1}, {"librpma_flush", size, 1},    \
			{"librpma_gpspm", size, 1}, {"base_write", size, 1},   \
	}
static const struct bench_spec groups[][BENCH_GROUP_LINES] = {
	BY_SIZE(64),
	BY_SIZE(4096),
};

/*
 * Ratio m->r if the target commits by this method (agent or fence): the method
 * in the QUERY reply tells which one write_commit_flag measured.
 */
static int by_method(struct bench *b, const struct bench_metric *m, bool agent,
		     double *value, char *err)
{
	enum rp_method got = (enum rp_method)b->attr.method;
	bool is_agent = got >= RP_METHOD_AGENT_SFENCE;

	if (!b->attr.size)
		return rp_err(err, -ENODATA, "%s", b->attr_why);
	if (is_agent != agent || (!agent && got != RP_METHOD_FENCE))
		return rp_err(err, -ENODATA, "the target commits by %s: %s",
			      rp_method_name(got), b->attr_why);
	return bench_suite_ratio(&m->r, value, err);
}

static int by_agent(struct bench *b, const struct bench_metric *m,
		    double *value, char *err)
{
	return by_method(b, m, true, value, err);
}

static int by_fence(struct bench *b, const struct bench_metric *m,
		    double *value, char *err)
{
	return by_method(b, m, false, value, err);
}

/* Instructions of provider and rival, counted before any timing. */
static struct {
	int rival;
	uint64_t size, early;
	struct bench_figure f;
} counted[] = {
	{-1, 64, 0, {0}},
	{-1, 4096, 0, {0}},
	{GPSPM, 64, 0, {0}},
	{GPSPM, 4096, 0, {0}},
};

static void prepare_rivals(struct bench *b)
{
	for (size_t i = 0; i < sizeof(counted) / sizeof(counted[0]); i++)
		counted[i].f.known = !bench_instructions_durable(
			b, counted[i].rival, counted[i].size,
			&counted[i].f.value, &counted[i].early,
			counted[i].f.why);
}

static int count_instructions(struct bench *b, const struct bench_metric *m,
			      double *value, char *err)
{
	return bench_figure_value(&counted[m->r.ranges].f, value, err);
}

static const struct bench_metric metrics[] = {
	{"fence_vs_librpma_flush",
	 1.00,
	 false,
	 {"write_commit_flag", "librpma_flush", 64, 1},
	 by_fence},
	{"agent_vs_librpma_gpspm",
	 0.90,
	 false,
	 {"write_commit_flag", "librpma_gpspm", 64, 1},
	 by_agent},
	{"agent_vs_librpma_gpspm_4KiB",
	 0.90,
	 false,
	 {"write_commit_flag", "librpma_gpspm", 4096, 1},
	 by_agent},
};

/* count_instructions() uses .ranges as index into counted[]. */
static const struct bench_metric also[] = {
	{"initiator_instructions_64B",
	 0,
	 false,
	 {.ranges = 0},
	 count_instructions},
	{"initiator_instructions_4KiB",
	 0,
	 false,
	 {.ranges = 1},
	 count_instructions},
	{"initiator_instructions_64B_librpma_gpspm",
	 0,
	 false,
	 {.ranges = 2},
	 count_instructions},
	{"initiator_instructions_4KiB_librpma_gpspm",
	 0,
	 false,
	 {.ranges = 3},
	 count_instructions},
	{"librpma_flush_vs_librpma_gpspm",
	 0,
	 false,
	 {"librpma_flush", "librpma_gpspm", 64, 1},
	 NULL},
};

const struct bench_plan bench_plan_rivals = {
	.groups = groups,
	.ngroups = sizeof(groups) / sizeof(groups[0]),
	.metrics = metrics,
	.nmetrics = sizeof(metrics) / sizeof(metrics[0]),
	.also = also,
	.nalso = sizeof(also) / sizeof(also[0]),
	.before = prepare_rivals,
};

#endif
