// SPDX-License-Identifier: BSD-2-Clause
/* Files that appear complete or not at all; reads and writes of all bytes. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/file.h"

int rp_pread_full(int fd, void *buf, size_t len, off_t off)
{
	char *p = buf;

	while (len) {
		ssize_t n = pread(fd, p, len, off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ENODATA;
		p += n;
		off += n;
		len -= (size_t)n;
	}
	return 0;
}

int rp_pwrite_full(int fd, const void *buf, size_t len, off_t off)
{
	const char *p = buf;

	while (len) {
		ssize_t n = pwrite(fd, p, len, off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		off += n;
		len -= (size_t)n;
	}
	return 0;
}

int rp_tmpfile_open(const char *path, struct rp_tmpfile *t, char *err)
{
	const char *slash = strrchr(path, '/');
	int dir_len = slash ? (int)(slash - path) + 1 : 0;
	int ret;

	t->fd = -1;
	t->tmp = NULL;
	t->path = strdup(path);
	if (!t->path || asprintf(&t->tmp, "%.*s.%s.tmp.XXXXXX", dir_len, path,
				 path + dir_len) < 0) {
		t->tmp = NULL;
		ret = rp_err(err, -ENOMEM, "out of memory");
		goto free;
	}
	t->fd = mkostemp(t->tmp, O_CLOEXEC);
	if (t->fd < 0) {
		ret = rp_err(err, -errno,
			     "no file can be created next to '%s': %s", path,
			     strerror(errno));
		goto free;
	}
	return 0;

free:
	free(t->tmp);
	free(t->path);
	t->tmp = NULL;
	t->path = NULL;
	return ret;
}

static int sync_folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *dir;
	int fd, ret = 0;

	if (!slash)
		dir = strdup(".");
	else
		dir = strndup(path, slash == path ? 1 : (size_t)(slash - path));
	if (!dir)
		return -ENOMEM;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(dir);
	if (fd < 0)
		return -errno;
	if (fsync(fd))
		ret = -errno;
	close(fd);
	return ret;
}

int rp_tmpfile_publish(struct rp_tmpfile *t, bool replace, char *err)
{
	int ret;

	if (fsync(t->fd)) {
		ret = rp_err(err, -errno, "'%s': fsync: %s", t->path,
			     strerror(errno));
		goto discard;
	}
	/* link() fails if the name exists; rename() replaces the file. */
	if (replace ? rename(t->tmp, t->path) : link(t->tmp, t->path)) {
		ret = rp_err(err, -errno, "'%s' cannot be given its name: %s",
			     t->path, strerror(errno));
		goto discard;
	}
	if (!replace)
		unlink(t->tmp);
	ret = sync_folder_of(t->path);
	if (ret) {
		rp_err(err, ret, "fsync of the folder of '%s': %s", t->path,
		       strerror(-ret));
		if (!replace)
			unlink(t->path);
	}
	/* The file has its final name: discard only closes it. */
	free(t->tmp);
	t->tmp = NULL;
discard:
	rp_tmpfile_discard(t);
	return ret;
}

void rp_tmpfile_discard(struct rp_tmpfile *t)
{
	if (t->fd >= 0)
		close(t->fd);
	if (t->tmp)
		unlink(t->tmp);
	free(t->tmp);
	free(t->path);
	t->fd = -1;
	t->tmp = NULL;
	t->path = NULL;
}
