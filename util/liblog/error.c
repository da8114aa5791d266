// SPDX-License-Identifier: BSD-2-Clause
/* The error text of each thread. */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>

#include "liblog/log.h"

static __thread char sentence[LOG_ERR_LEN];

const char *rpmem_log_error(void)
{
	return sentence;
}

int log_error(int ret, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(sentence, sizeof(sentence), fmt, ap);
	va_end(ap);
	return ret;
}
