// SPDX-License-Identifier: BSD-2-Clause
/* The side connection of a queue pair: its agent and its path. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "rc_pair.h"

static struct pair p;

TestSuite(shim_side_conn, .init = dev_start, .fini = dev_end);

static const struct pair_attr plain = {.access = PERSISTENT};
static const struct pair_attr with_side = {.access = PERSISTENT, .sides = true};

static struct ibv_qp_attr attr_of(uint32_t number)
{
	struct ibv_qp *qp = dev_qp_by_number(number);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	cr_assert(qp, "%u", number);
	ibv_query_qp(qp, &attr, 0, &init);
	return attr;
}

/* The side QP has the path of the program's QP, and no write access. */
Test(shim_side_conn, side_uses_the_path_of_the_queue_pair)
{
	struct ibv_qp_attr asks, serves;

	pair_open(&p, &with_side);
	cr_assert_neq(p.sa.initiator, p.sa.qp_num);
	cr_assert_eq(p.sa.target, 0u);
	cr_assert_neq(p.sb.target, 0u);
	asks = attr_of(p.sa.initiator);
	serves = attr_of(p.sb.target);
	cr_assert_eq(asks.dest_qp_num, p.sb.target);
	cr_assert_eq(serves.dest_qp_num, p.sa.initiator);
	cr_assert_eq(asks.sq_psn, p.sa.psn);
	cr_assert_eq(asks.rq_psn, p.sb.psn);
	cr_assert_eq(serves.sq_psn, p.sb.psn);
	cr_assert_eq(asks.ah_attr.dlid, 77);
	cr_assert_eq(serves.ah_attr.dlid, 77);
	cr_assert_eq(asks.timeout, 16);
	cr_assert_eq(asks.retry_cnt, 5);
	cr_assert_eq(asks.qp_access_flags,
		     (unsigned int)IBV_ACCESS_REMOTE_WRITE);
	cr_assert_eq(serves.qp_access_flags, 0u);
	pair_close(&p);
}

/* Writes raise no event, so an initiator that can sleep gets messages. */
Test(shim_side_conn, sleeping_initiator_gets_messages)
{
	const struct pair_attr sleeping = {
		.access = PERSISTENT, .sides = true, .sleeps = true};

	pair_open(&p, &with_side);
	cr_assert_neq(p.sa.replies, 0u);
	cr_assert_eq(p.sb.replies == 0, false);
	pair_close(&p);
	pair_open(&p, &sleeping);
	cr_assert_eq(p.sa.replies, 0u);
	cr_assert_eq(p.sa.replies_rkey, 0u);
	cr_assert_eq(attr_of(p.sa.initiator).qp_access_flags, 0u);
	pair_close(&p);
}

/* The peer can write to the reply ring only. */
Test(shim_side_conn, nothing_else_can_be_written)
{
	static uint8_t other[64];
	uint8_t from[8] = "answers";
	struct ibv_mr *mine, *theirs;
	struct ibv_send_wr *bad,
		wr = {.num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
	struct ibv_sge sge = {.addr = (uintptr_t)from, .length = sizeof(from)};

	for (int i = 0; i < 3; i++) {
		pair_open(&p, &with_side);
		mine = (ibv_reg_mr)(dev_pd(), other, sizeof(other), (int)OPEN);
		theirs = (ibv_reg_mr)(dev_pd(), from, sizeof(from), 0);
		sge.lkey = theirs->lkey;
		wr.sg_list = &sge;
		wr.wr.rdma.remote_addr = i == 0	  ? (uintptr_t)other
					 : i == 1 ? p.sa.replies
						  : p.sa.replies - sizeof(from);
		wr.wr.rdma.rkey = i ? p.sa.replies_rkey : mine->rkey;
		cr_assert_eq(
			ibv_post_send(dev_qp_by_number(p.sb.target), &wr, &bad),
			0);
		cr_assert_eq(attr_of(p.sb.target).qp_state,
			     i == 1 ? IBV_QPS_RTS : IBV_QPS_ERR);
		cr_assert_eq(other[0], 0);
		ibv_dereg_mr(mine);
		ibv_dereg_mr(theirs);
		pair_close(&p);
	}
}

/* The side QP has bounded retries, since endless ones defer completions. */
Test(shim_side_conn, side_has_bounded_retries)
{
	struct rpmem_qp_desc a, b;

	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr forever = {.retry_cnt = 7, .timeout = 16};

		pair_open(&p, &plain);
		ibv_modify_qp(p.a.qp, &forever,
			      IBV_QP_RETRY_CNT | IBV_QP_TIMEOUT);
		if (i) {
			forever.qp_state = IBV_QPS_RTR;
			ibv_modify_qp(p.a.qp, &forever, IBV_QP_STATE);
		}
		cr_assert_eq(rpmem_export_qp(p.a.sqp, &a), 0);
		cr_assert_eq(rpmem_export_qp(p.b.sqp, &b), 0);
		cr_assert_eq(rpmem_connect_qp(p.a.sqp, &b), 0);
		cr_assert_eq(rp_side_addr_get(a.bytes, &p.sa), 0);
		cr_assert_eq(attr_of(p.sa.initiator).retry_cnt, i ? 5 : 6);
		cr_assert_eq(attr_of(p.sa.initiator).timeout, i ? 14 : 16);
		pair_close(&p);
	}
}

Test(shim_side_conn, addresses)
{
	struct rpmem_qp_desc a, again, b;

	pair_open(&p, &plain);
	memset(&b, 0x5a, sizeof(b));
	/* This queue pair's side cannot be connected yet. */
	cr_assert_eq(rpmem_connect_qp(p.a.sqp, &b), EBADMSG);
	cr_assert_eq(rpmem_export_qp(p.b.sqp, &b), 0);
	cr_assert_eq(rpmem_connect_qp(p.a.sqp, &b), EINVAL);
	cr_assert_eq(rpmem_export_qp(p.a.sqp, &a), 0);
	cr_assert_eq(rpmem_export_qp(p.a.sqp, &again), 0);
	cr_assert_arr_eq(a.bytes, again.bytes, sizeof(a.bytes));
	b.bytes[9] ^= 1;
	cr_assert_eq(rpmem_connect_qp(p.a.sqp, &b), EBADMSG);
	b.bytes[9] ^= 1;
	cr_assert_eq(rpmem_connect_qp(p.a.sqp, &b), 0);
	cr_assert_eq(rpmem_connect_qp(p.a.sqp, &b), EISCONN);
	pair_close(&p);
}

/* An agent on another machine would flush other memory. */
Test(shim_side_conn, address_of_another_queue_pair_is_refused)
{
	struct rpmem_qp_desc a, b;

	pair_open(&p, &plain);
	cr_assert_eq(rpmem_export_qp(p.a.sqp, &a), 0);
	cr_assert_eq(rpmem_export_qp(p.b.sqp, &b), 0);
	dev_join(p.a.qp, p.b.qp->qp_num + 1, OPEN);
	cr_assert_eq(rpmem_connect_qp(p.a.sqp, &b), EKEYREJECTED);
	dev_join(p.a.qp, p.b.qp->qp_num, OPEN);
	{
		struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT};

		ibv_modify_qp(p.a.qp, &init, IBV_QP_STATE);
	}
	cr_assert_eq(rpmem_connect_qp(p.a.sqp, &b), EINVAL);
	/* The refused calls changed nothing, so connecting works now. */
	dev_join(p.a.qp, p.b.qp->qp_num, OPEN);
	cr_assert_eq(rpmem_connect_qp(p.a.sqp, &b), 0);
	pair_close(&p);
}

/* No side without room in the CQ, or if the peer has no flushable memory. */
Test(shim_side_conn, side_needs_room_and_flushable_memory)
{
	const struct pair_attr short_one = {.access = PERSISTENT, .cqe = 8};
	const struct pair_attr nothing = {.access = GLOBAL, .sides = true};
	struct rp_desc d;

	pair_open(&p, &short_one);
	cr_assert_eq(pair_connect_sides(&p), ENOSPC);
	pair_close(&p);
	pair_open(&p, &nothing);
	cr_assert_eq(p.sb.target, 0u);
	cr_assert_eq(rp_desc_get(p.desc.bytes, &d), 0);
	cr_assert_eq(d.key, 0u);
	pair_close(&p);
}

/* If a creation fails, no object remains. */
Test(shim_side_conn, failed_creation_leaves_nothing)
{
	int failed = 0;

	for (int n = 1; n < 20; n++) {
		struct rpmem_qp_desc a;
		int open, ret;

		pair_open(&p, &plain);
		open = dev.open;
		dev.fail_creation = n;
		ret = rpmem_export_qp(p.b.sqp, &a);
		failed += ret == ENOMEM;
		if (ret)
			cr_assert_eq(dev.open, open, "%d: %d are left", n,
				     dev.open - open);
		cr_assert(!ret || ret == ENOMEM);
		dev.fail_creation = 0;
		/* With enough memory it works. */
		cr_assert_eq(pair_connect_sides(&p), 0);
		pair_import_region(&p);
		cr_assert_eq(pair_flush(&p, 1, 0, 64), 0);
		pair_expect_next(&p, 1, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
		pair_close(&p);
	}
	cr_assert_geq(failed, 4);
}
