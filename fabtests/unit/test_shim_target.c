// SPDX-License-Identifier: BSD-2-Clause
/* The target's agent, with its thread and its connections, asked by a peer. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "rc_pair.h"

#define FOR_EVER "60000000" /* us: longer than any case waits */

static struct pair p;
static const struct pair_attr asking = {.access = PERSISTENT, .sides = true};
static const struct pair_attr by_builders = {
	.ops = BUILDERS, .access = PERSISTENT, .sides = true};

static void start(void)
{
	setenv("FI_OFI_RPMEM_SPIN", "0", 1);
	setenv("FI_OFI_RPMEM_TIMEOUT", "20000", 1);
	dev_start();
}

TestSuite(shim_target, .init = start, .fini = dev_end);

Test(shim_target, durable_when_it_completes)
{
	for (int i = 0; i < 2; i++) {
		memset(dev.medium, 0, sizeof(dev.medium));
		pair_open(&p, i ? &by_builders : &asking);
		cr_assert_str_eq(pair_method(&p), "agent-clwb");
		for (size_t k = 0; k < 20; k++) {
			const size_t off = 128 * k;
			const uint8_t value = (uint8_t)(k + 1);

			cr_assert_eq(pair_write(&p, 1, off, 100, value), 0);
			cr_assert_eq(pair_flush(&p, 2, off + 10, 90), 0);
			pair_next(&p, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
			pair_next(&p, 2, IBV_WC_SUCCESS, IBV_RPMEM_WC_FLUSH);
			cr_assert(dev_durable(off, 100, value), "%zu", k);
		}
		/* And no more than was asked for. */
		cr_assert_eq(pair_write(&p, 3, 4096, 128, 'x'), 0);
		cr_assert_eq(pair_flush(&p, 4, 4096 + 64, 64), 0);
		pair_next(&p, 3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		pair_next(&p, 4, IBV_WC_SUCCESS, IBV_RPMEM_WC_FLUSH);
		cr_assert(dev_durable(4096 + 64, 64, 'x'));
		cr_assert(dev_durable(4096, 64, 0));
		pair_close(&p);
	}
}

/* The test would see it. */
Test(shim_target, an_agent_that_does_nothing)
{
	pair_open(&p, &asking);
	dev.idle_agent = true;
	cr_assert_eq(pair_write(&p, 1, 0, 64, 'a'), 0);
	cr_assert_eq(pair_flush(&p, 2, 0, 64), 0);
	pair_next(&p, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	pair_next(&p, 2, IBV_WC_SUCCESS, IBV_RPMEM_WC_FLUSH);
	cr_assert_not(dev_durable(0, 64, 'a'));
	pair_close(&p);
}

/* More at once than there are credits and buffers on either side. */
Test(shim_target, many)
{
	pair_open(&p, &asking);
	for (uint64_t i = 1; i <= 40; i++) {
		cr_assert_eq(pair_write(&p, 100 + i, 64 * i, 64, (uint8_t)i),
			     0);
		cr_assert_eq(pair_flush(&p, i, 64 * i, 64), 0);
		if (i % 20)
			continue;
		for (uint64_t k = i - 19; k <= i; k++) {
			pair_next(&p, 100 + k, IBV_WC_SUCCESS,
				  IBV_WC_RDMA_WRITE);
			pair_next(&p, k, IBV_WC_SUCCESS, IBV_RPMEM_WC_FLUSH);
			cr_assert(dev_durable(64 * k, 64, (uint8_t)k));
		}
	}
	pair_close(&p);
}

/* The tail is there only when the record is durable. */
Test(shim_target, atomic_writes)
{
	uint64_t tail;

	pair_open(&p, &asking);
	for (uint64_t i = 1; i <= 8; i++) {
		cr_assert_eq(pair_write(&p, 1, 64 * i, 64, (uint8_t)i), 0);
		cr_assert_eq(pair_flush(&p, 2, 64 * i, 64), 0);
		cr_assert_eq(pair_store(&p, 3, 0, i), 0);
		cr_assert_eq(pair_flush(&p, 4, 0, 8), 0);
		pair_next(&p, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		pair_next(&p, 2, IBV_WC_SUCCESS, IBV_RPMEM_WC_FLUSH);
		pair_next(&p, 3, IBV_WC_SUCCESS, IBV_RPMEM_WC_ATOMIC_WRITE);
		pair_next(&p, 4, IBV_WC_SUCCESS, IBV_RPMEM_WC_FLUSH);
		memcpy(&tail, dev.medium, sizeof(tail));
		cr_assert_eq(tail, i);
		cr_assert(dev_durable(64 * i, 64, (uint8_t)i));
	}
	pair_close(&p);
}

/* The rkey is the same again, the registration another: ask for its key. */
Test(shim_target, refuses_a_region_that_is_no_more)
{
	uint32_t rkey;

	pair_open(&p, &asking);
	rkey = p.rkey;
	cr_assert_eq(ibv_rpmem_dereg_mr(p.mr), 0);
	p.mr = ibv_rpmem_reg_mr(dev_pd(), dev.pmem, DEV_BYTES,
				(int)(OPEN | PERSISTENT));
	cr_assert_eq(p.mr->mr->rkey, rkey);
	cr_assert_eq(pair_write(&p, 1, 0, 64, 'a'), 0);
	cr_assert_eq(pair_flush(&p, 2, 0, 64), 0);
	pair_next(&p, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	pair_next(&p, 2, IBV_WC_REM_ACCESS_ERR, 0);
	cr_assert_eq(pair_flush(&p, 3, 0, 64), ENOTCONN);
	cr_assert_eq(dev.drains, 0u);
	pair_close(&p);
}

/* So does one whose memory is there for others still, but not for agents. */
Test(shim_target, no_flush_behind_a_deregistration)
{
	struct ibv_mr *mr;

	pair_open(&p, &asking);
	cr_assert_eq(ibv_rpmem_dereg_mr(p.mr), 0);
	p.mr = NULL;
	mr = (ibv_reg_mr)(dev_pd(), dev.pmem, DEV_BYTES, (int)OPEN);
	cr_assert_eq(mr->rkey, p.rkey);
	cr_assert_eq(pair_flush(&p, 1, 0, 64), 0);
	pair_next(&p, 1, IBV_WC_REM_ACCESS_ERR, 0);
	cr_assert_eq(dev.drains, 0u);
	ibv_dereg_mr(mr);
	pair_close(&p);
}

/* Whatever becomes of the side, what waits for it is told, and the rest. */
Test(shim_target, side_lost)
{
	for (int how = 0; how < 3; how++) {
		pair_open(&p, &asking);
		if (how == 1) {
			/* In the middle of it, and the agent has heard it. */
			cr_assert_eq(pair_flush(&p, 9, 0, 64), 0);
			pair_next(&p, 9, IBV_WC_SUCCESS, IBV_RPMEM_WC_FLUSH);
		}
		if (how == 2) {
			cr_assert_eq(ibv_rpmem_detach_qp(p.b.sqp), 0);
			p.b.sqp = NULL;
		} else {
			dev.fail_qp = p.sa.initiator;
			dev.fail = IBV_WC_RETRY_EXC_ERR;
			dev.drop_ack = how == 1;
		}
		cr_assert_eq(pair_write(&p, 1, 0, 64, 'a'), 0);
		cr_assert_eq(pair_flush(&p, 2, 0, 64), 0);
		pair_next(&p, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		pair_next(&p, 2, IBV_WC_RETRY_EXC_ERR, 0);
		cr_assert_eq(pair_flush(&p, 3, 0, 64), ENOTCONN);
		pair_close(&p);
	}
}

/* An answer that did not come through: then its end of the side is over. */
Test(shim_target, answer_lost)
{
	setenv("FI_OFI_RPMEM_TIMEOUT", "300", 1);
	pair_open(&p, &asking);
	dev.fail_qp = p.sb.target;
	dev.fail = IBV_WC_RETRY_EXC_ERR;
	cr_assert_eq(pair_flush(&p, 1, 0, 64), 0);
	pair_next(&p, 1, IBV_WC_RETRY_EXC_ERR, 0);
	pair_close(&p);
}

/* Nobody answers: the time that the operator gives, and no longer. */
Test(shim_target, silence)
{
	setenv("FI_OFI_RPMEM_TIMEOUT", "100", 1);
	pair_open(&p, &asking);
	dev.deaf_qp = p.sb.target;
	cr_assert_eq(pair_flush(&p, 1, 0, 64), 0);
	cr_assert_eq(pair_write(&p, 2, 0, 64, 'a'), 0);
	pair_next(&p, 1, IBV_WC_RETRY_EXC_ERR, 0);
	pair_next(&p, 2, IBV_WC_WR_FLUSH_ERR, 0);
	cr_assert_eq(pair_flush(&p, 3, 0, 64), ENOTCONN);
	pair_close(&p);
}

/* What no peer says ends the side, and makes nothing durable. */
Test(shim_target, nonsense_to_the_agent)
{
	static uint8_t msg[200];
	struct ibv_wc wc;

	for (size_t len = 0; len <= sizeof(msg); len += 20) {
		pair_open(&p, &asking);
		memset(msg, (int)len, sizeof(msg));
		cr_assert(dev_say(p.sb.target, msg, len));
		cr_assert_eq(pair_flush(&p, 1, 0, 64), 0);
		while (!ibv_rpmem_poll_cq(p.a.scq, 1, &wc))
			;
		/* The agent's refusal may be here before HELLO is out. */
		cr_assert(wc.status == IBV_WC_RETRY_EXC_ERR ||
				  (len <= 128 &&
				   wc.status == IBV_WC_REM_INV_REQ_ERR),
			  "%d", wc.status);
		pair_close(&p);
	}
}

/* An answer that no agent gives is the end; nothing of it is believed. */
Test(shim_target, nonsense_to_who_asks)
{
	static uint8_t msg[200];

	for (size_t len = 0; len <= sizeof(msg); len += 20) {
		pair_open(&p, &asking);
		dev.deaf_qp = p.sb.target;
		cr_assert_eq(pair_flush(&p, 1, 0, 64), 0);
		pair_next(&p, 0, 0, 0);
		memset(msg, (int)len + 1, sizeof(msg));
		cr_assert(dev_say(p.sa.initiator, msg, len));
		pair_next(&p, 1, IBV_WC_RETRY_EXC_ERR, 0);
		dev.deaf_qp = 0;
		pair_close(&p);
	}
}

/* Two peers of one agent: each by its own connection, and its own end. */
static void two_peers(void)
{
	struct pair q;

	pair_open(&p, &asking);
	pair_open(&q, &asking);
	for (int i = 1; i <= 5; i++) {
		const size_t off = 128 * (size_t)i;

		cr_assert_eq(pair_write(&p, 1, off, 64, 'p'), 0);
		cr_assert_eq(pair_write(&q, 1, off + 64, 64, 'q'), 0);
		cr_assert_eq(pair_flush(&p, 2, off, 64), 0);
		cr_assert_eq(pair_flush(&q, 2, off + 64, 64), 0);
		pair_next(&p, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		pair_next(&p, 2, IBV_WC_SUCCESS, IBV_RPMEM_WC_FLUSH);
		cr_assert(dev_durable(off, 64, 'p'));
		pair_next(&q, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		pair_next(&q, 2, IBV_WC_SUCCESS, IBV_RPMEM_WC_FLUSH);
		cr_assert(dev_durable(off + 64, 64, 'q'));
	}
	pair_close(&p);
	cr_assert_eq(pair_write(&q, 3, 0, 64, 'z'), 0);
	cr_assert_eq(pair_flush(&q, 4, 0, 64), 0);
	pair_next(&q, 3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	pair_next(&q, 4, IBV_WC_SUCCESS, IBV_RPMEM_WC_FLUSH);
	cr_assert(dev_durable(0, 64, 'z'));
	pair_close(&q);
}

Test(shim_target, two_peers)
{
	two_peers();
}

/* The thread never sleeps, and who wakes is heard all the same. */
Test(shim_target, two_peers_looked_at)
{
	setenv("FI_OFI_RPMEM_SPIN", FOR_EVER, 1);
	two_peers();
}

/* How often the thread went to sleep, of 40 requests. */
static unsigned int sleeps(const char *us)
{
	setenv("FI_OFI_RPMEM_SPIN", us, 1);
	dev.notifies = 0;
	pair_open(&p, &asking);
	for (int i = 1; i <= 40; i++) {
		cr_assert_eq(pair_flush(&p, 1, 0, 64), 0);
		pair_next(&p, 1, IBV_WC_SUCCESS, IBV_RPMEM_WC_FLUSH);
	}
	pair_close(&p);
	return dev.notifies;
}

Test(shim_target, looks_on_before_it_sleeps)
{
	const unsigned int without = sleeps("0"), with = sleeps(FOR_EVER);

	cr_assert_gt(without, 10u);
	cr_assert_lt(with, 5u, "%u", with);
}
