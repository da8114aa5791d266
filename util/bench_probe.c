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

#include "util/bench.h"
#include "util/exits.h"

#define DSO	"librpmem-fi.so"
#define WARM_UP 64
#define WRITES	256
#define SIZE	64
#define LIMIT	180 /* seconds under valgrind */

/*
 * Two functions that callgrind knows by name: only what runs inside them is
 * counted. They are not static, so that their names are kept.
 */
__attribute__((noinline)) ssize_t bench_probe_post(struct bench *b,
						   struct bench_end *e);
__attribute__((noinline)) ssize_t bench_probe_read(struct bench_end *e);

ssize_t bench_probe_post(struct bench *b, struct bench_end *e)
{
	size_t taken = 0;

	/* By hand only: the metric is of plain writes. */
	if (b->cfg->durable)
		return bench_post(b, e, 0, SIZE,
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

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Under valgrind: write, wait until it is there, read it. */
int bench_probe_run(struct bench *b, char *err)
{
	struct bench_end *e = &b->end[BENCH_OURS];
	uint64_t empty = 0;
	size_t taken;
	ssize_t n;
	int ret = bench_start(b, err);

	if (ret)
		return ret;
	if (!e->ok)
		return rp_err(err, -ENODEV, "%s", e->why);
	if (!b->cfg->persistent) {
		e->key = b->shared->volatile_key;
		e->addr = b->shared->volatile_addr;
	}
	atomic_store(&b->shared->mode, BENCH_OURS);
	for (int i = 0; !ret && i < WARM_UP; i++) {
		taken = 0;
		ret = bench_post(b, e, 0, SIZE, FI_COMPLETION, &taken, err);
		if (!ret && !taken)
			ret = bench_take(e, 1, err);
	}
	for (int i = 0; !ret && i < WRITES; i++) {
		n = bench_probe_post(b, e);
		if (n) {
			ret = rp_err(err, (int)n, "fi_write: %s",
				     fi_strerror((int)-n));
			break;
		}
		/* Long enough for the answer: a read finds it at once. */
		for (nap(); (n = bench_probe_read(e)) == -FI_EAGAIN; nap())
			empty++;
		if (n != 1)
			ret = rp_err(err, (int)n, "fi_cq_read: %s",
				     fi_strerror((int)-n));
	}
	if (ret)
		return ret;
	printf("writes %d empty %llu\n", WRITES, (unsigned long long)empty);
	return RP_EXIT_OK;
}

/*
 * The sum of self costs in our DSO. The file has "ob=" before the costs of an
 * object, and behind "calls=" one line that is the callee's.
 */
static int sum_costs(const char *path, double *sum)
{
	FILE *f = fopen(path, "re");
	bool ours = false, callee = false, seen = false;
	char line[4096], *space;

	if (!f)
		return -errno;
	*sum = 0;
	while (fgets(line, sizeof(line), f)) {
		if (!strncmp(line, "ob=", 3)) {
			ours = strstr(line, DSO);
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

static int spawn(const struct bench *b, const char *dir, bool persistent,
		 pid_t *child)
{
	char out[256], stdouts[256], exe[1024];
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	int fd;

	if (len < 0)
		return -errno;
	exe[len] = 0;
	snprintf(out, sizeof(out), "--callgrind-out-file=%s/cg.%%p", dir);
	snprintf(stdouts, sizeof(stdouts), "%s/stdout", dir);
	*child = fork();
	if (*child < 0)
		return -errno;
	if (*child)
		return 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fd = open(stdouts, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	execlp("valgrind", "valgrind", "--tool=callgrind", out,
	       "--collect-atstart=no", "--toggle-collect=bench_probe_post",
	       "--toggle-collect=bench_probe_read", "--compress-strings=no",
	       "--compress-pos=no", exe, "probe", "--emulate", "--base",
	       b->cfg->base, persistent ? "--persistent" : NULL, NULL);
	_exit(127);
}

/* The outcome of the probe, in its own words if it failed. */
static int outcome(const char *dir, int status, double *writes, uint64_t *empty,
		   char *err)
{
	char path[256], line[RP_ERR_LEN], last[RP_ERR_LEN] = "";
	unsigned long long e;
	bool found = false;
	int w;
	FILE *f;

	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return rp_err(err, -ENOENT, "valgrind is not here");
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

int bench_instructions(const struct bench *b, bool persistent, double *each,
		       uint64_t *empty, char *err)
{
	char dir[] = "./fi_rpmem_bench.XXXXXX", path[256];
	double sum = 0, writes = 0;
	int status = 0, ret;
	pid_t child = -1;

	if (!mkdtemp(dir))
		return rp_err(err, -errno, "a folder for callgrind: %s",
			      strerror(errno));
	ret = spawn(b, dir, persistent, &child);
	if (ret) {
		rp_err(err, ret, "valgrind: %s", strerror(-ret));
		goto remove;
	}
	for (int ms = 0; waitpid(child, &status, WNOHANG) != child; ms++) {
		if (ms > LIMIT * 1000) {
			kill(child, SIGKILL);
			waitpid(child, NULL, 0);
			ret = rp_err(err, -ETIMEDOUT,
				     "callgrind took more than %d s", LIMIT);
			goto remove;
		}
		nap();
	}
	ret = outcome(dir, status, &writes, empty, err);
	if (ret)
		goto remove;
	snprintf(path, sizeof(path), "%s/cg.%d", dir, (int)child);
	ret = sum_costs(path, &sum);
	if (ret)
		rp_err(err, ret, "callgrind counted nothing in " DSO);
	else
		*each = sum / writes;
remove:
	remove_all(dir);
	return ret;
}
