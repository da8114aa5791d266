// SPDX-License-Identifier: BSD-2-Clause
/* The error text of each thread. */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "librpc/rpc.h"

static __thread char sentence[RP_ERR_LEN];

void rpc_error_reword(char text[RP_ERR_LEN])
{
	static const char daemon[] = "fi_rpmemd", here[] = "the server";
	const size_t more = sizeof(here) - sizeof(daemon);
	char *at = text;

	while ((at = strstr(at, daemon)) && strlen(text) + more < RP_ERR_LEN) {
		memmove(at + sizeof(here) - 1, at + sizeof(daemon) - 1,
			strlen(at + sizeof(daemon) - 1) + 1);
		memcpy(at, here, sizeof(here) - 1);
	}
}

const char *rpmem_rpc_error(void)
{
	rpc_error_reword(sentence);
	return sentence;
}

char *rpc_error_buf(void)
{
	return sentence;
}

int rpc_error(int ret, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(sentence, sizeof(sentence), fmt, ap);
	va_end(ap);
	return ret;
}
