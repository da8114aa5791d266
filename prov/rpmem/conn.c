// SPDX-License-Identifier: BSD-2-Clause
/* One connection of our own: dialed or offered, made, over. */
#include <stdlib.h>
#include <string.h>

#include "rpmem/conn.h"
#include "rpmem/host.h"

static struct rp_ep *ep_of(struct rp_xport *x)
{
	return rp_container_of(x, struct rp_ep, xport);
}

static struct rp_conn *conn_new(struct rp_conns *set)
{
	struct rp_conn *c;

	if (set->n >= RP_CONNS_MAX)
		return NULL;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->set = set;
	c->born = rp_domain_now(set->dom);
	LIST_INSERT_HEAD(&set->all, c, link);
	set->n++;
	set->half++;
	return c;
}

/*
 * When the endpoint is closed nothing that its peer sends reaches memory any
 * more: the queue pair is gone, or the socket. Then keys may be used again.
 */
static void conn_close(struct rp_conn *c)
{
	c->set->half -= !c->up && !c->over;
	c->up = false;
	c->over = true;
	if (c->cep)
		c->set->ops->close(c->cep);
	c->cep = NULL;
	c->ngranted = 0;
	rp_conn_recvs_close(c);
	rp_linked_abandon(c);
}

static void conn_free(struct rp_conn *c)
{
	conn_close(c);
	LIST_REMOVE(c, link);
	c->set->n--;
	free(c);
}

void rp_conn_broken(struct rp_conn *c)
{
	if (c->over)
		return;
	/* Core hangs up, and with that it is freed. */
	if (c->peer)
		rp_link_broken(c->peer);
	else
		conn_close(c);
}

void rp_conn_connected(struct rp_conn *c)
{
	if (c->over || c->up)
		return;
	c->up = true;
	c->set->half--;
	if (c->peer)
		rp_link_up(c->peer);
}

/* Before anything can come. */
static int make_ready(struct rp_conn *c)
{
	bool messages = c->peer ? c->set->attr.asks : c->serves;

	return messages ? rp_conn_recvs_post(c) : 0;
}

int rp_conn_dial(struct rp_xport *x, struct rp_peer *p, const void *addr,
		 size_t len, uint64_t secret, void **conn)
{
	struct rp_conns *set = ep_of(x)->dom->conns;
	struct rp_conn *c;
	int ret = rp_conns_open(set, ep_of(x), false);

	/* An address of another length or family would confuse the base. */
	if (ret || len != ep_of(x)->addr_len ||
	    memcmp(addr, ep_of(x)->addr, sizeof(short)))
		return ret ? ret : -FI_EINVAL;
	c = conn_new(set);
	if (!c)
		return -FI_ENOMEM;
	c->peer = p;
	ret = set->ops->dial(set->ceps, addr, len, c, &c->cep);
	if (!ret)
		ret = make_ready(c);
	if (!ret)
		ret = set->ops->connect(c->cep, &secret, sizeof(secret));
	if (ret)
		conn_free(c);
	else
		*conn = c;
	return ret;
}

void rp_conn_hang_up(struct rp_xport *x, void *conn)
{
	struct rp_conn *c = conn;

	c->peer = NULL;
	conn_free(c);
}

static int grant(struct rp_conn *c, struct rp_mr *mr)
{
	for (unsigned int i = 0; i < c->ngranted; i++)
		if (c->granted[i] == mr)
			return 0;
	if (c->ngranted == RP_CONN_GRANTS)
		return -FI_ENOSPC;
	c->granted[c->ngranted++] = mr;
	return 0;
}

int rp_conn_offer(struct rp_xport *x, void **conn, const struct rp_region *r,
		  struct rp_wire_offer *m)
{
	struct rp_conns *set = ep_of(x)->dom->conns;
	struct rp_conn *c = *conn;
	struct rp_mr *mr;
	int ret = rp_conns_open(set, ep_of(x), true);

	if (ret || (c && c->over))
		return ret ? ret : -FI_ENOTCONN;
	if (!c) {
		if (set->half >= RP_CONNS_HALF)
			return -FI_EAGAIN;
		c = conn_new(set);
		if (!c)
			return -FI_ENOMEM;
		c->x = x;
		*conn = c;
		while (!ret && !c->secret)
			ret = rp_host_random(&c->secret, sizeof(c->secret));
	}
	if (!ret)
		ret = rp_mr_link(r, set, &mr, m);
	if (!ret && rp_method_serves((enum rp_method)m->method)) {
		c->serves = true;
		if (!set->attr.asks)
			ret = -FI_ENOSYS;
		else if (c->cep)
			ret = rp_conn_recvs_post(c);
	}
	if (!ret)
		ret = grant(c, mr);
	if (ret)
		return ret;
	m->secret = c->secret;
	m->addr_len = (uint16_t)set->to_len;
	memcpy(m->to, set->to, set->to_len);
	return 0;
}

void rp_conn_unoffer(struct rp_xport *x, void *conn)
{
	conn_free(conn);
}

/* The one that this secret was offered to, and that nobody has taken yet. */
static struct rp_conn *offered(struct rp_conns *set, const void *shown,
			       size_t len)
{
	struct rp_conn *c;
	uint64_t secret;

	if (len < sizeof(secret))
		return NULL;
	memcpy(&secret, shown, sizeof(secret));
	LIST_FOREACH (c, &set->all, link)
		if (c->secret && c->secret == secret && !c->cep && !c->over)
			return c;
	return NULL;
}

void rp_conn_requested(struct rp_conns *set, void *request, const void *shown,
		       size_t len)
{
	struct rp_conn *c = offered(set, shown, len);
	int ret;

	if (!c) {
		RP_INFO(EP_CTRL, "a connection that was offered to nobody is "
				 "refused\n");
		set->ops->reject(set->ceps, request);
		return;
	}
	ret = set->ops->take(set->ceps, request, c, &c->cep);
	if (!ret)
		ret = make_ready(c);
	if (!ret)
		ret = set->ops->accept(c->cep);
	if (ret)
		rp_conn_broken(c);
}
