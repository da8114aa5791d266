// SPDX-License-Identifier: BSD-2-Clause
/* Connections of our own at the initiator: when they are asked for, what goes
 * over them, and what their end means. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "core/link.h"
#include "initiator_rig.h"

#define BASE  4096 /* where the region begins */
#define AT    777  /* and what that is called over the connection */
#define THERE 0x4242u
#define LEN   65536

static struct rig g;
static struct rp_peer *p;
static struct rig_session s;
static struct rig_told c0, c1, c2;
static struct rp_linked l0, l1;
/* How the target makes its regions durable, and which features it has not. */
static enum rp_method method;
static uint16_t without;

static struct {
	unsigned int dials, hung_up;
	uint64_t secret;
	int ret;
} conn;

static int x_dial(struct rp_xport *x, struct rp_peer *peer, const void *addr,
		  size_t len, uint64_t secret, void **out)
{
	cr_assert_eq(peer, p);
	cr_assert_eq(len, 3);
	cr_assert_eq(memcmp(addr, "to!", 3), 0);
	conn.dials++;
	conn.secret = secret;
	*out = &conn;
	return conn.ret;
}

static void x_hang_up(struct rp_xport *x, void *c)
{
	cr_assert_eq(c, &conn);
	conn.hung_up++;
}

static uint64_t key_of(uint32_t n)
{
	const struct rp_key k = {
		.base = n,
		.random = n,
		.persistent = true,
		.class = RP_CLASS_POWER,
		.method = method,
	};

	return rp_key_make(&k);
}

/* A commit that the agent is asked about. */
static void commit(struct rig_told *t, uint32_t n, uint64_t at, uint64_t len)
{
	const struct rp_wire_range r = {key_of(n), at, len};
	const struct rp_commit_attr attr = {
		.ranges = &r,
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
		.done = rig_done,
		.arg = t,
	};

	*t = (struct rig_told){0};
	cr_assert_eq(rp_commit_post(p, &attr), 0);
}

static void commit_answered(struct rig_told *t, uint32_t n)
{
	commit(t, n, BASE, 64);
	rig_progress(&g);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(t, RP_ST_OK);
}

static void start_as(struct rp_initiator_attr attr)
{
	static struct rp_xport_ops ops;
	struct rig_msg *m;

	memset(&conn, 0, sizeof(conn));
	rig_start(&g, &attr);
	ops = *g.x.ops;
	ops.dial = x_dial;
	ops.hang_up = x_hang_up;
	g.x.ops = &ops;
	p = rig_peer(&g);
	commit(&c0, 1, BASE, 64);
	m = rig_take(&g, RP_MSG_HELLO);
	s = (struct rig_session){
		.cookie = 77,
		.incarnation = RIG_LIFE,
		.credits = 1000,
		.without = without,
	};
	rig_hello_ack(&g, m, &s, RP_ST_OK);
	free(m);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c0, RP_ST_OK);
}

static void start_with(bool links)
{
	struct rp_initiator_attr attr = rig_attr();

	attr.links = links;
	start_as(attr);
}

/* Take the CONNECT that must be there. */
static struct rp_wire_connect asked(void)
{
	struct rig_msg *m = rig_take(&g, RP_MSG_CONNECT);
	struct rp_wire_connect c;

	cr_assert_eq(rp_wire_get_connect(m->bytes, &m->hdr, &c), 0);
	cr_assert_eq(m->hdr.session, s.cookie);
	free(m);
	return c;
}

static void offer(const struct rp_wire_connect *c, enum rp_status st,
		  uint64_t incarnation)
{
	struct rp_wire_hdr hdr = {
		.session = s.hello,
		.incarnation = incarnation,
	};
	struct rp_wire_offer m = {.status = st, .id = c->id, .key = c->key};
	uint8_t msg[RP_WIRE_MAX_MSG];

	if (!st) {
		m.method = (uint8_t)method;
		m.class = RP_CLASS_POWER;
		m.addr_len = 3;
		m.secret = 99;
		m.there = THERE;
		m.at = AT;
		m.addr = BASE;
		m.length = LEN;
		memcpy(m.to, "to!", 3);
	}
	rig_recv(&g, msg, rp_wire_put_offer(msg, sizeof(msg), &hdr, &m));
}

/* What was begun becomes a connection that key 1 may be written over. */
static void connected(void)
{
	struct rp_wire_connect c = asked();

	cr_assert_eq(c.key, key_of(1));
	offer(&c, RP_ST_OK, RIG_LIFE);
	cr_assert_eq(conn.dials, 1);
	cr_assert_eq(conn.secret, 99);
	rp_link_up(p);
}

static void linked(void)
{
	start_with(true);
	connected();
}

static bool may(uint32_t n, uint64_t at, uint64_t len, struct rp_link_way *way)
{
	return rp_link_may(p, key_of(n), at, len, RP_CLASS_POWER, way);
}

/* A durable write over the connection, as an adapter does it. */
static void posted(struct rig_told *t, struct rp_linked *l, uint64_t at,
		   uint64_t len)
{
	const struct rp_wire_range r = {key_of(1), at, len};
	const struct rp_commit_attr attr = {
		.ranges = &r,
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
		.done = rig_done,
		.arg = t,
	};
	struct rp_link_way way;
	struct rp_commit *c;

	*t = (struct rig_told){0};
	cr_assert(may(1, at, len, &way));
	cr_assert_eq(rp_commit_reserve(p, &attr, &c), 0);
	rp_link_posted(c, &way, l);
	rig_none(&g);
}

static void set_up(void)
{
	method = RP_METHOD_FENCE;
	without = RP_FEATURE_PLACED;
}

TestSuite(link, .init = set_up);

Test(link, nobody_is_asked_who_has_none)
{
	start_with(false);
	rig_none(&g);
	rig_end(&g);
}

Test(link, write_and_fence)
{
	struct rp_link_way way;

	linked();
	cr_assert(may(1, BASE + 100, 5, &way));
	cr_assert_eq(way.conn, &conn);
	cr_assert_eq(way.there, THERE);
	cr_assert_eq(way.at, AT + 100);
	/* Inside the range, however short. */
	cr_assert_eq(way.fence_at, AT + 100);
	cr_assert_eq(way.fence_len, 5);
	cr_assert(may(1, BASE, LEN, &way));
	cr_assert_eq(way.fence_len, 8);
	/* And inside the region. */
	cr_assert(!may(1, BASE + 1, LEN, &way));
	cr_assert(!may(1, BASE - 1, 8, &way));
	cr_assert(!may(2, BASE, 8, &way));
	asked();

	posted(&c1, &l0, BASE, 64);
	rp_linked_written(&l0, 0);
	rig_progress(&g);
	rig_not_told(&c1);
	rp_linked_fenced(&l0, 0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	cr_assert_eq(c1.out.method, RP_METHOD_FENCE);
	/* Whatever comes first. */
	posted(&c1, &l0, BASE, 64);
	rp_linked_fenced(&l0, 0);
	rig_progress(&g);
	rig_not_told(&c1);
	rp_linked_written(&l0, 0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	rig_end(&g);
	cr_assert_eq(conn.hung_up, 1);
}

static bool may_store(void)
{
	return rp_peer_may_store(p, key_of(1), BASE, 64);
}

/* Small writes that went inside their requests for ever would keep it idle. */
Test(link, nothing_is_stored_inline_meanwhile)
{
	struct rp_wire_connect c;

	start_with(false);
	cr_assert(may_store());
	rig_end(&g);

	start_with(true);
	cr_assert(!may_store());
	c = asked();
	offer(&c, RP_ST_OK, RIG_LIFE);
	cr_assert(!may_store());
	rp_link_up(p);
	cr_assert(!may_store());
	/* It failed: until there is another. */
	rp_link_broken(p);
	cr_assert(may_store());
	rig_end(&g);

	start_with(true);
	c = asked();
	offer(&c, RP_ST_NO_METHOD, RIG_LIFE);
	cr_assert(may_store());
	rig_end(&g);
}

/* What goes by another route is waited for, and for the agent behind it. */
Test(link, two_routes)
{
	struct rp_link_way way;
	struct rp_write w;

	linked();
	rp_write_begin(p, &w, key_of(1), BASE + 4096, 64);
	cr_assert(!may(1, BASE, 64, &way));
	rp_write_done(&w, 0);
	cr_assert(!may(1, BASE, 64, &way));
	/* Asked before the write, the agent has said nothing of it. */
	commit(&c1, 1, BASE, 64);
	rp_write_begin(p, &w, key_of(1), BASE + 4096, 64);
	rp_write_done(&w, 0);
	rig_progress(&g);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(&c1, RP_ST_OK);
	cr_assert(!may(1, BASE, 64, &way));
	commit_answered(&c1, 1);
	cr_assert(may(1, BASE, 64, &way));
	/* The other way round: an operation that meets it waits. */
	posted(&c1, &l0, BASE + 128, 64);
	cr_assert(rp_peer_store_overlaps(p, key_of(1), BASE + 191, 1));
	cr_assert(!rp_peer_store_overlaps(p, key_of(1), BASE + 192, 1));
	/* And a commit of its bytes covers it. */
	commit(&c2, 1, BASE + 128, 8);
	rig_progress(&g);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_progress(&g);
	rig_not_told(&c2);
	rp_linked_written(&l0, 0);
	rp_linked_fenced(&l0, 0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	rig_told_once(&c2, RP_ST_OK);
	/* What failed may still come there, whatever else is answered for. */
	rp_write_begin(p, &w, key_of(1), BASE + 4096, 64);
	rp_write_done(&w, EIO);
	commit_answered(&c1, 1);
	cr_assert(may(1, BASE, 64, &way));
	cr_assert(!may(1, BASE + 4096 + 63, 1, &way));
	rig_end(&g);
}

/* The end: all fails, is in doubt, and nothing of what was granted is left. */
Test(link, its_end_is_final)
{
	struct rp_wire_connect first, c;
	struct rp_link_way way;
	struct rp_write w;

	start_with(true);
	first = asked();
	offer(&first, RP_ST_OK, RIG_LIFE);
	rp_link_up(p);
	posted(&c1, &l0, BASE, 64);
	posted(&c2, &l1, BASE + 64, 64);
	rp_linked_written(&l0, 0);
	rp_link_broken(p);
	cr_assert_eq(conn.hung_up, 1);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	rig_told_once(&c2, RP_ST_WRITE_FAILED);
	cr_assert(!may(1, BASE + 4096, 64, &way));
	/* What comes back of it now means nothing. */
	rp_linked_fenced(&l0, 0);
	rp_linked_fenced(&l1, EIO);
	/* The next is asked for at once, and is another one. */
	c = asked();
	cr_assert_gt(c.id, first.id);
	/* Written again: but what was under way may still come over it. */
	rp_write_begin(p, &w, key_of(1), BASE, 128);
	rp_write_done(&w, 0);
	commit(&c1, 1, BASE, 64);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	rig_none(&g);
	/* An offer of the one that is gone, or of another life, says nothing.
	 */
	offer(&first, RP_ST_OK, RIG_LIFE);
	offer(&c, RP_ST_OK, RIG_LIFE2);
	cr_assert_eq(conn.dials, 1);
	offer(&c, RP_ST_OK, RIG_LIFE);
	cr_assert_eq(conn.dials, 2);
	rp_link_up(p);
	/* Now it is known to be gone. What was written before may be undone. */
	commit(&c1, 1, BASE, 64);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	cr_assert(!may(1, BASE, 64, &way));
	rp_write_begin(p, &w, key_of(1), BASE, 128);
	rp_write_done(&w, 0);
	commit_answered(&c1, 1);
	cr_assert(may(1, BASE, 64, &way));
	rig_end(&g);
}

/* A grant of the old connection is none on the new one. */
Test(link, grants_end_with_it)
{
	struct rp_wire_connect c;
	struct rp_link_way way;

	linked();
	commit_answered(&c0, 2);
	c = asked();
	cr_assert_eq(c.key, key_of(2));
	offer(&c, RP_ST_OK, RIG_LIFE);
	cr_assert(may(2, BASE, 64, &way));
	rp_link_broken(p);
	rig_pass(&g, 1000 * RIG_MS);
	rig_none(&g);
	commit_answered(&c0, 1);
	c = asked();
	cr_assert_eq(c.key, key_of(1));
	offer(&c, RP_ST_OK, RIG_LIFE);
	rp_link_up(p);
	cr_assert(may(1, BASE, 64, &way));
	cr_assert(!may(2, BASE, 64, &way));
	asked();
	rig_end(&g);
}

Test(link, a_refusal_is_remembered)
{
	struct rp_wire_connect c;
	struct rp_link_way way;

	linked();
	commit_answered(&c0, 2);
	c = asked();
	offer(&c, RP_ST_NO_METHOD, RIG_LIFE);
	cr_assert(!may(2, BASE, 64, &way));
	commit_answered(&c0, 2);
	rig_none(&g);
	cr_assert(may(1, BASE, 64, &way));
	rig_end(&g);
}

/* Silence, and the end of the session. */
Test(link, silence_ends_it)
{
	linked();
	posted(&c1, &l0, BASE, 64);
	rig_pass(&g, RIG_TIMEOUT - RIG_MS);
	rig_not_told(&c1);
	rig_pass(&g, 2 * RIG_MS);
	cr_assert_eq(c1.times, 1);
	cr_assert_neq(c1.out.status, RP_ST_OK);
	cr_assert_eq(conn.hung_up, 1);
	rp_linked_written(&l0, 0);
	rp_linked_fenced(&l0, 0);
	rig_progress(&g);
	cr_assert_eq(c1.times, 1);
	rig_stop(&g);
}

/* With the address goes whoever could say that it is gone. */
Test(link, removed_in_doubt)
{
	struct rp_write w;

	linked();
	posted(&c1, &l0, BASE, 64);
	rp_peer_forget(g.in, RIG_PEER);
	rig_told_once(&c1, RP_ST_CANCELED);
	cr_assert_eq(conn.hung_up, 1);
	while (g.nout)
		free(rig_pop(&g));
	p = rig_peer(&g);
	rp_write_begin(p, &w, key_of(1), BASE, 64);
	rp_write_done(&w, 0);
	commit(&c1, 1, BASE, 64);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	rig_end(&g);
}

/* Where a CPU places what is acknowledged, that says as much as the agent. */
Test(link, placed_when_acknowledged)
{
	struct rp_link_way way;
	struct rp_write w;

	without = 0;
	linked();
	rp_write_begin(p, &w, key_of(1), BASE + 4096, 64);
	cr_assert(may(1, BASE, 64, &way));
	cr_assert(!may(1, BASE + 4096 + 63, 1, &way));
	rp_write_done(&w, 0);
	cr_assert(may(1, BASE + 4096 + 63, 1, &way));
	/* One that failed may still come. */
	rp_write_begin(p, &w, key_of(1), BASE + 4096, 64);
	rp_write_done(&w, EIO);
	cr_assert(!may(1, BASE + 4096 + 63, 1, &way));
	rig_end(&g);
}

/* --- with the agent's help --- */

static void asking(size_t store_max)
{
	struct rp_initiator_attr attr = rig_attr();

	method = RP_METHOD_AGENT_CLWB;
	attr.links = true;
	attr.store_max = store_max;
	attr.max_commits = 100;
	start_as(attr);
	connected();
}

static char bytes[RP_WIRE_MAX_STORE + 1];

/* A write that asks, as an adapter does it. Returns the token. */
static uint64_t ask_for(struct rig_told *t, struct rp_linked *l, uint64_t at,
			uint64_t len, bool inside)
{
	const struct rp_wire_range r = {key_of(1), at, len};
	const struct rp_commit_attr attr = {
		.ranges = &r,
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
		.done = rig_done,
		.arg = t,
	};
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_wire_request m;
	struct rp_link_way way;
	struct rp_wire_hdr hdr;
	struct rp_commit *c;
	int n;

	*t = (struct rig_told){0};
	cr_assert(may(1, at, len, &way));
	cr_assert(way.asks);
	cr_assert_eq(way.stores, inside);
	cr_assert_eq(way.fence_len, 0);
	cr_assert_eq(way.at, AT + at - BASE);
	cr_assert_eq(rp_commit_reserve(p, &attr, &c), 0);
	n = rp_link_request(c, &way, inside ? bytes : NULL, buf, sizeof(buf));
	cr_assert_eq(rp_wire_get_hdr(buf, (size_t)n, &hdr), 0);
	cr_assert_eq(hdr.session, s.cookie);
	cr_assert_eq(hdr.incarnation, RIG_LIFE);
	cr_assert_eq(rp_wire_get_request(buf, &hdr, &m), 0);
	cr_assert_eq(m.level, RP_LEVEL_DURABLE);
	cr_assert_eq(m.required, RP_CLASS_POWER);
	cr_assert_eq(m.effect, inside ? RP_EFFECT_STORE : RP_EFFECT_NONE);
	cr_assert_eq(m.nranges, 1);
	cr_assert_eq(m.ranges[0].key, r.key);
	cr_assert_eq(m.ranges[0].addr, at);
	cr_assert_eq(m.ranges[0].len, len);
	if (inside)
		cr_assert_eq(memcmp(m.bytes, bytes, len), 0);
	rp_link_posted(c, &way, l);
	rig_none(&g);
	return hdr.token;
}

static const struct rp_wire_reply yes = {
	.level = RP_LEVEL_DURABLE,
	.class = RP_CLASS_POWER,
	.method = RP_METHOD_AGENT_CLWB,
	.credits = 1000,
};

static struct rp_linked *answer_as(struct rp_wire_hdr hdr,
				   const struct rp_wire_reply *m)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	int n = rp_wire_put_reply(buf, sizeof(buf), &hdr, m);

	return rp_linked_answered(p, buf, (size_t)n);
}

static struct rp_wire_hdr hdr_of(uint64_t token)
{
	return (struct rp_wire_hdr){
		.session = s.hello,
		.token = token,
		.incarnation = RIG_LIFE,
	};
}

static struct rp_linked *answer(uint64_t token, const struct rp_wire_reply *m)
{
	return answer_as(hdr_of(token), m);
}

Test(link, bytes_in_the_request)
{
	uint64_t token;

	asking(sizeof(bytes));
	memset(bytes, 7, sizeof(bytes));
	token = ask_for(&c1, &l0, BASE + 100, 5, true);
	rig_progress(&g);
	rig_not_told(&c1);
	/* It is a write under way. */
	cr_assert(rp_peer_store_overlaps(p, key_of(1), BASE + 104, 1));
	cr_assert_eq(answer(token, &yes), &l0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	cr_assert_eq(c1.out.method, RP_METHOD_AGENT_CLWB);
	cr_assert_eq(c1.out.class, RP_CLASS_POWER);
	cr_assert(!rp_peer_store_overlaps(p, key_of(1), BASE + 104, 1));
	rig_none(&g);
	rig_end(&g);
}

/* The answer stands behind the write, whichever is heard of first. */
Test(link, request_behind)
{
	uint64_t token;

	asking(0);
	token = ask_for(&c1, &l0, BASE, LEN, false);
	rp_linked_written(&l0, 0);
	rig_progress(&g);
	rig_not_told(&c1);
	cr_assert_eq(answer(token, &yes), &l0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);

	token = ask_for(&c1, &l0, BASE, 64, false);
	cr_assert_eq(answer(token, &yes), &l0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	rp_linked_written(&l0, 0);
	rig_progress(&g);
	cr_assert_eq(c1.times, 1);
	cr_assert_eq(conn.hung_up, 0);
	rig_end(&g);
}

Test(link, answers_of_nobody)
{
	struct rp_wire_hdr hdr;
	uint64_t token;

	asking(sizeof(bytes));
	token = ask_for(&c1, &l0, BASE, 64, true);
	cr_assert_null(answer(token + 1, &yes));
	cr_assert_null(answer(0, &yes));
	hdr = hdr_of(token);
	hdr.session++;
	cr_assert_null(answer_as(hdr, &yes));
	hdr = hdr_of(token);
	hdr.incarnation = RIG_LIFE2;
	cr_assert_null(answer_as(hdr, &yes));
	cr_assert_null(rp_linked_answered(p, bytes, sizeof(bytes)));
	rig_progress(&g);
	rig_not_told(&c1);
	cr_assert_eq(answer(token, &yes), &l0);
	cr_assert_null(answer(token, &yes));
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	/* What fences has no token, and takes no answer. */
	rig_end(&g);
}

/* A no is the end of it, and nothing of it comes later. */
Test(link, answers_that_say_no)
{
	struct rp_wire_reply m = {.status = RP_ST_STALE_KEY, .credits = 1000};
	struct rp_link_way way;
	struct rp_write w;
	uint64_t token;

	asking(sizeof(bytes));
	token = ask_for(&c1, &l0, BASE, 64, true);
	cr_assert_eq(answer(token, &m), &l0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_STALE_KEY);
	cr_assert(!may(1, BASE, 64, &way));
	rp_write_begin(p, &w, key_of(1), BASE, 64);
	rp_write_done(&w, 0);
	commit_answered(&c1, 1);
	/* Less than was asked for is no yes. */
	token = ask_for(&c1, &l0, BASE, 64, true);
	m = yes;
	m.class = RP_CLASS_PROCESS;
	cr_assert_eq(answer(token, &m), &l0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_CLASS);
	token = ask_for(&c1, &l0, BASE + 64, 64, true);
	m = yes;
	m.level = RP_LEVEL_VISIBLE;
	m.class = RP_CLASS_NONE;
	cr_assert_eq(answer(token, &m), &l0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_CLASS);
	cr_assert_eq(conn.hung_up, 0);
	rig_end(&g);
}

Test(link, as_many_as_the_target_has_room_for)
{
	static struct rp_linked l[RP_WIRE_LINKED];
	static struct rig_told t[RP_WIRE_LINKED];
	uint64_t token[RP_WIRE_LINKED];
	struct rp_link_way way;

	asking(sizeof(bytes));
	for (unsigned int i = 0; i < RP_WIRE_LINKED; i++)
		token[i] = ask_for(&t[i], &l[i], BASE + 64 * i, 64, true);
	cr_assert(!may(1, BASE + 8192, 64, &way));
	cr_assert_eq(answer(token[3], &yes), &l[3]);
	rig_progress(&g);
	rig_told_once(&t[3], RP_ST_OK);
	cr_assert(may(1, BASE + 8192, 64, &way));
	/* Its end fails all, and the next has room again. */
	rp_link_broken(p);
	rig_progress(&g);
	for (unsigned int i = 0; i < RP_WIRE_LINKED; i++)
		if (i != 3)
			rig_told_once(&t[i], RP_ST_WRITE_FAILED);
	offer(&(struct rp_wire_connect){.id = 2, .key = key_of(1)}, RP_ST_OK,
	      RIG_LIFE);
	asked();
	rp_link_up(p);
	for (unsigned int i = 0; i < RP_WIRE_LINKED; i++)
		token[i] =
			ask_for(&t[i], &l[i], BASE + 8192 + 64 * i, 64, true);
	for (unsigned int i = 0; i < RP_WIRE_LINKED; i++)
		cr_assert_eq(answer(token[i], &yes), &l[i]);
	rig_progress(&g);
	rig_end(&g);
}

/* Without an answer nobody knows, before the connection is gone there. */
Test(link, no_answer)
{
	struct rp_wire_connect c;
	struct rp_link_way way;
	struct rp_write w;

	without = 0;
	asking(sizeof(bytes));
	ask_for(&c1, &l0, BASE, 64, true);
	rp_link_broken(p);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	c = asked();
	rp_write_begin(p, &w, key_of(1), BASE, 64);
	rp_write_done(&w, 0);
	commit(&c1, 1, BASE, 64);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	offer(&c, RP_ST_OK, RIG_LIFE);
	rp_link_up(p);
	cr_assert(!may(1, BASE, 64, &way));
	rp_write_begin(p, &w, key_of(1), BASE, 64);
	rp_write_done(&w, 0);
	cr_assert(may(1, BASE, 64, &way));
	rig_end(&g);
}

/* An inline store over the base is as good until there is a connection. */
Test(link, stores_meanwhile)
{
	struct rp_initiator_attr attr = rig_attr();
	struct rp_commit_attr how = {
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
		.effect = RP_EFFECT_STORE,
		.bytes = bytes,
		.done = rig_done,
		.arg = &c1,
	};
	struct rp_wire_range r;
	struct rp_link_way way;
	struct rp_wire_connect c;

	method = RP_METHOD_AGENT_CLWB;
	attr.links = true;
	attr.store_max = 100;
	start_as(attr);
	c = asked();
	cr_assert(may_store());
	offer(&c, RP_ST_OK, RIG_LIFE);
	rp_link_up(p);
	rp_link_broken(p);
	rig_pass(&g, 1000 * RIG_MS);
	/* It asks for one, too, and makes nothing wait for the agent. */
	r = (struct rp_wire_range){key_of(1), BASE, 64};
	how.ranges = &r;
	c1 = (struct rig_told){0};
	cr_assert_eq(rp_commit_post(p, &how), 0);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	c = asked();
	offer(&c, RP_ST_OK, RIG_LIFE);
	rp_link_up(p);
	cr_assert(may(1, BASE, 64, &way));
	rig_end(&g);
}
