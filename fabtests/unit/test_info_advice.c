// SPDX-License-Identifier: BSD-2-Clause
/* The advice fits the machine, and names its source. */
#include <string.h>

#include <criterion/criterion.h>

#include "util/info.h"

static const struct rp_choice refused,
	clwb = {.method = RP_METHOD_AGENT_CLWB},
	fence = {.method = RP_METHOD_FENCE},
	msync = {.method = RP_METHOD_AGENT_MSYNC};

/* The machine of the papers: memory on node 0, adapter on node 1, DDIO on. */
static struct rp_facts facts;
static struct rp_nic nic;

static void setup(void)
{
	facts = (struct rp_facts){.memory = RP_MEM_DAX_SYNC, .node = 1};
	nic = (struct rp_nic){
		.pci = "0000:18:00.0",
		.port = "0000:17:00.0",
		.ddio = RP_YES,
		.node = 2,
	};
}

TestSuite(info_advice, .init = setup);

/* The advice that this source gives for a choice, or NULL. */
static const char *advice_of(const struct rp_choice *c, const char *source)
{
	static char text[512];
	json_t *list = info_advice(&facts, &nic, c), *a;
	const char *found = NULL;
	size_t i;

	json_array_foreach(list, i, a)
	{
		const char *s = json_string_value(json_object_get(a, "source"));

		cr_assert(s && *s);
		if (strcmp(s, source))
			continue;
		cr_assert_null(found, "%s twice", source);
		strncpy(text, json_string_value(json_object_get(a, "advice")),
			sizeof(text) - 1);
		found = text;
	}
	json_decref(list);
	return found;
}

static size_t count_advice(const struct rp_choice *c)
{
	json_t *list = info_advice(&facts, &nic, c);
	size_t n = json_array_size(list);

	json_decref(list);
	return n;
}

#define H(n) "Wei et al. 2021, H" n

Test(info_advice, nodes)
{
	const char *a = advice_of(&clwb, H("1"));

	cr_assert(a && strstr(a, "node 1 and the memory on node 0"), "%s", a);
	/* Memory and adapter are on the same node: no advice is needed. */
	nic.node = 1;
	cr_assert_null(advice_of(&clwb, H("1")));
	nic.node = 0;
	a = advice_of(&clwb, H("1"));
	cr_assert(a && strstr(a, "on one NUMA node"), "%s", a);
	nic.node = 1;
	facts.node = 0;
	cr_assert_not_null(advice_of(&clwb, H("1")));
	nic.pci[0] = '\0';
	cr_assert_null(advice_of(&clwb, H("1")));
}

Test(info_advice, ddio)
{
	const char *a = advice_of(&clwb, H("3"));

	cr_assert(a && strstr(a, "root port 0000:17:00.0"), "%s", a);
	nic.ddio = RP_NO;
	cr_assert_null(advice_of(&clwb, H("3")));
	nic.ddio = RP_UNKNOWN;
	cr_assert_null(advice_of(&clwb, H("3")));
}

Test(info_advice, flushers)
{
	const char *a = advice_of(&clwb, H("2"));

	cr_assert(a && strstr(a, "per DIMM"), "%s", a);
	cr_assert_null(advice_of(&fence, H("2")));
}

Test(info_advice, persistent_memory)
{
	const char *a;

	for (int dax = 0; dax < 2; dax++) {
		facts.memory = dax ? RP_MEM_DAX : RP_MEM_DAX_SYNC;
		a = advice_of(&clwb, H("5 to H7"));
		cr_assert(a && strstr(a, "aligned to 256"), "%s", a);
		a = advice_of(&clwb, H("8"));
		cr_assert(a && strstr(a, "atomics"), "%s", a);
	}
}

Test(info_advice, other_memory)
{
	const char *a;

	cr_assert_eq(count_advice(&refused), 0);
	facts.memory = RP_MEM_FILE;
	cr_assert_eq(count_advice(&msync), 1);
	a = advice_of(&msync, "msync(2)");
	cr_assert(a && strstr(a, "one commit many ranges"), "%s", a);
	facts.memory = RP_MEM_TMPFS;
	cr_assert_eq(count_advice(&clwb), 0);
}
