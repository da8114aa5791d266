// SPDX-License-Identifier: BSD-2-Clause
/* Plots of fi_rpmem_bench, drawn by gnuplot if it is installed. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/benchmarks/bench.h"

struct curve {
	const char *name, *title;
	size_t points;
};

/* Write the medians of a case by size, or by number of initiators. */
static void write_data(FILE *f, struct bench_line *lines, size_t n,
		       struct curve *c, bool rate)
{
	uint64_t last = 0, next = 0, ns;

	fprintf(f, "$%s << EOD\n", c->name);
	for (;; last = next) {
		struct bench_line *best = NULL;

		for (size_t i = 0; i < n; i++) {
			uint64_t x = rate ? lines[i].ranges : lines[i].size;

			if (strcmp(lines[i].what->name, c->name) || x <= last ||
			    (best && x >= next))
				continue;
			best = &lines[i];
			next = x;
		}
		if (!best)
			break;
		if (rp_samples_rank(&best->samples, 500, &ns) || !ns)
			continue;
		fprintf(f, "%llu %g\n", (unsigned long long)next,
			rate ? 1e6 / (double)ns : (double)ns / 1000);
		c->points++;
	}
	fprintf(f, "EOD\n");
}

static void write_plot(FILE *f, struct bench_line *lines, size_t n,
		       const char *png, bool rate, struct curve *c,
		       size_t curves)
{
	const char *how = "plot";

	fprintf(f,
		"set terminal png noenhanced size 900,600\nset output '%s'\n"
		"set logscale x 2\nset grid\nset key left top\n"
		"set xlabel '%s'\nset ylabel '%s'\n%s logscale y\n"
		"set format x '%s'\n",
		png, rate ? "initiators" : "bytes",
		rate ? "thousands of writes per second" : "us, median",
		rate ? "unset" : "set", rate ? "%g" : "%.0f");
	for (size_t i = 0; i < curves; i++)
		write_data(f, lines, n, &c[i], rate);
	for (size_t i = 0; i < curves; i++) {
		if (!c[i].points)
			continue;
		fprintf(f, "%s $%s using 1:2 with linespoints title '%s'", how,
			c[i].name, c[i].title);
		how = ",";
	}
	fprintf(f, "\nunset output\n");
}

/* Run gnuplot. Returns its exit code; 127: not installed. */
static int run_gnuplot(const char *script)
{
	int status;
	pid_t child = fork();

	if (!child) {
		execlp("gnuplot", "gnuplot", script, NULL);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void bench_plot(const char *json, struct bench_line *lines, size_t n)
{
	struct curve by_size[] = {
		{"write_commit_flag", "write with FI_COMMIT_COMPLETE", 0},
		{"base_write", "base: delivery complete", 0},
		{"handwritten", "by hand: write, request, clwb, ack", 0},
		{"msg_commit", "tcp EP_MSG: FI_COMMIT_COMPLETE", 0},
	};
	struct curve by_count[] = {
		{"initiators", "FI_COMMIT_COMPLETE", 0},
		{"base_initiators", "base: delivery complete", 0},
	};
	char png[2][4096];
	size_t stem = strlen(json);
	char script[] = "./fi_rpmem_bench.XXXXXX";
	int fd, ret;
	FILE *f;

	if (!strcmp(json, "-")) {
		fprintf(stderr, "no plots: the report has no file name\n");
		return;
	}
	if (stem > 5 && !strcmp(json + stem - 5, ".json"))
		stem -= 5;
	snprintf(png[0], sizeof(png[0]), "%.*s-latency.png", (int)stem, json);
	snprintf(png[1], sizeof(png[1]), "%.*s-rate.png", (int)stem, json);
	if (strchr(png[0], '\'')) {
		fprintf(stderr,
			"no plots: the report's name contains a quote\n");
		return;
	}
	fd = mkostemp(script, O_CLOEXEC);
	f = fd >= 0 ? fdopen(fd, "w") : NULL;
	if (!f) {
		fprintf(stderr, "no plots: %s: %s\n", script, strerror(errno));
		if (fd >= 0)
			close(fd);
		return;
	}
	write_plot(f, lines, n, png[0], false, by_size, 4);
	write_plot(f, lines, n, png[1], true, by_count, 2);
	fclose(f);
	ret = run_gnuplot(script);
	unlink(script);
	if (ret == 127)
		fprintf(stderr, "no plots: gnuplot is not installed\n");
	else if (ret)
		fprintf(stderr, "plots are missing: gnuplot failed\n");
	else
		fprintf(stderr, "plots: %s, %s\n", png[0], png[1]);
}
