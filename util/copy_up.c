// SPDX-License-Identifier: BSD-2-Clause
/* Copies a file to a pool: write, commit, count durable bytes. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "util/copy.h"
#include "util/file.h"

/*
 * Chunks pass through the ring in order: read from the file, compared with the
 * pool (--resume), written, covered by a commit. The counters are bytes from
 * the start of the copy and only grow:
 *
 *    acked <= asked <= posted <= loaded <= size, freed <= posted
 */
struct up {
	struct copy *c;
	uint64_t loaded;    /* bytes read from the file */
	uint64_t posted;    /* write posted, or equal in the pool */
	uint64_t freed;	    /* slots that can be reused */
	uint64_t requested; /* covered by a posted commit */
	bool compare;
	unsigned int first, ncommits; /* ring c->commits, oldest first */
};

static struct copy_op *chunk_at(const struct up *u, uint64_t at)
{
	const struct copy *c = u->c;

	return &c->ops[at / c->chunk % c->cfg->window];
}

static uint64_t chunk_len(const struct up *u, uint64_t at)
{
	const struct copy *c = u->c;

	return c->size - at < c->chunk ? c->size - at : c->chunk;
}

/* Post the write of a chunk; holes and other zeros do not travel. */
static int write_chunk(struct copy *c, struct copy_op *op)
{
	op->state = COPY_WRITING;
	op->zero = op->len <= FI_RPMEM_ZERO_MAX && !*op->data &&
		   !memcmp(op->data, op->data + 1, op->len - 1);
	if (op->zero)
		c->zeros += op->len;
	return copy_post(c, op);
}

static int load_chunk(struct up *u)
{
	struct copy *c = u->c;
	struct copy_op *op = chunk_at(u, u->loaded);
	int ret;

	op->at = u->loaded;
	op->len = chunk_len(u, u->loaded);
	ret = rp_pread_full(c->fd, op->data, op->len, (off_t)op->at);
	if (ret) {
		rp_err(c->err, 0, "'%s' at byte %" PRIu64 ": %s", c->cfg->file,
		       op->at,
		       ret == -ENODATA ? "it became shorter during the copy"
				       : strerror(-ret));
		return RP_EXIT_FILE;
	}
	if (c->cfg->verify)
		sha256_update(&c->sha, op->len, (const uint8_t *)op->data);
	op->state = COPY_READING;
	ret = u->compare ? copy_post(c, op) : write_chunk(c, op);
	if (!ret)
		u->loaded += op->len;
	return ret;
}

/* Advance one chunk after its completion: compare, then write if it differs. */
static int advance(struct up *u, struct copy_op *op)
{
	struct copy *c = u->c;

	if (op->busy)
		return 0;
	if (op->state == COPY_WRITING)
		op->state = COPY_DONE;
	if (op->state != COPY_READING)
		return 0;
	if (!memcmp(op->data, op->pool_data, op->len)) {
		/*
		 * Equal bytes are not written, but committed: their commit may
		 * be missing.
		 */
		op->state = COPY_DONE;
		c->skipped += op->len;
		return 0;
	}
	return write_chunk(c, op);
}

static int advance_all(struct up *u)
{
	uint64_t at;
	int ret;

	for (at = u->freed; at < u->loaded; at += chunk_len(u, at)) {
		ret = advance(u, chunk_at(u, at));
		if (ret)
			return ret;
	}
	while (u->posted < u->loaded &&
	       chunk_at(u, u->posted)->state != COPY_READING)
		u->posted += chunk_len(u, u->posted);
	while (u->freed < u->posted &&
	       chunk_at(u, u->freed)->state == COPY_DONE)
		u->freed += chunk_len(u, u->freed);
	return 0;
}

/*
 * Post commits for posted writes: a commit covers writes that were posted
 * before it, so it does not wait for them. Its size is limited so that a slow
 * disk still acknowledges regularly.
 */
static int post_commits(struct up *u)
{
	struct copy *c = u->c;
	struct copy_op *op;
	uint64_t max = COPY_BATCH_MAX * c->chunk;
	int ret;

	while (u->ncommits < COPY_COMMITS && u->requested < u->posted &&
	       (u->posted - u->requested >= COPY_BATCH_MIN * c->chunk ||
		u->posted == c->size)) {
		op = &c->commits[(u->first + u->ncommits) % COPY_COMMITS];
		op->state = COPY_COMMITTING;
		op->at = u->requested;
		op->len = u->posted - u->requested;
		if (op->len > max)
			op->len = max;
		ret = copy_post(c, op);
		if (ret)
			return ret;
		u->requested += op->len;
		u->ncommits++;
	}
	return 0;
}

static int log_durable(struct copy *c)
{
	if (c->ack_fd < 0 || dprintf(c->ack_fd, "%" PRIu64 "\n", c->acked) > 0)
		return 0;
	rp_err(c->err, 0, "--ack-log '%s': %s", c->cfg->ack_log,
	       strerror(errno));
	return RP_EXIT_FILE;
}

/* Count durable bytes: those whose commit and all earlier commits completed. */
static int count_durable(struct up *u)
{
	struct copy *c = u->c;
	int ret;

	while (u->ncommits && !c->commits[u->first].busy &&
	       !c->commits[u->first].failed) {
		c->acked += c->commits[u->first].len;
		u->first = (u->first + 1) % COPY_COMMITS;
		u->ncommits--;
		ret = log_durable(c);
		if (ret)
			return ret;
	}
	progress_at(&c->progress, c->acked);
	return 0;
}

static int write_all(struct up *u)
{
	struct copy *c = u->c;
	int ret = 0;

	while (c->acked < c->size) {
		while (!ret && u->loaded < c->size &&
		       u->loaded - u->freed < c->cfg->window * c->chunk)
			ret = load_chunk(u);
		if (!ret)
			ret = advance_all(u);
		if (!ret)
			ret = post_commits(u);
		/* Nothing more can be posted: wait for a completion. */
		if (!ret)
			ret = copy_poll(c, 100);
		/* Count durable bytes on failure too. */
		if (ret)
			copy_finish(c);
		if (count_durable(u) && !ret)
			ret = RP_EXIT_FILE;
		if (ret)
			return ret;
	}
	return 0;
}

int copy_up(struct copy *c)
{
	/*
	 * Only the agent flushes a range whoever wrote it. Other methods cover
	 * writes of this endpoint only, so --resume then writes every byte.
	 */
	struct up u = {
		.c = c,
		.compare = c->cfg->resume &&
			   c->method >= FI_RPMEM_METHOD_AGENT_SFENCE,
	};
	int ret;

	sha256_init(&c->sha);
	progress_begin(&c->progress, "copying", c->size, c->cfg->quiet);
	ret = write_all(&u);
	progress_end(&c->progress);
	if (c->cfg->verify)
		sha256_digest(&c->sha, sizeof(c->sha_file), c->sha_file);
	return ret;
}

static int hash_chunk(struct copy *c, const struct copy_op *op)
{
	sha256_update(&c->sha, op->len, (const uint8_t *)op->data);
	return 0;
}

int copy_verify(struct copy *c)
{
	int ret;

	sha256_init(&c->sha);
	progress_begin(&c->progress, "verifying", c->size, c->cfg->quiet);
	ret = copy_read_all(c, hash_chunk);
	progress_end(&c->progress);
	if (ret)
		return ret;
	sha256_digest(&c->sha, sizeof(c->sha_pool), c->sha_pool);
	if (!memcmp(c->sha_file, c->sha_pool, sizeof(c->sha_file)))
		return 0;
	rp_err(c->err, 0,
	       "pool '%s' differs from '%s': somebody else writes to this "
	       "part of the pool, or the file changed; copy again",
	       c->cfg->pool, c->cfg->file);
	return RP_EXIT_DIFFER;
}
