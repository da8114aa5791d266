/* SPDX-License-Identifier: BSD-2-Clause */
/* The folder, block device or pool that a tested program runs on. */
#ifndef RP_CRASH_MODES_H
#define RP_CRASH_MODES_H

#include "util/crashtest/check.h"
#include "util/crashtest/record.h"

enum crash_mode {
	CRASH_FILES = 1,
	CRASH_DEVICE,
	CRASH_POOL,
};

#define CRASH_FILTERS 16

struct crash_run {
	enum crash_mode mode;
	const char *folder; /* of --files */
	uint64_t size;	    /* of a device or a pool */
	const char *fs, *mount_options, *setup;
	const char
		*filters[CRASH_FILTERS]; /* of nbdkit, and their parameters */
	unsigned int filter_count;
	char work[256];	  /* folder of this run */
	char daemon[512]; /* fi_rpmemd */
	struct crash_recorder *recorder;
	pid_t service, fuse;
	char err[1024];
};

/*
 * Make what COMMAND runs on, and start to record. Returns 0, or -1 and the
 * reason in run->err.
 */
int crash_mode_start(struct crash_run *run);
/*
 * After COMMAND has ended: unmount its file system, which writes what was only
 * in memory, and record that. A cut after the last event then loses nothing.
 */
void crash_mode_write_back(struct crash_run *run);
/* Stop recording, and remove all that crash_mode_start() has made. */
void crash_mode_stop(struct crash_run *run);
/* Fill in COMMAND's environment, with strings in static memory. */
void crash_mode_env(const struct crash_run *run, char *env[4]);
/* Set the environment that checks of an earlier run need. */
void crash_mode_repeat(const struct crash_run *run);
void crash_mode_checker(const struct crash_run *run, struct crash_checker *c);

#endif
