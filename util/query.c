// SPDX-License-Identifier: BSD-2-Clause
/* QUERY of the commit method, and of the class that it reaches. */
#include "config.h"

#include "util/query.h"

int rp_query(struct fid_ep *ep, fi_addr_t peer, uint64_t key,
	     enum fi_rpmem_class required, struct fi_rpmem_attr *attr,
	     enum fi_rpmem_class *reached)
{
	struct fi_rpmem_attr stronger;
	int class, ret;

	ret = fi_rpmem_query(ep, peer, key, required, attr);
	if (ret)
		return ret;
	class = attr->region_class;
	/* The method reaches the strongest class whose commits use it too. */
	for (; !attr->status && class > FI_RPMEM_CLASS_NONE; class --) {
		if (class == (int)required)
			break;
		stronger = (struct fi_rpmem_attr){.size = sizeof(stronger)};
		ret = fi_rpmem_query(ep, peer, key, (enum fi_rpmem_class) class,
				     &stronger);
		if (ret)
			return ret;
		if (!stronger.status && stronger.method == attr->method)
			break;
	}
	*reached = (enum fi_rpmem_class) class;
	return 0;
}
