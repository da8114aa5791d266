/* SPDX-License-Identifier: BSD-2-Clause */
/* The frames of private connections over TCP, encoded and decoded. */
#ifndef RP_RC_TCP_FRAME_H
#define RP_RC_TCP_FRAME_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/wire.h"

/*
 * See docs/protocol.md, "Frames over TCP". Every number is little-endian,
 * nothing is padded, reserved bytes are 0.
 */
enum rp_tcp_type {
	RP_TCP_CONNECT = 32, /* data */
	RP_TCP_ACCEPT,	     /* data */
	RP_TCP_REJECT,	     /* data; then the connection ends */
	RP_TCP_MESSAGE,	     /* a message of at most RP_WIRE_MAX_MSG bytes */
	RP_TCP_WRITE,	     /* struct rp_tcp_rma and data */
	RP_TCP_READ,   /* struct rp_tcp_rma: a request for `length` bytes */
	RP_TCP_DATA,   /* reply to the oldest READ */
	RP_TCP_PLACED, /* the oldest `length` flagged WRITEs are placed */
};
#define RP_TCP_ACKNOWLEDGED 1 /* flag of WRITE: reply PLACED when placed */

struct rp_tcp_hdr {
	uint16_t magic; /* RP_WIRE_MAGIC of core/wire.h */
	uint8_t version;
	uint8_t type;
	uint32_t flags;
	uint64_t length; /* bytes of data that follow the header */
} __attribute__((packed));

struct rp_tcp_rma {
	struct rp_tcp_hdr hdr;
	uint64_t addr;
	uint64_t rkey;
} __attribute__((packed));

/* A header in host byte order. */
struct tcp_head {
	enum rp_tcp_type type;
	bool acknowledged;
	uint64_t length;
	uint64_t addr, rkey; /* WRITE and READ only */
};

static inline bool rp_tcp_has_rma(enum rp_tcp_type type)
{
	return type == RP_TCP_WRITE || type == RP_TCP_READ;
}

static inline size_t rp_tcp_head_len(enum rp_tcp_type type)
{
	return rp_tcp_has_rma(type) ? sizeof(struct rp_tcp_rma)
				    : sizeof(struct rp_tcp_hdr);
}

/* Encode a header. Returns its length. */
static inline size_t rp_tcp_put(struct rp_tcp_rma *to, const struct tcp_head *h)
{
	*to = (struct rp_tcp_rma){
		.hdr.magic = htole16(RP_WIRE_MAGIC),
		.hdr.version = RP_WIRE_VERSION,
		.hdr.type = h->type,
		.hdr.flags = htole32(h->acknowledged ? RP_TCP_ACKNOWLEDGED : 0),
		.hdr.length = htole64(h->length),
		.addr = htole64(h->addr),
		.rkey = htole64(h->rkey),
	};
	return rp_tcp_head_len(h->type);
}

/* Decode a header. 1: done; 0: len bytes are too few; -1: not a frame. */
static inline int rp_tcp_get(const uint8_t *bytes, size_t len,
			     struct tcp_head *h)
{
	struct rp_tcp_rma in = {.addr = 0};
	uint32_t flags = 0;

	if (len < sizeof(in.hdr))
		return 0;
	memcpy(&in.hdr, bytes, sizeof(in.hdr));
	h->type = in.hdr.type;
	if (h->type == RP_TCP_WRITE)
		flags = RP_TCP_ACKNOWLEDGED;
	if (le16toh(in.hdr.magic) != RP_WIRE_MAGIC ||
	    in.hdr.version != RP_WIRE_VERSION ||
	    (le32toh(in.hdr.flags) & ~flags) || h->type < RP_TCP_CONNECT ||
	    h->type > RP_TCP_PLACED)
		return -1;
	if (len < rp_tcp_head_len(h->type))
		return 0;
	memcpy(&in, bytes, rp_tcp_head_len(h->type));
	h->acknowledged = in.hdr.flags;
	h->length = le64toh(in.hdr.length);
	h->addr = le64toh(in.addr);
	h->rkey = le64toh(in.rkey);
	return 1;
}

#endif
