/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes that fail, and the commits that must not succeed for that. */
#include <errno.h>

#include <criterion/criterion.h>

#include "commit_rig.h"
#include "core/initiator.h"

TestSuite(poison, .init = start, .fini = stop);

Test(poison, failed_write_before_and_after_the_answer)
{
	struct rp_write w;
	uint64_t token;

	for (int after = 0; after < 2; after++) {
		begin(&w, 0);
		commit(&c0, 0);
		token = rig_requested(&g, &s);
		if (after)
			rig_ok(&g, &s, token);
		rp_write_done(&w, EIO);
		rig_not_told(&c0);
		rig_progress(&g);
		rig_told_once(&c0, RP_ST_WRITE_FAILED);
		/* The request has no owner; its answer finds nobody. */
		rig_ok(&g, &s, token);
		rig_refuse(&g, &s, token, RP_ST_RANGE);
		rig_told_once(&c0, RP_ST_WRITE_FAILED);
		cr_assert_eq(rp_initiator_outstanding(g.in), 0);
	}
}

Test(poison, failed_write_elsewhere)
{
	const struct rp_wire_range r[] = {
		rig_range(1, 0, 64), rig_range(2, 0, 64), rig_range(1, 64, 64)};
	struct rp_write w[4], later;

	/* Touching on both sides, and the same bytes of another key. */
	rp_write_begin(p, &w[0], rig_key(1), 0, 64);
	rp_write_begin(p, &w[1], rig_key(1), 128, 64);
	rp_write_begin(p, &w[2], rig_key(2), 64, 64);
	rp_write_begin(p, &w[3], rig_key(1), 64, 64);
	rig_commit(&g, p, &c0, 1, 64, 64);
	rig_commit_n(&g, p, &c1, r, 3);
	rp_write_begin(p, &later, rig_key(1), 64, 64);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_requested(&g, &s);
	for (int i = 0; i < 3; i++)
		rp_write_done(&w[i], EIO);
	rig_progress(&g);
	rig_not_told(&c0);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	cr_assert_eq(c1.out.range, 0);
	/* Posted behind the commit: not covered. */
	rp_write_done(&later, EIO);
	rig_progress(&g);
	rig_not_told(&c0);
	rp_write_done(&w[3], 0);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_OK);
	/* But the next one covers it. */
	rig_commit(&g, p, &c0, 1, 127, 1);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_WRITE_FAILED);
}

Test(poison, credit_of_an_orphan)
{
	struct rp_write w;
	uint64_t token;

	stop();
	rig_start(&g, NULL);
	p = rig_peer(&g);
	begin(&w, 0);
	commit(&c0, 0);
	s = rig_open(&g, RIG_LIFE, 1);
	token = rig_requested(&g, &s);
	commit(&c1, 1);
	commit(&c2, 0);
	rig_none(&g);
	/* c0 ends in flight, c2 in the queue: it is never sent. */
	rp_write_done(&w, EIO);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_WRITE_FAILED);
	rig_told_once(&c2, RP_ST_WRITE_FAILED);
	rig_not_told(&c1);
	rig_none(&g);
	rig_ok(&g, &s, token);
	token = rig_requested(&g, &s);
	rig_ok(&g, &s, token);
	rig_told_once(&c1, RP_ST_OK);
	rig_none(&g);

	/* Overloaded or without a session, an orphan is not sent again. */
	for (int i = 0; i < 2; i++) {
		begin(&w, 0);
		commit(&c0, 0);
		token = rig_requested(&g, &s);
		rp_write_done(&w, EIO);
		begin(&w, 0);
		rp_write_done(&w, 0);
		commit(&c1, 0);
		rig_refuse(&g, &s, token,
			   i ? RP_ST_OVERLOADED : RP_ST_NO_SESSION);
		if (i)
			rig_sleep(&g, 2 * RIG_MS);
		else
			s = rig_open(&g, RIG_LIFE, 1);
		rig_ok(&g, &s, rig_requested(&g, &s));
		rig_told_once(&c1, RP_ST_OK);
		rig_none(&g);
	}

	/* An orphan without an answer gives its credit back after a while. */
	begin(&w, 0);
	commit(&c0, 0);
	rig_requested(&g, &s);
	rp_write_done(&w, EIO);
	commit(&c1, 1);
	rig_none(&g);
	rig_sleep(&g, RIG_TIMEOUT / 2);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_OK);
}

Test(poison, until_written_again)
{
	struct rp_write w, x;

	begin(&w, 3);
	rp_write_done(&w, EIO);
	commit_good(2);
	commit_poisoned(3);
	commit_good(4);
	/* Failed again: still. Elsewhere, or of another key: still. */
	begin(&w, 3);
	rp_write_done(&w, ENETDOWN);
	begin(&w, 2);
	rp_write_done(&w, 0);
	rp_write_begin(p, &w, rig_key(2), 3 * 64, 64);
	rp_write_done(&w, 0);
	commit_poisoned(3);
	begin(&w, 3);
	rp_write_done(&w, 0);
	commit_good(3);

	/* Posted before the one that failed: proves nothing. */
	begin(&w, 3);
	begin(&x, 3);
	rp_write_done(&x, EIO);
	rp_write_done(&w, 0);
	commit_poisoned(3);
	begin(&w, 3);
	rp_write_done(&w, 0);
	commit_good(3);
	/* The earlier one fails after the later has been placed. */
	begin(&w, 3);
	begin(&x, 3);
	rp_write_done(&x, 0);
	rp_write_done(&w, EIO);
	commit_poisoned(3);
}

Test(poison, is_of_one_peer)
{
	struct rp_write w;

	begin(&w, 3);
	rp_write_done(&w, EIO);
	rig_commit(&g, rp_peer_get(g.in, RIG_PEER + 1), &c0, 1, 3 * 64, 64);
	s = rig_open(&g, RIG_LIFE, 4);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c0, RP_ST_OK);
}

Test(poison, rewritten_in_part)
{
	struct rp_write w;

	/* 16 slots fail; pieces are written again. */
	rp_write_begin(p, &w, rig_key(1), 0, 1024);
	rp_write_done(&w, EIO);
	begin(&w, 4);
	rp_write_done(&w, 0);
	rp_write_begin(p, &w, rig_key(1), 8 * 64 + 32, 64);
	rp_write_done(&w, 0);
	rp_write_begin(p, &w, rig_key(1), 15 * 64, 1000);
	rp_write_done(&w, 0);
	for (unsigned int i = 0; i < 17; i++)
		if (i == 4 || i >= 15)
			commit_good(i);
		else
			commit_poisoned(i);
	rig_commit(&g, p, &c0, 1, 8 * 64 + 32, 64);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c0, RP_ST_OK);
	rig_commit(&g, p, &c0, 1, 8 * 64 + 31, 64);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_WRITE_FAILED);
	/* Over everything, in two writes that overlap. */
	rp_write_begin(p, &w, rig_key(1), 0, 700);
	rp_write_done(&w, 0);
	rp_write_begin(p, &w, rig_key(1), 600, 424);
	rp_write_done(&w, 0);
	for (unsigned int i = 0; i < 16; i++)
		commit_good(i);
}

/*
 * Written again and committed without waiting in between, as every program
 * does that uses FI_COMMIT_COMPLETE: the commit depends on that write alone.
 */
Test(poison, rewritten_under_way)
{
	struct rp_write w, x, y;
	uint64_t token;

	for (int fails = 0; fails < 2; fails++) {
		begin(&w, 3);
		rp_write_done(&w, EIO);
		commit_poisoned(3);
		begin(&x, 3);
		commit(&c0, 3);
		token = rig_requested(&g, &s);
		rig_ok(&g, &s, token);
		rig_progress(&g);
		rig_not_told(&c0);
		rp_write_done(&x, fails ? EIO : 0);
		rig_progress(&g);
		rig_told_once(&c0, fails ? RP_ST_WRITE_FAILED : RP_ST_OK);
	}
	/* In part is not enough. */
	rp_write_begin(p, &x, rig_key(1), 3 * 64, 63);
	commit_poisoned(3);
	/* In two parts is. */
	rp_write_begin(p, &y, rig_key(1), 3 * 64 + 63, 10);
	commit(&c0, 3);
	token = rig_requested(&g, &s);
	rig_ok(&g, &s, token);
	rp_write_done(&y, 0);
	rig_progress(&g);
	rig_not_told(&c0);
	rp_write_done(&x, 0);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_OK);
	/* A write that was posted before the failed one is not. */
	begin(&x, 3);
	begin(&w, 3);
	rp_write_done(&w, EIO);
	commit_poisoned(3);
	rp_write_done(&x, 0);
	/* Nor is one behind the commit, even if it is placed first. */
	begin(&x, 2);
	commit(&c0, 3);
	begin(&y, 3);
	rp_write_done(&y, 0);
	rp_write_done(&x, 0);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_WRITE_FAILED);
	commit_good(3);
}

/* In the middle of what is committed, or over all of its ranges. */
Test(poison, failed_write_inside_and_around)
{
	const struct rp_wire_range r[] = {rig_range(1, 64, 64),
					  rig_range(1, 192, 64)};
	struct rp_write w;

	rp_write_begin(p, &w, rig_key(1), 74, 10);
	rig_commit(&g, p, &c0, 1, 64, 64);
	rp_write_done(&w, EIO);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_WRITE_FAILED);
	rp_write_begin(p, &w, rig_key(1), 0, 1024);
	rig_commit_n(&g, p, &c0, r, 2);
	rp_write_done(&w, EIO);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_WRITE_FAILED);
	cr_assert_eq(c0.out.range, 0);
	cr_assert_eq(rp_initiator_outstanding(g.in), 0);
}

/* What lies between two of them has not failed. */
Test(poison, rewritten_under_way_of_two)
{
	struct rp_write w;
	uint64_t token;

	for (int i = 0; i < 2; i++) {
		begin(&w, i ? 9 : 3);
		rp_write_done(&w, EIO);
	}
	begin(&w, 3);
	rig_commit(&g, p, &c0, 1, 3 * 64, 2 * 64);
	token = rig_requested(&g, &s);
	rp_write_done(&w, 0);
	rig_ok(&g, &s, token);
	rig_told_once(&c0, RP_ST_OK);
	commit_poisoned(9);
}

static void fail(unsigned int i)
{
	struct rp_write w;

	begin(&w, 2 * i);
	rp_write_done(&w, EIO);
}

/* Remembered one by one up to a number, then as one that spans them. */
Test(poison, is_bounded)
{
	for (unsigned int i = 0; i < 1024; i++)
		fail(i);
	for (unsigned int i = 0; i < 1024; i += 1023) {
		commit_poisoned(2 * i);
		commit_good(2 * i + 1);
	}
	fail(1024);
	for (unsigned int i = 0; i < 2 * 1024; i++)
		commit_poisoned(i);
	commit_good(2 * 1024 + 1);
}

Test(poison, overflows)
{
	struct rp_write w;

	/* More holes than are kept: more is poisoned then, never less. */
	for (unsigned int i = 0; i < 5000; i++) {
		rp_write_begin(p, &w, rig_key(1), 1000 + i * 100, 50);
		rp_write_done(&w, EIO);
	}
	for (unsigned int i = 0; i < 5000; i++) {
		rig_commit(&g, p, &c0, 1, 1000 + i * 100 + 49, 1);
		rig_progress(&g);
		rig_told_once(&c0, RP_ST_WRITE_FAILED);
	}
	rig_commit(&g, p, &c0, 1, 1000 + 5000 * 100, 50);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c0, RP_ST_OK);
	rig_commit(&g, p, &c0, 2, 1000, 50);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c0, RP_ST_OK);
	/* Written again, all of it, it is good. */
	rp_write_begin(p, &w, rig_key(1), 0, 1000000);
	rp_write_done(&w, 0);
	for (unsigned int i = 0; i < 5000; i += 100) {
		rig_commit(&g, p, &c0, 1, 1000 + i * 100, 50);
		rig_ok(&g, &s, rig_requested(&g, &s));
		rig_told_once(&c0, RP_ST_OK);
	}
}

/* So is what peers that have gone leave behind. */
Test(poison, orphans_are_bounded)
{
	/* All are there before one goes: none inherits from another. */
	for (unsigned int n = 0; n < 3; n++) {
		p = rp_peer_get(g.in, RIG_PEER + 1 + n);
		for (unsigned int i = 0; i < 1000; i++)
			fail(1000 * n + i);
	}
	for (unsigned int n = 0; n < 3; n++)
		rp_peer_forget(g.in, RIG_PEER + 1 + n);
	cr_assert_leq(g.in->orphans.n, 1024);
	p = rig_peer(&g);
}

/* Adapters refuse such a write; should one come, nothing may be trusted. */
Test(poison, write_that_wraps)
{
	struct rp_write w;

	rp_write_begin(p, &w, rig_key(1), UINT64_MAX - 10, 100);
	rig_commit(&g, p, &c0, 1, UINT64_MAX - 5, 5);
	rig_requested(&g, &s);
	rp_write_done(&w, EIO);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_WRITE_FAILED);
	commit_poisoned(0);
}

/* The address goes and comes back: what it lost is still known. */
Test(poison, survives_the_peer)
{
	struct rp_write failed, way, again, other;

	rp_write_begin(p, &failed, rig_key(1), 0, 64);
	rp_write_done(&failed, EIO);
	rp_write_begin(p, &way, rig_key(1), 128, 64);
	rp_peer_forget(g.in, RIG_PEER);
	p = rig_peer(&g);
	rig_commit(&g, p, &c0, 1, 0, 64);
	rig_commit(&g, p, &c1, 1, 128, 64);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_WRITE_FAILED);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	/* However it ends: the new peer cannot know. */
	rp_write_done(&way, 0);
	rig_commit(&g, p, &c1, 1, 191, 1);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);

	/* Other bytes, and another key, are not concerned. */
	rig_commit(&g, p, &c0, 1, 64, 64);
	rig_commit(&g, p, &c1, 2, 0, 64);
	s = rig_open(&g, RIG_LIFE, 8);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c0, RP_ST_OK);
	rig_told_once(&c1, RP_ST_OK);

	/* Written again it is well, for the next one too. */
	rp_write_begin(p, &again, rig_key(1), 0, 192);
	rp_write_done(&again, 0);
	rig_commit(&g, p, &c0, 1, 0, 192);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c0, RP_ST_OK);
	rp_write_begin(p, &other, rig_key(1), 256, 64);
	rp_write_done(&other, 0);
	rp_peer_forget(g.in, RIG_PEER);
	p = rig_peer(&g);
	rig_commit(&g, p, &c0, 1, 0, 320);
	s = rig_open(&g, RIG_LIFE, 8);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c0, RP_ST_OK);
}
