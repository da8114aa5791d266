// SPDX-License-Identifier: BSD-2-Clause
/* Find what lies behind one mapping: the file, its device, its memory kind. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/caps_priv.h"

#define WHY(b) (b)->why, sizeof((b)->why)

const char *rp_caps_file_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

bool rp_caps_ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

/* Are fs and sx of the file that was mapped, not of a new one of its name? */
static bool same_file(const struct rp_vma *v, const struct rp_fs *fs,
		      const struct statx *sx)
{
	if (sx->stx_ino == v->ino && fs->major == v->major &&
	    fs->minor == v->minor)
		return true;
	/*
	 * For an overlay, older kernels show the inode of the file below it.
	 * Accepting any inode is safe, as only the operator's word makes an
	 * overlay trusted. A deleted file's name may be that of a new file.
	 */
	return !strcmp(fs->name, "overlay") &&
	       !rp_caps_ends_with(v->path, DELETED);
}

/*
 * Open the mapped file by its name in the map, and check that the name still
 * leads to that file. The map shows a newline as \012 but does not escape the
 * backslash, so try the name as it is, then with newlines.
 */
static int file_open(const char *root, const struct rp_vma *v, struct rp_fs *fs,
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
			rp_watch_open_failed(err);
		} else {
			rp_caps_find_fs(root, fd, fs);
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
	return rp_caps_ends_with(to, "/dax");
}

/* The persistence domain and NUMA node of the nd region above a device. */
static void nd_find(const char *root, const char *kind, unsigned int major,
		    unsigned int minor, struct rp_backing *b)
{
	char link[PATH_MAX], *dir;

	snprintf(link, sizeof(link), "%s/sys/dev/%s/%u:%u", root ? root : "",
		 kind, major, minor);
	dir = realpath(link, NULL);
	if (dir && rp_caps_climb_to_region(dir)) {
		b->domain = rp_caps_nd_domain(dir, b->domain_why);
		b->node = rp_caps_read_node(dir);
	} else {
		rp_caps_fmt(b->domain_why, sizeof(b->domain_why),
			    "no nd region above device %u:%u", major, minor);
	}
	free(dir);
}

static void regular_file(const struct rp_caps_cfg *cfg, const char *name,
			 const struct statx *sx, struct rp_backing *b)
{
	bool dax = sx->stx_attributes & STATX_ATTR_DAX;
	const char *kind = dax ? "DAX file" : "page cache of a file";

	b->size = sx->stx_size;
	if (rp_caps_fs_in_memory(b->fs.name)) {
		b->memory = RP_MEM_TMPFS;
		rp_caps_fmt(
			WHY(b),
			"file %s on %s: outlives the process, not the machine",
			name, b->fs.name);
		return;
	}
	b->memory = dax ? RP_MEM_DAX : RP_MEM_FILE;
	if (dax)
		nd_find(cfg->root, "block", sx->stx_dev_major,
			sx->stx_dev_minor, b);
	b->trusted = rp_caps_fs_trusted(&b->fs, cfg->trust_fs) ? RP_YES : RP_NO;
	b->disks.root = cfg->root;
	if (!rp_caps_fs_vouched(&b->fs, cfg->trust_fs))
		rp_fs_walk_disks(&b->disks, &b->fs);
	if (b->trusted == RP_YES)
		rp_caps_fmt(WHY(b), "%s on %s: %s", kind, b->fs.name, name);
	else if (!b->fs.name[0])
		rp_caps_fmt(WHY(b), "%s on an unknown file system: %s", kind,
			    name);
	else if (!rp_caps_fs_listed(b->fs.name))
		rp_caps_fmt(WHY(b),
			    "%s on %s, whose msync nobody vouches for; "
			    "FI_OFI_RPMEM_TRUST_FS=%s does: %s",
			    kind, b->fs.name, b->fs.name, name);
	else
		rp_caps_fmt(WHY(b),
			    "%s on %s, %s; fix that, or vouch for it with "
			    "FI_OFI_RPMEM_TRUST_FS=%s: %s",
			    kind, b->fs.name,
			    b->fs.barriers == RP_NO
				    ? "mounted so that fsync flushes nothing"
				    : "whose mount or devices cannot be seen",
			    b->fs.name, name);
}

static void file_examine(const struct rp_caps_cfg *cfg, const struct rp_vma *v,
			 struct rp_backing *b)
{
	const char *name = rp_caps_file_name(v->path);
	struct statx sx = {0};
	int fd = file_open(cfg->root, v, &b->fs, &sx);

	if (fd < 0) {
		b->fs = (struct rp_fs){0};
		if (rp_caps_ends_with(v->path, DELETED)) {
			b->memory = RP_MEM_ANON;
			rp_caps_fmt(WHY(b),
				    "no name leads to %s: its bytes go with "
				    "the last "
				    "process that has it; use a file that has "
				    "a name",
				    name);
		} else {
			rp_caps_fmt(WHY(b),
				    "cannot look at the mapped file %s: %s",
				    name, strerror(-fd));
		}
		return;
	}
	close(fd);
	if (S_ISREG(sx.stx_mode)) {
		regular_file(cfg, name, &sx, b);
		return;
	}
	b->fs.name[0] = '\0';
	if (!S_ISCHR(sx.stx_mode) ||
	    !is_devdax(cfg->root, sx.stx_rdev_major, sx.stx_rdev_minor))
		return;
	b->memory = RP_MEM_DAX_SYNC;
	b->trusted = RP_YES; /* there is no file system in between */
	snprintf(b->device, sizeof(b->device), "%s", name);
	nd_find(cfg->root, "char", sx.stx_rdev_major, sx.stx_rdev_minor, b);
	rp_caps_fmt(WHY(b), "devdax device %s", name);
}

void rp_caps_classify(const struct rp_caps_cfg *cfg, const struct rp_vma *v,
		      struct rp_backing *b)
{
	const char *path = v->path;
	/* The map names a file of anonymous huge pages that nobody can open. */
	bool nameless =
		!*path || *path == '[' || !strncmp(path, "/anon_hugepage", 14);

	/* A file mapped in many pieces is examined once. */
	if (b->major == v->major && b->minor == v->minor && b->ino == v->ino &&
	    b->sharing == v->perms[3])
		return;
	*b = (struct rp_backing){.major = v->major,
				 .minor = v->minor,
				 .ino = v->ino,
				 .sharing = v->perms[3],
				 .size = UINT64_MAX};
	if (*path == '/')
		snprintf(b->path, sizeof(b->path), "%s", path);
	rp_caps_fmt(WHY(b), "%s is neither a file nor a devdax device",
		    rp_caps_file_name(path));
	if (nameless) {
		b->memory = RP_MEM_ANON;
		rp_caps_fmt(WHY(b), "anonymous memory: dies with its process");
	} else if (v->perms[3] != 's') {
		b->memory = RP_MEM_PRIVATE;
		rp_caps_fmt(WHY(b),
			    "private mapping of %s: msync on it writes "
			    "nothing; map it "
			    "with MAP_SHARED",
			    rp_caps_file_name(path));
	} else if (*path == '/') {
		file_examine(cfg, v, b);
	}
}

void rp_caps_emulate(const struct rp_caps_cfg *cfg, struct rp_backing *b)
{
	if (!cfg->emulate ||
	    (b->memory != RP_MEM_ANON && b->memory != RP_MEM_TMPFS))
		return;
	rp_caps_fmt(WHY(b),
		    "%s memory playing persistent memory: survives nothing",
		    rp_memory_name(b->memory));
	b->memory = RP_MEM_EMULATED;
	b->fs.name[0] = '\0';
}
