// SPDX-License-Identifier: BSD-2-Clause
/* Entry point of the provider, and the operator's parameters. */
#include <stdlib.h>
#include <string.h>

#include "core/cost.h"
#include "core/log.h"
#include "core/operator.h"
#include "rpmem/rpmem.h"

static void prov_cleanup(void)
{
	rp_log_set(NULL);
}

struct fi_provider rp_prov = {
	.name = RP_PROV_NAME,
	.version = FI_VERSION(0, 1),
	.getinfo = rp_getinfo,
	.fabric = rp_fabric_open,
	.cleanup = prov_cleanup,
};

struct rp_params rp_params = {
	.required = RP_CLASS_POWER,
	.timeout_ns = 5000000000ull,
	.slow_rate = 16 << 20,
	.max_commits = 4096,
	.inline_max = RP_WIRE_MAX_STORE,
	.spin_ns = 20000,
	.native = true,
};

static void log_sink(enum rp_log_level level, const char *text)
{
	switch (level) {
	case RP_LOG_WARN:
		FI_WARN(&rp_prov, FI_LOG_DOMAIN, "%s\n", text);
		break;
	case RP_LOG_INFO:
		FI_INFO(&rp_prov, FI_LOG_DOMAIN, "%s\n", text);
		break;
	case RP_LOG_DEBUG:
		FI_DBG(&rp_prov, FI_LOG_DOMAIN, "%s\n", text);
		break;
	}
}

/* A file with a mistake is ignored as a whole. */
static void cost_read(void)
{
	static struct rp_cost measured;
	char why[RP_WHY_LEN], *file = NULL;

	fi_param_get_str(&rp_prov, "cost", &file);
	if (!file || !*file)
		return;
	measured = rp_cost_default;
	if (rp_cost_read(file, &measured, why)) {
		FI_WARN(&rp_prov, FI_LOG_FABRIC,
			"FI_OFI_RPMEM_COST: %s: none of its figures is used\n",
			why);
		return;
	}
	FI_INFO(&rp_prov, FI_LOG_FABRIC, "costs are those of %s\n", file);
	rp_params.measured = &measured;
}

static void get_size(const char *name, size_t *value)
{
	size_t v;

	if (!fi_param_get_size_t(&rp_prov, name, &v) && v)
		*value = v;
}

/* "5000-5100", or one port. */
static void ports_read(void)
{
	unsigned long first, last;
	char *text, *end;

	if (fi_param_get_str(&rp_prov, "ports", &text) || !*text)
		return;
	first = last = strtoul(text, &end, 10);
	if (*end == '-' && end[1] >= '0' && end[1] <= '9')
		last = strtoul(end + 1, &end, 10);
	if (*text >= '0' && *text <= '9' && !*end && first && first <= last &&
	    last <= UINT16_MAX) {
		rp_params.port_first = (uint16_t)first;
		rp_params.port_last = (uint16_t)last;
		return;
	}
	FI_WARN(&rp_prov, FI_LOG_FABRIC,
		"FI_OFI_RPMEM_PORTS=%s is no range of ports (FIRST-LAST, 1 to "
		"65535): targets listen on ports that the kernel chooses\n",
		text);
}

static void params_define(void)
{
	const size_t us = rp_params.spin_ns / 1000;
	const size_t ms = rp_params.timeout_ns / 1000000;

	fi_param_define(&rp_prov, "class", FI_PARAM_STRING,
			"Failure class that a commit requires unless "
			"the call names one: power, process or none "
			"(power)");
	fi_param_define(&rp_prov, "timeout", FI_PARAM_SIZE_T,
			"Milliseconds without a message from a target, "
			"after which its connection is closed and its "
			"operations fail (%zu)",
			ms);
	fi_param_define(&rp_prov, "slow_rate", FI_PARAM_SIZE_T,
			"Bytes per second of the slowest network in "
			"use. The timeout is extended by the time that "
			"the unacknowledged bytes take at this rate "
			"(%zu)",
			(size_t)rp_params.slow_rate);
	fi_param_define(&rp_prov, "ports", FI_PARAM_STRING,
			"FIRST-LAST: range of ports on which a target "
			"listens for private connections; open these in "
			"firewalls (any)");
	fi_param_define(&rp_prov, "emulate", FI_PARAM_BOOL,
			"Treat anonymous and tmpfs memory as persistent "
			"memory of class none, for tests (no)");
	fi_param_define(&rp_prov, "trust_fs", FI_PARAM_STRING,
			"Comma-separated list of file systems whose "
			"msync reaches stable storage, although "
			"ofi_rpmem does not list them (none)");
	fi_param_define(&rp_prov, "operator", FI_PARAM_STRING,
			"File with the operator's statements on "
			"hardware properties that software cannot "
			"detect (%s, if it exists)",
			RP_OPERATOR_DEFAULT);
	fi_param_define(&rp_prov, "method", FI_PARAM_STRING,
			"Commit by this method instead of the cheapest "
			"one; memory that does not allow it is refused "
			"(none)");
	fi_param_define(&rp_prov, "allow_force_granularity", FI_PARAM_BOOL,
			"Obey PMEM2_FORCE_GRANULARITY, with class none (no)");
	fi_param_define(&rp_prov, "max_commits", FI_PARAM_SIZE_T,
			"Outstanding commits from one endpoint to one "
			"target, at most (%zu)",
			rp_params.max_commits);
	fi_param_define(&rp_prov, "credits", FI_PARAM_SIZE_T,
			"Outstanding requests that a target accepts "
			"from one initiator (%d)",
			RP_AGENT_CREDITS);
	fi_param_define(&rp_prov, "max_sessions", FI_PARAM_SIZE_T,
			"Initiators that a target serves at once (%d)",
			RP_AGENT_SESSIONS);
	fi_param_define(&rp_prov, "inline", FI_PARAM_SIZE_T,
			"Longest durable write, in bytes, that is sent inside "
			"its request; 0 switches this off (%zu)",
			rp_params.inline_max);
	fi_param_define(&rp_prov, "spin", FI_PARAM_SIZE_T,
			"Busy-poll budget in microseconds before sleeping; "
			"adapts to 0 when polling does not pay (%zu)",
			us);
	fi_param_define(&rp_prov, "cost", FI_PARAM_STRING,
			"File of costs measured on this machine, written by "
			"fi_rpmem_bench calibrate (none)");
	fi_param_define(&rp_prov, "native", FI_PARAM_BOOL,
			"Use the FLUSH operation of RDMA devices that have it "
			"(yes)");
	fi_param_define(&rp_prov, "commit_writes", FI_PARAM_BOOL,
			"Commit every write to files and persistent "
			"memory, for programs that do not request "
			"commits (no)");
}

static void params_read(void)
{
	size_t us = rp_params.spin_ns / 1000;
	size_t ms = rp_params.timeout_ns / 1000000, rate = rp_params.slow_rate;
	char *s;

	params_define();
	if (!fi_param_get_str(&rp_prov, "class", &s) &&
	    rp_class_parse(s, &rp_params.required))
		FI_WARN(&rp_prov, FI_LOG_FABRIC,
			"FI_OFI_RPMEM_CLASS=%s is none of power, process, "
			"none: power is used\n",
			s);
	if (rp_params.required < RP_CLASS_POWER)
		FI_WARN(&rp_prov, FI_LOG_FABRIC,
			"commits are only required to survive: %s\n",
			rp_class_name(rp_params.required));
	get_size("timeout", &ms);
	rp_params.timeout_ns = ms * 1000000ull;
	get_size("slow_rate", &rate);
	rp_params.slow_rate = rate;
	get_size("max_commits", &rp_params.max_commits);
	get_size("credits", &rp_params.credits);
	get_size("max_sessions", &rp_params.max_sessions);
	fi_param_get_size_t(&rp_prov, "inline", &rp_params.inline_max);
	fi_param_get_size_t(&rp_prov, "spin", &us);
	rp_params.spin_ns = us * 1000ull;
	if (rp_params.inline_max > RP_WIRE_MAX_STORE)
		rp_params.inline_max = RP_WIRE_MAX_STORE;
	cost_read();
	ports_read();
	fi_param_get_bool(&rp_prov, "native", &rp_params.native);
	fi_param_get_bool(&rp_prov, "commit_writes", &rp_params.commit_writes);
	fi_param_get_bool(&rp_prov, "emulate", &rp_params.emulate);
	fi_param_get_bool(&rp_prov, "allow_force_granularity",
			  &rp_params.allow_force_granularity);
	fi_param_get_str(&rp_prov, "trust_fs", &rp_params.trust_fs);
	fi_param_get_str(&rp_prov, "operator", &rp_params.operator_file);
	fi_param_get_str(&rp_prov, "method", &rp_params.method);
	if (rp_params.method && !*rp_params.method)
		rp_params.method = NULL;
	if (rp_params.method &&
	    rp_method_parse(rp_params.method) == RP_METHOD_REFUSED)
		FI_WARN(&rp_prov, FI_LOG_FABRIC,
			"FI_OFI_RPMEM_METHOD=%s names no method: no "
			"persistent memory is registered, and every commit "
			"is a request to its target\n",
			rp_params.method);
}

__attribute__((visibility("default"))) struct fi_provider *fi_prov_ini(void);

struct fi_provider *fi_prov_ini(void)
{
	/* libfabric skips a provider that is older than the application. */
	rp_prov.fi_version = fi_version();
	rp_log_set(log_sink);
	params_read();
	return &rp_prov;
}
