// SPDX-License-Identifier: BSD-2-Clause
/* Requests to the agent over a connection of our own, and what must not be
 * stored while one that is lost may still bring bytes. */
#include <errno.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#include "link_rig.h"

static struct rig_told c1;
static struct rp_linked l0, l1;

TestSuite(link_asks, .init = set_up);

static char bytes[RP_WIRE_MAX_STORE + 1];

/* A write that asks, as an adapter does it. Returns the token. */
static uint64_t ask_for(struct rig_told *t, struct rp_linked *l, uint64_t at,
			uint64_t len, bool inside)
{
	const struct rp_wire_range r = {key_of(1), at, len};
	const struct rp_commit_attr attr = attr_of(&r, t);
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_request m;
	struct rp_link_way way;
	struct rp_wire_hdr hdr;
	struct rp_commit *c;
	int n;

	cr_assert(may(1, at, len, &way));
	cr_assert(way.asks);
	cr_assert_eq(way.stores, inside);
	cr_assert_eq(way.fence_len, 0);
	cr_assert_eq(way.at, AT + at - BASE);
	cr_assert_eq(rp_commit_reserve(p, &attr, &c), 0);
	n = rp_link_request(c, &way, inside ? bytes : NULL, buf, sizeof(buf));
	cr_assert_eq(rp_wire_get_hdr(buf, (size_t)n, &hdr), 0);
	cr_assert_eq(hdr.session, s.cookie);
	cr_assert_eq(hdr.incarnation, RIG_LIFE);
	cr_assert_eq(rp_wire_get_request(buf, &hdr, &m), 0);
	cr_assert_eq(m.level, RP_LEVEL_DURABLE);
	cr_assert_eq(m.required, RP_CLASS_POWER);
	cr_assert_eq(m.effect, inside ? RP_EFFECT_STORE : RP_EFFECT_NONE);
	cr_assert_eq(m.nranges, 1);
	cr_assert_eq(m.ranges[0].key, r.key);
	cr_assert_eq(m.ranges[0].addr, at);
	cr_assert_eq(m.ranges[0].len, len);
	if (inside)
		cr_assert_eq(memcmp(m.bytes, bytes, len), 0);
	rp_link_posted(c, &way, l);
	rig_none(&g);
	return hdr.token;
}

Test(link_asks, bytes_in_the_request)
{
	uint64_t token;

	asking(sizeof(bytes));
	memset(bytes, 7, sizeof(bytes));
	token = ask_for(&c1, &l0, BASE + 100, 5, true);
	rig_progress(&g);
	rig_not_told(&c1);
	/* It is a write under way. */
	cr_assert(rp_peer_store_overlaps(p, key_of(1), BASE + 104, 1));
	cr_assert_eq(answer(token, &yes), &l0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	cr_assert_eq(c1.out.method, RP_METHOD_AGENT_CLWB);
	cr_assert_eq(c1.out.class, RP_CLASS_POWER);
	cr_assert(!rp_peer_store_overlaps(p, key_of(1), BASE + 104, 1));
	rig_none(&g);
	rig_end(&g);
}

/* The answer stands behind the write, whichever is heard of first. */
Test(link_asks, request_behind)
{
	uint64_t token;

	asking(0);
	token = ask_for(&c1, &l0, BASE, LEN, false);
	rp_linked_written(&l0, 0);
	rig_progress(&g);
	rig_not_told(&c1);
	cr_assert_eq(answer(token, &yes), &l0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);

	token = ask_for(&c1, &l0, BASE, 64, false);
	cr_assert_eq(answer(token, &yes), &l0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	rp_linked_written(&l0, 0);
	rig_progress(&g);
	cr_assert_eq(c1.times, 1);
	cr_assert_eq(conn.hung_up, 0);
	rig_end(&g);
}

/* The agent stores what a message brings when it looks: behind later writes. */
Test(link_asks, not_over_what_is_stored)
{
	struct rp_link_way way;
	uint64_t token, second;

	asking(8);
	token = ask_for(&c1, &l0, BASE + 100, 5, true);
	cr_assert(!may(1, BASE + 104, 64, &way));
	cr_assert(!may(1, BASE + 37, 64, &way));
	cr_assert(!may(1, BASE, LEN, &way));
	cr_assert(may(1, BASE + 105, 64, &way));
	cr_assert(may(1, BASE + 36, 64, &way));
	/* In their order, if that is a message too. */
	cr_assert(may(1, BASE + 104, 8, &way));
	cr_assert(way.stores);
	/* Behind a write it stays behind. */
	second = ask_for(&c0, &l1, BASE + 200, 64, false);
	cr_assert(may(1, BASE + 200, 64, &way));
	rp_linked_written(&l1, 0);
	cr_assert_eq(answer(token, &yes), &l0);
	cr_assert(may(1, BASE + 104, 64, &way));
	cr_assert_eq(answer(second, &yes), &l1);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	rig_end(&g);
}

Test(link_asks, answers_of_nobody)
{
	struct rp_wire_hdr hdr;
	uint64_t token;

	asking(sizeof(bytes));
	token = ask_for(&c1, &l0, BASE, 64, true);
	cr_assert_null(answer(token + 1, &yes));
	cr_assert_null(answer(0, &yes));
	hdr = hdr_of(token);
	hdr.session++;
	cr_assert_null(answer_as(hdr, &yes));
	hdr = hdr_of(token);
	hdr.incarnation = RIG_LIFE2;
	cr_assert_null(answer_as(hdr, &yes));
	cr_assert_null(rp_linked_answered(p, bytes, sizeof(bytes)));
	rig_progress(&g);
	rig_not_told(&c1);
	cr_assert_eq(answer(token, &yes), &l0);
	cr_assert_null(answer(token, &yes));
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	/* What fences has no token, and takes no answer. */
	rig_end(&g);
}

/* A no is the end of it, and nothing of it comes later. */
Test(link_asks, answers_that_say_no)
{
	struct rp_wire_reply m = {.status = RP_ST_STALE_KEY, .credits = 1000};
	struct rp_link_way way;
	struct rp_write w;
	uint64_t token;

	asking(sizeof(bytes));
	token = ask_for(&c1, &l0, BASE, 64, true);
	cr_assert_eq(answer(token, &m), &l0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_STALE_KEY);
	cr_assert(!may(1, BASE, 64, &way));
	rp_write_begin(p, &w, key_of(1), BASE, 64);
	rp_write_done(&w, 0);
	commit_answered(&c1, 1);
	/* Less than was asked for is no yes. */
	token = ask_for(&c1, &l0, BASE, 64, true);
	m = yes;
	m.class = RP_CLASS_PROCESS;
	cr_assert_eq(answer(token, &m), &l0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_CLASS);
	token = ask_for(&c1, &l0, BASE + 64, 64, true);
	m = yes;
	m.level = RP_LEVEL_VISIBLE;
	m.class = RP_CLASS_NONE;
	cr_assert_eq(answer(token, &m), &l0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_CLASS);
	cr_assert_eq(conn.hung_up, 0);
	rig_end(&g);
}

Test(link_asks, as_many_as_the_target_has_room_for)
{
	static struct rp_linked l[RP_WIRE_LINKED];
	static struct rig_told t[RP_WIRE_LINKED];
	uint64_t token[RP_WIRE_LINKED];
	struct rp_link_way way;

	asking(sizeof(bytes));
	for (unsigned int i = 0; i < RP_WIRE_LINKED; i++)
		token[i] = ask_for(&t[i], &l[i], BASE + 64 * i, 64, true);
	cr_assert(!may(1, BASE + 8192, 64, &way));
	cr_assert_eq(answer(token[3], &yes), &l[3]);
	rig_progress(&g);
	rig_told_once(&t[3], RP_ST_OK);
	cr_assert(may(1, BASE + 8192, 64, &way));
	/* Its end fails all, and the next has room again. */
	rp_link_broken(p);
	rig_progress(&g);
	for (unsigned int i = 0; i < RP_WIRE_LINKED; i++)
		if (i != 3)
			rig_told_once(&t[i], RP_ST_WRITE_FAILED);
	offer(&(struct rp_wire_connect){.id = 2, .key = key_of(1)}, RP_ST_OK,
	      RIG_LIFE);
	asked();
	rp_link_up(p);
	for (unsigned int i = 0; i < RP_WIRE_LINKED; i++)
		token[i] =
			ask_for(&t[i], &l[i], BASE + 8192 + 64 * i, 64, true);
	for (unsigned int i = 0; i < RP_WIRE_LINKED; i++)
		cr_assert_eq(answer(token[i], &yes), &l[i]);
	rig_progress(&g);
	rig_end(&g);
}

/* Without an answer nobody knows, before the connection is gone there. */
Test(link_asks, no_answer)
{
	struct rp_wire_connect c;
	struct rp_link_way way;
	struct rp_write w;

	without = 0;
	asking(sizeof(bytes));
	ask_for(&c1, &l0, BASE, 64, true);
	rp_link_broken(p);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	c = asked();
	rp_write_begin(p, &w, key_of(1), BASE, 64);
	rp_write_done(&w, 0);
	commit(&c1, 1, BASE, 64);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	offer(&c, RP_ST_OK, RIG_LIFE);
	rp_link_up(p);
	cr_assert(!may(1, BASE, 64, &way));
	rp_write_begin(p, &w, key_of(1), BASE, 64);
	rp_write_done(&w, 0);
	cr_assert(may(1, BASE, 64, &way));
	rig_end(&g);
}

/* An inline store over the base is as good until there is a connection. */
Test(link_asks, stores_meanwhile)
{
	struct rp_initiator_attr attr = rig_attr();
	struct rp_commit_attr how = {
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
		.effect = RP_EFFECT_STORE,
		.bytes = bytes,
		.done = rig_done,
		.arg = &c1,
	};
	struct rp_wire_range r;
	struct rp_link_way way;
	struct rp_wire_connect c;

	method = RP_METHOD_AGENT_CLWB;
	attr.links = true;
	attr.store_max = 100;
	start_as(attr);
	c = asked();
	cr_assert(may_store());
	offer(&c, RP_ST_OK, RIG_LIFE);
	rp_link_up(p);
	rp_link_broken(p);
	rig_pass(&g, 1000 * RIG_MS);
	/* It asks for one, too, and makes nothing wait for the agent. */
	r = (struct rp_wire_range){key_of(1), BASE, 64};
	how.ranges = &r;
	c1 = (struct rig_told){0};
	cr_assert_eq(rp_commit_post(p, &how), 0);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	c = asked();
	offer(&c, RP_ST_OK, RIG_LIFE);
	rp_link_up(p);
	cr_assert(may(1, BASE, 64, &way));
	rig_end(&g);
}

/* --- what may still come --- */

static struct rig_told stored_behind(uint64_t at)
{
	const struct rp_wire_range r = {key_of(1), BASE + 4096, 64};
	struct rig_told t = {0};
	const struct rp_commit_attr how = {
		.ranges = &r,
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
		.effect = RP_EFFECT_THEN,
		.then = {.key = key_of(1), .addr = at, .value = 1},
		.done = rig_done,
		.arg = &t,
	};

	cr_assert_eq(rp_commit_post(p, &how), 0);
	rig_progress(&g);
	if (!t.times) {
		rig_ok(&g, &s, rig_requested(&g, &s));
		rig_progress(&g);
	}
	cr_assert_eq(t.times, 1);
	return t;
}

/* Nothing is stored to bytes that a connection which is lost may still write.
 */
Test(link_asks, nothing_is_stored_over_doubt)
{
	struct rp_wire_connect c;
	struct rp_link_way way;
	struct rp_write w;
	struct rig_told t;

	without = 0;
	asking(sizeof(bytes));
	ask_for(&c1, &l0, BASE, 64, true);
	rp_link_broken(p);
	c = asked();
	/* Its end is not even told yet. */
	cr_assert(!may_store());
	cr_assert(rp_peer_may_store(p, key_of(1), BASE + 64, 64));
	t = stored_behind(BASE + 56);
	cr_assert_eq(t.out.status, RP_ST_WRITE_FAILED);
	cr_assert_eq(t.out.range, 1);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	cr_assert(!may_store());
	t = stored_behind(BASE);
	cr_assert_eq(t.out.status, RP_ST_WRITE_FAILED);
	t = stored_behind(BASE + 64);
	cr_assert_eq(t.out.status, RP_ST_OK);
	/* Gone there, it cannot come any more. */
	offer(&c, RP_ST_OK, RIG_LIFE);
	rp_link_up(p);
	cr_assert(may_store());
	t = stored_behind(BASE);
	cr_assert_eq(t.out.status, RP_ST_OK);
	cr_assert(!may(1, BASE, 64, &way));
	rp_write_begin(p, &w, key_of(1), BASE, 64);
	rp_write_done(&w, 0);
	cr_assert(may(1, BASE, 64, &way));
	rig_end(&g);
}
