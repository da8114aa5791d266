// SPDX-License-Identifier: BSD-2-Clause
/* Checks of the disks below a path, and of what msync guarantees there. */
#include "config.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "util/info.h"
#include "util/dirty_shutdowns.h"

struct disks {
	json_t *checks;
	char disk_clauses[1024]; /* text about the disks of the lowest layer */
	char remedy[256];
};

static bool has_file(const char *dir, const char *name)
{
	char pattern[PATH_MAX];
	glob_t g = {0};
	bool found;

	snprintf(pattern, sizeof(pattern), "%s/%s", dir, name);
	found = !glob(pattern, 0, NULL, &g);
	globfree(&g);
	return found;
}

/* Values of the sysfs files that were read, as one text. */
static json_t *read_sysfs_values(const char *dir, const char *name)
{
	static const char *const files[] = {
		"queue/write_cache", "queue/fua",
		"cache_type",	     "device/scsi_disk/*/cache_type",
		"queue/rotational",  "device/model",
		"dm/name",	     "md/level",
		"loop/backing_file",
	};
	char line[PATH_MAX], text[512];
	size_t n = (size_t)snprintf(text, sizeof(text), "/sys/block/%s", name);

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (*rp_caps_read_line(dir, files[i], line) && n < sizeof(text))
			n += (size_t)snprintf(text + n, sizeof(text) - n,
					      ", %s: %s", files[i], line);
	return info_text("%s", text);
}

/* Say if the disk is remote or virtual: its host's cache is not in sysfs. */
static const char *explain_remote_disk(const char *dir, const char *name)
{
	char line[PATH_MAX];

	if (!strncmp(name, "nbd", 3) || !strncmp(name, "rbd", 3))
		return "; it is on a server, which alone knows whether its "
		       "flushes reach a disk";
	rp_caps_read_line(dir, "device/model", line);
	if (!strncmp(name, "vd", 2) || !strncmp(name, "xvd", 3) ||
	    strcasestr(line, "virtual") || strcasestr(line, "qemu") ||
	    strcasestr(line, "vbox"))
		return "; it is a virtual disk, whose host alone knows whether "
		       "its flushes reach a disk (cache=unsafe: they do not)";
	return "";
}

static void disk_examine(struct rp_disk_walk *w, const char *dir,
			 const char *flaw)
{
	const char *name = strrchr(dir, '/') + 1;
	struct disks *d = w->ctx;
	char line[PATH_MAX];
	size_t n = strlen(d->disk_clauses);

	json_array_append_new(
		d->checks, json_pack("{s:s, s:i, s:o}", "check", "disk",
				     "status", *flaw ? DOCTOR_WARN : DOCTOR_OK,
				     "found", read_sysfs_values(dir, name)));
	rp_caps_read_line(dir, "queue/write_cache", line);
	if (*flaw && strstr(flaw, "gets no flushes") &&
	    !strstr(flaw, "in memory"))
		snprintf(
			d->remedy, sizeof(d->remedy),
			"echo \"write back\" > /sys/block/%s/queue/write_cache",
			name);
	/* A stacked device passes flushes on; the lowest disks decide. */
	if (has_file(dir, "slaves/*") || has_file(dir, "loop/backing_file"))
		return;
	snprintf(d->disk_clauses + n, sizeof(d->disk_clauses) - n, "%s%s%s%s",
		 n ? "; " : "",
		 !strcmp(line, "write back") ? "it ends with a flush of "
		 : *line ? "the kernel sends no flush to a disk without a "
			   "volatile cache, as its driver reports of "
			 : "nothing tells of the cache of ",
		 name, explain_remote_disk(dir, name));
}

/* Warn of DIMMs that report a loss of bytes, or a health event. */
static void check_dimms(json_t *checks, const char *root, const char *path)
{
	struct rp_shutdowns s;
	char err[RP_ERR_LEN];

	if (rp_shutdowns_find(root, path, &s, err))
		return;
	if (s.failure[0])
		json_array_append_new(
			checks,
			json_pack("{s:s, s:i, s:o, s:s}", "check", "dimm",
				  "status", DOCTOR_WARN, "found",
				  info_text("%s: it lost bytes at the last "
					    "loss of power",
					    s.failure),
				  "remedy",
				  "restore what was in use there from a copy; "
				  "ndctl list --dimms --health"));
	if (s.event[0])
		json_array_append_new(
			checks,
			json_pack("{s:s, s:i, s:o, s:s}", "check", "dimm",
				  "status", DOCTOR_WARN, "found",
				  info_text("%s reports a health event "
					    "(smart_event)",
					    s.event),
				  "remedy",
				  "ndctl list --dimms --health; replace it "
				  "before it fails"));
}

json_t *doctor_disks(const char *root, const char *path)
{
	struct disks d = {.checks = json_array()};
	struct rp_disk_walk w = {.root = root, .fn = disk_examine, .ctx = &d};
	const char *remedy = "put the file on a disk of this machine";
	bool flushed = rp_caps_walk_disks(&w, path);
	json_t *c;

	if (!flushed && !json_array_size(d.checks))
		return d.checks; /* tmpfs: the check of the class reports it */
	if (!flushed && !w.flaw[0]) {
		strcpy(w.flaw, "the file system sends no flush");
		remedy = "mount it read-write, with barriers and checkpoints";
	}
	if (!w.flaw[0]) {
		c = json_pack(
			"{s:s, s:i, s:o}", "check", "msync", "status",
			DOCTOR_OK, "found",
			info_text("%s", d.disk_clauses[0]
						? d.disk_clauses
						: "no disk can be seen below "
						  "this file system: it "
						  "alone answers for msync"));
	} else {
		c = json_pack("{s:s, s:i, s:o, s:o}", "check", "msync",
			      "status", DOCTOR_WARN, "found",
			      info_text("a power cut loses what it wrote: %s",
					w.flaw),
			      "remedy",
			      info_text("%s", d.remedy[0] ? d.remedy : remedy));
	}
	json_array_append_new(d.checks, c);
	check_dimms(d.checks, root, path);
	return d.checks;
}
