// SPDX-License-Identifier: BSD-2-Clause
/* Disks below a file: invented sysfs trees, and the class of the file. */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "caps_rig.h"
#include "core/method.h"
#include "core/operator_file.h"

#define SDA  "/sys/devices/pci0000:00/host0/block/sda"
#define SDB  "/sys/devices/pci0000:00/host1/block/sdb"
#define DM   "/sys/devices/virtual/block/dm-0"
#define MD   "/sys/devices/virtual/block/md0"
#define LOOP "/sys/devices/virtual/block/loop0"
#define BACK "write back"
#define THRU "write through"

static void setup(void)
{
	caps_setup();
	invent_on(8, 1, "ext4", "/dev/sda1", "rw");
}

TestSuite(caps_disk, .init = setup, .fini = caps_teardown);

/* The file's best class is power; or process, and this word says why. */
static void expect_class(enum rp_class class, const char *word)
{
	struct rp_sources src;
	struct rp_choice c;

	cr_assert_eq(rp_caps_explain(&cfg, HERE, LEN, &facts, why, &src), 0);
	c = rp_method_best(&facts, RP_METHODS_BUILT);
	cr_assert_eq(c.class, class, "%s: %s", word ? word : "", why);
	cr_assert_eq(c.method, class == RP_CLASS_POWER ? RP_METHOD_AGENT_MSYNC
						       : RP_METHOD_DELIVERY);
	if (!word) {
		cr_assert_str_eq(src.limit, "");
		return;
	}
	cr_assert(strstr(why, word), "%s", why);
	cr_assert(strstr(src.limit, word), "%s", src.limit);
	/* A commit that requires class power is refused. */
	c = rp_method_choose(&facts, RP_CLASS_POWER, RP_METHODS_BUILT);
	cr_assert_eq(c.refusal, RP_REFUSAL_CLASS);
}

/* Put the file system on a partition of disk SDA. */
static void partition(const char *cache, const char *fua)
{
	disk_device(SDA, cache, fua);
	write_tree(SDA "/sda1/partition", "1\n");
}

Test(caps_disk, switched_off_flushes_are_seen_by_fua)
{
	static const struct {
		const char *cache, *fua, *word;
	} t[] = {
		{BACK, "0", NULL},
		{BACK, "1", NULL},
		{THRU, "0", NULL},
		/* Drivers set fua only for disks with a volatile cache. */
		{THRU, "1", "sda has a volatile cache (queue/fua is 1)"},
		{NULL, "1", NULL},
		{NULL, NULL, NULL},
		{"none", "1", NULL},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		disk_device(SDA, "", "");
		partition(t[i].cache, t[i].fua);
		if (!i)
			link_tree("/sys/dev/block/8:1", SDA "/sda1");
		expect_class(t[i].word ? RP_CLASS_PROCESS : RP_CLASS_POWER,
			     t[i].word);
	}
}

/* Without the device in sysfs, as in a container, the mount decides. */
Test(caps_disk, device_that_cannot_be_seen_changes_nothing)
{
	expect_class(RP_CLASS_POWER, NULL);
	link_tree("/sys/dev/block/8:1", SDA "/nowhere");
	expect_class(RP_CLASS_POWER, NULL);
}

Test(caps_disk, scsi_disk_reports_its_cache_itself)
{
	static const struct {
		const char *report;
		bool cached;
	} t[] = {
		{"write through", false},
		{"none", false},
		{"write back", true},
		{"write back, no read (daft)", true},
	};

	link_tree("/sys/dev/block/8:1", SDA "/sda1");
	partition(THRU, "0");
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		write_tree(SDA "/device/scsi_disk/0:0:0:0/cache_type", "%s\n",
			   t[i].report);
		expect_class(t[i].cached ? RP_CLASS_PROCESS : RP_CLASS_POWER,
			     t[i].cached ? "cache_type is write back" : NULL);
	}
	partition(BACK, "0");
	expect_class(RP_CLASS_POWER, NULL);
}

Test(caps_disk, virtio_disk_reports_the_cache_of_its_host)
{
	static const char vda[] = "/sys/devices/pci0000:00/virtio1/block/vda";

	invent_on(254, 0, "ext4", "/dev/root", "rw");
	link_tree("/sys/dev/block/254:0", vda);
	disk_device(vda, THRU, "0");
	expect_class(RP_CLASS_POWER, NULL);
	write_tree("/sys/devices/pci0000:00/virtio1/block/vda/cache_type",
		   "write back\n");
	expect_class(RP_CLASS_PROCESS, "vda has a volatile cache (cache_type");
	disk_device(vda, BACK, "0");
	expect_class(RP_CLASS_POWER, NULL);
}

Test(caps_disk, one_disk_below_device_mapper_is_enough)
{
	invent_on(253, 0, "xfs", "/dev/mapper/vg-lv", "rw");
	link_tree("/sys/dev/block/253:0", DM);
	partition(BACK, "1");
	disk_device(SDB, BACK, "1");
	disk_device(DM, BACK, "1");
	link_tree(DM "/slaves/sda1", SDA "/sda1");
	link_tree(DM "/slaves/sdb", SDB);
	expect_class(RP_CLASS_POWER, NULL);
	disk_device(SDB, THRU, "1");
	expect_class(RP_CLASS_PROCESS, "sdb has a volatile cache");
	disk_device(SDB, THRU, "0");
	expect_class(RP_CLASS_POWER, NULL);
	partition(THRU, "1");
	expect_class(RP_CLASS_PROCESS, "sda has a volatile cache");
}

/* A device mapper stack that drops flushes, on a disk that needs them. */
Test(caps_disk, stack_that_drops_flushes)
{
	invent_on(253, 0, "xfs", "/dev/mapper/vg-lv", "rw");
	link_tree("/sys/dev/block/253:0", DM);
	disk_device(SDA, THRU, "0");
	disk_device(SDB, BACK, "0");
	disk_device(DM, THRU, "0");
	link_tree(DM "/slaves/sda", SDA);
	expect_class(RP_CLASS_POWER, NULL);
	link_tree(DM "/slaves/sdb", SDB);
	expect_class(RP_CLASS_PROCESS, "dm-0 has a volatile cache (below it)");
	disk_device(SDA, BACK, "0");
	disk_device(SDB, THRU, "0");
	expect_class(RP_CLASS_PROCESS, "dm-0 has a volatile cache (below it)");
	/* A stack with one more level: md on dm. */
	invent_on(9, 0, "ext4", "/dev/md0", "rw");
	link_tree("/sys/dev/block/9:0", MD);
	link_tree(MD "/slaves/dm-0", DM);
	disk_device(MD, BACK, "1");
	expect_class(RP_CLASS_PROCESS, "dm-0 has a volatile cache");
	disk_device(DM, BACK, "1");
	expect_class(RP_CLASS_POWER, NULL);
	disk_device(MD, THRU, "1");
	expect_class(RP_CLASS_PROCESS, "md0 has a volatile cache");
}

Test(caps_disk, nvme_with_a_cache_has_fua)
{
	static const char nvme[] = "/sys/devices/pci0000:00/nvme/nvme0/nvme0n1";

	invent_on(259, 2, "ext4", "/dev/nvme0n1p2", "rw");
	disk_device(nvme, THRU, "1");
	write_tree("/sys/devices/pci0000:00/nvme/nvme0/nvme0n1/nvme0n1p2/"
		   "partition",
		   "2\n");
	link_tree("/sys/dev/block/259:2",
		  "/sys/devices/pci0000:00/nvme/nvme0/nvme0n1/nvme0n1p2");
	expect_class(RP_CLASS_PROCESS, "nvme0n1 has a volatile cache");
	disk_device(nvme, THRU, "0");
	expect_class(RP_CLASS_POWER, NULL);
}

Test(caps_disk, loop_device_is_as_good_as_its_file)
{
	invent_on(7, 0, "ext4", "/dev/loop0", "rw");
	link_tree("/sys/dev/block/7:0", LOOP);
	disk_device(LOOP, BACK, "0");
	write_tree(LOOP "/loop/backing_file", "/no/such/file\n");
	expect_class(RP_CLASS_POWER, NULL);
	/*
	 * A write-through loop device gets no flushes, so bytes stay in the
	 * page cache of its file.
	 */
	disk_device(LOOP, THRU, "0");
	expect_class(RP_CLASS_PROCESS, "loop0 has a volatile cache (below it)");
	disk_device(LOOP, BACK, "0");
	/* A power cut frees the blocks of a file without a name. */
	write_tree(LOOP "/loop/backing_file", "/no/such/file (deleted)\n");
	expect_class(RP_CLASS_PROCESS, "flushed (file file (deleted))");
	/*
	 * The class depends on the file's own mount. The invented table lacks
	 * the mount of this file.
	 */
	write_tree(LOOP "/loop/backing_file", "/proc/self/maps\n");
	expect_class(RP_CLASS_POWER, NULL);
}

/* Write a mount table where /proc, with the loop file, has this type. */
static void loop_on(const char *type, const char *opts)
{
	struct statx sx;

	invent_on(7, 0, "ext4", "/dev/loop0", "rw");
	cr_assert_eq(statx(AT_FDCWD, "/proc/self/maps", 0, STATX_MNT_ID, &sx),
		     0);
	write_tree("/proc/self/mountinfo",
		   "%llu 1 7:0 / / rw - ext4 /dev/loop0 rw\n"
		   "%llu 1 8:1 / /p rw - %s /dev/sda1 %s\n",
		   (unsigned long long)real_statx.stx_mnt_id,
		   (unsigned long long)sx.stx_mnt_id, type, opts);
}

Test(caps_disk, disks_below_the_file_of_a_loop_device)
{
	link_tree("/sys/dev/block/7:0", LOOP);
	link_tree("/sys/dev/block/8:1", SDA "/sda1");
	partition(BACK, "1");
	disk_device(LOOP, BACK, "0");
	write_tree(LOOP "/loop/backing_file", "/proc/self/maps\n");
	loop_on("xfs", "rw");
	expect_class(RP_CLASS_POWER, NULL);
	partition(THRU, "1");
	expect_class(RP_CLASS_PROCESS, "sda has a volatile cache");
	partition(BACK, "1");
	loop_on("tmpfs", "rw");
	expect_class(RP_CLASS_PROCESS, "loop0 is on no disk that is flushed");
	loop_on("ext4", "rw,nobarrier");
	expect_class(RP_CLASS_PROCESS, "loop0 is on no disk that is flushed");
}

/*
 * The backing file of a loop device lies on that same loop device: no disk is
 * found, so no flush is believed.
 */
Test(caps_disk, walk_of_a_loop_device_on_itself_ends)
{
	invent_on(7, 0, "ext4", "/dev/loop0", "rw");
	link_tree("/sys/dev/block/7:0", LOOP);
	disk_device(LOOP, BACK, "0");
	write_tree(LOOP "/loop/backing_file", "%s\n", real_path);
	expect_class(RP_CLASS_PROCESS, "loop0 is on no disk that is flushed");
}

Test(caps_disk, memory_is_no_disk)
{
	static const struct {
		const char *name;
		bool lost;
	} t[] = {{"zram0", true}, {"ram15", true}, {"sram", false}};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		char folder[PATH_MAX], link[64];

		sprintf(folder, "/sys/devices/virtual/block/%s", t[i].name);
		sprintf(link, "/sys/dev/block/1:%zu", i);
		invent_on(1, i, "ext4", "/dev/x", "rw");
		disk_device(folder, THRU, "0");
		link_tree(link, folder);
		expect_class(t[i].lost ? RP_CLASS_PROCESS : RP_CLASS_POWER,
			     t[i].lost ? "it is in memory" : NULL);
	}
}

/* A DIMM that is not armed loses what a disk of it has, below dm too. */
Test(caps_disk, disk_on_a_dimm_that_is_not_armed)
{
	static const char pmem[] =
		"/sys/devices/ndbus0/region0/namespace0.0/block/pmem0";

	nd_region("region0", "memory_controller");
	write_tree("/sys/devices/ndbus0/region0/mapping0", "nmem7,0,4096,0\n");
	write_tree("/sys/devices/ndbus0/nmem7/nfit/flags", "smart_notify\n");
	invent_on(253, 0, "ext4", "/dev/mapper/vg-lv", "rw");
	link_tree("/sys/dev/block/253:0", DM);
	link_tree(DM "/slaves/pmem0", pmem);
	expect_class(RP_CLASS_POWER, NULL);
	write_tree("/sys/devices/ndbus0/nmem7/nfit/flags", "not_armed\n");
	expect_class(RP_CLASS_PROCESS, "pmem0: nmem7 is not armed");
	invent_on(259, 0, "ext4", "/dev/pmem0", "rw");
	link_tree("/sys/dev/block/259:0", pmem);
	expect_class(RP_CLASS_PROCESS, "pmem0: nmem7 is not armed");
	nd_region("region0", NULL);
	write_tree("/sys/devices/ndbus0/nmem7/nfit/flags", "\n");
	expect_class(RP_CLASS_POWER, NULL);
}

/* btrfs has its own device number; the class depends on all its devices. */
Test(caps_disk, btrfs_names_its_devices)
{
	char source[2 * PATH_MAX];

	disk_device(SDB, BACK, "1");
	disk_device(DM, BACK, "1");
	link_tree("/sys/fs/btrfs/1234/devices/dm-0", DM);
	link_tree("/sys/fs/btrfs/1234/devices/sdb", SDB);
	disk_device(SDA, THRU, "1");
	link_tree("/sys/fs/btrfs/5678/devices/sda", SDA);
	invent_on(0, 99, "btrfs", "/dev/dm-0", "rw,subvol=/");
	expect_class(RP_CLASS_POWER, NULL);
	disk_device(SDB, THRU, "1");
	expect_class(RP_CLASS_PROCESS, "sdb has a volatile cache");
	/* The name of a device mapper device is a link. */
	disk_device(SDB, BACK, "1");
	disk_device(DM, THRU, "1");
	write_tree("/dev/dm-0", "\n");
	link_tree("/dev/mapper/lv", "/dev/dm-0");
	snprintf(source, sizeof(source), "%.3900s/dev/mapper/lv", dir);
	invent_on(0, 99, "btrfs", source, "rw");
	expect_class(RP_CLASS_PROCESS, "dm-0 has a volatile cache");
	invent_on(0, 99, "btrfs", "/dev/unknown", "rw");
	expect_class(RP_CLASS_POWER, NULL);
}

/* The operator's statement covers the disks: a cache with a battery. */
Test(caps_disk, operator_may_vouch)
{
	char path[2 * PATH_MAX], text[RP_WHY_LEN];
	struct rp_operator *op;

	link_tree("/sys/dev/block/8:1", SDA "/sda1");
	partition(THRU, "1");
	cfg.trust_fs = "xfs";
	expect_class(RP_CLASS_PROCESS, "sda has");
	cfg.trust_fs = "xfs,ext4";
	expect_class(RP_CLASS_POWER, NULL);
	cfg.trust_fs = NULL;
	write_tree("/op", "[path %s]\nassert filesystem = trusted\n", dir);
	sprintf(path, "%s/op", dir);
	chmod(path, 0600);
	cr_assert_eq(rp_operator_load(path, &op, text), 0, "%s", text);
	cfg.op = op;
	cr_assert_eq(read_facts(HERE, LEN), 0);
	cr_assert_eq(rp_method_best(&facts, RP_METHODS_BUILT).class,
		     RP_CLASS_POWER);
	rp_operator_free(op);
	write_tree("/op", "[host]\nassert filesystem = trusted\n"
			  "limit class = none\n");
	cr_assert_eq(rp_operator_load(path, &op, text), 0, "%s", text);
	cfg.op = op;
	cr_assert_eq(read_facts(HERE, LEN), 0);
	cr_assert_eq(facts.limit, RP_LIMIT_NONE);
	rp_operator_free(op);
	write_tree("/op", "[host]\nassert filesystem = untrusted\n");
	cr_assert_eq(rp_operator_load(path, &op, text), 0, "%s", text);
	cfg.op = op;
	cr_assert_eq(read_facts(HERE, LEN), 0);
	cr_assert_eq(facts.limit, RP_LIMIT_PROCESS);
	rp_operator_free(op);
	write_tree("/op", "[host]\nassert fence = yes\n");
	cr_assert_eq(rp_operator_load(path, &op, text), 0, "%s", text);
	cfg.op = op;
	expect_class(RP_CLASS_PROCESS, "sda has");
	rp_operator_free(op);
	cfg.op = NULL;
}

/* A flush by clwb needs no flush of the disk; msync needs one. */
Test(caps_disk, dax_is_weaker_only_where_msync_is_the_method)
{
	link_tree("/sys/dev/block/8:1", SDA "/sda1");
	partition(THRU, "1");
	claim_dax = true;
	write_tree("/proc/self/smaps", " ");
	expect_found(HERE, LEN, RP_MEM_DAX);
	cr_assert_eq(facts.limit, RP_LIMIT_PROCESS);
	write_tree("/proc/self/smaps",
		   "00100000-00102000 rw-s 0 08:01 5 /x\nVmFlags: rd wr sf\n");
	expect_found(HERE, LEN, RP_MEM_DAX_SYNC);
	cr_assert_eq(facts.limit, RP_LIMIT_POWER);
}

static char seen[256];

static void record_disk(struct rp_disk_walk *w, const char *folder,
			const char *flaw)
{
	strcat(seen, strrchr(folder, '/') + 1);
	strcat(seen, *flaw ? "! " : " ");
}

/* Write a mount table with an overlay whose upper folder is on this mount. */
static void overlay_over(const char *mount)
{
	struct statx sx;

	cr_assert_eq(statx(AT_FDCWD, "/proc/self", 0, STATX_MNT_ID, &sx), 0);
	write_tree("/proc/self/mountinfo",
		   "%llu 1 0:50 / / rw - overlay overlay "
		   "rw,lowerdir=/a:/b,upperdir=/proc/self,workdir=/c\n"
		   "%llu 1 %s\n",
		   (unsigned long long)real_statx.stx_mnt_id,
		   (unsigned long long)sx.stx_mnt_id, mount);
}

Test(caps_disk, disks_come_before_what_is_made_of_them)
{
	struct rp_disk_walk w = {.root = dir, .fn = record_disk};

	invent_on(9, 0, "ext4", "/dev/md0", "rw");
	link_tree("/sys/dev/block/9:0", MD);
	link_tree(MD "/slaves/dm-0", DM);
	link_tree(DM "/slaves/sda1", SDA "/sda1");
	link_tree(DM "/slaves/sdb", SDB);
	partition(THRU, "1");
	disk_device(SDB, BACK, "1");
	disk_device(DM, BACK, "1");
	disk_device(MD, BACK, "1");
	cr_assert(rp_caps_walk_disks(&w, real_path));
	cr_assert_str_eq(seen, "sda! sdb dm-0 md0 ");
	cr_assert(strstr(w.flaw, "sda"));
	/*
	 * An overlay writes to its upper folder, so the upper folder's disks
	 * count.
	 */
	*seen = 0;
	write_tree("/proc/self/mountinfo",
		   "%llu 1 0:50 / / rw - overlay overlay "
		   "rw,lowerdir=/a:/b,upperdir=/proc/self,workdir=/c\n",
		   (unsigned long long)real_statx.stx_mnt_id);
	cr_assert(rp_caps_walk_disks(&w, real_path));
	cr_assert_str_eq(seen, "");
	overlay_over("9:0 / /p rw - ext4 /dev/md0 rw");
	cr_assert(rp_caps_walk_disks(&w, real_path));
	cr_assert_str_eq(seen, "sda! sdb dm-0 md0 ");
	overlay_over("0:51 / /p rw - tmpfs t rw");
	cr_assert_not(rp_caps_walk_disks(&w, real_path));
	/*
	 * An overlay whose upper folder is itself ends the recursion: no disk
	 * is found, so no flush is believed.
	 */
	write_tree("/proc/self/mountinfo",
		   "%llu 1 0:50 / / rw - overlay overlay rw,upperdir=%s\n",
		   (unsigned long long)real_statx.stx_mnt_id, real_path);
	cr_assert_not(rp_caps_walk_disks(&w, real_path));
	write_tree("/proc/self/mountinfo", "%llu 1 0:50 / / rw - tmpfs t rw\n",
		   (unsigned long long)real_statx.stx_mnt_id);
	cr_assert_not(rp_caps_walk_disks(&w, real_path));
	cr_assert(rp_caps_walk_disks(&w, "/no/such/file"));
}
