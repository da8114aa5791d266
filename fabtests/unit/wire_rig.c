/* SPDX-License-Identifier: BSD-2-Clause */
/* Every message through one pair of functions. */
#include <string.h>

#include "wire_rig.h"

const uint8_t wire_types[WIRE_TYPES] = {
	RP_MSG_HELLO,	  RP_MSG_REQUEST, RP_MSG_QUERY,	   RP_MSG_BYE,
	RP_MSG_HELLO_ACK, RP_MSG_REPLY,	  RP_MSG_PROGRESS, RP_MSG_INFO,
	RP_MSG_CONNECT,	  RP_MSG_OFFER,
};

int wire_put(void *buf, size_t size, const struct rp_wire_hdr *hdr,
	     const union body *b)
{
	switch (hdr->type) {
	case RP_MSG_HELLO:
		return rp_wire_put_hello(buf, size, hdr, &b->hello);
	case RP_MSG_HELLO_ACK:
		return rp_wire_put_hello_ack(buf, size, hdr, &b->hello_ack);
	case RP_MSG_REQUEST:
		return rp_wire_put_request(buf, size, hdr, &b->request);
	case RP_MSG_REPLY:
		return rp_wire_put_reply(buf, size, hdr, &b->reply);
	case RP_MSG_QUERY:
		return rp_wire_put_query(buf, size, hdr, &b->query);
	case RP_MSG_INFO:
		return rp_wire_put_info(buf, size, hdr, &b->info);
	case RP_MSG_CONNECT:
		return rp_wire_put_connect(buf, size, hdr, &b->connect);
	case RP_MSG_OFFER:
		return rp_wire_put_offer(buf, size, hdr, &b->offer);
	}
	return rp_wire_put_empty(buf, size, hdr);
}

int wire_get(const void *buf, const struct rp_wire_hdr *hdr, union body *b)
{
	switch (hdr->type) {
	case RP_MSG_HELLO:
		return rp_wire_get_hello(buf, hdr, &b->hello);
	case RP_MSG_HELLO_ACK:
		return rp_wire_get_hello_ack(buf, hdr, &b->hello_ack);
	case RP_MSG_REQUEST:
		return rp_wire_get_request(buf, hdr, &b->request);
	case RP_MSG_REPLY:
		return rp_wire_get_reply(buf, hdr, &b->reply);
	case RP_MSG_QUERY:
		return rp_wire_get_query(buf, hdr, &b->query);
	case RP_MSG_INFO:
		return rp_wire_get_info(buf, hdr, &b->info);
	case RP_MSG_CONNECT:
		return rp_wire_get_connect(buf, hdr, &b->connect);
	case RP_MSG_OFFER:
		return rp_wire_get_offer(buf, hdr, &b->offer);
	}
	return 0;
}

void wire_example(uint8_t type, struct rp_wire_hdr *hdr, union body *b)
{
	memset(b, 0, sizeof(*b));
	*hdr = (struct rp_wire_hdr){
		.type = type,
		.session = type == RP_MSG_HELLO ? 0 : 0x1112131415161718,
		.token = 0x2122232425262728,
		.incarnation = 0x3132333435363738,
	};
	switch (type) {
	case RP_MSG_HELLO:
		b->hello = (struct rp_wire_hello){
			.cookie = 0x4142434445464748,
			.key = 0x5152535455565758,
			.timeout_ms = 5000,
			.features = 0x6162,
			.addr_len = 5,
			.addr = "\x02\x00\x7f\x00\x01",
		};
		break;
	case RP_MSG_HELLO_ACK:
		b->hello_ack = (struct rp_wire_hello_ack){
			.cookie = 0x4142434445464748,
			.credits = 64,
			.max_ranges = 168,
			.features = RP_FEATURE_EFFECTS,
		};
		break;
	case RP_MSG_REQUEST:
		b->request = (struct rp_wire_request){
			.nranges = 1,
			.level = RP_LEVEL_DURABLE,
			.required = RP_CLASS_POWER,
			.ranges = {{0x4142434445464748, 0x5152535455565758,
				    0x6162636465666768}},
		};
		break;
	case RP_MSG_REPLY:
		b->reply = (struct rp_wire_reply){
			.level = RP_LEVEL_DURABLE,
			.class = RP_CLASS_POWER,
			.range = 0xa7,
			.detail = 0x41424344,
			.credits = 0x5152,
			.method = RP_METHOD_AGENT_MSYNC,
		};
		break;
	case RP_MSG_QUERY:
		b->query = (struct rp_wire_query){
			.key = 0x4142434445464748,
			.required = RP_CLASS_PROCESS,
		};
		break;
	case RP_MSG_INFO:
		b->info = (struct rp_wire_info){
			.status = RP_ST_CLASS,
			.class = RP_CLASS_PROCESS,
			.method = RP_METHOD_DELIVERY,
			.memory = RP_MEM_TMPFS,
			.placement = RP_PLACE_CPU_USER,
			.domain = RP_DOMAIN_CPUCACHE,
			.refusal = RP_REFUSAL_CLASS,
			.granularity = 4096,
			.length = 0x4142434445464748,
			.addr = 0x5152535455565758,
			.preferred_size = 0x61626364,
			.preferred_align = 0x71727374,
			.why = "tmpfs",
		};
		break;
	case RP_MSG_CONNECT:
		b->connect = (struct rp_wire_connect){
			.id = 0x4142434445464748,
			.key = 0x5152535455565758,
		};
		break;
	case RP_MSG_OFFER:
		b->offer = (struct rp_wire_offer){
			.method = RP_METHOD_FENCE,
			.class = RP_CLASS_POWER,
			.addr_len = 5,
			.id = 0x4142434445464748,
			.key = 0x5152535455565758,
			.secret = 0x6162636465666768,
			.there = 0x7172737475767778,
			.at = 0x0102030405060708,
			.addr = 0x1112131415161718,
			.length = 0x2122232425262728,
			.to = "\x02\x00\x7f\x00\x01",
		};
		break;
	}
}
