// SPDX-License-Identifier: BSD-2-Clause
/* The recorder: bytes of files, flushes and acknowledgements. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "util/crashtest/record.h"
#include "util/crashtest/record_priv.h"

void crash_record_miss(struct crash_recorder *r, const char *fmt, ...)
{
	va_list ap;

	if (*r->reason)
		return;
	va_start(ap, fmt);
	vsnprintf(r->reason, sizeof(r->reason), fmt, ap);
	va_end(ap);
}

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

struct crash_step *record_event(struct crash_recorder *r,
				enum crash_step_kind kind, pid_t tid)
{
	struct crash_step *e = crash_log_event(&r->log, kind);

	if (!e) {
		crash_record_miss(r, "out of memory");
		return NULL;
	}
	if (!r->start_us)
		r->start_us = now_us();
	e->t_us = now_us() - r->start_us;
	e->pid = (uint32_t)tid;
	return e;
}

/* The path below the folder of an inode that is open as fd. */
void record_path(const struct crash_recorder *r, int fd, char *path, size_t len)
{
	static const char gone[] = " (deleted)";
	const size_t root = strlen(r->root);
	char link[64], full[PATH_MAX];
	ssize_t n;
	size_t end;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, full, sizeof(full) - 1);
	full[n < 0 ? 0 : n] = 0;
	end = strlen(full);
	if (end >= sizeof(gone) && !strcmp(full + end - sizeof(gone) + 1, gone))
		full[end - sizeof(gone) + 1] = 0;
	if (!strncmp(full, r->root, root) && full[root] == '/')
		snprintf(path, len, "%s", full + root + 1);
	else
		snprintf(path, len, "%s", strcmp(full, r->root) ? full : ".");
}

static void set_target(struct crash_recorder *r, struct crash_step *e,
		       const struct crash_file *f)
{
	char path[PATH_MAX];

	record_path(r, f->fd, path, sizeof(path));
	e->target = crash_log_text(&r->log, path);
}

struct crash_file *crash_record_find(struct crash_recorder *r,
				     const struct stat *st)
{
	struct crash_file_id id;
	struct crash_file *f;

	memset(&id, 0, sizeof(id));
	id.dev = st->st_dev;
	id.ino = st->st_ino;
	HASH_FIND(hh, r->files, &id, sizeof(id), f);
	return f;
}

static bool reserve_known_bytes(struct crash_file *f, size_t size)
{
	const size_t page = CRASH_GROW;
	const size_t room = (size / page + 1) * page;
	void *m;

	if (size <= f->room)
		return true;
	m = f->logged_bytes
		    ? mremap(f->logged_bytes, f->room, room, MREMAP_MAYMOVE)
		    : mmap(NULL, room, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (m == MAP_FAILED)
		return false;
	f->logged_bytes = m;
	f->room = room;
	return true;
}

/* Put bytes from buf in the file's copy, and record them as an event. */
static void note_bytes(struct crash_recorder *r, struct crash_file *f,
		       pid_t tid, enum crash_step_kind kind, const char *buf,
		       uint64_t offset, size_t len)
{
	struct crash_step *e;
	uint64_t data;

	if (!reserve_known_bytes(f, offset + len)) {
		crash_record_miss(r, "out of memory");
		return;
	}
	memcpy(f->logged_bytes + offset, buf, len);
	if (offset + len > f->size)
		f->size = offset + len;
	data = crash_log_bytes(&r->log, buf, len);
	e = record_event(r, kind, tid);
	if (!e || data == CRASH_NO_DATA) {
		crash_record_miss(r, "out of memory");
		return;
	}
	e->inode = f->inode;
	e->offset = offset;
	e->length = len;
	e->data = data;
	set_target(r, e, f);
}

void crash_record_write(struct crash_recorder *r, struct crash_file *f,
			pid_t tid, uint64_t offset, uint64_t length)
{
	char *buf;
	ssize_t got;

	if (!length)
		return;
	buf = malloc(length);
	if (!buf) {
		crash_record_miss(r, "out of memory");
		return;
	}
	got = pread(f->fd, buf, length, (off_t)offset);
	if (got > 0)
		note_bytes(r, f, tid, CRASH_WRITE, buf, offset, (size_t)got);
	if (got < 0 || (uint64_t)got < length)
		crash_record_miss(r,
				  "bytes that were just written cannot be read "
				  "back: another process has changed the file");
	free(buf);
}

void crash_record_size(struct crash_recorder *r, struct crash_file *f,
		       pid_t tid)
{
	struct crash_step *e;
	struct stat st;

	if (fstat(f->fd, &st) || (size_t)st.st_size == f->size)
		return;
	e = record_event(r, CRASH_TRUNCATE, tid);
	if (!e || !reserve_known_bytes(f, (size_t)st.st_size)) {
		crash_record_miss(r, "out of memory");
		return;
	}
	if ((size_t)st.st_size < f->size)
		memset(f->logged_bytes + st.st_size, 0,
		       f->size - (size_t)st.st_size);
	f->size = (size_t)st.st_size;
	e->inode = f->inode;
	e->offset = f->size;
	set_target(r, e, f);
}

/*
 * Record the differing words of a block, close ones as one event. A call
 * changes a sector at once, so all of its words in a sector are in the same
 * event.
 */
static void compare_block(struct crash_recorder *r, struct crash_file *f,
			  pid_t tid, enum crash_step_kind kind, const char *buf,
			  uint64_t at, size_t len)
{
	const size_t word = 8, gap = kind == CRASH_WRITE ? r->log.sector : 64;
	size_t first = SIZE_MAX, last = 0;

	for (size_t i = 0; i < len; i += word) {
		const size_t n = len - i < word ? len - i : word;

		if (!memcmp(buf + i, f->logged_bytes + at + i, n))
			continue;
		if (first != SIZE_MAX && i - last > gap) {
			note_bytes(r, f, tid, kind, buf + first, at + first,
				   last - first);
			first = SIZE_MAX;
		}
		if (first == SIZE_MAX)
			first = i;
		last = i + n;
	}
	if (first != SIZE_MAX)
		note_bytes(r, f, tid, kind, buf + first, at + first,
			   last - first);
}

void crash_record_compare(struct crash_recorder *r, struct crash_file *f,
			  pid_t tid, enum crash_step_kind kind)
{
	static char buf[1 << 17];
	uint64_t at = 0;
	ssize_t got;

	while (at < f->size &&
	       (got = pread(f->fd, buf, sizeof(buf), (off_t)at)) > 0) {
		size_t len = (size_t)got;

		if (len > f->size - at)
			len = f->size - at;
		if (memcmp(buf, f->logged_bytes + at, len))
			compare_block(r, f, tid, kind, buf, at, len);
		at += len;
	}
}

void crash_record_stores(struct crash_recorder *r, pid_t tid)
{
	struct crash_file *f, *next;

	HASH_ITER(hh, r->files, f, next)
	if (f->mapped)
		crash_record_compare(r, f, tid, CRASH_STORE);
}

void crash_record_flush(struct crash_recorder *r, struct crash_file *f,
			pid_t tid, uint64_t offset, uint64_t length,
			bool datasync)
{
	struct crash_step *e = record_event(r, CRASH_FLUSH, tid);

	if (!e)
		return;
	e->inode = f->inode;
	e->offset = offset;
	e->length = length;
	e->datasync = datasync;
	set_target(r, e, f);
}

void crash_record_sync(struct crash_recorder *r, pid_t tid)
{
	struct crash_step *e = record_event(r, CRASH_SYNC, tid);

	if (e)
		e->length = CRASH_ALL;
}

static void acknowledge(struct crash_recorder *r, pid_t tid)
{
	uint64_t data = crash_log_bytes(&r->log, r->line, r->line_len);
	struct crash_step *e = record_event(r, CRASH_ACK, tid);

	if (e) {
		e->data = data;
		e->length = r->line_len;
	}
	r->line_len = 0;
}

void crash_record_ledger(struct crash_recorder *r, pid_t tid)
{
	char buf[4096];
	ssize_t got;

	while ((got = pread(r->ledger_fd, buf, sizeof(buf), r->ledger_read)) >
	       0) {
		r->ledger_read += got;
		for (ssize_t i = 0; i < got; i++) {
			if (buf[i] == '\n')
				acknowledge(r, tid);
			else if (r->line_len < sizeof(r->line))
				r->line[r->line_len++] = buf[i];
			else
				crash_record_miss(r, "a line of the ledger is "
						     "longer than 1024 bytes");
		}
	}
}

void crash_record_appended(struct crash_recorder *r, pid_t tid, uint64_t length)
{
	crash_record_ledger(r, tid);
	r->ledger_written += length;
	if (r->ledger_written > (uint64_t)r->ledger_read)
		crash_record_miss(r, "COMMAND has overwritten the ledger, so "
				     "lines of it are lost; append each line, "
				     "as with >> in a shell");
}

void crash_record_end(struct crash_recorder *r)
{
	struct stat st;

	if (stat(r->ledger, &st) || st.st_dev != r->ledger_id.dev ||
	    st.st_ino != r->ledger_id.ino)
		crash_record_miss(r, "COMMAND has replaced or removed the "
				     "ledger; append each line to it, as with "
				     ">> in a shell");
	if (r->line_len)
		crash_record_miss(r, "the last line of the ledger has no "
				     "newline, without which it counts for "
				     "nothing; end each line with one");
}

struct crash_file *record_track(struct crash_recorder *r, int fd,
				const struct stat *st)
{
	struct crash_file *f = calloc(1, sizeof(*f));

	if (!f) {
		close(fd);
		crash_record_miss(r, "out of memory");
		return NULL;
	}
	f->id.dev = st->st_dev;
	f->id.ino = st->st_ino;
	f->fd = fd;
	f->mode = st->st_mode;
	f->inode =
		crash_log_inode(&r->log, st->st_mode, st->st_uid, st->st_gid);
	if (f->inode == CRASH_NONE)
		crash_record_miss(r, "out of memory");
	HASH_ADD(hh, r->files, id, sizeof(f->id), f);
	if (crash_record_find(r, st) == f)
		return f;
	crash_record_miss(r, "out of memory");
	close(fd);
	free(f);
	return NULL;
}

/* Record the content of a file that the recorder sees for the first time. */
void record_content(struct crash_recorder *r, struct crash_file *f, pid_t tid)
{
	struct stat st;

	if (!S_ISREG(f->mode) || fstat(f->fd, &st) || !st.st_size)
		return;
	crash_record_size(r, f, tid);
	crash_record_compare(r, f, tid, CRASH_WRITE);
}

static void keep_attributes(struct crash_recorder *r)
{
	struct crash_file *f, *next;
	struct stat st;

	HASH_ITER(hh, r->files, f, next)
	if (f->inode < r->log.inode_count && !fstat(f->fd, &st)) {
		struct crash_inode *i = &r->log.inodes[f->inode];

		i->mode = st.st_mode;
		i->uid = st.st_uid;
		i->gid = st.st_gid;
	}
}

void crash_record_free(struct crash_recorder *r)
{
	struct crash_file *f, *next;

	keep_attributes(r);
	HASH_ITER(hh, r->files, f, next)
	{
		HASH_DEL(r->files, f);
		if (f->logged_bytes)
			munmap(f->logged_bytes, f->room);
		close(f->fd);
		free(f);
	}
	if (r->ledger_fd >= 0)
		close(r->ledger_fd);
	r->ledger_fd = -1;
}
