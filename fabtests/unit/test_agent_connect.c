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
	bool no_flush; /* of this memory */
	/* What was answered over it, and how much was on media then. */
	unsigned int answers;
	struct rp_wire_hdr hdr;
	struct rp_wire_reply reply;
	uint64_t at, durable;
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
	if (conns.no_flush && o->method == RP_METHOD_NATIVE)
		return -EOPNOTSUPP;
	return conns.ret;
}

static void x_unoffer(struct rp_xport *x, void *conn)
{
	cr_assert_eq(conn, &conns);
	conns.ended++;
	conns.live--;
}

static void x_answer(struct rp_xport *x, void *conn, const void *msg,
		     size_t len)
{
	cr_assert_eq(conn, &conns);
	cr_assert_eq(rp_wire_get_hdr(msg, len, &conns.hdr), 0);
	cr_assert_eq(rp_wire_get_reply(msg, &conns.hdr, &conns.reply), 0);
	cr_assert_eq(conns.hdr.session, p.cookie);
	cr_assert_eq(conns.hdr.incarnation, RIG_INCARNATION);
	cr_assert_eq(conns.reply.grant, 0);
	conns.answers++;
	conns.durable = rig_value(&m, conns.at, true);
}

static void begin_as(enum rp_method method, bool links, bool native)
{
	const struct rp_agent_attr attr = {
		.incarnation = RIG_INCARNATION,
		.no_worker = true,
		.links = links,
		.native = native,
	};
	static struct rp_xport_ops ops;

	memset(&conns, 0, sizeof(conns));
	rig_init(&g, &attr);
	ops = *g.x[0].x.ops;
	ops.offer = x_offer;
	ops.unoffer = x_unoffer;
	ops.answer = x_answer;
	g.x[0].x.ops = &ops;
	rig_region(&g, &m, method, 1);
	m.r.writable = true;
	p = rig_open(&g, 0, 1, &m);
}

static void begin(enum rp_method method, bool links)
{
	begin_as(method, links, false);
}

/* Devices that FLUSH by themselves, or of whom one does not. */
static void begin_native(bool native)
{
	begin_as(RP_METHOD_AGENT_CLWB, true, native);
	m.r.facts.placement = RP_PLACE_DMA_CACHE;
	m.r.facts.native = RP_YES;
	m.r.facts.told = RP_YES;
	m.r.links_tell = true;
	m.r.choice = rp_method_best(&m.r.facts, RP_METHODS_BUILT);
	cr_assert_eq(m.r.choice.method, RP_METHOD_NATIVE);
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

Test(connect, offer_of_a_device_that_flushes)
{
	struct rp_wire_offer o;

	begin_native(true);
	o = asked(3, m.r.key, RP_ST_OK);
	cr_assert_eq(o.method, RP_METHOD_NATIVE);
	cr_assert_eq(o.class, RP_CLASS_POWER);
	/* Whoever asks the agent is served as well. */
	rig_commit(&p, &m, 0, 64);
	rig_run(&g);
	cr_assert_eq(rig_expect(p.x, p.token, RP_ST_OK).method,
		     RP_METHOD_AGENT_CLWB);
	end();
}

Test(connect, only_one_device_flushes)
{
	begin_native(false);
	cr_assert_eq(asked(3, m.r.key, RP_ST_OK).method, RP_METHOD_AGENT_CLWB);
	end();
}

/* The device has the method, and has not taken this region for it. */
Test(connect, memory_that_the_device_does_not_flush)
{
	begin_native(true);
	conns.no_flush = true;
	cr_assert_eq(asked(3, m.r.key, RP_ST_OK).method, RP_METHOD_AGENT_CLWB);
	conns.ret = -EMFILE;
	asked(4, m.r.key, RP_ST_OVERLOADED);
	conns.ret = -EOPNOTSUPP;
	asked(5, m.r.key, RP_ST_OVERLOADED);
	end();
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
	cr_assert_eq(asked(7, m.r.key, RP_ST_OK).method, RP_METHOD_AGENT_CLWB);
	/* What only an adapter has is not left to delivery. */
	m.r.choice.method = RP_METHOD_DELIVERY;
	cr_assert_eq(asked(8, m.r.key, RP_ST_OK).method, RP_METHOD_FENCE);
	m.r.facts.fence = RP_NO;
	asked(9, m.r.key, RP_ST_NO_METHOD);
	m.r.facts.placement = RP_PLACE_CPU_KERNEL;
	cr_assert_eq(asked(10, m.r.key, RP_ST_OK).method, RP_METHOD_DELIVERY);
	end();
}

/* Where a flush can fail everybody must learn of that; nor may it block. */
Test(connect, not_where_a_flush_can_fail)
{
	begin(RP_METHOD_AGENT_MSYNC, true);
	m.r.choice.method = RP_METHOD_DELIVERY;
	asked(1, m.r.key, RP_ST_NO_METHOD);
	m.r.choice.method = RP_METHOD_AGENT_MSYNC;
	asked(2, m.r.key, RP_ST_NO_METHOD);
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

/* --- requests over it --- */

#define VALUE 0x0807060504030201ull

static struct rp_wire_hdr as_asked(void)
{
	return (struct rp_wire_hdr){
		.session = p.target,
		.token = 42,
		.incarnation = RIG_INCARNATION,
	};
}

static struct rp_wire_request a_store(uint64_t at)
{
	static const uint64_t value = VALUE;

	conns.at = at;
	return (struct rp_wire_request){
		.nranges = 1,
		.level = RP_LEVEL_DURABLE,
		.required = RP_CLASS_POWER,
		.effect = RP_EFFECT_STORE,
		.seq = 1,
		.bytes = (const void *)&value,
		.ranges[0] = {m.r.key, m.r.addr + at, sizeof(value)},
	};
}

static bool send_over(const void *conn, struct rp_wire_hdr hdr,
		      const struct rp_wire_request *q)
{
	uint8_t buf[RP_WIRE_MAX_MSG];
	int n = rp_wire_put_request(buf, sizeof(buf), &hdr, q);

	cr_assert_gt(n, 0);
	return rp_agent_linked(g.a, &p.x->x, conn, buf, (size_t)n);
}

/* It is carried out, and answered so. */
static void done(const struct rp_wire_request *q, enum rp_status st)
{
	unsigned int answers = conns.answers;

	cr_assert(send_over(&conns, as_asked(), q));
	cr_assert_eq(conns.answers, answers + 1);
	cr_assert_eq(conns.hdr.token, 42);
	cr_assert_eq(conns.reply.status, st, "%u", conns.reply.status);
	/* Not in the base's way, and no job is left. */
	rig_expect_nothing(p.x);
	cr_assert_eq(rp_agent_pending(g.a), 0);
}

Test(connect, bytes_in_a_request)
{
	struct rp_wire_request q;

	begin(RP_METHOD_AGENT_CLWB, true);
	asked(1, m.r.key, RP_ST_OK);
	q = a_store(16);
	done(&q, RP_ST_OK);
	cr_assert_eq(conns.durable, VALUE);
	cr_assert_eq(conns.reply.class, RP_CLASS_POWER);
	cr_assert_eq(conns.reply.method, RP_METHOD_AGENT_CLWB);
	/* Each is done: nobody sends one twice. */
	rig_store(&m, 16, 8);
	done(&q, RP_ST_OK);
	cr_assert_eq(conns.durable, VALUE);
	end();
}

Test(connect, request_behind_a_write)
{
	struct rp_wire_request q;

	begin(RP_METHOD_AGENT_CLWB, true);
	asked(1, m.r.key, RP_ST_OK);
	q = a_store(64);
	q.effect = q.seq = 0;
	q.nranges = 2;
	q.ranges[0].addr = m.r.addr + 1024;
	q.ranges[1] = (struct rp_wire_range){m.r.key, m.r.addr + 64, 8};
	rig_store(&m, 64, 8);
	cr_assert_neq(rig_value(&m, 64, true), rig_value(&m, 64, false));
	done(&q, RP_ST_OK);
	cr_assert_eq(conns.durable, rig_value(&m, 64, false));
	end();
}

/* Whole, or not at all; and the peer goes on. */
Test(connect, refused_over_it)
{
	struct rp_wire_request q;

	begin(RP_METHOD_AGENT_CLWB, true);
	asked(1, m.r.key, RP_ST_OK);
	q = a_store(0);
	q.ranges[0].addr = m.r.addr + m.r.len - 7;
	done(&q, RP_ST_RANGE);
	q = a_store(0);
	q.ranges[0].key ^= 1ull << 50;
	done(&q, RP_ST_STALE_KEY);
	q = a_store(0);
	m.r.writable = false;
	done(&q, RP_ST_ACCESS);
	m.r.writable = true;
	m.r.failed = EIO;
	done(&q, RP_ST_REGION_FAILED);
	m.r.failed = 0;
	cr_assert_neq(rig_value(&m, 0, false), VALUE);
	done(&q, RP_ST_OK);
	cr_assert_eq(rig_value(&m, 0, true), VALUE);
	end();
}

/* Several that are placed: whole, or not at all; a commit behind flushes. */
Test(connect, placed_then_committed)
{
	const uint64_t two[] = {VALUE, ~VALUE};
	struct rig_region plain, ro;
	struct rp_wire_request q, c;

	begin(RP_METHOD_AGENT_CLWB, true);
	rig_region_volatile(&g, &plain, 1);
	rig_region(&g, &ro, RP_METHOD_AGENT_CLWB, 1);
	asked(1, m.r.key, RP_ST_OK);
	q = a_store(64);
	q.level = RP_LEVEL_VISIBLE;
	q.required = RP_CLASS_NONE;
	q.nranges = 2;
	q.ranges[1] = (struct rp_wire_range){m.r.key, m.r.addr + 256, 8};
	q.bytes = two;
	c = q;
	/* Before anything is stored all is looked at. */
	q.ranges[1].key = plain.r.key;
	done(&q, RP_ST_VOLATILE);
	q.ranges[1] = (struct rp_wire_range){m.r.key, m.r.addr + m.r.len, 8};
	done(&q, RP_ST_RANGE);
	ro.r.writable = false;
	q.ranges[1] = (struct rp_wire_range){ro.r.key, ro.r.addr, 8};
	done(&q, RP_ST_ACCESS);
	m.r.failed = EIO;
	done(&c, RP_ST_REGION_FAILED);
	m.r.failed = 0;
	cr_assert_neq(rig_value(&m, 64, false), VALUE);

	done(&c, RP_ST_OK);
	cr_assert_eq(conns.reply.level, RP_LEVEL_VISIBLE);
	cr_assert_eq(rig_value(&m, 64, false), VALUE);
	cr_assert_eq(rig_value(&m, 256, false), ~VALUE);
	cr_assert_neq(rig_value(&m, 64, true), VALUE);
	c.level = RP_LEVEL_DURABLE;
	c.required = RP_CLASS_POWER;
	c.effect = c.seq = 0;
	done(&c, RP_ST_OK);
	cr_assert_eq(rig_value(&m, 64, true), VALUE);
	cr_assert_eq(rig_value(&m, 256, true), ~VALUE);
	/* Over the base there are none. */
	c.level = RP_LEVEL_VISIBLE;
	c.effect = RP_EFFECT_STORE;
	c.seq = 1;
	{
		uint8_t buf[RP_WIRE_MAX_MSG];
		struct rp_wire_hdr hdr = as_asked();

		rig_store(&m, 64, 8);
		rig_recv(p.x, buf,
			 rp_wire_put_request(buf, sizeof(buf), &hdr, &c));
		rig_expect(p.x, 42, RP_ST_BAD_MESSAGE);
		cr_assert_neq(rig_value(&m, 64, false), VALUE);
	}
	rig_region_del(&g, &ro);
	rig_region_del(&g, &plain);
	end();
}

/* As many as a message may name are looked at and flushed one by one. */
Test(connect, packed_ranges)
{
	static struct rp_wire_request q;
	uint64_t before;

	begin(RP_METHOD_AGENT_CLWB, true);
	asked(1, m.r.key, RP_ST_OK);
	q = a_store(0);
	q.effect = q.seq = 0;
	q.packed = true;
	q.nranges = RP_WIRE_MAX_PACKED;
	for (size_t i = 0; i < RP_WIRE_MAX_PACKED; i++)
		q.ranges[i] =
			(struct rp_wire_range){m.r.key, m.r.addr + 2 * i, 1};
	rig_store(&m, 8, 8);
	rig_store(&m, 2 * RP_WIRE_MAX_PACKED - 8, 8);
	conns.at = 2 * RP_WIRE_MAX_PACKED - 8;
	before = rig_stats(&g).ranges;
	done(&q, RP_ST_OK);
	cr_assert_eq(conns.durable, rig_value(&m, conns.at, false));
	cr_assert_eq(rig_value(&m, 8, true), rig_value(&m, 8, false));
	cr_assert_eq(rig_stats(&g).ranges, before + RP_WIRE_MAX_PACKED);
	/* The last is outside. */
	q.ranges[RP_WIRE_MAX_PACKED - 1].addr = m.r.addr + m.r.len;
	done(&q, RP_ST_RANGE);
	cr_assert_eq(conns.reply.range, RP_WIRE_MAX_PACKED - 1);
	end();
}

/* What would hold up the others, and may fail, is not done here. */
Test(connect, nothing_that_blocks)
{
	struct rig_region file;
	struct rp_wire_request q;

	begin(RP_METHOD_AGENT_CLWB, true);
	rig_region(&g, &file, RP_METHOD_AGENT_MSYNC, 1);
	file.r.writable = true;
	asked(1, m.r.key, RP_ST_OK);
	q = a_store(8);
	q.ranges[0].key = file.r.key;
	done(&q, RP_ST_NO_METHOD);
	q.level = RP_LEVEL_VISIBLE;
	done(&q, RP_ST_NO_METHOD);
	q.level = RP_LEVEL_DURABLE;
	q.effect = q.seq = 0;
	done(&q, RP_ST_NO_METHOD);
	cr_assert_eq(file.syncs, 0);
	cr_assert_neq(rig_value(&file, 8, false), VALUE);
	rig_region_del(&g, &file);
	end();
}

/* Who sends anything else is none of ours: that connection is to end. */
Test(connect, nonsense_over_it)
{
	const struct rp_wire_query query = {.key = m.r.key};
	uint64_t bad = 0;
	struct rp_wire_request q;
	struct rp_wire_hdr hdr;
	uint8_t buf[RP_WIRE_MAX_MSG] = {0};
	int n;

	begin(RP_METHOD_AGENT_CLWB, true);
	q = a_store(0);
	/* Before there is one. */
	cr_assert(!send_over(&conns, as_asked(), &q));
	cr_assert(!send_over(NULL, as_asked(), &q));
	asked(1, m.r.key, RP_ST_OK);
	bad = rig_stats(&g).bad_messages;
	cr_assert(!send_over(&bad, as_asked(), &q));
	cr_assert(!send_over(NULL, as_asked(), &q));
	hdr = as_asked();
	hdr.session++;
	cr_assert(!send_over(&conns, hdr, &q));
	hdr = as_asked();
	hdr.incarnation++;
	cr_assert(!send_over(&conns, hdr, &q));
	q.effect = RP_EFFECT_NOTIFY;
	cr_assert(!send_over(&conns, as_asked(), &q));
	q.effect = q.seq = 0;
	q.level = RP_LEVEL_VISIBLE;
	cr_assert(!send_over(&conns, as_asked(), &q));
	hdr = as_asked();
	n = rp_wire_put_query(buf, sizeof(buf), &hdr, &query);
	cr_assert(!rp_agent_linked(g.a, &p.x->x, &conns, buf, (size_t)n));
	cr_assert(!rp_agent_linked(g.a, &p.x->x, &conns, buf, 3));
	memset(buf, 0, sizeof(buf));
	cr_assert(!rp_agent_linked(g.a, &p.x->x, &conns, buf, 64));
	cr_assert_eq(rig_stats(&g).bad_messages, bad + 9);
	cr_assert_eq(conns.answers, 0);
	cr_assert_neq(rig_value(&m, 0, false), VALUE);
	rig_expect_nothing(p.x);
	/* And after it. */
	q = a_store(0);
	asked(2, m.r.key ^ 1ull << 50, RP_ST_STALE_KEY);
	cr_assert(!send_over(&conns, as_asked(), &q));
	cr_assert_eq(conns.answers, 0);
	end();
}

/* Said only of what it can mean something for. */
Test(connect, placed)
{
	const struct rp_agent_attr attr = {
		.incarnation = RIG_INCARNATION,
		.no_worker = true,
	};
	struct rig_msg msg;

	for (int i = 0; i < 4; i++) {
		struct rp_agent_attr a = attr;

		a.links = i & 1;
		a.placed = i & 2;
		rig_init(&g, &a);
		p = (struct rig_peer){.g = &g, .x = &g.x[0], .id = 1};
		p.cookie = 5;
		p.timeout_ms = 1000;
		rig_hello(&p);
		cr_assert(rig_take(p.x, &msg));
		cr_assert_eq(!!(msg.ack.features & RP_FEATURE_PLACED), i == 3);
		rig_fini(&g);
	}
}
