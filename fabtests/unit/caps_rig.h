/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For tests of caps*.c: reads the facts of memory, and makes false /proc and
 * /sys trees.
 */
#ifndef RP_TEST_CAPS_RIG_H
#define RP_TEST_CAPS_RIG_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "core/caps.h"

extern size_t page;
extern char dir[PATH_MAX];     /* the test's folder, removed after it */
extern struct rp_caps_cfg cfg; /* configuration of read_facts() */
/* Result of the last read_facts(). */
extern struct rp_facts facts;
extern char why[RP_WHY_LEN];

void caps_setup(void);
void caps_teardown(void);

int read_facts(const void *addr, size_t len);
/*
 * Check that read_facts() finds this kind of memory; or that it fails with err,
 * and that `why` has the word.
 */
void expect_found(const void *addr, size_t len, enum rp_memory memory);
void expect_err(const void *addr, size_t len, int err, const char *word);

/*
 * Create a file of len bytes in dir (or at this full path); returns its
 * descriptor. The file is removed after the test.
 */
int make_file(const char *name, size_t len);
char *map(int fd, size_t len, int flags);
/* The memory kind of a file in dir depends on the file system of the tests. */
enum rp_memory file_here(void);

/*
 * False /proc and /sys trees. The false process map names a real file, whose
 * identity is valid. statx() is wrapped, so that the file can claim to be DAX
 * (claim_dax).
 */
#define HERE ((void *)0x100000)
#define LEN  0x2000

extern bool claim_dax;
extern size_t nstatx;		/* number of statx calls */
extern struct statx real_statx; /* statx result of the invented file */
extern char real_path[2 * PATH_MAX];

/* Write a file of the tree in dir. */
void write_tree(const char *path, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Write a process map with the file at HERE, on a mount of this type. */
void invent_file(const char *type, const char *opts);
/* Like invent_file(), with this device number and this source of the mount. */
void invent_on(unsigned int major, unsigned int minor, const char *type,
	       const char *source, const char *opts);
/* Link a path of the tree in dir to another path of that tree. */
void link_tree(const char *path, const char *to);
/*
 * Make a disk in this folder. cache, fua: contents of its queue/write_cache and
 * queue/fua; NULL: no such file.
 */
void disk_device(const char *folder, const char *cache, const char *fua);
/* The sysfs path of an adapter below a root port. */
#define NIC_PORT     "/sys/devices/pci0000:17/0000:17:00.0"
#define NIC_FUNCTION NIC_PORT "/0000:18:00.1"

/* Link /sys/class/infiniband/NAME to this folder. */
void nic_device(const char *name, const char *folder);
/*
 * Make a PCI root port with these IDs and registers. len: bytes of config space
 * that can be read.
 */
void nic_port(unsigned int vendor, unsigned int id, uint32_t p0, uint32_t p1,
	      size_t len);

/* Make an nd region with pmem0; domain NULL: no persistence_domain file. */
void nd_region(const char *name, const char *domain);

#endif
