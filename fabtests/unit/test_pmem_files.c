// SPDX-License-Identifier: BSD-2-Clause
/* Regions of one file share its errors; domains share the file table. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/pmem.h"

static int sync_ret;

static int fake_sync(void *ctx, void *addr, size_t len)
{
	return sync_ret;
}

static void fake_flush(void *ctx, const void *addr, size_t len)
{
}

static void fake_drain(void *ctx)
{
}

static const struct rp_pmem_ops fake = {
	.sync = fake_sync,
	.flush = fake_flush,
	.drain = fake_drain,
};

static struct rp_pmem *make_in_file(uint64_t ino, enum rp_method how)
{
	struct rp_file_id id = {.dev = 1, .ino = ino};
	struct rp_pmem *pm;

	cr_assert_eq(rp_pmem_new((void *)0x10000, 64, how, &id, &fake, &pm), 0);
	return pm;
}

/* The kernel reports a file's error to the first msync only. */
Test(pmem_files, error_of_a_shared_file)
{
	struct rp_pmem *a = make_in_file(5, RP_METHOD_AGENT_MSYNC);
	struct rp_pmem *b = make_in_file(5, RP_METHOD_AGENT_CLWB_MSYNC);
	struct rp_pmem *lines = make_in_file(5, RP_METHOD_AGENT_CLWB);
	struct rp_pmem *other = make_in_file(6, RP_METHOD_AGENT_MSYNC);
	struct rp_pmem *none1 = make_in_file(0, RP_METHOD_AGENT_MSYNC);
	struct rp_pmem *none2 = make_in_file(0, RP_METHOD_AGENT_MSYNC);
	struct rp_pmem *again;

	cr_assert_eq(rp_pmem_flush(a, 0, 1), 0);
	cr_assert_eq(rp_pmem_flush(b, 0, 1), 0);
	sync_ret = -EIO;
	cr_assert_eq(rp_pmem_flush(a, 0, 1), -EIO);
	sync_ret = 0;
	/*
	 * The msync of a has received the error, so that of b succeeds. The
	 * lost bytes may be those of b.
	 */
	cr_assert_eq(rp_pmem_flush(b, 0, 1), -EIO);
	cr_assert_eq(rp_pmem_flush(b, 0, 1), -EIO);
	cr_assert_eq(rp_pmem_flush(a, 0, 1), -EIO);
	cr_assert_eq(rp_pmem_flush(lines, 0, 1), 0);
	cr_assert_eq(rp_pmem_flush(other, 0, 1), 0);
	/* A region that is created later starts without the error. */
	again = make_in_file(5, RP_METHOD_AGENT_MSYNC);
	cr_assert_eq(rp_pmem_flush(again, 0, 1), 0);
	cr_assert_eq(rp_pmem_flush(b, 0, 1), -EIO);
	rp_pmem_delete(a);
	rp_pmem_delete(b);
	cr_assert_eq(rp_pmem_flush(again, 0, 1), 0);
	sync_ret = -EIO;
	cr_assert_eq(rp_pmem_flush(none1, 0, 1), -EIO);
	sync_ret = 0;
	cr_assert_eq(rp_pmem_flush(none2, 0, 1), 0);
	rp_pmem_delete(again);
	rp_pmem_delete(lines);
	rp_pmem_delete(other);
	rp_pmem_delete(none1);
	rp_pmem_delete(none2);
	rp_pmem_delete(NULL);
}

static pthread_mutex_t sync_running = PTHREAD_MUTEX_INITIALIZER;

/* A slow sync that fails if another one runs at the same time. */
static int lone_sync(void *ctx, void *addr, size_t len)
{
	if (pthread_mutex_trylock(&sync_running))
		return -EBUSY;
	usleep(50000);
	pthread_mutex_unlock(&sync_running);
	return 0;
}

static void *flush_once(void *pm)
{
	return (void *)(intptr_t)rp_pmem_flush(pm, 0, 1);
}

/* A sync and the record of its failure are one step for the file. */
Test(pmem_files, regions_of_a_file_take_turns)
{
	const struct rp_file_id id = {.dev = 1, .ino = 5};
	const struct rp_pmem_ops ops = {.sync = lone_sync};
	struct rp_pmem *pm[2];
	pthread_t t[2];
	void *ret;

	for (int i = 0; i < 2; i++)
		cr_assert_eq(rp_pmem_new((void *)0x10000, 64,
					 RP_METHOD_AGENT_MSYNC, &id, &ops,
					 &pm[i]),
			     0);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(pthread_create(&t[i], NULL, flush_once, pm[i]), 0);
	for (int i = 0; i < 2; i++) {
		pthread_join(t[i], &ret);
		cr_assert_eq((intptr_t)ret, 0);
		rp_pmem_delete(pm[i]);
	}
}

/*
 * Wrapped by the linker: allocations that succeed before one fails, and blocks
 * not freed yet.
 */
static int allocations_left = -1; /* allocations; -1: no limit */
static _Atomic int blocks;

static bool files_given(void)
{
	if (!allocations_left)
		return false;
	/*
	 * Threads run this only without failures, so they only read
	 * allocations_left.
	 */
	if (allocations_left > 0)
		allocations_left--;
	blocks++;
	return true;
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
	return files_given() ? __real_malloc(size) : NULL;
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return files_given() ? __real_calloc(n, size) : NULL;
}

void __real_free(void *p);
void __wrap_free(void *p);
void __wrap_free(void *p)
{
	blocks -= p != NULL;
	__real_free(p);
}

Test(pmem_files, files_without_regions_are_forgotten)
{
	struct rp_pmem *pm[3];

	blocks = 0;
	for (int i = 0; i < 3; i++)
		pm[i] = make_in_file(5 + i / 2, RP_METHOD_AGENT_MSYNC);
	for (int i = 0; i < 3; i++)
		rp_pmem_delete(pm[i]);
	cr_assert_eq(blocks, 0, "%d blocks kept", blocks);
}

/* Four allocations: region, its file, table of files, its buckets. */
Test(pmem_files, no_memory)
{
	const struct rp_file_id id = {.dev = 1, .ino = 5};
	struct rp_pmem *pm = (void *)7;

	blocks = 0;
	for (int i = 0; i < 4; i++) {
		allocations_left = i;
		cr_assert_eq(rp_pmem_new((void *)0x10000, 64,
					 RP_METHOD_AGENT_MSYNC, &id, &fake,
					 &pm),
			     -ENOMEM);
	}
	allocations_left = -1;
	cr_assert_eq(pm, (void *)7);
	cr_assert_eq(blocks, 0, "%d blocks kept", blocks);
	rp_pmem_delete(make_in_file(5, RP_METHOD_AGENT_MSYNC));
}

static int any_sync(void *ctx, void *addr, size_t len)
{
	return 0;
}

static void *come_and_go(void *arg)
{
	const struct rp_file_id id = {.dev = 1, .ino = 5};
	const struct rp_pmem_ops ops = {.sync = any_sync};
	struct rp_pmem *pm;

	for (int i = 0; i < 20000; i++) {
		cr_assert_eq(rp_pmem_new((void *)0x10000, 64,
					 RP_METHOD_AGENT_MSYNC, &id, &ops, &pm),
			     0);
		cr_assert_eq(rp_pmem_flush(pm, 0, 1), 0);
		rp_pmem_delete(pm);
	}
	return NULL;
}

/* Each domain has its own lock; all share the table of files. */
Test(pmem_files, domains_share_the_files)
{
	pthread_t t[2];

	for (int i = 0; i < 2; i++)
		cr_assert_eq(pthread_create(&t[i], NULL, come_and_go, NULL), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
}
