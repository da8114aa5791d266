// SPDX-License-Identifier: BSD-2-Clause
/* Copies a pool to a file, which appears complete or not at all. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/copy.h"
#include "util/file.h"

static int file_error(struct copy *c, int ret)
{
	char size[RP_SIZE_LEN];

	if (ret == -ENOSPC || ret == -EDQUOT) {
		rp_err(c->err, 0,
		       "'%s' needs %s, which its file system does not have; "
		       "make room",
		       c->cfg->file, rp_size_format(c->size, size));
		return RP_EXIT_SPACE;
	}
	rp_err(c->err, 0, "'%s': %s", c->cfg->file, strerror(-ret));
	return RP_EXIT_FILE;
}

static int store_chunk(struct copy *c, const struct copy_op *op)
{
	int ret = rp_pwrite_full(c->fd, op->data, op->len, (off_t)op->at);

	if (ret)
		return file_error(c, ret);
	sha256_update(&c->sha, op->len, (const uint8_t *)op->data);
	return 0;
}

/* --verify: the SHA-256 of the file equals that of the received bytes. */
static int verify_file(struct copy *c)
{
	uint64_t at = 0, len;
	int ret;

	sha256_init(&c->sha);
	for (; at < c->size; at += len) {
		len = c->size - at < c->chunk ? c->size - at : c->chunk;
		ret = rp_pread_full(c->fd, c->buf, len, (off_t)at);
		if (ret)
			return file_error(c, ret);
		sha256_update(&c->sha, len, (const uint8_t *)c->buf);
	}
	sha256_digest(&c->sha, sizeof(c->sha_file), c->sha_file);
	if (!memcmp(c->sha_file, c->sha_pool, sizeof(c->sha_file)))
		return 0;
	rp_err(c->err, 0,
	       "'%s' has other bytes than were written to it; check the "
	       "disk",
	       c->cfg->file);
	return RP_EXIT_DIFFER;
}

static int fill(struct copy *c)
{
	int ret;

	/* Allocate all blocks first: a full disk fails before any transfer. */
	ret = -posix_fallocate(c->fd, 0, (off_t)c->size);
	if (ret)
		return file_error(c, ret);
	sha256_init(&c->sha);
	progress_begin(&c->progress, "copying", c->size, c->cfg->quiet);
	ret = copy_read_all(c, store_chunk);
	progress_end(&c->progress);
	if (ret)
		return ret;
	sha256_digest(&c->sha, sizeof(c->sha_pool), c->sha_pool);
	return c->cfg->verify ? verify_file(c) : 0;
}

int copy_down(struct copy *c)
{
	mode_t mask = umask(0);
	struct rp_tmpfile t;
	struct stat st;
	int ret;

	umask(mask);
	if (stat(c->cfg->file, &st) == 0 && !S_ISREG(st.st_mode)) {
		rp_err(c->err, 0, "'%s' is not a regular file; name a file",
		       c->cfg->file);
		return RP_EXIT_FILE;
	}
	if (rp_tmpfile_open(c->cfg->file, &t, c->err))
		return RP_EXIT_FILE;
	/* The file gets the mode that open() would give it. */
	fchmod(t.fd, 0666 & ~mask);
	c->fd = t.fd;
	ret = fill(c);
	c->fd = -1;
	if (ret)
		rp_tmpfile_discard(&t);
	else if (rp_tmpfile_publish(&t, true, c->err))
		ret = RP_EXIT_FILE;
	return ret;
}
