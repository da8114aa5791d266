/* SPDX-License-Identifier: BSD-2-Clause */
/* The rules of the memory model, one test each; DMA: test_model_dma.c. */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model_rig.h"

TestSuite(model, .fini = model_fini);

/* --- memory --- */

Test(model, owns_what_it_allocated)
{
	uint64_t *b;

	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_CPU_USER);
	b = model_alloc(m, MODEL_PAGE);
	cr_assert_eq((uintptr_t)b % MODEL_PAGE, 0);
	cr_assert(model_owns(m, a));
	cr_assert(model_owns(m, (char *)a + 2 * MODEL_PAGE - 1));
	cr_assert(model_owns(m, b));
	cr_assert_not(model_owns(m, &b));
	cr_assert_null(model_alloc(m, 100));
}

Test(model, untouched_memory_is_on_the_media)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_CPU_USER);
	CUT(3, 0);
	KILL(3, 0);
}

Test(model, reset_is_as_new)
{
	make_model(MODEL_DAX, MODEL_ADR, MODEL_DMA_CACHE);
	store(0, 1);
	dma(0, 1, 2);
	dma_now(600, 2);
	cr_assert_eq(model_msync(m, a, MODEL_PAGE), 0);
	model_clwb(m, a, 8);
	model_reset(m);
	cr_assert_eq(a[0], 0);
	cr_assert_eq(a[600], 0);
	cr_assert_eq(model_dma_pending(m), 0);
	CUT(0, 0, LOST);
	CUT(1, 0, LOST);
	store(0, 3);
	model_sfence(m);
	CUT(0, 0, 3, LOST);
}

Test(model, other_memory_is_plain)
{
	uint64_t dram = 0, v = 7;

	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_CACHE);
	model_dma_write(m, 0, &dram, &v, sizeof(v));
	cr_assert_eq(dram, 0);
	model_dma_step(m, 0);
	cr_assert_eq(dram, 7);
	v = 8;
	model_store(m, MODEL_CPU_USER, &dram, &v, sizeof(v));
	model_clwb(m, &dram, sizeof(dram));
	model_sfence(m);
	cr_assert_eq(dram, 8);
	cr_assert_eq(model_msync(m, (void *)MODEL_PAGE, 1), -ENOMEM);
	cr_assert_eq(model_msync(m, a + 1, 1), -EINVAL);
}

/* --- DAX, memory controller --- */

Test(model, adr_store_may_be_evicted)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_CPU_USER);
	store(0, 1);
	store(0, 2);
	cr_assert_eq(a[0], 2);
	CUT(0, 0, 1, 2);
	CUT(1, 0);
}

Test(model, adr_clwb_alone_guarantees_nothing)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_CPU_USER);
	store(0, 1);
	model_clwb(m, &a[0], 8);
	CUT(0, 0, 1);
}

Test(model, adr_sfence_alone_guarantees_nothing)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_CPU_USER);
	store(0, 1);
	model_sfence(m);
	CUT(0, 0, 1);
}

Test(model, adr_clwb_and_sfence_guarantee)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_CPU_USER);
	store(0, 1);
	store(0, 2);
	persist(0);
	CUT(0, 2);
}

Test(model, adr_clwb_takes_the_whole_line_and_no_other)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_CPU_USER);
	store(0, 1);
	store(7, 1);
	store(8, 1);
	persist(3);
	CUT(0, 1);
	CUT(7, 1);
	CUT(8, 0, 1);
	model_clwb(m, (char *)&a[8] - 1, 2);
	model_sfence(m);
	CUT(8, 1);
}

Test(model, adr_store_after_clwb_is_only_possible)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_CPU_USER);
	store(0, 1);
	model_clwb(m, &a[0], 8);
	store(0, 2);
	store(0, 3);
	CUT(0, 0, 1, 2, 3);
	model_sfence(m);
	CUT(0, 1, 2, 3);
	model_sfence(m);
	CUT(0, 1, 2, 3);
}

Test(model, adr_value_that_came_back_counts_as_new)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_CPU_USER);
	store(0, 1);
	store(0, 2);
	model_clwb(m, &a[0], 8);
	store(0, 1);
	model_sfence(m);
	CUT(0, 1, 2);
}

Test(model, adr_latest_clwb_counts)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_CPU_USER);
	store(0, 1);
	model_clwb(m, &a[0], 8);
	store(0, 2);
	model_clwb(m, &a[0], 8);
	store(0, 3);
	model_sfence(m);
	CUT(0, 2, 3);
}

Test(model, adr_nt_store_is_durable_after_sfence)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_CPU_USER);
	store_nt(0, 1);
	cr_assert_eq(a[0], 1);
	CUT(0, 0, 1);
	store(1, 1);
	model_sfence(m);
	CUT(0, 1);
	CUT(1, 0, 1);
	store_nt(0, 2);
	store(0, 3);
	model_sfence(m);
	CUT(0, 2, 3);
}

Test(model, adr_words_do_not_tear)
{
	uint32_t half = 0x22222222;

	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_CPU_USER);
	store(0, 0x1111111111111111);
	persist(0);
	model_store(m, MODEL_CPU_USER, &a[0], &half, sizeof(half));
	CUT(0, 0x1111111111111111, 0x1111111122222222);
}

Test(model, adr_unaligned_store_tears_between_words)
{
	uint64_t v = UINT64_MAX;

	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_CPU_USER);
	model_store(m, MODEL_CPU_USER, (char *)a + 6, &v, sizeof(v));
	CUT(0, 0, 0xffff000000000000);
	CUT(1, 0, 0x0000ffffffffffff);
	CUT(2, 0);
}

/* --- DAX, other domains --- */

Test(model, eadr_store_survives_at_once)
{
	make_model(MODEL_DAX_SYNC, MODEL_EADR, MODEL_CPU_USER);
	store(0, 1);
	store(0, 2);
	CUT(0, 2);
}

Test(model, eadr_nt_store_needs_sfence)
{
	make_model(MODEL_DAX_SYNC, MODEL_EADR, MODEL_CPU_USER);
	store(0, 1);
	store_nt(0, 2);
	CUT(0, 1, 2);
	model_sfence(m);
	CUT(0, 2);
	store_nt(0, 3);
	store(0, 4);
	CUT(0, 4);
}

Test(model, eadr_loses_the_buffers_of_the_nic)
{
	make_model(MODEL_DAX_SYNC, MODEL_EADR, MODEL_DMA_MEMORY);
	dma(0, 0, 1);
	CUT(0, 0, 1);
	model_dma_step(m, 0);
	CUT(0, 1);
	dma(0, 0, 2);
	dma(0, 0, 3);
	CUT(0, 1, 2, 3);
	model_cut(m, NULL, NULL);
	cr_assert_eq(a[0], 1);
	cr_assert_eq(model_dma_pending(m), 0);
}

Test(model, eadr_dma_does_not_push_nt_stores)
{
	uint32_t half = 2;

	make_model(MODEL_DAX_SYNC, MODEL_EADR, MODEL_DMA_CACHE);
	store_nt(0, 0x100000001);
	model_dma_write(m, 0, &a[0], &half, sizeof(half));
	model_dma_step(m, 0);
	CUT(0, 2, 0x100000002);
}

Test(model, system_keeps_everything)
{
	make_model(MODEL_DAX_SYNC, MODEL_SYSTEM, MODEL_DMA_CACHE);
	store(0, 1);
	CUT(0, 1);
	store_nt(0, 2);
	CUT(0, 2);
	dma(0, 0, 3);
	CUT(0, 3);
	dma(0, 0, 4);
	CUT(0, 4);
	dma(1, 0, 5);
	CUT(0, 4, 5);
	model_cut(m, NULL, NULL);
	cr_assert_eq(a[0], 5);
	cr_assert_eq(model_dma_pending(m), 0);
}

Test(model, system_relaxed_any_piece_may_be_last)
{
	uint32_t half = 9;

	make_relaxed(MODEL_DAX_SYNC, MODEL_SYSTEM, MODEL_DMA_MEMORY);
	dma(0, 0, 1);
	dma(0, 0, 2);
	dma(0, 0, 3);
	CUT(0, 1, 2, 3);
	model_dma_write(m, 0, &a[1], &half, sizeof(half));
	dma(0, 1, 0x500000005);
	CUT(1, 0x500000005, 0x500000009);
}

Test(model, flushed_keeps_what_msync_wrote)
{
	make_model(MODEL_DAX_SYNC, MODEL_FLUSHED, MODEL_CPU_USER);
	store(0, 1);
	persist(0);
	CUT(0, 0, 1);
	KILL(0, 1);
	model_msync(m, a, MODEL_PAGE);
	CUT(0, 1);
	store(0, 2);
	persist(0);
	model_cut(m, NULL, NULL);
	cr_assert_eq(a[0], 1);
}

/* In domain none, msync brings bytes only to a DIMM that loses them. */
static void check_none(enum model_kind kind)
{
	make_model(kind, MODEL_NONE, MODEL_CPU_USER);
	store(0, 1);
	persist(0);
	model_msync(m, a, MODEL_PAGE);
	CUT(0, 1, LOST);
	KILL(0, 1);
	model_cut(m, NULL, NULL);
	cr_assert_eq(a[0], 0);
}

Test(model, none_keeps_no_dax)
{
	check_none(MODEL_DAX);
}

Test(model, none_keeps_no_dax_sync)
{
	check_none(MODEL_DAX_SYNC);
}

Test(model, flushed_without_dirty_pages_keeps_nothing)
{
	make_model(MODEL_DAX_SYNC, MODEL_FLUSHED, MODEL_DMA_MEMORY);
	dma(0, 0, 1);
	model_dma_flush(m, 0, MODEL_PERSISTENT, a, MODEL_WORD);
	persist(0);
	model_msync(m, a, MODEL_PAGE);
	CUT(0, 0, 1);
}

Test(model, a_disk_that_fails_leaves_clean_pages)
{
	make_model(MODEL_FILE, MODEL_NONE, MODEL_CPU_USER);
	store(0, 1);
	cr_assert_eq(model_msync_fails(m, a, MODEL_PAGE), -EIO);
	CUT(0, 0, 1);
	cr_assert_eq(model_msync(m, a, MODEL_PAGE), 0);
	CUT(0, 0, 1);
	store(0, 1);
	cr_assert_eq(model_msync(m, a, MODEL_PAGE), 0);
	CUT(0, 1);
}

Test(model, none_still_has_a_disk)
{
	make_model(MODEL_FILE, MODEL_NONE, MODEL_CPU_USER);
	store(0, 1);
	model_msync(m, a, MODEL_PAGE);
	CUT(0, 1);
}

/* --- the page cache of a file --- */

Test(model, file_msync_writes_dirty_pages)
{
	make_model(MODEL_FILE, MODEL_ADR, MODEL_CPU_USER);
	store(0, 1);
	store(0, 2);
	store(600, 1);
	CUT(0, 0, 1, 2);
	cr_assert_eq(model_msync(m, a, MODEL_PAGE), 0);
	CUT(0, 2);
	CUT(600, 0, 1);
	model_msync(m, a, MODEL_PAGE + 1);
	CUT(600, 1);
}

Test(model, file_does_not_care_for_cpu_caches)
{
	make_model(MODEL_FILE, MODEL_SYSTEM, MODEL_CPU_USER);
	store(0, 1);
	persist(0);
	store_nt(1, 1);
	model_sfence(m);
	CUT(0, 0, 1);
	CUT(1, 0, 1);
}

Test(model, file_nt_stores_dirty_the_page)
{
	make_model(MODEL_FILE, MODEL_ADR, MODEL_CPU_USER);
	store_nt(0, 1);
	model_msync(m, a, MODEL_PAGE);
	CUT(0, 1);
}

Test(model, file_msync_leaves_clean_pages)
{
	make_model(MODEL_FILE, MODEL_ADR, MODEL_DMA_CACHE);
	store_kernel(0, 1);
	dma_now(1, 1);
	CUT(0, 0);
	CUT(1, 0);
	model_msync(m, a, MODEL_PAGE);
	CUT(0, 0);
	CUT(1, 0);
	KILL(0, 1);
	KILL(1, 1);
}

Test(model, file_dirty_page_is_written_whole)
{
	make_model(MODEL_FILE, MODEL_ADR, MODEL_DMA_CACHE);
	dma_now(0, 1);
	store_kernel(1, 1);
	dma_now(600, 1);
	store(100, 1);
	CUT(0, 0, 1);
	CUT(1, 0, 1);
	CUT(600, 0);
	model_msync(m, a, 2 * MODEL_PAGE);
	CUT(0, 1);
	CUT(1, 1);
	CUT(600, 0);
}

/* The page may be written back before the DMA, which leaves it clean. */
Test(model, file_write_back_may_come_before_dma)
{
	make_model(MODEL_FILE, MODEL_ADR, MODEL_DMA_CACHE);
	store(0, 1);
	dma_now(0, 2);
	dma_now(1, 2);
	model_msync(m, a, MODEL_PAGE);
	CUT(0, 1, 2);
	CUT(1, 0, 2);
	store(2, 1);
	model_msync(m, a, MODEL_PAGE);
	CUT(0, 2);
	CUT(1, 2);
}

Test(model, file_pieces_count_once_the_page_is_dirty)
{
	make_model(MODEL_FILE, MODEL_SYSTEM, MODEL_DMA_CACHE);
	dma(0, 0, 1);
	CUT(0, 0);
	KILL(0, 0, 1);
	store(1, 1);
	CUT(0, 0, 1);
}

/* --- DAX and metadata of the file system --- */

Test(model, dax_needs_msync_for_metadata)
{
	make_model(MODEL_DAX, MODEL_ADR, MODEL_DMA_MEMORY);
	CUT(0, 0, LOST);
	store(0, 1);
	persist(0);
	CUT(0, 1, LOST);
	KILL(0, 1);
	model_msync(m, a, MODEL_PAGE);
	CUT(0, 1);
	CUT(512, 0, LOST);
}

Test(model, dax_cut_zeroes_what_had_no_metadata)
{
	make_model(MODEL_DAX, MODEL_ADR, MODEL_DMA_MEMORY);
	store(0, 1);
	store(512, 2);
	model_msync(m, a, MODEL_PAGE);
	persist(512);
	model_cut(m, NULL, NULL);
	cr_assert_eq(a[0], 1);
	cr_assert_eq(a[512], 0);
}

static void msync_flushes_what_the_user_stored(enum model_kind kind)
{
	make_model(kind, MODEL_ADR, MODEL_DMA_CACHE);
	store(0, 1);
	store_nt(1, 1);
	model_msync(m, a, 2 * MODEL_PAGE);
	CUT(0, 1);
	CUT(1, 1);
	dma_now(0, 2);
	store_kernel(1, 2);
	store_kernel(512, 2);
	model_msync(m, a, 2 * MODEL_PAGE);
	CUT(0, 1, 2);
	CUT(1, 1, 2);
	CUT(512, 0, 2);
}

Test(model, dax_msync_flushes_what_the_user_stored)
{
	msync_flushes_what_the_user_stored(MODEL_DAX);
}

Test(model, dax_sync_msync_flushes_what_the_user_stored)
{
	msync_flushes_what_the_user_stored(MODEL_DAX_SYNC);
}

Test(model, dax_sync_is_never_without_metadata)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_CPU_USER);
	store(0, 1);
	CUT(0, 0, 1);
}

/* --- memory that dies with the machine or the process --- */

Test(model, tmpfs_survives_the_process_only)
{
	make_model(MODEL_TMPFS, MODEL_SYSTEM, MODEL_CPU_USER);
	store(0, 1);
	cr_assert_eq(model_msync(m, a, MODEL_PAGE), 0);
	persist(0);
	CUT(0, LOST);
	KILL(0, 1);
}

static void survives_nothing(enum model_kind kind)
{
	make_model(kind, MODEL_SYSTEM, MODEL_CPU_USER);
	store(0, 1);
	cr_assert_eq(model_msync(m, a, MODEL_PAGE), 0);
	persist(0);
	CUT(0, LOST);
	KILL(0, LOST);
	model_cut(m, NULL, NULL);
	cr_assert_eq(a[0], 0);
}

Test(model, anonymous_memory_survives_nothing)
{
	survives_nothing(MODEL_ANON);
}

Test(model, private_mapping_survives_nothing)
{
	survives_nothing(MODEL_PRIVATE);
}

Test(model, kill_leaves_what_the_cpu_saw)
{
	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_CACHE);
	store(0, 1);
	store_nt(0, 2);
	KILL(0, 2);
	dma(0, 0, 3);
	dma(0, 0, 4);
	KILL(0, 2, 3, 4);
}

/* --- what a power cut leaves --- */

Test(model, cut_chooses_every_value_and_no_other)
{
	struct seeded s = seeded_start();
	bool seen[4] = {false}, seen_dma[3] = {false};
	uint64_t before;

	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_MEMORY);
	for (int i = 0; i < 400; i++) {
		model_reset(m);
		for (int v = 1; v < 4; v++)
			store(0, v);
		model_clwb(m, a, 8);
		store(1, 5);
		dma(0, 2, 1);
		dma(0, 2, 2);
		model_cut(m, pick_seeded, &s);
		cr_assert_lt(a[0], 4, "seed %#lx", (unsigned long)s.seed);
		cr_assert(a[1] == 0 || a[1] == 5);
		cr_assert_lt(a[2], 3);
		seen[a[0]] = true;
		seen_dma[a[2]] = true;
		CUT(0, a[0]);
		CUT(1, a[1]);
		CUT(2, a[2]);
		before = a[0];
		/* A clwb before the cut has no effect on later stores. */
		store(0, 9);
		model_sfence(m);
		CUT(0, before, 9);
	}
	for (int v = 0; v < 4; v++)
		cr_assert(seen[v], "never %d; seed %#lx", v,
			  (unsigned long)s.seed);
	for (int v = 0; v < 3; v++)
		cr_assert(seen_dma[v], "never %d; seed %#lx", v,
			  (unsigned long)s.seed);
}

Test(model, cut_keeps_the_order_of_a_queue_pair)
{
	struct seeded s = seeded_start();
	bool both = false, first = false, torn = false;
	uint64_t v[2] = {1, 1};

	make_model(MODEL_DAX_SYNC, MODEL_EADR, MODEL_DMA_MEMORY);
	for (int i = 0; i < 400; i++) {
		model_reset(m);
		model_dma_write(m, 0, &a[0], v, sizeof(v));
		dma(0, 8, 1);
		model_cut(m, pick_seeded, &s);
		if (a[8])
			cr_assert(a[0] && a[1], "seed %#lx",
				  (unsigned long)s.seed);
		both = both || a[8];
		first = first || (a[0] && a[1] && !a[8]);
		torn = torn || (a[1] && !a[0]);
	}
	cr_assert(both && first && torn, "seed %#lx", (unsigned long)s.seed);
}

Test(model, cut_without_choice_leaves_the_oldest)
{
	make_model(MODEL_FILE, MODEL_ADR, MODEL_CPU_USER);
	store(0, 1);
	model_msync(m, a, MODEL_PAGE);
	store(0, 2);
	model_cut(m, NULL, NULL);
	cr_assert_eq(a[0], 1);
	CUT(0, 1);
	/* After the cut the page is clean. */
	store_kernel(0, 3);
	model_msync(m, a, MODEL_PAGE);
	CUT(0, 1);
}

/* --- limits --- */

Test(model, as_many_values_as_fit)
{
	uint64_t v[MODEL_VALUES];
	bool lost;

	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_CPU_USER);
	for (int i = 1; i < 100; i++)
		store(0, i);
	persist(0);
	for (int i = 100; i < 99 + MODEL_VALUES; i++)
		store(0, i);
	cr_assert_eq(model_after_cut(m, a, v, &lost), MODEL_VALUES);
	cr_assert_eq(v[0], 99);
	cr_assert_eq(v[MODEL_VALUES - 1], 98 + MODEL_VALUES);
}

Test(model, one_value_too_many_is_not_left_out)
{
	uint64_t v[MODEL_VALUES];
	bool lost;
	int status;
	pid_t child;

	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_CPU_USER);
	for (int i = 1; i < MODEL_VALUES + 1; i++)
		store(0, i);
	child = fork();
	cr_assert_geq(child, 0);
	if (!child) {
		signal(SIGABRT, SIG_DFL);
		model_after_cut(m, a, v, &lost);
		_exit(0);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

Test(model, prints_a_word)
{
	char text[128];

	make_model(MODEL_DAX_SYNC, MODEL_ADR, MODEL_DMA_CACHE);
	store(8, 1);
	persist(8);
	store(8, 2);
	model_print(m, &a[8], text, sizeof(text));
	cr_assert_str_eq(text, "word 0x40: CPU sees 2, a cut leaves 1 2");
	dma(0, 8, 0x33);
	model_print(m, &a[8], text, sizeof(text));
	cr_assert_str_eq(
		text, "word 0x40: CPU sees 2, a cut leaves 1 2 33, in NIC 33");
	model_print(m, &a[8], text, 8);
	cr_assert_str_eq(text, "word 0x");
}
