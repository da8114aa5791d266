// SPDX-License-Identifier: BSD-2-Clause
/* Parameters from the environment, named as the provider's. */
#include <stdlib.h>

#include "core/log.h"
#include "verbs/target.h"

#define TIMEOUT_MS 5000
#define SPIN_US	   20

void rp_shim_cfg(struct rp_remote_cfg *cfg)
{
	const char *class = getenv("FI_OFI_RPMEM_CLASS");
	const char *method = getenv("FI_OFI_RPMEM_METHOD");

	*cfg = (struct rp_remote_cfg){.required = RP_CLASS_POWER};
	if (class && rp_class_parse(class, &cfg->required))
		rp_log(RP_LOG_WARN, "FI_OFI_RPMEM_CLASS=%s is no class", class);
	if (cfg->required < RP_CLASS_POWER)
		rp_log(RP_LOG_WARN,
		       "FI_OFI_RPMEM_CLASS lowers what a flush "
		       "has to survive to %s",
		       rp_class_name(cfg->required));
	if (method && *method) {
		cfg->forced = rp_method_parse(method);
		/* Unknown: refuse all, by a method that no memory has. */
		if (cfg->forced == RP_METHOD_REFUSED)
			cfg->forced = RP_METHOD_MAX;
	}
}

uint64_t rp_shim_timeout(void)
{
	const char *s = getenv("FI_OFI_RPMEM_TIMEOUT");
	uint64_t ms = s ? strtoul(s, NULL, 10) : 0;

	return (ms && ms <= UINT32_MAX ? ms : TIMEOUT_MS) * 1000000u;
}

uint64_t rp_shim_spin(void)
{
	const char *s = getenv("FI_OFI_RPMEM_SPIN");

	return (s ? strtoul(s, NULL, 10) : SPIN_US) * 1000ull;
}

int rp_device_facts(struct ibv_pd *pd, void *addr, size_t length,
		    struct rp_facts *facts, char *why)
{
	struct rp_caps_cfg cfg = rp_caps_cfg_from_env();

	cfg.base = "verbs";
	cfg.device = ibv_get_device_name(pd->context->device);
	return rp_caps_find(cfg, addr, length, facts, why, NULL, NULL);
}
