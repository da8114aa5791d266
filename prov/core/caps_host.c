// SPDX-License-Identifier: BSD-2-Clause
/* Promises of the host alone: persistent memory, CPU, limits. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "core/caps_priv.h"

/* An nd region without this attribute is unknown, not the usual domain. */
static enum rp_domain domain_read(const char *root, const char *dir)
{
	static const struct {
		const char *word;
		enum rp_domain domain;
	} words[] = {
		{"cpu_cache", RP_DOMAIN_CPUCACHE},
		{"memory_controller", RP_DOMAIN_MEMCTRL},
		{"none", RP_DOMAIN_NONE},
	};
	enum rp_domain domain = RP_DOMAIN_UNKNOWN;
	char *path, text[32] = "";
	FILE *f;

	if (asprintf(&path, "%s/persistence_domain", dir) < 0)
		return domain;
	f = rp_caps_open(root, path);
	free(path);
	if (!f)
		return domain;
	if (fgets(text, sizeof(text), f)) {
		text[strcspn(text, "\n")] = '\0';
		for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
			if (!strcmp(text, words[i].word))
				domain = words[i].domain;
	}
	fclose(f);
	return domain;
}

enum rp_domain rp_caps_nd_domain(const char *dir)
{
	return domain_read(NULL, dir);
}

char *rp_caps_nd_region(const char *root, const char *kind, unsigned int major,
			unsigned int minor)
{
	char *link, *dir, *slash;

	if (asprintf(&link, "%s/sys/dev/%s/%u:%u", root ? root : "", kind,
		     major, minor) < 0)
		return NULL;
	/* .../region0/namespace0.0/block/pmem0: the region is above. */
	dir = realpath(link, NULL);
	free(link);
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
	char *path;
	int node = -1;
	FILE *f;

	if (asprintf(&path, "%s/numa_node", dir) < 0)
		return 0;
	f = fopen(path, "re");
	free(path);
	if (!f)
		return 0;
	if (fscanf(f, "%d", &node) != 1)
		node = -1;
	fclose(f);
	return node < 0 || node > 1023 ? 0 : node + 1;
}

/* The weakest domain of all regions: the host promises no more for any. */
static int nd_read(const char *root, struct rp_host *host)
{
	static const char sys[] = "/sys/bus/nd/devices";
	char *path;
	struct dirent *e;
	DIR *d;

	if (asprintf(&path, "%s%s", root ? root : "", sys) < 0)
		return -ENOMEM;
	d = opendir(path);
	free(path);
	if (!d)
		return errno == ENOENT ? 0 : -errno;
	while ((e = readdir(d))) {
		enum rp_domain domain;

		if (strncmp(e->d_name, "region", 6))
			continue;
		if (asprintf(&path, "%s/%s", sys, e->d_name) < 0)
			break;
		domain = domain_read(root, path);
		free(path);
		if (!host->has_nd || domain < host->domain)
			host->domain = domain;
		host->has_nd = true;
	}
	closedir(d);
	return e ? -ENOMEM : 0;
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
