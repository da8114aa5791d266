// SPDX-License-Identifier: BSD-2-Clause
/* The agent's thread and its box: it looks while it is awake, and says when. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <criterion/criterion.h>

#include "rc_pair.h"
#include "seeded.h"

#define FOR_EVER "60000000" /* us: longer than any case waits */

static struct pair p;
static const struct pair_attr asking = {.access = PERSISTENT, .sides = true};
static const struct pair_attr by_builders = {
	.ops = BUILDERS, .access = PERSISTENT, .sides = true};
static const struct pair_attr without_writes = {
	.ops = IBV_QP_EX_WITH_RDMA_READ, .access = PERSISTENT, .sides = true};

/* The kernel's CPU places: ADR behind soft-RoCE. */
static void start(void)
{
	setenv("FI_OFI_RPMEM_SPIN", FOR_EVER, 1);
	setenv("FI_OFI_RPMEM_TIMEOUT", "20000", 1);
	dev_start();
	dev.facts.placement = RP_PLACE_CPU_KERNEL;
	dev.facts.fence = RP_UNKNOWN;
}

TestSuite(shim_box, .init = start, .fini = dev_end);

static void once(uint64_t i)
{
	const size_t off = 64 * (i % 100);

	cr_assert_eq(pair_write(&p, 1, off, 64, (uint8_t)i), 0);
	cr_assert_eq(pair_flush(&p, 2, off, 64), 0);
	pair_next(&p, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	pair_next(&p, 2, IBV_WC_SUCCESS, IBV_RPMEM_WC_FLUSH);
	cr_assert(dev_durable(off, 64, (uint8_t)i), "%d", (int)i);
}

Test(shim_box, no_read_while_it_is_awake)
{
	for (int i = 0; i < 2; i++) {
		const unsigned int before = dev_count(IBV_WC_RDMA_READ);

		pair_open(&p, i ? &by_builders : &asking);
		cr_assert_str_eq(pair_method(&p), "agent-clwb");
		for (uint64_t k = 0; k < 50; k++)
			once(k);
		/* The first, and whatever was before the note came. */
		cr_assert_leq(dev_count(IBV_WC_RDMA_READ) - before, 3u);
		pair_close(&p);
	}
}

/* A queue pair without writes has none for us either. */
Test(shim_box, no_writes)
{
	pair_open(&p, &without_writes);
	for (uint64_t k = 0; k < 5; k++) {
		cr_assert_eq(pair_flush(&p, k + 1, 0, 64), 0);
		pair_next(&p, k + 1, IBV_WC_SUCCESS, IBV_RPMEM_WC_FLUSH);
	}
	cr_assert_eq(dev_count(IBV_WC_RDMA_READ), 5u);
	pair_close(&p);
}

static _Atomic int crossed;

/* Its note is out, and of what comes now no queue will tell it. */
static void goes_ahead(void)
{
	const unsigned int reads = dev_count(IBV_WC_RDMA_READ);
	struct ibv_wc wc;
	int how = 1;

	if (!pair_write(&p, 3, 0, 64, 'c') && !pair_flush(&p, 4, 0, 64) &&
	    ibv_rpmem_poll_cq(p.a.scq, 1, &wc) == 1 && wc.wr_id == 3 &&
	    !ibv_rpmem_poll_cq(p.a.scq, 1, &wc) &&
	    dev_count(IBV_WC_RDMA_READ) == reads)
		how = 2;
	crossed = how;
}

static void asks_over_the_side(void)
{
	const unsigned int reads = dev_count(IBV_WC_RDMA_READ);
	struct ibv_wc wc;
	int how = 1;

	if (!ibv_rpmem_poll_cq(p.a.scq, 1, &wc) && !pair_flush(&p, 4, 0, 64) &&
	    !ibv_rpmem_poll_cq(p.a.scq, 1, &wc) &&
	    dev_count(IBV_WC_RDMA_READ) == reads + 1)
		how = 2;
	crossed = how;
}

Test(shim_box, asked_as_it_lies_down)
{
	void (*const how[])(void) = {goes_ahead, asks_over_the_side};
	const struct timespec ms = {.tv_nsec = 1000000};

	setenv("FI_OFI_RPMEM_SPIN", "200000", 1);
	setenv("FI_OFI_RPMEM_TIMEOUT", "5000", 1);
	for (int i = 0; i < 2; i++) {
		pair_open(&p, &asking);
		crossed = 0;
		/* Who is slow finds it asleep, and has it wake again. */
		for (uint64_t k = 0; !crossed && k < 20; k++) {
			dev_at_notify(NULL);
			/* So often that it looks on. */
			for (uint64_t j = 0; j < 4; j++)
				once(j);
			dev_at_notify(how[i]);
			for (int j = 0; !crossed && j < 1000; j++)
				nanosleep(&ms, NULL);
		}
		pair_next(&p, 4, IBV_WC_SUCCESS, IBV_RPMEM_WC_FLUSH);
		cr_assert_eq(crossed, 2);
		once(100);
		pair_close(&p);
	}
}

/* It sleeps, wakes, and sleeps again, and whatever crosses what ends. */
Test(shim_box, asleep_and_awake)
{
	static const char *const spins[] = {"0", "20", "200"};
	struct seeded s = seeded_start();

	for (int i = 0; i < 3; i++) {
		setenv("FI_OFI_RPMEM_SPIN", spins[i], 1);
		pair_open(&p, &asking);
		for (uint64_t k = 0; k < 150; k++) {
			const struct timespec ns = {
				.tv_nsec = (long)seeded_below(&s, 300000)};

			if (seeded_below(&s, 2))
				nanosleep(&ns, NULL);
			once(k);
			dev.ndone = 0;
		}
		pair_close(&p);
	}
}
