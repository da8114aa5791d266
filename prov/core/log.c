// SPDX-License-Identifier: BSD-2-Clause
/* Pass core's log lines to the function of its caller. */
#include <stdarg.h>
#include <stdio.h>

#include "core/log.h"

static rp_log_fn sink;

void rp_log_set(rp_log_fn fn)
{
	sink = fn;
}

void rp_log(enum rp_log_level level, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	if (!sink && level != RP_LOG_WARN)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (sink)
		sink(level, text);
	else
		fprintf(stderr, "ofi_rpmem: %s\n", text);
}
