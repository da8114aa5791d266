/* SPDX-License-Identifier: BSD-2-Clause */
/* The target side: accept sessions, check, persist, reply. */
#ifndef RP_AGENT_H
#define RP_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/channel.h"
#include "core/region.h"
#include "core/status.h"
#include "core/wire.h"

/* One per domain with persistent regions; the adapter's lock guards it. */
struct rp_agent;

/* Defaults for attributes that are 0. */
#define RP_AGENT_SESSIONS 4096
#define RP_AGENT_CREDITS  64
#define RP_AGENT_JOBS	  16384

/* Services of the adapter (prov/rpmem, prov/verbs, tests) to the agent. */
struct rp_agent_host;
struct rp_agent_host_ops {
	/*
	 * Reply to a connection request that was given to rp_agent_requested().
	 * accept: send data (HELLO_ACK) and make the channel; 0 or -errno (then
	 * the request is gone and the agent forgets it). refuse: reject with
	 * data. Either ends the request.
	 */
	int (*accept)(struct rp_agent_host *h, void *request, const void *data,
		      size_t len, const struct rp_channel_events *events,
		      void *owner, struct rp_channel **out);
	void (*refuse)(struct rp_agent_host *h, void *request, const void *data,
		       size_t len);
	/* A number that identifies the request's host; 0: unknown; or NULL. */
	uint64_t (*source)(struct rp_agent_host *h, void *request);
	/*
	 * Let RDMA of this connection reach the region: fill in rkey and
	 * remote_addr of g; *grant is passed to revoke() after the channel is
	 * closed. c is NULL for the HELLO's key, whose channel does not exist
	 * yet. 0 or -errno; -EOPNOTSUPP: the device cannot grant g->method
	 * NATIVE.
	 */
	int (*grant)(struct rp_agent_host *h, struct rp_channel *c,
		     const struct rp_region *r, struct rp_wire_grant *g,
		     void **grant);
	void (*revoke)(struct rp_agent_host *h, void *grant);
	/*
	 * Flags that every channel of this host has: enum rp_channel_flags;
	 * NULL: none.
	 */
	uint32_t (*flags)(struct rp_agent_host *h);
	/*
	 * Report to the program that [buf, buf+len) was written with remote CQ
	 * data, over c, by the initiator's endpoint of that port (of its HELLO;
	 * 0: none), to the target's endpoint (of its REQUEST; 0: any). 0, or
	 * without notification -ENOSYS (no such endpoint) or -ENOMEM. NULL:
	 * there are no endpoints.
	 */
	int (*notify)(struct rp_agent_host *h, struct rp_channel *c,
		      uint16_t port, uint16_t endpoint, uint64_t data,
		      void *buf, size_t len);
	/*
	 * Find the facts of the region anew, as its registration did. 0 or
	 * -errno; why: RP_WHY_LEN bytes. NULL: facts never change.
	 */
	int (*facts)(struct rp_agent_host *h, struct rp_region *r,
		     struct rp_facts *facts, char *why);
	uint64_t (*now)(struct rp_agent_host *h);
	/* Progress is due. From any thread, without the adapter's lock. */
	void (*kick)(struct rp_agent_host *h);
};
struct rp_agent_host {
	const struct rp_agent_host_ops *ops;
};

struct rp_agent_attr {
	uint64_t incarnation;	   /* random, never 0 */
	unsigned int max_sessions; /* open at once */
	unsigned int credits;	   /* outstanding requests per session */
	unsigned int max_jobs;	   /* outstanding requests of all sessions */
	bool no_worker; /* run blocking flushes in progress (simulator) */
	/*
	 * Channels carry no RDMA (the shim's side connections): a REQUEST may
	 * name any live key of the agent, and the end of a region ends no
	 * session. grant() and revoke() of the host are not called.
	 */
	bool messages_only;
};

int rp_agent_new(const struct rp_agent_attr *attr, struct rp_agent_host *h,
		 struct rp_agent **out);
/* Close every session and join the worker. Every region is removed before. */
void rp_agent_delete(struct rp_agent *a);
/* End every session now: afterwards no session writes memory. */
void rp_agent_close_sessions(struct rp_agent *a);
/*
 * End the sessions of one peer: is_peer() says whether a session with this
 * channel, whose HELLO named this port of an endpoint, is one of them.
 */
void rp_agent_close_peer(struct rp_agent *a,
			 bool (*is_peer)(struct rp_channel *c, uint16_t port,
					 void *arg),
			 void *arg);

/* Make a region known. -EEXIST when a live region has the same key; -ENOMEM. */
int rp_agent_region_add(struct rp_agent *a, struct rp_region *r);
/* The same under a new key, with this port and a random part. */
int rp_agent_region_make(struct rp_agent *a, struct rp_region *r, uint16_t port,
			 int (*random)(void *buf, size_t len));
/*
 * Close every session that was granted the region's key, then forget the
 * region: afterwards nothing touches its memory. Requests that have not started
 * get RP_ST_STALE_KEY; a flush that runs on the worker is waited for.
 */
void rp_agent_region_del(struct rp_agent *a, struct rp_region *r);

/*
 * Handle a connection request with the initiator's private data, which is
 * hostile. The agent accepts or refuses it by host ops before this returns, or
 * later from progress (wrong keys are slowed down). rp_agent_request_gone():
 * the transport has dropped the request.
 */
void rp_agent_requested(struct rp_agent *a, void *request, const void *data,
			size_t len);
void rp_agent_request_gone(struct rp_agent *a, void *request);

/*
 * Weakenings are numbered: the region of the first one behind number *n, which
 * becomes its number; or NULL, and *n is the last number. For peers whose
 * flushes send no request.
 */
struct rp_region *rp_agent_weakened(struct rp_agent *a, uint64_t *n);

/*
 * Make bytes durable that this process placed in its own regions, with the
 * batches of requests. done is called once, from progress or from the end of a
 * region. 0, -ENOMEM, -EINVAL (a range not inside its region).
 */
struct rp_local {
	struct rp_region *region;
	uint64_t off, len;
};
typedef void (*rp_local_fn)(void *arg, enum rp_status st, uint32_t detail);
int rp_agent_local_flush(struct rp_agent *a, const struct rp_local *ranges,
			 size_t n, rp_local_fn done, void *arg);
/* Forget local jobs with this arg: their done is not called any more. */
void rp_agent_local_drop(struct rp_agent *a, void *arg);

/*
 * Do what is due: pass requests that block to the worker as one batch (their
 * ranges merged per region, each line flushed once), reply to complete ones,
 * send PROGRESS, retry sends, send delayed refusals. True: did something.
 */
bool rp_agent_progress(struct rp_agent *a);
/* The time when progress is due next; UINT64_MAX: not before a kick. */
uint64_t rp_agent_deadline(const struct rp_agent *a);
/* Number of requests accepted and not yet replied to. */
unsigned int rp_agent_pending(const struct rp_agent *a);
/*
 * Drain for a clean stop: refuse new connections and requests with
 * RP_ST_OVERLOADED, complete accepted ones.
 */
void rp_agent_quiesce(struct rp_agent *a);

/* Counters for tests, fi_rpmem_info and logs. */
struct rp_agent_stats {
	uint64_t sessions; /* open now; the other counters: since the start */
	uint64_t accepted, wrong_keys, refused_connections;
	uint64_t requests, ranges; /* accepted */
	uint64_t refused;	   /* a failure was the immediate reply */
	uint64_t replies; /* to accepted requests, success or failure */
	uint64_t effects; /* executed stores, atomics, notifications */
	uint64_t flushes, flushed_bytes, drains;
	uint64_t bad_messages; /* malformed; each ended its connection */
	uint64_t progress_sent;
};
void rp_agent_stats(const struct rp_agent *a, struct rp_agent_stats *st);

#endif
