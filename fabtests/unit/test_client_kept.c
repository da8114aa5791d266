/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers at the target that cannot be sent yet, or not at all. */
#include <errno.h>

#include <criterion/criterion.h>

#include "agent_rig.h"

static struct rig g;
static struct rig_region file;

static void start(const struct rp_agent_attr *attr)
{
	rig_init(&g, attr);
	rig_region(&g, &file, RP_METHOD_AGENT_MSYNC, 8);
}

static void stop(void)
{
	rig_region_del(&g, &file);
	rig_fini(&g);
}

Test(client_kept, kept_in_order)
{
	struct rig_peer p, q;
	uint64_t t, u;

	start(NULL);
	p = rig_open(&g, 0, 1, &file);
	q = rig_open(&g, 0, 2, &file);
	cr_assert_eq(rp_agent_deadline(g.a), UINT64_MAX);
	g.x[0].stuck = 1; /* p was the first peer */
	t = rig_commit(&p, &file, 0, 1);
	rig_run(&g);
	rig_query(&p, file.r.key, 0);
	rig_commit(&p, &file, 5000, 1);
	rig_run(&g);
	/* One that is stuck does not hold up another. */
	u = rig_commit(&q, &file, 0, 1);
	rig_run(&g);
	rig_expect(q.x, u, RP_ST_OK);
	rig_expect_nothing(p.x);
	cr_assert_eq(rp_agent_pending(g.a), 3);
	cr_assert_gt(rp_agent_deadline(g.a), g.now);
	cr_assert_leq(rp_agent_deadline(g.a), g.now + 10 * RIG_MS);

	/* An open session is told again whose it is, behind the others. */
	rig_hello(&p);
	g.x[0].stuck = 0;
	/* Not before what is kept. */
	rig_request(&p, RP_LEVEL_VISIBLE, 0, 1,
		    &(struct rp_wire_range){file.r.key, 0, 1});
	rig_expect_nothing(p.x);
	cr_assert(rp_agent_progress(g.a));
	rig_expect(p.x, t, RP_ST_OK);
	struct rig_msg m;
	cr_assert(rig_take(p.x, &m));
	cr_assert_eq(m.hdr.type, RP_MSG_INFO);
	cr_assert_eq(m.hdr.token, t + 1);
	rig_expect(p.x, t + 2, RP_ST_OK);
	cr_assert(rig_take(p.x, &m));
	cr_assert_eq(m.hdr.type, RP_MSG_HELLO_ACK);
	rig_expect(p.x, p.token, RP_ST_OK);
	cr_assert_eq(rp_agent_pending(g.a), 0);
	cr_assert_eq(rp_agent_deadline(g.a), UINT64_MAX);
	stop();
}

/* Part of what is kept goes out, then the base is full again. */
Test(client_kept, kept_and_stuck_again)
{
	struct rig_peer p;
	uint64_t t;

	start(NULL);
	p = rig_open(&g, 0, 1, &file);
	g.x[0].send_ret = -EAGAIN;
	t = p.token + 1;
	for (int i = 0; i < 10; i++)
		rig_commit(&p, &file, i, 1);
	rig_run(&g);
	cr_assert_eq(rp_agent_pending(g.a), 10);
	g.x[0].sends = 0;
	cr_assert(!rp_agent_progress(g.a));
	cr_assert_eq(g.x[0].sends, 1, "hammering a full base");
	g.x[0].send_ret = 0;
	rig_run(&g);
	for (int i = 0; i < 10; i++)
		rig_expect(p.x, t + i, RP_ST_OK);
	stop();
}

/* A peer that asks without end and does not listen. */
Test(client_kept, kept_is_bounded)
{
	const struct rp_agent_attr attr = {
		.incarnation = RIG_INCARNATION,
		.no_worker = true,
		.credits = 4,
		.max_jobs = 6,
	};
	struct rig_peer p, q, r;

	start(&attr);
	p = rig_open(&g, 0, 1, &file);
	q = rig_open(&g, 0, 2, &file);
	r = rig_connect(&g, 0, 3);
	g.x[0].send_ret = -EAGAIN;
	for (int i = 0; i < 1000; i++) {
		rig_commit(&p, &file, 0, 1);
		rig_query(&p, file.r.key, 0);
		rig_hello(&p);
		rig_hello(&r);
		rig_run(&g);
		cr_assert_leq(rp_agent_pending(g.a), 2 * 4 + 1);
	}
	cr_assert_eq(rp_agent_pending(g.a), 2 * 4 + 1);
	for (int i = 0; i < 1000; i++) {
		rig_commit(&q, &file, 0, 1);
		rig_query(&q, file.r.key, 0);
		rig_run(&g);
		cr_assert_leq(rp_agent_pending(g.a), 2 * 6);
	}
	cr_assert_eq(rp_agent_pending(g.a), 2 * 6);
	cr_assert_eq(rig_stats(&g).half_open, 1);
	stop();
}

/* A message that the base refuses for good is not tried for ever. */
Test(client_kept, send_fails)
{
	struct rig_peer p;

	start(NULL);
	p = rig_open(&g, 0, 1, &file);
	g.x[0].send_ret = -EHOSTUNREACH;
	rig_commit(&p, &file, 0, 1);
	rig_run(&g);
	cr_assert_eq(rp_agent_pending(g.a), 0);
	g.x[0].send_ret = -EAGAIN;
	rig_commit(&p, &file, 0, 1);
	rig_commit(&p, &file, 1, 1);
	rig_run(&g);
	cr_assert_eq(rp_agent_pending(g.a), 2);
	g.x[0].send_ret = -EHOSTUNREACH;
	rig_run(&g);
	cr_assert_eq(rp_agent_pending(g.a), 0);
	g.x[0].send_ret = 0;
	rig_commit(&p, &file, 0, 1);
	rig_run(&g);
	rig_expect(p.x, p.token, RP_ST_OK);
	stop();
}

/*
 * A base that tells of breaks takes nothing for an address before everybody
 * here has let go of it: which they do when it is heard of again.
 */
Test(client_kept, reached_again)
{
	struct rig_peer p, half, other, new;

	start(NULL);
	p = rig_open(&g, 0, 1, &file);
	half = rig_connect(&g, 0, 1);
	other = rig_open(&g, 0, 2, &file);
	g.x[0].send_ret = -EHOSTUNREACH;
	rig_commit(&p, &file, 0, 1);
	rig_run(&g);
	g.x[0].send_ret = 0;
	/* Somebody else, and the same address at another endpoint. */
	rig_connect(&g, 0, 3);
	rig_connect(&g, 1, 1);
	cr_assert_eq(g.x[0].open, 4);
	new = rig_connect(&g, 0, 1);
	cr_assert_eq(g.x[0].open, 3);
	for (int i = 0; i < 2; i++)
		rig_commit(i ? &p : &half, &file, 0, 1);
	rig_run(&g);
	rig_expect_nothing(p.x);
	rig_commit(&new, &file, 0, 1);
	rig_run(&g);
	rig_expect(new.x, new.token, RP_ST_OK);
	rig_commit(&other, &file, 0, 1);
	rig_run(&g);
	rig_expect(other.x, other.token, RP_ST_OK);
	/* Once is enough. */
	rig_connect(&g, 0, 1);
	cr_assert_eq(g.x[0].open, 4);
	rig_commit(&new, &file, 0, 1);
	rig_run(&g);
	rig_expect(new.x, new.token, RP_ST_OK);
	/* One that was never opened. */
	g.x[0].send_ret = -EHOSTUNREACH;
	new = (struct rig_peer){.g = &g, .x = &g.x[0], .id = 4, .cookie = 4};
	rig_hello(&new);
	cr_assert_eq(g.x[0].open, 5);
	g.x[0].send_ret = 0;
	rig_connect(&g, 0, 4);
	cr_assert_eq(g.x[0].open, 5);
	stop();
}
