// SPDX-License-Identifier: BSD-2-Clause
/* Shared receive contexts of the base, bound to ofi_rpmem's queues. */
#include <stdlib.h>

#include "rpmem/rpmem.h"

static int srx_close(struct fid *fid)
{
	struct rp_ep *srx = rp_ep_of(fid);
	int ret = fi_close(&srx->base->fid);

	if (!ret)
		rp_ep_release(srx);
	return ret;
}

static int srx_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	struct rp_ep *srx = rp_ep_of(fid);
	struct rp_cq *cq = rp_container_of(bfid, struct rp_cq, fid.fid);
	int ret;

	if (!rp_fid_is_cq(bfid))
		return -FI_ENOSYS;
	if (srx->rx_cq)
		return -FI_EINVAL;
	ret = fi_ep_bind(srx->base, &cq->base->fid, flags);
	if (ret)
		return ret;
	srx->rx_cq = cq;
	atomic_fetch_add(&cq->refs, 1);
	return 0;
}

static struct fi_ops srx_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = srx_close,
	.bind = srx_bind,
	.control = rp_base_control,
	.ops_open = rp_no_ops_open,
};

int rp_srx_open(struct fid_domain *domain, struct fi_rx_attr *attr,
		struct fid_ep **out, void *context)
{
	struct rp_dom *dom = rp_container_of(domain, struct rp_dom, fid);
	/* An rp_ep, so that endpoints' calls work on it; in no list. */
	struct rp_ep *srx = calloc(1, sizeof(*srx));
	int ret;

	if (!srx)
		return -FI_ENOMEM;
	ret = attr ? rp_ep_check_msg_flags(attr->op_flags) : 0;
	if (!ret)
		ret = fi_srx_context(dom->base, attr, &srx->base, context);
	if (ret) {
		free(srx);
		return ret;
	}
	srx->dom = dom;
	srx->fid.fid.fclass = FI_CLASS_SRX_CTX;
	srx->fid.fid.context = context;
	srx->fid.fid.ops = &srx_fid_ops;
	srx->fid.ops = &rp_ep_ops;
	srx->fid.msg = &rp_msg_ops;
	srx->fid.tagged = srx->base->tagged ? &rp_tagged_ops : NULL;
	atomic_fetch_add(&dom->refs, 1);
	*out = &srx->fid;
	return 0;
}
