/* SPDX-License-Identifier: BSD-2-Clause */
/* Scenarios of the verdicts as the crash matrix runs them. */
#ifndef CRASH_CELLS_H
#define CRASH_CELLS_H

#include "crash_world.h"
#include "fault/verdicts.h"

/* Does the provider implement this method as the verdicts define the method? */
bool crash_built(const struct verdict_cell *cell,
		 const struct verdict_method *m);

/* Does this method bypass the provider? */
bool crash_inplace(const struct verdict_cell *cell,
		   const struct verdict_method *m);

/*
 * Variant n of a cell. Variants differ in the value of an unknown fact, in
 * whether an adapter acknowledges received or placed bytes, and in whether
 * requests carry small writes. Returns false, with *out cleared, when there is
 * no variant n. From CRASH_CONN on the program's endpoints are connected.
 */
#define CRASH_CONN 1000u
bool crash_variant(const struct verdict_cell *cell,
		   const struct verdict_method *m, unsigned int n,
		   struct crash_cell *out);

/*
 * Weaken the n-th fact of this variant that can weaken. The target knows the
 * true facts at all times, and is forced to the method if it would choose
 * another one. Returns false when there is no n-th fact, or when the true facts
 * forbid the method.
 */
bool crash_weakening(const struct verdict_cell *cell,
		     const struct verdict_method *m, unsigned int n,
		     struct crash_cell *out);

/* The method of prov/core that implements a method of the verdicts. */
enum rp_method crash_method(const struct verdict_cell *cell,
			    const struct verdict_method *m);
/* The cell's facts on this variant's hardware. */
struct rp_facts crash_facts(const struct verdict_cell *cell,
			    const struct model_cfg *truth);

/* The cell's memory, with one value for each unknown fact. */
struct model_cfg crash_truth(const struct verdict_cell *cell,
			     unsigned int place, unsigned int domain);

#endif
