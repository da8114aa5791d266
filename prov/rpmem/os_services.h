/* SPDX-License-Identifier: BSD-2-Clause */
/* Services of the machine: clock, random bytes, memory facts, media flushes. */
#ifndef RPMEM_OS_SERVICES_H
#define RPMEM_OS_SERVICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/caps.h"
#include "core/pmem.h"

/*
 * A simulator replaces host.c, which has everything that makes one run differ
 * from the next, and everything that touches media.
 */

/* Monotonic time in ns. */
uint64_t rp_host_now(void);
/*
 * The monotonic clock at the kernel's last tick, some ms ago: cheap even if
 * reading the precise clock needs a system call.
 */
uint64_t rp_host_tick(void);
/* Fill buf with random bytes, as rp_random() does. */
int rp_host_random(void *buf, size_t len);
/* Determine the facts of a memory range, as rp_caps_find() does. */
int rp_host_facts(const struct rp_caps_cfg *cfg, const void *addr, size_t len,
		  struct rp_facts *facts, char *why);
/* Does the memory outlast the process? As rp_caps_intent(). */
int rp_host_intent(const struct rp_caps_cfg *cfg, const void *addr, size_t len,
		   enum rp_intent *intent, char *why);
/* Does a write's completion prove its arrival? why: RP_SOURCE_LEN bytes. */
bool rp_host_acknowledges(const char *base, const char *device, char *why);
/* Let a simulator replace the backend of private connections (attr->ops). */
struct rp_rc_attr;
void rp_host_replace_rc(struct rp_rc_attr *attr);
/* Functions that flush this memory; NULL: CPU instructions or msync(2). */
const struct rp_pmem_ops *rp_host_flusher(const void *addr, size_t len);
/* May blocking flushes run on a worker thread? */
bool rp_host_has_threads(void);

#endif
