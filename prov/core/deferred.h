/* SPDX-License-Identifier: BSD-2-Clause */
/* Completions of a user's queue pair that wait for the target's agent. */
#ifndef RP_DEFERRED_H
#define RP_DEFERRED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/caps.h"
#include "core/status.h"
#include "core/wire.h"

/*
 * All completions of one queue pair pass through here, in the order of posting.
 * A flush or a store enters when the read before it has completed, so the bytes
 * written before that are in the target's memory; it leaves when the agent has
 * replied. What is behind it waits.
 *
 * A store is requested when nothing is before it any more: the bytes that it
 * must not overtake are durable then. Flushes are requested at once. Nothing is
 * requested twice: the side connection is reliable, and its end is the end.
 *
 * A flush may be pipelined: its request is not sent over the side connection
 * but written into a ring at the target, behind the data over the queue pair
 * itself. That takes no read, and so no round trip; but it wakes nobody. So it
 * is done only while the agent polls the ring: from its POLLING until its IDLE.
 * If a reply is due after IDLE, the agent gets a DOORBELL. A write of few bytes
 * may be pipelined with its flush: the agent stores them.
 *
 * Why not a session (session.h): a session accepts an operation for good, but
 * what was built between start and complete can be aborted; a session's
 * deadline runs from the post, but a pipelined request is the target's only
 * when the user's earlier writes are; and a session has a channel for itself,
 * but here requests take two ways and completions arrive on the user's queue.
 */
enum rp_deferred_kind {
	RP_DEFERRED_PLAIN, /* no request; only waits */
	RP_DEFERRED_FLUSH,
	RP_DEFERRED_STORE, /* of 8 bytes */
	RP_DEFERRED_WRITE, /* a flush whose bytes are in the request */
};
enum rp_deferred_outcome {
	RP_DEFERRED_OK,
	RP_DEFERRED_REFUSED, /* by the agent: status */
	RP_DEFERRED_LOST,    /* no reply, and none will come */
	RP_DEFERRED_BEHIND,  /* something before it has failed */
};
struct rp_deferred_op {
	STAILQ_ENTRY(rp_deferred_op) link;
	enum rp_deferred_kind kind;
	uint64_t key, addr, len;
	enum rp_class required;
	uint8_t value[8];  /* STORE: in the order of memory */
	const void *bytes; /* WRITE: until it was pipelined */
	/* Written here. */
	enum {
		RP_DEFERRED_UNSENT,
		RP_DEFERRED_SENT,
		RP_DEFERRED_DONE
	} state;
	uint64_t token;
	enum rp_deferred_outcome outcome; /* valid when it was taken */
	enum rp_status status;
	bool pipelined; /* its request is in the ring, or on its way there */
	bool pending;	/* and its write has not completed */
	uint32_t index; /* of the requests in the ring */
	LIST_ENTRY(rp_deferred_op) pending_link;
};

/*
 * Outstanding requests; the longest message of this end over the side
 * connection, and into the ring; and the most bytes of a WRITE.
 */
#define RP_DEFERRED_MAX	     8
#define RP_DEFERRED_MSG	     RP_WIRE_STORE_LEN(1, 8)
#define RP_DEFERRED_BYTES    256
#define RP_DEFERRED_RING_MSG RP_WIRE_STORE_LEN(1, RP_DEFERRED_BYTES)

struct rp_deferred {
	uint64_t initiator; /* random: names this end in its HELLO */
	uint64_t timeout;   /* ns */
	enum {
		RP_DEFERRED_NEW,
		RP_DEFERRED_HELLO, /* sent */
		RP_DEFERRED_OPEN,
		RP_DEFERRED_CLOSED
	} state;
	uint64_t next_token;
	unsigned int credits, outstanding;
	bool failed;	   /* an outcome was not OK: all behind it fail */
	uint64_t deadline; /* when silence counts as loss */
	STAILQ_HEAD(, rp_deferred_op) ops;
	unsigned int requests; /* of these, flushes and stores */
	bool polling;	       /* the agent polls the ring */
	bool doorbell;	       /* a DOORBELL is to be sent */
	LIST_HEAD(, rp_deferred_op) pending;
	uint32_t produced, consumed; /* requests in the ring */
	unsigned int due;     /* of the outstanding ones, those not pending */
	unsigned int dropped; /* outstanding ones whose write has failed */
};
void rp_deferred_init(struct rp_deferred *d, uint64_t initiator,
		      uint64_t timeout);

/* Behind all that are there. */
void rp_deferred_put(struct rp_deferred *d, struct rp_deferred_op *op);
/*
 * Pipeline a flush or a write: the message into buf, RP_DEFERRED_RING_MSG
 * bytes, which is to be written into the ring behind what was posted before.
 * Its length, or 0: it has to be requested as usual. No store may be under way:
 * the caller sees to that.
 */
size_t rp_deferred_pipeline(struct rp_deferred *d, struct rp_deferred_op *op,
			    void *buf);
/* Its write has completed: behind all that are there. A reply may have come
 * before. */
void rp_deferred_placed(struct rp_deferred *d, uint64_t now,
			struct rp_deferred_op *op);
/* Its write was not posted after all, nor was any later one. */
void rp_deferred_withdraw(struct rp_deferred *d, struct rp_deferred_op *op);
/* Its write has failed. */
void rp_deferred_drop(struct rp_deferred *d, struct rp_deferred_op *op);
/* The first, if its outcome is known, taken off; or NULL. */
struct rp_deferred_op *rp_deferred_take(struct rp_deferred *d);

/*
 * The next message that may go out: into buf, RP_DEFERRED_MSG bytes. Its
 * length, or 0: none. *op: whose request; NULL: it is HELLO. It counts as sent,
 * so a caller that cannot send it calls rp_deferred_close().
 */
size_t rp_deferred_next(struct rp_deferred *d, uint64_t now, void *buf,
			struct rp_deferred_op **op);
/*
 * A message from the other end, which is hostile. False: no agent says that,
 * here; the side connection is lost.
 */
bool rp_deferred_received(struct rp_deferred *d, uint64_t now, const void *msg,
			  size_t len);
/* No reply will come any more. */
void rp_deferred_close(struct rp_deferred *d);
/* Is a reply overdue? Then it is closed. */
bool rp_deferred_expired(struct rp_deferred *d, uint64_t now);

#endif
