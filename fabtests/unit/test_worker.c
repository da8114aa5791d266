/* SPDX-License-Identifier: BSD-2-Clause */
/* Flushes that block: the worker, heartbeats, and ends during a flush. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "agent_bed.h"
#include "core/thread.h"
#include "seeded.h"

static struct bed g;
static struct bed_region file, other, dax;
static struct bed_region *const all[] = {&file, &other, &dax};

static void start(void)
{
	const struct rp_agent_attr attr = {.incarnation = BED_INCARNATION};

	bed_init(&g, &attr);
	bed_region(&g, &file, RP_METHOD_AGENT_MSYNC, 8);
	bed_region(&g, &other, RP_METHOD_AGENT_MSYNC, 8);
	bed_region(&g, &dax, RP_METHOD_AGENT_CLWB, 8);
}

static void stop(void)
{
	bed_open_gate(&g);
	for (int i = 0; i < 3; i++)
		if (!all[i]->gone)
			bed_region_del(&g, all[i]);
	bed_fini(&g);
}

static unsigned int ends;
static enum rp_status end_status;

static void on_ended(void *arg, enum rp_status st, uint32_t detail)
{
	ends++;
	end_status = st;
}

/* Open the gate later, while the test waits inside the agent. */
static void *open_soon(void *arg)
{
	usleep(20000);
	bed_open_gate(&g);
	return arg;
}

static void *signals_of_thread(void *arg)
{
	pthread_sigmask(SIG_SETMASK, NULL, arg);
	return NULL;
}

/*
 * A signal of the program goes to a thread of the program. A fault kills the
 * process, without the program's handler, in a thread that blocks its signal.
 */
Test(worker, thread_takes_no_signal_but_its_faults)
{
	pthread_t thread;
	sigset_t mask;

	sigemptyset(&mask);
	cr_assert_not(rp_thread_start(&thread, signals_of_thread, &mask));
	pthread_join(thread, NULL);
	cr_assert(!sigismember(&mask, SIGBUS) && !sigismember(&mask, SIGSEGV));
	cr_assert(sigismember(&mask, SIGTERM) && sigismember(&mask, SIGALRM));
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	cr_assert(!sigismember(&mask, SIGTERM));
}

Test(worker, progress_never_waits)
{
	struct bed_peer p, q;
	uint64_t t, u;

	start();
	p = bed_connect_all(&g, all, 3);
	q = bed_connect_all(&g, all, 3);
	bed_close_gate(&g);
	t = bed_commit(&p, &file, 0, 10);
	cr_assert_eq(rp_agent_deadline(g.a), 0);
	bed_run(&g);
	bed_wait_entered(&g, 1);
	bed_run(&g);
	bed_expect_nothing(&p);
	cr_assert_eq(g.kicks, 0);
	/* Meanwhile a request that does not block gets its reply. */
	u = bed_commit(&q, &dax, 0, 10);
	bed_expect(&q, u, RP_ST_OK);

	bed_open_gate(&g);
	while (!g.kicks)
		usleep(100);
	bed_expect_nothing(&p);
	cr_assert(rp_agent_progress(g.a));
	bed_expect(&p, t, RP_ST_OK);
	cr_assert_not(rp_agent_progress(g.a));
	cr_assert_eq(g.checked, 2);
	cr_assert_eq(rp_agent_backlog(g.a), 0);
	stop();
}

Test(worker, queued_requests_are_the_next_batch)
{
	struct bed_peer p, q;
	uint64_t t;

	start();
	p = bed_connect_all(&g, all, 3);
	q = bed_connect_all(&g, all, 3);
	bed_close_gate(&g);
	t = bed_commit(&p, &file, 0, 10);
	bed_run(&g);
	bed_wait_entered(&g, 1);
	for (int i = 0; i < 10; i++) {
		bed_commit(&p, &file, 5000 + 10 * i, 10);
		bed_commit(&q, &other, 10 * i, 10);
		bed_run(&g);
	}
	bed_open_gate(&g);
	bed_run_worker(&g);
	cr_assert_eq(file.syncs, 2);
	cr_assert_eq(other.syncs, 1);
	for (int i = 0; i <= 10; i++)
		bed_expect(&p, t + i, RP_ST_OK);
	cr_assert_eq(g.checked, 21);
	stop();
}

/* One request has ranges in both kinds of memory. */
Test(worker, request_of_two_methods_gets_one_reply)
{
	const struct bed_at at[] = {
		{&dax, 100, 10}, {&file, 0, 10}, {&dax, 9000, 10}};
	struct rp_wire_reply r;
	struct bed_peer p;

	start();
	p = bed_connect_all(&g, all, 3);
	bed_close_gate(&g);
	bed_commit_all(&p, RP_CLASS_POWER, 3, at);
	bed_run(&g);
	bed_expect_nothing(&p);
	bed_open_gate(&g);
	bed_run_worker(&g);
	bed_expect(&p, p.token, RP_ST_OK);
	cr_assert_eq(g.checked, 3);

	file.sync_ret = -EIO;
	bed_commit_all(&p, RP_CLASS_POWER, 3, at);
	bed_run_worker(&g);
	r = bed_expect(&p, p.token, RP_ST_FLUSH_FAILED);
	cr_assert_eq(r.range, 1);
	cr_assert_eq(r.detail, EIO);
	stop();
}

/* The kernel reports an error once, so queued flushes fail without msync. */
Test(worker, failure_reaches_queued_requests)
{
	struct bed_peer p;
	uint64_t t;

	start();
	p = bed_connect_all(&g, all, 3);
	file.sync_ret = -EIO;
	bed_close_gate(&g);
	t = bed_commit(&p, &file, 0, 10);
	bed_run(&g);
	bed_wait_entered(&g, 1);
	bed_commit(&p, &file, 5000, 10);
	bed_commit(&p, &other, 0, 10);
	bed_run(&g);
	bed_open_gate(&g);
	bed_run_worker(&g);
	bed_expect(&p, t, RP_ST_FLUSH_FAILED);
	bed_expect(&p, t + 1, RP_ST_REGION_FAILED);
	bed_expect(&p, t + 2, RP_ST_OK);
	cr_assert_eq(file.syncs, 1);
	stop();
}

static struct bed_peer peer_with_timeout(uint32_t timeout_ms)
{
	struct rp_wire_hello hello = bed_hello(file.r.key);
	struct bed_request *r;
	struct bed_peer p;

	hello.timeout_ms = timeout_ms;
	r = bed_connect_request(&g, &hello);
	p = bed_accepted(r);
	free(r);
	return p;
}

static void expect_heartbeat(struct bed_peer *p)
{
	struct bed_msg m;

	bed_run(&g);
	cr_assert(bed_take(p, &m), "no heartbeat");
	cr_assert_eq(m.hdr.type, RP_MSG_PROGRESS);
}

static void expect_silence(struct bed_peer *p)
{
	cr_assert_not(rp_agent_progress(g.a));
	bed_expect_nothing(p);
}

/* The heartbeats of a request start after the reply to the one before. */
Test(worker, heartbeats_of_the_next)
{
	struct bed_peer p;
	uint64_t t0, t;

	start();
	p = peer_with_timeout(3000);
	bed_close_gate(&g);
	t0 = g.now;
	t = bed_commit(&p, &file, 0, 10);
	bed_run(&g);
	bed_wait_entered(&g, 1);
	g.now = t0 + 500 * BED_MS;
	bed_commit(&p, &file, 0, 10);
	expect_silence(&p);
	bed_open_gate(&g);
	while (!g.kicks)
		usleep(100);
	bed_close_gate(&g);
	cr_assert(rp_agent_progress(g.a));
	bed_expect(&p, t, RP_ST_OK);
	bed_wait_entered(&g, 2);
	g.now = t0 + 1000 * BED_MS;
	expect_silence(&p);
	cr_assert_eq(rp_agent_deadline(g.a), t0 + 1500 * BED_MS);
	g.now = t0 + 1500 * BED_MS;
	expect_heartbeat(&p);
	bed_open_gate(&g);
	bed_run_worker(&g);
	bed_expect(&p, t + 1, RP_ST_OK);
	stop();
}

/* The interval is a third of the initiator's timeout, 10 ms to 60 s. */
Test(worker, heartbeats)
{
	struct bed_peer slow, quick, last;
	struct bed_msg m;
	uint64_t t0, u;

	start();
	slow = peer_with_timeout(3000);
	quick = peer_with_timeout(1);
	last = peer_with_timeout(UINT32_MAX);
	bed_close_gate(&g);
	t0 = g.now;
	u = bed_commit(&slow, &file, 0, 10);
	bed_run(&g);
	bed_wait_entered(&g, 1);
	cr_assert_eq(rp_agent_deadline(g.a), t0 + 1000 * BED_MS);
	g.now = t0 + 500 * BED_MS;
	bed_commit(&slow, &file, 100, 10);
	bed_commit(&quick, &file, 0, 10);
	bed_commit(&last, &file, 0, 10);
	expect_silence(&slow);
	cr_assert_eq(rp_agent_deadline(g.a), t0 + 510 * BED_MS);

	g.now = t0 + 510 * BED_MS - 1;
	expect_silence(&quick);
	g.now++;
	expect_heartbeat(&quick);
	expect_silence(&quick);
	expect_silence(&slow);
	cr_assert_eq(rp_agent_deadline(g.a), t0 + 520 * BED_MS);
	g.now = t0 + 1000 * BED_MS - 1;
	expect_heartbeat(&quick);
	expect_silence(&slow);
	g.now++;
	expect_heartbeat(&slow);
	expect_silence(&slow);
	g.now = t0 + 2000 * BED_MS;
	expect_heartbeat(&slow);
	expect_heartbeat(&quick);
	expect_silence(&quick);
	cr_assert_eq(bed_stats(&g).progress_sent, 5);

	g.now = t0 + 60500 * BED_MS - 1;
	expect_heartbeat(&quick);
	bed_expect_nothing(&last);
	g.now++;
	expect_heartbeat(&last);
	cr_assert(bed_take(&slow, &m));

	bed_open_gate(&g);
	bed_run_worker(&g);
	bed_expect(&slow, u, RP_ST_OK);
	bed_expect(&slow, u + 1, RP_ST_OK);
	bed_expect(&quick, quick.token, RP_ST_OK);
	bed_expect(&last, last.token, RP_ST_OK);
	cr_assert_eq(rp_agent_deadline(g.a), UINT64_MAX);

	/* The next request starts its own clock for heartbeats. */
	bed_close_gate(&g);
	bed_commit(&slow, &file, 0, 10);
	bed_run(&g);
	expect_silence(&slow);
	cr_assert_eq(rp_agent_deadline(g.a), g.now + 1000 * BED_MS);
	g.now += 1000 * BED_MS;
	/* Without room in the channel only one heartbeat is queued. */
	slow.c->room = 0;
	for (int i = 0; i < 20; i++) {
		cr_assert_eq(rp_agent_progress(g.a), !i);
		g.now += 1000 * BED_MS;
	}
	cr_assert_eq(rp_agent_backlog(g.a), 2);
	slow.c->room = -1;
	expect_heartbeat(&slow);
	stop();
}

/* After rp_agent_region_del() the region's memory may be released. */
Test(worker, deregistration_waits_for_its_flush)
{
	const struct rp_local at = {&file.r, 8192, 8};
	struct bed_peer p, q;
	pthread_t opener;

	start();
	p = bed_connect(&g, &file);
	q = bed_connect(&g, &other);
	bed_close_gate(&g);
	bed_commit(&p, &file, 0, 10);
	bed_run(&g);
	bed_wait_entered(&g, 1);
	bed_commit(&p, &file, 5000, 10);
	bed_commit(&q, &other, 0, 10);
	cr_assert_eq(rp_agent_local_flush(g.a, &at, 1, on_ended, NULL), 0);
	pthread_create(&opener, NULL, open_soon, NULL);
	bed_region_del(&g, &file);
	pthread_join(opener, NULL);
	/* The region's sessions are closed; its local flush gets an outcome. */
	cr_assert(p.c->closed);
	cr_assert_eq(ends, 1);
	cr_assert_eq(end_status, RP_ST_STALE_KEY);
	bed_expect_nothing(&p);
	bed_run_worker(&g);
	bed_expect(&q, q.token, RP_ST_OK);
	stop();
}

/* A local flush that does not block does not wait for the disk. */
Test(worker, local_flush_beside_a_disk)
{
	const struct rp_local at = {&dax.r, 0, 8};
	struct bed_peer p;

	start();
	p = bed_connect(&g, &file);
	bed_close_gate(&g);
	bed_commit(&p, &file, 0, 10);
	bed_run(&g);
	bed_wait_entered(&g, 1);
	cr_assert_eq(rp_agent_local_flush(g.a, &at, 1, on_ended, NULL), 0);
	cr_assert_eq(rp_agent_deadline(g.a), 0);
	cr_assert(rp_agent_progress(g.a));
	cr_assert_eq(ends, 1);
	cr_assert_eq(end_status, RP_ST_OK);
	bed_expect_nothing(&p);
	bed_open_gate(&g);
	bed_run_worker(&g);
	bed_expect(&p, p.token, RP_ST_OK);
	stop();
}

/* Deregistration does not wait for the msync of another region. */
Test(worker, idle_region_is_deregistered_at_once)
{
	struct bed_peer p;

	start();
	p = bed_connect(&g, &file);
	bed_close_gate(&g);
	bed_commit(&p, &file, 0, 10);
	bed_run(&g);
	bed_wait_entered(&g, 1);
	bed_region_del(&g, &other);
	bed_open_gate(&g);
	bed_run_worker(&g);
	bed_expect(&p, p.token, RP_ST_OK);
	stop();
}

/* A closed session gets no reply; other sessions get theirs. */
Test(worker, session_ends_while_its_flush_runs)
{
	struct bed_peer p, q;

	start();
	p = bed_connect(&g, &file);
	q = bed_connect(&g, &file);
	bed_close_gate(&g);
	bed_commit(&p, &file, 0, 10);
	bed_run(&g);
	bed_wait_entered(&g, 1);
	bed_commit(&p, &file, 5000, 10);
	bed_commit(&q, &file, 9000, 10);
	bed_run(&g);
	bed_lose(&p);
	cr_assert_eq(rp_agent_backlog(g.a), 1);
	bed_open_gate(&g);
	bed_run_worker(&g);
	bed_expect(&q, q.token, RP_ST_OK);
	bed_expect_nothing(&p);
	stop();
}

/* All sessions end during a flush, and the region ends last. */
Test(worker, all_sessions_end_while_a_flush_runs)
{
	struct bed_peer p;
	pthread_t opener;

	start();
	p = bed_connect(&g, &file);
	bed_close_gate(&g);
	bed_commit(&p, &file, 0, 10);
	bed_run(&g);
	bed_wait_entered(&g, 1);
	rp_agent_close_sessions(g.a);
	cr_assert_eq(rp_agent_backlog(g.a), 0);
	pthread_create(&opener, NULL, open_soon, NULL);
	bed_region_del(&g, &file);
	pthread_join(opener, NULL);
	cr_assert(!rp_agent_progress(g.a));
	stop();
}

/* The flush has no session any more, but its batch is collected. */
Test(worker, batch_without_sessions_is_collected)
{
	struct bed_peer p;
	int i;

	start();
	p = bed_connect(&g, &file);
	bed_close_gate(&g);
	bed_commit(&p, &file, 0, 10);
	bed_run(&g);
	bed_wait_entered(&g, 1);
	bed_lose(&p);
	bed_open_gate(&g);
	for (i = 0; i < 10000 && !rp_agent_progress(g.a); i++)
		usleep(1000);
	cr_assert_lt(i, 10000);
	cr_assert_eq(file.r.busy, 0);
	stop();
}

static void request_commit(struct bed_peer *p, const struct bed_region *m)
{
	const struct rp_wire_range r = {m->r.key, 0, 100};

	bed_request(p, RP_LEVEL_DURABLE, RP_CLASS_POWER, 1, &r);
}

/* Sessions and regions end in any order, for the thread sanitizer. */
Test(worker, ends_at_any_moment)
{
	struct seeded s = seeded_start();

	for (int round = 0; round < 200; round++) {
		struct bed_peer p, q;
		struct bed_msg m;

		start();
		p = bed_connect(&g, &file);
		q = bed_connect(&g, &other);
		for (int i = 0; i < 20; i++) {
			switch (seeded_below(&s, 8)) {
			case 0:
			case 1:
				if (!p.c->closed)
					request_commit(&p, &file);
				break;
			case 2:
				if (!q.c->closed)
					request_commit(&q, &other);
				break;
			case 3:
				if (!p.c->closed)
					bed_lose(&p);
				if (!file.gone)
					p = bed_connect(&g, &file);
				break;
			case 4:
				if (!seeded_below(&s, 4) && !file.gone)
					bed_region_del(&g, &file);
				break;
			case 5:
				usleep(seeded_below(&s, 50));
				break;
			default:
				rp_agent_progress(g.a);
			}
			while (bed_take(&p, &m) || bed_take(&q, &m))
				;
		}
		stop();
	}
}
