/* SPDX-License-Identifier: BSD-2-Clause */
/* Properties of the whole host; names of file systems. */
#ifndef RP_HOST_FACTS_H
#define RP_HOST_FACTS_H

#include "core/caps.h"

struct rp_host {
	enum rp_domain domain; /* weakest of the nd regions; UNKNOWN: none */
	bool has_nd;	       /* there is a persistent memory region */
	bool clwb, clflushopt, clflush, movdir64b;
	uint64_t memlock; /* bytes of RLIMIT_MEMLOCK; UINT64_MAX: no limit */
};
/* root: prefix of /sys, for tests; NULL: "". Returns 0 or -errno. */
int rp_host_read(const char *root, struct rp_host *host);

/*
 * The file system of fd by its name in the mount table. Returns 0, -EBADF,
 * -ENOENT (unknown), -ENAMETOOLONG (len is too small).
 */
int rp_host_fs_name(int fd, char *name, size_t len);

#endif
