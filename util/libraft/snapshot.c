// SPDX-License-Identifier: BSD-2-Clause
/* Snapshots in the log: chunks, then a record that completes the chunks. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libraft/store.h"
#include "bytes.h"

#define CHUNK	    (128ul * 1024)
#define OUTSTANDING 4u

struct put {
	struct store *st;
	const struct raft_snapshot *snapshot;
	unsigned int trailing;
	void (*done)(void *arg, int status);
	void *arg;
	uint64_t number, total, at, lsn;
	unsigned int out; /* chunks outstanding */
	int status;
	struct job last;
	struct raft_configuration conf; /* configuration in the snapshot */
};

struct chunk {
	struct job job;
	unsigned char bytes[];
};

static void pump(struct put *put);

static void finish(struct put *put)
{
	raft_configuration_close(&put->conf);
	put->st->put = NULL;
	put->done(put->arg, put->status);
	free(put);
}

/*
 * Trim the records before the snapshot and before the entries to keep. Entries
 * are kept only in the newest half of the log, because the next snapshot needs
 * room, and former snapshots lie between the entries.
 */
static int trim_records(struct store *st, const struct put *put)
{
	const raft_index index = st->snap.index;
	struct rpmem_log_info info = {.size = sizeof(info)};
	raft_index keep =
		index + 1 > put->trailing ? index + 1 - put->trailing : 1;
	uint64_t lsn = st->snap.lsn;

	if (keep < st->first)
		keep = st->first;
	(void)rpmem_log_query(st->w.log, &info);
	while (keep < index && keep < st->next &&
	       info.tail - st->lsns[keep - st->first] > info.capacity / 2)
		keep++;
	if (keep < st->next) {
		if (st->lsns[keep - st->first] < lsn)
			lsn = st->lsns[keep - st->first];
		memmove(st->lsns, st->lsns + (keep - st->first),
			(st->next - keep) * sizeof(*st->lsns));
		st->first = keep;
	}
	return writer_trim(&st->w, lsn);
}

static void record_done(struct job *job, int result)
{
	struct put *put = job->arg;
	struct store *st = put->st;

	put->status = raft_code(result);
	if (!put->status) {
		st->snap.index = put->snapshot->index;
		st->snap.term = put->snapshot->term;
		st->snap.number = put->number;
		st->snap.lsn = put->lsn;
		st->snap.bytes = put->total;
		st->snap.conf_index = put->snapshot->configuration_index;
		raft_configuration_close(&st->snap.conf);
		st->snap.conf = put->conf;
		raft_configuration_init(&put->conf);
		(void)trim_records(st, put);
	}
	finish(put);
}

/* Submit the final record, once all chunks are durable. */
static int submit_record(struct put *put)
{
	const struct raft_snapshot *s = put->snapshot;
	struct store *st = put->st;
	const size_t len =
		RECORD_HEAD + SNAPSHOT_HEAD + conf_size(&s->configuration);
	unsigned char *p = malloc(len), *q = p + RECORD_HEAD;
	unsigned char server[RECORD_HEAD];
	struct iovec iov[2] = {{server, sizeof(server)}, {p, len}};
	const unsigned int skip = !st->server;
	int ret = p ? store_flush(st) : RAFT_NOMEM;

	if (!ret) {
		record_head(p, RECORD_SNAPSHOT, 0, s->index, s->term);
		rp_put64(q, put->number);
		rp_put64(q + 8, put->total);
		rp_put64(q + 16, put->trailing == 0);
		rp_put64(q + 24, s->configuration_index);
		rp_put64(q + 32, st->term);
		rp_put64(q + 40, st->vote);
		conf_put(&s->configuration, q + SNAPSHOT_HEAD);
		put->last.done = record_done;
		put->last.arg = put;
		/* Repeat the log's first record, which will be trimmed. */
		record_head(server, RECORD_SERVER, 0, st->server, 0);
		ret = store_submit(st, iov + skip, 2 - skip, &put->last);
	}
	if (!ret && put->trailing == 0)
		st->first = st->next = s->index + 1;
	free(p);
	return ret;
}

static void chunk_done(struct job *job, int result)
{
	struct put *put = job->arg;

	put->out--;
	if (result)
		put->status = raft_code(result);
	free(job);
	pump(put);
}

static void gather(const struct put *put, unsigned char *to, size_t len)
{
	uint64_t skip = put->at;

	for (unsigned int i = 0; len && i < put->snapshot->n_bufs; i++) {
		const struct raft_buffer *b = &put->snapshot->bufs[i];
		size_t part = b->len > skip ? b->len - skip : 0;

		part = part > len ? len : part;
		if (part)
			memcpy(to, (unsigned char *)b->base + skip, part);
		skip = b->len > skip ? 0 : skip - b->len;
		to += part;
		len -= part;
	}
}

static int submit_chunk(struct put *put)
{
	const uint64_t left = put->total - put->at;
	const size_t len = left < CHUNK ? (size_t)left : CHUNK;
	struct chunk *c = malloc(sizeof(*c) + RECORD_HEAD + len);
	int ret;

	if (!c)
		return RAFT_NOMEM;
	c->job = (struct job){.done = chunk_done, .arg = put};
	record_head(c->bytes, RECORD_CHUNK, 0, put->number, put->at);
	gather(put, c->bytes + RECORD_HEAD, len);
	ret = store_submit(put->st,
			   &(struct iovec){c->bytes, RECORD_HEAD + len}, 1,
			   &c->job);
	if (ret) {
		free(c);
		return ret;
	}
	if (put->at == 0)
		put->lsn = c->job.op.lsn;
	put->at += len;
	put->out++;
	return 0;
}

static void pump(struct put *put)
{
	while (!put->status && put->out < OUTSTANDING && put->at < put->total)
		put->status = submit_chunk(put);
	if (put->out)
		return;
	if (!put->status)
		put->status = submit_record(put);
	if (put->status)
		finish(put);
}

int store_snapshot(struct store *st, unsigned int trailing,
		   const struct raft_snapshot *snapshot,
		   void (*done)(void *arg, int status), void *arg)
{
	struct put *put = calloc(1, sizeof(*put));
	int ret = put && !st->put ? 0 : put ? RAFT_BUSY : RAFT_NOMEM;

	if (!ret)
		ret = conf_copy(&put->conf, &snapshot->configuration);
	if (ret) {
		free(put);
		return ret;
	}
	put->st = st;
	put->snapshot = snapshot;
	put->trailing = trailing;
	put->done = done;
	put->arg = arg;
	put->number = ++st->number;
	for (unsigned int i = 0; i < snapshot->n_bufs; i++)
		put->total += snapshot->bufs[i].len;
	st->put = put;
	/* Even an empty snapshot has a first chunk. */
	ret = submit_chunk(put);
	if (ret) {
		raft_configuration_close(&put->conf);
		st->put = NULL;
		free(put);
	}
	return ret;
}

/* Read the chunks of the last snapshot into base, skipping other records. */
static int read_chunks(struct store *st, unsigned char *base)
{
	struct rpmem_log_info info = {.size = sizeof(info)};
	uint64_t lsn = st->snap.lsn, at = 0;
	unsigned char *buf = NULL;
	size_t len;
	int ret = rpmem_log_query(st->w.log, &info);

	if (!ret)
		buf = malloc(info.max_entry);
	while (buf && at < st->snap.bytes) {
		ret = rpmem_log_read(st->w.log, &lsn, buf, info.max_entry, &len,
				     0);
		if (ret != 1)
			break;
		if (rp_get32(buf) != RECORD_CHUNK ||
		    rp_get64(buf + 8) != st->snap.number)
			continue;
		len -= RECORD_HEAD;
		if (rp_get64(buf + 16) != at || len > st->snap.bytes - at)
			break;
		memcpy(base + at, buf + RECORD_HEAD, len);
		at += len;
	}
	free(buf);
	if (!buf)
		return RAFT_NOMEM;
	if (at < st->snap.bytes)
		return store_error(st, ret < 0 ? ret : -EIO, "snapshot");
	return 0;
}

int store_snapshot_get(struct store *st, struct raft_snapshot **snapshot)
{
	struct raft_snapshot *s = raft_calloc(1, sizeof(*s));
	int ret;

	*snapshot = NULL;
	if (!s)
		return RAFT_NOMEM;
	s->index = st->snap.index;
	s->term = st->snap.term;
	s->configuration_index = st->snap.conf_index;
	s->bufs = raft_calloc(1, sizeof(*s->bufs));
	s->n_bufs = 1;
	ret = s->bufs ? conf_copy(&s->configuration, &st->snap.conf)
		      : RAFT_NOMEM;
	if (!ret) {
		s->bufs->len = st->snap.bytes;
		s->bufs->base = raft_malloc(st->snap.bytes + 1);
		ret = s->bufs->base ? read_chunks(st, s->bufs->base)
				    : RAFT_NOMEM;
	}
	if (!ret) {
		*snapshot = s;
		return 0;
	}
	if (s->bufs)
		raft_free(s->bufs->base);
	raft_configuration_close(&s->configuration);
	raft_free(s->bufs);
	raft_free(s);
	return ret;
}
