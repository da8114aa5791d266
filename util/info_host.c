// SPDX-License-Identifier: BSD-2-Clause
/* Properties of this host that need no memory: provider, bases, CPU, NVDIMM. */
#include "config.h"

#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "util/fabric.h"
#include "util/host_facts.h"
#include "util/info.h"

json_t *info_text(const char *fmt, ...)
{
	char text[2 * RP_ERR_LEN];
	json_t *s;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	s = json_string(text);
	if (s)
		return s;
	rp_text_to_ascii(text, '?');
	return json_string(text);
}

static json_t *system_name(void)
{
	struct utsname u;

	uname(&u);
	return info_text("%s %s %s, %ld CPUs", u.sysname, u.release, u.machine,
			 sysconf(_SC_NPROCESSORS_ONLN));
}

/* Path and version of the provider. */
static json_t *provider_json(void)
{
	struct fi_info *list = NULL;
	char dir[PATH_MAX], err[RP_ERR_LEN];
	json_t *o = NULL;

	if (rp_fabric_find_provider(dir, sizeof(dir), err))
		return json_pack("{s:n, s:n, s:o}", "folder", "version", "why",
				 info_text("%s", err));
	fi_getinfo(FI_VERSION(1, 17), NULL, NULL, FI_PROV_ATTR_ONLY, NULL,
		   &list);
	for (struct fi_info *i = list; i && !o; i = i->next) {
		uint32_t v = i->fabric_attr->prov_version;

		if (!strcasecmp(i->fabric_attr->prov_name, "ofi_rpmem"))
			o = json_pack(
				"{s:o, s:o}", "folder", info_text("%s", dir),
				"version",
				info_text("%u.%u", FI_MAJOR(v), FI_MINOR(v)));
	}
	fi_freeinfo(list);
	if (!o)
		o = json_pack(
			"{s:o, s:n, s:s}", "folder", info_text("%s", dir),
			"version", "why",
			"libfabric did not load it; 'fi_rpmem_info --doctor' "
			"looks for the cause");
	return o;
}

static bool has_text(const json_t *list, const char *text)
{
	const json_t *s;
	size_t i;

	json_array_foreach(list, i, s) if (!strcmp(json_string_value(s),
						   text)) return true;
	return false;
}

/* Names of the providers with RDM endpoints, each of which can be a base. */
static json_t *base_names(void)
{
	struct fi_info *hints = fi_allocinfo(), *list = NULL;
	json_t *names = json_array();

	if (!hints)
		return names;
	hints->caps = FI_RMA | FI_TAGGED;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR |
				      FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &list);
	for (struct fi_info *i = list; i; i = i->next) {
		const char *name = i->fabric_attr->prov_name;

		if (!strstr(name, "ofi_rpmem") && !has_text(names, name))
			json_array_append_new(names, info_text("%s", name));
	}
	fi_freeinfo(list);
	fi_freeinfo(hints);
	return names;
}

/* Read the first line of a sysfs file; NULL if there is none. */
static json_t *sysfs_line(const char *dir, const char *name)
{
	char path[PATH_MAX], line[128];
	json_t *text = NULL;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "re");
	if (!f)
		return NULL;
	if (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		text = info_text("%s", line);
	}
	fclose(f);
	return text;
}

/* List the nd regions of the kernel, each of which may have several devices. */
static json_t *nvdimm_regions(void)
{
	json_t *list = json_array();
	glob_t g;

	if (glob("/sys/bus/nd/devices/region*", 0, NULL, &g))
		return list;
	for (size_t i = 0; i < g.gl_pathc; i++) {
		json_t *size = sysfs_line(g.gl_pathv[i], "size");
		json_t *domain =
			sysfs_line(g.gl_pathv[i], "persistence_domain");

		json_array_append_new(
			list,
			json_pack("{s:o, s:I, s:o?}", "name",
				  info_text("%s",
					    strrchr(g.gl_pathv[i], '/') + 1),
				  "size",
				  size ? (json_int_t)strtoll(
						 json_string_value(size), NULL,
						 10)
				       : 0,
				  "persistence_domain", domain));
		json_decref(size);
	}
	globfree(&g);
	return list;
}

static json_t *flush_instructions(const struct rp_host *h)
{
	json_t *list = json_array();

	if (h->clwb)
		json_array_append_new(list, json_string("clwb"));
	if (h->clflushopt)
		json_array_append_new(list, json_string("clflushopt"));
	if (h->clflush)
		json_array_append_new(list, json_string("clflush"));
	if (h->movdir64b)
		json_array_append_new(list, json_string("movdir64b"));
	return list;
}

/* Port range of the listeners for private connections. */
static const char *port_range(void)
{
	const char *s = getenv("FI_OFI_RPMEM_PORTS");

	return s && *s ? s : "any";
}

json_t *info_host(void)
{
	const struct rp_fabric_attr attr = {0};
	uint32_t v = fi_version();
	struct rp_host h;

	/* Set the environment before the first libfabric call. */
	rp_fabric_env(&attr, NULL);
	if (rp_host_read(NULL, &h))
		memset(&h, 0, sizeof(h));
	return json_pack(
		"{s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:s, s:o}", "system",
		system_name(), "libfabric",
		info_text("%u.%u", FI_MAJOR(v), FI_MINOR(v)), "provider",
		provider_json(), "listener_ports", port_range(), "bases",
		base_names(), "flush_instructions", flush_instructions(&h),
		"nvdimm", nvdimm_regions(), "persistence_domain",
		rp_domain_name(h.domain), "memlock",
		h.memlock == UINT64_MAX ? json_null()
					: json_integer((json_int_t)h.memlock));
}

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "unknown";
}

static void print_list(const char *label, const json_t *list,
		       const char *nothing)
{
	const json_t *s;
	size_t i;

	printf("  %-14s ", label);
	if (!json_array_size(list))
		printf("%s", nothing);
	json_array_foreach(list, i, s)
		printf("%s%s", i ? ", " : "", json_string_value(s));
	putchar('\n');
}

static void print_nvdimm(const json_t *host)
{
	const json_t *r, *list = json_object_get(host, "nvdimm");
	char size[RP_SIZE_LEN];
	size_t i;

	if (!json_array_size(list))
		printf("  %-14s none: no /sys/bus/nd/devices/region*\n",
		       "nvdimm");
	json_array_foreach(list, i, r)
		printf("  %-14s %s, %s, persistence domain %s\n",
		       i ? "" : "nvdimm", text_of(r, "name"),
		       rp_size_format((uint64_t)json_integer_value(
					      json_object_get(r, "size")),
				      size),
		       text_of(r, "persistence_domain"));
	if (json_array_size(list))
		printf("  %-14s %s, the weakest of these\n", "domain",
		       text_of(host, "persistence_domain"));
}

void info_host_print(const json_t *host)
{
	const json_t *prov = json_object_get(host, "provider");
	const json_t *memlock = json_object_get(host, "memlock");
	char size[RP_SIZE_LEN];

	printf("host\n");
	printf("  %-14s %s\n", "system", text_of(host, "system"));
	printf("  %-14s %s\n", "libfabric", text_of(host, "libfabric"));
	if (json_is_string(json_object_get(prov, "version")))
		printf("  %-14s ofi_rpmem %s in %s\n", "provider",
		       text_of(prov, "version"), text_of(prov, "folder"));
	else
		printf("  %-14s not usable: %s\n", "provider",
		       text_of(prov, "why"));
	printf("  %-14s %s (FI_OFI_RPMEM_PORTS)\n", "listener ports",
	       text_of(host, "listener_ports"));
	print_list("bases", json_object_get(host, "bases"),
		   "none has reliable datagram endpoints");
	print_list("flush", json_object_get(host, "flush_instructions"),
		   "no cache flush instruction known");
	print_nvdimm(host);
	if (json_is_null(memlock))
		printf("  %-14s no limit\n", "memlock");
	else
		printf("  %-14s %s\n", "memlock",
		       rp_size_format((uint64_t)json_integer_value(memlock),
				      size));
}
