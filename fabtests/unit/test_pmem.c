// SPDX-License-Identifier: BSD-2-Clause
/* Flushing and storing: exact ranges, order, failures, cost. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "pmem_rig.h"

Test(pmem, lines_round_outward)
{
	for (uintptr_t base = 0x10000; base <= 0x10000 + 65; base += 13)
		for (size_t off = 0; off < 130; off++)
			for (size_t len = 1; len < 200; len += 7) {
				struct rp_pmem *pm =
					make_pmem(base, 4096,
						  RP_METHOD_AGENT_CLWB, &fake);
				uintptr_t s, e;

				nevents = 0;
				units_around(base + off, base + off + len - 1,
					     64, &s, &e);
				cr_assert_eq(rp_pmem_flush(pm, off, len), 0);
				expect_event(0, 'f', s, e);
				cr_assert_eq(nevents, 1, "a flush drained");
				rp_pmem_delete(pm);
			}
}

Test(pmem, pages_round_outward)
{
	size_t page = sysconf(_SC_PAGESIZE);
	static const long offs[] = {0, 1, -1, 4095, 4096, 5000};

	for (size_t b = 0; b < 3; b++)
		for (size_t o = 0; o < 6; o++)
			for (size_t l = 1; l < 6; l++) {
				uintptr_t base = 64 * page + offs[b];
				size_t off = (page + offs[o]) % (4 * page);
				size_t len = (page + offs[l]) % (4 * page);
				uintptr_t s, e;
				struct rp_pmem *pm =
					make_pmem(base, 16 * page,
						  RP_METHOD_AGENT_MSYNC, &fake);

				nevents = 0;
				units_around(base + off, base + off + len - 1,
					     page, &s, &e);
				cr_assert_eq(rp_pmem_flush(pm, off, len), 0);
				expect_event(0, 's', s, e);
				rp_pmem_drain(pm);
				cr_assert_eq(nevents, 1);
				rp_pmem_delete(pm);
			}
}

Test(pmem, zero_tail)
{
	size_t page = sysconf(_SC_PAGESIZE);
	struct rp_pmem *pm =
		make_pmem(page, page, RP_METHOD_AGENT_MSYNC, &fake);

	/* The range ends at a boundary: the unit behind it is not flushed. */
	cr_assert_eq(rp_pmem_flush(pm, page - 1, 1), 0);
	expect_event(0, 's', page, 2 * page);
	/* An empty range needs no flush. */
	cr_assert_eq(rp_pmem_flush(pm, page, 0), 0);
	cr_assert_eq(rp_pmem_flush(pm, 0, 0), 0);
	cr_assert_eq(nevents, 1);
	rp_pmem_delete(pm);
	pm = make_pmem(page, page, RP_METHOD_AGENT_CLWB, &fake);
	cr_assert_eq(rp_pmem_flush(pm, page - 64, 64), 0);
	expect_event(1, 'f', 2 * page - 64, 2 * page);
	cr_assert_eq(rp_pmem_flush(pm, 5, 0), 0);
	cr_assert_eq(nevents, 2);
	rp_pmem_delete(pm);
}

Test(pmem, flush_does_not_drain)
{
	struct rp_pmem *pm =
		make_pmem(0x10000, 4096, RP_METHOD_AGENT_CLWB, &fake);

	rp_pmem_flush(pm, 0, 1);
	rp_pmem_flush(pm, 100, 1);
	rp_pmem_drain(pm);
	cr_assert_eq(nevents, 3);
	expect_event(2, 'd', 0, 0);
	rp_pmem_delete(pm);
}

Test(pmem, lines_then_fence_then_pages)
{
	size_t page = sysconf(_SC_PAGESIZE);
	struct rp_pmem *pm =
		make_pmem(page, 4 * page, RP_METHOD_AGENT_CLWB_MSYNC, &fake);

	cr_assert_eq(rp_pmem_flush(pm, 65, 64), 0);
	expect_event(0, 'f', page + 64, page + 192);
	expect_event(1, 'd', 0, 0);
	expect_event(2, 's', page, 2 * page);
	cr_assert_eq(rp_pmem_flush(pm, 65, 2 * page), 0);
	expect_event(3, 'f', page + 64, 3 * page + 128);
	expect_event(5, 's', page, 4 * page);
	cr_assert_eq(nevents, 6);
	rp_pmem_delete(pm);
}

Test(pmem, delivery_does_nothing)
{
	struct rp_pmem *pm = make_pmem(0x10000, 64, RP_METHOD_DELIVERY, &fake);

	cr_assert_eq(rp_pmem_flush(pm, 0, 64), 0);
	rp_pmem_drain(pm);
	cr_assert_eq(nevents, 0);
	rp_pmem_delete(pm);
}

/* Persistent caches need no write-back, but sfence waits for the stores. */
Test(pmem, sfence_method_writes_nothing_back)
{
	struct rp_pmem *pm =
		make_pmem(0x10000, 64, RP_METHOD_AGENT_SFENCE, &fake);

	cr_assert_eq(rp_pmem_flush(pm, 0, 64), 0);
	cr_assert_eq(nevents, 0);
	rp_pmem_drain(pm);
	expect_event(0, 'd', 0, 0);
	cr_assert_eq(nevents, 1);
	rp_pmem_delete(pm);
}

Test(pmem, unit_and_blocking_of_each_method)
{
	static const struct {
		enum rp_method how;
		bool blocks;
		size_t unit; /* unit of flushing; 0: a page */
	} m[] = {
		{RP_METHOD_DELIVERY, false, 1},
		{RP_METHOD_AGENT_SFENCE, false, 1},
		{RP_METHOD_AGENT_CLWB, false, 64},
		{RP_METHOD_AGENT_MSYNC, true, 0},
		{RP_METHOD_AGENT_CLWB_MSYNC, true, 0},
	};
	size_t page = sysconf(_SC_PAGESIZE);
	unsigned int seen = 0;

	for (size_t i = 0; i < 5; i++) {
		struct rp_pmem *pm = make_pmem(0x10000, 64, m[i].how, &fake);

		cr_assert_eq(rp_pmem_blocks(pm), m[i].blocks);
		cr_assert_eq(rp_pmem_granularity(pm),
			     m[i].unit ? m[i].unit : page);
		rp_pmem_delete(pm);
		seen |= RP_METHOD_BIT(m[i].how);
	}
	/* The methods that were tested must be all methods of the build. */
	/* The initiator executes these two methods. */
	seen |= RP_METHOD_BIT(RP_METHOD_FENCE) |
		RP_METHOD_BIT(RP_METHOD_NATIVE);
	cr_assert_eq(seen, RP_METHODS_BUILT);
	for (int how = -1; how <= RP_METHOD_MAX; how++) {
		struct rp_pmem *pm = (void *)7;

		if (how >= 0 && (seen & RP_METHOD_BIT(how)))
			continue;
		cr_assert_eq(rp_pmem_new(event_log, 64, how, NULL, &fake, &pm),
			     -ENOTSUP);
		cr_assert_eq(pm, (void *)7);
	}
}

Test(pmem, bad_ranges)
{
	struct rp_pmem *pm = (void *)7;

	cr_assert_eq(
		rp_pmem_new(NULL, 64, RP_METHOD_AGENT_CLWB, NULL, NULL, &pm),
		-EINVAL);
	cr_assert_eq(rp_pmem_new(event_log, 0, RP_METHOD_AGENT_CLWB, NULL, NULL,
				 &pm),
		     -EINVAL);
	cr_assert_eq(rp_pmem_new(event_log, SIZE_MAX, RP_METHOD_AGENT_CLWB,
				 NULL, NULL, &pm),
		     -EINVAL);
	cr_assert_eq(pm, (void *)7);
}

Test(pmem, sync_failure_is_returned)
{
	static const enum rp_method how[] = {RP_METHOD_AGENT_MSYNC,
					     RP_METHOD_AGENT_CLWB_MSYNC};

	for (size_t i = 0; i < 2; i++) {
		struct rp_pmem *pm = make_pmem(0x10000, 64, how[i], &fake);

		sync_ret = -ENOSPC;
		cr_assert_eq(rp_pmem_flush(pm, 0, 1), -ENOSPC);
		sync_ret = 0;
		cr_assert_eq(rp_pmem_flush(pm, 0, 1), 0);
		rp_pmem_delete(pm);
	}
}

/* A sync covers the flushed range only, even if others share the file. */
Test(pmem, shared_file_is_synced_in_the_range)
{
	size_t page = sysconf(_SC_PAGESIZE);

	for (uint64_t ino = 0; ino < 2; ino++) {
		const struct rp_file_id id = {.dev = 1, .ino = ino};
		struct rp_pmem *pm;

		nevents = 0;
		cr_assert_eq(rp_pmem_new((void *)(8 * page), 8 * page,
					 RP_METHOD_AGENT_MSYNC, &id, &fake,
					 &pm),
			     0);
		cr_assert_eq(rp_pmem_flush(pm, page + 1, 2 * page), 0);
		expect_event(0, 's', 9 * page, 12 * page);
		cr_assert_eq(nevents, 1);
		rp_pmem_delete(pm);
	}
}

/*
 * From here on the real flush operations. This msync() replaces that of libc,
 * so that the test sees its arguments.
 */
static int msync_errno;

int msync(void *addr, size_t len, int flags)
{
	note('s', addr, len);
	cr_assert_eq(flags, MS_SYNC);
	if (msync_errno) {
		errno = msync_errno;
		return -1;
	}
	return syscall(SYS_msync, addr, len, flags);
}

Test(pmem, file)
{
	size_t page = sysconf(_SC_PAGESIZE);
	int fd;
	char *p = map_file(4 * page, &fd);
	struct rp_pmem *pm = make_pmem((uintptr_t)p + 10, 2 * page,
				       RP_METHOD_AGENT_MSYNC, NULL);

	p[page + 9] = 1;
	p[page + 10] = 1;
	cr_assert_eq(rp_pmem_flush(pm, page - 1, 2), 0);
	expect_event(0, 's', (uintptr_t)p + page, (uintptr_t)p + 2 * page);
	cr_assert_eq(rp_pmem_flush(pm, page - 11, 2), 0);
	expect_event(1, 's', (uintptr_t)p, (uintptr_t)p + 2 * page);
	msync_errno = EIO;
	cr_assert_eq(rp_pmem_flush(pm, 0, 1), -EIO);
	rp_pmem_delete(pm);
}

/* Bytes of the page cache that are dirty because of this process. */
static uint64_t dirty_bytes(void)
{
	FILE *f = fopen("/proc/self/io", "r");
	unsigned long long n = 0;
	char line[80];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "write_bytes: %llu", &n) == 1)
			break;
	if (f)
		fclose(f);
	return n;
}

Test(pmem, small_flush_leaves_no_large_folio)
{
	static char bytes[1 << 20];
	const size_t page = sysconf(_SC_PAGESIZE), len = sizeof(bytes);
	struct rp_pmem *pm;
	uint64_t before;
	int fd;
	char *p = map_file(len, &fd);

	/* Make one large folio, if the file system has large folios. */
	cr_assert_eq(pwrite(fd, bytes, len, 0), (ssize_t)len);
	cr_assert_eq(fsync(fd), 0);
	pm = make_pmem((uintptr_t)p, len, RP_METHOD_AGENT_MSYNC, NULL);
	before = dirty_bytes();
	p[5 * page] = 1;
	cr_log_info("one byte makes %" PRIu64 " dirty at first\n",
		    dirty_bytes() - before);
	cr_assert_eq(rp_pmem_flush(pm, 5 * page, 1), 0);
	rp_pmem_split_folios(pm, 5 * page, 1);
	before = dirty_bytes();
	p[9 * page] = 1;
	cr_assert_leq(dirty_bytes() - before, page);
	rp_pmem_delete(pm);
	munmap(p, len);
	close(fd);
}

Test(pmem, flush_of_a_truncated_file_fails)
{
	size_t page = sysconf(_SC_PAGESIZE);
	int fd;
	char *p = map_file(4 * page, &fd);
	struct rp_pmem *pm =
		make_pmem((uintptr_t)p, 4 * page, RP_METHOD_AGENT_MSYNC, NULL);

	if (madvise(p, page, MADV_POPULATE_READ))
		cr_skip("this kernel cannot tell");
	memset(p, 1, 4 * page);
	cr_assert_eq(rp_pmem_flush(pm, 0, 4 * page), 0);
	cr_assert_eq(ftruncate(fd, page), 0);
	/* msync() itself succeeds. */
	cr_assert_eq(syscall(SYS_msync, p, 4 * page, MS_SYNC), 0);
	cr_assert_eq(rp_pmem_flush(pm, 0, 4 * page), -EFAULT);
	cr_assert_eq(rp_pmem_flush(pm, page, 1), -EFAULT);
	cr_assert_eq(rp_pmem_flush(pm, 0, page), 0);
	munmap(p, 4 * page);
	cr_assert_eq(rp_pmem_flush(pm, 0, page), -ENOMEM);
	rp_pmem_delete(pm);
}

Test(pmem, store_into_a_truncated_file_fails)
{
	size_t page = sysconf(_SC_PAGESIZE);
	char bytes[64] = {1};
	struct rp_pmem *pm;
	int fd;
	char *p = map_file(4 * page, &fd);

	if (madvise(p, page, MADV_POPULATE_READ))
		cr_skip("this kernel cannot tell");
	pm = make_pmem((uintptr_t)p + 8, 4 * page - 8, RP_METHOD_AGENT_MSYNC,
		       NULL);
	cr_assert_eq(store_bytes(pm, 4 * page - 72, bytes, 64), 0);
	cr_assert_eq(memcmp(p + 4 * page - 64, bytes, 64), 0);
	cr_assert_eq(ftruncate(fd, 2 * page), 0);
	/* Stores whose last byte is outside, all outside, and all inside. */
	memset(p + 2 * page - 63, 7, 63);
	cr_assert_lt(store_bytes(pm, 2 * page - 8 - 63, bytes, 64), 0);
	cr_assert_eq(p[2 * page - 1], 7, "something was stored");
	cr_assert_lt(store_bytes(pm, 3 * page, bytes, 1), 0);
	cr_assert_eq(store_bytes(pm, 2 * page - 8 - 64, bytes, 64), 0);
	rp_pmem_delete(pm);
	munmap(p, 4 * page);
}

/* Exactly the given bytes are stored, at any alignment. */
Test(pmem, store_writes_exactly_its_bytes)
{
	static char mem[4096] __attribute__((aligned(4096)));
	struct rp_pmem *pm = make_pmem((uintptr_t)mem, sizeof(mem),
				       RP_METHOD_AGENT_CLWB, NULL);
	char bytes[64], want[128];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)(i + 1);
	for (size_t off = 0; off < 17; off++)
		for (size_t from = 0; from < 9; from++)
			for (size_t len = 1; len < 50; len++) {
				memset(mem, 0x7f, sizeof(want));
				memset(want, 0x7f, sizeof(want));
				memcpy(want + off, bytes + from, len);
				cr_assert_eq(
					store_bytes(pm, off, bytes + from, len),
					0);
				cr_assert_eq(memcmp(mem, want, sizeof(want)),
					     0);
			}
	rp_pmem_delete(pm);
}

/* Whole lines bypass the caches; exactly the given bytes are stored. */
Test(pmem, store_of_lines_writes_exactly_its_bytes)
{
	static char mem[4096] __attribute__((aligned(4096)));
	struct rp_pmem *pm = make_pmem((uintptr_t)mem, sizeof(mem),
				       RP_METHOD_AGENT_CLWB, NULL);
	char bytes[300], want[512];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)(i + 1);
	for (size_t off = 0; off < 130; off += 8)
		for (size_t len = 64; len < 300; len += 8) {
			memset(mem, 0x7f, sizeof(want));
			memset(want, 0x7f, sizeof(want));
			memcpy(want + off, bytes, len);
			cr_assert_eq(store_bytes(pm, off, bytes, len), 0);
			cr_assert_eq(memcmp(mem, want, sizeof(want)), 0);
		}
	rp_pmem_delete(pm);
}

Test(pmem, store_of_one_word)
{
	static uint64_t mem[512] __attribute__((aligned(4096)));
	struct rp_pmem *pm = make_pmem((uintptr_t)mem, sizeof(mem),
				       RP_METHOD_AGENT_CLWB, NULL);

	rp_pmem_store8(pm, 8, 0x0102030405060708);
	cr_assert_eq(mem[1], 0x0102030405060708);
	cr_assert_eq(mem[0] + mem[2], 0);
	rp_pmem_delete(pm);
}

static void fake_copy(void *ctx, void *to, const void *from, size_t len)
{
	note('c', to, len);
	memcpy(to, from, len);
}

static void fake_stream(void *ctx, void *to, const void *from, size_t len)
{
	note('n', to, len);
	memcpy(to, from, len);
}

/* Whole lines are streamed, other bytes written back; then a drain. */
Test(pmem, stores_of_whole_lines)
{
	static char mem[4096] __attribute__((aligned(4096)));
	struct rp_pmem_ops ops = fake;
	const uintptr_t m = (uintptr_t)mem;
	char bytes[300];
	struct rp_pmem *pm;
	bool durable;

#ifndef __x86_64__
	cr_skip("only known how on x86");
#endif
	ops.copy = fake_copy;
	ops.stream = fake_stream;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)(i + 1);
	pm = make_pmem(m, sizeof(mem), RP_METHOD_AGENT_CLWB, &ops);
	for (size_t off = 0; off < 130; off += 13)
		for (size_t len = 1; len < 300; len += 11) {
			uintptr_t at = m + off, end = at + len, i = 0;
			uintptr_t first = (at + 63) / 64 * 64,
				  last = end / 64 * 64;

			memset(mem, 0, 512);
			nevents = 0;
			cr_assert_eq(
				rp_pmem_store(pm, off, bytes, len, &durable),
				0);
			cr_assert_eq(memcmp(mem + off, bytes, len), 0);
			cr_assert(!mem[off + len] && (!off || !mem[off - 1]));
			cr_assert_eq(durable, first < last);
			if (!durable) {
				expect_event(0, 'c', at, end);
				cr_assert_eq(nevents, 1);
				continue;
			}
			if (at < first) {
				expect_event(i++, 'c', at, first);
				expect_event(i++, 'f', first - 64, first);
			}
			expect_event(i++, 'n', first, last);
			if (last < end) {
				expect_event(i++, 'c', last, end);
				expect_event(i++, 'f', last, last + 64);
			}
			expect_event(i++, 'd', 0, 0);
			cr_assert_eq(nevents, i);
		}
	rp_pmem_delete(pm);
	/* Methods without write-back do not stream. */
	for (enum rp_method how = RP_METHOD_DELIVERY; how < RP_METHOD_MAX;
	     how++) {
		if (how == RP_METHOD_AGENT_CLWB ||
		    rp_pmem_new(mem, sizeof(mem), how, NULL, &ops, &pm))
			continue;
		nevents = 0;
		cr_assert_eq(rp_pmem_store(pm, 0, bytes, 256, &durable), 0);
		expect_event(0, 'c', m, m + 256);
		cr_assert(!durable && nevents == 1);
		rp_pmem_delete(pm);
	}
}

/*
 * Ranges are synced separately until the duration of a sync is known; lines are
 * never synced together.
 */
Test(pmem, ranges_are_synced_apart_until_one_is_measured)
{
	size_t page = sysconf(_SC_PAGESIZE);
	struct rp_pmem *pm =
		make_pmem(4 * page, 8 * page, RP_METHOD_AGENT_MSYNC, &fake);

	cr_assert(!rp_pmem_prefers_span(pm, 2));
	cr_assert_eq(rp_pmem_flush(pm, 0, 1), 0);
	cr_assert(rp_pmem_prefers_span(pm, 2));
	rp_pmem_delete(pm);
	pm = make_pmem(4 * page, 8 * page, RP_METHOD_AGENT_CLWB, &fake);
	cr_assert_eq(rp_pmem_flush(pm, 0, 1), 0);
	cr_assert(!rp_pmem_prefers_span(pm, 2));
	rp_pmem_delete(pm);
}

/* A clock that only syncs advance, and the duration of the next sync. */
static uint64_t clock_ns, took_ns;

static uint64_t clock_now(void *ctx)
{
	return clock_ns;
}

static int clock_sync(void *ctx, void *addr, size_t len)
{
	clock_ns += took_ns;
	return 0;
}

static void sync_one(struct rp_pmem *pm, uint64_t ns)
{
	took_ns = ns;
	cr_assert_eq(rp_pmem_flush(pm, 0, 1), 0);
}

static void sync_two(struct rp_pmem *pm, uint64_t ns)
{
	took_ns = ns;
	cr_assert(rp_pmem_prefers_span(pm, 2));
	cr_assert_eq(rp_pmem_flush_span(pm, 0, 4097, 2), 0);
}

static unsigned int times_apart(struct rp_pmem *pm)
{
	unsigned int n = 0;

	while (!rp_pmem_prefers_span(pm, 2))
		n++;
	return n;
}

/* Ranges are synced together while that takes no longer than separate syncs. */
Test(pmem, ranges_are_synced_together_while_that_is_faster)
{
	const struct rp_pmem_ops ops = {.sync = clock_sync, .now = clock_now};
	size_t page = sysconf(_SC_PAGESIZE);
	struct rp_pmem *pm =
		make_pmem(4 * page, 8 * page, RP_METHOD_AGENT_MSYNC, &ops);

	clock_ns = 1000;
	/* A sync of duration 0 has a known duration. */
	sync_one(pm, 0);
	cr_assert(rp_pmem_prefers_span(pm, 2));
	cr_assert(!rp_pmem_prefers_span(pm, 1));
	sync_one(pm, 1600);
	sync_two(pm, 3201);
	cr_assert_eq(times_apart(pm), 1);
	sync_two(pm, 3201);
	cr_assert_eq(times_apart(pm), 2);
	sync_two(pm, 3201);
	cr_assert_eq(times_apart(pm), 4);
	sync_two(pm, 3200);
	cr_assert_eq(times_apart(pm), 0);
	sync_two(pm, 3201);
	cr_assert_eq(times_apart(pm), 1);
	for (unsigned int n = 2; n < 64; n *= 2) {
		sync_two(pm, 3201);
		cr_assert_eq(times_apart(pm), n);
	}
	for (int i = 0; i < 3; i++) {
		sync_two(pm, 3201);
		cr_assert_eq(times_apart(pm), 64);
	}
	/* A sync faster than the average has a weight of 1/16. */
	sync_one(pm, 0);
	sync_two(pm, 3000);
	cr_assert_eq(times_apart(pm), 0);
	sync_two(pm, 3001);
	cr_assert_eq(times_apart(pm), 1);
	rp_pmem_delete(pm);
}

static int sleepy_sync(void *ctx, void *addr, size_t len)
{
	usleep((useconds_t)took_ns / 1000);
	return 0;
}

/* With the provider's own clock: a sync of 200 ms is not fast. */
Test(pmem, slow_common_sync_is_measured_by_the_real_clock)
{
	const struct rp_pmem_ops ops = {.sync = sleepy_sync};
	size_t page = sysconf(_SC_PAGESIZE);
	struct rp_pmem *pm =
		make_pmem(4 * page, 8 * page, RP_METHOD_AGENT_MSYNC, &ops);

	sync_one(pm, 0);
	sync_two(pm, 200000000);
	cr_assert(!rp_pmem_prefers_span(pm, 2));
	rp_pmem_delete(pm);
}

/* The installed library ignores the variable for fault points. */
Test(pmem, faults_are_not_in_this_build)
{
	struct rp_pmem *pm =
		make_pmem(0x10000, 64, RP_METHOD_AGENT_MSYNC, &fake);

	setenv("RPMEM_FAULT", "skip-flush,fail-flush,slow-flush", 1);
	setenv("RPMEM_FAULT_MS", "60000", 1);
	cr_assert_eq(rp_pmem_flush(pm, 0, 1), 0);
	cr_assert_eq(nevents, 1);
	rp_pmem_delete(pm);
}
