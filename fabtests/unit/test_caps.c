// SPDX-License-Identifier: BSD-2-Clause
/* What backs a region: real mappings, and invented /proc and /sys trees. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "core/caps.h"
#include "core/method.h"

static size_t page;
static char dir[PATH_MAX]; /* of this test, removed behind it */
static struct rp_caps_cfg cfg = {.placement = RP_PLACE_CPU_USER};
static struct rp_facts facts;
static char why[RP_WHY_LEN];

static int remove_one(const char *path, const struct stat *st, int type,
		      struct FTW *ftw)
{
	return remove(path);
}

static void setup(void)
{
	char here[PATH_MAX - 32];

	page = sysconf(_SC_PAGESIZE);
	cr_assert_not_null(getcwd(here, sizeof(here)));
	sprintf(dir, "%s/test_caps.XXXXXX", here);
	cr_assert_not_null(mkdtemp(dir));
	unsetenv("PMEM2_FORCE_GRANULARITY");
	memset(&facts, 0x5a, sizeof(facts));
	strcpy(why, "untouched");
}

static void teardown(void)
{
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

TestSuite(caps, .init = setup, .fini = teardown);

static int look(const void *addr, size_t len)
{
	int ret = rp_caps_region(&cfg, addr, len, &facts, why);

	cr_assert_str_neq(why, "untouched");
	for (const char *p = why; *p; p++)
		cr_assert(*p >= ' ' && *p <= '~', "%s", why);
	return ret;
}

static void want(const void *addr, size_t len, enum rp_memory memory)
{
	int ret = look(addr, len);

	cr_assert_eq(ret, 0, "%s: %s", strerror(-ret), why);
	cr_assert_eq(facts.memory, memory, "%s, not %s: %s",
		     rp_memory_name(facts.memory), rp_memory_name(memory), why);
	cr_assert(facts.agent);
	cr_assert_eq(facts.placement, cfg.placement);
	cr_assert_eq(facts.fence, RP_UNKNOWN);
	cr_assert_eq(facts.native, RP_UNKNOWN);
}

static void want_err(const void *addr, size_t len, int err, const char *word)
{
	struct rp_facts before = facts;
	int ret = look(addr, len);

	cr_assert_eq(ret, err, "%d, not %d: %s", ret, err, why);
	cr_assert(strstr(why, word), "%s", why);
	cr_assert_arr_eq(&facts, &before, sizeof(facts));
}

/* A file of len bytes in dir (or of this full path), open and removed later. */
static int make_file(const char *name, size_t len)
{
	char path[2 * PATH_MAX];
	int fd;

	sprintf(path, "%s%s%s", *name == '/' ? "" : dir,
		*name == '/' ? "" : "/", name);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	cr_assert_geq(fd, 0);
	cr_assert_eq(ftruncate(fd, len), 0);
	return fd;
}

static char *map(int fd, size_t len, int flags)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, fd, 0);

	cr_assert_neq(p, MAP_FAILED);
	return p;
}

/* What the tests run on decides what an ordinary file here must be. */
static enum rp_memory file_here(void)
{
	struct statfs s;

	cr_assert_eq(statfs(dir, &s), 0);
	return s.f_type == TMPFS_MAGIC ? RP_MEM_TMPFS : RP_MEM_FILE;
}

Test(caps, a_file)
{
	int fd = make_file("pool", 4 * page);
	char *p = map(fd, 4 * page, MAP_SHARED), name[32];
	struct statfs s;
	struct stat st;

	want(p, 4 * page, file_here());
	cr_assert_eq(facts.domain, RP_DOMAIN_UNKNOWN);
	cr_assert_eq(fstat(fd, &st), 0);
	if (file_here() == RP_MEM_FILE)
		cr_assert_eq(facts.file.ino, st.st_ino);
	cr_assert_eq(rp_caps_fs_name(fd, name, sizeof(name)), 0);
	cr_assert_str_eq(name, facts.fs_name);
	cr_assert_eq(fstatfs(fd, &s), 0);
	if (s.f_type == EXT4_SUPER_MAGIC) {
		cr_assert(!strncmp(name, "ext", 3), "%s", name);
		cr_assert_eq(facts.fs_trusted, RP_YES, "%s", why);
		cr_assert_eq(rp_method_best(&facts, RP_METHODS_BUILT).class,
			     RP_CLASS_POWER);
	} else if (s.f_type == OVERLAYFS_SUPER_MAGIC) {
		cr_assert_str_eq(name, "overlay");
		cr_assert_eq(facts.fs_trusted, RP_NO);
	}
	/* Any part of it, at any alignment. */
	want(p + 1, 1, file_here());
	want(p + 4 * page - 1, 1, file_here());
	want(p + page - 1, page + 2, file_here());
	cr_assert_eq(rp_caps_region(&cfg, p, page, &facts, NULL), 0);
	cr_assert_eq(rp_caps_fs_name(-1, name, sizeof(name)), -EBADF);
	cr_assert_eq(rp_caps_fs_name(fd, name, 2), -ENAMETOOLONG);
}

Test(caps, files_with_odd_names)
{
	static const char *const names[] = {
		" two  spaces ",  "new\nline",	  "literal\\012escape",
		"gone (deleted)", "\xc3\xa9\x01", "a\n\\012b",
		"tab\tand\\",
	};
	size_t last = sizeof(names) / sizeof(names[0]);

	for (size_t i = 0; i < last; i++) {
		char *p = map(make_file(names[i], page), page, MAP_SHARED);
		/* The one name that the process map cannot express. */
		bool lost = !strcmp(names[i], "a\n\\012b");

		want(p, page, lost ? RP_MEM_UNKNOWN : file_here());
	}
}

Test(caps, a_renamed_file)
{
	char from[2 * PATH_MAX], to[2 * PATH_MAX];
	char *p = map(make_file("from", page), page, MAP_SHARED);

	sprintf(from, "%s/from", dir);
	sprintf(to, "%s/to", dir);
	cr_assert_eq(rename(from, to), 0);
	want(p, page, file_here());
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
	want(p, page, RP_MEM_ANON);
	cr_assert(strstr(why, "name"), "%s", why);
	cr_assert_eq(rp_method_best(&facts, RP_METHODS_BUILT).refusal,
		     RP_REFUSAL_VOLATILE);
	/* Another file of that name is not it, nor is one of the map's. */
	make_file("gone", page);
	want(p, page, RP_MEM_ANON);
	make_file("gone (deleted)", page);
	want(p, page, RP_MEM_ANON);
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
	want(p, page, RP_MEM_TMPFS);
	cr_assert_eq(rp_method_best(&facts, RP_METHODS_BUILT).class,
		     RP_CLASS_PROCESS);
	unlink(path);
	want(p, page, RP_MEM_ANON);
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
	want(p, page, RP_MEM_ANON);
	want(q, page, RP_MEM_ANON);
	want(r, page, RP_MEM_ANON);
	s = shmat(shm, NULL, 0);
	shmctl(shm, IPC_RMID, NULL);
	cr_assert_neq(s, (void *)-1);
	want(s, page, RP_MEM_ANON);
	want(stack, sizeof(stack), RP_MEM_ANON);
	cr_assert_str_eq(facts.fs_name, "");
	cr_assert_eq(facts.file.ino, 0);
	cfg.emulate = true;
	want(p, page, RP_MEM_EMULATED);
	want(q, page, RP_MEM_EMULATED);
	want(r, page, RP_MEM_EMULATED);
	cr_assert_eq(rp_method_best(&facts, RP_METHODS_BUILT).class,
		     RP_CLASS_NONE);
	/* Emulation is for memory; files stay what they are. */
	p = map(make_file("pool", page), page, MAP_SHARED);
	if (file_here() == RP_MEM_FILE)
		want(p, page, RP_MEM_FILE);
	want(map(make_file("pool", page), page, MAP_PRIVATE), page,
	     RP_MEM_PRIVATE);
}

Test(caps, private_mapping)
{
	char *p = map(make_file("pool", page), page, MAP_PRIVATE);

	want(p, page, RP_MEM_PRIVATE);
	cr_assert(strstr(why, "MAP_SHARED"), "%s", why);
	/* Written, the page is a copy, and still private. */
	*p = 1;
	want(p, page, RP_MEM_PRIVATE);
	cr_assert_eq(rp_method_best(&facts, RP_METHODS_BUILT).refusal,
		     RP_REFUSAL_VOLATILE);
}

Test(caps, protection)
{
	char *p = map(make_file("pool", 3 * page), 3 * page, MAP_SHARED);

	mprotect(p + page, page, PROT_READ);
	want_err(p, 3 * page, -EFAULT, "PROT_READ | PROT_WRITE");
	want_err(p + page, 1, -EFAULT, "r--s");
	want(p, page, file_here());
	want(p + 2 * page, page, file_here());
	mprotect(p + page, page, PROT_WRITE);
	want_err(p + page, 1, -EFAULT, "-w-s");
}

Test(caps, holes)
{
	char *p = map(make_file("pool", 4 * page), 4 * page, MAP_SHARED);

	munmap(p + page, page);
	want_err(p, page + 1, -EFAULT, "mapped");
	want_err(p + page, 1, -EFAULT, "mapped");
	want_err(p + 2 * page - 1, 2, -EFAULT, "mapped");
	want(p, page, file_here());
	munmap(p + 3 * page, page);
	want_err(p + 2 * page, page + 1, -EFAULT, "");
}

Test(caps, bad_ranges)
{
	want_err(why, 0, -EINVAL, "empty");
	want_err(why, SIZE_MAX, -EINVAL, "wraps");
	want_err((void *)(UINTPTR_MAX - 4), 4, -EFAULT, "mapped");
}

Test(caps, pieces_and_mixes)
{
	int fd = make_file("pool", 4 * page), other = make_file("b", page);
	char *p = map(fd, 4 * page, MAP_SHARED);
	int flags = MAP_FIXED | MAP_SHARED;

	/* Two pieces of one file, then of two: their errors are apart. */
	cr_assert_eq(madvise(p + page, page, MADV_DONTFORK), 0);
	want(p, 4 * page, file_here());
	cr_assert_eq(
		mmap(p + page, page, PROT_READ | PROT_WRITE, flags, other, 0),
		p + page);
	if (file_here() == RP_MEM_FILE)
		want_err(p, 4 * page, -ENOTSUP, "another file");
	want(p + page, page, file_here());
	/* One page of something else. */
	cr_assert_eq(mmap(p + page, page, PROT_READ | PROT_WRITE,
			  MAP_FIXED | MAP_PRIVATE, other, 0),
		     p + page);
	want_err(p, 2 * page, -ENOTSUP, "private");
	want_err(p + page, 2 * page, -ENOTSUP, "apart");
	want(p, page, file_here());
	cr_assert_eq(mmap(p + page, page, PROT_READ | PROT_WRITE,
			  flags | MAP_ANONYMOUS, -1, 0),
		     p + page);
	want_err(p, 4 * page, -ENOTSUP, "anonymous");
	want(p + 2 * page, 2 * page, file_here());
	/* Two kinds that have nothing but their refusal in common. */
	cr_assert_eq(mmap(p, page, PROT_READ | PROT_WRITE,
			  MAP_FIXED | MAP_PRIVATE, other, 0),
		     p);
	want_err(p, 2 * page, -ENOTSUP, "anonymous");
}

Test(caps, behind_the_end)
{
	int fd = make_file("pool", page + 10);
	char *p = map(fd, 3 * page, MAP_SHARED);

	want(p, page + 10, file_here());
	/* There is a page, but nothing ever writes its tail anywhere. */
	want_err(p, page + 11, -EFAULT, "allocate");
	want_err(p + 2 * page, 1, -EFAULT, "allocate");
	cr_assert_eq(ftruncate(fd, 3 * page), 0);
	want(p, 3 * page, file_here());
	/* The offset of the mapping counts. */
	p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 2 * page);
	want(p, page, file_here());
	cr_assert_eq(ftruncate(fd, 3 * page - 1), 0);
	want_err(p, page, -EFAULT, "allocate");
}

/*
 * Invented trees. The process map names a real file, so that its identity
 * holds; statx is wrapped, so that the file can claim to be in DAX state.
 */
static bool claim_dax;
static size_t looks;

int __real_statx(int, const char *, int, unsigned int, struct statx *);
int __wrap_statx(int, const char *, int, unsigned int, struct statx *);

int __wrap_statx(int fd, const char *path, int flags, unsigned int mask,
		 struct statx *sx)
{
	int ret = __real_statx(fd, path, flags, mask, sx);

	looks++;
	if (claim_dax)
		sx->stx_attributes |= STATX_ATTR_DAX;
	return ret;
}

__attribute__((format(printf, 2, 3))) static void put(const char *path,
						      const char *fmt, ...)
{
	char full[2 * PATH_MAX];
	va_list ap;
	FILE *f;

	sprintf(full, "%s%s", dir, path);
	for (char *p = full + strlen(dir) + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		mkdir(full, 0700);
		*p = '/';
	}
	f = fopen(full, "w");
	cr_assert_not_null(f);
	va_start(ap, fmt);
	vfprintf(f, fmt, ap);
	va_end(ap);
	fclose(f);
}

static struct statx real; /* of the invented file */
static char real_path[2 * PATH_MAX];

#define HERE ((void *)0x100000)
#define LEN  0x2000

/* A map that shows the file at HERE in one piece, on a mount of this type. */
static void invent(const char *type, const char *opts)
{
	close(make_file("pool", LEN));
	sprintf(real_path, "%s/pool", dir);
	cr_assert_eq(__real_statx(AT_FDCWD, real_path, 0,
				  STATX_BASIC_STATS | STATX_MNT_ID, &real),
		     0);
	put("/proc/self/maps",
	    "00100000-00102000 rw-s 00000000 %02x:%02x %llu"
	    "     %s\n",
	    real.stx_dev_major, real.stx_dev_minor,
	    (unsigned long long)real.stx_ino, real_path);
	put("/proc/self/mountinfo",
	    "1 0 0:1 / /proc rw - proc proc rw\n"
	    "%llu 1 %u:%u / /mnt\\040- x rw,relatime shared:1 - %s /dev/d %s\n"
	    "%llu 1 0:99 / /other rw - sysfs s rw\n",
	    (unsigned long long)real.stx_mnt_id, real.stx_dev_major,
	    real.stx_dev_minor, type, opts,
	    (unsigned long long)real.stx_mnt_id + 1);
	cfg.root = dir;
}

Test(caps, file_systems)
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
		/* Mounted so that fsync stops at the disk's cache. */
		{"ext4", "rw,nobarrier", NULL, RP_NO},
		{"ext4", "rw,barrier=0", NULL, RP_NO},
		{"f2fs", "rw,fsync_mode=nobarrier", NULL, RP_NO},
		{"ext4", "rw,barrier=1,x-nobarrier", NULL, RP_YES},
		/* The operator's word. */
		{"overlay", "rw", "overlay", RP_YES},
		{"overlay", "rw", "nfs4, overlay", RP_YES},
		{"overlay", "rw", "nfs4,overlay,zfs", RP_YES},
		{"overlay", "rw", "over,overlayfs", RP_NO},
		{"overlay", "rw", "", RP_NO},
		{"ext4", "rw,nobarrier", "ext4", RP_YES},
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		invent(t[i].type, t[i].opts);
		cfg.trust_fs = t[i].trust;
		want(HERE, LEN, RP_MEM_FILE);
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
	invent("tmpfs", "rw");
	want(HERE, LEN, RP_MEM_TMPFS);
	invent("hugetlbfs", "rw");
	want(HERE, LEN, RP_MEM_TMPFS);
}

/* In a plain chroot the root's mount is not in the table. */
Test(caps, a_mount_that_cannot_be_seen)
{
	invent("ext4", "rw");
	put("/proc/self/mountinfo", "1 0 0:1 / / rw - proc proc rw\n");
	want(HERE, LEN, file_here());
	cr_assert_neq(facts.fs_trusted, RP_YES);
	if (file_here() == RP_MEM_FILE && facts.fs_name[0]) {
		char trusted[32];

		strcpy(trusted, facts.fs_name);
		cfg.trust_fs = trusted;
		want(HERE, LEN, RP_MEM_FILE);
		cr_assert_eq(facts.fs_trusted, RP_YES);
	}
}

Test(caps, not_the_mapped_file)
{
	invent("ext4", "rw");
	put("/proc/self/maps", "00100000-00102000 rw-s 0 %02x:%02x %llu %s\n",
	    real.stx_dev_major, real.stx_dev_minor,
	    (unsigned long long)real.stx_ino + 1, real_path);
	want(HERE, LEN, RP_MEM_UNKNOWN);
	put("/proc/self/maps", "00100000-00102000 rw-s 0 %02x:%02x %llu %s\n",
	    real.stx_dev_major, real.stx_dev_minor + 1,
	    (unsigned long long)real.stx_ino, real_path);
	want(HERE, LEN, RP_MEM_UNKNOWN);
	put("/proc/self/maps", "00100000-00102000 rw-s 0 %02x:%02x %llu %s\n",
	    real.stx_dev_major + 1, real.stx_dev_minor,
	    (unsigned long long)real.stx_ino, real_path);
	want(HERE, LEN, RP_MEM_UNKNOWN);
	cr_assert_eq(rp_method_best(&facts, RP_METHODS_BUILT).refusal,
		     RP_REFUSAL_UNKNOWN);
	/*
	 * Nor is it the device that stat() shows that counts, but the one of
	 * the mount (btrfs subvolumes have a device each).
	 */
	put("/proc/self/maps", "00100000-00102000 rw-s 0 77:88 %llu %s\n",
	    (unsigned long long)real.stx_ino, real_path);
	put("/proc/self/mountinfo", "%llu 1 119:136 / / rw - btrfs d rw\n",
	    (unsigned long long)real.stx_mnt_id);
	want(HERE, LEN, RP_MEM_FILE);
	cr_assert_eq(facts.fs_trusted, RP_YES);
	/* Nothing to open at all, and nothing that is a file. */
	put("/proc/self/maps", "00100000-00102000 rw-s 0 08:01 5 /no/such\n");
	want(HERE, LEN, RP_MEM_UNKNOWN);
	put("/proc/self/maps", "00100000-00102000 rw-s 0 00:0e 5 "
			       "anon_inode:[io_uring]\n");
	want(HERE, LEN, RP_MEM_UNKNOWN);
	put("/proc/self/maps",
	    "00100000-00102000 rw-s 0 00:0e 5 /anon_hugepage (deleted)\n");
	want(HERE, LEN, RP_MEM_ANON);
}

static void smaps(const char *first, const char *second)
{
	put("/proc/self/smaps",
	    "000ff000-00100000 rw-s 0 08:01 5 /before\n"
	    "Size:                  4 kB\n"
	    "VmFlags: rd wr sh mr mw me ms \n"
	    "00100000-00101000 rw-s 00000000 08:01 5    /mnt/with sf in it\n"
	    "Size:                  4 kB\n"
	    "FilePmdMapped:         0 kB\n"
	    "VmFlags: %s\n"
	    "00101000-00102000 rw-s 00001000 08:01 5    /mnt/with sf in it\n"
	    "VmFlags: %s\n"
	    "00102000-00103000 rw-s 0 08:01 5 /behind\n"
	    "VmFlags: rd wr sh mr mw me ms sf \n",
	    first, second);
}

static void nd_region(const char *name, const char *domain)
{
	char path[256], full[2 * PATH_MAX], to[2 * PATH_MAX];
	static const char dev[] = "/sys/devices/ndbus0";

	if (domain) {
		sprintf(path, "%s/%s/persistence_domain", dev, name);
		put(path, "%s\n", domain);
	}
	sprintf(path, "%s/%s/namespace0.0/block/pmem0/dev", dev, name);
	put(path, "259:0\n");
	put("/sys/bus/nd/devices/namespace0.0", "not a region\n");
	sprintf(full, "%s/sys/bus/nd/devices/%s", dir, name);
	sprintf(to, "%s%s/%s", dir, dev, name);
	unlink(full);
	cr_assert_eq(symlink(to, full), 0);
}

/* Let the invented file's disk be the pmem0 of this region. */
static void disk_is(const char *name)
{
	char full[2 * PATH_MAX], to[2 * PATH_MAX];

	put("/sys/dev/block/x", " ");
	sprintf(full, "%s/sys/dev/block/%u:%u", dir, real.stx_dev_major,
		real.stx_dev_minor);
	sprintf(to, "../../devices/ndbus0/%s/namespace0.0/block/pmem0", name);
	unlink(full);
	cr_assert_eq(symlink(to, full), 0);
}

Test(caps, dax)
{
	claim_dax = true;
	invent("ext4", "rw,dax=always");
	smaps("rd wr sh mr mw me ms sf", "rd wr sh mr mw me ms sf");
	want(HERE, LEN, RP_MEM_DAX_SYNC);
	cr_assert_eq(facts.fs_trusted, RP_YES);
	cr_assert_eq(facts.domain, RP_DOMAIN_UNKNOWN);
	/* One piece without it is enough to need msync. */
	smaps("rd wr sh mr mw me ms sf", "rd wr sh mr mw me ms");
	want(HERE, LEN, RP_MEM_DAX);
	want(HERE, LEN / 2, RP_MEM_DAX_SYNC);
	smaps("rd wr sh mr mw me ms", "rd wr sh mr mw me ms sf");
	want(HERE, LEN, RP_MEM_DAX);
	smaps("rd wr sh mr mw me ms", "rd wr sh mr mw me ms");
	want(HERE, LEN, RP_MEM_DAX);
	put("/proc/self/smaps", "garbage\n");
	want(HERE, LEN, RP_MEM_DAX);
	/* A DAX file on a file system that nobody vouches for. */
	invent("virtiofs", "rw");
	want(HERE, LEN, RP_MEM_DAX);
	cr_assert_eq(facts.fs_trusted, RP_NO);
	/* Not DAX: the flag alone does not make it so. */
	claim_dax = false;
	invent("ext4", "rw");
	smaps("rd wr sh mr mw me ms sf", "rd wr sh mr mw me ms sf");
	want(HERE, LEN, RP_MEM_FILE);
}

Test(caps, persistence_domain)
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

	invent("ext4", "rw");
	smaps("rd wr sf", "rd wr sf");
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		nd_region("region0", t[i].word);
		disk_is("region0");
		claim_dax = true;
		want(HERE, LEN, RP_MEM_DAX_SYNC);
		cr_assert_eq(facts.domain, t[i].domain, "%s", t[i].word);
		/* An ordinary file on that disk goes through the cache. */
		claim_dax = false;
		want(HERE, LEN, RP_MEM_FILE);
		cr_assert_eq(facts.domain, RP_DOMAIN_UNKNOWN);
	}
	/* A region that does not say, next to one that does. */
	claim_dax = true;
	nd_region("region1", NULL);
	disk_is("region1");
	nd_region("region0", "cpu_cache");
	want(HERE, LEN, RP_MEM_DAX_SYNC);
	cr_assert_eq(facts.domain, RP_DOMAIN_UNKNOWN);
}

Test(caps, devdax)
{
	char full[2 * PATH_MAX];
	struct stat st;

	invent("devtmpfs", "rw");
	cr_assert_eq(stat("/dev/null", &st), 0);
	cr_assert_eq(
		__real_statx(AT_FDCWD, "/dev/null", 0, STATX_MNT_ID, &real), 0);
	put("/proc/self/mountinfo", "%llu 1 0:5 / /dev rw - devtmpfs d rw\n",
	    (unsigned long long)real.stx_mnt_id);
	put("/proc/self/maps", "00100000-00102000 rw-s 0 00:05 %lu /dev/null\n",
	    st.st_ino);
	/* Any other device gives no promise. */
	want(HERE, LEN, RP_MEM_UNKNOWN);
	nd_region("region0", "memory_controller");
	put("/sys/devices/ndbus0/region0/dax0.0/dax/size", "1\n");
	put("/sys/dev/char/x", " ");
	sprintf(full, "%s/sys/dev/char/1:3", dir);
	cr_assert_eq(symlink("../../devices/ndbus0/region0/dax0.0", full), 0);
	want(HERE, LEN, RP_MEM_UNKNOWN);
	sprintf(full, "%s/sys/devices/ndbus0/region0/dax0.0/subsystem", dir);
	cr_assert_eq(symlink("../../../../bus/daxter", full), 0);
	want(HERE, LEN, RP_MEM_UNKNOWN);
	unlink(full);
	cr_assert_eq(symlink("../../../../bus/dax", full), 0);
	want(HERE, LEN, RP_MEM_DAX_SYNC);
	cr_assert_eq(facts.domain, RP_DOMAIN_MEMCTRL);
	cr_assert_eq(facts.fs_trusted, RP_YES);
	cr_assert_str_eq(facts.fs_name, "");
	cr_assert_eq(rp_method_best(&facts, RP_METHODS_BUILT).method,
		     RP_METHOD_AGENT_CLWB);
}

Test(caps, forced_granularity)
{
	static const struct {
		const char *value;
		bool counts;
	} t[] = {{"BYTE", true},  {"cache_line", true}, {"CACHE_LINE", true},
		 {"PAGE", false}, {"", false},		{"yes", false}};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		enum rp_memory forced =
			t[i].counts ? RP_MEM_EMULATED : RP_MEM_FILE;

		setenv("PMEM2_FORCE_GRANULARITY", t[i].value, 1);
		invent("ext4", "rw");
		cfg.allow_force_granularity = false;
		want(HERE, LEN, RP_MEM_FILE);
		cr_assert_eq(rp_method_best(&facts, RP_METHODS_BUILT).class,
			     RP_CLASS_POWER);
		cfg.allow_force_granularity = true;
		want(HERE, LEN, forced);
		if (t[i].counts)
			cr_assert_eq(
				rp_method_best(&facts, RP_METHODS_BUILT).class,
				RP_CLASS_NONE);
		invent("tmpfs", "rw");
		want(HERE, LEN, t[i].counts ? RP_MEM_EMULATED : RP_MEM_TMPFS);
		/* Never memory that nobody shares. */
		cfg.root = NULL;
		want(map(-1, page, MAP_PRIVATE | MAP_ANONYMOUS), page,
		     RP_MEM_ANON);
		want(map(make_file("p", page), page, MAP_PRIVATE), page,
		     RP_MEM_PRIVATE);
	}
}

Test(caps, broken_maps)
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
		/* a hole in the middle of a page */
		("00100000-00101000 rw-p 0 00:00 0\n"
		 "00101800-00102000 rw-p 0 00:00 0\n"),
	};

	cfg.root = dir;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		put("/proc/self/maps", "%s", bad[i]);
		cr_assert_lt(look(HERE, LEN), 0, "%zu", i);
	}
	/* Overlaps, as when mappings are joined while they are read. */
	put("/proc/self/maps", "00100000-00101000 rw-p 0 00:00 0\n"
			       "00100000-00102000 rw-p 0 00:00 0\n");
	want(HERE, LEN, RP_MEM_ANON);
	cfg.root = "/no/such/folder";
	want_err(HERE, LEN, -ENOENT, "/proc/self/maps");
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

Test(caps, many_mappings)
{
	char path[2 * PATH_MAX];
	unsigned long at = 0x10000;
	double begun;
	FILE *f;

	/* As many as the kernel allows by default, ours last and in pieces. */
	invent("ext4", "rw");
	sprintf(path, "%s/proc/self/maps", dir);
	f = fopen(path, "w");
	for (int i = 0; i < 65530; i++, at += 0x2000)
		fprintf(f, "%08lx-%08lx rw-p 00000000 00:00 0 \n", at,
			at + 0x1000);
	cr_assert_eq(truncate(real_path, 0x1000 * 10000), 0);
	for (int i = 0; i < 10000; i++)
		fprintf(f, "%08lx-%08lx rw-s %08x %02x:%02x %llu    %s\n",
			at + i * 0x1000ul, at + i * 0x1000ul + 0x1000,
			i * 0x1000, real.stx_dev_major, real.stx_dev_minor,
			(unsigned long long)real.stx_ino, real_path);
	fclose(f);
	begun = seconds();
	looks = 0;
	want((void *)at, 0x1000 * 10000, RP_MEM_FILE);
	begun = seconds() - begun;
	cr_assert_lt(begun, 1.0, "took %.3f s", begun);
	cr_assert_leq(looks, 2, "looked %zu times at one file", looks);
	want_err((void *)at, 0x1000 * 10000 + 1, -EFAULT, "mapped");
}

/* The host. */
Test(caps, host_here)
{
	struct rlimit lim = {.rlim_cur = 65536};
	struct rp_host host;
	char line[8192];
	FILE *f;

	cfg.root = NULL;
	cr_assert_eq(getrlimit(RLIMIT_MEMLOCK, &lim), 0);
	lim.rlim_cur = 65536;
	cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &lim), 0);
	cr_assert_eq(rp_caps_host(&cfg, &host), 0);
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

Test(caps, host_with_persistent_memory)
{
	struct rp_host host;

	cfg.root = dir;
	cr_assert_eq(rp_caps_host(&cfg, &host), 0);
	cr_assert_not(host.has_nd);
	cr_assert_eq(host.domain, RP_DOMAIN_UNKNOWN);
	nd_region("region0", "cpu_cache");
	cr_assert_eq(rp_caps_host(&cfg, &host), 0);
	cr_assert(host.has_nd);
	cr_assert_eq(host.domain, RP_DOMAIN_CPUCACHE);
	/* The weakest counts, wherever it is found. */
	nd_region("region1", "memory_controller");
	nd_region("region2", "cpu_cache");
	cr_assert_eq(rp_caps_host(&cfg, &host), 0);
	cr_assert_eq(host.domain, RP_DOMAIN_MEMCTRL);
	nd_region("region3", NULL);
	cr_assert_eq(rp_caps_host(&cfg, &host), 0);
	cr_assert_eq(host.domain, RP_DOMAIN_UNKNOWN);
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
