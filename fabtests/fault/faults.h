/* SPDX-License-Identifier: BSD-2-Clause */
/* A target and an initiator under stops, kills, failing calls and fault points.
 */
#ifndef RP_TEST_FAULTS_H
#define RP_TEST_FAULTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "functional/pair.h"

#define TIMEOUT_MS 2000
#define SLOTS	   1024
#define SLOT	   64 /* bytes; one value, eight times */
#define TURNS	   8  /* initiators use different slots in turn */

/*
 * Exit code: a completion found no memory, and the queue reported the overrun.
 */
#define OVERRUN 9

enum side_of {
	TARGET,
	INITIATOR,
	SIDES,
};

/* Shared by all processes; it outlives those that are killed. */
struct world {
	uint64_t seed;
	/* The medium: the bytes that successful msyncs covered. */
	uint64_t media[SLOTS][SLOT / 8];
	char port[8];
	char pool[64];

	/* The target's card; odd generations are being written. */
	_Atomic uint64_t generation;
	struct card card;

	/* Commands to the sides. */
	_Atomic int msync_error;	   /* errno of the next; 0: none */
	atomic_bool msync_failed;	   /* one has, since registration */
	atomic_bool register_anew;	   /* command to the target */
	_Atomic uint32_t alloc_ppm[SIDES]; /* allocation failures per million */
	atomic_bool no_fds[SIDES];
	atomic_bool cut; /* command to the initiator */
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

/* faults_sides.c: run until world->stop or a signal. */
void target_run(void);
void initiator_run(unsigned int turn);

/* faults_preload.c: allocations of the provider may fail from now on. */
void preload_arm(enum side_of side);
void preload_map(const char *pool, size_t len);

#endif
