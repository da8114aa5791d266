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
/* Of one for short messages. */
#define RP_MAILBOX_SHORT  328
#define RP_MAILBOX_SHORTS 8
#define RP_MAILBOX_SHORT_LEN                                                   \
	(RP_MAILBOX_CELL +                                                     \
	 RP_MAILBOX_SHORTS * (RP_MAILBOX_SHORT + RP_MAILBOX_TAIL))

struct rp_mailbox {
	const uint8_t *in;	/* the peer writes there: RP_MAILBOX_LEN */
	uint8_t *out;		/* what is written from: the same */
	uint32_t frames, frame; /* how many, and bytes of each */
	uint32_t sent;		/* frames; of them the peer is done with: */
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
 * For messages of up to RP_MAILBOX_SHORT bytes, RP_MAILBOX_SHORT_LEN bytes each
 * way; in or out may be NULL. Where no frame comes the writer learns by other
 * ways what was taken, and says so: of its frames, counted from the first.
 */
void rp_mailbox_init_short(struct rp_mailbox *b, const void *in, void *out);
void rp_mailbox_free_up_to(struct rp_mailbox *b, uint32_t taken);
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
/* The same whether it is due or not: to write something that changes nothing.
 */
void rp_mailbox_cell(struct rp_mailbox *b, struct rp_mailbox_write *w);
/* It has been. */
void rp_mailbox_paid(struct rp_mailbox *b);

/*
 * Where both ends cannot work out the key by themselves it is told, behind what
 * a program says when it connects or accepts.
 */
#define RP_MAILBOX_CARD 20

struct rp_mailbox_card {
	uint64_t addr; /* of the mailbox's first byte */
	uint64_t key;
	/* What asks about writes is written when a read behind them is back. */
	bool fenced;
};

void rp_mailbox_card_put(uint8_t out[RP_MAILBOX_CARD],
			 const struct rp_mailbox_card *card);
/* Do these bytes end with a card? Then *len is how many stand before it. */
bool rp_mailbox_card_get(const void *data, size_t *len,
			 struct rp_mailbox_card *card);
/*
 * Into out, which has room bytes: the program's, and the card behind them.
 * Their number, or -EINVAL: so many do not fit.
 */
int rp_mailbox_tell(void *out, size_t room, const void *data, size_t len,
		    const struct rp_mailbox_card *card);

#endif
