/* SPDX-License-Identifier: BSD-2-Clause */
/* Scenarios of the verdicts as the crash matrix runs them. */
#ifndef CRASH_CELLS_H
#define CRASH_CELLS_H

#include "crash_world.h"
#include "fault/verdicts.h"

/* Does the provider implement this method as the verdicts define it? */
bool crash_built(const struct verdict_cell *cell,
		 const struct verdict_method *m);

/* Does this method bypass the provider? */
bool crash_inplace(const struct verdict_cell *cell,
		   const struct verdict_method *m);

/*
 * Variants of a cell: an unknown fact takes each of its values, an adapter
 * acknowledges received or placed bytes, small writes go inside requests or
 * not. Returns false, with *out cleared, behind the last one. From CRASH_CONN
 * on the program's endpoints are connected.
 */
#define CRASH_CONN 1000u
bool crash_variant(const struct verdict_cell *cell,
		   const struct verdict_method *m, unsigned int n,
		   struct crash_cell *out);

/*
 * Let a fact of this variant weaken: the n-th that can. The target is told the
 * truth, before and after, and forced to the method where it would use another.
 * Returns false behind the last one, and where the truth lets nobody use the
 * method.
 */
bool crash_weakening(const struct verdict_cell *cell,
		     const struct verdict_method *m, unsigned int n,
		     struct crash_cell *out);

/* The method of prov/core that carries out a method of the verdicts. */
enum rp_method crash_method(const struct verdict_cell *cell,
			    const struct verdict_method *m);
/* The cell's facts, on this hardware. */
struct rp_facts crash_facts(const struct verdict_cell *cell,
			    const struct model_cfg *truth);

/* The cell's memory, with one of the values of each unknown fact. */
struct model_cfg crash_truth(const struct verdict_cell *cell,
			     unsigned int place, unsigned int domain);

#endif
