/* SPDX-License-Identifier: BSD-2-Clause */
/* Keys and messages: structs in host byte order, to be encoded and decoded. */
#ifndef RP_WIRE_H
#define RP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/caps.h"
#include "core/method.h"
#include "core/status.h"

/*
 * All messages of a private connection (and of the shim's side connection) are
 * little-endian: the packed structs of wire_layout.h, which docs/protocol.md
 * describes and only wire.c and wire_request.c read and write. HELLO, HELLO_ACK
 * and its refusal are private data of connection setup, all others are
 * messages.
 */
#define RP_WIRE_MAGIC	   0x5052
#define RP_WIRE_VERSION	   2
#define RP_WIRE_CM_DATA	   56	      /* what an RDMA CM REQ carries */
#define RP_WIRE_CM_ACK	   148	      /* what an RDMA CM REJ carries */
#define RP_WIRE_MAX_MSG	   4168	      /* longest message */
#define RP_WIRE_MAX_STORE  4096	      /* bytes of an inline write */
#define RP_WIRE_MAX_ZERO   (1u << 20) /* bytes of a ZERO */
#define RP_WIRE_MAX_RANGES 168	      /* unpacked, in one REQUEST */
#define RP_WIRE_MAX_PACKED 1024	      /* packed, in one REQUEST */
#define RP_WIRE_MAX_REPLY  (32 + RP_WIRE_MAX_STORE) /* an atomic's result */
/* Length of a STORE message: n unpacked ranges of `bytes` bytes in all. */
#define RP_WIRE_STORE_LEN(n, bytes) (24 + 24 * (n) + (bytes))

enum rp_msg_type {
	/* From initiator to target. */
	RP_MSG_HELLO = 1,
	RP_MSG_REQUEST = 2,
	RP_MSG_QUERY = 3,
	RP_MSG_DOORBELL = 4, /* side connections: poll the ring, once */
	/* From target to initiator. */
	RP_MSG_HELLO_ACK = 65,
	RP_MSG_REPLY = 66,
	RP_MSG_PROGRESS = 67, /* the session's requests are being executed */
	RP_MSG_INFO = 68,
	RP_MSG_POLLING = 69, /* side connections: the agent polls its ring */
	RP_MSG_IDLE = 70,    /* side connections: the agent stopped polling */
};
/* Types 32 to 39 are in rc/rc_tcp_frame.h, 40 to 49 in wire_desc.h. */

/* Decoded header: 16 bytes on the wire. */
struct rp_wire_hdr {
	uint8_t type;
	uint32_t length; /* bytes of header and body */
	uint64_t token;	 /* the requester's choice; the reply repeats it */
};

enum rp_level {
	RP_LEVEL_VISIBLE = 1,
	RP_LEVEL_DURABLE = 2,
};

struct rp_wire_range {
	uint64_t key;
	uint64_t addr;
	uint64_t len;
};

/* The first message of an initiator: at most RP_WIRE_CM_DATA bytes. */
struct rp_wire_hello {
	uint64_t key; /* a live region's, else the target refuses */
	/*
	 * Random number of the initiator's session object. The target closes an
	 * older connection with the same number before it accepts this one.
	 */
	uint64_t initiator;
	uint32_t timeout_ms; /* PROGRESS is sent several times within it */
	uint16_t features;   /* RP_FEATURE_* */
	uint16_t port; /* of the initiator's endpoint, gets NOTIFY; 0: none */
};
#define RP_FEATURE_NATIVE 1u /* the device of this end has FLUSH */
#define RP_FEATURES	  RP_FEATURE_NATIVE

/*
 * The grant of a key on this connection: in HELLO_ACK and INFO. Either all
 * fields are 0, or length is above 0 and remote_addr + length and addr + length
 * do not wrap.
 */
struct rp_wire_grant {
	uint64_t rkey;	      /* valid on this connection only */
	uint64_t remote_addr; /* address of the region's first byte in RDMA */
	uint64_t addr;	      /* address of that byte for programs */
	uint64_t length;
	uint8_t class;	/* strongest class that a commit reaches */
	uint8_t method; /* method of that commit on this connection */
	bool writable;
	bool unreadable; /* a read of the region, or read fence, is refused */
};

/* A refusal (status not OK) has a detail; other fields are 0. */
struct rp_wire_hello_ack {
	uint32_t status;
	uint32_t detail;
	uint64_t incarnation; /* never 0 when status is OK */
	uint16_t credits;     /* requests outstanding at once, never 0 */
	uint16_t features;
	struct rp_wire_grant grant; /* grant of the HELLO's key */
};

/* The effect of a request besides its commit; executed exactly once. */
enum rp_effect {
	RP_EFFECT_NONE = 0,
	RP_EFFECT_THEN = 1,   /* an 8-byte store once the ranges are durable */
	RP_EFFECT_NOTIFY = 2, /* a completion with remote CQ data */
	RP_EFFECT_STORE = 3,  /* store the message's bytes before the flush */
	RP_EFFECT_ATOMIC = 4, /* an atomic on the ranges before the flush */
	RP_EFFECT_ZERO = 5,   /* store zeros to the ranges before the flush */
};
/* Is the effect executed on the ranges, when its request is received? */
static inline bool rp_effect_precedes_flush(unsigned int effect)
{
	return effect == RP_EFFECT_STORE || effect == RP_EFFECT_ATOMIC ||
	       effect == RP_EFFECT_ZERO;
}

struct rp_wire_then {
	uint64_t key;
	uint64_t addr;
	uint64_t value;
};

/* An atomic operation, which core/atomic.h executes. */
struct rp_wire_atomic {
	uint8_t op;	  /* enum rp_atomic_op */
	uint8_t datatype; /* enum rp_atomic_type */
	bool fetch;	  /* the reply brings the old values */
	/* Arrays, each as long as all ranges; decoded: inside the message. */
	const void *operand; /* NULL: the operation has none */
	const void *compare; /* NULL: the operation has none */
};

/*
 * THEN needs level DURABLE. STORE, ATOMIC and ZERO: no range is empty, the
 * bytes of all are RP_WIRE_MAX_STORE at most (ZERO: RP_WIRE_MAX_ZERO), and the
 * message RP_WIRE_MAX_MSG.
 */
struct rp_wire_request {
	uint16_t nranges; /* 0 only with level VISIBLE: proves placement */
	bool packed;	  /* encode: may be packed; decoded: was packed */
	uint8_t level;	  /* VISIBLE: placed; DURABLE: and flushed */
	uint8_t required; /* enum rp_class */
	uint8_t effect;	  /* enum rp_effect */
	struct rp_wire_then then;
	/*
	 * NOTIFY. endpoint: the port of the endpoint whose queue gets the
	 * completion; 0: any.
	 */
	uint64_t data;
	uint16_t endpoint;
	/*
	 * STORE: the bytes of all ranges, back to back. Encode: NULL leaves
	 * them out, to be sent behind the message as a second iovec; the
	 * header's length counts them, the returned one does not.
	 */
	const void *bytes;
	struct rp_wire_atomic atomic;
	const struct rp_wire_range *ranges; /* when decoded: `decoded` */
	/* Set before decoding: has room for RP_WIRE_MAX_PACKED. */
	struct rp_wire_range *decoded;
};

struct rp_wire_reply {
	uint32_t status;
	uint32_t detail;
	uint16_t range;	  /* range at fault; nranges: the ordered store */
	uint16_t credits; /* new limit; 0: unchanged */
	uint8_t level, class, method; /* 0 unless status is OK */
	/* Old values of a fetching atomic. Decoded: points into the message. */
	const void *result;
	uint32_t result_len;
};

struct rp_wire_query {
	uint64_t key;
	uint8_t required;
};

struct rp_wire_info {
	uint32_t status;
	uint8_t class, method, memory, placement, domain, refusal;
	uint32_t granularity;
	uint32_t preferred_size, preferred_align;
	struct rp_wire_grant grant; /* valid with status OK; else maybe all 0 */
	char why[RP_WHY_LEN];	    /* '?' replaces what is not printable */
};

/*
 * Encoders write one whole message and return its length, or -EMSGSIZE (size
 * too small) or -EINVAL (a field out of range); on failure nothing is written.
 * Decoders check every byte: lengths exactly, reserved fields 0, enums in
 * range, except that unknown statuses pass as failures and unknown features of
 * a HELLO are let through. 0 or -EBADMSG; get_hdr, get_hello and get_hello_ack
 * also -EPROTONOSUPPORT: another version (get_hdr fills in hdr->type and
 * ->token). Zeros behind HELLO and HELLO_ACK are no part of them: an RDMA CM
 * pads. Ranges are checked for form only; the agent checks them against
 * regions.
 */
int rp_wire_put_hello(void *buf, size_t size, const struct rp_wire_hello *m);
int rp_wire_put_hello_ack(void *buf, size_t size,
			  const struct rp_wire_hello_ack *m);
int rp_wire_put_request(void *buf, size_t size, uint64_t token,
			const struct rp_wire_request *m);
int rp_wire_put_reply(void *buf, size_t size, uint64_t token,
		      const struct rp_wire_reply *m);
int rp_wire_put_query(void *buf, size_t size, uint64_t token,
		      const struct rp_wire_query *m);
int rp_wire_put_info(void *buf, size_t size, uint64_t token,
		     const struct rp_wire_info *m);
/* PROGRESS, DOORBELL, POLLING or IDLE, which have no body. */
int rp_wire_put_signal(void *buf, size_t size, enum rp_msg_type type);

int rp_wire_get_hdr(const void *buf, size_t len, struct rp_wire_hdr *hdr);
int rp_wire_get_hello(const void *buf, size_t len, struct rp_wire_hello *m);
int rp_wire_get_hello_ack(const void *buf, size_t len,
			  struct rp_wire_hello_ack *m);
int rp_wire_get_request(const void *buf, const struct rp_wire_hdr *hdr,
			struct rp_wire_request *m);
int rp_wire_get_reply(const void *buf, const struct rp_wire_hdr *hdr,
		      struct rp_wire_reply *m);
int rp_wire_get_query(const void *buf, const struct rp_wire_hdr *hdr,
		      struct rp_wire_query *m);
int rp_wire_get_info(const void *buf, const struct rp_wire_hdr *hdr,
		     struct rp_wire_info *m);

/*
 * The key of a persistent region, which is a capability:
 *
 *   63..61  mark 0b101
 *   60..59  class       58..56  method (enum rp_method)
 *   55..40  port of the target domain's listener (TCP, or RDMA CM)
 *   39..0   random, per registration
 *
 * The method is never RP_METHOD_REFUSED. Keys of other regions are the base's;
 * prov/rpmem makes sure that none of them has the mark.
 */
struct rp_key {
	enum rp_class class;
	enum rp_method method;
	uint16_t port;
	uint64_t random; /* 40 bits */
};
uint64_t rp_key_make(const struct rp_key *k);
/* 0, or -EINVAL: not the key of a persistent region. */
int rp_key_parse(uint64_t key, struct rp_key *k);
#define RP_KEY_RANDOM_BITS 40
#define RP_KEY_MARK_SHIFT  61
#define RP_KEY_MARK	   (5ull << RP_KEY_MARK_SHIFT)
#define RP_KEY_MARK_MASK   (7ull << RP_KEY_MARK_SHIFT)
static inline bool rp_key_is_persistent(uint64_t key)
{
	return key >> RP_KEY_MARK_SHIFT == RP_KEY_MARK >> RP_KEY_MARK_SHIFT;
}
static inline uint16_t rp_key_port(uint64_t key)
{
	return (uint16_t)(key >> 40);
}

#endif
