/* SPDX-License-Identifier: BSD-2-Clause */
/* Dirty shutdowns of the persistent memory that holds a file. */
#ifndef RP_UTIL_DIRTY_SHUTDOWNS_H
#define RP_UTIL_DIRTY_SHUTDOWNS_H

#include <stdbool.h>
#include <stdint.h>

#include "util/text.h"

#define RP_SHUTDOWNS_TEXT 64

/*
 * A DIMM counts its dirty shutdowns: power losses in which it could not save
 * all bytes of the persistence domain. Its flags describe only the last power
 * loss.
 */
struct rp_shutdowns {
	uint64_t count; /* sum over all DIMMs */
	uint64_t dimms; /* identifies the DIMMs; 0: no DIMM counts */
	/*
	 * Hash of the losses in flags and of the boot in which they were read;
	 * 0: the flags show no loss.
	 */
	uint64_t failures;
	bool unflushed; /* some memory has no flush that reaches its media */
	char failure[RP_SHUTDOWNS_TEXT]; /* "nmem0: save_fail", or "" */
	char event[RP_SHUTDOWNS_TEXT];	 /* a DIMM with a health event, or "" */
};

/*
 * Examine the DIMMs of all nd regions whose devices hold a file, even below dm
 * and md. root: NULL, or a folder with sys and proc, for tests. Returns 0, or
 * -EMFILE with the reason in err.
 */
int rp_shutdowns_find(const char *root, const char *path,
		      struct rp_shutdowns *out, char *err);

/*
 * Whether a pool may have lost acknowledged bytes. then: stored in its header;
 * now: found by rp_shutdowns_find(). clean: it was closed, and its bytes were
 * flushed to the media, if the memory has such a flush.
 */
bool rp_shutdowns_lost(const struct rp_shutdowns *then,
		       const struct rp_shutdowns *now, bool clean);
/* Returns 0, or -ENOTRECOVERABLE with the loss and the remedy in err. */
int rp_shutdowns_check(const char *path, const struct rp_shutdowns *then,
		       const struct rp_shutdowns *now, bool clean, char *err);

#endif
