/* SPDX-License-Identifier: BSD-2-Clause */
/* Flushes that block: the worker, signs of life, and things that go meanwhile.
 */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "agent_rig.h"
#include "seeded.h"

static struct rig g;
static struct rig_region file, other, dax;

static void start(void)
{
	const struct rp_agent_attr attr = {.incarnation = RIG_INCARNATION};

	rig_init(&g, &attr);
	rig_region(&g, &file, RP_METHOD_AGENT_MSYNC, 8);
	rig_region(&g, &other, RP_METHOD_AGENT_MSYNC, 8);
	rig_region(&g, &dax, RP_METHOD_AGENT_CLWB, 8);
}

static void stop(void)
{
	struct rig_region *all[] = {&file, &other, &dax};

	rig_open_gate(&g);
	for (int i = 0; i < 3; i++)
		if (!all[i]->gone)
			rig_region_del(&g, all[i]);
	rig_fini(&g);
}

/* Opens the gate in a moment, while the test waits inside the agent. */
static void *open_soon(void *arg)
{
	usleep(20000);
	rig_open_gate(&g);
	return arg;
}

Test(worker, progress_never_waits)
{
	struct rig_peer p, q;
	uint64_t t, u;

	start();
	p = rig_open(&g, 0, 1, &file);
	q = rig_open(&g, 1, 2, &file);
	rig_close_gate(&g);
	t = rig_commit(&p, &file, 0, 10);
	cr_assert_eq(rp_agent_deadline(g.a), 0);
	rig_run(&g);
	rig_wait_entered(&g, 1);
	rig_run(&g);
	rig_expect_nothing(p.x);
	cr_assert_eq(g.x[0].kicks, 0);
	/* What does not block is served meanwhile. */
	u = rig_commit(&q, &dax, 0, 10);
	cr_assert(rp_agent_progress(g.a));
	rig_expect(q.x, u, RP_ST_OK);

	rig_open_gate(&g);
	while (!g.x[0].kicks || !g.x[1].kicks)
		usleep(100);
	rig_expect_nothing(p.x);
	cr_assert(rp_agent_progress(g.a));
	rig_expect(p.x, t, RP_ST_OK);
	cr_assert_not(rp_agent_progress(g.a));
	cr_assert_eq(g.checked, 2);
	cr_assert_eq(rp_agent_pending(g.a), 0);
	stop();
}

/* Sent again while the worker flushes it: answered once, flushed once. */
Test(worker, same_token_again)
{
	struct rp_wire_range range = {.addr = 0, .len = 10};
	struct rig_peer p;
	uint64_t t;

	start();
	p = rig_open(&g, 0, 1, &file);
	range.key = file.r.key;
	rig_close_gate(&g);
	t = rig_commit(&p, &file, 0, 10);
	rig_run(&g);
	rig_wait_entered(&g, 1);
	p.token = t - 1;
	rig_request(&p, RP_LEVEL_DURABLE, RP_CLASS_POWER, 1, &range);
	cr_assert_eq(rp_agent_pending(g.a), 1);
	rig_open_gate(&g);
	rig_run_worker(&g);
	rig_expect(p.x, t, RP_ST_OK);
	rig_expect_nothing(p.x);
	cr_assert_eq(file.syncs, 1);
	stop();
}

Test(worker, what_queued_is_the_next_batch)
{
	struct rig_peer p, q;
	uint64_t t;

	start();
	p = rig_open(&g, 0, 1, &file);
	q = rig_open(&g, 1, 2, &file);
	rig_close_gate(&g);
	t = rig_commit(&p, &file, 0, 10);
	rig_run(&g);
	rig_wait_entered(&g, 1);
	for (int i = 0; i < 10; i++) {
		rig_commit(&p, &file, 5000 + 10 * i, 10);
		rig_commit(&q, &other, 10 * i, 10);
		rig_run(&g);
	}
	rig_open_gate(&g);
	rig_run_worker(&g);
	cr_assert_eq(file.syncs, 2);
	cr_assert_eq(other.syncs, 1);
	for (int i = 0; i <= 10; i++)
		rig_expect(p.x, t + i, RP_ST_OK);
	cr_assert_eq(g.checked, 21);
	stop();
}

/* One request with both kinds of memory. */
Test(worker, mixed_request)
{
	const struct rig_at at[] = {
		{&dax, 100, 10}, {&file, 0, 10}, {&dax, 9000, 10}};
	struct rp_wire_reply r;
	struct rig_peer p;

	start();
	p = rig_open(&g, 0, 1, &file);
	rig_close_gate(&g);
	rig_commit_all(&p, RP_CLASS_POWER, 3, at);
	rig_run(&g);
	rig_expect_nothing(p.x);
	rig_open_gate(&g);
	rig_run_worker(&g);
	rig_expect(p.x, p.token, RP_ST_OK);
	cr_assert_eq(g.checked, 3);

	file.sync_ret = -EIO;
	rig_commit_all(&p, RP_CLASS_POWER, 3, at);
	rig_run_worker(&g);
	r = rig_expect(p.x, p.token, RP_ST_FLUSH_FAILED);
	cr_assert_eq(r.range, 1);
	cr_assert_eq(r.detail, EIO);
	stop();
}

/* The kernel tells of a failure once, so nobody may ask again. */
Test(worker, failure_reaches_those_that_queued)
{
	struct rig_peer p;
	uint64_t t;

	start();
	p = rig_open(&g, 0, 1, &file);
	file.sync_ret = -EIO;
	rig_close_gate(&g);
	t = rig_commit(&p, &file, 0, 10);
	rig_run(&g);
	rig_wait_entered(&g, 1);
	rig_commit(&p, &file, 5000, 10);
	rig_commit(&p, &other, 0, 10);
	rig_run(&g);
	rig_open_gate(&g);
	rig_run_worker(&g);
	rig_expect(p.x, t, RP_ST_FLUSH_FAILED);
	rig_expect(p.x, t + 1, RP_ST_REGION_FAILED);
	rig_expect(p.x, t + 2, RP_ST_OK);
	cr_assert_eq(file.syncs, 1);
	stop();
}

static void expect_progress(struct rig_peer *p, uint64_t token)
{
	struct rig_msg m;

	rig_run(&g);
	cr_assert(rig_take(p->x, &m), "no sign of life");
	cr_assert_eq(m.hdr.type, RP_MSG_PROGRESS);
	cr_assert_eq(m.hdr.session, p->cookie);
	cr_assert_eq(m.hdr.token, token);
	cr_assert_eq(m.hdr.incarnation, RIG_INCARNATION);
}

static void expect_silence(struct rig_peer *p)
{
	cr_assert_not(rp_agent_progress(g.a));
	rig_expect_nothing(p->x);
}

/* What it was due for is answered: the next request has a clock of its own. */
Test(worker, signs_of_life_of_the_next)
{
	struct rig_peer p;
	uint64_t t0, t;

	start();
	p = rig_open(&g, 0, 1, &file);
	p.timeout_ms = 3000;
	rig_hello(&p);
	cr_assert(rig_take(p.x, &(struct rig_msg){0}));
	rig_close_gate(&g);
	t0 = g.now;
	t = rig_commit(&p, &file, 0, 10);
	rig_run(&g);
	rig_wait_entered(&g, 1);
	g.now = t0 + 500 * RIG_MS;
	rig_commit(&p, &file, 0, 10);
	expect_silence(&p);
	rig_open_gate(&g);
	while (!g.x[0].kicks)
		usleep(100);
	rig_close_gate(&g);
	cr_assert(rp_agent_progress(g.a));
	rig_expect(p.x, t, RP_ST_OK);
	rig_wait_entered(&g, 2);
	g.now = t0 + 1000 * RIG_MS;
	expect_silence(&p);
	cr_assert_eq(rp_agent_deadline(g.a), t0 + 1500 * RIG_MS);
	g.now = t0 + 1500 * RIG_MS;
	expect_progress(&p, t + 1);
	rig_open_gate(&g);
	rig_run_worker(&g);
	rig_expect(p.x, t + 1, RP_ST_OK);
	stop();
}

/* At a third of the initiator's patience, between 100 ms and 60 s. */
Test(worker, signs_of_life)
{
	struct rig_peer slow, quick, patient;
	uint64_t t0, u;

	start();
	slow = rig_open(&g, 0, 1, &file);
	quick = rig_open(&g, 1, 2, &file);
	patient = rig_open(&g, 1, 3, &file);
	slow.timeout_ms = 3000;
	quick.timeout_ms = 1;
	patient.timeout_ms = UINT32_MAX;
	struct rig_peer *all[] = {&slow, &quick, &patient};
	struct rig_msg m;

	for (int i = 0; i < 3; i++) {
		rig_hello(all[i]);
		cr_assert(rig_take(all[i]->x, &m));
	}
	rig_close_gate(&g);
	t0 = g.now;
	u = rig_commit(&slow, &file, 0, 10);
	rig_run(&g);
	rig_wait_entered(&g, 1);
	cr_assert_eq(rp_agent_deadline(g.a), t0 + 1000 * RIG_MS);
	g.now = t0 + 500 * RIG_MS;
	rig_commit(&slow, &file, 100, 10);
	rig_commit(&quick, &file, 0, 10);
	rig_commit(&patient, &file, 0, 10);
	expect_silence(&slow);
	cr_assert_eq(rp_agent_deadline(g.a), t0 + 600 * RIG_MS);

	g.now = t0 + 600 * RIG_MS - 1;
	expect_silence(&quick);
	g.now++;
	cr_assert(rp_agent_progress(g.a));
	expect_progress(&quick, quick.token);
	expect_silence(&quick);
	expect_silence(&slow);
	cr_assert_eq(rp_agent_deadline(g.a), t0 + 700 * RIG_MS);
	g.now = t0 + 1000 * RIG_MS - 1;
	expect_progress(&quick, quick.token);
	expect_silence(&slow);
	g.now++;
	expect_progress(&slow, u);
	expect_silence(&slow);
	g.now = t0 + 2000 * RIG_MS;
	expect_progress(&slow, u);
	expect_progress(&quick, quick.token);
	expect_silence(&quick);
	cr_assert_eq(rig_stats(&g).progress_sent, 5);

	g.now = t0 + 60500 * RIG_MS - 1;
	expect_progress(&quick, quick.token);
	rig_expect_nothing(&g.x[1]);
	g.now++;
	expect_progress(&patient, patient.token);
	cr_assert(rig_take(&g.x[0], &m));

	rig_open_gate(&g);
	rig_run_worker(&g);
	rig_expect(slow.x, u, RP_ST_OK);
	rig_expect(slow.x, u + 1, RP_ST_OK);
	rig_expect(quick.x, quick.token, RP_ST_OK);
	rig_expect(patient.x, patient.token, RP_ST_OK);
	cr_assert_eq(rp_agent_deadline(g.a), UINT64_MAX);

	/* The next request starts its own clock. */
	rig_close_gate(&g);
	rig_commit(&slow, &file, 0, 10);
	rig_run(&g);
	expect_silence(&slow);
	cr_assert_eq(rp_agent_deadline(g.a), g.now + 1000 * RIG_MS);
	g.now += 1000 * RIG_MS;
	/* When the base takes nothing, one is kept and no more. */
	g.x[0].send_ret = -EAGAIN;
	for (int i = 0; i < 20; i++) {
		cr_assert_eq(rp_agent_progress(g.a), !i);
		g.now += 1000 * RIG_MS;
	}
	cr_assert_eq(rp_agent_pending(g.a), 2);
	g.x[0].send_ret = 0;
	rig_run(&g);
	cr_assert(rig_take(&g.x[0], &m));
	cr_assert_eq(m.hdr.type, RP_MSG_PROGRESS);
	stop();
}

/* After region_del returns, the memory is unmapped and its owner freed. */
Test(worker, region_goes_while_its_flush_runs)
{
	const struct rig_at both[] = {{&other, 0, 10}, {&file, 0, 10}};
	struct rig_peer p;
	pthread_t opener;
	uint64_t t;

	start();
	p = rig_open(&g, 0, 1, &file);
	rig_close_gate(&g);
	t = rig_commit(&p, &file, 0, 10);
	rig_run(&g);
	rig_wait_entered(&g, 1);
	rig_commit(&p, &file, 5000, 10);
	rig_commit(&p, &other, 0, 10);
	rig_commit_all(&p, RP_CLASS_POWER, 2, both);
	pthread_create(&opener, NULL, open_soon, NULL);
	rig_region_del(&g, &file);
	pthread_join(opener, NULL);
	/* The one that ran is answered for what it did. */
	rig_expect(p.x, t + 1, RP_ST_STALE_KEY);
	cr_assert_eq(rig_expect(p.x, t + 3, RP_ST_STALE_KEY).range, 1);
	rig_expect(p.x, t, RP_ST_OK);
	rig_run_worker(&g);
	rig_expect(p.x, t + 2, RP_ST_OK);
	stop();
}

/* A region that nobody uses does not wait for the disk of another. */
Test(worker, idle_region_goes_at_once)
{
	struct rig_peer p;

	start();
	p = rig_open(&g, 0, 1, &file);
	rig_close_gate(&g);
	rig_commit(&p, &file, 0, 10);
	rig_run(&g);
	rig_wait_entered(&g, 1);
	rig_region_del(&g, &other);
	rig_open_gate(&g);
	rig_run_worker(&g);
	rig_expect(p.x, p.token, RP_ST_OK);
	stop();
}

/* An endpoint goes: neither answered nor kicked; others still are. */
Test(worker, endpoint_goes_while_its_flush_runs)
{
	struct rig_peer p, q;

	start();
	p = rig_open(&g, 0, 1, &file);
	q = rig_open(&g, 1, 2, &file);
	rig_close_gate(&g);
	rig_commit(&p, &file, 0, 10);
	rig_run(&g);
	rig_wait_entered(&g, 1);
	rig_commit(&p, &file, 5000, 10);
	rig_commit(&q, &file, 9000, 10);
	rig_run(&g);
	rig_drop(&g, 0);
	cr_assert_eq(rp_agent_pending(g.a), 1);
	rig_open_gate(&g);
	while (!g.x[1].kicks)
		usleep(100);
	rig_run_worker(&g);
	rig_expect(q.x, q.token, RP_ST_OK);
	stop();
}

/* Everybody goes, the flush runs on, the region goes last. */
Test(worker, all_go_while_a_flush_runs)
{
	struct rig_peer p;
	pthread_t opener;

	start();
	p = rig_open(&g, 0, 1, &file);
	rig_close_gate(&g);
	rig_commit(&p, &file, 0, 10);
	rig_run(&g);
	rig_wait_entered(&g, 1);
	rig_bye(&p);
	rig_drop(&g, 0);
	rig_drop(&g, 1);
	cr_assert_eq(rp_agent_pending(g.a), 0);
	pthread_create(&opener, NULL, open_soon, NULL);
	rig_region_del(&g, &file);
	pthread_join(opener, NULL);
	cr_assert(!rp_agent_progress(g.a));
	stop();
}

/* One comes back under the same address while its old request runs. */
/* Nobody waits for it, nor tells the time; it is collected all the same. */
Test(worker, flush_outlives_all)
{
	struct rig_peer p;
	int i;

	start();
	p = rig_open(&g, 0, 1, &file);
	rig_close_gate(&g);
	rig_commit(&p, &file, 0, 10);
	rig_run(&g);
	rig_wait_entered(&g, 1);
	rig_drop(&g, 0);
	rig_drop(&g, 1);
	rig_open_gate(&g);
	for (i = 0; i < 10000 && !rp_agent_progress(g.a); i++)
		usleep(1000);
	cr_assert_lt(i, 10000);
	cr_assert_eq(file.r.busy, 0);
	stop();
}

Test(worker, client_goes_and_comes_again)
{
	struct rig_peer p;
	uint64_t t;

	start();
	p = rig_open(&g, 0, 1, &file);
	rig_close_gate(&g);
	rig_commit(&p, &file, 0, 10);
	rig_run(&g);
	rig_wait_entered(&g, 1);
	for (int i = 0; i < 100; i++) {
		rig_commit(&p, &file, 5000, 10);
		p = rig_open(&g, 0, 1, &file);
	}
	cr_assert_eq(rig_stats(&g).sessions, 1);
	cr_assert_eq(rp_agent_pending(g.a), 0);
	t = rig_commit(&p, &file, 0, 10);
	rig_run(&g);
	rig_open_gate(&g);
	rig_run_worker(&g);
	rig_expect(p.x, t, RP_ST_OK);
	rig_expect_nothing(p.x);
	stop();
}

/* Ends in every order and at every moment, for the thread sanitizer. */
Test(worker, races)
{
	struct seeded s = seeded_start();

	for (int round = 0; round < 200; round++) {
		struct rig_peer p, q;

		start();
		p = rig_open(&g, 0, 1, &file);
		q = rig_open(&g, 1, 2, &file);
		for (int i = 0; i < 20; i++) {
			switch (seeded_below(&s, 8)) {
			case 0:
			case 1:
				if (!file.gone)
					rig_request(
						&p, RP_LEVEL_DURABLE,
						RP_CLASS_POWER, 1,
						&(struct rp_wire_range){
							file.r.key, 0, 100});
				break;
			case 2:
				if (!other.gone)
					rig_request(
						&q, RP_LEVEL_DURABLE,
						RP_CLASS_POWER, 1,
						&(struct rp_wire_range){
							other.r.key, 0, 100});
				break;
			case 3:
				rig_bye(&p);
				if (!dax.gone)
					p = rig_open(&g, 0, 1, &dax);
				break;
			case 4:
				if (!seeded_below(&s, 4) && !file.gone)
					rig_region_del(&g, &file);
				break;
			case 5:
				usleep(seeded_below(&s, 50));
				break;
			default:
				rp_agent_progress(g.a);
			}
			while (g.x[0].first || g.x[1].first) {
				struct rig_msg m;

				rig_take(&g.x[g.x[0].first ? 0 : 1], &m);
			}
		}
		stop();
	}
}
