// SPDX-License-Identifier: BSD-2-Clause
/* Facts of memory that a device writes, by the provider's parameters. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/operator.h"
#include "verbs/target.h"

/* As the provider's parameters: one operator, one machine. */
static bool is_set(const char *name)
{
	const char *s = getenv(name);

	return s && (!strcmp(s, "1") || !strcasecmp(s, "yes") ||
		     !strcasecmp(s, "true") || !strcasecmp(s, "on"));
}

int rp_device_facts(struct ibv_pd *pd, void *addr, size_t length,
		    struct rp_facts *facts, char *why)
{
	const char *device = ibv_get_device_name(pd->context->device);
	struct rp_caps_cfg cfg = {
		.trust_fs = getenv("FI_OFI_RPMEM_TRUST_FS"),
		.emulate = is_set("FI_OFI_RPMEM_EMULATE"),
		.allow_force_granularity =
			is_set("FI_OFI_RPMEM_ALLOW_FORCE_GRANULARITY"),
	};
	struct rp_operator *op;
	struct rp_nic nic;
	int ret = rp_operator_find(getenv("FI_OFI_RPMEM_OPERATOR"), &op, why);

	if (ret)
		return ret;
	rp_caps_base(NULL, "verbs", device, &nic);
	cfg.placement = nic.placement;
	cfg.placement_why = nic.placement_why;
	cfg.fence = nic.fence;
	cfg.fence_why = nic.fence_why;
	cfg.op = op;
	ret = rp_caps_region(&cfg, addr, length, facts, why);
	rp_operator_free(op);
	return ret;
}
