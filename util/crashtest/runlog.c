// SPDX-License-Identifier: BSD-2-Clause
/* The record of a run in memory and as a file. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "util/crashtest/runlog.h"

struct file_header {
	char magic[8];
	uint64_t event_count, inode_count, byte_count, base;
	uint32_t store, sector;
	uint32_t event_size, unused;
};

static const char magic[8] = "RPCRASH3";

/* Make room for `need` elements in an array, whose size doubles. */
static bool make_room(struct crash_log *l, void **array, size_t *room,
		      size_t need, size_t size)
{
	size_t more = *room ? *room : 64;
	void *grown;

	if (need <= *room)
		return true;
	while (more < need)
		more *= 2;
	grown = reallocarray(*array, more, size);
	if (!grown) {
		l->failed = true;
		return false;
	}
	*array = grown;
	*room = more;
	return true;
}

struct crash_step *crash_log_event(struct crash_log *l,
				   enum crash_step_kind kind)
{
	struct crash_step *e;

	if (!make_room(l, (void **)&l->events, &l->event_room,
		       l->event_count + 1, sizeof(*e)))
		return NULL;
	e = &l->events[l->event_count++];
	*e = (struct crash_step){
		.kind = (uint8_t)kind,
		.inode = CRASH_NONE,
		.dir = CRASH_NONE,
		.dir2 = CRASH_NONE,
		.inode2 = CRASH_NONE,
		.data = CRASH_NO_DATA,
		.target = CRASH_NO_DATA,
		.name = CRASH_NO_DATA,
		.name2 = CRASH_NO_DATA,
	};
	return e;
}

uint32_t crash_log_inode(struct crash_log *l, mode_t mode, uid_t uid, gid_t gid)
{
	if (!make_room(l, (void **)&l->inodes, &l->inode_room,
		       l->inode_count + 1, sizeof(*l->inodes)))
		return CRASH_NONE;
	l->inodes[l->inode_count] = (struct crash_inode){
		.mode = mode, .uid = uid, .gid = gid, .target = CRASH_NO_DATA};
	return (uint32_t)l->inode_count++;
}

uint64_t crash_log_bytes(struct crash_log *l, const void *bytes, size_t len)
{
	const size_t at = l->byte_count;

	if (!make_room(l, (void **)&l->bytes, &l->byte_room, at + len, 1))
		return CRASH_NO_DATA;
	if (len)
		memcpy(l->bytes + at, bytes, len);
	l->byte_count += len;
	return at;
}

uint64_t crash_log_text(struct crash_log *l, const char *text)
{
	return crash_log_bytes(l, text, strlen(text) + 1);
}

void crash_log_free(struct crash_log *l)
{
	free(l->events);
	free(l->inodes);
	free(l->bytes);
	*l = (struct crash_log){0};
}

int crash_log_save(const struct crash_log *l, const char *path)
{
	struct file_header h = {
		.event_count = l->event_count,
		.inode_count = l->inode_count,
		.byte_count = l->byte_count,
		.base = l->base,
		.store = l->store,
		.sector = l->sector,
		.event_size = sizeof(struct crash_step),
	};
	FILE *f = fopen(path, "we");
	bool ok;

	if (!f)
		return -errno;
	memcpy(h.magic, magic, sizeof(magic));
	ok = fwrite(&h, sizeof(h), 1, f) == 1 &&
	     fwrite(l->events, sizeof(*l->events), l->event_count, f) ==
		     l->event_count &&
	     fwrite(l->inodes, sizeof(*l->inodes), l->inode_count, f) ==
		     l->inode_count &&
	     fwrite(l->bytes, 1, l->byte_count, f) == l->byte_count;
	if (fclose(f) || !ok)
		return errno ? -errno : -EIO;
	return 0;
}

static bool text_ok(const struct crash_log *l, uint64_t at)
{
	return at < l->byte_count &&
	       memchr(l->bytes + at, 0, l->byte_count - at);
}

/* Whether a name is one component, so that it stays in the image's folder. */
static bool name_ok(const struct crash_log *l, uint64_t at)
{
	const char *s = text_ok(l, at) ? l->bytes + at : "";

	return *s && !strchr(s, '/') && strcmp(s, ".") && strcmp(s, "..") &&
	       strlen(s) < 256;
}

static bool dir_ok(const struct crash_log *l, uint32_t dir)
{
	return dir < l->inode_count && S_ISDIR(l->inodes[dir].mode);
}

static bool event_ok(const struct crash_log *l, const struct crash_step *e)
{
	const bool two = e->kind == CRASH_RENAME || e->kind == CRASH_EXCHANGE;

	if (e->kind >= CRASH_KINDS ||
	    (e->target != CRASH_NO_DATA && !text_ok(l, e->target)))
		return false;
	if (e->kind == CRASH_SYNC)
		return true;
	if (crash_step_is_data(e) || e->kind == CRASH_ACK) {
		if (e->length > l->byte_count ||
		    e->data > l->byte_count - e->length ||
		    e->offset > INT64_MAX - e->length)
			return false;
		return e->kind == CRASH_ACK ||
		       (e->inode < l->inode_count &&
			S_ISREG(l->inodes[e->inode].mode));
	}
	if (e->inode >= l->inode_count ||
	    (e->inode2 != CRASH_NONE && e->inode2 >= l->inode_count))
		return false;
	if (e->kind == CRASH_FLUSH)
		return true;
	if (e->kind == CRASH_TRUNCATE)
		return e->offset <= INT64_MAX &&
		       S_ISREG(l->inodes[e->inode].mode) &&
		       e->dir == CRASH_NONE && e->dir2 == CRASH_NONE;
	return dir_ok(l, e->dir) && name_ok(l, e->name) &&
	       (two ? dir_ok(l, e->dir2) && name_ok(l, e->name2)
		    : e->dir2 == CRASH_NONE);
}

static bool log_ok(const struct crash_log *l)
{
	if (!l->inode_count || !S_ISDIR(l->inodes[0].mode) ||
	    l->base > l->event_count ||
	    (l->sector != 512 && l->sector != 4096) ||
	    (l->store != 8 && l->store != l->sector))
		return false;
	for (size_t i = 0; i < l->inode_count; i++)
		if (S_ISLNK(l->inodes[i].mode) &&
		    !text_ok(l, l->inodes[i].target))
			return false;
	for (size_t i = 0; i < l->event_count; i++)
		if (!event_ok(l, &l->events[i]))
			return false;
	return true;
}

static bool read_array(FILE *f, void **array, size_t *room, size_t *count,
		       uint64_t n, size_t size)
{
	*array = calloc(n ? n : 1, size);
	*room = *count = n;
	return *array && fread(*array, size, n, f) == n;
}

static bool read_log(struct crash_log *l, FILE *f, const struct stat *st)
{
	const uint64_t max = (uint64_t)st->st_size;
	struct file_header h;

	if (fread(&h, sizeof(h), 1, f) != 1 ||
	    memcmp(h.magic, magic, sizeof(magic)) ||
	    h.event_size != sizeof(struct crash_step) ||
	    h.event_count > max / sizeof(struct crash_step) ||
	    h.inode_count > max / sizeof(struct crash_inode) ||
	    h.byte_count > max)
		return false;
	l->base = h.base;
	l->store = h.store;
	l->sector = h.sector;
	return read_array(f, (void **)&l->events, &l->event_room,
			  &l->event_count, h.event_count, sizeof(*l->events)) &&
	       read_array(f, (void **)&l->inodes, &l->inode_room,
			  &l->inode_count, h.inode_count, sizeof(*l->inodes)) &&
	       read_array(f, (void **)&l->bytes, &l->byte_room, &l->byte_count,
			  h.byte_count, 1) &&
	       fgetc(f) == EOF && log_ok(l);
}

int crash_log_load(struct crash_log *l, const char *path)
{
	FILE *f = fopen(path, "re");
	struct stat st;
	bool ok;

	*l = (struct crash_log){0};
	if (!f)
		return -errno;
	ok = !fstat(fileno(f), &st) && read_log(l, f, &st);
	fclose(f);
	if (ok)
		return 0;
	crash_log_free(l);
	return -EBADMSG;
}
