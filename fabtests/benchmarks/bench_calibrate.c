// SPDX-License-Identifier: BSD-2-Clause
/* calibrate: this machine's costs of writes, requests and flushes. */
#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/benchmarks/bench.h"
#include "util/exit_codes.h"

static const uint64_t sizes[] = {64, 256, 1024, 4096, 16384, 65536};
#define NSIZES (sizeof(sizes) / sizeof(sizes[0]))
static const char *const cases[] = {
	"clwb",	      "stream",	     "msync",
	"base_write", "handwritten", "handwritten_inline",
	"base_read",  "base_reads",
};
#define NCASES (sizeof(cases) / sizeof(cases[0]))
#define READS  16 /* outstanding at once */

static struct bench_line lines[NCASES * NSIZES];

static struct bench_line *find_line(const char *name, size_t size)
{
	for (size_t i = 0; i < NCASES; i++)
		if (!strcmp(cases[i], name))
			return &lines[i * NSIZES + size];
	return NULL;
}

static double median_of(const char *name, size_t size)
{
	uint64_t ns;

	return rp_samples_rank(&find_line(name, size)->samples, 500, &ns)
		       ? -1
		       : (double)ns;
}

/*
 * Fit a line by least relative error; least absolute error would fit the
 * largest sizes only. Returns false when there are too few points.
 */
static bool fit_line(const char *name, double *ns, double *ps)
{
	double sw = 0, sx = 0, sy = 0, sxx = 0, sxy = 0, d;

	for (size_t i = 0; i < NSIZES; i++) {
		double x = (double)sizes[i], y = median_of(name, i), w;

		if (y <= 0)
			continue;
		w = 1 / (y * y);
		sw += w;
		sx += w * x;
		sy += w * y;
		sxx += w * x * x;
		sxy += w * x * y;
	}
	d = sw * sxx - sx * sx;
	if (d <= 0)
		return false;
	*ps = (sw * sxy - sx * sy) / d * 1000;
	*ns = (sy - *ps / 1000 * sx) / sw;
	if (*ps < 0)
		*ps = 0;
	if (*ns < 0)
		*ns = 0;
	return true;
}

static json_t *json_round(double v)
{
	return v < 0 ? json_null() : json_integer((json_int_t)(v + 0.5));
}

/*
 * Fit the case name; subtract the fit of the case `without`, unless it is NULL.
 */
static bool fit_less(const char *name, const char *without, double *ns,
		     double *ps)
{
	double less_ns = 0, less_ps = 0;

	if (!fit_line(name, ns, ps) ||
	    (without && !fit_line(without, &less_ns, &less_ps)))
		return false;
	*ns = *ns > less_ns ? *ns - less_ns : 0;
	*ps = *ps > less_ps ? *ps - less_ps : 0;
	return true;
}

static json_t *json_fit(const char *name, const char *without)
{
	double ns, ps;

	if (!fit_less(name, without, &ns, &ps))
		return json_null();
	return json_pack("{s:o, s:o}", "ns", json_round(ns), "ps",
			 json_round(ps));
}

static double median_diff(const char *name, const char *base, const char *less)
{
	double a = median_of(name, 0), b = median_of(base, 0), c = 0;

	if (less)
		c = median_of(less, 0);
	return a < 0 || b < 0 || c < 0 ? -1 : a > b + c ? a - b - c : 0;
}

/* Cost of a REQUEST after a write, or -1 if a case is missing. */
static double request_cost(void)
{
	return median_diff("handwritten", "base_write", "clwb");
}

/* Cost of each further concurrent read, or -1 if a case is missing. */
static double fence_cost(void)
{
	double one = median_of("base_read", 0),
	       many = median_of("base_reads", 0);

	if (one < 0 || many < 0)
		return -1;
	return many > one ? (many - one) / (READS - 1) : 0;
}

/* Figures as JSON, under the names of docs/operating.md. */
static json_t *cost_json(void)
{
	return json_pack("{s:{s:{s:o, s:o, s:o, s:o, s:o}}, s:{s:o, s:o}, s:o}",
			 "path", "cpu", "write", json_fit("base_write", NULL),
			 "ask_ns", json_round(request_cost()), "fence_ns",
			 json_round(median_of("base_read", 0)), "fences_ns",
			 json_round(fence_cost()), "store",
			 json_fit("handwritten_inline", "stream"), "flush",
			 "agent-clwb", json_fit("clwb", NULL), "agent-msync",
			 json_fit("msync", NULL), "stream",
			 json_fit("stream", NULL));
}

static void print_cost(const struct bench *b)
{
	char text[RP_SIZE_LEN];
	double ns, ps;

	bench_report_head(b);
	printf("\n%-20s", "medians, us");
	for (size_t s = 0; s < NSIZES; s++)
		printf(" %9s", rp_size_format(sizes[s], text));
	printf("  ns + ps per byte\n");
	for (size_t c = 0; c < NCASES; c++) {
		printf("%-20s", cases[c]);
		for (size_t s = 0; s < NSIZES; s++) {
			if (median_of(cases[c], s) < 0)
				printf(" %9s", "-");
			else
				printf(" %9.2f", median_of(cases[c], s) / 1000);
		}
		if (fit_line(cases[c], &ns, &ps))
			printf("  %.0f + %.0f\n", ns, ps);
		else
			printf("  %s\n", lines[c * NSIZES].note);
	}
}

int bench_calibrate_run(struct bench *b, char *err)
{
	json_t *list = json_array();
	int code = RP_EXIT_OK, ret;

	for (size_t c = 0; c < NCASES; c++) {
		for (size_t s = 0; s < NSIZES; s++) {
			struct bench_line *l = &lines[c * NSIZES + s];

			l->what = bench_case_find(cases[c]);
			l->size = sizes[s];
			l->ranges = l->what->many ? READS : 1;
			l->group = (unsigned int)s;
		}
	}
	ret = bench_start(b, err);
	if (!ret)
		ret = bench_measure(b, lines, NCASES * NSIZES);
	if (ret)
		return rp_err(err, ret, "%s", err[0] ? err : strerror(-ret));
	for (size_t i = 0; i < NCASES * NSIZES; i++) {
		json_array_append_new(list, bench_report_line(&lines[i]));
		if (!lines[i].samples.n || lines[i].dead)
			code = RP_EXIT_PARTLY;
	}
	if (!b->cfg->json || strcmp(b->cfg->json, "-"))
		print_cost(b);
	ret = b->cfg->json
		      ? bench_report_write(
				json_pack("{s:s, s:s, s:s, s:o, s:o, s:s, "
					  "s:s, s:I, s:o}",
					  "tool", "fi_rpmem_bench", "version",
					  PACKAGE_VERSION, "mode", "calibrate",
					  "cost", cost_json(), "machine",
					  bench_report_machine(), "base",
					  bench_report_base(b), "pool",
					  b->pool.kind, "seed",
					  (json_int_t)b->cfg->seed, "lines",
					  list),
				b->cfg->json, err)
		      : 0;
	for (size_t i = 0; i < NCASES * NSIZES; i++)
		rp_samples_free(&lines[i].samples);
	return ret ? ret : code;
}
