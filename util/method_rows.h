/* SPDX-License-Identifier: BSD-2-Clause */
/* The method table in words, as docs/guarantees.md has it. */
#ifndef RP_METHOD_ROWS_H
#define RP_METHOD_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/method.h"

/* One row of the table in the words of docs/guarantees.md. */
struct rp_method_words {
	char memory[64], placement[64], domain[64];
	char needs[32];	 /* facts, comma separated */
	char method[64]; /* or "refused: why" */
	char class[16];	 /* "" for a refusal */
};
/* False: i is behind the last row. */
bool rp_method_row(size_t i, struct rp_method_words *w);

const char *rp_refusal_name(enum rp_refusal r);

#endif
