// SPDX-License-Identifier: BSD-2-Clause
/* Durable writes over a connection of our own, and the reads behind them. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "rpmem/conn.h"

/* What this operation has that must not go before it has come back. */
static void release_source(struct rp_conns *set, struct rp_slot *s)
{
	if (s->linked.bounced)
		set->bounce_free |= 1u << s->linked.bounce;
	s->linked.bounced = false;
	if (s->mr)
		fi_close(&s->mr->fid);
	s->mr = NULL;
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
	if (s->kind == RP_SLOT_LINKED && c && fence)
		rp_linked_fenced(&s->linked.op, err);
	else if (s->kind == RP_SLOT_LINKED && c)
		rp_linked_written(&s->linked.op, err);
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

static void gather(char *to, const struct fi_msg_rma *msg)
{
	for (size_t i = 0; i < msg->iov_count; i++) {
		memcpy(to, msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len);
		to += msg->msg_iov[i].iov_len;
	}
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
		if (!rp_conns_local(set))
			return 0;
		if (rp_conns_reg(set, iov->iov_base, len, FI_WRITE, &s->mr))
			return -FI_EMSGSIZE;
		*desc = fi_mr_desc(s->mr);
		return 0;
	}
	if (msg->iov_count == 1 && !rp_conns_local(set) &&
	    !(flags & FI_INJECT)) {
		*iov = msg->msg_iov[0];
		return 0;
	}
	to = take_bounce(set, s);
	if (!to)
		return -FI_EAGAIN;
	gather(to, msg);
	*iov = (struct iovec){.iov_base = to, .iov_len = len};
	*desc = rp_mr_desc(set->bounce_mr);
	return 0;
}

static int post_write(struct rp_conn *c, struct rp_slot *s,
		      const struct rp_link_way *way, struct iovec *iov,
		      void *desc)
{
	struct fi_rma_iov rma = {
		.addr = way->at,
		.len = iov->iov_len,
		.key = way->there,
	};
	const struct fi_msg_rma m = {
		.msg_iov = iov,
		.desc = &desc,
		.iov_count = 1,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		/* By the time that it fails the slot may be another's. */
		.context = way->asks ? NULL : s,
	};
	/* Where an answer follows, that says it; errors end the receives. */
	uint64_t flags = way->asks ? 0 : FI_COMPLETION;

	/* Where nothing follows, this alone has to say that it arrived. */
	if (way->method == RP_METHOD_DELIVERY &&
	    strcasecmp(c->set->dom->fabric->base_name, "verbs"))
		flags |= FI_DELIVERY_COMPLETE;
	return (int)fi_writemsg(c->ep, &m, flags);
}

static int post_fence(struct rp_conn *c, struct rp_slot *s,
		      const struct rp_link_way *way)
{
	struct rp_conns *set = c->set;
	struct iovec iov = {
		.iov_base = &set->landing,
		.iov_len = way->fence_len,
	};
	struct fi_rma_iov rma = {
		.addr = way->fence_at,
		.len = way->fence_len,
		.key = way->there,
	};
	void *desc = rp_mr_desc(set->landing_mr);
	const struct fi_msg_rma m = {
		.msg_iov = &iov,
		.desc = &desc,
		.iov_count = 1,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = s,
	};

	return (int)fi_readmsg(c->ep, &m, FI_COMPLETION);
}

/* A message with the bytes inside, if any. With the answer it is done. */
static int send_request(struct rp_conn *c, struct rp_slot *s,
			struct rp_link_way *way, const void *bytes)
{
	struct rp_conns *set = c->set;
	void *desc = rp_mr_desc(set->bounce_mr);
	struct iovec iov;
	int ret;

	iov.iov_base = take_bounce(set, s);
	if (!iov.iov_base)
		return -FI_EAGAIN;
	ret = rp_link_request(s->commit, way, bytes, iov.iov_base,
			      RP_BOUNCE_SIZE);
	if (ret < 0)
		return ret;
	iov.iov_len = (size_t)ret;
	return (int)fi_sendmsg(c->ep,
			       &(struct fi_msg){.msg_iov = &iov,
						.desc = &desc,
						.iov_count = 1},
			       0);
}

static int post_store(struct rp_slot *s, struct rp_link_way *way,
		      const struct fi_msg_rma *msg)
{
	const void *bytes = msg->msg_iov[0].iov_base;
	char whole[RP_WIRE_MAX_STORE];

	if (msg->iov_count > 1) {
		gather(whole, msg);
		bytes = whole;
	}
	return send_request(way->conn, s, way, bytes);
}

/* Room for a write and a read, in the connection and in the queue of all. */
static bool has_room(const struct rp_conn *c)
{
	const struct rp_conns *set = c->set;

	return c->posted + 2 * c->asked + 2 <= set->info->tx_attr->size &&
	       set->posted + set->nrecvs + 2 <= RP_CONNS_POSTED;
}

static void posted(struct rp_conn *c, struct rp_slot *s)
{
	s->due++;
	c->posted++;
	c->set->posted++;
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
	int ret, request_len = 0;
	struct iovec iov;
	void *desc;

	if (!s)
		return -FI_EAGAIN;
	s->want = want;
	s->context = msg->context;
	s->flags = FI_RMA | FI_WRITE;
	s->linked.conn = c;
	s->linked.bounced = false;
	s->linked.asks = way->asks;
	s->due = 0;
	ret = rp_commit_reserve(peer, &attr, &s->commit);
	if (ret)
		goto put;
	if (way->stores) {
		ret = post_store(s, way, msg);
	} else {
		ret = prepare_source(set, s, msg, len, flags, &iov, &desc);
		if (!ret && way->asks) {
			request_len = rp_link_request(s->commit, way, NULL,
						      request, sizeof(request));
			ret = request_len < 0 ? request_len : 0;
		}
		if (!ret)
			ret = post_write(c, s, way, &iov, desc);
	}
	if (ret) {
		release_source(set, s);
		rp_commit_unreserve(s->commit);
		goto put;
	}
	if (way->asks) {
		s->due++;
		c->asked++;
	} else {
		posted(c, s);
	}
	set->empty = 0;
	s->stores = true;
	atomic_fetch_add(&ep->stores, 1);
	rp_link_posted(s->commit, way, &s->linked.op);
	if (way->fence_len) {
		ret = post_fence(c, s, way);
		if (!ret)
			posted(c, s);
	} else if (request_len) {
		ret = (int)fi_inject(c->ep, request, (size_t)request_len,
				     FI_ADDR_UNSPEC);
	}
	/* What it would have said nobody will know. */
	if (ret)
		rp_linked_fenced(&s->linked.op, ret);
	return 0;
put:
	rp_slot_put(&ep->dom->slots, s);
	return ret;
}

int rp_linked_send(struct rp_slot *s, struct rp_link_way *way,
		   const void *bytes)
{
	struct rp_conn *c = way->conn;
	int ret;

	s->linked.conn = c;
	s->linked.bounced = false;
	s->linked.asks = true;
	s->due = 0;
	ret = has_room(c) ? send_request(c, s, way, bytes) : -FI_EAGAIN;
	if (ret) {
		release_source(c->set, s);
		return ret;
	}
	s->due++;
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

	if (!ep->dom->conns || !ep->dom->conns->asks || !rp_gather_send(ep) ||
	    !rp_link_may_commit(s->commit, &way))
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
	    (way.asks && !ep->dom->conns->asks))
		return false;
	*ret = first && has_room(way.conn)
		       ? post(ep, peer, &way, msg, len, flags, want)
		       : -FI_EAGAIN;
	/* That the device cannot take goes the other way. */
	return *ret != -FI_EMSGSIZE;
}
