// SPDX-License-Identifier: BSD-2-Clause
/* Operations of the pool: wait, and complete appends in their order. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "liblog/log.h"

static bool has_tail(const struct rpmem_log *log)
{
	return log->super.layout != RPMEM_LOG_ENTRY;
}

static void complete(struct rpmem_log *log, struct log_write *w, int result)
{
	TAILQ_REMOVE(&log->writes, w, link);
	log->out -= w->post.op.len;
	if (w->op) {
		w->op->result = result;
		w->op->error = result ? log->failure : NULL;
	}
	if (w->op && !w->wake) {
		TAILQ_INSERT_TAIL(&log->done, w, link);
		return;
	}
	if (w->wake)
		*w->wake = true;
	free(w);
}

/* Acknowledge entries in order: all entries before them are durable too. */
static void complete_durable(struct rpmem_log *log)
{
	struct log_write *w;

	while ((w = TAILQ_FIRST(&log->writes)) && w->post.done &&
	       (!has_tail(log) || w->end <= log->stored)) {
		log->durable = w->end;
		complete(log, w, 0);
	}
}

/* Writes that the pool has not returned yet stay in the list. */
static void complete_failed(struct rpmem_log *log)
{
	struct log_write *w, *next;

	for (w = TAILQ_FIRST(&log->writes); w; w = next) {
		next = TAILQ_NEXT(w, link);
		if (w->post.done)
			complete(log, w, log->failed);
	}
}

void log_fail(struct rpmem_log *log, int ret, const char *error)
{
	if (log->failed)
		return;
	log->failed = ret;
	snprintf(log->failure, sizeof(log->failure),
		 "%s%.400s; the entries that were outstanding are there or "
		 "not: close the log and open it again",
		 log->io.name, error);
}

int log_check(const struct rpmem_log *log)
{
	return log->failed ? log_error(log->failed, "%s", log->failure) : 0;
}

void log_store_tail(struct rpmem_log *log)
{
	struct log_post *s = &log->store;
	int ret;

	if (!has_tail(log) || log->store_busy || log->store_end == log->tail ||
	    log->failed)
		return;
	log->store_end = log->tail;
	log_places_store(&log->places, log->super.layout, log->tail,
			 &log->store_at.offset, &log->store_at.value);
	*s = (struct log_post){
		.kind = LOG_POST_STORE,
		.op = {.type = RPMEM_POOL_COMMIT, .then = &log->store_at},
	};
	s->op.context = s;
	ret = log->io.submit(log->io.arg, &s->op);
	if (ret)
		log_fail(log, ret, rpmem_pool_error());
	else
		log->store_busy = true;
}

static void post_done(struct rpmem_log *log, struct log_post *p)
{
	p->done = true;
	if (p->kind == LOG_POST_CALL)
		return;
	if (p->op.result)
		log_fail(log, p->op.result, p->op.error);
	if (p->kind == LOG_POST_SUPER) {
		log->super_busy = false;
		if (!p->op.result)
			log->super = log->super_next;
	}
	if (p->kind == LOG_POST_STORE) {
		log->store_busy = false;
		if (!p->op.result)
			log->stored = log->store_end;
	}
}

static void wait_other(struct rpmem_log *log, int ms)
{
	struct timespec until;

	if (ms < 0) {
		pthread_cond_wait(&log->progressed, &log->lock);
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += ms % 1000 * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&log->progressed, &log->lock, &until);
}

/* Poll the pool. Each change of state follows from this, under the lock. */
static void poll_once(struct rpmem_log *log, int ms)
{
	struct rpmem_pool_op *done[32];
	int n;

	log->polling = true;
	pthread_mutex_unlock(&log->lock);
	n = log->io.poll(log->io.arg, done, 32, ms);
	pthread_mutex_lock(&log->lock);
	log->polling = false;
	for (int i = 0; i < n; i++)
		post_done(log, done[i]->context);
	if (!log->failed)
		complete_durable(log);
	if (log->failed)
		complete_failed(log);
	log_store_tail(log);
	rp_waiters_wake(&log->waiters);
	pthread_cond_broadcast(&log->progressed);
}

/* The calling thread may return: another one must poll. */
static void hand_over(struct rpmem_log *log)
{
	if (!log->polling)
		rp_waiters_hand_over(&log->waiters);
}

void log_progress(struct rpmem_log *log, int ms)
{
	if (!log->polling)
		poll_once(log, ms);
	else if (ms)
		wait_other(log, ms);
	hand_over(log);
}

void log_wait(struct rpmem_log *log, const bool *done)
{
	struct rp_waiter me;

	rp_waiter_add(&log->waiters, &me, done);
	while (!*done)
		if (log->polling)
			pthread_cond_wait(&me.wake, &log->lock);
		else
			poll_once(log, -1);
	rp_waiter_remove(&log->waiters, &me);
	hand_over(log);
}

int log_call(struct rpmem_log *log, enum rpmem_pool_type type, void *buf,
	     size_t len, uint64_t offset)
{
	struct log_post p = {
		.kind = LOG_POST_CALL,
		.op = {.type = type,
		       .flags =
			       type == RPMEM_POOL_READ ? 0 : RPMEM_POOL_DURABLE,
		       .buf = buf,
		       .len = len,
		       .offset = offset},
	};
	int ret;

	p.op.context = &p;
	ret = log->io.submit(log->io.arg, &p.op);
	if (ret)
		return log_error(ret, "%s%s", log->io.name, rpmem_pool_error());
	log_wait(log, &p.done);
	return p.op.result ? log_error(p.op.result, "%s%s", log->io.name,
				       p.op.error)
			   : 0;
}
