// SPDX-License-Identifier: BSD-2-Clause
/* Find the file system of a file, and whether its msync can be trusted. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "core/caps_priv.h"

/* linux/magic.h of some releases lacks XFS_SUPER_MAGIC. */
#define XFS_MAGIC 0x58465342

/*
 * Local file systems of the kernel whose fsync waits for the data, its metadata
 * and the disk's cache.
 */
static const char *const listed[] = {
	"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs",
};

/* Names by magic, for mounts that the mount table does not show. */
static const struct {
	unsigned long magic;
	const char *name;
} magics[] = {
	{EXT4_SUPER_MAGIC, "ext4"},
	{XFS_MAGIC, "xfs"},
	{BTRFS_SUPER_MAGIC, "btrfs"},
	{F2FS_SUPER_MAGIC, "f2fs"},
	{TMPFS_MAGIC, "tmpfs"},
	{HUGETLBFS_MAGIC, "hugetlbfs"},
	{OVERLAYFS_SUPER_MAGIC, "overlay"},
	{NFS_SUPER_MAGIC, "nfs"},
	{FUSE_SUPER_MAGIC, "fuse"},
};

FILE *rp_caps_open(const char *root, const char *path)
{
	char full[PATH_MAX];
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", root ? root : "", path);
	f = fopen(full, "re");
	if (!f)
		rp_watch_open_failed(errno);
	return f;
}

const char *rp_caps_read_line(const char *dir, const char *name, char *line)
{
	char *text;

	snprintf(line, PATH_MAX, "%s/%s", dir, name);
	text = rp_watch_read(RP_SOURCE_LINE, line, 0);
	snprintf(line, PATH_MAX, "%s", text ? text : "");
	free(text);
	return line;
}

bool rp_caps_fs_listed(const char *fs_name)
{
	for (size_t i = 0; i < COUNT(listed); i++)
		if (!strcmp(fs_name, listed[i]))
			return true;
	return false;
}

bool rp_caps_fs_in_memory(const char *name)
{
	return !strcmp(name, "tmpfs") || !strcmp(name, "hugetlbfs") ||
	       !strcmp(name, "ramfs") || !strcmp(name, "devtmpfs");
}

/* Does the list, whose words any byte of sep separates, have this word? */
static bool has_word(const char *list, const char *word, const char *sep)
{
	size_t n = strlen(word);

	while (list && *list) {
		list += strspn(list, sep);
		if (n && strcspn(list, sep) == n && !strncmp(list, word, n))
			return true;
		list += strcspn(list, sep);
	}
	return false;
}

bool rp_caps_fs_vouched(const struct rp_fs *fs, const char *trust_fs)
{
	return has_word(trust_fs, fs->name, ", \t");
}

bool rp_caps_fs_trusted(const struct rp_fs *fs, const char *trust_fs)
{
	return rp_caps_fs_vouched(fs, trust_fs) ||
	       (rp_caps_fs_listed(fs->name) && fs->barriers == RP_YES);
}

/*
 * A line of mountinfo is "id parent major:minor root mountpoint options tags -
 * type source options"; its names have spaces escaped, so find type by " - ".
 */
static bool mount_parse(char *line, uint64_t id, struct rp_fs *fs)
{
	unsigned long long got;
	struct rp_fs m = {.barriers = RP_YES};
	char *type, *source, *opts, *save;

	if (sscanf(line, "%llu %*u %u:%u ", &got, &m.major, &m.minor) != 3 ||
	    got != id)
		return false;
	type = strstr(line, " - ");
	if (!type)
		return false;
	type = strtok_r(type + 3, " \n", &save);
	source = strtok_r(NULL, " \n", &save);
	opts = strtok_r(NULL, " \n", &save);
	if (!type || strlen(type) >= sizeof(m.name))
		return false;
	strcpy(m.name, type);
	if (opts && !strcmp(type, "overlay") && strstr(opts, "upperdir="))
		source = strstr(opts, "upperdir=") + strlen("upperdir=");
	if (source)
		snprintf(m.source, sizeof(m.source), "%.*s",
			 (int)strcspn(source, ","), source);
	/* fsync of a file system that has become read-only may return 0. */
	if (has_word(opts, "ro", ",") || has_word(opts, "nobarrier", ",") ||
	    has_word(opts, "barrier=0", ",") ||
	    has_word(opts, "fsync_mode=nobarrier", ",") ||
	    has_word(opts, "checkpoint=disable", ",:"))
		m.barriers = RP_NO;
	else if (has_word(opts, "logdev", ",=") ||
		 has_word(opts, "rtdev", ",="))
		m.barriers = RP_UNKNOWN;
	*fs = m;
	return true;
}

static bool mount_find(const char *root, uint64_t id, struct rp_fs *fs)
{
	char path[PATH_MAX], *line;
	bool found;

	snprintf(path, sizeof(path), "%s/proc/self/mountinfo",
		 root ? root : "");
	line = rp_watch_read(RP_SOURCE_MOUNT, path, id);
	found = line && mount_parse(line, id, fs);
	free(line);
	return found;
}

void rp_caps_find_fs(const char *root, int fd, struct rp_fs *fs)
{
	struct statfs sfs;
	struct statx sx;

	*fs = (struct rp_fs){.barriers = RP_UNKNOWN};
	if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &sx))
		return;
	if ((sx.stx_mask & STATX_MNT_ID) && mount_find(root, sx.stx_mnt_id, fs))
		return;
	fs->major = sx.stx_dev_major;
	fs->minor = sx.stx_dev_minor;
	if (fstatfs(fd, &sfs))
		return;
	for (size_t i = 0; i < COUNT(magics); i++)
		if ((unsigned long)sfs.f_type == magics[i].magic)
			strcpy(fs->name, magics[i].name);
}
