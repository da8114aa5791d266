// SPDX-License-Identifier: BSD-2-Clause
/* Copies of the writes that no commit covers yet, in posting order. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "libpool/journal.h"

int rp_journal_init(struct rp_journal *j, uint64_t size)
{
	memset(j, 0, sizeof(*j));
	j->cap = 64;
	j->v = malloc(j->cap * sizeof(*j->v));
	if (!j->v)
		return -ENOMEM;
	j->bytes = mmap(NULL, size, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (j->bytes == MAP_FAILED) {
		free(j->v);
		j->bytes = NULL;
		j->v = NULL;
		return -ENOMEM;
	}
	j->size = size;
	return 0;
}

void rp_journal_fini(struct rp_journal *j)
{
	if (j->bytes)
		munmap(j->bytes, j->size);
	free(j->v);
	memset(j, 0, sizeof(*j));
}

struct rp_journal_entry *rp_journal_at(struct rp_journal *j, uint64_t seq)
{
	return &j->v[seq & (j->cap - 1)];
}

/* Bytes that the entry takes in the ring. */
static uint32_t ring_len(const struct rp_journal_entry *e)
{
	return e->zero ? 0 : e->len;
}

char *rp_journal_bytes(struct rp_journal *j, const struct rp_journal_entry *e)
{
	return j->bytes + e->pos % j->size;
}

static int grow_journal(struct rp_journal *j)
{
	struct rp_journal_entry *v = malloc(2 * j->cap * sizeof(*v));

	if (!v)
		return -ENOMEM;
	for (uint64_t s = j->first; s != j->next; s++)
		v[s & (2 * j->cap - 1)] = *rp_journal_at(j, s);
	free(j->v);
	j->v = v;
	j->cap *= 2;
	return 0;
}

int rp_journal_append(struct rp_journal *j, uint64_t offset, const void *from,
		      uint32_t len, struct work *work, uint64_t *seq)
{
	uint64_t pos = j->tail, left = j->size - pos % j->size;
	const uint32_t bytes = from ? len : 0;
	struct rp_journal_entry *e;

	/* The bytes of an entry are contiguous: skip the rest of the ring. */
	if (left < bytes)
		pos += left;
	if (pos + bytes - j->head > j->size ||
	    j->next - j->first == RP_JOURNAL_ENTRIES)
		return -EAGAIN;
	if (j->next - j->first == j->cap && grow_journal(j))
		return -ENOMEM;
	e = rp_journal_at(j, j->next);
	*e = (struct rp_journal_entry){
		.offset = offset,
		.pos = pos,
		.len = len,
		.zero = !from,
		.work = work,
	};
	if (from)
		memcpy(rp_journal_bytes(j, e), from, len);
	else
		j->zeros += len;
	j->tail = pos + bytes;
	*seq = j->next++;
	return 0;
}

void rp_journal_set_durably(struct rp_journal *j, uint64_t seq)
{
	struct rp_journal_entry *e = rp_journal_at(j, seq);

	e->durably = e->last = true;
	if (j->placed < j->first)
		j->placed = j->first;
	while (j->placed < seq && rp_journal_at(j, j->placed)->placed)
		j->placed++;
	for (uint64_t s = j->placed; s < seq && e->last; s++) {
		const struct rp_journal_entry *o = rp_journal_at(j, s);

		e->last = o->placed || o->offset >= e->offset + e->len ||
			  e->offset >= o->offset + o->len;
	}
}

void rp_journal_unappend(struct rp_journal *j)
{
	const struct rp_journal_entry *e = rp_journal_at(j, --j->next);

	if (e->zero)
		j->zeros -= e->len;
	j->tail = j->head;
	if (j->next == j->first)
		return;
	e = rp_journal_at(j, j->next - 1);
	j->tail = e->pos + ring_len(e);
}

void rp_journal_trim(struct rp_journal *j)
{
	while (j->first != j->next) {
		struct rp_journal_entry *e = rp_journal_at(j, j->first);

		if (!e->placed || (j->first >= j->committed && !e->durable))
			break;
		j->head = e->pos + ring_len(e);
		if (e->zero)
			j->zeros -= e->len;
		j->first++;
	}
	if (j->first == j->next)
		j->head = j->tail;
	if (j->committed < j->first)
		j->committed = j->first;
}

void rp_journal_commit(struct rp_journal *j, uint64_t upto)
{
	if (j->committed < upto)
		j->committed = upto;
	rp_journal_trim(j);
}

bool rp_journal_half_full(const struct rp_journal *j)
{
	return j->tail - j->head > j->size / 2 ||
	       j->next - j->first > RP_JOURNAL_ENTRIES / 2;
}

uint64_t rp_journal_used(const struct rp_journal *j)
{
	return j->tail - j->head + j->zeros;
}

/*
 * The plan splits the pool at the start and the end of every entry. Entries
 * claim the segments between, the newest entry first, so that each segment
 * belongs to the newest entry that covers it.
 */
struct plan {
	uint64_t *cuts;
	size_t ncuts;
	size_t *free_from; /* union-find: the next unclaimed segment */
	struct rp_journal_piece *v;
	size_t n, cap;
};

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static size_t find_cut(const struct plan *p, uint64_t at)
{
	const uint64_t *found =
		bsearch(&at, p->cuts, p->ncuts, sizeof(at), by_value);

	return (size_t)(found - p->cuts);
}

static size_t find_free(struct plan *p, size_t i)
{
	while (p->free_from[i] != i) {
		p->free_from[i] = p->free_from[p->free_from[i]];
		i = p->free_from[i];
	}
	return i;
}

static int add_piece(struct plan *p, struct rp_journal *j,
		     const struct rp_journal_entry *e, uint64_t start,
		     uint64_t end)
{
	struct rp_journal_piece *v;

	if (p->n == p->cap) {
		v = realloc(p->v, (2 * p->cap + 16) * sizeof(*v));
		if (!v)
			return -ENOMEM;
		p->v = v;
		p->cap = 2 * p->cap + 16;
	}
	p->v[p->n++] = (struct rp_journal_piece){
		.offset = start,
		.bytes = e->zero ? NULL
				 : rp_journal_bytes(j, e) + (start - e->offset),
		.len = (uint32_t)(end - start),
	};
	return 0;
}

/*
 * Claim the unclaimed segments of one entry; adjacent ones become one piece. An
 * entry that is durable behind all others of its bytes is not written again:
 * its bytes may be older than the store of a commit, or than later writes of
 * another client.
 */
static int claim_segments(struct plan *p, struct rp_journal *j,
			  const struct rp_journal_entry *e, bool durable)
{
	const size_t last = find_cut(p, e->offset + e->len);
	size_t i = find_free(p, find_cut(p, e->offset)), begin;
	int ret;

	while (i < last) {
		begin = i;
		while (i < last && p->free_from[i] == i) {
			p->free_from[i] = i + 1;
			i++;
		}
		ret = durable ? 0
			      : add_piece(p, j, e, p->cuts[begin], p->cuts[i]);
		if (ret)
			return ret;
		i = find_free(p, i);
	}
	return 0;
}

/*
 * Plan the entries from..upto-1, for a replay or for the ranges of a commit.
 * Newer entries claim only what is durable.
 */
static int make_plan(struct rp_journal *j, uint64_t from, uint64_t upto,
		     bool replay, struct rp_journal_piece **out, size_t *count)
{
	const size_t n = (size_t)(j->next - from);
	struct plan p = {0};
	size_t kept = 0;
	int ret = -ENOMEM;

	p.cuts = malloc((2 * n + 1) * sizeof(*p.cuts));
	p.free_from = malloc((2 * n + 1) * sizeof(*p.free_from));
	if (!p.cuts || !p.free_from)
		goto done;
	for (uint64_t s = from; s != j->next; s++) {
		const struct rp_journal_entry *e = rp_journal_at(j, s);

		p.cuts[p.ncuts++] = e->offset;
		p.cuts[p.ncuts++] = e->offset + e->len;
	}
	qsort(p.cuts, p.ncuts, sizeof(*p.cuts), by_value);
	for (size_t i = 0; i < p.ncuts; i++)
		if (!kept || p.cuts[i] != p.cuts[kept - 1])
			p.cuts[kept++] = p.cuts[i];
	p.ncuts = kept;
	for (size_t i = 0; i <= p.ncuts; i++)
		p.free_from[i] = i;
	ret = 0;
	for (uint64_t s = j->next; s != from && !ret; s--) {
		const struct rp_journal_entry *e = rp_journal_at(j, s - 1);
		const bool durable = (e->durable && e->last) ||
				     (replay && s - 1 < j->committed);

		if (durable || s - 1 < upto)
			ret = claim_segments(&p, j, e, durable);
	}
done:
	free(p.cuts);
	free(p.free_from);
	if (ret) {
		free(p.v);
		return ret;
	}
	*out = p.v;
	*count = p.n;
	return 0;
}

int rp_journal_plan(struct rp_journal *j, struct rp_journal_piece **out,
		    size_t *count)
{
	return make_plan(j, j->first, j->next, true, out, count);
}

static int by_offset(const void *a, const void *b)
{
	const struct rp_journal_range *x = a, *y = b;

	return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Replace ranges by those that leave out what newer entries made durable. */
static int leave_durable_out(struct rp_journal *j, uint64_t from, uint64_t upto,
			     struct rp_journal_range **v, size_t *n)
{
	struct rp_journal_piece *pieces;
	struct rp_journal_range *r;

	if (make_plan(j, from, upto, false, &pieces, n))
		return -ENOMEM;
	r = realloc(*v, (*n + 1) * sizeof(*r));
	for (size_t i = 0; r && i < *n; i++)
		r[i] = (struct rp_journal_range){pieces[i].offset,
						 pieces[i].len};
	free(pieces);
	if (!r)
		return -ENOMEM;
	*v = r;
	return 0;
}

int rp_journal_ranges(struct rp_journal *j, uint64_t from, uint64_t upto,
		      struct rp_journal_range **out, size_t *count)
{
	struct rp_journal_range *v;
	size_t n = 0, kept = 0;
	bool durable = false;

	if (from < j->first)
		from = j->first;
	v = malloc((upto > from ? upto - from : 1) * sizeof(*v));
	if (!v)
		return -ENOMEM;
	for (uint64_t s = from; s < j->next; s++) {
		const struct rp_journal_entry *e = rp_journal_at(j, s);

		durable |= e->durable;
		if (s < upto && !e->durable)
			v[n++] = (struct rp_journal_range){e->offset, e->len};
	}
	if (n && durable && leave_durable_out(j, from, upto, &v, &n)) {
		free(v);
		return -ENOMEM;
	}
	qsort(v, n, sizeof(*v), by_offset);
	for (size_t i = 0; i < n; i++) {
		struct rp_journal_range *last = kept ? &v[kept - 1] : NULL;
		uint64_t end = v[i].offset + v[i].len;

		if (!last || v[i].offset > last->offset + last->len)
			v[kept++] = v[i];
		else if (end > last->offset + last->len)
			last->len = end - last->offset;
	}
	*out = v;
	*count = kept;
	return 0;
}
