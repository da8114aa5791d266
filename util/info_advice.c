// SPDX-License-Identifier: BSD-2-Clause
/* Advice on the use of memory, from papers and from measurements. */
#include <stdio.h>

#include "util/info.h"

#define WEI "Wei et al. 2021"

static void add(json_t *list, const char *source, json_t *text)
{
	json_array_append_new(list, json_pack("{s:o, s:s}", "advice", text,
					      "source", source));
}

static void add_nodes(json_t *list, const struct rp_facts *f,
		      const struct rp_nic *nic)
{
	if (f->node && nic->node && f->node != nic->node)
		add(list, WEI ", H1",
		    info_text("The adapter is on NUMA node %d and the memory "
			      "on node %d: put the pool on the adapter's node.",
			      nic->node - 1, f->node - 1));
	else if (!f->node || !nic->node)
		add(list, WEI ", H1",
		    info_text("Keep adapter, memory and the target's threads "
			      "on one NUMA node."));
}

json_t *info_advice(const struct rp_facts *f, const struct rp_nic *nic,
		    const struct rp_choice *choice)
{
	json_t *list = json_array();
	bool dax = f->memory == RP_MEM_DAX || f->memory == RP_MEM_DAX_SYNC;

	if (choice->method == RP_METHOD_REFUSED)
		return list;
	if (choice->method == RP_METHOD_AGENT_MSYNC) {
		add(list, "msync(2)",
		    info_text(
			    "msync writes back whole pages: keep bytes of one "
			    "commit "
			    "on few pages, and give one commit many ranges."));
		return list;
	}
	if (!dax)
		return list;
	if (nic->pci[0])
		add_nodes(list, f, nic);
	if (nic->ddio == RP_YES)
		add(list, WEI ", H3",
		    info_text("DDIO is on at root port %s; with DDIO off, long "
			      "writes "
			      "reach the media up to twice as fast, and a read "
			      "fence "
			      "suffices.",
			      nic->port));
	if (choice->method != RP_METHOD_FENCE &&
	    choice->method != RP_METHOD_NATIVE)
		add(list, WEI ", H2",
		    info_text("Use few initiators per DIMM: all flushes "
			      "share the buffer of the media."));
	add(list, WEI ", H5 to H7",
	    info_text("Write 256 bytes or more, aligned to 256: the media then "
		      "need not read before they write. Smaller writes should "
		      "be whole 64-byte lines."));
	add(list, WEI ", H8",
	    info_text("Keep words that are changed often by atomics out of "
		      "persistent memory."));
	return list;
}

void info_advice_print(const json_t *advice)
{
	const json_t *a;
	size_t i;

	json_array_foreach(advice, i, a)
		printf("  %-14s %s (%s)\n", i ? "" : "advice",
		       json_string_value(json_object_get(a, "advice")),
		       json_string_value(json_object_get(a, "source")));
}
