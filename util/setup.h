/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages of the setup protocol, by which a client gets the key to a pool. */
#ifndef RP_UTIL_SETUP_H
#define RP_UTIL_SETUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/secret.h"

/*
 * Each TCP connection carries one request: the daemon sends a CHALLENGE with
 * its nonce, the client a request, the daemon the reply or an ERROR. Numbers
 * are little-endian. docs/protocol.md describes the layout.
 *
 *    0 u32 magic    "RPMS"
 *    4 u16 version  3
 *    6 u16 type
 *    8 u32 length   of the whole message
 *   12 u32 0
 *
 * These 16 bytes mean the same in every version. Every message but CHALLENGE
 * ends with a 32-byte MAC, which is zero without a secret.
 */
#define RP_SETUP_PORT	     18620
#define RP_SETUP_VERSION     3
#define RP_SETUP_HDR	     16
#define RP_SETUP_NONCE	     32
#define RP_SETUP_MAC	     32
#define RP_SETUP_NAME	     255 /* most bytes of a pool's name */
#define RP_SETUP_TEXT	     400 /* most bytes of a text */
#define RP_SETUP_FI_NAME     128 /* most bytes of a fabric address */
#define RP_SETUP_POOLS	     64	 /* most pools of one daemon */
#define RP_SETUP_SECRETS     64	 /* most secrets of one daemon */
#define RP_SETUP_PARTS	     32	 /* most parts of one pool */
#define RP_SETUP_MAX_REQUEST 512
#define RP_SETUP_MAX_REPLY   65536

enum rp_setup_type {
	RP_SETUP_CHALLENGE = 1,
	RP_SETUP_GET_EXPORT = 2,
	RP_SETUP_GET_LIST = 3,
	RP_SETUP_SET_LENGTH = 4,
	RP_SETUP_OPEN = 5, /* the connection stays, and keeps the pool open */
	RP_SETUP_DIVIDE = 6,
	RP_SETUP_EXPORT = 66,
	RP_SETUP_LIST = 67,
	RP_SETUP_ERROR = 127,
};

/* Codes of an ERROR, part of the protocol: never renumber. */
enum rp_setup_code {
	RP_SETUP_E_REQUEST = 1, /* the request is not understood */
	RP_SETUP_E_VERSION = 2, /* another version of the protocol */
	RP_SETUP_E_SECRET = 3,	/* the secret is wrong or missing */
	RP_SETUP_E_POOL = 4,	/* no pool has this name */
	RP_SETUP_E_LENGTH = 5,	/* the length cannot be stored */
	RP_SETUP_E_BUSY = 6,	/* the pool is open at another client */
	RP_SETUP_E_TAKEN = 7,	/* meanwhile another client opened the pool */
	RP_SETUP_E_AWAITED = 8, /* the last owner may reconnect: try again */
	RP_SETUP_E_RIGHT = 9,	/* the secret lacks the right */
	RP_SETUP_E_PARTS = 10,	/* the pool has another number of parts */
	RP_SETUP_E_SCARCE = 11, /* out of descriptors or memory */
};

/* Body: 16 u32 flags: bit 0 a secret is needed  20 u32 0  24 nonce */
struct rp_setup_challenge {
	bool secret;
	uint8_t nonce[RP_SETUP_NONCE];
};

/* Bit of an owner: it was the first to share a pool after an exclusive owner.
 */
#define RP_SETUP_SHARED (1ull << 63)

/*  16 nonce  48 string name (GET_LIST: empty)  SET_LENGTH: u64 length
 *  OPEN: u64 owner, u32 flags: bit 0 exclusive, bit 1 again, bit 2 take,
 *  bit 3 observe, bit 4 compare, u16 parts, u16 part, u64 expected (if bit 4)
 *  DIVIDE: u64 owner, u32 parts  MAC
 *  A string is a u16 length and its bytes. */
struct rp_setup_request {
	enum rp_setup_type type; /* GET_EXPORT to DIVIDE */
	uint8_t nonce[RP_SETUP_NONCE];
	char name[RP_SETUP_NAME + 1];
	uint64_t length; /* SET_LENGTH: of the file in the pool; 0: unknown */
	uint64_t owner;	 /* random number of the client, 63 bits, not 0;
			  * DIVIDE: as in the OPEN of the whole pool */
	/*
	 * OPEN: the number of parts that the pool must have; 1: undivided; 0:
	 * any number. DIVIDE: the new number.
	 */
	unsigned int parts;
	unsigned int part; /* OPEN: part, from 1 on; 0: the whole pool */
	bool exclusive;	   /* OPEN: fail if another client has the pool */
	bool again;	   /* OPEN: reconnect; fail if the pool has got another
			    * owner meanwhile */
	bool take;	   /* OPEN: displace an exclusive client */
	bool observe;	   /* OPEN: only read, even if another client writes */
	/* OPEN, exclusive: fail unless `expected` is the owner. */
	bool compare;
	uint64_t expected;
};

/*  16 u64 key  24 u64 addr  32 u64 len  40 u64 incarnation
 *  48 u64 generation  56 uuid  72 u16 control protocol version
 *  74 u8 class  75 u8 method  76 u32 flags: bit 0 was clean, bit 1 read-only
 *  80 strings: name, base provider, endpoint name, why
 *  u64 length  u64 owner  MAC */
struct rp_setup_export {
	uint64_t key;
	uint64_t addr;	      /* RMA address of the pool's first byte */
	uint64_t len;	      /* bytes of the pool */
	uint64_t incarnation; /* random number of this daemon process */
	uint64_t generation;  /* generation of the pool */
	uint8_t uuid[16];     /* uuid of the pool */
	uint16_t control;     /* version of the control protocol */
	uint8_t class;	      /* enum rp_class that commits reach */
	uint8_t method;	      /* enum rp_method */
	bool was_clean;	      /* the previous daemon marked the pool clean */
	bool read_only;	      /* the key does not allow writes */
	char name[RP_SETUP_NAME + 1];
	char base[64];
	_Alignas(8) uint8_t fi_name[RP_SETUP_FI_NAME]; /* a sockaddr */
	uint16_t fi_name_len;
	char why[RP_SETUP_TEXT + 1];
	uint64_t length; /* length of the stored file; 0: unknown */
	/*
	 * The last client that opened the pool, or a part, exclusively; with
	 * the bit RP_SETUP_SHARED, the first client that shared it after that;
	 * 0: none. The reply to OPEN of a part has the part's owner.
	 */
	uint64_t owner;
};

/*  16 u16 count  18 entries: u64 len, u8 class, u8 method, string name  MAC */
struct rp_setup_list {
	unsigned int n;
	struct {
		uint64_t len;
		uint8_t class;
		uint8_t method;
		char name[RP_SETUP_NAME + 1];
	} v[RP_SETUP_POOLS];
};

/* Body: 16 u32 code  20 string text  MAC */
struct rp_setup_error {
	uint32_t code;
	char text[RP_SETUP_TEXT + 1];
};

/*
 * Encoders: write one complete message with a zero MAC. They return its length,
 * -EMSGSIZE if size is too small, or -EINVAL for a field out of bounds.
 */
int rp_setup_put_challenge(void *buf, size_t size,
			   const struct rp_setup_challenge *m);
int rp_setup_put_request(void *buf, size_t size,
			 const struct rp_setup_request *m);
int rp_setup_put_export(void *buf, size_t size,
			const struct rp_setup_export *m);
int rp_setup_put_list(void *buf, size_t size, const struct rp_setup_list *m);
int rp_setup_put_error(void *buf, size_t size, const struct rp_setup_error *m);

/*
 * Read a header. Returns 0 with length and type; -EAGAIN: the header is not
 * complete; -EBADMSG: not this protocol, or longer than max; -EPROTONOSUPPORT:
 * another version, with *length but without *type.
 */
int rp_setup_frame(const void *buf, size_t have, size_t max, size_t *length,
		   enum rp_setup_type *type);

/*
 * Decoders of one complete message of len bytes. They check all lengths, names
 * (rp_setup_name_ok()) and that reserved bytes are 0, and replace unprintable
 * characters of texts by '?'. They return 0 or -EBADMSG; *m is written only on
 * success.
 */
int rp_setup_get_challenge(const void *buf, size_t len,
			   struct rp_setup_challenge *m);
int rp_setup_get_request(const void *buf, size_t len,
			 struct rp_setup_request *m);
int rp_setup_get_export(const void *buf, size_t len, struct rp_setup_export *m);
int rp_setup_get_list(const void *buf, size_t len, struct rp_setup_list *m);
int rp_setup_get_error(const void *buf, size_t len, struct rp_setup_error *m);

/* Whether name is a pool name: 1 to 255 printable ASCII characters, no '/'. */
bool rp_setup_name_ok(const char *name);

/*
 * MAC of a message: HMAC-SHA256, keyed with the secret, over a label of the
 * direction, the nonce of the daemon, the nonce of the client, and the message
 * before its MAC. Both nonces are fresh, so no message can be replayed.
 */
enum rp_setup_from {
	RP_SETUP_FROM_CLIENT,
	RP_SETUP_FROM_DAEMON,
};
struct rp_setup_auth {
	const struct rp_secret *secret;
	uint8_t daemon_nonce[RP_SETUP_NONCE];
	uint8_t client_nonce[RP_SETUP_NONCE];
};
void rp_setup_seal(void *buf, size_t len, enum rp_setup_from from,
		   const struct rp_setup_auth *auth);
/* Whether the MAC is valid. Compares in constant time. */
bool rp_setup_check_seal(const void *buf, size_t len, enum rp_setup_from from,
			 const struct rp_setup_auth *auth);

#endif
