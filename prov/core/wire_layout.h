/* SPDX-License-Identifier: BSD-2-Clause */
/* The messages of a private connection, byte by byte; docs/protocol.md. */
#ifndef RP_WIRE_LAYOUT_H
#define RP_WIRE_LAYOUT_H

#include <assert.h>
#include <endian.h>
#include <stdint.h>

#include "core/wire.h"

/*
 * Every number is little-endian, nothing is padded, reserved bytes are 0. Each
 * body follows the header; a test compares the offsets in docs/protocol.md,
 * which count from the first byte of the message. wire.c and wire_request.c
 * copy whole structs from and to messages, so that a message may lie anywhere.
 */
#define RP_PACKED __attribute__((packed))

struct rp_le_hdr {
	uint16_t magic;
	uint8_t version;
	uint8_t type;
	uint32_t length;
	uint64_t token;
} RP_PACKED;

struct rp_le_hello {
	struct rp_le_hdr hdr;
	uint64_t key;
	uint64_t initiator;
	uint32_t timeout_ms;
	uint16_t features;
	uint16_t port;
} RP_PACKED;

/* Part of HELLO_ACK and of INFO; not a message. */
struct rp_le_grant {
	uint64_t rkey;
	uint64_t remote_addr;
	uint64_t addr;
	uint64_t length;
	uint8_t class;
	uint8_t method;
	uint8_t rights;
	uint8_t reserved[5];
} RP_PACKED;

struct rp_le_hello_ack {
	struct rp_le_hdr hdr;
	uint32_t status;
	uint32_t detail;
	uint64_t incarnation;
	uint16_t credits;
	uint16_t features;
	uint32_t reserved;
	struct rp_le_grant grant;
} RP_PACKED;

/* The ranges follow, then the data of the effect. */
struct rp_le_request {
	struct rp_le_hdr hdr;
	uint16_t nranges;
	uint8_t level;
	uint8_t required;
	uint8_t effect;
	uint8_t flags;
	uint16_t reserved;
} RP_PACKED;
#define RP_LE_REQUEST_PACKED 1 /* the ranges are packed: wire_pack.h */

struct rp_le_range {
	uint64_t key;
	uint64_t addr;
	uint64_t len;
} RP_PACKED;

struct rp_le_then {
	uint64_t key;
	uint64_t addr;
	uint64_t value;
} RP_PACKED;

struct rp_le_notify {
	uint64_t data;
	uint16_t endpoint;
	uint8_t reserved[6];
} RP_PACKED;

/* The operand follows, then the compare values. */
struct rp_le_atomic {
	uint8_t op;
	uint8_t datatype;
	uint8_t fetch;
	uint8_t reserved[5];
} RP_PACKED;

/* The fetched values of an atomic follow. */
struct rp_le_reply {
	struct rp_le_hdr hdr;
	uint32_t status;
	uint32_t detail;
	uint16_t range;
	uint16_t credits;
	uint8_t level;
	uint8_t class;
	uint8_t method;
	uint8_t reserved;
} RP_PACKED;

struct rp_le_query {
	struct rp_le_hdr hdr;
	uint64_t key;
	uint8_t required;
	uint8_t reserved[7];
} RP_PACKED;

/* The sentence for people follows. */
struct rp_le_info {
	struct rp_le_hdr hdr;
	uint32_t status;
	uint8_t class;
	uint8_t method;
	uint8_t memory;
	uint8_t placement;
	uint8_t domain;
	uint8_t refusal;
	uint16_t why_len;
	uint32_t granularity;
	uint32_t preferred_size;
	uint32_t preferred_align;
	struct rp_le_grant grant;
} RP_PACKED;

#define RP_LE_SIZE(name, bytes)                                                \
	static_assert(sizeof(struct rp_le_##name) == (bytes),                  \
		      "the size of " #name " travels")
RP_LE_SIZE(hdr, 16);
RP_LE_SIZE(hello, 40);
RP_LE_SIZE(grant, 40);
RP_LE_SIZE(hello_ack, 80);
RP_LE_SIZE(request, 24);
RP_LE_SIZE(range, 24);
RP_LE_SIZE(then, 24);
RP_LE_SIZE(notify, 16);
RP_LE_SIZE(atomic, 8);
RP_LE_SIZE(reply, 32);
RP_LE_SIZE(query, 32);
RP_LE_SIZE(info, 80);

static_assert(sizeof(struct rp_le_hello) <= RP_WIRE_CM_DATA,
	      "HELLO is private data of an RDMA CM REQ");
static_assert(sizeof(struct rp_le_hello_ack) <= RP_WIRE_CM_ACK,
	      "HELLO_ACK is private data of an RDMA CM REJ");
static_assert(RP_WIRE_STORE_LEN(1, 64) <= 128,
	      "tcp injects a durable store of 64 bytes");
static_assert(sizeof(struct rp_le_request) == RP_WIRE_STORE_LEN(0, 0) &&
		      sizeof(struct rp_le_range) ==
			      RP_WIRE_STORE_LEN(1, 0) - RP_WIRE_STORE_LEN(0, 0),
	      "RP_WIRE_STORE_LEN() counts these");
static_assert(RP_WIRE_STORE_LEN(1, RP_WIRE_MAX_STORE) <= RP_WIRE_MAX_MSG,
	      "the largest store fits into a message");
static_assert(sizeof(struct rp_le_request) + sizeof(struct rp_le_then) +
			      RP_WIRE_MAX_RANGES * sizeof(struct rp_le_range) <=
		      RP_WIRE_MAX_MSG,
	      "the most ranges and an effect fit into a message");
static_assert(sizeof(struct rp_le_reply) + RP_WIRE_MAX_STORE ==
		      RP_WIRE_MAX_REPLY,
	      "the largest reply brings an atomic's result");
static_assert(sizeof(struct rp_le_info) + RP_WHY_LEN <= RP_WIRE_MAX_REPLY,
	      "INFO is no longer than a REPLY may be");
static_assert(RP_METHOD_MAX <= 8 && RP_CLASS_POWER <= 3,
	      "class and method fit into a key");

static inline struct rp_le_hdr rp_le_hdr_make(uint8_t type, size_t len,
					      uint64_t token)
{
	return (struct rp_le_hdr){
		.magic = htole16(RP_WIRE_MAGIC),
		.version = RP_WIRE_VERSION,
		.type = type,
		.length = htole32((uint32_t)len),
		.token = htole64(token),
	};
}

#endif
