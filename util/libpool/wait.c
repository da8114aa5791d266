// SPDX-License-Identifier: BSD-2-Clause
/* Blocking calls of a pool: one of the waiting threads makes progress. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util/clock.h"
#include "libpool/group_open.h"
#include "libpool/pool.h"

/* A buffered write reads completions if so many posts are outstanding. */
#define OUT_MANY 16

void pool_cond_wait(struct rpmem_pool *p, pthread_cond_t *cond, uint64_t ms)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)(ms % 1000) * 1000000;
	until.tv_sec += (time_t)(ms / 1000) + until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_timedwait(cond, &p->lock, &until);
}

/* Check an operation; the store of a commit is checked as a write. */
static int check(struct rpmem_pool *p, const struct rpmem_pool_op *op)
{
	const struct rpmem_pool_then *then = op->then;
	const struct rpmem_pool_op store = {
		.type = RPMEM_POOL_ZERO,
		.len = sizeof(then->value),
		.offset = then ? then->offset : 0,
	};

	if (then && (op->type != RPMEM_POOL_COMMIT || then->offset % 8))
		return pool_error(-EINVAL, "then is for a commit, and its "
					   "offset a multiple of 8");
	if (op->type == RPMEM_POOL_COMMIT)
		return then ? check(p, &store) : 0;
	if (op->type != RPMEM_POOL_WRITE && op->type != RPMEM_POOL_READ &&
	    op->type != RPMEM_POOL_ZERO)
		return pool_error(-EINVAL, "%d is no type of an operation",
				  (int)op->type);
	if (op->flags & ~(op->type == RPMEM_POOL_READ
				  ? 0u
				  : RPMEM_POOL_DURABLE | RPMEM_POOL_BUFFERED))
		return pool_error(-EINVAL, "flags %#x are unknown", op->flags);
	if (op->flags == (RPMEM_POOL_DURABLE | RPMEM_POOL_BUFFERED))
		return pool_error(-EINVAL, "a write is either durable or "
					   "buffered, when it completes");
	if (p->now.ex.read_only && op->type != RPMEM_POOL_READ)
		return pool_error(-EACCES,
				  "%s only allows to read pool '%s'; use "
				  "another one, or change the configuration "
				  "of fi_rpmemd",
				  p->observe ? "RPMEM_POOL_OBSERVE"
					     : "the secret",
				  p->name);
	if (!op->buf && op->len && op->type != RPMEM_POOL_ZERO)
		return pool_error(-EINVAL, "the buffer is NULL");
	if (op->offset > p->now.ex.len || op->len > p->now.ex.len - op->offset)
		return pool_error(
			-ERANGE,
			"pool '%s' has %llu bytes: %zu bytes at %llu go "
			"beyond its end",
			p->name, (unsigned long long)p->now.ex.len, op->len,
			(unsigned long long)op->offset);
	return 0;
}

/* Called with the lock held. */
static int submit(struct rpmem_pool *p, struct rpmem_pool_op *op,
		  struct waiter *waiter)
{
	int ret = check(p, op);
	struct work *w;

	if (ret)
		return ret;
	w = calloc(1, sizeof(*w));
	if (!w)
		return pool_error(-ENOMEM, "out of memory");
	w->op = op;
	w->waiter = waiter;
	w->deadline = rp_now_ms() + p->timeout_ms;
	if (op->type == RPMEM_POOL_READ && op->len) {
		ret = rp_fabric_reg(&p->f, op->buf, op->len, FI_READ, 0, &w->mr,
				    pool_error_buf());
		if (ret) {
			free(w);
			return ret;
		}
	}
	LIST_INSERT_HEAD(&p->all, w, all);
	work_add(p, w);
	return 0;
}

/* Wake one waiting thread, which makes progress next. */
static void hand_over(struct rpmem_pool *p)
{
	struct waiter *other;

	p->polling = false;
	TAILQ_FOREACH (other, &p->waiters, link)
		if (!other->done) {
			pthread_cond_signal(&other->wake);
			return;
		}
	pthread_cond_signal(&p->async_done);
}

void pool_progress(struct rpmem_pool *p, int ms)
{
	p->polling = true;
	work_progress(p, ms);
	hand_over(p);
}

/* Wait for completion: make progress, or let another thread do it. */
static void wait_done(struct rpmem_pool *p, struct waiter *me)
{
	/* A buffered write is done: completions of others free the journal. */
	if (me->done && !p->polling && p->out >= OUT_MANY)
		pool_progress(p, 0);
	TAILQ_INSERT_TAIL(&p->waiters, me, link);
	while (!me->done) {
		if (p->polling) {
			pthread_cond_wait(&me->wake, &p->lock);
			continue;
		}
		p->polling = true;
		while (!me->done)
			work_progress(p, -1);
		TAILQ_REMOVE(&p->waiters, me, link);
		hand_over(p);
		return;
	}
	TAILQ_REMOVE(&p->waiters, me, link);
	/* hand_over() may have woken this thread: pass the turn on. */
	if (!p->polling)
		hand_over(p);
}

static int run(struct rpmem_pool *p, struct rpmem_pool_op *op)
{
	struct waiter me = {.done = false};
	int ret;

	if (p->group) {
		ret = check(p, op);
		return ret ? ret : pool_group_run(p, op);
	}
	pthread_cond_init(&me.wake, NULL);
	pthread_mutex_lock(&p->lock);
	ret = submit(p, op, &me);
	if (!ret)
		wait_done(p, &me);
	pthread_mutex_unlock(&p->lock);
	pthread_cond_destroy(&me.wake);
	if (ret)
		return ret;
	if (op->result)
		pool_error(0, "%s", op->error);
	return op->result;
}

int rpmem_pool_write(struct rpmem_pool *pool, const void *buf, size_t len,
		     uint64_t offset, unsigned int flags)
{
	struct rpmem_pool_op op = {
		.type = RPMEM_POOL_WRITE,
		.flags = flags,
		.buf = (void *)(uintptr_t)buf,
		.len = len,
		.offset = offset,
	};

	return run(pool, &op);
}

int rpmem_pool_zero(struct rpmem_pool *pool, size_t len, uint64_t offset,
		    unsigned int flags)
{
	struct rpmem_pool_op op = {
		.type = RPMEM_POOL_ZERO,
		.flags = flags,
		.len = len,
		.offset = offset,
	};

	return run(pool, &op);
}

int rpmem_pool_read(struct rpmem_pool *pool, void *buf, size_t len,
		    uint64_t offset)
{
	struct rpmem_pool_op op = {
		.type = RPMEM_POOL_READ,
		.buf = buf,
		.len = len,
		.offset = offset,
	};

	return run(pool, &op);
}

int rpmem_pool_commit(struct rpmem_pool *pool)
{
	struct rpmem_pool_op op = {.type = RPMEM_POOL_COMMIT};

	return run(pool, &op);
}

int rpmem_pool_submit(struct rpmem_pool *pool, struct rpmem_pool_op *op)
{
	int ret;

	if (pool->group) {
		ret = check(pool, op);
		return ret ? ret : pool_group_submit(pool, op);
	}
	pthread_mutex_lock(&pool->lock);
	ret = submit(pool, op, NULL);
	pthread_mutex_unlock(&pool->lock);
	return ret;
}

static unsigned int take_done(struct rpmem_pool *p, struct rpmem_pool_op **done,
			      unsigned int n)
{
	unsigned int got = 0;
	struct work *w;

	while (got < n && (w = TAILQ_FIRST(&p->done))) {
		TAILQ_REMOVE(&p->done, w, link);
		done[got++] = w->op;
		work_free(w);
	}
	return got;
}

int rpmem_pool_poll(struct rpmem_pool *pool, struct rpmem_pool_op **done,
		    unsigned int n, int timeout_ms)
{
	const uint64_t until = rp_now_ms() + (uint64_t)timeout_ms;
	unsigned int got;
	int ms = timeout_ms;
	uint64_t now;

	if (!n)
		return pool_error(-EINVAL, "room for no operation");
	if (pool->group)
		return pool_group_poll(pool, done, n, timeout_ms);
	pthread_mutex_lock(&pool->lock);
	while (!(got = take_done(pool, done, n))) {
		if (pool->polling)
			pool_cond_wait(pool, &pool->async_done,
				       ms < 0 || ms > 100 ? 100 : (uint64_t)ms);
		else
			pool_progress(pool, ms);
		if (!ms) {
			got = take_done(pool, done, n);
			break;
		}
		now = rp_now_ms();
		if (timeout_ms >= 0)
			ms = now < until ? (int)(until - now) : 0;
	}
	pthread_mutex_unlock(&pool->lock);
	return (int)got;
}

unsigned int pool_trywait(struct rpmem_pool *p, int *fd, int *ms)
{
	struct fid *cq;
	unsigned int n = 0;

	pthread_mutex_lock(&p->lock);
	cq = p->f.cq ? &p->f.cq->fid : NULL;
	if (p->state == LINK_CONNECTING || p->no_thread) {
		*ms = *ms > 10 ? 10 : *ms;
	} else if (!cq || p->polling || !TAILQ_EMPTY(&p->done) ||
		   (p->state == LINK_DRAINING && !p->out) ||
		   fi_trywait(p->f.fabric, &cq, 1) ||
		   fi_control(cq, FI_GETWAIT, fd)) {
		*ms = 0;
	} else {
		n = 1;
		/* A post that was not accepted is retried soon. */
		if (!TAILQ_EMPTY(&p->waiting))
			*ms = 1;
	}
	pthread_mutex_unlock(&p->lock);
	return n;
}

int rpmem_pool_trywait(struct rpmem_pool *pool, int *fd, int *timeout_ms)
{
	if (pool->group)
		return pool_error(-EOPNOTSUPP, "a group has no descriptor to "
					       "wait for");
	if (*timeout_ms > POOL_TICK_MS)
		*timeout_ms = POOL_TICK_MS;
	return (int)pool_trywait(pool, fd, timeout_ms);
}
