/* SPDX-License-Identifier: BSD-2-Clause */
/* What was promised, and whether a power cut now would keep it. */
#ifndef CRASH_ORACLE_H
#define CRASH_ORACLE_H

#include "crash_world.h"

enum oracle_state {
	OP_NEW,
	OP_POSTED,
	OP_OK,
	OP_FAILED,
	OP_SKIPPED, /* a REDO with nothing to do, or refused at once */
};

struct oracle_op {
	unsigned int init, number; /* whose, and which: from 0 */
	uint8_t id;		   /* what each byte of a write is; never 0 */
	enum crash_kind kind;
	unsigned int off, len;
	unsigned int at;     /* THEN */
	unsigned int stores; /* of it, that were seen */
	bool copied;	     /* out of its message */
	bool unsure;	     /* FAILED, and it may be stored all the same */
	enum oracle_state state;
	uint64_t key;
	unsigned int conn;	    /* which of the initiator's */
	unsigned int posted, ended; /* steps */
	uint8_t bytes[CRASH_BYTES];
};

struct oracle {
	const struct crash_cell *cell;
	const struct crash_prog *prog;
	char *why;
	bool wrong; /* why says what */
	struct oracle_op op[CRASH_INITS][CRASH_OPS];
	unsigned int next[CRASH_INITS];
	unsigned int conn[CRASH_INITS];
	/* The write that was acknowledged last, of each initiator, by byte. */
	const struct oracle_op *must[CRASH_BYTES][CRASH_INITS];
	unsigned int nmust;
};

void oracle_start(struct oracle *o, const struct crash_cell *cell,
		  const struct crash_prog *prog, char *why);
/* Is there a call that initiator i makes next, without waiting? */
bool oracle_may_post(const struct oracle *o, unsigned int i);
/* Is another write of initiator i next, that waits for nothing? */
bool oracle_goes_on(const struct oracle *o, unsigned int i);
/* Is it a question for the target's key, by other means than the fabric? */
bool oracle_asks(const struct oracle *o, unsigned int i);
/* Has everything ended that it has posted? */
bool oracle_idle(const struct oracle *o, unsigned int i);
/* It has another connection: no commit covers what the others took. */
void oracle_connects(struct oracle *o, unsigned int i);
/* That call; NULL when it turned out to be none. */
struct oracle_op *oracle_next(struct oracle *o, unsigned int i);
void oracle_posted(struct oracle *o, struct oracle_op *op, uint64_t key,
		   unsigned int step);
/* The call said no, and so it has done nothing. */
void oracle_refused(struct oracle_op *op);
void oracle_unposted(struct oracle *o, struct oracle_op *op);
/* err: 0, or what the error entry says. */
void oracle_told(struct oracle *o, struct oracle_op *op, int err,
		 unsigned int step);
/* The target copies the bytes of this write out of a message. */
void oracle_copied(struct oracle *o, uint8_t byte);
/* The target stores the word of this THEN. */
void oracle_stored(struct oracle *o, uint64_t word);
/* ... or changes the bytes of this atomic. */
void oracle_changed(struct oracle *o, uint8_t byte);
/* Is a word of these bytes that of a THEN? */
bool oracle_is_then(const struct oracle *o, uint8_t byte);
bool oracle_is_commit(const struct oracle_op *op);
unsigned int oracle_outstanding(const struct oracle *o);
bool oracle_finished(const struct oracle *o);
const char *oracle_op_name(const struct oracle_op *op);

/* Would the failure that the cell is judged against lose something now? */
enum crash_result oracle_check(struct oracle *o, const struct model *m,
			       const uint8_t *mem);

#endif
