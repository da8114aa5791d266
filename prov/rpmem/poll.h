/* SPDX-License-Identifier: BSD-2-Clause */
/* Poll sets and their members. */
#ifndef RP_POLL_H
#define RP_POLL_H

#include "rpmem/rpmem.h"

/* One object. */
struct rp_poll_member {
	LIST_ENTRY(rp_poll_member) link;
	struct fid *fid;
	/* Of a queue: a set of the base's that holds the base's queue alone. */
	struct fid_poll *base;
	/* Of a counter: what the last look saw; each set has its own. */
	uint64_t ok, err;
};

struct rp_poll {
	struct fid_poll fid;
	struct rp_dom *dom;
	LIST_HEAD(, rp_poll_member) members;
	LIST_ENTRY(rp_poll) link;
};

/* Protects all sets and their members. */
extern pthread_mutex_t rp_poll_lock;

static inline struct rp_cq *rp_poll_cq(struct fid *fid)
{
	return rp_container_of(fid, struct rp_cq, fid.fid);
}

void rp_poll_register(struct rp_poll *p);
/* With the lock. NULL: not in the set. */
struct rp_poll_member *rp_poll_member_find(struct rp_poll *p,
					   const struct fid *fid);
void rp_poll_member_free(struct rp_poll_member *m);

#endif
