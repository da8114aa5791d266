/* SPDX-License-Identifier: BSD-2-Clause */
/* Structs and functions that model.c and model_power_cut.c share. */
#ifndef PMSIM_MODEL_PRIV_H
#define PMSIM_MODEL_PRIV_H

#include <string.h>

#include "pmsim/model.h"

/* Some bytes of a word: those where mask is 0xff; value is 0 elsewhere. */
struct bytes {
	uint64_t mask;
	uint64_t value;
};

/*
 * The age of a value. Two counters, as memory may be behind in only one: seq
 * counts writes through the cache, nic counts writes of the NIC past the cache
 * that wait in the root complex.
 */
struct mark {
	uint32_t seq, nic;
};

struct val {
	uint64_t v;
	struct mark mark;
};

/*
 * A word written since the last reset (for other words media and CPU agree).
 * vals is never empty, sorted by nic, then seq. The last value is what the CPU
 * sees. No value occurs twice, because the only question is which values are at
 * least as new as a mark: of equal values the last is kept. It is the newest in
 * both counters, because a NIC write is added to every value that has all
 * earlier ones.
 */
struct model_word {
	uint64_t *at;
	struct model_word **slot; /* entry in area.slots */
	struct model_page *page;
	struct model_word *next; /* next word of the page */
	struct val *vals;
	size_t n, cap;
	struct mark now;
	struct mark fenced; /* next sfence drops older vals; seq 0: none */
	struct mark synced; /* msync of a dirty page drops older vals */
};

/* A write of a queue pair to a word, waiting in the root complex. */
struct waiting_write {
	unsigned int qp;
	struct model_word *word;
	uint32_t nic;
};

struct model_page {
	struct model_word *words;
	bool listed;
	bool dirty;    /* a program's store since the last msync */
	bool metadata; /* the page's metadata is durable */
};

struct area {
	uint8_t *mem;
	size_t len;
	struct model_word **slots; /* one per word; NULL: not written */
	struct model_page *pages;
};

/* A piece of a write in the NIC or on PCIe; never crosses a cache line. */
struct piece {
	unsigned int qp;
	uint32_t order; /* sequence number of pieces and completions */
	uint8_t *addr;
	size_t len;
	uint8_t data[MODEL_LINE];
};

/* Rule by which a word's possible values are determined. */
enum rule {
	RULE_COHERENT, /* only the CPU's value, or nothing */
	RULE_DISK,     /* values that write-back wrote */
	RULE_ADR,
	RULE_EADR,
};

enum writer {
	BY_CPU,
	BY_CPU_NT,
	BY_DMA,
};

struct model {
	struct model_cfg cfg;	       /* present configuration */
	struct model_cfg first;	       /* configuration at reset */
	struct model_cfg weakened_cfg; /* that after model_weaken() */
	enum rule rule;		       /* for the values of words */
	enum rule cut;		       /* for a cut at this moment */
	struct area *areas;
	size_t nareas, cap_areas;
	/* The first nwords words are in use, the others are free. */
	struct model_word **words;
	size_t nwords, allocated_words, cap_words;
	struct model_page **pages; /* pages changed since the reset */
	size_t npages, cap_pages;
	struct model_word **fencing; /* words that the next sfence affects */
	size_t nfencing, cap_fencing;
	struct piece *pieces; /* pieces not yet placed, oldest first */
	size_t npieces, cap_pieces;
	uint32_t order;
	struct waiting_write *waiting; /* NIC writes that may wait */
	size_t nwaiting, cap_waiting;
};

/* model.c */
void model_die(const char *why) __attribute__((noreturn));
/* Return the array v, enlarged if it is full (n elements). */
void *model_grow(void *v, size_t n, size_t *cap, size_t size);
/* Find the area of addr; NULL: outside the model. */
struct area *model_area(const struct model *m, const void *addr);
/* Write bytes to memory now, and update the values of their words. */
void model_write(struct model *m, void *addr, const void *data, size_t len,
		 enum writer by);
/* May this piece be placed next? */
bool model_piece_ready(const struct model *m, size_t i);
/* Make v the only possible value of w, as after a reset. */
void model_word_set(struct model_word *w, uint64_t v);

static inline bool is_dax(const struct model *m)
{
	return m->cfg.kind == MODEL_DAX || m->cfg.kind == MODEL_DAX_SYNC;
}

/*
 * Do placed NIC writes wait in the root complex? The domain of the CPU caches
 * contains it, that of the memory controller does not.
 */
static inline bool has_waiting_writes(const struct model *m)
{
	return m->rule == RULE_ADR && m->cfg.place == MODEL_DMA_MEMORY;
}

/* Is there a persistence domain that flushes and fences reach? */
static inline bool has_domain(const struct model *m)
{
	return m->cfg.domain >= MODEL_ADR;
}

/* Is all of this memory lost in a power cut? */
static inline bool is_volatile(const struct model *m)
{
	return !is_dax(m) && m->cfg.kind != MODEL_FILE;
}

static inline struct model_page *page_of(const struct area *a, const void *addr)
{
	return &a->pages[((const uint8_t *)addr - a->mem) / MODEL_PAGE];
}

static inline struct model_word **slot_of(const struct area *a,
					  const void *addr)
{
	return &a->slots[((const uint8_t *)addr - a->mem) / MODEL_WORD];
}

static inline uint8_t *align_down(const void *addr, uintptr_t to)
{
	return (uint8_t *)addr - (uintptr_t)addr % to;
}

static inline uint64_t load_word(const void *addr)
{
	uint64_t v;

	memcpy(&v, addr, sizeof(v));
	return v;
}

static inline uint64_t merge_bytes(uint64_t v, struct bytes b)
{
	return (v & ~b.mask) | b.value;
}

/* The bytes of [addr, addr + len) that are inside the word at `word`. */
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
