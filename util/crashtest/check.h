/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs the check on images, several at a time. */
#ifndef RP_CRASH_CHECK_H
#define RP_CRASH_CHECK_H

#include <sys/types.h>

#include "util/crashtest/history.h"

#define CRASH_OUTPUT 4096
#define CRASH_FAULT  512
#define CRASH_JOBS   256

struct crash_job {
	struct crash_image image;
	int status; /* of the check; 128 + N: signal N; 124: out of time */
	char *output;
	bool timed_out;
	bool untested; /* the tool itself has failed: the status is void */
	bool all_acks; /* the ledger has the lines of the whole run */
	struct crash_job *next;
};

struct crash_slot {
	pid_t pid; /* 0: free */
	uint64_t deadline;
	char dir[512];
	char *fault; /* shared with the child: why it cannot run the check */
	struct crash_job *job;
};

struct crash_checker {
	const struct crash_history *history;
	const char *command; /* of sh, as the user gave it */
	const char *wrapper; /* script around it; NULL: none */
	bool mounts;	     /* each check has a mount namespace */
	const char *work;    /* folder for images */
	unsigned int jobs;
	uint64_t timeout; /* milliseconds */
	struct crash_slot slots[CRASH_JOBS];
	uint64_t *hashes; /* of images that were checked; open addressing */
	size_t hash_count, hash_room;
	uint64_t number, runs;
	char err[CRASH_FAULT]; /* why no check can be run; else empty */
};

/* A job with a copy of the image; NULL: no memory. */
struct crash_job *crash_job_make(const struct crash_history *h,
				 const struct crash_image *i);
void crash_job_free(struct crash_job *job);

/*
 * Start the check of a job as soon as a slot is free. only_new: skip an image
 * that was checked before. Returns whether the check was started. If the tool
 * itself fails at a check, c->err has the reason, the job is untested, and no
 * further check is started. A wrapper reports such a failure by a file
 * CRASH_UNTESTED in its work folder, and names by a file CRASH_LOOP there a
 * loop device that is to be detached if the wrapper is killed.
 */
#define CRASH_UNTESTED "untested"
#define CRASH_LOOP     "loop"
bool crash_check_start(struct crash_checker *c, struct crash_job *job,
		       bool only_new);
void crash_check_finish(struct crash_checker *c);
void crash_checker_free(struct crash_checker *c);

/* Write an image, and the ledger up to a cut, into dir/image and dir/ledger. */
int crash_check_write(struct crash_checker *c, uint32_t cut,
		      const struct crash_tree *t, const char *dir);
void crash_remove(const char *dir);

#endif
