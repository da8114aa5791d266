/* SPDX-License-Identifier: BSD-2-Clause */
/* A target, an initiator that keeps to the protocol, and one that does not. */
#ifndef RP_TEST_HOSTILE_H
#define RP_TEST_HOSTILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/wire.h"
#include "fault/frame_peer.h"

#define REGION_LEN 262144u
#define SLOTS	   256	/* of the honest initiator, one cache line each */
#define TARGET_FDS 1024 /* limit of the target's descriptors */

/* The target's regions. Each lies between two inaccessible pages. */
enum {
	R_HONEST,     /* a file, the honest initiator's */
	R_READONLY,   /* a file; the hostile peer has its key, read-only */
	R_FILE,	      /* a file; the hostile peer has its key */
	R_PMEM,	      /* emulated persistent memory; the peer has its key */
	R_FILE_OTHER, /* a file; the peer does not have its key */
	R_PMEM_OTHER,
	R_VOLATILE, /* not persistent; the peer has its key */
	R_STALE,    /* deregistered; the peer has its key */
	R_COUNT,
};

struct region {
	uint64_t key, addr;
	char *at;
};

/* The target's report about itself. */
struct audit {
	unsigned int fds;
	uint64_t rss;	  /* bytes */
	uint64_t changed; /* bytes of regions that peers may not change */
	uint64_t flushed_elsewhere; /* msyncs of regions without a known key */
};

/* Shared by all processes of a run. */
struct world {
	char base[32]; /* "tcp" */
	uint64_t seed;
	bool sanitized; /* freed memory is kept, and all is slower */

	/* Filled in by the target before the others start. */
	struct card target;
	struct region regions[R_COUNT];

	/* The target: audits on demand, and counters that must stay zero. */
	_Atomic unsigned int audits_due, audits;
	struct audit audit;
	unsigned int most_fds; /* over all audits since the last reset */
	_Atomic uint64_t seen; /* completions and errors that its program got */
	_Atomic uint64_t msyncs, msyncs_elsewhere;
	atomic_bool stop;

	/* The honest initiator. */
	_Atomic uint64_t commits, failed, honest_seen;
	_Atomic uint64_t slowest; /* ns, since the last reset */
	_Atomic uint64_t begun;	  /* start of the outstanding commit, ns */
	_Atomic uint32_t status;  /* of the last failure */
	_Atomic uint64_t acked[SLOTS];

	/* The hostile peer. */
	_Atomic uint64_t sent, answers;
	char says[200]; /* its own failure */
};
extern struct world *world;

uint64_t now_ns(void);
/* Random numbers, repeated by the seed that was printed. */
uint64_t rnd(void);
void rnd_seed(uint64_t seed);

/* hostile_victims.c: run until world->stop, then exit. */
void target_run(const char *pools);
void honest_run(void);

/* hostile_rules.c: rules written without code of prov/. */
/* May this private data be accepted? */
bool hello_is_valid(const uint8_t *m, size_t len);
/*
 * May a REQUEST or QUERY of these bytes get the status OK, on a connection that
 * was granted the regions of this bit mask?
 */
bool request_is_valid(const uint8_t *m, size_t len, unsigned int granted);

/* hostile_conn.c: the connection to the target, and its replies. */
void complain(const char *what, uint64_t a, uint64_t b);
extern struct frame_peer me;
extern struct frame_conn *conn;
extern unsigned int granted; /* bit mask of regions granted on conn */
extern struct rp_wire_grant grants[R_COUNT];
struct sockaddr_in target_at(void);
/* Encode HELLO with this initiator number. */
size_t hello(uint8_t *buf, uint64_t initiator);
uint64_t new_token(void);
/* The status that refused a connection; RP_ST_OK: it was not refused. */
uint32_t refusal(const struct frame_conn *c);
/* Open a connection with the key of R_FILE; it may have ended. */
struct frame_conn *enter(void);
/* If conn is closed, open it again as enter() does. */
bool conn_ensure(void);
void bye(void);
/* QUERY one more key on conn. */
bool grant(int r);
/* QUERY the keys of all regions that the hostile peer has. */
bool grant_all(void);
struct rp_wire_range range_of(int r, uint64_t off, uint64_t len);
size_t request(uint8_t *buf, const struct rp_wire_range *g, size_t n,
	       uint8_t level, uint8_t required);
/* Allow a REPLY with this token to be OK. */
void allow(uint64_t token);
/* Send on conn; record whether the message may be granted. */
bool send_request(const uint8_t *msg, size_t len);
/* As send_request(), and wait for the reply, or for the end of conn. */
void send_and_wait(const uint8_t *msg, size_t len);
/* Poll for ms milliseconds. */
void listen_for(unsigned int ms);
/* Have the target audited in the middle of an attack. */
void audit_target(void);
/*
 * Wait, for a bounded time, until the honest initiator has committed this
 * often.
 */
void await_honest_commits(unsigned int commits);

/* One attack: messages and requests of a hostile peer. */
struct attack {
	const char *name;
	void (*run)(void);
};
/* hostile_messages.c, hostile_connects.c; the last entry has no name. */
extern const struct attack message_attacks[], connect_attacks[];

#endif
