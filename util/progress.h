/* SPDX-License-Identifier: BSD-2-Clause */
/* Progress bar of a copy: one line on a terminal. */
#ifndef RP_UTIL_PROGRESS_H
#define RP_UTIL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool on; /* standard error is a terminal */
	const char *verb;
	uint64_t total;
	uint64_t began; /* ms */
	uint64_t drawn; /* ms */
};

/* Start the bar. quiet: never draw. */
void progress_begin(struct progress *p, const char *verb, uint64_t total,
		    bool quiet);
/* Cheap to call often: redraws five times a second. */
void progress_at(struct progress *p, uint64_t done);
/* Erase the line, so that later output starts at its beginning. */
void progress_end(struct progress *p);

#endif
