/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that peers write by RDMA while a test polls for the bytes. */
#ifndef RP_TEST_LANDING_H
#define RP_TEST_LANDING_H

#include <stddef.h>

#ifdef __SANITIZE_THREAD__
/* A function of the thread sanitizer that no header declares. */
void AnnotateBenignRaceSized(const char *file, int line,
			     const volatile void *at, size_t n,
			     const char *what);
#endif

/*
 * Tell the thread sanitizer that peers write to these bytes without a lock.
 * With automatic progress a thread of the provider or its base stores them, so
 * polling for the bytes is an intended race. Other races are still reported.
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
