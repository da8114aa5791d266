// SPDX-License-Identifier: BSD-2-Clause
/* The state that a server of Raft must not lose, in one log. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libraft/store.h"
#include "bytes.h"

int raft_code(int ret)
{
	switch (ret) {
	case 0:
		return 0;
	case -ENOSPC:
		return RAFT_NOSPACE;
	case -EMSGSIZE:
		return RAFT_TOOBIG;
	case -ENOMEM:
		return RAFT_NOMEM;
	case -ECANCELED:
		return RAFT_CANCELED;
	default:
		return RAFT_IOERR;
	}
}

int store_error(struct store *st, int ret, const char *what)
{
	snprintf(st->errmsg, RAFT_ERRMSG_BUF_SIZE, "%s: %s", what,
		 rpmem_log_error());
	return raft_code(ret);
}

void record_head(unsigned char *p, enum record kind, uint32_t type,
		 uint64_t index, uint64_t term)
{
	rp_put32(p, kind);
	rp_put32(p + 4, type);
	rp_put64(p + 8, index);
	rp_put64(p + 16, term);
}

/*
 * Open the logs. In a new pool, divide it and create the log of the server
 * last: if that log exists, both logs do.
 */
int store_open(struct store *st, const char *where,
	       const struct rpmem_log_attr *attr)
{
	struct rpmem_log_attr a = *attr;
	int ret;

	st->first = st->next = 1;
	raft_configuration_init(&st->snap.conf);
	writer_init(&st->w);
	a.logs = 2;
	ret = rpmem_log_open(&st->w.log, where, &a);
	if (ret == -ENODATA || ret == -ENXIO) {
		ret = pool_check_new(st, where, attr);
		if (ret)
			return ret;
		for (a.log = 1;; a.log--) {
			ret = rpmem_log_create(where, &a);
			if ((ret && ret != -EEXIST) || !a.log)
				break;
		}
		if (!ret || ret == -EEXIST)
			ret = rpmem_log_open(&st->w.log, where, &a);
	}
	return ret ? store_error(st, ret, where) : 0;
}

void store_close(struct store *st)
{
	writer_stop(&st->w);
	for (size_t i = 0; i < st->npending; i++)
		free(st->pending[i].bytes);
	free(st->pending);
	free(st->lsns);
	raft_configuration_close(&st->snap.conf);
}

int store_pristine(struct store *st, bool *pristine)
{
	struct rpmem_log_info info = {.size = sizeof(info)};
	int ret = rpmem_log_query(st->w.log, &info);

	*pristine = info.head == info.tail;
	return ret ? store_error(st, ret, "query") : 0;
}

static int reserve(struct store *st, size_t n)
{
	const size_t used = st->next - st->first;
	size_t room = st->lsns_room;
	uint64_t *lsns = st->lsns;

	while (used + n > room)
		room = room ? 2 * room : 64;
	if (room != st->lsns_room) {
		lsns = realloc(lsns, room * sizeof(*lsns));
		if (!lsns)
			return RAFT_NOMEM;
		st->lsns = lsns;
		st->lsns_room = room;
	}
	return 0;
}

int store_track(struct store *st, uint64_t lsn, unsigned int n)
{
	const int ret = reserve(st, n);

	for (unsigned int i = 0; !ret && i < n; i++)
		st->lsns[st->next++ - st->first] = lsn;
	return ret;
}

int store_term(struct store *st, raft_term term, raft_id vote)
{
	unsigned char record[RECORD_HEAD];
	int ret = store_flush(st);

	if (ret)
		return ret;
	record_head(record, RECORD_TERM, 0, vote, term);
	ret = rpmem_log_append(st->w.log, record, sizeof(record), NULL);
	st->w.armed = false; /* it may have completed jobs */
	if (ret)
		return store_error(st, ret, "term and vote");
	st->term = term;
	st->vote = vote;
	return 0;
}

int store_claim(struct store *st, const char *where, raft_id server,
		bool take_over)
{
	unsigned char record[RECORD_HEAD];
	int ret;

	if (st->server == server)
		return 0;
	if (st->server && !take_over) {
		snprintf(st->errmsg, RAFT_ERRMSG_BUF_SIZE,
			 "pool %s is that of server %llu, and this is server "
			 "%llu: each server needs a pool of its own, and keeps "
			 "its ID",
			 where, st->server, server);
		return RAFT_INVALID;
	}
	record_head(record, RECORD_SERVER, 0, server, 0);
	ret = rpmem_log_append(st->w.log, record, sizeof(record), NULL);
	if (ret)
		return store_error(st, ret, "server");
	st->server = server;
	return 0;
}

static unsigned char *entry_record(const struct raft_entry *e, raft_index index)
{
	unsigned char *p = malloc(RECORD_HEAD + e->buf.len);

	if (!p)
		return NULL;
	record_head(p, RECORD_ENTRY, e->type, index, e->term);
	if (e->buf.len)
		memcpy(p + RECORD_HEAD, e->buf.base, e->buf.len);
	return p;
}

/*
 * Submit records as one operation. Its LSN is that of the first record, and is
 * noted for all entries in it: a trim drops a little less than it could.
 */
int store_submit(struct store *st, struct iovec *iov, unsigned int n,
		 struct job *job)
{
	int ret;

	job->op.entries = iov;
	job->op.count = n;
	ret = writer_submit(&st->w, job, true);
	return ret ? store_error(st, ret, "append") : 0;
}

/* Append nothing behind an append that has failed: the log would have a gap. */
static int check_lost(const struct store *st)
{
	if (st->lost)
		snprintf(st->errmsg, RAFT_ERRMSG_BUF_SIZE,
			 "append: an earlier one has failed; start this server "
			 "again when its pool can be written");
	return st->lost;
}

int store_append(struct store *st, const struct raft_entry *entries,
		 unsigned int n, struct job *job)
{
	struct iovec *iov = calloc(n, sizeof(*iov));
	int ret = check_lost(st);

	if (!ret)
		ret = iov ? store_flush(st) : RAFT_NOMEM;
	for (unsigned int i = 0; !ret && i < n; i++) {
		iov[i].iov_base = entry_record(&entries[i], st->next + i);
		iov[i].iov_len = RECORD_HEAD + entries[i].buf.len;
		ret = iov[i].iov_base ? 0 : RAFT_NOMEM;
	}
	if (!ret)
		ret = reserve(st, n);
	if (!ret)
		ret = store_submit(st, iov, n, job);
	if (!ret)
		(void)store_track(st, job->op.lsn, n);
	for (unsigned int i = 0; iov && i < n; i++)
		free(iov[i].iov_base);
	free(iov);
	return ret;
}

int store_pend(struct store *st, const struct raft_entry *entries,
	       unsigned int n)
{
	size_t room = st->pending_room;
	struct pending *pending = st->pending;

	if (check_lost(st))
		return st->lost;
	if (reserve(st, n))
		return RAFT_NOMEM;

	while (st->npending + n > room)
		room = room ? 2 * room : 64;
	if (room != st->pending_room) {
		pending = realloc(pending, room * sizeof(*pending));
		if (!pending)
			return RAFT_NOMEM;
		st->pending = pending;
		st->pending_room = room;
	}
	for (unsigned int i = 0; i < n; i++) {
		pending[st->npending + i] = (struct pending){
			entry_record(&entries[i], st->next + i),
			RECORD_HEAD + entries[i].buf.len};
		if (!pending[st->npending + i].bytes) {
			while (i--)
				free(pending[st->npending + i].bytes);
			return RAFT_NOMEM;
		}
	}
	for (unsigned int i = 0; i < n; i++)
		st->pending_bytes += pending[st->npending + i].len;
	st->npending += n;
	return store_track(st, 0, n);
}

struct flush {
	struct job job;
	struct origin origin;
};

static void flush_done(struct job *job, int result)
{
	struct flush *f = (struct flush *)job;
	struct store *st = job->arg;

	st->flushing--;
	if (result)
		st->lost = raft_code(result);
	if (!result && st->flushed && f->origin.peer)
		st->flushed(&f->origin);
	free(f);
}

int store_flush(struct store *st)
{
	const size_t n = st->npending;
	struct iovec *iov;
	struct flush *f;
	int ret;

	if (!n)
		return 0;
	iov = calloc(n, sizeof(*iov));
	f = calloc(1, sizeof(*f));
	if (!iov || !f) {
		free(iov);
		free(f);
		return RAFT_NOMEM;
	}
	for (size_t i = 0; i < n; i++)
		iov[i] = (struct iovec){st->pending[i].bytes,
					st->pending[i].len};
	f->job = (struct job){.done = flush_done, .arg = st};
	f->origin = st->origin;
	ret = store_submit(st, iov, (unsigned int)n, &f->job);
	free(iov);
	if (ret) {
		free(f);
		return ret;
	}
	st->flushing++;
	/* The flushed entries are the last n: note the LSN of their record. */
	for (size_t i = 0; i < n; i++) {
		st->lsns[st->next - n + i - st->first] = f->job.op.lsn;
		free(st->pending[i].bytes);
	}
	st->npending = st->pending_bytes = 0;
	return 0;
}

int store_truncate(struct store *st, raft_index index)
{
	const int ret = store_flush(st);

	if (!ret && index < st->next)
		st->next = index < st->first ? st->first : index;
	return ret;
}
