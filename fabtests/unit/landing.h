/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that others write while a test looks whether the bytes are there. */
#ifndef RP_TEST_LANDING_H
#define RP_TEST_LANDING_H

#include <stddef.h>

#ifdef __SANITIZE_THREAD__
/* The thread sanitizer's own, named by no header. */
void AnnotateBenignRaceSized(const char *file, int line,
			     const volatile void *at, size_t n,
			     const char *what);
#endif

/*
 * A peer's write has no lock: with automatic progress a thread of the provider
 * or its base stores it, and who polls for the bytes races by intent. What
 * threads do to their own state is still told.
 */
static inline void peers_write_here(const void *at, size_t n)
{
#ifdef __SANITIZE_THREAD__
	AnnotateBenignRaceSized(__FILE__, __LINE__, at, n,
				"written by peers, polled by the test");
#else
	(void)at;
	(void)n;
#endif
}

#endif
