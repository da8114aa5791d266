// SPDX-License-Identifier: BSD-2-Clause
/* Messages that come over a connection of our own, and answers to them. */
#include <stdlib.h>

#include "rpmem/conn.h"

static int post(struct rp_conns *set, struct rp_conn_recv *r)
{
	struct rp_conn_recvs *rs = r->of;

	return set->ops->recv(set->ceps, rs->conn ? rs->conn->cep : NULL,
			      rs->served, r->buf, rs->size, rs->mr.desc,
			      rp_conn_recv_context(r));
}

/* What has been posted of *out the device knows, whatever is returned. */
static int make(struct rp_conns *set, struct rp_conn *c, bool served,
		struct rp_conn_recvs **out)
{
	/* At the initiator nothing but answers comes. */
	size_t size = served ? RP_WIRE_MAX_MSG : RP_WIRE_INJECT;
	struct rp_conn_recvs *rs;
	int ret = 0;

	*out = NULL;
	if (set->nrecvs + RP_CONN_RECVS > RP_CONNS_RECVS)
		return -FI_EAGAIN;
	rs = malloc(sizeof(*rs) + RP_CONN_RECVS * size);
	if (!rs)
		return -FI_ENOMEM;
	rs->conn = c;
	rs->served = served;
	rs->size = size;
	rs->mr = (struct rp_cep_mr){0};
	if (set->attr.local)
		ret = rp_conns_reg(set, rs->bytes, RP_CONN_RECVS * size,
				   FI_RECV, &rs->mr);
	if (ret) {
		free(rs);
		return ret;
	}
	*out = rs;
	set->nrecvs += RP_CONN_RECVS;
	for (int i = 0; i < RP_CONN_RECVS && !ret; i++) {
		rs->recv[i].of = rs;
		rs->recv[i].buf = rs->bytes + (size_t)i * size;
		ret = post(set, &rs->recv[i]);
	}
	return ret;
}

/* Of all: as many as one connection can need, for each, up to a bound. */
static int post_shared(struct rp_conn *c)
{
	struct rp_conns *set = c->set;
	struct rp_conn_recvs *rs;
	bool served = !c->peer;
	int ret;

	if (set->npool[served] >= RP_CONNS_POOL)
		return 0;
	ret = make(set, NULL, served, &rs);
	if (rs) {
		LIST_INSERT_HEAD(&set->pool, rs, link);
		set->npool[served]++;
	}
	/* The others' are enough, if there are any. */
	return set->npool[served] ? 0 : ret;
}

int rp_conn_recvs_post(struct rp_conn *c)
{
	int ret;

	if (c->receives)
		return 0;
	if (c->recvs) /* not all of them: it is of no use */
		return -FI_EIO;
	ret = c->set->attr.shared ? post_shared(c)
				  : make(c->set, c, !c->peer, &c->recvs);
	c->receives = !ret;
	return ret;
}

void rp_conn_recvs_close(struct rp_conn *c)
{
	struct rp_conn_recvs *rs = c->recvs;

	if (!rs)
		return;
	c->recvs = NULL;
	rs->conn = NULL;
	c->set->nrecvs -= RP_CONN_RECVS;
	LIST_INSERT_HEAD(&c->set->dying, rs, link);
}

void rp_conn_recvs_reap(struct rp_conns *set)
{
	struct rp_conn_recvs *rs;

	while ((rs = LIST_FIRST(&set->dying))) {
		LIST_REMOVE(rs, link);
		rp_conns_dereg(set, &rs->mr);
		free(rs);
	}
}

void rp_conn_recvs_end(struct rp_conns *set)
{
	struct rp_conn_recvs *rs;

	while ((rs = LIST_FIRST(&set->pool))) {
		LIST_REMOVE(rs, link);
		LIST_INSERT_HEAD(&set->dying, rs, link);
	}
	LIST_FOREACH (rs, &set->dying, link)
		rp_conns_dereg(set, &rs->mr);
	set->npool[0] = set->npool[1] = 0;
	set->nrecvs = 0;
}

/* False: nobody of ours sends that. */
static bool take(struct rp_conn *c, const void *msg, size_t len)
{
	struct rp_linked *op;

	if (!c->peer)
		return rp_agent_linked(c->set->dom->agent, c->x, c, msg, len);
	op = rp_linked_answered(c->peer, msg, len);
	if (op)
		rp_linked_taken(c->set, op);
	return op;
}

void rp_conn_received(struct rp_conns *set, struct rp_conn_recv *r,
		      struct rp_conn *c, size_t len, int err)
{
	const struct rp_conn_recvs *rs = r->of;
	bool good;
	int ret;

	if (!set->attr.shared)
		c = rs->conn;
	/* L3: what came over one that is over is not looked at. */
	if (!c && !set->attr.shared)
		return;
	good = c && !err && len <= rs->size && take(c, r->buf, len);
	/* Taking it may have ended the connection, but not what is shared. */
	if (good || set->attr.shared) {
		ret = post(set, r);
		if (ret)
			RP_WARN(EP_CTRL, "a receive is not posted again: %s\n",
				fi_strerror(-ret));
		good = good && !ret;
	}
	if (c && (!good || c->mute))
		rp_conn_broken(c);
}

void rp_conn_answer(struct rp_xport *x, void *conn, const void *msg, size_t len)
{
	const struct rp_cep_op op = {
		.kind = RP_CEP_SEND,
		.copied = true,
		.buf = (void *)msg,
		.len = len,
	};
	struct rp_conn *c = conn;

	/* There is room for as many as may be asked for at once. */
	if (c->set->ops->post(c->cep, &op, 1) != 1)
		c->mute = true;
}
