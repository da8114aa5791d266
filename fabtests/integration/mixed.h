/* SPDX-License-Identifier: BSD-2-Clause */
/* Offsets of mixed.c's records, its notes, and its commits by libfabric. */
#ifndef MIXED_H
#define MIXED_H

#include <stddef.h>
#include <stdint.h>

enum {
	MIXED_RANKS = 8,
	MIXED_SLOT = 2048,
	MIXED_SLOTS = 64, /* slots by initiator, target and kind */
	MIXED_WINDOW = MIXED_RANKS * MIXED_SLOTS * MIXED_SLOT,
	MIXED_POOL = 2 * MIXED_WINDOW,
};

enum {
	MIXED_PUT,    /* MPI_Put() and MPI_Win_flush() */
	MIXED_COMMIT, /* by libfabric, after the window's bytes */
	MIXED_KINDS,
	MIXED_MESSAGE = MIXED_KINDS, /* a received message */
};

/*
 * A rank's notes. They are only appended, by write(): the page cache survives a
 * kill.
 */
struct mixed_note_file {
	int fd;
	uint32_t incarnation;
};

/* Open the notes. next: the number of the next record, by kind and target. */
void mixed_note_open(struct mixed_note_file *, const char *dir, int rank,
		     uint32_t incarnation,
		     uint32_t next[MIXED_KINDS][MIXED_RANKS]);
void mixed_note(const struct mixed_note_file *, int kind, int peer,
		uint32_t seq);

/*
 * mixed_place() returns the record's offset in the target's pool.
 * mixed_record() makes the record and returns its length, a multiple of 8.
 */
size_t mixed_place(int kind, int from, uint32_t seq);
size_t mixed_record(uint8_t *buf, int kind, int from, int to, uint32_t seq,
		    uint32_t incarnation);

/* Does DIR/WHICH.RANK hold every noted record? Prints counts. */
int mixed_verify(const char *dir, const char *which);

/*
 * On all ranks: register the second half of the pool, and exchange addresses.
 */
void mixed_direct_open(uint8_t *pool);
/* Return when the bytes are durable. apart: a plain write, then a commit. */
void mixed_direct_write(int to, const void *, size_t len, size_t place,
			int apart);

#endif
