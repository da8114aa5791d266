/* SPDX-License-Identifier: BSD-2-Clause */
/* The state of one run of the verbs shim, shared by its source files. */
#ifndef CRASH_SHIM_PRIV_H
#define CRASH_SHIM_PRIV_H

#include "unit/side_host.h"
#include "crash_oracle.h"
#include "crash_shim.h"
#include "verbs/shim.h"

#define QUEUE  64
#define CQE    64
#define QP     1 /* number of the queue pair in the model */
#define SECOND 1000000000ull
/* Requests outlast the second in which a target notices a weaker fact. */
#define TIMEOUT (w.cell->weakens ? 3 * SECOND : SECOND)

struct wr {
	enum {
		WR_WRITE,
		WR_READ,
		WR_FLUSH,
		WR_ATOMIC,
		WR_RING
	} kind;
	uint64_t wr_id;
	unsigned int flags;
	size_t off, len;
	const void *buf; /* WRITE, RING: the bytes to write */
	uint64_t value;
	bool done;
	enum ibv_wc_status status;
};
struct msg {
	uint64_t wr_id;
	size_t len;
	uint8_t bytes[RP_SIDE_RECV_LEN];
};

struct shim_world {
	struct rp_qp q; /* first member: the shim's ops get its address */
	struct ibv_qp qp;
	struct ibv_cq base;
	struct rpmem_cq *cq;
	struct rp_side_end side_end;

	const struct crash_cell *cell;
	const struct crash_prog *prog;
	struct choices *c;
	enum crash_trace trace;
	struct crash_stats *st;
	struct model_cfg truth; /* hardware of the cell */
	struct model *model;
	uint8_t *mem;
	struct oracle o;
	enum crash_result seen;
	unsigned int step, breaks, cuts, disk_failures;
	bool begun, meanwhile;
	uint64_t now;

	struct wr batch[QUEUE], queue[QUEUE];
	unsigned int nbatch, nqueue;
	bool error;
	struct ibv_wc wc[2 * CQE];
	unsigned int nwc;

	struct side_host host;
	struct rp_agent *agent;
	struct rp_region region;
	struct rp_pmem_ops pmem;
	struct msg out[QUEUE], in[QUEUE];
	unsigned int nout, nin, nlisten;
	struct {
		uint64_t wr_id;
		void *buf;
	} listen[QUEUE];
	bool side_error;
	/* The ring of requests to the agent, which polls it unless parked. */
	struct rp_ring ring;
	uint8_t ring_in[RP_RING_LEN];
	bool parked;
	unsigned int parks;
	/* A fact has weakened; the target has noticed; its INFO is in w.in. */
	bool weakened, noticed, informing;
	/* No side connection: the target fails its queue pair instead. */
	bool has_no_side;
	unsigned int offered; /* o.nmust + 1 when a weakening was a choice */
};
extern struct shim_world w;

__attribute__((format(printf, 1, 2))) void say(const char *fmt, ...);
/* Let the oracle check what a cut now would leave; the result is in w.seen. */
void check(void);
/* The queue pair ends; the first request that is not done gets this status. */
void break_off(enum ibv_wc_status first);
/* Poll the program's completion queue until it is empty. */
void look(void);
void complete(uint64_t wr_id, uint32_t number, int opcode, size_t len,
	      enum ibv_wc_status status);

void agent_start(void);
/* Send a message to the initiator, over the side connection: 0 or -errno. */
int say_back(const void *msg, size_t len, void *arg);
void agent_end(void);
/*
 * Are there messages or backlog for the agent? agent_turn() then does all of
 * it.
 */
bool agent_has_work(void);
void agent_turn(void);
/*
 * May the agent stop polling the ring (park)? agent_sleep() does it, and sends
 * RP_MSG_IDLE.
 */
bool agent_may_sleep(void);
void agent_sleep(void);
void agent_wake(void);

/* --- crash_shim_facts.c --- */

/* Open the source of the facts that weaken. */
void facts_setup(void);
/* Let the agent watch the region's facts, before the region is added. */
void facts_watch(struct rp_region *r);
/* Connect the target's side connection, after the region is added. */
void facts_start(void);
/* The next change: a fact weakens, or the target notices it. */
bool facts_may_change(void);
void facts_change(void);
/* All messages of the side connection have arrived. */
void facts_delivered(void);
/* Make the changes that are left at the end of a run. */
void facts_finish(void);

#endif
