/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests at the target: checked whole, merged, durable before answered. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <criterion/criterion.h>

#include "agent_rig.h"
#include "seeded.h"

static struct rig g;
static struct rig_region file, dax, eadr, both, tmpfs;
static struct rig_peer p;

static void start(const struct rp_agent_attr *attr)
{
	rig_init(&g, attr);
	rig_region(&g, &file, RP_METHOD_AGENT_MSYNC, 8);
	rig_region(&g, &dax, RP_METHOD_AGENT_CLWB, 8);
	rig_region(&g, &eadr, RP_METHOD_AGENT_SFENCE, 8);
	rig_region(&g, &both, RP_METHOD_AGENT_CLWB_MSYNC, 8);
	rig_region(&g, &tmpfs, RP_METHOD_DELIVERY, 8);
	p = rig_open(&g, 0, 1, &file);
}

static void stop(void)
{
	struct rig_region *all[] = {&file, &dax, &eadr, &both, &tmpfs};

	for (int i = 0; i < 5; i++)
		if (!all[i]->gone)
			rig_region_del(&g, all[i]);
	rig_fini(&g);
}

static unsigned int work(void)
{
	return file.syncs + both.syncs + both.flushes + dax.flushes;
}

Test(agent, bad_attr)
{
	struct rp_agent_attr attr = {0};
	struct rp_agent *a = NULL;

	cr_assert_eq(rp_agent_new(&attr, &a), -EINVAL, "no incarnation");
	attr.incarnation = 1;
	attr.credits = 65536;
	cr_assert_eq(rp_agent_new(&attr, &a), -EINVAL, "credits do not fit");
	cr_assert_null(a);
}

Test(agent, one_commit_of_each_method)
{
	const struct {
		struct rig_region *m;
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
		uint64_t t = rig_commit(&p, want[i].m, 100, 200);
		struct rp_wire_reply r;

		rig_run(&g);
		r = rig_expect(p.x, t, RP_ST_OK);
		cr_assert_eq(r.level, RP_LEVEL_DURABLE);
		cr_assert_eq(r.class, want[i].class);
		cr_assert_eq(r.method, want[i].method);
		cr_assert_eq(r.credits, 64);
	}
	cr_assert_eq(g.checked, 4);
	cr_assert_eq(eadr.drains, 1);
	cr_assert_eq(rp_agent_pending(g.a), 0);
	stop();
}

/* Nothing is done, not even for the ranges in front of the bad one. */
static void refused(size_t n, const struct rp_wire_range *ranges,
		    enum rp_level level, enum rp_class required,
		    enum rp_status st, size_t at, uint32_t detail)
{
	unsigned int before = work();
	uint64_t answers = rig_stats(&g).refused;
	uint64_t t = rig_request(&p, level, required, n, ranges);
	struct rp_wire_reply r;

	rig_run(&g);
	r = rig_expect(p.x, t, st);
	cr_assert_eq(rig_stats(&g).refused, answers + 1);
	cr_assert_eq(r.range, at);
	cr_assert_eq(r.detail, detail);
	cr_assert_eq(r.level, 0);
	cr_assert_eq(work(), before);
	cr_assert_eq(rp_agent_pending(g.a), 0);
}

Test(agent, each_range_is_checked)
{
	struct rig_region plain;

	start(NULL);
	rig_region_volatile(&g, &plain, 1);
	const uint64_t f = file.r.key, len = file.r.len;
	const struct {
		struct rp_wire_range range;
		enum rp_status durable, visible;
		uint32_t detail;
	} bad[] = {
		{{0x1234, 0, 1}, RP_ST_UNKNOWN_KEY, RP_ST_UNKNOWN_KEY, 0},
		{{f ^ 1ull << 40, 0, 1}, RP_ST_STALE_KEY, RP_ST_STALE_KEY, 0},
		{{f, len, 1}, RP_ST_RANGE, RP_ST_RANGE, 0},
		{{f, len - 1, 2}, RP_ST_RANGE, RP_ST_RANGE, 0},
		{{f, 0, len + 1}, RP_ST_RANGE, RP_ST_RANGE, 0},
		{{f, 5, UINT64_MAX - 5}, RP_ST_RANGE, RP_ST_RANGE, 0},
		{{f, 0, 0}, RP_ST_WRAP, RP_ST_WRAP, 0},
		{{f, 5, UINT64_MAX}, RP_ST_WRAP, RP_ST_WRAP, 0},
		{{tmpfs.r.key, 0, 1}, RP_ST_CLASS, RP_ST_OK, RP_CLASS_PROCESS},
		{{plain.r.key, 0, 1}, RP_ST_VOLATILE, RP_ST_OK, 0},
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
			refused(4, ranges, RP_LEVEL_DURABLE, RP_CLASS_POWER,
				bad[i].durable, at, bad[i].detail);
			if (bad[i].visible != RP_ST_OK)
				refused(4, ranges, RP_LEVEL_VISIBLE, 0,
					bad[i].visible, at, 0);
		}
	}
	/* The ends of a region are in it. */
	rig_commit(&p, &file, 0, len);
	rig_run(&g);
	rig_expect(p.x, p.token, RP_ST_OK);
	rig_region_del(&g, &plain);
	stop();
}

/* Checked, and nothing flushed, whatever class is named. */
Test(agent, visible)
{
	struct rp_wire_range r[2];
	struct rp_wire_reply m;
	uint64_t t;

	start(NULL);
	r[0] = (struct rp_wire_range){file.r.key, 0, 100};
	r[1] = (struct rp_wire_range){tmpfs.r.key, 0, 100};
	t = rig_request(&p, RP_LEVEL_VISIBLE, RP_CLASS_POWER, 2, r);
	rig_run(&g);
	m = rig_expect(p.x, t, RP_ST_OK);
	cr_assert_eq(m.level, RP_LEVEL_VISIBLE);
	cr_assert_eq(m.class, RP_CLASS_NONE);
	cr_assert_eq(m.method, RP_METHOD_DELIVERY);
	cr_assert_eq(work(), 0);
	stop();
}

/* A page-cache file outlives its process without msync. */
Test(agent, less_is_asked)
{
	struct rp_wire_range r[2];
	struct rp_wire_reply m;
	uint64_t t;

	start(NULL);
	r[0] = (struct rp_wire_range){file.r.key, 0, 100};
	r[1] = (struct rp_wire_range){dax.r.key, 0, 100};
	t = rig_request(&p, RP_LEVEL_DURABLE, RP_CLASS_PROCESS, 1, r);
	m = rig_expect(p.x, t, RP_ST_OK);
	cr_assert_eq(m.class, RP_CLASS_PROCESS);
	cr_assert_eq(m.method, RP_METHOD_DELIVERY);
	cr_assert_eq(work(), 0);

	/* Together: the weakest class, and what took most. */
	t = rig_request(&p, RP_LEVEL_DURABLE, RP_CLASS_PROCESS, 2, r);
	rig_run(&g);
	m = rig_expect(p.x, t, RP_ST_OK);
	cr_assert_eq(m.class, RP_CLASS_PROCESS);
	cr_assert_eq(m.method, RP_METHOD_AGENT_CLWB);
	cr_assert_eq(file.syncs, 0);
	cr_assert_eq(dax.flushes, 1);

	t = rig_request(&p, RP_LEVEL_DURABLE, RP_CLASS_POWER, 2, r);
	rig_run(&g);
	m = rig_expect(p.x, t, RP_ST_OK);
	cr_assert_eq(m.class, RP_CLASS_POWER);
	cr_assert_eq(file.syncs, 1);
	stop();
}

/* Nothing to flush: nothing to wait for. */
Test(agent, delivery_is_answered_at_once)
{
	uint64_t t;

	start(NULL);
	t = rig_commit(&p, &tmpfs, 0, 1);
	rig_expect(p.x, t, RP_ST_OK);
	cr_assert_eq(rp_agent_pending(g.a), 0);
	stop();
}

Test(agent, merges_and_flushes_once)
{
	struct rig_peer q;
	uint64_t t = 0;

	start(NULL);
	q = rig_open(&g, 1, 9, &file);
	/* Ten in one page and one line, five in the next, of two peers. */
	for (int i = 0; i < 10; i++) {
		t = rig_commit(&p, &file, 500 + i, 1);
		rig_commit(&q, &dax, 640 - RIG_SKEW + i, 1);
	}
	for (int i = 0; i < 5; i++)
		rig_commit(&q, &file, 5000 + 100 * i, 50);
	/* And one far away. */
	rig_commit(&p, &file, 5 * 4096, 10);
	rig_expect_nothing(p.x);
	cr_assert_eq(work(), 0, "before all were there");
	cr_assert_eq(rp_agent_deadline(g.a), 0);
	rig_run(&g);
	cr_assert_eq(file.syncs, 2);
	cr_assert_eq(dax.flushes, 1);
	cr_assert_eq(dax.drains, 1);
	for (int i = 0; i < 10; i++)
		rig_expect(p.x, t - 9 + i, RP_ST_OK);
	cr_assert_eq(g.checked, 26);
	cr_assert_eq(rig_stats(&g).requests, 28);
	cr_assert_eq(rig_stats(&g).ranges, 28);
	cr_assert_eq(rig_stats(&g).replies, 28);
	cr_assert_eq(rig_stats(&g).flushes, 3);
	cr_assert_eq(rig_stats(&g).flushed_bytes, 3 * 4096 - RIG_SKEW + 64);
	cr_assert_eq(rig_stats(&g).drains, 2);

	/* Many lines, one drain. */
	struct rig_at at[20];

	for (int i = 0; i < 20; i++)
		at[i] = (struct rig_at){&dax, 256 * i, 8};
	rig_commit_all(&p, RP_CLASS_POWER, 20, at);
	rig_run(&g);
	cr_assert_eq(dax.flushes, 21);
	cr_assert_eq(dax.drains, 2);
	stop();
}

/* Whatever is asked in whatever order: OK means that media has it. */
Test(agent, persist_before_reply)
{
	struct rig_region *all[] = {&file, &dax, &both, &tmpfs};
	struct seeded s = seeded_start();
	struct rig_peer peers[3];
	unsigned int answered = 0;
	struct rig_msg m;

	start(NULL);
	for (int i = 0; i < 3; i++)
		peers[i] = rig_open(&g, i % 2, 50 + i, &file);
	for (int round = 0; round < 300; round++) {
		unsigned int asked = 0;

		for (int i = seeded_below(&s, 12); i >= 0; i--) {
			struct rig_at at[8];
			size_t n = 1 + seeded_below(&s, 8);

			for (size_t j = 0; j < n; j++) {
				uint64_t off = seeded_below(&s, 8 * 4096 - 400);

				at[j] = (struct rig_at){
					.m = all[seeded_below(&s, 4)],
					.off = off,
					.len = 1 + seeded_below(&s, 200),
				};
			}
			/* Also the very last bytes. */
			at[0].off = at[0].m->r.len - at[0].len;
			rig_commit_all(&peers[seeded_below(&s, 3)],
				       RP_CLASS_PROCESS, n, at);
			asked++;
		}
		rig_run(&g);
		for (int i = 0; i < RIG_XPORTS; i++)
			while (rig_take(&g.x[i], &m)) {
				cr_assert_eq(m.reply.status, RP_ST_OK,
					     "seed %" PRIu64, s.seed);
				answered++;
				asked--;
			}
		cr_assert_eq(asked, 0, "seed %" PRIu64, s.seed);
	}
	cr_assert_gt(answered, 500);
	stop();
}

/* The same, but for power: nothing may be left to delivery. */
Test(agent, persist_before_reply_power)
{
	struct rig_region *all[] = {&file, &dax, &both};
	struct seeded s = seeded_start();
	struct rig_msg m;

	start(NULL);
	for (int round = 0; round < 300; round++) {
		for (int i = seeded_below(&s, 12); i >= 0; i--) {
			struct rig_at at[8];
			size_t n = 1 + seeded_below(&s, 8);

			for (size_t j = 0; j < n; j++)
				at[j] = (struct rig_at){
					all[seeded_below(&s, 3)],
					seeded_below(&s, 8 * 4096 - 400),
					1 + seeded_below(&s, 200),
				};
			rig_commit_all(&p, RP_CLASS_POWER, n, at);
		}
		rig_run(&g);
		while (rig_take(p.x, &m))
			cr_assert_eq(m.reply.status, RP_ST_OK, "seed %" PRIu64,
				     s.seed);
	}
	cr_assert_gt(g.checked, 4000, "seed %" PRIu64, s.seed);
	stop();
}

Test(agent, failed_flush_is_sticky)
{
	struct rig_region other;
	struct rp_wire_reply r;
	struct rig_msg m;
	uint64_t t;

	start(NULL);
	rig_region(&g, &other, RP_METHOD_AGENT_MSYNC, 2);
	file.sync_ret = -ENOSPC;
	const struct rig_at mixed[] = {
		{&other, 0, 1}, {&dax, 0, 1}, {&file, 9000, 1}, {&file, 0, 1}};

	t = rig_commit(&p, &other, 100, 10);
	rig_commit(&p, &file, 0, 1);
	rig_commit_all(&p, RP_CLASS_POWER, 4, mixed);
	rig_commit(&p, &dax, 0, 10);
	rig_run(&g);
	rig_expect(p.x, t, RP_ST_OK);
	r = rig_expect(p.x, t + 1, RP_ST_FLUSH_FAILED);
	cr_assert_eq(r.detail, ENOSPC);
	cr_assert_eq(r.range, 0);
	r = rig_expect(p.x, t + 2, RP_ST_FLUSH_FAILED);
	cr_assert_eq(r.detail, ENOSPC);
	cr_assert_eq(r.range, 2);
	rig_expect(p.x, t + 3, RP_ST_OK);
	cr_assert_eq(file.syncs, 1, "asked again after it failed");
	cr_assert_eq(file.r.failed, ENOSPC);

	/* msync says 0 now, as the kernel would: it must not be believed. */
	file.sync_ret = 0;
	for (int i = 0; i < 3; i++) {
		t = rig_commit(&p, &file, 4096 * i, 1);
		rig_run(&g);
		r = rig_expect(p.x, t, RP_ST_REGION_FAILED);
		cr_assert_eq(r.detail, ENOSPC);
	}
	cr_assert_eq(file.syncs, 1);
	rig_query(&p, file.r.key, RP_CLASS_POWER);
	cr_assert(rig_take(p.x, &m));
	cr_assert_eq(m.info.status, RP_ST_REGION_FAILED);
	t = rig_commit(&p, &other, 0, 1);
	rig_run(&g);
	rig_expect(p.x, t, RP_ST_OK);

	/* Until it is registered again. */
	rp_agent_region_del(g.a, &file.r);
	cr_assert_eq(rp_agent_region_add(g.a, &file.r), 0);
	t = rig_commit(&p, &file, 0, 1);
	rig_run(&g);
	rig_expect(p.x, t, RP_ST_OK);
	rig_region_del(&g, &other);
	stop();
}

/* Queued behind the batch that fails: later, so not even tried. */
Test(agent, failed_while_queued)
{
	struct rig_at at[RP_WIRE_MAX_RANGES];
	int failed = 0, later = 0;
	struct rig_msg m;

	start(NULL);
	for (int i = 0; i < RP_WIRE_MAX_RANGES; i++)
		at[i] = (struct rig_at){&file, 64 * i, 1};
	file.sync_ret = -EIO;
	/* More than a batch takes. */
	for (int i = 0; i < 20; i++)
		rig_commit_all(&p, RP_CLASS_POWER, RP_WIRE_MAX_RANGES, at);
	rig_run(&g);
	while (rig_take(p.x, &m)) {
		failed += m.reply.status == RP_ST_FLUSH_FAILED;
		later += m.reply.status == RP_ST_REGION_FAILED;
	}
	cr_assert_eq(failed + later, 20);
	cr_assert_gt(later, 0);
	cr_assert_eq(file.syncs, 1);
	stop();
}

/* Whichever of its ranges is in the region that failed. */
Test(agent, failed_while_queued_in_part)
{
	struct rig_at at[RP_WIRE_MAX_RANGES];
	struct rp_wire_reply r;
	uint64_t t;

	start(NULL);
	for (int i = 0; i < RP_WIRE_MAX_RANGES; i++)
		at[i] = (struct rig_at){&dax, 64 * i, 1};
	at[100].m = &file;
	file.sync_ret = -EIO;
	t = p.token + 1;
	for (int i = 0; i < 20; i++)
		rig_commit_all(&p, RP_CLASS_POWER, RP_WIRE_MAX_RANGES, at);
	rig_run(&g);
	for (int i = 0; i < 20; i++) {
		r = rig_expect(p.x, t + i,
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
	struct rig_at at[RP_WIRE_MAX_RANGES];
	uint64_t t;

	start(NULL);
	for (int i = 0; i < RP_WIRE_MAX_RANGES; i++)
		at[i] = (struct rig_at){i % 2 ? &file : &dax, 128 * i, 5};
	t = p.token + 1;
	for (int i = 0; i < 64; i++)
		rig_commit_all(&p, RP_CLASS_POWER, RP_WIRE_MAX_RANGES, at);
	rig_run(&g);
	for (int i = 0; i < 64; i++)
		rig_expect(p.x, t + i, RP_ST_OK);
	cr_assert_eq(g.checked, 64 * RP_WIRE_MAX_RANGES);
	stop();
}

Test(agent, credits)
{
	const struct rp_agent_attr attr = {
		.incarnation = RIG_INCARNATION,
		.no_worker = true,
		.credits = 3,
		.max_jobs = 5,
	};
	struct rig_peer q;
	uint64_t t;

	start(&attr);
	q = rig_open(&g, 1, 2, &file);
	t = rig_commit(&p, &file, 0, 1);
	rig_commit(&p, &file, 1, 1);
	rig_commit(&p, &file, 2, 1);
	cr_assert_eq(rp_agent_pending(g.a), 3);
	rig_expect_nothing(p.x);
	rig_commit(&p, &dax, 0, 1);
	rig_expect(p.x, t + 3, RP_ST_OVERLOADED);
	/* Another peer has its own, until there are too many in all. */
	rig_commit(&q, &file, 0, 1);
	rig_commit(&q, &file, 0, 1);
	rig_commit(&q, &dax, 0, 1);
	rig_expect(q.x, q.token, RP_ST_OVERLOADED);
	rig_run(&g);
	cr_assert_eq(dax.flushes, 0, "refused, and done all the same");
	cr_assert_eq(rig_expect(p.x, t, RP_ST_OK).credits, 3);
	rig_expect(p.x, t + 1, RP_ST_OK);
	rig_expect(p.x, t + 2, RP_ST_OK);
	t = rig_commit(&p, &dax, 0, 1);
	rig_run(&g);
	rig_expect(p.x, t, RP_ST_OK);
	stop();
}

static void repeat(uint64_t token, uint64_t off)
{
	p.token = token - 1;
	rig_commit(&p, &file, off, 1);
}

/* Sent again because the answer was late. */
Test(agent, same_token_again)
{
	uint64_t t;

	start(NULL);
	t = rig_commit(&p, &file, 0, 1);
	rig_commit(&p, &file, 1, 1);
	for (int i = 0; i < 100; i++) {
		p.token = t - 1;
		rig_commit(&p, &file, 0, 1);
		rig_commit(&p, &file, 1, 1);
	}
	cr_assert_eq(rp_agent_pending(g.a), 2);
	rig_run(&g);
	rig_expect(p.x, t, RP_ST_OK);
	rig_expect(p.x, t + 1, RP_ST_OK);
	rig_expect_nothing(p.x);
	/* The answer was lost: it is done again. */
	p.token = t - 1;
	rig_commit(&p, &file, 0, 1);
	rig_run(&g);
	rig_expect(p.x, t, RP_ST_OK);
	cr_assert_eq(rig_stats(&g).requests, 1 + 3);
	stop();
}

/* Also out of order, with no credit left, at the end, and in no other session.
 */
Test(agent, same_token_in_every_state)
{
	const struct rp_agent_attr attr = {
		.incarnation = RIG_INCARNATION,
		.no_worker = true,
		.credits = 2,
	};
	struct rig_peer q;
	uint64_t t;

	start(&attr);
	q = rig_open(&g, 0, 2, &file);
	/* One that was refused before is accepted after a later one. */
	p.token = q.token = 99;
	t = rig_commit(&p, &file, 0, 1);
	repeat(t - 9, 1);
	cr_assert_eq(rp_agent_pending(g.a), 2);
	repeat(t, 0);
	repeat(t - 9, 1);
	/* Another initiator counts for itself. */
	cr_assert_eq(rig_commit(&q, &file, 2, 1), t);
	rp_agent_quiesce(g.a);
	repeat(t, 0);
	repeat(t - 9, 1);
	cr_assert_eq(rp_agent_pending(g.a), 3);
	rig_expect_nothing(p.x);
	rig_run(&g);
	rig_expect(p.x, t, RP_ST_OK);
	rig_expect(p.x, t - 9, RP_ST_OK);
	rig_expect(q.x, t, RP_ST_OK);
	rig_expect_nothing(p.x);
	cr_assert_eq(rig_stats(&g).requests, 2 + 3);
	stop();
}

Test(agent, incarnation)
{
	struct rp_wire_hdr hdr = {.type = RP_MSG_REQUEST};
	struct rp_wire_request m = {
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
	};
	struct rp_wire_query q = {0};
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rig_msg got;

	start(NULL);
	m.ranges[0] = (struct rp_wire_range){dax.r.key, 0, 1};
	q.key = dax.r.key;
	hdr.session = p.target;
	for (unsigned int i = 0; i < 3; i++) {
		hdr.token = 1000 + i;
		hdr.incarnation = i == 0   ? RIG_INCARNATION ^ 1ull << 63
				  : i == 1 ? 0
					   : RIG_INCARNATION;
		rig_recv(p.x, buf,
			 rp_wire_put_request(buf, sizeof(buf), &hdr, &m));
		rig_run(&g);
		rig_expect(p.x, 1000 + i, i ? RP_ST_OK : RP_ST_INCARNATION);
		cr_assert_eq(dax.flushes, i);
		rig_recv(p.x, buf,
			 rp_wire_put_query(buf, sizeof(buf), &hdr, &q));
		cr_assert(rig_take(p.x, &got));
		cr_assert_eq(got.hdr.type, RP_MSG_INFO);
		cr_assert_eq(got.info.status, i ? RP_ST_OK : RP_ST_INCARNATION);
	}
	stop();
}

Test(agent, malformed_in_a_session)
{
	struct rp_wire_hdr hdr = {.token = 55};
	struct rp_wire_request m = {
		.nranges = 2,
		.level = RP_LEVEL_DURABLE,
	};
	struct rp_wire_query q = {0};
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rig_msg got;
	int len;

	start(NULL);
	hdr.session = p.target;
	len = rp_wire_put_request(buf, sizeof(buf), &hdr, &m);
	/* A range short, and the header says so too. */
	len -= 24;
	buf[4] = len;
	rig_recv(p.x, buf, len);
	rig_expect(p.x, 55, RP_ST_BAD_MESSAGE);
	cr_assert_eq(rig_stats(&g).bad_messages, 1);
	/* Cut anywhere on the way: not even a header to trust. */
	rig_recv(p.x, buf, len - 1);
	rig_recv(p.x, buf, 3);
	rig_recv(p.x, buf, 0);
	cr_assert_eq(rig_stats(&g).bad_messages, 4);
	rig_expect_nothing(p.x);
	len = rp_wire_put_query(buf, sizeof(buf), &hdr, &q);
	buf[47] = 1;
	rig_recv(p.x, buf, len);
	cr_assert(rig_take(p.x, &got));
	cr_assert_eq(got.info.status, RP_ST_BAD_MESSAGE);
	cr_assert_eq(rig_stats(&g).bad_messages, 5);
	cr_assert_eq(rig_stats(&g).refused, 2);
	/* Types that only a target sends. */
	for (int type = RP_MSG_HELLO_ACK; type <= RP_MSG_INFO; type++) {
		buf[3] = type;
		rig_recv(p.x, buf, len);
	}
	cr_assert_eq(rig_stats(&g).bad_messages, 9);
	rig_expect_nothing(p.x);
	rig_commit(&p, &file, 0, 1);
	rig_run(&g);
	rig_expect(p.x, p.token, RP_ST_OK);
	stop();
}

Test(agent, quiesce)
{
	uint64_t t;

	start(NULL);
	t = rig_commit(&p, &file, 0, 1);
	rp_agent_quiesce(g.a);
	rig_commit(&p, &dax, 0, 1);
	rig_expect(p.x, t + 1, RP_ST_OVERLOADED);
	cr_assert_eq(rp_agent_pending(g.a), 1);
	rig_run(&g);
	rig_expect(p.x, t, RP_ST_OK);
	cr_assert_eq(rp_agent_pending(g.a), 0);
	cr_assert_eq(dax.flushes, 0);
	stop();
}

Test(agent, region_goes_while_queued)
{
	const struct rig_at mixed[] = {{&dax, 0, 1}, {&file, 0, 1}};
	struct rp_wire_reply r;
	uint64_t key, t;

	start(NULL);
	key = file.r.key;
	t = rig_commit(&p, &dax, 0, 1);
	rig_commit_all(&p, RP_CLASS_POWER, 2, mixed);
	rig_commit(&p, &file, 0, 1);
	rig_commit(&p, &both, 0, 1);
	rig_region_del(&g, &file);
	rig_run(&g);
	r = rig_expect(p.x, t + 1, RP_ST_STALE_KEY);
	cr_assert_eq(r.range, 1);
	cr_assert_eq(r.detail, 0);
	rig_expect(p.x, t + 2, RP_ST_STALE_KEY);
	rig_expect(p.x, t, RP_ST_OK);
	rig_expect(p.x, t + 3, RP_ST_OK);
	cr_assert_eq(rp_agent_pending(g.a), 0);
	refused(1, &(struct rp_wire_range){key, 0, 1}, RP_LEVEL_DURABLE,
		RP_CLASS_POWER, RP_ST_UNKNOWN_KEY, 0, 0);
	stop();
}

static struct rp_wire_info ask(uint64_t key, enum rp_class required)
{
	uint64_t t = rig_query(&p, key, required);
	struct rig_msg m;

	cr_assert(rig_take(p.x, &m), "no answer");
	cr_assert_eq(m.hdr.type, RP_MSG_INFO);
	cr_assert_eq(m.hdr.token, t);
	cr_assert_eq(m.hdr.incarnation, RIG_INCARNATION);
	return m.info;
}

Test(agent, query)
{
	struct rig_region plain;
	struct rp_wire_info i;

	start(NULL);
	rig_region_volatile(&g, &plain, 1);
	i = ask(file.r.key, RP_CLASS_POWER);
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
	cr_assert_eq(i.length, file.r.len);
	cr_assert_eq(i.addr, 0);
	cr_assert_str_eq(i.why, "fake");

	i = ask(file.r.key, RP_CLASS_PROCESS);
	cr_assert_eq(i.status, RP_ST_OK);
	cr_assert_eq(i.class, RP_CLASS_POWER, "the best it can do");
	cr_assert_eq(i.method, RP_METHOD_DELIVERY);

	i = ask(dax.r.key, RP_CLASS_POWER);
	cr_assert_eq(i.method, RP_METHOD_AGENT_CLWB);
	cr_assert_eq(i.granularity, 64);

	i = ask(tmpfs.r.key, RP_CLASS_POWER);
	cr_assert_eq(i.status, RP_ST_CLASS);
	cr_assert_eq(i.class, RP_CLASS_PROCESS, "the best it can do");
	cr_assert_eq(i.method, RP_METHOD_REFUSED);
	cr_assert_eq(i.refusal, RP_REFUSAL_CLASS);
	cr_assert_gt(strlen(i.why), 10);

	/* Whatever it is, it was not registered as persistent. */
	plain.r.facts = file.r.facts;
	plain.r.choice = file.r.choice;
	i = ask(plain.r.key, RP_CLASS_NONE);
	cr_assert_eq(i.status, RP_ST_VOLATILE);
	cr_assert_eq(i.class, RP_CLASS_NONE);
	cr_assert_eq(i.method, RP_METHOD_REFUSED);
	cr_assert_eq(i.refusal, RP_REFUSAL_VOLATILE);
	cr_assert_str_eq(i.why, rp_status_remedy(RP_ST_VOLATILE));

	/* A region whose facts nothing fits, and one by another address. */
	dax.r.facts.memory = RP_MEM_UNKNOWN;
	i = ask(dax.r.key, RP_CLASS_NONE);
	cr_assert_eq(i.status, RP_ST_NO_METHOD);
	dax.r.facts.memory = RP_MEM_ANON;
	i = ask(dax.r.key, RP_CLASS_NONE);
	cr_assert_eq(i.status, RP_ST_VOLATILE);
	file.r.addr = 0x7000;
	strcpy(file.r.why, "50%% of it");
	i = ask(file.r.key, RP_CLASS_POWER);
	cr_assert_eq(i.addr, 0x7000);
	cr_assert_str_eq(i.why, "50%% of it");
	file.r.failed = EIO;
	i = ask(file.r.key, RP_CLASS_POWER);
	cr_assert_eq(i.status, RP_ST_REGION_FAILED);
	cr_assert_str_eq(i.why, rp_status_remedy(RP_ST_REGION_FAILED));

	i = ask(0x9999, RP_CLASS_NONE);
	cr_assert_eq(i.status, RP_ST_UNKNOWN_KEY);
	i = ask(file.r.key ^ 1ull << 63, RP_CLASS_NONE);
	cr_assert_eq(i.status, RP_ST_STALE_KEY);
	cr_assert_eq(i.length, 0);
	rig_region_del(&g, &plain);
	stop();
}
