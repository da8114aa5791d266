// SPDX-License-Identifier: BSD-2-Clause
/* The sentence that describes each kind of memory, word for word. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "caps_rig.h"

static int open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	cr_assert_not_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

TestSuite(caps_stated, .init = caps_setup, .fini = caps_teardown);

/* Expect this memory with this sentence, and no file left open. */
static void expect_memory(enum rp_memory memory, const char *sentence)
{
	int before = open_files();

	expect_found(HERE, LEN, memory);
	cr_assert_str_eq(why, sentence);
	cr_assert_eq(open_files(), before);
}

Test(caps_stated, files)
{
	invent_file("ext4", "rw");
	expect_memory(RP_MEM_FILE, "page cache of a file on ext4: pool");
	cr_assert_eq(facts.file.ino, real_statx.stx_ino);
	invent_file("ext4", "rw,nobarrier");
	expect_memory(RP_MEM_FILE,
		      "page cache of a file on ext4, mounted so that fsync "
		      "flushes nothing; fix that, or vouch for it with "
		      "FI_OFI_RPMEM_TRUST_FS=ext4: pool");
	invent_file("overlay", "rw");
	expect_memory(RP_MEM_FILE,
		      "page cache of a file on overlay, whose msync nobody "
		      "vouches for; FI_OFI_RPMEM_TRUST_FS=overlay does: "
		      "pool");
	invent_file("tmpfs", "rw");
	expect_memory(RP_MEM_TMPFS,
		      "file pool on tmpfs: outlives the process, not the "
		      "machine");
	cr_assert_eq(facts.file.ino, 0);
	claim_dax = true;
	invent_file("xfs", "rw");
	write_tree("/proc/self/smaps", "nothing\n");
	expect_memory(RP_MEM_DAX, "DAX file on xfs: pool");
	cr_assert_eq(facts.file.ino, real_statx.stx_ino);
	write_tree("/proc/self/smaps",
		   "00100000-00102000 rw-s 0 08:01 5 /x\nVmFlags: rd wr sf\n");
	expect_memory(RP_MEM_DAX_SYNC, "DAX file on xfs: pool");
	cr_assert_eq(facts.file.ino, real_statx.stx_ino);
	/* Without smaps nobody knows whether a mapping has MAP_SYNC. */
	write_tree("/proc/self/smaps", " ");
	expect_memory(RP_MEM_DAX, "DAX file on xfs: pool");
}

Test(caps_stated, a_mount_that_cannot_be_seen)
{
	char sentence[512];

	invent_file("ext4", "rw");
	write_tree("/proc/self/mountinfo", "1 0 0:1 / / rw - proc proc rw\n");
	expect_found(HERE, LEN, file_here());
	if (file_here() != RP_MEM_FILE || !facts.fs_name[0] ||
	    !rp_caps_fs_listed(facts.fs_name))
		cr_skip("this file system is not one of them");
	snprintf(sentence, sizeof(sentence),
		 "page cache of a file on %s, whose mount or devices cannot be "
		 "seen; fix that, or vouch for it with "
		 "FI_OFI_RPMEM_TRUST_FS=%s: pool",
		 facts.fs_name, facts.fs_name);
	expect_memory(RP_MEM_FILE, sentence);
}

/* Write a process map with one mapping. */
static void make_maps(const char *perms, const char *dev,
		      unsigned long long ino, const char *path)
{
	cfg.root = dir;
	write_tree("/proc/self/maps", "00100000-00102000 %s 0 %s %llu %s\n",
		   perms, dev, ino, path);
}

Test(caps_stated, no_files)
{
	make_maps("rw-s", "08:01", 5, "/no/such");
	expect_memory(RP_MEM_UNKNOWN,
		      "cannot look at the mapped file such: No such "
		      "file or directory");
	make_maps("rw-s", "08:01", 5, "/no/such (deleted)");
	expect_memory(RP_MEM_ANON,
		      "no name leads to such (deleted): its bytes go with "
		      "the last process that has it; use a file that has "
		      "a name");
	make_maps("rw-s", "00:0e", 5, "inode:~\x7f[x]");
	expect_memory(RP_MEM_UNKNOWN,
		      "inode:~?[x] is neither a file nor a devdax "
		      "device");
	make_maps("rw-p", "00:00", 0, "");
	expect_memory(RP_MEM_ANON, "anonymous memory: dies with its process");
	make_maps("rw-s", "00:0e", 5, "/anon_hugepage (deleted)");
	expect_memory(RP_MEM_ANON, "anonymous memory: dies with its process");
	/* A file whose name begins like that of an anonymous mapping. */
	make_maps("rw-s", "00:0e", 5, "/anon_hugepag");
	expect_memory(RP_MEM_UNKNOWN,
		      "cannot look at the mapped file anon_hugepag: No "
		      "such file or directory");
	make_maps("rw-p", "08:01", 5, "/some/where/file");
	expect_memory(RP_MEM_PRIVATE,
		      "private mapping of file: msync on it writes "
		      "nothing; map it with MAP_SHARED");
}

Test(caps_stated, devices)
{
	char full[2 * PATH_MAX];
	struct stat st;

	cfg.root = dir;
	cr_assert_eq(stat("/dev/null", &st), 0);
	cr_assert_eq(statx(AT_FDCWD, "/dev/null", 0, STATX_MNT_ID, &real_statx),
		     0);
	write_tree("/proc/self/mountinfo",
		   "%llu 1 0:5 / /dev rw - devtmpfs d rw\n",
		   (unsigned long long)real_statx.stx_mnt_id);
	make_maps("rw-s", "00:05", st.st_ino, "/dev/null");
	expect_memory(RP_MEM_UNKNOWN,
		      "null is neither a file nor a devdax device");
	cr_assert_str_eq(facts.fs_name, "");
	write_tree("/sys/dev/char/1:3/x", " ");
	sprintf(full, "%s/sys/dev/char/1:3/subsystem", dir);
	cr_assert_eq(symlink("../../../../bus/dax", full), 0);
	expect_memory(RP_MEM_DAX_SYNC, "devdax device null");
	cr_assert_str_eq(facts.fs_name, "");
}

/* Emulated memory promises nothing, whatever maps it. */
Test(caps_stated, emulated_memory_promises_nothing)
{
	cfg.emulate = true;
	invent_file("tmpfs", "rw");
	expect_memory(RP_MEM_EMULATED,
		      "tmpfs memory playing persistent memory: "
		      "survives nothing");
	cr_assert_eq(facts.fs_trusted, RP_UNKNOWN);
	cr_assert_eq(facts.domain, RP_DOMAIN_UNKNOWN);
	cr_assert_str_eq(facts.fs_name, "");
	cr_assert_eq(facts.file.ino, 0);
}

/* Two files are never one region: errors are reported per file. */
Test(caps_stated, two_files_are_not_one_region)
{
	struct statx b;
	char path[2 * PATH_MAX];

	for (int dax = 0; dax < 2; dax++) {
		claim_dax = dax;
		invent_file("ext4", "rw");
		close(make_file("b", LEN));
		sprintf(path, "%s/b", dir);
		cr_assert_eq(statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &b),
			     0);
		write_tree("/proc/self/maps",
			   "00100000-00101000 rw-s 0 %02x:%02x %llu %s\n"
			   "00101000-00102000 rw-s 0 %02x:%02x %llu %s\n",
			   real_statx.stx_dev_major, real_statx.stx_dev_minor,
			   (unsigned long long)real_statx.stx_ino, real_path,
			   real_statx.stx_dev_major, real_statx.stx_dev_minor,
			   (unsigned long long)b.stx_ino, path);
		expect_err(HERE, LEN, -ENOTSUP, "another file, b, at 0x101000");
	}
	/* tmpfs is never synced, so two tmpfs files may be one region. */
	claim_dax = false;
	invent_file("tmpfs", "rw");
	write_tree("/proc/self/maps",
		   "00100000-00101000 rw-s 0 %02x:%02x %llu %s\n"
		   "00101000-00102000 rw-s 0 %02x:%02x %llu %s\n",
		   real_statx.stx_dev_major, real_statx.stx_dev_minor,
		   (unsigned long long)real_statx.stx_ino, real_path,
		   real_statx.stx_dev_major, real_statx.stx_dev_minor,
		   (unsigned long long)b.stx_ino, path);
	expect_found(HERE, LEN, RP_MEM_TMPFS);
}
