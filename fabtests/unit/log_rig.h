/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Replaces librpmem_pool for tests of librpmem_log: a pool in memory, with
 * power cuts.
 */
#ifndef RP_TEST_LOG_RIG_H
#define RP_TEST_LOG_RIG_H

#include "fault/crash_choice.h"
#include "liblog/log.h"
#include "seeded.h"

#define RIG_OPS 1024u

struct rig_port;
struct rig {
	struct seeded *rnd;
	struct choices *choices; /* cases to try in turn, instead of rnd */
	bool may_stop; /* a poll that completes no read may stop the target */
	bool ended;    /* the target has stopped: every operation fails */
	unsigned char *visible; /* what readers see */
	unsigned char *durable; /* what survives a power cut for certain */
	uint64_t length;
	/*
	 * Outstanding writes and commits, oldest first, until poll() returns
	 * them.
	 */
	struct rig_op {
		struct rpmem_pool_op *op;
		const struct rig_port *port;
		bool placed;
	} ops[RIG_OPS];
	unsigned int nops;
	unsigned int writes; /* completed durable writes and commits */
	int fail_once;	     /* result of the next write or commit, used once */
	bool hold_writes;    /* writes and commits stay outstanding */
};

/*
 * One handle's view of the pool or of a part: poll() returns the handle's own
 * operations.
 */
struct rig_port {
	struct rig *rig;
	uint64_t at;	 /* offset of its part in the pool */
	uint64_t length; /* length of its part; 0: the whole pool */
};

/* The pool that the functions of librpmem_pool open; rig NULL: none. */
extern struct rig_pool {
	struct rig *rig;
	unsigned int parts; /* number of parts; 1: the pool is not divided */
	unsigned int parts_made_meanwhile; /* parts that another client makes
					   meanwhile */
	unsigned int opens_to_fail;  /* opens that fail: others take the pool */
	int open_failure;	     /* result of those opens */
	unsigned int opens;	     /* number of attempts to open the pool */
	unsigned int handles;	     /* number of open handles */
	struct rpmem_pool_attr attr; /* attributes of the last open */
} rig_pool;

void rig_init(struct rig *r, struct seeded *rnd, uint64_t length);
void rig_fini(struct rig *r);
struct log_io rig_io(struct rig_port *port);
/*
 * Cut the target's power. Any 8-byte words of a write that was not durable
 * survive. The store of an unfinished commit survives or not; if it does, so do
 * all writes that the commit covers.
 */
void rig_cut(struct rig *r);
/* Kill the handles; the target keeps the bytes that have arrived. */
void rig_kill(struct rig *r);
/* Like rig_kill(), for one handle that is alone in its part. */
void rig_kill_port(const struct rig_port *port);

#endif
