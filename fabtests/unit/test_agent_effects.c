// SPDX-License-Identifier: BSD-2-Clause
/* Stores and notifications at the target: behind the ranges, and once. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <criterion/criterion.h>

#include "agent_rig.h"

static struct rig g;
static struct rig_region file, dax, both, tmpfs;
static struct rig_peer p;

static void start(const struct rp_agent_attr *attr)
{
	rig_init(&g, attr);
	rig_region(&g, &file, RP_METHOD_AGENT_MSYNC, 8);
	rig_region(&g, &dax, RP_METHOD_AGENT_CLWB, 8);
	rig_region(&g, &both, RP_METHOD_AGENT_CLWB_MSYNC, 8);
	rig_region(&g, &tmpfs, RP_METHOD_DELIVERY, 8);
	p = rig_open(&g, 0, 1, &file);
}

static void stop(void)
{
	struct rig_region *all[] = {&file, &dax, &both, &tmpfs};

	for (int i = 0; i < 4; i++)
		if (!all[i]->gone)
			rig_region_del(&g, all[i]);
	rig_fini(&g);
}

static unsigned int stores(void)
{
	return file.stores + dax.stores + both.stores + tmpfs.stores;
}

/* Every pair of methods, with and without a worker. */
static void each_pair(bool worker)
{
	const struct rp_agent_attr attr = {.incarnation = RIG_INCARNATION};
	struct rig_region *all[] = {&file, &dax, &both, &tmpfs};
	uint64_t seq = 0;

	start(worker ? &attr : NULL);
	for (int i = 0; i < 4; i++) {
		for (int j = 0; j < 4; j++) {
			struct rig_region *a = all[i], *b = all[j];
			uint64_t value = ++seq * 0x0101010101010101;
			struct rp_wire_reply r;
			uint64_t t;

			/* What the range needs, tmpfs cannot give. */
			if (j == 3 && i != 3)
				continue;
			t = rig_then(&p, (struct rig_at){a, 4000, 500}, seq, b,
				     8 * (40 + seq), value);
			if (worker)
				rig_run_worker(&g);
			else
				rig_run(&g);
			r = rig_expect(p.x, t, RP_ST_OK);
			cr_assert_eq(r.level, RP_LEVEL_DURABLE);
			cr_assert_eq(r.class, a->r.choice.class);
			/* Of less than power a file needs delivery only. */
			cr_assert(r.method >= b->r.choice.method ||
				  (i == 3 && j == 0));
			cr_assert_geq(r.method, a->r.choice.method);
			cr_assert_eq(stores(), ++g.checked);
			cr_assert_eq(rig_value(b, 8 * (40 + seq), false),
				     value);
			if (b != &tmpfs && i != 3)
				cr_assert_eq(rig_value(b, 8 * (40 + seq), true),
					     value, "stored, not flushed");
			memset(g.behind, 0, sizeof(g.behind));
		}
		if (i == 2)
			seq += 60; /* a gap that is still a window's */
	}
	cr_assert_eq(rig_stats(&g).effects, stores());
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

Test(effects, features_are_shared)
{
	const struct rp_wire_hdr hdr = {.token = 1};
	struct rp_wire_hello m = {
		.cookie = 77,
		.key = rig_some_key(),
		.addr_len = 4,
	};
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rig_msg msg;

	start(NULL);
	for (int i = 0; i < 2; i++) {
		m.features = i ? 0xffff : 0;
		rig_recv(p.x, buf,
			 rp_wire_put_hello(buf, sizeof(buf), &hdr, &m));
		cr_assert(rig_take(p.x, &msg));
		cr_assert_eq(msg.ack.features,
			     i ? RP_FEATURES & ~(RP_FEATURE_LINK |
						 RP_FEATURE_PLACED |
						 RP_FEATURE_GATHER |
						 RP_FEATURE_NATIVE)
			       : 0);
	}
	stop();
}

/* Nothing is done of what is refused, nor when it is repeated. */
Test(effects, store_is_checked)
{
	struct rig_region plain, odd, fixed;
	uint64_t seq = 0;

	start(NULL);
	rig_region_volatile(&g, &plain, 1);
	rig_region(&g, &odd, RP_METHOD_AGENT_CLWB, 1);
	odd.r.base = (char *)odd.r.base + 4;
	odd.r.len -= 4;
	rig_region(&g, &fixed, RP_METHOD_AGENT_CLWB, 1);
	fixed.r.writable = false;
	const struct {
		struct rp_wire_then then;
		enum rp_status st;
		uint32_t detail;
	} bad[] = {
		{{0x1234, 0, 1}, RP_ST_UNKNOWN_KEY, 0},
		{{file.r.key ^ 1ull << 40, 0, 1}, RP_ST_STALE_KEY, 0},
		{{plain.r.key, 0, 1}, RP_ST_VOLATILE, 0},
		{{file.r.key, file.r.len, 1}, RP_ST_RANGE, 0},
		{{file.r.key, file.r.len - 7, 1}, RP_ST_RANGE, 0},
		{{file.r.key, UINT64_MAX - 7, 1}, RP_ST_WRAP, 0},
		{{tmpfs.r.key, 0, 1}, RP_ST_CLASS, RP_CLASS_PROCESS},
		{{fixed.r.key, 0, 1}, RP_ST_ACCESS, 0},
		{{dax.r.key, 4, 1}, RP_ST_ALIGN, 0},
		{{odd.r.key, 0, 1}, RP_ST_ALIGN, 0},
		{{odd.r.key, 8, 1}, RP_ST_ALIGN, 0},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct rig_effect e = {
			.effect = RP_EFFECT_THEN,
			.seq = ++seq,
			.then = bad[i].then,
			.at = {&dax, 0, 100},
		};

		for (int again = 0; again < 2; again++) {
			struct rp_wire_reply r;

			e.token = rig_send_effect(&p, &e);
			rig_run(&g);
			r = rig_expect(p.x, e.token, bad[i].st);
			cr_assert_eq(r.range, 1, "case %zu", i);
			cr_assert_eq(r.detail, bad[i].detail);
			cr_assert_eq(rp_agent_pending(g.a), 0);
		}
		cr_assert_eq(rig_stats(&g).remembered, i + 1);
	}
	cr_assert_eq(stores() + odd.stores + fixed.stores, 0);
	cr_assert_eq(dax.flushes, 0);
	/* What was refused stays so, were it possible now. */
	struct rig_effect e = {
		.effect = RP_EFFECT_THEN,
		.seq = seq,
		.token = p.token,
		.then = {dax.r.key, 0, 1},
		.at = {&dax, 0, 100},
	};
	rig_send_effect(&p, &e);
	rig_run(&g);
	rig_expect(p.x, e.token, RP_ST_ALIGN);
	cr_assert_eq(stores(), 0);
	odd.r.base = (char *)odd.r.base - 4;
	rig_region_del(&g, &fixed);
	rig_region_del(&g, &odd);
	rig_region_del(&g, &plain);
	stop();
}

/* A region that peers may only read: they can ask for a flush, no more. */
Test(effects, nobody_is_told_of_what_is_only_read)
{
	struct rig_effect e = {.effect = RP_EFFECT_NOTIFY, .data = 1};
	struct rig_region fixed;
	uint64_t t;

	start(NULL);
	rig_region(&g, &fixed, RP_METHOD_AGENT_CLWB, 1);
	fixed.r.writable = false;
	e.seq = 1;
	e.at = (struct rig_at){&fixed, 0, 64};
	t = rig_send_effect(&p, &e);
	rig_run(&g);
	rig_expect(p.x, t, RP_ST_ACCESS);
	cr_assert_eq(g.x[0].notified, 0);
	t = rig_commit(&p, &fixed, 0, 64);
	rig_run(&g);
	rig_expect(p.x, t, RP_ST_OK);
	/* A store elsewhere may stand behind it. */
	t = rig_then(&p, (struct rig_at){&fixed, 0, 64}, 2, &dax, 64, 1);
	rig_run(&g);
	rig_expect(p.x, t, RP_ST_OK);
	cr_assert_eq(dax.stores, 1);
	rig_region_del(&g, &fixed);
	stop();
}

/* The same message at every moment of its life. */
Test(effects, once)
{
	struct rig_effect e = {
		.effect = RP_EFFECT_THEN,
		.seq = 1,
		.at = {&file, 100, 100},
	};
	struct rp_wire_reply first, again;

	start(NULL);
	e.then = (struct rp_wire_then){file.r.key, 512, 42};
	e.token = rig_send_effect(&p, &e);
	rig_send_effect(&p, &e);
	cr_assert_eq(rp_agent_pending(g.a), 1);
	rig_run(&g);
	first = rig_expect(p.x, e.token, RP_ST_OK);
	rig_expect_nothing(p.x);
	for (int i = 0; i < 3; i++) {
		/* Somebody stores something newer there. */
		memcpy(file.mem + RIG_SKEW + 512, "newer...", 8);
		rig_send_effect(&p, &e);
		rig_run(&g);
		again = rig_expect(p.x, e.token, RP_ST_OK);
		cr_assert_eq(memcmp(&first, &again, sizeof(first)), 0);
		cr_assert_eq(file.stores, 1);
		cr_assert_eq(file.syncs, 2);
		cr_assert_eq(memcmp(file.mem + RIG_SKEW + 512, "newer...", 8),
			     0);
	}
	cr_assert_eq(rig_stats(&g).remembered, 3);
	cr_assert_eq(rig_stats(&g).effects, 1);
	stop();
}

/* Only so much is remembered, and nothing that is forgotten is done again. */
Test(effects, window)
{
	const struct rp_agent_attr attr = {
		.incarnation = RIG_INCARNATION,
		.no_worker = true,
		.credits = 4,
	};
	struct rig_effect e = {.effect = RP_EFFECT_THEN, .at = {&dax, 0, 8}};
	uint64_t tokens[16];

	start(&attr);
	e.then = (struct rp_wire_then){dax.r.key, 64, 1};
	e.seq = 5; /* 1 to 4 are the first */
	rig_expect(p.x, rig_send_effect(&p, &e), RP_ST_BAD_MESSAGE);
	for (e.seq = 1; e.seq < 16; e.seq++) {
		tokens[e.seq] = rig_send_effect(&p, &e);
		rig_run(&g);
		rig_expect(p.x, tokens[e.seq], RP_ST_OK);
	}
	cr_assert_eq(dax.stores, 15);
	for (e.seq = 1; e.seq < 16; e.seq++) {
		e.token = tokens[e.seq];
		rig_send_effect(&p, &e);
		rig_run(&g);
		if (e.seq < 12)
			rig_expect_nothing(p.x);
		else
			rig_expect(p.x, e.token, RP_ST_OK);
	}
	/* Another request of a number that has been given. */
	e = (struct rig_effect){
		.effect = RP_EFFECT_THEN,
		.seq = 14,
		.then = {dax.r.key, 64, 2},
		.at = {&dax, 0, 8},
	};
	rig_expect(p.x, rig_send_effect(&p, &e), RP_ST_BAD_MESSAGE);
	e.seq = UINT64_MAX;
	rig_expect(p.x, rig_send_effect(&p, &e), RP_ST_BAD_MESSAGE);
	/* In any order within the window, each of them once. */
	static const uint64_t order[] = {19, 17, 18, 16};
	for (int i = 0; i < 4; i++) {
		e.seq = order[i];
		tokens[i] = rig_send_effect(&p, &e);
	}
	/* Its place is taken by one at work. */
	e.seq = 23;
	rig_expect(p.x, rig_send_effect(&p, &e), RP_ST_BAD_MESSAGE);
	rig_run(&g);
	for (int i = 0; i < 4; i++)
		rig_expect(p.x, tokens[i], RP_ST_OK);
	cr_assert_eq(dax.stores, 19);
	stop();
}

/* However many credits the operator gives. */
Test(effects, window_is_bounded)
{
	const struct rp_agent_attr attr = {
		.incarnation = RIG_INCARNATION,
		.no_worker = true,
		.credits = 60000,
	};
	struct rig_effect e = {.effect = RP_EFFECT_THEN, .at = {&dax, 0, 8}};

	start(&attr);
	e.then = (struct rp_wire_then){dax.r.key, 64, 1};
	e.seq = RP_WIRE_EFFECTS + 1;
	rig_expect(p.x, rig_send_effect(&p, &e), RP_ST_BAD_MESSAGE);
	cr_assert_eq(rig_stats(&g).bad_messages, 1);
	e.seq = RP_WIRE_EFFECTS;
	rig_send_effect(&p, &e);
	rig_run(&g);
	rig_expect(p.x, p.token, RP_ST_OK);
	stop();
}

/* Each session has numbers of its own, and answers of its own. */
Test(effects, sessions_do_not_meet)
{
	struct rig_effect e = {.effect = RP_EFFECT_THEN, .at = {&dax, 0, 8}};
	struct rig_peer q;

	start(NULL);
	q = rig_open(&g, 0, 2, &file);
	e.then = (struct rp_wire_then){dax.r.key, 64, 1};
	e.seq = 1;
	e.token = 1000;
	rig_send_effect(&p, &e);
	rig_run(&g);
	rig_expect(p.x, e.token, RP_ST_OK);
	e.then.value = 2;
	rig_send_effect(&q, &e);
	rig_run(&g);
	rig_expect(q.x, e.token, RP_ST_OK);
	cr_assert_eq(dax.stores, 2);
	cr_assert_eq(rig_stats(&g).remembered, 0);
	stop();
}

/* Taken together: in the order in which they came, behind one flush. */
Test(effects, one_batch)
{
	uint64_t t[8];
	struct rig_peer q;

	start(NULL);
	q = rig_open(&g, 0, 2, &file);
	for (int i = 0; i < 8; i++)
		t[i] = rig_then(i & 1 ? &q : &p, (struct rig_at){&file, 0, 64},
				i / 2 + 1, &file, 4096, 100 + i);
	rig_run(&g);
	for (int i = 0; i < 8; i++)
		rig_expect(p.x, t[i], RP_ST_OK);
	cr_assert_eq(file.stores, 8);
	cr_assert_eq(file.syncs, 2, "%u syncs", file.syncs);
	cr_assert_eq(rig_value(&file, 4096, true), 107);
	stop();
}

Test(effects, no_store_behind_a_failed_flush)
{
	struct rp_wire_reply r;
	uint64_t a, b, c;

	start(NULL);
	file.sync_ret = -EIO;
	a = rig_then(&p, (struct rig_at){&file, 0, 64}, 1, &dax, 64, 1);
	/* In the region that fails, by another's ranges. */
	b = rig_then(&p, (struct rig_at){&dax, 0, 64}, 2, &file, 64, 1);
	memset(g.behind, 0, sizeof(g.behind));
	c = rig_then(&p, (struct rig_at){&dax, 0, 64}, 3, &dax, 72, 1);
	rig_run(&g);
	r = rig_expect(p.x, a, RP_ST_FLUSH_FAILED);
	cr_assert_eq(r.range, 0);
	r = rig_expect(p.x, b, RP_ST_FLUSH_FAILED);
	cr_assert_eq(r.range, 1);
	cr_assert_eq(r.detail, EIO);
	rig_expect(p.x, c, RP_ST_OK);
	cr_assert_eq(stores(), 1);
	/* From now on it is known before. */
	b = rig_then(&p, (struct rig_at){&dax, 0, 64}, 4, &file, 64, 1);
	rig_run(&g);
	r = rig_expect(p.x, b, RP_ST_REGION_FAILED);
	cr_assert_eq(r.range, 1);
	cr_assert_eq(stores(), 1);
	stop();
}

Test(effects, flush_of_the_store_fails)
{
	struct rp_wire_reply r;
	uint64_t t;

	start(NULL);
	file.sync_ret = -ENOSPC;
	t = rig_then(&p, (struct rig_at){&dax, 0, 64}, 1, &file, 64, 1);
	rig_run(&g);
	r = rig_expect(p.x, t, RP_ST_FLUSH_FAILED);
	cr_assert_eq(r.range, 1, "the store is behind the only range");
	cr_assert_eq(r.detail, ENOSPC);
	cr_assert_eq(file.stores, 1);
	cr_assert_eq(file.r.failed, ENOSPC);
	stop();
}

/* All else is well, but the place of the store is gone. */
Test(effects, memory_of_the_store_gone)
{
	struct rp_wire_reply r;
	uint64_t t;

	start(NULL);
	if (madvise(tmpfs.mem, RIG_PAGE, MADV_POPULATE_WRITE))
		cr_skip("this kernel cannot tell");
	cr_assert_eq(munmap(tmpfs.mem + 4 * RIG_PAGE, RIG_PAGE), 0);
	t = rig_then(&p, (struct rig_at){&tmpfs, 0, 64}, 1, &tmpfs,
		     4 * RIG_PAGE, 1);
	rig_run(&g);
	r = rig_expect(p.x, t, RP_ST_FLUSH_FAILED);
	cr_assert_eq(r.range, 1);
	cr_assert_eq(r.detail, ENOMEM);
	cr_assert_eq(stores(), 0);
	stop();
}

/* A failure of the region while the job waits, and its end. */
Test(effects, region_of_the_store_goes)
{
	struct rp_wire_reply r;
	uint64_t t;

	start(NULL);
	t = rig_then(&p, (struct rig_at){&dax, 0, 64}, 1, &both, 64, 1);
	rig_region_del(&g, &both);
	r = rig_expect(p.x, t, RP_ST_STALE_KEY);
	cr_assert_eq(r.range, 1);
	t = rig_then(&p, (struct rig_at){&dax, 0, 64}, 2, &file, 64, 1);
	file.r.failed = EIO;
	rig_run(&g);
	r = rig_expect(p.x, t, RP_ST_REGION_FAILED);
	cr_assert_eq(r.range, 1);
	cr_assert_eq(stores(), 0);
	stop();
}

/* What has no room is not looked at, so it may be done when it comes again. */
Test(effects, overload_is_no_answer)
{
	const struct rp_agent_attr attr = {
		.incarnation = RIG_INCARNATION,
		.no_worker = true,
		.credits = 1,
	};
	struct rig_effect e = {
		.effect = RP_EFFECT_THEN,
		.seq = 1,
		.at = {&dax, 0, 8},
	};
	uint64_t t;

	start(&attr);
	e.then = (struct rp_wire_then){dax.r.key, 64, 1};
	t = rig_commit(&p, &file, 0, 64);
	e.token = rig_send_effect(&p, &e);
	rig_expect(p.x, e.token, RP_ST_OVERLOADED);
	rig_run(&g);
	rig_expect(p.x, t, RP_ST_OK);
	rig_send_effect(&p, &e);
	rig_run(&g);
	rig_expect(p.x, e.token, RP_ST_OK);
	rig_send_effect(&p, &e);
	rig_run(&g);
	rig_expect(p.x, e.token, RP_ST_OK);
	cr_assert_eq(dax.stores, 1);
	stop();
}

/* Nor does it make the target forget the one whose place it would take. */
Test(effects, overload_forgets_nothing)
{
	const struct rp_agent_attr attr = {
		.incarnation = RIG_INCARNATION,
		.no_worker = true,
		.credits = 2,
	};
	struct rig_effect e = {.effect = RP_EFFECT_THEN, .at = {&dax, 0, 8}};
	uint64_t tokens[4], t[2];

	start(&attr);
	e.then = (struct rp_wire_then){dax.r.key, 64, 1};
	for (e.seq = 1; e.seq < 3; e.seq++) {
		tokens[e.seq] = rig_send_effect(&p, &e);
		rig_run(&g);
		rig_expect(p.x, tokens[e.seq], RP_ST_OK);
	}
	t[0] = rig_commit(&p, &file, 0, 64);
	t[1] = rig_commit(&p, &file, 0, 64);
	tokens[3] = rig_send_effect(&p, &e);
	rig_expect(p.x, tokens[3], RP_ST_OVERLOADED);
	rig_run(&g);
	rig_expect(p.x, t[0], RP_ST_OK);
	rig_expect(p.x, t[1], RP_ST_OK);
	/* A copy of the first, which was long on its way. */
	e.seq = 1;
	e.token = tokens[1];
	rig_send_effect(&p, &e);
	rig_run(&g);
	rig_expect(p.x, tokens[1], RP_ST_OK);
	cr_assert_eq(dax.stores, 2);
	cr_assert_eq(rig_stats(&g).remembered, 1);
	/* Its place is taken when the third is. */
	e.seq = 3;
	e.token = tokens[3];
	rig_send_effect(&p, &e);
	rig_run(&g);
	rig_expect(p.x, tokens[3], RP_ST_OK);
	e.seq = 1;
	e.token = tokens[1];
	rig_send_effect(&p, &e);
	rig_run(&g);
	rig_expect_nothing(p.x);
	cr_assert_eq(dax.stores, 3);
	stop();
}

/* The initiator starts again: what waits for it is not done any more. */
Test(effects, new_session_ends_what_waits)
{
	struct rig_peer q;

	start(NULL);
	rig_then(&p, (struct rig_at){&dax, 0, 64}, 1, &dax, 64, 1);
	q = rig_open(&g, 0, 1, &file);
	rig_run(&g);
	rig_expect_nothing(q.x);
	cr_assert_eq(stores(), 0);
	stop();
}

/* Nor what is at work already, if it has not come that far. */
Test(effects, new_session_ends_what_runs)
{
	const struct rp_agent_attr attr = {.incarnation = RIG_INCARNATION};
	struct rig_peer q;
	uint64_t t;

	start(&attr);
	rig_close_gate(&g);
	rig_then(&p, (struct rig_at){&file, 0, 64}, 1, &dax, 64, 1);
	rig_run(&g);
	rig_wait_entered(&g, 1);
	q = rig_open(&g, 0, 1, &file);
	/* The new session's store does not wait for the disk. */
	t = rig_then(&q, (struct rig_at){&dax, 0, 64}, 1, &dax, 64, 2);
	memset(g.behind, 0, sizeof(g.behind));
	rig_run(&g);
	rig_expect(q.x, t, RP_ST_OK);
	rig_open_gate(&g);
	rig_commit(&q, &file, 0, 64);
	rig_run_worker(&g);
	rig_expect(q.x, q.token, RP_ST_OK);
	cr_assert_eq(rig_value(&dax, 64, false), 2, "an old store came late");
	cr_assert_eq(dax.stores, 1);
	stop();
}

Test(effects, notification)
{
	struct rig_effect e = {
		.effect = RP_EFFECT_NOTIFY,
		.seq = 1,
		.data = 0xdada,
		.at = {&file, 100, 300},
	};

	start(NULL);
	e.token = rig_send_effect(&p, &e);
	cr_assert_eq(p.x->notified, 0);
	/* No memory to tell the program: nobody is told anything else. */
	p.x->notify_ret = -ENOMEM;
	rig_run(&g);
	rig_expect(p.x, e.token, RP_ST_OVERLOADED);
	cr_assert_eq(rig_stats(&g).effects, 0);
	p.x->notify_ret = 0;
	for (int i = 0; i < 3; i++) {
		unsigned int sends = p.x->sends;

		rig_store(&file, 100, 300);
		rig_send_effect(&p, &e);
		rig_run(&g);
		rig_expect(p.x, e.token, RP_ST_OK);
		cr_assert_eq(p.x->notified, 1, "told %u times", p.x->notified);
		if (i)
			continue;
		cr_assert_eq(p.x->sends_before, sends, "answered before");
		cr_assert_eq(p.x->told.data, 0xdada);
		cr_assert_eq(p.x->told.buf, (char *)file.r.base + 100);
		cr_assert_eq(p.x->told.len, 300);
		cr_assert_eq(memcmp(file.mem + RIG_SKEW + 100,
				    file.media + RIG_SKEW + 100, 300),
			     0);
	}
	cr_assert_eq(rig_stats(&g).effects, 1);
	/* Not of what failed, nor for a session that is gone. */
	e.seq = 2;
	e.token = 0;
	e.token = rig_send_effect(&p, &e);
	rig_bye(&p);
	rig_run(&g);
	cr_assert_eq(p.x->notified, 1);
	p = rig_open(&g, 0, 1, &dax);
	file.sync_ret = -EIO;
	e.seq = 1;
	e.token = 0;
	e.token = rig_send_effect(&p, &e);
	rig_run(&g);
	rig_expect(p.x, e.token, RP_ST_FLUSH_FAILED);
	cr_assert_eq(p.x->notified, 1);
	stop();
}

/* A range for which delivery is enough is not answered before its effect. */
Test(effects, notification_without_a_flush)
{
	struct rig_effect e = {
		.effect = RP_EFFECT_NOTIFY,
		.seq = 1,
		.data = 5,
		.at = {&tmpfs, 0, 64},
	};

	start(NULL);
	e.token = rig_send_effect(&p, &e);
	rig_run(&g);
	rig_expect(p.x, e.token, RP_ST_OK);
	cr_assert_eq(p.x->notified, 1);
	stop();
}
