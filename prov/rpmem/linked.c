// SPDX-License-Identifier: BSD-2-Clause
/* Durable writes over a connection of our own, and the reads behind them. */
#include <stdlib.h>
#include <string.h>

#include "rpmem/conn.h"

/* What this operation has that must not go before it has come back. */
static void release_source(struct rp_conns *set, struct rp_slot *s)
{
	if (s->linked.bounced)
		set->bounce_free |= 1u << s->linked.bounce;
	s->linked.bounced = false;
	rp_conns_dereg(set, &s->linked.source);
}

/* It is to go over this connection: nothing of it is under way yet. */
static void begin(struct rp_slot *s, struct rp_conn *c, bool asks)
{
	s->linked.conn = c;
	s->linked.bounced = false;
	s->linked.source = (struct rp_cep_mr){0};
	s->linked.asks = asks;
	s->due = 0;
}

/* Nothing of it is under way any more. */
static void finish(struct rp_conns *set, struct rp_slot *s)
{
	release_source(set, s);
	s->written = true;
	if (s->kind == RP_SLOT_DEAD || s->committed)
		rp_slot_put(&set->dom->slots, s);
}

static bool is_due(const struct rp_slot *s, const struct rp_conn *c)
{
	return (s->kind == RP_SLOT_LINKED || s->kind == RP_SLOT_DEAD) &&
	       s->due && s->linked.conn == c;
}

void rp_linked_abandon(struct rp_conn *c)
{
	struct rp_conns *set = c->set;
	struct rp_slot *s, *next;

	for (s = LIST_FIRST(&set->dom->slots.used); s; s = next) {
		next = LIST_NEXT(s, link);
		if (!is_due(s, c))
			continue;
		s->linked.conn = NULL;
		s->due -= s->linked.asks;
		s->linked.asks = false;
		if (s->due)
			set->abandoned = true;
		else
			finish(set, s);
	}
	set->posted -= c->posted;
	c->posted = 0;
}

void rp_linked_reap(struct rp_conns *set)
{
	struct rp_slot *s, *next;

	if (!set->abandoned)
		return;
	set->abandoned = false;
	for (s = LIST_FIRST(&set->dom->slots.used); s; s = next) {
		next = LIST_NEXT(s, link);
		if (!is_due(s, NULL))
			continue;
		s->due = 0;
		finish(set, s);
	}
}

void rp_linked_taken(struct rp_conns *set, struct rp_linked *op)
{
	struct rp_slot *s = rp_container_of(op, struct rp_slot, linked.op);

	s->linked.asks = false;
	s->linked.conn->asked--;
	if (!--s->due)
		finish(set, s);
}

void rp_linked_completed(struct rp_conns *set, struct rp_slot *s, bool fence,
			 int err)
{
	struct rp_conn *c = s->linked.conn;

	s->due--;
	if (c) {
		c->posted--;
		set->posted--;
	}
	/* What was before a read on the same endpoint has been done by then. */
	if (s->kind == RP_SLOT_LINKED && c && (!fence || !err))
		rp_linked_written(&s->linked.op, err);
	if (s->kind == RP_SLOT_LINKED && c && fence)
		rp_linked_fenced(&s->linked.op, err);
	if (!s->due)
		finish(set, s);
}

/* A buffer of ours, registered; NULL: none is free. */
static void *take_bounce(struct rp_conns *set, struct rp_slot *s)
{
	if (!set->bounce_free)
		return NULL;
	s->linked.bounce = (unsigned int)__builtin_ctz(set->bounce_free);
	s->linked.bounced = true;
	set->bounce_free &= ~(1u << s->linked.bounce);
	return set->bounce + (size_t)s->linked.bounce * RP_BOUNCE_SIZE;
}

/* The source as the device wants it: *iov and *desc, for as long as it takes.
 */
static int prepare_source(struct rp_conns *set, struct rp_slot *s,
			  const struct fi_msg_rma *msg, size_t len,
			  uint64_t flags, struct iovec *iov, void **desc)
{
	char *to;

	*desc = NULL;
	if (len > RP_BOUNCE_SIZE) {
		*iov = msg->msg_iov[0];
		if (msg->iov_count != 1)
			return -FI_EMSGSIZE;
		if (!set->attr.local)
			return 0;
		if (rp_conns_reg(set, iov->iov_base, len, FI_WRITE,
				 &s->linked.source))
			return -FI_EMSGSIZE;
		*desc = s->linked.source.desc;
		return 0;
	}
	if (msg->iov_count == 1 && !set->attr.local && !(flags & FI_INJECT)) {
		*iov = msg->msg_iov[0];
		return 0;
	}
	to = take_bounce(set, s);
	if (!to)
		return -FI_EAGAIN;
	rp_msg_copy(to, msg);
	*iov = (struct iovec){.iov_base = to, .iov_len = len};
	*desc = set->bounce_mr.desc;
	return 0;
}

/* The write, and behind it what says that it has arrived. */
static int plan_write(struct rp_conn *c, struct rp_slot *s,
		      const struct rp_link_way *way, const struct iovec *iov,
		      void *desc, struct rp_cep_op *ops)
{
	struct rp_conns *set = c->set;
	bool last = !way->asks && !way->fence_len;

	ops[0] = (struct rp_cep_op){
		.kind = RP_CEP_WRITE,
		.buf = iov->iov_base,
		.len = iov->iov_len,
		.desc = desc,
		.at = way->at,
		.key = way->there,
		.told = last,
		/* Where nothing follows, it has to say that it arrived. */
		.delivered = last && way->method == RP_METHOD_DELIVERY,
		/* By the time that it fails the slot may be another's. */
		.context = last ? s : NULL,
	};
	if (last)
		return 1;
	if (way->asks) {
		ops[1] =
			(struct rp_cep_op){.kind = RP_CEP_SEND, .copied = true};
		return 2;
	}
	ops[1] = (struct rp_cep_op){
		.kind = way->flush ? RP_CEP_FLUSH : RP_CEP_READ,
		.buf = &set->landing,
		.len = way->fence_len,
		.desc = set->landing_mr.desc,
		.at = way->fence_at,
		.key = way->there,
		.told = true,
		.context = s,
	};
	return 2;
}

/* A message with the bytes inside, if any. With the answer it is done. */
static int plan_request(struct rp_conn *c, struct rp_slot *s,
			struct rp_link_way *way, const void *bytes,
			struct rp_cep_op *op)
{
	struct rp_conns *set = c->set;
	void *buf = take_bounce(set, s);
	int ret;

	if (!buf)
		return -FI_EAGAIN;
	ret = rp_link_request(s->commit, way, bytes, buf, RP_BOUNCE_SIZE);
	if (ret < 0)
		return ret;
	*op = (struct rp_cep_op){
		.kind = RP_CEP_SEND,
		.buf = buf,
		.len = (size_t)ret,
		.desc = set->bounce_mr.desc,
	};
	return 1;
}

static int plan_store(struct rp_slot *s, struct rp_link_way *way,
		      const struct fi_msg_rma *msg, struct rp_cep_op *op)
{
	const void *bytes = msg->msg_iov[0].iov_base;
	char whole[RP_WIRE_MAX_STORE];

	if (msg->iov_count > 1) {
		rp_msg_copy(whole, msg);
		bytes = whole;
	}
	return plan_request(way->conn, s, way, bytes, op);
}

/* All that this write takes, in order; what has to be copied is in request. */
static int plan(struct rp_conn *c, struct rp_slot *s, struct rp_link_way *way,
		const struct fi_msg_rma *msg, size_t len, uint64_t flags,
		uint8_t *request, struct rp_cep_op *ops)
{
	struct iovec iov;
	void *desc;
	int ret, n;

	if (way->stores)
		return plan_store(s, way, msg, ops);
	ret = prepare_source(c->set, s, msg, len, flags, &iov, &desc);
	if (ret)
		return ret;
	n = plan_write(c, s, way, &iov, desc, ops);
	if (!way->asks)
		return n;
	ret = rp_link_request(s->commit, way, NULL, request, RP_WIRE_INJECT);
	ops[1].buf = request;
	ops[1].len = (size_t)ret;
	return ret < 0 ? ret : n;
}

/* Room for a write and a read, in the connection and in the queue of all. */
static bool has_room(const struct rp_conn *c)
{
	const struct rp_conns *set = c->set;

	return 2 * (c->posted + c->asked) + 2 <= set->attr.depth &&
	       set->posted + set->nrecvs + 2 <= RP_CONNS_POSTED;
}

static ssize_t post(struct rp_ep *ep, struct rp_peer *peer,
		    struct rp_link_way *way, const struct fi_msg_rma *msg,
		    size_t len, uint64_t flags, bool want)
{
	const struct fi_rma_iov *to = msg->rma_iov;
	const struct rp_wire_range g = {to->key, to->addr, len};
	struct rp_conn *c = way->conn;
	struct rp_conns *set = c->set;
	struct rp_slot *s = rp_slot_get(&ep->dom->slots, ep, RP_SLOT_LINKED);
	struct rp_commit_attr attr = {
		.ranges = &g,
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = ep->required,
		.done = rp_rma_commit_done,
		.arg = s,
	};
	uint8_t request[RP_WIRE_INJECT];
	struct rp_cep_op ops[2];
	int ret, n;

	if (!s)
		return -FI_EAGAIN;
	s->want = want;
	s->context = msg->context;
	s->flags = FI_RMA | FI_WRITE;
	begin(s, c, way->asks);
	ret = rp_commit_reserve(peer, &attr, &s->commit);
	if (ret)
		goto put;
	n = plan(c, s, way, msg, len, flags, request, ops);
	ret = n < 0 ? n : set->ops->post(c->cep, ops, n);
	if (ret < 0) {
		release_source(set, s);
		rp_commit_unreserve(s->commit);
		goto put;
	}
	s->due = 1;
	if (way->asks) {
		c->asked++;
	} else {
		c->posted++;
		set->posted++;
	}
	set->empty = 0;
	s->stores = true;
	atomic_fetch_add(&ep->stores, 1);
	rp_link_posted(s->commit, way, &s->linked.op);
	/* What the rest would have said nobody will know. */
	if (ret < n)
		rp_conn_broken(c);
	return 0;
put:
	rp_slot_put(&ep->dom->slots, s);
	return ret;
}

int rp_linked_send(struct rp_slot *s, struct rp_link_way *way,
		   const void *bytes)
{
	struct rp_conn *c = way->conn;
	struct rp_cep_op op;
	int ret;

	begin(s, c, true);
	ret = has_room(c) ? plan_request(c, s, way, bytes, &op) : -FI_EAGAIN;
	if (ret > 0)
		ret = c->set->ops->post(c->cep, &op, 1);
	if (ret < 0) {
		release_source(c->set, s);
		return ret;
	}
	s->due = 1;
	c->asked++;
	c->set->empty = 0;
	return 0;
}

void rp_linked_sent(struct rp_slot *s, const struct rp_link_way *way)
{
	rp_link_posted(s->commit, way, &s->linked.op);
}

bool rp_linked_commit(struct rp_ep *ep, struct rp_slot *s)
{
	struct rp_link_way way;

	if (!ep->dom->conns || !ep->dom->conns->attr.asks ||
	    !rp_gather_send(ep) || !rp_link_may_commit(s->commit, &way))
		return false;
	s->kind = RP_SLOT_LINKED;
	if (!rp_linked_send(s, &way, NULL)) {
		rp_linked_sent(s, &way);
		return true;
	}
	s->kind = RP_SLOT_COMMIT;
	return false;
}

bool rp_linked_write(struct rp_ep *ep, const struct fi_msg_rma *msg, size_t len,
		     uint64_t flags, bool want, ssize_t *ret)
{
	const struct fi_rma_iov *to = msg->rma_iov;
	struct rp_link_way way;
	struct rp_peer *peer;
	bool first;

	if (!ep->dom->conns || !(flags & FI_COMMIT_COMPLETE) ||
	    (flags & (FI_REMOTE_CQ_DATA | FI_FENCE)) || ep->keeps_order ||
	    msg->rma_iov_count != 1 || !len || len != to->len ||
	    !rp_key_is_persistent(to->key) || to->addr + len < to->addr ||
	    rp_rma_peer(ep, msg->addr, &peer))
		return false;
	/* What was gathered before goes before. */
	first = rp_gather_send(ep);
	if (!rp_link_may(peer, to->key, to->addr, len, ep->required, &way) ||
	    (way.asks && !ep->dom->conns->attr.asks))
		return false;
	*ret = first && has_room(way.conn)
		       ? post(ep, peer, &way, msg, len, flags, want)
		       : -FI_EAGAIN;
	/* That the device cannot take goes the other way. */
	return *ret != -FI_EMSGSIZE;
}
