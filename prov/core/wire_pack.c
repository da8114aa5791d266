// SPDX-License-Identifier: BSD-2-Clause
/* Pack many ranges of one region into few bytes. */
#include <errno.h>
#include <stdbool.h>

#include "core/wire_pack.h"

/* Write seven bits per byte, low ones first; the last byte's top bit is 0. */
static size_t put_number(uint8_t *p, uint64_t v)
{
	size_t n = 0;

	for (; v > 0x7f; v >>= 7)
		p[n++] = (uint8_t)(v | 0x80);
	p[n++] = (uint8_t)v;
	return n;
}

static int get_number(const uint8_t **p, const uint8_t *end, uint64_t *v)
{
	unsigned int shift = 0;
	uint8_t byte;

	*v = 0;
	do {
		if (*p == end || shift > 63)
			return -EBADMSG;
		byte = *(*p)++;
		/* The tenth byte has one bit of 64 left. */
		if (shift == 63 && byte > 1)
			return -EBADMSG;
		*v |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	/* Only one encoding is valid: no leading zeros. */
	return !byte && shift > 7 ? -EBADMSG : 0;
}

/* Number of ranges from i on with the gap and length of the one before. */
static size_t count_repeats(const struct rp_wire_range *r, size_t i, size_t n)
{
	const uint64_t gap = r[i - 1].addr - r[i - 2].addr - r[i - 2].len;
	const struct rp_wire_range *g = &r[i];

	for (; g < r + n && g->key == g[-1].key && g->len == g[-1].len; g++) {
		const uint64_t end = g[-1].addr + g[-1].len;

		if (g->addr < end || g->addr - end != gap ||
		    g->addr > UINT64_MAX - g->len)
			break;
	}
	return (size_t)(g - r) - i;
}

size_t rp_wire_pack(uint8_t *out, size_t size, const struct rp_wire_range *r,
		    size_t n, size_t *taken)
{
	uint8_t code[2 * RP_WIRE_NUMBER_MAX];
	uint64_t at = 0, again;
	size_t len = 0, i = 0;

	while (i < n) {
		size_t more;

		if (r[i].key != r[0].key || r[i].addr < at || !r[i].len ||
		    r[i].addr > UINT64_MAX - r[i].len ||
		    r[i].addr - at > UINT64_MAX / 2)
			break;
		again = i > 1 ? count_repeats(r, i, n) : 0;
		if (again) {
			more = put_number(code, again << 1 | 1);
		} else {
			more = put_number(code, (r[i].addr - at) << 1);
			more += put_number(code + more, r[i].len);
		}
		if (len + more > size)
			break;
		for (size_t j = 0; j < more; j++)
			out[len + j] = code[j];
		len += more;
		i += again ? again : 1;
		at = r[i - 1].addr + r[i - 1].len;
	}
	*taken = i;
	return len;
}

int rp_wire_unpack(const uint8_t *in, size_t len, uint64_t key,
		   struct rp_wire_range *r, size_t n)
{
	const uint8_t *begin = in, *end = in + len;
	uint64_t at = 0, gap = 0, x, size = 0, last;
	bool repeated = false;
	size_t i = 0, again;

	while (i < n) {
		if (get_number(&in, end, &x))
			return -EBADMSG;
		again = 1;
		if (x & 1) {
			if (i < 2 || repeated || !(x >> 1) || x >> 1 > n - i)
				return -EBADMSG;
			again = x >> 1;
			repeated = true;
		} else {
			last = size;
			if (get_number(&in, end, &size) || !size ||
			    (i > 1 && x >> 1 == gap && size == last))
				return -EBADMSG;
			gap = x >> 1;
			repeated = false;
		}
		for (; again--; i++) {
			if (at > UINT64_MAX - gap ||
			    at + gap > UINT64_MAX - size)
				return -EBADMSG;
			r[i] = (struct rp_wire_range){key, at + gap, size};
			at += gap + size;
		}
	}
	return (int)(in - begin);
}
