/* SPDX-License-Identifier: BSD-2-Clause */
/* Creation of agents: its failures, and memory leaks. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#include "core/agent.h"

/* Wrapped by the linker: allocations that fail, blocks not freed yet. */
static int callocs = -1; /* callocs that succeed before one fails */
static int blocks, mutexes, mutex_ret;
static int mutexes_left; /* inits that succeed before all fail */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	if (callocs >= 0 && !callocs--)
		return NULL;
	blocks++;
	return __real_calloc(n, size);
}

void __real_free(void *p);
void __wrap_free(void *p);
void __wrap_free(void *p)
{
	blocks -= p != NULL;
	__real_free(p);
}

int __real_pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a);
int __wrap_pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a);
int __wrap_pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a)
{
	if (mutex_ret && !mutexes_left--)
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

static struct rp_agent_host host; /* the agent calls no function of it */

static void expect_made(struct rp_agent_attr attr, int want)
{
	struct rp_agent *a = (void *)7;

	blocks = 0;
	cr_assert_eq(rp_agent_new(&attr, &host, &a), want);
	if (want)
		cr_assert_eq(a, (void *)7);
	else
		rp_agent_delete(a);
	cr_assert_eq(blocks, 0, "%d blocks kept", blocks);
	cr_assert_eq(mutexes, 0);
}

Test(agent_made, attributes)
{
	expect_made((struct rp_agent_attr){.incarnation = 1}, 0);
	expect_made((struct rp_agent_attr){.credits = 1}, -EINVAL);
	expect_made(
		(struct rp_agent_attr){.incarnation = 1, .credits = UINT16_MAX},
		0);
	expect_made((struct rp_agent_attr){.incarnation = 1,
					   .credits = UINT16_MAX + 1},
		    -EINVAL);
}

Test(agent_made, no_memory)
{
	for (int n = 0; n < 6; n++) {
		callocs = n;
		expect_made((struct rp_agent_attr){.incarnation = 1}, -ENOMEM);
	}
	callocs = 6;
	expect_made((struct rp_agent_attr){.incarnation = 1}, 0);
}

Test(agent_made, no_worker)
{
	mutex_ret = EAGAIN;
	for (int n = 0; n < 3; n++) {
		mutexes_left = n;
		expect_made((struct rp_agent_attr){.incarnation = 1}, -EAGAIN);
	}
}
