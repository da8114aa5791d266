// SPDX-License-Identifier: BSD-2-Clause
/* Facts of memory, from invented /proc and /sys trees of other machines. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "caps_rig.h"
#include "core/method.h"
#include "util/host_facts.h"

TestSuite(caps_invented, .init = caps_setup, .fini = caps_teardown);

Test(caps_invented, file_systems)
{
	static const struct {
		const char *type, *opts, *trust;
		enum rp_tri trusted;
	} t[] = {
		{"ext4", "rw", NULL, RP_YES},
		{"ext3", "rw,errors=remount-ro", NULL, RP_YES},
		{"xfs", "rw,attr2", NULL, RP_YES},
		{"btrfs", "rw,subvol=/", NULL, RP_YES},
		{"f2fs", "rw,fsync_mode=posix", NULL, RP_YES},
		{"overlay", "rw,lowerdir=/a", NULL, RP_NO},
		{"fuse", "rw", NULL, RP_NO},
		{"fuse.sshfs", "rw", NULL, RP_NO},
		{"fuseblk", "rw", NULL, RP_NO},
		{"nfs4", "rw,vers=4.2", NULL, RP_NO},
		{"9p", "rw", NULL, RP_NO},
		{"ext44", "rw", NULL, RP_NO},
		{"ext", "rw", NULL, RP_NO},
		{"zfs", "rw", NULL, RP_NO},
		/* Without barriers fsync does not flush the disk's cache. */
		{"ext4", "rw,nobarrier", NULL, RP_NO},
		{"ext4", "rw,barrier=0", NULL, RP_NO},
		{"f2fs", "rw,fsync_mode=nobarrier", NULL, RP_NO},
		{"ext4", "rw,barrier=1,x-nobarrier", NULL, RP_YES},
		/* The kernel has made the file system read-only. */
		{"ext4", "ro", NULL, RP_NO},
		{"xfs", "ro,attr2", NULL, RP_NO},
		{"ext4", "rw,errors=ro", NULL, RP_YES},
		/* After a power cut the file system is as it was mounted. */
		{"f2fs", "rw,checkpoint=disable:0,fsync_mode=posix", NULL,
		 RP_NO},
		{"f2fs", "rw,checkpoint_merge", NULL, RP_YES},
		/* Only the device of the mount is examined. */
		{"xfs", "rw,logdev=/dev/sdb1", NULL, RP_NO},
		{"xfs", "rw,rtdev=/dev/sdb2,noquota", NULL, RP_NO},
		{"xfs", "rw,logbufs=8,logbsize=32k", NULL, RP_YES},
		/* The operator trusts the file system overlay. */
		{"overlay", "rw", "overlay", RP_YES},
		{"overlay", "rw", "nfs4, overlay", RP_YES},
		{"overlay", "rw", "nfs4,overlay,zfs", RP_YES},
		{"overlay", "rw", "over,overlayfs", RP_NO},
		{"overlay", "rw", "", RP_NO},
		{"ext4", "rw,nobarrier", "ext4", RP_YES},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		invent_file(t[i].type, t[i].opts);
		cfg.trust_fs = t[i].trust;
		expect_found(HERE, LEN, RP_MEM_FILE);
		cr_assert_str_eq(facts.fs_name, t[i].type);
		cr_assert_eq(facts.fs_trusted, t[i].trusted, "%s %s %s: %s",
			     t[i].type, t[i].opts, t[i].trust, why);
		cr_assert(facts.fs_trusted == RP_YES ||
				  strstr(why, "FI_OFI_RPMEM_TRUST_FS"),
			  "%s", why);
		cr_assert_eq(rp_method_best(&facts, RP_METHODS_BUILT).refusal,
			     t[i].trusted == RP_YES ? RP_REFUSAL_NONE
						    : RP_REFUSAL_FS);
	}
	cfg.trust_fs = NULL;
	invent_file("tmpfs", "rw");
	expect_found(HERE, LEN, RP_MEM_TMPFS);
	invent_file("hugetlbfs", "rw");
	expect_found(HERE, LEN, RP_MEM_TMPFS);
}

/* In a plain chroot, mountinfo lacks the mount of the root. */
Test(caps_invented, a_mount_that_cannot_be_seen)
{
	invent_file("ext4", "rw");
	write_tree("/proc/self/mountinfo", "1 0 0:1 / / rw - proc proc rw\n");
	expect_found(HERE, LEN, file_here());
	cr_assert_neq(facts.fs_trusted, RP_YES);
	if (file_here() == RP_MEM_FILE && facts.fs_name[0]) {
		char trusted[32];

		strcpy(trusted, facts.fs_name);
		cfg.trust_fs = trusted;
		expect_found(HERE, LEN, RP_MEM_FILE);
		cr_assert_eq(facts.fs_trusted, RP_YES);
	}
}

Test(caps_invented, not_the_mapped_file)
{
	invent_file("ext4", "rw");
	write_tree("/proc/self/maps",
		   "00100000-00102000 rw-s 0 %02x:%02x %llu %s\n",
		   real_statx.stx_dev_major, real_statx.stx_dev_minor,
		   (unsigned long long)real_statx.stx_ino + 1, real_path);
	expect_found(HERE, LEN, RP_MEM_UNKNOWN);
	write_tree("/proc/self/maps",
		   "00100000-00102000 rw-s 0 %02x:%02x %llu %s\n",
		   real_statx.stx_dev_major, real_statx.stx_dev_minor + 1,
		   (unsigned long long)real_statx.stx_ino, real_path);
	expect_found(HERE, LEN, RP_MEM_UNKNOWN);
	write_tree("/proc/self/maps",
		   "00100000-00102000 rw-s 0 %02x:%02x %llu %s\n",
		   real_statx.stx_dev_major + 1, real_statx.stx_dev_minor,
		   (unsigned long long)real_statx.stx_ino, real_path);
	expect_found(HERE, LEN, RP_MEM_UNKNOWN);
	cr_assert_eq(rp_method_best(&facts, RP_METHODS_BUILT).refusal,
		     RP_REFUSAL_UNKNOWN);
	/*
	 * The device number of the mount counts, not that of stat(), which
	 * differs for each btrfs subvolume.
	 */
	write_tree("/proc/self/maps",
		   "00100000-00102000 rw-s 0 77:88 %llu %s\n",
		   (unsigned long long)real_statx.stx_ino, real_path);
	write_tree("/proc/self/mountinfo",
		   "%llu 1 119:136 / / rw - btrfs d rw\n",
		   (unsigned long long)real_statx.stx_mnt_id);
	expect_found(HERE, LEN, RP_MEM_FILE);
	cr_assert_eq(facts.fs_trusted, RP_YES);
	/*
	 * Some kernels show the inode below an overlay. Then the name
	 * identifies the file, unless it may be the name of a deleted file.
	 */
	invent_file("overlay", "rw");
	cfg.trust_fs = "overlay";
	write_tree("/proc/self/maps",
		   "00100000-00102000 rw-s 0 77:88 4711 %s\n", real_path);
	expect_found(HERE, LEN, RP_MEM_FILE);
	cr_assert_eq(facts.fs_trusted, RP_YES);
	close(make_file("pool (deleted)", LEN));
	write_tree("/proc/self/maps",
		   "00100000-00102000 rw-s 0 77:88 4711 %s (deleted)\n",
		   real_path);
	expect_found(HERE, LEN, RP_MEM_ANON);
	cfg.trust_fs = NULL;
	/* A path that does not exist, and one that is not a file. */
	write_tree("/proc/self/maps",
		   "00100000-00102000 rw-s 0 08:01 5 /no/such\n");
	expect_found(HERE, LEN, RP_MEM_UNKNOWN);
	write_tree("/proc/self/maps", "00100000-00102000 rw-s 0 00:0e 5 "
				      "anon_inode:[io_uring]\n");
	expect_found(HERE, LEN, RP_MEM_UNKNOWN);
	write_tree(
		"/proc/self/maps",
		"00100000-00102000 rw-s 0 00:0e 5 /anon_hugepage (deleted)\n");
	expect_found(HERE, LEN, RP_MEM_ANON);
}

static void make_smaps(const char *first, const char *second)
{
	write_tree("/proc/self/smaps",
		   "000ff000-00100000 rw-s 0 08:01 5 /before\n"
		   "Size:                  4 kB\n"
		   "VmFlags: rd wr sh mr mw me ms \n"
		   "00100000-00101000 rw-s 00000000 08:01 5    /mnt/with sf in "
		   "it\n"
		   "Size:                  4 kB\n"
		   "FilePmdMapped:         0 kB\n"
		   "VmFlags: %s\n"
		   "00101000-00102000 rw-s 00001000 08:01 5    /mnt/with sf in "
		   "it\n"
		   "VmFlags: %s\n"
		   "00102000-00103000 rw-s 0 08:01 5 /behind\n"
		   "VmFlags: rd wr sh mr mw me ms sf \n",
		   first, second);
}

/* Make pmem0 of this nd region the disk of the invented file. */
static void disk_is(const char *name)
{
	char full[2 * PATH_MAX], to[2 * PATH_MAX];

	write_tree("/sys/dev/block/x", " ");
	sprintf(full, "%s/sys/dev/block/%u:%u", dir, real_statx.stx_dev_major,
		real_statx.stx_dev_minor);
	sprintf(to, "../../devices/ndbus0/%s/namespace0.0/block/pmem0", name);
	unlink(full);
	cr_assert_eq(symlink(to, full), 0);
}

Test(caps_invented, dax)
{
	claim_dax = true;
	invent_file("ext4", "rw,dax=always");
	make_smaps("rd wr sh mr mw me ms sf", "rd wr sh mr mw me ms sf");
	expect_found(HERE, LEN, RP_MEM_DAX_SYNC);
	cr_assert_eq(facts.fs_trusted, RP_YES);
	cr_assert_eq(facts.domain, RP_DOMAIN_UNKNOWN);
	/* One mapping without MAP_SYNC makes msync necessary. */
	make_smaps("rd wr sh mr mw me ms sf", "rd wr sh mr mw me ms");
	expect_found(HERE, LEN, RP_MEM_DAX);
	expect_found(HERE, LEN / 2, RP_MEM_DAX_SYNC);
	make_smaps("rd wr sh mr mw me ms", "rd wr sh mr mw me ms sf");
	expect_found(HERE, LEN, RP_MEM_DAX);
	make_smaps("rd wr sh mr mw me ms", "rd wr sh mr mw me ms");
	expect_found(HERE, LEN, RP_MEM_DAX);
	write_tree("/proc/self/smaps", "garbage\n");
	expect_found(HERE, LEN, RP_MEM_DAX);
	/* A DAX file on an untrusted file system. */
	invent_file("virtiofs", "rw");
	expect_found(HERE, LEN, RP_MEM_DAX);
	cr_assert_eq(facts.fs_trusted, RP_NO);
	/* Without STATX_ATTR_DAX the mapping flag does not make it DAX. */
	claim_dax = false;
	invent_file("ext4", "rw");
	make_smaps("rd wr sh mr mw me ms sf", "rd wr sh mr mw me ms sf");
	expect_found(HERE, LEN, RP_MEM_FILE);
}

Test(caps_invented, persistence_domain)
{
	static const struct {
		const char *word;
		enum rp_domain domain;
	} t[] = {
		{"memory_controller", RP_DOMAIN_MEMCTRL},
		{"cpu_cache", RP_DOMAIN_CPUCACHE},
		{"none", RP_DOMAIN_NONE},
		{"", RP_DOMAIN_UNKNOWN},
		{"cpu_cache_and_more", RP_DOMAIN_UNKNOWN},
	};

	invent_file("ext4", "rw");
	make_smaps("rd wr sf", "rd wr sf");
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		nd_region("region0", t[i].word);
		disk_is("region0");
		claim_dax = true;
		expect_found(HERE, LEN, RP_MEM_DAX_SYNC);
		cr_assert_eq(facts.domain, t[i].domain, "%s", t[i].word);
		/* A file without DAX on a pmem disk uses the page cache. */
		claim_dax = false;
		expect_found(HERE, LEN, RP_MEM_FILE);
		cr_assert_eq(facts.domain, RP_DOMAIN_UNKNOWN);
	}
	/* One nd region lacks persistence_domain, the other has it. */
	claim_dax = true;
	nd_region("region1", NULL);
	disk_is("region1");
	nd_region("region0", "cpu_cache");
	expect_found(HERE, LEN, RP_MEM_DAX_SYNC);
	cr_assert_eq(facts.domain, RP_DOMAIN_UNKNOWN);
}

Test(caps_invented, devdax)
{
	char full[2 * PATH_MAX];
	struct stat st;

	invent_file("devtmpfs", "rw");
	cr_assert_eq(stat("/dev/null", &st), 0);
	cr_assert_eq(statx(AT_FDCWD, "/dev/null", 0, STATX_MNT_ID, &real_statx),
		     0);
	write_tree("/proc/self/mountinfo",
		   "%llu 1 0:5 / /dev rw - devtmpfs d rw\n",
		   (unsigned long long)real_statx.stx_mnt_id);
	write_tree("/proc/self/maps",
		   "00100000-00102000 rw-s 0 00:05 %lu /dev/null\n", st.st_ino);
	/* A character device that is not devdax promises nothing. */
	expect_found(HERE, LEN, RP_MEM_UNKNOWN);
	nd_region("region0", "memory_controller");
	write_tree("/sys/devices/ndbus0/region0/dax0.0/dax/size", "1\n");
	write_tree("/sys/dev/char/x", " ");
	sprintf(full, "%s/sys/dev/char/1:3", dir);
	cr_assert_eq(symlink("../../devices/ndbus0/region0/dax0.0", full), 0);
	expect_found(HERE, LEN, RP_MEM_UNKNOWN);
	sprintf(full, "%s/sys/devices/ndbus0/region0/dax0.0/subsystem", dir);
	cr_assert_eq(symlink("../../../../bus/daxter", full), 0);
	expect_found(HERE, LEN, RP_MEM_UNKNOWN);
	unlink(full);
	cr_assert_eq(symlink("../../../../bus/dax", full), 0);
	expect_found(HERE, LEN, RP_MEM_DAX_SYNC);
	cr_assert_eq(facts.domain, RP_DOMAIN_MEMCTRL);
	cr_assert_eq(facts.fs_trusted, RP_YES);
	cr_assert_str_eq(facts.fs_name, "");
	cr_assert_eq(rp_method_best(&facts, RP_METHODS_BUILT).method,
		     RP_METHOD_AGENT_CLWB);
}

/*
 * The environment variable of libpmem2 that forces byte granularity does not
 * change the facts.
 */
Test(caps_invented, forced_granularity_is_ignored)
{
	static const char *const values[] = {"BYTE", "cache_line", "PAGE", ""};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		setenv("PMEM2_FORCE_GRANULARITY", values[i], 1);
		invent_file("ext4", "rw");
		expect_found(HERE, LEN, RP_MEM_FILE);
		cr_assert_eq(rp_method_best(&facts, RP_METHODS_BUILT).class,
			     RP_CLASS_POWER);
		invent_file("tmpfs", "rw");
		expect_found(HERE, LEN, RP_MEM_TMPFS);
	}
}

/* Emulation applies to private memory without a file, never to a file. */
Test(caps_invented, memory_without_a_disk_is_emulated)
{
	cfg.emulate = true;
	invent_file("ext4", "rw");
	expect_found(HERE, LEN, RP_MEM_FILE);
	invent_file("tmpfs", "rw");
	expect_found(HERE, LEN, RP_MEM_EMULATED);
	cr_assert_eq(rp_method_best(&facts, RP_METHODS_BUILT).class,
		     RP_CLASS_NONE);
	cfg.root = NULL;
	expect_found(map(-1, page, MAP_PRIVATE | MAP_ANONYMOUS), page,
		     RP_MEM_EMULATED);
	expect_found(map(make_file("p", page), page, MAP_PRIVATE), page,
		     RP_MEM_PRIVATE);
}

Test(caps_invented, broken_maps)
{
	static const char *const bad[] = {
		"",
		"\n",
		"hello\n",
		"00100000-\n",
		"00100000-00102000\n",
		"00100000-00102000 rw-s\n",
		"00100000-00102000 rw-s 0 zz:01 5 /x\n",
		"00200000-00300000 rw-s 0 08:01 5 /x\n",
		/* hole in the middle of a page */
		("00100000-00101000 rw-p 0 00:00 0\n"
		 "00101800-00102000 rw-p 0 00:00 0\n"),
	};

	cfg.root = dir;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		write_tree("/proc/self/maps", "%s", bad[i]);
		cr_assert_lt(read_facts(HERE, LEN), 0, "%zu", i);
	}
	/* Overlapping lines appear when mappings are merged during the read. */
	write_tree("/proc/self/maps", "00100000-00101000 rw-p 0 00:00 0\n"
				      "00100000-00102000 rw-p 0 00:00 0\n");
	expect_found(HERE, LEN, RP_MEM_ANON);
	cfg.root = "/no/such/folder";
	expect_err(HERE, LEN, -ENOENT, "/proc/self/maps");
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

Test(caps_invented, many_mappings)
{
	char path[2 * PATH_MAX];
	unsigned long at = 0x10000;
	double begun;
	FILE *f;

	/*
	 * As many mappings as the kernel allows by default. The region is the
	 * last one, split into pieces.
	 */
	invent_file("ext4", "rw");
	sprintf(path, "%s/proc/self/maps", dir);
	f = fopen(path, "w");
	for (int i = 0; i < 65530; i++, at += 0x2000)
		fprintf(f, "%08lx-%08lx rw-p 00000000 00:00 0 \n", at,
			at + 0x1000);
	cr_assert_eq(truncate(real_path, 0x1000 * 10000), 0);
	for (int i = 0; i < 10000; i++)
		fprintf(f, "%08lx-%08lx rw-s %08x %02x:%02x %llu    %s\n",
			at + i * 0x1000ul, at + i * 0x1000ul + 0x1000,
			i * 0x1000, real_statx.stx_dev_major,
			real_statx.stx_dev_minor,
			(unsigned long long)real_statx.stx_ino, real_path);
	fclose(f);
	begun = seconds();
	nstatx = 0;
	expect_found((void *)at, 0x1000 * 10000, RP_MEM_FILE);
	begun = seconds() - begun;
	cr_assert_lt(begun, 1.0, "took %.3f s", begun);
	cr_assert_leq(nstatx, 2, "looked %zu times at one file", nstatx);
	expect_err((void *)at, 0x1000 * 10000 + 1, -EFAULT, "mapped");
}

Test(caps_invented, host_with_persistent_memory)
{
	struct rp_host host;

	cfg.root = dir;
	cr_assert_eq(rp_host_read(cfg.root, &host), 0);
	cr_assert_not(host.has_nd);
	cr_assert_eq(host.domain, RP_DOMAIN_UNKNOWN);
	nd_region("region0", "cpu_cache");
	cr_assert_eq(rp_host_read(cfg.root, &host), 0);
	cr_assert(host.has_nd);
	cr_assert_eq(host.domain, RP_DOMAIN_CPUCACHE);
	/* The weakest domain of all nd regions counts. */
	nd_region("region1", "memory_controller");
	nd_region("region2", "cpu_cache");
	cr_assert_eq(rp_host_read(cfg.root, &host), 0);
	cr_assert_eq(host.domain, RP_DOMAIN_MEMCTRL);
	nd_region("region3", NULL);
	cr_assert_eq(rp_host_read(cfg.root, &host), 0);
	cr_assert_eq(host.domain, RP_DOMAIN_UNKNOWN);
}
