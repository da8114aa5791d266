// SPDX-License-Identifier: BSD-2-Clause
/* Sets of byte ranges as one sorted vector. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/ranges.h"

void rp_ranges_init(struct rp_ranges *r, size_t max)
{
	*r = (struct rp_ranges){.max = max};
}

void rp_ranges_fini(struct rp_ranges *r)
{
	free(r->v);
}

void rp_ranges_reset(struct rp_ranges *r)
{
	r->n = 0;
	r->overflowed = false;
}

static bool wraps(uint64_t start, uint64_t len)
{
	return start > UINT64_MAX - len;
}

/* Does x end before `end` of `space`, without touching it? */
static bool lies_before(const struct rp_range *x, uint64_t space, uint64_t end)
{
	return x->space < space || (x->space == space && x->end < end);
}

/*
 * Index of the first range of a later space than `space`, or of `space` that
 * ends at or behind `end`: the first that an insertion there can touch.
 */
static size_t lower_bound(const struct rp_ranges *r, uint64_t space,
			  uint64_t end)
{
	size_t lo = 0, hi = r->n;

	/* Most insertions are in ascending order. */
	if (hi && lies_before(&r->v[hi - 1], space, end))
		return hi;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (lies_before(&r->v[mid], space, end))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int open_gap(struct rp_ranges *r, size_t at)
{
	if (r->n == r->cap) {
		size_t cap = r->cap ? r->cap * 2 : 8;
		struct rp_range *v = realloc(r->v, cap * sizeof(*v));

		if (!v)
			return -ENOMEM;
		r->v = v;
		r->cap = cap;
	}
	memmove(&r->v[at + 1], &r->v[at], (r->n - at) * sizeof(*r->v));
	r->n++;
	return 0;
}

/* Remove ranges [from, to) from the vector. */
static void close_gap(struct rp_ranges *r, size_t from, size_t to)
{
	memmove(&r->v[from], &r->v[to], (r->n - to) * sizeof(*r->v));
	r->n -= to - from;
}

/*
 * Replace the ranges of the space that has most by one that spans them, unless
 * every space has only one.
 */
static void span_fullest_space(struct rp_ranges *r)
{
	size_t best = 0, most = 1;

	for (size_t i = 0, j; i < r->n; i = j) {
		for (j = i + 1; j < r->n; j++)
			if (r->v[j].space != r->v[i].space)
				break;
		if (j - i > most) {
			best = i;
			most = j - i;
		}
	}
	if (most == 1)
		return;
	for (size_t i = best + 1; i < best + most; i++)
		if (r->v[best].stamp < r->v[i].stamp)
			r->v[best].stamp = r->v[i].stamp;
	r->v[best].end = r->v[best + most - 1].end;
	close_gap(r, best + 1, best + most);
	r->overflowed = true;
}

int rp_ranges_insert(struct rp_ranges *r, uint64_t space, uint64_t start,
		     uint64_t len, uint64_t stamp)
{
	uint64_t end = start + len;
	size_t at, to;
	int ret;

	if (!len)
		return 0;
	if (wraps(start, len))
		return -EOVERFLOW;

	at = lower_bound(r, space, start);
	for (to = at; to < r->n; to++) {
		const struct rp_range *x = &r->v[to];

		if (x->space != space || x->start > end)
			break;
		if (start > x->start)
			start = x->start;
		if (end < x->end)
			end = x->end;
		if (stamp < x->stamp)
			stamp = x->stamp;
	}
	if (at == to) {
		ret = open_gap(r, at);
		if (ret)
			return ret;
	} else {
		close_gap(r, at + 1, to);
	}
	r->v[at] = (struct rp_range){space, start, end, stamp};

	/* One call is enough, because an insertion adds at most one range. */
	if (r->max && r->n > r->max)
		span_fullest_space(r);
	return 0;
}

bool rp_ranges_overlap(const struct rp_ranges *r, uint64_t space,
		       uint64_t start, uint64_t len)
{
	size_t at;

	if (!len)
		return false;
	if (wraps(start, len))
		return true;
	/* start + 1: a range that ends at start shares no byte. */
	at = lower_bound(r, space, start + 1);
	return at < r->n && r->v[at].space == space &&
	       r->v[at].start < start + len;
}

int rp_ranges_clear(struct rp_ranges *r, uint64_t space, uint64_t start,
		    uint64_t len, uint64_t before)
{
	uint64_t end = start + len;
	size_t at;
	int ret;

	if (!len)
		return 0;
	if (wraps(start, len))
		return -EOVERFLOW;

	at = lower_bound(r, space, start);
	while (at < r->n && r->v[at].space == space && r->v[at].start < end) {
		struct rp_range *x = &r->v[at];

		if (x->stamp >= before) {
			at++;
		} else if (x->start < start && x->end > end) {
			/* No room for a second part: keep x whole. */
			if (r->max && r->n >= r->max) {
				r->overflowed = true;
				return 0;
			}
			ret = open_gap(r, at);
			if (ret)
				return ret;
			r->v[at].end = start;
			r->v[at + 1].start = end;
		} else if (x->start < start) {
			x->end = start;
			at++;
		} else if (x->end > end) {
			x->start = end;
		} else {
			close_gap(r, at, at + 1);
		}
	}
	return 0;
}

bool rp_range_inside(uint64_t addr, uint64_t len, uint64_t base, uint64_t size)
{
	return len && !wraps(base, size) && addr >= base &&
	       addr - base <= size && len <= size - (addr - base);
}

void rp_range_round(uint64_t *start, uint64_t *end, uint64_t unit)
{
	*start &= ~(unit - 1);
	*end = wraps(*end, unit - 1) ? UINT64_MAX
				     : (*end + unit - 1) & ~(unit - 1);
}
