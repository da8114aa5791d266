// SPDX-License-Identifier: BSD-2-Clause
/* Messages and tagged messages: the calls that send and receive. */
#include <stdlib.h>
#include <string.h>

#include "pmsim/pmsim_int.h"

/* --- sending --- */

static struct ps_tx send_tx(const struct iovec *iov, size_t count,
			    fi_addr_t dest, void *context, uint64_t flags)
{
	return (struct ps_tx){
		.type = PMSIM_SEND,
		.event = PS_EV_SEND,
		.dest = dest,
		.iov = iov,
		.niov = count,
		.context = context,
		.flags = flags,
		.cq_flags = FI_SEND | FI_MSG,
	};
}

static void make_tagged(struct ps_tx *tx, uint64_t tag)
{
	tx->type = PMSIM_TSEND;
	tx->tag = tag;
	tx->cq_flags = FI_SEND | FI_TAGGED;
}

static void add_data(struct ps_tx *tx, uint64_t data)
{
	tx->flags |= FI_REMOTE_CQ_DATA;
	tx->data = data;
}

static ssize_t msg_sendmsg(struct fid_ep *fid, const struct fi_msg *msg,
			   uint64_t flags)
{
	struct ps_tx tx = send_tx(msg->msg_iov, msg->iov_count, msg->addr,
				  msg->context, flags);

	tx.data = msg->data;
	return ps_tx_post(ps_ep_of(fid), &tx);
}

static ssize_t msg_sendv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t dest,
			 void *context)
{
	struct ps_tx tx =
		send_tx(iov, count, dest, context, ps_ep_of(fid)->tx_flags);

	return ps_tx_post(ps_ep_of(fid), &tx);
}

static ssize_t msg_send(struct fid_ep *fid, const void *buf, size_t len,
			void *desc, fi_addr_t dest, void *context)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};

	return msg_sendv(fid, &iov, &desc, 1, dest, context);
}

static ssize_t msg_inject(struct fid_ep *fid, const void *buf, size_t len,
			  fi_addr_t dest)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
	struct ps_tx tx = send_tx(&iov, 1, dest, NULL, FI_INJECT);

	tx.silent = true;
	return ps_tx_post(ps_ep_of(fid), &tx);
}

static ssize_t msg_senddata(struct fid_ep *fid, const void *buf, size_t len,
			    void *desc, uint64_t data, fi_addr_t dest,
			    void *context)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
	struct ps_tx tx =
		send_tx(&iov, 1, dest, context, ps_ep_of(fid)->tx_flags);

	add_data(&tx, data);
	return ps_tx_post(ps_ep_of(fid), &tx);
}

static ssize_t msg_injectdata(struct fid_ep *fid, const void *buf, size_t len,
			      uint64_t data, fi_addr_t dest)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
	struct ps_tx tx = send_tx(&iov, 1, dest, NULL, FI_INJECT);

	add_data(&tx, data);
	tx.silent = true;
	return ps_tx_post(ps_ep_of(fid), &tx);
}

static ssize_t tag_sendmsg(struct fid_ep *fid, const struct fi_msg_tagged *msg,
			   uint64_t flags)
{
	struct ps_tx tx = send_tx(msg->msg_iov, msg->iov_count, msg->addr,
				  msg->context, flags);

	make_tagged(&tx, msg->tag);
	tx.data = msg->data;
	return ps_tx_post(ps_ep_of(fid), &tx);
}

static ssize_t tag_sendv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t dest,
			 uint64_t tag, void *context)
{
	struct ps_tx tx =
		send_tx(iov, count, dest, context, ps_ep_of(fid)->tx_flags);

	make_tagged(&tx, tag);
	return ps_tx_post(ps_ep_of(fid), &tx);
}

static ssize_t tag_send(struct fid_ep *fid, const void *buf, size_t len,
			void *desc, fi_addr_t dest, uint64_t tag, void *context)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};

	return tag_sendv(fid, &iov, &desc, 1, dest, tag, context);
}

static ssize_t tag_inject(struct fid_ep *fid, const void *buf, size_t len,
			  fi_addr_t dest, uint64_t tag)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
	struct ps_tx tx = send_tx(&iov, 1, dest, NULL, FI_INJECT);

	make_tagged(&tx, tag);
	tx.silent = true;
	return ps_tx_post(ps_ep_of(fid), &tx);
}

static ssize_t tag_senddata(struct fid_ep *fid, const void *buf, size_t len,
			    void *desc, uint64_t data, fi_addr_t dest,
			    uint64_t tag, void *context)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
	struct ps_tx tx =
		send_tx(&iov, 1, dest, context, ps_ep_of(fid)->tx_flags);

	make_tagged(&tx, tag);
	add_data(&tx, data);
	return ps_tx_post(ps_ep_of(fid), &tx);
}

static ssize_t tag_injectdata(struct fid_ep *fid, const void *buf, size_t len,
			      uint64_t data, fi_addr_t dest, uint64_t tag)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};
	struct ps_tx tx = send_tx(&iov, 1, dest, NULL, FI_INJECT);

	make_tagged(&tx, tag);
	add_data(&tx, data);
	tx.silent = true;
	return ps_tx_post(ps_ep_of(fid), &tx);
}

/* --- receiving --- */

static int rx_check(const struct ps_ep *ep, const struct iovec *iov, size_t n)
{
	struct model *m = ep->dom->machine->model;

	if (ep->dead)
		return -FI_ESHUTDOWN;
	if (!ep->enabled)
		return -FI_EOPBADSTATE;
	if (n > PS_IOV)
		return -FI_EINVAL;
	/* Receives into persistent memory need cfg.recv_in_pm. */
	for (size_t i = 0; i < n && m && !ps_sim.cfg.recv_in_pm; i++)
		if (iov[i].iov_len && model_owns(m, iov[i].iov_base))
			return -FI_EINVAL;
	return ep->nrx >= PS_QUEUE_SIZE || ps_must_refuse() ? -FI_EAGAIN : 0;
}

static int rx_new(struct ps_ep *ep, const struct fi_msg_tagged *msg,
		  uint64_t flags, struct ps_rx **out)
{
	struct ps_rx *rx = calloc(1, sizeof(*rx));

	if (!rx)
		return -FI_ENOMEM;
	rx->ep = ep;
	rx->context = msg->context;
	rx->flags = flags;
	rx->tag = msg->tag;
	rx->ignore = msg->ignore;
	if (ep->directed && msg->addr != FI_ADDR_UNSPEC) {
		rx->source = ps_av_number(ep->av, msg->addr);
		if (!rx->source) {
			free(rx);
			return -FI_EINVAL;
		}
	}
	rx->niov = msg->iov_count;
	rx->len = ps_iov_len(msg->msg_iov, msg->iov_count);
	if (rx->niov)
		memcpy(rx->iov, msg->msg_iov, rx->niov * sizeof(*rx->iov));
	*out = rx;
	return 0;
}

static ssize_t rx_post(struct ps_ep *ep, struct ps_match *q,
		       const struct fi_msg_tagged *msg, uint64_t flags)
{
	struct ps_rx *rx;
	int ret = rx_check(ep, msg->msg_iov, msg->iov_count);

	if (!ret)
		ret = rx_new(ep, msg, flags, &rx);
	if (!ret)
		ps_rx_post(q, rx);
	return ret;
}

static ssize_t msg_recvmsg(struct fid_ep *fid, const struct fi_msg *msg,
			   uint64_t flags)
{
	struct ps_ep *ep = ps_ep_of(fid);
	struct fi_msg_tagged m = {
		.msg_iov = msg->msg_iov,
		.iov_count = msg->iov_count,
		.addr = msg->addr,
		.context = msg->context,
	};

	if (flags & ~(FI_COMPLETION | FI_MORE))
		return -FI_EBADFLAGS;
	return rx_post(ep, &ep->msg, &m, flags);
}

static ssize_t msg_recvv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t src,
			 void *context)
{
	struct ps_ep *ep = ps_ep_of(fid);
	struct fi_msg_tagged m = {
		.msg_iov = iov,
		.iov_count = count,
		.addr = src,
		.context = context,
	};

	return rx_post(ep, &ep->msg, &m, ep->rx_flags);
}

static ssize_t msg_recv(struct fid_ep *fid, void *buf, size_t len, void *desc,
			fi_addr_t src, void *context)
{
	struct iovec iov = {.iov_base = buf, .iov_len = len};

	return msg_recvv(fid, &iov, &desc, 1, src, context);
}

struct fi_ops_msg ps_msg_ops = {
	.size = sizeof(struct fi_ops_msg),
	.recv = msg_recv,
	.recvv = msg_recvv,
	.recvmsg = msg_recvmsg,
	.send = msg_send,
	.sendv = msg_sendv,
	.sendmsg = msg_sendmsg,
	.inject = msg_inject,
	.senddata = msg_senddata,
	.injectdata = msg_injectdata,
};

/* Discard a message; acknowledge it, as the sender may wait. */
static void discard(struct ps_msg *msg)
{
	ps_reply(msg, PMSIM_ACK, 0, NULL, 0);
	free(msg);
}

static ssize_t peek(struct ps_ep *ep, const struct fi_msg_tagged *want,
		    uint64_t flags)
{
	struct fi_cq_err_entry e = {
		.op_context = want->context,
		.flags = FI_RECV | FI_TAGGED,
		.tag = want->tag,
		.err = FI_ENOMSG,
		.prov_errno = FI_ENOMSG,
	};
	fi_addr_t src = FI_ADDR_NOTAVAIL;
	struct ps_msg *msg;
	struct ps_rx *rx;
	int ret = rx_check(ep, NULL, 0);

	if (!ret)
		ret = rx_new(ep, want, flags, &rx);
	if (ret)
		return ret;
	ps_progress(ep->dom);
	TAILQ_FOREACH (msg, &ep->tagged.unexpected, link)
		if (ps_rx_matches(rx, msg))
			break;
	free(rx);
	if (msg) {
		e.flags |= msg->flags & FI_REMOTE_CQ_DATA;
		e.len = msg->len;
		e.data = msg->data;
		e.tag = msg->tag;
		e.err = e.prov_errno = 0;
		src = ps_av_find(ep->av, msg->from);
		if (flags & (FI_CLAIM | FI_DISCARD))
			TAILQ_REMOVE(&ep->tagged.unexpected, msg, link);
		if (flags & FI_CLAIM) {
			msg->claim = want->context;
			TAILQ_INSERT_TAIL(&ep->tagged.claimed, msg, link);
		} else if (flags & FI_DISCARD) {
			discard(msg);
		}
	}
	if (ep->rx_cq)
		ps_cq_push(ep->rx_cq, &e, src);
	return 0;
}

static ssize_t claim(struct ps_ep *ep, const struct fi_msg_tagged *want,
		     uint64_t flags)
{
	struct ps_msg *msg;
	struct ps_rx *rx;
	int ret = rx_check(ep, want->msg_iov, want->iov_count);

	if (ret)
		return ret;
	TAILQ_FOREACH (msg, &ep->tagged.claimed, link)
		if (msg->claim == want->context)
			break;
	if (!msg)
		return -FI_EINVAL;
	ret = rx_new(ep, want, flags, &rx);
	if (ret)
		return ret;
	if (flags & FI_DISCARD) {
		rx->niov = 0;
		rx->len = msg->len;
	}
	TAILQ_REMOVE(&ep->tagged.claimed, msg, link);
	ep->nrx++;
	ps_rx_take(rx, msg);
	return 0;
}

static ssize_t tag_recvmsg(struct fid_ep *fid, const struct fi_msg_tagged *msg,
			   uint64_t flags)
{
	struct ps_ep *ep = ps_ep_of(fid);

	if (flags &
	    ~(FI_COMPLETION | FI_MORE | FI_PEEK | FI_CLAIM | FI_DISCARD))
		return -FI_EBADFLAGS;
	if (flags & FI_PEEK)
		return peek(ep, msg, flags);
	if (flags & FI_CLAIM)
		return claim(ep, msg, flags);
	if (flags & FI_DISCARD)
		return -FI_EINVAL;
	return rx_post(ep, &ep->tagged, msg, flags);
}

static ssize_t tag_recvv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t src, uint64_t tag,
			 uint64_t ignore, void *context)
{
	struct ps_ep *ep = ps_ep_of(fid);
	struct fi_msg_tagged m = {
		.msg_iov = iov,
		.iov_count = count,
		.addr = src,
		.tag = tag,
		.ignore = ignore,
		.context = context,
	};

	return rx_post(ep, &ep->tagged, &m, ep->rx_flags);
}

static ssize_t tag_recv(struct fid_ep *fid, void *buf, size_t len, void *desc,
			fi_addr_t src, uint64_t tag, uint64_t ignore,
			void *context)
{
	struct iovec iov = {.iov_base = buf, .iov_len = len};

	return tag_recvv(fid, &iov, &desc, 1, src, tag, ignore, context);
}

struct fi_ops_tagged ps_tagged_ops = {
	.size = sizeof(struct fi_ops_tagged),
	.recv = tag_recv,
	.recvv = tag_recvv,
	.recvmsg = tag_recvmsg,
	.send = tag_send,
	.sendv = tag_sendv,
	.sendmsg = tag_sendmsg,
	.inject = tag_inject,
	.senddata = tag_senddata,
	.injectdata = tag_injectdata,
};
