/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The oracle: what completions have promised to the simulated programs, and
 * whether a power cut would keep it now.
 */
#ifndef CRASH_ORACLE_H
#define CRASH_ORACLE_H

#include "crash_world.h"

enum oracle_state {
	OP_NEW,
	OP_POSTED,
	OP_OK,
	OP_FAILED,
	OP_SKIPPED, /* refused in its call, a wait, or a REDO without failed
		     * write */
};

/* When a commit was acknowledged, relative to the weakening of a fact. */
enum oracle_phase {
	ORACLE_BEFORE, /* before a fact weakens; always, if none weakens */
	ORACLE_WINDOW, /* a fact is weaker, and the target may not know it */
	/*
	 * The target has noticed, and flushed all bytes if that helps; then the
	 * initiator completed the commit alone, before it was notified.
	 */
	ORACLE_LATE,
	ORACLE_AFTER,
};

struct oracle_op {
	unsigned int init, number; /* initiator and index, from 0 */
	uint8_t id;		   /* value of each byte that it writes, not
				    * 0 */
	enum crash_kind kind;
	unsigned int off, len;
	unsigned int at;     /* THEN: address of the store */
	unsigned int stores; /* how often the target stored a THEN's or
			      * atomic's word */
	bool copied;	     /* the agent has copied its message */
	bool unsure;	     /* failed with indeterminate outcome */
	enum oracle_state state;
	uint64_t key;
	unsigned int conn;	    /* connection that the initiator used */
	unsigned int posted, ended; /* steps in which it was posted, ended */
	uint8_t bytes[CRASH_BYTES];
};

struct oracle {
	const struct crash_cell *cell;
	const struct crash_prog *prog;
	char *why;
	bool wrong; /* a promise is broken; why says which */
	struct oracle_op op[CRASH_INITS][CRASH_OPS];
	unsigned int next[CRASH_INITS];
	unsigned int conn[CRASH_INITS];
	/* By byte and initiator: the last acknowledged write, and its phase. */
	const struct oracle_op *must[CRASH_BYTES][CRASH_INITS];
	enum oracle_phase acked[CRASH_BYTES][CRASH_INITS];
	unsigned int nmust;
	enum oracle_phase phase; /* phase of the run now */
	unsigned int noticed;	 /* step in which ORACLE_AFTER began */
	/*
	 * By initiator: the first step in which an operation failed because the
	 * class is no longer reached; 0: none.
	 */
	unsigned int refused[CRASH_INITS];
	bool unflushed; /* region closed in ORACLE_WINDOW */
	bool late;	/* a commit was acknowledged in ORACLE_LATE */
	bool notified;	/* the initiator has got the target's message */
};

void oracle_start(struct oracle *o, const struct crash_cell *cell,
		  const struct crash_prog *prog, char *why);
/* Can initiator i make its next call without waiting for a completion? */
bool oracle_may_post(const struct oracle *o, unsigned int i);
/* Is initiator i's next step a call, and not a wait? */
bool oracle_next_is_write(const struct oracle *o, unsigned int i);
/*
 * Is initiator i's next step CRASH_QUERY, which reads the target's new key
 * outside the fabric?
 */
bool oracle_next_is_query(const struct oracle *o, unsigned int i);
/* Have all operations of initiator i ended? */
bool oracle_idle(const struct oracle *o, unsigned int i);
/* Record a new connection of initiator i; it covers no earlier write. */
void oracle_connects(struct oracle *o, unsigned int i);
/*
 * Take the next step of initiator i. NULL: a wait, a query, or a REDO without
 * failed write.
 */
struct oracle_op *oracle_next(struct oracle *o, unsigned int i);
void oracle_posted(struct oracle *o, struct oracle_op *op, uint64_t key,
		   unsigned int step);
/* Record a call that returned an error, and so has started nothing. */
void oracle_refused(struct oracle_op *op);
void oracle_unposted(struct oracle *o, struct oracle_op *op);
/* Record a completion. err: 0, or the err of the error entry. */
void oracle_complete(struct oracle *o, struct oracle_op *op, int err,
		     unsigned int step);
/* Record that a fact of the target has weakened. */
void oracle_weakened(struct oracle *o);
/* Record that the target must have noticed the weakened fact by now. */
void oracle_noticed(struct oracle *o, unsigned int step);
/*
 * Record that the initiator has got the target's message about the weakened
 * region: it completes no more flushes without a request to the agent.
 */
void oracle_notified(struct oracle *o);
/*
 * Record that the region was registered again before the target noticed that a
 * fact of its host had become weaker. Nobody flushes the writes before that.
 */
void oracle_registered(struct oracle *o, unsigned int step);
/* Record that the agent copies the bytes of this write out of its message. */
void oracle_copied(struct oracle *o, uint8_t byte);
/* Record that the target stores the word of a THEN. */
void oracle_stored(struct oracle *o, uint64_t word);
/* Record that the target executes the atomic that writes these bytes. */
void oracle_changed(struct oracle *o, uint8_t byte);
/* Is `byte` the id of a THEN? */
bool oracle_is_then(const struct oracle *o, uint8_t byte);
bool oracle_is_commit(const struct oracle_op *op);
unsigned int oracle_outstanding(const struct oracle *o);
bool oracle_finished(const struct oracle *o);
const char *oracle_op_name(const struct oracle_op *op);

/* Would the cell's failure (cell->against) lose acknowledged bytes now? */
enum crash_result oracle_check(struct oracle *o, const struct model *m,
			       const uint8_t *mem);

#endif
