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
 * The pause before the next attempt to reach a peer that is down; ms: the last
 * pause, or 0. Pauses are an eighth of the downtime so far, at most one second,
 * so that a successful attempt comes soon after the peer is up again.
 */
static inline uint64_t rp_pause_ms(uint64_t ms)
{
	ms += ms / 8 + 1;
	return ms < 1000 ? ms : 1000;
}

/*
 * A random pause of at most `left` ms after an attempt that a rival's attempt
 * ended. took: ms of that attempt; lost: number of attempts that were ended so.
 * With equal pauses, two rivals could end each other's attempts for ever. A
 * random pause as long as up to 2^lost attempts soon lets one of them finish.
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
