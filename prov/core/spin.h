/* SPDX-License-Identifier: BSD-2-Clause */
/* Busy-polling before a sleep, less often while it finds no work. */
#ifndef RP_SPIN_H
#define RP_SPIN_H

#include <stdbool.h>
#include <stdint.h>

struct rp_spin {
	uint64_t until;	     /* end of the polling; 0: no polling */
	unsigned int missed; /* polls skipped after the last useless one */
	unsigned int skip;   /* polls still to skip */
};

/* Most polls skipped in a row: at least 1 of 256 is tried. */
#define RP_SPIN_MAX_SKIPPED 255

/*
 * Called when a poll finds no work: poll again (true), or sleep (false)? came:
 * there was work since the last call; ns: busy-poll budget, 0: none; now: time
 * of a monotonic clock, not 0.
 */
bool rp_spin(struct rp_spin *s, uint64_t ns, bool came, uint64_t now);

#endif
