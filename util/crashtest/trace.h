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
	struct crash_file *file, *file2;
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

/* 1: a signal has interrupted the run. 2: COMMAND was then killed, too. */
extern volatile sig_atomic_t crash_interrupted;

/* Install the filter in this process, which then executes a program. */
int crash_filter_install(void);
/* Called at a call's entry. Returns whether its end must be recorded. */
bool crash_call_begin(struct crash_recorder *r, struct crash_call *c);
/* Record that a call has returned ret, or that its thread has died in it. */
void crash_call_end(struct crash_recorder *r, struct crash_call *c, int64_t ret,
		    bool dead);

/*
 * Start a program whose calls are recorded, with env added ("NAME=VALUE", ends
 * with NULL). Returns its process, or a negative errno.
 */
pid_t crash_trace_start(char *const argv[], char *const env[],
			const char *output);
/* Start a program as crash_trace_start() does, but do not record its calls. */
pid_t crash_plain_start(char *const argv[], char *const env[],
			const char *output);
/*
 * Serve all recorded threads until the child process pid has ended, or the file
 * `ready` exists. Returns the wait status of pid, or 0 if the file exists.
 */
int crash_trace_until(struct crash_recorder *r, pid_t pid, const char *ready);
/* Kill all recorded processes but `keep` (0: none) and its children. */
unsigned int crash_trace_kill(struct crash_recorder *r, pid_t keep);

#endif
