/* SPDX-License-Identifier: BSD-2-Clause */
/* Scenarios of the verdicts as the crash matrix plays them. */
#ifndef CRASH_CELLS_H
#define CRASH_CELLS_H

#include "crash_world.h"
#include "fault/verdicts.h"

/* Does the provider have this method, as the verdicts mean it? */
bool crash_built(const struct verdict_cell *cell,
		 const struct verdict_method *m);

/* Is it one that the provider has no part in? */
bool crash_inplace(const struct verdict_cell *cell,
		   const struct verdict_method *m);

/*
 * An unknown fact may be any of its values, an adapter may acknowledge what it
 * has, or what is placed, and small writes may travel in requests or not.
 * Returns false behind the last one, *out being nothing. From CRASH_CONN on the
 * program's endpoints are connected.
 */
#define CRASH_CONN 1000u
bool crash_variant(const struct verdict_cell *cell,
		   const struct verdict_method *m, unsigned int n,
		   struct crash_cell *out);

/* Its memory, with one of the values of what is unknown. */
struct model_cfg crash_truth(const struct verdict_cell *cell,
			     unsigned int place, unsigned int domain);

#endif
