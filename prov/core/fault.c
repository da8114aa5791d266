// SPDX-License-Identifier: BSD-2-Clause
/* The fault points of a test build. */
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"

#ifdef RP_FAULTS
bool rp_fault_on(const char *name)
{
	const char *list = getenv("RPMEM_FAULT");
	size_t len = strlen(name);

	for (const char *p = list; p && *p; p += strcspn(p, ",") + !!strchr(p, ','))
		if (!strncmp(p, name, len) && (!p[len] || p[len] == ','))
			return true;
	return false;
}
#endif
