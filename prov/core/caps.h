/* SPDX-License-Identifier: BSD-2-Clause */
/* What a region of memory and the host it lives on can promise. */
#ifndef RP_CAPS_H
#define RP_CAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The failures that bytes survive, weakest first: an ordered list. */
enum rp_class {
	RP_CLASS_NONE = 0,    /* dies with its process */
	RP_CLASS_PROCESS = 1, /* survives the process, not the machine */
	RP_CLASS_POWER = 2,   /* survives a power cut */
};

/* What backs a region. */
enum rp_memory {
	RP_MEM_UNKNOWN = 0,
	RP_MEM_ANON,	/* anonymous; memfd, unlinked file: no name leads there
			 */
	RP_MEM_PRIVATE, /* private file mapping: msync returns 0, writes nothing
			 */
	RP_MEM_TMPFS,	/* a file on tmpfs (POSIX shared memory), hugetlbfs */
	RP_MEM_FILE,	/* page cache of a file */
	RP_MEM_DAX,	/* DAX without MAP_SYNC */
	RP_MEM_DAX_SYNC, /* DAX with MAP_SYNC, or devdax */
	RP_MEM_EMULATED, /* anonymous or tmpfs: emulates cache-line pmem */
};

/* Who places an incoming write, and where. */
enum rp_placement {
	RP_PLACE_UNKNOWN = 0,
	RP_PLACE_CPU_USER,   /* stores through the user's mapping: tcp, shm */
	RP_PLACE_CPU_KERNEL, /* stores through kernel mappings: rxe, siw */
	RP_PLACE_DMA_CACHE,  /* DMA into the last-level cache: DDIO on */
	RP_PLACE_DMA_MEMORY, /* DMA to the memory controller: DDIO off */
};

/* How far bytes must get to survive a power cut. */
enum rp_domain {
	RP_DOMAIN_UNKNOWN = 0,
	RP_DOMAIN_NONE,
	RP_DOMAIN_MEMCTRL,  /* ADR */
	RP_DOMAIN_CPUCACHE, /* eADR */
	RP_DOMAIN_SYSTEM,   /* battery-backed whole system */
};

enum rp_tri {
	RP_UNKNOWN = 0,
	RP_NO,
	RP_YES,
};

/* Which file; ino 0: none. Two regions of one file share its write-back. */
struct rp_file_id {
	uint64_t dev;
	uint64_t ino;
};

/* The strongest class that the operator allows; zero is no limit. */
enum rp_class_limit {
	RP_LIMIT_POWER = 0,
	RP_LIMIT_PROCESS,
	RP_LIMIT_NONE,
};

/* The facts of one region, as section 3 of the design lists them. */
struct rp_facts {
	enum rp_memory memory;
	enum rp_placement placement;
	enum rp_domain domain;
	enum rp_tri fence;  /* a read forces earlier writes out */
	enum rp_tri native; /* persistent FLUSH on both ends and the region */
	enum rp_tri
		fs_trusted; /* file system listed, or named by the operator */
	bool agent;	    /* our part runs in the target process */
	char fs_name[32];   /* "ext4", "overlay", ...; "" where none */
	struct rp_file_id file; /* of a page-cache or DAX file or devdax */
	bool anonymous;		/* no file, which could be cut short */
	/* The operator's: no commit reaches more, whatever the rest says. */
	enum rp_class_limit limit;
	int node; /* NUMA node of the memory plus 1; 0: not known */
};

#define RP_WHY_LEN    256
#define RP_SOURCE_LEN 160

/* Where each fact came from, for people; "" where it says nothing. */
struct rp_sources {
	char memory[RP_SOURCE_LEN];
	char placement[RP_SOURCE_LEN];
	char domain[RP_SOURCE_LEN];
	char fence[RP_SOURCE_LEN];
	char native[RP_SOURCE_LEN];
	char fs[RP_SOURCE_LEN];
	char limit[RP_SOURCE_LEN];
	unsigned int raised; /* facts that the operator made stronger */
};
struct rp_operator;

/* What the operator says and where to look; NULL strings mean the default. */
struct rp_caps_cfg {
	const char *root; /* prefix of /proc and /sys, for tests; NULL: "" */
	const char *trust_fs; /* extra file system names, comma separated */
	bool emulate;	      /* anonymous and tmpfs play cache-line pmem */
	bool allow_force_granularity; /* honour PMEM2_FORCE_GRANULARITY */
	/* Of the base provider and its adapter; why: where that is known from.
	 */
	enum rp_placement placement;
	enum rp_tri fence, native;
	const char *placement_why, *fence_why, *native_why;
	const struct rp_operator *op; /* statements; NULL: none */
};

/*
 * Find out what backs [addr, addr+len) of this process. Every byte must be
 * backed by the same kind of mapping, of one file where there are files,
 * readable and writable, and lie before the end of its file; a mix is refused.
 *
 * Returns 0 and fills *facts, or -EINVAL (empty or wrapping range), -EFAULT
 * (not mapped, not readable and writable, or behind the end of the file),
 * -ENOTSUP (mixed backing), -errno of /proc. Memory that gives no promise at
 * all is no error here: rp_method_choose() refuses it. why (RP_WHY_LEN bytes,
 * may be NULL) gets one sentence in either case: what was found and where, or
 * what is wrong and the remedy; plain ASCII, no folder names: peers may read
 * it. Reads /proc/self/maps and mountinfo, and for DAX smaps and sysfs.
 */
int rp_caps_region(const struct rp_caps_cfg *cfg, const void *addr, size_t len,
		   struct rp_facts *facts, char *why);
/* The same, and on success also where each fact came from. */
int rp_caps_explain(const struct rp_caps_cfg *cfg, const void *addr, size_t len,
		    struct rp_facts *facts, char *why, struct rp_sources *src);

/* What a range was meant for, by what is mapped there. */
enum rp_lasts {
	RP_LASTS_NOT,	/* nothing there outlives its process */
	RP_LASTS_MAYBE, /* tmpfs, or what emulates persistent memory */
	RP_LASTS_MEANT, /* a file, a device, or what nothing is known of */
};

/*
 * The most that any page of [addr, addr+len) was meant for; only what is shared
 * and writable counts, and what has a name. Holes are none. 0, -EINVAL (empty
 * or wrapping range) or -errno of /proc; why as above, on an error.
 */
int rp_caps_lasts(const struct rp_caps_cfg *cfg, const void *addr, size_t len,
		  enum rp_lasts *lasts, char *why);

/* Memory whose registration did not ask for persistence, and may have it. */
enum rp_unasked {
	RP_UNASKED_ORDINARY,
	RP_UNASKED_PERSISTENT,
	RP_UNASKED_REFUSED,
};
/* reached: the class of the whole range; fit: it may be persistent at all. */
enum rp_unasked rp_caps_unasked(enum rp_lasts lasts, bool fit,
				enum rp_class reached, enum rp_class required);

/*
 * Local file systems whose msync reaches the disk, by name: ext2, ext3, ext4,
 * xfs, btrfs, f2fs, ... "overlay", "fuse", "nfs" and unknown ones are not.
 */
bool rp_caps_fs_listed(const char *fs_name);

/*
 * The name of the file system that holds fd, as the mount table has it. Returns
 * 0, -EBADF, -ENOENT (not known), -ENAMETOOLONG (len is too small).
 */
int rp_caps_fs_name(int fd, char *name, size_t len);

/* Facts about the host alone, for fi_rpmem_info. */
struct rp_host {
	enum rp_domain domain; /* weakest of the nd regions; UNKNOWN if none */
	bool has_nd;	       /* there is a persistent memory region */
	bool clwb, clflushopt, clflush, movdir64b;
	uint64_t memlock; /* RLIMIT_MEMLOCK, bytes; UINT64_MAX: no limit */
};
int rp_caps_host(const struct rp_caps_cfg *cfg, struct rp_host *host);

/*
 * The adapter behind an RDMA device ("mlx5_0", as /sys/class/infiniband names
 * it). What software drives (rxe, siw) is no adapter: it copies by CPU through
 * the kernel's mapping.
 */
struct rp_nic {
	char pci[16];	  /* "0000:18:00.0"; "": none */
	char port[16];	  /* the root port above it */
	enum rp_tri ddio; /* its writes go into the last-level cache */
	enum rp_placement placement;
	enum rp_tri fence;
	int node; /* NUMA node plus 1; 0: not known */
	char placement_why[RP_SOURCE_LEN];
	char fence_why[RP_SOURCE_LEN];
};
/* 0, -ENODEV (no such device), -EINVAL (no device's name). */
int rp_caps_nic(const char *root, const char *device, struct rp_nic *nic);
/*
 * What is known of the writes of a base provider ("tcp", "verbs") over a device
 * (its domain's name). Never fails: what nothing is known of stays unknown.
 */
void rp_caps_base(const char *root, const char *base, const char *device,
		  struct rp_nic *nic);

/*
 * Does the success of a write to a base's device say that the other side has
 * it? Reliable connections of InfiniBand and RoCE acknowledge; over iWARP it
 * only says that the bytes are in the sender's TCP. Devices that cannot be
 * looked at: no. why: RP_SOURCE_LEN bytes.
 */
bool rp_caps_acknowledges(const char *root, const char *base,
			  const char *device, char *why);

const char *rp_class_name(enum rp_class c);	     /* "none", ... */
int rp_class_parse(const char *s, enum rp_class *c); /* 0 or -EINVAL */
/* Is it a device, which nothing cuts short and which has all its blocks? */
bool rp_facts_device(const struct rp_facts *f);

const char *rp_memory_name(enum rp_memory m);
const char *rp_placement_name(enum rp_placement p);
const char *rp_domain_name(enum rp_domain d);
const char *rp_tri_name(enum rp_tri t); /* "unknown", "no", "yes" */

#endif
