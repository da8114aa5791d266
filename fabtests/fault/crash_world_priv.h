/* SPDX-License-Identifier: BSD-2-Clause */
/* The state of a run, shared by crash_world*.c and crash_machine.c. */
#ifndef CRASH_WORLD_PRIV_H
#define CRASH_WORLD_PRIV_H

#include "crash_node.h"
#include "crash_oracle.h"

#define TARGET	 CRASH_INITS /* machine number; initiators: 0 to TARGET - 1 */
#define MACHINES (CRASH_INITS + 1)
#define WIRES	 12
#define SLEEPING 64

enum act_kind {
	ACT_RUN,     /* messages arrive at a machine, and its program polls */
	ACT_POST,    /* an initiator makes its next call */
	ACT_CUT,     /* the private connection ends */
	ACT_STOP,    /* the target stops for longer than the timeout */
	ACT_REMOVE,  /* an initiator reinserts the target's address */
	ACT_CONNECT, /* an initiator makes a new connection */
	ACT_RESTART,
	ACT_REKEY, /* the target reregisters its region */
	ACT_DEATH,
	ACT_TELL,   /* an initiator learns of a cut */
	ACT_TICK,   /* time passes: nothing else is possible */
	ACT_WEAKEN, /* a fact of the target's machine weakens */
	ACT_NOTICE, /* time passes until the target must have noticed */
};

struct act {
	enum act_kind kind;
	unsigned int machine;
	unsigned int arrive[WIRES]; /* RUN: how many messages arrive, for
				     * each of world.wire */
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
	uint64_t key;		     /* key of the target's registration */
	uint64_t known[CRASH_INITS]; /* key that each initiator has */
	uint64_t addr;		     /* remote_addr of w.mem */
	unsigned int ninits;
	unsigned int cuts, stops, removes, restarts, rekeys, disk_failures,
		ticks;
	/* By machine: events that the program's last poll left unread. */
	unsigned int ignored[MACHINES];
	bool begun, flushing, dead, weakened, noticed;
	bool unregistrable;	   /* a registration would be refused now */
	enum crash_result seen;	   /* result of checks within flushes */
	bool stalled[CRASH_INITS]; /* next call must wait for a completion */
	struct oracle o;
	/*
	 * Sleep set (partial-order reduction): actions that another run has
	 * already tried from this state.
	 */
	struct act sleep_set[SLEEPING];
	size_t nsleep_set;
	struct pmsim_wire wire[WIRES];
	size_t nwires;
	bool lost[CRASH_INITS]; /* the program's connection is lost */
};

extern struct world w;

/* Print a line of the trace. */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
const char *machine_name(unsigned int machine);
/* Let a program poll its queue. */
void run(unsigned int machine);
/* Read which wires have messages in flight into w.wire. */
void look_at_wires(void);

/* Would the program read an event or a completion if it polled now? */
bool waits_for(unsigned int machine);
/* May initiator i make its next call now? */
bool may_post(unsigned int i);

/* --- possible actions (crash_world_acts.c) --- */

/* List at most max actions in out. Returns how many. */
size_t all_actions(struct act *out, size_t max);
bool in_sleep_set(const struct act *a);
/* Drop the actions from the sleep set that do not commute with this one. */
void wake_dependent(const struct act *a);

/* Read connection events if the programs have connected endpoints. */
void look_at_events(unsigned int machine);
void connect_again(unsigned int i);

/* --- facts that weaken (crash_world_facts.c) --- */

/*
 * Make the file that the provider watches: its changes announce changed facts.
 */
void facts_setup(void);
/* Set the facts of a run. Call before the target opens. */
void facts_start(void);
int facts_find(struct rp_facts *facts);
void act_weaken(void);
void act_notice(void);
/* Record a registration of the target's region, by the facts of this moment. */
void facts_registered(void);
/*
 * At the end of a run: weaken the fact and let the target notice it, if a step
 * has not done so.
 */
void facts_finish(void);

/*
 * Place pieces of DMA at the target that choose() selects: none or more, or one
 * or more.
 */
void dma_choices(bool at_least_one);

/* Flush a message that stays in its receive buffer, and reply to it. */
void received(const struct oracle_op *op, fi_addr_t from);

#endif
