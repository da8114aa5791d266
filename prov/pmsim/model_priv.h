/* SPDX-License-Identifier: BSD-2-Clause */
/* What model.c and model_cut.c share about one model; nobody else's. */
#ifndef PMSIM_MODEL_PRIV_H
#define PMSIM_MODEL_PRIV_H

#include <string.h>

#include "pmsim/model.h"

/* Some bytes of one word: where mask is 0xff. value is 0 elsewhere. */
struct bytes {
	uint64_t mask;
	uint64_t value;
};

/*
 * How new a value is, in two directions, for memory may be behind in one and
 * not in the other: seq counts what went through the cache, nic the writes of
 * the NIC past it, as far as they wait in a buffer of their own.
 */
struct mark {
	uint32_t seq, nic;
};

struct val {
	uint64_t v;
	struct mark mark;
};

/*
 * A word that was written since the last reset; of all others the media hold
 * what the CPU sees. vals is never empty, in the order of nic, then seq, the
 * last is what the CPU sees, and no value is there twice: one that comes back
 * counts as new, for all that is ever asked is which values are as new as a
 * mark or newer. Of equal values the last is the newer one in both directions,
 * for a NIC write is added to every value that has all those before it.
 */
struct word {
	uint64_t *at;
	struct word **slot;
	struct page *page;
	struct word *next; /* of the same page */
	struct val *vals;
	size_t n, cap;
	struct mark now;
	struct mark fenced; /* seq 0, or the next sfence drops all older ones */
	struct mark synced; /* a msync of the dirty page drops all older ones */
};

/* A queue pair's write to a word, in the root complex. */
struct waiting {
	unsigned int qp;
	struct word *word;
	uint32_t nic;
};

struct page {
	struct word *words;
	bool listed;
	bool dirty;    /* a user store since the last msync: maybe dirty */
	bool metadata; /* what leads to the page is durable */
};

struct area {
	uint8_t *mem;
	size_t len;
	struct word **slots; /* one for each word; NULL: not touched */
	struct page *pages;
};

/* A write in the NIC or on PCIe: never crosses a line. */
struct piece {
	unsigned int qp;
	uint32_t order; /* counts pieces and completions of all queue pairs */
	uint8_t *addr;
	size_t len;
	uint8_t data[MODEL_LINE];
};

/* What decides about the values of a word. */
enum rule {
	RULE_COHERENT, /* what the CPU sees, or nothing, is left */
	RULE_DISK,     /* what write-back brought there */
	RULE_ADR,
	RULE_EADR,
};

enum by {
	BY_CPU,
	BY_CPU_NT,
	BY_DMA,
};

struct model {
	struct model_cfg cfg;
	enum rule rule;
	struct area *areas;
	size_t nareas, cap_areas;
	/* The first nwords are in use, the rest waits to be used again. */
	struct word **words;
	size_t nwords, made_words, cap_words;
	struct page **pages; /* not as new */
	size_t npages, cap_pages;
	struct word **fencing; /* those with `fenced` */
	size_t nfencing, cap_fencing;
	struct piece *pieces; /* oldest first */
	size_t npieces, cap_pieces;
	uint32_t order;
	struct waiting *waiting; /* or drained, or pushed in another way */
	size_t nwaiting, cap_waiting;
};

/* model.c */
void model_die(const char *why) __attribute__((noreturn));
/* v, with room for one more than n. */
void *model_grown(void *v, size_t n, size_t *cap, size_t size);
/* NULL: not the model's. */
struct area *model_area(const struct model *m, const void *addr);
/* They get there now. */
void model_write(struct model *m, void *addr, const void *data, size_t len,
		 enum by by);
/* May this piece get there next? */
bool model_piece_ready(const struct model *m, size_t i);
/* All that it may hold after this is v, as if it was never written. */
void model_word_settle(struct word *w, uint64_t v);

static inline bool is_dax(const struct model *m)
{
	return m->cfg.kind == MODEL_DAX || m->cfg.kind == MODEL_DAX_SYNC;
}

/*
 * Does a NIC write that CPUs can see wait once more, in the root complex? The
 * domain of the CPU caches contains that, the memory controller's does not.
 */
static inline bool is_waiting(const struct model *m)
{
	return m->rule == RULE_ADR && m->cfg.place == MODEL_DMA_MEMORY;
}

/* Is there a place that the CPU or a NIC can push bytes to, and be sure? */
static inline bool has_domain(const struct model *m)
{
	return m->cfg.domain != MODEL_NONE;
}

/* No value of this memory ever survives a power cut. */
static inline bool is_volatile(const struct model *m)
{
	return !is_dax(m) && m->cfg.kind != MODEL_FILE;
}

static inline struct page *page_of(const struct area *a, const void *addr)
{
	return &a->pages[((const uint8_t *)addr - a->mem) / MODEL_PAGE];
}

static inline struct word **slot_of(const struct area *a, const void *addr)
{
	return &a->slots[((const uint8_t *)addr - a->mem) / MODEL_WORD];
}

static inline uint8_t *down(const void *addr, uintptr_t to)
{
	return (uint8_t *)addr - (uintptr_t)addr % to;
}

static inline uint64_t load(const void *addr)
{
	uint64_t v;

	memcpy(&v, addr, sizeof(v));
	return v;
}

static inline uint64_t merge(uint64_t v, struct bytes b)
{
	return (v & ~b.mask) | b.value;
}

/* The part of [addr, addr + len) that is in the word at `word`. */
static inline struct bytes bytes_in(const void *word, const void *addr,
				    const void *data, size_t len)
{
	uintptr_t w = (uintptr_t)word, a = (uintptr_t)addr;
	uintptr_t from = a > w ? a : w;
	uintptr_t end = a + len < w + MODEL_WORD ? a + len : w + MODEL_WORD;
	struct bytes b = {0};

	if (from < end) {
		memset((uint8_t *)&b.mask + (from - w), 0xff, end - from);
		memcpy((uint8_t *)&b.value + (from - w),
		       (const uint8_t *)data + (from - a), end - from);
	}
	return b;
}

#endif
