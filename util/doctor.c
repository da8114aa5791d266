// SPDX-License-Identifier: BSD-2-Clause
/* fi_rpmem_info --doctor: checks, in order, what commits need on this host. */
#include "config.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "util/fabric.h"
#include "util/info.h"

#define BASE	"tcp"
#define STRING	BASE ";ofi_rpmem"
#define DSO	"librpmem-fi.so"
#define RDMA_MB 64 /* MiB of memory that RDMA devices must be able to pin */

/* The checks, and results that later ones use. */
struct doctor {
	json_t *checks;
	char folder[PATH_MAX];	  /* directory of the provider, or "" */
	char base[DOCTOR_NAME];	  /* base in FI_PROVIDER, or tcp */
	char device[DOCTOR_NAME]; /* first device of the base, or "" */
	bool filter_set;	  /* FI_PROVIDER names ofi_rpmem and a base */
	struct doctor_endpoint endpoint; /* which FI_PROVIDER selects */
	bool listed;
};

static void check(struct doctor *d, const char *name, int status, json_t *found,
		  json_t *remedy)
{
	json_array_append_new(d->checks,
			      json_pack("{s:s, s:i, s:o, s:o?}", "check", name,
					"status", status, "found", found,
					"remedy", remedy));
}

static void check_libfabric(struct doctor *d)
{
	uint32_t v = fi_version();

	if (v >= FI_VERSION(1, 17))
		check(d, "libfabric", DOCTOR_OK,
		      info_text("%u.%u", FI_MAJOR(v), FI_MINOR(v)), NULL);
	else
		check(d, "libfabric", DOCTOR_FAIL,
		      info_text("%u.%u is too old", FI_MAJOR(v), FI_MINOR(v)),
		      json_string("install libfabric 1.17 or newer"));
}

/* Find libfabric's default directory in the help text of FI_PROVIDER_PATH. */
static void default_folder(char *dir, size_t len)
{
	static const char mark[] = "(default: ";
	struct fi_param *params = NULL;
	int count = 0;

	dir[0] = 0;
	if (fi_getparams(&params, &count))
		return;
	for (int i = 0; i < count; i++) {
		const char *at = params[i].help_string;

		at = strcmp(params[i].name, "FI_PROVIDER_PATH") || !at
			     ? NULL
			     : strstr(at, mark);
		if (at)
			snprintf(dir, len, "%.*s",
				 (int)strcspn(at + sizeof(mark) - 1, ")"),
				 at + sizeof(mark) - 1);
	}
	fi_freeparams(params);
}

static bool has_dso(const char *dir)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/" DSO, dir);
	return !access(path, R_OK);
}

/*
 * Programs find the provider in FI_PROVIDER_PATH or, if it is not set, in the
 * default folder of libfabric. This tool also searches its build tree and the
 * installation folder; programs do not.
 *
 * libfabric reads the environment at its first call, which default_folder()
 * makes: set FI_PROVIDER_PATH before.
 */
static void check_file(struct doctor *d)
{
	const char *list = getenv("FI_PROVIDER_PATH");
	char default_dir[PATH_MAX], err[RP_ERR_LEN];
	const bool given = list && *list;

	if (rp_fabric_find_provider(d->folder, sizeof(d->folder), err))
		d->folder[0] = 0;
	else if (!given)
		setenv("FI_PROVIDER_PATH", d->folder, 1);
	default_folder(default_dir, sizeof(default_dir));
	if (!given && !d->folder[0] && has_dso(default_dir))
		snprintf(d->folder, sizeof(d->folder), "%s", default_dir);

	if (!d->folder[0])
		check(d, "provider file", DOCTOR_FAIL,
		      given ? info_text("%s", err)
			    : info_text("not in %s, libfabric's own folder; %s",
					default_dir, err),
		      json_string("install the provider, and name its folder "
				  "in FI_PROVIDER_PATH"));
	else if (given)
		check(d, "provider file", DOCTOR_OK,
		      info_text("%s/" DSO ", by FI_PROVIDER_PATH", d->folder),
		      NULL);
	else if (has_dso(default_dir))
		check(d, "provider file", DOCTOR_OK,
		      info_text("%s/" DSO ", libfabric's own folder",
				default_dir),
		      NULL);
	else
		check(d, "provider file", DOCTOR_WARN,
		      info_text("%s/" DSO
				", outside the search path of libfabric",
				d->folder),
		      info_text("for other programs: export "
				"FI_PROVIDER_PATH=%s",
				d->folder));
}

static void check_load(struct doctor *d)
{
	char path[PATH_MAX + sizeof(DSO)];
	void *h;

	if (!d->folder[0]) {
		check(d, "provider loads", DOCTOR_FAIL,
		      json_string("not tried: there is no file"), NULL);
		return;
	}
	snprintf(path, sizeof(path), "%s/" DSO, d->folder);
	h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!h)
		check(d, "provider loads", DOCTOR_FAIL,
		      info_text("%s", dlerror()),
		      json_string("install the libraries that it names: "
				  "libfabric1 and libpmem2-1 on Debian"));
	else if (!dlsym(h, "fi_prov_ini"))
		check(d, "provider loads", DOCTOR_FAIL,
		      info_text("%s has no fi_prov_ini", path),
		      json_string("it is not a libfabric provider: install it "
				  "again"));
	else
		check(d, "provider loads", DOCTOR_OK,
		      json_string("with all libraries that it needs"), NULL);
	if (h)
		dlclose(h);
}

/*
 * A DMA handle puts a hint for the PCIe root complex into an adapter's writes
 * to one region. The root complex may do otherwise, so no class rests on it.
 */
static void check_steering(struct doctor *d)
{
	void *h = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_GLOBAL);
	const char *found = "libibverbs is not installed";

	if (h && dlsym(RTLD_DEFAULT, "ibv_alloc_dmah"))
		found = "not used: a region can ask for a cache or for memory "
			"(ibv_alloc_dmah), but nothing tells where its bytes "
			"went";
	else if (h)
		found = "libibverbs has none (no ibv_alloc_dmah)";
	check(d, "cache steering", DOCTOR_OK, json_string(found), NULL);
	if (h)
		dlclose(h);
}

/* Check FI_PROVIDER as a program inherits it. */
static void check_filter(struct doctor *d)
{
	static const char remedy[] =
		"export FI_PROVIDER='" STRING "' with the quotes: to a shell "
		"the semicolon ends the command";
	const char *v = getenv("FI_PROVIDER");

	if (!v || !*v)
		check(d, "FI_PROVIDER", DOCTOR_OK,
		      json_string("not set; a program that does not name the "
				  "provider itself needs FI_PROVIDER='" STRING
				  "'"),
		      NULL);
	else if (!strcasecmp(v, "ofi_rpmem"))
		check(d, "FI_PROVIDER", DOCTOR_FAIL,
		      info_text("'%s' alone hides the base provider", v),
		      json_string(remedy));
	else if (v[0] == '^' ? !!strcasestr(v, "ofi_rpmem")
			     : !strcasestr(v, "ofi_rpmem"))
		check(d, "FI_PROVIDER", DOCTOR_FAIL,
		      info_text("'%s' excludes ofi_rpmem", v),
		      json_string(remedy));
	else if (v[0] != '^' && !strchr(v, ';'))
		check(d, "FI_PROVIDER", DOCTOR_WARN,
		      info_text("'%s' allows the bare base as well, which "
				"programs without hints then get",
				v),
		      json_string(remedy));
	else
		check(d, "FI_PROVIDER", DOCTOR_OK, info_text("'%s'", v), NULL);
	/* Later checks must also find providers that FI_PROVIDER hides. */
	unsetenv("FI_PROVIDER");
}

struct fi_info *doctor_hints(const char *prov_name)
{
	struct fi_info *hints = fi_allocinfo();

	if (!hints)
		return NULL;
	/* A base without ofi_rpmem offers no FI_RMA_PMEM. */
	hints->caps = FI_RMA;
	if (!prov_name || strcasestr(prov_name, "ofi_rpmem"))
		hints->caps |= FI_RMA_PMEM;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR |
				      FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	if (prov_name)
		hints->fabric_attr->prov_name = strdup(prov_name);
	return hints;
}

static struct fi_info *get_info(const char *name, const char *source, int *ret)
{
	struct fi_info *hints = doctor_hints(name), *list = NULL;

	*ret = -FI_ENOMEM;
	if (!hints)
		return NULL;
	*ret = fi_getinfo(FI_VERSION(1, 17), source, NULL,
			  source ? FI_SOURCE : 0, hints, &list);
	fi_freeinfo(hints);
	return list;
}

/* Whether the base works over loopback, as tcp and sockets do. */
static bool is_loopback_base(const struct doctor *d)
{
	return strncasecmp(d->base, "verbs", 5) != 0;
}

static bool interface_is_up(const char *name)
{
	struct ifaddrs *list, *i;
	bool up = false;

	if (getifaddrs(&list))
		return false;
	for (i = list; i && !up; i = i->ifa_next)
		up = !strcmp(i->ifa_name, name) && (i->ifa_flags & IFF_UP) &&
		     i->ifa_addr;
	freeifaddrs(list);
	return up;
}

static void check_interface(struct doctor *d)
{
	const char *v = getenv("FI_TCP_IFACE");

	if (!v || !*v)
		check(d, "interface",
		      interface_is_up("lo") ? DOCTOR_OK : DOCTOR_FAIL,
		      info_text("FI_TCP_IFACE is not set: tcp uses any "
				"interface; "
				"loopback is %s",
				interface_is_up("lo") ? "up" : "down"),
		      interface_is_up("lo") ? NULL
					    : json_string("ip link set lo up"));
	else if (!interface_is_up(v))
		check(d, "interface", DOCTOR_FAIL,
		      info_text("FI_TCP_IFACE='%s' is not an interface that "
				"is up",
				v),
		      json_string("name one that 'ip address' shows as UP, or "
				  "unset the variable"));
	else
		check(d, "interface", DOCTOR_OK,
		      info_text("%s, by FI_TCP_IFACE", v), NULL);
	/* The commit check uses loopback, whatever interface programs use. */
	setenv("FI_TCP_IFACE", "lo", 1);
}

/* Whether libfabric has this provider, with or without usable endpoints. */
static bool is_provider(const char *name)
{
	struct fi_info *list = NULL, *i;
	bool found = false;

	if (fi_getinfo(FI_VERSION(1, 17), NULL, NULL, FI_PROV_ATTR_ONLY, NULL,
		       &list))
		return false;
	for (i = list; i && !found; i = i->next)
		found = !strcasecmp(i->fabric_attr->prov_name, name);
	fi_freeinfo(list);
	return found;
}

/* Report why the base has no endpoint. */
static void report_missing_base(struct doctor *d)
{
	if (!strncasecmp(d->base, "verbs", 5))
		check(d, "base", DOCTOR_FAIL,
		      info_text("libfabric has no endpoint of '%s': no RDMA "
				"device, or a libfabric without verbs",
				d->base),
		      json_string("'ibv_devices' lists the devices, 'fi_info "
				  "-l' the providers; FI_PROVIDER='" STRING
				  "' needs no device"));
	else if (!is_provider(d->base))
		check(d, "base", DOCTOR_FAIL,
		      info_text("libfabric has no provider '%s'", d->base),
		      json_string("'fi_info -l' lists those that it has; "
				  "export FI_PROVIDER='" STRING "'"));
	else
		check(d, "base", DOCTOR_FAIL,
		      info_text("'%s' has no reliable datagram endpoint with "
				"RMA here",
				d->base),
		      info_text("'fi_info -p %s' lists what it has; export "
				"FI_PROVIDER='" STRING "'",
				d->base));
}

static void check_base(struct doctor *d)
{
	struct rp_fabric_attr attr = {.base = d->base, .bare = true};
	struct fi_info *list;
	char err[RP_ERR_LEN];
	struct rp_fabric f;
	int ret;

	list = get_info(d->base, NULL, &ret);
	if (!list) {
		report_missing_base(d);
		return;
	}
	snprintf(d->device, sizeof(d->device), "%s", list->domain_attr->name);
	fi_freeinfo(list);
	/* A base with a device cannot bind to loopback: only look it up. */
	if (!is_loopback_base(d)) {
		check(d, "base", DOCTOR_OK,
		      info_text("%s on %s", d->base, d->device), NULL);
		return;
	}
	if (rp_fabric_open(&attr, &f, err)) {
		check(d, "base", DOCTOR_FAIL, info_text("%s", err),
		      info_text("'fi_info -p %s' lists its endpoints",
				d->base));
		return;
	}
	check(d, "base", DOCTOR_OK,
	      info_text("%s opens an endpoint on loopback",
			f.info->fabric_attr->prov_name),
	      NULL);
	rp_fabric_close(&f);
}

/* Check that libfabric lists the provider, with FI_PROVIDER if it is set. */
static void check_listed(struct doctor *d)
{
	struct doctor_endpoint *endpoint = &d->endpoint;
	struct fi_info *list;

	if (!d->filter_set) {
		list = get_info(STRING, "127.0.0.1", &endpoint->ret);
		if (list)
			snprintf(endpoint->provider, sizeof(endpoint->provider),
				 "%s", list->fabric_attr->prov_name);
		fi_freeinfo(list);
	}
	d->listed = strcasestr(endpoint->provider, "ofi_rpmem");
	if (d->listed)
		check(d, "provider listed", DOCTOR_OK,
		      info_text("'%s', requested as '%s%s'", endpoint->provider,
				d->filter_set ? d->base : BASE, ";ofi_rpmem"),
		      NULL);
	else
		check(d, "provider listed", DOCTOR_FAIL,
		      info_text("libfabric has no '%s;ofi_rpmem': %s", d->base,
				endpoint->provider[0]
					? "it returns another provider"
					: fi_strerror(-endpoint->ret)),
		      info_text("the same command with FI_LOG_LEVEL=warn "
				"shows why; export FI_PROVIDER='" STRING
				"' works on any host instead of '%s;ofi_rpmem'",
				d->base));
}

static bool has_rdma(void)
{
	DIR *dir = opendir("/sys/class/infiniband");
	struct dirent *e;
	bool found = false;

	while (dir && !found && (e = readdir(dir)))
		found = e->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return found;
}

static void check_memlock(struct doctor *d)
{
	char size[RP_SIZE_LEN];
	struct rlimit r;
	bool low;

	if (getrlimit(RLIMIT_MEMLOCK, &r))
		r.rlim_cur = 0;
	if (r.rlim_cur == RLIM_INFINITY) {
		check(d, "memlock", DOCTOR_OK, json_string("no limit"), NULL);
		return;
	}
	low = has_rdma() && r.rlim_cur < (rlim_t)RDMA_MB << 20;
	check(d, "memlock", low ? DOCTOR_WARN : DOCTOR_OK,
	      info_text("%s; %s", rp_size_format(r.rlim_cur, size),
			low ? "probably too little for the RDMA devices of "
			      "this host"
			    : "tcp pins no memory"),
	      low ? json_string("ulimit -l unlimited, or LimitMEMLOCK= of the "
				"service")
		  : NULL);
}

static void check_path(struct doctor *d, const char *path)
{
	const struct info_transport transport = {
		.base = is_loopback_base(d) ? NULL : d->base,
		.device = d->device[0] ? d->device : NULL,
	};
	json_t *o = info_path(path, &transport);
	const char *class = json_string_value(json_object_get(o, "class"));
	const char *remedy = json_string_value(json_object_get(o, "remedy"));
	const char *fs = json_string_value(json_object_get(o, "file_system"));
	const char *why = json_string_value(json_object_get(o, "why"));
	const char *forced = json_string_value(json_object_get(o, "forced"));

	if (!class)
		check(d, "memory", DOCTOR_FAIL,
		      info_text("%s: %s", path, forced ? forced : why),
		      info_text("%s", remedy ? remedy
					     : "name a folder or file on a "
					       "local disk"));
	else if (strcmp(class, rp_class_name(RP_CLASS_POWER)))
		check(d, "memory", DOCTOR_WARN,
		      info_text("%s: %s, class %s: a commit that requires "
				"power is refused",
				path, fs, class),
		      json_string("put pools on a local disk, or lower "
				  "FI_OFI_RPMEM_CLASS where that is enough"));
	else
		check(d, "memory", DOCTOR_OK,
		      info_text(
			      "%s: %s, class %s by %s", path, fs, class,
			      json_string_value(json_object_get(o, "method"))),
		      NULL);
	json_decref(o);
}

static void check_commit(struct doctor *d, const char *path)
{
	char done[RP_ERR_LEN], err[RP_ERR_LEN];

	if (!d->listed) {
		check(d, "commit", DOCTOR_FAIL,
		      json_string("not tried: the provider is not listed"),
		      NULL);
		return;
	}
	if (doctor_commit(path, is_loopback_base(d) ? d->base : BASE, done,
			  err))
		check(d, "commit", DOCTOR_FAIL, info_text("%s: %s", path, err),
		      json_string("see the checks above; FI_LOG_LEVEL=info "
				  "shows the "
				  "provider's log"));
	else
		check(d, "commit", DOCTOR_OK, info_text("%s: %s", path, done),
		      NULL);
}

json_t *doctor_run(char *const *paths, size_t n)
{
	struct doctor d = {.checks = json_array()};
	static char *const here[] = {"."};

	if (!n) {
		paths = here;
		n = 1;
	}
	d.filter_set = doctor_filter_base(getenv("FI_PROVIDER"), d.base);
	if (d.filter_set)
		doctor_filter_resolve(&d.endpoint);
	else
		strcpy(d.base, BASE);
	check_libfabric(&d);
	check_filter(&d);
	check_interface(&d);
	check_file(&d);
	check_load(&d);
	check_steering(&d);
	check_listed(&d);
	check_base(&d);
	check_memlock(&d);
	for (size_t i = 0; i < n; i++) {
		json_t *disks = doctor_disks(NULL, paths[i]);

		check_path(&d, paths[i]);
		json_array_extend(d.checks, disks);
		json_decref(disks);
		check_commit(&d, paths[i]);
	}
	return d.checks;
}

int doctor_worst(const json_t *checks)
{
	const json_t *c;
	int worst = DOCTOR_OK;
	size_t i;

	json_array_foreach(checks, i, c)
	{
		int s = (int)json_integer_value(json_object_get(c, "status"));

		if (s > worst)
			worst = s;
	}
	return worst;
}

void doctor_print(const json_t *checks)
{
	static const char *const words[] = {"ok", "warn", "FAIL"};
	const json_t *c;
	size_t i;

	json_array_foreach(checks, i, c)
	{
		const char *remedy =
			json_string_value(json_object_get(c, "remedy"));

		printf("%-4s  %-16s %s\n",
		       words[json_integer_value(json_object_get(c, "status"))],
		       json_string_value(json_object_get(c, "check")),
		       json_string_value(json_object_get(c, "found")));
		if (remedy)
			printf("      %-16s -> %s\n", "", remedy);
	}
}
