// SPDX-License-Identifier: BSD-2-Clause
/* Persistent memory regions of the kernel: domain, DIMMs, NUMA node. */
#include "config.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/caps_priv.h"

#define MAX_DIMMS 32

/*
 * The weakest domain that the region's DIMMs state; SYSTEM: none limits it. For
 * CXL devices the kernel states memory_controller whether or not they are
 * flushed at a power cut (GPF); one that counts dirty shutdowns is flushed.
 */
enum rp_domain rp_caps_dimms_domain(const char *dir, char *why)
{
	char line[PATH_MAX], name[PATH_MAX];
	const bool cxl =
		!strcmp(rp_caps_read_line(dir, "../provider", line), "CXL");
	int n;

	for (int i = 0; i < MAX_DIMMS; i++) {
		snprintf(name, sizeof(name), "mapping%d", i);
		n = (int)strcspn(rp_caps_read_line(dir, name, line), ",");
		if (!n)
			break;
		rp_caps_fmt(why, RP_SOURCE_LEN, "%.*s", n < 99 ? n : 99, line);
		snprintf(name, sizeof(name), "../%s/*/flags", why);
		/* The drivers of ACPI (NFIT) and PAPR make this file. */
		if (strstr(rp_caps_read_line(dir, name, line), "not_armed")) {
			strcat(why, " is not armed: it loses its bytes");
			return RP_DOMAIN_NONE;
		}
		snprintf(name, sizeof(name), "../%s/cxl/dirty_shutdown", why);
		if (cxl && !*rp_caps_read_line(dir, name, line)) {
			strcat(why, " (CXL) counts no dirty shutdowns");
			return RP_DOMAIN_UNKNOWN;
		}
	}
	return RP_DOMAIN_SYSTEM;
}

/* A missing persistence_domain file means unknown, not a default. */
enum rp_domain rp_caps_nd_domain(const char *dir, char *why)
{
	static const char *const words[] = {
		[RP_DOMAIN_NONE] = "none",
		[RP_DOMAIN_MEMCTRL] = "memory_controller",
		[RP_DOMAIN_CPUCACHE] = "cpu_cache",
	};
	char line[PATH_MAX];
	enum rp_domain dimms = rp_caps_dimms_domain(dir, why);

	if (dimms != RP_DOMAIN_SYSTEM)
		return dimms;
	rp_caps_fmt(why, RP_SOURCE_LEN, "persistence_domain of %s",
		    rp_caps_file_name(dir));
	rp_caps_read_line(dir, "persistence_domain", line);
	for (int d = RP_DOMAIN_NONE; d <= RP_DOMAIN_CPUCACHE; d++)
		if (!strcmp(line, words[d]))
			return (enum rp_domain)d;
	return RP_DOMAIN_UNKNOWN;
}

bool rp_caps_climb_to_region(char *dir)
{
	char *slash;

	while ((slash = strrchr(dir, '/')) &&
	       strncmp(slash + 1, "region", 6) != 0)
		*slash = '\0';
	return slash;
}

int rp_caps_read_node(const char *dir)
{
	char line[PATH_MAX];
	int node = -1;

	sscanf(rp_caps_read_line(dir, "numa_node", line), "%d", &node);
	return node < 0 || node > 1023 ? 0 : node + 1;
}
