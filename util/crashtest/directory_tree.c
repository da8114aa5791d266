// SPDX-License-Identifier: BSD-2-Clause
/* One image of a power cut as a folder tree. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "util/crashtest/history.h"

#define DEPTH_MAX 512 /* most nested folders, which are open all at once */

static const char *text(const struct crash_tree *t, uint64_t at)
{
	return t->history->log->bytes + at;
}

static size_t find_entry(const struct crash_tree *t, uint32_t dir,
			 const char *name)
{
	size_t i = 0;

	while (i < t->entry_count &&
	       (t->entries[i].dir != dir || strcmp(t->entries[i].name, name)))
		i++;
	return i;
}

static bool set_entry(struct crash_tree *t, uint32_t dir, const char *name,
		      uint32_t inode)
{
	const size_t i = find_entry(t, dir, name);

	if (i == t->entry_room) {
		const size_t room = i ? 2 * i : 64;
		struct crash_entry *e =
			reallocarray(t->entries, room, sizeof(*e));

		if (!e)
			return false;
		t->entries = e;
		t->entry_room = room;
	}
	t->entries[i] = (struct crash_entry){dir, inode, name};
	if (i == t->entry_count)
		t->entry_count++;
	return true;
}

static void remove_entry(struct crash_tree *t, uint32_t dir, const char *name)
{
	const size_t i = find_entry(t, dir, name);

	if (i < t->entry_count)
		t->entries[i] = t->entries[--t->entry_count];
}

static bool exchange(struct crash_tree *t, const struct crash_step *e)
{
	const size_t a = find_entry(t, e->dir, text(t, e->name));
	const size_t b = find_entry(t, e->dir2, text(t, e->name2));

	if (a < t->entry_count && b < t->entry_count) {
		const uint32_t inode = t->entries[a].inode;

		t->entries[a].inode = t->entries[b].inode;
		t->entries[b].inode = inode;
	}
	return true;
}

/* Map a file's buffer, which is as large as the file ever was. */
static bool map_node(struct crash_tree *t, uint32_t inode)
{
	struct crash_node *n = &t->nodes[inode];

	if (n->data || !t->history->sizes[inode])
		return true;
	n->data = mmap(NULL, t->history->sizes[inode], PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (n->data == MAP_FAILED)
		n->data = NULL;
	return n->data;
}

static bool put_bytes(struct crash_tree *t, const struct crash_step *e,
		      uint64_t offset, uint64_t length)
{
	struct crash_node *n = &t->nodes[e->inode];

	if (!map_node(t, e->inode))
		return false;
	memcpy(n->data + offset, text(t, e->data) + (offset - e->offset),
	       length);
	if (offset + length > n->size)
		n->size = offset + length;
	return true;
}

static bool set_size(struct crash_tree *t, const struct crash_step *e)
{
	struct crash_node *n = &t->nodes[e->inode];

	if (!map_node(t, e->inode))
		return false;
	if (e->offset < n->size)
		memset(n->data + e->offset, 0, n->size - e->offset);
	n->size = e->offset;
	return true;
}

static bool apply_meta(struct crash_tree *t, const struct crash_step *e)
{
	switch (e->kind) {
	case CRASH_TRUNCATE:
		return set_size(t, e);
	case CRASH_CREATE:
	case CRASH_MKDIR:
	case CRASH_LINK:
		return set_entry(t, e->dir, text(t, e->name), e->inode);
	case CRASH_UNLINK:
		remove_entry(t, e->dir, text(t, e->name));
		return true;
	case CRASH_RENAME:
		remove_entry(t, e->dir, text(t, e->name));
		return set_entry(t, e->dir2, text(t, e->name2), e->inode);
	default:
		return exchange(t, e);
	}
}

/* Extend a file by a lost piece: the journal got its size, not its bytes. */
static bool grow_zeros(struct crash_tree *t, const struct crash_step *e,
		       uint64_t size)
{
	struct crash_node *n = &t->nodes[e->inode];

	if (size <= n->size || size > n->limit)
		return true;
	if (!map_node(t, e->inode))
		return false;
	n->size = size;
	return true;
}

static bool apply_data(struct crash_tree *t, const struct crash_image *i,
		       uint32_t n)
{
	const struct crash_history *h = t->history;
	const struct crash_step *e = &h->log->events[n];

	if (n < h->log->base)
		return put_bytes(t, e, e->offset, e->length);
	for (uint32_t k = h->first_piece[n]; k < h->first_piece[n + 1]; k++) {
		const struct crash_piece *p = &h->pieces[k];

		if (crash_bit(i->lost, k)
			    ? n < i->zeros && !grow_zeros(t, e, p->grown)
			    : !put_bytes(t, e, p->offset, p->length))
			return false;
	}
	return true;
}

static int by_place(const void *a, const void *b)
{
	const struct crash_entry *x = a, *y = b;

	if (x->dir != y->dir)
		return x->dir < y->dir ? -1 : 1;
	return strcmp(x->name, y->name);
}

int crash_tree_make(struct crash_tree *t, const struct crash_history *h,
		    const struct crash_image *i)
{
	const struct crash_log *l = h->log;
	const size_t end = i->cut == CRASH_NONE ? l->base : i->cut + 1u;
	bool ok;

	*t = (struct crash_tree){.history = h};
	t->nodes = calloc(l->inode_count, sizeof(*t->nodes));
	ok = t->nodes;
	for (size_t k = 0; ok && k < l->inode_count; k++)
		t->nodes[k].limit = UINT64_MAX;
	for (uint32_t n = 0; ok && n < end; n++) {
		const struct crash_step *e = &l->events[n];

		if (crash_step_is_data(e))
			ok = apply_data(t, i, n);
		else if (crash_step_is_meta(e) &&
			 (n < l->base || h->meta_made[n] <= i->meta))
			ok = apply_meta(t, e);
		else if (e->kind == CRASH_TRUNCATE &&
			 e->offset < t->nodes[e->inode].limit)
			t->nodes[e->inode].limit = e->offset;
	}
	if (!ok) {
		crash_tree_free(t);
		return -ENOMEM;
	}
	if (t->entry_count)
		qsort(t->entries, t->entry_count, sizeof(*t->entries),
		      by_place);
	return 0;
}

void crash_tree_free(struct crash_tree *t)
{
	for (size_t i = 0; t->nodes && i < t->history->log->inode_count; i++)
		if (t->nodes[i].data)
			munmap(t->nodes[i].data, t->history->sizes[i]);
	free(t->nodes);
	free(t->entries);
	*t = (struct crash_tree){0};
}

uint64_t crash_tree_hash(const struct crash_tree *t)
{
	const struct crash_inode *inodes = t->history->log->inodes;
	XXH3_state_t *s = XXH3_createState();
	uint64_t hash;

	if (!s)
		abort();
	XXH3_64bits_reset(s);
	for (size_t i = 0; i < t->entry_count; i++) {
		const struct crash_entry *e = &t->entries[i];
		const struct crash_node *n = &t->nodes[e->inode];

		XXH3_64bits_update(s, &e->dir, sizeof(e->dir));
		XXH3_64bits_update(s, e->name, strlen(e->name) + 1);
		XXH3_64bits_update(s, &e->inode, sizeof(e->inode));
		XXH3_64bits_update(s, &n->size, sizeof(n->size));
		if (S_ISREG(inodes[e->inode].mode) && n->size)
			XXH3_64bits_update(s, n->data, n->size);
	}
	hash = XXH3_64bits_digest(s);
	XXH3_freeState(s);
	return hash;
}

static int write_data(int fd, const struct crash_node *n)
{
	static const char zeros[CRASH_PAGE];

	/* Pages of zeros stay holes. */
	for (uint64_t at = 0; at < n->size; at += CRASH_PAGE) {
		const uint64_t len =
			n->size - at < CRASH_PAGE ? n->size - at : CRASH_PAGE;

		ssize_t put;

		if (!memcmp(n->data + at, zeros, len))
			continue;
		put = pwrite(fd, n->data + at, len, (off_t)at);
		if (put != (ssize_t)len)
			return put < 0 ? -errno : -ENOSPC;
	}
	return ftruncate(fd, (off_t)n->size) ? -errno : 0;
}

static int set_owner(int dirfd, const char *name, const struct crash_inode *i)
{
	/* Only root can restore owners; other users own what they write. */
	if (!geteuid() &&
	    fchownat(dirfd, name, i->uid, i->gid, AT_SYMLINK_NOFOLLOW))
		return -errno;
	if (!S_ISLNK(i->mode) && fchmodat(dirfd, name, i->mode & 07777, 0))
		return -errno;
	return 0;
}

static int write_file(const struct crash_tree *t, int dirfd, const char *name,
		      uint32_t inode)
{
	const struct crash_inode *i = &t->history->log->inodes[inode];
	const int fd = openat(dirfd, name,
			      O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int ret;

	if (fd < 0)
		return -errno;
	ret = write_data(fd, &t->nodes[inode]);
	close(fd);
	return ret ? ret : set_owner(dirfd, name, i);
}

/*
 * For each inode already written, the path of its first name below the image's
 * folder; further names become hard links to it.
 */
struct written {
	int top;
	char **paths;
};

static int write_dir(const struct crash_tree *t, struct written *w, int dirfd,
		     const char *path, uint32_t dir, unsigned int depth);

static int write_entry(const struct crash_tree *t, struct written *w, int dirfd,
		       const char *path, const struct crash_entry *e,
		       unsigned int depth)
{
	const struct crash_log *l = t->history->log;
	const struct crash_inode *i = &l->inodes[e->inode];
	char *below;
	int ret = 0;

	if (w->paths[e->inode] && S_ISDIR(i->mode))
		return -EEXIST;
	if (w->paths[e->inode])
		return linkat(w->top, w->paths[e->inode], dirfd, e->name, 0)
			       ? -errno
			       : 0;
	if (asprintf(&below, "%s%s%s", path, *path ? "/" : "", e->name) < 0)
		return -ENOMEM;
	w->paths[e->inode] = below;
	if (S_ISDIR(i->mode))
		return mkdirat(dirfd, e->name, 0700)
			       ? -errno
			       : write_dir(t, w, dirfd, below, e->inode,
					   depth + 1);
	if (S_ISREG(i->mode))
		return write_file(t, dirfd, e->name, e->inode);
	if (S_ISLNK(i->mode))
		ret = symlinkat(text(t, i->target), dirfd, e->name);
	else if (S_ISFIFO(i->mode))
		ret = mkfifoat(dirfd, e->name, 0600);
	else
		return 0;
	return ret ? -errno : set_owner(dirfd, e->name, i);
}

static int write_dir(const struct crash_tree *t, struct written *w, int dirfd,
		     const char *path, uint32_t dir, unsigned int depth)
{
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	const int fd = openat(dirfd, *name ? name : ".",
			      O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int ret = depth > DEPTH_MAX ? -ENAMETOOLONG : 0;

	if (fd < 0)
		return -errno;
	for (size_t i = 0; !ret && i < t->entry_count; i++)
		if (t->entries[i].dir == dir)
			ret = write_entry(t, w, fd, path, &t->entries[i],
					  depth);
	close(fd);
	return ret ? ret
		   : set_owner(dirfd, *name ? name : ".",
			       &t->history->log->inodes[dir]);
}

int crash_tree_write(const struct crash_tree *t, const char *folder)
{
	const size_t inodes = t->history->log->inode_count;
	struct written w = {
		.top = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
	};
	int ret = -ENOMEM;

	if (w.top < 0)
		return -errno;
	w.paths = calloc(inodes, sizeof(*w.paths));
	if (w.paths)
		ret = write_dir(t, &w, w.top, "", 0, 0);
	for (size_t i = 0; w.paths && i < inodes; i++)
		free(w.paths[i]);
	free(w.paths);
	close(w.top);
	return ret;
}

static bool same_bytes(int dirfd, const char *name, const struct crash_node *n)
{
	const int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	static char buf[1 << 16];
	bool same = fd >= 0;
	uint64_t at = 0;
	ssize_t got;

	while (same && (got = pread(fd, buf, sizeof(buf), (off_t)at)) > 0) {
		same = at + (uint64_t)got <= n->size &&
		       !memcmp(buf, n->data + at, (size_t)got);
		at += (uint64_t)got;
	}
	if (fd >= 0)
		close(fd);
	return same && at == n->size;
}

static char *path_of_difference(const char *path, const char *name)
{
	static char where[4096];

	snprintf(where, sizeof(where), "%s%s%s", path, *path ? "/" : "", name);
	return where;
}

/* Sockets and devices are not recorded. */
static bool is_left_out(mode_t mode)
{
	return S_ISSOCK(mode) || S_ISCHR(mode) || S_ISBLK(mode);
}

static const char *compare_dir(const struct crash_tree *t, int at,
			       const char *path, uint32_t dir)
{
	const struct crash_inode *inodes = t->history->log->inodes;
	size_t want = 0, have = 0;
	const char *bad = NULL;
	struct dirent *d;
	struct stat st;
	DIR *list = fdopendir(at);

	if (!list) {
		close(at);
		return path_of_difference(path, ".");
	}
	for (size_t i = 0; i < t->entry_count; i++)
		want += t->entries[i].dir == dir;
	while (!bad && (d = readdir(list))) {
		const size_t i = find_entry(t, dir, d->d_name);
		uint32_t inode;

		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
			continue;
		bad = path_of_difference(path, d->d_name);
		if (fstatat(at, d->d_name, &st, AT_SYMLINK_NOFOLLOW))
			break;
		if (is_left_out(st.st_mode)) {
			bad = NULL;
			continue;
		}
		have++;
		if (i == t->entry_count)
			break;
		inode = t->entries[i].inode;
		if ((st.st_mode ^ inodes[inode].mode) & S_IFMT)
			break;
		if (S_ISREG(st.st_mode) &&
		    !same_bytes(at, d->d_name, &t->nodes[inode]))
			break;
		bad = NULL;
		if (S_ISDIR(st.st_mode)) {
			char *sub = strdup(path_of_difference(path, d->d_name));
			const int fd = openat(at, d->d_name,
					      O_RDONLY | O_DIRECTORY |
						      O_CLOEXEC | O_NOFOLLOW);

			bad = fd < 0 || !sub
				      ? path_of_difference(path, d->d_name)
				      : compare_dir(t, fd, sub, inode);
			free(sub);
		}
	}
	closedir(list);
	return bad ? bad : want == have ? NULL : path_of_difference(path, ".");
}

const char *crash_tree_compare(const struct crash_tree *t, const char *folder)
{
	const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? folder : compare_dir(t, fd, "", 0);
}
