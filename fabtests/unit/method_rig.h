/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Generates every combination of facts, and has the methods that
 * docs/guarantees.md promises for each.
 */
#ifndef RP_TEST_METHOD_RIG_H
#define RP_TEST_METHOD_RIG_H

#include <stdbool.h>
#include <stddef.h>

#include "core/caps.h"
#include "core/method.h"

#define ALL_BUILT ((1u << RP_METHOD_MAX) - 2)
#define COUNT(a)  (sizeof(a) / sizeof((a)[0]))

#define MEMORIES   8
#define PLACEMENTS 5
#define DOMAINS	   5

extern const enum rp_tri tris[3];

/* Describe a case for a failure message; valid until the next call. */
const char *show(const struct rp_facts *f, enum rp_class required,
		 unsigned int built);

/*
 * A check of one combination of facts, class and build. for_all() calls it for
 * every combination of one build.
 */
typedef void (*judge_fn)(const struct rp_facts *f, enum rp_class required,
			 unsigned int built);
void for_all(judge_fn judge, unsigned int built);

/*
 * The text of docs/guarantees.md as a chain of questions: the methods that it
 * offers for these facts, the cheapest first.
 */
struct offers {
	enum rp_refusal refusal; /* why the prose offers no method */
	struct {
		enum rp_method how;
		enum rp_class class;
	} v[8];
	int n;
};
struct offers offers_of(const struct rp_facts *f);

#endif
