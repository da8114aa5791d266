// SPDX-License-Identifier: BSD-2-Clause
/*
 * A hostile peer next to an honest one: after each attack the target lives,
 * serves the honest peer, and has kept its protected bytes, memory and
 * descriptors.
 */
#include "config.h"

#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fault/hostile.h"

/* Longest time that a commit of the honest initiator may take. */
#define SLOW_NS 5000000000ull
/*
 * Limit of the growth of the target's memory, after one attack and at the end.
 */
#define MORE_RSS (64u << 20)

struct world *world;
static const char *only;
static int rounds = 1;
static pid_t target, honest;

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t rng_state;

void rnd_seed(uint64_t seed)
{
	rng_state = seed;
}

uint64_t rnd(void)
{
	uint64_t z = (rng_state += 0x9e3779b97f4a7c15ull);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static pid_t start_target(void)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		MUST(-errno);
	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static void pause_5ms(void)
{
	struct timespec t = {.tv_nsec = 5000000};

	nanosleep(&t, NULL);
}

/* Let the target audit itself. Returns false if it does not respond. */
static bool target_audits_itself(struct audit *a)
{
	uint64_t end = now_ns() + 2 * SLOW_NS;
	unsigned int due = atomic_fetch_add(&world->audits_due, 1) + 1;

	while (atomic_load(&world->audits) < due) {
		if (waitpid(target, NULL, WNOHANG) || now_ns() > end)
			return false;
		pause_5ms();
	}
	*a = world->audit;
	return true;
}

/*
 * Run one attack in its own process. Returns NULL, or the damage found
 * afterwards.
 */
static const char *run_attack(const struct attack *at,
			      const struct audit *before)
{
	static char text[300];
	uint64_t commits, failed, limit, begun, t = now_ns();
	struct audit a;
	int status = 0;
	pid_t pid;

	atomic_store(&world->sent, 0);
	atomic_store(&world->answers, 0);
	atomic_store(&world->slowest, 0);
	*world->says = 0;
	world->most_fds = 0;
	commits = atomic_load(&world->commits);
	failed = atomic_load(&world->failed);
	limit = t + (world->sanitized ? 120 : 60) * 1000000000ull;

	pid = start_target();
	if (!pid) {
		at->run();
		_exit(0);
	}
	while (!waitpid(pid, &status, WNOHANG)) {
		begun = atomic_load(&world->begun);
		if (begun && now_ns() > begun + 3 * SLOW_NS)
			break;
		if (now_ns() > limit)
			break;
		pause_5ms();
	}
	if (!WIFEXITED(status) || kill(pid, 0) == 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		return "the hostile peer itself did not end";
	}
	/*
	 * Wait for one more honest commit: an attack may be shorter than a
	 * commit.
	 */
	limit = now_ns() + 3 * SLOW_NS;
	while (atomic_load(&world->commits) == commits && now_ns() < limit)
		pause_5ms();
	if (!target_audits_itself(&a))
		return "the target died or hangs";
	printf("# %-32s %6llu messages, %5llu replies, %5llu honest commits, "
	       "slowest %4llu ms, %u fds, at most %u, %3llu MiB, %.1f s\n",
	       at->name, (unsigned long long)atomic_load(&world->sent),
	       (unsigned long long)atomic_load(&world->answers),
	       (unsigned long long)(atomic_load(&world->commits) - commits),
	       (unsigned long long)atomic_load(&world->slowest) / 1000000,
	       a.fds, world->most_fds, (unsigned long long)a.rss >> 20,
	       (double)(now_ns() - t) * 1e-9);
#define WRONG(cond, ...)                                                       \
	do {                                                                   \
		if (cond) {                                                    \
			snprintf(text, sizeof(text), __VA_ARGS__);             \
			return text;                                           \
		}                                                              \
	} while (0)
	WRONG(*world->says, "%s", world->says);
	WRONG(status, "the hostile peer ended with status %#x", status);
	WRONG(atomic_load(&world->failed) != failed,
	      "an honest commit failed with status %u",
	      atomic_load(&world->status));
	WRONG(atomic_load(&world->commits) == commits,
	      "no honest commit meanwhile");
	WRONG(atomic_load(&world->slowest) > SLOW_NS,
	      "an honest commit took too long");
	WRONG(a.changed, "%llu protected bytes changed",
	      (unsigned long long)a.changed);
	WRONG(a.flushed_elsewhere, "%llu flushes outside of all regions",
	      (unsigned long long)a.flushed_elsewhere);
	WRONG(atomic_load(&world->seen), "the target's program saw something");
	WRONG(atomic_load(&world->honest_seen),
	      "the honest program saw something");
	WRONG(!atomic_load(&world->sent), "nothing was sent");
	/*
	 * Sessions may use 3/4 of the descriptors; the rest is the program's.
	 */
	WRONG(world->most_fds > TARGET_FDS / 4 * 3 + 16,
	      "%u descriptors, %u before", world->most_fds, before->fds);
	WRONG(!world->sanitized && a.rss > before->rss + MORE_RSS,
	      "%llu bytes, %llu before", (unsigned long long)a.rss,
	      (unsigned long long)before->rss);
	return NULL;
}

static bool ended_well(pid_t pid)
{
	uint64_t end = now_ns() + 6 * SLOW_NS;
	int status;

	while (!waitpid(pid, &status, WNOHANG)) {
		if (now_ns() > end) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return false;
		}
		pause_5ms();
	}
	return !status;
}

static bool target_ready(void)
{
	uint64_t end = now_ns() + 6 * SLOW_NS;

	while (now_ns() < end) {
		if (atomic_load(&world->commits) > 20)
			return true;
		pause_5ms();
	}
	return false;
}

static const struct argp_option options[] = {
	{"base", 'b', "NAME", 0, "base provider (tcp)", 0},
	{"seed", 's', "N", 0, "repeat a run", 0},
	{"only", 'o', "TEXT", 0, "attacks whose name has TEXT", 0},
	{"rounds", 'r', "N", 0, "each attack N times (1; with RP_LONG 50)", 0},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *st)
{
	switch (key) {
	case 'b':
		snprintf(world->base, sizeof(world->base), "%s", arg);
		break;
	case 's':
		world->seed = strtoull(arg, NULL, 0);
		break;
	case 'o':
		only = arg;
		break;
	case 'r':
		rounds = atoi(arg);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* Run all attacks of a list. Returns false if the target has died. */
static bool run_attacks(const struct attack *at, const struct audit *before,
			uint64_t round)
{
	const char *bad;

	for (uint64_t i = 0; at->name; at++, i++) {
		if (only && !strstr(at->name, only))
			continue;
		rnd_seed(world->seed + round * 1000 + i);
		bad = run_attack(at, before);
		tap_ok(!bad, "%s%s%s", at->name, bad ? ": " : "",
		       bad ? bad : "");
		if (waitpid(target, NULL, WNOHANG))
			return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	const struct argp argp = {
		.options = options,
		.parser = parse,
		.doc = "What a hostile peer can do to a target.",
	};
	struct audit before = {0}, after = {0};
	bool audited;
	char pools[64], path[80];

	world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (world == MAP_FAILED)
		MUST(-errno);
	world->seed = (uint64_t)time(NULL) * 1000 + (uint64_t)getpid() % 1000;
	strcpy(world->base, "tcp");
	world->sanitized = getenv("RP_SANITIZE") && *getenv("RP_SANITIZE");
	if (getenv("RP_LONG") && !strcmp(getenv("RP_LONG"), "1"))
		rounds = 50;
	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	printf("# --seed %llu\n", (unsigned long long)world->seed);
	setenv("FI_OFI_RPMEM_EMULATE", "1", 1);

	snprintf(pools, sizeof(pools), "./hostile_pool.%d", getpid());
	atomic_store(&world->audits_due, 1);
	target = start_target();
	if (!target)
		target_run(pools);
	while (!atomic_load(&world->audits)) {
		if (waitpid(target, NULL, WNOHANG))
			MUST(-ECHILD);
		pause_5ms();
	}
	honest = start_target();
	if (!honest)
		honest_run();
	tap_ok(target_ready(), "the honest initiator is served");
	audited = target_audits_itself(&before);
	tap_ok(audited, "the target audits itself");
	if (!audited)
		goto out;

	for (int r = 0; r < rounds; r++)
		if (!run_attacks(message_attacks, &before, (uint64_t)r) ||
		    !run_attacks(connect_attacks, &before, (uint64_t)r))
			goto out;
	/*
	 * Wait until the target has dropped half-open sessions and noticed lost
	 * connections.
	 */
	for (int i = 0; i < 60; i++) {
		struct timespec t = {.tv_nsec = 200000000};

		audited = target_audits_itself(&after);
		if (!audited || (i > 30 && after.fds <= before.fds + 4))
			break;
		nanosleep(&t, NULL);
	}
	tap_ok(audited, "the target audits itself at the end");
	tap_ok(after.fds <= before.fds + 4,
	       "%u descriptors at the end, %u before", after.fds, before.fds);
	tap_ok(world->sanitized || after.rss <= before.rss + MORE_RSS,
	       "%llu KiB at the end, %llu before",
	       (unsigned long long)after.rss >> 10,
	       (unsigned long long)before.rss >> 10);
	tap_ok(atomic_load(&world->msyncs) > 0, "the test saw %llu msyncs",
	       (unsigned long long)atomic_load(&world->msyncs));
out:
	atomic_store(&world->stop, true);
	tap_ok(ended_well(honest), "the honest initiator exits with 0");
	tap_ok(ended_well(target), "the target exits with 0");
	for (int i = 0; i < R_COUNT; i++) {
		snprintf(path, sizeof(path), "%s.%d", pools, i);
		unlink(path);
	}
	return tap_done();
}
