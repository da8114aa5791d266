// SPDX-License-Identifier: BSD-2-Clause
/* What an agent lets its initiators do without it, and whom. */
#include <criterion/criterion.h>

#include "agent_rig.h"

static struct rig g;
static struct rig_peer p;
static struct rig_region m;

static void region(enum rp_method method)
{
	rig_init(&g, NULL);
	rig_region(&g, &m, method, 1);
	p = rig_open(&g, 0, 1, &m);
	m.r.facts.told = RP_YES;
}

static void end(void)
{
	rig_region_del(&g, &m);
	rig_fini(&g);
}

/* The appliance: DDIO off, ADR. */
static void fence_region(void)
{
	region(RP_METHOD_AGENT_CLWB);
	m.r.facts.placement = RP_PLACE_DMA_MEMORY;
	m.r.facts.fence = RP_YES;
	m.r.choice = rp_method_best(&m.r.facts, RP_METHODS_BUILT);
	cr_assert_eq(m.r.choice.method, RP_METHOD_FENCE);
}

static struct rp_wire_reply answer(enum rp_level level, enum rp_class required)
{
	struct rp_wire_range r = {m.r.key, 0, 64};
	uint64_t token = rig_request(&p, level, required, 1, &r);

	rig_run(&g);
	return rig_expect(p.x, token, RP_ST_OK);
}

static uint8_t granted(void)
{
	return answer(RP_LEVEL_DURABLE, m.r.choice.class).grant;
}

Test(grant, fence)
{
	struct rp_wire_reply r;

	fence_region();
	rig_store(&m, 0, 64);
	r = answer(RP_LEVEL_DURABLE, RP_CLASS_POWER);
	cr_assert_eq(r.grant, RP_METHOD_FENCE);
	cr_assert_eq(r.addr, m.r.addr);
	cr_assert_eq(r.length, m.r.len);
	/* Who asks has made no fence: it is flushed all the same. */
	cr_assert_eq(r.method, RP_METHOD_AGENT_CLWB);
	cr_assert_eq(r.class, RP_CLASS_POWER);
	cr_assert_eq(atomic_load(&m.drains), 1);
	cr_assert_eq(rig_value(&m, 0, true), rig_value(&m, 0, false));
	cr_assert_eq(answer(RP_LEVEL_VISIBLE, RP_CLASS_NONE).grant, 0);
	end();
}

Test(grant, fence_only_where_breaks_are_told)
{
	fence_region();
	m.r.facts.told = RP_NO;
	cr_assert_eq(granted(), 0);
	m.r.facts.told = RP_UNKNOWN;
	cr_assert_eq(granted(), 0);
	end();
}

Test(grant, delivery)
{
	region(RP_METHOD_DELIVERY);
	cr_assert_eq(granted(), RP_METHOD_DELIVERY);
	/* What an adapter has it may still mix up. */
	m.r.facts.placement = RP_PLACE_DMA_CACHE;
	cr_assert_eq(granted(), 0);
	m.r.facts.fence = RP_YES;
	cr_assert_eq(granted(), RP_METHOD_FENCE);
	end();
}

/* What the CPU must do for, it is asked to do. */
Test(grant, not_of_the_agents_methods)
{
	region(RP_METHOD_AGENT_CLWB);
	cr_assert_eq(granted(), 0);
	end();
}

/*
 * Of a page-cache file delivery is enough for class process; but its flushes
 * can fail, and then nobody may succeed.
 */
Test(grant, not_where_a_flush_can_fail)
{
	region(RP_METHOD_AGENT_MSYNC);
	m.r.choice.method = RP_METHOD_DELIVERY;
	m.r.choice.class = RP_CLASS_PROCESS;
	cr_assert_eq(granted(), 0);
	end();
}

/* The operator wants the agent to do it, though a fence would. */
Test(grant, not_where_another_method_is_forced)
{
	char why[RP_WHY_LEN];
	struct rp_wire_reply r;

	fence_region();
	m.r.choice = rp_method_pick(&m.r.facts, "agent-clwb", why);
	m.r.forced = m.r.choice.method;
	r = answer(RP_LEVEL_DURABLE, RP_CLASS_POWER);
	cr_assert_eq(r.grant, 0);
	cr_assert_eq(r.method, RP_METHOD_AGENT_CLWB);
	/* A forced fence is granted, and who has made none is flushed for. */
	m.r.choice = rp_method_pick(&m.r.facts, "fence", why);
	m.r.forced = m.r.choice.method;
	r = answer(RP_LEVEL_DURABLE, RP_CLASS_POWER);
	cr_assert_eq(r.grant, RP_METHOD_FENCE);
	cr_assert_eq(r.method, RP_METHOD_AGENT_CLWB);
	cr_assert_eq(atomic_load(&m.drains), 2);
	end();
}

/* Nor is less done for who needs less. */
Test(grant, forced_for_every_class)
{
	region(RP_METHOD_AGENT_MSYNC);
	cr_assert_eq(answer(RP_LEVEL_DURABLE, RP_CLASS_PROCESS).method,
		     RP_METHOD_DELIVERY);
	m.r.forced = RP_METHOD_AGENT_MSYNC;
	rig_store(&m, 0, 64);
	cr_assert_eq(answer(RP_LEVEL_DURABLE, RP_CLASS_PROCESS).method,
		     RP_METHOD_AGENT_MSYNC);
	cr_assert_eq(rig_value(&m, 0, true), rig_value(&m, 0, false));
	end();
}

/* Of the first range's region alone. */
Test(grant, first_range)
{
	struct rig_region other;
	struct rp_wire_range r[2];
	uint64_t token;

	fence_region();
	rig_region(&g, &other, RP_METHOD_AGENT_CLWB, 1);
	r[0] = (struct rp_wire_range){m.r.key, 0, 8};
	r[1] = (struct rp_wire_range){other.r.key, 0, 8};
	token = rig_request(&p, RP_LEVEL_DURABLE, RP_CLASS_POWER, 2, r);
	rig_run(&g);
	cr_assert_eq(rig_expect(p.x, token, RP_ST_OK).grant, RP_METHOD_FENCE);
	r[0] = r[1];
	token = rig_request(&p, RP_LEVEL_DURABLE, RP_CLASS_POWER, 2, r);
	rig_run(&g);
	cr_assert_eq(rig_expect(p.x, token, RP_ST_OK).grant, 0);
	/* Nothing of a refusal. */
	r[0] = (struct rp_wire_range){m.r.key, 1 << 20, 8};
	token = rig_request(&p, RP_LEVEL_DURABLE, RP_CLASS_POWER, 1, r);
	rig_run(&g);
	cr_assert_eq(rig_expect(p.x, token, RP_ST_RANGE).grant, 0);
	rig_region_del(&g, &other);
	end();
}
