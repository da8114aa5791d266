/* SPDX-License-Identifier: BSD-2-Clause */
/* Dirty shutdowns of the persistent memory that holds a file. */
#ifndef RP_UTIL_SHUTDOWNS_H
#define RP_UTIL_SHUTDOWNS_H

#include <stdint.h>

#include "util/text.h"

/*
 * A DIMM counts the power losses in which it could not save all bytes that had
 * reached the persistence domain.
 */
struct rp_shutdowns {
	uint64_t count; /* sum over all DIMMs */
	uint64_t dimms; /* identifies the DIMMs; 0: no DIMM counts */
};

/*
 * Sum the counts of the DIMMs below a file: of all nd regions whose devices
 * hold it, even below dm and md. Returns 0, or -EMFILE with the reason in err.
 */
int rp_shutdowns_find(const char *path, struct rp_shutdowns *out, char *err);

#endif
