/* SPDX-License-Identifier: BSD-2-Clause */
/* Declarations for agent*.c only. */
#ifndef RP_AGENT_PRIV_H
#define RP_AGENT_PRIV_H

#include <stdlib.h>

#include "core/agent.h"
#include "core/batch.h"
#include "core/hash.h"
#include "core/list.h"
#include "core/watch.h"
#include "core/worker.h"

/*
 * A request is checked and executed where it is received. Only a flush that
 * blocks makes the request a job: the worker runs the batch `worker_batch`,
 * filled from the queue `slow_jobs`, while `worker_busy` is set. The queue
 * `quick_jobs` and the batch `inline_batch` are for ranges of slow and local
 * jobs whose flush is a few instructions. Sessions, and jobs outside the
 * worker's batch, are touched only under the caller's lock.
 */

/* PROGRESS messages per loss timeout, and the bounds of their period. */
#define RP_AGENT_PROGRESS_PER_TIMEOUT 3
#define RP_AGENT_MIN_PROGRESS_MS      10
#define RP_AGENT_MAX_PROGRESS_MS      60000

/* Delay before retrying a send for which the channel had no room. */
#define RP_AGENT_RETRY_NS 1000000ull

/* Refusals of wrong keys: least delay, most per second, longest queue. */
#define RP_AGENT_REFUSAL_DELAY_NS 20000000ull
#define RP_AGENT_REFUSALS_PER_S	  16
#define RP_AGENT_MAX_DELAYED	  32
/* Time until a connection is closed after its refusal. */
#define RP_AGENT_LINGER_NS 1000000000ull
/* Least time between two warnings about wrong keys. */
#define RP_AGENT_WARN_NS 10000000000ull
/*
 * Debt of one machine, in refusals, above which all its connections are
 * refused; RP_AGENT_REFUSALS_PER_S are paid off per second.
 */
#define RP_AGENT_DEBT	     128
#define RP_AGENT_MAX_SOURCES 32 /* machines that may have a debt */

/*
 * Period of comparing the sources of facts. A change counts when two
 * comparisons in a row find it, so after 2 periods at most.
 */
#define RP_AGENT_WATCH_NS 400000000ull

/* A machine that has presented wrong keys. */
struct rp_agent_source {
	uint64_t source;   /* its number, from the source() callback */
	uint64_t debt_end; /* time when its debt of refusals is 0, ns */
};

/* A key that a session was granted. */
struct rp_agent_grant {
	uint64_t key;
	struct rp_region *region;
	struct rp_wire_grant wire;
	void *handle; /* result of grant(), argument of revoke() */
	UT_hash_handle hh;
};

/* A message that the agent keeps until the channel has sent it. */
struct rp_agent_send {
	struct rp_channel_op op;
	struct iovec iov;
	struct rp_agent_session *session;
	TAILQ_ENTRY(rp_agent_send) link; /* in rp_agent_session.kept */
	uint8_t msg[];
};

/* A message that waits behind a job of its session. */
struct rp_agent_stalled {
	STAILQ_ENTRY(rp_agent_stalled) link;
	size_t len;
	uint8_t msg[];
};

struct rp_agent_session {
	struct rp_agent *agent;
	struct rp_channel *channel;
	uint64_t initiator; /* its number, from HELLO */
	uint64_t source;    /* machine from which it connected, or 0 */
	uint16_t port;	    /* the initiator's endpoint; 0: none */
	uint32_t flags;	    /* enum rp_channel_flags */
	/* Drop messages; close the channel at close_at. */
	bool ending;
	uint64_t close_at;	  /* UINT64_MAX: after the delayed refusal */
	uint64_t progress_period; /* time between PROGRESS messages, ns */
	uint64_t progress_at;	  /* time of the next PROGRESS, if jobs exist */
	struct rp_agent_grant *grants, *last_grant;
	struct rp_jobs jobs;
	unsigned int backlog; /* jobs, stalled messages and kept replies */
	TAILQ_HEAD(, rp_agent_send) kept; /* messages to send later */
	STAILQ_HEAD(, rp_agent_stalled) stalled;
	/* In agent.open, longest silent first, or in agent.ending. */
	TAILQ_ENTRY(rp_agent_session) link;
	TAILQ_ENTRY(rp_agent_session) sending; /* if `kept` has messages */
	TAILQ_ENTRY(rp_agent_session) working; /* if `jobs` has jobs */
	UT_hash_handle hh;
};
TAILQ_HEAD(rp_agent_sessions, rp_agent_session);

/* The delayed refusal of a wrong key. */
struct rp_agent_refusal {
	TAILQ_ENTRY(rp_agent_refusal) link;
	void *request;			  /* a connection request, or NULL */
	struct rp_agent_session *session; /* NULL: a connection request */
	uint64_t token;
	uint8_t type; /* type of the session's message */
	uint64_t due;
};
TAILQ_HEAD(rp_agent_refusals, rp_agent_refusal);

/* Counters since the start, for tests and logs. */
struct rp_agent_stats {
	uint64_t accepted, wrong_keys, refused_connections;
	uint64_t requests, ranges; /* accepted requests */
	uint64_t refused;	   /* requests refused before execution */
	uint64_t replies; /* replies to accepted requests, also failures */
	uint64_t effects; /* executed stores, atomics, notifications */
	uint64_t flushes, flushed_bytes, drains;
	uint64_t bad_messages; /* malformed ones; each ended a connection */
	uint64_t progress_sent;
};

struct rp_agent {
	struct rp_agent_attr attr;
	struct rp_agent_host *host;
	struct rp_regions regions;
	struct rp_agent_session *by_initiator;
	struct rp_agent_sessions open, ending, sending, working;
	unsigned int nsessions, nstalled;
	unsigned int backlog; /* of all sessions, and messages being sent */
	bool job_ended;	      /* a job ended: retry stalled messages */
	struct rp_agent_refusals delayed;
	unsigned int ndelayed;
	uint64_t last_refusal_due; /* due time of the newest refusal */
	struct rp_agent_source sources[RP_AGENT_MAX_SOURCES];
	uint64_t warned_at;
	struct rp_worker worker;
	struct rp_jobs quick_jobs, slow_jobs;
	struct rp_jobs local;
	struct rp_batch inline_batch, worker_batch;
	bool worker_busy;
	bool quiescing;
	/* Reused for each request that is received. */
	struct rp_job *job;
	struct rp_wire_range ranges[RP_WIRE_MAX_PACKED];
	uint8_t result[RP_WIRE_MAX_STORE];
	/* Sources of all regions' facts; sources of the running review. */
	struct rp_watch *watch, *review_sources;
	uint64_t watch_at;
	bool changed, starved; /* found a change; lacked memory or files */
	char change[RP_SOURCE_LEN];
	struct rp_region *review; /* next in the review; NULL: none runs */
	struct rp_agent_lookup {
		bool valid;
		struct rp_facts old_facts, found;
		char why[RP_WHY_LEN];
	} lookup; /* the last lookup of the review */
	TAILQ_HEAD(, rp_region) flushing_all;
	uint64_t weakenings;
	uint64_t progress_at; /* no PROGRESS is due earlier */
	uint64_t retry_at;
	struct rp_agent_stats stats;
};

static inline uint64_t rp_agent_now(struct rp_agent *a)
{
	return a->host->ops->now(a->host);
}

static inline void rp_agent_count(struct rp_agent *a, const struct rp_batch *b)
{
	a->stats.flushes += b->flushes;
	a->stats.flushed_bytes += b->bytes;
	a->stats.drains += b->drains;
}

/* --- agent_session.c --- */

/* End the session: drop its jobs, close its channel, free it. */
void rp_agent_session_close(struct rp_agent_session *s);
/* Close sessions with a grant of the key; messages_only: remove the grant. */
void rp_agent_revoke_key(struct rp_agent *a, uint64_t key);
/* Close the session from progress: after a protocol error or without memory. */
void rp_agent_session_close_later(struct rp_agent_session *s);
/* Drop jobs and later messages of the session; close it at that time. */
void rp_agent_session_end_at(struct rp_agent_session *s, uint64_t at);
/* Free a session that has no channel. */
void rp_agent_session_free(struct rp_agent_session *s);
extern const struct rp_channel_events rp_agent_session_events;
/* The session's grant of the key, or NULL. */
struct rp_agent_grant *rp_agent_grant_find(struct rp_agent_session *s,
					   uint64_t key);
/* Find or make a grant. RP_ST_OK and *out, or the reason for none. */
enum rp_status rp_agent_grant_get(struct rp_agent_session *s,
				  struct rp_region *r,
				  struct rp_agent_grant **out);
/* choice.method, or the agent's method if channel or region forbid that. */
enum rp_method rp_agent_session_method(const struct rp_agent_session *s,
				       const struct rp_region *r,
				       struct rp_choice choice);
void rp_agent_session_add_job(struct rp_agent_session *s, struct rp_job *job);
void rp_agent_session_del_job(struct rp_job *job);
/* Send a message, or keep it until the channel has room. */
void rp_agent_send(struct rp_agent_session *s, const void *msg, size_t len);
void rp_agent_send_reply(struct rp_agent_session *s, uint64_t token,
			 const struct rp_wire_reply *m);
void rp_agent_send_info(struct rp_agent_session *s, uint64_t token,
			const struct rp_wire_info *m);
/* Retry sends, send due PROGRESS, close sessions. True: did something. */
bool rp_agent_sessions_progress(struct rp_agent *a, uint64_t now);
uint64_t rp_agent_sessions_deadline(const struct rp_agent *a);

/* --- agent_facts.c --- */

/* Watch the sources of a new region's facts, until rp_agent_facts_del(). */
void rp_agent_facts_add(struct rp_agent *a, struct rp_region *r);
void rp_agent_facts_del(struct rp_agent *a, struct rp_region *r);
/* Compare sources, review, weaken and flush regions. True: did something. */
bool rp_agent_facts_progress(struct rp_agent *a, uint64_t now);
/* Must the job wait until a region that lost its class is flushed whole? */
bool rp_agent_job_must_wait(const struct rp_job *job);

/* --- agent_accept.c --- */

/* Refuse a session's message with a wrong key later, then end the session. */
void rp_agent_session_refuse(struct rp_agent_session *s,
			     const struct rp_wire_hdr *hdr);
/* Send the refusals that are due. True: sent some. */
bool rp_agent_refuse_delayed(struct rp_agent *a, uint64_t now);
static inline void rp_agent_refusal_free(struct rp_agent *a,
					 struct rp_agent_refusal *f)
{
	TAILQ_REMOVE(&a->delayed, f, link);
	a->ndelayed--;
	free(f);
}

/* --- agent_serve.c --- */

/*
 * Handle one message of an open session. False: the message has to wait behind
 * a job of the session, and nothing of it was executed.
 */
bool rp_agent_serve(struct rp_agent_session *s, const void *msg, size_t len);
/* Complete a job that has run: deliver its notification, send its reply. */
void rp_agent_job_complete(struct rp_agent_session *s, struct rp_job *job);

/* --- agent_local.c --- */

/* Complete a local job: call its done(). */
void rp_agent_local_complete(struct rp_job *job);

#endif
