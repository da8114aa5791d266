// SPDX-License-Identifier: BSD-2-Clause
/* Fill and take slots of a ring in turn; every byte of a peer is checked. */
#include "core/ring.h"

#include <errno.h>
#include <string.h>

/* The valid byte of slot index, which differs in each round of the ring. */
static uint8_t valid_byte(uint32_t index)
{
	return (uint8_t)(1 + index / RP_RING_SLOTS % 255);
}

/* Offset of a slot's tail. */
static size_t tail_offset(uint32_t index)
{
	return (size_t)(index % RP_RING_SLOTS) * RP_RING_SLOT + RP_RING_MSG;
}

/* The peer may write meanwhile: read each byte once, into a copy. */
static void read_once(void *to, const uint8_t *from, size_t len)
{
	memcpy(to, from, len);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

void rp_ring_init(struct rp_ring *r, const void *in, void *out)
{
	*r = (struct rp_ring){.in = in, .out = out};
}

void rp_ring_release(struct rp_ring *r, uint32_t consumed)
{
	if (consumed - r->peer_consumed <= r->produced - r->peer_consumed)
		r->peer_consumed = consumed;
}

int rp_ring_put(struct rp_ring *r, const void *msg, size_t len,
		struct rp_ring_write *w)
{
	const size_t tail = tail_offset(r->produced);
	const struct rp_wire_slot slot = {
		.consumed = r->consumed,
		.length = (uint16_t)len,
		.valid = valid_byte(r->produced),
	};
	uint8_t *p = r->out + tail;

	if (!len || len > RP_RING_MSG)
		return -EMSGSIZE;
	if (r->produced - r->peer_consumed >= RP_RING_SLOTS)
		return -EAGAIN;
	memcpy(p - len, msg, len);
	rp_wire_put_slot(p, &slot, msg);
	*w = (struct rp_ring_write){
		.buf = p - len,
		.offset = tail - len,
		.len = len + RP_WIRE_SLOT,
	};
	r->produced++;
	return 0;
}

void rp_ring_undo_put(struct rp_ring *r)
{
	r->produced--;
}

size_t rp_ring_take(struct rp_ring *r, void *msg)
{
	const uint8_t *p = r->in + tail_offset(r->consumed);
	uint8_t tail[RP_WIRE_SLOT];
	struct rp_wire_slot slot;

	if (__atomic_load_n(p + RP_WIRE_SLOT - 1, __ATOMIC_ACQUIRE) !=
	    valid_byte(r->consumed))
		return 0;
	read_once(tail, p, sizeof(tail));
	rp_wire_get_slot(tail, &slot);
	if (!slot.length || slot.length > RP_RING_MSG)
		return 0;
	read_once(msg, p - slot.length, slot.length);
	/* The copy may have another valid byte than the one loaded. */
	slot.valid = valid_byte(r->consumed);
	if (slot.checksum != rp_wire_slot_checksum(&slot, msg))
		return 0;
	rp_ring_release(r, slot.consumed);
	r->consumed++;
	return slot.length;
}
