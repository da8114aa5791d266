// SPDX-License-Identifier: BSD-2-Clause
/* One copy between a file and a pool, up or down: window and commits. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/copy.h"
#include "util/file.h"
#include "util/setup_client.h"

/* Bytes of a group member before the data: rpmem_pool(3). */
#define GROUP_AREA 65536u
#define MEMBERS	   8 /* members of a group at most */

volatile sig_atomic_t copy_interrupted;

/* --- the length of the file, which the daemon stores with a pool --- */

/* A pool, or one member of a group, at its daemon. */
struct daemon_pool {
	struct rp_setup_target target;
	char pool[RP_SETUP_NAME + 1];
	bool set; /* the length is read, or stored */
};

/* Split the name of a pool or group, which rpmem_pool_open() has accepted. */
static unsigned int find_pools(const struct copy *c, struct daemon_pool *v,
			       unsigned int *k)
{
	const char *s = c->cfg->where, *option = strstr(s, ";k=");
	const unsigned int n = c->info.members ? c->info.members : 1;

	/* k is one digit. */
	*k = option && n > 1 ? (unsigned int)(option[3] - '0') : n / 2 + 1;
	for (unsigned int i = 0; i < n; i++) {
		struct daemon_pool *p = &v[i];
		size_t len = n > 1 ? strcspn(s, ",;") : strlen(s);
		char *one = strndup(s, len);
		int used = one ? rp_setup_parse_target(one, &p->target, NULL)
			       : -ENOMEM;

		if (used >= 0)
			snprintf(p->pool, sizeof(p->pool), "%s",
				 one + used + 1);
		if (c->cfg->secret.len)
			p->target.secret = &c->cfg->secret;
		free(one);
		s += len + 1;
	}
	return n;
}

/*
 * Get the stored length of the file that begins at the pool's first byte; 0:
 * unknown. At least k of n members of a group store the newest length, so any
 * n - k + 1 members that have one length have the newest.
 */
static int get_length(struct copy *c, uint64_t *length)
{
	const uint64_t until = rp_now_ms() + c->cfg->timeout * 1000;
	const uint64_t area = c->info.members ? GROUP_AREA : 0;
	struct daemon_pool v[MEMBERS] = {0};
	struct rp_setup_export ex;
	uint64_t stored = 0;
	unsigned int k, n = find_pools(c, v, &k), got = 0;

	*length = 0;
	do {
		for (unsigned int i = 0; i < n; i++) {
			if (v[i].set ||
			    rp_setup_fetch_export(&v[i].target, v[i].pool, &ex,
						  c->err))
				continue;
			if (got++ && ex.length != stored)
				return 0;
			v[i].set = true;
			stored = ex.length;
		}
	} while (got <= n - k && !copy_interrupted && rp_now_ms() < until &&
		 !poll(NULL, 0, 100));
	if (got <= n - k)
		return RP_EXIT_BROKEN;
	if (stored > area)
		*length = stored - area;
	return 0;
}

/* Store a length (0: unknown) in the pool, or in k members of a group. */
static int set_length(struct copy *c, uint64_t length)
{
	const uint64_t until = rp_now_ms() + c->cfg->timeout * 1000;
	struct daemon_pool v[MEMBERS] = {0};
	unsigned int k, n, count = 0;

	if (c->cfg->offset)
		return 0;
	n = find_pools(c, v, &k);
	if (length && n > 1)
		length += GROUP_AREA;
	do {
		for (unsigned int i = 0; i < n; i++)
			if (!v[i].set &&
			    !rp_setup_set_length(&v[i].target, v[i].pool,
						 length, c->err)) {
				v[i].set = true;
				count++;
			}
	} while (count < k && !copy_interrupted && rp_now_ms() < until &&
		 !poll(NULL, 0, 100));
	return count < k ? RP_EXIT_BROKEN : 0;
}

/* --- operations --- */

static int log_acked(struct copy *c)
{
	if (c->ack_fd < 0 || dprintf(c->ack_fd, "%" PRIu64 "\n", c->acked) > 0)
		return 0;
	return rp_err(c->err, RP_EXIT_FILE, "--ack-log '%s': %s",
		      c->cfg->ack_log, strerror(errno));
}

static int op_failed(struct copy *c, const struct copy_op *op)
{
	const int ret = op->op.result;
	const uint64_t at = op->upto - op->op.len;

	/* A commit that completes later does not cover these bytes. */
	if (op->op.type != RPMEM_POOL_COMMIT && at < c->limit)
		c->limit = at;
	if (c->status) /* report the first error only */
		return RP_EXIT_BROKEN;
	c->status = ret;
	if (ret == -ETIMEDOUT)
		rp_err(c->err, 0, "gave up after %" PRIu64 " s: %s",
		       c->cfg->timeout, op->op.error);
	else
		rp_err(c->err, 0, "%s", op->op.error);
	return ret == -EOPNOTSUPP ? RP_EXIT_CLASS
	       : ret == -ENOMEM	  ? RP_EXIT_FAILED
				  : RP_EXIT_BROKEN;
}

/* Handle completions; wait up to ms milliseconds for the first one. */
static int poll_ops(struct copy *c, int ms)
{
	struct rpmem_pool_op *done[32];
	int n = rpmem_pool_poll(c->pool, done, 32, ms), code = 0;
	uint64_t upto;

	for (int i = 0; i < n; i++) {
		struct copy_op *op = done[i]->context;

		op->busy = false;
		c->outstanding--;
		if (op->op.result && !code)
			code = op_failed(c, op);
		upto = op->upto < c->limit ? op->upto : c->limit;
		if (op->op.result || op->op.type != RPMEM_POOL_COMMIT ||
		    upto <= c->acked)
			continue;
		c->acked = upto;
		if (log_acked(c) && !code)
			code = RP_EXIT_FILE;
	}
	if (n < 0)
		return rp_err(c->err, RP_EXIT_BROKEN, "%s", rpmem_pool_error());
	if (copy_interrupted && !code)
		code = rp_err(c->err, RP_EXIT_BROKEN, "interrupted");
	return code;
}

static int submit(struct copy *c, struct copy_op *op)
{
	op->op.context = op;
	if (rpmem_pool_submit(c->pool, &op->op))
		return rp_err(c->err, RP_EXIT_BROKEN, "%s", rpmem_pool_error());
	op->busy = true;
	c->outstanding++;
	return 0;
}

/* Fill a chunk from the file. A chunk of zeros is sent as RPMEM_POOL_ZERO. */
static int load_chunk(struct copy *c, struct copy_op *op, uint64_t at)
{
	const char *p = op->op.buf;
	int ret = rp_pread_full(c->fd, op->op.buf, op->op.len, (off_t)at);

	if (ret)
		return rp_err(c->err, RP_EXIT_FILE,
			      "'%s' at byte %" PRIu64 ": %s", c->cfg->file, at,
			      ret == -ENODATA
				      ? "it became shorter during the copy"
				      : strerror(-ret));
	op->op.type = RPMEM_POOL_WRITE;
	if (!*p && !memcmp(p, p + 1, op->op.len - 1)) {
		op->op.type = RPMEM_POOL_ZERO;
		c->zeros += op->op.len;
	}
	return 0;
}

/* Commit what was submitted since `from`, if that is a batch or the last. */
static int commit(struct copy *c, uint64_t *from, uint64_t upto)
{
	struct copy_op *op = c->commits;
	int ret;

	while (op < c->commits + COPY_COMMITS && op->busy)
		op++;
	if (op == c->commits + COPY_COMMITS || *from == upto ||
	    (upto - *from < COPY_BATCH * c->cfg->chunk && upto < c->size))
		return 0;
	op->op.type = RPMEM_POOL_COMMIT;
	op->upto = upto;
	ret = submit(c, op);
	if (!ret)
		*from = upto;
	return ret;
}

typedef int (*copy_take)(struct copy *c, const struct copy_op *op);

/*
 * Copy the bytes from offset `from` on, pipelined. With take(), read the pool
 * and pass its chunks to take() in order; without it, write the file to the
 * pool and commit.
 */
static int transfer(struct copy *c, const char *verb, uint64_t from,
		    copy_take take)
{
	const struct copy_cfg *cfg = c->cfg;
	uint64_t submitted = from, committing = from, taken = from;
	uint64_t head = 0, tail = 0; /* chunk numbers */
	uint64_t left;
	int ret = 0;

	progress_begin(&c->progress, verb, c->size, cfg->quiet);
	while (!ret && (take ? taken : c->acked) < c->size) {
		while (!ret && submitted < c->size &&
		       head - tail < cfg->window) {
			struct copy_op *op = &c->ops[head % cfg->window];

			left = c->size - submitted;
			op->op.type = RPMEM_POOL_READ;
			op->op.buf = c->buf + head++ % cfg->window * cfg->chunk;
			op->op.len = left < cfg->chunk ? left : cfg->chunk;
			op->op.offset = cfg->offset + submitted;
			op->upto = submitted + op->op.len;
			if (!take)
				ret = load_chunk(c, op, submitted);
			if (!ret)
				ret = submit(c, op);
			submitted = op->upto;
		}
		if (!ret && !take)
			ret = commit(c, &committing, submitted);
		if (!ret)
			ret = poll_ops(c, 100);
		while (!ret && tail < head &&
		       !c->ops[tail % cfg->window].busy) {
			taken = c->ops[tail % cfg->window].upto;
			if (take)
				ret = take(c, &c->ops[tail % cfg->window]);
			tail++;
		}
		progress_at(&c->progress, take ? taken : c->acked);
	}
	/* After an error, wait for commits: their bytes may be durable. */
	while (c->status && c->outstanding && !copy_interrupted)
		poll_ops(c, 100);
	progress_end(&c->progress);
	return ret;
}

/* --- both directions --- */

/* Report a file error of a copy from the pool. */
static int file_error(struct copy *c, int ret)
{
	char size[RP_SIZE_LEN];

	if (ret == -ENOSPC || ret == -EDQUOT)
		return rp_err(c->err, RP_EXIT_SPACE,
			      "'%s' needs %s, which its file system does not "
			      "have; make room",
			      c->cfg->file, rp_size_format(c->size, size));
	return rp_err(c->err, RP_EXIT_FILE, "'%s': %s", c->cfg->file,
		      strerror(-ret));
}

static int hash_chunk(struct copy *c, const struct copy_op *op)
{
	if (c->cfg->verify)
		sha256_update(&c->sha, op->op.len, op->op.buf);
	return 0;
}

static int store_chunk(struct copy *c, const struct copy_op *op)
{
	const uint64_t at = op->upto - op->op.len;
	int ret = rp_pwrite_full(c->fd, op->op.buf, op->op.len, (off_t)at);

	return ret ? file_error(c, ret) : hash_chunk(c, op);
}

/* --verify: compare the SHA-256 of the pool's bytes with the file's. */
static int compare(struct copy *c)
{
	uint8_t sum[SHA256_DIGEST_SIZE];
	uint64_t at = 0, len;
	int ret;

	sha256_digest(&c->sha, sizeof(c->sum), c->sum);
	for (; at < c->size; at += len) {
		len = c->size - at < c->cfg->chunk ? c->size - at
						   : c->cfg->chunk;
		ret = rp_pread_full(c->fd, c->buf, len, (off_t)at);
		if (ret)
			return file_error(c, ret);
		sha256_update(&c->sha, len, (const uint8_t *)c->buf);
	}
	sha256_digest(&c->sha, sizeof(sum), sum);
	if (!memcmp(sum, c->sum, sizeof(sum)))
		return 0;
	return rp_err(c->err, RP_EXIT_DIFFER, "pool '%s' and '%s' differ: %s",
		      c->cfg->where, c->cfg->file,
		      c->cfg->up ? "somebody else writes to this part of the "
				   "pool, or the file changed; copy again"
				 : "the file has other bytes than were written "
				   "to it; check the disk");
}

static int copy_up(struct copy *c)
{
	int ret = set_length(c, 0);

	if (!ret)
		ret = transfer(c, "copying", c->cfg->skip, NULL);
	if (!ret && c->cfg->verify)
		ret = transfer(c, "verifying", 0, hash_chunk);
	if (!ret && c->cfg->verify)
		ret = compare(c);
	return ret ? ret : set_length(c, c->size);
}

static int copy_down(struct copy *c)
{
	mode_t mask = umask(0);
	struct rp_tmpfile t;
	struct stat st;
	int ret;

	umask(mask);
	if (stat(c->cfg->file, &st) == 0 && !S_ISREG(st.st_mode))
		return rp_err(c->err, RP_EXIT_FILE,
			      "'%s' is not a regular file; name a file",
			      c->cfg->file);
	if (rp_tmpfile_open(c->cfg->file, &t, c->err))
		return RP_EXIT_FILE;
	/* Give the file the mode that open() would give it. */
	fchmod(t.fd, 0666 & ~mask);
	c->fd = t.fd;
	/* Allocate all blocks first: a full disk fails before any transfer. */
	ret = -posix_fallocate(c->fd, 0, (off_t)c->size);
	ret = ret ? file_error(c, ret) : transfer(c, "copying", 0, store_chunk);
	if (!ret && c->cfg->verify)
		ret = compare(c);
	c->fd = -1;
	if (ret)
		rp_tmpfile_discard(&t);
	else if (rp_tmpfile_publish(&t, true, c->err))
		ret = RP_EXIT_FILE;
	return ret;
}

/* --- opening --- */

static int open_files(struct copy *c)
{
	const struct copy_cfg *cfg = c->cfg;
	struct stat st;

	if (cfg->ack_log) {
		c->ack_fd =
			open(cfg->ack_log,
			     O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
		if (c->ack_fd < 0)
			return rp_err(c->err, RP_EXIT_FILE,
				      "--ack-log '%s': %s", cfg->ack_log,
				      strerror(errno));
	}
	if (!cfg->up)
		return 0;
	c->fd = open(cfg->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (c->fd < 0 || fstat(c->fd, &st))
		return rp_err(c->err, RP_EXIT_FILE, "'%s' cannot be read: %s",
			      cfg->file, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return rp_err(c->err, RP_EXIT_FILE,
			      "'%s' is not a regular file", cfg->file);
	c->size = (uint64_t)st.st_size;
	if (cfg->skip > c->size)
		return rp_err(c->err, RP_EXIT_USAGE,
			      "--skip: '%s' has only %" PRIu64 " bytes",
			      cfg->file, c->size);
	return 0;
}

static int open_pool(struct copy *c)
{
	const struct copy_cfg *cfg = c->cfg;
	const struct rpmem_pool_attr attr = {
		.size = sizeof(attr),
		.secret_file = cfg->secret_file,
		.required = cfg->up ? cfg->class : RPMEM_POOL_NONE,
		.timeout = (unsigned int)cfg->timeout,
		.wait = cfg->wait ? (int)cfg->wait : -1,
	};
	const int ret = rpmem_pool_open(&c->pool, cfg->where, &attr);

	if (!ret) {
		c->info.size = sizeof(c->info);
		rpmem_pool_query(c->pool, &c->info);
		return 0;
	}
	rp_err(c->err, 0, "%s%s", rpmem_pool_error(),
	       ret == -EOPNOTSUPP ? " (--class)" : "");
	return rp_exit_pool(ret);
}

/* Check the right and the range before any byte is copied. */
static int check(struct copy *c)
{
	const struct copy_cfg *cfg = c->cfg;
	const uint64_t len = c->info.length;
	uint64_t end;
	int ret;

	if (cfg->up && c->info.read_only)
		return rp_err(c->err, RP_EXIT_SECRET,
			      "the secret only allows to read pool '%s'; use "
			      "another one, or change the configuration of "
			      "fi_rpmemd",
			      cfg->where);
	/* Without --length, copy to the end of the stored file. */
	if (!cfg->up && !cfg->length) {
		ret = get_length(c, &end);
		if (ret)
			return ret;
		end = end > cfg->offset ? end : len;
		c->size = end > cfg->offset ? end - cfg->offset : 0;
	} else if (!cfg->up) {
		c->size = cfg->length;
	}
	if (cfg->offset <= len && c->size <= len - cfg->offset &&
	    (c->size || cfg->up))
		return 0;
	return rp_err(c->err, RP_EXIT_SPACE,
		      "pool '%s' has %" PRIu64 " bytes: %" PRIu64
		      " bytes from offset %" PRIu64 " go beyond its end%s",
		      cfg->where, len, c->size, cfg->offset,
		      cfg->up ? "; give a smaller offset, or use a larger pool"
			      : "");
}

int copy_run(struct copy *c)
{
	int ret = open_files(c);

	sha256_init(&c->sha);
	c->limit = UINT64_MAX;
	c->acked = c->cfg->skip;
	if (!ret)
		ret = open_pool(c);
	if (!ret)
		ret = check(c);
	if (ret)
		return ret;
	c->buf = malloc(c->cfg->window * c->cfg->chunk);
	c->ops = calloc(c->cfg->window, sizeof(*c->ops));
	if (!c->buf || !c->ops)
		return rp_err(c->err, RP_EXIT_FAILED,
			      "out of memory; a smaller --chunk or --window "
			      "needs less");
	ret = c->cfg->up ? copy_up(c) : copy_down(c);
	/* Query the class that the last commits reached. */
	if (!ret)
		rpmem_pool_query(c->pool, &c->info);
	return ret;
}

void copy_close(struct copy *c)
{
	rpmem_pool_close(c->pool);
	free(c->buf);
	free(c->ops);
}
