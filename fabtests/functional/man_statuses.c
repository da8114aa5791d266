// SPDX-License-Identifier: BSD-2-Clause
/*
 * Prints each status as fi_rpmem(7) lists it: number, category, errno, name,
 * remedy.
 */
#include "config.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include <rdma/fi_ext_rpmem.h>

#include "core/status.h"

static const char *const categories[] = {
	[FI_RPMEM_ST_OK] = "OK",
	[FI_RPMEM_ST_KEY] = "KEY",
	[FI_RPMEM_ST_RANGE] = "RANGE",
	[FI_RPMEM_ST_CLASS] = "CLASS",
	[FI_RPMEM_ST_ACCESS] = "ACCESS",
	[FI_RPMEM_ST_FAILED] = "FAILED",
	[FI_RPMEM_ST_BUSY] = "BUSY",
	[FI_RPMEM_ST_LOST] = "LOST",
	[FI_RPMEM_ST_TIMEOUT] = "TIMEOUT",
	[FI_RPMEM_ST_INDETERMINATE] = "INDETERMINATE",
	[FI_RPMEM_ST_PROTOCOL] = "PROTOCOL",
};

int main(void)
{
	for (int st = 1; st < RP_ST_MAX; st++) {
		const char *name = rp_status_name(st);

		if (!strcmp(name, rp_status_name(RP_ST_MAX)))
			continue; /* a number without a status */
		printf("%d FI_RPMEM_ST_%s %s %c%s. %s\n", st,
		       categories[fi_rpmem_status(st)],
		       strerrorname_np(rp_status_errno(st)),
		       toupper((unsigned char)name[0]), name + 1,
		       rp_status_remedy(st));
	}
	return 0;
}
