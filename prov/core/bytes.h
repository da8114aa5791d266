/* SPDX-License-Identifier: BSD-2-Clause */
/* Little-endian numbers at unaligned offsets of messages. */
#ifndef RP_BYTES_H
#define RP_BYTES_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline void put16(uint8_t *p, size_t at, uint16_t v)
{
	v = htole16(v);
	memcpy(p + at, &v, sizeof(v));
}

static inline void put32(uint8_t *p, size_t at, uint32_t v)
{
	v = htole32(v);
	memcpy(p + at, &v, sizeof(v));
}

static inline void put64(uint8_t *p, size_t at, uint64_t v)
{
	v = htole64(v);
	memcpy(p + at, &v, sizeof(v));
}

static inline uint16_t get16(const uint8_t *p, size_t at)
{
	uint16_t v;

	memcpy(&v, p + at, sizeof(v));
	return le16toh(v);
}

static inline uint32_t get32(const uint8_t *p, size_t at)
{
	uint32_t v;

	memcpy(&v, p + at, sizeof(v));
	return le32toh(v);
}

static inline uint64_t get64(const uint8_t *p, size_t at)
{
	uint64_t v;

	memcpy(&v, p + at, sizeof(v));
	return le64toh(v);
}

static inline bool bytes_zero(const void *buf, size_t len)
{
	const uint8_t *p = buf;

	while (len && !p[len - 1])
		len--;
	return !len;
}

#endif
