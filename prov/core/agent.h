/* SPDX-License-Identifier: BSD-2-Clause */
/* The target side: accept sessions, check and execute requests, reply. */
#ifndef RP_AGENT_H
#define RP_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/channel.h"
#include "core/region.h"
#include "core/status.h"
#include "core/wire.h"

/* One per domain that has persistent regions; guarded by its caller's lock. */
struct rp_agent;

/* Defaults for members of struct rp_agent_attr that are 0. */
#define RP_AGENT_SESSIONS 4096
#define RP_AGENT_CREDITS  64
#define RP_AGENT_JOBS	  16384

/* Callbacks of the agent into its caller (prov/rpmem, prov/verbs, tests). */
struct rp_agent_host;
struct rp_agent_host_ops {
	/*
	 * Reply to a connection request that was given to
	 * rp_agent_conn_request(). accept: send data (HELLO_ACK) and make the
	 * channel; 0 or -errno (then the request is gone and the agent forgets
	 * it). refuse: reject with data. Both calls end the request.
	 */
	int (*accept)(struct rp_agent_host *h, void *request, const void *data,
		      size_t len, const struct rp_channel_events *events,
		      void *owner, struct rp_channel **out);
	void (*refuse)(struct rp_agent_host *h, void *request, const void *data,
		       size_t len);
	/* Number of the requesting machine; 0: unknown. May be NULL. */
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
	/* The enum rp_channel_flags of all channels of h. NULL: none. */
	uint32_t (*flags)(struct rp_agent_host *h);
	/*
	 * Deliver a completion with remote CQ data: [buf, buf+len) was written
	 * over c. port: the initiator's endpoint, from its HELLO; 0: none.
	 * endpoint: the target's, from the REQUEST; 0: any. Returns 0, or
	 * without a delivery -ENOSYS (no such endpoint) or -ENOMEM. NULL: the
	 * host has no endpoints.
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
	/* Wake the progress thread; the worker calls it without the lock. */
	void (*kick)(struct rp_agent_host *h);
};
struct rp_agent_host {
	const struct rp_agent_host_ops *ops;
};

struct rp_agent_attr {
	uint64_t incarnation;	   /* random number of this agent, never 0 */
	unsigned int max_sessions; /* sessions open at one time */
	unsigned int credits;	   /* outstanding requests per session */
	unsigned int max_jobs;	   /* outstanding requests of all sessions */
	bool no_worker; /* flush in rp_agent_progress(), without a thread */
	/*
	 * Channels carry no RDMA (the shim's side connections): a REQUEST may
	 * name any live key of the agent, and rp_agent_region_del() closes no
	 * session. grant() and revoke() of the host are not called.
	 */
	bool messages_only;
};

int rp_agent_new(const struct rp_agent_attr *attr, struct rp_agent_host *h,
		 struct rp_agent **out);
/* Close every session, join the worker. The caller has removed every region. */
void rp_agent_delete(struct rp_agent *a);
/* End every session now: afterwards no session writes memory. */
void rp_agent_close_sessions(struct rp_agent *a);
/*
 * Close the sessions for which is_peer() returns true. c: the session's
 * channel; port: the initiator's endpoint, as named by its HELLO.
 */
void rp_agent_close_peer(struct rp_agent *a,
			 bool (*is_peer)(struct rp_channel *c, uint16_t port,
					 void *arg),
			 void *arg);

/* Add a region. -EINVAL: not persistent; -EEXIST: its key is in use. */
int rp_agent_region_add(struct rp_agent *a, struct rp_region *r);
/* Add a region under a new key, made of the port and random bits. */
int rp_agent_region_add_new_key(struct rp_agent *a, struct rp_region *r,
				uint16_t port,
				int (*random)(void *buf, size_t len));
/*
 * Close every session that was granted the region's key, then remove the
 * region: afterwards nothing touches its memory. Requests that have not started
 * get RP_ST_STALE_KEY; a flush that runs on the worker is waited for.
 */
void rp_agent_region_del(struct rp_agent *a, struct rp_region *r);

/*
 * Handle a connection request with the initiator's private data, which is
 * hostile. The agent accepts or refuses it by host ops before this returns, or
 * later from progress (refusals of wrong keys are delayed).
 * rp_agent_conn_request_gone(): the transport has dropped the request.
 */
void rp_agent_conn_request(struct rp_agent *a, void *request, const void *data,
			   size_t len);
void rp_agent_conn_request_gone(struct rp_agent *a, void *request);

/*
 * Iterate over regions that lost their class; each loss has a number. Returns
 * the region of the first loss after number *n, and sets *n to that number;
 * NULL: there is none. For the shim, whose peers may flush without a request.
 */
struct rp_region *rp_agent_next_weakened(struct rp_agent *a, uint64_t *n);

/*
 * Flush bytes that this process itself stored in its regions; the flushes share
 * batches with those of requests. done is called once, from progress or
 * rp_agent_region_del(). 0, -ENOMEM, -EINVAL (a range not inside its region).
 */
struct rp_local {
	struct rp_region *region;
	uint64_t off, len;
};
typedef void (*rp_local_done_fn)(void *arg, enum rp_status st, uint32_t detail);
int rp_agent_local_flush(struct rp_agent *a, const struct rp_local *ranges,
			 size_t n, rp_local_done_fn done, void *arg);
/* Detach local flushes with this arg: their done is not called any more. */
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
unsigned int rp_agent_backlog(const struct rp_agent *a);
/*
 * Drain before a clean stop: refuse new connections and requests with
 * RP_ST_OVERLOADED, complete accepted requests.
 */
void rp_agent_quiesce(struct rp_agent *a);

#endif
