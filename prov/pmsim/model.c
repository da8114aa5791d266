/* SPDX-License-Identifier: BSD-2-Clause */
/* Model: track the values that each word may have on the media. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "pmsim/model_priv.h"

void model_die(const char *why)
{
	fprintf(stderr, "pmsim model: %s\n", why);
	abort();
}

void *model_grow(void *v, size_t n, size_t *cap, size_t size)
{
	if (n < *cap)
		return v;
	*cap = *cap ? 2 * *cap : 8;
	v = realloc(v, *cap * size);
	if (!v)
		model_die("out of memory");
	return v;
}

static enum rule rule_of(const struct model_cfg *cfg)
{
	/* A page cache is lost in a power cut, whatever the domain. */
	if (cfg->kind == MODEL_FILE)
		return RULE_DISK;
	if ((cfg->kind != MODEL_DAX && cfg->kind != MODEL_DAX_SYNC) ||
	    cfg->domain == MODEL_SYSTEM)
		return RULE_COHERENT;
	return cfg->domain == MODEL_EADR ? RULE_EADR : RULE_ADR;
}

static void begin_cut(struct model *m)
{
	m->cfg = m->weakened_cfg = m->first;
	m->rule = m->cut = rule_of(&m->first);
}

struct model *model_new(const struct model_cfg *cfg)
{
	struct model *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->first = *cfg;
	begin_cut(m);
	return m;
}

void model_foresee(struct model *m, const struct model_cfg *weak)
{
	if (m->nwords || m->npieces)
		model_die("a weakening is foreseen behind a write");
	m->weakened_cfg = *weak;
	m->rule = rule_of(weak);
}

void model_weaken(struct model *m)
{
	m->cfg = m->weakened_cfg;
	m->cut = m->rule;
}

void model_delete(struct model *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->nareas; i++) {
		munmap(m->areas[i].mem, m->areas[i].len);
		free(m->areas[i].slots);
		free(m->areas[i].pages);
	}
	for (size_t i = 0; i < m->allocated_words; i++) {
		free(m->words[i]->vals);
		free(m->words[i]);
	}
	free(m->areas);
	free(m->words);
	free(m->pages);
	free(m->fencing);
	free(m->pieces);
	free(m->waiting);
	free(m);
}

void model_reset(struct model *m)
{
	for (size_t i = 0; i < m->nwords; i++) {
		*m->words[i]->at = 0;
		*m->words[i]->slot = NULL;
	}
	for (size_t i = 0; i < m->npages; i++)
		*m->pages[i] = (struct model_page){0};
	m->nwords = m->npages = m->nfencing = m->npieces = m->nwaiting = 0;
	m->order = 0;
	begin_cut(m);
}

void *model_alloc(struct model *m, size_t len)
{
	struct area a = {.len = len};

	if (!len || len % MODEL_PAGE)
		return NULL;
	a.slots = calloc(len / MODEL_WORD, sizeof(*a.slots));
	a.pages = calloc(len / MODEL_PAGE, sizeof(*a.pages));
	a.mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!a.slots || !a.pages || a.mem == MAP_FAILED) {
		free(a.slots);
		free(a.pages);
		if (a.mem != MAP_FAILED)
			munmap(a.mem, len);
		return NULL;
	}
	m->areas = model_grow(m->areas, m->nareas, &m->cap_areas, sizeof(a));
	m->areas[m->nareas++] = a;
	return a.mem;
}

struct area *model_area(const struct model *m, const void *addr)
{
	for (size_t i = 0; i < m->nareas; i++) {
		struct area *a = &m->areas[i];

		if ((uintptr_t)addr - (uintptr_t)a->mem < a->len)
			return a;
	}
	return NULL;
}

bool model_owns(const struct model *m, const void *addr)
{
	return model_area(m, addr);
}

/* --- the values of one word --- */

static void word_add(struct model_word *w, uint64_t v)
{
	size_t i, n = 0;

	for (i = 0; i < w->n; i++)
		if (w->vals[i].v != v)
			w->vals[n++] = w->vals[i];
	w->n = n;
	w->vals = model_grow(w->vals, w->n, &w->cap, sizeof(*w->vals));
	w->now.seq++;
	w->vals[w->n++] = (struct val){v, w->now};
}

static void word_set_only(struct model_word *w, uint64_t v)
{
	w->n = 0;
	word_add(w, v);
}

void model_word_set(struct model_word *w, uint64_t v)
{
	w->now = w->fenced = (struct mark){0};
	word_set_only(w, v);
	w->synced = w->now;
}

/* Remove duplicate values: keep the last of each. */
static void word_unique(struct model_word *w)
{
	size_t n = 0;

	for (size_t i = 0; i < w->n; i++) {
		size_t j = i + 1;

		while (j < w->n && w->vals[j].v != w->vals[i].v)
			j++;
		if (j == w->n)
			w->vals[n++] = w->vals[i];
	}
	w->n = n;
}

/* Write bytes to every possible value: they are on the media. */
static void word_merge(struct model_word *w, struct bytes b)
{
	for (size_t i = 0; i < w->n; i++)
		w->vals[i].v = merge_bytes(w->vals[i].v, b);
	word_unique(w);
}

/*
 * Add values for bytes that wait in the root complex: they may get to the media
 * from now on, after earlier NIC writes, with whatever the cache has written
 * back until then.
 */
static void word_wait(struct model_word *w, struct bytes b)
{
	size_t n = w->n;

	for (size_t i = 0; i < n; i++) {
		struct val x = w->vals[i];

		if (x.mark.nic != w->now.nic)
			continue;
		x.v = merge_bytes(x.v, b);
		x.mark.nic++;
		w->vals = model_grow(w->vals, w->n, &w->cap, sizeof(x));
		w->vals[w->n++] = x;
	}
	w->now.nic++;
	word_unique(w);
}

/* Drop the values older than mark, as the media hold a newer one. */
static void word_drop_older(struct model_word *w, struct mark mark)
{
	size_t n = 0;

	for (size_t i = 0; i < w->n; i++)
		if (w->vals[i].mark.seq >= mark.seq &&
		    w->vals[i].mark.nic >= mark.nic)
			w->vals[n++] = w->vals[i];
	w->n = n;
}

static void word_await_fence(struct model *m, struct model_word *w)
{
	if (!w->fenced.seq) {
		m->fencing = model_grow(m->fencing, m->nfencing,
					&m->cap_fencing, sizeof(*m->fencing));
		m->fencing[m->nfencing++] = w;
	}
	w->fenced = w->now;
}

static void page_touch(struct model *m, struct model_page *p)
{
	if (p->listed)
		return;
	p->listed = true;
	m->pages = model_grow(m->pages, m->npages, &m->cap_pages, sizeof(p));
	m->pages[m->npages++] = p;
}

static struct model_word *word_touch(struct model *m, struct area *a,
				     uint8_t *at)
{
	struct model_word **slot = slot_of(a, at), *w = *slot;

	if (w)
		return w;
	if (m->nwords == m->allocated_words) {
		m->words = model_grow(m->words, m->allocated_words,
				      &m->cap_words, sizeof(w));
		w = calloc(1, sizeof(*w));
		if (!w)
			model_die("out of memory");
		m->words[m->allocated_words++] = w;
	}
	w = m->words[m->nwords++];
	w->at = (uint64_t *)at;
	w->slot = slot;
	w->page = page_of(a, at);
	page_touch(m, w->page);
	w->next = w->page->words;
	w->page->words = w;
	model_word_set(w, *w->at);
	*slot = w;
	return w;
}

static void word_write(struct model *m, struct area *a, uint8_t *at,
		       struct bytes b, enum writer by)
{
	struct model_word *w = word_touch(m, a, at);
	uint64_t v = merge_bytes(*w->at, b);

	*w->at = v;
	switch (m->rule) {
	case RULE_COHERENT:
		word_set_only(w, v);
		break;
	case RULE_DISK:
		/* Only dirty pages are written back. */
		if (w->page->dirty)
			word_add(w, v);
		break;
	case RULE_ADR:
		/*
		 * A DMA write bypasses the cache: other bytes of the word, in
		 * the CPU's cache, get no nearer to memory.
		 */
		if (by == BY_DMA && has_waiting_writes(m))
			word_wait(w, b);
		else
			word_add(w, v);
		if (by == BY_CPU_NT)
			word_await_fence(m, w);
		break;
	case RULE_EADR:
		/*
		 * Write-combining buffers are not in the domain. A later store
		 * of this CPU to the same word flushes them, a NIC write does
		 * not.
		 */
		if (by == BY_CPU)
			word_set_only(w, v);
		else if (by == BY_DMA)
			word_merge(w, b);
		else {
			word_add(w, v);
			word_await_fence(m, w);
		}
		break;
	}
}

/* Memory outside the model is DRAM: write it, and keep no state. */
void model_write(struct model *m, void *addr, const void *data, size_t len,
		 enum writer by)
{
	struct area *a = model_area(m, addr);
	uint8_t *end = (uint8_t *)addr + len;

	if (!len)
		return;
	if (!a) {
		memcpy(addr, data, len);
		return;
	}
	if (end > a->mem + a->len)
		model_die("a write leaves the memory it began in");
	for (uint8_t *at = align_down(addr, MODEL_WORD); at < end;
	     at += MODEL_WORD)
		word_write(m, a, at, bytes_in(at, addr, data, len), by);
}

/*
 * Mark pages dirty after a store through the program's mapping. From now until
 * the next store write-back may happen at any moment, write the whole page as
 * it is then, and leave it clean. So msync guarantees only a state of this
 * moment or later.
 */
static void dirty_pages(struct model *m, void *addr, size_t len)
{
	struct area *a = model_area(m, addr);
	uint8_t *end = (uint8_t *)addr + len;

	if (!a || !len)
		return;
	for (uint8_t *at = align_down(addr, MODEL_PAGE); at < end;
	     at += MODEL_PAGE) {
		struct model_page *p = page_of(a, at);

		p->dirty = true;
		for (struct model_word *w = p->words; w; w = w->next) {
			if (m->rule == RULE_DISK)
				word_add(w, *w->at);
			w->synced = w->now;
		}
	}
}

/* --- the CPU --- */

void model_store(struct model *m, enum model_place who, void *addr,
		 const void *data, size_t len)
{
	model_write(m, addr, data, len, BY_CPU);
	if (who == MODEL_CPU_USER)
		dirty_pages(m, addr, len);
}

void model_store_nt(struct model *m, void *addr, const void *data, size_t len)
{
	model_write(m, addr, data, len, BY_CPU_NT);
	dirty_pages(m, addr, len);
}

void model_clwb(struct model *m, const void *addr, size_t len)
{
	struct area *a = model_area(m, addr);
	const uint8_t *end = (const uint8_t *)addr + len;
	const uint8_t *at = align_down(addr, MODEL_LINE);

	if (!a || !len || !is_dax(m))
		return;
	end += -(uintptr_t)end % MODEL_LINE;
	if (end > a->mem + a->len)
		model_die("clwb leaves the memory it began in");
	for (; at < end; at += MODEL_WORD)
		if (*slot_of(a, at))
			word_await_fence(m, *slot_of(a, at));
}

void model_sfence(struct model *m)
{
	for (size_t i = 0; i < m->nfencing; i++) {
		if (has_domain(m))
			word_drop_older(m->fencing[i], m->fencing[i]->fenced);
		m->fencing[i]->fenced = (struct mark){0};
	}
	m->nfencing = 0;
}

static int sync_pages(struct model *m, void *addr, size_t len, int error)
{
	struct area *a = model_area(m, addr);
	uint8_t *end = (uint8_t *)addr + len;

	if ((uintptr_t)addr % MODEL_PAGE)
		return -EINVAL;
	if (!len)
		return 0;
	if (!a || len > (size_t)(a->mem + a->len - (uint8_t *)addr))
		return -ENOMEM;
	if (!is_dax(m) && m->cfg.kind != MODEL_FILE)
		return 0;
	for (uint8_t *at = addr; at < end; at += MODEL_PAGE) {
		struct model_page *p = page_of(a, at);

		page_touch(m, p);
		if (error || m->cfg.cached) {
			p->dirty = false;
			continue;
		}
		p->metadata = true;
		for (struct model_word *w = p->words; w && p->dirty;
		     w = w->next)
			word_drop_older(w, w->synced);
		p->dirty = false;
	}
	return error;
}

int model_msync(struct model *m, void *addr, size_t len)
{
	return sync_pages(m, addr, len, 0);
}

int model_msync_fails(struct model *m, void *addr, size_t len)
{
	return sync_pages(m, addr, len, -EIO);
}

/* --- the NIC --- */

void model_dma_write(struct model *m, unsigned int qp, void *addr,
		     const void *data, size_t len)
{
	uint8_t *to = addr;
	const uint8_t *from = data;

	if (m->cfg.place != MODEL_DMA_CACHE && m->cfg.place != MODEL_DMA_MEMORY)
		model_die("DMA on a machine whose CPU places what arrives");
	while (len) {
		size_t n = MODEL_LINE - (uintptr_t)to % MODEL_LINE;
		struct piece *p;

		n = n < len ? n : len;
		m->pieces = model_grow(m->pieces, m->npieces, &m->cap_pieces,
				       sizeof(*p));
		p = &m->pieces[m->npieces++];
		p->qp = qp;
		p->order = m->order++;
		p->addr = to;
		p->len = n;
		memcpy(p->data, from, n);
		to += n;
		from += n;
		len -= n;
	}
}

/* Returns a sequence number above those of all earlier pieces, and qp. */
uint64_t model_dma_completion(struct model *m, unsigned int qp)
{
	return (uint64_t)m->order++ << 32 | qp;
}

static void piece_forget(struct model *m, size_t i)
{
	m->npieces--;
	memmove(&m->pieces[i], &m->pieces[i + 1],
		(m->npieces - i) * sizeof(*m->pieces));
}

static void piece_arrive(struct model *m, size_t i)
{
	struct piece *p = &m->pieces[i];
	struct area *a = has_waiting_writes(m) ? model_area(m, p->addr) : NULL;
	uint8_t *end = p->addr + p->len;

	model_write(m, p->addr, p->data, p->len, BY_DMA);
	for (uint8_t *at = align_down(p->addr, MODEL_WORD); a && at < end;
	     at += MODEL_WORD) {
		struct model_word *w = *slot_of(a, at);

		m->waiting = model_grow(m->waiting, m->nwaiting,
					&m->cap_waiting, sizeof(*m->waiting));
		m->waiting[m->nwaiting++] =
			(struct waiting_write){p->qp, w, w->now.nic};
	}
	piece_forget(m, i);
}

/* Remove waiting entries of qp; push: because they are on the media. */
static void waiting_forget(struct model *m, unsigned int qp, bool push)
{
	size_t n = 0;

	for (size_t i = 0; i < m->nwaiting; i++) {
		struct waiting_write *x = &m->waiting[i];

		if (x->qp != qp)
			m->waiting[n++] = *x;
		else if (push)
			word_drop_older(x->word, (struct mark){0, x->nic});
	}
	m->nwaiting = n;
}

static void arrive_before(struct model *m, unsigned int qp, uint64_t order)
{
	size_t i = 0;

	while (i < m->npieces) {
		if (m->pieces[i].qp == qp && m->pieces[i].order < order)
			piece_arrive(m, i);
		else
			i++;
	}
}

void model_dma_read_at(struct model *m, uint64_t completion, const void *addr,
		       void *data, size_t len)
{
	const unsigned int qp = (unsigned int)completion;

	if (m->cfg.fence) {
		arrive_before(m, qp, completion >> 32);
		waiting_forget(m, qp, has_domain(m));
	}
	memcpy(data, addr, len);
}

void model_dma_read(struct model *m, unsigned int qp, const void *addr,
		    void *data, size_t len)
{
	model_dma_read_at(m, model_dma_completion(m, qp), addr, data, len);
}

bool model_dma_flush(struct model *m, unsigned int qp, enum model_level level,
		     const void *addr, size_t len)
{
	struct area *a = model_area(m, addr);
	const uint8_t *end = (const uint8_t *)addr + len;
	const uint8_t *at = align_down(addr, MODEL_WORD);

	if (!(m->cfg.levels & level))
		return false;
	arrive_before(m, qp, m->order);
	if (level == MODEL_VISIBLE || !a || !is_dax(m) || !has_domain(m))
		return true;
	if (end > a->mem + a->len)
		model_die("a flush leaves the memory it began in");
	for (; at < end; at += MODEL_WORD)
		if (*slot_of(a, at))
			word_drop_older(*slot_of(a, at),
					(*slot_of(a, at))->now);
	return true;
}

bool model_piece_ready(const struct model *m, size_t i)
{
	for (size_t j = 0; j < i && !m->cfg.relaxed; j++)
		if (m->pieces[j].qp == m->pieces[i].qp)
			return false;
	return true;
}

size_t model_dma_ready(const struct model *m)
{
	size_t n = 0;

	for (size_t i = 0; i < m->npieces; i++)
		n += model_piece_ready(m, i);
	return n;
}

void model_dma_step(struct model *m, size_t which)
{
	for (size_t i = 0; i < m->npieces; i++) {
		if (model_piece_ready(m, i) && !which--) {
			piece_arrive(m, i);
			return;
		}
	}
	model_die("no such piece is ready");
}

void model_dma_see(struct model *m, uint64_t completion)
{
	arrive_before(m, (unsigned int)completion, completion >> 32);
}

size_t model_dma_pending(const struct model *m)
{
	return m->npieces;
}

void model_dma_drop(struct model *m, unsigned int qp)
{
	size_t i = 0;

	while (i < m->npieces) {
		if (m->pieces[i].qp == qp)
			piece_forget(m, i);
		else
			i++;
	}
	/* A read of a later queue pair with this number must not push them. */
	waiting_forget(m, qp, false);
}
