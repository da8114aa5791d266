/* SPDX-License-Identifier: BSD-2-Clause */
/* Counters of processes that use ofi_rpmem: find, print, export. */
#ifndef RP_UTIL_STATS_H
#define RP_UTIL_STATS_H

#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include "core/stats.h"

/* A copy of one counter page. */
struct rp_stats_copy {
	pid_t pid;
	unsigned int nth; /* number of the page in its process, from 0 */
	char command[32]; /* command of the process, printable */
	struct rp_stats page;
};

/*
 * Call take() with a copy of each page: of one process, or with pid 0 of all
 * processes whose descriptors this user may read. Skips pages of other
 * versions. Returns the number of pages, or -errno: no such process (-ENOENT),
 * or another user's or group's (-EACCES).
 */
int rp_stats_each(pid_t pid, void (*take)(void *arg, struct rp_stats_copy *c),
		  void *arg);

/* The end of bucket i in ns; this value itself is in bucket i + 1. */
static inline double rp_bucket_end(size_t i)
{
	const uint64_t bits = (uint64_t)(i + 1 + RP_STATS_FIRST) << 50;
	double ns;

	memcpy(&ns, &bits, sizeof(ns));
	return i < RP_STATS_BUCKETS - 1 ? ns : __builtin_inf();
}

uint64_t rp_histogram_count(const struct rp_stats_histogram *h);
/* Quantile `part` (0 to 1) in ns, rounded up to its bucket's end; 0: empty. */
double rp_histogram_quantile(const struct rp_stats_histogram *h, double part);
/* The seconds of a sum of ticks of this page. */
double rp_stats_seconds(const struct rp_stats *s, uint64_t ticks);
/* Operations that have started but not completed. */
uint64_t rp_stats_outstanding(const struct rp_stats *s);

/*
 * Write the copies of all pages in Prometheus text format, which groups metrics
 * by name. Returns 0, or -ENOMEM.
 */
int rp_stats_prometheus(FILE *out, const struct rp_stats_copy *const *copies,
			size_t n);

#endif
