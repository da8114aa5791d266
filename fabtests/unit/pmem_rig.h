/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Flush operations (struct rp_pmem_ops) that log each call instead of executing
 * it.
 */
#ifndef RP_TEST_PMEM_RIG_H
#define RP_TEST_PMEM_RIG_H

#include "core/pmem.h"

/* The flush operations that the code under test has called, in order. */
struct event {
	char what; /* 'f'lush, 'd'rain, 's'ync */
	uintptr_t start, end;
};
extern struct event event_log[32];
extern size_t nevents;
extern int sync_ret;
extern const struct rp_pmem_ops fake; /* its ctx is log_v */

void note(char what, const void *addr, size_t len);
struct rp_pmem *make_pmem(uintptr_t base, size_t len, enum rp_method how,
			  const struct rp_pmem_ops *ops);
/* Check that event i is this operation on this range. */
void expect_event(size_t i, char what, uintptr_t start, uintptr_t end);

/* Find the units of the first and the last byte by counting. */
void units_around(uintptr_t first, uintptr_t last, size_t unit,
		  uintptr_t *start, uintptr_t *end);
/* Map a new file of this length, without a name. */
char *map_file(size_t len, int *fdp);
/* As rp_pmem_store(), without its durable result. */
int store_bytes(struct rp_pmem *pm, uint64_t off, const void *bytes,
		uint64_t len);

#endif
