/* SPDX-License-Identifier: BSD-2-Clause */
/* A provider that runs programs, in a process of its own. */
#ifndef RP_TEST_TRANSPARENT_SIDE_H
#define RP_TEST_TRANSPARENT_SIDE_H

#include <sys/types.h>

#include "functional/transparent.h"

#define TP_BATCH     25 /* programs that share domains */
#define TP_PER_SETUP 5	/* programs that share endpoints; divides TP_BATCH */

/* The programs [from, end) of a seed; from is the first one of a stage. */
struct tp_programs {
	const char *base;
	uint64_t seed, from, end;
};
void tp_run_plan(const struct tp_programs *of, struct tp_plan *p, uint64_t i,
		 const struct tp_features *f);

struct tp_runner {
	pid_t pid;
	int in, out;
};

/*
 * The trace of one program. stuck: an event that is due never happened; NULL:
 * the runner died.
 */
struct tp_result {
	char *text;
	bool stuck;
};

/* layered: run on base;ofi_rpmem, otherwise on the bare base. */
void tp_side_start(struct tp_runner *r, const struct tp_programs *of,
		   bool layered);
/*
 * Get the features of the side; false: it did not start. Then send the
 * programs.
 */
bool tp_side_offer(struct tp_runner *r, struct tp_features *f,
		   struct tp_result *offer);
void tp_side_go(struct tp_runner *r, const struct tp_features *f);
/* Get the result of the next program; a stuck program is the last one. */
void tp_side_next(struct tp_runner *r, struct tp_result *result);
/* Stop the runner, at once if now is true. Returns its exit status. */
int tp_side_stop(struct tp_runner *r, bool now);

#endif
