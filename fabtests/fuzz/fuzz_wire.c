// SPDX-License-Identifier: BSD-2-Clause
/* Any bytes as a message: a decoded message encodes to the same bytes. */
#include <errno.h>

#include "fuzz.h"
#include "unit/wire_rig.h"

static struct wire_msg m;

/* Decode the message as each type: only its header's type may succeed. */
static void one_type_only(const uint8_t *msg, const struct rp_wire_hdr *hdr)
{
	for (int i = 0; i < WIRE_TYPES; i++)
		if (wire_types[i] != hdr->type &&
		    !wire_is_signal(wire_types[i]))
			MUST(wire_get_as(wire_types[i], msg, hdr, &m) ==
			     -EBADMSG);
}

/* Private data of a connection, which may be longer than its message. */
static void one_private(const uint8_t *data, size_t size)
{
	struct rp_wire_hello_ack ack;
	struct rp_wire_hello hello;
	uint8_t again[RP_WIRE_CM_ACK];
	int len = 0;

	if (!rp_wire_get_hello(data, size, &hello))
		len = rp_wire_put_hello(again, sizeof(again), &hello);
	else if (!rp_wire_get_hello_ack(data, size, &ack))
		len = rp_wire_put_hello_ack(again, sizeof(again), &ack);
	MUST(len >= 0 && (size_t)len <= size);
	if (!len)
		return;
	MUST(!memcmp(again, data, len));
	for (size_t i = len; i < size; i++)
		MUST(!data[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t again[RP_WIRE_MAX_MSG];
	uint8_t *msg = fuzz_exact(data, size);
	struct rp_wire_hdr hdr;
	int ret = rp_wire_get_hdr(msg, size, &hdr);

	one_private(msg, size);
	if (ret == -EPROTONOSUPPORT) {
		MUST(msg[2] != RP_WIRE_VERSION);
		MUST(wire_get(msg, size, &m) == ret);
	} else if (!ret) {
		MUST(hdr.length == size && size <= RP_WIRE_MAX_MSG);
		one_type_only(msg, &hdr);
		if (!wire_get(msg, size, &m)) {
			ret = wire_put(again, sizeof(again), &m);
			MUST(ret == (int)size && !memcmp(again, msg, size));
			MUST(wire_put(again, size - 1, &m) == -EMSGSIZE);
		}
	} else {
		MUST(ret == -EBADMSG);
	}
	free(msg);
	return 0;
}
