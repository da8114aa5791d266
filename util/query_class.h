/* SPDX-License-Identifier: BSD-2-Clause */
/* QUERY of the commit method, and of the class that the method reaches. */
#ifndef RP_UTIL_QUERY_CLASS_H
#define RP_UTIL_QUERY_CLASS_H

#include <rdma/fi_ext_rpmem.h>

#include "core/caps.h"

/*
 * fi_rpmem_query_sync(); *reached is the class that commits of class `required`
 * reach by attr->method. attr->region_class may be stronger: a region may reach
 * power by msync, while a commit that requires less uses delivery. If commits
 * are refused (attr->prov_errno), *reached is the class of the region.
 */
int rp_query_class(struct fi_rpmem_ops *ops, struct fid_ep *ep, fi_addr_t peer,
		   uint64_t key, enum fi_rpmem_class required,
		   struct fi_rpmem_attr *attr, enum rp_class *reached);

#endif
