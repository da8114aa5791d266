/* SPDX-License-Identifier: BSD-2-Clause */
/* A target that may be stopped, killed and started again, and an initiator. */
#ifndef RP_TEST_DUO_H
#define RP_TEST_DUO_H

#include "functional/pair.h"

/*
 * The driver never calls libfabric: both sides are forked from a clean process,
 * so that each reads its own environment and may be killed.
 */
#define DUO_SPARES 4
struct duo {
	pid_t target;
	/*
	 * Forked, and waiting for the command what to serve: a process that has
	 * opened an RDMA device cannot fork children that open it.
	 */
	struct {
		pid_t pid;
		int go, card;
	} spare[DUO_SPARES];
	int nspare;
	int card_fd;   /* pipe with the target's card */
	char pool[32]; /* made and deleted, or named by RPMEM_POOL */
	char port[8];  /* of the first target; its successors reuse it */
};

/* Start a target that serves pool until it is killed; fill its card. */
void duo_start(struct duo *d, const struct pair_opts *o, struct card *c);
/* SIGKILL, and wait for the process. */
void duo_kill(struct duo *d);
/*
 * SIGSTOP, and wait until every thread has stopped: the signal goes to one
 * thread, and on a busy machine the others run and reply until that thread is
 * scheduled.
 */
void duo_stop(struct duo *d);

/*
 * Fork the initiator, run fn in it, kill the target if it still runs. Prints
 * one TAP line: ok if fn returned NULL in time, else the sentence that it
 * returned.
 */
typedef const char *(*duo_fn)(struct duo *d);
void duo_case(const char *name, duo_fn fn);
/* As duo_case(), for a case that reads the log; prints the log afterwards. */
void duo_listening_case(const char *name, duo_fn fn);
/* Has the log these words since the last call? */
bool duo_has_said(const char *words);

/* In the initiator: open an endpoint with the target inserted. */
void duo_open(struct side *s, const struct pair_opts *o, const struct card *c);
/* Commit [addr, addr+len) and wait: enum rp_status. */
int duo_commit(struct side *s, const struct card *c, uint64_t addr,
	       uint64_t len);
/* Write len bytes and wait: 0 or the err of its entry. */
int duo_write(struct side *s, const struct card *c, uint64_t addr, size_t len);
double duo_now(void);
/*
 * Seconds that threads of this process were runnable without a processor: the
 * share of a busy machine in a measured time.
 */
double duo_waited(void);

/* Set a variable for the processes of the next case; NULL: unset it. */
void duo_env(const char *name, const char *value);
/* Let the next case use the provider with fault points, and these points. */
void duo_faults(const char *points);

#endif
