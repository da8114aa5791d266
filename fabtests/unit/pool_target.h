/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A target of librpmem_pool without a network: its memory, the bytes that
 * survive a power cut, and its outstanding posts. The test decides when each
 * post is executed, when its completion arrives, and when the target dies.
 */
#ifndef RP_TEST_POOL_TARGET_H
#define RP_TEST_POOL_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "libpool/pool.h"
#include "seeded.h"

#define CELLS	    12u	 /* cells of the pool, 8 bytes each */
#define MAX_POSTS   8u	 /* outstanding posts; a further one gets -FI_EAGAIN */
#define RING_CELLS  24u	 /* cells of the journal's ring */
#define MAX_ENTRIES 512u /* entries that one test may add to a journal */

enum pool_step {
	STEP_EXECUTE, /* execute the oldest unexecuted post, or a random one; a
			 commit only behind all older posts */
	STEP_FAIL_DISK, /* as STEP_EXECUTE, but the flush fails */
	STEP_COMPLETE,	/* complete a random executed post */
	STEP_EVICT,	/* write a random cell back to the media */
	STEP_COUNT,
};

struct pool_post {
	enum {
		T_WRITE,
		T_READ,
		T_COMMIT
	} what;
	bool durable, executed;
	int status; /* prov_errno of its error entry, or 0 */
	unsigned int at, n;
	void *bytes;	       /* buffer of the caller, read at execution */
	uint64_t zeros[CELLS]; /* numbers that zeros stand for; bytes is NULL */
	bool covers[CELLS];
	unsigned int store_at; /* cell of a commit's store; 0: no store */
	uint64_t store;
	void *context;
};

/*
 * Each write stores the number of its operation, so that the number in a cell
 * identifies the operation that wrote it. An operation of type ZERO stores its
 * number, too, and has it at buf.
 */
struct pool_target {
	struct rpmem_pool pool;
	struct seeded *random;
	uint64_t mem[CELLS], media[CELLS];
	struct pool_post posts[MAX_POSTS];
	unsigned int nposts, executed;
	unsigned int ncommits; /* commits posted since the start */
	/* By journal entry: the operation number that its zeros stand for. */
	uint64_t zero_values[MAX_ENTRIES];
	struct fi_cq_err_entry done[MAX_POSTS];
	unsigned int ndone;
	/* Cells whose post was lost with a connection: no commit covers them.
	 */
	bool poisoned[CELLS];
	bool up, connects; /* connects: the client reconnects */
	bool unordered;	   /* posts may overtake older posts */
	bool refuse_store; /* the next post of a store is refused */
	bool no_thread;	   /* the next reconnection gets no thread */

	struct fid_ep ep;
	struct fid_cq cq;
	struct fi_ops_rma rma;
	struct fi_ops_cq cq_ops;
	struct fi_rpmem_ops ops;
};

/* Start the only target of the process, with an open pool. */
struct pool_target *pool_target_start(struct seeded *random);
void pool_target_end(struct pool_target *t);

/* Execute a step. Returns whether it was possible. */
bool pool_target_step(struct pool_target *t, enum pool_step step);
/*
 * Deliver the completion of this post. Returns false if the post was not
 * executed.
 */
bool pool_target_complete(struct pool_target *t, unsigned int post);
/*
 * Kill the target. After a power cut each cell of its memory has the last value
 * written back or, at random, its newest value. Outstanding posts fail.
 */
void pool_target_dies(struct pool_target *t, bool power_cut);
/*
 * Lose the connection to a target that goes on. What outstanding posts write,
 * the stores of commits as well, is poisoned until a write covers it.
 */
void pool_target_disconnects(struct pool_target *t);
/* Start the target again. A client that is reconnecting then connects. */
void pool_target_returns(struct pool_target *t);

#endif
