/* SPDX-License-Identifier: BSD-2-Clause */
/* The host of an agent, its regions and channels, and what OK must mean. */
#ifndef RP_FUZZ_AGENT_WORLD_H
#define RP_FUZZ_AGENT_WORLD_H

#include "core/agent_priv.h"
#include "core/wire.h"
#include "fuzz.h"

#define INITIATORS  6
#define REGIONS	    3
#define PAGE	    4096
#define PAGES	    3
#define LINE	    64
#define LINES	    (PAGES * PAGE / LINE)
#define SKEW	    104 /* regions begin and end inside a page */
#define LENGTH	    (PAGES * PAGE - 2 * SKEW)
#define SESSIONS    3
#define CREDITS	    3
#define JOBS	    5
#define REQUESTS    512
#define CHANNELS    512
#define INCARNATION 0x1ce

/*
 * A region's memory, between two inaccessible pages. For each line `written` is
 * the step of its last write-back, `media` the step in which that became
 * durable.
 */
struct region {
	struct rp_region r;
	uint8_t *mem;
	unsigned int registrations; /* number of registrations so far */
	int live;
	int sync_ret;
	uint32_t written[LINES], media[LINES]; /* steps, by line */
};

struct channel {
	struct rp_channel c;
	int closed, room;
	unsigned int initiator;
	TAILQ_HEAD(, rp_channel_op) under_way;
	int granted[REGIONS];
};

/* A received request, and what an OK reply to it would promise. */
struct request {
	struct channel *c;
	uint64_t token;
	uint32_t step;
	int possible; /* every range is granted, of a live region */
	uint16_t nranges;
	uint8_t level, required, effect;
	struct rp_wire_then then;
	struct rp_wire_range ranges[RP_WIRE_MAX_PACKED];
};

/* A connection request that the agent has not accepted or refused yet. */
struct waiting {
	int used;
	unsigned int initiator;
};

struct agent_world {
	struct rp_agent_host host;
	struct rp_agent *agent;
	struct region regions[REGIONS];
	struct channel *channels[CHANNELS]; /* all; open ones are last */
	unsigned int nchannels;
	struct channel *of[INITIATORS]; /* connections by initiator; or NULL */
	struct waiting waiting[RP_AGENT_MAX_DELAYED + 1];
	struct request *requests[REQUESTS];
	unsigned int nrequests, ngrants;
	uint64_t now;
	uint32_t steps;
	/* Results of the host's functions. */
	int accept_ret, grant_ret, notify_ret;
};
extern struct agent_world world;

/* Map the regions once, at addresses that stay the same in all runs. */
void world_map(void);
/* The live region with this key, or NULL. */
struct region *world_region_of(uint64_t key);
void world_region_add(unsigned int i);
void world_region_del(unsigned int i);
/* Remember a request that the agent may reply OK to. */
void world_remember(struct channel *c, const uint8_t *msg, size_t len);
/* Complete the messages that the agent sent over a channel. */
void world_complete_sends(struct channel *c, int err);

#endif
