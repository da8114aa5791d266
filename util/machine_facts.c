// SPDX-License-Identifier: BSD-2-Clause
/* Looks up memory properties as the provider does in this environment. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/operator.h"
#include "util/machine_facts.h"

int rp_facts_flag(const char *name)
{
	static const char *const yes[] = {"1", "y", "yes", "on", "true"};
	const char *v = getenv(name);

	for (size_t i = 0; v && i < sizeof(yes) / sizeof(yes[0]); i++)
		if (!strcasecmp(v, yes[i]))
			return 1;
	return 0;
}

struct rp_choice rp_facts_pick(const struct rp_facts *facts, char *why)
{
	return rp_method_pick(facts, getenv("FI_OFI_RPMEM_METHOD"), why);
}

static bool is_verbs(const char *base)
{
	return base && !strncasecmp(base, "verbs", strlen("verbs"));
}

/*
 * Reason why the FLUSH property is unknown: it needs an open domain and the
 * peer.
 */
static const char *native_why(const char *base)
{
	if (!is_verbs(base))
		return "private connections over tcp have no FLUSH";
	return "known only with an open domain; devices of both ends "
	       "must have FLUSH";
}

int rp_facts_find(const char *base, const char *device, const void *addr,
		  size_t len, struct rp_facts *facts, char *why,
		  struct rp_sources *src, struct rp_nic *nic)
{
	struct rp_caps_cfg cfg = {
		.trust_fs = getenv("FI_OFI_RPMEM_TRUST_FS"),
		.emulate = rp_facts_flag("FI_OFI_RPMEM_EMULATE"),
		.allow_force_granularity =
			rp_facts_flag("FI_OFI_RPMEM_ALLOW_FORCE_GRANULARITY"),
	};
	struct rp_operator *op;
	struct rp_nic nic_buf;
	int ret = rp_operator_find(getenv("FI_OFI_RPMEM_OPERATOR"), &op, why);

	if (ret)
		return ret;
	if (!nic)
		nic = &nic_buf;
	/* Private connections use verbs or tcp, whatever the base is. */
	rp_caps_base(NULL, is_verbs(base) ? base : "tcp", device, nic);
	cfg.placement = nic->placement;
	cfg.fence = nic->fence;
	cfg.placement_why = nic->placement_why;
	cfg.fence_why = nic->fence_why;
	cfg.native_why = native_why(base);
	cfg.op = op;
	ret = rp_caps_explain(&cfg, addr, len, facts, why, src);
	rp_operator_free(op);
	return ret;
}
