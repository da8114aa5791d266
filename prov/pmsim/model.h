/* SPDX-License-Identifier: BSD-2-Clause */
/* What a power cut leaves of one machine's memory: NIC, PCIe, cache, media. */
#ifndef PMSIM_MODEL_H
#define PMSIM_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Nothing here is part of prov/core, on purpose: this is the other opinion.
 *
 * Memory is real memory that holds what a CPU load would see (the coherent
 * view). Beside it the model keeps, for each aligned 8-byte word, every value
 * that a power cut at this moment may leave there. So early evictions, late
 * write-backs and tearing need no choices: whatever they can do is in the set.
 * Choices that change what a CPU sees (how far DMA has got) are the caller's.
 */

enum {
	MODEL_LINE = 64,
	MODEL_PAGE = 4096,
	MODEL_WORD = 8,
};

enum model_kind {
	MODEL_FILE,	/* page cache: media is a disk, msync gets there */
	MODEL_DAX,	/* DAX without MAP_SYNC: blocks may be unallocated */
	MODEL_DAX_SYNC, /* DAX with MAP_SYNC, or devdax */
	MODEL_TMPFS,	/* survives the process, never a power cut */
	MODEL_ANON,	/* survives nothing */
	MODEL_PRIVATE,	/* private mapping: msync says 0 and writes nothing */
};

/* How far bytes must get to survive. */
enum model_domain {
	MODEL_NONE,   /* only what msync wrote: a disk, or DAX pages that were
			 dirty (the kernel flushes the device as well) */
	MODEL_ADR,    /* the memory controller's queue */
	MODEL_EADR,   /* CPU caches */
	MODEL_SYSTEM, /* everything, down to the buffers of the NIC */
};

/* Who places incoming writes. */
enum model_place {
	MODEL_CPU_USER,	  /* stores through the user's mapping */
	MODEL_CPU_KERNEL, /* stores through the kernel's: no dirty bits */
	MODEL_DMA_CACHE,  /* DMA into the last-level cache */
	MODEL_DMA_MEMORY, /* DMA past it, to the memory controller */
};

/* Of native FLUSH, as bits in model_cfg.levels: what the NIC can do. */
enum model_level {
	MODEL_VISIBLE = 1,
	MODEL_PERSISTENT = 2,
};

struct model_cfg {
	enum model_kind kind;
	enum model_domain domain;
	enum model_place place;
	bool fence;   /* a DMA read pushes earlier writes of its queue pair */
	bool relaxed; /* data of one queue pair may overtake data */
	unsigned int levels;
};

struct model;

struct model *model_new(const struct model_cfg *cfg);
void model_delete(struct model *m);
/*
 * As new, for the next run: what was allocated stays so and is zeroes again,
 * which are on the media. Only what was written through the model is found;
 * costs as much as that.
 */
void model_reset(struct model *m);

/*
 * Memory of the configured kind, page-aligned, len a multiple of pages; lives
 * as long as the model and survives restarts of the process that uses it. All
 * other memory is plain DRAM: it can be written through the model, so that the
 * order against what is persistent is right, and nothing is known about it.
 */
void *model_alloc(struct model *m, size_t len);
/* Does the model own this byte? */
bool model_owns(const struct model *m, const void *addr);

/* --- the CPU --- */

/* Ordinary stores: into the cache; page dirty bits as the placement says. */
void model_store(struct model *m, enum model_place who, void *addr,
		 const void *data, size_t len);
/* Non-temporal: past the cache, on its way until the next sfence. */
void model_store_nt(struct model *m, void *addr, const void *data, size_t len);
/* Write lines back; they are there after the next sfence, if not before. */
void model_clwb(struct model *m, const void *addr, size_t len);
void model_sfence(struct model *m);
/*
 * Whole pages. Returns 0 or what the system call would: -EINVAL not the start
 * of a page, -ENOMEM not mapped.
 */
int model_msync(struct model *m, void *addr, size_t len);
/*
 * The disk fails: -EIO, and as on Linux the pages count as clean from now on
 * although nothing of them was written.
 */
int model_msync_fails(struct model *m, void *addr, size_t len);

/*
 * --- the NIC of this machine ---
 *
 * A write is in the NIC or on PCIe until it gets there, which is when CPUs see
 * it: a piece. With MODEL_DMA_MEMORY it is then in a buffer of the root
 * complex, which MODEL_ADR does not cover (MODEL_EADR and MODEL_SYSTEM do).
 * From there it goes to the memory controller at any time, writes to one word
 * in their order, others in any; for certain only by a read with cfg.fence on
 * its queue pair, a FLUSH of the word, clwb + sfence, or msync of a dirty page.
 */

/*
 * A write that arrived on queue pair qp: into the NIC's buffer, cut into
 * pieces that do not cross a line.
 */
void model_dma_write(struct model *m, unsigned int qp, void *addr,
		     const void *data, size_t len);
/*
 * A completion entry of qp (a message was received): behind all data of that
 * queue pair, never overtaking. Returns its number.
 */
uint64_t model_dma_completion(struct model *m, unsigned int qp);
/*
 * A read by the NIC on qp. With cfg.fence everything of qp before it gets out
 * of NIC, PCIe and root complex first; without, nothing moves.
 */
void model_dma_read(struct model *m, unsigned int qp, const void *addr,
		    void *data, size_t len);
/*
 * The same of a read that had arrived where this completion entry would stand:
 * data behind that may have passed it, and is not pushed.
 */
void model_dma_read_at(struct model *m, uint64_t completion, const void *addr,
		       void *data, size_t len);
/*
 * Native FLUSH of one queue pair, one range. False, and nothing moves: this NIC
 * has no such level. After MODEL_VISIBLE CPUs see what came before it; it says
 * nothing about power cuts.
 */
bool model_dma_flush(struct model *m, unsigned int qp, enum model_level level,
		     const void *addr, size_t len);

/*
 * Pieces that could get to memory next, in any order that the rules allow:
 * numbered 0 .. n-1 for model_dma_step().
 */
size_t model_dma_ready(const struct model *m);
/* One of them gets there. */
void model_dma_step(struct model *m, size_t which);
/*
 * The CPU has seen completion number n: everything that may not be behind it
 * has got there, no further, oldest first. (Other orders that `relaxed` allows
 * are had by steps before. The same is true of a read that pushes and of a
 * FLUSH.)
 */
void model_dma_see(struct model *m, uint64_t completion);
size_t model_dma_pending(const struct model *m);
/*
 * The NIC forgets a queue pair: pieces that are still pending are lost, what
 * got there stays, and no read on qp pushes it any more.
 */
void model_dma_drop(struct model *m, unsigned int qp);

/* --- the power --- */

#define MODEL_VALUES 128

/*
 * What a cut at this moment may leave in the word that addr is in:
 * values[0..n-1], those that were there first first, those of pieces not yet
 * there last. Returns n; *lost: something else than any value ever stored
 * there is possible (unallocated block) or, with n 0, certain (volatile
 * memory). Aborts rather than leave out a value.
 */
size_t model_after_cut(const struct model *m, const void *addr,
		       uint64_t values[MODEL_VALUES], bool *lost);
/* The same for the death of the process alone. */
size_t model_after_kill(const struct model *m, const void *addr,
			uint64_t values[MODEL_VALUES], bool *lost);
/*
 * Both, if of the pieces still on their way only those that may be next (see
 * model_dma_ready()) have got there, whole or torn into words, or none. For
 * callers that ask before each step: what only later pieces can do comes up
 * there, and words of one queue pair keep their order among each other. Where
 * the domain keeps all pieces all of them get there, here too.
 */
size_t model_soon(const struct model *m, const void *addr,
		  uint64_t values[MODEL_VALUES], bool *lost);
size_t model_soon_kill(const struct model *m, const void *addr,
		       uint64_t values[MODEL_VALUES], bool *lost);
/*
 * The power goes: memory becomes one of the possible states, chosen by pick
 * (NULL: nothing more gets there, the oldest value of each word); nothing is
 * in flight any more, nothing is dirty. Lost words become zeroes. pick(ctx, n)
 * says a number below n, and is not asked when there is no choice. Pieces that
 * must not overtake do not, so this is narrower than a choice for each word
 * by itself from model_after_cut().
 */
void model_cut(struct model *m, uint64_t (*pick)(void *ctx, uint64_t below),
	       void *ctx);

/*
 * For traces: "word 0x40: CPU sees 3, a cut leaves 1 2 3, in NIC 4", the word
 * by its place in its allocation.
 */
void model_print(const struct model *m, const void *addr, char *out,
		 size_t len);

#endif
