// SPDX-License-Identifier: BSD-2-Clause
/* Control messages: tagged messages with the reserved bit, on the data's
 * endpoint. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/cost.h"
#include "rpmem/conn.h"
#include "rpmem/host.h"

/*
 * Receives that an endpoint keeps posted; more messages wait in the base. Who
 * only asks gets answers, which are short: with buffers for requests a peer
 * would cost a target's quarter of a megabyte.
 */
#define SERVE_RECVS 64
#define SERVE_SIZE  RP_WIRE_MAX_MSG
#define ASK_RECVS   8
#define ASK_SIZE    384 /* an INFO with all its words: 74 + RP_WHY_LEN */
_Static_assert(ASK_SIZE >= 74 + RP_WHY_LEN, "answers fit");
/* How many there may ever be, and how often it is seen to that one is left. */
#define MAX_RECVS 1024
#define LOOK_NS	  500000000ull

/*
 * What a message is sent from is registered once and used again: to register
 * is a system call, and over verbs each message longer than the base injects
 * has to be. A domain has one at first, then as many again, at most so many at
 * a time; and no more than that without a completion.
 */
#define SEND_BUFS 8
#define MAX_SENDS 1024

struct rp_send_buf {
	struct rp_send_buf *next; /* while it is free */
	struct rp_send_bufs *of;
	uint8_t msg[RP_WIRE_MAX_MSG];
};

struct rp_send_bufs {
	struct rp_send_bufs *next;
	struct fid_mr *mr;
	struct rp_send_buf buf[];
};

struct rp_recv_bufs {
	struct rp_recv_bufs *next;
	struct fid_mr *mr;
	char buf[];
};

static struct rp_ep *ep_of(struct rp_xport *x)
{
	return rp_container_of(x, struct rp_ep, xport);
}

static int more_send_bufs(struct rp_dom *dom)
{
	unsigned int n = dom->nsend_bufs ? dom->nsend_bufs : 1;
	struct rp_send_bufs *bufs;
	size_t size;
	int ret;

	if (dom->nsend_bufs >= MAX_SENDS)
		return -EAGAIN;
	if (n > SEND_BUFS)
		n = SEND_BUFS;
	size = n * sizeof(bufs->buf[0]);
	bufs = malloc(sizeof(*bufs) + size);
	if (!bufs)
		return -ENOMEM;
	ret = rp_mr_hidden(dom, bufs->buf, size, FI_SEND, &bufs->mr);
	if (ret) {
		free(bufs);
		return ret;
	}
	bufs->next = dom->send_bufs;
	dom->send_bufs = bufs;
	dom->nsend_bufs += n;
	for (unsigned int i = 0; i < n; i++) {
		bufs->buf[i].of = bufs;
		bufs->buf[i].next = dom->send_free;
		dom->send_free = &bufs->buf[i];
	}
	return 0;
}

void rp_xport_unsend(struct rp_slot *s)
{
	struct rp_send_buf *b = s->buf;

	b->next = s->ep->dom->send_free;
	s->ep->dom->send_free = b;
}

uint64_t rp_xport_now(struct rp_xport *x)
{
	return rp_domain_now(ep_of(x)->dom);
}

static int send_buffered(struct rp_ep *ep, uint64_t peer, const void *msg,
			 size_t len)
{
	struct rp_dom *dom = ep->dom;
	struct rp_send_buf *b;
	struct rp_slot *s;
	void *desc;
	int ret;

	if (len > sizeof(b->msg))
		return -EMSGSIZE;
	if (!dom->send_free) {
		ret = more_send_bufs(dom);
		if (ret)
			return ret;
	}
	s = rp_slot_get(&dom->slots, ep, RP_SLOT_SEND);
	if (!s)
		return -ENOMEM;
	b = dom->send_free;
	dom->send_free = b->next;
	s->buf = b;
	if (msg != b->msg)
		memcpy(b->msg, msg, len);
	desc = rp_mr_desc(b->of->mr);
	ret = (int)fi_tsendmsg(ep->base,
			       &(struct fi_msg_tagged){
				       .msg_iov = &(struct iovec){b->msg, len},
				       .desc = &desc,
				       .iov_count = 1,
				       .addr = peer,
				       .tag = dom->ctrl_bit,
				       .context = s,
			       },
			       FI_COMPLETION);
	if (ret) {
		rp_xport_unsend(s);
		rp_slot_put(&dom->slots, s);
	}
	return ret;
}

static void *xport_room(struct rp_xport *x)
{
	struct rp_dom *dom = ep_of(x)->dom;

	if (!dom->send_free && more_send_bufs(dom))
		return NULL;
	return dom->send_free->msg;
}

static int xport_send(struct rp_xport *x, uint64_t peer, const void *msg,
		      size_t len)
{
	struct rp_ep *ep = ep_of(x);

	/*
	 * Injected, a message costs no completion and no buffer. A counter of
	 * sends would count it, and nobody could tell when.
	 */
	if (len <= ep->inject_size && !ep->cntr[RP_CNTR_SEND])
		return (int)fi_tinject(ep->base, msg, len, peer,
				       ep->dom->ctrl_bit);
	return send_buffered(ep, peer, msg, len);
}

/*
 * Answering a new address may cost a connection, and the base keeps it even if
 * nobody ever speaks there. A flood of addresses may take descriptors, but not
 * the last quarter: the program and its other peers need some as well.
 */
static bool descriptors_left(const struct rp_dom *dom)
{
	int lowest = fcntl(dom->kick_fd, F_DUPFD_CLOEXEC, 0);
	struct rlimit r;

	if (lowest < 0)
		return false;
	close(lowest);
	return getrlimit(RLIMIT_NOFILE, &r) ||
	       (rlim_t)lowest < r.rlim_cur - r.rlim_cur / 4;
}

static int xport_peer_get(struct rp_xport *x, const void *addr, size_t len,
			  uint64_t *peer)
{
	struct rp_ep *ep = ep_of(x);

	/* An address of another length or family would confuse the base. */
	if (len != ep->addr_len || memcmp(addr, ep->addr, sizeof(short)))
		return -EINVAL;
	if (!rp_av_hidden_has(ep->av, addr, len) && !descriptors_left(ep->dom))
		return -EMFILE;
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

int rp_xport_random(struct rp_xport *x, void *buf, size_t len)
{
	return rp_host_random(buf, len);
}

/*
 * What the base gives for a write with remote CQ data, measured on 1.17:
 * ofi_rxm says neither where nor how much, sockets says both.
 */
int rp_xport_notify(struct rp_xport *x, uint64_t peer, uint64_t data, void *buf,
		    size_t len)
{
	struct rp_ep *ep = ep_of(x);
	struct fi_cq_tagged_entry e = {
		.flags = FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA,
		.data = data,
	};
	fi_addr_t from = FI_ADDR_NOTAVAIL;

	/* Nobody looks at a queue that is ours. */
	if (!ep->rx_cq || ep->rx_cq == ep->own_cq)
		return 0;
	if (!strcmp(ep->dom->fabric->base_name, "sockets")) {
		e.flags |= FI_RMA;
		e.buf = buf;
		e.len = len;
	}
	if (ep->rx_cq->source)
		from = rp_av_to_user(ep->av, peer);
	return rp_cq_try_push(ep->rx_cq, &e, from);
}

void rp_xport_kick(struct rp_xport *x)
{
	rp_domain_kick(ep_of(x)->dom);
}

const struct rp_xport_ops rp_xport_ops = {
	.now = rp_xport_now,
	.send = xport_send,
	.room = xport_room,
	.fence = rp_fence_post,
	.dial = rp_conn_dial,
	.hang_up = rp_conn_hang_up,
	.offer = rp_conn_offer,
	.unoffer = rp_conn_unoffer,
	.answer = rp_conn_answer,
	.peer_get = xport_peer_get,
	.peer_put = xport_peer_put,
	.name = xport_name,
	.random = rp_xport_random,
	.notify = rp_xport_notify,
	.kick = rp_xport_kick,
};

static int post(struct rp_ep *ep, struct rp_slot *s)
{
	struct iovec iov = {.iov_base = s->buf, .iov_len = s->size};
	void *desc = rp_mr_desc(s->mr);
	struct fi_msg_tagged m = {
		.msg_iov = &iov,
		.desc = &desc,
		.iov_count = 1,
		.addr = FI_ADDR_UNSPEC,
		.tag = ep->dom->ctrl_bit,
		.ignore = ~ep->dom->ctrl_bit,
		.context = s,
	};

	/* Completed also where the user's receives are selective. */
	return (int)fi_trecvmsg(ep->base, &m, FI_COMPLETION);
}

static int repost(struct rp_ep *ep, struct rp_slot *s)
{
	int ret = post(ep, s);

	if (ret)
		return ret;
	s->posted = true;
	ep->last_posted = s;
	ep->recv_due--;
	return 0;
}

void rp_xport_repost(struct rp_ep *ep)
{
	struct rp_slot *s;

	LIST_FOREACH (s, &ep->dom->slots.used, link) {
		if (!ep->recv_due)
			return;
		if (s->ep != ep || s->kind != RP_SLOT_RECV || s->posted)
			continue;
		if (repost(ep, s))
			return;
	}
}

static void bufs_free(struct rp_recv_bufs *bufs)
{
	if (bufs->mr)
		fi_close(&bufs->mr->fid);
	free(bufs);
}

/* Another set of receives, of the size that messages now have. */
static int more_recvs(struct rp_ep *ep)
{
	unsigned int i, n = ep->serving ? SERVE_RECVS : ASK_RECVS;
	uint32_t size = ep->serving ? SERVE_SIZE : ASK_SIZE;
	struct rp_recv_bufs *bufs = malloc(sizeof(*bufs) + (size_t)n * size);
	struct rp_slot *s;
	int ret;

	if (!bufs)
		return -ENOMEM;
	/* Whoever sends too much makes the base write there by itself. */
	ret = rp_mr_hidden(ep->dom, bufs->buf, (size_t)n * size, FI_RECV,
			   &bufs->mr);
	if (ret) {
		free(bufs);
		return ret;
	}
	for (i = 0; i < n; i++) {
		s = rp_slot_get(&ep->dom->slots, ep, RP_SLOT_RECV);
		if (!s)
			break;
		s->buf = bufs->buf + (size_t)i * size;
		s->mr = bufs->mr;
		s->size = size;
		ep->nrecv++;
		ep->recv_due++;
	}
	if (!i) {
		bufs_free(bufs);
		return -ENOMEM;
	}
	bufs->next = ep->recv_bufs;
	ep->recv_bufs = bufs;
	atomic_store_explicit(&ep->dom->live, true, memory_order_release);
	atomic_store_explicit(&ep->dom->watched, true, memory_order_release);
	rp_xport_repost(ep);
	return 0;
}

static void drop_recv(struct rp_ep *ep, struct rp_slot *s)
{
	if (ep->last_posted == s)
		ep->last_posted = NULL;
	rp_slot_put(&ep->dom->slots, s);
	ep->nrecv--;
}

/* A request may come now: it would not fit where answers were expected. */
static void drop_small_recvs(struct rp_ep *ep)
{
	struct rp_slot *s, *next;

	for (s = LIST_FIRST(&ep->dom->slots.used); s; s = next) {
		next = LIST_NEXT(s, link);
		if (s->ep != ep || s->kind != RP_SLOT_RECV ||
		    s->size == SERVE_SIZE)
			continue;
		if (s->posted) {
			fi_cancel(&ep->base->fid, s);
			continue;
		}
		drop_recv(ep, s);
		ep->recv_due--;
	}
}

void rp_xport_fini(struct rp_dom *dom)
{
	struct rp_send_bufs *bufs;

	while ((bufs = dom->send_bufs)) {
		dom->send_bufs = bufs->next;
		if (bufs->mr)
			fi_close(&bufs->mr->fid);
		free(bufs);
	}
	dom->send_free = NULL;
	dom->nsend_bufs = 0;
}

void rp_xport_free(struct rp_ep *ep)
{
	struct rp_recv_bufs *bufs;

	while ((bufs = ep->recv_bufs)) {
		ep->recv_bufs = bufs->next;
		bufs_free(bufs);
	}
}

int rp_xport_activate(struct rp_ep *ep, bool serve)
{
	bool was = ep->serving;
	int ret;

	if (serve ? was : ep->nrecv > 0)
		return 0;
	if (ep->dom->msg) {
		/* The mailbox is there; from now on it is looked at. */
		ep->serving |= serve;
		atomic_store(&ep->dom->live, true);
		atomic_store(&ep->dom->watched, true);
		if (serve && ep->dom->cards)
			rp_domain_kick(ep->dom);
		return 0;
	}
	ep->serving = serve;
	ret = more_recvs(ep);
	if (ret) {
		ep->serving = was;
		return ret;
	}
	if (serve)
		drop_small_recvs(ep);
	if (ep->dom->auto_progress)
		rp_domain_kick(ep->dom);
	return 0;
}

/*
 * A message longer than ours ever are takes a receive from its first byte to
 * its last, and who stops in between keeps it. The base gives them out in the
 * order of posting: when the last cannot be cancelled, all are taken.
 */
void rp_xport_look(struct rp_ep *ep)
{
	uint64_t now = rp_domain_now(ep->dom);
	ssize_t ret;

	if (now < ep->recv_looked + LOOK_NS)
		return;
	ep->recv_looked = now;
	while (ep->last_posted && !ep->recv_seen && !ep->recv_due &&
	       ep->nrecv < MAX_RECVS) {
		ret = fi_cancel(&ep->base->fid, ep->last_posted);
		if (ret && ret != -FI_ENOENT)
			break;
		rp_cq_drain(ep->rx_cq);
		/* It came back and was posted again, or others did. */
		if (ep->recv_seen || more_recvs(ep))
			break;
	}
	ep->recv_seen = false;
}

void rp_xport_received(struct rp_ep *ep, const uint8_t *msg, size_t len)
{
	/* Short or strange: core's decoders say so; the type only routes. */
	if (len >= RP_WIRE_HDR && !RP_MSG_TO_TARGET(msg[3])) {
		if (ep->initiator)
			rp_initiator_recv(ep->initiator, msg, len);
	} else {
		rp_agent_recv(ep->dom->agent, &ep->xport, msg, len);
	}
}

void rp_xport_completed(struct rp_slot *s, size_t len, int err)
{
	struct rp_ep *ep = s->ep;

	if (s->kind == RP_SLOT_SEND) {
		rp_cntr_hide(ep, RP_CNTR_SEND, err != 0);
		/* A lost message shows as silence; the timeout tells. */
		rp_xport_unsend(s);
		rp_slot_put(&ep->dom->slots, s);
		return;
	}
	/* What was cancelled has an entry and is not counted. */
	if (err != FI_ECANCELED)
		rp_cntr_hide(ep, RP_CNTR_RECV, err != 0);
	s->posted = false;
	/* The base endpoint is gone and the agent has dropped this xport. */
	if (ep->dead)
		return;
	ep->recv_seen = true;
	if (!err && len <= s->size)
		rp_xport_received(ep, s->buf, len);
	if (ep->serving && s->size != SERVE_SIZE) {
		drop_recv(ep, s);
		return;
	}
	ep->recv_due++;
	repost(ep, s);
}

/* What is cheaper inside a request, whatever the target then does with it. */
static size_t store_max(enum rp_path path)
{
	size_t max = rp_params.inline_max;

	for (int m = RP_METHOD_AGENT_SFENCE; m < RP_METHOD_MAX; m++)
		max = rp_cost_store_max(rp_params.measured ? rp_params.measured
							   : &rp_cost_default,
					path, (enum rp_method)m, max);
	RP_INFO(EP_CTRL, "writes of up to %zu bytes travel in requests\n", max);
	return max;
}

int rp_xport_initiator(struct rp_ep *ep, struct rp_initiator **out)
{
	struct rp_initiator_attr attr = {
		.timeout_ns = rp_params.timeout_ns,
		.slow_rate = rp_params.slow_rate,
		.max_commits = rp_params.max_commits,
		.ordered = ep->dom->ordered,
		.own = ep->dom->own,
		.cost = rp_params.measured,
		.links = ep->dom->conns && !ep->keeps_order,
		.native = ep->dom->conns && ep->dom->conns->attr.native,
	};
	int ret = rp_xport_activate(ep, false);

	if (ret || ep->initiator)
		goto out;
	attr.path = rp_host_path(ep->dom->fabric->base_name,
				 ep->dom->base_info->domain_attr->name);
	attr.store_max = store_max(attr.path);
	if (rp_params.method) {
		attr.forced = rp_method_parse(rp_params.method);
		attr.own &= attr.forced == RP_METHOD_DELIVERY ||
			    attr.forced == RP_METHOD_FENCE;
		attr.links &= rp_method_linked(attr.forced);
		/* What it would not use is not to be offered. */
		attr.native &= attr.forced == RP_METHOD_NATIVE;
	}
	ret = rp_initiator_new(&attr, &ep->xport, &ep->initiator);
out:
	*out = ep->initiator;
	return ret;
}
