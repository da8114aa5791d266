// SPDX-License-Identifier: BSD-2-Clause
/* Side connections of peers: channels and host functions of the agent. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs/target_priv.h"

/* --- the agent's host and its channels --- */

static struct rp_pd *dom_of(struct rp_agent_host *h)
{
	return (struct rp_pd *)h;
}

static struct rp_target *target_of(struct rp_channel *c)
{
	return (struct rp_target *)c;
}

/* Write a reply into the peer's ring. False: no ring, or the slot is in use. */
static bool write_reply(struct rp_target *s, const void *msg, size_t len)
{
	const unsigned int i = s->ring.produced % RP_RING_SLOTS;
	struct rp_ring_write w;

	if (!s->replies || s->writing & 1u << i ||
	    rp_ring_put(&s->ring, msg, len, &w))
		return false;
	if (rp_side_post(s->qp, IBV_WR_RDMA_WRITE, WR_ID_WRITES + i, w.buf,
			 w.len, s->mr->lkey, s->replies + w.offset,
			 s->replies_rkey)) {
		rp_ring_undo_put(&s->ring);
		return false;
	}
	s->writing |= 1u << i;
	return true;
}

static int send_message(struct rp_target *s, const void *msg, size_t len)
{
	unsigned int i;
	int ret;

	if (len > SEND_LEN)
		return -EMSGSIZE;
	if (!s->up)
		return -ENOTCONN;
	if (!s->tx_free)
		return -EAGAIN;
	i = (unsigned int)__builtin_ctz(s->tx_free);
	memcpy(s->tx[i], msg, len);
	ret = rp_side_post(s->qp, IBV_WR_SEND, RECVS + i, s->tx[i], len,
			   s->mr->lkey, 0, 0);
	if (ret)
		return -ret;
	s->tx_free &= ~(1u << i);
	return 0;
}

/* Post messages of the agent; they are copied, so each completes at once. */
static int channel_post(struct rp_channel *c, struct rp_channel_op *ops[],
			int n)
{
	struct rp_target *s = target_of(c);
	const struct iovec *msg;
	int i, ret;

	for (i = 0; i < n; i++) {
		msg = ops[i]->iov;
		/* A ring slot costs both ends less than a message. */
		if (s->up && write_reply(s, msg->iov_base, msg->iov_len))
			continue;
		ret = send_message(s, msg->iov_base, msg->iov_len);
		if (!ret)
			continue;
		/* The thread reports a loss later, outside the agent's call. */
		s->broken |= ret != -EAGAIN;
		if (s->broken)
			rp_target_unpark(s);
		break;
	}
	return i;
}

/* The peer gets no INFO any more: its flushes without request must fail. */
static void mark_down(struct rp_target *s)
{
	s->state = TARGET_CLOSED;
	s->up = false;
	rp_pd_fail_if_weakened(s->dom, s->q);
}

static void channel_close(struct rp_channel *c)
{
	mark_down(target_of(c));
}

static const struct rp_channel_ops channel_ops = {
	.post = channel_post,
	.close = channel_close,
};

static int host_accept(struct rp_agent_host *h, void *request, const void *data,
		       size_t len, const struct rp_channel_events *events,
		       void *owner, struct rp_channel **out)
{
	struct rp_target *s = request;
	int ret = send_message(s, data, len);

	s->state = ret ? TARGET_CLOSED : TARGET_OPEN;
	if (ret)
		return ret;
	s->c = (struct rp_channel){
		.ops = &channel_ops,
		.events = events,
		.owner = owner,
		.inject = SEND_LEN,
	};
	*out = &s->c;
	return 0;
}

static void host_refuse(struct rp_agent_host *h, void *request,
			const void *data, size_t len)
{
	struct rp_target *s = request;

	s->state = TARGET_CLOSED;
	send_message(s, data, len);
}

static int host_facts(struct rp_agent_host *h, struct rp_region *r,
		      struct rp_facts *facts, char *why)
{
	int ret = rp_device_facts(dom_of(h)->pd, r->base, r->len, facts, why);

	facts->native = RP_NO;
	return ret;
}

static uint64_t host_now(struct rp_agent_host *h)
{
	return rp_target_now();
}

static void host_kick(struct rp_agent_host *h)
{
	rp_pd_wake(dom_of(h));
}

const struct rp_agent_host_ops rp_target_host_ops = {
	.accept = host_accept,
	.refuse = host_refuse,
	.facts = host_facts,
	.now = host_now,
	.kick = host_kick,
};

/* --- messages of a peer --- */

void rp_target_disconnect(struct rp_target *s)
{
	const bool open = s->state == TARGET_OPEN;

	if (s->state == TARGET_REQUESTED)
		rp_agent_conn_request_gone(s->dom->agent, s);
	mark_down(s);
	if (open)
		s->c.events->lost(s->c.owner, ECONNRESET, NULL, 0);
}

/* Hand a peer's message, from a SEND or the ring, to the agent. */
static void pass_to_agent(struct rp_target *s, const void *msg, size_t len)
{
	if (s->state == TARGET_OPEN) {
		s->c.events->received(s->c.owner, msg, len);
	} else if (s->state == TARGET_NEW) {
		s->state = TARGET_REQUESTED;
		rp_agent_conn_request(s->dom->agent, s, msg, len);
	}
}

bool rp_target_poll_ring(struct rp_target *s)
{
	uint8_t msg[RP_RING_MSG];
	bool came = false;
	size_t len;

	for (int i = 0; s->up && s->ring_mr && i < RP_RING_SLOTS; i++) {
		len = rp_ring_take(&s->ring, msg);
		if (!len)
			break;
		came = s->dom->has_message = true;
		pass_to_agent(s, msg, len);
	}
	return came;
}

static void handle_received(struct rp_target *s, const void *msg, size_t len)
{
	struct rp_wire_hdr hdr;

	s->dom->has_message = true;
	if (!rp_wire_get_hdr(msg, len, &hdr) && hdr.type == RP_MSG_DOORBELL)
		rp_target_poll_ring(s);
	else
		pass_to_agent(s, msg, len);
}

static void handle_wc(struct rp_target *s, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS) {
		rp_target_disconnect(s);
		return;
	}
	if (wc->wr_id >= WR_ID_WRITES) {
		s->writing &= ~(1u << (wc->wr_id - WR_ID_WRITES));
		return;
	}
	if (wc->wr_id >= RECVS) {
		s->tx_free |= 1u << (wc->wr_id - RECVS);
		return;
	}
	if (s->up)
		handle_received(s, s->rx[wc->wr_id], wc->byte_len);
	if (rp_side_recv(s->qp, wc->wr_id, s->rx[wc->wr_id], RECV_LEN,
			 s->mr->lkey))
		rp_target_disconnect(s);
}

bool rp_target_poll_cq(struct rp_target *s)
{
	struct ibv_wc wc[RECVS];
	bool came = false;
	int n;

	while ((n = ibv_poll_cq(s->cq, RECVS, wc)) > 0) {
		came = true;
		for (int i = 0; i < n; i++)
			handle_wc(s, &wc[i]);
	}
	if (n < 0 || s->broken)
		rp_target_disconnect(s);
	s->broken = false;
	return came;
}

bool rp_target_signal(struct rp_target *s, enum rp_msg_type type)
{
	uint8_t msg[16];
	int len = rp_wire_put_signal(msg, sizeof(msg), type);
	int ret = send_message(s, msg, (size_t)len);

	if (ret && ret != -EAGAIN)
		rp_target_disconnect(s);
	return ret != -EAGAIN;
}

void rp_target_send_weakenings(struct rp_target *s)
{
	struct rp_wire_info m = {.status = RP_ST_CLASS};
	const struct rp_region *r;
	uint8_t msg[SEND_LEN];
	uint64_t n = s->weakenings;
	int ret;

	while (s->up && (r = rp_agent_next_weakened(s->dom->agent, &n))) {
		m.class = r->choice.class;
		m.method = r->choice.method;
		snprintf(m.why, sizeof(m.why), "%s", r->why);
		ret = rp_wire_put_info(msg, sizeof(msg), r->key, &m);
		ret = send_message(s, msg, (size_t)ret);
		if (ret == -EAGAIN) {
			s->dom->weakenings = UINT64_MAX;
			return;
		}
		if (ret)
			rp_target_disconnect(s);
		s->weakenings = n;
	}
	if (!s->up)
		rp_pd_fail_if_weakened(s->dom, s->q);
}

/* --- one peer --- */

/*
 * Make the ring of requests if a CPU with ordered stores places the peer's
 * writes: then a request in the ring proves that earlier writes are placed.
 * Otherwise requests follow read fences.
 */
static void ring_open(struct rp_target *s)
{
	rp_ring_init(&s->ring, s->ring_in, s->ring_out);
#if defined(__x86_64__)
	s->ring_mr =
		ibv_reg_mr(s->dom->pd, s->ring_in, sizeof(s->ring_in),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
#endif
}

int rp_target_new(struct rp_pd *dom, struct rp_qp *q, struct rp_target **out)
{
	struct rp_target *s = calloc(1, sizeof(*s));
	int ret;

	if (!s)
		return ENOMEM;
	s->dom = dom;
	s->q = q;
	s->tx_free = (1u << SENDS) - 1;
	s->mr = ibv_reg_mr(dom->pd, s, sizeof(*s), IBV_ACCESS_LOCAL_WRITE);
	if (s->mr)
		s->cq = ibv_create_cq(dom->pd->context, WR_ID_END, s,
				      dom->channel, 0);
	if (s->cq && !ibv_req_notify_cq(s->cq, 0))
		s->qp = rp_side_new(dom->pd, s->cq, WR_ID_END - RECVS, RECVS);
	if (s->qp) {
		ring_open(s);
		rp_pd_lock(dom);
		LIST_INSERT_HEAD(&dom->targets, s, link);
		pthread_mutex_unlock(&dom->lock);
		*out = s;
		return 0;
	}
	ret = errno ? errno : EIO;
	if (s->cq)
		ibv_destroy_cq(s->cq);
	if (s->mr)
		ibv_dereg_mr(s->mr);
	free(s);
	return ret;
}

void rp_target_export(const struct rp_target *s, struct rp_side_addr *side)
{
	side->target = s->qp->qp_num;
	if (!s->ring_mr)
		return;
	side->ring = (uintptr_t)s->ring_in;
	side->ring_rkey = s->ring_mr->rkey;
}

int rp_target_connect(struct rp_target *s, const struct rp_route *route,
		      const struct rp_side_addr *peer)
{
	struct rp_pd *dom = s->dom;
	int ret;

	rp_pd_lock(dom);
	ret = rp_pd_start(dom) ?: rp_side_to_init(s->qp, route, 0);
	for (unsigned int i = 0; !ret && i < RECVS; i++)
		ret = rp_side_recv(s->qp, i, s->rx[i], RECV_LEN, s->mr->lkey);
	/* Skip earlier weakenings: later descriptors take them into account. */
	s->weakenings = UINT64_MAX;
	rp_agent_next_weakened(dom->agent, &s->weakenings);
	if (s->q->since == UINT64_MAX)
		s->q->since = s->weakenings;
	s->replies = peer->replies;
	s->replies_rkey = peer->replies_rkey;
	/* A message may arrive before rp_side_to_rts() returns. */
	s->up = !ret;
	if (!ret)
		ret = rp_side_to_rts(s->qp, route, peer->initiator);
	if (ret)
		rp_target_disconnect(s);
	pthread_mutex_unlock(&dom->lock);
	return ret;
}

void rp_target_delete(struct rp_target *s)
{
	struct rp_pd *dom = s->dom;

	/* With dom->lock all events are acked: ibv_destroy_cq() returns. */
	rp_pd_lock(dom);
	s->q = NULL;
	rp_target_disconnect(s);
	rp_target_park(s);
	LIST_REMOVE(s, link);
	ibv_destroy_qp(s->qp);
	ibv_destroy_cq(s->cq);
	pthread_mutex_unlock(&dom->lock);
	if (s->ring_mr)
		ibv_dereg_mr(s->ring_mr);
	ibv_dereg_mr(s->mr);
	free(s);
}
