// SPDX-License-Identifier: BSD-2-Clause
/* Dirty shutdowns of the persistent memory that holds a file. */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nettle/sha2.h>

#include "core/caps.h"
#include "core/fault.h"
#include "core/watch.h"
#include "util/bytes.h"
#include "util/shutdowns.h"

#define MAX_DIMMS 64

struct search {
	struct rp_shutdowns sum;
	uint64_t seen[MAX_DIMMS]; /* several devices may be on one DIMM */
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

/* Add a DIMM: sysfs has its count below a driver's name, nfit, cxl or papr. */
static void add_dimm(struct search *s, const char *region, const char *dimm)
{
	char count[PATH_MAX], id[PATH_MAX], name[NAME_MAX];
	uint64_t which;

	snprintf(name, sizeof(name), "../%.99s/*/dirty_shutdown", dimm);
	if (!*rp_caps_line(region, name, count))
		return;
	snprintf(name, sizeof(name), "../%.99s/*/id", dimm);
	rp_caps_line(region, name, id);
	which = hash(*id ? id : dimm);
	for (unsigned int i = 0; i < s->n; i++)
		if (s->seen[i] == which)
			return;
	if (s->n == MAX_DIMMS)
		return;
	s->seen[s->n++] = which;
	/* A sum does not depend on the order of devices in sysfs. */
	s->sum.dimms += which;
	s->sum.count += strtoull(count, NULL, 0);
}

/* The nd region is a directory above its device's. */
static void add_device(struct rp_disks *w, const char *dir, const char *flaw)
{
	char region[PATH_MAX], name[32], line[PATH_MAX], *slash;

	snprintf(region, sizeof(region), "%s", dir);
	while ((slash = strrchr(region, '/')) &&
	       strncmp(slash + 1, "region", 6) != 0)
		*slash = 0;
	for (int i = 0; slash && i < MAX_DIMMS; i++) {
		snprintf(name, sizeof(name), "mapping%d", i);
		rp_caps_line(region, name, line);
		line[strcspn(line, ",")] = 0;
		if (!*line)
			return;
		add_dimm(w->ctx, region, line);
	}
}

int rp_shutdowns_find(const char *path, struct rp_shutdowns *out, char *err)
{
	struct search s = {.n = 0};
	struct rp_disks w = {.fn = add_device, .ctx = &s};

	if (RP_FAULT("invented-sys"))
		w.root = getenv("RPMEM_FAULT_SYS");
	rp_watch_starved();
	rp_caps_disks(&w, path);
	if (rp_watch_starved())
		return rp_err(err, -EMFILE,
			      "pool '%s': too few file descriptors or memory "
			      "to read its dirty shutdowns; raise LimitNOFILE=",
			      path);
	*out = s.sum;
	return 0;
}
