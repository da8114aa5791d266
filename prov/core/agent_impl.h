/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the files of the agent; nobody else includes it. */
#ifndef RP_AGENT_IMPL_H
#define RP_AGENT_IMPL_H

#include <stdlib.h>

#include "core/agent.h"
#include "core/batch.h"
#include "core/hash.h"
#include "core/list.h"
#include "core/worker.h"

/*
 * A request is checked and executed where it is received. Only a flush that
 * blocks makes it a job: `slow` and `far` are the queue and the batch of those,
 * which the worker runs while `far_runs` is set. `quick` and `inl` are for
 * ranges whose flush is a few instructions, of slow jobs and of local ones.
 * Jobs and sessions are touched only under the adapter's lock.
 */

/* PROGRESS messages in the silence that counts as loss, and their bounds. */
#define RP_AGENT_PACE_PART   3
#define RP_AGENT_MIN_PACE_MS 10
#define RP_AGENT_MAX_PACE_MS 60000

/* A posted operation that found no room is tried again so soon. */
#define RP_AGENT_RETRY_NS 1000000ull

/*
 * Wrong keys: so long after it came each is refused, if no other was refused
 * just before; so many wait; and a connection lives so long after its refusal,
 * unless the peer closes it.
 */
#define RP_AGENT_REFUSAL_NS  20000000ull
#define RP_AGENT_REFUSALS    16 /* in a second */
#define RP_AGENT_MAX_DELAYED 32
#define RP_AGENT_LINGER_NS   1000000000ull
#define RP_AGENT_WARN_NS     10000000000ull
/*
 * One host is owed so many refusals at RP_AGENT_REFUSALS in a second; then its
 * connection requests are refused unseen. So many hosts are remembered.
 */
#define RP_AGENT_DEBT	 128
#define RP_AGENT_SOURCES 32

/* A host that has shown wrong keys. */
struct rp_agent_source {
	uint64_t source;
	uint64_t paid; /* when all its refusals are paid for, ns */
};

/* A key that a session was granted. */
struct rp_agent_grant {
	uint64_t key;
	struct rp_region *region;
	struct rp_wire_grant wire;
	void *handle; /* the host's */
	UT_hash_handle hh;
};

/* A message whose bytes are kept until the channel has sent them. */
struct rp_agent_send {
	struct rp_channel_op op;
	struct iovec iov;
	struct rp_agent_session *session;
	TAILQ_ENTRY(rp_agent_send) link; /* of kept */
	uint8_t msg[];
};

/* A message that stays behind a job of its session. */
struct rp_agent_stalled {
	STAILQ_ENTRY(rp_agent_stalled) link;
	size_t len;
	uint8_t msg[];
};

struct rp_agent_session {
	struct rp_agent *agent;
	struct rp_channel *channel;
	uint64_t initiator; /* of its HELLO */
	uint64_t source;    /* of its connection request */
	uint16_t port;	    /* the same */
	uint32_t flags;	    /* enum rp_channel_flags */
	/* Messages are dropped, and the channel is closed at close_at. */
	bool ending;
	uint64_t close_at;    /* UINT64_MAX: its refusal is still delayed */
	uint64_t pace;	      /* between PROGRESS messages, ns */
	uint64_t progress_at; /* when the next is due, while there are jobs */
	struct rp_agent_grant *grants, *last_grant;
	struct rp_jobs jobs;
	unsigned int held; /* jobs, stalled messages and kept replies */
	TAILQ_HEAD(, rp_agent_send) kept; /* no room in the channel */
	STAILQ_HEAD(, rp_agent_stalled) stalled;
	TAILQ_ENTRY(rp_agent_session) link;    /* by use, or of those ending */
	TAILQ_ENTRY(rp_agent_session) sending; /* while something is kept */
	TAILQ_ENTRY(rp_agent_session) working; /* while there are jobs */
	UT_hash_handle hh;
};
TAILQ_HEAD(rp_agent_sessions, rp_agent_session);

/* The refusal of a wrong key, which is delayed. */
struct rp_agent_refusal {
	TAILQ_ENTRY(rp_agent_refusal) link;
	void *request;			  /* of a connection, or ... */
	struct rp_agent_session *session; /* ... a message of one */
	uint64_t token;
	uint8_t type; /* of the message */
	uint64_t due;
};
TAILQ_HEAD(rp_agent_refusals, rp_agent_refusal);

struct rp_agent {
	struct rp_agent_attr attr;
	struct rp_agent_host *host;
	struct rp_regions regions;
	struct rp_agent_session *by_initiator;
	struct rp_agent_sessions open, ending, sending, working;
	unsigned int nsessions, nstalled;
	unsigned int held; /* by all sessions, and by messages being sent */
	bool resume; /* a job has ended since the stalled ones were tried */
	struct rp_agent_refusals delayed;
	unsigned int ndelayed;
	uint64_t refused_at; /* the newest of delayed is due then */
	struct rp_agent_source sources[RP_AGENT_SOURCES];
	uint64_t warned_at;
	struct rp_worker worker;
	struct rp_jobs quick, slow;
	struct rp_jobs local;
	struct rp_batch inl, far;
	bool far_runs;
	bool quiescing;
	/* For the request that is being received. */
	struct rp_job *job;
	struct rp_wire_range ranges[RP_WIRE_MAX_PACKED];
	uint8_t result[RP_WIRE_MAX_STORE];
	uint64_t progress_at; /* no PROGRESS is due before */
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

/* End the session: its jobs are dropped, its channel is closed, it is freed. */
void rp_agent_session_close(struct rp_agent_session *s);
/* End every session that was granted the key, or that grant alone. */
void rp_agent_close_granted(struct rp_agent *a, uint64_t key);
/* The peer broke the protocol, or cannot be answered: close it from progress.
 */
void rp_agent_session_doom(struct rp_agent_session *s);
/* Drop its jobs and what comes from now on; close it at that time. */
void rp_agent_session_end_at(struct rp_agent_session *s, uint64_t at);
/* One without a channel. */
void rp_agent_session_free(struct rp_agent_session *s);
extern const struct rp_channel_events rp_agent_session_events;
/* The grant of a key; NULL: there is none. */
struct rp_agent_grant *rp_agent_grant_find(struct rp_agent_session *s,
					   uint64_t key);
/* Make one, or find it. RP_ST_OK and *out, or why not. */
enum rp_status rp_agent_grant_get(struct rp_agent_session *s,
				  struct rp_region *r,
				  struct rp_agent_grant **out);
/* How the bytes of the region get to this choice's class over the session. */
enum rp_method rp_agent_session_method(const struct rp_agent_session *s,
				       const struct rp_region *r,
				       struct rp_choice choice);
void rp_agent_session_add_job(struct rp_agent_session *s, struct rp_job *job);
void rp_agent_session_del_job(struct rp_job *job);
/* Send, or keep until there is room. */
void rp_agent_send(struct rp_agent_session *s, const void *msg, size_t len);
void rp_agent_reply(struct rp_agent_session *s, uint64_t token,
		    const struct rp_wire_reply *m);
void rp_agent_info(struct rp_agent_session *s, uint64_t token,
		   const struct rp_wire_info *m);
/* Resume, retry, send PROGRESS, close. True: did something. */
bool rp_agent_sessions_progress(struct rp_agent *a, uint64_t now);
uint64_t rp_agent_sessions_deadline(const struct rp_agent *a);

/* --- agent_accept.c --- */

/* A wrong key in a message of the session: refuse it later, then end. */
void rp_agent_session_refuse(struct rp_agent_session *s,
			     const struct rp_wire_hdr *hdr);
/* Send the refusals that are due. True: there were some. */
bool rp_agent_refuse_delayed(struct rp_agent *a, uint64_t now);
static inline void rp_agent_refusal_free(struct rp_agent *a,
					 struct rp_agent_refusal *f)
{
	TAILQ_REMOVE(&a->delayed, f, link);
	a->ndelayed--;
	free(f);
}

/* --- serve.c --- */

/*
 * One message of an open session. False: nothing of it is done, because it has
 * to stay behind a job of the session.
 */
bool rp_agent_serve(struct rp_agent_session *s, const void *msg, size_t len);
/* A job that has run: its effect, its reply. */
void rp_agent_finish(struct rp_agent_session *s, struct rp_job *job);

/* --- local.c --- */

/* The end of such a job, and of whoever waits for it. */
void rp_agent_local_end(struct rp_job *job);

#endif
