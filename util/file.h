/* SPDX-License-Identifier: BSD-2-Clause */
/* Files that appear complete or not at all; reads and writes of all bytes. */
#ifndef RP_UTIL_FILE_H
#define RP_UTIL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "util/text.h"

/* A file with a temporary name, in the directory of its final path. */
struct rp_tmpfile {
	int fd; /* -1: no file */
	char *path;
	char *tmp;
};

/* Create the file, mode 0600. Returns 0, or -errno and the reason in err. */
int rp_tmpfile_open(const char *path, struct rp_tmpfile *t, char *err);
/*
 * fsync the file, rename it to its path, fsync the directory: after 0, name and
 * bytes survive a power failure. replace: replace an existing file, otherwise
 * -EEXIST. Closes t in every case. After a failure no new file is left, unless
 * it has replaced another one and only the fsync of the directory failed.
 */
int rp_tmpfile_publish(struct rp_tmpfile *t, bool replace, char *err);
/* Close and remove the temporary file. Does nothing after publish. */
void rp_tmpfile_discard(struct rp_tmpfile *t);

/* Read or write all len bytes. Returns 0 or -errno; -ENODATA: end of file. */
int rp_pread_full(int fd, void *buf, size_t len, off_t off);
int rp_pwrite_full(int fd, const void *buf, size_t len, off_t off);

#endif
