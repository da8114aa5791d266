/* SPDX-License-Identifier: BSD-2-Clause */
/* A target and an initiator that are stopped, killed, starved and lied to. */
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

/* Exit code: there was no memory to tell a completion, and that was told. */
#define OVERRUN 9

enum side_of {
	TARGET,
	INITIATOR,
	SIDES,
};

/* Shared by all processes; it outlives the ones that are killed. */
struct world {
	uint64_t seed;
	/* What the disk has: what successful msyncs covered. */
	uint64_t media[SLOTS][SLOT / 8];
	char port[8];
	char pool[64];

	/* The target's card; odd generations are being written. */
	_Atomic uint64_t generation;
	struct card card;

	/* What to do to whom. */
	_Atomic int msync_error;	   /* errno of the next one; 0: none */
	atomic_bool msync_failed;	   /* one has since the registration */
	atomic_bool register_anew;	   /* asked of the target */
	_Atomic uint32_t alloc_ppm[SIDES]; /* allocations of ours that fail */
	atomic_bool no_fds[SIDES];
	atomic_bool cut; /* asked of the initiator */
	atomic_bool stop;

	_Atomic uint64_t next_value;
	_Atomic uint64_t msyncs, failed_msyncs, failed_allocs, cuts;

	/* What the initiator saw. */
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

/* faults_preload.c: from here on, allocations of the provider may fail. */
void preload_arm(enum side_of side);
void preload_map(const char *pool, size_t len);

#endif
