// SPDX-License-Identifier: BSD-2-Clause
/* Passive endpoints of the base, each with the fi_info that opened it. */
#include <stdlib.h>

#include "rpmem/cm.h"

static struct rp_pep *pep_of(struct fid *fid)
{
	return rp_container_of(fid, struct rp_pep, fid.fid);
}

static int pep_close(struct fid *fid)
{
	struct rp_pep *pep = pep_of(fid);
	int ret = fi_close(&pep->base->fid);

	if (ret)
		return ret;
	rp_eq_del_fid_pair(&pep->fid_pair);
	fi_freeinfo(pep->info);
	fi_freeinfo(pep->base_info);
	free(pep);
	return 0;
}

static int pep_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	struct fid *base = rp_fid_base(fid);

	return base->ops->bind(base, bfid, flags);
}

static struct fi_ops pep_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = pep_close,
	.bind = pep_bind,
	.control = rp_base_control,
	.ops_open = rp_no_ops_open,
};

fid_t rp_pep_to_base(fid_t handle)
{
	return handle && handle->fclass == FI_CLASS_PEP &&
			       handle->ops == &pep_fid_ops
		       ? &pep_of(handle)->base->fid
		       : handle;
}

int rp_pep_open(struct fid_fabric *fabric, struct fi_info *info,
		struct fid_pep **out, void *context)
{
	struct rp_fabric *fab = rp_container_of(fabric, struct rp_fabric, fid);
	struct rp_pep *pep = calloc(1, sizeof(*pep));
	int ret = -FI_ENOMEM;

	if (!pep)
		return ret;
	pep->info = fi_dupinfo(info);
	pep->base_info = rp_info_to_base(info, FI_EP_MSG, fab->base_name);
	if (!pep->info || !pep->base_info)
		goto free;
	pep->info->handle = NULL;
	pep->base_info->handle = info->handle;
	pep->base_info->fabric_attr->fabric = fab->direct;
	ret = fi_passive_ep(fab->direct, pep->base_info, &pep->base, context);
	if (ret)
		goto free;
	pep->fid.fid.fclass = FI_CLASS_PEP;
	pep->fid.fid.context = context;
	pep->fid.fid.ops = &pep_fid_ops;
	pep->fid.ops = &rp_ep_ops;
	pep->fid.cm = &rp_cm_ops;
	rp_eq_add_fid_pair(&pep->fid_pair, &pep->base->fid, &pep->fid.fid);
	*out = &pep->fid;
	return 0;
free:
	fi_freeinfo(pep->info);
	fi_freeinfo(pep->base_info);
	free(pep);
	return ret;
}
