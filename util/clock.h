/* SPDX-License-Identifier: BSD-2-Clause */
/* The clock of timeouts, and the pauses between attempts. */
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

/*
 * The pause between attempts to reach a peer that is away, behind a pause of ms
 * (0: the first one). An eighth of the time that the peer was away, so that it
 * is found soon after its return, and not more than a second.
 */
static inline uint64_t rp_pause_ms(uint64_t ms)
{
	ms += ms / 8 + 1;
	return ms < 1000 ? ms : 1000;
}

#endif
