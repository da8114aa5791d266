/* SPDX-License-Identifier: BSD-2-Clause */
/* How a false target may lie, and how a commit ends then. */
#ifndef RP_TEST_FALSE_LIES_H
#define RP_TEST_FALSE_LIES_H

#include "core/wire.h"
#include "fault/private_peer.h"

#define FALSE_GRANTED 4096 /* bytes of the region that every target grants */
#define FALSE_ADDR    65536
#define FALSE_ANY     UINT32_MAX

enum how {
	ACCEPT,
	DEAF,	    /* no answer to a connection */
	REJECT,	    /* with HELLO_ACK */
	REJECT_RAW, /* with other bytes */
};

enum what {
	ANSWER,	      /* one REPLY to each REQUEST */
	SILENT,	      /* nothing to a REQUEST */
	OTHER_TOKENS, /* REPLYs to what nobody asked, for ever */
	TWICE,	      /* the same REPLY again, many times */
	INFOS,	      /* INFO to a REQUEST */
	OWN_REQUEST,  /* a REQUEST to a REQUEST */
	CLOSES,	      /* the connection, instead of a REPLY */
	HALF,	      /* a REPLY that is cut, then nothing */
	TOO_LONG,
	GARBAGE,
	RDMA, /* into the initiator, then a REPLY */
};

/* A way to lie; zero is the truth. */
struct lie {
	const char *name;
	uint32_t want; /* how a commit ends */
	enum how how;
	uint32_t ack_status;
	size_t ack_len;	   /* shown of HELLO_ACK; 0: all */
	uint16_t at, size; /* a field of HELLO_ACK ... */
	uint64_t value;	   /* ... instead */
	enum what what;
	uint16_t reply_at;   /* a byte of REPLY ... */
	uint8_t reply_value; /* ... instead */
	uint32_t status;     /* of REPLY */
	size_t result;	     /* bytes behind it */
	bool flood;	     /* PROGRESS without end, as fast as it goes */
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

/* The last one has no name. */
extern const struct lie false_lies[];

#endif
