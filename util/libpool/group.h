/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A group of pools: every write goes to all n members, and a commit completes
 * when it is durable at k of them. docs/protocol.md, "Groups".
 * This part has no threads, no lock and no clock: its owner opens members,
 * submits operations to them, and reports what happened.
 */
#ifndef RP_LIBPOOL_GROUP_H
#define RP_LIBPOOL_GROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "libpool/pool.h"

#define GROUP_MEMBERS 8
#ifndef GROUP_AREA
#define GROUP_AREA 65536u /* first bytes of a member, before the caller's */
#endif
#ifndef GROUP_CHUNK
#define GROUP_CHUNK (256u << 10) /* least bytes per bit of the bitmap */
#endif
#ifndef GROUP_HOT
#define GROUP_HOT 256u /* with more set bits, old ones are cleared */
#endif
#ifndef GROUP_BACKLOG
#define GROUP_BACKLOG (32u << 20) /* most bytes that a slow member may lag */
#endif
#ifndef GROUP_READ_RATE
#define GROUP_READ_RATE 1024u /* bytes per ms of the slowest healthy member */
#endif
#define GROUP_TRIES	  3u   /* tries for a chunk that reads back damaged */
#define GROUP_READ_MS	  1000 /* limit for a read, if k others are current */
#define GROUP_READ_FEW_MS 4000 /* limit for a read, if any other is current */
#define GROUP_REPEAT_MS	  100  /* pause before a failed leg is repeated */
#define GROUP_FORMAT	  1

/* Offsets in the area. */
#define GROUP_PROMISE_AT   512u
#define GROUP_FULL_AT	   768u
#define GROUP_LEFT_AT	   896u
#define GROUP_COPIED_AT	   960u
#define GROUP_SLOT_AT(s)   (1024u + (s)*512u)
#define GROUP_NUMBER_AT(s) (GROUP_SLOT_AT(s) + 256u)
#define GROUP_BITS_AT	   4096u
#define GROUP_BITS	   ((uint64_t)(GROUP_AREA - GROUP_BITS_AT) * 8)
#define GROUP_SUPER	   80u /* bytes of the superblock, at offset 0 */
#define GROUP_SLOT	   16u

/* The superblock: written once, when the group is created. */
struct group_super {
	uint32_t n, k;
	uint64_t id[2];	 /* random, the same at all members */
	uint64_t length; /* bytes for the caller's data */
	uint64_t chunk;	 /* bytes per bit of the bitmap */
	bool founder;	 /* false: the member replaced a lost one */
};

/* The rest of a member's area, decoded. */
struct group_state {
	uint64_t promised; /* the newest epoch that a writer began to write */
	uint64_t epoch;	   /* epoch of the data; 0: no data yet */
	uint64_t number;   /* number of the newest commit of that epoch */
	uint64_t full;	   /* an epoch that all n members once had */
	unsigned int slot; /* slot that has epoch and number */
	uint64_t left;	   /* bytes still to copy to it; only for display */
	/* A copy of all chunks: the first `copied` ones became durable. */
	uint64_t copied, copied_epoch; /* epoch in which that was recorded */
};

/* Whether two superblocks are of one group. */
bool group_super_same(const struct group_super *a, const struct group_super *b);
void group_super_encode(const struct group_super *s,
			unsigned char to[GROUP_SUPER]);
/* Returns 0; -ENODATA: the area is zero; -EBADMSG: it is no area of a group. */
int group_area_decode(const unsigned char area[GROUP_AREA],
		      struct group_super *s, struct group_state *state);
/* Pack both numbers into a word. Returns 0 if the epoch exceeds 44 bits. */
uint64_t group_copied_encode(uint64_t epoch, uint64_t chunks);
void group_slot_encode(const struct group_super *s, uint64_t epoch,
		       unsigned char to[GROUP_SLOT]);

/* States of a member; docs/protocol.md, "Groups", maps them to the API's. */
enum member_state {
	MEMBER_AWAY,	  /* the pool is closed or being opened */
	MEMBER_INSPECT,	  /* the area is being read */
	MEMBER_SEEN,	  /* read; waits for the choice of the epoch */
	MEMBER_MARKING,	  /* the superblock's first bytes are being written */
	MEMBER_MARKED,	  /* waits for the other members of a new group */
	MEMBER_FORMAT,	  /* the superblock is being written */
	MEMBER_PROMISING, /* the promise of the epoch is being written */
	MEMBER_PROMISED,  /* waits for a member with all bytes */
	MEMBER_COPYING,	  /* receives writes, and copies of chunks */
	MEMBER_ADOPTING,  /* epoch and commit number are being written */
	MEMBER_CURRENT,	  /* the member has all writes */
};

enum leg_kind {
	LEG_WRITE,   /* a write of the caller */
	LEG_JOINED,  /* adjacent writes of the caller, sent as one */
	LEG_COMMIT,  /* a commit of the caller */
	LEG_READ,    /* a read of the caller */
	LEG_BITS,    /* sets bits of the bitmap before the next leg */
	LEG_CLEAR,   /* clears bits that are not needed any more */
	LEG_COPY,    /* writes a copied chunk, and reads it back */
	LEG_SOURCE,  /* reads the chunk for a LEG_COPY, at the source */
	LEG_AREA,    /* writes bytes of the area */
	LEG_BARRIER, /* a commit before the next leg */
	LEG_COPIED,  /* a LEG_BARRIER that stores the count of copied chunks */
};

/* A leg: one member's part of an operation. */
struct group_leg {
	TAILQ_ENTRY(group_leg) link; /* entry of member.queue or member.out */
	enum leg_kind kind;
	struct rpmem_pool_op op;
	struct rpmem_pool_then then;
	struct group_op *of; /* NULL, except for LEG_WRITE, _COMMIT, _READ */
	struct group_leg *joined; /* LEG_JOINED with these bytes, or NULL */
	unsigned char bytes[]; /* LEG_BITS, LEG_CLEAR, LEG_AREA, LEG_JOINED */
};
TAILQ_HEAD(group_legs, group_leg);

/* One operation of the caller, or of the group itself (user NULL). */
struct group_op {
	TAILQ_ENTRY(group_op) link; /* entry of group.ops, until completion */
	struct rpmem_pool_op *user; /* NULL: completed, or the group's own */
	enum rpmem_pool_type type;
	uint64_t offset, len;
	uint64_t deadline, since; /* since: when a read was sent (ms) */
	uint64_t travel;	  /* ms for the bytes up to a read's end */
	unsigned int at;	  /* member to which a read was sent */
	uint64_t number;	  /* number of a commit */
	uint64_t writes;	  /* count of writes up to this one */
	unsigned int has;	  /* members at which it is done, as bits */
	unsigned int legs;	  /* legs that are not freed yet */
	bool complete, failed, stored;
	unsigned char bytes[]; /* data of a write */
};
TAILQ_HEAD(group_ops, group_op);

struct group_member {
	enum member_state state;
	bool tried; /* the first attempt to open the pool is over */
	bool opened_once;
	bool displaced;
	uint64_t length;
	const char *error; /* last failure; the owner keeps the text */
	int ret;
	unsigned char *area; /* NULL, except during the inspection */
	bool blank;	     /* no superblock, or no epoch */
	struct group_super super;
	struct group_state disk;
	struct group_legs queue, out, dropped;
	uint64_t out_first, out_end; /* bounds of the ranges of legs in out */
	unsigned int writes;	     /* outstanding writes of the caller */
	uint64_t writes_end;	     /* end of the newest of them */
	struct group_legs commits;   /* commits that wait for `committing` */
	struct group_leg *committing;
	struct group_leg *barrier; /* no later leg passes this one */
	uint64_t repeat_at;	   /* ms: end of the pause after a failed leg */
	uint64_t backlog;	   /* bytes of legs of completed operations */
	uint64_t number;	   /* number of the member's newest commit */
	bool numbered;		   /* its commits store their number */
	unsigned char *copy;	   /* bitmap of chunks to copy, or NULL */
	uint64_t copy_next;
	uint64_t copied; /* number of chunks recorded by LEG_COPIED */
	struct group_leg *copying;
	struct group_leg *source; /* read of the chunk, at member source_at */
	unsigned int source_at;
	bool source_read;	 /* the source's read is complete */
	unsigned int copy_tries; /* failed comparisons of the current chunk */
	bool inspecting, copy_queued, from_itself;
	bool has_adopted; /* some pool of this member got group.epoch */
	bool marked;	  /* the promise made the bitmap in `area` durable */
	uint64_t adopted; /* commit number that the adoption writes */
};

/* Alternating turns of copying and of pausing: group_rebuild.c. */
struct group_throttle {
	bool pauses;
	uint64_t since; /* ms: start of the current turn */
	uint64_t ended; /* group.ended at the start of the turn */
	/* Decaying sums over turns: [0] copying, [1] pausing. */
	double ops[2], ms[2];
};

enum group_phase {
	GROUP_LOOKING,
	GROUP_PROMISING,
	GROUP_MENDING,
	GROUP_OPEN,
	GROUP_ENDED,
};

struct group_io {
	/*
	 * Start an operation at a member; group_done() reports it. Returns an
	 * error, and keeps its text in op->error, if it is not started.
	 */
	int (*submit)(void *arg, unsigned int member, struct rpmem_pool_op *op);
	/*
	 * Close a member and open it again. group_closed() and group_opened()
	 * report both.
	 */
	void (*reopen)(void *arg, unsigned int member);
	/* Whether a member's pool has ended: each operation fails there. */
	bool (*has_ended)(void *arg, unsigned int member);
	/* Keep a text of member and cause. NULL: texts are the cause alone. */
	const char *(*text)(void *arg, unsigned int member, const char *cause);
	/* Whether a member, which is not away, is connected. */
	bool (*reachable)(void *arg, unsigned int member);
	void *arg;
};

struct group {
	struct group_io io;
	unsigned int n, k;
	enum group_phase phase;
	int ret; /* error in phase GROUP_ENDED */
	const char *error;
	struct group_super super;
	uint64_t epoch;
	uint64_t given;	   /* epoch that the caller gave, or 0 */
	uint64_t full;	   /* the greatest `full` of the members */
	bool full_sent;	   /* the epoch of this writer was sent as `full` */
	bool founds_group; /* no member had an epoch at the opening */
	bool keeps_bits;   /* a replaced pool has the epoch: clear no bits */
	char stale[200];   /* error: `given` is not above a member's epoch */
	uint64_t now, grace_until; /* ms */
	uint64_t looked;	   /* time of the last check of deadlines */
	bool changed; /* reports came since operations were completed */
	struct group_member members[GROUP_MEMBERS];
	struct group_ops ops;	/* outstanding, oldest first */
	struct group_ops reads; /* not sent to a member yet */
	uint64_t issued;	/* number of the newest commit */
	uint64_t writes;	/* writes submitted */
	uint64_t committed;	/* writes durable at k members */
	unsigned char *bits;	/* bitmap of GROUP_BITS chunks */
	uint64_t *touched;	/* per chunk: the commit of its last write */
	uint64_t nset;		/* bits that are set */
	uint64_t clear_after;	/* number at which clearing is tried again */
	uint64_t timeout_ms;
	uint64_t served_at; /* ms: k members were connected, as far as known */
	uint64_t ended;	    /* completed operations of the caller */
	struct group_throttle throttle;
	void (*completed)(void *arg, struct rpmem_pool_op *op, int ret,
			  const char *error);
	unsigned int dropped; /* member that was dropped last */
	char lost[512];	      /* error: no member has all bytes any more */
};

/* random: identity for a new group. */
int group_init(struct group *g, unsigned int n, unsigned int k,
	       const struct group_io *io, const uint64_t random[2]);
/* Free the group. All members must be closed: no operation is outstanding. */
void group_fini(struct group *g);

/*
 * Called before each opening of a member, which displaces the member's writer,
 * with its area as an observer has read it. Returns -ESTALE if a newer writer
 * has the member, which must not be opened then.
 */
int group_look(struct group *g, unsigned int member,
	       const unsigned char area[GROUP_AREA]);
/* Report that a member was opened (ret 0), or that the opening failed. */
void group_opened(struct group *g, unsigned int member, int ret,
		  uint64_t length, const char *error);
/* Report that a member was closed: its operations are over. */
void group_closed(struct group *g, unsigned int member);
/* Report that an operation of a member has completed. */
void group_done(struct group *g, unsigned int member, struct rpmem_pool_op *op);
/* Act on all reports so far; now: time in ms. */
void group_run(struct group *g, uint64_t now);
/* Returns -ENOMEM or 0: g->completed() follows once. The range was checked. */
int group_submit(struct group *g, struct rpmem_pool_op *op);
/* Whether a member has every operation that has completed. */
bool group_member_has_all(const struct group *g, unsigned int member);
/* Whether all members are current, and nothing is outstanding. */
bool group_is_quiet(const struct group *g);
/* Clear all bits of chunks whose writes are durable at all members. */
void group_clear_all(struct group *g);
void group_end(struct group *g, int ret, const char *error);
extern const char group_displaced[]; /* error text of -ESTALE */
extern const char group_lost_one[];  /* error text of -EAGAIN */

/* group_member.c, called by group.c. */
void member_step(struct group *g, unsigned int member);
/*
 * Start to send writes to a member, and to copy the chunks in which members may
 * differ from a current member to it. from_itself: the member is the source of
 * this opening, and its own chunks are read and written back, which makes bytes
 * durable that a former writer left visible without a commit.
 */
void member_join(struct group *g, unsigned int member, bool from_itself);
void member_done(struct group *g, unsigned int member, struct group_leg *leg);
unsigned int group_count(const struct group *g, enum member_state from);
/*
 * group_bits.c, for group.c: set the bits of a write (or -ENOMEM); record the
 * epoch of all, and clear old bits.
 */
int group_touch(struct group *g, uint64_t offset, uint64_t len);
void group_clear_old(struct group *g);
/* group.c, for group_epoch.c and group_member.c. */
void group_ops_run(struct group *g);
void group_legs_free(struct group *g, struct group_legs *list);
struct group_leg *leg_new(enum leg_kind kind, uint64_t bytes);
void leg_add(struct group *g, unsigned int member, struct group_leg *leg);
void member_drop(struct group *g, unsigned int member, int ret,
		 const char *error);
void group_adopted(struct group *g, unsigned int member);
/* group.c, for group_deadline.c. Complete an operation, which is in no list. */
void op_complete(struct group *g, struct group_op *o, int ret,
		 const char *error);
/* group_deadline.c */
/* Find the error that keeps the group below k current members. */
const char *group_why_late(const struct group *g);
/* A read is being sent to the member o->at: set its times. */
void group_read_sent(const struct group *g, struct group_op *o);
/* Fail late operations, and drop members that do not reply to a read. */
void group_check_deadlines(struct group *g);
/* group_ranges.c */
/*
 * Make a leg for each member that receives writes, or commits; NULL for others.
 * Returns 0 or -ENOMEM.
 */
int legs_new(const struct group *g, enum leg_kind kind, uint64_t bytes,
	     struct group_leg *legs[GROUP_MEMBERS]);
/* The bytes of a member that a leg changes; len 0: none. */
void leg_range(const struct group_leg *leg, uint64_t *offset, uint64_t *len);
bool leg_overlaps(const struct group_leg *leg, uint64_t offset, uint64_t len);
/* Whether no leg of the member overlaps the range. */
bool member_has_all(const struct group *g, unsigned int member, uint64_t offset,
		    uint64_t len);
/* Whether an outstanding leg changes the range. Updates out_first, out_end. */
bool group_out_overlaps(struct group_member *m, uint64_t offset, uint64_t len);
void group_out_add(struct group_member *m, struct group_leg *leg);
/*
 * The bytes for which a leg counts in the backlog. Zeros do not travel. What
 * failed counts at no member: else an outage of all would drop the last one.
 */
uint64_t leg_lag(const struct group_leg *leg);
/* Whether a member lags too far, also without its longest leg. */
bool member_is_slow(const struct group_member *m);
/*
 * Free the legs of a failed operation that was submitted to no member. All
 * members lack it then, and writes that fail one after the other while the last
 * member cannot mark their chunks do not fill its queue.
 */
void group_unqueue(struct group *g, const struct group_op *o);
/* group_join.c, for group.c */
/* Whether a write waits, so that it can be joined with adjacent ones. */
bool group_join_waits(const struct group_member *m,
		      const struct group_leg *leg);
/* Find what to submit for a leg: its own operation, or a joined one. */
struct rpmem_pool_op *group_join(struct group_member *m, struct group_leg *leg);
/* The LEG_JOINED has completed: complete its writes, and free it. */
void group_joined_done(struct group *g, unsigned int member,
		       struct group_leg *joined);
/* group_rebuild.c */
void group_throttle_update(struct group *g);
/* Whether the copy of a chunk may begin. */
bool group_may_copy(const struct group *g);
/* Bytes that a member still has to copy; 0: it is not copying. */
uint64_t group_copy_left(const struct group *g, unsigned int member);
const char *group_text(struct group *g, unsigned int member, const char *cause);
void leg_free(struct group *g, struct group_leg *leg);
void member_start(struct group *g, unsigned int member,
		  struct rpmem_pool_op *op);

#endif
