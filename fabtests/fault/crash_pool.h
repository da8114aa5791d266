/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One client's pool over the provider on the simulated fabric, for crash_log,
 * crash_rpc and crash_dirty: the steps of both machines, and the images of
 * power cuts.
 */
#ifndef CRASH_POOL_H
#define CRASH_POOL_H

#include <rpmem_pool.h>

#include "crash_choice.h"
#include "crash_node.h"

#define POOL_OPS     32u
#define POOL_TARGET  1u
#define POOL_PUMPS   200
#define POOL_LONGEST (32u << 10)
#define POOL_MS	     1000000ull

/* A machine, and the method by which durable writes to it are durable. */
struct pool_cell {
	const char *method;
	struct model_cfg truth;
	struct rp_facts facts;
	bool placed_acks; /* acknowledge placed writes; else received ones */
	bool apart;	  /* the agent gets no bytes inside its requests */
};
extern const struct pool_cell pool_cells[];
/* The last cells have `apart`. */
#define POOL_CELLS	 8u
#define POOL_CELLS_APART 2u

/* Functions of the program that has the pool. */
struct pool_program {
	uint64_t length;
	uint64_t ring_at;   /* first byte behind the fixed part */
	unsigned int modes; /* images recovered at a cut; at least 6 */
	/* All that recover() compares an image with. */
	uint64_t (*state)(void);
	void (*recover)(const unsigned char *image);
	bool (*may_submit)(void);
	void (*submit)(void);
	void (*poll)(void);
	bool (*is_done)(void);
	/* Steps of code at the target; NULL: there is none. */
	bool (*may_serve)(void);
	void (*serve)(void);
	/* Called before each step; NULL: nothing is. */
	void (*step)(void);
};

struct pool_world {
	const struct pool_cell *cell;
	const struct pool_program *program;
	struct model *model;
	uint8_t *mem;
	uint64_t key, now, rng;
	struct node node[2];
	unsigned int ignored[2]; /* unread events, by machine */
	bool exploring, checking;
	bool instant; /* operations complete at once, outside the fabric */
	struct rpmem_pool_op *out[POOL_OPS]; /* outstanding writes */
	unsigned int nout;
	struct rpmem_pool_op *ended[POOL_OPS];
	unsigned int nended;
	struct fi_rma_iov open[POOL_OPS]; /* ranges written, not committed */
	unsigned int nopen;
	uint64_t high;	    /* end of the highest write so far */
	unsigned long cuts; /* images recovered so far */
	char why[256];	    /* the first failure, or empty */
};
extern struct pool_world pw;
extern struct choices choices;

#define WRONG(...)                                                             \
	do {                                                                   \
		if (!*pw.why)                                                  \
			snprintf(pw.why, sizeof(pw.why), __VA_ARGS__);         \
	} while (0)

uint64_t pool_mix(uint64_t z);
/*
 * Connect libfabric's provider to the simulated host. Returns the number of
 * orders to try of a program: long_runs when RP_LONG is 1.
 */
unsigned int pool_setup(unsigned int runs, unsigned int long_runs);
/* Print the numbers of programs. Returns the exit status. */
int pool_end(unsigned int tried, unsigned int failed);
/* Open both machines, with a pool of zeros. */
void pool_start(const struct pool_cell *cell, const struct pool_program *p);
/* Let the adversary choose steps until the program is done, and close. */
void pool_run(void);
/* Recover from images that a power cut may leave now. */
void pool_cut(void);
/* Operations of the client, as librpmem_pool has them. */
int pool_submit(void *arg, struct rpmem_pool_op *op);
int pool_poll(void *arg, struct rpmem_pool_op **done, unsigned int n,
	      int timeout_ms);
/* The pool of a recovery: what a cut has left. */
struct pool_image {
	unsigned char bytes[POOL_LONGEST];
	struct rpmem_pool_op *ended[POOL_OPS];
	unsigned int nended;
};
/* Operations of a recovery, which complete at once; arg: a pool_image. */
int pool_image_submit(void *arg, struct rpmem_pool_op *op);
int pool_image_poll(void *arg, struct rpmem_pool_op **done, unsigned int n,
		    int timeout_ms);
/* Let the client's machine poll its completion queue. */
void pool_poll_machine(void);
/* Store as the target's CPU does, and write back by its flusher. */
void pool_store(uint64_t at, const void *from, size_t len);
void pool_flush(uint64_t at, uint64_t len);
void pool_drain(void);
/*
 * Try every order of a program, or many orders: one(arg) starts and runs it.
 * Prints what was tried under this name. False: a run has failed.
 */
bool pool_explore(const char *name, void (*one)(const void *arg),
		  const void *arg, unsigned int most);

#endif
