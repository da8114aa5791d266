// SPDX-License-Identifier: BSD-2-Clause
/* RMA: the calls that write and read remote memory. */
#include "pmsim/pmsim_int.h"

static ssize_t write_rma(struct fid_ep *fid, const struct iovec *iov,
			 size_t count, fi_addr_t dest, uint64_t addr,
			 uint64_t key, const uint64_t *data, void *context,
			 uint64_t flags, bool silent)
{
	struct fi_rma_iov rma = {
		.addr = addr,
		.len = ps_iov_len(iov, count),
		.key = key,
	};
	struct ps_tx tx = {
		.type = PMSIM_WRITE,
		.event = PS_EV_WRITE,
		.dest = dest,
		.iov = iov,
		.niov = count,
		.rma = &rma,
		.nrma = 1,
		.data = data ? *data : 0,
		.context = context,
		.flags = flags | (data ? FI_REMOTE_CQ_DATA : 0),
		.cq_flags = FI_RMA | FI_WRITE,
		.silent = silent,
	};

	return ps_tx_post(ps_ep_of(fid), &tx);
}

static ssize_t rma_writemsg(struct fid_ep *fid, const struct fi_msg_rma *msg,
			    uint64_t flags)
{
	struct ps_tx tx = {
		.type = PMSIM_WRITE,
		.event = PS_EV_WRITE,
		.dest = msg->addr,
		.iov = msg->msg_iov,
		.niov = msg->iov_count,
		.rma = msg->rma_iov,
		.nrma = msg->rma_iov_count,
		.data = msg->data,
		.context = msg->context,
		.flags = flags,
		.cq_flags = FI_RMA | FI_WRITE,
	};

	if (!msg->rma_iov_count)
		return -FI_EINVAL;
	return ps_tx_post(ps_ep_of(fid), &tx);
}

static ssize_t rma_writev(struct fid_ep *fid, const struct iovec *iov,
			  void **desc, size_t count, fi_addr_t dest,
			  uint64_t addr, uint64_t key, void *context)
{
	return write_rma(fid, iov, count, dest, addr, key, NULL, context,
			 ps_ep_of(fid)->tx_flags, false);
}

static ssize_t rma_write(struct fid_ep *fid, const void *buf, size_t len,
			 void *desc, fi_addr_t dest, uint64_t addr,
			 uint64_t key, void *context)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};

	return rma_writev(fid, &iov, &desc, 1, dest, addr, key, context);
}

static ssize_t rma_inject(struct fid_ep *fid, const void *buf, size_t len,
			  fi_addr_t dest, uint64_t addr, uint64_t key)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};

	return write_rma(fid, &iov, 1, dest, addr, key, NULL, NULL, FI_INJECT,
			 true);
}

static ssize_t rma_writedata(struct fid_ep *fid, const void *buf, size_t len,
			     void *desc, uint64_t data, fi_addr_t dest,
			     uint64_t addr, uint64_t key, void *context)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};

	return write_rma(fid, &iov, 1, dest, addr, key, &data, context,
			 ps_ep_of(fid)->tx_flags, false);
}

static ssize_t rma_injectdata(struct fid_ep *fid, const void *buf, size_t len,
			      uint64_t data, fi_addr_t dest, uint64_t addr,
			      uint64_t key)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = len};

	return write_rma(fid, &iov, 1, dest, addr, key, &data, NULL, FI_INJECT,
			 true);
}

static ssize_t rma_readmsg(struct fid_ep *fid, const struct fi_msg_rma *msg,
			   uint64_t flags)
{
	struct ps_tx tx = {
		.type = PMSIM_READ,
		.event = PS_EV_READ,
		.dest = msg->addr,
		.iov = msg->msg_iov,
		.niov = msg->iov_count,
		.rma = msg->rma_iov,
		.nrma = msg->rma_iov_count,
		.context = msg->context,
		.flags = flags,
		.cq_flags = FI_RMA | FI_READ,
	};

	if (!msg->rma_iov_count || (flags & (FI_INJECT | FI_REMOTE_CQ_DATA)))
		return -FI_EINVAL;
	return ps_tx_post(ps_ep_of(fid), &tx);
}

static ssize_t rma_readv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t src,
			 uint64_t addr, uint64_t key, void *context)
{
	struct fi_rma_iov rma = {
		.addr = addr,
		.len = ps_iov_len(iov, count),
		.key = key,
	};
	struct fi_msg_rma msg = {
		.msg_iov = iov,
		.iov_count = count,
		.addr = src,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = context,
	};

	return rma_readmsg(fid, &msg, ps_ep_of(fid)->tx_flags & ~FI_INJECT);
}

static ssize_t rma_read(struct fid_ep *fid, void *buf, size_t len, void *desc,
			fi_addr_t src, uint64_t addr, uint64_t key,
			void *context)
{
	struct iovec iov = {.iov_base = buf, .iov_len = len};

	return rma_readv(fid, &iov, &desc, 1, src, addr, key, context);
}

struct fi_ops_rma ps_rma_ops = {
	.size = sizeof(struct fi_ops_rma),
	.read = rma_read,
	.readv = rma_readv,
	.readmsg = rma_readmsg,
	.write = rma_write,
	.writev = rma_writev,
	.writemsg = rma_writemsg,
	.inject = rma_inject,
	.writedata = rma_writedata,
	.injectdata = rma_injectdata,
};
