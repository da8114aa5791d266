/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sessions (initiators) and an agent (target) in one process, with simulated
 * connections that break.
 */
#ifndef RP_TEST_BOTH_WORLD_H
#define RP_TEST_BOTH_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/agent.h"
#include "core/session.h"
#include "seeded.h"

#define W_MS	  1000000ull
#define W_TIMEOUT (5000 * W_MS)

enum {
	W_SESSIONS = 2,
	W_KINDS = 4,
	W_CELLS = 64, /* cells of a region, 8 bytes each */
	W_SHARE = W_CELLS / W_SESSIONS,
	W_OPS = 12, /* outstanding operations of a session */
	W_NUMBERS = 4000,
	W_REGS = 40,
	W_INLINE = 64, /* a durable write of at most this length is a STORE */
};

#define W_NONE UINT64_MAX

enum w_kind {
	W_MSYNC,    /* page-cache file, synced by the agent */
	W_CLWB,	    /* DAX, flushed by the agent */
	W_FENCE,    /* DAX behind a NIC; made durable by a read fence */
	W_DELIVERY, /* placed bytes survive a power cut */
};

/* How often things fail or change, per thousand steps or calls; and limits. */
struct w_rules {
	unsigned int full, breaks, restarts, renews, sync_fails, stale,
		peer_leaves;
	unsigned int credits, max_jobs, max_sessions;
	uint64_t tick; /* longest time between steps, ns */
};

/* One registration. mem: what CPUs read; media: what a power cut leaves. */
struct w_reg {
	struct rp_region r;
	struct world *w;
	enum w_kind kind;
	bool gone, broken;
	uint64_t mem[W_CELLS] __attribute__((aligned(4096)));
	uint64_t written_back[W_CELLS]; /* lines written back but not drained,
					 * or W_NONE
					 */
	uint64_t device[W_CELLS]; /* writes inside the device (W_FENCE), or
				     W_NONE */
	unsigned int device_of[W_CELLS]; /* connection that wrote device[] */
	uint64_t media[W_CELLS];
	/* By cell: number of the last write that the session accepted. */
	uint64_t posted[W_CELLS];
};

/* One message or RDMA operation in transit, with a copy of its bytes. */
struct w_item {
	STAILQ_ENTRY(w_item) link;
	struct rp_channel_op *op; /* the session's; NULL: completed */
	enum rp_channel_kind kind;
	bool refusal, accept;
	uint64_t rkey, remote_addr;
	size_t len;
	uint8_t bytes[];
};
STAILQ_HEAD(w_items, w_item);
TAILQ_HEAD(w_ops, rp_channel_op);

/* A connection: the channels of its two ends. */
struct w_conn {
	struct rp_channel i, t; /* ends of session and agent */
	struct world *w;
	struct w_conn *next;
	unsigned int id, session;
	bool requested;	   /* the agent has received the HELLO */
	bool was_accepted; /* the agent has accepted the connection */
	bool i_closed, t_closed, broken, i_lost;
	struct w_items to_target, to_initiator;
	struct w_ops posted; /* the session's operations whose done() is due */
	struct w_ops t_posted; /* the agent's operations whose done() is due */
};

struct w_grant {
	struct w_grant *next;
	struct w_conn *conn;
	struct w_reg *reg;
	uint64_t rkey;
};

/* One operation that a program has posted. */
struct w_op {
	struct rp_op op;
	struct world *w;
	unsigned int session, conn;
	bool used, durable;
	struct w_reg *reg, *then;
	unsigned int first, n, then_cell;
	uint64_t number, then_number;
	uint64_t want[W_CELLS]; /* by cell: number of the last write before the
				   operation */
	struct rp_wire_range range;
	uint64_t buf[W_CELLS];
	uint64_t result;
	struct iovec result_iov;
	struct rp_wire_info info;
};

struct w_number {
	uint16_t conn;
	bool done, failed;
	uint8_t session;
};

struct w_program {
	struct rp_session *s;
	struct w_op ops[W_OPS];
};

struct world {
	struct rp_connector k;
	struct rp_agent_host h;
	struct seeded rng;
	struct w_rules rules;
	bool quiet, trace;
	uint64_t now, number, rkeys;
	struct rp_agent *a;
	struct w_reg *now_reg[W_KINDS];
	struct w_reg *regs[W_REGS];
	size_t nregs;
	struct w_conn *conns;
	unsigned int nconns;
	unsigned int accepted[W_SESSIONS]; /* by session: number of its newest
					      connection */
	struct w_grant *grants;
	struct w_number numbers[W_NUMBERS];
	struct w_program p[W_SESSIONS];
	unsigned long ok[RP_OP_QUERY + 1], failed, by_status[RP_ST_MAX];
};

uint64_t w_below(struct world *w, uint64_t n);
bool w_chance(struct world *w, unsigned int per_thousand);
void w_start(struct world *w, uint64_t seed, const struct w_rules *rules);
void w_stop(struct world *w);
/* Kill the target process, perhaps with a power cut, and start it again. */
void w_restart(struct world *w);
/* Deregister a region, and register its memory again. */
void w_reregister(struct world *w, enum w_kind kind);
/* Do one random step of those that are possible. */
void w_step(struct world *w);
/*
 * Deliver all messages and call progress at both ends, until this simulated
 * time has passed.
 */
void w_run_for(struct world *w, uint64_t ns);
/*
 * Check that writes which have just been placed in the region do not come too
 * late.
 */
void w_check_placed(struct w_reg *g, const uint64_t *cells, size_t n);
/*
 * In both_world_region.c. Register memory, with the bytes of the former
 * registration `before`, which stays allocated because a reply may still refer
 * to it; NULL: with new bytes. power_cut: only bytes on media are left.
 */
void w_reg_new(struct world *w, enum w_kind kind, const struct w_reg *before,
	       bool power_cut);
void w_reg_del(struct world *w, struct w_reg *g);
/* The index of the cell at an address. */
size_t w_cell_of(const struct w_reg *g, const void *p);

#define W_CHECK(w, cond, fmt, ...)                                             \
	cr_assert(cond, "RP_SEED=%llu: " fmt,                                  \
		  (unsigned long long)(w)->rng.seed, ##__VA_ARGS__)

#endif
