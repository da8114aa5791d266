/* SPDX-License-Identifier: BSD-2-Clause */
/* Flushing of one region; the only user of libpmem2 and msync. */
#ifndef RP_PMEM_H
#define RP_PMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/atomic.h"
#include "core/cost.h"
#include "core/method.h"

#define RP_CACHE_LINE 64

/*
 * The instructions, as a table, so that a simulator can supply its own.
 * NULL members mean the real ones (libpmem2's flush and drain for this CPU,
 * msync(2), a store).
 */
struct rp_pmem_ops {
	/* MS_SYNC of whole pages; 0 or -errno. */
	int (*sync)(void *ctx, void *addr, size_t len);
	/* Write back the cache lines of [addr, addr+len); needs drain. */
	void (*flush)(void *ctx, const void *addr, size_t len);
	/* Everything flushed before is in the persistence domain after. */
	void (*drain)(void *ctx);
	/* One store, to an address that is a multiple of 8. */
	void (*store8)(void *ctx, uint64_t *addr, uint64_t value);
	/* Many: each aligned 8 bytes that are all in there, by one. */
	void (*copy)(void *ctx, void *to, const void *from, size_t len);
	/* The same of whole lines, past the caches; needs drain. */
	void (*stream)(void *ctx, void *to, const void *from, size_t len);
	/* These bytes were changed by atomics: for who keeps accounts. */
	void (*changed)(void *ctx, void *addr, size_t len);
	/* Monotonic time in ns, to see how long syncs take. */
	uint64_t (*now)(void *ctx);
	void *ctx;
};

/* What makes one region durable, bound once. */
struct rp_pmem;

/*
 * Bind [addr, addr+len) to a method. Any address and length; regions may
 * overlap. libpmem2 chooses the instructions for this CPU; no libpmem2 map of
 * the range is made, so it does not matter who mapped it and how. Memory stays
 * the caller's and must stay mapped until rp_pmem_delete(). DELIVERY gives an
 * object whose flush does nothing. file: what the msync methods sync; NULL or
 * ino 0: nobody shares it. Returns 0, -ENOTSUP (a method that this build does
 * not carry out here), -ENOMEM, -EINVAL (empty or wrapping range).
 */
int rp_pmem_new(void *addr, size_t len, enum rp_method method,
		const struct rp_file_id *file, const struct rp_pmem_ops *ops,
		struct rp_pmem **out);
void rp_pmem_delete(struct rp_pmem *pm);

/*
 * What this machine was measured to cost: which stores go past the caches, and
 * what a sync takes that nobody has seen yet. Without it all whole lines do,
 * and the first sync is looked at. The figures stay the caller's.
 */
void rp_pmem_calibrate(struct rp_pmem *pm, const struct rp_cost *measured);

/*
 * Its pages stay once they are there: a device DAX, which nothing cuts short.
 * Then rp_pmem_ready() asks the kernel once for each 2 MiB.
 */
void rp_pmem_stays(struct rp_pmem *pm);
/* It is anonymous memory: a store gets its page, and the kernel is not asked.
 */
void rp_pmem_anonymous(struct rp_pmem *pm);

/* Does the method block on a disk, so that it belongs on a worker? */
bool rp_pmem_blocks(const struct rp_pmem *pm);
/* Bytes that one flush covers at least: line, page; delivery, sfence: 1. */
size_t rp_pmem_granularity(const struct rp_pmem *pm);

/*
 * Start making bytes [off, off+len) durable; the caller checked the range.
 * clwb methods write lines back, msync methods sync the pages at once, sfence
 * leaves it all to the drain.
 * Returns 0 or -errno of msync (-EFAULT: the file was cut short under the
 * region). After a failure the caller must never trust the region again: the
 * kernel reports a write-back error once, and not with the bytes that it was
 * for. So every other region of the file fails its next flush with the same
 * error too, in this process, until it is made anew.
 */
int rp_pmem_flush(struct rp_pmem *pm, uint64_t off, uint64_t len);
/*
 * Would one flush of n ranges and all that lies between them be cheaper than n?
 * So it is where each waits for the disk, unless it was seen to take longer:
 * the pages between may be dirty as well. Yes: rp_pmem_flush_together() is
 * next.
 */
bool rp_pmem_together(struct rp_pmem *pm, size_t n);
/* As rp_pmem_flush(), of a span that holds n ranges. */
int rp_pmem_flush_together(struct rp_pmem *pm, uint64_t off, uint64_t len,
			   size_t n);
/*
 * Get the pages of [off, off+len) ready for a store: 0, or the -errno of what
 * would be a signal (their file was cut short, its disk is full, they may not
 * be written: -EACCES). They stay ready unless the kernel takes them away
 * before the store.
 */
int rp_pmem_ready(struct rp_pmem *pm, uint64_t off, uint64_t len);
/*
 * Store 8 bytes at off, all of them or none, behind every store before; the
 * address here is a multiple of 8. Nothing is durable by this.
 */
void rp_pmem_store8(struct rp_pmem *pm, uint64_t off, uint64_t value);
/*
 * Store len bytes at off, behind every store before and before every one after;
 * aligned 8 bytes all or none. *durable: they already are, without a flush.
 * 0, or as rp_pmem_ready(): nothing stored.
 */
int rp_pmem_store(struct rp_pmem *pm, uint64_t off, const void *bytes,
		  uint64_t len, bool *durable);
/*
 * The same of bytes that are only to be placed, as a write places them: not all
 * or none, and not durable.
 */
int rp_pmem_place(struct rp_pmem *pm, uint64_t off, const void *bytes,
		  uint64_t len);
/*
 * Execute an atomic on the elements of [off, off+len), by core/atomic.h. 0, or
 * as rp_pmem_ready(): nothing executed.
 */
int rp_pmem_atomic(struct rp_pmem *pm, uint64_t off, uint64_t len,
		   enum rp_atomic_op op, enum rp_atomic_type type,
		   const void *operand, const void *compare, void *result);
/* Persist before ack: whatever was flushed before is durable after. */
void rp_pmem_drain(struct rp_pmem *pm);

#endif
