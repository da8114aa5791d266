// SPDX-License-Identifier: BSD-2-Clause
/* Passive endpoints: the base's own, that remember what they were opened for.
 */
#include <stdlib.h>

#include "rpmem/cm.h"

struct rp_pep {
	struct fi_ops fid_ops; /* the base's but for close */
	struct fi_ops_cm cm_ops;
	struct fi_ops_ep ep_ops;
	const struct fi_ops *base_fid_ops;
	const struct fi_ops_cm *base_cm_ops;
	const struct fi_ops_ep *base_ep_ops;
	struct rp_fabric *fab;
	struct fi_info *info;
};

static struct rp_pep *pep_of(const struct fid *fid)
{
	return rp_container_of((struct fi_ops *)fid->ops, struct rp_pep,
			       fid_ops);
}

static int pep_close(struct fid *fid)
{
	struct rp_pep *pep = pep_of(fid);
	int ret = pep->base_fid_ops->close(fid);

	if (ret)
		return ret;
	fi_freeinfo(pep->info);
	free(pep);
	return 0;
}

static int pep_reject(struct fid_pep *fid, fid_t handle, const void *param,
		      size_t paramlen)
{
	struct rp_pep *pep = pep_of(&fid->fid);

	pthread_mutex_lock(&pep->fab->cm_lock);
	rp_asked_keep(pep->fab, handle, NULL);
	pthread_mutex_unlock(&pep->fab->cm_lock);
	return pep->base_cm_ops->reject(fid, handle, param, paramlen);
}

static int pep_getopt(fid_t fid, int level, int optname, void *optval,
		      size_t *optlen)
{
	int ret = pep_of(fid)->base_ep_ops->getopt(fid, level, optname, optval,
						   optlen);

	return ret ? ret : rp_cm_opt(level, optname, optval);
}

/* What comes with a connection is in part ours. */
static void hook_cards(struct rp_pep *pep, struct fid_pep *fid)
{
	pep->base_cm_ops = fid->cm;
	pep->cm_ops = *fid->cm;
	pep->cm_ops.size = sizeof(pep->cm_ops);
	pep->cm_ops.reject = pep_reject;
	fid->cm = &pep->cm_ops;
	if (!fid->ops || !fid->ops->getopt)
		return;
	pep->base_ep_ops = fid->ops;
	pep->ep_ops = *fid->ops;
	pep->ep_ops.size = sizeof(pep->ep_ops);
	pep->ep_ops.getopt = pep_getopt;
	fid->ops = &pep->ep_ops;
}

const struct fi_info *rp_pep_info(const struct fid *fid)
{
	return fid->fclass == FI_CLASS_PEP && fid->ops->close == pep_close
		       ? pep_of(fid)->info
		       : NULL;
}

int rp_pep_hook(struct rp_fabric *fab, struct fid_pep *fid,
		const struct fi_info *info)
{
	struct rp_pep *pep = calloc(1, sizeof(*pep));

	if (pep)
		pep->info = fi_dupinfo(info);
	if (!pep || !pep->info) {
		free(pep);
		return -FI_ENOMEM;
	}
	pep->info->handle = NULL;
	pep->base_fid_ops = fid->fid.ops;
	pep->fid_ops = *fid->fid.ops;
	pep->fid_ops.size = sizeof(pep->fid_ops);
	pep->fid_ops.close = pep_close;
	fid->fid.ops = &pep->fid_ops;
	pep->fab = fab;
	if (fab->cards)
		hook_cards(pep, fid);
	return 0;
}
