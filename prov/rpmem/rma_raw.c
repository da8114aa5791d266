// SPDX-License-Identifier: BSD-2-Clause
/* Remote writes and reads of domains with keys of the application's choice. */
#include "rpmem/rpmem.h"

/*
 * Keys of the application's choice carry no mark: the domain has no persistent
 * regions, and no commits.
 */
static inline bool commits(const struct rp_ep *ep)
{
	return ep->op_flags & FI_COMMIT_COMPLETE;
}

static ssize_t raw_writemsg(struct fid_ep *fid, const struct fi_msg_rma *msg,
			    uint64_t flags)
{
	if (flags & FI_COMMIT_COMPLETE)
		return rp_rma_unmarked();
	return fi_writemsg(rp_ep_of(&fid->fid)->base, msg, flags);
}

static ssize_t raw_write(struct fid_ep *fid, const void *buf, size_t len,
			 void *desc, fi_addr_t dest, uint64_t addr,
			 uint64_t key, void *context)
{
	struct rp_ep *ep = rp_ep_of(&fid->fid);

	if (commits(ep))
		return rp_rma_unmarked();
	return fi_write(ep->base, buf, len, desc, dest, addr, key, context);
}

static ssize_t raw_writev(struct fid_ep *fid, const struct iovec *iov,
			  void **desc, size_t count, fi_addr_t dest,
			  uint64_t addr, uint64_t key, void *context)
{
	struct rp_ep *ep = rp_ep_of(&fid->fid);

	if (commits(ep))
		return rp_rma_unmarked();
	return fi_writev(ep->base, iov, desc, count, dest, addr, key, context);
}

static ssize_t raw_writedata(struct fid_ep *fid, const void *buf, size_t len,
			     void *desc, uint64_t data, fi_addr_t dest,
			     uint64_t addr, uint64_t key, void *context)
{
	struct rp_ep *ep = rp_ep_of(&fid->fid);

	if (commits(ep))
		return rp_rma_unmarked();
	return fi_writedata(ep->base, buf, len, desc, data, dest, addr, key,
			    context);
}

static ssize_t raw_inject(struct fid_ep *fid, const void *buf, size_t len,
			  fi_addr_t dest, uint64_t addr, uint64_t key)
{
	return fi_inject_write(rp_ep_of(&fid->fid)->base, buf, len, dest, addr,
			       key);
}

static ssize_t raw_injectdata(struct fid_ep *fid, const void *buf, size_t len,
			      uint64_t data, fi_addr_t dest, uint64_t addr,
			      uint64_t key)
{
	return fi_inject_writedata(rp_ep_of(&fid->fid)->base, buf, len, data,
				   dest, addr, key);
}

static ssize_t raw_read(struct fid_ep *fid, void *buf, size_t len, void *desc,
			fi_addr_t src, uint64_t addr, uint64_t key,
			void *context)
{
	return fi_read(rp_ep_of(&fid->fid)->base, buf, len, desc, src, addr,
		       key, context);
}

static ssize_t raw_readv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t src,
			 uint64_t addr, uint64_t key, void *context)
{
	return fi_readv(rp_ep_of(&fid->fid)->base, iov, desc, count, src, addr,
			key, context);
}

static ssize_t raw_readmsg(struct fid_ep *fid, const struct fi_msg_rma *msg,
			   uint64_t flags)
{
	if (flags & FI_COMMIT_COMPLETE)
		return rp_rma_unmarked();
	return fi_readmsg(rp_ep_of(&fid->fid)->base, msg, flags);
}

struct fi_ops_rma rp_rma_raw_ops = {
	.size = sizeof(struct fi_ops_rma),
	.read = raw_read,
	.readv = raw_readv,
	.readmsg = raw_readmsg,
	.write = raw_write,
	.writev = raw_writev,
	.writemsg = raw_writemsg,
	.inject = raw_inject,
	.writedata = raw_writedata,
	.injectdata = raw_injectdata,
};
