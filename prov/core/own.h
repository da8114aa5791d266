/* SPDX-License-Identifier: BSD-2-Clause */
/* Commits that the initiator carries out by itself; peer.c and commit.c only.
 */
#ifndef RP_OWN_H
#define RP_OWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/hash.h"
#include "core/caps.h"
#include "core/method.h"

struct rp_commit;
struct rp_initiator;
struct rp_peer;
struct rp_wire_range;
struct rp_wire_reply;

/*
 * Why this is sound is proved in docs/guarantees.md. In short: the agent has
 * confirmed a key over this connection, and while the connection lives its
 * base key means that registration. Whatever says that it may not live any
 * more makes all keys that were used over it the agent's for good: a fence on
 * the next connection says nothing about the writes of this one.
 */

/* A key that was written to, or confirmed, over the connection that lives. */
struct rp_own_key {
	uint64_t key;
	enum rp_method grant; /* RP_METHOD_REFUSED: ask */
	enum rp_class class;
	uint64_t addr, len; /* of its region */
	enum rp_method by;  /* how the agent made it durable */
	bool asked;	    /* and whether for a grant of this key */
	uint64_t counted;   /* own.counts, when it was met before */
	UT_hash_handle hh;
};

/* A read inside a range, behind the writes that a commit covers. */
struct rp_fence {
	TAILQ_ENTRY(rp_fence) link; /* on own.queue or own.posted */
	TAILQ_ENTRY(rp_fence) of_commit;
	struct rp_peer *peer;
	struct rp_commit *commit; /* NULL: it has ended */
	bool posted;
	uint64_t key, addr;
	size_t len;
};
TAILQ_HEAD(rp_fences, rp_fence);

/* Of one peer. */
struct rp_own {
	struct rp_own_key *keys;
	struct rp_own_key *last; /* written to last */
	bool off;		 /* no memory to say which keys were used */
	uint64_t counts;
	struct rp_fences queue, posted;
};

/* Keys that only the agent commits from now on, wherever they are reached. */
#define RP_OWN_BANNED 4096
struct rp_banned_key {
	uint64_t key;
	UT_hash_handle hh;
};
struct rp_banned {
	struct rp_banned_key *keys;
	bool all; /* too many, or no memory to say which */
};

void rp_own_init(struct rp_peer *p);
void rp_banned_fini(struct rp_initiator *in);

/* A write to key is about to be posted. */
void rp_own_written(struct rp_peer *p, uint64_t key);
/* What the agent said, in a good answer to a request of these ranges. */
void rp_own_answered(struct rp_peer *p, const struct rp_wire_range *ranges,
		     size_t n, enum rp_class required,
		     const struct rp_wire_reply *m);
/*
 * An answer can grant the key of its first range only. How many of the n ranges
 * from first on go into one request, so that each key is the first once.
 */
size_t rp_own_slice(const struct rp_commit *c, size_t first, size_t n);
/* Are commits of this key carried out here, or may they yet be? */
bool rp_own_may(const struct rp_peer *p, uint64_t key);
/* Whatever was granted has to be granted again. */
void rp_own_forget(struct rp_peer *p);
/* The connection may be gone, or the target another one. */
void rp_own_lost(struct rp_peer *p);

/*
 * Carry out a commit that has just been started, without asking anybody: true,
 * and it ends with its covered writes and its fences. False: ask the agent.
 */
bool rp_own_take(struct rp_commit *c);
/* Post the fences that wait. 0, -EAGAIN, or the -errno of a dead connection. */
int rp_own_post(struct rp_peer *p);
/* The commit has ended: nothing of it is told to it any more. */
void rp_own_orphan(struct rp_commit *c);

#endif
