/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A target and an initiator under stops, kills, failing calls and fault points.
 */
#ifndef RP_TEST_FAULTS_H
#define RP_TEST_FAULTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "functional/pair.h"

#define TIMEOUT_MS 2000
#define SLOTS	   1024
#define SLOT	   64 /* bytes: one value, eight times */
#define TURNS	   8  /* initiators use different slots in turn */

/*
 * Exit code: memory for a completion was missing, and the queue reported the
 * overrun.
 */
#define OVERRUN 9

enum side_of {
	TARGET,
	INITIATOR,
	SIDES,
};

/* Shared by all processes; it outlives killed processes. */
struct world {
	uint64_t seed;
	/* The medium: the bytes that successful msyncs have covered. */
	uint64_t media[SLOTS][SLOT / 8];
	char port[8];
	char pool[64];

	/*
	 * The target's card. While generation is odd, the target writes the
	 * card.
	 */
	_Atomic uint64_t generation;
	struct card card;

	/* Commands to both sides. */
	_Atomic int msync_error; /* errno of the next msync, or 0 */
	/* An msync has failed since the region was registered. */
	atomic_bool msync_failed;
	atomic_bool register_anew; /* the target must reregister its region */
	_Atomic uint32_t alloc_ppm[SIDES]; /* failing allocations per million */
	atomic_bool no_fds[SIDES];
	atomic_bool cut; /* the initiator must cut its connections */
	atomic_bool stop;

	_Atomic uint64_t next_value;
	_Atomic uint64_t msyncs, failed_msyncs, failed_allocs, cuts;

	/* Results seen by the initiator. */
	_Atomic uint64_t acked, failed, refused, given_up;
	_Atomic uint64_t status[256];
	_Atomic uint64_t lost, twice, unsticky, hung;
	char says[200];
};
extern struct world *world;

uint64_t now_ns(void);
uint64_t rnd(void);
void rnd_seed(uint64_t seed);
uint64_t mix(uint64_t x);

/* Run until world->stop is set or a signal arrives (faults_sides.c). */
void target_run(void);
void initiator_run(unsigned int turn);

/* From now on allocations of the provider may fail (faults_preload.c). */
void preload_arm(enum side_of side);
void preload_map(const char *pool, size_t len);

#endif
