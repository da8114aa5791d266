/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Members of a group in memory, and writers that open it. A member executes
 * operations in any order that librpmem_pool allows, loses its power, is away,
 * is replaced, and belongs to the writer that opened it last.
 */
#ifndef RP_TEST_GROUP_RIG_H
#define RP_TEST_GROUP_RIG_H

#include "libpool/group.h"
#include "seeded.h"

#define RIG_CHUNKS  12u
#define RIG_BYTES   (RIG_CHUNKS * GROUP_CHUNK)
#define RIG_CELLS   (RIG_BYTES / 8)
#define RIG_LENGTH  (GROUP_AREA + RIG_BYTES)
#define RIG_WRITERS 24u
#define RIG_OPS	    4096u

/* An operation that a writer has submitted to a member. */
struct rig_op {
	unsigned int writer, member;
	struct rpmem_pool_op *op;
	bool executed;
	unsigned char *bytes; /* of a write: the library's journal */
	bool live;
};

struct rig_member {
	unsigned char visible[RIG_LENGTH], durable[RIG_LENGTH];
	bool up;
	int owner; /* the writer that has it open, or -1 */
	bool disk_failed;
	bool writes_fail; /* with -EIO */
	uint64_t length;  /* that an opening reports */
	/* The newest commit that it knew durably. */
	uint64_t epoch, number;
};

struct rig_writer {
	struct group g;
	bool used, alive, opened;
	bool paused;		       /* nothing of it goes on */
	bool blind;		       /* it opens members without a look */
	bool open[GROUP_MEMBERS];      /* it has a handle */
	bool wants[GROUP_MEMBERS];     /* group_io.reopen was called */
	bool displaced[GROUP_MEMBERS]; /* by another writer */
};

struct rig {
	struct seeded rnd;
	unsigned int n, k;
	uint64_t now;
	struct rig_member members[GROUP_MEMBERS];
	struct rig_writer writers[RIG_WRITERS];
	unsigned int nwriters;
	bool honest; /* only writers change members, but for rig_replace() */
	uint64_t unreported; /* writes to this offset are not reported; 0: all
				are */
	unsigned int flips;  /* copies that arrive damaged, the last one of them
			      * at a member without an epoch */
	bool unopened;	     /* no attempt to open a member ends */
	struct rig_op ops[RIG_OPS]; /* in the order of submission */
	unsigned int nops;
	uint64_t submitted; /* operations, of all writers */
};

void rig_start(struct rig *r, uint64_t seed, unsigned int n, unsigned int k);
void rig_end(struct rig *r);
/* A writer begins to open the group; its index. */
unsigned int rig_writer_new(struct rig *r,
			    void (*completed)(void *, struct rpmem_pool_op *,
					      int, const char *));
/* Its process ends: what it had outstanding arrives or not. */
void rig_writer_kill(struct rig *r, unsigned int writer);
/* The power of a member fails; the library repeats what was not committed. */
void rig_cut(struct rig *r, unsigned int member);
/* An empty pool takes the place of a member. */
void rig_replace(struct rig *r, unsigned int member);
/* Whether an operation that has not been executed reads to a buffer. */
bool rig_touches(const struct rig *r, const void *buf, uint64_t len);
/* One random event: an execution, a completion, an opening. False: none. */
bool rig_event(struct rig *r);
/*
 * One round trip: all that is outstanding is executed and completes, and all
 * members that are wanted open; then writers act on it. The members, as bits,
 * at which it was durable, by a commit or a durable write.
 */
unsigned int rig_round(struct rig *r);

#endif
