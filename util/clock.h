/* SPDX-License-Identifier: BSD-2-Clause */
/* The clock of timeouts. */
#ifndef RP_UTIL_CLOCK_H
#define RP_UTIL_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Milliseconds since some moment in the past; never goes back. */
static inline uint64_t rp_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

#endif
