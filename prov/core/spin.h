/* SPDX-License-Identifier: BSD-2-Clause */
/* Busy-polling before a sleep, as long as that pays. */
#ifndef RP_SPIN_H
#define RP_SPIN_H

#include <stdbool.h>
#include <stdint.h>

struct rp_spin {
	uint64_t until;	     /* 0: it does not look on */
	unsigned int missed; /* how many are skipped after a vain one */
	unsigned int skip;   /* ... of which there are still so many */
};

/* The most that a row of vain ones costs: one in so many. */
#define RP_SPIN_SKIPPED 255

/*
 * Each time when nothing is left to do. came: something was, since the last
 * call. ns: for how long to look on, 0: never; now: monotonic, not 0. True:
 * look again; false: sleep.
 */
bool rp_spin(struct rp_spin *s, uint64_t ns, bool came, uint64_t now);

#endif
