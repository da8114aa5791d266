/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that wait in one log: one polls, and the others sleep. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "log_rig.h"

#define THREADS 16u
#define LENGTH	(LOG_RING_AT + 2 * THREADS * LOG_GATHER)

/* A pool of which each poll waits for the test: complete one, or none. */
static struct {
	unsigned char bytes[LENGTH];
	pthread_mutex_t lock;
	struct rpmem_pool_op *ops[2 * THREADS];
	unsigned int nops;
	atomic_bool automatic; /* polls complete operations at once */
	atomic_uint polls;     /* threads that are polling */
	sem_t turns;	       /* polls that may return, ... */
	atomic_uint empty;     /* ... of which so many complete nothing */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static atomic_uint sleepers, wakes, ended;
static struct rpmem_log *one;

int __real_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);

/* Count the threads of liblog that sleep, and how often one wakes. */
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
{
	int ret;

	sleepers++;
	ret = __real_pthread_cond_wait(cond, lock);
	sleepers--;
	wakes++;
	return ret;
}

static int submit(void *arg, struct rpmem_pool_op *op)
{
	(void)arg;
	pthread_mutex_lock(&pool.lock);
	cr_assert_lt(pool.nops, 2 * THREADS);
	pool.ops[pool.nops++] = op;
	pthread_mutex_unlock(&pool.lock);
	return 0;
}

/* Complete the oldest operation. */
static int complete_one(struct rpmem_pool_op **done)
{
	struct rpmem_pool_op *op;

	pthread_mutex_lock(&pool.lock);
	cr_assert(pool.nops);
	op = pool.ops[0];
	memmove(pool.ops, pool.ops + 1, --pool.nops * sizeof(*pool.ops));
	pthread_mutex_unlock(&pool.lock);
	op->result = 0;
	if (op->type == RPMEM_POOL_READ)
		memcpy(op->buf, pool.bytes + op->offset, op->len);
	else if (op->type == RPMEM_POOL_WRITE)
		memcpy(pool.bytes + op->offset, op->buf, op->len);
	*done = op;
	return 1;
}

static int poll_pool(void *arg, struct rpmem_pool_op **done, unsigned int n,
		     int timeout_ms)
{
	(void)arg;
	(void)n;
	/* Another thread may end the log meanwhile. */
	cr_assert(timeout_ms >= 0 && timeout_ms <= 1000);
	if (!pool.automatic) {
		pool.polls++;
		sem_wait(&pool.turns);
		pool.polls--;
		if (pool.empty) {
			pool.empty--;
			return 0;
		}
	}
	return complete_one(done);
}

static void open_one(void)
{
	const struct log_io io = {
		.submit = submit, .poll = poll_pool, .length = LENGTH};

	sem_init(&pool.turns, 0, 0);
	pool.automatic = true;
	cr_assert_eq(log_create(&io, RPMEM_LOG_ENTRY), 0);
	cr_assert_eq(log_open(&one, &io, false), 0, "%s", rpmem_log_error());
	pool.automatic = false;
	wakes = 0;
}

static void close_one(void)
{
	pool.automatic = true;
	rpmem_log_close(one);
}

/* The entry is so long that it waits for no other write. */
static void *append_one(void *arg)
{
	static const char bytes[LOG_GATHER - LOG_HEADER];
	const int ret = rpmem_log_append(one, bytes, sizeof(bytes), NULL);

	(void)arg;
	ended++;
	return (void *)(intptr_t)ret;
}

static void *poll_one(void *arg)
{
	struct rpmem_log_op *done[1];

	(void)arg;
	return (void *)(intptr_t)rpmem_log_poll(one, done, 1, 0);
}

/* Wait for another thread; the test's timeout ends it. */
static void await(const atomic_uint *value, unsigned int wanted)
{
	while (*value != wanted)
		usleep(100);
}

static void start(pthread_t *t, void *(*run)(void *))
{
	cr_assert_eq(pthread_create(t, NULL, run, NULL), 0);
}

static void join(pthread_t t)
{
	void *ret;

	pthread_join(t, &ret);
	cr_assert_null(ret);
}

/*
 * Each append wakes its thread, and at most one more, which polls next. Were
 * all woken, 16 appends would wake 120 times.
 */
Test(rpmem_log_wait, completion_wakes_only_its_appender, .timeout = 60)
{
	pthread_t t[THREADS];

	open_one();
	for (unsigned int i = 0; i < THREADS; i++)
		start(&t[i], append_one);
	for (unsigned int left = THREADS; left; left--) {
		await(&pool.polls, 1);
		await(&sleepers, left - 1);
		sem_post(&pool.turns);
		await(&ended, THREADS + 1 - left);
	}
	for (unsigned int i = 0; i < THREADS; i++)
		join(t[i]);
	cr_assert_leq(wakes, 2 * THREADS, "%u wakes for %u appends", wakes,
		      THREADS);
	close_one();
}

/* A thread polls, completes nothing and returns: an appender polls next. */
Test(rpmem_log_wait, poll_without_a_completion_hands_over, .timeout = 60)
{
	pthread_t poller, t[2];

	open_one();
	start(&poller, poll_one);
	await(&pool.polls, 1);
	start(&t[0], append_one);
	start(&t[1], append_one);
	await(&sleepers, 2);
	pool.empty = 1;
	sem_post(&pool.turns);
	join(poller);
	sem_post(&pool.turns);
	sem_post(&pool.turns);
	join(t[0]);
	join(t[1]);
	close_one();
}
