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

/* One per domain with persistent regions; all calls under the adapter's lock,
 * which also guards its channels. */
struct rp_agent;

/* The limits of an agent whose attributes say 0. */
#define RP_AGENT_SESSIONS 4096
#define RP_AGENT_CREDITS  64
#define RP_AGENT_JOBS	  16384

/* Services of the adapter (prov/rpmem, prov/verbs, tests) to the agent. */
struct rp_agent_host;
struct rp_agent_host_ops {
	/*
	 * Answer a connection request that was given to rp_agent_requested():
	 * accept with data (HELLO_ACK) and make the channel, or refuse with
	 * data. Either ends the request. accept: 0 or -errno (then the request
	 * is gone and the agent forgets it).
	 */
	int (*accept)(struct rp_agent_host *h, void *request, const void *data,
		      size_t len, const struct rp_channel_events *events,
		      void *owner, struct rp_channel **out);
	void (*refuse)(struct rp_agent_host *h, void *request, const void *data,
		       size_t len);
	/* A number of the host that it comes from; 0: unknown. May be NULL. */
	uint64_t (*source)(struct rp_agent_host *h, void *request);
	/*
	 * Let RDMA of this connection reach the region: fills in rkey and
	 * remote_addr of g; *grant is given back to revoke(). c is NULL for the
	 * HELLO's key, whose channel does not exist yet. 0 or -errno.
	 * -EOPNOTSUPP: not with g->method NATIVE. revoke(): after the channel
	 * is closed.
	 */
	int (*grant)(struct rp_agent_host *h, struct rp_channel *c,
		     const struct rp_region *r, struct rp_wire_grant *g,
		     void **grant);
	void (*revoke)(struct rp_agent_host *h, void *grant);
	/* Flags that every channel of this host has: enum rp_channel_flags. */
	uint32_t (*flags)(struct rp_agent_host *h);
	/*
	 * Tell the program that [buf, buf+len) was written with remote CQ data,
	 * over c, by the endpoint of that port (of its HELLO; 0: none), to the
	 * endpoint here (of its REQUEST; 0: any). 0, or no notification:
	 * -ENOSYS: there is no such endpoint; -ENOMEM.
	 */
	int (*notify)(struct rp_agent_host *h, struct rp_channel *c,
		      uint16_t port, uint16_t endpoint, uint64_t data,
		      void *buf, size_t len);
	uint64_t (*now)(struct rp_agent_host *h);
	/* From any thread: progress is due. Takes no lock of the adapter's. */
	void (*kick)(struct rp_agent_host *h);
	/* One line for the operator's log (refusals; rate limited by the
	 * agent). */
	void (*warn)(struct rp_agent_host *h, const char *text);
};
struct rp_agent_host {
	const struct rp_agent_host_ops *ops;
};

struct rp_agent_attr {
	uint64_t incarnation; /* random, never 0: one life of this target */
	unsigned int max_sessions; /* accepted at once */
	unsigned int credits;	   /* requests per session at once */
	unsigned int max_jobs;	   /* requests held in all */
	bool no_worker; /* run blocking flushes inside progress (simulator) */
	/*
	 * Channels carry no RDMA (the shim's side connections): any whole key
	 * of a region is good in a REQUEST, and the end of a region ends no
	 * session. grant() and revoke() of the host are not called.
	 */
	bool messages_only;
};

int rp_agent_new(const struct rp_agent_attr *attr, struct rp_agent_host *h,
		 struct rp_agent **out);
/* Closes every session first. Every region removed before. Joins the worker. */
void rp_agent_delete(struct rp_agent *a);
/* End every session now: nothing reaches memory afterwards. */
void rp_agent_close_sessions(struct rp_agent *a);

/* Make a region known. -EEXIST when a live region has the same key; -ENOMEM. */
int rp_agent_region_add(struct rp_agent *a, struct rp_region *r);
/*
 * Closes every session that was granted its key, then forgets the region: after
 * this nothing touches its memory; requests not yet started answer
 * RP_ST_STALE_KEY; one in progress on the worker is waited for.
 */
void rp_agent_region_del(struct rp_agent *a, struct rp_region *r);

/*
 * A connection request with the initiator's private data, which is hostile. The
 * agent answers it by host ops before this returns, or later from progress
 * (wrong keys are slowed down). rp_agent_request_gone(): the transport dropped
 * the request by itself.
 */
void rp_agent_requested(struct rp_agent *a, void *request, const void *data,
			size_t len);
void rp_agent_request_gone(struct rp_agent *a, void *request);

/*
 * Make durable what this process itself has placed in its own regions, with the
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
/* Forget whoever waits with this arg: its done is not called any more. */
void rp_agent_local_drop(struct rp_agent *a, void *arg);

/*
 * Do what is due: hand requests that block to the worker as one batch (their
 * ranges merged per region, each line flushed once), reply to those that are
 * complete, send PROGRESS, retry sends, deliver delayed refusals. True: did
 * something.
 */
bool rp_agent_progress(struct rp_agent *a);
/* When progress is due next; UINT64_MAX: when kicked. */
uint64_t rp_agent_deadline(const struct rp_agent *a);
/* Requests accepted and not yet answered. */
unsigned int rp_agent_pending(const struct rp_agent *a);
/*
 * Drain for a clean stop: new connections and requests are refused with
 * RP_ST_OVERLOADED, accepted ones are still answered.
 */
void rp_agent_quiesce(struct rp_agent *a);

/* For tests, fi_rpmem_info and logs. */
struct rp_agent_stats {
	uint64_t sessions; /* now; the rest since the start */
	uint64_t accepted, wrong_keys, refused_connections;
	uint64_t requests, ranges; /* accepted */
	uint64_t refused;	   /* answered with a failure at once */
	uint64_t replies;	   /* to accepted ones, good or bad */
	uint64_t effects;	   /* done: stores, atomics, notifications */
	uint64_t flushes, flushed_bytes, drains;
	uint64_t bad_messages; /* not understood: each cost its connection */
	uint64_t progress_sent;
};
void rp_agent_stats(const struct rp_agent *a, struct rp_agent_stats *st);

#endif
