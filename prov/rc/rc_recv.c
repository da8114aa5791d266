// SPDX-License-Identifier: BSD-2-Clause
/* The pool of receives that all private connections of an rp_rc share. */
#include <errno.h>
#include <stdlib.h>

#include "core/log.h"
#include "rc/rc_priv.h"

/* Receives per allocation, and receives wanted per further channel. */
#define SLAB	    16
#define PER_CHANNEL 2

static struct rp_rc_slab *slab_new(struct rp_rc *rc, unsigned int n)
{
	struct rp_rc_slab *s =
		malloc(sizeof(*s) + n * (sizeof(*s->recv) + RP_WIRE_MAX_MSG));
	int ret = 0;

	if (!s)
		return NULL;
	*s = (struct rp_rc_slab){.n = n};
	s->recv = (struct rp_rc_recv *)(s + 1);
	s->bytes = (uint8_t *)(s->recv + n);
	if (rc->local_mr)
		ret = rp_rc_reg(rc, s->bytes, (size_t)n * RP_WIRE_MAX_MSG,
				RP_RC_LOCAL, &s->mr);
	if (ret) {
		free(s);
		return NULL;
	}
	for (unsigned int i = 0; i < n; i++)
		s->recv[i] = (struct rp_rc_recv){
			.desc = s->mr.desc,
			.buf = s->bytes + (size_t)i * RP_WIRE_MAX_MSG,
		};
	return s;
}

/* Post a new slab; a receive that the device refuses stays unused. */
static int slab_post(struct rp_rc *rc)
{
	struct rp_rc_slab *s = slab_new(rc, SLAB);
	unsigned int posted = 0;
	int ret = 0;

	if (!s)
		return -ENOMEM;
	LIST_INSERT_HEAD(&rc->pool, s, link);
	while (posted < s->n &&
	       !(ret = rc->ops->post_recv(rc, &s->recv[posted])))
		posted++;
	rc->npool += posted;
	return posted ? 0 : ret;
}

int rp_rc_pool_grow(struct rp_rc *rc)
{
	unsigned int want = RP_RC_FIRST_RECVS + rc->nchannels * PER_CHANNEL;
	int ret = 0;

	if (want > rc->shared)
		want = rc->shared;
	while (!ret && rc->npool + SLAB <= want)
		ret = slab_post(rc);
	/* A smaller pool also works, more slowly. */
	return rc->npool ? 0 : ret ? ret : -ENOMEM;
}

void rp_rc_recv_repost(struct rp_rc *rc, struct rp_rc_recv *r)
{
	int ret = rc->ops->post_recv(rc, r);

	if (!ret)
		return;
	rc->npool--;
	rp_log(RP_LOG_WARN,
	       "private connections: a receive could not be posted "
	       "again (%d); %u are left",
	       ret, rc->npool);
}

void rp_rc_pool_dereg(struct rp_rc *rc)
{
	struct rp_rc_slab *s;

	LIST_FOREACH (s, &rc->pool, link)
		rp_rc_dereg(rc, &s->mr);
}

void rp_rc_pool_free(struct rp_rc *rc)
{
	struct rp_rc_slab *s;

	while ((s = LIST_FIRST(&rc->pool))) {
		LIST_REMOVE(s, link);
		free(s);
	}
	rc->npool = 0;
}
