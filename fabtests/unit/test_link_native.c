// SPDX-License-Identifier: BSD-2-Clause
/* FLUSHes of the device over a connection of our own: when, and of what. */
#include <errno.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#include "link_rig.h"

static struct rig_told c1;
static struct rp_linked l0;

TestSuite(link_native, .init = set_up);

static struct rp_initiator_attr attr_native(bool native)
{
	struct rp_initiator_attr attr = rig_attr();

	method = RP_METHOD_NATIVE;
	attr.links = true;
	attr.native = native;
	attr.max_commits = 100;
	return attr;
}

static void flushing(void)
{
	without = 0;
	start_as(attr_native(true));
	connected();
}

/* All of the range, behind the write, and nothing before it has come back. */
Test(link_native, the_range_and_no_more)
{
	struct rp_link_way way;

	flushing();
	cr_assert(may(1, BASE + 100, 3000, &way));
	cr_assert(way.flush);
	cr_assert_not(way.asks);
	cr_assert_eq(way.method, RP_METHOD_NATIVE);
	cr_assert_eq(way.fence_at, AT + 100);
	cr_assert_eq(way.fence_len, 3000);
	posted(&c1, &l0, BASE + 100, 3000);
	cr_assert(
		strstr(rp_link_words(p, key_of(1)), "with the device's FLUSH"));
	rp_linked_written(&l0, 0);
	rig_progress(&g);
	rig_not_told(&c1);
	rp_linked_fenced(&l0, 0);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_OK);
	cr_assert_eq(c1.out.method, RP_METHOD_NATIVE);
	cr_assert_eq(c1.out.class, RP_CLASS_POWER);
	rig_end(&g);
}

Test(link_native, a_flush_that_fails)
{
	flushing();
	posted(&c1, &l0, BASE, 64);
	rp_linked_written(&l0, 0);
	rp_linked_fenced(&l0, EACCES);
	rig_progress(&g);
	rig_told_once(&c1, RP_ST_WRITE_FAILED);
	cr_assert_eq(conn.hung_up, 1);
	rig_end(&g);
}

/* Whoever offers it: this device has none. */
Test(link_native, not_without_a_device_here)
{
	struct rp_link_way way;

	without = 0;
	start_as(attr_native(false));
	cr_assert_not(rp_link_would(p, key_of(1)));
	connected();
	cr_assert_not(may(1, BASE, 64, &way));
	cr_assert_not(rp_link_may_gather(p, key_of(1), BASE, 64));
	rig_end(&g);
}

Test(link_native, not_without_a_device_there)
{
	struct rp_link_way way;

	without = RP_FEATURE_NATIVE;
	start_as(attr_native(true));
	cr_assert_not(rp_link_would(p, key_of(1)));
	connected();
	cr_assert_not(may(1, BASE, 64, &way));
	rig_end(&g);
}

/* What the key says is a hint: such a region may be offered for the agent. */
Test(link_native, offered_for_the_agent)
{
	struct rp_link_way way;
	struct rp_wire_connect c;
	const uint64_t key = (method = RP_METHOD_NATIVE, key_of(1));

	without = 0;
	start_as(attr_native(true));
	cr_assert(rp_link_would(p, key));
	c = asked();
	cr_assert_eq(c.key, key);
	method = RP_METHOD_AGENT_CLWB;
	offer(&c, RP_ST_OK, RIG_LIFE);
	rp_link_up(p);
	cr_assert(rp_link_may(p, key, BASE, 64, RP_CLASS_POWER, &way));
	cr_assert(way.asks);
	cr_assert_not(way.flush);
	cr_assert(strstr(rp_link_words(p, key), "not of this region"));
	rig_end(&g);
}

static void whose_device(bool here, const char *words)
{
	struct rp_wire_connect c;

	without = here ? RP_FEATURE_NATIVE : 0;
	start_as(attr_native(here));
	c = asked();
	method = RP_METHOD_AGENT_CLWB;
	offer(&c, RP_ST_OK, RIG_LIFE);
	rp_link_up(p);
	method = RP_METHOD_NATIVE;
	cr_assert(strstr(rp_link_words(p, key_of(1)), words));
	rig_end(&g);
}

Test(link_native, says_which_end_has_none)
{
	whose_device(false, "this end's device");
	whose_device(true, "the target's device");
}

Test(link_native, not_what_is_forced)
{
	struct rp_initiator_attr attr = attr_native(true);
	struct rp_link_way way;

	without = 0;
	attr.forced = RP_METHOD_FENCE;
	start_as(attr);
	connected();
	cr_assert_not(may(1, BASE, 64, &way));
	rig_end(&g);
}

/* No FLUSH is longer: that goes the agent's way. */
Test(link_native, longer_than_a_flush_is)
{
	struct rp_wire_hdr hdr = {.incarnation = RIG_LIFE};
	struct rp_wire_offer m = {
		.method = RP_METHOD_NATIVE,
		.class = RP_CLASS_POWER,
		.addr_len = 3,
		.secret = 99,
		.there = THERE,
		.at = AT,
		.addr = BASE,
		.length = 5ull << 30,
		.to = "to!",
	};
	struct rp_wire_connect c;
	struct rp_link_way way;
	uint8_t msg[RP_WIRE_MAX_MSG];

	without = 0;
	start_as(attr_native(true));
	c = asked();
	hdr.session = s.hello;
	m.id = c.id;
	m.key = c.key;
	rig_recv(&g, msg, rp_wire_put_offer(msg, sizeof(msg), &hdr, &m));
	rp_link_up(p);
	cr_assert(may(1, BASE + (3ull << 30), 1ull << 31, &way));
	cr_assert_eq(way.fence_len, 1ull << 31);
	cr_assert_not(may(1, BASE, (1ull << 31) + 1, &way));
	rig_end(&g);
}

/* The agent stores what a message brings when it looks: behind a later write.
 */
Test(link_native, not_over_what_is_stored)
{
	static const char bytes[64];
	static struct rp_write w;
	struct rp_write *ws = &w;
	struct rp_wire_range r = {.addr = BASE, .len = 64};
	const struct rp_commit_attr attr = {
		.ranges = &r,
		.nranges = 1,
		.level = RP_LEVEL_VISIBLE,
		.writes = &ws,
		.done = rig_done,
		.arg = &c1,
	};
	uint8_t buf[RP_WIRE_MAX_MSG];
	struct rp_link_way way;
	struct rp_commit *c;

	flushing();
	r.key = key_of(1);
	cr_assert(rp_link_may_gather(p, r.key, r.addr, r.len));
	rp_link_gather(p, &w, r.key, r.addr, r.len);
	cr_assert_eq(rp_link_may_send(p, rp_link_id(p), &way), 0);
	c1 = (struct rig_told){0};
	cr_assert_eq(rp_commit_reserve(p, &attr, &c), 0);
	cr_assert_gt(rp_link_request(c, &way, bytes, buf, sizeof(buf)), 0);
	rp_link_posted(c, &way, &l0);
	cr_assert_not(may(1, BASE + 32, 64, &way));
	cr_assert(may(1, BASE + 64, 64, &way));
	rp_link_broken(p);
	rig_progress(&g);
	rp_write_done(&w, 1);
	rig_end(&g);
}

/* What came another way is the agent's, over the connection too. */
Test(link_native, commits_are_asked_for)
{
	struct rp_wire_range r[2];
	struct rp_commit_attr attr;
	struct rp_link_way way;
	struct rp_commit *c;

	flushing();
	r[0] = (struct rp_wire_range){key_of(1), BASE, 64};
	r[1] = (struct rp_wire_range){key_of(1), BASE + 4096, 64};
	attr = attr_of(r, &c1);
	attr.nranges = 2;
	cr_assert_eq(rp_commit_reserve(p, &attr, &c), 0);
	cr_assert(rp_link_may_commit(c, &way));
	cr_assert(way.asks);
	cr_assert_not(way.flush);
	rp_commit_unreserve(c);
	rig_end(&g);
}
