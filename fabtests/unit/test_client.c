/* SPDX-License-Identifier: BSD-2-Clause */
/* Sessions at the target: who may ask, what a flood costs, who is owed what. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "agent_rig.h"
#include "core/client.h"
#include "seeded.h"

static struct rig g;
static struct rig_region file;

static void start(const struct rp_agent_attr *attr)
{
	rig_init(&g, attr);
	rig_region(&g, &file, RP_METHOD_AGENT_MSYNC, 8);
}

static void stop(void)
{
	for (unsigned int i = 0; i < RIG_XPORTS; i++)
		if (!g.x[i].gone)
			rig_drop(&g, i);
	rig_region_del(&g, &file);
	rig_fini(&g);
}

Test(client, hello)
{
	struct rig_peer p;
	struct rig_msg m;

	start(NULL);
	p = rig_connect(&g, 0, 77);
	cr_assert_neq(p.target, 0);
	cr_assert_neq(p.target, p.cookie);
	cr_assert_eq(rig_stats(&g).half_open, 1);
	cr_assert_eq(rig_stats(&g).sessions, 0);
	cr_assert_eq(rig_stats(&g).hellos, 1);
	cr_assert_eq(memcmp(g.x[0].peers[0].addr, &p.id, sizeof(p.id)), 0);

	/* Again, as after a lost answer: the same session, no other way. */
	rig_hello(&p);
	cr_assert(rig_take(p.x, &m));
	cr_assert_eq(m.hdr.type, RP_MSG_HELLO_ACK);
	cr_assert_eq(m.hdr.token, p.token);
	cr_assert_eq(m.hdr.incarnation, RIG_INCARNATION);
	cr_assert_eq(m.ack.cookie, p.target);
	cr_assert_eq(m.ack.credits, 64);
	cr_assert_eq(m.ack.max_ranges, RP_WIRE_MAX_RANGES);
	cr_assert_eq(g.x[0].gets, 1);

	rig_commit(&p, &file, 0, 10);
	cr_assert_eq(rig_stats(&g).half_open, 0);
	cr_assert_eq(rig_stats(&g).sessions, 1);
	/* And again, while a request is being worked on: it is still owed. */
	rig_hello(&p);
	cr_assert(rig_take(p.x, &m));
	cr_assert_eq(m.ack.cookie, p.target);
	cr_assert_eq(rig_stats(&g).sessions, 1);
	cr_assert_eq(g.x[0].gets, 1);
	rig_run(&g);
	rig_expect(p.x, p.token - 1, RP_ST_OK);
	cr_assert_eq(g.checked, 1);
	stop();
}

/* Where nobody else can send from there, nothing has to be shown. */
Test(client, proved)
{
	const struct rp_agent_attr attr = {
		.incarnation = RIG_INCARNATION,
		.no_worker = true,
		.proved = true,
		.max_half_open = 1,
	};
	struct rig_peer p[4];

	start(&attr);
	for (uint32_t i = 0; i < 4; i++)
		p[i] = rig_connect(&g, 0, 77 + i);
	cr_assert_eq(rig_stats(&g).half_open, 0);
	cr_assert_eq(rig_stats(&g).sessions, 4);
	/* However long they wait. */
	g.now += 2 * RP_CLIENT_HALF_OPEN_NS;
	rig_run(&g);
	for (int i = 0; i < 4; i++) {
		rig_commit(&p[i], &file, 0, 10);
		rig_run(&g);
		rig_expect(p[i].x, p[i].token, RP_ST_OK);
	}
	stop();
}

/* Somebody who has not seen the answer to the HELLO gets nowhere. */
Test(client, forged_cookie)
{
	struct rig_peer p, forged;

	start(NULL);
	p = rig_connect(&g, 0, 1);
	for (int i = 0; i < 200; i++) {
		forged = p;
		forged.target = p.target ^ 1ull << i % 64;
		rig_commit(&forged, &file, 0, 10);
		rig_query(&forged, file.r.key, 0);
		rig_bye(&forged);
	}
	forged.target = 0;
	rig_commit(&forged, &file, 0, 10);
	/* The right one, at an endpoint that it was not made for. */
	forged = p;
	forged.x = &g.x[1];
	rig_commit(&forged, &file, 0, 10);
	rig_bye(&forged);
	rig_run(&g);
	rig_expect_nothing(&g.x[0]);
	rig_expect_nothing(&g.x[1]);
	cr_assert_eq(file.syncs, 0);
	cr_assert_eq(rig_stats(&g).sessions, 0);
	cr_assert_eq(rig_stats(&g).half_open, 1);
	cr_assert_eq(rig_stats(&g).bad_messages, 603);
	stop();
}

Test(client, hello_wants_a_key_of_ours)
{
	struct rp_wire_hdr hdr = {0};
	struct rp_wire_hello m = {.cookie = 5, .key = 0x1234, .addr_len = 4};
	uint8_t buf[RP_WIRE_MAX_MSG];

	start(NULL);
	rig_recv(&g.x[0], buf, rp_wire_put_hello(buf, sizeof(buf), &hdr, &m));
	rig_expect_nothing(&g.x[0]);
	cr_assert_eq(g.x[0].gets, 0);
	cr_assert_eq(rig_stats(&g).bad_messages, 1);
	cr_assert_eq(rig_stats(&g).hellos, 0);
	stop();
}

/* Whoever proves an address owns it; a mere HELLO from there ends nothing. */
Test(client, one_session_of_an_address)
{
	struct rig_peer old, new, other;
	uint64_t t;

	start(NULL);
	old = rig_open(&g, 0, 1, &file);
	other = rig_open(&g, 0, 2, &file);
	new = rig_connect(&g, 0, 1);
	t = rig_commit(&old, &file, 0, 1);
	rig_run(&g);
	rig_expect(old.x, t, RP_ST_OK);

	/* One that is still owed an answer ends as well. */
	rig_commit(&old, &file, 0, 1);
	t = rig_commit(&new, &file, 4096, 1);
	rig_run(&g);
	rig_expect(new.x, t, RP_ST_OK);
	rig_expect_nothing(&g.x[0]);
	cr_assert_eq(rig_stats(&g).sessions, 2);
	cr_assert_eq(g.x[0].open, 2);
	t = rig_commit(&other, &file, 0, 1);
	rig_run(&g);
	rig_expect(other.x, t, RP_ST_OK);
	/* The same address at another endpoint is somebody else. */
	rig_open(&g, 1, 1, &file);
	cr_assert_eq(rig_stats(&g).sessions, 3);
	stop();
}

/* What was sent in a session that was given up may come late. */
Test(client, older_half_open_one_ends)
{
	struct rig_peer first, second, third;
	uint64_t t;

	start(NULL);
	first = rig_connect(&g, 0, 1);
	second = rig_connect(&g, 0, 1);
	third = rig_connect(&g, 0, 1);
	t = rig_commit(&second, &file, 0, 1);
	rig_run(&g);
	rig_expect(second.x, t, RP_ST_OK);
	rig_commit(&first, &file, 0, 1);
	rig_run(&g);
	rig_expect_nothing(&g.x[0]);
	cr_assert_eq(rig_stats(&g).sessions, 1);
	cr_assert_eq(rig_stats(&g).half_open, 1);
	/* A younger one is to come yet. */
	t = rig_commit(&third, &file, 0, 1);
	rig_run(&g);
	rig_expect(third.x, t, RP_ST_OK);
	cr_assert_eq(rig_stats(&g).sessions, 1);
	cr_assert_eq(rig_stats(&g).half_open, 0);
	stop();
}

Test(client, flood_of_hellos)
{
	const struct rp_agent_attr attr = {
		.incarnation = RIG_INCARNATION,
		.no_worker = true,
		.max_half_open = 8,
	};
	struct rig_peer p, open, early;
	struct rig_msg m;

	start(&attr);
	open = rig_open(&g, 0, 1, &file);
	early = rig_connect(&g, 0, 2);
	for (uint32_t i = 0; i < 1000; i++)
		p = rig_connect(&g, 0, 100 + i);
	/* One address and ever new cookies is no better. */
	for (uint32_t i = 0; i < 1000; i++)
		p = rig_connect(&g, 0, 3);
	cr_assert_eq(g.x[0].most_open, 1 + 8);
	cr_assert_eq(g.x[0].gets, 2002);
	cr_assert_eq(rig_stats(&g).half_open, 8);
	cr_assert_eq(rig_stats(&g).sessions, 1);

	/* The oldest went first; the last and the open one work. */
	rig_commit(&early, &file, 0, 1);
	rig_run(&g);
	rig_expect_nothing(&g.x[0]);
	rig_commit(&p, &file, 0, 1);
	rig_commit(&open, &file, 0, 1);
	rig_run(&g);
	cr_assert(rig_take(p.x, &m) && m.hdr.session == p.cookie);
	cr_assert(rig_take(p.x, &m) && m.hdr.session == open.cookie);
	cr_assert_eq(g.checked, 2);
	stop();
}

/* n HELLOs of names that nobody has had. */
static void strangers(struct rig_peer *p, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		p->id++;
		p->cookie++;
		rig_hello(p);
	}
}

Test(client, strangers_wait)
{
	struct rig_peer open, p;
	struct rig_msg m;
	uint64_t token;

	start(NULL);
	open = rig_open(&g, 0, 1, &file);
	rp_agent_progress(g.a);
	p = (struct rig_peer){
		.g = &g,
		.x = &g.x[0],
		.id = 1000,
		.cookie = 1000000,
		.timeout_ms = 3000,
	};
	strangers(&p, 100);
	cr_assert_eq(g.x[0].gets, 1 + RP_AGENT_WELCOME);
	cr_assert_eq(rp_agent_deadline(g.a), 0);
	/* A repeated HELLO is no stranger's. */
	rig_hello(&open);
	for (int i = 0; i < RP_AGENT_WELCOME; i++)
		cr_assert(rig_take(p.x, &m) && m.hdr.session != open.cookie);
	cr_assert(rig_take(p.x, &m) && m.hdr.session == open.cookie);
	/* Those who have a session come first. */
	token = rig_commit(&open, &file, 0, 1);
	rp_agent_progress(g.a);
	rig_expect(open.x, token, RP_ST_OK);
	cr_assert_eq(g.x[0].gets, 1 + 2 * RP_AGENT_WELCOME);
	/* The others follow, in order. */
	for (int i = 0; i < 10; i++)
		rp_agent_progress(g.a);
	cr_assert_eq(g.x[0].gets, 101);
	cr_assert_neq(rp_agent_deadline(g.a), 0);
	for (uint64_t i = RP_AGENT_WELCOME; i < 100; i++)
		cr_assert(rig_take(p.x, &m) && m.hdr.session == 1000001 + i);
	rig_expect_nothing(p.x);

	/* So many are remembered: the newest. */
	strangers(&p, 3 * RP_AGENT_STRANGERS);
	for (int i = 0; i < 3 * RP_AGENT_STRANGERS / RP_AGENT_WELCOME; i++)
		rp_agent_progress(g.a);
	cr_assert_eq(g.x[0].gets, 101 + RP_AGENT_WELCOME + RP_AGENT_STRANGERS);
	while (rig_take(p.x, &m))
		;
	cr_assert_eq(m.hdr.session, p.cookie);
	/* Those who still wait go with their endpoint. */
	strangers(&p, 100);
	stop();
}

Test(client, half_open_expires)
{
	struct rig_peer a, b, c;
	uint64_t t0;

	start(NULL);
	t0 = g.now;
	cr_assert_eq(rp_agent_deadline(g.a), UINT64_MAX);
	a = rig_connect(&g, 0, 1);
	g.now += 1000 * RIG_MS;
	b = rig_connect(&g, 1, 2);
	c = rig_open(&g, 0, 3, &file);
	cr_assert_eq(rp_agent_deadline(g.a), t0 + 5000 * RIG_MS);

	g.now = t0 + 5000 * RIG_MS - 1;
	cr_assert(!rp_agent_progress(g.a));
	cr_assert_eq(rig_stats(&g).half_open, 2);
	g.now++;
	cr_assert(rp_agent_progress(g.a));
	cr_assert_eq(rig_stats(&g).half_open, 1);
	cr_assert_eq(g.x[0].open, 1);
	cr_assert_eq(rp_agent_deadline(g.a), t0 + 6000 * RIG_MS);
	g.now += 1000 * RIG_MS;
	rig_run(&g);
	cr_assert_eq(g.x[1].open, 0);
	cr_assert_eq(rp_agent_deadline(g.a), UINT64_MAX);

	rig_commit(&a, &file, 0, 1);
	rig_commit(&b, &file, 0, 1);
	rig_run(&g);
	rig_expect_nothing(&g.x[0]);
	rig_expect_nothing(&g.x[1]);
	/* An open one does not expire. */
	g.now += 3600 * 1000 * RIG_MS;
	rig_commit(&c, &file, 0, 1);
	rig_run(&g);
	rig_expect(c.x, c.token, RP_ST_OK);
	stop();
}

Test(client, idle_ones_make_room)
{
	const struct rp_agent_attr attr = {
		.incarnation = RIG_INCARNATION,
		.no_worker = true,
		.max_sessions = 3,
	};
	struct rig_peer p[5];
	struct rig_msg m;
	uint64_t t;

	start(&attr);
	for (int i = 0; i < 3; i++)
		p[i] = rig_open(&g, 0, i, &file);
	/* 0 is used again, 1 is owed an answer: 2 is the idle one. */
	t = rig_commit(&p[1], &file, 0, 1);
	rig_request(&p[0], RP_LEVEL_VISIBLE, 0, 1,
		    &(struct rp_wire_range){file.r.key, 0, 1});
	rig_expect(p[0].x, p[0].token, RP_ST_OK);

	p[3] = rig_connect(&g, 0, 3);
	rig_commit(&p[3], &file, 4096, 1);
	/* It is told; its later requests find nobody. */
	cr_assert(rig_take(&g.x[0], &m));
	cr_assert_eq(m.hdr.type, RP_MSG_REPLY);
	cr_assert_eq(m.hdr.session, p[2].cookie);
	cr_assert_eq(m.hdr.token, 0);
	cr_assert_eq(m.reply.status, RP_ST_NO_SESSION);
	rig_commit(&p[2], &file, 0, 1);
	cr_assert_eq(rig_stats(&g).sessions, 3);
	cr_assert_eq(g.x[0].open, 3);

	/* Everybody is owed something: the next has to come again. */
	rig_commit(&p[0], &file, 0, 1);
	p[4] = rig_connect(&g, 0, 4);
	rig_commit(&p[4], &file, 8192, 1);
	rig_expect(p[4].x, p[4].token, RP_ST_OVERLOADED);
	rig_query(&p[4], file.r.key, 0);
	cr_assert(rig_take(p[4].x, &m));
	cr_assert_eq(m.hdr.type, RP_MSG_INFO);
	cr_assert_eq(m.info.status, RP_ST_OVERLOADED);

	rig_run(&g);
	rig_expect(p[1].x, t, RP_ST_OK);
	cr_assert(rig_take(&g.x[0], &m) && m.hdr.session == p[3].cookie);
	cr_assert(rig_take(&g.x[0], &m) && m.hdr.session == p[0].cookie);
	rig_commit(&p[4], &file, 8192, 1);
	cr_assert(rig_take(&g.x[0], &m));
	cr_assert_eq(m.reply.status, RP_ST_NO_SESSION);
	cr_assert_eq(m.hdr.session, p[1].cookie);
	rig_run(&g);
	rig_expect(p[4].x, p[4].token, RP_ST_OK);
	stop();
}

Test(client, other_version)
{
	struct rp_wire_hdr hdr = {.token = 9};
	struct rp_wire_hello m = {
		.cookie = 0xc0ffee,
		.key = rig_some_key(),
		.addr_len = 4,
		.addr = "them",
	};
	struct rp_wire_request req = {.nranges = 1, .level = RP_LEVEL_DURABLE};
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rig_msg got;
	struct rig_peer p;
	int len;

	start(NULL);
	len = rp_wire_put_hello(buf, sizeof(buf), &hdr, &m);
	buf[2] = 2;
	for (int i = 0; i < 3; i++) {
		rig_recv(&g.x[0], buf, len);
		cr_assert(rig_take(&g.x[0], &got));
		cr_assert_eq(got.hdr.type, RP_MSG_HELLO_ACK);
		cr_assert_eq(got.hdr.version, RP_WIRE_VERSION);
		cr_assert_eq(got.hdr.session, 0xc0ffee);
		cr_assert_eq(got.ack.status, RP_ST_VERSION);
		cr_assert_eq(got.ack.cookie, 0);
	}
	cr_assert_eq(g.x[0].gets, 1);
	/* It is bounded and forgotten as a half-open one is. */
	cr_assert_eq(rig_stats(&g).half_open, 1);
	/* The same peer after an upgrade. */
	buf[2] = RP_WIRE_VERSION;
	rig_recv(&g.x[0], buf, len);
	cr_assert(rig_take(&g.x[0], &got));
	cr_assert_eq(got.ack.status, RP_ST_OK);
	cr_assert_eq(rig_stats(&g).half_open, 1);
	buf[2] = 2;
	rig_recv(&g.x[0], buf, len);
	cr_assert(rig_take(&g.x[0], &got));
	g.now += 5000 * RIG_MS;
	rig_run(&g);
	cr_assert_eq(g.x[0].open, 0);

	/* One refusal is kept, however often it is asked for. */
	g.x[0].send_ret = -EAGAIN;
	for (int i = 0; i < 3; i++)
		rig_recv(&g.x[0], buf, len);
	cr_assert_eq(rp_agent_pending(g.a), 1);
	g.x[0].send_ret = 0;
	rig_run(&g);
	cr_assert(rig_take(&g.x[0], &got));
	cr_assert_eq(got.ack.status, RP_ST_VERSION);
	rig_expect_nothing(&g.x[0]);
	g.now += 5000 * RIG_MS;
	rig_run(&g);

	/* In a session a request is refused, and not looked into. */
	p = rig_open(&g, 0, 1, &file);
	hdr = (struct rp_wire_hdr){.session = p.target, .token = 123};
	len = rp_wire_put_request(buf, sizeof(buf), &hdr, &req);
	buf[2] = 0;
	rig_recv(p.x, buf, len);
	rig_expect(p.x, 123, RP_ST_VERSION);
	/* Without one there is nobody to tell. */
	buf[8] ^= 0xff;
	rig_recv(p.x, buf, len);
	rig_expect_nothing(p.x);
	stop();
}

Test(client, bye)
{
	struct rig_peer p, half;

	start(NULL);
	p = rig_open(&g, 0, 1, &file);
	half = rig_connect(&g, 0, 2);
	rig_commit(&p, &file, 0, 1);
	rig_bye(&p);
	rig_bye(&half);
	cr_assert_eq(g.x[0].open, 0);
	cr_assert_eq(rp_agent_pending(g.a), 0);
	rig_run(&g);
	rig_expect_nothing(&g.x[0]);
	cr_assert_eq(file.syncs, 0, "work for nobody");
	rig_commit(&p, &file, 0, 1);
	rig_run(&g);
	rig_expect_nothing(&g.x[0]);
	stop();
}

Test(client, nothing_left_behind_on_failure)
{
	struct rig_peer p = {.g = &g, .x = &g.x[0], .cookie = 1};

	start(NULL);
	g.x[0].get_ret = -EINVAL;
	rig_hello(&p);
	g.x[0].get_ret = 0;
	g.x[0].random_ret = -EIO;
	rig_hello(&p);
	g.x[0].random_ret = 0;
	rig_expect_nothing(&g.x[0]);
	cr_assert_eq(rig_stats(&g).half_open, 0);
	cr_assert_eq(g.x[0].open, 0);
	cr_assert(!rp_agent_progress(g.a));
	rig_connect(&g, 0, 1);
	stop();
}

/* Random numbers may repeat, cookies may not. */
Test(client, cookie_in_use)
{
	struct rig_peer p, q;
	uint64_t drawn;

	start(NULL);
	p = rig_open(&g, 0, 1, &file);
	drawn = --g.cookies;
	q = rig_open(&g, 0, 2, &file);
	cr_assert_neq(q.target, p.target);
	cr_assert_eq(g.cookies, drawn + 2, "drawn, not made up");
	rig_commit(&p, &file, 0, 1);
	rig_commit(&q, &file, 0, 1);
	rig_run(&g);
	rig_expect(p.x, p.token, RP_ST_OK);
	rig_expect(q.x, q.token, RP_ST_OK);
	stop();
}

/* Two are served, one endpoint goes. */
Test(client, drop_endpoint)
{
	struct rig_peer p, q;

	start(NULL);
	p = rig_open(&g, 0, 1, &file);
	rig_connect(&g, 0, 5);
	q = rig_open(&g, 1, 1, &file);
	g.x[0].send_ret = -EAGAIN;
	rig_query(&p, file.r.key, 0);
	rig_commit(&p, &file, 0, 1);
	rig_commit(&q, &file, 0, 1);
	rig_drop(&g, 0);
	cr_assert_eq(rp_agent_pending(g.a), 1);
	rig_run(&g);
	rig_expect(q.x, q.token, RP_ST_OK);
	cr_assert_eq(rig_stats(&g).sessions, 1);
	cr_assert_eq(rig_stats(&g).half_open, 0);
	stop();
}

/* One message of each kind that a target understands, of session p. */
static int some_message(struct seeded *s, struct rig_peer *p, uint8_t *buf)
{
	const struct rp_wire_hdr hdr = {
		.type = RP_MSG_BYE,
		.session = seeded_below(s, 8) ? p->target : seeded_next(s),
		.token = seeded_below(s, 100),
		.incarnation = seeded_below(s, 4) ? 0 : seeded_next(s),
	};
	const struct rp_wire_query q = {.key = file.r.key, .required = 2};
	struct rp_wire_request r = {
		.nranges = 1 + seeded_below(s, 5),
		.level = 1 + seeded_below(s, 2),
		.required = seeded_below(s, 3),
	};
	struct rp_wire_hdr none = {0};
	struct rp_wire_hello h = {
		.cookie = 1 + seeded_below(s, 3),
		.key = file.r.key,
		.timeout_ms = seeded_next(s),
		.addr_len = 1 + seeded_below(s, 2),
	};

	switch (seeded_below(s, 8)) {
	case 0:
		return rp_wire_put_hello(buf, RP_WIRE_MAX_MSG, &none, &h);
	case 1:
		return rp_wire_put_query(buf, RP_WIRE_MAX_MSG, &hdr, &q);
	case 2:
		return seeded_below(s, 10)
			       ? 0
			       : rp_wire_put_empty(buf, RP_WIRE_MAX_MSG, &hdr);
	}
	for (int i = 0; i < r.nranges; i++)
		r.ranges[i] = (struct rp_wire_range){
			.key = seeded_below(s, 20) ? file.r.key
						   : seeded_next(s),
			.addr = seeded_below(s, 20)
					? seeded_below(s, file.r.len)
					: seeded_next(s),
			.len = seeded_below(s, 20) ? seeded_below(s, 300)
						   : seeded_next(s),
		};
	return rp_wire_put_request(buf, RP_WIRE_MAX_MSG, &hdr, &r);
}

Test(client, hostile)
{
	const struct rp_agent_attr attr = {
		.incarnation = RIG_INCARNATION,
		.no_worker = true,
		.max_sessions = 4,
		.max_half_open = 3,
		.credits = 5,
	};
	struct seeded s = seeded_start();
	struct rig_peer good, evil;
	struct rig_msg m;

	start(&attr);
	good = rig_open(&g, 1, 1000, &file);
	evil = rig_open(&g, 0, 1, &file);
	for (int i = 0; i < 60000; i++) {
		uint8_t buf[RP_WIRE_MAX_MSG];
		int len = some_message(&s, &evil, buf);

		if (seeded_below(&s, 2) && len)
			buf[seeded_below(&s, len)] ^= 1 + seeded_below(&s, 255);
		if (!seeded_below(&s, 10))
			for (int j = 0; j < len; j++)
				buf[j] = seeded_next(&s);
		if (!seeded_below(&s, 10) && len) {
			uint32_t told = len = seeded_below(&s, len);

			if (len >= 8)
				memcpy(buf + 4, &told, 4);
		}
		g.x[0].send_ret = seeded_below(&s, 5) ? 0 : -EAGAIN;
		rig_recv(&g.x[0], buf, len);
		if (!seeded_below(&s, 4))
			rp_agent_progress(g.a);
		while (rig_take(&g.x[0], &m))
			;
		cr_assert_leq(g.x[0].open + g.x[1].open, 4 + 3, "seed %" PRIu64,
			      s.seed);
		cr_assert_leq(rp_agent_pending(g.a), 7 * 2 * 5, "seed %" PRIu64,
			      s.seed);
		g.now += seeded_below(&s, 100) * RIG_MS;
		if (i % 100)
			continue;
		/* Others are served all along, and evil may come back. */
		g.x[0].send_ret = 0;
		rig_run(&g);
		rig_bye(&good);
		good = rig_open(&g, 1, 1000, &file);
		rig_commit(&good, &file, seeded_below(&s, 8000), 10);
		rig_run(&g);
		rig_expect(good.x, good.token, RP_ST_OK);
		while (rig_take(&g.x[0], &m))
			;
		evil = rig_open(&g, 0, 1, &file);
	}
	cr_assert_gt(g.checked, 500);
	stop();
}
