/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A target of librpmem_pool without a network: its memory, what of it a power
 * cut leaves, and its outstanding posts. The test decides when each of them
 * is executed, when its completion arrives, and when the target dies.
 */
#ifndef RP_TEST_POOL_TARGET_H
#define RP_TEST_POOL_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "libpool/pool.h"
#include "seeded.h"

#define CELLS	    12u	 /* of 8 bytes each: the pool */
#define MAX_POSTS   8u	 /* a post beyond them gets -FI_EAGAIN */
#define RING_CELLS  24u	 /* of the journal */
#define MAX_ENTRIES 512u /* of a journal's life */

enum pool_step {
	STEP_EXECUTE,	/* the oldest post that is not executed yet, or another
			 * one; a commit only behind all older posts */
	STEP_FAIL_DISK, /* the same, but its flush fails */
	STEP_COMPLETE,	/* the completion of some executed post arrives */
	STEP_EVICT,	/* the target writes a cell back by itself */
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
	void *bytes; /* the caller's: they are read when it is executed */
	uint64_t zeros[CELLS]; /* what they stand for; bytes is NULL */
	bool covers[CELLS];
	unsigned int store_at; /* of a commit with a store, or 0 */
	uint64_t store;
	void *context;
};

/*
 * Each write stores the number of its operation, and so do zeros here, so that
 * the number in a cell says which operation wrote it: an operation of type ZERO
 * has its number at buf.
 */
struct pool_target {
	struct rpmem_pool pool;
	struct seeded *random;
	uint64_t mem[CELLS], media[CELLS];
	struct pool_post posts[MAX_POSTS];
	unsigned int nposts, executed;
	/* By number of the journal entry: what its zeros stand for. */
	uint64_t zero_values[MAX_ENTRIES];
	struct fi_cq_err_entry done[MAX_POSTS];
	unsigned int ndone;
	bool up, connects; /* the client waits for a new connection */
	bool unordered;	   /* posts pass others */
	bool refuses;	   /* a store: the next one, with an error */

	struct fid_ep ep;
	struct fid_cq cq;
	struct fi_ops_rma rma;
	struct fi_ops_cq cq_ops;
	struct fi_rpmem_ops ops;
};

/* The one target of the process; its pool is open. */
struct pool_target *pool_target_start(struct seeded *random, bool power);
void pool_target_end(struct pool_target *t);

/* Returns whether the step was possible. */
bool pool_target_step(struct pool_target *t, enum pool_step step);
/* The completion of this post arrives, if it was executed. */
bool pool_target_complete(struct pool_target *t, unsigned int post);
/*
 * The target dies. With a power cut its memory becomes the media, each cell as
 * it was written back last or, at random, as it is. Outstanding posts fail.
 */
void pool_target_dies(struct pool_target *t, bool power_cut);
/* It is there again: the client connects, if it waits for that. */
void pool_target_returns(struct pool_target *t);

#endif
