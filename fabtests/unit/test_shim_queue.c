// SPDX-License-Identifier: BSD-2-Clause
/* Posting and completing: order, errors, slots, and hidden completions. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "rc_mock.h"

#define G    RPMEM_FLUSH_GLOBAL
#define P    RPMEM_FLUSH_PERSISTENT
#define BOTH (RP_DESC_GLOBAL | RP_DESC_PERSISTENT)

static struct mock m;

/* eADR behind an adapter: the method is a fence. */
static void begin(unsigned int native)
{
	struct rp_desc d;

	mock_init(&m);
	m.caches_persist = true;
	d = mock_desc(&m);
	cr_assert_eq(mock_add(&m, &d, native), 0);
}

static int post_flush(uint64_t wr_id, uint64_t addr, size_t len, uint8_t type,
		      uint8_t level)
{
	m.q.pub.wr_id = wr_id;
	rpmem_wr_start(&m.q.pub);
	rpmem_wr_flush(&m.q.pub, MOCK_RKEY, addr, len, type, level);
	return rpmem_wr_complete(&m.q.pub);
}

static void expect_next(uint64_t wr_id, enum ibv_wc_status status, int opcode)
{
	struct ibv_wc wc;

	cr_assert_eq(rpmem_poll_cq(m.cq, 1, &wc), 1, "wr_id %d", (int)wr_id);
	cr_assert_eq(wc.wr_id, wr_id);
	cr_assert_eq(wc.status, status, "%d", (int)wc.status);
	cr_assert_eq(wc.qp_num, MOCK_QPN);
	if (status)
		cr_assert_eq(wc.vendor_err, 0x99u);
	else
		cr_assert_eq((int)wc.opcode, opcode);
}

static void expect_no_more(void)
{
	struct ibv_wc wc;

	cr_assert_eq(rpmem_poll_cq(m.cq, 1, &wc), 0);
}

static size_t free_slots(void)
{
	size_t n = 0;

	for (struct rp_slot *s = m.cq->free; s; s = s->next)
		n++;
	return n;
}

Test(shim_queue, in_order)
{
	for (unsigned int native = 0; native <= BOTH; native += BOTH) {
		begin(native);
		mock_write(&m, 1, 0, 64, 'a');
		cr_assert_eq(post_flush(2, MOCK_AT, 64, P, 0), 0);
		mock_write(&m, 3, 64, 64, 'b');
		cr_assert_eq(post_flush(4, 0, 0, G, 1), 0);
		mock_run(&m);
		expect_next(1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		expect_next(2, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
		expect_next(3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		expect_next(4, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
		expect_no_more();
		cr_assert_eq(free_slots(), 8u);
		mock_fini(&m);
	}
}

Test(shim_queue, native_flush_keeps_its_arguments)
{
	begin(BOTH);
	m.q.pub.wr_flags = IBV_SEND_FENCE;
	cr_assert_eq(post_flush(5, MOCK_AT + 3, 99, G | P, 0), 0);
	cr_assert_eq(m.nqueue, 1u);
	cr_assert_eq(m.queue[0].op, MOCK_FLUSH);
	cr_assert_eq(m.queue[0].wr_id, 5u);
	cr_assert_eq(m.queue[0].flags, (unsigned int)IBV_SEND_FENCE);
	cr_assert_eq(m.queue[0].addr, MOCK_AT + 3);
	cr_assert_eq(m.queue[0].len, 99u);
	cr_assert_eq(m.queue[0].type, G | P);
	cr_assert_eq(m.queue[0].level, 0);
	mock_run(&m);
	expect_no_more();
	mock_fini(&m);
}

/* The shim's read is always signaled, because its completion frees the slot. */
Test(shim_queue, unsignaled_flush_reports_errors)
{
	begin(0);
	m.q.pub.wr_flags = IBV_SEND_FENCE | IBV_SEND_INLINE;
	cr_assert_eq(post_flush(1, MOCK_AT, 64, P, 0), 0);
	cr_assert_eq(m.queue[0].flags,
		     (unsigned int)(IBV_SEND_FENCE | IBV_SEND_SIGNALED));
	mock_write(&m, 2, 0, 1, 'a');
	mock_run(&m);
	expect_next(2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	expect_no_more();
	cr_assert_eq(free_slots(), 8u);
	/* An unsignaled flush still reports an error. */
	cr_assert_eq(post_flush(3, MOCK_AT, 64, P, 0), 0);
	m.next = IBV_WC_RETRY_EXC_ERR;
	mock_run(&m);
	expect_next(3, IBV_WC_RETRY_EXC_ERR, 0);
	mock_fini(&m);
}

Test(shim_queue, all_are_signaled)
{
	begin(0);
	m.q.sig_all = true;
	m.q.pub.wr_flags = 0;
	cr_assert_eq(post_flush(1, MOCK_AT, 64, P, 0), 0);
	mock_run(&m);
	expect_next(1, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	mock_fini(&m);
}

/* A poll returns at most n completions, without gaps. */
Test(shim_queue, polls_many)
{
	struct ibv_wc wc[8];

	begin(0);
	for (uint64_t i = 0; i < 6; i++) {
		m.q.pub.wr_flags = i % 3 == 1 ? 0 : IBV_SEND_SIGNALED;
		cr_assert_eq(post_flush(i, MOCK_AT, 64, P, 0), 0);
	}
	mock_run(&m);
	cr_assert_eq(rpmem_poll_cq(m.cq, 3, wc), 3);
	cr_assert(wc[0].wr_id == 0 && wc[1].wr_id == 2 && wc[2].wr_id == 3);
	cr_assert_eq(rpmem_poll_cq(m.cq, 8, wc), 1);
	cr_assert_eq(wc[0].wr_id, 5u);
	mock_fini(&m);
}

/* There are no more outstanding flushes than entries of the CQ. */
Test(shim_queue, flushes_are_bounded_by_completion_entries)
{
	begin(0);
	for (uint64_t i = 0; i < 8; i++)
		cr_assert_eq(post_flush(i, MOCK_AT, 64, P, 0), 0);
	cr_assert_eq(post_flush(8, MOCK_AT, 64, P, 0), ENOMEM);
	cr_assert_eq(m.nqueue, 8u);
	mock_run(&m);
	for (uint64_t i = 0; i < 8; i++)
		expect_next(i, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	cr_assert_eq(post_flush(9, MOCK_AT, 64, P, 0), 0);
	mock_run(&m);
	expect_next(9, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	mock_fini(&m);
}

/* A batch is posted as a whole or not at all, and loses no slot. */
Test(shim_queue, batch_is_posted_as_a_whole)
{
	begin(0);
	rpmem_wr_start(&m.q.pub);
	rpmem_wr_flush(&m.q.pub, MOCK_RKEY, MOCK_AT, 64, P, 0);
	rpmem_wr_flush(&m.q.pub, MOCK_RKEY, MOCK_AT, 64, 0, 0);
	rpmem_wr_flush(&m.q.pub, 99, MOCK_AT, 64, P, 0);
	cr_assert_eq(rpmem_wr_complete(&m.q.pub), EINVAL);
	cr_assert_eq(m.nqueue, 0u);
	cr_assert_eq(free_slots(), 8u);
	rpmem_wr_start(&m.q.pub);
	rpmem_wr_flush(&m.q.pub, MOCK_RKEY, MOCK_AT, 64, P, 0);
	rpmem_wr_abort(&m.q.pub);
	cr_assert_eq(m.nqueue, 0u);
	cr_assert_eq(free_slots(), 8u);
	/* The device accepts two requests of three. */
	m.complete_err = ENOMEM;
	m.complete_posted = 2;
	rpmem_wr_start(&m.q.pub);
	for (uint64_t i = 1; i <= 3; i++) {
		m.q.pub.wr_id = i;
		rpmem_wr_flush(&m.q.pub, MOCK_RKEY, MOCK_AT, 64, P, 0);
	}
	cr_assert_eq(rpmem_wr_complete(&m.q.pub), ENOMEM);
	cr_assert_eq(free_slots(), 6u);
	mock_run(&m);
	expect_next(1, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	expect_next(2, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	expect_no_more();
	cr_assert_eq(free_slots(), 8u);
	mock_fini(&m);
}

Test(shim_queue, unknown_regions)
{
	struct rp_desc d;

	begin(0);
	rpmem_wr_start(&m.q.pub);
	rpmem_wr_flush(&m.q.pub, 8, MOCK_AT, 64, P, 0);
	cr_assert_eq(rpmem_wr_complete(&m.q.pub), ENOKEY);
	cr_assert_eq(rpmem_forget_mr(&m.q.pub, 8), ENOKEY);
	cr_assert_eq(rpmem_forget_mr(&m.q.pub, MOCK_RKEY), 0);
	cr_assert_eq(post_flush(1, MOCK_AT, 64, P, 0), ENOKEY);
	/* The rkey is added again: the later descriptor replaces the first. */
	d = mock_desc(&m);
	d.domain = RP_DOMAIN_MEMCTRL;
	cr_assert_eq(mock_add(&m, &d, 0), 0);
	cr_assert_eq(post_flush(1, MOCK_AT, 64, P, 0), EOPNOTSUPP);
	d.domain = RP_DOMAIN_CPUCACHE;
	cr_assert_eq(mock_add(&m, &d, 0), 0);
	cr_assert_eq(post_flush(1, MOCK_AT, 64, P, 0), 0);
	cr_assert_eq(m.nqueue, 1u);
	mock_run(&m);
	expect_next(1, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	mock_fini(&m);
}

/* A descriptor of another connection; a queue pair that is not ready. */
Test(shim_queue, descriptor_must_fit_the_connection)
{
	begin(0);
	m.end.dest_qp_num = MOCK_PEER + 1;
	cr_assert_eq(post_flush(1, MOCK_AT, 64, P, 0), EKEYREJECTED);
	m.end.dest_qp_num = MOCK_PEER;
	m.end.state = IBV_QPS_RTR;
	cr_assert_eq(post_flush(1, MOCK_AT, 64, P, 0), EINVAL);
	m.end.state = IBV_QPS_RTS;
	m.end.max_rd_atomic = 0;
	cr_assert_eq(post_flush(1, MOCK_AT, 64, P, 0), EOPNOTSUPP);
	m.end.max_rd_atomic = 1;
	cr_assert_eq(post_flush(1, MOCK_AT, 64, P, 0), 0);
	cr_assert_eq(m.nqueue, 1u);
	mock_run(&m);
	expect_next(1, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	mock_fini(&m);
}

/* A flush that a device would refuse fails at its place in the queue. */
Test(shim_queue, refusals_are_in_order)
{
	static const struct {
		unsigned int lacks_qp;
		uint64_t addr;
		enum ibv_wc_status want;
	} cases[] = {
		{RP_DESC_PERSISTENT, MOCK_AT, IBV_WC_REM_INV_REQ_ERR},
		{0, MOCK_AT + MOCK_BYTES - 63, IBV_WC_REM_ACCESS_ERR},
		/* Reads are not allowed either. */
		{RP_DESC_PERSISTENT | RP_DESC_READ, MOCK_AT,
		 IBV_WC_REM_INV_REQ_ERR},
		{RP_DESC_READ, MOCK_AT + MOCK_BYTES, IBV_WC_REM_ACCESS_ERR},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rp_desc d;

		mock_init(&m);
		m.caches_persist = true;
		m.access &= ~cases[i].lacks_qp;
		d = mock_desc(&m);
		cr_assert_eq(mock_add(&m, &d, 0), 0);
		mock_write(&m, 1, 0, 64, 'a');
		cr_assert_eq(post_flush(2, cases[i].addr, 64, P, 0), 0);
		mock_write(&m, 3, 0, 64, 'b');
		mock_run(&m);
		expect_next(1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		expect_next(2, cases[i].want, 0);
		expect_next(3, IBV_WC_WR_FLUSH_ERR, 0);
		expect_no_more();
		/* The program may reset the queue pair and connect again. */
		m.error = false;
		cr_assert_eq(post_flush(4, MOCK_AT, 64, P, 0), ENOTCONN);
		cr_assert_eq(m.nqueue, 0u);
		mock_fini(&m);
	}
}

/* A flush outside the region fails even if the device checks nothing. */
Test(shim_queue, refused_flush_fails_on_a_lax_device)
{
	begin(0);
	m.checks_no_range = true;
	cr_assert_eq(post_flush(1, MOCK_AT + MOCK_BYTES, 64, P, 0), 0);
	mock_write(&m, 2, 0, 64, 'b');
	cr_assert(mock_step(&m));
	{
		struct ibv_wc wc;

		cr_assert_eq(rpmem_poll_cq(m.cq, 1, &wc), 1);
		cr_assert_eq(wc.status, IBV_WC_REM_ACCESS_ERR);
		cr_assert_eq(wc.wr_id, 1u);
	}
	cr_assert_eq(m.fails, 1u);
	mock_run(&m);
	expect_next(2, IBV_WC_WR_FLUSH_ERR, 0);
	cr_assert_eq(post_flush(3, MOCK_AT, 64, P, 0), ENOTCONN);
	mock_fini(&m);
}

/* Errors of earlier requests are reported unchanged. */
Test(shim_queue, earlier_error_is_reported_first)
{
	begin(0);
	mock_write(&m, 1, 0, 64, 'a');
	cr_assert_eq(post_flush(2, MOCK_AT + MOCK_BYTES, 64, P, 0), 0);
	m.next = IBV_WC_RETRY_EXC_ERR;
	mock_run(&m);
	expect_next(1, IBV_WC_RETRY_EXC_ERR, 0);
	expect_next(2, IBV_WC_WR_FLUSH_ERR, 0);
	mock_fini(&m);
}

/* Under the preload library, posts after an error complete with errors. */
Test(shim_queue, posts_after_errors_as_a_device)
{
	begin(BOTH);
	m.q.posts_when_lost = true;
	mock_write(&m, 1, 0, 64, 'a');
	m.next = IBV_WC_RNR_RETRY_EXC_ERR;
	mock_run(&m);
	expect_next(1, IBV_WC_RNR_RETRY_EXC_ERR, 0);
	cr_assert_eq(post_flush(2, MOCK_AT, 64, P, 0), 0);
	mock_run(&m);
	expect_next(2, IBV_WC_WR_FLUSH_ERR, 0);
	expect_no_more();
	mock_fini(&m);
}

/* Regions may be added and removed between start and complete. */
Test(shim_queue, regions_change_inside_a_batch)
{
	const struct rp_remote_cfg cfg = {.required = RP_CLASS_POWER};
	uint8_t buf[RP_DESC_LEN];
	struct rp_desc d;

	mock_init(&m);
	m.caches_persist = true;
	d = mock_desc(&m);
	cr_assert_eq(rp_desc_put(buf, &d), 0);
	rpmem_wr_start(&m.q.pub);
	cr_assert(!rp_qp_has_region(&m.q, MOCK_RKEY));
	cr_assert_eq(rpmem_forget_mr(&m.q.pub, MOCK_RKEY), ENOKEY);
	cr_assert_eq(rp_qp_add_region(&m.q, buf, &cfg), 0);
	cr_assert(rp_qp_has_region(&m.q, MOCK_RKEY));
	m.q.pub.wr_id = 1;
	m.q.pub.wr_flags = IBV_SEND_SIGNALED;
	rpmem_wr_flush(&m.q.pub, MOCK_RKEY, MOCK_AT, 64, P, 0);
	cr_assert_eq(rpmem_wr_complete(&m.q.pub), 0);
	mock_run(&m);
	expect_next(1, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);

	/* A later descriptor of the region allows less. */
	d.region = 0;
	cr_assert_eq(rp_desc_put(buf, &d), 0);
	rpmem_wr_start(&m.q.pub);
	cr_assert_eq(rp_qp_add_region(&m.q, buf, &cfg), 0);
	cr_assert_eq(rpmem_forget_mr(&m.q.pub, MOCK_RKEY), 0);
	cr_assert(!rp_qp_has_region(&m.q, MOCK_RKEY));
	rpmem_wr_flush(&m.q.pub, MOCK_RKEY, MOCK_AT, 64, P, 0);
	cr_assert_eq(rpmem_wr_complete(&m.q.pub), ENOKEY);
	mock_fini(&m);
}

/* A failed request of the program makes outstanding flushes fail. */
Test(shim_queue, any_error_ends_flushes)
{
	begin(BOTH);
	mock_write(&m, 1, 0, 64, 'a');
	m.next = IBV_WC_RNR_RETRY_EXC_ERR;
	mock_run(&m);
	expect_next(1, IBV_WC_RNR_RETRY_EXC_ERR, 0);
	m.error = false;
	cr_assert_eq(post_flush(2, MOCK_AT, 64, P, 0), ENOTCONN);
	mock_fini(&m);
}

/* Detach the queue pair and attach it again. */
static void reattach(void)
{
	struct rp_desc d;

	rp_qp_fini(&m.q);
	memset(&m.q, 0, sizeof(m.q));
	rp_qp_init(&m.q, &m.qp, m.cq, m.cq->ops);
	m.q.pub.wr_flags = IBV_SEND_SIGNALED;
	d = mock_desc(&m);
	cr_assert_eq(mock_add(&m, &d, 0), 0);
}

/* Completions of a queue pair that was detached are dropped. */
Test(shim_queue, completions_after_detaching_are_dropped)
{
	static const enum ibv_wc_status ends[] = {IBV_WC_SUCCESS,
						  IBV_WC_WR_FLUSH_ERR};

	for (int i = 0; i < 2; i++) {
		begin(0);
		cr_assert_eq(rpmem_detach_cq(m.cq), EBUSY);
		cr_assert_eq(post_flush(1, MOCK_AT, 64, P, 0), 0);
		reattach();
		cr_assert_eq(free_slots(), 7u);
		m.next = ends[i];
		cr_assert(mock_step(&m));
		m.error = false;
		expect_no_more();
		/* An error of the former connection does not end this one. */
		cr_assert_eq(post_flush(2, MOCK_AT, 64, P, 0), 0);
		mock_run(&m);
		expect_next(2, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
		expect_no_more();
		cr_assert_eq(free_slots(), 8u);
		mock_fini(&m);
	}
}

/* A device drops work requests of a reset queue pair: they never complete. */
Test(shim_queue, slots_of_dropped_work_requests_are_freed)
{
	begin(0);
	for (uint64_t i = 0; i < 8; i++)
		cr_assert_eq(post_flush(i, MOCK_AT, 64, P, 0), 0);
	cr_assert(mock_step(&m));
	cr_assert(mock_step(&m));
	m.nqueue = 0;
	reattach();
	rp_cq_drop_slots(m.cq, MOCK_QPN + 1);
	expect_no_more();
	cr_assert_eq(free_slots(), 2u);
	/* The queue may have completions until it was found empty. */
	rp_cq_drop_slots(m.cq, MOCK_QPN);
	cr_assert_eq(free_slots(), 2u);
	cr_assert_eq(post_flush(8, MOCK_AT, 64, P, 0), 0);
	expect_no_more();
	cr_assert_eq(free_slots(), 7u);
	mock_run(&m);
	expect_next(8, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	cr_assert_eq(free_slots(), 8u);
	mock_fini(&m);
}

/* Only a device's atomic write is known to store 8 bytes at once. */
Test(shim_queue, atomic_writes)
{
	const uint64_t value = 0x1122334455667788;
	struct rp_desc d;

	begin(RP_DESC_ATOMIC_WRITE);
	m.q.pub.wr_id = 1;
	rpmem_wr_start(&m.q.pub);
	rpmem_wr_atomic_write(&m.q.pub, MOCK_RKEY, MOCK_AT + 8, &value);
	cr_assert_eq(rpmem_wr_complete(&m.q.pub), 0);
	cr_assert_eq(m.queue[0].flags, (unsigned int)IBV_SEND_SIGNALED);
	mock_run(&m);
	expect_next(1, IBV_WC_SUCCESS, 9);
	/* Behind a flush that is a read, it needs IBV_SEND_FENCE. */
	cr_assert_eq(post_flush(2, MOCK_AT, 64, P, 0), 0);
	m.q.pub.wr_id = 3;
	rpmem_wr_start(&m.q.pub);
	rpmem_wr_atomic_write(&m.q.pub, MOCK_RKEY, MOCK_AT + 8, &value);
	cr_assert_eq(rpmem_wr_complete(&m.q.pub), 0);
	cr_assert_eq(m.queue[1].op, MOCK_ATOMIC_WRITE);
	cr_assert_eq(m.queue[1].flags,
		     (unsigned int)(IBV_SEND_SIGNALED | IBV_SEND_FENCE));
	mock_fini(&m);

	begin(BOTH);
	rpmem_wr_start(&m.q.pub);
	rpmem_wr_atomic_write(&m.q.pub, MOCK_RKEY, MOCK_AT, &value);
	cr_assert_eq(rpmem_wr_complete(&m.q.pub), EOPNOTSUPP);
	d = mock_desc(&m);
	d.native = BOTH;
	cr_assert_eq(mock_add(&m, &d, RP_DESC_NATIVE), 0);
	rpmem_wr_start(&m.q.pub);
	rpmem_wr_atomic_write(&m.q.pub, MOCK_RKEY, MOCK_AT, &value);
	cr_assert_eq(rpmem_wr_complete(&m.q.pub), EOPNOTSUPP);
	rpmem_wr_start(&m.q.pub);
	rpmem_wr_atomic_write(&m.q.pub, 99, MOCK_AT, &value);
	cr_assert_eq(rpmem_wr_complete(&m.q.pub), ENOKEY);
	cr_assert_eq(m.nqueue, 0u);
	mock_fini(&m);
}

Test(shim_queue, words)
{
	struct rpmem_region a;

	begin(0);
	cr_assert_eq(rp_qp_region(&m.q, MOCK_RKEY, &a), 0);
	cr_assert_str_eq(a.persistent, "fence");
	cr_assert_str_eq(a.global, "fence");
	cr_assert_str_eq(a.survives, "power");
	cr_assert_eq(rp_qp_region(&m.q, 8, &a), ENOKEY);
	mock_fini(&m);
}

Test(shim_queue, bad_descriptors)
{
	struct rp_desc d;
	uint8_t buf[RP_DESC_LEN];
	const struct rp_remote_cfg cfg = {.required = RP_CLASS_POWER};

	begin(0);
	d = mock_desc(&m);
	cr_assert_eq(rp_desc_put(buf, &d), 0);
	buf[20] ^= 1;
	cr_assert_eq(rp_qp_add_region(&m.q, buf, &cfg), EBADMSG);
	mock_fini(&m);
}
