/* SPDX-License-Identifier: BSD-2-Clause */
/* Convert failure classes and levels between fi_ext_rpmem.h and prov/core. */
#ifndef RP_EXT_H
#define RP_EXT_H

#include <errno.h>

#include <rdma/fi_ext_rpmem.h>

#include "core/caps.h"
#include "core/wire.h"

_Static_assert(FI_RPMEM_CLASS_DEFAULT == 0 &&
		       FI_RPMEM_CLASS_NONE == RP_CLASS_NONE + 1 &&
		       FI_RPMEM_CLASS_PROCESS == RP_CLASS_PROCESS + 1 &&
		       FI_RPMEM_CLASS_POWER == RP_CLASS_POWER + 1,
	       "a program's classes are core's, behind DEFAULT");

/* Convert to enum rp_class; DEFAULT becomes unset. -EINVAL: no such class. */
static inline int rp_class_decode(enum fi_rpmem_class c, enum rp_class unset)
{
	if (c == FI_RPMEM_CLASS_DEFAULT)
		return unset;
	return (unsigned int)c <= FI_RPMEM_CLASS_POWER ? (int)c - 1 : -EINVAL;
}

static inline enum fi_rpmem_class rp_class_encode(enum rp_class c)
{
	return (enum fi_rpmem_class)(c + 1);
}

/* Convert to enum rp_level, or -EINVAL. */
static inline int rp_level_decode(enum fi_rpmem_level level)
{
	if (level == FI_RPMEM_DURABLE)
		return RP_LEVEL_DURABLE;
	return level == FI_RPMEM_VISIBLE ? RP_LEVEL_VISIBLE : -EINVAL;
}

#endif
