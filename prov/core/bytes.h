/* SPDX-License-Identifier: BSD-2-Clause */
/* Little-endian numbers at unaligned offsets of messages. */
#ifndef RP_BYTES_H
#define RP_BYTES_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* put16(), get16() and so on. */
#define RP_DEFINE_BYTES(n)                                                     \
	static inline void put##n(uint8_t *p, size_t at, uint##n##_t v)        \
	{                                                                      \
		v = htole##n(v);                                               \
		memcpy(p + at, &v, sizeof(v));                                 \
	}                                                                      \
	static inline uint##n##_t get##n(const uint8_t *p, size_t at)          \
	{                                                                      \
		uint##n##_t v;                                                 \
                                                                               \
		memcpy(&v, p + at, sizeof(v));                                 \
		return le##n##toh(v);                                          \
	}
RP_DEFINE_BYTES(16)
RP_DEFINE_BYTES(32)
RP_DEFINE_BYTES(64)

static inline bool bytes_zero(const void *buf, size_t len)
{
	const uint8_t *p = buf;

	while (len && !p[len - 1])
		len--;
	return !len;
}

#endif
