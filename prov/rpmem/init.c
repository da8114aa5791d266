// SPDX-License-Identifier: BSD-2-Clause
/* Provider entry point fi_prov_ini(), and parameters from the environment. */
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/operator_file.h"
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
	.max_commits = 4096,
	.credits = RP_AGENT_CREDITS,
	.max_sessions = RP_AGENT_SESSIONS,
	.inline_max = RP_WIRE_MAX_STORE,
	.native = true,
};

static void log_sink(enum rp_log_level level, const char *text)
{
	if (level == RP_LOG_WARN)
		RP_WARN(DOMAIN, "%s\n", text);
	else
		RP_INFO(DOMAIN, "%s\n", text);
}

/* Read the parameter ports: "5000-5100", or one port. */
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
	RP_WARN(FABRIC,
		"FI_OFI_RPMEM_PORTS=%s is no range of ports (FIRST-LAST, 1 to "
		"65535): targets listen on ports that the kernel chooses\n",
		text);
}

/* Parameters in user units; converted into rp_params. */
static size_t timeout_ms = 5000, slow_rate = 16 << 20, spin_us = 20;
static char *class_name;

/* Parameters for fi_param_define(); %zu in the help becomes the default. */
static const struct param {
	const char *name;
	enum fi_param_type type;
	void *value; /* NULL: ports_read() reads it */
	const char *help;
} params[] = {
	{"class", FI_PARAM_STRING, &class_name,
	 "Failure class that a commit requires unless the call names one: "
	 "power, process or none (power)"},
	{"timeout", FI_PARAM_SIZE_T, &timeout_ms,
	 "Milliseconds without a message from a target, after which its "
	 "connection is closed and its operations fail (%zu)"},
	{"slow_rate", FI_PARAM_SIZE_T, &slow_rate,
	 "Bytes per second of the slowest network in use. The timeout is "
	 "extended by the time that the unacknowledged bytes take at this "
	 "rate (%zu)"},
	{"ports", FI_PARAM_STRING, NULL,
	 "FIRST-LAST: range of ports on which a target listens for private "
	 "connections; open these in firewalls (any)"},
	{"emulate", FI_PARAM_BOOL, &rp_params.emulate,
	 "Treat anonymous and tmpfs memory as persistent memory of class "
	 "none, for tests (no)"},
	{"trust_fs", FI_PARAM_STRING, &rp_params.trust_fs,
	 "Comma-separated list of file systems whose msync reaches stable "
	 "storage, although ofi_rpmem does not list them (none)"},
	{"operator", FI_PARAM_STRING, &rp_params.operator_file,
	 "File with the operator's statements on hardware properties that "
	 "software cannot detect (" RP_OPERATOR_DEFAULT ", if it exists)"},
	{"method", FI_PARAM_STRING, &rp_params.method,
	 "Commit by this method instead of the cheapest one; memory that "
	 "does not allow it is refused (none)"},
	{"max_commits", FI_PARAM_SIZE_T, &rp_params.max_commits,
	 "Outstanding commits from one endpoint to one target, at most "
	 "(%zu)"},
	{"credits", FI_PARAM_SIZE_T, &rp_params.credits,
	 "Outstanding requests that a target accepts from one initiator "
	 "(%zu)"},
	{"max_sessions", FI_PARAM_SIZE_T, &rp_params.max_sessions,
	 "Initiators that a target serves at once (%zu)"},
	{"inline", FI_PARAM_SIZE_T, &rp_params.inline_max,
	 "Longest durable write, in bytes, that is sent inside its request; "
	 "0 switches this off (%zu)"},
	{"spin", FI_PARAM_SIZE_T, &spin_us,
	 "Busy-poll budget in microseconds before sleeping; adapts to 0 "
	 "when polling does not pay (%zu)"},
	{"native", FI_PARAM_BOOL, &rp_params.native,
	 "Use the FLUSH operation of RDMA devices that have it (yes)"},
	{"commit_writes", FI_PARAM_BOOL, &rp_params.commit_writes,
	 "Commit every write to files and persistent memory, for programs "
	 "that do not request commits (no)"},
};

static void param_read(const struct param *p)
{
	size_t v = p->type == FI_PARAM_SIZE_T ? *(size_t *)p->value : 0;
	/* Only spin and inline_max may be 0, which disables them. */
	const bool zero =
		p->value == &spin_us || p->value == &rp_params.inline_max;

	fi_param_define(&rp_prov, p->name, p->type, p->help, v);
	if (p->type == FI_PARAM_BOOL)
		fi_param_get_bool(&rp_prov, p->name, p->value);
	else if (p->type == FI_PARAM_STRING && p->value)
		fi_param_get_str(&rp_prov, p->name, p->value);
	else if (p->type == FI_PARAM_SIZE_T &&
		 !fi_param_get_size_t(&rp_prov, p->name, &v) && (v || zero))
		*(size_t *)p->value = v;
}

static void params_read(void)
{
	for (size_t i = 0; i < sizeof(params) / sizeof(params[0]); i++)
		param_read(&params[i]);
	if (class_name && rp_class_parse(class_name, &rp_params.required))
		RP_WARN(FABRIC,
			"FI_OFI_RPMEM_CLASS=%s is none of power, process, "
			"none: power is used\n",
			class_name);
	if (rp_params.required < RP_CLASS_POWER)
		RP_WARN(FABRIC, "commits are only required to survive: %s\n",
			rp_class_name(rp_params.required));
	rp_params.timeout_ns = timeout_ms * 1000000ull;
	rp_params.slow_rate = slow_rate;
	rp_params.spin_ns = spin_us * 1000ull;
	if (rp_params.inline_max > RP_WIRE_MAX_STORE)
		rp_params.inline_max = RP_WIRE_MAX_STORE;
	ports_read();
	if (rp_params.method && !*rp_params.method)
		rp_params.method = NULL;
	if (rp_params.method &&
	    rp_method_parse(rp_params.method) == RP_METHOD_REFUSED)
		RP_WARN(FABRIC,
			"FI_OFI_RPMEM_METHOD=%s names no method: no "
			"persistent memory is registered, and every commit "
			"is a request to its target\n",
			rp_params.method);
}

__attribute__((visibility("default"))) struct fi_provider *fi_prov_ini(void);

struct fi_provider *fi_prov_ini(void)
{
	/* libfabric skips a provider with an older API version than its own. */
	rp_prov.fi_version = fi_version();
	rp_log_set(log_sink);
	params_read();
	return &rp_prov;
}
