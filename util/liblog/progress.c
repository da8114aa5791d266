// SPDX-License-Identifier: BSD-2-Clause
/* Waits for operations of the pool, and completes appends in order. */
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

static bool is_adjacent(const struct log_write *w, const struct log_write *next)
{
	return w->offset + w->len == next->offset;
}

static bool is_written(const struct log_write *w)
{
	return w->carrier && w->carrier->post.done;
}

/*
 * Join the first waiting write and adjacent ones behind it, as long as they
 * have at most LOG_GATHER bytes; only the first, if there is no memory. Returns
 * the last of them; *len: bytes of all.
 */
static struct log_write *join_waiting_writes(struct rpmem_log *log,
					     uint64_t *len)
{
	struct log_write *const first = log->first_waiting, *last = first, *w;
	unsigned char *to;

	*len = first->len;
	while ((w = TAILQ_NEXT(last, link)) && is_adjacent(last, w) &&
	       *len + w->len <= LOG_GATHER) {
		*len += w->len;
		last = w;
	}
	if (last == first)
		return first;
	last->shared = to = malloc(*len);
	if (!to) {
		*len = first->len;
		return first;
	}
	for (w = first; w != TAILQ_NEXT(last, link); w = TAILQ_NEXT(w, link)) {
		memcpy(to, w->bytes, w->len);
		to += w->len;
	}
	return last;
}

/* Returns 0, or -EIO: the pool has refused the write, which ends the log. */
static int post_waiting_writes(struct rpmem_log *log)
{
	struct log_write *w = log->first_waiting, *last;
	const uint64_t offset = w->offset;
	uint64_t len;

	last = join_waiting_writes(log, &len);
	last->post.kind = LOG_POST_WRITE;
	last->post.op = (struct rpmem_pool_op){
		.type = RPMEM_POOL_WRITE,
		.flags = has_tail(log) ? 0 : RPMEM_POOL_DURABLE,
		.buf = last->shared ? last->shared : last->bytes,
		.len = len,
		.offset = offset,
		.context = &last->post,
	};
	if (log->io.submit(log->io.arg, &last->post.op))
		return -EIO;
	log->first_waiting = TAILQ_NEXT(last, link);
	log->waiting_bytes -= len;
	log->posted_end = last->end;
	log->outstanding++;
	for (; w != log->first_waiting; w = TAILQ_NEXT(w, link))
		w->carrier = last;
	return 0;
}

static bool may_post(const struct rpmem_log *log)
{
	return log->outstanding < LOG_POSTS || log->waiting_bytes >= LOG_GATHER;
}

static void post_writes(struct rpmem_log *log)
{
	while (log->first_waiting && !log->failed && may_post(log))
		if (post_waiting_writes(log))
			log_fail(log, -EIO, rpmem_pool_error());
}

static void complete_write(struct rpmem_log *log, struct log_write *w,
			   int result)
{
	TAILQ_REMOVE(&log->writes, w, link);
	log->out -= w->len;
	free(w->shared);
	w->shared = NULL;
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

	while ((w = TAILQ_FIRST(&log->writes)) && is_written(w) &&
	       (!has_tail(log) || w->end <= log->stored)) {
		log->durable = w->end;
		complete_write(log, w, 0);
	}
}

/*
 * Complete the writes of a log that has failed, oldest first, up to one that is
 * outstanding: its completion calls this again.
 */
static void complete_all_failed(struct rpmem_log *log)
{
	struct log_write *w;

	log->first_waiting = NULL;
	log->waiting_bytes = 0;
	while ((w = TAILQ_FIRST(&log->writes)) &&
	       (!w->carrier || is_written(w)))
		complete_write(log, w, log->failed);
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

/* Store the tail after new entries, if the layout has a tail. */
static void store_tail(struct rpmem_log *log)
{
	struct log_post *s = &log->store;

	if (!has_tail(log) || log->store_busy ||
	    log->store_end == log->posted_end || log->failed)
		return;
	log->store_end = log->posted_end;
	log_places_store(&log->places, log->super.layout, log->posted_end,
			 &log->store_at.offset, &log->store_at.value);
	*s = (struct log_post){
		.kind = LOG_POST_STORE,
		.op = {.type = RPMEM_POOL_COMMIT, .then = &log->store_at},
	};
	s->op.context = s;
	if (log->io.submit(log->io.arg, &s->op))
		log_fail(log, -EIO, rpmem_pool_error());
	else
		log->store_busy = true;
}

void log_post(struct rpmem_log *log)
{
	post_writes(log);
	store_tail(log);
	if (log->failed)
		complete_all_failed(log);
}

static void post_done(struct rpmem_log *log, struct log_post *p)
{
	p->done = true;
	if (p->kind == LOG_POST_CALL)
		return;
	if (p->kind == LOG_POST_WRITE)
		log->outstanding--;
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

/*
 * Poll the pool without the lock, for a second at most, because another thread
 * may end the log while nothing is outstanding. Then complete and post.
 */
static void poll_once(struct rpmem_log *log, int ms)
{
	struct rpmem_pool_op *done[32];
	int n;

	ms = ms < 0 || ms > 1000 ? 1000 : ms;
	log->polling = true;
	pthread_mutex_unlock(&log->lock);
	n = log->io.poll(log->io.arg, done, 32, ms);
	pthread_mutex_lock(&log->lock);
	log->polling = false;
	for (int i = 0; i < n; i++)
		post_done(log, done[i]->context);
	if (!log->failed)
		complete_durable(log);
	log_post(log);
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
