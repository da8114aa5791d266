// SPDX-License-Identifier: BSD-2-Clause
/* fi_poll() names the queues and counters of a set that have something new. */
/* Newer headers deprecate poll sets, which programs still use. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "functional/pair.h"

static const char *label;
static struct fi_cq_tagged_entry e;
static struct fi_cq_err_entry err;

#define OK(cond, what) tap_ok(cond, "%s: %s", label, what)

static void run_target(struct side *s, const struct card *peer)
{
	side_insert(s, peer);
	pair_barrier(s);
	POST(s, fi_inject(s->ep, "x", 1, s->peer));
	pair_barrier(s);
}

/*
 * Poll the set for up to two seconds. Returns the number of contexts that it
 * named at once, up to count.
 */
static int poll_set(struct fid_poll *set, void **context, int count)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	int n = 0;

	for (int i = 0; i < 2000 && !n; i++) {
		n = (int)MUST(fi_poll(set, context, count));
		nanosleep(&pause, NULL);
	}
	return n;
}

static bool poll_set_empty(struct fid_poll *set)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	void *context[4];

	for (int i = 0; i < 50; i++) {
		if (fi_poll(set, context, 4))
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

static void commit_and_poll(struct side *s, const struct card *peer)
{
	static char src[64];
	struct iovec iov = {src, sizeof(src)};
	struct fi_rma_iov rma = {peer->pool_addr, 64, peer->pool_key};
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.iov_count = 1,
		.addr = s->peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
	};

	POST(s, fi_writemsg(s->ep, &msg, FI_COMPLETION | FI_COMMIT_COMPLETE));
}

/*
 * Post a commit that fails. A failed write would not do: ofi_rxm counts it
 * among the sends.
 */
static void commit_outside(struct side *s, const struct card *peer)
{
	struct fi_rma_iov r = {peer->pool_addr + PAIR_POOL, 64, peer->pool_key};

	POST(s, commit_post(s->ep, &r, 1, s->peer, FI_RPMEM_DURABLE,
			    FI_RPMEM_CLASS_DEFAULT, NULL, NULL));
}

static void run_initiator(struct side *s, const struct card *peer)
{
	struct fi_poll_attr attr = {.flags = FI_AFFINITY};
	struct fid_poll *set, *other;
	void *context[4];
	struct fid_cq *cq;
	char in[8];

	OK(fi_poll_open(s->domain, &attr, &set) == -FI_EINVAL,
	   "FI_AFFINITY is refused");
	attr.flags = 0;
	MUST(fi_poll_open(s->domain, &attr, &set));
	MUST(fi_poll_open(s->domain, &attr, &other));
	OK(fi_poll_add(set, &s->av->fid, 0) == -FI_EINVAL,
	   "an address vector is refused");
	s->cq->fid.context = &s->cq;
	s->cntr[3]->fid.context = &s->cntr[3];
	MUST(fi_poll_add(set, &s->cq->fid, 0));
	MUST(fi_poll_add(other, &s->cntr[3]->fid, 0));
	MUST(fi_poll_add(other, &s->cntr[3]->fid, 0));
	OK(poll_set_empty(set) && poll_set_empty(other), "nothing is new");

	POST(s, fi_recv(s->ep, in, 8, NULL, FI_ADDR_UNSPEC, NULL));
	pair_barrier(s);
	OK(poll_set(set, context, 4) == 1 && context[0] == &s->cq,
	   "a completion is");
	OK(fi_poll(set, context, 4) == 1, "until it is read");
	OK(side_wait(s, &e, &err), "which it can be");
	OK(poll_set_empty(set) && poll_set_empty(other), "then nothing is");

	commit_and_poll(s, peer);
	OK(poll_set(other, context, 4) == 1 && context[0] == &s->cntr[3],
	   "the end of a commit is, for a counter");
	OK(poll_set_empty(other), "once");
	OK(poll_set(set, context, 4) == 1 && side_wait(s, &e, &err) &&
		   poll_set_empty(set),
	   "and for a queue, but none of our messages");

	commit_outside(s, peer);
	OK(poll_set(other, context, 4) == 1 && poll_set(set, context, 4) == 1,
	   "a failure is");
	OK(!side_wait(s, &e, &err), "which has an entry");

	MUST(fi_poll_add(set, &s->cntr[3]->fid, 0));
	commit_and_poll(s, peer);
	if (!side_wait(s, &e, &err))
		MUST(-err.err);
	OK(poll_set(set, context, 1) == 1 && context[0] == &s->cntr[3],
	   "each set has its own state of new entries");
	MUST(fi_poll_del(set, &s->cntr[3]->fid, 0));
	MUST(fi_poll_del(set, &s->cntr[3]->fid, 0));
	commit_and_poll(s, peer);
	if (!side_wait(s, &e, &err))
		MUST(-err.err);
	OK(poll_set_empty(set), "a counter that left the set is not named");

	MUST(fi_cq_open(s->domain, &(struct fi_cq_attr){0}, &cq, NULL));
	MUST(fi_poll_add(other, &cq->fid, 0));
	MUST(fi_close(&cq->fid));
	poll_set(other, context, 4);
	OK(poll_set_empty(other), "nor a closed one");
	MUST(fi_close(&set->fid));
	MUST(fi_close(&other->fid));
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
