// SPDX-License-Identifier: BSD-2-Clause
/* The real machine: its clock, its randomness, its memory. */
#include <errno.h>
#include <sys/random.h>

#include "core/operator.h"
#include "core/thread.h"
#include "rpmem/host.h"

uint64_t rp_host_now(void)
{
	return rp_clock_ns(CLOCK_MONOTONIC);
}

uint64_t rp_host_tick(void)
{
	return rp_clock_ns(CLOCK_MONOTONIC_COARSE);
}

int rp_host_random(void *buf, size_t len)
{
	return getrandom(buf, len, 0) == (ssize_t)len ? 0 : -errno;
}

int rp_host_facts(struct rp_caps_cfg cfg, const char *transport,
		  const char *device, const char *op_file, const void *addr,
		  size_t len, struct rp_facts *facts, char *why)
{
	struct rp_operator *op;
	struct rp_nic nic;
	int ret = rp_operator_find(op_file, &op, why);

	if (ret)
		return ret;
	rp_caps_base(cfg.root, transport, device, &nic);
	cfg.placement = nic.placement;
	cfg.fence = nic.fence;
	cfg.placement_why = nic.placement_why;
	cfg.fence_why = nic.fence_why;
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

bool rp_host_acknowledges(const char *base, const char *device, char *why)
{
	return rp_caps_acknowledges(NULL, base, device, why);
}

const struct rp_pmem_ops *rp_host_flusher(const void *addr, size_t len)
{
	return NULL;
}

bool rp_host_has_threads(void)
{
	return true;
}

void rp_host_private(struct rp_rc_attr *attr)
{
}
