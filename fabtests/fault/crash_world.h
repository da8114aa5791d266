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
	CRASH_BYTES = 256, /* that programs use: four lines */
	CRASH_APART = 128, /* the ranges of a scattered commit */
	CRASH_WARM = 512,  /* where the first commit of a session goes */
	CRASH_OPS = 24,
	CRASH_INITS = 2,
};

/* The hardware as it is, and what the target believes it is. */
struct crash_cell {
	struct model_cfg truth;
	struct pmsim_cfg fabric;
	struct rp_facts believed;
	enum rp_class against; /* power: cuts; process: kills */
	bool data;	       /* writes carry remote CQ data */
	bool alone;	       /* one initiator, one connection */
	bool send;	       /* they travel in messages */
	bool apart;	       /* only the smallest travel in requests */
	bool conn;	       /* over connections of the program's own */
	/*
	 * And stay where those are received, without the provider: a value of
	 * enum verdict_send, 0: not so.
	 */
	unsigned int inplace;
	enum rp_method forced; /* upon the verbs shim; else nothing */
	bool no_atomic;	       /* ... whose devices leave those to the agent */
};

enum crash_kind {
	CRASH_WRITE,
	CRASH_COMMIT,
	CRASH_SCATTER,	    /* one commit: these bytes and CRASH_APART behind */
	CRASH_WRITE_COMMIT, /* one call, FI_COMMIT_COMPLETE */
	CRASH_WAIT,	    /* for everything this initiator has posted */
	CRASH_REDO,	    /* write again what an earlier write lost */
	CRASH_ASK,	    /* learn the key that the target has now */
	CRASH_THEN,	    /* a commit, and 8 bytes stored behind it */
	CRASH_ATOMIC,	    /* 8 bytes set by one, FI_COMMIT_COMPLETE */
};

struct crash_op {
	enum crash_kind kind;
	unsigned int off, len;
	unsigned int at; /* THEN: where the 8 bytes go */
};

struct crash_prog {
	const char *name;
	unsigned int n[CRASH_INITS];
	struct crash_op op[CRASH_INITS][CRASH_OPS];
	unsigned int restarts; /* at most so many */
	unsigned int breaks;   /* the verbs shim: of queue pairs */
	unsigned int cuts;     /* of private connections */
	unsigned int stops;   /* the target stops for longer than the timeout */
	unsigned int removes; /* addresses removed, and inserted again */
	unsigned int rekeys;  /* the target registers once more */
	bool late;	      /* ... which may be told later */
	unsigned int fails;   /* msyncs of the target */
	bool dies;	      /* the target, for good */
	bool wide;	      /* long: of interest is what the provider does */
	bool deep; /* longer: not with a NIC's choices, or without order */
	bool cold; /* no session yet, key not confirmed */
	/* "first durable before second is written": 1-based ops of program 0 */
	unsigned int first, second;
};

enum crash_result {
	CRASH_OK,
	CRASH_PRUNED, /* the same as another run */
	CRASH_LOST,   /* acknowledged bytes may be gone */
	CRASH_WRONG,  /* another promise is broken; why says which */
};

struct crash_stats {
	uint64_t runs, steps, acked; /* acked: commits that said durable */
	uint64_t failed;	     /* commits that said otherwise */
	uint64_t breaks, restarts;
};

/* Load the simulated fabric. Dies with a message where it is not there. */
void crash_setup(void);
void crash_teardown(void);

enum crash_trace {
	CRASH_SILENT,
	CRASH_STEPS,
	CRASH_MESSAGES, /* the fabric's events too */
};

/*
 * One run under the choices; why (CRASH_WHY bytes) says what was lost or wrong.
 * trace goes to stderr.
 */
#define CRASH_WHY 256
enum crash_result crash_run(const struct crash_cell *cell,
			    const struct crash_prog *prog, struct choices *c,
			    enum crash_trace trace, struct crash_stats *st,
			    char *why);

/* Shorten a failing path while it fails the same way. */
void crash_shrink(const struct crash_cell *cell, const struct crash_prog *prog,
		  struct choices *c, enum crash_result as);

#endif
