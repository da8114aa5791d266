/* SPDX-License-Identifier: BSD-2-Clause */
/* Progress bar of a copy, in one line of a terminal. */
#ifndef RP_UTIL_PROGRESS_BAR_H
#define RP_UTIL_PROGRESS_BAR_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool on; /* standard error is a terminal */
	const char *verb;
	uint64_t total;
	uint64_t began; /* time of the start, in ms */
	uint64_t drawn; /* time of the last redraw, in ms */
};

/* Start the bar. quiet: never draw. */
void progress_begin(struct progress *p, const char *verb, uint64_t total,
		    bool quiet);
/* Redraws five times a second at most, so it may be called often. */
void progress_at(struct progress *p, uint64_t done);
/* Erase the bar, so that later output starts at the beginning of its line. */
void progress_end(struct progress *p);

#endif
