/* SPDX-License-Identifier: BSD-2-Clause */
/* A model of one machine's memory in a power cut: NIC, PCIe, cache, media. */
#ifndef PMSIM_MODEL_H
#define PMSIM_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Independent of prov/core on purpose: this is the second opinion.
 *
 * Memory is real memory that holds what a CPU load would see (the coherent
 * view). Beside it the model keeps, for each aligned 8-byte word, every value
 * that a power cut at this moment may leave there. So early evictions, late
 * write-backs and tearing need no choices: all their results are in the set.
 * Choices that change what a CPU sees (how far DMA has got) are the caller's.
 */

enum {
	MODEL_LINE = 64,
	MODEL_PAGE = 4096,
	MODEL_WORD = 8,
};

enum model_kind {
	MODEL_FILE,	/* page cache: media is a disk, reached by msync */
	MODEL_DAX,	/* DAX without MAP_SYNC: blocks may be unallocated */
	MODEL_DAX_SYNC, /* DAX with MAP_SYNC, or devdax */
	MODEL_TMPFS,	/* survives the process, not a power cut */
	MODEL_ANON,	/* does not survive the process */
	MODEL_PRIVATE,	/* private mapping: msync returns 0, writes nothing */
};

/* How far bytes must get to survive. */
enum model_domain {
	MODEL_NONE,    /* nothing of DAX; of a page cache what msync wrote */
	MODEL_FLUSHED, /* only what msync wrote: DAX pages that were dirty (the
			  kernel flushes the device as well) */
	MODEL_ADR,     /* the memory controller's queue */
	MODEL_EADR,    /* CPU caches */
	MODEL_SYSTEM,  /* everything, down to the buffers of the NIC */
};

/* The component that places incoming writes. */
enum model_place {
	MODEL_CPU_USER,	  /* stores through the user's mapping */
	MODEL_CPU_KERNEL, /* stores through the kernel's: no dirty bits */
	MODEL_DMA_CACHE,  /* DMA into the last-level cache */
	MODEL_DMA_MEMORY, /* DMA past it, to the memory controller */
};

/* Levels of native FLUSH in the NIC, as bits in model_cfg.levels. */
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
	bool cached;  /* the disk keeps what msync writes in a volatile cache */
	unsigned int levels;
};

struct model;

struct model *model_new(const struct model_cfg *cfg);
void model_delete(struct model *m);
/*
 * Reset for the next run: memory stays allocated and is 0 again, also on the
 * media. Finds only what was written through the model; the cost is
 * proportional to that.
 */
void model_reset(struct model *m);

/*
 * The machine weakens later, to this configuration: follow all bytes as far as
 * that machine keeps them. Call before the first write behind model_new() or
 * model_reset(). The machine gets no stronger, and keeps its kind of memory,
 * but for MODEL_TMPFS, which may become MODEL_ANON.
 */
void model_foresee(struct model *m, const struct model_cfg *weak);
/* Weaken now: what the former machine has kept in its caches may be lost. */
void model_weaken(struct model *m);

/*
 * Memory of the configured kind, page-aligned, len a multiple of pages; lives
 * as long as the model and survives restarts of the process that uses it. All
 * other memory is plain DRAM: it can be written through the model, so that its
 * order against persistent memory is right, but has no state.
 */
void *model_alloc(struct model *m, size_t len);
/* Does the model own this byte? */
bool model_owns(const struct model *m, const void *addr);

/* --- the CPU --- */

/* Ordinary stores: into the cache; page dirty bits as the placement says. */
void model_store(struct model *m, enum model_place who, void *addr,
		 const void *data, size_t len);
/* Non-temporal stores: bypass the cache, in flight until the next sfence. */
void model_store_nt(struct model *m, void *addr, const void *data, size_t len);
/* Write lines back; complete at the next sfence, if not before. */
void model_clwb(struct model *m, const void *addr, size_t len);
void model_sfence(struct model *m);
/*
 * Sync whole pages. Returns 0 or the system call's error: -EINVAL not the start
 * of a page, -ENOMEM not mapped.
 */
int model_msync(struct model *m, void *addr, size_t len);
/*
 * The disk fails: -EIO, and as on Linux the pages count as clean although
 * nothing was written.
 */
int model_msync_fails(struct model *m, void *addr, size_t len);

/*
 * --- the NIC of this machine ---
 *
 * A write is in the NIC or on PCIe as pieces; a placed piece is visible to
 * CPUs. With MODEL_DMA_MEMORY it is then in a buffer of the root complex, which
 * MODEL_ADR does not cover (MODEL_EADR and MODEL_SYSTEM do). From there it goes
 * to the memory controller at any time, writes to one word in order, others in
 * any; for certain only by a read with cfg.fence on its queue pair, a FLUSH of
 * the word, clwb + sfence, or msync of a dirty page.
 */

/*
 * A write that arrived on queue pair qp: into the NIC's buffer, cut into pieces
 * at cache lines.
 */
void model_dma_write(struct model *m, unsigned int qp, void *addr,
		     const void *data, size_t len);
/*
 * A completion entry of qp (a message was received): behind all data of that
 * queue pair, never passing it. Returns its number.
 */
uint64_t model_dma_completion(struct model *m, unsigned int qp);
/*
 * A read by the NIC on qp. With cfg.fence it pushes everything earlier of qp
 * out of NIC, PCIe and root complex first; without, nothing moves.
 */
void model_dma_read(struct model *m, unsigned int qp, const void *addr,
		    void *data, size_t len);
/*
 * The same for a read that arrived at the place of this completion entry: later
 * data may have passed it, and is not pushed.
 */
void model_dma_read_at(struct model *m, uint64_t completion, const void *addr,
		       void *data, size_t len);
/*
 * Native FLUSH of one range on one queue pair. False, and nothing moves: the
 * NIC lacks this level. MODEL_VISIBLE makes earlier writes visible to CPUs, and
 * proves nothing about power cuts.
 */
bool model_dma_flush(struct model *m, unsigned int qp, enum model_level level,
		     const void *addr, size_t len);

/*
 * Number n of pieces that could be placed next, in any order that the rules
 * allow: 0 .. n-1 for model_dma_step().
 */
size_t model_dma_ready(const struct model *m);
/* Place one of them. */
void model_dma_step(struct model *m, size_t which);
/*
 * The CPU has seen completion number n: place everything that must precede it,
 * no more, oldest first. (Other orders that `relaxed` allows need earlier
 * steps. The same is true of a read that pushes and of a FLUSH.)
 */
void model_dma_see(struct model *m, uint64_t completion);
size_t model_dma_pending(const struct model *m);
/*
 * The NIC forgets a queue pair: its pending pieces are lost, placed ones stay,
 * and no read on qp pushes them any more.
 */
void model_dma_drop(struct model *m, unsigned int qp);

/* --- power --- */

#define MODEL_VALUES 128

/*
 * The values that a power cut at this moment may leave in the word of addr:
 * values[0..n-1], the oldest first, those of pieces not yet placed last.
 * Returns n; *lost: another value than any ever stored there is possible
 * (unallocated block) or, with n 0, certain (volatile memory). Aborts rather
 * than leave out a value.
 */
size_t model_after_cut(const struct model *m, const void *addr,
		       uint64_t values[MODEL_VALUES], bool *lost);
/* The same for the death of the process alone. */
size_t model_after_kill(const struct model *m, const void *addr,
			uint64_t values[MODEL_VALUES], bool *lost);
/*
 * Both, if of the pieces in flight only those that may be next (see
 * model_dma_ready()) are placed, whole or torn into words, or none. For callers
 * that check before each step: effects of later pieces are found there, and
 * words of one queue pair keep their order among each other. If the domain
 * covers all pieces all of them are placed, here too.
 */
size_t model_soon(const struct model *m, const void *addr,
		  uint64_t values[MODEL_VALUES], bool *lost);
size_t model_soon_kill(const struct model *m, const void *addr,
		       uint64_t values[MODEL_VALUES], bool *lost);
/*
 * Cut the power: memory becomes one of the possible states, chosen by pick
 * (NULL: nothing more is placed, the oldest value of each word); nothing is in
 * flight any more, nothing is dirty. Lost words become zeroes. pick(ctx, n)
 * returns a number below n, and is not called without a choice. Pieces keep
 * their order, so this is narrower than a choice for each word from
 * model_after_cut().
 */
void model_cut(struct model *m, uint64_t (*pick)(void *ctx, uint64_t below),
	       void *ctx);

/*
 * For traces: "word 0x40: CPU sees 3, a cut leaves 1 2 3, in NIC 4", the word
 * by its offset in its allocation.
 */
void model_print(const struct model *m, const void *addr, char *out,
		 size_t len);

#endif
