/* SPDX-License-Identifier: BSD-2-Clause */
/* Asking a peer's agent beside a connection of the program's own, in order. */
#ifndef RP_ASK_H
#define RP_ASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/caps.h"
#include "core/status.h"
#include "core/wire.h"

/*
 * All that completes on one queue pair passes through here, in the order in
 * which it was posted. A flush or a store enters when the read before it has
 * come back, so what was written before that is in the target's memory; it
 * leaves when the agent has answered. What is behind it waits.
 *
 * A store is asked for when nothing is before it any more: what it is to be
 * behind is durable then. Flushes are asked for at once. Nothing is ever asked
 * twice: the side connection is reliable, and its end is the end.
 *
 * A flush may go ahead: not over the side but into a ring at the target,
 * written behind the data over the connection itself. That takes no read, and
 * so no round trip; but nobody is woken by it. So it is done only while the
 * agent is known to look there: from its note that it does until its note that
 * it does not. Who hears that and still waits for an answer has it look once.
 * Then a write of few bytes may go ahead with its flush: the agent stores them.
 */
enum rp_ask_kind {
	RP_ASK_HELD, /* asks nothing; only waits */
	RP_ASK_FLUSH,
	RP_ASK_STORE, /* of 8 bytes */
	RP_ASK_WRITE, /* a flush whose bytes are in the request */
};
enum rp_ask_end {
	RP_ASK_OK,
	RP_ASK_REFUSED, /* by the agent: why */
	RP_ASK_LOST,	/* no answer, and none will come */
	RP_ASK_BEHIND,	/* something before it has failed */
};
struct rp_ask_item {
	STAILQ_ENTRY(rp_ask_item) link;
	enum rp_ask_kind kind;
	uint64_t key, addr, len;
	enum rp_class required;
	uint8_t value[8];  /* STORE: in the order of memory */
	const void *bytes; /* WRITE: until it has gone ahead */
	/* Written here; end is of who was taken off. */
	enum {
		RP_ASK_UNSENT,
		RP_ASK_SENT,
		RP_ASK_DONE
	} state;
	uint64_t token;
	enum rp_ask_end end;
	enum rp_status why;
	bool boxed;   /* went ahead; */
	bool early;   /* and has not entered yet */
	uint32_t nth; /* of those that went */
	LIST_ENTRY(rp_ask_item) early_link;
};

/*
 * Without an answer at once; the longest message of this end over the side, and
 * into the ring; and the most that a WRITE has.
 */
#define RP_ASK_MAX	 8
#define RP_ASK_MSG_MAX	 RP_WIRE_STORE_LEN(1, 8)
#define RP_ASK_BYTES	 256
#define RP_ASK_AHEAD_MAX RP_WIRE_STORE_LEN(1, RP_ASK_BYTES)

struct rp_ask {
	uint64_t initiator; /* random: names this end in its HELLO */
	uint64_t patience;  /* ns */
	enum {
		RP_ASK_NEW,
		RP_ASK_GREETED,
		RP_ASK_OPEN,
		RP_ASK_GONE
	} state;
	uint64_t next_token;
	unsigned int credits, unanswered;
	bool failed;	/* one was not OK: all behind it are not */
	uint64_t until; /* when silence is death */
	STAILQ_HEAD(, rp_ask_item) items;
	unsigned int asking; /* of these, flushes and stores */
	bool watched;	     /* the agent looks into the ring */
	bool doorbell;	     /* it is to be told to, once */
	LIST_HEAD(, rp_ask_item) early;
	uint32_t ahead, taken; /* went; and of them the agent is done with */
	unsigned int waiting;  /* of the unanswered, those not early */
	unsigned int dropped;  /* early ones that never came, unanswered */
};
void rp_ask_init(struct rp_ask *a, uint64_t initiator, uint64_t patience);

/* Behind all that are there. */
void rp_ask_put(struct rp_ask *a, struct rp_ask_item *i);
/*
 * Let a flush or a write go ahead: the message into buf, RP_ASK_AHEAD_MAX
 * bytes, which is to be written into the ring behind what was posted before.
 * Its length, or 0: it has to be asked for as usual. Nobody may be asked to
 * store meanwhile: that is the caller's to see to.
 */
size_t rp_ask_ahead(struct rp_ask *a, struct rp_ask_item *i, void *buf);
/* It is there: behind all that are. An answer may have come before. */
void rp_ask_arrived(struct rp_ask *a, uint64_t now, struct rp_ask_item *i);
/* It was not posted after all, nor was any later one; or its write has failed.
 */
void rp_ask_unposted(struct rp_ask *a, struct rp_ask_item *i);
void rp_ask_drop(struct rp_ask *a, struct rp_ask_item *i);
/* The first, if it has ended, taken off; or NULL. */
struct rp_ask_item *rp_ask_take(struct rp_ask *a);

/*
 * The next message that may go out: into buf, RP_ASK_MSG_MAX bytes. Its length,
 * or 0: none. *whose: who asks; NULL: nobody, it is the greeting. It counts as
 * sent, so who cannot send it calls rp_ask_lose().
 */
size_t rp_ask_next(struct rp_ask *a, uint64_t now, void *buf,
		   struct rp_ask_item **whose);
/*
 * What came from the other end, which is hostile. False: no agent says that,
 * here; it has been lost.
 */
bool rp_ask_heard(struct rp_ask *a, uint64_t now, const void *msg, size_t len);
/* No answer will come any more. */
void rp_ask_lose(struct rp_ask *a);
/* Is an answer overdue? Then it has been lost. */
bool rp_ask_late(struct rp_ask *a, uint64_t now);

#endif
