// SPDX-License-Identifier: BSD-2-Clause
/* The recorder: entries of folders, and the folder's state at the start. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "util/crashtest/record_priv.h"

/* Open an entry: a file or a folder to read it, anything else by O_PATH. */
static int open_entry(int dirfd, const char *name, mode_t mode)
{
	if (S_ISREG(mode))
		return openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (S_ISDIR(mode))
		return openat(dirfd, name,
			      O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return openat(dirfd, name, O_PATH | O_CLOEXEC | O_NOFOLLOW);
}

static void entry_path(const struct crash_recorder *r,
		       const struct crash_place *p, char *path, size_t len)
{
	char dir[PATH_MAX];

	record_path(r, p->dir->fd, dir, sizeof(dir));
	if (!strcmp(dir, "."))
		snprintf(path, len, "%s", p->name);
	else
		snprintf(path, len, "%.4095s/%s", dir, p->name);
}

static void keep_link(struct crash_recorder *r, const struct crash_place *p,
		      const struct crash_file *f)
{
	char to[PATH_MAX];
	const ssize_t n = readlinkat(p->dir->fd, p->name, to, sizeof(to) - 1);

	to[n < 0 ? 0 : n] = 0;
	r->log.inodes[f->inode].target = crash_log_text(&r->log, to);
}

static struct crash_file *track_entry(struct crash_recorder *r,
				      const struct crash_place *p,
				      const struct stat *st)
{
	const int fd = open_entry(p->dir->fd, p->name, st->st_mode);
	char path[PATH_MAX + NAME_MAX + 2];
	struct crash_file *f;

	if (fd < 0) {
		entry_path(r, p, path, sizeof(path));
		crash_record_miss(r, "%s cannot be read by the recorder: %s",
				  path, strerror(errno));
		return NULL;
	}
	f = record_track(r, fd, st);
	if (f && f->inode != CRASH_NONE && S_ISLNK(st->st_mode))
		keep_link(r, p, f);
	return f && f->inode != CRASH_NONE ? f : NULL;
}

static struct crash_step *entry_event(struct crash_recorder *r,
				      enum crash_step_kind kind,
				      const struct crash_place *p, pid_t tid)
{
	struct crash_step *e = record_event(r, kind, tid);
	char path[PATH_MAX + NAME_MAX + 2];

	if (!e)
		return NULL;
	entry_path(r, p, path, sizeof(path));
	e->dir = p->dir->inode;
	e->name = crash_log_text(&r->log, p->name);
	e->target = crash_log_text(&r->log, path);
	return e;
}

struct crash_file *crash_record_entry(struct crash_recorder *r,
				      const struct crash_place *p)
{
	struct stat st;

	if (!p->dir || fstatat(p->dir->fd, p->name, &st, AT_SYMLINK_NOFOLLOW))
		return NULL;
	return crash_record_find(r, &st);
}

static bool is_outside_kind(mode_t mode)
{
	return S_ISSOCK(mode) || S_ISCHR(mode) || S_ISBLK(mode);
}

void crash_record_create(struct crash_recorder *r, const struct crash_place *p,
			 pid_t tid)
{
	enum crash_step_kind kind = CRASH_LINK;
	struct crash_step *e;
	struct crash_file *f;
	struct stat st;
	bool fresh;

	if (!p->dir || fstatat(p->dir->fd, p->name, &st, AT_SYMLINK_NOFOLLOW) ||
	    is_outside_kind(st.st_mode))
		return;
	f = crash_record_find(r, &st);
	fresh = !f;
	if (!f)
		f = track_entry(r, p, &st);
	if (!f)
		return;
	if (S_ISDIR(st.st_mode))
		kind = CRASH_MKDIR;
	else if (fresh)
		kind = CRASH_CREATE;
	e = entry_event(r, kind, p, tid);
	if (e)
		e->inode = f->inode;
	if (fresh && r->on && S_ISREG(st.st_mode) && st.st_size) {
		char path[PATH_MAX + NAME_MAX + 2];

		entry_path(r, p, path, sizeof(path));
		crash_record_miss(r,
				  "%s came from outside the folder, so its "
				  "writes are not recorded; give a folder "
				  "that has both",
				  path);
	}
	if (fresh)
		record_content(r, f, tid);
}

void crash_record_unlink(struct crash_recorder *r, const struct crash_place *p,
			 const struct crash_file *f, pid_t tid)
{
	struct crash_step *e = entry_event(r, CRASH_UNLINK, p, tid);

	if (e)
		e->inode = f->inode;
}

void crash_record_rename(struct crash_recorder *r, const struct crash_place *p,
			 const struct crash_place *p2,
			 const struct crash_file *f,
			 const struct crash_file *f2, pid_t tid, bool exchange)
{
	struct crash_step *e = entry_event(
		r, exchange ? CRASH_EXCHANGE : CRASH_RENAME, p, tid);

	if (!e)
		return;
	e->inode = f->inode;
	if (f2)
		e->inode2 = f2->inode;
	e->dir2 = p2->dir->inode;
	e->name2 = crash_log_text(&r->log, p2->name);
}

static bool below_root(const struct crash_recorder *r, const char *path)
{
	const size_t len = strlen(r->root);

	return !strncmp(path, r->root, len) && path[len] == '/';
}

/* Add a file without an entry, such as one of O_TMPFILE. */
static struct crash_file *adopt_unlinked(struct crash_recorder *r,
					 const char *link,
					 const struct stat *st)
{
	const int fd = open(link, O_RDONLY | O_CLOEXEC);

	if (fd >= 0)
		return record_track(r, fd, st);
	crash_record_miss(r, "an unnamed file cannot be read: %s",
			  strerror(errno));
	return NULL;
}

/* Report why the recorder does not know a folder in the path of a file. */
static void miss_folder(struct crash_recorder *r, const char *path)
{
	struct stat st, root;
	const struct crash_file *f =
		stat(r->root, &root) ? NULL : crash_record_find(r, &root);

	if (!f || f->inode)
		crash_record_miss(r,
				  "COMMAND has replaced the folder %s, or "
				  "mounted something on it; let it keep the "
				  "folder",
				  r->root);
	else if (!stat(path, &st) && st.st_dev != root.st_dev)
		crash_record_miss(r,
				  "another file system is mounted at or above "
				  "%s; unmount it, or give its folder to "
				  "--files",
				  path);
	else
		crash_record_miss(r,
				  "%s was made by a process that is not "
				  "recorded",
				  path);
}

static struct crash_file *adopt(struct crash_recorder *r, const char *link,
				const struct stat *st, pid_t tid)
{
	char path[PATH_MAX + NAME_MAX + 2];
	const ssize_t n = readlink(link, path, sizeof(path) - 1);
	struct crash_place p;
	struct stat dir;
	char *slash;

	if (n < 0)
		return NULL;
	path[n] = 0;
	if (!below_root(r, path))
		return NULL;
	if (!st->st_nlink)
		return adopt_unlinked(r, link, st);
	slash = strrchr(path, '/');
	snprintf(p.name, sizeof(p.name), "%s", slash + 1);
	*slash = 0;
	p.dir = stat(path, &dir) ? NULL : crash_record_find(r, &dir);
	if (!p.dir) {
		miss_folder(r, path);
		return NULL;
	}
	crash_record_create(r, &p, tid);
	return crash_record_find(r, st);
}

struct crash_file *crash_record_fd(struct crash_recorder *r, pid_t tid, int fd)
{
	struct crash_file *f;
	struct stat st;
	char link[64];

	if (fd < 0)
		return NULL;
	snprintf(link, sizeof(link), "/proc/%d/fd/%d", (int)tid, fd);
	if (stat(link, &st) || !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
		return NULL;
	f = crash_record_find(r, &st);
	return f || !S_ISREG(st.st_mode) ? f : adopt(r, link, &st, tid);
}

static void snapshot(struct crash_recorder *r, struct crash_file *dir)
{
	const int fd = dup(dir->fd);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);
	struct crash_place p = {.dir = dir};
	const struct dirent *d;

	if (!list) {
		if (fd >= 0)
			close(fd);
		crash_record_miss(r, "a folder cannot be read: %s",
				  strerror(errno));
		return;
	}
	rewinddir(list);
	while (!*r->reason && (d = readdir(list))) {
		struct crash_file *f;

		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
			continue;
		snprintf(p.name, sizeof(p.name), "%s", d->d_name);
		crash_record_create(r, &p, 0);
		f = crash_record_entry(r, &p);
		if (f && S_ISDIR(f->mode))
			snapshot(r, f);
	}
	closedir(list);
}

/* Raise the limit of open files: each inode below the folder is open. */
static void raise_limit(void)
{
	struct rlimit l;

	if (!getrlimit(RLIMIT_NOFILE, &l)) {
		l.rlim_cur = l.rlim_max;
		setrlimit(RLIMIT_NOFILE, &l);
	}
}

int crash_record_start(struct crash_recorder *r, const char *folder,
		       const char *ledger)
{
	struct crash_file *top;
	struct stat st;
	int fd;

	raise_limit();
	snprintf(r->ledger, sizeof(r->ledger), "%s", ledger);
	r->ledger_fd = open(ledger, O_RDONLY | O_CLOEXEC);
	fd = realpath(folder, r->root)
		     ? open(r->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
		     : -1;
	if (fd < 0 || fstat(fd, &st)) {
		crash_record_miss(r, "%s: %s", folder, strerror(errno));
		return -1;
	}
	top = record_track(r, fd, &st);
	if (r->ledger_fd < 0 || fstat(r->ledger_fd, &st)) {
		crash_record_miss(r, "%s: %s", ledger, strerror(errno));
		return -1;
	}
	r->ledger_id.dev = st.st_dev;
	r->ledger_id.ino = st.st_ino;
	if (top)
		snapshot(r, top);
	r->log.base = r->log.event_count;
	return *r->reason ? -1 : 0;
}
