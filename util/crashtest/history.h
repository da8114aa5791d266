/* SPDX-License-Identifier: BSD-2-Clause */
/* When each write of a record is durable, and which images a cut may leave. */
#ifndef RP_CRASH_HISTORY_H
#define RP_CRASH_HISTORY_H

#include "util/crashtest/runlog.h"

#define CRASH_SECTOR 512u
#define CRASH_BLOCK  4096u /* sector of a device */
#define CRASH_WORD   8u
#define CRASH_PAGE   4096u

/*
 * The part of a write inside one sector, or of a store inside one unit of
 * crash_log.store. A cut keeps or loses a piece as a whole. The mask has a bit
 * for each word of the sector that is lost or kept with the piece.
 */
struct crash_piece {
	uint32_t event, inode;
	uint64_t offset, mask;
	uint32_t length;
	uint32_t durable_at; /* event of its flush; CRASH_NONE: no flush */
	/* Size to which it extends the file inside its last page; 0: none. */
	uint64_t grown;
};

struct crash_history {
	const struct crash_log *log;
	struct crash_piece *pieces;
	size_t piece_count;
	uint32_t *first_piece; /* of each event; then piece_count as the end */
	uint32_t *meta;	       /* the events that change metadata */
	size_t meta_count;
	uint32_t *meta_made;	/* number of meta up to each event, included */
	uint32_t *meta_durable; /* how many of these are durable after it */
	uint32_t *acks;	 /* lines acknowledged up to each event, included */
	uint64_t *sizes; /* the largest size of each inode */
};

int crash_history_make(struct crash_history *h, const struct crash_log *log);
void crash_history_free(struct crash_history *h);
/* The flush after which an event is durable; CRASH_NONE: no flush. */
uint32_t crash_durable_at(const struct crash_history *h, uint32_t event);

/*
 * One image of a cut directly after event `cut`. Of the operations on metadata
 * up to there the first `meta` are kept; the pieces with a bit in `lost` are
 * lost. A lost piece of an event before `zeros` still extends the file to its
 * `grown`, by zeros: the journal has the sizes up to there, for all files.
 */
struct crash_image {
	uint32_t cut, meta;
	uint32_t zeros;
	uint64_t *lost; /* a bit for each piece of the history */
};

static inline bool crash_bit(const uint64_t *bits, size_t i)
{
	return bits[i / 64] >> (i % 64) & 1;
}

static inline void crash_set(uint64_t *bits, size_t i)
{
	bits[i / 64] |= UINT64_C(1) << (i % 64);
}

static inline void crash_clear(uint64_t *bits, size_t i)
{
	bits[i / 64] &= ~(UINT64_C(1) << (i % 64));
}

static inline size_t crash_words(const struct crash_history *h)
{
	return h->piece_count / 64 + 1;
}

/* Whether a cut decides on a piece: it is written there, and not durable. */
static inline bool crash_undecided(const struct crash_history *h, uint32_t cut,
				   size_t piece)
{
	return h->pieces[piece].event <= cut &&
	       h->pieces[piece].durable_at > cut;
}

/*
 * Make an image legal: keep what is durable, and lose a piece if an earlier
 * piece of the same bytes is lost. Lower `zeros` as far as the image stays the
 * same. Returns how many pieces are lost, or
 * CRASH_NO_MEMORY: the image may not be legal then.
 */
#define CRASH_NO_MEMORY SIZE_MAX
size_t crash_image_settle(const struct crash_history *h, struct crash_image *i);

/* A folder tree in memory. */
struct crash_node {
	char *data; /* of a file: as many bytes as its largest size */
	uint64_t size;
	uint64_t limit; /* least size of the lost truncations so far */
};

struct crash_entry {
	uint32_t dir, inode;
	const char *name;
};

struct crash_tree {
	const struct crash_history *history;
	struct crash_node *nodes; /* one for each inode of the log */
	struct crash_entry *entries;
	size_t entry_count, entry_room;
};

int crash_tree_make(struct crash_tree *t, const struct crash_history *h,
		    const struct crash_image *i);
void crash_tree_free(struct crash_tree *t);
uint64_t crash_tree_hash(const struct crash_tree *t);
/* Write it below an empty folder. 0 or a negative errno. */
int crash_tree_write(const struct crash_tree *t, const char *folder);
/* Compare with a folder: NULL, or the path that differs (static storage). */
const char *crash_tree_compare(const struct crash_tree *t, const char *folder);

#endif
