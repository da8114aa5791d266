/* SPDX-License-Identifier: BSD-2-Clause */
/* Files that appear whole or not at all, and reads and writes in full. */
#ifndef RP_UTIL_FILE_H
#define RP_UTIL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "util/text.h"

/* A file under a temporary name, next to the path it will have. */
struct rp_tmpfile {
	int fd; /* -1: none */
	char *path;
	char *tmp;
};

/* Mode 0600. Returns 0, or -errno and a sentence in err. */
int rp_tmpfile_open(const char *path, struct rp_tmpfile *t, char *err);
/*
 * fsync it, give it its name, fsync the folder: after a return of 0 the name
 * and the bytes survive a power cut. replace: an existing file of that name
 * is replaced, otherwise -EEXIST. Closes t in every case; on failure nothing
 * is left behind.
 */
int rp_tmpfile_publish(struct rp_tmpfile *t, bool replace, char *err);
/* Throw it away. Safe after publish. */
void rp_tmpfile_discard(struct rp_tmpfile *t);

/* All len bytes; 0 or -errno. A read that meets the end: -ENODATA. */
int rp_pread_full(int fd, void *buf, size_t len, off_t off);
int rp_pwrite_full(int fd, const void *buf, size_t len, off_t off);

#endif
