/* SPDX-License-Identifier: BSD-2-Clause */
/* Places where a test build misbehaves on purpose; nothing in a normal build.
 */
#ifndef RP_FAULT_H
#define RP_FAULT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Only objects compiled with -DRP_FAULTS look at the environment variable
 * RPMEM_FAULT, a comma separated list of these names. Elsewhere RP_FAULT()
 * is the constant false: no installed library can be told to lose data.
 */
#ifdef RP_FAULTS
bool rp_fault_on(const char *name);
/* Sleep RPMEM_FAULT_MS milliseconds. A line in RPMEM_FAULT_LOG comes first. */
void rp_fault_dawdle(void);
/*
 * Is the point named in RPMEM_FAULT ("slow-flush,drop-replies")? With
 * RPMEM_FAULT_EVERY=n only each n-th time that a named point is asked about.
 */
#define RP_FAULT(name) rp_fault_on(name)
/* Stores went past the caches: tell whoever judges by what was flushed. */
void rp_fault_streamed(const void *addr, size_t len);
/*
 * Who that is, if it was preloaded (fabtests/fault/shadow.c): such stores are
 * instructions, and not a call into a library that it could see.
 */
void __attribute__((visibility("default")))
rpmem_shadow_streamed(const void *addr, size_t len);
#else
#define RP_FAULT(name) false
static inline void rp_fault_dawdle(void)
{
}
static inline void rp_fault_streamed(const void *addr, size_t len)
{
}
#endif

#endif
