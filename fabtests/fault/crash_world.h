/* SPDX-License-Identifier: BSD-2-Clause */
/* One run: programs write and commit, an adversary acts, an oracle judges. */
#ifndef CRASH_WORLD_H
#define CRASH_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/method.h"
#include "crash_choice.h"
#include "pmsim/pmsim.h"

enum {
	CRASH_BYTES = 256, /* used by programs: four lines */
	CRASH_APART = 128, /* distance of a scattered commit's ranges */
	CRASH_WARM = 512,  /* place of a session's first commit */
	CRASH_OPS = 24,
	CRASH_INITS = 2,
};

/* Acknowledged bytes that stay durable although a fact has weakened. */
enum crash_spared {
	CRASH_SPARES_NONE,
	CRASH_SPARES_EARLIER, /* those acknowledged before it weakened */
	CRASH_SPARES_ALL,     /* by its method, whenever */
};

/* The hardware as it is, and as the target believes it to be. */
struct crash_cell {
	struct model_cfg truth;
	struct pmsim_cfg fabric;
	struct rp_facts believed;
	enum rp_class against; /* power: cuts; process: kills */
	bool data;	       /* writes carry remote CQ data */
	bool alone;	       /* one initiator, one connection */
	bool send;	       /* writes travel in messages */
	bool apart;	       /* only the smallest travel in requests */
	bool conn;	       /* over connected endpoints of the program */
	/*
	 * A value of enum verdict_send: messages stay in their receive buffers,
	 * without the provider. 0: not so.
	 */
	unsigned int inplace;
	enum rp_method forced; /* of the shim, or FI_OFI_RPMEM_METHOD; else 0 */
	bool no_atomic;	       /* shim: the agent does atomic writes */
	/* The fact that weakens while the programs run; NULL: none. */
	const char *weakens;
	struct model_cfg weak;	    /* the hardware afterwards */
	struct rp_facts weak_facts; /* that the target then finds */
	enum rp_class weak_class;   /* of the memory, by any method */
	enum crash_spared spared;
};

enum crash_kind {
	CRASH_WRITE,
	CRASH_COMMIT,
	CRASH_SCATTER,	    /* one commit: these bytes, and CRASH_APART on */
	CRASH_WRITE_COMMIT, /* one call, FI_COMMIT_COMPLETE */
	CRASH_WAIT,	    /* for all operations of this initiator */
	CRASH_REDO,	    /* write again what an earlier write lost */
	CRASH_QUERY,	    /* learn the target's present key */
	CRASH_THEN,	    /* a commit, and a store of 8 bytes behind it */
	CRASH_ATOMIC,	    /* 8 bytes set by an atomic, FI_COMMIT_COMPLETE */
	CRASH_ZERO,	    /* zeros, written by the target */
	CRASH_ZERO_COMMIT,  /* the same, durable */
};

struct crash_op {
	enum crash_kind kind;
	unsigned int off, len;
	unsigned int at; /* THEN: address of the store */
};

struct crash_prog {
	const char *name;
	unsigned int n[CRASH_INITS];
	struct crash_op op[CRASH_INITS][CRASH_OPS];
	unsigned int restarts; /* at most this many */
	unsigned int breaks;   /* verbs shim: lost queue pairs */
	unsigned int cuts;     /* lost private connections */
	unsigned int stops;   /* the target stops for longer than the timeout */
	unsigned int removes; /* addresses removed, and inserted again */
	unsigned int rekeys;  /* new registrations at the target */
	bool late;	      /* initiators may learn of a cut later */
	unsigned int disk_failures; /* msync calls of the target that fail */
	bool dies;		    /* the target dies for good */
	bool weakens;		    /* only where a fact weakens */
	bool wide;		    /* long, to examine the provider only */
	bool deep; /* long: only where a CPU places writes, in order */
	bool cold; /* without a session, key not confirmed */
	/* "first durable before second is written": 1-based ops of program 0 */
	unsigned int first, second;
};

enum crash_result {
	CRASH_OK,
	CRASH_PRUNED, /* its states are those of another run */
	CRASH_LOST,   /* acknowledged bytes may be lost */
	CRASH_WRONG,  /* another promise is broken; why says which */
};

struct crash_stats {
	uint64_t runs, steps, acked; /* acked: commits that reported success */
	uint64_t failed;	     /* commits that reported failure */
	uint64_t breaks, restarts;
	uint64_t acked_weak; /* commits acknowledged for a weakened fact */
};

/*
 * Load the simulated fabric. Exits with a message if there is none. timeout_ms:
 * FI_OFI_RPMEM_TIMEOUT.
 */
void crash_setup(unsigned int timeout_ms);
void crash_teardown(void);

enum crash_trace {
	CRASH_SILENT,
	CRASH_STEPS,
	CRASH_MESSAGES, /* print events of the fabric, too */
};

/*
 * Run one program under the choices; why (CRASH_WHY bytes) says what was lost
 * or wrong. trace: print to stderr.
 */
#define CRASH_WHY 256
enum crash_result crash_run(const struct crash_cell *cell,
			    const struct crash_prog *prog, struct choices *c,
			    enum crash_trace trace, struct crash_stats *st,
			    char *why);

/* Shorten a failing path as long as it fails in the same way. */
void crash_shrink(const struct crash_cell *cell, const struct crash_prog *prog,
		  struct choices *c, enum crash_result as);

#endif
