/* SPDX-License-Identifier: BSD-2-Clause */
/* Region descriptors and side addresses, which two ends of a QP exchange. */
#ifndef RP_WIRE_DESC_H
#define RP_WIRE_DESC_H

#include <stddef.h>
#include <stdint.h>

#include "core/wire.h"

/*
 * Descriptors, side addresses and messages of a rendezvous begin with the same
 * 8 bytes as every message (wire.h):
 *
 *    0 u16 magic    2 u8 version    3 u8 type    4 u32 bytes in all
 *
 * and end with the CRC-32 (that of zlib) of all bytes before it. The checksum
 * finds messages that were cut, mixed up or damaged; it proves nothing about
 * the sender.
 */
#define RP_WIRE_DESC	   40
#define RP_WIRE_SIDE	   41
#define RP_WIRE_RENDEZVOUS 42 /* the first of 8: wire_rendezvous.h */
/* Write the first 8 bytes and the checksum of a message of len bytes, >= 12. */
void rp_wire_seal(void *buf, uint8_t type, size_t len);
/*
 * Check the first 8 bytes and the checksum. Returns 0; -EBADMSG; or
 * -EPROTONOSUPPORT: the checksum is right, but the version is another.
 */
int rp_wire_check_seal(const void *buf, uint8_t type, size_t len);

/*
 * A program carries a descriptor to its peer beside the number of its queue
 * pair, so the size never changes. Little-endian:
 *
 *    0 8 bytes: as above
 *    8 u64 addr: address of the region's first byte in RDMA
 *   16 u64 length, above 0; addr + length does not wrap
 *   24 u32 rkey
 *   28 u32 qp_num: number of the target's queue pair
 *   32 u8 memory  33 u8 placement  34 u8 domain  35 u8 fence
 *   36 u8 file system trusted  37 u8 class limit  38 u16 reserved 0
 *   40 u16 RP_DESC_* that the region allows
 *   42 u16 RP_DESC_* that the queue pair allows
 *   44 u16 those of RP_DESC_NATIVE that the target's device has
 *   46 u16 reserved 0
 *   48 u64 key of the region for the target's agent: as in wire.h, but with
 *      port 0, as there is no listener; 0: there is no agent
 *   56 u32 reserved 0
 *   60 u32 checksum
 */
#define RP_DESC_LEN 64

#define RP_DESC_GLOBAL	     1u
#define RP_DESC_PERSISTENT   2u
#define RP_DESC_READ	     4u
#define RP_DESC_WRITE	     8u
#define RP_DESC_ATOMIC_WRITE 16u
#define RP_DESC_ALL	     31u
#define RP_DESC_NATIVE                                                         \
	(RP_DESC_GLOBAL | RP_DESC_PERSISTENT | RP_DESC_ATOMIC_WRITE)

struct rp_desc {
	uint64_t addr, length;
	uint32_t rkey;
	uint32_t qp_num; /* 24 bits */
	enum rp_memory memory;
	enum rp_placement placement;
	enum rp_domain domain;
	enum rp_tri fence, fs_trusted;
	enum rp_class_limit limit;
	uint16_t region, qp, native; /* RP_DESC_* */
	uint64_t key;
};

/* buf: RP_DESC_LEN bytes. 0, or -EINVAL for a field out of range. */
int rp_desc_put(void *buf, const struct rp_desc *d);
/*
 * Every byte is checked. 0; -EBADMSG (the checksum or any field is wrong);
 * -EPROTONOSUPPORT (whole, but of another version). *d is written last.
 */
int rp_desc_get(const void *buf, struct rp_desc *d);

/* The CRC-32 of zlib. */
uint32_t rp_crc32(const void *buf, size_t n);

/*
 * A side address: the side queue pairs of one end, and the rings that its peer
 * writes. The peer writes requests into the agent's ring over the program's
 * queue pair, and the peer's agent writes replies into the initiator's ring.
 * Each queue pair and each ring may be missing:
 *
 *    0 8 bytes: as above
 *    8 u32 qp_num: the program's queue pair
 *   12 u32 initiator: number of the side queue pair that sends requests; 0:
 *      none
 *   16 u32 target: number of the one that sends replies; 0: none
 *   20 u32 psn: first packet sequence number of both
 *   24 u64 ring: address of the ring of requests in RDMA; 0: none
 *   32 u32 ring_rkey: rkey of that ring; 0: none
 *   36 u32 replies_rkey: rkey of the ring of replies; 0: none
 *   40 u64 replies: address of the ring of replies in RDMA; 0: none
 *   48 12 bytes, reserved 0
 *   60 u32 checksum
 *
 * The first four numbers have 24 bits. With a ring of requests target is not 0,
 * with a ring of replies initiator is not 0.
 */
#define RP_SIDE_ADDR_LEN 64

struct rp_side_addr {
	uint32_t qp_num, initiator, target, psn;
	uint64_t ring;
	uint32_t ring_rkey, replies_rkey;
	uint64_t replies;
};
/* Encode and decode a side address, as descriptors above. */
int rp_side_addr_put(void *buf, const struct rp_side_addr *s);
int rp_side_addr_get(const void *buf, struct rp_side_addr *s);

/*
 * The end of a slot of a ring (ring.h), behind its message:
 *
 *    0 u32 checksum    4 u32 consumer index    8 u16 bytes of the message
 *   10 u8[5] reserved 0    15 u8 valid byte
 *
 * The checksum is for writes that a CPU places by copying: a reader on another
 * CPU may see the valid byte first. It does not detect forgery.
 */
#define RP_WIRE_SLOT 16

struct rp_wire_slot {
	uint32_t checksum; /* rp_wire_put_slot() computes it */
	uint32_t consumed;
	uint16_t length;
	uint8_t valid;
};
void rp_wire_put_slot(void *buf, const struct rp_wire_slot *s, const void *msg);
/* Decode any bytes; the caller compares the checksum. */
void rp_wire_get_slot(const void *buf, struct rp_wire_slot *s);
/* The checksum of the other fields and of s->length bytes of msg. */
uint32_t rp_wire_slot_checksum(const struct rp_wire_slot *s, const void *msg);

#endif
