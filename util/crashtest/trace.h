/* SPDX-License-Identifier: BSD-2-Clause */
/* Stops the threads of a program at system calls that change files. */
#ifndef RP_CRASH_TRACE_H
#define RP_CRASH_TRACE_H

#include <signal.h>

#include "util/crashtest/record.h"

/* One system call of a thread, from its entry to its exit. */
struct crash_call {
	pid_t tid;
	uint64_t nr;
	uint64_t args[6];
	struct crash_file *file;
	struct crash_place place, place2;
	uint64_t offset; /* of an output, as the caller has given it */
	bool has_offset;
	/* The parts of files that an msync covers. */
	struct {
		struct crash_file *file;
		uint64_t offset, length;
	} parts[16];
	unsigned int part_count;
};

/* 1: a signal has ended the run. 2: COMMAND was killed for it. */
extern volatile sig_atomic_t crash_interrupted;

/* Install the filter in this process, which then executes a program. */
int crash_filter_install(void);
/* Does the call change something that is recorded? */
bool crash_call_begin(struct crash_recorder *r, struct crash_call *c);
/* It has returned ret, or its thread has died in it (dead). */
void crash_call_end(struct crash_recorder *r, struct crash_call *c, int64_t ret,
		    bool dead);

/*
 * Start a program whose calls are recorded, with env added ("NAME=VALUE", ends
 * with NULL). Returns its process, or a negative errno.
 */
pid_t crash_trace_start(char *const argv[], char *const env[],
			const char *output);
/* The same, not recorded. */
pid_t crash_plain_start(char *const argv[], char *const env[],
			const char *output);
/*
 * Serve all recorded threads until a child process has ended, or is ready: the
 * file exists. Returns its wait status, 0 when it is ready.
 */
int crash_trace_until(struct crash_recorder *r, pid_t pid, const char *ready);
/* Kill all recorded processes; keep, and what it has started, stay. 0: none. */
unsigned int crash_trace_kill(struct crash_recorder *r, pid_t keep);

#endif
