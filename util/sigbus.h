/* SPDX-License-Identifier: BSD-2-Clause */
/* SIGBUS handler for a store past the end of a truncated pool file. */
#ifndef RP_UTIL_SIGBUS_H
#define RP_UTIL_SIGBUS_H

#include "util/export.h"

/*
 * Handle SIGBUS: name the pool, and end the process. Call it after libfabric is
 * loaded, whose providers may install their own handler.
 */
void rp_sigbus_watch(const struct rp_exports *x);

#endif
