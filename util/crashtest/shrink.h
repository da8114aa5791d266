/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds the fewest lost writes with which a check still fails. */
#ifndef RP_CRASH_SHRINK_H
#define RP_CRASH_SHRINK_H

#include "util/crashtest/check.h"

#define CRASH_SHRINK_RUNS 200u /* checks for one failure, about */

struct crash_shrunk {
	struct crash_job *job; /* the smallest one that fails */
	size_t lost, kept;     /* undecided pieces of it */
	bool stable;	       /* it has failed again, in each of 1 or 2 runs */
	bool limited; /* CRASH_SHRINK_RUNS, memory or c->err ended the search */
};

/* Take a job that has failed. 0 or a negative errno. */
int crash_shrink(struct crash_checker *c, const struct crash_job *failed,
		 struct crash_shrunk *s);

#endif
