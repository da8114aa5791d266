// SPDX-License-Identifier: BSD-2-Clause
/* Services of the real machine: clock, random bytes, memory facts. */
#include "core/thread.h"
#include "rpmem/os_services.h"

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
	return rp_random(buf, len);
}

int rp_host_facts(const struct rp_caps_cfg *cfg, const void *addr, size_t len,
		  struct rp_facts *facts, char *why)
{
	return rp_caps_find(*cfg, addr, len, facts, why, NULL, NULL);
}

int rp_host_intent(const struct rp_caps_cfg *cfg, const void *addr, size_t len,
		   enum rp_intent *intent, char *why)
{
	return rp_caps_intent(cfg, addr, len, intent, why);
}

bool rp_host_acknowledges(const char *base, const char *device, char *why)
{
	return rp_caps_write_is_acknowledged(NULL, base, device, why);
}

const struct rp_pmem_ops *rp_host_flusher(const void *addr, size_t len)
{
	return NULL;
}

bool rp_host_has_threads(void)
{
	return true;
}

void rp_host_replace_rc(struct rp_rc_attr *attr)
{
}
