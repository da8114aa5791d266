// SPDX-License-Identifier: BSD-2-Clause
/* Inline stores at the initiator: when they are made, and what they are then.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "effects_rig.h"

/* A write of 64 bytes of key 9 that is its own commit. */
static int store(struct rig_told *t, uint64_t addr, uint64_t len)
{
	static const uint8_t bytes[RP_WIRE_MAX_STORE + 1] = {0x5a};
	const struct rp_wire_range r = rig_range(9, addr, len);
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

static bool may(uint64_t addr, uint64_t len)
{
	return rp_peer_may_store(p, rig_key(9), addr, len);
}

Test(inlined, when_it_may)
{
	struct rp_write other;
	struct rig_session s;
	uint64_t t;

	start(true);
	cr_assert_not(may(0, 8), "no session");
	s = open_session(8);
	cr_assert(may(0, 8));
	rp_write_begin(p, &w0, rig_key(9), 8, 8);
	rp_write_begin(p, &other, rig_key(8), 0, 8);
	cr_assert(may(0, 8));
	cr_assert(may(16, 8));
	cr_assert_not(may(0, 9));
	cr_assert_not(may(15, 8));
	cr_assert_not(may(10, 2));
	/* It does not wait for them, and is waited for. */
	cr_assert_eq(store(&c0, 16, 64), 0);
	t = asked(RP_EFFECT_STORE, 1);
	cr_assert_not(may(16, 8));
	cr_assert_not(may(79, 1));
	cr_assert(may(80, 1));
	cr_assert(rp_peer_store_overlaps(p, rig_key(9), 79, 1));
	rig_commit(&g, p, &c1, 9, 16, 8);
	rp_write_done(&w0, 0);
	rp_write_done(&other, 0);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_progress(&g);
	rig_not_told(&c0);
	rig_not_told(&c1);
	rig_ok(&g, &s, t);
	rig_told_once(&c0, RP_ST_OK);
	rig_told_once(&c1, RP_ST_OK);
	cr_assert(may(16, 8));
	cr_assert_not(rp_peer_store_overlaps(p, rig_key(9), 16, 8));
	rig_end(&g);
}

/* Not where a write and a request are cheaper. */
Test(inlined, no_larger_than_pays)
{
	struct rp_initiator_attr attr = rig_attr();

	attr.store_max = 8;
	rig_start(&g, &attr);
	p = rig_peer(&g);
	open_session(8);
	cr_assert(may(0, 8));
	cr_assert(!may(0, 9));
	rig_end(&g);
}

/* Many writes to look at are too many. */
Test(inlined, looks_at_few)
{
	static struct rp_write many[65];

	start(true);
	open_session(8);
	for (int i = 0; i < 65; i++) {
		cr_assert(may(0, 8));
		rp_write_begin(p, &many[i], rig_key(9), 64 + 8 * i, 8);
	}
	cr_assert_not(may(0, 8));
	for (int i = 0; i < 65; i++)
		rp_write_done(&many[i], 0);
	cr_assert(may(0, 8));
	rig_end(&g);
}

Test(inlined, refused)
{
	start(true);
	cr_assert_eq(store(&c0, 0, RP_WIRE_MAX_STORE + 1), -EINVAL);
	cr_assert_eq(store(&c0, 0, 0), -EINVAL);
	cr_assert_eq(store(&c0, UINT64_MAX, 8), -EINVAL);
	cr_assert_eq(rp_initiator_outstanding(g.in), 0);
	rig_end(&g);
}

/* One that fails poisons its bytes, and one that is done cures them. */
Test(inlined, is_a_write)
{
	struct rig_session s;

	start(true);
	s = open_session(8);
	cr_assert_eq(store(&c0, 0, 64), 0);
	rig_refuse(&g, &s, asked(RP_EFFECT_STORE, 1), RP_ST_FLUSH_FAILED);
	rig_told_once(&c0, RP_ST_FLUSH_FAILED);
	rig_commit(&g, p, &c1, 9, 63, 8);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	cr_assert_eq(store(&c0, 0, 64), 0);
	rig_ok(&g, &s, asked(RP_EFFECT_STORE, 2));
	rig_told_once(&c0, RP_ST_OK);
	rig_commit(&g, p, &c1, 9, 63, 8);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_OK);
	rig_end(&g);
}

/*
 * Without an answer it may arrive later, over what was written since. So what
 * is written before that is known to be past is not there for certain.
 */
Test(inlined, in_doubt)
{
	struct rp_write before;
	struct rig_session s;
	uint64_t t;

	start(true);
	s = open_session(8);
	cr_assert_eq(store(&c0, 0, 64), 0);
	t = asked(RP_EFFECT_STORE, 1);
	rig_pass(&g, 60000000000ull);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_TIMEOUT);
	while (g.nout)
		free(rig_pop(&g));
	cr_assert_not(may(512, 8), "no session");
	/* Written, and placed, but perhaps under what is late. */
	rp_write_begin(p, &w0, rig_key(9), 0, 64);
	rig_commit(&g, p, &c1, 9, 0, 64);
	rp_write_done(&w0, 0);
	s = rig_open(&g, RIG_LIFE, 8);
	cr_assert_not(may(512, 8), "in doubt");
	rp_write_begin(p, &before, rig_key(9), 0, 64);
	rig_ok(&g, &s, t);
	rig_not_told(&c1);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	/* Begun before the answer: perhaps under what was late. */
	rp_write_done(&before, 0);
	rig_commit(&g, p, &c1, 9, 0, 64);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	/* From now on nothing is late. */
	cr_assert(may(0, 64));
	rig_commit(&g, p, &c1, 9, 0, 64);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	rp_write_begin(p, &w0, rig_key(9), 0, 64);
	rig_commit(&g, p, &c1, 9, 0, 64);
	rp_write_done(&w0, 0);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_OK);
	rig_end(&g);
}

/* An answer that is not of this life of the target proves nothing. */
Test(inlined, in_doubt_of_another_life)
{
	struct rig_session s;
	uint64_t t;

	start(true);
	s = open_session(8);
	cr_assert_eq(store(&c0, 0, 64), 0);
	rig_sleep(&g, 2 * RIG_TIMEOUT);
	rig_told_once(&c0, RP_ST_TIMEOUT);
	while (g.nout)
		free(rig_pop(&g));
	rig_commit(&g, p, &c1, 9, 512, 8);
	s = rig_open(&g, RIG_LIFE, 8);
	t = rig_requested(&g, &s);
	s.incarnation = RIG_LIFE2;
	rig_ok(&g, &s, t);
	rig_told_once(&c1, RP_ST_INCARNATION);
	cr_assert_not(may(512, 8), "in doubt");
	rig_end(&g);
}

/* Which of several is in doubt. */
Test(inlined, in_doubt_of_several)
{
	const struct rp_wire_range r[2] = {
		rig_range(9, 512, 8),
		rig_range(9, 0, 8),
	};
	struct rig_session s;

	start(true);
	s = open_session(8);
	/* Others that have failed, before it in every order. */
	for (int i = 0; i < 7; i++) {
		rp_write_begin(p, &w0, rig_key(8), i * 128, 8);
		rp_write_done(&w0, EIO);
	}
	cr_assert_eq(store(&c0, 0, 64), 0);
	rig_sleep(&g, 2 * RIG_TIMEOUT);
	rig_told_once(&c0, RP_ST_TIMEOUT);
	cr_assert_eq(c0.out.range, 0);
	while (g.nout)
		free(rig_pop(&g));
	rig_commit_n(&g, p, &c1, r, 2);
	s = rig_open(&g, RIG_LIFE, 8);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	cr_assert_eq(c1.out.range, 1);
	rp_write_begin(p, &w0, rig_key(9), 0, 64);
	rp_write_done(&w0, 0);
	rig_commit_n(&g, p, &c1, r, 2);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_OK);
	rig_end(&g);
}

/* An effect behind bytes in doubt is not had, and its store poisons as well. */
Test(inlined, in_doubt_before_an_effect)
{
	const struct rp_wire_range r = rig_range(9, 0, 8);
	struct rig_session s;

	start(true);
	s = open_session(8);
	cr_assert_eq(store(&c0, 0, 64), 0);
	rig_pass(&g, 60000000000ull);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_TIMEOUT);
	while (g.nout)
		free(rig_pop(&g));
	cr_assert_eq(post(&c1, &r, 1, RP_EFFECT_THEN, 512), 0);
	s = rig_open(&g, RIG_LIFE, 8);
	rig_ok(&g, &s, asked(RP_EFFECT_NONE, 0));
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	rig_commit(&g, p, &c2, 9, 512, 8);
	rig_progress(&g);
	rig_told_once(&c2, RP_ST_WRITE_FAILED);
	rig_none(&g);
	rig_end(&g);
}

/* A store behind a commit that ends without an answer may come later as well.
 */
Test(inlined, then_in_doubt)
{
	const struct rp_wire_range r = rig_range(9, 0, 8);
	struct rig_session s;

	start(true);
	s = open_session(8);
	cr_assert_eq(post(&c0, &r, 1, RP_EFFECT_THEN, 512), 0);
	asked(RP_EFFECT_THEN, 1);
	rig_sleep(&g, 2 * RIG_TIMEOUT);
	rig_told_once(&c0, RP_ST_UNSURE);
	while (g.nout)
		free(rig_pop(&g));
	/* Written before the target answers: perhaps under what is late. */
	rp_write_begin(p, &w0, rig_key(9), 512, 8);
	rp_write_done(&w0, 0);
	rig_commit(&g, p, &c1, 9, 512, 8);
	s = rig_open(&g, RIG_LIFE, 8);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	rp_write_begin(p, &w0, rig_key(9), 512, 8);
	rp_write_done(&w0, 0);
	rig_commit(&g, p, &c1, 9, 512, 8);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_OK);
	rig_end(&g);
}

/* Nobody learns whether the store of an address that was removed still comes.
 */
Test(inlined, removed_in_doubt)
{
	struct rp_write w1;
	struct rig_session s;

	start(true);
	s = open_session(8);
	cr_assert_eq(store(&c0, 0, 64), 0);
	asked(RP_EFFECT_STORE, 1);
	rp_peer_forget(g.in, RIG_PEER);
	rig_told_once(&c0, RP_ST_CANCELED);
	while (g.nout)
		free(rig_pop(&g));
	p = rig_peer(&g);
	rp_write_begin(p, &w0, rig_key(9), 0, 64);
	rp_write_begin(p, &w1, rig_key(9), 64, 64);
	rp_write_done(&w0, 0);
	rp_write_done(&w1, 0);
	rig_commit(&g, p, &c1, 9, 0, 64);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	rig_commit(&g, p, &c1, 9, 64, 64);
	s = rig_open(&g, RIG_LIFE, 8);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_OK);
	rig_end(&g);
}

/* An atomic that failed for its user may be executed over later writes. */
Test(inlined, told_while_under_way)
{
	const struct rp_wire_range r = rig_range(9, 512, 8);
	struct rp_write w1;
	struct rig_session s;

	start(true);
	s = open_session(8);
	rp_write_begin(p, &w0, rig_key(9), 0, 8);
	rp_write_told(&w0);
	cr_assert_eq(post(&c1, &r, 1, RP_EFFECT_THEN, 0), 0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	rp_write_begin(p, &w1, rig_key(9), 0, 8);
	rp_write_done(&w1, 0);
	/* The last that may have been overtaken. */
	rp_write_begin(p, &w1, rig_key(9), 0, 8);
	rp_write_done(&w0, 0);
	rp_write_done(&w1, 0);
	rig_commit(&g, p, &c1, 9, 0, 8);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	rp_write_begin(p, &w0, rig_key(9), 0, 8);
	rp_write_done(&w0, 0);
	rig_commit(&g, p, &c1, 9, 0, 8);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_OK);
	/* With its address it is lost from sight. */
	rp_write_begin(p, &w0, rig_key(9), 0, 8);
	rp_write_told(&w0);
	rp_peer_forget(g.in, RIG_PEER);
	while (g.nout)
		free(rig_pop(&g));
	p = rig_peer(&g);
	rp_write_begin(p, &w1, rig_key(9), 0, 8);
	rp_write_done(&w1, 0);
	rig_commit(&g, p, &c1, 9, 0, 8);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	rp_write_done(&w0, 0);
	rig_end(&g);
}

/* A session that is lost takes the answer along: it is not asked for again. */
Test(inlined, not_repeated_elsewhere)
{
	struct rig_session s;
	uint64_t t;

	start(true);
	s = open_session(8);
	cr_assert_eq(store(&c0, 0, 64), 0);
	t = asked(RP_EFFECT_STORE, 1);
	rig_refuse(&g, &s, t, RP_ST_NO_SESSION);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_WRITE_FAILED);
	cr_assert_eq(c0.out.range, 0);
	rig_none(&g);
	/* Another copy may arrive yet, over what is written now. */
	rp_write_begin(p, &w0, rig_key(9), 0, 64);
	rig_commit(&g, p, &c1, 9, 0, 64);
	rp_write_done(&w0, 0);
	s = rig_open(&g, RIG_LIFE, 8);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	rig_end(&g);
}

/*
 * What the program posts next must not overtake the bytes, so they do not wait:
 * a full base is the program's to wait for, and nothing is left of the store.
 */
Test(inlined, at_once_or_not_at_all)
{
	struct rig_session s;
	uint64_t t;

	start(true);
	s = open_session(2);
	rp_write_begin(p, &w0, rig_key(9), 512, 8);
	rig_commit(&g, p, &c1, 9, 512, 8);
	t = rig_requested(&g, &s);
	g.send_ret = -EAGAIN;
	cr_assert_eq(store(&c0, 0, 64), -EAGAIN);
	cr_assert_not(rp_peer_store_overlaps(p, rig_key(9), 0, 64));
	cr_assert_eq(rp_initiator_outstanding(g.in), 1);
	g.send_ret = 0;
	rig_progress(&g);
	rig_none(&g);
	/* Those before are not its affair; its number is the next one's. */
	rp_write_done(&w0, 0);
	cr_assert(may(0, 64));
	cr_assert_eq(store(&c0, 0, 64), 0);
	cr_assert_not(may(64, 64), "both credits are taken");
	rig_ok(&g, &s, t);
	rig_told_once(&c1, RP_ST_OK);
	rig_ok(&g, &s, asked(RP_EFFECT_STORE, 1));
	rig_told_once(&c0, RP_ST_OK);
	cr_assert(may(64, 64));
	/* One that had no number yet has none to give back. */
	rig_commit(&g, p, &c1, 9, 512, 8);
	rig_commit(&g, p, &c2, 9, 512, 8);
	cr_assert_eq(store(&c0, 0, 64), -EAGAIN);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_ok(&g, &s, rig_requested(&g, &s));
	cr_assert_eq(store(&c0, 0, 64), 0);
	rig_ok(&g, &s, asked(RP_EFFECT_STORE, 2));
	rig_told_once(&c0, RP_ST_OK);
	/* Nor behind what waits. */
	g.send_ret = -EAGAIN;
	rig_commit(&g, p, &c1, 9, 512, 8);
	g.send_ret = 0;
	cr_assert_not(may(64, 64), "one waits");
	rig_pass(&g, RIG_MS);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_OK);
	cr_assert(may(64, 64));
	/* Nobody waits for those that were not taken. */
	rig_progress(&g);
	cr_assert_eq(rp_initiator_deadline(g.in), UINT64_MAX);
	rig_end(&g);
}

static void expect_bytes(const struct rig_msg *m, uint8_t first)
{
	const uint8_t *sent = rig_as_request(m).bytes;

	for (size_t i = 0; i < RP_WIRE_MAX_STORE; i++)
		cr_assert_eq(sent[i], (uint8_t)(i * 7 + first));
}

/* Sent, and sent again when the program has new ones there. */
static void carry(bool lent)
{
	uint8_t bytes[RP_WIRE_MAX_STORE];
	const struct rp_wire_range r = rig_range(9, 0, sizeof(bytes));
	const struct rp_commit_attr attr = {
		.ranges = &r,
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
		.effect = RP_EFFECT_STORE,
		.bytes = bytes,
		.lent = lent,
		.done = rig_done,
		.arg = &c0,
	};
	struct rig_session s;
	struct rig_msg *m;
	uint64_t t;

	start(true);
	s = open_session(8);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7 + 1);
	cr_assert_eq(rp_commit_post(p, &attr), 0);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7 + 2);
	m = rig_take(&g, RP_MSG_REQUEST);
	expect_bytes(m, 1);
	free(m);
	rig_pass(&g, RIG_TIMEOUT / 2);
	free(rig_take(&g, RP_MSG_HELLO));
	m = rig_take(&g, RP_MSG_REQUEST);
	expect_bytes(m, lent ? 2 : 1);
	t = m->hdr.token;
	free(m);
	c0 = (struct rig_told){0};
	rig_ok(&g, &s, t);
	rig_told_once(&c0, RP_ST_OK);
	rig_end(&g);
}

Test(inlined, carries_its_bytes)
{
	carry(false);
}

/* Whoever lends them leaves them, so they are nowhere else. */
Test(inlined, carries_lent_bytes)
{
	carry(true);
}

/* Two features: the one is not the other. */
Test(inlined, of_the_target_that_knows_it)
{
	struct rig_session s = {
		.cookie = 0xc00c1e,
		.incarnation = RIG_LIFE,
		.credits = 4,
	};
	struct rig_msg *m;

	for (int i = 0; i < 2; i++) {
		start(true);
		rig_commit(&g, p, &c1, 9, 512, 8);
		m = rig_take(&g, RP_MSG_HELLO);
		s.without = i ? RP_FEATURE_STORE : RP_FEATURE_EFFECTS;
		rig_hello_ack(&g, m, &s, RP_ST_OK);
		free(m);
		rig_ok(&g, &s, rig_requested(&g, &s));
		cr_assert_eq(may(0, 64), !i);
		cr_assert_eq(store(&c0, 0, 64), 0);
		then(&c2, 64);
		rig_progress(&g);
		rig_ok(&g, &s, asked(i ? RP_EFFECT_THEN : RP_EFFECT_STORE, 1));
		rig_progress(&g);
		rig_told_once(&c0, i ? RP_ST_UNSUPPORTED : RP_ST_OK);
		rig_told_once(&c2, i ? RP_ST_OK : RP_ST_UNSUPPORTED);
		rig_end(&g);
	}
}

/* The oldest without an answer holds it up, whatever credit there is. */
Test(inlined, no_more_than_the_window)
{
	struct rig_session s;
	uint64_t t[2];

	start(true);
	s = open_session(2);
	cr_assert_eq(store(&c0, 0, 64), 0);
	cr_assert_eq(store(&c1, 64, 64), 0);
	t[0] = asked(RP_EFFECT_STORE, 1);
	t[1] = asked(RP_EFFECT_STORE, 2);
	rig_ok(&g, &s, t[1]);
	cr_assert_not(may(128, 64));
	rig_ok(&g, &s, t[0]);
	cr_assert(may(128, 64));
	rig_end(&g);
}

/* An older target of ours. */
Test(inlined, not_to_who_does_not_know_it)
{
	struct rig_session s = {
		.cookie = 0xc00c1e,
		.incarnation = RIG_LIFE,
		.credits = 4,
		.without = RP_FEATURES,
	};
	struct rig_msg *m;

	start(true);
	rig_commit(&g, p, &c1, 9, 512, 8);
	m = rig_take(&g, RP_MSG_HELLO);
	rig_hello_ack(&g, m, &s, RP_ST_OK);
	free(m);
	rig_ok(&g, &s, rig_requested(&g, &s));
	cr_assert_not(may(0, 64));
	rig_end(&g);
}

/* A base that refuses it says so at once, as of any write. */
Test(inlined, refused_by_the_base)
{
	struct rig_session s;

	start(true);
	s = open_session(4);
	g.send_ret = -ENOTCONN;
	cr_assert_eq(store(&c0, 0, 64), -ENOTCONN);
	cr_assert_eq(rp_initiator_outstanding(g.in), 0);
	cr_assert_not(rp_peer_store_overlaps(p, rig_key(9), 0, 64));
	g.send_ret = 0;
	rig_progress(&g);
	rig_not_told(&c0);
	/* And nothing is poisoned. */
	rig_commit(&g, p, &c1, 9, 0, 64);
	s = rig_open(&g, RIG_LIFE, 4);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_OK);
	rig_end(&g);
}
