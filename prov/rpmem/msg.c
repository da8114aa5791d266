// SPDX-License-Identifier: BSD-2-Clause
/* Messages: the base's, with addresses translated. */
#include "rpmem/rpmem.h"

static struct rp_ep *ep_of(struct fid_ep *fid)
{
	return rp_container_of(fid, struct rp_ep, fid);
}

static ssize_t msg_recv(struct fid_ep *fid, void *buf, size_t len, void *desc,
			fi_addr_t src, void *context)
{
	struct rp_ep *ep = ep_of(fid);

	return fi_recv(ep->base, buf, len, desc, rp_av_to_base(ep->av, src),
		       context);
}

static ssize_t msg_recvv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t src,
			 void *context)
{
	struct rp_ep *ep = ep_of(fid);

	return fi_recvv(ep->base, iov, desc, count, rp_av_to_base(ep->av, src),
			context);
}

static ssize_t msg_recvmsg(struct fid_ep *fid, const struct fi_msg *msg,
			   uint64_t flags)
{
	struct rp_ep *ep = ep_of(fid);
	struct fi_msg m = *msg;

	m.addr = rp_av_to_base(ep->av, msg->addr);
	return fi_recvmsg(ep->base, &m, flags);
}

static ssize_t msg_send(struct fid_ep *fid, const void *buf, size_t len,
			void *desc, fi_addr_t dest, void *context)
{
	struct rp_ep *ep = ep_of(fid);

	return fi_send(ep->base, buf, len, desc, rp_av_to_base(ep->av, dest),
		       context);
}

static ssize_t msg_sendv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t dest,
			 void *context)
{
	struct rp_ep *ep = ep_of(fid);

	return fi_sendv(ep->base, iov, desc, count, rp_av_to_base(ep->av, dest),
			context);
}

static ssize_t msg_sendmsg(struct fid_ep *fid, const struct fi_msg *msg,
			   uint64_t flags)
{
	struct rp_ep *ep = ep_of(fid);
	struct fi_msg m = *msg;

	if (flags & FI_COMMIT_COMPLETE) {
		RP_WARN(EP_DATA, "FI_COMMIT_COMPLETE on a message is not "
				 "offered\n");
		return -FI_EOPNOTSUPP;
	}
	m.addr = rp_av_to_base(ep->av, msg->addr);
	return fi_sendmsg(ep->base, &m, flags);
}

static ssize_t msg_inject(struct fid_ep *fid, const void *buf, size_t len,
			  fi_addr_t dest)
{
	struct rp_ep *ep = ep_of(fid);

	return fi_inject(ep->base, buf, len, rp_av_to_base(ep->av, dest));
}

static ssize_t msg_senddata(struct fid_ep *fid, const void *buf, size_t len,
			    void *desc, uint64_t data, fi_addr_t dest,
			    void *context)
{
	struct rp_ep *ep = ep_of(fid);

	return fi_senddata(ep->base, buf, len, desc, data,
			   rp_av_to_base(ep->av, dest), context);
}

static ssize_t msg_injectdata(struct fid_ep *fid, const void *buf, size_t len,
			      uint64_t data, fi_addr_t dest)
{
	struct rp_ep *ep = ep_of(fid);

	return fi_injectdata(ep->base, buf, len, data,
			     rp_av_to_base(ep->av, dest));
}

struct fi_ops_msg rp_msg_ops = {
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
