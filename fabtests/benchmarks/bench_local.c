// SPDX-License-Identifier: BSD-2-Clause
/* Cases of fi_rpmem_bench: flushing alone, and the file on disk. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "fabtests/benchmarks/bench.h"
#include "fabtests/benchmarks/flush.h"

static int cpu_flush(struct rp_flush **f, char *err)
{
	static struct rp_flush flush;
	int ret = flush.flush ? 0 : rp_flush_open(&flush, err);

	*f = &flush;
	return ret;
}

/*
 * Random page in private memory: in the file of a pool, the first store after
 * each msync would add a page fault.
 */
static char *scratch_page(struct bench *b, uint64_t size)
{
	uint64_t pages = (BENCH_MAX_SIZE - size) / BENCH_PAGE + 1;

	return b->buf + BENCH_MAX_SIZE + bench_random(b) % pages * BENCH_PAGE;
}

int bench_run_clwb(struct bench *b, const struct bench_line *l, uint64_t *ns,
		   char *err)
{
	char *at = scratch_page(b, l->size);
	struct rp_flush *f;
	uint64_t start;
	int ret = cpu_flush(&f, err);

	if (ret)
		return ret;
	start = bench_now();
	memcpy(at, b->buf, l->size);
	f->flush(at, l->size);
	f->drain();
	*ns = bench_now() - start;
	return 0;
}

int bench_run_stream(struct bench *b, const struct bench_line *l, uint64_t *ns,
		     char *err)
{
	char *at = scratch_page(b, l->size);
	struct rp_flush *f;
	uint64_t start;
	int ret = cpu_flush(&f, err);

	if (ret)
		return ret;
	start = bench_now();
	f->copy(at, b->buf, l->size,
		PMEM2_F_MEM_NONTEMPORAL | PMEM2_F_MEM_NODRAIN);
	f->drain();
	*ns = bench_now() - start;
	return 0;
}

/*
 * Agent and libpmem2 flush the same lines, dirty in the cache of one CPU, which
 * has just stored to them: over a base provider without RDMA the target's CPU
 * stores, too.
 */
int bench_run_agent_flush(struct bench *b, const struct bench_line *l,
			  uint64_t *ns, char *err)
{
	struct bench_end *e = &b->end[BENCH_RPMEM];
	struct fi_rma_iov ranges[BENCH_MAX_RANGES];
	uint64_t off = bench_place(b, l->size, l->ranges), start, none;
	size_t taken = 0;
	int ret =
		bench_work(b, BENCH_DIRTY, off, l->size, l->ranges, &none, err);

	for (uint64_t i = 0; i < l->ranges; i++)
		ranges[i] = (struct fi_rma_iov){
			.addr = e->addr + off + i * bench_stride(l->size),
			.len = l->size,
			.key = e->key};
	start = bench_now();
	if (!ret)
		ret = bench_post_commit(e, ranges, l->ranges,
					FI_RPMEM_CLASS_DEFAULT, &taken, err);
	if (!ret && !taken)
		ret = bench_read_cq(e, 1, err);
	*ns = bench_now() - start;
	return ret;
}

int bench_run_local_flush(struct bench *b, const struct bench_line *l,
			  uint64_t *ns, char *err)
{
	return bench_work(b, BENCH_FLUSH, bench_place(b, l->size, l->ranges),
			  l->size, l->ranges, ns, err);
}

/* Pick one range on each of l->ranges distinct random pages of the file. */
static void pick_ranges(struct bench *b, const struct bench_line *l,
			struct fi_rma_iov *ranges)
{
	uint64_t slots = b->disk.len / bench_stride(l->size);
	uint64_t at = bench_random(b) % slots;
	/* With 2^n slots, an odd step visits each slot once. */
	uint64_t step = bench_random(b) | 1;

	while (slots & (slots - 1))
		slots &= slots - 1;
	for (uint64_t i = 0; i < l->ranges; i++, at += step)
		ranges[i] = (struct fi_rma_iov){
			.addr = b->shared->disk_addr +
				at % slots * bench_stride(l->size),
			.len = l->size,
			.key = b->shared->disk_key};
}

static int measure_msync(struct bench *b, const struct bench_line *l,
			 bool batch, uint64_t *ns, char *err)
{
	struct bench_end *e = &b->end[BENCH_RPMEM];
	struct fi_rma_iov ranges[BENCH_MAX_RANGES];
	uint64_t key = e->key, addr = e->addr, start;
	size_t taken = 0, posted = 0;
	int ret = 0;

	if (!b->shared->disk_ok)
		return rp_err(err, -ENOTSUP, "%s", b->shared->disk_why);
	pick_ranges(b, l, ranges);
	e->key = b->shared->disk_key;
	e->addr = 0;
	start = bench_now();
	for (uint64_t i = 0; !ret && i < l->ranges; i++) {
		ret = bench_post(b, e, ranges[i].addr, l->size, 0, &taken, err);
		if (!ret)
			ret = bench_post_commit(e, &ranges[i], 1,
						FI_RPMEM_CLASS_POWER, &taken,
						err);
		posted++;
		if (!ret && !batch && taken < posted) {
			ret = bench_read_cq(e, posted - taken, err);
			taken = posted;
		}
	}
	if (!ret && taken < posted)
		ret = bench_read_cq(e, posted - taken, err);
	*ns = bench_now() - start;
	e->key = key;
	e->addr = addr;
	return ret;
}

int bench_run_disk_each(struct bench *b, const struct bench_line *l,
			uint64_t *ns, char *err)
{
	return measure_msync(b, l, false, ns, err);
}

int bench_run_disk_batch(struct bench *b, const struct bench_line *l,
			 uint64_t *ns, char *err)
{
	return measure_msync(b, l, true, ns, err);
}

/*
 * Store and sync the same pages in this process, without a network: the time of
 * the disk. One msync for all pages is the lower bound for merged commits.
 */
static int disk_alone(struct bench *b, const struct bench_line *l, bool batch,
		      uint64_t *ns, char *err)
{
	struct fi_rma_iov ranges[BENCH_MAX_RANGES];
	uint64_t start;
	int bad = 0;

	if (!b->disk.map)
		return rp_err(err, -ENOTSUP, "%s", b->shared->disk_why);
	pick_ranges(b, l, ranges);
	start = bench_now();
	for (uint64_t i = 0; !bad && i < l->ranges; i++) {
		char *at =
			b->disk.map + (ranges[i].addr - b->shared->disk_addr);

		memcpy(at, b->buf, l->size);
		if (!batch)
			bad = msync(at, l->size, MS_SYNC);
	}
	if (batch)
		bad = msync(b->disk.map, b->disk.len, MS_SYNC);
	*ns = bench_now() - start;
	return bad ? rp_err(err, -errno, "msync: %s", strerror(errno)) : 0;
}

int bench_run_disk_alone_each(struct bench *b, const struct bench_line *l,
			      uint64_t *ns, char *err)
{
	return disk_alone(b, l, false, ns, err);
}

int bench_run_disk_alone_batch(struct bench *b, const struct bench_line *l,
			       uint64_t *ns, char *err)
{
	return disk_alone(b, l, true, ns, err);
}

/* Rivals write to random pages of the pool, as the other cases do. */
int bench_run_rival(struct bench *b, const struct bench_line *l, uint64_t *ns,
		    char *err)
{
	int which = l->what->side - BENCH_RIVAL;
	uint64_t off = bench_place(b, l->size, 1), start;
	int ret;

	if (l->size > rivals[which]->max)
		return rp_err(err, -EMSGSIZE,
			      "it supports writes of up to %llu bytes",
			      (unsigned long long)rivals[which]->max);
	start = bench_now();
	ret = rivals[which]->put(b->rival[which], b->buf, off, l->size, err);
	*ns = bench_now() - start;
	return ret;
}
