// SPDX-License-Identifier: BSD-2-Clause
/* Starts initiator and target of fi_rpmem_bench and interleaves the cases. */
#include "config.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/caps.h"
#include "core/method.h"
#include "fabtests/benchmarks/bench.h"
#include "util/query_class.h"

/* Samples of one turn: enough to be warm, few enough to alternate. */
#define TURN_SAMPLES 64
#define TURN_NS	     20000000ull
#define TURN_WARM_UP 2
#define START_NS     20000000000ull

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	interrupted = sig;
}

uint64_t bench_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* splitmix64: the printed seed reproduces order and offsets. */
uint64_t bench_random(struct bench *b)
{
	uint64_t z = b->random += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

static int pin_to_cpu(const struct bench *b, unsigned int end, char *err)
{
	cpu_set_t set;

	if (!b->cfg->pin)
		return 0;
	CPU_ZERO(&set);
	CPU_SET(b->cfg->cpu[end], &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		return rp_err(err, -errno, "pinning to CPU %u: %s",
			      b->cfg->cpu[end], strerror(errno));
	return 0;
}

static bool target_died(struct bench *b)
{
	if (b->target > 0 && waitpid(b->target, NULL, WNOHANG) == b->target)
		b->target = -1;
	return b->target < 0;
}

/* Fork before the first libfabric call: libfabric does not survive a fork. */
static int start_target(struct bench *b, char *err)
{
	const struct sigaction act = {.sa_handler = on_signal};
	pid_t parent = getpid();

	fflush(NULL);
	b->target = fork();
	if (b->target < 0)
		return rp_err(err, -errno, "fork: %s", strerror(errno));
	if (!b->target) {
		/* The target ends by BENCH_QUIT, or when the initiator ends. */
		signal(SIGINT, SIG_IGN);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		b->pool.path = b->disk.path = NULL; /* owned by the initiator */
		if (pin_to_cpu(b, 1, NULL))
			_exit(1);
		_exit(bench_target_run(b));
	}
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	return pin_to_cpu(b, 0, err);
}

static void open_side(struct bench *b, enum bench_side side)
{
	struct bench_end *e = &b->end[side];
	struct rp_fabric_attr attr = {
		.base = b->cfg->base,
		.bare = side == BENCH_BASE,
		.source = b->node,
		.tagged = true,
		.selective = true,
	};
	size_t len = BENCH_NAME;

	if (rp_fabric_open(&attr, &e->f, e->why) ||
	    rp_fabric_reg(&e->f, b->buf, BENCH_BUF,
			  FI_READ | FI_WRITE | FI_SEND | FI_RECV, 0, &e->mr,
			  e->why))
		return;
	if (fi_getname(&e->f.ep->fid, b->shared->initiator_name[side], &len)) {
		rp_err(e->why, 0, "the endpoint has no name");
		return;
	}
	b->shared->initiator_len[side] = len;
	e->ok = true;
}

static void connect_side(struct bench *b, enum bench_side side)
{
	struct bench_end *e = &b->end[side];
	const struct bench_export *x = &b->shared->target[side];

	if (!e->ok)
		return;
	e->ok = false;
	if (!x->ok) {
		memcpy(e->why, x->why, sizeof(e->why));
		return;
	}
	if (rp_fabric_peer(&e->f, x->name, &e->peer, e->why))
		return;
	e->key = x->key;
	e->addr = x->addr;
	e->ok = true;
}

static void open_rivals(struct bench *b)
{
	const struct rival_cfg cfg = {
		.base = b->cfg->base,
		.node = b->node,
		.blocks = b->cfg->mode == BENCH_PROBE,
	};

	for (int i = 0; i < RIVALS; i++) {
		struct bench_rival *r = &b->shared->rival[i];

		if (!r->ok)
			continue;
		bench_set_mode(b, BENCH_RIVAL + i);
		r->ok = !rivals[i]->open(&cfg, &r->page, &b->rival[i], r->why);
	}
	bench_set_mode(b, BENCH_IDLE);
}

/* Query the target's commit method, for the head of the report. */
static void query_target(struct bench *b)
{
	struct bench_end *e = &b->end[BENCH_RPMEM];
	int ret;

	if (!e->ok) {
		memcpy(b->attr_why, e->why, sizeof(b->attr_why));
		return;
	}
	bench_set_mode(b, BENCH_RPMEM);
	b->attr.size = sizeof(b->attr);
	b->attr.why = b->attr_why;
	b->attr.why_size = sizeof(b->attr_why);
	ret = rp_query_class(e->f.ops, e->f.ep, e->peer, e->key,
			     FI_RPMEM_CLASS_DEFAULT, &b->attr, &b->reached);
	bench_set_mode(b, BENCH_IDLE);
	if (ret) {
		b->attr.size = 0;
		rp_err(b->attr_why, 0, "fi_rpmem_query_sync: %s",
		       fi_strerror(-ret));
	}
}

/* Fail if --method names another method than the target uses. */
static int check_method(const struct bench *b, char *err)
{
	const char *got =
		b->attr.size ? rp_method_name((enum rp_method)b->attr.method)
			     : "none";

	if (!b->cfg->method || !strcmp(b->cfg->method, got))
		return 0;
	return rp_err(err, -ENOTSUP, "method %s: the target commits by %s: %s",
		      b->cfg->method, got, b->attr_why);
}

void bench_set_mode(struct bench *b, int mode)
{
	atomic_store(&b->shared->mode, mode);
	if (b->cfg->connect)
		bench_remote_exchange(b);
}

/* Allocate the memory that both ends of a run need. */
int bench_alloc(struct bench *b, char *err)
{
	b->buf = calloc(1, BENCH_BUF);
	b->shared = mmap(NULL, sizeof(*b->shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!b->buf || b->shared == MAP_FAILED) {
		b->shared = NULL;
		return rp_err(err, -ENOMEM, "out of memory");
	}
	b->random = b->cfg->seed;
	memset(b->buf, 1, BENCH_BUF); /* touch every page */
	for (size_t i = 0; i < BENCH_MAX_SIZE; i++)
		b->buf[i] = (char)(i % 64 ? i : bench_random(b));
	atomic_store(&b->shared->mode, BENCH_IDLE);
	return 0;
}

/* Start the target on this machine, or connect to one elsewhere. */
static int meet_target(struct bench *b, char *err)
{
	int ret;

	if (!b->cfg->connect)
		return start_target(b, err);
	for (int i = 0; i < RIVALS; i++)
		rp_err(b->shared->rival[i].why, 0, "measured on one machine");
	ret = bench_remote_connect(b, err);
	if (ret)
		return ret;
	bench_remote_exchange(b);
	return b->target < 0 ? rp_err(err, -EPROTO,
				      "the process at %s ended, or is no "
				      "fi_rpmem_bench of this release",
				      b->cfg->connect)
			     : 0;
}

int bench_start(struct bench *b, char *err)
{
	uint64_t end;
	int ret = bench_alloc(b, err);

	if (!ret)
		ret = meet_target(b, err);
	if (ret)
		return ret;
	if (b->pool.map)
		bench_pool_touch(b);
	/* Open the provider before the base, as the target does. */
	open_side(b, BENCH_RPMEM);
	open_side(b, BENCH_BASE);
	atomic_store(&b->shared->initiator_open, true);
	if (b->cfg->connect)
		bench_remote_exchange(b);
	for (end = bench_now() + START_NS;
	     !atomic_load(&b->shared->target_open);) {
		if (target_died(b))
			return rp_err(err, -ECHILD,
				      "the target process died at its start");
		if (bench_now() > end)
			return rp_err(err, -ETIMEDOUT,
				      "the target process does not start");
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	connect_side(b, BENCH_RPMEM);
	connect_side(b, BENCH_BASE);
	open_rivals(b);
	query_target(b);
	return check_method(b, err);
}

/* Drop late completions after a failure: the next case must not count them. */
static void drop_completions(struct bench_end *e)
{
	uint64_t quiet = bench_now() + 100000000;
	struct fi_cq_err_entry bad;
	struct fi_cq_entry done;
	ssize_t n;

	while (bench_now() < quiet) {
		n = fi_cq_read(e->f.cq, &done, 1);
		if (n == -FI_EAVAIL)
			rp_fabric_cq_error(&e->f, &bad, NULL);
		if (n == 1 || n == -FI_EAVAIL)
			quiet = bench_now() + 100000000;
	}
}

/* Whether the side of a case could not be opened; notes the reason once. */
static bool side_failed(struct bench *b, struct bench_line *l)
{
	int side = l->what->side;
	const char *why = NULL;

	if (side < BENCH_SIDES && !b->end[side].ok)
		why = b->end[side].why;
	else if (side >= BENCH_RIVAL && side < BENCH_IDLE &&
		 !b->rival[side - BENCH_RIVAL])
		why = b->shared->rival[side - BENCH_RIVAL].why;
	if (!why)
		return false;
	l->dead = true;
	memcpy(l->note, why, sizeof(l->note));
	return true;
}

static void run_turn(struct bench *b, struct bench_line *l)
{
	uint64_t ns, end;
	int ret = 0;

	if (side_failed(b, l))
		return;
	if (l->what->side == BENCH_IDLE && b->cfg->connect) {
		l->dead = true;
		rp_err(l->note, 0, "measured on the target's machine only");
		return;
	}
	bench_set_mode(b, l->what->side);
	for (int i = 0; !ret && i < TURN_WARM_UP; i++)
		ret = l->what->run(b, l, &ns, l->note);
	end = bench_now() + TURN_NS;
	for (int i = 0; !ret && i < TURN_SAMPLES && !interrupted &&
			l->samples.n < b->cfg->iterations;
	     i++) {
		ret = l->what->run(b, l, &ns, l->note);
		if (!ret)
			ret = rp_samples_add(&l->samples, ns);
		if (bench_now() > end)
			break;
	}
	if (ret) {
		l->dead = true;
		if (!l->note[0])
			rp_err(l->note, ret, "%s", fi_strerror(-ret));
		if (target_died(b))
			rp_err(l->note, ret, "the target process died");
		if (l->what->side < BENCH_SIDES)
			drop_completions(&b->end[l->what->side]);
	}
	bench_set_mode(b, BENCH_IDLE);
}

static void show_progress(const struct bench *b, const struct bench_line *l,
			  uint64_t left)
{
	static int tty = -1;
	char text[RP_SIZE_LEN];

	if (tty < 0)
		tty = isatty(STDERR_FILENO);
	if (tty)
		fprintf(stderr, "\r%s, %s: %llu s left of %llu s \033[K",
			l->what->name, rp_size_format(l->size, text),
			(unsigned long long)(left / 1000000000),
			(unsigned long long)b->cfg->seconds);
}

/*
 * Measure the cases of a group in turns, each round in another order, so that
 * no case is favoured.
 */
static void measure_group(struct bench *b, struct bench_line **lines, size_t n,
			  uint64_t end)
{
	bool more = true, first = true;
	uint64_t t;

	/* Each case gets one turn, even if the time is over. */
	for (; more && !interrupted && ((t = bench_now()) < end || first);
	     first = false) {
		show_progress(b, lines[0], t < end ? end - t : 0);
		for (size_t i = n - 1; i > 0; i--) {
			size_t j = bench_random(b) % (i + 1);
			struct bench_line *l = lines[i];

			lines[i] = lines[j];
			lines[j] = l;
		}
		more = false;
		for (size_t i = 0; i < n && !interrupted; i++) {
			if (lines[i]->dead ||
			    lines[i]->samples.n >= b->cfg->iterations)
				continue;
			run_turn(b, lines[i]);
			more = true;
		}
	}
}

int bench_measure(struct bench *b, struct bench_line *lines, size_t n)
{
	struct bench_line **some = calloc(n, sizeof(*some));
	uint64_t start = bench_now();
	unsigned int groups = 0;
	size_t count;

	if (!some)
		return -ENOMEM;
	for (size_t j = 0; j < n; j++)
		if (lines[j].group >= groups)
			groups = lines[j].group + 1;
	for (unsigned int i = 0; i < groups; i++) {
		count = 0;
		for (size_t j = 0; j < n; j++)
			if (lines[j].group == i)
				some[count++] = &lines[j];
		if (count)
			measure_group(b, some, count,
				      start + b->cfg->seconds * 1000000000 *
						      (i + 1) / groups);
	}
	free(some);
	if (isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
	for (size_t j = 0; j < n; j++)
		if (!lines[j].samples.n && !lines[j].dead)
			rp_err(lines[j].note, 0, "%s",
			       interrupted ? "interrupted" : "no time left");
	return interrupted ? -EINTR : 0;
}

void bench_stop(struct bench *b)
{
	if (b->shared)
		bench_set_mode(b, BENCH_QUIT);
	for (int i = 0; i < RIVALS; i++)
		if (b->rival[i])
			rivals[i]->close(b->rival[i]);
	bench_initiators_close(b);
	free(b->zipf);
	for (int i = 0; i < BENCH_SIDES; i++) {
		if (b->end[i].mr)
			fi_close(&b->end[i].mr->fid);
		rp_fabric_close(&b->end[i].f);
	}
	for (int i = 0; i < 2000 && !target_died(b) && b->target; i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	if (b->target > 0) {
		kill(b->target, SIGKILL);
		waitpid(b->target, NULL, 0);
	}
	if (b->control >= 0)
		close(b->control);
	free(b->node);
	if (b->shared)
		munmap(b->shared, sizeof(*b->shared));
	free(b->buf);
}
