// SPDX-License-Identifier: BSD-2-Clause
/* Passive endpoints: the base's own, that remember what they were opened for.
 */
#include <stdlib.h>

#include "rpmem/cm.h"

struct rp_pep {
	struct fi_ops fid_ops; /* the base's but for close */
	const struct fi_ops *base_fid_ops;
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

const struct fi_info *rp_pep_info(const struct fid *fid)
{
	return fid->fclass == FI_CLASS_PEP && fid->ops->close == pep_close
		       ? pep_of(fid)->info
		       : NULL;
}

int rp_pep_hook(struct fid_pep *fid, const struct fi_info *info)
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
	return 0;
}
