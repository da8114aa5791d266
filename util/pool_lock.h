/* SPDX-License-Identifier: BSD-2-Clause */
/* The lock of a pool file. */
#ifndef RP_UTIL_POOL_LOCK_H
#define RP_UTIL_POOL_LOCK_H

/*
 * Lock an open pool file until it is closed. Returns 0, -EBUSY with the process
 * that has the lock in err, or another -errno.
 */
int rp_pool_lock(int fd, const char *path, char *err);

#endif
