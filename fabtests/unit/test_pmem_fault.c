// SPDX-License-Identifier: BSD-2-Clause
/* Fault injection points of flushing, in a build that has them. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include <criterion/criterion.h>

#include "core/fault.h"
#include "core/pmem.h"

static int syncs, flushes;

static int count_sync(void *ctx, void *addr, size_t len)
{
	syncs++;
	return 0;
}

static void count_flush(void *ctx, const void *addr, size_t len)
{
	flushes++;
}

static void no_drain(void *ctx)
{
}

static const struct rp_pmem_ops ops = {
	.sync = count_sync,
	.flush = count_flush,
	.drain = no_drain,
};

static int flush_by(enum rp_method how)
{
	static char bytes[64];
	struct rp_pmem *pm;
	int ret;

	cr_assert_eq(rp_pmem_new(bytes, 64, how, NULL, &ops, &pm), 0);
	ret = rp_pmem_flush(pm, 0, 64);
	rp_pmem_drain(pm);
	rp_pmem_delete(pm);
	return ret;
}

Test(pmem_fault, no_fault_without_the_variable)
{
	unsetenv("RPMEM_FAULT");
	cr_assert_eq(flush_by(RP_METHOD_AGENT_MSYNC), 0);
	cr_assert_eq(flush_by(RP_METHOD_AGENT_CLWB), 0);
	cr_assert_eq(syncs, 1);
	cr_assert_eq(flushes, 1);
}

Test(pmem_fault, skip)
{
	setenv("RPMEM_FAULT", "drop-replies,skip-flush", 1);
	cr_assert_eq(flush_by(RP_METHOD_AGENT_MSYNC), 0);
	cr_assert_eq(flush_by(RP_METHOD_AGENT_CLWB), 0);
	cr_assert_eq(flush_by(RP_METHOD_AGENT_CLWB_MSYNC), 0);
	cr_assert_eq(syncs, 0);
	cr_assert_eq(flushes, 0);
}

Test(pmem_fault, fail)
{
	setenv("RPMEM_FAULT", "fail-flush", 1);
	cr_assert_eq(flush_by(RP_METHOD_AGENT_MSYNC), -EIO);
	cr_assert_eq(flush_by(RP_METHOD_AGENT_CLWB_MSYNC), -EIO);
	cr_assert_eq(flush_by(RP_METHOD_AGENT_CLWB), 0);
	cr_assert_eq(syncs, 0);
}

Test(pmem_fault, slow)
{
	struct timespec a, b;

	setenv("RPMEM_FAULT", "slow-flush", 1);
	setenv("RPMEM_FAULT_MS", "1100", 1);
	clock_gettime(CLOCK_MONOTONIC, &a);
	cr_assert_eq(flush_by(RP_METHOD_AGENT_MSYNC), 0);
	clock_gettime(CLOCK_MONOTONIC, &b);
	cr_assert_eq(syncs, 1);
	cr_assert_geq((b.tv_sec - a.tv_sec) * 1000 +
			      (b.tv_nsec - a.tv_nsec) / 1000000,
		      1099);
}

Test(pmem_fault, names_are_whole_words)
{
	setenv("RPMEM_FAULT", "skip-flush-not,xskip-flush,fail", 1);
	cr_assert_not(rp_fault_on("skip-flush"));
	cr_assert_not(rp_fault_on("fail-flush"));
	cr_assert(rp_fault_on("fail"));
	cr_assert_eq(flush_by(RP_METHOD_AGENT_MSYNC), 0);
	cr_assert_eq(syncs, 1);
	setenv("RPMEM_FAULT", "", 1);
	cr_assert_not(rp_fault_on("skip-flush"));
}
