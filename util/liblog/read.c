// SPDX-License-Identifier: BSD-2-Clause
/* Read entries, as the writer or while another client writes. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "liblog/log.h"

/* Bytes per read; a longer entry is read whole. */
#define CHUNK 65536u
/* Attempts to read the first entry while a writer drops one after another. */
#define HEAD_TRIES 3

int log_refresh(struct rpmem_log *log)
{
	int ret = log_super_read(log);

	if (!ret && log->super.mark > log->durable)
		log->durable = log->super.mark;
	return ret;
}

/*
 * Read [lsn, lsn + len) into the cache, but not past the ring's end. A reader
 * reads the superblocks before, whose head says which entries were trimmed.
 */
static int fetch(struct rpmem_log *log, uint64_t lsn, size_t len, bool fresh)
{
	const uint64_t left = log_ring_left(&log->super, lsn);
	size_t want = len > CHUNK ? len : CHUNK;
	unsigned char *bytes;
	int ret;

	if (!fresh && log->cache_super.epoch == log->super.epoch &&
	    lsn >= log->cache_lsn &&
	    lsn + len <= log->cache_lsn + log->cache_len)
		return 0;
	/* The caller of a fresh read has just refreshed. */
	ret = log->read_only && !fresh ? log_refresh(log) : 0;
	if (ret)
		return ret;
	if (want > left)
		want = (size_t)left;
	if (want > log->cache_size) {
		bytes = realloc(log->cache, want);
		if (!bytes)
			return log_error(-ENOMEM, "out of memory");
		log->cache = bytes;
		log->cache_size = want;
	}
	log->cache_len = 0;
	ret = log_call(log, RPMEM_POOL_READ, log->cache, want,
		       LOG_RING_AT + lsn % log->super.ring);
	if (ret)
		return ret;
	log->cache_super = log->super;
	log->cache_lsn = lsn;
	log->cache_len = want;
	return 0;
}

int log_read_entry(struct rpmem_log *log, uint64_t lsn, bool fresh,
		   struct log_entry *e, const unsigned char **data)
{
	const unsigned char *from;
	int ret;

	ret = fetch(log, lsn, LOG_HEADER, fresh);
	/* fetch() may have read a superblock whose head is past the entry. */
	if (ret || lsn < log->super.head)
		return ret;
	from = log->cache + (lsn - log->cache_lsn);
	if (!log_entry_decode(&log->cache_super, from, lsn, e))
		return 0;
	ret = fetch(log, lsn, LOG_HEADER + e->len, false);
	if (ret)
		return ret;
	/*
	 * This fetch() may have read the header again: decode it again. The
	 * entry of a next writer may be longer than what was read.
	 */
	from = log->cache + (lsn - log->cache_lsn);
	*data = from + LOG_HEADER;
	return log_entry_decode(&log->cache_super, from, lsn, e) &&
	       lsn + LOG_HEADER + e->len <= log->cache_lsn + log->cache_len &&
	       log_entry_intact(&log->cache_super, from, e);
}

/*
 * For a reader: find the durable end in the entries after lsn. Each entry says
 * which entries before it were durable.
 */
static int look_ahead(struct rpmem_log *log, uint64_t lsn)
{
	const unsigned char *data;
	struct log_entry e;
	uint64_t at = lsn;
	int ret;

	while (log->durable <= lsn) {
		ret = log_read_entry(log, at, false, &e, &data);
		if (ret <= 0)
			return ret;
		if (e.durable > log->durable)
			log->durable = e.durable;
		at = e.next;
	}
	return 0;
}

int log_find_visible(struct rpmem_log *log)
{
	const uint64_t epoch = log->super.epoch;
	/* A writer that goes on has at most this when the call begins. */
	const uint64_t most =
		log->super.mark + LOG_MARK_BYTES + 2ull * LOG_WINDOW;
	uint64_t at = log->durable, end;
	const unsigned char *data;
	struct log_entry e = {0};
	bool fresh = false;
	int ret;

	if (log->visible_epoch == epoch && log->visible > at)
		at = log->visible;
	end = at;
	while (at < most) {
		ret = log_read_entry(log, at, fresh, &e, &data);
		if (ret < 0)
			return ret;
		if (ret == 0) {
			if (fresh)
				break;
			/* The cache may have older bytes: read them again. */
			fresh = true;
			continue;
		}
		fresh = false;
		if (e.durable > log->durable)
			log->durable = e.durable;
		at = e.next;
		/* A pad is no entry: the one behind it may be missing. */
		if (!e.pad)
			end = at;
	}
	at = end;
	/* A next writer, whose superblock was read meanwhile, drops entries. */
	if (log->super.epoch != epoch || at < log->durable)
		at = log->durable;
	log->visible = at;
	log->visible_epoch = log->super.epoch;
	return 0;
}

/*
 * Find the entry at *lsn, or after a pad there, that may be returned. Returns
 * 1, 0 or -errno as rpmem_log_read().
 */
static int find(struct rpmem_log *log, uint64_t *lsn, bool fresh, bool visible,
		struct log_entry *e, const unsigned char **data)
{
	int ret;

	if (*lsn < log->super.head) {
		*lsn = log->super.head;
		return log_error(-ERANGE,
				 "the entry was trimmed; the log begins with "
				 "LSN %llu now",
				 (unsigned long long)*lsn);
	}
	if (!log->read_only && *lsn >= log->durable)
		return 0;
	ret = log_read_entry(log, *lsn, fresh, e, data);
	if (ret > 0 && !visible && *lsn >= log->durable) {
		ret = look_ahead(log, *lsn);
		if (!ret && *lsn < log->durable)
			ret = log_read_entry(log, *lsn, false, e, data);
	}
	if (ret <= 0 || !e->pad)
		return ret;
	*lsn = e->next;
	return find(log, lsn, fresh, visible, e, data);
}

/* Call find(); if it finds no entry, read superblock and pool again. */
static int find_or_refresh(struct rpmem_log *log, uint64_t *lsn, bool visible,
			   struct log_entry *e, const unsigned char **data)
{
	int ret = find(log, lsn, false, visible, e, data);
	uint64_t durable;

	if (ret)
		return ret;
	ret = log->read_only ? log_refresh(log) : 0;
	durable = log->durable;
	if (!ret)
		ret = find(log, lsn, true, visible, e, data);
	if (ret || *lsn >= durable)
		return ret;
	/* If the entry was trimmed meanwhile, find() returns -ERANGE. */
	ret = log->read_only ? log_refresh(log) : 0;
	if (!ret && *lsn < log->super.head)
		return find(log, lsn, false, visible, e, data);
	return ret ? ret
		   : log_error(-EBADMSG,
			       "%sno intact entry begins at LSN %llu: restore "
			       "the pool from a copy, or give the LSN of an "
			       "entry",
			       log->io.name, (unsigned long long)*lsn);
}

static int read_entry(struct rpmem_log *log, uint64_t *lsn, void *buf,
		      size_t size, size_t *len, bool visible)
{
	const unsigned char *data;
	struct log_entry e;
	uint64_t at = *lsn;
	int ret, tries = 0;

	if (at == RPMEM_LOG_HEAD)
		at = log->super.head;
	if (at % LOG_ALIGN)
		return log_error(-EINVAL, "%llu is no LSN",
				 (unsigned long long)at);
	do {
		ret = find_or_refresh(log, &at, visible, &e, &data);
	} while (ret == -ERANGE && *lsn == RPMEM_LOG_HEAD &&
		 ++tries < HEAD_TRIES);
	if (ret == -ERANGE)
		*lsn = at;
	if (ret <= 0)
		return ret;
	*len = e.len;
	if (e.len > size) {
		*lsn = at;
		return log_error(-EMSGSIZE,
				 "the entry has %u bytes, the buffer %zu; "
				 "give a longer one",
				 e.len, size);
	}
	memcpy(buf, data, e.len);
	*lsn = e.next;
	return 1;
}

int rpmem_log_read(struct rpmem_log *log, uint64_t *lsn, void *buf, size_t size,
		   size_t *len, unsigned int flags)
{
	int ret;

	if (!log || !lsn || !len || (!buf && size) ||
	    flags & ~RPMEM_LOG_VISIBLE)
		return log_error(-EINVAL,
				 "rpmem_log_read() needs a log, an "
				 "LSN, a buffer, a place for the length, and "
				 "no other flag than "
				 "RPMEM_LOG_VISIBLE");
	pthread_mutex_lock(&log->read_lock);
	pthread_mutex_lock(&log->lock);
	ret = read_entry(log, lsn, buf, size, len, flags & RPMEM_LOG_VISIBLE);
	pthread_mutex_unlock(&log->lock);
	pthread_mutex_unlock(&log->read_lock);
	return ret;
}

/* Check that the log may begin with lsn. Both locks are held. */
static int check_trim(struct rpmem_log *log, uint64_t lsn)
{
	const unsigned char *data;
	struct log_entry e;
	int ret = log_check(log);

	if (ret)
		return ret;
	if (lsn > log->durable && lsn <= log->tail)
		return log_error(-EAGAIN,
				 "the entries before LSN %llu are not durable "
				 "yet; call rpmem_log_poll()",
				 (unsigned long long)lsn);
	if (lsn == log->durable)
		return 0;
	if (lsn >= log->super.head && lsn < log->durable && !(lsn % LOG_ALIGN))
		ret = log_read_entry(log, lsn, true, &e, &data);
	if (ret > 0)
		return 0;
	return ret ? ret
		   : log_error(-EINVAL,
			       "no entry begins at LSN %llu; the log has %llu "
			       "to %llu",
			       (unsigned long long)lsn,
			       (unsigned long long)log->super.head,
			       (unsigned long long)log->durable);
}

int rpmem_log_trim(struct rpmem_log *log, uint64_t lsn)
{
	int ret;

	if (!log)
		return log_error(-EINVAL, "the log is NULL");
	if (log->read_only)
		return log_error(-EACCES, "the log is open to read; open it as "
					  "its writer to trim it");
	pthread_mutex_lock(&log->read_lock);
	pthread_mutex_lock(&log->lock);
	ret = check_trim(log, lsn);
	if (!ret)
		ret = log_super_write(log, lsn, log->super.epoch);
	pthread_mutex_unlock(&log->lock);
	pthread_mutex_unlock(&log->read_lock);
	return ret;
}
