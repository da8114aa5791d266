/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A group of pools: every write goes to all n members, and a commit completes
 * when it is durable at k of them. docs/protocol.md, "Groups".
 *
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
#define GROUP_AREA 65536u /* first bytes of a member: not the caller's */
#endif
#ifndef GROUP_CHUNK
#define GROUP_CHUNK (256u << 10) /* least bytes of a bit of the bitmap */
#endif
#ifndef GROUP_HOT
#define GROUP_HOT 256u /* bits that stay set while all members are current */
#endif
#ifndef GROUP_BACKLOG
#define GROUP_BACKLOG (32u << 20) /* bytes that a slow member may lag */
#endif
#define GROUP_TRIES   3u   /* to copy a chunk that is read back damaged */
#define GROUP_READ_MS 1000 /* a read waits so long for one of k + 1 members */
#define GROUP_FORMAT  1

/* Places in the area. */
#define GROUP_PROMISE_AT   512u
#define GROUP_FULL_AT	   768u
#define GROUP_SLOT_AT(s)   (1024u + (s)*512u)
#define GROUP_NUMBER_AT(s) (GROUP_SLOT_AT(s) + 256u)
#define GROUP_BITS_AT	   4096u
#define GROUP_BITS	   ((uint64_t)(GROUP_AREA - GROUP_BITS_AT) * 8)
#define GROUP_SUPER	   80u /* bytes of the superblock, at 0 */
#define GROUP_SLOT	   16u

/* The superblock: written once, when the group is created. */
struct group_super {
	uint32_t n, k;
	uint64_t id[2];	 /* random: the same at all members */
	uint64_t length; /* bytes of the caller */
	uint64_t chunk;	 /* bytes of one bit */
	bool founder;	 /* false: it has replaced a member that was lost */
};

/* The rest of a member's area, decoded. */
struct group_state {
	uint64_t promised; /* the newest epoch that a writer has begun */
	uint64_t epoch;	   /* of the bytes; 0: the member holds none yet */
	uint64_t number;   /* of the newest commit of that epoch */
	uint64_t full;	   /* an epoch that all n members had */
	unsigned int slot; /* that has both */
};

void group_super_encode(const struct group_super *s,
			unsigned char to[GROUP_SUPER]);
/* -ENODATA: all of the area is zero; -EBADMSG: it is something else. */
int group_area_decode(const unsigned char area[GROUP_AREA],
		      struct group_super *s, struct group_state *state);
void group_slot_encode(const struct group_super *s, uint64_t epoch,
		       unsigned char to[GROUP_SLOT]);

/* docs/protocol.md, "Groups", compares them with those of the API. */
enum member_state {
	MEMBER_AWAY,	  /* the owner opens it */
	MEMBER_INSPECT,	  /* its area is read */
	MEMBER_SEEN,	  /* it waits for the epoch */
	MEMBER_MARKING,	  /* the superblock's first bytes are written */
	MEMBER_MARKED,	  /* it waits for the others of a new group */
	MEMBER_FORMAT,	  /* its superblock is written */
	MEMBER_PROMISING, /* the epoch is written as promised */
	MEMBER_PROMISED,  /* it waits for a current member */
	MEMBER_COPYING,	  /* writes reach it, and chunks are copied to it */
	MEMBER_ADOPTING,  /* the epoch is written as its own */
	MEMBER_CURRENT,	  /* it has every write */
};

enum leg_kind {
	LEG_WRITE,   /* of the caller */
	LEG_COMMIT,  /* of the caller */
	LEG_READ,    /* of the caller */
	LEG_BITS,    /* bits that must be durable before the next leg */
	LEG_CLEAR,   /* bits that are not needed any more */
	LEG_COPY,    /* a chunk of another member */
	LEG_SOURCE,  /* the read of that chunk */
	LEG_AREA,    /* bytes of the area */
	LEG_BARRIER, /* a commit in front of the next leg */
};

/* One member's part of an operation. */
struct group_leg {
	TAILQ_ENTRY(group_leg) link; /* in member.queue or member.out */
	enum leg_kind kind;
	struct rpmem_pool_op op;
	struct rpmem_pool_then then;
	struct group_op *of;   /* LEG_WRITE, LEG_COMMIT, LEG_READ */
	unsigned char bytes[]; /* LEG_BITS, LEG_CLEAR, LEG_AREA */
};
TAILQ_HEAD(group_legs, group_leg);

/* One operation of the caller, or of the group itself (user NULL). */
struct group_op {
	TAILQ_ENTRY(group_op) link; /* in group.ops, until it completes */
	struct rpmem_pool_op *user; /* NULL: it has completed, or is internal */
	enum rpmem_pool_type type;
	uint64_t offset, len;
	uint64_t deadline, since; /* since: when a read was sent */
	unsigned int at;	  /* a read's member */
	uint64_t number;	  /* a commit's */
	uint64_t writes;	  /* a commit covers this many writes */
	unsigned int has;	  /* members where it is done, as bits */
	unsigned int legs;	  /* not done or dropped yet */
	bool complete, failed, stored;
	unsigned char bytes[]; /* of a write */
};
TAILQ_HEAD(group_ops, group_op);

struct group_member {
	enum member_state state;
	bool tried; /* the first attempt to open it has ended */
	bool opened_once;
	bool displaced;
	uint64_t length;
	const char *error; /* of the last failure; kept by the owner */
	int ret;
	unsigned char *area; /* while it is inspected */
	bool blank;	     /* it holds no superblock, or no epoch */
	struct group_super super;
	struct group_state disk;
	struct group_legs queue, out, dropped;
	uint64_t out_first, out_end; /* what legs in out change is inside */
	struct group_legs commits;   /* that wait for `committing` */
	struct group_leg *committing;
	struct group_leg *barrier; /* no leg passes it */
	uint64_t backlog;	   /* bytes of legs whose operation completed */
	uint64_t number;	   /* of its newest commit */
	bool numbered;		   /* its commits store their number */
	unsigned char *copy;	   /* bitmap of the chunks to copy, or NULL */
	uint64_t copy_next;
	struct group_leg *copying;
	struct group_leg *source; /* the copy's bytes, of member source_at */
	unsigned int source_at;
	bool source_read;	 /* they are here */
	unsigned int copy_tries; /* of this chunk that did not arrive so */
	bool inspecting, copy_queued, from_itself;
	bool marked; /* the bitmap in area is durable, with its promise */
	unsigned int barriers; /* outstanding of an adoption */
	uint64_t adopted;      /* number that it writes */
};

/* Turns of copying and of pausing: group_rebuild.c. */
struct group_throttle {
	bool pauses;
	uint64_t since; /* ms: begin of this turn */
	uint64_t ended; /* group.ended then */
	/* Sums over turns: [0] copying, [1] pausing; older ones count less. */
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
	/* Start an operation at a member; group_done() reports its end. */
	int (*submit)(void *arg, unsigned int member, struct rpmem_pool_op *op);
	/*
	 * Close a member and open it again; group_closed() and group_opened()
	 * report that.
	 */
	void (*reopen)(void *arg, unsigned int member);
	/* Keep a text that names the member and the cause; NULL: the cause. */
	const char *(*text)(void *arg, unsigned int member, const char *cause);
	void *arg;
};

struct group {
	struct group_io io;
	unsigned int n, k;
	enum group_phase phase;
	int ret; /* of GROUP_ENDED */
	const char *error;
	struct group_super super;
	uint64_t epoch;
	uint64_t given;	 /* the epoch that the caller gave, or 0 */
	uint64_t full;	 /* the greatest one of members that were seen */
	bool full_sent;	 /* that of this writer */
	char stale[200]; /* error: it is not greater than a member's */
	uint64_t now, grace_until; /* ms */
	uint64_t looked;	   /* when deadlines were compared */
	bool changed; /* what members have, since operations were completed */
	struct group_member members[GROUP_MEMBERS];
	struct group_ops ops;	/* not complete, oldest first */
	struct group_ops reads; /* not at a member yet */
	uint64_t issued;	/* number of the newest commit */
	uint64_t writes;	/* submitted */
	uint64_t committed;	/* of them, durable at k members */
	unsigned char *bits;	/* GROUP_BITS of them */
	uint64_t *touched;	/* of each chunk: number of the next commit */
	uint64_t nset;		/* bits */
	uint64_t clear_after;	/* number at which clearing is tried again */
	uint64_t timeout_ms;
	uint64_t ended; /* operations of the caller */
	struct group_throttle throttle;
	void (*completed)(void *arg, struct rpmem_pool_op *op, int ret,
			  const char *error);
};

/* random: the identity of a group that does not exist yet. */
int group_init(struct group *g, unsigned int n, unsigned int k,
	       const struct group_io *io, const uint64_t random[2]);
/* Every member is closed, and nothing touches its operations any more. */
void group_fini(struct group *g);

/*
 * With g->given, in front of each opening of a member, which displaces its
 * writer: what an observer has read of its area. -ESTALE: it must not be
 * opened, because the member's epoch is not older.
 */
int group_look(struct group *g, unsigned int member,
	       const unsigned char area[GROUP_AREA]);
/* A member was opened (ret 0), or could not be. */
void group_opened(struct group *g, unsigned int member, int ret,
		  uint64_t length, const char *error);
/* A member was closed: nothing touches the operations it had. */
void group_closed(struct group *g, unsigned int member);
/* An operation of a member has completed. */
void group_done(struct group *g, unsigned int member, struct rpmem_pool_op *op);
/* Act on all reports so far, at a time in ms. */
void group_run(struct group *g, uint64_t now);
/* -ENOMEM, or 0: g->completed() is called once. The range was checked. */
int group_submit(struct group *g, struct rpmem_pool_op *op);
/* Whether a member has every operation that has completed. */
bool group_member_has_all(const struct group *g, unsigned int member);
/* Whether all members are current, and nothing is outstanding. */
bool group_is_quiet(const struct group *g);
/* Forget the bitmap, behind a commit of everything, when all are current. */
void group_clear_all(struct group *g);
void group_end(struct group *g, int ret, const char *error);
extern const char group_displaced[]; /* error of -ESTALE */

/* group_member.c, for group.c. */
void member_step(struct group *g, unsigned int member);
/*
 * Writes reach a member from now on, and chunks in which members may differ are
 * copied to it: from a current member, or, at the first one of an epoch, from
 * itself. Bytes that a former writer left there without a commit are visible;
 * the copy makes them durable.
 */
void member_join(struct group *g, unsigned int member, bool from_itself);
void member_done(struct group *g, unsigned int member, struct group_leg *leg);
unsigned int group_count(const struct group *g, enum member_state from);
/* group_bits.c, for group.c: set the bits of a write; clear those of old ones.
 */
void group_touch(struct group *g, uint64_t offset, uint64_t len);
void group_clear_old(struct group *g);
/* group.c, for group_epoch.c and group_member.c. */
void group_ops_run(struct group *g);
void group_legs_free(struct group *g, struct group_legs *list);
/* Cause of the failure that keeps the group below k current members. */
const char *group_why_late(const struct group *g);
struct group_leg *leg_new(enum leg_kind kind, uint64_t bytes);
void leg_add(struct group *g, unsigned int member, struct group_leg *leg);
void member_drop(struct group *g, unsigned int member, int ret,
		 const char *error);
void group_adopted(struct group *g, unsigned int member);
/* group_rebuild.c */
void group_throttle_update(struct group *g);
/* Whether the copy of a chunk may begin. */
bool group_may_copy(const struct group *g);
/* Bytes that a member still has to copy; 0: it is not copying. */
uint64_t group_copy_left(const struct group *g, unsigned int member);
/* No leg of the member overlaps the range. */
bool member_has_all(const struct group *g, unsigned int member, uint64_t offset,
		    uint64_t len);
const char *group_text(struct group *g, unsigned int member, const char *cause);
void leg_free(struct group *g, struct group_leg *leg);
void member_start(struct group *g, unsigned int member,
		  struct rpmem_pool_op *op);

#endif
