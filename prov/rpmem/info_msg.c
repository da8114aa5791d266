// SPDX-License-Identifier: BSD-2-Clause
/* Derive FI_EP_MSG entries of ofi_rpmem from those of the base. */
#include <stdlib.h>

#include "rpmem/cm.h"

static bool makes_keys(const struct fi_info *info)
{
	return info->ep_attr && info->ep_attr->type == FI_EP_MSG &&
	       info->domain_attr &&
	       (info->domain_attr->mr_mode & FI_MR_PROV_KEY);
}

bool rp_info_is_msg(const struct fi_info *info, const char *base)
{
	return makes_keys(info) && rp_info_has_persistent_keys(info);
}

/* List the base's FI_EP_MSG entries for a program's hints. */
static int base_list(uint32_t version, const char *node, const char *service,
		     uint64_t flags, const struct fi_info *hints,
		     const char *base, struct fi_info **list)
{
	struct fi_info *b = rp_info_to_base(hints, FI_EP_MSG, base);
	int ret;

	if (!b)
		return -FI_ENOMEM;
	ret = rp_info_list_base(version, node, service, flags, b, base,
				FI_EP_MSG, list);
	fi_freeinfo(b);
	return ret;
}

int rp_info_list_msg(uint32_t version, const char *node, const char *service,
		     uint64_t flags, const struct fi_info *hints,
		     const char *base, struct fi_info **list)
{
	struct fi_info *i, **link;
	int ret;

	*list = NULL;
	if (!hints || !(hints->caps & FI_RMA) || !makes_keys(hints) ||
	    !rp_info_allows_persistent_keys(version, hints))
		return -FI_ENODATA;
	ret = base_list(version, node, service, flags, hints, base, list);
	for (link = list; !ret && (i = *link);) {
		if ((i->caps & FI_RMA) &&
		    !rp_info_add_persistent_keys(hints, i)) {
			rp_info_set_common(hints, i);
			link = &i->next;
		} else {
			rp_info_unlink(link);
		}
	}
	return ret ? ret : *list ? 0 : -FI_ENODATA;
}

int rp_info_find_base_msg(const struct rp_fabric *fab,
			  const struct fi_info *info, struct fi_info **out)
{
	struct fi_info *hints = fi_dupinfo(info), *list = NULL;
	int ret = -FI_ENOMEM;

	*out = NULL;
	if (!hints)
		return ret;
	/* A connection request's handle is for the endpoint. */
	hints->handle = NULL;
	free(hints->dest_addr);
	hints->dest_addr = NULL;
	hints->dest_addrlen = 0;
	ret = base_list(fab->version, NULL, NULL, 0, hints, fab->base_name,
			&list);
	fi_freeinfo(hints);
	if (!ret)
		ret = rp_info_find_domain(list, info, out);
	fi_freeinfo(list);
	return ret;
}
