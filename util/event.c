// SPDX-License-Identifier: BSD-2-Clause
/* Events of fi_rpmemd: lines on standard error. */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "util/event.h"
#include "util/text.h"

void rp_event(const char *fmt, ...)
{
	char at[32] = "", text[2 * RP_ERR_LEN];
	time_t now = time(NULL);
	struct tm tm;
	va_list ap;

	if (!getenv("JOURNAL_STREAM") && localtime_r(&now, &tm))
		strftime(at, sizeof(at), "%Y-%m-%dT%H:%M:%S%z ", &tm);
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "%sfi_rpmemd: %s\n", at, text);
}
