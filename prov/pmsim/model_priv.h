/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by model.c and model_cut.c about one model. */
#ifndef PMSIM_MODEL_PRIV_H
#define PMSIM_MODEL_PRIV_H

#include <string.h>

#include "pmsim/model.h"

/* Some bytes of one word, those where mask is 0xff. value is 0 elsewhere. */
struct bytes {
	uint64_t mask;
	uint64_t value;
};

/*
 * How new a value is, in two directions, as memory may be behind in only one of
 * them: seq counts what went through the cache, nic the writes of the NIC past
 * it, while they wait in a buffer.
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
 * what the CPU sees. vals is never empty, in the order of nic, then seq; the
 * last is what the CPU sees, and no value occurs twice: a repeated value counts
 * as new, because the only question is which values are at least as new as a
 * mark. Of equal values the last is newer in both directions, because a NIC
 * write is added to every value that has all earlier ones.
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
	struct mark synced; /* msync of the dirty page drops all older ones */
};

/* A queue pair's write to a word that waits in the root complex. */
struct waiting {
	unsigned int qp;
	struct word *word;
	uint32_t nic;
};

struct page {
	struct word *words;
	bool listed;
	bool dirty;    /* user store since the last msync: maybe dirty */
	bool metadata; /* the page's metadata is durable */
};

struct area {
	uint8_t *mem;
	size_t len;
	struct word **slots; /* one for each word; NULL: unchanged */
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

/* How the possible values of a word are determined. */
enum rule {
	RULE_COHERENT, /* only what the CPU sees, or nothing, is left */
	RULE_DISK,     /* what write-back wrote */
	RULE_ADR,
	RULE_EADR,
};

enum by {
	BY_CPU,
	BY_CPU_NT,
	BY_DMA,
};

struct model {
	struct model_cfg cfg;	      /* of the machine as it is now */
	struct model_cfg first, weak; /* at the reset; behind model_weaken() */
	enum rule rule;		      /* by which words are followed */
	enum rule cut;		      /* by which a cut loses them now */
	struct area *areas;
	size_t nareas, cap_areas;
	/* The first nwords are in use, the others are free for reuse. */
	struct word **words;
	size_t nwords, made_words, cap_words;
	struct page **pages; /* changed since the reset */
	size_t npages, cap_pages;
	struct word **fencing; /* those with `fenced` */
	size_t nfencing, cap_fencing;
	struct piece *pieces; /* oldest first */
	size_t npieces, cap_pieces;
	uint32_t order;
	struct waiting *waiting; /* or drained, or pushed otherwise */
	size_t nwaiting, cap_waiting;
};

/* model.c */
void model_die(const char *why) __attribute__((noreturn));
/* v, grown if it has no room for one more than n. */
void *model_grown(void *v, size_t n, size_t *cap, size_t size);
/* NULL: outside the model. */
struct area *model_area(const struct model *m, const void *addr);
/* The bytes are placed now. */
void model_write(struct model *m, void *addr, const void *data, size_t len,
		 enum by by);
/* May this piece be placed next? */
bool model_piece_ready(const struct model *m, size_t i);
/* The word may only hold v afterwards, as if it was never written. */
void model_word_set(struct word *w, uint64_t v);

static inline bool is_dax(const struct model *m)
{
	return m->cfg.kind == MODEL_DAX || m->cfg.kind == MODEL_DAX_SYNC;
}

/*
 * Does a NIC write that CPUs can see wait in the root complex, too? The domain
 * of the CPU caches contains that, the memory controller's does not.
 */
static inline bool is_waiting(const struct model *m)
{
	return m->rule == RULE_ADR && m->cfg.place == MODEL_DMA_MEMORY;
}

/* Can the CPU or a NIC push bytes into a persistence domain? */
static inline bool has_domain(const struct model *m)
{
	return m->cfg.domain >= MODEL_ADR;
}

/* No value of this memory survives a power cut. */
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

/* The part of [addr, addr + len) inside the word at `word`. */
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
