// SPDX-License-Identifier: BSD-2-Clause
/* Batches on fake flush instructions that log their calls. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/batch.h"
#include "core/list.h"
#include "core/log.h"

/* Wrapped by the linker: realloc and calloc fail when a test wants it. */
static bool no_memory;
void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size)
{
	return no_memory ? NULL : __real_realloc(p, size);
}
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return no_memory ? NULL : __real_calloc(n, size);
}

#define LINE 64

/* A logged call: 'f' flush, 's' sync or 'p' split of bytes, 'd' drain. */
struct call {
	char what;
	uint64_t off, len;
	const struct spot *at;
};
static struct call calls[64];
static int ncalls;

/* A region whose flush operations are logged. */
struct spot {
	char *bytes;
	struct rp_region region;
	struct rp_pmem_ops ops;
	int sync_fails;
	uint64_t now, sync_takes; /* clock, and the duration of a sync, in ns */
};

static void note_call(struct spot *s, char what, const void *addr, size_t len)
{
	uint64_t off = addr ? (uint64_t)((const char *)addr - s->bytes) : 0;

	cr_assert_lt(ncalls, (int)(sizeof(calls) / sizeof(calls[0])));
	calls[ncalls++] = (struct call){what, off, len, s};
}

static int note_sync(void *ctx, void *addr, size_t len)
{
	struct spot *s = ctx;

	note_call(s, 's', addr, len);
	s->now += s->sync_takes;
	return s->sync_fails;
}

static void note_split(void *ctx, void *addr, size_t len)
{
	note_call(ctx, 'p', addr, len);
}

static uint64_t note_now(void *ctx)
{
	const struct spot *s = ctx;

	return s->now;
}

static void note_flush(void *ctx, const void *addr, size_t len)
{
	note_call(ctx, 'f', addr, len);
}

static void note_drain(void *ctx)
{
	note_call(ctx, 'd', NULL, 0);
}

static void spot_init(struct spot *s, enum rp_method how, uint64_t key)
{
	size_t page = sysconf(_SC_PAGESIZE), len = 16 * page;

	*s = (struct spot){.bytes = aligned_alloc(page, len)};
	cr_assert_not_null(s->bytes);
	s->ops = (struct rp_pmem_ops){
		.sync = note_sync,
		.flush = note_flush,
		.drain = note_drain,
		.now = note_now,
		.ctx = s,
	};
	s->region = (struct rp_region){
		.key = key,
		.base = s->bytes,
		.len = len,
	};
	cr_assert_eq(
		rp_pmem_new(s->bytes, len, how, NULL, &s->ops, &s->region.pmem),
		0);
}

static void spot_fini(struct spot *s)
{
	rp_pmem_delete(s->region.pmem);
	free(s->bytes);
}

static int add_range(struct rp_batch *b, struct spot *s, uint64_t off,
		     uint64_t len)
{
	return rp_batch_add(b,
			    &(struct rp_job_range){&s->region, off, len, true});
}

static void run_batch(struct rp_batch *b)
{
	ncalls = 0;
	rp_batch_seal(b);
	rp_batch_run(b);
}

static void expect_call(int i, const struct spot *at, char what, uint64_t off,
			uint64_t len)
{
	const struct call *c = &calls[i];

	cr_assert_lt(i, ncalls);
	cr_assert(c->at == at && c->what == what && c->off == off &&
			  c->len == len,
		  "call %d is %c [%llu, +%llu)", i, c->what,
		  (unsigned long long)c->off, (unsigned long long)c->len);
}

static struct rp_batch batch;
static struct spot a, b2;

static void start(void)
{
	memset(&batch, 0xff, sizeof(batch));
	cr_assert_eq(rp_batch_init(&batch), 0);
	spot_init(&a, RP_METHOD_AGENT_CLWB, 1);
	spot_init(&b2, RP_METHOD_AGENT_CLWB, 2);
}

static void end(void)
{
	rp_batch_fini(&batch);
	spot_fini(&a);
	spot_fini(&b2);
}

TestSuite(batch, .init = start, .fini = end);

Test(batch, empty_batch_flushes_nothing)
{
	run_batch(&batch);
	cr_assert_eq(ncalls, 0);
	cr_assert(!batch.data.nparts && !batch.flushes && !batch.drains);
}

/* Ranges within one line, from many requests: one flush of the whole line. */
Test(batch, one_flush_per_line)
{
	cr_assert_eq(add_range(&batch, &a, LINE + 1, 1), 0);
	cr_assert_eq(add_range(&batch, &a, LINE + 60, 4), 0);
	cr_assert_eq(add_range(&batch, &a, LINE + 30, 2), 0);
	cr_assert_eq(add_range(&batch, &a, LINE + 1, 1), 0);
	run_batch(&batch);
	cr_assert_eq(ncalls, 2);
	expect_call(0, &a, 'f', LINE, LINE);
	expect_call(1, &a, 'd', 0, 0);
	cr_assert(batch.flushes == 1 && batch.bytes == LINE &&
		  batch.drains == 1);
	cr_assert_eq(batch.nranges, 4);
}

/* Adjacent lines share one flush; a gap of one line separates flushes. */
Test(batch, merges_neighbours)
{
	cr_assert_eq(add_range(&batch, &a, 5 * LINE, 2 * LINE), 0);
	cr_assert_eq(add_range(&batch, &a, 2 * LINE - 1, 1), 0);
	cr_assert_eq(add_range(&batch, &a, 2 * LINE, 1), 0);
	cr_assert_eq(add_range(&batch, &a, 4 * LINE - 1, 2), 0);
	run_batch(&batch);
	cr_assert_eq(ncalls, 2);
	expect_call(0, &a, 'f', LINE, 6 * LINE);
	rp_batch_reset(&batch);

	cr_assert_eq(add_range(&batch, &a, 4 * LINE, LINE), 0);
	cr_assert_eq(add_range(&batch, &a, 2 * LINE, LINE), 0);
	run_batch(&batch);
	cr_assert_eq(ncalls, 3);
	expect_call(0, &a, 'f', 2 * LINE, LINE);
	expect_call(1, &a, 'f', 4 * LINE, LINE);
	expect_call(2, &a, 'd', 0, 0);
	cr_assert(batch.flushes == 2 && batch.bytes == 2 * LINE);
}

/* A range that is rounded to lines never leaves its region. */
Test(batch, stays_inside_the_region)
{
	a.region.base = a.bytes + 10;
	a.region.len = 100;
	cr_assert_eq(add_range(&batch, &a, 0, 1), 0);
	cr_assert_eq(add_range(&batch, &a, 99, 1), 0);
	rp_batch_seal(&batch);
	cr_assert_eq(batch.data.set.n, 1);
	cr_assert_eq(batch.data.set.v[0].start, (uintptr_t)a.bytes + 10);
	cr_assert_eq(batch.data.set.v[0].end, (uintptr_t)a.bytes + 110);
	cr_assert_eq(batch.data.set.v[0].stamp, 0);
}

/* msync covers whole pages and needs no drain. */
Test(batch, msync_covers_whole_pages)
{
	uint64_t page = sysconf(_SC_PAGESIZE);
	struct spot p;

	spot_init(&p, RP_METHOD_AGENT_MSYNC, 3);
	cr_assert_eq(add_range(&batch, &p, 3 * page + 7, 1), 0);
	cr_assert_eq(add_range(&batch, &p, 4 * page - 1, 1), 0);
	cr_assert_eq(add_range(&batch, &p, 4 * page, 1), 0);
	run_batch(&batch);
	cr_assert_eq(ncalls, 1);
	expect_call(0, &p, 's', 3 * page, 2 * page);
	spot_fini(&p);
}

/* Run a batch of n pages with gaps between them. */
static void run_scattered(struct spot *s, int n)
{
	uint64_t page = sysconf(_SC_PAGESIZE);

	rp_batch_reset(&batch);
	for (int i = 0; i < n; i++)
		cr_assert_eq(add_range(&batch, s, (1 + 4 * i) * page + 9, 1),
			     0);
	run_batch(&batch);
	cr_assert_leq(batch.flushes, 3);
}

static void expect_apart(const struct spot *s)
{
	uint64_t page = sysconf(_SC_PAGESIZE);

	cr_assert_eq(ncalls, 3);
	for (int i = 0; i < 3; i++)
		expect_call(i, s, 's', (1 + 4 * i) * page, page);
}

static void expect_together(const struct spot *s)
{
	uint64_t page = sysconf(_SC_PAGESIZE);

	cr_assert_eq(ncalls, 1);
	expect_call(0, s, 's', page, 9 * page);
	cr_assert_eq(batch.bytes, 9 * page);
	cr_assert_eq(batch.flushes, 1);
}

/* Scattered pages share one msync, unless that took longer than several. */
Test(batch, scattered_pages)
{
	struct spot p;

	spot_init(&p, RP_METHOD_AGENT_MSYNC, 3);
	p.sync_takes = 1000;
	/* At first the duration of one msync is unknown. */
	run_scattered(&p, 3);
	expect_apart(&p);
	run_scattered(&p, 3);
	expect_together(&p);
	/* One msync takes as long as three separate ones: still one. */
	p.sync_takes = 3000;
	run_scattered(&p, 3);
	run_scattered(&p, 3);
	expect_together(&p);
	/* A slow msync: split the next batches, twice as many each time. */
	for (int apart = 1; apart <= 128; apart *= 2) {
		p.sync_takes = 3001;
		run_scattered(&p, 3);
		expect_together(&p);
		p.sync_takes = 1000;
		for (int i = 0; i < apart && i < 64; i++) {
			run_scattered(&p, 3);
			expect_apart(&p);
		}
	}
	run_scattered(&p, 3);
	expect_together(&p);
	/* A fast common msync resets the number of split batches. */
	p.sync_takes = 3001;
	run_scattered(&p, 3);
	p.sync_takes = 1000;
	run_scattered(&p, 3);
	expect_apart(&p);
	run_scattered(&p, 3);
	expect_together(&p);
	/* A single range has no gaps, so it needs no split. */
	run_scattered(&p, 1);
	cr_assert_eq(ncalls, 1);
	cr_assert_eq(batch.bytes, (uint64_t)sysconf(_SC_PAGESIZE));

	p.sync_fails = -EIO;
	run_scattered(&p, 3);
	expect_together(&p);
	cr_assert_eq(batch.data.parts[0].err, EIO);
	spot_fini(&p);
}

/* Folios of all flushed short ranges are split, even after one msync. */
Test(batch, folios_of_short_ranges_are_split)
{
	const uint64_t page = sysconf(_SC_PAGESIZE);
	struct spot p;

	spot_init(&p, RP_METHOD_AGENT_MSYNC, 3);
	rp_pmem_delete(p.region.pmem);
	p.ops.split = note_split;
	p.region.len = 32 * page;
	free(p.bytes);
	p.region.base = p.bytes = aligned_alloc(page, p.region.len);
	cr_assert_eq(rp_pmem_new(p.bytes, p.region.len, RP_METHOD_AGENT_MSYNC,
				 NULL, &p.ops, &p.region.pmem),
		     0);
	p.sync_takes = 1000;
	run_scattered(&p, 1);
	cr_assert_eq(ncalls, 2);
	expect_call(1, &p, 'p', calls[0].off, page);
	run_scattered(&p, 2);
	cr_assert_eq(ncalls, 3);
	cr_assert_eq(calls[0].what, 's');
	expect_call(1, &p, 'p', calls[0].off, page);
	expect_call(2, &p, 'p', calls[0].off + calls[0].len - page, page);

	rp_batch_reset(&batch);
	cr_assert_eq(add_range(&batch, &p, 0, (64u << 10) + 1), 0);
	run_batch(&batch);
	cr_assert_eq(ncalls, 1, "a long range was split");
	p.sync_fails = -EIO;
	run_scattered(&p, 1);
	cr_assert_eq(ncalls, 1, "split behind a failure");
	spot_fini(&p);
}

/* A fast msync found clean pages, so it lowers the estimate little. */
Test(batch, scattered_pages_that_are_clean)
{
	struct spot p;

	spot_init(&p, RP_METHOD_AGENT_MSYNC, 3);
	p.sync_takes = 1600;
	run_scattered(&p, 1);
	p.sync_takes = 0;
	run_scattered(&p, 1); /* the estimate becomes 1500 */
	p.sync_takes = 4500;
	run_scattered(&p, 3);
	run_scattered(&p, 3);
	expect_together(&p);
	p.sync_takes = 4501;
	run_scattered(&p, 3);
	run_scattered(&p, 3);
	expect_apart(&p);
	spot_fini(&p);

	/* A measured duration of 0 is not an unknown duration. */
	spot_init(&p, RP_METHOD_AGENT_MSYNC, 3);
	run_scattered(&p, 1);
	run_scattered(&p, 3);
	expect_together(&p);
	spot_fini(&p);
}

/* Scattered lines are flushed one by one, and never the gaps between them. */
Test(batch, scattered_lines)
{
	struct spot p;

	spot_init(&p, RP_METHOD_AGENT_CLWB_MSYNC, 3);
	run_scattered(&p, 3);
	rp_batch_reset(&batch);
	run_scattered(&p, 3);
	cr_assert_eq(ncalls, 9);
	spot_fini(&p);
}

/* All regions are flushed before the first drain; each is drained once. */
Test(batch, drains_each_region_once_at_the_end)
{
	struct spot *first = &a.region < &b2.region ? &a : &b2;
	struct spot *second = first == &a ? &b2 : &a;

	for (int i = 0; i < 3; i++) {
		cr_assert_eq(add_range(&batch, &a, 4 * i * LINE, 1), 0);
		cr_assert_eq(add_range(&batch, &b2, 4 * i * LINE, 1), 0);
	}
	run_batch(&batch);
	cr_assert_eq(batch.data.nparts, 2);
	cr_assert_eq(ncalls, 8);
	for (int i = 0; i < 3; i++) {
		expect_call(i, first, 'f', 4 * i * LINE, LINE);
		expect_call(3 + i, second, 'f', 4 * i * LINE, LINE);
	}
	expect_call(6, first, 'd', 0, 0);
	expect_call(7, second, 'd', 0, 0);
	cr_assert_eq(batch.drains, 2);

	/* After rp_batch_reset() nothing of the former batch is left. */
	rp_batch_reset(&batch);
	run_batch(&batch);
	cr_assert_eq(ncalls, 0);
	cr_assert(!batch.nranges && !batch.data.nparts && !batch.bytes);
}

/* Make a job with one flushed range in s, and an unflushed one in t. */
static struct rp_job *job_of(struct spot *s, struct spot *t)
{
	struct rp_job *j = rp_job_new(2, 0);

	cr_assert_not_null(j);
	j->ranges[0] = (struct rp_job_range){&t->region, 0, 8, false};
	j->ranges[1] = (struct rp_job_range){&s->region, 0, 8, true};
	rp_job_use_regions(j);
	return j;
}

static void job_done(struct rp_jobs *jobs, struct rp_job *j)
{
	TAILQ_REMOVE(jobs, j, link);
	rp_job_free(j);
}

static unsigned int warnings;

static void count_log_line(enum rp_log_level level, const char *text)
{
	warnings += level == RP_LOG_WARN;
}

/* After a failed flush other jobs succeed; the region stays failed. */
Test(batch, failure_of_one_region)
{
	struct rp_job *on_bad, *on_good;
	struct spot bad;

	rp_log_set(count_log_line);
	spot_init(&bad, RP_METHOD_AGENT_MSYNC, 3);
	bad.sync_fails = -EIO;
	on_bad = job_of(&bad, &a);
	on_good = job_of(&a, &bad);
	TAILQ_INSERT_TAIL(&batch.jobs, on_bad, link);
	TAILQ_INSERT_TAIL(&batch.jobs, on_good, link);
	cr_assert_eq(add_range(&batch, &bad, 0, 8), 0);
	cr_assert_eq(add_range(&batch, &bad, bad.region.len - 8, 8), 0);
	cr_assert_eq(add_range(&batch, &a, 0, 8), 0);
	run_batch(&batch);
	/* After the first failure the batch flushes no more of that region. */
	cr_assert_eq(ncalls, 3);
	cr_assert(batch.flushes == 1 && batch.drains == 1);
	rp_batch_complete(&batch, &batch.jobs);
	cr_assert_eq(bad.region.failed, EIO);
	cr_assert_eq(a.region.failed, 0);
	cr_assert_eq(on_bad->reply.status, RP_ST_FLUSH_FAILED);
	cr_assert_eq(on_bad->reply.detail, EIO);
	cr_assert_eq(on_bad->reply.range, 1);
	/* on_good has an unflushed range in the failed region. */
	cr_assert_eq(on_good->reply.status, RP_ST_OK);
	job_done(&batch.jobs, on_bad);
	rp_batch_reset(&batch);

	/* The first error of a region is kept. */
	bad.sync_fails = -ENOSPC;
	cr_assert_eq(add_range(&batch, &bad, 0, 8), 0);
	run_batch(&batch);
	cr_assert_eq(batch.data.parts[0].err, ENOSPC);
	rp_batch_complete(&batch, &batch.jobs);
	cr_assert_eq(bad.region.failed, EIO);
	cr_assert_eq(warnings, 1, "warned once");
	/* A later success does not clear the region's error. */
	rp_batch_reset(&batch);
	bad.sync_fails = 0;
	cr_assert_eq(add_range(&batch, &bad, 0, 8), 0);
	run_batch(&batch);
	cr_assert_eq(batch.data.parts[0].err, 0);
	rp_batch_complete(&batch, &batch.jobs);
	cr_assert_eq(bad.region.failed, EIO);
	cr_assert_eq(on_good->reply.status, RP_ST_OK);
	job_done(&batch.jobs, on_good);
	rp_log_set(NULL);
	spot_fini(&bad);
}

/* The file was truncated: flushing the store's lines would be a SIGBUS. */
Test(batch, store_behind_the_end_of_a_file)
{
	size_t page = sysconf(_SC_PAGESIZE);
	FILE *f = tmpfile();
	struct rp_job *gone, *other;
	struct spot cut;
	char *p;
	int fd;

	cr_assert_not_null(f);
	fd = fileno(f);
	spot_init(&cut, RP_METHOD_AGENT_CLWB, 3);
	cr_assert_eq(ftruncate(fd, (off_t)(2 * page)), 0);
	p = mmap(cut.bytes, 2 * page, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_FIXED, fd, 0);
	cr_assert_eq(p, cut.bytes);
	if (madvise(p, page, MADV_POPULATE_READ))
		cr_skip("this kernel cannot tell");
	cr_assert_eq(ftruncate(fd, (off_t)page), 0);
	rp_log_set(count_log_line);

	gone = job_of(&a, &a);
	other = job_of(&b2, &b2);
	gone->then = (struct rp_job_then){&cut.region, page, 1, true, 0};
	other->then = (struct rp_job_then){&a.region, 64, 2, true, 0};
	cut.region.busy++;
	a.region.busy++;
	TAILQ_INSERT_TAIL(&batch.jobs, gone, link);
	TAILQ_INSERT_TAIL(&batch.jobs, other, link);
	cr_assert_eq(rp_batch_add_then(&batch, gone), 0);
	cr_assert_eq(rp_batch_add_then(&batch, other), 0);
	run_batch(&batch);
	/* The calls are one line of the other region, and its drain. */
	cr_assert_eq(ncalls, 2);
	expect_call(0, &a, 'f', 64, LINE);
	expect_call(1, &a, 'd', 0, 0);
	rp_batch_complete(&batch, &batch.jobs);
	cr_assert_eq(gone->reply.status, RP_ST_FLUSH_FAILED);
	cr_assert_eq(other->reply.status, RP_ST_OK);
	job_done(&batch.jobs, gone);
	job_done(&batch.jobs, other);
	rp_log_set(NULL);
	fclose(f);
	spot_fini(&cut);
}

/* A job reports the first failure among its ranges. */
Test(batch, first_failure_of_a_job)
{
	struct rp_job *j = job_of(&a, &b2);

	rp_job_fail(j, RP_ST_FLUSH_FAILED, EIO, 1);
	rp_job_fail(j, RP_ST_OVERLOADED, ENOMEM, 0);
	cr_assert_eq(j->reply.status, RP_ST_FLUSH_FAILED);
	cr_assert(j->reply.detail == EIO && j->reply.range == 1);
	rp_job_free(j);
}

/* A job holds one reference to its region for each range. */
Test(batch, jobs_hold_their_regions)
{
	struct rp_job *j = job_of(&a, &a), *k = job_of(&a, &b2);

	cr_assert(a.region.busy == 3 && b2.region.busy == 1);
	rp_job_free(j);
	cr_assert(a.region.busy == 1 && b2.region.busy == 1);
	rp_job_free(k);
	cr_assert(a.region.busy == 0 && b2.region.busy == 0);
}

/* Only jobs with msync or many bytes block; the worker runs these. */
Test(batch, jobs_with_msync_or_many_bytes_block)
{
	struct rp_job *slow, *asks_none, *quick;
	struct spot disk;

	spot_init(&disk, RP_METHOD_AGENT_MSYNC, 3);
	slow = job_of(&disk, &a);
	asks_none = job_of(&a, &disk);
	quick = job_of(&a, &b2);
	cr_assert(rp_job_blocks(slow));
	cr_assert(!rp_job_blocks(asks_none));
	cr_assert(!rp_job_blocks(quick));
	/* A store to a file blocks only if it is flushed. */
	quick->then.region = &disk.region;
	cr_assert(!rp_job_blocks(quick));
	quick->then.flush = true;
	cr_assert(rp_job_blocks(quick));
	quick->then.region = NULL;
	/* A job with many bytes blocks, in one range or in several. */
	quick->ranges[0].flush = quick->ranges[1].flush = true;
	quick->ranges[0].len = RP_JOB_MAX_INLINE;
	quick->ranges[1].len = 0;
	cr_assert(!rp_job_blocks(quick));
	quick->ranges[1].len = 1;
	cr_assert(rp_job_blocks(quick));
	quick->ranges[1].flush = false;
	cr_assert(!rp_job_blocks(quick));
	quick->ranges[0].len = UINT64_MAX;
	cr_assert(rp_job_blocks(quick));
	rp_job_free(slow);
	rp_job_free(asks_none);
	rp_job_free(quick);
	spot_fini(&disk);
}

static struct rp_batch cheap;

/* Scattered ranges are flushed one by one, unless the job has many bytes. */
Test(batch, ranges_of_long_jobs_are_merged)
{
	struct spot disk;
	struct rp_job *j;

	cr_assert_eq(rp_batch_init(&cheap), 0);
	spot_init(&disk, RP_METHOD_AGENT_MSYNC, 3);
	j = job_of(&a, &disk);
	j->ranges[0].flush = j->ranges[1].flush = true;
	j->then.region = &b2.region;
	j->then.flush = true;
	cr_assert_eq(rp_batch_merge(&cheap, &batch, j), 0);
	cr_assert_eq(cheap.data.set.n, 1);
	cr_assert_eq(cheap.data.set.v[0].space, (uintptr_t)&a.region);
	cr_assert_eq(cheap.then.set.n, 0);
	cr_assert_eq(batch.data.set.n, 1);
	cr_assert_eq(batch.data.set.v[0].space, (uintptr_t)&disk.region);
	cr_assert_eq(batch.then.set.n, 1);
	rp_batch_reset(&cheap);
	rp_batch_reset(&batch);
	a.region.len = RP_JOB_MAX_INLINE + 4096;
	j->ranges[0].len = RP_JOB_MAX_INLINE + 1;
	cr_assert_eq(rp_batch_merge(&cheap, &batch, j), 0);
	cr_assert_eq(cheap.data.set.n, 0);
	cr_assert_eq(batch.data.set.n, 2);
	j->then.region = NULL;
	rp_job_free(j);
	rp_batch_fini(&cheap);
	spot_fini(&disk);
}

/* No -ENOMEM after an executed store: the peer would repeat it. */
Test(batch, no_memory_for_a_job)
{
	static const enum rp_effect effects[] = {
		RP_EFFECT_NONE,	 RP_EFFECT_THEN,   RP_EFFECT_NOTIFY,
		RP_EFFECT_STORE, RP_EFFECT_ATOMIC, RP_EFFECT_ZERO};

	for (int i = 0; i < 6; i++) {
		struct rp_job j = {.effect = effects[i]};

		rp_job_fail_memory(&j);
		cr_assert_eq(j.reply.status,
			     i < 3 ? RP_ST_OVERLOADED : RP_ST_FLUSH_FAILED);
		cr_assert_eq(j.reply.detail, i < 3 ? 0 : ENOMEM);
	}
}

/*
 * The limit of a batch counts ranges before they are merged, which bounds the
 * time for merging.
 */
Test(batch, limit_counts_ranges_before_merging)
{
	struct rp_job two = {.n = 2};

	for (int i = 0; i < RP_BATCH_RANGES - 2; i++)
		cr_assert_eq(add_range(&batch, &a, 0, 1), 0);
	cr_assert(rp_batch_has_room(&batch, &two));
	cr_assert_eq(add_range(&batch, &a, 0, 1), 0);
	cr_assert(!rp_batch_has_room(&batch, &two));
	cr_assert_eq(batch.data.set.n, 1);
	rp_batch_reset(&batch);
	cr_assert(rp_batch_has_room(&batch, &two));
}

/* A batch has room for as many regions as ranges: adding one cannot fail. */
Test(batch, a_region_for_each_range)
{
	static struct rp_region many[RP_BATCH_RANGES];

	for (int i = 0; i < RP_BATCH_RANGES; i++) {
		struct rp_job_range r = {&many[i], 0, 1, true};

		many[i] = a.region;
		cr_assert_eq(rp_batch_add(&batch, &r), 0);
	}
	rp_batch_seal(&batch);
	cr_assert_eq(batch.data.nparts, RP_BATCH_RANGES);
	cr_assert_eq(batch.data.parts[RP_BATCH_RANGES - 1].region,
		     &many[RP_BATCH_RANGES - 1]);
}

/* Jobs that have only an ordered store to flush fill a batch, too. */
Test(batch, a_region_for_each_ordered_store)
{
	static struct rp_region many[RP_BATCH_RANGES + 1];
	struct rp_job *j = rp_job_new(1, 0);
	int n = 0;

	j->ranges[0].region = &a.region;
	for (j->then.flush = true; n < RP_BATCH_RANGES; n++) {
		many[n] = a.region;
		j->then.region = &many[n];
		if (!rp_batch_has_room(&batch, j))
			break;
		cr_assert_eq(rp_batch_merge(&batch, &batch, j), 0);
	}
	cr_assert_eq(n, RP_BATCH_RANGES - 1);
	j->then.region = NULL;
	cr_assert(rp_batch_has_room(&batch, j));
	rp_batch_seal(&batch);
	cr_assert_eq(batch.then.nparts, RP_BATCH_RANGES - 1);
	free(j);
}

Test(batch, no_memory)
{
	struct rp_batch other;
	int i = 0;

	no_memory = true;
	cr_assert_eq(rp_batch_init(&other), -ENOMEM);
	cr_assert_null(rp_job_new(1, 0));
	cr_assert_eq(add_range(&batch, &a, 0, 1), -ENOMEM);
	no_memory = false;
	cr_assert_eq(add_range(&batch, &a, 0, 1), 0);
	for (i = 1; batch.data.set.n < batch.data.set.cap; i++)
		cr_assert_eq(add_range(&batch, &a, 2 * i * LINE, 1), 0);
	no_memory = true;
	cr_assert_eq(add_range(&batch, &a, 2 * i * LINE, 1), -ENOMEM);
	no_memory = false;
	/* The batch keeps the ranges that were added before. */
	run_batch(&batch);
	cr_assert_eq(ncalls, i + 1);
	cr_assert_eq(batch.flushes, (uint64_t)i);
}

/* A range at the end of the address space does not wrap around. */
Test(batch, range_at_the_end_of_memory_does_not_wrap)
{
	struct rp_region top = a.region;

	top.base = (void *)(UINTPTR_MAX - 99);
	top.len = 99;
	cr_assert_eq(
		rp_batch_add(&batch, &(struct rp_job_range){&top, 90, 9, true}),
		0);
	cr_assert_eq(batch.data.set.n, 1);
	cr_assert_eq(batch.data.set.v[0].start, UINTPTR_MAX - 63);
	cr_assert_eq(batch.data.set.v[0].end, UINTPTR_MAX);
}

/* A walk of list.h visits every element, even if it removes each one. */
Test(list, walk_survives_removal)
{
	struct rp_jobs jobs = TAILQ_HEAD_INITIALIZER(jobs);
	struct rp_job three[3] = {0}, *j, *next;
	int seen = 0;

	for (int i = 0; i < 3; i++)
		TAILQ_INSERT_TAIL(&jobs, &three[i], link);
	TAILQ_FOREACH_SAFE(j, &jobs, link, next)
	{
		cr_assert_eq(j, &three[seen++]);
		TAILQ_REMOVE(&jobs, j, link);
		j->link.tqe_next = j;
	}
	cr_assert_eq(seen, 3);
	cr_assert(TAILQ_EMPTY(&jobs));
}
