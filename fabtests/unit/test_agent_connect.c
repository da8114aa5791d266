// SPDX-License-Identifier: BSD-2-Clause
/* Connections of our own at a target: for what, for whom, and how many. */
#include <errno.h>
#include <string.h>

#include <criterion/criterion.h>

#include "agent_rig.h"

static struct rig g;
static struct rig_peer p;
static struct rig_region m;

static struct {
	unsigned int live, made, ended;
	int ret;
} conns;

static int x_offer(struct rp_xport *x, void **conn, const struct rp_region *r,
		   struct rp_wire_offer *o)
{
	cr_assert_eq(r, &m.r);
	if (!*conn) {
		*conn = &conns;
		conns.made++;
		conns.live++;
	}
	o->secret = 1000 + conns.made;
	o->there = 5;
	o->at = 7;
	o->addr_len = 1;
	o->to[0] = 9;
	return conns.ret;
}

static void x_unoffer(struct rp_xport *x, void *conn)
{
	cr_assert_eq(conn, &conns);
	conns.ended++;
	conns.live--;
}

static void begin(enum rp_method method, bool links)
{
	const struct rp_agent_attr attr = {
		.incarnation = RIG_INCARNATION,
		.no_worker = true,
		.links = links,
	};
	static struct rp_xport_ops ops;

	memset(&conns, 0, sizeof(conns));
	rig_init(&g, &attr);
	ops = *g.x[0].x.ops;
	ops.offer = x_offer;
	ops.unoffer = x_unoffer;
	g.x[0].x.ops = &ops;
	rig_region(&g, &m, method, 1);
	m.r.writable = true;
	p = rig_open(&g, 0, 1, &m);
}

/* The appliance: DDIO off, ADR. */
static void begin_fence(void)
{
	begin(RP_METHOD_AGENT_CLWB, true);
	m.r.facts.placement = RP_PLACE_DMA_MEMORY;
	m.r.facts.fence = RP_YES;
	m.r.facts.told = RP_YES;
	m.r.links_tell = true;
	m.r.choice = rp_method_best(&m.r.facts, RP_METHODS_BUILT);
	cr_assert_eq(m.r.choice.method, RP_METHOD_FENCE);
}

static void end(void)
{
	rig_region_del(&g, &m);
	rig_fini(&g);
	cr_assert_eq(conns.live, 0);
}

static void connect_as(uint64_t id, uint64_t key, uint64_t incarnation)
{
	const struct rp_wire_hdr hdr = {
		.session = p.target,
		.incarnation = incarnation,
	};
	const struct rp_wire_connect c = {.id = id, .key = key};
	uint8_t buf[RP_WIRE_MAX_MSG];

	rig_recv(p.x, buf, rp_wire_put_connect(buf, sizeof(buf), &hdr, &c));
}

static struct rp_wire_offer asked(uint64_t id, uint64_t key,
				  enum rp_status want)
{
	struct rig_msg msg;

	connect_as(id, key, RIG_INCARNATION);
	cr_assert(rig_take(p.x, &msg));
	cr_assert_eq(msg.hdr.type, RP_MSG_OFFER);
	cr_assert_eq(msg.hdr.session, p.cookie);
	cr_assert_eq(msg.hdr.incarnation, RIG_INCARNATION);
	cr_assert_eq(msg.offer.status, want, "status %u", msg.offer.status);
	cr_assert_eq(msg.offer.id, id);
	cr_assert_eq(msg.offer.key, key);
	return msg.offer;
}

Test(connect, offer)
{
	struct rp_wire_offer o;

	begin_fence();
	o = asked(3, m.r.key, RP_ST_OK);
	cr_assert_eq(o.method, RP_METHOD_FENCE);
	cr_assert_eq(o.class, RP_CLASS_POWER);
	cr_assert_eq(o.addr, m.r.addr);
	cr_assert_eq(o.length, m.r.len);
	cr_assert_eq(o.there, 5);
	cr_assert_eq(o.at, 7);
	cr_assert_eq(o.to[0], 9);
	/* Again: the same connection. */
	cr_assert_eq(asked(3, m.r.key, RP_ST_OK).secret, o.secret);
	cr_assert_eq(conns.made, 1);
	/* The agent itself goes on as ever, and grants nothing. */
	rig_commit(&p, &m, 0, 64);
	rig_run(&g);
	cr_assert_eq(rig_expect(p.x, p.token, RP_ST_OK).grant, 0);
	end();
	cr_assert_eq(conns.ended, 1);
}

/* The answer says that the ones before are gone: so they are. */
Test(connect, the_next_ends_the_last)
{
	begin_fence();
	asked(3, m.r.key, RP_ST_OK);
	asked(4, m.r.key, RP_ST_OK);
	cr_assert_eq(conns.ended, 1);
	cr_assert_eq(conns.made, 2);
	/* Also when it is refused. */
	asked(5, m.r.key ^ 1ull << 50, RP_ST_STALE_KEY);
	cr_assert_eq(conns.ended, 2);
	/* One that comes late brings nothing back. */
	connect_as(4, m.r.key, RIG_INCARNATION);
	rig_expect_nothing(p.x);
	cr_assert_eq(conns.live, 0);
	end();
}

Test(connect, refusals)
{
	struct rig_msg msg;

	begin_fence();
	asked(1, m.r.key + 1, RP_ST_UNKNOWN_KEY);
	connect_as(2, m.r.key, RIG_INCARNATION + 1);
	cr_assert(rig_take(p.x, &msg));
	cr_assert_eq(msg.offer.status, RP_ST_INCARNATION);
	cr_assert_eq(asked(3, m.r.key, RP_ST_OK).status, RP_ST_OK);
	m.r.writable = false;
	asked(4, m.r.key, RP_ST_ACCESS);
	m.r.writable = true;
	m.r.failed = EIO;
	asked(5, m.r.key, RP_ST_REGION_FAILED);
	m.r.failed = 0;
	conns.ret = -EMFILE;
	asked(6, m.r.key, RP_ST_OVERLOADED);
	conns.ret = 0;
	m.r.choice.method = RP_METHOD_AGENT_CLWB;
	asked(7, m.r.key, RP_ST_NO_METHOD);
	/* What only an adapter has is not left to delivery. */
	m.r.choice.method = RP_METHOD_DELIVERY;
	cr_assert_eq(asked(8, m.r.key, RP_ST_OK).method, RP_METHOD_FENCE);
	m.r.facts.fence = RP_NO;
	asked(9, m.r.key, RP_ST_NO_METHOD);
	m.r.facts.placement = RP_PLACE_CPU_KERNEL;
	cr_assert_eq(asked(10, m.r.key, RP_ST_OK).method, RP_METHOD_DELIVERY);
	end();
}

/* Where a flush can fail everybody must learn of that. */
Test(connect, not_where_a_flush_can_fail)
{
	begin(RP_METHOD_AGENT_MSYNC, true);
	m.r.choice.method = RP_METHOD_DELIVERY;
	asked(1, m.r.key, RP_ST_NO_METHOD);
	cr_assert_eq(conns.made, 0);
	end();
}

Test(connect, none_are_offered)
{
	begin(RP_METHOD_DELIVERY, false);
	asked(1, m.r.key, RP_ST_UNSUPPORTED);
	cr_assert_eq(conns.made, 0);
	end();
}

Test(connect, flood)
{
	begin_fence();
	for (uint64_t id = 1; id < 1000; id++) {
		asked(id, m.r.key, RP_ST_OK);
		cr_assert_eq(conns.live, 1);
	}
	/* It goes with its session. */
	rig_bye(&p);
	cr_assert_eq(conns.live, 0);
	/* Nobody without one is listened to. */
	connect_as(5000, m.r.key, RIG_INCARNATION);
	rig_expect_nothing(p.x);
	end();
}
