/* SPDX-License-Identifier: BSD-2-Clause */
/* Sets of byte ranges: insert, test for overlap, subtract; of bounded size. */
#ifndef RP_RANGES_H
#define RP_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* [start, end) in the space `space` (a key); end > start, never wraps. */
struct rp_range {
	uint64_t space;
	uint64_t start;
	uint64_t end;
	uint64_t stamp; /* the caller's number; the highest of merged ranges */
};

/*
 * Sorted by (space, start), disjoint. Touching ranges of one space are merged,
 * whatever their stamps: the higher stamp stays, so rp_ranges_clear() removes
 * less. At most `max` ranges are kept, but at least one per space: beyond that
 * the ranges of the space with most become one that spans them (the set may
 * then cover more bytes, never fewer), and `overflowed` is set.
 */
struct rp_ranges {
	struct rp_range *v;
	size_t n, cap, max;
	bool overflowed;
};

/* max 0: no bound. Allocates nothing until the first insert. */
void rp_ranges_init(struct rp_ranges *r, size_t max);
void rp_ranges_fini(struct rp_ranges *r);

/*
 * Add [start, start+len). len 0 is a no-op. Returns 0, -EOVERFLOW when
 * start+len wraps, -ENOMEM (then the set covers at least what it did before; a
 * poison set's owner must treat that as "everything is poisoned").
 */
int rp_ranges_insert(struct rp_ranges *r, uint64_t space, uint64_t start,
		     uint64_t len, uint64_t stamp);

/* Does [start, start+len) of space share a byte with the set? Wraps: true. */
bool rp_ranges_overlap(const struct rp_ranges *r, uint64_t space,
		       uint64_t start, uint64_t len);

/*
 * Remove [start, start+len) from every range of space with stamp < before. A
 * range that exceeds it at both ends is split, or stays whole: on -ENOMEM, or
 * if the set is full (0, `overflowed` is set). -EOVERFLOW: start+len wraps.
 */
int rp_ranges_clear(struct rp_ranges *r, uint64_t space, uint64_t start,
		    uint64_t len, uint64_t before);

/* Remove all ranges; keep the memory. */
void rp_ranges_reset(struct rp_ranges *r);

/*
 * The range check of every request: is [addr, addr+len) inside
 * [base, base+size)? False when anything wraps or len is 0.
 */
bool rp_range_inside(uint64_t addr, uint64_t len, uint64_t base, uint64_t size);

/*
 * Extend [*start, *end) to multiples of unit (a power of two); an end that
 * would wrap becomes UINT64_MAX.
 */
void rp_range_round(uint64_t *start, uint64_t *end, uint64_t unit);

#endif
