/* SPDX-License-Identifier: BSD-2-Clause */
/* The thread that waits for the disk, one batch at a time. */
#ifndef RP_WORKER_H
#define RP_WORKER_H

#include <pthread.h>
#include <stdbool.h>

#include "core/agent.h"
#include "core/batch.h"

enum rp_worker_state {
	RP_WORKER_IDLE,
	RP_WORKER_BUSY,
	RP_WORKER_DONE, /* the batch belongs to the agent again */
};

/*
 * The thread owns a batch from rp_worker_submit() until rp_worker_collect()
 * returns true. One batch at a time: a batch must not start before the failures
 * of the one before are known, because the kernel reports each failure once.
 */
struct rp_worker {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	bool started;
	struct rp_agent_host *host; /* its kick() reports a completed batch */
	/* Guarded by lock, except for a check whether it is BUSY. */
	_Atomic(enum rp_worker_state) state;
	bool stop;
	struct rp_batch *batch;
};

int rp_worker_init(struct rp_worker *w, struct rp_agent_host *h);
/* Wait for the batch in progress; afterwards the host is not called. */
void rp_worker_fini(struct rp_worker *w);

/* Start the thread unless it runs. 0 or -errno. */
int rp_worker_start(struct rp_worker *w);
void rp_worker_submit(struct rp_worker *w, struct rp_batch *b);
/*
 * Take the submitted batch back if it is complete; with wait, block until then.
 * False: not complete.
 */
bool rp_worker_collect(struct rp_worker *w, bool wait);

#endif
