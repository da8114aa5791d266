// SPDX-License-Identifier: BSD-2-Clause
/* QUERY of the commit method, and of the class that the method reaches. */
#include "config.h"

#include "rpmem/ext.h"
#include "util/query_class.h"

int rp_query_class(struct fi_rpmem_ops *ops, struct fid_ep *ep, fi_addr_t peer,
		   uint64_t key, enum fi_rpmem_class required,
		   struct fi_rpmem_attr *attr, enum rp_class *reached)
{
	struct fi_rpmem_attr stronger;
	enum fi_rpmem_class encoded;
	int class, ret;

	ret = fi_rpmem_query_sync(ops, ep, peer, key, required, attr);
	if (ret)
		return ret;
	class = rp_class_decode(attr->region_class, RP_CLASS_NONE);
	/* Find the strongest class whose commits use the same method, too. */
	for (; !attr->prov_errno && class > RP_CLASS_NONE; class --) {
		encoded = rp_class_encode((enum rp_class) class);
		if (encoded == required)
			break;
		stronger = (struct fi_rpmem_attr){.size = sizeof(stronger)};
		ret = fi_rpmem_query_sync(ops, ep, peer, key, encoded,
					  &stronger);
		if (ret)
			return ret;
		if (!stronger.prov_errno && stronger.method == attr->method)
			break;
	}
	*reached = (enum rp_class) class;
	return 0;
}
