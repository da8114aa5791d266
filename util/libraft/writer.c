// SPDX-License-Identifier: BSD-2-Clause
/* A log with asynchronous appends, polled by a thread. */
#include "config.h"

#include <errno.h>

#include "libraft/writer.h"

#define BATCH	32u
#define POLL_MS 200

/*
 * Called with the lock held, and releases it while it polls. Jobs complete in
 * the order of their submission.
 */
static int poll_log(struct writer *w, int ms)
{
	struct rpmem_log_op *done[BATCH];
	struct job *job;
	int n;

	pthread_mutex_unlock(&w->lock);
	n = rpmem_log_poll(w->log, done, BATCH, ms);
	pthread_mutex_lock(&w->lock);
	for (int i = 0; i < n; i++) {
		job = done[i]->context;
		TAILQ_REMOVE(&w->out, job, link);
		TAILQ_INSERT_TAIL(&w->done, job, link);
	}
	if (n > 0 && !w->by_loop)
		pthread_cond_broadcast(&w->changed);
	return n;
}

/*
 * Called with w->lock held. When no append is outstanding, wait for one instead
 * of polling, because rpmem_log_poll() would write a superblock; wait, too,
 * while the event loop polls.
 */
static bool write_or_wait(struct writer *w)
{
	const uint64_t trim = w->trim;

	w->trim = 0;
	if (!trim && (TAILQ_EMPTY(&w->out) || w->by_loop)) {
		pthread_cond_wait(&w->changed, &w->lock);
		return false;
	}
	if (!trim)
		return poll_log(w, POLL_MS) > 0;
	pthread_mutex_unlock(&w->lock);
	(void)rpmem_log_trim(w->log, trim);
	pthread_mutex_lock(&w->lock);
	/* The trim may have read the event for which the loop waits. */
	return w->by_loop;
}

static void *run(void *arg)
{
	struct writer *w = arg;
	struct rpmem_log *log = w->log;
	int ret = log ? 0 : rpmem_log_open(&log, w->where, &w->attr);
	bool stop;

	pthread_mutex_lock(&w->lock);
	w->log = ret ? NULL : log;
	w->open_result = ret;
	w->opened = true;
	stop = w->stop || ret;
	pthread_mutex_unlock(&w->lock);
	w->wake(w->arg);
	pthread_mutex_lock(&w->lock);
	while (!stop) {
		if (write_or_wait(w)) {
			pthread_mutex_unlock(&w->lock);
			w->wake(w->arg);
			pthread_mutex_lock(&w->lock);
		}
		stop = w->stop;
	}
	pthread_mutex_unlock(&w->lock);
	/* Without the lock: the close may wait for an unreachable target. */
	if (!ret)
		rpmem_log_close(log);
	pthread_mutex_lock(&w->lock);
	w->log = NULL;
	w->ended = true;
	pthread_mutex_unlock(&w->lock);
	w->wake(w->arg);
	return NULL;
}

void writer_init(struct writer *w)
{
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);
	TAILQ_INIT(&w->out);
	TAILQ_INIT(&w->done);
}

int writer_start(struct writer *w)
{
	const int ret = pthread_create(&w->thread, NULL, run, w);

	w->threaded = !ret;
	return -ret;
}

void writer_end(struct writer *w)
{
	/* The thread closes the descriptor that the event loop watches. */
	if (w->uvpoll)
		w->uvpoll_stop(w->uvpoll);
	w->uvpoll = NULL;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

bool writer_ended(struct writer *w)
{
	bool ended;

	pthread_mutex_lock(&w->lock);
	ended = w->ended;
	pthread_mutex_unlock(&w->lock);
	return ended;
}

void writer_stop(struct writer *w)
{
	struct job *job;

	if (w->threaded) {
		writer_end(w);
		pthread_join(w->thread, NULL);
		w->threaded = false;
	}
	if (w->log)
		rpmem_log_close(w->log);
	w->log = NULL;
	TAILQ_CONCAT(&w->done, &w->out, link);
	while ((job = TAILQ_FIRST(&w->done))) {
		TAILQ_REMOVE(&w->done, job, link);
		job->done(job, -ECANCELED);
	}
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
}

int writer_submit(struct writer *w, struct job *job, bool wait)
{
	int ret;

	job->op.context = job;
	w->armed = false;
	pthread_mutex_lock(&w->lock);
	for (;;) {
		ret = rpmem_log_submit(w->log, &job->op);
		if (ret != -EAGAIN || !wait)
			break;
		if (!w->by_loop && w->threaded)
			pthread_cond_wait(&w->changed, &w->lock);
		else if (!w->by_loop)
			poll_log(w, -1);
		else if (poll_log(w, POLL_MS) > 0)
			w->wake(w->arg); /* to reap these jobs later */
	}
	if (!ret) {
		/* The thread keeps the jobs for which it already polls. */
		if (TAILQ_EMPTY(&w->out))
			w->by_loop = w->may_poll;
		TAILQ_INSERT_TAIL(&w->out, job, link);
		if (!w->by_loop)
			pthread_cond_broadcast(&w->changed);
	}
	pthread_mutex_unlock(&w->lock);
	return ret;
}

void writer_reap(struct writer *w)
{
	struct jobs done = TAILQ_HEAD_INITIALIZER(done);
	struct job *job;

	pthread_mutex_lock(&w->lock);
	while (!w->threaded && !TAILQ_EMPTY(&w->out))
		poll_log(w, -1);
	TAILQ_CONCAT(&done, &w->done, link);
	pthread_mutex_unlock(&w->lock);
	while ((job = TAILQ_FIRST(&done))) {
		TAILQ_REMOVE(&done, job, link);
		job->done(job, job->op.result);
	}
}

int writer_trim(struct writer *w, uint64_t lsn)
{
	if (!w->threaded)
		return rpmem_log_trim(w->log, lsn);
	pthread_mutex_lock(&w->lock);
	w->trim = lsn;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	return 0;
}

bool writer_by_loop(struct writer *w)
{
	bool by_loop;

	pthread_mutex_lock(&w->lock);
	by_loop = w->by_loop && !TAILQ_EMPTY(&w->out);
	pthread_mutex_unlock(&w->lock);
	return by_loop;
}

bool writer_poll(struct writer *w)
{
	int n;

	pthread_mutex_lock(&w->lock);
	n = poll_log(w, 0);
	pthread_mutex_unlock(&w->lock);
	return n > 0;
}

void writer_leave(struct writer *w)
{
	pthread_mutex_lock(&w->lock);
	w->by_loop = false;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

bool writer_opened(struct writer *w, int *result)
{
	bool opened;

	pthread_mutex_lock(&w->lock);
	opened = w->opened;
	*result = w->open_result;
	pthread_mutex_unlock(&w->lock);
	return opened;
}
