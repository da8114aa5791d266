/* SPDX-License-Identifier: BSD-2-Clause */
/* The handler of a store behind the end of a pool file that was cut short. */
#ifndef RP_UTIL_LOST_PAGE_H
#define RP_UTIL_LOST_PAGE_H

#include "util/export.h"

/*
 * Handle SIGBUS: name the pool and end the process. Called after libfabric is
 * loaded, whose providers may have a handler of their own.
 */
void rp_lost_page_watch(const struct rp_exports *x);

#endif
