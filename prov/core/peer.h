/* SPDX-License-Identifier: BSD-2-Clause */
/* The initiator's view of one target: session, covered writes, poison. */
#ifndef RP_PEER_H
#define RP_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/hash.h"
#include "core/commit.h"
#include "core/cost.h"
#include "core/ranges.h"
#include "core/wire.h"
#include "core/xport.h"

/*
 * One write (or atomic, later) to a persistent region, from before it is
 * posted to the base until the base has completed it. Embedded in whatever
 * the adapter posts it with.
 */
struct rp_write {
	TAILQ_ENTRY(rp_write) link;
	struct rp_peer *peer;
	uint64_t seq;
	uint64_t key;
	uint64_t addr;
	uint64_t len;
	bool doubt;    /* failed, and may arrive all the same, later */
	bool linked;   /* over a connection of our own */
	bool gathered; /* ... in a message with others; see link.h */
	bool told;     /* its user was told of an error while it is under way */
};
TAILQ_HEAD(rp_writes, rp_write);

struct rp_initiator_attr {
	uint64_t timeout_ns;	  /* silence that counts as death */
	uint64_t slow_rate;	  /* bytes/s that a slow link still moves */
	unsigned int max_commits; /* outstanding at once */
	bool ordered;	/* a message follows the writes posted before it */
	bool all_peers; /* operator: every peer runs ofi_rpmem */
	/*
	 * When a connection breaks, what was under way over it fails and so
	 * does whatever is posted to that peer until rp_peer_forget(); and a
	 * read stays behind the writes before it. Then commits may be carried
	 * out without the agent (own.h).
	 */
	bool own;
	/* The adapter can make connections of our own (link.h). */
	bool links;
	/* And those FLUSH by themselves. */
	bool native;
	enum rp_path path;	    /* what the writes travel over */
	const struct rp_cost *cost; /* NULL: rp_cost_default */
	size_t store_max; /* bytes that are cheaper inside a request */
	/*
	 * The one method that is used without the agent; RP_METHOD_REFUSED:
	 * whichever it grants.
	 */
	enum rp_method forced;
};

struct rp_initiator;

int rp_initiator_new(const struct rp_initiator_attr *attr, struct rp_xport *x,
		     struct rp_initiator **out);
/*
 * Completes every outstanding commit with RP_ST_CANCELED and says BYE, while
 * the xport can still send and the user can still be told.
 */
void rp_initiator_shut(struct rp_initiator *in);
/* The same, and forgets the peers: every write must have ended before. */
void rp_initiator_delete(struct rp_initiator *in);

/* The peer of this fabric address, made on first use; NULL: no memory. */
struct rp_peer *rp_peer_get(struct rp_initiator *in, uint64_t addr);
/*
 * The address leaves the vector: its commits end with RP_ST_CANCELED. What was
 * under way or had failed stays poisoned for every peer that is made later,
 * until it is written again.
 */
void rp_peer_forget(struct rp_initiator *in, uint64_t addr);

/*
 * Before the base is asked: the write is covered by every commit posted after
 * this call. rp_write_undo() when the base refused it. rp_write_done() exactly
 * once when the base has completed it: err 0 means placed at the target
 * (delivery complete), anything else poisons its range until it is written
 * again. A write of no bytes is none: len is not 0.
 */
void rp_write_begin(struct rp_peer *p, struct rp_write *w, uint64_t key,
		    uint64_t addr, uint64_t len);
void rp_write_undo(struct rp_write *w);
void rp_write_done(struct rp_write *w, int err);

/*
 * The write is one that a read fence says nothing about: an atomic, which the
 * target's CPU may carry out. From now on the agent is asked about its key.
 */
void rp_write_by_cpu(struct rp_write *w);
/*
 * The user is told of an error while the base still works on this write, by
 * the target's CPU: what the user writes there until the base is done may be
 * overtaken by it, and no commit of those bytes succeeds.
 */
void rp_write_told(struct rp_write *w);

/* A fence that was posted has come back, err 0: with its bytes. */
void rp_fence_done(struct rp_fence *f, int err);

/* A control message of a target type (not RP_MSG_TO_TARGET) that arrived. */
void rp_initiator_recv(struct rp_initiator *in, const void *msg, size_t len);
/* Tell of what has ended, and send what waited for it. True: there was some. */
bool rp_initiator_tell(struct rp_initiator *in);
/* The same, send what waits, expire what is late. True when it did anything. */
bool rp_initiator_progress(struct rp_initiator *in);
uint64_t rp_initiator_deadline(const struct rp_initiator *in);
unsigned int rp_initiator_outstanding(const struct rp_initiator *in);

#endif
