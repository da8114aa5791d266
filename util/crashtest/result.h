/* SPDX-License-Identifier: BSD-2-Clause */
/* The result of a run as JSON. */
#ifndef RP_CRASH_RESULT_H
#define RP_CRASH_RESULT_H

#include <jansson.h>

#include "util/crashtest/sample.h"
#include "util/crashtest/shrink.h"

struct crash_outcome {
	const struct crash_history *history;
	char *const *command;
	const char *mode;
	const char *verdict;
	const char *reason;
	const struct crash_sample *sample;
	uint64_t checked, failed;
	unsigned int killed;		   /* processes of COMMAND at its end */
	const struct crash_shrunk *shrunk; /* NULL: none */
	const char *repeat;		   /* command line; with shrunk */
};

json_t *crash_result_json(const struct crash_outcome *r);

#endif
