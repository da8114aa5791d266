/* SPDX-License-Identifier: BSD-2-Clause */
/* Byte layout of keys and control messages; nothing else touches byte order. */
#ifndef RP_WIRE_H
#define RP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/caps.h"
#include "core/method.h"
#include "core/status.h"

/*
 * Everything is little-endian. A message is a 32-byte header and a body:
 *
 *    0 u16 magic 0x5052      "RP" on the wire
 *    2 u8  version           1
 *    3 u8  type
 *    4 u32 length            of the whole message
 *    8 u64 session           the receiver's cookie for this session
 *   16 u64 token             names the request; echoed
 *   24 u64 incarnation       of the target; 0: not known yet
 *
 * The first 24 bytes and the body of HELLO mean the same in every version, so
 * that a version mismatch can be answered. docs/protocol.md says all of this in
 * prose.
 */
#define RP_WIRE_MAGIC	   0x5052
#define RP_WIRE_VERSION	   1
#define RP_WIRE_HDR	   32
#define RP_WIRE_MAX_MSG	   4168 /* nothing longer is ever sent or received */
#define RP_WIRE_MAX_RANGES 168	/* fit one request: 40 + 24 * n <= 4168 */
/* ... and so many where they are packed. */
#define RP_WIRE_MAX_PACKED 1024
#define RP_WIRE_INJECT	   64  /* ofi_rxm injects so much: one range, answers */
#define RP_WIRE_MAX_ADDR   128 /* bytes of a fabric address */

/* Ranges in front of an effect, and effects under way at once. */
#define RP_WIRE_MAX_EFFECT_RANGES 167  /* 72 + 24 * n <= 4168 */
#define RP_WIRE_EFFECTS		  64   /* and no more than there are credits */
#define RP_WIRE_MAX_STORE	  4096 /* bytes of an inline store: 72 + n */
/* Bytes of a STORE of n ranges with so many bytes in all. */
#define RP_WIRE_STORES(n, bytes) (48 + 24 * (n) + (bytes))
/* Requests over one connection of our own that may be without an answer. */
#define RP_WIRE_LINKED 16

enum rp_msg_type {
	/* initiator to target */
	RP_MSG_HELLO = 1,
	RP_MSG_REQUEST = 2,
	RP_MSG_QUERY = 3,
	RP_MSG_BYE = 4,
	RP_MSG_CONNECT = 5,
	/* target to initiator */
	RP_MSG_HELLO_ACK = 65,
	RP_MSG_REPLY = 66,
	RP_MSG_PROGRESS = 67,
	RP_MSG_INFO = 68,
	RP_MSG_OFFER = 69,
};
#define RP_MSG_TO_TARGET(type) ((type) < 64)

struct rp_wire_hdr {
	uint8_t version;
	uint8_t type;
	uint32_t length;
	uint64_t session;
	uint64_t token;
	uint64_t incarnation;
};

/* Level of a commit (request byte; FI_RPMEM_VISIBLE and _DURABLE). */
enum rp_level {
	RP_LEVEL_VISIBLE = 1,
	RP_LEVEL_DURABLE = 2,
};

struct rp_wire_range {
	uint64_t key;
	uint64_t addr;
	uint64_t len;
};

/*  32 u64 cookie: what the target puts into hdr.session of its answers
 *  40 u64 key: a key of the target that the initiator holds
 *  48 u32 timeout_ms: the initiator's patience; PROGRESS comes faster
 *  52 u16 features       54 u16 addr_len (>= 1)   56 addr bytes
 *  hdr.session is 0, cookie is not. Unknown features are ignored: a target
 *  answers with those it shares. Read in every version.             */
#define RP_FEATURE_EFFECTS 1u /* REQUESTs may carry effects */
#define RP_FEATURE_OWN	   2u /* REPLYs may carry grants */
#define RP_FEATURE_STORE   4u /* REQUESTs may be inline stores: effects */
#define RP_FEATURE_LINK	   8u /* CONNECT, OFFER, and what goes over that */
/* With it: what the base acknowledges has been placed by the target's CPU. */
#define RP_FEATURE_PLACED 16u
/* With LINK: commits of several ranges, and writes in messages, over that. */
#define RP_FEATURE_GATHER 32u
#define RP_FEATURE_PACKED 64u /* REQUESTs may have packed ranges */
/* With LINK: the queue pairs of such connections FLUSH; OFFERs may say so. */
#define RP_FEATURE_NATIVE 128u
#define RP_FEATURES                                                            \
	(RP_FEATURE_EFFECTS | RP_FEATURE_OWN | RP_FEATURE_STORE |              \
	 RP_FEATURE_LINK | RP_FEATURE_PLACED | RP_FEATURE_GATHER |             \
	 RP_FEATURE_PACKED | RP_FEATURE_NATIVE)
struct rp_wire_hello {
	uint64_t cookie;
	uint64_t key;
	uint32_t timeout_ms;
	uint16_t features;
	uint16_t addr_len;
	uint8_t addr[RP_WIRE_MAX_ADDR];
};

/*  32 u64 cookie: what the initiator puts into hdr.session
 *  40 u32 status  44 u16 credits  46 u16 max_ranges
 *  48 u16 features  50 u16 reserved 0  52 u32 reserved 0
 *  Refused (status not 0): all of these are 0; else cookie, credits and
 *  max_ranges are not.                                              */
struct rp_wire_hello_ack {
	uint64_t cookie;
	uint32_t status;
	uint16_t credits;
	uint16_t max_ranges;
	uint16_t features;
};

/*
 * What a request may have done, and only once: doing it again would undo what
 * was done since. A store takes place when the request arrives, the others once
 * its ranges are durable.
 */
enum rp_effect {
	RP_EFFECT_NONE = 0,
	RP_EFFECT_THEN = 1,   /* an 8-byte store, itself made durable */
	RP_EFFECT_NOTIFY = 2, /* a completion with remote CQ data */
	RP_EFFECT_STORE = 3,  /* the bytes of its ranges are in it */
};

struct rp_wire_then {
	uint64_t key;
	uint64_t addr;
	uint64_t value;
};

/*  32 u16 nranges  34 u8 level  35 u8 required class  36 u32 flags (effect)
 *  40 ranges, 24 bytes each. One range: 64 bytes, an inject of ofi_rxm.
 *  Or, with RP_WIRE_PACKED in the flags, without effect, in ascending order:
 *  40 u64 key of all, and then as wire_pack.h has them.
 *  Behind them, with an effect, whose level is durable:
 *   0 u64 seq: effects of the session, from 1 on
 *   8 THEN: u64 key  16 u64 addr  24 u64 value
 *   8 NOTIFY: u64 data
 *   8 STORE: one range, and its bytes, RP_WIRE_MAX_STORE at most; over a
 *     connection of our own at level visible several, and those of all */
#define RP_WIRE_PACKED 0x100u
struct rp_wire_request {
	uint16_t nranges;
	bool packed; /* may be, where they can and that is shorter; decoded: are
		      */
	uint8_t level;
	uint8_t required;
	uint32_t effect; /* enum rp_effect */
	uint64_t seq;
	struct rp_wire_then then;
	uint64_t data;
	const void *bytes; /* of the ranges; decoded: inside the message */
	struct rp_wire_range ranges[RP_WIRE_MAX_PACKED];
};

/*  32 u32 status  36 u8 level reached  37 u8 class reached  38 u16 index of
 *  the range at fault (nranges: the store)
 *  40 u32 detail (errno, or the region's class)
 *  44 u16 credits now granted  46 u8 method
 *  47 u8 grant: the method by which the initiator may, from now on, bring
 *  bytes of the first range's region to this class by itself, 0: none.
 *  With one, the region: 48 u64 addr of its first byte  56 u64 length
 *  Status not 0: level, class, method and grant are 0.              */
struct rp_wire_reply {
	uint32_t status;
	uint8_t level;
	uint8_t class;
	uint16_t range;
	uint32_t detail;
	uint16_t credits;
	uint8_t method;
	uint8_t grant; /* 0, RP_METHOD_DELIVERY or RP_METHOD_FENCE */
	uint64_t addr, length;
};

/*  32 u64 key  40 u8 required class  41..47 reserved 0              */
struct rp_wire_query {
	uint64_t key;
	uint8_t required;
};

/*  32 u32 status  36 u8 class  37 u8 method  38 u8 memory  39 u8 placement
 *  40 u8 domain  41 u8 refusal  42 u16 reserved 0  44 u32 granularity
 *  48 u64 region length  56 u64 address of its first byte
 *  64 u32 preferred size  68 u32 preferred alignment
 *  72 u16 why_len  74 why bytes, printable ASCII ('?' stands for others:
 *  a peer writes nothing else to an operator's terminal)            */
struct rp_wire_info {
	uint32_t status;
	uint8_t class, method, memory, placement, domain, refusal;
	uint32_t granularity; /* bytes flushed at once: 64, 4096 */
	uint64_t length;
	uint64_t addr;
	uint32_t preferred_size;
	uint32_t preferred_align;
	char why[RP_WHY_LEN]; /* NUL-terminated after decoding */
};

/*  32 u64 id of the connection, above 0: earlier ones of the session end
 *  40 u64 key: of the region that is to be written over it           */
struct rp_wire_connect {
	uint64_t id;
	uint64_t key;
};

/*  32 u32 status  36 u8 method (see rp_method_linked())  37 u8 its class
 *  38 u16 addr_len  40 u64 id  48 u64 key: as asked
 *  56 u64 secret: what the initiator shows when it connects, above 0
 *  64 u64 there: the region's key over that connection
 *  72 u64 at: its first byte, as operations on that connection name it
 *  80 u64 addr: the same, as RMA operations name it  88 u64 length
 *  96 addr: where to connect to
 *  Status not 0: all but status, id and key is 0, and there is no address. */
struct rp_wire_offer {
	uint32_t status;
	uint8_t method, class;
	uint16_t addr_len;
	uint64_t id, key;
	uint64_t secret;
	uint64_t there, at;
	uint64_t addr, length;
	uint8_t to[RP_WIRE_MAX_ADDR];
};

/* PROGRESS and BYE have no body. PROGRESS: the request hdr.token, and with it
 * every other of the session, is still being worked on. */

/*
 * Statuses below RP_ST_WRITE_FAILED travel. A decoder lets through values that
 * it does not know, as failures: new ones need no new version. All other enums
 * must be known.
 */

/*
 * Encoders write one whole message (header included; its version, length and,
 * but for put_empty, type do not come from *hdr) and return its length, or
 * -EMSGSIZE when `size` is too small, -EINVAL for a field out of range. On
 * failure nothing is written.
 */
int rp_wire_put_hello(void *buf, size_t size, const struct rp_wire_hdr *hdr,
		      const struct rp_wire_hello *m);
int rp_wire_put_hello_ack(void *buf, size_t size, const struct rp_wire_hdr *hdr,
			  const struct rp_wire_hello_ack *m);
int rp_wire_put_request(void *buf, size_t size, const struct rp_wire_hdr *hdr,
			const struct rp_wire_request *m);
int rp_wire_put_reply(void *buf, size_t size, const struct rp_wire_hdr *hdr,
		      const struct rp_wire_reply *m);
int rp_wire_put_query(void *buf, size_t size, const struct rp_wire_hdr *hdr,
		      const struct rp_wire_query *m);
int rp_wire_put_info(void *buf, size_t size, const struct rp_wire_hdr *hdr,
		     const struct rp_wire_info *m);
int rp_wire_put_connect(void *buf, size_t size, const struct rp_wire_hdr *hdr,
			const struct rp_wire_connect *m);
int rp_wire_put_offer(void *buf, size_t size, const struct rp_wire_hdr *hdr,
		      const struct rp_wire_offer *m);
int rp_wire_put_empty(void *buf, size_t size, const struct rp_wire_hdr *hdr);

/*
 * Decode the header: magic, length == len, len <= RP_WIRE_MAX_MSG, known type,
 * nothing behind the header of BYE and PROGRESS.
 * Returns 0, -EBADMSG, or -EPROTONOSUPPORT: the version is not ours (*hdr is
 * filled in all the same, incarnation 0, so that it can be answered; only
 * rp_wire_get_hello() may be called on the body).
 */
int rp_wire_get_hdr(const void *buf, size_t len, struct rp_wire_hdr *hdr);

/*
 * Decode the body of a message whose header was good. Every length is checked
 * against hdr->length exactly, reserved fields must be 0, enums in range.
 * Returns 0 or -EBADMSG; *m is written only on success, but for packed ranges.
 * Ranges are checked for form only (the agent checks them against regions).
 */
int rp_wire_get_hello(const void *buf, const struct rp_wire_hdr *hdr,
		      struct rp_wire_hello *m);
int rp_wire_get_hello_ack(const void *buf, const struct rp_wire_hdr *hdr,
			  struct rp_wire_hello_ack *m);
int rp_wire_get_request(const void *buf, const struct rp_wire_hdr *hdr,
			struct rp_wire_request *m);
int rp_wire_get_reply(const void *buf, const struct rp_wire_hdr *hdr,
		      struct rp_wire_reply *m);
int rp_wire_get_query(const void *buf, const struct rp_wire_hdr *hdr,
		      struct rp_wire_query *m);
int rp_wire_get_info(const void *buf, const struct rp_wire_hdr *hdr,
		     struct rp_wire_info *m);
int rp_wire_get_connect(const void *buf, const struct rp_wire_hdr *hdr,
			struct rp_wire_connect *m);
int rp_wire_get_offer(const void *buf, const struct rp_wire_hdr *hdr,
		      struct rp_wire_offer *m);

/*
 * The remote key that a program sees, when the provider makes keys:
 *
 *   63..40  random, per registration, never reused
 *   39..32  facts: bit 7 marks the shape, bit 6 persistent region,
 *           bits 5..4 class, bits 3..0 method (enum rp_method); for a region
 *           that is not persistent bits 5..0 are 0
 *   31..0   the base provider's key
 */
struct rp_key {
	uint32_t base;
	uint32_t random; /* 24 bits */
	bool persistent;
	enum rp_class class;
	enum rp_method method;
};
uint64_t rp_key_make(const struct rp_key *k);
/* 0, or -EINVAL when the value does not have the shape. */
int rp_key_parse(uint64_t key, struct rp_key *k);

#define RP_KEY_MARK	  (1ull << 39)
#define RP_KEY_PERSISTENT (1ull << 38)
/* Hot path: does this key name a persistent region of a peer that runs us? */
static inline bool rp_key_is_persistent(uint64_t key)
{
	return (key & (RP_KEY_MARK | RP_KEY_PERSISTENT)) ==
	       (RP_KEY_MARK | RP_KEY_PERSISTENT);
}
/* Hot path: the key to give to the base provider. */
static inline uint64_t rp_key_base(uint64_t key)
{
	return (key & RP_KEY_MARK) ? (uint32_t)key : key;
}

#endif
