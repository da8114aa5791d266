// SPDX-License-Identifier: BSD-2-Clause
/* Control messages of connected endpoints: written over the program's own
 * connection, into a mailbox at its other end. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "rpmem/cm.h"

/* Keys of the program's regions have 32 bits (mr.c). */
#define MAILBOX_KEYS (1ull << 63)
/*
 * How often it is seen to that the connection is still there; where that takes
 * a look into the event queue, and a message:
 */
#define PROBE_NS      1000000ull
#define PROBE_TOLD_NS 50000000ull

static struct rp_ep *ep_of(struct rp_xport *x)
{
	return rp_container_of(x, struct rp_ep, xport);
}

static uint64_t mix(uint64_t h, const void *p, size_t len)
{
	const uint8_t *b = p;

	while (len--)
		h = (h ^ *b++) * 0x100000001b3ull;
	return h;
}

static uint64_t mix_name(uint64_t h, const struct sockaddr *sa)
{
	const struct sockaddr_in6 *six = (const void *)sa;
	const struct sockaddr_in *four = (const void *)sa;

	if (sa->sa_family == AF_INET6) {
		h = mix(h, &six->sin6_addr, sizeof(six->sin6_addr));
		return mix(h, &six->sin6_port, sizeof(six->sin6_port));
	}
	h = mix(h, &four->sin_addr, sizeof(four->sin_addr));
	return mix(h, &four->sin_port, sizeof(four->sin_port));
}

/*
 * Both ends know both names of their connection, and no other has the same two
 * at the same time: so nothing has to be told beforehand.
 */
static uint64_t key_of(const void *owner, const void *writer)
{
	uint64_t h = mix_name(0xcbf29ce484222325ull, owner);

	h = mix_name(h, writer);
	/* The last bytes have reached the upper bits only. */
	h = (h ^ h >> 32) * 0xd6e8feb86659fd93ull;
	return MAILBOX_KEYS | (h ^ h >> 32);
}

/* The names of a connection that was before may be those of this one. */
static void make_way(struct rp_dom *dom, uint64_t key)
{
	struct rp_ep *ep;

	LIST_FOREACH (ep, &dom->eps, link) {
		if (!ep->mail || ep->mail->key != key || !ep->mail->mr)
			continue;
		rp_cm_over(ep);
		fi_close(&ep->mail->mr->fid);
		ep->mail->mr = NULL;
	}
}

static int reg(struct rp_dom *dom, struct rp_mail *m)
{
	const struct iovec iov = {.iov_base = m->in, .iov_len = sizeof(m->in)};
	/* A later libfabric has more fields than we know. */
	union {
		struct fi_mr_attr attr;
		char room[512];
	} a;
	int ret;

	memset(&a, 0, sizeof(a));
	a.attr.mr_iov = &iov;
	a.attr.iov_count = 1;
	a.attr.access = FI_REMOTE_WRITE;
	a.attr.requested_key = m->key;
	ret = fi_mr_regattr(dom->base, &a.attr, 0, &m->mr);
	if (ret != -FI_ENOKEY)
		return ret;
	make_way(dom, m->key);
	return fi_mr_regattr(dom->base, &a.attr, 0, &m->mr);
}

/* The base makes the key; it reads what is sent from where that is known. */
static int reg_told(struct rp_dom *dom, struct rp_mail *m)
{
	int ret = fi_mr_reg(dom->base, m->in, sizeof(m->in), FI_REMOTE_WRITE, 0,
			    0, 0, &m->mr, NULL);

	if (!ret)
		ret = rp_mr_hidden(dom, m->out, sizeof(m->out), FI_WRITE,
				   &m->out_mr);
	if (ret && m->mr)
		fi_close(&m->mr->fid);
	return ret;
}

/* Both ends of a connection have names of one kind. */
static bool is_like_ours(const struct rp_ep *ep, const struct sockaddr *peer)
{
	return peer->sa_family ==
	       ((const struct sockaddr *)ep->addr)->sa_family;
}

/* Who they are says where their mailboxes are. */
static int names(struct rp_ep *ep, struct rp_mail *m, const void *peer)
{
	int ret;

	ep->addr_len = sizeof(ep->addr);
	ret = fi_getname(&ep->base->fid, ep->addr, &ep->addr_len);
	if (!ret && !is_like_ours(ep, peer))
		ret = -FI_EINVAL;
	if (ret)
		return ret;
	m->peer_len = ep->addr_len;
	memcpy(m->peer, peer, m->peer_len);
	m->key = key_of(ep->addr, m->peer);
	m->there = key_of(m->peer, ep->addr);
	m->known = true;
	return 0;
}

int rp_mail_open(struct rp_ep *ep, const void *peer)
{
	struct rp_mail *m = ep->mail ? NULL : calloc(1, sizeof(*m));
	int ret;

	if (!m)
		return ep->mail ? -FI_EINVAL : -FI_ENOMEM;
	rp_mailbox_init(&m->box, m->in, m->out);
	/* Told, it has no name but the two zeroes that ours is, too. */
	m->peer_len = sizeof(short);
	ret = peer ? names(ep, m, peer) : 0;
	if (!ret)
		ret = peer ? reg(ep->dom, m) : reg_told(ep->dom, m);
	if (ret) {
		RP_WARN(EP_CTRL, "no memory for commits: %s\n",
			fi_strerror(-ret));
		free(m);
		return ret;
	}
	ep->mail = m;
	return 0;
}

void rp_mail_close(struct rp_ep *ep)
{
	struct rp_mail *m = ep->mail;

	if (!m)
		return;
	if (m->mr)
		fi_close(&m->mr->fid);
	if (m->out_mr)
		fi_close(&m->out_mr->fid);
	free(m);
	ep->mail = NULL;
}

void rp_mail_card(const struct rp_ep *ep, struct rp_mailbox_card *card)
{
	const struct rp_mail *m = ep->mail;
	const uint64_t mode = ep->dom->base_info->domain_attr->mr_mode;

	*card = (struct rp_mailbox_card){
		.addr = mode & FI_MR_VIRT_ADDR ? (uintptr_t)m->in : 0,
		.key = fi_mr_key(m->mr),
		.fenced = ep->dom->fenced,
	};
}

void rp_mail_told(struct rp_ep *ep, const struct rp_mailbox_card *card)
{
	ep->mail->there = card->key;
	ep->mail->there_at = card->addr;
	ep->mail->fenced = card->fenced;
	ep->mail->known = true;
}

/* Every write has an entry in the queue, so each has a slot. */
static int write_there(struct rp_ep *ep, const struct rp_mailbox_write *w,
		       bool probing)
{
	struct rp_slot *s = rp_slot_get(&ep->dom->slots, ep, RP_SLOT_MAIL);
	const struct iovec iov = {
		.iov_base = (void *)w->buf,
		.iov_len = w->len,
	};
	const struct fi_rma_iov to = {
		.addr = ep->mail->there_at + w->at,
		.len = w->len,
		.key = ep->mail->there,
	};
	void *desc = rp_mr_desc(ep->mail->out_mr);
	const struct fi_msg_rma m = {
		.msg_iov = &iov,
		.desc = &desc,
		.iov_count = 1,
		.rma_iov = &to,
		.rma_iov_count = 1,
		.context = s,
	};
	uint64_t flags = FI_COMPLETION;
	int ret;

	if (!s)
		return -ENOMEM;
	s->written = probing;
	if (w->len <= ep->inject_size)
		flags |= FI_INJECT;
	ret = (int)fi_writemsg(ep->base, &m, flags);
	if (ret)
		rp_slot_put(&ep->dom->slots, s);
	return ret;
}

void rp_mail_sent(struct rp_slot *s, int err)
{
	struct rp_ep *ep = s->ep;

	rp_cntr_hide(ep, RP_CNTR_WRITE, err != 0);
	/* Looked at later: core may be in the middle of something. */
	if (err && ep->mail)
		ep->mail->broken = true;
	if (ep->mail && s->written)
		ep->mail->probing = false;
	rp_slot_put(&ep->dom->slots, s);
}

int rp_mail_write(struct rp_ep *ep, const struct rp_mailbox_write *w)
{
	return write_there(ep, w, false);
}

/* Only what is about writes has to be seen behind them. */
static bool is_request(const uint8_t *msg, size_t len)
{
	return len >= RP_WIRE_HDR && msg[3] == RP_MSG_REQUEST;
}

static int mail_send(struct rp_xport *x, uint64_t peer, const void *msg,
		     size_t len)
{
	struct rp_ep *ep = ep_of(x);
	struct rp_mailbox_write w;
	int ret;

	if (!ep->connected || ep->mail->broken)
		return -ENOTCONN;
	ret = rp_mailbox_put(&ep->mail->box, msg, len, &w);
	if (ret)
		return ret;
	if (ep->mail->fenced && is_request(msg, len)) {
		rp_mail_hold(ep, &w);
		return 0;
	}
	ret = write_there(ep, &w, false);
	if (ret)
		rp_mailbox_unput(&ep->mail->box);
	return ret;
}

/* There is one peer, and it is asked for by the name that it has here. */
static int mail_peer_get(struct rp_xport *x, const void *addr, size_t len,
			 uint64_t *peer)
{
	const struct rp_mail *m = ep_of(x)->mail;

	if (len != m->peer_len || memcmp(addr, m->peer, sizeof(short)))
		return -EINVAL;
	*peer = 0;
	return 0;
}

static void mail_peer_put(struct rp_xport *x, uint64_t peer)
{
}

static int mail_name(struct rp_xport *x, void *addr, size_t *len)
{
	const struct rp_ep *ep = ep_of(x);

	if (*len < ep->addr_len)
		return -ENOSPC;
	memcpy(addr, ep->addr, ep->addr_len);
	*len = ep->addr_len;
	return 0;
}

const struct rp_xport_ops rp_mail_ops = {
	.now = rp_xport_now,
	.send = mail_send,
	.peer_get = mail_peer_get,
	.peer_put = mail_peer_put,
	.name = mail_name,
	.random = rp_xport_random,
	.notify = rp_xport_notify,
	.kick = rp_xport_kick,
};

bool rp_mail_waits(const struct rp_ep *ep)
{
	return ep->connected && ep->initiator &&
	       rp_initiator_outstanding(ep->initiator);
}

/*
 * Whether the peer has gone shows in the event queue, where the program need
 * not look; or what is written there fails. One at a time is enough.
 */
static bool is_gone_there(struct rp_ep *ep)
{
	struct rp_mail *m = ep->mail;
	struct rp_mailbox_write w;

	if (rp_eq_has_end(ep->eq, &ep->base->fid))
		return true;
	if (m->probing)
		return false;
	rp_mailbox_cell(&m->box, &w);
	m->probing = !write_there(ep, &w, true);
	return false;
}

/* The base tells of it in the event queue, which the program reads, or not. */
static bool is_gone(struct rp_ep *ep)
{
	const bool told = ep->dom->cards;
	uint8_t addr[RP_WIRE_MAX_ADDR];
	size_t len = sizeof(addr);
	uint64_t now;

	if (ep->mail->broken)
		return true;
	if (!rp_mail_waits(ep))
		return false;
	now = rp_domain_now(ep->dom);
	if (now < ep->mail->probed + (told ? PROBE_TOLD_NS : PROBE_NS))
		return false;
	ep->mail->probed = now;
	return told ? is_gone_there(ep) : fi_getpeer(ep->base, addr, &len) != 0;
}

void rp_mail_look(struct rp_ep *ep)
{
	struct rp_mail *m = ep->mail;
	uint8_t msg[RP_WIRE_MAX_MSG];
	struct rp_mailbox_write w;
	int left = RP_MAILBOX_FRAMES;
	size_t len;

	/* What has come before the end is worth reading. */
	while (ep->connected && left-- && (len = rp_mailbox_take(&m->box, msg)))
		rp_xport_received(ep, msg, len);
	if (!ep->connected)
		return;
	if (m->fenced)
		rp_mail_release(ep);
	if (is_gone(ep))
		rp_cm_over(ep);
	else if (rp_mailbox_owes(&m->box, &w) && !write_there(ep, &w, false))
		rp_mailbox_paid(&m->box);
}
