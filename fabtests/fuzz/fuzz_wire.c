// SPDX-License-Identifier: BSD-2-Clause
/* Any bytes as a control message: what decodes encodes to the same bytes. */
#include <errno.h>

#include "fuzz.h"
#include "unit/wire_rig.h"

/* Decode as each type: only the one in the header may succeed. */
static void one_type_only(const uint8_t *msg, const struct rp_wire_hdr *hdr)
{
	static union body b;
	const uint8_t t = hdr->type;

	MUST(t == RP_MSG_HELLO ||
	     rp_wire_get_hello(msg, hdr, &b.hello) == -EBADMSG);
	MUST(t == RP_MSG_HELLO_ACK ||
	     rp_wire_get_hello_ack(msg, hdr, &b.hello_ack) == -EBADMSG);
	MUST(t == RP_MSG_REQUEST ||
	     rp_wire_get_request(msg, hdr, &b.request) == -EBADMSG);
	MUST(t == RP_MSG_REPLY ||
	     rp_wire_get_reply(msg, hdr, &b.reply) == -EBADMSG);
	MUST(t == RP_MSG_QUERY ||
	     rp_wire_get_query(msg, hdr, &b.query) == -EBADMSG);
	MUST(t == RP_MSG_INFO ||
	     rp_wire_get_info(msg, hdr, &b.info) == -EBADMSG);
	MUST(t == RP_MSG_CONNECT ||
	     rp_wire_get_connect(msg, hdr, &b.connect) == -EBADMSG);
	MUST(t == RP_MSG_OFFER ||
	     rp_wire_get_offer(msg, hdr, &b.offer) == -EBADMSG);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t again[RP_WIRE_MAX_MSG];
	static union body b;
	uint8_t *msg = fuzz_exact(data, size);
	struct rp_wire_hdr hdr;
	int ret = rp_wire_get_hdr(msg, size, &hdr);

	if (ret == -EPROTONOSUPPORT) {
		/* The one body that is read in any version. */
		MUST(hdr.version != RP_WIRE_VERSION && !hdr.incarnation);
		if (!rp_wire_get_hello(msg, &hdr, &b.hello))
			MUST(b.hello.addr_len &&
			     b.hello.addr_len <= RP_WIRE_MAX_ADDR);
	} else if (!ret) {
		MUST(hdr.length == size && size <= RP_WIRE_MAX_MSG);
		one_type_only(msg, &hdr);
		if (!wire_get(msg, &hdr, &b)) {
			ret = wire_put(again, sizeof(again), &hdr, &b);
			MUST(ret == (int)size && !memcmp(again, msg, size));
			MUST(wire_put(again, size - 1, &hdr, &b) == -EMSGSIZE);
		}
	} else {
		MUST(ret == -EBADMSG);
	}
	free(msg);
	return 0;
}
