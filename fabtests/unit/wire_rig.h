/* SPDX-License-Identifier: BSD-2-Clause */
/* One pair of functions, wire_put() and wire_get(), for all messages. */
#ifndef RP_TEST_WIRE_RIG_H
#define RP_TEST_WIRE_RIG_H

#include <stddef.h>
#include <stdint.h>

#include "core/wire.h"

#define WIRE_TYPES 10
extern const uint8_t wire_types[WIRE_TYPES];
/* Whether messages of this type are a header only. */
bool wire_is_signal(uint8_t type);

/* A message of any type, so that one loop can test all types. */
struct wire_msg {
	uint8_t type;
	uint64_t token;
	union {
		struct rp_wire_hello hello;
		struct rp_wire_hello_ack hello_ack;
		struct rp_wire_request request;
		struct rp_wire_reply reply;
		struct rp_wire_query query;
		struct rp_wire_info info;
	};
	struct rp_wire_range ranges[RP_WIRE_MAX_PACKED];
};

int wire_put(void *buf, size_t size, const struct wire_msg *m);
/* Decode header and body; request.ranges becomes m->ranges. */
int wire_get(const void *buf, size_t len, struct wire_msg *m);
/* Decode the body as one of this type, whatever the header says. */
int wire_get_as(uint8_t type, const void *buf, const struct rp_wire_hdr *hdr,
		struct wire_msg *m);
/* Fill in the field values of the golden message. */
void wire_example(uint8_t type, struct wire_msg *m);
/* Fill in a request with this effect and one range, two for STORE. */
void wire_example_effect(enum rp_effect effect, struct wire_msg *m);

#endif
