// SPDX-License-Identifier: BSD-2-Clause
/* One commit of very many ranges, and regions of a TiB. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fault/scale.h"

#define RANGE  64u
#define STRIDE 128u
#define GIB    ((uint64_t)1 << 30)
#define TIB    ((uint64_t)1 << 40)

struct world {
	struct card card;
	struct scale_pool pool;
	atomic_bool ready, stop;
	double took; /* seconds of the registration */
	size_t n;
};

static void run_target(void *shared, unsigned int number)
{
	const struct pair_opts o = {.sleeps = true};
	struct world *w = shared;
	struct side s;

	side_open(&s, &o);
	w->took = scale_now();
	scale_export(&s, &w->pool, &w->card);
	w->took = scale_now() - w->took;
	atomic_store(&w->ready, true);
	scale_serve(&s, &w->stop);
}

static void open_side(struct world *w, struct side *s)
{
	const struct pair_opts o = {.sleeps = true};

	while (!atomic_load(&w->ready))
		scale_sleep_ms(10);
	side_open(s, &o);
	side_insert(s, &w->card);
}

/* Commit and wait. Returns 0, or the error entry's prov_errno. */
static int commit_and_wait(struct side *s, const struct fi_rma_iov *v, size_t n,
			   struct fi_cq_err_entry *err)
{
	struct fi_cq_tagged_entry e;

	POST(s, commit_post(s->ep, v, n, s->peer, FI_RPMEM_DURABLE,
			    FI_RPMEM_CLASS_DEFAULT, NULL, (void *)v));
	return side_wait(s, &e, err) ? 0 : err->prov_errno;
}

static void write_and_wait(struct side *s, const struct world *w, uint64_t at,
			   const void *bytes, size_t len)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;

	POST(s, fi_write(s->ep, bytes, len, NULL, s->peer,
			 w->card.pool_addr + at, w->card.pool_key, NULL));
	if (!side_wait(s, &e, &err))
		MUST(-err.err);
}

/* --- ranges --- */

static uint8_t byte_of(size_t i)
{
	return (uint8_t)(i % 251 + 1);
}

static void run_many_ranges(void *shared, unsigned int number)
{
	struct world *w = shared;
	const size_t piece = 8192; /* ranges filled by one write */
	struct fi_rma_iov *v = calloc(w->n, sizeof(*v));
	char *out = malloc(piece * STRIDE);
	struct fi_cq_err_entry err = {0};
	char text[320] = "", index[32];
	double start;
	struct side s;
	int st;

	if (!v || !out)
		MUST(-ENOMEM);
	open_side(w, &s);
	for (size_t i = 0; i < w->n; i += piece) {
		size_t k, some = w->n - i < piece ? w->n - i : piece;

		for (k = 0; k < some; k++)
			memset(out + k * STRIDE, byte_of(i + k), STRIDE);
		write_and_wait(&s, w, i * STRIDE, out, some * STRIDE);
	}
	for (size_t i = 0; i < w->n; i++)
		v[i] = (struct fi_rma_iov){w->card.pool_addr + i * STRIDE,
					   RANGE, w->card.pool_key};
	start = scale_now();
	st = commit_and_wait(&s, v, w->n, &err);
	printf("# %zu ranges in one commit: %.3f s\n", w->n,
	       scale_now() - start);
	tap_ok(!st && side_quiet(&s),
	       "%zu ranges in one commit end in one completion", w->n);

	v[w->n / 2].addr = w->card.pool_addr + w->pool.len;
	start = scale_now();
	st = commit_and_wait(&s, v, w->n, &err);
	printf("# with one outside the region: %.3f s\n", scale_now() - start);
	fi_cq_strerror(s.cq, err.prov_errno, err.err_data, text, sizeof(text));
	snprintf(index, sizeof(index), "range %zu", w->n / 2);
	tap_ok(st == RP_ST_RANGE && err.data == w->n / 2 && strstr(text, index),
	       "the error names the range at fault: %" PRIu64 ", \"%s\"",
	       err.data, text);
	tap_ok(side_quiet(&s), "and is the only one");
	/* The failed commit must not make later ones fail. */
	v[w->n / 2].addr = w->card.pool_addr;
	tap_ok(!commit_and_wait(&s, v, w->n, &err), "the next commit succeeds");
	side_close(&s);
	free(v);
	free(out);
}

void scale_ranges(size_t n, const char *file)
{
	const char *spec = getenv("RPMEM_SHADOW");
	struct world *w = scale_shared(sizeof(*w));
	unsigned long missing = 0;
	const char *media;
	pid_t t;

	w->n = n;
	w->pool.len = n * STRIDE;
	w->pool.map =
		file ? scale_map(file, w->pool.len) : scale_shared(w->pool.len);
	t = scale_fork(run_target, w, 0);
	run_many_ranges(w, 0);
	scale_kill(t);
	media = spec ? scale_map(strrchr(spec, ':') + 1, w->pool.len)
		     : w->pool.map;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < RANGE; k++)
			if ((uint8_t)media[i * STRIDE + k] != byte_of(i)) {
				missing++;
				break;
			}
	tap_ok(!missing, "%lu of %zu ranges are not on the medium", missing, n);
}

/* --- a file with holes --- */

/* Write and commit 4 KiB at this offset, then compare them with the file. */
static void probe_offsets(struct side *s, const struct world *w,
			  const char *file, uint64_t at)
{
	struct fi_rma_iov v = {w->card.pool_addr + at, 4096, w->card.pool_key};
	struct fi_cq_err_entry err;
	char out[4096], in[4096];
	int fd = open(file, O_RDONLY), st;

	memset(out, (int)(at >> 12) | 1, sizeof(out));
	write_and_wait(s, w, at, out, sizeof(out));
	st = commit_and_wait(s, &v, 1, &err);
	if (fd < 0 || pread(fd, in, sizeof(in), (off_t)at) != sizeof(in))
		MUST(-errno);
	close(fd);
	tap_ok(!st && !memcmp(in, out, sizeof(in)),
	       "4 KiB at %#" PRIx64 " (status %d)", at, st);
}

static void check_time(double took, double limit, const char *what)
{
	tap_ok(took < limit, "%s took %.3f s, less than %.0f", what, took,
	       limit);
}

static void check_region(uint64_t len, const char *file)
{
	struct world *w = scale_shared(sizeof(*w));
	struct fi_rma_iov v;
	struct fi_cq_err_entry err;
	struct side s;
	double start;
	pid_t t;
	int st;

	w->pool.len = len;
	w->pool.map = scale_map(file, len);
	t = scale_fork(run_target, w, 0);
	open_side(w, &s);
	printf("# a region of %" PRIu64 " GiB\n", len / GIB);
	check_time(w->took, 5, "registration");
	probe_offsets(&s, w, file, 0);
	probe_offsets(&s, w, file, 4 * GIB);
	probe_offsets(&s, w, file, 4 * GIB - 2048);
	probe_offsets(&s, w, file, 4 * GIB + 12345);
	probe_offsets(&s, w, file, len - 4096);

	/*
	 * Commit one range of more than 4 GiB, with bytes written on both sides
	 * of the offset of 4 GiB.
	 */
	write_and_wait(&s, w, 2 * GIB, "left", 4);
	write_and_wait(&s, w, 5 * GIB, "right", 5);
	v = (struct fi_rma_iov){w->card.pool_addr + GIB, 4 * GIB + 4096,
				w->card.pool_key};
	start = scale_now();
	st = commit_and_wait(&s, &v, 1, &err);
	tap_ok(!st, "a range of more than 4 GiB across the line (status %d)",
	       st);
	check_time(scale_now() - start, 20, "that");
	v = (struct fi_rma_iov){w->card.pool_addr, len, w->card.pool_key};
	start = scale_now();
	st = commit_and_wait(&s, &v, 1, &err);
	tap_ok(!st, "the whole region (status %d)", st);
	check_time(scale_now() - start, 20, "that");
	v.len++;
	tap_ok(commit_and_wait(&s, &v, 1, &err) == RP_ST_RANGE,
	       "one byte more is refused");
	side_close(&s);
	scale_kill(t);
	munmap(w->pool.map, len);
	unlink(file);
}

void scale_sparse(const char *file)
{
	int fd = open(file, O_RDWR | O_CREAT, 0600);
	bool huge = fd >= 0 && !ftruncate(fd, (off_t)TIB);

	if (fd >= 0)
		close(fd);
	unlink(file);
	check_region(6 * GIB, file);
	if (huge)
		check_region(TIB, file);
	else
		printf("# no file of 1 TiB here: %s\n", strerror(errno));
}
