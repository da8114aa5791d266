// SPDX-License-Identifier: BSD-2-Clause
/*
 * Counters count each operation of the program once, when it completes, and no
 * operation of the provider.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "functional/pair.h"
#include "rpmem/rpmem.h"

#define ROUNDS 10
#define MANY   50
/*
 * Shortest duration of a flush in ms: what cntr.sh sets, less the error of the
 * clock.
 */
#define FLUSH_MS 50

static const char *label;
static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;

#define OK(cond, what) tap_ok(cond, "%s: %s", label, what)

static uint64_t counter_value(struct side *s, int kind)
{
	return fi_cntr_read(s->cntr[kind]);
}

static double clock_ms(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

/*
 * Wait until the counter reaches n, because sockets increments a counter just
 * after it makes the entry.
 */
static uint64_t wait_for_count(struct side *s, int kind, uint64_t n)
{
	const double deadline = clock_ms(CLOCK_MONOTONIC) + 30000;

	while (counter_value(s, kind) < n &&
	       clock_ms(CLOCK_MONOTONIC) < deadline)
		side_poke(s);
	return counter_value(s, kind);
}

static void take_entry(struct side *s)
{
	if (!side_wait(s, &e, &err))
		MUST(-err.err);
}

/* --- the target's half --- */

static void run_target(struct side *s, const struct card *peer)
{
	struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_NONE};
	struct fid_cntr *c;
	struct fid_ep *ep;
	char buf[64];

	side_insert(s, peer);
	for (int i = 0; i < ROUNDS; i++) {
		POST(s, fi_recv(s->ep, buf, sizeof(buf), NULL, FI_ADDR_UNSPEC,
				NULL));
		take_entry(s);
		POST(s, fi_send(s->ep, buf, 32, NULL, s->peer, NULL));
		take_entry(s);
	}
	pair_barrier(s); /* the initiator has checked its message counters */
	pair_barrier(s); /* all commits have completed, by hundreds of
			  * REQUESTs */
	if (wait_for_count(s, 0, ROUNDS) != ROUNDS ||
	    wait_for_count(s, 1, ROUNDS) != ROUNDS) {
		printf("# target: %lu sends, %lu receives told\n",
		       (unsigned long)counter_value(s, 0),
		       (unsigned long)counter_value(s, 1));
		MUST(-FI_EOTHER);
	}
	/*
	 * A counter of FI_REMOTE_WRITE is refused beside persistent memory,
	 * because the base would count an operation too early.
	 */
	MUST(fi_cntr_open(s->domain, &attr, &c, NULL));
	MUST(fi_endpoint(s->domain, s->info, &ep, NULL));
	/*
	 * ofi_rxm 1.17 crashes in fi_close() of an endpoint without address
	 * vector.
	 */
	MUST(fi_ep_bind(ep, &s->av->fid, 0));
	if (fi_ep_bind(ep, &c->fid, FI_REMOTE_WRITE) != -FI_EOPNOTSUPP)
		MUST(-FI_EOTHER);
	MUST(fi_ep_bind(ep, &c->fid, FI_WRITE));
	if (fi_close(&c->fid) != -FI_EBUSY)
		MUST(-FI_EOTHER);
	MUST(fi_close(&ep->fid));
	MUST(fi_close(&c->fid));
}

/* --- the initiator's half --- */

static ssize_t write_commit(struct side *s, const struct card *peer, size_t at)
{
	static char src[64];
	struct iovec iov = {src, sizeof(src)};
	struct fi_rma_iov rma = {peer->pool_addr + at, 64, peer->pool_key};
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
	};

	return fi_writemsg(s->ep, &msg, FI_COMPLETION | FI_COMMIT_COMPLETE);
}

/* A commit beyond the end of the region, which the target refuses. */
static ssize_t bad_commit(struct side *s, const struct card *peer)
{
	struct fi_rma_iov r = {peer->pool_addr + PAIR_POOL, 64, peer->pool_key};

	return commit_post(s->ep, &r, 1, s->peer, FI_RPMEM_DURABLE,
			   FI_RPMEM_CLASS_DEFAULT, NULL, NULL);
}

static void check_messages(struct side *s)
{
	char in[64], out[64] = "counted";
	bool right = true;

	for (int i = 0; i < ROUNDS; i++) {
		POST(s, fi_recv(s->ep, in, sizeof(in), NULL, FI_ADDR_UNSPEC,
				NULL));
		POST(s, fi_send(s->ep, out, 32, NULL, s->peer, NULL));
		take_entry(s);
		take_entry(s);
		right &= wait_for_count(s, 0, i + 1u) == i + 1u &&
			 wait_for_count(s, 1, i + 1u) == i + 1u;
	}
	OK(right, "each message is counted once");
}

static void check_rma(struct side *s, const struct card *peer)
{
	static char buf[4096];
	uint64_t before = counter_value(s, 3);

	for (int i = 0; i < 5; i++) {
		POST(s, fi_write(s->ep, buf, 64, NULL, s->peer,
				 peer->plain_addr, peer->plain_key, NULL));
		POST(s, fi_write(s->ep, buf, 64, NULL, s->peer, peer->pool_addr,
				 peer->pool_key, NULL));
		take_entry(s);
		take_entry(s);
	}
	OK(wait_for_count(s, 3, before + 10) == before + 10,
	   "each write is counted once");
	for (int i = 0; i < 3; i++) {
		POST(s, fi_read(s->ep, buf, 64, NULL, s->peer, peer->pool_addr,
				peer->pool_key, NULL));
		take_entry(s);
	}
	OK(wait_for_count(s, 2, 3) == 3, "each read is counted once");
}

/*
 * When the counter has grown, the queue must already have the entries of the
 * counted writes.
 */
static void check_commits(struct side *s, const struct card *peer)
{
	uint64_t before = counter_value(s, 3), v, last = before;
	double start = clock_ms(CLOCK_MONOTONIC);
	bool early = false, back = false;
	int done = 0;
	ssize_t n;

	for (int i = 0; i < MANY; i++)
		POST(s, write_commit(s, peer, (size_t)i * 4096));
	while (done < MANY) {
		v = counter_value(s, 3);
		back |= v < last;
		last = v;
		while ((n = fi_cq_read(s->cq, &e, 1)) == 1)
			done++;
		if (n != -FI_EAGAIN)
			MUST(n);
		early |= v > before + (uint64_t)done;
	}
	OK(clock_ms(CLOCK_MONOTONIC) - start >= FLUSH_MS,
	   "(the flushes were slow)");
	OK(!early, "no write is counted before its commit has ended");
	OK(!back, "the counter does not go back");
	OK(counter_value(s, 3) == before + MANY, "each is counted once");
	OK(counter_value(s, 0) == ROUNDS && counter_value(s, 1) == ROUNDS,
	   "control messages are not counted");
}

static void check_failures(struct side *s, const struct card *peer)
{
	uint64_t ok = counter_value(s, 3), bad = fi_cntr_readerr(s->cntr[3]);

	POST(s, bad_commit(s, peer));
	OK(!side_wait(s, &e, &err), "a refused commit has an error entry");
	OK(counter_value(s, 3) == ok && fi_cntr_readerr(s->cntr[3]) == bad + 1,
	   "and is an error for the counter");
	POST(s, bad_commit(s, peer));
	usleep(100000); /* so that the error occurs before the wait */
	/*
	 * fi_cntr_wait() reports only errors that occur during the wait. With
	 * FI_PROGRESS_AUTO this one has occurred before.
	 */
	OK(fi_cntr_wait(s->cntr[3], ok + 1, 2000) == -FI_EAVAIL ||
		   s->o.progress == FI_PROGRESS_AUTO,
	   "a waiter gets the error");
	OK(!side_wait(s, &e, &err), "its entry is in the queue, too");
}

static struct fi_ops_cntr *base_ops;

/* The base's wait; an error is counted after it, as by another thread. */
static int wait_then_fail(struct fid_cntr *c, uint64_t threshold, int timeout)
{
	int ret = base_ops->wait(c, threshold, timeout);

	c->ops = base_ops;
	MUST(fi_cntr_adderr(c, 1));
	return ret;
}

/* An error is counted between the two calls of the base's fi_cntr_wait(). */
static void check_error_between(struct side *s)
{
	struct fid_cntr *base =
		rp_container_of(s->cntr[3], struct rp_cntr, fid)->base;
	struct fi_ops_cntr failing = *base->ops;

	/* fi_cntr_wait() waits once with a thread; sockets counts elsewhere. */
	if (s->o.progress == FI_PROGRESS_AUTO || s->o.prov)
		return;
	base_ops = base->ops;
	failing.wait = wait_then_fail;
	base->ops = &failing;
	OK(fi_cntr_wait(s->cntr[3], UINT64_MAX, 100) == -FI_EAVAIL,
	   "a waiter gets an error that comes between two slices");
}

static void check_waits(struct side *s, const struct card *peer)
{
	double start, cpu;
	uint64_t n = counter_value(s, 3);

	fi_cntr_readerr(s->cntr[3]);
	start = clock_ms(CLOCK_MONOTONIC);
	cpu = clock_ms(CLOCK_THREAD_CPUTIME_ID);
	POST(s, write_commit(s, peer, 0));
	OK(fi_cntr_wait(s->cntr[3], n + 1, -1) == 0,
	   "a wait without reading the queue ends");
	OK(clock_ms(CLOCK_MONOTONIC) - start >= FLUSH_MS,
	   "when the bytes are durable");
	OK(fi_cntr_wait(s->cntr[3], n + 2, 2000) == -FI_ETIMEDOUT,
	   "or with a timeout");
	cpu = clock_ms(CLOCK_THREAD_CPUTIME_ID) - cpu;
	start = clock_ms(CLOCK_MONOTONIC) - start;
	printf("# %.0f ms of the processor in %.0f ms\n", cpu, start);
	/*
	 * fi_cntr_wait() of sockets 1.17 does not sleep: it passes a monotonic
	 * time to a wait on the real-time clock.
	 */
	if (s->o.prov)
		tap_skip(label, "sockets does not sleep in fi_cntr_wait()");
	else
		OK(cpu < start / 2, "and it sleeps");
	take_entry(s);
}

static void check_sets(struct side *s, const struct card *peer)
{
	MUST(fi_cntr_set(s->cntr[3], 1000));
	OK(counter_value(s, 3) == 1000, "set");
	MUST(fi_cntr_add(s->cntr[3], 5));
	OK(counter_value(s, 3) == 1005, "add");
	POST(s, write_commit(s, peer, 0));
	take_entry(s);
	OK(counter_value(s, 3) == 1006, "counts on from there");
	MUST(fi_cntr_set(s->cntr[3], 3));
	OK(counter_value(s, 3) == 3, "set to less");
	POST(s, write_commit(s, peer, 0));
	take_entry(s);
	OK(counter_value(s, 3) == 4, "counts on from there too");
	MUST(fi_cntr_seterr(s->cntr[3], 7));
	MUST(fi_cntr_adderr(s->cntr[3], 1));
	OK(fi_cntr_readerr(s->cntr[3]) == 8, "errors are set and added to");
}

/* An endpoint without a queue, which shares a counter with another endpoint. */
static void no_queue(struct side *s, const struct card *peer)
{
	struct fid_ep *ep, *first = s->ep;
	uint64_t n = counter_value(s, 3);
	int ret;

	MUST(fi_endpoint(s->domain, s->info, &ep, NULL));
	MUST(fi_ep_bind(ep, &s->av->fid, 0));
	MUST(fi_ep_bind(ep, &s->cntr[3]->fid, FI_WRITE));
	ret = fi_enable(ep);
	if (ret == -FI_ENOCQ) {
		MUST(fi_close(&ep->fid));
		tap_skip(label, "ofi_rxm wants a queue");
		return;
	}
	MUST(ret);
	s->ep = ep;
	fi_cntr_readerr(s->cntr[3]);
	for (int i = 0; i < 3; i++)
		POST(s, write_commit(s, peer, 0));
	OK(fi_cntr_wait(s->cntr[3], n + 3, 10000) == 0,
	   "an endpoint without a queue counts");
	s->ep = first;
	POST(s, write_commit(s, peer, 0));
	take_entry(s);
	OK(counter_value(s, 3) == n + 4,
	   "what it did not report is not in the queue");
	MUST(fi_close(&ep->fid));
	OK(counter_value(s, 3) == n + 4, "its count stays when it is closed");
}

static void remote_writes(struct side *s)
{
	struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_NONE};
	struct fid_cntr *c;
	struct fid_ep *ep;
	struct side t = *s;

	MUST(fi_cntr_open(s->domain, &attr, &c, NULL));
	MUST(fi_endpoint(s->domain, s->info, &ep, NULL));
	MUST(fi_ep_bind(ep, &s->av->fid, 0));
	MUST(fi_ep_bind(ep, &c->fid, FI_REMOTE_WRITE | FI_REMOTE_READ));
	OK(fi_mr_reg(s->domain, &t, 1, FI_REMOTE_WRITE, 0, 9, 0, &t.plain_mr,
		     NULL) == 0,
	   "plain memory beside a counter of remote writes");
	MUST(fi_close(&t.plain_mr->fid));
	MUST(fi_close(&ep->fid));
	MUST(fi_close(&c->fid));
}

static void run_initiator(struct side *s, const struct card *peer)
{
	check_messages(s);
	pair_barrier(s);
	check_rma(s, peer);
	check_commits(s, peer);
	check_failures(s, peer);
	check_error_between(s);
	check_waits(s, peer);
	check_sets(s, peer);
	no_queue(s, peer);
	remote_writes(s);
	pair_barrier(s);
}

int main(void)
{
	struct pair_opts o = {.counts = true};

	label = "tcp";
	pair_run(&o, &o, run_target, run_initiator);
	label = "tcp, threads";
	o.progress = FI_PROGRESS_AUTO;
	pair_run(&o, &o, run_target, run_initiator);
	o.progress = 0;
	label = "sockets";
	o.prov = "sockets;ofi_rpmem";
	pair_run(&o, &o, run_target, run_initiator);
	return tap_done();
}
