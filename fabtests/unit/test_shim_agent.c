// SPDX-License-Identifier: BSD-2-Clause
/* Flushes by the agent: when requests are sent, order, all failures. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "rc_mock.h"

#define G   RPMEM_FLUSH_GLOBAL
#define P   RPMEM_FLUSH_PERSISTENT
#define CQE 32

static struct mock m;
static struct ibv_wc shown[64];
static size_t ncompletions, ntaken;

/* ADR with an adapter that writes into the cache. */
static void begin(void)
{
	struct rp_desc d;

	ncompletions = ntaken = 0;
	mock_init_cq(&m, CQE);
	mock_side_init(&m);
	d = mock_desc(&m);
	cr_assert_eq(mock_add(&m, &d, 0), 0);
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
	mock_side_fini(&m);
	mock_fini(&m);
}

static int post_flush(uint64_t wr_id, size_t off, size_t len, uint8_t type,
		      uint8_t level)
{
	m.q.pub.wr_id = wr_id;
	rpmem_wr_start(&m.q.pub);
	rpmem_wr_flush(&m.q.pub, MOCK_RKEY, MOCK_AT + off, len, type, level);
	return rpmem_wr_complete(&m.q.pub);
}

static int atomic_write(uint64_t wr_id, size_t off, uint64_t value)
{
	m.q.pub.wr_id = wr_id;
	rpmem_wr_start(&m.q.pub);
	rpmem_wr_atomic_write(&m.q.pub, MOCK_RKEY, MOCK_AT + off, &value);
	return rpmem_wr_complete(&m.q.pub);
}

static void take_completions(int most)
{
	int n = rpmem_poll_cq(m.cq, most, shown + ncompletions);

	cr_assert_geq(n, 0);
	ncompletions += (size_t)n;
}

/* Step everything until nothing moves; poll one completion at a time. */
static void run_all(void)
{
	for (int i = 0; i < 40; i++) {
		mock_run(&m);
		take_completions(1);
		mock_side_channel_run(&m);
		take_completions(1);
	}
}

static void expect_next(uint64_t wr_id, enum ibv_wc_status status, int opcode)
{
	const struct ibv_wc *wc = &shown[ntaken];

	if (ntaken == ncompletions)
		take_completions(1);
	cr_assert_lt(ntaken++, ncompletions, "wr_id %d has not come",
		     (int)wr_id);
	cr_assert_eq(wc->wr_id, wr_id, "%d, not %d", (int)wc->wr_id,
		     (int)wr_id);
	cr_assert_eq(wc->status, status, "%d: %d", (int)wr_id, (int)wc->status);
	cr_assert_eq(wc->qp_num, MOCK_QPN);
	if (!status)
		cr_assert_eq((int)wc->opcode, opcode);
}

static void expect_no_more(void)
{
	take_completions(1);
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

Test(shim_agent, durable_when_it_completes)
{
	begin();
	mock_write(&m, 1, 0, 64, 'a');
	cr_assert_eq(post_flush(2, 0, 64, P, 0), 0);
	mock_write(&m, 3, 64, 64, 'b');
	mock_run(&m);
	expect_next(1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_no_more();
	cr_assert(!is_durable(0, 64, 'a'));
	/* HELLO and HELLO_ACK, then the request. */
	mock_side_channel_run(&m);
	expect_no_more();
	cr_assert(!is_durable(0, 64, 'a'));
	mock_side_channel_run(&m);
	cr_assert(is_durable(0, 64, 'a'));
	expect_next(2, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	expect_next(3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_no_more();
	/* The receives keep their slots; the slot of HELLO is free again. */
	cr_assert_eq(free_slots(), (size_t)CQE - RP_SIDE_RECVS);
	end();
}

/* The read fence completes before the request, so the bytes are placed. */
Test(shim_agent, request_follows_the_fence)
{
	begin();
	mock_write(&m, 1, 0, 64, 'a');
	cr_assert_eq(post_flush(2, 0, 64, P, 0), 0);
	cr_assert_eq(m.queue[1].op, MOCK_READ);
	cr_assert_eq(m.queue[1].addr, MOCK_AT);
	expect_no_more();
	cr_assert_eq(m.side.nout, 0u);
	cr_assert(mock_step(&m));
	expect_next(1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_no_more();
	cr_assert_eq(m.side.nout, 0u);
	cr_assert(mock_step(&m));
	expect_no_more();
	cr_assert_eq(m.side.nout, 1u);
	run_all();
	expect_next(2, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	/* A flush of the whole region, and a flush of both types. */
	mock_write(&m, 3, 0, MOCK_BYTES, 'c');
	cr_assert_eq(post_flush(4, 0, 0, P, 1), 0);
	run_all();
	expect_next(3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_next(4, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	cr_assert(is_durable(0, MOCK_BYTES, 'c'));
	mock_write(&m, 5, 8, 8, 'd');
	cr_assert_eq(post_flush(6, 8, 8, G | P, 0), 0);
	run_all();
	expect_next(5, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_next(6, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	cr_assert(is_durable(8, 8, 'd'));
	end();
}

/* A flush of visibility only, or of nothing, needs no request. */
Test(shim_agent, visible_only_needs_no_agent)
{
	begin();
	cr_assert_eq(post_flush(1, 0, 64, G, 0), 0);
	cr_assert_eq(post_flush(2, 64, 0, P, 0), 0);
	mock_run(&m);
	expect_next(1, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	expect_next(2, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	expect_no_more();
	cr_assert_eq(m.side.nout, 0u);
	end();
}

Test(shim_agent, unsignaled)
{
	begin();
	m.q.pub.wr_flags = 0;
	mock_write(&m, 1, 0, 64, 'a');
	cr_assert_eq(post_flush(2, 0, 64, P, 0), 0);
	mock_write(&m, 3, 64, 64, 'b');
	run_all();
	expect_next(1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_next(3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_no_more();
	cr_assert(is_durable(0, 64, 'a'));
	/* An unsignaled flush still reports an error. */
	mock_side_reregister(&m);
	cr_assert_eq(post_flush(4, 0, 64, P, 0), 0);
	run_all();
	expect_next(4, IBV_WC_REM_ACCESS_ERR, 0);
	end();
}

/* More flushes than credits complete in order. */
Test(shim_agent, more_flushes_than_credits_complete_in_order)
{
	struct ibv_wc wc[CQE];
	int n = 0;

	begin();
	for (uint64_t i = 0; i < 20; i++)
		cr_assert_eq(post_flush(i, i * 32, 32, P, 0), 0);
	for (int i = 0; i < 40; i++) {
		mock_run(&m);
		mock_side_channel_run(&m);
		n += rpmem_poll_cq(m.cq, CQE - n, wc + n);
		cr_assert_leq(m.side.nout, (size_t)RP_DEFERRED_MAX);
	}
	cr_assert_eq(n, 20);
	for (int i = 0; i < n; i++) {
		cr_assert_eq(wc[i].wr_id, (uint64_t)i);
		cr_assert_eq(wc[i].status, IBV_WC_SUCCESS);
	}
	cr_assert_eq(free_slots(), (size_t)CQE - RP_SIDE_RECVS);
	/* A flush takes a slot of the CQ, and so does each posted receive. */
	for (uint64_t i = 0; i < CQE - RP_SIDE_RECVS; i++)
		cr_assert_eq(post_flush(i, 0, 32, P, 0), 0);
	cr_assert_eq(post_flush(99, 0, 32, P, 0), ENOMEM);
	for (int i = 0; i < 40; i++) {
		mock_run(&m);
		mock_side_channel_run(&m);
		n += rpmem_poll_cq(m.cq, 1, wc);
	}
	cr_assert_eq(free_slots(), (size_t)CQE - RP_SIDE_RECVS);
	end();
}

/* A batch that was not posted leaves no entry. */
Test(shim_agent, batch_that_is_not_posted_leaves_nothing)
{
	const size_t all = CQE - RP_SIDE_RECVS - 1;

	begin();
	rpmem_wr_start(&m.q.pub);
	rpmem_wr_flush(&m.q.pub, MOCK_RKEY, MOCK_AT, 64, P, 0);
	rpmem_wr_flush(&m.q.pub, 99, MOCK_AT, 64, P, 0);
	cr_assert_eq(rpmem_wr_complete(&m.q.pub), ENOKEY);
	rpmem_wr_start(&m.q.pub);
	rpmem_wr_flush(&m.q.pub, MOCK_RKEY, MOCK_AT, 64, P, 0);
	rpmem_wr_abort(&m.q.pub);
	cr_assert_eq(free_slots(), all);
	m.complete_err = ENOMEM;
	m.complete_posted = 1;
	rpmem_wr_start(&m.q.pub);
	m.q.pub.wr_id = 1;
	rpmem_wr_flush(&m.q.pub, MOCK_RKEY, MOCK_AT, 64, P, 0);
	m.q.pub.wr_id = 2;
	rpmem_wr_flush(&m.q.pub, MOCK_RKEY, MOCK_AT, 64, P, 0);
	cr_assert_eq(rpmem_wr_complete(&m.q.pub), ENOMEM);
	run_all();
	expect_next(1, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	expect_no_more();
	cr_assert_eq(free_slots(), all + 1);
	end();
}

/* The region, which is registered again, has the same rkey, and another key. */
Test(shim_agent, former_key_is_refused)
{
	begin();
	mock_side_reregister(&m);
	cr_assert_eq(post_flush(1, 0, 64, P, 0), 0);
	cr_assert_eq(post_flush(2, 0, 64, P, 0), 0);
	mock_write(&m, 3, 0, 64, 'a');
	run_all();
	expect_next(1, IBV_WC_REM_ACCESS_ERR, 0);
	expect_next(2, IBV_WC_WR_FLUSH_ERR, 0);
	expect_next(3, IBV_WC_WR_FLUSH_ERR, 0);
	expect_no_more();
	cr_assert_eq(m.fails, 1u);
	cr_assert_eq(post_flush(4, 0, 64, P, 0), ENOTCONN);
	/* A later write of the program is reported as flushed in error. */
	m.error = false;
	mock_write(&m, 5, 0, 64, 'a');
	mock_run(&m);
	expect_next(5, IBV_WC_WR_FLUSH_ERR, 0);
	end();
}

/* If the agent does not reply, the connection ends with an error. */
Test(shim_agent, silent_agent_fails_flushes)
{
	for (int before_hello = 0; before_hello < 2; before_hello++) {
		begin();
		if (!before_hello) {
			cr_assert_eq(post_flush(9, 0, 64, P, 0), 0);
			run_all();
			expect_next(9, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
		}
		m.side.drop_replies = 99;
		cr_assert_eq(post_flush(1, 0, 64, P, 0), 0);
		mock_write(&m, 2, 64, 64, 'b');
		run_all();
		expect_no_more();
		m.side.now += 999999999;
		expect_no_more();
		m.side.now += 1;
		run_all();
		expect_next(1, IBV_WC_RETRY_EXC_ERR, 0);
		expect_next(2, IBV_WC_WR_FLUSH_ERR, 0);
		cr_assert_eq(m.fails, 1u);
		end();
	}
}

/* A reply that arrived in time is no timeout, however late it is polled. */
Test(shim_agent, late_poll_is_no_timeout)
{
	begin();
	cr_assert_eq(post_flush(1, 0, 64, P, 0), 0);
	run_all();
	expect_next(1, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	cr_assert_eq(post_flush(2, 0, 64, P, 0), 0);
	mock_run(&m);
	expect_no_more();
	mock_side_channel_run(&m);
	m.side.now += 9000000000;
	cr_assert(!rp_defer_expire(&m.q));
	expect_next(2, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	cr_assert(!rp_cq_has_completion(m.cq));
	end();
}

/* A program that sleeps is woken by the side connection's failure. */
Test(shim_agent, missed_deadline_closes_the_side_connection_of_a_sleeper)
{
	begin();
	m.side.drop_replies = 99;
	cr_assert_eq(post_flush(1, 0, 64, P, 0), 0);
	mock_write(&m, 2, 64, 64, 'b');
	run_all();
	expect_no_more();
	cr_assert(!rp_defer_expire(&m.q));
	m.side.now += 1000000000;
	cr_assert(rp_defer_expire(&m.q));
	cr_assert(!rp_defer_expire(&m.q));
	cr_assert(rp_cq_has_completion(m.cq));
	expect_next(1, IBV_WC_RETRY_EXC_ERR, 0);
	expect_next(2, IBV_WC_WR_FLUSH_ERR, 0);
	end();
}

Test(shim_agent, side_lost)
{
	for (int i = 0; i < 2; i++) {
		begin();
		if (i)
			m.side.send_err = ENOMEM;
		else
			m.side.error = true;
		cr_assert_eq(post_flush(1, 0, 64, P, 0), 0);
		mock_write(&m, 2, 0, 64, 'b');
		run_all();
		expect_next(1, IBV_WC_RETRY_EXC_ERR, 0);
		expect_next(2, IBV_WC_WR_FLUSH_ERR, 0);
		cr_assert_eq(m.fails, 1u);
		end();
	}
}

/* A flush without a request fails, too: its region may have weakened. */
Test(shim_agent, side_lost_before_a_flush_without_request)
{
	struct rp_desc d;

	begin();
	d = mock_desc(&m);
	d.native = RP_DESC_PERSISTENT;
	cr_assert_eq(mock_add(&m, &d, d.native), 0);
	cr_assert_eq(post_flush(1, 0, 64, P, 0), 0);
	run_all();
	expect_next(1, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	/* No message is that short. */
	m.side.in[0].len = 1;
	m.side.nin = 1;
	run_all();
	cr_assert_eq(post_flush(2, 0, 64, P, 0), 0);
	run_all();
	expect_next(2, IBV_WC_RETRY_EXC_ERR, 0);
	cr_assert_eq(m.fails, 1u);
	cr_assert_eq(post_flush(3, 0, 64, P, 0), ENOTCONN);
	end();
}

/* An error of the program's queue pair is reported before others. */
Test(shim_agent, error_of_the_queue_pair_is_reported_first)
{
	begin();
	mock_write(&m, 1, 0, 64, 'a');
	cr_assert_eq(post_flush(2, 0, 64, P, 0), 0);
	cr_assert_eq(post_flush(3, 0, 64, P, 0), 0);
	m.drop_ack = true;
	run_all();
	expect_next(1, IBV_WC_RETRY_EXC_ERR, 0);
	expect_next(2, IBV_WC_WR_FLUSH_ERR, 0);
	expect_next(3, IBV_WC_WR_FLUSH_ERR, 0);
	expect_no_more();
	cr_assert_eq(m.side.nout, 0u);
	cr_assert_eq(free_slots(), (size_t)CQE - RP_SIDE_RECVS - 1);
	end();
	/* A flush whose request the agent has received still succeeds. */
	begin();
	cr_assert_eq(post_flush(1, 0, 64, P, 0), 0);
	mock_run(&m);
	expect_no_more();
	mock_write(&m, 2, 0, 64, 'a');
	m.drop_ack = true;
	run_all();
	expect_next(1, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	expect_next(2, IBV_WC_RETRY_EXC_ERR, 0);
	end();
}

/* A malformed message ends the side connection. */
Test(shim_agent, malformed_message_ends_the_side_connection)
{
	begin();
	cr_assert_eq(post_flush(1, 0, 64, P, 0), 0);
	mock_run(&m);
	expect_no_more();
	memset(&m.side.in[0], 0xee, sizeof(m.side.in[0]));
	m.side.in[0].len = 48;
	m.side.nin = 1;
	run_all();
	expect_next(1, IBV_WC_RETRY_EXC_ERR, 0);
	end();
}

/* Receive completions are not deferred behind flushes. */
Test(shim_agent, receives_are_not_deferred)
{
	begin();
	cr_assert_eq(post_flush(1, 0, 64, P, 0), 0);
	mock_run(&m);
	expect_no_more();
	m.done[m.ndone++] = (struct ibv_wc){
		.wr_id = 7, .opcode = IBV_WC_RECV, .qp_num = MOCK_QPN};
	expect_next(7, IBV_WC_SUCCESS, IBV_WC_RECV);
	/* Completions of another queue pair are not deferred either. */
	m.done[m.ndone++] = (struct ibv_wc){.wr_id = 8, .qp_num = MOCK_QPN};
	m.done[m.ndone - 1].qp_num++;
	take_completions(1);
	cr_assert_eq(shown[ntaken++].wr_id, 8u);
	run_all();
	expect_next(1, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	end();
}

/* The record must be durable before the pointer to it is stored. */
Test(shim_agent, atomic_writes_are_behind_flushes)
{
	uint64_t got;

	begin();
	mock_write(&m, 1, 0, 64, 'a');
	cr_assert_eq(post_flush(2, 0, 64, P, 0), 0);
	cr_assert_eq(atomic_write(3, 128, 0x1122334455667788), 0);
	cr_assert_eq(post_flush(4, 128, 8, P, 0), 0);
	mock_write(&m, 5, 256, 64, 'b');
	mock_run(&m);
	for (int i = 0; i < 40; i++) {
		take_completions(1);
		memcpy(&got, m.visible + 128, 8);
		if (got)
			cr_assert(is_durable(0, 64, 'a'));
		/* So far only HELLO and the flush were sent. */
		if (ncompletions < 2)
			cr_assert_eq(got, 0u);
		mock_side_step(&m);
	}
	expect_next(1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_next(2, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	expect_next(3, IBV_WC_SUCCESS, RPMEM_WC_ATOMIC_WRITE);
	expect_next(4, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	expect_next(5, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	memcpy(&got, m.medium + 128, 8);
	cr_assert_eq(got, 0x1122334455667788u);
	end();
}

/* Native atomic writes are used until the first flush by the agent. */
Test(shim_agent, native_atomic_writes)
{
	struct rp_desc d;

	begin();
	d = mock_desc(&m);
	cr_assert_eq(mock_add(&m, &d, RP_DESC_ATOMIC_WRITE), 0);
	cr_assert_eq(atomic_write(1, 8, 1), 0);
	cr_assert_eq(m.queue[0].op, MOCK_ATOMIC_WRITE);
	mock_run(&m);
	expect_next(1, IBV_WC_SUCCESS, 9);
	cr_assert_eq(post_flush(2, 0, 64, P, 0), 0);
	cr_assert_eq(atomic_write(3, 8, 2), 0);
	cr_assert_eq(m.queue[1].op, MOCK_READ);
	run_all();
	expect_next(2, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	expect_next(3, IBV_WC_SUCCESS, RPMEM_WC_ATOMIC_WRITE);
	cr_assert(m.visible[8] == 2);
	end();
}

/*
 * The device flushes and the agent stores. The flush is complete before the
 * store, so nothing flushes the store: it must be durable by itself.
 */
Test(shim_agent, stores_that_a_device_flushes)
{
	const uint64_t value = 0x0101010101010101;
	struct rp_desc d;

	for (int cpu = 0; cpu < 2; cpu++) {
		ncompletions = ntaken = 0;
		mock_init_cq(&m, CQE);
		m.cpu = cpu;
		mock_side_init(&m);
		d = mock_desc(&m);
		d.native = RP_DESC_GLOBAL | RP_DESC_PERSISTENT;
		cr_assert_eq(mock_add(&m, &d, d.native), 0);
		cr_assert_eq(atomic_write(1, 128, value), 0);
		cr_assert_eq(post_flush(2, 128, 8, P, 0), 0);
		cr_assert_eq(m.queue[1].op, MOCK_FLUSH);
		run_all();
		expect_next(1, IBV_WC_SUCCESS, RPMEM_WC_ATOMIC_WRITE);
		expect_next(2, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
		cr_assert(is_durable(128, 8, 1), "%d", cpu);
		end();
	}
}

/*
 * The device has flushed, and the completion is deferred behind a store: the
 * flush fails nevertheless if the region's weakening is reported first.
 */
Test(shim_agent, deferred_flush_of_a_weakened_region_fails)
{
	const struct rp_wire_info info = {.status = RP_ST_CLASS,
					  .why = "the test says so"};
	struct mock_msg *msg = &m.side.in[0];
	struct rp_desc d;

	for (int other = 0; other < 2; other++) {
		begin();
		d = mock_desc(&m);
		d.native = RP_DESC_PERSISTENT;
		cr_assert_eq(mock_add(&m, &d, d.native), 0);
		cr_assert_eq(atomic_write(1, 128, 1), 0);
		cr_assert_eq(post_flush(2, 128, 8, P, 0), 0);
		mock_write(&m, 3, 256, 64, 'b');
		mock_run(&m);
		expect_no_more();
		/* Nothing fails if another region has weakened. */
		msg->len = (size_t)rp_wire_put_info(
			msg->bytes, sizeof(msg->bytes),
			d.key ^ (unsigned int)other, &info);
		m.side.nin = 1;
		run_all();
		expect_next(1, IBV_WC_SUCCESS, RPMEM_WC_ATOMIC_WRITE);
		expect_next(2, other ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR,
			    RPMEM_WC_FLUSH);
		expect_next(3, other ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR,
			    IBV_WC_RDMA_WRITE);
		cr_assert_eq(post_flush(4, 0, 64, P, 0), other ? 0 : ENOTCONN);
		end();
	}
}

/* Stores that are unaligned, outside, or not allowed fail as on a device. */
Test(shim_agent, bad_atomic_writes)
{
	begin();
	cr_assert_eq(atomic_write(1, 4, 1), EINVAL);
	cr_assert_eq(atomic_write(1, MOCK_BYTES, 1), 0);
	run_all();
	expect_next(1, IBV_WC_REM_ACCESS_ERR, 0);
	end();
	begin();
	m.side.region.writable = false;
	cr_assert_eq(atomic_write(1, 8, 1), 0);
	run_all();
	expect_next(1, IBV_WC_REM_ACCESS_ERR, 0);
	cr_assert_eq(m.visible[8], 0);
	end();
}

Test(shim_agent, detached_meanwhile)
{
	struct ibv_wc wc;
	size_t late;

	begin();
	for (uint64_t i = 1; i < 4; i++)
		cr_assert_eq(post_flush(i, 0, 64, P, 0), 0);
	cr_assert(mock_step(&m));
	cr_assert(mock_step(&m));
	expect_no_more();
	late = m.side.nrecvs;
	rp_qp_fini(&m.q);
	/* One outstanding read still holds its slot. */
	cr_assert_eq(free_slots(), (size_t)CQE - 1);
	mock_run(&m);
	cr_assert_eq(rpmem_poll_cq(m.cq, 1, &wc), 0);
	cr_assert_eq(free_slots(), (size_t)CQE);
	/* Late completions of the side QP are dropped, whatever slot. */
	memset(&m.q, 0, sizeof(m.q));
	rp_qp_init(&m.q, &m.qp, m.cq, m.cq->ops);
	m.q.pub.wr_flags = IBV_SEND_SIGNALED;
	while (late--)
		m.done[m.ndone++] =
			(struct ibv_wc){.wr_id = m.side.recvs[late].wr_id,
					.status = IBV_WC_WR_FLUSH_ERR,
					.qp_num = MOCK_SIDE};
	cr_assert_eq(rpmem_poll_cq(m.cq, 1, &wc), 0);
	cr_assert_eq(free_slots(), (size_t)CQE);
	mock_side_fini(&m);
	mock_fini(&m);
}

/* If the CQ has no room for the receives, there is no side connection. */
Test(shim_agent, queue_without_room_has_no_side_connection)
{
	for (int cqe = 1; cqe < 9; cqe++) {
		struct rp_side_end k;

		mock_init_cq(&m, cqe);
		cr_assert_eq(rp_defer_begin(&m.q, &k, 1, MOCK_SIDE, 1), ENOSPC);
		cr_assert_eq(free_slots(), (size_t)cqe);
		m.side.nrecvs = 0;
		mock_fini(&m);
	}
}

Test(shim_agent, words)
{
	struct rpmem_region a;

	begin();
	cr_assert_eq(rp_qp_region(&m.q, MOCK_RKEY, &a), 0);
	cr_assert_str_eq(a.persistent, "agent-clwb");
	cr_assert_str_eq(a.global, "fence");
	cr_assert_str_eq(a.survives, "power");
	end();
}
