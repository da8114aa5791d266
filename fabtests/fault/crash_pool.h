/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A client's pool over the provider on the simulated fabric, for crash_log,
 * crash_rpc and crash_dirty. The search chooses the steps of both machines, and
 * recovers from the images of power cuts.
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

/* A simulated target, and the method that makes writes to it durable. */
struct pool_cell {
	const char *method;
	struct model_cfg truth;
	struct rp_facts facts;
	bool placed_acks; /* the adapter acknowledges placed writes; false:
			   * received ones */
	bool apart;	  /* requests to the agent carry no bytes of writes */
};
extern const struct pool_cell pool_cells[];
#define POOL_CELLS 9u

/* The program of a run: crash_log, crash_rpc or crash_dirty. */
struct pool_program {
	uint64_t length;
	uint64_t ring_at;   /* offset of the ring, behind the superblock */
	unsigned int modes; /* images recovered at a cut; at least 6 */
	/* A hash of all state that recover() compares an image with. */
	uint64_t (*state)(void);
	void (*recover)(const unsigned char *image);
	bool (*may_submit)(void);
	void (*submit)(void);
	void (*poll)(void);
	bool (*is_done)(void);
	/* Steps of the program's own code at the target; NULL: it has none. */
	bool (*may_serve)(void);
	void (*serve)(void);
	/* Called before each step, or NULL. */
	void (*step)(void);
};

struct pool_world {
	const struct pool_cell *cell;
	const struct pool_program *program;
	struct model *model;
	uint8_t *mem;
	uint64_t key, now, rng;
	struct node node[2];
	unsigned int ignored[2]; /* by machine: events that its last poll
				  * left unread */
	bool exploring, checking;
	bool instant; /* operations store to the memory directly and complete
		       * at once */
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

uint64_t pool_mix_hash(uint64_t z);
/*
 * Connect the provider to the simulated host. Returns in how many orders of its
 * events to run each program: runs, or long_runs if RP_LONG is 1.
 */
unsigned int pool_setup(unsigned int runs, unsigned int long_runs);
/* Print how many programs passed and failed. Returns the exit status. */
int pool_end(unsigned int tried, unsigned int failed);
/* Open both machines, with a pool of zeros. */
void pool_start(const struct pool_cell *cell, const struct pool_program *p);
/*
 * Run steps, chosen by choose(), until the program is done. Then close both
 * machines.
 */
void pool_run(void);
/* Recover from images that a power cut may leave now. */
void pool_cut(void);
/* Submit and poll operations of the client, as librpmem_pool does. */
int pool_submit(void *arg, struct rpmem_pool_op *op);
int pool_poll(void *arg, struct rpmem_pool_op **done, unsigned int n,
	      int timeout_ms);
/* An image that a cut has left, as the pool of a recovery. */
struct pool_image {
	unsigned char bytes[POOL_LONGEST];
	struct rpmem_pool_op *ended[POOL_OPS];
	unsigned int nended;
};
/*
 * Submit and poll operations on an image, which complete at once; arg: a
 * pool_image.
 */
int pool_image_submit(void *arg, struct rpmem_pool_op *op);
int pool_image_poll(void *arg, struct rpmem_pool_op **done, unsigned int n,
		    int timeout_ms);
/* Let the client's machine poll its completion queue. */
void pool_poll_machine(void);
/*
 * Store by the target's CPU, write the lines back, and wait for the write-backs
 * (clwb, sfence).
 */
void pool_store(uint64_t at, const void *from, size_t len);
void pool_flush(uint64_t at, uint64_t len);
void pool_drain(void);
/*
 * Try every order of messages of a program, or the first `most` and `most`
 * random ones. one(arg) runs the program once. Prints the result under this
 * name. Returns false if a run has failed.
 */
bool pool_explore(const char *name, void (*one)(const void *arg),
		  const void *arg, unsigned int most);

#endif
