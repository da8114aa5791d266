/* SPDX-License-Identifier: BSD-2-Clause */
/* What agent.c and serve.c share about one agent; nobody else's. */
#ifndef RP_AGENT_IMPL_H
#define RP_AGENT_IMPL_H

#include "core/agent.h"
#include "core/batch.h"
#include "core/client.h"
#include "core/worker.h"

/*
 * A request passes through: recv (checked, answered at once if there is
 * nothing to flush), a queue, a batch, finish(). Requests whose flush is a
 * few instructions go through `quick` and `inl`, which runs inside progress;
 * those with a flush that blocks through `slow` and `far`, which the worker
 * runs while `far_runs` is set. Jobs and clients are touched only under the
 * adapter's lock.
 */
/* A HELLO from somebody new, not yet looked at. */
struct rp_stranger {
	STAILQ_ENTRY(rp_stranger) link;
	struct rp_xport *x;
	struct rp_wire_hdr hdr;
	struct rp_wire_hello hello;
};

struct rp_agent {
	struct rp_agent_attr attr;
	struct rp_regions regions;
	struct rp_clients clients;
	struct rp_worker worker;
	struct rp_jobs quick, slow;
	struct rp_jobs local; /* by of_client: those of local.c */
	struct rp_batch inl, far;
	struct rp_job *linked; /* for one that is done with at once */
	bool far_runs;
	STAILQ_HEAD(, rp_stranger) strangers;
	unsigned int nstrangers;
	unsigned int welcome; /* strangers until the next progress call */
	bool quiescing;
	uint64_t progress_at; /* no PROGRESS is due before */
	uint64_t retry_at;
	struct rp_agent_stats stats;
};

/* local.c: the end of such a job, and of whoever waits for it */
void rp_agent_local_end(struct rp_agent *a, struct rp_job *job);
void rp_agent_local_drop(struct rp_agent *a, const struct rp_xport *x);

/* offer.c */
void rp_agent_connect(struct rp_agent *a, struct rp_client *c, const void *msg,
		      const struct rp_wire_hdr *hdr);

/* serve.c */
/* Answer strangers that wait, as many as may be now. True: some. */
bool rp_agent_welcome(struct rp_agent *a);
/* Forget those that wait at x. */
void rp_agent_drop_strangers(struct rp_agent *a, const struct rp_xport *x);
/*
 * Check all of a request before anything of it is done; job has as many ranges.
 * *work: there is something to do besides the bytes that it brings.
 */
enum rp_status rp_agent_check(struct rp_agent *a,
			      const struct rp_wire_request *m,
			      struct rp_job *job, bool *work);
/* Bring those to their place. False: the job has failed. */
bool rp_agent_store(const struct rp_wire_request *m, struct rp_job *job,
		    bool *work);
struct rp_wire_hdr rp_agent_hdr(const struct rp_agent *a,
				const struct rp_client *c, uint64_t token);
/* The answer as it goes out, RP_WIRE_INJECT bytes; 0: a fault has lost it. */
int rp_agent_put_reply(const struct rp_agent *a, const struct rp_client *c,
		       uint64_t token, const struct rp_wire_reply *m,
		       void *msg);
void rp_agent_reply(struct rp_agent *a, struct rp_client *c, uint64_t token,
		    const struct rp_wire_reply *m);

#endif
