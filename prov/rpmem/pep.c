// SPDX-License-Identifier: BSD-2-Clause
/* Passive endpoints: the base's own, with the info they were opened with. */
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
	rp_eq_del_name(&pep->name);
	fi_freeinfo(pep->info);
	fi_freeinfo(pep->base_info);
	free(pep);
	return 0;
}

static int pep_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	return pep_of(fid)->base->fid.ops->bind(&pep_of(fid)->base->fid, bfid,
						flags);
}

static int pep_control(struct fid *fid, int command, void *arg)
{
	return fi_control(&pep_of(fid)->base->fid, command, arg);
}

static struct fi_ops pep_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = pep_close,
	.bind = pep_bind,
	.control = pep_control,
	.ops_open = rp_no_ops_open,
};

static ssize_t pep_cancel(fid_t fid, void *context)
{
	return fi_cancel(&pep_of(fid)->base->fid, context);
}

static int pep_getopt(fid_t fid, int level, int optname, void *optval,
		      size_t *optlen)
{
	return fi_getopt(&pep_of(fid)->base->fid, level, optname, optval,
			 optlen);
}

static int pep_setopt(fid_t fid, int level, int optname, const void *optval,
		      size_t optlen)
{
	return fi_setopt(&pep_of(fid)->base->fid, level, optname, optval,
			 optlen);
}

/* The other calls of this table need a struct fid_ep. */
static struct fi_ops_ep pep_ops = {
	.size = offsetof(struct fi_ops_ep, tx_ctx),
	.cancel = pep_cancel,
	.getopt = pep_getopt,
	.setopt = pep_setopt,
};

static int pep_setname(fid_t fid, void *addr, size_t addrlen)
{
	return fi_setname(&pep_of(fid)->base->fid, addr, addrlen);
}

static int pep_getname(fid_t fid, void *addr, size_t *addrlen)
{
	return fi_getname(&pep_of(fid)->base->fid, addr, addrlen);
}

static int pep_listen(struct fid_pep *fid)
{
	return fi_listen(pep_of(&fid->fid)->base);
}

static int pep_reject(struct fid_pep *fid, fid_t handle, const void *param,
		      size_t paramlen)
{
	return fi_reject(pep_of(&fid->fid)->base, handle, param, paramlen);
}

static int no_getpeer(struct fid_ep *fid, void *addr, size_t *addrlen)
{
	return -FI_ENOSYS;
}

static int no_connect(struct fid_ep *fid, const void *addr, const void *param,
		      size_t paramlen)
{
	return -FI_ENOSYS;
}

static int no_accept(struct fid_ep *fid, const void *param, size_t paramlen)
{
	return -FI_ENOSYS;
}

static int no_shutdown(struct fid_ep *fid, uint64_t flags)
{
	return -FI_ENOSYS;
}

static struct fi_ops_cm pep_cm_ops = {
	.size = offsetof(struct fi_ops_cm, join),
	.setname = pep_setname,
	.getname = pep_getname,
	.getpeer = no_getpeer,
	.connect = no_connect,
	.listen = pep_listen,
	.accept = no_accept,
	.reject = pep_reject,
	.shutdown = no_shutdown,
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
	pep->base_info = rp_info_msg_to_base(info, fab->base_name);
	if (!pep->info || !pep->base_info)
		goto free;
	pep->info->handle = NULL;
	pep->base_info->fabric_attr->fabric = fab->direct;
	ret = fi_passive_ep(fab->direct, pep->base_info, &pep->base, context);
	if (ret)
		goto free;
	pep->fid.fid.fclass = FI_CLASS_PEP;
	pep->fid.fid.context = context;
	pep->fid.fid.ops = &pep_fid_ops;
	pep->fid.ops = &pep_ops;
	pep->fid.cm = &pep_cm_ops;
	rp_eq_add_name(&pep->name, &pep->base->fid, &pep->fid.fid);
	*out = &pep->fid;
	return 0;
free:
	fi_freeinfo(pep->info);
	fi_freeinfo(pep->base_info);
	free(pep);
	return ret;
}
