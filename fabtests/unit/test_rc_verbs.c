// SPDX-License-Identifier: BSD-2-Clause
/* Private connections on queue pairs: posting, completions, closing. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/wire.h"
#include "fabtests/unit/rc_verbs_rig.h"

#define DEPTH 64

static char bytes[8192];

static void start(void)
{
	fake_start();
	rig_start();
}

TestSuite(rc_verbs, .init = start, .fini = rig_end);
TestSuite(rc_verbs_open);

static bool was_signaled(int i)
{
	return fake.posted[i].wr.send_flags & IBV_SEND_SIGNALED;
}

/* Complete every signaled work request with success. */
static void complete_all(void)
{
	for (int i = 0; i < fake.nposted; i++)
		if (was_signaled(i))
			fake_complete(&fake.posted[i], IBV_WC_SUCCESS);
	fake.nposted = 0;
	rig_poll();
}

Test(rc_verbs, a_chain_is_posted_in_one_call_and_reported_in_order)
{
	struct rig_op o[3];
	struct rp_channel_op *ops[3];
	struct rp_rc_mr mr;
	struct rig_end e;

	rig_connect(&e);
	cr_assert_eq(rp_rc_reg(rig, bytes, sizeof(bytes), RP_RC_LOCAL, &mr), 0);
	ops[0] = rig_op_mr(&o[0], RP_CHANNEL_WRITE, bytes, 4096, &mr);
	ops[1] = rig_op_mr(&o[1], RP_CHANNEL_WRITE, bytes + 9, 64, &mr);
	ops[2] = rig_op(&o[2], RP_CHANNEL_READ, NULL, 8);
	cr_assert_eq(rp_channel_post(e.c, ops, 3), 3);
	cr_assert_eq(fake.calls, 1);
	cr_assert_eq(fake.nposted, 3);
	cr_assert_eq(fake.posted[0].wr.opcode, IBV_WR_RDMA_WRITE);
	cr_assert_eq(fake.posted[0].wr.wr.rdma.rkey, 7);
	cr_assert_eq(fake.posted[0].wr.wr.rdma.remote_addr, 0x1000);
	cr_assert_eq(fake.posted[0].sge[0].addr, (uintptr_t)bytes);
	cr_assert_eq(fake.posted[0].sge[0].lkey,
		     ((struct ibv_mr *)mr.desc)->lkey);
	cr_assert(fake.posted[1].wr.send_flags & IBV_SEND_INLINE);
	cr_assert_eq(fake.posted[2].wr.opcode, IBV_WR_RDMA_READ);
	cr_assert_eq(fake.posted[2].len, 8);
	cr_assert_not(was_signaled(0));
	cr_assert_not(was_signaled(1));
	cr_assert(was_signaled(2));
	rig_poll();
	cr_assert_eq(o[0].done + o[1].done + o[2].done, 0);
	complete_all();
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(o[i].done, 1);
		cr_assert_eq(o[i].err, 0);
		cr_assert_eq(o[i].order, i + 1);
	}
	rp_rc_dereg(rig, &mr);
	rp_channel_close(e.c);
}

/* A READ behind a write proves placement, unlike the write's completion. */
Test(rc_verbs, a_delivered_write_is_followed_by_a_read)
{
	struct rig_op o[3];
	struct rp_channel_op *ops[3];
	struct rig_end e;

	rig_connect(&e);
	ops[0] = rig_op(&o[0], RP_CHANNEL_WRITE, bytes, 4);
	ops[0]->delivered = true;
	cr_assert_eq(rp_channel_post(e.c, ops, 1), 1);
	cr_assert_eq(fake.nposted, 2);
	cr_assert_not(was_signaled(0));
	cr_assert_eq(fake.posted[1].wr.opcode, IBV_WR_RDMA_READ);
	cr_assert_eq(fake.posted[1].wr.wr.rdma.remote_addr, 0x1000);
	cr_assert_eq(fake.posted[1].wr.wr.rdma.rkey, 7);
	cr_assert_eq(fake.posted[1].len, 4);
	cr_assert(was_signaled(1));
	complete_all();
	cr_assert_eq(o[0].done, 1);
	/* A READ covers all writes before it, even the program's READ. */
	ops[0] = rig_op(&o[0], RP_CHANNEL_WRITE, bytes, 100);
	ops[1] = rig_op(&o[1], RP_CHANNEL_WRITE, bytes, 100);
	ops[0]->delivered = ops[1]->delivered = true;
	ops[2] = rig_op(&o[2], RP_CHANNEL_SEND, bytes, 10);
	cr_assert_eq(rp_channel_post(e.c, ops, 3), 3);
	cr_assert_eq(fake.nposted, 4);
	cr_assert_eq(fake.posted[3].wr.opcode, IBV_WR_RDMA_READ);
	cr_assert_eq(fake.posted[3].len, 8);
	cr_assert_not(was_signaled(2));
	complete_all();
	cr_assert_eq(o[2].done, 1);
	ops[1] = rig_op(&o[1], RP_CHANNEL_READ, NULL, 1);
	cr_assert_eq(rp_channel_post(e.c, ops, 2), 2);
	cr_assert_eq(fake.nposted, 2);
	complete_all();
	rp_channel_close(e.c);
}

Test(rc_verbs, a_read_brings_bytes)
{
	struct rp_rc_mr mr;
	struct rig_op o;
	struct rig_end e;

	rig_connect(&e);
	cr_assert_eq(rp_rc_reg(rig, bytes, sizeof(bytes), RP_RC_LOCAL, &mr), 0);
	rig_op_mr(&o, RP_CHANNEL_READ, bytes, 100, &mr);
	cr_assert_eq(rig_post(&e, &o.op), 1);
	cr_assert_eq(fake.posted[0].sge[0].addr, (uintptr_t)bytes);
	cr_assert_eq(fake.posted[0].sge[0].lkey,
		     ((struct ibv_mr *)mr.desc)->lkey);
	cr_assert_not(fake.posted[0].wr.send_flags & IBV_SEND_INLINE);
	complete_all();
	rp_rc_dereg(rig, &mr);
	rp_channel_close(e.c);
}

Test(rc_verbs, messages_are_copied)
{
	struct rig_op o;
	struct rig_end e;

	rig_connect(&e);
	memset(bytes, 'a', 200);
	rig_op(&o, RP_CHANNEL_SEND, bytes, 200);
	o.op.iov_count = 2;
	o.iov[1] = (struct iovec){"tail", 4};
	cr_assert_eq(rig_post(&e, &o.op), 1);
	cr_assert_eq(fake.posted[0].len, 204);
	cr_assert_eq(fake.posted[0].wr.num_sge, 1);
	cr_assert_neq(fake.posted[0].sge[0].addr, (uintptr_t)bytes);
	cr_assert_neq(fake.posted[0].sge[0].lkey, 0);
	cr_assert_eq(memcmp(fake.posted[0].bytes + 198, "aatail", 6), 0);
	complete_all();
	cr_assert_eq(o.done, 1);
	rp_channel_close(e.c);
}

/* Copy buffers are released by completions, and by close(). */
Test(rc_verbs, copies_are_released)
{
	struct rig_op o[DEPTH], more;
	struct rig_end e[2];

	rig_connect(&e[0]);
	rig_connect(&e[1]);
	for (int round = 0; round < 3; round++) {
		int n = 0;

		for (int i = 0; i < DEPTH; i++) {
			rig_op(&o[i], RP_CHANNEL_SEND, bytes, 4000);
			n += rig_post(&e[i & 1], &o[i].op);
		}
		cr_assert_eq(n, DEPTH);
		rig_op(&more, RP_CHANNEL_SEND, bytes, 4000);
		cr_assert_eq(rig_post(&e[1], &more.op), 0);
		if (round < 2) {
			complete_all();
			continue;
		}
		rp_channel_close(e[0].c);
		cr_assert_eq(rig_post(&e[1], &more.op), 1);
	}
	rp_channel_close(e[1].c);
	cr_assert_eq(more.done, 1);
	cr_assert_eq(more.err, ECANCELED);
}

Test(rc_verbs_open, a_device_without_inline_data_copies)
{
	struct rig_end e;
	struct rig_op o;

	fake_start();
	fake.max_inline = 0;
	rig_start();
	rig_connect(&e);
	rig_op(&o, RP_CHANNEL_SEND, "message", 7);
	o.op.inject = true;
	for (int i = 0; i < 100; i++) {
		cr_assert_eq(rig_post(&e, &o.op), 1);
		cr_assert_not(fake.posted[0].wr.send_flags & IBV_SEND_INLINE);
		cr_assert_eq(memcmp(fake.posted[0].bytes, "message", 7), 0);
		complete_all();
	}
	rp_channel_close(e.c);
	rig_end();
}

Test(rc_verbs, injected_messages_are_never_reported)
{
	struct rig_end e;
	struct rig_op o;
	int n = 0;

	rig_connect(&e);
	rig_op(&o, RP_CHANNEL_SEND, bytes, 40);
	o.op.inject = true;
	for (int i = 0; i < 8; i++) {
		cr_assert_eq(rig_post(&e, &o.op), 1);
		n += was_signaled(i);
	}
	/* One of eight is signaled, so the send queue can be emptied. */
	cr_assert_eq(n, 1);
	for (int i = 0; i < 20; i++) {
		while (rig_post(&e, &o.op) == 1)
			;
		complete_all();
	}
	cr_assert_eq(rig_post(&e, &o.op), 1);
	cr_assert_eq(o.done, 0);
	rp_channel_close(e.c);
	cr_assert_eq(o.done, 0);
}

Test(rc_verbs, a_full_queue_pair_takes_no_more)
{
	static struct rig_op o[2 * DEPTH];
	struct rp_channel_op *ops[2 * DEPTH];
	struct rig_end e;
	int n;

	rig_connect(&e);
	for (int i = 0; i < 2 * DEPTH; i++)
		ops[i] = rig_op(&o[i], RP_CHANNEL_READ, NULL, 8);
	n = rp_channel_post(e.c, ops, 2 * DEPTH);
	cr_assert_geq(n, DEPTH - 2);
	cr_assert_leq(n, DEPTH);
	cr_assert_eq(rp_channel_post(e.c, ops + n, 1), 0);
	complete_all();
	cr_assert_eq(o[n - 1].done, 1);
	cr_assert_eq(o[n].done, 0);
	cr_assert_geq(rp_channel_post(e.c, ops + n, 2 * DEPTH - n), DEPTH - 2);
	rp_channel_close(e.c);
	for (int i = 0; i < 2 * DEPTH - 4; i++)
		cr_assert_eq(o[i].done, 1, "%d", i);
}

Test(rc_verbs_open, the_completion_queue_is_not_overrun)
{
	static struct rig_op o[8 * DEPTH];
	struct rig_end e[8];
	int n = 0;

	fake_start();
	fake.max_cqe = 128;
	rig_start();
	for (int i = 0; i < 8; i++)
		rig_connect(&e[i]);
	for (int i = 0; i < 8 * DEPTH; i++) {
		rig_op(&o[i], RP_CHANNEL_READ, NULL, 8);
		fake.nposted = 0;
		n += rig_post(&e[i % 8], &o[i].op);
	}
	/* A third of the completion queue is reserved for messages. */
	cr_assert_geq(n, 80);
	cr_assert_leq(n, 128 - 32);
	for (int i = 0; i < 7; i++)
		rp_channel_close(e[i].c);
	/*
	 * Closing a channel frees its entries once a poll has found the
	 * completion queue empty.
	 */
	cr_assert_eq(
		rig_post(&e[7], &rig_op(&o[0], RP_CHANNEL_READ, NULL, 8)[0]),
		0);
	rig_poll();
	cr_assert_eq(rig_post(&e[7], &o[0].op), 1);
	rp_channel_close(e[7].c);
	rig_end();
}

/* Unsignaled messages of idle connections may not fill the queue. */
Test(rc_verbs_open, idle_connections_leave_room)
{
	static struct rig_end e[40];
	struct rig_op o;
	int n = 0;

	fake_start();
	fake.max_cqe = 128;
	rig_start();
	rig_op(&o, RP_CHANNEL_SEND, bytes, 40);
	o.op.inject = true;
	for (int i = 0; i < 40; i++) {
		rig_connect(&e[i]);
		fake.nrecv = 0;
		for (int k = 0; k < 7; k++) {
			n += rig_post(&e[i], &o.op);
			complete_all();
		}
	}
	cr_assert_eq(n, 40 * 7);
	for (int i = 0; i < 40; i++)
		rp_channel_close(e[i].c);
	rig_end();
}

Test(rc_verbs, messages_belong_to_their_queue_pair)
{
	struct rig_end e[2];
	int posted;

	rig_connect(&e[0]);
	rig_connect(&e[1]);
	posted = fake.nrecv;
	cr_assert_gt(posted, 0);
	fake_message(fake.recv[0], e[1].qp->qp_num, "second", 6);
	fake_message(fake.recv[1], e[0].qp->qp_num, "one", 3);
	rig_poll();
	cr_assert_eq(e[0].received, 1);
	cr_assert_eq(e[0].msg_len, 3);
	cr_assert_eq(e[1].received, 1);
	cr_assert_eq(memcmp(e[1].msg, "second", 6), 0);
	/* Both receives were posted again. */
	cr_assert_eq(fake.nrecv, posted + 2);
	rp_channel_close(e[0].c);
	rp_channel_close(e[1].c);
}

/* A hostile peer could have an earlier message in the buffer served again. */
Test(rc_verbs, write_with_immediate_data_is_no_message)
{
	struct rig_end e;
	int posted;

	rig_connect(&e);
	posted = fake.nrecv;
	fake_message(fake.recv[0], e.qp->qp_num, "earlier", 7);
	fake.wc[0].opcode = IBV_WC_RECV_RDMA_WITH_IMM;
	rig_poll();
	cr_assert_eq(e.received, 0);
	cr_assert_eq(e.lost, 1);
	cr_assert_eq(e.lost_err, EPROTO);
	cr_assert_eq(fake.nrecv, posted + 1);
	rp_channel_close(e.c);
}

/* Devices reuse the numbers of queue pairs. */
Test(rc_verbs, messages_of_a_closed_connection_are_dropped)
{
	struct rig_end e, next;
	uint32_t old;
	int posted;

	rig_connect(&e);
	old = e.qp->qp_num;
	fake_message(fake.recv[0], old, "late", 4);
	rp_channel_close(e.c);
	rig_begin(&next);
	fake_event(next.id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
	fake_event(next.id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0);
	fake_padded(next.id, RDMA_CM_EVENT_CONNECT_RESPONSE, NULL, 0, 196);
	fake.next_qp_number = old;
	posted = fake.nrecv;
	rig_poll();
	cr_assert_eq(next.nconnected, 1);
	cr_assert_eq(next.received, 0);
	cr_assert_eq(e.received, 0);
	cr_assert_geq(fake.nrecv, posted + 1);
	rp_channel_close(next.c);
}

Test(rc_verbs, a_number_that_may_be_in_the_queue_is_not_used)
{
	struct rig_end e, next = {0};
	struct rig_op o;
	uint32_t old;

	rig_accept(&e);
	old = e.qp->qp_num;
	fake_padded(fake_peer(), RDMA_CM_EVENT_CONNECT_REQUEST, NULL, 0, 56);
	rig_poll();
	cr_assert_eq(rig_post(&e, rig_op(&o, RP_CHANNEL_SEND, bytes, 10)), 1);
	rp_channel_close(e.c);
	fake.next_qp_number = old;
	cr_assert_eq(rp_rc_accept(rig, rig_requests[1].request, NULL, 0,
				  &rig_events, &next, &next.c),
		     0);
	cr_assert_neq(fake.qp->qp_num, old);
	fake_message(fake.recv[0], old, "late", 4);
	fake_complete(&fake.posted[0], IBV_WC_SUCCESS);
	rig_poll();
	cr_assert_eq(next.received, 0);
	cr_assert_eq(o.done, 1);
	rp_channel_close(next.c);
}

Test(rc_verbs, a_failed_operation_ends_the_connection_once)
{
	struct rig_op o[2];
	struct rp_channel_op *ops[2];
	struct rig_end e;

	rig_connect(&e);
	ops[0] = rig_op(&o[0], RP_CHANNEL_WRITE, bytes, 8);
	ops[1] = rig_op(&o[1], RP_CHANNEL_READ, NULL, 8);
	cr_assert_eq(rp_channel_post(e.c, ops, 2), 2);
	fake_complete(&fake.posted[0], IBV_WC_REM_ACCESS_ERR);
	fake_complete(&fake.posted[1], IBV_WC_WR_FLUSH_ERR);
	fake_event(e.id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
	rig_poll();
	cr_assert_eq(e.lost, 1);
	cr_assert_eq(e.lost_err, EACCES);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(o[i].done, 1);
		cr_assert_eq(o[i].err, ECANCELED);
		cr_assert_eq(o[i].order, i + 1);
	}
	cr_assert_eq(e.order, 3);
	/* A lost connection accepts operations, and reports them as failed. */
	rig_op(&o[0], RP_CHANNEL_WRITE, bytes, 8);
	cr_assert_eq(rig_post(&e, &o[0].op), 1);
	rig_poll();
	cr_assert_eq(o[0].done, 1);
	cr_assert_neq(o[0].err, 0);
	rp_channel_close(e.c);
	cr_assert_eq(e.lost, 1);
}

Test(rc_verbs, close_ends_all_operations_in_order)
{
	struct rig_op o[20];
	struct rig_end e;

	rig_connect(&e);
	for (int i = 0; i < 20; i++)
		cr_assert_eq(
			rig_post(&e, rig_op(&o[i], RP_CHANNEL_WRITE, bytes, 8)),
			1);
	/* More completions are unread than one poll takes. */
	fake_complete(&fake.posted[0], IBV_WC_SUCCESS);
	for (int i = 1; i < 20; i++)
		fake_complete(&fake.posted[i], IBV_WC_WR_FLUSH_ERR);
	rp_channel_close(e.c);
	cr_assert_eq(fake.nwc, 20);
	cr_assert_eq(fake.disconnected, 1);
	for (int i = 0; i < 20; i++) {
		cr_assert_eq(o[i].done, 1);
		cr_assert_eq(o[i].err, ECANCELED);
		cr_assert_eq(o[i].order, i + 1);
	}
	memset(o, 0x77, sizeof(o));
	rp_rc_poll(rig, 1);
	cr_assert_eq(fake.nwc, 4);
	rig_poll();
	cr_assert_eq(e.lost, 0);
	cr_assert_eq(o[0].done, 0x77777777);
}

Test(rc_verbs, close_inside_each_callback)
{
	struct rig_op o[3];
	struct rp_channel_op *ops[3];
	struct rig_end e, other;

	rig_connect(&other);
	/* close() in done() */
	rig_connect(&e);
	for (int i = 0; i < 3; i++)
		ops[i] = rig_op(&o[i], RP_CHANNEL_READ, NULL, 8);
	o[0].close = &e;
	cr_assert_eq(rp_channel_post(e.c, ops, 3), 3);
	complete_all();
	for (int i = 0; i < 3; i++)
		cr_assert_eq(o[i].done, 1);
	/* close() in received() */
	rig_connect(&e);
	e.close = true;
	fake_message(fake.recv[0], e.qp->qp_num, "one", 3);
	fake_message(fake.recv[1], e.qp->qp_num, "two", 3);
	rig_poll();
	cr_assert_eq(e.received, 1);
	/* close() in lost() */
	rig_connect(&e);
	e.close = true;
	cr_assert_eq(rig_post(&e, rig_op(&o[0], RP_CHANNEL_READ, NULL, 8)), 1);
	fake_async(IBV_EVENT_QP_FATAL, e.qp);
	rig_poll();
	cr_assert_eq(e.lost, 1);
	cr_assert_eq(o[0].done, 1);
	/* close() in connected() */
	rig_begin(&e);
	e.close = true;
	fake_event(e.id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL, 0);
	fake_event(e.id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL, 0);
	fake_padded(e.id, RDMA_CM_EVENT_CONNECT_RESPONSE, NULL, 0, 196);
	rig_poll();
	cr_assert_eq(e.nconnected, 1);
	cr_assert_null(e.c);
	cr_assert_eq(other.lost, 0);
	rp_channel_close(other.c);
}

Test(rc_verbs, an_operation_that_the_device_refuses_ends_the_connection)
{
	struct rig_op o[3];
	struct rp_channel_op *ops[3];
	struct rig_end e;

	rig_connect(&e);
	for (int i = 0; i < 3; i++)
		ops[i] = rig_op(&o[i], RP_CHANNEL_READ, NULL, 8);
	fake.take_max = 1;
	fake.take_err = ENOMEM;
	cr_assert_eq(rp_channel_post(e.c, ops, 3), 2);
	cr_assert_eq(rp_channel_post(e.c, ops + 2, 1), 1);
	rig_poll();
	cr_assert_eq(e.lost, 1);
	cr_assert_eq(e.lost_err, ENOMEM);
	cr_assert_eq(o[0].done, 1);
	cr_assert_eq(o[0].err, ECANCELED);
	cr_assert_eq(o[1].done, 1);
	cr_assert_eq(o[1].err, ENOMEM);
	cr_assert_eq(o[2].done, 1);
	rp_channel_close(e.c);
}

Test(rc_verbs, an_operation_that_no_device_can_do)
{
	struct rp_rc_mr mr;
	struct rig_end e;
	struct rig_op o;

	/* The bytes are unregistered and longer than a copy buffer. */
	rig_connect(&e);
	cr_assert_eq(rig_post(&e, rig_op(&o, RP_CHANNEL_WRITE, bytes,
					 RP_WIRE_MAX_MSG + 1)),
		     1);
	rig_poll();
	cr_assert_eq(o.done, 1);
	cr_assert_eq(o.err, EMSGSIZE);
	cr_assert_eq(e.lost, 1);
	rp_channel_close(e.c);
	/* The bytes are longer than any message may be. */
	rig_connect(&e);
	cr_assert_eq(rp_rc_reg(rig, bytes, sizeof(bytes), RP_RC_LOCAL, &mr), 0);
	rig_op_mr(&o, RP_CHANNEL_WRITE, bytes, (1ull << 30) + 1, &mr);
	cr_assert_eq(rig_post(&e, &o.op), 1);
	rig_poll();
	cr_assert_eq(o.err, EMSGSIZE);
	rp_channel_close(e.c);
	rp_rc_dereg(rig, &mr);
}

Test(rc_verbs, events_of_the_device_end_connections)
{
	struct rig_end e[2];

	rig_connect(&e[0]);
	rig_accept(&e[1]);
	fake_async(IBV_EVENT_PORT_ERR, NULL);
	fake_async(IBV_EVENT_QP_ACCESS_ERR, e[1].qp);
	rig_poll();
	cr_assert_eq(e[0].lost, 0);
	cr_assert_eq(e[1].lost, 1);
	fake_async(IBV_EVENT_CQ_ERR, NULL);
	rig_poll();
	cr_assert_eq(e[0].lost, 1);
	cr_assert_eq(e[1].lost, 1);
	rp_channel_close(e[0].c);
	rp_channel_close(e[1].c);
}

Test(rc_verbs, trywait_sees_unread_completions)
{
	struct rig_end e;
	struct rig_op o;

	rig_connect(&e);
	cr_assert_eq(rig_post(&e, rig_op(&o, RP_CHANNEL_READ, NULL, 8)), 1);
	cr_assert_eq(rp_rc_trywait(rig), 0);
	cr_assert_eq(fake.armed, 1);
	fake_complete(&fake.posted[0], IBV_WC_SUCCESS);
	cr_assert_eq(rp_rc_trywait(rig), -EAGAIN);
	/* The next trywait() still finds the completion. */
	cr_assert_eq(rp_rc_trywait(rig), -EAGAIN);
	rig_poll();
	cr_assert_eq(o.done, 1);
	cr_assert_eq(rp_rc_trywait(rig), 0);
	fake_event(e.id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0);
	cr_assert_eq(rp_rc_trywait(rig), -EAGAIN);
	rig_poll();
	cr_assert_eq(e.lost, 1);
	rp_channel_close(e.c);
}

Test(rc_verbs, rights_of_registrations)
{
	struct rp_rc_mr mr;

	cr_assert_eq(rp_rc_reg(rig, bytes, 64,
			       RP_RC_REMOTE_READ | RP_RC_REMOTE_WRITE, &mr),
		     0);
	cr_assert_eq(mr.rkey - 0x2000, IBV_ACCESS_LOCAL_WRITE |
					       IBV_ACCESS_REMOTE_WRITE |
					       IBV_ACCESS_REMOTE_READ);
	cr_assert_eq(mr.remote_addr, (uintptr_t)bytes);
	rp_rc_dereg(rig, &mr);
	cr_assert_null(mr.handle);
	/* Read-only memory can be a source. */
	fake.read_only = true;
	cr_assert_eq(rp_rc_reg(rig, bytes, 64, RP_RC_LOCAL, &mr), 0);
	rp_rc_dereg(rig, &mr);
	cr_assert_eq(rp_rc_reg(rig, bytes, 64, RP_RC_REMOTE_WRITE, &mr),
		     -EFAULT);
	cr_assert_null(mr.handle);
}

Test(rc_verbs_open, missing_device_is_refused)
{
	char why[128];

	fake_start();
	fake.device = "fake1";
	cr_assert_eq(rp_rc_open(&rig_attr, &rig, why, sizeof(why)), -ENODATA);
	cr_assert_not_null(strstr(why, FAKE_DEVICE));
	fake_end();
}
