// SPDX-License-Identifier: BSD-2-Clause
/* Properties of the host: memory, CPU, limits, file systems. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "core/caps_priv.h"
#include "util/host_facts.h"

/* Find the weakest persistence domain of the host's nd regions. */
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

int rp_host_read(const char *root, struct rp_host *out)
{
	struct rp_host host = {.domain = RP_DOMAIN_UNKNOWN};
	struct rlimit lim;
	int ret = nd_read(root, &host);

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

int rp_host_fs_name(int fd, char *name, size_t len)
{
	struct rp_fs fs;

	if (fcntl(fd, F_GETFD) < 0)
		return -errno;
	rp_caps_find_fs(NULL, fd, &fs);
	if (!fs.name[0])
		return -ENOENT;
	if (strlen(fs.name) >= len)
		return -ENAMETOOLONG;
	strcpy(name, fs.name);
	return 0;
}
