// SPDX-License-Identifier: BSD-2-Clause
/* Facts of an adapter, and verdicts for five machines that papers describe. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "caps_rig.h"
#include "core/method.h"
#include "core/operator_file.h"

TestSuite(caps_nic, .init = caps_setup, .fini = caps_teardown);

static struct rp_nic nic;

static void nic_look(const char *name)
{
	memset(&nic, 0x5a, sizeof(nic));
	cr_assert_eq(rp_caps_find_nic(dir, name, &nic), 0, "%s", name);
}

/* Root port: allocating is bit 7, no-snoop bit 3, hints disabled bit 9. */
Test(caps_nic, port_registers_decide_about_ddio)
{
	static const struct {
		unsigned int vendor, id;
		uint32_t p0, p1;
		size_t len;
		enum rp_tri ddio;
		enum rp_placement placement;
		const char *word;
	} t[] = {
		{0x8086, 0x2030, 0x80, 0, 4096, RP_YES, RP_PLACE_DMA_CACHE,
		 "DDIO is on"},
		{0x8086, 0x2033, 0x88, 0x200, 4096, RP_YES, RP_PLACE_DMA_CACHE,
		 "DDIO is on"},
		{0x8086, 0x2031, 0, 0x200, 4096, RP_NO, RP_PLACE_DMA_MEMORY,
		 "DDIO is off"},
		{0x8086, 0x2032, 0xffffff77, 0xffffffff, 4096, RP_NO,
		 RP_PLACE_DMA_MEMORY, "DDIO is off"},
		/* DDIO that is off for some writes only counts as unknown. */
		{0x8086, 0x2030, 0x08, 0x200, 4096, RP_UNKNOWN,
		 RP_PLACE_UNKNOWN, "some writes only"},
		{0x8086, 0x2030, 0, 0, 4096, RP_UNKNOWN, RP_PLACE_UNKNOWN,
		 "some writes only"},
		{0x8086, 0x2030, 0, 0x100, 4096, RP_UNKNOWN, RP_PLACE_UNKNOWN,
		 "some writes only"},
		/* All registers of a dead port read as ones. */
		{0x8086, 0x2030, ~0u, ~0u, 4096, RP_UNKNOWN, RP_PLACE_UNKNOWN,
		 "does not answer"},
		/* Another model of port has other registers at this offset. */
		{0x8086, 0x202f, 0, 0x200, 4096, RP_UNKNOWN, RP_PLACE_UNKNOWN,
		 "8086:202f"},
		{0x8086, 0x2034, 0, 0x200, 4096, RP_UNKNOWN, RP_PLACE_UNKNOWN,
		 "does not tell"},
		{0x1022, 0x2030, 0, 0x200, 4096, RP_UNKNOWN, RP_PLACE_UNKNOWN,
		 "1022:2030"},
		/* Without root only 64 bytes are readable. */
		{0x8086, 0x2030, 0, 0x200, 64, RP_UNKNOWN, RP_PLACE_UNKNOWN,
		 "needs root"},
		{0x8086, 0x2030, 0, 0x200, 0x187, RP_UNKNOWN, RP_PLACE_UNKNOWN,
		 "needs root"},
		{0x8086, 0x2030, 0, 0x200, 0x188, RP_NO, RP_PLACE_DMA_MEMORY,
		 "DDIO is off"},
	};

	nic_device("mlx5_0", NIC_FUNCTION);
	write_tree(NIC_FUNCTION "/numa_node", "1\n");
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		nic_port(t[i].vendor, t[i].id, t[i].p0, t[i].p1, t[i].len);
		nic_look("mlx5_0");
		cr_assert_eq(nic.ddio, t[i].ddio, "%zu: %s", i,
			     nic.placement_why);
		cr_assert_eq(nic.placement, t[i].placement);
		cr_assert(strstr(nic.placement_why, t[i].word), "%s",
			  nic.placement_why);
		cr_assert_str_eq(nic.pci, "0000:18:00.1");
		cr_assert_str_eq(nic.port, "0000:17:00.0");
		cr_assert_eq(nic.fence, RP_YES);
		cr_assert_eq(nic.node, 2);
	}
}

Test(caps_nic, no_registers)
{
	nic_device("mlx5_0", NIC_FUNCTION);
	nic_look("mlx5_0");
	cr_assert_eq(nic.placement, RP_PLACE_UNKNOWN);
	cr_assert(strstr(nic.placement_why, "0000:0000"), "%s",
		  nic.placement_why);
	cr_assert_eq(nic.node, 0);
	write_tree(NIC_PORT "/vendor", "0x8086\n");
	write_tree(NIC_PORT "/device", "0x2030\n");
	nic_look("mlx5_0");
	cr_assert_eq(nic.placement, RP_PLACE_UNKNOWN);
	cr_assert(strstr(nic.placement_why, "needs root"), "%s",
		  nic.placement_why);
	write_tree(NIC_FUNCTION "/numa_node", "-1\n");
	nic_look("mlx5_0");
	cr_assert_eq(nic.node, 0);
}

/* Even behind a switch, the root port is the first function on the path. */
Test(caps_nic, port_is_found_behind_a_switch)
{
	nic_device("mlx5_1",
		   NIC_PORT "/0000:18:00.0/0000:19:04.0/0000:1a:00.0");
	nic_port(0x8086, 0x2030, 0x80, 0, 4096);
	nic_look("mlx5_1");
	cr_assert_str_eq(nic.pci, "0000:1a:00.0");
	cr_assert_str_eq(nic.port, "0000:17:00.0");
	cr_assert_eq(nic.ddio, RP_YES);
}

Test(caps_nic, integrated)
{
	nic_device("irdma0", "/sys/devices/pci0000:17/0000:17:00.0");
	nic_port(0x8086, 0x2030, 0x80, 0, 4096);
	nic_look("irdma0");
	cr_assert_str_eq(nic.pci, "0000:17:00.0");
	cr_assert_eq(nic.port[0], 0);
	cr_assert_eq(nic.placement, RP_PLACE_UNKNOWN);
	cr_assert(strstr(nic.placement_why, "no root port"), "%s",
		  nic.placement_why);
}

Test(caps_nic, software)
{
	static const struct {
		const char *uevent, *parent;
		enum rp_placement placement;
	} t[] = {
		{"DRIVER=mlx5_core", "", RP_PLACE_DMA_MEMORY},
		{"DRIVER=hfi1", "", RP_PLACE_CPU_KERNEL},
		{"DRIVER=ib_qib", "", RP_PLACE_CPU_KERNEL},
		{"DRIVER=mlx5_core", "eth0", RP_PLACE_CPU_KERNEL},
	};

	nic_device("rxe0", "/sys/devices/virtual");
	nic_look("rxe0");
	cr_assert_eq(nic.placement, RP_PLACE_CPU_KERNEL);
	cr_assert_eq(nic.fence, RP_UNKNOWN);
	cr_assert_eq(nic.pci[0], 0);
	/* rxe of old kernels, and adapters whose driver copies. */
	nic_port(0x8086, 0x2030, 0, 0x200, 4096);
	nic_device("ib0", NIC_FUNCTION);
	link_tree(NIC_FUNCTION "/infiniband/ib0/device", NIC_FUNCTION);
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		write_tree(NIC_FUNCTION "/uevent", "%s\nPCI_CLASS=20000\n",
			   t[i].uevent);
		write_tree(NIC_FUNCTION "/infiniband/ib0/parent", "%s\n",
			   t[i].parent);
		nic_look("ib0");
		cr_assert_eq(nic.placement, t[i].placement, "%s %s",
			     t[i].uevent, nic.placement_why);
		cr_assert_eq(nic.fence, t[i].placement == RP_PLACE_DMA_MEMORY
						? RP_YES
						: RP_UNKNOWN);
	}
	nic_device("odd0", "/sys/devices/platform/soc");
	nic_look("odd0");
	cr_assert_eq(nic.placement, RP_PLACE_UNKNOWN);
	cr_assert_eq(nic.fence, RP_UNKNOWN);
	cr_assert(strstr(nic.placement_why, "no PCI device"), "%s",
		  nic.placement_why);
}

Test(caps_nic, no_device)
{
	struct rp_nic before;

	memset(&nic, 0x5a, sizeof(nic));
	before = nic;
	cr_assert_eq(rp_caps_find_nic(dir, "mlx5_9", &nic), -ENODEV);
	cr_assert_eq(rp_caps_find_nic(dir, "", &nic), -EINVAL);
	cr_assert_eq(rp_caps_find_nic(dir, "..", &nic), -EINVAL);
	cr_assert_eq(rp_caps_find_nic(dir, "../../class", &nic), -EINVAL);
	cr_assert_arr_eq(&before, &nic, sizeof(nic));
}

Test(caps_nic, bases)
{
	static const struct {
		const char *base, *device;
		enum rp_placement placement;
		const char *word;
	} t[] = {
		{"tcp", "lo", RP_PLACE_CPU_USER, "own mapping"},
		{"TCP;ofi_rxm", NULL, RP_PLACE_CPU_USER, "own mapping"},
		{"sockets", NULL, RP_PLACE_CPU_USER, "own mapping"},
		{"shm", NULL, RP_PLACE_CPU_KERNEL, "past the mapping"},
		{"tcpx", NULL, RP_PLACE_UNKNOWN,
		 "nothing is known of who "
		 "places writes of tcpx"},
		{"tc", NULL, RP_PLACE_UNKNOWN, "of tc"},
		{"efa", "e0", RP_PLACE_UNKNOWN, "efa on e0"},
		{"", NULL, RP_PLACE_UNKNOWN, "nothing is known"},
		{NULL, NULL, RP_PLACE_UNKNOWN, "nothing is known"},
		{"verbs", NULL, RP_PLACE_UNKNOWN, "nothing is known"},
		{"verbs", "mlx5_7", RP_PLACE_UNKNOWN, "verbs on mlx5_7"},
		{"verbs;ofi_rxm", "mlx5_0", RP_PLACE_DMA_CACHE, "DDIO is on"},
		{"verbs", "rxe0", RP_PLACE_CPU_KERNEL, "software"},
	};

	nic_device("mlx5_0", NIC_FUNCTION);
	nic_device("rxe0", "/sys/devices/virtual");
	nic_port(0x8086, 0x2030, 0x80, 0, 4096);
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		rp_caps_base_provider(dir, t[i].base, t[i].device, &nic);
		cr_assert_eq(nic.placement, t[i].placement, "%zu: %s", i,
			     nic.placement_why);
		cr_assert(strstr(nic.placement_why, t[i].word), "%s",
			  nic.placement_why);
		cr_assert_neq(*(nic.fence_why), 0);
		cr_assert_eq(nic.fence, i == 11 ? RP_YES : RP_UNKNOWN);
	}
}

/*
 * Trees of the machines for which the two methods were proposed (Douglas 2015,
 * pages 10 to 14; Gromadzki and Michalski 2019, sections 2 and 3).
 */
static void make_machine(const char *domain, uint32_t p0, uint32_t p1)
{
	char link[2 * PATH_MAX], to[2 * PATH_MAX];

	invent_file("ext4", "rw");
	claim_dax = true;
	write_tree("/proc/self/smaps",
		   "00100000-00102000 rw-s 0 0:0 1 x\nVmFlags: rd wr sh sf \n");
	nd_region("region0", domain);
	write_tree("/sys/devices/ndbus0/region0/numa_node", "0\n");
	write_tree("/sys/dev/block/x", "\n");
	sprintf(link, "%s/sys/dev/block/%u:%u", dir, real_statx.stx_dev_major,
		real_statx.stx_dev_minor);
	sprintf(to, "%s/sys/devices/ndbus0/region0/namespace0.0/block/pmem0",
		dir);
	unlink(link);
	cr_assert_eq(symlink(to, link), 0);
	nic_device("mlx5_0", NIC_FUNCTION);
	nic_port(0x8086, 0x2030, p0, p1, 4096);
	nic_look("mlx5_0");
	cfg.placement = nic.placement;
	cfg.fence = nic.fence;
	cfg.placement_why = nic.placement_why;
	cfg.fence_why = nic.fence_why;
}

static void expect_method(enum rp_memory memory, enum rp_method method,
			  enum rp_class class)
{
	struct rp_choice c;

	cr_assert_eq(read_facts(HERE, LEN), 0, "%s", why);
	cr_assert_eq(facts.memory, memory, "%s", why);
	c = rp_method_best(&facts, RP_METHODS_BUILT);
	cr_assert_eq(c.method, method, "%s: %s", rp_method_name(c.method),
		     c.row);
	cr_assert_eq(c.class, class);
}

#define DDIO_ON	 0x80, 0
#define DDIO_OFF 0, 0x200

/* Only the operator can state that batteries cover the whole machine. */
static void make_batteries(struct rp_operator **op)
{
	char file[2 * PATH_MAX];

	write_tree("/statements", "[host]\nassert domain = system\n");
	sprintf(file, "%s/statements", dir);
	cr_assert_eq(rp_operator_load(file, op, why), 0, "%s", why);
	cfg.op = *op;
}

Test(caps_nic, five_machines)
{
	struct rp_operator *op;

	/* ADR with DDIO: the general-purpose method. */
	make_machine("memory_controller", DDIO_ON);
	expect_method(RP_MEM_DAX_SYNC, RP_METHOD_AGENT_CLWB, RP_CLASS_POWER);
	cr_assert_eq(facts.node, 1);
	/* ADR without DDIO: the appliance method. */
	make_machine("memory_controller", DDIO_OFF);
	expect_method(RP_MEM_DAX_SYNC, RP_METHOD_FENCE, RP_CLASS_POWER);
	/* eADR: the caches persist, so DDIO is harmless. */
	make_machine("cpu_cache", DDIO_ON);
	expect_method(RP_MEM_DAX_SYNC, RP_METHOD_FENCE, RP_CLASS_POWER);
	make_machine("cpu_cache", DDIO_OFF);
	expect_method(RP_MEM_DAX_SYNC, RP_METHOD_FENCE, RP_CLASS_POWER);
	/* eADR over tcp: the CPU places the bytes in the caches. */
	cfg.placement = RP_PLACE_CPU_USER;
	cfg.fence = RP_UNKNOWN;
	expect_method(RP_MEM_DAX_SYNC, RP_METHOD_DELIVERY, RP_CLASS_POWER);
	/* Batteries for the whole machine: all placed bytes survive. */
	make_machine("memory_controller", DDIO_ON);
	make_batteries(&op);
	expect_method(RP_MEM_DAX_SYNC, RP_METHOD_DELIVERY, RP_CLASS_POWER);
	cfg.op = NULL;
	rp_operator_free(op);
	expect_method(RP_MEM_DAX_SYNC, RP_METHOD_AGENT_CLWB, RP_CLASS_POWER);
	/* An ordinary file: msync, and only if the CPU places the bytes. */
	claim_dax = false;
	cfg.placement = RP_PLACE_CPU_USER;
	expect_method(RP_MEM_FILE, RP_METHOD_AGENT_MSYNC, RP_CLASS_POWER);
	cr_assert_eq(
		rp_method_choose(&facts, RP_CLASS_PROCESS, RP_METHODS_BUILT)
			.method,
		RP_METHOD_DELIVERY);
	cfg.placement = nic.placement;
	expect_method(RP_MEM_FILE, RP_METHOD_REFUSED, RP_CLASS_NONE);
}

/* A fact that cannot be read stays unknown. */
Test(caps_nic, unknown_stays_unknown)
{
	make_machine("memory_controller", DDIO_OFF);
	nic_port(0x8086, 0x2030, DDIO_OFF, 64); /* without root */
	nic_look("mlx5_0");
	cfg.placement = nic.placement;
	expect_method(RP_MEM_DAX_SYNC, RP_METHOD_AGENT_CLWB, RP_CLASS_POWER);
	make_machine("odd", DDIO_OFF);
	expect_method(RP_MEM_DAX_SYNC, RP_METHOD_AGENT_CLWB, RP_CLASS_NONE);
	make_machine("memory_controller", DDIO_OFF);
	cfg.fence = RP_UNKNOWN;
	expect_method(RP_MEM_DAX_SYNC, RP_METHOD_AGENT_CLWB, RP_CLASS_POWER);
}

/* Only a channel adapter acknowledges a write after it has arrived. */
Test(caps_nic, only_channel_adapters_acknowledge_placement)
{
	static const struct {
		const char *type;
		bool yes;
	} t[] = {
		{"1: CA", true},      {"4: RNIC", false},
		{"5: usNIC", false},  {"7: unspecified", false},
		{"11: later", false}, {"", false},
	};
	char why[RP_SOURCE_LEN];

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		write_tree("/sys/class/infiniband/x0/node_type", "%s\n",
			   t[i].type);
		cr_assert_eq(
			rp_caps_write_is_acknowledged(dir, "verbs", "x0", why),
			t[i].yes, "%s", t[i].type);
		cr_assert_eq(!*why, t[i].yes);
		cr_assert(t[i].yes || strstr(why, t[i].type), "%s", why);
	}
	write_tree("/sys/class/infiniband/x0/node_type", "1: CA\n");
	cr_assert(
		rp_caps_write_is_acknowledged(dir, "verbs;ofi_rxm", "x0", why));
	cr_assert(rp_caps_write_is_acknowledged(dir, "VERBS", "x0-xrc", why));
	/* A device with an unreadable node_type is not trusted to do so. */
	cr_assert_not(rp_caps_write_is_acknowledged(dir, "verbs", "x1", why));
	cr_assert_not(rp_caps_write_is_acknowledged(dir, "verbs", NULL, why));
	cr_assert_not(rp_caps_write_is_acknowledged(dir, "verbs", "", why));
	cr_assert_not(
		rp_caps_write_is_acknowledged(dir, "verbs", "../x0", why));
	cr_assert_not(rp_caps_write_is_acknowledged(dir, "verbs", "-xrc", why));
	/* Other base providers can report delivery by a completion. */
	cr_assert(rp_caps_write_is_acknowledged(dir, "tcp", "lo", why));
	cr_assert(rp_caps_write_is_acknowledged(dir, "verbsy", "x1", why));
	cr_assert(rp_caps_write_is_acknowledged(dir, NULL, NULL, why));
}

Test(caps_nic, several_domains_of_one_device)
{
	nic_device("rxe0", "/sys/devices/virtual");
	rp_caps_base_provider(dir, "verbs", "rxe0-xrc", &nic);
	cr_assert_eq(nic.placement, RP_PLACE_CPU_KERNEL);
	rp_caps_base_provider(dir, "verbs", "rxe0-xr", &nic);
	cr_assert_eq(nic.placement, RP_PLACE_UNKNOWN);
}
