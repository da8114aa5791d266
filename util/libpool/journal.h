/* SPDX-License-Identifier: BSD-2-Clause */
/* Copies of the writes that no commit covers yet, in posting order. */
#ifndef RP_LIBPOOL_JOURNAL_H
#define RP_LIBPOOL_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct work;

/* One write, or a part of it. */
struct rp_journal_entry {
	uint64_t offset; /* offset in the pool */
	uint64_t pos;	 /* position of the bytes, counted over all entries */
	uint32_t len;
	bool zero;	   /* zeros, without bytes in the ring */
	bool placed;	   /* the post has completed */
	bool durably;	   /* posted as a durable write */
	bool durable;	   /* the durable write of the entry has completed */
	bool last;	   /* durably, older entries of its bytes were placed */
	bool buffered;	   /* the write completed earlier than the post */
	struct work *work; /* write to complete with this entry, or NULL */
};

/*
 * Entries have sequence numbers from `first` to `next` - 1. Their bytes are in
 * a ring. An entry is freed when it is placed and durable (by itself, or by a
 * commit up to `committed`), and all entries before it are too.
 */
struct rp_journal {
	char *bytes;
	uint64_t size;	     /* bytes of the ring */
	uint64_t head, tail; /* range of used positions */
	uint64_t zeros;	     /* bytes of entries that are zeros */
	struct rp_journal_entry *v;
	uint64_t cap; /* capacity of v, a power of two */
	uint64_t first, next, committed;
	uint64_t placed; /* all entries below are placed */
};

/* Most entries: limits the memory for short writes. */
#define RP_JOURNAL_ENTRIES (1u << 17)

/* Returns 0 or -ENOMEM. The kernel allocates the ring's memory on first use. */
int rp_journal_init(struct rp_journal *j, uint64_t size);
void rp_journal_fini(struct rp_journal *j);

/*
 * Append a copy of len bytes (1 to half of the size), or len zeros (from NULL).
 * Returns 0 and the entry's number, -EAGAIN: the journal is full; -ENOMEM.
 */
int rp_journal_append(struct rp_journal *j, uint64_t offset, const void *from,
		      uint32_t len, struct work *work, uint64_t *seq);
/*
 * The newest entry is a durable write. A later commit can leave out its bytes
 * only if all older entries of these bytes are placed now: one that is placed
 * behind it is not durable.
 */
void rp_journal_set_durably(struct rp_journal *j, uint64_t seq);
/* Remove the newest entry, which must not have been posted. */
void rp_journal_unappend(struct rp_journal *j);
struct rp_journal_entry *rp_journal_at(struct rp_journal *j, uint64_t seq);
char *rp_journal_bytes(struct rp_journal *j, const struct rp_journal_entry *e);

/* A commit of all entries below upto has completed: free entries. */
void rp_journal_commit(struct rp_journal *j, uint64_t upto);
/* Free the oldest entries that are placed and durable. */
void rp_journal_trim(struct rp_journal *j);
/* Whether half of the journal is in use. */
bool rp_journal_half_full(const struct rp_journal *j);
/* Bytes of all entries together. */
uint64_t rp_journal_used(const struct rp_journal *j);

/* A range of the pool. */
struct rp_journal_range {
	uint64_t offset, len;
};
/*
 * The ranges of the entries from..upto-1 that are not durable by themselves,
 * without the bytes that a newer entry made durable: sorted, disjoint. Returns
 * 0 or -ENOMEM; the caller frees *v. A commit must not cover those bytes: an
 * older write, or a store, that was lost there poisons them, and a replay does
 * not write them again.
 */
int rp_journal_ranges(struct rp_journal *j, uint64_t from, uint64_t upto,
		      struct rp_journal_range **v, size_t *n);

/* Bytes to write again after a loss. */
struct rp_journal_piece {
	uint64_t offset;
	const char *bytes; /* NULL: write zeros */
	uint32_t len;
};
/*
 * The pieces to write to a target that lost every write: the newest copy of
 * each byte in the journal, unless that copy is durable. They are disjoint.
 * Returns 0 or -ENOMEM; the caller frees *v.
 */
int rp_journal_plan(struct rp_journal *j, struct rp_journal_piece **v,
		    size_t *n);

#endif
