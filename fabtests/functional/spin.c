// SPDX-License-Identifier: BSD-2-Clause
/*
 * With a spin budget (FI_OFI_RPMEM_SPIN) a target polls between two requests
 * instead of sleeping. Voluntary context switches show its sleeps.
 */
#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "functional/pair.h"

enum {
	WRITES = 100,
	/* CPU time after which let_target_idle() takes a target for polling. */
	POLLING_NS = 2000000,
};

static struct {
	atomic_int target; /* pid */
	atomic_bool done;
	atomic_long slept; /* voluntary context switches */
} * seen;
static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;

/*
 * Count the sleeps of all threads except a sanitizer's, which wakes every 100
 * ms.
 */
static long count_sleeps(void)
{
	struct rusage r;
	long others = 0;
#ifdef __SANITIZE_THREAD__
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	others = t.tv_sec * 10 + t.tv_nsec / 100000000;
#endif
	getrusage(RUSAGE_SELF, &r);
	return r.ru_nvcsw - others;
}

static void run_target(struct side *s, const struct card *peer)
{
	long before, pauses = 0;

	atomic_store(&seen->target, getpid());
	side_insert(s, peer);
	pair_barrier(s);
	pair_barrier(s); /* the session is open */
	before = count_sleeps();
	while (!atomic_load(&seen->done))
		if (s->o.sleeps)
			fi_cq_sread(s->cq, &e, 1, NULL, 50);
		else
			pauses += !usleep(50000); /* the provider's thread
						   * serves */
	pauses += before;
	before = count_sleeps();
	atomic_store(&seen->slept, before > pauses ? before - pauses : 0);
	pair_barrier(s);
}

/* Do all threads of the process sleep? */
static bool all_sleep(pid_t pid)
{
	char path[64], line[512], *state;
	struct dirent *de;
	bool all = true;
	FILE *f;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	while (d && all && (de = readdir(d))) {
		if (*de->d_name == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/stat",
			 (int)pid, de->d_name);
		f = fopen(path, "r");
		state = f && fgets(line, sizeof(line), f) ? strrchr(line, ')')
							  : NULL;
		all = state && !strncmp(state, ") S", 3);
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return d && all;
}

static uint64_t processor_ns(clockid_t clock)
{
	struct timespec t;

	MUST(clock_gettime(clock, &t) ? -errno : 0);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/*
 * Wait until the target sleeps, or has used POLLING_NS of CPU time without
 * sleeping. While it waits for a CPU this time does not grow, so the machine's
 * load does not matter.
 */
static void let_target_idle(void)
{
	const pid_t pid = atomic_load(&seen->target);
	clockid_t clock;
	uint64_t since;

	MUST(-clock_getcpuclockid(pid, &clock));
	since = processor_ns(clock);
	while (!all_sleep(pid) && processor_ns(clock) - since < POLLING_NS)
		usleep(100); /* leave the CPU to the target */
}

static bool durable_write(struct side *s, const struct card *peer)
{
	static char bytes[64];
	struct iovec iov = {.iov_base = bytes, .iov_len = sizeof(bytes)};
	struct fi_rma_iov at = {
		.addr = peer->pool_addr,
		.len = sizeof(bytes),
		.key = peer->pool_key,
	};
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = &at,
		.rma_iov_count = 1,
	};

	POST(s, fi_writemsg(s->ep, &msg, FI_COMMIT_COMPLETE));
	return side_wait(s, &e, &err);
}

static void run_initiator(struct side *s, const struct card *peer)
{
	bool ok = true;

	side_insert(s, peer);
	pair_barrier(s);
	ok &= durable_write(s, peer);
	pair_barrier(s);
	for (int i = 0; i < WRITES; i++) {
		ok &= durable_write(s, peer);
		let_target_idle();
	}
	atomic_store(&seen->done, true);
	pair_barrier(s);
	MUST(ok ? 0 : -FI_EIO);
}

static long run_pair(const char *us, bool automatic)
{
	const struct pair_opts to = {
		.progress = automatic ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL,
		.sleeps = !automatic,
	};
	const struct pair_opts from = {0};
	pid_t pid = fork();
	int st = 1;

	if (!pid) {
		/*
		 * In a child, because the provider reads the variable only
		 * once, when libfabric loads it.
		 */
		setenv("FI_OFI_RPMEM_SPIN", us, 1);
		memset(seen, 0, sizeof(*seen));
		pair_run(&to, &from, run_target, run_initiator);
		exit(0);
	}
	if (pid < 0 || waitpid(pid, &st, 0) < 0 || st)
		return -1;
	return atomic_load(&seen->slept);
}

static void compare_sleeps(const char *who, bool automatic)
{
	/* 60 s: no request takes that long, even under load. */
	const long without = run_pair("0", automatic);
	const long with = run_pair("60000000", automatic);

	tap_ok(without > WRITES / 2, "%s: it slept %ld times", who, without);
	/* Waits for a lock are counted as sleeps, too: allow some. */
	tap_ok(with >= 0 && with < without / 2,
	       "%s: %ld times with a spin budget", who, with);
}

int main(void)
{
	char path[] = "/dev/shm/spin.XXXXXX";

	if (!pair_on_tmpfs(path))
		return 77;
	setenv("FI_OFI_RPMEM_METHOD", "agent-clwb", 1);
	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (seen == MAP_FAILED)
		return 1;
	compare_sleeps("in fi_cq_sread()", false);
	compare_sleeps("a thread of the provider's", true);
	unlink(path);
	return tap_done();
}
