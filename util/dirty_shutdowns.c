// SPDX-License-Identifier: BSD-2-Clause
/* Dirty shutdowns of the persistent memory that holds a file. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nettle/sha2.h>

#include "core/caps.h"
#include "core/fault.h"
#include "core/watch.h"
#include "util/bytes.h"
#include "util/dirty_shutdowns.h"

#define MAX_DIMMS 64

struct search {
	struct rp_shutdowns sum;
	char boot[PATH_MAX];
	uint64_t seen_dimms[MAX_DIMMS]; /* several devices may be on one DIMM */
	unsigned int n;
};

static uint64_t hash(const char *id)
{
	uint8_t sum[SHA256_DIGEST_SIZE];
	struct sha256_ctx ctx;

	sha256_init(&ctx);
	sha256_update(&ctx, strlen(id), (const uint8_t *)id);
	sha256_digest(&ctx, sizeof(sum), sum);
	return rp_get64(sum);
}

/*
 * Add the flags of a DIMM, which describe the last loss of power. The hash has
 * the boot, too: a second loss can show the same flags, but in another boot.
 */
static void add_flags(struct search *s, const char *dimm, const char *id,
		      const char *flags)
{
	static const char *const losses[] = {
		"save_fail",
		"restore_fail",
		"flush_fail",
		"map_fail",
	};
	char text[3 * RP_SHUTDOWNS_TEXT];

	for (size_t i = 0; i < sizeof(losses) / sizeof(*losses); i++) {
		if (!strstr(flags, losses[i]))
			continue;
		snprintf(text, sizeof(text), "%.60s %s %.60s", id, losses[i],
			 s->boot);
		s->sum.failures += hash(text);
		snprintf(s->sum.failure, sizeof(s->sum.failure), "%.40s: %s",
			 dimm, losses[i]);
	}
	if (strstr(flags, "smart_event"))
		snprintf(s->sum.event, sizeof(s->sum.event), "%.40s", dimm);
}

/*
 * Add a DIMM, unless it was added before. sysfs has its files in a folder that
 * is named after the driver: nfit, cxl or papr.
 */
static void add_dimm(struct search *s, const char *region, const char *dimm)
{
	char line[PATH_MAX], id[PATH_MAX], name[NAME_MAX];
	uint64_t which;

	snprintf(name, sizeof(name), "../%.99s/*/id", dimm);
	if (!*rp_caps_read_line(region, name, id))
		snprintf(id, sizeof(id), "%s", dimm);
	which = hash(id);
	for (unsigned int i = 0; i < s->n; i++)
		if (s->seen_dimms[i] == which)
			return;
	if (s->n == MAX_DIMMS)
		return;
	s->seen_dimms[s->n++] = which;
	snprintf(name, sizeof(name), "../%.99s/*/flags", dimm);
	add_flags(s, dimm, id, rp_caps_read_line(region, name, line));
	snprintf(name, sizeof(name), "../%.99s/*/dirty_shutdown", dimm);
	if (!*rp_caps_read_line(region, name, line))
		return;
	/* A sum does not depend on the order of devices in sysfs. */
	s->sum.dimms += which;
	s->sum.count += strtoull(line, NULL, 0);
}

/* Add the DIMMs of a device: its nd region is a directory above `dir`. */
static void add_device(struct rp_disk_walk *w, const char *dir,
		       const char *flaw)
{
	struct search *s = w->ctx;
	char region[PATH_MAX], name[32], line[PATH_MAX], *slash;

	snprintf(region, sizeof(region), "%s", dir);
	while ((slash = strrchr(region, '/')) &&
	       strncmp(slash + 1, "region", 6) != 0)
		*slash = 0;
	if (!slash)
		return;
	/* 1: the DIMMs have flush hints, by which the kernel flushes them. */
	if (strcmp(rp_caps_read_line(region, "deep_flush", line), "1") != 0)
		s->sum.unflushed = true;
	for (int i = 0; i < MAX_DIMMS; i++) {
		snprintf(name, sizeof(name), "mapping%d", i);
		rp_caps_read_line(region, name, line);
		line[strcspn(line, ",")] = 0;
		if (!*line)
			return;
		add_dimm(s, region, line);
	}
}

int rp_shutdowns_find(const char *root, const char *path,
		      struct rp_shutdowns *out, char *err)
{
	struct search s = {.n = 0};
	struct rp_disk_walk w = {.root = root, .fn = add_device, .ctx = &s};

	if (RP_FAULT("invented-sys"))
		w.root = getenv("RPMEM_FAULT_SYS");
	rp_watch_starved();
	rp_caps_read_line(w.root ? w.root : "",
			  "proc/sys/kernel/random/boot_id", s.boot);
	rp_caps_walk_disks(&w, path);
	if (rp_watch_starved())
		return rp_err(err, -EMFILE,
			      "pool '%s': too few file descriptors or memory "
			      "to read its dirty shutdowns; raise LimitNOFILE=",
			      path);
	*out = s.sum;
	return 0;
}

/* Whether flags show a loss that the pool's header does not have. */
static bool has_failed(const struct rp_shutdowns *then,
		       const struct rp_shutdowns *now)
{
	return now->failures && now->failures != then->failures;
}

/* A clean pool on other DIMMs is a copy: their losses are not its losses. */
bool rp_shutdowns_lost(const struct rp_shutdowns *then,
		       const struct rp_shutdowns *now, bool clean)
{
	const bool same = then->dimms == now->dimms;
	const bool counted = then->dimms && then->count != now->count;

	if (clean)
		return now->unflushed && same && then->dimms &&
		       (counted || has_failed(then, now));
	return counted || (then->dimms && !same) || has_failed(then, now);
}

int rp_shutdowns_check(const char *path, const struct rp_shutdowns *then,
		       const struct rp_shutdowns *now, bool clean, char *err)
{
	const bool failed = has_failed(then, now);
	char signs[128];

	if (!rp_shutdowns_lost(then, now, clean))
		return 0;
	if (failed)
		snprintf(signs, sizeof(signs), "flags of %s", now->failure);
	else
		snprintf(signs, sizeof(signs),
			 "dirty shutdowns: %" PRIu64
			 " when it was opened, %" PRIu64 " now",
			 then->count, now->count);
	return rp_err(err, -ENOTRECOVERABLE,
		      "pool '%s' may have lost acknowledged bytes: it was %s "
		      "when %s (%s); restore it from a copy, or accept the "
		      "loss with fi_rpmemd --accept-loss '%s'",
		      path,
		      clean ? "closed, but on memory without a flush to its "
			      "media,"
			    : "in use",
		      failed || then->dimms == now->dimms
			      ? "its memory shut down without saving all bytes"
			      : "it was moved to other memory, whose count "
				"tells nothing of it",
		      signs, path);
}
