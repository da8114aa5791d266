/* SPDX-License-Identifier: BSD-2-Clause */
/* A peer's region over a connection of the program's: what a flush becomes. */
#ifndef RP_REMOTE_H
#define RP_REMOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/method.h"
#include "core/wire_desc.h"

/* What a fence reads at most, and the longest range that requests have. */
#define RP_FENCE_MAX 8
#define RP_RANGE_MAX (1ull << 31)

struct rp_remote_cfg {
	unsigned int native; /* RP_DESC_* that this end can post */
	enum rp_class required;
	enum rp_method forced; /* RP_METHOD_REFUSED: none is */
	bool agent;	       /* that of the peer can be asked */
	bool ring;	       /* and written to */
};

struct rp_remote {
	struct rp_desc d;
	struct rp_choice persistent;
	enum rp_method global; /* NATIVE, FENCE or REFUSED */
	enum rp_class required;
	bool agent;  /* may be asked */
	bool ring;   /* and a request may go ahead, behind the writes */
	bool atomic; /* the devices do it */
};
void rp_remote_init(struct rp_remote *r, const struct rp_desc *d,
		    const struct rp_remote_cfg *cfg);

enum rp_flush_how {
	RP_FLUSH_REFUSED, /* err; nothing is posted */
	RP_FLUSH_NATIVE,
	RP_FLUSH_READ,
	RP_FLUSH_AGENT, /* the same, and then the agent of the target */
	/*
	 * The target's device would refuse it, as the queue pair or the region
	 * does not allow it: a read that it must refuse takes its place.
	 */
	RP_FLUSH_NOT_BY_QP,
	RP_FLUSH_NOT_BY_REGION,
};
struct rp_flush {
	enum rp_flush_how how;
	int err;
	uint64_t addr; /* of the read */
	uint32_t len;
	uint64_t agent_addr, agent_len; /* what the agent is to flush */
};
/*
 * type: RP_DESC_GLOBAL, RP_DESC_PERSISTENT or both; whole: of the region, and
 * then addr and len mean nothing.
 */
struct rp_flush rp_flush_decide(const struct rp_remote *r, uint64_t addr,
				uint64_t len, unsigned int type,
				unsigned int whole);

/*
 * What an atomic write of 8 bytes becomes: NATIVE where both devices have it,
 * unless held (the agent was asked on this connection, and may be at work);
 * else a request, behind a read as a flush has; or as above.
 */
struct rp_flush rp_atomic_decide(const struct rp_remote *r, uint64_t addr,
				 bool held);

#endif
