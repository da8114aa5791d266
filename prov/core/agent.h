/* SPDX-License-Identifier: BSD-2-Clause */
/* The target's part: validate, persist, reply. The only caller of pmem. */
#ifndef RP_AGENT_H
#define RP_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/region.h"
#include "core/status.h"
#include "core/xport.h"

struct rp_agent;

/* The limits of an agent whose attributes say 0. */
#define RP_AGENT_SESSIONS  4096
#define RP_AGENT_HALF_OPEN 64
#define RP_AGENT_CREDITS   64
#define RP_AGENT_JOBS	   16384
/* HELLOs from new names: answered per progress call, and kept for later. */
#define RP_AGENT_WELCOME   16
#define RP_AGENT_STRANGERS 1024

struct rp_agent_attr {
	uint64_t incarnation; /* random, never 0: one life of this target */
	/* Established sessions, and those whose HELLO was answered only. */
	unsigned int max_sessions, max_half_open;
	unsigned int credits;  /* requests per session at once */
	unsigned int max_jobs; /* requests held in all */
	bool links;	       /* xports can offer connections of our own */
	bool native;	       /* whose queue pairs FLUSH by themselves */
	bool placed; /* a CPU places what the base acknowledges, before that */
	bool proved; /* nobody but who has an address can send from there */
	bool no_worker; /* run blocking flushes inside progress (simulator) */
};

/*
 * One agent per domain; it serves every endpoint (xport) of it. Not
 * thread-safe: the adapter calls it under one lock. It owns one worker
 * thread, started with the first request that blocks.
 */
int rp_agent_new(const struct rp_agent_attr *attr, struct rp_agent **out);
/* Every xport dropped and every region removed before. Joins the worker. */
void rp_agent_delete(struct rp_agent *a);

/* Make a region known, or no longer. -EEXIST as rp_regions_add(). */
int rp_agent_region_add(struct rp_agent *a, struct rp_region *r);
/*
 * After this no thread touches the region's memory: requests not yet started
 * answer RP_ST_STALE_KEY; one in progress on the worker is waited for.
 */
void rp_agent_region_del(struct rp_agent *a, struct rp_region *r);

/*
 * Make durable what this process itself has placed in its own regions (a read
 * from elsewhere, say), with the batches of requests. done is called once,
 * from progress or from the end of a region, unless x is dropped before. x is
 * who is kicked when there is progress to make. Returns 0, -ENOMEM, -EINVAL (a
 * range not inside its region).
 */
struct rp_local {
	struct rp_region *region;
	uint64_t off, len;
};
typedef void (*rp_local_fn)(void *arg, enum rp_status st, uint32_t detail);
int rp_agent_local_flush(struct rp_agent *a, struct rp_xport *x,
			 const struct rp_local *ranges, size_t n,
			 rp_local_fn done, void *arg);

/*
 * One control message that arrived on x, of a type RP_MSG_TO_TARGET(). The peer
 * is hostile: anything at all may be in it. Never blocks.
 */
void rp_agent_recv(struct rp_agent *a, struct rp_xport *x, const void *msg,
		   size_t len);
/*
 * One message that arrived over a connection of our own, which offer() of x has
 * made. It is done with, and answered, when this returns. False: nobody of ours
 * sends that; the connection is to end.
 */
bool rp_agent_linked(struct rp_agent *a, struct rp_xport *x, const void *conn,
		     const void *msg, size_t len);
/*
 * The endpoint goes away: forget its sessions, drop answers due to it. Its
 * local flushes may still run, and nobody is told.
 */
void rp_agent_drop_xport(struct rp_agent *a, struct rp_xport *x);

/*
 * Do what is due: take the requests at hand as one batch (merge their ranges
 * per region, flush each line once, drain once), hand blocking ones to the
 * worker, answer the finished ones, send PROGRESS, retry sends, expire
 * half-open sessions. Returns true when it did anything.
 */
bool rp_agent_progress(struct rp_agent *a);
/* When progress is due next, in xport time; UINT64_MAX: when kicked. */
uint64_t rp_agent_deadline(const struct rp_agent *a);
/* Requests accepted and not yet answered. */
unsigned int rp_agent_pending(const struct rp_agent *a);
/*
 * Drain for a clean stop: new requests are refused with RP_ST_OVERLOADED,
 * accepted ones are still answered.
 */
void rp_agent_quiesce(struct rp_agent *a);

/* For tests, fi_rpmem_info and logs. */
struct rp_agent_stats {
	uint64_t sessions, half_open; /* now; the rest since the start */
	uint64_t hellos;	      /* well-formed ones */
	uint64_t requests, ranges;    /* accepted; repeated ones once */
	uint64_t refused;	      /* answered with a failure at once */
	uint64_t replies;	      /* to accepted ones, good or bad */
	uint64_t effects;	      /* done: stores and notifications */
	uint64_t remembered;	      /* answered again, done before */
	uint64_t flushes, flushed_bytes, drains;
	uint64_t bad_messages; /* not understood, or of no known session */
	uint64_t progress_sent;
};
void rp_agent_stats(const struct rp_agent *a, struct rp_agent_stats *st);

#endif
