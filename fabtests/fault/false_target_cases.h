/* SPDX-License-Identifier: BSD-2-Clause */
/* The lies of a false target, and how a commit ends then. */
#ifndef RP_TEST_FALSE_LIES_H
#define RP_TEST_FALSE_LIES_H

#include "core/wire.h"
#include "fault/frame_peer.h"

#define FALSE_GRANTED 4096 /* bytes of the region in every grant */
#define FALSE_ADDR    65536
#define FALSE_ANY     UINT32_MAX

enum how {
	ACCEPT,
	DEAF,	    /* no reply to a connection */
	REJECT,	    /* with HELLO_ACK */
	REJECT_RAW, /* with other bytes */
};

enum what {
	ANSWER,	      /* one REPLY to each REQUEST */
	SILENT,	      /* no REPLY to a REQUEST */
	OTHER_TOKENS, /* REPLYs with unknown tokens, without end */
	TWICE,	      /* the same REPLY many times */
	INFOS,	      /* INFO in place of a REPLY */
	REQUEST_BACK, /* a REQUEST in place of a REPLY */
	CLOSES,	      /* ends the connection in place of a REPLY */
	HALF,	      /* a REPLY that is cut, then silence */
	TOO_LONG,
	GARBAGE,
	RDMA, /* RDMA to the initiator, then a REPLY */
};

/* One lie; a zero field is truthful. */
struct lie {
	const char *name;
	uint32_t want; /* how a commit ends */
	enum how how;
	uint32_t ack_status;
	size_t ack_len;	   /* bytes of HELLO_ACK to send; 0: all */
	uint16_t at, size; /* a field of HELLO_ACK ... */
	uint64_t value;	   /* ... and its false value */
	enum what what;
	uint16_t reply_at;   /* a byte of REPLY ... */
	uint8_t reply_value; /* ... and its false value */
	uint32_t status;     /* of REPLY */
	size_t result;	     /* bytes behind REPLY */
	bool flood;	     /* PROGRESS without end, at full speed */
};
/* Fields of HELLO_ACK; docs/protocol.md. */
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
#define ACK_WRITABLE	74
/* Fields of REPLY. */
#define REPLY_STATUS 16
#define REPLY_LEVEL  28
#define REPLY_CLASS  29
#define REPLY_METHOD 30
#define REPLY_ZERO   31

/* The last entry has no name. */
extern const struct lie false_target_cases[];

#endif
