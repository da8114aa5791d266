/* SPDX-License-Identifier: BSD-2-Clause */
/* Looks up memory properties as the provider does in this environment. */
#ifndef RP_UTIL_FACTS_H
#define RP_UTIL_FACTS_H

#include <stddef.h>

#include "core/caps.h"
#include "core/method.h"

/*
 * Find the properties of memory as a registration over this base (NULL: "tcp")
 * and device (NULL: unknown) would, with the FI_OFI_RPMEM_* variables and the
 * operator file. Returns as rp_caps_find().
 */
int rp_facts_find(const char *base, const char *device, const void *addr,
		  size_t len, struct rp_facts *facts, char *why,
		  struct rp_sources *src, struct rp_nic *nic);

/* rp_method_for_region() with FI_OFI_RPMEM_METHOD. */
struct rp_choice rp_facts_pick(const struct rp_facts *facts, char *why);

#endif
