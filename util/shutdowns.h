/* SPDX-License-Identifier: BSD-2-Clause */
/* Dirty shutdowns of the persistent memory that holds a file. */
#ifndef RP_UTIL_SHUTDOWNS_H
#define RP_UTIL_SHUTDOWNS_H

#include <stdbool.h>
#include <stdint.h>

#include "util/text.h"

#define RP_SHUTDOWNS_TEXT 64

/*
 * A DIMM counts the power losses in which it could not save all bytes that had
 * reached the persistence domain. Its flags tell of the last one only.
 */
struct rp_shutdowns {
	uint64_t count; /* sum over all DIMMs */
	uint64_t dimms; /* identifies the DIMMs; 0: no DIMM counts */
	/*
	 * Identifies the losses in flags, and the boot of the machine that
	 * shows them; 0: none.
	 */
	uint64_t failures;
	bool unflushed; /* some memory has no flush that reaches its media */
	char failure[RP_SHUTDOWNS_TEXT]; /* "nmem0: save_fail", or "" */
	char event[RP_SHUTDOWNS_TEXT];	 /* a DIMM with a health event, or "" */
};

/*
 * Examine the DIMMs below a file: of all nd regions whose devices hold it, even
 * below dm and md. root: NULL, or the folder in place of /. Returns 0, or
 * -EMFILE with the reason in err.
 */
int rp_shutdowns_find(const char *root, const char *path,
		      struct rp_shutdowns *out, char *err);

/*
 * May a pool have lost acknowledged bytes? then: what its header has; now: what
 * was found. clean: it was closed, so its bytes were flushed to the media, if
 * the memory has such a flush.
 */
bool rp_shutdowns_lost(const struct rp_shutdowns *then,
		       const struct rp_shutdowns *now, bool clean);
/* Returns 0, or -ENOTRECOVERABLE with the loss and the remedy in err. */
int rp_shutdowns_check(const char *path, const struct rp_shutdowns *then,
		       const struct rp_shutdowns *now, bool clean, char *err);

#endif
