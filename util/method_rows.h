/* SPDX-License-Identifier: BSD-2-Clause */
/* The method table as words, for docs/guarantees.md. */
#ifndef RP_METHOD_ROWS_H
#define RP_METHOD_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/method.h"

/* One row of the table, in the words of docs/guarantees.md. */
struct rp_method_words {
	char memory[64], placement[64], domain[64];
	char needs[32];	 /* "fence", "native", "untrusted", or "" */
	char method[64]; /* method, or "refused: why" */
	char class[16];	 /* class; "" for a refusal */
};
/*
 * Describe row i; the last one stands for facts that match no row. False: the
 * table has fewer rows.
 */
bool rp_method_row(size_t i, struct rp_method_words *w);

const char *rp_refusal_name(enum rp_refusal r);

#endif
