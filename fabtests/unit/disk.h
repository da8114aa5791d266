/* SPDX-License-Identifier: BSD-2-Clause */
/* What stands for a disk in a test reads pages as a disk does. */
#ifndef RP_TEST_DISK_H
#define RP_TEST_DISK_H

#include <stddef.h>

/*
 * memcpy for a disk: it goes on while the program writes to the pages, which is
 * not a race of the program's.
 */
__attribute__((no_sanitize("thread"))) static inline void
disk_reads(void *to, const void *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((char *)to)[i] = ((const volatile char *)from)[i];
}

#endif
