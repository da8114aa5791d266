// SPDX-License-Identifier: BSD-2-Clause
/* Compares the figures of suite with their bars: table and JSON. */
#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/benchmarks/bench.h"

/* Returns the value of --bar for this metric, or NULL. */
static const char *bar_option(const struct bench *b, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < b->cfg->nbars; i++)
		if (!strncmp(b->cfg->bars[i], name, len) &&
		    b->cfg->bars[i][len] == '=')
			return b->cfg->bars[i] + len + 1;
	return NULL;
}

static double bar_value(const struct bench *b, const struct bench_metric *m)
{
	const char *option = bar_option(b, m->name);

	return option ? strtod(option, NULL) : m->bar;
}

static bool bar_pass(const struct bench *b, const struct bench_metric *m,
		     const struct bench_figure *f)
{
	return m->least ? f->value >= bar_value(b, m)
			: f->value <= bar_value(b, m);
}

int bench_bars_check(const struct bench *b, const struct bench_result *r,
		     char *err)
{
	size_t found = 0;

	for (size_t i = 0; i < r->plan->nmetrics; i++) {
		const char *v = bar_option(b, r->plan->metrics[i].name);
		char *end;

		if (!v)
			continue;
		(void)strtod(v, &end);
		if (end == v || *end)
			return rp_err(err, -EINVAL, "--bar: '%s' is no number",
				      v);
		found++;
	}
	return found == b->cfg->nbars
		       ? 0
		       : rp_err(err, -EINVAL,
				"--bar: NAME=VALUE, once for each metric");
}

bool bench_bars_pass(const struct bench *b, const struct bench_result *r)
{
	for (size_t i = 0; i < r->plan->nmetrics; i++)
		if (!r->f[i].known ||
		    !bar_pass(b, &r->plan->metrics[i], &r->f[i]))
			return false;
	return true;
}

static void print_sizes(const struct bench_plan *plan,
			const struct bench_figure *f)
{
	char size[RP_SIZE_LEN];

	for (size_t i = 0; i < plan->nsizes; i++) {
		printf("  %-42s ", rp_size_format(plan->sizes[i], size));
		if (isnan(f->each[i]))
			printf("%10s\n", "-");
		else
			printf("%10.4g\n", f->each[i]);
	}
}

static void print_metric(const struct bench *b, const struct bench_plan *plan,
			 const struct bench_metric *m,
			 const struct bench_figure *f)
{
	char size[RP_SIZE_LEN];

	printf("%-32s %s %8g ", m->name,
	       m->least ? ">=" : "<=", bar_value(b, m));
	if (f->known)
		printf("%10.4g  %s", f->value,
		       bar_pass(b, m, f) ? "met" : "not met");
	else
		printf("%10s  %s", "-", f->why);
	if (f->known && bench_metric_by_size(m))
		printf(", the worst: %s", rp_size_format(f->worst, size));
	putchar('\n');
	if (bench_metric_by_size(m))
		print_sizes(plan, f);
}

static void print_line(struct bench_line *l)
{
	static const unsigned int ranks[] = {500, 900, 990, 999};
	uint64_t ns;

	printf("%-38s %7llu %8llu %8zu", l->what->title,
	       (unsigned long long)l->size, (unsigned long long)l->ranges,
	       l->samples.n);
	for (int r = 0; r < 4; r++) {
		if (rp_samples_rank(&l->samples, ranks[r], &ns))
			printf(" %9s", "-");
		else
			printf(" %9.1f", (double)ns / 1000);
	}
	printf("%s%s\n", l->note[0] ? "  " : "", l->note);
}

void bench_bars_print(const struct bench *b, const struct bench_result *r)
{
	bench_report_head(b);
	printf("load     %.2f before the first case%s\n", r->load,
	       r->load > 0.5
		       ? ": other programs were running and distort the figures"
		       : "");
	printf("\n%-32s %11s %10s\n", "metric", "bar", "value");
	for (size_t i = 0; i < r->plan->nmetrics; i++)
		print_metric(b, r->plan, &r->plan->metrics[i], &r->f[i]);
	printf("\nbeside them\n");
	for (size_t i = 0; i < r->plan->nalso; i++) {
		const struct bench_figure *f = &r->also[i];

		if (f->known)
			printf("  %-42s %10.4g\n", r->plan->also[i].name,
			       f->value);
		else
			printf("  %-42s %10s  %s\n", r->plan->also[i].name, "-",
			       f->why);
	}
	printf("\n%-38s %7s %8s %8s %9s %9s %9s %9s  us\n", "case", "size",
	       "times", "samples", "p50", "p90", "p99", "p99.9");
	for (size_t i = 0; i < r->nlines; i++)
		print_line(&r->lines[i]);
}

static json_t *json_value(const struct bench_figure *f)
{
	return f->known ? json_real(f->value) : json_null();
}

static json_t *json_sizes(const struct bench_plan *plan,
			  const struct bench_figure *f)
{
	json_t *o = json_object();
	char size[24];

	for (size_t i = 0; i < plan->nsizes; i++) {
		snprintf(size, sizeof(size), "%llu",
			 (unsigned long long)plan->sizes[i]);
		json_object_set_new(o, size,
				    isnan(f->each[i]) ? json_null()
						      : json_real(f->each[i]));
	}
	return o;
}

static json_t *json_bar(const struct bench *b, const struct bench_metric *m,
			const struct bench_figure *f)
{
	return json_pack("{s:f, s:s, s:o}", "bar", bar_value(b, m), "at",
			 m->least ? "least" : "most", "met",
			 f->known ? json_boolean(bar_pass(b, m, f))
				  : json_null());
}

json_t *bench_bars_json(const struct bench *b, const struct bench_result *r)
{
	json_t *values = json_object(), *bars = json_object();
	json_t *why = json_object(), *others = json_object();
	json_t *list = json_array();

	for (size_t i = 0; i < r->plan->nmetrics; i++) {
		const struct bench_metric *m = &r->plan->metrics[i];

		json_object_set_new(values, m->name,
				    bench_metric_by_size(m)
					    ? json_sizes(r->plan, &r->f[i])
					    : json_value(&r->f[i]));
		json_object_set_new(bars, m->name, json_bar(b, m, &r->f[i]));
		if (!r->f[i].known)
			json_object_set_new(why, m->name,
					    json_string(r->f[i].why));
	}
	for (size_t i = 0; i < r->plan->nalso; i++) {
		const char *name = r->plan->also[i].name;

		json_object_set_new(others, name, json_value(&r->also[i]));
		if (!r->also[i].known)
			json_object_set_new(why, name,
					    json_string(r->also[i].why));
	}
	for (size_t i = 0; i < r->nlines; i++)
		json_array_append_new(list, bench_report_line(&r->lines[i]));
	return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:s, s:s, "
			 "s:I, s:f, s:s, s:o}",
			 "tool", "fi_rpmem_bench", "version", PACKAGE_VERSION,
			 "mode", "suite", "metrics", values, "why", why, "bars",
			 bars, "also", others, "machine",
			 bench_report_machine(), "base", bench_report_base(b),
			 "pool", b->pool.kind, "seed", (json_int_t)b->cfg->seed,
			 "load", r->load, "unit", "ns", "lines", list);
}
