// SPDX-License-Identifier: BSD-2-Clause
/* Receives of private connections: each channel's own, or a shared pool's. */
#include <errno.h>
#include <stdlib.h>

#include "core/log.h"
#include "rc/rc_priv.h"

/* Receives that the pool grows by, and what one more channel adds. */
#define SLAB	    16
#define PER_CHANNEL 2

static struct rp_rc_slab *slab_new(struct rp_rc *rc, struct rp_rc_channel *c,
				   unsigned int n)
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
			.channel = c,
			.desc = s->mr.desc,
			.buf = s->bytes + (size_t)i * RP_WIRE_MAX_MSG,
		};
	return s;
}

static void slab_free(struct rp_rc *rc, struct rp_rc_slab *s)
{
	rp_rc_dereg(rc, &s->mr);
	free(s);
}

static int recv_post(struct rp_rc *rc, struct rp_rc_recv *r)
{
	int ret = rc->ops->post_recv(rc, r->channel, r);

	if (!ret && r->channel)
		r->channel->nrecvs++;
	return ret;
}

static int own_open(struct rp_rc_channel *c)
{
	int ret = 0;

	c->recvs = slab_new(c->rc, c, RP_RC_RECVS);
	if (!c->recvs)
		return -ENOMEM;
	for (unsigned int i = 0; i < c->recvs->n && !ret; i++)
		ret = recv_post(c->rc, &c->recvs->recv[i]);
	return ret;
}

/* A receive that the device refuses stays in its slab, unused. */
static int pool_grow(struct rp_rc *rc)
{
	struct rp_rc_slab *s = slab_new(rc, NULL, SLAB);
	unsigned int posted = 0;
	int ret = 0;

	if (!s)
		return -ENOMEM;
	LIST_INSERT_HEAD(&rc->pool, s, link);
	while (posted < s->n && !(ret = recv_post(rc, &s->recv[posted])))
		posted++;
	rc->npool += posted;
	return posted ? 0 : ret;
}

static int pool_open(struct rp_rc *rc)
{
	unsigned int want = RP_RC_SHARED_RECVS + rc->nchannels * PER_CHANNEL;
	int ret = 0;

	if (want > rc->shared)
		want = rc->shared;
	while (!ret && rc->npool + SLAB <= want)
		ret = pool_grow(rc);
	/* A smaller pool serves as well, more slowly. */
	return rc->npool ? 0 : ret ? ret : -ENOMEM;
}

int rp_rc_recvs_open(struct rp_rc_channel *c)
{
	return c->rc->shared ? pool_open(c->rc) : own_open(c);
}

void rp_rc_recvs_free(struct rp_rc_channel *c)
{
	/* Memory that the device may write to is never freed. */
	if (c->recvs && !c->nrecvs)
		slab_free(c->rc, c->recvs);
	c->recvs = NULL;
}

void rp_rc_recv_repost(struct rp_rc *rc, struct rp_rc_recv *r)
{
	struct rp_rc_channel *c = r->channel;
	int ret;

	if (c && (c->shut || c->state != RP_RC_UP))
		return;
	ret = recv_post(rc, r);
	if (!ret)
		return;
	if (c) {
		rp_rc_end(c, -ret, NULL, 0);
		return;
	}
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
