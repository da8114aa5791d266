// SPDX-License-Identifier: BSD-2-Clause
/* Commits without the agent: where it reads, and what ends that. */
#include <errno.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#include "core/own.h"
#include "own_rig.h"

Test(own, fence_is_behind_the_write_and_not_after_it)
{
	fenced(1);
	rp_write_begin(p, &w0, rig_key(1), 5000, 100);
	rig_commit(&g, p, &c1, 1, 5000, 100);
	/* At once, inside the range, under the base's key. */
	cr_assert_eq(nreads, 1);
	cr_assert_eq(reads[0].peer, RIG_PEER);
	cr_assert_eq(reads[0].key, 1);
	cr_assert_eq(reads[0].addr, 5000);
	cr_assert_eq(reads[0].len, 8);
	rig_none(&g);
	rp_fence_done(reads[0].f, 0);
	rig_progress(&g);
	rig_not_told(&c1);
	rp_write_done(&w0, 0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	cr_assert_eq(c1.out.method, RP_METHOD_FENCE);
	cr_assert_eq(c1.out.class, RP_CLASS_POWER);
	/* The other way round. */
	rp_write_begin(p, &w0, rig_key(1), 5000, 3);
	rig_commit(&g, p, &c1, 1, 5000, 3);
	cr_assert_eq(reads[1].len, 3);
	rp_write_done(&w0, 0);
	rig_progress(&g);
	rig_not_told(&c1);
	/* Who sleeps is woken for what ends with it, and for no more. */
	rig_commit(&g, p, &c0, 1, 5000, 3);
	rp_write_begin(p, &w0, rig_key(1), 5000, 3);
	rig_commit(&g, p, &c0, 1, 5000, 3);
	g.kicks = 0;
	rp_fence_done(reads[3].f, 0);
	cr_assert_eq(g.kicks, 0);
	rp_fence_done(reads[1].f, 0);
	cr_assert_eq(g.kicks, 1);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	rp_fence_done(reads[2].f, 0);
	rp_write_done(&w0, 0);
	rig_progress(&g);
	rig_end(&g);
}

/* A peer that answers a fence is not silent. */
Test(own, fence_is_a_sign_of_life)
{
	fenced(1);
	rig_commit(&g, p, &c1, 1, 4096, 64);
	rig_pass(&g, RIG_TIMEOUT - RIG_MS);
	rig_commit(&g, p, &c0, 1, 4096, 64);
	rp_fence_done(reads[1].f, 0);
	rig_pass(&g, RIG_TIMEOUT - RIG_MS);
	rig_told_once(&c0, RP_ST_OK);
	rig_not_told(&c1);
	rp_fence_done(reads[0].f, 0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	rig_end(&g);
}

/* A write with its commit: reserved, posted, started. */
Test(own, fence_waits_for_its_write)
{
	const struct rp_wire_range r = rig_range(1, 5000, 8);
	struct rp_commit_attr attr;
	struct rp_commit *c;

	fenced(1);
	attr = commit_of(&c1, &r, 1, RP_CLASS_POWER);
	cr_assert_eq(rp_commit_reserve(p, &attr, &c), 0);
	rp_write_begin(p, &w0, rig_key(1), 5000, 8);
	/* Something is sure to follow, so the write need not ring. */
	cr_assert(rp_commit_fences(c));
	cr_assert_eq(nreads, 0);
	rp_commit_start(c);
	cr_assert_eq(nreads, 1);
	rp_write_done(&w0, 0);
	rp_fence_done(reads[0].f, 0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	/* Of what is poisoned nothing follows, and it must. */
	rp_write_begin(p, &w0, rig_key(1), 5000, 8);
	rp_write_done(&w0, EIO);
	cr_assert_eq(rp_commit_reserve(p, &attr, &c), 0);
	cr_assert(!rp_commit_fences(c));
	rp_commit_unreserve(c);
	rig_end(&g);
}

Test(own, one_fence_for_each_region)
{
	struct rp_wire_range r[4];

	fenced(1);
	confirm(2, RP_METHOD_FENCE, RP_CLASS_POWER);
	confirm(3, RP_METHOD_DELIVERY, RP_CLASS_POWER);
	r[0] = rig_range(1, 4096, 1);
	r[1] = rig_range(1, 5000, 8);
	r[2] = rig_range(3, 4096, 8);
	r[3] = rig_range(2, 8184, 8);
	rig_commit_n(&g, p, &c1, r, 4);
	cr_assert_eq(nreads, 2);
	cr_assert_eq(reads[0].len, 1);
	cr_assert_eq(reads[1].addr, 8184);
	rp_fence_done(reads[0].f, 0);
	rig_not_told(&c1);
	rp_fence_done(reads[1].f, 0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	/* One that nobody has confirmed: all of them are asked about. */
	r[1] = rig_range(4, 4096, 8);
	rig_commit_n(&g, p, &c1, r, 4);
	cr_assert_eq(nreads, 2);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_OK);
	rig_end(&g);
}

Test(own, delivery_ends_with_the_writes)
{
	s.cookie = 0;
	start(true);
	confirm(1, RP_METHOD_DELIVERY, RP_CLASS_PROCESS);
	/* Less than is required now. */
	cr_assert(asks(1, 4096, 64));
	confirm(1, RP_METHOD_DELIVERY, RP_CLASS_POWER);
	rp_write_begin(p, &w0, rig_key(1), 4096, 64);
	rig_commit(&g, p, &c1, 1, 4096, 64);
	rig_none(&g);
	cr_assert_eq(nreads, 0);
	rig_not_told(&c1);
	rp_write_done(&w0, 0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	cr_assert_eq(c1.out.method, RP_METHOD_DELIVERY);
	/* Past either end of the region. */
	cr_assert(asks(1, 8000, 193));
	confirm(1, RP_METHOD_DELIVERY, RP_CLASS_POWER);
	cr_assert(asks(1, 4095, 2));
	rig_end(&g);
}

Test(own, not_without_being_told)
{
	s.cookie = 0;
	start(false);
	confirm(1, RP_METHOD_FENCE, RP_CLASS_POWER);
	cr_assert(asks(1, 4096, 64));
	rig_end(&g);
}

/* An agent that grants nothing any more has the last word. */
Test(own, ends_with_an_answer)
{
	fenced(1);
	/* Outside, so it is asked. */
	rig_commit(&g, p, &c1, 1, 0, 8);
	rig_refuse(&g, &s, rig_requested(&g, &s), RP_ST_RANGE);
	rig_told_once(&c1, RP_ST_RANGE);
	cr_assert(asks(1, 4096, 64));
	confirm(1, RP_METHOD_FENCE, RP_CLASS_POWER);
	cr_assert(!asks(1, 4096, 64));
	cr_assert(asks(1, 0, 64));
	cr_assert(asks(1, 4096, 64));
	rig_end(&g);
}

Test(own, ends_with_the_session)
{
	fenced(1);
	rig_commit(&g, p, &c1, 2, 0, 8);
	rig_refuse(&g, &s, rig_requested(&g, &s), RP_ST_NO_SESSION);
	s = rig_open(&g, RIG_LIFE, 8);
	rig_ok(&g, &s, rig_requested(&g, &s));
	cr_assert(asks(1, 4096, 64));
	/* The connection lives: it may be granted again. */
	confirm(1, RP_METHOD_FENCE, RP_CLASS_POWER);
	cr_assert(!asks(1, 4096, 64));
	rig_end(&g);
}

/* Nothing of another life of the target is known to be where it was. */
Test(own, ends_with_the_target)
{
	/* Written to before anybody is known: that is no other life. */
	s.cookie = 0;
	start(true);
	rp_write_begin(p, &w0, rig_key(1), 4096, 8);
	rp_write_done(&w0, 0);
	confirm(1, RP_METHOD_FENCE, RP_CLASS_POWER);
	cr_assert(!asks(1, 4096, 64));
	rig_commit(&g, p, &c1, 2, 0, 8);
	rig_refuse(&g, &s, rig_requested(&g, &s), RP_ST_NO_SESSION);
	s = rig_open(&g, RIG_LIFE2, 8);
	rig_ok(&g, &s, rig_requested(&g, &s));
	confirm(1, RP_METHOD_FENCE, RP_CLASS_POWER);
	cr_assert(asks(1, 4096, 64));
	rig_end(&g);
}

/* From now on the agent is asked, whatever it grants, at this address too. */
static void is_banned(uint32_t n)
{
	confirm(n, RP_METHOD_FENCE, RP_CLASS_POWER);
	cr_assert(asks(n, 4096, 64));
	rp_peer_forget(g.in, RIG_PEER);
	p = rig_peer(&g);
	s.cookie = 0;
	confirm(n, RP_METHOD_FENCE, RP_CLASS_POWER);
	cr_assert(asks(n, 4096, 64));
	/* But not about a key that was not there before. */
	confirm(99, RP_METHOD_FENCE, RP_CLASS_POWER);
	cr_assert(!asks(99, 4096, 64));
	rig_end(&g);
}

Test(own, ends_with_a_failed_write)
{
	fenced(1);
	rp_write_begin(p, &w0, rig_key(7), 0, 8);
	rp_write_begin(p, &w1, rig_key(2), 0, 8);
	rp_write_done(&w0, 0);
	rp_write_done(&w1, EIO);
	cr_assert(asks(1, 4096, 64));
	/* Also those that were only written to. */
	confirm(7, RP_METHOD_FENCE, RP_CLASS_POWER);
	cr_assert(asks(7, 4096, 64));
	confirm(2, RP_METHOD_FENCE, RP_CLASS_POWER);
	cr_assert(asks(2, 4096, 64));
	is_banned(1);
}

Test(own, ends_with_a_failed_fence)
{
	fenced(1);
	rig_commit(&g, p, &c1, 1, 4096, 64);
	rp_fence_done(reads[0].f, EIO);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	is_banned(1);
}

Test(own, ends_with_a_refused_post)
{
	fenced(1);
	fence_ret = -ENOTCONN;
	rig_commit(&g, p, &c1, 1, 4096, 64);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_SEND_FAILED);
	fence_ret = 0;
	s.cookie = 0;
	is_banned(1);
}

Test(own, ends_with_the_address)
{
	fenced(1);
	rp_write_begin(p, &w0, rig_key(7), 0, 8);
	rp_write_done(&w0, 0);
	rp_peer_forget(g.in, RIG_PEER);
	p = rig_peer(&g);
	s.cookie = 0;
	confirm(7, RP_METHOD_FENCE, RP_CLASS_POWER);
	cr_assert(asks(7, 4096, 64));
	is_banned(1);
}

Test(own, ends_with_an_atomic)
{
	fenced(1);
	rp_write_begin(p, &w0, rig_key(1), 4096, 8);
	rp_write_by_cpu(&w0);
	rp_write_done(&w0, 0);
	cr_assert(asks(1, 4096, 64));
	is_banned(1);
}

/* A base that is full is asked again; nothing is late because of it. */
Test(own, base_is_full)
{
	fenced(1);
	fence_ret = -EAGAIN;
	rig_commit(&g, p, &c1, 1, 4096, 64);
	rig_progress(&g);
	rig_not_told(&c1);
	fence_ret = 0;
	rig_pass(&g, RIG_MS);
	cr_assert_eq(nreads, 1);
	rp_fence_done(reads[0].f, 0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	/* One that waits ends with its commit, one that is posted later. */
	rig_commit(&g, p, &c0, 1, 4096, 64);
	fence_ret = -EAGAIN;
	rig_commit(&g, p, &c1, 1, 4096, 64);
	rp_peer_forget(g.in, RIG_PEER);
	rig_told_once(&c0, RP_ST_CANCELED);
	rig_told_once(&c1, RP_ST_CANCELED);
	cr_assert_eq(nreads, 2);
	rp_fence_done(reads[1].f, 0);
	rig_end(&g);
}

Test(own, silence_ends_it)
{
	fenced(1);
	rig_commit(&g, p, &c1, 1, 4096, 64);
	rig_commit(&g, p, &c0, 1, 4096, 64);
	rig_sleep(&g, 2 * RIG_TIMEOUT);
	rig_told_once(&c1, RP_ST_TIMEOUT);
	rig_told_once(&c0, RP_ST_TIMEOUT);
	/* The reads that come back find nobody. */
	rp_fence_done(reads[1].f, 0);
	rp_fence_done(reads[0].f, EIO);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_TIMEOUT);
	rig_told_once(&c0, RP_ST_TIMEOUT);
	rig_end(&g);
}
