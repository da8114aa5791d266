/* SPDX-License-Identifier: BSD-2-Clause */
/* Finds memory properties as the provider does in this environment. */
#ifndef RP_UTIL_FACTS_H
#define RP_UTIL_FACTS_H

#include <stddef.h>

#include "core/caps.h"
#include "core/method.h"

/*
 * Find the properties of memory as its registration would with this base (NULL:
 * "tcp") and device (NULL: unknown), the FI_OFI_RPMEM_* variables and the
 * operator file. Returns as rp_caps_find().
 */
int rp_facts_find(const char *base, const char *device, const void *addr,
		  size_t len, struct rp_facts *facts, char *why,
		  struct rp_sources *src, struct rp_nic *nic);

/* rp_method_for_region(), honoring FI_OFI_RPMEM_METHOD. */
struct rp_choice rp_facts_pick(const struct rp_facts *facts, char *why);

#endif
