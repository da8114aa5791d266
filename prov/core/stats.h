/* SPDX-License-Identifier: BSD-2-Clause */
/* Counters of this process, in shared memory that operators can read. */
#ifndef RP_STATS_H
#define RP_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __x86_64__
#include <x86intrin.h>
#endif

#include "core/method.h"
#include "core/status.h"
#include "core/thread.h"

/*
 * The page is a memfd, so it ends with its process, and the kernel decides who
 * may open it by /proc/PID/fd. A reader checks magic, version and size. Keys,
 * addresses and bytes of regions are never in it. Every counter is a uint64_t
 * that is only added to, unless its comment calls it a gauge.
 */
#define RP_STATS_FILE	  "ofi_rpmem-stats"
#define RP_STATS_MAGIC	  0x73746174736d7072ull /* "rpmstats" */
#define RP_STATS_VERSION  3
#define RP_STATS_REGIONS  1024
#define RP_STATS_NAME	  256 /* NAME_MAX and the NUL */
#define RP_STATS_STATUSES 80
#define RP_STATS_METHODS  8
#define RP_STATS_KINDS	  5

/*
 * Four buckets for each power of two, from 2^-3 ns; the last one begins at 2^37
 * ns. Longer times than 2^36 ticks, at most 2 ns each, count as 2^36 ticks.
 */
#define RP_STATS_FIRST	   ((1023 - 3) * 4) /* bits 50 up of 2^-3 as a double */
#define RP_STATS_BUCKETS   161
#define RP_STATS_TICK_BITS 36
/* Sums of ticks: rp_stats.ns_per_tick makes them nanoseconds. */
struct rp_stats_histogram {
	uint64_t count[RP_STATS_BUCKETS];
	uint64_t ticks;
	uint64_t reserved[94]; /* 2048 bytes, so that an index is a shift */
};

/* Counters of a target's region. The last one counts all that found no room. */
struct rp_stats_region {
	uint64_t used;		  /* gauge: registrations */
	uint64_t length;	  /* gauge */
	uint64_t class, method;	  /* gauges */
	uint64_t failed;	  /* gauge: errno of the failed flush */
	char name[RP_STATS_NAME]; /* name of its file; "": never used */
	uint64_t bytes;		  /* bytes made durable for peers */
	uint64_t msyncs, msync_ns;
	uint64_t flushes, flush_ticks; /* of cache lines */
	/* Times from the decoding of a commit to its reply of success. */
	struct rp_stats_histogram commits;
};

struct rp_stats {
	uint64_t magic;
	uint32_t version, size;
	double ns_per_tick;
	/* The target side. */
	uint64_t requests;		      /* accepted requests */
	uint64_t failures[RP_STATS_STATUSES]; /* replies, by status */
	uint64_t jobs;	   /* gauge: requests on the worker */
	uint64_t sessions; /* gauge */
	uint64_t accepted; /* accepted sessions */
	uint64_t refused;  /* refused connection requests */
	uint64_t refused_keys;
	uint64_t failed_regions;
	/* The initiator side. */
	uint64_t started; /* operations begun */
	/* Completed operations and their bytes, by enum rp_op_kind. */
	uint64_t completed[RP_STATS_KINDS], completed_bytes[RP_STATS_KINDS];
	uint64_t errors[RP_STATS_STATUSES];  /* failed operations, by status */
	uint64_t connected;		     /* gauge: sessions */
	uint64_t connections, reconnections; /* made so far */
	/* Times from the post of a durable operation to success, by method. */
	struct rp_stats_histogram durable[RP_STATS_METHODS];
	struct rp_stats_region region[RP_STATS_REGIONS];
};
_Static_assert(sizeof(struct rp_stats_histogram) == 2048, "layout");
_Static_assert(sizeof(struct rp_stats_region) == 2384, "layout");
_Static_assert(offsetof(struct rp_stats, requests) == 24, "layout");
_Static_assert(offsetof(struct rp_stats, started) == 720, "layout");
_Static_assert(offsetof(struct rp_stats, durable) == 1472, "layout");
_Static_assert(sizeof(struct rp_stats) == 2459072, "layout");
_Static_assert(RP_ST_MAX <= RP_STATS_STATUSES, "no counter of a status");
_Static_assert(RP_METHOD_MAX <= RP_STATS_METHODS, "no counter of a method");

/* Hidden: -fPIC code then loads no address from the GOT. */
#define RP_STATS_HIDDEN __attribute__((visibility("hidden")))

/* The page of counters; without memfd, memory that nobody reads. Never NULL. */
extern RP_STATS_HIDDEN struct rp_stats *rp_stats;
extern RP_STATS_HIDDEN struct rp_stats_region rp_stats_no_region;

/* Make the page of counters, unless it exists. */
void rp_stats_open(void);
/*
 * The counters of a region, shared by all regions of this name, earlier ones
 * too: fi_rpmemd gives out many keys for one pool.
 */
struct rp_stats_region *rp_stats_region_open(const char *name, uint64_t length,
					     enum rp_class class,
					     enum rp_method method);
void rp_stats_region_close(struct rp_stats_region *r);

static inline void rp_stats_add(uint64_t *counter, uint64_t n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

extern RP_STATS_HIDDEN double rp_stats_ns_per_tick; /* 1/8 to 2 */
/* Time in ticks of the CPU's counter, which costs less than a clock. */
static inline uint64_t rp_stats_now(void)
{
#ifdef __x86_64__
	return __rdtsc();
#else
	return rp_clock_ns(CLOCK_MONOTONIC);
#endif
}

/* Ticks since start, in the range of the buckets. */
static inline uint64_t rp_stats_ticks_since(const uint64_t *start)
{
	const uint64_t ticks = rp_stats_now() - *start;

	if (__builtin_expect(!((ticks - 1) >> RP_STATS_TICK_BITS), 1))
		return ticks;
	/* It is 0 or negative if another CPU's counter is behind. */
	return (int64_t)ticks <= 0 ? 1 : 1ull << RP_STATS_TICK_BITS;
}

/*
 * The bits of a double are its exponent, then its fraction: without the last 50
 * bits the number counts quarters of powers of two.
 */
static inline uint64_t rp_stats_bucket(double ns)
{
	uint64_t bits;

	__builtin_memcpy(&bits, &ns, sizeof(bits));
	return (bits >> 50) - RP_STATS_FIRST;
}

/* Add to element i. The compiler scales i in the address of the addition. */
static inline void rp_stats_add_at(uint64_t *first, uint64_t i, uint64_t n)
{
	rp_stats_add((uint64_t *)((uintptr_t)first + i * sizeof(*first)), n);
}

static inline void rp_stats_time_add(struct rp_stats_histogram *h, uint64_t t)
{
	const double ns = (double)(int64_t)t * rp_stats_ns_per_tick;

	rp_stats_add_at(h->count, rp_stats_bucket(ns), 1);
	rp_stats_add(&h->ticks, t);
}

#endif
