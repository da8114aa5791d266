// SPDX-License-Identifier: BSD-2-Clause
/*
 * Times appends to a log and durable writes to a pool, in turns:
 *
 *   log POOL LOG LOG LOG LOG [ROUNDS [FILE]]
 *
 * The pools are HOST:PORT:NAME, of one daemon; the LOGs have different layouts.
 * Prints the median of all rounds, in microseconds for one entry, and ratios.
 * "Latency" of 16 threads is the mean of a round's calls, which has also those
 * that waited for other threads; "each" is the time of a round by the entries
 * of all threads. FILE is created on this machine; appends to it end with
 * fdatasync().
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rpmem_log.h>

#define BYTES	64u
#define EACH	200u /* operations of one round */
#define OUT	64u
#define LAYOUTS 4u
#define LONG	8192u
#define THREADS 16u

enum what {
	DURABLE_WRITE, /* 64 bytes, one outstanding */
	TWO_COMMITS,   /* write and commit an entry, then a tail */
	APPEND,	       /* one outstanding; for each layout */
	PIPELINE = APPEND + LAYOUTS,  /* 64 outstanding; for each layout */
	WRITERS = PIPELINE + LAYOUTS, /* 16 threads: write, commit */
	APPENDERS,		      /* 16 threads: append */
	WRITERS_LATENCY,	      /* of the last WRITERS */
	APPENDERS_LATENCY,	      /* of the last APPENDERS */
	LONG_APPEND,		      /* 8 KiB, one outstanding */
	LOCAL_FILE,		      /* 8 KiB and fdatasync() */
	WHATS,
};

static const char *const names[] = {
	"durable write",      "two commits",	    "append",
	"append tail",	      "append counter",	    "append register",
	"pipelined",	      "pipelined tail",	    "pipelined counter",
	"pipelined register", "16 writers, each",   "16 appenders, each",
	"writers, latency",   "appenders, latency", "append 8 KiB",
	"local file 8 KiB",
};

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "log: %s: %s\n", what, why);
	exit(1);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static struct rpmem_pool *pool;
static struct rpmem_log *logs[LAYOUTS];
static unsigned char bytes[LONG];
static int file = -1;

static void write_pool(unsigned int i, int commits)
{
	const unsigned int flags = commits ? 0 : RPMEM_POOL_DURABLE;

	if (rpmem_pool_write(pool, bytes, BYTES, 4096 + i % 4096 * BYTES,
			     flags) ||
	    (commits && (rpmem_pool_commit(pool) ||
			 rpmem_pool_write(pool, bytes, 8, 0, 0) ||
			 rpmem_pool_commit(pool))))
		fail("write", rpmem_pool_error());
}

static void pipeline(struct rpmem_log *log)
{
	static struct rpmem_log_op ops[EACH];
	const struct iovec v = {bytes, BYTES};
	struct rpmem_log_op *done[OUT];
	unsigned int begun = 0, ended = 0;
	int n;

	while (ended < EACH) {
		for (; begun < EACH && begun - ended < OUT; begun++) {
			ops[begun] = (struct rpmem_log_op){.entries = &v,
							   .count = 1};
			if (rpmem_log_submit(log, &ops[begun]))
				fail("submit", rpmem_log_error());
		}
		n = rpmem_log_poll(log, done, OUT, -1);
		if (n < 0 || done[0]->result)
			fail("poll", rpmem_log_error());
		ended += (unsigned int)n;
	}
}

/* One of the 16 threads. log NULL: it writes to the pool. */
struct thread {
	pthread_t id;
	struct rpmem_log *log;
	double us; /* of all its calls */
};

static void *one_thread(void *arg)
{
	const uint64_t at = 1 << 20;
	struct thread *t = arg;
	const double start = now_us();

	for (unsigned int i = 0; i < EACH; i++)
		if (t->log ? rpmem_log_append(t->log, bytes, BYTES, NULL)
			   : rpmem_pool_write(pool, bytes, BYTES,
					      at + i % 4096 * BYTES, 0) ||
				     rpmem_pool_commit(pool))
			fail("thread",
			     t->log ? rpmem_log_error() : rpmem_pool_error());
	t->us = now_us() - start;
	return NULL;
}

/* Returns the mean time of a call. */
static double run_threads(struct rpmem_log *log)
{
	struct thread t[THREADS];
	double us = 0;

	for (unsigned int i = 0; i < THREADS; i++) {
		t[i].log = log;
		if (pthread_create(&t[i].id, NULL, one_thread, &t[i]))
			fail("thread", "it cannot be made");
	}
	for (unsigned int i = 0; i < THREADS; i++) {
		pthread_join(t[i].id, NULL);
		us += t[i].us;
	}
	return us / (THREADS * EACH);
}

static void run_long(unsigned int what)
{
	for (unsigned int i = 0; i < EACH; i++) {
		if (what == LONG_APPEND) {
			if (rpmem_log_append(logs[0], bytes, LONG, NULL))
				fail("append", rpmem_log_error());
		} else if (write(file, bytes, LONG) != LONG ||
			   fdatasync(file)) {
			fail("file", strerror(errno));
		}
	}
}

static double run(unsigned int what)
{
	struct rpmem_log_info info = {.size = sizeof(info)};
	static double latency[2]; /* of WRITERS and APPENDERS */
	struct rpmem_log *log = NULL;
	double start;

	if (what == WRITERS_LATENCY || what == APPENDERS_LATENCY)
		return latency[what - WRITERS_LATENCY];
	if (what == LOCAL_FILE && (file < 0 || ftruncate(file, 0)))
		return 0;
	if (what >= APPEND && what != WRITERS && what != LOCAL_FILE) {
		log = what < WRITERS ? logs[(what - APPEND) % LAYOUTS]
				     : logs[0];
		if (rpmem_log_query(log, &info) ||
		    rpmem_log_trim(log, info.tail))
			fail("trim", rpmem_log_error());
	}
	start = now_us();
	if (what == WRITERS || what == APPENDERS) {
		latency[what - WRITERS] = run_threads(log);
		return (now_us() - start) / (THREADS * EACH);
	}
	if (what >= LONG_APPEND) {
		run_long(what);
		return (now_us() - start) / EACH;
	}
	if (what >= PIPELINE) {
		pipeline(log);
		return (now_us() - start) / EACH;
	}
	for (unsigned int i = 0; i < EACH; i++)
		if (what < APPEND)
			write_pool(i, what == TWO_COMMITS);
		else if (rpmem_log_append(log, bytes, BYTES, NULL))
			fail("append", rpmem_log_error());
	return (now_us() - start) / EACH;
}

int main(int argc, char **argv)
{
	const struct rpmem_pool_attr p = {.size = sizeof(p),
					  .required = RPMEM_POOL_NONE};
	const unsigned int rounds = argc > 6 ? (unsigned int)atoi(argv[6]) : 31;
	const char *path = argc > 7 ? argv[7] : NULL;
	double *us = calloc((size_t)WHATS * rounds, sizeof(*us)), *m[WHATS];

	if (argc < 6 || !us || !rounds)
		fail("usage", "log POOL LOG LOG LOG LOG [ROUNDS [FILE]]");
	if (path)
		file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND, 0600);
	if (path && file < 0)
		fail(path, strerror(errno));
	if (rpmem_pool_open(&pool, argv[1], &p))
		fail(argv[1], rpmem_pool_error());
	for (unsigned int i = 0; i < LAYOUTS; i++) {
		const struct rpmem_log_attr a = {
			.size = sizeof(a),
			.required = RPMEM_POOL_NONE,
			.layout = (enum rpmem_log_layout)i,
		};
		const int ret = rpmem_log_create(argv[2 + i], &a);

		if ((ret && ret != -EEXIST) ||
		    rpmem_log_open(&logs[i], argv[2 + i], &a))
			fail(argv[2 + i], rpmem_log_error());
	}
	for (unsigned int r = 0; r < rounds; r++)
		for (unsigned int w = 0; w < WHATS; w++)
			us[w * rounds + r] = run(w);
	for (unsigned int w = 0; w < WHATS; w++) {
		m[w] = us + (size_t)w * rounds;
		qsort(m[w], rounds, sizeof(*us), compare);
		m[w] += rounds / 2;
		printf("%-20s %8.2f\n", names[w], *m[w]);
	}
	printf("append / durable write      %.3f\n",
	       *m[APPEND] / *m[DURABLE_WRITE]);
	printf("append / two commits        %.3f\n",
	       *m[APPEND] / *m[TWO_COMMITS]);
	printf("pipelined / awaited         %.3f\n", *m[PIPELINE] / *m[APPEND]);
	printf("16 appenders / 16 writers   throughput %.3f, latency %.3f\n",
	       *m[WRITERS] / *m[APPENDERS],
	       *m[APPENDERS_LATENCY] / *m[WRITERS_LATENCY]);
	if (file >= 0) {
		printf("append 8 KiB / local file   %.3f\n",
		       *m[LONG_APPEND] / *m[LOCAL_FILE]);
		close(file);
		unlink(path);
	}
	for (unsigned int i = 0; i < LAYOUTS; i++)
		rpmem_log_close(logs[i]);
	rpmem_pool_close(pool);
	free(us);
	return 0;
}
