/* SPDX-License-Identifier: BSD-2-Clause */
/* Counters of processes that use ofi_rpmem: find, print, export. */
#ifndef RP_UTIL_STATS_H
#define RP_UTIL_STATS_H

#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include "core/stats.h"

/* A copy of one page. */
struct rp_stats_copy {
	pid_t pid;
	unsigned int nth; /* page of the process; 0: the first */
	char command[32]; /* of the process, printable */
	struct rp_stats page;
};

/*
 * Calls take() with a copy of each page: of one process, or with pid 0 of all
 * whose descriptors this user may see. Pages of other versions are skipped.
 * Returns the number of pages, or -errno: the process does not exist (-ENOENT),
 * or is another user's (-EACCES).
 */
int rp_stats_each(pid_t pid, void (*take)(void *arg, struct rp_stats_copy *c),
		  void *arg);

/* The end of a bucket, in ns: the first time that is not in it. */
static inline double rp_bucket_end(size_t i)
{
	const uint64_t bits = (uint64_t)(i + 1 + RP_STATS_FIRST) << 50;
	double ns;

	memcpy(&ns, &bits, sizeof(ns));
	return i < RP_STATS_BUCKETS - 1 ? ns : __builtin_inf();
}

uint64_t rp_histogram_count(const struct rp_stats_histogram *h);
/* The end of the bucket that has this part of all counts, in ns; 0: none. */
double rp_histogram_quantile(const struct rp_stats_histogram *h, double part);
/* Operations that are not complete. */
uint64_t rp_stats_outstanding(const struct rp_stats *s);

/*
 * Prometheus' text format of copies, or of all pages at once: metrics are
 * grouped by name. Returns 0, or -ENOMEM.
 */
int rp_stats_prometheus(FILE *out, const struct rp_stats_copy *const *copies,
			size_t n);

#endif
