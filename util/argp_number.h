/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers as option arguments of the tools. */
#ifndef RP_UTIL_ARGP_NUMBER_H
#define RP_UTIL_ARGP_NUMBER_H

#include <argp.h>
#include <stdint.h>

#include "util/text.h"

/* Parse the argument of --name; a usage error unless it is in [min, max]. */
static inline uint64_t rp_argp_number(const struct argp_state *state,
				      const char *name, const char *arg,
				      uint64_t min, uint64_t max)
{
	char err[RP_ERR_LEN];
	uint64_t v = 0;

	if (rp_number_parse(arg, min, max, &v, err))
		argp_error(state, "--%s: %s", name, err);
	return v;
}

#endif
