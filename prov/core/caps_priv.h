/* SPDX-License-Identifier: BSD-2-Clause */
/* Declarations for caps*.c and watch.c only. */
#ifndef RP_CAPS_PRIV_H
#define RP_CAPS_PRIV_H

#include <stdint.h>
#include <stdio.h>

#include "core/caps.h"
#include "core/watch.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* The file system behind a descriptor. */
struct rp_fs {
	char name[32];		   /* as in mountinfo; "": unknown */
	unsigned int major, minor; /* as in the process map */
	/*
	 * Does fsync flush the disk's cache? Unknown: a chroot hides mounts, or
	 * an XFS has devices besides source, which nobody examines.
	 */
	enum rp_tri barriers;
	char source[256]; /* its device; or the upper folder of an overlay */
};

/* Find the file system of fd. What cannot be determined stays unknown. */
void rp_caps_find_fs(const char *root, int fd, struct rp_fs *fs);
/* Does the operator vouch for the file system, by its name in trust_fs? */
bool rp_caps_fs_vouched(const struct rp_fs *fs, const char *trust_fs);
/* Is the file system listed and known to flush, or vouched for? */
bool rp_caps_fs_trusted(const struct rp_fs *fs, const char *trust_fs);
/* Do what rp_caps_walk_disks() does, for devices of a known file system. */
bool rp_fs_walk_disks(struct rp_disk_walk *w, const struct rp_fs *fs);
/* Do files of this file system outlive their process, but not the machine? */
bool rp_caps_fs_in_memory(const char *name);

/* Cut .../region0/namespace0.0/block/pmem0 behind region0; false: no region. */
bool rp_caps_climb_to_region(char *dir);
/*
 * The persistence domain that the region in this folder and its DIMMs state;
 * why: its source, RP_SOURCE_LEN bytes.
 */
enum rp_domain rp_caps_nd_domain(const char *dir, char *why);
/* The weakest domain that the DIMMs state; why, of NONE: which DIMM, and why.
 */
enum rp_domain rp_caps_dimms_domain(const char *dir, char *why);
/* NUMA node in the numa_node file of a device's folder, plus 1; 0: unknown. */
int rp_caps_read_node(const char *dir);

/* Format into text, '?' for bytes that are not plain ASCII. May be NULL. */
void rp_caps_fmt(char *text, size_t len, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* One line of /proc/self/maps. */
struct rp_vma {
	unsigned long start, end;
	char perms[5];
	unsigned long long offset;
	unsigned int major, minor;
	unsigned long long ino;
	char *path, *line; /* path points into the line, which is malloced */
	size_t size;
};

/* Read the next mapping that ends behind addr: 1, 0 (no more), or -errno. */
int rp_caps_vma_next(FILE *f, uintptr_t addr, struct rp_vma *v, char *why);

/* The file or device behind a mapping, and its facts. */
struct rp_backing {
	unsigned int major, minor; /* the file's; all 0: no file */
	unsigned long long ino;
	char sharing; /* 's' or 'p', from the map */
	enum rp_memory memory;
	enum rp_domain domain;
	enum rp_tri trusted;
	struct rp_fs fs;
	uint64_t size; /* bytes of the file; UINT64_MAX: it has no end */
	char why[RP_WHY_LEN];
	char domain_why[RP_SOURCE_LEN];
	struct rp_disk_walk disks;
	int node;	 /* NUMA node plus 1; 0: unknown */
	char device[32]; /* name of a device DAX */
	char path[4097]; /* as in the map; "": none */
};

/*
 * Find what lies behind v. On entry *b is the backing of the previous mapping:
 * a file mapped in many pieces is examined once.
 */
void rp_caps_classify(const struct rp_caps_cfg *cfg, const struct rp_vma *v,
		      struct rp_backing *b);
/* Change b to emulated persistent memory, if cfg says so. */
void rp_caps_emulate(const struct rp_caps_cfg *cfg, struct rp_backing *b);
/* The last component of a path. */
const char *rp_caps_file_name(const char *path);
bool rp_caps_ends_with(const char *s, const char *end);
/* The kernel appends this to the name of a deleted file. */
#define DELETED " (deleted)"

/* Open the file root + path for reading. */
FILE *rp_caps_open(const char *root, const char *path);

#endif
