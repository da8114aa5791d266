// SPDX-License-Identifier: BSD-2-Clause
/* Table and JSON report of fi_rpmem_bench. */
#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "core/caps.h"
#include "core/method.h"
#include "fabtests/benchmarks/bench.h"

static const struct {
	unsigned int permille;
	const char *name;
} ranks[] = {
	{0, "min"},   {500, "p50"},   {900, "p90"},
	{990, "p99"}, {999, "p99.9"}, {1000, "max"},
};
#define NRANKS (sizeof(ranks) / sizeof(ranks[0]))

/*
 * Ratios of medians; with `each`, the lower median is multiplied by the ranges.
 */
static const struct {
	const char *upper, *lower;
	bool each;
	const char *title;
} ratios[] = {
	{"write", "base_write", false, "write / base write"},
	{"write_commit_flag", "base_write", false,
	 "write with FI_COMMIT_COMPLETE / base write"},
	{"write_commit_call", "base_write", false,
	 "write, fi_rpmem_commit / base write"},
	{"write_commit_flag", "base_tagged", false,
	 "write with FI_COMMIT_COMPLETE / base tagged round trip"},
	{"write_commit_flag", "msync", false,
	 "write with FI_COMMIT_COMPLETE / msync alone"},
	{"writes_commit_call", "write_commit_flag", true,
	 "writes, one commit / as many writes with FI_COMMIT_COMPLETE"},
	{"writes_commit_call", "msyncs", false,
	 "writes, one commit / as many msyncs alone"},
};
#define NRATIOS (sizeof(ratios) / sizeof(ratios[0]))

static struct bench_line *find_line(struct bench_line *lines, size_t n,
				    const char *name, uint64_t size,
				    uint64_t ranges)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(lines[i].what->name, name) &&
		    lines[i].size == size &&
		    (!lines[i].what->many || lines[i].ranges == ranges))
			return &lines[i];
	return NULL;
}

/* Compute one ratio of medians. Returns 0 or -ENODATA. */
static int compute_ratio(struct bench_line *lines, size_t n, size_t which,
			 struct bench_line *upper, double *value)
{
	struct bench_line *lower = find_line(lines, n, ratios[which].lower,
					     upper->size, upper->ranges);
	uint64_t up, low;

	if (!lower || upper->samples.n < BENCH_RATIO_MIN ||
	    lower->samples.n < BENCH_RATIO_MIN ||
	    rp_samples_rank(&upper->samples, 500, &up) ||
	    rp_samples_rank(&lower->samples, 500, &low) || !low)
		return -ENODATA;
	*value = (double)up / (double)low;
	if (ratios[which].each)
		*value /= (double)upper->ranges;
	return 0;
}

static void cpu_model(char *buf, size_t len)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[256], *colon;

	snprintf(buf, len, "unknown CPU");
	while (f && fgets(line, sizeof(line), f)) {
		colon = strchr(line, ':');
		if (strncmp(line, "model name", 10) || !colon)
			continue;
		colon[strcspn(colon, "\n")] = 0;
		snprintf(buf, len, "%s", colon + 1 + (colon[1] == ' '));
		break;
	}
	if (f)
		fclose(f);
}

const char *bench_report_base(const struct bench *b)
{
	const struct bench_end *e = &b->end[BENCH_BASE];

	return e->f.info ? e->f.info->fabric_attr->prov_name : b->cfg->base;
}

/* Number of a note: notes are long and often equal, so each is printed once. */
static size_t note_number(const struct bench_line *lines,
			  const struct bench_line *l)
{
	size_t number = 1;

	for (const struct bench_line *i = lines; strcmp(i->note, l->note);
	     i++) {
		bool seen = !i->note[0];

		for (const struct bench_line *j = lines; !seen && j < i; j++)
			seen = !strcmp(i->note, j->note);
		number += !seen;
	}
	return number;
}

static void print_notes(const struct bench_line *lines, size_t n)
{
	size_t printed = 0;

	for (size_t i = 0; i < n; i++) {
		if (!lines[i].note[0] ||
		    note_number(lines, &lines[i]) != printed + 1)
			continue;
		printf("%s[%zu] %s\n", printed ? "" : "\n", printed + 1,
		       lines[i].note);
		printed++;
	}
}

static void print_line(const struct bench_line *lines, struct bench_line *l)
{
	char title[80];
	uint64_t ns;

	if (l->what->many)
		snprintf(title, sizeof(title), "%llu %s",
			 (unsigned long long)l->ranges, l->what->title);
	else
		snprintf(title, sizeof(title), "%s", l->what->title);
	printf("  %-36s", title);
	if (!l->samples.n) {
		printf(" not obtained [%zu]\n", note_number(lines, l));
		return;
	}
	printf(" %7zu", l->samples.n);
	for (size_t i = 0; i < NRANKS; i++) {
		if (rp_samples_rank(&l->samples, ranks[i].permille, &ns))
			printf(" %9s", "-");
		else
			printf(" %9.1f", (double)ns / 1000);
	}
	if (l->dead)
		printf("  stopped [%zu]", note_number(lines, l));
	putchar('\n');
}

void bench_report_head(const struct bench *b)
{
	char cpu[128], size[RP_SIZE_LEN];
	struct utsname u;
	double load;
	uint32_t v = fi_version();

	cpu_model(cpu, sizeof(cpu));
	uname(&u);
	printf("machine  %s, %ld CPUs, %s %s, libfabric %u.%u\n", cpu,
	       sysconf(_SC_NPROCESSORS_ONLN), u.sysname, u.release, FI_MAJOR(v),
	       FI_MINOR(v));
	if (getloadavg(&load, 1) == 1)
		printf("load     %.2f runnable threads in the last minute%s\n",
		       load,
		       load > 0.5 ? ": the figures include waiting for a CPU"
				  : "");
	printf("base     %s, ", bench_report_base(b));
	if (b->cfg->connect)
		printf("target at %s", b->cfg->connect);
	else
		printf("loopback, two processes, %s",
		       b->cfg->sleep ? "the target sleeps" : "both polling");
	if (b->cfg->pin && !b->cfg->connect)
		printf(", on CPUs %u and %u", b->cfg->cpu[0], b->cfg->cpu[1]);
	printf("\npool     %s, %s\n", b->pool.kind,
	       rp_size_format(b->pool.len, size));
	if (b->attr.size)
		printf("commit   class %s, method %s: %s\n",
		       rp_class_name(b->reached),
		       rp_method_name((enum rp_method)b->attr.method),
		       b->attr_why);
	else
		printf("commit   not obtained: %s\n", b->attr_why);
	printf("seed     %llu\n", (unsigned long long)b->cfg->seed);
	if (sysconf(_SC_NPROCESSORS_ONLN) < 3 && !b->cfg->sleep &&
	    !b->cfg->connect)
		printf("note     two polling processes leave no CPU to the "
		       "target's msync thread\n");
}

static void print_ratios(struct bench_line *lines, size_t n, uint64_t size)
{
	char text[RP_SIZE_LEN], count[32];
	double value;

	printf("\nratios of medians, %s (-: fewer than %d samples)\n",
	       rp_size_format(size, text), BENCH_RATIO_MIN);
	for (size_t r = 0; r < NRATIOS; r++) {
		for (size_t i = 0; i < n; i++) {
			struct bench_line *l = &lines[i];

			if (l->size != size ||
			    strcmp(l->what->name, ratios[r].upper))
				continue;
			count[0] = 0;
			if (l->what->many)
				snprintf(count, sizeof(count), "%llu ",
					 (unsigned long long)l->ranges);
			if (compute_ratio(lines, n, r, l, &value))
				printf("  %9s  %s%s\n", "-", count,
				       ratios[r].title);
			else
				printf("  %9.2f  %s%s\n", value, count,
				       ratios[r].title);
		}
	}
}

void bench_report_table(const struct bench *b, struct bench_line *lines,
			size_t n)
{
	char text[RP_SIZE_LEN];

	bench_report_head(b);
	for (size_t s = 0; s < b->cfg->nsizes; s++) {
		printf("\n%-38s %7s", rp_size_format(b->cfg->sizes[s], text),
		       "samples");
		for (size_t i = 0; i < NRANKS; i++)
			printf(" %9s", ranks[i].name);
		printf("  us\n");
		for (size_t i = 0; i < n; i++)
			if (lines[i].size == b->cfg->sizes[s])
				print_line(lines, &lines[i]);
	}
	for (size_t s = 0;
	     b->cfg->mode & (BENCH_ALL | BENCH_WRITE) && s < b->cfg->nsizes;
	     s++)
		print_ratios(lines, n, b->cfg->sizes[s]);
	print_notes(lines, n);
}

json_t *bench_report_line(struct bench_line *l)
{
	json_t *o =
		json_pack("{s:s, s:I, s:I, s:I}", "name", l->what->name, "size",
			  (json_int_t)l->size, "ranges", (json_int_t)l->ranges,
			  "samples", (json_int_t)l->samples.n);
	uint64_t ns;

	for (size_t i = 0; o && i < NRANKS; i++)
		json_object_set_new(
			o, ranks[i].name,
			rp_samples_rank(&l->samples, ranks[i].permille, &ns)
				? json_null()
				: json_integer((json_int_t)ns));
	if (o)
		json_object_set_new(o, "note",
				    l->note[0] ? json_string(l->note)
					       : json_null());
	return o;
}

static json_t *json_ratios(struct bench_line *lines, size_t n)
{
	json_t *list = json_array();
	double value;

	for (size_t r = 0; r < NRATIOS; r++) {
		for (size_t i = 0; i < n; i++) {
			struct bench_line *l = &lines[i];

			if (strcmp(l->what->name, ratios[r].upper))
				continue;
			json_array_append_new(
				list,
				json_pack("{s:s, s:s, s:b, s:I, s:I, s:o}",
					  "upper", ratios[r].upper, "lower",
					  ratios[r].lower, "times_ranges",
					  ratios[r].each, "size",
					  (json_int_t)l->size, "ranges",
					  (json_int_t)l->ranges, "value",
					  compute_ratio(lines, n, r, l, &value)
						  ? json_null()
						  : json_real(value)));
		}
	}
	return list;
}

static json_t *json_commit(const struct bench *b)
{
	if (!b->attr.size)
		return json_pack("{s:n, s:n, s:s}", "class", "method", "why",
				 b->attr_why);
	return json_pack(
		"{s:s, s:s, s:i, s:s}", "class", rp_class_name(b->reached),
		"method", rp_method_name((enum rp_method)b->attr.method),
		"granularity", (int)b->attr.granularity, "why", b->attr_why);
}

json_t *bench_report_machine(void)
{
	char cpu[128], version[32];
	struct utsname u;
	uint32_t v = fi_version();

	cpu_model(cpu, sizeof(cpu));
	uname(&u);
	snprintf(version, sizeof(version), "%u.%u", FI_MAJOR(v), FI_MINOR(v));
	return json_pack("{s:s, s:i, s:s, s:s, s:s}", "cpu", cpu, "cpus",
			 (int)sysconf(_SC_NPROCESSORS_ONLN), "system",
			 u.sysname, "release", u.release, "libfabric", version);
}

int bench_report_write(json_t *root, const char *path, char *err)
{
	const bool to_stdout = !strcmp(path, "-");
	FILE *f;
	int ret = 0;

	if (!root)
		return rp_err(err, -ENOMEM, "the report cannot be made");
	f = to_stdout ? stdout : fopen(path, "we");
	if (!f || json_dumpf(root, f, JSON_INDENT(2)) || fputc('\n', f) < 0 ||
	    fflush(f))
		ret = rp_err(err, -EIO, "writing %s: %s", path,
			     strerror(errno));
	if (f && !to_stdout)
		fclose(f);
	json_decref(root);
	return ret;
}

int bench_report_json(const struct bench *b, struct bench_line *lines, size_t n,
		      char *err)
{
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, bench_report_line(&lines[i]));
	return bench_report_write(
		json_pack("{s:s, s:s, s:s, s:s, s:o, s:s, s:s, s:I, s:o, s:I, "
			  "s:o, s:o}",
			  "tool", "fi_rpmem_bench", "version", PACKAGE_VERSION,
			  "unit", "ns", "clock", "CLOCK_MONOTONIC", "machine",
			  bench_report_machine(), "base", bench_report_base(b),
			  "pool", b->pool.kind, "pool_bytes",
			  (json_int_t)b->pool.len, "commit", json_commit(b),
			  "seed", (json_int_t)b->cfg->seed, "lines", list,
			  "ratios", json_ratios(lines, n)),
		b->cfg->json, err);
}
