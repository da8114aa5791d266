/* SPDX-License-Identifier: BSD-2-Clause */
/* Batches of requests: ranges merged, each line flushed once. */
#ifndef RP_BATCH_H
#define RP_BATCH_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/ranges.h"
#include "core/region.h"
#include "core/wire.h"

struct rp_batch;
struct rp_agent_session;

struct rp_job_range {
	struct rp_region *region;
	uint64_t off;
	uint64_t len;
	bool flush; /* false: delivery is enough for the required class */
};

/* The ordered store of a job, executed when its ranges are durable. */
struct rp_job_then {
	struct rp_region *region; /* NULL: no ordered store */
	uint64_t off;
	uint64_t value;
	bool flush;
	int err; /* positive errno: the store was not executed */
};

/* One request that passed every check, until its reply. */
struct rp_job {
	TAILQ_ENTRY(rp_job) link; /* in a queue of the agent, or in a batch */
	TAILQ_ENTRY(rp_job) owner_link;	  /* in session.jobs or *local */
	struct rp_agent_session *session; /* NULL: local, or session ended */
	struct rp_jobs *queue;	/* where the job waits; NULL: in a batch */
	struct rp_batch *batch; /* the batch that has the job, or NULL */
	/* Local jobs: the list that owner_link is in, and the callback. */
	struct rp_jobs *local;
	void (*done)(void *arg, enum rp_status st, uint32_t detail);
	void *arg;
	uint64_t token;
	uint64_t since; /* rp_agent_now() when the session got the job */
	uint64_t start; /* rp_stats_now() when received */
	enum rp_effect effect;
	uint64_t data;	   /* NOTIFY */
	uint16_t endpoint; /* NOTIFY */
	struct rp_job_then then;
	/* New class + 1 of a region that lost its class; 0: none. */
	uint32_t weakened;
	bool store_canceled;	    /* guarded by batch->store_lock */
	struct rp_wire_reply reply; /* the reply if nothing fails */
	size_t n;
	struct rp_job_range ranges[]; /* a result buffer follows */
};
TAILQ_HEAD(rp_jobs, rp_job);

/*
 * A job with nranges ranges, which the caller fills in, and a result of
 * result_len bytes behind them: rp_job_result().
 */
struct rp_job *rp_job_new(size_t nranges, size_t result_len);
static inline void *rp_job_result(struct rp_job *job)
{
	return &job->ranges[job->n];
}
/* Count the job as a user of its regions, until rp_job_free(). */
void rp_job_use_regions(struct rp_job *job);
void rp_job_free(struct rp_job *job);
/* Fail the job; it reports its first failure only. */
void rp_job_fail(struct rp_job *job, enum rp_status st, uint32_t detail,
		 size_t range);
/* Fail the job for lack of memory; a store that was executed stays executed. */
void rp_job_fail_memory(struct rp_job *job);
/* Should the worker run the job: does it wait, or flush many bytes? */
bool rp_job_blocks(const struct rp_job *job);
/* Most bytes that a job flushes in the caller's thread. */
#define RP_JOB_MAX_INLINE (16ull << 20)
/*
 * Cancel the job's store, as its session has ended: a store that was not
 * executed when this returns never will be.
 */
void rp_job_cancel_store(struct rp_job *job);

/* Most ranges of a batch: bounds the times to merge and to flush them. */
#define RP_BATCH_RANGES 2048

/* The ranges of one region that one pass flushes. */
struct rp_part {
	struct rp_region *region;
	struct rp_pmem *pmem;
	size_t first, n; /* index and number of ranges in the set */
	int err;	 /* positive errno of the first flush that failed */
};

/* Ranges that are flushed together. */
struct rp_pass {
	struct rp_ranges set; /* space: the region; addresses: local */
	struct rp_part *parts;
	size_t nparts;
};

struct rp_batch {
	struct rp_jobs jobs;
	struct rp_pass data;	    /* the ranges of the jobs */
	struct rp_pass then;	    /* the ordered stores of the jobs */
	size_t nranges;		    /* added to both, before merging */
	pthread_mutex_t store_lock; /* held while a job's store is executed */
	uint64_t flushes, bytes, drains;
};

int rp_batch_init(struct rp_batch *b);
void rp_batch_fini(struct rp_batch *b);
bool rp_batch_has_room(const struct rp_batch *b, const struct rp_job *job);
/*
 * Add the bytes of one range, rounded to its region's flush granularity. 0 or
 * -ENOMEM (then the batch may contain part of them).
 */
int rp_batch_add(struct rp_batch *b, const struct rp_job_range *range);
/* Add the 8 bytes of the job's ordered store to the batch. 0 or -ENOMEM. */
int rp_batch_add_then(struct rp_batch *b, const struct rp_job *job);

/*
 * Split a job: its ordered store, and ranges whose flush blocks or takes long,
 * go to b, the other ranges to cheap, which may be b. 0 or -ENOMEM.
 */
int rp_batch_merge(struct rp_batch *cheap, struct rp_batch *b,
		   const struct rp_job *job);

/* Sort the ranges into parts: after the last add, before the run. */
void rp_batch_seal(struct rp_batch *b);
/*
 * Flush and drain the jobs' ranges; then execute the stores of jobs whose
 * ranges are durable, in the order of the jobs; flush and drain these. When
 * this returns, the bytes of every part without err are durable. Touches only
 * the passes, the jobs that the batch had at the start, the errs and the
 * counters, so a worker thread can run it.
 */
void rp_batch_run(struct rp_batch *b);
/* Mark the region as failed, for good; err: positive errno. */
void rp_region_fail(struct rp_region *r, int err);
/*
 * Mark the regions of failed parts as failed, and fail jobs of the list that
 * have bytes of these regions to flush, or whose store was not executed.
 */
void rp_batch_complete(const struct rp_batch *b, struct rp_jobs *jobs);
/* Empty the batch for the next jobs; the caller has taken its jobs off. */
void rp_batch_reset(struct rp_batch *b);

#endif
