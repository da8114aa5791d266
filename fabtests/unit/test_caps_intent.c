// SPDX-License-Identifier: BSD-2-Clause
/*
 * Whether memory registered without FI_RMA_PMEM is meant to last, by invented
 * maps.
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <criterion/criterion.h>

#include "caps_rig.h"

TestSuite(caps_intent, .init = caps_setup, .fini = caps_teardown);

static enum rp_intent query_lasts(uintptr_t addr, size_t len)
{
	enum rp_intent lasts = 77;
	int ret = rp_caps_intent(&cfg, (void *)addr, len, &lasts, why);

	cr_assert_eq(ret, 0, "%s", why);
	return lasts;
}

/*
 * Write a process map from address 0x100000 on. IT in a line stands for the
 * pool's file, on this type of mount.
 */
static void map_page(const char *type, const char *lines)
{
	static char text[16 * PATH_MAX], id[3 * PATH_MAX];
	const char *it;

	*text = 0;

	invent_file(type, "rw");
	sprintf(id, "%02x:%02x %llu %s", real_statx.stx_dev_major,
		real_statx.stx_dev_minor,
		(unsigned long long)real_statx.stx_ino, real_path);
	while ((it = strstr(lines, "IT"))) {
		strncat(text, lines, (size_t)(it - lines));
		strcat(text, id);
		lines = it + 2;
	}
	strcat(text, lines);
	write_tree("/proc/self/maps", "%s", text);
}

#define ANON	"00100000-00101000 rw-p 00000000 00:00 0\n"
#define FILE_RW "00101000-00102000 rw-s 00000000 IT\n"
#define FILE_RO "00102000-00103000 r--s 00000000 IT\n"
#define FILE_P	"00103000-00104000 rw-p 00000000 IT\n"
#define HEAP	"00105000-00106000 rw-p 00000000 00:00 0  [heap]\n"
#define GONE	"00106000-00107000 rw-s 00000000 00:01 99 /dev/zero (deleted)\n"
#define DEVICE	"00107000-00108000 rw-s 00000000 00:01 98 anon_inode:[x]\n"
#define ALL	ANON FILE_RW FILE_RO FILE_P HEAP GONE DEVICE

Test(caps_intent, each_kind)
{
	map_page("ext4", ALL);
	cr_assert_eq(query_lasts(0x100000, 0x1000), RP_INTENT_VOLATILE);
	cr_assert_eq(query_lasts(0x101000, 0x1000), RP_INTENT_LASTING);
	cr_assert_eq(query_lasts(0x101ff8, 8), RP_INTENT_LASTING);
	cr_assert_eq(query_lasts(0x102000, 0x1000), RP_INTENT_VOLATILE);
	cr_assert_eq(query_lasts(0x103000, 0x1000), RP_INTENT_VOLATILE);
	cr_assert_eq(query_lasts(0x105000, 0x1000), RP_INTENT_VOLATILE);
	cr_assert_eq(query_lasts(0x106000, 0x1000), RP_INTENT_VOLATILE);
	cr_assert_eq(query_lasts(0x107000, 0x1000), RP_INTENT_LASTING);
	/* Addresses without a mapping. */
	cr_assert_eq(query_lasts(0x104000, 0x1000), RP_INTENT_VOLATILE);
	cr_assert_eq(query_lasts(0x200000, 0x1000), RP_INTENT_VOLATILE);
}

/*
 * One page of a file within the range is enough; pages beside the range do not
 * count.
 */
Test(caps_intent, one_page_of_a_file_is_enough)
{
	map_page("ext4", ALL);
	cr_assert_eq(query_lasts(0x100000, 0x1001), RP_INTENT_LASTING);
	cr_assert_eq(query_lasts(0x100000, 0x3000), RP_INTENT_LASTING);
	cr_assert_eq(query_lasts(0x101fff, 0x1000), RP_INTENT_LASTING);
	cr_assert_eq(query_lasts(0x102000, 0x5000), RP_INTENT_VOLATILE);
	cr_assert_eq(query_lasts(0x102000, 0x5001), RP_INTENT_LASTING);
	cr_assert_eq(query_lasts(0x0ff000, 0x2001), RP_INTENT_LASTING);
}

/* A file on an untrusted file system is still a file. */
Test(caps_intent, file_on_any_file_system)
{
	static const char *types[] = {"xfs", "overlay", "nfs4", "fuse"};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		map_page(types[i], FILE_RW);
		cr_assert_eq(query_lasts(0x101000, 8), RP_INTENT_LASTING, "%s",
			     types[i]);
	}
	map_page("tmpfs", ALL);
	cr_assert_eq(query_lasts(0x101000, 8), RP_INTENT_UNCLEAR);
	cr_assert_eq(query_lasts(0x100000, 0x2000), RP_INTENT_UNCLEAR);
	cr_assert_eq(query_lasts(0x101000, 0x6001), RP_INTENT_LASTING);
	cfg.emulate = true;
	cr_assert_eq(query_lasts(0x100000, 8), RP_INTENT_UNCLEAR);
	map_page("ext4", ALL);
	cr_assert_eq(query_lasts(0x105000, 8), RP_INTENT_UNCLEAR);
	cr_assert_eq(query_lasts(0x103000, 8), RP_INTENT_VOLATILE);
	cr_assert_eq(query_lasts(0x101000, 8), RP_INTENT_LASTING);
}

Test(caps_intent, unreadable_map_is_an_error)
{
	enum rp_intent lasts = 77;

	map_page("ext4", "no line of a map\n");
	cr_assert_eq(rp_caps_intent(&cfg, HERE, LEN, &lasts, why), -EPROTO);
	cr_assert(strstr(why, "make sense"), "%s", why);
	cr_assert_eq(rp_caps_intent(&cfg, HERE, 0, &lasts, why), -EINVAL);
	cr_assert(strstr(why, "empty"), "%s", why);
	cr_assert_eq(rp_caps_intent(&cfg, HERE, SIZE_MAX, &lasts, why),
		     -EINVAL);
	cfg.root = "/nowhere";
	cr_assert_eq(rp_caps_intent(&cfg, HERE, LEN, &lasts, why), -ENOENT);
	cr_assert(strstr(why, "cannot read"), "%s", why);
	cr_assert_eq(lasts, 77, "it was set by a failed call");
}

/* Maps that cannot be read to their end do not make the memory ordinary. */
Test(caps_intent, broken_maps_are_an_error)
{
	enum rp_intent lasts = 77;

	cfg.root = dir;
	write_tree("/proc/self/maps/folder", "\n");
	cr_assert_eq(rp_caps_intent(&cfg, HERE, LEN, &lasts, why), -EIO);
	cr_assert(strstr(why, "cannot read"), "%s", why);
	cr_assert_eq(lasts, 77, "it was set by a failed call");
}

/* The table of docs/guarantees.md, "Programs that do not ask". */
Test(caps_intent, verdicts)
{
	for (int fit = 0; fit < 2; fit++)
		for (int reached = 0; reached <= RP_CLASS_POWER; reached++)
			for (int req = 0; req <= RP_CLASS_POWER; req++) {
				bool may = fit && reached >= req;

				cr_assert_eq(
					rp_caps_implicit(RP_INTENT_VOLATILE,
							 fit, reached, req),
					RP_IMPLICIT_ORDINARY);
				cr_assert_eq(rp_caps_implicit(RP_INTENT_UNCLEAR,
							      fit, reached,
							      req),
					     may ? RP_IMPLICIT_PERSISTENT
						 : RP_IMPLICIT_ORDINARY);
				cr_assert_eq(rp_caps_implicit(RP_INTENT_LASTING,
							      fit, reached,
							      req),
					     may ? RP_IMPLICIT_PERSISTENT
						 : RP_IMPLICIT_REFUSED);
			}
}
