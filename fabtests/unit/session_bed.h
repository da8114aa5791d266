/* SPDX-License-Identifier: BSD-2-Clause */
/* A session on a channel that the test plays, with a clock that it sets. */
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
/* Where regions begin, as programs name them, and their length. */
#define BED_ADDR 0x10000ull
#define BED_LEN	 0x1000000ull
/* The same byte, as RDMA of a connection names it. */
#define BED_REMOTE 0x7000000ull

/* One thing that the session has posted, not looked at by the test yet. */
struct bed_seen {
	STAILQ_ENTRY(bed_seen) link;
	enum rp_channel_kind kind;
	bool delivered, injected, has_desc;
	uint64_t rkey, remote_addr, length;
	uint8_t iov_count;
	/* Of a SEND: decoded. */
	struct rp_wire_hdr hdr;
	struct rp_wire_request req;
	struct rp_wire_range *ranges; /* its ranges */
	struct rp_wire_query query;
	size_t len; /* of bytes: the message, or what a write brings */
	uint8_t bytes[];
};

struct bed {
	struct rp_connector k;
	struct rp_channel chan;
	struct rp_session *s;
	uint64_t now;
	/* What the fakes say. */
	int connect_ret, random_ret;
	uint32_t flags, inject;
	int room; /* operations that the channel takes; < 0: any number */
	uint16_t credits;
	enum rp_method method; /* of grants */
	enum rp_class class;
	bool read_only;
	uint64_t length; /* of regions */
	/* What they saw. */
	unsigned int connects, closes, kicks;
	struct rp_wire_hello hello;
	bool connected; /* between connect and close */
	bool answers;	/* HELLO and QUERY are answered by the bed itself */
	STAILQ_HEAD(, bed_seen) seen;
	struct bed_seen *held;			    /* the one looked at last */
	struct rp_channel_op *posted, **posted_end; /* done() is due */
	unsigned int nposted;
};
extern struct bed bed;
/* The bed itself allocates now. */
extern bool bed_allocates;

/* What a program sees of one operation. */
struct told {
	struct rp_op op;
	unsigned int times;
	bool outstanding;
	struct rp_outcome out;
	struct rp_wire_range range; /* of operations with one */
	uint8_t buf[8192];
	void (*then)(struct told *t); /* called by done() */
	struct rp_wire_info info;
};

struct rp_session_attr bed_attr(void);
/* attr NULL: bed_attr(). */
void bed_start(const struct rp_session_attr *attr);
void bed_stop(void);
/* A progress call; after it nothing may be due at once. */
bool bed_progress(void);
/* Time passes, then a progress call. */
void bed_pass(uint64_t ns);

uint64_t bed_key(uint32_t n);
struct rp_wire_range bed_range(uint32_t key, uint64_t off, uint64_t len);
struct rp_wire_grant bed_grant(uint64_t key);

/* The target accepts, refuses, or is lost. */
void bed_accept(void);
void bed_accept_as(const struct rp_wire_hello_ack *ack);
void bed_refuse(enum rp_status st, uint32_t detail);
void bed_lose(int err);
/* Connect for this key, accept, and answer QUERYs from now on. */
void bed_open(uint32_t key);

/* What was posted next, valid until the next call; NULL: nothing. */
const struct bed_seen *bed_see(void);
/* It must be a REQUEST of this effect; a WRITE; a fence; nothing. */
const struct bed_seen *bed_see_request(enum rp_effect effect);
const struct bed_seen *bed_see_kind(enum rp_channel_kind kind);
void bed_see_nothing(void);
/* done() of the oldest n operations of the channel; of all. */
void bed_done(unsigned int n);
void bed_done_all(void);
/* done() of the oldest with an error. */
void bed_fail(int err);
void bed_receive(const void *msg, size_t len);
void bed_reply(uint64_t token, enum rp_status st);
void bed_reply_as(uint64_t token, const struct rp_wire_reply *m);
/* A reply to what was looked at last. */
void bed_ok(void);
void bed_info(uint64_t token, enum rp_status st, uint64_t key);

/* Operations, filled in to be posted by bed_post(). */
struct rp_op *op_write(struct told *t, uint32_t key, uint64_t off, size_t len,
		       enum rp_level level);
struct rp_op *op_read(struct told *t, uint32_t key, uint64_t off, size_t len);
struct rp_op *op_commit(struct told *t, const struct rp_wire_range *r,
			size_t n);
/* Of one range. */
struct rp_op *op_commit_one(struct told *t, uint32_t key, uint64_t off,
			    uint64_t len);
struct rp_op *op_then(struct told *t, uint32_t key, uint64_t off, uint64_t len,
		      uint64_t then_off);
struct rp_op *op_atomic(struct told *t, uint32_t key, uint64_t off);
struct rp_op *op_query(struct told *t, uint32_t key);
int bed_try(struct rp_op *op);
/* It must be accepted. */
void bed_post(struct rp_op *op);
/* It has ended once, so. */
void told_at(int line, const struct told *t, enum rp_status st);
#define told_st(t, st) told_at(__LINE__, t, st)
#define told_ok(t)     told_st(t, RP_ST_OK)
void told_not(const struct told *t);

/* Edges that operations took; those that there are, a bit for each state. */
extern unsigned int bed_edges[RP_OP_STATES][RP_OP_STATES];
extern const unsigned int bed_legal[RP_OP_STATES];

#endif
