/* SPDX-License-Identifier: BSD-2-Clause */
/* The rules of the memory model for what a NIC writes, one test for each. */
#include <string.h>

#include "model_rig.h"

TestSuite(model_dma, .fini = fini);

/* --- DMA --- */

Test(model_dma, dma_is_cut_at_lines)
{
	uint64_t v[10];

	memset(v, 0xff, sizeof(v));
	make(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_CACHE);
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
	make(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
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

	make(MODEL_DAX_SYNC, MODEL_EADR, MODEL_DMA_MEMORY);
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

	make(MODEL_DAX_SYNC, MODEL_EADR, MODEL_DMA_MEMORY);
	model_dma_write(m, 0, &a[0], &x, sizeof(x));
	dma(0, 0, 0x500000005);
	CUT(0, 0, 1, 0x500000005);
}

Test(model_dma, dma_relaxed_data_overtakes_data)
{
	make_relaxed(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
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

	make_relaxed(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
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
	make(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_CACHE);
	dma(0, 0, 1);
	CUT(0, 0, 1);
	model_dma_step(m, 0);
	CUT(0, 0, 1);
	persist(0);
	CUT(0, 1);
}

Test(model_dma, clwb_does_not_reach_into_the_nic)
{
	make(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_CACHE);
	dma(0, 0, 1);
	persist(0);
	CUT(0, 0, 1);
	model_dma_step(m, 0);
	CUT(0, 0, 1);
}

Test(model_dma, dma_to_memory_is_durable_once_there)
{
	make(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
	dma(0, 0, 1);
	CUT(0, 0, 1);
	model_dma_step(m, 0);
	CUT(0, 1);
}

Test(model_dma, dma_to_memory_does_not_flush_the_cpu)
{
	uint32_t half = 3;

	make(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
	store(0, 0x100000001);
	store(1, 1);
	model_dma_write(m, 0, &a[0], &half, sizeof(half));
	CUT(0, 0, 0x100000001, 3, 0x100000003);
	model_dma_step(m, 0);
	CUT(0, 3, 0x100000003);
	CUT(1, 0, 1);
	persist(0);
	CUT(0, 0x100000003);
}

Test(model_dma, read_with_fence_pushes_its_queue_pair)
{
	uint64_t got = 0;

	make(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
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

	make(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_CACHE);
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
	make(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_CACHE);
	dma(0, 0, 1);
	dma(0, 1, 1);
	dma(0, 2, 1);
	dma(1, 1, 2);
	model_dma_flush(m, 0, &a[0], 9);
	CUT(0, 1);
	CUT(1, 1, 2);
	CUT(2, 0, 1);
	cr_assert_eq(model_dma_pending(m), 1);
}

Test(model_dma, native_flush_leaves_metadata)
{
	make(MODEL_DAX, MODEL_ADR, MODEL_DMA_CACHE);
	dma(0, 0, 1);
	model_dma_flush(m, 0, &a[0], 8);
	CUT(0, 1, LOST);
}

Test(model_dma, dropped_queue_pair_loses_its_pieces)
{
	make(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
	dma(0, 0, 1);
	dma(1, 1, 1);
	dma(0, 2, 1);
	model_dma_drop(m, 0);
	cr_assert_eq(model_dma_pending(m), 1);
	CUT(0, 0);
	CUT(1, 0, 1);
	CUT(2, 0);
}
