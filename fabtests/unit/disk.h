/* SPDX-License-Identifier: BSD-2-Clause */
/* How a fake disk reads memory: it copies pages, as a disk's DMA does. */
#ifndef RP_TEST_DISK_H
#define RP_TEST_DISK_H

#include <stddef.h>

/*
 * Copy n bytes. The program may write to the pages meanwhile: that is no data
 * race of the program, so the thread sanitizer is off here.
 */
__attribute__((no_sanitize("thread"))) static inline void
disk_reads(void *to, const void *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((char *)to)[i] = ((const volatile char *)from)[i];
}

#endif
