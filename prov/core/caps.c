// SPDX-License-Identifier: BSD-2-Clause
/* What backs a range of memory: read from the process map, file by file. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/caps_priv.h"

/* One line of /proc/self/maps. */
struct vma {
	unsigned long start, end;
	char perms[5];
	unsigned long long offset;
	unsigned int major, minor;
	unsigned long long ino;
	char *path; /* points into the line */
};

/* What lies behind a mapping. */
struct backing {
	unsigned int major, minor; /* of which file; all 0: of none */
	unsigned long long ino;
	char sharing;
	enum rp_memory memory;
	enum rp_domain domain;
	enum rp_tri trusted;
	struct rp_fs fs;
	uint64_t size; /* of the file; UINT64_MAX: no end to run past */
	char why[RP_WHY_LEN];
};

/*
 * Sentences travel to peers and into logs, and file names may hold anything:
 * what is not plain ASCII becomes '?'.
 */
__attribute__((format(printf, 2, 3))) static void say(char *why,
						      const char *fmt, ...)
{
	va_list ap;

	if (!why)
		return;
	va_start(ap, fmt);
	vsnprintf(why, RP_WHY_LEN, fmt, ap);
	va_end(ap);
	for (; *why; why++)
		if (*why < ' ' || *why > '~')
			*why = '?';
}

/* Only the last component: peers may read it, and need not know the rest. */
/* What the map adds to the name of a file that has none any more. */
#define DELETED " (deleted)"

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

/* Is fd the file that the map shows? */
static bool same_file(const struct vma *v, const struct rp_fs *fs,
		      const struct statx *sx)
{
	if (sx->stx_ino == v->ino && fs->major == v->major &&
	    fs->minor == v->minor)
		return true;
	/*
	 * Older kernels show the file below an overlay. Nothing is lost: an
	 * overlay is trusted by the operator's word or not at all. But then
	 * only the name tells of a deleted file, and another may have it.
	 */
	return !strcmp(fs->name, "overlay") && !ends_with(v->path, DELETED);
}

/*
 * Open the mapped file by the name in the map, without touching what it
 * names, and make sure that it still is that file. Newlines are the one thing
 * that the map escapes, and it does not escape the escape.
 */
static int file_open(const char *root, const struct vma *v, struct rp_fs *fs,
		     struct statx *sx)
{
	char *name = strdup(v->path), *nl;
	int fd, err = ENOENT;

	if (!name)
		return -ENOMEM;
	do {
		fd = open(name, O_PATH | O_CLOEXEC);
		if (fd < 0) {
			err = errno;
		} else {
			rp_caps_fs(root, fd, fs);
			if (!statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS,
				   sx) &&
			    same_file(v, fs, sx))
				break;
			close(fd);
			fd = -1;
		}
		nl = strstr(name, "\\012");
		for (char *p = nl; p; p = strstr(p, "\\012")) {
			*p = '\n';
			memmove(p + 1, p + 4, strlen(p + 4) + 1);
		}
	} while (nl);
	free(name);
	return fd < 0 ? -err : fd;
}

static bool is_devdax(const char *root, unsigned int major, unsigned int minor)
{
	char link[64 + RP_WHY_LEN], to[256];
	ssize_t n;

	snprintf(link, sizeof(link), "%s/sys/dev/char/%u:%u/subsystem",
		 root ? root : "", major, minor);
	n = readlink(link, to, sizeof(to) - 1);
	if (n < 0)
		return false;
	to[n] = '\0';
	return ends_with(to, "/dax");
}

static void regular_file(const struct rp_caps_cfg *cfg, const char *name,
			 const struct statx *sx, struct backing *b)
{
	bool dax = sx->stx_attributes & STATX_ATTR_DAX;
	const char *kind = dax ? "DAX file" : "page cache of a file";

	b->size = sx->stx_size;
	if (rp_caps_fs_in_memory(b->fs.name)) {
		b->memory = RP_MEM_TMPFS;
		say(b->why,
		    "file %s on %s: outlives the process, not the machine",
		    name, b->fs.name);
		return;
	}
	b->memory = dax ? RP_MEM_DAX : RP_MEM_FILE;
	if (dax)
		b->domain =
			rp_caps_nd_domain(cfg->root, "block", sx->stx_dev_major,
					  sx->stx_dev_minor);
	b->trusted = rp_caps_fs_trusted(&b->fs, cfg->trust_fs) ? RP_YES : RP_NO;
	if (b->trusted == RP_YES)
		say(b->why, "%s on %s: %s", kind, b->fs.name, name);
	else if (!b->fs.name[0])
		say(b->why, "%s on a file system that cannot be told: %s", kind,
		    name);
	else if (!rp_caps_fs_listed(b->fs.name))
		say(b->why,
		    "%s on %s, whose msync nobody vouches for; "
		    "FI_OFI_RPMEM_TRUST_FS=%s does: %s",
		    kind, b->fs.name, b->fs.name, name);
	else
		say(b->why,
		    "%s on %s, %s; fix that, or vouch for it with "
		    "FI_OFI_RPMEM_TRUST_FS=%s: %s",
		    kind, b->fs.name,
		    b->fs.barriers == RP_NO
			    ? "mounted without barriers"
			    : "whose mount options cannot be seen",
		    b->fs.name, name);
}

static void file_look(const struct rp_caps_cfg *cfg, const struct vma *v,
		      struct backing *b)
{
	const char *name = base_name(v->path);
	struct statx sx;
	int fd = file_open(cfg->root, v, &b->fs, &sx);

	if (fd < 0) {
		b->fs = (struct rp_fs){0};
		if (ends_with(v->path, DELETED)) {
			b->memory = RP_MEM_ANON;
			say(b->why,
			    "no name leads to %s: its bytes go with the last "
			    "process that has it; use a file that has a name",
			    name);
		} else {
			say(b->why, "cannot look at the mapped file %s: %s",
			    name, strerror(-fd));
		}
		return;
	}
	close(fd);
	if (S_ISREG(sx.stx_mode)) {
		regular_file(cfg, name, &sx, b);
	} else if (S_ISCHR(sx.stx_mode) &&
		   is_devdax(cfg->root, sx.stx_rdev_major, sx.stx_rdev_minor)) {
		b->memory = RP_MEM_DAX_SYNC;
		b->trusted = RP_YES; /* no file system in the way */
		b->fs.name[0] = '\0';
		b->domain =
			rp_caps_nd_domain(cfg->root, "char", sx.stx_rdev_major,
					  sx.stx_rdev_minor);
		say(b->why, "devdax device %s", name);
	} else {
		b->fs.name[0] = '\0';
		say(b->why, "%s is neither a file nor a devdax device", name);
	}
}

static void classify(const struct rp_caps_cfg *cfg, const struct vma *v,
		     struct backing *b)
{
	const char *path = v->path;
	/* Huge pages without a name show a file that nobody else can have. */
	bool nameless =
		!*path || *path == '[' || !strncmp(path, "/anon_hugepage", 14);

	/* One file in many pieces is looked at once. */
	if (b->major == v->major && b->minor == v->minor && b->ino == v->ino &&
	    b->sharing == v->perms[3])
		return;
	*b = (struct backing){.major = v->major,
			      .minor = v->minor,
			      .ino = v->ino,
			      .sharing = v->perms[3],
			      .size = UINT64_MAX};
	if (nameless) {
		b->memory = RP_MEM_ANON;
		say(b->why, "anonymous memory: dies with its process");
	} else if (v->perms[3] != 's') {
		b->memory = RP_MEM_PRIVATE;
		say(b->why,
		    "private mapping of %s: msync on it writes nothing; map it "
		    "with MAP_SHARED",
		    base_name(path));
	} else if (*path == '/') {
		file_look(cfg, v, b);
	} else {
		say(b->why, "%s is neither a file nor a devdax device", path);
	}
}

/*
 * Memory that is to play persistent memory: anything without a disk if we are
 * told to emulate, and anything shared if libpmem2's own override is allowed
 * to say so. It promises nothing in either case.
 */
static bool plays_pmem(const struct rp_caps_cfg *cfg, enum rp_memory m)
{
	const char *force = getenv("PMEM2_FORCE_GRANULARITY");

	if (cfg->emulate && (m == RP_MEM_ANON || m == RP_MEM_TMPFS))
		return true;
	return cfg->allow_force_granularity && force &&
	       (!strcasecmp(force, "BYTE") ||
		!strcasecmp(force, "CACHE_LINE")) &&
	       (m == RP_MEM_TMPFS || m == RP_MEM_FILE || m == RP_MEM_DAX ||
		m == RP_MEM_DAX_SYNC);
}

static void emulate(struct backing *b)
{
	say(b->why, "%s memory playing persistent memory: survives nothing",
	    rp_memory_name(b->memory));
	b->memory = RP_MEM_EMULATED;
	b->domain = RP_DOMAIN_UNKNOWN;
	b->trusted = RP_UNKNOWN;
	b->fs.name[0] = '\0';
}

/*
 * Did every mapping in [start, end) get MAP_SYNC? Only smaps tells, and the
 * kernel walks page tables for each line of it, so it is read for DAX only. A
 * mix counts as none of them: msync is right for both.
 */
static bool all_synchronous(const char *root, uintptr_t start, uintptr_t end)
{
	FILE *f = rp_caps_open(root, "/proc/self/smaps");
	unsigned long a, z = 0, cursor = start;
	bool inside = false;
	char *line = NULL;
	size_t size = 0;

	if (!f)
		return false;
	while (cursor < end && getline(&line, &size, f) > 0) {
		if (sscanf(line, "%lx-%lx ", &a, &z) == 2) {
			inside = a <= cursor && z > cursor;
		} else if (inside && !strncmp(line, "VmFlags:", 8)) {
			if (!strstr(line, " sf"))
				break;
			cursor = z;
		}
	}
	free(line);
	fclose(f);
	return cursor >= end;
}

/* 0, or -EPROTO when the line has not the shape of one. */
static int vma_parse(char *line, struct vma *v)
{
	int path = 0;

	if (sscanf(line, "%lx-%lx %4s %llx %x:%x %llu %n", &v->start, &v->end,
		   v->perms, &v->offset, &v->major, &v->minor, &v->ino,
		   &path) < 7 ||
	    !path)
		return -EPROTO;
	v->path = line + path;
	v->path[strcspn(v->path, "\n")] = '\0';
	return 0;
}

static bool on_storage(enum rp_memory m)
{
	return m == RP_MEM_FILE || m == RP_MEM_DAX || m == RP_MEM_DAX_SYNC;
}

static bool same_backing(const struct backing *a, const struct backing *b)
{
	return a->ino == b->ino && a->major == b->major && a->minor == b->minor;
}

/* Bytes [from, to) of the range lie in v: is it fit, and as the others? */
static int vma_add(const struct rp_caps_cfg *cfg, const struct vma *v,
		   uintptr_t from, uintptr_t to, bool first, struct backing *b,
		   struct backing *all, char *why)
{
	struct backing here;

	if (v->perms[0] != 'r' || v->perms[1] != 'w') {
		say(why,
		    "the mapping at %#lx is not readable and writable (%s): "
		    "map it with PROT_READ | PROT_WRITE",
		    (unsigned long)from, v->perms);
		return -EFAULT;
	}
	classify(cfg, v, b);
	/* Bytes behind the end have a page and no file. */
	if (to - v->start + v->offset > b->size) {
		say(why,
		    "the range ends behind the end of %s: allocate the file "
		    "first",
		    base_name(v->path));
		return -EFAULT;
	}
	here = *b;
	if (plays_pmem(cfg, here.memory))
		emulate(&here);
	if (first)
		*all = here;
	if (here.memory != all->memory) {
		say(why,
		    "the range begins in %s memory and goes on in %s memory at "
		    "%#lx: register them apart",
		    rp_memory_name(all->memory), rp_memory_name(here.memory),
		    (unsigned long)from);
		return -ENOTSUP;
	}
	/* An error of one file must not be taken for one of the other. */
	if (on_storage(here.memory) && !same_backing(&here, all)) {
		say(why,
		    "the range goes on in another file, %s, at %#lx: register "
		    "them apart",
		    base_name(v->path), (unsigned long)from);
		return -ENOTSUP;
	}
	return 0;
}

static int maps_read(const struct rp_caps_cfg *cfg, uintptr_t start,
		     uintptr_t end, struct backing *all, char *why)
{
	FILE *f = rp_caps_open(cfg->root, "/proc/self/maps");
	struct backing b = {0}; /* of the mapping last looked at */
	uintptr_t cursor = start;
	char *line = NULL, *dash;
	size_t size = 0;
	struct vma v;
	int ret = 0;

	if (!f) {
		ret = -errno;
		say(why, "cannot read /proc/self/maps: %s", strerror(errno));
		return ret;
	}
	while (!ret && cursor < end && getline(&line, &size, f) > 0) {
		uintptr_t to;

		/* Cheap for the many lines in front of the range. */
		strtoul(line, &dash, 16);
		if (*dash == '-' && strtoul(dash + 1, NULL, 16) <= cursor)
			continue;
		ret = vma_parse(line, &v);
		if (ret) {
			say(why, "cannot make sense of /proc/self/maps");
			break;
		}
		if (v.start > cursor)
			break;
		to = v.end < end ? v.end : end;
		ret = vma_add(cfg, &v, cursor, to, cursor == start, &b, all,
			      why);
		cursor = to;
	}
	free(line);
	fclose(f);
	if (!ret && cursor < end) {
		say(why, "nothing is mapped at %#lx", (unsigned long)cursor);
		ret = -EFAULT;
	}
	return ret;
}

int rp_caps_region(const struct rp_caps_cfg *cfg, const void *addr, size_t len,
		   struct rp_facts *facts, char *why)
{
	uintptr_t start = (uintptr_t)addr, end = start + len;
	struct backing b;
	int ret;

	if (!len || end < start) {
		say(why, len ? "the range wraps" : "the range is empty");
		return -EINVAL;
	}
	ret = maps_read(cfg, start, end, &b, why);
	if (ret)
		return ret;
	if (b.memory == RP_MEM_DAX && all_synchronous(cfg->root, start, end))
		b.memory = RP_MEM_DAX_SYNC;
	say(why, "%s", b.why);
	*facts = (struct rp_facts){
		.memory = b.memory,
		.placement = cfg->placement,
		.domain = b.domain,
		.fence = RP_UNKNOWN,
		.native = RP_UNKNOWN,
		.fs_trusted = b.trusted,
		.agent = true, /* this code runs in the target */
	};
	strcpy(facts->fs_name, b.fs.name);
	if (on_storage(b.memory))
		facts->file = (struct rp_file_id){
			.dev = makedev(b.major, b.minor),
			.ino = b.ino,
		};
	return 0;
}
