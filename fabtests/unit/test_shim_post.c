// SPDX-License-Identifier: BSD-2-Clause
/* Posting: flushes are reads and FLUSHes on the program's own queue pair. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "rc_pair.h"

static struct pair p;

TestSuite(shim_post, .init = dev_start, .fini = dev_end);

/* Persistent caches behind an adapter: the method is a fence. */
static void expect_fences(unsigned int ops, bool sides)
{
	const struct pair_attr attr = {
		.ops = ops, .access = GLOBAL | PERSISTENT, .sides = sides};

	dev.facts.domain = RP_DOMAIN_CPUCACHE;
	pair_open(&p, &attr);
	cr_assert_str_eq(pair_method(&p), "fence");
}

/* The read follows the writes on their own queue pair, not on the side QP. */
Test(shim_post, a_read_inside_the_range)
{
	for (unsigned int ops = 0; ops <= BUILDERS; ops += BUILDERS)
		for (int sides = 0; sides < 2; sides++) {
			const struct dev_op *op = dev.done;

			dev.ndone = 0;
			expect_fences(ops, sides);
			cr_assert_eq(pair_write(&p, 1, 128, 64, 'a'), 0);
			cr_assert_eq(pair_flush(&p, 2, 130, 62), 0);
			pair_expect_next(&p, 1, IBV_WC_SUCCESS,
					 IBV_WC_RDMA_WRITE);
			pair_expect_next(&p, 2, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
			pair_expect_next(&p, 0, 0, 0);
			cr_assert_eq(dev.ndone, 2u);
			cr_assert_eq(op[0].opcode, IBV_WC_RDMA_WRITE);
			cr_assert_eq(op[1].opcode, IBV_WC_RDMA_READ);
			cr_assert_eq(op[1].qp_num, p.a.qp->qp_num);
			cr_assert_eq(op[1].addr, (uintptr_t)dev.pmem + 130);
			cr_assert_eq(op[1].len, 8u);
			cr_assert_eq(op[1].flags,
				     (unsigned int)IBV_SEND_SIGNALED);
			pair_close(&p);
		}
}

static void expect_flushes(const struct rpmem_qp *qp, size_t n, uint64_t from)
{
	rpmem_wr_start(p.a.sqp);
	for (size_t i = 0; i < n; i++) {
		p.a.sqp->wr_id = from + i;
		rpmem_wr_flush(p.a.sqp, p.rkey, (uintptr_t)dev.pmem + 64 * i,
			       64, RPMEM_FLUSH_PERSISTENT, RPMEM_FLUSH_RANGE);
	}
}

/* More flushes than the first allocation holds keep their order. */
Test(shim_post, many_flushes_in_one_call_keep_their_order)
{
	for (unsigned int ops = 0; ops <= BUILDERS; ops += BUILDERS) {
		dev.ndone = 0;
		expect_fences(ops, false);
		expect_flushes(p.a.sqp, 40, 1);
		cr_assert_eq(rpmem_wr_complete(p.a.sqp), 0);
		for (uint64_t i = 1; i <= 40; i++)
			pair_expect_next(&p, i, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
		for (size_t i = 0; i < 40; i++)
			cr_assert_eq(dev.done[i].addr,
				     (uintptr_t)dev.pmem + 64 * i);
		/* Aborted requests are not posted with the next batch. */
		expect_flushes(p.a.sqp, 3, 50);
		rpmem_wr_abort(p.a.sqp);
		expect_flushes(p.a.sqp, 1, 60);
		cr_assert_eq(rpmem_wr_complete(p.a.sqp), 0);
		pair_expect_next(&p, 60, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
		pair_expect_next(&p, 0, 0, 0);
		pair_close(&p);
	}
}

/* The requests before a refused one are posted by ibv_post_send(). */
Test(shim_post, partial_post_is_reported)
{
	for (unsigned int ops = 0; ops <= BUILDERS; ops += BUILDERS) {
		expect_fences(ops, false);
		dev.take = 2;
		dev.take_err = ENOMEM;
		expect_flushes(p.a.sqp, 4, 1);
		cr_assert_eq(rpmem_wr_complete(p.a.sqp), ENOMEM);
		if (!ops) {
			pair_expect_next(&p, 1, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
			pair_expect_next(&p, 2, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
		}
		dev.take = 0;
		/* All slots of the completion queue are free again. */
		for (uint64_t i = 1; i <= 2; i++) {
			expect_flushes(p.a.sqp, PAIR_CQE / 2, 1);
			cr_assert_eq(rpmem_wr_complete(p.a.sqp), 0);
		}
		for (int k = 0; k < 2; k++)
			for (uint64_t i = 1; i <= PAIR_CQE / 2; i++)
				pair_expect_next(&p, i, IBV_WC_SUCCESS,
						 RPMEM_WC_FLUSH);
		pair_close(&p);
	}
}

/* The program may use its own builders between start and complete. */
Test(shim_post, builders_of_the_program_are_kept)
{
	struct ibv_qp_ex *ex;

	expect_fences(BUILDERS, false);
	ex = ibv_qp_to_qp_ex(p.a.qp);
	ex->wr_id = 77;
	ex->wr_flags = IBV_SEND_SIGNALED;
	expect_flushes(p.a.sqp, 1, 5);
	cr_assert_eq(ex->wr_id, 77u);
	cr_assert_eq(ex->wr_flags, (unsigned int)IBV_SEND_SIGNALED);
	ibv_wr_rdma_read(ex, p.rkey, (uintptr_t)dev.pmem);
	ibv_wr_set_sge(ex, p.mr->mr->lkey, (uintptr_t)dev.pmem + 64, 8);
	cr_assert_eq(rpmem_wr_complete(p.a.sqp), 0);
	pair_expect_next(&p, 5, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	pair_expect_next(&p, 77, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
	pair_close(&p);
}

/* The device's FLUSH gets the arguments of the shim's call. */
Test(shim_post, flush_arguments_reach_the_device)
{
	const struct pair_attr attr = {.ops = BUILDERS | WITH_FLUSH,
				       .access = GLOBAL | PERSISTENT,
				       .native = GLOBAL | PERSISTENT};

	dev.caps = DEV_GLOBAL | DEV_PERSISTENT;
	dev.makes |= WITH_FLUSH;
	pair_open(&p, &attr);
	cr_assert_str_eq(pair_method(&p), "native");
	cr_assert_eq(pair_write(&p, 1, 0, 256, 'a'), 0);
	cr_assert_eq(pair_flush(&p, 2, 64, 64), 0);
	pair_expect_next(&p, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	pair_expect_next(&p, 2, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	cr_assert_eq((int)dev.done[1].opcode, RPMEM_WC_FLUSH);
	cr_assert_eq(dev.done[1].addr, (uintptr_t)dev.pmem + 64);
	cr_assert_eq(dev.done[1].len, 64u);
	cr_assert(dev_durable(64, 64, 'a'));
	cr_assert(dev_durable(0, 64, 0) && dev_durable(128, 128, 0));
	p.a.sqp->wr_id = 3;
	rpmem_wr_start(p.a.sqp);
	rpmem_wr_flush(p.a.sqp, p.rkey, 0, 0, RPMEM_FLUSH_PERSISTENT,
		       RPMEM_FLUSH_MR);
	cr_assert_eq(rpmem_wr_complete(p.a.sqp), 0);
	pair_expect_next(&p, 3, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	cr_assert(dev_durable(0, 256, 'a'));
	pair_close(&p);
}

/* A flush without acknowledgement is an error, executed or not. */
Test(shim_post, flush_without_acknowledgement_fails)
{
	for (unsigned int ops = 0; ops <= BUILDERS; ops += BUILDERS)
		for (int drop = 0; drop < 2; drop++) {
			expect_fences(ops, false);
			dev.fail_qp = p.a.qp->qp_num;
			dev.fail = IBV_WC_RETRY_EXC_ERR;
			dev.drop_ack = drop;
			cr_assert_eq(pair_flush(&p, 1, 0, 64), 0);
			pair_expect_next(&p, 1, IBV_WC_RETRY_EXC_ERR, 0);
			cr_assert_eq(pair_flush(&p, 2, 0, 64), ENOTCONN);
			pair_close(&p);
		}
}

/* A flush that the target does not allow fails even on a lax device. */
Test(shim_post, refused_flush_ends_the_queue_pair)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	for (unsigned int ops = 0; ops <= BUILDERS; ops += BUILDERS) {
		expect_fences(ops, false);
		cr_assert_eq(pair_flush(&p, 1, DEV_BYTES - 32, 64), 0);
		cr_assert_eq(pair_write(&p, 2, 0, 8, 'b'), 0);
		pair_expect_next(&p, 1, IBV_WC_REM_ACCESS_ERR, 0);
		pair_expect_next(&p, 2, IBV_WC_WR_FLUSH_ERR, 0);
		ibv_query_qp(p.a.qp, &attr, IBV_QP_STATE, &init);
		cr_assert_eq(attr.qp_state, IBV_QPS_ERR);
		pair_close(&p);
	}
}
