// SPDX-License-Identifier: BSD-2-Clause
/* Stores and notifications by the agent: behind their ranges, in order. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "agent_bed.h"

static struct bed g;
static struct bed_region file, dax, both, tmpfs;
static struct bed_region *const all[] = {&file, &dax, &both, &tmpfs};
static struct bed_peer p;

static const struct rp_agent_attr with_worker = {
	.incarnation = BED_INCARNATION,
};

static void start(const struct rp_agent_attr *attr)
{
	bed_init(&g, attr);
	bed_region(&g, &file, RP_METHOD_AGENT_MSYNC, 8);
	bed_region(&g, &dax, RP_METHOD_AGENT_CLWB, 8);
	bed_region(&g, &both, RP_METHOD_AGENT_CLWB_MSYNC, 8);
	bed_region(&g, &tmpfs, RP_METHOD_DELIVERY, 8);
	p = bed_connect_all(&g, all, 4);
}

static void stop(void)
{
	for (int i = 0; i < 4; i++)
		if (!all[i]->gone)
			bed_region_del(&g, all[i]);
	bed_fini(&g);
}

static unsigned int count_stores(void)
{
	return file.stores + dax.stores + both.stores + tmpfs.stores;
}

/* Try every pair of methods for range and store, with or without a worker. */
static void each_pair(bool worker)
{
	unsigned int n = 0;

	start(worker ? &with_worker : NULL);
	for (int i = 0; i < 4; i++) {
		for (int j = 0; j < 4; j++) {
			struct bed_region *a = all[i], *b = all[j];
			const uint64_t off = 8 * (40 + n);
			const uint64_t value = (n + 1) * 0x0101010101010101;
			struct rp_wire_reply r;
			uint64_t t;

			/*
			 * A store to tmpfs cannot reach the class of a range in
			 * another region.
			 */
			if (j == 3 && i != 3)
				continue;
			t = bed_ordered_store(&p, (struct bed_at){a, 4000, 500},
					      b, off, value);
			if (worker)
				bed_run_worker(&g);
			else
				bed_run(&g);
			r = bed_expect(&p, t, RP_ST_OK);
			cr_assert_eq(r.level, RP_LEVEL_DURABLE);
			cr_assert_eq(r.class, a->r.choice.class);
			/* Below class power a file is committed by delivery. */
			cr_assert(r.method >= b->r.choice.method ||
				  (i == 3 && j == 0));
			cr_assert_geq(r.method, a->r.choice.method);
			cr_assert_eq(count_stores(), ++n);
			cr_assert_eq(bed_value(b, off, false), value);
			if (b != &tmpfs && i != 3)
				cr_assert_eq(bed_value(b, off, true), value,
					     "stored, not flushed");
			memset(g.must_be_durable, 0, sizeof(g.must_be_durable));
		}
	}
	cr_assert_eq(bed_stats(&g).effects, count_stores());
	stop();
}

Test(effects, store_behind_each_method)
{
	each_pair(false);
}

Test(effects, store_on_the_worker)
{
	each_pair(true);
}

/* A refused request stores nothing. */
Test(effects, store_is_checked)
{
	struct bed_region odd, fixed;

	start(NULL);
	bed_region(&g, &odd, RP_METHOD_AGENT_CLWB, 1);
	odd.r.base = (char *)odd.r.base + 4;
	odd.r.len -= 4;
	bed_region(&g, &fixed, RP_METHOD_AGENT_CLWB, 1);
	fixed.r.writable = false;
	bed_query(&p, odd.r.key, 0);
	bed_query(&p, fixed.r.key, 0);
	const struct {
		struct bed_region *m;
		uint64_t addr;
		enum rp_status st;
		uint32_t detail;
	} bad[] = {
		{&file, file.r.len, RP_ST_RANGE, 0},
		{&file, file.r.len - 7, RP_ST_RANGE, 0},
		{&file, UINT64_MAX - 7, RP_ST_WRAP, 0},
		{&tmpfs, 0, RP_ST_CLASS, RP_CLASS_PROCESS},
		{&fixed, 0, RP_ST_ACCESS, 0},
		{&dax, 4, RP_ST_ALIGN, 0},
		{&odd, 0, RP_ST_ALIGN, 0},
		{&odd, 8, RP_ST_ALIGN, 0},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct rp_wire_reply r;

		r = bed_expect(&p,
			       bed_ordered_store(&p,
						 (struct bed_at){&dax, 0, 100},
						 bad[i].m, bad[i].addr, 1),
			       bad[i].st);
		cr_assert_eq(r.range, 1, "case %zu", i);
		cr_assert_eq(r.detail, bad[i].detail);
		cr_assert_eq(rp_agent_backlog(g.a), 0);
	}
	cr_assert_eq(count_stores() + odd.stores + fixed.stores, 0);
	cr_assert_eq(dax.flushes, 0);
	odd.r.base = (char *)odd.r.base - 4;
	bed_region_del(&g, &fixed);
	bed_region_del(&g, &odd);
	stop();
}

/* An ordered store may follow ranges of a region that peers may only read. */
Test(effects, store_behind_a_read_only_region)
{
	uint64_t t;

	start(NULL);
	both.r.writable = false;
	t = bed_ordered_store(&p, (struct bed_at){&both, 0, 64}, &dax, 64, 1);
	bed_run(&g);
	bed_expect(&p, t, RP_ST_OK);
	cr_assert_eq(dax.stores, 1);
	stop();
}

/* The stores of one batch follow its only flush, in order of arrival. */
Test(effects, stores_of_a_batch_follow_one_flush)
{
	struct bed_peer q;
	uint64_t t[8];

	start(NULL);
	q = bed_connect(&g, &file);
	for (int i = 0; i < 8; i++)
		t[i] = bed_ordered_store(i & 1 ? &q : &p,
					 (struct bed_at){&file, 0, 64}, &file,
					 4096 + 8 * (i / 2), 100 + i);
	bed_run(&g);
	for (int i = 0; i < 8; i++)
		bed_expect(i & 1 ? &q : &p, t[i], RP_ST_OK);
	cr_assert_eq(file.stores, 8);
	cr_assert_eq(file.syncs, 2, "%u syncs", file.syncs);
	/* The later one of two sessions' stores to the same bytes remains. */
	for (int i = 0; i < 4; i++)
		cr_assert_eq(bed_value(&file, 4096 + 8 * i, true),
			     101u + 2 * i);
	stop();
}

Test(effects, no_store_behind_a_failed_flush)
{
	struct rp_wire_reply r;
	uint64_t a, b, c;

	start(NULL);
	file.sync_ret = -EIO;
	a = bed_ordered_store(&p, (struct bed_at){&file, 0, 64}, &dax, 64, 1);
	/* Another request's range makes the region of this store fail. */
	b = bed_ordered_store(&p, (struct bed_at){&dax, 0, 64}, &file, 64, 1);
	memset(g.must_be_durable, 0, sizeof(g.must_be_durable));
	c = bed_ordered_store(&p, (struct bed_at){&dax, 0, 64}, &dax, 72, 1);
	bed_expect(&p, c, RP_ST_OK);
	bed_run(&g);
	r = bed_expect(&p, a, RP_ST_FLUSH_FAILED);
	cr_assert_eq(r.range, 0);
	r = bed_expect(&p, b, RP_ST_FLUSH_FAILED);
	cr_assert_eq(r.range, 1);
	cr_assert_eq(r.detail, EIO);
	cr_assert_eq(count_stores(), 1);
	/* Now the region has already failed when the request arrives. */
	b = bed_ordered_store(&p, (struct bed_at){&dax, 0, 64}, &file, 64, 1);
	r = bed_expect(&p, b, RP_ST_REGION_FAILED);
	cr_assert_eq(r.range, 1);
	cr_assert_eq(count_stores(), 1);
	stop();
}

Test(effects, flush_of_the_store_fails)
{
	struct rp_wire_reply r;
	uint64_t t;

	start(NULL);
	file.sync_ret = -ENOSPC;
	t = bed_ordered_store(&p, (struct bed_at){&dax, 0, 64}, &file, 64, 1);
	bed_run(&g);
	r = bed_expect(&p, t, RP_ST_FLUSH_FAILED);
	cr_assert_eq(r.range, 1, "the store is behind the only range");
	cr_assert_eq(r.detail, ENOSPC);
	cr_assert_eq(file.stores, 1);
	cr_assert_eq(file.r.failed, ENOSPC);
	stop();
}

/* The page of the store is unmapped; all other pages are valid. */
Test(effects, unmapped_memory_refuses_the_store)
{
	struct rp_wire_reply r;
	uint64_t t;

	start(NULL);
	if (madvise(tmpfs.mem, BED_PAGE, MADV_POPULATE_WRITE))
		cr_skip("this kernel cannot tell");
	cr_assert_eq(munmap(tmpfs.mem + 4 * BED_PAGE, BED_PAGE), 0);
	t = bed_ordered_store(&p, (struct bed_at){&tmpfs, 0, 64}, &tmpfs,
			      4 * BED_PAGE, 1);
	r = bed_expect(&p, t, RP_ST_FLUSH_FAILED);
	cr_assert_eq(r.range, 1);
	cr_assert_eq(r.detail, ENOMEM);
	cr_assert_eq(count_stores(), 0);
	stop();
}

/*
 * The program made the store's page read-only: the store is refused, and the
 * region does not fail.
 */
Test(effects, read_only_memory_refuses_the_store)
{
	struct rp_wire_reply r;
	uint64_t t;

	start(NULL);
	if (madvise(dax.mem, BED_PAGE, MADV_POPULATE_WRITE))
		cr_skip("this kernel cannot tell");
	for (int i = 0; i < 2; i++) {
		struct bed_region *m = i ? &file : &dax;

		cr_assert_eq(mprotect(m->mem + BED_PAGE, BED_PAGE, PROT_READ),
			     0);
		t = bed_ordered_store(&p, (struct bed_at){&both, 0, 64}, m,
				      BED_PAGE, 1);
		bed_run(&g);
		r = bed_expect(&p, t, RP_ST_ACCESS);
		cr_assert_eq(r.range, 1);
		cr_assert_eq(m->r.failed, 0);
	}
	cr_assert_eq(count_stores(), 0);
	stop();
}

/* The region of the ordered store fails while the job waits. */
Test(effects, region_of_the_store_fails)
{
	struct rp_wire_reply r;
	uint64_t t;

	start(NULL);
	t = bed_ordered_store(&p, (struct bed_at){&dax, 0, 64}, &file, 64, 1);
	file.r.failed = EIO;
	bed_run(&g);
	r = bed_expect(&p, t, RP_ST_REGION_FAILED);
	cr_assert_eq(r.range, 1);
	cr_assert_eq(count_stores(), 0);
	stop();
}

/* --- the end of a session --- */

/* An initiator's newer connection drops the jobs of its older one. */
Test(effects, newer_connection_drops_queued_stores)
{
	struct rp_wire_hello hello;
	struct bed_request *r;
	struct bed_peer q;

	start(NULL);
	hello = bed_hello(file.r.key);
	r = bed_connect_request(&g, &hello);
	p = bed_accepted(r);
	free(r);
	bed_ordered_store(&p, (struct bed_at){&file, 0, 64}, &file, 64, 1);
	r = bed_connect_request(&g, &hello);
	q = bed_accepted(r);
	free(r);
	bed_run(&g);
	bed_expect_nothing(&q);
	cr_assert_eq(count_stores(), 0);
	stop();
}

/* A connection lost during a job's flush drops the job's store. */
Test(effects, loss_drops_the_store_of_a_running_flush)
{
	uint64_t t;

	start(&with_worker);
	bed_close_gate(&g);
	bed_ordered_store(&p, (struct bed_at){&file, 0, 64}, &dax, 64, 1);
	bed_run(&g);
	bed_wait_entered(&g, 1);
	bed_lose(&p);
	cr_assert_eq(rp_agent_backlog(g.a), 0);
	p = bed_connect_all(&g, all, 4);
	/* A store of the new session does not wait for the msync. */
	t = bed_ordered_store(&p, (struct bed_at){&dax, 0, 64}, &dax, 64, 2);
	memset(g.must_be_durable, 0, sizeof(g.must_be_durable));
	bed_expect(&p, t, RP_ST_OK);
	bed_open_gate(&g);
	bed_commit(&p, &file, 0, 64);
	bed_run_worker(&g);
	bed_expect(&p, p.token, RP_ST_OK);
	cr_assert_eq(bed_value(&dax, 64, false), 2, "an old store came late");
	cr_assert_eq(dax.stores, 1);
	stop();
}

/* --- order --- */

static void *open_soon(void *arg)
{
	usleep(20000);
	bed_open_gate(&g);
	return arg;
}

/*
 * Later requests overtake an ordered store that waits for its ranges, unless
 * they access its bytes.
 */
Test(effects, later_stores_wait_for_an_ordered_store)
{
	const uint64_t add = 5;
	uint64_t t;

	start(&with_worker);
	bed_close_gate(&g);
	t = bed_ordered_store(&p, (struct bed_at){&file, 0, 64}, &dax, 64, 1);
	bed_run(&g);
	bed_wait_entered(&g, 1);
	/*
	 * A request for other bytes does not wait, and neither does a request
	 * behind a commit.
	 */
	bed_commit(&p, &file, 4096, 8);
	bed_expect(&p,
		   bed_inline(&p, RP_LEVEL_DURABLE,
			      (struct bed_at){&dax, 72, 8}, 7),
		   RP_ST_OK);
	bed_expect(&p,
		   bed_inline(&p, RP_LEVEL_VISIBLE,
			      (struct bed_at){&dax, 0, 64}, 7),
		   RP_ST_OK);
	bed_expect(&p,
		   bed_request(&p, RP_LEVEL_DURABLE, RP_CLASS_POWER, 1,
			       &(struct rp_wire_range){dax.r.key, 64, 8}),
		   RP_ST_OK);
	/* An atomic on these bytes, or a store to one of them, waits. */
	bed_atomic(&p, RP_LEVEL_DURABLE, (struct bed_at){&dax, 64, 8},
		   RP_ATOMIC_SUM, &add, NULL, false);
	cr_assert_eq(rp_agent_backlog(g.a), 3);
	t++;
	/* Behind a deferred request every later request waits. */
	bed_commit(&p, &dax, 1024, 8);
	bed_inline(&p, RP_LEVEL_VISIBLE, (struct bed_at){&dax, 71, 4}, 9);
	bed_ordered_store(&p, (struct bed_at){&dax, 2048, 8}, &dax, 64, 0x77);
	memset(g.must_be_durable, 0, sizeof(g.must_be_durable));
	bed_run(&g);
	bed_expect_nothing(&p);
	cr_assert_eq(rp_agent_backlog(g.a), 6);
	cr_assert_eq(bed_value(&dax, 64, false), 0);
	bed_open_gate(&g);
	bed_run_worker(&g);
	/*
	 * The commit is in the second batch, so its reply comes after those of
	 * the deferred messages.
	 */
	bed_expect(&p, t - 1, RP_ST_OK);
	for (int i = 4; i <= 7; i++)
		bed_expect(&p, t + i, RP_ST_OK);
	bed_expect(&p, t, RP_ST_OK);
	cr_assert_eq(bed_value(&dax, 64, true), 0x77);
	cr_assert_eq(dax.changes, 1);
	cr_assert_eq(dax.mem[BED_SKEW + 72], 9);
	stop();
}

/* The ordered store of a fast commit does not overtake a slow one's. */
Test(effects, later_ordered_store_waits_for_an_ordered_store)
{
	uint64_t t;

	start(&with_worker);
	t = bed_commit(&p, &file, 0, 64);
	bed_run_worker(&g);
	bed_expect(&p, t, RP_ST_OK);
	bed_close_gate(&g);
	t = bed_ordered_store(&p, (struct bed_at){&file, 0, 64}, &dax, 64, 1);
	bed_run(&g);
	bed_wait_entered(&g, 2);
	bed_ordered_store(&p, (struct bed_at){&dax, 1024, 8}, &dax, 64, 2);
	memset(g.must_be_durable, 0, sizeof(g.must_be_durable));
	bed_run(&g);
	bed_expect_nothing(&p);
	/* The agent has no deadline until a job ends. */
	cr_assert_gt(rp_agent_deadline(g.a), g.now);
	bed_open_gate(&g);
	bed_run_worker(&g);
	bed_expect(&p, t, RP_ST_OK);
	bed_expect(&p, t + 1, RP_ST_OK);
	cr_assert_eq(bed_value(&dax, 64, true), 2);
	stop();
}

/* Defer a request with two ranges; the second one is the ordered store's. */
static void store_waits(enum rp_effect effect)
{
	struct rp_wire_range two[2];
	const uint8_t bytes[16] = {0};
	const struct rp_wire_request m = {
		.nranges = 2,
		.level = RP_LEVEL_VISIBLE,
		.effect = effect,
		.bytes = bytes,
		.ranges = two,
	};
	uint64_t t;

	start(&with_worker);
	two[0] = (struct rp_wire_range){dax.r.key, 0, 8};
	two[1] = (struct rp_wire_range){dax.r.key, 64, 8};
	bed_close_gate(&g);
	t = bed_ordered_store(&p, (struct bed_at){&file, 0, 64}, &dax, 64, 1);
	bed_run(&g);
	bed_wait_entered(&g, 1);
	bed_send(&p, &m);
	memset(g.must_be_durable, 0, sizeof(g.must_be_durable));
	bed_expect_nothing(&p);
	bed_open_gate(&g);
	bed_run_worker(&g);
	bed_expect(&p, t, RP_ST_OK);
	bed_expect(&p, t + 1, RP_ST_OK);
	cr_assert_eq(bed_value(&dax, 64, false), 0);
	stop();
}

Test(effects, store_to_several_ranges_waits_for_an_ordered_store)
{
	store_waits(RP_EFFECT_STORE);
	store_waits(RP_EFFECT_ZERO);
}

/*
 * Deregistration of its region ends a job, so that deferred messages of other
 * sessions proceed.
 */
Test(effects, deregistration_releases_deferred_messages)
{
	struct bed_peer q;
	pthread_t opener;

	start(&with_worker);
	q = bed_connect(&g, &both);
	p = bed_connect(&g, &file);
	bed_query(&p, dax.r.key, 0);
	bed_close_gate(&g);
	bed_ordered_store(&p, (struct bed_at){&file, 0, 64}, &dax, 64, 1);
	bed_commit(&q, &both, 0, 8);
	bed_run(&g);
	bed_wait_entered(&g, 1);
	memset(g.must_be_durable, 0, sizeof(g.must_be_durable));
	bed_inline(&p, RP_LEVEL_VISIBLE, (struct bed_at){&dax, 64, 8}, 2);
	pthread_create(&opener, NULL, open_soon, NULL);
	bed_region_del(&g, &both);
	pthread_join(opener, NULL);
	cr_assert(q.c->closed);
	bed_expect(&p, p.token - 1, RP_ST_OK);
	cr_assert_eq(rp_agent_deadline(g.a), 0);
	cr_assert(rp_agent_progress(g.a));
	bed_expect(&p, p.token, RP_ST_OK);
	cr_assert_eq(bed_value(&dax, 64, false), 0x0202020202020202);
	stop();
}

/* Alternate stores and ordered stores to the same bytes. */
Test(effects, stores_to_one_place_keep_their_order)
{
	uint64_t t;

	start(&with_worker);
	bed_close_gate(&g);
	t = bed_ordered_store(&p, (struct bed_at){&file, 0, 64}, &dax, 64, 1);
	bed_run(&g);
	bed_wait_entered(&g, 1);
	memset(g.must_be_durable, 0, sizeof(g.must_be_durable));
	for (uint64_t v = 2; v < 6; v++) {
		bed_ordered_store(&p, (struct bed_at){&file, 4096, 8}, &dax, 64,
				  v);
		bed_inline(&p, RP_LEVEL_VISIBLE, (struct bed_at){&dax, 64, 8},
			   (uint8_t)v);
		memset(g.must_be_durable, 0, sizeof(g.must_be_durable));
	}
	cr_assert_eq(rp_agent_backlog(g.a), 9);
	bed_open_gate(&g);
	bed_run_worker(&g);
	for (int i = 0; i < 9; i++)
		bed_expect(&p, t + i, RP_ST_OK);
	cr_assert_eq(bed_value(&dax, 64, false), 0x0505050505050505);
	cr_assert_eq(dax.stores, 9);
	/* When a later job ends, no deferred message is left. */
	bed_commit(&p, &file, 0, 8);
	bed_lose(&p);
	cr_assert_eq(rp_agent_deadline(g.a), UINT64_MAX);
	stop();
}

/* A session does not wait for stores of another session. */
Test(effects, other_sessions_do_not_wait)
{
	struct bed_peer q;

	start(&with_worker);
	q = bed_connect_all(&g, all, 4);
	bed_close_gate(&g);
	bed_ordered_store(&p, (struct bed_at){&file, 0, 64}, &dax, 64, 1);
	bed_run(&g);
	bed_wait_entered(&g, 1);
	bed_expect(&q,
		   bed_inline(&q, RP_LEVEL_VISIBLE,
			      (struct bed_at){&dax, 64, 8}, 3),
		   RP_ST_OK);
	bed_open_gate(&g);
	bed_run_worker(&g);
	bed_expect(&p, p.token, RP_ST_OK);
	cr_assert_eq(bed_value(&dax, 64, false), 1);
	stop();
}

/* A deferred message holds a credit, and is dropped with its session. */
Test(effects, close_drops_deferred_messages)
{
	const struct rp_agent_attr attr = {
		.incarnation = BED_INCARNATION,
		.credits = 3,
	};

	for (int i = 0; i < 2; i++) {
		start(&attr);
		bed_close_gate(&g);
		bed_ordered_store(&p, (struct bed_at){&file, 0, 64}, &dax, 64,
				  1);
		bed_run(&g);
		bed_wait_entered(&g, 1);
		for (int j = 0; j < 2; j++)
			bed_inline(&p, RP_LEVEL_VISIBLE,
				   (struct bed_at){&dax, 64, 8}, 3);
		cr_assert_eq(rp_agent_backlog(g.a), 3);
		if (i)
			bed_lose(&p);
		else
			bed_request(&p, RP_LEVEL_VISIBLE, 0, 0, NULL);
		cr_assert_eq(rp_agent_backlog(g.a), 0);
		bed_open_gate(&g);
		stop();
		cr_assert_eq(count_stores(), 0);
	}
}

/* A malformed message behind deferred ones ends the session in turn. */
Test(effects, malformed_message_behind_a_job_ends_the_session_in_turn)
{
	start(&with_worker);
	bed_close_gate(&g);
	bed_ordered_store(&p, (struct bed_at){&file, 0, 64}, &dax, 64, 1);
	bed_run(&g);
	bed_wait_entered(&g, 1);
	bed_inline(&p, RP_LEVEL_VISIBLE, (struct bed_at){&dax, 64, 8}, 3);
	bed_recv(&p, "malformed", 9);
	bed_inline(&p, RP_LEVEL_VISIBLE, (struct bed_at){&dax, 64, 8}, 4);
	cr_assert_not(p.c->closed);
	bed_open_gate(&g);
	bed_run_worker(&g);
	bed_run(&g);
	cr_assert(p.c->closed);
	cr_assert_eq(bed_value(&dax, 64, false), 0x0303030303030303);
	stop();
}

/* Requests beyond max_jobs are refused and never executed. */
Test(effects, deferred_messages_are_bounded)
{
	const struct rp_agent_attr attr = {
		.incarnation = BED_INCARNATION,
		.max_jobs = 2,
	};
	uint64_t t;

	start(&attr);
	bed_close_gate(&g);
	t = bed_ordered_store(&p, (struct bed_at){&file, 0, 64}, &dax, 64, 1);
	bed_run(&g);
	bed_wait_entered(&g, 1);
	bed_inline(&p, RP_LEVEL_VISIBLE, (struct bed_at){&dax, 64, 8}, 2);
	for (int i = 0; i < 3; i++)
		bed_expect(&p,
			   bed_inline(&p, RP_LEVEL_VISIBLE,
				      (struct bed_at){&dax, 64, 8}, 3),
			   RP_ST_OVERLOADED);
	bed_open_gate(&g);
	bed_run_worker(&g);
	bed_expect(&p, t, RP_ST_OK);
	bed_expect(&p, t + 1, RP_ST_OK);
	cr_assert_eq(bed_value(&dax, 64, false), 0x0202020202020202);
	/*
	 * Even the first message that has to be deferred is refused if there is
	 * no job left.
	 */
	p = bed_connect_all(&g, all, 4);
	struct bed_peer q = bed_connect(&g, &both);
	unsigned int before = g.entered;

	bed_close_gate(&g);
	bed_commit(&q, &both, 0, 8);
	bed_run(&g);
	bed_wait_entered(&g, before + 1);
	bed_ordered_store(&p, (struct bed_at){&file, 0, 64}, &dax, 64, 1);
	memset(g.must_be_durable, 0, sizeof(g.must_be_durable));
	bed_expect(&p,
		   bed_inline(&p, RP_LEVEL_VISIBLE,
			      (struct bed_at){&dax, 64, 8}, 3),
		   RP_ST_OVERLOADED);
	bed_open_gate(&g);
	bed_run_worker(&g);
	bed_expect(&p, p.token - 1, RP_ST_OK);
	cr_assert_eq(bed_value(&dax, 64, false), 1);
	stop();
}

/* --- notifications --- */

/* A host without endpoints (the shim's) refuses every notification. */
Test(effects, notification_of_a_host_without_endpoints_is_refused)
{
	struct rp_agent_host_ops ops;
	uint64_t t;

	start(NULL);
	ops = *g.host.ops;
	ops.notify = NULL;
	g.host.ops = &ops;
	t = bed_notify(&p, (struct bed_at){&file, 100, 300}, 0xdada);
	bed_run(&g);
	bed_expect(&p, t, RP_ST_UNSUPPORTED);
	stop();
}

Test(effects, notification)
{
	const struct bed_at at = {&file, 100, 300};
	struct rp_wire_reply r;
	unsigned int posts;
	uint64_t t;

	start(NULL);
	/* If notify() fails, the request is refused and nothing is notified. */
	g.notify_ret = -ENOMEM;
	t = bed_notify(&p, at, 0xdada);
	bed_run(&g);
	r = bed_expect(&p, t, RP_ST_OVERLOADED);
	cr_assert_eq(r.detail, 0);
	cr_assert_eq(r.range, 0);
	cr_assert_eq(bed_stats(&g).effects, 0);
	g.notify_ret = -ENOSYS;
	t = bed_notify(&p, at, 0xdada);
	bed_run(&g);
	bed_expect(&p, t, RP_ST_UNSUPPORTED);
	g.notify_ret = 0;
	bed_store(&file, 100, 300);
	t = bed_notify(&p, at, 0xdada);
	cr_assert_eq(g.notified, 0);
	posts = p.c->posts;
	bed_run(&g);
	bed_expect(&p, t, RP_ST_OK);
	cr_assert_eq(g.notified, 1);
	cr_assert_eq(g.posts_before, posts, "replied before");
	cr_assert_eq(g.notified_port, BED_PORT);
	cr_assert_eq(g.notified_endpoint, BED_ENDPOINT);
	cr_assert_eq(g.notified_data, 0xdada);
	cr_assert_eq(g.notified_by, &p.c->c);
	cr_assert_eq(g.notified_buf, (char *)file.r.base + 100);
	cr_assert_eq(g.notified_len, 300);
	cr_assert_eq(memcmp(file.mem + BED_SKEW + 100,
			    file.media + BED_SKEW + 100, 300),
		     0);
	cr_assert_eq(bed_stats(&g).effects, 1);
	/* A failed flush, or a session that ends, causes no notification. */
	file.sync_ret = -EIO;
	t = bed_notify(&p, at, 1);
	bed_run(&g);
	bed_expect(&p, t, RP_ST_FLUSH_FAILED);
	both.r.len = 8192;
	bed_notify(&p, (struct bed_at){&both, 0, 8}, 2);
	bed_lose(&p);
	bed_run(&g);
	cr_assert_eq(g.notified, 1);
	stop();
}

/* A notification has the length of all ranges and the address of the first. */
Test(effects, notification_of_several_ranges)
{
	struct rp_wire_range r[3];
	const struct rp_wire_request m = {
		.nranges = 2,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
		.effect = RP_EFFECT_NOTIFY,
		.ranges = r,
	};

	start(NULL);
	for (int i = 0; i < 3; i++)
		r[i] = (struct rp_wire_range){dax.r.key, 1000 * i, 64 << i};
	bed_expect(&p, bed_request(&p, RP_LEVEL_DURABLE, RP_CLASS_POWER, 3, r),
		   RP_ST_OK);
	bed_expect(&p, bed_send(&p, &m), RP_ST_OK);
	cr_assert_eq(g.notified_buf, (char *)dax.r.base);
	cr_assert_eq(g.notified_len, 64 + 128);
	stop();
}

/* For a range committed by delivery, notification precedes reply. */
Test(effects, notification_without_a_flush)
{
	start(NULL);
	bed_expect(&p, bed_notify(&p, (struct bed_at){&tmpfs, 0, 64}, 5),
		   RP_ST_OK);
	cr_assert_eq(g.notified, 1);
	stop();
}
