/* SPDX-License-Identifier: BSD-2-Clause */
/* The rows of the method table, for the files of method only. */
#ifndef RP_METHOD_PRIV_H
#define RP_METHOD_PRIV_H

#include "core/method.h"

#define M(x) (1u << RP_MEM_##x)
#define P(x) (1u << RP_PLACE_##x)
#define D(x) (1u << RP_DOMAIN_##x)

/* One row: masks of the facts that it matches, and the resulting method. */
struct rp_row {
	const char *name;
	unsigned int memory, placement, domain;
	/* RP_YES: the region needs the fact; RP_UNKNOWN: it does not matter. */
	enum rp_tri fence;
	enum rp_tri native;
	bool untrusted; /* matches only an untrusted file system */
	enum rp_method method;
	enum rp_class class;
	enum rp_refusal refusal;
};

extern const struct rp_row rp_method_rows[];
extern const size_t rp_method_nrows;

#endif
