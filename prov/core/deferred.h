/* SPDX-License-Identifier: BSD-2-Clause */
/* Completions of a program's queue pair, deferred until the agent replies. */
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
 * Completions of one queue pair pass through this queue, in the order of
 * posting. A flush or a store enters when the read fence before it has
 * completed, so earlier writes are in the target's memory; it leaves when the
 * agent has replied. All operations behind it wait.
 *
 * A store is requested when it is the first of the queue: all bytes that it
 * must not overtake are then durable. Flushes are requested at once. No request
 * is retransmitted: the side connection is reliable, and its loss is final.
 *
 * A flush may be pipelined: its request is written into a ring at the target,
 * behind the data over the queue pair itself, which saves the read fence. The
 * write wakes no agent, so flushes are pipelined only from the agent's message
 * POLLING until its IDLE. If a reply is due after IDLE, a DOORBELL is sent. A
 * short write may be pipelined with its flush: the agent stores it.
 *
 * A session (session.h) cannot be used here: it accepts an operation for good,
 * but ibv_wr_abort() drops operations; its deadline runs from the post, but the
 * target gets a pipelined request only behind the program's earlier writes; and
 * a session owns its channel, but these requests use two connections, and
 * completions arrive in the program's completion queue.
 */
enum rp_deferred_kind {
	RP_DEFERRED_PLAIN, /* no request; completes behind earlier ones */
	RP_DEFERRED_FLUSH,
	RP_DEFERRED_STORE, /* a store of 8 bytes */
	RP_DEFERRED_WRITE, /* a flush with its bytes in the request */
};
enum rp_deferred_outcome {
	RP_DEFERRED_OK,
	RP_DEFERRED_REFUSED,	/* the agent refused the request: see status */
	RP_DEFERRED_LOST,	/* no reply came, and none will */
	RP_DEFERRED_BEHIND_ERR, /* an operation in front of it has failed */
};
struct rp_deferred_op {
	STAILQ_ENTRY(rp_deferred_op) link;
	enum rp_deferred_kind kind;
	uint64_t key, addr, len;
	enum rp_class required;
	uint8_t value[8];  /* STORE: in memory order */
	const void *bytes; /* WRITE: valid until pipelined */
	/* Set by deferred.c. */
	enum {
		RP_DEFERRED_UNSENT,
		RP_DEFERRED_SENT,
		RP_DEFERRED_DONE
	} state;
	uint64_t token;
	enum rp_deferred_outcome outcome; /* valid after rp_deferred_take() */
	enum rp_status status;
	bool pipelined; /* its request was posted to the ring */
	bool pending;	/* the write to the ring is not complete */
	uint32_t index; /* number of the request in the ring */
	LIST_ENTRY(rp_deferred_op) pending_link;
};

/*
 * Most outstanding requests; longest message over the side connection; most
 * bytes of a WRITE; longest message into the ring.
 */
#define RP_DEFERRED_MAX		 8
#define RP_DEFERRED_MAX_MSG	 RP_WIRE_STORE_LEN(1, 8)
#define RP_DEFERRED_BYTES	 256
#define RP_DEFERRED_MAX_RING_MSG RP_WIRE_STORE_LEN(1, RP_DEFERRED_BYTES)

struct rp_deferred {
	uint64_t initiator; /* random: identifies this end in its HELLO */
	uint64_t timeout;   /* ns */
	enum {
		RP_DEFERRED_NEW,
		RP_DEFERRED_HELLO, /* HELLO was sent */
		RP_DEFERRED_OPEN,
		RP_DEFERRED_CLOSED
	} state;
	uint64_t next_token;
	unsigned int credits, outstanding;
	bool failed;	   /* an operation has failed: later ones fail, too */
	uint64_t deadline; /* time when a silent agent counts as lost */
	STAILQ_HEAD(, rp_deferred_op) ops;
	unsigned int requests; /* number of flushes and stores in ops */
	bool polling;	       /* the agent polls the ring */
	bool doorbell;	       /* a DOORBELL has to be sent */
	LIST_HEAD(, rp_deferred_op) pending;
	uint32_t produced, consumed; /* ring indices: requests put, taken */
	unsigned int replies_due;    /* requests outstanding and not pending */
	unsigned int dropped;	     /* outstanding, but their write failed */
};
void rp_deferred_init(struct rp_deferred *d, uint64_t initiator,
		      uint64_t timeout);

/* Append the operation to the queue of completions. */
void rp_deferred_put(struct rp_deferred *d, struct rp_deferred_op *op);
/*
 * Pipeline a flush or a write: encode its request into buf,
 * RP_DEFERRED_MAX_RING_MSG bytes, which the caller writes into the ring behind
 * all earlier posts. Returns the length, or 0: request it over the side
 * connection. The caller makes sure that no store is outstanding.
 */
size_t rp_deferred_pipeline(struct rp_deferred *d, struct rp_deferred_op *op,
			    void *buf);
/* Queue a pipelined op whose write has completed, before or after its reply. */
void rp_deferred_mark_placed(struct rp_deferred *d, uint64_t now,
			     struct rp_deferred_op *op);
/* Undo rp_deferred_pipeline(): the write was not posted, nor a later one. */
void rp_deferred_undo_pipeline(struct rp_deferred *d,
			       struct rp_deferred_op *op);
/* The write of a pipelined request has failed. */
void rp_deferred_drop(struct rp_deferred *d, struct rp_deferred_op *op);
/* Take the first operation if its outcome is known; else NULL. */
struct rp_deferred_op *rp_deferred_take(struct rp_deferred *d);

/*
 * Encode the next message that may be sent into buf, RP_DEFERRED_MAX_MSG bytes.
 * Returns its length, or 0: none. *op: the operation that it requests; NULL:
 * it is HELLO. It counts as sent: if it cannot be, call rp_deferred_close().
 */
size_t rp_deferred_next_message(struct rp_deferred *d, uint64_t now, void *buf,
				struct rp_deferred_op **op);
/*
 * Handle a message of the peer, which is hostile. False: an invalid message in
 * this state; the side connection is lost.
 */
bool rp_deferred_receive(struct rp_deferred *d, uint64_t now, const void *msg,
			 size_t len);
/* The side connection is lost: no reply will come. */
void rp_deferred_close(struct rp_deferred *d);
/* Call rp_deferred_close() if a reply is overdue. True: called it. */
bool rp_deferred_expire(struct rp_deferred *d, uint64_t now);

#endif
