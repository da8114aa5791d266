// SPDX-License-Identifier: BSD-2-Clause
/* Messages of a session at the agent: malformed, too many, delayed. */
#include <criterion/criterion.h>

#include "agent_sessions.h"
#include "core/agent_priv.h"
#include "core/wire_layout.h"
#include "seeded.h"

/* --- messages that end the connection --- */

static void send_malformed(struct bed_peer *p, const void *msg, int len)
{
	uint64_t before = bed_stats(&g).bad_messages;

	bed_recv(p, msg, len);
	cr_assert_eq(bed_stats(&g).bad_messages, before + 1);
	cr_assert_eq(rp_agent_backlog(g.a), 0);
	/* Messages behind the malformed one are ignored. */
	bed_request(p, RP_LEVEL_VISIBLE, 0, 0, NULL);
	cr_assert_eq(rp_agent_deadline(g.a), 0);
	cr_assert(rp_agent_progress(g.a));
	cr_assert(p->c->closed);
	bed_expect_nothing(p);
	cr_assert_eq(g.a->nsessions, 0);
}

Test(agent_session, malformed_messages_end_the_session)
{
	const struct rp_wire_query q = {.key = 1};
	struct rp_wire_range r = {.len = 8};
	const struct rp_wire_request m = {
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.ranges = &r,
	};
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct bed_peer p;
	int len;

	start(NULL);
	r.key = file.r.key;
	len = rp_wire_put_request(buf, sizeof(buf), 1, &m);
	for (int i = 0; i < len; i++) {
		p = bed_connect(&g, &file);
		send_malformed(&p, buf, i);
	}
	/* A body that no encoder produces. */
	buf[offsetof(struct rp_le_request, level)] += 3;
	p = bed_connect(&g, &file);
	send_malformed(&p, buf, len);
	buf[offsetof(struct rp_le_request, level)] -= 3;
	/* A version other than the one that HELLO has agreed on. */
	buf[2]++;
	p = bed_connect(&g, &file);
	send_malformed(&p, buf, len);
	/* Message types that only a target may send, and HELLO. */
	len = rp_wire_put_query(buf, sizeof(buf), 1, &q);
	for (int type = 0; type < 256; type++) {
		if (type == RP_MSG_REQUEST || type == RP_MSG_QUERY)
			continue;
		buf[3] = (uint8_t)type;
		p = bed_connect(&g, &file);
		send_malformed(&p, buf, len);
	}
	buf[3] = RP_MSG_QUERY;
	buf[len - 1] = 1;
	p = bed_connect(&g, &file);
	send_malformed(&p, buf, len);
	stop();
}

/* A malformed message drops the requests that were accepted before it. */
Test(agent_session, close_drops_accepted_requests)
{
	struct bed_peer p;

	start(NULL);
	p = bed_connect(&g, &file);
	bed_commit(&p, &file, 0, 8);
	cr_assert_eq(rp_agent_backlog(g.a), 1);
	bed_recv(&p, "x", 1);
	cr_assert_eq(rp_agent_backlog(g.a), 0);
	bed_run(&g);
	cr_assert_eq(file.syncs, 0);
	bed_expect_nothing(&p);
	stop();
}

Test(agent_session, more_requests_than_credits_end_the_session)
{
	const struct rp_agent_attr attr = {
		.incarnation = BED_INCARNATION,
		.no_worker = true,
		.credits = 3,
	};
	struct bed_peer p, q;

	start(&attr);
	p = bed_connect_all(&g, all, 2);
	q = bed_connect(&g, &file);
	for (int i = 0; i < 3; i++)
		bed_commit(&p, &file, 8 * i, 8);
	bed_commit(&q, &file, 0, 8);
	cr_assert_eq(rp_agent_backlog(g.a), 4);
	/* A malformed message behind a request that does not block. */
	bed_request(&p, RP_LEVEL_VISIBLE, 0, 0, NULL);
	cr_assert_eq(bed_stats(&g).bad_messages, 1);
	bed_run(&g);
	cr_assert(p.c->closed);
	bed_expect_nothing(&p);
	bed_expect(&q, q.token, RP_ST_OK);
	/* Replies that the peer has received return their credits. */
	for (int i = 0; i < 9; i++) {
		bed_commit(&q, &file, 0, 8);
		if (i % 3 == 2)
			bed_run(&g);
	}
	cr_assert_not(q.c->closed);
	stop();
}

/* A reply that waits for room in the channel still holds its credit. */
Test(agent_session, queued_replies_hold_credits)
{
	const struct rp_agent_attr attr = {
		.incarnation = BED_INCARNATION,
		.no_worker = true,
		.credits = 3,
	};
	struct bed_peer p;

	start(&attr);
	p = bed_connect(&g, &dax);
	p.c->room = 0;
	for (int i = 0; i < 3; i++)
		bed_commit(&p, &dax, 8 * i, 8);
	cr_assert_eq(rp_agent_backlog(g.a), 3);
	bed_run(&g);
	cr_assert_not(p.c->closed);
	bed_commit(&p, &dax, 0, 8);
	bed_run(&g);
	cr_assert(p.c->closed);
	cr_assert_eq(rp_agent_backlog(g.a), 0);
	stop();
}

Test(agent_session, wrong_keys_end_the_session)
{
	struct rp_wire_range r[2] = {{.len = 8}, {.len = 8}};
	struct rp_wire_request then = {
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.effect = RP_EFFECT_THEN,
		.ranges = r,
	};
	struct bed_peer p, q;

	start(NULL);
	q = bed_connect(&g, &dax);
	p = bed_connect(&g, &file);
	send_query(&p, file.r.key ^ 1);
	wrong_key(&p, true);
	/* A key that is valid but was not granted to this connection. */
	p = bed_connect(&g, &file);
	r[0].key = file.r.key;
	r[1].key = dax.r.key;
	bed_request(&p, RP_LEVEL_DURABLE, RP_CLASS_POWER, 2, r);
	wrong_key(&p, false);
	cr_assert_eq(file.syncs + dax.flushes, 0);
	p = bed_connect(&g, &file);
	bed_request(&p, RP_LEVEL_VISIBLE, 0, 1, &r[1]);
	wrong_key(&p, false);
	p = bed_connect(&g, &file);
	then.then = (struct rp_wire_then){dax.r.key, 0, 1};
	bed_send(&p, &then);
	wrong_key(&p, false);
	cr_assert_eq(bed_stats(&g).wrong_keys, 4);
	cr_assert_eq(g.a->nsessions, 1);
	bed_expect(&q, bed_commit(&q, &dax, 0, 8), RP_ST_OK);
	stop();
}

/* Wrong keys on an open connection count for its host as well. */
Test(agent_session, host_may_not_guess_over_connections)
{
	bool at_once;

	start(NULL);
	g.source = 7;
	for (int i = 0; i <= RP_AGENT_DEBT; i++) {
		struct bed_peer p = bed_connect(&g, &file);

		send_query(&p, bed_unknown_key());
		bed_lose(&p);
	}
	cr_assert_eq(bed_stats(&g).wrong_keys, RP_AGENT_DEBT + 1);
	cr_assert_eq(show_key(file.r.key, &at_once), RP_ST_OVERLOADED);
	stop();
}

Test(agent_session, peer_closes_after_a_refusal)
{
	struct bed_peer p;

	start(NULL);
	p = bed_connect(&g, &file);
	send_query(&p, 1);
	bed_lose(&p);
	cr_assert(p.c->closed);
	cr_assert_eq(rp_agent_deadline(g.a), UINT64_MAX);
	g.now += 5000 * BED_MS;
	bed_run(&g);
	/* Delete the agent while a refusal is delayed. */
	p = bed_connect(&g, &file);
	send_query(&p, 1);
	stop();
}

/* A request with an invalid range is refused; the connection stays open. */
Test(agent_session, wrong_ranges_do_not_end_the_session)
{
	const struct rp_wire_range r = {0, 1ull << 40, 8};
	struct rp_wire_range here = r;
	struct bed_peer p;

	start(NULL);
	p = bed_connect(&g, &file);
	here.key = file.r.key;
	for (int i = 0; i < 3; i++)
		bed_expect(&p, bed_request(&p, RP_LEVEL_VISIBLE, 0, 1, &here),
			   RP_ST_RANGE);
	bed_run(&g);
	cr_assert_not(p.c->closed);
	cr_assert_eq(bed_stats(&g).wrong_keys, 0);
	stop();
}

/* --- replies that wait for room in the channel --- */

Test(agent_session, queued_replies_stay_in_order)
{
	struct bed_peer p, q;
	uint64_t t;

	start(NULL);
	p = bed_connect(&g, &dax);
	q = bed_connect(&g, &dax);
	p.c->room = 0;
	t = bed_commit(&p, &dax, 0, 8);
	send_query(&p, dax.r.key); /* longer than inject size */
	bed_commit(&p, &dax, 8, 8);
	bed_expect_nothing(&p);
	cr_assert_eq(rp_agent_backlog(g.a), 3);
	/* Replies of another session do not wait. */
	bed_expect(&q, bed_commit(&q, &dax, 0, 8), RP_ST_OK);
	bed_run(&g);
	cr_assert_eq(rp_agent_deadline(g.a), g.now + RP_AGENT_RETRY_NS);
	p.c->slow = true;
	p.c->room = 1;
	bed_run(&g);
	bed_expect(&p, t, RP_ST_OK);
	bed_expect_nothing(&p);
	p.c->room = -1;
	bed_run(&g);
	struct bed_msg m;

	cr_assert(bed_take(&p, &m));
	cr_assert_eq(m.hdr.type, RP_MSG_INFO);
	cr_assert_eq(m.hdr.token, t + 1);
	bed_expect(&p, t + 2, RP_ST_OK);
	/* The buffer of a posted reply is kept until done(). */
	cr_assert_eq(rp_agent_backlog(g.a), 1);
	cr_assert_eq(rp_agent_deadline(g.a), UINT64_MAX);
	bed_complete_posts(p.c);
	cr_assert_eq(rp_agent_backlog(g.a), 0);
	stop();
}

/* The channel copies messages up to its inject size. */
Test(agent_session, reply_of_the_inject_size_is_injected)
{
	struct bed_peer p;

	start(NULL);
	g.inject = sizeof(struct rp_le_reply);
	p = bed_connect(&g, &dax);
	p.c->slow = true;
	bed_expect(&p, bed_commit(&p, &dax, 0, 8), RP_ST_OK);
	cr_assert_eq(rp_agent_backlog(g.a), 0);
	/* A reply that waited for room is injected as well. */
	p.c->room = 0;
	bed_commit(&p, &dax, 0, 8);
	bed_expect_nothing(&p);
	cr_assert_not(rp_agent_progress(g.a));
	p.c->room = -1;
	cr_assert(rp_agent_progress(g.a));
	bed_expect(&p, p.token, RP_ST_OK);
	cr_assert_eq(rp_agent_backlog(g.a), 0);
	stop();
}

/*
 * A new reply must not overtake queued ones before progress is called, even if
 * the channel has room.
 */
Test(agent_session, nothing_overtakes_queued_replies)
{
	struct bed_peer p;

	start(NULL);
	p = bed_connect(&g, &dax);
	p.c->room = 0;
	bed_commit(&p, &dax, 0, 8);
	p.c->room = -1;
	bed_commit(&p, &dax, 8, 8);
	bed_run(&g);
	bed_expect(&p, p.token - 1, RP_ST_OK);
	bed_expect(&p, p.token, RP_ST_OK);
	stop();
}

/* Sessions that take no replies end before the replies fill memory. */
Test(agent_session, queued_replies_are_bounded_in_all)
{
	const struct rp_agent_attr attr = {
		.incarnation = BED_INCARNATION,
		.no_worker = true,
		.credits = 100,
		.max_jobs = 5,
	};
	struct bed_peer p, q;

	start(&attr);
	p = bed_connect(&g, &dax);
	q = bed_connect(&g, &dax);
	p.c->room = q.c->room = 0;
	for (int i = 0; i < 5; i++) {
		bed_commit(&p, &dax, 0, 8);
		bed_commit(&q, &dax, 0, 8);
	}
	cr_assert_eq(rp_agent_backlog(g.a), 10);
	bed_commit(&q, &dax, 0, 8);
	bed_run(&g);
	cr_assert(q.c->closed);
	p.c->room = -1;
	bed_run(&g);
	for (int i = 4; i >= 0; i--)
		bed_expect(&p, p.token - i, RP_ST_OK);
	stop();
}

/* A posted reply holds no credit: it may arrive before its done(). */
Test(agent_session, posted_reply_holds_no_credit)
{
	const struct rp_agent_attr attr = {
		.incarnation = BED_INCARNATION,
		.no_worker = true,
		.credits = 2,
	};
	struct bed_peer p;
	struct bed_msg m;

	start(&attr);
	g.inject = 0;
	p = bed_connect(&g, &dax);
	p.c->slow = true;
	for (int i = 0; i < 9; i++) {
		bed_commit(&p, &dax, 0, 8);
		cr_assert(bed_take(&p, &m));
	}
	cr_assert_eq(rp_agent_backlog(g.a), 9);
	/* Closing the channel calls done() for all posted replies. */
	stop();
}

Test(agent_session, close_drops_queued_replies)
{
	struct bed_peer p;

	start(NULL);
	p = bed_connect(&g, &dax);
	p.c->slow = true;
	send_query(&p, dax.r.key);
	p.c->room = 0;
	for (int i = 0; i < 5; i++)
		bed_commit(&p, &dax, 0, 8);
	send_query(&p, dax.r.key);
	cr_assert_eq(rp_agent_backlog(g.a), 7);
	bed_lose(&p);
	cr_assert_eq(rp_agent_backlog(g.a), 0);
	cr_assert_not(rp_agent_progress(g.a));
	stop();
}

/* --- hostile --- */

/* Damaged messages lead only to refusals and closed connections. */
Test(agent_session, damaged_messages_are_refused)
{
	struct seeded s = seeded_start();
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct bed_peer p;
	struct bed_msg m;

	start(NULL);
	for (int round = 0; round < 3000; round++) {
		struct rp_wire_range r = {
			seeded_below(&s, 4) ? file.r.key : seeded_below(&s, 99),
			seeded_below(&s, file.r.len + 8), seeded_below(&s, 99)};
		struct rp_wire_request q = {
			.nranges = 1,
			.level = RP_LEVEL_DURABLE,
			.required = RP_CLASS_POWER,
			.effect = seeded_below(&s, 3),
			.then = {r.key, 8 * seeded_below(&s, 600), 1},
			.ranges = &r,
		};
		int len;

		p = bed_connect(&g, &file);
		len = rp_wire_put_request(buf, sizeof(buf), 1, &q);
		cr_assert_gt(len, 0);
		for (size_t i = seeded_below(&s, 3); i; i--)
			buf[seeded_below(&s, (size_t)len)] =
				(uint8_t)seeded_below(&s, 256);
		bed_recv(&p, buf, len);
		bed_run(&g);
		while (!p.c->closed && bed_take(&p, &m))
			;
		if (!seeded_below(&s, 20))
			g.now += 3000 * BED_MS;
		if (!p.c->closed && seeded_below(&s, 2))
			bed_lose(&p);
	}
	g.now += 60000 * BED_MS;
	bed_run(&g);
	stop();
}
