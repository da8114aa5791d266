/* SPDX-License-Identifier: BSD-2-Clause */
/* The names of librpmem_pool's failure classes in options and files. */
#ifndef RP_UTIL_POOL_CLASS_H
#define RP_UTIL_POOL_CLASS_H

#include <stdbool.h>
#include <strings.h>

#include "rpmem_pool.h"

static inline const char *rp_pool_class_name(enum rpmem_pool_class class)
{
	static const char *const names[] = {
		[RPMEM_POOL_POWER] = "power",
		[RPMEM_POOL_PROCESS] = "process",
		[RPMEM_POOL_NONE] = "none",
	};

	return names[class];
}

/* Parse a name. Returns false, without changing *class, if it is unknown. */
static inline bool rp_pool_class_parse(const char *s,
				       enum rpmem_pool_class *class)
{
	for (unsigned int i = RPMEM_POOL_POWER; i <= RPMEM_POOL_NONE; i++)
		if (!strcasecmp(s, rp_pool_class_name(i))) {
			*class = i;
			return true;
		}
	return false;
}

#endif
