/* SPDX-License-Identifier: BSD-2-Clause */
/* An initiator that may be granted rights, and a base that takes reads. */
#ifndef RP_TEST_OWN_RIG_H
#define RP_TEST_OWN_RIG_H

#include "initiator_rig.h"

extern struct rig g;
extern struct rp_peer *p;
extern struct rig_session s; /* cookie 0: none yet */
extern struct rig_told c0, c1;
extern struct rp_write w0, w1;

/* The reads that the base has been given since start(); what it says to one. */
struct rig_read {
	uint64_t peer, key, addr;
	size_t len;
	struct rp_fence *f;
};
extern struct rig_read reads[8];
extern unsigned int nreads;
extern int fence_ret;

/* Of the next start(). */
extern enum rp_method forced;
extern enum rp_path path;
extern const struct rp_cost *cost; /* NULL: the default */

/* own: the base tells of breaks. */
void start(bool own);
/* A durable commit of n ranges, which *t is to be told of from here on. */
struct rp_commit_attr commit_of(struct rig_told *t,
				const struct rp_wire_range *r, size_t n,
				enum rp_class required);
/* Key n, in [4096, 8192), by method m up to this class. */
void confirm(uint32_t n, enum rp_method m, enum rp_class class);
/* Is the agent asked about this range of key n? Ends the commit. */
bool asks(uint32_t n, uint64_t addr, uint64_t len);
/* From the start: key n is fenced. */
void fenced(uint32_t n);

#endif
