/* SPDX-License-Identifier: BSD-2-Clause */
/* An agent that cannot allocate memory or create a thread. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#include "agent_bed.h"

/* Wrapped by the linker: reallocs before all fail; -1: no limit. */
static int reallocs = -1;
static int fails = -1; /* allocations that succeed before one fails */
static int create_ret; /* what pthread_create() returns: an errno */

static bool allocation_fails(void)
{
	return fails >= 0 && !fails--;
}

void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size)
{
	if (!reallocs || allocation_fails())
		return NULL;
	if (reallocs > 0)
		reallocs--;
	return __real_realloc(p, size);
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return allocation_fails() ? NULL : __real_calloc(n, size);
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
	return allocation_fails() ? NULL : __real_malloc(size);
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

static struct bed g;
static struct bed_region file, other, dax;
static struct bed_peer p;

static const struct rp_agent_attr attr = {.incarnation = BED_INCARNATION};

static struct bed_region *const all[] = {&file, &other, &dax};

static void start(void)
{
	bed_init(&g, &attr);
	bed_region(&g, &file, RP_METHOD_AGENT_MSYNC, 32);
	bed_region(&g, &other, RP_METHOD_AGENT_MSYNC, 8);
	bed_region(&g, &dax, RP_METHOD_AGENT_CLWB, 8);
	p = bed_connect_all(&g, all, 3);
}

static void stop(void)
{
	for (int i = 0; i < 3; i++)
		if (!all[i]->gone)
			bed_region_del(&g, all[i]);
	bed_fini(&g);
}

TestSuite(agent_scarce, .init = start, .fini = stop);

/* The request must be refused, and none of its ranges may stay queued. */
static void expect_refused(const struct bed_at *at, size_t n)
{
	struct rp_wire_reply r;
	uint64_t t = bed_commit_all(&p, RP_CLASS_POWER, n, at);

	bed_run_worker(&g);
	r = bed_expect(&p, t, RP_ST_OVERLOADED);
	cr_assert_eq(r.detail, 0);
	cr_assert_eq(r.range, 0);
	reallocs = -1;
}

Test(agent_scarce, no_memory_to_merge)
{
	const struct bed_at mixed[] = {{&dax, 0, 1}, {&file, 0, 1}};
	const struct bed_at two[] = {{&dax, 999, 1}, {&dax, 0, 1}};
	const struct bed_at apart[] = {{&dax, 0, 1}, {&dax, 999, 1}};
	uint64_t t;

	reallocs = 0;
	expect_refused(mixed, 2);
	/* Refuse a request that does not block, for the same reason. */
	reallocs = 0;
	t = bed_commit_all(&p, RP_CLASS_POWER, 2, two);
	bed_expect(&p, t, RP_ST_OVERLOADED);
	/* A request whose ranges need no merging allocates nothing. */
	t = bed_commit_all(&p, RP_CLASS_POWER, 2, apart);
	bed_expect(&p, t, RP_ST_OK);
	reallocs = -1;
	t = bed_commit_all(&p, RP_CLASS_POWER, 2, two);
	bed_expect(&p, t, RP_ST_OK);
	bed_region_del(&g, &dax);
	p = bed_connect(&g, &file);
	t = bed_commit(&p, &file, 0, 1);
	bed_run_worker(&g);
	bed_expect(&p, t, RP_ST_OK);
}

Test(agent_scarce, no_memory_to_merge_all)
{
	struct bed_at many[9];
	uint64_t t;

	for (int i = 0; i < 9; i++)
		many[i] = (struct bed_at){&file, 8192 * i, 1};
	reallocs = 1;
	expect_refused(many, 9);
	/* The worker's next batch has no range of the refused request. */
	bed_region_del(&g, &file);
	p = bed_connect(&g, &other);
	t = bed_commit(&p, &other, 0, 1);
	bed_run_worker(&g);
	bed_expect(&p, t, RP_ST_OK);
	cr_assert_eq(other.syncs, 1);
}

/* A refused request keeps its regions until the worker has flushed them. */
Test(agent_scarce, no_memory_to_merge_all_keeps_regions)
{
	struct bed_at many[9] = {{&other, 0, 1}};
	uint64_t t[2];

	for (int i = 1; i < 9; i++)
		many[i] = (struct bed_at){&file, 8192 * i, 1};
	reallocs = 1;
	bed_close_gate(&g);
	t[0] = bed_commit_all(&p, RP_CLASS_POWER, 9, many);
	/* Merging this range into that of the first request needs no memory. */
	t[1] = bed_commit(&p, &other, 0, 1);
	bed_run(&g);
	bed_wait_entered(&g, 1);
	cr_assert_gt(file.r.busy, 0);
	bed_open_gate(&g);
	bed_run_worker(&g);
	bed_expect(&p, t[0], RP_ST_OVERLOADED);
	bed_expect(&p, t[1], RP_ST_OK);
	cr_assert_eq(file.r.busy, 0);
}

/* An executed store cannot be refused: the peer would repeat it. */
Test(agent_scarce, no_memory_to_flush_a_store)
{
	struct rp_wire_reply r;
	uint64_t t;

	reallocs = 0;
	t = bed_inline(&p, RP_LEVEL_DURABLE, (struct bed_at){&file, 0, 8}, 1);
	bed_run_worker(&g);
	r = bed_expect(&p, t, RP_ST_FLUSH_FAILED);
	cr_assert_eq(r.detail, ENOMEM);
	reallocs = -1;
}

Test(agent_scarce, no_memory_for_a_job)
{
	const struct rp_wire_range r = {file.r.key, 0, 1};
	uint64_t t;

	fails = 1; /* allocating the message succeeds */
	t = bed_request(&p, RP_LEVEL_DURABLE, RP_CLASS_POWER, 1, &r);
	cr_assert_eq(fails, -1);
	bed_expect(&p, t, RP_ST_OVERLOADED);
	cr_assert_eq(rp_agent_backlog(g.a), 0);
}

/* If one allocation fails, the connection is refused without leaks. */
Test(agent_scarce, no_memory_for_a_session)
{
	const struct rp_wire_hello hello = bed_hello(dax.r.key);
	struct bed_request *r;
	int n;

	/* Fail the n-th allocation, until the request is accepted. */
	for (n = 1;; n++) {
		stop();
		bed_init(&g, &attr);
		bed_region(&g, &dax, RP_METHOD_AGENT_CLWB, 8);
		struct rp_wire_hello h = hello;

		h.key = dax.r.key;
		fails = n;
		r = bed_connect_request(&g, &h);
		if (fails >= 0)
			break;
		/* The last allocation is that of the host, for the channel. */
		cr_assert(r->refused);
		cr_assert(r->ack.status == RP_ST_OVERLOADED ||
			  r->ack.status == RP_ST_OK);
		free(r);
		cr_assert_eq(g.a->nsessions, 0);
		cr_assert_not(rp_agent_progress(g.a));
		bed_connect(&g, &dax);
	}
	fails = -1;
	cr_assert(r->accepted);
	cr_assert_gt(n, 5);
	free(r);
}

/* A reply that cannot be queued ends the session: the peer waits for it. */
Test(agent_scarce, no_memory_for_a_reply)
{
	p.c->room = 0;
	fails = 1; /* the second allocation fails */
	bed_request(&p, RP_LEVEL_VISIBLE, RP_CLASS_NONE, 0, NULL);
	cr_assert_eq(fails, -1);
	cr_assert_eq(rp_agent_backlog(g.a), 0);
	bed_run(&g);
	cr_assert(p.c->closed);
}

/* A message that cannot be deferred ends the session. */
Test(agent_scarce, no_memory_to_stay_behind)
{
	bed_close_gate(&g);
	bed_ordered_store(&p, (struct bed_at){&file, 0, 8}, &dax, 64, 1);
	fails = 1;
	bed_inline(&p, RP_LEVEL_VISIBLE, (struct bed_at){&dax, 64, 8}, 2);
	cr_assert_eq(fails, -1);
	bed_open_gate(&g);
	bed_run(&g);
	cr_assert(p.c->closed);
	cr_assert_eq(dax.stores, 0);
}

/* If a refusal cannot be queued for later, the agent sends it at once. */
Test(agent_scarce, no_memory_for_a_refusal)
{
	const struct rp_wire_hello hello = bed_hello(bed_unknown_key());
	const struct rp_wire_query q = {.key = hello.key};
	struct bed_request *r;
	uint8_t buf[64];

	fails = 1; /* allocating the request succeeds */
	r = bed_connect_request(&g, &hello);
	cr_assert_eq(fails, -1);
	bed_refused(r, RP_ST_STALE_KEY);
	free(r);
	fails = 1;
	bed_recv(&p, buf, rp_wire_put_query(buf, sizeof(buf), 1, &q));
	cr_assert_eq(fails, -1);
	bed_run(&g);
	cr_assert(p.c->closed);
	cr_assert_eq(bed_stats(&g).wrong_keys, 2);
}

/* An agent without a worker thread flushes in the thread that calls it. */
Test(agent_scarce, no_thread)
{
	uint64_t t;

	create_ret = EAGAIN;
	for (unsigned int i = 1; i < 3; i++) {
		t = bed_commit(&p, &file, 0, 1);
		bed_run(&g);
		bed_expect(&p, t, RP_ST_OK);
		cr_assert_eq(file.syncs, i);
		cr_assert_eq(rp_agent_backlog(g.a), 0);
	}
	file.sync_ret = -EIO;
	t = bed_commit(&p, &file, 0, 1);
	bed_run(&g);
	bed_expect(&p, t, RP_ST_FLUSH_FAILED);
	/* From now on the worker thread can be created. */
	create_ret = 0;
	t = bed_commit(&p, &other, 0, 1);
	bed_run_worker(&g);
	bed_expect(&p, t, RP_ST_OK);
	cr_assert_eq(g.checked, 3);
}

static void never_called(void *arg, enum rp_status st, uint32_t detail)
{
	cr_assert(false, "a refused flush was reported");
}

/* A local flush of several ranges is accepted as a whole or not at all. */
Test(agent_scarce, no_memory_for_local)
{
	const struct rp_local at = {&file.r, 0, 64};
	uint64_t t;

	fails = 0;
	cr_assert_eq(rp_agent_local_flush(g.a, &at, 1, never_called, NULL),
		     -ENOMEM);
	fails = -1;
	bed_region_del(&g, &file);
	p = bed_connect(&g, &other);
	t = bed_commit(&p, &other, 0, 1);
	bed_run_worker(&g);
	bed_expect(&p, t, RP_ST_OK);
}
