// SPDX-License-Identifier: BSD-2-Clause
/* Restores the directory from its log; drops from the log what no file has. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/bytes.h"
#include "util/redis/mirror.h"

/* Whether these bytes are the name of a file in the directory. */
static bool is_name(const char *name, size_t n)
{
	return n && n < NAME_SIZE && name[0] != '.' && !memchr(name, '/', n) &&
	       !memchr(name, 0, n);
}

/* Whether an entry is a change of the directory. */
static bool is_change(const unsigned char *e, size_t len)
{
	const size_t n = len < CHANGE_HEADER ? 0 : e[AT_NAMELEN];
	const char *name = (const char *)e + CHANGE_HEADER;

	return n && n <= len - CHANGE_HEADER && is_name(name, n) &&
	       (e[AT_CHANGE] != CHANGE_RENAME ||
		is_name(name + n, len - CHANGE_HEADER - n));
}

/* Restore bytes of an entry. A file's name is its id until restore_end(). */
static int restore_bytes(int dir, struct file *f, const unsigned char *e,
			 size_t len)
{
	const unsigned char *bytes = e + CHANGE_HEADER + e[AT_NAMELEN];
	const uint64_t at = rp_get64(e + AT_OFFSET);
	char id[32];

	len -= (size_t)(bytes - e);
	snprintf(id, sizeof(id), "%" PRIu64, f->id);
	if (f->fd < 0)
		f->fd = openat(dir, id, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (f->fd < 0)
		return rp_mirror_fail(-errno, f->name);
	errno = EIO;
	if ((e[AT_CHANGE] == CHANGE_BYTES && ftruncate(f->fd, (off_t)at)) ||
	    pwrite(f->fd, bytes, len, (off_t)at) != (ssize_t)len)
		return rp_mirror_fail(-errno, f->name);
	if (e[AT_CHANGE] == CHANGE_MOVED) {
		f->size = at + len > f->size ? at + len : f->size;
		return 0;
	}
	if (at != f->size || !e[AT_MORE])
		f->open = NOWHERE;
	if (e[AT_MORE] && f->open == NOWHERE)
		f->open = at;
	f->size = at + len;
	return 0;
}

static void restore_name(struct file *f, const unsigned char *e, size_t len)
{
	const size_t n = CHANGE_HEADER + e[AT_NAMELEN];
	char name[NAME_SIZE];
	struct file *replaced;

	snprintf(name, sizeof(name), "%.*s", (int)(len - n), e + n);
	replaced = e[AT_CHANGE] == CHANGE_RENAME ? rp_file_find(name) : NULL;
	if (replaced != f)
		rp_file_drop(replaced);
	memcpy(f->name, name, sizeof(name));
	if (e[AT_CHANGE] == CHANGE_UNLINK)
		rp_file_drop(f);
}

static int restore_entry(const struct rpmem_log_info *info, int dir,
			 uint64_t lsn, const unsigned char *e, size_t len)
{
	char name[NAME_SIZE];
	struct file *f;

	(void)info;
	if (!is_change(e, len))
		return rp_mirror_fail(-EBADMSG, "it is no log of Redis");
	f = rp_file_find_id(rp_get64(e + AT_ID));
	if (e[AT_CHANGE] > CHANGE_MOVED) {
		if (f)
			restore_name(f, e, len);
		return 0;
	}
	if (!f) {
		snprintf(name, sizeof(name), "%.*s", (int)e[AT_NAMELEN],
			 e + CHANGE_HEADER);
		rp_file_drop(rp_file_find(name));
		f = rp_file_make(name, rp_get64(e + AT_ID), false);
		if (!f)
			return -ENOMEM;
		f->first = lsn;
	}
	return restore_bytes(dir, f, e, len);
}

/* Drop temporary files, and runs with AT_MORE that a crash has cut off. */
static int restore_end(int dir)
{
	struct file *f, *next;
	char id[32];

	for (f = LIST_FIRST(&rp_mirror_files); f; f = next) {
		next = LIST_NEXT(f, link);
		if (f->open != NOWHERE) {
			f->size = f->open;
			if (ftruncate(f->fd, (off_t)f->size))
				return rp_mirror_fail(-errno, f->name);
		}
		close(f->fd);
		f->fd = -1;
		snprintf(id, sizeof(id), "%" PRIu64, f->id);
		if (!strncmp(f->name, TEMP_PREFIX, strlen(TEMP_PREFIX)))
			rp_file_drop(f);
		else if (renameat(dir, id, dir, f->name))
			return rp_mirror_fail(-errno, f->name);
	}
	return 0;
}

/* Whether Redis can load the restored files. */
static bool has_manifest(void)
{
	struct file *f;

	LIST_FOREACH (f, &rp_mirror_files, link)
		if (f->size && rp_mirror_is_manifest(f->name))
			return true;
	return false;
}

/* Call a function for each entry of [*lsn, tail) until one fails. */
static int read_entries(const struct rpmem_log_info *info, uint64_t *lsn,
			int (*use)(const struct rpmem_log_info *, int dir,
				   uint64_t lsn, const unsigned char *e,
				   size_t len),
			int dir)
{
	unsigned char *e = malloc(info->max_entry);
	uint64_t next = *lsn;
	int ret = 0, got;
	size_t len;

	if (!e)
		return rp_mirror_fail(-ENOMEM, rp_mirror_directory);
	while (!ret && *lsn < info->tail) {
		got = rpmem_log_read(rp_mirror_log, &next, e, info->max_entry,
				     &len, 0);
		if (got <= 0) {
			ret = got;
			break;
		}
		ret = use(info, dir, *lsn, e, len);
		if (!ret)
			*lsn = next;
	}
	free(e);
	return ret;
}

/* Remove a directory and the files in it. */
static int remove_folder(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;

	if (!d)
		return errno == ENOENT ? 0 : rp_mirror_fail(-errno, path);
	while ((e = readdir(d)))
		unlinkat(dirfd(d), e->d_name, 0);
	closedir(d);
	return rmdir(path) ? rp_mirror_fail(-errno, path) : 0;
}

/* Dropped files still have their id as their name: remove them. */
static void remove_dropped(int dir)
{
	DIR *d = fdopendir(dup(dir));
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (strspn(e->d_name, "0123456789") == strlen(e->d_name))
			unlinkat(dir, e->d_name, 0);
	if (d)
		closedir(d);
}

int rp_mirror_restore(const struct rpmem_log_info *info)
{
	char fresh[NAME_SIZE + 8], old[NAME_SIZE + 8];
	uint64_t lsn = info->head;
	int dir, ret;

	snprintf(fresh, sizeof(fresh), "%s.new", rp_mirror_directory);
	snprintf(old, sizeof(old), "%s.old", rp_mirror_directory);
	ret = remove_folder(fresh);
	if (ret)
		return ret;
	if (mkdir(fresh, 0755))
		return rp_mirror_fail(-errno, fresh);
	dir = open(fresh, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return rp_mirror_fail(-errno, fresh);
	ret = read_entries(info, &lsn, restore_entry, dir);
	if (!ret)
		ret = restore_end(dir);
	remove_dropped(dir);
	close(dir);
	if (!ret && !has_manifest())
		return remove_folder(fresh);
	if (!ret)
		ret = remove_folder(old);
	if (!ret && rp_libc_rename(rp_mirror_directory, old) && errno != ENOENT)
		ret = rp_mirror_fail(-errno, rp_mirror_directory);
	if (!ret && rp_libc_rename(fresh, rp_mirror_directory))
		ret = rp_mirror_fail(-errno, fresh);
	return ret ? ret : 1;
}

/* Append again the bytes of f from f->moved to `end`, perhaps some more. */
static int move_bytes(const struct rpmem_log_info *info, struct file *f, int fd,
		      uint64_t end, uint64_t lsn)
{
	const size_t most = rp_mirror_chunk(info);
	uint64_t at;
	size_t len;
	int ret;

	do {
		len = f->size - f->moved < most ? f->size - f->moved : most;
		ret = rp_file_append(f, CHANGE_MOVED, f->moved, fd, len, false,
				     &at);
		if (ret == -ENOSPC) {
			ret = rpmem_log_trim(rp_mirror_log, lsn);
			if (!ret)
				ret = rp_file_append(f, CHANGE_MOVED, f->moved,
						     fd, len, false, &at);
		}
		if (ret)
			return ret;
		f->first_moved_lsn =
			f->first_moved_lsn ? f->first_moved_lsn : at;
		f->moved += len;
	} while (f->moved < end && f->moved < f->size);
	return 0;
}

static int move_entry(const struct rpmem_log_info *info, int dir, uint64_t lsn,
		      const unsigned char *e, size_t len)
{
	struct file *f;
	uint64_t at, end;
	int fd, ret;

	if (!is_change(e, len))
		return -EBADMSG;
	f = rp_file_find_id(rp_get64(e + AT_ID));
	at = rp_get64(e + AT_OFFSET);
	end = at + len - CHANGE_HEADER - e[AT_NAMELEN];
	if (!f || e[AT_CHANGE] > CHANGE_MOVED || (f->size && at >= f->size) ||
	    (f->moved && at >= f->moving && end <= f->moved))
		return 0;
	if (at < f->moving || at > f->moved || !f->moved)
		f->moving = f->moved = at;
	fd = openat(dir, f->name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ret = move_bytes(info, f, fd, end, lsn);
	close(fd);
	return ret;
}

int rp_mirror_clean(void)
{
	struct rpmem_log_info info = {.size = sizeof(info)};
	int dir, ret = rpmem_log_query(rp_mirror_log, &info);
	uint64_t lsn = info.head;
	struct file *f;

	if (ret)
		return ret;
	dir = open(rp_mirror_directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	LIST_FOREACH (f, &rp_mirror_files, link)
		f->moving = f->moved = f->first_moved_lsn = 0;
	ret = read_entries(&info, &lsn, move_entry, dir);
	close(dir);
	LIST_FOREACH (f, &rp_mirror_files, link)
		if (!ret && f->first_moved_lsn)
			f->first = f->first_moved_lsn;
		else if (ret && f->first && f->first < lsn)
			f->first = lsn;
	return ret ? ret : rp_mirror_trim();
}
