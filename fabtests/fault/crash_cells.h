/* SPDX-License-Identifier: BSD-2-Clause */
/* Scenarios of verdicts.tsv (struct verdict_cell) as crash_matrix runs them. */
#ifndef CRASH_CELLS_H
#define CRASH_CELLS_H

#include "crash_world.h"
#include "fault/verdicts.h"

/* Does the provider implement this method as verdicts.tsv defines it? */
bool crash_built(const struct verdict_cell *cell,
		 const struct verdict_method *m);

/*
 * Does this method bypass the provider, because messages stay in their receive
 * buffers?
 */
bool crash_inplace(const struct verdict_cell *cell,
		   const struct verdict_method *m);

/*
 * Fill in variant n of a cell. Variants differ in the value of an unknown fact,
 * in whether the adapter acknowledges received or placed bytes, and in which
 * writes travel inside requests. From n = CRASH_CONN on, the variants repeat
 * with connected endpoints. Returns false, with *out cleared, when there is no
 * variant n.
 */
#define CRASH_CONN 1000u
bool crash_variant(const struct verdict_cell *cell,
		   const struct verdict_method *m, unsigned int n,
		   struct crash_cell *out);

/*
 * Choose the n-th fact of this variant that can weaken during a run. The target
 * always reads the true facts, and is forced to the method if it would choose
 * another one. Returns false when there is no n-th fact, or when the true facts
 * forbid the method.
 */
bool crash_weakening(const struct verdict_cell *cell,
		     const struct verdict_method *m, unsigned int n,
		     struct crash_cell *out);
/*
 * Can a fact weaken during a run of this cell and method? Looks at the variants
 * first, first + 1, ... up to the last that exists; first is 0, or CRASH_CONN
 * for connected endpoints. CRASH_WEAKENS: yes. Otherwise the last reason of
 * this list that some variant has. CRASH_NO_EVENT is a failure of the test.
 */
enum crash_excuse {
	CRASH_NO_VARIANT, /* not run over these connections */
	CRASH_IN_PLACE,	  /* the program flushes, so nothing can tell it */
	CRASH_NOT_USED,	  /* the provider refuses the method on this hardware */
	CRASH_NO_EVENT,	  /* crash_weakening() has no fact for it */
	CRASH_WEAKENS,
	CRASH_EXCUSES
};
enum crash_excuse crash_weakening_excuse(const struct verdict_cell *cell,
					 const struct verdict_method *m,
					 unsigned int first);

/*
 * Hooks of crash_weakening() that crash_cells.c and crash_shim_cells.c define.
 * Prepare: *by is the method that makes bytes durable with the true facts of
 * out->believed; false: these facts forbid it. Complete: the event and its
 * facts are in *out.
 */
bool crash_weakening_prepare(const struct verdict_cell *cell,
			     const struct verdict_method *m,
			     struct crash_cell *out, enum rp_method *by);
void crash_weakening_complete(struct crash_cell *out, enum rp_method by);

/* The method of prov/core that implements a method of verdicts.tsv. */
enum rp_method crash_method(const struct verdict_cell *cell,
			    const struct verdict_method *m);
/* The facts that the provider would find on the hardware `truth`. */
struct rp_facts crash_facts(const struct verdict_cell *cell,
			    const struct model_cfg *truth);

/* The simulated hardware of a cell: place and domain replace unknown facts. */
struct model_cfg crash_truth(const struct verdict_cell *cell,
			     unsigned int place, unsigned int domain);

#endif
