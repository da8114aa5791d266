/* SPDX-License-Identifier: BSD-2-Clause */
/* The live registrations of one domain, found by key at the target. */
#ifndef RP_REGION_H
#define RP_REGION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/hash.h"
#include "core/caps.h"
#include "core/method.h"
#include "core/pmem.h"
#include "core/stats.h"
#include "core/status.h"
#include "core/watch.h"

/*
 * One registration, a member of the memory region object of core's caller;
 * struct rp_regions only points at it. Guarded by the caller's lock.
 */
struct rp_region {
	uint64_t key;  /* remote key */
	void *base;    /* local address of the first byte */
	uint64_t addr; /* remote address of the first byte: 0 or a VA */
	uint64_t len;
	bool writable;	 /* peers, and the agent for them, may write */
	bool unreadable; /* peers cannot read: no read fence */
	struct rp_facts facts;
	struct rp_choice choice; /* strongest class and its method */
	enum rp_method forced;	 /* the operator's; REFUSED: none */
	struct rp_pmem *pmem;	 /* NULL: not persistent */
	char why[RP_WHY_LEN];
	struct rp_stats_region *stats; /* NULL: no agent has the region */
	struct rp_watch
		*watch;	   /* sources of facts, unless the agent has them */
	uint64_t weakened; /* number of its last loss of class, or 0 */
	/* The CPU caches have become volatile: flush the region in chunks. */
	bool flushing_all, chunk_posted;
	uint64_t flushed_to;
	TAILQ_ENTRY(rp_region) link; /* in agent.flushing_all */
	int failed;	   /* errno of the first failed flush, for good */
	unsigned int busy; /* jobs that use the region */
	UT_hash_handle hh;
};

/*
 * Choose the method by the region's facts, or the forced one (its name; NULL or
 * "": none). -EOPNOTSUPP: the choice is a refusal. obstacle: as argument why of
 * rp_method_for_region().
 */
int rp_region_choose(struct rp_region *r, const char *forced, char *obstacle);
/* Create r->pmem. ops: NULL for this CPU's. Returns as rp_pmem_new(). */
int rp_region_open(struct rp_region *r, const struct rp_pmem_ops *ops);

struct rp_regions {
	struct rp_region *by_key;
};

/* Add a region. -EEXIST: a live region has the same key; -ENOMEM. */
int rp_regions_add(struct rp_regions *t, struct rp_region *r);
void rp_regions_del(struct rp_regions *t, struct rp_region *r);

/*
 * The region of exactly this key, or NULL and RP_ST_STALE_KEY: one status for
 * all other keys, so that a reply does not show which bits were right.
 */
struct rp_region *rp_regions_find(const struct rp_regions *t, uint64_t key,
				  enum rp_status *st);

/*
 * Check one range against its region and the required class. Returns RP_ST_OK
 * and the offset, or the first error: RP_ST_VOLATILE, RP_ST_WRAP, RP_ST_RANGE,
 * RP_ST_CLASS, RP_ST_NO_METHOD, RP_ST_REGION_FAILED. Not durable: only the
 * errors of the range, as a region whose flush has failed can still be written
 * and read.
 */
enum rp_status rp_region_check(const struct rp_region *r, uint64_t addr,
			       uint64_t len, bool durable,
			       enum rp_class required, uint64_t *off);
/* Check only the range: RP_ST_WRAP, RP_ST_RANGE, or RP_ST_OK and the offset. */
enum rp_status rp_region_check_range(const struct rp_region *r, uint64_t addr,
				     uint64_t len, uint64_t *off);

#endif
