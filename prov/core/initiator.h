/* SPDX-License-Identifier: BSD-2-Clause */
/* What peer.c, request.c and commit.c share about one initiator. */
#ifndef RP_INITIATOR_H
#define RP_INITIATOR_H

#include "core/hash.h"
#include "core/commit.h"
#include "core/link.h"
#include "core/list.h"
#include "core/own.h"
#include "core/peer.h"
#include "core/ranges.h"
#include "core/wire.h"
#include "core/xport.h"

/* Ranges kept inside a commit; more are allocated. */
#define RP_COMMIT_INLINE 4
/* Sessions that a target may lose in a row before it is given up. */
#define RP_PEER_MAX_LOST 16
/* What has no answer for this part of the timeout is sent again. */
#define RP_PEER_RESEND_PART 2
/* Failed writes of one peer that are remembered one by one. */
#define RP_PEER_POISON 1024
/* The stamp of poison that no write replaces yet. */
#define RP_PEER_DOUBT UINT64_MAX
/* Of what went over a connection of our own: until that is gone there. */
#define RP_PEER_LINK_DOUBT (UINT64_MAX - 1)
/* The same of a peer that was forgotten: nobody is left to say so. */
#define RP_PEER_NEVER (UINT64_MAX - 2)
/* Writes under way that a store looks at: with more it goes another way. */
#define RP_PEER_LOOK 64
/* How long an overloaded target is left alone. */
#define RP_PEER_BACKOFF_MS 2
/* Lists that requests are found in by their tokens. */
#define RP_INITIATOR_TOKENS 64

enum rp_req_state {
	RP_REQ_QUEUED,
	RP_REQ_SENT,
	RP_REQ_ANSWERED,
};

/*
 * One message that wants an answer: a slice of a commit, or a query. It lives
 * from queueing until its answer, its owner's end or the session's end. The
 * commit may end first (a covered write failed): then commit is NULL and the
 * request only waits to give its credit back.
 */
struct rp_req {
	TAILQ_ENTRY(rp_req) link;      /* on peer->queue or peer->sent */
	TAILQ_ENTRY(rp_req) of_commit; /* on commit->reqs */
	struct rp_peer *peer;
	struct rp_commit *commit;
	enum rp_req_state state;
	uint8_t type;
	uint64_t token;
	uint64_t sent_at;
	size_t first, n; /* commit: the slice of its ranges */
	/*
	 * The one of its commit that has the effect. Its number in the session
	 * is given when it is first sent; from then on it is in peer->effects.
	 */
	bool effect;
	uint64_t seq;
	unsigned int copies; /* sent, and not known to have been ignored */
	TAILQ_ENTRY(rp_req) of_effects;
	uint64_t key; /* query */
	enum rp_class required;
	rp_query_fn query_done;
	void *query_arg;
	struct rp_req *same; /* of in->by_token[] */
};
TAILQ_HEAD(rp_reqs, rp_req);

struct rp_commit {
	TAILQ_ENTRY(rp_commit) link; /* on peer->commits, then in->done */
	struct rp_peer *peer;
	uint64_t barrier;     /* covers writes with seq below this */
	uint64_t incarnation; /* of the peer when posted, or first asked */
	struct rp_wire_range *ranges;
	struct rp_wire_range inline_ranges[RP_COMMIT_INLINE];
	size_t nranges;
	enum rp_level level;
	enum rp_class required;
	enum rp_effect effect;
	struct rp_wire_then then;
	uint64_t data;
	const void *bytes;     /* STORE */
	bool lent;	       /* they are whoever posted it's */
	struct rp_write store; /* what later commits cover of this one */
	size_t asked;	       /* ranges that have been put into requests */
	struct rp_reqs reqs;   /* queued or sent, not answered */
	bool own;	       /* nobody is asked */
	struct rp_fences fences;
	enum rp_link_kind by_link;	/* it goes over that, as this */
	struct rp_write *const *writes; /* that it places; NULL: none */
	struct rp_linked *linked; /* under way there; NULL: it has come back */
	bool waits;		  /* to be asked until: */
	bool placed;		  /* every covered write is acknowledged */
	bool tainted; /* covers bytes in doubt: fails when answered */
	struct rp_outcome out;
	rp_commit_fn done;
	void *arg;
};
TAILQ_HEAD(rp_commits, rp_commit);

enum rp_session_state {
	RP_SESSION_CLOSED,
	RP_SESSION_HELLO,
	RP_SESSION_OPEN,
};

struct rp_peer {
	struct rp_initiator *in;
	uint64_t addr;
	bool forgotten; /* not in by_addr any more */

	/* The session. */
	enum rp_session_state state;
	uint64_t cookie;       /* ours: answers carry it; 0: none */
	uint64_t their_cookie; /* requests carry it; of an open session */
	uint64_t incarnation;  /* last one seen; 0: none yet */
	uint64_t hello_key;
	uint64_t hello_at; /* HELLO is not sent (again) before */
	uint64_t retry_at; /* overloaded: nothing is sent before */
	unsigned int credits, in_flight;
	uint16_t features;	/* that both have; of an open session */
	unsigned int window;	/* effects that may be without an answer */
	uint64_t next_effect;	/* of an open session, from 1 on */
	struct rp_reqs effects; /* without an answer, in order */
	struct rp_reqs queue, sent;
	unsigned int waiting; /* commits and queries without an end */
	uint64_t alive_at;    /* last sign of life while waiting > 0 */
	unsigned int lost;    /* sessions since then that it did not know */
	bool overloaded;      /* its only words since then */

	/* The writes that commits cover. */
	uint64_t next_seq;
	uint64_t query_seq;	 /* the last query stands behind those below */
	struct rp_writes writes; /* in posting order */
	size_t nwrites;
	bool told; /* one of them was: see rp_write_told() */
	uint64_t unplaced_bytes;
	struct rp_ranges poison;    /* failed writes, not rewritten since */
	bool poison_all;	    /* no memory to say which */
	bool doubt;		    /* some of it may still be under way */
	struct rp_commits commits;  /* outstanding, in posting order */
	struct rp_commit *unplaced; /* first of them with writes under way */
	unsigned int stores;	    /* of them have one */

	struct rp_own own;
	struct rp_link link;

	TAILQ_ENTRY(rp_peer) active; /* in->active while waiting > 0 */
	UT_hash_handle hh, hh_cookie;
};
TAILQ_HEAD(rp_peers, rp_peer);

struct rp_initiator {
	struct rp_initiator_attr attr;
	struct rp_xport *x;
	struct rp_peer *by_addr;
	struct rp_peer *by_cookie;
	struct rp_req *by_token[RP_INITIATOR_TOKENS];
	struct rp_peers active;
	struct rp_commits done; /* ended, not yet told */
	struct rp_commits free;
	unsigned int
		outstanding; /* reserved commits and queries not yet told */
	uint64_t next_token;
	bool blocked; /* a send said -EAGAIN */
	/*
	 * What forgotten peers had poisoned or under way, not rewritten since.
	 * A key names one registration wherever it is, so whoever comes later
	 * may be the same target: it starts with all of it.
	 */
	struct rp_ranges orphans;
	bool orphans_all; /* no memory to say which */
	bool stored;	  /* a store has ended: what waited for it may go */
	struct rp_banned banned;
};

/* request.c */
/* A request of this commit, or with NULL a query. NULL: no memory. */
struct rp_req *rp_req_new(struct rp_peer *p, struct rp_commit *c);
void rp_req_free(struct rp_req *r);
/* The one with this token, of whatever peer, or NULL. */
struct rp_req *rp_req_find(struct rp_initiator *in, uint64_t token);
/* Its commit has ended: unqueue it, or let a sent one wait for its answer. */
void rp_req_orphan(struct rp_req *r);
/* Into the open session of its peer, at time t. 0, or not sent: -errno. */
int rp_req_send(struct rp_req *r, uint64_t t);
/* The end of a query. */
void rp_query_end(struct rp_req *r, enum rp_status st,
		  const struct rp_wire_info *info);

/* peer.c */
void rp_peer_wait(struct rp_peer *p);	/* one more commit or query waits */
void rp_peer_unwait(struct rp_peer *p); /* one fewer */
void rp_peer_send(struct rp_peer *p);
/* Would a new effect be sent at once, if the base takes it? */
bool rp_peer_sends_at_once(const struct rp_peer *p);
/* Post the fences that wait, as far as the base lets us. */
void rp_peer_fence(struct rp_peer *p);
void rp_peer_release(struct rp_peer *p);
/* How many of these ranges go into one request without effect. */
size_t rp_peer_slice(const struct rp_peer *p, const struct rp_wire_range *r,
		     size_t n);

/* commit.c */
void rp_commit_fail(struct rp_commit *c, enum rp_status st, uint32_t detail,
		    uint64_t range);
/* End it if nothing is left to wait for. */
void rp_commit_check(struct rp_commit *c);
/* The request for ranges [first, first + n) has ended with this answer. */
void rp_commit_answer(struct rp_commit *c, size_t first, size_t n,
		      const struct rp_wire_reply *m, uint64_t incarnation);
void rp_peer_doubt_ends(struct rp_peer *p);
/* Is a write to these bytes under way, but for those over our connection? */
bool rp_peer_write_overlaps(const struct rp_peer *p,
			    const struct rp_wire_range *g);
/* What was asked over our connection is lost with it: ask the base's way. */
void rp_commit_reroute(struct rp_commit *c);
void rp_commits_fail_all(struct rp_peer *p, enum rp_status st, uint32_t detail);
/* Tell everybody whose commit has ended. True when there was one. */
bool rp_commits_tell(struct rp_initiator *in);

#endif
