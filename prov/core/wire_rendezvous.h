/* SPDX-License-Identifier: BSD-2-Clause */
/* How the preloaded ends of a queue pair find each other, over TCP. */
#ifndef RP_WIRE_RENDEZVOUS_H
#define RP_WIRE_RENDEZVOUS_H

#include <stdint.h>

#include "core/wire_desc.h"

/*
 * These messages carry descriptors, which the side connection cannot: its
 * initiator receives on the program's completion queue, which the program may
 * never poll again, but a target that deregisters a region waits until its
 * peers have released every descriptor of it. Each message has the same size.
 * Little-endian:
 *
 *    0 8 bytes: as in wire_desc.h
 *    8 u32 reserved 0                        12 u32 rkey
 *   16 u32 to: number of the receiver's queue pair   20 u32 from: the sender's
 *   24 gid of to, 16 bytes                  40 gid of from
 *   56 64 bytes: a side address, or a descriptor
 *  120 u32 reserved 0
 *  124 u32 checksum
 *
 * A field that a type does not have is 0.
 */
#define RP_RENDEZVOUS_LEN 128
#define RP_GID_LEN	  16

enum rp_rendezvous_type {
	RP_RENDEZVOUS_LOOKUP =
		RP_WIRE_RENDEZVOUS, /* fields: to, from, both gids, side */
	RP_RENDEZVOUS_FOUND,	    /* the same fields, of the server */
	RP_RENDEZVOUS_NOT_FOUND,    /* no field */
	RP_RENDEZVOUS_QUERY,	    /* rkey */
	RP_RENDEZVOUS_DESC,	    /* rkey, desc */
	RP_RENDEZVOUS_RECALL,	    /* rkey that the peer has to forget */
	RP_RENDEZVOUS_RELEASED,	    /* rkey that was forgotten */
	RP_RENDEZVOUS_LEAVE, /* no field: the client's queue pair is gone */
};
struct rp_rendezvous {
	enum rp_rendezvous_type type;
	uint32_t rkey;
	uint32_t to, from; /* 24 bits */
	uint8_t to_gid[RP_GID_LEN], from_gid[RP_GID_LEN];
	struct rp_side_addr side; /* side.qp_num equals from */
	struct rp_desc desc;	  /* desc.rkey equals rkey */
};

/* buf: RP_RENDEZVOUS_LEN bytes. 0, or -EINVAL for a field out of range. */
int rp_rendezvous_put(void *buf, const struct rp_rendezvous *m);
/*
 * Every byte is checked. 0; -EBADMSG; -EPROTONOSUPPORT (whole, but of another
 * version). *m is written last.
 */
int rp_rendezvous_get(const void *buf, struct rp_rendezvous *m);

/*
 * The nth of RP_RENDEZVOUS_TRIES TCP ports; the rendezvous server of a queue
 * pair of this number listens on one of them. Other programs may use some.
 */
#define RP_RENDEZVOUS_TRIES	 8
#define RP_RENDEZVOUS_PORT_FIRST 28672
#define RP_RENDEZVOUS_PORTS	 4096
uint16_t rp_rendezvous_port(uint32_t qp_num, unsigned int n);

#endif
