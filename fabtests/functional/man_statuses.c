// SPDX-License-Identifier: BSD-2-Clause
/* Prints every status as fi_rpmem(7) lists it: number, errno, name, remedy. */
#include "config.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/status.h"

int main(void)
{
	for (int st = 1; st < RP_ST_MAX; st++) {
		const char *name = rp_status_name(st);

		if (!strcmp(name, rp_status_name(RP_ST_MAX)))
			continue; /* a gap between the blocks */
		printf("%d %s %c%s. %s\n", st,
		       strerrorname_np(rp_status_errno(st)),
		       toupper((unsigned char)name[0]), name + 1,
		       rp_status_remedy(st));
	}
	return 0;
}
