/* SPDX-License-Identifier: BSD-2-Clause */
/* Constants and descriptors of the crash matrix over the verbs shim. */
#ifndef CRASH_SHIM_H
#define CRASH_SHIM_H

#include "core/wire_desc.h"
#include "crash_world.h"

/* Addresses, rkeys and queue pair numbers of the target and the initiator. */
#define SHIM_AT	       0x100000u
#define SHIM_RKEY      7u
#define SHIM_QPN       0x11u
#define SHIM_PEER      0x22u
#define SHIM_SIDE      0x33u /* the initiator's side queue pair */
#define SHIM_RING      0x700000u
#define SHIM_RING_RKEY 8u

/*
 * Operations of the simulated device: atomic writes, and FLUSH as well for
 * method native.
 */
#define SHIM_NATIVE(m)                                                         \
	((m) == RP_METHOD_NATIVE ? RP_DESC_NATIVE : RP_DESC_ATOMIC_WRITE)

/* The descriptor of a target with facts f, whose device and agent support m. */
struct rp_desc shim_desc(const struct rp_facts *f, enum rp_method m);

#endif
