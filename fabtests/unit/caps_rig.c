// SPDX-License-Identifier: BSD-2-Clause
/*
 * For tests of caps*.c: reads the facts of memory, and makes false /proc and
 * /sys trees.
 */
#include "config.h"

#include <fcntl.h>
#include <ftw.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "caps_rig.h"
size_t page;
char dir[PATH_MAX]; /* the test's folder, removed after it */
struct rp_caps_cfg cfg = {.placement = RP_PLACE_CPU_USER};
struct rp_facts facts;
char why[RP_WHY_LEN];

static int remove_one(const char *path, const struct stat *st, int type,
		      struct FTW *ftw)
{
	return remove(path);
}

void caps_setup(void)
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

void caps_teardown(void)
{
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int read_facts(const void *addr, size_t len)
{
	int ret = rp_caps_explain(&cfg, addr, len, &facts, why, NULL);

	cr_assert_str_neq(why, "untouched");
	for (const char *p = why; *p; p++)
		cr_assert(*p >= ' ' && *p <= '~', "%s", why);
	return ret;
}

void expect_found(const void *addr, size_t len, enum rp_memory memory)
{
	int ret = read_facts(addr, len);

	cr_assert_eq(ret, 0, "%s: %s", strerror(-ret), why);
	cr_assert_eq(facts.memory, memory, "%s, not %s: %s",
		     rp_memory_name(facts.memory), rp_memory_name(memory), why);
	cr_assert(facts.agent);
	cr_assert_eq(facts.placement, cfg.placement);
	cr_assert_eq(facts.fence, RP_UNKNOWN);
	cr_assert_eq(facts.native, RP_UNKNOWN);
}

void expect_err(const void *addr, size_t len, int err, const char *word)
{
	struct rp_facts before = facts;
	int ret = read_facts(addr, len);

	cr_assert_eq(ret, err, "%d, not %d: %s", ret, err, why);
	cr_assert(strstr(why, word), "%s", why);
	cr_assert_arr_eq(&facts, &before, sizeof(facts));
}

/*
 * Create a file of len bytes in dir (or at this full path); returns its
 * descriptor. The file is removed after the test.
 */
int make_file(const char *name, size_t len)
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

char *map(int fd, size_t len, int flags)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, fd, 0);

	cr_assert_neq(p, MAP_FAILED);
	return p;
}

/* The memory kind of a file in dir depends on the file system of the tests. */
enum rp_memory file_here(void)
{
	struct statfs s;

	cr_assert_eq(statfs(dir, &s), 0);
	return s.f_type == TMPFS_MAGIC ? RP_MEM_TMPFS : RP_MEM_FILE;
}

/*
 * Invented /proc and /sys trees. The process map names a real file, so that its
 * identity is valid; statx is wrapped, so that the file can claim to be in DAX
 * state.
 */
bool claim_dax;
size_t nstatx;

int __real_statx(int, const char *, int, unsigned int, struct statx *);
int __wrap_statx(int, const char *, int, unsigned int, struct statx *);

int __wrap_statx(int fd, const char *path, int flags, unsigned int mask,
		 struct statx *sx)
{
	int ret = __real_statx(fd, path, flags, mask, sx);

	nstatx++;
	if (claim_dax)
		sx->stx_attributes |= STATX_ATTR_DAX;
	return ret;
}

void write_tree(const char *path, const char *fmt, ...)
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

struct statx real_statx; /* statx result of the invented file */
char real_path[2 * PATH_MAX];

/* Write a process map with the file at HERE, on a mount of this type. */
void invent_file(const char *type, const char *opts)
{
	close(make_file("pool", LEN));
	sprintf(real_path, "%s/pool", dir);
	cr_assert_eq(__real_statx(AT_FDCWD, real_path, 0,
				  STATX_BASIC_STATS | STATX_MNT_ID,
				  &real_statx),
		     0);
	write_tree("/proc/self/maps",
		   "00100000-00102000 rw-s 00000000 %02x:%02x %llu"
		   "     %s\n",
		   real_statx.stx_dev_major, real_statx.stx_dev_minor,
		   (unsigned long long)real_statx.stx_ino, real_path);
	write_tree("/proc/self/mountinfo",
		   "1 0 0:1 / /proc rw - proc proc rw\n"
		   "%llu 1 %u:%u / /mnt\\040- x rw,relatime shared:1 - %s "
		   "/dev/d %s\n"
		   "%llu 1 0:99 / /other rw - sysfs s rw\n",
		   (unsigned long long)real_statx.stx_mnt_id,
		   real_statx.stx_dev_major, real_statx.stx_dev_minor, type,
		   opts, (unsigned long long)real_statx.stx_mnt_id + 1);
	cfg.root = dir;
}

void invent_on(unsigned int major, unsigned int minor, const char *type,
	       const char *source, const char *opts)
{
	invent_file(type, opts);
	write_tree("/proc/self/maps",
		   "00100000-00102000 rw-s 00000000 %02x:%02x %llu     %s\n",
		   major, minor, (unsigned long long)real_statx.stx_ino,
		   real_path);
	write_tree("/proc/self/mountinfo", "%llu 1 %u:%u / / rw - %s %s %s\n",
		   (unsigned long long)real_statx.stx_mnt_id, major, minor,
		   type, source, opts);
}

void link_tree(const char *path, const char *to)
{
	char full[2 * PATH_MAX], target[2 * PATH_MAX];

	sprintf(full, "%s/x", path);
	write_tree(full, "\n");
	sprintf(full, "%s%s/x", dir, path);
	unlink(full);
	sprintf(full, "%s%s", dir, path);
	cr_assert_eq(rmdir(full), 0);
	sprintf(target, "%s%s", dir, to);
	cr_assert_eq(symlink(target, full), 0);
}

void disk_device(const char *folder, const char *cache, const char *fua)
{
	char path[PATH_MAX];

	sprintf(path, "%s/size", folder);
	write_tree(path, "1\n");
	sprintf(path, "%s/queue/write_cache", folder);
	if (cache)
		write_tree(path, "%s\n", cache);
	sprintf(path, "%s/queue/fua", folder);
	if (fua)
		write_tree(path, "%s\n", fua);
}

void nd_region(const char *name, const char *domain)
{
	char path[256], full[2 * PATH_MAX], to[2 * PATH_MAX];
	static const char dev[] = "/sys/devices/ndbus0";

	if (domain) {
		sprintf(path, "%s/%s/persistence_domain", dev, name);
		write_tree(path, "%s\n", domain);
	}
	sprintf(path, "%s/%s/namespace0.0/block/pmem0/dev", dev, name);
	write_tree(path, "259:0\n");
	write_tree("/sys/bus/nd/devices/namespace0.0", "not a region\n");
	sprintf(full, "%s/sys/bus/nd/devices/%s", dir, name);
	sprintf(to, "%s%s/%s", dir, dev, name);
	unlink(full);
	cr_assert_eq(symlink(to, full), 0);
}

/* Link /sys/class/infiniband/NAME to this folder. */
void nic_device(const char *name, const char *folder)
{
	char link[2 * PATH_MAX], to[3 * PATH_MAX];

	sprintf(to, "%s/infiniband/%s/x", folder, name);
	write_tree(to, "\n");
	write_tree("/sys/class/infiniband/x", "\n");
	sprintf(link, "%s/sys/class/infiniband/%s", dir, name);
	sprintf(to, "%s%s/infiniband/%s", dir, folder, name);
	unlink(link);
	cr_assert_eq(symlink(to, link), 0);
}

/* Make a root port with these IDs and registers; len: readable config bytes. */
void nic_port(unsigned int vendor, unsigned int id, uint32_t p0, uint32_t p1,
	      size_t len)
{
	unsigned char config[4096] = {0};
	char full[2 * PATH_MAX];
	int fd;

	for (int i = 0; i < 4; i++) {
		config[0x180 + i] = p0 >> (8 * i);
		config[0x184 + i] = p1 >> (8 * i);
	}
	write_tree(NIC_PORT "/vendor", "0x%04x\n", vendor);
	write_tree(NIC_PORT "/device", "0x%04x\n", id);
	sprintf(full, "%s%s/config", dir, NIC_PORT);
	fd = open(full, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	cr_assert_eq(write(fd, config, len), (ssize_t)len);
	close(fd);
}
