/* SPDX-License-Identifier: BSD-2-Clause */
/* What the provider takes from the machine it runs on. */
#ifndef RPMEM_HOST_H
#define RPMEM_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/caps.h"
#include "core/pmem.h"

/*
 * One file, so that a simulator can be linked in its place: everything that
 * makes one run differ from the next, and everything that touches media.
 */

/* Monotonic, ns. */
uint64_t rp_host_now(void);
/*
 * The same clock as it was when the kernel last looked at it, some ms ago: that
 * is cheap also where the precise clock is no register of the CPU.
 */
uint64_t rp_host_tick(void);
/* Bits that a peer cannot guess. 0 or -errno. */
int rp_host_random(void *buf, size_t len);
/*
 * As rp_caps_region(), with what is known of the transport that writes come
 * over
 * ("tcp", "verbs") and its device, and what the operator's file states, read
 * anew: op_file, NULL: the default.
 */
int rp_host_facts(struct rp_caps_cfg cfg, const char *transport,
		  const char *device, const char *op_file, const void *addr,
		  size_t len, struct rp_facts *facts, char *why);
/* As rp_caps_lasts(). */
int rp_host_lasts(const struct rp_caps_cfg *cfg, const void *addr, size_t len,
		  enum rp_lasts *lasts, char *why);
/* Does the success of a write say that it arrived? why: RP_SOURCE_LEN bytes. */
bool rp_host_acknowledges(const char *base, const char *device, char *why);
/* Private connections over what else than TCP, or verbs. */
struct rp_rc_attr;
void rp_host_private(struct rp_rc_attr *attr);
/* How to flush that memory; NULL: by this CPU's instructions and msync(2). */
const struct rp_pmem_ops *rp_host_flusher(const void *addr, size_t len);
/* May flushes that block run on a thread of their own? */
bool rp_host_has_threads(void);

#endif
