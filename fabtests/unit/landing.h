/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that peers write while a test polls for the bytes. */
#ifndef RP_TEST_LANDING_H
#define RP_TEST_LANDING_H

#include <stddef.h>

#ifdef __SANITIZE_THREAD__
/* A thread sanitizer function that no header declares. */
void AnnotateBenignRaceSized(const char *file, int line,
			     const volatile void *at, size_t n,
			     const char *what);
#endif

/*
 * A peer's write takes no lock: with automatic progress a thread of the
 * provider or its base stores it, so polling for the bytes races by intent.
 * Races on the threads' own state are still reported.
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
