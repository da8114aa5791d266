/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared secret of fi_rpmemd and its clients, read from a file. */
#ifndef RP_UTIL_SECRET_H
#define RP_UTIL_SECRET_H

#include <stddef.h>
#include <stdint.h>

#include "util/text.h"

#define RP_SECRET_MIN 16
#define RP_SECRET_MAX 1024

struct rp_secret {
	uint8_t bytes[RP_SECRET_MAX];
	size_t len;
};

/*
 * Read a secret: the bytes of the file without trailing line ends. The file
 * must belong to this user or root; its group may only read it, other users may
 * not. Returns 0, or -errno and the remedy in err: -EPERM (rights), -EINVAL
 * (length, or no regular file).
 */
int rp_secret_load(const char *path, struct rp_secret *s, char *err);
/* Overwrite a secret in memory. */
void rp_secret_wipe(struct rp_secret *s);

#endif
