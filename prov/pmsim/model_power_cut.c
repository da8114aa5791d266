/* SPDX-License-Identifier: BSD-2-Clause */
/* Model: the memory that a power cut, or the death of the process, leaves. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "pmsim/model_priv.h"

/* The pieces in flight that are assumed to be placed. */
enum placed {
	PLACED_ANY,   /* any set that the order allows */
	PLACED_READY, /* only pieces that may be next */
	PLACED_ALL,
};

/*
 * A possible result of pieces in flight on one word, found backwards from the
 * last piece to arrive: the pieces in `used` arrive after all others, and write
 * the bytes b. A piece that covers the whole word ends the search.
 */
struct reach {
	struct bytes b;
	uint64_t used;
};

struct reaches {
	const struct piece *p[64]; /* that touch the word, oldest first */
	size_t np;
	struct reach *v;
	size_t n, cap;
};

static void reach_add(struct reaches *r, struct reach x)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->v[i].used == x.used && r->v[i].b.mask == x.b.mask &&
		    r->v[i].b.value == x.b.value)
			return;
	r->v = model_grow(r->v, r->n, &r->cap, sizeof(x));
	r->v[r->n++] = x;
}

/* May piece i arrive just before those in used? all: every piece arrives. */
static bool reach_may(const struct model *m, const struct reaches *r,
		      uint64_t used, size_t i, bool all)
{
	bool begun = all;

	if (used >> i & 1)
		return false;
	if (m->cfg.relaxed)
		return true;
	for (size_t j = 0; j < i; j++)
		if (r->p[j]->qp == r->p[i]->qp && used >> j & 1)
			return false;
	for (size_t j = r->np; j-- > i + 1;) {
		if (r->p[j]->qp != r->p[i]->qp)
			continue;
		begun = begun || used >> j & 1;
		if (begun && !(used >> j & 1))
			return false;
	}
	return true;
}

/* Is x a whole result: can pieces outside x->used be left out? */
static bool reach_is_whole(const struct model *m, const struct reaches *r,
			   const struct reach *x, bool all)
{
	if (x->b.mask == UINT64_MAX)
		return true;
	for (size_t i = 0; i < r->np; i++) {
		if (x->used >> i & 1)
			continue;
		if (all)
			return false;
		for (size_t j = i + 1; j < r->np && !m->cfg.relaxed; j++)
			if (x->used >> j & 1 && r->p[j]->qp == r->p[i]->qp)
				return false;
	}
	return true;
}

/* Find all results, oldest first; the caller frees r->v. */
static void reach_find(const struct model *m, const void *word, enum placed got,
		       struct reaches *r)
{
	bool all = got == PLACED_ALL;
	size_t n = 0;

	*r = (struct reaches){0};
	for (size_t i = 0; i < m->npieces; i++) {
		const struct piece *p = &m->pieces[i];

		if (!bytes_in(word, p->addr, p->data, p->len).mask ||
		    (got == PLACED_READY && !model_piece_ready(m, i)))
			continue;
		if (r->np == 64)
			model_die(
				"more than 64 writes on their way to one word");
		r->p[r->np++] = p;
	}
	reach_add(r, (struct reach){0});
	for (size_t k = 0; k < r->n; k++) {
		struct reach from = r->v[k];

		for (size_t i = 0; i < r->np; i++) {
			const struct piece *p = r->p[i];
			struct bytes b;

			if (from.b.mask == UINT64_MAX ||
			    !reach_may(m, r, from.used, i, all))
				continue;
			b = bytes_in(word, p->addr, p->data, p->len);
			b.value = merge_bytes(b.value, from.b);
			b.mask |= from.b.mask;
			reach_add(r, (struct reach){b, from.used | 1ull << i});
		}
	}
	for (size_t k = 0; k < r->n; k++)
		if (reach_is_whole(m, r, &r->v[k], all))
			r->v[n++] = r->v[k];
	r->n = n;
}

static size_t add_value(uint64_t values[MODEL_VALUES], size_t n, uint64_t v)
{
	for (size_t i = 0; i < n; i++)
		if (values[i] == v)
			return n;
	if (n == MODEL_VALUES)
		model_die("a word has more possible values than MODEL_VALUES");
	values[n] = v;
	return n + 1;
}

/* Add the values that CPUs see after the assumed arrivals. */
static size_t add_coherent(const struct model *m, const void *word,
			   enum placed got, uint64_t values[MODEL_VALUES],
			   size_t n)
{
	struct reaches r;

	reach_find(m, word, got, &r);
	for (size_t k = 0; k < r.n; k++)
		n = add_value(values, n,
			      merge_bytes(load_word(word), r.v[k].b));
	free(r.v);
	return n;
}

static bool is_lost(const struct model *m, const struct model_page *p)
{
	return is_volatile(m) || (is_dax(m) && m->cfg.domain == MODEL_NONE) ||
	       (m->cfg.kind == MODEL_DAX && !p->metadata);
}

static size_t after_cut(const struct model *m, const void *addr,
			enum placed got, uint64_t values[MODEL_VALUES],
			bool *lost)
{
	const void *at = align_down(addr, MODEL_WORD);
	const struct area *a = model_area(m, addr);
	const struct model_word *w;
	struct val now;
	const struct val *vals;
	struct reaches r;
	uint32_t nic;
	size_t n = 0, nvals;

	if (!a)
		model_die("asked about memory that is not the model's");
	*lost = is_lost(m, page_of(a, at));
	if (is_volatile(m))
		return 0;
	if (m->cut == RULE_COHERENT)
		return add_coherent(m, at, PLACED_ALL, values, 0);
	/*
	 * Before model_weaken() persistent caches keep the newest value, and
	 * non-temporal stores count as fenced.
	 */
	w = m->cut == m->rule ? *slot_of(a, at) : NULL;
	now = (struct val){.v = load_word(at)};
	vals = w ? w->vals : &now;
	nvals = w ? w->n : 1;
	nic = w ? w->now.nic : 0;
	for (size_t i = 0; i < nvals; i++)
		n = add_value(values, n, vals[i].v);
	if (!m->npieces)
		return n;
	if (m->cut == RULE_DISK)
		return page_of(a, at)->dirty
			       ? add_coherent(m, at, got, values, n)
			       : n;
	/* A piece in the cache is evicted with its whole word. */
	if (m->cut == RULE_ADR && m->cfg.place == MODEL_DMA_CACHE)
		return add_coherent(m, at, got, values, n);
	/* Pieces reach the media after all waiting writes. */
	reach_find(m, at, got, &r);
	for (size_t k = 0; k < r.n; k++)
		for (size_t i = 0; i < nvals; i++)
			if (vals[i].mark.nic == nic)
				n = add_value(values, n,
					      merge_bytes(vals[i].v, r.v[k].b));
	free(r.v);
	return n;
}

size_t model_after_cut(const struct model *m, const void *addr,
		       uint64_t values[MODEL_VALUES], bool *lost)
{
	return after_cut(m, addr, PLACED_ANY, values, lost);
}

size_t model_after_cut_ready(const struct model *m, const void *addr,
			     uint64_t values[MODEL_VALUES], bool *lost)
{
	return after_cut(m, addr, PLACED_READY, values, lost);
}

static size_t after_kill(const struct model *m, const void *addr,
			 enum placed got, uint64_t values[MODEL_VALUES],
			 bool *lost)
{
	if (!model_owns(m, addr))
		model_die("asked about memory that is not the model's");
	*lost = m->cfg.kind == MODEL_ANON || m->cfg.kind == MODEL_PRIVATE;
	return *lost ? 0
		     : add_coherent(m, align_down(addr, MODEL_WORD), got,
				    values, 0);
}

size_t model_after_kill(const struct model *m, const void *addr,
			uint64_t values[MODEL_VALUES], bool *lost)
{
	return after_kill(m, addr, PLACED_ANY, values, lost);
}

size_t model_after_kill_ready(const struct model *m, const void *addr,
			      uint64_t values[MODEL_VALUES], bool *lost)
{
	return after_kill(m, addr, PLACED_READY, values, lost);
}

struct picker {
	uint64_t (*pick)(void *ctx, uint64_t below);
	void *ctx;
};

static uint64_t pick_below(const struct picker *p, uint64_t below)
{
	return p->pick && below > 1 ? p->pick(p->ctx, below) : 0;
}

/*
 * Choose how far pieces got: some arrive, in an order that the rules allow,
 * then single words of pieces that would be next. So no word arrives without
 * the words that must precede it; choosing each word by itself could do that.
 */
static void cut_pieces(struct model *m, const struct picker *pick)
{
	size_t ready, c, i;

	if (is_dax(m) && m->cfg.domain == MODEL_SYSTEM) {
		while ((ready = model_dma_ready(m)))
			model_dma_step(m, pick_below(pick, ready));
		return;
	}
	while ((ready = model_dma_ready(m)) &&
	       (c = pick_below(pick, ready + 1)))
		model_dma_step(m, c - 1);
	for (i = 0; i < m->npieces; i++) {
		const struct piece *p = &m->pieces[i];
		uint8_t *end = p->addr + p->len;

		if (!model_piece_ready(m, i))
			continue;
		for (uint8_t *at = p->addr; at < end;) {
			uint8_t *next = align_down(at, MODEL_WORD) + MODEL_WORD;

			next = next < end ? next : end;
			if (pick_below(pick, 2))
				model_write(m, at, p->data + (at - p->addr),
					    next - at, BY_DMA);
			at = next;
		}
	}
	m->npieces = 0;
}

void model_cut(struct model *m, uint64_t (*pick)(void *ctx, uint64_t below),
	       void *ctx)
{
	struct picker p = {pick, ctx};

	if (m->cut != m->rule)
		model_die("a cut before a weakening that has been foreseen");
	if (is_volatile(m))
		m->npieces = 0;
	cut_pieces(m, &p);
	for (size_t i = 0; i < m->nwords; i++) {
		struct model_word *w = m->words[i];

		if (is_lost(m, w->page))
			*w->at = 0;
		else
			*w->at = w->vals[pick_below(&p, w->n)].v;
		model_word_set(w, *w->at);
	}
	m->nfencing = m->nwaiting = 0;
	for (size_t i = 0; i < m->npages; i++)
		m->pages[i]->dirty = false;
}

/* --- traces --- */

struct trace_text {
	char *out;
	size_t len, at;
};

static void __attribute__((format(printf, 2, 3)))
say(struct trace_text *t, const char *fmt, ...)
{
	size_t room = t->len - t->at;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(t->out + t->at, room, fmt, ap);
	va_end(ap);
	if (n > 0)
		t->at += (size_t)n < room ? (size_t)n : room - 1;
}

void model_print(const struct model *m, const void *addr, char *out, size_t len)
{
	const uint8_t *at = align_down(addr, MODEL_WORD);
	const struct area *a = model_area(m, addr);
	struct trace_text t = {.out = out, .len = len};
	uint64_t values[MODEL_VALUES];
	const char *nic = ", in NIC";
	bool lost;
	size_t n;

	if (!len)
		return;
	if (!a) {
		say(&t, "not the model's");
		return;
	}
	say(&t, "word 0x%zx: CPU sees %" PRIx64 ", a cut leaves",
	    (size_t)(at - a->mem), load_word(at));
	n = model_after_cut(m, at, values, &lost);
	for (size_t i = 0; i < n; i++)
		say(&t, " %" PRIx64, values[i]);
	say(&t, "%s", !lost ? "" : n ? " or nothing" : " nothing");
	for (size_t i = 0; i < m->npieces; i++) {
		const struct piece *p = &m->pieces[i];
		struct bytes b = bytes_in(at, p->addr, p->data, p->len);

		if (!b.mask)
			continue;
		say(&t, "%s %" PRIx64, nic, b.value);
		nic = "";
	}
}
