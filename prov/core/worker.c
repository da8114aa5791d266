// SPDX-License-Identifier: BSD-2-Clause
/* One thread that runs batches whose flushes block on a disk. */
#include <assert.h>

#include "core/thread.h"
#include "core/worker.h"

int rp_worker_init(struct rp_worker *w, struct rp_agent_host *h)
{
	int ret;

	*w = (struct rp_worker){.host = h};
	ret = pthread_mutex_init(&w->lock, NULL);
	if (ret)
		return -ret;
	ret = pthread_cond_init(&w->changed, NULL);
	if (ret)
		pthread_mutex_destroy(&w->lock);
	return -ret;
}

void rp_worker_fini(struct rp_worker *w)
{
	if (w->started) {
		pthread_mutex_lock(&w->lock);
		w->stop = true;
		pthread_cond_broadcast(&w->changed);
		pthread_mutex_unlock(&w->lock);
		pthread_join(w->thread, NULL);
	}
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
}

static void *worker_main(void *arg)
{
	struct rp_worker *w = arg;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		while (w->state != RP_WORKER_BUSY && !w->stop)
			pthread_cond_wait(&w->changed, &w->lock);
		if (w->state != RP_WORKER_BUSY)
			break;
		pthread_mutex_unlock(&w->lock);
		rp_batch_run(w->batch);
		pthread_mutex_lock(&w->lock);
		w->state = RP_WORKER_DONE;
		pthread_cond_broadcast(&w->changed);
		/* Unlocked: the kicked thread locks to fetch the batch. */
		pthread_mutex_unlock(&w->lock);
		w->host->ops->kick(w->host);
		pthread_mutex_lock(&w->lock);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

int rp_worker_start(struct rp_worker *w)
{
	int ret;

	if (w->started)
		return 0;
	ret = rp_thread_start(&w->thread, worker_main, w);
	w->started = !ret;
	return -ret;
}

void rp_worker_submit(struct rp_worker *w, struct rp_batch *b)
{
	pthread_mutex_lock(&w->lock);
	assert(w->started && w->state == RP_WORKER_IDLE);
	w->batch = b;
	w->state = RP_WORKER_BUSY;
	pthread_mutex_unlock(&w->lock);
	pthread_cond_broadcast(&w->changed); /* its thread locks at once */
}

bool rp_worker_collect(struct rp_worker *w, bool wait)
{
	bool done;

	/* Poll without the lock while the batch runs. */
	if (!wait && w->state == RP_WORKER_BUSY)
		return false;
	pthread_mutex_lock(&w->lock);
	assert(w->state != RP_WORKER_IDLE);
	while (wait && w->state != RP_WORKER_DONE)
		pthread_cond_wait(&w->changed, &w->lock);
	done = w->state == RP_WORKER_DONE;
	if (done)
		w->state = RP_WORKER_IDLE;
	pthread_mutex_unlock(&w->lock);
	return done;
}
