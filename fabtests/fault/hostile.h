/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared by the parts of hostile: a target, an honest initiator, and a hostile
 * peer.
 */
#ifndef RP_TEST_HOSTILE_H
#define RP_TEST_HOSTILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/wire.h"
#include "fault/frame_peer.h"

#define REGION_LEN 262144u
#define SLOTS	   256	/* slots of the honest initiator, a cache line each */
#define TARGET_FDS 1024 /* limit of the target's descriptors */

/* The target's regions. Each lies between two inaccessible pages. */
enum {
	R_HONEST,     /* file; only the honest initiator has its key */
	R_READONLY,   /* file; the peer has a read-only key */
	R_FILE,	      /* file; the peer has its key */
	R_PMEM,	      /* emulated persistent memory; the peer has its key */
	R_FILE_OTHER, /* file; the peer lacks its key */
	R_PMEM_OTHER,
	R_VOLATILE, /* not persistent; the peer has its key */
	R_STALE,    /* deregistered; the peer has its key */
	R_COUNT,
};

struct region {
	uint64_t key, addr;
	char *at;
};

/* The result of one audit of the target by itself. */
struct audit {
	unsigned int fds;
	uint64_t rss;	  /* resident memory, bytes */
	uint64_t changed; /* bytes that differ and that no peer may change */
	uint64_t flushed_elsewhere; /* msyncs outside R_HONEST, R_READONLY
				     * and R_FILE */
};

/* Shared by all processes of a run. */
struct world {
	char base[32]; /* name of the base, as "tcp" */
	uint64_t seed;
	bool sanitized; /* built with a sanitizer: slower, and keeps freed
			 * memory */

	/* The target fills these in before the other processes start. */
	struct card target;
	struct region regions[R_COUNT];

	/*
	 * Written by the target. An audit is due while audits < audits_due.
	 * `seen` must stay 0.
	 */
	_Atomic unsigned int audits_due, audits;
	struct audit audit;
	unsigned int most_fds; /* most descriptors in an audit of this attack */
	_Atomic uint64_t seen; /* entries that the target's program read from
				* its CQ */
	_Atomic uint64_t msyncs, msyncs_elsewhere;
	atomic_bool stop;

	/* Counters and state of the honest initiator. */
	_Atomic uint64_t commits, failed, honest_seen;
	_Atomic uint64_t slowest; /* longest commit of this attack, ns */
	_Atomic uint64_t begun;	  /* start of the outstanding commit, ns */
	_Atomic uint32_t status;  /* status of the last failed commit */
	_Atomic uint64_t acked[SLOTS];

	/* Counters and state of the hostile peer. */
	_Atomic uint64_t sent, answers;
	char says[200]; /* failure of the hostile peer itself */
};
extern struct world *world;

uint64_t now_ns(void);
/* Random numbers from the seed that the test prints. */
uint64_t rnd(void);
void rnd_seed(uint64_t seed);

/* Run a process until world->stop is set, then exit (hostile_victims.c). */
void target_run(const char *pools);
void honest_run(void);

/*
 * Rules about valid messages, written without code of prov/ (hostile_rules.c).
 */
/* May a target accept a connection with this private data? */
bool hello_is_valid(const uint8_t *m, size_t len);
/*
 * May this REQUEST or QUERY get the status OK? granted: bit mask of the regions
 * granted on its connection.
 */
bool request_is_valid(const uint8_t *m, size_t len, unsigned int granted);

/*
 * The hostile peer's connection to the target, and replies on it
 * (hostile_conn.c).
 */
void complain(const char *what, uint64_t a, uint64_t b);
extern struct frame_peer me;
extern struct frame_conn *conn;
extern unsigned int granted; /* bit mask of regions granted on conn */
extern struct rp_wire_grant grants[R_COUNT];
struct sockaddr_in target_at(void);
/* Encode HELLO with this initiator number. Returns the length. */
size_t hello(uint8_t *buf, uint64_t initiator);
uint64_t new_token(void);
/*
 * The status with which the target refused a connection; RP_ST_OK: not refused.
 */
uint32_t refusal(const struct frame_conn *c);
/*
 * Open a connection with the key of R_FILE. Its state says if the target
 * refused it.
 */
struct frame_conn *enter(void);
/* Open conn again with enter() if it is closed. */
bool conn_ensure(void);
void close_connection(void);
/* QUERY the key of region r on conn. */
bool grant(int r);
/* QUERY the keys of all regions whose keys the hostile peer has. */
bool grant_all(void);
struct rp_wire_range range_of(int r, uint64_t off, uint64_t len);
size_t request(uint8_t *buf, const struct rp_wire_range *g, size_t n,
	       uint8_t level, uint8_t required);
/* Record that a REPLY with this token may be OK. */
void allow(uint64_t token);
/* Send a message on conn, and record whether its REPLY may be OK. */
bool send_request(const uint8_t *msg, size_t len);
/* Send as send_request() does; wait for the REPLY or the end of conn. */
void send_and_wait(const uint8_t *msg, size_t len);
/* Poll for ms milliseconds. */
void listen_for(unsigned int ms);
/* Request an audit of the target during an attack. */
void audit_target(void);
/*
 * Wait until the honest initiator has completed so many more commits, or
 * complain() after 5 seconds.
 */
void await_honest_commits(unsigned int commits);

/* One attack of the hostile peer: connections and messages. */
struct attack {
	const char *name;
	void (*run)(void);
};
/* In hostile_messages.c and hostile_connects.c. The last entry has no name. */
extern const struct attack message_attacks[], connect_attacks[];

#endif
