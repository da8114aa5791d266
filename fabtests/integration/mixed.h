/* SPDX-License-Identifier: BSD-2-Clause */
/* Where mixed.c writes what, what it notes, and its commits by libfabric. */
#ifndef MIXED_H
#define MIXED_H

#include <stddef.h>
#include <stdint.h>

enum {
	MIXED_RANKS = 8,
	MIXED_SLOT = 2048,
	MIXED_SLOTS = 64, /* of each initiator and kind at each target */
	MIXED_WINDOW = MIXED_RANKS * MIXED_SLOTS * MIXED_SLOT,
	MIXED_POOL = 2 * MIXED_WINDOW,
};

enum {
	MIXED_PUT,    /* into the window, and MPI_Win_flush() */
	MIXED_COMMIT, /* behind it, by libfabric */
	MIXED_KINDS,
	MIXED_MESSAGE = MIXED_KINDS, /* received */
};

/* Only appended to, by its rank; it is in the page cache when write() returns.
 */
struct mixed_note_file {
	int fd;
	uint32_t life;
};

/* Also reads what is there: where this rank goes on, of each kind and target.
 */
void mixed_note_open(struct mixed_note_file *, const char *dir, int rank,
		     uint32_t life, uint32_t next[MIXED_KINDS][MIXED_RANKS]);
void mixed_note(const struct mixed_note_file *, int kind, int peer,
		uint32_t seq);

/* Where in the target's pool, and the bytes: returns how many, a multiple of 8.
 */
size_t mixed_place(int kind, int from, uint32_t seq);
size_t mixed_record(uint8_t *buf, int kind, int from, int to, uint32_t seq,
		    uint32_t life);

/* Is all that was noted in DIR/WHICH.RANK? Prints how much. */
int mixed_verify(const char *dir, const char *which);

/* All ranks: register the second half of the pool, and find one another. */
void mixed_direct_open(uint8_t *pool);
/* Returns when it is durable; apart: a plain write, and then a commit. */
void mixed_direct_write(int to, const void *, size_t len, size_t place,
			int apart);

#endif
