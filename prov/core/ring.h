/* SPDX-License-Identifier: BSD-2-Clause */
/* A ring of messages in the memory of one end, which its peer writes by RDMA.
 */
#ifndef RP_RING_H
#define RP_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/wire_desc.h"

/*
 * RDMA writes of one connection are placed in order, so a message whose valid
 * byte is there is there as a whole, and so is everything that was written
 * before it. A slot ends with the bytes of struct rp_wire_slot; the message
 * stands right before them.
 */
#define RP_RING_SLOTS 8
#define RP_RING_MSG   328 /* longest message */
#define RP_RING_SLOT  (RP_RING_MSG + RP_WIRE_SLOT)
#define RP_RING_LEN   (RP_RING_SLOTS * RP_RING_SLOT)

/* One end of a pair of rings, one for each direction. */
struct rp_ring {
	const uint8_t *in; /* the peer writes there: RP_RING_LEN, or NULL */
	uint8_t *out;	   /* RDMA writes read from there: the same */
	uint32_t produced; /* messages for the peer, and of those ... */
	uint32_t released; /* ... its consumer index, as far as known */
	uint32_t consumed; /* our consumer index */
};

/* To be written into the peer's ring: len bytes of buf, at this offset. */
struct rp_ring_write {
	const void *buf;
	size_t offset, len;
};

/* Both are zeroed. */
void rp_ring_init(struct rp_ring *r, const void *in, void *out);
/*
 * The peer has consumed so many messages. Each slot tells it of the other
 * direction; whoever learns it by other means says so here. An index that
 * cannot be is ignored.
 */
void rp_ring_release(struct rp_ring *r, uint32_t consumed);
/*
 * A message of 1 to RP_RING_MSG bytes. 0, and then *w is to be written before
 * anything else of this ring; -EAGAIN: no slot is free; -EMSGSIZE.
 */
int rp_ring_put(struct rp_ring *r, const void *msg, size_t len,
		struct rp_ring_write *w);
/* The last one was not written: as if it had not been put. */
void rp_ring_unput(struct rp_ring *r);
/*
 * The next message into msg, which has room for RP_RING_MSG bytes: its length,
 * or 0: there is none yet.
 */
size_t rp_ring_take(struct rp_ring *r, void *msg);

#endif
