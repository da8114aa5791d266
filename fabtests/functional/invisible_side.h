/* SPDX-License-Identifier: BSD-2-Clause */
/* A provider that runs programs, in a process of its own. */
#ifndef RP_TEST_INVISIBLE_SIDE_H
#define RP_TEST_INVISIBLE_SIDE_H

#include <sys/types.h>

#include "functional/invisible.h"

#define INV_BATCH 25 /* programs that share domains */
#define INV_STAGE 5  /* programs that share endpoints; divides INV_BATCH */

/* Programs [from, end) of a seed; from begins a stage. */
struct inv_programs {
	const char *base;
	uint64_t seed, from, end;
};
void inv_run_plan(const struct inv_programs *of, struct inv_plan *p, uint64_t i,
		  const struct inv_features *f);

struct inv_runner {
	pid_t pid;
	int in, out;
};

/*
 * The trace of one program. stuck: something that is due never happened; NULL:
 * the runner died.
 */
struct inv_result {
	char *text;
	bool stuck;
};

/* layered: on base;ofi_rpmem. */
void inv_side_start(struct inv_runner *r, const struct inv_programs *of,
		    bool layered);
/* Get its features; false: it did not start. Then send the programs. */
bool inv_side_offer(struct inv_runner *r, struct inv_features *f,
		    struct inv_result *offer);
void inv_side_go(struct inv_runner *r, const struct inv_features *f);
/* In order; a program that is stuck is the last one. */
void inv_side_next(struct inv_runner *r, struct inv_result *result);
/* Stop the runner; now: at once. Returns its exit status. */
int inv_side_stop(struct inv_runner *r, bool now);

#endif
