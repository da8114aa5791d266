/* SPDX-License-Identifier: BSD-2-Clause */
/* The state of a run, for the adversary and for the simulated machine. */
#ifndef CRASH_WORLD_PRIV_H
#define CRASH_WORLD_PRIV_H

#include "crash_node.h"
#include "crash_oracle.h"

#define TARGET	 CRASH_INITS /* machine; initiators: 0 .. */
#define MACHINES (CRASH_INITS + 1)
#define WIRES	 12
#define SLEEPING 64

enum act_kind {
	ACT_RUN,     /* a program polls its queue, after some arrivals */
	ACT_POST,    /* an initiator calls the next function */
	ACT_CUT,     /* the private connection ends */
	ACT_STOP,    /* the target does nothing for longer than the timeout */
	ACT_REMOVE,  /* an initiator inserts the target's address again */
	ACT_CONNECT, /* an initiator makes a new connection */
	ACT_RESTART,
	ACT_REKEY, /* the target closes its region, and registers again */
	ACT_DEATH,
	ACT_TELL,   /* an initiator learns of a cut */
	ACT_TICK,   /* only time can pass */
	ACT_WEAKEN, /* a fact of the target's machine weakens */
	ACT_NOTICE, /* time passes until the target must have noticed */
};

struct act {
	enum act_kind kind;
	unsigned int machine;
	unsigned int arrive[WIRES]; /* RUN: arrivals on each world.wire */
};

struct world {
	const struct crash_cell *cell;
	const struct crash_prog *prog;
	struct choices *c;
	struct crash_stats *st;
	bool trace;
	uint64_t now, rng;
	unsigned int step, last_tick;
	struct node node[MACHINES];
	uint8_t target_name[NODE_NAME];
	struct model *model;
	uint8_t *mem;
	uint64_t key;		     /* of the target's present registration */
	uint64_t known[CRASH_INITS]; /* that each initiator knows */
	uint64_t addr;		     /* remote_addr of the first byte */
	unsigned int ninits;
	unsigned int cuts, stops, removes, restarts, rekeys, disk_failures,
		ticks;
	/* Events that a program ignored when it polled. */
	unsigned int ignored[MACHINES];
	bool begun, flushing, dead, weakened, noticed;
	enum crash_result seen;	   /* result while the target flushed */
	bool stalled[CRASH_INITS]; /* an operation has to end first */
	struct oracle o;
	/* Sleep set: actions that another run has taken from this state. */
	struct act sleep_set[SLEEPING];
	size_t nsleep_set;
	struct pmsim_wire wire[WIRES];
	size_t nwires;
	bool lost[CRASH_INITS]; /* the program's own connection */
};

extern struct world w;

/* Print a line of the trace. */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
const char *who(unsigned int machine);
/* A program polls its queue. */
void run(unsigned int machine);
/* Copy the messages in flight into world.wire. */
void look_at_wires(void);

/* Read connection events, if programs have connections. */
void look_at_events(unsigned int machine);
void connect_again(unsigned int i);

/* --- crash_world_facts.c: facts that weaken --- */

/* Make the file that facts come from. */
void facts_setup(void);
/* Before the target opens. */
void facts_start(void);
int facts_find(struct rp_facts *facts);
void act_weaken(void);
void act_notice(void);
/* The target registers its region: it finds the facts of this moment. */
void facts_registered(void);
/* The end of a run: the fact weakens at the latest now, and is noticed. */
void facts_finish(void);

/* DMA at the target progresses by the adversary's choice. */
void dma_choices(bool at_least_one);

/* A message has arrived that stays in its receive buffer. */
void received(const struct oracle_op *op, fi_addr_t from);

#endif
