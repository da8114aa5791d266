// SPDX-License-Identifier: BSD-2-Clause
/* Advice about the machine: NUMA nodes, DDIO, copy engines. */
#include "config.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/thread.h"
#include "util/advise.h"

#define MPOL_F_NODE (1 << 0)
#define MPOL_F_ADDR (1 << 1)
#define STORES	    64u
#define STORE	    4096u

unsigned int advise_find_engines(const char *root, char *names, size_t len)
{
	char path[PATH_MAX];
	struct dirent **list;
	unsigned int found = 0;
	int n;

	snprintf(path, sizeof(path), "%s/sys/bus/dsa/devices",
		 root ? root : "");
	n = scandir(path, &list, NULL, alphasort);
	names[0] = '\0';
	for (int i = 0; i < n; i++) {
		const char *s = list[i]->d_name;

		/* Skip queues (wq0.0) and devices of other kinds (iax1). */
		if (!strncmp(s, "dsa", 3) && isdigit((unsigned char)s[3])) {
			size_t used = strlen(names);

			snprintf(names + used, len - used, "%s%s",
				 found++ ? ", " : "", s);
		}
		free(list[i]);
	}
	if (n >= 0)
		free(list);
	return found;
}

unsigned int advise_find_nodes(const char *root, int node, int cpus[2])
{
	char dir[PATH_MAX], line[PATH_MAX];
	unsigned int found = 0;

	cpus[0] = cpus[1] = -1;
	for (int i = 0; i < ADVISE_NODES; i++) {
		snprintf(dir, sizeof(dir), "%s/sys/devices/system/node/node%d",
			 root ? root : "", i);
		/* A node without CPUs, such as CXL memory, runs no thread. */
		if (!isdigit((unsigned char)*rp_caps_read_line(dir, "cpulist",
							       line)))
			continue;
		if (i == node || (node < 0 && !found))
			cpus[0] = atoi(line);
		else if (cpus[1] < 0)
			cpus[1] = atoi(line);
		found++;
	}
	return found;
}

/* --- NUMA nodes --- */

/* The number of the memory's node, or -1. */
static int memory_node(const struct advise *a)
{
	int node;

	return a->map.addr && !syscall(SYS_get_mempolicy, &node, NULL, 0,
				       a->map.addr, MPOL_F_NODE | MPOL_F_ADDR)
		       ? node
		       : -1;
}

static bool nodes_apply(const struct advise *a, const struct advise_row *row,
			char *why)
{
	const int node = memory_node(a);
	int cpus[2];
	unsigned int n = advise_find_nodes(a->root, node, cpus);

	if (a->target)
		return rp_err(why, 0,
			      "the memory is at the target; run it there");
	if (n < 2)
		return rp_err(why, 0, "%s of /sys/devices/system/node has CPUs",
			      n ? "one node" : "no node");
	if (cpus[0] < 0)
		return rp_err(why, 0,
			      "the memory is on node %d, which has no CPUs",
			      node);
	return true;
}

static int run_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set);
}

static int measure_nodes(struct advise *a, const struct advise_row *row,
			 enum advise_way way, uint64_t *ns, char *err)
{
	static const char bytes[STORE];
	int cpus[2], cpu;
	cpu_set_t before;
	uint64_t start;
	bool durable;

	advise_find_nodes(a->root, memory_node(a), cpus);
	cpu = cpus[way == ADVISE_AS ? 0 : 1];
	sched_getaffinity(0, sizeof(before), &before);
	if (cpu < 0 || run_on(cpu))
		return rp_err(err, -1, "CPU %d of a node may not be used", cpu);
	start = rp_clock_ns(CLOCK_MONOTONIC);
	for (unsigned int i = 0; i < STORES; i++)
		rp_pmem_store(a->pm,
			      advise_random(a, a->map.len / STORE) * STORE,
			      bytes, STORE, &durable);
	*ns = rp_clock_ns(CLOCK_MONOTONIC) - start;
	sched_setaffinity(0, sizeof(before), &before);
	return 0;
}

/* --- advice that one run cannot measure --- */

static bool ddio_applies(const struct advise *a, const struct advise_row *row,
			 char *why)
{
	if (!a->nic.pci[0])
		return rp_err(why, 0, "%s",
			      a->target ? "the adapter is at the target; run "
					  "it there"
					: "writes come through no adapter; "
					  "name one with --base verbs:DEVICE");
	return rp_err(why, 0,
		      "a run sees one state of the root port; DDIO is %s at "
		      "%s",
		      a->nic.ddio == RP_YES ? "on"
		      : a->nic.ddio == RP_NO
			      ? "off"
			      : "on or off, which nothing tells,",
		      a->nic.port[0] ? a->nic.port : a->nic.pci);
}

static bool engine_applies(const struct advise *a, const struct advise_row *row,
			   char *why)
{
	char names[128];

	if (a->target)
		return rp_err(why, 0,
			      "the engine is at the target; run it there");
	if (!advise_find_engines(a->root, names, sizeof(names)))
		return rp_err(why, 0,
			      "/sys/bus/dsa/devices has no Intel DSA device");
	return rp_err(why, 0,
		      "%s: a device is there, and this version of ofi_rpmem "
		      "copies by the processor",
		      names);
}

const struct advise_row advise_machine_rows[] = {
	{
		.name = "NUMA node",
		.source = "Wei et al. 2021, H1",
		.advice = "Keep the pool, the target's threads and the adapter "
			  "on one NUMA node.",
		.as = "stores from the node of the memory",
		.other = "stores from another node",
		.set = "numactl --cpunodebind=NODE fi_rpmemd ...; "
		       "fi_rpmem_info PATH says which nodes differ",
		.applies = nodes_apply,
		.measure = measure_nodes,
	},
	{
		.name = "DDIO off",
		.source = "Kalia et al. 2020, 5.2; Wei et al. 2021, H3",
		.advice = "Switch DDIO off for long writes by an adapter.",
		.set = "the firmware's set-up; measure fi_rpmem_bench "
		       "sequential before and after",
		.applies = ddio_applies,
	},
	{
		.name = "DMA engine",
		.source = "Kalia et al. 2020, 5.5",
		.advice = "Let a DMA engine copy long writes to the pool.",
		.set = "nothing: the CPU copies",
		.applies = engine_applies,
	},
	{0},
};
