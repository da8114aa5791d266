// SPDX-License-Identifier: BSD-2-Clause
/* The real machine: its clock, its randomness, its memory. */
#include <errno.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

#include "core/operator.h"
#include "rpmem/host.h"

uint64_t rp_host_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

uint64_t rp_host_tick(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

int rp_host_random(void *buf, size_t len)
{
	return getrandom(buf, len, 0) == (ssize_t)len ? 0 : -errno;
}

int rp_host_facts(struct rp_caps_cfg cfg, const char *base, const char *device,
		  const char *op_file, const void *addr, size_t len,
		  struct rp_facts *facts, char *why)
{
	struct rp_operator *op;
	struct rp_nic nic;
	int ret = rp_operator_find(op_file, &op, why);

	if (ret)
		return ret;
	rp_caps_base(cfg.root, base, device, &nic);
	cfg.placement = nic.placement;
	cfg.fence = nic.fence;
	cfg.told = nic.told;
	cfg.placement_why = nic.placement_why;
	cfg.fence_why = nic.fence_why;
	cfg.told_why = nic.told_why;
	cfg.op = op;
	ret = rp_caps_region(&cfg, addr, len, facts, why);
	rp_operator_free(op);
	return ret;
}

int rp_host_lasts(const struct rp_caps_cfg *cfg, const void *addr, size_t len,
		  enum rp_lasts *lasts, char *why)
{
	return rp_caps_lasts(cfg, addr, len, lasts, why);
}

bool rp_host_tells(const char *base, const char *device)
{
	struct rp_nic nic;

	rp_caps_base(NULL, base, device, &nic);
	return nic.told == RP_YES;
}

/*
 * tcp's memory goes by keys that we choose, and a write is placed behind those
 * before it, by the CPU, through the program's mapping. That of verbs goes by
 * the device's; who places is looked at region by region (mr.c).
 */
enum rp_connects rp_host_connects(const char *base)
{
	if (!strcasecmp(base, "tcp"))
		return RP_CONNECTS_BY_NAMES;
	return strcasecmp(base, "verbs") ? RP_CONNECTS_NOT
					 : RP_CONNECTS_BY_CARD;
}

bool rp_host_fences(const char *base, const char *device, const char *op_file)
{
	struct rp_sources src = {.raised = 0};
	struct rp_facts facts = {.agent = true};
	struct rp_operator *op = NULL;
	char why[RP_WHY_LEN];
	struct rp_nic nic;

	rp_caps_base(NULL, base, device, &nic);
	facts.placement = nic.placement;
	/* A file that cannot be read lets no region be registered either. */
	if (!rp_operator_find(op_file, &op, why) && op)
		rp_operator_apply(op, "", "", &facts, &src);
	rp_operator_free(op);
	return facts.placement != RP_PLACE_CPU_USER &&
	       facts.placement != RP_PLACE_CPU_KERNEL;
}

enum rp_path rp_host_path(const char *base, const char *device)
{
	struct rp_nic nic;

	rp_caps_base(NULL, base, device, &nic);
	return rp_cost_path_of(&nic);
}

bool rp_host_acknowledges(const char *base, const char *device, char *why)
{
	return rp_caps_acknowledges(NULL, base, device, why);
}

const struct rp_pmem_ops *rp_host_flusher(const void *addr, size_t len)
{
	return NULL;
}

uint64_t rp_host_flush_flag(void)
{
	return 0;
}

bool rp_host_has_threads(void)
{
	return true;
}
