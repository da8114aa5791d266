// SPDX-License-Identifier: BSD-2-Clause
/* Stores and notifications at the initiator: when they are asked for, how often
 * they are asked for, and what is said when nobody knows.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/log.h"
#include "effects_rig.h"

static unsigned int warnings;

static void count(enum rp_log_level level, const char *text)
{
	warnings += level == RP_LOG_WARN;
}

Test(effects, refused)
{
	const struct rp_wire_range r = rig_range(1, 256, 64);
	struct rp_commit_attr attr = {
		.ranges = &r,
		.nranges = 1,
		.level = RP_LEVEL_VISIBLE,
		.effect = RP_EFFECT_THEN,
		.then = {rig_key(9), 8, 1},
		.done = rig_done,
	};

	start(true);
	rp_log_set(count);
	cr_assert_eq(rp_commit_post(p, &attr), -EINVAL, "visible");
	cr_assert_eq(warnings, 1);
	attr.effect = RP_EFFECT_NOTIFY;
	cr_assert_eq(rp_commit_post(p, &attr), -EINVAL, "visible");
	attr.effect = RP_EFFECT_THEN;
	attr.level = RP_LEVEL_DURABLE;
	for (attr.then.addr = 1; attr.then.addr < 8; attr.then.addr++)
		cr_assert_eq(rp_commit_post(p, &attr), -EINVAL, "unaligned");
	cr_assert_eq(warnings, 2 + 7);
	attr.then.addr = UINT64_MAX - 7;
	cr_assert_eq(rp_commit_post(p, &attr), -EINVAL, "wraps");
	attr.then.addr = 8;
	attr.then.key = 1;
	cr_assert_eq(rp_commit_post(p, &attr), -EKEYREJECTED);
	attr.then.key = rp_key_make(&(struct rp_key){.base = 1});
	cr_assert_eq(rp_commit_post(p, &attr), -ENOTSUP);
	cr_assert_eq(rp_initiator_outstanding(g.in), 0);
	rig_none(&g);
	/* Of a notification that place says nothing. */
	attr.effect = RP_EFFECT_NOTIFY;
	attr.then = (struct rp_wire_then){0, 1, 0};
	attr.arg = &c0;
	cr_assert_eq(rp_commit_post(p, &attr), 0);
	rig_end(&g);
}

/* Not before every write is known to be there, whatever the base orders. */
static void waits_for_writes(bool ordered)
{
	struct rig_session s;
	uint64_t t;

	start(ordered);
	s = open_session(4);
	/* Anywhere: the place of the store may be meant. */
	rp_write_begin(p, &w0, rig_key(5), 0, 64);
	then(&c0, 64);
	rig_progress(&g);
	rig_none(&g);
	rp_write_done(&w0, 0);
	rig_progress(&g);
	t = asked(RP_EFFECT_THEN, 1);
	rig_not_told(&c0);
	rig_ok(&g, &s, t);
	rig_told_once(&c0, RP_ST_OK);

	rp_write_begin(p, &w0, rig_key(1), 256, 8);
	notify(&c0);
	rig_progress(&g);
	rig_none(&g);
	rp_write_done(&w0, 0);
	rig_progress(&g);
	rig_ok(&g, &s, asked(RP_EFFECT_NOTIFY, 2));
	rig_told_once(&c0, RP_ST_OK);

	/* And never when one of them was lost. */
	rp_write_begin(p, &w0, rig_key(1), 256, 8);
	then(&c0, 64);
	rp_write_done(&w0, EIO);
	rig_progress(&g);
	rig_none(&g);
	rig_told_once(&c0, RP_ST_WRITE_FAILED);
	rig_end(&g);
}

Test(effects, wait_for_writes)
{
	waits_for_writes(true);
	waits_for_writes(false);
}

/* The last request has it, after all others were answered. */
Test(effects, behind_many_ranges)
{
	static const size_t counts[] = {1, 167, 168, 169, 335, 336, 400};
	static struct rp_wire_range r[400];
	struct rig_session s;
	uint64_t seq = 0;

	start(true);
	s = open_session(4);
	for (size_t i = 0; i < 400; i++)
		r[i] = rig_range(1, i * 64, 32);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		size_t n = counts[i], got = 0, plain;
		uint64_t tokens[4];

		cr_assert_eq(post(&c0, r, n, RP_EFFECT_THEN, 8), 0);
		for (plain = 0; g.nout; plain++) {
			struct rig_msg *m = rig_take(&g, RP_MSG_REQUEST);
			struct rp_wire_request q = rig_as_request(m);

			tokens[plain] = m->hdr.token;
			for (size_t k = 0; k < q.nranges; k++)
				cr_assert_eq(q.ranges[k].addr, 64 * got++);
			free(m);
			if (!q.effect)
				continue;
			cr_assert_eq(plain, 0, "together with others");
			break;
		}
		if (n > 167) {
			cr_assert_geq(plain, 1);
			cr_assert_lt(got, n, "nothing is left for the store");
			while (plain--) {
				rig_none(&g);
				rig_ok(&g, &s, tokens[plain]);
			}
			struct rig_msg *m = rig_take(&g, RP_MSG_REQUEST);
			struct rp_wire_request q = rig_as_request(m);

			tokens[0] = m->hdr.token;
			free(m);
			cr_assert_eq(q.effect, RP_EFFECT_THEN);
			cr_assert_eq(q.seq, ++seq);
			for (size_t k = 0; k < q.nranges; k++)
				cr_assert_eq(q.ranges[k].addr, 64 * got++);
		} else {
			seq++;
		}
		cr_assert_eq(got, n);
		rig_not_told(&c0);
		rig_ok(&g, &s, tokens[0]);
		rig_told_once(&c0, RP_ST_OK);
	}
	/* One of the others fails: it is never asked for. */
	cr_assert_eq(post(&c0, r, 400, RP_EFFECT_THEN, 8), 0);
	rig_refuse(&g, &s, rig_requested(&g, &s), RP_ST_FLUSH_FAILED);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c0, RP_ST_FLUSH_FAILED);
	rig_none(&g);
	rig_end(&g);
}

/* Which of the ranges, or the store, was at fault. */
Test(effects, fault_of_the_store)
{
	static struct rp_wire_range r[200];
	struct rp_wire_reply m = {.status = RP_ST_ALIGN, .range = 32};
	struct rig_session s;

	start(true);
	s = open_session(4);
	for (size_t i = 0; i < 200; i++)
		r[i] = rig_range(1, i * 64, 32);
	cr_assert_eq(post(&c0, r, 200, RP_EFFECT_THEN, 8), 0);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_reply(&g, &s, rig_requested(&g, &s), &m);
	rig_told_once(&c0, RP_ST_ALIGN);
	cr_assert_eq(c0.out.range, 200);
	/* There is no such range, and no store. */
	cr_assert_eq(post(&c0, r, 1, RP_EFFECT_NOTIFY, 8), 0);
	m.range = 1;
	rig_reply(&g, &s, rig_requested(&g, &s), &m);
	cr_assert_eq(c0.out.range, 0);
	rig_end(&g);
}

/* Late answers: the very same again, until there is one. */
Test(effects, sent_again_as_it_was)
{
	struct rig_session s;
	struct rig_msg *m;
	uint64_t t;

	start(true);
	s = open_session(4);
	then(&c0, 64);
	t = asked(RP_EFFECT_THEN, 1);
	rig_pass(&g, RIG_TIMEOUT / 2);
	m = rig_take(&g, RP_MSG_HELLO);
	free(m);
	cr_assert_eq(asked(RP_EFFECT_THEN, 1), t);
	rig_ok(&g, &s, t);
	rig_told_once(&c0, RP_ST_OK);
	rig_ok(&g, &s, t);
	rig_told_once(&c0, RP_ST_OK);
	then(&c0, 64);
	rig_ok(&g, &s, asked(RP_EFFECT_THEN, 2));
	rig_told_once(&c0, RP_ST_OK);
	rig_end(&g);
}

/* A session that the target has dropped: what was sent is not sent again. */
Test(effects, session_lost)
{
	struct rig_session s;

	start(true);
	s = open_session(1);
	notify(&c0);
	notify(&c1);
	asked(RP_EFFECT_NOTIFY, 1);
	rig_none(&g);
	rig_refuse(&g, &s, 0, RP_ST_NO_SESSION);
	rig_told_once(&c0, RP_ST_UNSURE);
	cr_assert_eq(c0.out.detail, RP_ST_NO_SESSION);
	cr_assert_eq(c0.out.range, 0);
	rig_not_told(&c1);
	s = rig_open(&g, RIG_LIFE, 4);
	rig_ok(&g, &s, asked(RP_EFFECT_NOTIFY, 1));
	rig_told_once(&c1, RP_ST_OK);
	rig_none(&g);
	rig_end(&g);
}

/* The target has another cookie for us: it has restarted, or forgot. */
Test(effects, session_replaced)
{
	struct rig_session s;
	struct rig_msg *m;

	start(true);
	s = open_session(1);
	notify(&c0);
	asked(RP_EFFECT_NOTIFY, 1);
	then(&c1, 64);
	rig_commit(&g, p, &c2, 1, 0, 8);
	rig_pass(&g, RIG_TIMEOUT / 2);
	m = rig_take(&g, RP_MSG_HELLO);
	asked(RP_EFFECT_NOTIFY, 1);
	s.cookie++;
	s.incarnation = RIG_LIFE2;
	s.credits = 4;
	rig_hello_ack(&g, m, &s, RP_ST_OK);
	free(m);
	rig_told_once(&c0, RP_ST_UNSURE);
	rig_not_told(&c1);
	rig_ok(&g, &s, asked(RP_EFFECT_THEN, 1));
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_OK);
	rig_told_once(&c2, RP_ST_OK);
	rig_end(&g);
}

/* Nobody answers: it may be done yet. What was not sent certainly is not. */
Test(effects, silence)
{
	start(true);
	open_session(1);
	notify(&c0);
	notify(&c1);
	rig_commit(&g, p, &c2, 1, 0, 8);
	rig_sleep(&g, RIG_TIMEOUT + RIG_MS);
	rig_told_once(&c0, RP_ST_UNSURE);
	cr_assert_eq(c0.out.detail, RP_ST_TIMEOUT);
	cr_assert_eq(c0.out.range, 0);
	rig_told_once(&c1, RP_ST_TIMEOUT);
	cr_assert_eq(c1.out.range, 0);
	rig_told_once(&c2, RP_ST_TIMEOUT);
	rig_end(&g);
}

Test(effects, canceled)
{
	start(true);
	open_session(4);
	then(&c0, 64);
	asked(RP_EFFECT_THEN, 1);
	then(&c1, 64);
	rp_peer_forget(g.in, RIG_PEER);
	rig_told_once(&c0, RP_ST_CANCELED);
	rig_told_once(&c1, RP_ST_CANCELED);
	p = rig_peer(&g);
	then(&c0, 128);
	rp_initiator_shut(g.in);
	rig_told_once(&c0, RP_ST_CANCELED);
	rig_end(&g);
}

/* "Not now" says that nothing was looked at, of the copy that it answers. */
Test(effects, overloaded)
{
	struct rig_session s;
	struct rig_msg *m;
	uint64_t t;

	start(true);
	s = open_session(4);
	then(&c0, 64);
	t = asked(RP_EFFECT_THEN, 1);
	rig_refuse(&g, &s, t, RP_ST_OVERLOADED);
	rig_none(&g);
	rig_pass(&g, 3 * RIG_MS);
	cr_assert_eq(asked(RP_EFFECT_THEN, 1), t, "as it was");
	rig_refuse(&g, &s, t, RP_ST_OVERLOADED);
	/* So it is as good as never sent. */
	rig_refuse(&g, &s, 0, RP_ST_NO_SESSION);
	rig_not_told(&c0);
	rig_pass(&g, 3 * RIG_MS);
	s = rig_open(&g, RIG_LIFE, 4);
	t = asked(RP_EFFECT_THEN, 1);
	/* Of two copies one may be under way yet. */
	rig_pass(&g, RIG_TIMEOUT / 2);
	m = rig_take(&g, RP_MSG_HELLO);
	free(m);
	asked(RP_EFFECT_THEN, 1);
	rig_refuse(&g, &s, t, RP_ST_OVERLOADED);
	rig_refuse(&g, &s, 0, RP_ST_NO_SESSION);
	rig_told_once(&c0, RP_ST_UNSURE);
	rig_end(&g);
}

/* A target that knows no effects has nothing to misunderstand. */
Test(effects, old_target)
{
	struct rig_session s = {
		.cookie = 77,
		.incarnation = RIG_LIFE,
		.credits = 4,
		.without = RP_FEATURES,
	};
	struct rig_msg *m;

	start(true);
	then(&c0, 64);
	rig_commit(&g, p, &c1, 1, 0, 8);
	notify(&c2);
	m = rig_take(&g, RP_MSG_HELLO);
	rig_hello_ack(&g, m, &s, RP_ST_OK);
	free(m);
	rig_told_once(&c0, RP_ST_UNSUPPORTED);
	cr_assert_eq(c0.out.detail, 0);
	cr_assert_eq(c0.out.range, 0);
	rig_progress(&g);
	rig_told_once(&c2, RP_ST_UNSUPPORTED);
	rig_ok(&g, &s, asked(RP_EFFECT_NONE, 0));
	rig_told_once(&c1, RP_ST_OK);
	rig_none(&g);
	rig_end(&g);
}

/* The oldest without an answer holds up those that would take its place. */
Test(effects, window)
{
	struct rig_session s;
	uint64_t t[4];

	start(true);
	s = open_session(2);
	notify(&c0);
	notify(&c1);
	notify(&c2);
	rig_commit(&g, p, &c3, 1, 0, 8);
	t[0] = asked(RP_EFFECT_NOTIFY, 1);
	t[1] = asked(RP_EFFECT_NOTIFY, 2);
	rig_ok(&g, &s, t[1]);
	rig_told_once(&c1, RP_ST_OK);
	rig_none(&g);
	rig_progress(&g);
	rig_ok(&g, &s, t[0]);
	rig_told_once(&c0, RP_ST_OK);
	rig_ok(&g, &s, asked(RP_EFFECT_NOTIFY, 3));
	rig_ok(&g, &s, asked(RP_EFFECT_NONE, 0));
	rig_told_once(&c2, RP_ST_OK);
	rig_told_once(&c3, RP_ST_OK);
	rig_end(&g);
}

/* What has no effect, or its number already, does not wait for it. */
Test(effects, window_is_for_new_ones)
{
	struct rig_session s;
	uint64_t t[2];

	start(true);
	s = open_session(2);
	notify(&c0);
	notify(&c1);
	t[0] = asked(RP_EFFECT_NOTIFY, 1);
	t[1] = asked(RP_EFFECT_NOTIFY, 2);
	rig_ok(&g, &s, t[1]);
	rig_commit(&g, p, &c3, 1, 0, 8);
	rig_ok(&g, &s, asked(RP_EFFECT_NONE, 0));
	rig_told_once(&c3, RP_ST_OK);
	rig_refuse(&g, &s, t[0], RP_ST_OVERLOADED);
	rig_pass(&g, 3 * RIG_MS);
	rig_ok(&g, &s, asked(RP_EFFECT_NOTIFY, 1));
	rig_told_once(&c0, RP_ST_OK);
	rig_end(&g);
}

/* However many credits there are, and whatever they become. */
Test(effects, window_is_bounded)
{
	struct rp_initiator_attr attr = rig_attr();
	static struct rig_told t[RP_WIRE_EFFECTS + 2];
	struct rig_session s;
	uint64_t token = 0;

	attr.max_commits = 200;
	rig_start(&g, &attr);
	p = rig_peer(&g);
	s = open_session(1000);
	for (int i = 0; i < RP_WIRE_EFFECTS + 2; i++)
		notify(&t[i]);
	for (int i = 0; i < RP_WIRE_EFFECTS; i++)
		token = asked(RP_EFFECT_NOTIFY, i + 1);
	rig_none(&g);
	rig_ok(&g, &s, token);
	rig_none(&g);
	rig_end(&g);
}

/* A later commit covers the store: it waits for it, and fails with it. */
Test(effects, store_is_covered)
{
	struct rig_session s;
	uint64_t t, q;

	start(true);
	s = open_session(8);
	then(&c0, 64);
	t = asked(RP_EFFECT_THEN, 1);
	rig_commit(&g, p, &c1, 9, 64, 1);
	rig_commit(&g, p, &c2, 9, 72, 8);
	q = rig_requested(&g, &s);
	rig_ok(&g, &s, q);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_not_told(&c1);
	rig_ok(&g, &s, t);
	rig_told_once(&c0, RP_ST_OK);
	rig_told_once(&c1, RP_ST_OK);
	rig_told_once(&c2, RP_ST_OK);

	then(&c0, 64);
	t = asked(RP_EFFECT_THEN, 2);
	rig_commit(&g, p, &c1, 9, 71, 1);
	rig_commit(&g, p, &c2, 9, 72, 8);
	rig_refuse(&g, &s, t, RP_ST_FLUSH_FAILED);
	rig_told_once(&c0, RP_ST_FLUSH_FAILED);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c2, RP_ST_OK);
	/* From then on, until something is written there. */
	rig_commit(&g, p, &c1, 9, 71, 1);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	then(&c0, 64);
	rig_ok(&g, &s, asked(RP_EFFECT_THEN, 3));
	rig_told_once(&c0, RP_ST_OK);
	rig_commit(&g, p, &c1, 9, 71, 1);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_OK);
	rig_end(&g);
}

/* It does not cover its own store: that is not there yet. */
Test(effects, own_store_is_not_covered)
{
	const struct rp_wire_range r = rig_range(9, 0, 4096);
	struct rig_session s;

	start(true);
	s = open_session(8);
	cr_assert_eq(post(&c0, &r, 1, RP_EFFECT_THEN, 64), 0);
	rig_ok(&g, &s, asked(RP_EFFECT_THEN, 1));
	rig_told_once(&c0, RP_ST_OK);
	/* Poisoned bytes: it does not replace them in time either. */
	rp_write_begin(p, &w0, rig_key(9), 64, 8);
	rp_write_done(&w0, EIO);
	cr_assert_eq(post(&c0, &r, 1, RP_EFFECT_THEN, 64), 0);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_WRITE_FAILED);
	rig_none(&g);
	rig_end(&g);
}

/* Each stores where the other has its range: nobody waits for ever. */
Test(effects, crossed)
{
	const struct rp_wire_range a = rig_range(9, 0, 8);
	const struct rp_wire_range b = rig_range(9, 64, 8);
	struct rig_session s;
	uint64_t t;

	start(true);
	s = open_session(8);
	cr_assert_eq(post(&c0, &a, 1, RP_EFFECT_THEN, 64), 0);
	cr_assert_eq(post(&c1, &b, 1, RP_EFFECT_THEN, 0), 0);
	cr_assert_eq(post(&c2, &a, 1, RP_EFFECT_THEN, 64), 0);
	t = asked(RP_EFFECT_THEN, 1);
	rig_none(&g);
	/* What waited goes at once. */
	rig_ok(&g, &s, t);
	t = asked(RP_EFFECT_THEN, 2);
	rig_none(&g);
	rig_ok(&g, &s, t);
	rig_ok(&g, &s, asked(RP_EFFECT_THEN, 3));
	rig_told_once(&c0, RP_ST_OK);
	rig_told_once(&c1, RP_ST_OK);
	rig_told_once(&c2, RP_ST_OK);
	/* And all of a chain fail when the first does. */
	cr_assert_eq(post(&c0, &a, 1, RP_EFFECT_THEN, 64), 0);
	cr_assert_eq(post(&c1, &b, 1, RP_EFFECT_THEN, 0), 0);
	cr_assert_eq(post(&c2, &a, 1, RP_EFFECT_THEN, 64), 0);
	rig_refuse(&g, &s, asked(RP_EFFECT_THEN, 4), RP_ST_FLUSH_FAILED);
	rig_told_once(&c0, RP_ST_FLUSH_FAILED);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	rig_told_once(&c2, RP_ST_WRITE_FAILED);
	rig_none(&g);
	rig_end(&g);
}

/* What the data path has to ask before it touches such a place. */
Test(effects, overlaps)
{
	struct rig_session s;

	start(true);
	s = open_session(8);
	cr_assert_not(rp_peer_store_overlaps(p, rig_key(9), 64, 8));
	then(&c0, 64);
	cr_assert(rp_peer_store_overlaps(p, rig_key(9), 64, 8));
	cr_assert(rp_peer_store_overlaps(p, rig_key(9), 71, 1));
	cr_assert(rp_peer_store_overlaps(p, rig_key(9), 0, 65));
	cr_assert_not(rp_peer_store_overlaps(p, rig_key(9), 0, 64));
	cr_assert_not(rp_peer_store_overlaps(p, rig_key(9), 72, 64));
	cr_assert_not(rp_peer_store_overlaps(p, rig_key(1), 64, 8));
	rig_ok(&g, &s, asked(RP_EFFECT_THEN, 1));
	cr_assert_not(rp_peer_store_overlaps(p, rig_key(9), 64, 8));
	then(&c0, 64);
	rig_refuse(&g, &s, asked(RP_EFFECT_THEN, 2), RP_ST_RANGE);
	cr_assert_not(rp_peer_store_overlaps(p, rig_key(9), 64, 8));
	rig_end(&g);
}
