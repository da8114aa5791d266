/* SPDX-License-Identifier: BSD-2-Clause */
/* A disk fake that reads pages as a disk does. */
#ifndef RP_TEST_DISK_H
#define RP_TEST_DISK_H

#include <stddef.h>

/*
 * memcpy() for a disk: it may read while the program writes to the pages, which
 * is not a data race of the program.
 */
__attribute__((no_sanitize("thread"))) static inline void
disk_reads(void *to, const void *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((char *)to)[i] = ((const volatile char *)from)[i];
}

#endif
