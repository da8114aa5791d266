// SPDX-License-Identifier: BSD-2-Clause
/* The target's agent, its thread and side connections, with real peers. */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/wire.h"
#include "rc_pair.h"
#include "verbs/target_priv.h"

#define FOR_EVER "60000000" /* us: longer than any test waits */

static struct pair p;
static const struct pair_attr with_side = {.access = PERSISTENT, .sides = true};
static const struct pair_attr by_builders = {
	.ops = BUILDERS, .access = PERSISTENT, .sides = true};

static void start(void)
{
	setenv("FI_OFI_RPMEM_SPIN", "0", 1);
	setenv("FI_OFI_RPMEM_TIMEOUT", "20000", 1);
	dev_start();
}

TestSuite(shim_target, .init = start, .fini = dev_end);

/* The agent's thread sleeps in poll(), of which this is the last timeout. */
static atomic_int last_timeout;

int __real_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms)
{
	atomic_store(&last_timeout, ms);
	return __real_poll(fds, n, ms);
}

/* The exact clock, which ends the agent's polling, is ahead by this. */
static atomic_int ahead;

int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
	int ret = __real_clock_gettime(id, t);

	if (id == CLOCK_MONOTONIC)
		t->tv_sec += atomic_load(&ahead);
	return ret;
}

Test(shim_target, durable_when_it_completes)
{
	for (int i = 0; i < 2; i++) {
		memset(dev.medium, 0, sizeof(dev.medium));
		pair_open(&p, i ? &by_builders : &with_side);
		cr_assert_str_eq(pair_method(&p), "agent-clwb");
		for (size_t k = 0; k < 20; k++) {
			const size_t off = 128 * k;
			const uint8_t value = (uint8_t)(k + 1);

			cr_assert_eq(pair_write(&p, 1, off, 100, value), 0);
			cr_assert_eq(pair_flush(&p, 2, off + 10, 90), 0);
			pair_expect_next(&p, 1, IBV_WC_SUCCESS,
					 IBV_WC_RDMA_WRITE);
			pair_expect_next(&p, 2, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
			cr_assert(dev_durable(off, 100, value), "%zu", k);
		}
		/* The flush covers its range only. */
		cr_assert_eq(pair_write(&p, 3, 4096, 128, 'x'), 0);
		cr_assert_eq(pair_flush(&p, 4, 4096 + 64, 64), 0);
		pair_expect_next(&p, 3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		pair_expect_next(&p, 4, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
		cr_assert(dev_durable(4096 + 64, 64, 'x'));
		cr_assert(dev_durable(4096, 64, 0));
		pair_close(&p);
	}
}

/* The checks detect an agent that flushes nothing. */
Test(shim_target, idle_agent_is_detected)
{
	pair_open(&p, &with_side);
	dev.idle_agent = true;
	cr_assert_eq(pair_write(&p, 1, 0, 64, 'a'), 0);
	cr_assert_eq(pair_flush(&p, 2, 0, 64), 0);
	pair_expect_next(&p, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	pair_expect_next(&p, 2, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	cr_assert_not(dev_durable(0, 64, 'a'));
	pair_close(&p);
}

/* More flushes than credits and buffers at either end. */
Test(shim_target, more_flushes_than_credits_complete)
{
	pair_open(&p, &with_side);
	for (uint64_t i = 1; i <= 40; i++) {
		cr_assert_eq(pair_write(&p, 100 + i, 64 * i, 64, (uint8_t)i),
			     0);
		cr_assert_eq(pair_flush(&p, i, 64 * i, 64), 0);
		if (i % 20)
			continue;
		for (uint64_t k = i - 19; k <= i; k++) {
			pair_expect_next(&p, 100 + k, IBV_WC_SUCCESS,
					 IBV_WC_RDMA_WRITE);
			pair_expect_next(&p, k, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
			cr_assert(dev_durable(64 * k, 64, (uint8_t)k));
		}
	}
	pair_close(&p);
}

/* An atomic write is stored only after the record before it is durable. */
Test(shim_target, atomic_writes)
{
	uint64_t tail;

	pair_open(&p, &with_side);
	for (uint64_t i = 1; i <= 8; i++) {
		cr_assert_eq(pair_write(&p, 1, 64 * i, 64, (uint8_t)i), 0);
		cr_assert_eq(pair_flush(&p, 2, 64 * i, 64), 0);
		cr_assert_eq(pair_atomic_write(&p, 3, 0, i), 0);
		cr_assert_eq(pair_flush(&p, 4, 0, 8), 0);
		pair_expect_next(&p, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		pair_expect_next(&p, 2, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
		pair_expect_next(&p, 3, IBV_WC_SUCCESS, RPMEM_WC_ATOMIC_WRITE);
		pair_expect_next(&p, 4, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
		memcpy(&tail, dev.medium, sizeof(tail));
		cr_assert_eq(tail, i);
		cr_assert(dev_durable(64 * i, 64, (uint8_t)i));
	}
	pair_close(&p);
}

/* A region registered again has the same rkey, but another key. */
Test(shim_target, former_region_is_refused)
{
	uint32_t rkey;

	pair_open(&p, &with_side);
	rkey = p.rkey;
	cr_assert_eq(rpmem_dereg_mr(p.mr), 0);
	p.mr = rpmem_reg_mr(dev_pd(), dev.pmem, DEV_BYTES,
			    (int)(OPEN | PERSISTENT));
	cr_assert_eq(p.mr->mr->rkey, rkey);
	cr_assert_eq(pair_write(&p, 1, 0, 64, 'a'), 0);
	cr_assert_eq(pair_flush(&p, 2, 0, 64), 0);
	pair_expect_next(&p, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	pair_expect_next(&p, 2, IBV_WC_REM_ACCESS_ERR, 0);
	cr_assert_eq(pair_flush(&p, 3, 0, 64), ENOTCONN);
	cr_assert_eq(dev.drains, 0u);
	pair_close(&p);
}

/* The rkey belongs to another registration, which the agent does not know. */
Test(shim_target, no_flush_behind_a_deregistration)
{
	struct ibv_mr *mr;

	pair_open(&p, &with_side);
	cr_assert_eq(rpmem_dereg_mr(p.mr), 0);
	p.mr = NULL;
	mr = (ibv_reg_mr)(dev_pd(), dev.pmem, DEV_BYTES, (int)OPEN);
	cr_assert_eq(mr->rkey, p.rkey);
	cr_assert_eq(pair_flush(&p, 1, 0, 64), 0);
	pair_expect_next(&p, 1, IBV_WC_REM_ACCESS_ERR, 0);
	cr_assert_eq(dev.drains, 0u);
	ibv_dereg_mr(mr);
	pair_close(&p);
}

/* After the side connection has ended, waiting and later flushes fail. */
Test(shim_target, loss_of_the_side_fails_flushes)
{
	for (int how = 0; how < 3; how++) {
		pair_open(&p, &with_side);
		if (how == 1) {
			/* The agent has replied once before the loss. */
			cr_assert_eq(pair_flush(&p, 9, 0, 64), 0);
			pair_expect_next(&p, 9, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
		}
		if (how == 2) {
			cr_assert_eq(rpmem_detach_qp(p.b.sqp), 0);
			p.b.sqp = NULL;
		} else {
			dev.fail_qp = p.sa.initiator;
			dev.fail = IBV_WC_RETRY_EXC_ERR;
			dev.drop_ack = how == 1;
		}
		cr_assert_eq(pair_write(&p, 1, 0, 64, 'a'), 0);
		cr_assert_eq(pair_flush(&p, 2, 0, 64), 0);
		pair_expect_next(&p, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		pair_expect_next(&p, 2, IBV_WC_RETRY_EXC_ERR, 0);
		cr_assert_eq(pair_flush(&p, 3, 0, 64), ENOTCONN);
		pair_close(&p);
	}
}

/* If a reply cannot be sent, the agent ends the side connection. */
Test(shim_target, unsent_reply_ends_the_side_connection)
{
	setenv("FI_OFI_RPMEM_TIMEOUT", "300", 1);
	pair_open(&p, &with_side);
	dev.fail_qp = p.sb.target;
	dev.fail = IBV_WC_RETRY_EXC_ERR;
	cr_assert_eq(pair_flush(&p, 1, 0, 64), 0);
	pair_expect_next(&p, 1, IBV_WC_RETRY_EXC_ERR, 0);
	pair_close(&p);
}

/* Without a reply, a flush fails after FI_OFI_RPMEM_TIMEOUT. */
Test(shim_target, silent_agent_fails_flushes_after_the_timeout)
{
	setenv("FI_OFI_RPMEM_TIMEOUT", "100", 1);
	pair_open(&p, &with_side);
	dev.deaf_qp = p.sb.target;
	cr_assert_eq(pair_flush(&p, 1, 0, 64), 0);
	cr_assert_eq(pair_write(&p, 2, 0, 64, 'a'), 0);
	pair_expect_next(&p, 1, IBV_WC_RETRY_EXC_ERR, 0);
	pair_expect_next(&p, 2, IBV_WC_WR_FLUSH_ERR, 0);
	cr_assert_eq(pair_flush(&p, 3, 0, 64), ENOTCONN);
	pair_close(&p);
}

/* A malformed message ends the side connection and flushes nothing. */
Test(shim_target, nonsense_to_the_agent)
{
	static uint8_t msg[200];
	struct ibv_wc wc;

	for (size_t len = 0; len <= sizeof(msg); len += 20) {
		pair_open(&p, &with_side);
		memset(msg, (int)len, sizeof(msg));
		cr_assert(dev_deliver_send(p.sb.target, msg, len));
		cr_assert_eq(pair_flush(&p, 1, 0, 64), 0);
		while (!rpmem_poll_cq(p.a.scq, 1, &wc))
			;
		/* The agent's refusal may arrive before HELLO is sent. */
		cr_assert(wc.status == IBV_WC_RETRY_EXC_ERR ||
				  (len <= 128 &&
				   wc.status == IBV_WC_REM_INV_REQ_ERR),
			  "%d", wc.status);
		pair_close(&p);
	}
}

/* A malformed reply ends the side connection and completes no flush. */
Test(shim_target, malformed_replies)
{
	static uint8_t msg[200];

	for (size_t len = 0; len <= sizeof(msg); len += 20) {
		pair_open(&p, &with_side);
		dev.deaf_qp = p.sb.target;
		cr_assert_eq(pair_flush(&p, 1, 0, 64), 0);
		pair_expect_next(&p, 0, 0, 0);
		memset(msg, (int)len + 1, sizeof(msg));
		cr_assert(dev_deliver_send(p.sa.initiator, msg, len));
		pair_expect_next(&p, 1, IBV_WC_RETRY_EXC_ERR, 0);
		dev.deaf_qp = 0;
		pair_close(&p);
	}
}

/* Two peers of one agent have a side connection each. */
static void two_peers(void)
{
	struct pair q;

	pair_open(&p, &with_side);
	pair_open(&q, &with_side);
	for (int i = 1; i <= 5; i++) {
		const size_t off = 128 * (size_t)i;

		cr_assert_eq(pair_write(&p, 1, off, 64, 'p'), 0);
		cr_assert_eq(pair_write(&q, 1, off + 64, 64, 'q'), 0);
		cr_assert_eq(pair_flush(&p, 2, off, 64), 0);
		cr_assert_eq(pair_flush(&q, 2, off + 64, 64), 0);
		pair_expect_next(&p, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		pair_expect_next(&p, 2, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
		cr_assert(dev_durable(off, 64, 'p'));
		pair_expect_next(&q, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
		pair_expect_next(&q, 2, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
		cr_assert(dev_durable(off + 64, 64, 'q'));
	}
	pair_close(&p);
	cr_assert_eq(pair_write(&q, 3, 0, 64, 'z'), 0);
	cr_assert_eq(pair_flush(&q, 4, 0, 64), 0);
	pair_expect_next(&q, 3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
	pair_expect_next(&q, 4, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	cr_assert(dev_durable(0, 64, 'z'));
	pair_close(&q);
}

Test(shim_target, two_peers)
{
	two_peers();
}

/* A thread that never idles still accepts DOORBELLs. */
Test(shim_target, two_peers_with_polling)
{
	setenv("FI_OFI_RPMEM_SPIN", FOR_EVER, 1);
	two_peers();
}

/* Count how often the thread went idle during 40 requests. */
static unsigned int count_idle(const char *us)
{
	setenv("FI_OFI_RPMEM_SPIN", us, 1);
	dev.notifies = 0;
	pair_open(&p, &with_side);
	for (int i = 1; i <= 40; i++) {
		cr_assert_eq(pair_flush(&p, 1, 0, 64), 0);
		pair_expect_next(&p, 1, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	}
	pair_close(&p);
	return dev.notifies;
}

Test(shim_target, thread_polls_before_it_sleeps)
{
	const unsigned int without = count_idle("0"),
			   with = count_idle(FOR_EVER);

	cr_assert_gt(without, 10u);
	cr_assert_lt(with, 5u, "%u", with);
}

static void wait_ms(void)
{
	const struct timespec ms = {.tv_nsec = 1000000};

	nanosleep(&ms, NULL);
}

/* Deliver a request for which the agent sends a reply. */
static void deliver_request(uint64_t token)
{
	struct rp_wire_range range = {.len = 64};
	const struct rp_wire_request m = {.nranges = 1,
					  .level = RP_LEVEL_DURABLE,
					  .required = RP_CLASS_POWER,
					  .ranges = &range};
	uint8_t msg[128];
	struct rp_desc d;
	int len;

	cr_assert_eq(rp_desc_get(p.desc.bytes, &d), 0);
	range.key = d.key;
	range.addr = d.addr;
	len = rp_wire_put_request(msg, sizeof(msg), token, &m);
	cr_assert_gt(len, 0);
	while (!dev_deliver_send(p.sb.target, msg, (size_t)len))
		wait_ms();
}

static bool has_send_buffer(void)
{
	const struct rp_post *post = rp_qp_of(p.b.sqp)->post_data;
	bool has;

	rp_pd_lock(post->dom);
	has = post->target->tx_free;
	pthread_mutex_unlock(&post->dom->lock);
	return has;
}

/* The agent's thread cannot send IDLE to a peer that receives nothing. */
Test(shim_target, peer_that_receives_nothing_does_not_hold_the_lock)
{
	const struct pair_attr sleeping = {
		.access = PERSISTENT, .sides = true, .sleeps = true};
	struct rpmem_mr *mr;

	setenv("FI_OFI_RPMEM_SPIN", FOR_EVER, 1);
	pair_open(&p, &sleeping);
	while (!rp_qp_of(p.a.sqp)->side->deferred.polling) {
		cr_assert_eq(pair_flush(&p, 1, 0, 64), 0);
		pair_expect_next(&p, 1, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
	}
	dev.hold = true;
	for (uint64_t i = 1; i <= SENDS; i++)
		deliver_request(1000 + i);
	while (has_send_buffer())
		wait_ms();
	/* The budget for polling ends. */
	atomic_store(&ahead, 120);
	for (int i = 0; atomic_load(&last_timeout) != 1; i++) {
		cr_assert_lt(i, 20000, "the agent's thread does not sleep");
		wait_ms();
	}
	mr = rpmem_reg_mr(dev_pd(), dev.pmem, 64, (int)(OPEN | PERSISTENT));
	cr_assert_not_null(mr);
	cr_assert_eq(rpmem_dereg_mr(mr), 0);
	dev_run();
	pair_close(&p);
}

/* --- facts that become weaker --- */

static const struct pair_attr by_flush = {
	.ops = BUILDERS | WITH_FLUSH,
	.access = PERSISTENT,
	.native = PERSISTENT,
	.sides = true,
};

static void set_facts(bool native)
{
	dev.facts.domain = native ? RP_DOMAIN_MEMCTRL : RP_DOMAIN_CPUCACHE;
	dev.caps = native ? DEV_GLOBAL | DEV_PERSISTENT : 0;
	dev.makes = (unsigned int)by_flush.ops;
}

/* Connect; flushes are read fences or FLUSHes by the device. */
static void pair_open_without_agent(struct pair *q, bool native, bool sides)
{
	struct pair_attr attr = native ? by_flush : with_side;

	attr.sides = sides;
	pair_open(q, &attr);
	cr_assert_str_eq(pair_method(q), native ? "native" : "fence");
}

static void open_without_agent(bool native)
{
	set_facts(native);
	pair_open_without_agent(&p, native, true);
}

static void source_write(const char *path, const char *line)
{
	FILE *f = fopen(path, "w");

	cr_assert(f);
	cr_assert_gt(fputs(line, f), 0);
	cr_assert_eq(fclose(f), 0);
}

/* Flush until a flush fails. Returns the status of the last one. */
static enum ibv_wc_status flush_until_failure(struct pair *q)
{
	struct ibv_wc wc;
	int n = 0;

	do {
		cr_assert_eq(pair_flush(q, 2, 0, 64), 0);
		while (!rpmem_poll_cq(q->a.scq, 1, &wc))
			;
		cr_assert_eq(wc.wr_id, 2u);
		if (wc.status == IBV_WC_SUCCESS)
			usleep(20000); /* the device logs 1024 requests only */
	} while (wc.status == IBV_WC_SUCCESS && ++n < 300);
	return wc.status;
}

/* How a peer learns that a fact of its region is weaker. */
enum peer {
	PEER_SIDE,
	PEER_NO_SIDE,
	PEER_HALF_SIDE, /* only the target has connected its end */
	PEER_LOST,	/* the target has lost the side connection */
	PEER_UNREACHED, /* the target's message fails */
	PEER_FORCED,	/* the operator forces the target to FLUSH */
	PEER_MAX,
};
static struct pair peers[PEER_MAX];
/* Agent's flushes, those while a peer without side connection could write. */
static unsigned int nflushes, nearly;
static uint32_t no_side_num;

static void at_flush(void)
{
	const struct ibv_qp *qp = dev_qp_by_number(no_side_num);

	nflushes++;
	nearly += qp && qp->state != IBV_QPS_ERR;
}

static void peer_open(enum peer kind, bool native)
{
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	struct pair *q = &peers[kind];
	struct rpmem_qp_desc a, b;

	if (kind == PEER_FORCED)
		setenv("FI_OFI_RPMEM_METHOD", native ? "native" : "fence", 1);
	pair_open_without_agent(q, native,
				kind != PEER_NO_SIDE && kind != PEER_HALF_SIDE);
	unsetenv("FI_OFI_RPMEM_METHOD");
	if (kind == PEER_HALF_SIDE) {
		cr_assert_eq(rpmem_export_qp(q->a.sqp, &a), 0);
		cr_assert_eq(rpmem_export_qp(q->b.sqp, &b), 0);
		cr_assert_eq(rpmem_connect_qp(q->b.sqp, &a), 0);
		pair_import_region(q);
	} else if (kind == PEER_LOST) {
		ibv_modify_qp(dev_qp_by_number(q->sb.target), &err,
			      IBV_QP_STATE);
	} else if (kind == PEER_UNREACHED) {
		dev.fail_qp = q->sb.target;
		dev.fail = IBV_WC_RETRY_EXC_ERR;
	}
}

/* Descriptors that are made after the weakening promise nothing any more. */
static void expect_weaker_descriptor(struct rpmem_mr *mr)
{
	const struct pair *q = &peers[PEER_SIDE];
	struct rpmem_mr_desc desc;
	struct rpmem_region region;
	struct rp_desc d;

	cr_assert_eq(rpmem_export_mr(mr, q->b.sqp, &desc), 0);
	cr_assert_eq(rp_desc_get(desc.bytes, &d), 0);
	cr_assert_eq(d.domain, RP_DOMAIN_UNKNOWN);
	cr_assert_eq(rpmem_import_mr(q->a.sqp, &desc, &region), 0);
	cr_assert_str_eq(region.persistent, "refused");
	cr_assert_str_eq(region.survives, "none");
}

/* A weaker fact fails flushes even at a peer that sends no request. */
Test(shim_target, weakened_fact_fails_the_peers_flushes)
{
	char path[] = "/tmp/test_shim_target.XXXXXX";
	struct rpmem_mr *others[20]; /* more than the agent's buffers */
	enum ibv_wc_status status, expected;
	int fd = mkstemp(path);

	cr_assert_geq(fd, 0);
	close(fd);
	for (int native = 0; native < 2; native++) {
		source_write(path, "memory_controller and caches\n");
		dev.source = path;
		set_facts(native);
		for (int i = 0; !native && i < 20; i++)
			others[i] = rpmem_reg_mr(dev_pd(), dev.pmem, DEV_BYTES,
						 (int)(OPEN | PERSISTENT));
		for (enum peer k = 0; k < PEER_MAX; k++) {
			peer_open(k, native);
			cr_assert_eq(pair_flush(&peers[k], 1, 0, 64), 0);
			pair_expect_next(&peers[k], 1, IBV_WC_SUCCESS,
					 RPMEM_WC_FLUSH);
		}
		no_side_num = peers[PEER_NO_SIDE].b.qp->qp_num;
		/* The device refuses this at first; the thread tries again. */
		dev.stuck_qp = native ? no_side_num
				      : peers[PEER_HALF_SIDE].b.qp->qp_num;
		dev.at_flush = at_flush;
		dev_set_domain(RP_DOMAIN_UNKNOWN);
		source_write(path, "nothing\n");
		for (enum peer k = 0; k < PEER_MAX; k++) {
			if (k == PEER_NO_SIDE) {
				/* All regions have weakened meanwhile. */
				pair_expect_next(&peers[k], 0, 0, 0);
				dev.stuck_qp = 0;
			}
			expected =
				k == PEER_SIDE || (k == PEER_FORCED && !native)
					? IBV_WC_REM_ACCESS_ERR
					: IBV_WC_RETRY_EXC_ERR;
			status = flush_until_failure(&peers[k]);
			cr_assert_eq(status, expected, "peer %d: %d", k,
				     status);
			cr_assert_eq(pair_flush(&peers[k], 3, 0, 64), ENOTCONN);
		}
		for (enum peer k = 0; k < PEER_MAX; k++)
			expect_weaker_descriptor(peers[k].mr);
		for (enum peer k = 0; k < PEER_MAX; k++)
			pair_close(&peers[k]);
		for (int i = 0; !native && i < 20; i++)
			cr_assert_eq(rpmem_dereg_mr(others[i]), 0);
		/* The flush of volatile caches covers all that succeeded. */
		cr_assert_eq(nearly, 0u);
		dev.at_flush = NULL;
	}
	cr_assert_gt(nflushes, 0u);
	unlink(path);
}

/* Wait until the agent's thread sleeps for ever, or until a deadline. */
static bool sleeps(bool for_ever)
{
	for (int i = 0; i < 5000; i++) {
		if (for_ever == (atomic_load(&last_timeout) == -1))
			return true;
		usleep(1000);
	}
	return false;
}

/* The facts of a region are watched even if the thread has long been idle. */
Test(shim_target, registration_wakes_the_sleeping_thread)
{
	const struct pair_attr no_region = {.access = 0};
	const struct rpmem_qp_attr persistent = {.access = PERSISTENT};
	char path[] = "/tmp/test_shim_target.XXXXXX";
	struct rpmem_mr *mr;
	int fd = mkstemp(path);

	cr_assert_geq(fd, 0);
	close(fd);
	source_write(path, "memory_controller\n");
	dev.source = path;
	pair_open(&p, &no_region);
	cr_assert_eq(rpmem_detach_qp(p.b.sqp), 0);
	p.b.sqp = rpmem_attach_qp(p.b.qp, p.b.scq, &persistent);
	cr_assert_eq(pair_connect_sides(&p), 0);
	cr_assert(sleeps(true));
	mr = rpmem_reg_mr(dev_pd(), dev.pmem, DEV_BYTES,
			  (int)(OPEN | PERSISTENT));
	cr_assert(mr);
	cr_assert(sleeps(false));
	cr_assert_eq(rpmem_dereg_mr(mr), 0);
	pair_close(&p);
	unlink(path);
}

/* A peer that hears of no weakening any more cannot flush any more. */
Test(shim_target, loss_of_the_side_fails_flushes_without_request)
{
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};

	for (int native = 0; native < 2; native++) {
		open_without_agent(native);
		cr_assert_eq(pair_flush(&p, 1, 0, 64), 0);
		pair_expect_next(&p, 1, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
		ibv_modify_qp(dev_qp_by_number(p.sa.initiator), &err,
			      IBV_QP_STATE);
		cr_assert_eq(pair_flush(&p, 2, 0, 64), 0);
		pair_expect_next(&p, 2, IBV_WC_RETRY_EXC_ERR, 0);
		cr_assert_eq(pair_flush(&p, 3, 0, 64), ENOTCONN);
		pair_close(&p);
	}
}

static void say_weakened(uint64_t key)
{
	const struct rp_wire_info m = {.status = RP_ST_CLASS,
				       .why = "the test says so"};
	uint8_t msg[384];
	int len = rp_wire_put_info(msg, sizeof(msg), key, &m);

	cr_assert_gt(len, 0);
	cr_assert(dev_deliver_send(p.sa.initiator, msg, (size_t)len));
}

/* Only flushes of the weakened region fail, even if posted before. */
Test(shim_target, outstanding_flush_of_a_weakened_region_fails)
{
	struct rp_desc d;

	for (int native = 0; native < 2; native++) {
		open_without_agent(native);
		cr_assert_eq(rp_desc_get(p.desc.bytes, &d), 0);
		say_weakened(d.key ^ 1);
		cr_assert_eq(pair_flush(&p, 1, 0, 64), 0);
		pair_expect_next(&p, 1, IBV_WC_SUCCESS, RPMEM_WC_FLUSH);
		dev.hold = true;
		cr_assert_eq(pair_flush(&p, 2, 0, 64), 0);
		dev.hold = false;
		say_weakened(d.key);
		pair_expect_next(&p, 2, IBV_WC_REM_ACCESS_ERR, 0);
		pair_close(&p);
	}
}

/* A peer records few weakened regions; with more, all flushes fail. */
Test(shim_target, too_many_weakened_regions_fail_all)
{
	open_without_agent(false);
	for (uint64_t key = 1; key <= RP_SIDE_WEAKENED + 8; key++) {
		say_weakened(key);
		pair_expect_next(&p, 0, 0, 0);
	}
	cr_assert_eq(pair_flush(&p, 1, 0, 64), 0);
	pair_expect_next(&p, 1, IBV_WC_REM_ACCESS_ERR, 0);
	pair_close(&p);
}
