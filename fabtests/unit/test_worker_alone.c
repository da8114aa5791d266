/* SPDX-License-Identifier: BSD-2-Clause */
/* The worker without an agent: its thread, its watchers, what it cannot get. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/worker.h"

/* Linked with --wrap: positive errno that these return; calls that worked. */
static int mutex_ret, cond_ret, create_ret;
static int mutexes, conds, creates;
static bool no_memory;

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

void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size)
{
	return no_memory ? NULL : __real_realloc(p, size);
}

struct endpoint {
	struct rp_xport x;
	atomic_uint kicks;
	sigset_t blocked; /* where it was kicked */
};

static void kick(struct rp_xport *x)
{
	struct endpoint *e = (struct endpoint *)x;

	pthread_sigmask(SIG_BLOCK, NULL, &e->blocked);
	atomic_fetch_add(&e->kicks, 1);
}

static const struct rp_xport_ops ops = {.kick = kick};
static struct endpoint e[3] = {
	{.x.ops = &ops}, {.x.ops = &ops}, {.x.ops = &ops}};
static struct rp_worker w;
static struct rp_batch batch;

static void start(void)
{
	memset(&w, 0xff, sizeof(w));
	cr_assert_eq(rp_worker_init(&w), 0);
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

/* One batch that has nothing to do; so many kicks of each since the last. */
static void run(unsigned int k0, unsigned int k1, unsigned int k2)
{
	const unsigned int k[] = {k0, k1, k2};

	rp_worker_submit(&w, &batch);
	cr_assert(rp_worker_finished(&w, true));
	/* The kicks are given under the lock: this one comes behind them. */
	pthread_mutex_lock(&w.lock);
	pthread_mutex_unlock(&w.lock);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(atomic_exchange(&e[i].kicks, 0), k[i], "%d", i);
}

Test(worker_alone, never_started)
{
	cr_assert_null(w.watchers);
	cr_assert_eq(w.nwatchers, 0);
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
	cr_assert_eq(rp_worker_init(&x), -EAGAIN);
	cr_assert_eq(conds, 1);
	mutex_ret = 0;
	cond_ret = ENOMEM;
	cr_assert_eq(rp_worker_init(&x), -ENOMEM);
	cr_assert_eq(mutexes, 2, "its own and the batch's");
}

/* Only the program's own choice of signals is blocked here. */
static void mask_is_ours(void)
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
	mask_is_ours();
	create_ret = 0;
	for (int i = 0; i < 2; i++)
		cr_assert_eq(rp_worker_start(&w), 0);
	mask_is_ours();
	cr_assert_eq(creates, 1);
	for (int i = 0; i < 3; i++)
		run(0, 0, 0);
}

/* A program's handler must not run where it never expected to. */
Test(worker_alone, no_signals)
{
	static const int some[] = {SIGTERM, SIGINT, SIGUSR1, SIGCHLD, SIGALRM};

	cr_assert_eq(rp_worker_watch(&w, &e[0].x), 0);
	cr_assert_eq(rp_worker_start(&w), 0);
	run(1, 0, 0);
	for (int i = 0; i < 5; i++)
		cr_assert_eq(sigismember(&e[0].blocked, some[i]), 1);
}

Test(worker_alone, watchers)
{
	cr_assert_eq(rp_worker_start(&w), 0);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(rp_worker_watch(&w, &e[i].x), 0);
	cr_assert_eq(rp_worker_watch(&w, &e[1].x), 0);
	run(1, 1, 1);
	rp_worker_unwatch(&w, &e[1].x);
	run(1, 1, 1);
	rp_worker_unwatch(&w, &e[1].x);
	run(1, 0, 1);
	rp_worker_unwatch(&w, &e[0].x);
	run(0, 0, 1);
	cr_assert_eq(rp_worker_watch(&w, &e[0].x), 0);
	run(1, 0, 1);
	rp_worker_unwatch(&w, &e[2].x);
	rp_worker_unwatch(&w, &e[0].x);
	run(0, 0, 0);
}

Test(worker_alone, no_memory)
{
	cr_assert_eq(rp_worker_start(&w), 0);
	cr_assert_eq(rp_worker_watch(&w, &e[0].x), 0);
	no_memory = true;
	cr_assert_eq(rp_worker_watch(&w, &e[1].x), -ENOMEM);
	/* What is watched already needs no more. */
	cr_assert_eq(rp_worker_watch(&w, &e[0].x), 0);
	no_memory = false;
	run(1, 0, 0);
	rp_worker_unwatch(&w, &e[0].x);
	run(1, 0, 0);
	rp_worker_unwatch(&w, &e[0].x);
	run(0, 0, 0);
}
