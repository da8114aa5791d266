/* SPDX-License-Identifier: BSD-2-Clause */
/* Every message through one pair of functions. */
#ifndef RP_TEST_WIRE_RIG_H
#define RP_TEST_WIRE_RIG_H

#include <stddef.h>
#include <stdint.h>

#include "core/wire.h"

#define WIRE_TYPES 10
extern const uint8_t wire_types[WIRE_TYPES];

/* Any body, so that one loop can serve every message. */
union body {
	struct rp_wire_hello hello;
	struct rp_wire_hello_ack hello_ack;
	struct rp_wire_request request;
	struct rp_wire_reply reply;
	struct rp_wire_query query;
	struct rp_wire_info info;
	struct rp_wire_connect connect;
	struct rp_wire_offer offer;
};

int wire_put(void *buf, size_t size, const struct rp_wire_hdr *hdr,
	     const union body *b);
int wire_get(const void *buf, const struct rp_wire_hdr *hdr, union body *b);
/* The same field values as the goldens. */
void wire_example(uint8_t type, struct rp_wire_hdr *hdr, union body *b);

#endif
