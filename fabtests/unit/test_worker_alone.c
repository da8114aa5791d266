/* SPDX-License-Identifier: BSD-2-Clause */
/* The worker without an agent: its thread, kicks, and failures to start. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/worker.h"

/* Wrapped by the linker: results (errno), and numbers of successful calls. */
static int mutex_ret, cond_ret, create_ret;
static int mutexes, conds, creates;

int __real_pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a);
int __wrap_pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a);
int __wrap_pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a)
{
	if (mutex_ret)
		return mutex_ret;
	mutexes++;
	return __real_pthread_mutex_init(m, a);
}

int __real_pthread_mutex_destroy(pthread_mutex_t *m);
int __wrap_pthread_mutex_destroy(pthread_mutex_t *m);
int __wrap_pthread_mutex_destroy(pthread_mutex_t *m)
{
	mutexes--;
	return __real_pthread_mutex_destroy(m);
}

int __real_pthread_cond_init(pthread_cond_t *c, const pthread_condattr_t *a);
int __wrap_pthread_cond_init(pthread_cond_t *c, const pthread_condattr_t *a);
int __wrap_pthread_cond_init(pthread_cond_t *c, const pthread_condattr_t *a)
{
	if (cond_ret)
		return cond_ret;
	conds++;
	return __real_pthread_cond_init(c, a);
}

int __real_pthread_cond_destroy(pthread_cond_t *c);
int __wrap_pthread_cond_destroy(pthread_cond_t *c);
int __wrap_pthread_cond_destroy(pthread_cond_t *c)
{
	conds--;
	return __real_pthread_cond_destroy(c);
}

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a,
			  void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a,
			  void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a,
			  void *(*run)(void *), void *arg)
{
	if (create_ret)
		return create_ret;
	creates++;
	return __real_pthread_create(t, a, run, arg);
}

static atomic_uint kicks;
static sigset_t blocked; /* signal mask of the thread that kicks */

static void count_kick(struct rp_agent_host *h)
{
	pthread_sigmask(SIG_BLOCK, NULL, &blocked);
	atomic_fetch_add(&kicks, 1);
}

static const struct rp_agent_host_ops ops = {.kick = count_kick};
static struct rp_agent_host host = {.ops = &ops};
static struct rp_worker w;
static struct rp_batch batch;

static void start(void)
{
	memset(&w, 0xff, sizeof(w));
	cr_assert_eq(rp_worker_init(&w, &host), 0);
	cr_assert_eq(rp_batch_init(&batch), 0);
}

static void stop(void)
{
	rp_worker_fini(&w);
	rp_batch_fini(&batch);
	cr_assert_eq(mutexes, 0);
	cr_assert_eq(conds, 0);
}

TestSuite(worker_alone, .init = start, .fini = stop);

/* Run one empty batch, and wait for its kick. */
static void run_empty_batch(void)
{
	rp_worker_submit(&w, &batch);
	cr_assert(rp_worker_collect(&w, true));
	/* The worker kicks after it has released the lock. */
	while (!atomic_load(&kicks))
		sched_yield();
	cr_assert_eq(atomic_exchange(&kicks, 0), 1);
}

Test(worker_alone, never_started)
{
	cr_assert_not(w.started);
	cr_assert_not(w.stop);
	cr_assert_eq(w.state, RP_WORKER_IDLE);
	cr_assert_eq(mutexes, 2, "its own and the batch's");
	cr_assert_eq(conds, 1);
}

Test(worker_alone, cannot_be_made)
{
	struct rp_worker x;

	mutex_ret = EAGAIN;
	cr_assert_eq(rp_worker_init(&x, &host), -EAGAIN);
	cr_assert_eq(conds, 1);
	mutex_ret = 0;
	cond_ret = ENOMEM;
	cr_assert_eq(rp_worker_init(&x, &host), -ENOMEM);
	cr_assert_eq(mutexes, 2, "its own and the batch's");
}

/* This thread must block only the signals that the program blocks. */
static void check_signal_mask(void)
{
	sigset_t now;

	pthread_sigmask(SIG_BLOCK, NULL, &now);
	for (int i = 1; i < 32; i++)
		cr_assert_eq(sigismember(&now, i), i == SIGUSR2);
}

Test(worker_alone, one_thread)
{
	sigset_t ours;

	sigemptyset(&ours);
	sigaddset(&ours, SIGUSR2);
	pthread_sigmask(SIG_SETMASK, &ours, NULL);
	create_ret = EAGAIN;
	cr_assert_eq(rp_worker_start(&w), -EAGAIN);
	check_signal_mask();
	create_ret = 0;
	for (int i = 0; i < 2; i++)
		cr_assert_eq(rp_worker_start(&w), 0);
	check_signal_mask();
	cr_assert_eq(creates, 1);
	for (int i = 0; i < 3; i++)
		run_empty_batch();
}

/* Signal handlers of the program must not run in the worker's thread. */
Test(worker_alone, no_signals)
{
	static const int some[] = {SIGTERM, SIGINT, SIGUSR1, SIGCHLD, SIGALRM};

	cr_assert_eq(rp_worker_start(&w), 0);
	run_empty_batch();
	for (int i = 0; i < 5; i++)
		cr_assert_eq(sigismember(&blocked, some[i]), 1);
}
