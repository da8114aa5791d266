// SPDX-License-Identifier: BSD-2-Clause
/* Statuses: distinct, each with a remedy, the same in core and public. */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>
#include <rdma/fi_ext_rpmem.h>

#include "core/caps.h"
#include "core/method.h"
#include "core/status.h"
#include "core/wire.h"

static const enum rp_status all[] = {
	RP_ST_OK,	    RP_ST_BAD_MESSAGE,	 RP_ST_VERSION,
	RP_ST_UNKNOWN_KEY,  RP_ST_STALE_KEY,	 RP_ST_RANGE,
	RP_ST_WRAP,	    RP_ST_VOLATILE,	 RP_ST_CLASS,
	RP_ST_FLUSH_FAILED, RP_ST_REGION_FAILED, RP_ST_OVERLOADED,
	RP_ST_UNSUPPORTED,  RP_ST_NO_METHOD,	 RP_ST_ALIGN,
	RP_ST_ACCESS,	    RP_ST_WRITE_FAILED,	 RP_ST_TIMEOUT,
	RP_ST_CANCELED,	    RP_ST_NO_MEMORY,	 RP_ST_UNSURE,
	RP_ST_LOST,
};
#define COUNT (sizeof(all) / sizeof(all[0]))

Test(status, list_is_complete)
{
	size_t named = 0;

	/* A new status in the enum needs a row in this table. */
	for (int st = 0; st < RP_ST_MAX; st++)
		named += strcmp(rp_status_name(st), "unknown status") != 0;
	cr_assert_eq(named, COUNT);
	cr_assert_eq(all[COUNT - 1], RP_ST_MAX - 1);
}

Test(status, names_and_errnos_are_distinct)
{
	for (size_t i = 0; i < COUNT; i++) {
		for (size_t j = 0; j < i; j++) {
			cr_assert_str_neq(rp_status_name(all[i]),
					  rp_status_name(all[j]));
			cr_assert_neq(rp_status_errno(all[i]),
				      rp_status_errno(all[j]), "%s and %s",
				      rp_status_name(all[i]),
				      rp_status_name(all[j]));
		}
		cr_assert_lt(rp_status_errno(all[i]), FI_ERRNO_OFFSET);
		cr_assert(all[i] ? rp_status_errno(all[i]) > 0
				 : rp_status_errno(all[i]) == 0);
	}
}

Test(status, remedies_are_sentences)
{
	for (size_t i = 0; i < COUNT; i++) {
		const char *r = rp_status_remedy(all[i]);

		cr_assert_gt(strlen(r), 10);
		cr_assert(isupper((unsigned char)r[0]) || r[0] == 'f', "%s", r);
		cr_assert_eq(r[strlen(r) - 1], '.', "%s", r);
		/* Name and remedy fit into 256 bytes. */
		cr_assert_lt(strlen(r) + strlen(rp_status_name(all[i])), 250);
	}
}

Test(status, unknown_values_are_survived)
{
	/* The first five were statuses of version 1. */
	static const int odd[] = {3,  10, 66,	     68,      70,
				  18, 63, RP_ST_MAX, 1 << 20, -1};

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		cr_assert_str_eq(rp_status_name(odd[i]), "unknown status");
		cr_assert_eq(rp_status_errno(odd[i]), EPROTO);
		cr_assert_not_null(rp_status_remedy(odd[i]));
	}
}

/* libc has this one under another name. */
static const char *errno_name(int err)
{
	return err == EOPNOTSUPP ? "EOPNOTSUPP" : strerrorname_np(err);
}

#define SAME(x) cr_assert_eq((int)RP_##x, (int)FI_RPMEM_##x)

Test(status, public_twins)
{
	SAME(ST_OK);
	SAME(ST_BAD_MESSAGE);
	SAME(ST_VERSION);
	SAME(ST_UNKNOWN_KEY);
	SAME(ST_STALE_KEY);
	SAME(ST_RANGE);
	SAME(ST_WRAP);
	SAME(ST_VOLATILE);
	SAME(ST_CLASS);
	SAME(ST_FLUSH_FAILED);
	SAME(ST_REGION_FAILED);
	SAME(ST_OVERLOADED);
	SAME(ST_UNSUPPORTED);
	SAME(ST_NO_METHOD);
	SAME(ST_ALIGN);
	SAME(ST_ACCESS);
	SAME(ST_WRITE_FAILED);
	SAME(ST_TIMEOUT);
	SAME(ST_CANCELED);
	SAME(ST_NO_MEMORY);
	SAME(ST_UNSURE);
	SAME(ST_LOST);

	SAME(CLASS_NONE);
	SAME(CLASS_PROCESS);
	SAME(CLASS_POWER);

	cr_assert_eq((int)RP_LEVEL_VISIBLE, (int)FI_RPMEM_VISIBLE);
	cr_assert_eq((int)RP_LEVEL_DURABLE, (int)FI_RPMEM_DURABLE);

	SAME(METHOD_REFUSED);
	SAME(METHOD_DELIVERY);
	SAME(METHOD_FENCE);
	SAME(METHOD_NATIVE);
	SAME(METHOD_AGENT_SFENCE);
	SAME(METHOD_AGENT_CLWB);
	SAME(METHOD_AGENT_MSYNC);
	SAME(METHOD_AGENT_CLWB_MSYNC);
	cr_assert_eq((int)RP_METHOD_MAX,
		     (int)FI_RPMEM_METHOD_AGENT_CLWB_MSYNC + 1);
}

Test(status, errnos_that_the_calls_return_too)
{
	cr_assert_eq(rp_status_errno(RP_ST_TIMEOUT), FI_ETIMEDOUT);
	cr_assert_eq(rp_status_errno(RP_ST_NO_MEMORY), FI_ENOMEM);
}

/* docs/guarantees.md has one row per status, with the words of the code. */
Test(status, document)
{
	FILE *f = fopen(RP_SRCDIR "/docs/guarantees.md", "r");
	char line[512], want[512];
	size_t rows = 0;
	bool table = false;

	cr_assert_not_null(f);
	while (fgets(line, sizeof(line), f)) {
		enum rp_status st;

		if (strstr(line, "<!-- status table"))
			table = true;
		else if (strstr(line, "<!-- end of status table"))
			table = false;
		if (!table || sscanf(line, "| %u |", &st) != 1)
			continue;
		cr_assert_lt(rows + 1, COUNT);
		cr_assert_eq(st, all[rows + 1]);
		snprintf(want, sizeof(want), "| %u | %s | %s | %s |\n", st,
			 rp_status_name(st), errno_name(rp_status_errno(st)),
			 rp_status_remedy(st));
		cr_assert_str_eq(line, want);
		rows++;
	}
	fclose(f);
	cr_assert_eq(rows, COUNT - 1);
}
