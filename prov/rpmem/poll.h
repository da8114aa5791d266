/* SPDX-License-Identifier: BSD-2-Clause */
/* fi_poll sets, and the queues and counters in them. */
#ifndef RP_POLL_H
#define RP_POLL_H

#include "rpmem/rpmem.h"

/* A queue or counter in a poll set. */
struct rp_poll_member {
	LIST_ENTRY(rp_poll_member) link;
	struct fid *fid;
	/* For a queue: a poll set of the base, holding the queue's base. */
	struct fid_poll *base;
	/* For a counter: its values at the last fi_poll() of this set. */
	uint64_t ok, err;
};

struct rp_poll {
	struct fid_poll fid;
	struct rp_dom *dom;
	LIST_HEAD(, rp_poll_member) members;
	LIST_ENTRY(rp_poll) link;
};

/* Guards all poll sets and their members. */
extern pthread_mutex_t rp_poll_lock;

static inline struct rp_cq *rp_fid_to_cq(struct fid *fid)
{
	return rp_container_of(fid, struct rp_cq, fid.fid);
}

void rp_poll_register(struct rp_poll *p);
/* With rp_poll_lock: find fid in the set; NULL: not a member. */
struct rp_poll_member *rp_poll_member_find(struct rp_poll *p,
					   const struct fid *fid);
void rp_poll_member_free(struct rp_poll_member *m);

#endif
