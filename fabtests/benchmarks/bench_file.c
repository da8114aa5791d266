// SPDX-License-Identifier: BSD-2-Clause
/* Durable write to a file, for the suite: runs fi_rpmem_bench file. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "fabtests/benchmarks/bench.h"

#define MAX_ARGS 20 /* including the final NULL */
#define PART	 15 /* runs for 1/15 of the suite's seconds */

/*
 * A separate process is needed because the provider reads the class once. The
 * suite's commits are of class none (emulated pool), and with class none a
 * commit of a file would be by delivery.
 */
static void run_child(const struct bench *b, const char *json)
{
	char exe[1024], pool[1024], iterations[24], seconds[24], seed[24];
	char cpus[48];
	const struct bench_cfg *cfg = b->cfg;
	const char *argv[MAX_ARGS] = {exe, "file", "--json", json};
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	int n = 4, fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	exe[len > 0 ? len : 0] = 0;
	snprintf(iterations, sizeof(iterations), "%llu",
		 (unsigned long long)cfg->iterations);
	snprintf(seconds, sizeof(seconds), "%llu",
		 (unsigned long long)cfg->seconds / PART + 1);
	snprintf(seed, sizeof(seed), "%llu", (unsigned long long)cfg->seed);
	argv[n++] = "--base";
	argv[n++] = cfg->base;
	argv[n++] = "--iterations";
	argv[n++] = iterations;
	argv[n++] = "--seconds";
	argv[n++] = seconds;
	argv[n++] = "--seed";
	argv[n++] = seed;
	if (cfg->pool) { /* the suite uses the file cfg->pool */
		snprintf(pool, sizeof(pool), "%s.file", cfg->pool);
		argv[n++] = "--pool";
		argv[n++] = pool;
	}
	if (cfg->pin) {
		snprintf(cpus, sizeof(cpus), "%u,%u", cfg->cpu[0], cfg->cpu[1]);
		argv[n++] = "--pin";
		argv[n++] = cpus;
	}
	unsetenv("FI_OFI_RPMEM_CLASS");
	unsetenv("FI_OFI_RPMEM_EMULATE");
	dup2(fd, STDOUT_FILENO);
	execv(exe, (char *const *)argv);
	_exit(127);
}

static int median_of(json_t *root, const char *name, double *ns, char *err)
{
	json_t *l, *p50, *note;
	size_t i;

	json_array_foreach(json_object_get(root, "lines"), i, l)
	{
		const char *is = json_string_value(json_object_get(l, "name"));

		if (!is || strcmp(is, name))
			continue;
		p50 = json_object_get(l, "p50");
		note = json_object_get(l, "note");
		*ns = json_number_value(p50);
		if (*ns > 0)
			return 0;
		return rp_err(err, -ENODATA, "%s: %s", name,
			      json_is_string(note) ? json_string_value(note)
						   : "no samples");
	}
	return rp_err(err, -ENODATA, "%s: not measured", name);
}

static int read_report(const char *path, struct bench_file *f, char *err)
{
	json_t *root = json_load_file(path, 0, NULL), *commit, *why;
	const char *method;
	int ret;

	if (!root)
		return rp_err(err, -ENODATA, "fi_rpmem_bench file failed");
	commit = json_object_get(root, "commit");
	method = json_string_value(json_object_get(commit, "method"));
	why = json_object_get(commit, "why");
	if (!method || strcmp(method, "agent-msync"))
		ret = rp_err(err, -ENODATA,
			     "the file's commits are by %s, not by "
			     "agent-msync: %s",
			     method ? method : "no method",
			     json_is_string(why) ? json_string_value(why)
						 : "unknown");
	else
		ret = median_of(root, "write_commit_flag", &f->write, err);
	if (!ret)
		ret = median_of(root, "msync", &f->msync, err);
	if (!ret)
		ret = median_of(root, "base_pingpong", &f->trip, err);
	json_decref(root);
	return ret;
}

int bench_file_run(const struct bench *b, struct bench_file *f, char *err)
{
	char json[] = "./fi_rpmem_bench.XXXXXX";
	int fd = mkostemp(json, O_CLOEXEC), ret;
	pid_t pid;

	if (fd < 0)
		return rp_err(err, -errno, "%s: %s", json, strerror(errno));
	close(fd);
	fflush(NULL);
	pid = fork();
	if (!pid)
		run_child(b, json);
	if (pid < 0 || waitpid(pid, NULL, 0) != pid)
		ret = rp_err(err, -errno, "fork: %s", strerror(errno));
	else
		ret = read_report(json, f, err);
	unlink(json);
	return ret;
}
