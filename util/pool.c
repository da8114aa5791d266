// SPDX-License-Identifier: BSD-2-Clause
/* Pool file: memory that fi_rpmemd exports, after a checksummed header. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <nettle/sha2.h>

#include "core/fault.h"
#include "util/bytes.h"
#include "util/file.h"
#include "util/pool.h"
#include "util/pool_lock.h"

#define FLAG_CLEAN 1u
#define SUM_AT	   (RP_POOL_HDR - SHA256_DIGEST_SIZE)

struct header {
	uint32_t flags;
	uint8_t uuid[16];
	uint64_t file_size;
	uint64_t data;
	uint64_t generation;
	uint64_t length;
	uint64_t owner[1 + RP_POOL_PARTS];
	uint64_t is_open;
	struct rp_shutdowns shutdowns;
	uint32_t parts;
	uint64_t part_len;
};

_Static_assert(120 + RP_POOL_PARTS * 8 <= SUM_AT, "the owners have room");

static void header_checksum(const uint8_t *buf, uint8_t *sum)
{
	struct sha256_ctx ctx;

	sha256_init(&ctx);
	sha256_update(&ctx, SUM_AT, buf);
	sha256_digest(&ctx, SHA256_DIGEST_SIZE, sum);
}

static void header_encode(const struct header *h, uint8_t *buf)
{
	memset(buf, 0, RP_POOL_HDR);
	memcpy(buf, RP_POOL_MAGIC, 8);
	rp_put32(buf + 8, RP_POOL_VERSION);
	rp_put32(buf + 12, h->flags);
	memcpy(buf + 16, h->uuid, 16);
	rp_put64(buf + 32, h->file_size);
	rp_put64(buf + 40, h->data);
	rp_put64(buf + 48, h->generation);
	rp_put64(buf + 56, h->length);
	rp_put64(buf + 64, h->owner[0]);
	rp_put64(buf + 72, h->is_open);
	rp_put64(buf + 80, h->shutdowns.count);
	rp_put64(buf + 88, h->shutdowns.dimms);
	rp_put32(buf + 96, h->parts);
	rp_put64(buf + 104, h->part_len);
	for (size_t i = 0; i < RP_POOL_PARTS; i++)
		rp_put64(buf + 112 + 8 * i, h->owner[1 + i]);
	rp_put64(buf + 368, h->shutdowns.failures);
	header_checksum(buf, buf + SUM_AT);
}

/* Returns 0, -EINVAL (no header), -EPROTONOSUPPORT, -EBADMSG (damaged). */
static int header_decode(const uint8_t *buf, struct header *h,
			 uint32_t *version)
{
	uint8_t sum[SHA256_DIGEST_SIZE];

	if (memcmp(buf, RP_POOL_MAGIC, 8))
		return -EINVAL;
	*version = rp_get32(buf + 8);
	if (*version != RP_POOL_VERSION)
		return -EPROTONOSUPPORT;
	header_checksum(buf, sum);
	if (memcmp(sum, buf + SUM_AT, sizeof(sum)))
		return -EBADMSG;
	h->flags = rp_get32(buf + 12);
	memcpy(h->uuid, buf + 16, 16);
	h->file_size = rp_get64(buf + 32);
	h->data = rp_get64(buf + 40);
	h->generation = rp_get64(buf + 48);
	h->length = rp_get64(buf + 56);
	h->owner[0] = rp_get64(buf + 64);
	h->is_open = rp_get64(buf + 72);
	h->shutdowns.count = rp_get64(buf + 80);
	h->shutdowns.dimms = rp_get64(buf + 88);
	h->parts = rp_get32(buf + 96);
	h->part_len = rp_get64(buf + 104);
	for (size_t i = 0; i < RP_POOL_PARTS; i++)
		h->owner[1 + i] = rp_get64(buf + 112 + 8 * i);
	h->shutdowns.failures = rp_get64(buf + 368);
	/* Impossible fields in spite of a valid checksum: it is not ours. */
	if (h->data != RP_POOL_DATA || h->file_size <= h->data ||
	    h->file_size > RP_POOL_MAX || h->length > h->file_size - h->data ||
	    h->parts > RP_POOL_PARTS ||
	    (h->parts && (h->part_len % RP_POOL_UNIT || !h->part_len ||
			  h->part_len > (h->file_size - h->data) / h->parts)))
		return -EBADMSG;
	return 0;
}

static int header_write(int fd, const struct header *h)
{
	uint8_t buf[RP_POOL_HDR];

	header_encode(h, buf);
	return rp_pwrite_full(fd, buf, sizeof(buf),
			      RP_POOL_COPY(h->generation));
}

/*
 * Read the newer of the intact copies. If one is damaged, the pool counts as
 * not clean, because the damaged copy may have been the newer one.
 */
static int header_read(int fd, const char *path, uint64_t st_size,
		       struct header *h, char *err)
{
	uint8_t buf[RP_POOL_HDR];
	struct header copy;
	uint32_t version = 0;
	int ret, good = 0, worst = -EINVAL;

	for (uint64_t i = 0; i < 2; i++) {
		ret = rp_pread_full(fd, buf, sizeof(buf), RP_POOL_COPY(i));
		if (ret == -ENODATA)
			continue;
		if (ret)
			return rp_err(err, ret, "pool '%s': reading: %s", path,
				      strerror(-ret));
		ret = header_decode(buf, &copy, &version);
		if (ret == 0 && (!good || copy.generation > h->generation))
			*h = copy;
		if (ret == 0)
			good++;
		else if (worst == -EINVAL)
			worst = ret;
	}
	if (good == 1)
		h->flags &= ~FLAG_CLEAN;
	if (good)
		return 0;
	if (worst == -EPROTONOSUPPORT)
		return rp_err(err, worst,
			      "pool '%s' has format version %" PRIu32
			      ", this program knows %d; use the release that "
			      "wrote it",
			      path, version, RP_POOL_VERSION);
	if (worst == -EBADMSG)
		return rp_err(err, worst,
			      "pool '%s' is damaged: the checksums of both "
			      "its headers are wrong; restore it from a copy",
			      path);
	if (st_size < RP_POOL_DATA)
		return rp_err(err, worst,
			      "'%s' is no pool: %" PRIu64
			      " bytes, without a header; name another file, "
			      "or remove this one and use --create SIZE",
			      path, st_size);
	return rp_err(err, worst,
		      "'%s' is no pool: it does not begin with a header; name "
		      "another file",
		      path);
}

/* Append a remedy to err: how to get the right to write. Returns ret. */
static int add_remedy(char *err, int ret)
{
	size_t len = err ? strlen(err) : 0;

	if (err && ret == -EROFS)
		snprintf(err + len, RP_ERR_LEN - len,
			 "; mount it read-write; a systemd service writes only "
			 "to /var/lib/ofi_rpmem: 'systemctl edit fi_rpmemd' "
			 "adds [Service] ReadWritePaths=FOLDER");
	else if (err && ret == -EACCES)
		snprintf(err + len, RP_ERR_LEN - len,
			 "; user %ld must be able to write to the file and to "
			 "search its folders; a systemd service sees nothing "
			 "of /home",
			 (long)geteuid());
	return ret;
}

int rp_pool_create(const char *path, uint64_t size, char *err)
{
	struct header h = {.flags = FLAG_CLEAN, .data = RP_POOL_DATA};
	struct rp_tmpfile t;
	char text[RP_SIZE_LEN];
	int ret;

	if (size == 0 || size > RP_POOL_MAX - RP_POOL_DATA - RP_POOL_UNIT)
		return rp_err(err, -EINVAL,
			      "pool '%s': a size of %" PRIu64
			      " is not possible; give at least 1 byte",
			      path, size);
	h.file_size = rp_pool_round(size) + RP_POOL_DATA;
	/* Fail before the large allocation if the name exists. */
	if (access(path, F_OK) == 0)
		return rp_err(err, -EEXIST,
			      "'%s' exists; leave --create out to use it",
			      path);
	if (getrandom(h.uuid, sizeof(h.uuid), 0) != (ssize_t)sizeof(h.uuid))
		return rp_err(err, -EIO, "no random bytes for a uuid");
	ret = rp_tmpfile_open(path, &t, err);
	if (ret)
		return add_remedy(err, ret);
	/*
	 * Allocate all blocks: on a full file system, a store into a hole
	 * raises SIGBUS.
	 */
	ret = -posix_fallocate(t.fd, 0, (off_t)h.file_size);
	if (ret) {
		rp_size_format(h.file_size, text);
		if (ret == -ENOSPC || ret == -EDQUOT)
			rp_err(err, ret,
			       "pool '%s' needs %s, which its file system does "
			       "not have; make room, or give a smaller size",
			       path, text);
		else
			rp_err(err, ret, "pool '%s': allocating %s: %s", path,
			       text, strerror(-ret));
		goto discard;
	}
	/* Write both copies, so that the pool survives one damaged header. */
	ret = header_write(t.fd, &h);
	if (!ret) {
		h.generation = 1;
		ret = header_write(t.fd, &h);
	}
	if (ret) {
		rp_err(err, ret, "pool '%s': writing its header: %s", path,
		       strerror(-ret));
		goto discard;
	}
	ret = rp_tmpfile_publish(&t, false, err);
	if (RP_FAULT("slow-create"))
		rp_fault_sleep();
	return ret;

discard:
	rp_tmpfile_discard(&t);
	return ret;
}

/* Fill the holes of a copied pool: a store into a hole can raise SIGBUS. */
static int fill_holes(int fd, const char *path, const struct stat *st,
		      char *err)
{
	char text[RP_SIZE_LEN];

	if ((uint64_t)st->st_blocks * 512 >= (uint64_t)st->st_size)
		return 0;
	if (fallocate(fd, 0, 0, st->st_size) == 0 || errno == EOPNOTSUPP)
		return 0;
	return rp_err(err, -errno,
		      "pool '%s' has holes, and filling them up to %s failed: "
		      "%s; make room on its file system",
		      path, rp_size_format((uint64_t)st->st_size, text),
		      strerror(errno));
}

/*
 * Write back and drop the file's page cache, so that reads return what the disk
 * holds. After a failed write-back Linux keeps the lost bytes as clean pages,
 * which a client that compares bytes would take for durable.
 */
static int drop_cache(int fd, const char *path, char *err)
{
	if (fdatasync(fd))
		return rp_err(err, -errno,
			      "pool '%s': writing back what its last daemon "
			      "left: %s; check the disk and the kernel's log",
			      path, strerror(errno));
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return 0;
}

static int pool_check_size(const char *path, uint64_t st_size,
			   const struct header *h, char *err)
{
	if (st_size < h->file_size)
		return rp_err(err, -ENODATA,
			      "pool '%s' is truncated: it has %" PRIu64
			      " bytes, its header says %" PRIu64
			      "; restore it from a copy (its end is lost)",
			      path, st_size, h->file_size);
	if (st_size > h->file_size && h->flags & FLAG_CLEAN)
		return rp_err(err, -EBADMSG,
			      "pool '%s' has grown: it has %" PRIu64
			      " bytes, its header says %" PRIu64
			      "; if nothing else is wrong with it: truncate "
			      "-s %" PRIu64 " '%s'",
			      path, st_size, h->file_size, h->file_size, path);
	return 0;
}

/*
 * Open the file a second time. Linux reports a failed write-back once per file
 * description. p->map belongs to p->fd: a sync of p->fd would consume the
 * report that a later commit's msync() of p->map must get.
 */
static int open_again(int pool_fd)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", pool_fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

static int sync_file(int pool_fd)
{
	const int fd = open_again(pool_fd);
	const int ret = fd < 0 || fsync(fd) ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return ret;
}

/*
 * Allocate bytes of the file. Check the room first: a failed allocation would
 * fill the disk. *room: bytes that the file system has; bytes with blocks,
 * `present`, need none.
 */
static int allocate(int fd, uint64_t at, uint64_t len, uint64_t present,
		    uint64_t *room)
{
	struct statvfs fs;
	int ret;

	*room = UINT64_MAX;
	if (fstatvfs(fd, &fs) == 0) {
		*room = (uint64_t)fs.f_bavail * fs.f_frsize;
		if (present < len && len - present >= *room)
			return -ENOSPC;
	}
	ret = -posix_fallocate(fd, (off_t)at, (off_t)len);
	return ret ? ret : sync_file(fd);
}

/*
 * The file is longer than its header says, and was not closed: a daemon died
 * while it grew the file. Finish that, do not undo it: clients have used the
 * new bytes if the header with the new length was written, and damaged since.
 * If there is no room for them, they were never allocated, and nobody used
 * them.
 */
static int finish_growth(int fd, const char *path, const struct stat *st,
			 struct header *h, char *err)
{
	const uint64_t more =
		rp_pool_round((uint64_t)st->st_size - h->file_size);
	const uint64_t blocks = (uint64_t)st->st_blocks * 512;
	char text[RP_SIZE_LEN];
	uint64_t room;
	int ret = 0;

	if (more)
		ret = allocate(fd, h->file_size, more,
			       blocks > h->file_size ? blocks - h->file_size
						     : 0,
			       &room);
	if (ret)
		return rp_err(err, ret,
			      "pool '%s' was growing by %s when its last "
			      "daemon died, and cannot: %s; make room on its "
			      "file system, or undo it: truncate -s %" PRIu64
			      " '%s'",
			      path, rp_size_format(more, text), strerror(-ret),
			      h->file_size, path);
	h->file_size += more;
	return 0;
}

static int pool_map(struct rp_pool *p, char *err)
{
	const int prot = PROT_READ | PROT_WRITE;

	/* MAP_SYNC: a page fault on DAX syncs the file's metadata. */
	p->map = mmap(NULL, p->map_len, prot, MAP_SHARED_VALIDATE | MAP_SYNC,
		      p->fd, 0);
	p->map_sync = p->map != MAP_FAILED;
	if (!p->map_sync)
		p->map = mmap(NULL, p->map_len, prot, MAP_SHARED, p->fd, 0);
	if (p->map == MAP_FAILED)
		return rp_err(err, -errno, "pool '%s' cannot be mapped: %s",
			      p->path, strerror(errno));
	return 0;
}

/*
 * Write back a range of the file. The file is opened for writing, because
 * msync() skips mappings of files that are open for reading only.
 */
static int pool_sync(int pool_fd, off_t at, size_t len)
{
	const int fd = open_again(pool_fd);
	void *map;
	int ret;

	if (fd < 0)
		return -errno;
	map = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, at);
	ret = map == MAP_FAILED || msync(map, len, MS_SYNC) ? -errno : 0;
	if (map != MAP_FAILED)
		munmap(map, len);
	close(fd);
	return ret;
}

/*
 * Write a new header with these flags over the older copy, and sync the headers
 * alone: fi_rpmemd serves all pools in the thread that calls this function, and
 * fdatasync() would write back all dirty pages of this pool.
 */
static int pool_mark(struct rp_pool *p, uint32_t flags, char *err)
{
	struct header h = {
		.flags = flags,
		.file_size = p->map_len,
		.data = RP_POOL_DATA,
		.generation = p->generation + 1,
		.length = p->length,
		.is_open = p->is_open,
		.shutdowns = p->shutdowns,
		.parts = p->parts,
		.part_len = p->part_len,
	};
	int ret;

	memcpy(h.uuid, p->uuid, sizeof(h.uuid));
	memcpy(h.owner, p->owner, sizeof(h.owner));
	ret = header_write(p->fd, &h);
	if (!ret)
		ret = pool_sync(p->fd, 0, RP_POOL_DATA);
	if (ret)
		return rp_err(err, ret, "pool '%s': writing its header: %s",
			      p->path, strerror(-ret));
	p->generation = h.generation;
	return 0;
}

/* If bytes were lost, change the uuid: clients then find a new pool. */
static int accept_loss(struct header *h, const struct rp_shutdowns *now,
		       bool *lost, char *err)
{
	*lost = rp_shutdowns_lost(&h->shutdowns, now, h->flags & FLAG_CLEAN);
	if (*lost &&
	    getrandom(h->uuid, sizeof(h->uuid), 0) != (ssize_t)sizeof(h->uuid))
		return rp_err(err, -EIO, "no random bytes for a uuid");
	return 0;
}

static void close_files(struct rp_pool *p)
{
	if (p->close_fd >= 0)
		close(p->close_fd);
	close(p->fd); /* close() releases the lock */
	memset(p, 0, sizeof(*p));
	p->fd = p->close_fd = -1;
}

/* lost: NULL: fail if bytes were lost; else accept that, and set *lost. */
static int pool_open(const char *path, struct rp_pool *p, bool *lost, char *err)
{
	struct header h = {0};
	struct stat st;
	int ret;

	memset(p, 0, sizeof(*p));
	p->close_fd = -1;
	p->fd = open(path, O_RDWR | O_CLOEXEC);
	if (p->fd < 0 && errno == ENOENT)
		return rp_err(err, -ENOENT,
			      "pool '%s' does not exist; create it with "
			      "--create SIZE",
			      path);
	if (p->fd < 0)
		return add_remedy(err, rp_err(err, -errno,
					      "pool '%s' cannot be opened: %s",
					      path, strerror(errno)));
	if (fstat(p->fd, &st) || !S_ISREG(st.st_mode)) {
		ret = rp_err(err, -EINVAL,
			     "'%s' is no pool: not a regular file", path);
		goto close_fd;
	}
	ret = rp_pool_lock(p->fd, path, err);
	if (ret)
		goto close_fd;
	/* The size is stable only after the lock is taken. */
	if (fstat(p->fd, &st)) {
		ret = rp_err(err, -errno, "pool '%s': %s", path,
			     strerror(errno));
		goto close_fd;
	}
	ret = drop_cache(p->fd, path, err);
	if (!ret)
		ret = header_read(p->fd, path, (uint64_t)st.st_size, &h, err);
	if (!ret)
		ret = pool_check_size(path, (uint64_t)st.st_size, &h, err);
	if (!ret)
		ret = finish_growth(p->fd, path, &st, &h, err);
	if (!ret)
		ret = fill_holes(p->fd, path, &st, err);
	if (!ret)
		ret = rp_shutdowns_find(NULL, path, &p->shutdowns, err);
	if (!ret)
		ret = lost ? accept_loss(&h, &p->shutdowns, lost, err)
			   : rp_shutdowns_check(path, &h.shutdowns,
						&p->shutdowns,
						h.flags & FLAG_CLEAN, err);
	if (!ret)
		ret = drop_cache(p->fd, path, err);
	if (ret)
		goto close_fd;
	p->close_fd = open_again(p->fd);
	if (p->close_fd < 0) {
		ret = rp_err(err, -errno, "pool '%s' cannot be opened: %s",
			     path, strerror(errno));
		goto close_fd;
	}
	p->path = strdup(path);
	if (!p->path) {
		ret = rp_err(err, -ENOMEM, "out of memory");
		goto close_fd;
	}
	memcpy(p->uuid, h.uuid, sizeof(p->uuid));
	p->map_len = h.file_size;
	p->size = h.file_size - h.data;
	p->generation = h.generation;
	p->length = h.length;
	memcpy(p->owner, h.owner, sizeof(p->owner));
	p->is_open = h.is_open;
	p->parts = h.parts;
	p->part_len = h.part_len;
	p->was_clean = h.flags & FLAG_CLEAN;
	ret = pool_map(p, err);
	if (ret)
		goto free_path;
	p->data = (char *)p->map + h.data;
	ret = pool_mark(p, 0, err);
	if (ret)
		goto unmap;
	return 0;

unmap:
	munmap(p->map, p->map_len);
free_path:
	free(p->path);
close_fd:
	close_files(p);
	return ret;
}

int rp_pool_open(const char *path, struct rp_pool *p, char *err)
{
	return pool_open(path, p, NULL, err);
}

int rp_pool_accept_loss(const char *path, char *err)
{
	struct rp_pool p;
	bool lost = false;
	int ret = pool_open(path, &p, &lost, err);

	if (ret)
		return ret;
	if (!lost && p.was_clean)
		return rp_pool_close_clean(&p, err);
	rp_pool_abandon(&p);
	return lost;
}

/* Store the fields of `to` in the header durably; on failure *p stays. */
static int pool_set(struct rp_pool *p, struct rp_pool *to, char *err)
{
	const int ret = pool_mark(to, 0, err);

	if (!ret)
		*p = *to;
	return ret;
}

int rp_pool_set_length(struct rp_pool *p, uint64_t length, char *err)
{
	struct rp_pool to = *p;

	to.length = length;
	return pool_set(p, &to, err);
}

int rp_pool_divide(struct rp_pool *p, unsigned int parts, char *err)
{
	struct rp_pool to = *p;

	if (!parts || parts > RP_POOL_PARTS || p->size / parts < RP_POOL_UNIT)
		return rp_err(err, -EINVAL,
			      "pool '%s' cannot be divided into %u parts; give "
			      "1 to %u, of at least %u bytes each",
			      p->path, parts, RP_POOL_PARTS, RP_POOL_UNIT);
	to.parts = parts > 1 ? parts : 0;
	to.part_len = p->size / parts / RP_POOL_UNIT * RP_POOL_UNIT;
	memset(to.owner + 1, 0, sizeof(to.owner) - sizeof(*to.owner));
	to.is_open &= 1;
	return pool_set(p, &to, err);
}

int rp_pool_set_owner(struct rp_pool *p, unsigned int part, uint64_t owner,
		      char *err)
{
	struct rp_pool to = *p;

	if (!part) {
		memset(to.owner, 0, sizeof(to.owner));
		to.is_open = 0;
	}
	to.owner[0] = to.owner[part] = owner;
	to.is_open = (to.is_open & ~1ull) | 1ull << part;
	return pool_set(p, &to, err);
}

int rp_pool_release(struct rp_pool *p, uint64_t parts, char *err)
{
	struct rp_pool to = *p;

	to.is_open &= ~parts;
	return pool_set(p, &to, err);
}

int rp_pool_settle(struct rp_pool *p, unsigned int part, char *err)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t len, at = rp_pool_part(p, part, &len), from, to;
	int ret;

	if (RP_FAULT("slow-settle"))
		rp_fault_sleep();
	from = part ? (RP_POOL_DATA + at) / page * page : 0;
	to = RP_POOL_DATA + at + len;
	ret = part ? pool_sync(p->fd, (off_t)from, to - from)
		   : -(msync(p->map, p->map_len, MS_SYNC) ? errno : 0);
	if (ret)
		return rp_err(err, ret,
			      "pool '%s': writing back what was not committed: "
			      "%s; check the disk and the kernel's log",
			      p->path, strerror(-ret));
	/* Drop pages: one whose write-back failed is clean, but not on disk. */
	madvise((char *)p->map + from, to - from, MADV_DONTNEED);
	posix_fadvise(p->fd, (off_t)from, (off_t)(to - from),
		      POSIX_FADV_DONTNEED);
	return 0;
}

int rp_pool_check_file(const struct rp_pool *p)
{
	struct stat named, st;

	if (fstat(p->fd, &st))
		return -errno;
	if ((uint64_t)st.st_size < p->map_len)
		return -ENODATA;
	/*
	 * Compare the path, because some file systems do not count links. A
	 * renamed file has another path, but still a link.
	 */
	if (!stat(p->path, &named) && named.st_dev == st.st_dev &&
	    named.st_ino == st.st_ino)
		return 0;
	return st.st_nlink ? 0 : -ENOENT;
}

bool rp_pool_is_longer(const struct rp_pool *p)
{
	struct stat st;

	return !fstat(p->fd, &st) && (uint64_t)st.st_size > p->map_len;
}

int rp_pool_allocate(struct rp_pool *p, char *err)
{
	char more[RP_SIZE_LEN], has[RP_SIZE_LEN];
	uint64_t want, room;
	struct stat st;
	int ret;

	if (fstat(p->fd, &st) || (uint64_t)st.st_size <= p->map_len)
		return 0;
	want = rp_pool_round((uint64_t)st.st_size - p->map_len);
	if (RP_FAULT("slow-grow"))
		rp_fault_sleep();
	ret = allocate(p->fd, p->map_len, want, 0, &room);
	if (!ret) {
		p->allocated = p->map_len + want;
		return 1;
	}
	if (ret == -ENOSPC)
		rp_err(err, ret,
		       "pool '%s' cannot grow by %s: its file system has %s; "
		       "make room, then make the file longer again",
		       p->path, rp_size_format(want, more),
		       rp_size_format(room, has));
	else
		rp_err(err, ret, "pool '%s' cannot grow by %s: %s", p->path,
		       rp_size_format(want, more), strerror(-ret));
	if (ftruncate(p->fd, (off_t)p->map_len))
		rp_err(err, ret,
		       "pool '%s' cannot grow, and its file cannot be made as "
		       "short as it was: %s",
		       p->path, strerror(errno));
	return ret;
}

int rp_pool_extend(struct rp_pool *p, char *err)
{
	struct rp_pool longer = *p;
	int ret;

	longer.map_len = p->allocated;
	ret = pool_map(&longer, err);
	if (ret)
		return ret;
	longer.data = (char *)longer.map + RP_POOL_DATA;
	longer.size = longer.map_len - RP_POOL_DATA;
	ret = pool_mark(&longer, 0, err);
	if (ret) {
		munmap(longer.map, longer.map_len);
		return ret;
	}
	munmap(p->map, p->map_len);
	*p = longer;
	return 0;
}

void rp_pool_abandon(struct rp_pool *p)
{
	if (p->fd < 0)
		return;
	munmap(p->map, p->map_len);
	free(p->path);
	close_files(p);
}

int rp_pool_close_clean(struct rp_pool *p, char *err)
{
	int ret = 0;

	if (RP_FAULT("slow-close"))
		rp_fault_sleep();
	/* A clean pool has all its bytes on disk, committed or not. */
	if (fdatasync(p->close_fd))
		ret = rp_err(err, -errno,
			     "pool '%s': writing back: %s; what was "
			     "acknowledged before is durable, the rest may be "
			     "lost",
			     p->path, strerror(errno));
	if (!ret)
		ret = pool_mark(p, FLAG_CLEAN, err);
	rp_pool_abandon(p);
	return ret;
}
