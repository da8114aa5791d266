// SPDX-License-Identifier: BSD-2-Clause
/* Flush operations that are logged instead of executed. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "pmem_rig.h"

struct event event_log[32];
size_t nevents;
int sync_ret;

void note(char what, const void *addr, size_t len)
{
	cr_assert_lt(nevents, 32);
	event_log[nevents++] =
		(struct event){what, (uintptr_t)addr, (uintptr_t)addr + len};
}

static int fake_sync(void *ctx, void *addr, size_t len)
{
	cr_assert_eq(ctx, (void *)event_log);
	note('s', addr, len);
	return sync_ret;
}

static void fake_flush(void *ctx, const void *addr, size_t len)
{
	cr_assert_eq(ctx, (void *)event_log);
	note('f', addr, len);
}

static void fake_drain(void *ctx)
{
	cr_assert_eq(ctx, (void *)event_log);
	note('d', NULL, 0);
}

const struct rp_pmem_ops fake = {
	.sync = fake_sync,
	.flush = fake_flush,
	.drain = fake_drain,
	.ctx = event_log,
};

struct rp_pmem *make_pmem(uintptr_t base, size_t len, enum rp_method how,
			  const struct rp_pmem_ops *ops)
{
	struct rp_pmem *pm;

	cr_assert_eq(rp_pmem_new((void *)base, len, how, NULL, ops, &pm), 0);
	return pm;
}

void expect_event(size_t i, char what, uintptr_t start, uintptr_t end)
{
	cr_assert_lt(i, nevents, "event %zu is missing", i);
	cr_assert_eq(event_log[i].what, what, "event %zu is '%c', not '%c'", i,
		     event_log[i].what, what);
	cr_assert(event_log[i].start == start && event_log[i].end == end,
		  "'%c' of [%#lx,%#lx), not [%#lx,%#lx)", what,
		  event_log[i].start, event_log[i].end, start, end);
}

void units_around(uintptr_t first, uintptr_t last, size_t unit,
		  uintptr_t *start, uintptr_t *end)
{
	for (*start = first; *start % unit; --*start)
		;
	for (*end = last + 1; *end % unit; ++*end)
		;
}

char *map_file(size_t len, int *fdp)
{
	char path[] = "test_pmem.XXXXXX";
	int fd = mkstemp(path);
	char *p;

	cr_assert_geq(fd, 0);
	unlink(path);
	cr_assert_eq(posix_fallocate(fd, 0, len), 0);
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert_neq(p, MAP_FAILED);
	*fdp = fd;
	return p;
}

int store_bytes(struct rp_pmem *pm, uint64_t off, const void *bytes,
		uint64_t len)
{
	bool durable;

	return rp_pmem_store(pm, off, bytes, len, &durable);
}
