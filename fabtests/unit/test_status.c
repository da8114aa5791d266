// SPDX-License-Identifier: BSD-2-Clause
/* Statuses: distinct, with a remedy, and equal in core and public header. */
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
#include "rpmem/ext.h"

static const enum rp_status all[] = {
	RP_ST_OK,	    RP_ST_BAD_MESSAGE,	 RP_ST_VERSION,
	RP_ST_UNKNOWN_KEY,  RP_ST_STALE_KEY,	 RP_ST_RANGE,
	RP_ST_WRAP,	    RP_ST_VOLATILE,	 RP_ST_CLASS,
	RP_ST_FLUSH_FAILED, RP_ST_REGION_FAILED, RP_ST_OVERLOADED,
	RP_ST_UNSUPPORTED,  RP_ST_NO_METHOD,	 RP_ST_ALIGN,
	RP_ST_ACCESS,	    RP_ST_WRITE_FAILED,	 RP_ST_TIMEOUT,
	RP_ST_CANCELED,	    RP_ST_NO_MEMORY,	 RP_ST_INDETERMINATE,
	RP_ST_LOST,
};
#define COUNT (sizeof(all) / sizeof(all[0]))

Test(status, list_is_complete)
{
	size_t named = 0;

	/* Each status of the enum must be in the table of this test. */
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
		/* Name and remedy must fit into 256 bytes. */
		cr_assert_lt(strlen(r) + strlen(rp_status_name(all[i])), 250);
	}
}

Test(status, unknown_values_are_survived)
{
	/* The first five are statuses of protocol version 1. */
	static const int odd[] = {3,  10, 66,	     68,      70,
				  18, 63, RP_ST_MAX, 1 << 20, -1};

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		cr_assert_str_eq(rp_status_name(odd[i]), "unknown status");
		cr_assert_eq(rp_status_errno(odd[i]), EPROTO);
		cr_assert_not_null(rp_status_remedy(odd[i]));
	}
}

/* libc has another name for this errno. */
static const char *errno_name(int err)
{
	return err == EOPNOTSUPP ? "EOPNOTSUPP" : strerrorname_np(err);
}

/* The categories of fi_rpmem(7), in the order of their numbers. */
static const enum fi_rpmem_status categories[RP_ST_MAX] = {
	[RP_ST_OK] = FI_RPMEM_ST_OK,
	[RP_ST_BAD_MESSAGE] = FI_RPMEM_ST_PROTOCOL,
	[RP_ST_VERSION] = FI_RPMEM_ST_PROTOCOL,
	[RP_ST_UNKNOWN_KEY] = FI_RPMEM_ST_KEY,
	[RP_ST_STALE_KEY] = FI_RPMEM_ST_KEY,
	[RP_ST_RANGE] = FI_RPMEM_ST_RANGE,
	[RP_ST_WRAP] = FI_RPMEM_ST_RANGE,
	[RP_ST_VOLATILE] = FI_RPMEM_ST_CLASS,
	[RP_ST_CLASS] = FI_RPMEM_ST_CLASS,
	[RP_ST_FLUSH_FAILED] = FI_RPMEM_ST_FAILED,
	[RP_ST_REGION_FAILED] = FI_RPMEM_ST_FAILED,
	[RP_ST_OVERLOADED] = FI_RPMEM_ST_BUSY,
	[RP_ST_UNSUPPORTED] = FI_RPMEM_ST_PROTOCOL,
	[RP_ST_NO_METHOD] = FI_RPMEM_ST_CLASS,
	[RP_ST_ALIGN] = FI_RPMEM_ST_RANGE,
	[RP_ST_ACCESS] = FI_RPMEM_ST_ACCESS,
	[RP_ST_WRITE_FAILED] = FI_RPMEM_ST_LOST,
	[RP_ST_TIMEOUT] = FI_RPMEM_ST_TIMEOUT,
	[RP_ST_CANCELED] = FI_RPMEM_ST_LOST,
	[RP_ST_NO_MEMORY] = FI_RPMEM_ST_BUSY,
	[RP_ST_INDETERMINATE] = FI_RPMEM_ST_INDETERMINATE,
	[RP_ST_LOST] = FI_RPMEM_ST_LOST,
};

Test(status, each_number_has_one_public_category)
{
	bool used[FI_RPMEM_ST_PROTOCOL + 1] = {false};

	for (size_t i = 0; i < COUNT; i++) {
		const enum fi_rpmem_status got = fi_rpmem_status((int)all[i]);

		cr_assert_eq(got, categories[all[i]], "%s",
			     rp_status_name(all[i]));
		cr_assert_eq(got == FI_RPMEM_ST_OK, all[i] == RP_ST_OK);
		used[got] = true;
	}
	/* There are ten categories, with consecutive numbers. */
	cr_assert_eq((int)FI_RPMEM_ST_PROTOCOL, 10);
	for (size_t i = 0; i <= FI_RPMEM_ST_PROTOCOL; i++)
		cr_assert(used[i], "%zu", i);
}

Test(status, numbers_of_later_releases_are_of_the_protocol)
{
	for (int n = -300; n < 300; n++)
		if (n < 0 || n >= RP_ST_MAX ||
		    !strcmp(rp_status_name((enum rp_status)n),
			    "unknown status"))
			cr_assert_eq(fi_rpmem_status(n), FI_RPMEM_ST_PROTOCOL,
				     "%d", n);
}

Test(status, zeroed_commit_is_durable_at_the_endpoints_class)
{
	const struct fi_rpmem_msg msg = {0};

	cr_assert_eq(rp_level_decode(msg.level), RP_LEVEL_DURABLE);
	for (int c = RP_CLASS_NONE; c <= RP_CLASS_POWER; c++)
		cr_assert_eq(rp_class_decode(msg.required, (enum rp_class)c),
			     c);
}

#define CLASS(x)                                                               \
	do {                                                                   \
		cr_assert_eq(rp_class_encode(RP_CLASS_##x),                    \
			     FI_RPMEM_CLASS_##x);                              \
		cr_assert_eq(rp_class_decode(FI_RPMEM_CLASS_##x,               \
					     (enum rp_class)77),               \
			     RP_CLASS_##x);                                    \
	} while (0)

Test(status, public_classes_and_levels_convert_both_ways)
{
	CLASS(NONE);
	CLASS(PROCESS);
	CLASS(POWER);
	cr_assert_eq(rp_level_decode(FI_RPMEM_VISIBLE), RP_LEVEL_VISIBLE);
	cr_assert_eq(rp_level_decode(FI_RPMEM_DURABLE), RP_LEVEL_DURABLE);
	for (int n = -3; n < 300; n++) {
		if (n < 0 || n > FI_RPMEM_CLASS_POWER)
			cr_assert_eq(rp_class_decode((enum fi_rpmem_class)n,
						     RP_CLASS_NONE),
				     -EINVAL);
		if (n < 0 || n > FI_RPMEM_VISIBLE)
			cr_assert_eq(rp_level_decode((enum fi_rpmem_level)n),
				     -EINVAL);
	}
}

#define SAME(x) cr_assert_eq((int)RP_##x, (int)FI_RPMEM_##x)

Test(status, public_methods_are_those_of_core)
{
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

/* docs/guarantees.md has a row for each status, with the words of the code. */
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
