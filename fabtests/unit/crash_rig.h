/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System calls of this process as the recorder of fi_rpmem_crashtest serves
 * them, and allocations that fail.
 */
#ifndef RP_CRASH_RIG_H
#define RP_CRASH_RIG_H

#include <sys/syscall.h>

#include "util/crashtest/trace.h"

extern struct crash_recorder rig;

/* A new folder below the current one's "files", and an empty ledger. */
void rig_setup(void);
void rig_teardown(void);

/* Execute a call between its begin and its end; returns as syscall(2). */
long rig_call(uint64_t nr, uint64_t a, uint64_t b, uint64_t c, uint64_t d);
int rig_open(const char *path, int flags);
void rig_write(int fd, const char *bytes);
void rig_acknowledge(const char *line);

/* The n-th allocation from now on fails; UINT_MAX: none. */
void rig_fail_at(unsigned int n);
/* The test's own allocations succeed while this is set. */
extern bool rig_allocates;
/* Has it failed? Allocations succeed again. */
bool rig_has_failed(void);

#endif
