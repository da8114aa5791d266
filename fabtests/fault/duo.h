/* SPDX-License-Identifier: BSD-2-Clause */
/* A target that may be stopped, killed and restarted, and one initiator. */
#ifndef RP_TEST_DUO_H
#define RP_TEST_DUO_H

#include "functional/pair.h"

/*
 * The driver never calls libfabric. It forks both sides, so that each reads its
 * own environment and may be killed.
 */
#define DUO_SPARES 4
struct duo {
	pid_t target;
	/*
	 * Spare target processes, forked early: a process that has opened an
	 * RDMA device cannot fork children that open the device.
	 */
	struct {
		pid_t pid;
		int go, card;
	} spare[DUO_SPARES];
	int nspare;
	int card_fd;   /* pipe with the target's card */
	char pool[32]; /* temporary pool, or RPMEM_POOL */
	char port[8];  /* port of the target and its restarts */
};

/* Start a target that serves pool until it is killed; fill in its card. */
void duo_start(struct duo *d, const struct pair_opts *o, struct card *c);
/* SIGKILL the target, and wait until it has ended. */
void duo_kill(struct duo *d);
/*
 * SIGSTOP the target, and wait until every thread has stopped: the signal goes
 * to one thread, and on a busy machine the other threads run and reply until
 * the kernel schedules that thread.
 */
void duo_stop(struct duo *d);

/*
 * Fork the initiator, run fn in it, then kill the target if it still runs.
 * Prints one TAP line: ok if fn returned NULL in time, else fn's sentence.
 */
typedef const char *(*duo_fn)(struct duo *d);
void duo_case(const char *name, duo_fn fn);
/* Like duo_case(), for a case that reads the log; then prints the log. */
void duo_listening_case(const char *name, duo_fn fn);
/* Does the log contain these words since the last call? */
bool duo_has_said(const char *words);

/* Call in the initiator: open an endpoint, and insert the target's address. */
void duo_open(struct side *s, const struct pair_opts *o, const struct card *c);
/* Commit [addr, addr+len) and wait. Returns an enum rp_status. */
int duo_commit(struct side *s, const struct card *c, uint64_t addr,
	       uint64_t len);
/* Write len bytes and wait. Returns 0, or the err of the error entry. */
int duo_write(struct side *s, const struct card *c, uint64_t addr, size_t len);
double duo_now(void);
/*
 * Seconds in which threads of this process were runnable without a CPU: the
 * delay that a busy machine adds to a measured time.
 */
double duo_waited(void);

/* Set an environment variable for the next case; NULL: unset it. */
void duo_env(const char *name, const char *value);
/* Load the provider with fault points in the next case, with these points. */
void duo_faults(const char *points);

#endif
