// SPDX-License-Identifier: BSD-2-Clause
/* Writes in messages over a connection of our own, and commits behind them. */
#include <errno.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#include "link_rig.h"

#define MANY 4

static struct rig_told c1, placed;
static struct rp_linked l0, l1;
static struct rp_write w[MANY];
static struct rp_write *ws[MANY];
static struct rp_wire_range r[MANY];

TestSuite(link_gather, .init = set_up);

static void gathering(void)
{
	without = 0;
	asking(4096);
}

/* n writes of 64 bytes, 256 apart. */
static void gather(size_t n)
{
	for (size_t i = 0; i < n; i++) {
		r[i] = (struct rp_wire_range){key_of(1), BASE + 256 * i, 64};
		ws[i] = &w[i];
		cr_assert(rp_link_may_gather(p, r[i].key, r[i].addr, 64));
		rp_link_gather(p, &w[i], r[i].key, r[i].addr, 64);
	}
}

/* A reserved commit becomes a message over the connection. Its token. */
static uint64_t go(struct rp_commit *c, struct rp_link_way *way,
		   const void *bytes, struct rp_linked *l)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_request m;
	struct rp_wire_hdr hdr;
	int n = rp_link_request(c, way, bytes, buf, sizeof(buf));

	cr_assert_eq(rp_wire_get_hdr(buf, (size_t)n, &hdr), 0);
	cr_assert_eq(rp_wire_get_request(buf, &hdr, &m), 0);
	cr_assert_eq(m.effect, bytes ? RP_EFFECT_STORE : RP_EFFECT_NONE);
	cr_assert_eq(m.level, bytes ? RP_LEVEL_VISIBLE : RP_LEVEL_DURABLE);
	if (bytes)
		cr_assert_eq(memcmp(m.bytes, bytes, 64 * (size_t)m.nranges), 0);
	rp_link_posted(c, way, l);
	return hdr.token;
}

/* The writes end as the adapter ends them. */
static void all_placed(void *arg, const struct rp_outcome *out)
{
	const size_t *n = arg;

	for (size_t i = 0; i < *n; i++)
		rp_write_done(&w[i], out->status);
	placed.times++;
	placed.out = *out;
}

static uint64_t send_gathered(size_t *n, struct rp_linked *l)
{
	static const char bytes[64 * MANY] = {1, 2, 3};
	const struct rp_commit_attr attr = {
		.ranges = r,
		.nranges = *n,
		.level = RP_LEVEL_VISIBLE,
		.writes = ws,
		.done = all_placed,
		.arg = n,
	};
	struct rp_link_way way;
	struct rp_commit *c;

	placed = (struct rig_told){0};
	cr_assert_eq(rp_link_may_send(p, rp_link_id(p), &way), 0);
	cr_assert_eq(rp_commit_reserve(p, &attr, &c), 0);
	return go(c, &way, bytes, l);
}

static struct rp_commit *reserved(struct rig_told *t, size_t n)
{
	struct rp_commit_attr attr = attr_of(r, t);
	struct rp_commit *c;

	attr.nranges = n;
	cr_assert_eq(rp_commit_reserve(p, &attr, &c), 0);
	return c;
}

/* Of what was gathered, over the connection. */
static uint64_t commit_behind(struct rig_told *t, size_t n, struct rp_linked *l)
{
	struct rp_commit *c = reserved(t, n);
	struct rp_link_way way;

	cr_assert(rp_link_may_commit(c, &way));
	return go(c, &way, NULL, l);
}

static const struct rp_wire_reply there = {
	.level = RP_LEVEL_VISIBLE,
	.method = RP_METHOD_DELIVERY,
	.credits = 1000,
};

Test(link_gather, one_commit_of_many)
{
	uint64_t t0, t1;
	size_t n = MANY;

	gathering();
	gather(n);
	t0 = send_gathered(&n, &l0);
	t1 = commit_behind(&c1, n, &l1);
	rig_progress(&g);
	rig_none(&g);
	cr_assert(rp_peer_store_overlaps(p, r[3].key, r[3].addr + 63, 1));
	cr_assert(!rp_peer_store_overlaps(p, r[3].key, r[3].addr + 64, 1));
	/* Both have to come back. */
	cr_assert_eq(answer(t0, &there), &l0);
	rig_progress(&g);
	rig_told_once(&placed, RP_ST_OK);
	rig_not_told(&c1);
	cr_assert(!rp_peer_store_overlaps(p, r[3].key, r[3].addr, 64));
	cr_assert_eq(answer(t1, &yes), &l1);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	cr_assert_eq(c1.out.method, RP_METHOD_AGENT_CLWB);
	cr_assert_eq(c1.out.class, RP_CLASS_POWER);

	gather(n);
	t0 = send_gathered(&n, &l0);
	t1 = commit_behind(&c1, n, &l1);
	cr_assert_eq(answer(t1, &yes), &l1);
	rig_progress(&g);
	rig_not_told(&c1);
	cr_assert_eq(answer(t0, &there), &l0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	rig_none(&g);
	rig_end(&g);
}

/* They wait for no commit: one that has taken the last place waits for them. */
Test(link_gather, beside_all_commits)
{
	struct rp_initiator_attr attr = rig_attr();
	size_t n = 2;
	uint64_t token;

	method = RP_METHOD_AGENT_CLWB;
	without = 0;
	attr.links = true;
	attr.max_commits = 1;
	start_as(attr);
	connected();
	gather(n);
	commit(&c1, 1, BASE, 64);
	token = send_gathered(&n, &l0);
	answer(token, &there);
	rig_progress(&g);
	rig_told_once(&placed, RP_ST_OK);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	gather(n);
	token = send_gathered(&n, &l0);
	commit_behind(&c1, n, &l1);
	answer(token, &there);
	rig_progress(&g);
	rp_initiator_shut(g.in);
	rig_told_once(&c1, RP_ST_CANCELED);
	rig_end(&g);
}

/* A request over the base would overtake them: it waits. */
Test(link_gather, other_commits_wait)
{
	size_t n = MANY;
	uint64_t token;

	gathering();
	gather(n);
	commit(&c1, 1, BASE, 64);
	rig_progress(&g);
	rig_none(&g);
	token = send_gathered(&n, &l0);
	rig_progress(&g);
	rig_none(&g);
	answer(token, &there);
	rig_progress(&g);
	rig_told_once(&placed, RP_ST_OK);
	rig_not_told(&c1);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	rig_end(&g);
}

/* Nobody knows what was placed; what only asked is asked another way. */
Test(link_gather, connection_lost)
{
	struct rp_wire_connect c;
	struct rp_write again;
	struct rp_link_way way;
	size_t n = 2;
	uint64_t id;

	gathering();
	gather(n);
	send_gathered(&n, &l0);
	commit_behind(&c1, n, &l1);
	id = rp_link_id(p);
	rp_link_broken(p);
	rig_progress(&g);
	rig_told_once(&placed, RP_ST_WRITE_FAILED);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	c = asked();
	/* Not cured while it may still come. */
	rp_write_begin(p, &again, r[0].key, r[0].addr, 64);
	rp_write_done(&again, 0);
	commit(&c1, 1, BASE, 64);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	/* What was gathered for it never goes over another. */
	cr_assert_eq(rp_link_may_send(p, id, &way), -ENOTCONN);
	offer(&c, RP_ST_OK, RIG_LIFE);
	rp_link_up(p);
	cr_assert_eq(rp_link_may_send(p, id, &way), -ENOTCONN);
	cr_assert_eq(rp_link_may_send(p, id + 1, &way), 0);
	cr_assert(!rp_link_may_gather(p, r[0].key, r[0].addr, 64));
	rp_write_begin(p, &again, r[0].key, r[0].addr, 64);
	rp_write_done(&again, 0);
	cr_assert(rp_link_may_gather(p, r[0].key, r[0].addr, 64));
	rig_end(&g);
}

Test(link_gather, commit_asked_again)
{
	struct rp_wire_request q;
	struct rig_msg *m;
	size_t n = 3;
	uint64_t token;

	gathering();
	gather(n);
	token = send_gathered(&n, &l0);
	commit_behind(&c1, n, &l1);
	answer(token, &there);
	rig_progress(&g);
	rp_link_broken(p);
	rig_progress(&g);
	rig_not_told(&c1);
	m = rig_take(&g, RP_MSG_REQUEST);
	q = rig_as_request(m);
	cr_assert_eq(q.nranges, n);
	cr_assert_eq(q.ranges[2].addr, r[2].addr);
	rig_ok(&g, &s, m->hdr.token);
	free(m);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	rig_end(&g);
}

/* Though what it covers has been answered for, and not told yet. */
Test(link_gather, commit_asked_again_at_once)
{
	size_t n = 1;
	uint64_t t0;

	gathering();
	gather(n);
	t0 = send_gathered(&n, &l0);
	commit_behind(&c1, n, &l1);
	answer(t0, &there);
	rp_link_broken(p);
	rig_progress(&g);
	rig_told_once(&placed, RP_ST_OK);
	rig_not_told(&c1);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	rig_end(&g);
}

/* A no is definite: written again it is cured. */
Test(link_gather, refused)
{
	const struct rp_wire_reply no = {.status = RP_ST_RANGE};
	struct rp_write again;
	size_t n = 2;
	uint64_t token;

	gathering();
	gather(n);
	token = send_gathered(&n, &l0);
	cr_assert_eq(answer(token, &no), &l0);
	rig_progress(&g);
	rig_told_once(&placed, RP_ST_RANGE);
	commit(&c1, 1, r[1].addr, 64);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	rp_write_begin(p, &again, r[0].key, r[0].addr, 64);
	rp_write_done(&again, 0);
	commit_answered(&c1, 1);
	rig_end(&g);
}

/* Which commits go another way. */
Test(link_gather, not_those)
{
	struct rp_link_way way;
	struct rp_write other;
	struct rp_commit *c;
	uint64_t token;
	size_t n = 2;

	gathering();
	gather(n);
	token = send_gathered(&n, &l0);
	answer(token, &there);
	rig_progress(&g);
	c = reserved(&c1, n);
	cr_assert(rp_link_may_commit(c, &way));
	/* Beside a write that has another route, wherever that goes. */
	rp_write_begin(p, &other, key_of(1), BASE + 8192, 64);
	cr_assert(!rp_link_may_commit(c, &way));
	rp_write_done(&other, 0);
	cr_assert(rp_link_may_commit(c, &way));
	rp_commit_unreserve(c);
	r[1].key = key_of(2);
	c = reserved(&c1, n);
	cr_assert(!rp_link_may_commit(c, &way));
	asked();
	rp_commit_unreserve(c);
	r[1] = (struct rp_wire_range){key_of(1), BASE + LEN - 1, 2};
	c = reserved(&c1, n);
	cr_assert(!rp_link_may_commit(c, &way));
	rp_commit_unreserve(c);
	/* Of bytes that are poisoned, also behind some that are not. */
	r[1] = (struct rp_wire_range){key_of(1), BASE + 8192, 64};
	rp_write_begin(p, &other, key_of(1), BASE + 8255, 64);
	rp_write_done(&other, EIO);
	c = reserved(&c1, n);
	cr_assert(!rp_link_may_commit(c, &way));
	rp_commit_unreserve(c);
	c = reserved(&c1, 1);
	cr_assert(rp_link_may_commit(c, &way));
	rp_commit_unreserve(c);
	rig_end(&g);
}

/* Those that are not messages would be overtaken by what is in one. */
Test(link_gather, met_by_writes)
{
	struct rp_link_way way;
	uint64_t token;
	size_t n = 2;

	without = 0;
	asking(8);
	gather(n);
	token = send_gathered(&n, &l0);
	cr_assert(!may(1, r[0].addr + 63, 64, &way));
	cr_assert(!may(1, r[1].addr, 64, &way));
	cr_assert(may(1, r[0].addr + 64, 64, &way));
	answer(token, &there);
	rig_progress(&g);
	cr_assert(may(1, r[1].addr, 64, &way));
	rig_end(&g);
}

/* As many messages as there is room for; and they end with the endpoint. */
Test(link_gather, no_room)
{
	static struct rp_linked l[RP_WIRE_LINKED];
	static struct rig_told t[RP_WIRE_LINKED];
	struct rp_link_way way;
	struct rp_commit *c;

	gathering();
	gather(1);
	for (int i = 0; i < RP_WIRE_LINKED; i++) {
		r[0].addr = BASE + 64 + 64 * i;
		commit_behind(&t[i], 1, &l[i]);
	}
	cr_assert_eq(rp_link_may_send(p, rp_link_id(p), &way), -EAGAIN);
	c = reserved(&c1, 1);
	cr_assert(!rp_link_may_commit(c, &way));
	rp_commit_unreserve(c);
	rp_write_undo(&w[0]);
	cr_assert(!rp_peer_store_overlaps(p, key_of(1), BASE, 64));
	rp_initiator_shut(g.in);
	for (int i = 0; i < RP_WIRE_LINKED; i++)
		rig_told_once(&t[i], RP_ST_CANCELED);
	rig_end(&g);
}

/* With a target that has not heard of them, or may be overtaken by others. */
Test(link_gather, not_by_that)
{
	enum {
		MOST = RP_WIRE_MAX_RANGES + 32
	};
	static struct rp_wire_range many[MOST];
	struct rp_commit_attr attr;
	struct rig_msg *m;
	struct rp_link_way way;
	struct rp_write other;
	struct rp_commit *c;

	without = RP_FEATURE_GATHER;
	asking(4096);
	cr_assert(may(1, BASE, 64, &way));
	cr_assert(!rp_link_may_gather(p, key_of(1), BASE, 64));
	r[0] = (struct rp_wire_range){key_of(1), BASE, 64};
	c = reserved(&c1, 1);
	cr_assert(!rp_link_may_commit(c, &way));
	rp_commit_unreserve(c);
	rig_end(&g);

	without = RP_FEATURE_PACKED;
	asking(4096);
	for (size_t i = 0; i < MOST; i++)
		many[i] = (struct rp_wire_range){key_of(1), BASE + 8 * i, 4};
	attr = attr_of(many, &c1);
	attr.nranges = MOST;
	cr_assert_eq(rp_commit_reserve(p, &attr, &c), 0);
	cr_assert(!rp_link_may_commit(c, &way));
	rp_commit_start(c);
	for (int i = 0; i < 2; i++) {
		m = rig_take(&g, RP_MSG_REQUEST);
		cr_assert(!rig_as_request(m).packed);
		rig_ok(&g, &s, m->hdr.token);
		free(m);
	}
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	rig_end(&g);

	without = 0;
	asking(4096);
	attr = attr_of(many, &c1);
	attr.nranges = MOST;
	cr_assert_eq(rp_commit_reserve(p, &attr, &c), 0);
	cr_assert(rp_link_may_commit(c, &way));
	rp_commit_unreserve(c);
	/* Each range is looked at, though they are of one key. */
	many[MOST - 1].addr = BASE + LEN - 3;
	cr_assert_eq(rp_commit_reserve(p, &attr, &c), 0);
	cr_assert(!rp_link_may_commit(c, &way));
	rp_commit_unreserve(c);
	rig_end(&g);

	without = RP_FEATURE_PLACED;
	asking(4096);
	cr_assert(rp_link_may_gather(p, key_of(1), BASE, 64));
	rp_write_begin(p, &other, key_of(1), BASE, 64);
	cr_assert(!rp_link_may_gather(p, key_of(1), BASE, 64));
	rp_write_done(&other, 0);
	cr_assert(!rp_link_may_gather(p, key_of(1), BASE, 64));
	rig_end(&g);
}
