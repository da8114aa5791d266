/* SPDX-License-Identifier: BSD-2-Clause */
/* A thread that works on the disk of one pool; other pools are served. */
#ifndef RP_UTIL_EXPORT_WORKER_H
#define RP_UTIL_EXPORT_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "util/pool.h"

struct rp_export_job {
	/* Runs in the thread; may change all fields but run. Returns `ret`. */
	int (*run)(struct rp_export_job *job);
	struct rp_pool pool;
	bool longer, clean; /* close: by rp_pool_extend(), with a mark */
	uint64_t owner;	    /* set_owner: the new owner of part `part` */
	unsigned int part;
	int ret;
	char err[RP_ERR_LEN];
};

/*
 * Start a thread for a job. Its end makes the eventfd readable. NULL: no thread
 * could be started.
 */
struct rp_export_worker;
struct rp_export_worker *rp_export_worker_start(const struct rp_export_job *job,
						int ended_fd);
bool rp_export_worker_has_ended(const struct rp_export_worker *w);
/* Wait for the thread, copy its job out, and free the worker. */
void rp_export_worker_end(struct rp_export_worker *w,
			  struct rp_export_job *job);

/* --- values of run */

/* Close the job's pool. */
int rp_export_job_close(struct rp_export_job *job);
/* Allocate the blocks of a file that has grown, by rp_pool_allocate(). */
int rp_export_job_grow(struct rp_export_job *job);
/*
 * Make a client the owner of a part, which a restart does not change. First
 * make bytes durable that other clients wrote there, because the owner's
 * commits do not cover them.
 */
int rp_export_job_set_owner(struct rp_export_job *job);
/*
 * Close a pool. longer: serve its new length first. clean: write it back and
 * mark it. -errno: closed without the mark, and err has the reason.
 */
int rp_export_close_pool(struct rp_pool *pool, bool longer, bool clean,
			 char *err);

#endif
