// SPDX-License-Identifier: BSD-2-Clause
/* Promises of the host alone: persistent memory, CPU, limits. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "core/caps_priv.h"

#define MAX_DIMMS 32

/*
 * The domain of a region is that of its weakest DIMM. The kernel states the
 * domain of the memory controller for CXL devices too, whether or not they are
 * flushed at a power cut (GPF); one that counts dirty shutdowns is.
 */
static enum rp_domain dimms_domain(const char *dir, char *why)
{
	char line[PATH_MAX], name[PATH_MAX];
	const bool cxl = !strcmp(rp_caps_line(dir, "../provider", line), "CXL");
	int n;

	for (int i = 0; i < MAX_DIMMS; i++) {
		snprintf(name, sizeof(name), "mapping%d", i);
		n = (int)strcspn(rp_caps_line(dir, name, line), ",");
		if (!n)
			break;
		rp_caps_say(why, RP_SOURCE_LEN, "%.*s", n, line);
		snprintf(name, sizeof(name), "../%.99s/*/flags", why);
		/* The drivers are those of ACPI (NFIT) and PAPR. */
		if (strstr(rp_caps_line(dir, name, line), "not_armed")) {
			strcat(why, " is not armed: it loses its bytes");
			return RP_DOMAIN_NONE;
		}
		snprintf(name, sizeof(name), "../%.99s/cxl/dirty_shutdown",
			 why);
		if (cxl && !*rp_caps_line(dir, name, line)) {
			strcat(why, " (CXL) counts no dirty shutdowns");
			return RP_DOMAIN_UNKNOWN;
		}
	}
	return RP_DOMAIN_SYSTEM;
}

/* An nd region without this attribute is unknown, not the usual domain. */
enum rp_domain rp_caps_nd_domain(const char *dir, char *why)
{
	static const char *const words[] = {
		[RP_DOMAIN_NONE] = "none",
		[RP_DOMAIN_MEMCTRL] = "memory_controller",
		[RP_DOMAIN_CPUCACHE] = "cpu_cache",
	};
	char line[PATH_MAX];
	enum rp_domain dimms = dimms_domain(dir, why);

	if (dimms != RP_DOMAIN_SYSTEM)
		return dimms;
	rp_caps_say(why, RP_SOURCE_LEN, "persistence_domain of %s",
		    rp_caps_base_name(dir));
	rp_caps_line(dir, "persistence_domain", line);
	for (int d = RP_DOMAIN_NONE; d <= RP_DOMAIN_CPUCACHE; d++)
		if (!strcmp(line, words[d]))
			return (enum rp_domain)d;
	return RP_DOMAIN_UNKNOWN;
}

char *rp_caps_nd_region(const char *root, const char *kind, unsigned int major,
			unsigned int minor)
{
	char link[PATH_MAX], *dir, *slash;

	snprintf(link, sizeof(link), "%s/sys/dev/%s/%u:%u", root ? root : "",
		 kind, major, minor);
	/* .../region0/namespace0.0/block/pmem0: the region is above. */
	dir = realpath(link, NULL);
	while (dir && (slash = strrchr(dir, '/'))) {
		if (!strncmp(slash + 1, "region", 6))
			return dir;
		*slash = '\0';
	}
	free(dir);
	return NULL;
}

int rp_caps_node(const char *dir)
{
	char line[PATH_MAX];
	int node = -1;

	sscanf(rp_caps_line(dir, "numa_node", line), "%d", &node);
	return node < 0 || node > 1023 ? 0 : node + 1;
}

/* The weakest domain of all regions: the host promises no more for any. */
static int nd_read(const char *root, struct rp_host *host)
{
	char sys[PATH_MAX], region[PATH_MAX + 256], why[RP_SOURCE_LEN];
	struct dirent *e;
	DIR *d;

	snprintf(sys, sizeof(sys), "%s/sys/bus/nd/devices", root ? root : "");
	d = opendir(sys);
	if (!d)
		return errno == ENOENT ? 0 : -errno;
	while ((e = readdir(d))) {
		enum rp_domain domain;

		if (strncmp(e->d_name, "region", 6))
			continue;
		snprintf(region, sizeof(region), "%s/%s", sys, e->d_name);
		domain = rp_caps_nd_domain(region, why);
		if (!host->has_nd || domain < host->domain)
			host->domain = domain;
		host->has_nd = true;
	}
	closedir(d);
	return 0;
}

static void cpu_read(struct rp_host *host)
{
#ifdef __x86_64__
	unsigned int a, b, c, d;

	if (__get_cpuid(1, &a, &b, &c, &d))
		host->clflush = d >> 19 & 1;
	if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
		host->clflushopt = b >> 23 & 1;
		host->clwb = b >> 24 & 1;
		host->movdir64b = c >> 28 & 1;
	}
#endif
}

int rp_caps_host(const struct rp_caps_cfg *cfg, struct rp_host *out)
{
	struct rp_host host = {.domain = RP_DOMAIN_UNKNOWN};
	struct rlimit lim;
	int ret = nd_read(cfg->root, &host);

	if (ret)
		return ret;
	if (getrlimit(RLIMIT_MEMLOCK, &lim))
		return -errno;
	host.memlock =
		lim.rlim_cur == RLIM_INFINITY ? UINT64_MAX : lim.rlim_cur;
	cpu_read(&host);
	*out = host;
	return 0;
}
