/* SPDX-License-Identifier: BSD-2-Clause */
/* Code that the cases of the scale tests share. */
#ifndef RP_TEST_SCALE_H
#define RP_TEST_SCALE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "functional/pair.h"

/*
 * The main process never calls libfabric. It forks processes that communicate
 * in shared memory, and that end by themselves or with it.
 */
typedef void (*scale_fn)(void *shared, unsigned int number);
pid_t scale_fork(scale_fn fn, void *shared, unsigned int number);
/* Wait for the end of the process. Returns true if its exit status is 0. */
bool scale_join(pid_t pid);
void scale_kill(pid_t pid);
/* Allocate zeroed memory that forked processes share. */
void *scale_shared(size_t len);

double scale_now(void);
void scale_sleep_ms(unsigned int ms);
/* Resident memory of a process in bytes, and its number of open descriptors. */
size_t scale_rss(pid_t pid);
unsigned int scale_fds(pid_t pid);

/* The memory that a target registers: shared memory, or a mapped file. */
struct scale_pool {
	char *map;
	size_t len;
	struct fid_mr *mr;
};
/* Map len bytes of a sparse file. The caller deletes the file. */
char *scale_map(const char *path, size_t len);
/* Register the pool as persistent, and fill in the card (address, key). */
void scale_export(struct side *s, struct scale_pool *p, struct card *c);
/* Poll until *stop is set. */
void scale_serve(struct side *s, const atomic_bool *stop);

/* The cases. Each prints its own TAP lines. */
void scale_commits(unsigned long total, const char *file);
void scale_ranges(size_t n, const char *file);
void scale_sparse(const char *file);
void scale_mesh(unsigned int nodes, unsigned int eps);
void scale_peers(unsigned int max);

#endif
