// SPDX-License-Identifier: BSD-2-Clause
/* Lines of libfabric and its providers in the journal of a service. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_ext.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include "util/service.h"
#include "util/text.h"

/* libfabric's most severe level is a warning. */
static enum rp_service_level level_of(enum fi_log_level level)
{
	switch (level) {
	case FI_LOG_WARN:
		return RP_SERVICE_WARNING;
	case FI_LOG_TRACE:
	case FI_LOG_INFO:
		return RP_SERVICE_INFO;
	default:
		return RP_SERVICE_DEBUG;
	}
}

/* Write a line without libfabric's prefix: the journal has process and time. */
static void put(const struct fi_provider *prov, enum fi_log_level level,
		enum fi_log_subsys subsys, const char *func, int line,
		const char *msg)
{
	char text[2 * RP_ERR_LEN];

	(void)subsys;
	snprintf(text, sizeof(text), "%s", msg);
	text[strcspn(text, "\n")] = 0;
	rp_text_clean(text, ' ');
	fprintf(stderr, "%sfi_rpmemd: %s: %s():%d: %s\n",
		rp_service_prefix(level_of(level)), prov->name, func, line,
		text);
}

void rp_service_log_fabric(void)
{
	/* FI_LOG_LEVEL, _PROV and _SUBSYS still select the lines. */
	static struct fi_ops_log ops = {.log = put};
	static struct fid_logging log = {.ops = &ops};

	/* If this fails, libfabric itself writes the lines, without levels. */
	if (*rp_service_prefix(RP_SERVICE_WARNING))
		fi_import_log(FI_VERSION(1, 17), 0, &log);
}
