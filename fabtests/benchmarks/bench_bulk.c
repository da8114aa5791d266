// SPDX-License-Identifier: BSD-2-Clause
/* Cases of fi_rpmem_bench with many writes: windows, commits, patterns. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "fabtests/benchmarks/bench.h"

#define RATE_WRITES 512u       /* writes of one sample */
#define MIXED_SKEW  0.99       /* the skew of YCSB */
#define PASS	    (8u << 20) /* bytes of one sequential sample */

/*
 * Post n writes, at most window of them outstanding, and read all completions.
 */
static int write_window(struct bench *b, struct bench_end *e, uint64_t n,
			uint64_t window, uint64_t size, uint64_t step,
			uint64_t flags, char *err)
{
	uint64_t room = b->pool.len - size;
	size_t posted = 0, taken = 0;
	struct fi_cq_entry done[16];
	int ret = 0;

	while (!ret && taken < n) {
		if (posted < n && posted - taken < window) {
			ret = bench_post(b, e, posted * step % (room + 1), size,
					 flags | FI_COMPLETION, &taken, err);
			posted++;
		} else {
			ssize_t got = fi_cq_read(e->f.cq, done, 16);

			if (got > 0)
				taken += (size_t)got;
			else if (got == -FI_EAVAIL ||
				 (got && got != -FI_EAGAIN))
				ret = bench_read_cq(e, 1, err);
		}
	}
	return ret;
}

static int measure_rate(struct bench *b, const struct bench_line *l,
			struct bench_end *e, uint64_t *ns, char *err)
{
	uint64_t start = bench_now();
	int ret = write_window(b, e, RATE_WRITES, b->cfg->window, l->size, 0, 0,
			       err);

	*ns = (bench_now() - start) / RATE_WRITES;
	return ret;
}

int bench_run_rate_base(struct bench *b, const struct bench_line *l,
			uint64_t *ns, char *err)
{
	return measure_rate(b, l, &b->end[BENCH_BASE], ns, err);
}

int bench_run_rate_pmem(struct bench *b, const struct bench_line *l,
			uint64_t *ns, char *err)
{
	return measure_rate(b, l, &b->end[BENCH_RPMEM], ns, err);
}

/*
 * Write to the same bytes by the key of a volatile region, for which the
 * provider keeps no state.
 */
int bench_run_rate(struct bench *b, const struct bench_line *l, uint64_t *ns,
		   char *err)
{
	struct bench_end *e = &b->end[BENCH_RPMEM];
	uint64_t key = e->key, addr = e->addr;
	int ret;

	e->key = b->shared->volatile_key;
	e->addr = b->shared->volatile_addr;
	ret = measure_rate(b, l, e, ns, err);
	e->key = key;
	e->addr = addr;
	return ret;
}

int bench_run_writes_base(struct bench *b, const struct bench_line *l,
			  uint64_t *ns, char *err)
{
	struct bench_end *e = &b->end[BENCH_BASE];
	uint64_t off = bench_place(b, l->size, l->ranges), start = bench_now();
	size_t taken = 0;
	int ret = 0;

	for (uint64_t i = 0; !ret && i < l->ranges; i++)
		ret = bench_post(b, e, off + i * bench_stride(l->size), l->size,
				 FI_DELIVERY_COMPLETE | FI_COMPLETION, &taken,
				 err);
	if (!ret && taken < l->ranges)
		ret = bench_read_cq(e, l->ranges - taken, err);
	*ns = bench_now() - start;
	return ret;
}

/*
 * Reads of 8 bytes, all outstanding at once: the cost of one read fence, and of
 * each further one.
 */
int bench_run_reads_base(struct bench *b, const struct bench_line *l,
			 uint64_t *ns, char *err)
{
	struct bench_end *e = &b->end[BENCH_BASE];
	uint64_t start = bench_now();
	size_t taken = 0;
	int ret = 0;

	for (uint64_t i = 0; !ret && i < l->ranges; i++)
		ret = bench_post_read(b, e, i * 64, 8, &taken, err);
	if (!ret && taken < l->ranges)
		ret = bench_read_cq(e, l->ranges - taken, err);
	*ns = bench_now() - start;
	return ret;
}

/*
 * Only the commit is signaled, as in a program that needs no completion of the
 * writes.
 */
int bench_run_writes_commit(struct bench *b, const struct bench_line *l,
			    uint64_t *ns, char *err)
{
	struct bench_end *e = &b->end[BENCH_RPMEM];
	struct fi_rma_iov ranges[BENCH_MAX_RANGES];
	uint64_t off = bench_place(b, l->size, l->ranges), start = bench_now();
	size_t taken = 0;
	int ret = 0;

	for (uint64_t i = 0; i < l->ranges; i++)
		ranges[i] = (struct fi_rma_iov){
			.addr = e->addr + off + i * bench_stride(l->size),
			.len = l->size,
			.key = e->key};
	for (uint64_t i = 0; !ret && i < l->ranges; i++)
		ret = bench_post(b, e, off + i * bench_stride(l->size), l->size,
				 0, &taken, err);
	if (!ret)
		ret = bench_post_commit(e, ranges, l->ranges,
					FI_RPMEM_CLASS_DEFAULT, &taken, err);
	if (!ret && !taken)
		ret = bench_read_cq(e, 1, err);
	*ns = bench_now() - start;
	return ret;
}

/* One pass over PASS bytes of the pool, or over the whole smaller pool. */
static int write_sequentially(struct bench *b, const struct bench_line *l,
			      struct bench_end *e, uint64_t flags, bool commit,
			      uint64_t *ns, char *err)
{
	uint64_t bytes = PASS < b->pool.len ? PASS : b->pool.len;
	uint64_t n = bytes / l->size, start = bench_now();
	struct fi_rma_iov all = {
		.addr = e->addr, .len = n * l->size, .key = e->key};
	size_t taken = 0;
	int ret;

	ret = write_window(b, e, n, b->cfg->window, l->size, l->size, flags,
			   err);
	if (!ret && commit)
		ret = bench_post_commit(e, &all, 1, FI_RPMEM_CLASS_DEFAULT,
					&taken, err);
	if (!ret && commit && !taken)
		ret = bench_read_cq(e, 1, err);
	*ns = (bench_now() - start) / n;
	return ret;
}

int bench_run_sequential_base(struct bench *b, const struct bench_line *l,
			      uint64_t *ns, char *err)
{
	return write_sequentially(b, l, &b->end[BENCH_BASE],
				  FI_DELIVERY_COMPLETE, false, ns, err);
}

int bench_run_sequential(struct bench *b, const struct bench_line *l,
			 uint64_t *ns, char *err)
{
	return write_sequentially(b, l, &b->end[BENCH_RPMEM], 0, true, ns, err);
}

/*
 * Pick the next object by a Zipf distribution. Popular objects are scattered
 * over the pool.
 */
static int zipf_next(struct bench *b, uint64_t size, uint64_t *off, char *err)
{
	size_t n = b->pool.len / size, low = 0, high;
	double u;

	if (n > BENCH_OBJECTS)
		n = BENCH_OBJECTS;
	if (!n)
		return rp_err(err, -EINVAL, "the pool holds no object");
	if (b->nzipf != n) {
		double *sums = reallocarray(b->zipf, n, sizeof(*sums));
		double sum = 0;

		if (!sums)
			return rp_err(err, -ENOMEM, "out of memory");
		for (size_t i = 0; i < n; i++)
			sums[i] = sum += pow((double)(i + 1), -MIXED_SKEW);
		b->zipf = sums;
		b->nzipf = n;
	}
	u = (double)(bench_random(b) >> 11) * 0x1p-53 * b->zipf[n - 1];
	for (high = n - 1; low < high;) {
		size_t mid = (low + high) / 2;

		if (b->zipf[mid] > u)
			high = mid;
		else
			low = mid + 1;
	}
	*off = low * 2654435761u % n *
	       size; /* the factor is a prime: all offsets differ */
	return 0;
}

static int read_and_write(struct bench *b, const struct bench_line *l,
			  struct bench_end *e, uint64_t flags, uint64_t *ns,
			  char *err)
{
	uint64_t off = 0, start;
	size_t taken = 0;
	int ret = zipf_next(b, l->size, &off, err);

	start = bench_now();
	if (!ret && bench_random(b) % 2)
		ret = bench_post(b, e, off, l->size, flags | FI_COMPLETION,
				 &taken, err);
	else if (!ret)
		ret = bench_post_read(b, e, off, l->size, &taken, err);
	if (!ret && !taken)
		ret = bench_read_cq(e, 1, err);
	*ns = bench_now() - start;
	return ret;
}

int bench_run_mixed_base(struct bench *b, const struct bench_line *l,
			 uint64_t *ns, char *err)
{
	return read_and_write(b, l, &b->end[BENCH_BASE], FI_DELIVERY_COMPLETE,
			      ns, err);
}

int bench_run_mixed(struct bench *b, const struct bench_line *l, uint64_t *ns,
		    char *err)
{
	return read_and_write(b, l, &b->end[BENCH_RPMEM], FI_COMMIT_COMPLETE,
			      ns, err);
}
