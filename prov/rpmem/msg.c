// SPDX-License-Identifier: BSD-2-Clause
/* Messages, forwarded to the base; some must wait for persistent writes. */
#include "rpmem/rpmem.h"

static ssize_t msg_recv(struct fid_ep *fid, void *buf, size_t len, void *desc,
			fi_addr_t src, void *context)
{
	return fi_recv(rp_ep_base(fid), buf, len, desc, src, context);
}

static ssize_t msg_recvv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t src,
			 void *context)
{
	return fi_recvv(rp_ep_base(fid), iov, desc, count, src, context);
}

static ssize_t msg_recvmsg(struct fid_ep *fid, const struct fi_msg *msg,
			   uint64_t flags)
{
	return flags & FI_COMMIT_COMPLETE
		       ? rp_ep_check_msg_flags(flags)
		       : fi_recvmsg(rp_ep_base(fid), msg, flags);
}

static ssize_t msg_send(struct fid_ep *fid, const void *buf, size_t len,
			void *desc, fi_addr_t dest, void *context)
{
	return rp_ep_check_message(fid, dest, 0)
		       ?: fi_send(rp_ep_base(fid), buf, len, desc, dest,
				  context);
}

static ssize_t msg_sendv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t dest,
			 void *context)
{
	return rp_ep_check_message(fid, dest, 0)
		       ?: fi_sendv(rp_ep_base(fid), iov, desc, count, dest,
				   context);
}

static ssize_t msg_sendmsg(struct fid_ep *fid, const struct fi_msg *msg,
			   uint64_t flags)
{
	return rp_ep_check_message(fid, msg->addr, flags)
		       ?: fi_sendmsg(rp_ep_base(fid), msg, flags);
}

static ssize_t msg_inject(struct fid_ep *fid, const void *buf, size_t len,
			  fi_addr_t dest)
{
	return rp_ep_check_message(fid, dest, 0)
		       ?: fi_inject(rp_ep_base(fid), buf, len, dest);
}

static ssize_t msg_senddata(struct fid_ep *fid, const void *buf, size_t len,
			    void *desc, uint64_t data, fi_addr_t dest,
			    void *context)
{
	return rp_ep_check_message(fid, dest, 0)
		       ?: fi_senddata(rp_ep_base(fid), buf, len, desc, data,
				      dest, context);
}

static ssize_t msg_injectdata(struct fid_ep *fid, const void *buf, size_t len,
			      uint64_t data, fi_addr_t dest)
{
	return rp_ep_check_message(fid, dest, 0)
		       ?: fi_injectdata(rp_ep_base(fid), buf, len, data, dest);
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
