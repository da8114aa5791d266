// SPDX-License-Identifier: BSD-2-Clause
/* The table of exported pools that fi_rpmemd prints. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "core/method.h"
#include "util/export.h"

void rp_exports_print(const struct rp_exports *x)
{
	const unsigned int n = rp_exports_count(x);
	char size[RP_SIZE_LEN];
	int wide = 4;

	for (unsigned int i = 0; i < n; i++)
		if ((int)strlen(x->offers[i].name) > wide)
			wide = (int)strlen(x->offers[i].name);
	printf("%-*s  %10s  %-7s  %-16s  %s\n", wide, "POOL", "SIZE", "CLASS",
	       "METHOD", "WHY");
	for (unsigned int i = 0; i < n; i++) {
		const struct rp_setup_export *o = &x->offers[i];

		printf("%-*s  %10s  %-7s  %-16s  %s\n", wide, o->name,
		       rp_size_format(o->len, size), rp_class_name(o->class),
		       rp_method_name(o->method), o->why);
	}
}
