// SPDX-License-Identifier: BSD-2-Clause
/* Durable writes: one call and one completion, with any method. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "rc_pair.h"
#include "seeded.h"

#define FOR_EVER "60000000" /* us: longer than any test waits */

static struct pair p;

/* Start ADR on soft-RoCE, where the target's kernel places writes. */
static void start(void)
{
	setenv("FI_OFI_RPMEM_SPIN", FOR_EVER, 1);
	setenv("FI_OFI_RPMEM_TIMEOUT", "20000", 1);
	dev_start();
	dev.facts.placement = RP_PLACE_CPU_KERNEL;
	dev.facts.fence = RP_UNKNOWN;
}

TestSuite(shim_write, .init = start, .fini = dev_end);

static const struct pair_attr with_side = {.access = PERSISTENT, .sides = true};
static const struct pair_attr by_builders = {
	.ops = BUILDERS, .access = PERSISTENT, .sides = true};
static const struct pair_attr without_writes = {
	.ops = IBV_QP_EX_WITH_RDMA_READ, .access = PERSISTENT, .sides = true};
static const struct pair_attr alone = {.access = PERSISTENT};
static const struct pair_attr native = {.ops = BUILDERS | WITH_FLUSH,
					.access = PERSISTENT,
					.native = PERSISTENT};

static void expect_flushed(uint64_t wr_id)
{
	pair_expect_next(&p, wr_id, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
}

/* Make the agent poll, and wait until the initiator knows it. */
static void wake_agent(void)
{
	for (uint64_t i = 1; i <= 4; i++) {
		cr_assert_eq(pair_flush(&p, i, 0, 64), 0);
		expect_flushed(i);
	}
}

/* These bytes must be durable, and those beside them unchanged. */
static void expect_only(size_t off, size_t len, uint8_t value)
{
	cr_assert(dev_durable(off, len, value), "%zu of %zu", off, len);
	cr_assert(!off || dev_durable(off - 1, 1, 0), "%zu", off);
	cr_assert(dev_durable(off + len, 1, 0), "%zu of %zu", off, len);
}

static void all_sizes(void)
{
	static const size_t lens[] = {1,   8,	63,  64,  65,  100,
				      255, 256, 257, 511, 1000};

	for (size_t i = 0; i < sizeof(lens) / sizeof(*lens); i++)
		for (size_t off = 4096; off < 4096 + 192; off += 61) {
			memset(dev.pmem, 0, sizeof(dev.pmem));
			memset(dev.medium, 0, sizeof(dev.medium));
			cr_assert_eq(
				pair_write_durable(&p, 5, off, lens[i], 'a'),
				0);
			expect_flushed(5);
			expect_only(off, lens[i], 'a');
		}
	pair_expect_next(&p, 0, 0, 0);
}

Test(shim_write, into_the_request)
{
	const struct pair_attr *how[] = {&with_side, &by_builders};

	for (int i = 0; i < 2; i++) {
		pair_open(&p, how[i]);
		cr_assert_str_eq(pair_method(&p), "agent-clwb");
		wake_agent();
		all_sizes();
		pair_close(&p);
	}
}

Test(shim_write, agent_that_sleeps)
{
	setenv("FI_OFI_RPMEM_SPIN", "0", 1);
	pair_open(&p, &with_side);
	all_sizes();
	pair_close(&p);
}

Test(shim_write, by_fence)
{
	dev.facts.domain = RP_DOMAIN_CPUCACHE;
	dev.facts.placement = RP_PLACE_DMA_CACHE;
	dev.facts.fence = RP_YES;
	pair_open(&p, &alone);
	cr_assert_str_eq(pair_method(&p), "fence");
	cr_assert_eq(pair_write_durable(&p, 1, 100, 64, 'a'), 0);
	expect_flushed(1);
	cr_assert_eq(dev.pmem[100], 'a');
	cr_assert_eq(dev_count(IBV_WC_RDMA_WRITE), 1u);
	cr_assert_eq(dev_count(IBV_WC_RDMA_READ), 1u);
	pair_close(&p);
}

Test(shim_write, by_native_flush)
{
	dev.caps = DEV_GLOBAL | DEV_PERSISTENT;
	dev.makes |= WITH_FLUSH;
	pair_open(&p, &native);
	cr_assert_str_eq(pair_method(&p), "native");
	all_sizes();
	cr_assert_eq(dev_count(IBV_WC_RDMA_READ), 0u);
	cr_assert_eq(dev_count((enum ibv_wc_opcode)RPMEM_WC_FLUSH),
		     dev_count(IBV_WC_RDMA_WRITE));
	pair_close(&p);
}

/* Up to 256 bytes are sent inside the request, without write and read. */
Test(shim_write, short_write_is_one_message)
{
	unsigned int writes, others;

	for (size_t len = 255; len <= 257; len++) {
		pair_open(&p, &with_side);
		wake_agent();
		writes = dev_count(IBV_WC_RDMA_WRITE);
		others = dev_count(IBV_WC_RDMA_READ) + dev_count(IBV_WC_SEND);
		cr_assert_eq(pair_write_durable(&p, 5, 64, len, 'a'), 0);
		expect_flushed(5);
		/* Count the writes of request and reply. */
		cr_assert_eq(dev_count(IBV_WC_RDMA_WRITE) - writes,
			     len > 256 ? 3u : 2u, "%zu", len);
		cr_assert_eq(dev_count(IBV_WC_RDMA_READ) +
				     dev_count(IBV_WC_SEND) - others,
			     0u);
		pair_close(&p);
	}
}

Test(shim_write, unsignaled)
{
	for (size_t len = 64; len <= 640; len += 576) {
		pair_open(&p, &with_side);
		wake_agent();
		p.a.sqp->wr_flags = 0;
		cr_assert_eq(pair_write_durable(&p, 5, 64, len, 'a'), 0);
		p.a.sqp->wr_flags = IBV_SEND_SIGNALED;
		cr_assert_eq(pair_write_durable(&p, 6, 4096, len, 'b'), 0);
		expect_flushed(6);
		cr_assert(dev_durable(64, len, 'a'));
		pair_expect_next(&p, 0, 0, 0);
		pair_close(&p);
	}
}

/* More writes than slots and credits, mixed with other operations. */
Test(shim_write, writes_complete_in_order)
{
	struct seeded s = seeded_start();
	uint8_t now[64] = {0};
	uint64_t tail = 0;

	pair_open(&p, &with_side);
	wake_agent();
	for (uint64_t round = 0; round < 40; round++) {
		const uint64_t n = 1 + seeded_below(&s, 12);
		uint64_t kind[12], at[12];

		for (uint64_t i = 0; i < n; i++) {
			kind[i] = seeded_below(&s, 4);
			at[i] = 1 + (round * 12 + i) % 60;
			if (kind[i] == 0)
				cr_assert_eq(pair_flush(&p, i + 1, 0, 64), 0);
			else if (kind[i] == 3)
				cr_assert_eq(
					pair_atomic_write(&p, i + 1, 0, ++tail),
					0);
			else
				cr_assert_eq(pair_write_durable(
						     &p, i + 1, 64 * at[i],
						     kind[i] == 1 ? 64 : 40,
						     ++now[at[i]]),
					     0);
		}
		for (uint64_t i = 0; i < n; i++) {
			pair_expect_next(&p, i + 1, IBV_WC_SUCCESS,
					 kind[i] == 3 ? RPMEM_WC_ATOMIC_WRITE
						      : RPMEM_WC_FLUSH);
			if (kind[i] == 1 || kind[i] == 2)
				cr_assert(dev_durable(64 * at[i], 40,
						      now[at[i]]));
		}
		dev.ndone = 0;
	}
	pair_close(&p);
}

/* An aborted batch leaves nothing behind, not even at the agent. */
Test(shim_write, aborted_batch_leaves_nothing)
{
	const struct ibv_sge sge = {.addr = (uintptr_t)p.from, .length = 64};

	pair_open(&p, &by_builders);
	wake_agent();
	for (int i = 0; i < 40; i++) {
		rpmem_wr_start(p.a.sqp);
		for (int k = 0; k < 3; k++)
			rpmem_wr_write_flush(p.a.sqp, p.rkey,
					     (uintptr_t)dev.pmem, &sge,
					     RPMEM_FLUSH_PERSISTENT);
		if (i % 2) {
			rpmem_wr_abort(p.a.sqp);
		} else {
			dev.take_err = EAGAIN;
			cr_assert_eq(rpmem_wr_complete(p.a.sqp), EAGAIN);
		}
		cr_assert_eq(
			pair_write_durable(&p, 5, 4096, 64, (uint8_t)(i + 1)),
			0);
		expect_flushed(5);
		cr_assert(dev_durable(4096, 64, (uint8_t)(i + 1)));
	}
	pair_close(&p);
}

/* The write is posted, its flush is not: no completion is reported. */
Test(shim_write, write_without_its_flush_completes_nothing)
{
	dev.facts.domain = RP_DOMAIN_CPUCACHE;
	dev.facts.fence = RP_YES;
	pair_open(&p, &alone);
	for (int i = 0; i < 100; i++) {
		dev.take = 1;
		dev.take_err = ENOMEM;
		cr_assert_eq(pair_write_durable(&p, 5, 64, 64, 'a'), ENOMEM);
		pair_expect_next(&p, 0, 0, 0);
		cr_assert_eq(pair_write(&p, 6, 64, 64, 'b'), 0);
		pair_expect_next(&p, 6, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	}
	/* An error of that unreported write is reported. */
	dev.take = 1;
	dev.take_err = ENOMEM;
	dev.fail_qp = p.a.qp->qp_num;
	dev.fail = IBV_WC_REM_OP_ERR;
	cr_assert_eq(pair_write_durable(&p, 5, 64, 64, 'a'), ENOMEM);
	pair_expect_next(&p, 5, IBV_WC_REM_OP_ERR, 0);
	pair_close(&p);
}

/* The only completion has the status of the first failure. */
Test(shim_write, status_is_that_of_the_first_failure)
{
	const struct pair_attr *how[] = {&alone, &with_side, &with_side};

	for (int i = 0; i < 3; i++) {
		if (!i) {
			dev.facts.domain = RP_DOMAIN_CPUCACHE;
			dev.facts.fence = RP_YES;
		} else {
			dev.facts.domain = RP_DOMAIN_MEMCTRL;
			dev.facts.fence = RP_UNKNOWN;
		}
		pair_open(&p, how[i]);
		if (i)
			wake_agent();
		dev.fail_qp = p.a.qp->qp_num;
		dev.fail = IBV_WC_REM_OP_ERR;
		cr_assert_eq(
			pair_write_durable(&p, 5, 64, i == 2 ? 300 : 64, 'a'),
			0);
		pair_expect_next(&p, 5, IBV_WC_REM_OP_ERR, 0);
		pair_expect_next(&p, 0, 0, 0);
		cr_assert_eq(pair_write_durable(&p, 6, 64, 64, 'a'), ENOTCONN);
		pair_close(&p);
	}
}

/* Without write access, the agent refuses as a device does. */
Test(shim_write, write_without_access_is_refused)
{
	struct ibv_sge sge = {.addr = (uintptr_t)p.from};
	struct rpmem_mr_desc desc;
	struct rpmem_mr *mr;

	for (int i = 0; i < 3; i++) {
		pair_open(&p, &with_side);
		if (i)
			wake_agent();
		mr = rpmem_reg_mr(dev_pd(), dev.pmem, DEV_BYTES,
				  (int)(IBV_ACCESS_REMOTE_READ | PERSISTENT));
		cr_assert(mr);
		cr_assert_eq(rpmem_export_mr(mr, p.b.sqp, &desc), 0);
		cr_assert_eq(rpmem_import_mr(p.a.sqp, &desc, NULL), 0);
		memset(p.from, 'a', sizeof(p.from[0]));
		sge.length = i == 2 ? 300 : 64;
		sge.lkey = p.from_mr->lkey;
		p.a.sqp->wr_id = 5;
		rpmem_wr_start(p.a.sqp);
		rpmem_wr_write_flush(p.a.sqp, mr->mr->rkey, (uintptr_t)dev.pmem,
				     &sge, RPMEM_FLUSH_PERSISTENT);
		cr_assert_eq(rpmem_wr_complete(p.a.sqp), 0);
		pair_expect_next(&p, 5, IBV_WC_REM_ACCESS_ERR, 0);
		cr_assert_eq(dev.pmem[0], 0);
		cr_assert_eq(rpmem_dereg_mr(mr), 0);
		pair_close(&p);
	}
}

Test(shim_write, refused)
{
	static const struct {
		size_t off, len;
		unsigned int type;
		int err;
		enum ibv_wc_status status;
	} bad[] = {
		{0, 64, 0, EINVAL, 0},
		{0, 64, 4, EINVAL, 0},
		{0, (1ull << 31) + 1, RPMEM_FLUSH_PERSISTENT, EMSGSIZE, 0},
		{DEV_BYTES - 63, 64, RPMEM_FLUSH_PERSISTENT, 0,
		 IBV_WC_REM_ACCESS_ERR},
		{DEV_BYTES - 299, 300, RPMEM_FLUSH_PERSISTENT, 0,
		 IBV_WC_REM_ACCESS_ERR},
		{0, 64, RPMEM_FLUSH_GLOBAL, 0, IBV_WC_REM_INV_REQ_ERR},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct ibv_sge sge;

		pair_open(&p, &with_side);
		wake_agent();
		sge = (struct ibv_sge){.addr = (uintptr_t)p.from,
				       .length = (uint32_t)bad[i].len,
				       .lkey = p.from_mr->lkey};
		p.a.sqp->wr_id = 5;
		rpmem_wr_start(p.a.sqp);
		rpmem_wr_write_flush(p.a.sqp, p.rkey,
				     (uintptr_t)dev.pmem + bad[i].off, &sge,
				     (uint8_t)bad[i].type);
		cr_assert_eq(rpmem_wr_complete(p.a.sqp), bad[i].err, "%zu", i);
		if (!bad[i].err)
			pair_expect_next(&p, 5, bad[i].status, 0);
		pair_expect_next(&p, 0, 0, 0);
		pair_close(&p);
	}
	pair_open(&p, &without_writes);
	cr_assert_eq(pair_write_durable(&p, 1, 0, 64, 'a'), EOPNOTSUPP);
	p.rkey++;
	cr_assert_eq(pair_write_durable(&p, 1, 0, 64, 'a'), ENOKEY);
	p.rkey--;
	pair_close(&p);
}

/* An empty write is an empty flush. */
Test(shim_write, empty_write)
{
	pair_open(&p, &with_side);
	wake_agent();
	cr_assert_eq(pair_write_durable(&p, 5, 64, 0, 'a'), 0);
	expect_flushed(5);
	pair_close(&p);
}

/* The checks of this suite notice an agent that flushes nothing. */
Test(shim_write, idle_agent_is_detected)
{
	pair_open(&p, &with_side);
	wake_agent();
	dev.idle_agent = true;
	cr_assert_eq(pair_write_durable(&p, 5, 65, 60, 'a'), 0);
	expect_flushed(5);
	cr_assert_not(dev_durable(65, 60, 'a'));
	pair_close(&p);
}
