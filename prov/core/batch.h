/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests taken together: ranges merged, each line flushed once. */
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
	bool flush; /* no: delivery is enough for the required class */
};

/* The store of a job, behind its ranges. */
struct rp_job_then {
	struct rp_region *region; /* NULL: none */
	uint64_t off;
	uint64_t value;
	bool flush;
	int err; /* positive errno: not done */
};

/* One request that passed every check, until it is answered. */
struct rp_job {
	TAILQ_ENTRY(rp_job) link;	  /* a queue of the agent, or a batch */
	TAILQ_ENTRY(rp_job) of_owner;	  /* oldest first */
	struct rp_agent_session *session; /* NULL: local, or ended */
	struct rp_jobs *queue;		  /* where it waits; NULL: in a batch */
	struct rp_batch *batch;		  /* that one; or NULL */
	/* Local jobs: the list that of_owner is in, and the callback. */
	struct rp_jobs *local;
	void (*done)(void *arg, enum rp_status st, uint32_t detail);
	void *arg;
	uint64_t token;
	uint64_t since;
	enum rp_effect effect;
	uint64_t data;	   /* NOTIFY */
	uint16_t endpoint; /* NOTIFY */
	struct rp_job_then then;
	bool void_then; /* its session has ended; guarded by batch->storing */
	struct rp_wire_reply reply; /* what it says unless something fails */
	size_t n;
	struct rp_job_range ranges[]; /* and behind them room for a result */
};
TAILQ_HEAD(rp_jobs, rp_job);

/*
 * A job with nranges ranges, each to be filled in by the caller, and a result
 * of so many bytes behind them: rp_job_result().
 */
struct rp_job *rp_job_new(size_t nranges, size_t result_len);
static inline void *rp_job_result(struct rp_job *job)
{
	return &job->ranges[job->n];
}
/* Names its regions from here on, until rp_job_free(). */
void rp_job_hold(struct rp_job *job);
void rp_job_free(struct rp_job *job);
/* The first failure of a job is the one it reports. */
void rp_job_fail(struct rp_job *job, enum rp_status st, uint32_t detail,
		 size_t range);
/* Its flush found no memory. A store that is done must not be repeated. */
void rp_job_fail_memory(struct rp_job *job);
/* Do its flushes wait for a disk, or take long for their length? */
bool rp_job_blocks(const struct rp_job *job);
/* More than a thread should write back while others wait for it. */
#define RP_JOB_LONG (16ull << 20)
/*
 * Its session has ended: unless its store is done when this returns, it never
 * will be.
 */
void rp_job_void(struct rp_job *job);

/* Bounds the time that merging and one run take. */
#define RP_BATCH_RANGES 2048

/* The flushes of one pass in one region. */
struct rp_part {
	struct rp_region *region;
	struct rp_pmem *pmem;
	size_t first, n; /* ranges of the set */
	int err;	 /* positive errno of the first flush that failed */
};

/* Ranges that are flushed together. */
struct rp_pass {
	struct rp_ranges set; /* space: a region; addresses as mapped here */
	struct rp_part *parts;
	size_t nparts;
};

struct rp_batch {
	struct rp_jobs jobs;
	struct rp_pass data;	 /* the ranges of the jobs */
	struct rp_pass then;	 /* what they store once that is durable */
	size_t nranges;		 /* of the first, before merging */
	pthread_mutex_t storing; /* a session's end waits for one store */
	uint64_t flushes, bytes, drains;
};

int rp_batch_init(struct rp_batch *b);
void rp_batch_fini(struct rp_batch *b);
bool rp_batch_has_room(const struct rp_batch *b, const struct rp_job *job);
/*
 * Add the bytes of one range, rounded to what its region flushes at once. 0 or
 * -ENOMEM (the batch may have grown by them or not).
 */
int rp_batch_add(struct rp_batch *b, const struct rp_job_range *range);
/* The same for the place that the job's store goes to. */
int rp_batch_add_then(struct rp_batch *b, const struct rp_job *job);

/*
 * Add what the job wants flushed: ranges whose flush blocks, or is long, to b,
 * with its store, the others to cheap, which may be b. 0 or -ENOMEM.
 */
int rp_batch_merge(struct rp_batch *cheap, struct rp_batch *b,
		   const struct rp_job *job);

/* After the last add, before the run: which region has which ranges. */
void rp_batch_seal(struct rp_batch *b);
/*
 * Flush, then drain; then the stores of the jobs whose ranges are durable now,
 * in the order of the jobs; flush and drain those. When this returns, the bytes
 * of every part without err are durable. Reads the passes and what its jobs
 * were when it began, writes the errs and the counters, looks at nothing else,
 * so that a worker can do it.
 */
void rp_batch_run(struct rp_batch *b);
/* A flush of the region has failed; err: positive errno. Sticky. */
void rp_region_fail(struct rp_region *r, int err);
/*
 * Mark the regions of failed parts as failed, and fail the jobs of the list
 * that wanted bytes of them flushed, or whose store was not done.
 */
void rp_batch_judge(const struct rp_batch *b, struct rp_jobs *jobs);
/* Ready for the next ones. Its jobs have been taken off. */
void rp_batch_reset(struct rp_batch *b);

#endif
