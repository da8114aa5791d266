/* SPDX-License-Identifier: BSD-2-Clause */
/* The search of one pair (a method in a scenario) for runs that lose bytes. */
#ifndef RP_CRASH_SEARCH_H
#define RP_CRASH_SEARCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "crash_cells.h"
#include "crash_choice.h"
#include "crash_programs.h"

/*
 * With remote CQ data each write is two messages and a reply, so there are many
 * orders. Without --all such a search stops after this many runs, and is
 * counted in crash_shared.nearly.
 */
#define CRASH_RUNS_DATA 5000ull
/* Slots of crash_shared.done: many more than there are searches. */
#define CRASH_DONE_SIZE 65536u

struct crash_pair {
	const struct verdict_cell *cell;
	const struct verdict_method *method;
	bool forbidden;
};

enum crash_outcome {
	CRASH_OUT_NONE,
	CRASH_OUT_SURVIVED,
	CRASH_OUT_LOST,	  /* bytes were lost, but the pair is not forbidden */
	CRASH_OUT_WRONG,  /* another promise was broken, pair not forbidden */
	CRASH_OUT_CAUGHT, /* bytes were lost, as the pair is forbidden */
	CRASH_OUT_MISSED, /* no bytes were lost, but the pair is forbidden */
	CRASH_OUT_CUT,	  /* a search not explored to its end */
};

/* The result of a pair. */
struct crash_search {
	enum crash_outcome outcome;
	struct crash_stats all, random;
	unsigned int program; /* index in its list; ~0: random */
	uint64_t seed;	      /* seed of a random program */
	unsigned int variant;
	char why[CRASH_WHY];
	char path[CHOICE_MAX + 1];
	double seconds;
};

/* Shared between the worker processes. */
struct crash_shared {
	atomic_size_t next;
	/*
	 * Hashes of searches that found no loss. Scenarios often differ only in
	 * facts that do not matter here: an equal search is skipped.
	 */
	_Atomic uint64_t done[CRASH_DONE_SIZE];
	atomic_size_t ndone, nagain, nearly;
	struct crash_search results[];
};

/* The options of the command line. */
struct crash_options {
	const char *tsv, *forbidden, *json, *cell, *method, *replay;
	uint64_t seed, random, max, given; /* given: max, if --max gave it */
	unsigned int jobs, share;
	int program, variant;
	bool verbose, all, quick, power, conn, weaken;
};
extern struct crash_options crash_opt;

/*
 * Fill in variant n of the pair's scenario. Returns false if there are fewer.
 */
bool crash_pair_variant(const struct crash_pair *p, unsigned int n,
			struct crash_cell *out);
/* Find the short programs of the pair in this variant. Returns their number. */
size_t crash_pair_programs(const struct crash_pair *p,
			   const struct crash_cell *cell,
			   const struct crash_prog **list);
/* Make the long random program of this seed. */
void crash_pair_random(const struct crash_pair *p,
		       const struct crash_cell *cell, uint64_t seed,
		       struct crash_prog *prog);
/*
 * Search the short programs in all variants, then run `random` long programs,
 * with seeds from `seed` on.
 */
void crash_pair_search(struct crash_shared *s, const struct crash_pair *p,
		       uint64_t random, uint64_t seed, struct crash_search *r);

#endif
