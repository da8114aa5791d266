// SPDX-License-Identifier: BSD-2-Clause
/* Every combination of machine parts: read_facts() finds the true facts. */
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
#include "core/log.h"
#include "core/operator_file.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

TestSuite(caps_all, .init = caps_setup, .fini = caps_teardown, .timeout = 300);

/* --- parts of machines, and their true facts --- */

static const struct kind {
	const char *perms, *fs, *opts, *flags;
	bool dax, device, nameless;
	enum rp_memory memory;
	enum rp_tri trusted;
} kinds[] = {
	{.perms = "rw-p", .nameless = true, .memory = RP_MEM_ANON},
	{.perms = "rw-p", .fs = "ext4", .opts = "rw", .memory = RP_MEM_PRIVATE},
	{.perms = "rw-s", .fs = "tmpfs", .opts = "rw", .memory = RP_MEM_TMPFS},
	{.perms = "rw-s",
	 .fs = "ext4",
	 .opts = "rw",
	 .memory = RP_MEM_FILE,
	 .trusted = RP_YES},
	{.perms = "rw-s",
	 .fs = "ext4",
	 .opts = "rw,nobarrier",
	 .memory = RP_MEM_FILE,
	 .trusted = RP_NO},
	{.perms = "rw-s",
	 .fs = "overlay",
	 .opts = "rw",
	 .memory = RP_MEM_FILE,
	 .trusted = RP_NO},
	{.perms = "rw-s",
	 .fs = "xfs",
	 .opts = "rw",
	 .flags = "rd wr sh",
	 .dax = true,
	 .memory = RP_MEM_DAX,
	 .trusted = RP_YES},
	{.perms = "rw-s",
	 .fs = "ext4",
	 .opts = "rw",
	 .flags = "rd wr sh sf",
	 .dax = true,
	 .memory = RP_MEM_DAX_SYNC,
	 .trusted = RP_YES},
	{.perms = "rw-s",
	 .fs = "virtiofs",
	 .opts = "rw",
	 .flags = "rd wr sh sf",
	 .dax = true,
	 .memory = RP_MEM_DAX_SYNC,
	 .trusted = RP_NO},
	{.perms = "rw-s",
	 .device = true,
	 .memory = RP_MEM_DAX_SYNC,
	 .trusted = RP_YES},
};

static const struct {
	const char *word; /* NULL: no nd region above the device */
	enum rp_domain domain;
} domains[] = {
	{NULL, RP_DOMAIN_UNKNOWN},
	{"memory_controller", RP_DOMAIN_MEMCTRL},
	{"cpu_cache", RP_DOMAIN_CPUCACHE},
	{"none", RP_DOMAIN_NONE},
	{"odd", RP_DOMAIN_UNKNOWN},
};

/* NUMA nodes plus 1; 0: no numa_node file. */
static const struct {
	int memory, nic;
} nodes[] = {{0, 0}, {1, 1}, {1, 2}, {2, 0}};

static const struct way {
	const char *base, *device;
	unsigned int id;
	uint32_t p0, p1;
	size_t len; /* readable bytes */
	enum rp_placement placement;
	enum rp_tri fence, ddio;
} ways[] = {
	{.base = "tcp", .placement = RP_PLACE_CPU_USER},
	{.base = "sockets", .placement = RP_PLACE_CPU_USER},
	{.base = "shm", .placement = RP_PLACE_CPU_KERNEL},
	{.base = "efa", .device = "e0"},
	{.base = "verbs", .device = "none0"},
	{.base = "verbs", .device = "rxe0", .placement = RP_PLACE_CPU_KERNEL},
	{.base = "verbs",
	 .device = "mlx5_0",
	 .id = 0x2030,
	 .p0 = 0x80,
	 .len = 4096,
	 .placement = RP_PLACE_DMA_CACHE,
	 .fence = RP_YES,
	 .ddio = RP_YES},
	{.base = "verbs;ofi_rxm",
	 .device = "mlx5_0",
	 .id = 0x2030,
	 .p1 = 0x200,
	 .len = 4096,
	 .placement = RP_PLACE_DMA_MEMORY,
	 .fence = RP_YES,
	 .ddio = RP_NO},
	/* DDIO off for some writes only; unreadable; another port model. */
	{.base = "verbs",
	 .device = "mlx5_0",
	 .id = 0x2030,
	 .p0 = 0x08,
	 .p1 = 0x200,
	 .len = 4096,
	 .fence = RP_YES},
	{.base = "verbs",
	 .device = "mlx5_0",
	 .id = 0x2030,
	 .p1 = 0x200,
	 .len = 64,
	 .fence = RP_YES},
	{.base = "verbs",
	 .device = "mlx5_0",
	 .id = 0x1234,
	 .p1 = 0x200,
	 .len = 4096,
	 .fence = RP_YES},
};

/* --- the operator's statements --- */

enum said_key {
	SAID_DOMAIN,
	SAID_PLACEMENT,
	SAID_FENCE,
	SAID_FS,
	SAID_CLASS,
};
static const struct said {
	const char *text;
	bool assert;
	enum said_key key;
	int value;
} said[] = {
	{"limit domain = none", false, SAID_DOMAIN, RP_DOMAIN_NONE},
	{"limit domain = memory-controller", false, SAID_DOMAIN,
	 RP_DOMAIN_MEMCTRL},
	{"limit domain = system", false, SAID_DOMAIN, RP_DOMAIN_SYSTEM},
	{"assert domain = none", true, SAID_DOMAIN, RP_DOMAIN_NONE},
	{"assert domain = memory-controller", true, SAID_DOMAIN,
	 RP_DOMAIN_MEMCTRL},
	{"assert domain = cpu-caches", true, SAID_DOMAIN, RP_DOMAIN_CPUCACHE},
	{"assert domain = system", true, SAID_DOMAIN, RP_DOMAIN_SYSTEM},
	{"limit placement = dma-cache", false, SAID_PLACEMENT,
	 RP_PLACE_DMA_CACHE},
	{"assert placement = dma-memory", true, SAID_PLACEMENT,
	 RP_PLACE_DMA_MEMORY},
	{"assert placement = dma-cache", true, SAID_PLACEMENT,
	 RP_PLACE_DMA_CACHE},
	{"limit fence = no", false, SAID_FENCE, RP_NO},
	{"assert fence = yes", true, SAID_FENCE, RP_YES},
	{"assert fence = no", true, SAID_FENCE, RP_NO},
	{"limit filesystem = untrusted", false, SAID_FS, RP_NO},
	{"assert filesystem = trusted", true, SAID_FS, RP_YES},
	{"limit class = process", false, SAID_CLASS, RP_LIMIT_PROCESS},
	{"limit class = none", false, SAID_CLASS, RP_LIMIT_NONE},
	{"limit native = no", false, SAID_CLASS, RP_LIMIT_POWER},
};

static const enum scope {
	OF_HOST,
	OF_HERE,
	OF_DEVICE,
	OF_ELSEWHERE,
} scopes[] = {OF_HOST, OF_HERE, OF_DEVICE, OF_ELSEWHERE};

static struct rp_operator *ops[COUNT(scopes)][COUNT(said)];

static void load_statements(void)
{
	char head[PATH_MAX + 16], file[2 * PATH_MAX];

	sprintf(file, "%s/said", dir);
	for (size_t i = 0; i < COUNT(scopes); i++) {
		switch (scopes[i]) {
		case OF_HOST:
			strcpy(head, "[host]");
			break;
		case OF_HERE:
			sprintf(head, "[path %s]", dir);
			break;
		case OF_DEVICE:
			strcpy(head, "[device null]");
			break;
		case OF_ELSEWHERE:
			strcpy(head, "[path /else/where]");
			break;
		}
		for (size_t k = 0; k < COUNT(said); k++) {
			write_tree("/said", "%s\n%s\n", head, said[k].text);
			cr_assert_eq(rp_operator_load(file, &ops[i][k], why), 0,
				     "%s", why);
		}
	}
}

static bool concerns_kind(enum scope s, const struct kind *k)
{
	switch (s) {
	case OF_HOST:
		return true;
	case OF_HERE:
		return !k->nameless && !k->device;
	case OF_DEVICE:
		return k->device;
	case OF_ELSEWHERE:
		break;
	}
	return false;
}

/* The rank of a value: a higher one allows more promises. */
static int rank_of(enum said_key key, int v)
{
	static const int of_place[] = {
		[RP_PLACE_DMA_CACHE] = 1,
		[RP_PLACE_DMA_MEMORY] = 2,
	};
	static const int of_domain[] = {
		[RP_DOMAIN_NONE] = -1, /* lower than unknown */
		[RP_DOMAIN_MEMCTRL] = 1,
		[RP_DOMAIN_CPUCACHE] = 2,
		[RP_DOMAIN_SYSTEM] = 3,
	};

	switch (key) {
	case SAID_DOMAIN:
		return of_domain[v];
	case SAID_PLACEMENT:
		return of_place[v];
	case SAID_FENCE:
	case SAID_FS:
		return v == RP_YES;
	case SAID_CLASS:
		return -v;
	}
	return 0;
}

static int fact_value(const struct rp_facts *f, enum said_key key)
{
	switch (key) {
	case SAID_DOMAIN:
		return f->domain;
	case SAID_PLACEMENT:
		return f->placement;
	case SAID_FENCE:
		return f->fence;
	case SAID_FS:
		return f->fs_trusted;
	case SAID_CLASS:
		return f->limit;
	}
	return 0;
}

/*
 * Replace a fact by the operator's statement. Returns whether the statement is
 * stronger than the fact.
 */
static bool apply_statement(const struct said *s, struct rp_facts *f)
{
	int was = fact_value(f, s->key);
	bool up = rank_of(s->key, s->value) > rank_of(s->key, was);

	if (s->key == SAID_PLACEMENT &&
	    (f->placement == RP_PLACE_CPU_USER ||
	     (f->placement == RP_PLACE_CPU_KERNEL && !s->assert)))
		return false;
	if (!s->assert && rank_of(s->key, was) <= rank_of(s->key, s->value))
		return false;
	switch (s->key) {
	case SAID_DOMAIN:
		f->domain = s->value;
		break;
	case SAID_PLACEMENT:
		f->placement = s->value;
		break;
	case SAID_FENCE:
		f->fence = s->value;
		break;
	case SAID_FS:
		f->fs_trusted = s->value;
		break;
	case SAID_CLASS:
		f->limit = s->value;
		break;
	}
	return up;
}

/* --- the /proc and /sys trees --- */

static unsigned int warned;

static void count_warnings(enum rp_log_level level, const char *text)
{
	warned += level == RP_LOG_WARN;
}

static void link_to(const char *at, const char *to)
{
	char full[3 * PATH_MAX];

	sprintf(full, "%s%s", dir, at);
	unlink(full);
	cr_assert_eq(symlink(to, full), 0, "%s: %s", full, strerror(errno));
}

static void unlink_at(const char *at)
{
	char full[3 * PATH_MAX];

	sprintf(full, "%s%s", dir, at);
	unlink(full);
}

#define REGION "/sys/devices/ndbus0/region0"

/* Write the mapping at HERE into the process map, and make its device. */
static void make_memory(const struct kind *k, const char *domain)
{
	const char *target = domain ? REGION "/namespace0.0/block/pmem0"
				    : "/sys/devices/virtual/block/dm-0";
	char at[64], to[2 * PATH_MAX];
	struct stat st;

	invent_file(k->fs ? k->fs : "ext4", k->opts ? k->opts : "rw");
	claim_dax = k->dax;
	if (k->nameless)
		write_tree("/proc/self/maps",
			   "00100000-00102000 rw-p 0 00:00 0\n");
	else if (!strcmp(k->perms, "rw-p"))
		write_tree("/proc/self/maps",
			   "00100000-00102000 rw-p 0 %02x:%02x %llu %s\n",
			   real_statx.stx_dev_major, real_statx.stx_dev_minor,
			   (unsigned long long)real_statx.stx_ino, real_path);
	write_tree("/proc/self/smaps",
		   "00100000-00102000 rw-s 0 0:0 1 x\nVmFlags: %s\n",
		   k->flags ? k->flags : "rd");
	sprintf(at, "/sys/dev/block/%u:%u", real_statx.stx_dev_major,
		real_statx.stx_dev_minor);
	if (k->device) {
		cr_assert_eq(stat("/dev/null", &st), 0);
		cr_assert_eq(statx(AT_FDCWD, "/dev/null", 0, STATX_MNT_ID,
				   &real_statx),
			     0);
		write_tree("/proc/self/mountinfo",
			   "%llu 1 0:5 / /dev rw - devtmpfs d rw\n",
			   (unsigned long long)real_statx.stx_mnt_id);
		write_tree("/proc/self/maps",
			   "00100000-00102000 rw-s 0 00:05 %lu /dev/null\n",
			   (unsigned long)st.st_ino);
		target = domain ? REGION "/dax0.0" : "/sys/devices/dax1.0";
		strcpy(at, "/sys/dev/char/1:3");
	}
	sprintf(to, "%s%s", dir, target);
	link_to(at, to);
	write_tree(REGION "/persistence_domain", "%s\n", domain ? domain : "");
}

static void make_nodes(int memory, int adapter)
{
	unlink_at(REGION "/numa_node");
	unlink_at(NIC_FUNCTION "/numa_node");
	if (memory)
		write_tree(REGION "/numa_node", "%d\n", memory - 1);
	if (adapter)
		write_tree(NIC_FUNCTION "/numa_node", "%d\n", adapter - 1);
}

static void make_device_tree(void)
{
	write_tree("/sys/dev/block/x", " ");
	write_tree("/sys/dev/char/x", " ");
	write_tree("/sys/devices/virtual/block/dm-0/dev", " ");
	write_tree(REGION "/namespace0.0/block/pmem0/dev", " ");
	write_tree(REGION "/dax0.0/dax/size", " ");
	write_tree("/sys/devices/dax1.0/size", " ");
	link_to(REGION "/dax0.0/subsystem", "../../../../bus/dax");
	link_to("/sys/devices/dax1.0/subsystem", "../../bus/dax");
	nic_device("mlx5_0", NIC_FUNCTION);
	nic_device("rxe0", "/sys/devices/virtual");
}

/* --- the query --- */

static size_t nchecked;

static struct rp_facts truth_of(const struct kind *k, const struct way *w,
				size_t d, size_t n, bool emulate)
{
	bool pmem = k->dax || k->device;
	bool region = pmem && domains[d].word;
	struct rp_facts f = {
		.memory = k->memory,
		.placement = w->placement,
		.domain = region ? domains[d].domain : RP_DOMAIN_UNKNOWN,
		.fence = w->fence,
		.fs_trusted = k->trusted,
		.agent = true,
		.node = region ? nodes[n].memory : 0,
	};

	if (emulate && (k->memory == RP_MEM_ANON || k->memory == RP_MEM_TMPFS))
		f.memory = RP_MEM_EMULATED;
	return f;
}

static void compare_with_truth(const struct rp_facts *truth, const char *of)
{
	cr_assert_eq(facts.memory, truth->memory, "%s: memory %s", of,
		     rp_memory_name(facts.memory));
	cr_assert_eq(facts.placement, truth->placement, "%s: placement %s", of,
		     rp_placement_name(facts.placement));
	cr_assert_eq(facts.domain, truth->domain, "%s: domain %s", of,
		     rp_domain_name(facts.domain));
	cr_assert_eq(facts.fence, truth->fence, "%s: fence", of);
	cr_assert_eq(facts.native, RP_UNKNOWN, "%s: native", of);
	cr_assert_eq(facts.fs_trusted, truth->fs_trusted, "%s: trust", of);
	cr_assert_eq(facts.limit, truth->limit, "%s: limit", of);
	cr_assert_eq(facts.node, truth->node, "%s: node", of);
	cr_assert_eq(facts.agent, true);
	nchecked++;
}

static void explain_raise(const struct rp_facts *truth, unsigned int raised,
			  const struct said *s)
{
	struct rp_sources src;
	char of[RP_WHY_LEN + 64];

	warned = 0;
	cr_assert_eq(rp_caps_explain(&cfg, HERE, LEN, &facts, why, &src), 0,
		     "%s", why);
	snprintf(of, sizeof(of), "%s; %s", why, s ? s->text : "");
	compare_with_truth(truth, of);
	/* Each fact that a statement raised is counted and warned about. */
	cr_assert_eq(src.raised, raised, "%s: raised %u", of, src.raised);
	cr_assert_eq(warned, raised, "%s: %u warnings", of, warned);
}

static void check_machine(const struct kind *k, const struct way *w, size_t d,
			  size_t n)
{
	struct rp_facts truth, stated;
	struct rp_nic nic;

	rp_caps_base_provider(dir, w->base, w->device, &nic);
	cr_assert_eq(nic.ddio, w->ddio, "%s", nic.placement_why);
	cr_assert_eq(nic.node, w->id ? nodes[n].nic : 0);
	cfg = (struct rp_caps_cfg){
		.root = dir,
		.placement = nic.placement,
		.fence = nic.fence,
	};
	for (int emulate = 0; emulate < 2; emulate++) {
		cfg.emulate = emulate;
		cfg.op = NULL;
		truth = truth_of(k, w, d, n, emulate);
		explain_raise(&truth, 0, NULL);
	}
	cfg.emulate = false;
	truth = truth_of(k, w, d, n, false);
	for (size_t i = 0; i < COUNT(scopes); i++)
		for (size_t s = 0; s < COUNT(said); s++) {
			bool up = false;

			stated = truth;
			if (concerns_kind(scopes[i], k))
				up = apply_statement(&said[s], &stated);
			cfg.op = ops[i][s];
			explain_raise(&stated, up, &said[s]);
		}
}

Test(caps_all, every_machine)
{
	rp_log_set(count_warnings);
	load_statements();
	make_device_tree();
	for (size_t w = 0; w < COUNT(ways); w++) {
		if (ways[w].id)
			nic_port(0x8086, ways[w].id, ways[w].p0, ways[w].p1,
				 ways[w].len);
		for (size_t n = 0; n < COUNT(nodes); n++) {
			make_nodes(nodes[n].memory, nodes[n].nic);
			for (size_t k = 0; k < COUNT(kinds); k++)
				for (size_t d = 0; d < COUNT(domains); d++) {
					make_memory(&kinds[k], domains[d].word);
					check_machine(&kinds[k], &ways[w], d,
						      n);
				}
		}
	}
	cr_assert_eq(nchecked, COUNT(ways) * COUNT(nodes) * COUNT(kinds) *
				       COUNT(domains) *
				       (2 + COUNT(scopes) * COUNT(said)));
	for (size_t i = 0; i < COUNT(scopes); i++)
		for (size_t s = 0; s < COUNT(said); s++)
			rp_operator_free(ops[i][s]);
}
