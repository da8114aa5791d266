/* SPDX-License-Identifier: BSD-2-Clause */
/* The target's view of its initiators: who they are, what they are owed. */
#ifndef RP_CLIENT_H
#define RP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/hash.h"
#include "core/batch.h"
#include "core/wire.h"
#include "core/worker.h"
#include "core/xport.h"

/* A HELLO answered and not followed by a request is forgotten after this. */
#define RP_CLIENT_HALF_OPEN_NS 5000000000ull

/* Signs of life in the time that means death, and bounds of their pace. */
#define RP_CLIENT_PACE_PART   3
#define RP_CLIENT_MIN_PACE_MS 100
#define RP_CLIENT_MAX_PACE_MS 60000

enum rp_client_state {
	/*
	 * HELLO answered. Whether the peer has the address it named is not
	 * known until it shows the cookie that was sent there.
	 */
	RP_CLIENT_HALF_OPEN,
	RP_CLIENT_OPEN,
	/* Lives as a half-open one does, until its refusal is out. */
	RP_CLIENT_REFUSED,
};

/* Who a HELLO says it is. Compared as bytes: no padding, unused is 0. */
struct rp_origin {
	struct rp_xport *x;
	uint64_t cookie; /* what answers carry */
	uint64_t addr_len;
	uint8_t addr[RP_WIRE_MAX_ADDR];
};

/* A message that the base would not take yet. */
struct rp_kept {
	STAILQ_ENTRY(rp_kept) link;
	size_t len;
	uint8_t msg[];
};

/*
 * One effect of a session, remembered until the initiator has shown that it has
 * its answer: by sending the one that takes its place.
 */
enum rp_effect_state {
	RP_EFFECT_UNSEEN, /* seq says nothing */
	RP_EFFECT_AT_WORK,
	RP_EFFECT_ANSWERED,
};
struct rp_seen {
	uint64_t seq;
	uint64_t token;
	/* ANSWERED: with what; every session has many of these. */
	uint32_t status, detail;
	uint16_t range;
	uint8_t level, class, method;
	uint8_t state; /* enum rp_effect_state */
};

/* One session. */
struct rp_client {
	struct rp_origin origin;
	enum rp_client_state state;
	uint64_t cookie;  /* what requests carry; 0: refused */
	bool unreachable; /* an answer could not be sent: see _hello() */
	uint64_t peer;	  /* the way to answer; held until the end */
	uint64_t born;
	uint16_t features;    /* that both have */
	uint64_t conn_id;     /* of its connection of our own; grows */
	void *conn;	      /* the adapter's; NULL: none */
	uint64_t pace;	      /* between signs of life, ns */
	uint64_t progress_at; /* when the next is due, while there are jobs */
	uint64_t last_token;  /* highest so far */
	uint64_t last_seq;    /* highest effect so far */
	struct rp_seen *seen; /* as many as may be under way; NULL: none yet */
	struct rp_jobs jobs;
	STAILQ_HEAD(, rp_kept) kept;
	unsigned int held;		/* jobs and kept messages */
	TAILQ_ENTRY(rp_client) link;	/* half-open by age, open by use */
	TAILQ_ENTRY(rp_client) sending; /* while something is kept */
	TAILQ_ENTRY(rp_client) working; /* while there are jobs */
	UT_hash_handle hh_origin, hh_cookie;
};
TAILQ_HEAD(rp_client_list, rp_client);

struct rp_clients {
	struct rp_worker *worker; /* kicks the xports of live sessions */
	unsigned int max_open, max_half_open;
	unsigned int credits;  /* bounds what one client has held */
	unsigned int max_held; /* and all of them */
	unsigned int open, half_open, held, unreachable;
	struct rp_client *by_origin, *by_cookie;
	struct rp_client_list half_open_list, open_list, sending, working;
};

/* The limits and worker are filled in by the caller. */
void rp_clients_init(struct rp_clients *t);

/*
 * The client of a HELLO: the one it repeats, or a new one, half-open (or
 * refused). Makes room by forgetting the oldest half-open one. NULL: nowhere
 * to answer to, or no memory.
 */
struct rp_client *rp_client_hello(struct rp_clients *t, struct rp_xport *x,
				  const struct rp_wire_hello *m, bool refused,
				  uint64_t now);
/* Would the HELLO only be repeated? */
bool rp_client_known(const struct rp_clients *t, struct rp_xport *x,
		     const struct rp_wire_hello *m);
struct rp_client *rp_client_find(const struct rp_clients *t,
				 const struct rp_xport *x, uint64_t cookie);
/*
 * It has shown its cookie: open the session if it is not, and end those of the
 * same address that are older, open or not. False: too many are open and busy.
 */
bool rp_client_use(struct rp_clients *t, struct rp_client *c);
/*
 * Forget it: jobs that wait are freed, those that run lose their client and do
 * no effect that they have not done, kept messages are lost.
 */
void rp_client_drop(struct rp_clients *t, struct rp_client *c);
void rp_clients_drop_xport(struct rp_clients *t, struct rp_xport *x);
/* Its connection of our own, if any, is no more. */
void rp_client_unoffer(struct rp_client *c);
/* Forget half-open ones that are too old. True when there was one. */
bool rp_clients_expire(struct rp_clients *t, uint64_t now);

/* May it have one more request? */
bool rp_client_has_credit(const struct rp_clients *t,
			  const struct rp_client *c);
void rp_client_add_job(struct rp_clients *t, struct rp_client *c,
		       struct rp_job *job);
void rp_client_del_job(struct rp_clients *t, struct rp_job *job);
/* Is a request of this token being worked on? */
bool rp_client_has_job(const struct rp_client *c, uint64_t token);

/*
 * What to do with a request that has an effect: 1 and *answer, which it had; 0,
 * to be worked on once it has been taken; -EALREADY: nothing (its answer is
 * due, or was received long ago); -EBADMSG: no initiator of ours sends that;
 * -ENOMEM: not now.
 */
int rp_client_effect(const struct rp_clients *t, struct rp_client *c,
		     uint64_t seq, uint64_t token,
		     struct rp_wire_reply *answer);
/*
 * From here on it is done once at most. An older one is forgotten for it, so
 * not while it may still be sent away as if it had never come.
 */
void rp_client_take(const struct rp_clients *t, struct rp_client *c,
		    uint64_t seq, uint64_t token);
/*
 * Its answer, which is remembered: unless it says that nothing was looked at.
 * It grants nothing, and credits are what they are when it is sent again.
 */
void rp_client_answered(const struct rp_clients *t, struct rp_client *c,
			uint64_t seq, const struct rp_wire_reply *reply);

/*
 * Send, or keep until the base takes it, behind what is kept already. The
 * answer to a job that was just taken off always finds room; others are
 * dropped when too much is kept.
 */
void rp_client_send(struct rp_clients *t, struct rp_client *c, const void *msg,
		    size_t len);
/* Try what is kept again, in order. True when something went out. */
bool rp_clients_resend(struct rp_clients *t);

#endif
