// SPDX-License-Identifier: BSD-2-Clause
/* Append entries to a log. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "liblog/log.h"

/* The positions of an append's entries: up to two runs of the ring. */
struct plan {
	uint64_t from, wrap, end; /* wrap: start of the second run, or 0 */
	bool pad;		  /* the first run ends with a pad entry */
};

static struct plan plan_append(const struct rpmem_log *log,
			       const struct rpmem_log_op *op)
{
	struct plan p = {.from = log->tail, .end = log->tail};
	uint64_t left, size;

	for (unsigned int i = 0; i < op->count; i++) {
		left = log_ring_left(&log->super, p.end);
		size = log_entry_size(op->entries[i].iov_len);
		if (left == log->super.ring && p.end != p.from) {
			p.wrap = p.end;
		} else if (size > left) {
			p.pad = true;
			p.end += left;
			p.wrap = p.end;
		}
		p.end += size;
	}
	return p;
}

/* Encode entries from *i on, up to LSN `end`; with `pad`, a pad behind them. */
static struct log_write *encode(struct rpmem_log *log,
				const struct rpmem_log_op *op, unsigned int *i,
				uint64_t from, uint64_t end, bool pad)
{
	struct log_entry e = {
		.durable = log->durable,
		.epoch = log->super.epoch,
	};
	uint64_t at = from, size, bytes = 0;
	struct log_write *w;

	for (unsigned int k = *i; k < op->count; k++) {
		size = log_entry_size(op->entries[k].iov_len);
		if (from + bytes + size > end)
			break;
		bytes += size;
	}
	w = calloc(1, sizeof(*w) + bytes + (pad ? LOG_ALIGN : 0));
	if (!w)
		return NULL;
	w->offset = LOG_RING_AT + from % log->super.ring;
	w->len = bytes + (pad ? LOG_ALIGN : 0);
	w->end = end;
	for (; at < from + bytes; (*i)++) {
		unsigned char *to = w->bytes + (at - from);

		e.lsn = at;
		e.len = (uint32_t)op->entries[*i].iov_len;
		memcpy(to + LOG_HEADER, op->entries[*i].iov_base, e.len);
		log_entry_encode(&log->super, &e, to);
		at += log_entry_size(e.len);
	}
	if (pad) {
		e.lsn = at;
		e.len = 0;
		e.pad = true;
		log_entry_encode(&log->super, &e, w->bytes + bytes);
	}
	return w;
}

static void add_write(struct rpmem_log *log, struct log_write *w)
{
	TAILQ_INSERT_TAIL(&log->writes, w, link);
	if (!log->first_waiting)
		log->first_waiting = w;
	log->waiting_bytes += w->len;
	log->out += w->len;
	log->tail = w->end;
}

static int submit_plan(struct rpmem_log *log, const struct plan *p,
		       struct rpmem_log_op *op, bool *wake)
{
	struct log_write *first, *second = NULL;
	unsigned int i = 0;

	first = encode(log, op, &i, p->from, p->wrap ? p->wrap : p->end,
		       p->pad);
	if (first && p->wrap)
		second = encode(log, op, &i, p->wrap, p->end, false);
	if (!first || (p->wrap && !second)) {
		free(first);
		return log_error(-ENOMEM, "out of memory");
	}
	op->lsn = p->from;
	op->next = p->end;
	(second ? second : first)->op = op;
	(second ? second : first)->wake = wake;
	add_write(log, first);
	if (second)
		add_write(log, second);
	log_post(log);
	return 0;
}

static int check(const struct rpmem_log *log, const struct rpmem_log_op *op)
{
	const uint64_t max = log_entry_max(&log->super);
	uint64_t bytes = 0, size, longest = 0;

	if (log->read_only)
		return log_error(-EACCES, "the log is open to read; open it as "
					  "its writer to append");
	if (!op->entries || !op->count)
		return log_error(-EINVAL, "no entries to append");
	for (unsigned int i = 0; i < op->count; i++) {
		const struct iovec *v = &op->entries[i];

		if (!v->iov_base)
			return log_error(-EINVAL,
					 "the buffer of entry %u is "
					 "NULL",
					 i);
		if (!v->iov_len)
			return log_error(-EINVAL, "entry %u is empty", i);
		if (v->iov_len > max)
			return log_error(-EMSGSIZE,
					 "entry %u has %zu bytes; this log "
					 "takes %llu",
					 i, v->iov_len,
					 (unsigned long long)max);
		size = log_entry_size(v->iov_len);
		longest = size > longest ? size : longest;
		bytes += size;
	}
	/* A pad at the ring's end is shorter than the entry that follows it. */
	if (bytes + longest - LOG_ALIGN > log->super.ring ||
	    bytes > LOG_WINDOW + LOG_ALIGN)
		return log_error(-EMSGSIZE,
				 "the entries of one append need %llu bytes; "
				 "a ring of %llu and a window of %u have no "
				 "room for them: append them in parts",
				 (unsigned long long)bytes,
				 (unsigned long long)log->super.ring,
				 LOG_WINDOW);
	return 0;
}

/* Called with the lock held. wake: a thread waits for the operation. */
static int append(struct rpmem_log *log, struct rpmem_log_op *op, bool *wake)
{
	struct plan p;
	int ret = check(log, op);

	if (ret)
		return ret;
	if (log->durable - log->super.mark > LOG_MARK_BYTES)
		log_super_publish(log);
	for (;;) {
		ret = log_check(log);
		if (ret)
			return ret;
		p = plan_append(log, op);
		if (!log->out || log->out + (p.end - p.from) <= LOG_WINDOW)
			break;
		if (!wake)
			return log_error(-EAGAIN,
					 "16 MiB of appends are outstanding; "
					 "call rpmem_log_poll()");
		log_progress(log, -1);
	}
	if (p.end - log->super.head > log->super.ring)
		return log_error(
			-ENOSPC,
			"the log is full: %llu of %llu bytes hold "
			"entries; trim it",
			(unsigned long long)(log->tail - log->super.head),
			(unsigned long long)log->super.ring);
	return submit_plan(log, &p, op, wake);
}

int rpmem_log_submit(struct rpmem_log *log, struct rpmem_log_op *op)
{
	int ret;

	if (!log || !op)
		return log_error(-EINVAL, "the log, or the operation, is NULL");

	pthread_mutex_lock(&log->lock);
	ret = append(log, op, NULL);
	pthread_mutex_unlock(&log->lock);
	return ret;
}

int rpmem_log_append(struct rpmem_log *log, const void *buf, size_t len,
		     uint64_t *lsn)
{
	const struct iovec entry = {
		.iov_base = (void *)(uintptr_t)buf,
		.iov_len = len,
	};
	struct rpmem_log_op op = {.entries = &entry, .count = 1};
	bool done = false;
	int ret;

	if (!log)
		return log_error(-EINVAL, "the log is NULL");
	pthread_mutex_lock(&log->lock);
	ret = append(log, &op, &done);
	if (!ret)
		log_wait(log, &done);
	pthread_mutex_unlock(&log->lock);
	if (ret)
		return ret;
	if (op.result)
		return log_error(op.result, "%s", op.error);
	if (lsn)
		*lsn = op.lsn;
	return 0;
}

static int take_done(struct rpmem_log *log, struct rpmem_log_op **done,
		     unsigned int n)
{
	struct log_write *w;
	int got = 0;

	while ((unsigned int)got < n && (w = TAILQ_FIRST(&log->done))) {
		TAILQ_REMOVE(&log->done, w, link);
		done[got++] = w->op;
		free(w);
	}
	return got;
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

int rpmem_log_poll(struct rpmem_log *log, struct rpmem_log_op **done,
		   unsigned int n, int timeout_ms)
{
	const uint64_t until = now_ms() + (uint64_t)timeout_ms;
	int got, ms = timeout_ms;
	uint64_t now;

	if (!log || !done || !n)
		return log_error(-EINVAL, "rpmem_log_poll() needs a log and "
					  "room for an operation");
	pthread_mutex_lock(&log->lock);
	/* Readers see the durable end in the next entry; without one, here. */
	if (TAILQ_EMPTY(&log->writes))
		log_super_publish(log);
	for (;;) {
		got = take_done(log, done, n);
		if (got)
			break;
		if (log->failed && TAILQ_EMPTY(&log->writes)) {
			got = log_check(log);
			break;
		}
		log_progress(log, ms);
		got = take_done(log, done, n);
		if (got || !ms)
			break;
		now = now_ms();
		if (timeout_ms >= 0)
			ms = now < until ? (int)(until - now) : 0;
	}
	pthread_mutex_unlock(&log->lock);
	return got;
}

int rpmem_log_trywait(struct rpmem_log *log, int *fd, int *timeout_ms)
{
	bool busy;
	int ret = 0;

	if (!log || !fd || !timeout_ms)
		return log_error(-EINVAL, "rpmem_log_trywait() needs a log, "
					  "and places for its results");
	pthread_mutex_lock(&log->lock);
	busy = log->polling || log->failed || !TAILQ_EMPTY(&log->done);
	if (busy)
		*timeout_ms = 0;
	else if (log->pool)
		ret = rpmem_pool_trywait(log->pool, fd, timeout_ms);
	pthread_mutex_unlock(&log->lock);
	return ret < 0 ? log_error(ret, "%s", rpmem_pool_error()) : ret;
}

int rpmem_log_publish(struct rpmem_log *log)
{
	int ret;

	if (!log)
		return log_error(-EINVAL, "the log is NULL");
	pthread_mutex_lock(&log->lock);
	ret = log_check(log);
	if (!ret && !log->read_only && log->durable != log->super.mark)
		ret = log_super_write(log, 0, log->super.epoch);
	pthread_mutex_unlock(&log->lock);
	return ret;
}
