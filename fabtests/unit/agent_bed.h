/* SPDX-License-Identifier: BSD-2-Clause */
/* An agent between fakes: a host, channels, a clock, memory with media behind.
 */
#ifndef RP_TEST_AGENT_BED_H
#define RP_TEST_AGENT_BED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/agent.h"
#include "core/atomic.h"
#include "core/wire.h"

#define BED_PAGE	4096
#define BED_INCARNATION 0x1ca27a710eull
#define BED_MS		1000000ull
#define BED_PORT	4712 /* of an initiator's endpoint */
#define BED_ENDPOINT	4713 /* of the endpoint to be notified */
#define BED_INJECT	64   /* of channels, unless a test sets less or more */

struct bed;

/* One message that the agent sent. */
struct bed_msg {
	struct bed_msg *next;
	struct rp_wire_hdr hdr;
	union {
		struct rp_wire_reply reply;
		struct rp_wire_info info;
	};
	uint8_t result[RP_WIRE_MAX_STORE];
};

/* A connection request, and what the agent said to it. */
struct bed_request {
	struct bed *bed;
	bool accepted, refused;
	struct rp_wire_hello_ack ack;
	struct bed_channel *channel;
};

struct bed_channel {
	struct rp_channel c;
	struct bed *bed;
	bool closed;
	int room;    /* posts that it takes; below 0: any number */
	bool slow;   /* only the test calls done() */
	bool inside; /* calls nobody back from here */
	struct rp_channel_op *under_way; /* sent, not done */
	struct bed_msg *first, **last;
	unsigned int posts; /* tries */
	struct bed_channel *next;
};

/* A registration for one connection. */
struct bed_grant {
	struct bed_channel *channel; /* NULL: of a HELLO */
	bool revoked;
	uint64_t rkey;
	const struct rp_region *region;
	struct bed_grant *next;
};

/*
 * A region of fake persistent memory. mem is what a program stores to; sync
 * copies pages of it to media; flush copies lines to the way there, and drain
 * moves what is on the way to media, or all where the caches are safe.
 */
struct bed_region {
	struct rp_region r;
	struct bed *bed;
	bool gone;
	uint8_t *mem, *way, *media; /* of npages pages */
	size_t npages;
	int sync_ret; /* what sync says, copying nothing, unless 0 */
	atomic_uint syncs, flushes, drains, stores, streams, changes;
	bool dirty_way;
};

struct bed_at {
	struct bed_region *m;
	uint64_t off, len;
};

struct bed {
	struct rp_agent_host host;
	struct rp_agent *a;
	uint64_t now;
	uint32_t flags; /* of channels */
	/* Results of the host's functions. */
	int accept_ret, grant_ret, notify_ret;
	uint64_t source; /* of the next connection requests */
	bool no_native;	 /* no grant of FLUSH */
	uint32_t inject;
	/* Counts of calls, and the last notification. */
	struct bed_channel *channels;
	struct bed_grant *grants;
	atomic_uint kicks;
	unsigned int warnings, notified;
	unsigned int posts_before; /* of the last notification */
	struct rp_channel *notified_by;
	uint16_t notified_port, notified_endpoint;
	uint64_t notified_data;
	void *notified_buf;
	size_t notified_len;
	/* Ranges that an OK must have made durable, and checks so far. */
	struct bed_promise *promises;
	unsigned int checked;
	/* Ranges that must be on media before anything is stored. */
	struct bed_at behind[2];
	/* Closed: sync waits; entered counts those that got that far. */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool gate_closed;
	unsigned int entered;
};

/* attr NULL: all defaults and no worker. */
void bed_init(struct bed *g, const struct rp_agent_attr *attr);
/* Deletes the agent, and checks that nothing is left. */
void bed_fini(struct bed *g);

/* A region begins there in its memory: not on a page. */
#define BED_SKEW 192
/*
 * A region of npages pages (less BED_SKEW) with this method, its class and
 * facts those of the method. addr is 0: addresses are offsets.
 */
void bed_region(struct bed *g, struct bed_region *m, enum rp_method method,
		size_t npages);
/* Facts of the test's choice; known to the agent as best can be had. */
void bed_region_facts(struct bed *g, struct bed_region *m,
		      const struct rp_facts *facts, size_t npages);
/* Out of the agent, then its memory is unmapped: any touch is a crash. */
void bed_region_del(struct bed *g, struct bed_region *m);
/* Store new bytes into a range, so that media lags behind. */
void bed_store(struct bed_region *m, uint64_t off, uint64_t len);
uint64_t bed_value(const struct bed_region *m, uint64_t off, bool media);
/* A key that no region has. */
uint64_t bed_some_key(void);

void bed_close_gate(struct bed *g);
void bed_open_gate(struct bed *g);
/* Wait until n syncs in all have come to the gate. */
void bed_wait_entered(struct bed *g, unsigned int n);

/* One initiator, as the test plays it. */
struct bed_peer {
	struct bed *g;
	struct bed_channel *c;
	struct rp_wire_hello_ack ack;
	uint64_t token; /* last one used */
};
/* A HELLO of a key by a new initiator, to be changed by the test. */
struct rp_wire_hello bed_hello(uint64_t key);
/* Request a connection with it; the answer may come later. */
struct bed_request *bed_ask(struct bed *g, const struct rp_wire_hello *m);
/* It must have been refused with this status. */
void bed_refused(const struct bed_request *r, enum rp_status st);
struct bed_peer bed_accepted(const struct bed_request *r);
/* Connect with the key of a region. */
struct bed_peer bed_connect(struct bed *g, const struct bed_region *m);
/* The same with all of these keys granted. */
struct bed_peer bed_connect_all(struct bed *g, struct bed_region *const m[],
				size_t n);
/* QUERY; the INFO is taken. */
struct rp_wire_info bed_query(struct bed_peer *p, uint64_t key,
			      enum rp_class required);
/* The connection breaks. */
void bed_lose(struct bed_peer *p);
/* Call done() for what is under way. */
void bed_sent(struct bed_channel *c);

void bed_recv(struct bed_peer *p, const void *msg, int len);
/* Each returns the token. */
uint64_t bed_send(struct bed_peer *p, const struct rp_wire_request *m);
uint64_t bed_request(struct bed_peer *p, enum rp_level level,
		     enum rp_class required, size_t n,
		     const struct rp_wire_range *ranges);
/* Durable, after new bytes were stored there; the oracle knows of it. */
uint64_t bed_commit_all(struct bed_peer *p, enum rp_class required, size_t n,
			const struct bed_at *at);
/* One range, required class as strong as the region's. */
uint64_t bed_commit(struct bed_peer *p, struct bed_region *m, uint64_t off,
		    uint64_t len);
/* New bytes in the range, which must be on media before the store is done. */
uint64_t bed_then(struct bed_peer *p, struct bed_at at, struct bed_region *m,
		  uint64_t addr, uint64_t value);
uint64_t bed_notify(struct bed_peer *p, struct bed_at at, uint64_t data);
/* An inline store of bytes that are all fill. */
uint64_t bed_inline(struct bed_peer *p, enum rp_level level, struct bed_at at,
		    uint8_t fill);
/* An atomic on elements of 8 bytes, unsigned. */
uint64_t bed_atomic(struct bed_peer *p, enum rp_level level, struct bed_at at,
		    enum rp_atomic_op op, const uint64_t *operand,
		    const uint64_t *compare, bool fetch);

/* Progress until it does nothing more. */
void bed_run(struct bed *g);
/* Progress, in real time, until the worker's batches are answered. */
void bed_run_worker(struct bed *g);

/* The next message sent to the peer; false: none. */
bool bed_take(struct bed_peer *p, struct bed_msg *m);
/* It must be a REPLY to this token with this status. */
struct rp_wire_reply bed_expect(struct bed_peer *p, uint64_t token,
				enum rp_status st);
void bed_expect_nothing(struct bed_peer *p);
struct rp_agent_stats bed_stats(struct bed *g);

#endif
