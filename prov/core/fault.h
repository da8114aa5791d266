/* SPDX-License-Identifier: BSD-2-Clause */
/* Fault injection points of a test build; nothing in a normal build. */
#ifndef RP_FAULT_H
#define RP_FAULT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Only objects compiled with -DRP_FAULTS read the environment variable
 * RPMEM_FAULT, a comma separated list of points. Elsewhere RP_FAULT() is
 * the constant false: no installed library can be made to lose data.
 */
#ifdef RP_FAULTS
bool rp_fault_on(const char *name);
/* Sleep RPMEM_FAULT_MS milliseconds, after a line in RPMEM_FAULT_LOG. */
void rp_fault_sleep(void);
/*
 * Is the point named in RPMEM_FAULT ("slow-flush,drop-replies")? With
 * RPMEM_FAULT_EVERY=n true only for each n-th check of a named point.
 */
#define RP_FAULT(name) rp_fault_on(name)
/* Non-temporal stores were executed: report them to the flush checker. */
void rp_fault_streamed(const void *addr, size_t len);
/*
 * A function of the checker fabtests/fault/shadow.c, if that is preloaded: the
 * checker interposes calls that flush, but a non-temporal store is no call.
 */
void __attribute__((visibility("default")))
rpmem_shadow_streamed(const void *addr, size_t len);
#else
#define RP_FAULT(name) false
static inline void rp_fault_sleep(void)
{
}
static inline void rp_fault_streamed(const void *addr, size_t len)
{
}
#endif

#endif
