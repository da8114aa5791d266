/* SPDX-License-Identifier: BSD-2-Clause */
/* Pool file: memory that fi_rpmemd exports, after a checksummed header. */
#ifndef RP_UTIL_POOL_H
#define RP_UTIL_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/dirty_shutdowns.h"
#include "util/text.h"

/*
 * Header of a pool file, little-endian. Two copies, at 0 and 4096, are written
 * in turn (copy = generation & 1), so that a torn write of one leaves the
 * other:
 *
 *    0  8 magic "ofirpmem"
 *    8 u32 version 1
 *   12 u32 flags: bit 0 clean
 *   16 16 uuid
 *   32 u64 size of the file
 *   40 u64 offset of the data
 *   48 u64 generation: counts header writes
 *   56 u64 length of the file that was copied into the data; 0: unknown
 *   64 u64 last client that opened the pool, or a part, exclusively; 0: none
 *   72 u64 bit 0: that client has it open; bit n: so has the owner of part n
 *   80 u64 dirty shutdowns of the DIMMs below the pool when it was opened
 *   88 u64 identity of the DIMMs that count them; 0: no DIMM does
 *   96 u32 parts, 2 to 32; 0: the pool is not divided
 *  100 u32 0
 *  104 u64 bytes of a part
 *  112 32 u64 last client that opened part 1, 2... exclusively; 0: none
 *  368 u64 identity of losses in the DIMMs' flags at that time; 0: none
 *  376 zeros
 *  480 32 SHA-256 of the 480 bytes before
 *
 * Data begins at 64 KiB: a multiple of every page size.
 */
#define RP_POOL_MAGIC	  "ofirpmem"
#define RP_POOL_VERSION	  1
#define RP_POOL_HDR	  512
#define RP_POOL_COPY(gen) ((off_t)(4096 * ((gen)&1)))
#define RP_POOL_DATA	  65536u
#define RP_POOL_UNIT	  4096u /* pool sizes are multiples of this */
#define RP_POOL_PARTS	  32u
static inline uint64_t rp_pool_round(uint64_t size)
{
	return (size + RP_POOL_UNIT - 1) / RP_POOL_UNIT * RP_POOL_UNIT;
}
/* Limit for sizes, so that off_t arithmetic cannot overflow. */
#define RP_POOL_MAX (1ull << 62)

struct rp_pool {
	int fd; /* open file, which holds the lock */
	/*
	 * A second description of the file, synced by rp_pool_close_clean()
	 * alone: that sync reports every write-back that has failed since the
	 * pool was opened.
	 */
	int close_fd;
	char *path;
	uint8_t uuid[16];
	void *map; /* mapping of the whole file */
	uint64_t map_len;
	void *data; /* first data byte in map */
	uint64_t size;
	uint64_t generation;
	uint64_t length; /* length of the stored file; 0: unknown */
	/*
	 * owner[0]: the last exclusive client of the pool or of any part;
	 * owner[n]: of part n; 0: none. Bit n of is_open: owner[n] has not
	 * closed the pool or its part.
	 */
	uint64_t owner[1 + RP_POOL_PARTS];
	uint64_t is_open;
	uint32_t parts; /* number of parts; 0: not divided */
	uint64_t part_len;
	struct rp_shutdowns shutdowns; /* counts when the pool was opened */
	uint64_t allocated; /* file length, set by rp_pool_allocate() */
	bool was_clean;	    /* the last user closed the pool */
	bool map_sync;	    /* mapped with MAP_SYNC: on DAX */
};

/*
 * Create a pool of size data bytes, rounded up to RP_POOL_UNIT, with all blocks
 * allocated. Returns 0: it is durable; -EEXIST: the name is in use; -ENOSPC: no
 * room, and no file is left; another -errno. err has the cause and the remedy.
 */
int rp_pool_create(const char *path, uint64_t size, char *err);

/*
 * Open, lock, check and map a pool, and mark it as in use. Reads then return
 * what the disk holds, not what an earlier daemon left in the page cache.
 * -ENOENT; -EBUSY: in use, err names the process; -EINVAL: no pool;
 * -EPROTONOSUPPORT: other version; -EBADMSG: both headers damaged, or the file
 * has grown since it was closed; -ENODATA: truncated; -ENOSPC: holes, or an
 * interrupted growth, that cannot be filled;
 * -ENOTRECOVERABLE: a dirty shutdown may have lost acknowledged bytes; another
 * -errno.
 */
int rp_pool_open(const char *path, struct rp_pool *p, char *err);
/*
 * Accept that a pool lost bytes in a dirty shutdown, so that it can be opened:
 * store the present count of shutdowns and another uuid. Returns 1 when these
 * are durable; 0: the pool has no such loss; or the errors of rp_pool_open().
 */
int rp_pool_accept_loss(const char *path, char *err);

/*
 * Check that the file has not been removed or truncated. Returns 0; -ENOENT: it
 * was removed, so its bytes vanish when this process closes it; -ENODATA: it
 * was truncated; another -errno: unknown.
 */
int rp_pool_check_file(const struct rp_pool *p);

/* Whether the file has grown since it was opened. */
bool rp_pool_is_longer(const struct rp_pool *p);
/*
 * Allocate the new blocks of a file that has grown. Returns 1 when that is
 * done; 0: it has not grown; -ENOSPC or another -errno: the file was cut to its
 * former length, and err has the reason and the remedy.
 */
int rp_pool_allocate(struct rp_pool *p, char *err);
/*
 * After rp_pool_allocate(): map the new blocks, too. p->data changes, so nobody
 * may use it during the call. -errno: the pool is as before, and err has the
 * reason.
 */
int rp_pool_extend(struct rp_pool *p, char *err);

/*
 * Store the length of the file that was copied to the pool. Returns 0 when that
 * is durable. -errno: nothing has changed, and err has the reason.
 */
int rp_pool_set_length(struct rp_pool *p, uint64_t length, char *err);
/*
 * Divide the pool into equal parts without owners; 1: undivided. Returns as
 * rp_pool_set_length(); -EINVAL: too many parts for the pool's size.
 */
int rp_pool_divide(struct rp_pool *p, unsigned int parts, char *err);
/* Offset and bytes of a part in the data; part 0 is the whole pool. */
static inline uint64_t rp_pool_part(const struct rp_pool *p, unsigned int part,
				    uint64_t *len)
{
	*len = part ? p->part_len : p->size;
	return part ? (part - 1) * p->part_len : 0;
}
/*
 * Make all bytes of a part durable, whoever wrote them. Then drop them from the
 * page cache, which may have bytes that an earlier write-back failed to store.
 * Nobody may write there during the call. -errno: the disk failed, and err has
 * the reason.
 */
int rp_pool_settle(struct rp_pool *p, unsigned int part, char *err);
/*
 * Store the exclusive client of a part, which has the part open from then on:
 * the owner of the whole pool is displaced, for part 0 also those of all parts.
 * rp_pool_release() stores that the owners of some parts, one bit each, have
 * closed them. Both functions return as rp_pool_set_length().
 */
int rp_pool_set_owner(struct rp_pool *p, unsigned int part, uint64_t owner,
		      char *err);
int rp_pool_release(struct rp_pool *p, uint64_t parts, char *err);

/*
 * Write back, mark the pool clean, close it. On failure it is closed without
 * the mark, and err has the reason.
 */
int rp_pool_close_clean(struct rp_pool *p, char *err);
/* Close without write-back, and without marking the pool clean. */
void rp_pool_abandon(struct rp_pool *p);

#endif
