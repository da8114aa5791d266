/* SPDX-License-Identifier: BSD-2-Clause */
/* A thread that works on the disk of one pool while others are served. */
#ifndef RP_UTIL_EXPORT_WORKER_H
#define RP_UTIL_EXPORT_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "util/pool.h"

struct rp_export_job {
	/* Runs in the thread, and may change all but run. Returns `ret`. */
	int (*run)(struct rp_export_job *job);
	struct rp_pool pool;
	bool longer, clean; /* to close it: by rp_pool_extend(), with a mark */
	uint64_t owner;	    /* to make it the owner of this part */
	unsigned int part;
	int ret;
	char err[RP_ERR_LEN];
};

/*
 * Start a thread, which makes the eventfd readable when it has ended. NULL: it
 * cannot be started.
 */
struct rp_export_worker;
struct rp_export_worker *rp_export_worker_start(const struct rp_export_job *job,
						int ended_fd);
bool rp_export_worker_has_ended(const struct rp_export_worker *w);
/* Wait for the thread, take its job, and free it. */
void rp_export_worker_end(struct rp_export_worker *w,
			  struct rp_export_job *job);

/* --- jobs */

/* Close the pool. */
int rp_export_job_close(struct rp_export_job *job);
/* Allocate the blocks of its longer file, as rp_pool_allocate(). */
int rp_export_job_grow(struct rp_export_job *job);
/*
 * Make a client the owner of a part, also over a restart. Bytes that others
 * have written there are made durable before, as the owner's commits do not
 * cover them.
 */
int rp_export_job_set_owner(struct rp_export_job *job);
/*
 * Close a pool, with its new length if it was made longer. clean: write it back
 * and mark it. -errno: it is closed without the mark, and err has the reason.
 */
int rp_export_close_pool(struct rp_pool *pool, bool longer, bool clean,
			 char *err);

#endif
