/* SPDX-License-Identifier: BSD-2-Clause */
/* A thread for slow work on one pool's disk, so that others are served. */
#ifndef RP_UTIL_EXPORT_WORKER_H
#define RP_UTIL_EXPORT_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "util/pool.h"

struct rp_export_job {
	/* Runs in the thread; may change all fields but run. Returns `ret`. */
	int (*run)(struct rp_export_job *job);
	struct rp_pool pool;
	bool longer, clean; /* close: arguments of rp_export_close_pool() */
	uint64_t owner;	    /* set_owner: the new owner of part `part` */
	unsigned int part;
	int ret;
	char err[RP_ERR_LEN];
};

/*
 * Start a thread for a job. The thread makes the eventfd readable when it ends.
 * NULL: no thread could be started.
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
 * Store a client in the header as the owner of a part. Before that, make all
 * bytes of the part durable: the new owner's commits do not cover what other
 * clients wrote.
 */
int rp_export_job_set_owner(struct rp_export_job *job);
/*
 * Close a pool. clean: write it back and mark it clean. longer: first store the
 * new length of its file in the header. -errno: the pool is closed without the
 * mark, and err has the reason.
 */
int rp_export_close_pool(struct rp_pool *pool, bool longer, bool clean,
			 char *err);

#endif
