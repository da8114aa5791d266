/* SPDX-License-Identifier: BSD-2-Clause */
/* One peer with a session, and commits to it. */
#ifndef RP_TEST_COMMIT_RIG_H
#define RP_TEST_COMMIT_RIG_H

#include "initiator_rig.h"

extern struct rig g;
extern struct rp_peer *p;
extern struct rig_told c0, c1, c2;
extern struct rig_session s; /* open, many credits */

void start(void);
void stop(void);
/* Another initiator, of these attributes. */
void restart(const struct rp_initiator_attr *attr);

/* A write of 64 bytes at 64 * slot. */
void begin(struct rp_write *w, unsigned int slot);
void commit(struct rig_told *t, unsigned int slot);
/* A commit that must succeed at once, if it is asked for. */
void commit_good(unsigned int slot);
/* A commit that must fail unasked. */
void commit_poisoned(unsigned int slot);

#endif
