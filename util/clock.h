/* SPDX-License-Identifier: BSD-2-Clause */
/* The clock for timeouts, and the pauses between connection attempts. */
#ifndef RP_UTIL_CLOCK_H
#define RP_UTIL_CLOCK_H

#include <stdint.h>
#include <sys/random.h>
#include <time.h>

/* Monotonic clock in milliseconds, from an arbitrary start. */
static inline uint64_t rp_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/*
 * The pause before the next attempt to reach a peer that is down, after a pause
 * of ms (0: the first one). An eighth of the downtime so far, at most one
 * second: the attempt that succeeds comes soon after the peer's return.
 */
static inline uint64_t rp_pause_ms(uint64_t ms)
{
	ms += ms / 8 + 1;
	return ms < 1000 ? ms : 1000;
}

/*
 * The pause, of at most `left` ms, after an attempt of `took` ms that a rival's
 * attempt ended; `lost` counts such attempts. Each side's attempt ends the
 * other's, so equal pauses could end attempts for ever. A random pause of up to
 * 2^lost attempts soon leaves one side alone for as long as an attempt takes.
 */
static inline int rp_backoff_ms(uint64_t took, unsigned int lost, uint64_t left)
{
	uint64_t most = (took + 10) << (lost < 4 ? lost : 4);
	uint64_t random = 0;

	if (most > left)
		most = left;
	if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
		random = most / 2;
	return (int)(random % (most + 1));
}

#endif
