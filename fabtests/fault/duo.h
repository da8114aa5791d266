/* SPDX-License-Identifier: BSD-2-Clause */
/* A target that may be stopped, killed and started again, and an initiator. */
#ifndef RP_TEST_DUO_H
#define RP_TEST_DUO_H

#include "functional/pair.h"

/*
 * The driver never calls libfabric: both sides are forked from a clean
 * process, so that each reads its own environment and may be killed.
 */
#define DUO_SPARES 4
struct duo {
	pid_t target;
	/*
	 * Forked, and not told yet what to serve: a process that has opened an
	 * RDMA device can have no more children that open it.
	 */
	struct {
		pid_t pid;
		int go, card;
	} spare[DUO_SPARES];
	int nspare;
	int card_fd;   /* the target's card comes from here */
	char pool[32]; /* made and deleted, or what RPMEM_POOL names */
	char port[8];  /* of the first target; the next ones take it over */
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
/* The same, for a case that listens to the log; it is shown behind it. */
void duo_listening_case(const char *name, duo_fn fn);
/* Did the log say this since it was last asked? */
bool duo_has_said(const char *words);

/* In the initiator: open with the target inserted. */
void duo_open(struct side *s, const struct pair_opts *o, const struct card *c);
/* One commit of [addr, addr+len), waited for: enum rp_status. */
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
