/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Simulated members of a group of pools, in memory, and writers that open the
 * group. A member executes operations in any order that librpmem_pool allows.
 * It can lose power, be unreachable or be replaced, and belongs to the writer
 * that opened it last.
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
	unsigned char *bytes; /* bytes of a write, in the library's journal */
	bool in_use;
};

struct rig_member {
	unsigned char visible[RIG_LENGTH], durable[RIG_LENGTH];
	bool up;
	bool hangs; /* connected, but nothing is executed or completes */
	int owner;  /* the writer that has it open, or -1 */
	bool disk_failed;
	bool writes_fail; /* writes fail with -EIO */
	bool reads_fail;  /* so do reads */
	bool ended;	  /* all operations fail until it is opened again */
	uint64_t length;  /* length that opening the member reports */
	/* The newest commit that the member has known durably. */
	uint64_t epoch, number;
};

struct rig_writer {
	struct group g;
	bool used, alive, opened;
	bool paused; /* no event of this writer happens */
	/* All that others wrote came after group_look(), before the opening. */
	bool opens_unseen;
	bool open[GROUP_MEMBERS]; /* the writer has a handle of the member */
	bool wants_open[GROUP_MEMBERS]; /* group_io.reopen was called */
	bool displaced[GROUP_MEMBERS]; /* another writer has taken the member */
	bool cut_off[GROUP_MEMBERS];   /* no message passes to or from it */
};

struct rig {
	struct seeded rnd;
	unsigned int n, k;
	uint64_t now;
	struct rig_member members[GROUP_MEMBERS];
	struct rig_writer writers[RIG_WRITERS];
	unsigned int nwriters;
	bool only_writers_change; /* only writers change members, and
				     rig_replace() */
	unsigned int refused; /* types of operations that are not submitted, as
				 bits: -ENOMEM */
	uint64_t unreported_at;	     /* offset whose writes are not reported as
				     complete; 0: none */
	unsigned int damaged_copies; /* copies to damage; the last one goes to a
			       member without an epoch */
	bool hold_opens;	     /* no attempt to open a member completes */
	struct rig_op ops[RIG_OPS];  /* operations in the order of submission */
	unsigned int nops;
	uint64_t submitted; /* operations of all writers */
};

void rig_start(struct rig *r, uint64_t seed, unsigned int n, unsigned int k);
void rig_end(struct rig *r);
/* Start a writer, which begins to open the group. Returns its index. */
unsigned int rig_writer_new(struct rig *r,
			    void (*completed)(void *, struct rpmem_pool_op *,
					      int, const char *));
/*
 * Kill a writer. Each cell of its outstanding writes arrives or not, at random.
 */
void rig_writer_kill(struct rig *r, unsigned int writer);
/* Cut a member's power. The library repeats uncommitted writes. */
void rig_cut(struct rig *r, unsigned int member);
/* Replace a member by an empty pool. */
void rig_replace(struct rig *r, unsigned int member);
/* Does an unexecuted operation read into this buffer? */
bool rig_touches(const struct rig *r, const void *buf, uint64_t len);
/*
 * Let one random event happen: an execution, a completion, or an opening.
 * Returns false if there is none.
 */
bool rig_event(struct rig *r);
/*
 * Make one round trip: execute and complete all outstanding operations, open
 * all members that writers want open, and let the writers react. Returns, as a
 * bit mask, the members in which something became durable: by a commit, a
 * durable write, or an opening (fi_rpmemd makes the pool's owner durable).
 */
unsigned int rig_round(struct rig *r);

#endif
