// SPDX-License-Identifier: BSD-2-Clause
/* The agent's thread and its ring: it polls, or reports that it is idle. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <criterion/criterion.h>

#include "rc_pair.h"
#include "seeded.h"

#define FOR_EVER "60000000" /* us: longer than any test waits */

static struct pair p;
static const struct pair_attr with_side = {.access = PERSISTENT, .sides = true};
static const struct pair_attr by_builders = {
	.ops = BUILDERS, .access = PERSISTENT, .sides = true};
static const struct pair_attr without_writes = {
	.ops = IBV_QP_EX_WITH_RDMA_READ, .access = PERSISTENT, .sides = true};

/* Start ADR on soft-RoCE, where the target's kernel places writes. */
static void start(void)
{
	setenv("FI_OFI_RPMEM_SPIN", FOR_EVER, 1);
	setenv("FI_OFI_RPMEM_TIMEOUT", "20000", 1);
	dev_start();
	dev.facts.placement = RP_PLACE_CPU_KERNEL;
	dev.facts.fence = RP_UNKNOWN;
}

TestSuite(shim_ring, .init = start, .fini = dev_end);

static void flush_once(uint64_t i)
{
	const size_t off = 64 * (i % 100);

	cr_assert_eq(pair_write(&p, 1, off, 64, (uint8_t)i), 0);
	cr_assert_eq(pair_flush(&p, 2, off, 64), 0);
	pair_expect_next(&p, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	pair_expect_next(&p, 2, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	cr_assert(dev_durable(off, 64, (uint8_t)i), "%d", (int)i);
}

Test(shim_ring, no_read_while_the_agent_polls)
{
	for (int i = 0; i < 2; i++) {
		const unsigned int before = dev_count(IBV_WC_RDMA_READ);

		pair_open(&p, i ? &by_builders : &with_side);
		cr_assert_str_eq(pair_method(&p), "agent-clwb");
		for (uint64_t k = 0; k < 50; k++)
			flush_once(k);
		/* The first flush and those before POLLING are reads. */
		cr_assert_leq(dev_count(IBV_WC_RDMA_READ) - before, 3u);
		pair_close(&p);
	}
}

static unsigned int replies_sent(const struct pair_attr *attr)
{
	unsigned int before;

	pair_open(&p, attr);
	/* Flush until the agent polls and POLLING has arrived. */
	for (uint64_t k = 0; k < 5; k++)
		flush_once(k);
	before = dev_count(IBV_WC_SEND);
	for (uint64_t k = 0; k < 50; k++)
		flush_once(k);
	before = dev_count(IBV_WC_SEND) - before;
	pair_close(&p);
	return before;
}

/* A polling initiator gets replies by writes; others get messages. */
Test(shim_ring, replies_are_written_to_a_polling_initiator)
{
	const struct pair_attr sleeping = {
		.access = PERSISTENT, .sides = true, .sleeps = true};
	unsigned int n = replies_sent(&with_side);

	cr_assert_leq(n, 1u, "%u", n);
	n = replies_sent(&sleeping);
	cr_assert_geq(n, 50u, "%u", n);
}

/* Write a reply, or a part of it, as the agent's device does. */
static void write_reply(struct rp_ring *b, const void *msg, size_t len,
			size_t part)
{
	struct rp_ring_write w;

	cr_assert_eq(rp_ring_put(b, msg, len, &w), 0);
	if (part > w.len)
		part = w.len;
	memcpy((char *)(uintptr_t)p.sa.replies + w.offset, w.buf, part);
}

/* A malformed reply ends the side connection; a partial one is ignored. */
Test(shim_ring, malformed_replies)
{
	static uint8_t out[RP_RING_LEN], msg[RP_RING_MSG];
	struct rp_ring b;

	for (size_t len = 1; len <= RP_RING_MSG; len += 13) {
		for (size_t part = 4; part <= len + 64; part += len + 40) {
			memset(out, 0, sizeof(out));
			rp_ring_init(&b, NULL, out);
			pair_open(&p, &with_side);
			dev.deaf_qp = p.sb.target;
			cr_assert_eq(pair_flush(&p, 1, 0, 64), 0);
			pair_expect_next(&p, 0, 0, 0);
			memset(msg, (int)len, sizeof(msg));
			write_reply(&b, msg, len, part);
			if (part > len + RP_WIRE_SLOT)
				pair_expect_next(&p, 1, IBV_WC_RETRY_EXC_ERR,
						 0);
			else
				pair_expect_next(&p, 0, 0, 0);
			dev.deaf_qp = 0;
			pair_close(&p);
		}
	}
}

/* Replies that have no room in the ring are messages. */
Test(shim_ring, full_ring_falls_back_to_messages)
{
	unsigned int sends;

	pair_open(&p, &with_side);
	for (uint64_t k = 0; k < 5; k++)
		flush_once(k);
	for (uint64_t k = 1; k <= 8; k++)
		cr_assert_eq(pair_flush(&p, k, 64 * k, 64), 0);
	for (uint64_t k = 1; k <= 8; k++)
		pair_expect_next(&p, k, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	/* The next request carries the consumer index of the reply ring. */
	for (uint64_t k = 1; k <= 4; k++)
		cr_assert_eq(pair_atomic_write(&p, k, 8 * k, k), 0);
	for (uint64_t k = 1; k <= 4; k++)
		pair_expect_next(&p, k, IBV_WC_SUCCESS, RPMEM_WC_ATOMIC_WRITE);
	sends = dev_count(IBV_WC_SEND);
	for (uint64_t k = 0; k < 20; k++)
		flush_once(k);
	cr_assert_leq(dev_count(IBV_WC_SEND) - sends, 2u);
	pair_close(&p);
}

/*
 * A slot is in use until its write is acknowledged, because the write may be
 * repeated.
 */
Test(shim_ring, slot_is_kept_until_its_write_is_acknowledged)
{
	unsigned int sends;

	pair_open(&p, &with_side);
	for (uint64_t k = 0; k < 5; k++)
		flush_once(k);
	dev.late_qp = p.sb.target;
	sends = dev_count(IBV_WC_SEND);
	for (uint64_t k = 0; k < 12; k++)
		flush_once(k);
	cr_assert_eq(dev_count(IBV_WC_SEND) - sends, 12u - RP_RING_SLOTS);
	dev.late_qp = 0;
	dev_run();
	sends = dev_count(IBV_WC_SEND);
	/* The thread may idle once before it sees the completions. */
	for (uint64_t k = 0; k < 12; k++)
		flush_once(k);
	cr_assert_leq(dev_count(IBV_WC_SEND) - sends, 1u);
	pair_close(&p);
}

/* On a queue pair without RDMA writes, the shim pipelines nothing. */
Test(shim_ring, nothing_is_pipelined_without_writes)
{
	pair_open(&p, &without_writes);
	for (uint64_t k = 0; k < 5; k++) {
		cr_assert_eq(pair_flush(&p, k + 1, 0, 64), 0);
		pair_expect_next(&p, k + 1, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	}
	cr_assert_eq(dev_count(IBV_WC_RDMA_READ), 5u);
	pair_close(&p);
}

static _Atomic int crossed;

/* A flush pipelined between IDLE and arming the CQ must not be lost. */
static void flush_pipelined(void)
{
	const unsigned int reads = dev_count(IBV_WC_RDMA_READ);
	struct ibv_wc wc;
	int how = 1;

	if (!pair_write(&p, 3, 0, 64, 'c') && !pair_flush(&p, 4, 0, 64) &&
	    rpmem_poll_cq(p.a.scq, 1, &wc) == 1 && wc.wr_id == 3 &&
	    !rpmem_poll_cq(p.a.scq, 1, &wc) &&
	    dev_count(IBV_WC_RDMA_READ) == reads)
		how = 2;
	crossed = how;
}

static void flush_by_message(void)
{
	const unsigned int reads = dev_count(IBV_WC_RDMA_READ);
	struct ibv_wc wc;
	int how = 1;

	if (!rpmem_poll_cq(p.a.scq, 1, &wc) && !pair_flush(&p, 4, 0, 64) &&
	    !rpmem_poll_cq(p.a.scq, 1, &wc) &&
	    dev_count(IBV_WC_RDMA_READ) == reads + 1)
		how = 2;
	crossed = how;
}

Test(shim_ring, flush_crosses_idle)
{
	void (*const how[])(void) = {flush_pipelined, flush_by_message};
	const struct timespec ms = {.tv_nsec = 1000000};

	setenv("FI_OFI_RPMEM_SPIN", "200000", 1);
	setenv("FI_OFI_RPMEM_TIMEOUT", "5000", 1);
	for (int i = 0; i < 2; i++) {
		pair_open(&p, &with_side);
		crossed = 0;
		/* On a slow machine the agent is idle, so wake it again. */
		for (uint64_t k = 0; !crossed && k < 20; k++) {
			dev_call_at_notify(NULL);
			/* Flush often enough to make the agent poll. */
			for (uint64_t j = 0; j < 4; j++)
				flush_once(j);
			dev_call_at_notify(how[i]);
			for (int j = 0; !crossed && j < 1000; j++)
				nanosleep(&ms, NULL);
		}
		pair_expect_next(&p, 4, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
		cr_assert_eq(crossed, 2);
		flush_once(100);
		pair_close(&p);
	}
}

/* The agent idles and polls in turn; messages may cross at any time. */
Test(shim_ring, idle_and_polling)
{
	static const char *const spins[] = {"0", "20", "200"};
	struct seeded s = seeded_start();

	for (int i = 0; i < 3; i++) {
		setenv("FI_OFI_RPMEM_SPIN", spins[i], 1);
		pair_open(&p, &with_side);
		for (uint64_t k = 0; k < 150; k++) {
			const struct timespec ns = {
				.tv_nsec = (long)seeded_below(&s, 300000)};

			if (seeded_below(&s, 2))
				nanosleep(&ns, NULL);
			flush_once(k);
			dev.ndone = 0;
		}
		pair_close(&p);
	}
}
