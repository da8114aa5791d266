/* SPDX-License-Identifier: BSD-2-Clause */
/* Facts of a memory region and its machine, which choose its method. */
#ifndef RP_CAPS_H
#define RP_CAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The failures that bytes survive: a greater value survives more. */
enum rp_class {
	RP_CLASS_NONE = 0,    /* lost with the process */
	RP_CLASS_PROCESS = 1, /* survives the process, not the machine */
	RP_CLASS_POWER = 2,   /* survives a power cut */
};

/* The kind of memory that backs a region. */
enum rp_memory {
	RP_MEM_UNKNOWN = 0,
	RP_MEM_ANON,	 /* anonymous, memfd, unlinked file: it has no name */
	RP_MEM_PRIVATE,	 /* private file mapping: msync writes nothing */
	RP_MEM_TMPFS,	 /* a file on tmpfs (POSIX shared memory), hugetlbfs */
	RP_MEM_FILE,	 /* page cache of a file */
	RP_MEM_DAX,	 /* DAX without MAP_SYNC */
	RP_MEM_DAX_SYNC, /* DAX with MAP_SYNC, or devdax */
	RP_MEM_EMULATED, /* anonymous or tmpfs that emulates cache-line pmem */
};

/* The component that places an incoming write, and its destination. */
enum rp_placement {
	RP_PLACE_UNKNOWN = 0,
	RP_PLACE_CPU_USER,   /* stores through the user's mapping: tcp, shm */
	RP_PLACE_CPU_KERNEL, /* stores through kernel mappings: rxe, siw */
	RP_PLACE_DMA_CACHE,  /* DMA into the last-level cache: DDIO on */
	RP_PLACE_DMA_MEMORY, /* DMA to the memory controller: DDIO off */
};

/* The persistence domain: how far bytes must get to survive a power cut. */
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

/* File identity; ino 0: no file. Regions of one file share its write-back. */
struct rp_file_id {
	uint64_t dev;
	uint64_t ino;
};

/* The strongest class that the operator allows; 0: no limit. */
enum rp_class_limit {
	RP_LIMIT_POWER = 0,
	RP_LIMIT_PROCESS,
	RP_LIMIT_NONE,
};

/* The facts of one region that choose its method. */
struct rp_facts {
	enum rp_memory memory;
	enum rp_placement placement;
	enum rp_domain domain;
	enum rp_tri fence;  /* a read pushes writes out of the NIC */
	enum rp_tri native; /* both ends and the region have persistent FLUSH */
	enum rp_tri fs_trusted; /* listed, or trusted by the operator */
	bool agent;		/* an agent runs in the target process */
	char fs_name[32];	/* "ext4", "overlay", ...; "": no file system */
	struct rp_file_id file; /* the mapped file, or devdax */
	bool anonymous;		/* no file that can be truncated */
	/* The highest class: set by the operator, or as a disk loses bytes. */
	enum rp_class_limit limit;
	int node;	   /* NUMA node of the memory plus 1; 0: unknown */
	char name[256];	   /* file name without folder; "": none */
	unsigned int path; /* hash of the file's path */
};

#define RP_WHY_LEN    256
#define RP_SOURCE_LEN 160

/* The source of each fact, for people; "": the fact has no source. */
struct rp_sources {
	char memory[RP_SOURCE_LEN];
	char placement[RP_SOURCE_LEN];
	char domain[RP_SOURCE_LEN];
	char fence[RP_SOURCE_LEN];
	char native[RP_SOURCE_LEN];
	char fs[RP_SOURCE_LEN];
	char limit[RP_SOURCE_LEN];
	unsigned int raised; /* facts that the operator has made stronger */
};
struct rp_operator;
struct rp_nic;

/* The operator's settings, and where to read facts; NULL: the default. */
struct rp_caps_cfg {
	const char *root; /* prefix of /proc and /sys, for tests; NULL: "" */
	const char *trust_fs; /* extra file system names, comma separated */
	bool emulate; /* anonymous memory and tmpfs emulate cache-line pmem */
	/* For rp_caps_find(): base provider, its device, operator's file. */
	const char *base, *device, *op_file;
	/* Facts of the base provider and the NIC; the source of each. */
	enum rp_placement placement;
	enum rp_tri fence, native;
	const char *placement_why, *fence_why, *native_why;
	const struct rp_operator *op; /* statements; NULL: none */
};

/*
 * Find out what backs [addr, addr+len) of this process. Every byte must be
 * backed by the same kind of mapping, of one file if there are files, readable
 * and writable, and lie before the end of its file; a mix is refused.
 *
 * Returns 0 and fills in *facts, or -EINVAL (empty or wrapping range), -EFAULT
 * (not mapped, not readable and writable, or behind the end of the file),
 * -ENOTSUP (mixed backing), -errno of /proc. Memory that promises nothing is no
 * error here: rp_method_choose() refuses it. why (RP_WHY_LEN bytes, may be
 * NULL) gets one sentence in either case: what was found and where, or what is
 * wrong and the remedy; plain ASCII, no folder names: peers may read it. Reads
 * /proc/self/maps and mountinfo, and for DAX smaps and sysfs. src: on success
 * the source of each fact; may be NULL.
 */
int rp_caps_explain(const struct rp_caps_cfg *cfg, const void *addr, size_t len,
		    struct rp_facts *facts, char *why, struct rp_sources *src);
/*
 * As rp_caps_explain(), with the facts of cfg->base and the statements of the
 * operator's file, which is read anew. An error of that file is returned, too.
 * src and nic may be NULL.
 */
int rp_caps_find(struct rp_caps_cfg cfg, const void *addr, size_t len,
		 struct rp_facts *facts, char *why, struct rp_sources *src,
		 struct rp_nic *nic);
/* Settings of the FI_OFI_RPMEM_* variables, as the provider reads them. */
struct rp_caps_cfg rp_caps_cfg_from_env(void);

/* Do the mappings of a range suggest that its bytes are meant to persist? */
enum rp_intent {
	RP_INTENT_VOLATILE, /* no mapping of the range outlives its process */
	RP_INTENT_UNCLEAR,  /* tmpfs, or emulated persistent memory */
	RP_INTENT_LASTING,  /* a file, a device, or unknown memory */
};

/*
 * *intent: the highest value of any page of [addr, addr+len); only shared,
 * writable and named mappings count, holes do not. Returns 0, -EINVAL (empty or
 * wrapping range) or -errno of /proc; then why is as in rp_caps_explain().
 */
int rp_caps_intent(const struct rp_caps_cfg *cfg, const void *addr, size_t len,
		   enum rp_intent *intent, char *why);

/* How to register memory if the program does not state persistence. */
enum rp_implicit {
	RP_IMPLICIT_ORDINARY,
	RP_IMPLICIT_PERSISTENT,
	RP_IMPLICIT_REFUSED,
};
/* fit: the whole range can be persistent, with the class reached. */
enum rp_implicit rp_caps_implicit(enum rp_intent intent, bool fit,
				  enum rp_class reached,
				  enum rp_class required);

/*
 * Does msync on this file system reach the disk? By name: yes for ext2, ext3,
 * ext4, xfs, btrfs, f2fs; no for "overlay", "fuse", "nfs" and unknown ones.
 */
bool rp_caps_fs_listed(const char *fs_name);

/* A walk over the block devices below a file, disks first. */
struct rp_disk_walk {
	const char *root; /* as in rp_caps_cfg */
	/* Called for each device; dir: its folder in sysfs. May be NULL. */
	void (*fn)(struct rp_disk_walk *w, const char *dir, const char *flaw);
	void *ctx;
	int depth;		  /* depth of the recursion; 0 at first */
	char flaw[RP_SOURCE_LEN]; /* why a disk loses bytes, or "" */
};
/*
 * Walk over the devices that sysfs shows; fn may be called twice for one of
 * them. False: path is in memory, or on a mount whose fsync flushes nothing.
 */
bool rp_caps_walk_disks(struct rp_disk_walk *w, const char *path);
/* Copy the first line of dir/name to line (PATH_MAX bytes); "": none. */
const char *rp_caps_read_line(const char *dir, const char *name, char *line);

/*
 * The NIC behind an RDMA device ("mlx5_0", as in /sys/class/infiniband). A
 * software device (rxe, siw) has no NIC: the CPU copies through the kernel's
 * mapping, as the drivers of some adapters do (hfi1, ib_qib).
 */
struct rp_nic {
	char pci[16];	  /* "0000:18:00.0"; "": no NIC */
	char port[16];	  /* the root port above the NIC */
	enum rp_tri ddio; /* DMA writes go into the last-level cache */
	enum rp_placement placement;
	enum rp_tri fence;
	int node; /* NUMA node plus 1; 0: unknown */
	char placement_why[RP_SOURCE_LEN];
	char fence_why[RP_SOURCE_LEN];
};
/* Examine a device. 0, -ENODEV (no such device), -EINVAL (not a name). */
int rp_caps_find_nic(const char *root, const char *device, struct rp_nic *nic);
/*
 * Facts about writes of a base provider ("tcp", "verbs") over a device (its
 * domain's name). Never fails: facts without a source stay unknown.
 */
void rp_caps_base_provider(const char *root, const char *base,
			   const char *device, struct rp_nic *nic);

/*
 * Does the completion of a write prove that the target has received it?
 * Yes for reliable connections of InfiniBand and RoCE; no for iWARP, whose
 * completion may mean only that the sender's TCP has the bytes, and for devices
 * that sysfs does not show. why: RP_SOURCE_LEN bytes.
 */
bool rp_caps_write_is_acknowledged(const char *root, const char *base,
				   const char *device, char *why);

const char *rp_class_name(enum rp_class c);	     /* "none", ... */
int rp_class_parse(const char *s, enum rp_class *c); /* 0 or -EINVAL */
/* A device DAX, which cannot be truncated and has all its blocks? */
bool rp_facts_is_devdax(const struct rp_facts *f);

const char *rp_memory_name(enum rp_memory m);
const char *rp_placement_name(enum rp_placement p);
const char *rp_domain_name(enum rp_domain d);
const char *rp_tri_name(enum rp_tri t); /* "unknown", "no", "yes" */

#endif
