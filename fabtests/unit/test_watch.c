// SPDX-License-Identifier: BSD-2-Clause
/* Sources of facts: each one is recorded, and each change is found. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "caps_rig.h"
#include "core/caps_priv.h"
#include "core/method.h"
#include "core/operator_file.h"
#include "core/watch.h"

#define SDA  "/sys/devices/pci0000:00/host0/block/sda"
#define NMEM "/sys/devices/ndbus0/nmem0"

static struct rp_watch *w;
static char what[RP_SOURCE_LEN];
static struct rp_nic nic;

static void setup(void)
{
	caps_setup();
}

static void teardown(void)
{
	rp_watch_free(&w);
	caps_teardown();
}

TestSuite(watch, .init = setup, .fini = teardown);

/* Look up the facts as a registration does: operator, adapter, memory. */
static struct rp_choice look_up_facts(bool adapter)
{
	char op_file[2 * PATH_MAX];
	struct rp_operator *op = NULL;

	snprintf(op_file, sizeof(op_file), "%s/op.conf", dir);
	rp_watch_free(&w);
	rp_watch_starved();
	rp_watch_record(&w);
	if (!access(op_file, F_OK))
		cr_assert_eq(rp_operator_load(op_file, &op, why), 0, "%s", why);
	if (adapter) {
		rp_caps_base_provider(dir, "verbs", "mlx5_0", &nic);
		cfg.placement = nic.placement;
		cfg.fence = nic.fence;
	}
	cfg.op = op;
	cr_assert_eq(rp_caps_explain(&cfg, HERE, LEN, &facts, why, NULL), 0);
	rp_watch_record(NULL);
	cr_assert_not(rp_watch_starved());
	rp_operator_free(op);
	cfg.op = NULL;
	return rp_method_best(&facts, RP_METHODS_BUILT);
}

static void expect_same(void)
{
	cr_assert_not(rp_watch_find_change(w, what), "%s", what);
	cr_assert_not(rp_watch_starved());
}

static void expect_changed(const char *word)
{
	cr_assert(rp_watch_find_change(w, what));
	cr_assert(strstr(what, word), "%s", what);
	cr_assert_not(strstr(what, dir), "%s", what);
}

static void expect_choice(struct rp_choice c, enum rp_class class,
			  enum rp_method method)
{
	cr_assert_eq(c.class, class, "%s", why);
	cr_assert_eq(c.method, method, "%s", rp_method_name(c.method));
}

Test(watch, write_cache_of_a_disk)
{
	invent_on(8, 1, "ext4", "/dev/sda1", "rw");
	disk_device(SDA, "write back", "1");
	write_tree(SDA "/sda1/partition", "1\n");
	link_tree("/sys/dev/block/8:1", SDA "/sda1");
	expect_choice(look_up_facts(false), RP_CLASS_POWER,
		      RP_METHOD_AGENT_MSYNC);
	expect_same();
	write_tree(SDA "/queue/write_cache", "write through\n");
	expect_changed("sda/queue/write_cache was write back, now write "
		       "through");
	expect_choice(look_up_facts(false), RP_CLASS_PROCESS,
		      RP_METHOD_DELIVERY);
	expect_same();
}

Test(watch, disk_that_comes_below_a_device)
{
	invent_on(253, 0, "xfs", "/dev/mapper/vg-lv", "rw");
	link_tree("/sys/dev/block/253:0", "/sys/devices/virtual/block/dm-0");
	disk_device("/sys/devices/virtual/block/dm-0", "write back", "1");
	disk_device(SDA, "write through", "1");
	expect_choice(look_up_facts(false), RP_CLASS_POWER,
		      RP_METHOD_AGENT_MSYNC);
	expect_same();
	link_tree("/sys/devices/virtual/block/dm-0/slaves/sda", SDA);
	expect_changed("dm-0/slaves/* was absent, now "
		       "/devices/virtual/block/dm-0/slaves/sda");
	expect_choice(look_up_facts(false), RP_CLASS_PROCESS,
		      RP_METHOD_DELIVERY);
}

Test(watch, mount_options)
{
	invent_file("ext4", "rw");
	expect_choice(look_up_facts(false), RP_CLASS_POWER,
		      RP_METHOD_AGENT_MSYNC);
	/* The line of another mount in mountinfo is no source. */
	write_tree("/proc/self/mountinfo",
		   "%llu 1 %u:%u / /mnt\\040- x rw,relatime shared:1 - ext4 "
		   "/dev/d rw\n"
		   "987654 1 0:98 / /new rw - tmpfs t rw\n",
		   (unsigned long long)real_statx.stx_mnt_id,
		   real_statx.stx_dev_major, real_statx.stx_dev_minor);
	expect_same();
	invent_file("ext4", "rw,nobarrier");
	expect_changed("mountinfo was rw, now rw,nobarrier");
	cr_assert_eq(look_up_facts(false).refusal, RP_REFUSAL_FS);
	expect_same();
	/* The kernel makes the file system read-only after an error. */
	invent_file("ext4", "rw");
	look_up_facts(false);
	invent_file("ext4", "ro");
	expect_changed("mountinfo was rw, now ro");
	cr_assert_eq(look_up_facts(false).refusal, RP_REFUSAL_FS);
	expect_same();
	/* Another file system is mounted there now. */
	write_tree("/proc/self/mountinfo",
		   "987654 1 0:98 / /new rw - t t rw\n");
	expect_changed(", now absent");
	cr_assert(strstr(what, "mountinfo was "), "%s", what);
}

Test(watch, persistence_domain_and_dimms)
{
	claim_dax = true;
	invent_file("ext4", "rw");
	write_tree("/proc/self/smaps",
		   "00100000-00102000 rw-s 0 08:01 5 /x\nVmFlags: rd wr sf\n");
	nd_region("region0", "cpu_cache");
	link_tree("/sys/dev/block/0:0", "/nowhere");
	{
		char dev[64];

		snprintf(dev, sizeof(dev), "/sys/dev/block/%u:%u",
			 real_statx.stx_dev_major, real_statx.stx_dev_minor);
		link_tree(dev, "/sys/devices/ndbus0/region0/namespace0.0/"
			       "block/pmem0");
	}
	write_tree("/sys/devices/ndbus0/region0/mapping0", "nmem0,0,99,0\n");
	write_tree(NMEM "/nfit/flags", "\n");
	expect_choice(look_up_facts(false), RP_CLASS_POWER, RP_METHOD_DELIVERY);
	expect_same();
	write_tree("/sys/devices/ndbus0/region0/persistence_domain",
		   "memory_controller\n");
	expect_changed("ndbus0/region0/persistence_domain was cpu_cache, now "
		       "memory_controller");
	expect_choice(look_up_facts(false), RP_CLASS_POWER,
		      RP_METHOD_AGENT_CLWB);
	/* A DIMM without energy to save its contents. */
	write_tree(NMEM "/nfit/flags", "not_armed smart_event\n");
	expect_changed("flags was absent, now not_armed smart_event");
	expect_choice(look_up_facts(false), RP_CLASS_NONE,
		      RP_METHOD_AGENT_CLWB);
	cr_assert_eq(facts.domain, RP_DOMAIN_NONE);
	/* Without MAP_SYNC the method is msync, which does not help. */
	facts.memory = RP_MEM_DAX;
	expect_choice(rp_method_best(&facts, RP_METHODS_BUILT), RP_CLASS_NONE,
		      RP_METHOD_AGENT_CLWB_MSYNC);
	/* CXL memory: its domain counts only if dirty shutdowns are counted. */
	write_tree(NMEM "/nfit/flags", "\n");
	write_tree("/sys/devices/ndbus0/provider", "CXL\n");
	expect_choice(look_up_facts(false), RP_CLASS_NONE,
		      RP_METHOD_AGENT_CLWB);
	cr_assert_eq(facts.domain, RP_DOMAIN_UNKNOWN);
	write_tree(NMEM "/cxl/dirty_shutdown", "0\n");
	expect_changed("nmem0/cxl/dirty_shutdown was absent, now 0");
	expect_choice(look_up_facts(false), RP_CLASS_POWER,
		      RP_METHOD_AGENT_CLWB);
}

/* The page cache of a file whose disk is in the DIMMs. */
Test(watch, disk_on_a_dimm)
{
	invent_on(259, 0, "ext4", "/dev/pmem0", "rw");
	nd_region("region0", "memory_controller");
	link_tree("/sys/dev/block/259:0",
		  "/sys/devices/ndbus0/region0/namespace0.0/block/pmem0");
	write_tree("/sys/devices/ndbus0/region0/mapping0", "nmem0,0,99,0\n");
	write_tree(NMEM "/nfit/flags", "\n");
	expect_choice(look_up_facts(false), RP_CLASS_POWER,
		      RP_METHOD_AGENT_MSYNC);
	expect_same();
	write_tree(NMEM "/nfit/flags", "not_armed\n");
	expect_changed("flags was absent, now not_armed");
	expect_choice(look_up_facts(false), RP_CLASS_PROCESS,
		      RP_METHOD_DELIVERY);
}

/* The reason is cut, not longer than its buffer. */
Test(watch, dimm_with_a_long_name)
{
	const char *const region = "/sys/devices/ndbus0/region0";
	char words[2 * RP_SOURCE_LEN], path[2 * PATH_MAX], name[152];

	memset(words, 'x', sizeof(words));
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	snprintf(path, sizeof(path), "%s/mapping0", region);
	write_tree(path, "%s,0,99,0\n", name);
	snprintf(path, sizeof(path), "/sys/devices/ndbus0/%.99s/nfit/flags",
		 name);
	write_tree(path, "not_armed\n");
	snprintf(path, sizeof(path), "%s%s", dir, region);
	cr_assert_eq(rp_caps_nd_domain(path, words), RP_DOMAIN_NONE);
	cr_assert_lt(strlen(words), RP_SOURCE_LEN);
	cr_assert(strstr(words, "not armed"));
	cr_assert_eq(words[RP_SOURCE_LEN], 'x');
}

Test(watch, registers_of_the_root_port)
{
	claim_dax = true;
	invent_file("ext4", "rw");
	write_tree("/proc/self/smaps",
		   "00100000-00102000 rw-s 0 08:01 5 /x\nVmFlags: rd wr sf\n");
	write_tree("/op.conf", "[host]\nassert domain = memory-controller\n");
	nic_device("mlx5_0", NIC_FUNCTION);
	nic_port(0x8086, 0x2030, 0, 1 << 9, 4096);
	expect_choice(look_up_facts(true), RP_CLASS_POWER, RP_METHOD_FENCE);
	expect_same();
	nic_port(0x8086, 0x2030, 1 << 7, 1 << 9, 4096);
	expect_changed("config was 0000020000000000, now "
		       "0000020000000080");
	expect_choice(look_up_facts(true), RP_CLASS_POWER,
		      RP_METHOD_AGENT_CLWB);
}

Test(watch, operators_file)
{
	char path[2 * PATH_MAX];

	invent_file("ext4", "rw");
	write_tree("/op.conf", "[host]\n");
	expect_choice(look_up_facts(false), RP_CLASS_POWER,
		      RP_METHOD_AGENT_MSYNC);
	expect_same();
	write_tree("/op.conf", "[host]\nlimit class = process\n");
	expect_changed("op.conf was absent, now limit class = process");
	expect_choice(look_up_facts(false), RP_CLASS_PROCESS,
		      RP_METHOD_DELIVERY);
	expect_same();
	snprintf(path, sizeof(path), "%s/op.conf", dir);
	/* A file that other users can write is not believed any more. */
	chmod(path, 0666);
	expect_changed("op.conf was 100644 ");
	cr_assert(strstr(what, ", now 100666 "), "%s", what);
	chmod(path, 0600);
	look_up_facts(false);
	unlink(path);
	expect_changed(", now absent");
}

/* A lack of file descriptors is no change of the files. */
Test(watch, lack_of_descriptors_is_no_change)
{
	struct rlimit old, none;
	bool starved;

	invent_file("ext4", "rw");
	look_up_facts(false);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = (struct rlimit){3, old.rlim_max};
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	rp_watch_find_change(w, what);
	starved = rp_watch_starved();
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
	cr_assert(starved);
	expect_same();
}

/* Wrapped by the linker: the call after `calls_left` others has no memory. */
static int calls_left = -1;

static bool lacks_memory(void)
{
	if (calls_left < 0 || calls_left--)
		return false;
	errno = ENOMEM;
	return true;
}

char *__real_strdup(const char *s);
char *__wrap_strdup(const char *s);
char *__wrap_strdup(const char *s)
{
	return lacks_memory() ? NULL : __real_strdup(s);
}

char *__real_realpath(const char *path, char *out);
char *__wrap_realpath(const char *path, char *out);
char *__wrap_realpath(const char *path, char *out)
{
	return lacks_memory() ? NULL : __real_realpath(path, out);
}

int __real_glob(const char *pattern, int flags, int (*fn)(const char *, int),
		glob_t *g);
int __wrap_glob(const char *pattern, int flags, int (*fn)(const char *, int),
		glob_t *g);
int __wrap_glob(const char *pattern, int flags, int (*fn)(const char *, int),
		glob_t *g)
{
	return lacks_memory() ? GLOB_NOSPACE
			      : __real_glob(pattern, flags, fn, g);
}

ssize_t __real_getdelim(char **line, size_t *size, int end, FILE *f);
ssize_t __wrap_getdelim(char **line, size_t *size, int end, FILE *f);
ssize_t __wrap_getdelim(char **line, size_t *size, int end, FILE *f)
{
	return lacks_memory() ? -1 : __real_getdelim(line, size, end, f);
}

/* getline(), and what optimized calls of it become. */
ssize_t __wrap_getline(char **line, size_t *size, FILE *f);
ssize_t __wrap_getline(char **line, size_t *size, FILE *f)
{
	return __wrap_getdelim(line, size, '\n', f);
}
ssize_t __wrap___getdelim(char **line, size_t *size, int end, FILE *f);
ssize_t __wrap___getdelim(char **line, size_t *size, int end, FILE *f)
{
	return __wrap_getdelim(line, size, end, f);
}

/* Fail each call that needs memory: no such lookup may be believed. */
static void fail_each_call(void)
{
	const struct rp_choice right = look_up_facts(false);
	char op_file[2 * PATH_MAX];
	struct rp_operator *op;
	struct rp_choice c;
	bool failed;
	int ret = 0;

	snprintf(op_file, sizeof(op_file), "%s/op.conf", dir);
	for (int n = 0;; n++) {
		rp_watch_free(&w);
		rp_watch_record(&w);
		calls_left = n;
		op = NULL;
		ret = rp_operator_load(op_file, &op, why);
		cfg.op = op;
		if (!ret)
			ret = rp_caps_explain(&cfg, HERE, LEN, &facts, why,
					      NULL);
		failed = calls_left < 0;
		calls_left = -1;
		ret = rp_watch_end(ret, why);
		rp_operator_free(op);
		cfg.op = NULL;
		if (!failed)
			break;
		if (ret)
			continue;
		c = rp_method_best(&facts, RP_METHODS_BUILT);
		if (c.method != RP_METHOD_REFUSED)
			expect_choice(c, right.class, right.method);
	}
	cr_assert_eq(ret, 0, "%s", why);
}

/* A source that cannot be read for lack of memory is not absent. */
Test(watch, lack_of_memory_is_no_fact)
{
	write_tree("/op.conf", "# nothing is stated\n");
	invent_on(8, 1, "ext4", "/dev/sda1", "rw");
	disk_device(SDA, "write through", "1");
	write_tree(SDA "/sda1/partition", "1\n");
	link_tree("/sys/dev/block/8:1", SDA "/sda1");
	fail_each_call();
	write_tree(SDA "/queue/write_cache", "write back\n");
	write_tree("/op.conf", "[host]\nlimit class = process\n");
	fail_each_call();
}

/* Nor is it unchanged. */
Test(watch, source_that_is_not_read_is_reported)
{
	static const enum rp_source kinds[] = {RP_SOURCE_BYTES, RP_SOURCE_FILE};
	char path[2 * PATH_MAX];

	write_tree("/op.conf", "# 8 bytes\n");
	snprintf(path, sizeof(path), "%s/op.conf", dir);
	for (int i = 0; i < 2; i++) {
		rp_watch_free(&w);
		rp_watch_record(&w);
		free(rp_watch_read(kinds[i], path, 0));
		rp_watch_record(NULL);
		cr_assert_not(rp_watch_starved());
		calls_left = 0;
		rp_watch_find_change(w, what);
		cr_assert(rp_watch_starved());
		calls_left = 0;
		free(rp_watch_read(kinds[i], path, 0));
		cr_assert(rp_watch_starved());
	}
}

/* A failure during the lookup counts, one before it does not. */
Test(watch, facts_without_sources_are_refused)
{
	struct rp_watch *none = NULL;
	char reason[RP_WHY_LEN] = "";

	rp_watch_open_failed(EMFILE);
	rp_watch_record(&none);
	cr_assert_eq(rp_watch_end(0, reason), 0);
	rp_watch_record(&none);
	rp_watch_open_failed(EMFILE);
	cr_assert_eq(rp_watch_end(0, reason), -ENOMEM);
	cr_assert(strstr(reason, "file descriptor"));
	cr_assert_not(rp_watch_starved());
	/* The error of the lookup itself is reported. */
	rp_watch_record(&none);
	rp_watch_open_failed(EMFILE);
	cr_assert_eq(rp_watch_end(-EFAULT, reason), -EFAULT);
}

/* A source that is read twice keeps the text that was used. */
Test(watch, merged_sources_keep_the_text_that_was_believed)
{
	struct rp_watch *later = NULL;
	char path[2 * PATH_MAX];

	write_tree("/line", "old\n");
	snprintf(path, sizeof(path), "%s/line", dir);
	rp_watch_record(&w);
	free(rp_watch_read(RP_SOURCE_LINE, path, 0));
	write_tree("/line", "new\n");
	rp_watch_record(&later);
	free(rp_watch_read(RP_SOURCE_LINE, path, 0));
	rp_watch_record(NULL);
	rp_watch_merge(&w, &later);
	cr_assert_null(later);
	expect_changed("line was old, now new");
	free(rp_watch_read(RP_SOURCE_LINE, path, 1));
	write_tree("/line", "old\n");
	expect_same();
}
