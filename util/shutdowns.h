/* SPDX-License-Identifier: BSD-2-Clause */
/* Dirty shutdowns of the persistent memory that a file lies on. */
#ifndef RP_UTIL_SHUTDOWNS_H
#define RP_UTIL_SHUTDOWNS_H

#include <stdint.h>

#include "util/text.h"

/*
 * A DIMM counts the times that it lost power before the bytes which had reached
 * the persistence domain were saved.
 */
struct rp_shutdowns {
	uint64_t count; /* sum of all DIMMs */
	uint64_t dimms; /* identifies them; 0: none of them counts */
};

/*
 * Counts of the DIMMs below a file: those of all nd regions whose devices hold
 * it, below dm and md too. 0, or -EMFILE with the reason in err.
 */
int rp_shutdowns_find(const char *path, struct rp_shutdowns *out, char *err);

#endif
