/* SPDX-License-Identifier: BSD-2-Clause */
/* A target that may be stopped, killed and restarted, and one initiator. */
#ifndef RP_TEST_DUO_H
#define RP_TEST_DUO_H

#include "functional/pair.h"

/*
 * The test's main process never calls libfabric. It forks target and initiator,
 * so that each reads its own environment, and the target can be killed.
 */
#define DUO_SPARES 4
struct duo {
	pid_t target;
	/*
	 * Target processes forked early, which wait for a command: a process
	 * that has opened an RDMA device cannot fork children that open the
	 * device.
	 */
	struct {
		pid_t pid;
		int go, card;
	} spare[DUO_SPARES];
	int nspare;
	int card_fd;   /* unused */
	char pool[32]; /* path of the pool: a temporary file, or $RPMEM_POOL */
	char port[8];  /* port of the first target, kept by its restarts */
};

/*
 * Start a target that serves d->pool until it is killed. Its card (address,
 * pool_addr and key) is returned in *c.
 */
void duo_start(struct duo *d, const struct pair_opts *o, struct card *c);
/* SIGKILL the target, and wait until it has ended. */
void duo_kill(struct duo *d);
/*
 * SIGSTOP the target, and wait until every thread has stopped. Without the wait
 * other threads may still reply: the kernel stops them only when it schedules
 * the thread that has the signal.
 */
void duo_stop(struct duo *d);

/*
 * Fork the initiator, run fn in it, then kill the target if it still runs.
 * Prints one TAP line: ok if fn returned NULL in time, else fn's sentence.
 */
typedef const char *(*duo_fn)(struct duo *d);
void duo_case(const char *name, duo_fn fn);
/*
 * Like duo_case(), for a case that checks log lines by duo_has_said(). Then
 * prints the log.
 */
void duo_listening_case(const char *name, duo_fn fn);
/*
 * Does the log, from the end of the previous call's part on, contain these
 * words?
 */
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
/*
 * Use the provider that is built with fault injection points in the next case,
 * with these points; NULL: the normal provider.
 */
void duo_faults(const char *points);

#endif
