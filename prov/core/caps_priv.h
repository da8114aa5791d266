/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of caps share among themselves. */
#ifndef RP_CAPS_PRIV_H
#define RP_CAPS_PRIV_H

#include <stdint.h>
#include <stdio.h>

#include "core/caps.h"

/* The file system behind a descriptor. */
struct rp_fs {
	char name[32]; /* as mountinfo has it; "" when nothing is known */
	unsigned int major, minor; /* as the process map shows its files */
	/* Does fsync reach behind the disk's cache? Unknown in a chroot, where
	 * the mount cannot be seen. */
	enum rp_tri barriers;
};

/* Never fails: what cannot be found out stays unknown. */
void rp_caps_fs(const char *root, int fd, struct rp_fs *fs);
/* Listed with barriers on, or named by the operator. */
bool rp_caps_fs_trusted(const struct rp_fs *fs, const char *trust_fs);
/* Files of these outlive the process, not the machine. */
bool rp_caps_fs_in_memory(const char *name);

/*
 * The persistence domain of the nd region above a device ("block" or "char"
 * of /sys/dev). Unknown where there is none: stacked devices, other memory.
 */
enum rp_domain rp_caps_nd_domain(const char *root, const char *kind,
				 unsigned int major, unsigned int minor);

/* fopen for reading of root + path. */
FILE *rp_caps_open(const char *root, const char *path);

#endif
