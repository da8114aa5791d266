/* SPDX-License-Identifier: BSD-2-Clause */
/* The promises made to programs, and whether a power cut now keeps them. */
#ifndef CRASH_ORACLE_H
#define CRASH_ORACLE_H

#include "crash_world.h"

enum oracle_state {
	OP_NEW,
	OP_POSTED,
	OP_OK,
	OP_FAILED,
	OP_SKIPPED, /* a REDO with nothing to redo, or refused at once */
};

/* When a commit was acknowledged, for a fact that weakens. */
enum oracle_phase {
	ORACLE_BEFORE, /* also where no fact weakens */
	ORACLE_WINDOW, /* the target need not have noticed */
	ORACLE_AFTER,
};

struct oracle_op {
	unsigned int init, number; /* initiator and index, from 0 */
	uint8_t id;		   /* value of each byte it writes, not 0 */
	enum crash_kind kind;
	unsigned int off, len;
	unsigned int at;     /* THEN: where it stores */
	unsigned int stores; /* stores of its word seen so far */
	bool copied;	     /* out of its message, by the agent */
	bool unsure;	     /* FAILED, outcome indeterminate */
	enum oracle_state state;
	uint64_t key;
	unsigned int conn;	    /* connection of the initiator */
	unsigned int posted, ended; /* steps */
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
	/* The last acknowledged write to each byte, by initiator. */
	const struct oracle_op *must[CRASH_BYTES][CRASH_INITS];
	enum oracle_phase acked[CRASH_BYTES][CRASH_INITS]; /* that write */
	unsigned int nmust;
	enum oracle_phase phase; /* now */
	unsigned int noticed;	 /* the step in which AFTER began */
	/* The step in which the target first refused the class; 0: none. */
	unsigned int refused[CRASH_INITS];
	bool unflushed; /* the region was closed in the window */
};

void oracle_start(struct oracle *o, const struct crash_cell *cell,
		  const struct crash_prog *prog, char *why);
/* Can initiator i make its next call without waiting? */
bool oracle_may_post(const struct oracle *o, unsigned int i);
/* Is the next call of initiator i a write that waits for nothing? */
bool oracle_next_is_write(const struct oracle *o, unsigned int i);
/* Does the next call learn the target's key, outside the fabric? */
bool oracle_next_is_query(const struct oracle *o, unsigned int i);
/* Have all operations of initiator i ended? */
bool oracle_idle(const struct oracle *o, unsigned int i);
/* Initiator i has a new connection: commits on it cover no earlier write. */
void oracle_connects(struct oracle *o, unsigned int i);
/* The next call of initiator i; NULL if it has nothing to do (a REDO). */
struct oracle_op *oracle_next(struct oracle *o, unsigned int i);
void oracle_posted(struct oracle *o, struct oracle_op *op, uint64_t key,
		   unsigned int step);
/* The call was refused, so it has started nothing. */
void oracle_refused(struct oracle_op *op);
void oracle_unposted(struct oracle *o, struct oracle_op *op);
/* Record a completion. err: 0, or that of the error entry. */
void oracle_complete(struct oracle *o, struct oracle_op *op, int err,
		     unsigned int step);
/* A fact of the target has weakened. */
void oracle_weakened(struct oracle *o);
/* The target has had the time to notice it. */
void oracle_noticed(struct oracle *o, unsigned int step);
/* The target has registered anew before it noticed, which flushes nothing. */
void oracle_registered(struct oracle *o, unsigned int step);
/* The target copies this write's bytes out of a message. */
void oracle_copied(struct oracle *o, uint8_t byte);
/* The target stores the word of this THEN. */
void oracle_stored(struct oracle *o, uint64_t word);
/* The target changes the bytes of this atomic. */
void oracle_changed(struct oracle *o, uint8_t byte);
/* Is this the id of a THEN? */
bool oracle_is_then(const struct oracle *o, uint8_t byte);
bool oracle_is_commit(const struct oracle_op *op);
unsigned int oracle_outstanding(const struct oracle *o);
bool oracle_finished(const struct oracle *o);
const char *oracle_op_name(const struct oracle_op *op);

/* Would the failure that the cell is judged against lose bytes now? */
enum crash_result oracle_check(struct oracle *o, const struct model *m,
			       const uint8_t *mem);

#endif
