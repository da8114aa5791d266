// SPDX-License-Identifier: BSD-2-Clause
/* Pools on memory that counts dirty shutdowns, by invented sysfs trees. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include <nettle/sha2.h>

#include "caps_rig.h"
#include "util/pool.h"

#define BUS    "/sys/devices/ndbus0"
#define REGION BUS "/region0"
#define PMEM   REGION "/namespace0.0/block/pmem0"

static char path[PATH_MAX], err[RP_ERR_LEN];
static struct rp_pool p;
static uint8_t uuid[16]; /* UUID from the last open */

/* Make a DIMM of the region; id NULL: its driver reports no ID. */
static void make_dimm(int n, const char *driver, const char *id,
		      unsigned int count)
{
	char name[128];

	sprintf(name, REGION "/mapping%d", n);
	write_tree(name, "nmem%d,0,4096,%d\n", n, n);
	sprintf(name, BUS "/nmem%d/%s/dirty_shutdown", n, driver);
	write_tree(name, "%u\n", count);
	sprintf(name, BUS "/nmem%d/%s/id", n, driver);
	if (id)
		write_tree(name, "%s\n", id);
}

/* Let the DIMM show these flags, in this boot of the machine. */
static void show_flags(int n, const char *driver, const char *flags, int boot)
{
	char name[128];

	sprintf(name, REGION "/mapping%d", n);
	write_tree(name, "nmem%d,0,4096,%d\n", n, n);
	sprintf(name, BUS "/nmem%d/%s/flags", n, driver);
	write_tree(name, "%s\n", flags);
	write_tree("/proc/sys/kernel/random/boot_id", "boot-%d\n", boot);
}

static void setup(void)
{
	caps_setup();
	invent_on(259, 0, "ext4", "/dev/pmem0", "rw");
	nd_region("region0", "memory_controller");
	write_tree(REGION "/deep_flush", "1\n");
	link_tree("/sys/dev/block/259:0", PMEM);
	setenv("RPMEM_FAULT", "invented-sys", 1);
	setenv("RPMEM_FAULT_SYS", dir, 1);
	snprintf(path, sizeof(path), "%.*s/vol", PATH_MAX - 8, dir);
	cr_assert_eq(rp_pool_create(path, 4096, err), 0, "%s", err);
}

TestSuite(dirty_shutdowns, .init = setup, .fini = caps_teardown, .timeout = 60);

static void open_pool(void)
{
	err[0] = 0;
	cr_assert_eq(rp_pool_open(path, &p, err), 0, "%s", err);
	memcpy(uuid, p.uuid, sizeof(uuid));
}

/* Open the pool, and stop as if by a kill or a power failure. */
static void use_pool(void)
{
	open_pool();
	memset(p.data, 0x5a, p.size);
	rp_pool_abandon(&p);
}

static void use_and_close_pool(void)
{
	open_pool();
	cr_assert_eq(rp_pool_close_clean(&p, err), 0, "%s", err);
}

/* The error, a single line, must name the DIMM and its counts. */
static void expect_refused(const char *what, const char *counts)
{
	char remedy[2 * PATH_MAX];

	snprintf(remedy, sizeof(remedy), "fi_rpmemd --accept-loss '%s'", path);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(rp_pool_open(path, &p, err), -ENOTRECOVERABLE,
			     "%s", err);
		cr_assert(strstr(err, what), "%s", err);
		cr_assert(strstr(err, counts), "%s", err);
		cr_assert(strstr(err, remedy), "%s", err);
		cr_assert(!strchr(err, '\n'));
	}
}

static void expect_accepted(void)
{
	uint8_t was[16];

	memcpy(was, uuid, sizeof(was));
	cr_assert_eq(rp_pool_accept_loss(path, err), 1, "%s", err);
	open_pool();
	cr_assert_not(p.was_clean);
	cr_assert_eq(((char *)p.data)[0], 0x5a);
	cr_assert_neq(memcmp(was, uuid, 16), 0, "clients miss the loss");
	rp_pool_abandon(&p);
}

Test(dirty_shutdowns, pool_in_use_at_a_dirty_shutdown_is_refused)
{
	make_dimm(0, "nfit", "cdab-0a-07e0-ffffffff", 5);
	use_pool();
	use_pool();
	make_dimm(0, "nfit", "cdab-0a-07e0-ffffffff", 6);
	expect_refused("shut down without saving",
		       "5 when it was opened, 6 now");
	expect_accepted();
	make_dimm(0, "nfit", "cdab-0a-07e0-ffffffff", 7);
	expect_refused("shut down without saving",
		       "6 when it was opened, 7 now");
}

Test(dirty_shutdowns, closed_pool_survives_a_dirty_shutdown)
{
	make_dimm(0, "nfit", "a", 5);
	use_and_close_pool();
	make_dimm(0, "nfit", "a", 6);
	use_and_close_pool();
	make_dimm(0, "nfit", "a", 7);
	use_pool();
	use_pool();
	make_dimm(0, "nfit", "a", 8);
	expect_refused("shut down", "7 when it was opened, 8 now");
}

/* A fence of the CPU does not reach the media: CXL, NVDIMM without hints. */
Test(dirty_shutdowns, closed_pool_without_a_flush_to_the_media_is_refused)
{
	write_tree(REGION "/deep_flush", "0\n");
	make_dimm(0, "cxl", "a", 5);
	use_and_close_pool();
	use_and_close_pool();
	make_dimm(0, "cxl", "a", 6);
	expect_refused("closed, but on memory without a flush to its media",
		       "5 when it was opened, 6 now");
	cr_assert_eq(rp_pool_accept_loss(path, err), 1, "%s", err);
	use_and_close_pool();
	/* A file that was copied to other memory has lost nothing there. */
	make_dimm(0, "cxl", "b", 9);
	use_and_close_pool();
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(rp_pool_create(path, 4096, err), 0, "%s", err);
	make_dimm(0, "cxl", "b", 10);
	use_and_close_pool();
}

/* Without the file nothing tells of a flush. */
Test(dirty_shutdowns, closed_pool_with_an_unknown_flush_is_refused)
{
	char name[2 * PATH_MAX];

	snprintf(name, sizeof(name), "%s" REGION "/deep_flush", dir);
	cr_assert_eq(unlink(name), 0);
	make_dimm(0, "nfit", "a", 5);
	use_and_close_pool();
	make_dimm(0, "nfit", "a", 6);
	expect_refused("without a flush", "5 when it was opened, 6 now");
}

/* Flags of the last loss of power count, on DIMMs that count nothing, too. */
Test(dirty_shutdowns, each_flag_of_a_loss_is_refused)
{
	static const char *const flags[] = {
		"save_fail smart_notify",
		"restore_fail ",
		"not_armed flush_fail",
		"map_fail",
	};

	for (int i = 0; i < 4; i++) {
		show_flags(0, i % 2 ? "papr" : "nfit", "", 1);
		use_pool();
		show_flags(0, i % 2 ? "papr" : "nfit", flags[i], 2 + i);
		expect_refused("shut down without saving all bytes",
			       "(flags of nmem0: ");
		expect_accepted();
		use_pool();
		use_and_close_pool();
	}
}

Test(dirty_shutdowns, accepted_flag_counts_again_after_the_next_boot)
{
	make_dimm(0, "nfit", "a", 5);
	show_flags(0, "nfit", "smart_event", 1);
	use_pool();
	show_flags(0, "nfit", "save_fail", 2);
	expect_refused("shut down", "(flags of nmem0: save_fail)");
	expect_accepted();
	use_pool();
	show_flags(0, "nfit", "save_fail", 3);
	expect_refused("shut down", "(flags of nmem0: save_fail)");
	show_flags(0, "nfit", "", 3);
	use_pool();
	use_and_close_pool();
	show_flags(0, "nfit", "save_fail", 4);
	use_and_close_pool();
}

/* The pool is refused after a dirty shutdown of any DIMM of the set. */
Test(dirty_shutdowns, each_dimm_counts)
{
	make_dimm(0, "cxl", "a", 1);
	make_dimm(1, "papr", NULL, 20);
	make_dimm(2, "nfit", "c", 300);
	use_pool();
	make_dimm(2, "nfit", "c", 301);
	expect_refused("shut down", "321 when it was opened, 322 now");
	make_dimm(2, "nfit", "c", 300);
	use_pool();
	make_dimm(1, "papr", NULL, 21);
	expect_refused("shut down", "321 when it was opened, 322 now");
}

/* Counts of other memory say nothing about the bytes of the pool. */
Test(dirty_shutdowns, pool_in_use_is_refused_on_other_memory)
{
	make_dimm(0, "nfit", "a", 5);
	use_and_close_pool();
	make_dimm(0, "nfit", "b", 5);
	use_pool();
	make_dimm(0, "nfit", "a", 5);
	expect_refused("moved to other memory", "5 when it was opened, 5 now");
	expect_accepted();
	invent_on(8, 0, "ext4", "/dev/sda", "rw");
	expect_refused("moved to other memory", "5 when it was opened, 0 now");
	expect_accepted();
}

Test(dirty_shutdowns, memory_without_a_count_changes_nothing)
{
	write_tree(REGION "/mapping0", "nmem0,0,4096,0\n");
	use_pool();
	open_pool();
	cr_assert_eq(p.shutdowns.dimms, 0);
	rp_pool_abandon(&p);
}

static void write_old_header(uint64_t generation)
{
	uint8_t buf[RP_POOL_HDR];
	struct sha256_ctx ctx;
	int fd = open(path, O_RDWR);

	cr_assert_eq(pread(fd, buf, sizeof(buf), RP_POOL_COPY(generation)),
		     (ssize_t)sizeof(buf));
	memset(buf + 80, 0, 16);
	sha256_init(&ctx);
	sha256_update(&ctx, RP_POOL_HDR - SHA256_DIGEST_SIZE, buf);
	sha256_digest(&ctx, SHA256_DIGEST_SIZE,
		      buf + RP_POOL_HDR - SHA256_DIGEST_SIZE);
	cr_assert_eq(pwrite(fd, buf, sizeof(buf), RP_POOL_COPY(generation)),
		     (ssize_t)sizeof(buf));
	close(fd);
}

/* A pool of an earlier release has no counts in its header, in use or not. */
Test(dirty_shutdowns,
     pool_of_an_earlier_release_is_served_and_watched_from_then_on)
{
	make_dimm(0, "nfit", "a", 5);
	use_pool();
	write_old_header(0);
	write_old_header(1);
	make_dimm(0, "nfit", "a", 6);
	use_pool();
	make_dimm(0, "nfit", "a", 7);
	expect_refused("shut down", "6 when it was opened, 7 now");
}

Test(dirty_shutdowns, device_above_persistent_memory_is_seen_through)
{
	make_dimm(0, "nfit", "a", 5);
	invent_on(253, 0, "ext4", "/dev/mapper/v", "rw");
	write_tree("/sys/devices/virtual/block/dm-0/size", "1\n");
	link_tree("/sys/dev/block/253:0", "/sys/devices/virtual/block/dm-0");
	link_tree("/sys/devices/virtual/block/dm-0/slaves/pmem0", PMEM);
	link_tree("/sys/devices/virtual/block/dm-0/slaves/pmem0s", PMEM);
	use_pool();
	make_dimm(0, "nfit", "a", 6);
	expect_refused("shut down", "5 when it was opened, 6 now");
}

Test(dirty_shutdowns, pool_without_a_loss_has_none_to_accept)
{
	uint8_t was[16];

	make_dimm(0, "nfit", "a", 5);
	use_and_close_pool();
	make_dimm(0, "nfit", "a", 6);
	cr_assert_eq(rp_pool_accept_loss(path, err), 0, "%s", err);
	/* The pool stays a clean one: the next count says nothing about it. */
	make_dimm(0, "nfit", "a", 7);
	open_pool();
	memcpy(was, uuid, sizeof(was));
	cr_assert_eq(rp_pool_accept_loss(path, err), -EBUSY);
	rp_pool_abandon(&p);
	cr_assert_eq(rp_pool_accept_loss(path, err), 0, "%s", err);
	open_pool();
	cr_assert_arr_eq(was, uuid, sizeof(uuid));
	rp_pool_abandon(&p);
}
