/* SPDX-License-Identifier: BSD-2-Clause */
/* The bytes of a log in its pool; docs/protocol.md. */
#ifndef RP_LIBLOG_FORMAT_H
#define RP_LIBLOG_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_VERSION 2

/*
 * The pool begins with two superblocks, LOG_SLOT apart, that are written by
 * turns: the one with the higher turn counts, and a torn one fails its
 * checksum. Ten places for the tail follow, and then the ring. The entry with
 * LSN l is at byte l % ring of it.
 */
#define LOG_SLOT	4096u
#define LOG_PLACES_AT	8192u
#define LOG_PLACE	256u
#define LOG_PLACES	10u
#define LOG_RING_AT	12288u
#define LOG_RING_MIN	4096u
#define LOG_SUPER_BYTES 96u
#define LOG_HEADER	32u /* bytes in front of an entry's own */
#define LOG_ALIGN	64u
#define LOG_FIRST	64u /* the first LSN; 0 means the head */

struct log_super {
	uint32_t layout; /* enum rpmem_log_layout */
	uint64_t id;	 /* random; the seed of all checksums */
	uint64_t ring;	 /* bytes, a multiple of LOG_ALIGN */
	uint64_t turn;
	/*
	 * Every entry from the mark on has this epoch. The next writer takes
	 * the end that it found as its mark: entries behind that end, which
	 * were never acknowledged, stay invalid for ever.
	 */
	uint64_t epoch;
	uint64_t head; /* LSN of the first entry */
	uint64_t mark; /* every entry below is durable */
	uint32_t logs; /* of the pool; 0: unknown, in version 1 */
	uint32_t log;  /* this one, from 0 on */
};

struct log_entry {
	uint64_t lsn;
	uint64_t durable; /* LSN below which all was durable at its append */
	uint64_t epoch;
	uint32_t len;  /* bytes behind the header */
	bool pad;      /* nothing: the next entry is at the ring's start */
	uint64_t next; /* LSN behind it, when it was decoded */
};

void log_super_encode(const struct log_super *s,
		      unsigned char to[LOG_SUPER_BYTES]);
/*
 * Returns 0; -ENODATA: no superblock; -EMEDIUMTYPE: one of librpmem_rpc;
 * -EBADMSG: a damaged one. Numbers have 63 bits, so that none wraps.
 */
int log_super_decode(const unsigned char from[LOG_SUPER_BYTES],
		     struct log_super *s);

/* Bytes in the ring of an entry with len bytes. */
static inline uint64_t log_entry_size(uint64_t len)
{
	return (LOG_HEADER + len + LOG_ALIGN - 1) / LOG_ALIGN * LOG_ALIGN;
}

static inline uint64_t log_ring_left(const struct log_super *s, uint64_t lsn)
{
	return s->ring - lsn % s->ring;
}

/* Most bytes of one entry: an empty log has room, whatever its position. */
uint64_t log_entry_max(const struct log_super *s);

/* Write the header in front of len bytes that are in place at to + LOG_HEADER.
 */
void log_entry_encode(const struct log_super *s, const struct log_entry *e,
		      unsigned char *to);
/*
 * Decode the header that should be that of LSN lsn. False: no entry of this log
 * begins there. The checksum is not compared.
 */
bool log_entry_decode(const struct log_super *s, const unsigned char *from,
		      uint64_t lsn, struct log_entry *e);
/* Compare the checksum with e->len bytes at from + LOG_HEADER. */
bool log_entry_intact(const struct log_super *s, const unsigned char *from,
		      const struct log_entry *e);

/* The store that makes lsn the tail, as the turn-th one. */
struct log_places {
	uint64_t value[LOG_PLACES];
	unsigned int next;
};
void log_places_store(struct log_places *p, uint32_t layout, uint64_t lsn,
		      uint64_t *offset, uint64_t *value);
/* The tail that the bytes of all places hold. */
uint64_t log_places_load(struct log_places *p, uint32_t layout,
			 const unsigned char *from);

#endif
