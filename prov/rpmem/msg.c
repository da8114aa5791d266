// SPDX-License-Identifier: BSD-2-Clause
/* Messages: forwarded to the base. */
#include "rpmem/rpmem.h"

static struct fid_ep *base_of(struct fid_ep *fid)
{
	return rp_ep_of(&fid->fid)->base;
}

static ssize_t msg_recv(struct fid_ep *fid, void *buf, size_t len, void *desc,
			fi_addr_t src, void *context)
{
	return fi_recv(base_of(fid), buf, len, desc, src, context);
}

static ssize_t msg_recvv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t src,
			 void *context)
{
	return fi_recvv(base_of(fid), iov, desc, count, src, context);
}

static ssize_t msg_recvmsg(struct fid_ep *fid, const struct fi_msg *msg,
			   uint64_t flags)
{
	return fi_recvmsg(base_of(fid), msg, flags);
}

static ssize_t msg_send(struct fid_ep *fid, const void *buf, size_t len,
			void *desc, fi_addr_t dest, void *context)
{
	return fi_send(base_of(fid), buf, len, desc, dest, context);
}

static ssize_t msg_sendv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t dest,
			 void *context)
{
	return fi_sendv(base_of(fid), iov, desc, count, dest, context);
}

static ssize_t msg_sendmsg(struct fid_ep *fid, const struct fi_msg *msg,
			   uint64_t flags)
{
	int ret = 0;

	if (flags & (FI_COMMIT_COMPLETE | FI_FENCE))
		ret = rp_ep_check_message(fid, msg->addr, flags);
	return ret ? ret : fi_sendmsg(base_of(fid), msg, flags);
}

static ssize_t msg_inject(struct fid_ep *fid, const void *buf, size_t len,
			  fi_addr_t dest)
{
	return fi_inject(base_of(fid), buf, len, dest);
}

static ssize_t msg_senddata(struct fid_ep *fid, const void *buf, size_t len,
			    void *desc, uint64_t data, fi_addr_t dest,
			    void *context)
{
	return fi_senddata(base_of(fid), buf, len, desc, data, dest, context);
}

static ssize_t msg_injectdata(struct fid_ep *fid, const void *buf, size_t len,
			      uint64_t data, fi_addr_t dest)
{
	return fi_injectdata(base_of(fid), buf, len, data, dest);
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

/* --- msg_order: wait for writes to persistent regions first --- */

static ssize_t ordered_send(struct fid_ep *fid, const void *buf, size_t len,
			    void *desc, fi_addr_t dest, void *context)
{
	int ret = rp_ep_wait_order(fid, dest);

	return ret ? ret : msg_send(fid, buf, len, desc, dest, context);
}

static ssize_t ordered_sendv(struct fid_ep *fid, const struct iovec *iov,
			     void **desc, size_t count, fi_addr_t dest,
			     void *context)
{
	int ret = rp_ep_wait_order(fid, dest);

	return ret ? ret : msg_sendv(fid, iov, desc, count, dest, context);
}

static ssize_t ordered_sendmsg(struct fid_ep *fid, const struct fi_msg *msg,
			       uint64_t flags)
{
	int ret = rp_ep_wait_order(fid, msg->addr);

	return ret ? ret : msg_sendmsg(fid, msg, flags);
}

static ssize_t ordered_inject(struct fid_ep *fid, const void *buf, size_t len,
			      fi_addr_t dest)
{
	int ret = rp_ep_wait_order(fid, dest);

	return ret ? ret : msg_inject(fid, buf, len, dest);
}

static ssize_t ordered_senddata(struct fid_ep *fid, const void *buf, size_t len,
				void *desc, uint64_t data, fi_addr_t dest,
				void *context)
{
	int ret = rp_ep_wait_order(fid, dest);

	return ret ? ret
		   : msg_senddata(fid, buf, len, desc, data, dest, context);
}

static ssize_t ordered_injectdata(struct fid_ep *fid, const void *buf,
				  size_t len, uint64_t data, fi_addr_t dest)
{
	int ret = rp_ep_wait_order(fid, dest);

	return ret ? ret : msg_injectdata(fid, buf, len, data, dest);
}

struct fi_ops_msg rp_msg_ordered_ops = {
	.size = sizeof(struct fi_ops_msg),
	.recv = msg_recv,
	.recvv = msg_recvv,
	.recvmsg = msg_recvmsg,
	.send = ordered_send,
	.sendv = ordered_sendv,
	.sendmsg = ordered_sendmsg,
	.inject = ordered_inject,
	.senddata = ordered_senddata,
	.injectdata = ordered_injectdata,
};
