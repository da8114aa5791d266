/* SPDX-License-Identifier: BSD-2-Clause */
/* An initiator with connections of its own, to a target that the test plays. */
#ifndef RP_TEST_LINK_RIG_H
#define RP_TEST_LINK_RIG_H

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
static struct rig_told c0;
/* How the target makes its regions durable, and which features it has not. */
static enum rp_method method;
static uint16_t without;

static struct {
	unsigned int dials, hung_up;
	uint64_t secret;
	int ret;
} conn;

static inline int x_dial(struct rp_xport *x, struct rp_peer *peer,
			 const void *addr, size_t len, uint64_t secret,
			 void **out)
{
	cr_assert_eq(peer, p);
	cr_assert_eq(len, 3);
	cr_assert_eq(memcmp(addr, "to!", 3), 0);
	conn.dials++;
	conn.secret = secret;
	*out = &conn;
	return conn.ret;
}

static inline void x_hang_up(struct rp_xport *x, void *c)
{
	cr_assert_eq(c, &conn);
	conn.hung_up++;
}

static inline uint64_t key_of(uint32_t n)
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

/* One range, durable. */
static inline struct rp_commit_attr attr_of(const struct rp_wire_range *r,
					    struct rig_told *t)
{
	*t = (struct rig_told){0};
	return (struct rp_commit_attr){
		.ranges = r,
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
		.done = rig_done,
		.arg = t,
	};
}

/* A commit that the agent is asked about. */
static inline void commit(struct rig_told *t, uint32_t n, uint64_t at,
			  uint64_t len)
{
	const struct rp_wire_range r = {key_of(n), at, len};
	const struct rp_commit_attr attr = attr_of(&r, t);

	cr_assert_eq(rp_commit_post(p, &attr), 0);
}

static inline void commit_answered(struct rig_told *t, uint32_t n)
{
	commit(t, n, BASE, 64);
	rig_progress(&g);
	rig_ok(&g, &s, rig_requested(&g, &s));
	rig_told_once(t, RP_ST_OK);
}

static inline void start_as(struct rp_initiator_attr attr)
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

static inline void start_with(bool links)
{
	struct rp_initiator_attr attr = rig_attr();

	attr.links = links;
	start_as(attr);
}

/* Take the CONNECT that must be there. */
static inline struct rp_wire_connect asked(void)
{
	struct rig_msg *m = rig_take(&g, RP_MSG_CONNECT);
	struct rp_wire_connect c;

	cr_assert_eq(rp_wire_get_connect(m->bytes, &m->hdr, &c), 0);
	cr_assert_eq(m->hdr.session, s.cookie);
	free(m);
	return c;
}

static inline void offer(const struct rp_wire_connect *c, enum rp_status st,
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
static inline void connected(void)
{
	struct rp_wire_connect c = asked();

	cr_assert_eq(c.key, key_of(1));
	offer(&c, RP_ST_OK, RIG_LIFE);
	cr_assert_eq(conn.dials, 1);
	cr_assert_eq(conn.secret, 99);
	rp_link_up(p);
}

static inline void linked(void)
{
	start_with(true);
	connected();
}

static inline bool may(uint32_t n, uint64_t at, uint64_t len,
		       struct rp_link_way *way)
{
	return rp_link_may(p, key_of(n), at, len, RP_CLASS_POWER, way);
}

/* A durable write over the connection, as an adapter does it. */
static inline void posted(struct rig_told *t, struct rp_linked *l, uint64_t at,
			  uint64_t len)
{
	const struct rp_wire_range r = {key_of(1), at, len};
	const struct rp_commit_attr attr = attr_of(&r, t);
	struct rp_link_way way;
	struct rp_commit *c;

	cr_assert(may(1, at, len, &way));
	cr_assert_eq(rp_commit_reserve(p, &attr, &c), 0);
	rp_link_posted(c, &way, l);
	rig_none(&g);
}

/* One whose regions need the agent. */
static inline void asking(size_t store_max)
{
	struct rp_initiator_attr attr = rig_attr();

	method = RP_METHOD_AGENT_CLWB;
	attr.links = true;
	attr.store_max = store_max;
	attr.max_commits = 100;
	start_as(attr);
	connected();
}

/* --- what comes over the connection --- */

static const struct rp_wire_reply yes = {
	.level = RP_LEVEL_DURABLE,
	.class = RP_CLASS_POWER,
	.method = RP_METHOD_AGENT_CLWB,
	.credits = 1000,
};

static inline struct rp_linked *answer_as(struct rp_wire_hdr hdr,
					  const struct rp_wire_reply *m)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	int n = rp_wire_put_reply(buf, sizeof(buf), &hdr, m);

	return rp_linked_answered(p, buf, (size_t)n);
}

static inline struct rp_wire_hdr hdr_of(uint64_t token)
{
	return (struct rp_wire_hdr){
		.session = s.hello,
		.token = token,
		.incarnation = RIG_LIFE,
	};
}

static inline struct rp_linked *answer(uint64_t token,
				       const struct rp_wire_reply *m)
{
	return answer_as(hdr_of(token), m);
}

static inline bool may_store(void)
{
	return rp_peer_may_store(p, key_of(1), BASE, 64);
}

static inline void set_up(void)
{
	method = RP_METHOD_FENCE;
	without = RP_FEATURE_PLACED;
}

#endif
