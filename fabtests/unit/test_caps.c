// SPDX-License-Identifier: BSD-2-Clause
/* Facts of memory, from real mappings of this process. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "caps_rig.h"
#include "core/method.h"
#include "util/host_facts.h"

TestSuite(caps, .init = caps_setup, .fini = caps_teardown);

/* In a chroot, mountinfo may lack the mount of this file. */
static bool mount_is_visible(int fd)
{
	FILE *f = fopen("/proc/self/mountinfo", "r");
	unsigned long long id;
	bool visible = false;
	char line[8192];
	struct statx sx;

	cr_assert_not_null(f);
	cr_assert_eq(statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &sx), 0);
	while (!visible && fgets(line, sizeof(line), f))
		visible = sscanf(line, "%llu", &id) == 1 && id == sx.stx_mnt_id;
	fclose(f);
	return visible;
}

Test(caps, a_file)
{
	int fd = make_file("pool", 4 * page);
	char *p = map(fd, 4 * page, MAP_SHARED), name[32];
	struct statfs s;
	struct stat st;

	expect_found(p, 4 * page, file_here());
	cr_assert_eq(facts.domain, RP_DOMAIN_UNKNOWN);
	cr_assert_eq(fstat(fd, &st), 0);
	if (file_here() == RP_MEM_FILE)
		cr_assert_eq(facts.file.ino, st.st_ino);
	cr_assert_eq(rp_host_fs_name(fd, name, sizeof(name)), 0);
	cr_assert_str_eq(name, facts.fs_name);
	cr_assert_eq(fstatfs(fd, &s), 0);
	if (s.f_type == EXT4_SUPER_MAGIC) {
		cr_assert(!strncmp(name, "ext", 3), "%s", name);
		if (!mount_is_visible(fd)) {
			cr_assert_eq(facts.fs_trusted, RP_NO);
			cr_assert(strstr(why, "cannot be seen"), "%s", why);
			cfg.trust_fs = name;
			expect_found(p, 4 * page, RP_MEM_FILE);
		}
		cr_assert_eq(facts.fs_trusted, RP_YES, "%s", why);
		cr_assert_eq(rp_method_best(&facts, RP_METHODS_BUILT).class,
			     RP_CLASS_POWER);
	} else if (s.f_type == OVERLAYFS_SUPER_MAGIC) {
		cr_assert_str_eq(name, "overlay");
		cr_assert_eq(facts.fs_trusted, RP_NO);
	}
	/* Ranges in any part of the mapping, at any alignment. */
	expect_found(p + 1, 1, file_here());
	expect_found(p + 4 * page - 1, 1, file_here());
	expect_found(p + page - 1, page + 2, file_here());
	cr_assert_eq(rp_caps_explain(&cfg, p, page, &facts, NULL, NULL), 0);
	cr_assert_eq(rp_host_fs_name(-1, name, sizeof(name)), -EBADF);
	cr_assert_eq(rp_host_fs_name(fd, name, 2), -ENAMETOOLONG);
}

Test(caps, files_with_odd_names)
{
	static const char *const names[] = {
		" two  spaces ",  "new\nline",	  "literal\\012escape",
		"gone (deleted)", "\xc3\xa9\x01", "a\n\\012b",
		"tab\tand\\",
	};
	size_t last = sizeof(names) / sizeof(names[0]);
	struct statfs s;

	cr_assert_eq(statfs(dir, &s), 0);
	for (size_t i = 0; i < last; i++) {
		/* Whether overlayfs keeps this name depends on the kernel. */
		if (s.f_type == OVERLAYFS_SUPER_MAGIC &&
		    !strcmp(names[i], "gone (deleted)"))
			continue;
		char *p = map(make_file(names[i], page), page, MAP_SHARED);
		/* This name cannot be expressed in the process map. */
		bool lost = !strcmp(names[i], "a\n\\012b");

		expect_found(p, page, lost ? RP_MEM_UNKNOWN : file_here());
	}
}

Test(caps, a_renamed_file)
{
	char from[2 * PATH_MAX], to[2 * PATH_MAX];
	char *p = map(make_file("from", page), page, MAP_SHARED);

	sprintf(from, "%s/from", dir);
	sprintf(to, "%s/to", dir);
	cr_assert_eq(rename(from, to), 0);
	expect_found(p, page, file_here());
	cr_assert(strstr(why, "to"), "%s", why);
	cr_assert_null(strstr(why, dir), "folders are nobody's business: %s",
		       why);
}

Test(caps, a_deleted_file)
{
	char path[2 * PATH_MAX];
	char *p = map(make_file("gone", page), page, MAP_SHARED);

	sprintf(path, "%s/gone", dir);
	unlink(path);
	expect_found(p, page, RP_MEM_ANON);
	cr_assert_not(facts.anonymous, "a descriptor can cut it short");
	cr_assert(strstr(why, "name"), "%s", why);
	cr_assert_eq(rp_method_best(&facts, RP_METHODS_BUILT).refusal,
		     RP_REFUSAL_VOLATILE);
	/*
	 * A new file with the old name, or with the name that the map shows, is
	 * another file.
	 */
	make_file("gone", page);
	expect_found(p, page, RP_MEM_ANON);
	make_file("gone (deleted)", page);
	expect_found(p, page, RP_MEM_ANON);
}

Test(caps, tmpfs)
{
	char path[64];
	struct statfs s;
	char *p;

	if (statfs("/dev/shm", &s) || s.f_type != TMPFS_MAGIC)
		cr_skip("no tmpfs here");
	sprintf(path, "/dev/shm/test_caps.%d", (int)getpid());
	p = map(make_file(path, page), page, MAP_SHARED);
	expect_found(p, page, RP_MEM_TMPFS);
	cr_assert_eq(rp_method_best(&facts, RP_METHODS_BUILT).class,
		     RP_CLASS_PROCESS);
	unlink(path);
	expect_found(p, page, RP_MEM_ANON);
}

Test(caps, anonymous)
{
	int fd = memfd_create("test caps", 0);
	char *p = map(-1, page, MAP_PRIVATE | MAP_ANONYMOUS);
	char *q = map(-1, page, MAP_SHARED | MAP_ANONYMOUS);
	int shm = shmget(IPC_PRIVATE, page, 0600);
	char *r, *s, stack[32];

	cr_assert_eq(ftruncate(fd, page), 0);
	r = map(fd, page, MAP_SHARED);
	expect_found(p, page, RP_MEM_ANON);
	cr_assert(facts.anonymous);
	expect_found(q, page, RP_MEM_ANON);
	cr_assert(facts.anonymous);
	expect_found(r, page, RP_MEM_ANON);
	cr_assert_not(facts.anonymous, "a descriptor can cut it short");
	s = shmat(shm, NULL, 0);
	shmctl(shm, IPC_RMID, NULL);
	cr_assert_neq(s, (void *)-1);
	expect_found(s, page, RP_MEM_ANON);
	expect_found(stack, sizeof(stack), RP_MEM_ANON);
	cr_assert_str_eq(facts.fs_name, "");
	cr_assert_eq(facts.file.ino, 0);
	cfg.emulate = true;
	expect_found(p, page, RP_MEM_EMULATED);
	expect_found(q, page, RP_MEM_EMULATED);
	expect_found(r, page, RP_MEM_EMULATED);
	cr_assert_eq(rp_method_best(&facts, RP_METHODS_BUILT).class,
		     RP_CLASS_NONE);
	/* Emulation concerns memory, not files. */
	p = map(make_file("pool", page), page, MAP_SHARED);
	if (file_here() == RP_MEM_FILE)
		expect_found(p, page, RP_MEM_FILE);
	expect_found(map(make_file("pool", page), page, MAP_PRIVATE), page,
		     RP_MEM_PRIVATE);
}

Test(caps, private_mapping)
{
	char *p = map(make_file("pool", page), page, MAP_PRIVATE);

	expect_found(p, page, RP_MEM_PRIVATE);
	cr_assert(strstr(why, "MAP_SHARED"), "%s", why);
	/* Writing to the page makes a copy, which is private as well. */
	*p = 1;
	expect_found(p, page, RP_MEM_PRIVATE);
	cr_assert_eq(rp_method_best(&facts, RP_METHODS_BUILT).refusal,
		     RP_REFUSAL_VOLATILE);
}

Test(caps, protection)
{
	char *p = map(make_file("pool", 3 * page), 3 * page, MAP_SHARED);

	mprotect(p + page, page, PROT_READ);
	expect_err(p, 3 * page, -EFAULT, "PROT_READ | PROT_WRITE");
	expect_err(p + page, 1, -EFAULT, "r--s");
	expect_found(p, page, file_here());
	expect_found(p + 2 * page, page, file_here());
	mprotect(p + page, page, PROT_WRITE);
	expect_err(p + page, 1, -EFAULT, "-w-s");
}

/*
 * Map the pages below a larger gap: the kernel places a library's mappings in
 * that gap, not in the holes.
 */
Test(caps, range_with_a_hole_is_refused)
{
	const size_t gap = 1 << 30;
	char *p = mmap(NULL, gap, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	cr_assert_neq(p, MAP_FAILED);
	cr_assert_eq(mmap(p, 4 * page, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_FIXED, make_file("pool", 4 * page),
			  0),
		     p);
	munmap(p + 4 * page, gap - 4 * page);
	munmap(p + page, page);
	expect_err(p, page + 1, -EFAULT, "mapped");
	expect_err(p + page, 1, -EFAULT, "mapped");
	expect_err(p + 2 * page - 1, 2, -EFAULT, "mapped");
	expect_found(p, page, file_here());
	munmap(p + 3 * page, page);
	expect_err(p + 2 * page, page + 1, -EFAULT, "");
}

Test(caps, bad_ranges)
{
	expect_err(why, 0, -EINVAL, "range is empty");
	expect_err(why, SIZE_MAX, -EINVAL, "range wraps");
	expect_err((void *)(UINTPTR_MAX - 4), 4, -EFAULT, "mapped");
}

Test(caps, range_of_mixed_mappings_is_refused)
{
	int fd = make_file("pool", 4 * page), other = make_file("b", page);
	char *p = map(fd, 4 * page, MAP_SHARED);
	int flags = MAP_FIXED | MAP_SHARED;

	/*
	 * Two mappings of one file can be one region. Mappings of two files
	 * cannot, because the kernel reports errors per file.
	 */
	cr_assert_eq(madvise(p + page, page, MADV_DONTFORK), 0);
	expect_found(p, 4 * page, file_here());
	cr_assert_eq(
		mmap(p + page, page, PROT_READ | PROT_WRITE, flags, other, 0),
		p + page);
	if (file_here() == RP_MEM_FILE)
		expect_err(p, 4 * page, -ENOTSUP, "another file");
	expect_found(p + page, page, file_here());
	/* One page of another memory kind within the range. */
	cr_assert_eq(mmap(p + page, page, PROT_READ | PROT_WRITE,
			  MAP_FIXED | MAP_PRIVATE, other, 0),
		     p + page);
	expect_err(p, 2 * page, -ENOTSUP, "private");
	expect_err(p + page, 2 * page, -ENOTSUP, "apart");
	expect_found(p, page, file_here());
	cr_assert_eq(mmap(p + page, page, PROT_READ | PROT_WRITE,
			  flags | MAP_ANONYMOUS, -1, 0),
		     p + page);
	expect_err(p, 4 * page, -ENOTSUP, "anonymous");
	expect_found(p + 2 * page, 2 * page, file_here());
	/* Two memory kinds that are both refused. */
	cr_assert_eq(mmap(p, page, PROT_READ | PROT_WRITE,
			  MAP_FIXED | MAP_PRIVATE, other, 0),
		     p);
	expect_err(p, 2 * page, -ENOTSUP, "anonymous");
}

Test(caps, range_behind_the_end_of_the_file_is_refused)
{
	int fd = make_file("pool", page + 10);
	char *p = map(fd, 3 * page, MAP_SHARED);

	expect_found(p, page + 10, file_here());
	/* The last page's tail is mapped, but never written to the file. */
	expect_err(p, page + 11, -EFAULT, "allocate");
	expect_err(p + 2 * page, 1, -EFAULT, "allocate");
	cr_assert_eq(ftruncate(fd, 3 * page), 0);
	expect_found(p, 3 * page, file_here());
	/* The mapping's offset counts when its end is checked. */
	p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 2 * page);
	expect_found(p, page, file_here());
	cr_assert_eq(ftruncate(fd, 3 * page - 1), 0);
	expect_err(p, page, -EFAULT, "allocate");
}

/* Facts of the host that runs the test. */
Test(caps, facts_of_this_host)
{
	struct rlimit lim = {.rlim_cur = 65536};
	struct rp_host host;
	char line[8192];
	FILE *f;

	cfg.root = NULL;
	cr_assert_eq(getrlimit(RLIMIT_MEMLOCK, &lim), 0);
	lim.rlim_cur = 65536;
	cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &lim), 0);
	cr_assert_eq(rp_host_read(cfg.root, &host), 0);
	cr_assert_eq(host.memlock, 65536);
	f = fopen("/proc/cpuinfo", "r");
	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "flags", 5))
			continue;
		line[strcspn(line, "\n")] = ' ';
		cr_assert_eq(host.clwb, !!strstr(line, " clwb "));
		cr_assert_eq(host.clflush, !!strstr(line, " clflush "));
		cr_assert_eq(host.clflushopt, !!strstr(line, " clflushopt "));
		cr_assert_eq(host.movdir64b, !!strstr(line, " movdir64b "));
		break;
	}
	if (f)
		fclose(f);
}

Test(caps, names)
{
	enum rp_class c = 77;

	cr_assert_eq(rp_class_parse("power", &c), 0);
	cr_assert_eq(c, RP_CLASS_POWER);
	cr_assert_eq(rp_class_parse("Process", &c), 0);
	cr_assert_eq(c, RP_CLASS_PROCESS);
	cr_assert_eq(rp_class_parse("none", &c), 0);
	cr_assert_eq(c, RP_CLASS_NONE);
	c = 77;
	cr_assert_eq(rp_class_parse("", &c), -EINVAL);
	cr_assert_eq(rp_class_parse("powerful", &c), -EINVAL);
	cr_assert_eq(rp_class_parse(NULL, &c), -EINVAL);
	cr_assert_eq(c, 77);
	cr_assert_str_eq(rp_class_name(RP_CLASS_PROCESS), "process");
	cr_assert_str_eq(rp_class_name(-1), "unknown");
	cr_assert_str_eq(rp_class_name(3), "unknown");
	cr_assert_str_eq(rp_memory_name(RP_MEM_EMULATED + 1), "unknown");
	cr_assert_str_eq(rp_placement_name(RP_PLACE_DMA_MEMORY + 1), "unknown");
	cr_assert_str_eq(rp_domain_name(RP_DOMAIN_SYSTEM + 1), "unknown");
	cr_assert(rp_caps_fs_listed("ext4"));
	cr_assert_not(rp_caps_fs_listed("overlay"));
	cr_assert_not(rp_caps_fs_listed("tmpfs"));
	cr_assert_not(rp_caps_fs_listed(""));
}
