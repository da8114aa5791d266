/* SPDX-License-Identifier: BSD-2-Clause */
/* Commits without memory. */
#include <errno.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#include "commit_rig.h"

/* Linked with --wrap: memory ends after so many pieces; -1: never. */
static long pieces = -1;

static bool none_left(void)
{
	if (pieces > 0)
		pieces--;
	return !pieces;
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
	return none_left() ? NULL : __real_malloc(size);
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return none_left() ? NULL : __real_calloc(n, size);
}

void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size)
{
	return none_left() ? NULL : __real_realloc(p, size);
}

TestSuite(commit_memory, .init = start, .fini = stop);

/*
 * Commits of many requests and a query to a new peer, one of them after a
 * write has failed there. Memory ends after n pieces; true: it was enough.
 */
static bool run_out(long n, bool ordered)
{
	static struct rp_wire_range r[300];
	struct rp_initiator_attr attr = rig_attr();
	struct rp_commit_attr ca = {
		.ranges = r,
		.nranges = 300,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
		.done = rig_done,
	};
	struct rig_told t[5] = {0}, q = {0};
	struct rp_write w[2];
	struct rig_msg *m;
	bool enough;
	int ret[5], qret = -ENOMEM;

	attr.ordered = ordered;
	stop();
	rig_start(&g, &attr);
	s = (struct rig_session){
		.cookie = 0x7a46e7,
		.incarnation = RIG_LIFE,
		.credits = 1000,
	};
	for (int i = 0; i < 300; i++)
		r[i] = rig_range(1, i * 64, 64);
	pieces = n;
	p = rp_peer_get(g.in, RIG_PEER);
	if (!p) {
		cr_assert_eq(pieces, 0);
		pieces = -1;
		p = rig_peer(&g);
		commit(&c0, 0);
		return false;
	}
	begin(&w[0], 299);
	begin(&w[1], 1000);
	for (int i = 0; i < 4; i++) {
		ca.arg = &t[i];
		ret[i] = rp_commit_post(p, &ca);
		cr_assert(!ret[i] || ret[i] == -ENOMEM);
		if (i == 0)
			qret = rp_query_post(p, rig_key(1), RP_CLASS_NONE,
					     rig_query_done, &q);
		if (i == 1)
			rp_write_done(&w[1], EIO);
		if (i == 2)
			rp_write_done(&w[0], EIO);
		while ((m = rig_pop(&g))) {
			if (m->hdr.type == RP_MSG_HELLO)
				rig_hello_ack(&g, m, &s, RP_ST_OK);
			else if (m->hdr.type == RP_MSG_QUERY)
				rig_info(&g, &s, m->hdr.token, RP_ST_OK);
			else
				rig_ok(&g, &s, m->hdr.token);
			free(m);
		}
		rp_initiator_progress(g.in);
	}
	enough = pieces != 0;
	pieces = -1;
	cr_assert_eq(rig_peer(&g), p);
	rig_sleep(&g, RIG_TIMEOUT);
	cr_assert_eq(q.times, qret ? 0 : 1);
	for (int i = 0; i < 4; i++) {
		cr_assert_eq(t[i].times, ret[i] ? 0 : 1, "%d: %u", i,
			     t[i].times);
		/* All cover the write that failed. */
		if (ret[i])
			continue;
		cr_assert_neq(t[i].out.status, RP_ST_OK);
		/* Memory is not the network, nor the target's life. */
		cr_assert_neq(t[i].out.status, RP_ST_SEND_FAILED);
		cr_assert_neq(t[i].out.status, RP_ST_PEER_RESTARTED);
	}
	cr_assert_eq(rp_initiator_outstanding(g.in), 0);
	/* With memory again: what failed is still known. */
	ca.arg = &t[4];
	cr_assert_eq(rp_commit_post(p, &ca), 0);
	rig_progress(&g);
	rig_told_once(&t[4], RP_ST_WRITE_FAILED);
	return enough;
}

Test(commit_memory, out_of_memory)
{
	for (int ordered = 0; ordered < 2; ordered++) {
		long n = 1;

		while (!run_out(n, ordered))
			cr_assert_lt(n++, 1000);
		cr_assert_gt(n, 10);
	}
}

Test(commit_memory, no_initiator)
{
	const struct rp_initiator_attr attr = rig_attr();
	struct rp_initiator *in = (void *)7;

	pieces = 1;
	cr_assert_eq(rp_initiator_new(&attr, &g.x, &in), -ENOMEM);
	pieces = -1;
	cr_assert_eq(in, (void *)7);
}

Test(commit_memory, no_memory_to_say_which)
{
	struct rp_write w;

	begin(&w, 0);
	pieces = 1;
	rp_write_done(&w, EIO);
	pieces = -1;
	/* Then it may be any of them, and nothing is known to repair it. */
	commit_poisoned(77);
	begin(&w, 0);
	rp_write_done(&w, 0);
	commit_poisoned(0);
}

static int store(struct rig_told *t)
{
	static const uint8_t bytes[64];
	const struct rp_wire_range r = rig_range(1, 0, sizeof(bytes));
	const struct rp_commit_attr attr = {
		.ranges = &r,
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
		.effect = RP_EFFECT_STORE,
		.bytes = bytes,
		.done = rig_done,
		.arg = t,
	};

	*t = (struct rig_told){0};
	return rp_commit_post(p, &attr);
}

/* For the request that has the effect, behind the others. */
Test(commit_memory, no_memory_for_the_last_request)
{
	static struct rp_wire_range r[200];
	const struct rp_commit_attr attr = {
		.ranges = r,
		.nranges = 200,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
		.effect = RP_EFFECT_NOTIFY,
		.done = rig_done,
		.arg = &c0,
	};
	uint64_t token;

	for (int i = 0; i < 200; i++)
		r[i] = rig_range(1, i * 64, 64);
	c0 = (struct rig_told){0};
	cr_assert_eq(rp_commit_post(p, &attr), 0);
	token = rig_requested(&g, &s);
	pieces = 1;
	rig_ok(&g, &s, token);
	pieces = -1;
	rig_told_once(&c0, RP_ST_NO_MEMORY);
	cr_assert_eq(c0.out.range, 0);
	cr_assert_eq(c0.out.detail, 0);
	rig_none(&g);
}

/* For its bytes, its commit, its request. */
Test(commit_memory, no_memory_for_a_store)
{
	struct rp_commit *c;
	const struct rp_wire_range r = rig_range(1, 0, 8);
	const struct rp_commit_attr attr = {
		.ranges = &r, .nranges = 1, .done = rig_done};

	pieces = 1;
	cr_assert_eq(store(&c0), -ENOMEM);
	pieces = 2;
	cr_assert_eq(store(&c0), 0);
	pieces = -1;
	cr_assert_eq(g.kicks, 1);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_NO_MEMORY);
	cr_assert_not(rp_peer_store_overlaps(p, rig_key(1), 0, 8));
	/* Without the one that an earlier commit has left. */
	cr_assert_eq(rp_commit_reserve(p, &attr, &c), 0);
	pieces = 2;
	cr_assert_eq(store(&c0), -ENOMEM);
	pieces = -1;
	rp_commit_unreserve(c);
	cr_assert_eq(rp_initiator_outstanding(g.in), 0);
	rig_none(&g);
}

/* The address goes, and what was lost there cannot be said one by one. */
Test(commit_memory, no_memory_to_leave_orphans)
{
	struct rp_write w;

	/* What has failed, then what is under way. */
	for (int way = 0; way < 2; way++) {
		begin(&w, 0);
		if (!way)
			rp_write_done(&w, EIO);
		pieces = 1;
		rp_peer_forget(g.in, RIG_PEER);
		pieces = -1;
		if (way)
			rp_write_done(&w, 0);
		p = rig_peer(&g);
		commit_poisoned(77);
		stop();
		rig_start(&g, NULL);
		p = rig_peer(&g);
	}
}

/* And who comes later cannot be told. */
Test(commit_memory, no_memory_for_orphans)
{
	struct rp_write w;

	begin(&w, 0);
	rp_write_done(&w, EIO);
	rp_peer_forget(g.in, RIG_PEER);
	/* Its own, a table of two pieces, and then no more. */
	pieces = 4;
	p = rp_peer_get(g.in, RIG_PEER);
	cr_assert_eq(pieces, 0);
	pieces = -1;
	commit_poisoned(77);
}

/* The usual commit needs none: it has the memory of an earlier one. */
Test(commit_memory, no_memory_needed)
{
	struct rp_wire_range r[5];
	struct rp_commit_attr attr = {
		.ranges = r,
		.nranges = 4,
		.level = RP_LEVEL_DURABLE,
		.done = rig_done,
		.arg = &c0,
	};
	struct rp_commit *c;

	for (int i = 0; i < 5; i++)
		r[i] = rig_range(1, i * 64, 64);
	pieces = 1;
	cr_assert_eq(rp_commit_reserve(p, &attr, &c), 0);
	rp_commit_unreserve(c);
	attr.nranges = 5;
	cr_assert_eq(rp_commit_reserve(p, &attr, &c), -ENOMEM);
	pieces = -1;
}

Test(commit_memory, no_memory_to_ask)
{
	pieces = 1;
	commit(&c0, 0);
	pieces = -1;
	cr_assert_eq(g.kicks, 1);
	rig_progress(&g);
	rig_none(&g);
	rig_told_once(&c0, RP_ST_NO_MEMORY);
	cr_assert_eq(c0.out.range, 0);
	cr_assert_eq(c0.out.detail, 0);
	commit_good(0);
}

Test(commit_memory, no_memory_without_order)
{
	struct rp_initiator_attr attr = rig_attr();
	struct rp_write w, x;

	attr.ordered = false;
	restart(&attr);
	/* To send the request that has waited for the write. */
	begin(&w, 0);
	commit(&c0, 0);
	pieces = 1;
	rp_write_done(&w, 0);
	pieces = -1;
	rig_progress(&g);
	rig_none(&g);
	rig_told_once(&c0, RP_ST_NO_MEMORY);
	cr_assert_eq(c0.out.range, 0);
	cr_assert_eq(c0.out.detail, 0);
	commit_good(0);

	/* To see which of the failed bytes are written again. */
	begin(&w, 3);
	rp_write_done(&w, EIO);
	begin(&x, 3);
	pieces = 1;
	commit(&c0, 3);
	pieces = -1;
	rp_write_done(&x, 0);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_WRITE_FAILED);
	commit_good(3);

	/* None is needed for bytes that have not failed. */
	begin(&w, 3);
	rp_write_done(&w, EIO);
	begin(&x, 3);
	pieces = 1;
	commit(&c0, 4);
	pieces = -1;
	rp_write_done(&x, 0);
	rig_progress(&g);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c0, RP_ST_OK);
}
