/* SPDX-License-Identifier: BSD-2-Clause */
/* A pool in memory for librpmem_log, with power cuts. */
#ifndef RP_TEST_LOG_RIG_H
#define RP_TEST_LOG_RIG_H

#include "fault/crash_choice.h"
#include "liblog/log.h"
#include "seeded.h"

#define RIG_OPS 1024u

struct rig_port;
struct rig {
	struct seeded *rnd;
	struct choices *choices; /* in place of rnd: each case in turn */
	bool ends;  /* polls may end the target, if they complete no read */
	bool ended; /* every operation fails */
	unsigned char *visible; /* what readers see */
	unsigned char *durable; /* what survives a power cut in any case */
	uint64_t length;
	/* operations of writes, oldest first, until poll() returns them */
	struct rig_op {
		struct rpmem_pool_op *op;
		const struct rig_port *port;
		bool placed;
	} ops[RIG_OPS];
	unsigned int nops;
	unsigned int writes; /* completed durable writes, and commits */
	int fail;	     /* result of the next write or commit, once */
	bool hold;	     /* writes and commits stay outstanding */
};

/*
 * One handle's view of the pool, or of a part: poll() returns its own
 * operations.
 */
struct rig_port {
	struct rig *rig;
	uint64_t at;	 /* where its part begins */
	uint64_t length; /* of the part; 0: the whole pool */
};

/* The pool that the calls of librpmem_pool reach: none without a rig. */
extern struct rig_pool {
	struct rig *rig;
	unsigned int parts;		/* 1: it is not divided */
	unsigned int divides_meanwhile; /* 0: nobody else; or into so many */
	unsigned int taken;		/* opens that fail: others take it */
	int taken_ret;			/* their result */
	unsigned int opens;		/* that were tried */
	unsigned int handles;		/* that are open */
	struct rpmem_pool_attr attr;	/* of the last one */
} rig_pool;

void rig_init(struct rig *r, struct seeded *rnd, uint64_t length);
void rig_fini(struct rig *r);
struct log_io rig_io(struct rig_port *port);
/*
 * The target loses its power: of each write that was not durable any 8-byte
 * words are there, and each store behind a commit is there or not, all that it
 * covers before it.
 */
void rig_cut(struct rig *r);
/* The handles end, the target goes on: what has arrived stays. */
void rig_kill(struct rig *r);
/* The same, of one handle that has its part for itself. */
void rig_kill_port(const struct rig_port *port);

#endif
