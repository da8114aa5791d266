/* SPDX-License-Identifier: BSD-2-Clause */
/* What the preloaded ends of a queue pair say to each other over TCP. */
#ifndef RP_WIRE_MEET_H
#define RP_WIRE_MEET_H

#include <stddef.h>
#include <stdint.h>

#include "core/wire_desc.h"

/*
 * Each message has the same size. Little-endian:
 *
 *    0 u32 magic "RPMM"    4 u16 version 1    6 u16 bytes: 128
 *    8 u16 type           10 u16 reserved 0  12 u32 rkey
 *   16 u32 to: number of the receiver's queue pair   20 u32 from: the sender's
 *   24 gid of to, 16 bytes                  40 gid of from
 *   56 64 bytes: a side's address and zeros, or a descriptor
 *  120 u32 reserved 0
 *  124 u32 CRC-32 of the bytes before
 *
 * What a type does not have is 0.
 */
#define RP_MEET_LEN 128
#define RP_GID_LEN  16

enum rp_meet_type {
	RP_MEET_CALL = 1,  /* to, from, both gids, side */
	RP_MEET_HERE,	   /* the same of who answers */
	RP_MEET_NOT_HERE,  /* nothing */
	RP_MEET_ASK,	   /* rkey */
	RP_MEET_TOLD,	   /* rkey, desc */
	RP_MEET_GONE,	   /* rkey: it is to be forgotten */
	RP_MEET_FORGOTTEN, /* rkey: it is */
	RP_MEET_BYE,	   /* nothing: the caller's queue pair is no more */
};
struct rp_meet {
	enum rp_meet_type type;
	uint32_t rkey;
	uint32_t to, from; /* 24 bits */
	uint8_t to_gid[RP_GID_LEN], from_gid[RP_GID_LEN];
	struct rp_side side; /* its qp_num is from */
	struct rp_desc desc; /* its rkey is rkey */
};

/* buf: RP_MEET_LEN bytes. 0, or -EINVAL for a field out of range. */
int rp_meet_put(void *buf, const struct rp_meet *m);
/*
 * Every byte is checked. 0; -EBADMSG; -EPROTONOSUPPORT (whole, but of another
 * version). *m is written last.
 */
int rp_meet_get(const void *buf, struct rp_meet *m);

/*
 * Where who has a queue pair of this number waits to be called: the TCP port
 * to try as the nth, n below RP_MEET_TRIES. Others may have some of them.
 */
#define RP_MEET_TRIES	   8
#define RP_MEET_PORT_FIRST 28672
#define RP_MEET_PORTS	   4096
uint16_t rp_meet_port(uint32_t qp_num, unsigned int n);

#endif
