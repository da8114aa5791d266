/* How often madvise() is called to populate the pages of a region. */
/* How often madvise() is called for the pages of a region. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <criterion/criterion.h>

#include "core/pmem.h"

#define CHUNK (2ul << 20)
enum {
	BEFORE = 4096 + 10, /* region's offset in its first chunk */
	BEHIND = 100,	    /* region's bytes in its last page */
};

/* Calls of madvise(), wrapped by the linker. */
static struct {
	uintptr_t start;
	size_t len;
} calls[8];
static int ncalls, refusal;
static size_t refused_len; /* longer calls are refused */
static bool old_kernel;	   /* a kernel without MADV_POPULATE_* */
int __wrap_madvise(void *addr, size_t len, int advice);
int __wrap_madvise(void *addr, size_t len, int advice)
{
	/* rp_pmem probes for MADV_POPULATE_READ on memory of its own. */
	if (advice == MADV_POPULATE_READ) {
		errno = EINVAL;
		return old_kernel ? -1 : 0;
	}
	cr_assert_eq(advice, MADV_POPULATE_WRITE);
	cr_assert_lt(ncalls, 8);
	calls[ncalls].start = (uintptr_t)addr;
	calls[ncalls++].len = len;
	errno = refusal;
	return refusal && len >= refused_len ? -1 : 0;
}

static char *room, *base;
static size_t len;
static struct rp_pmem *pm;

static void make_file(void)
{
	room = aligned_alloc(CHUNK, 4 * CHUNK);
	cr_assert(room);
	memset(room, 0, 4 * CHUNK);
	base = room + BEFORE;
	len = 3 * CHUNK + BEHIND - BEFORE;
	cr_assert_eq(
		rp_pmem_new(base, len, RP_METHOD_AGENT_CLWB, NULL, NULL, &pm),
		0);
}

static void unmap_file(void)
{
	rp_pmem_delete(pm);
	free(room);
}

static void expect_error(int i, char *from, size_t n)
{
	cr_assert_eq(calls[i].start, (uintptr_t)from, "%d", i);
	cr_assert_eq(calls[i].len, n, "%d: %zu", i, calls[i].len);
}

/* Store 8 bytes at this address. */
static int store_word(char *at)
{
	return rp_pmem_place(pm, (uint64_t)(at - base), "12345678", 8);
}

TestSuite(pmem_populate, .init = make_file, .fini = unmap_file);

Test(pmem_populate, file_is_populated_at_each_store)
{
	for (int i = 0; i < 4; i++)
		cr_assert_eq(store_word(room + 8192), 0);
	cr_assert_eq(ncalls, 4);
	expect_error(3, room + 8192, 4096);
}

Test(pmem_populate, a_device_once_for_each_chunk)
{
	rp_pmem_keep_populated(pm);
	for (char *at = base; at < base + len - 8; at += 64)
		cr_assert_eq(store_word(at), 0);
	cr_assert_eq(ncalls, 4);
	/* No page before the region's first or behind its last. */
	expect_error(0, room + 4096, CHUNK - 4096);
	expect_error(1, room + CHUNK, CHUNK);
	expect_error(2, room + 2 * CHUNK, CHUNK);
	expect_error(3, room + 3 * CHUNK, 4096);
}

Test(pmem_populate, anonymous_memory_is_never_populated)
{
	rp_pmem_set_anonymous(pm);
	cr_assert_eq(store_word(room + 8192), 0);
	cr_assert_eq(ncalls, 0);
	cr_assert_eq(memcmp(room + 8192, "12345678", 8), 0);
}

Test(pmem_populate, over_the_end_of_a_chunk)
{
	rp_pmem_keep_populated(pm);
	cr_assert_eq(store_word(room + 2 * CHUNK - 8), 0);
	cr_assert_eq(ncalls, 1, "the next is not touched");
	cr_assert_eq(store_word(room + 2 * CHUNK - 7), 0);
	cr_assert_eq(ncalls, 2);
	expect_error(1, room + 2 * CHUNK, CHUNK);
	cr_assert_eq(memcmp(room + 2 * CHUNK - 7, "12345678", 8), 0);
}

/* A refused chunk is tried again at the next store, and no byte is stored. */
Test(pmem_populate, a_refusal_is_not_kept)
{
	rp_pmem_keep_populated(pm);
	refusal = EHWPOISON;
	cr_assert_eq(store_word(base), -EHWPOISON);
	cr_assert_eq(store_word(base), -EHWPOISON);
	/* Each store makes two calls: for the chunk, for its bytes. */
	cr_assert_eq(ncalls, 4);
	cr_assert_eq(*base, 0);
	refusal = 0;
	cr_assert_eq(store_word(base), 0);
	cr_assert_eq(store_word(base), 0);
	cr_assert_eq(ncalls, 5);
	/* A kernel without the advice gets one call only. */
	refusal = EINVAL;
	old_kernel = true;
	cr_assert_eq(store_word(room + CHUNK), 0);
	cr_assert_eq(store_word(room + CHUNK), 0);
	cr_assert_eq(ncalls, 6);
}

/* Newer kernels return EINVAL for pages that may not be written. */
Test(pmem_populate, page_without_permission_refuses_the_store)
{
	rp_pmem_keep_populated(pm);
	refusal = EINVAL;
	cr_assert_eq(store_word(room + CHUNK), -EACCES);
	cr_assert_eq(store_word(room + CHUNK), -EACCES);
	cr_assert_eq(ncalls, 4);
}

Test(pmem_populate, a_bad_page_fails_only_the_stores_to_it)
{
	rp_pmem_keep_populated(pm);
	refusal = EHWPOISON;
	refused_len = 8192;
	cr_assert_eq(store_word(room + CHUNK), 0);
	cr_assert_eq(memcmp(room + CHUNK, "12345678", 8), 0);
	cr_assert_eq(ncalls, 2);
	expect_error(0, room + CHUNK, CHUNK);
	expect_error(1, room + CHUNK, 4096);
	/* The refused chunk does not count as populated. */
	cr_assert_eq(store_word(room + CHUNK), 0);
	cr_assert_eq(ncalls, 4);
}
