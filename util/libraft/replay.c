// SPDX-License-Identifier: BSD-2-Clause
/* At its start a server restores its state from its log and its ring. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libraft/store.h"
#include "libraft/wire.h"
#include "bytes.h"

static void drop_entries(struct replay *rp, size_t keep)
{
	while (rp->n > keep)
		raft_free(rp->entries[--rp->n].buf.base);
}

void replay_free(struct replay *rp)
{
	drop_entries(rp, 0);
	raft_free(rp->entries);
	*rp = (struct replay){0};
}

/* Put an entry at index, and drop all entries after it. */
static int push(struct store *st, struct replay *rp, raft_index index,
		const struct raft_entry *e, uint64_t lsn)
{
	struct raft_entry *to = rp->entries;

	if (rp->n == 0)
		st->first = st->next = index;
	if (index < st->first || index > st->next)
		return RAFT_CORRUPT;
	drop_entries(rp, index - st->first);
	st->next = index;
	if (rp->n == rp->room) {
		rp->room = rp->room ? 2 * rp->room : 64;
		to = raft_realloc(to, rp->room * sizeof(*to));
		if (!to)
			return RAFT_NOMEM;
		rp->entries = to;
	}
	to += rp->n;
	*to = (struct raft_entry){.term = e->term, .type = e->type};
	to->buf.len = e->buf.len;
	to->buf.base = raft_malloc(e->buf.len + 1);
	if (!to->buf.base)
		return RAFT_NOMEM;
	if (e->buf.len)
		memcpy(to->buf.base, e->buf.base, e->buf.len);
	rp->n++;
	return store_track(st, lsn, 1);
}

/* Chunks read so far, of the snapshot with the greatest number. */
struct chunks {
	uint64_t number, lsn, bytes;
};

static int replay_snapshot(struct store *st, struct replay *rp,
			   const struct chunks *c, const unsigned char *p,
			   size_t len)
{
	const unsigned char *q = p + RECORD_HEAD;
	struct raft_configuration conf;
	int ret;

	if (len < RECORD_HEAD + SNAPSHOT_HEAD)
		return RAFT_CORRUPT;
	/* The first chunks were trimmed: a newer snapshot must follow. */
	if (rp_get64(q) != c->number || rp_get64(q + 8) != c->bytes)
		return 0;
	ret = conf_get(&conf, q + SNAPSHOT_HEAD,
		       len - RECORD_HEAD - SNAPSHOT_HEAD);
	if (ret)
		return ret;
	raft_configuration_close(&st->snap.conf);
	st->snap.conf = conf;
	st->snap.index = rp_get64(p + 8);
	st->snap.term = rp_get64(p + 16);
	st->snap.number = c->number;
	st->snap.lsn = c->lsn;
	st->snap.bytes = c->bytes;
	st->snap.conf_index = rp_get64(q + 24);
	st->term = rp_get64(q + 32);
	st->vote = rp_get64(q + 40);
	if (rp_get64(q + 16)) {
		drop_entries(rp, 0);
		st->first = st->next = st->snap.index + 1;
	}
	return 0;
}

static int replay_record(struct store *st, struct replay *rp, struct chunks *c,
			 uint64_t lsn, unsigned char *p, size_t len)
{
	struct raft_entry e;
	uint64_t number;

	if (len < RECORD_HEAD)
		return RAFT_CORRUPT;
	number = rp_get64(p + 8);
	switch (rp_get32(p)) {
	case RECORD_TERM:
		st->vote = number;
		st->term = rp_get64(p + 16);
		return 0;
	case RECORD_SERVER:
		st->server = number;
		return 0;
	case RECORD_ENTRY:
		e = (struct raft_entry){
			.term = rp_get64(p + 16),
			.type = (unsigned short)rp_get32(p + 4),
			.buf = {p + RECORD_HEAD, len - RECORD_HEAD}};
		/* io_bootstrap() stores an entry and no RECORD_TERM. */
		if (e.term > st->term) {
			st->term = e.term;
			st->vote = 0;
		}
		return push(st, rp, number, &e, lsn);
	case RECORD_CHUNK:
		if (rp_get64(p + 16) == 0)
			*c = (struct chunks){.number = number, .lsn = lsn};
		c->bytes += len - RECORD_HEAD;
		st->number = number > st->number ? number : st->number;
		return 0;
	case RECORD_SNAPSHOT:
		return replay_snapshot(st, rp, c, p, len);
	default:
		return RAFT_CORRUPT;
	}
}

static raft_term term_of(const struct store *st, const struct replay *rp,
			 raft_index index)
{
	if (index == st->snap.index)
		return st->snap.term;
	return index >= st->first && index < st->next
		       ? rp->entries[index - st->first].term
		       : 0;
}

/*
 * Process a leader's message from the ring, perhaps for the second time. *from:
 * the first entry that the log of this server lacks.
 *
 * Only messages of the stored term count: this server stores a new term after
 * all entries that it accepted before, and accepts entries of a term only after
 * it has stored that term.
 */
static int replay_message(struct store *st, struct replay *rp,
			  const unsigned char *p, size_t len, raft_index *from)
{
	struct raft_message m = {.type = RAFT_IO_APPEND_ENTRIES};
	struct raft_append_entries *a = &m.append_entries;
	int ret = wire_decode(&m, p, len);
	raft_index index;

	if (ret)
		return ret;
	index = a->prev_log_index;
	if (a->term == st->term && index < st->next &&
	    (index <= st->snap.index || index < st->first ||
	     term_of(st, rp, index) == a->prev_log_term))
		for (unsigned int i = 0; !ret && i < a->n_entries; i++) {
			index++;
			if (index <= st->snap.index || index < st->first ||
			    term_of(st, rp, index) == a->entries[i].term)
				continue;
			ret = push(st, rp, index, &a->entries[i], 0);
			if (index < *from)
				*from = index;
		}
	wire_free(&m);
	return ret;
}

static int read_all(struct store *st, struct rpmem_log *log, struct replay *rp,
		    raft_index *from)
{
	struct rpmem_log_info info = {.size = sizeof(info)};
	uint64_t lsn, next;
	struct chunks c = {0};
	unsigned char *buf;
	size_t len;
	int ret = rpmem_log_query(log, &info);

	if (ret)
		return store_error(st, ret, "query");
	buf = malloc(info.max_entry);
	if (!buf)
		return RAFT_NOMEM;
	for (next = info.head; next < info.tail && !ret;) {
		lsn = next;
		ret = rpmem_log_read(log, &next, buf, info.max_entry, &len, 0);
		if (ret != 1) {
			ret = ret ? store_error(st, ret, "read") : 0;
			break;
		}
		ret = from ? replay_message(st, rp, buf, len, from)
			   : replay_record(st, rp, &c, lsn, buf, len);
	}
	free(buf);
	return ret;
}

static void save_result(struct job *job, int result)
{
	*(int *)job->arg = result;
}

/* Write the entries that only the ring has to the log of the server. */
static int store_ring_entries(struct store *st, const struct replay *rp,
			      raft_index from)
{
	int ret = 0, result = 0;

	for (st->next = from; !ret && !result && from - st->first < rp->n;
	     from++) {
		struct job job = {.done = save_result, .arg = &result};

		ret = store_append(st, &rp->entries[from - st->first], 1, &job);
		if (!ret)
			writer_reap(&st->w);
	}
	return ret ? ret : raft_code(result);
}

int store_replay(struct store *st, struct rpmem_log *ring, struct replay *rp)
{
	struct rpmem_log_info info = {.size = sizeof(info)};
	raft_index from = UINT64_MAX;
	int ret;

	st->first = st->next = 1;
	st->snap.index = 0;
	ret = read_all(st, st->w.log, rp, NULL);
	if (!ret && st->snap.index &&
	    (rp->n == 0 || st->next <= st->snap.index)) {
		drop_entries(rp, 0);
		st->first = st->next = st->snap.index + 1;
	}
	if (!ret && st->first > st->snap.index + 1)
		ret = RAFT_CORRUPT;
	if (!ret && ring)
		ret = read_all(st, ring, rp, &from);
	if (!ret && from != UINT64_MAX)
		ret = store_ring_entries(st, rp, from);
	if (!ret && ring) {
		ret = rpmem_log_query(ring, &info);
		if (!ret && info.head != info.tail)
			ret = rpmem_log_trim(ring, info.tail);
		if (ret)
			ret = store_error(st, ret, "ring");
	}
	return ret;
}
