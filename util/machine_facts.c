// SPDX-License-Identifier: BSD-2-Clause
/* Finds memory properties as the provider does in this environment. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "util/machine_facts.h"

struct rp_choice rp_facts_pick(const struct rp_facts *facts, char *why)
{
	return rp_method_for_region(facts, getenv("FI_OFI_RPMEM_METHOD"), why);
}

static bool is_verbs(const char *base)
{
	return base && !strncasecmp(base, "verbs", strlen("verbs"));
}

/*
 * Say why it is unknown whether native FLUSH works: only an open domain and the
 * peer's device could tell.
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
	struct rp_caps_cfg cfg = rp_caps_cfg_from_env();

	/* Private connections are over tcp unless the base is verbs. */
	cfg.base = is_verbs(base) ? base : "tcp";
	cfg.device = device;
	cfg.native_why = native_why(base);
	return rp_caps_find(cfg, addr, len, facts, why, src, nic);
}
