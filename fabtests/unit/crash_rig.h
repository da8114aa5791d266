/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Executes system calls of this process as the recorder of fi_rpmem_crashtest
 * handles them, and makes allocations fail.
 */
#ifndef RP_CRASH_RIG_H
#define RP_CRASH_RIG_H

#include <sys/syscall.h>

#include "util/crashtest/trace.h"

extern struct crash_recorder rig;

/* A new folder below the current one's "files", and an empty ledger. */
void rig_setup(void);
void rig_teardown(void);

/*
 * Execute a system call between the recorder's begin and end of it. Returns as
 * syscall(2) does.
 */
long rig_call(uint64_t nr, uint64_t a, uint64_t b, uint64_t c, uint64_t d);
int rig_open(const char *path, int flags);
void rig_write(int fd, const char *bytes);
void rig_acknowledge(const char *line);

/* Let the n-th allocation from now on fail; UINT_MAX: none. */
void rig_fail_at(unsigned int n);
/* The test's own allocations succeed while this is set. */
extern bool rig_allocates;
/* Did that allocation fail? Later allocations succeed. */
bool rig_has_failed(void);

#endif
