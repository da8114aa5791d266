/* SPDX-License-Identifier: BSD-2-Clause */
/* Commits with effects, as tests post them. */
#ifndef RP_TEST_EFFECTS_RIG_H
#define RP_TEST_EFFECTS_RIG_H

#include "initiator_rig.h"

extern struct rig g;
extern struct rp_peer *p;
extern struct rig_told c0, c1, c2, c3;
extern struct rp_write w0;

void start(bool ordered);
/* addr: of the store. As rp_commit_post(). */
int post(struct rig_told *t, const struct rp_wire_range *ranges, size_t n,
	 enum rp_effect effect, uint64_t addr);
/* A store to key 9 at addr behind one range of key 1. */
void then(struct rig_told *t, uint64_t addr);
void notify(struct rig_told *t);
/* The request that must be there; its token. */
uint64_t asked(enum rp_effect effect, uint64_t seq);
/* A session, by a commit that is answered. */
struct rig_session open_session(uint16_t credits);

#endif
