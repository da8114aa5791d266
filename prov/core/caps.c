// SPDX-License-Identifier: BSD-2-Clause
/* Read from the process map what backs a range of memory, file by file. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/sysmacros.h>

#include "core/caps_priv.h"
#include "core/hash.h"
#include "core/operator_file.h"

#define say(why, ...) rp_caps_fmt(why, RP_WHY_LEN, __VA_ARGS__)

/*
 * Was every mapping in [start, end) made with MAP_SYNC? Only smaps shows that,
 * and the kernel walks page tables for each of its lines, so it is read for DAX
 * only. A mix counts as no MAP_SYNC: msync is right for both.
 */
static bool all_map_sync(const char *root, uintptr_t start, uintptr_t end)
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

int rp_caps_vma_next(FILE *f, uintptr_t addr, struct rp_vma *v, char *why)
{
	char *dash;
	int path = 0;

	/* Skip the many lines in front of addr cheaply. */
	do {
		if (getline(&v->line, &v->size, f) < 0) {
			if (feof(f))
				return 0;
			say(why, "cannot read /proc/self/maps");
			return errno == ENOMEM ? -ENOMEM : -EIO;
		}
		strtoul(v->line, &dash, 16);
	} while (*dash == '-' && strtoul(dash + 1, NULL, 16) <= addr);
	if (sscanf(v->line, "%lx-%lx %4s %llx %x:%x %llu %n", &v->start,
		   &v->end, v->perms, &v->offset, &v->major, &v->minor, &v->ino,
		   &path) < 7 ||
	    !path) {
		say(why, "cannot make sense of /proc/self/maps");
		return -EPROTO;
	}
	v->path = v->line + path;
	v->path[strcspn(v->path, "\n")] = '\0';
	return 1;
}

static bool on_storage(enum rp_memory m)
{
	return m == RP_MEM_FILE || m == RP_MEM_DAX || m == RP_MEM_DAX_SYNC;
}

static bool same_backing(const struct rp_backing *a, const struct rp_backing *b)
{
	return a->ino == b->ino && a->major == b->major && a->minor == b->minor;
}

/* Check that mapping v can back [from, to), like the mappings before it. */
static int vma_add(const struct rp_caps_cfg *cfg, const struct rp_vma *v,
		   uintptr_t from, uintptr_t to, bool first,
		   struct rp_backing *b, struct rp_backing *all, char *why)
{
	struct rp_backing here;

	if (v->perms[0] != 'r' || v->perms[1] != 'w') {
		say(why,
		    "the mapping at %#lx is not readable and writable (%s): "
		    "map it with PROT_READ | PROT_WRITE",
		    (unsigned long)from, v->perms);
		return -EFAULT;
	}
	rp_caps_classify(cfg, v, b);
	/* Behind the end of the file, bytes of a page have no storage. */
	if (to - v->start + v->offset > b->size) {
		say(why,
		    "the range ends behind the end of %s: allocate the file "
		    "first",
		    rp_caps_file_name(v->path));
		return -EFAULT;
	}
	here = *b;
	rp_caps_emulate(cfg, &here);
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
	/* A region on two files would mix their write-back errors. */
	if (on_storage(here.memory) && !same_backing(&here, all)) {
		say(why,
		    "the range goes on in another file, %s, at %#lx: register "
		    "them apart",
		    rp_caps_file_name(v->path), (unsigned long)from);
		return -ENOTSUP;
	}
	return 0;
}

static int maps_read(const struct rp_caps_cfg *cfg, uintptr_t start,
		     uintptr_t end, struct rp_backing *all, char *why)
{
	FILE *f = rp_caps_open(cfg->root, "/proc/self/maps");
	struct rp_backing b = {0}; /* backing of the previous mapping */
	uintptr_t cursor = start, to;
	struct rp_vma v = {0};
	int ret = 0;

	if (!f) {
		ret = -errno;
		say(why, "cannot read /proc/self/maps: %s", strerror(errno));
		return ret;
	}
	while (!ret && cursor < end) {
		ret = rp_caps_vma_next(f, cursor, &v, why);
		if (ret <= 0 || v.start > cursor)
			break;
		to = v.end < end ? v.end : end;
		ret = vma_add(cfg, &v, cursor, to, cursor == start, &b, all,
			      why);
		cursor = to;
	}
	free(v.line);
	fclose(f);
	if (ret >= 0 && cursor < end) {
		say(why, "nothing is mapped at %#lx", (unsigned long)cursor);
		ret = -EFAULT;
	}
	return ret;
}

bool rp_facts_is_devdax(const struct rp_facts *f)
{
	return f->memory == RP_MEM_DAX_SYNC && !f->fs_name[0];
}

static void sources_fill(const struct rp_caps_cfg *cfg,
			 const struct rp_backing *b,
			 const struct rp_facts *facts, struct rp_sources *src)
{
	*src = (struct rp_sources){.raised = 0};
	rp_caps_fmt(src->memory, sizeof(src->memory), "%s", b->why);
	rp_caps_fmt(src->placement, sizeof(src->placement), "%s",
		    cfg->placement_why ? cfg->placement_why
				       : "the base provider");
	rp_caps_fmt(src->domain, sizeof(src->domain), "%s", b->domain_why);
	rp_caps_fmt(src->fence, sizeof(src->fence), "%s",
		    cfg->fence_why ? cfg->fence_why : "nothing tells");
	rp_caps_fmt(src->native, sizeof(src->native), "%s",
		    cfg->native_why ? cfg->native_why
				    : "nothing tells: both ends must confirm "
				      "it");
	if (facts->fs_trusted == RP_UNKNOWN)
		return;
	if (!facts->fs_name[0])
		rp_caps_fmt(src->fs, sizeof(src->fs),
			    "no file system in "
			    "between");
	else
		rp_caps_fmt(src->fs, sizeof(src->fs), "%s is %s",
			    facts->fs_name,
			    rp_caps_fs_listed(facts->fs_name)
				    ? "listed; its mount options"
				    : "not listed; FI_OFI_RPMEM_TRUST_FS");
}

/* Does no descriptor refer to the memory, so that none can truncate it? */
static bool is_anonymous(const struct rp_backing *b)
{
	/* The kernel shows this name for shared anonymous memory. */
	return !b->ino || !strcmp(b->path, "/dev/zero (deleted)");
}

int rp_caps_explain(const struct rp_caps_cfg *cfg, const void *addr, size_t len,
		    struct rp_facts *facts, char *why, struct rp_sources *src)
{
	uintptr_t start = (uintptr_t)addr, end = start + len;
	struct rp_sources scratch;
	struct rp_backing b;
	int ret;

	if (!len || end < start) {
		say(why, len ? "the range wraps" : "the range is empty");
		return -EINVAL;
	}
	ret = maps_read(cfg, start, end, &b, why);
	if (ret)
		return ret;
	if (b.memory == RP_MEM_DAX && all_map_sync(cfg->root, start, end))
		b.memory = RP_MEM_DAX_SYNC;
	say(why, "%s", b.why);
	*facts = (struct rp_facts){
		.memory = b.memory,
		.placement = cfg->placement,
		.domain = b.domain,
		.fence = cfg->fence,
		.native = cfg->native,
		.fs_trusted = b.trusted,
		.anonymous = is_anonymous(&b),
		.agent = true, /* this code runs in the target */
		.node = b.node,
	};
	strcpy(facts->fs_name, b.fs.name);
	rp_caps_fmt(facts->name, sizeof(facts->name), "%s",
		    rp_caps_file_name(b.path));
	HASH_JEN(b.path, strlen(b.path), facts->path);
	if (on_storage(b.memory))
		facts->file = (struct rp_file_id){
			.dev = makedev(b.major, b.minor),
			.ino = b.ino,
		};
	if (!src)
		src = &scratch;
	sources_fill(cfg, &b, facts, src);
	/* Cache lines written back to DAX memory bypass the disk's cache. */
	if (b.disks.flaw[0] && b.memory != RP_MEM_DAX_SYNC) {
		facts->limit = RP_LIMIT_PROCESS;
		strcpy(src->limit, b.disks.flaw);
		say(why, "%s; %s", b.why, b.disks.flaw);
	}
	if (cfg->op)
		rp_operator_apply(cfg->op, b.path, b.device, facts, src);
	return 0;
}

int rp_caps_find(struct rp_caps_cfg cfg, const void *addr, size_t len,
		 struct rp_facts *facts, char *why, struct rp_sources *src,
		 struct rp_nic *nic)
{
	struct rp_operator *op;
	struct rp_nic unused;
	int ret = rp_operator_find(cfg.op_file, &op, why);

	if (ret)
		return ret;
	if (!nic)
		nic = &unused;
	rp_caps_base_provider(cfg.root, cfg.base, cfg.device, nic);
	cfg.placement = nic->placement;
	cfg.placement_why = nic->placement_why;
	cfg.fence = nic->fence;
	cfg.fence_why = nic->fence_why;
	cfg.op = op;
	ret = rp_caps_explain(&cfg, addr, len, facts, why, src);
	rp_operator_free(op);
	return ret;
}

static bool env_flag(const char *name)
{
	static const char *const yes[] = {"1", "y", "yes", "on", "true"};
	const char *v = getenv(name);

	for (size_t i = 0; v && i < sizeof(yes) / sizeof(yes[0]); i++)
		if (!strcasecmp(v, yes[i]))
			return true;
	return false;
}

struct rp_caps_cfg rp_caps_cfg_from_env(void)
{
	return (struct rp_caps_cfg){
		.trust_fs = getenv("FI_OFI_RPMEM_TRUST_FS"),
		.emulate = env_flag("FI_OFI_RPMEM_EMULATE"),
		.op_file = getenv("FI_OFI_RPMEM_OPERATOR"),
	};
}
