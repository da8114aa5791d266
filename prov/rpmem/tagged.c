// SPDX-License-Identifier: BSD-2-Clause
/* Tagged messages: forwarded to the base. */
#include "rpmem/rpmem.h"

static struct fid_ep *base_of(struct fid_ep *fid)
{
	return rp_ep_of(&fid->fid)->base;
}

static ssize_t tagged_recv(struct fid_ep *fid, void *buf, size_t len,
			   void *desc, fi_addr_t src, uint64_t tag,
			   uint64_t ignore, void *context)
{
	return fi_trecv(base_of(fid), buf, len, desc, src, tag, ignore,
			context);
}

static ssize_t tagged_recvv(struct fid_ep *fid, const struct iovec *iov,
			    void **desc, size_t count, fi_addr_t src,
			    uint64_t tag, uint64_t ignore, void *context)
{
	return fi_trecvv(base_of(fid), iov, desc, count, src, tag, ignore,
			 context);
}

static ssize_t tagged_recvmsg(struct fid_ep *fid,
			      const struct fi_msg_tagged *msg, uint64_t flags)
{
	return fi_trecvmsg(base_of(fid), msg, flags);
}

static ssize_t tagged_send(struct fid_ep *fid, const void *buf, size_t len,
			   void *desc, fi_addr_t dest, uint64_t tag,
			   void *context)
{
	return fi_tsend(base_of(fid), buf, len, desc, dest, tag, context);
}

static ssize_t tagged_sendv(struct fid_ep *fid, const struct iovec *iov,
			    void **desc, size_t count, fi_addr_t dest,
			    uint64_t tag, void *context)
{
	return fi_tsendv(base_of(fid), iov, desc, count, dest, tag, context);
}

static ssize_t tagged_sendmsg(struct fid_ep *fid,
			      const struct fi_msg_tagged *msg, uint64_t flags)
{
	int ret = 0;

	if (flags & (FI_COMMIT_COMPLETE | FI_FENCE))
		ret = rp_ep_check_message(fid, msg->addr, flags);
	return ret ? ret : fi_tsendmsg(base_of(fid), msg, flags);
}

static ssize_t tagged_inject(struct fid_ep *fid, const void *buf, size_t len,
			     fi_addr_t dest, uint64_t tag)
{
	return fi_tinject(base_of(fid), buf, len, dest, tag);
}

static ssize_t tagged_senddata(struct fid_ep *fid, const void *buf, size_t len,
			       void *desc, uint64_t data, fi_addr_t dest,
			       uint64_t tag, void *context)
{
	return fi_tsenddata(base_of(fid), buf, len, desc, data, dest, tag,
			    context);
}

static ssize_t tagged_injectdata(struct fid_ep *fid, const void *buf,
				 size_t len, uint64_t data, fi_addr_t dest,
				 uint64_t tag)
{
	return fi_tinjectdata(base_of(fid), buf, len, data, dest, tag);
}

struct fi_ops_tagged rp_tagged_ops = {
	.size = sizeof(struct fi_ops_tagged),
	.recv = tagged_recv,
	.recvv = tagged_recvv,
	.recvmsg = tagged_recvmsg,
	.send = tagged_send,
	.sendv = tagged_sendv,
	.sendmsg = tagged_sendmsg,
	.inject = tagged_inject,
	.senddata = tagged_senddata,
	.injectdata = tagged_injectdata,
};

/* --- msg_order: wait for writes to persistent regions first --- */

static ssize_t ordered_send(struct fid_ep *fid, const void *buf, size_t len,
			    void *desc, fi_addr_t dest, uint64_t tag,
			    void *context)
{
	int ret = rp_ep_wait_order(fid, dest);

	return ret ? ret : tagged_send(fid, buf, len, desc, dest, tag, context);
}

static ssize_t ordered_sendv(struct fid_ep *fid, const struct iovec *iov,
			     void **desc, size_t count, fi_addr_t dest,
			     uint64_t tag, void *context)
{
	int ret = rp_ep_wait_order(fid, dest);

	return ret ? ret
		   : tagged_sendv(fid, iov, desc, count, dest, tag, context);
}

static ssize_t ordered_sendmsg(struct fid_ep *fid,
			       const struct fi_msg_tagged *msg, uint64_t flags)
{
	int ret = rp_ep_wait_order(fid, msg->addr);

	return ret ? ret : tagged_sendmsg(fid, msg, flags);
}

static ssize_t ordered_inject(struct fid_ep *fid, const void *buf, size_t len,
			      fi_addr_t dest, uint64_t tag)
{
	int ret = rp_ep_wait_order(fid, dest);

	return ret ? ret : tagged_inject(fid, buf, len, dest, tag);
}

static ssize_t ordered_senddata(struct fid_ep *fid, const void *buf, size_t len,
				void *desc, uint64_t data, fi_addr_t dest,
				uint64_t tag, void *context)
{
	int ret = rp_ep_wait_order(fid, dest);

	return ret ? ret
		   : tagged_senddata(fid, buf, len, desc, data, dest, tag,
				     context);
}

static ssize_t ordered_injectdata(struct fid_ep *fid, const void *buf,
				  size_t len, uint64_t data, fi_addr_t dest,
				  uint64_t tag)
{
	int ret = rp_ep_wait_order(fid, dest);

	return ret ? ret : tagged_injectdata(fid, buf, len, data, dest, tag);
}

struct fi_ops_tagged rp_tagged_ordered_ops = {
	.size = sizeof(struct fi_ops_tagged),
	.recv = tagged_recv,
	.recvv = tagged_recvv,
	.recvmsg = tagged_recvmsg,
	.send = ordered_send,
	.sendv = ordered_sendv,
	.sendmsg = ordered_sendmsg,
	.inject = ordered_inject,
	.senddata = ordered_senddata,
	.injectdata = ordered_injectdata,
};
