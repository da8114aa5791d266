// SPDX-License-Identifier: BSD-2-Clause
/* Tagged messages, forwarded to the base as in msg.c. */
#include "rpmem/rpmem.h"

static ssize_t tagged_recv(struct fid_ep *fid, void *buf, size_t len,
			   void *desc, fi_addr_t src, uint64_t tag,
			   uint64_t ignore, void *context)
{
	return fi_trecv(rp_ep_base(fid), buf, len, desc, src, tag, ignore,
			context);
}

static ssize_t tagged_recvv(struct fid_ep *fid, const struct iovec *iov,
			    void **desc, size_t count, fi_addr_t src,
			    uint64_t tag, uint64_t ignore, void *context)
{
	return fi_trecvv(rp_ep_base(fid), iov, desc, count, src, tag, ignore,
			 context);
}

static ssize_t tagged_recvmsg(struct fid_ep *fid,
			      const struct fi_msg_tagged *msg, uint64_t flags)
{
	return flags & FI_COMMIT_COMPLETE
		       ? rp_ep_check_msg_flags(flags)
		       : fi_trecvmsg(rp_ep_base(fid), msg, flags);
}

static ssize_t tagged_send(struct fid_ep *fid, const void *buf, size_t len,
			   void *desc, fi_addr_t dest, uint64_t tag,
			   void *context)
{
	return rp_ep_check_message(fid, dest, 0)
		       ?: fi_tsend(rp_ep_base(fid), buf, len, desc, dest, tag,
				   context);
}

static ssize_t tagged_sendv(struct fid_ep *fid, const struct iovec *iov,
			    void **desc, size_t count, fi_addr_t dest,
			    uint64_t tag, void *context)
{
	return rp_ep_check_message(fid, dest, 0)
		       ?: fi_tsendv(rp_ep_base(fid), iov, desc, count, dest,
				    tag, context);
}

static ssize_t tagged_sendmsg(struct fid_ep *fid,
			      const struct fi_msg_tagged *msg, uint64_t flags)
{
	return rp_ep_check_message(fid, msg->addr, flags)
		       ?: fi_tsendmsg(rp_ep_base(fid), msg, flags);
}

static ssize_t tagged_inject(struct fid_ep *fid, const void *buf, size_t len,
			     fi_addr_t dest, uint64_t tag)
{
	return rp_ep_check_message(fid, dest, 0)
		       ?: fi_tinject(rp_ep_base(fid), buf, len, dest, tag);
}

static ssize_t tagged_senddata(struct fid_ep *fid, const void *buf, size_t len,
			       void *desc, uint64_t data, fi_addr_t dest,
			       uint64_t tag, void *context)
{
	return rp_ep_check_message(fid, dest, 0)
		       ?: fi_tsenddata(rp_ep_base(fid), buf, len, desc, data,
				       dest, tag, context);
}

static ssize_t tagged_injectdata(struct fid_ep *fid, const void *buf,
				 size_t len, uint64_t data, fi_addr_t dest,
				 uint64_t tag)
{
	return rp_ep_check_message(fid, dest, 0)
		       ?: fi_tinjectdata(rp_ep_base(fid), buf, len, data, dest,
					 tag);
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
