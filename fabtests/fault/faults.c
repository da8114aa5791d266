// SPDX-License-Identifier: BSD-2-Clause
/*
 * Faults of all kinds, one at a time and then at random: no acknowledged write
 * is lost, and every operation completes.
 */
#include "config.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/status.h"
#include "fault/faults.h"

struct world *world;
static pid_t pid_of[SIDES];
static unsigned int turn, overruns;
static unsigned int seconds = 40;
static char normal_path[4096];

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static uint64_t rng_state;

void rnd_seed(uint64_t seed)
{
	rng_state = seed;
}

uint64_t rnd(void)
{
	return mix(rng_state++);
}

static void pause_ms(unsigned int ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000l};

	nanosleep(&t, NULL);
}

/* --- processes --- */

/*
 * Choose fault injection points, or none, at random for the target's next
 * incarnation.
 */
static void choose_points(void)
{
	static const char *const points[] = {
		"drop-replies",
		"duplicate-replies",
		"delay-replies",
		"slow-flush",
		"drop-replies,duplicate-replies",
	};
	char n[16];

	setenv("FI_PROVIDER_PATH", normal_path, 1);
	unsetenv("RPMEM_FAULT");
	if (rnd() % 3 == 0)
		return;
	setenv("FI_PROVIDER_PATH", getenv("RPMEM_FAULT_PROVIDER"), 1);
	setenv("RPMEM_FAULT", points[rnd() % 5], 1);
	snprintf(n, sizeof(n), "%d", (int)(2 + rnd() % 6));
	setenv("RPMEM_FAULT_EVERY", n, 1);
	snprintf(n, sizeof(n), "%d", (int)(1 + rnd() % 50));
	setenv("RPMEM_FAULT_MS", n, 1);
}

static void start_side(enum side_of side, bool points)
{
	uint64_t g = atomic_load(&world->generation), seed = rnd();
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		MUST(-errno);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		rnd_seed(seed);
		setenv("FI_PROVIDER_PATH", normal_path, 1);
		if (side == TARGET && points)
			choose_points();
		if (side == TARGET)
			target_run();
		else
			initiator_run(turn++);
		_exit(1);
	}
	pid_of[side] = pid;
	if (side == INITIATOR)
		turn++;
	while (side == TARGET && (atomic_load(&world->generation) == g ||
				  atomic_load(&world->generation) % 2)) {
		if (waitpid(pid, NULL, WNOHANG))
			MUST(-ECHILD);
		pause_ms(5);
	}
}

/*
 * Simulate a power cut: overwrite the pool file with the bytes that msync() has
 * written to the medium.
 */
static void lose_power(void)
{
	int fd = open(world->pool, O_RDWR | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || write(fd, world->media, sizeof(world->media)) !=
			      sizeof(world->media))
		MUST(-errno);
	close(fd);
}

static void end_side(enum side_of side)
{
	kill(pid_of[side], SIGKILL);
	waitpid(pid_of[side], NULL, 0);
	if (side == TARGET && atomic_load(&world->generation) % 2)
		atomic_fetch_add(&world->generation, 1);
}

/* Do both processes run? Restarts an initiator that exited with OVERRUN. */
static bool both_live(void)
{
	int status = 0;

	if (waitpid(pid_of[TARGET], &status, WNOHANG)) {
		printf("# the target ended with status %#x\n", status);
		return false;
	}
	if (!waitpid(pid_of[INITIATOR], &status, WNOHANG))
		return true;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != OVERRUN) {
		printf("# the initiator ended with status %#x\n", status);
		return false;
	}
	overruns++;
	start_side(INITIATOR, false);
	return true;
}

/* --- faults --- */

static void kill_target(void)
{
	end_side(TARGET);
	pause_ms(rnd() % 2 ? 0 : (unsigned int)(rnd() % 500));
	lose_power();
	start_side(TARGET, true);
}

static void kill_initiator(void)
{
	end_side(INITIATOR);
	start_side(INITIATOR, false);
}

static void stop_for(enum side_of side, unsigned int ms)
{
	kill(pid_of[side], SIGSTOP);
	pause_ms(ms);
	kill(pid_of[side], SIGCONT);
}

static void stop_target(void)
{
	stop_for(TARGET, (unsigned int)(50 + rnd() % 500));
}

static void stop_target_long(void)
{
	stop_for(TARGET, TIMEOUT_MS + 500);
}

static void stop_initiator(void)
{
	stop_for(INITIATOR, (unsigned int)(50 + rnd() % (2 * TIMEOUT_MS)));
}

static void disk_error(void)
{
	atomic_store(&world->msync_error, rnd() % 2 ? EIO : ENOSPC);
	pause_ms(300);
	/* Clear the error if no msync() has taken it. */
	atomic_store(&world->msync_error, 0);
	atomic_store(&world->register_anew, true);
}

static void no_memory(enum side_of side)
{
	atomic_store(&world->alloc_ppm[side],
		     (uint32_t)(5000 + rnd() % 300000));
	pause_ms(300);
	atomic_store(&world->alloc_ppm[side], 0);
}

static void no_memory_target(void)
{
	no_memory(TARGET);
}

static void no_memory_initiator(void)
{
	no_memory(INITIATOR);
}

static void no_descriptors(void)
{
	enum side_of side = rnd() % 2 ? TARGET : INITIATOR;

	atomic_store(&world->no_fds[side], true);
	pause_ms(100);
	atomic_store(&world->cut, true);
	pause_ms(400);
	atomic_store(&world->no_fds[side], false);
}

static void cut_connection(void)
{
	atomic_store(&world->cut, true);
}

static const struct fault {
	const char *name;
	void (*run)(void);
} faults[] = {
	{"target killed", kill_target},
	{"initiator killed", kill_initiator},
	{"target stopped", stop_target},
	{"target stopped too long", stop_target_long},
	{"initiator stopped", stop_initiator},
	{"disk error", disk_error},
	{"target without memory", no_memory_target},
	{"initiator without memory", no_memory_initiator},
	{"no descriptors", no_descriptors},
	{"connections cut", cut_connection},
};
#define NFAULTS (sizeof(faults) / sizeof(*faults))

/*
 * Wait until n more commits are acknowledged. Returns false if a side ended, or
 * after 30 s.
 */
static bool commits_continue(unsigned int n)
{
	const uint64_t from = world->acked, failed = world->failed;
	const uint64_t t = now_ns();

	while (atomic_load(&world->acked) < from + n) {
		if (!both_live())
			return false;
		if (now_ns() > t + 30000000000ull) {
			printf("# only %llu commits in 30 s, and %llu "
			       "failures\n",
			       (unsigned long long)(world->acked - from),
			       (unsigned long long)(world->failed - failed));
			return false;
		}
		pause_ms(5);
	}
	return true;
}

static uint64_t count_failures(void)
{
	return atomic_load(&world->failed);
}

/* --- one fault at a time, with its exact outcome --- */

static void run_alone(void)
{
	uint64_t was, timeouts;

	tap_ok(commits_continue(100), "commits are acknowledged");

	was = count_failures();
	stop_for(TARGET, TIMEOUT_MS / 4);
	tap_ok(commits_continue(100) && count_failures() == was,
	       "target stopped for less than the timeout: nothing fails");

	timeouts = atomic_load(&world->status[RP_ST_TIMEOUT]);
	stop_for(TARGET, 2 * TIMEOUT_MS);
	tap_ok(commits_continue(100) &&
		       atomic_load(&world->status[RP_ST_TIMEOUT]) > timeouts,
	       "target stopped for longer: timeouts, then commits succeed");

	stop_for(INITIATOR, 2 * TIMEOUT_MS);
	tap_ok(commits_continue(100),
	       "initiator stopped for long: commits succeed again");

	atomic_store(&world->msync_error, EIO);
	pause_ms(1000);
	was = atomic_load(&world->acked);
	pause_ms(500);
	tap_ok(atomic_load(&world->acked) == was &&
		       atomic_load(&world->status[RP_ST_FLUSH_FAILED]) &&
		       atomic_load(&world->status[RP_ST_REGION_FAILED]),
	       "disk error: reported, and reported again");
	atomic_store(&world->register_anew, true);
	tap_ok(commits_continue(100), "registered anew: commits succeed again");

	was = count_failures();
	no_memory(TARGET);
	no_memory(INITIATOR);
	tap_ok(commits_continue(100),
	       "allocations failed, and some operations");

	end_side(TARGET);
	lose_power();
	start_side(TARGET, false);
	tap_ok(commits_continue(100), "target killed and started again");
}

static void at_once(void)
{
	const uint64_t until = now_ns() + seconds * 1000000000ull;
	uint64_t injected[NFAULTS] = {0}, all = 0;
	size_t i;

	while (now_ns() < until && both_live() && !*world->says) {
		i = rnd() % NFAULTS;
		faults[i].run();
		injected[i]++;
		all++;
		pause_ms((unsigned int)(rnd() % 150));
	}
	tap_ok(both_live(), "both sides live");
	/*
	 * End all faults, and restart the target without fault injection
	 * points: from now on commits must succeed.
	 */
	if (both_live()) {
		for (i = 0; i < SIDES; i++) {
			atomic_store(&world->alloc_ppm[i], 0);
			atomic_store(&world->no_fds[i], false);
		}
		end_side(TARGET);
		lose_power();
		start_side(TARGET, false);
		tap_ok(commits_continue(300), "commits succeed at the end");
	}
	for (i = 0; i < NFAULTS; i++)
		printf("# %-26s %5llu\n", faults[i].name,
		       (unsigned long long)injected[i]);
	for (i = 0; i < 256; i++)
		if (atomic_load(&world->status[i]))
			printf("# failed: %-18s %5llu\n",
			       i == 255 ? "in the base" : rp_status_name(i),
			       (unsigned long long)world->status[i]);
	printf("# failed: %llu msyncs of %llu, %llu allocations; %llu "
	       "connections cut; %llu refused, %llu given up; %u "
	       "queues "
	       "overrun\n",
	       (unsigned long long)world->failed_msyncs,
	       (unsigned long long)world->msyncs,
	       (unsigned long long)world->failed_allocs,
	       (unsigned long long)world->cuts,
	       (unsigned long long)world->refused,
	       (unsigned long long)world->given_up, overruns);
	printf("# faults injected %llu, commits acknowledged %llu, failed "
	       "%llu, lost %llu, hung %llu\n",
	       (unsigned long long)all, (unsigned long long)world->acked,
	       (unsigned long long)world->failed,
	       (unsigned long long)world->lost,
	       (unsigned long long)world->hung);
}

static const struct argp_option options[] = {
	{"seconds", 't', "N", 0, "of faults at once (40; with RP_LONG 3600)",
	 0},
	{"seed", 's', "N", 0, "the same choices again", 0},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *st)
{
	if (key == 't')
		seconds = (unsigned int)atoi(arg);
	else if (key == 's')
		world->seed = strtoull(arg, NULL, 0);
	else
		return ARGP_ERR_UNKNOWN;
	return 0;
}

int main(int argc, char **argv)
{
	const struct argp argp = {
		.options = options,
		.parser = parse,
		.doc = "Faults of all kinds, and an oracle.",
	};
	int status;

	setbuf(stdout, NULL);
	world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (world == MAP_FAILED)
		MUST(-errno);
	world->seed = (uint64_t)time(NULL) * 1000 + (uint64_t)getpid() % 1000;
	if (getenv("RP_LONG") && !strcmp(getenv("RP_LONG"), "1"))
		seconds = 3600;
	else if (getenv("RP_SANITIZE") && *getenv("RP_SANITIZE"))
		seconds = 10;
	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	printf("# --seed %llu\n", (unsigned long long)world->seed);
	rnd_seed(world->seed);
	atomic_store(&world->next_value, 1);
	snprintf(world->pool, sizeof(world->pool), "./faults_pool.%d",
		 getpid());
	snprintf(normal_path, sizeof(normal_path), "%s",
		 getenv("FI_PROVIDER_PATH"));
	setenv("FI_OFI_RPMEM_TIMEOUT", "2000", 1);

	lose_power();
	start_side(TARGET, false);
	start_side(INITIATOR, false);
	run_alone();
	at_once();

	atomic_store(&world->stop, true);
	for (int i = SIDES - 1; i >= 0; i--) {
		uint64_t limit = now_ns() + 30000000000ull;

		status = -1;
		while (now_ns() < limit &&
		       !waitpid(pid_of[i], &status, WNOHANG))
			pause_ms(5);
		tap_ok(!status, "the %s exits with 0",
		       i == TARGET ? "target" : "initiator");
		if (status)
			kill(pid_of[i], SIGKILL);
	}
	tap_ok(!world->lost, "nothing that was acknowledged is lost");
	tap_ok(!world->twice, "everything ends once");
	tap_ok(!world->hung, "everything ends");
	tap_ok(!world->unsticky, "a failed region stays failed");
	tap_ok(!*world->says, "%s", *world->says ? world->says : "no more");
	unlink(world->pool);
	return tap_done();
}
