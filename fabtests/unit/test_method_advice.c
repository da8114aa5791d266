// SPDX-License-Identifier: BSD-2-Clause
/* Advice to change one fact: it applies to the present facts, and it helps. */
#include <string.h>

#include <criterion/criterion.h>

#include "core/caps.h"
#include "util/method_advice.h"

#define ALL_BUILT ((1u << RP_METHOD_MAX) - 2)
#define COUNT(a)  (sizeof(a) / sizeof((a)[0]))

/* Number of times that the advice was a higher class, or another method. */
static size_t nadvised;

static void judge_advice(const struct rp_facts *f, unsigned int built)
{
	struct rp_choice now = rp_method_best(f, built);
	struct rp_advice a = rp_method_advice(f, built);

	if (!a.change)
		return;
	nadvised++;
	cr_assert_neq(a.choice.method, RP_METHOD_REFUSED);
	if (now.method == RP_METHOD_REFUSED)
		return;
	cr_assert_geq(a.choice.class, now.class, "%s", a.change);
	if (a.choice.class == now.class)
		cr_assert_neq(a.choice.method, now.method, "%s", a.change);
}

/* Call judge_advice() on every combination of facts. */
static void for_all(unsigned int built)
{
	for (int m = RP_MEM_UNKNOWN; m <= RP_MEM_EMULATED; m++)
		for (int p = RP_PLACE_UNKNOWN; p <= RP_PLACE_DMA_MEMORY; p++)
			for (int d = RP_DOMAIN_UNKNOWN; d <= RP_DOMAIN_SYSTEM;
			     d++)
				for (int t = 0; t < 27; t++) {
					struct rp_facts f = {
						.memory = m,
						.placement = p,
						.domain = d,
						.fence = t % 3,
						.native = t / 3 % 3,
						.fs_trusted = t / 9 % 3,
						.agent = true,
					};

					judge_advice(&f, built);
				}
}

Test(method_advice, advice_applies_and_helps)
{
	static const struct {
		struct rp_facts f;
		const char *word;
	} t[] = {
		{{.memory = RP_MEM_FILE,
		  .placement = RP_PLACE_CPU_USER,
		  .fs_trusted = RP_NO},
		 "vouch"},
		{{.memory = RP_MEM_FILE,
		  .placement = RP_PLACE_CPU_USER,
		  .fs_trusted = RP_YES,
		  .limit = RP_LIMIT_PROCESS},
		 "limit"},
		{{.memory = RP_MEM_FILE,
		  .placement = RP_PLACE_CPU_USER,
		  .fs_trusted = RP_YES},
		 "persistent memory"},
		{{.memory = RP_MEM_ANON, .placement = RP_PLACE_CPU_USER},
		 "shared mapping"},
		{{.memory = RP_MEM_DAX,
		  .placement = RP_PLACE_CPU_USER,
		  .fs_trusted = RP_YES,
		  .domain = RP_DOMAIN_MEMCTRL},
		 "MAP_SYNC"},
		{{.memory = RP_MEM_DAX_SYNC,
		  .placement = RP_PLACE_DMA_CACHE,
		  .fs_trusted = RP_YES,
		  .domain = RP_DOMAIN_MEMCTRL,
		  .fence = RP_YES},
		 "DDIO off"},
		{{.memory = RP_MEM_DAX_SYNC,
		  .placement = RP_PLACE_DMA_MEMORY,
		  .fs_trusted = RP_YES,
		  .domain = RP_DOMAIN_MEMCTRL},
		 "assert fence"},
		{{.memory = RP_MEM_DAX,
		  .placement = RP_PLACE_CPU_USER,
		  .fs_trusted = RP_YES,
		  .domain = RP_DOMAIN_NONE},
		 "Arm the DIMM"},
		{{.memory = RP_MEM_DAX_SYNC,
		  .placement = RP_PLACE_CPU_USER,
		  .fs_trusted = RP_YES},
		 "State the persistence domain"},
		{{.memory = RP_MEM_DAX_SYNC,
		  .placement = RP_PLACE_CPU_USER,
		  .fs_trusted = RP_YES,
		  .domain = RP_DOMAIN_MEMCTRL},
		 "eADR"},
		{{.memory = RP_MEM_DAX_SYNC,
		  .placement = RP_PLACE_CPU_USER,
		  .fs_trusted = RP_YES,
		  .domain = RP_DOMAIN_SYSTEM},
		 NULL},
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		struct rp_facts f = t[i].f;
		struct rp_advice a;

		f.agent = true;
		a = rp_method_advice(&f, ALL_BUILT);
		if (t[i].word)
			cr_assert(a.change && strstr(a.change, t[i].word),
				  "%zu: %s", i, a.change);
		else
			cr_assert_null(a.change);
	}
	for_all(ALL_BUILT);
	for_all(RP_METHODS_BUILT);
	cr_assert_gt(nadvised, 1000);
}
