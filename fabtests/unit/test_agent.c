/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests at the agent: each is checked as a whole, merged with others, and
 * durable before its reply.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "agent_bed.h"
#include "core/batch.h"
#include "seeded.h"

static struct bed g;
static struct bed_region file, dax, eadr, both, tmpfs;
static struct bed_peer p;

static struct bed_region *const all[] = {&file, &dax, &eadr, &both, &tmpfs};

static void start(const struct rp_agent_attr *attr)
{
	bed_init(&g, attr);
	bed_region(&g, &file, RP_METHOD_AGENT_MSYNC, 8);
	bed_region(&g, &dax, RP_METHOD_AGENT_CLWB, 8);
	bed_region(&g, &eadr, RP_METHOD_AGENT_SFENCE, 8);
	bed_region(&g, &both, RP_METHOD_AGENT_CLWB_MSYNC, 8);
	bed_region(&g, &tmpfs, RP_METHOD_DELIVERY, 8);
	p = bed_connect_all(&g, all, 5);
}

static void stop(void)
{
	for (int i = 0; i < 5; i++)
		if (!all[i]->gone)
			bed_region_del(&g, all[i]);
	bed_fini(&g);
}

static unsigned int run_agent(void)
{
	return file.syncs + both.syncs + both.flushes + dax.flushes;
}

Test(agent, invalid_attributes_are_refused)
{
	struct rp_agent_attr attr = {0};
	struct rp_agent *a = NULL;

	cr_assert_eq(rp_agent_new(&attr, &g.host, &a), -EINVAL,
		     "no incarnation");
	attr.incarnation = 1;
	attr.credits = 65536;
	cr_assert_eq(rp_agent_new(&attr, &g.host, &a), -EINVAL,
		     "credits do not fit");
	cr_assert_null(a);
}

Test(agent, one_commit_of_each_method)
{
	const struct {
		struct bed_region *m;
		enum rp_class class;
		enum rp_method method;
	} want[] = {
		{&file, RP_CLASS_POWER, RP_METHOD_AGENT_MSYNC},
		{&dax, RP_CLASS_POWER, RP_METHOD_AGENT_CLWB},
		{&eadr, RP_CLASS_POWER, RP_METHOD_AGENT_SFENCE},
		{&both, RP_CLASS_POWER, RP_METHOD_AGENT_CLWB_MSYNC},
		{&tmpfs, RP_CLASS_PROCESS, RP_METHOD_DELIVERY},
	};

	start(NULL);
	for (int i = 0; i < 5; i++) {
		uint64_t t = bed_commit(&p, want[i].m, 100, 200);
		struct rp_wire_reply r;

		bed_run(&g);
		r = bed_expect(&p, t, RP_ST_OK);
		cr_assert_eq(r.level, RP_LEVEL_DURABLE);
		cr_assert_eq(r.class, want[i].class);
		cr_assert_eq(r.method, want[i].method);
		cr_assert_eq(r.credits, 64);
	}
	cr_assert_eq(g.checked, 4);
	cr_assert_eq(eadr.drains, 1);
	cr_assert_eq(rp_agent_backlog(g.a), 0);
	stop();
}

/* A refused request has no effect, not even on its earlier ranges. */
static void expect_refused(size_t n, const struct rp_wire_range *ranges,
			   enum rp_level level, enum rp_class required,
			   enum rp_status st, size_t at, uint32_t detail)
{
	unsigned int before = run_agent();
	uint64_t refusals = bed_stats(&g).refused;
	uint64_t t = bed_request(&p, level, required, n, ranges);
	struct rp_wire_reply r;

	bed_run(&g);
	r = bed_expect(&p, t, st);
	cr_assert_eq(bed_stats(&g).refused, refusals + 1);
	cr_assert_eq(r.range, at);
	cr_assert_eq(r.detail, detail);
	cr_assert_eq(r.level, 0);
	cr_assert_eq(run_agent(), before);
	cr_assert_eq(rp_agent_backlog(g.a), 0);
}

Test(agent, each_range_is_checked)
{
	start(NULL);
	const uint64_t f = file.r.key, len = file.r.len;
	const struct {
		struct rp_wire_range range;
		enum rp_status durable, visible_request_flushes_nothing;
		uint32_t detail;
	} bad[] = {
		{{f, len, 1}, RP_ST_RANGE, RP_ST_RANGE, 0},
		{{f, len - 1, 2}, RP_ST_RANGE, RP_ST_RANGE, 0},
		{{f, 0, len + 1}, RP_ST_RANGE, RP_ST_RANGE, 0},
		{{f, 5, UINT64_MAX - 5}, RP_ST_RANGE, RP_ST_RANGE, 0},
		{{f, 0, 0}, RP_ST_WRAP, RP_ST_WRAP, 0},
		{{f, 5, UINT64_MAX}, RP_ST_WRAP, RP_ST_WRAP, 0},
		{{tmpfs.r.key, 0, 1}, RP_ST_CLASS, RP_ST_OK, RP_CLASS_PROCESS},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		for (size_t at = 0; at < 4; at++) {
			struct rp_wire_range ranges[4] = {
				{f, 0, 1},
				{dax.r.key, 10, 10},
				{both.r.key, 0, 1},
				{f, 4096, 100},
			};

			ranges[at] = bad[i].range;
			expect_refused(4, ranges, RP_LEVEL_DURABLE,
				       RP_CLASS_POWER, bad[i].durable, at,
				       bad[i].detail);
			if (bad[i].visible_request_flushes_nothing != RP_ST_OK)
				expect_refused(
					4, ranges, RP_LEVEL_VISIBLE, 0,
					bad[i].visible_request_flushes_nothing,
					at, 0);
		}
	}
	/* A region contains its first and its last byte. */
	bed_commit(&p, &file, 0, len);
	bed_run(&g);
	bed_expect(&p, p.token, RP_ST_OK);
	stop();
}

/* A request without ranges is a fence, which proves earlier placement. */
Test(agent, request_without_ranges_proves_placement)
{
	struct rp_wire_reply m;

	start(NULL);
	bed_expect(&p, bed_commit(&p, &eadr, 0, 8), RP_ST_OK);
	m = bed_expect(&p, bed_request(&p, RP_LEVEL_VISIBLE, 0, 0, NULL),
		       RP_ST_OK);
	cr_assert_eq(m.level, RP_LEVEL_VISIBLE);
	cr_assert_eq(run_agent(), 0);
	cr_assert_eq(eadr.drains, 1);
	stop();
}

/* A visible request is checked but flushes nothing, whatever class it names. */
Test(agent, visible_request_flushes_nothing)
{
	struct rp_wire_range r[2];
	struct rp_wire_reply m;
	uint64_t t;

	start(NULL);
	r[0] = (struct rp_wire_range){file.r.key, 0, 100};
	r[1] = (struct rp_wire_range){tmpfs.r.key, 0, 100};
	t = bed_request(&p, RP_LEVEL_VISIBLE, RP_CLASS_POWER, 2, r);
	bed_run(&g);
	m = bed_expect(&p, t, RP_ST_OK);
	cr_assert_eq(m.level, RP_LEVEL_VISIBLE);
	cr_assert_eq(m.class, RP_CLASS_NONE);
	cr_assert_eq(m.method, RP_METHOD_DELIVERY);
	cr_assert_eq(run_agent(), 0);
	stop();
}

/* Class process needs no msync: a page-cache file outlives its process. */
Test(agent, weaker_class_needs_no_msync)
{
	struct rp_wire_range r[2];
	struct rp_wire_reply m;
	uint64_t t;

	start(NULL);
	r[0] = (struct rp_wire_range){file.r.key, 0, 100};
	r[1] = (struct rp_wire_range){dax.r.key, 0, 100};
	t = bed_request(&p, RP_LEVEL_DURABLE, RP_CLASS_PROCESS, 1, r);
	m = bed_expect(&p, t, RP_ST_OK);
	cr_assert_eq(m.class, RP_CLASS_PROCESS);
	cr_assert_eq(m.method, RP_METHOD_DELIVERY);
	cr_assert_eq(run_agent(), 0);

	/* Ranges in two regions: weaker class and costlier method. */
	t = bed_request(&p, RP_LEVEL_DURABLE, RP_CLASS_PROCESS, 2, r);
	bed_run(&g);
	m = bed_expect(&p, t, RP_ST_OK);
	cr_assert_eq(m.class, RP_CLASS_PROCESS);
	cr_assert_eq(m.method, RP_METHOD_AGENT_CLWB);
	cr_assert_eq(file.syncs, 0);
	cr_assert_eq(dax.flushes, 1);

	t = bed_request(&p, RP_LEVEL_DURABLE, RP_CLASS_POWER, 2, r);
	bed_run(&g);
	m = bed_expect(&p, t, RP_ST_OK);
	cr_assert_eq(m.class, RP_CLASS_POWER);
	cr_assert_eq(file.syncs, 1);
	stop();
}

/* A forced method also serves requests of a weaker class. */
Test(agent, forced_method_serves_every_class)
{
	struct rp_wire_range r = {.len = 100};
	struct rp_wire_reply m;
	uint64_t t;

	start(NULL);
	file.r.forced = RP_METHOD_AGENT_MSYNC;
	r.key = file.r.key;
	t = bed_request(&p, RP_LEVEL_DURABLE, RP_CLASS_PROCESS, 1, &r);
	bed_run(&g);
	m = bed_expect(&p, t, RP_ST_OK);
	cr_assert_eq(m.method, RP_METHOD_AGENT_MSYNC);
	cr_assert_eq(file.syncs, 1);
	stop();
}

/* received() itself sends the reply to a request that does not block. */
Test(agent, request_without_msync_is_done_at_once)
{
	struct bed_region *quick[] = {&dax, &eadr, &tmpfs};
	struct bed_at at[20];
	uint64_t t;

	start(NULL);
	for (int i = 0; i < 3; i++) {
		t = bed_commit(&p, quick[i], 0, 1);
		bed_expect(&p, t, RP_ST_OK);
		cr_assert_eq(rp_agent_backlog(g.a), 0);
		cr_assert_eq(rp_agent_deadline(g.a), UINT64_MAX);
	}
	cr_assert_eq(dax.flushes, 1);
	cr_assert_eq(dax.drains, 1);
	cr_assert_eq(bed_stats(&g).flushes, 2);
	cr_assert_eq(bed_stats(&g).flushed_bytes, 2);
	cr_assert_eq(bed_stats(&g).drains, 2);
	/* Many ranges in a few lines: one flush for each line, one drain. */
	for (int i = 0; i < 20; i++)
		at[i] = (struct bed_at){&dax, 256 * (i / 4) + i % 4, 1};
	t = bed_commit_all(&p, RP_CLASS_POWER, 20, at);
	bed_expect(&p, t, RP_ST_OK);
	cr_assert_eq(dax.flushes, 1 + 5);
	cr_assert_eq(dax.drains, 2);
	cr_assert_eq(bed_stats(&g).flushes, 2 + 5);
	/* The last two ranges share a line. */
	for (int i = 0; i < 3; i++)
		at[i] = (struct bed_at){&dax, i ? 512 + 8 * i : 0, 1};
	t = bed_commit_all(&p, RP_CLASS_POWER, 3, at);
	bed_expect(&p, t, RP_ST_OK);
	cr_assert_eq(dax.flushes, 1 + 5 + 2);
	/* The second range ends in the line in which the third begins. */
	at[1].len = 100;
	at[2].off = at[1].off + 100;
	t = bed_commit_all(&p, RP_CLASS_POWER, 3, at);
	bed_expect(&p, t, RP_ST_OK);
	cr_assert_eq(dax.flushes, 1 + 5 + 2 + 2);
	stop();
}

/* A request with as many ranges as one message can carry. */
Test(agent, request_with_most_ranges)
{
	static struct rp_wire_range r[RP_WIRE_MAX_PACKED];
	struct rp_wire_request m = {
		.nranges = RP_WIRE_MAX_PACKED,
		.packed = true,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
		.ranges = r,
	};
	uint64_t t;

	start(NULL);
	for (int i = 0; i < RP_WIRE_MAX_PACKED; i++)
		r[i] = (struct rp_wire_range){dax.r.key, 16 * i, 8};
	bed_expect(&p, bed_send(&p, &m), RP_ST_OK);
	cr_assert_eq(dax.drains, 1);
	m.level = RP_LEVEL_VISIBLE;
	bed_expect(&p, bed_send(&p, &m), RP_ST_OK);
	cr_assert_eq(dax.drains, 1);
	/* Ranges in a region that needs msync: the reply comes later. */
	for (int i = 0; i < RP_WIRE_MAX_PACKED; i++)
		r[i].key = file.r.key;
	m.level = RP_LEVEL_DURABLE;
	t = bed_send(&p, &m);
	bed_expect_nothing(&p);
	bed_run(&g);
	bed_expect(&p, t, RP_ST_OK);
	stop();
}

Test(agent, merges_and_flushes_once)
{
	struct bed_peer q;
	uint64_t t = 0;

	start(NULL);
	q = bed_connect(&g, &file);
	/* Ten ranges in one page from one peer, five from another. */
	for (int i = 0; i < 10; i++)
		t = bed_commit(&p, &file, 500 + i, 1);
	for (int i = 0; i < 5; i++)
		bed_commit(&q, &file, 5000 + 100 * i, 50);
	/* One range in a distant page. */
	bed_commit(&p, &file, 5 * 4096, 10);
	bed_expect_nothing(&p);
	cr_assert_eq(run_agent(), 0, "before all had arrived");
	cr_assert_eq(rp_agent_deadline(g.a), 0);
	bed_run(&g);
	cr_assert_eq(file.syncs, 2);
	for (int i = 0; i < 11; i++)
		bed_expect(&p, t - 9 + i, RP_ST_OK);
	for (int i = 0; i < 5; i++)
		bed_expect(&q, q.token - 4 + i, RP_ST_OK);
	cr_assert_eq(g.checked, 16);
	cr_assert_eq(bed_stats(&g).requests, 16);
	cr_assert_eq(bed_stats(&g).ranges, 16);
	cr_assert_eq(bed_stats(&g).replies, 16);
	cr_assert_eq(bed_stats(&g).flushes, 2);
	cr_assert_eq(bed_stats(&g).flushed_bytes, 3 * 4096 - BED_SKEW);
	stop();
}

/* A thread that polls for many sessions leaves long flushes to workers. */
Test(agent, long_flush_goes_to_the_worker)
{
	const struct rp_agent_attr attr = {.incarnation = BED_INCARNATION};
	const size_t npages = RP_JOB_MAX_INLINE / BED_PAGE + 2;
	struct bed_region big;
	uint64_t t;

	start(&attr);
	bed_region(&g, &big, RP_METHOD_AGENT_CLWB, npages);
	p = bed_connect(&g, &big);
	t = bed_commit(&p, &big, 0, RP_JOB_MAX_INLINE);
	bed_expect(&p, t, RP_ST_OK);
	t = bed_commit(&p, &big, 0, RP_JOB_MAX_INLINE + 1);
	cr_assert_eq(rp_agent_backlog(g.a), 1);
	bed_run_worker(&g);
	bed_expect(&p, t, RP_ST_OK);
	cr_assert_eq(g.checked, 2);
	cr_assert_gt(g.kicks, 0);
	bed_region_del(&g, &big);
	stop();
}

/* Requests of any kind in any order: the bytes of each OK are on media. */
Test(agent, persist_before_reply)
{
	struct bed_region *some[] = {&file, &dax, &both, &tmpfs};
	struct seeded s = seeded_start();
	struct bed_peer peers[3];
	unsigned int nreplies = 0;
	struct bed_msg m;

	start(NULL);
	for (int i = 0; i < 3; i++)
		peers[i] = bed_connect_all(&g, all, 5);
	for (int round = 0; round < 300; round++) {
		unsigned int outstanding = 0;

		for (int i = seeded_below(&s, 12); i >= 0; i--) {
			struct bed_at at[8];
			size_t n = 1 + seeded_below(&s, 8);

			for (size_t j = 0; j < n; j++) {
				uint64_t off = seeded_below(&s, 8 * 4096 - 400);

				at[j] = (struct bed_at){
					.m = some[seeded_below(&s, 4)],
					.off = off,
					.len = 1 + seeded_below(&s, 200),
				};
			}
			/* Include the last bytes of the region. */
			at[0].off = at[0].m->r.len - at[0].len;
			bed_commit_all(&peers[seeded_below(&s, 3)],
				       RP_CLASS_PROCESS, n, at);
			outstanding++;
		}
		bed_run(&g);
		for (int i = 0; i < 3; i++)
			while (bed_take(&peers[i], &m)) {
				cr_assert_eq(m.reply.status, RP_ST_OK,
					     "seed %" PRIu64, s.seed);
				nreplies++;
				outstanding--;
			}
		cr_assert_eq(outstanding, 0, "seed %" PRIu64, s.seed);
	}
	cr_assert_gt(nreplies, 500);
	stop();
}

/* Requests of class power: delivery alone never makes bytes durable. */
Test(agent, persist_before_reply_power)
{
	struct bed_region *some[] = {&file, &dax, &both};
	struct seeded s = seeded_start();
	struct bed_msg m;

	start(NULL);
	for (int round = 0; round < 300; round++) {
		for (int i = seeded_below(&s, 12); i >= 0; i--) {
			struct bed_at at[8];
			size_t n = 1 + seeded_below(&s, 8);

			for (size_t j = 0; j < n; j++)
				at[j] = (struct bed_at){
					some[seeded_below(&s, 3)],
					seeded_below(&s, 8 * 4096 - 400),
					1 + seeded_below(&s, 200),
				};
			bed_commit_all(&p, RP_CLASS_POWER, n, at);
		}
		bed_run(&g);
		while (bed_take(&p, &m))
			cr_assert_eq(m.reply.status, RP_ST_OK, "seed %" PRIu64,
				     s.seed);
	}
	cr_assert_gt(g.checked, 4000, "seed %" PRIu64, s.seed);
	stop();
}

Test(agent, failed_flush_is_sticky)
{
	struct bed_region other;
	struct rp_wire_reply r;
	uint64_t t;

	start(NULL);
	bed_region(&g, &other, RP_METHOD_AGENT_MSYNC, 2);
	bed_query(&p, other.r.key, RP_CLASS_NONE);
	file.sync_ret = -ENOSPC;
	const struct bed_at mixed[] = {
		{&other, 0, 1}, {&dax, 0, 1}, {&file, 9000, 1}, {&file, 0, 1}};

	t = bed_commit(&p, &other, 100, 10);
	bed_commit(&p, &file, 0, 1);
	bed_commit_all(&p, RP_CLASS_POWER, 4, mixed);
	bed_commit(&p, &dax, 0, 10);
	bed_expect(&p, t + 3, RP_ST_OK);
	bed_run(&g);
	bed_expect(&p, t, RP_ST_OK);
	r = bed_expect(&p, t + 1, RP_ST_FLUSH_FAILED);
	cr_assert_eq(r.detail, ENOSPC);
	cr_assert_eq(r.range, 0);
	r = bed_expect(&p, t + 2, RP_ST_FLUSH_FAILED);
	cr_assert_eq(r.detail, ENOSPC);
	cr_assert_eq(r.range, 2);
	cr_assert_eq(file.syncs, 1, "msync again after a failure");
	cr_assert_eq(file.r.failed, ENOSPC);

	/*
	 * The next msync returns 0, as in a kernel that reports an error once.
	 * The agent must not take that for a success.
	 */
	file.sync_ret = 0;
	for (int i = 0; i < 3; i++) {
		t = bed_commit(&p, &file, 4096 * i, 1);
		bed_run(&g);
		r = bed_expect(&p, t, RP_ST_REGION_FAILED);
		cr_assert_eq(r.detail, ENOSPC);
	}
	cr_assert_eq(file.syncs, 1);
	cr_assert_eq(bed_query(&p, file.r.key, RP_CLASS_POWER).status,
		     RP_ST_REGION_FAILED);
	t = bed_commit(&p, &other, 0, 1);
	bed_run(&g);
	bed_expect(&p, t, RP_ST_OK);

	/* The region stays failed until it is registered again. */
	rp_agent_region_del(g.a, &file.r);
	cr_assert_eq(rp_agent_region_add(g.a, &file.r), 0);
	p = bed_connect(&g, &file);
	t = bed_commit(&p, &file, 0, 1);
	bed_run(&g);
	bed_expect(&p, t, RP_ST_OK);
	bed_region_del(&g, &other);
	stop();
}

/* Requests queued behind a failing batch are refused without msync. */
Test(agent, failed_while_queued)
{
	struct bed_at at[RP_WIRE_MAX_RANGES];
	int failed = 0, later = 0;
	struct bed_msg m;

	start(NULL);
	for (int i = 0; i < RP_WIRE_MAX_RANGES; i++)
		at[i] = (struct bed_at){&file, 64 * i, 1};
	file.sync_ret = -EIO;
	/* Queue more requests than one batch takes. */
	for (int i = 0; i < 20; i++)
		bed_commit_all(&p, RP_CLASS_POWER, RP_WIRE_MAX_RANGES, at);
	bed_run(&g);
	while (bed_take(&p, &m)) {
		failed += m.reply.status == RP_ST_FLUSH_FAILED;
		later += m.reply.status == RP_ST_REGION_FAILED;
	}
	cr_assert_eq(failed + later, 20);
	cr_assert_eq(rp_stats->failures[RP_ST_FLUSH_FAILED], (uint64_t)failed);
	cr_assert_eq(rp_stats->failures[RP_ST_REGION_FAILED], (uint64_t)later);
	cr_assert_eq(rp_stats->failed_regions, 1);
	cr_assert_eq(file.r.stats->failed, EIO);
	cr_assert_eq(file.r.stats->bytes, 0);
	cr_assert_eq(rp_stats->jobs, 0);
	cr_assert_gt(later, 0);
	cr_assert_eq(file.syncs, 1);
	stop();
}

/* One range in the failed region is enough to refuse a queued request. */
Test(agent, failed_while_queued_in_part)
{
	struct bed_at at[RP_WIRE_MAX_RANGES];
	struct rp_wire_reply r;
	uint64_t t;

	start(NULL);
	for (int i = 0; i < RP_WIRE_MAX_RANGES; i++)
		at[i] = (struct bed_at){&dax, 64 * i, 1};
	at[100].m = &file;
	file.sync_ret = -EIO;
	t = p.token + 1;
	for (int i = 0; i < 20; i++)
		bed_commit_all(&p, RP_CLASS_POWER, RP_WIRE_MAX_RANGES, at);
	bed_run(&g);
	for (int i = 0; i < 20; i++) {
		r = bed_expect(&p, t + i,
			       i < 12 ? RP_ST_FLUSH_FAILED
				      : RP_ST_REGION_FAILED);
		cr_assert_eq(r.range, 100);
		cr_assert_eq(r.detail, EIO);
	}
	cr_assert_eq(file.syncs, 1);
	stop();
}

Test(agent, more_than_a_batch)
{
	struct bed_at at[RP_WIRE_MAX_RANGES];
	uint64_t t;

	start(NULL);
	for (int i = 0; i < RP_WIRE_MAX_RANGES; i++)
		at[i] = (struct bed_at){i % 2 ? &file : &dax, 128 * i, 5};
	t = p.token + 1;
	for (int i = 0; i < 64; i++)
		bed_commit_all(&p, RP_CLASS_POWER, RP_WIRE_MAX_RANGES, at);
	bed_run(&g);
	for (int i = 0; i < 64; i++)
		bed_expect(&p, t + i, RP_ST_OK);
	cr_assert_eq(g.checked, 64 * RP_WIRE_MAX_RANGES);
	stop();
}

Test(agent, requests_beyond_max_jobs_are_refused)
{
	const struct rp_agent_attr attr = {
		.incarnation = BED_INCARNATION,
		.no_worker = true,
		.credits = 3,
		.max_jobs = 5,
	};
	struct bed_peer q;
	uint64_t t, u;

	start(&attr);
	q = bed_connect_all(&g, all, 5);
	t = bed_commit(&p, &file, 0, 1);
	bed_commit(&p, &file, 1, 1);
	bed_commit(&p, &file, 2, 1);
	cr_assert_eq(rp_agent_backlog(g.a), 3);
	u = bed_commit(&q, &file, 0, 1);
	bed_commit(&q, &file, 0, 1);
	bed_expect(&q, bed_commit(&q, &both, 0, 1), RP_ST_OVERLOADED);
	cr_assert_eq(bed_stats(&g).refused, 1);
	/* A request that needs no job is still executed. */
	bed_expect(&q, bed_commit(&q, &dax, 0, 1), RP_ST_OK);
	bed_run(&g);
	cr_assert_eq(both.syncs, 0, "refused, and done all the same");
	for (int i = 0; i < 3; i++)
		cr_assert_eq(bed_expect(&p, t + i, RP_ST_OK).credits, 3);
	bed_expect(&q, u, RP_ST_OK);
	bed_expect(&q, u + 1, RP_ST_OK);
	t = bed_commit(&p, &both, 0, 1);
	bed_run(&g);
	bed_expect(&p, t, RP_ST_OK);
	stop();
}

Test(agent, quiesce)
{
	uint64_t t;

	start(NULL);
	t = bed_commit(&p, &file, 0, 1);
	rp_agent_quiesce(g.a);
	bed_commit(&p, &dax, 0, 1);
	bed_expect(&p, t + 1, RP_ST_OVERLOADED);
	cr_assert_eq(rp_agent_backlog(g.a), 1);
	bed_run(&g);
	bed_expect(&p, t, RP_ST_OK);
	cr_assert_eq(rp_agent_backlog(g.a), 0);
	cr_assert_eq(dax.flushes, 0);
	const struct rp_wire_hello hello = bed_hello(dax.r.key);
	struct bed_request *r = bed_connect_request(&g, &hello);

	bed_refused(r, RP_ST_OVERLOADED);
	free(r);
	stop();
}

Test(agent, query_reports_each_kind_of_region)
{
	struct rp_wire_info i;

	start(NULL);
	i = bed_query(&p, file.r.key, RP_CLASS_POWER);
	cr_assert_eq(i.status, RP_ST_OK);
	cr_assert_eq(i.class, RP_CLASS_POWER);
	cr_assert_eq(i.method, RP_METHOD_AGENT_MSYNC);
	cr_assert_eq(i.memory, RP_MEM_FILE);
	cr_assert_eq(i.placement, RP_PLACE_CPU_USER);
	cr_assert_eq(i.domain, RP_DOMAIN_MEMCTRL);
	cr_assert_eq(i.refusal, RP_REFUSAL_NONE);
	cr_assert_eq(i.granularity, 4096);
	cr_assert_eq(i.preferred_size, 4096);
	cr_assert_eq(i.preferred_align, 4096);
	cr_assert_eq(i.grant.length, file.r.len);
	cr_assert_eq(i.grant.class, RP_CLASS_POWER);
	cr_assert_eq(i.grant.method, RP_METHOD_AGENT_MSYNC);
	cr_assert(i.grant.writable);
	cr_assert_eq(i.grant.addr, 0);
	cr_assert_str_eq(i.why, "fake");

	i = bed_query(&p, file.r.key, RP_CLASS_PROCESS);
	cr_assert_eq(i.status, RP_ST_OK);
	cr_assert_eq(i.class, RP_CLASS_POWER, "the best it can do");
	cr_assert_eq(i.method, RP_METHOD_DELIVERY);

	i = bed_query(&p, dax.r.key, RP_CLASS_POWER);
	cr_assert_eq(i.method, RP_METHOD_AGENT_CLWB);
	cr_assert_eq(i.granularity, 64);

	i = bed_query(&p, tmpfs.r.key, RP_CLASS_POWER);
	cr_assert_eq(i.status, RP_ST_CLASS);
	cr_assert_eq(i.class, RP_CLASS_PROCESS, "the best it can do");
	cr_assert_eq(i.method, RP_METHOD_REFUSED);
	cr_assert_eq(i.refusal, RP_REFUSAL_CLASS);
	cr_assert_gt(strlen(i.why), 10);

	/* QUERY a region without a method, and a volatile region. */
	dax.r.facts.memory = RP_MEM_UNKNOWN;
	i = bed_query(&p, dax.r.key, RP_CLASS_NONE);
	cr_assert_eq(i.status, RP_ST_NO_METHOD);
	dax.r.facts.memory = RP_MEM_ANON;
	i = bed_query(&p, dax.r.key, RP_CLASS_NONE);
	cr_assert_eq(i.status, RP_ST_VOLATILE);
	both.r.addr = 0x7000;
	strcpy(both.r.why, "50%% of it");
	p = bed_connect(&g, &both);
	i = bed_query(&p, both.r.key, RP_CLASS_POWER);
	cr_assert_eq(i.grant.addr, 0x7000);
	cr_assert_str_eq(i.why, "50%% of it");
	file.r.failed = EIO;
	i = bed_query(&p, file.r.key, RP_CLASS_POWER);
	cr_assert_eq(i.status, RP_ST_REGION_FAILED);
	cr_assert_str_eq(i.why, rp_status_remedy(RP_ST_REGION_FAILED));

	stop();
}
