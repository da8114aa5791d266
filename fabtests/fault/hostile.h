/* SPDX-License-Identifier: BSD-2-Clause */
/* A target, an initiator that keeps to the protocol, and one that does not. */
#ifndef RP_TEST_HOSTILE_H
#define RP_TEST_HOSTILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/wire.h"
#include "functional/pair.h"

#define REGION_LEN 262144u
#define SLOTS	   256	/* of the honest initiator, one cache line each */
#define TARGET_FDS 1024 /* that the target may have */
#define CTRL_BIT   (1ull << 63)

/* The target's memory. Each lies between two pages that nobody may touch. */
enum {
	R_HONEST,     /* a file; the honest initiator's */
	R_FILE,	      /* a file; the hostile peer was given its key */
	R_FILE_OTHER, /* a file; it was not */
	R_PMEM,	      /* emulated persistent memory; its key was given away */
	R_PMEM_OTHER,
	R_VOLATILE, /* not persistent; its key was given away */
	R_STALE,    /* registered no longer; its key was given away */
	R_COUNT,
};

struct region {
	uint64_t key, addr;
	char *at;
};

/* What the target found when it looked at itself. */
struct audit {
	unsigned int fds;
	uint64_t rss;	  /* bytes */
	uint64_t changed; /* bytes of regions that nobody may change */
	uint64_t flushed_elsewhere; /* msyncs of memory nobody has a key of */
};

/* Shared by all processes of a run. */
struct world {
	char base[32]; /* "tcp" */
	uint64_t seed;
	bool sanitized; /* memory is not given back, and all takes longer */

	/* Told by the target before anything else runs. */
	struct card target;
	struct region regions[R_COUNT];
	struct card honest;

	/* The target: audits on demand, and what it must never see. */
	_Atomic unsigned int ask, told;
	struct audit audit;
	unsigned int most_fds; /* of any audit since it was set to 0 */
	_Atomic uint64_t seen; /* completions and errors its program got */
	_Atomic uint64_t msyncs, msyncs_elsewhere;
	atomic_bool stop;

	/* The honest initiator. */
	_Atomic uint64_t commits, failed, honest_seen;
	_Atomic uint64_t slowest; /* ns, since somebody set it to 0 */
	_Atomic uint64_t begun;	  /* when the commit under way began, ns */
	_Atomic uint32_t status;  /* of the last failure */
	_Atomic uint64_t acked[SLOTS];

	/* The hostile peer. */
	_Atomic uint64_t sent, answers, bad_ok;
	_Atomic uint64_t stuck; /* sends that the base never took */
	bool unfinished;	/* left the base with half messages */
	char says[200];		/* what went wrong there */
};
extern struct world *world;

uint64_t now_ns(void);
/* Numbers that a printed seed repeats. */
uint64_t rnd(void);
void rnd_seed(uint64_t seed);

/* hostile_victims.c: run until world->stop, then exit. */
void target_run(const char *pools);
void honest_run(void);

/* hostile_rules.c: little-endian numbers of n bytes. */
uint64_t wire_get(const uint8_t *p, int n);
void wire_put(uint8_t *p, int n, uint64_t v);
/* Is this a REQUEST or QUERY that may be answered with OK? */
bool proper(const uint8_t *m, size_t len, uint64_t cookie,
	    uint64_t incarnation);

/* hostile_peer.c: what a hostile peer does. */
struct attack {
	const char *name;
	void (*run)(void);
};
extern const struct attack attacks[];
extern const unsigned int nattacks;

#endif
