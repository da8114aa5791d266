// SPDX-License-Identifier: BSD-2-Clause
/*
 * Any bytes as a descriptor, a side address or a message of the preload
 * library: what decodes encodes to the same bytes.
 */
#include <errno.h>
#include <stdbool.h>

#include "core/wire_rendezvous.h"
#include "fuzz.h"

static void set_checksum(uint8_t *buf, size_t len)
{
	uint32_t c = ~0u;

	for (size_t i = 0; i < len - 4; i++) {
		c ^= buf[i];
		for (int b = 0; b < 8; b++)
			c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
	}
	for (int i = 0; i < 4; i++)
		buf[len - 4 + i] = (uint8_t)(~c >> 8 * i);
}

static void one_desc(const uint8_t *buf)
{
	uint8_t *msg = fuzz_exact(buf, RP_DESC_LEN);
	struct rp_desc d = {.rkey = 99}, again;
	int ret = rp_desc_get(msg, &d);

	free(msg);
	if (ret) {
		MUST(ret == -EBADMSG || ret == -EPROTONOSUPPORT);
		MUST(d.rkey == 99);
		return;
	}
	MUST(d.length && d.addr + d.length > d.addr);
	MUST(!d.key || rp_key_is_persistent(d.key));
	msg = malloc(RP_DESC_LEN);
	MUST(!rp_desc_put(msg, &d) && !memcmp(msg, buf, RP_DESC_LEN));
	MUST(!rp_desc_get(msg, &again));
	free(msg);
}

static void one_side(const uint8_t *buf)
{
	uint8_t *msg = fuzz_exact(buf, RP_SIDE_ADDR_LEN);
	struct rp_side_addr s = {.psn = 99};
	int ret = rp_side_addr_get(msg, &s);

	free(msg);
	if (ret) {
		MUST(ret == -EBADMSG || ret == -EPROTONOSUPPORT);
		MUST(s.psn == 99);
		return;
	}
	msg = malloc(RP_SIDE_ADDR_LEN);
	MUST(!rp_side_addr_put(msg, &s) && !memcmp(msg, buf, RP_SIDE_ADDR_LEN));
	free(msg);
}

static void one_rendezvous(const uint8_t *buf)
{
	uint8_t *msg = fuzz_exact(buf, RP_RENDEZVOUS_LEN);
	struct rp_rendezvous m = {.rkey = 99};
	int ret = rp_rendezvous_get(msg, &m);

	free(msg);
	if (ret) {
		MUST(ret == -EBADMSG || ret == -EPROTONOSUPPORT);
		MUST(m.rkey == 99);
		return;
	}
	MUST(m.type >= RP_RENDEZVOUS_LOOKUP && m.type <= RP_RENDEZVOUS_LEAVE);
	MUST(m.type != RP_RENDEZVOUS_DESC || m.desc.rkey == m.rkey);
	msg = malloc(RP_RENDEZVOUS_LEN);
	MUST(!rp_rendezvous_put(msg, &m) &&
	     !memcmp(msg, buf, RP_RENDEZVOUS_LEN));
	free(msg);
}

/*
 * The first byte is flags: 1 adds the right checksum, 8 the right checksum of
 * the payload, 2 selects a side address, 4 a rendezvous message.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t buf[RP_RENDEZVOUS_LEN];
	struct fuzz_in in = {.p = data, .left = size};
	const uint8_t what = fuzz_u8(&in);

	fuzz_bytes(&in, buf, sizeof(buf));
	if (what & 4) {
		if (what & 8)
			set_checksum(buf + 56,
				     what & 2 ? RP_SIDE_ADDR_LEN : RP_DESC_LEN);
		if (what & 1)
			set_checksum(buf, RP_RENDEZVOUS_LEN);
		one_rendezvous(buf);
		return 0;
	}
	if (what & 1)
		set_checksum(buf, what & 2 ? RP_SIDE_ADDR_LEN : RP_DESC_LEN);
	if (what & 2)
		one_side(buf);
	else
		one_desc(buf);
	return 0;
}
