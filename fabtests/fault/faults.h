/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared by the parts of the test faults: a target and an initiator under
 * stops, kills, failing calls and fault injection points.
 */
#ifndef RP_TEST_FAULTS_H
#define RP_TEST_FAULTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "functional/pair.h"

#define TIMEOUT_MS 2000
#define SLOTS	   1024
#define SLOT	   64 /* bytes: one value of 8 bytes, eight times */
#define TURNS	   8  /* parts of the slots; each initiator uses the next */

/*
 * Exit status of an initiator whose queue had no memory for a completion and so
 * reported an overrun.
 */
#define OVERRUN 9

enum side_of {
	TARGET,
	INITIATOR,
	SIDES,
};

/*
 * Memory that the driver, target and initiator share, and that kills do not
 * change.
 */
struct world {
	uint64_t seed;
	/* The medium: the bytes that successful msyncs have covered. */
	uint64_t media[SLOTS][SLOT / 8];
	char port[8];
	char pool[64];

	/*
	 * The target's card (address and key). While generation is odd, the
	 * target is writing it.
	 */
	_Atomic uint64_t generation;
	struct card card;

	/* Commands of the driver to target and initiator. */
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

/*
 * Run one side until world->stop is set or a signal ends it (faults_sides.c).
 */
void target_run(void);
void initiator_run(unsigned int turn);

/*
 * Let allocations of the provider fail from now on, at the rate
 * world->alloc_ppm (faults_preload.c).
 */
void preload_arm(enum side_of side);
void preload_map(const char *pool, size_t len);

#endif
