/* SPDX-License-Identifier: BSD-2-Clause */
/* A target, an initiator that keeps to the protocol, and one that does not. */
#ifndef RP_TEST_HOSTILE_H
#define RP_TEST_HOSTILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/wire.h"
#include "fault/private_peer.h"

#define REGION_LEN 262144u
#define SLOTS	   256	/* of the honest initiator, one cache line each */
#define TARGET_FDS 1024 /* that the target may have */

/* The target's memory. Each lies between two pages that nobody may touch. */
enum {
	R_HONEST,     /* a file; the honest initiator's */
	R_READONLY,   /* a file; its key was given away, for reading */
	R_FILE,	      /* a file; the hostile peer was given its key */
	R_PMEM,	      /* emulated persistent memory; its key was given away */
	R_FILE_OTHER, /* a file; its key was not */
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
	_Atomic uint64_t sent, answers;
	char says[200]; /* what went wrong there */
};
extern struct world *world;

uint64_t now_ns(void);
/* Numbers that a printed seed repeats. */
uint64_t rnd(void);
void rnd_seed(uint64_t seed);

/* hostile_victims.c: run until world->stop, then exit. */
void target_run(const char *pools);
void honest_run(void);

/* hostile_rules.c: nothing of prov/ is asked. */
/* May this private data be answered with an accept? */
bool proper_hello(const uint8_t *m, size_t len);
/*
 * Is this a REQUEST or QUERY that may be answered with OK on a connection that
 * was granted the regions of this bit mask?
 */
bool proper(const uint8_t *m, size_t len, unsigned int granted);

/* hostile_conn.c: a connection to the target, and what comes back. */
void complain(const char *what, uint64_t a, uint64_t b);
extern struct private_peer me;
extern struct private_conn *conn;
extern unsigned int granted; /* regions, on conn */
extern struct rp_wire_grant grants[R_COUNT];
struct sockaddr_in target_at(void);
/* The HELLO of a new initiator, and of this one. */
size_t hello(uint8_t *buf, uint64_t initiator);
uint64_t new_token(void);
/* The status that a connection was refused with; RP_ST_OK: none. */
uint32_t refusal(const struct private_conn *c);
/* A new connection with the key of R_FILE; it may have ended. */
struct private_conn *enter(void);
/* The same on conn, when there is none. */
bool greet(void);
void bye(void);
/* A QUERY of one more key. */
bool grant(int r);
/* All regions that were given away. */
bool grant_all(void);
struct rp_wire_range range_of(int r, uint64_t off, uint64_t len);
size_t request(uint8_t *buf, const struct rp_wire_range *g, size_t n,
	       uint8_t level, uint8_t required);
/* A REPLY with this token may be OK. */
void allow(uint64_t token);
/* Send on conn; remember whether it may be granted. */
bool ask(const uint8_t *msg, size_t len);
/* The same, and wait for its answer, or for the end of conn. */
void ask_and_wait(const uint8_t *msg, size_t len);
/* Poll for so long. */
void listen_for(unsigned int ms);
/* Have the target audited in the middle of an attack. */
void look_at_target(void);
/* Wait, for a while, until the honest one has made so many commits. */
void others_go_on(unsigned int commits);

/* Messages and requests of a hostile peer. */
struct attack {
	const char *name;
	void (*run)(void);
};
/* hostile_messages.c, hostile_connects.c; the last one has no name. */
extern const struct attack message_attacks[], connect_attacks[];

#endif
