// SPDX-License-Identifier: BSD-2-Clause
/* Facts of the NIC: how and where it places incoming writes. */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/caps_priv.h"

/*
 * Root ports whose perfctrlsts registers are known to lie at 0x180: those of
 * Skylake-SP and Cascade Lake-SP (Intel 8086:2030 to 2033).
 */
#define INTEL	    0x8086
#define SKX_FIRST   0x2030
#define SKX_LAST    0x2033
#define PERFCTRLSTS 0x180
/* perfctrlsts_0: allocating flow for writes; no-snoop writes are allowed. */
#define USE_ALLOCATING_FLOW_WR (1u << 7)
#define NO_SNOOP_OP_WR_EN      (1u << 3)
/* perfctrlsts_1, the next 32 bits: TLP processing hints are disabled. */
#define TPH_DIS (1u << 9)

/* Is s the name of a PCI function, as in "0000:18:00.0"? */
static bool is_pci_function(const char *s, size_t len)
{
	static const char shape[] = "xxxx:xx:xx.x";

	if (len != sizeof(shape) - 1)
		return false;
	for (size_t i = 0; i < len; i++) {
		bool hex = (s[i] >= '0' && s[i] <= '9') ||
			   (s[i] >= 'a' && s[i] <= 'f');

		if (shape[i] == 'x' ? !hex : s[i] != shape[i])
			return false;
	}
	return true;
}

/*
 * Cut .../pci0000:17/0000:17:00.0/0000:18:00.0/infiniband/mlx5_0 behind the
 * last PCI function, the NIC; port_len: length up to the end of the first one,
 * its root port.
 */
static bool cut_to_function(char *dir, struct rp_nic *nic, size_t *port_len)
{
	char *p = strstr(dir, "/devices/pci"), *end = NULL;

	*port_len = 0;
	while (p && (p = strchr(p + 1, '/'))) {
		size_t n = strcspn(p + 1, "/");

		if (!is_pci_function(p + 1, n))
			continue;
		end = p + 1 + n;
		snprintf(nic->pci, sizeof(nic->pci), "%.*s", (int)n, p + 1);
		if (*port_len)
			continue;
		*port_len = (size_t)(end - dir);
		strcpy(nic->port, nic->pci);
	}
	if (!end)
		return false;
	*end = '\0';
	/* A device inside the root complex has no root port. */
	if (strlen(dir) == *port_len) {
		nic->port[0] = '\0';
		*port_len = 0;
	}
	return true;
}

static unsigned int read_hex(const char *dir, const char *name)
{
	char line[PATH_MAX];
	unsigned int v = 0;

	sscanf(rp_caps_read_line(dir, name, line), "%x", &v);
	return v;
}

/* Read perfctrlsts, at byte 0x180 of config space: only root reads past 64. */
static int read_perfctrl(const char *port, uint32_t v[2])
{
	char path[PATH_MAX], *text;
	int n;

	snprintf(path, sizeof(path), "%s/config", port);
	text = rp_watch_read(RP_SOURCE_BYTES, path, PERFCTRLSTS);
	/* The text begins with the higher address: perfctrlsts_1. */
	n = text ? sscanf(text, "%8x%8x", &v[1], &v[0]) : 0;
	free(text);
	return n == 2 ? 0 : -EPERM;
}

#define SAY(nic, ...)                                                          \
	rp_caps_fmt((nic)->placement_why, sizeof((nic)->placement_why),        \
		    __VA_ARGS__)

/* Do writes of the NIC end in the last-level cache? */
static void find_ddio(const char *port, struct rp_nic *nic)
{
	unsigned int vendor, device;
	uint32_t v[2] = {0};

	if (!nic->port[0]) {
		SAY(nic,
		    "adapter %s has no root port: nothing tells whether "
		    "it writes into the cache",
		    nic->pci);
		return;
	}
	vendor = read_hex(port, "vendor");
	device = read_hex(port, "device");
	if (vendor != INTEL || device < SKX_FIRST || device > SKX_LAST) {
		SAY(nic,
		    "root port %s (%04x:%04x) does not tell whether DDIO "
		    "is on",
		    nic->port, vendor, device);
		return;
	}
	if (read_perfctrl(port, v)) {
		SAY(nic, "perfctrlsts of root port %s needs root to be read",
		    nic->port);
	} else if (v[0] == ~0u && v[1] == ~0u) {
		SAY(nic, "root port %s does not answer", nic->port);
	} else if (v[0] & USE_ALLOCATING_FLOW_WR) {
		nic->ddio = RP_YES;
		nic->placement = RP_PLACE_DMA_CACHE;
		SAY(nic, "DDIO is on: perfctrlsts of root port %s", nic->port);
	} else if (!(v[0] & NO_SNOOP_OP_WR_EN) && (v[1] & TPH_DIS)) {
		nic->ddio = RP_NO;
		nic->placement = RP_PLACE_DMA_MEMORY;
		SAY(nic, "DDIO is off: perfctrlsts of root port %s", nic->port);
	} else {
		SAY(nic,
		    "root port %s: DDIO is off for some writes only "
		    "(perfctrlsts %08x %08x)",
		    nic->port, v[0], v[1]);
	}
}

static void find_pci_facts(char *dir, size_t port_len, struct rp_nic *nic)
{
	/*
	 * A PCI read does not pass earlier writes (PCI Express ordering rules),
	 * and an RDMA read is executed behind the writes of its queue pair: so
	 * a read fence proves that these writes have left the NIC.
	 */
	nic->fence = RP_YES;
	rp_caps_fmt(nic->fence_why, sizeof(nic->fence_why),
		    "adapter %s: PCI Express keeps a read behind the writes "
		    "before it",
		    nic->pci);
	nic->node = rp_caps_read_node(dir);
	dir[port_len] = '\0';
	find_ddio(dir, nic);
}

/* Copy the path of a device in sysfs to link. False: it is no such name. */
static bool device_link(const char *root, const char *device, char *link)
{
	size_t n = strlen(device);

	/* libfabric has the domain "mlx5_0-xrc" for "mlx5_0", too. */
	if (rp_caps_ends_with(device, "-xrc"))
		n -= strlen("-xrc");
	snprintf(link, PATH_MAX, "%s/sys/class/infiniband/%.*s",
		 root ? root : "", (int)n, device);
	return n && *device != '.' && !strchr(device, '/');
}

/*
 * Does the CPU copy incoming writes? rxe, which old kernels show below its
 * network adapter, has the attribute parent. hfi1 and ib_qib drive PCI
 * adapters, but copy RDMA writes to their place.
 */
static bool cpu_copies(const char *link, const char *dir)
{
	char line[PATH_MAX];

	return strstr(dir, "/devices/virtual/") ||
	       *rp_caps_read_line(link, "parent", line) ||
	       !strcmp(rp_caps_read_line(link, "device/uevent", line),
		       "DRIVER=hfi1") ||
	       !strcmp(line, "DRIVER=ib_qib");
}

int rp_caps_find_nic(const char *root, const char *device, struct rp_nic *out)
{
	struct rp_nic nic = {.ddio = RP_UNKNOWN};
	size_t port_len;
	char link[PATH_MAX], *dir;

	if (!device_link(root, device, link))
		return -EINVAL;
	dir = realpath(link, NULL);
	if (!dir)
		return -ENODEV;
	if (cpu_copies(link, dir)) {
		nic.placement = RP_PLACE_CPU_KERNEL;
		SAY(&nic,
		    "%s is driven by software: it copies through the "
		    "kernel's mapping",
		    device);
		rp_caps_fmt(nic.fence_why, sizeof(nic.fence_why),
			    "%s is driven by software", device);
	} else if (cut_to_function(dir, &nic, &port_len)) {
		find_pci_facts(dir, port_len, &nic);
	} else {
		SAY(&nic, "%s is no PCI device", device);
	}
	free(dir);
	*out = nic;
	return 0;
}

bool rp_caps_write_is_acknowledged(const char *root, const char *base,
				   const char *device, char *why)
{
	static const char verbs[] = "verbs";
	char dir[PATH_MAX], line[PATH_MAX] = "";

	*why = '\0';
	/* Other providers honour FI_DELIVERY_COMPLETE, or refuse it. */
	if (!base || strcspn(base, ";") != sizeof(verbs) - 1 ||
	    strncasecmp(base, verbs, sizeof(verbs) - 1))
		return true;
	if (device && device_link(root, device, dir))
		rp_caps_read_line(dir, "node_type", line);
	/* Node type 1, IB_NODE_CA: InfiniBand and RoCE, but not iWARP. */
	if (!strncmp(line, "1:", 2))
		return true;
	rp_caps_fmt(why, RP_SOURCE_LEN,
		    "%s is no InfiniBand or RoCE adapter (its node type is "
		    "%s): nothing tells that a write has arrived",
		    device ? device : "the device", *line ? line : "nothing");
	return false;
}

/* Base providers that place writes by a copy of the CPU. */
static const struct {
	const char *base;
	enum rp_placement placement;
	const char *why;
} copiers[] = {
	{"tcp", RP_PLACE_CPU_USER,
	 "tcp: the kernel copies to the program's "
	 "own mapping"},
	{"sockets", RP_PLACE_CPU_USER,
	 "sockets: the kernel copies to the program's own mapping"},
	/* shm copies long writes past the user's mapping. */
	{"shm", RP_PLACE_CPU_KERNEL,
	 "shm: the other process copies, part of it past the mapping"},
};

void rp_caps_base_provider(const char *root, const char *base,
			   const char *device, struct rp_nic *nic)
{
	size_t n;

	if (!base)
		base = "";
	n = strcspn(base, ";");
	*nic = (struct rp_nic){.ddio = RP_UNKNOWN};
	for (size_t i = 0; i < sizeof(copiers) / sizeof(copiers[0]); i++) {
		if (strlen(copiers[i].base) != n ||
		    strncasecmp(base, copiers[i].base, n))
			continue;
		nic->placement = copiers[i].placement;
		SAY(nic, "%s", copiers[i].why);
		rp_caps_fmt(nic->fence_why, sizeof(nic->fence_why),
			    "%s has no adapter of its own", copiers[i].base);
		return;
	}
	if (n == 5 && !strncasecmp(base, "verbs", n) && device &&
	    !rp_caps_find_nic(root, device, nic))
		return;
	SAY(nic, "nothing is known of who places writes of %.*s%s%s", (int)n,
	    base, device ? " on " : "", device ? device : "");
	rp_caps_fmt(nic->fence_why, sizeof(nic->fence_why), "nothing tells");
}
