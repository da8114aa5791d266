/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A session (initiator side of prov/core) on a fake channel, with a clock that
 * the test sets.
 */
#ifndef RP_TEST_SESSION_BED_H
#define RP_TEST_SESSION_BED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/list.h"
#include "core/session.h"
#include "core/session_priv.h"

#define BED_MS	    1000000ull
#define BED_TIMEOUT (5000 * BED_MS)
/* The address of each region in the program's operations, and its length. */
#define BED_ADDR 0x10000ull
#define BED_LEN	 0x1000000ull
/* The remote_addr that RDMA to BED_ADDR has to use. */
#define BED_REMOTE 0x7000000ull

/* An operation that the session has posted and the test has not checked yet. */
struct bed_seen {
	STAILQ_ENTRY(bed_seen) link;
	enum rp_channel_kind kind;
	bool delivered, injected, has_desc;
	uint64_t rkey, remote_addr, length;
	uint8_t iov_count;
	const void *desc[RP_CHANNEL_IOV];
	/* The decoded message of a SEND. */
	struct rp_wire_hdr hdr;
	struct rp_wire_request req;
	struct rp_wire_range *ranges; /* the ranges of req */
	struct rp_wire_query query;
	size_t len; /* length of the message or the write in bytes */
	uint8_t bytes[];
};

struct bed {
	struct rp_connector k;
	struct rp_channel chan;
	struct rp_session *s;
	uint64_t now;
	/* Results of the fake functions; tests set them. */
	int connect_ret, random_ret;
	bool random_zero;	/* random numbers are 0 */
	void (*on_close)(void); /* the fake channel's close() calls this */
	uint32_t flags, inject;
	int room; /* operations that the channel accepts; < 0: any */
	uint16_t credits;
	enum rp_method method; /* method in each grant */
	enum rp_class class;
	bool read_only, unreadable;
	uint64_t length; /* length of each region */
	/* Counts and last arguments of calls of the fake functions. */
	unsigned int nconnects, ncloses, nkicks;
	struct rp_wire_hello hello;
	bool connected; /* true between connect() and close() */
	bool replies;	/* the bed itself replies to HELLO and QUERY */
	STAILQ_HEAD(, bed_seen) seen;
	struct bed_seen *last; /* last one that bed_see() returned */
	TAILQ_HEAD(, rp_channel_op) posted; /* done() was not called yet */
	unsigned int nposted;
};
extern struct bed bed;
/* True while the bed itself allocates: these calls do not fail. */
extern bool bed_allocates;

/* An operation, and the outcome that its done() reported. */
struct report {
	struct rp_op op;
	unsigned int times;
	bool outstanding;
	struct rp_outcome out;
	struct rp_wire_range range; /* range of an operation with one range */
	uint8_t buf[8192];
	void (*then)(struct report *t); /* done() of the operation calls this */
	struct rp_wire_info info;
};

struct rp_session_attr bed_attr(void);
/* Start a session; attr NULL: bed_attr(). */
void bed_start(const struct rp_session_attr *attr);
void bed_stop(void);
/* Call progress, and check that no more work is due at once. */
bool bed_progress(void);
/* Advance the clock, then call bed_progress(). */
void bed_advance_clock(uint64_t ns);

uint64_t bed_key(uint32_t n);
struct rp_wire_range bed_range(uint32_t key, uint64_t off, uint64_t len);
struct rp_wire_grant bed_grant(uint64_t key);

/*
 * The next functions accept or refuse the connection as the target, or lose it.
 */
void bed_accept(void);
void bed_accept_as(const struct rp_wire_hello_ack *ack);
void bed_refuse(enum rp_status st, uint32_t detail);
void bed_lose_connection(int err);
/* Connect with this key and accept; from then on the bed replies to QUERYs. */
void bed_open(uint32_t key);
/* A session without the agent, by this method; max_commits 0: the usual. */
void bed_open_alone(enum rp_method m, unsigned int max_commits);

/* Take the next posted operation, valid until the next call; NULL: none. */
const struct bed_seen *bed_see(void);
/*
 * Take the next posted operation, which must be a REQUEST with this effect, or
 * of this kind; or check that there is none.
 */
const struct bed_seen *bed_see_request(enum rp_effect effect);
const struct bed_seen *bed_see_kind(enum rp_channel_kind kind);
void bed_see_nothing(void);
/* Call done() of the n oldest posted operations, or of all. */
void bed_done(unsigned int n);
void bed_done_all(void);
/* Call done() of the oldest posted operation, with an error. */
void bed_fail(int err);
void bed_receive(const void *msg, size_t len);
void bed_reply(uint64_t token, enum rp_status st);
void bed_reply_as(uint64_t token, const struct rp_wire_reply *m);
/* Reply OK to the request that bed_see() returned last. */
void bed_ok(void);
void bed_info(uint64_t token, enum rp_status st, uint64_t key);

/* Fill in a write, which bed_post() can post. */
struct rp_op *op_write(struct report *t, uint32_t key, uint64_t off, size_t len,
		       enum rp_level level);
struct rp_op *op_read(struct report *t, uint32_t key, uint64_t off, size_t len);
struct rp_op *op_commit(struct report *t, const struct rp_wire_range *r,
			size_t n);
/* Fill in a commit of one range. */
struct rp_op *op_commit_one(struct report *t, uint32_t key, uint64_t off,
			    uint64_t len);
struct rp_op *op_then(struct report *t, uint32_t key, uint64_t off,
		      uint64_t len, uint64_t then_off);
struct rp_op *op_atomic(struct report *t, uint32_t key, uint64_t off);
struct rp_op *op_query(struct report *t, uint32_t key);
int bed_post_result(struct rp_op *op);
/* Post the operation, which the session must accept. */
void bed_post(struct rp_op *op);
/* The operation must have completed exactly once, with this status. */
void expect_status_at(int line, const struct report *t, enum rp_status st);
#define expect_status(t, st) expect_status_at(__LINE__, t, st)
#define expect_ok(t)	     expect_status(t, RP_ST_OK)
void expect_pending(const struct report *t);

/* The edges that operations took, and legal ones; a bit mask per state. */
extern unsigned int bed_edges[RP_OP_STATES][RP_OP_STATES];
extern const unsigned int bed_legal[RP_OP_STATES];

#endif
