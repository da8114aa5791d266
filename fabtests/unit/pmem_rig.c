// SPDX-License-Identifier: BSD-2-Clause
/* Flush operations that are logged instead of executed. */
#include <criterion/criterion.h>

#include "pmem_rig.h"

struct event log_v[32];
size_t log_n;
int sync_ret;

void note(char what, const void *addr, size_t len)
{
	cr_assert_lt(log_n, 32);
	log_v[log_n++] =
		(struct event){what, (uintptr_t)addr, (uintptr_t)addr + len};
}

static int fake_sync(void *ctx, void *addr, size_t len)
{
	cr_assert_eq(ctx, (void *)log_v);
	note('s', addr, len);
	return sync_ret;
}

static void fake_flush(void *ctx, const void *addr, size_t len)
{
	cr_assert_eq(ctx, (void *)log_v);
	note('f', addr, len);
}

static void fake_drain(void *ctx)
{
	cr_assert_eq(ctx, (void *)log_v);
	note('d', NULL, 0);
}

const struct rp_pmem_ops fake = {
	.sync = fake_sync,
	.flush = fake_flush,
	.drain = fake_drain,
	.ctx = log_v,
};

struct rp_pmem *make(uintptr_t base, size_t len, enum rp_method how,
		     const struct rp_pmem_ops *ops)
{
	struct rp_pmem *pm;

	cr_assert_eq(rp_pmem_new((void *)base, len, how, NULL, ops, &pm), 0);
	return pm;
}

void want(size_t i, char what, uintptr_t start, uintptr_t end)
{
	cr_assert_lt(i, log_n, "event %zu is missing", i);
	cr_assert_eq(log_v[i].what, what, "event %zu is '%c', not '%c'", i,
		     log_v[i].what, what);
	cr_assert(log_v[i].start == start && log_v[i].end == end,
		  "'%c' of [%#lx,%#lx), not [%#lx,%#lx)", what, log_v[i].start,
		  log_v[i].end, start, end);
}
