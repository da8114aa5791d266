/* SPDX-License-Identifier: BSD-2-Clause */
/* The reads of a fake disk, which copies pages as a disk's DMA does. */
#ifndef RP_TEST_DISK_H
#define RP_TEST_DISK_H

#include <stddef.h>

/*
 * memcpy() by a fake disk, which may read pages while the program writes to
 * them. That is no data race of the program.
 */
__attribute__((no_sanitize("thread"))) static inline void
disk_reads(void *to, const void *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((char *)to)[i] = ((const volatile char *)from)[i];
}

#endif
