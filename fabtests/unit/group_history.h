/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checks a random history of writers of a group of pools (group_rig.h): what
 * each has read, written and committed. No acknowledged write may be lost,
 * later writers must read what an earlier one has read, and in the end all
 * members must hold the same bytes.
 */
#ifndef RP_TEST_GROUP_HISTORY_H
#define RP_TEST_GROUP_HISTORY_H

#include <stdio.h>

#include <criterion/criterion.h>

#include "group_rig.h"

#define HISTORY_OPS 8u /* most outstanding operations of a writer */

/* The name of the run in failure messages. */
extern char history_run[128];
extern struct rig rig;

#define CHECK(c, ...)                                                          \
	do {                                                                   \
		if (!(c)) {                                                    \
			char text[256];                                        \
			snprintf(text, sizeof(text), __VA_ARGS__);             \
			cr_assert(false, "%s: %s", history_run, text);         \
		}                                                              \
	} while (0)

enum history_kind {
	HISTORY_WRITE,
	HISTORY_DURABLE,
	HISTORY_READ,
	HISTORY_COMMIT,
	HISTORY_STORE, /* a commit with an ordered store */
};

/* An operation on n cells of 8 bytes; n of HISTORY_STORE is 1. */
struct history_op {
	enum history_kind kind;
	unsigned int cell, n;
};

/* Start a run with one writer, which begins to open the group. */
void history_start(uint64_t seed, unsigned int n, unsigned int k);
unsigned int history_writer_new(void);
void history_writer_kill(unsigned int w);
/* Has this writer opened the group and read all cells? */
bool history_writer_reads(unsigned int w);
/* The number of a writer's outstanding operations. */
unsigned int history_writer_busy(unsigned int w);
/* The error with which the group of a writer has ended, or 0. */
int history_writer_ret(unsigned int w);
/* Submit an operation. Returns false if it overlaps an outstanding one. */
bool history_submit(unsigned int w, const struct history_op *op);
/*
 * Let one event of the rig happen, then call submit() for each writer that has
 * read all cells. If the last writer's group ends, start a new writer.
 */
void history_step(void (*submit)(unsigned int w));
/*
 * Bring all members up, let the last writer read all cells, and check that all
 * members hold the same bytes.
 */
void history_finish(void);

#endif
