// SPDX-License-Identifier: BSD-2-Clause
/* The doctor's lines about disks, on invented sysfs trees. */
#include "config.h"

#include <string.h>

#include <criterion/criterion.h>

#include "caps_rig.h"
#include "util/info.h"

#define SDA  "/sys/devices/pci0000:00/host0/block/sda"
#define BACK "write back"
#define THRU "write through"

static json_t *checks;

static void setup(void)
{
	caps_setup();
	invent_on(8, 1, "ext4", "/dev/sda1", "rw");
	link_tree("/sys/dev/block/8:1", SDA "/sda1");
	write_tree(SDA "/sda1/partition", "1\n");
}

static void teardown(void)
{
	json_decref(checks);
	caps_teardown();
}

TestSuite(doctor_disk, .init = setup, .fini = teardown);

/* Repeat the checks; they must report this many lines. */
static void look_at(size_t lines)
{
	json_decref(checks);
	checks = doctor_disks(dir, real_path);
	cr_assert_eq(json_array_size(checks), lines, "%zu",
		     json_array_size(checks));
}

/* Line i must be of this check, with this status and text in a member. */
static void expect(size_t i, const char *check, int status, const char *member,
		   const char *text)
{
	json_t *c = json_array_get(checks, i);
	const char *found = json_string_value(json_object_get(c, member));

	cr_assert_str_eq(json_string_value(json_object_get(c, "check")), check);
	cr_assert_eq(json_integer_value(json_object_get(c, "status")), status);
	cr_assert(found && strstr(found, text), "'%s' has no '%s'", found,
		  text);
	cr_assert(status != DOCTOR_OK || !json_object_get(c, "remedy"));
}

Test(doctor_disk, each_line_of_sysfs_is_shown)
{
	disk_device(SDA, BACK, "1");
	write_tree(SDA "/device/scsi_disk/0:0:0:0/cache_type", BACK "\n");
	write_tree(SDA "/device/model", "DISK 9000\n");
	look_at(2);
	expect(0, "disk", DOCTOR_OK, "found",
	       "/sys/block/sda, queue/write_cache: write back, queue/fua: 1, "
	       "device/scsi_disk/*/cache_type: write back, "
	       "device/model: DISK 9000");
	expect(1, "msync", DOCTOR_OK, "found", "ends with a flush of sda");
	cr_assert_null(strstr(json_string_value(json_object_get(
				      json_array_get(checks, 1), "found")),
			      "host"));
}

Test(doctor_disk, operator_switched_flushes_off)
{
	disk_device(SDA, THRU, "1");
	look_at(2);
	expect(0, "disk", DOCTOR_WARN, "found", "queue/write_cache: write thr");
	expect(1, "msync", DOCTOR_WARN, "found",
	       "a power cut loses what it wrote: sda has a volatile cache");
	expect(1, "msync", DOCTOR_WARN, "remedy",
	       "echo \"write back\" > /sys/block/sda/queue/write_cache");
	disk_device(SDA, THRU, "0");
	look_at(2);
	expect(1, "msync", DOCTOR_OK, "found",
	       "sends no flush to a disk without a volatile cache, as its "
	       "driver reports of sda");
}

Test(doctor_disk, what_only_others_know)
{
	disk_device(SDA, BACK, "0");
	write_tree(SDA "/device/model", "QEMU HARDDISK\n");
	look_at(2);
	expect(1, "msync", DOCTOR_OK, "found", "host alone knows");
	invent_on(254, 0, "ext4", "/dev/root", "rw");
	disk_device("/sys/devices/virtio1/block/vda", BACK, "0");
	link_tree("/sys/dev/block/254:0", "/sys/devices/virtio1/block/vda");
	look_at(2);
	expect(1, "msync", DOCTOR_OK, "found", "cache=unsafe");
	invent_on(43, 0, "ext4", "/dev/nbd0", "rw");
	disk_device("/sys/devices/virtual/block/nbd0", BACK, "1");
	link_tree("/sys/dev/block/43:0", "/sys/devices/virtual/block/nbd0");
	look_at(2);
	expect(1, "msync", DOCTOR_OK, "found", "server, which alone knows");
	/* In a container no disk is seen; old kernels lack the attribute. */
	invent_on(8, 17, "ext4", "/dev/sdb1", "rw");
	look_at(1);
	expect(0, "msync", DOCTOR_OK, "found", "no disk can be seen");
	disk_device("/sys/devices/x/sdb", NULL, NULL);
	link_tree("/sys/dev/block/8:17", "/sys/devices/x/sdb");
	look_at(2);
	expect(1, "msync", DOCTOR_OK, "found", "nothing tells of the cache of");
}

Test(doctor_disk, a_stack_is_shown_from_the_disks_up)
{
	invent_on(253, 0, "xfs", "/dev/mapper/lv", "rw");
	link_tree("/sys/dev/block/253:0", "/sys/devices/virtual/block/dm-0");
	link_tree("/sys/devices/virtual/block/dm-0/slaves/sda1", SDA "/sda1");
	write_tree("/sys/devices/virtual/block/dm-0/dm/name", "vg-lv\n");
	disk_device("/sys/devices/virtual/block/dm-0", BACK, "1");
	disk_device(SDA, BACK, "1");
	look_at(3);
	expect(0, "disk", DOCTOR_OK, "found", "/sys/block/sda");
	expect(1, "disk", DOCTOR_OK, "found", "dm/name: vg-lv");
	/* Only the lowest disks of a stack decide. */
	expect(2, "msync", DOCTOR_OK, "found", "ends with a flush of sda");
	cr_assert_null(strstr(json_string_value(json_object_get(
				      json_array_get(checks, 2), "found")),
			      "dm-0"));
	invent_on(7, 0, "ext4", "/dev/loop0", "rw");
	link_tree("/sys/dev/block/7:0", "/sys/devices/virtual/block/loop0");
	disk_device("/sys/devices/virtual/block/loop0", BACK, "0");
	write_tree("/sys/devices/virtual/block/loop0/loop/backing_file",
		   "/no/such/file\n");
	look_at(2);
	expect(0, "disk", DOCTOR_OK, "found",
	       "loop/backing_file: /no/such/file");
	expect(1, "msync", DOCTOR_OK, "found", "no disk can be seen");
}

/* The disk has all that it needs, but the mount sends it no flush. */
Test(doctor_disk, mount_that_flushes_nothing)
{
	static const char *const opts[] = {"rw,nobarrier", "ro"};

	disk_device(SDA, BACK, "1");
	for (size_t i = 0; i < sizeof(opts) / sizeof(opts[0]); i++) {
		invent_on(8, 1, "ext4", "/dev/sda1", opts[i]);
		look_at(2);
		expect(0, "disk", DOCTOR_OK, "found", "sda");
		expect(1, "msync", DOCTOR_WARN, "found",
		       "loses what it wrote: the file system sends no flush");
		expect(1, "msync", DOCTOR_WARN, "remedy", "with barriers");
	}
}

/* A DIMM of the nd region reports a loss and an event: one warning for each. */
Test(doctor_disk, dimm_reports_a_loss_and_a_health_event)
{
	invent_on(259, 0, "ext4", "/dev/pmem0", "rw");
	nd_region("region0", "memory_controller");
	link_tree("/sys/dev/block/259:0",
		  "/sys/devices/ndbus0/region0/namespace0.0/block/pmem0");
	write_tree("/sys/devices/ndbus0/region0/mapping0", "nmem7,0,4096,0\n");
	write_tree("/sys/devices/ndbus0/nmem7/nfit/flags", "smart_notify\n");
	look_at(2);
	write_tree("/sys/devices/ndbus0/nmem7/nfit/flags",
		   "flush_fail smart_event smart_notify\n");
	look_at(4);
	expect(2, "dimm", DOCTOR_WARN, "found", "nmem7: flush_fail: it lost");
	expect(2, "dimm", DOCTOR_WARN, "remedy", "from a copy");
	expect(3, "dimm", DOCTOR_WARN, "found", "nmem7 reports a health event");
	expect(3, "dimm", DOCTOR_WARN, "remedy", "ndctl list");
}

/* A RAM disk stays volatile, whatever is configured. */
Test(doctor_disk, memory_gets_another_remedy)
{
	invent_on(1, 0, "ext4", "/dev/ram0", "rw");
	disk_device("/sys/devices/virtual/block/ram0", THRU, "0");
	link_tree("/sys/dev/block/1:0", "/sys/devices/virtual/block/ram0");
	look_at(2);
	expect(1, "msync", DOCTOR_WARN, "remedy", "put the file on a disk");
	/* The class of tmpfs is known, so no check of disks is needed. */
	invent_file("tmpfs", "rw");
	look_at(0);
}
