// SPDX-License-Identifier: BSD-2-Clause
/* Pipelined flushes: requests that RDMA writes into a polled ring. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "rc_mock.h"
#include "seeded.h"

#define P   RPMEM_FLUSH_PERSISTENT
#define CQE 32

static struct mock m;
static struct ibv_wc shown[256];
static size_t ncompletions, ntaken;

static int post_flush(uint64_t wr_id, size_t off, size_t len)
{
	m.q.pub.wr_id = wr_id;
	rpmem_wr_start(&m.q.pub);
	rpmem_wr_flush(&m.q.pub, MOCK_RKEY, MOCK_AT + off, len, P, 0);
	return rpmem_wr_complete(&m.q.pub);
}

static int atomic_write(uint64_t wr_id, size_t off, uint64_t value)
{
	m.q.pub.wr_id = wr_id;
	rpmem_wr_start(&m.q.pub);
	rpmem_wr_atomic_write(&m.q.pub, MOCK_RKEY, MOCK_AT + off, &value);
	return rpmem_wr_complete(&m.q.pub);
}

static void take_completions(void)
{
	int n;

	while ((n = rpmem_poll_cq(m.cq, 1, shown + ncompletions)))
		ncompletions += (size_t)n;
}

static void run_all(void)
{
	for (int i = 0; i < 40; i++) {
		mock_run(&m);
		take_completions();
		mock_side_channel_run(&m);
		take_completions();
	}
}

static void expect_next(uint64_t wr_id, enum ibv_wc_status status)
{
	const struct ibv_wc *wc = &shown[ntaken];

	take_completions();
	cr_assert_lt(ntaken++, ncompletions, "wr_id %d has not come",
		     (int)wr_id);
	cr_assert_eq(wc->wr_id, wr_id, "%d, not %d", (int)wc->wr_id,
		     (int)wr_id);
	cr_assert_eq(wc->status, status, "%d: %d", (int)wr_id, (int)wc->status);
	cr_assert_eq(wc->qp_num, MOCK_QPN);
	if (!status)
		cr_assert_eq((int)wc->opcode, RPMEM_WC_FLUSH);
}

static void expect_no_more(void)
{
	take_completions();
	cr_assert_eq(ntaken, ncompletions, "%d", (int)shown[ntaken].wr_id);
}

static bool is_durable(size_t off, size_t len, uint8_t value)
{
	uint8_t left[MOCK_BYTES];

	mock_power_cut(&m, left);
	for (size_t i = off; i < off + len; i++)
		if (left[i] != value)
			return false;
	return true;
}

static void expect_unseen(size_t off, size_t len, uint8_t value)
{
	mock_write(&m, 0, off, len, value);
	m.queue[m.nqueue - 1].flags = 0;
}

/* ADR; cpu: the target's kernel places writes. One flush has completed. */
static void begin_as(bool cpu)
{
	struct rp_desc d;

	ncompletions = ntaken = 0;
	mock_init_cq(&m, CQE);
	m.cpu = cpu;
	m.side.has_ring = true;
	mock_side_init(&m);
	d = mock_desc(&m);
	cr_assert_eq(mock_add(&m, &d, 0), 0);
	cr_assert_eq(post_flush(1, 0, 64), 0);
	/* Before HELLO_ACK no request is pipelined. */
	cr_assert_eq(m.queue[0].op, MOCK_READ);
	run_all();
	expect_next(1, IBV_WC_SUCCESS);
	cr_assert_eq(m.side.doorbells, 0u);
	mock_side_poll(&m);
	run_all();
}

static void begin(void)
{
	begin_as(true);
}

static size_t free_slots(void)
{
	size_t n = 0;

	for (struct rp_slot *s = m.cq->free; s; s = s->next)
		n++;
	return n;
}

static void end(void)
{
	/* The receives and HELLO keep their slots. */
	cr_assert_eq(free_slots(), (size_t)CQE - RP_SIDE_RECVS - 1);
	mock_side_fini(&m);
	mock_fini(&m);
}

Test(shim_pipeline, one_round_trip)
{
	begin();
	expect_unseen(0, 64, 'a');
	cr_assert_eq(post_flush(2, 0, 64), 0);
	cr_assert_eq(m.nqueue, 2u);
	cr_assert_eq(m.queue[1].op, MOCK_WRITE);
	cr_assert_eq(m.queue[1].rkey, MOCK_RING_RKEY);
	mock_run(&m);
	expect_no_more();
	cr_assert(!is_durable(0, 64, 'a'));
	cr_assert_eq(m.side.nout, 0u, "nothing goes over the side");
	mock_side_channel_run(&m);
	cr_assert(is_durable(0, 64, 'a'));
	expect_next(2, IBV_WC_SUCCESS);
	expect_no_more();
	end();
}

/* The reply may arrive before the completion of the request's write. */
Test(shim_pipeline, reply_before_the_completion)
{
	struct ibv_wc wc;

	begin();
	expect_unseen(0, 64, 'a');
	cr_assert_eq(post_flush(2, 0, 64), 0);
	mock_run(&m);
	cr_assert_eq(m.ndone, 1u);
	wc = m.done[0];
	m.ndone = 0;
	mock_side_channel_run(&m);
	cr_assert_eq(m.ndone, 1u);
	expect_no_more();
	/* Time passes, but no reply is overdue. */
	m.side.now += 10000000000ull;
	expect_no_more();
	m.done[m.ndone++] = wc;
	expect_next(2, IBV_WC_SUCCESS);
	end();
}

/* Behind an adapter, writes prove no placement, so a read fence is needed. */
Test(shim_pipeline, nothing_is_pipelined_behind_an_adapter)
{
	begin_as(false);
	expect_unseen(0, 64, 'a');
	cr_assert_eq(post_flush(2, 0, 64), 0);
	cr_assert_eq(m.queue[1].op, MOCK_READ);
	run_all();
	cr_assert(is_durable(0, 64, 'a'));
	expect_next(2, IBV_WC_SUCCESS);
	end();
}

/* Without the right to write, nothing is pipelined. */
Test(shim_pipeline, nothing_is_pipelined_without_write_access)
{
	struct rp_desc d;

	begin();
	m.access = RP_DESC_ALL & ~RP_DESC_WRITE;
	d = mock_desc(&m);
	cr_assert_eq(mock_add(&m, &d, 0), 0);
	cr_assert_eq(post_flush(2, 0, 64), 0);
	cr_assert_eq(m.queue[0].op, MOCK_READ);
	run_all();
	expect_next(2, IBV_WC_SUCCESS);
	end();
}

/* An idle agent gets a DOORBELL once IDLE and the request have arrived. */
Test(shim_pipeline, idle_agent_gets_a_doorbell)
{
	begin();
	/* After IDLE the request is a message, which wakes the agent. */
	mock_side_idle(&m);
	mock_side_channel_run(&m);
	take_completions();
	cr_assert_eq(post_flush(2, 0, 64), 0);
	cr_assert_eq(m.queue[0].op, MOCK_READ);
	run_all();
	expect_next(2, IBV_WC_SUCCESS);
	cr_assert_eq(m.side.doorbells, 0u);
	mock_side_poll(&m);
	run_all();
	/* IDLE is in flight while the request is written to the ring. */
	cr_assert_eq(post_flush(3, 0, 64), 0);
	cr_assert_eq(m.queue[0].op, MOCK_WRITE);
	mock_side_idle(&m);
	mock_run(&m);
	take_completions();
	cr_assert_eq(m.side.nout, 0u);
	mock_side_channel_run(&m);
	expect_no_more();
	cr_assert_eq(m.side.nout, 1u);
	run_all();
	expect_next(3, IBV_WC_SUCCESS);
	cr_assert_eq(m.side.doorbells, 1u);
	mock_side_poll(&m);
	run_all();
	/* The agent sends IDLE before the request is placed in its ring. */
	cr_assert_eq(post_flush(4, 0, 64), 0);
	cr_assert_eq(m.queue[0].op, MOCK_WRITE);
	mock_side_idle(&m);
	mock_side_channel_run(&m);
	expect_no_more();
	cr_assert_eq(m.side.nout, 0u, "the ring is still empty");
	run_all();
	expect_next(4, IBV_WC_SUCCESS);
	cr_assert_eq(m.side.doorbells, 2u);
	/* An agent with an empty ring needs no DOORBELL. */
	mock_side_poll(&m);
	run_all();
	mock_side_idle(&m);
	run_all();
	cr_assert_eq(m.side.doorbells, 2u);
	cr_assert(m.side.ring_idle);
	end();
}

/* Writes, signals and polls in any order: each flush completes, durably. */
Test(shim_pipeline, flushes_are_durable_in_any_order_of_events)
{
	struct seeded s = seeded_start();
	unsigned int posted = 1, pipelined = 0;

	begin();
	for (int round = 0; round < 3000; round++) {
		uint8_t msg[RP_RING_MSG];
		struct rp_ring look = m.side.ring;

		switch (seeded_below(&s, 5)) {
		case 0:
			if (posted - ntaken > 12 || posted == 200)
				break;
			expect_unseen(8 * (posted % 64), 8, (uint8_t)posted);
			posted++;
			cr_assert_eq(
				post_flush(posted, 8 * ((posted - 1) % 64), 8),
				0);
			pipelined += m.queue[m.nqueue - 1].op == MOCK_WRITE;
			break;
		case 1:
			mock_step(&m);
			break;
		case 2:
			mock_side_step(&m);
			break;
		case 3:
			/* As the agent does, idle only with an empty ring. */
			if (m.side.nin > 8)
				break;
			if (m.side.ring_idle)
				mock_side_poll(&m);
			else if (!seeded_below(&s, 4) &&
				 !rp_ring_take(&look, msg))
				mock_side_idle(&m);
			break;
		default:
			take_completions();
		}
		while (ntaken < ncompletions) {
			cr_assert(is_durable(8 * (ntaken % 64), 8,
					     ntaken ? (uint8_t)ntaken : 0) ||
					  posted > ntaken + 60,
				  "%zu, seed %llu", ntaken,
				  (unsigned long long)s.seed);
			expect_next(ntaken + 1, IBV_WC_SUCCESS);
		}
	}
	run_all();
	while (ntaken < posted)
		expect_next(ntaken + 1, IBV_WC_SUCCESS);
	cr_assert_gt(pipelined + m.side.doorbells, 0u, "seed %llu",
		     (unsigned long long)s.seed);
	end();
}

/* More flushes than credits wrap around the ring several times. */
Test(shim_pipeline, more_flushes_than_credits_wrap_around_the_ring)
{
	unsigned int pipelined = 0;

	begin();
	for (uint64_t round = 0; round < 15; round++) {
		for (uint64_t i = 0; i < 12; i++)
			cr_assert_eq(post_flush(100 * round + i, 32 * i, 32),
				     0);
		for (size_t i = 0; i < m.nqueue; i++)
			pipelined += m.queue[i].op == MOCK_WRITE;
		run_all();
		for (uint64_t i = 0; i < 12; i++)
			expect_next(100 * round + i, IBV_WC_SUCCESS);
	}
	cr_assert_eq(pipelined, 15u * RP_DEFERRED_MAX);
	end();
}

/* A flush behind a store by the agent is a message, like the store. */
Test(shim_pipeline, flush_behind_a_store_is_a_message)
{
	begin();
	cr_assert_eq(atomic_write(2, 128, 0x4242424242424242), 0);
	cr_assert_eq(post_flush(3, 128, 8), 0);
	cr_assert_eq(m.queue[0].op, MOCK_READ);
	cr_assert_eq(m.queue[1].op, MOCK_READ);
	run_all();
	take_completions();
	cr_assert_eq(ncompletions - ntaken, 2u);
	cr_assert_eq(shown[ntaken].wr_id, 2u);
	cr_assert_eq(shown[ntaken++].status, IBV_WC_SUCCESS);
	expect_next(3, IBV_WC_SUCCESS);
	cr_assert(is_durable(128, 8, 0x42));
	/* The store has completed, so this flush is pipelined. */
	cr_assert_eq(post_flush(4, 128, 8), 0);
	cr_assert_eq(m.queue[0].op, MOCK_WRITE);
	run_all();
	expect_next(4, IBV_WC_SUCCESS);
	end();
}

/* A store waits for the pipelined flushes posted before it. */
Test(shim_pipeline, store_waits_for_pipelined_flushes)
{
	begin();
	expect_unseen(0, 64, 'a');
	cr_assert_eq(post_flush(2, 0, 64), 0);
	cr_assert_eq(atomic_write(3, 128, 0x4242424242424242), 0);
	mock_run(&m);
	take_completions();
	cr_assert_eq(m.side.nout, 0u);
	run_all();
	expect_next(2, IBV_WC_SUCCESS);
	cr_assert_eq(shown[ntaken].wr_id, 3u);
	cr_assert_eq(shown[ntaken++].status, IBV_WC_SUCCESS);
	end();
}

/* A batch that was not posted leaves no gap in the ring. */
Test(shim_pipeline, batch_that_is_not_posted_leaves_no_gap)
{
	begin();
	for (int i = 0; i < 20; i++) {
		rpmem_wr_start(&m.q.pub);
		rpmem_wr_flush(&m.q.pub, MOCK_RKEY, MOCK_AT, 64, P, 0);
		rpmem_wr_flush(&m.q.pub, MOCK_RKEY, MOCK_AT, 32, P, 0);
		rpmem_wr_abort(&m.q.pub);
	}
	m.complete_err = ENOMEM;
	m.complete_posted = 1;
	rpmem_wr_start(&m.q.pub);
	m.q.pub.wr_id = 2;
	rpmem_wr_flush(&m.q.pub, MOCK_RKEY, MOCK_AT, 64, P, 0);
	rpmem_wr_flush(&m.q.pub, MOCK_RKEY, MOCK_AT, 64, P, 0);
	cr_assert_eq(rpmem_wr_complete(&m.q.pub), ENOMEM);
	m.complete_err = 0;
	cr_assert_eq(post_flush(3, 0, 64), 0);
	cr_assert_eq(m.queue[1].op, MOCK_WRITE);
	run_all();
	expect_next(2, IBV_WC_SUCCESS);
	expect_next(3, IBV_WC_SUCCESS);
	expect_no_more();
	end();
}

/* The ring write fails, placed or not: earlier outcomes remain. */
Test(shim_pipeline, ring_write_fails)
{
	begin();
	expect_unseen(0, 64, 'a');
	cr_assert_eq(post_flush(2, 0, 64), 0);
	expect_unseen(64, 64, 'b');
	cr_assert_eq(post_flush(3, 64, 64), 0);
	mock_step(&m);
	mock_step(&m);
	mock_step(&m);
	m.drop_ack = true;
	mock_run(&m);
	take_completions();
	expect_no_more();
	mock_side_channel_run(&m);
	expect_next(2, IBV_WC_SUCCESS);
	cr_assert(is_durable(0, 64, 'a'));
	expect_next(3, IBV_WC_RETRY_EXC_ERR);
	cr_assert_eq(post_flush(4, 0, 64), ENOTCONN);
	end();
}

/* The side connection ends: requests in the ring get no reply. */
Test(shim_pipeline, loss_of_the_side_fails_flushes)
{
	begin();
	cr_assert_eq(post_flush(2, 0, 64), 0);
	cr_assert_eq(post_flush(3, 0, 64), 0);
	mock_step(&m);
	take_completions();
	m.side.error = true;
	mock_side_channel_run(&m);
	take_completions();
	expect_next(2, IBV_WC_RETRY_EXC_ERR);
	mock_run(&m);
	expect_next(3, IBV_WC_WR_FLUSH_ERR);
	mock_side_fini(&m);
	mock_fini(&m);
}

/* A failed ring write is reported as a lost agent, not as a refusal. */
Test(shim_pipeline, failed_ring_write_is_a_lost_agent)
{
	begin();
	cr_assert_eq(post_flush(2, 0, 64), 0);
	m.side.has_ring = false;
	mock_run(&m);
	expect_next(2, IBV_WC_RETRY_EXC_ERR);
	cr_assert_eq(post_flush(3, 0, 64), ENOTCONN);
	end();
}

/* The agent neither polls nor sends IDLE: the flush fails at its deadline. */
Test(shim_pipeline, silent_agent_fails_flushes)
{
	begin();
	cr_assert_eq(post_flush(2, 0, 64), 0);
	m.side.ring_idle = true;
	m.side.now += 5000000000ull;
	expect_no_more(); /* the ring write is not placed yet */
	mock_run(&m);
	expect_no_more();
	m.side.now += 5000000000ull;
	expect_next(2, IBV_WC_RETRY_EXC_ERR);
	end();
}

/* The region was registered again: the flush fails as on a device. */
Test(shim_pipeline, former_region_is_refused)
{
	begin();
	cr_assert_eq(post_flush(2, 0, 64), 0);
	mock_side_reregister(&m);
	run_all();
	expect_next(2, IBV_WC_REM_ACCESS_ERR);
	cr_assert_eq(m.fails, 1u);
	end();
}

/* After detaching, completions of outstanding requests free their slots. */
Test(shim_pipeline, completions_after_detaching_free_slots)
{
	struct ibv_wc wc;

	begin();
	cr_assert_eq(post_flush(2, 0, 64), 0);
	mock_side_fini(&m);
	rp_qp_fini(&m.q);
	cr_assert_eq(free_slots(), (size_t)CQE - 1);
	m.nqueue = 0;
	m.done[m.ndone++] = (struct ibv_wc){.wr_id = (uintptr_t)m.cq->slots,
					    .qp_num = MOCK_QPN};
	for (size_t i = 0; i < m.cq->nslots; i++)
		if (m.cq->slots[i].kind == RP_SLOT_RING)
			m.done[0].wr_id = (uintptr_t)&m.cq->slots[i];
	cr_assert_eq(rpmem_poll_cq(m.cq, 1, &wc), 0);
	cr_assert_eq(free_slots(), (size_t)CQE);
	cr_assert_eq(rpmem_detach_cq(m.cq), 0);
}
