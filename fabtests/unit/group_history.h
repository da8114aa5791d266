/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writers of a group of pools in memory, and what was promised to them: what
 * each has read, written and committed. No acknowledged write is lost, later
 * writers read what an earlier one has read, and in the end all members hold
 * the same bytes.
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
	HISTORY_STORE, /* a commit with a store behind it */
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
/* Whether a writer has opened the group and has read all cells. */
bool history_writer_reads(unsigned int w);
/* The number of a writer's outstanding operations. */
unsigned int history_writer_busy(unsigned int w);
/* The error with which the group of a writer has ended, or 0. */
int history_writer_ret(unsigned int w);
/* Submit an operation. False: not now, because it meets an outstanding one. */
bool history_submit(unsigned int w, const struct history_op *op);
/*
 * One event of the rig; submit() is then called for each writer that has read
 * all. A new writer follows the last one when its group ends.
 */
void history_step(void (*submit)(unsigned int w));
/* With all members up, the last writer reads all; members become equal. */
void history_finish(void);

#endif
