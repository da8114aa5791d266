// SPDX-License-Identifier: BSD-2-Clause
/* Make bytes of one region durable: cache lines, pages, or both. */
#include <errno.h>
#include <libpmem2.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/fault.h"
#include "core/hash.h"
#include "core/pmem.h"
#include "core/thread.h"

/*
 * After a flush of a span that was slower than flushes of its ranges, the next
 * skip_spans flushes go range by range: 1 at first, doubled each time.
 */
#define MAX_SKIP_SPANS 64

/* Longest range whose large folios are split. */
#define MAX_SPLIT_LEN (64u << 10)

/* Bytes that one madvise() populates: a huge page of a device DAX. */
#define CHUNK ((uintptr_t)2 << 20)
#define BITS  (8 * sizeof(unsigned long))

/*
 * A file that regions share. The kernel remembers a failed write-back per open
 * file, not per page, and reports it to the first msync: measured, bytes of one
 * half of a file were lost, msync of the other half reported that, and msync of
 * the lost half then returned 0. The lock makes the sync and the record of its
 * outcome one step.
 */
struct file {
	struct rp_file_id id;
	unsigned int refs;
	pthread_mutex_t lock;
	unsigned int failures; /* failed syncs so far */
	int err;	       /* -errno of the last failure */
	UT_hash_handle hh;
};
static struct file *files;
static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;

struct rp_pmem {
	uintptr_t base, end;
	size_t page;
	/* A bit for each populated chunk; NULL: pages may disappear. */
	atomic_ulong *populated;
	bool anonymous;
	struct file *file;     /* NULL: no other region shares it */
	unsigned int failures; /* file->failures at creation of this object */
	size_t granularity;
	bool may_stream;	 /* may use non-temporal stores */
	bool uses_msync;	 /* method msync: blocks on a disk */
	uint64_t sync_ns;	 /* time to sync one range; 0: unknown */
	unsigned int skip_spans; /* next flushes that go range by range */
	unsigned int next_skip;	 /* `skip_spans` after the next slow span */
	struct rp_stats_region *stats;
	int (*flush)(struct rp_pmem *pm, uintptr_t start, uintptr_t end);
	void (*drain)(struct rp_pmem *pm);
	struct rp_pmem_ops ops; /* only split and changed may be NULL */
};

/*
 * libpmem2's flush functions depend on the CPU and on the granularity of the
 * map that returns them, not on the map: they take plain addresses. So they are
 * taken once, from a map of this buffer, which is then deleted. A region is
 * never mapped with libpmem2: regions may overlap, be unaligned, or be mapped
 * with libpmem2 by the program (libpmem2 refuses to map all of these again),
 * and PMEM2_FORCE_GRANULARITY, which turns flushes of file maps off, has no
 * effect here.
 */
static char probe[RP_CACHE_LINE];
static pmem2_flush_fn cpu_flush;
static pmem2_drain_fn cpu_drain;
static int cpu_flush_err;
static pthread_once_t cpu_once = PTHREAD_ONCE_INIT;

static void cpu_init(void)
{
	struct pmem2_source *src;
	struct pmem2_map *map;
	int ret = pmem2_source_from_anon(&src, sizeof(probe));

	if (ret)
		goto out;
	ret = pmem2_map_from_existing(&map, src, probe, sizeof(probe),
				      PMEM2_GRANULARITY_CACHE_LINE);
	if (!ret) {
		cpu_flush = pmem2_get_flush_fn(map);
		cpu_drain = pmem2_get_drain_fn(map);
		pmem2_map_delete(&map);
	}
	pmem2_source_delete(&src);
out:
	/* libpmem2's own error numbers are smaller than every -errno. */
	cpu_flush_err = ret <= PMEM2_E_UNKNOWN ? -ENOTSUP : ret;
}

static void real_flush(void *ctx, const void *addr, size_t len)
{
	cpu_flush(addr, len);
}

static void real_drain(void *ctx)
{
	cpu_drain();
}

/*
 * msync(2), not libpmem2's persist for pages: that does not return on a map of
 * existing memory, and aborts the process when msync fails.
 *
 * msync passes over pages behind the end of a truncated file and returns 0, so
 * check the last page afterwards: if it exists, no page before it was cut off
 * until all were written. (Kernels before 5.14 have no MADV_POPULATE_READ.)
 */
static int real_sync(void *ctx, void *addr, size_t len)
{
	size_t page = sysconf(_SC_PAGESIZE);
	char *last = (char *)addr + len - page;

	if (msync(addr, len, MS_SYNC))
		return -errno;
	if (madvise(last, page, MADV_POPULATE_READ) && errno != EINVAL)
		return -errno;
	return 0;
}

static void real_split(void *ctx, void *addr, size_t len)
{
	madvise(addr, len, MADV_COLD);
}

static void real_store8(void *ctx, uint64_t *addr, uint64_t value)
{
	__atomic_store_n(addr, value, __ATOMIC_RELEASE);
}

/*
 * Copy word by word: memcpy() may store bytes twice and words in parts, and a
 * power cut in between would tear a word.
 */
static void real_copy(void *ctx, void *to, const void *from, size_t len)
{
	const uint8_t *in = from;
	uint8_t *out = to;
	uint64_t word;

	for (; len && (uintptr_t)out % sizeof(word); len--)
		__atomic_store_n(out++, *in++, __ATOMIC_RELAXED);
	for (; len >= sizeof(word); len -= sizeof(word)) {
		memcpy(&word, in, sizeof(word));
		__atomic_store_n((uint64_t *)out, word, __ATOMIC_RELAXED);
		in += sizeof(word);
		out += sizeof(word);
	}
	for (; len; len--)
		__atomic_store_n(out++, *in++, __ATOMIC_RELAXED);
}

/* Use one instruction per word, which libpmem2's memcpy does not promise. */
#ifdef __x86_64__
#define STREAMS true
static void real_stream(void *ctx, void *to, const void *from, size_t len)
{
	const char *in = from;
	long long *out = to;
	long long word;

	for (size_t i = 0; i < len / sizeof(word); i++) {
		memcpy(&word, in + i * sizeof(word), sizeof(word));
		__builtin_ia32_movnti64(out + i, word);
	}
	rp_fault_streamed(to, len);
}
#else
#define STREAMS	    false
#define real_stream real_copy
#endif

static uint64_t real_now(void *ctx)
{
	return rp_clock_ns(CLOCK_MONOTONIC);
}

/* Extend [start, end) to multiples of unit (a power of two); its length. */
static size_t round_to_units(uintptr_t *start, uintptr_t end, size_t unit)
{
	*start &= ~(uintptr_t)(unit - 1);
	return ((end - *start) + unit - 1) & ~(unit - 1);
}

static int flush_nothing(struct rp_pmem *pm, uintptr_t start, uintptr_t end)
{
	return 0;
}

static int flush_lines(struct rp_pmem *pm, uintptr_t start, uintptr_t end)
{
	size_t len = round_to_units(&start, end, RP_CACHE_LINE);

	pm->ops.flush(pm->ops.ctx, (void *)start, len);
	return 0;
}

static int sync_pages(struct rp_pmem *pm, uintptr_t start, uintptr_t end)
{
	size_t len = round_to_units(&start, end, pm->granularity);

	if (RP_FAULT("fail-flush"))
		return -EIO;
	return pm->ops.sync(pm->ops.ctx, (void *)start, len);
}

static int flush_pages(struct rp_pmem *pm, uintptr_t start, uintptr_t end)
{
	struct file *f = pm->file;
	int ret;

	if (!f)
		return sync_pages(pm, start, end);
	pthread_mutex_lock(&f->lock);
	ret = sync_pages(pm, start, end);
	if (ret) {
		f->failures++;
		f->err = ret;
	} else if (f->failures != pm->failures) {
		ret = f->err;
	}
	pthread_mutex_unlock(&f->lock);
	return ret;
}

/*
 * Write back the lines first, then msync the metadata that leads to them: msync
 * may find no page dirty (the device wrote past the mapping) and then does not
 * flush caches, so the lines must be written back before the call.
 */
static int flush_both(struct rp_pmem *pm, uintptr_t start, uintptr_t end)
{
	flush_lines(pm, start, end);
	pm->ops.drain(pm->ops.ctx);
	return flush_pages(pm, start, end);
}

static void drain_nothing(struct rp_pmem *pm)
{
}

/* sfence: wait for line write-backs, and for non-temporal stores. */
static void drain_stores(struct rp_pmem *pm)
{
	pm->ops.drain(pm->ops.ctx);
}

static int bind_method(struct rp_pmem *pm, enum rp_method method)
{
	bool cpu = true; /* the method needs CPU instructions */

	pm->granularity = 1;
	pm->drain = drain_nothing;
	switch (method) {
	case RP_METHOD_DELIVERY:
		pm->flush = flush_nothing;
		cpu = false;
		break;
	case RP_METHOD_AGENT_SFENCE:
		/* Bytes in CPU caches need no flush for this method. */
		pm->flush = flush_nothing;
		pm->drain = drain_stores;
		break;
	case RP_METHOD_AGENT_CLWB:
		pm->flush = flush_lines;
		pm->drain = drain_stores;
		pm->granularity = RP_CACHE_LINE;
		pm->may_stream = STREAMS;
		break;
	case RP_METHOD_AGENT_MSYNC:
		pm->flush = flush_pages;
		pm->uses_msync = true;
		cpu = false;
		break;
	case RP_METHOD_AGENT_CLWB_MSYNC:
		pm->flush = flush_both;
		pm->uses_msync = true;
		break;
	default:
		return -ENOTSUP;
	}
	if (pm->uses_msync)
		pm->granularity = pm->page;
	if (!cpu || (pm->ops.flush && pm->ops.drain))
		return 0;
	pthread_once(&cpu_once, cpu_init);
	return cpu_flush_err;
}

/* The caller holds files_lock. NULL: no memory. */
static struct file *file_new(const struct rp_file_id *id)
{
	struct file *f = calloc(1, sizeof(*f));
	bool oom = false;

	if (!f)
		return NULL;
	f->id = *id;
	HASH_ADD(hh, files, id, sizeof(f->id), f);
	if (oom) {
		free(f);
		return NULL;
	}
	pthread_mutex_init(&f->lock, NULL);
	return f;
}

static int file_get(struct rp_pmem *pm, const struct rp_file_id *id)
{
	struct file *f;

	pthread_mutex_lock(&files_lock);
	HASH_FIND(hh, files, id, sizeof(*id), f);
	if (!f)
		f = file_new(id);
	if (f)
		f->refs++;
	pthread_mutex_unlock(&files_lock);
	if (!f)
		return -ENOMEM;
	/* Ignore earlier failures; wait for an msync in progress. */
	pthread_mutex_lock(&f->lock);
	pm->failures = f->failures;
	pthread_mutex_unlock(&f->lock);
	pm->file = f;
	return 0;
}

static void file_put(struct file *f)
{
	pthread_mutex_lock(&files_lock);
	if (!--f->refs) {
		HASH_DEL(files, f);
		pthread_mutex_destroy(&f->lock);
		free(f);
	}
	pthread_mutex_unlock(&files_lock);
}

int rp_pmem_new(void *addr, size_t len, enum rp_method method,
		const struct rp_file_id *file, const struct rp_pmem_ops *ops,
		struct rp_pmem **out)
{
	struct rp_pmem *pm;
	int ret;

	if (!addr || !len || (uintptr_t)addr + len < (uintptr_t)addr)
		return -EINVAL;
	pm = calloc(1, sizeof(*pm));
	if (!pm)
		return -ENOMEM;
	pm->base = (uintptr_t)addr;
	pm->end = pm->base + len;
	pm->page = sysconf(_SC_PAGESIZE);
	pm->next_skip = 1;
	pm->stats = &rp_stats_no_region;
	if (ops)
		pm->ops = *ops;
	ret = bind_method(pm, method);
	if (!ret && pm->uses_msync && file && file->ino)
		ret = file_get(pm, file);
	if (ret) {
		free(pm);
		return ret;
	}
	if (!pm->ops.sync)
		pm->ops.split = real_split;
#define REAL(op) pm->ops.op = pm->ops.op ? pm->ops.op : real_##op
	REAL(sync);
	REAL(flush);
	REAL(drain);
	REAL(store8);
	REAL(copy);
	REAL(stream);
	REAL(now);
#undef REAL
	*out = pm;
	return 0;
}

void rp_pmem_delete(struct rp_pmem *pm)
{
	if (!pm)
		return;
	if (pm->file)
		file_put(pm->file);
	free(pm->populated);
	free(pm);
}

int rp_pmem_use_clwb(struct rp_pmem *pm)
{
	return pm->uses_msync ? 0 : bind_method(pm, RP_METHOD_AGENT_CLWB);
}

void rp_pmem_set_stats(struct rp_pmem *pm, struct rp_stats_region *stats)
{
	pm->stats = stats;
}

void rp_pmem_count_time(struct rp_pmem *pm, uint64_t start)
{
	if (pm->uses_msync)
		return;
	rp_stats_add(&pm->stats->flush_ticks, rp_stats_ticks_since(&start));
	rp_stats_add(&pm->stats->flushes, 1);
}

/* Count one msync. */
static uint64_t count_sync(struct rp_pmem *pm, uint64_t start)
{
	const uint64_t ns = pm->ops.now(pm->ops.ctx) - start;

	rp_stats_add(&pm->stats->msync_ns, ns);
	rp_stats_add(&pm->stats->msyncs, 1);
	return ns;
}

bool rp_pmem_blocks(const struct rp_pmem *pm)
{
	return pm->uses_msync;
}

size_t rp_pmem_granularity(const struct rp_pmem *pm)
{
	return pm->granularity;
}

static int flush_range(struct rp_pmem *pm, uint64_t off, uint64_t len)
{
	if (RP_FAULT("slow-flush"))
		rp_fault_sleep();
	if (RP_FAULT("skip-flush") || !len)
		return 0;
	return pm->flush(pm, pm->base + off, pm->base + off + len);
}

/* Average the time of syncs; slow ones count more, as clean pages take none. */
static void learn_sync_time(struct rp_pmem *pm, uint64_t ns)
{
	if (ns >= pm->sync_ns)
		pm->sync_ns = ns + !ns;
	else
		pm->sync_ns -= (pm->sync_ns - ns) / 16;
}

int rp_pmem_flush(struct rp_pmem *pm, uint64_t off, uint64_t len)
{
	uint64_t start;
	int ret;

	if (!pm->uses_msync)
		return flush_range(pm, off, len);
	start = pm->ops.now(pm->ops.ctx);
	ret = flush_range(pm, off, len);
	learn_sync_time(pm, count_sync(pm, start));
	return ret;
}

bool rp_pmem_prefers_span(struct rp_pmem *pm, size_t n)
{
	/* clwb of a span would write back lines between the ranges, too. */
	if (n < 2 || pm->flush != flush_pages || !pm->sync_ns)
		return false;
	if (!pm->skip_spans)
		return true;
	pm->skip_spans--;
	return false;
}

int rp_pmem_flush_span(struct rp_pmem *pm, uint64_t off, uint64_t len, size_t n)
{
	uint64_t start = pm->ops.now(pm->ops.ctx);
	int ret = flush_range(pm, off, len);

	if (count_sync(pm, start) > n * pm->sync_ns) {
		pm->skip_spans = pm->next_skip;
		if (pm->next_skip < MAX_SKIP_SPANS)
			pm->next_skip *= 2;
	} else {
		pm->next_skip = 1;
	}
	return ret;
}

void rp_pmem_split_folios(struct rp_pmem *pm, uint64_t off, uint64_t len)
{
	uintptr_t start = pm->base + off;

	if (!pm->uses_msync || !pm->ops.split || len > MAX_SPLIT_LEN)
		return;
	len = round_to_units(&start, start + len, pm->page);
	pm->ops.split(pm->ops.ctx, (void *)start, len);
}

/* Does the kernel have MADV_POPULATE_*? Before 5.14 it returns EINVAL. */
static bool kernel_populates(size_t page)
{
	uintptr_t p = (uintptr_t)probe & ~(uintptr_t)(page - 1);

	return !madvise((void *)p, page, MADV_POPULATE_READ);
}

/* 0 or -errno. EINVAL means an old kernel: 0, or read-only pages: -EACCES. */
static int populate(struct rp_pmem *pm, uintptr_t start, uintptr_t end,
		    int advice)
{
	size_t len = round_to_units(&start, end, pm->page);

	if (!madvise((void *)start, len, advice))
		return 0;
	if (errno != EINVAL)
		return -errno;
	return kernel_populates(pm->page) ? -EACCES : 0;
}

static int populate_chunk(struct rp_pmem *pm, uintptr_t chunk)
{
	const uintptr_t nth = chunk - pm->base / CHUNK;
	const unsigned long bit = 1ul << nth % BITS;
	uintptr_t start = chunk * CHUNK, end = start + CHUNK;
	int ret;

	if (atomic_load_explicit(&pm->populated[nth / BITS],
				 memory_order_relaxed) &
	    bit)
		return 0;
	start = start > pm->base ? start : pm->base;
	end = end && end < pm->end ? end : pm->end;
	ret = populate(pm, start, end, MADV_POPULATE_WRITE);
	if (!ret)
		atomic_fetch_or_explicit(&pm->populated[nth / BITS], bit,
					 memory_order_relaxed);
	return ret;
}

int rp_pmem_populate(struct rp_pmem *pm, uint64_t off, uint64_t len)
{
	uintptr_t start = pm->base + off, end = start + len;
	bool ready = pm->populated;

	if (pm->anonymous)
		return 0;
	for (uintptr_t c = start / CHUNK; ready && c <= (end - 1) / CHUNK; c++)
		ready = !populate_chunk(pm, c);
	/* A bad page of a chunk must not fail a store to other pages. */
	return ready ? 0 : populate(pm, start, end, MADV_POPULATE_WRITE);
}

void rp_pmem_keep_populated(struct rp_pmem *pm)
{
	uintptr_t n = (pm->end - 1) / CHUNK - pm->base / CHUNK + 1;

	/* If there is no memory for the bits, each store calls madvise(). */
	if (!pm->populated)
		pm->populated = calloc(n / BITS + 1, sizeof(*pm->populated));
}

void rp_pmem_set_anonymous(struct rp_pmem *pm)
{
	pm->anonymous = true;
}

/*
 * Store whole lines with non-temporal stores, and the partial lines at both
 * ends with normal stores and flushes. Non-temporal stores are faster only if
 * no flush of these lines follows, so this function makes all bytes durable.
 * The drain also keeps the order: later stores become visible later.
 */
static void store_streamed(struct rp_pmem *pm, uintptr_t start, uintptr_t first,
			   uintptr_t last, uintptr_t end, const char *bytes)
{
	void *ctx = pm->ops.ctx;

	if (start < first) {
		pm->ops.copy(ctx, (void *)start, bytes, first - start);
		flush_lines(pm, start, first);
	}
	pm->ops.stream(ctx, (void *)first, bytes + (first - start),
		       last - first);
	if (last < end) {
		pm->ops.copy(ctx, (void *)last, bytes + (last - start),
			     end - last);
		flush_lines(pm, last, end);
	}
	pm->ops.drain(ctx);
}

int rp_pmem_store(struct rp_pmem *pm, uint64_t off, const void *bytes,
		  uint64_t len, bool *durable)
{
	uintptr_t start = pm->base + off, end = start + len;
	uintptr_t first = (start + RP_CACHE_LINE - 1) & ~(RP_CACHE_LINE - 1ul);
	uintptr_t last = end & ~(RP_CACHE_LINE - 1ul);
	int ret = rp_pmem_populate(pm, off, len);
	uint64_t now;

	if (ret)
		return ret;
	*durable = pm->may_stream && first < last && !RP_FAULT("skip-flush");
	if (!*durable) {
		pm->ops.copy(pm->ops.ctx, (void *)start, bytes, len);
		return 0;
	}
	now = rp_stats_now();
	store_streamed(pm, start, first, last, end, bytes);
	rp_pmem_count_time(pm, now);
	return 0;
}

int rp_pmem_place(struct rp_pmem *pm, uint64_t off, const void *bytes,
		  uint64_t len)
{
	int ret = rp_pmem_populate(pm, off, len);

	if (!ret)
		pm->ops.copy(pm->ops.ctx, (void *)(pm->base + off), bytes, len);
	return ret;
}

void rp_pmem_store8(struct rp_pmem *pm, uint64_t off, uint64_t value)
{
	pm->ops.store8(pm->ops.ctx, (uint64_t *)(pm->base + off), value);
}

int rp_pmem_atomic(struct rp_pmem *pm, uint64_t off, uint64_t len,
		   enum rp_atomic_op op, enum rp_atomic_type type,
		   const void *operand, const void *compare, void *result)
{
	char *p = (char *)pm->base + off;
	size_t size;
	int ret;

	if (!rp_atomic_valid(op, type, &size))
		return -EINVAL;
	ret = op == RP_ATOMIC_READ
		      ? populate(pm, (uintptr_t)p, (uintptr_t)p + len,
				 MADV_POPULATE_READ)
		      : rp_pmem_populate(pm, off, len);
	if (ret)
		return ret;
	rp_atomic_execute(op, type, p, operand, compare, result, len / size);
	if (op != RP_ATOMIC_READ && pm->ops.changed)
		pm->ops.changed(pm->ops.ctx, p, len);
	return 0;
}

void rp_pmem_drain(struct rp_pmem *pm)
{
	pm->drain(pm);
}
