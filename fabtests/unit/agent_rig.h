/* SPDX-License-Identifier: BSD-2-Clause */
/* An agent between fakes: endpoints, a clock, and memory with media behind. */
#ifndef RP_TEST_AGENT_RIG_H
#define RP_TEST_AGENT_RIG_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/agent.h"
#include "core/wire.h"

#define RIG_PAGE	4096
#define RIG_INCARNATION 0x1ca27a710eull
#define RIG_XPORTS	2
#define RIG_PEERS	256
#define RIG_MS		1000000ull

/* One message that the agent sent. */
struct rig_msg {
	struct rig_msg *next;
	uint64_t peer;
	struct rp_wire_hdr hdr;
	union {
		struct rp_wire_hello_ack ack;
		struct rp_wire_reply reply;
		struct rp_wire_info info;
		struct rp_wire_offer offer;
	};
};

struct rig_x {
	struct rp_xport x;
	struct rig *rig;
	bool gone; /* dropped: nothing may be called any more */
	/* What the fake says. */
	int send_ret;	/* of every send, unless 0 */
	uint64_t stuck; /* peer + 1 whose sends say -EAGAIN */
	int get_ret, random_ret, notify_ret;
	/* What it saw. */
	struct rig_msg *first, **last;
	unsigned int open, most_open, gets;
	unsigned int sends; /* tries */
	/* The last notification, and how many messages had been sent then. */
	unsigned int notified, sends_before;
	struct {
		uint64_t peer, data;
		void *buf;
		size_t len;
	} told;
	atomic_uint kicks;
	struct {
		bool used;
		size_t len;
		uint8_t addr[RP_WIRE_MAX_ADDR];
	} peers[RIG_PEERS];
};

/*
 * A region of fake persistent memory. mem is what a program stores to; sync
 * copies pages of it to media; flush copies lines to the way there, and drain
 * moves what is on the way to media, or all where the caches are safe.
 */
struct rig_region {
	struct rp_region r;
	struct rig *rig;
	bool gone;
	uint8_t *mem, *way, *media; /* of npages pages */
	size_t npages;
	int sync_ret; /* what sync says, copying nothing, unless 0 */
	atomic_uint syncs, flushes, drains, stores, streams;
	bool dirty_way;
};

struct rig_at {
	struct rig_region *m;
	uint64_t off, len;
};

struct rig {
	struct rp_agent *a;
	uint64_t now;
	uint64_t cookies;
	struct rig_x x[RIG_XPORTS];
	/* Requests for the oracle: what an OK must have made durable. */
	struct rig_promise *promises;
	unsigned int checked; /* by the oracle */
	/* What must be on media before anything is stored. */
	struct rig_at behind[2];
	/* Closed: sync waits; entered counts those that got that far. */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool closed;
	unsigned int entered;
};

/* attr NULL: all defaults and no worker. */
void rig_init(struct rig *g, const struct rp_agent_attr *attr);
/* Drops what is left and checks that nothing leaked. */
void rig_fini(struct rig *g);
/* Endpoint i goes away. */
void rig_drop(struct rig *g, unsigned int i);

/* Where a region begins in its memory: not on a page. */
#define RIG_SKEW 192
/*
 * A region of npages pages (less RIG_SKEW) with this method, its class and
 * facts those of the method. addr is 0: addresses are offsets.
 */
void rig_region(struct rig *g, struct rig_region *m, enum rp_method method,
		size_t npages);
/* A region that is not persistent. */
void rig_region_volatile(struct rig *g, struct rig_region *m, size_t npages);
/* Out of the agent, then its memory is unmapped: any touch is a crash. */
void rig_region_del(struct rig *g, struct rig_region *m);
/* Store new bytes into a range, so that media lags behind. */
void rig_store(struct rig_region *m, uint64_t off, uint64_t len);

void rig_close_gate(struct rig *g);
void rig_open_gate(struct rig *g);
/* Wait until a sync stands at the closed gate. */
void rig_wait_entered(struct rig *g, unsigned int n);

/* One initiator, as the test plays it. */
struct rig_peer {
	struct rig *g;
	struct rig_x *x;
	uint32_t id; /* its address */
	uint64_t cookie;
	uint64_t target; /* cookie from HELLO_ACK */
	uint64_t token;	 /* last one used */
	uint32_t timeout_ms;
};
uint64_t rig_some_key(void);
void rig_recv(struct rig_x *x, const void *msg, int len);
/* Say HELLO without looking at the answer. */
void rig_hello(struct rig_peer *p);
/* Say HELLO from address id of endpoint xi, take the answer. */
struct rig_peer rig_connect(struct rig *g, unsigned int xi, uint32_t id);
/* The same, and one visible request so that the session is open. */
struct rig_peer rig_open(struct rig *g, unsigned int xi, uint32_t id,
			 const struct rig_region *m);
/* Returns the token. */
uint64_t rig_request(struct rig_peer *p, enum rp_level level,
		     enum rp_class required, size_t n,
		     const struct rp_wire_range *ranges);
/* Durable, after new bytes were stored there; the oracle knows of it. */
uint64_t rig_commit_all(struct rig_peer *p, enum rp_class required, size_t n,
			const struct rig_at *at);
/* One range, required class as strong as the region's. */
uint64_t rig_commit(struct rig_peer *p, struct rig_region *m, uint64_t off,
		    uint64_t len);
/* A commit of one range with an effect, its class as strong as the range's. */
struct rig_effect {
	enum rp_effect effect;
	uint64_t seq, token; /* token 0: the next */
	struct rp_wire_then then;
	uint64_t data;
	struct rig_at at;
};
/* Sends it as it is: nothing is stored, and the oracle knows nothing of it. */
uint64_t rig_send_effect(struct rig_peer *p, const struct rig_effect *e);
/* New bytes in the range, which must be on media before the store is done. */
uint64_t rig_then(struct rig_peer *p, struct rig_at at, uint64_t seq,
		  struct rig_region *m, uint64_t addr, uint64_t value);
uint64_t rig_value(const struct rig_region *m, uint64_t off, bool media);
uint64_t rig_query(struct rig_peer *p, uint64_t key, enum rp_class required);
void rig_bye(struct rig_peer *p);

/* Progress until it does nothing more. */
void rig_run(struct rig *g);
/* Progress, in real time, until the worker's batches are answered. */
void rig_run_worker(struct rig *g);

/* The next message sent by endpoint x; false: none. */
bool rig_take(struct rig_x *x, struct rig_msg *m);
/* It must be a REPLY to this token with this status. */
struct rp_wire_reply rig_expect(struct rig_x *x, uint64_t token,
				enum rp_status st);
void rig_expect_nothing(struct rig_x *x);
struct rp_agent_stats rig_stats(struct rig *g);

#endif
