/* SPDX-License-Identifier: BSD-2-Clause */
/* The thread that waits for the disk, one batch at a time. */
#ifndef RP_WORKER_H
#define RP_WORKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/agent.h"
#include "core/batch.h"

enum rp_worker_state {
	RP_WORKER_IDLE,
	RP_WORKER_BUSY,
	RP_WORKER_DONE, /* the batch belongs to the agent again */
};

/*
 * A batch belongs to the thread from submit until finished, and to the caller
 * otherwise. One at a time: a batch must not start before the failures of the
 * one before it are known, because the kernel tells of each only once.
 */
struct rp_worker {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread;
	bool started;
	struct rp_agent_host *host; /* kicked when a batch is done */
	/* Guarded by lock, but for a look at whether it is BUSY. */
	_Atomic(enum rp_worker_state) state;
	bool stop;
	struct rp_batch *batch;
};

int rp_worker_init(struct rp_worker *w, struct rp_agent_host *h);
/* Waits for the batch that it works on; after that the host is left alone. */
void rp_worker_fini(struct rp_worker *w);

/* Start the thread unless it runs. 0 or -errno. */
int rp_worker_start(struct rp_worker *w);
void rp_worker_submit(struct rp_worker *w, struct rp_batch *b);
/*
 * Take the submitted batch back when it is done; with wait, however long that
 * takes. False: not done.
 */
bool rp_worker_finished(struct rp_worker *w, bool wait);

#endif
