// SPDX-License-Identifier: BSD-2-Clause
/* Commits without the agent: what is granted, for which keys, and at what cost.
 */
#include <errno.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#include "core/own.h"
#include "own_rig.h"

/* Linked with --wrap: memory ends after so many pieces; -1: never. */
static long pieces = -1;

static bool once; /* and then there is some again */

static bool none_left(void)
{
	bool none;

	if (pieces > 0)
		pieces--;
	none = !pieces;
	if (none && once)
		pieces = -1;
	return none;
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
	return none_left() ? NULL : __real_malloc(size);
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return none_left() ? NULL : __real_calloc(n, size);
}

/* A session, and nothing granted yet. */
static void asked(void)
{
	s.cookie = 0;
	start(true);
	confirm(1000000, RP_METHOD_REFUSED, RP_CLASS_POWER);
}

static bool grantable(uint32_t n)
{
	confirm(n, RP_METHOD_FENCE, RP_CLASS_POWER);
	return !asks(n, 4096, 64);
}

/* The connection goes, after writes to n keys from first on. */
static void lose(uint32_t first, uint32_t n)
{
	for (uint32_t k = first; k < first + n; k++) {
		rp_write_begin(p, &w0, rig_key(k), 0, 8);
		/* That it is not the first write to it changes nothing. */
		rp_write_begin(p, &w1, rig_key(k), 8, 8);
		rp_write_done(&w1, 0);
		rp_write_done(&w0, k + 1 == first + n ? EIO : 0);
	}
}

/* So many keys are remembered to be the agent's; with one more all are. */
Test(own, too_many_keys)
{
	asked();
	lose(1, RP_OWN_BANNED - 1);
	lose(1, RP_OWN_BANNED - 1);
	cr_assert(!grantable(1));
	cr_assert(grantable(2000000));
	/* That one was asked about over the connection that goes now. */
	lose(5, 1);
	cr_assert(!grantable(2000000));
	cr_assert(grantable(2000001));
	lose(5, 1);
	cr_assert(!grantable(2000002));
	rp_peer_forget(g.in, RIG_PEER);
	p = rig_peer(&g);
	s.cookie = 0;
	cr_assert(!grantable(2000003));
	rig_end(&g);
}

static bool may_store(uint32_t n)
{
	return rp_peer_may_store(p, rig_key(n), 4096, 64);
}

/* No memory to say which keys were used: nothing is granted, here or after. */
static void forgets_which(long n)
{
	asked();
	cr_assert(grantable(3));
	rp_peer_forget(g.in, RIG_PEER);
	p = rig_peer(&g);
	s.cookie = 0;
	confirm(1000000, RP_METHOD_REFUSED, RP_CLASS_POWER);
	cr_assert(grantable(4));
	rp_own_lost(p);
	pieces = n;
	rp_write_begin(p, &w0, rig_key(5), 0, 8);
	cr_assert_eq(pieces, 0);
	pieces = -1;
	rp_write_done(&w0, 0);
	cr_assert(may_store(6), "never granted, so inline is as good");
	cr_assert(!grantable(6));
	rp_peer_forget(g.in, RIG_PEER);
	p = rig_peer(&g);
	s.cookie = 0;
	cr_assert(!grantable(7));
	rig_end(&g);
}

Test(own, no_memory_for_a_key)
{
	forgets_which(1);
}

Test(own, no_memory_for_the_first_key)
{
	forgets_which(2);
}

/* The same when it is to be said which ones are the agent's from now on. */
static void bans_all(long n)
{
	asked();
	cr_assert(grantable(3));
	pieces = n;
	rp_own_lost(p);
	cr_assert_eq(pieces, 0);
	pieces = -1;
	cr_assert(!grantable(4));
	rig_end(&g);
}

Test(own, no_memory_to_ban)
{
	bans_all(1);
}

Test(own, no_memory_to_ban_the_first)
{
	bans_all(2);
}

/* A program without memory for its fence asks the agent, as before. */
Test(own, no_memory_for_a_fence)
{
	struct rp_commit *c;
	const struct rp_wire_range r = rig_range(1, 4096, 8);
	struct rp_commit_attr attr;

	fenced(1);
	attr = commit_of(&c1, &r, 1, RP_CLASS_POWER);
	cr_assert_eq(rp_commit_reserve(p, &attr, &c), 0);
	pieces = 1;
	once = true;
	rp_commit_start(c);
	once = false;
	cr_assert_eq(pieces, -1);
	cr_assert_eq(nreads, 0);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_OK);
	rig_end(&g);
}

static struct rp_wire_reply answer(enum rp_level level, enum rp_class class,
				   enum rp_method grant)
{
	return (struct rp_wire_reply){
		.level = level,
		.class = class,
		.method = RP_METHOD_AGENT_CLWB,
		.credits = 8,
		.grant = grant,
		.addr = grant ? 4096 : 0,
		.length = grant ? 8192 : 0,
	};
}

/* Commit these ranges at this level and class; this is what is said of it. */
static void ask_so(const struct rp_wire_range *r, size_t n,
		   const struct rp_wire_reply *m)
{
	struct rp_commit_attr attr = commit_of(
		&c0, r, n,
		m->level == RP_LEVEL_DURABLE ? m->class : RP_CLASS_NONE);

	attr.level = m->level;
	cr_assert_eq(rp_commit_post(p, &attr), 0);
	rig_reply(&g, &s, rig_requested(&g, &s), m);
	rig_told_once(&c0, RP_ST_OK);
}

/* What is granted is granted for the region of the first range. */
Test(own, answer_about_several)
{
	const struct rp_wire_range r[4] = {
		rig_range(1, 4096, 8),
		rig_range(2, 4096, 8),
		rig_range(1, 4200, 8),
		rig_range(3, 4096, 8),
	};
	struct rp_wire_reply m =
		answer(RP_LEVEL_DURABLE, RP_CLASS_POWER, RP_METHOD_FENCE);

	asked();
	ask_so(r, 4, &m);
	cr_assert(!asks(1, 4096, 8));
	cr_assert(!asks(1, 4096, 8192));
	cr_assert(asks(2, 4096, 8));
	cr_assert(asks(3, 4096, 8));
	/* Nothing granted says so of all of them. */
	cr_assert(grantable(2));
	cr_assert(grantable(3));
	cr_assert(!asks(1, 4096, 8));
	m = answer(RP_LEVEL_DURABLE, RP_CLASS_POWER, RP_METHOD_REFUSED);
	ask_so((struct rp_wire_range[]){r[0], r[1], rig_range(9, 0, 8), r[3]},
	       4, &m);
	for (uint32_t n = 1; n <= 3; n++)
		cr_assert(asks(n, 4096, 8));
	rig_end(&g);
}

/* An answer about more than was granted, or about less, takes nothing back. */
Test(own, answer_about_something_else)
{
	const struct rp_wire_range r = rig_range(1, 4096, 8);
	struct rp_wire_reply m =
		answer(RP_LEVEL_VISIBLE, RP_CLASS_NONE, RP_METHOD_REFUSED);
	struct rp_commit_attr attr;

	fenced(1);
	ask_so(&r, 1, &m);
	cr_assert(!asks(1, 4096, 8));
	rig_end(&g);
	s.cookie = 0;
	start(true);
	confirm(1, RP_METHOD_DELIVERY, RP_CLASS_PROCESS);
	m = answer(RP_LEVEL_DURABLE, RP_CLASS_POWER, RP_METHOD_REFUSED);
	ask_so(&r, 1, &m);
	rp_write_begin(p, &w0, rig_key(1), 4096, 8);
	attr = commit_of(&c1, &r, 1, RP_CLASS_PROCESS);
	cr_assert_eq(rp_commit_post(p, &attr), 0);
	rig_none(&g);
	rp_write_done(&w0, 0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	cr_assert_eq(c1.out.method, RP_METHOD_DELIVERY);
	rig_end(&g);
}

/* What all of it survives is what the weakest of its regions does. */
Test(own, class_of_several)
{
	const struct rp_wire_range r[2] = {
		rig_range(1, 4096, 8),
		rig_range(2, 4096, 8),
	};
	struct rp_commit_attr attr;

	s.cookie = 0;
	start(true);
	confirm(1, RP_METHOD_DELIVERY, RP_CLASS_POWER);
	confirm(2, RP_METHOD_DELIVERY, RP_CLASS_PROCESS);
	attr = commit_of(&c1, r, 2, RP_CLASS_PROCESS);
	cr_assert_eq(rp_commit_post(p, &attr), 0);
	rig_none(&g);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	cr_assert_eq(c1.out.class, RP_CLASS_PROCESS);
	rig_end(&g);
}

/* What was poisoned is not made good by a read. */
Test(own, poison)
{
	fenced(1);
	rp_write_begin(p, &w0, rig_key(1), 4096, 8);
	rig_commit(&g, p, &c1, 1, 4096, 64);
	rp_write_done(&w0, EIO);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	rp_fence_done(reads[0].f, 0);
	rig_end(&g);
}

/* A method that is forced takes the others' place, and the agent is always
 * left.
 */
Test(own, forced)
{
	forced = RP_METHOD_DELIVERY;
	start(true);
	confirm(1, RP_METHOD_FENCE, RP_CLASS_POWER);
	cr_assert(asks(1, 4096, 64));
	confirm(2, RP_METHOD_DELIVERY, RP_CLASS_POWER);
	cr_assert(!asks(2, 4096, 64));
	rig_end(&g);
	forced = RP_METHOD_FENCE;
	s.cookie = 0;
	start(true);
	confirm(1, RP_METHOD_DELIVERY, RP_CLASS_POWER);
	cr_assert(asks(1, 4096, 64));
	confirm(2, RP_METHOD_FENCE, RP_CLASS_POWER);
	cr_assert(!asks(2, 4096, 64));
	rig_end(&g);
	forced = RP_METHOD_REFUSED;
}

/* Ranges of n keys, in one commit: is the agent asked? */
static bool asks_for(size_t n)
{
	struct rp_wire_range r[16];
	unsigned int before = nreads;
	bool asked;

	for (size_t i = 0; i < n; i++)
		r[i] = rig_range((uint32_t)i + 1, 4096, 64);
	rig_commit_n(&g, p, &c1, r, n);
	asked = g.nout;
	if (asked) {
		cr_assert_eq(nreads, before);
		rig_ok(&g, &s, rig_requested(&g, &s));
	}
	while (before < nreads)
		rp_fence_done(reads[before++].f, 0);
	nreads = 0;
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	return asked;
}

/* Each region needs a fence; the agent answers for all of them at once. */
Test(own, many_regions_are_cheaper_by_the_agent)
{
	fenced(1);
	for (uint32_t i = 2; i <= 8; i++)
		confirm(i, RP_METHOD_FENCE, RP_CLASS_POWER);
	cr_assert(!asks_for(1));
	cr_assert(!asks_for(2));
	cr_assert(asks_for(8));
	rig_end(&g);
	/* ... unless they are long ones, that it has to write back. */
	fenced(1);
	for (uint32_t i = 2; i <= 8; i++)
		confirm(i, RP_METHOD_FENCE, RP_CLASS_POWER);
	for (uint32_t i = 1; i <= 8; i++) {
		rp_write_begin(p, &w0, rig_key(i), 4096, 4096);
		rp_write_done(&w0, 0);
	}
	{
		struct rp_wire_range r[8];

		for (uint32_t i = 0; i < 8; i++)
			r[i] = rig_range(i + 1, 4096, 4096);
		rig_commit_n(&g, p, &c1, r, 8);
		rig_none(&g);
		cr_assert_eq(nreads, 8);
		for (unsigned int i = 0; i < 8; i++)
			rp_fence_done(reads[i].f, 0);
		rig_progress(&g);
		rig_told_once(&c1, RP_ST_OK);
	}
	rig_end(&g);
}

/* By the figures of this machine, where it has its own. */
Test(own, measured_costs_decide)
{
	struct rp_cost mine = rp_cost_default;

	mine.path[RP_PATH_DMA].fence_ns = mine.path[RP_PATH_DMA].ask_ns * 2;
	cost = &mine;
	s.cookie = 0;
	start(true);
	confirm(1, RP_METHOD_FENCE, RP_CLASS_POWER);
	cr_assert(asks(1, 4096, 64));
	rig_end(&g);
	mine.path[RP_PATH_DMA].fence_ns = 0;
	mine.path[RP_PATH_DMA].fences_ns = 0;
	fenced(1);
	for (uint32_t i = 2; i <= 8; i++)
		confirm(i, RP_METHOD_FENCE, RP_CLASS_POWER);
	cr_assert(!asks_for(8));
	rig_end(&g);
	cost = NULL;
}

/* A path that nobody measured is the agent's, but for what costs nothing. */
Test(own, unknown_path)
{
	path = RP_PATH_UNKNOWN;
	s.cookie = 0;
	start(true);
	confirm(1, RP_METHOD_FENCE, RP_CLASS_POWER);
	cr_assert(asks(1, 4096, 64));
	confirm(2, RP_METHOD_DELIVERY, RP_CLASS_POWER);
	cr_assert(!asks(2, 4096, 64));
	rig_end(&g);
	path = RP_PATH_DMA;
}

/* An answer grants one key, so each is the first of a request once. */
Test(own, one_commit_learns_all_its_keys)
{
	struct rp_wire_range r[4];
	struct rp_wire_reply m = {
		.level = RP_LEVEL_DURABLE,
		.class = RP_CLASS_POWER,
		.method = RP_METHOD_AGENT_CLWB,
		.credits = 8,
		.grant = RP_METHOD_FENCE,
		.addr = 4096,
		.length = 4096,
	};

	s.cookie = 0;
	start(true);
	confirm(9, RP_METHOD_FENCE, RP_CLASS_POWER);
	for (uint32_t i = 1; i <= 3; i++) {
		rp_write_begin(p, &w0, rig_key(i), 4096, 64);
		rp_write_done(&w0, 0);
	}
	r[0] = rig_range(1, 4096, 8);
	r[1] = rig_range(1, 5000, 8);
	r[2] = rig_range(2, 4096, 8);
	r[3] = rig_range(3, 4096, 8);
	rig_commit_n(&g, p, &c1, r, 4);
	for (int i = 0; i < 3; i++) {
		struct rig_msg *q = rig_take(&g, RP_MSG_REQUEST);
		struct rp_wire_request req = rig_as_request(q);

		cr_assert_eq(req.nranges, i ? 1 : 2);
		cr_assert_eq(req.ranges[0].key, rig_key((uint32_t)i + 1));
		rig_not_told(&c1);
		rig_reply(&g, &s, q->hdr.token, &m);
		free(q);
	}
	rig_told_once(&c1, RP_ST_OK);
	rig_commit_n(&g, p, &c1, r, 4);
	rig_none(&g);
	cr_assert_eq(nreads, 3);
	for (unsigned int i = 0; i < 3; i++)
		rp_fence_done(reads[i].f, 0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	/* One that was asked for and not granted is not asked for again. */
	m.grant = 0;
	m.addr = m.length = 0;
	rig_commit(&g, p, &c1, 3, 0, 8);
	rig_reply(&g, &s, rig_requested(&g, &s), &m);
	rig_told_once(&c1, RP_ST_OK);
	rig_commit_n(&g, p, &c1, r, 4);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_none(&g);
	rig_told_once(&c1, RP_ST_OK);
	rig_end(&g);
}

/* A target that offers what it was not asked for. */
Test(own, offered_unasked)
{
	struct rp_wire_hello_ack ack = {
		.cookie = 77,
		.credits = 8,
		.max_ranges = RP_WIRE_MAX_RANGES,
		.features = RP_FEATURES,
	};
	struct rp_wire_hdr hdr = {.incarnation = RIG_LIFE};
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rig_msg *m;

	start(false);
	rig_commit(&g, p, &c1, 1, 4096, 64);
	m = rig_take(&g, RP_MSG_HELLO);
	s = (struct rig_session){
		.cookie = ack.cookie,
		.hello = rig_as_hello(m).cookie,
		.incarnation = RIG_LIFE,
		.credits = ack.credits,
	};
	hdr.session = s.hello;
	free(m);
	rig_recv(&g, buf, rp_wire_put_hello_ack(buf, sizeof(buf), &hdr, &ack));
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_OK);
	cr_assert(may_store(1), "nothing is carried out here");
	rig_end(&g);
}

/* An inline store is for those that are not, and will not be, granted. */
Test(own, inline_only_where_nothing_is_granted)
{
	fenced(1);
	cr_assert_not(may_store(1), "granted");
	cr_assert_not(may_store(2), "not asked yet");
	rp_write_begin(p, &w0, rig_key(2), 4096, 64);
	rp_write_done(&w0, 0);
	cr_assert_not(may_store(2));
	confirm(2, RP_METHOD_REFUSED, RP_CLASS_POWER);
	cr_assert(may_store(2), "denied");
	/* A new session is a new question. */
	rig_commit(&g, p, &c1, 2, 4096, 64);
	rig_refuse(&g, &s, rig_requested(&g, &s), RP_ST_NO_SESSION);
	s = rig_open(&g, RIG_LIFE, 8);
	cr_assert_not(may_store(1));
	cr_assert_not(may_store(2));
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_OK);
	/* What was used over a connection that may have broken never is. */
	rp_write_begin(p, &w0, rig_key(1), 4096, 64);
	rp_write_done(&w0, EIO);
	cr_assert(may_store(1));
	rig_end(&g);
}
