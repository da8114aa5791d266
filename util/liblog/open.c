// SPDX-License-Identifier: BSD-2-Clause
/* Create, open, describe and close a log. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "liblog/log.h"
#include "util/clock.h"
#include "util/text.h"

#define TAKE_EIO_MS 10000
/* The size of struct rpmem_log_attr before it had `logs`. */
#define ALIGN _Alignof(struct rpmem_log_attr)
#define ATTR_1                                                                 \
	((offsetof(struct rpmem_log_attr, logs) + ALIGN - 1) / ALIGN * ALIGN)
#define LOGS_MAX 32u
/* Most outstanding bytes: entries, and one pad that may be as long as they. */
#define SCAN	  (2ull * LOG_WINDOW + 4ull * LOG_ALIGN)
#define CHUNK	  65536u /* bytes of a read */
#define TIMEOUT_S 60	 /* timeout of rpmem_pool_open() */
/* How long other clients may divide the pool before it counts as in use. */
#define DIVIDE_MS 2000

static int new_log(struct rpmem_log **out, const struct log_io *io,
		   bool read_only)
{
	struct rpmem_log *log = calloc(1, sizeof(*log));
	pthread_condattr_t attr;

	if (!log)
		return log_error(-ENOMEM, "out of memory");
	log->io = *io;
	log->read_only = read_only;
	TAILQ_INIT(&log->writes);
	TAILQ_INIT(&log->done);
	TAILQ_INIT(&log->waiters);
	pthread_mutex_init(&log->lock, NULL);
	pthread_mutex_init(&log->read_lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&log->progressed, &attr);
	pthread_condattr_destroy(&attr);
	*out = log;
	return 0;
}

static void free_log(struct rpmem_log *log)
{
	struct log_write *w;

	rpmem_pool_close(log->pool);
	while ((w = TAILQ_FIRST(&log->writes))) {
		TAILQ_REMOVE(&log->writes, w, link);
		free(w->shared);
		free(w);
	}
	while ((w = TAILQ_FIRST(&log->done))) {
		TAILQ_REMOVE(&log->done, w, link);
		free(w);
	}
	pthread_cond_destroy(&log->progressed);
	pthread_mutex_destroy(&log->read_lock);
	pthread_mutex_destroy(&log->lock);
	free(log->cache);
	free(log);
}

/* The entry at LSN at is not intact, and those up to LSN end were durable. */
static int report_damage(const struct rpmem_log *log, uint64_t at, uint64_t end)
{
	return log_error(
		-EBADMSG,
		"%sthe entry with LSN %llu, at byte %llu of the log, "
		"is damaged, though entries up to LSN %llu were "
		"durable; restore the pool from a copy, or read the "
		"entries before it (read_only) and append them to a "
		"new log",
		log->io.name, (unsigned long long)at,
		(unsigned long long)(LOG_RING_AT + at % log->super.ring),
		(unsigned long long)end);
}

/*
 * The entry at LSN `at` is not intact: check that the previous writer had no
 * acknowledgement of it. Each intact entry of that writer has the durable end
 * at its append. A durable end above `at` proves that the bytes at `at` were
 * durable, so that they are damaged. The first such entry begins at most SCAN
 * bytes after `at`, because no more can have been outstanding. If `at` was
 * never durable, the entries after it have a durable end of at most `at`.
 */
static int check_unacknowledged(struct rpmem_log *log, uint64_t at)
{
	const uint64_t room = log->super.head + log->super.ring;
	const uint64_t limit = room - at > SCAN ? at + SCAN : room;
	const unsigned char *data;
	struct log_entry e;
	uint64_t lsn = at;
	int ret;

	while ((lsn += LOG_ALIGN) < limit) {
		ret = log_read_entry(log, lsn, false, &e, &data);
		if (ret < 0)
			return ret;
		if (!ret || e.next > room)
			continue;
		if (e.durable > at)
			return report_damage(log, at, e.durable);
		lsn = e.next - LOG_ALIGN;
	}
	return 0;
}

/*
 * Read the entry at a byte of the ring, whose header is e. Returns 1 if its
 * checksum matches, 0, or -errno.
 */
static int read_intact(struct rpmem_log *log, uint64_t pos,
		       const struct log_entry *e)
{
	unsigned char *bytes = malloc((size_t)LOG_HEADER + e->len);
	int ret;

	if (!bytes)
		return log_error(-ENOMEM, "out of memory");
	ret = log_call(log, RPMEM_POOL_READ, bytes, (size_t)LOG_HEADER + e->len,
		       LOG_RING_AT + pos);
	if (!ret)
		ret = log_entry_intact(&log->super, bytes, e);
	free(bytes);
	return ret;
}

/* The turn of the damaged superblock is the next one, which gives its place. */
static int report_super(const struct rpmem_log *log)
{
	return log_error(
		-EBADMSG,
		"%sthe newest superblock of the log, at byte %u, is damaged: "
		"entries were written after it; restore the pool from a copy",
		log->io.name,
		(unsigned int)((log->super.turn + 1) % 2 * LOG_SLOT));
}

/*
 * Only one superblock is intact: the other one was never written, was torn by a
 * crash, or is damaged. Refuse the log if an entry shows that the other one was
 * newer and durable: an entry of a later epoch, which begins at LSN `at`, or an
 * entry in space that the intact superblock has not freed. Such an entry begins
 * at most 2 * (LOG_MARK_BYTES + SCAN) bytes after `at`, because a writer writes
 * a superblock every LOG_MARK_BYTES. Without such an entry the intact one is as
 * good. Readers do not check: a writer may be writing the other superblock.
 */
static int check_super(struct rpmem_log *log, uint64_t at)
{
	const uint64_t ring = log->super.ring, start = at % ring;
	const uint64_t most = 2 * (LOG_MARK_BYTES + SCAN);
	/* With turn 0 the log has had no writer: one header is enough. */
	const uint64_t len = !log->super.turn ? LOG_ALIGN
			     : ring < most    ? ring
					      : most;
	unsigned char *bytes = malloc(CHUNK);
	struct log_entry e;
	int ret = bytes ? 0 : log_error(-ENOMEM, "out of memory");

	for (uint64_t i = 0, have = 0, used = 0; i < len && !ret;
	     i += LOG_ALIGN, used += LOG_ALIGN) {
		const uint64_t pos = (start + i) % ring;

		if (used == have) {
			have = ring - pos < CHUNK ? ring - pos : CHUNK;
			used = 0;
			ret = log_call(log, RPMEM_POOL_READ, bytes, have,
				       LOG_RING_AT + pos);
		}
		if (!ret &&
		    log_entry_decode_newer(&log->super, bytes + used, pos, &e))
			ret = read_intact(log, pos, &e);
	}
	free(bytes);
	return ret > 0 ? report_super(log) : ret;
}

/*
 * Find the end of the previous writer's entries: the first entry from the mark
 * on that is not intact, or the stored tail if the layout has one.
 */
static int find_end(struct rpmem_log *log)
{
	unsigned char places[LOG_PLACES * LOG_PLACE];
	const bool stored = log->super.layout != RPMEM_LOG_ENTRY;
	const unsigned char *data;
	struct log_entry e;
	uint64_t at = log->super.mark, end = 0;
	int ret = 0;

	if (stored) {
		ret = log_call(log, RPMEM_POOL_READ, places, sizeof(places),
			       LOG_PLACES_AT);
		if (ret)
			return ret;
		end = log_places_load(&log->places, log->super.layout, places);
	}
	while (!stored || at < end) {
		ret = log_read_entry(log, at, false, &e, &data);
		/* In a full ring the head's entry follows the last one. */
		if (ret <= 0 || e.next - log->super.head > log->super.ring)
			break;
		at = e.next;
	}
	if (ret >= 0 && log->super_alone)
		ret = check_super(log, at);
	if (ret >= 0 && !stored)
		ret = check_unacknowledged(log, at);
	if (ret < 0)
		return ret;
	if (stored && at != end)
		return report_damage(log, at, end);
	log->tail = at;
	log->durable = log->stored = log->store_end = log->posted_end =
		log->tail;
	return 0;
}

int log_open(struct rpmem_log **out, const struct log_io *io, bool read_only)
{
	struct rpmem_log *log;
	int ret = new_log(&log, io, read_only);

	if (ret)
		return ret;
	pthread_mutex_lock(&log->lock);
	ret = io->length < LOG_RING_AT + LOG_RING_MIN
		      ? log_error(-ENODATA,
				  "%sthe pool is too short for a log; use a "
				  "longer one",
				  io->name)
		      : log_super_read(log);
	if (ret == -EMEDIUMTYPE)
		ret = -ENODATA;
	if (!ret && read_only)
		log->durable = log->super.mark;
	else if (!ret)
		ret = find_end(log);
	if (!ret && !read_only) {
		ret = log_super_write(log, 0, log->super.epoch + 1);
		if (ret && log->super_post.done)
			log_error(ret, "%s%s", io->name,
				  log->super_post.op.error);
	}
	pthread_mutex_unlock(&log->lock);
	if (ret)
		free_log(log);
	else
		*out = log;
	return ret;
}

/* Check that the pool has no log. Ignores the layout. */
static int check_none(struct rpmem_log *log, uint32_t layout)
{
	const int ret = log_super_read(log);

	(void)layout;
	if (ret == -EMEDIUMTYPE || ret == -ENXIO)
		return -EEXIST;
	if (ret == -EPROTONOSUPPORT)
		return -EEXIST; /* the text names the format */
	if ((!ret || ret == -EBADMSG) && log->io.logs > 1)
		return log_error(-EEXIST,
				 "%sthe log is there already; if it is not "
				 "needed any more, write zeros over the first "
				 "8192 bytes of its part, by a pool handle "
				 "with parts=%u and part=%u",
				 log->io.name, log->io.logs, log->io.log);
	if (!ret || ret == -EBADMSG)
		return log_error(-EEXIST,
				 "%sthe pool has a log already; use another "
				 "pool, or write zeros over its first 8192 "
				 "bytes if the log is not needed any more",
				 log->io.name);
	return ret == -ENODATA ? 0 : ret;
}

/* Write the first superblock of a new log last: without it there is no log. */
static int make(struct rpmem_log *log, uint32_t layout)
{
	const uint64_t ring =
		(log->io.length - LOG_RING_AT) / LOG_ALIGN * LOG_ALIGN;
	unsigned char bytes[LOG_RING_AT] = {0};
	struct log_super s = {
		.layout = layout,
		.ring = ring,
		.head = LOG_FIRST,
		.mark = LOG_FIRST,
		.logs = log->io.logs ?: 1,
		.log = log->io.log,
	};
	struct log_places places = {.next = 0};
	uint64_t offset, value;
	int ret;

	ret = check_none(log, layout);
	if (ret)
		return ret;
	if (getrandom(&s.id, sizeof(s.id), 0) != sizeof(s.id))
		return log_error(-EIO, "no random bytes");
	log_places_store(&places, layout, LOG_FIRST, &offset, &value);
	memcpy(bytes + offset, &(uint64_t){htole64(value)}, sizeof(value));
	ret = log_call(log, RPMEM_POOL_WRITE, bytes, sizeof(bytes), 0);
	if (ret)
		return ret;
	log_super_encode(&s, bytes);
	return log_call(log, RPMEM_POOL_WRITE, bytes, LOG_SUPER_BYTES, 0);
}

/* Run a call that needs no existing log. */
static int run_call(const struct log_io *io, uint32_t layout,
		    int (*call)(struct rpmem_log *log, uint32_t layout))
{
	struct rpmem_log *log;
	int ret = new_log(&log, io, false);

	if (ret)
		return ret;
	pthread_mutex_lock(&log->lock);
	ret = call(log, layout);
	pthread_mutex_unlock(&log->lock);
	free_log(log);
	return ret;
}

int log_check_none(const struct log_io *io)
{
	return run_call(io, 0, check_none);
}

static int check_room(const struct log_io *io)
{
	if (io->length < LOG_RING_AT + LOG_RING_MIN)
		return log_error(
			-ENOSPC,
			"%sa log needs a pool of at least %u bytes, and "
			"this one has %llu",
			io->name, LOG_RING_AT + LOG_RING_MIN,
			(unsigned long long)io->length);
	return 0;
}

int log_create(const struct log_io *io, uint32_t layout)
{
	const int ret = check_room(io);

	if (!ret && layout > RPMEM_LOG_REGISTER)
		return log_error(-EINVAL,
				 "%u is no layout; give one of enum "
				 "rpmem_log_layout",
				 layout);
	return ret ?: run_call(io, layout, make);
}

static int pool_submit(void *arg, struct rpmem_pool_op *op)
{
	return rpmem_pool_submit(arg, op);
}

static int pool_poll(void *arg, struct rpmem_pool_op **done, unsigned int n,
		     int timeout_ms)
{
	return rpmem_pool_poll(arg, done, n, timeout_ms);
}

/* Copy the caller's attributes; an older caller lacks the newer fields. */
static int copy_attr(struct rpmem_log_attr *a,
		     const struct rpmem_log_attr *attr)
{
	*a = (struct rpmem_log_attr){.size = sizeof(*a)};
	if (attr && attr->size == sizeof(*a))
		*a = *attr;
	else if (attr && attr->size == ATTR_1)
		memcpy(a, attr, offsetof(struct rpmem_log_attr, logs));
	else if (attr)
		return log_error(-EINVAL,
				 "attr->size is %zu; set it to sizeof(struct "
				 "rpmem_log_attr)",
				 attr->size);
	if (a->read_only && a->take)
		return log_error(-EINVAL, "a reader cannot take the log");
	if (!a->logs)
		a->logs = 1;
	if (a->logs > LOGS_MAX)
		return log_error(-EINVAL, "logs is %u; a pool has at most %u",
				 a->logs, LOGS_MAX);
	if (a->log >= a->logs)
		return log_error(-EINVAL,
				 "there is no log %u of %u; give one from 0 "
				 "on",
				 a->log, a->logs);
	return 0;
}

/* Make a log's name from "HOST:POOL" or "HOST:PORT:POOL". */
static void name_log(struct log_io *io, const char *where)
{
	const char *end = where && *where == '[' ? strchr(where, ']') : NULL;
	size_t port;
	int host, n = 0;

	where = where ?: ""; /* NULL: error of rpmem_pool_open() */
	end = end ?: where;
	end += strcspn(end, ":");
	port = *end ? strspn(end + 1, "0123456789") : 0;
	if (port && end[1 + port] == ':')
		end += 1 + port;
	host = end - where < 64 ? (int)(end - where) : 64;
	if (io->logs > 1)
		n = snprintf(io->name, sizeof(io->name), "log %u of %u of ",
			     io->log, io->logs);
	snprintf(io->name + n, sizeof(io->name) - (size_t)n,
		 "pool '%.64s' at %.*s: ", *end ? end + 1 : "", host, where);
}

/* Open the whole pool of a log, or the log's part of it. */
static int open_pool(struct rpmem_pool **pool, const char *where,
		     const struct rpmem_log_attr *a, struct log_io *io)
{
	const struct rpmem_pool_attr p = {
		.size = sizeof(p),
		.secret_file = a->secret_file,
		.required = a->required,
		.timeout = a->timeout,
		.exclusive = a->read_only ? RPMEM_POOL_OBSERVE
			     : a->take	  ? RPMEM_POOL_TAKE
					  : RPMEM_POOL_EXCLUSIVE,
		.parts = a->logs,
		.part = a->log,
	};
	struct rpmem_pool_info info = {.size = sizeof(info)};
	int ret;

	if (a->read_only && where && rp_names_group(where))
		return log_error(-EOPNOTSUPP,
				 "'%s' is a group of pools, which only its "
				 "writer has open: its log has no readers in "
				 "other processes",
				 where);
	ret = rpmem_pool_open(pool, where, &p);
	if (!ret)
		ret = rpmem_pool_query(*pool, &info);
	*io = (struct log_io){
		.submit = pool_submit,
		.poll = pool_poll,
		.arg = *pool,
		.length = info.length,
		.logs = a->logs,
		.log = a->log,
	};
	name_log(io, where);
	return ret ? log_error(ret, "%s%s", io->name, rpmem_pool_error()) : 0;
}

/* Whether so many logs can be created: there is room, and no log exists. */
static int check_new(const struct log_io *io, unsigned int logs)
{
	if (logs == 1)
		return check_room(io) ?: log_check_none(io);
	if (io->length / logs < LOG_RING_AT + LOG_RING_MIN)
		return log_error(-ENOSPC,
				 "%s%u logs need a pool of at least %u bytes, "
				 "and this one has %llu",
				 io->name, logs,
				 logs * (LOG_RING_AT + LOG_RING_MIN),
				 (unsigned long long)io->length);
	return log_check_none(io);
}

/* Open a pool for new logs. take: check as an observer first if they fit. */
static int open_new(struct rpmem_pool **pool, const char *where,
		    const struct rpmem_log_attr *attr, unsigned int logs,
		    struct log_io *io)
{
	struct rpmem_log_attr look = *attr;
	int ret = 0;

	look.read_only = 1;
	look.take = 0;
	if (attr->take) {
		ret = open_pool(pool, where, &look, io);
		if (!ret)
			ret = check_new(io, logs);
		rpmem_pool_close(*pool);
		*pool = NULL;
	}
	return ret ?: open_pool(pool, where, attr, io);
}

/* Divide a pool without logs, while all of it is open exclusively. */
static int divide_pool(const char *where, const struct rpmem_log_attr *attr)
{
	struct rpmem_log_attr whole = *attr;
	struct rpmem_pool *pool = NULL;
	struct log_io io;
	int ret;

	whole.logs = 1;
	whole.log = 0;
	ret = open_new(&pool, where, &whole, attr->logs, &io);
	if (!ret)
		ret = check_new(&io, attr->logs);
	if (!ret) {
		ret = rpmem_pool_divide(pool, attr->logs);
		if (ret)
			log_error(0, "%s%s", io.name, rpmem_pool_error());
	}
	rpmem_pool_close(pool);
	return ret;
}

/*
 * Open the part of a log; divide the pool first if nobody has divided it.
 * Processes may make their first calls at the same time: one of them then has
 * the whole pool open for a moment.
 */
static int open_or_divide(struct rpmem_pool **pool, const char *where,
			  const struct rpmem_log_attr *a, struct log_io *io)
{
	const uint64_t until = rp_now_ms() + DIVIDE_MS;
	bool divided = false;
	int ret;

	for (;;) {
		ret = open_new(pool, where, a, 1, io);
		if (ret == -ENXIO && a->logs > 1 && !divided) {
			ret = divide_pool(where, a);
			/* -ENXIO: another process has just divided the pool. */
			divided = !ret || ret == -ENXIO;
			if (divided)
				continue;
		}
		if (ret != -EBUSY || a->logs == 1 || rp_now_ms() >= until)
			return ret;
		poll(NULL, 0, 10);
	}
}

int rpmem_log_create(const char *where, const struct rpmem_log_attr *attr)
{
	struct rpmem_pool *pool = NULL;
	struct rpmem_log_attr a;
	struct log_io io;
	int ret = copy_attr(&a, attr);

	if (!ret && a.read_only)
		ret = log_error(-EINVAL, "a log is not created to be read");
	if (!ret && (unsigned int)a.layout > RPMEM_LOG_REGISTER)
		ret = log_error(-EINVAL,
				"%u is no layout; give one of enum "
				"rpmem_log_layout",
				(unsigned int)a.layout);
	if (ret)
		return ret;
	ret = open_or_divide(&pool, where, &a, &io);
	if (!ret)
		ret = log_create(&io, a.layout);
	rpmem_pool_close(pool);
	return ret;
}

static int open_once(struct rpmem_log **log, const char *where,
		     const struct rpmem_log_attr *a)
{
	struct rpmem_pool *pool = NULL;
	struct log_io io;
	int ret = open_pool(&pool, where, a, &io);

	if (!ret)
		ret = log_open(log, &io, a->read_only);
	if (ret)
		rpmem_pool_close(pool);
	else
		(*log)->pool = pool;
	return ret;
}

int rpmem_log_open(struct rpmem_log **log, const char *where,
		   const struct rpmem_log_attr *attr)
{
	const uint64_t start = rp_now_ms();
	struct rpmem_log_attr a;
	unsigned int lost = 0;
	int ret;

	if (!log)
		return log_error(-EINVAL,
				 "rpmem_log_open() needs a place for the log");
	ret = copy_attr(&a, attr);
	if (ret)
		return ret;
	for (;;) {
		const uint64_t attempt = rp_now_ms();
		uint64_t now, limit = 1000ull * (a.timeout ?: TIMEOUT_S);

		ret = open_once(log, where, &a);
		/*
		 * take: retry, because another client that takes the log at the
		 * same time may give it up. -EIO: the daemon has closed the
		 * connection of this displaced client, or a disk has failed,
		 * which must be reported soon.
		 */
		if (ret == -EIO && limit > TAKE_EIO_MS)
			limit = TAKE_EIO_MS;
		now = rp_now_ms();
		if (!a.take ||
		    (ret != -ESTALE && ret != -EBUSY && ret != -EIO) ||
		    now - start >= limit)
			return ret;
		poll(NULL, 0,
		     rp_backoff_ms(now - attempt, ++lost, start + limit - now));
	}
}

void rpmem_log_close(struct rpmem_log *log)
{
	if (!log)
		return;
	if (!log->failed && TAILQ_EMPTY(&log->writes))
		rpmem_log_publish(log);
	free_log(log);
}

int rpmem_log_query(struct rpmem_log *log, struct rpmem_log_info *info)
{
	struct rpmem_pool_info pool = {.size = sizeof(pool)};
	int ret;

	if (!log || !info)
		return log_error(-EINVAL, "the log, or info, is NULL");
	/* An older program was compiled with a struct without these fields. */
	if (info->size != sizeof(*info) &&
	    info->size != offsetof(struct rpmem_log_info, visible) &&
	    info->size != offsetof(struct rpmem_log_info, id))
		return log_error(-EINVAL,
				 "info->size is %zu; set it to sizeof(struct "
				 "rpmem_log_info)",
				 info->size);
	ret = log->pool ? rpmem_pool_query(log->pool, &pool) : 0;
	if (ret)
		return log_error(ret, "%s", rpmem_pool_error());
	pthread_mutex_lock(&log->read_lock);
	pthread_mutex_lock(&log->lock);
	if (log->read_only)
		ret = log_refresh(log);
	if (!ret && log->read_only && info->size == sizeof(*info))
		ret = log_find_visible(log);
	info->head = log->super.head;
	info->durable = log->durable;
	info->tail = log->read_only ? log->durable : log->tail;
	info->capacity = log->super.ring;
	info->max_entry = log_entry_max(&log->super);
	info->epoch = log->super.epoch;
	info->layout = (enum rpmem_log_layout)log->super.layout;
	info->reached = pool.reached;
	info->method = pool.method;
	if (info->size > offsetof(struct rpmem_log_info, id))
		info->id = log->super.id;
	if (info->size == sizeof(*info))
		info->visible = log->read_only ? log->visible : log->durable;
	pthread_mutex_unlock(&log->lock);
	pthread_mutex_unlock(&log->read_lock);
	return ret;
}
