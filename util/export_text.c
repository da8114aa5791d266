// SPDX-License-Identifier: BSD-2-Clause
/* Texts of fi_rpmemd: the table of pools, and why one cannot be registered. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rdma/fi_errno.h>

#include "core/method.h"
#include "util/exit_codes.h"
#include "util/export.h"
#include "util/machine_facts.h"

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

int rp_export_explain(const struct rp_exports *x, const struct rp_export *e,
		      int ret, char *err)
{
	struct rp_facts facts;
	struct rp_choice choice;
	char why[RP_WHY_LEN], obstacle[RP_WHY_LEN];

	if (ret == -EADDRINUSE || ret == -EADDRNOTAVAIL)
		return rp_err(err, RP_EXIT_NETWORK,
			      "no free port for the data of pool '%s': %s; "
			      "free one, or give more ports "
			      "(FI_OFI_RPMEM_PORTS)",
			      e->path, fi_strerror(-ret));
	if (rp_facts_find(x->base, NULL, e->pool.data, e->pool.size, &facts,
			  why, NULL, NULL))
		return rp_err(err, RP_EXIT_CLASS,
			      "pool '%s' cannot be registered: %s", e->path,
			      why);
	choice = rp_facts_pick(&facts, obstacle);
	if (choice.method == RP_METHOD_REFUSED)
		return rp_err(err, RP_EXIT_CLASS,
			      "pool '%s' cannot be made durable: %s%s%s; %s",
			      e->path, why, *obstacle ? "; " : "", obstacle,
			      choice.remedy);
	return rp_err(err, RP_EXIT_FAILED, "pool '%s' cannot be registered: %s",
		      e->path, fi_strerror(-ret));
}
