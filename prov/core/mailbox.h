/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages between two connected ends by nothing but remote writes. */
#ifndef RP_MAILBOX_H
#define RP_MAILBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/wire.h"

/*
 * Each end has memory that the other may write to. What is written over one
 * connection is placed in order, so a message whose last byte is there is there
 * as a whole, and so is everything that was written before it.
 */

#define RP_MAILBOX_FRAMES 16
#define RP_MAILBOX_CELL	  64 /* before the frames */
#define RP_MAILBOX_TAIL	  16
#define RP_MAILBOX_FRAME  (RP_WIRE_MAX_MSG + RP_MAILBOX_TAIL)
#define RP_MAILBOX_LEN	  (RP_MAILBOX_CELL + RP_MAILBOX_FRAMES * RP_MAILBOX_FRAME)

struct rp_mailbox {
	const uint8_t *in; /* the peer writes there: RP_MAILBOX_LEN */
	uint8_t *out;	   /* what is written from: the same */
	uint32_t sent;	   /* frames; of them the peer is done with: */
	uint32_t freed;
	uint32_t taken; /* from in; of them the peer knows of: */
	uint32_t told;
};

/* To be written into the peer's: len bytes of buf, at at. */
struct rp_mailbox_write {
	const void *buf;
	size_t at, len;
};

/* Both are zeroed. */
void rp_mailbox_init(struct rp_mailbox *b, const void *in, void *out);
/*
 * A message, 1 to RP_WIRE_MAX_MSG bytes. 0, and then *w is to be written before
 * anything else of this mailbox; -EAGAIN: no frame is free.
 */
int rp_mailbox_put(struct rp_mailbox *b, const void *msg, size_t len,
		   struct rp_mailbox_write *w);
/* The last one could not be written: as if it had not been put. */
void rp_mailbox_unput(struct rp_mailbox *b);
/*
 * The next message into msg, which has room for RP_WIRE_MAX_MSG bytes: its
 * length, or 0: there is none (yet).
 */
size_t rp_mailbox_take(struct rp_mailbox *b, void *msg);
/*
 * Should the peer be told what was taken, as no message of ours has done so?
 * Then *w is to be written. It may be lost: it is due again then.
 */
bool rp_mailbox_owes(struct rp_mailbox *b, struct rp_mailbox_write *w);
/* It has been. */
void rp_mailbox_paid(struct rp_mailbox *b);

#endif
