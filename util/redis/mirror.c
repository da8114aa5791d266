// SPDX-License-Identifier: BSD-2-Clause
/*
 * The directory of Redis's append-only files, mirrored in a remote log.
 *
 * Each entry of the log is a change of the directory: bytes of a file, a
 * rename, a removal. The head of the log is the first entry of a file that
 * still exists; entries of other files after the head have no effect, because a
 * later entry removes or replaces the file.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/bytes.h"
#include "util/redis/mirror.h"

/* Most bytes per entry of an upload: other appends wait for the entry. */
#define UPLOAD_CHUNK  65536u
#define LONGEST_CHUNK 1048576u

#define MANIFEST_SUFFIX ".manifest"

struct rpmem_log *rp_mirror_log;
struct file_list rp_mirror_files = LIST_HEAD_INITIALIZER(rp_mirror_files);

/* The lock guards only the list: several threads append at the same time. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
char rp_mirror_directory[NAME_SIZE];
static char directory_path[4096];
static uint64_t writes, last_id;
__thread char rp_mirror_failure[4400];

int rp_mirror_fail(int ret, const char *file)
{
	snprintf(rp_mirror_failure, sizeof(rp_mirror_failure), "%s", file);
	return ret;
}

struct file *rp_file_find(const char *name)
{
	struct file *f;

	pthread_mutex_lock(&lock);
	LIST_FOREACH (f, &rp_mirror_files, link)
		if (!strcmp(f->name, name))
			break;
	pthread_mutex_unlock(&lock);
	return f;
}

struct file *rp_file_find_id(uint64_t id)
{
	struct file *f;

	pthread_mutex_lock(&lock);
	LIST_FOREACH (f, &rp_mirror_files, link)
		if (f->id == id)
			break;
	pthread_mutex_unlock(&lock);
	return f;
}

void rp_file_drop(struct file *f)
{
	if (!f)
		return;
	pthread_mutex_lock(&lock);
	LIST_REMOVE(f, link);
	pthread_mutex_unlock(&lock);
	if (f->fd >= 0)
		close(f->fd);
	free(f);
}

/* Make a file; id 0: give it a new id. `busy` is for an upload. */
struct file *rp_file_make(const char *name, uint64_t id, bool busy)
{
	struct file *f = calloc(1, sizeof(*f));

	if (!f) {
		rp_mirror_fail(-ENOMEM, name);
		return NULL;
	}
	snprintf(f->name, sizeof(f->name), "%s", name);
	f->open = NOWHERE;
	f->fd = -1;
	f->busy = busy;
	pthread_mutex_lock(&lock);
	f->id = id ? id : last_id + 1;
	last_id = f->id > last_id ? f->id : last_id;
	LIST_INSERT_HEAD(&rp_mirror_files, f, link);
	pthread_mutex_unlock(&lock);
	return f;
}

/* Encode the header and the name of an entry; returns their length. */
static size_t put_header(unsigned char *e, enum change change,
			 const struct file *f, uint64_t offset, bool more)
{
	const size_t n = strlen(f->name);

	memset(e, 0, CHANGE_HEADER);
	e[AT_CHANGE] = (unsigned char)change;
	e[AT_MORE] = more;
	e[AT_NAMELEN] = (unsigned char)n;
	rp_put64(e + AT_ID, f->id);
	rp_put64(e + AT_OFFSET, offset);
	memcpy(e + CHANGE_HEADER, f->name, n);
	return CHANGE_HEADER + n;
}

int rp_file_append(const struct file *f, enum change change, uint64_t offset,
		   int fd, size_t len, bool more, uint64_t *lsn)
{
	unsigned char *e = malloc(CHANGE_HEADER + NAME_SIZE + len);
	ssize_t got = 0;
	size_t n;
	int ret;

	if (!e)
		return rp_mirror_fail(-ENOMEM, f->name);
	n = put_header(e, change, f, offset, more);
	for (size_t at = 0; at < len; at += (size_t)got) {
		got = pread(fd, e + n + at, len - at, (off_t)(offset + at));
		if (got <= 0) {
			ret = rp_mirror_fail(got ? -errno : -EIO, f->name);
			free(e);
			return ret;
		}
	}
	ret = rpmem_log_append(rp_mirror_log, e, n + len, lsn);
	free(e);
	return ret;
}

/* Append a rename of the file; to "": a removal. */
static int append_name(const struct file *f, const char *to)
{
	unsigned char e[CHANGE_HEADER + 2 * NAME_SIZE];
	size_t n =
		put_header(e, *to ? CHANGE_RENAME : CHANGE_UNLINK, f, 0, false);

	memcpy(e + n, to, strlen(to));
	return rpmem_log_append(rp_mirror_log, e, n + strlen(to), NULL);
}

/* Most file bytes of an entry. It limits the unused end of the ring, too. */
size_t rp_mirror_chunk(const struct rpmem_log_info *info)
{
	const uint64_t most = info->max_entry - CHANGE_HEADER - NAME_SIZE;
	uint64_t chunk = info->capacity / 32;

	chunk = chunk < most ? chunk : most;
	return chunk < LONGEST_CHUNK ? chunk : LONGEST_CHUNK;
}

/* Append the bytes of fd after those that the log has already. */
static int append_bytes(struct file *f, int fd, uint64_t size)
{
	struct rpmem_log_info info = {.size = sizeof(info)};
	uint64_t lsn;
	size_t most, len;
	int ret;

	ret = rpmem_log_query(rp_mirror_log, &info);
	if (ret)
		return ret;
	most = rp_mirror_chunk(&info);
	if (f->busy && most > UPLOAD_CHUNK)
		most = UPLOAD_CHUNK;
	do {
		len = size - f->size < most ? size - f->size : most;
		ret = rp_file_append(f, CHANGE_BYTES, f->size, fd, len,
				     f->size + len < size, &lsn);
		if (ret)
			return ret;
		pthread_mutex_lock(&lock);
		if (!f->first)
			f->first = lsn;
		f->size += len;
		pthread_mutex_unlock(&lock);
	} while (f->size < size && !f->removed);
	return f->removed ? -ECANCELED : 0;
}

/* Drop the log entries before the first one of any existing file. */
int rp_mirror_trim(void)
{
	uint64_t head = NOWHERE;
	struct file *f;

	pthread_mutex_lock(&lock);
	LIST_FOREACH (f, &rp_mirror_files, link)
		if (f->first < head)
			head = f->first;
	pthread_mutex_unlock(&lock);
	if (!head || head == NOWHERE)
		return 0;
	return rpmem_log_trim(rp_mirror_log, head);
}

const char *rp_mirror_find(const char *path)
{
	const char *slash = strrchr(path, '/');
	const size_t n = slash ? (size_t)(slash - path) : 0;

	if (!slash || strlen(slash + 1) >= NAME_SIZE)
		return NULL;
	if ((!strncmp(path, rp_mirror_directory, n) &&
	     !rp_mirror_directory[n]) ||
	    (!strncmp(path, directory_path, n) && !directory_path[n]))
		return slash + 1;
	return NULL;
}

static bool is_temporary(const char *name)
{
	return !strncmp(name, TEMP_PREFIX, strlen(TEMP_PREFIX));
}

/* Whether a path is in a directory of the same name elsewhere. */
static bool is_elsewhere(const char *path)
{
	const char *slash = strrchr(path, '/');
	const ptrdiff_t n = (ptrdiff_t)strlen(rp_mirror_directory);

	return slash && slash - path > n && slash[-n - 1] == '/' &&
	       !strncmp(slash - n, rp_mirror_directory, (size_t)n);
}

/* The last files that Redis has removed: a late sync of one is libc's. */
static struct {
	dev_t dev;
	ino_t ino;
} removed[8];
static unsigned int nremoved;

static bool was_removed(const struct stat *s)
{
	bool any = false;

	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < 8; i++)
		any |= removed[i].ino == s->st_ino &&
		       removed[i].dev == s->st_dev;
	pthread_mutex_unlock(&lock);
	return any;
}

/*
 * The file of a descriptor. NULL: not a file of the directory (-ENOENT), a file
 * of Redis behind CONFIG SET dir, which the log does not get, a removed one, or
 * one of unknown path (-EIO), -ENOMEM.
 */
static struct file *file_of(int fd, const struct stat *s, int *ret)
{
	char link[64], path[4096];
	const char *name;
	struct file *f;
	ssize_t n;

	pthread_mutex_lock(&lock);
	LIST_FOREACH (f, &rp_mirror_files, link)
		if (f->ino == s->st_ino && f->dev == s->st_dev)
			break;
	pthread_mutex_unlock(&lock);
	if (f)
		return f;
	*ret = -EIO;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return NULL;
	path[n] = 0;
	name = rp_mirror_find(path);
	if (!name) {
		*ret = is_elsewhere(path) ? -EIO : -ENOENT;
		return NULL;
	}
	/* Nothing would end a removed file in the log. */
	if (!s->st_nlink) {
		*ret = is_temporary(name) || was_removed(s) ? -ENOENT : -EIO;
		return NULL;
	}
	f = rp_file_find(name);
	if (f && f->ino) { /* f is another file with this name */
		rp_file_drop(f);
		f = NULL;
	}
	if (!f)
		f = rp_file_make(name, 0, false);
	*ret = -ENOMEM;
	if (!f)
		return NULL;
	f->ino = s->st_ino;
	f->dev = s->st_dev;
	f->fd = open(link, O_RDONLY | O_CLOEXEC);
	return f;
}

int rp_mirror_sync(int fd)
{
	struct file *f;
	struct stat s;
	int ret;

	if (!rp_mirror_log || fstat(fd, &s) || !S_ISREG(s.st_mode))
		return -ENOENT;
	f = file_of(fd, &s, &ret);
	if (!f)
		return ret;
	if (f->first && f->size == (uint64_t)s.st_size)
		return 0;
	ret = append_bytes(f, f->fd, (uint64_t)s.st_size);
	if (!ret)
		writes++;
	return ret;
}

/* Whether the log has room for a whole file; a part would only fill the log. */
static bool is_room(uint64_t size)
{
	struct rpmem_log_info info = {.size = sizeof(info)};

	return !rpmem_log_query(rp_mirror_log, &info) &&
	       info.capacity - (info.tail - info.head) >
		       size + size / 64 + 2 * rp_mirror_chunk(&info);
}

static int append_file(struct file *f, int fd)
{
	struct stat s;

	if (fstat(fd, &s))
		return rp_mirror_fail(-errno, f->name);
	/* A removal before f was made has not found it. */
	if (!s.st_nlink)
		return -ECANCELED;
	if (!is_room((uint64_t)s.st_size))
		return rp_mirror_fail(-ENOSPC, "the pool is too small");
	return append_bytes(f, fd, (uint64_t)s.st_size);
}

int rp_mirror_upload(const char *path, const char *name)
{
	struct file *f;
	int fd, ret;

	rp_file_drop(rp_file_find(name));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return rp_mirror_fail(-errno, path);
	f = rp_file_make(name, 0, true);
	ret = f ? append_file(f, fd) : -ENOMEM;
	close(fd);
	if (!f)
		return ret;
	pthread_mutex_lock(&lock);
	f->busy = false;
	ret = f->removed ? -ECANCELED : ret;
	pthread_mutex_unlock(&lock);
	if (ret)
		rp_file_drop(f);
	return ret;
}

bool rp_mirror_is_manifest(const char *name)
{
	const size_t n = strlen(name), suffix = strlen(MANIFEST_SUFFIX);

	return n > suffix && !strcmp(name + n - suffix, MANIFEST_SUFFIX);
}

/* Append the manifests of a directory, or its other files, to the log. */
static int upload_files(DIR *d, bool manifests)
{
	char path[sizeof(directory_path) + NAME_SIZE];
	struct dirent *e;
	int ret = 0;

	rewinddir(d);
	while (!ret && (e = readdir(d))) {
		if (e->d_name[0] == '.' || rp_file_find(e->d_name) ||
		    rp_mirror_is_manifest(e->d_name) != manifests)
			continue;
		snprintf(path, sizeof(path), "%s/%s", directory_path,
			 e->d_name);
		ret = rp_mirror_upload(path, e->d_name);
	}
	return ret;
}

/*
 * Append each file of the directory that the log lacks. The manifest is the
 * last one: without it the log is incomplete, and the directory is kept.
 */
static int upload_new(void)
{
	DIR *d = opendir(directory_path);
	int ret;

	if (!d)
		return errno == ENOENT ? 0
				       : rp_mirror_fail(-errno, directory_path);
	ret = upload_files(d, false);
	if (!ret)
		ret = upload_files(d, true);
	closedir(d);
	return ret;
}

/*
 * The file in the log that a path names. Redis names only the file of a rewrite
 * without a folder; it is in the log under that name.
 */
static struct file *find_path(const char *path)
{
	const char *name = is_temporary(path) ? path : rp_mirror_find(path);

	return name ? rp_file_find(name) : NULL;
}

int rp_mirror_rename(const char *from, const char *to)
{
	const char *new_name = rp_mirror_find(to);
	struct file *f = find_path(from);
	int ret = 0;

	if (!f) {
		ret = rp_mirror_upload(from, TEMP_PREFIX "upload");
		f = rp_file_find(TEMP_PREFIX "upload");
	}
	if (!ret)
		ret = upload_new();
	if (!ret && rp_libc_rename(from, to))
		ret = -errno;
	/* rename(2) of a file to its own name changes nothing. */
	if (!ret && !strcmp(f->name, new_name))
		return 0;
	if (!ret)
		ret = append_name(f, new_name);
	if (ret)
		return ret;
	rp_file_drop(rp_file_find(new_name));
	pthread_mutex_lock(&lock);
	snprintf(f->name, sizeof(f->name), "%s", new_name);
	pthread_mutex_unlock(&lock);
	return rp_mirror_trim();
}

int rp_mirror_unlink(const char *path)
{
	struct file *f = find_path(path), copy;
	bool busy;
	int ret;

	if (!f)
		return 0;
	pthread_mutex_lock(&lock);
	f->removed = true;
	if (f->ino) {
		removed[nremoved % 8].dev = f->dev;
		removed[nremoved++ % 8].ino = f->ino;
	}
	busy = f->busy;
	pthread_mutex_unlock(&lock);
	if (busy)
		return 0;
	copy = *f;
	rp_file_drop(f);
	/* Trim first: the log may be full. */
	ret = rp_mirror_trim();
	return ret ? ret : append_name(&copy, "");
}

void rp_mirror_truncate(const char *name, off_t length)
{
	struct file *f = rp_file_find(name);

	if (f && f->size > (uint64_t)length)
		f->size = (uint64_t)length;
}

int rp_mirror_query(struct mirror_space *space)
{
	struct rpmem_log_info info = {.size = sizeof(info)};
	int ret = rpmem_log_query(rp_mirror_log, &info);
	struct file *f;

	if (ret)
		return ret;
	*space = (struct mirror_space){.capacity = info.capacity,
				       .used = info.tail - info.head,
				       .writes = writes,
				       .reached = info.reached};
	pthread_mutex_lock(&lock);
	LIST_FOREACH (f, &rp_mirror_files, link) {
		space->files += f->size;
		if (is_temporary(f->name))
			space->uploaded += f->size;
		else if (strstr(f->name, ".base."))
			space->base = f->size;
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

int rp_mirror_open(const char *name, const char *where,
		   const struct rpmem_log_attr *attr)
{
	struct rpmem_log_info info = {.size = sizeof(info)};
	struct file *f, *next;
	char cwd[3072];
	struct stat s;
	int ret;

	if (!getcwd(cwd, sizeof(cwd)) || strlen(name) >= NAME_SIZE - 8)
		return rp_mirror_fail(-ENAMETOOLONG, name);
	snprintf(rp_mirror_directory, sizeof(rp_mirror_directory), "%s", name);
	snprintf(directory_path, sizeof(directory_path), "%s/%s", cwd, name);
	/* file_of() would not know the paths of files behind a link. */
	if (!lstat(name, &s) && S_ISLNK(s.st_mode))
		return rp_mirror_fail(-ENOTDIR,
				      "appenddirname is a symbolic link; move "
				      "the folder here, or set 'dir'");
	ret = rpmem_log_open(&rp_mirror_log, where, attr);
	if (!ret)
		ret = rpmem_log_query(rp_mirror_log, &info);
	if (ret)
		return ret;
	if (info.head != info.tail) {
		ret = rp_mirror_restore(&info);
		if (ret)
			return ret < 0 ? ret : rp_mirror_trim();
		/*
		 * Redis serves nobody before its manifest is durable. So a log
		 * without one has nothing that was acknowledged.
		 */
		for (f = LIST_FIRST(&rp_mirror_files); f; f = next) {
			next = LIST_NEXT(f, link);
			rp_file_drop(f);
		}
		ret = rpmem_log_trim(rp_mirror_log, info.tail);
	}
	return ret ? ret : upload_new();
}
