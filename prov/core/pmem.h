/* SPDX-License-Identifier: BSD-2-Clause */
/* Stores to one region and their flushes, by libpmem2 and msync. */
#ifndef RP_PMEM_H
#define RP_PMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/atomic.h"
#include "core/caps.h"
#include "core/method.h"
#include "core/stats.h"

/* The line size of libpmem2 on every CPU it supports. */
#define RP_CACHE_LINE 64

/*
 * The instructions, as a table that a simulator can replace. NULL members mean
 * the real ones (libpmem2's flush and drain for this CPU, msync(2), a store).
 */
struct rp_pmem_ops {
	/* MS_SYNC of whole pages; 0 or -errno. */
	int (*sync)(void *ctx, void *addr, size_t len);
	/* Split the large folios of these pages; NULL: no split. */
	void (*split)(void *ctx, void *addr, size_t len);
	/* Write back the cache lines of [addr, addr+len); needs drain. */
	void (*flush)(void *ctx, const void *addr, size_t len);
	/* All lines flushed before are in the persistence domain afterwards. */
	void (*drain)(void *ctx);
	/* One store of 8 bytes, to a multiple of 8. */
	void (*store8)(void *ctx, uint64_t *addr, uint64_t value);
	/* Store len bytes; each aligned 8 bytes inside by one store. */
	void (*copy)(void *ctx, void *to, const void *from, size_t len);
	/* Store whole lines with non-temporal stores; needs drain. */
	void (*stream)(void *ctx, void *to, const void *from, size_t len);
	/* Report bytes that an atomic changed (for a simulator). */
	void (*changed)(void *ctx, void *addr, size_t len);
	/* Monotonic time in ns, to measure syncs. */
	uint64_t (*now)(void *ctx);
	void *ctx;
};

/* The memory of one region, bound to the method that makes it durable. */
struct rp_pmem;

/*
 * Bind [addr, addr+len) to a method. Any address and length; regions may
 * overlap. libpmem2 chooses the instructions for this CPU; the range is not
 * mapped with libpmem2, so any mapping of the caller works. Memory stays the
 * caller's and must stay mapped until rp_pmem_delete(). DELIVERY gives an
 * object whose flush does nothing. file: the file that the msync methods sync;
 * NULL or ino 0: not shared. Returns 0, -ENOTSUP (this build cannot carry out
 * the method here), -ENOMEM, -EINVAL (empty or wrapping range).
 */
int rp_pmem_new(void *addr, size_t len, enum rp_method method,
		const struct rp_file_id *file, const struct rp_pmem_ops *ops,
		struct rp_pmem **out);
void rp_pmem_delete(struct rp_pmem *pm);

/*
 * Pages stay populated, as on a device DAX, which cannot be truncated:
 * rp_pmem_populate() then calls madvise() once for each 2 MiB.
 */
void rp_pmem_keep_populated(struct rp_pmem *pm);
/* Anonymous memory: a store never faults, so no madvise() is needed. */
void rp_pmem_set_anonymous(struct rp_pmem *pm);

/*
 * Use AGENT_CLWB from now on, unless the method syncs pages. 0 or -errno. The
 * caller makes no other call on this object meanwhile.
 */
int rp_pmem_use_clwb(struct rp_pmem *pm);

/* Count flushes of the region in stats. */
void rp_pmem_set_stats(struct rp_pmem *pm, struct rp_stats_region *stats);
/* Count the time since start as line flushing; nothing if pm uses msync. */
void rp_pmem_count_time(struct rp_pmem *pm, uint64_t start);

/* Does the method block on a disk, so that a worker should run it? */
bool rp_pmem_blocks(const struct rp_pmem *pm);
/* Granularity of one flush: a line, a page; delivery, sfence: 1. */
size_t rp_pmem_granularity(const struct rp_pmem *pm);

/*
 * Start making bytes [off, off+len) durable; the caller checked the range. clwb
 * methods write lines back, msync methods sync the pages at once, sfence leaves
 * all to the drain. Returns 0 or -errno of msync (-EFAULT: the region's file
 * was truncated). After a failure the caller must never trust the region again:
 * the kernel reports a write-back error once, and maybe for other bytes. So
 * every other region of the file in this process fails its next flush with the
 * same error too, until it is registered anew.
 */
int rp_pmem_flush(struct rp_pmem *pm, uint64_t off, uint64_t len);
/*
 * Split the large folios of a range of at most 64 KiB that was just flushed, so
 * that its next flush writes these pages only. File systems with large folios
 * (xfs since Linux 5.18, ext4 since 6.16) write a whole folio, up to 2 MiB, for
 * one stored byte, if the file was read or written in sequence
 * (docs/measurements.md).
 */
void rp_pmem_split_folios(struct rp_pmem *pm, uint64_t off, uint64_t len);
/*
 * Is one flush of n ranges with all bytes between them cheaper than n flushes?
 * Yes for msync, unless earlier spans were slower, as pages in between may be
 * dirty, too. If true, the caller must call rp_pmem_flush_span().
 */
bool rp_pmem_prefers_span(struct rp_pmem *pm, size_t n);
/* As rp_pmem_flush(), for a span that contains n ranges. */
int rp_pmem_flush_span(struct rp_pmem *pm, uint64_t off, uint64_t len,
		       size_t n);
/*
 * Populate the pages of [off, off+len) for a store: 0, or the -errno of the
 * error that a store would report as a signal (file truncated, disk full;
 * -EACCES: read-only). They stay populated unless the kernel takes them away
 * before the store.
 */
int rp_pmem_populate(struct rp_pmem *pm, uint64_t off, uint64_t len);
/*
 * Store 8 bytes at off, all of them or none, ordered behind every earlier
 * store; off is at a multiple of 8 in memory. The store is not durable yet.
 */
void rp_pmem_store8(struct rp_pmem *pm, uint64_t off, uint64_t value);
/*
 * Store len bytes at off, ordered behind every earlier store and before every
 * later one; each aligned 8 bytes all or none. *durable: no flush is needed. 0,
 * or as rp_pmem_populate(): nothing stored.
 */
int rp_pmem_store(struct rp_pmem *pm, uint64_t off, const void *bytes,
		  uint64_t len, bool *durable);
/*
 * Store bytes as an RDMA write does: neither atomic nor durable. 0, or as
 * rp_pmem_populate().
 */
int rp_pmem_place(struct rp_pmem *pm, uint64_t off, const void *bytes,
		  uint64_t len);
/*
 * Execute an atomic on the elements of [off, off+len) by core/atomic.h. 0, or
 * as rp_pmem_populate(): nothing executed.
 */
int rp_pmem_atomic(struct rp_pmem *pm, uint64_t off, uint64_t len,
		   enum rp_atomic_op op, enum rp_atomic_type type,
		   const void *operand, const void *compare, void *result);
/* All bytes flushed before are durable when this returns. */
void rp_pmem_drain(struct rp_pmem *pm);

#endif
