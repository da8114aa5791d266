/* SPDX-License-Identifier: BSD-2-Clause */
/* Many commits, ranges, bytes and peers at once: code shared by the cases. */
#ifndef RP_TEST_SCALE_H
#define RP_TEST_SCALE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "functional/pair.h"

/*
 * Processes are forked from a driver that never calls libfabric, and
 * communicate in shared memory. A process ends by itself or with the driver.
 */
typedef void (*scale_fn)(void *shared, unsigned int number);
pid_t scale_fork(scale_fn fn, void *shared, unsigned int number);
/* Wait for the end of the process. True: it succeeded. */
bool scale_join(pid_t pid);
void scale_kill(pid_t pid);
/* Allocate zeroed memory that forked processes share. */
void *scale_shared(size_t len);

double scale_now(void);
void scale_sleep_ms(unsigned int ms);
/* Resident bytes of a process, and the number of its open descriptors. */
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
/* Register the pool, and fill in the card. */
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
