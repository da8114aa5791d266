/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An agent (target side of prov/core) on fakes: host, channels, clock, and
 * memory with media.
 */
#ifndef RP_TEST_AGENT_BED_H
#define RP_TEST_AGENT_BED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/agent_priv.h"
#include "core/atomic.h"
#include "core/wire.h"

#define BED_PAGE	4096
#define BED_INCARNATION 0x1ca27a710eull
#define BED_MS		1000000ull
#define BED_PORT	4712 /* port of an initiator's endpoint */
#define BED_ENDPOINT	4713 /* port of the endpoint to be notified */
#define BED_INJECT	64   /* inject size of channels, by default */

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

/* A connection request, and the agent's reply to it. */
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
	int room; /* number of posts that the channel accepts; below 0: no limit
		   */
	bool slow;     /* posts complete only by bed_complete_posts() */
	bool in_close; /* close() is running */
	TAILQ_HEAD(, rp_channel_op) posted_ops; /* done() is due */
	struct bed_msg *first, **last;
	unsigned int posts; /* calls of post() */
	struct bed_channel *next;
};

/* A grant: the registration of a region for one connection. */
struct bed_grant {
	struct bed_channel *channel; /* NULL: made for a HELLO, not accepted
				      * yet */
	bool revoked;
	uint64_t rkey;
	const struct rp_region *region;
	struct bed_grant *next;
};

/*
 * A region of fake persistent memory. Stores go to mem. A sync copies pages
 * from mem to media; a flush copies lines from mem to `way`, and a drain copies
 * these lines to media. With method agent-sfence (persistent caches) a drain
 * copies all of mem.
 */
struct bed_region {
	struct rp_region r;
	struct bed *bed;
	bool gone;
	uint8_t *mem, *way, *media; /* npages pages each */
	size_t npages;
	int sync_ret; /* result of sync; it copies only if 0 */
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
	uint32_t flags; /* flags of new channels */
	/* Results that the host's functions return. */
	int accept_ret, grant_ret, notify_ret;
	uint64_t source; /* source host of the next connection requests */
	bool no_native;	 /* grants have no native FLUSH */
	uint32_t inject;
	/*
	 * The file from which the facts of regions are read, and the function
	 * that reads them again; NULL: facts never change.
	 */
	const char *facts_file;
	int (*facts)(struct rp_region *r, struct rp_facts *facts, char *why);
	/* Counts of calls, and the last notification. */
	struct bed_channel *channels;
	struct bed_grant *grants;
	atomic_uint kicks;
	unsigned int warnings, notified;
	unsigned int posts_before; /* number of posts at the time of the last
				      notification */
	struct rp_channel *notified_by;
	uint16_t notified_port, notified_endpoint;
	uint64_t notified_data;
	void *notified_buf;
	size_t notified_len;
	/*
	 * Ranges that must be on media when an OK is sent, and the number of
	 * checks.
	 */
	struct bed_promise *promises;
	unsigned int checked;
	/* Ranges that must be on media when an ordered store is executed. */
	struct bed_at must_be_durable[2];
	/*
	 * A sync waits while the gate is closed; entered: number of syncs that
	 * have begun.
	 */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool gate_closed;
	unsigned int entered;
};

/* Start the agent. attr NULL: defaults, without worker thread. */
void bed_init(struct bed *g, const struct rp_agent_attr *attr);
/* Delete the agent, and check that nothing of it is left. */
void bed_fini(struct bed *g);

/* Offset of each region in its memory: regions are not page-aligned. */
#define BED_SKEW 192
/*
 * Register a region of npages pages (less BED_SKEW) whose facts lead to this
 * method. addr is 0, so addresses are offsets.
 */
void bed_region(struct bed *g, struct bed_region *m, enum rp_method method,
		size_t npages);
/* Register a region with these facts and the best method for them. */
void bed_region_facts(struct bed *g, struct bed_region *m,
		      const struct rp_facts *facts, size_t npages);
/*
 * Deregister the region and unmap its memory, so that a later access crashes.
 */
void bed_region_del(struct bed *g, struct bed_region *m);
/* Store new bytes into a range, so that mem differs from media. */
void bed_store(struct bed_region *m, uint64_t off, uint64_t len);
uint64_t bed_value(const struct bed_region *m, uint64_t off, bool media);
/* A key that no region has. */
uint64_t bed_unknown_key(void);

void bed_close_gate(struct bed *g);
void bed_open_gate(struct bed *g);
/* Wait until n syncs, counted from the start, have reached the gate. */
void bed_wait_entered(struct bed *g, unsigned int n);

/* One initiator, whose messages the test sends. */
struct bed_peer {
	struct bed *g;
	struct bed_channel *c;
	struct rp_wire_hello_ack ack;
	uint64_t token; /* the token that was used last */
};
/*
 * Make a valid HELLO for this key from a new initiator. The test may change its
 * fields.
 */
struct rp_wire_hello bed_hello(uint64_t key);
/* Request a connection with this HELLO. The agent may reply later. */
struct bed_request *bed_connect_request(struct bed *g,
					const struct rp_wire_hello *m);
/* Check that the agent has refused the request with this status. */
void bed_refused(const struct bed_request *r, enum rp_status st);
struct bed_peer bed_accepted(const struct bed_request *r);
/* Connect with the region's key. */
struct bed_peer bed_connect(struct bed *g, const struct bed_region *m);
/* Connect, and have all these keys granted. */
struct bed_peer bed_connect_all(struct bed *g, struct bed_region *const m[],
				size_t n);
/* Send QUERY and take its INFO. */
struct rp_wire_info bed_query(struct bed_peer *p, uint64_t key,
			      enum rp_class required);
/* Lose the peer's connection. */
void bed_lose(struct bed_peer *p);
/* Call done() for all posted operations. */
void bed_complete_posts(struct bed_channel *c);

void bed_recv(struct bed_peer *p, const void *msg, int len);
/* The next functions send a request, and return its token. */
uint64_t bed_send(struct bed_peer *p, const struct rp_wire_request *m);
uint64_t bed_request(struct bed_peer *p, enum rp_level level,
		     enum rp_class required, size_t n,
		     const struct rp_wire_range *ranges);
/*
 * Store new bytes and commit them. When the OK is sent they must be on media.
 */
uint64_t bed_commit_all(struct bed_peer *p, enum rp_class required, size_t n,
			const struct bed_at *at);
/* Commit one range at the region's class. */
uint64_t bed_commit(struct bed_peer *p, struct bed_region *m, uint64_t off,
		    uint64_t len);
/* Request an ordered store behind a commit of new bytes. */
uint64_t bed_ordered_store(struct bed_peer *p, struct bed_at at,
			   struct bed_region *m, uint64_t addr, uint64_t value);
uint64_t bed_notify(struct bed_peer *p, struct bed_at at, uint64_t data);
/* Request an inline store whose bytes are all `fill`. */
uint64_t bed_inline(struct bed_peer *p, enum rp_level level, struct bed_at at,
		    uint8_t fill);
/* Request an atomic on unsigned elements of 8 bytes. */
uint64_t bed_atomic(struct bed_peer *p, enum rp_level level, struct bed_at at,
		    enum rp_atomic_op op, const uint64_t *operand,
		    const uint64_t *compare, bool fetch);

/* Call rp_agent_progress() until it has nothing to do. */
void bed_run(struct bed *g);
/* Call rp_agent_progress() until the worker thread has done its batches. */
void bed_run_worker(struct bed *g);

/*
 * Take the next message that the agent sent to the peer. Returns false if there
 * is none.
 */
bool bed_take(struct bed_peer *p, struct bed_msg *m);
/* Check that the next message is a REPLY to this token with this status. */
struct rp_wire_reply bed_expect(struct bed_peer *p, uint64_t token,
				enum rp_status st);
void bed_expect_nothing(struct bed_peer *p);
struct rp_agent_stats bed_stats(struct bed *g);

#endif
