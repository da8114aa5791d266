// SPDX-License-Identifier: BSD-2-Clause
/* Control messages: tagged messages with the reserved bit, on the data's
 * endpoint. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rpmem/host.h"
#include "rpmem/rpmem.h"

/* Receives that an endpoint keeps posted; more messages wait in the base. */
#define CTRL_RECVS 64

static struct rp_ep *ep_of(struct rp_xport *x)
{
	return rp_container_of(x, struct rp_ep, xport);
}

static uint64_t xport_now(struct rp_xport *x)
{
	return rp_host_now();
}

static int xport_send(struct rp_xport *x, uint64_t peer, const void *msg,
		      size_t len)
{
	struct rp_ep *ep = ep_of(x);
	struct rp_dom *dom = ep->dom;
	struct iovec iov;
	struct fi_msg_tagged m = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = peer,
		.tag = dom->ctrl_bit,
	};
	struct rp_slot *s;
	ssize_t ret;

	/*
	 * Injected, a message costs no completion and no buffer. A counter of
	 * sends would count it, and nobody could tell when.
	 */
	if (len <= ep->inject_size && !ep->cntr[RP_CNTR_SEND])
		return (int)fi_tinject(ep->base, msg, len, peer, dom->ctrl_bit);
	s = rp_slot_get(&dom->slots, ep, RP_SLOT_SEND);
	if (!s)
		return -ENOMEM;
	s->buf = malloc(len);
	if (!s->buf) {
		rp_slot_put(&dom->slots, s);
		return -ENOMEM;
	}
	memcpy(s->buf, msg, len);
	iov.iov_base = s->buf;
	iov.iov_len = len;
	m.context = s;
	ret = fi_tsendmsg(ep->base, &m, FI_COMPLETION);
	if (ret) {
		free(s->buf);
		rp_slot_put(&dom->slots, s);
	}
	return (int)ret;
}

static int xport_peer_get(struct rp_xport *x, const void *addr, size_t len,
			  uint64_t *peer)
{
	struct rp_ep *ep = ep_of(x);

	/* An address of another length or family would confuse the base. */
	if (len != ep->addr_len || memcmp(addr, ep->addr, sizeof(short)))
		return -EINVAL;
	return rp_av_hidden_get(ep->av, addr, len, peer);
}

static void xport_peer_put(struct rp_xport *x, uint64_t peer)
{
	rp_av_hidden_put(ep_of(x)->av, peer);
}

static int xport_name(struct rp_xport *x, void *addr, size_t *len)
{
	struct rp_ep *ep = ep_of(x);

	if (*len < ep->addr_len)
		return -ENOSPC;
	memcpy(addr, ep->addr, ep->addr_len);
	*len = ep->addr_len;
	return 0;
}

static int xport_random(struct rp_xport *x, void *buf, size_t len)
{
	return rp_host_random(buf, len);
}

static void xport_kick(struct rp_xport *x)
{
	rp_domain_kick(ep_of(x)->dom);
}

const struct rp_xport_ops rp_xport_ops = {
	.now = xport_now,
	.send = xport_send,
	.peer_get = xport_peer_get,
	.peer_put = xport_peer_put,
	.name = xport_name,
	.random = xport_random,
	.kick = xport_kick,
};

static int post(struct rp_ep *ep, struct rp_slot *s)
{
	struct iovec iov = {.iov_base = s->buf, .iov_len = RP_WIRE_MAX_MSG};
	struct fi_msg_tagged m = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = FI_ADDR_UNSPEC,
		.tag = ep->dom->ctrl_bit,
		.ignore = ~ep->dom->ctrl_bit,
		.context = s,
	};

	/* Completed also where the user's receives are selective. */
	return (int)fi_trecvmsg(ep->base, &m, FI_COMPLETION);
}

void rp_xport_repost(struct rp_ep *ep)
{
	struct rp_slot *s;

	LIST_FOREACH (s, &ep->dom->slots.used, link) {
		if (!ep->recv_due)
			return;
		if (s->ep != ep || s->kind != RP_SLOT_RECV || s->posted)
			continue;
		if (post(ep, s))
			return;
		s->posted = true;
		ep->recv_due--;
	}
}

int rp_xport_activate(struct rp_ep *ep)
{
	struct rp_slot *s;

	if (ep->nrecv)
		return 0;
	ep->recv_bufs = malloc((size_t)CTRL_RECVS * RP_WIRE_MAX_MSG);
	if (!ep->recv_bufs)
		return -ENOMEM;
	for (unsigned int i = 0; i < CTRL_RECVS; i++) {
		s = rp_slot_get(&ep->dom->slots, ep, RP_SLOT_RECV);
		if (!s)
			break;
		s->buf = (char *)ep->recv_bufs + (size_t)i * RP_WIRE_MAX_MSG;
		ep->nrecv++;
		ep->recv_due++;
	}
	if (!ep->nrecv) {
		free(ep->recv_bufs);
		ep->recv_bufs = NULL;
		return -ENOMEM;
	}
	atomic_store_explicit(&ep->dom->live, true, memory_order_release);
	rp_xport_repost(ep);
	if (ep->dom->auto_progress)
		rp_domain_kick(ep->dom);
	return 0;
}

static void recv_message(struct rp_ep *ep, const uint8_t *msg, size_t len)
{
	/* Short or strange: core's decoders say so; the type only routes. */
	if (len >= RP_WIRE_HDR && !RP_MSG_TO_TARGET(msg[3])) {
		if (ep->initiator)
			rp_initiator_recv(ep->initiator, msg, len);
	} else {
		rp_agent_recv(ep->dom->agent, &ep->xport, msg, len);
	}
}

void rp_xport_completed(struct rp_slot *s, size_t len, bool failed)
{
	struct rp_ep *ep = s->ep;

	if (s->kind == RP_SLOT_SEND) {
		rp_cntr_hide(ep, RP_CNTR_SEND, failed);
		/* A lost message shows as silence; the timeout tells. */
		free(s->buf);
		rp_slot_put(&ep->dom->slots, s);
		return;
	}
	rp_cntr_hide(ep, RP_CNTR_RECV, failed);
	s->posted = false;
	/* The base endpoint is gone and the agent has dropped this xport. */
	if (ep->dead)
		return;
	ep->recv_due++;
	if (!failed && len <= RP_WIRE_MAX_MSG)
		recv_message(ep, s->buf, len);
	if (!post(ep, s)) {
		s->posted = true;
		ep->recv_due--;
	}
}

int rp_xport_initiator(struct rp_ep *ep, struct rp_initiator **out)
{
	struct rp_initiator_attr attr = {
		.timeout_ns = rp_params.timeout_ns,
		.slow_rate = rp_params.slow_rate,
		.max_commits = rp_params.max_commits,
		.ordered = ep->dom->ordered,
	};
	int ret = rp_xport_activate(ep);

	if (!ret && !ep->initiator)
		ret = rp_initiator_new(&attr, &ep->xport, &ep->initiator);
	*out = ep->initiator;
	return ret;
}
