// SPDX-License-Identifier: BSD-2-Clause
/*
 * A forced method: one that the facts allow, at no higher class, or the reason
 * of its refusal.
 */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "method_rig.h"

static char why[RP_WHY_LEN];

static struct rp_choice pick_forced(const struct rp_facts *f,
				    const char *forced)
{
	memset(why, 0x5a, sizeof(why));
	return rp_method_for_region(f, forced, why);
}

/* Whether the prose offers this method with at least this class. */
static bool prose_offers(const struct rp_facts *f, enum rp_method m,
			 enum rp_class class)
{
	struct offers o = offers_of(f);

	for (int i = 0; i < o.n; i++)
		if (o.v[i].how == m && o.v[i].class >= class)
			return true;
	return false;
}

static bool same_choice(const struct rp_choice *a, const struct rp_choice *b)
{
	return a->method == b->method && a->class == b->class &&
	       a->refusal == b->refusal && a->row == b->row &&
	       a->remedy == b->remedy;
}

/* Whether m is allowed with other values of the facts in reason. */
static bool allowed_with(const struct rp_facts *f, enum rp_method m,
			 const char *reason)
{
	bool p = strstr(reason, "placement is"),
	     d = strstr(reason, "domain is");
	struct rp_facts g = *f;

	if (strstr(reason, "fence is"))
		g.fence = RP_YES;
	if (strstr(reason, "native is"))
		g.native = RP_YES;
	for (int i = 0; i < PLACEMENTS * DOMAINS; i++) {
		if (p)
			g.placement = i % PLACEMENTS;
		if (d)
			g.domain = i / PLACEMENTS;
		if (prose_offers(&g, m, RP_CLASS_NONE))
			return true;
	}
	return false;
}

/* Whether the memory alone, with any values of the other facts, excludes m. */
static bool memory_forbids(const struct rp_facts *f, enum rp_method m)
{
	return !allowed_with(f, m,
			     "placement is, domain is, fence is, native is");
}

/* The reason names all facts that exclude the method, and no other. */
static void judge_reason(const struct rp_facts *f, enum rp_method m,
			 const struct rp_choice *c)
{
	bool cpu = f->placement == RP_PLACE_CPU_USER ||
		   f->placement == RP_PLACE_CPU_KERNEL;
	bool stated;
	char fact[64];

	cr_assert(strstr(why, rp_method_name(m)), "%s", why);
	cr_assert(strstr(why, "FI_OFI_RPMEM_METHOD"), "%s", why);
	cr_assert(strstr(c->remedy, "FI_OFI_RPMEM_METHOD"), "%s", c->remedy);
	stated = strstr(c->remedy, "FI_OFI_RPMEM_OPERATOR");
	if (strstr(why, "memory is")) {
		sprintf(fact, ": memory is %s", rp_memory_name(f->memory));
		cr_assert(strstr(why, fact), "%s", why);
		cr_assert(memory_forbids(f, m), "%s", why);
		cr_assert_not(stated);
		return;
	}
	cr_assert(allowed_with(f, m, why), "%s: %s", show(f, 0, 0), why);
	if (strstr(why, "placement is")) {
		sprintf(fact, "placement is %s",
			rp_placement_name(f->placement));
		cr_assert(strstr(why, fact), "%s", why);
	}
	if (strstr(why, "domain is")) {
		sprintf(fact, "domain is %s", rp_domain_name(f->domain));
		cr_assert(strstr(why, fact), "%s", why);
	}
	cr_assert(!strstr(why, "fence is") || f->fence != RP_YES);
	cr_assert(!strstr(why, "native is") || f->native != RP_YES);
	/* Nobody can state who copies, or how base and devices behave. */
	cr_assert_eq(stated,
		     !strstr(why, "native is") &&
			     !(cpu && strstr(why, "placement is")),
		     "%s; %s", why, c->remedy);
}

static void judge_method(const struct rp_facts *f, enum rp_method m)
{
	struct rp_choice first = rp_method_best(f, RP_METHODS_BUILT);
	struct rp_choice c = pick_forced(f, rp_method_name(m));

	if (first.method == RP_METHOD_REFUSED) {
		cr_assert(same_choice(&c, &first), "%s", show(f, 0, 0));
		cr_assert_eq(why[0], 0);
		return;
	}
	cr_assert_leq(c.class, first.class);
	if (c.method == RP_METHOD_REFUSED) {
		cr_assert(!prose_offers(f, m, RP_CLASS_NONE), "%s: %s",
			  show(f, 0, 0), why);
		cr_assert_eq(c.class, RP_CLASS_NONE);
		cr_assert_not_null(c.row);
		judge_reason(f, m, &c);
		return;
	}
	cr_assert_eq(c.method, m);
	cr_assert(prose_offers(f, m, c.class), "%s: %s", show(f, c.class, 0),
		  rp_method_name(m));
	/* The class must be the strongest that the method reaches. */
	cr_assert(c.class == RP_CLASS_POWER ||
		  !prose_offers(f, m, c.class + 1) ||
		  f->limit != RP_LIMIT_POWER);
	cr_assert_null(c.remedy);
	cr_assert_eq(why[0], 0);
}

static void check_forced(const struct rp_facts *f, enum rp_class required,
			 unsigned int build)
{
	static const enum rp_class_limit limits[] = {
		RP_LIMIT_POWER, RP_LIMIT_PROCESS, RP_LIMIT_NONE};
	struct rp_facts g = *f;

	/* A limit has the same result as a required class. */
	g.limit = limits[required];
	for (int m = RP_METHOD_DELIVERY; m < RP_METHOD_MAX; m++)
		judge_method(&g, m);
}

Test(method_force, never_what_the_facts_forbid)
{
	for_all(check_forced, RP_METHODS_BUILT);
}

static void judge_none(const struct rp_facts *f, enum rp_class required,
		       unsigned int build)
{
	struct rp_choice first = rp_method_best(f, RP_METHODS_BUILT), c;

	c = pick_forced(f, NULL);
	cr_assert(same_choice(&c, &first));
	cr_assert_eq(why[0], 0);
	c = pick_forced(f, "");
	cr_assert(same_choice(&c, &first));
	c = pick_forced(f, "clwb");
	cr_assert_eq(c.method, RP_METHOD_REFUSED);
	if (first.method == RP_METHOD_REFUSED) {
		cr_assert(same_choice(&c, &first));
		return;
	}
	cr_assert(strstr(why, "FI_OFI_RPMEM_METHOD=clwb names no method"), "%s",
		  why);
	cr_assert(strstr(c.remedy, "Unset"), "%s", c.remedy);
}

Test(method_force, nothing_forced_and_no_method)
{
	for_all(judge_none, RP_METHODS_BUILT);
}

Test(method_force, words)
{
	static const struct rp_facts file = {.memory = RP_MEM_FILE,
					     .placement = RP_PLACE_CPU_USER,
					     .fs_trusted = RP_YES,
					     .agent = true};
	struct rp_facts dax = {.memory = RP_MEM_DAX_SYNC,
			       .placement = RP_PLACE_DMA_CACHE,
			       .domain = RP_DOMAIN_MEMCTRL,
			       .fence = RP_YES,
			       .fs_trusted = RP_YES,
			       .agent = true};
	struct rp_choice c;

	c = pick_forced(&file, "fence");
	cr_assert_str_eq(why, "FI_OFI_RPMEM_METHOD=fence makes nothing durable "
			      "here: memory is file");
	cr_assert_str_eq(c.row, "none of the forced method");
	pick_forced(&file, "native");
	cr_assert_str_eq(why, "FI_OFI_RPMEM_METHOD=native makes nothing "
			      "durable here: memory is file");
	/* A forced method may reach a weaker class. */
	c = pick_forced(&file, "delivery");
	cr_assert_eq(c.method, RP_METHOD_DELIVERY);
	cr_assert_eq(c.class, RP_CLASS_PROCESS);
	c = pick_forced(&dax, "fence");
	cr_assert_str_eq(why, "FI_OFI_RPMEM_METHOD=fence makes nothing durable "
			      "here: placement is dma-cache");
	cr_assert(strstr(c.remedy, "state in the operator's file"), "%s",
		  c.remedy);
	c = pick_forced(&dax, "native");
	cr_assert_str_eq(why, "FI_OFI_RPMEM_METHOD=native makes nothing "
			      "durable here: native is unknown");
	cr_assert(strstr(c.remedy, "devices with FLUSH"), "%s", c.remedy);
	dax.native = RP_YES;
	cr_assert_eq(pick_forced(&dax, "native").method, RP_METHOD_NATIVE);
	cr_assert_eq(pick_forced(&dax, NULL).method, RP_METHOD_NATIVE);
	cr_assert_eq(pick_forced(&dax, "agent-clwb").method,
		     RP_METHOD_AGENT_CLWB);
	dax.native = RP_NO;
	dax.fence = RP_NO;
	pick_forced(&dax, "fence");
	cr_assert_str_eq(why, "FI_OFI_RPMEM_METHOD=fence makes nothing durable "
			      "here: placement is dma-cache, fence is no");
	dax.fence = RP_YES;
	/* eADR allows methods stronger than the first matching row. */
	dax.domain = RP_DOMAIN_CPUCACHE;
	cr_assert_eq(pick_forced(&dax, NULL).method, RP_METHOD_FENCE);
	cr_assert_eq(pick_forced(&dax, "agent-sfence").class, RP_CLASS_POWER);
	cr_assert_eq(pick_forced(&dax, "agent-clwb").class, RP_CLASS_POWER);
	pick_forced(&dax, "delivery");
	cr_assert(strstr(why, "is "), "%s", why);
}

Test(method_force, what_may_carry_out)
{
	cr_assert_eq(rp_methods_allowed(RP_METHOD_REFUSED), RP_METHODS_BUILT);
	for (int m = RP_METHOD_DELIVERY; m < RP_METHOD_MAX; m++) {
		cr_assert_eq(rp_methods_allowed(m), RP_METHOD_BIT(m));
		cr_assert_eq((int)rp_method_parse(rp_method_name(m)), m);
	}
	cr_assert_eq(rp_method_parse("refused"), RP_METHOD_REFUSED);
	cr_assert_eq(rp_method_parse(""), RP_METHOD_REFUSED);
	cr_assert_eq(rp_method_parse("unknown"), RP_METHOD_REFUSED);
}
