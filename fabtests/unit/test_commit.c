/* SPDX-License-Identifier: BSD-2-Clause */
/* Commits: what they cover, how they end, that they end once. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <criterion/criterion.h>

#include "commit_rig.h"
#include "core/log.h"

TestSuite(commit, .init = start, .fini = stop);

static char heard[256];

static void hear(enum rp_log_level level, const char *text)
{
	snprintf(heard, sizeof(heard), "%s", text);
}

Test(commit, refused_at_once)
{
	struct rp_wire_range r[5];
	struct rp_commit_attr attr = {
		.ranges = r,
		.nranges = 5,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
		.done = rig_done,
		.arg = &c0,
	};
	struct rp_key k;

	for (int i = 0; i < 5; i++)
		r[i] = rig_range(1, 64 * i, 64);
	attr.nranges = 0;
	cr_assert_eq(rp_commit_post(p, &attr), -EINVAL);
	attr.nranges = 5;
	rp_log_set(hear);
	r[4].len = 0;
	cr_assert_eq(rp_commit_post(p, &attr), -EINVAL);
	cr_assert_str_eq(heard, "a range to commit is empty");
	r[4].len = 64;
	r[0].len = 0;
	cr_assert_eq(rp_commit_post(p, &attr), -EINVAL);
	r[0].len = 64;
	r[4] = rig_range(1, UINT64_MAX - 10, 11);
	cr_assert_eq(rp_commit_post(p, &attr), -EINVAL);
	cr_assert_str_eq(heard, "a range to commit wraps: 0xb bytes at "
				"0xfffffffffffffff5");
	r[4] = rig_range(1, 1, UINT64_MAX);
	cr_assert_eq(rp_commit_post(p, &attr), -EINVAL);
	rp_log_set(NULL);
	r[4] = rig_range(1, 0, 64);
	r[4].key = 17;
	cr_assert_eq(rp_commit_post(p, &attr), -EKEYREJECTED);
	cr_assert_eq(rp_key_parse(rig_key(1), &k), 0);
	k.persistent = false;
	r[4].key = rp_key_make(&k);
	cr_assert_eq(rp_commit_post(p, &attr), -ENOTSUP);

	/* The largest range that does not wrap is the target's to judge. */
	r[4] = rig_range(1, UINT64_MAX - 10, 10);
	cr_assert_eq(rp_commit_post(p, &attr), 0);
	cr_assert_eq(rp_initiator_outstanding(g.in), 1);
	rig_refuse(&g, &s, rig_requested(&g, &s), RP_ST_RANGE);
	rig_told_once(&c0, RP_ST_RANGE);
}

Test(commit, limit)
{
	struct rig_told t[8];
	uint64_t token[8];
	const struct rp_wire_range r = rig_range(1, 0, 64);
	const struct rp_commit_attr attr = {
		.ranges = &r,
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
		.done = rig_done,
		.arg = &c0,
	};
	struct rp_commit *c;

	for (int i = 0; i < 7; i++) {
		commit(&t[i], i);
		token[i] = rig_requested(&g, &s);
	}
	/* A reservation counts; given back, it leaves nothing. */
	cr_assert_eq(rp_commit_reserve(p, &attr, &c), 0);
	cr_assert_eq(rp_commit_post(p, &attr), -EAGAIN);
	cr_assert_eq(rp_initiator_outstanding(g.in), 8);
	rp_commit_unreserve(c);
	cr_assert_eq(rp_initiator_outstanding(g.in), 7);
	commit(&t[7], 7);
	token[7] = rig_requested(&g, &s);
	cr_assert_eq(rp_commit_post(p, &attr), -EAGAIN);
	rig_none(&g);
	/* The limit is the initiator's, not the peer's. */
	cr_assert_eq(rp_commit_post(rp_peer_get(g.in, RIG_PEER + 1), &attr),
		     -EAGAIN);
	rig_none(&g);
	for (int i = 0; i < 8; i++)
		rig_ok(&g, &s, token[i]);
	for (int i = 0; i < 8; i++)
		rig_told_once(&t[i], RP_ST_OK);
	cr_assert_eq(rp_initiator_outstanding(g.in), 0);
	cr_assert_eq(c0.times, 0);
	commit_good(0);
}

Test(commit, every_refusal_is_told)
{
	struct rp_wire_range r[3] = {
		rig_range(1, 0, 64),
		rig_range(2, 0, 64),
		rig_range(3, 0, 64),
	};
	struct rp_wire_reply m = {.detail = 4711};
	uint64_t token;

	for (uint32_t st = 1; st < RP_ST_WRITE_FAILED; st++) {
		if (st == RP_ST_NO_SESSION || st == RP_ST_OVERLOADED)
			continue; /* not the end: test_peer */
		rig_commit_n(&g, p, &c0, r, 3);
		token = rig_requested(&g, &s);
		m.status = st;
		m.range = 2;
		rig_reply(&g, &s, token, &m);
		rig_told_once(&c0, (enum rp_status)st);
		cr_assert_eq(c0.out.detail, 4711);
		cr_assert_eq(c0.out.range, 2);
		rig_ok(&g, &s, token);
		rig_told_once(&c0, (enum rp_status)st);
	}
	/* A range that the request did not have. */
	rig_commit_n(&g, p, &c0, r, 3);
	m.range = 3;
	rig_reply(&g, &s, rig_requested(&g, &s), &m);
	cr_assert_eq(c0.out.range, 0);
}

Test(commit, no_range_is_to_blame_for_silence)
{
	commit(&c0, 0);
	rig_sleep(&g, RIG_TIMEOUT);
	rig_told_once(&c0, RP_ST_TIMEOUT);
	cr_assert_eq(c0.out.range, 0);
	cr_assert_eq(c0.out.detail, 0);
}

Test(commit, less_than_asked_is_not_yes)
{
	const struct rp_wire_range r = rig_range(1, 0, 64);
	struct rp_commit_attr attr = {
		.ranges = &r,
		.nranges = 1,
		.done = rig_done,
		.arg = &c0,
	};
	struct rp_wire_reply m = {.method = RP_METHOD_DELIVERY};
	bool enough;

	for (int want = 0; want < 6; want++) {
		for (int got = 0; got < 6; got++) {
			attr.level =
				want / 3 ? RP_LEVEL_DURABLE : RP_LEVEL_VISIBLE;
			attr.required = want % 3;
			m.level = got / 3 ? RP_LEVEL_DURABLE : RP_LEVEL_VISIBLE;
			m.class = got % 3;
			enough = m.level >= attr.level &&
				 (attr.level == RP_LEVEL_VISIBLE ||
				  m.class >= attr.required);
			c0 = (struct rig_told){0};
			cr_assert_eq(rp_commit_post(p, &attr), 0);
			rig_reply(&g, &s, rig_requested(&g, &s), &m);
			rig_told_once(&c0, enough ? RP_ST_OK : RP_ST_CLASS);
			cr_assert_eq(c0.out.required, attr.required);
			if (enough)
				cr_assert_eq(c0.out.class, m.class);
			else
				cr_assert_eq(c0.out.detail, m.class);
		}
	}
}

Test(commit, weakest_answer_counts)
{
	static struct rp_wire_range r[2 * RP_WIRE_MAX_RANGES + 1];
	struct rp_commit_attr attr = {
		.ranges = r,
		.nranges = 2 * RP_WIRE_MAX_RANGES + 1,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_PROCESS,
		.done = rig_done,
		.arg = &c0,
	};
	struct rp_wire_reply m = {
		.level = RP_LEVEL_DURABLE,
		.class = RP_CLASS_POWER,
		.method = RP_METHOD_AGENT_MSYNC,
	};
	uint64_t token[3];

	/* So that they do not pack. */
	for (size_t i = 0; i < attr.nranges; i++)
		r[i] = rig_range(1, attr.nranges - i, 1);
	c0 = (struct rig_told){0};
	cr_assert_eq(rp_commit_post(p, &attr), 0);
	for (int i = 0; i < 3; i++)
		token[i] = rig_requested(&g, &s);
	rig_reply(&g, &s, token[2], &m);
	m.class = RP_CLASS_PROCESS;
	rig_reply(&g, &s, token[1], &m);
	rig_not_told(&c0);
	m.class = RP_CLASS_POWER;
	rig_reply(&g, &s, token[0], &m);
	rig_told_once(&c0, RP_ST_OK);
	cr_assert_eq(c0.out.class, RP_CLASS_PROCESS);

	/* A part too weak; the others do not matter any more. */
	cr_assert_eq(rp_commit_post(p, &attr), 0);
	c0 = (struct rig_told){0};
	for (int i = 0; i < 3; i++)
		token[i] = rig_requested(&g, &s);
	m.class = RP_CLASS_NONE;
	rig_reply(&g, &s, token[1], &m);
	rig_told_once(&c0, RP_ST_CLASS);
	cr_assert_eq(c0.out.range, RP_WIRE_MAX_RANGES);
	m.class = RP_CLASS_POWER;
	rig_reply(&g, &s, token[0], &m);
	rig_reply(&g, &s, token[2], &m);
	rig_told_once(&c0, RP_ST_CLASS);
}

Test(commit, waits_for_what_it_covers)
{
	struct rp_write w0, w1, w2;
	uint64_t t0, t1;

	begin(&w0, 0);
	begin(&w1, 1);
	commit(&c0, 0);
	begin(&w2, 0);
	commit(&c1, 0);
	t0 = rig_requested(&g, &s);
	t1 = rig_requested(&g, &s);
	rig_ok(&g, &s, t0);
	rig_ok(&g, &s, t1);
	rp_write_done(&w0, 0);
	rig_progress(&g);
	/* Conservative: every earlier write, whatever its range. */
	rig_not_told(&c0);
	rp_write_done(&w1, 0);
	rig_not_told(&c0); /* told from progress only */
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_OK);
	rig_not_told(&c1);
	rp_write_done(&w2, 0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
}

Test(commit, acknowledged_before_the_answer)
{
	struct rp_write w0, w1;
	uint64_t token;

	begin(&w0, 0);
	begin(&w1, 0);
	commit(&c0, 0);
	token = rig_requested(&g, &s);
	rp_write_done(&w1, 0);
	rp_write_done(&w0, 0);
	cr_assert_eq(g.kicks, 0, "nothing to do for anybody");
	rig_progress(&g);
	rig_not_told(&c0);
	rig_ok(&g, &s, token);
	rig_told_once(&c0, RP_ST_OK);
}

Test(commit, last_acknowledgement_wakes_a_sleeper)
{
	struct rp_write w;

	begin(&w, 0);
	commit(&c0, 0);
	rig_ok(&g, &s, rig_requested(&g, &s));
	cr_assert_eq(g.kicks, 0);
	rp_write_done(&w, 0);
	cr_assert_eq(g.kicks, 1);
	cr_assert_leq(rp_initiator_deadline(g.in), g.now);
	cr_assert(rig_progress(&g));
	rig_told_once(&c0, RP_ST_OK);
	cr_assert_not(rig_progress(&g), "nothing was done");
}

Test(commit, reserve_write_start)
{
	const struct rp_wire_range r = rig_range(1, 0, 64);
	const struct rp_commit_attr attr = {
		.ranges = &r,
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
		.done = rig_done,
		.arg = &c0,
	};
	struct rp_commit *c;
	struct rp_write w;

	cr_assert_eq(rp_commit_reserve(p, &attr, &c), 0);
	begin(&w, 0);
	rig_none(&g);
	/* The base has no room: as if nothing had been. */
	rp_write_undo(&w);
	rp_commit_unreserve(c);
	rig_progress(&g);
	rig_not_told(&c0);
	cr_assert_eq(rp_initiator_outstanding(g.in), 0);

	cr_assert_eq(rp_commit_reserve(p, &attr, &c), 0);
	begin(&w, 0);
	rp_commit_start(c);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_not_told(&c0);
	rp_write_done(&w, 0);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_OK);
}

Test(commit, undone_write_is_not_covered)
{
	struct rp_write w0, w1, w2;

	begin(&w0, 0);
	begin(&w1, 0);
	begin(&w2, 0);
	rp_write_undo(&w1);
	commit(&c0, 0);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rp_write_done(&w2, 0);
	rig_not_told(&c0);
	rp_write_done(&w0, 0);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_OK);
}

Test(commit, without_order_the_request_waits)
{
	struct rp_initiator_attr attr = rig_attr();
	struct rp_write w0, w1, w2;
	unsigned int kicks;

	attr.ordered = false;
	restart(&attr);
	begin(&w0, 0);
	begin(&w1, 1);
	commit(&c0, 0);
	begin(&w2, 2);
	commit(&c1, 2);
	rig_sleep(&g, 1000 * RIG_MS);
	rig_none(&g);
	rp_write_done(&w1, 0);
	rig_progress(&g);
	rig_none(&g);
	kicks = g.kicks;
	rp_write_done(&w0, 0);
	/* Somebody must send it now, or a sleeper would sleep on. */
	cr_assert_gt(g.kicks, kicks);
	cr_assert_leq(rp_initiator_deadline(g.in), g.now);
	rig_progress(&g);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c0, RP_ST_OK);
	rig_none(&g);
	/* A write that fails: never asked for. */
	rp_write_done(&w2, EIO);
	rig_progress(&g);
	rig_none(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	/* Nothing under way: at once. */
	commit_good(0);
	commit_poisoned(2);

	/* The same before there is a session. */
	stop();
	rig_start(&g, &attr);
	p = rig_peer(&g);
	begin(&w0, 0);
	commit(&c0, 0);
	rig_sleep(&g, 1000 * RIG_MS);
	rig_none(&g);
	rp_write_done(&w0, 0);
	rig_sleep(&g, 1);
	s = rig_open(&g, RIG_LIFE, 4);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c0, RP_ST_OK);
}

/* Silence while a write is under way is not the target's. */
Test(commit, slow_link_is_not_a_dead_peer)
{
	struct rp_initiator_attr attr = rig_attr();
	struct rp_write w[4];
	uint64_t token;

	attr.slow_rate = 1000000;
	restart(&attr);
	/* 4 MB at 1 MB/s: four seconds more than the timeout. */
	for (int i = 0; i < 4; i++)
		rp_write_begin(p, &w[i], rig_key(1), i * 1000000, 1000000);
	rig_commit(&g, p, &c0, 1, 0, 4000000);
	token = rig_requested(&g, &s);
	rig_sleep(&g, RIG_TIMEOUT + 3999 * RIG_MS);
	rig_not_told(&c0);
	/* Each that arrives is a sign of life, until the last one has. */
	for (int i = 0; i < 4; i++) {
		rp_write_done(&w[i], 0);
		rig_sleep(&g, RIG_TIMEOUT - RIG_MS);
		rig_not_told(&c0);
	}
	rig_sleep(&g, RIG_MS);
	rig_told_once(&c0, RP_ST_TIMEOUT);
	rig_ok(&g, &s, token);
	rig_told_once(&c0, RP_ST_TIMEOUT);
}

Test(commit, slack_does_not_wrap)
{
	struct rp_initiator_attr attr = rig_attr();
	struct rp_write w;

	attr.slow_rate = 1;
	restart(&attr);
	rp_write_begin(p, &w, rig_key(1), 0, 1ull << 62);
	commit(&c0, 0);
	rig_sleep(&g, 100 * RIG_TIMEOUT);
	rig_not_told(&c0);
	rp_write_done(&w, 0);
	rig_sleep(&g, RIG_TIMEOUT);
	rig_told_once(&c0, RP_ST_TIMEOUT);
}

/* A target that answers nobody is dead, whatever else seems to go on. */
Test(commit, writes_that_prove_nothing)
{
	struct rp_write w;

	commit(&c0, 0);
	for (int i = 0; i < 100 && !c0.times; i++) {
		/* Failing writes; later ones that its base acknowledges. */
		begin(&w, 1);
		rp_write_done(&w, i % 2 ? EIO : 0);
		rig_pass(&g, 1000 * RIG_MS);
		cr_assert_leq(i, 5);
	}
	rig_told_once(&c0, RP_ST_TIMEOUT);
}

Test(commit, query_behind_writes)
{
	struct rp_write w, later;
	struct rig_told q;

	begin(&w, 0);
	rig_query(&g, p, &q, 1);
	begin(&later, 1);
	rig_sleep(&g, 4000 * RIG_MS);
	rp_write_done(&w, 0);
	rig_sleep(&g, 4000 * RIG_MS);
	rp_write_done(&later, 0);
	cr_assert_eq(q.times, 0);
	rig_sleep(&g, 1000 * RIG_MS);
	cr_assert_eq(q.times, 1);
	cr_assert_eq(q.query, RP_ST_TIMEOUT);
}

Test(commit, many_ranges)
{
	const size_t n = 100000;
	struct rp_wire_range *r = malloc(n * sizeof(*r));
	uint64_t *token = calloc(n, sizeof(*token));
	size_t sent = 0, answered = 0, i = 0;
	struct rp_wire_request q;
	struct rig_msg *m;
	unsigned int tries = 0;
	uint64_t newest;

	cr_assert(r && token);
	for (size_t k = 0; k < n; k++)
		r[k] = rig_range(k % 3, k * 100, k % 99 + 1);
	stop();
	rig_start(&g, NULL);
	p = rig_peer(&g);
	rig_commit_n(&g, p, &c0, r, n);
	s = rig_open(&g, RIG_LIFE, 10);
	/* The base is full again and again; answers come from the newest. */
	while (answered < (n + 167) / 168) {
		while ((m = rig_pop(&g))) {
			q = rig_as_request(m);
			for (int k = 0; k < q.nranges; k++, i++)
				cr_assert_eq(
					memcmp(&q.ranges[k], &r[i], sizeof(*r)),
					0);
			token[sent++] = m->hdr.token;
			free(m);
		}
		cr_assert_leq(sent - answered, 10);
		g.send_ret = tries++ % 3 ? -EAGAIN : 0;
		g.send_good = tries % 5;
		if (tries % 2 && sent > answered) {
			newest = token[sent - 1];
			token[sent - 1] = token[answered++];
			rig_not_told(&c0);
			rig_ok(&g, &s, newest);
		} else {
			rig_sleep(&g, RIG_MS);
		}
	}
	cr_assert_eq(i, n);
	rig_told_once(&c0, RP_ST_OK);
	rig_none(&g);
	free(token);
	free(r);
}

/* In order and of one region they need few bytes each. */
Test(commit, packed_requests)
{
	static const unsigned int want[] = {RP_WIRE_MAX_PACKED, 24, 2};
	static struct rp_wire_range r[RP_WIRE_MAX_PACKED + 26];
	const struct rp_wire_reply bad = {.status = RP_ST_RANGE, .range = 1};
	struct rp_wire_request q;
	struct rig_msg *m;
	uint64_t token[3];

	for (size_t i = 0; i < RP_WIRE_MAX_PACKED + 26; i++)
		r[i] = rig_range(1, i * 64 + i % 3, 5);
	r[RP_WIRE_MAX_PACKED + 24].addr = 7;
	r[RP_WIRE_MAX_PACKED + 25].addr = 3;
	rig_commit_n(&g, p, &c0, r, RP_WIRE_MAX_PACKED + 26);
	for (int i = 0, first = 0; i < 2; i++) {
		m = rig_take(&g, RP_MSG_REQUEST);
		q = rig_as_request(m);
		/* Few that are left are plain, as they are not in order. */
		cr_assert_eq(q.packed, i == 0);
		cr_assert_eq(q.nranges, i ? want[1] + want[2] : want[0]);
		cr_assert_eq(
			memcmp(q.ranges, r + first, q.nranges * sizeof(*r)), 0);
		first += q.nranges;
		token[i] = m->hdr.token;
		free(m);
	}
	rig_none(&g);
	rig_ok(&g, &s, token[0]);
	rig_reply(&g, &s, token[1], &bad);
	rig_told_once(&c0, RP_ST_RANGE);
	cr_assert_eq(c0.out.range, RP_WIRE_MAX_PACKED + 1);
	/* Short ones, too, where that is shorter. */
	rig_commit_n(&g, p, &c0, r, 2);
	m = rig_take(&g, RP_MSG_REQUEST);
	cr_assert(rig_as_request(m).packed);
	cr_assert_leq(m->len, RP_WIRE_INJECT);
	rig_ok(&g, &s, m->hdr.token);
	free(m);
	rig_told_once(&c0, RP_ST_OK);
}

/* As many messages as the ranges need, and none that has none. */
Test(commit, full_requests)
{
	static struct rp_wire_range r[2 * RP_WIRE_MAX_RANGES];
	struct rig_msg *m;
	uint64_t token[2];

	for (size_t i = 0; i < 2 * RP_WIRE_MAX_RANGES; i++)
		r[i] = rig_range(1, 1000 - i, 1);
	rig_commit_n(&g, p, &c0, r, 2 * RP_WIRE_MAX_RANGES);
	for (int i = 0; i < 2; i++) {
		m = rig_take(&g, RP_MSG_REQUEST);
		cr_assert_eq(rig_as_request(m).nranges, RP_WIRE_MAX_RANGES);
		token[i] = m->hdr.token;
		free(m);
	}
	rig_none(&g);
	rig_ok(&g, &s, token[0]);
	rig_not_told(&c0);
	rig_ok(&g, &s, token[1]);
	rig_told_once(&c0, RP_ST_OK);
}

Test(commit, range_at_fault_of_many)
{
	static struct rp_wire_range r[400];
	const struct rp_wire_reply m = {.status = RP_ST_RANGE, .range = 5};
	uint64_t token[3];
	struct rp_write w;

	for (int i = 0; i < 400; i++)
		r[i] = rig_range(1, (i ^ 1) * 64, 64);
	rig_commit_n(&g, p, &c0, r, 400);
	for (int i = 0; i < 3; i++)
		token[i] = rig_requested(&g, &s);
	rig_reply(&g, &s, token[1], &m);
	rig_told_once(&c0, RP_ST_RANGE);
	cr_assert_eq(c0.out.range, RP_WIRE_MAX_RANGES + 5);
	rig_reply(&g, &s, token[0], &m);
	rig_ok(&g, &s, token[2]);
	rig_told_once(&c0, RP_ST_RANGE);

	begin(&w, 398);
	rig_commit_n(&g, p, &c0, r, 400);
	rp_write_done(&w, EIO);
	rig_progress(&g);
	rig_told_once(&c0, RP_ST_WRITE_FAILED);
	cr_assert_eq(c0.out.range, 399);
	rig_commit_n(&g, p, &c0, r, 400);
	rig_progress(&g);
	cr_assert_eq(c0.out.range, 399);
}

static double cpu(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Seconds that the work takes at most; many times that where it is squared. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LINEAR 10.0 /* whose own work is most of it */
#else
#define LINEAR 1.0
#endif

/* All commits that a program can have, and all of them end badly. */
Test(commit, thousands_fail_at_once)
{
	enum {
		N = 4096,
		R = 1000,
		WRITES,
		WRITES_BACK,
		FORGET,
		ANSWERS_BACK
	};
	static struct rp_wire_range r[R];
	static struct rig_told t[N];
	static struct rp_write w[N];
	static uint64_t token[N];
	struct rp_initiator_attr attr = rig_attr();
	struct rig_msg *m;
	double at;

	attr.max_commits = N;
	for (int how = WRITES; how <= ANSWERS_BACK; how++) {
		restart(&attr);
		s.credits = UINT16_MAX;
		commit_good(0);
		for (int i = 0; i < N; i++) {
			begin(&w[i], i * R);
			for (int k = 0; k < R; k++)
				r[k] = rig_range(1, (i * R + k) * 64, 64);
			rig_commit_n(&g, p, &t[i], r, how < FORGET ? 1 : R);
			while ((m = rig_pop(&g))) {
				token[i] = m->hdr.token;
				free(m);
			}
		}
		at = cpu();
		for (int i = 0; i < N; i++) {
			if (how == WRITES)
				rp_write_done(&w[i], EIO);
			else if (how == WRITES_BACK)
				rp_write_done(&w[N - 1 - i], EIO);
			else if (how == ANSWERS_BACK)
				rig_refuse(&g, &s, token[N - 1 - i],
					   RP_ST_FLUSH_FAILED);
		}
		if (how == FORGET)
			rp_peer_forget(g.in, RIG_PEER);
		rp_initiator_progress(g.in);
		at = cpu() - at;
		cr_assert_lt(at, LINEAR, "%d took %.2f s", how, at);
		for (int i = 0; i < N; i++) {
			cr_assert_eq(t[i].times, 1);
			cr_assert_neq(t[i].out.status, RP_ST_OK);
			if (how >= FORGET)
				rp_write_done(&w[i], 0);
		}
	}
}
