/* SPDX-License-Identifier: BSD-2-Clause */
/* Encoding of a log in its pool: docs/protocol.md. */
#ifndef RP_LIBLOG_FORMAT_H
#define RP_LIBLOG_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_VERSION 2

/*
 * The pool begins with two superblocks, LOG_SLOT apart, written alternately:
 * the one with the higher turn is valid, and a torn one fails its checksum. Ten
 * tail words follow, and then the ring. The entry with LSN l begins at byte
 * l % ring of the ring.
 */
#define LOG_SLOT	4096u
#define LOG_PLACES_AT	8192u
#define LOG_PLACE	256u
#define LOG_PLACES	10u
#define LOG_RING_AT	12288u
#define LOG_RING_MIN	4096u
#define LOG_SUPER_BYTES 96u
#define LOG_HEADER	32u /* bytes of the header before an entry's data */
#define LOG_ALIGN	64u
#define LOG_FIRST	64u /* LSN of the first entry; 0 is RPMEM_LOG_HEAD */

struct log_super {
	uint32_t layout; /* enum rpmem_log_layout */
	uint64_t id;	 /* random; seeds all checksums */
	uint64_t ring;	 /* bytes, a multiple of LOG_ALIGN */
	uint64_t turn;
	/*
	 * Epoch of every entry from the mark on. The next writer sets the mark
	 * to the end that it found: entries after that end, which were never
	 * acknowledged, stay invalid for ever.
	 */
	uint64_t epoch;
	uint64_t head; /* LSN of the first entry */
	uint64_t mark; /* all entries below this LSN are durable */
	uint32_t logs; /* logs in the pool; 0: unknown, in version 1 */
	uint32_t log;  /* number of this log in the pool, from 0 on */
};

struct log_entry {
	uint64_t lsn;
	uint64_t durable; /* LSN: the log's durable end at the append */
	uint64_t epoch;
	uint32_t len;  /* bytes after the header */
	bool pad;      /* padding: the next entry is at the ring's start */
	uint64_t next; /* decoded: LSN after the entry */
};

void log_super_encode(const struct log_super *s,
		      unsigned char to[LOG_SUPER_BYTES]);
/*
 * Returns 0; -ENODATA: no superblock; -EMEDIUMTYPE: one of librpmem_rpc;
 * -EBADMSG: a damaged one; -EPROTONOSUPPORT: an intact one of a version that
 * is not read. Numbers have 63 bits, so that sums cannot wrap.
 */
int log_super_decode(const unsigned char from[LOG_SUPER_BYTES],
		     struct log_super *s);

/* Bytes that an entry with len bytes of data takes in the ring. */
static inline uint64_t log_entry_size(uint64_t len)
{
	return (LOG_HEADER + len + LOG_ALIGN - 1) / LOG_ALIGN * LOG_ALIGN;
}

static inline uint64_t log_ring_left(const struct log_super *s, uint64_t lsn)
{
	return s->ring - lsn % s->ring;
}

/* Most bytes of one entry: an empty log has room for it at any position. */
uint64_t log_entry_max(const struct log_super *s);

/* Write the header before len bytes that are already at to + LOG_HEADER. */
void log_entry_encode(const struct log_super *s, const struct log_entry *e,
		      unsigned char *to);
/*
 * Decode the header expected at LSN lsn. False: no entry of this log begins
 * there. Does not verify the checksum.
 */
bool log_entry_decode(const struct log_super *s, const unsigned char *from,
		      uint64_t lsn, struct log_entry *e);
/*
 * Decode the header at byte `at` of the ring. True: the entry, if it is intact,
 * proves that a newer superblock than s was written, because it has a later
 * epoch, or is in space that s has not freed.
 */
bool log_entry_decode_newer(const struct log_super *s,
			    const unsigned char *from, uint64_t at,
			    struct log_entry *e);
/* Verify the checksum of e->len bytes at from + LOG_HEADER. */
bool log_entry_intact(const struct log_super *s, const unsigned char *from,
		      const struct log_entry *e);

/* The tail words; a store of *value at *offset makes lsn the tail. */
struct log_places {
	uint64_t value[LOG_PLACES];
	unsigned int next;
};
void log_places_store(struct log_places *p, uint32_t layout, uint64_t lsn,
		      uint64_t *offset, uint64_t *value);
/* Load the tail words; returns the tail, which depends on the layout. */
uint64_t log_places_load(struct log_places *p, uint32_t layout,
			 const unsigned char *from);

#endif
