/* SPDX-License-Identifier: BSD-2-Clause */
/* Model of one machine's memory for power cuts: NIC, PCIe, caches, media. */
#ifndef PMSIM_MODEL_H
#define PMSIM_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The model shares no code with prov/core, as it must judge independently.
 *
 * Memory is real memory that holds the coherent view: what a CPU load returns.
 * Beside it the model keeps, for each aligned 8-byte word, every value that a
 * power cut at this moment may leave there. So early evictions, late
 * write-backs and tearing need no choices: all their results are in the set.
 * Choices that change what a CPU sees (how far DMA has got) are the caller's.
 */

enum {
	MODEL_LINE = 64,
	MODEL_PAGE = 4096,
	MODEL_WORD = 8,
};

enum model_kind {
	MODEL_FILE,	/* page cache of a disk, written by msync */
	MODEL_DAX,	/* DAX without MAP_SYNC: blocks may be unallocated */
	MODEL_DAX_SYNC, /* DAX with MAP_SYNC, or devdax */
	MODEL_TMPFS,	/* lost in a power cut, not with the process */
	MODEL_ANON,	/* lost with the process */
	MODEL_PRIVATE,	/* private mapping: msync writes nothing */
};

/* How far bytes must get to survive a power cut (persistence domain). */
enum model_domain {
	MODEL_NONE,    /* DAX is lost; a disk keeps what msync wrote */
	MODEL_FLUSHED, /* what msync wrote, also dirty DAX pages (the kernel
			  flushes the device) */
	MODEL_ADR,     /* memory controller's queue */
	MODEL_EADR,    /* CPU caches, too */
	MODEL_SYSTEM,  /* everything, even buffers of the NIC */
};

/* The component that places incoming writes. */
enum model_place {
	MODEL_CPU_USER,	  /* stores through the program's mapping */
	MODEL_CPU_KERNEL, /* stores of the kernel: set no dirty bits */
	MODEL_DMA_CACHE,  /* DMA into the last-level cache */
	MODEL_DMA_MEMORY, /* DMA to the memory controller, not caches */
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
	bool relaxed; /* relaxed ordering of a queue pair's data */
	bool cached;  /* msync reaches only a volatile disk cache */
	unsigned int levels;
};

struct model;

struct model *model_new(const struct model_cfg *cfg);
void model_delete(struct model *m);
/*
 * Reset for the next run: memory stays allocated and is 0 again, also on the
 * media. Cost: proportional to the words written through the model.
 */
void model_reset(struct model *m);

/*
 * Declare that the machine will weaken to this configuration: follow all bytes
 * as far as the weak machine keeps them. Call after model_new() or
 * model_reset(), before the first write. The machine gets no stronger, and
 * keeps its kind of memory, except that MODEL_TMPFS may become MODEL_ANON.
 */
void model_foresee(struct model *m, const struct model_cfg *weak);
/* Weaken now: bytes that only the earlier configuration kept may be lost. */
void model_weaken(struct model *m);

/*
 * Allocate memory of the configured kind, page-aligned, len a multiple of
 * pages. It is freed with the model and survives restarts of the process. All
 * other memory is plain DRAM: it can be written through the model, so that its
 * order against persistent memory is right, but has no state.
 */
void *model_alloc(struct model *m, size_t len);
/* Does the model own this byte? */
bool model_owns(const struct model *m, const void *addr);

/* --- the CPU --- */

/* Ordinary stores, into the cache; MODEL_CPU_USER sets page dirty bits. */
void model_store(struct model *m, enum model_place who, void *addr,
		 const void *data, size_t len);
/* Non-temporal stores, past the cache; in flight until the next sfence. */
void model_store_nt(struct model *m, void *addr, const void *data, size_t len);
/* Write cache lines back; complete at the next sfence, if not before. */
void model_clwb(struct model *m, const void *addr, size_t len);
void model_sfence(struct model *m);
/*
 * Sync whole pages. Returns 0 or msync's error: -EINVAL: not the start of a
 * page; -ENOMEM: not mapped.
 */
int model_msync(struct model *m, void *addr, size_t len);
/*
 * msync on a failing disk: -EIO, and as on Linux the pages count as clean
 * although nothing was written.
 */
int model_msync_fails(struct model *m, void *addr, size_t len);

/*
 * --- the NIC of this machine ---
 *
 * A write is in the NIC or on PCIe as pieces of at most a cache line; a placed
 * piece is visible to CPUs. With MODEL_DMA_MEMORY a placed piece waits in a
 * buffer of the root complex, which MODEL_ADR does not cover (MODEL_EADR and
 * MODEL_SYSTEM do). It goes on to the memory controller at any time; writes to
 * one word stay in order, others not. Only these force it on: a read with
 * cfg.fence on its queue pair, a FLUSH of the word, clwb + sfence, msync of a
 * dirty page.
 */

/* A write arrives on qp: into the NIC's buffer, split at cache lines. */
void model_dma_write(struct model *m, unsigned int qp, void *addr,
		     const void *data, size_t len);
/*
 * A message was received: add a completion entry of qp, which never passes
 * earlier data of that queue pair. Returns its number.
 */
uint64_t model_dma_completion(struct model *m, unsigned int qp);
/*
 * A read by the NIC on qp. With cfg.fence it pushes all earlier data of qp out
 * of NIC, PCIe and root complex first; without it nothing moves.
 */
void model_dma_read(struct model *m, unsigned int qp, const void *addr,
		    void *data, size_t len);
/*
 * Execute a read late that arrived together with this completion entry: later
 * data may have passed the read, and is not pushed.
 */
void model_dma_read_at(struct model *m, uint64_t completion, const void *addr,
		       void *data, size_t len);
/*
 * Native FLUSH of one range on one queue pair. False: the NIC lacks this level,
 * and nothing moves. MODEL_VISIBLE makes earlier writes visible to CPUs, and
 * proves nothing about power cuts.
 */
bool model_dma_flush(struct model *m, unsigned int qp, enum model_level level,
		     const void *addr, size_t len);

/*
 * Number of pieces that could be placed next, in any order that the rules
 * allow; model_dma_step() takes an index below it.
 */
size_t model_dma_ready(const struct model *m);
/* Place the piece with this index among the ready ones. */
void model_dma_step(struct model *m, size_t which);
/*
 * The CPU has seen this completion entry: place exactly the pieces that must
 * precede it, oldest first. (A caller that wants another order, as `relaxed`
 * allows, calls model_dma_step() before; also before a read that pushes, or a
 * FLUSH.)
 */
void model_dma_see(struct model *m, uint64_t completion);
size_t model_dma_pending(const struct model *m);
/*
 * The NIC drops a queue pair: its pending pieces are lost, placed ones stay,
 * and no later read on qp pushes those.
 */
void model_dma_drop(struct model *m, unsigned int qp);

/* --- power --- */

#define MODEL_VALUES 128

/*
 * List the values that a power cut at this moment may leave in the word of
 * addr: values[0..n-1], the oldest first, those of pieces not yet placed last.
 * Returns n; *lost: a value that was never stored there is possible
 * (unallocated block) or, with n 0, certain (volatile memory). Aborts rather
 * than leave out a value.
 */
size_t model_after_cut(const struct model *m, const void *addr,
		       uint64_t values[MODEL_VALUES], bool *lost);
/* List the values that the death of the process alone may leave. */
size_t model_after_kill(const struct model *m, const void *addr,
			uint64_t values[MODEL_VALUES], bool *lost);
/*
 * As model_after_cut() and model_after_kill(), if only pieces that may be next
 * (see model_dma_ready()) are placed: whole, torn into words, or not. For
 * callers that check before each step: later pieces are examined then, and
 * words of one queue pair keep their order. If the domain covers all pieces,
 * all of them are placed here, too.
 */
size_t model_after_cut_ready(const struct model *m, const void *addr,
			     uint64_t values[MODEL_VALUES], bool *lost);
size_t model_after_kill_ready(const struct model *m, const void *addr,
			      uint64_t values[MODEL_VALUES], bool *lost);
/*
 * Cut the power: memory becomes one of the possible states. pick chooses:
 * pick(ctx, n) returns a number below n, and is not called without a choice;
 * NULL: no more pieces are placed, each word gets its oldest value. Then
 * nothing is in flight or dirty; lost words are zero. Pieces keep their order,
 * so fewer states are possible than by combining model_after_cut() of words.
 */
void model_cut(struct model *m, uint64_t (*pick)(void *ctx, uint64_t below),
	       void *ctx);

/*
 * Describe a word for traces, by its offset in its allocation: "word 0x40: CPU
 * sees 3, a cut leaves 1 2 3, in NIC 4".
 */
void model_print(const struct model *m, const void *addr, char *out,
		 size_t len);

#endif
