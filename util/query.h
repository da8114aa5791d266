/* SPDX-License-Identifier: BSD-2-Clause */
/* Asks a target what a commit of the required class is, and what it reaches. */
#ifndef RP_UTIL_QUERY_H
#define RP_UTIL_QUERY_H

#include <rdma/fi_ext_rpmem.h>

#include "core/caps.h"

/*
 * fi_rpmem_query_sync(), and in *reached the class that commits of the required
 * one reach by attr->method. attr->region_class may be stronger: a region can
 * be of class power by msync, while a commit that requires less is carried out
 * by delivery. Where commits are refused (attr->prov_errno) it is the region's.
 */
int rp_query(struct fi_rpmem_ops *ops, struct fid_ep *ep, fi_addr_t peer,
	     uint64_t key, enum fi_rpmem_class required,
	     struct fi_rpmem_attr *attr, enum rp_class *reached);

#endif
