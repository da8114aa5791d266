/* SPDX-License-Identifier: BSD-2-Clause */
/* How a flush of a peer's region over a program's queue pair is executed. */
#ifndef RP_REMOTE_FLUSH_H
#define RP_REMOTE_FLUSH_H

#include <stdbool.h>
#include <stdint.h>

#include "core/method.h"
#include "core/wire_desc.h"

/* Longest read fence, and longest range of a request. */
#define RP_FENCE_MAX_LEN 8
#define RP_RANGE_MAX_LEN (1ull << 31)

struct rp_remote_cfg {
	unsigned int native; /* RP_DESC_* that this end can post */
	enum rp_class required;
	enum rp_method forced; /* REFUSED: no method is forced */
	bool agent;	       /* requests to the peer's agent are possible */
	bool ring;	       /* the agent's ring can be written */
};

struct rp_remote_region {
	struct rp_desc d;
	struct rp_choice persistent; /* for flushes of type PERSISTENT */
	enum rp_method global; /* for type GLOBAL: NATIVE, FENCE or REFUSED */
	enum rp_class required;
	bool agent;  /* requests to the agent are allowed */
	bool ring;   /* requests can be pipelined behind writes */
	bool atomic; /* both devices have ATOMIC WRITE */
};
void rp_remote_region_init(struct rp_remote_region *r, const struct rp_desc *d,
			   const struct rp_remote_cfg *cfg);

enum rp_flush_kind {
	RP_FLUSH_REFUSED, /* err; nothing is posted */
	RP_FLUSH_NATIVE,
	RP_FLUSH_READ,
	RP_FLUSH_AGENT, /* a read fence, then a request to the agent */
	/*
	 * The target's device would refuse the flush, because of the queue pair
	 * or region: post a read that the device must refuse.
	 */
	RP_FLUSH_QP_FORBIDS,
	RP_FLUSH_REGION_FORBIDS,
};
struct rp_flush {
	enum rp_flush_kind kind;
	int err;
	uint64_t addr; /* address of the read */
	uint32_t len;
	uint64_t agent_addr, agent_len; /* the range for the agent to flush */
};
/*
 * type: RP_DESC_GLOBAL, RP_DESC_PERSISTENT or both; whole: flush the whole
 * region, and ignore addr and len.
 */
struct rp_flush rp_flush_decide(const struct rp_remote_region *r, uint64_t addr,
				uint64_t len, unsigned int type,
				unsigned int whole);

/*
 * How an atomic write of 8 bytes is executed: NATIVE if both devices have it,
 * unless agent_busy (the agent has outstanding requests of this connection);
 * else by a read fence and a request, or refused, as rp_flush_decide() does.
 */
struct rp_flush rp_atomic_write_decide(const struct rp_remote_region *r,
				       uint64_t addr, bool agent_busy);

#endif
