/* SPDX-License-Identifier: BSD-2-Clause */
/* Classes and levels of rdma/fi_ext_rpmem.h as values of core, and back. */
#ifndef RP_EXT_H
#define RP_EXT_H

#include <errno.h>

#include <rdma/fi_ext_rpmem.h>

#include "core/caps.h"
#include "core/wire.h"

/* A class (unset for DEFAULT), or -EINVAL. */
static inline int rp_class_decode(enum fi_rpmem_class c, enum rp_class unset)
{
	switch (c) {
	case FI_RPMEM_CLASS_DEFAULT:
		return unset;
	case FI_RPMEM_CLASS_NONE:
		return RP_CLASS_NONE;
	case FI_RPMEM_CLASS_PROCESS:
		return RP_CLASS_PROCESS;
	case FI_RPMEM_CLASS_POWER:
		return RP_CLASS_POWER;
	}
	return -EINVAL;
}

static inline enum fi_rpmem_class rp_class_encode(enum rp_class c)
{
	switch (c) {
	case RP_CLASS_POWER:
		return FI_RPMEM_CLASS_POWER;
	case RP_CLASS_PROCESS:
		return FI_RPMEM_CLASS_PROCESS;
	case RP_CLASS_NONE:
		break;
	}
	return FI_RPMEM_CLASS_NONE;
}

/* A level, or -EINVAL. */
static inline int rp_level_decode(enum fi_rpmem_level level)
{
	switch (level) {
	case FI_RPMEM_DURABLE:
		return RP_LEVEL_DURABLE;
	case FI_RPMEM_VISIBLE:
		return RP_LEVEL_VISIBLE;
	}
	return -EINVAL;
}

#endif
