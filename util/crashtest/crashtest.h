/* SPDX-License-Identifier: BSD-2-Clause */
/* A run of fi_rpmem_crashtest. */
#ifndef RP_CRASHTEST_H
#define RP_CRASHTEST_H

#include "util/crashtest/modes.h"
#include "util/crashtest/sample.h"
#include "util/crashtest/shrink.h"

enum crash_exit {
	CRASH_EXIT_ACQUITTED = 0,
	CRASH_EXIT_CONVICTED = 1,
	CRASH_EXIT_NOT_TESTED = 2,
};

struct crash_options {
	char **command;
	const char *check, *keep, *log, *image, *report;
	const char *json, *html;
	uint64_t images, seed, timeout;
	unsigned int jobs;
	bool any_status;
	struct crash_run run;
};

struct crash_test {
	struct crash_options *o;
	struct crash_recorder recorder;
	struct crash_log log;
	struct crash_history history;
	struct crash_checker checker;
	struct crash_sample sample;
	struct crash_job *jobs; /* all that were checked */
	struct crash_shrunk shrunk;
	uint64_t checked, failed;
	unsigned int killed; /* processes of COMMAND at its end */
	int command_status;
	char reason[1024];
	char *repeat;
};

/* Steps of a run: 0, or -1 and in t->reason why nothing can be concluded. */
int crash_test_record(struct crash_test *t);
int crash_test_explore(struct crash_test *t);
int crash_test_repeat(struct crash_test *t);
void crash_test_free(struct crash_test *t);

#endif
