/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lies of a false target (false_target.c), and the status with which a
 * commit then ends.
 */
#ifndef RP_TEST_FALSE_LIES_H
#define RP_TEST_FALSE_LIES_H

#include "core/wire.h"
#include "fault/frame_peer.h"

#define FALSE_GRANTED 4096 /* region's length in every grant */
#define FALSE_ADDR    65536
#define FALSE_ANY     UINT32_MAX

enum how {
	ACCEPT,
	DEAF,	    /* no reply to a connection request */
	REJECT,	    /* reject with HELLO_ACK */
	REJECT_RAW, /* reject with other bytes */
};

enum what {
	ANSWER,	      /* one REPLY to each REQUEST */
	SILENT,	      /* sends no REPLY */
	OTHER_TOKENS, /* endless REPLYs with unknown tokens */
	TWICE,	      /* sends the same REPLY many times */
	INFOS,	      /* INFO instead of a REPLY */
	REQUEST_BACK, /* a REQUEST instead of a REPLY */
	CLOSES,	      /* disconnect instead of a REPLY */
	HALF,	      /* part of a REPLY, then silence */
	TOO_LONG,
	GARBAGE,
	RDMA, /* RDMA to the initiator, then a REPLY */
};

/* One lie. A field that is 0 leaves the message true. */
struct lie {
	const char *name;
	uint32_t want; /* status with which a commit ends */
	enum how how;
	uint32_t ack_status;
	size_t ack_len;	   /* bytes of HELLO_ACK to send; 0: all */
	uint16_t at, size; /* offset and size of a field of HELLO_ACK */
	uint64_t value;	   /* the false value of that field */
	enum what what;
	uint16_t reply_at;   /* offset of a byte of REPLY */
	uint8_t reply_value; /* the false value of that byte */
	uint32_t status;     /* status in the REPLY */
	size_t result;	     /* result bytes after REPLY */
	bool flood;	     /* endless PROGRESS, at full speed */
};
/* Offsets of fields in HELLO_ACK, from docs/protocol.md. */
#define ACK_STATUS	16
#define ACK_INCARNATION 24
#define ACK_CREDITS	32
#define ACK_FEATURES	34
#define ACK_RESERVED	36
#define ACK_REMOTE	48
#define ACK_ADDR	56
#define ACK_LENGTH	64
#define ACK_CLASS	72
#define ACK_METHOD	73
#define ACK_RIGHTS	74
/* Offsets of fields in REPLY. */
#define REPLY_STATUS 16
#define REPLY_LEVEL  28
#define REPLY_CLASS  29
#define REPLY_METHOD 30
#define REPLY_ZERO   31

/* The last entry has no name. */
extern const struct lie false_target_cases[];

#endif
