// SPDX-License-Identifier: BSD-2-Clause
/*
 * Replaces prov/rpmem/os_services.c: forwards the provider's host calls to the
 * test, which simulates the machine.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/watch.h"
#include "host_sim.h"
#include "rpmem/rpmem.h"
#include "sim_rc.h"

static void inline_max(size_t bytes)
{
	rp_params.inline_max = bytes;
}

static void require_class(enum rp_class class)
{
	rp_params.required = class;
}

static void method(const char *forced)
{
	rp_params.method = (char *)forced;
}

__attribute__((visibility("default"))) struct host_sim rp_host_sim = {
	.inline_max = inline_max,
	.required = require_class,
	.method = method,
};

uint64_t rp_host_now(void)
{
	return rp_host_sim.now();
}

uint64_t rp_host_tick(void)
{
	return rp_host_sim.now();
}

int rp_host_random(void *buf, size_t len)
{
	rp_host_sim.random(buf, len);
	return 0;
}

int rp_host_facts(const struct rp_caps_cfg *cfg, const void *addr, size_t len,
		  struct rp_facts *facts, char *why)
{
	snprintf(why, RP_WHY_LEN, "simulated memory");
	if (rp_host_sim.source)
		free(rp_watch_read(RP_SOURCE_BYTES, rp_host_sim.source, 0));
	return rp_host_sim.facts(addr, len, facts);
}

int rp_host_intent(const struct rp_caps_cfg *cfg, const void *addr, size_t len,
		   enum rp_intent *intent, char *why)
{
	*intent = RP_INTENT_VOLATILE;
	return 0;
}

bool rp_host_acknowledges(const char *base, const char *device, char *why)
{
	return true;
}

const struct rp_pmem_ops *rp_host_flusher(const void *addr, size_t len)
{
	return rp_host_sim.flusher(addr, len);
}

/* Private connections run over the simulated base (sim_rc.c). */
void rp_host_replace_rc(struct rp_rc_attr *attr)
{
	attr->ops = &sim_rc_ops;
}

bool rp_host_has_threads(void)
{
	return false;
}
