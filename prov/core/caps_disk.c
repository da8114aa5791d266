// SPDX-License-Identifier: BSD-2-Clause
/* The block devices below a file: does a flush reach their media? */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/caps_priv.h"

#define MAX_DEPTH 16

static bool writes_back(const char *dir, const char *name)
{
	char line[PATH_MAX];

	return !strncmp(rp_caps_read_line(dir, name, line), "write back", 10);
}

/*
 * Has the disk a volatile cache, but gets no flushes? The kernel sends none if
 * root has written "write through" to queue/write_cache. The other files are
 * the driver's, and show the cache: queue/fua is 1 only with a volatile one.
 */
static void disk_find_flaw(const char *dir, bool cached_below, char *flaw)
{
	const char *sign = NULL, *name = rp_caps_file_name(dir);
	char line[PATH_MAX], why[RP_SOURCE_LEN];

	if (atoi(rp_caps_read_line(dir, "queue/fua", line)))
		sign = "queue/fua is 1";
	else if (writes_back(dir, "cache_type") ||
		 writes_back(dir, "device/scsi_disk/*/cache_type"))
		sign = "cache_type is write back";
	else if (cached_below)
		sign = "below it";
	else if (!fnmatch("*ram[0-9]*", name, 0))
		sign = "it is in memory";
	if (sign && !strcmp(rp_caps_read_line(dir, "queue/write_cache", line),
			    "write through"))
		rp_caps_fmt(flaw, RP_SOURCE_LEN,
			    "%s has a volatile cache (%s) and gets no flushes: "
			    "its queue/write_cache is write through",
			    name, sign);
	/* The page cache, too, may be on a DIMM that loses its bytes. */
	snprintf(line, sizeof(line), "%s", dir);
	if (rp_caps_climb_to_region(line) &&
	    rp_caps_dimms_domain(line, why) == RP_DOMAIN_NONE)
		rp_caps_fmt(flaw, RP_SOURCE_LEN, "%s: %s", name, why);
}

bool rp_caps_walk_disks(struct rp_disk_walk *w, const char *path)
{
	struct rp_fs fs;
	bool flushed;
	int fd;

	if (w->depth >= MAX_DEPTH)
		return false;
	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0) {
		rp_watch_open_failed(errno);
		return true;
	}
	rp_caps_find_fs(w->root, fd, &fs);
	close(fd);
	w->depth++;
	flushed = rp_fs_walk_disks(w, &fs);
	w->depth--;
	return flushed;
}

/* Walk over the devices dir/names, lower ones first. True: one has a cache. */
static bool disks_walk(struct rp_disk_walk *w, const char *dir,
		       const char *names)
{
	char line[PATH_MAX], flaw[RP_SOURCE_LEN], *disk;
	bool cached = false, below;
	glob_t g;

	snprintf(line, sizeof(line), "%s%s", dir, names);
	free(rp_watch_read(RP_SOURCE_NAMES, line, 0));
	rp_watch_glob(line, &g);
	for (size_t i = 0; i < g.gl_pathc; i++) {
		disk = realpath(g.gl_pathv[i], NULL);
		if (!disk) {
			rp_watch_open_failed(errno);
			continue;
		}
		flaw[0] = '\0';
		/* A partition has no queue; its disk, the parent, has. */
		if (*rp_caps_read_line(disk, "partition", line))
			*strrchr(disk, '/') = '\0';
		below = disks_walk(w, disk, "/slaves/*");
		/* A loop device writes to the page cache of a file. */
		if (*rp_caps_read_line(disk, "loop/backing_file", line)) {
			if (rp_caps_ends_with(line, DELETED) ||
			    !rp_caps_walk_disks(w, line))
				rp_caps_fmt(flaw, sizeof(flaw),
					    "%s is on no disk that is flushed "
					    "(file %s)",
					    rp_caps_file_name(disk),
					    rp_caps_file_name(line));
			below = true;
		}
		disk_find_flaw(disk, below, flaw);
		cached |= writes_back(disk, "queue/write_cache");
		if (*flaw)
			strcpy(w->flaw, flaw);
		if (w->fn)
			w->fn(w, disk, flaw);
		free(disk);
	}
	globfree(&g);
	return cached;
}

bool rp_fs_walk_disks(struct rp_disk_walk *w, const struct rp_fs *fs)
{
	bool flushed = !rp_caps_fs_in_memory(fs->name) && fs->barriers != RP_NO;
	char path[PATH_MAX], *dev;
	glob_t g;

	if (!strcmp(fs->name, "overlay"))
		return rp_caps_walk_disks(w, fs->source);
	if (fs->major) {
		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", fs->major,
			 fs->minor);
		disks_walk(w, w->root ? w->root : "", path);
		return flushed;
	}
	/* A btrfs has major number 0; sysfs lists its devices, maybe many. */
	dev = realpath(fs->source, NULL);
	if (!dev)
		rp_watch_open_failed(errno);
	snprintf(path, sizeof(path), "%s/sys/fs/btrfs/*/devices/%s",
		 w->root ? w->root : "",
		 rp_caps_file_name(dev ? dev : fs->source));
	rp_watch_glob(path, &g);
	if (g.gl_pathc) {
		*strrchr(g.gl_pathv[0], '/') = '\0';
		disks_walk(w, g.gl_pathv[0], "/*");
	}
	globfree(&g);
	free(dev);
	return flushed;
}
