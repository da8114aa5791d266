// SPDX-License-Identifier: BSD-2-Clause
/* Members of poll sets: closing a queue or counter removes it from all sets. */
#include <stdlib.h>

#include "rpmem/poll.h"

static LIST_HEAD(, rp_poll) sets = LIST_HEAD_INITIALIZER(sets);
pthread_mutex_t rp_poll_lock = PTHREAD_MUTEX_INITIALIZER;

void rp_poll_register(struct rp_poll *p)
{
	pthread_mutex_lock(&rp_poll_lock);
	LIST_INSERT_HEAD(&sets, p, link);
	pthread_mutex_unlock(&rp_poll_lock);
}

struct rp_poll_member *rp_poll_member_find(struct rp_poll *p,
					   const struct fid *fid)
{
	struct rp_poll_member *m;

	LIST_FOREACH (m, &p->members, link)
		if (m->fid == fid)
			return m;
	return NULL;
}

void rp_poll_member_free(struct rp_poll_member *m)
{
	LIST_REMOVE(m, link);
	if (m->base) {
		fi_poll_del(m->base, &rp_fid_to_cq(m->fid)->base->fid, 0);
		fi_close(&m->base->fid);
	}
	free(m);
}

void rp_poll_remove_member(const struct fid *fid)
{
	struct rp_poll_member *m;
	struct rp_poll *p;

	pthread_mutex_lock(&rp_poll_lock);
	LIST_FOREACH (p, &sets, link) {
		m = rp_poll_member_find(p, fid);
		if (m)
			rp_poll_member_free(m);
	}
	pthread_mutex_unlock(&rp_poll_lock);
}
