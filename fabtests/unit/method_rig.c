// SPDX-License-Identifier: BSD-2-Clause
/*
 * Every combination of facts, and the methods that docs/guarantees.md promises
 * for each.
 */
#include <stdio.h>

#include <criterion/criterion.h>

#include "method_rig.h"

static const enum rp_memory memories[] = {
	RP_MEM_UNKNOWN, RP_MEM_ANON, RP_MEM_PRIVATE,  RP_MEM_TMPFS,
	RP_MEM_FILE,	RP_MEM_DAX,  RP_MEM_DAX_SYNC, RP_MEM_EMULATED,
};
static const enum rp_placement placements[] = {
	RP_PLACE_UNKNOWN,   RP_PLACE_CPU_USER,	 RP_PLACE_CPU_KERNEL,
	RP_PLACE_DMA_CACHE, RP_PLACE_DMA_MEMORY,
};
static const enum rp_domain domains[] = {
	RP_DOMAIN_UNKNOWN,  RP_DOMAIN_NONE,   RP_DOMAIN_MEMCTRL,
	RP_DOMAIN_CPUCACHE, RP_DOMAIN_SYSTEM,
};
const enum rp_tri tris[3] = {RP_UNKNOWN, RP_NO, RP_YES};

const char *show(const struct rp_facts *f, enum rp_class required,
		 unsigned int built)
{
	static char text[256];

	snprintf(text, sizeof(text),
		 "%s, %s, %s, fence %d, native %d, fs %d, agent %d, "
		 "class %s, "
		 "built %#x",
		 rp_memory_name(f->memory), rp_placement_name(f->placement),
		 rp_domain_name(f->domain), f->fence, f->native, f->fs_trusted,
		 f->agent, rp_class_name(required), built);
	return text;
}

void for_all(judge_fn judge, unsigned int built)
{
	size_t n = 0;

	cr_assert(COUNT(memories) == MEMORIES &&
		  COUNT(placements) == PLACEMENTS && COUNT(domains) == DOMAINS);
	for (size_t m = 0; m < COUNT(memories); m++)
		for (size_t p = 0; p < COUNT(placements); p++)
			for (size_t d = 0; d < COUNT(domains); d++)
				for (size_t t = 0; t < 27 * 2; t++) {
					struct rp_facts f = {
						.memory = memories[m],
						.placement = placements[p],
						.domain = domains[d],
						.fence = tris[t % 3],
						.native = tris[t / 3 % 3],
						.fs_trusted = tris[t / 9 % 3],
						.agent = t / 27 % 2,
					};

					for (int c = 0; c <= RP_CLASS_POWER;
					     c++, n++)
						judge(&f, c, built);
				}
	cr_assert_eq(n, 8 * 5 * 5 * 27 * 2 * 3);
}

static void add_offer(struct offers *o, enum rp_method how, enum rp_class class)
{
	o->v[o->n].how = how;
	o->v[o->n++].class = class;
}

static bool placed_by_cpu(const struct rp_facts *f)
{
	return f->placement == RP_PLACE_CPU_USER ||
	       f->placement == RP_PLACE_CPU_KERNEL;
}

static bool has_domain(const struct rp_facts *f)
{
	return f->domain != RP_DOMAIN_NONE && f->domain != RP_DOMAIN_UNKNOWN;
}

static void offers_dax_sync(struct offers *o, const struct rp_facts *f)
{
	bool fence = f->fence == RP_YES;

	if (f->native == RP_YES && has_domain(f))
		add_offer(o, RP_METHOD_NATIVE, RP_CLASS_POWER);
	switch (f->domain) {
	case RP_DOMAIN_SYSTEM:
		if (f->placement != RP_PLACE_UNKNOWN)
			add_offer(o, RP_METHOD_DELIVERY, RP_CLASS_POWER);
		else if (fence)
			add_offer(o, RP_METHOD_FENCE, RP_CLASS_POWER);
		add_offer(o, RP_METHOD_AGENT_CLWB, RP_CLASS_POWER);
		break;
	case RP_DOMAIN_CPUCACHE:
		if (placed_by_cpu(f))
			add_offer(o, RP_METHOD_DELIVERY, RP_CLASS_POWER);
		else if (fence)
			add_offer(o, RP_METHOD_FENCE, RP_CLASS_POWER);
		add_offer(o, RP_METHOD_AGENT_SFENCE, RP_CLASS_POWER);
		add_offer(o, RP_METHOD_AGENT_CLWB, RP_CLASS_POWER);
		break;
	case RP_DOMAIN_MEMCTRL:
		if (f->placement == RP_PLACE_DMA_MEMORY && fence)
			add_offer(o, RP_METHOD_FENCE, RP_CLASS_POWER);
		add_offer(o, RP_METHOD_AGENT_CLWB, RP_CLASS_POWER);
		break;
	case RP_DOMAIN_NONE:
	case RP_DOMAIN_UNKNOWN:
		add_offer(o, RP_METHOD_AGENT_CLWB, RP_CLASS_NONE);
		break;
	}
}

struct offers offers_of(const struct rp_facts *f)
{
	struct offers o = {.refusal = RP_REFUSAL_NONE};
	bool trusted = f->fs_trusted == RP_YES;

	switch (f->memory) {
	case RP_MEM_UNKNOWN:
		o.refusal = RP_REFUSAL_UNKNOWN;
		break;
	case RP_MEM_ANON:
	case RP_MEM_PRIVATE:
		o.refusal = RP_REFUSAL_VOLATILE;
		break;
	case RP_MEM_EMULATED:
		add_offer(&o, RP_METHOD_AGENT_CLWB, RP_CLASS_NONE);
		break;
	case RP_MEM_TMPFS:
		if (placed_by_cpu(f))
			add_offer(&o, RP_METHOD_DELIVERY, RP_CLASS_PROCESS);
		if (f->fence == RP_YES)
			add_offer(&o, RP_METHOD_FENCE, RP_CLASS_PROCESS);
		add_offer(&o, RP_METHOD_AGENT_SFENCE, RP_CLASS_PROCESS);
		add_offer(&o, RP_METHOD_AGENT_CLWB, RP_CLASS_PROCESS);
		break;
	case RP_MEM_FILE:
		if (f->placement != RP_PLACE_CPU_USER) {
			o.refusal = RP_REFUSAL_NOT_DIRTIED;
		} else if (!trusted) {
			o.refusal = RP_REFUSAL_FS;
		} else {
			add_offer(&o, RP_METHOD_DELIVERY, RP_CLASS_PROCESS);
			add_offer(&o, RP_METHOD_AGENT_MSYNC, RP_CLASS_POWER);
		}
		break;
	case RP_MEM_DAX:
		if (!trusted) {
			o.refusal = RP_REFUSAL_FS;
			break;
		}
		if (f->placement == RP_PLACE_CPU_USER &&
		    f->domain != RP_DOMAIN_NONE)
			add_offer(&o, RP_METHOD_AGENT_CLWB_MSYNC,
				  RP_CLASS_POWER);
		add_offer(&o, RP_METHOD_AGENT_CLWB_MSYNC,
			  has_domain(f) ? RP_CLASS_POWER : RP_CLASS_NONE);
		break;
	case RP_MEM_DAX_SYNC:
		if (!trusted)
			o.refusal = RP_REFUSAL_FS;
		else
			offers_dax_sync(&o, f);
		break;
	}
	return o;
}
