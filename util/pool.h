/* SPDX-License-Identifier: BSD-2-Clause */
/* Pool file: memory that fi_rpmemd exports, behind a checksummed header. */
#ifndef RP_UTIL_POOL_H
#define RP_UTIL_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/text.h"

/*
 * Little-endian. Two copies of the header, at 0 and 4096, written in turn
 * (copy = generation & 1), so that a torn write of one leaves the other:
 *
 *    0  8 magic "ofirpmem"
 *    8 u32 version 1
 *   12 u32 flags: bit 0 clean
 *   16 16 uuid
 *   32 u64 size of the file
 *   40 u64 offset of the data
 *   48 u64 generation: counts header writes
 *   56 zeros
 *  480 32 SHA-256 of the 480 bytes before
 *
 * Data begins at 64 KiB: a multiple of every page size.
 */
#define RP_POOL_MAGIC	  "ofirpmem"
#define RP_POOL_VERSION	  1
#define RP_POOL_HDR	  512
#define RP_POOL_COPY(gen) ((off_t)(4096 * ((gen)&1)))
#define RP_POOL_DATA	  65536u
#define RP_POOL_UNIT	  4096u /* sizes are rounded up to this */
/* Limit that keeps off_t arithmetic from overflowing. */
#define RP_POOL_MAX (1ull << 62)

struct rp_pool {
	int fd; /* holds the lock */
	char *path;
	uint8_t uuid[16];
	void *map; /* mapping of the whole file */
	uint64_t map_len;
	void *data; /* points into map */
	uint64_t size;
	uint64_t generation;
	bool was_clean; /* the last user closed the pool */
	bool map_sync;	/* mapped with MAP_SYNC: DAX */
};

/*
 * Create a pool of size data bytes, rounded up to RP_POOL_UNIT, with all blocks
 * allocated; durable when 0 is returned. -EEXIST: the name is taken; -ENOSPC:
 * no room, nothing is left behind; another -errno. err has the cause and the
 * remedy.
 */
int rp_pool_create(const char *path, uint64_t size, char *err);

/*
 * Open, lock, check and map a pool, and mark it as in use. Reads then return
 * what the disk holds, not what an earlier daemon left in the page cache.
 * -ENOENT; -EBUSY: in use, err names the holder; -EINVAL: no pool;
 * -EPROTONOSUPPORT: other version; -EBADMSG: both headers damaged, or the file
 * has grown; -ENODATA: truncated; -ENOSPC: has holes that cannot be filled;
 * another -errno.
 */
int rp_pool_open(const char *path, struct rp_pool *p, char *err);

/*
 * Check that the file still has a name. Returns 0; -ENOENT: it was removed, so
 * its bytes vanish with the last user; another -errno: unknown.
 */
int rp_pool_check_name(const struct rp_pool *p);

/*
 * Write back, mark the pool clean, close it. On failure it is closed without
 * the mark, and err has the reason.
 */
int rp_pool_close_clean(struct rp_pool *p, char *err);
/* Close without write-back or mark, as a crash does. */
void rp_pool_abandon(struct rp_pool *p);

#endif
