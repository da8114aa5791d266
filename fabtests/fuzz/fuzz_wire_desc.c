// SPDX-License-Identifier: BSD-2-Clause
/* Any bytes as a descriptor: what is read is written as the same bytes. */
#include <errno.h>
#include <stdbool.h>

#include "core/wire_desc.h"
#include "fuzz.h"

/* The first byte says whether the checksum is made to fit. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rp_desc d = {.rkey = 99}, again;
	uint8_t buf[RP_DESC_LEN];
	struct fuzz_in in = {.p = data, .left = size};
	bool fit = fuzz_u8(&in) & 1;
	uint8_t *msg;
	int ret;

	fuzz_bytes(&in, buf, sizeof(buf));
	if (fit) {
		uint32_t c = ~0u;

		for (size_t i = 0; i < sizeof(buf) - 4; i++) {
			c ^= buf[i];
			for (int b = 0; b < 8; b++)
				c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
		}
		for (int i = 0; i < 4; i++)
			buf[sizeof(buf) - 4 + i] = (uint8_t)(~c >> 8 * i);
	}
	msg = fuzz_exact(buf, sizeof(buf));
	ret = rp_desc_get(msg, &d);
	free(msg);
	if (ret) {
		MUST(ret == -EBADMSG || ret == -EPROTONOSUPPORT);
		MUST(d.rkey == 99);
		return 0;
	}
	MUST(d.length && d.addr + d.length > d.addr);
	msg = malloc(RP_DESC_LEN);
	MUST(!rp_desc_put(msg, &d) && !memcmp(msg, buf, RP_DESC_LEN));
	MUST(!rp_desc_get(msg, &again));
	free(msg);
	return 0;
}
