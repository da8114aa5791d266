/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One run of the crash matrix: simulated programs write and commit, actions are
 * chosen, and an oracle (crash_oracle.h) checks what a cut would leave.
 */
#ifndef CRASH_WORLD_H
#define CRASH_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/method.h"
#include "crash_choice.h"
#include "pmsim/pmsim.h"

enum {
	CRASH_BYTES = 256, /* used by programs: four cache lines */
	CRASH_APART = 128, /* distance of the two ranges of a commit */
	CRASH_WARM = 512,  /* offset of a session's first commit */
	CRASH_OPS = 24,
	CRASH_INITS = 2,
};

/* Which acknowledged bytes stay durable when a fact weakens. */
enum crash_spared {
	CRASH_SPARES_NONE,
	CRASH_SPARES_EARLIER, /* bytes acknowledged before it weakens */
	CRASH_SPARES_ALL,     /* bytes acknowledged at any time */
};

/*
 * One variant of a scenario: the true hardware, and the facts that the target
 * reads.
 */
struct crash_cell {
	struct model_cfg truth;
	struct pmsim_cfg fabric;
	struct rp_facts believed;
	enum rp_class against; /* failure tried: power cuts, or kills
				* (process) */
	bool data;	       /* writes carry remote CQ data */
	bool alone;	       /* only one initiator, with one connection for
				* the whole run */
	bool send;	       /* writes travel in messages */
	bool apart;	       /* requests carry only the smallest writes,
				* not all small ones */
	bool conn;	       /* endpoints of programs are connected */
	/*
	 * Messages stay in their receive buffers, without the provider: a value
	 * of enum verdict_send. 0: off.
	 */
	unsigned int inplace;
	enum rp_method forced; /* method of the shim, or of
				* FI_OFI_RPMEM_METHOD; 0: none */
	bool no_atomic;	       /* shim: the agent does atomic writes */
	/*
	 * shim: connections stay when a fact weakens. by_initiator: flushes
	 * send no request to the agent. lasts: the shim's method is valid with
	 * the weaker facts, too.
	 */
	bool stays, by_initiator, lasts;
	/* shim: the method to which only the target is forced; 0: none. */
	enum rp_method target_forced;
	/* The fact that weakens while the programs run; NULL: no fact. */
	const char *weakens;
	struct model_cfg weak;	    /* the hardware after a fact weakened */
	struct rp_facts weak_facts; /* the facts that the target then finds */
	enum rp_class weak_class;   /* best class of the memory then */
	enum crash_spared spared;
	/*
	 * The class of bytes that the former method acknowledges after the fact
	 * weakened, until the target has noticed. NONE: even after that,
	 * because the target cannot save these bytes.
	 */
	enum rp_class window;
};

enum crash_kind {
	CRASH_WRITE,
	CRASH_COMMIT,
	CRASH_SCATTER,	    /* one commit of two ranges that begin
			     * CRASH_APART apart */
	CRASH_WRITE_COMMIT, /* one write with FI_COMMIT_COMPLETE */
	CRASH_WAIT,	    /* wait for all operations of this initiator */
	CRASH_REDO,	    /* repeat a write that failed */
	CRASH_QUERY,	    /* read the target's newest key, outside the
			     * fabric */
	CRASH_THEN,	    /* a commit, then a store of 8 bytes */
	CRASH_ATOMIC,	    /* 8 bytes set by an atomic, FI_COMMIT_COMPLETE */
	CRASH_ZERO,	    /* zeros that the target writes */
	CRASH_ZERO_COMMIT,  /* durable zeros that the target writes */
};

/* Variants of WRITE_COMMIT and ATOMIC. */
enum crash_variant {
	CRASH_PLAIN,
	CRASH_WITH_DATA, /* the target gets data for its completion queue */
	CRASH_FETCH,	 /* the old value is fetched */
	CRASH_CSWAP,	 /* the same, and a comparison that holds */
};

struct crash_op {
	enum crash_kind kind;
	unsigned int off, len;
	unsigned int at; /* THEN: address of the store; or enum crash_variant */
};

struct crash_prog {
	const char *name;
	unsigned int n[CRASH_INITS];
	struct crash_op op[CRASH_INITS][CRASH_OPS];
	unsigned int restarts; /* restarts of the target, at most */
	unsigned int breaks;   /* verbs shim: lost queue pairs, at most */
	unsigned int cuts;     /* lost private connections, at most */
	unsigned int stops;    /* the target stops beyond the timeout */
	unsigned int removes;  /* addresses removed and reinserted, at most */
	unsigned int rekeys;   /* reregistrations by the target, at most */
	bool late;	       /* initiators may learn of a cut later */
	unsigned int disk_failures; /* msyncs that fail, at most */
	bool dies;		    /* the target dies and never restarts */
	bool weakens;		    /* run only if a fact weakens */
	bool wide;		    /* long; runs only in the pairs `wide` of
				     * crash_search.c */
	bool deep; /* long; runs only if a CPU places writes, in order */
	bool cold; /* the run begins without a session */
	/*
	 * Promised order "first is durable before second is written": numbers
	 * of two operations of initiator 0, from 1; 0: no order.
	 */
	unsigned int first, second;
};

enum crash_result {
	CRASH_OK,
	CRASH_PRUNED, /* ended: another run visits the same states */
	CRASH_LOST,   /* acknowledged bytes may be lost */
	CRASH_WRONG,  /* another promise is broken; why says which */
};

struct crash_stats {
	uint64_t runs, steps, acked; /* acked: commits that succeeded */
	uint64_t failed;	     /* commits that failed */
	uint64_t breaks, restarts;
	uint64_t acked_weak; /* commits completed after the target noticed */
};

/*
 * Load the simulated fabric, or exit with a message. timeout_ms:
 * FI_OFI_RPMEM_TIMEOUT.
 */
void crash_setup(unsigned int timeout_ms);
void crash_teardown(void);

enum crash_trace {
	CRASH_SILENT,
	CRASH_STEPS,
	CRASH_MESSAGES, /* steps, and events of the fabric */
};

/*
 * Run one program with these choices. why[CRASH_WHY] gets what was lost or
 * broken. trace: what to print to stderr.
 */
#define CRASH_WHY 256
enum crash_result crash_run(const struct crash_cell *cell,
			    const struct crash_prog *prog, struct choices *c,
			    enum crash_trace trace, struct crash_stats *st,
			    char *why);

/*
 * Shorten the path of a run that ended with `outcome`, without changing that
 * outcome.
 */
void crash_shrink(const struct crash_cell *cell, const struct crash_prog *prog,
		  struct choices *c, enum crash_result outcome);

#endif
