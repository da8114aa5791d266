/* SPDX-License-Identifier: BSD-2-Clause */
/* A target that may be stopped, killed and started again, and an initiator. */
#ifndef RP_TEST_DUO_H
#define RP_TEST_DUO_H

#include "functional/pair.h"

/*
 * The driver never calls libfabric: both sides are forked from a clean
 * process, so that each reads its own environment and may be killed.
 */
struct duo {
	pid_t target;
	int card_fd; /* the target's card comes from here */
	char pool[32];
	char port[8]; /* of the first target; the next ones take it over */
};

/* Start a target that serves pool until it is killed; its card. */
void duo_start(struct duo *d, const struct pair_opts *o, struct card *c);
/* SIGKILL and wait. */
void duo_kill(struct duo *d);
/*
 * SIGSTOP and wait until every thread has: the signal goes to one, and on a
 * busy machine the others run on, and answer, until that one has had its turn.
 */
void duo_stop(struct duo *d);

/*
 * Fork the initiator, run fn in it, kill what is left of the target. One TAP
 * line: ok when fn returned NULL in time, else the sentence that it returned.
 */
typedef const char *(*duo_fn)(struct duo *d);
void duo_case(const char *name, duo_fn fn);

/* In the initiator: open with the target inserted. */
void duo_open(struct side *s, const struct pair_opts *o, const struct card *c);
/* One commit of [addr, addr+len), waited for: enum fi_rpmem_status. */
int duo_commit(struct side *s, const struct card *c, uint64_t addr,
	       uint64_t len);
/* One write of len bytes, waited for: 0 or the err of its entry. */
int duo_write(struct side *s, const struct card *c, uint64_t addr, size_t len);
double duo_now(void);
/*
 * Seconds that threads of this process were ready and had no processor, so
 * far: what a busy machine adds to a time, and nobody here can help.
 */
double duo_waited(void);

/* Set for the processes of the next case; NULL: unset. */
void duo_env(const char *name, const char *value);
/* Make the next case use the provider with fault points, and these points. */
void duo_faults(const char *points);

#endif
