/* SPDX-License-Identifier: BSD-2-Clause */
/* The rules of the memory model for writes of a NIC, one test each. */
#include <string.h>

#include "model_rig.h"

TestSuite(model_dma, .fini = model_fini);

/* --- DMA --- */

Test(model_dma, dma_is_cut_at_lines)
{
	uint64_t v[10];

	memset(v, 0xff, sizeof(v));
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_CACHE);
	model_dma_write(m, 0, &a[7], v, sizeof(v));
	cr_assert_eq(model_dma_pending(m), 3);
	cr_assert_eq(model_dma_ready(m), 1);
	model_dma_step(m, 0);
	cr_assert_eq(a[7], UINT64_MAX);
	cr_assert_eq(a[8], 0);
	model_dma_step(m, 0);
	cr_assert_eq(a[8], UINT64_MAX);
	cr_assert_eq(a[15], UINT64_MAX);
	cr_assert_eq(a[16], 0);
}

Test(model_dma, dma_queue_pairs_are_unordered)
{
	make_model(MODEL_DAX_SYNC, MODEL_EADR, MODEL_DMA_MEMORY);
	dma(1, 0, 1);
	dma(1, 0, 2);
	dma(2, 0, 3);
	cr_assert_eq(model_dma_ready(m), 2);
	CUT(0, 0, 1, 2, 3);
	model_dma_step(m, 1);
	cr_assert_eq(a[0], 3);
	CUT(0, 3, 1, 2);
	model_dma_step(m, 0);
	CUT(0, 1, 2);
}

Test(model_dma, dma_order_shows_in_partial_words)
{
	uint32_t x = 1, y = 2;

	make_model(MODEL_DAX_SYNC, MODEL_EADR, MODEL_DMA_MEMORY);
	model_dma_write(m, 0, &a[0], &x, sizeof(x));
	model_dma_write(m, 0, (char *)a + 4, &y, sizeof(y));
	CUT(0, 0, 1, 0x200000001);
	model_dma_drop(m, 0);
	model_dma_write(m, 0, &a[0], &x, sizeof(x));
	model_dma_write(m, 1, (char *)a + 4, &y, sizeof(y));
	CUT(0, 0, 1, 0x200000000, 0x200000001);
}

Test(model_dma, dma_newer_piece_is_never_below_an_older_one)
{
	uint32_t x = 1;

	make_model(MODEL_DAX_SYNC, MODEL_EADR, MODEL_DMA_MEMORY);
	model_dma_write(m, 0, &a[0], &x, sizeof(x));
	dma(0, 0, 0x500000005);
	CUT(0, 0, 1, 0x500000005);
}

Test(model_dma, dma_relaxed_data_overtakes_data)
{
	make_relaxed(MODEL_DAX_SYNC, MODEL_EADR, MODEL_DMA_MEMORY);
	dma(1, 0, 1);
	dma(1, 1, 2);
	cr_assert_eq(model_dma_ready(m), 2);
	model_dma_step(m, 1);
	cr_assert_eq(a[1], 2);
	CUT(0, 0, 1);
	CUT(1, 2);
}

Test(model_dma, dma_completion_never_overtakes)
{
	uint64_t c;

	make_relaxed(MODEL_DAX_SYNC, MODEL_EADR, MODEL_DMA_MEMORY);
	dma(1, 0, 1);
	dma(1, 1, 1);
	dma(2, 2, 1);
	c = model_dma_completion(m, 1);
	dma(1, 3, 1);
	model_dma_see(m, c);
	cr_assert_eq(a[0], 1);
	cr_assert_eq(a[1], 1);
	cr_assert_eq(a[2], 0);
	cr_assert_eq(a[3], 0);
	CUT(0, 1);
	CUT(1, 1);
	cr_assert_lt(c, model_dma_completion(m, 0));
}

Test(model_dma, dma_to_cache_is_not_durable)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_CACHE);
	dma(0, 0, 1);
	CUT(0, 0, 1);
	model_dma_step(m, 0);
	CUT(0, 0, 1);
	persist(0);
	CUT(0, 1);
}

Test(model_dma, clwb_does_not_reach_into_the_nic)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_CACHE);
	dma(0, 0, 1);
	persist(0);
	CUT(0, 0, 1);
	model_dma_step(m, 0);
	CUT(0, 0, 1);
}

Test(model_dma, read_with_fence_pushes_its_queue_pair)
{
	uint64_t got = 0;

	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
	dma(0, 0, 1);
	dma(1, 1, 1);
	model_dma_read(m, 0, &a[0], &got, sizeof(got));
	cr_assert_eq(got, 1);
	CUT(0, 1);
	CUT(1, 0, 1);
	cr_assert_eq(model_dma_pending(m), 1);
}

Test(model_dma, read_with_fence_pushes_into_the_cache_only)
{
	uint64_t got = 0;

	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_CACHE);
	dma(0, 0, 1);
	model_dma_read(m, 0, &a[0], &got, sizeof(got));
	cr_assert_eq(got, 1);
	CUT(0, 0, 1);
}

Test(model_dma, read_without_fence_pushes_nothing)
{
	struct model_cfg cfg = {.kind = MODEL_DAX_SYNC,
				.domain = MODEL_ADR,
				.place = MODEL_DMA_MEMORY};
	uint64_t got = 1;

	m = model_new(&cfg);
	a = model_alloc(m, MODEL_PAGE);
	dma(0, 0, 1);
	model_dma_read(m, 0, &a[0], &got, sizeof(got));
	cr_assert_eq(got, 0);
	CUT(0, 0, 1);
}

Test(model_dma, native_flush_guarantees_its_range)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_CACHE);
	dma(0, 0, 1);
	dma(0, 1, 1);
	dma(0, 2, 1);
	dma(1, 1, 2);
	model_dma_flush(m, 0, MODEL_PERSISTENT, &a[0], 9);
	CUT(0, 1);
	CUT(1, 1, 2);
	CUT(2, 0, 1);
	cr_assert_eq(model_dma_pending(m), 1);
}

Test(model_dma, native_flush_of_the_visible_level)
{
	struct model_cfg cfg = {.kind = MODEL_DAX_SYNC,
				.domain = MODEL_ADR,
				.place = MODEL_DMA_CACHE,
				.levels = MODEL_VISIBLE};

	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_CACHE);
	dma(0, 0, 1);
	cr_assert(model_dma_flush(m, 0, MODEL_VISIBLE, &a[0], 8));
	cr_assert_eq(a[0], 1);
	CUT(0, 0, 1);
	model_fini();
	/* A NIC with one level of FLUSH only. */
	m = model_new(&cfg);
	a = model_alloc(m, MODEL_PAGE);
	dma(0, 0, 1);
	cr_assert(!model_dma_flush(m, 0, MODEL_PERSISTENT, &a[0], 8));
	cr_assert_eq(a[0], 0);
}

Test(model_dma, native_flush_leaves_metadata)
{
	make_model(MODEL_DAX, MODEL_ADR, MODEL_DMA_CACHE);
	dma(0, 0, 1);
	model_dma_flush(m, 0, MODEL_PERSISTENT, &a[0], 8);
	CUT(0, 1, LOST);
}

Test(model_dma, dropped_queue_pair_loses_its_pieces)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
	dma(0, 0, 1);
	dma(1, 1, 1);
	dma(0, 2, 1);
	model_dma_drop(m, 0);
	cr_assert_eq(model_dma_pending(m), 1);
	CUT(0, 0);
	CUT(1, 0, 1);
	CUT(2, 0);
}

/* --- DMA past the cache: writes in the root complex --- */

static void dma_half(unsigned int qp, unsigned int half, uint32_t v)
{
	model_dma_write(m, qp, (uint32_t *)a + half, &v, sizeof(v));
}

static void nic_reads(unsigned int qp)
{
	uint64_t got;

	model_dma_read(m, qp, &a[0], &got, sizeof(got));
	cr_assert_eq(got, a[0]);
}

Test(model_dma, visible_is_not_durable_yet)
{
	uint64_t c;

	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
	dma(0, 0, 1);
	c = model_dma_completion(m, 0);
	CUT(0, 0, 1);
	model_dma_see(m, c);
	cr_assert_eq(a[0], 1);
	CUT(0, 0, 1);
	KILL(0, 1);
	/* msync writes back neither the bytes of a NIC nor a clean page. */
	model_sfence(m);
	cr_assert_eq(model_msync(m, a, MODEL_PAGE), 0);
	CUT(0, 0, 1);
}

Test(model_dma, clwb_and_sfence_reach_into_the_root_complex)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
	dma_now(0, 1);
	model_clwb(m, &a[0], 8);
	CUT(0, 0, 1);
	dma_now(0, 2);
	CUT(0, 0, 1, 2);
	model_sfence(m);
	CUT(0, 1, 2);
}

Test(model_dma, msync_of_a_dirty_page_reaches_into_the_root_complex)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
	store(1, 1);
	dma_now(0, 1);
	/* A page written back before the DMA is clean. */
	cr_assert_eq(model_msync(m, a, MODEL_PAGE), 0);
	CUT(0, 0, 1);
	store(1, 2);
	cr_assert_eq(model_msync(m, a, MODEL_PAGE), 0);
	CUT(0, 1);
}

Test(model_dma, read_with_fence_reaches_into_the_root_complex)
{
	uint64_t v[2] = {1, 1};

	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
	model_dma_write(m, 0, &a[0], v, sizeof(v));
	dma(1, 2, 1);
	while (model_dma_ready(m))
		model_dma_step(m, 0);
	CUT(0, 0, 1);
	nic_reads(2);
	CUT(0, 0, 1);
	nic_reads(0);
	CUT(0, 1);
	CUT(1, 1);
	CUT(2, 0, 1);
	/* The read fence covers earlier writes only. */
	dma(0, 0, 2);
	model_dma_step(m, 0);
	CUT(0, 1, 2);
	nic_reads(0);
	CUT(0, 2);
}

Test(model_dma, read_without_fence_does_not_reach_into_the_root_complex)
{
	struct model_cfg cfg = {.kind = MODEL_DAX_SYNC,
				.domain = MODEL_ADR,
				.place = MODEL_DMA_MEMORY};

	m = model_new(&cfg);
	a = model_alloc(m, MODEL_PAGE);
	dma_now(0, 1);
	nic_reads(9);
	CUT(0, 0, 1);
}

Test(model_dma, native_flush_reaches_into_the_root_complex)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
	dma_now(0, 1);
	dma_now(1, 1);
	dma_now(2, 1);
	model_dma_flush(m, 9, MODEL_PERSISTENT, &a[0], 9);
	CUT(0, 1);
	CUT(1, 1);
	CUT(2, 0, 1);
}

Test(model_dma, root_complex_keeps_the_order_of_a_word)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
	dma_half(0, 0, 1);
	dma_half(1, 1, 2);
	model_dma_step(m, 0);
	/* One half is in the root complex, the other has not arrived. */
	CUT(0, 0, 1, 0x200000001);
	model_dma_step(m, 0);
	CUT(0, 0, 1, 0x200000001);
	dma_half(0, 0, 3);
	model_dma_step(m, 0);
	CUT(0, 0, 1, 0x200000001, 0x200000003);
	/* A read also pushes out other queue pairs' writes to the word. */
	nic_reads(1);
	CUT(0, 0x200000001, 0x200000003);
}

Test(model_dma, value_that_came_back_counts_as_new)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
	dma_now(0, 1);
	dma(1, 0, 2);
	model_dma_step(m, 0);
	dma_now(0, 1);
	CUT(0, 0, 1, 2);
	nic_reads(1);
	CUT(0, 1, 2);
}

static uint64_t pick_never(void *ctx, uint64_t below)
{
	(void)ctx;
	cr_assert_fail("requested one of %u", (unsigned int)below);
	return 0;
}

Test(model_dma, same_bytes_again_are_no_choice)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
	dma_now(0, 1);
	nic_reads(9);
	dma_now(0, 1);
	model_cut(m, pick_never, NULL);
	cr_assert_eq(a[0], 1);
}

Test(model_dma, root_complex_keeps_no_order_between_words)
{
	struct seeded s = seeded_start();
	bool first = false, second = false;

	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
	for (int i = 0; i < 100; i++) {
		model_reset(m);
		dma_now(0, 1);
		dma_now(1, 1);
		model_cut(m, pick_seeded, &s);
		first = first || (a[0] && !a[1]);
		second = second || (a[1] && !a[0]);
	}
	cr_assert(first && second, "seed %#lx", (unsigned long)s.seed);
}

Test(model_dma, nic_and_cpu_wait_each_for_themselves)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
	store(0, 0x100000001);
	store(1, 1);
	dma_half(0, 0, 3);
	CUT(0, 0, 0x100000001, 3, 0x100000003);
	model_dma_step(m, 0);
	CUT(0, 0, 0x100000001, 3, 0x100000003);
	nic_reads(0);
	CUT(0, 3, 0x100000003);
	CUT(1, 0, 1);
	persist(0);
	CUT(0, 0x100000003);
}

Test(model_dma, fence_drops_what_lacks_the_store)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
	store(0, 0x100000001);
	model_clwb(m, &a[0], 8);
	dma_half(0, 0, 3);
	model_dma_step(m, 0);
	model_sfence(m);
	CUT(0, 0x100000001, 0x100000003);
}

/* A store puts NIC bytes that the CPU sees into its cache line. */
Test(model_dma, evicted_line_takes_along_what_waited)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
	dma_half(0, 0, 3);
	model_dma_step(m, 0);
	store(0, 0x500000003);
	CUT(0, 0, 3, 0x500000003);
	dma_half(1, 0, 4);
	model_dma_step(m, 0);
	CUT(0, 0, 3, 0x500000003, 4, 0x500000004);
}

Test(model_dma, eadr_contains_the_root_complex)
{
	make_model(MODEL_DAX_SYNC, MODEL_EADR, MODEL_DMA_MEMORY);
	dma(0, 0, 1);
	CUT(0, 0, 1);
	model_dma_step(m, 0);
	CUT(0, 1);
}

Test(model_dma, dropped_queue_pair_pushes_nothing)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
	dma_now(0, 1);
	model_dma_drop(m, 9);
	nic_reads(9);
	CUT(0, 0, 1);
	persist(0);
	CUT(0, 1);
}

Test(model_dma, nothing_waits_behind_a_cut_or_a_reset)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
	for (int reset = 0; reset < 2; reset++) {
		dma_now(0, 1);
		dma_now(0, 2);
		if (reset)
			model_reset(m);
		else
			model_cut(m, NULL, NULL);
		CUT(0, 0);
		dma(8, 0, 3);
		dma(8, 0, 4);
		model_dma_step(m, 0);
		model_dma_step(m, 0);
		nic_reads(9);
		CUT(0, 0, 3, 4);
		model_reset(m);
	}
}

/* --- values after one more step --- */

#define SOON(word, ...)	     WANT(model_after_cut_ready, word, __VA_ARGS__)
#define SOON_KILL(word, ...) WANT(model_after_kill_ready, word, __VA_ARGS__)

Test(model_dma, soon_goes_no_further_than_what_is_ready)
{
	uint64_t v[2] = {1, 1};

	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
	model_dma_write(m, 0, &a[0], v, sizeof(v));
	dma(0, 0, 2);
	dma(0, 8, 2);
	dma(1, 9, 1);
	CUT(0, 0, 1, 2);
	CUT(8, 0, 2);
	SOON(0, 0, 1);
	SOON(1, 0, 1);
	SOON(8, 0);
	SOON(9, 0, 1);
	SOON_KILL(0, 0, 1);
	SOON_KILL(8, 0);
	SOON_KILL(9, 0, 1);
	model_dma_step(m, 0);
	SOON(0, 0, 1, 2);
	SOON(8, 0);
	SOON_KILL(0, 1, 2);
	model_dma_step(m, 0);
	SOON(8, 0, 2);
	SOON_KILL(8, 0, 2);
}

Test(model_dma, soon_is_any_order_of_what_is_ready)
{
	make_model(MODEL_DAX_SYNC, MODEL_EADR, MODEL_DMA_MEMORY);
	dma_half(0, 0, 1);
	dma_half(1, 1, 2);
	dma_half(2, 0, 3);
	SOON(0, 0, 1, 3, 0x200000000, 0x200000001, 0x200000003);
}

Test(model_dma, soon_relaxed_is_after_cut)
{
	make_relaxed(MODEL_DAX_SYNC, MODEL_EADR, MODEL_DMA_MEMORY);
	dma(0, 0, 1);
	dma(0, 8, 1);
	SOON(0, 0, 1);
	SOON(8, 0, 1);
}

Test(model_dma, soon_of_a_page_in_the_page_cache)
{
	make_model(MODEL_FILE, MODEL_ADR, MODEL_DMA_CACHE);
	dma(0, 0, 1);
	dma(0, 0, 2);
	SOON(0, 0);
	SOON_KILL(0, 0, 1);
	store(1, 1);
	SOON(0, 0, 1);
}

Test(model_dma, soon_in_the_cache)
{
	make_model(MODEL_DAX, MODEL_ADR, MODEL_DMA_CACHE);
	dma(0, 0, 1);
	dma(0, 0, 2);
	SOON(0, 0, 1, LOST);
	SOON_KILL(0, 0, 1);
}

Test(model_dma, soon_where_everything_survives)
{
	make_model(MODEL_DAX_SYNC, MODEL_SYSTEM, MODEL_DMA_MEMORY);
	dma(0, 0, 1);
	dma(0, 8, 1);
	SOON(8, 1);
	SOON_KILL(8, 0);
}

Test(model_dma, soon_what_survives_nothing)
{
	make_model(MODEL_ANON, MODEL_SYSTEM, MODEL_DMA_MEMORY);
	dma(0, 0, 1);
	SOON(0, LOST);
	SOON_KILL(0, LOST);
}
