// SPDX-License-Identifier: BSD-2-Clause
/* Small writes that travel together, in one message, over a connection of our
 * own. */
#include <stdlib.h>

#include "rpmem/conn.h"

/* A larger one is worth an operation of its own. */
#define MAX_LEN 512
/* So many of the smallest fit into one message. */
#define MAX_WRITES RP_WIRE_MAX_EFFECT_RANGES

/* Of one endpoint to one peer, over one connection. */
struct rp_gather {
	struct rp_gather *next; /* spare */
	struct rp_peer *peer;
	uint64_t id; /* of the connection */
	size_t n, len;
	struct rp_wire_range ranges[MAX_WRITES];
	struct rp_slot *slots[MAX_WRITES];
	struct rp_write *writes[MAX_WRITES];
	char bytes[RP_WIRE_MAX_STORE];
};

static void spare(struct rp_ep *ep, struct rp_gather *g)
{
	g->next = ep->gather_spare;
	ep->gather_spare = g;
}

/* All of them have ended, for the program too. */
static void complete(struct rp_ep *ep, struct rp_gather *g,
		     const struct rp_outcome *out)
{
	const enum rp_status st = out->status;

	for (size_t i = 0; i < g->n; i++) {
		struct rp_slot *s = g->slots[i];

		s->written = true;
		rp_write_done(&s->write[0], st != RP_ST_OK);
		atomic_fetch_sub(&ep->stores, 1);
		rp_cntr_tell(ep, RP_CNTR_WRITE, st != RP_ST_OK);
		if (st == RP_ST_OK)
			rp_slot_tell_ok(s);
		else
			rp_slot_tell_error(s, rp_status_errno(st), (int)st,
					   out);
		rp_slot_put(&ep->dom->slots, s);
	}
	spare(ep, g);
}

static void done(void *arg, const struct rp_outcome *out)
{
	struct rp_slot *s = arg;

	complete(s->ep, s->buf, out);
	s->buf = NULL;
	s->committed = true;
	if (s->written)
		rp_slot_put(&s->ep->dom->slots, s);
}

/* 0: it has them, and done() follows. */
static int send_all(struct rp_ep *ep, struct rp_gather *g,
		    struct rp_link_way *way)
{
	struct rp_slot *s = rp_slot_get(&ep->dom->slots, ep, RP_SLOT_LINKED);
	struct rp_commit_attr attr = {
		.ranges = g->ranges,
		.nranges = g->n,
		.level = RP_LEVEL_VISIBLE,
		.required = RP_CLASS_NONE,
		.writes = g->writes,
		.done = done,
		.arg = s,
	};
	int ret;

	if (!s)
		return -FI_EAGAIN;
	ret = rp_commit_reserve(g->peer, &attr, &s->commit);
	if (!ret) {
		ret = rp_linked_send(s, way, g->bytes);
		if (!ret) {
			s->buf = g;
			rp_linked_sent(s, way);
			return 0;
		}
		rp_commit_unreserve(s->commit);
	}
	rp_slot_put(&ep->dom->slots, s);
	return ret;
}

bool rp_gather_send(struct rp_ep *ep)
{
	const struct rp_outcome lost = {
		.status = RP_ST_WRITE_FAILED,
		.required = ep->required,
	};
	struct rp_gather *g = ep->gather;
	struct rp_link_way way;
	int ret;

	if (!g)
		return true;
	ret = rp_link_may_send(g->peer, g->id, &way);
	if (!ret)
		ret = send_all(ep, g, &way);
	if (ret == -FI_EAGAIN || ret == -FI_ENOMEM)
		return false;
	ep->gather = NULL;
	/* Never sent, so nothing of it can come: the program is told. */
	if (ret)
		complete(ep, g, &lost);
	return true;
}

void rp_gather_close(struct rp_ep *ep)
{
	const struct rp_outcome canceled = {
		.status = RP_ST_CANCELED,
		.required = ep->required,
	};
	struct rp_gather *g = ep->gather;

	if (rp_gather_send(ep))
		return;
	ep->gather = NULL;
	complete(ep, g, &canceled);
}

void rp_gather_free(struct rp_ep *ep)
{
	struct rp_gather *g;

	while ((g = ep->gather_spare)) {
		ep->gather_spare = g->next;
		free(g);
	}
}

static struct rp_gather *begin(struct rp_ep *ep, struct rp_peer *peer)
{
	struct rp_gather *g = ep->gather_spare;

	if (g)
		ep->gather_spare = g->next;
	else
		g = malloc(sizeof(*g));
	if (!g)
		return NULL;
	g->peer = peer;
	g->id = rp_link_id(peer);
	g->n = g->len = 0;
	ep->gather = g;
	/* The next look at anything sends it. */
	ep->tx_cq->quick = 0;
	return g;
}

static bool has_room(const struct rp_gather *g, size_t len)
{
	return g->n < MAX_WRITES &&
	       RP_WIRE_STORES(g->n + 1, g->len + len) <= RP_WIRE_MAX_MSG &&
	       g->len + len <= RP_WIRE_MAX_STORE;
}

static void add(struct rp_gather *g, struct rp_slot *s,
		const struct fi_msg_rma *msg, size_t len)
{
	const struct fi_rma_iov *to = msg->rma_iov;

	rp_msg_copy(g->bytes + g->len, msg);
	g->ranges[g->n] = (struct rp_wire_range){to->key, to->addr, len};
	g->slots[g->n] = s;
	g->writes[g->n] = &s->write[0];
	g->n++;
	g->len += len;
	rp_link_gather(g->peer, &s->write[0], to->key, to->addr, len);
}

bool rp_gather_write(struct rp_ep *ep, const struct fi_msg_rma *msg, size_t len,
		     uint64_t flags, bool want, ssize_t *ret)
{
	const struct fi_rma_iov *to = msg->rma_iov;
	struct rp_dom *dom = ep->dom;
	struct rp_gather *g;
	struct rp_peer *peer;
	struct rp_slot *s;

	/* Somebody has to look again soon, or it would never go. */
	if (!dom->conns || !dom->conns->attr.asks || dom->auto_progress ||
	    atomic_load(&dom->sleeps) ||
	    (flags & (FI_COMMIT_COMPLETE | FI_REMOTE_CQ_DATA | FI_FENCE)) ||
	    msg->rma_iov_count != 1 || !len || len > MAX_LEN ||
	    len != to->len || !rp_key_is_persistent(to->key) ||
	    to->addr + len < to->addr || rp_rma_peer(ep, msg->addr, &peer))
		return false;
	g = ep->gather;
	*ret = -FI_EAGAIN;
	if (g && (g->peer != peer || g->id != rp_link_id(peer) ||
		  !has_room(g, len))) {
		if (!rp_gather_send(ep))
			return true;
		g = NULL;
	}
	if (!rp_link_may_gather(peer, to->key, to->addr, len))
		return false;
	s = rp_slot_get(&dom->slots, ep, RP_SLOT_WRITE);
	if (!s)
		return true;
	if (!g)
		g = begin(ep, peer);
	if (!g) {
		rp_slot_put(&dom->slots, s);
		return true;
	}
	s->want = want;
	s->context = msg->context;
	s->flags = FI_RMA | FI_WRITE;
	s->nwrites = 1;
	atomic_fetch_add(&ep->stores, 1);
	add(g, s, msg, len);
	*ret = 0;
	return true;
}
