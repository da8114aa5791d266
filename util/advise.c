// SPDX-License-Identifier: BSD-2-Clause
/* Measures writes with and against each piece of advice, and reports. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/thread.h"
#include "util/advise.h"
#include "util/text.h"

#define PAIRS	101u /* most sample pairs of a row in a run of SECONDS */
#define LEAST	8u   /* fewest pairs from which ratio.h computes an interval */
#define SHARE	10u  /* each row has a tenth of the time for all rows */
#define SECONDS ADVISE_SECONDS

volatile sig_atomic_t advise_interrupted;

static const char *const verdicts[] = {
	[RP_VERDICT_HOLDS] = "holds",
	[RP_VERDICT_NOT] = "does not hold",
	[RP_VERDICT_UNKNOWN] = "cannot be measured here",
};

uint64_t advise_random(struct advise *a, uint64_t n)
{
	a->seed ^= a->seed << 13;
	a->seed ^= a->seed >> 7;
	a->seed ^= a->seed << 17;
	return a->seed % n;
}

/* Take one sample of each way; turned: ADVISE_OTHER first. */
static int measure_pair(struct advise *a, const struct advise_row *row,
			bool turned, double *ratio, char *err)
{
	uint64_t ns[2];

	for (unsigned int i = 0; i < 2; i++) {
		const enum advise_way way = turned ? !i : i;
		int ret = row->measure(a, row, way, &ns[way], err);

		if (ret)
			return ret;
	}
	*ratio = (double)ns[ADVISE_OTHER] /
		 (double)(ns[ADVISE_AS] ? ns[ADVISE_AS] : 1);
	return 0;
}

static unsigned int seconds_of(const struct advise *a)
{
	return a->seconds ? a->seconds : SECONDS;
}

/* The most pairs of a row: a longer run takes more, for a smaller interval. */
static size_t most_pairs(const struct advise *a)
{
	const size_t n = (size_t)PAIRS * seconds_of(a) / SECONDS;

	return n > PAIRS ? n : PAIRS;
}

/* Take samples of a row until its time or the time of all rows is over. */
static int take_pairs(struct advise *a, const struct advise_row *row,
		      uint64_t end_ns, double *ratios, size_t *n, char *err)
{
	const uint64_t start = rp_clock_ns(CLOCK_MONOTONIC);
	const uint64_t end_row =
		start + (uint64_t)seconds_of(a) * (1000000000ull / SHARE);
	const size_t most = most_pairs(a);
	uint64_t now = start;
	double warm_up;
	int ret;

	if (start >= end_ns)
		return rp_err(err, -ETIME,
			      "the %u s of a run are over; give more by "
			      "--seconds",
			      seconds_of(a));
	ret = measure_pair(a, row, false, &warm_up, err);
	while (!ret && *n < most && !advise_interrupted && now < end_ns &&
	       (*n < LEAST || now < end_row)) {
		ret = measure_pair(a, row, *n % 2, &ratios[*n], err);
		*n += !ret;
		now = rp_clock_ns(CLOCK_MONOTONIC);
	}
	return ret;
}

/*
 * Compute the interval once, when all pairs are taken: testing after each pair,
 * and stopping at the first verdict, would make wrong verdicts likelier.
 */
static int measure_row(struct advise *a, const struct advise_row *row,
		       uint64_t end_ns, struct rp_ratio *r, char *err)
{
	double *ratios = calloc(most_pairs(a), sizeof(*ratios));
	size_t n = 0;
	int ret;

	if (!ratios)
		return rp_err(err, -ENOMEM, "out of memory");
	ret = take_pairs(a, row, end_ns, ratios, &n, err);
	if (!ret && rp_ratio_compute(ratios, n, r))
		ret = rp_err(err, -ENODATA,
			     "%zu pairs are too few for a verdict; give more "
			     "time by --seconds",
			     n);
	free(ratios);
	return ret;
}

static json_t *pack_row(const struct advise_row *row)
{
	return json_pack("{ss ss ss ss* ss* ss}", "name", row->name, "source",
			 row->source, "advice", row->advice, "as", row->as,
			 "other", row->other, "set", row->set);
}

static void set_verdict(json_t *o, enum rp_verdict v, const char *reason)
{
	json_object_set_new(o, "verdict", json_string(verdicts[v]));
	if (v == RP_VERDICT_UNKNOWN)
		json_object_set_new(o, "reason", info_text("%s", reason));
}

json_t *advise_judge(struct advise *a, const struct advise_row *row,
		     uint64_t end_ns)
{
	json_t *o = pack_row(row);
	char why[RP_ERR_LEN] = "";
	struct rp_ratio r = {0};
	enum rp_verdict v;

	if (!row->applies(a, row, why) ||
	    measure_row(a, row, end_ns, &r, why)) {
		set_verdict(o, RP_VERDICT_UNKNOWN, why);
		return o;
	}
	v = rp_ratio_judge(&r, RP_RATIO_WORTH);
	if (v == RP_VERDICT_UNKNOWN)
		rp_err(why, 0,
		       "the samples differ too much to tell whether the gain "
		       "is %.0f %%; give more time by --seconds",
		       (RP_RATIO_WORTH - 1) * 100);
	set_verdict(o, v, why);
	json_object_set_new(o, "ratio",
			    json_pack("{sf sf sf sI}", "median", r.median,
				      "low", r.low, "high", r.high, "pairs",
				      (json_int_t)r.pairs));
	return o;
}

static void judge_rows(struct advise *a, const struct advise_row *rows,
		       uint64_t end_ns, json_t *list)
{
	for (; rows->name && !advise_interrupted; rows++)
		json_array_append_new(list, advise_judge(a, rows, end_ns));
}

static bool is_target(const char *where)
{
	struct stat st;

	return stat(where, &st) &&
	       (where[0] == '[' || where[strcspn(where, ":/")] == ':');
}

static json_t *run(struct advise *a, const struct advise_cfg *cfg,
		   json_t *report)
{
	const uint64_t start = rp_clock_ns(CLOCK_MONOTONIC);
	const uint64_t end = start + seconds_of(a) * 1000000000ull;
	json_t *list = json_array();
	char err[RP_ERR_LEN] = "";

	judge_rows(a, advise_memory_rows, end, list);
	judge_rows(a, advise_machine_rows, end, list);
	if (!a->peer && !advise_interrupted &&
	    advise_peer_open(a, cfg->transport, cfg->secret, err))
		json_object_set_new(report, "no_connection",
				    info_text("%s", err));
	judge_rows(a, advise_peer_rows, end, list);
	json_object_set_new(report, "advice", list);
	json_object_set_new(
		report, "seconds",
		json_real((double)(rp_clock_ns(CLOCK_MONOTONIC) - start) /
			  1e9));
	return report;
}

json_t *advise_run(const struct advise_cfg *cfg, char *err)
{
	struct advise a = {
		.root = cfg->root,
		.seed = 88172645463325252ull,
		.seconds = cfg->seconds,
	};
	json_t *report = NULL;

	if (is_target(cfg->where)) {
		a.target = cfg->where;
		if (!advise_peer_open(&a, cfg->transport, cfg->secret, err))
			report = run(&a, cfg,
				     json_pack("{so}", "target",
					       info_text("%s", a.target)));
	} else if (!advise_memory_open(&a, cfg->where, cfg->transport, err)) {
		report = run(&a, cfg,
			     json_pack("{so ss ss}", "path",
				       info_text("%s", cfg->where), "memory",
				       rp_memory_name(a.facts.memory), "method",
				       rp_method_name(a.choice.method)));
	}
	advise_peer_close(&a);
	advise_memory_close(&a);
	if (advise_interrupted) {
		json_decref(report);
		report = NULL;
		rp_err(err, -EINTR, "interrupted");
	}
	return report;
}

static const char *text_of(const json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key));
}

static double figure_of(const json_t *ratio, const char *key)
{
	return json_number_value(json_object_get(ratio, key));
}

static void print_row(const json_t *o)
{
	const json_t *r = json_object_get(o, "ratio");

	printf("%-20s %-23s", text_of(o, "name"), text_of(o, "verdict"));
	if (r)
		printf(" %6.2f (%.2f to %.2f, %.0f pairs)",
		       figure_of(r, "median"), figure_of(r, "low"),
		       figure_of(r, "high"), figure_of(r, "pairs"));
	printf("\n    %s (%s)\n", text_of(o, "advice"), text_of(o, "source"));
	if (text_of(o, "reason"))
		printf("    Reason: %s.\n", text_of(o, "reason"));
	if (r)
		printf("    Ratio: time of %s, by that of %s.\n",
		       text_of(o, "other"), text_of(o, "as"));
	printf("    Set: %s.\n", text_of(o, "set"));
}

void advise_print(const json_t *report)
{
	const json_t *row;
	size_t i;

	if (text_of(report, "target"))
		printf("target %s, only read\n", text_of(report, "target"));
	else
		printf("path %s, memory %s, method %s\n",
		       text_of(report, "path"), text_of(report, "memory"),
		       text_of(report, "method"));
	if (text_of(report, "no_connection"))
		printf("no connection: %s\n", text_of(report, "no_connection"));
	printf("%-20s %-23s %6s\n", "ADVICE", "VERDICT", "RATIO");
	json_array_foreach(json_object_get(report, "advice"), i, row)
		print_row(row);
}
