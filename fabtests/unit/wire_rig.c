/* SPDX-License-Identifier: BSD-2-Clause */
/* One pair of functions, wire_put() and wire_get(), for all messages. */
#include <errno.h>
#include <string.h>

#include "core/atomic.h"
#include "wire_rig.h"

const uint8_t wire_types[WIRE_TYPES] = {
	RP_MSG_HELLO,	RP_MSG_REQUEST,	 RP_MSG_QUERY, RP_MSG_HELLO_ACK,
	RP_MSG_REPLY,	RP_MSG_PROGRESS, RP_MSG_INFO,  RP_MSG_DOORBELL,
	RP_MSG_POLLING, RP_MSG_IDLE,
};

bool wire_is_signal(uint8_t type)
{
	return type == RP_MSG_PROGRESS || type == RP_MSG_DOORBELL ||
	       type == RP_MSG_POLLING || type == RP_MSG_IDLE;
}

int wire_put(void *buf, size_t size, const struct wire_msg *m)
{
	switch (m->type) {
	case RP_MSG_HELLO:
		return rp_wire_put_hello(buf, size, &m->hello);
	case RP_MSG_HELLO_ACK:
		return rp_wire_put_hello_ack(buf, size, &m->hello_ack);
	case RP_MSG_REQUEST:
		return rp_wire_put_request(buf, size, m->token, &m->request);
	case RP_MSG_REPLY:
		return rp_wire_put_reply(buf, size, m->token, &m->reply);
	case RP_MSG_QUERY:
		return rp_wire_put_query(buf, size, m->token, &m->query);
	case RP_MSG_INFO:
		return rp_wire_put_info(buf, size, m->token, &m->info);
	}
	return rp_wire_put_signal(buf, size, m->type);
}

int wire_get_as(uint8_t type, const void *buf, const struct rp_wire_hdr *hdr,
		struct wire_msg *m)
{
	switch (type) {
	case RP_MSG_HELLO:
		return rp_wire_get_hello(buf, hdr->length, &m->hello);
	case RP_MSG_HELLO_ACK:
		return rp_wire_get_hello_ack(buf, hdr->length, &m->hello_ack);
	case RP_MSG_REQUEST:
		m->request.decoded = m->ranges;
		return rp_wire_get_request(buf, hdr, &m->request);
	case RP_MSG_REPLY:
		return rp_wire_get_reply(buf, hdr, &m->reply);
	case RP_MSG_QUERY:
		return rp_wire_get_query(buf, hdr, &m->query);
	case RP_MSG_INFO:
		return rp_wire_get_info(buf, hdr, &m->info);
	}
	return 0;
}

int wire_get(const void *buf, size_t len, struct wire_msg *m)
{
	struct rp_wire_hdr hdr;
	int ret = rp_wire_get_hdr(buf, len, &hdr);

	if (ret)
		return ret;
	m->type = hdr.type;
	m->token = hdr.token;
	return wire_get_as(hdr.type, buf, &hdr, m);
}

static const struct rp_wire_grant grant = {
	.rkey = 0x8182838485868788,
	.remote_addr = 0x0192939495969798,
	.addr = 0x01a2a3a4a5a6a7a8,
	.length = 0x01b2b3b4b5b6b7b8,
	.class = RP_CLASS_POWER,
	.method = RP_METHOD_AGENT_CLWB,
	.writable = true,
};

void wire_example(uint8_t type, struct wire_msg *m)
{
	memset(m, 0, sizeof(*m));
	m->type = type;
	m->token = 0x2122232425262728;
	switch (type) {
	case RP_MSG_HELLO:
		m->hello = (struct rp_wire_hello){
			.key = 0x5152535455565758,
			.initiator = 0x4142434445464748,
			.timeout_ms = 0x61626364,
			.features = 0x7172,
			.port = 0x8182,
		};
		break;
	case RP_MSG_HELLO_ACK:
		m->hello_ack = (struct rp_wire_hello_ack){
			.detail = 0x61626364,
			.incarnation = 0x3132333435363738,
			.credits = 0x4142,
			.features = RP_FEATURE_NATIVE,
			.grant = grant,
		};
		break;
	case RP_MSG_REQUEST:
		m->request = (struct rp_wire_request){
			.nranges = 1,
			.level = RP_LEVEL_DURABLE,
			.required = RP_CLASS_POWER,
			.ranges = m->ranges,
		};
		m->ranges[0] = (struct rp_wire_range){0x4142434445464748,
						      0x5152535455565758,
						      0x6162636465666768};
		break;
	case RP_MSG_REPLY:
		m->reply = (struct rp_wire_reply){
			.detail = 0x41424344,
			.range = 0xa7,
			.credits = 0x5152,
			.level = RP_LEVEL_DURABLE,
			.class = RP_CLASS_POWER,
			.method = RP_METHOD_AGENT_MSYNC,
			.result = "old",
			.result_len = 3,
		};
		break;
	case RP_MSG_QUERY:
		m->query = (struct rp_wire_query){
			.key = 0x4142434445464748,
			.required = RP_CLASS_PROCESS,
		};
		break;
	case RP_MSG_INFO:
		m->info = (struct rp_wire_info){
			.status = RP_ST_CLASS,
			.class = RP_CLASS_PROCESS,
			.method = RP_METHOD_DELIVERY,
			.memory = RP_MEM_TMPFS,
			.placement = RP_PLACE_CPU_KERNEL,
			.domain = RP_DOMAIN_CPUCACHE,
			.refusal = RP_REFUSAL_CLASS,
			.granularity = 4096,
			.preferred_size = 0x61626364,
			.preferred_align = 0x71727374,
			.grant = grant,
			.why = "tmpfs",
		};
		break;
	case RP_MSG_PROGRESS:
	case RP_MSG_DOORBELL:
	case RP_MSG_POLLING:
	case RP_MSG_IDLE:
		m->token = 0;
		break;
	}
}

void wire_example_effect(enum rp_effect effect, struct wire_msg *m)
{
	wire_example(RP_MSG_REQUEST, m);
	m->request.effect = effect;
	switch (effect) {
	case RP_EFFECT_NONE:
		break;
	case RP_EFFECT_THEN:
		m->request.then = (struct rp_wire_then){0x8182838485868788,
							0x9192939495969798,
							0xa1a2a3a4a5a6a7a8};
		break;
	case RP_EFFECT_NOTIFY:
		m->request.data = 0xb1b2b3b4b5b6b7b8;
		m->request.endpoint = 0xc1c2;
		break;
	case RP_EFFECT_STORE:
		m->request.nranges = 2;
		m->ranges[0].len = 5;
		m->ranges[1] = (struct rp_wire_range){7, 8, 3};
		m->request.bytes = "threeof5";
		break;
	case RP_EFFECT_ATOMIC:
		m->ranges[0].len = 8;
		m->request.atomic = (struct rp_wire_atomic){
			.op = RP_ATOMIC_CSWAP,
			.datatype = RP_ATOMIC_UINT32,
			.fetch = true,
			.operand = "operand!",
			.compare = "compare!",
		};
		break;
	case RP_EFFECT_ZERO:
		m->ranges[0].len = RP_WIRE_MAX_ZERO;
		break;
	}
}
