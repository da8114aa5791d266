/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that wait for operations: one polls for completions, each other one
 * sleeps until its own operation is done, or until it has to poll. All calls
 * need the lock that guards the list.
 */
#ifndef RP_UTIL_WAITERS_H
#define RP_UTIL_WAITERS_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>

struct rp_waiter {
	pthread_cond_t wake;
	const bool *done;
	TAILQ_ENTRY(rp_waiter) link;
};
TAILQ_HEAD(rp_waiters, rp_waiter);

static inline void rp_waiter_add(struct rp_waiters *all, struct rp_waiter *me,
				 const bool *done)
{
	pthread_cond_init(&me->wake, NULL);
	me->done = done;
	TAILQ_INSERT_TAIL(all, me, link);
}

static inline void rp_waiter_remove(struct rp_waiters *all,
				    struct rp_waiter *me)
{
	TAILQ_REMOVE(all, me, link);
	pthread_cond_destroy(&me->wake);
}

/* Wake the threads whose operations are done. */
static inline void rp_waiters_wake(struct rp_waiters *all)
{
	struct rp_waiter *w;

	TAILQ_FOREACH (w, all, link)
		if (*w->done)
			pthread_cond_signal(&w->wake);
}

/* Wake one thread whose operation is not done, so that it polls next. */
static inline void rp_waiters_hand_over(struct rp_waiters *all)
{
	struct rp_waiter *w;

	TAILQ_FOREACH (w, all, link)
		if (!*w->done) {
			pthread_cond_signal(&w->wake);
			return;
		}
}

#endif
