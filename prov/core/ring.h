/* SPDX-License-Identifier: BSD-2-Clause */
/* A ring of messages in local memory, which the peer writes by RDMA. */
#ifndef RP_RING_H
#define RP_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/wire_desc.h"

/*
 * RDMA writes of one connection are placed in order, so a valid byte proves
 * that its whole message and every earlier write are placed. A slot ends with
 * the bytes of struct rp_wire_slot; the message ends right before them.
 */
#define RP_RING_SLOTS 8
#define RP_RING_MSG   328 /* longest message */
#define RP_RING_SLOT  (RP_RING_MSG + RP_WIRE_SLOT)
#define RP_RING_LEN   (RP_RING_SLOTS * RP_RING_SLOT)

/* One end of a pair of rings, one for each direction. */
struct rp_ring {
	const uint8_t *in; /* written by the peer: RP_RING_LEN bytes, or NULL */
	uint8_t *out;	   /* source of writes to the peer, or NULL */
	uint32_t produced; /* messages written to the peer */
	uint32_t peer_consumed; /* the peer's consumer index, as last known */
	uint32_t consumed;	/* own consumer index */
};

/* An RDMA write to the peer's ring: len bytes of buf, at this offset. */
struct rp_ring_write {
	const void *buf;
	size_t offset, len;
};

/* The caller has zeroed the buffers in and out. */
void rp_ring_init(struct rp_ring *r, const void *in, void *out);
/*
 * Store the peer's consumer index. rp_ring_take() does so for each slot; call
 * this for an index that came another way. An impossible index is ignored.
 */
void rp_ring_release(struct rp_ring *r, uint32_t consumed);
/*
 * Put a message of 1 to RP_RING_MSG bytes. 0: *w must be written before any
 * later write of this ring; -EAGAIN: no free slot; -EMSGSIZE.
 */
int rp_ring_put(struct rp_ring *r, const void *msg, size_t len,
		struct rp_ring_write *w);
/* Undo the last rp_ring_put(), which was not written. */
void rp_ring_undo_put(struct rp_ring *r);
/*
 * Copy the next message into msg, which has RP_RING_MSG bytes. Returns its
 * length, or 0: no message yet.
 */
size_t rp_ring_take(struct rp_ring *r, void *msg);

#endif
