/* SPDX-License-Identifier: BSD-2-Clause */
/* The lifetime of one commit, and its exactly one completion. */
#ifndef RP_COMMIT_H
#define RP_COMMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/caps.h"
#include "core/status.h"
#include "core/wire.h"

struct rp_initiator;
struct rp_peer;
struct rp_commit;

/* How a commit ended. */
struct rp_outcome {
	enum rp_status status;
	uint32_t detail; /* errno or class, by status */
	uint64_t range;	 /* index of the range at fault; nranges: the store */
	enum rp_class required;
	enum rp_class class; /* reached, when status is RP_ST_OK */
	enum rp_method method;
};

/* Called once per commit, from progress or recv, never from rp_commit_post().
 */
typedef void (*rp_commit_fn)(void *arg, const struct rp_outcome *out);

struct rp_commit_attr {
	const struct rp_wire_range *ranges; /* copied, unless */
	size_t nranges;
	struct rp_wire_range
		*given; /* them, allocated: the commit's on success */
	enum rp_level level;
	enum rp_class required;
	/*
	 * What the target does, once, when the ranges are durable. A store
	 * counts as a write that was begun with this commit: later commits of
	 * it cover it, and wait for this one. So does STORE, of the one range,
	 * which is a write and its commit: rp_peer_may_store() says when. Level
	 * durable only.
	 */
	enum rp_effect effect;
	struct rp_wire_then then; /* THEN */
	uint64_t data;		  /* NOTIFY */
	const void *bytes;	  /* STORE; copied, unless they are */
	bool lent;		  /* left as they are until done is called */
	/* Writes of rp_link_gather() that these ranges are: they end with it.
	 */
	struct rp_write *const *writes;
	rp_commit_fn done;
	void *arg;
};

/*
 * Reserve and start a commit to peer: it covers every write begun before this
 * call. Returns 0 (done will be called once), -EAGAIN (max_commits are
 * outstanding; the base does not take a STORE now), -ENOMEM, -EINVAL (no
 * ranges, a range that is empty or wraps, a store that is not aligned, bytes
 * for other than one range or too many of them, an effect at level visible),
 * -EKEYREJECTED (a key without our shape), -ENOTSUP (a key of a volatile
 * region). Nothing is left behind on failure.
 */
int rp_commit_post(struct rp_peer *p, const struct rp_commit_attr *attr);

/*
 * Does [addr, addr+len) of key touch a store (THEN, STORE) that is under way?
 * An operation that does would overtake it, or be overtaken.
 */
bool rp_peer_store_overlaps(const struct rp_peer *p, uint64_t key,
			    uint64_t addr, uint64_t len);
/*
 * May a write with commit to these bytes travel as a STORE? Where that is
 * cheaper, the target can, its session is open and would take it at once, and
 * no write to them is under way, which could arrive behind it. Not where
 * commits of the key are, or may yet be, carried out here (own.h, link.h): that
 * is one round trip as well, without the target's CPU.
 */
bool rp_peer_may_store(const struct rp_peer *p, uint64_t key, uint64_t addr,
		       uint64_t len);

/* In two steps, for a write with commit: reserve, post the write, start. */
int rp_commit_reserve(struct rp_peer *p, const struct rp_commit_attr *attr,
		      struct rp_commit **out);
void rp_commit_start(struct rp_commit *c);
/*
 * The same for a STORE. Not 0: the base did not take it (-EAGAIN: now), and
 * nothing is left of it.
 */
int rp_commit_start_store(struct rp_commit *c);
void rp_commit_unreserve(struct rp_commit *c);
/* Will rp_commit_start() post something right behind the write, in any case? */
bool rp_commit_fences(const struct rp_commit *c);

/*
 * Ask the target about a key. done gets the answer, from progress, recv, or
 * from inside this call when sending fails at once; info NULL: see status.
 */
typedef void (*rp_query_fn)(void *arg, enum rp_status st,
			    const struct rp_wire_info *info);
int rp_query_post(struct rp_peer *p, uint64_t key, enum rp_class required,
		  rp_query_fn done, void *arg);

#endif
