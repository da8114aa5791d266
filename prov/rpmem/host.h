/* SPDX-License-Identifier: BSD-2-Clause */
/* Services of the machine that the provider runs on. */
#ifndef RPMEM_HOST_H
#define RPMEM_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/caps.h"
#include "core/pmem.h"

/*
 * One file, so that a simulator can replace it: everything that makes one run
 * differ from the next, and everything that touches media.
 */

/* Monotonic, ns. */
uint64_t rp_host_now(void);
/*
 * The same clock as of the kernel's last tick, some ms ago: cheap even if
 * reading the precise clock needs a system call.
 */
uint64_t rp_host_tick(void);
/* As rp_random(). */
int rp_host_random(void *buf, size_t len);
/* As rp_caps_find(). */
int rp_host_facts(const struct rp_caps_cfg *cfg, const void *addr, size_t len,
		  struct rp_facts *facts, char *why);
/* As rp_caps_intent(). */
int rp_host_lasts(const struct rp_caps_cfg *cfg, const void *addr, size_t len,
		  enum rp_intent *lasts, char *why);
/* Does success of a write prove its arrival? why: RP_SOURCE_LEN bytes. */
bool rp_host_acknowledges(const char *base, const char *device, char *why);
/* A simulator's backend for private connections, instead of TCP or verbs. */
struct rp_rc_attr;
void rp_host_private(struct rp_rc_attr *attr);
/* Instructions that flush that memory; NULL: the CPU's, and msync(2). */
const struct rp_pmem_ops *rp_host_flusher(const void *addr, size_t len);
/* May blocking flushes run on a thread? */
bool rp_host_has_threads(void);

#endif
