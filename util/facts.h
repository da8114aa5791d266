/* SPDX-License-Identifier: BSD-2-Clause */
/* What the provider would find out about memory, told by this environment. */
#ifndef RP_UTIL_FACTS_H
#define RP_UTIL_FACTS_H

#include <stddef.h>

#include "core/caps.h"
#include "core/method.h"

/*
 * As the provider looks at a registration over this base ("tcp", NULL: the
 * same) and device (NULL: none known), with the FI_OFI_RPMEM_* variables of
 * this process and the operator's file. src may be NULL, nic too. Returns what
 * rp_caps_region() does, or the operator's file's error; why (RP_WHY_LEN
 * bytes) says.
 */
int rp_facts_look(const char *base, const char *device, const void *addr,
		  size_t len, struct rp_facts *facts, char *why,
		  struct rp_sources *src, struct rp_nic *nic);

/* rp_method_pick() with what is forced in this environment. */
struct rp_choice rp_facts_pick(const struct rp_facts *facts, char *why);

/* A boolean as libfabric's parameters spell it. */
int rp_facts_flag(const char *name);

#endif
