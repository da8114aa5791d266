// SPDX-License-Identifier: BSD-2-Clause
/* Shared receive contexts of connected endpoints: the base's own, as nothing of
 * ours is received there; but the queue that is bound to one is ours. */
#include <stdlib.h>

#include "rpmem/cm.h"

struct rp_srx {
	struct fi_ops fid_ops; /* the base's but for close and bind */
	const struct fi_ops *base_fid_ops;
	struct rp_cq *cq;
};

static struct rp_srx *srx_of(const struct fid *fid)
{
	return rp_container_of((struct fi_ops *)fid->ops, struct rp_srx,
			       fid_ops);
}

static int srx_close(struct fid *fid)
{
	struct rp_srx *srx = srx_of(fid);
	int ret = srx->base_fid_ops->close(fid);

	if (ret)
		return ret;
	if (srx->cq)
		atomic_fetch_sub(&srx->cq->refs, 1);
	free(srx);
	return 0;
}

static int srx_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	struct rp_srx *srx = srx_of(fid);
	struct rp_cq *cq;
	int ret;

	if (!rp_cq_is_ours(bfid))
		return -FI_ENOSYS;
	if (srx->cq)
		return -FI_EINVAL;
	cq = rp_container_of(bfid, struct rp_cq, fid.fid);
	ret = srx->base_fid_ops->bind(fid, &cq->base->fid, flags);
	if (ret)
		return ret;
	srx->cq = cq;
	atomic_fetch_add(&cq->refs, 1);
	return 0;
}

int rp_srx_open(struct rp_dom *dom, struct fi_rx_attr *attr,
		struct fid_ep **out, void *context)
{
	struct rp_srx *srx = calloc(1, sizeof(*srx));
	int ret;

	if (!srx)
		return -FI_ENOMEM;
	ret = fi_srx_context(dom->base, attr, out, context);
	if (ret) {
		free(srx);
		return ret;
	}
	srx->base_fid_ops = (*out)->fid.ops;
	srx->fid_ops = *(*out)->fid.ops;
	srx->fid_ops.size = sizeof(srx->fid_ops);
	srx->fid_ops.close = srx_close;
	srx->fid_ops.bind = srx_bind;
	(*out)->fid.ops = &srx->fid_ops;
	return 0;
}
