// SPDX-License-Identifier: BSD-2-Clause
/* Remote writes and reads of domains whose keys the application makes. */
#include <stdbool.h>

#include "rpmem/rpmem.h"

static struct rp_ep *ep_of(struct fid_ep *fid)
{
	return rp_container_of(fid, struct rp_ep, fid);
}

/*
 * Keys that the application chose say nothing about the memory behind them, so
 * there is nothing to look for in them, and no commit.
 */
int rp_rma_unmarked(void)
{
	RP_WARN(EP_DATA, "FI_COMMIT_COMPLETE needs keys that ofi_rpmem made: "
			 "put FI_RMA_PMEM into the caps and FI_MR_PROV_KEY "
			 "into the mr_mode of the hints, on both sides\n");
	return -FI_EKEYREJECTED;
}

static ssize_t raw_writemsg(struct fid_ep *fid, const struct fi_msg_rma *msg,
			    uint64_t flags)
{
	struct rp_ep *ep = ep_of(fid);
	struct fi_msg_rma m = *msg;

	if (flags & RP_OUR_FLAGS)
		return rp_rma_unmarked();
	m.addr = rp_av_to_base(ep->av, msg->addr);
	return fi_writemsg(ep->base, &m, flags);
}

static ssize_t raw_write(struct fid_ep *fid, const void *buf, size_t len,
			 void *desc, fi_addr_t dest, uint64_t addr,
			 uint64_t key, void *context)
{
	struct rp_ep *ep = ep_of(fid);

	if (rp_ep_commits(ep))
		return rp_rma_unmarked();
	return fi_write(ep->base, buf, len, desc, rp_av_to_base(ep->av, dest),
			addr, key, context);
}

static ssize_t raw_writev(struct fid_ep *fid, const struct iovec *iov,
			  void **desc, size_t count, fi_addr_t dest,
			  uint64_t addr, uint64_t key, void *context)
{
	struct rp_ep *ep = ep_of(fid);

	if (rp_ep_commits(ep))
		return rp_rma_unmarked();
	return fi_writev(ep->base, iov, desc, count,
			 rp_av_to_base(ep->av, dest), addr, key, context);
}

static ssize_t raw_writedata(struct fid_ep *fid, const void *buf, size_t len,
			     void *desc, uint64_t data, fi_addr_t dest,
			     uint64_t addr, uint64_t key, void *context)
{
	struct rp_ep *ep = ep_of(fid);

	if (rp_ep_commits(ep))
		return rp_rma_unmarked();
	return fi_writedata(ep->base, buf, len, desc, data,
			    rp_av_to_base(ep->av, dest), addr, key, context);
}

static ssize_t raw_inject(struct fid_ep *fid, const void *buf, size_t len,
			  fi_addr_t dest, uint64_t addr, uint64_t key)
{
	struct rp_ep *ep = ep_of(fid);

	return fi_inject_write(ep->base, buf, len, rp_av_to_base(ep->av, dest),
			       addr, key);
}

static ssize_t raw_injectdata(struct fid_ep *fid, const void *buf, size_t len,
			      uint64_t data, fi_addr_t dest, uint64_t addr,
			      uint64_t key)
{
	struct rp_ep *ep = ep_of(fid);

	return fi_inject_writedata(ep->base, buf, len, data,
				   rp_av_to_base(ep->av, dest), addr, key);
}

static ssize_t raw_read(struct fid_ep *fid, void *buf, size_t len, void *desc,
			fi_addr_t src, uint64_t addr, uint64_t key,
			void *context)
{
	struct rp_ep *ep = ep_of(fid);

	return fi_read(ep->base, buf, len, desc, rp_av_to_base(ep->av, src),
		       addr, key, context);
}

static ssize_t raw_readv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t src,
			 uint64_t addr, uint64_t key, void *context)
{
	struct rp_ep *ep = ep_of(fid);

	return fi_readv(ep->base, iov, desc, count, rp_av_to_base(ep->av, src),
			addr, key, context);
}

static ssize_t raw_readmsg(struct fid_ep *fid, const struct fi_msg_rma *msg,
			   uint64_t flags)
{
	struct rp_ep *ep = ep_of(fid);
	struct fi_msg_rma m = *msg;

	if (flags & RP_OUR_FLAGS)
		return rp_rma_unmarked();
	m.addr = rp_av_to_base(ep->av, msg->addr);
	return fi_readmsg(ep->base, &m, flags);
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
