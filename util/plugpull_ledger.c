// SPDX-License-Identifier: BSD-2-Clause
/* Records of fi_rpmem_plugpull: their bytes, and the ledger of their events. */
#include "config.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <nettle/sha2.h>

#include "util/plugpull.h"

#define LINE 96 /* most bytes of an event's line */

/*
 * Block 0 of a record identifies it: mark, seed, sequence number, offset. Block
 * i after it is the SHA-256 of these and of i, so each block proves to which
 * record it belongs.
 */
static void fill_block(uint64_t seed, const struct pull_record *r, uint64_t i,
		       unsigned char block[SHA256_DIGEST_SIZE])
{
	uint64_t words[5] = {0, htole64(seed), htole64(r->seq),
			     htole64(r->offset), htole64(i)};
	struct sha256_ctx ctx;

	memcpy(words, "plugpull", sizeof(words[0]));
	if (!i) {
		memcpy(block, words, SHA256_DIGEST_SIZE);
		return;
	}
	sha256_init(&ctx);
	sha256_update(&ctx, sizeof(words), (const uint8_t *)words);
	sha256_digest(&ctx, SHA256_DIGEST_SIZE, block);
}

void pull_fill(uint64_t seed, const struct pull_record *r, uint64_t at,
	       unsigned char *buf, size_t len)
{
	unsigned char block[SHA256_DIGEST_SIZE];
	size_t skip, n;

	if (r->zeros) {
		memset(buf, 0, len);
		return;
	}
	for (; len; at += n, buf += n, len -= n) {
		skip = at % sizeof(block);
		n = sizeof(block) - skip < len ? sizeof(block) - skip : len;
		fill_block(seed, r, at / sizeof(block), block);
		memcpy(buf, block + skip, n);
	}
}

static int append(int fd, const char *text, size_t len, bool durable, char *err)
{
	/* O_APPEND: the lines of one call are contiguous. */
	ssize_t n = write(fd, text, len);

	if (n < 0 || (size_t)n != len || (durable && fdatasync(fd)))
		return rp_err(err, n < 0 || (size_t)n == len ? -errno : -ENOSPC,
			      "the ledger cannot be written: %s; without it "
			      "nothing can be judged",
			      n < 0 || (size_t)n == len ? strerror(errno)
							: "disk full");
	return 0;
}

int pull_ledger_start(int fd, const struct pull_cfg *cfg, uint64_t incarnation,
		      char *err)
{
	char line[2 * LINE];
	int n = snprintf(line, sizeof(line),
			 "plugpull 1 seed %" PRIu64 " area %" PRIu64
			 " class %d control %d incarnation %" PRIu64 "\n",
			 cfg->seed, cfg->area, (int)cfg->class, cfg->control,
			 incarnation);

	if (ftruncate(fd, 0))
		return rp_err(err, -errno, "the ledger cannot be emptied: %s",
			      strerror(errno));
	return append(fd, line, (size_t)n, true, err);
}

int pull_ledger_begin(int fd, const struct pull_record *v, unsigned int n,
		      char *err)
{
	char text[PULL_BATCH * LINE];
	size_t len = 0;

	for (unsigned int i = 0; i < n; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len,
					"%c %u %" PRIu64 " %" PRIu64 " %u\n",
					v[i].zeros ? 'Z' : 'W', v[i].thread,
					v[i].seq, v[i].offset, v[i].len);
	return append(fd, text, len, true, err);
}

int pull_ledger_ack(int fd, const struct pull_record *v, unsigned int n,
		    char *err)
{
	char text[PULL_BATCH * LINE];
	size_t len = 0;

	for (unsigned int i = 0; i < n; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len,
					"A %" PRIu64 "\n", v[i].seq);
	return append(fd, text, len, false, err);
}

static int load_start(const char *line, struct pull_cfg *cfg,
		      uint64_t *incarnation)
{
	int class, control;

	if (sscanf(line,
		   "plugpull 1 seed %" SCNu64 " area %" SCNu64
		   " class %d control %d incarnation %" SCNu64,
		   &cfg->seed, &cfg->area, &class, &control,
		   incarnation) != 5 ||
	    class < RPMEM_POOL_POWER || class > RPMEM_POOL_NONE)
		return -EINVAL;
	if (!pull_area_ok(cfg->area))
		return -ERANGE;
	cfg->class = (enum rpmem_pool_class) class;
	cfg->control = control;
	return 0;
}

/* Find a record by its number, from the end: it is usually a recent one. */
static struct pull_record *find_acked(struct pull_record *v, size_t n,
				      uint64_t seq)
{
	while (n--)
		if (v[n].seq == seq)
			return &v[n];
	return NULL;
}

static int load_event(const char *line, uint64_t number, uint64_t area,
		      struct pull_record **v, size_t *n)
{
	struct pull_record r = {.begin = number, .end = UINT64_MAX}, *more;
	char kind;

	if (sscanf(line, "A %" SCNu64 "\n", &r.seq) == 1) {
		more = find_acked(*v, *n, r.seq);
		if (!more)
			return -EINVAL;
		more->acked = true;
		more->end = number;
		return 0;
	}
	if (sscanf(line, "%c %u %" SCNu64 " %" SCNu64 " %u\n", &kind, &r.thread,
		   &r.seq, &r.offset, &r.len) != 5 ||
	    (kind != 'W' && kind != 'Z') || r.thread >= PULL_THREADS ||
	    r.len > PULL_LONGEST || r.len > area || r.offset > area - r.len)
		return -EINVAL;
	r.zeros = kind == 'Z';
	/* The array is full at each power of two: double its size. */
	if (!(*n & (*n - 1))) {
		more = realloc(*v, (*n ? 2 * *n : 1) * sizeof(**v));
		if (!more)
			return -ENOMEM;
		*v = more;
	}
	(*v)[(*n)++] = r;
	return 0;
}

int pull_ledger_load(const char *path, struct pull_cfg *cfg,
		     uint64_t *incarnation, struct pull_record **v, size_t *n,
		     char *err)
{
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t size = 0;
	ssize_t len;
	int ret = 0;

	*v = NULL;
	*n = 0;
	if (!f)
		return rp_err(err, -errno, "'%s' cannot be read: %s", path,
			      strerror(errno));
	if (getline(&line, &size, f) >= 0)
		ret = load_start(line, cfg, incarnation);
	else
		ret = -EINVAL;
	if (ret == -ERANGE)
		rp_err(err, ret,
		       "line 1 of ledger '%s' is damaged: an area is a "
		       "multiple of 8K from 64K to 1G, and not %" PRIu64
		       " bytes",
		       path, cfg->area);
	else if (ret)
		rp_err(err, ret, "'%s' is no ledger of fi_rpmem_plugpull",
		       path);
	for (uint64_t i = 1; !ret && (len = getline(&line, &size, f)) > 0;
	     i++) {
		/* Drop an incomplete line: the run ended before it sent. */
		if (line[len - 1] != '\n')
			break;
		ret = load_event(line, i, cfg->area, v, n);
		if (ret == -EINVAL)
			rp_err(err, ret,
			       "line %" PRIu64 " of ledger '%s' is damaged: "
			       "what is behind it cannot be judged",
			       i + 1, path);
		else if (ret)
			rp_err(err, ret, "out of memory");
	}
	free(line);
	fclose(f);
	return ret;
}
