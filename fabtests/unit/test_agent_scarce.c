/* SPDX-License-Identifier: BSD-2-Clause */
/* An agent that gets no more memory, or no thread. */
#include <errno.h>
#include <pthread.h>

#include <criterion/criterion.h>

#include "agent_rig.h"

/* Linked with --wrap: memory for merging ends after so many; -1: never. */
static int reallocs = -1;
static int fails = -1; /* so many other pieces, then one is not there */
static int create_ret; /* positive errno */

static bool fail(void)
{
	return fails >= 0 && !fails--;
}

void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size)
{
	if (!reallocs || fail())
		return NULL;
	if (reallocs > 0)
		reallocs--;
	return __real_realloc(p, size);
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return fail() ? NULL : __real_calloc(n, size);
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
	return fail() ? NULL : __real_malloc(size);
}

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a,
			  void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a,
			  void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a,
			  void *(*run)(void *), void *arg)
{
	return create_ret ? create_ret : __real_pthread_create(t, a, run, arg);
}

static struct rig g;
static struct rig_region file, other, dax;
static struct rig_peer p;

static const struct rp_agent_attr attr = {.incarnation = RIG_INCARNATION};

static void start(void)
{
	rig_init(&g, &attr);
	rig_region(&g, &file, RP_METHOD_AGENT_MSYNC, 32);
	rig_region(&g, &other, RP_METHOD_AGENT_MSYNC, 8);
	rig_region(&g, &dax, RP_METHOD_AGENT_CLWB, 8);
	p = rig_open(&g, 0, 1, &file);
}

static void stop(void)
{
	struct rig_region *all[] = {&file, &other, &dax};

	for (int i = 0; i < 3; i++)
		if (!all[i]->gone)
			rig_region_del(&g, all[i]);
	rig_fini(&g);
}

TestSuite(agent_scarce, .init = start, .fini = stop);

/* Refused, and nothing of it stays behind. */
static void refused(const struct rig_at *at, size_t n)
{
	struct rp_wire_reply r;
	uint64_t t = rig_commit_all(&p, RP_CLASS_POWER, n, at);

	rig_run(&g);
	r = rig_expect(p.x, t, RP_ST_OVERLOADED);
	cr_assert_eq(r.detail, 0);
	cr_assert_eq(r.range, 0);
	cr_assert_eq(rp_agent_pending(g.a), 0);
	reallocs = -1;
}

Test(agent_scarce, no_memory_to_merge)
{
	const struct rig_at mixed[] = {{&dax, 0, 1}, {&file, 0, 1}};
	uint64_t t;

	reallocs = 0;
	refused(mixed, 2);
	rig_region_del(&g, &dax);
	t = rig_commit(&p, &file, 0, 1);
	rig_run_worker(&g);
	rig_expect(p.x, t, RP_ST_OK);
}

Test(agent_scarce, no_memory_to_merge_all)
{
	struct rig_at many[9];
	uint64_t t;

	for (int i = 0; i < 9; i++)
		many[i] = (struct rig_at){&file, 8192 * i, 1};
	reallocs = 1;
	refused(many, 9);
	/* What was merged before is not in the worker's next batch. */
	rig_region_del(&g, &file);
	t = rig_commit(&p, &other, 0, 1);
	rig_run_worker(&g);
	rig_expect(p.x, t, RP_ST_OK);
	cr_assert_eq(other.syncs, 1);
}

Test(agent_scarce, no_memory_for_a_request)
{
	const struct rp_wire_range r = {file.r.key, 0, 1};
	uint64_t t;

	fails = 1; /* the message itself is in memory */
	t = rig_request(&p, RP_LEVEL_DURABLE, RP_CLASS_POWER, 1, &r);
	cr_assert_eq(fails, -1);
	rig_expect(p.x, t, RP_ST_OVERLOADED);
	cr_assert_eq(rp_agent_pending(g.a), 0);
}

/* To remember the effects of a session: it is asked for again. */
Test(agent_scarce, no_memory_for_effects)
{
	struct rig_effect e = {
		.effect = RP_EFFECT_THEN,
		.seq = 1,
		.then = {dax.r.key, 64, 1},
		.at = {&dax, 0, 8},
	};

	fails = 1; /* the message itself is in memory */
	e.token = rig_send_effect(&p, &e);
	cr_assert_eq(fails, -1);
	rig_expect(p.x, e.token, RP_ST_OVERLOADED);
	rig_send_effect(&p, &e);
	rig_run(&g);
	rig_expect(p.x, e.token, RP_ST_OK);
	cr_assert_eq(dax.stores, 1);
}

/* Whatever was not to be had, nothing of the client is left. */
Test(agent_scarce, no_memory_for_a_client)
{
	struct rig_peer q = {.g = &g, .x = &g.x[1], .id = 2, .cookie = 5};

	/* Its own, its endpoint's, two tables of two pieces each. */
	for (int n = 1; n <= 6; n++) {
		stop();
		rig_init(&g, &attr);
		file.gone = other.gone = dax.gone = true;
		fails = n;
		rig_hello(&q);
		cr_assert_eq(fails, -1);
		rig_expect_nothing(q.x);
		cr_assert_eq(q.x->open, 0);
		cr_assert_eq(rig_stats(&g).half_open, 0);
		cr_assert_not(rp_agent_progress(g.a));
		rig_connect(&g, 1, 2);
		cr_assert_eq(rig_stats(&g).half_open, 1);
	}
}

/* An endpoint without a client has nothing to be woken for. */
Test(agent_scarce, no_way_to_a_client)
{
	struct rig_peer q = {.g = &g, .x = &g.x[1], .id = 2, .cookie = 5};
	uint64_t t;

	q.x->get_ret = -EINVAL;
	rig_hello(&q);
	t = rig_commit(&p, &file, 0, 1);
	rig_run_worker(&g);
	rig_expect(p.x, t, RP_ST_OK);
	cr_assert_gt(p.x->kicks, 0);
	cr_assert_eq(q.x->kicks, 0);
}

/* To keep an answer that cannot be sent: it is asked for again. */
Test(agent_scarce, no_memory_for_an_answer)
{
	const struct rp_wire_range r = {file.r.key, 0, 1};
	uint64_t t;

	g.x[0].send_ret = -EAGAIN;
	fails = 2; /* behind the message and the request */
	rig_request(&p, RP_LEVEL_VISIBLE, RP_CLASS_NONE, 1, &r);
	cr_assert_eq(fails, -1);
	cr_assert_eq(rp_agent_pending(g.a), 0);
	g.x[0].send_ret = 0;
	rig_run(&g);
	rig_expect_nothing(p.x);
	p.token--;
	t = rig_request(&p, RP_LEVEL_VISIBLE, RP_CLASS_NONE, 1, &r);
	rig_expect(p.x, t, RP_ST_OK);
}

/* Slow is better than never. */
Test(agent_scarce, no_thread)
{
	uint64_t t;

	create_ret = EAGAIN;
	for (unsigned int i = 1; i < 3; i++) {
		t = rig_commit(&p, &file, 0, 1);
		rig_run(&g);
		rig_expect(p.x, t, RP_ST_OK);
		cr_assert_eq(file.syncs, i);
		cr_assert_eq(rp_agent_pending(g.a), 0);
	}
	file.sync_ret = -EIO;
	t = rig_commit(&p, &file, 0, 1);
	rig_run(&g);
	rig_expect(p.x, t, RP_ST_FLUSH_FAILED);
	/* There is one now. */
	create_ret = 0;
	t = rig_commit(&p, &other, 0, 1);
	rig_run_worker(&g);
	rig_expect(p.x, t, RP_ST_OK);
	cr_assert_eq(g.checked, 3);
}

static void nobody(void *arg, enum rp_status st, uint32_t detail)
{
	cr_assert(false, "told of a flush that was not taken");
}

/* A flush for this process is taken whole or not at all. */
Test(agent_scarce, no_memory_for_local)
{
	const struct rp_local at = {&file.r, 0, 64};
	uint64_t t;

	/* Endpoint 1 has no session, so watching it takes memory too. */
	for (int n = 0; n < 2; n++) {
		fails = n;
		cr_assert_eq(rp_agent_local_flush(g.a, &g.x[1].x, &at, 1,
						  nobody, NULL),
			     -ENOMEM);
		fails = -1;
	}
	rig_region_del(&g, &file);
	t = rig_commit(&p, &other, 0, 1);
	rig_run_worker(&g);
	rig_expect(p.x, t, RP_ST_OK);
}
