// SPDX-License-Identifier: BSD-2-Clause
/* Reports of the DIMMs below a file, by invented sysfs trees. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "caps_rig.h"
#include "util/dirty_shutdowns.h"

#define BUS    "/sys/devices/ndbus0"
#define REGION BUS "/region0"

static char err[RP_ERR_LEN];

static void setup(void)
{
	caps_setup();
	invent_on(259, 0, "ext4", "/dev/pmem0", "rw");
	nd_region("region0", "memory_controller");
	link_tree("/sys/dev/block/259:0", REGION "/namespace0.0/block/pmem0");
	write_tree(REGION "/deep_flush", "1\n");
	write_tree(REGION "/mapping0", "nmem0,0,4096,0\n");
	write_tree(REGION "/mapping1", "nmem1,0,4096,1\n");
}

TestSuite(dirty_shutdowns_find, .init = setup, .fini = caps_teardown,
	  .timeout = 60);

static struct rp_shutdowns find(void)
{
	struct rp_shutdowns s;

	cr_assert_eq(rp_shutdowns_find(dir, real_path, &s, err), 0, "%s", err);
	return s;
}

/* Both DIMMs show these flags, in this boot. */
static struct rp_shutdowns find_flags(const char *first, const char *second,
				      int boot)
{
	write_tree(BUS "/nmem0/nfit/flags", "%s\n", first);
	write_tree(BUS "/nmem1/papr/flags", "%s\n", second);
	write_tree("/proc/sys/kernel/random/boot_id", "boot-%d\n", boot);
	return find();
}

Test(dirty_shutdowns_find, each_flag_of_a_loss_is_found)
{
	static const char *const losses[] = {"save_fail", "restore_fail",
					     "flush_fail", "map_fail"};
	const struct rp_shutdowns none = find_flags("smart_notify", "", 1);
	char flags[64], name[64];

	cr_assert_eq(none.failures, 0);
	cr_assert_eq(none.failure[0], 0);
	for (int i = 0; i < 4; i++) {
		struct rp_shutdowns s;

		snprintf(flags, sizeof(flags), "not_armed %s smart_notify",
			 losses[i]);
		s = find_flags("", flags, 1);
		cr_assert_neq(s.failures, 0);
		snprintf(name, sizeof(name), "nmem1: %s", losses[i]);
		cr_assert_str_eq(s.failure, name);
		cr_assert(rp_shutdowns_lost(&none, &s, false));
		cr_assert_not(rp_shutdowns_lost(&s, &s, false));
		cr_assert_not(rp_shutdowns_lost(&s, &none, false));
		cr_assert_eq(rp_shutdowns_check("vol", &none, &s, false, err),
			     -ENOTRECOVERABLE);
		cr_assert(strstr(err, name), "%s", err);
	}
}

/* The same flags in the next boot are another loss; one more DIMM, too. */
Test(dirty_shutdowns_find, losses_of_each_dimm_and_boot_differ)
{
	const struct rp_shutdowns first = find_flags("save_fail", "", 1);
	const struct rp_shutdowns again = find_flags("save_fail", "", 1);
	const struct rp_shutdowns next = find_flags("save_fail", "", 2);
	const struct rp_shutdowns both =
		find_flags("save_fail", "save_fail", 1);

	cr_assert_eq(first.failures, again.failures);
	cr_assert_neq(first.failures, next.failures);
	cr_assert_neq(first.failures, both.failures);
	cr_assert(rp_shutdowns_lost(&first, &next, false));
	cr_assert(rp_shutdowns_lost(&first, &both, false));
}

Test(dirty_shutdowns_find, health_event_names_its_dimm)
{
	cr_assert_eq(find_flags("smart_notify", "", 1).event[0], 0);
	cr_assert_str_eq(find_flags("", "smart_event", 1).event, "nmem1");
	cr_assert_eq(find_flags("", "smart_event", 1).failures, 0);
}

/* A closed pool was saved only where a flush reaches the media. */
Test(dirty_shutdowns_find, closed_pool_is_safe_behind_a_flush_of_the_media)
{
	struct rp_shutdowns was, now;

	write_tree(BUS "/nmem0/nfit/dirty_shutdown", "5\n");
	was = find_flags("", "", 1);
	cr_assert_not(was.unflushed);
	write_tree(BUS "/nmem0/nfit/dirty_shutdown", "6\n");
	now = find();
	cr_assert(rp_shutdowns_lost(&was, &now, false));
	cr_assert_not(rp_shutdowns_lost(&was, &now, true));
	write_tree(REGION "/deep_flush", "0\n");
	now = find();
	cr_assert(now.unflushed);
	cr_assert(rp_shutdowns_lost(&was, &now, true));
	/* A new pool, and one on other memory, have lost nothing here. */
	was.dimms++;
	cr_assert_not(rp_shutdowns_lost(&was, &now, true));
	was.dimms = was.count = 0;
	cr_assert_not(rp_shutdowns_lost(&was, &now, true));
}
