/* SPDX-License-Identifier: BSD-2-Clause */
/* uthash with out-of-memory as an error, not the end of the process. */
#ifndef RP_HASH_H
#define RP_HASH_H

/*
 * Without these macros, uthash calls exit() when memory is used up. A function
 * that adds an entry declares "bool oom = false", and checks oom afterwards.
 */
#define HASH_NONFATAL_OOM	   1
#define uthash_nonfatal_oom(entry) (oom = true)
#include <stdint.h>
#include <string.h>
#include <uthash.h>

/*
 * Most keys have 8 bytes (HELLO's initiator, region keys, addresses) and are
 * looked up for every message: one multiplication spreads them well enough.
 */
static inline unsigned int rp_hash_8(const void *key)
{
	uint64_t v;

	memcpy(&v, key, sizeof(v));
	return (unsigned int)(v * 0x9e3779b97f4a7c15 >> 32);
}

#undef HASH_FUNCTION
#define HASH_FUNCTION(key, len, hash)                                          \
	do {                                                                   \
		if ((len) == sizeof(uint64_t))                                 \
			(hash) = rp_hash_8(key);                               \
		else                                                           \
			HASH_JEN(key, len, hash);                              \
	} while (0)

#endif
