/* SPDX-License-Identifier: BSD-2-Clause */
/* The world of a run, for the adversary and for the machine of the provider. */
#ifndef CRASH_WORLD_PRIV_H
#define CRASH_WORLD_PRIV_H

#include "crash_node.h"
#include "crash_oracle.h"

#define TARGET	 CRASH_INITS /* its machine; initiators are 0 .. */
#define MACHINES (CRASH_INITS + 1)
#define WIRES	 12
#define SLEEPING 64

enum act_kind {
	ACT_RUN,     /* a program looks at its queue, after so much arrived */
	ACT_POST,    /* an initiator calls the next function */
	ACT_CUT,     /* the private connection ends */
	ACT_STOP,    /* the target does nothing for longer than the timeout */
	ACT_REMOVE,  /* an initiator inserts the target's address again */
	ACT_CONNECT, /* it makes a new connection of its own */
	ACT_RESTART,
	ACT_REKEY, /* the target closes its key, and registers again */
	ACT_DEATH,
	ACT_TELL, /* an initiator learns what a break has cost */
	ACT_TICK, /* nothing can happen but time */
};

struct act {
	enum act_kind kind;
	unsigned int machine;
	unsigned int arrive[WIRES]; /* RUN: by place in world.wire */
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
	uint64_t key;		     /* what the target has now */
	uint64_t known[CRASH_INITS]; /* what an initiator knows of it */
	uint64_t addr;		     /* as peers name the first byte */
	unsigned int ninits;
	unsigned int cuts, stops, removes, restarts, rekeys, fails, ticks;
	/* Events that a program did not care for when it looked. */
	unsigned int ignored[MACHINES];
	bool begun, flushing, dead;
	enum crash_result seen;	   /* while the target flushed */
	bool stalled[CRASH_INITS]; /* no room: first something must end */
	struct oracle o;
	/* Actions that another run has taken from a state like this. */
	struct act asleep[SLEEPING];
	size_t nasleep;
	struct pmsim_wire wire[WIRES];
	size_t nwires;
	bool lost[CRASH_INITS]; /* the connection of the program's own */
};

extern struct world w;

/* Of the adversary: a line of the trace. */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
const char *who(unsigned int machine);
/* A program looks at its queue. */
void run(unsigned int machine);
/* What is on its way now, into world.wire. */
void look_at_wires(void);

/* Of connections, where programs have them. */
void look_at_events(unsigned int machine);
void connect_again(unsigned int i);

/* Of the machine: a message has come, and stays where it is. */
void received(const struct oracle_op *op, fi_addr_t from);

#endif
