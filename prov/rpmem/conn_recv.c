// SPDX-License-Identifier: BSD-2-Clause
/* Messages that come over a connection of our own, and answers to them. */
#include <stdlib.h>

#include "rpmem/conn.h"

static void recvs_free(struct rp_conn_recvs *rs)
{
	if (rs->mr)
		fi_close(&rs->mr->fid);
	free(rs);
}

static int post(struct rp_conn_recv *r)
{
	struct rp_conn_recvs *rs = r->of;

	return (int)fi_recv(rs->conn->ep, r->buf, rs->size, rp_mr_desc(rs->mr),
			    FI_ADDR_UNSPEC, rp_conn_recv_context(r));
}

int rp_conn_recvs_post(struct rp_conn *c)
{
	struct rp_conns *set = c->set;
	/* At the initiator nothing but answers comes. */
	size_t size = c->peer ? RP_WIRE_INJECT : RP_WIRE_MAX_MSG;
	struct rp_conn_recvs *rs;
	int ret = 0;

	if (c->recvs)
		return 0;
	if (set->nrecvs + RP_CONN_RECVS > RP_CONNS_RECVS)
		return -FI_EAGAIN;
	rs = malloc(sizeof(*rs) + RP_CONN_RECVS * size);
	if (!rs)
		return -FI_ENOMEM;
	rs->conn = c;
	rs->mr = NULL;
	rs->size = size;
	if (rp_conns_local(set))
		ret = rp_conns_reg(set, rs->bytes, RP_CONN_RECVS * size,
				   FI_RECV, &rs->mr);
	if (ret) {
		free(rs);
		return ret;
	}
	/* From here on the device knows of it. */
	c->recvs = rs;
	set->nrecvs += RP_CONN_RECVS;
	for (int i = 0; i < RP_CONN_RECVS && !ret; i++) {
		rs->recv[i].of = rs;
		rs->recv[i].buf = rs->bytes + (size_t)i * size;
		ret = post(&rs->recv[i]);
	}
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
		recvs_free(rs);
	}
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

void rp_conn_received(struct rp_conn_recv *r, size_t len, int err)
{
	/* L3: what came over one that is over is not looked at. */
	struct rp_conn *c = r->of->conn;

	if (!c)
		return;
	if (err || len > r->of->size || !take(c, r->buf, len) || c->mute ||
	    post(r))
		rp_conn_broken(c);
}

void rp_conn_answer(struct rp_xport *x, void *conn, const void *msg, size_t len)
{
	struct rp_conn *c = conn;

	/* There is room for as many as may be asked for at once. */
	if (fi_inject(c->ep, msg, len, FI_ADDR_UNSPEC))
		c->mute = true;
}
