// SPDX-License-Identifier: BSD-2-Clause
/* Instructions that the provider adds to a write, counted by callgrind. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fabtests/benchmarks/bench.h"
#include "util/exit_codes.h"

#define DSO	   "librpmem-fi.so"
#define WARM_UP	   64
#define WRITES	   256
#define SIZE	   64
#define LIMIT	   180 /* seconds under valgrind */
#define SLOW_LIMIT 900 /* seconds on an emulated machine */

/*
 * callgrind counts only what runs inside these two functions. The functions are
 * not static, because callgrind finds them by name.
 */
__attribute__((noinline)) ssize_t bench_probe_post(struct bench *b,
						   struct bench_end *e);
__attribute__((noinline)) ssize_t bench_probe_read(struct bench_end *e);

ssize_t bench_probe_post(struct bench *b, struct bench_end *e)
{
	size_t taken = 0;

	if (b->cfg->rival >= 0)
		return rivals[b->cfg->rival]->put(b->rival[b->cfg->rival],
						  b->buf, 0, b->cfg->sizes[0],
						  NULL);
	if (b->cfg->durable)
		return bench_post(b, e, 0, b->cfg->sizes[0],
				  FI_COMMIT_COMPLETE | FI_COMPLETION, &taken,
				  NULL);
	return fi_write(e->f.ep, b->buf, SIZE, rp_fabric_desc(e->mr), e->peer,
			e->addr, e->key, NULL);
}

ssize_t bench_probe_read(struct bench_end *e)
{
	struct fi_cq_entry done;

	return fi_cq_read(e->f.cq, &done, 1);
}

static void sleep_1ms(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/*
 * Sleep until the reply should have arrived, because a read that finds no
 * completion is counted, too. Emulated machines need longer.
 */
static void wait_for_reply(const struct bench *b)
{
	for (int i = 0; i < (b->cfg->node ? 20 : 1); i++)
		sleep_1ms();
}

/*
 * Write a mark for a kernel trace: events up to the next mark belong to this
 * write.
 */
static int write_mark(const struct bench *b, const char *what, char *err)
{
	static int fd = -1;
	const char *path = b->cfg->mark;

	if (!path)
		return 0;
	if (fd < 0)
		fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || dprintf(fd, "%s %llu %llu\n", what,
			      (unsigned long long)b->end[BENCH_RPMEM].addr,
			      (unsigned long long)b->cfg->sizes[0]) < 0)
		return rp_err(err, -errno, "%s: %s", path, strerror(errno));
	return 0;
}

/* Probe a rival: its put() sleeps, and returns when the write is durable. */
static int probe_rival(struct bench *b, char *err)
{
	int i = b->cfg->rival, ret = 0;

	if (!b->rival[i])
		return rp_err(err, -ENODEV, "%s", b->shared->rival[i].why);
	atomic_store(&b->shared->mode, BENCH_RIVAL + i);
	for (int n = 0; !ret && n < WARM_UP; n++)
		ret = rivals[i]->put(b->rival[i], b->buf, 0, b->cfg->sizes[0],
				     err);
	for (int n = 0; !ret && n < WRITES; n++)
		ret = (int)bench_probe_post(b, NULL);
	if (ret)
		return ret;
	printf("writes %d empty 0\n", WRITES);
	return RP_EXIT_OK;
}

/*
 * The program that runs under valgrind: post a write, wait, read its
 * completion.
 */
int bench_probe_run(struct bench *b, char *err)
{
	struct bench_end *e = &b->end[BENCH_RPMEM];
	uint64_t empty = 0;
	size_t taken;
	ssize_t n;
	int ret = bench_start(b, err);

	if (ret)
		return ret;
	if (b->cfg->rival >= 0)
		return probe_rival(b, err);
	if (!e->ok)
		return rp_err(err, -ENODEV, "%s", e->why);
	if (!b->cfg->persistent) {
		e->key = b->shared->volatile_key;
		e->addr = b->shared->volatile_addr;
	}
	atomic_store(&b->shared->mode, BENCH_RPMEM);
	for (int i = 0; !ret && i < WARM_UP; i++) {
		taken = 0;
		ret = bench_post(
			b, e, 0, b->cfg->sizes[0],
			FI_COMPLETION |
				(b->cfg->durable ? FI_COMMIT_COMPLETE : 0),
			&taken, err);
		if (!ret && !taken)
			ret = bench_read_cq(e, 1, err);
	}
	for (int i = 0; !ret && i < WRITES; i++) {
		ret = write_mark(b, "durable", err);
		if (ret)
			break;
		n = bench_probe_post(b, e);
		if (n) {
			ret = rp_err(err, (int)n, "fi_write: %s",
				     fi_strerror((int)-n));
			break;
		}
		/* Wait first, so that one read finds the completion. */
		for (wait_for_reply(b); (n = bench_probe_read(e)) == -FI_EAGAIN;
		     sleep_1ms())
			empty++;
		if (n != 1)
			ret = rp_err(err, (int)n, "fi_cq_read: %s",
				     fi_strerror((int)-n));
	}
	if (!ret)
		ret = write_mark(b, "over", err);
	if (ret)
		return ret;
	printf("writes %d empty %llu\n", WRITES, (unsigned long long)empty);
	return RP_EXIT_OK;
}

/*
 * Sum of self costs in a DSO, or in the whole program (NULL). In the file,
 * "ob=" precedes the costs of an object, and the line after "calls=" is the
 * cost of the callee.
 */
static int sum_costs(const char *path, const char *dso, double *sum)
{
	FILE *f = fopen(path, "re");
	bool ours = !dso, callee = false, seen = false;
	char line[4096], *space;

	if (!f)
		return -errno;
	*sum = 0;
	while (fgets(line, sizeof(line), f)) {
		if (!strncmp(line, "ob=", 3)) {
			ours = !dso || strstr(line, dso);
			seen |= ours;
		} else if (!strncmp(line, "calls=", 6)) {
			callee = true;
		} else if (line[0] >= '0' && line[0] <= '9') {
			space = strchr(line, ' ');
			if (ours && !callee && space)
				*sum += strtod(space, NULL);
			callee = false;
		}
	}
	fclose(f);
	return seen ? 0 : -ENODATA;
}

/* Parameters of one callgrind run. */
struct probe {
	bool persistent, durable;
	int rival; /* -1: the provider */
	uint64_t size;
};

#define MAX_ARGS 32 /* including the final NULL */

static void add_arg(const char **argv, int *n, const char *option,
		    const char *value)
{
	if (!value)
		return;
	argv[(*n)++] = option;
	argv[(*n)++] = value;
}

static int spawn_probe(const struct bench *b, const char *dir,
		       const struct probe *p, pid_t *child)
{
	char out[256], stdouts[256], exe[1024], size[24], rival[24];
	const char *argv[MAX_ARGS] = {
		"valgrind",
		"--tool=callgrind",
		out,
		"--collect-atstart=no",
		"--toggle-collect=bench_probe_post",
		"--toggle-collect=bench_probe_read",
		"--compress-strings=no",
		"--compress-pos=no",
		exe,
		"probe",
	};
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	int fd, n = 10;

	if (len < 0)
		return -errno;
	exe[len] = 0;
	snprintf(out, sizeof(out), "--callgrind-out-file=%s/cg.%%p", dir);
	snprintf(stdouts, sizeof(stdouts), "%s/stdout", dir);
	snprintf(size, sizeof(size), "%llu", (unsigned long long)p->size);
	snprintf(rival, sizeof(rival), "%d", p->rival);
	add_arg(argv, &n, "--base", b->cfg->base);
	add_arg(argv, &n, "--sizes", size);
	add_arg(argv, &n, "--address", b->cfg->node);
	add_arg(argv, &n, "--dax", b->cfg->dax);
	add_arg(argv, &n, "--method", b->cfg->method);
	add_arg(argv, &n, "--rival", p->rival < 0 ? NULL : rival);
	if (!b->cfg->dax)
		argv[n++] = "--emulate";
	if (p->persistent)
		argv[n++] = "--persistent";
	if (p->durable)
		argv[n++] = "--durable";
	*child = fork();
	if (*child < 0)
		return -errno;
	if (*child)
		return 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fd = open(stdouts, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	execvp("valgrind", (char *const *)argv);
	_exit(127);
}

/* Parse the output of the probe; a failure is its last line. */
static int parse_output(const char *dir, int status, double *writes,
			uint64_t *empty, char *err)
{
	char path[256], line[RP_ERR_LEN], last[RP_ERR_LEN] = "";
	unsigned long long e;
	bool found = false;
	int w;
	FILE *f;

	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return rp_err(err, -ENOENT, "valgrind is not installed");
	snprintf(path, sizeof(path), "%s/stdout", dir);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		if (sscanf(line, "writes %d empty %llu", &w, &e) == 2) {
			*writes = w;
			*empty = e;
			found = true;
		} else if (line[0] && line[0] != '=') {
			memcpy(last, line, sizeof(last));
		}
	}
	if (f)
		fclose(f);
	if (found && WIFEXITED(status) && !WEXITSTATUS(status))
		return 0;
	return rp_err(err, -EIO, "under callgrind: %.400s",
		      last[0] ? last : "nothing was counted");
}

static void remove_all(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
	rmdir(dir);
}

static int count_instructions(const struct bench *b, const struct probe *p,
			      const char *dso, int limit, double *each,
			      uint64_t *empty, char *err)
{
	char dir[] = "./fi_rpmem_bench.XXXXXX", path[256];
	double sum = 0, writes = 0;
	int status = 0, ret;
	pid_t child = -1;

	if (!mkdtemp(dir))
		return rp_err(err, -errno, "a folder for callgrind: %s",
			      strerror(errno));
	ret = spawn_probe(b, dir, p, &child);
	if (ret) {
		rp_err(err, ret, "valgrind: %s", strerror(-ret));
		goto remove;
	}
	for (int ms = 0; waitpid(child, &status, WNOHANG) != child; ms++) {
		if (ms > limit * 1000) {
			kill(child, SIGKILL);
			waitpid(child, NULL, 0);
			ret = rp_err(err, -ETIMEDOUT,
				     "callgrind took more than %d s", limit);
			goto remove;
		}
		sleep_1ms();
	}
	ret = parse_output(dir, status, &writes, empty, err);
	if (ret)
		goto remove;
	snprintf(path, sizeof(path), "%s/cg.%d", dir, (int)child);
	ret = sum_costs(path, dso, &sum);
	if (ret)
		rp_err(err, ret, "callgrind counted nothing%s%s",
		       dso ? " in " : "", dso ? dso : "");
	else
		*each = sum / writes;
remove:
	remove_all(dir);
	return ret;
}

int bench_instructions(const struct bench *b, bool persistent, double *each,
		       uint64_t *empty, char *err)
{
	const struct probe p = {
		.persistent = persistent, .rival = -1, .size = SIZE};

	return count_instructions(b, &p, DSO, LIMIT, each, empty, err);
}

int bench_instructions_durable(const struct bench *b, int rival, uint64_t size,
			       double *each, uint64_t *empty, char *err)
{
	const struct probe p = {
		.persistent = true,
		.durable = true,
		.rival = rival,
		.size = size,
	};

	return count_instructions(b, &p, NULL, SLOW_LIMIT, each, empty, err);
}
