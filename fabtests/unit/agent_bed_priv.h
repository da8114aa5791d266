/* SPDX-License-Identifier: BSD-2-Clause */
/* Declarations that the files agent_bed*.c share. */
#ifndef RP_TEST_AGENT_BED_PRIV_H
#define RP_TEST_AGENT_BED_PRIV_H

#include <stdio.h>
#include <stdlib.h>

#include "agent_bed.h"

/*
 * A check for all threads: the worker thread may not use Criterion's asserts.
 */
#define MUST(cond)                                                             \
	do {                                                                   \
		if (!(cond)) {                                                 \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__,     \
				#cond);                                        \
			abort();                                               \
		}                                                              \
	} while (0)

/* Ranges that must be on media when the agent sends OK to this request. */
struct bed_promise {
	struct bed_promise *next;
	struct bed_channel *c;
	uint64_t token;
	size_t n;
	struct bed_at at[RP_WIRE_MAX_RANGES];
};

#endif
